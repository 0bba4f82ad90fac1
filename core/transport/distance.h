/* SPDX-License-Identifier: BSD-3-Clause */
/* How far apart the cores of two ranks are: the time that a written cache line takes to be seen by
 * the other one, measured once, while both join. One leads and sends a number to and fro through
 * both boards; the best of several batches counts, so that an interruption does no harm. Who does
 * not meet the other within XCCL_DISTANCE_NS gives up, and both know nothing then.
 *
 * Cores that share a cache take about 60 ns here, those of different sockets or tiles about 280.
 * Thread: the joining one. */
#ifndef XCCL_TRANSPORT_DISTANCE_H
#define XCCL_TRANSPORT_DISTANCE_H

#include "transport/board.h"

#define XCCL_DISTANCE_NS 2000000u /* until one gives up */

struct xccl_distance {
    struct xccl_board *own; /* NULL: nothing is measured */
    const struct xccl_board *other;
    int leads;
    uint32_t trips; /* of the number, so far; of one who follows: the number seen last */
    uint64_t limit_ns, batch_ns; /* until; when the batch began, 0: with the next trip */
    uint32_t best_ns; /* 0: not known */
};

/* The other one begins too, with leads turned round. */
void xccl_distance_begin(struct xccl_distance *distance, struct xccl_board *own,
                         const struct xccl_board *other, int leads);
/* Goes on for some microseconds at most. 1: it has ended, and best_ns tells. */
int xccl_distance_step(struct xccl_distance *distance);

#endif
