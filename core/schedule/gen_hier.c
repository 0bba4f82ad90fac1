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
 * All go through rails and slices in the same order, so none waits in a circle. Of what is several
 * chunks to a part, PARTS go at a time, which bounds the slots. Thread: any. */
#include "schedule/gen_hier_int.h"

#include <stdlib.h>

#include "base/alloc.h"

#define PARTS 4
#define IDS   4 /* that one part may have */
#define WHOLE (XCCL_FLAG_PRE | XCCL_FLAG_POST)

/* ---- parts ---- */

/* A side of a scope while it is filled. */
struct side {
    enum xccl_step_buffer buffer;
    int count;
    uint32_t *first;
    uint16_t *chunks;
};

struct hier {
    struct xccl_builder *builder;
    const struct xccl_generator_for *what;
    struct xccl_hier_layout layout;
    int nchunks;
    xcclResult_t rc; /* the first error, which nothing is emitted after */
    int node, size, place; /* of this rank: its node, the node's size, its number there */
    uint16_t *ranks; /* of the part that is emitted */
    struct side in, out;
};

static void side_begin(struct side *side, enum xccl_step_buffer buffer)
{
    side->buffer = buffer;
    side->count = 0;
    side->first[0] = 0;
    side->first[1] = 0;
}

/* One more to the chunk that is open. */
static void side_put(struct side *side, int chunk)
{
    side->chunks[side->first[side->count + 1]++] = (uint16_t)chunk;
}

static void side_next(struct side *side)
{
    side->count++;
    side->first[side->count + 1] = side->first[side->count];
}

/* count chunks, which are width each from first on. */
static void side_even(struct side *side, enum xccl_step_buffer buffer, int first, int width,
                      int count)
{
    side_begin(side, buffer);
    for (int c = 0; c < count; c++) {
        for (int i = 0; i < width; i++)
            side_put(side, first + c * width + i);
        side_next(side);
    }
}

static uint32_t longest(const struct side *side)
{
    uint32_t most = 0;

    for (int c = 0; c < side->count; c++)
        if (side->first[c + 1] - side->first[c] > most)
            most = side->first[c + 1] - side->first[c];
    return most;
}

/* Emits a part of the ranks and sides that are filled; of those, PARTS at a time. */
static void emit_part(struct hier *hier, const struct xccl_hier_part *part, int id, uint8_t clear,
                      int scratch0)
{
    const struct side *in = &hier->in, *out = &hier->out;
    const struct xccl_generator *generator;
    struct xccl_generator_for inside;
    struct xccl_build_scope scope = {.ranks = hier->ranks,
                                     .nranks = part->nranks,
                                     .id0 = IDS * id,
                                     .nids = IDS,
                                     .clear = clear,
                                     .scratch0 = scratch0,
                                     .in = {in->buffer, in->count, in->first, in->chunks},
                                     .out = {out->buffer, out->count, out->first, out->chunks},
                                     .nparts = PARTS};
    int most = (int)longest(in), nchunks;

    if (!hier->rc)
        hier->rc = xccl_hier_choose(hier->what, &hier->layout, part, &generator, &inside, &nchunks);
    if (hier->rc)
        return;
    most = (int)longest(out) > most ? (int)longest(out) : most;
    do {
        xccl_build_enter(hier->builder, &scope);
        generator->emit(hier->builder, &inside);
        xccl_build_leave(hier->builder);
        scope.part += PARTS;
        scope.again = 1;
    } while (scope.part < most);
}

static int by_number(const void *a_, const void *b_)
{
    const uint16_t *a = a_, *b = b_;

    return *a < *b ? -1 : *a > *b;
}

/* Sorts the ranks; this rank's number among them. */
static int ranks_sort(struct hier *hier, int count, int rank)
{
    int at = 0;

    qsort(hier->ranks, (size_t)count, sizeof(*hier->ranks), by_number);
    while (hier->ranks[at] != rank)
        at++;
    return at;
}

