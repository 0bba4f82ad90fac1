/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver: writes a line for each receive into the sender's ring, and waits for the immediate
 * value behind the data, one for each piece. Receive r of this comm has the 8 lines from 8 * (r mod
 * 32) on, which are free again once it is done.
 *
 * For each message that may come there is an empty receive in each queue pair, taken by its
 * immediate value and put back at once, so the sender never finds none.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs, but for the end of a queue
 * pair that has failed (ib_failover.c), which the library gives back. */
#include "ib_int.h"

#include <string.h>

#define POLL_MAX 16

/* Gives errno. */
static int post_empty(struct ib_comm *comm, uint32_t pair_idx, uint32_t count)
{
    struct ib_pair *pair = &comm->queue.pairs[pair_idx];
    struct ibv_recv_wr empty[POLL_MAX], *bad;
    int err;

    memset(empty, 0, sizeof(empty));
    for (uint32_t i = 0; i < count; i++) {
        empty[i].wr_id = ib_wr_id(pair, pair_idx, 1, 0);
        empty[i].next = i + 1 < count ? &empty[i + 1] : NULL;
    }
    err = ibv_post_recv(pair->qp, empty, &bad);
    if (!err)
        pair->receives += count;
    return err;
}

static xcclResult_t tell_no_receives(const struct ib_comm *comm, const struct ib_pair *pair,
                                     int err)
{
    return xccl_fail_quietly(xcclSystemError, err, NULL, "%s accepts no more receives from %s",
                             comm->queue.ports[pair->port].device->name, comm->peer_text);
}

xcclResult_t ib_recv_start(struct ib_receiver *receiver, uint32_t pair_idx)
{
    struct ib_pair *pair = &receiver->comm.queue.pairs[pair_idx];
    int err = 0;

    pair->receives = 0;
    for (uint32_t i = 0; i < IB_SENDS / POLL_MAX && !err; i++)
        err = post_empty(&receiver->comm, pair_idx, POLL_MAX);
    return err ? tell_no_receives(&receiver->comm, pair, err) : xcclSuccess;
}

static void fail_protocol(struct ib_receiver *receiver, uint32_t imm)
{
    ib_comm_fail(&receiver->comm, xcclNetCauseProtocol,
                 xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                                   "%s sent an unexpected message (%#x)", receiver->comm.peer_text,
                                   imm));
}

/* A piece has come whole. */
static void piece_take(struct ib_receiver *receiver, struct ib_pair *pair, const struct ibv_wc *wc)
{
    uint32_t imm = wc->imm_data, part = ib_imm_part(imm), which = ib_imm_which(imm);
    struct ib_recv *recv = &receiver->recvs[ib_imm_slot(imm)];
    size_t bytes = ib_imm_units(imm) * IB_UNIT_BYTES + wc->byte_len;

    /* A piece that is posted once more has not come before, so none comes twice. */
    if (recv->request.state != IB_WAITS || !(recv->left >> part & 1) ||
        (recv->pieces[part] >> which & 1) || bytes > recv->room[part] - recv->bytes[part]) {
        fail_protocol(receiver, imm);
        return;
    }
    recv->bytes[part] += bytes;
    recv->pieces[part] |= (uint8_t)(1u << which);
    /* Relaxed: who flushes has seen the receive done, which comes behind it. */
    if (!(atomic_load_explicit(&receiver->came_ports, memory_order_relaxed) >> pair->port & 1))
        atomic_fetch_or_explicit(&receiver->came_ports, 1u << pair->port, memory_order_relaxed);
    pair->last_pieces++;
    if ((uint32_t)__builtin_popcount(recv->pieces[part]) < ib_imm_pieces(imm))
        return;
    recv->left &= ~(1u << part);
    if (recv->left == 0)
        recv->request.state = IB_DONE;
    xccl_net_count_message(&receiver->comm.counters, 0, recv->bytes[part]);
}

/* A send completion is numbered, and completes all before it. */
static void completion_take(struct ib_receiver *receiver, const struct ibv_wc *wc,
                            uint32_t taken_out[IB_PAIRS_MAX])
{
    struct ib_pair *pair = ib_pair_of(&receiver->comm.queue, wc);

    if (!pair)
        return;
    if (ib_is_receive(wc))
        pair->receives--;
    if (wc->status != IBV_WC_SUCCESS) {
        ib_comm_fail_wc(&receiver->comm, pair, wc);
    } else if (ib_is_receive(wc) && pair->qp) {
        taken_out[wc->wr_id >> 32 & (IB_PAIRS_MAX - 1)]++;
        piece_take(receiver, pair, wc);
    } else if (!ib_is_receive(wc)) {
        pair->completed = (uint32_t)wc->wr_id;
    }
}

