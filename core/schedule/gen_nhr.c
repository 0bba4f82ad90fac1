/* SPDX-License-Identifier: BSD-3-Clause */
/* Nonuniform hierarchical ring (nhr) and nonuniform Bruck (nb): log n exchanges for any n, without
 * a fold. Reduce-scatter: in step s with d = 2^s a rank sends its partial sums of the chunks at
 * offsets d, 3d, 5d, ... from its own rank to the rank at distance d, and adds what comes from the
 * other side to those at offsets 0, 2d, 4d, ...; offsets are below n and count downwards for nhr,
 * where the largest messages go to the nearest rank, and upwards for nb. All-gather: nhr replays
 * that backwards; nb sends the contiguous chunks it has, and the largest message goes farthest.
 *
 * An offset is first added to in step 0 if it is even; odd ones are sent from IN in step 0, and so
 * is offset n - 1 of an odd n, which nobody adds to, in its step. Slots needed: one. Thread: any.
 */
#include "schedule/gen_int.h"

struct shape {
    int n, r;
    int steps;
    int way; /* of offsets: -1 for nhr, 1 for nb */
    int last_untouched; /* offset n - 1 is even: only read, and only once */
    int conns; /* of the reduction: see xccl_gen_doubling_conns */
    enum xccl_step_buffer partial; /* where partial sums are */
};

static struct shape shape_of(const struct xccl_generator_for *what, int way,
                             enum xccl_step_buffer partial)
{
    return (struct shape){.n = what->nranks,
                          .r = what->rank,
                          .steps = xccl_gen_log2_up(what->nranks),
                          .way = way,
                          .last_untouched = what->nranks % 2,
                          .partial = partial};
}

/* count partial sums at offsets first, first + stride, ... Scratch has the even offsets only. */
static struct xccl_chunks partials(const struct shape *s, int first, int count, int stride)
{
    if (s->partial == XCCL_BUFFER_SCRATCH)
        return xccl_gen_chunks(XCCL_BUFFER_SCRATCH, first / 2, count, stride / 2);
    return xccl_gen_chunks(s->partial, s->r + s->way * first, count, s->way * stride);
}

static struct xccl_chunks inputs(const struct shape *s, int first, int count, int stride)
{
    return xccl_gen_chunks(XCCL_BUFFER_IN, s->r + s->way * first, count, s->way * stride);
}

/* Own parts of what is added to. In OUT there is room for offset n - 1 too. */
static void reduce_begin(const struct xccl_gen *gen, const struct shape *s)
{
    int count = s->partial == XCCL_BUFFER_OUT ? (s->n + 1) / 2 : s->n / 2;

    xccl_gen_copy(gen, XCCL_FLAG_PRE, inputs(s, 0, count, 2), partials(s, 0, count, 2));
}

/* Step i of the reduction. */
static void reduce_step(const struct xccl_gen *gen, const struct shape *s, int i)
{
    int d = 1 << i, count = xccl_gen_below(s->n, d, 2 * d);
    int last = d + 2 * d * (count - 1);
    int sconn = s->conns + i, rconn = s->conns + 2 * s->steps - 1 - i;
    uint8_t flags = s->partial == XCCL_BUFFER_OUT && i == s->steps - 1 ? XCCL_FLAG_POST : 0;

    if (d == 1) {
        xccl_gen_exchange_add(gen, flags | XCCL_FLAG_PRE, inputs(s, 1, count, 2),
                              partials(s, 0, count, 2), rconn, sconn);
        return;
    }
    if (s->partial != XCCL_BUFFER_SCRATCH || !s->last_untouched || last != s->n - 1) {
        xccl_gen_exchange_add(gen, flags, partials(s, d, count, 2 * d),
                              partials(s, 0, count, 2 * d), rconn, sconn);
        return;
    }
    xccl_gen_exchange_add(gen, flags, partials(s, d, count - 1, 2 * d),
                          partials(s, 0, count - 1, 2 * d), rconn, sconn);
    xccl_gen_exchange_add(gen, flags | XCCL_FLAG_PRE, inputs(s, last, 1, 0),
                          partials(s, last - d, 1, 0), rconn, sconn);
}

/* The last step has one chunk each way, and stores where the result belongs. */
static void reduce_end(const struct xccl_gen *gen, const struct shape *s)
{
    int i = s->steps - 1, d = 1 << i, sconn = s->conns + i, rconn = s->conns + 2 * s->steps - 1 - i;

    if (d == 1 || (s->last_untouched && d == s->n - 1))
        xccl_gen_send(gen, XCCL_FLAG_PRE, inputs(s, d, 1, 0), sconn);
    else
        xccl_gen_send(gen, 0, partials(s, d, 1, 0), sconn);
    if (d == 1)
        xccl_gen_add(gen, XCCL_FLAG_PRE | XCCL_FLAG_POST, inputs(s, 0, 1, 0), xccl_gen_out(0),
                     rconn);
    else
        xccl_gen_add(gen, XCCL_FLAG_POST, partials(s, 0, 1, 0), xccl_gen_out(0), rconn);
}

