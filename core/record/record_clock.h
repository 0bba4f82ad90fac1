/* SPDX-License-Identifier: BSD-3-Clause */
/* The clock of events: the processor's time stamp counter where it runs at one speed through all
 * states and the kernel trusts it or a hypervisor's clock made from it, else CLOCK_MONOTONIC. Both
 * cost tens of nanoseconds on some machines (a stamp counter 7 to 18, the other 20 to 35), so a
 * fast call does not read it each time (record.h). Any thread. */
#ifndef XCCL_RECORD_RECORD_CLOCK_H
#define XCCL_RECORD_RECORD_CLOCK_H

#include "record/record_layout.h"

/* The cheapest one that can be trusted here. */
enum xccl_record_clock xccl_record_clock_choose(void);
/* All three clocks now. */
struct xccl_record_mark xccl_record_mark_now(enum xccl_record_clock clock);
uint64_t xccl_record_monotonic(void);
/* Equal while the system has not been booted anew; 0: not known. */
uint64_t xccl_record_boot_hash(void);

static inline uint64_t xccl_record_tick(enum xccl_record_clock clock)
{
#if defined(__x86_64__)
    if (clock == XCCL_RECORD_TSC)
        return __builtin_ia32_rdtsc();
#endif
    (void)clock;
    return xccl_record_monotonic();
}

#endif
