/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts chances to fail and picks one of them.
 * The count is exact when chances come from several threads, though which thread meets the k-th is
 * then not. Arm while no other thread of the library runs.
 * Any thread. */
#include "base/inject.h"

#include <stdatomic.h>

/* Relaxed everywhere: the numbers order nothing else. */
static _Atomic uint64_t armed_chance;
static _Atomic uint64_t failing_count; /* chances up to this one fail, too */
static _Atomic uint64_t chance_count;

void xccl_inject_arm(uint64_t k)
{
    atomic_store_explicit(&chance_count, 0, memory_order_relaxed);
    atomic_store_explicit(&failing_count, 0, memory_order_relaxed);
    atomic_store_explicit(&armed_chance, k, memory_order_relaxed);
}

void xccl_inject_arm_all(uint64_t count)
{
    atomic_store_explicit(&chance_count, 0, memory_order_relaxed);
    atomic_store_explicit(&failing_count, count, memory_order_relaxed);
    atomic_store_explicit(&armed_chance, UINT64_MAX, memory_order_relaxed);
}

uint64_t xccl_inject_chances(void)
{
    return atomic_load_explicit(&chance_count, memory_order_relaxed);
}

int xccl_inject_due(void)
{
    uint64_t armed = atomic_load_explicit(&armed_chance, memory_order_relaxed), chance;

    if (armed == 0)
        return 0;
    chance = atomic_fetch_add_explicit(&chance_count, 1, memory_order_relaxed) + 1;
    return chance == armed || chance <= atomic_load_explicit(&failing_count, memory_order_relaxed);
}
