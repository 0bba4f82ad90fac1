/* SPDX-License-Identifier: BSD-3-Clause */
/* A comm of several ports goes on when one of them fails, and takes it back when it returns.
 *
 *   UP ──fails, or the peer says so──> ENDS ──drained──> ENDED ──the peer's, too──> GONE
 *   ^                                                                                 │
 *   └──── OFFERED (sender), ANSWERED (receiver) <──────── the port is up again ───────┘
 *
 * ENDS     in error: nothing goes or comes. The receiver takes what has come, until all its empty
 *          receives are back, or 0.5 s; then what lies there.
 * ENDED    destroyed: the device has given it up. The note "ended" says so; the receiver's has how
 *          many last pieces have come by it, which is exact, for they come in order.
 * GONE     destroyed at both ends. Only now the sender posts by other pairs what has not come, and
 *          the receiver its lines. So whatever is late in the network finds no queue pair: nothing
 *          lands in memory that its owner has been given back, and no old line over a new one.
 *          What has come is not posted again, so nothing counts twice.
 * OFFERED  the sender has made a new one, of the next generation, and has said so.
 * ANSWERED the receiver has, too, and has started it. The sender starts its own with the answer,
 *          and its "ready" makes it UP here: lines may go.
 *
 * Notes go over the side channel in order, so each end knows in which state the other one is. A
 * comm without a queue pair that is up waits as long as one of a single port would.
 *
 * Thread: whoever has the comm's claim; queue pairs are made and started by the service alone. */
#include "ib_int.h"

#include <string.h>

#define DRAIN_NS     (500 * XCCL_NS_PER_MS)
#define PAUSE_MIN_NS (100 * XCCL_NS_PER_MS) /* before a port is tried again */
#define PAUSE_MAX_NS (5000 * XCCL_NS_PER_MS)
#define CALM_NS      (10000 * XCCL_NS_PER_MS) /* one that was up so long is tried soon again */

static uint32_t index_of(const struct ib_comm *comm, const struct ib_pair *pair)
{
    return (uint32_t)(pair - comm->queue.pairs);
}

static void tell(struct ib_comm *comm, const struct ib_pair *pair, uint32_t kind)
{
    struct ib_note note = {
        .kind = kind, .pair = index_of(comm, pair), .generation = pair->generation};

    note.came[0] = pair->last_pieces;
    if (pair->qp) {
        note.qp_num = pair->qp->qp_num;
        note.psn = pair->psn;
    }
    memcpy(note.gid, comm->queue.ports[pair->port].gid.raw, sizeof(note.gid));
    ib_comm_tell(comm, &note);
}

static void set_state(struct ib_comm *comm, struct ib_pair *pair, enum ib_pair_state state)
{
    pair->state = state;
    pair->since_ns = xccl_clock_ns();
    ib_queue_count_up(comm);
}

static void fail_protocol(struct ib_comm *comm, const char *what)
{
    ib_comm_fail(comm, xcclNetCauseProtocol,
                 xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                                   "%s %s", comm->peer_text, what));
}

static void pause_grow(struct ib_pair *pair)
{
    pair->pause_ns = pair->pause_ns < PAUSE_MAX_NS / 2 ? 2 * pair->pause_ns : PAUSE_MAX_NS;
}

/* ---- the end of one ---- */

int ib_pair_break(struct ib_comm *comm, struct ib_pair *pair)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    uint64_t up_ns = xccl_clock_ns() - pair->since_ns;

    if (!comm->has_spare)
        return 0;
    if (pair->state == IB_PAIR_UP)
        xccl_net_count(&comm->counters.failover_count, 1);
    if (pair->pause_ns == 0 || (pair->state == IB_PAIR_UP && up_ns >= CALM_NS))
        pair->pause_ns = PAUSE_MIN_NS;
    else
        pause_grow(pair);
    /* If that fails it ends when it is destroyed. */
    (void)comm->ctx->verbs->modify_qp(pair->qp, &attr, IBV_QP_STATE);
    set_state(comm, pair, IB_PAIR_ENDS);
    /* The user may make no further call: what it waits for may be among what is still taken. */
    ib_service_wake(&comm->ctx->service);
    return 1;
}

