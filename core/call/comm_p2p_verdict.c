/* SPDX-License-Identifier: BSD-3-Clause */
/* The slow branch of the wait for sends and receives: errors, peers that have left, messages that
 * came with another size than the one expected, the deadline. Thread: the holder of the crank. */
#include "call/comm_p2p_state.h"
#include "comm/comm_progress.h"
#include "comm/comm_record.h"
#include "comm/comm_where.h"
#include "comm/device_ops.h"
#include "connect/comm_links.h"
#include "watch/comm_verdict.h"
#include "watch/control.h"
#include "watch/standstill.h"

#define LEFT_NS (100 * XCCL_NS_PER_MS)

static xcclResult_t fail_timeout(struct xcclComm *comm, uint64_t waited_ns)
{
    struct xccl_verdict verdict = xccl_comm_verdict(comm, XCCL_TROUBLE_MESSAGES_LATE, XCCL_NOBODY);
    const struct xccl_comm_p2p *p2p = comm->p2p;

    verdict.seconds = waited_ns / XCCL_NS_PER_S;
    for (uint32_t i = 0; i < p2p->stream_count; i++) {
        const struct xccl_stream *stream = p2p->streams[i];

        if (!xccl_p2p_is_done(stream))
            xccl_verdict_wait(
                &verdict,
                (struct xccl_waited){.rank = stream->peer,
                                     .why = stream->sends ? XCCL_WAIT_SEND : XCCL_WAIT_RECV});
    }
    if (verdict.wait_count == 1)
        verdict.culprit = verdict.waits[0].rank;
    return xccl_comm_raise(comm, &verdict);
}

xcclResult_t xccl_comm_fail_messages(struct xcclComm *comm, const struct xccl_still_item *items,
                                     uint32_t count)
{
    struct xccl_verdict verdict = xccl_comm_verdict(comm, XCCL_TROUBLE_MESSAGES_LATE, XCCL_NOBODY);

    verdict.seconds = comm->timeout_ns / XCCL_NS_PER_S;
    for (uint32_t i = 0; i < count; i++)
        if (items[i].peer != XCCL_NOBODY)
            xccl_verdict_wait(
                &verdict,
                (struct xccl_waited){.rank = items[i].peer,
                                     .why = items[i].sends ? XCCL_WAIT_SEND : XCCL_WAIT_RECV});
    if (verdict.wait_count == 1)
        verdict.culprit = verdict.waits[0].rank;
    return xccl_comm_raise(comm, &verdict);
}

/* On this host its board says so, elsewhere the control plane. */
int xccl_comm_peer_has_left(const struct xcclComm *comm, int peer)
{
    int index = comm->shm ? xccl_shm_index_of(comm->shm, peer) : -1;

    if (index < 0)
        return xccl_control_has_left(comm->control, peer);
    /* Acquire: what it did before it left. Pairs with undo_shm() in comm_init.c. */
    return atomic_load_explicit(&xccl_shm_board(comm->shm, index)->outside, memory_order_acquire) ==
           2;
}

/* came: what is there of the message that stream expects; NULL: that is not known. */
static xcclResult_t fail_size(struct xcclComm *comm, const struct xccl_stream *stream,
                              const struct xccl_came *came)
{
    struct xccl_verdict verdict = xccl_comm_verdict(comm, XCCL_TROUBLE_MESSAGE_DIFFERS,
                                                    stream->peer);

    verdict.mine = (struct xccl_act){
        .kind = XCCL_ACT_RECV, .peer = stream->peer, .bytes = stream->messages[stream->next].bytes};
    verdict.theirs = (struct xccl_act){.kind = XCCL_ACT_SEND,
                                       .peer = comm->rank,
                                       .bytes = came ? came->bytes : XCCL_ACT_OTHER_BYTES,
                                       .is_least = came && !came->is_all};
    return xccl_comm_raise(comm, &verdict);
}

/* Looks whether the message that a stream waits for came over another link than that of its size.
 * all 1: this end may not have made that one, but its place is known. */
static xcclResult_t look_aside(struct xcclComm *comm, const struct xccl_stream *stream, int all)
{
    int index = comm->shm ? xccl_shm_index_of(comm->shm, stream->peer) : -1;

    if (stream->sends || stream->in_slices || !xccl_p2p_is_up(stream) ||
        stream->next == stream->count)
        return xcclSuccess;
    for (int kind = 0; kind < XCCL_STREAM_KINDS; kind++) {
        const struct xccl_link *link = stream->links[kind];
        enum xccl_proto proto = (enum xccl_proto)kind;
        struct xccl_came came;
        struct xccl_link place;

        if (proto == stream->kind || (!link && !all))
            continue;
        if (!link && xccl_shm_fifo_look(comm->shm, proto, index, XCCL_P2P_ID, &place))
            continue; /* no memory to look at it: the deadline remains */
        if (xccl_stream_came(stream, proto, link ? link : &place, &came))
            return fail_size(comm, stream, &came);
    }
    return xcclSuccess;
}

