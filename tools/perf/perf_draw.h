/* SPDX-License-Identifier: BSD-3-Clause */
/* Random groups of calls over several communicators: all of it follows from a seed and the number
 * of ranks, so that every rank draws the same by itself, and any group can be drawn again alone.
 *
 * Thread: any. */
#ifndef XCCL_TOOLS_PERF_PERF_DRAW_H
#define XCCL_TOOLS_PERF_PERF_DRAW_H

#include "perf/perf.h"

#define XCCL_DRAW_COMMS 32
#define XCCL_DRAW_CALLS 12 /* in one group, at most */

/* One of the communicators. Number 0 has all ranks in their order; others come of splits. */
struct xccl_draw_comm {
    int parent; /* whose split it is; -1: number 0 */
    int split; /* the split's number */
    int count;
    int *ranks; /* the job's ranks, in the communicator's order */
};

/* What each rank of the parent gives to xcclCommSplit; both arrays by the job's ranks. */
struct xccl_draw_split {
    int parent;
    int *colors, *keys;
};

struct xccl_draw {
    uint64_t seed;
    int nranks;
    uint64_t max_bytes;
    int comm_count, split_count;
    struct xccl_draw_comm comms[XCCL_DRAW_COMMS];
    struct xccl_draw_split splits[XCCL_DRAW_COMMS];
};

struct xccl_draw_call {
    int comm;
    const struct xccl_perf_coll *coll;
    xcclDataType_t type;
    xcclRedOp_t op;
    int root, peer; /* ranks of the communicator; of a message: from and to */
    int in_place;
    uint64_t bytes; /* as xccl_perf_shape_of takes them */
    uint32_t shift; /* elements that its buffers are off their alignment */
    uint32_t salt; /* of its contents */
};

struct xccl_draw_group {
    int call_count;
    int grouped; /* 0: no group is opened, and no message drawn */
    int nested; /* this many calls, from the first on, are in a group within the group */
    struct xccl_draw_call calls[XCCL_DRAW_CALLS];
};

/* Draws comm_count communicators. 0: no memory; fini is fine then too. */
int xccl_draw_init(struct xccl_draw *draw, uint64_t seed, int nranks, int comm_count,
                   uint64_t max_bytes);
void xccl_draw_fini(struct xccl_draw *draw);
/* The job's rank in a communicator, or -1. */
int xccl_draw_rank(const struct xccl_draw_comm *comm, int rank);
void xccl_draw_group(const struct xccl_draw *draw, int64_t number, struct xccl_draw_group *group);
/* In what order a rank makes the group's calls: another one on each, in which those of each
 * communicator stay in theirs. */
void xccl_draw_order(const struct xccl_draw *draw, const struct xccl_draw_group *group,
                     int64_t number, int rank, int order[XCCL_DRAW_CALLS]);

#endif
