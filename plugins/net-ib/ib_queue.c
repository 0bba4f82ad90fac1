/* SPDX-License-Identifier: BSD-3-Clause */
/* A comm's queue pairs: reliable connections, some for each two ports that talk, with a completion
 * queue a port. Made in the handshake once it is known which ports those are, started once the
 * peer's block is there.
 *
 * Thread: the comm's. Posting neither allocates nor locks by itself. */
#include "ib_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "base/param.h"

#define RECEIVES  IB_SENDS /* work requests of a receiver: one for each message under way */
#define RNR_TIMER 12 /* 0.64 ms; receives are always posted, so it does not come to that */
#define PSN_MASK  0xffffffu
#define HOP_LIMIT 64
/* Words of XCCL_IB_ADAPTIVE_ROUTING. */
#define ROUTING_OFF   1
#define ROUTING_ON    2
#define INLINE_WANTED (IB_PARTS * sizeof(struct ib_line))

/* How much a device takes inline is found out by asking for less and less. */
static struct ibv_qp *qp_make(struct ib_comm *comm, struct ib_pair *pair, struct ib_port *port)
{
    for (uint32_t bytes = INLINE_WANTED;; bytes /= 2) {
        struct ibv_qp_init_attr attr = {
            .qp_context = pair, /* for its events */
            .send_cq = port->cq,
            .recv_cq = port->cq,
            .qp_type = IBV_QPT_RC,
            .cap = {.max_send_wr = IB_QUEUE_DEPTH,
                    .max_recv_wr = comm->is_send ? 1 : RECEIVES,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = bytes},
        };
        struct ibv_qp *qp = comm->ctx->verbs->create_qp(port->device->pd, &attr);

        /* What all of them take. */
        if (qp && bytes < comm->queue.inline_bytes)
            comm->queue.inline_bytes = bytes;
        if (qp || bytes == 0)
            return qp;
        if (bytes < sizeof(struct ib_line))
            bytes = 1;
    }
}

