/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames on a ring connection, both ways alike:
 *
 *   HEARTBEAT  the sender's board: u64 word, u64 number of its current call, u64 count, u32
 *              collective, u32 type, u32 operator, u32 root. Two neighbours in different calls of
 * one number disagree; that finds ranks which wait on links that the others' calls do not use.
 *   NOTICE     u32 kind, u32 result, i32 origin, text: forwarded by whoever did not know yet
 *   GOODBYE    u64 number of the sender's last call; then FINAL, and the sending side is shut
 *   BOOT_ERROR the sender could not join after all, when this rank had (bootstrap/message.h)
 *
 * Anything else, or a frame of a wrong size, is an error of the peer.
 *
 *   AT WORK --- own close: goodbye, FINAL ---> LINGERING (control->comm is NULL; what comes is
 *      |                                           |        dropped; nothing is judged)
 *      | the neighbour's FINAL, or its death       | its FINAL or end, or LINGER_MS
 *      +-----------------> CLOSED <----------------+
 *
 * Thread: see control.h. What close detaches, the service thread frees: it holds a reference to
 * itself for each control plane. */
#include "watch/control.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/os.h"
#include "base/param.h"
#include "base/wire.h"
#include "bootstrap/message.h"
#include "comm/comm_where.h"
#include "watch/comm_verdict.h"

enum { FRAME_HEARTBEAT = 0x20, FRAME_NOTICE = 0x21, FRAME_GOODBYE = 0x22 };

#define HEARTBEAT_BYTES 40
#define NOTICE_BYTES    (12 + XCCL_NOTICE_TEXT_BYTES)
#define FRAME_BYTES     XCCL_BOOT_ERROR_MAX /* the largest */
#define SILENT_BEATS    4
#define STARVED_BEATS   30 /* of a process that is seen to run */
#define LINGER_MS       800
#define SEE_LOG         "check what that rank logged"

static_assert(NOTICE_BYTES <= FRAME_BYTES, "it is");

struct neighbour {
    struct xccl_source source;
    struct xccl_conn *conn; /* NULL: closed */
    struct xccl_control *control;
    int rank;
    char address[XCCL_ADDR_TEXT_BYTES]; /* of the other end, without the port; "" not known */
    int watched; /* it is in the loop */
    int said_goodbye; /* nothing may follow it */
    uint64_t heard_ns, due_ns; /* last sign of life; when the next heartbeat is to be sent */
    _Atomic uint32_t call; /* low half of the number of the call it was last heard to be in */
    _Atomic uint64_t left_after; /* 0: has not left; else its last call + 1 */
};

struct xccl_control {
    struct xcclComm *comm; /* NULL: it has left */
    struct xccl_loop *loop;
    int rank;
    uint64_t beat_ns; /* 0: no heartbeats */
    struct neighbour neighbours[2];
};

static void neighbour_close(struct neighbour *neighbour)
{
    xccl_loop_remove(&neighbour->source);
    xccl_conn_close(neighbour->conn);
    neighbour->conn = NULL;
}

static void neighbour_dead(struct neighbour *neighbour, const char *why, const char *todo)
{
    struct xcclComm *comm = neighbour->control->comm;
    const char *at = neighbour->address[0] ? " at " : "";
    char name[128];

    neighbour_close(neighbour);
    xccl_comm_name_rank(comm, neighbour->rank, name, sizeof name);
    (void)xccl_comm_fail(comm, xcclRemoteError, "%s%s%s %s; %s, then destroy the communicator",
                         name, at, neighbour->address, why, todo);
}

static void neighbour_read(struct neighbour *neighbour);

