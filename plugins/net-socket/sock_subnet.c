/* SPDX-License-Identifier: BSD-3-Clause */
/* Subnets of this host's interfaces. A line to a peer's address leaves by the interface in whose
 * subnet that is. Where several are, the system would always take one of them, so a line is bound
 * to the one that is meant; all else is left to the system's routes.
 *
 * Thread: any. */
#include "sock_int.h"

int sock_subnet_shared(const struct sock_ctx *ctx, const struct sock_device *device)
{
    for (int i = 0; i < ctx->device_count; i++) {
        const struct sock_device *other = &ctx->devices[i];

        if (other != device && other->rail_count == 1 &&
            xccl_addr_same_subnet(&other->netif.addr, &device->netif.addr, &device->netif.mask))
            return 1;
    }
    return 0;
}

const struct sock_device *sock_subnet_towards(const struct sock_ctx *ctx,
                                              const struct sock_device *device,
                                              const struct xccl_addr *addr, int turn)
{
    const struct sock_device *near[SOCK_RAILS_MAX];
    int count = 0;

    for (int i = 0; i < device->rail_count && device->rail_count > 1; i++) {
        const struct sock_device *rail = &ctx->devices[device->rails[i]];

        if (xccl_addr_same_subnet(&rail->netif.addr, addr, &rail->netif.mask))
            near[count++] = rail;
    }
    if (device->rail_count == 1 &&
        xccl_addr_same_subnet(&device->netif.addr, addr, &device->netif.mask) &&
        sock_subnet_shared(ctx, device))
        near[count++] = device;
    return count ? near[turn % count] : NULL;
}
