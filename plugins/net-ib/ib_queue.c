/* SPDX-License-Identifier: BSD-3-Clause */
/* A comm's queue pairs: reliable connections with one completion queue for all. Made in the
 * handshake, started once the peer's block is there.
 *
 * Thread: the comm's. Posting neither allocates nor locks by itself. */
#include "ib_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "base/param.h"

#define RECEIVES      IB_SENDS /* work requests of a receiver: one for each message under way */
#define RNR_TIMER     12 /* 0.64 ms; receives are always posted, so it does not come to that */
#define PSN_MASK      0xffffffu
#define HOP_LIMIT     64
#define INLINE_WANTED (IB_PARTS * sizeof(struct ib_line))

/* How much a device takes inline is found out by asking for less and less. */
static struct ibv_qp *qp_make(struct ib_comm *comm)
{
    for (uint32_t bytes = INLINE_WANTED;; bytes /= 2) {
        struct ibv_qp_init_attr attr = {
            .qp_context = comm, /* for its events */
            .send_cq = comm->queue.cq,
            .recv_cq = comm->queue.cq,
            .qp_type = IBV_QPT_RC,
            .cap = {.max_send_wr = IB_QUEUE_DEPTH,
                    .max_recv_wr = comm->is_send ? 1 : RECEIVES,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = bytes},
        };
        struct ibv_qp *qp = comm->ctx->verbs->create_qp(comm->device->pd, &attr);

        comm->queue.inline_bytes = qp ? bytes : 0;
        if (qp || bytes == 0)
            return qp;
        if (bytes < sizeof(struct ib_line))
            bytes = 1;
    }
}

static xcclResult_t to_init(struct ib_comm *comm, const struct ib_pair *pair)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = (uint16_t)xccl_param_int(XCCL_P_IB_PKEY),
                               .port_num = (uint8_t)comm->device->port,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int err = comm->ctx->verbs->modify_qp(
        pair->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

    return err ? xccl_fail_quietly(xcclSystemError, err, "see XCCL_IB_PKEY",
                                   "cannot set up a queue pair on %s", comm->device->name)
               : xcclSuccess;
}

static xcclResult_t pair_init(struct ib_comm *comm, struct ib_pair *pair)
{
    xcclResult_t rc = xccl_os_random((uint8_t *)&pair->psn, sizeof(pair->psn));

    if (rc != xcclSuccess)
        return rc;
    pair->psn &= PSN_MASK;
    pair->qp = qp_make(comm);
    if (!pair->qp)
        return xccl_fail_quietly(xcclSystemError, errno,
                                 "use fewer connections, or raise ulimit -l", "no queue pair on %s",
                                 comm->device->name);
    return to_init(comm, pair);
}

xcclResult_t ib_queue_init(struct ib_comm *comm, uint32_t pairs)
{
    struct ib_queue *queue = &comm->queue;
    int entries = (int)pairs * (IB_QUEUE_DEPTH + (comm->is_send ? 1 : RECEIVES));
    xcclResult_t rc = ib_gid_choose(comm->ctx, comm->device, queue);

    if (rc != xcclSuccess)
        return rc;
    queue->count = pairs;
    queue->cq = comm->ctx->verbs->create_cq(comm->device->context, entries, comm, NULL, 0);
    if (!queue->cq)
        return xccl_fail_quietly(xcclSystemError, errno,
                                 "use fewer connections, or raise ulimit -l",
                                 "no completion queue on %s", comm->device->name);
    for (uint32_t i = 0; i < pairs && rc == xcclSuccess; i++)
        rc = pair_init(comm, &queue->pairs[i]);
    return rc;
}

void ib_queue_cut(struct ib_comm *comm, uint32_t pairs)
{
    for (uint32_t i = pairs; i < comm->queue.count; i++) {
        if (comm->queue.pairs[i].qp)
            comm->ctx->verbs->destroy_qp(comm->queue.pairs[i].qp);
        comm->queue.pairs[i].qp = NULL;
    }
    comm->queue.count = pairs;
}

void ib_queue_fini(struct ib_comm *comm)
{
    ib_queue_cut(comm, 0);
    if (comm->queue.cq)
        comm->ctx->verbs->destroy_cq(comm->queue.cq);
    comm->queue.cq = NULL;
}

