/* SPDX-License-Identifier: BSD-3-Clause */
/* Hierarchies of collectives that move blocks and sum nothing. All-to-all: in each node a rank
 * collects what goes to ranks of its own place in other nodes (its place modulo the node's size,
 * where that is smaller), and sends that on: to each of them one row of blocks from the whole node.
 * Gather: each node's leader collects the node's blocks and sends them to the root; scatter: the
 * other way round.
 *
 * What is on its way lies in scratch memory. A rank's own blocks never do: they go from IN, and
 * come to OUT, in front of those of the others, as the first part over the same connections. All go
 * through rails and parts in the same order, so none waits in a circle. Thread: any. */
#include "schedule/gen_hier_int.h"

/* ---- all-to-all ---- */

/* Rail j carries something from this rank's node to that one. */
static int crosses(const struct xccl_hier *hier, int node, int j)
{
    return node != hier->node && xccl_hier_block_of(&hier->layout, node, j) >= 0;
}

/* What is collected of a node's other ranks for one block lies side by side, by place. */
static void put_collected(const struct xccl_hier *hier, struct xccl_hier_side *side, int block)
{
    for (int i = 0; i < hier->size - 1; i++)
        xccl_hier_side_put(side, block * (hier->size - 1) + i);
}

/* What goes to other nodes by that place of this node. */
static void put_rails(const struct xccl_hier *hier, struct xccl_hier_side *side, int place)
{
    const struct xccl_hier_layout *layout = &hier->layout;

    for (int j = place; j < layout->most; j += hier->size)
        for (int node = 0; node < layout->nnodes; node++)
            if (crosses(hier, node, j))
                xccl_hier_side_put(side, xccl_hier_block_of(layout, node, j));
}

/* How many blocks of each rank of the node this rank sends on. */
static int count_rails(const struct xccl_hier *hier)
{
    int count = 0;

    for (int j = hier->place; j < hier->layout.most; j += hier->size)
        for (int node = 0; node < hier->layout.nnodes; node++)
            count += crosses(hier, node, j);
    return count;
}

/* In the node: what stays there, then what others send on. */
static void exchange_in_node(struct xccl_hier *hier)
{
    struct xccl_hier_part part = xccl_hier_inner_part(hier, XCCL_COLL_ALL_TO_ALL);
    int blocks = count_rails(hier);

    xccl_hier_side_begin(&hier->in, XCCL_BUFFER_IN);
    xccl_hier_side_begin(&hier->out, XCCL_BUFFER_OUT);
    for (int place = 0; place < hier->size; place++) {
        xccl_hier_side_put(&hier->in, hier->ranks[place]);
        xccl_hier_side_next(&hier->in);
        xccl_hier_side_put(&hier->out, hier->ranks[place]);
        xccl_hier_side_next(&hier->out);
    }
    xccl_hier_emit_part(hier, &part, 0, 0, 0);
    if (hier->size == 1)
        return;
    xccl_hier_side_begin(&hier->in, XCCL_BUFFER_IN);
    xccl_hier_side_begin(&hier->out, XCCL_BUFFER_SCRATCH);
    for (int place = 0; place < hier->size; place++) {
        if (place != hier->place)
            put_rails(hier, &hier->in, place);
        xccl_hier_side_next(&hier->in);
        for (int block = 0; block < blocks && place != hier->place; block++)
            xccl_hier_side_put(&hier->out,
                               block * (hier->size - 1) + place - (place > hier->place));
        xccl_hier_side_next(&hier->out);
    }
    xccl_hier_emit_more(hier, &part, 0, 0);
}

