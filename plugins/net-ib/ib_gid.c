/* SPDX-License-Identifier: BSD-3-Clause */
/* Which of a port's GIDs a connection uses, and whether two ends can talk by theirs. The table is
 * read anew for each connection, for addresses come and go. Thread: any. */
#include "ib_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/param.h"

#define TABLE_MAX 256 /* entries looked at */

/* Kernels without the attribute know no RoCE v2. */
static enum ib_gid_type type_read(const struct ib_device *device, int idx)
{
    char path[160], text[32] = "";
    FILE *file;

    snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/ports/%d/gid_attrs/types/%d",
             device->card, device->port, idx);
    file = fopen(path, "re");
    if (file) {
        /* In containers reading may fail though opening did not. */
        if (!fgets(text, sizeof(text), file))
            text[0] = 0;
        fclose(file);
    }
    return strncmp(text, "RoCE v2", 7) == 0 ? IB_GID_ROCE2 : IB_GID_ROCE1;
}

static void entry_take(const struct ib_device *device, int idx, const union ibv_gid *gid,
                       struct ib_queue *queue)
{
    queue->gid_idx = idx;
    queue->gid = *gid;
    queue->gid_type = device->attr.link_layer == IBV_LINK_LAYER_ETHERNET ? type_read(device, idx)
                                                                         : IB_GID_IB;
}

static xcclResult_t take_named(const struct ib_ctx *ctx, const struct ib_device *device, int idx,
                               struct ib_queue *queue)
{
    union ibv_gid gid;

    if (ctx->verbs->query_gid(device->context, (uint8_t)device->port, idx, &gid))
        return xccl_fail_quietly(xcclInvalidArgument, 0, "see XCCL_IB_GID_INDEX and ibv_devinfo -v",
                                 "%s has no GID %d", device->name, idx);
    entry_take(device, idx, &gid, queue);
    return xcclSuccess;
}

xcclResult_t ib_gid_choose(const struct ib_ctx *ctx, const struct ib_device *device,
                           struct ib_queue *queue)
{
    int named = (int)xccl_param_int(XCCL_P_IB_GID_INDEX), best = -1;
    int count = device->attr.gid_tbl_len < TABLE_MAX ? device->attr.gid_tbl_len : TABLE_MAX;

    if (named >= 0 || device->attr.link_layer != IBV_LINK_LAYER_ETHERNET)
        return take_named(ctx, device, named >= 0 ? named : 0, queue);
    for (int i = 0; i < count; i++) {
        union ibv_gid gid;
        int score;

        if (ctx->verbs->query_gid(device->context, (uint8_t)device->port, i, &gid) ||
            ib_gid_score(gid.raw, IB_GID_ROCE1) < 0)
            continue;
        score = ib_gid_score(gid.raw, type_read(device, i));
        if (score <= best)
            continue;
        best = score;
        entry_take(device, i, &gid, queue);
    }
    if (best >= 0)
        return xcclSuccess;
    return xccl_fail_quietly(xcclSystemError, 0, "give its network interface an address",
                             "%s has no GID that can be used", device->name);
}

static xcclResult_t reach_refuse(const struct ib_block *here, const struct ib_block *there,
                                 const char *why)
{
    char gid[IB_GID_TEXT_BYTES], peer_gid[IB_GID_TEXT_BYTES];

    ib_gid_format(here->gid, gid);
    ib_gid_format(there->gid, peer_gid);
    return xccl_fail_quietly(xcclInvalidUsage, 0,
                             "choose ports and GIDs that fit by XCCL_IB_HCA and "
                             "XCCL_IB_GID_INDEX",
                             "%s with GID %s cannot talk to %s of the peer with GID %s: %s",
                             here->name, gid, there->name, peer_gid, why);
}

xcclResult_t ib_reach_check(const struct ib_block *here, const struct ib_block *there)
{
    if (here->link_layer != there->link_layer)
        return reach_refuse(here, there, "one is InfiniBand, the other is Ethernet");
    if (here->gid_type != there->gid_type)
        return reach_refuse(here, there, "one is RoCE v1, the other is RoCE v2");
    if (here->gid_type != IB_GID_IB && ib_gid_is_ipv4(here->gid) != ib_gid_is_ipv4(there->gid))
        return reach_refuse(here, there, "one is an IPv4 address, the other is an IPv6 address");
    if (there->mtu < IBV_MTU_256 || there->mtu > IBV_MTU_4096)
        return reach_refuse(here, there, "the peer's MTU is not known");
    return xcclSuccess;
}
