/* SPDX-License-Identifier: BSD-3-Clause */
/* Time, and how long a wait may take. The clock is monotonic; a test or simulation may set its
 * own. Never between two polls of a hot wait: a look at the clock is half a hand-over of a cache
 * line. */
#ifndef XCCL_BASE_CLOCK_H
#define XCCL_BASE_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

#define XCCL_NS_PER_MS 1000000ull
#define XCCL_NS_PER_S  1000000000ull
#define XCCL_NEVER_NS  UINT64_MAX

/* Monotonic nanoseconds, or the virtual clock's. */
uint64_t xccl_clock_ns(void);
/* NULL: the real clock again. Process-wide; set while no other thread of the library runs. */
void xccl_clock_set_virtual(const _Atomic uint64_t *now_ns);

/* A bound on a wait. abort may be NULL; when it becomes non-zero the wait ends with
 * xcclInvalidUsage "aborted" within 100 ms. */
struct xccl_limit {
    uint64_t deadline_ns; /* on xccl_clock_ns(); XCCL_NEVER_NS for none */
    const _Atomic int *abort;
};

/* A limit from now. */
struct xccl_limit xccl_limit_ms(uint64_t timeout_ms, const _Atomic int *abort);
/* Milliseconds that a poll may sleep: at most 100 while there is an abort flag, -1 for no bound, 0
 * when the deadline has passed. */
int xccl_limit_poll_ms(const struct xccl_limit *limit);
int xccl_limit_passed(const struct xccl_limit *limit);
int xccl_limit_aborted(const struct xccl_limit *limit);

#endif
