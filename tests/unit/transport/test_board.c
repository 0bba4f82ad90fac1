/* SPDX-License-Identifier: BSD-3-Clause */
/* The board line between two threads: an owner that goes from call to call as fast as it can, and a
 * reader that asks about every call. Whatever the reader is told must be true of that very call.
 * Two threads; clean under TSan. */
#include "transport/board.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
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

/* A board and a copy of it say the same of which calls were begun. */
XT_TEST(a_history_knows_what_was_begun_as_its_board_does)
{
    struct xccl_board *board = aligned_alloc(128, sizeof *board);
    struct xccl_board_history history;

    XT_CHECK(board);
    memset(board, 0, sizeof *board);
    xccl_board_copy(board, 0, &history);
    XT_CHECK_INT(xccl_history_begun(&history, 1ull << 32 | low_of(1)), XCCL_BEGUN_NO);
    for (uint64_t seq = 1; seq <= 40; seq++) {
        struct xccl_board_call call = {.seq = seq, .count = count_of(seq), .coll = 4};

        xccl_board_write(board, &call, low_of(seq));
    }
    xccl_board_copy(board, 0, &history);
    for (uint64_t seq = 40 - XCCL_HISTORY_LOWS + 1; seq <= 42; seq++)
        for (uint32_t other = 0; other < 2; other++) {
            uint64_t word = seq << 32 | (low_of(seq) + other);

            XT_CHECK_INT(xccl_history_begun(&history, word), xccl_board_begun(board, word));
        }
    XT_CHECK_INT(xccl_history_begun(&history, 3ull << 32 | low_of(3)), XCCL_BEGUN_UNKNOWN);
    free(board);
}

static void write_call(struct xccl_board *board, uint64_t seq, uint32_t low)
{
    struct xccl_board_call call = {.seq = seq, .count = seq};

    xccl_board_write(board, &call, low);
}

/* The owner was too late for calls 5 to 10; the other's 7 and 15 are its own. */
XT_TEST(calls_that_were_passed_over_differ_from_none)
{
    struct xccl_board *boards = aligned_alloc(128, 2 * sizeof *boards);
    struct xccl_board_history late, other;
    uint32_t seq = 0, low;
    int is_first;

    XT_CHECK(boards != NULL);
    memset(boards, 0, 2 * sizeof *boards);
    for (uint32_t i = 1; i <= 20; i++) {
        if (i < 5 || i > 10)
            write_call(&boards[0], i, low_of(i));
        if (i == 10)
            xccl_board_skip(&boards[0], i);
        write_call(&boards[1], i, low_of(i) ^ (i == 7 || i == 15));
        if (i != 14)
            continue;
        xccl_board_copy(&boards[0], 0, &late);
        xccl_board_copy(&boards[1], 0, &other);
        XT_CHECK(!xccl_history_differ(&late, &other, &seq, &is_first));
    }
    xccl_board_copy(&boards[0], 0, &late);
    xccl_board_copy(&boards[1], 0, &other);
    XT_CHECK(xccl_history_differ(&late, &other, &seq, &is_first));
    XT_CHECK_INT(seq, 15);
    XT_CHECK(!xccl_board_past(&boards[0], 7, &low));
    XT_CHECK_INT(xccl_board_begun(&boards[0], (uint64_t)7 << 32 | low_of(7)), XCCL_BEGUN_UNKNOWN);
    XT_CHECK_INT(xccl_board_begun(&boards[0], (uint64_t)12 << 32 | low_of(12)), XCCL_BEGUN_YES);
    free(boards);
}
