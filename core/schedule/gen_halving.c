/* SPDX-License-Identifier: BSD-3-Clause */
/* Recursive doubling (rd), and halving and doubling (rhd; Thakur 2005, Rabenseifner 2004). Let p be
 * the largest power of two up to n. Of the first 2(n - p) ranks the odd ones give their part to the
 * rank below and get the result from it; the others are places 0 to p - 1, and place v exchanges
 * with places v ^ p/2, v ^ p/4, ... v ^ 1, in this order also where nothing is halved: all of these
 * algorithms add up every element in the same order on all ranks, so one can stand in for another
 * without a changed bit.
 *
 * Slots needed: one. Thread: any. */
#include "schedule/gen_int.h"

enum role { ALONE, GIVES, TAKES, PLAIN };

struct place {
    int n, p, extra; /* extra: ranks that give */
    int levels; /* p = 2^levels */
    enum role role;
    int at;
    int conns; /* those of the exchanges, from the first on */
    int fold_send, fold_recv; /* between a rank that gives and the one that takes */
};

/* The rank at a place. It is also the first chunk of the place, where each rank has a chunk: a
 * place that takes has the next one too. */
static int rank_at(const struct place *h, int at)
{
    return at < h->extra ? 2 * at : at + h->extra;
}

static struct place place_of(const struct xccl_generator_for *what)
{
    struct place h = {.n = what->nranks, .p = 1};

    while (2 * h.p <= h.n) {
        h.p *= 2;
        h.levels++;
    }
    h.extra = h.n - h.p;
    if (h.n == 1)
        h.role = ALONE;
    else if (what->rank >= 2 * h.extra)
        h.role = PLAIN;
    else
        h.role = what->rank % 2 ? GIVES : TAKES;
    h.at = h.role == TAKES ? what->rank / 2 : what->rank - h.extra;
    return h;
}

static int distance(const struct place *h, int level)
{
    return h->p >> (level + 1);
}

/* The connections to the partners of levels 0, 1, ... and then, in the opposite order, those from
 * them: the exchanges of two levels must not become one, whose sends may run ahead. */
static int conn_to(const struct place *h, int level)
{
    return h->conns + level;
}

static int conn_from(const struct place *h, int level)
{
    return h->conns + 2 * h->levels - 1 - level;
}

static void make_conns(const struct xccl_gen *gen, const struct xccl_generator_for *what,
                       struct place *h)
{
    int fold_peer = h->role == GIVES ? what->rank - 1 : what->rank + 1;

    for (int i = 0; i < 2 * h->levels && h->role != GIVES; i++) {
        int level = i < h->levels ? i : 2 * h->levels - 1 - i;
        int peer = rank_at(h, h->at ^ distance(h, level));
        int conn = i < h->levels ? xccl_gen_send_to(gen, peer, 0)
                                 : xccl_gen_recv_from(gen, peer, 0);

        if (i == 0)
            h->conns = conn;
    }
    if (h->role == GIVES || h->role == TAKES) {
        h->fold_send = xccl_gen_send_to(gen, fold_peer, 0);
        h->fold_recv = xccl_gen_recv_from(gen, fold_peer, 0);
    }
}

/* ---- all-reduce ---- */

/* Puts into OUT what the exchanges begin with: this rank's part of the chunks it keeps, or the sum
 * of its part with that of the rank above, of all nchunks. 0: the rank takes no part in the
 * exchanges, and all it has to do is done. */
static int all_reduce_begin(const struct xccl_gen *gen, const struct place *h, int nchunks,
                            struct xccl_chunks kept)
{
    struct xccl_chunks in = xccl_gen_chunks(XCCL_BUFFER_IN, 0, nchunks, 1);
    struct xccl_chunks out = xccl_gen_chunks(XCCL_BUFFER_OUT, 0, nchunks, 1);

    if (h->role == ALONE) {
        xccl_gen_alone(gen, XCCL_FLAG_PRE | XCCL_FLAG_POST, nchunks);
        return 0;
    }
    if (h->role == GIVES) {
        xccl_gen_send(gen, XCCL_FLAG_PRE, in, h->fold_send);
        xccl_gen_recv(gen, out, h->fold_recv);
        return 0;
    }
    if (h->role == TAKES) {
        xccl_gen_add(gen, XCCL_FLAG_PRE, in, out, h->fold_recv);
        return 1;
    }
    in = kept;
    in.buffer = XCCL_BUFFER_IN;
    xccl_gen_copy(gen, XCCL_FLAG_PRE, in, kept);
    return 1;
}

