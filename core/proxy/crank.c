/* SPDX-License-Identifier: BSD-3-Clause */
/* The crank where two threads may want it, and how it is lent to the service thread. The waiter
 * spins briefly and then yields: on one core the holder must run before it can give the crank back.
 *
 * Thread: any. */
#include "proxy/crank.h"

#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "base/os.h"

#define SPINS_BEFORE_YIELD 64
#define YIELDS_BEFORE_NAP  1000 /* a lender that has a core is through long before */
#define NAPS_MAX           1000
#define NAP_NS             1000000

void xccl_crank_init(struct xccl_crank *crank, int shared, int (*progress)(void *owner),
                     void *owner)
{
    atomic_init(&crank->held, 0);
    crank->shared = shared;
    crank->progress = progress;
    crank->owner = owner;
}

int xccl_crank_try_shared(struct xccl_crank *crank)
{
    uint32_t free_word = 0;

    /* A look before the swap keeps the line shared while somebody holds the crank. */
    if (atomic_load_explicit(&crank->held, memory_order_relaxed))
        return 0;
    /* Acquire: see what the last holder wrote. Pairs with xccl_crank_put(). */
    return atomic_compare_exchange_strong_explicit(&crank->held, &free_word, 1,
                                                   memory_order_acquire, memory_order_relaxed);
}

int xccl_crank_take_shared(struct xccl_crank *crank)
{
    unsigned spins = 0;

    while (!xccl_crank_try_shared(crank)) {
        if (++spins < SPINS_BEFORE_YIELD)
            xccl_os_pause();
        else if (spins < YIELDS_BEFORE_NAP)
            sched_yield();
        else if (spins < YIELDS_BEFORE_NAP + NAPS_MAX)
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        else
            return 0;
    }
    return 1;
}

int xccl_crank_lend(struct xccl_crank *crank, uint64_t budget_ns)
{
    uint64_t end_ns;

    if (!crank->shared || !crank->progress || !xccl_crank_try_shared(crank))
        return 0;
    end_ns = xccl_clock_ns() + budget_ns;
    while (crank->progress(crank->owner) && xccl_clock_ns() < end_ns)
        ;
    xccl_crank_put(crank);
    return 1;
}