static xcclResult_t to_init(struct ib_comm *comm, const struct ib_pair *pair)
{
    const struct ib_device *device = comm->queue.ports[pair->port].device;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = (uint16_t)xccl_param_int(XCCL_P_IB_PKEY),
                               .port_num = (uint8_t)device->port,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int err = comm->ctx->verbs->modify_qp(
        pair->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

    return err ? xccl_fail_quietly(xcclSystemError, err, "check XCCL_IB_PKEY",
                                   "cannot set up a queue pair on %s", device->name)
               : xcclSuccess;
}

xcclResult_t ib_pair_make(struct ib_comm *comm, struct ib_pair *pair)
{
    struct ib_port *port = &comm->queue.ports[pair->port];
    xcclResult_t rc = xccl_os_random((uint8_t *)&pair->psn, sizeof(pair->psn));

    if (rc != xcclSuccess)
        return rc;
    pair->psn &= PSN_MASK;
    pair->qp = qp_make(comm, pair, port);
    if (!pair->qp)
        return xccl_fail_quietly(xcclSystemError, errno,
                                 "use fewer connections, or raise ulimit -l",
                                 "cannot create a queue pair on %s", port->device->name);
    return to_init(comm, pair);
}

void ib_pair_destroy(struct ib_comm *comm, struct ib_pair *pair)
{
    if (pair->qp)
        comm->ctx->verbs->destroy_qp(pair->qp);
    pair->qp = NULL;
}

/* On InfiniBand a service level (XCCL_IB_SL) may be routed adaptively; RoCE networks that can do so
 * are not told from others. */
static int is_spread(const struct ib_device *device)
{
    switch ((int)xccl_param_int(XCCL_P_IB_ADAPTIVE_ROUTING)) {
    case ROUTING_OFF:
        return 0;
    case ROUTING_ON:
        return 1;
    default:
        return device->attr.link_layer == IBV_LINK_LAYER_INFINIBAND;
    }
}

xcclResult_t ib_queue_init(struct ib_comm *comm)
{
    struct ib_queue *queue = &comm->queue;
    xcclResult_t failed_rc = xcclSuccess;
    uint32_t well = 0;

    queue->port_count = comm->device->port_count;
    for (uint32_t i = 0; i < queue->port_count; i++) {
        struct ib_port *port = &queue->ports[i];
        xcclResult_t rc;

        port->device = comm->device->ports[i];
        port->spreads = is_spread(port->device);
        rc = ib_gid_choose(comm->ctx, port);
        if (rc != xcclSuccess)
            failed_rc = rc;
        port->is_left_out = rc != xcclSuccess || ib_port_is_down(comm->ctx, port->device);
        well += !port->is_left_out;
    }
    if (well)
        return xcclSuccess;
    /* One that is down may come up again while packets are sent to it. */
    for (uint32_t i = 0; i < queue->port_count; i++)
        queue->ports[i].is_left_out = 0;
    return failed_rc;
}

/* With several ports there is room for what a pair and the one in its place leave behind. */
static xcclResult_t cq_make(struct ib_comm *comm, uint32_t port_idx)
{
    struct ib_port *port = &comm->queue.ports[port_idx];
    int entries = 0, each = IB_QUEUE_DEPTH + (comm->is_send ? 1 : RECEIVES);

    for (uint32_t i = 0; i < comm->queue.count; i++)
        entries += comm->queue.pairs[i].port == port_idx ? each * (1 + comm->has_spare) : 0;
    port->cq = entries ? comm->ctx->verbs->create_cq(port->device->context, entries, comm, NULL, 0)
                       : NULL;
    if (port->cq || !entries)
        return xcclSuccess;
    return xccl_fail_quietly(xcclSystemError, errno, "use fewer connections, or raise ulimit -l",
                             "cannot create a completion queue on %s", port->device->name);
}

/* ---- what a vendor's cards agree on: the receiver offers, the sender takes what it can ---- */

static void extras_ask(const struct ib_comm *comm, struct ib_pair *pair)
{
    memset(&pair->ece, 0, sizeof(pair->ece));
    if (comm->ctx->verbs->query_ece && comm->ctx->verbs->query_ece(pair->qp, &pair->ece))
        memset(&pair->ece, 0, sizeof(pair->ece));
}

/* Before the queue pair starts. What it refuses is left. 1: it has taken something. */
static int extras_take(const struct ib_comm *comm, const struct ib_pair *pair)
{
    const struct ib_extras *peer = &comm->peer.extras[pair - comm->queue.pairs];
    struct ibv_ece ece = {
        .vendor_id = peer->vendor, .options = peer->options, .comp_mask = peer->mask};

    return ece.vendor_id && comm->ctx->verbs->set_ece &&
           comm->ctx->verbs->set_ece(pair->qp, &ece) == 0;
}

xcclResult_t ib_queue_make(struct ib_comm *comm, const struct ib_link *links, uint32_t count)
{
    struct ib_queue *queue = &comm->queue;
    xcclResult_t rc = xcclSuccess;

    queue->count = count;
    queue->inline_bytes = INLINE_WANTED;
    for (uint32_t i = 0; i < count; i++) {
        struct ib_pair *pair = &queue->pairs[i];

        pair->comm = comm;
        pair->port = comm->is_send ? links[i].sender : links[i].receiver;
        pair->peer_port = comm->is_send ? links[i].receiver : links[i].sender;
        comm->has_spare |= pair->port != queue->pairs[0].port ||
                           pair->peer_port != queue->pairs[0].peer_port;
    }
    for (uint32_t i = 0; i < queue->port_count && rc == xcclSuccess; i++)
        rc = cq_make(comm, i);
    for (uint32_t i = 0; i < count && rc == xcclSuccess; i++) {
        rc = ib_pair_make(comm, &queue->pairs[i]);
        if (rc == xcclSuccess && !comm->is_send)
            extras_ask(comm, &queue->pairs[i]);
    }
    return rc;
}

void ib_queue_fini(struct ib_comm *comm)
{
    struct ib_queue *queue = &comm->queue;

    for (uint32_t i = 0; i < queue->count; i++)
        ib_pair_destroy(comm, &queue->pairs[i]);
    for (uint32_t i = 0; i < queue->port_count; i++) {
        if (queue->ports[i].cq)
            comm->ctx->verbs->destroy_cq(queue->ports[i].cq);
        queue->ports[i].cq = NULL;
    }
}

void ib_queue_tell(const struct ib_comm *comm, struct ib_block *block_out)
{
    const struct ib_queue *queue = &comm->queue;

    memset(block_out, 0, sizeof(*block_out));
    block_out->per_link = (uint32_t)xccl_param_int(XCCL_P_IB_QPS_PER_CONNECTION);
    block_out->ports = queue->port_count;
    for (uint32_t i = 0; i < queue->port_count; i++)
        ib_gid_tell(&queue->ports[i], &block_out->port[i]);
    block_out->pairs = queue->count;
    for (uint32_t i = 0; i < queue->count; i++) {
        const struct ib_pair *pair = &queue->pairs[i];

        block_out->qp_num[i] = pair->qp->qp_num;
        block_out->psn[i] = pair->psn;
        block_out->link[i].receiver = (uint8_t)(comm->is_send ? pair->peer_port : pair->port);
        block_out->link[i].sender = (uint8_t)(comm->is_send ? pair->port : pair->peer_port);
        block_out->extras[i] = (struct ib_extras){.vendor = pair->ece.vendor_id,
                                                  .options = pair->ece.options,
                                                  .mask = pair->ece.comp_mask};
    }
}

void ib_queue_count_up(struct ib_comm *comm)
{
    struct ib_queue *queue = &comm->queue;

    queue->up_count = 0;
    for (uint32_t i = 0; i < queue->count; i++) {
        if (queue->pairs[i].state == IB_PAIR_UP)
            queue->up[queue->up_count++] = (uint8_t)i;
    }
    comm->unsettled = queue->count - queue->up_count;
    if (queue->up_count)
        comm->dark_ns = 0;
    else if (!comm->dark_ns)
        comm->dark_ns = xccl_clock_ns();
}

int ib_queue_poll(struct ib_comm *comm, int max, struct ibv_wc *wcs)
{
    struct ib_queue *queue = &comm->queue;
    int count = 0;

    for (uint32_t i = 0; i < queue->port_count && count == 0; i++) {
        queue->turn = queue->turn + 1 < queue->port_count ? queue->turn + 1 : 0;
        if (queue->ports[queue->turn].cq)
            count = ibv_poll_cq(queue->ports[queue->turn].cq, max, wcs);
    }
    if (count < 0)
        ib_comm_fail(comm, xcclNetCauseLocal,
                     xccl_fail_quietly(xcclSystemError, 0, "see the kernel's log",
                                       "cannot read the completions of %s",
                                       queue->ports[queue->turn].device->name));
    return count;
}

/* A receiver sends lines and acknowledgements only, whose class may be another one. */
int ib_traffic_class(const struct ib_comm *comm)
{
    int control = (int)xccl_param_int(XCCL_P_IB_CONTROL_TC);

    if (!comm->is_send && control >= 0)
        return control;
    return comm->ctx->traffic_class >= 0 ? comm->ctx->traffic_class
                                         : (int)xccl_param_int(XCCL_P_IB_TC);
}

/* RoCE always has a global header; InfiniBand where the subnets differ. */
struct ibv_ah_attr ib_way_to(const struct ib_port *port, const struct ib_port_info *peer,
                             int traffic_class)
{
    struct ibv_ah_attr way = {.dlid = peer->lid,
                              .sl = (uint8_t)xccl_param_int(XCCL_P_IB_SL),
                              .port_num = (uint8_t)port->device->port};

    way.is_global = peer->link_layer == IBV_LINK_LAYER_ETHERNET ||
                    memcmp(peer->gid, port->gid.raw, 8) != 0;
    if (!way.is_global)
        return way;
    memcpy(way.grh.dgid.raw, peer->gid, sizeof(peer->gid));
    way.grh.sgid_index = (uint8_t)port->gid_idx;
    way.grh.hop_limit = HOP_LIMIT;
    way.grh.traffic_class = (uint8_t)traffic_class;
    return way;
}

static int to_receive(struct ib_comm *comm, const struct ib_pair *pair)
{
    uint32_t idx = (uint32_t)(pair - comm->queue.pairs);
    uint8_t mtu = comm->peer.port[pair->peer_port].mtu;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = comm->queue.ports[pair->port].device->attr.active_mtu,
                               .dest_qp_num = comm->peer.qp_num[idx],
                               .rq_psn = comm->peer.psn[idx],
                               .max_dest_rd_atomic = 1,
                               .min_rnr_timer = RNR_TIMER,
                               .ah_attr = ib_way_to(&comm->queue.ports[pair->port],
                                                    &comm->peer.port[pair->peer_port],
                                                    ib_traffic_class(comm))};

    if (mtu < attr.path_mtu)
        attr.path_mtu = mtu;
    return comm->ctx->verbs->modify_qp(pair->qp, &attr,
                                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                           IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_send(struct ib_comm *comm, const struct ib_pair *pair)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .timeout = (uint8_t)xccl_param_int(XCCL_P_IB_TIMEOUT),
                               .retry_cnt = (uint8_t)xccl_param_int(XCCL_P_IB_RETRY_CNT),
                               .rnr_retry = 7,
                               .sq_psn = pair->psn,
                               .max_rd_atomic = 1};

    return comm->ctx->verbs->modify_qp(pair->qp, &attr,
                                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                           IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                           IBV_QP_MAX_QP_RD_ATOMIC);
}