/* In this rank's node. */
static struct xccl_hier_part inner_part(struct hier *hier, enum xccl_coll coll)
{
    for (int i = 0; i < hier->size; i++)
        hier->ranks[i] = (uint16_t)xccl_hier_member(&hier->layout, hier->node, i);
    return (struct xccl_hier_part){.coll = coll, .nranks = hier->size, .rank = hier->place};
}

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
static void owners_reduce(struct hier *hier, int slices, int s, int end, int id)
{
    const struct xccl_hier_layout *layout = &hier->layout;
    struct xccl_hier_part part = {
        .coll = XCCL_COLL_ALL_REDUCE, .outer = 1, .nranks = layout->nnodes};
    enum xccl_step_buffer from = hier->size > 1 ? XCCL_BUFFER_OUT : XCCL_BUFFER_IN;
    int chunks = hier->nchunks / slices; /* of a slice */

    for (int node = 0; node < layout->nnodes; node++)
        hier->ranks[node] = (uint16_t)xccl_hier_member(layout, node,
                                                       s / (slices / xccl_hier_size(layout, node)));
    part.rank = ranks_sort(hier, layout->nnodes, hier->what->rank);
    side_even(&hier->in, from, s * chunks, end - s, chunks);
    side_even(&hier->out, XCCL_BUFFER_OUT, s * chunks, end - s, chunks);
    emit_part(hier, &part, id, hier->size > 1 ? XCCL_FLAG_PRE : 0, 0);
}

static void all_reduce(struct hier *hier)
{
    int slices = xccl_hier_slices(&hier->layout), share = hier->nchunks / hier->size;
    int mine = slices / hier->size * hier->place, end;
    struct xccl_hier_part part;

    if (hier->size > 1) {
        part = inner_part(hier, XCCL_COLL_REDUCE_SCATTER);
        side_even(&hier->in, XCCL_BUFFER_IN, 0, share, hier->size);
        side_even(&hier->out, XCCL_BUFFER_OUT, hier->place * share, share, 1);
        emit_part(hier, &part, 0, hier->layout.nnodes > 1 ? XCCL_FLAG_POST : 0, 0);
    }
    for (int s = 0, id = 2; s < slices && hier->layout.nnodes > 1; s = end, id++) {
        end = owners_end(&hier->layout, slices, s);
        if (s >= mine && s < mine + slices / hier->size)
            owners_reduce(hier, slices, s, end, id);
    }
    if (hier->size > 1) {
        part = inner_part(hier, XCCL_COLL_ALL_GATHER);
        side_even(&hier->in, XCCL_BUFFER_OUT, hier->place * share, share, 1);
        side_even(&hier->out, XCCL_BUFFER_OUT, 0, share, hier->size);
        emit_part(hier, &part, 1, 0, 0);
    }
}

/* ---- all-gather and reduce-scatter: blocks and rails ---- */

/* The rank whose block rail j carries for that node, or -1. */
static int block_of(const struct xccl_hier_layout *layout, int node, int j)
{
    return j < xccl_hier_size(layout, node) ? xccl_hier_member(layout, node, j) : -1;
}

/* All blocks that come over rails of a place of this rank's node. */
static void put_rails(const struct hier *hier, struct side *side, int place)
{
    const struct xccl_hier_layout *layout = &hier->layout;

    for (int j = place; j < layout->most; j += hier->size)
        for (int node = 0; node < layout->nnodes; node++)
            if (block_of(layout, node, j) >= 0)
                side_put(side, block_of(layout, node, j));
}

/* This rank's place in rail j. */
static struct xccl_hier_part rail_part(struct hier *hier, enum xccl_coll coll, int j)
{
    const struct xccl_hier_layout *layout = &hier->layout;
    struct xccl_hier_part part = {.coll = coll, .outer = 1, .nranks = layout->nnodes};

    for (int node = 0; node < layout->nnodes; node++)
        hier->ranks[node] = (uint16_t)xccl_hier_member(layout, node,
                                                       j % xccl_hier_size(layout, node));
    part.rank = ranks_sort(hier, layout->nnodes, hier->what->rank);
    return part;
}

/* All places' rails in this rank's node, each as one chunk. */
static void side_rails(const struct hier *hier, struct side *side, enum xccl_step_buffer buffer)
{
    side_begin(side, buffer);
    for (int place = 0; place < hier->size; place++) {
        put_rails(hier, side, place);
        side_next(side);
    }
}

/* Its own block, in rail j: a chunk of one or none. */
static void side_own(const struct hier *hier, struct side *side, enum xccl_step_buffer buffer,
                     int j)
{
    side_begin(side, buffer);
    if (j == hier->place)
        side_put(side, 0);
    side_next(side);
}

