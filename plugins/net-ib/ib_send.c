/* SPDX-License-Identifier: BSD-3-Clause */
/* The sender. Sends wait in the order of posting until their receive is in the ring; then they are
 * written straight into it. A large one is cut into a piece for each queue pair; a piece takes the
 * pair with the fewest bytes under way, pairs alike in turn. It goes in writes of up to 1 MiB, the
 * last one with the immediate value that says which receive it was, how many pieces there are,
 * which one it is, and how much came before. What has not come by a queue pair that failed is
 * posted once more, by another one.
 *
 *   taken (isend)  >  matched with a receive  >  written (all posted)  >  reached (acknowledged)
 *
 * Matching: within a group a send goes to the first free part with its tag; the next group is not
 * looked at before each part of this one has a send. A send that fits none, or is larger than its
 * receive, ends the comm once those before it have arrived; the receiver is told why.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs, but for the end of a queue
 * pair that has failed (ib_failover.c), which the library gives back. */
#include "ib_int.h"

#include <string.h>

#define POLL_MAX 16
#define ALIGN    128 /* where pieces meet */
/* A payload up to this goes with its work request: a line of the caches, as the card takes it. */
#define INLINE_BYTES 64

static struct ib_send *send_at(struct ib_sender *sender, uint64_t number)
{
    return &sender->sends[number % IB_SENDS];
}

/* ---- pieces and their queue pairs ---- */

