/* SPDX-License-Identifier: BSD-3-Clause */
/* The control plane of a rank that has left. Ranks that stay may have nobody but ranks that left
 * beside them on the ring, so for a while it goes on: it answers what this rank called, and passes
 * on who has left, questions, answers, circles and the first error.
 *
 *   RELAYING  until all ranks have left, an error has passed, a connection has ended, or RELAY_MS
 *      |      after this rank has left
 *   LINGERING FINAL is said, what comes is dropped; until the neighbour's FINAL or end, or RELAY_MS
 *             after this rank has left, LINGER_MS if it does not relay
 *
 * A process that exits waits for the end of RELAYING: programs often end right after they have
 * destroyed their communicators.
 *
 * There is no communicator any more: nothing is judged. Thread: the service thread, but open and
 * begin: the one that leaves; with the loop's lock. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "base/alloc.h"
#include "base/fork.h"
#include "comm/comm_where.h"
#include "watch/control_int.h"

#define RELAY_MS  1200 /* how late others may come */
#define LINGER_MS 800
#define EXIT_MS   800
#define RANKS_MIN 4 /* of three ranks all are neighbours */

static _Atomic int relays_now; /* control planes of this process that relay */

/* A child of fork() has no service thread, which would come to an end of them. */
static void forget(void)
{
    atomic_store_explicit(&relays_now, 0, memory_order_relaxed);
}

static struct xccl_lock child_lock = XCCL_LOCK(forget);

static void at_exit(void)
{
    const struct timespec nap = {.tv_nsec = XCCL_NS_PER_MS};

    for (int ms = 0; ms < EXIT_MS; ms++) {
        /* Relaxed: it is only a number. */
        if (atomic_load_explicit(&relays_now, memory_order_relaxed) == 0)
            return;
        nanosleep(&nap, NULL);
    }
}

static void watch_exit(void)
{
    (void)atexit(at_exit);
}

/* Decides whether others may need this rank after it has left. Beyond the ranks that say for whom
 * they wait that is only where one may need to hear of another one's calls. */
static int is_needed(const struct xccl_control *control)
{
    struct xcclComm *comm = control->comm;

    if (control->nranks < RANKS_MIN || xccl_comm_error(comm))
        return 0;
    return comm->still || (comm->ends_early && xccl_comm_any_remote(comm));
}

/* Writes what is left of the goodbye, then shuts the sending side. */
static xcclResult_t finish(struct neighbour *neighbour)
{
    int pending = 0;
    xcclResult_t rc = xccl_conn_finish(neighbour->conn, &pending);

    neighbour->is_shut = 1;
    if (!rc)
        rc = xccl_loop_set_events(&neighbour->source, pending ? EPOLLIN | EPOLLOUT : EPOLLIN);
    return rc;
}

void xccl_relay_open(struct xccl_control *control)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    control->relays = is_needed(control);
    if (!control->relays)
        return;
    xccl_lock_list(&child_lock);
    pthread_once(&once, watch_exit);
    atomic_fetch_add_explicit(&relays_now, 1, memory_order_relaxed);
}

void xccl_relay_begin(struct neighbour *neighbour)
{
    uint64_t ms = neighbour->control->relays ? RELAY_MS : LINGER_MS;

    neighbour->is_shut = !neighbour->control->relays;
    if (!neighbour->conn)
        return;
    if (!neighbour->watched || (neighbour->is_shut && finish(neighbour)))
        xccl_control_close_neighbour(neighbour);
    else
        xccl_loop_set_timer(&neighbour->source, xccl_clock_ns() + ms * XCCL_NS_PER_MS);
}

void xccl_relay_look(struct xccl_control *control)
{
    struct neighbour *both = control->neighbours;

    if (!control->relays)
        return;
    /* Relaxed: the loop's lock is held. */
    if (atomic_load_explicit(&control->left_count, memory_order_relaxed) < control->nranks &&
        !control->notice_bytes && both[0].conn && both[1].conn)
        return;
    control->relays = 0;
    atomic_fetch_sub_explicit(&relays_now, 1, memory_order_relaxed);
    for (int i = 0; i < 2; i++)
        if (both[i].conn && finish(&both[i]))
            xccl_control_close_neighbour(&both[i]);
}

void xccl_relay_on_timer(struct neighbour *neighbour)
{
    xccl_control_close_neighbour(neighbour);
    xccl_relay_look(neighbour->control);
}

/* Passes the first error on. */
static int relay_notice(struct neighbour *from, const uint8_t *body, size_t bytes)
{
    struct xccl_control *control = from->control;
    struct xccl_notice notice;

    if (!xccl_notice_decode(body, bytes, control->nranks, &notice))
        return 0;
    if (control->notice_bytes)
        return 1;
    control->notice_bytes = xccl_notice_encode(&notice, control->notice);
    for (int i = 0; i < 2; i++)
        (void)xccl_control_send(&control->neighbours[i], FRAME_NOTICE, control->notice,
                                control->notice_bytes);
    return 1;
}

/* Passes on where a rank stands, until it is back. */
static int relay_still(struct xccl_control *control, uint8_t *body, size_t bytes)
{
    int rank = xccl_standstill_rank_of(body, bytes, control->nranks);

    if (rank == XCCL_NOBODY)
        return 0;
    if (rank != control->rank)
        (void)xccl_control_send(&control->neighbours[0], FRAME_STILL, body, bytes);
    return 1;
}

static int relay_frame(struct neighbour *neighbour, uint16_t type, uint8_t *body, size_t bytes)
{
    switch (type) {
    case FRAME_NOTICE:
        return relay_notice(neighbour, body, bytes);
    case FRAME_ASK:
    case FRAME_ANSWER:
        return xccl_control_take_asking(neighbour, type, body, bytes);
    case FRAME_STILL:
        return relay_still(neighbour->control, body, bytes);
    case FRAME_GOODBYE:
        return xccl_control_take_goodbye(neighbour, body, bytes);
    case FRAME_LEFT:
        return xccl_control_take_left(neighbour, body, bytes);
    default:
        return 1; /* signs of life */
    }
}

/* Takes what comes, until the end. */
static void take(struct neighbour *neighbour)
{
    struct xccl_control *control = neighbour->control;
    uint8_t body[FRAME_BYTES];
    size_t bytes = 0;
    uint16_t type = 0;
    int got = 1, final = 0;

    neighbour->reading = 1;
    while (got && !final) {
        if (xccl_conn_take(neighbour->conn, &type, body, sizeof body, &bytes, &got, &final) ||
            (got && control->relays && !relay_frame(neighbour, type, body, bytes)))
            final = 1;
    }
    neighbour->reading = 0;
    if (final)
        xccl_control_close_neighbour(neighbour);
}

void xccl_relay_on_events(struct neighbour *neighbour, uint32_t events)
{
    struct xccl_control *control = neighbour->control;

    if ((events & EPOLLOUT) && neighbour->is_shut) {
        if (finish(neighbour))
            xccl_control_close_neighbour(neighbour);
    } else if (events & EPOLLOUT) {
        xccl_control_flush(neighbour);
    }
    if (neighbour->conn)
        take(neighbour);
    xccl_relay_look(control);
}

int xccl_relay_free(struct xccl_control *control)
{
    if (control->comm || control->neighbours[0].conn || control->neighbours[1].conn)
        return 0;
    xccl_free(control);
    return 1;
}