static void all_gather(struct hier *hier)
{
    const struct xccl_hier_layout *layout = &hier->layout;
    struct xccl_hier_part part;

    for (int j = hier->place; j < layout->most && layout->nnodes > 1; j += hier->size) {
        part = rail_part(hier, XCCL_COLL_ALL_GATHER, j);
        side_own(hier, &hier->in, XCCL_BUFFER_IN, j);
        side_begin(&hier->out, XCCL_BUFFER_OUT);
        for (int i = 0; i < layout->nnodes; i++) {
            int block = block_of(layout, layout->at[hier->ranks[i]], j);

            if (block >= 0)
                side_put(&hier->out, block);
            side_next(&hier->out);
        }
        emit_part(hier, &part, 2 + j, 0, 0);
    }
    if (hier->size == 1)
        return;
    part = inner_part(hier, XCCL_COLL_ALL_GATHER);
    if (layout->nnodes > 1) {
        side_begin(&hier->in, XCCL_BUFFER_OUT);
        put_rails(hier, &hier->in, hier->place);
        side_next(&hier->in);
    } else {
        side_own(hier, &hier->in, XCCL_BUFFER_IN, hier->place);
    }
    side_rails(hier, &hier->out, XCCL_BUFFER_OUT);
    emit_part(hier, &part, 1, 0, 0);
}

/* What rail j sums: in a node of several ranks that is in scratch memory, from partial on. Returns
 * where it ends. */
static int side_partial(struct hier *hier, int j, int partial)
{
    const struct xccl_hier_layout *layout = &hier->layout;

    for (int node = 0; node < layout->nnodes; node++)
        if (block_of(layout, node, j) >= 0)
            layout->next[node] = partial++;
    side_begin(&hier->in, hier->size > 1 ? XCCL_BUFFER_SCRATCH : XCCL_BUFFER_IN);
    for (int i = 0; i < layout->nnodes; i++) {
        int node = layout->at[hier->ranks[i]], block = block_of(layout, node, j);

        if (block >= 0)
            side_put(&hier->in, hier->size > 1 ? layout->next[node] : block);
        side_next(&hier->in);
    }
    return partial;
}

static void reduce_scatter(struct hier *hier)
{
    const struct xccl_hier_layout *layout = &hier->layout;
    struct xccl_hier_part part;
    int partial = 0, scratch0 = 0;

    if (hier->size > 1) {
        part = inner_part(hier, XCCL_COLL_REDUCE_SCATTER);
        side_rails(hier, &hier->in, XCCL_BUFFER_IN);
        scratch0 = (int)(hier->in.first[hier->place + 1] - hier->in.first[hier->place]);
        if (layout->nnodes > 1)
            side_even(&hier->out, XCCL_BUFFER_SCRATCH, 0, scratch0, 1);
        else
            side_own(hier, &hier->out, XCCL_BUFFER_OUT, hier->place);
        emit_part(hier, &part, 0, layout->nnodes > 1 ? XCCL_FLAG_POST : 0, scratch0);
    }
    for (int j = hier->place; j < layout->most && layout->nnodes > 1; j += hier->size) {
        part = rail_part(hier, XCCL_COLL_REDUCE_SCATTER, j);
        partial = side_partial(hier, j, partial);
        side_own(hier, &hier->out, XCCL_BUFFER_OUT, j);
        emit_part(hier, &part, 2 + j, hier->size > 1 ? XCCL_FLAG_PRE : 0, scratch0);
    }
}

/* ---- broadcast, reduce, barrier: by one rank of each node ---- */

/* The root in its own node, the first rank in others. */
static int leader_of(const struct hier *hier, int node)
{
    int root = hier->what->root;

    return hier->layout.at[root] == node ? root : xccl_hier_member(&hier->layout, node, 0);
}

static struct xccl_hier_part leaders_part(struct hier *hier, enum xccl_coll coll)
{
    struct xccl_hier_part part = {.coll = coll, .outer = 1, .nranks = hier->layout.nnodes};

