/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps of giving a binding its links, where ranks are on several hosts:
 *
 *   IDLE     shared-memory links are made, receive ends listen
 *   TOLD     all ranks have told: the mark of their call, an error, how large slices may be, how
 *            many new ends listen
 *   OFFERED  all ranks have told where those listen
 *   CONNECT  send ends connect, receive ends accept; nothing rings, so this is polled
 *
 * All connections are made at once and none waits for another, so no order of ranks can block.
 * Thread: see the header. */
#include "connect/comm_bind.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/wire.h"
#include "comm/comm_where.h"
#include "comm/device_ops.h"
#include "connect/comm_links.h"
#include "exec/ahead.h"
#include "watch/comm_verdict.h"

static_assert(XCCL_P2P_ID == XCCL_CONN_IDS, "numbers of schedules, then that of messages");

#define TEXT_BYTES         320
#define CALL_BYTES         (8 + 8 + 4 * 4)
#define DEVICE_AT          (8 + 4 + TEXT_BYTES + 4 + 4 + CALL_BYTES) /* the device's offer */
#define TOLD_BYTES         (DEVICE_AT + XCCL_DEVICE_OFFER_MAX)
#define OFFER_BYTES        (4 + XCCL_NET_HANDLE_BYTES)
#define CONNECT_VERDICT_MS 300
#define CONNECT_SPARE_NS   (500 * XCCL_NS_PER_MS)
#define LOCAL_COPY_MAX     (1u << 30) /* a communicator of one rank: slices are memory copies */

enum state { IDLE, TOLD, OFFERED, CONNECT };

struct xccl_comm_bind {
    enum state state;
    struct xccl_binding *binding;
    uint64_t mark;
    struct xccl_limit limit;
    uint8_t *parts; /* of the all-gather at work */
    size_t part_bytes;
    xcclNetHandle_t *handles; /* of the new receive ends, in the order of their connections */
    uint16_t *listening; /* the connections */
    uint32_t listen_count;
    xcclResult_t lost_rc; /* a connection broke: the error, unless another rank says why first */
    uint64_t lost_ns; /* until when it may */
    char lost_text[XCCL_ERROR_TEXT_BYTES];
};

/* What a rank tells in the first round. */
struct told {
    uint64_t mark;
    uint32_t rc, slot_bytes, offers;
    char text[TEXT_BYTES];
    struct xccl_board_call call;
};

static void reset(struct xccl_comm_bind *bind)
{
    xccl_free(bind->parts);
    xccl_free(bind->handles);
    xccl_free(bind->listening);
    *bind = (struct xccl_comm_bind){0};
}

struct xccl_comm_bind *xccl_comm_bind_create(void)
{
    return xccl_calloc(1, sizeof(struct xccl_comm_bind));
}

void xccl_comm_bind_free(struct xccl_comm_bind *bind)
{
    if (!bind)
        return;
    reset(bind);
    xccl_free(bind);
}

static int is_missing(const struct xcclComm *comm, const struct xccl_binding *binding,
                      const struct xccl_schedule_conn *conn)
{
    return !xccl_comm_link_find(comm, conn, binding->proto);
}

/* Begins an all-gather; the own part is given. */
static xcclResult_t gather(struct xcclComm *comm, const uint8_t *own, size_t part_bytes)
{
    struct xccl_comm_bind *bind = comm->bind;

    xccl_free(bind->parts);
    bind->part_bytes = part_bytes;
    bind->parts = xccl_calloc((size_t)comm->nranks, part_bytes);
    if (!bind->parts)
        return xcclSystemError;
    memcpy(bind->parts + (size_t)comm->rank * part_bytes, own, part_bytes);
    return xccl_bootstrap_allgather_start(comm->boot, NULL, bind->parts, part_bytes, &bind->limit);
}

/* --- IDLE: what this rank can do alone --- */

xcclResult_t xccl_comm_bind_local(struct xcclComm *comm, const struct xccl_binding *binding)
{
    const struct xccl_schedule *schedule = binding->schedule;
    xcclResult_t rc = xcclSuccess;

    for (uint16_t i = 0; i < schedule->nconns && !rc; i++) {
        const struct xccl_schedule_conn *conn = &schedule->conns[i];

        if (xccl_comm_is_local(comm, conn->peer) && is_missing(comm, binding, conn))
            rc = xccl_comm_link_shm(comm, conn, binding->proto);
    }
    return rc;
}