/* For those that were taken, of a pair that still takes messages. */
static void put_back(struct ib_comm *comm, uint32_t pair_idx, uint32_t count)
{
    struct ib_pair *pair = &comm->queue.pairs[pair_idx];
    int err;

    if (pair->state != IB_PAIR_UP && pair->state != IB_PAIR_ANSWERED)
        return;
    err = post_empty(comm, pair_idx, count);
    if (err && !ib_pair_break(comm, pair))
        ib_comm_fail_code(comm, xcclNetCauseLocal, 0, err, tell_no_receives(comm, pair, err));
}

/* 1: something has come. */
static int poll_once(struct ib_receiver *receiver)
{
    struct ib_comm *comm = &receiver->comm;
    struct ibv_wc wcs[POLL_MAX];
    int count = ib_queue_poll(comm, POLL_MAX, wcs);
    uint32_t taken[IB_PAIRS_MAX] = {0};

    for (int i = 0; i < count && comm->rc == xcclSuccess; i++)
        completion_take(receiver, &wcs[i], taken);
    for (uint32_t i = 0; i < comm->queue.count && count > 0 && comm->rc == xcclSuccess; i++) {
        if (taken[i])
            put_back(comm, i, taken[i]);
    }
    if (count == 0)
        ib_comm_flushed(comm);
    return count > 0 && comm->rc == xcclSuccess;
}

static void note_take(struct ib_comm *comm, const struct ib_note *note)
{
    switch (note->kind) {
    case IB_NOTE_TOO_LARGE:
        ib_comm_fail(comm, xcclNetCauseProtocol,
                     xccl_fail_quietly(xcclInvalidUsage, 0, "post receives as large as their sends",
                                       "%s sends %llu bytes, but the receive has room for %llu",
                                       comm->peer_text, (unsigned long long)note->value,
                                       (unsigned long long)note->value2));
        break;
    case IB_NOTE_NO_TAG:
        ib_comm_fail(comm, xcclNetCauseProtocol,
                     xccl_fail_quietly(xcclInvalidUsage, 0,
                                       "post receives with the tags of the sends",
                                       "%s sends a message with tag %llu, for which there is no "
                                       "receive",
                                       comm->peer_text, (unsigned long long)note->value));
        break;
    default:
        ib_comm_fail(comm, xcclNetCauseProtocol,
                     xccl_fail_quietly(xcclRemoteError, 0,
                                       "use the same build of XCCL on all ranks",
                                       "%s sends a control message of unknown kind %u",
                                       comm->peer_text, note->kind));
        break;
    }
}

/* Writes the lines of a receive to the sender. */
static void lines_write(struct ib_receiver *receiver, uint32_t slot)
{
    struct ib_comm *comm = &receiver->comm;
    struct ib_line *lines = &receiver->lines[slot * IB_PARTS];
    uint32_t bytes = (uint32_t)receiver->recvs[slot].count * (uint32_t)sizeof(struct ib_line);
    uint32_t pair_idx = receiver->line_pair;
    struct ib_pair *pair = &comm->queue.pairs[pair_idx];
    uint32_t number = pair->posted + 1;
    struct ibv_sge piece = {
        .addr = (uintptr_t)lines, .length = bytes, .lkey = receiver->lines_mrs[pair->port]->lkey};
    struct ibv_send_wr work = {
        .wr_id = ib_wr_id(pair, pair_idx, 0, number),
        .sg_list = &piece,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .wr.rdma = {.remote_addr = comm->peer.ring_addr +
                                   (uint64_t)slot * IB_PARTS * sizeof(struct ib_line),
                    .rkey = comm->peer.ring_rkey[pair->peer_port]},
    };

    if (bytes <= comm->queue.inline_bytes)
        work.send_flags |= IBV_SEND_INLINE;
    /* One in 16, so that there is always room again. */
    if (number - pair->signalled >= IB_QUEUE_DEPTH / 4) {
        work.send_flags |= IBV_SEND_SIGNALED;
        pair->signalled = number;
    }
    ib_queue_post(comm, pair_idx, &work, 1);
}

/* What may not have come by a pair that is gone, by another one; until all of it is posted there
 * are no new ones. */
static void lines_write_again(struct ib_receiver *receiver)
{
    struct ib_queue *queue = &receiver->comm.queue;

    /* Whatever the last one had under way cannot come any more: only then another one follows. */
    if (queue->pairs[receiver->line_pair].state >= IB_PAIR_GONE && queue->up_count)
        receiver->line_pair = queue->up[0];
    while (receiver->lines_due && receiver->comm.rc == xcclSuccess &&
           ib_pair_room(&queue->pairs[receiver->line_pair])) {
        uint32_t slot = (uint32_t)__builtin_ctz(receiver->lines_due);

        receiver->lines_due &= receiver->lines_due - 1;
        if (receiver->recvs[slot].request.state == IB_WAITS)
            lines_write(receiver, slot);
    }
}

