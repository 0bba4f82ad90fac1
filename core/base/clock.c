/* SPDX-License-Identifier: BSD-3-Clause */
/* The monotonic clock, a test's own clock in its place, and limits of waits.
 * Sums saturate: a timeout too long to be counted is one without end.
 * Any thread. */
#include "base/clock.h"

#include <limits.h>
#include <stddef.h>
#include <time.h>

/* How soon a wait must see its abort flag. */
#define ABORT_POLL_MS 100

static const _Atomic uint64_t *_Atomic virtual_now_ns;

uint64_t xccl_clock_ns(void)
{
    /* Acquire: what the clock's owner wrote before setting it. Pairs with xccl_clock_set_virtual.
     */
    const _Atomic uint64_t *now_ns = atomic_load_explicit(&virtual_now_ns, memory_order_acquire);
    struct timespec now;

    if (now_ns)
        return atomic_load_explicit(now_ns, memory_order_relaxed);
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * XCCL_NS_PER_S + (uint64_t)now.tv_nsec;
}

void xccl_clock_set_virtual(const _Atomic uint64_t *now_ns)
{
    /* Release: pairs with the acquire in xccl_clock_ns. */
    atomic_store_explicit(&virtual_now_ns, now_ns, memory_order_release);
}

struct xccl_limit xccl_limit_ms(uint64_t timeout_ms, const _Atomic int *abort)
{
    struct xccl_limit limit = {.deadline_ns = XCCL_NEVER_NS, .abort = abort};
    uint64_t timeout_ns, deadline_ns;

    if (!__builtin_mul_overflow(timeout_ms, (uint64_t)XCCL_NS_PER_MS, &timeout_ns) &&
        !__builtin_add_overflow(xccl_clock_ns(), timeout_ns, &deadline_ns))
        limit.deadline_ns = deadline_ns;
    return limit;
}

int xccl_limit_poll_ms(const struct xccl_limit *limit)
{
    int longest_ms = limit->abort ? ABORT_POLL_MS : -1;
    uint64_t now_ns, left_ms;

    if (xccl_limit_aborted(limit))
        return 0;
    if (limit->deadline_ns == XCCL_NEVER_NS)
        return longest_ms;
    now_ns = xccl_clock_ns();
    if (now_ns >= limit->deadline_ns)
        return 0;
    /* Rounded up, or the last millisecond would be spent in polls of 0. */
    left_ms = (limit->deadline_ns - now_ns - 1) / XCCL_NS_PER_MS + 1;
    if (longest_ms >= 0 && left_ms > (uint64_t)longest_ms)
        return longest_ms;
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

int xccl_limit_passed(const struct xccl_limit *limit)
{
    if (limit->deadline_ns == XCCL_NEVER_NS)
        return 0;
    return xccl_clock_ns() >= limit->deadline_ns;
}

int xccl_limit_aborted(const struct xccl_limit *limit)
{
    /* Acquire: the reason is written before the flag. Pairs with the release store of the aborter.
     */
    return limit->abort && atomic_load_explicit(limit->abort, memory_order_acquire) != 0;
}