static uint32_t count_missing(const struct xcclComm *comm, const struct xccl_binding *binding)
{
    const struct xccl_schedule *schedule = binding->schedule;
    uint32_t count = 0;

    for (uint16_t i = 0; i < schedule->nconns; i++)
        count += !xccl_comm_is_local(comm, schedule->conns[i].peer) &&
                 is_missing(comm, binding, &schedule->conns[i]);
    return count;
}

/* Listens for everybody who will connect. */
static xcclResult_t listen_all(struct xcclComm *comm, uint32_t slot_bytes)
{
    struct xccl_comm_bind *bind = comm->bind;
    const struct xccl_schedule *schedule = bind->binding->schedule;
    xcclResult_t rc = xcclSuccess;

    bind->handles = xccl_calloc(schedule->nconns + 1u, sizeof *bind->handles);
    bind->listening = xccl_calloc(schedule->nconns + 1u, sizeof *bind->listening);
    if (!bind->handles || !bind->listening)
        return xcclSystemError;
    for (uint16_t i = 0; i < schedule->nconns && !rc; i++) {
        const struct xccl_schedule_conn *conn = &schedule->conns[i];

        if (conn->dir != XCCL_CONN_RECV || xccl_comm_is_local(comm, conn->peer) ||
            !is_missing(comm, bind->binding, conn))
            continue;
        rc = xccl_comm_link_net(comm, conn, slot_bytes, &bind->handles[bind->listen_count]);
        bind->listening[bind->listen_count] = i;
        bind->listen_count += !rc;
    }
    return rc;
}

/* The least of the links that are there, and of those to come. */
static uint32_t least_slot(const struct xcclComm *comm, const struct xccl_binding *binding,
                           uint32_t slot_bytes)
{
    const struct xccl_schedule *schedule = binding->schedule;

    for (uint16_t i = 0; i < schedule->nconns; i++) {
        struct xccl_comm_link *link = xccl_comm_link_find(comm, &schedule->conns[i],
                                                          binding->proto);

        if (link && xccl_comm_link_view(link)->slot_bytes < slot_bytes)
            slot_bytes = xccl_comm_link_view(link)->slot_bytes;
    }
    return slot_bytes;
}

static xcclResult_t tell(struct xcclComm *comm)
{
    struct xccl_comm_bind *bind = comm->bind;
    uint32_t more = count_missing(comm, bind->binding);
    uint32_t slot_bytes = more ? xccl_comm_net_slot_bytes(comm, more) : LOCAL_COPY_MAX;
    uint32_t device_bytes = LOCAL_COPY_MAX;
    xcclResult_t failed;
    struct xccl_board_call call = xccl_comm_own_call(comm);
    char text[TEXT_BYTES] = "";
    uint8_t own[TOLD_BYTES] = {0};
    struct xccl_wire wire = xccl_wire_over(own, sizeof own);

    failed = comm->ops->offer(comm, bind->binding, own + DEVICE_AT, &device_bytes);
    if (!failed)
        failed = listen_all(comm, slot_bytes);
    slot_bytes = device_bytes < slot_bytes ? device_bytes : slot_bytes;
    if (failed)
        memcpy(text, xccl_error_text(), strnlen(xccl_error_text(), sizeof text - 1));
    xccl_wire_put_u64(&wire, bind->mark);
    xccl_wire_put_u32(&wire, (uint32_t)failed);
    xccl_wire_put_u32(&wire, least_slot(comm, bind->binding, slot_bytes));
    xccl_wire_put_u32(&wire, bind->listen_count);
    xccl_wire_put(&wire, text, sizeof text);
    xccl_wire_put_u64(&wire, call.seq);
    xccl_wire_put_u64(&wire, call.count);
    xccl_wire_put_u32(&wire, call.coll);
    xccl_wire_put_u32(&wire, call.type);
    xccl_wire_put_u32(&wire, call.op);
    xccl_wire_put_u32(&wire, call.root);
    return gather(comm, own, DEVICE_AT + comm->ops->offer_bytes);
}

/* --- TOLD --- */