/* Writes what the socket takes; the rest when it polls writable. */
static void neighbour_flush(struct neighbour *neighbour)
{
    int pending = 0;

    if (!neighbour->conn)
        return;
    if (xccl_conn_flush(neighbour->conn, &pending)) {
        neighbour_read(neighbour); /* perhaps it said goodbye before it closed */
        if (neighbour->conn)
            neighbour_dead(neighbour, "is gone: its control connection broke", SEE_LOG);
        return;
    }
    (void)xccl_loop_set_events(&neighbour->source, pending ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void neighbour_send(struct neighbour *neighbour, uint16_t type, const void *body,
                           size_t bytes)
{
    if (neighbour->conn && !neighbour->said_goodbye &&
        xccl_conn_queue(neighbour->conn, type, body, bytes) == xcclSuccess)
        neighbour_flush(neighbour);
}

/* Sends a notice both ways. */
static void tell(struct xccl_control *control, const struct xccl_notice *notice)
{
    uint8_t body[NOTICE_BYTES];
    struct xccl_wire wire = xccl_wire_over(body, sizeof body);
    size_t text_bytes = strnlen(notice->text, XCCL_NOTICE_TEXT_BYTES - 1);

    xccl_wire_put_u32(&wire, notice->kind);
    xccl_wire_put_u32(&wire, notice->rc);
    xccl_wire_put_u32(&wire, (uint32_t)notice->origin);
    xccl_wire_put(&wire, notice->text, text_bytes);
    xccl_loop_lock(control->loop);
    for (int i = 0; i < 2; i++)
        neighbour_send(&control->neighbours[i], FRAME_NOTICE, body, 12 + text_bytes);
    xccl_loop_unlock(control->loop);
}

/* The text stays as its origin wrote it, on every rank; who did not know yet passes it on. */
static int take_notice(struct neighbour *neighbour, struct xccl_wire *wire)
{
    struct xcclComm *comm = neighbour->control->comm;
    uint32_t kind = xccl_wire_get_u32(wire);
    struct xccl_notice notice = {.rc = xccl_wire_get_u32(wire)};

    notice.origin = (int32_t)xccl_wire_get_u32(wire);
    if (wire->bad || xccl_wire_left(wire) >= sizeof notice.text || notice.rc == xcclSuccess ||
        notice.rc >= xcclNumResults || notice.origin < 0 || notice.origin >= comm->nranks ||
        kind < XCCL_NOTICE_ERROR || kind >= XCCL_NOTICE_END)
        return 0;
    notice.kind = (enum xccl_notice_kind)kind;
    xccl_wire_get(wire, notice.text, xccl_wire_left(wire));
    if (xccl_comm_set_error(comm, (xcclResult_t)notice.rc, notice.text)) {
        tell(neighbour->control, &notice);
        xccl_comm_log_notice(&notice);
    }
    return 1;
}

static int take_heartbeat(struct neighbour *neighbour, struct xccl_wire *wire)
{
    uint64_t theirs = xccl_wire_get_u64(wire);
    struct xccl_board_call call = {.seq = xccl_wire_get_u64(wire)};

    call.count = xccl_wire_get_u64(wire);
    call.coll = xccl_wire_get_u32(wire);
    call.type = xccl_wire_get_u32(wire);
    call.op = xccl_wire_get_u32(wire);
    call.root = xccl_wire_get_u32(wire);
    if (wire->bad || xccl_wire_left(wire))
        return 0;
    atomic_store_explicit(&neighbour->call, (uint32_t)(theirs >> 32), memory_order_relaxed);
    xccl_comm_compare_calls(neighbour->control->comm, neighbour->rank, theirs, &call);
    return 1;
}

/* The neighbour could not join, and that is everybody's error. */
static int take_failed_join(struct neighbour *neighbour, const uint8_t *body, size_t bytes)
{
    struct xcclComm *comm = neighbour->control->comm;
    struct xccl_boot_error error;
    char name[128];

    if (xccl_boot_error_decode(body, bytes, &error) != 0)
        return 0;
    xccl_comm_name_rank(comm, neighbour->rank, name, sizeof name);
    (void)xccl_comm_fail(comm, xcclRemoteError, "%s could not join: %.300s", name, error.text);
    return 1;
}

static int take_frame(struct neighbour *neighbour, uint16_t type, uint8_t *body, size_t bytes)
{
    struct xccl_wire wire = xccl_wire_over(body, bytes);

    switch (type) {
    case FRAME_HEARTBEAT:
        return take_heartbeat(neighbour, &wire);
    case FRAME_NOTICE:
        return take_notice(neighbour, &wire);
    case XCCL_BOOT_ERROR:
        return take_failed_join(neighbour, body, bytes);
    case FRAME_GOODBYE:
        if (bytes != 8)
            return 0;
        /* Release: pairs with xccl_control_left_before(). */
        atomic_store_explicit(&neighbour->left_after, xccl_wire_get_u64(&wire) + 1,
                              memory_order_release);
        return 1;
    default:
        return 0;
    }
}

static void neighbour_read(struct neighbour *neighbour)
{
    uint8_t body[FRAME_BYTES];
    size_t bytes = 0;
    uint16_t type = 0;
    int got = 1, final = 0;

    while (got && neighbour->conn) {
        xcclResult_t rc = xccl_conn_take(neighbour->conn, &type, body, sizeof body, &bytes, &got,
                                         &final);

        int left = atomic_load_explicit(&neighbour->left_after, memory_order_relaxed) != 0;

        if ((rc || final) && !left) {
            neighbour_dead(neighbour,
                           "is gone: its control connection ended without a closing message",
                           SEE_LOG);
            return;
        }
        if (rc || final) {
            neighbour_close(neighbour);
            return;
        }
        if (!got)
            return;
        neighbour->heard_ns = xccl_clock_ns();
        if (!take_frame(neighbour, type, body, bytes)) {
            neighbour_dead(neighbour, "sent a control message that this version does not know",
                           "install the same version everywhere");
            return;
        }
    }
}

/* --- leaving --- */

/* Frees a control plane that has left once both connections are closed. The service thread, or
 * close itself. 1: it is gone. */
static int free_when_left(struct xccl_control *control)
{
    if (control->comm || control->neighbours[0].conn || control->neighbours[1].conn)
        return 0;
    xccl_free(control);
    return 1;
}

/* Writes what is left of the goodbye, then shuts the sending side. */
static xcclResult_t linger_send(struct neighbour *neighbour)
{
    int pending = 0;
    xcclResult_t rc = xccl_conn_finish(neighbour->conn, &pending);

    if (!rc)
        rc = xccl_loop_set_events(&neighbour->source, pending ? EPOLLIN | EPOLLOUT : EPOLLIN);
    return rc;
}

/* Drops what comes, until the end. */
static void linger(struct neighbour *neighbour, uint32_t events)
{
    uint8_t body[FRAME_BYTES];
    size_t bytes = 0;
    uint16_t type = 0;
    int got = 1, final = 0;
    xcclResult_t rc = events & EPOLLOUT ? linger_send(neighbour) : xcclSuccess;

    while (!rc && !final && got)
        rc = xccl_conn_take(neighbour->conn, &type, body, sizeof body, &bytes, &got, &final);
    if (rc || final)
        neighbour_close(neighbour);
}

/* The end of this side, with the loop's lock and comm still in place. */
static void neighbour_leave(struct neighbour *neighbour, uint64_t last_seq)
{
    uint8_t body[8];
    struct xccl_wire wire = xccl_wire_over(body, sizeof body);

    if (neighbour->conn)
        neighbour_read(neighbour); /* perhaps it has left before */
    xccl_wire_put_u64(&wire, last_seq);
    neighbour_send(neighbour, FRAME_GOODBYE, body, sizeof body);
    neighbour->said_goodbye = 1;
    if (!neighbour->conn)
        return;
    if (!neighbour->watched || linger_send(neighbour))
        neighbour_close(neighbour);
    else
        xccl_loop_set_timer(&neighbour->source, xccl_clock_ns() + LINGER_MS * XCCL_NS_PER_MS);
}

/* --- callbacks --- */

static void on_events(struct xccl_source *source, uint32_t events)
{
    struct neighbour *neighbour = source->owner;
    struct xccl_control *control = neighbour->control;

    xccl_log_set_rank(control->rank);
    if (!control->comm) {
        linger(neighbour, events);
        if (free_when_left(control))
            xccl_service_put_later();
    } else {
        if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            neighbour_read(neighbour);
        if (neighbour->conn && (events & EPOLLOUT))
            neighbour_flush(neighbour);
    }
    xccl_log_set_rank(-1);
}

static void send_heartbeat(struct neighbour *neighbour)
{
    const struct xccl_board *board = neighbour->control->comm->board;
    struct xccl_board_call call = {0};
    uint8_t body[HEARTBEAT_BYTES];
    struct xccl_wire wire = xccl_wire_over(body, sizeof body);
    /* Acquire: pairs with xccl_board_write(), so the call is this one or a later one. */
    uint64_t word = atomic_load_explicit(&board->word, memory_order_acquire);

    if (!xccl_board_read(board, &call) || (uint32_t)call.seq != word >> 32)
        word = 0; /* between two calls just now: only a sign of life */
    xccl_wire_put_u64(&wire, word);
    xccl_wire_put_u64(&wire, call.seq);
    xccl_wire_put_u64(&wire, call.count);
    xccl_wire_put_u32(&wire, call.coll);
    xccl_wire_put_u32(&wire, call.type);
    xccl_wire_put_u32(&wire, call.op);
    xccl_wire_put_u32(&wire, call.root);
    neighbour_send(neighbour, FRAME_HEARTBEAT, body, sizeof body);
}

/* On a crowded machine a process may get no time for seconds. Where it can be seen, on this host,
 * it is looked whether that is so. A number that another container's process has here at most
 * delays what is told. */
static uint64_t beats_allowed(const struct neighbour *neighbour)
{
    const struct xcclComm *comm = neighbour->control->comm;
    const struct xccl_peer *peer = &comm->peers[neighbour->rank];

    return peer->host_hash == comm->peers[comm->rank].host_hash && xccl_os_process_runs(peer->pid)
               ? STARVED_BEATS
               : SILENT_BEATS;
}

static int is_silent(const struct neighbour *neighbour, uint64_t now_ns)
{
    uint64_t beat_ns = neighbour->control->beat_ns, heard_ns = neighbour->heard_ns;

    return now_ns > heard_ns + SILENT_BEATS * beat_ns &&
           now_ns > heard_ns + beats_allowed(neighbour) * beat_ns;
}

/* A process that was away itself (stopped, starved) first listens for a while before it judges. */
static void judge_silence(struct neighbour *neighbour, uint64_t now_ns)
{
    struct xccl_control *control = neighbour->control;

    if (now_ns - neighbour->due_ns > control->beat_ns / 2)
        neighbour->heard_ns = now_ns;
    neighbour->due_ns = now_ns + control->beat_ns;
    xccl_loop_set_timer(&neighbour->source, neighbour->due_ns);
    neighbour_read(neighbour);
    if (!neighbour->conn || atomic_load_explicit(&neighbour->left_after, memory_order_relaxed))
        xccl_loop_set_timer(&neighbour->source, XCCL_NEVER_NS);
    else if (is_silent(neighbour, now_ns))
        neighbour_dead(neighbour, "does not respond (stopped, or its host is unreachable)",
                       "check that its process runs and that its host is reachable");
    else
        send_heartbeat(neighbour);
}

static void on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct neighbour *neighbour = source->owner;
    struct xccl_control *control = neighbour->control;

    xccl_log_set_rank(control->rank);
    if (control->comm) {
        judge_silence(neighbour, now_ns);
    } else { /* it has lingered long enough */
        neighbour_close(neighbour);
        if (free_when_left(control))
            xccl_service_put_later();
    }
    xccl_log_set_rank(-1);
}

/* While the connection is whole: a broken one does not say any more. */
static void note_address(struct neighbour *neighbour)
{
    struct xccl_addr addr = {.bytes = sizeof addr.sa};
    char *port;

    if (!neighbour->conn || getpeername(neighbour->source.fd, &addr.sa.any, &addr.bytes) != 0)
        return;
    xccl_addr_format(&addr, neighbour->address);
    port = strrchr(neighbour->address, ':');
    if (port)
        *port = 0;
}

/* Before any of them is in the loop: callbacks look at both. */
static void neighbour_init(struct xccl_control *control, int index, int rank,
                           struct xccl_conn *conn)
{
    struct neighbour *neighbour = &control->neighbours[index];
    uint64_t now_ns = xccl_clock_ns();

    neighbour->conn = conn;
    neighbour->control = control;
    neighbour->rank = rank;
    neighbour->heard_ns = now_ns;
    neighbour->due_ns = now_ns + control->beat_ns;
    neighbour->source.fd = conn ? xccl_conn_fd(conn) : -1;
    neighbour->source.events = EPOLLIN;
    neighbour->source.on_events = on_events;
    neighbour->source.on_timer = on_timer;
    neighbour->source.owner = neighbour;
    neighbour->source.timer_ns = control->beat_ns ? neighbour->due_ns : XCCL_NEVER_NS;
    note_address(neighbour);
}

/* Puts both into the loop, and takes what has come before. */
static xcclResult_t watch_neighbours(struct xccl_control *control)
{
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < 2 && !rc; i++) {
        struct neighbour *neighbour = &control->neighbours[i];

        if (!neighbour->conn)
            continue;
        rc = xccl_loop_add(control->loop, &neighbour->source);
        neighbour->watched = !rc;
    }
    for (int i = 0; i < 2 && !rc; i++)
        if (control->neighbours[i].conn)
            neighbour_read(&control->neighbours[i]);
    return rc;
}