void ib_recv_move_lines(struct ib_receiver *receiver, uint32_t pair_idx)
{
    if (receiver->line_pair == pair_idx)
        receiver->lines_due = UINT32_MAX;
    lines_write_again(receiver);
}

void ib_recv_drain(struct ib_receiver *receiver)
{
    int most = (int)receiver->comm.queue.port_count * (IB_CQ_MAX / POLL_MAX + 1);

    while (most-- > 0 && poll_once(receiver))
        continue;
}

void ib_recv_move(struct ib_receiver *receiver)
{
    struct ib_comm *comm = &receiver->comm;
    struct ib_note note;
    int turns = 0, heard;

    while (turns < IB_SENDS / POLL_MAX && poll_once(receiver))
        turns++;
    if (receiver->lines_due)
        lines_write_again(receiver);
    if ((turns && !comm->unsettled) || comm->rc != xcclSuccess)
        return;
    heard = ib_comm_listen(comm, &note);
    if ((!heard && !comm->side.has_ended) || (heard && ib_failover_hear(comm, &note)))
        return;
    /* What the peer sent before is here by now, and counts. */
    while (turns++ < IB_SENDS && poll_once(receiver))
        continue;
    if (heard)
        note_take(comm, &note);
    else
        ib_comm_fail_gone(comm);
}

static void line_fill(struct ib_line *line, const struct ib_receiver *receiver, int count,
                      const struct ib_memory *memory)
{
    line->number = receiver->number;
    line->count = (uint32_t)count;
    if (memory)
        memcpy(line->rkey, memory->rkeys, sizeof(line->rkey));
}

static int recv_arguments(const struct ib_comm *comm, int count, const size_t *bytes)
{
    for (int i = 0; i < count && count <= IB_PARTS; i++) {
        if (bytes[i] <= IB_MESSAGE_MAX)
            continue;
        xccl_fail_quietly(xcclInvalidArgument, 0, "split the message",
                          "a receive of %zu bytes from %s is too large", bytes[i], comm->peer_text);
        return 0;
    }
    if (count >= 1 && count <= IB_PARTS)
        return 1;
    xccl_fail_quietly(xcclInvalidArgument, 0, NULL,
                      "cannot post %d receives together: at most %d are possible", count, IB_PARTS);
    return 0;
}

static xcclResult_t post(struct ib_receiver *receiver, int count, void *const *data,
                         const size_t *bytes, const uint32_t *tags, const xcclNetMem_t *mems,
                         xcclNetRequest_t *request_out)
{
    struct ib_comm *comm = &receiver->comm;
    uint32_t slot = (receiver->number + 1) % IB_RECVS;
    struct ib_recv *recv = &receiver->recvs[slot];

    if (comm->rc != xcclSuccess)
        return ib_comm_error(comm);
    if (!recv_arguments(comm, count, bytes))
        return xcclInvalidArgument;
    if (recv->request.state != IB_FREE || receiver->lines_due ||
        ib_pair_room(&comm->queue.pairs[receiver->line_pair]) == 0) {
        ib_recv_move(receiver);
        xccl_net_count(&comm->counters.busy_count, 1);
        *request_out = NULL;
        return comm->rc == xcclSuccess ? xcclSuccess : ib_comm_error(comm);
    }
    receiver->number++;
    recv->count = count;
    recv->left = (1u << count) - 1;
    for (int i = 0; i < count; i++) {
        struct ib_line *line = &receiver->lines[slot * IB_PARTS + (uint32_t)i];

        memset(line, 0, sizeof(*line));
        line_fill(line, receiver, count, mems[i]);
        line->tag = tags[i];
        line->addr = (uintptr_t)data[i];
        line->bytes = bytes[i];
        ib_line_seal(line);
        recv->room[i] = bytes[i];
        recv->bytes[i] = 0;
        recv->pieces[i] = 0;
    }
    recv->request.state = IB_WAITS;
    lines_write(receiver, slot);
    if (comm->rc != xcclSuccess) {
        recv->request.state = IB_FREE;
        return ib_comm_error(comm);
    }
    *request_out = &recv->request;
    return xcclSuccess;
}

xcclResult_t ib_irecv(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                      const uint32_t *tags, const xcclNetMem_t *mems, xcclNetRequest_t *request_out)
{
    struct ib_receiver *receiver = comm;
    xcclResult_t rc;

    if (!ib_comm_claim(&receiver->comm)) {
        *request_out = NULL;
        return xcclSuccess;
    }
    rc = post(receiver, count, data, bytes, tags, mems, request_out);
    ib_comm_release(&receiver->comm);
    return rc;
}