static void rd_all_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct place h = place_of(what);

    make_conns(&gen, what, &h);
    if (!all_reduce_begin(&gen, &h, 1, xccl_gen_out(0)))
        return;
    for (int l = 0; l < h.levels; l++)
        xccl_gen_exchange_add(&gen, l == h.levels - 1 ? XCCL_FLAG_POST : 0, xccl_gen_out(0),
                              xccl_gen_out(0), conn_from(&h, l), conn_to(&h, l));
    if (h.role == TAKES)
        xccl_gen_send(&gen, 0, xccl_gen_out(0), h.fold_send);
}

/* The chunks that a place keeps at a level, with one chunk a place. */
static struct xccl_chunks kept_by(const struct place *h, int at, int level)
{
    int d = distance(h, level);

    return xccl_gen_chunks(XCCL_BUFFER_OUT, at & -d, d, 1);
}

static void rhd_all_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct place h = place_of(what);

    make_conns(&gen, what, &h);
    if (!all_reduce_begin(&gen, &h, h.p, h.levels ? kept_by(&h, h.at, 0) : xccl_gen_out(0)))
        return;
    for (int l = 0; l < h.levels; l++) {
        struct xccl_chunks theirs = kept_by(&h, h.at ^ distance(&h, l), l);
        uint8_t flags = l == h.levels - 1 ? XCCL_FLAG_POST : 0;

        if (l == 0 && h.role == PLAIN) {
            theirs.buffer = XCCL_BUFFER_IN;
            flags |= XCCL_FLAG_PRE;
        }
        xccl_gen_exchange_add(&gen, flags, theirs, kept_by(&h, h.at, l), conn_from(&h, l),
                              conn_to(&h, l));
    }
    for (int l = h.levels - 1; l >= 0; l--)
        xccl_gen_exchange(&gen, kept_by(&h, h.at, l), kept_by(&h, h.at ^ distance(&h, l), l),
                          conn_from(&h, l), conn_to(&h, l));
    if (h.role == TAKES)
        xccl_gen_send(&gen, 0, xccl_gen_chunks(XCCL_BUFFER_OUT, 0, h.p, 1), h.fold_send);
}

static int power_of_two(const struct xccl_generator_for *what)
{
    return place_of(what).p;
}

/* ---- reduce-scatter and all-gather, one chunk a rank ---- */

/* The chunks of the places that a place stands for at a level; base: the number of the buffer's
 * first chunk. */
static struct xccl_chunks owned_by(const struct place *h, int at, int level,
                                   enum xccl_step_buffer buffer, int base)
{
    int d = distance(h, level), first = rank_at(h, at & -d);

    return xccl_gen_chunks(buffer, first - base, rank_at(h, (at & -d) + d) - first, 1);
}

/* Message by message in turns, so that one slot does. The result of the rank above, if there is
 * one, goes on to it. */
static void rs_last_level(const struct xccl_gen *gen, const struct place *h, int base)
{
    int level = h->levels - 1, from_in = level == 0 && h->role == PLAIN;
    enum xccl_step_buffer buffer = from_in ? XCCL_BUFFER_IN : XCCL_BUFFER_SCRATCH;
    uint8_t pre = from_in ? XCCL_FLAG_PRE : 0;
    struct xccl_chunks mine = owned_by(h, h->at, level, buffer, from_in ? 0 : base);
    struct xccl_chunks theirs = owned_by(h, h->at ^ 1, level, buffer, from_in ? 0 : base);
    int sconn = conn_to(h, level), rconn = conn_from(h, level);

    xccl_gen_send(gen, pre, XCCL_ONE_CHUNK(buffer, theirs.first), sconn);
    xccl_gen_add(gen, pre | XCCL_FLAG_POST, XCCL_ONE_CHUNK(buffer, mine.first), xccl_gen_out(0),
                 rconn);
    if (theirs.count > 1)
        xccl_gen_send(gen, pre, XCCL_ONE_CHUNK(buffer, theirs.first + 1), sconn);
    if (mine.count > 1)
        xccl_gen_add_send(gen, pre | XCCL_FLAG_POST, XCCL_ONE_CHUNK(buffer, mine.first + 1), rconn,
                          h->fold_send);
}