    for (int node = 0; node < hier->layout.nnodes; node++)
        hier->ranks[node] = (uint16_t)leader_of(hier, node);
    part.root = ranks_sort(hier, part.nranks, hier->what->root);
    part.rank = ranks_sort(hier, part.nranks, leader_of(hier, hier->node));
    return part;
}

static struct xccl_hier_part led_part(struct hier *hier, enum xccl_coll coll)
{
    struct xccl_hier_part part = inner_part(hier, coll);

    part.root = hier->layout.place[leader_of(hier, hier->node)];
    return part;
}

/* Both sides, each the whole vector in as many chunks as the part has. */
static void sides_whole(struct hier *hier, const struct xccl_hier_part *part,
                        enum xccl_step_buffer in, enum xccl_step_buffer out)
{
    const struct xccl_generator *generator;
    struct xccl_generator_for inside;
    int count = 1;

    if (!hier->rc)
        hier->rc = xccl_hier_choose(hier->what, &hier->layout, part, &generator, &inside, &count);
    if (hier->rc)
        return;
    side_even(&hier->in, in, 0, hier->nchunks / count, count);
    side_even(&hier->out, out, 0, hier->nchunks / count, count);
}

static void broadcast(struct hier *hier)
{
    int leads = leader_of(hier, hier->node) == hier->what->rank, several = hier->layout.nnodes > 1;
    struct xccl_hier_part part;

    if (several && leads) {
        part = leaders_part(hier, XCCL_COLL_BROADCAST);
        sides_whole(hier, &part, XCCL_BUFFER_IN, XCCL_BUFFER_OUT);
        emit_part(hier, &part, 2, 0, 0);
    }
    if (hier->size > 1) {
        part = led_part(hier, XCCL_COLL_BROADCAST);
        sides_whole(hier, &part, several ? XCCL_BUFFER_OUT : XCCL_BUFFER_IN, XCCL_BUFFER_OUT);
        emit_part(hier, &part, 1, 0, 0);
    }
}

/* Sums of nodes are in scratch memory but for the root's. */
static void reduce(struct hier *hier)
{
    int leads = leader_of(hier, hier->node) == hier->what->rank, several = hier->layout.nnodes > 1;
    enum xccl_step_buffer sum = hier->what->rank == hier->what->root ? XCCL_BUFFER_OUT
                                                                     : XCCL_BUFFER_SCRATCH;
    struct xccl_hier_part part;

    if (hier->size > 1) {
        part = led_part(hier, XCCL_COLL_REDUCE);
        sides_whole(hier, &part, XCCL_BUFFER_IN, sum);
        emit_part(hier, &part, 0, several ? XCCL_FLAG_POST : 0, leads ? hier->nchunks : 0);
    }
    if (several && leads) {
        part = leaders_part(hier, XCCL_COLL_REDUCE);
        sides_whole(hier, &part, hier->size > 1 ? sum : XCCL_BUFFER_IN, XCCL_BUFFER_OUT);
        emit_part(hier, &part, 2, hier->size > 1 ? XCCL_FLAG_PRE : 0, hier->nchunks);
    }
}

/* Who has heard of its own node hears of all others over its rail; in nodes of different sizes it
 * is the leader who hears, and a second barrier in the node tells. */
static void barrier(struct hier *hier)
{
    int rails = hier->layout.most == hier->layout.least, several = hier->layout.nnodes > 1;
    struct xccl_hier_part part;

    side_begin(&hier->in, XCCL_BUFFER_ZERO);
    side_begin(&hier->out, XCCL_BUFFER_ZERO);
    if (hier->size > 1) {
        part = inner_part(hier, XCCL_COLL_BARRIER);
        emit_part(hier, &part, 0, 0, 0);
    }
    if (several && (rails || hier->place == 0)) {
        part = rail_part(hier, XCCL_COLL_BARRIER, hier->place);
        emit_part(hier, &part, 2, 0, 0);
    }
    if (several && !rails && hier->size > 1) {
        part = inner_part(hier, XCCL_COLL_BARRIER);
        emit_part(hier, &part, 1, 0, 0);
    }
}

/* ---- the table's entries ---- */