/* Sides of rail j, by ranks of the rail: their own blocks, or those that they have collected. */
static void sides_of_rail(struct xccl_hier *hier, int j, int collected)
{
    const struct xccl_hier_layout *layout = &hier->layout;

    xccl_hier_side_begin(&hier->in, collected ? XCCL_BUFFER_SCRATCH : XCCL_BUFFER_IN);
    xccl_hier_side_begin(&hier->out, XCCL_BUFFER_OUT);
    for (int i = 0; i < layout->nnodes; i++) {
        int rank = hier->ranks[i], node = layout->at[rank], mine = hier->place == j;

        if (crosses(hier, node, j) && collected)
            put_collected(hier, &hier->in, layout->next[node]);
        else if (crosses(hier, node, j))
            xccl_hier_side_put(&hier->in, xccl_hier_block_of(layout, node, j));
        xccl_hier_side_next(&hier->in);
        for (int k = 0; k < xccl_hier_size(layout, node) && mine && node != hier->node; k++)
            if ((xccl_hier_member(layout, node, k) != rank) == collected)
                xccl_hier_side_put(&hier->out, xccl_hier_member(layout, node, k));
        xccl_hier_side_next(&hier->out);
    }
}

static void alltoall(struct xccl_hier *hier)
{
    const struct xccl_hier_layout *layout = &hier->layout;
    int blocks = 0;

    exchange_in_node(hier);
    for (int j = hier->place; j < layout->most && layout->nnodes > 1; j += hier->size) {
        struct xccl_hier_part part = xccl_hier_rail_part(hier, XCCL_COLL_ALL_TO_ALL, j);

        for (int node = 0; node < layout->nnodes; node++)
            if (crosses(hier, node, j))
                layout->next[node] = blocks++;
        sides_of_rail(hier, j, 0);
        xccl_hier_emit_part(hier, &part, 2 + j, 0, 0);
        sides_of_rail(hier, j, 1);
        xccl_hier_emit_more(hier, &part, 2 + j, 0);
    }
}

/* ---- gather and scatter ---- */

/* The rank's one block. */
static void side_own(struct xccl_hier_side *side, enum xccl_step_buffer buffer, int is_there)
{
    xccl_hier_side_begin(side, buffer);
    if (is_there)
        xccl_hier_side_put(side, 0);
    xccl_hier_side_next(side);
}

/* All blocks of the node, one to a chunk: where the user has them, or in scratch memory without the
 * leader's own. */
static void side_node(const struct xccl_hier *hier, struct xccl_hier_side *side,
                      enum xccl_step_buffer users)
{
    int is_root = hier->what->rank == hier->what->root;

    xccl_hier_side_begin(side, is_root ? users : XCCL_BUFFER_SCRATCH);
    for (int place = 0; place < hier->size; place++) {
        if (is_root)
            xccl_hier_side_put(side, xccl_hier_member(&hier->layout, hier->node, place));
        else if (place != hier->place)
            xccl_hier_side_put(side, place - (place > hier->place));
        xccl_hier_side_next(side);
    }
}

/* All blocks of all nodes, by leaders: the leaders' own, or the others. The root has its own node's
 * already; other leaders only look whether all nodes have as many, which relays need. */
static void side_nodes(const struct xccl_hier *hier, struct xccl_hier_side *side,
                       enum xccl_step_buffer users, int others)
{
    const struct xccl_hier_layout *layout = &hier->layout;
    int mine = hier->what->rank == hier->what->root ? hier->what->rank : -1;

    xccl_hier_side_begin(side, users);
    for (int i = 0; i < layout->nnodes; i++) {
        int leader = hier->ranks[i], node = layout->at[leader];

        for (int k = 0; k < xccl_hier_size(layout, node) && leader != mine; k++)
            if ((xccl_hier_member(layout, node, k) != leader) == others)
                xccl_hier_side_put(side, xccl_hier_member(layout, node, k));
        xccl_hier_side_next(side);
    }
}

/* Of a leader: the node's other blocks, as one chunk. */
static void side_collected(const struct xccl_hier *hier, struct xccl_hier_side *side)
{
    xccl_hier_side_even(side, XCCL_BUFFER_SCRATCH, 0,
                        hier->what->rank == hier->what->root ? 0 : hier->size - 1, 1);
}

