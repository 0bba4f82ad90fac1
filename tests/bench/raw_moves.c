/* SPDX-License-Identifier: BSD-3-Clause */
/* The blaster and the ping-pong of raw_sockets.
 *
 * Blaster: each stream carries messages one behind the other, without headers, from a pattern to a
 * ring of slots. A thread moves its streams in turns. With one stream and no --poll it blocks in
 * the calls, with several it sleeps in poll() when nothing moves, and with --poll it asks on.
 *
 * Thread: a lane belongs to one. */
#include "raw_sockets.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SPINS    100
#define SLEEP_MS 1000

/* One stream, seen from one side. */
struct lane {
    int fd, sends;
    uint64_t number, at; /* the message, and how much of it is through */
    uint64_t end; /* messages of this round */
    char *slots;
};

struct mover {
    const struct raw_side *side;
    pthread_t thread;
    struct lane *lanes[2 * RAW_STREAMS];
    int count;
    int turns; /* in vain */
};

/* ---- calls ---- */

static int not_now(const char *what)
{
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        raw_die("%s: %s", what, strerror(errno));
    return 0;
}

uint64_t raw_send_some(int fd, const char *data, uint64_t bytes, int flags)
{
    ssize_t moved = send(fd, data, bytes, flags | MSG_NOSIGNAL);

    return moved < 0 ? (uint64_t)not_now("send") : (uint64_t)moved;
}

uint64_t raw_recv_some(int fd, char *data, uint64_t bytes, int flags)
{
    ssize_t moved = recv(fd, data, bytes, flags);

    if (moved == 0 && bytes > 0)
        raw_die("the other side has gone");
    return moved < 0 ? (uint64_t)not_now("recv") : (uint64_t)moved;
}

void raw_send_all(int fd, const char *data, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;)
        at += raw_send_some(fd, data + at, bytes - at, 0);
}

void raw_recv_all(int fd, char *data, uint64_t bytes, int poll)
{
    for (uint64_t at = 0; at < bytes;)
        at += raw_recv_some(fd, data + at, bytes - at, poll ? MSG_DONTWAIT : 0);
}

/* ---- blaster ---- */

static char *lane_slot(const struct raw_side *side, const struct lane *lane, uint64_t number)
{
    return lane->slots + number % (uint64_t)side->options->window * side->options->bytes;
}

/* One call. Returns the bytes that moved. */
static uint64_t lane_step(const struct raw_side *side, struct lane *lane, int flags)
{
    uint64_t bytes = side->options->bytes - lane->at, moved = 0;

    if (bytes > side->call_bytes)
        bytes = side->call_bytes;
    if (lane->sends)
        moved = raw_send_some(lane->fd, raw_message(side, lane->number) + lane->at, bytes, flags);
    else
        moved = raw_recv_some(lane->fd, lane_slot(side, lane, lane->number) + lane->at, bytes,
                              flags);
    lane->at += moved;
    if (lane->at == side->options->bytes) {
        lane->at = 0;
        lane->number++;
    }
    return moved;
}

/* After a turn in vain. */
static void rest(struct mover *mover)
{
    struct pollfd fds[2 * RAW_STREAMS];
    nfds_t count = 0;

    if (mover->side->options->poll) {
        if (++mover->turns > SPINS)
            sched_yield();
        return;
    }
    for (int i = 0; i < mover->count; i++) {
        const struct lane *lane = mover->lanes[i];

        if (lane->number < lane->end)
            fds[count++] = (struct pollfd){.fd = lane->fd,
                                           .events = lane->sends ? POLLOUT : POLLIN};
    }
    poll(fds, count, SLEEP_MS);
}

static void *mover_main(void *mover_)
{
    struct mover *mover = mover_;
    int flags = mover->count == 1 && !mover->side->options->poll ? 0 : MSG_DONTWAIT;

    for (int open = 1; open;) {
        uint64_t moved = 0;

        open = 0;
        for (int i = 0; i < mover->count; i++) {
            struct lane *lane = mover->lanes[i];

            if (lane->number == lane->end)
                continue;
            open = 1;
            moved += lane_step(mover->side, lane, flags);
        }
        if (moved)
            mover->turns = 0;
        else if (open)
            rest(mover);
    }
    return NULL;
}

static void lanes_init(struct raw_side *side, struct lane *lanes)
{
    const struct raw_options *options = side->options;
    uint64_t slots_bytes = (uint64_t)options->window * options->bytes;
    uint64_t incoming = 0;

    for (int i = 0; i < side->fd_count; i++) {
        /* The second half of the connections has data in the other direction. */
        int sends = (i < options->streams) == (side->number == 0);

        lanes[i] = (struct lane){.fd = side->fds[i], .sends = sends, .end = side->shared->iters};
        if (!sends)
            lanes[i].slots = side->room + incoming++ * slots_bytes;
    }
}

void raw_blast(struct raw_side *side)
{
    struct lane lanes[2 * RAW_STREAMS];
    struct mover movers[RAW_THREADS];
    int threads = (int)side->options->threads;

    lanes_init(side, lanes);
    memset(movers, 0, sizeof(movers));
    for (int i = 0; i < side->fd_count; i++) {
        struct mover *mover = &movers[i % threads];

        mover->side = side;
        mover->lanes[mover->count++] = &lanes[i];
    }
    for (int i = 1; i < threads && movers[i].count; i++) {
        if (pthread_create(&movers[i].thread, NULL, mover_main, &movers[i]))
            raw_die("no thread");
    }
    mover_main(&movers[0]);
    for (int i = 1; i < threads && movers[i].count; i++)
        pthread_join(movers[i].thread, NULL);
}

void raw_blast_check(struct raw_side *side)
{
    struct lane lanes[2 * RAW_STREAMS];

    lanes_init(side, lanes);
    for (int i = 0; i < side->fd_count; i++) {
        if (!lanes[i].sends)
            raw_expect(side, lane_slot(side, &lanes[i], lanes[i].end - 1), lanes[i].end - 1);
    }
}

/* ---- ping-pong ---- */

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

static void ask(struct raw_side *side, struct raw_result *result)
{
    const struct raw_options *options = side->options;
    uint64_t iters = side->shared->iters, every = (iters + RAW_SAMPLES - 1) / RAW_SAMPLES;
    uint64_t last_ns = raw_now_ns(), now_ns = 0;
    int back = side->fds[side->fd_count - 1];
    size_t count = 0;

    for (uint64_t i = 0; i < iters; i++) {
        raw_send_all(side->fds[0], raw_message(side, i), options->bytes);
        raw_recv_all(back, side->room, options->bytes, options->poll);
        now_ns = raw_now_ns();
        if (i % every == 0)
            side->samples[count++] = (double)(now_ns - last_ns) / 2000.0;
        last_ns = now_ns;
    }
    qsort(side->samples, count, sizeof(*side->samples), by_size);
    result->p50_us = side->samples[count / 2];
    result->p99_us = side->samples[count - 1 - count / 100];
}

void raw_pingpong(struct raw_side *side, struct raw_result *result)
{
    const struct raw_options *options = side->options;
    uint64_t iters = side->shared->iters;

    if (side->number == 0) {
        ask(side, result);
        raw_expect(side, side->room, iters - 1);
        return;
    }
    for (uint64_t i = 0; i < iters; i++) {
        raw_recv_all(side->fds[0], side->room, options->bytes, options->poll);
        raw_send_all(side->fds[side->fd_count - 1], raw_message(side, i), options->bytes);
    }
    raw_expect(side, side->room, iters - 1);
}