static void reduce_scatter(struct xccl_builder *builder, const struct xccl_generator_for *what,
                           int way)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct shape s = shape_of(what, way, XCCL_BUFFER_SCRATCH);

    if (s.n == 1) {
        xccl_gen_alone(&gen, XCCL_FLAG_PRE | XCCL_FLAG_POST, 1);
        return;
    }
    s.conns = xccl_gen_doubling_conns(&gen, what, way, 0, 0);
    if (s.steps > 1)
        reduce_begin(&gen, &s);
    for (int i = 0; i < s.steps - 1; i++)
        reduce_step(&gen, &s, i);
    reduce_end(&gen, &s);
}

/* Sends to the ranks above. conns: to the one at distance 2^i conns + i (nb), or, down, the
 * farthest first (nhr). */
static void nhr_gather_steps(const struct xccl_gen *gen, const struct shape *s, int conns)
{
    for (int i = 0; i < s->steps; i++) {
        int d = 1 << (s->steps - 1 - i), count = xccl_gen_below(s->n, d, 2 * d);

        xccl_gen_exchange(gen, xccl_gen_chunks(XCCL_BUFFER_OUT, s->r, count, -2 * d),
                          xccl_gen_chunks(XCCL_BUFFER_OUT, s->r - d, count, -2 * d),
                          conns + 2 * s->steps - 1 - i, conns + i);
    }
}

static void nb_gather_steps(const struct xccl_gen *gen, const struct shape *s, int conns)
{
    for (int i = 0; i < s->steps; i++) {
        int d = 1 << i, count = xccl_gen_min(d, s->n - d);

        xccl_gen_exchange(gen, xccl_gen_chunks(XCCL_BUFFER_OUT, s->r, count, -1),
                          xccl_gen_chunks(XCCL_BUFFER_OUT, s->r - d, count, -1),
                          conns + 2 * s->steps - 1 - i, conns + i);
    }
}

/* nb gathers over the connections that it reduced over; nhr needs those of the other direction. */
static void all_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what, int way)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct shape s = shape_of(what, way, XCCL_BUFFER_OUT);

    if (s.n == 1) {
        xccl_gen_alone(&gen, XCCL_FLAG_PRE | XCCL_FLAG_POST, 1);
        return;
    }
    s.conns = xccl_gen_doubling_conns(&gen, what, way, 0, 0);
    reduce_begin(&gen, &s);
    for (int i = 0; i < s.steps; i++)
        reduce_step(&gen, &s, i);
    if (way > 0)
        nb_gather_steps(&gen, &s, s.conns);
    else
        nhr_gather_steps(&gen, &s, xccl_gen_doubling_conns(&gen, what, 1, 1, 1));
}

static void all_gather(struct xccl_builder *builder, const struct xccl_generator_for *what, int way)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct shape s = shape_of(what, way, XCCL_BUFFER_OUT);
    int conns;

    if (s.n == 1) {
        xccl_gen_alone(&gen, 0, 1);
        return;
    }
    conns = xccl_gen_doubling_conns(&gen, what, 1, way < 0, 0);
    xccl_gen_copy(&gen, 0, xccl_gen_in(0), xccl_gen_out(s.r));
    if (way > 0)
        nb_gather_steps(&gen, &s, conns);
    else
        nhr_gather_steps(&gen, &s, conns);
}

/* ---- the table's entries ---- */

static void nhr_all_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    all_reduce(builder, what, -1);
}

static void nhr_reduce_scatter(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    reduce_scatter(builder, what, -1);
}

static void nhr_all_gather(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    all_gather(builder, what, -1);
}

static void nb_all_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    all_reduce(builder, what, 1);
}

static void nb_reduce_scatter(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    reduce_scatter(builder, what, 1);
}

static void nb_all_gather(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    all_gather(builder, what, 1);
}

const struct xccl_generator xccl_generator_nhr_all_reduce = {
    .name = "nhr",
    .coll = XCCL_COLL_ALL_REDUCE,
    .help = "nonuniform hierarchical ring: 2 log n hops for any n, near ranks most, least bytes",
    .slots = 1,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = nhr_all_reduce,
};

const struct xccl_generator xccl_generator_nhr_reduce_scatter = {
    .name = "nhr",
    .coll = XCCL_COLL_REDUCE_SCATTER,
    .help = "nonuniform hierarchical ring: log n hops for any n, near ranks most, least bytes",
    .slots = 1,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = nhr_reduce_scatter,
};

const struct xccl_generator xccl_generator_nhr_all_gather = {
    .name = "nhr",
    .coll = XCCL_COLL_ALL_GATHER,
    .help = "nonuniform hierarchical ring: log n hops for any n, near ranks most, least bytes",
    .slots = 1,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = nhr_all_gather,
};

const struct xccl_generator xccl_generator_nb_all_reduce = {
    .name = "nb",
    .coll = XCCL_COLL_ALL_REDUCE,
    .help = "nonuniform Bruck: 2 log n hops for any n, contiguous all-gather, least bytes",
    .slots = 1,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = nb_all_reduce,
};

const struct xccl_generator xccl_generator_nb_reduce_scatter = {
    .name = "nb",
    .coll = XCCL_COLL_REDUCE_SCATTER,
    .help = "nonuniform Bruck: log n hops for any n, least bytes",
    .slots = 1,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = nb_reduce_scatter,
};

const struct xccl_generator xccl_generator_nb_all_gather = {
    .name = "nb",
    .coll = XCCL_COLL_ALL_GATHER,
    .help = "nonuniform Bruck: log n hops for any n, contiguous messages, least bytes",
    .slots = 1,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = nb_all_gather,
};
