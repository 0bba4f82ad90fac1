/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames on a ring connection, both ways alike:
 *
 *   HEARTBEAT  the sender's newest calls (calls_wire.h). Two neighbours that differ in a call of
 *              one number disagree; that finds ranks which wait on links that the others' calls do
 *              not use, and ranks that need not wait.
 *   NOTICE     an error (notice_wire.h): forwarded by whoever did not know it yet
 *   GOODBYE    the sender leaves after these calls (calls_wire.h); then LEFT, NOTICE, ASK, ANSWER
 *              and STILL of others, which it passes on, FINAL, and the sending side is shut
 *   LEFT       the same of another rank, forwarded like a notice, so that all ranks know who has
 *              left; only the word of calls that the last one had, too
 *   ASK        i32 asker, i32 asked, u64 word: has the asked rank begun a call with this word? Goes
 *              round both ways until it is there, or with a rank that knows with which calls the
 *              asked one has left
 *   ANSWER     the same, u32 yes, no or unknown (enum xccl_begun), then calls of the asked rank up
 *              to the one asked for, as in a heartbeat; goes back until the asker has it
 *   STILL      where a rank stands (standstill.c); goes to the next rank until it is back
 *   BOOT_ERROR the sender could not join after all, when this rank had (bootstrap/message.h)
 *   BOOT_ALIVE a sign of life of a sender that has not joined yet
 *
 * Anything else, or a frame of a wrong size, is an error of the peer.
 *
 *   AT WORK --- own close: goodbye ---> HAS LEFT (control->comm is NULL; control_relay.c)
 *      |                                   |
 *      | the neighbour's FINAL, or its     | its FINAL or end, or some time
 *      | death                             |
 *      +------------> CLOSED <-------------+
 *
 * Thread: see control.h. What close detaches, the service thread frees: it holds a reference to
 * itself for each control plane. */
#include "watch/control_int.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/os.h"
#include "base/param.h"
#include "bootstrap/alive.h"
#include "comm/comm_where.h"
#include "watch/comm_verdict.h"
#include "watch/standstill.h"

#define SILENT_BEATS  4
#define STARVED_BEATS 30 /* of a process that is seen to run */
#define ASK_NAP_NS    200000
#define ASK_AGAIN_NS  (50 * XCCL_NS_PER_MS)
#define RETRY_MS      100 /* until a notice that found no memory is sent again */
#define HURRY_MS      50 /* until a heartbeat that is wanted early */

static void neighbour_blame(const struct neighbour *neighbour, enum xccl_trouble trouble)
{
    struct xcclComm *comm = neighbour->control->comm;
    struct xccl_verdict verdict = xccl_comm_verdict(comm, trouble, neighbour->rank);

    snprintf(verdict.address, sizeof verdict.address, "%s", neighbour->address);
    (void)xccl_comm_raise(comm, &verdict);
}

static void neighbour_dead(struct neighbour *neighbour, enum xccl_trouble trouble)
{
    xccl_control_close_neighbour(neighbour);
    neighbour_blame(neighbour, trouble);
}

/* Sends the error to the silent neighbour, too, in case that it goes on one day. */
static void neighbour_silent(struct neighbour *neighbour)
{
    neighbour_blame(neighbour, XCCL_TROUBLE_SILENT);
    xccl_control_close_neighbour(neighbour);
}

static void neighbour_read(struct neighbour *neighbour);

/* control->on_broken */
static void neighbour_broken(struct neighbour *neighbour)
{
    neighbour_read(neighbour); /* perhaps it said goodbye before it closed */
    if (neighbour->conn)
        neighbour_dead(neighbour, XCCL_TROUBLE_CONTROL_BROKEN);
}

/* A notice that cannot be queued is owed, and is sent again when the timer is due. A connection
 * that takes no more ends, which the neighbour notices. */
static void send_notice(struct neighbour *neighbour)
{
    struct xccl_control *control = neighbour->control;
    xcclResult_t rc = xccl_control_send(neighbour, FRAME_NOTICE, control->notice,
                                        control->notice_bytes);
    int was_owed = neighbour->owed;

    neighbour->owed = rc == xcclSystemError;
    if (neighbour->owed && !was_owed)
        xccl_log(XCCL_LOG_WARN,
                 "rank %d cannot tell rank %d why the communicator has failed: %s; it goes on "
                 "trying",
                 control->rank, neighbour->rank, xccl_error_text());
    if (neighbour->owed && neighbour->watched)
        xccl_loop_set_timer(&neighbour->source, xccl_clock_ns() + RETRY_MS * XCCL_NS_PER_MS);
    if (!rc || neighbour->owed)
        return;
    neighbour_read(neighbour); /* perhaps it said goodbye */
    if (neighbour->conn)
        neighbour_dead(neighbour, XCCL_TROUBLE_NOTICE_REFUSED);
}

