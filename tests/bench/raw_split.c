/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages the way of NCCL's socket transport: a connection for sizes, N for data; a message is cut
 * into equal parts, one a connection and at least 64 KiB each, and helper threads move the parts of
 * their connections while the caller asks whether they are through. Sizes have 64 bits here.
 *
 * With --poll helpers ask their sockets all the time while there is a message, as NCCL's do, and
 * the caller offers its core between two looks. Without it both sleep.
 *
 * Limits: one direction. Thread: the caller's is the side's first; a connection belongs to the
 * helper with its number modulo the number of helpers. */
#include "raw_sockets.h"

#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define PART_LOW (UINT64_C(64) << 10)
#define SLEEP_MS 1000

struct work {
    struct raw_side *side;
    uint64_t parts, part_bytes; /* of a message */
    pthread_mutex_t lock; /* of posted, and for those who sleep */
    pthread_cond_t posted_more, done_more;
    /* Written under the lock. The release pairs with the acquire of a helper that looks first. */
    _Atomic uint64_t posted;
};

struct helper {
    struct work *work;
    pthread_t thread;
    int number;
    _Atomic uint64_t done; /* messages. Release here, acquire in the caller. */
};

/* A part of a message on its way. */
struct part {
    int fd;
    uint64_t at, left;
};

/* ---- helpers ---- */

static void wait_posted(struct work *work, uint64_t number)
{
    /* Pairs with post(). */
    if (atomic_load_explicit(&work->posted, memory_order_acquire) > number)
        return;
    pthread_mutex_lock(&work->lock);
    /* Relaxed: under the lock. */
    while (atomic_load_explicit(&work->posted, memory_order_relaxed) <= number)
        pthread_cond_wait(&work->posted_more, &work->lock);
    pthread_mutex_unlock(&work->lock);
}

static void rest(const struct work *work, const struct part *parts, int count)
{
    struct pollfd fds[RAW_STREAMS];
    nfds_t open = 0;

    if (work->side->options->poll)
        return;
    for (int i = 0; i < count; i++) {
        if (parts[i].left)
            fds[open++] = (struct pollfd){.fd = parts[i].fd,
                                          .events = work->side->number ? POLLIN : POLLOUT};
    }
    poll(fds, open, SLEEP_MS);
}

/* The helper's parts of a message: those whose connection is its own. */
static int find_parts(const struct helper *helper, uint64_t number, struct part *parts_out)
{
    const struct work *work = helper->work;
    const struct raw_options *options = work->side->options;
    int count = 0;

    for (uint64_t i = 0; i < work->parts; i++) {
        uint64_t stream = (number * work->parts + i) % (uint64_t)options->streams;
        uint64_t at = i * work->part_bytes, left = options->bytes - at;

        if ((int)(stream % (uint64_t)options->threads) != helper->number)
            continue;
        parts_out[count++] = (struct part){.fd = work->side->fds[1 + stream],
                                           .at = at,
                                           .left = left < work->part_bytes ? left
                                                                           : work->part_bytes};
    }
    return count;
}

static char *slot(const struct raw_side *side, uint64_t number)
{
    return side->room + number % (uint64_t)side->options->window * side->options->bytes;
}

static void move_parts(const struct work *work, uint64_t number, struct part *parts, int count)
{
    const struct raw_side *side = work->side;

    for (int open = count; open;) {
        uint64_t moved_all = 0;

        open = 0;
        for (int i = 0; i < count; i++) {
            struct part *part = &parts[i];
            uint64_t moved = 0;

            if (part->left && side->number == 0)
                moved = raw_send_some(part->fd, raw_message(side, number) + part->at, part->left,
                                      MSG_DONTWAIT);
            else if (part->left)
                moved = raw_recv_some(part->fd, slot(side, number) + part->at, part->left,
                                      MSG_DONTWAIT);
            part->at += moved;
            part->left -= moved;
            moved_all += moved;
            open += part->left > 0;
        }
        if (open && !moved_all)
            rest(work, parts, count);
    }
}