/* Partial sums are in scratch memory: all chunks where a rank gives, else the first half kept. */
static void rhd_reduce_scatter(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct place h = place_of(what);
    struct xccl_chunks in = xccl_gen_chunks(XCCL_BUFFER_IN, 0, h.n, 1);
    int base;

    if (h.role == ALONE) {
        xccl_gen_alone(&gen, XCCL_FLAG_PRE | XCCL_FLAG_POST, 1);
        return;
    }
    make_conns(&gen, what, &h);
    if (h.role == GIVES) {
        xccl_gen_send(&gen, XCCL_FLAG_PRE, in, h.fold_send);
        xccl_gen_recv(&gen, xccl_gen_out(0), h.fold_recv);
        return;
    }
    base = h.role == TAKES ? 0 : owned_by(&h, h.at, 0, XCCL_BUFFER_IN, 0).first;
    if (h.role == TAKES)
        xccl_gen_add(&gen, XCCL_FLAG_PRE, in, xccl_gen_chunks(XCCL_BUFFER_SCRATCH, 0, h.n, 1),
                     h.fold_recv);
    else if (h.levels > 1)
        xccl_gen_copy(&gen, XCCL_FLAG_PRE, owned_by(&h, h.at, 0, XCCL_BUFFER_IN, 0),
                      owned_by(&h, h.at, 0, XCCL_BUFFER_SCRATCH, base));
    for (int l = 0; l < h.levels - 1; l++) {
        int from_in = l == 0 && h.role == PLAIN;

        xccl_gen_exchange_add(
            &gen, from_in ? XCCL_FLAG_PRE : 0,
            owned_by(&h, h.at ^ distance(&h, l), l, from_in ? XCCL_BUFFER_IN : XCCL_BUFFER_SCRATCH,
                     from_in ? 0 : base),
            owned_by(&h, h.at, l, XCCL_BUFFER_SCRATCH, base), conn_from(&h, l), conn_to(&h, l));
    }
    rs_last_level(&gen, &h, base);
}

static void rhd_all_gather(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct place h = place_of(what);
    int n = what->nranks, r = what->rank;

    if (h.role == ALONE) {
        xccl_gen_alone(&gen, 0, 1);
        return;
    }
    make_conns(&gen, what, &h);
    if (h.role == GIVES) {
        xccl_gen_copy_send(&gen, xccl_gen_in(0), xccl_gen_out(r), h.fold_send);
        xccl_gen_recv(&gen, xccl_gen_chunks(XCCL_BUFFER_OUT, r + 1, n - 1, 1), h.fold_recv);
        return;
    }
    xccl_gen_copy(&gen, 0, xccl_gen_in(0), xccl_gen_out(r));
    if (h.role == TAKES)
        xccl_gen_recv(&gen, xccl_gen_out(r + 1), h.fold_recv);
    for (int l = h.levels - 1; l >= 0; l--)
        xccl_gen_exchange(&gen, owned_by(&h, h.at, l, XCCL_BUFFER_OUT, 0),
                          owned_by(&h, h.at ^ distance(&h, l), l, XCCL_BUFFER_OUT, 0),
                          conn_from(&h, l), conn_to(&h, l));
    if (h.role == TAKES)
        xccl_gen_send(&gen, 0, xccl_gen_chunks(XCCL_BUFFER_OUT, r + 2, n - 1, 1), h.fold_send);
}

const struct xccl_generator xccl_generator_rd_all_reduce = {
    .name = "rd",
    .coll = XCCL_COLL_ALL_REDUCE,
    .help = "recursive doubling: log n exchanges of everything, one order of summing",
    .slots = 1,
    .takes_order = 1,
    .chunks = xccl_gen_one_chunk,
    .emit = rd_all_reduce,
};

const struct xccl_generator xccl_generator_rhd_all_reduce = {
    .name = "rhd",
    .coll = XCCL_COLL_ALL_REDUCE,
    .help = "halving and doubling: 2 log n exchanges, the bits of rd; best for n = 2^k",
    .slots = 1,
    .takes_order = 1,
    .chunks = power_of_two,
    .emit = rhd_all_reduce,
};

const struct xccl_generator xccl_generator_rhd_reduce_scatter = {
    .name = "rhd",
    .coll = XCCL_COLL_REDUCE_SCATTER,
    .help = "recursive halving: log n exchanges, the bits of rd; best for n = 2^k",
    .slots = 1,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = rhd_reduce_scatter,
};

const struct xccl_generator xccl_generator_rhd_all_gather = {
    .name = "rhd",
    .coll = XCCL_COLL_ALL_GATHER,
    .help = "recursive doubling: log n exchanges; best for n = 2^k",
    .slots = 1,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = rhd_all_gather,
};
