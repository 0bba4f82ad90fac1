/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's board in shared memory: which call it is in, and which calls it was in before. Written
 * at the start of every call by its owner with plain-cost stores, read by the others of the host
 * only when they have waited for a while, or make a call in which they need not hear of everybody.
 * It finds what slots cannot: two ranks that made different calls and so wait on different slots.
 *
 * word decides alone and is one store: sequence number << 32 | low half of the call's flag words.
 * past has the low halves of the calls before. told has what the calls were, for error texts: an
 * entry for each call that differs from the one before, behind a version that is odd while one is
 * being written. */
#ifndef XCCL_TRANSPORT_BOARD_H
#define XCCL_TRANSPORT_BOARD_H

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#include "verdict/board_call.h"

#define XCCL_BOARD_PAST 128u /* a power of two; xcclCommConnectAll makes 41 calls */
#define XCCL_BOARD_TOLD 64u /* likewise */

#define XCCL_HISTORY_LOWS 16u
#define XCCL_HISTORY_TOLD 8u

struct xccl_board_told {
    _Atomic uint64_t seq, count; /* seq: of the first such call; 0: not written yet */
    _Atomic uint32_t calls; /* collective (| SIZED) << 16 | type << 8 | operator */
    _Atomic uint32_t root; /* of a call with sizes: their hash */
};

struct xccl_board {
    alignas(128) _Atomic uint64_t word;
    _Atomic uint32_t outside; /* 1: between calls; 2: has left the communicator */
    _Atomic uint32_t splits; /* of the communicator, that its owner has begun */
    _Atomic uint32_t queued; /* calls that were given to its device, which has not begun them */
    _Atomic uint32_t talks; /* calls that only make links, of a device that writes the board, */
    _Atomic uint32_t
        linked; /* and those of them that have ended: the owner has opened all memory */
    _Atomic uint32_t version;
    _Atomic uint32_t told_count; /* entries of told that were ever written */
    /* Low halves of the last words, by sequence number: a call that asks nothing of a rank (count
     * 0) lets it go on before the others have looked at its word. 0: not known. */
    alignas(128) _Atomic uint32_t past[XCCL_BOARD_PAST];
    struct xccl_board_told told[XCCL_BOARD_TOLD];
};
static_assert(sizeof(struct xccl_board) == 2176, "one rank, its own lines");

/* Some calls of a rank one behind the other, as they were at one moment. */
struct xccl_board_history {
    uint64_t word; /* of the last of them; 0: no call yet, or it cannot be told just now */
    uint32_t newest; /* number of the last call of all */
    /* Low halves of the words of calls seq, seq - 1, ..., as many as seq has; 0: not known. */
    uint32_t lows[XCCL_HISTORY_LOWS];
    struct xccl_board_call told[XCCL_HISTORY_TOLD]; /* seq 0: none */
};

static inline void xccl_board_write(struct xccl_board *board, const struct xccl_board_call *call,
                                    uint32_t flag_low)
{
    uint32_t version = atomic_load_explicit(&board->version, memory_order_relaxed);
    uint32_t count = atomic_load_explicit(&board->told_count, memory_order_relaxed);
    struct xccl_board_told *told = &board->told[count % XCCL_BOARD_TOLD];

    atomic_store_explicit(&board->version, version + 1, memory_order_relaxed);
    /* Release fence and stores: a reader that sees a new field sees the odd version too. */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&told->seq, call->seq, memory_order_relaxed);
    atomic_store_explicit(&told->count, call->count, memory_order_relaxed);
    atomic_store_explicit(&told->calls, call->coll << 16 | call->type << 8 | call->op,
                          memory_order_relaxed);
    atomic_store_explicit(&told->root, call->root, memory_order_relaxed);
    atomic_store_explicit(&board->told_count, count + 1, memory_order_relaxed);
    atomic_store_explicit(&board->outside, 0, memory_order_relaxed);
    atomic_store_explicit(&board->past[call->seq % XCCL_BOARD_PAST], flag_low,
                          memory_order_relaxed);
    /* Release: fields before the even version, all before word. Pairs with xccl_board_told(). */
    atomic_store_explicit(&board->version, version + 2, memory_order_release);
    atomic_store_explicit(&board->word, call->seq << 32 | flag_low, memory_order_release);
}

/* Writes a call that equals the last one but for seq: what was told of that one stays true. */
static inline void xccl_board_write_again(struct xccl_board *board, uint64_t seq, uint32_t flag_low)
{
    /* Release fence and store to past: see xccl_board_past(). */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&board->outside, 0, memory_order_relaxed);
    atomic_store_explicit(&board->past[seq % XCCL_BOARD_PAST], flag_low, memory_order_relaxed);
    /* Release: all before it. Pairs with xccl_board_ahead(). */
    atomic_store_explicit(&board->word, seq << 32 | flag_low, memory_order_release);
}

/* How many calls the owner is past call seq, mod 2^32. */
static inline uint32_t xccl_board_ahead(const struct xccl_board *board, uint32_t seq)
{
    /* Acquire: pairs with xccl_board_write(). */
    return (uint32_t)(atomic_load_explicit(&board->word, memory_order_acquire) >> 32) - seq;
}

/* Says of the calls up to seq that they are not known: they came and went before the owner could
 * write them. Another call is written next. */
void xccl_board_skip(struct xccl_board *board, uint64_t seq);

/* The low half of the owner's word in call seq, when it is a few calls past that; 0: not known.
 * Past before the value is read: then its place has been written for call seq. It is written again
 * for call seq + PAST, after the word of the call before that one and a release fence: whoever has
 * seen the new value sees that word too afterwards, and does not trust the value. */
static inline int xccl_board_past(const struct xccl_board *board, uint32_t seq, uint32_t *low_out)
{
    if (xccl_board_ahead(board, seq) - 1 >= XCCL_BOARD_PAST - 2)
        return 0;
    *low_out = atomic_load_explicit(&board->past[seq % XCCL_BOARD_PAST], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    return *low_out && xccl_board_ahead(board, seq) - 1 < XCCL_BOARD_PAST - 2;
}

/* The owner's call number seq, which it has begun. 0: not known any more. */
int xccl_board_told(const struct xccl_board *board, uint32_t seq, struct xccl_board_call *call_out);
/* The call that the owner is in, or was in last; 0: there is none, or it changes too fast. */
int xccl_board_read(const struct xccl_board *board, struct xccl_board_call *call_out);

/* Has the owner begun a call with this word? Its board has the present call and some before it. */
enum xccl_begun { XCCL_BEGUN_UNKNOWN, XCCL_BEGUN_YES, XCCL_BEGUN_NO };
enum xccl_begun xccl_board_begun(const struct xccl_board *board, uint64_t word);

/* The newest calls, or if the owner is past call `until` (0: never mind) that one and those before.
 * word is 0 where the owner was too fast, or is too far. */
void xccl_board_copy(const struct xccl_board *board, uint32_t until,
                     struct xccl_board_history *history_out);
/* The history's word of call seq; 0: it has none. */
int xccl_history_low(const struct xccl_board_history *history, uint32_t seq, uint32_t *low_out);
enum xccl_begun xccl_history_begun(const struct xccl_board_history *history, uint64_t word);
int xccl_history_call(const struct xccl_board_history *history, uint32_t seq,
                      struct xccl_board_call *call_out);
/* The first call that both know and in which they differ; 0: there is none. is_first_out: 1: they
 * agree in the call before, or it was the first of all. */
int xccl_history_differ(const struct xccl_board_history *a, const struct xccl_board_history *b,
                        uint32_t *seq_out, int *is_first_out);

#endif
