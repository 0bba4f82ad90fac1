/* SPDX-License-Identifier: BSD-3-Clause */
/* Several interfaces as one device: a connection of it has lines on all of them, and a message
 * takes them all. A receiver listens on each; the handle has the addresses. A sender takes, for
 * each address, the one of its own interfaces that is in the same subnet, and leaves the way to the
 * system's routes where none is.
 *
 * Limits: 4 interfaces of one device, 8 such devices, IP only. Thread: one, before the first
 * connection of the instance. */
#include "sock_int.h"

#include <ifaddrs.h>
#include <stdio.h>
#include <string.h>

/* The mask of the device's own address. */
static void find_mask(const struct ifaddrs *list, const struct sock_device *device,
                      struct xccl_addr *mask_out)
{
    memset(mask_out, 0, sizeof(*mask_out));
    for (const struct ifaddrs *at = list; at; at = at->ifa_next) {
        struct xccl_addr addr = {.bytes = device->netif.addr.bytes};

        if (!at->ifa_addr || !at->ifa_netmask || strcmp(at->ifa_name, device->netif.name) != 0 ||
            at->ifa_addr->sa_family != device->netif.addr.sa.any.sa_family)
            continue;
        memcpy(&addr.sa, at->ifa_addr, addr.bytes);
        if (!xccl_addr_equal(&addr, &device->netif.addr))
            continue;
        memcpy(&mask_out->sa, at->ifa_netmask, addr.bytes);
        mask_out->bytes = addr.bytes;
        return;
    }
}

static const uint8_t *address_bytes(const struct xccl_addr *addr, size_t *bytes_out)
{
    if (addr->sa.any.sa_family == AF_INET6) {
        *bytes_out = sizeof(addr->sa.in6.sin6_addr);
        return addr->sa.in6.sin6_addr.s6_addr;
    }
    *bytes_out = sizeof(addr->sa.in4.sin_addr);
    return (const uint8_t *)&addr->sa.in4.sin_addr;
}

static int same_subnet(const struct xccl_addr *a, const struct xccl_addr *b,
                       const struct xccl_addr *mask)
{
    const uint8_t *left, *right, *bits;
    size_t bytes;

    if (!mask->bytes || a->sa.any.sa_family != b->sa.any.sa_family)
        return 0;
    left = address_bytes(a, &bytes);
    right = address_bytes(b, &bytes);
    bits = mask->sa.any.sa_family == AF_INET6 ? mask->sa.in6.sin6_addr.s6_addr
                                              : (const uint8_t *)&mask->sa.in4.sin_addr;
    for (size_t i = 0; i < bytes; i++) {
        if ((left[i] ^ right[i]) & bits[i])
            return 0;
    }
    return 1;
}

const struct sock_device *sock_merge_towards(const struct sock_ctx *ctx,
                                             const struct sock_device *device,
                                             const struct xccl_addr *addr, int turn)
{
    const struct sock_device *near[SOCK_RAILS_MAX];
    int count = 0;

    for (int i = 0; i < device->rail_count && device->rail_count > 1; i++) {
        const struct sock_device *rail = &ctx->devices[device->rails[i]];

        if (same_subnet(&rail->netif.addr, addr, &device->masks[i]))
            near[count++] = rail;
    }
    return count ? near[turn % count] : NULL;
}

int sock_merge_shares(const struct sock_ctx *ctx, const struct sock_device *device, int rail)
{
    for (int i = 0; i < rail; i++) {
        if (same_subnet(&ctx->devices[device->rails[i]].netif.addr,
                        &ctx->devices[device->rails[rail]].netif.addr, &device->masks[rail]))
            return 1;
    }
    return 0;
}

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
    struct ifaddrs *list = NULL;
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
    (void)getifaddrs(&list); /* without it the system's routes choose */
    memcpy(merged, &ctx->devices[devs[0]], offsetof(struct sock_device, tally));
    merged->rail_count = count;
    merged->speed_mbps = 0;
    for (int i = 0; i < count; i++) {
        const struct sock_device *rail = &ctx->devices[devs[i]];

        merged->rails[i] = devs[i];
        merged->speed_mbps += rail->speed_mbps;
        find_mask(list, rail, &merged->masks[i]);
        used += (size_t)snprintf(name + used, sizeof(name) - used, "%s%.15s", i ? "+" : "",
                                 rail->name);
    }
    memcpy(merged->name, name, sizeof(name));
    if (list)
        freeifaddrs(list);
    merged->stream_count = sock_streams_for(merged->speed_mbps);
    if (merged->stream_count < count)
        merged->stream_count = count;
    *dev_out = ctx->device_count++;
    return xcclSuccess;
}
