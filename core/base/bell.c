/* SPDX-License-Identifier: BSD-3-Clause */
/* The bell over a futex. Sleepers count themselves before they look at rings for the last time, and
 * ringers add to rings before they look at sleepers, both in sequentially consistent order; so one
 * of the two sees the other, and no ring is slept through. Thread: any. */
#include "base/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void xccl_bell_ring(struct xccl_bell *bell)
{
    /* Seq_cst: see above; also releases what the ringer did before. */
    atomic_fetch_add_explicit(&bell->rings, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&bell->sleepers, memory_order_seq_cst))
        (void)syscall(SYS_futex, &bell->rings, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

uint32_t xccl_bell_listen(struct xccl_bell *bell)
{
    /* Acquire: pairs with the ring, so that a look at the state afterwards sees what was rung for.
     */
    return atomic_load_explicit(&bell->rings, memory_order_acquire);
}

/* time NULL: for as long as it takes. */
static void sleep_until_rung(struct xccl_bell *bell, uint32_t heard, const struct timespec *time)
{
    atomic_fetch_add_explicit(&bell->sleepers, 1, memory_order_seq_cst);
    /* The kernel compares rings with heard once more before it sleeps. */
    (void)syscall(SYS_futex, &bell->rings, FUTEX_WAIT_PRIVATE, heard, time, NULL, 0);
    atomic_fetch_sub_explicit(&bell->sleepers, 1, memory_order_seq_cst);
}

void xccl_bell_wait(struct xccl_bell *bell, uint32_t heard, const struct xccl_limit *limit)
{
    int ms = xccl_limit_poll_ms(limit);
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    if (ms != 0)
        sleep_until_rung(bell, heard, ms < 0 ? NULL : &time);
}

void xccl_bell_nap(struct xccl_bell *bell, uint32_t heard, uint64_t nap_ns)
{
    struct timespec time = {.tv_sec = (time_t)(nap_ns / XCCL_NS_PER_S),
                            .tv_nsec = (long)(nap_ns % XCCL_NS_PER_S)};

    sleep_until_rung(bell, heard, &time);
}
