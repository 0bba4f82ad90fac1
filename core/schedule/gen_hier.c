/* SPDX-License-Identifier: BSD-3-Clause */
/* Hierarchies: a collective of all ranks as collectives of the ranks of a node and of ranks of
 * different nodes, by the generators that are there (builder.h, scopes). Nodes may have different
 * numbers of ranks, and any ranks.
 *
 * All-reduce: reduce-scatter in each node; then, for each share of the vector, all-reduce among its
 * owners, one a node; all-gather in each node. All shares of a node are equal, which takes the
 * least common multiple of all node sizes as number of slices. All-gather and reduce-scatter go
 * between the nodes over rails: rail j has rank j of each node, or in a smaller one rank j modulo
 * its size, and carries the block of rank j where there is one; so each block crosses once, and in
 * the nodes go whole rails. Broadcast and reduce go by one rank of each node or, as `rails`, by all
 * of them, each with its share.
 *
 * All go through rails and slices in the same order, so none waits in a circle. gen_hier_blocks.c
 * has all-to-all, gather and scatter. Thread: any. */
#include "schedule/gen_hier_int.h"

/* ---- all-reduce ---- */

static void all_reduce(struct xccl_hier *hier)
{
    int share = hier->nchunks / hier->size, mine = hier->place * share;
    struct xccl_hier_part part;

    if (hier->size > 1) {
        part = xccl_hier_inner_part(hier, XCCL_COLL_REDUCE_SCATTER);
        xccl_hier_side_even(&hier->in, XCCL_BUFFER_IN, 0, share, hier->size);
        xccl_hier_side_even(&hier->out, XCCL_BUFFER_OUT, hier->place * share, share, 1);
        xccl_hier_emit_part(hier, &part, 0, hier->layout.nnodes > 1 ? XCCL_FLAG_POST : 0, 0);
    }
    if (hier->layout.nnodes > 1)
        xccl_hier_emit_owned(
            hier, XCCL_COLL_ALL_REDUCE,
            &(struct xccl_hier_owned){.in = hier->size > 1 ? XCCL_BUFFER_OUT : XCCL_BUFFER_IN,
                                      .out = XCCL_BUFFER_OUT,
                                      .in_at = mine,
                                      .out_at = mine,
                                      .clear = hier->size > 1 ? XCCL_FLAG_PRE : 0});
    if (hier->size > 1) {
        part = xccl_hier_inner_part(hier, XCCL_COLL_ALL_GATHER);
        xccl_hier_side_even(&hier->in, XCCL_BUFFER_OUT, hier->place * share, share, 1);
        xccl_hier_side_even(&hier->out, XCCL_BUFFER_OUT, 0, share, hier->size);
        xccl_hier_emit_part(hier, &part, 1, 0, 0);
    }
}

/* ---- all-gather and reduce-scatter: blocks and rails ---- */

/* All blocks that come over rails of a place of this rank's node. */
static void put_rails(const struct xccl_hier *hier, struct xccl_hier_side *side, int place)
{
    const struct xccl_hier_layout *layout = &hier->layout;

    for (int j = place; j < layout->most; j += hier->size)
        for (int node = 0; node < layout->nnodes; node++)
            if (xccl_hier_block_of(layout, node, j) >= 0)
                xccl_hier_side_put(side, xccl_hier_block_of(layout, node, j));
}

/* All places' rails in this rank's node, each as one chunk. */
static void side_rails(const struct xccl_hier *hier, struct xccl_hier_side *side,
                       enum xccl_step_buffer buffer)
{
    xccl_hier_side_begin(side, buffer);
    for (int place = 0; place < hier->size; place++) {
        put_rails(hier, side, place);
        xccl_hier_side_next(side);
    }
}

/* Its own block, in rail j: a chunk of one or none. */
static void side_own(const struct xccl_hier *hier, struct xccl_hier_side *side,
                     enum xccl_step_buffer buffer, int j)
{
    xccl_hier_side_begin(side, buffer);
    if (j == hier->place)
        xccl_hier_side_put(side, 0);
    xccl_hier_side_next(side);
}