/* Links that this end has not made are looked at seldom, which costs a system call. */
static xcclResult_t look_at_all(struct xcclComm *comm, uint64_t waited_ns)
{
    struct xccl_comm_p2p *p2p = comm->p2p;
    xcclResult_t rc = xcclSuccess;
    int all;

    if (waited_ns < p2p->looked_ns) /* something has moved */
        p2p->looked_ns = 0;
    all = waited_ns - p2p->looked_ns > LEFT_NS;
    if (all)
        p2p->looked_ns = waited_ns;
    for (uint32_t i = 0; i < p2p->stream_count && !rc; i++)
        rc = look_aside(comm, p2p->streams[i], all);
    return rc;
}

static xcclResult_t fail_left(struct xcclComm *comm, const struct xccl_stream *stream)
{
    struct xccl_verdict verdict = xccl_comm_verdict(comm, XCCL_TROUBLE_PEER_LEFT, stream->peer);

    verdict.mine.kind = stream->sends ? XCCL_ACT_SEND : XCCL_ACT_RECV;
    verdict.mine.peer = stream->peer;
    return xccl_comm_raise(comm, &verdict);
}

/* Nothing moves, so what a peer that left has sent before has come. */
xcclResult_t xccl_p2p_check_left(struct xccl_run *run, int again)
{
    struct xcclComm *comm = run->owner;
    const struct xccl_comm_p2p *p2p = comm->p2p;

    (void)again;
    for (uint32_t i = 0; i < p2p->stream_count; i++) {
        const struct xccl_stream *stream = p2p->streams[i];
        xcclResult_t rc;

        if (xccl_p2p_is_done(stream) || !xccl_comm_peer_has_left(comm, stream->peer))
            continue;
        rc = look_aside(comm, stream, 1);
        if (rc)
            return rc;
        return fail_left(comm, stream);
    }
    return xcclSuccess;
}

/* The message at work of a stream that is not done. */
static struct xccl_still_item item_of(const struct xccl_stream *stream)
{
    struct xccl_still_item item = {.peer = (int16_t)stream->peer,
                                   .sends = stream->sends != 0,
                                   .connects = !stream->count && stream->connects,
                                   .number = stream->number,
                                   .bytes = stream->awaited};

    /* Before the stream has begun, next counts its messages. */
    if (stream->count)
        item.bytes = stream->messages[stream->next < stream->count ? stream->next : 0].bytes;
    return item;
}

static void stand_in_messages(struct xcclComm *comm, struct xccl_still *own)
{
    const struct xccl_comm_p2p *p2p = comm->p2p;

    own->kind = XCCL_STILL_MESSAGES;
    own->needs = XCCL_NEEDS_NOBODY;
    own->call.seq = comm->seq;
    own->item_count = 0;
    for (uint32_t i = 0; i < p2p->stream_count && own->item_count < XCCL_STILL_ITEMS; i++)
        if (!xccl_p2p_is_done(p2p->streams[i]))
            own->items[own->item_count++] = item_of(p2p->streams[i]);
}

void xccl_p2p_count_sent(const struct xcclComm *comm, uint32_t *sent_out)
{
    for (int i = 0; i < comm->nranks; i++) {
        const struct xccl_stream *stream = comm->p2p->stream_of[2 * i + 1];

        sent_out[i] = !stream                            ? 0
                      : comm->ops->queues && stream->net ? xccl_net_link_count(stream->net)
                                                         : stream->number;
    }
}

xcclResult_t xccl_p2p_check(struct xccl_run *run, uint64_t waited_ns)
{
    struct xcclComm *comm = run->owner;
    xcclResult_t rc;

    xccl_comm_progress_turn(comm);
    xccl_record_waits(comm->record);
    rc = xccl_comm_error(comm);
    if (!rc)
        rc = look_at_all(comm, waited_ns);
    if (!rc && waited_ns > LEFT_NS)
        rc = xccl_p2p_check_left(run, 1);
    if (!rc)
        rc = xccl_standstill_check(comm, waited_ns, stand_in_messages);
    if (rc || waited_ns <= comm->timeout_ns)
        return rc;
    return fail_timeout(comm, waited_ns);
}

/* Blames a message of another size; 0: the group failed otherwise. */
int xccl_p2p_blame(struct xccl_run *run)
{
    struct xcclComm *comm = run->owner;
    const struct xccl_link *link = run->bad_link;
    const struct xccl_stream *stream;
    struct xccl_came came;

    if (!link)
        return 0;
    stream = comm->p2p->stream_of[2 * comm->run.bad_peer];
    if (xccl_stream_came(stream, stream->kind, link, &came))
        (void)fail_size(comm, stream, &came);
    else if (!look_aside(comm, stream, 1)) /* a later one is here, so this one came elsewhere */
        (void)fail_size(comm, stream, NULL);
    return 1;
}
