/* SPDX-License-Identifier: BSD-3-Clause */
/* Fault injection for tests: the k-th chance to fail from now on fails, once. Off by default and
 * then one relaxed load a chance. Chances are the allocators (alloc.h) and the wrappers of os.h,
 * tcp.h and netif.h that may fail in life. */
#ifndef XCCL_BASE_INJECT_H
#define XCCL_BASE_INJECT_H

#include <stdint.h>

/* k = 1: the next chance fails; 0: none. Also resets the count of chances. Process-wide. */
void xccl_inject_arm(uint64_t k);
/* The next count chances fail, all of them. xccl_inject_arm(0) ends it. */
void xccl_inject_arm_all(uint64_t count);
/* Chances since the last arm with k > 0 (UINT64_MAX counts and fails none), so that a test knows
 * when it has tried them all. */
uint64_t xccl_inject_chances(void);
/* Called at a chance: 1 = fail now, as the real thing would (the caller knows the errno). */
int xccl_inject_due(void);

#endif
