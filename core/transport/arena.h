/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of this process that the ranks of its host can read in place: one sealed memfd, large and
 * nearly empty, out of which xcclMemAlloc gives. Peers map it once, when they join, and for reading
 * only; a place in it is a number that they check against its size. So nothing has to be exchanged
 * when memory is given, and no peer can write there or make the other's read fault.
 *
 * It is there as long as a communicator or somebody's memory needs it. A child of fork() shares
 * what it has inherited with its parent, and begins with none of its own.
 *
 * Thread: any; there is a lock, never held in a call. */
#ifndef XCCL_TRANSPORT_ARENA_H
#define XCCL_TRANSPORT_ARENA_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "xccl_types.h"

struct xccl_arena {
    _Atomic(char *) base; /* NULL: there is none */
    size_t bytes;
};
extern struct xccl_arena xccl_arena;

/* Makes it if need be, and keeps it until the drop. An error is quiet: calls do without. */
xcclResult_t xccl_arena_hold(void);
void xccl_arena_drop(void);
/* While held: a descriptor for reading, to be handed out. */
int xccl_arena_fd(void);

/* Zeroed memory, whole pages; NULL: there is no room, or no arena. */
void *xccl_arena_take(size_t bytes);
/* 0: it is not the beginning of any. */
int xccl_arena_give(void *memory);

/* Where the bytes lie, from 1 on; 0: not in the arena. */
static inline uint64_t xccl_arena_place(const void *at, size_t bytes)
{
    /* Acquire: its size was stored before. Pairs with open_arena(). */
    char *base = atomic_load_explicit(&xccl_arena.base, memory_order_acquire);
    size_t offset = (uintptr_t)at - (uintptr_t)base;

    if (!base || offset >= xccl_arena.bytes || bytes > xccl_arena.bytes - offset)
        return 0;
    return (uint64_t)offset + 1;
}

#endif
