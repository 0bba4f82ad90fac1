/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of hierarchies: which ranks they are, what they find in their buffers, and the generator
 * that is run for them in a scope. Of what is several chunks to a part, PARTS go at a time, which
 * bounds the slots. Thread: any. */
#include "schedule/gen_hier_int.h"

#include <stdlib.h>

#include "base/alloc.h"

#define PARTS 4
#define WHOLE (XCCL_FLAG_PRE | XCCL_FLAG_POST)

/* ---- sides ---- */

void xccl_hier_side_begin(struct xccl_hier_side *side, enum xccl_step_buffer buffer)
{
    side->buffer = buffer;
    side->count = 0;
    side->first[0] = 0;
    side->first[1] = 0;
}

void xccl_hier_side_put(struct xccl_hier_side *side, int chunk)
{
    side->chunks[side->first[side->count + 1]++] = (uint16_t)chunk;
}

void xccl_hier_side_next(struct xccl_hier_side *side)
{
    side->count++;
    side->first[side->count + 1] = side->first[side->count];
}

void xccl_hier_side_even(struct xccl_hier_side *side, enum xccl_step_buffer buffer, int first,
                         int width, int count)
{
    xccl_hier_side_begin(side, buffer);
    for (int c = 0; c < count; c++) {
        for (int i = 0; i < width; i++)
            xccl_hier_side_put(side, first + c * width + i);
        xccl_hier_side_next(side);
    }
}

/* ---- one part ---- */

static uint32_t longest(const struct xccl_hier_side *side)
{
    uint32_t most = 0;

    for (int c = 0; c < side->count; c++)
        if (side->first[c + 1] - side->first[c] > most)
            most = side->first[c + 1] - side->first[c];
    return most;
}

static void emit_scope(struct xccl_hier *hier, const struct xccl_hier_part *part,
                       struct xccl_build_scope *scope)
{
    const struct xccl_hier_side *in = &hier->in, *out = &hier->out;
    const struct xccl_generator *generator;
    struct xccl_generator_for inside;
    int most = (int)longest(in), nchunks;

    if (!hier->rc)
        hier->rc = xccl_hier_choose(hier->what, &hier->layout, part, &generator, &inside, &nchunks);
    if (hier->rc)
        return;
    scope->in = (struct xccl_build_side){in->buffer, in->count, in->first, in->chunks};
    scope->out = (struct xccl_build_side){out->buffer, out->count, out->first, out->chunks};
    scope->nparts = PARTS;
    most = (int)longest(out) > most ? (int)longest(out) : most;
    do {
        xccl_build_enter(hier->builder, scope);
        generator->emit(hier->builder, &inside);
        xccl_build_leave(hier->builder);
        scope->part += PARTS;
        scope->again = 1;
    } while (scope->part < most);
}

void xccl_hier_emit_part(struct xccl_hier *hier, const struct xccl_hier_part *part, int id,
                         uint8_t clear, int scratch0)
{
    emit_scope(hier, part,
               &(struct xccl_build_scope){.ranks = hier->ranks,
                                          .nranks = part->nranks,
                                          .id0 = XCCL_HIER_IDS * id,
                                          .nids = XCCL_HIER_IDS,
                                          .clear = clear,
                                          .scratch0 = scratch0});
}

void xccl_hier_emit_more(struct xccl_hier *hier, const struct xccl_hier_part *part, int id,
                         int scratch0)
{
    emit_scope(hier, part,
               &(struct xccl_build_scope){.ranks = hier->ranks,
                                          .nranks = part->nranks,
                                          .id0 = XCCL_HIER_IDS * id,
                                          .nids = XCCL_HIER_IDS,
                                          .scratch0 = scratch0,
                                          .again = 1});
}

static int by_number(const void *a_, const void *b_)
{
    const uint16_t *a = a_, *b = b_;

    return *a < *b ? -1 : *a > *b;
}

int xccl_hier_ranks_sort(struct xccl_hier *hier, int count, int rank)
{
    int at = 0;

    qsort(hier->ranks, (size_t)count, sizeof(*hier->ranks), by_number);
    while (hier->ranks[at] != rank)
        at++;
    return at;
}

struct xccl_hier_part xccl_hier_inner_part(struct xccl_hier *hier, enum xccl_coll coll)
{
    for (int i = 0; i < hier->size; i++)
        hier->ranks[i] = (uint16_t)xccl_hier_member(&hier->layout, hier->node, i);
    return (struct xccl_hier_part){.coll = coll, .nranks = hier->size, .rank = hier->place};
}

int xccl_hier_block_of(const struct xccl_hier_layout *layout, int node, int j)
{
    return j < xccl_hier_size(layout, node) ? xccl_hier_member(layout, node, j) : -1;
}

struct xccl_hier_part xccl_hier_rail_part(struct xccl_hier *hier, enum xccl_coll coll, int j)
{
    const struct xccl_hier_layout *layout = &hier->layout;
    struct xccl_hier_part part = {.coll = coll, .outer = 1, .nranks = layout->nnodes};

    for (int node = 0; node < layout->nnodes; node++)
        hier->ranks[node] = (uint16_t)xccl_hier_member(layout, node,
                                                       j % xccl_hier_size(layout, node));
    part.rank = xccl_hier_ranks_sort(hier, layout->nnodes, hier->what->rank);
    return part;
}

int xccl_hier_leader_of(const struct xccl_hier *hier, int node)
{
    int root = hier->what->root;

    return hier->layout.at[root] == node ? root : xccl_hier_member(&hier->layout, node, 0);
}