static void get_told(const struct xcclComm *comm, int rank, struct told *told)
{
    struct xccl_wire wire = xccl_wire_over(
        comm->bind->parts + (size_t)rank * comm->bind->part_bytes, comm->bind->part_bytes);

    told->mark = xccl_wire_get_u64(&wire);
    told->rc = xccl_wire_get_u32(&wire);
    told->slot_bytes = xccl_wire_get_u32(&wire);
    told->offers = xccl_wire_get_u32(&wire);
    xccl_wire_get(&wire, told->text, sizeof told->text);
    told->text[sizeof told->text - 1] = 0;
    xccl_log_escape(told->text, sizeof told->text);
    told->call.seq = xccl_wire_get_u64(&wire);
    told->call.count = xccl_wire_get_u64(&wire);
    told->call.coll = xccl_wire_get_u32(&wire);
    told->call.type = xccl_wire_get_u32(&wire);
    told->call.op = xccl_wire_get_u32(&wire);
    told->call.root = xccl_wire_get_u32(&wire);
}

/* Can all ranks go on? The error names rank and reason on every rank. */
static xcclResult_t judge_told(struct xcclComm *comm, int rank, const struct told *told)
{
    char name[128];
    xcclResult_t rc;

    if (told->rc && rank == comm->rank) { /* other ranks of this thread have errors of their own */
        xccl_error_set_text(told->text);
        return (xcclResult_t)told->rc;
    }
    xccl_comm_name_rank(comm, rank, name, sizeof name);
    if (told->rc)
        return xccl_fail(xcclRemoteError, 0, NULL, "%s: %s", name, told->text);
    if (told->mark == comm->bind->mark)
        return xcclSuccess;
    rc = xccl_comm_same_call(comm, rank, &told->call);
    return rc ? rc : xccl_comm_fail_choice(comm, rank);
}

/* Who shall connect to an offer, and by which of its connections; 0: nobody. */
static uint32_t place_of(int peer, uint16_t id)
{
    return (uint32_t)(peer + 1) << 16 | id;
}

static xcclResult_t offer(struct xcclComm *comm, uint32_t most)
{
    const struct xccl_comm_bind *bind = comm->bind;
    size_t bytes = (size_t)most * OFFER_BYTES;
    uint8_t *own = xccl_calloc(most, OFFER_BYTES);
    struct xccl_wire wire;
    xcclResult_t rc;

    if (!own)
        return xcclSystemError;
    wire = xccl_wire_over(own, bytes);
    for (uint32_t i = 0; i < bind->listen_count; i++) {
        const struct xccl_schedule_conn *conn = &bind->binding->schedule->conns[bind->listening[i]];

        xccl_wire_put_u32(&wire, place_of(conn->peer, conn->id));
        xccl_wire_put(&wire, &bind->handles[i], sizeof bind->handles[i]);
    }
    rc = gather(comm, own, bytes);
    xccl_free(own);
    return rc;
}

/* Agrees on slices, and tells where this rank listens, unless nobody listens anew. */
static xcclResult_t take_told(struct xcclComm *comm, int *offers_out)
{
    struct xccl_comm_bind *bind = comm->bind;
    uint32_t least = LOCAL_COPY_MAX, most = 0;
    struct told told;
    xcclResult_t rc;

    for (int i = 0; i < comm->nranks; i++) {
        get_told(comm, i, &told);
        rc = judge_told(comm, i, &told);
        if (rc)
            return rc;
        least = told.slot_bytes < least ? told.slot_bytes : least;
        most = told.offers > most ? told.offers : most;
    }
    bind->binding->slot_bytes = least;
    *offers_out = most != 0;
    rc = comm->ops->take_offers(comm, bind->parts + DEVICE_AT, bind->part_bytes);
    if (rc)
        return rc;
    if (most > XCCL_BOOT_PART_MAX / OFFER_BYTES)
        return xccl_fail(xcclRemoteError, 0, "use another algorithm",
                         "a rank needs %u connections at once, which is too many", most);
    return most ? offer(comm, most) : xcclSuccess;
}

/* --- OFFERED --- */

/* The handle that peer gives for a send end of this rank. */
static xcclResult_t find_offer(const struct xcclComm *comm, const struct xccl_schedule_conn *conn,
                               xcclNetHandle_t *handle_out)
{
    const struct xccl_comm_bind *bind = comm->bind;
    uint32_t want = place_of(comm->rank, conn->id);

    for (size_t at = 0; at < bind->part_bytes; at += OFFER_BYTES) {
        struct xccl_wire wire = xccl_wire_over(
            bind->parts + (size_t)conn->peer * bind->part_bytes + at, OFFER_BYTES);

        if (xccl_wire_get_u32(&wire) != want)
            continue;
        xccl_wire_get(&wire, handle_out, sizeof *handle_out);
        return xcclSuccess;
    }
    return xccl_fail(xcclInternalError, 0, "report this as a bug in the algorithm",
                     "rank %d does not expect connection %u from rank %d", conn->peer, conn->id,
                     comm->rank);
}