/* comm->tell: sends the communicator's first error. */
static void tell_error(struct xcclComm *comm, const struct xccl_notice *notice)
{
    tell(comm->control, notice);
}

xcclResult_t xccl_control_open(struct xcclComm *comm, struct xccl_conn *next,
                               struct xccl_conn *prev, struct xccl_control **control_out)
{
    struct xccl_control *control = xccl_calloc(1, sizeof *control);
    struct xccl_loop *loop;
    xcclResult_t rc = control ? xccl_service_get(&loop) : xcclSystemError;

    if (rc) {
        xccl_conn_close(next);
        xccl_conn_close(prev);
        xccl_free(control);
        return rc;
    }
    control->comm = comm;
    control->loop = loop;
    control->rank = comm->rank;
    control->beat_ns = (uint64_t)xccl_param_int(XCCL_P_HEARTBEAT_S) * XCCL_NS_PER_S;
    /* No callback before all is in place: they look for the control plane in comm. */
    xccl_loop_lock(loop);
    neighbour_init(control, 0, (comm->rank + 1) % comm->nranks, next);
    neighbour_init(control, 1, (comm->rank + comm->nranks - 1) % comm->nranks, prev);
    *control_out = control;
    comm->tell = tell_error;
    rc = watch_neighbours(control);
    if (rc) { /* the neighbours must not take it for a leave in order */
        (void)xccl_comm_fail(comm, rc, "rank %d cannot join: %.300s", comm->rank,
                             xccl_error_text());
        *control_out = NULL;
        comm->tell = NULL;
        xccl_control_close(control, 0);
    }
    xccl_loop_unlock(loop);
    return rc;
}