void ib_queue_tell(const struct ib_comm *comm, struct ib_block *block_out)
{
    const struct ib_queue *queue = &comm->queue;

    memset(block_out, 0, sizeof(*block_out));
    memcpy(block_out->gid, queue->gid.raw, sizeof(block_out->gid));
    block_out->pairs = queue->count;
    for (uint32_t i = 0; i < queue->count; i++) {
        block_out->qp_num[i] = queue->pairs[i].qp->qp_num;
        block_out->psn[i] = queue->pairs[i].psn;
    }
    block_out->lid = comm->device->attr.lid;
    block_out->link_layer = comm->device->attr.link_layer;
    block_out->mtu = (uint8_t)comm->device->attr.active_mtu;
    block_out->gid_type = (uint8_t)queue->gid_type;
    snprintf(block_out->name, sizeof(block_out->name), "%.23s", comm->device->name);
}

/* RoCE always has a global header; InfiniBand where the subnets differ. */
static struct ibv_ah_attr way_to_peer(const struct ib_comm *comm)
{
    const struct ib_block *peer = &comm->peer;
    int traffic_class = comm->ctx->traffic_class >= 0 ? comm->ctx->traffic_class
                                                      : (int)xccl_param_int(XCCL_P_IB_TC);
    struct ibv_ah_attr way = {.dlid = peer->lid,
                              .sl = (uint8_t)xccl_param_int(XCCL_P_IB_SL),
                              .port_num = (uint8_t)comm->device->port};

    way.is_global = peer->link_layer == IBV_LINK_LAYER_ETHERNET ||
                    memcmp(peer->gid, comm->queue.gid.raw, 8) != 0;
    if (!way.is_global)
        return way;
    memcpy(way.grh.dgid.raw, peer->gid, sizeof(peer->gid));
    way.grh.sgid_index = (uint8_t)comm->queue.gid_idx;
    way.grh.hop_limit = HOP_LIMIT;
    way.grh.traffic_class = (uint8_t)traffic_class;
    return way;
}

static int to_receive(struct ib_comm *comm, uint32_t idx)
{
    uint8_t mtu = comm->peer.mtu;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = comm->device->attr.active_mtu,
                               .dest_qp_num = comm->peer.qp_num[idx],
                               .rq_psn = comm->peer.psn[idx],
                               .max_dest_rd_atomic = 1,
                               .min_rnr_timer = RNR_TIMER,
                               .ah_attr = way_to_peer(comm)};

    if (mtu < attr.path_mtu)
        attr.path_mtu = mtu;
    return comm->ctx->verbs->modify_qp(comm->queue.pairs[idx].qp, &attr,
                                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                           IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_send(struct ib_comm *comm, uint32_t idx)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .timeout = (uint8_t)xccl_param_int(XCCL_P_IB_TIMEOUT),
                               .retry_cnt = (uint8_t)xccl_param_int(XCCL_P_IB_RETRY_CNT),
                               .rnr_retry = 7,
                               .sq_psn = comm->queue.pairs[idx].psn,
                               .max_rd_atomic = 1};

    return comm->ctx->verbs->modify_qp(comm->queue.pairs[idx].qp, &attr,
                                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                           IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                           IBV_QP_MAX_QP_RD_ATOMIC);
}

xcclResult_t ib_queue_start(struct ib_comm *comm)
{
    char gid[IB_GID_TEXT_BYTES], peer_gid[IB_GID_TEXT_BYTES];
    struct ib_block here;
    xcclResult_t rc;
    int err = 0;

    ib_queue_tell(comm, &here);
    rc = ib_reach_check(&here, &comm->peer);
    if (rc != xcclSuccess)
        return rc;
    for (uint32_t i = 0; i < comm->queue.count && !err; i++) {
        err = to_receive(comm, i);
        if (!err)
            err = to_send(comm, i);
    }
    if (!err)
        return xcclSuccess;
    ib_gid_format(here.gid, gid);
    ib_gid_format(comm->peer.gid, peer_gid);
    return xccl_fail_quietly(xcclSystemError, err,
                             "see that there is a route between these addresses, or choose others "
                             "by XCCL_IB_GID_INDEX",
                             "%s with GID %s cannot be connected to %s of %s with GID %s",
                             comm->device->name, gid, comm->peer.name, comm->peer_text, peer_gid);
}

void ib_queue_post(struct ib_comm *comm, uint32_t pair_idx, struct ibv_send_wr *first,
                   uint32_t count)
{
    struct ib_pair *pair = &comm->queue.pairs[pair_idx];
    struct ibv_send_wr *bad;
    int err = ibv_post_send(pair->qp, first, &bad);

    pair->posted += count;
    if (!err)
        return;
    comm->sys_errno = err;
    ib_comm_fail(comm, xcclNetCauseLocal,
                 xccl_fail_quietly(xcclSystemError, err, NULL, "%s takes no more work towards %s",
                                   comm->device->name, comm->peer_text));
}
