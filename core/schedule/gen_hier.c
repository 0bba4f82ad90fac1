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
 * the nodes go whole rails. Broadcast and reduce go by one rank of each node.
 *
 * All go through rails and slices in the same order, so none waits in a circle. gen_hier_blocks.c
 * has all-to-all, gather and scatter. Thread: any. */
#include "schedule/gen_hier_int.h"

/* ---- all-reduce ---- */

/* The first slice behind s that has another owner in some node. */
static int owners_end(const struct xccl_hier_layout *layout, int slices, int s)
{
    int end = slices;

    for (int node = 0; node < layout->nnodes; node++) {
        int share = slices / xccl_hier_size(layout, node);

        end = xccl_gen_min(end, (s / share + 1) * share);
    }
    return end;
}

/* All-reduce of slices s to end among their owners; the id tells this one from others. */
static void owners_reduce(struct xccl_hier *hier, int slices, int s, int end, int id)
{
    const struct xccl_hier_layout *layout = &hier->layout;
    struct xccl_hier_part part = {
        .coll = XCCL_COLL_ALL_REDUCE, .outer = 1, .nranks = layout->nnodes};
    enum xccl_step_buffer from = hier->size > 1 ? XCCL_BUFFER_OUT : XCCL_BUFFER_IN;
    int chunks = hier->nchunks / slices; /* of a slice */

    for (int node = 0; node < layout->nnodes; node++)
        hier->ranks[node] = (uint16_t)xccl_hier_member(layout, node,
                                                       s / (slices / xccl_hier_size(layout, node)));
    part.rank = xccl_hier_ranks_sort(hier, layout->nnodes, hier->what->rank);
    xccl_hier_side_even(&hier->in, from, s * chunks, end - s, chunks);
    xccl_hier_side_even(&hier->out, XCCL_BUFFER_OUT, s * chunks, end - s, chunks);
    xccl_hier_emit_part(hier, &part, id, hier->size > 1 ? XCCL_FLAG_PRE : 0, 0);
}

static void all_reduce(struct xccl_hier *hier)
{
    int slices = xccl_hier_slices(&hier->layout), share = hier->nchunks / hier->size;
    int mine = slices / hier->size * hier->place, end;
    struct xccl_hier_part part;

    if (hier->size > 1) {
        part = xccl_hier_inner_part(hier, XCCL_COLL_REDUCE_SCATTER);
        xccl_hier_side_even(&hier->in, XCCL_BUFFER_IN, 0, share, hier->size);
        xccl_hier_side_even(&hier->out, XCCL_BUFFER_OUT, hier->place * share, share, 1);
        xccl_hier_emit_part(hier, &part, 0, hier->layout.nnodes > 1 ? XCCL_FLAG_POST : 0, 0);
    }
    for (int s = 0, id = 2; s < slices && hier->layout.nnodes > 1; s = end, id++) {
        end = owners_end(&hier->layout, slices, s);
        if (s >= mine && s < mine + slices / hier->size)
            owners_reduce(hier, slices, s, end, id);
    }
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

/* ---- the table's entries ---- */

static void hier_all_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, XCCL_COLL_ALL_REDUCE, all_reduce);
}

static void hier_reduce_scatter(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, XCCL_COLL_REDUCE_SCATTER, reduce_scatter);
}

static void hier_all_gather(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, XCCL_COLL_ALL_GATHER, all_gather);
}

static void hier_broadcast(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, XCCL_COLL_BROADCAST, broadcast);
}

static void hier_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, XCCL_COLL_REDUCE, reduce);
}

static void hier_barrier(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, XCCL_COLL_BARRIER, barrier);
}

const struct xccl_generator xccl_generator_hier_all_reduce = {
    .name = "hier",
    .coll = XCCL_COLL_ALL_REDUCE,
    .help = "reduce-scatter in each node, all-reduce between nodes, all-gather in each node",
    .slots = 5,
    .emit = hier_all_reduce,
    .plan = xccl_hier_plan,
};

const struct xccl_generator xccl_generator_hier_reduce_scatter = {
    .name = "hier",
    .coll = XCCL_COLL_REDUCE_SCATTER,
    .help = "first in each node, then between ranks of the same number in different nodes",
    .slots = 5,
    .emit = hier_reduce_scatter,
    .plan = xccl_hier_plan,
};

const struct xccl_generator xccl_generator_hier_all_gather = {
    .name = "hier",
    .coll = XCCL_COLL_ALL_GATHER,
    .help = "first between ranks of the same number in different nodes, then in each node",
    .slots = 5,
    .emit = hier_all_gather,
    .plan = xccl_hier_plan,
};

const struct xccl_generator xccl_generator_hier_broadcast = {
    .name = "hier",
    .coll = XCCL_COLL_BROADCAST,
    .help = "to one rank of each node, then in each node",
    .slots = 1,
    .emit = hier_broadcast,
    .plan = xccl_hier_plan,
};

const struct xccl_generator xccl_generator_hier_reduce = {
    .name = "hier",
    .coll = XCCL_COLL_REDUCE,
    .help = "in each node, then from one rank of each node",
    .slots = 1,
    .emit = hier_reduce,
    .plan = xccl_hier_plan,
};

const struct xccl_generator xccl_generator_hier_barrier = {
    .name = "hier",
    .coll = XCCL_COLL_BARRIER,
    .help = "in each node, then between nodes",
    .slots = 1,
    .emit = hier_barrier,
    .plan = xccl_hier_plan,
};