static xcclResult_t make_senders(struct xcclComm *comm)
{
    const struct xccl_binding *binding = comm->bind->binding;
    const struct xccl_schedule *schedule = binding->schedule;
    xcclResult_t rc = xcclSuccess;

    for (uint16_t i = 0; i < schedule->nconns && !rc; i++) {
        const struct xccl_schedule_conn *conn = &schedule->conns[i];
        xcclNetHandle_t handle;

        if (conn->dir != XCCL_CONN_SEND || xccl_comm_is_local(comm, conn->peer) ||
            !is_missing(comm, binding, conn))
            continue;
        rc = find_offer(comm, conn, &handle);
        if (!rc)
            rc = xccl_comm_link_net(comm, conn, binding->slot_bytes, &handle);
    }
    return rc;
}

/* --- CONNECT --- */

/* Ends that are not up yet. */
struct connect_rest {
    int count, peer; /* peer: of the first one */
};

/* Moves one end on; counts it when it is not up yet. */
static xcclResult_t connect_one(const struct xcclComm *comm, struct xccl_comm_link *link,
                                struct connect_rest *rest)
{
    char self[128], name[128], why[XCCL_ERROR_TEXT_BYTES];
    xcclResult_t rc;

    if (!link || !link->net || link->is_up) /* of a device, or of this host */
        return xcclSuccess;
    rc = xccl_net_link_connect_step(link->net, &link->is_up);
    if (!link->is_up && rest->count++ == 0)
        rest->peer = link->conn.peer;
    if (!rc)
        return rc;
    snprintf(why, sizeof why, "%s", xccl_error_text());
    xccl_comm_name_rank(comm, link->conn.peer, name, sizeof name);
    xccl_comm_name_rank(comm, comm->rank, self, sizeof self);
    return xccl_fail(rc, 0, NULL, "%s cannot connect to %s: %.300s", self, name, why);
}

static xcclResult_t connect_each(const struct xcclComm *comm, struct connect_rest *rest)
{
    const struct xccl_binding *binding = comm->bind->binding;
    xcclResult_t rc = xcclSuccess;

    for (uint16_t i = 0; i < binding->schedule->nconns && !rc; i++)
        rc = connect_one(
            comm, xccl_comm_link_find(comm, &binding->schedule->conns[i], binding->proto), rest);
    return rc;
}

/* A connection failed. Most often the peer has given up, and then the bootstrap says why before
 * long, in place of this error. */
static void keep_lost(struct xccl_comm_bind *bind, xcclResult_t rc)
{
    bind->lost_rc = rc;
    bind->lost_ns = xccl_clock_ns() + CONNECT_VERDICT_MS * XCCL_NS_PER_MS;
    snprintf(bind->lost_text, sizeof bind->lost_text, "%s", xccl_error_text());
}

static xcclResult_t fail_waiting(const struct xcclComm *comm, const struct connect_rest *rest)
{
    const struct xccl_net *net = xccl_comm_net(comm, rest->peer);
    char name[128];

    xccl_comm_name_rank(comm, rest->peer, name, sizeof name);
    return xccl_fail(
        xcclTimeout, 0,
        "check that the hosts can reach each other's addresses, or raise XCCL_TIMEOUT_INIT_S",
        "rank %d still waits for %d network connections, the first one with %s, by "
        "device %s of plugin %s",
        comm->rank, rest->count, name, net->use[comm->net_kind[rest->peer]].name, net->wire_id);
}

static xcclResult_t connect_step(struct xcclComm *comm, int *done_out)
{
    struct xccl_comm_bind *bind = comm->bind;
    struct connect_rest rest = {0, 0};
    xcclResult_t rc;

    if (bind->lost_rc && xccl_clock_ns() < bind->lost_ns)
        return xcclSuccess;
    if (bind->lost_rc) {
        xccl_error_set_text(bind->lost_text);
        return bind->lost_rc;
    }
    rc = connect_each(comm, &rest);
    *done_out = !rc && !rest.count;
    if (rc)
        keep_lost(bind, rc);
    else if (rest.count && (xccl_limit_passed(&bind->limit) ||
                            xccl_clock_ns() + CONNECT_SPARE_NS > bind->limit.deadline_ns))
        /* A little early: this rank knows for whom it waits, the others would only say for it. */
        return fail_waiting(comm, &rest);
    return xcclSuccess;
}

/* --- the whole --- */

