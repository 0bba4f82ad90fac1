/* SPDX-License-Identifier: BSD-3-Clause */
/* How many calls make a measurement: batches grow until one takes 20 ms. The same for XCCL's calls
 * and for MPI's.
 *
 * Thread: any. */
#include "perf/perf.h"

#define ENOUGH_US  20000.0
#define ITERS_MAX  1000000
#define GROWTH_MAX 100.0

int64_t xccl_perf_next_iters(int64_t iters, double us)
{
    double growth = 1.2 * ENOUGH_US / (us > 1 ? us : 1);

    if (us >= ENOUGH_US || iters >= ITERS_MAX)
        return 0;
    iters = (int64_t)((double)iters * (growth < GROWTH_MAX ? growth : GROWTH_MAX)) + 1;
    return iters < ITERS_MAX ? iters : ITERS_MAX;
}