struct xccl_hier_part xccl_hier_leaders_part(struct xccl_hier *hier, enum xccl_coll coll)
{
    struct xccl_hier_part part = {.coll = coll, .outer = 1, .nranks = hier->layout.nnodes};

    for (int node = 0; node < hier->layout.nnodes; node++)
        hier->ranks[node] = (uint16_t)xccl_hier_leader_of(hier, node);
    part.root = xccl_hier_ranks_sort(hier, part.nranks, hier->what->root);
    part.rank = xccl_hier_ranks_sort(hier, part.nranks, xccl_hier_leader_of(hier, hier->node));
    return part;
}

struct xccl_hier_part xccl_hier_led_part(struct xccl_hier *hier, enum xccl_coll coll)
{
    struct xccl_hier_part part = xccl_hier_inner_part(hier, coll);

    part.root = hier->layout.place[xccl_hier_leader_of(hier, hier->node)];
    return part;
}

/* ---- shares ---- */

/* Slices s to end, which have the same owners. */
static void emit_slices(struct xccl_hier *hier, enum xccl_coll coll,
                        const struct xccl_hier_owned *owned, int slices, int s, int end, int id)
{
    const struct xccl_hier_layout *layout = &hier->layout;
    struct xccl_hier_part part = {.coll = coll, .outer = 1, .nranks = layout->nnodes};
    int chunks = hier->nchunks / slices; /* of a slice */
    int past = (s - slices / hier->size * hier->place) * chunks, root = 0;

    for (int node = 0; node < layout->nnodes; node++) {
        int owner = xccl_hier_member(layout, node, s / (slices / xccl_hier_size(layout, node)));

        hier->ranks[node] = (uint16_t)owner;
        root = node == layout->at[hier->what->root] ? owner : root;
    }
    part.root = xccl_hier_ranks_sort(hier, layout->nnodes, root);
    part.rank = xccl_hier_ranks_sort(hier, layout->nnodes, hier->what->rank);
    xccl_hier_side_even(&hier->in, owned->in, owned->in_at + past, end - s, chunks);
    xccl_hier_side_even(&hier->out, owned->out, owned->out_at + past, end - s, chunks);
    xccl_hier_emit_part(hier, &part, id, owned->clear, owned->scratch0);
}

void xccl_hier_emit_owned(struct xccl_hier *hier, enum xccl_coll coll,
                          const struct xccl_hier_owned *owned)
{
    int slices = xccl_hier_slices(&hier->layout), share = slices / hier->size, end;

    for (int s = 0, id = 2; s < slices; s = end, id++) {
        end = xccl_hier_owners_end(&hier->layout, slices, s);
        if (s >= share * hier->place && s < share * (hier->place + 1))
            emit_slices(hier, coll, owned, slices, s, end, id);
    }
}

/* ---- all parts ---- */

/* Room for the tables of one part. */
static xcclResult_t tables_make(struct xccl_hier *hier, enum xccl_coll coll)
{
    size_t ranks = (size_t)hier->what->nranks, firsts = (size_t)hier->nchunks + 2;
    /* The last is for scratch memory of an all-to-all. */
    size_t chunks = firsts + (coll == XCCL_COLL_ALL_TO_ALL ? (size_t)hier->size * ranks : 0);

    hier->in.first = xccl_calloc(
        2 * (firsts * sizeof(*hier->in.first) + chunks * sizeof(*hier->in.chunks)), 1);
    hier->ranks = hier->in.first ? xccl_calloc(ranks, sizeof(*hier->ranks)) : NULL;
    if (!hier->ranks) {
        xccl_free(hier->in.first);
        return xcclSystemError;
    }
    hier->out.first = hier->in.first + firsts;
    hier->in.chunks = (uint16_t *)(hier->out.first + firsts);
    hier->out.chunks = hier->in.chunks + chunks;
    return xcclSuccess;
}

static void emit_layout(struct xccl_hier *hier, enum xccl_coll coll,
                        void (*emit_all)(struct xccl_hier *hier))
{
    hier->node = hier->layout.at[hier->what->rank];
    hier->size = xccl_hier_size(&hier->layout, hier->node);
    hier->place = hier->layout.place[hier->what->rank];
    hier->rc = tables_make(hier, coll);
    if (hier->rc)
        return;
    emit_all(hier);
    xccl_free(hier->ranks);
    xccl_free(hier->in.first);
}

void xccl_hier_emit(struct xccl_builder *builder, const struct xccl_generator_for *what,
                    const struct xccl_generator *of, void (*emit_all)(struct xccl_hier *hier))
{
    struct xccl_hier hier = {.builder = builder, .what = what};
    enum xccl_coll coll = of->coll;

    if (what->nranks == 1) {
        struct xccl_gen gen = xccl_gen_begin(builder);

        if (coll != XCCL_COLL_BARRIER)
            xccl_gen_alone(&gen, xccl_coll_reduces(coll) ? WHOLE : 0, 1);
        return;
    }
    hier.rc = of->plan(coll, what, &hier.nchunks);
    if (!hier.rc)
        hier.rc = xccl_hier_layout_make(what, &hier.layout);
    if (!hier.rc)
        emit_layout(&hier, coll, emit_all);
    if (hier.rc)
        xccl_build_break(builder, xccl_generator_told(hier.rc));
    xccl_hier_layout_free(&hier.layout);
}
