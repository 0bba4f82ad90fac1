/* SPDX-License-Identifier: BSD-3-Clause */
/* Now and then a few calls of a kind and size are measured, as many each way. Their times are added
 * up, since a rank that finds its data there already waits in the next call instead. The first half
 * each way does not count, for it finds the other way's memory in the caches (of 2 MiB, slots take
 * 330 us then, and 420 after six calls; the kernel's copy the other way round); nor does the
 * longest, which something else may have held up. What was measured before counts half as much.
 * Thread: see the header. */
#include "call/comm_ways.h"

#include "base/clock.h"

static unsigned size_of(uint64_t bytes)
{
    unsigned size = 0;

    while (bytes >= 2 * (uint64_t)XCCL_WAYS_MIN && size < XCCL_WAYS_SIZES - 1) {
        bytes /= 2;
        size++;
    }
    return size;
}

static uint32_t next_period(uint32_t period)
{
    if (!period)
        return XCCL_WAYS_PERIOD;
    return period < XCCL_WAYS_PERIOD_MAX ? 2 * period : XCCL_WAYS_PERIOD_MAX;
}

/* One copy, for the next call of such a row? */
static int is_one_copy(struct xccl_comm_ways *ways, struct xccl_way_row *row, uint64_t bytes)
{
    if (row->calls == row->period) {
        row->calls = 0;
        row->period = next_period(row->period);
    }
    ways->trials = bytes < XCCL_WAYS_LARGE ? XCCL_WAYS_TRIALS : XCCL_WAYS_TRIALS_LARGE;
    if (row->calls++ >= 2 * ways->trials)
        return row->best == XCCL_WAY_ADDRESS;
    ways->row = row;
    ways->began_ns = xccl_clock_ns();
    return row->calls <= ways->trials;
}

int xccl_comm_way_is_address(struct xccl_comm_ways *ways, enum xccl_coll kind, uint64_t bytes)
{
    if (!ways || !ways->takes_addresses || bytes < XCCL_WAYS_MIN)
        return 0;
    ways->row = NULL;
    return ways->always || is_one_copy(ways, &ways->rows[0][kind][size_of(bytes)], bytes);
}

int xccl_comm_way_is_slots(struct xccl_comm_ways *ways, enum xccl_coll kind, uint64_t bytes)
{
    if (!ways || bytes < XCCL_WAYS_LARGE)
        return 0;
    ways->row = NULL;
    return !is_one_copy(ways, &ways->rows[1][kind][size_of(bytes)], bytes);
}

__attribute__((noinline)) void xccl_comm_way_took(struct xccl_comm_ways *ways)
{
    struct xccl_way_row *row = ways->row;
    uint64_t took = xccl_clock_ns() - ways->began_ns;
    enum xccl_way way = row->calls <= ways->trials ? XCCL_WAY_ADDRESS : XCCL_WAY_SLOTS;
    uint32_t trial = (row->calls - 1) % ways->trials;

    ways->row = NULL;
    if (trial < ways->trials / 2) {
        row->now_ns = row->most_ns = 0;
        return;
    }
    row->now_ns += took;
    if (took > row->most_ns)
        row->most_ns = took;
    if (trial == ways->trials - 1)
        row->ns[way] = row->ns[way] / 2 + row->now_ns - row->most_ns;
    if (row->calls == 2 * ways->trials)
        row->best = row->ns[XCCL_WAY_ADDRESS] < row->ns[XCCL_WAY_SLOTS] ? XCCL_WAY_ADDRESS
                                                                        : XCCL_WAY_SLOTS;
}
