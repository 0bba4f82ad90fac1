/* SPDX-License-Identifier: BSD-3-Clause */
/* Several cards as one device: a comm of it has an endpoint on each, and a message takes them all
 * (ofi_piece.c). The members must be alike: messages of one size, registrations of one mode.
 *
 * Limits: OFI_RAILS_MAX cards, OFI_MERGED_MAX such devices. Thread: one, before the first
 * connection of the instance. */
#include <stdio.h>
#include <string.h>

#include "ofi_int.h"

static int is_alike(const struct ofi_device *a, const struct ofi_device *b)
{
    return a->local_mr == b->local_mr && a->piece_bytes == b->piece_bytes &&
           a->takes_cuda == b->takes_cuda && a->takes_dmabuf == b->takes_dmabuf &&
           a->info->domain_attr->mr_mode == b->info->domain_attr->mr_mode &&
           a->info->domain_attr->cq_data_size == b->info->domain_attr->cq_data_size &&
           ofi_device_parts(a) == ofi_device_parts(b) &&
           ofi_device_send_bytes(a) == ofi_device_send_bytes(b);
}

static xcclResult_t check(const struct ofi_ctx *ctx, const int *devs, int count)
{
    if (!xccl_net_may_merge(devs, count, OFI_RAILS_MAX, ctx->device_count))
        return xcclInvalidArgument;
    for (int i = 0; i < count; i++) {
        const struct ofi_device *device = &ctx->devices[devs[i]];

        if (device->member_count > 1)
            return xccl_fail_quietly(xcclInvalidUsage, 0, "merge devices of one card each",
                                     "device %s cannot be merged", device->name);
        if (!is_alike(device, &ctx->devices[devs[0]]))
            return xccl_fail_quietly(xcclInvalidUsage, 0, "merge devices that are alike",
                                     "devices %s and %s support different messages", device->name,
                                     ctx->devices[devs[0]].name);
    }
    return xcclSuccess;
}

/* The device that was made of these before; -1: none. */
static int find(const struct ofi_ctx *ctx, const int *devs, int count)
{
    for (int dev = 0; dev < ctx->device_count; dev++) {
        const struct ofi_device *device = &ctx->devices[dev];
        int alike = device->member_count == (uint32_t)count;

        for (int i = 0; i < count && alike; i++)
            alike = device->members[i] == &ctx->devices[devs[i]];
        if (alike)
            return dev;
    }
    return -1;
}

xcclResult_t ofi_merge(xcclNetContext_t ctx_, const int *devs, int count, int *dev_out)
{
    struct ofi_ctx *ctx = ctx_;
    struct ofi_device *merged = &ctx->devices[ctx->device_count], *first;
    xcclResult_t rc = check(ctx, devs, count);
    char name[OFI_NAME_BYTES];
    size_t used = 0;
    int known;

    if (rc != xcclSuccess)
        return rc;
    known = find(ctx, devs, count);
    if (known >= 0) {
        *dev_out = known;
        return xcclSuccess;
    }
    if (ctx->device_count == OFI_DEVICES_MAX + OFI_MERGED_MAX)
        return xccl_fail_quietly(xcclInvalidUsage, 0, NULL,
                                 "there are already %d devices, the largest number possible",
                                 ctx->device_count);
    first = &ctx->devices[devs[0]];
    merged->member_count = (uint32_t)count;
    merged->control = first->control;
    merged->info = first->info;
    merged->local_mr = first->local_mr;
    merged->takes_cuda = first->takes_cuda;
    merged->takes_dmabuf = first->takes_dmabuf;
    merged->piece_bytes = first->piece_bytes;
    memcpy(merged->pci_path, first->pci_path, sizeof(merged->pci_path));
    for (int i = 0; i < count; i++) {
        struct ofi_device *member = &ctx->devices[devs[i]];

        merged->members[i] = member;
        merged->speed_mbps += member->speed_mbps;
        used += (size_t)snprintf(name + used, sizeof(name) - used, "%s%.15s", i ? "+" : "",
                                 member->name);
    }
    memcpy(merged->name, name, sizeof(name));
    *dev_out = ctx->device_count++;
    return xcclSuccess;
}