/* Whether the receiver has all that its peer's card was told it has. */
static int has_acknowledged(const struct ib_sender *sender, uint32_t pair_idx)
{
    const struct ib_pair *pair = &sender->comm.queue.pairs[pair_idx];
    uint32_t open = 0; /* last pieces by this pair, of sends that the caller still owns */

    for (uint64_t n = sender->reached; n < sender->matched; n++) {
        const struct ib_send *send = &sender->sends[n % IB_SENDS];

        for (uint32_t i = 0; i < send->pieces; i++)
            open += send->pair[i] == pair_idx && !((send->todo | send->got) >> i & 1);
    }
    return (int32_t)(pair->came - (pair->last_pieces - open)) >= 0;
}

/* Nothing goes by it at either end. */
static void settle(struct ib_comm *comm, struct ib_pair *pair)
{
    uint32_t idx = index_of(comm, pair);

    set_state(comm, pair, IB_PAIR_GONE);
    if (!comm->is_send)
        ib_recv_move_lines((struct ib_receiver *)comm, idx);
    else if (has_acknowledged((struct ib_sender *)comm, idx))
        ib_send_move_pieces((struct ib_sender *)comm, idx);
    else
        fail_protocol(comm, "has lost data that its card had acknowledged");
}

static void end(struct ib_comm *comm, struct ib_pair *pair)
{
    int drained = comm->is_send || pair->receives == 0;

    if (!drained && xccl_clock_ns() - pair->since_ns < DRAIN_NS)
        return;
    /* It may be this process that has been away so long: what has come lies here, and counts. */
    if (!drained)
        ib_recv_drain((struct ib_receiver *)comm);
    if (comm->rc != xcclSuccess)
        return;
    ib_pair_destroy(comm, pair);
    set_state(comm, pair, IB_PAIR_ENDED);
    tell(comm, pair, IB_NOTE_ENDED);
    if (pair->peer_ended && comm->rc == xcclSuccess)
        settle(comm, pair);
}

/* ---- a new one in its place ---- */

/* The kernel may take a second for the way to the peer, and the user's thread has other comms. */
static int is_for_service(const struct ib_comm *comm)
{
    return comm->served && !comm->is_serviced;
}

static void begin_again(struct ib_pair *pair)
{
    pair->peer_ended = 0;
    pair->posted = pair->completed = pair->signalled = 0;
    pair->last_pieces = pair->came = 0;
    atomic_store_explicit(&pair->event, 0,
                          memory_order_relaxed); /* of the old one, which is gone */
}

static int port_is_usable(struct ib_comm *comm, const struct ib_pair *pair)
{
    struct ib_device *device = comm->queue.ports[pair->port].device;

    return !atomic_load_explicit(&device->has_failed, memory_order_relaxed) &&
           !ib_port_is_down(comm->ctx, device);
}

static xcclResult_t make(struct ib_comm *comm, struct ib_pair *pair)
{
    xcclResult_t rc = ib_gid_choose(comm->ctx, &comm->queue.ports[pair->port]);

    begin_again(pair);
    return rc == xcclSuccess ? ib_pair_make(comm, pair) : rc;
}

/* It is tried again later. */
static void put_off(struct ib_comm *comm, struct ib_pair *pair)
{
    ib_pair_destroy(comm, pair);
    pause_grow(pair);
    set_state(comm, pair, IB_PAIR_GONE);
}

static void offer(struct ib_comm *comm, struct ib_pair *pair)
{
    /* While none is up the first one that can be is wanted. */
    uint64_t pause_ns = comm->queue.up_count ? pair->pause_ns : PAUSE_MIN_NS;

    if (xccl_clock_ns() - pair->since_ns < pause_ns)
        return;
    pair->since_ns = xccl_clock_ns();
    if (!port_is_usable(comm, pair))
        return;
    pair->generation++;
    if (make(comm, pair) != xcclSuccess) {
        put_off(comm, pair);
        return;
    }
    set_state(comm, pair, IB_PAIR_OFFERED);
    tell(comm, pair, IB_NOTE_OFFER);
}