static void all_gather(struct xccl_hier *hier)
{
    const struct xccl_hier_layout *layout = &hier->layout;
    struct xccl_hier_part part;

    for (int j = hier->place; j < layout->most && layout->nnodes > 1; j += hier->size) {
        part = xccl_hier_rail_part(hier, XCCL_COLL_ALL_GATHER, j);
        side_own(hier, &hier->in, XCCL_BUFFER_IN, j);
        xccl_hier_side_begin(&hier->out, XCCL_BUFFER_OUT);
        for (int i = 0; i < layout->nnodes; i++) {
            int block = xccl_hier_block_of(layout, layout->at[hier->ranks[i]], j);

            if (block >= 0)
                xccl_hier_side_put(&hier->out, block);
            xccl_hier_side_next(&hier->out);
        }
        xccl_hier_emit_part(hier, &part, 2 + j, 0, 0);
    }
    if (hier->size == 1)
        return;
    part = xccl_hier_inner_part(hier, XCCL_COLL_ALL_GATHER);
    if (layout->nnodes > 1) {
        xccl_hier_side_begin(&hier->in, XCCL_BUFFER_OUT);
        put_rails(hier, &hier->in, hier->place);
        xccl_hier_side_next(&hier->in);
    } else {
        side_own(hier, &hier->in, XCCL_BUFFER_IN, hier->place);
    }
    side_rails(hier, &hier->out, XCCL_BUFFER_OUT);
    xccl_hier_emit_part(hier, &part, 1, 0, 0);
}

/* What rail j sums: in a node of several ranks that is in scratch memory, from partial on. Returns
 * where it ends. */
static int side_partial(struct xccl_hier *hier, int j, int partial)
{
    const struct xccl_hier_layout *layout = &hier->layout;

    for (int node = 0; node < layout->nnodes; node++)
        if (xccl_hier_block_of(layout, node, j) >= 0)
            layout->next[node] = partial++;
    xccl_hier_side_begin(&hier->in, hier->size > 1 ? XCCL_BUFFER_SCRATCH : XCCL_BUFFER_IN);
    for (int i = 0; i < layout->nnodes; i++) {
        int node = layout->at[hier->ranks[i]], block = xccl_hier_block_of(layout, node, j);

        if (block >= 0)
            xccl_hier_side_put(&hier->in, hier->size > 1 ? layout->next[node] : block);
        xccl_hier_side_next(&hier->in);
    }
    return partial;
}

static void reduce_scatter(struct xccl_hier *hier)
{
    const struct xccl_hier_layout *layout = &hier->layout;
    struct xccl_hier_part part;
    int partial = 0, scratch0 = 0;

    if (hier->size > 1) {
        part = xccl_hier_inner_part(hier, XCCL_COLL_REDUCE_SCATTER);
        side_rails(hier, &hier->in, XCCL_BUFFER_IN);
        scratch0 = (int)(hier->in.first[hier->place + 1] - hier->in.first[hier->place]);
        if (layout->nnodes > 1)
            xccl_hier_side_even(&hier->out, XCCL_BUFFER_SCRATCH, 0, scratch0, 1);
        else
            side_own(hier, &hier->out, XCCL_BUFFER_OUT, hier->place);
        xccl_hier_emit_part(hier, &part, 0, layout->nnodes > 1 ? XCCL_FLAG_POST : 0, scratch0);
    }
    for (int j = hier->place; j < layout->most && layout->nnodes > 1; j += hier->size) {
        part = xccl_hier_rail_part(hier, XCCL_COLL_REDUCE_SCATTER, j);
        partial = side_partial(hier, j, partial);
        side_own(hier, &hier->out, XCCL_BUFFER_OUT, j);
        xccl_hier_emit_part(hier, &part, 2 + j, hier->size > 1 ? XCCL_FLAG_PRE : 0, scratch0);
    }
}