void xccl_comm_bind_reaches(struct xcclComm *comm, struct xccl_binding *binding)
{
    const struct xccl_schedule *schedule = binding->schedule;

    for (uint16_t i = 0; i < schedule->nconns; i++) {
        binding->reaches[i] = xccl_comm_link_reach(
            xccl_comm_link_find(comm, &schedule->conns[i], binding->proto));
        if (binding->reaches[i] && schedule->conns[i].dir == XCCL_CONN_SEND)
            binding->offer_conns[binding->offer_count++] = i;
        if (xccl_ahead_is_for(binding, i))
            binding->ahead_count++;
    }
}

static xcclResult_t hand_over(struct xcclComm *comm)
{
    struct xccl_binding *binding = comm->bind->binding;
    const struct xccl_schedule *schedule = binding->schedule;
    xcclResult_t rc;

    for (uint16_t i = 0; i < schedule->nconns; i++) {
        struct xccl_comm_link *link = xccl_comm_link_find(comm, &schedule->conns[i],
                                                          binding->proto);

        if (!link) /* of a device */
            continue;
        binding->links[i] = xccl_comm_link_view(link);
        if (xccl_link_slots(binding->links[i]) < schedule->minslots)
            return xccl_fail(xcclInternalError, 0, "use another algorithm",
                             "%s of %s needs %u slots per connection, but there are only %u",
                             schedule->name, xccl_coll_name((enum xccl_coll)schedule->coll),
                             schedule->minslots, xccl_link_slots(binding->links[i]));
        binding->nets[i] = link->net;
        if (link->net)
            binding->net_conns[binding->net_count++] = i;
    }
    rc = comm->ops->bound(comm, binding);
    if (rc)
        return rc;
    binding->ready = 1;
    reset(comm->bind);
    return xcclSuccess;
}

static xcclResult_t begin(struct xcclComm *comm, struct xccl_binding *binding, uint64_t mark,
                          const struct xccl_limit *limit)
{
    const struct xccl_schedule *schedule = binding->schedule;

    for (uint16_t i = 0; i < schedule->nconns; i++)
        if (schedule->conns[i].id >= XCCL_P2P_ID)
            return xccl_fail(
                xcclInternalError, 0, "use another algorithm",
                "%s of %s uses connection number %u between two ranks, but numbers end at %d",
                schedule->name, xccl_coll_name((enum xccl_coll)schedule->coll),
                schedule->conns[i].id, XCCL_P2P_ID - 1);
    comm->bind->mark = mark;
    comm->bind->limit = *limit;
    return xcclSuccess;
}

/* All ranks are on this host. */
static xcclResult_t bind_alone(struct xcclComm *comm, struct xccl_binding *binding)
{
    xcclResult_t rc = xccl_comm_bind_local(comm, binding);

    if (rc)
        return rc;
    binding->slot_bytes = least_slot(comm, binding, LOCAL_COPY_MAX);
    return hand_over(comm);
}

/* The step after this one, once what has begun has ended. */
static xcclResult_t step(struct xcclComm *comm, enum xccl_bind_state *state_out)
{
    struct xccl_comm_bind *bind = comm->bind;
    int offers = 0, done = 0;
    xcclResult_t rc;

    *state_out = XCCL_BIND_TALK;
    switch (bind->state) {
    case IDLE:
        bind->state = TOLD;
        return tell(comm);
    case TOLD:
        rc = take_told(comm, &offers);
        bind->state = offers ? OFFERED : CONNECT;
        *state_out = offers ? XCCL_BIND_TALK : XCCL_BIND_POLL;
        return rc;
    case OFFERED:
        *state_out = XCCL_BIND_POLL;
        bind->state = CONNECT;
        return make_senders(comm);
    default:
        rc = connect_step(comm, &done);
        *state_out = done ? XCCL_BIND_DONE : XCCL_BIND_POLL;
        return done ? hand_over(comm) : rc;
    }
}

xcclResult_t xccl_comm_bind(struct xcclComm *comm, struct xccl_binding *binding, uint64_t mark,
                            const struct xccl_limit *limit, enum xccl_bind_state *state_out)
{
    xcclResult_t rc = xcclSuccess;

    *state_out = XCCL_BIND_DONE;
    if (!comm->bind->binding)
        rc = begin(comm, binding, mark, limit);
    if (rc)
        return rc;
    comm->bind->binding = binding; /* the same until it is ready */
    return comm->planner.all_local && !comm->ops->offer_bytes ? bind_alone(comm, binding)
                                                              : step(comm, state_out);
}