/* All pieces but the last are so long. */
static size_t piece_length(const struct ib_send *send)
{
    size_t share = (send->bytes + send->pieces - 1) / send->pieces;

    return (share + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

static size_t piece_bytes(const struct ib_send *send, uint32_t i)
{
    return i + 1u < send->pieces ? piece_length(send) : send->bytes - i * piece_length(send);
}

/* There is one that is up. */
static void pair_choose(struct ib_sender *sender, struct ib_send *send, uint32_t i)
{
    struct ib_queue *queue = &sender->comm.queue;
    uint32_t least = 0;

    /* Behind the last one chosen, so that those alike take turns. */
    for (uint32_t step = 1; step <= queue->up_count; step++) {
        uint32_t at = (sender->pair_turn + step) % queue->up_count;

        if (step == 1 || queue->pairs[queue->up[at]].load < queue->pairs[queue->up[least]].load)
            least = at;
    }
    sender->pair_turn = least;
    send->pair[i] = queue->up[least];
    queue->pairs[send->pair[i]].load += piece_bytes(send, i);
}

static void load_less(struct ib_sender *sender, const struct ib_send *send, uint32_t i)
{
    if (send->pair[i] != IB_NO_PAIR)
        sender->comm.queue.pairs[send->pair[i]].load -= piece_bytes(send, i);
}

/* ---- completions ---- */

static void reached_move(struct ib_sender *sender, uint64_t until)
{
    for (; sender->reached < until; sender->reached++) {
        struct ib_send *send = send_at(sender, sender->reached);

        for (uint32_t i = 0; i < send->pieces; i++)
            load_less(sender, send, i);
        send->request.state = IB_DONE;
        xccl_net_count_message(&sender->comm.counters, 1, send->bytes);
    }
}

/* The card or, at the pair's or its own end, the receiver itself has acknowledged a piece. */
static int piece_is_acknowledged(const struct ib_sender *sender, const struct ib_send *send,
                                 uint32_t i)
{
    const struct ib_pair *pair;

    if ((send->got | send->todo) >> i & 1)
        return send->got >> i & 1;
    pair = &sender->comm.queue.pairs[send->pair[i]];
    return (int32_t)(pair->completed - send->last[i]) >= 0 ||
           (sender->has_end && (int32_t)(pair->came - send->last_piece[i]) >= 0);
}

static int is_acknowledged(const struct ib_sender *sender, const struct ib_send *send)
{
    for (uint32_t i = 0; i < send->pieces; i++) {
        if (!piece_is_acknowledged(sender, send, i))
            return 0;
    }
    return 1;
}

/* All sends that are acknowledged, in their order. */
static void reached_find(struct ib_sender *sender)
{
    uint64_t until = sender->reached;

    while (until < sender->written && is_acknowledged(sender, send_at(sender, until)))
        until++;
    reached_move(sender, until);
}

static int poll_once(struct ib_sender *sender)
{
    struct ib_comm *comm = &sender->comm;
    struct ibv_wc wcs[POLL_MAX];
    int count = ib_queue_poll(comm, POLL_MAX, wcs);

    for (int i = 0; i < count && comm->rc == xcclSuccess; i++) {
        struct ib_pair *pair = ib_pair_of(&comm->queue, &wcs[i]);

        if (!pair)
            continue;
        if (wcs[i].status != IBV_WC_SUCCESS)
            ib_comm_fail_wc(comm, pair, &wcs[i]);
        else
            pair->completed = (uint32_t)wcs[i].wr_id;
    }
    if (count > 0)
        reached_find(sender);
    if (count == 0)
        ib_comm_flushed(comm);
    return count > 0 && comm->rc == xcclSuccess;
}

/* ---- matching ---- */

/* 1: the group in turn is here, whole. */
static int group_here(struct ib_sender *sender)
{
    uint32_t first = sender->group % IB_RECVS * IB_PARTS, count;

    if (sender->group_left)
        return 1;
    if (!ib_line_read(&sender->ring[first], sender->group, &sender->parts[0]))
        return 0;
    count = sender->parts[0].count;
    if (count < 1 || count > IB_PARTS) {
        ib_comm_fail(&sender->comm, xcclNetCauseProtocol,
                     xccl_fail_quietly(xcclRemoteError, 0,
                                       "use the same build of XCCL on all ranks",
                                       "%s posts a group of %u receives, which is not possible",
                                       sender->comm.peer_text, count));
        return 0;
    }
    for (uint32_t i = 1; i < count; i++) {
        if (!ib_line_read(&sender->ring[first + i], sender->group, &sender->parts[i]))
            return 0;
    }
    sender->group_count = count;
    sender->group_left = (1u << count) - 1;
    return 1;
}

/* The first free part with the tag; -1: none. */
static int part_find(const struct ib_sender *sender, uint32_t tag)
{
    for (uint32_t i = 0; i < sender->group_count; i++) {
        if ((sender->group_left >> i & 1) && sender->parts[i].tag == tag)
            return (int)i;
    }
    return -1;
}

/* Once all before it have arrived: the receiver is told, and this end has the same error. */
static void mismatch(struct ib_sender *sender, const struct ib_send *send, int part)
{
    struct ib_comm *comm = &sender->comm;
    struct ib_note note = {.kind = IB_NOTE_NO_TAG, .value = send->tag};

    if (sender->reached < sender->matched)
        return;
    if (part < 0) {
        xccl_fail_quietly(xcclInvalidUsage, 0, "post receives with the tags of the sends",
                          "%s has no receive for a message with tag %u", comm->peer_text,
                          send->tag);
    } else {
        note.kind = IB_NOTE_TOO_LARGE;
        note.value = send->bytes;
        note.value2 = sender->parts[part].bytes;
        xccl_fail_quietly(xcclInvalidUsage, 0, "post receives as large as their sends",
                          "a send of %zu bytes is larger than its receive of %llu at %s",
                          send->bytes, (unsigned long long)note.value2, comm->peer_text);
    }
    /* First the error: telling may put another one in the place of the thread's text. */
    ib_comm_fail(comm, xcclNetCauseProtocol, xcclInvalidUsage);
    ib_comm_tell(comm, &note);
}

/* Cuts the send in turn into a piece for each queue pair, or fewer where they would be small. */
static void pieces_make(struct ib_sender *sender, struct ib_send *send)
{
    uint32_t most = sender->comm.queue.up_count;
    size_t pieces = (send->bytes + IB_PIECE_BYTES - 1) / IB_PIECE_BYTES;

    if (most > IB_PIECES_MAX)
        most = IB_PIECES_MAX;
    if (pieces > most)
        pieces = most;
    if (pieces < 1)
        pieces = 1;
    send->pieces = (uint8_t)pieces;
    send->todo = (uint8_t)((1u << pieces) - 1);
    send->got = 0;
    for (uint32_t i = 0; i < pieces; i++) {
        pair_choose(sender, send, i);
        sender->piece_done[i] = 0;
    }
}

/* 1: the next send has its receive now. */
static int match_next(struct ib_sender *sender)
{
    struct ib_send *send = send_at(sender, sender->matched);
    int part;

    if (sender->matched == sender->taken || sender->comm.queue.up_count == 0 || !group_here(sender))
        return 0;
    part = part_find(sender, send->tag);
    if (part < 0 || send->bytes > sender->parts[part].bytes) {
        mismatch(sender, send, part);
        return 0;
    }
    send->addr = sender->parts[part].addr;
    memcpy(send->rkeys, sender->parts[part].rkey, sizeof(send->rkeys));
    pieces_make(sender, send);
    send->imm = ib_imm(send->pieces, sender->group % IB_RECVS, (uint32_t)part);
    send->request.state = IB_WRITES;
    sender->matched++;
    sender->group_left &= ~(1u << part);
    if (sender->group_left == 0)
        sender->group++;
    return 1;
}

/* ---- writing ---- */

struct batch {
    struct ibv_send_wr work[IB_BATCH];
    struct ibv_sge pieces[IB_BATCH];
    uint32_t count, pair_idx;
};

static void batch_post(struct ib_sender *sender, struct batch *batch)
{
    if (batch->count)
        ib_queue_post(&sender->comm, batch->pair_idx, batch->work, batch->count);
    batch->count = 0;
}

/* How much of what is left goes in one write. A network that spreads packets over ways does so with
 * writes that have no immediate value; so there up to one unit is kept for the last one. */
static size_t write_bytes(size_t left, int spreads)
{
    if (left > IB_WRITE_BYTES)
        return IB_WRITE_BYTES;
    return spreads && left > IB_UNIT_BYTES ? (left - 1) & ~(IB_UNIT_BYTES - 1) : left;
}

/* Adds the next write of piece i of a send, of which *done bytes are posted. */
static void write_add(struct ib_sender *sender, struct ib_send *send, uint32_t i, size_t *done,
                      struct batch *batch)
{
    struct ib_pair *pair = &sender->comm.queue.pairs[batch->pair_idx];
    size_t begin = i * piece_length(send);
    size_t left = piece_bytes(send, i) - *done;
    size_t bytes = write_bytes(left, sender->comm.queue.ports[pair->port].spreads);
    struct ibv_sge *piece = &batch->pieces[batch->count];
    struct ibv_send_wr *work = &batch->work[batch->count];
    uint32_t number = pair->posted + batch->count + 1;
    int last = bytes == left;

    *piece = (struct ibv_sge){.addr = (uintptr_t)send->data + begin + *done,
                              .length = (uint32_t)bytes,
                              .lkey = send->memory ? send->memory->lkeys[pair->port] : 0};
    memset(work, 0, sizeof(*work));
    work->wr_id = ib_wr_id(pair, batch->pair_idx, 0, number);
    work->sg_list = piece;
    work->num_sge = bytes > 0;
    work->opcode = last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    work->imm_data = send->imm | ib_imm_piece((uint32_t)(*done / IB_UNIT_BYTES), i);
    work->wr.rdma.remote_addr = send->addr + begin + *done;
    work->wr.rdma.rkey = send->rkeys[pair->peer_port];
    if (last || number - pair->signalled >= IB_QUEUE_DEPTH / 4) {
        work->send_flags = IBV_SEND_SIGNALED;
        pair->signalled = number;
    }
    if (bytes > 0 && bytes <= INLINE_BYTES && bytes <= sender->comm.queue.inline_bytes)
        work->send_flags |= IBV_SEND_INLINE;
    if (batch->count)
        batch->work[batch->count - 1].next = work;
    batch->count++;
    *done += bytes;
    if (!last)
        return;
    send->last[i] = number;
    send->last_piece[i] = ++pair->last_pieces;
    send->todo &= (uint8_t) ~(1u << i);
}

/* As much of piece i as its queue pair has room for. 1: that was all of it. */
static int write_piece(struct ib_sender *sender, struct ib_send *send, uint32_t i, size_t *done,
                       struct batch *batch)
{
    struct ib_queue *queue = &sender->comm.queue;
    uint32_t pair_idx;

    if (send->pair[i] == IB_NO_PAIR && queue->up_count)
        pair_choose(sender, send, i);
    pair_idx = send->pair[i];
    if (pair_idx == IB_NO_PAIR)
        return 0;
    if (batch->pair_idx != pair_idx)
        batch_post(sender, batch);
    batch->pair_idx = pair_idx;
    while (sender->comm.rc == xcclSuccess && (send->todo >> i & 1) &&
           ib_pair_room(&queue->pairs[pair_idx]) > batch->count) {
        write_add(sender, send, i, done, batch);
        if (batch->count == IB_BATCH)
            batch_post(sender, batch);
    }
    return !(send->todo >> i & 1);
}

/* Piece i of a send that was wholly posted before. */
static int write_piece_again(struct ib_sender *sender, uint64_t number, uint32_t i,
                             struct batch *batch)
{
    if (sender->again_number != number || sender->again_piece != i) {
        sender->again_number = number;
        sender->again_piece = i;
        sender->again_done = 0;
    }
    if (!write_piece(sender, send_at(sender, number), i, &sender->again_done, batch))
        return 0;
    sender->again_number = UINT64_MAX;
    sender->again--;
    return 1;
}

/* In order, each wholly before the next. */
static void write_again(struct ib_sender *sender, struct batch *batch)
{
    int whole = 1;

    for (uint64_t n = sender->reached; n < sender->written && sender->again && whole; n++) {
        struct ib_send *send = send_at(sender, n);

        for (uint32_t i = 0; i < send->pieces && whole; i++) {
            if (send->todo >> i & 1)
                whole = write_piece_again(sender, n, i, batch);
        }
    }
}

static void write_all(struct ib_sender *sender)
{
    struct ib_comm *comm = &sender->comm;
    struct batch batch;
    int whole = 1;

    batch.count = 0;
    batch.pair_idx = 0;
    if (sender->again)
        write_again(sender, &batch);
    while (whole && comm->rc == xcclSuccess &&
           (sender->written < sender->matched || match_next(sender))) {
        struct ib_send *send = send_at(sender, sender->written);

        for (uint32_t i = 0; i < send->pieces && comm->rc == xcclSuccess; i++) {
            if (send->todo >> i & 1)
                (void)write_piece(sender, send, i, &sender->piece_done[i], &batch);
        }
        whole = send->todo == 0;
        if (whole) {
            send->request.state = IB_POSTED;
            sender->written++;
        }
    }
    if (comm->rc == xcclSuccess)
        batch_post(sender, &batch);
}

/* ---- failover ---- */

/* A piece of send number n, by a pair that is gone. */
static void move_piece(struct ib_sender *sender, uint64_t n, uint32_t i, const struct ib_pair *pair)
{
    struct ib_send *send = send_at(sender, n);
    uint8_t bit = (uint8_t)(1u << i);
    int posted = !(send->todo & bit);

    if (send->got & bit)
        return;
    if (posted && (int32_t)(pair->came - send->last_piece[i]) >= 0) {
        send->got |= bit;
        return;
    }
    load_less(sender, send, i);
    send->pair[i] = IB_NO_PAIR;
    send->todo |= bit;
    if (n == sender->written)
        sender->piece_done[i] = 0;
    else
        sender->again += (uint32_t)posted;
    if (n < sender->written && sender->again_number == n && sender->again_piece == i)
        sender->again_number = UINT64_MAX;
}

void ib_send_move_pieces(struct ib_sender *sender, uint32_t pair_idx)
{
    const struct ib_pair *pair = &sender->comm.queue.pairs[pair_idx];

    for (uint64_t n = sender->reached; n < sender->matched; n++) {
        const struct ib_send *send = send_at(sender, n);

        for (uint32_t i = 0; i < send->pieces; i++) {
            if (send->pair[i] == pair_idx)
                move_piece(sender, n, i, pair);
        }
    }
    reached_find(sender);
}

/* ---- the comm ---- */

/* A receiver that closes says what it has. */
static void side_channel(struct ib_sender *sender)
{
    struct ib_comm *comm = &sender->comm;
    struct ib_note note;
    int heard = ib_comm_listen(comm, &note);

    if ((!heard && !comm->side.has_ended) || (heard && ib_failover_hear(comm, &note)))
        return;
    for (int i = 0; i < IB_SENDS && poll_once(sender); i++)
        continue;
    sender->has_end = heard && note.kind == IB_NOTE_END;
    for (int i = 0; sender->has_end && i < IB_PAIRS_MAX; i++)
        comm->queue.pairs[i].came = note.came[i];
    reached_find(sender);
    if (heard || comm->side.has_ended)
        ib_comm_fail_gone(comm);
}

void ib_send_move(struct ib_sender *sender)
{
    int moved = poll_once(sender);

    if (sender->comm.rc == xcclSuccess)
        write_all(sender);
    if ((!moved || sender->comm.unsettled) && sender->comm.rc == xcclSuccess)
        side_channel(sender);
}

static xcclResult_t take(struct ib_sender *sender, const void *data, size_t bytes, uint32_t tag,
                         xcclNetMem_t mem, xcclNetRequest_t *request_out)
{
    const struct ib_memory *memory = mem;
    struct ib_send *send = send_at(sender, sender->taken);

    if (sender->comm.rc != xcclSuccess)
        return ib_comm_error(&sender->comm);
    if (bytes > IB_MESSAGE_MAX)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "split the message",
                                 "a send of %zu bytes to %s is too large", bytes,
                                 sender->comm.peer_text);
    if (send->request.state != IB_FREE) {
        ib_send_move(sender);
        xccl_net_count(&sender->comm.counters.busy_count, 1);
        *request_out = NULL;
        return sender->comm.rc == xcclSuccess ? xcclSuccess : ib_comm_error(&sender->comm);
    }
    send->data = data;
    send->bytes = bytes;
    send->tag = tag;
    send->memory = memory;
    send->request.state = IB_WAITS;
    sender->taken++;
    /* An error that this finds is told by the request's test: it may be another send's. */
    write_all(sender);
    *request_out = &send->request;
    return xcclSuccess;
}

xcclResult_t ib_isend(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                      xcclNetMem_t mem, xcclNetRequest_t *request_out)
{
    struct ib_sender *sender = comm;
    xcclResult_t rc;

    if (!ib_comm_claim(&sender->comm)) {
        *request_out = NULL;
        return xcclSuccess;
    }
    rc = take(sender, data, bytes, tag, mem, request_out);
    ib_comm_release(&sender->comm);
    return rc;
}
