/* SPDX-License-Identifier: BSD-3-Clause */
/* The board line between two threads: an owner that goes from call to call as fast as it can, and a
 * reader that asks about every call. Whatever the reader is told must be true of that very call.
 * Two threads; clean under TSan. */
#include "transport/board.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "xt.h"

#if defined(XCCL_SANITIZED)
#define CALLS 10000
#else
#define CALLS 100000
#endif

struct job {
    struct xccl_board board;
    _Atomic int over;
    uint64_t until_ms; /* no longer than that */
    _Atomic uint32_t asked; /* how often the reader has; the owner does not run away from it */
};

static uint64_t clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* The low half of call seq, and its count: any function will do. Some calls are like the one
 * before.
 */
static uint32_t low_of(uint64_t seq)
{
    return (uint32_t)(seq * 2654435761u) ^ 77u;
}

static uint64_t count_of(uint64_t seq)
{
    return (seq - seq % 3) * 3;
}

static void read_all(struct job *job)
{
    uint32_t at = 1, known = 0;

    while (!atomic_load_explicit(&job->over, memory_order_acquire)) {
        struct xccl_board_call call;
        uint64_t word = atomic_load_explicit(&job->board.word, memory_order_acquire);
        uint32_t low;

        if (word)
            XT_CHECK_INT((uint32_t)word, low_of(word >> 32));
        if (at && xccl_board_past(&job->board, at, &low)) { /* calls begin with 1 */
            XT_CHECK_INT(low, low_of(at));
            known++;
        }
        if (xccl_board_read(&job->board, &call) && call.seq)
            XT_CHECK_INT(call.count, count_of(call.seq));
        atomic_fetch_add_explicit(&job->asked, 1, memory_order_relaxed);
        /* On to a call that is near the owner's: before, at, or a little behind it. */
        at = (uint32_t)(word >> 32) + 1 - at % 9;
    }
    XT_CHECK(known > 0);
}

static void own_or_read(int thread, int nthreads, void *arg)
{
    struct job *job = arg;

    (void)nthreads;
    if (thread) {
        read_all(job);
        return;
    }
    /* Where other programs want the cores too, every hand-over takes a time slice: then fewer. */
    for (uint64_t seq = 1; seq <= CALLS && (seq < 1000 || clock_ms() < job->until_ms); seq++) {
        struct xccl_board_call call = {.seq = seq, .count = count_of(seq), .coll = 4};

        uint32_t asked = atomic_load_explicit(&job->asked, memory_order_relaxed);

        if (seq > 1 && count_of(seq) == count_of(seq - 1))
            xccl_board_write_again(&job->board, seq, low_of(seq));
        else
            xccl_board_write(&job->board, &call, low_of(seq));
        while (seq % 5 == 0 && atomic_load_explicit(&job->asked, memory_order_relaxed) == asked)
            sched_yield();
    }
    atomic_store_explicit(&job->over, 1, memory_order_release);
}

XT_TEST(what_a_board_tells_is_true_of_the_call_asked_for)
{
    struct job *job = aligned_alloc(128, sizeof *job);

    XT_CHECK(job);
    for (int round = 0; round < 10; round++) {
        memset(job, 0, sizeof *job);
        job->until_ms = clock_ms() + 1000;
        xt_threads_run(2, own_or_read, job);
    }
    free(job);
}