/* Room for the tables of one part. */
static xcclResult_t tables_make(struct hier *hier)
{
    size_t chunks = (size_t)hier->nchunks + 2, ranks = (size_t)hier->what->nranks;

    hier->in.first = xccl_calloc(2 * chunks, sizeof(*hier->in.first) + sizeof(*hier->in.chunks));
    hier->ranks = hier->in.first ? xccl_calloc(ranks, sizeof(*hier->ranks)) : NULL;
    if (!hier->ranks) {
        xccl_free(hier->in.first);
        return xcclSystemError;
    }
    hier->out.first = hier->in.first + chunks;
    hier->in.chunks = (uint16_t *)(hier->out.first + chunks);
    hier->out.chunks = hier->in.chunks + chunks;
    return xcclSuccess;
}

static void emit_layout(struct hier *hier, void (*emit_all)(struct hier *hier))
{
    hier->rc = tables_make(hier);
    if (hier->rc)
        return;
    hier->node = hier->layout.at[hier->what->rank];
    hier->size = xccl_hier_size(&hier->layout, hier->node);
    hier->place = hier->layout.place[hier->what->rank];
    emit_all(hier);
    xccl_free(hier->ranks);
    xccl_free(hier->in.first);
}

static void emit(struct xccl_builder *builder, const struct xccl_generator_for *what,
                 enum xccl_coll coll, void (*emit_all)(struct hier *hier))
{
    struct hier hier = {.builder = builder, .what = what};

    if (what->nranks == 1) {
        struct xccl_gen gen = xccl_gen_begin(builder);

        if (coll != XCCL_COLL_BARRIER)
            xccl_gen_alone(&gen, xccl_coll_reduces(coll) ? WHOLE : 0, 1);
        return;
    }
    hier.rc = xccl_hier_plan(coll, what, &hier.nchunks);
    if (!hier.rc)
        hier.rc = xccl_hier_layout_make(what, &hier.layout);
    if (!hier.rc)
        emit_layout(&hier, emit_all);
    if (hier.rc)
        xccl_build_break(builder, hier.rc);
    xccl_hier_layout_free(&hier.layout);
}

static void hier_all_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    emit(builder, what, XCCL_COLL_ALL_REDUCE, all_reduce);
}

static void hier_reduce_scatter(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    emit(builder, what, XCCL_COLL_REDUCE_SCATTER, reduce_scatter);
}

static void hier_all_gather(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    emit(builder, what, XCCL_COLL_ALL_GATHER, all_gather);
}

static void hier_broadcast(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    emit(builder, what, XCCL_COLL_BROADCAST, broadcast);
}

static void hier_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    emit(builder, what, XCCL_COLL_REDUCE, reduce);
}

static void hier_barrier(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    emit(builder, what, XCCL_COLL_BARRIER, barrier);
}

const struct xccl_generator xccl_generator_hier_all_reduce = {
    .name = "hier",
    .coll = XCCL_COLL_ALL_REDUCE,
    .help = "reduce-scatter in each node, all-reduce between nodes, all-gather in each node",
    .emit = hier_all_reduce,
    .plan = xccl_hier_plan,
};

const struct xccl_generator xccl_generator_hier_reduce_scatter = {
    .name = "hier",
    .coll = XCCL_COLL_REDUCE_SCATTER,
    .help = "first in each node, then between ranks of the same number in different nodes",
    .emit = hier_reduce_scatter,
    .plan = xccl_hier_plan,
};

const struct xccl_generator xccl_generator_hier_all_gather = {
    .name = "hier",
    .coll = XCCL_COLL_ALL_GATHER,
    .help = "first between ranks of the same number in different nodes, then in each node",
    .emit = hier_all_gather,
    .plan = xccl_hier_plan,
};

const struct xccl_generator xccl_generator_hier_broadcast = {
    .name = "hier",
    .coll = XCCL_COLL_BROADCAST,
    .help = "to one rank of each node, then in each node",
    .emit = hier_broadcast,
    .plan = xccl_hier_plan,
};

const struct xccl_generator xccl_generator_hier_reduce = {
    .name = "hier",
    .coll = XCCL_COLL_REDUCE,
    .help = "in each node, then from one rank of each node",
    .emit = hier_reduce,
    .plan = xccl_hier_plan,
};

const struct xccl_generator xccl_generator_hier_barrier = {
    .name = "hier",
    .coll = XCCL_COLL_BARRIER,
    .help = "in each node, then between nodes",
    .emit = hier_barrier,
    .plan = xccl_hier_plan,
};
