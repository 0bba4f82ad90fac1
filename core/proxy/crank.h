/* SPDX-License-Identifier: BSD-3-Clause */
/* The crank of a communicator: who holds it moves every lane, link and op, and nobody else touches
 * the communicator's plugin comms. One owner word. While only one thread can want it, taking and
 * putting are a plain load and store; `shared` is set at init where two can (a plugin with
 * needsProgress), and then they are a compare-and-swap and a release store.
 *
 * Asynchronous work needs no shared crank: the progress thread takes it only for what is queued,
 * and a caller only when nothing is (stream/comm_async.h).
 *
 * Nobody keeps the crank while it waits for a user or another rank: a lender gives it back after
 * its budget, a caller when its call returns. So a take waits for a lender only, about 50 us at
 * most. Two callers at once in one communicator are a usage error: a try that fails finds them
 * while the crank is not shared, comm_progress.h tells them from a lender otherwise.
 *
 * Thread: any. */
#ifndef XCCL_PROXY_CRANK_H
#define XCCL_PROXY_CRANK_H

#include <stdatomic.h>
#include <stdint.h>

/* What a lender may use of each millisecond, DESIGN: undelivered sends of manual-progress plugins.
 */
#define XCCL_CRANK_LEND_NS 50000ull

struct xccl_crank {
    _Atomic uint32_t held; /* 1: somebody has it */
    int shared; /* constant while two threads may come */
    int (*progress)(void *owner); /* moves what can move, never blocks; 1: something moved */
    void *owner;
};

/* progress may be NULL when nobody will lend. */
void xccl_crank_init(struct xccl_crank *crank, int shared, int (*progress)(void *owner),
                     void *owner);

/* The waiting and comparing halves; use the functions below. */
int xccl_crank_try_shared(struct xccl_crank *crank);
int xccl_crank_take_shared(struct xccl_crank *crank);

/* 1: the caller has it now. 0: somebody else has, maybe the caller itself in an outer call. */
static inline int xccl_crank_try(struct xccl_crank *crank)
{
    if (crank->shared)
        return xccl_crank_try_shared(crank);
    /* Acquire: what the last holder wrote, who may have been another thread. Pairs with put. */
    if (atomic_load_explicit(&crank->held, memory_order_acquire))
        return 0;
    atomic_store_explicit(&crank->held, 1, memory_order_relaxed);
    return 1;
}

/* Waits for it. The caller does not have it yet. 0: a lender keeps it, since something below it
 * does not come back; about a second of this thread's own time was spent, so that a process that
 * was stopped does not count. */
static inline int xccl_crank_take(struct xccl_crank *crank)
{
    if (crank->shared)
        return xccl_crank_take_shared(crank);
    atomic_store_explicit(&crank->held, 1, memory_order_relaxed);
    return 1;
}

static inline void xccl_crank_put(struct xccl_crank *crank)
{
    /* Release: the next holder sees all that this one wrote. Pairs with xccl_crank_try_shared(). */
    atomic_store_explicit(&crank->held, 0, memory_order_release);
}

/* For a service timer: takes the crank if it is free, calls progress until nothing moves or
 * budget_ns is used up, and puts it back. Returns 1 if it had it. A crank that is not shared is
 * never lent. */
int xccl_crank_lend(struct xccl_crank *crank, uint64_t budget_ns);

#endif
