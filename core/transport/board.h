/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's board line in shared memory: which call it is in. Written at the start of every call by
 * its owner with plain-cost stores, read by the others of the host only when they have waited for a
 * while. It finds what slots cannot: two ranks that made different calls and so wait on different
 * slots.
 *
 * word decides alone and is one store: sequence number << 32 | low half of the call's flag words.
 * The rest, for error texts, lies behind a version that is odd while it is being written. */
#ifndef XCCL_TRANSPORT_BOARD_H
#define XCCL_TRANSPORT_BOARD_H

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#define XCCL_BOARD_PAST  8u /* a power of two */
#define XCCL_BOARD_SIZED 0x80u /* beside the collective: blocks have sizes of their own */

struct xccl_board {
    alignas(128) _Atomic uint64_t word;
    _Atomic uint32_t version;
    _Atomic uint32_t calls; /* collective (| SIZED) << 16 | type << 8 | operator */
    _Atomic uint64_t seq, count;
    _Atomic uint32_t outside; /* 1: between calls; 2: has left the communicator */
    /* Low halves of the last words, by sequence number: a call that asks nothing of a rank (count
     * 0) lets it go on before the others have looked at its word. */
    _Atomic uint32_t past[XCCL_BOARD_PAST];
    _Atomic uint32_t root; /* of a call with sizes: their hash */
    _Atomic uint32_t splits; /* of the communicator, that its owner has begun */
};
static_assert(sizeof(struct xccl_board) == 128, "one rank, one pair of lines");

/* What a rank calls, as its board tells it. */
struct xccl_board_call {
    uint64_t seq, count;
    uint32_t coll, type, op, root;
};

static inline void xccl_board_write(struct xccl_board *board, const struct xccl_board_call *call,
                                    uint32_t flag_low)
{
    uint32_t version = atomic_load_explicit(&board->version, memory_order_relaxed);

    atomic_store_explicit(&board->version, version + 1, memory_order_relaxed);
    /* Release fence and stores: a reader that sees a new field sees the odd version too. */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&board->seq, call->seq, memory_order_relaxed);
    atomic_store_explicit(&board->count, call->count, memory_order_relaxed);
    atomic_store_explicit(&board->calls, call->coll << 16 | call->type << 8 | call->op,
                          memory_order_relaxed);
    atomic_store_explicit(&board->root, call->root, memory_order_relaxed);
    atomic_store_explicit(&board->outside, 0, memory_order_relaxed);
    atomic_store_explicit(&board->past[call->seq % XCCL_BOARD_PAST], flag_low,
                          memory_order_relaxed);
    /* Release: fields before the even version, all before word. Pairs with xccl_board_read(). */
    atomic_store_explicit(&board->version, version + 2, memory_order_release);
    atomic_store_explicit(&board->word, call->seq << 32 | flag_low, memory_order_release);
}

/* Writes a call that equals the last one but for seq: the fields behind the version stay true. */
static inline void xccl_board_write_again(struct xccl_board *board, uint64_t seq, uint32_t flag_low)
{
    /* Release fence and store to past: see xccl_board_past(). */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&board->seq, seq, memory_order_relaxed);
    atomic_store_explicit(&board->outside, 0, memory_order_relaxed);
    atomic_store_explicit(&board->past[seq % XCCL_BOARD_PAST], flag_low, memory_order_relaxed);
    /* Release: all before it. Pairs with xccl_board_read(). */
    atomic_store_explicit(&board->word, seq << 32 | flag_low, memory_order_release);
}

/* 1 with a consistent copy; 0 when the owner was writing all along. */
static inline int xccl_board_read(const struct xccl_board *board, struct xccl_board_call *call_out)
{
    for (int tries = 0; tries < 1000; tries++) {
        /* Acquire: fields after the version. Pairs with xccl_board_write(). */
        uint32_t before = atomic_load_explicit(&board->version, memory_order_acquire);
        uint32_t calls = atomic_load_explicit(&board->calls, memory_order_relaxed);

        call_out->seq = atomic_load_explicit(&board->seq, memory_order_relaxed);
        call_out->count = atomic_load_explicit(&board->count, memory_order_relaxed);
        call_out->root = atomic_load_explicit(&board->root, memory_order_relaxed);
        call_out->coll = calls >> 16;
        call_out->type = calls >> 8 & 255;
        call_out->op = calls & 255;
        atomic_thread_fence(memory_order_acquire);
        if (!(before & 1) && before == atomic_load_explicit(&board->version, memory_order_relaxed))
            return 1;
    }
    return 0;
}

/* How many calls the owner is past call seq, mod 2^32. */
static inline uint32_t xccl_board_ahead(const struct xccl_board *board, uint32_t seq)
{
    /* Acquire: pairs with xccl_board_write(). */
    return (uint32_t)(atomic_load_explicit(&board->word, memory_order_acquire) >> 32) - seq;
}

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
    return xccl_board_ahead(board, seq) - 1 < XCCL_BOARD_PAST - 2;
}

#endif
