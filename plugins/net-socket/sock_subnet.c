/* SPDX-License-Identifier: BSD-3-Clause */
/* Subnets of this host's interfaces. A line to a peer's address leaves by the interface in whose
 * subnet that is. Where several are, the system would always take one of them, so a line is bound
 * to the one that is meant; all else is left to the system's routes.
 *
 * Thread: reading them in init, all else any. */
#include <ifaddrs.h>
#include <string.h>

#include "sock_int.h"

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

int sock_subnet_shared(const struct sock_ctx *ctx, const struct sock_device *device)
{
    for (int i = 0; i < ctx->device_count; i++) {
        const struct sock_device *other = &ctx->devices[i];

        if (other != device && other->rail_count == 1 &&
            same_subnet(&other->netif.addr, &device->netif.addr, &device->mask))
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

        if (same_subnet(&rail->netif.addr, addr, &rail->mask))
            near[count++] = rail;
    }
    if (device->rail_count == 1 && same_subnet(&device->netif.addr, addr, &device->mask) &&
        sock_subnet_shared(ctx, device))
        near[count++] = device;
    return count ? near[turn % count] : NULL;
}

void sock_subnets_read(struct sock_ctx *ctx)
{
    struct ifaddrs *list = NULL;

    if (getifaddrs(&list) != 0)
        return; /* without it the system's routes choose */
    for (int i = 0; i < ctx->device_count; i++)
        find_mask(list, &ctx->devices[i], &ctx->devices[i].mask);
    freeifaddrs(list);
}
