/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ports of this host stand alone: it is not known that they reach the same peers as most of
 * the others, and a connection does not go on to another port. Ports of InfiniBand are taken for
 * ports of one fabric; those of RoCE reach the same peers for sure if their interfaces are in one
 * subnet. Subnets with routes between them cannot be told from those without.
 *
 * Thread: the one in init. */
#include "base/alloc.h"
#include "ib_int.h"

static int reach_the_same(const struct ib_ctx *ctx, const struct xccl_netif *netifs, size_t a,
                          size_t b)
{
    uint8_t layer = ctx->devices[a].attr.link_layer;

    if (layer != ctx->devices[b].attr.link_layer)
        return 0;
    return layer != IBV_LINK_LAYER_ETHERNET ||
           xccl_addr_same_subnet(&netifs[a].addr, &netifs[b].addr, &netifs[a].mask);
}

xcclResult_t ib_subnets_look(struct ib_ctx *ctx)
{
    size_t count = (size_t)ctx->device_count, most = 0, best = 0;
    struct xccl_netif *netifs = xccl_calloc(count + 1, sizeof(*netifs));

    if (!netifs)
        return xcclSystemError;
    for (size_t i = 0; i < count && count > 1; i++)
        (void)xccl_netif_named(ctx->devices[i].netdev, &netifs[i]);
    for (size_t i = 0; i < count; i++) {
        size_t size = 1;

        for (size_t k = 0; k < count; k++)
            size += i != k && reach_the_same(ctx, netifs, i, k);
        if (size > most) {
            most = size;
            best = i;
        }
    }
    for (size_t i = 0; i < count; i++)
        ctx->devices[i].is_alone = i != best && !reach_the_same(ctx, netifs, i, best);
    xccl_free(netifs);
    return xcclSuccess;
}