/* Sends a notice both ways. */
static void tell(struct xccl_control *control, const struct xccl_notice *notice)
{
    xccl_loop_lock(control->loop);
    control->notice_bytes = xccl_notice_encode(notice, control->notice);
    for (int i = 0; i < 2; i++)
        send_notice(&control->neighbours[i]);
    xccl_loop_unlock(control->loop);
}

/* The other ranks have given up this one, which goes on after all: it is not to blame itself for
 * that, nor somebody else. Ranks that joined with it may have said so in their own texts. */
static void take_given_up(const struct xcclComm *comm, struct xccl_notice *notice)
{
    struct xccl_verdict verdict = xccl_comm_verdict(comm, XCCL_TROUBLE_GIVEN_UP, comm->rank);
    char self[XCCL_BOOT_NAME_BYTES];

    xccl_comm_name_rank(comm, comm->rank, self, sizeof self);
    if ((notice->trouble != XCCL_TROUBLE_SILENT || notice->culprit != comm->rank) &&
        !xccl_alive_is_given_up(notice->text, self))
        return;
    notice->trouble = verdict.trouble;
    notice->culprit = verdict.culprit;
    notice->remedy_at = (uint32_t)xccl_comm_verdict_text(comm, &verdict, notice->text,
                                                         sizeof notice->text);
}

/* Takes a notice and passes it on, if it is the first one. The text stays as its origin wrote it,
 * except for bytes that have to be escaped. */
static int take_notice(struct neighbour *neighbour, const uint8_t *body, size_t bytes)
{
    struct xcclComm *comm = neighbour->control->comm;
    struct xccl_notice notice;

    if (!xccl_notice_decode(body, bytes, comm->nranks, &notice))
        return 0;
    take_given_up(comm, &notice);
    if (xccl_comm_keep_notice(comm, &notice)) {
        tell(neighbour->control, &notice);
        xccl_comm_log_notice(&notice);
    }
    return 1;
}

static int take_heartbeat(struct neighbour *neighbour, struct xccl_wire *wire)
{
    struct xccl_board_history history;

    xccl_history_get(wire, &history);
    if (wire->bad || xccl_wire_left(wire))
        return 0;
    atomic_store_explicit(&neighbour->call, (uint32_t)(history.word >> 32), memory_order_relaxed);
    (void)xccl_comm_compare(neighbour->control->comm, neighbour->rank, &history);
    return 1;
}

/* --- asking a rank what it has begun --- */

/* Asks once more, for a question or an answer is lost with a rank on the way that leaves. 1: the
 * asked rank has left, and this one knows the answer. */
static int ask(struct xccl_control *control, const uint8_t body[ASK_BYTES],
               enum xccl_begun *answer_out, struct xccl_board_history *theirs_out)
{
    const struct xccl_board_history *left;

    xccl_loop_lock(control->loop);
    left = xccl_control_left_history(control, control->asked);
    if (left) {
        *answer_out = xccl_history_begun(left, control->asked_word);
        *theirs_out = *left;
    }
    for (int i = 0; i < 2 && !left; i++)
        (void)xccl_control_send(&control->neighbours[i], FRAME_ASK, body, ASK_BYTES);
    xccl_loop_unlock(control->loop);
    return left != NULL;
}

/* A question that cannot be sent now has no answer: UNKNOWN after wait_ns. */
enum xccl_begun xccl_control_ask(struct xccl_control *control, int rank, uint64_t word,
                                 uint64_t wait_ns, struct xccl_board_history *theirs_out)
{
    uint8_t body[ASK_BYTES];
    struct xccl_wire wire = xccl_wire_over(body, sizeof body);
    uint64_t now_ns = xccl_clock_ns(), until_ns = now_ns + wait_ns, again_ns = now_ns;
    enum xccl_begun known;
    uint32_t answer = 0;

    if (!control)
        return XCCL_BEGUN_UNKNOWN;
    xccl_wire_put_u32(&wire, (uint32_t)control->rank);
    xccl_wire_put_u32(&wire, (uint32_t)rank);
    xccl_wire_put_u64(&wire, word);
    xccl_loop_lock(control->loop);
    control->asked = rank;
    control->asked_word = word;
    atomic_store_explicit(&control->answer, 0, memory_order_relaxed);
    xccl_loop_unlock(control->loop);
    for (; !answer && !xccl_comm_error(control->comm) && now_ns < until_ns;
         now_ns = xccl_clock_ns()) {
        if (now_ns >= again_ns && ask(control, body, &known, theirs_out))
            return known;
        if (now_ns >= again_ns)
            again_ns = now_ns + ASK_AGAIN_NS;
        nanosleep(&(struct timespec){.tv_nsec = ASK_NAP_NS}, NULL);
        /* Acquire: pairs with xccl_control_take_asking(). */
        answer = atomic_load_explicit(&control->answer, memory_order_acquire);
    }
    if (!answer)
        return XCCL_BEGUN_UNKNOWN;
    *theirs_out = control->asked_history;
    return (enum xccl_begun)(answer - 1);
}

