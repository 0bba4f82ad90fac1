/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of hierarchies have in common: who is where (gen_hier_plan.c), which algorithm a
 * part of the ranks uses, how many chunks all of that takes, and how a part is emitted
 * (gen_hier_part.c).
 *
 * Thread: any. */
#ifndef XCCL_SCHEDULE_GEN_HIER_INT_H
#define XCCL_SCHEDULE_GEN_HIER_INT_H

#include "schedule/gen_int.h"

#define XCCL_HIER_IDS 4 /* numbers of connections that one part may have */

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
    const char *name; /* of its algorithm, whatever is asked for; NULL: that, or the usual one */
};

/* The algorithm, its arguments and how many chunks the whole vector has for it. */
xcclResult_t xccl_hier_choose(const struct xccl_generator_for *what,
                              const struct xccl_hier_layout *layout,
                              const struct xccl_hier_part *part,
                              const struct xccl_generator **generator_out,
                              struct xccl_generator_for *for_out, int *nchunks_out);

/* Slices of a vector of which each rank of a node owns a share: all node sizes divide them. */
int xccl_hier_slices(const struct xccl_hier_layout *layout);
/* The first slice behind s that has another owner in some node. */
int xccl_hier_owners_end(const struct xccl_hier_layout *layout, int slices, int s);
/* xccl_generator.plan and meetings, and of hierarchies with shares. */
xcclResult_t xccl_hier_plan(enum xccl_coll coll, const struct xccl_generator_for *what,
                            int *nchunks_out);
int xccl_hier_meetings(enum xccl_coll coll, const struct xccl_generator_for *what);
xcclResult_t xccl_hier_plan_shares(enum xccl_coll coll, const struct xccl_generator_for *what,
                                   int *nchunks_out);
int xccl_hier_meetings_shares(enum xccl_coll coll, const struct xccl_generator_for *what);

/* ---- emitting ---- */

/* A side of a scope while it is filled. */
struct xccl_hier_side {
    enum xccl_step_buffer buffer;
    int count;
    uint32_t *first;
    uint16_t *chunks;
};

/* A hierarchy while one rank's steps are emitted. */
struct xccl_hier {
    struct xccl_builder *builder;
    const struct xccl_generator_for *what;
    struct xccl_hier_layout layout;
    int nchunks;
    xcclResult_t rc; /* the first error, which nothing is emitted after */
    int node, size, place; /* of this rank: its node, the node's size, its number there */
    uint16_t *ranks; /* of the part that is emitted */
    struct xccl_hier_side in, out;
};

void xccl_hier_side_begin(struct xccl_hier_side *side, enum xccl_step_buffer buffer);
/* One more to the chunk that is open. */
void xccl_hier_side_put(struct xccl_hier_side *side, int chunk);
void xccl_hier_side_next(struct xccl_hier_side *side);
/* count chunks, which are width each from first on. */
void xccl_hier_side_even(struct xccl_hier_side *side, enum xccl_step_buffer buffer, int first,
                         int width, int count);

/* Sorts the ranks; this rank's number among them. */
int xccl_hier_ranks_sort(struct xccl_hier *hier, int count, int rank);
/* These fill ranks. In this rank's node: */
struct xccl_hier_part xccl_hier_inner_part(struct xccl_hier *hier, enum xccl_coll coll);
/* The ranks of this rank's node, with the leader as root. */
struct xccl_hier_part xccl_hier_led_part(struct xccl_hier *hier, enum xccl_coll coll);
/* Rank j of each node, in a smaller one rank j modulo its size. */
struct xccl_hier_part xccl_hier_rail_part(struct xccl_hier *hier, enum xccl_coll coll, int j);
struct xccl_hier_part xccl_hier_leaders_part(struct xccl_hier *hier, enum xccl_coll coll);

/* The rank whose block rail j carries for that node, or -1. */
int xccl_hier_block_of(const struct xccl_hier_layout *layout, int node, int j);
/* The root in its own node, the first rank in others. */
int xccl_hier_leader_of(const struct xccl_hier *hier, int node);

/* Emits a part of the ranks and sides that are filled. Ids 0 and 1 are of nodes, others are between
 * nodes. */
void xccl_hier_emit_part(struct xccl_hier *hier, const struct xccl_hier_part *part, int id,
                         uint8_t clear, int scratch0);
/* More of the part before, with other sides, over the same connections. */
void xccl_hier_emit_more(struct xccl_hier *hier, const struct xccl_hier_part *part, int id,
                         int scratch0);
/* Where a rank has its share, and where what comes of it goes: the share's first chunks. */
struct xccl_hier_owned {
    enum xccl_step_buffer in, out;
    int in_at, out_at, scratch0;
    uint8_t clear;
};
/* Emits a collective between nodes for each slice of this rank's share, among those who own the
 * slice, one a node. A root is who owns it in the root's node. */
void xccl_hier_emit_owned(struct xccl_hier *hier, enum xccl_coll coll,
                          const struct xccl_hier_owned *owned);
/* xccl_generator.emit, with emit_all for more than one rank. */
void xccl_hier_emit(struct xccl_builder *builder, const struct xccl_generator_for *what,
                    const struct xccl_generator *of, void (*emit_all)(struct xccl_hier *hier));

#endif