xcclResult_t ib_pair_start(struct ib_comm *comm, struct ib_pair *pair)
{
    const struct ib_port *port = &comm->queue.ports[pair->port];
    const struct ib_port_info *peer = &comm->peer.port[pair->peer_port];
    char gid[IB_GID_TEXT_BYTES], peer_gid[IB_GID_TEXT_BYTES];
    int err = to_receive(comm, pair);

    if (!err)
        err = to_send(comm, pair);
    if (!err) {
        pair->state = IB_PAIR_UP;
        return xcclSuccess;
    }
    ib_gid_format(port->gid.raw, gid);
    ib_gid_format(peer->gid, peer_gid);
    return xccl_fail_quietly(xcclSystemError, err,
                             "check that there is a route between these addresses, or choose "
                             "others with XCCL_IB_GID_INDEX",
                             "%s with GID %s cannot be connected to %s of %s with GID %s",
                             port->device->name, gid, peer->name, comm->peer_text, peer_gid);
}

xcclResult_t ib_queue_start(struct ib_comm *comm)
{
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < comm->queue.count && rc == xcclSuccess; i++) {
        struct ib_pair *pair = &comm->queue.pairs[i];
        int took = extras_take(comm, pair);

        rc = ib_pair_start(comm, pair);
        if (rc == xcclSuccess && took && comm->is_send)
            extras_ask(comm, pair);
    }
    ib_queue_count_up(comm);
    return rc;
}

void ib_queue_post(struct ib_comm *comm, uint32_t pair_idx, struct ibv_send_wr *first,
                   uint32_t count)
{
    struct ib_pair *pair = &comm->queue.pairs[pair_idx];
    struct ibv_send_wr *bad;
    int err = ibv_post_send(pair->qp, first, &bad);

    pair->posted += count;
    if (!err || ib_pair_break(comm, pair))
        return;
    ib_comm_fail_code(
        comm, xcclNetCauseLocal, 0, err,
        xccl_fail_quietly(xcclSystemError, err, NULL, "%s accepts no more work for %s",
                          comm->queue.ports[pair->port].device->name, comm->peer_text));
}
