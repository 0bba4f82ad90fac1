/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ports of this host stand alone: it is not known that they reach the same peers as the
 * others, and a connection does not go on to another port. Ports of InfiniBand are taken for ports
 * of one fabric; those of RoCE reach the same peers for sure if their interfaces are in one IPv4
 * subnet. Subnets with routes between them cannot be told from those without.
 *
 * Thread: the one in init. */
#include <ifaddrs.h>
#include <netinet/in.h>
#include <string.h>

#include "ib_int.h"

struct subnet {
    uint32_t addr, mask; /* mask 0: not known */
};

static struct subnet subnet_of(const struct ifaddrs *list, const char *netdev)
{
    for (const struct ifaddrs *at = list; at && netdev[0]; at = at->ifa_next) {
        struct sockaddr_in addr, mask;

        if (!at->ifa_addr || !at->ifa_netmask || at->ifa_addr->sa_family != AF_INET ||
            strcmp(at->ifa_name, netdev) != 0)
            continue;
        memcpy(&addr, at->ifa_addr, sizeof(addr));
        memcpy(&mask, at->ifa_netmask, sizeof(mask));
        return (struct subnet){addr.sin_addr.s_addr, mask.sin_addr.s_addr};
    }
    return (struct subnet){0, 0};
}

static int reach_the_same(const struct ifaddrs *list, const struct ib_device *a,
                          const struct ib_device *b)
{
    struct subnet ours, theirs;

    if (a->attr.link_layer != b->attr.link_layer)
        return 0;
    if (a->attr.link_layer != IBV_LINK_LAYER_ETHERNET)
        return 1;
    ours = subnet_of(list, a->netdev);
    theirs = subnet_of(list, b->netdev);
    return ours.mask && ours.mask == theirs.mask && !((ours.addr ^ theirs.addr) & ours.mask);
}

void ib_subnets_look(struct ib_ctx *ctx)
{
    struct ifaddrs *list = NULL;

    if (getifaddrs(&list) != 0)
        list = NULL; /* then nothing is known of RoCE */
    for (int i = 0; i < ctx->device_count; i++) {
        for (int k = 0; k < ctx->device_count; k++)
            ctx->devices[i].is_alone |= i != k &&
                                        !reach_the_same(list, &ctx->devices[i], &ctx->devices[k]);
    }
    if (list)
        freeifaddrs(list);
}
