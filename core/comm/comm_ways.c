/* SPDX-License-Identifier: BSD-3-Clause */
/* Of XCCL_WAYS_PERIOD calls of a kind and size the first few are measured, as many each way; the
 * first one each way finds the memory of the other way in the caches and does not count. Thread:
 * see the header. */
#include "comm/comm_ways.h"

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

int xccl_comm_way_is_address(struct xccl_comm_ways *ways, enum xccl_coll kind, uint64_t bytes)
{
    struct xccl_way_row *row;
    uint32_t turn;

    if (!ways || bytes < XCCL_WAYS_MIN)
        return 0;
    ways->row = NULL;
    if (ways->always)
        return 1;
    row = &ways->rows[kind][size_of(bytes)];
    turn = row->calls++ % XCCL_WAYS_PERIOD;
    if (turn >= 2 * XCCL_WAYS_TRIALS)
        return row->best == XCCL_WAY_ADDRESS;
    ways->row = row;
    ways->began_ns = xccl_clock_ns();
    return turn < XCCL_WAYS_TRIALS;
}

void xccl_comm_way_took(struct xccl_comm_ways *ways)
{
    struct xccl_way_row *row = ways->row;
    uint32_t turn = (row->calls - 1) % XCCL_WAYS_PERIOD, trial = turn % XCCL_WAYS_TRIALS;
    uint64_t took = xccl_clock_ns() - ways->began_ns;
    uint64_t *ns = &row->ns[turn < XCCL_WAYS_TRIALS ? XCCL_WAY_ADDRESS : XCCL_WAY_SLOTS];

    ways->row = NULL;
    if (trial == 1 || (trial > 1 && took < *ns))
        *ns = took;
    if (turn == 2 * XCCL_WAYS_TRIALS - 1)
        row->best = row->ns[XCCL_WAY_ADDRESS] < row->ns[XCCL_WAY_SLOTS] ? XCCL_WAY_ADDRESS
                                                                        : XCCL_WAY_SLOTS;
}