static void *helper_main(void *helper_)
{
    struct helper *helper = helper_;
    struct work *work = helper->work;
    int sleeps = !work->side->options->poll;

    for (uint64_t number = 0; number < work->side->shared->iters; number++) {
        struct part parts[RAW_STREAMS];

        wait_posted(work, number);
        move_parts(work, number, parts, find_parts(helper, number, parts));
        if (sleeps)
            pthread_mutex_lock(&work->lock);
        /* Pairs with wait_done(): the message's bytes are in place. */
        atomic_store_explicit(&helper->done, number + 1, memory_order_release);
        if (sleeps) {
            pthread_cond_signal(&work->done_more);
            pthread_mutex_unlock(&work->lock);
        }
    }
    return NULL;
}

/* ---- the caller ---- */

static uint64_t least_done(struct helper *helpers, int count)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < count; i++) {
        /* Pairs with helper_main(). */
        uint64_t done = atomic_load_explicit(&helpers[i].done, memory_order_acquire);

        least = done < least ? done : least;
    }
    return least;
}

static void wait_done(struct work *work, struct helper *helpers, uint64_t wanted)
{
    int threads = (int)work->side->options->threads;

    if (work->side->options->poll) {
        while (least_done(helpers, threads) < wanted)
            sched_yield();
        return;
    }
    pthread_mutex_lock(&work->lock);
    while (least_done(helpers, threads) < wanted)
        pthread_cond_wait(&work->done_more, &work->lock);
    pthread_mutex_unlock(&work->lock);
}

static void post(struct work *work, uint64_t count)
{
    pthread_mutex_lock(&work->lock);
    /* Pairs with wait_posted(). */
    atomic_store_explicit(&work->posted, count, memory_order_release);
    pthread_cond_broadcast(&work->posted_more);
    pthread_mutex_unlock(&work->lock);
}

/* Sizes go before the data, in the order of the messages. */
static void exchange_size(const struct raw_side *side)
{
    uint64_t bytes = side->options->bytes, got = 0, at = 0;

    if (side->number == 0) {
        raw_send_all(side->fds[0], (const char *)&bytes, sizeof(bytes));
        return;
    }
    while (at < sizeof(got)) {
        uint64_t moved = raw_recv_some(side->fds[0], (char *)&got + at, sizeof(got) - at,
                                       side->options->poll ? MSG_DONTWAIT : 0);

        if (!moved && side->options->poll)
            sched_yield();
        at += moved;
    }
    if (got != bytes)
        raw_die("a message of %llu bytes, %llu were posted", (unsigned long long)got,
                (unsigned long long)bytes);
}

void raw_split(struct raw_side *side)
{
    const struct raw_options *options = side->options;
    struct helper helpers[RAW_THREADS];
    uint64_t iters = side->shared->iters, window = (uint64_t)options->window;
    struct work work = {.side = side,
                        .part_bytes = (options->bytes + (uint64_t)options->streams - 1) /
                                      (uint64_t)options->streams,
                        .lock = PTHREAD_MUTEX_INITIALIZER,
                        .posted_more = PTHREAD_COND_INITIALIZER,
                        .done_more = PTHREAD_COND_INITIALIZER};

    if (work.part_bytes < PART_LOW)
        work.part_bytes = PART_LOW;
    work.parts = (options->bytes + work.part_bytes - 1) / work.part_bytes;
    memset(helpers, 0, sizeof(helpers));
    for (int i = 0; i < options->threads; i++) {
        helpers[i].work = &work;
        helpers[i].number = i;
        if (pthread_create(&helpers[i].thread, NULL, helper_main, &helpers[i]))
            raw_die("no thread");
    }
    for (uint64_t number = 0; number < iters; number++) {
        if (number >= window)
            wait_done(&work, helpers, number - window + 1);
        exchange_size(side);
        post(&work, number + 1);
    }
    for (int i = 0; i < options->threads; i++)
        pthread_join(helpers[i].thread, NULL);
}

void raw_split_check(struct raw_side *side)
{
    uint64_t last = side->shared->iters - 1;

    if (side->number == 1)
        raw_expect(side, slot(side, last), last);
}
