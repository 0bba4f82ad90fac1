/* SPDX-License-Identifier: BSD-3-Clause */
/* Several interfaces as one device: a connection of it has lines on all of them, and a message
 * takes them all. A receiver listens on each; the handle has the addresses. Through which interface
 * a sender goes to each is sock_subnet.c's.
 *
 * Limits: 4 interfaces of one device, 8 such devices, IP only. Thread: one, before the first
 * connection of the instance. */
#include "sock_int.h"

#include <stdio.h>
#include <string.h>

static xcclResult_t check(const struct sock_ctx *ctx, const int *devs, int count)
{
    if (!xccl_net_may_merge(devs, count, SOCK_RAILS_MAX, ctx->device_count))
        return xcclInvalidArgument;
    for (int i = 0; i < count; i++) {
        if (ctx->devices[devs[i]].rail_count > 1 ||
            ctx->devices[devs[i]].netif.addr.sa.any.sa_family == AF_UNIX)
            return xccl_fail_quietly(xcclInvalidUsage, 0, "merge devices of one interface each",
                                     "device %s cannot be merged", ctx->devices[devs[i]].name);
    }
    return xcclSuccess;
}

/* The device that was made of these before; -1: none. */
static int find(const struct sock_ctx *ctx, const int *devs, int count)
{
    for (int dev = 0; dev < ctx->device_count; dev++) {
        const struct sock_device *device = &ctx->devices[dev];

        if (device->rail_count == count &&
            memcmp(device->rails, devs, (size_t)count * sizeof(*devs)) == 0)
            return dev;
    }
    return -1;
}

xcclResult_t sock_merge(xcclNetContext_t ctx_, const int *devs, int count, int *dev_out)
{
    struct sock_ctx *ctx = ctx_;
    struct sock_device *merged = &ctx->devices[ctx->device_count];
    char name[SOCK_NAME_BYTES];
    size_t used = 0;
    xcclResult_t rc = check(ctx, devs, count);

    if (rc != xcclSuccess)
        return rc;
    *dev_out = count == 1 ? devs[0] : find(ctx, devs, count);
    if (*dev_out >= 0)
        return xcclSuccess;
    if (ctx->device_count == SOCK_DEVICES_MAX + SOCK_MERGED_MAX)
        return xccl_fail_quietly(xcclInvalidUsage, 0, NULL,
                                 "there are already %d devices, the largest number possible",
                                 ctx->device_count);
    memcpy(merged, &ctx->devices[devs[0]], offsetof(struct sock_device, tally));
    merged->rail_count = count;
    merged->speed_mbps = 0;
    for (int i = 0; i < count; i++) {
        const struct sock_device *rail = &ctx->devices[devs[i]];

        merged->rails[i] = devs[i];
        merged->speed_mbps += rail->speed_mbps;
        used += (size_t)snprintf(name + used, sizeof(name) - used, "%s%.15s", i ? "+" : "",
                                 rail->name);
    }
    memcpy(merged->name, name, sizeof(name));
    merged->stream_count = sock_streams_for(merged->speed_mbps);
    if (merged->stream_count < count)
        merged->stream_count = count;
    *dev_out = ctx->device_count++;
    return xcclSuccess;
}
