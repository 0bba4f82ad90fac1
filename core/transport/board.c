/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading boards: what a rank called as which number, and where two ranks began to differ. Thread:
 * any; the owner of a board may write it meanwhile. */
#include "transport/board.h"

#include <string.h>

#define TRIES 1000

/* How far back call seq is from a number that is the same or larger, else a very large one. */
static uint32_t back(uint64_t from, uint32_t seq)
{
    return from ? seq - (uint32_t)from : UINT32_MAX;
}

void xccl_board_skip(struct xccl_board *board, uint64_t seq)
{
    uint32_t last = (uint32_t)(atomic_load_explicit(&board->word, memory_order_relaxed) >> 32);
    uint32_t count = (uint32_t)seq - last;

    /* Release fence and stores to past: see xccl_board_past(). */
    atomic_thread_fence(memory_order_release);
    for (uint32_t i = 0; i < count && i < XCCL_BOARD_PAST; i++)
        atomic_store_explicit(&board->past[((uint32_t)seq - i) % XCCL_BOARD_PAST], 0,
                              memory_order_relaxed);
}

static struct xccl_board_call entry_of(const struct xccl_board *board, uint32_t at)
{
    const struct xccl_board_told *told = &board->told[at % XCCL_BOARD_TOLD];
    uint32_t calls = atomic_load_explicit(&told->calls, memory_order_relaxed);

    return (struct xccl_board_call){
        .seq = atomic_load_explicit(&told->seq, memory_order_relaxed),
        .count = atomic_load_explicit(&told->count, memory_order_relaxed),
        .coll = calls >> 16,
        .type = calls >> 8 & 255,
        .op = calls & 255,
        .root = atomic_load_explicit(&told->root, memory_order_relaxed)};
}

/* Picks, of so many calls, the one that began last before seq, with that number. */
static int pick(const struct xccl_board_call *calls, uint32_t count, uint32_t seq,
                struct xccl_board_call *call_out)
{
    const struct xccl_board_call *best = NULL;

    for (uint32_t i = 0; i < count; i++)
        if ((int32_t)back(calls[i].seq, seq) >= 0 &&
            (!best || back(calls[i].seq, seq) < back(best->seq, seq)))
            best = &calls[i];
    if (!best)
        return 0;
    *call_out = *best;
    call_out->seq += back(best->seq, seq);
    return 1;
}

/* All that is told, newest first; 0: the owner was writing all along. */
static int read_told(const struct xccl_board *board, struct xccl_board_call *calls_out)
{
    for (int tries = 0; tries < TRIES; tries++) {
        /* Acquire: fields after the version. Pairs with xccl_board_write(). */
        uint32_t before = atomic_load_explicit(&board->version, memory_order_acquire);
        uint32_t count = atomic_load_explicit(&board->told_count, memory_order_relaxed);

        for (uint32_t i = 0; i < XCCL_BOARD_TOLD; i++)
            calls_out[i] = entry_of(board, count - 1 - i);
        atomic_thread_fence(memory_order_acquire);
        if (!(before & 1) && before == atomic_load_explicit(&board->version, memory_order_relaxed))
            return 1;
    }
    return 0;
}

int xccl_board_told(const struct xccl_board *board, uint32_t seq, struct xccl_board_call *call_out)
{
    struct xccl_board_call calls[XCCL_BOARD_TOLD];

    return read_told(board, calls) && pick(calls, XCCL_BOARD_TOLD, seq, call_out);
}

int xccl_board_read(const struct xccl_board *board, struct xccl_board_call *call_out)
{
    /* Acquire: what was told of it. Pairs with xccl_board_write(). */
    uint64_t word = atomic_load_explicit(&board->word, memory_order_acquire);

    return word && xccl_board_told(board, (uint32_t)(word >> 32), call_out);
}

enum xccl_begun xccl_board_begun(const struct xccl_board *board, uint64_t word)
{
    /* Acquire: pairs with xccl_board_write(). */
    uint64_t own = atomic_load_explicit(&board->word, memory_order_acquire);
    uint32_t seq = (uint32_t)(word >> 32), low;