/* ---- broadcast, reduce, barrier: by one rank of each node ---- */

/* Both sides, each the whole vector in as many chunks as the part has. */
static void sides_whole(struct xccl_hier *hier, const struct xccl_hier_part *part,
                        enum xccl_step_buffer in, enum xccl_step_buffer out)
{
    const struct xccl_generator *generator;
    struct xccl_generator_for inside;
    int count = 1;

    if (!hier->rc)
        hier->rc = xccl_hier_choose(hier->what, &hier->layout, part, &generator, &inside, &count);
    if (hier->rc)
        return;
    xccl_hier_side_even(&hier->in, in, 0, hier->nchunks / count, count);
    xccl_hier_side_even(&hier->out, out, 0, hier->nchunks / count, count);
}

static void broadcast(struct xccl_hier *hier)
{
    int leads = xccl_hier_leader_of(hier, hier->node) == hier->what->rank,
        several = hier->layout.nnodes > 1;
    struct xccl_hier_part part;

    if (several && leads) {
        part = xccl_hier_leaders_part(hier, XCCL_COLL_BROADCAST);
        sides_whole(hier, &part, XCCL_BUFFER_IN, XCCL_BUFFER_OUT);
        xccl_hier_emit_part(hier, &part, 2, 0, 0);
    }
    if (hier->size > 1) {
        part = xccl_hier_led_part(hier, XCCL_COLL_BROADCAST);
        sides_whole(hier, &part, several ? XCCL_BUFFER_OUT : XCCL_BUFFER_IN, XCCL_BUFFER_OUT);
        xccl_hier_emit_part(hier, &part, 1, 0, 0);
    }
}

/* Sums of nodes are in scratch memory but for the root's. */
static void reduce(struct xccl_hier *hier)
{
    int leads = xccl_hier_leader_of(hier, hier->node) == hier->what->rank,
        several = hier->layout.nnodes > 1;
    enum xccl_step_buffer sum = hier->what->rank == hier->what->root ? XCCL_BUFFER_OUT
                                                                     : XCCL_BUFFER_SCRATCH;
    struct xccl_hier_part part;

    if (hier->size > 1) {
        part = xccl_hier_led_part(hier, XCCL_COLL_REDUCE);
        sides_whole(hier, &part, XCCL_BUFFER_IN, sum);
        xccl_hier_emit_part(hier, &part, 0, several ? XCCL_FLAG_POST : 0,
                            leads ? hier->nchunks : 0);
    }
    if (several && leads) {
        part = xccl_hier_leaders_part(hier, XCCL_COLL_REDUCE);
        sides_whole(hier, &part, hier->size > 1 ? sum : XCCL_BUFFER_IN, XCCL_BUFFER_OUT);
        xccl_hier_emit_part(hier, &part, 2, hier->size > 1 ? XCCL_FLAG_PRE : 0, hier->nchunks);
    }
}

/* Who has heard of its own node hears of all others over its rail; in nodes of different sizes it
 * is the leader who hears, and a second barrier in the node tells. */
static void barrier(struct xccl_hier *hier)
{
    int rails = hier->layout.most == hier->layout.least, several = hier->layout.nnodes > 1;
    struct xccl_hier_part part;

    xccl_hier_side_begin(&hier->in, XCCL_BUFFER_ZERO);
    xccl_hier_side_begin(&hier->out, XCCL_BUFFER_ZERO);
    if (hier->size > 1) {
        part = xccl_hier_inner_part(hier, XCCL_COLL_BARRIER);
        xccl_hier_emit_part(hier, &part, 0, 0, 0);
    }
    if (several && (rails || hier->place == 0)) {
        part = xccl_hier_rail_part(hier, XCCL_COLL_BARRIER, hier->place);
        xccl_hier_emit_part(hier, &part, 2, 0, 0);
    }
    if (several && !rails && hier->size > 1) {
        part = xccl_hier_inner_part(hier, XCCL_COLL_BARRIER);
        xccl_hier_emit_part(hier, &part, 1, 0, 0);
    }
}