void ib_failover_move(struct ib_comm *comm)
{
    for (uint32_t i = 0; i < comm->queue.count && comm->rc == xcclSuccess; i++) {
        struct ib_pair *pair = &comm->queue.pairs[i];

        if (pair->state == IB_PAIR_ENDS)
            end(comm, pair);
        else if (pair->state == IB_PAIR_GONE && comm->is_send && !is_for_service(comm))
            offer(comm, pair);
    }
}

/* ---- notes ---- */

static void hear_ended(struct ib_comm *comm, struct ib_pair *pair, const struct ib_note *note)
{
    pair->peer_ended = 1;
    pair->came = note->came[0];
    if (pair->state == IB_PAIR_ENDED)
        settle(comm, pair);
    else if (pair->state != IB_PAIR_ENDS)
        (void)ib_pair_break(comm, pair);
}

static void peer_take(struct ib_comm *comm, const struct ib_pair *pair, const struct ib_note *note)
{
    comm->peer.qp_num[note->pair] = note->qp_num;
    comm->peer.psn[note->pair] = note->psn;
    memcpy(comm->peer.port[pair->peer_port].gid, note->gid, sizeof(note->gid));
}

static void hear_offer(struct ib_comm *comm, struct ib_pair *pair, const struct ib_note *note)
{
    pair->generation = note->generation;
    peer_take(comm, pair, note);
    if (!port_is_usable(comm, pair) || make(comm, pair) != xcclSuccess ||
        ib_recv_start((struct ib_receiver *)comm, note->pair) != xcclSuccess ||
        ib_pair_start(comm, pair) != xcclSuccess) {
        put_off(comm, pair);
        tell(comm, pair, IB_NOTE_REFUSE);
        return;
    }
    set_state(comm, pair, IB_PAIR_ANSWERED);
    tell(comm, pair, IB_NOTE_ANSWER);
}

static void is_up(struct ib_comm *comm, struct ib_pair *pair)
{
    set_state(comm, pair, IB_PAIR_UP);
    xccl_net_count(&comm->counters.recovery_count, 1);
}

static void hear_answer(struct ib_comm *comm, struct ib_pair *pair, const struct ib_note *note)
{
    peer_take(comm, pair, note);
    if (ib_pair_start(comm, pair) != xcclSuccess) {
        (void)ib_pair_break(comm, pair);
        return;
    }
    is_up(comm, pair);
    tell(comm, pair, IB_NOTE_READY);
}

int ib_failover_leaves(const struct ib_comm *comm, const struct ib_note *note)
{
    return (note->kind == IB_NOTE_OFFER || note->kind == IB_NOTE_ANSWER) && is_for_service(comm);
}

int ib_failover_hear(struct ib_comm *comm, const struct ib_note *note)
{
    struct ib_pair *pair = &comm->queue.pairs[note->pair];
    enum ib_pair_state state = pair->state;

    if (note->kind < IB_NOTE_ENDED)
        return 0;
    /* What comes in the wrong state, or is of another queue pair, the other rules refuse. */
    if (!comm->has_spare || note->pair >= comm->queue.count ||
        (note->kind != IB_NOTE_OFFER && note->generation != pair->generation))
        fail_protocol(comm, "sent a control message about a queue pair that does not exist");
    else if (note->kind == IB_NOTE_ENDED && state != IB_PAIR_GONE && !pair->peer_ended)
        hear_ended(comm, pair, note);
    else if (note->kind == IB_NOTE_OFFER && state == IB_PAIR_GONE && !comm->is_send &&
             (int32_t)(note->generation - pair->generation) > 0)
        hear_offer(comm, pair, note);
    else if (note->kind == IB_NOTE_ANSWER && state == IB_PAIR_OFFERED)
        hear_answer(comm, pair, note);
    else if (note->kind == IB_NOTE_REFUSE && state == IB_PAIR_OFFERED)
        put_off(comm, pair);
    else if (note->kind == IB_NOTE_READY && state == IB_PAIR_ANSWERED)
        is_up(comm, pair);
    else if (note->kind != IB_NOTE_READY || comm->is_send || state < IB_PAIR_ENDS)
        fail_protocol(comm,
                      "sent a control message about a queue pair that does not fit its state");
    return 1;
}