void xccl_control_close(struct xccl_control *control, uint64_t last_seq)
{
    struct xccl_loop *loop;
    int gone;

    if (!control)
        return;
    loop = control->loop;
    xccl_loop_lock(loop);
    for (int i = 0; i < 2; i++)
        neighbour_leave(&control->neighbours[i], last_seq);
    control->comm = NULL;
    gone = free_when_left(control);
    xccl_loop_unlock(loop);
    if (gone)
        xccl_service_put(); /* not the last one: the communicator has another */
}

int xccl_control_left_before(struct xccl_control *control, uint64_t seq, uint64_t *last_seq_out)
{
    for (int i = 0; i < 2; i++) {
        struct neighbour *neighbour = &control->neighbours[i];
        /* Acquire: pairs with take_frame(). */
        uint64_t left = atomic_load_explicit(&neighbour->left_after, memory_order_acquire);

        if (!left || left > seq)
            continue;
        *last_seq_out = left - 1;
        return neighbour->rank;
    }
    return XCCL_NOBODY;
}

int xccl_control_in_call(const struct xccl_control *control, int rank, uint64_t seq)
{
    for (int i = 0; i < 2; i++) {
        const struct neighbour *neighbour = &control->neighbours[i];
        uint32_t call = atomic_load_explicit(&neighbour->call, memory_order_relaxed);

        if (neighbour->rank == rank && (int32_t)(call - (uint32_t)seq) >= 0)
            return 1;
    }
    return 0;
}