/* ---- broadcast and reduce by shares: all ranks of a node work, and so all its cards ---- */

static void in_shares(struct xccl_hier_side *side, const struct xccl_hier *hier,
                      enum xccl_step_buffer buffer)
{
    xccl_hier_side_even(side, buffer, 0, hier->nchunks / hier->size, hier->size);
}

/* Its own share as one chunk. */
static void in_one(struct xccl_hier_side *side, const struct xccl_hier *hier,
                   enum xccl_step_buffer buffer, int first)
{
    xccl_hier_side_even(side, buffer, first, hier->nchunks / hier->size, 1);
}

static int is_with_root(const struct xccl_hier *hier)
{
    return hier->node == hier->layout.at[hier->what->root];
}

static void broadcast_shares(struct xccl_hier *hier)
{
    int mine = hier->place * (hier->nchunks / hier->size);
    int scatters = hier->size > 1 && is_with_root(hier);
    struct xccl_hier_part part;

    if (scatters) {
        part = xccl_hier_led_part(hier, XCCL_COLL_SCATTER);
        part.name = "direct"; /* relays need chunks of one size */
        in_shares(&hier->in, hier, XCCL_BUFFER_IN);
        in_one(&hier->out, hier, XCCL_BUFFER_OUT, mine);
        xccl_hier_emit_part(hier, &part, 0, 0, 0);
    }
    if (hier->layout.nnodes > 1)
        xccl_hier_emit_owned(
            hier, XCCL_COLL_BROADCAST,
            &(struct xccl_hier_owned){.in = scatters ? XCCL_BUFFER_OUT : XCCL_BUFFER_IN,
                                      .out = XCCL_BUFFER_OUT,
                                      .in_at = mine,
                                      .out_at = mine});
    if (hier->size > 1) {
        part = xccl_hier_inner_part(hier, XCCL_COLL_ALL_GATHER);
        in_one(&hier->in, hier, XCCL_BUFFER_OUT, mine);
        in_shares(&hier->out, hier, XCCL_BUFFER_OUT);
        xccl_hier_emit_part(hier, &part, 1, 0, 0);
    }
}

/* Scratch memory does not know how much of a chunk there is. So all messages but those of the
 * first stage are of whole chunks there, also of nodes with one rank, and the root copies. It has
 * this node's sum of the share; in the root's node the sum of all behind it; and at the root then
 * all shares. */
static void reduce_shares(struct xccl_hier *hier)
{
    int share = hier->nchunks / hier->size, several = hier->layout.nnodes > 1;
    int total = several ? share : 0, all = total + share, end = all;
    struct xccl_hier_part part = xccl_hier_inner_part(hier, XCCL_COLL_REDUCE_SCATTER);

    if (hier->what->rank == hier->what->root)
        end = all + hier->nchunks;
    in_shares(&hier->in, hier, XCCL_BUFFER_IN);
    in_one(&hier->out, hier, XCCL_BUFFER_SCRATCH, 0);
    xccl_hier_emit_part(hier, &part, 0, several ? XCCL_FLAG_POST : 0, end);
    if (several)
        xccl_hier_emit_owned(hier, XCCL_COLL_REDUCE,
                             &(struct xccl_hier_owned){.in = XCCL_BUFFER_SCRATCH,
                                                       .out = XCCL_BUFFER_SCRATCH,
                                                       .out_at = total,
                                                       .scratch0 = end,
                                                       .clear = XCCL_FLAG_PRE});
    if (!is_with_root(hier))
        return;
    part = xccl_hier_led_part(hier, XCCL_COLL_GATHER);
    part.name = "direct";
    in_one(&hier->in, hier, XCCL_BUFFER_SCRATCH, total);
    xccl_hier_side_even(&hier->out, XCCL_BUFFER_SCRATCH, all, share, hier->size);
    xccl_hier_emit_part(hier, &part, 1, 0, end);
    if (hier->what->rank == hier->what->root)
        xccl_build_step(
            hier->builder, 0,
            &(struct xccl_emit){.op = XCCL_STEP_SRC | XCCL_STEP_DST,
                                .src = {XCCL_BUFFER_SCRATCH, hier->nchunks, all, 1, NULL},
                                .dst = {XCCL_BUFFER_OUT, hier->nchunks, 0, 1, NULL}});
}