    if (own == word)
        return XCCL_BEGUN_YES;
    if ((int32_t)((uint32_t)(own >> 32) - seq) <= 0) /* in another one of that number, or before */
        return XCCL_BEGUN_NO;
    if (!xccl_board_past(board, seq, &low))
        return XCCL_BEGUN_UNKNOWN;
    return low == (uint32_t)word ? XCCL_BEGUN_YES : XCCL_BEGUN_NO;
}

/* The low halves of the calls up to one; 0: the owner has gone on too far meanwhile. */
static int copy_lows(const struct xccl_board *board, uint32_t until,
                     struct xccl_board_history *history)
{
    /* Acquire: past. Pairs with xccl_board_write(). */
    uint64_t word = atomic_load_explicit(&board->word, memory_order_acquire);
    uint32_t seq = (uint32_t)(word >> 32);

    history->newest = seq;
    if (until && (int32_t)(seq - until) > 0)
        seq = until;
    for (uint32_t i = 0; i < XCCL_HISTORY_LOWS; i++)
        history->lows[i] = atomic_load_explicit(&board->past[(seq - i) % XCCL_BOARD_PAST],
                                                memory_order_relaxed);
    if (seq == history->newest)
        history->lows[0] = (uint32_t)word;
    history->word = (uint64_t)seq << 32 | history->lows[0];
    atomic_thread_fence(memory_order_acquire);
    return xccl_board_ahead(board, seq) < XCCL_BOARD_PAST - 1 - XCCL_HISTORY_LOWS;
}

/* Copies the calls up to number seq, newest first. */
static void copy_told(const struct xccl_board_call *calls, uint32_t seq,
                      struct xccl_board_history *history)
{
    uint32_t used = 0;

    memset(history->told, 0, sizeof history->told);
    for (uint32_t i = 0; i < XCCL_BOARD_TOLD && used < XCCL_HISTORY_TOLD; i++)
        if (calls[i].seq && (int32_t)back(calls[i].seq, seq) >= 0)
            history->told[used++] = calls[i];
}

void xccl_board_copy(const struct xccl_board *board, uint32_t until,
                     struct xccl_board_history *history_out)
{
    struct xccl_board_call calls[XCCL_BOARD_TOLD];

    for (int tries = 0; tries < TRIES; tries++)
        if (copy_lows(board, until, history_out) && read_told(board, calls)) {
            copy_told(calls, (uint32_t)(history_out->word >> 32), history_out);
            return;
        }
    *history_out = (struct xccl_board_history){0};
}

int xccl_history_low(const struct xccl_board_history *history, uint32_t seq, uint32_t *low_out)
{
    uint32_t behind = (uint32_t)(history->word >> 32) - seq;

    if (!history->word || !seq || behind >= XCCL_HISTORY_LOWS)
        return 0;
    *low_out = history->lows[behind];
    return 1;
}

enum xccl_begun xccl_history_begun(const struct xccl_board_history *history, uint64_t word)
{
    uint32_t seq = (uint32_t)(word >> 32), low;

    if ((int32_t)(history->newest - seq) < 0)
        return XCCL_BEGUN_NO;
    if (!xccl_history_low(history, seq, &low) || !low)
        return XCCL_BEGUN_UNKNOWN;
    return low == (uint32_t)word ? XCCL_BEGUN_YES : XCCL_BEGUN_NO;
}

int xccl_history_call(const struct xccl_board_history *history, uint32_t seq,
                      struct xccl_board_call *call_out)
{
    return pick(history->told, XCCL_HISTORY_TOLD, seq, call_out);
}

int xccl_history_differ(const struct xccl_board_history *a, const struct xccl_board_history *b,
                        uint32_t *seq_out, int *is_first_out)
{
    uint32_t newest = (uint32_t)(a->word >> 32), other = (uint32_t)(b->word >> 32), low_a, low_b;
    int differs = 0;

    if ((int32_t)(other - newest) < 0)
        newest = other;
    *is_first_out = 0;
    for (uint32_t i = 0; i < XCCL_HISTORY_LOWS; i++) {
        uint32_t seq = newest - i;

        if (!xccl_history_low(a, seq, &low_a) || !xccl_history_low(b, seq, &low_b)) {
            *is_first_out = seq == 0;
            break;
        }
        *is_first_out = low_a && low_a == low_b;
        if (*is_first_out && differs)
            break;
        if (!low_a || !low_b || low_a == low_b)
            continue;
        differs = 1;
        *seq_out = seq;
    }
    return differs;
}