/* --- who waits for whom --- */

static void send_still(struct xccl_control *control, const uint8_t *body, size_t bytes)
{
    (void)xccl_control_send(&control->neighbours[0], FRAME_STILL, body,
                            bytes); /* it is said again */
}

static int take_still(struct xccl_control *control, uint8_t *body, size_t bytes)
{
    int rank;

    if (!control->comm->still)
        return 1;
    if (!xccl_standstill_take(control->comm->still, body, bytes, &rank))
        return 0;
    if (rank != control->rank)
        send_still(control, body, bytes);
    return 1;
}

static void tell_still(struct xcclComm *comm, const uint8_t *body, size_t bytes)
{
    xccl_loop_lock(comm->control->loop);
    send_still(comm->control, body, bytes);
    xccl_loop_unlock(comm->control->loop);
}

/* --- the rest of what comes --- */

/* The neighbour could not join, and that is everybody's error. */
static int take_failed_join(struct neighbour *neighbour, const uint8_t *body, size_t bytes)
{
    struct xcclComm *comm = neighbour->control->comm;
    struct xccl_verdict verdict = xccl_comm_verdict(comm, XCCL_TROUBLE_NOT_JOINED, neighbour->rank);
    struct xccl_boot_error error;

    if (xccl_boot_error_decode(body, bytes, &error) != 0)
        return 0;
    xccl_verdict_set_why(&verdict, error.text);
    (void)xccl_comm_raise(comm, &verdict);
    return 1;
}

static int take_frame(struct neighbour *neighbour, uint16_t type, uint8_t *body, size_t bytes)
{
    struct xccl_wire wire = xccl_wire_over(body, bytes);

    switch (type) {
    case FRAME_HEARTBEAT:
        return take_heartbeat(neighbour, &wire);
    case FRAME_NOTICE:
        return take_notice(neighbour, body, bytes);
    case FRAME_ASK:
    case FRAME_ANSWER:
        return xccl_control_take_asking(neighbour, type, body, bytes);
    case FRAME_STILL:
        return take_still(neighbour->control, body, bytes);
    case XCCL_BOOT_ERROR:
        return take_failed_join(neighbour, body, bytes);
    case XCCL_BOOT_ALIVE:
        return 1;
    case FRAME_GOODBYE:
        return xccl_control_take_goodbye(neighbour, body, bytes);
    case FRAME_LEFT:
        return xccl_control_take_left(neighbour, body, bytes);
    default:
        return 0;
    }
}

static void read_frames(struct neighbour *neighbour)
{
    uint8_t body[FRAME_BYTES];
    size_t bytes = 0;
    uint16_t type = 0;
    int got = 1, final = 0;

    while (got && neighbour->conn) {
        xcclResult_t rc = xccl_conn_take(neighbour->conn, &type, body, sizeof body, &bytes, &got,
                                         &final);

        int left = xccl_control_has_left(neighbour->control, neighbour->rank);

        if ((rc || final) && !left) {
            neighbour_dead(neighbour, XCCL_TROUBLE_GONE);
            return;
        }
        if (rc || final) {
            xccl_control_close_neighbour(neighbour);
            return;
        }
        if (!got)
            return;
        neighbour->heard_ns = xccl_clock_ns();
        if (!take_frame(neighbour, type, body, bytes)) {
            neighbour_dead(neighbour, XCCL_TROUBLE_CONTROL_UNKNOWN);
            return;
        }
    }
}

static void neighbour_read(struct neighbour *neighbour)
{
    if (neighbour->reading)
        return;
    neighbour->reading = 1;
    read_frames(neighbour);
    neighbour->reading = 0;
}

