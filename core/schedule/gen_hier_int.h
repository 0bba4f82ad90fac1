/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two files of hierarchies have in common: who is where, which algorithm a part of the
 * ranks uses, and how many chunks all of that takes.
 *
 * Thread: any. */
#ifndef XCCL_SCHEDULE_GEN_HIER_INT_H
#define XCCL_SCHEDULE_GEN_HIER_INT_H

#include "schedule/gen_int.h"

/* Who is where. Nodes are numbered from 0 without gaps. */
struct xccl_hier_layout {
    int nnodes;
    int *at; /* a rank's node */
    int *first; /* nnodes + 1: where in member a node begins */
    int *member; /* ranks by node, rising in each */
    int *place; /* a rank's number in its node */
    int *next; /* of each node: for whoever goes through all */
    int most, least; /* ranks of a node */
};

/* On failure too it must be freed. */
xcclResult_t xccl_hier_layout_make(const struct xccl_generator_for *what,
                                   struct xccl_hier_layout *layout_out);
void xccl_hier_layout_free(struct xccl_hier_layout *layout);

static inline int xccl_hier_size(const struct xccl_hier_layout *layout, int node)
{
    return layout->first[node + 1] - layout->first[node];
}

static inline int xccl_hier_member(const struct xccl_hier_layout *layout, int node, int place)
{
    return layout->member[layout->first[node] + place];
}

/* A collective among some ranks, in a node or between nodes. */
struct xccl_hier_part {
    enum xccl_coll coll;
    int outer;
    int nranks, rank, root; /* among them */
};

/* The algorithm, its arguments and how many chunks the whole vector has for it. */
xcclResult_t xccl_hier_choose(const struct xccl_generator_for *what,
                              const struct xccl_hier_layout *layout,
                              const struct xccl_hier_part *part,
                              const struct xccl_generator **generator_out,
                              struct xccl_generator_for *for_out, int *nchunks_out);

/* Slices of an all-reduce: all node sizes divide them. */
int xccl_hier_slices(const struct xccl_hier_layout *layout);
/* xccl_generator.plan. */
xcclResult_t xccl_hier_plan(enum xccl_coll coll, const struct xccl_generator_for *what,
                            int *nchunks_out);

#endif
