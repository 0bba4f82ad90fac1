/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses the clock of events, and reads clocks side by side. The stamp counter is out of the
 * question where the processor changes its speed, where the kernel has found it wrong, and where
 * the process has been forbidden to read it (prctl PR_SET_TSC). Thread: any. */
#include "record/record_clock.h"

#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/clock.h"
#include "base/hash.h"
#include "base/sysfs.h"

#define MARK_TRIES 8

static uint64_t clock_read(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * XCCL_NS_PER_S + (uint64_t)now.tv_nsec;
}

__attribute__((noinline)) uint64_t xccl_record_monotonic(void)
{
    return clock_read(CLOCK_MONOTONIC);
}

#if defined(__x86_64__)
#define POWER_LEAF    0x80000007u
#define INVARIANT_BIT (1u << 8)

/* A kernel that has found the counter to be wrong uses one of these. */
static int is_distrusted(void)
{
    static const char *const others[] = {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"};
    char name[32];

    xccl_sysfs_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", name,
                    sizeof name);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(name, others[i]) == 0)
            return 1;
    return 0;
}

enum xccl_record_clock xccl_record_clock_choose(void)
{
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    int allowed = PR_TSC_ENABLE;

    if (prctl(PR_GET_TSC, &allowed, 0, 0, 0) == 0 && allowed != PR_TSC_ENABLE)
        return XCCL_RECORD_MONOTONIC;
    if (!__get_cpuid(POWER_LEAF, &eax, &ebx, &ecx, &edx) || !(edx & INVARIANT_BIT) ||
        is_distrusted())
        return XCCL_RECORD_MONOTONIC;
    return XCCL_RECORD_TSC;
}
#else
enum xccl_record_clock xccl_record_clock_choose(void)
{
    return XCCL_RECORD_MONOTONIC;
}
#endif

/* The tick between two looks at the clock, where these were closest to each other. */
struct xccl_record_mark xccl_record_mark_now(enum xccl_record_clock clock)
{
    struct xccl_record_mark best = {0};
    uint64_t best_ns = UINT64_MAX;

    for (int i = 0; i < MARK_TRIES; i++) {
        uint64_t before_ns = clock_read(CLOCK_MONOTONIC), real_ns = clock_read(CLOCK_REALTIME);
        uint64_t tick = xccl_record_tick(clock), after_ns = clock_read(CLOCK_MONOTONIC);

        if (after_ns - before_ns >= best_ns)
            continue;
        best_ns = after_ns - before_ns;
        best = (struct xccl_record_mark){
            .tick = tick, .mono_ns = before_ns + best_ns / 2, .real_ns = real_ns};
    }
    return best;
}

uint64_t xccl_record_boot_hash(void)
{
    char id[64];

    xccl_sysfs_line("/proc/sys/kernel/random/boot_id", id, sizeof id);
    return id[0] ? xccl_hash_bytes(XCCL_HASH_START, id, strlen(id)) : 0;
}