/* --- leaving --- */

/* The end of this side, with the loop's lock and comm still in place. */
static void neighbour_leave(struct neighbour *neighbour, const struct xccl_left *own)
{
    uint8_t body[XCCL_LEFT_BYTES];

    if (neighbour->conn)
        neighbour_read(neighbour); /* perhaps it has left before */
    if (neighbour->owed)
        send_notice(neighbour);
    if (neighbour->owed ||
        xccl_control_send(neighbour, FRAME_GOODBYE, body, xccl_left_encode(own, body)))
        xccl_log(XCCL_LOG_WARN, "rank %d leaves, and cannot tell rank %d so: %s",
                 neighbour->control->rank, neighbour->rank, xccl_error_text());
    neighbour->owed = 0;
    neighbour->told_word = own->calls.word;
    xccl_relay_begin(neighbour);
}

/* --- callbacks --- */

static void on_events(struct xccl_source *source, uint32_t events)
{
    struct neighbour *neighbour = source->owner;
    struct xccl_control *control = neighbour->control;

    xccl_log_set_rank(control->rank);
    if (!control->comm) {
        xccl_relay_on_events(neighbour, events);
        if (xccl_relay_free(control))
            xccl_service_put_later();
    } else {
        if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            neighbour_read(neighbour);
        if (neighbour->conn && (events & EPOLLOUT))
            xccl_control_flush(neighbour);
    }
    xccl_log_set_rank(-1);
}

static void send_heartbeat(struct neighbour *neighbour)
{
    uint8_t body[XCCL_HISTORY_BYTES];
    struct xccl_wire wire = xccl_wire_over(body, sizeof body);

    xccl_history_put_board(&wire, neighbour->control->comm->board, 0);
    (void)xccl_control_send(neighbour, FRAME_HEARTBEAT, body,
                            sizeof body); /* the next one may do */
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

    return now_ns >= heard_ns + SILENT_BEATS * beat_ns &&
           now_ns >= heard_ns + beats_allowed(neighbour) * beat_ns;
}

/* A process that was away itself (stopped, starved) first listens for a while before it judges. */
static void judge_silence(struct neighbour *neighbour, uint64_t now_ns)
{
    uint64_t beat_ns = neighbour->control->beat_ns, silent_ns;

    if (now_ns - neighbour->look_ns > beat_ns / 2)
        neighbour->heard_ns = now_ns;
    /* Relaxed: at worst one heartbeat is early in vain. */
    atomic_store_explicit(&neighbour->control->hurries, 0, memory_order_relaxed);
    neighbour_read(neighbour);
    (void)xccl_comm_look(neighbour->control->comm);
    if (!neighbour->conn || xccl_control_has_left(neighbour->control, neighbour->rank)) {
        xccl_loop_set_timer(&neighbour->source, XCCL_NEVER_NS);
        return;
    }
    if (is_silent(neighbour, now_ns)) {
        neighbour_silent(neighbour);
        return;
    }
    if (now_ns >= neighbour->due_ns) {
        neighbour->due_ns = now_ns + beat_ns;
        send_heartbeat(neighbour);
    }
    silent_ns = neighbour->heard_ns + SILENT_BEATS * beat_ns;
    neighbour->look_ns = silent_ns > now_ns && silent_ns < neighbour->due_ns ? silent_ns
                                                                             : neighbour->due_ns;
    xccl_loop_set_timer(&neighbour->source, neighbour->look_ns);
}

/* A heartbeat is due, or silence to be judged, or a notice that is owed. */
static void at_work_on_timer(struct neighbour *neighbour, uint64_t now_ns)
{
    uint64_t beat_ns = neighbour->control->beat_ns;

    if (beat_ns && now_ns >= neighbour->look_ns)
        judge_silence(neighbour, now_ns);
    else
        xccl_loop_set_timer(&neighbour->source, beat_ns ? neighbour->look_ns : XCCL_NEVER_NS);
    if (neighbour->conn && neighbour->owed)
        send_notice(neighbour);
}

static void on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct neighbour *neighbour = source->owner;
    struct xccl_control *control = neighbour->control;

    xccl_log_set_rank(control->rank);
    if (control->comm) {
        at_work_on_timer(neighbour, now_ns);
    } else {
        xccl_relay_on_timer(neighbour);
        if (xccl_relay_free(control))
            xccl_service_put_later();
    }
    xccl_log_set_rank(-1);
}

/* Notes the address of the other end while the connection is whole: a broken one has none. */
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

