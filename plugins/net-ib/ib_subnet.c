/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ports of this host stand alone: it is not known that they reach the same peers as the
 * others, and a connection does not go on to another port. Ports of InfiniBand are taken for ports
 * of one fabric; those of RoCE reach the same peers for sure if their interfaces are in one
 * subnet. Subnets with routes between them cannot be told from those without.
 *
 * Thread: the one in init. */
#include <string.h>

#include "base/alloc.h"
#include "ib_int.h"

static int reach_the_same(const struct ib_device *a, const struct xccl_netif *netif_a,
                          const struct ib_device *b, const struct xccl_netif *netif_b)
{
    if (a->attr.link_layer != b->attr.link_layer)
        return 0;
    return a->attr.link_layer != IBV_LINK_LAYER_ETHERNET ||
           xccl_addr_same_subnet(&netif_a->addr, &netif_b->addr, &netif_a->mask);
}

xcclResult_t ib_subnets_look(struct ib_ctx *ctx)
{
    size_t count = (size_t)ctx->device_count;
    struct xccl_netif *netifs = xccl_calloc(count + 1, sizeof(*netifs));

    if (!netifs)
        return xcclSystemError;
    for (size_t i = 0; i < count && count > 1; i++)
        (void)xccl_netif_named(ctx->devices[i].netdev, &netifs[i]);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < count; k++)
            ctx->devices[i].is_alone |= i != k && !reach_the_same(&ctx->devices[i], &netifs[i],
                                                                  &ctx->devices[k], &netifs[k]);
    }
    xccl_free(netifs);
    return xcclSuccess;
}
