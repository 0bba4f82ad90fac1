/* SPDX-License-Identifier: BSD-3-Clause */
/* A clock that stands still while the machine does. A virtual machine may be stopped for half a
 * minute and go on as if nothing had been; a deadline that has passed meanwhile says nothing about
 * what it is the deadline of. A runner that never sleeps for long beats; the clock of it and of the
 * processes that it forked goes on for PULSE_LATE_NS after a beat and then waits for the next.
 * Header only, for the harness and the conformance suite.
 *
 * Thread: pulse_beat() one, pulse_now() any of any process that shares the memory. */
#ifndef XT_PULSE_H
#define XT_PULSE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define PULSE_BEAT_MS 100 /* the runner's longest sleep */
#define PULSE_LATE_NS 500000000u

/* In memory shared by the processes. */
struct pulse {
    _Atomic uint64_t end_ns; /* where the clock stops without another beat; 0: no beat yet */
    _Atomic uint64_t lost_ns; /* how long it has stood still */
};

static inline uint64_t pulse_raw(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Nanoseconds; never goes back. pulse NULL, or without a beat: the system's own. */
static inline uint64_t pulse_now(const struct pulse *pulse)
{
    uint64_t end_ns, lost_ns, now_ns;

    if (!pulse)
        return pulse_raw();
    /* Acquire, in this order: who sees a new end sees what was lost before it, and the time is read
     * after both. Pairs with pulse_beat(). */
    end_ns = atomic_load_explicit(&pulse->end_ns, memory_order_acquire);
    lost_ns = atomic_load_explicit(&pulse->lost_ns, memory_order_acquire);
    now_ns = pulse_raw() - lost_ns;
    return end_ns && now_ns > end_ns ? end_ns : now_ns;
}

static inline void pulse_beat(struct pulse *pulse)
{
    /* Relaxed: nobody else writes. */
    uint64_t end_ns = atomic_load_explicit(&pulse->end_ns, memory_order_relaxed);
    uint64_t lost_ns = atomic_load_explicit(&pulse->lost_ns, memory_order_relaxed);
    uint64_t now_ns = pulse_raw() - lost_ns;

    if (end_ns && now_ns > end_ns) {
        lost_ns += now_ns - end_ns;
        now_ns = end_ns;
    }
    /* Release: what was lost before the end that counts on it. Pairs with pulse_now(). */
    atomic_store_explicit(&pulse->lost_ns, lost_ns, memory_order_release);
    atomic_store_explicit(&pulse->end_ns, now_ns + PULSE_LATE_NS, memory_order_release);
}

#endif