/* Fills in a neighbour before any of them is in the loop: callbacks look at both. */
static void neighbour_init(struct xccl_control *control, int index, int rank,
                           struct xccl_conn *conn)
{
    struct neighbour *neighbour = &control->neighbours[index];
    uint64_t now_ns = xccl_clock_ns();

    neighbour->conn = conn;
    neighbour->control = control;
    neighbour->rank = rank;
    neighbour->heard_ns = now_ns;
    neighbour->due_ns = neighbour->look_ns = now_ns + control->beat_ns;
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
    struct xccl_control *control = xccl_calloc(1, sizeof *control + (size_t)comm->nranks *
                                                                        sizeof control->left[0]);
    struct xccl_standstill *still = NULL;
    struct xccl_loop *loop;
    xcclResult_t rc = control ? xccl_standstill_create(comm, &still) : xcclSystemError;

    if (!rc && next) /* where memory is short, errors have to be told all the same */
        rc = xccl_conn_make_room(next, FRAME_BYTES);
    if (!rc && prev)
        rc = xccl_conn_make_room(prev, FRAME_BYTES);
    if (!rc)
        rc = xccl_service_get(&loop);
    if (rc) {
        xccl_conn_close(next);
        xccl_conn_close(prev);
        xccl_standstill_free(still);
        xccl_free(control);
        return rc;
    }
    control->comm = comm;
    control->loop = loop;
    control->rank = comm->rank;
    control->nranks = comm->nranks;
    control->asked = XCCL_NOBODY;
    control->on_broken = neighbour_broken;
    control->compare = xccl_comm_compare;
    control->beat_ns = (uint64_t)xccl_param_int(XCCL_P_HEARTBEAT_S) * XCCL_NS_PER_S;
    /* No callback before all is in place: they look for the control plane in comm. */
    xccl_loop_lock(loop);
    neighbour_init(control, 0, (comm->rank + 1) % comm->nranks, next);
    neighbour_init(control, 1, (comm->rank + comm->nranks - 1) % comm->nranks, prev);
    *control_out = control;
    comm->tell = tell_error;
    comm->still = still;
    comm->tell_still = tell_still;
    rc = watch_neighbours(control);
    if (rc) { /* the neighbours must not take it for a leave in order */
        (void)xccl_comm_fail_own(comm, rc, XCCL_TROUBLE_CANNOT_JOIN);
        *control_out = NULL;
        comm->tell = NULL;
        xccl_control_close(control, 0);
    }
    xccl_loop_unlock(loop);
    return rc;
}

void xccl_control_close(struct xccl_control *control, uint64_t last_seq)
{
    struct xccl_left own = {.has_calls = 1, .last_seq = last_seq};
    struct xccl_loop *loop;
    int gone;

    if (!control)
        return;
    loop = control->loop;
    xccl_loop_lock(loop);
    own.rank = control->rank;
    xccl_board_copy(control->comm->board, 0, &own.calls);
    xccl_relay_open(control);
    for (int i = 0; i < 2; i++)
        neighbour_leave(&control->neighbours[i], &own);
    xccl_standstill_free(control->comm->still);
    control->comm->still = NULL;
    control->comm = NULL;
    control->on_broken = xccl_control_close_neighbour;
    control->compare = NULL;
    xccl_control_hear_of_left(control, NULL, &own);
    xccl_relay_look(control);
    gone = xccl_relay_free(control);
    xccl_loop_unlock(loop);
    if (gone)
        xccl_service_put(); /* not the last one: the communicator has another */
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

void xccl_control_hurry(struct xccl_control *control)
{
    uint64_t soon_ns;

    /* Relaxed: see judge_silence(). */
    if (!control || !control->beat_ns ||
        atomic_load_explicit(&control->hurries, memory_order_relaxed))
        return;
    xccl_loop_lock(control->loop);
    atomic_store_explicit(&control->hurries, 1, memory_order_relaxed);
    soon_ns = xccl_clock_ns() + HURRY_MS * XCCL_NS_PER_MS;
    for (int i = 0; i < 2; i++) {
        struct neighbour *neighbour = &control->neighbours[i];

        if (!neighbour->conn || !neighbour->watched || neighbour->due_ns <= soon_ns)
            continue;
        neighbour->due_ns = soon_ns;
        if (neighbour->look_ns > soon_ns)
            neighbour->look_ns = soon_ns;
        xccl_loop_set_timer(&neighbour->source, neighbour->look_ns);
    }
    xccl_loop_unlock(control->loop);
}