static int leads(const struct xccl_hier *hier)
{
    return xccl_hier_leader_of(hier, hier->node) == hier->what->rank;
}

static void gather(struct xccl_hier *hier)
{
    int is_root = hier->what->rank == hier->what->root;
    struct xccl_hier_part part = xccl_hier_led_part(hier, XCCL_COLL_GATHER);

    if (hier->size > 1 || is_root) {
        side_own(&hier->in, XCCL_BUFFER_IN, is_root || !leads(hier));
        if (leads(hier))
            side_node(hier, &hier->out, XCCL_BUFFER_OUT);
        else
            xccl_hier_side_begin(&hier->out, XCCL_BUFFER_OUT);
        xccl_hier_emit_part(hier, &part, 0, 0, 0);
    }
    if (hier->layout.nnodes == 1 || !leads(hier))
        return;
    part = xccl_hier_leaders_part(hier, XCCL_COLL_GATHER);
    side_own(&hier->in, XCCL_BUFFER_IN, !is_root);
    side_nodes(hier, &hier->out, XCCL_BUFFER_OUT, 0);
    xccl_hier_emit_part(hier, &part, 2, 0, 0);
    side_collected(hier, &hier->in);
    side_nodes(hier, &hier->out, XCCL_BUFFER_OUT, 1);
    xccl_hier_emit_more(hier, &part, 2, 0);
}

static void scatter(struct xccl_hier *hier)
{
    int is_root = hier->what->rank == hier->what->root;
    struct xccl_hier_part part;

    if (hier->layout.nnodes > 1 && leads(hier)) {
        part = xccl_hier_leaders_part(hier, XCCL_COLL_SCATTER);
        side_nodes(hier, &hier->in, XCCL_BUFFER_IN, 0);
        side_own(&hier->out, XCCL_BUFFER_OUT, !is_root);
        xccl_hier_emit_part(hier, &part, 2, 0, 0);
        side_nodes(hier, &hier->in, XCCL_BUFFER_IN, 1);
        side_collected(hier, &hier->out);
        xccl_hier_emit_more(hier, &part, 2, 0);
    }
    if (hier->size == 1 && !is_root)
        return;
    part = xccl_hier_led_part(hier, XCCL_COLL_SCATTER);
    if (leads(hier))
        side_node(hier, &hier->in, XCCL_BUFFER_IN);
    else
        xccl_hier_side_begin(&hier->in, XCCL_BUFFER_IN);
    side_own(&hier->out, XCCL_BUFFER_OUT, is_root || !leads(hier));
    xccl_hier_emit_part(hier, &part, 0, 0, 0);
}

/* ---- the table's entries ---- */

static void hier_alltoall(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, &xccl_generator_hier_alltoall, alltoall);
}

static void hier_gather(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, &xccl_generator_hier_gather, gather);
}

static void hier_scatter(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    xccl_hier_emit(builder, what, &xccl_generator_hier_scatter, scatter);
}

const struct xccl_generator xccl_generator_hier_alltoall = {
    .name = "hier",
    .coll = XCCL_COLL_ALL_TO_ALL,
    .help = "in each node to the rank that has the receiver's place, then between nodes",
    .slots = 1,
    .links_all = 1,
    .emit = hier_alltoall,
    .plan = xccl_hier_plan,
    .meetings = xccl_hier_meetings,
};

const struct xccl_generator xccl_generator_hier_gather = {
    .name = "hier",
    .coll = XCCL_COLL_GATHER,
    .help = "to one rank of each node, then to the root",
    .slots = 1,
    .emit = hier_gather,
    .plan = xccl_hier_plan,
    .meetings = xccl_hier_meetings,
};

const struct xccl_generator xccl_generator_hier_scatter = {
    .name = "hier",
    .coll = XCCL_COLL_SCATTER,
    .help = "to one rank of each node, then in each node",
    .slots = 1,
    .emit = hier_scatter,
    .plan = xccl_hier_plan,
    .meetings = xccl_hier_meetings,
};