/* ---- the table's entries ---- */

static void hier_all_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, &xccl_generator_hier_all_reduce, all_reduce);
}

static void hier_reduce_scatter(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, &xccl_generator_hier_reduce_scatter, reduce_scatter);
}

static void hier_all_gather(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, &xccl_generator_hier_all_gather, all_gather);
}

static void hier_broadcast(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, &xccl_generator_hier_broadcast, broadcast);
}

static void hier_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, &xccl_generator_hier_reduce, reduce);
}

static void hier_barrier(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, &xccl_generator_hier_barrier, barrier);
}

static void rails_broadcast(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, &xccl_generator_rails_broadcast, broadcast_shares);
}

static void rails_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, &xccl_generator_rails_reduce, reduce_shares);
}

const struct xccl_generator xccl_generator_hier_all_reduce = {
    .name = "hier",
    .coll = XCCL_COLL_ALL_REDUCE,
    .help = "reduce-scatter in each node, all-reduce between nodes, all-gather in each node",
    .slots = 5,
    .emit = hier_all_reduce,
    .plan = xccl_hier_plan,
    .meetings = xccl_hier_meetings,
};

const struct xccl_generator xccl_generator_hier_reduce_scatter = {
    .name = "hier",
    .coll = XCCL_COLL_REDUCE_SCATTER,
    .help = "first in each node, then between ranks of the same number in different nodes",
    .slots = 5,
    .emit = hier_reduce_scatter,
    .plan = xccl_hier_plan,
    .meetings = xccl_hier_meetings,
};

const struct xccl_generator xccl_generator_hier_all_gather = {
    .name = "hier",
    .coll = XCCL_COLL_ALL_GATHER,
    .help = "first between ranks of the same number in different nodes, then in each node",
    .slots = 5,
    .emit = hier_all_gather,
    .plan = xccl_hier_plan,
    .meetings = xccl_hier_meetings,
};

const struct xccl_generator xccl_generator_hier_broadcast = {
    .name = "hier",
    .coll = XCCL_COLL_BROADCAST,
    .help = "to one rank of each node, then in each node",
    .slots = 1,
    .emit = hier_broadcast,
    .plan = xccl_hier_plan,
    .meetings = xccl_hier_meetings,
};

const struct xccl_generator xccl_generator_hier_reduce = {
    .name = "hier",
    .coll = XCCL_COLL_REDUCE,
    .help = "in each node, then from one rank of each node",
    .slots = 1,
    .emit = hier_reduce,
    .plan = xccl_hier_plan,
    .meetings = xccl_hier_meetings,
};

const struct xccl_generator xccl_generator_hier_barrier = {
    .name = "hier",
    .coll = XCCL_COLL_BARRIER,
    .help = "in each node, then between nodes",
    .slots = 1,
    .emit = hier_barrier,
    .plan = xccl_hier_plan,
    .meetings = xccl_hier_meetings,
};

const struct xccl_generator xccl_generator_rails_broadcast = {
    .name = "rails",
    .coll = XCCL_COLL_BROADCAST,
    .help = "each rank of a node carries a share between nodes: uses all cards of a host",
    .slots = 5,
    .emit = rails_broadcast,
    .plan = xccl_hier_plan_shares,
    .meetings = xccl_hier_meetings_shares,
};

const struct xccl_generator xccl_generator_rails_reduce = {
    .name = "rails",
    .coll = XCCL_COLL_REDUCE,
    .help = "each rank of a node sums a share, also between nodes: uses all cards of a host",
    .slots = 5,
    .emit = rails_reduce,
    .plan = xccl_hier_plan_shares,
    .meetings = xccl_hier_meetings_shares,
};
