/* SPDX-License-Identifier: BSD-3-Clause */
/* Binomial tree. Places are counted from the root; the one at place p > 0 hangs below p minus its
 * lowest bit, and its subtree is the places from p up to p plus that bit. Large subtrees are served
 * first on the way down and last on the way up.
 *
 * Scatter and gather pass on what belongs to others message by message and never store it: a
 * subtree's chunks go down from its last place to its first, and up from its first to its last, so
 * that an inner rank's children have theirs one behind the other. Slots needed: one. Thread: any.
 */
#include "schedule/gen_int.h"

struct place {
    int n, root, at;
    int span; /* how far the subtree would reach in a tree of 2^k */
};

static struct place place_of(const struct xccl_generator_for *what)
{
    struct place p = {.n = what->nranks, .root = what->root};

    p.at = xccl_gen_mod(what->rank - what->root, p.n);
    p.span = p.at ? xccl_gen_low_bit(p.at) : 1 << xccl_gen_log2_up(p.n);
    return p;
}

static int rank_at(const struct place *p, int at)
{
    return (p->root + at) % p->n;
}

/* Places in the subtree of the child at that distance; 0: there is no such child. */
static int child_size(const struct place *p, int distance)
{
    int first = p->at + distance;

    return first < p->n ? xccl_gen_min(distance, p->n - first) : 0;
}

static int parent_of(const struct place *p)
{
    return rank_at(p, p->at - xccl_gen_low_bit(p->at));
}

/* Connections to the children, the largest subtree first; how many. */
static int conns_down(const struct xccl_gen *gen, const struct place *p, int *first_out)
{
    int count = 0;

    for (int d = p->span / 2; d > 0; d /= 2) {
        int conn;

        if (!child_size(p, d))
            continue;
        conn = xccl_build_conn(gen->builder, gen->lane, XCCL_CONN_SEND, rank_at(p, p->at + d), 0,
                               count > 0);
        if (count++ == 0)
            *first_out = conn;
    }
    return count;
}

/* Connections from the children, the smallest subtree first; how many. */
static int conns_up(const struct xccl_gen *gen, const struct place *p, int *first_out)
{
    int count = 0;

    for (int d = 1; d < p->span && child_size(p, d); d *= 2) {
        int conn = xccl_build_conn(gen->builder, gen->lane, XCCL_CONN_RECV, rank_at(p, p->at + d),
                                   0, count > 0);

        if (count++ == 0)
            *first_out = conn;
    }
    return count;
}

/* One step: from the parent or IN to OUT and all children. */
static void binomial_broadcast(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct place p = place_of(what);
    struct xccl_emit emit = {.op = XCCL_STEP_DST, .src = xccl_gen_in(0), .dst = xccl_gen_out(0)};

    if (p.at == 0) {
        emit.op |= XCCL_STEP_SRC;
    } else {
        emit.op |= XCCL_STEP_RECV;
        emit.rconn = xccl_gen_recv_from(&gen, parent_of(&p), 0);
        emit.nrecv = 1;
    }
    if (conns_down(&gen, &p, &emit.sconn) > 0) {
        emit.op |= XCCL_STEP_SEND;
        emit.nsend = XCCL_FAN_ALL;
    }
    xccl_gen_step(&gen, &emit);
}

/* One step: IN and all children to the parent or OUT. */
static void binomial_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct place p = place_of(what);
    struct xccl_emit emit = {
        .op = XCCL_STEP_SRC, .flags = XCCL_FLAG_PRE, .src = xccl_gen_in(0), .dst = xccl_gen_out(0)};

    if (conns_up(&gen, &p, &emit.rconn) > 0) {
        emit.op |= XCCL_STEP_RECV;
        emit.nrecv = XCCL_FAN_ALL;
    }
    if (p.at == 0) {
        emit.op |= XCCL_STEP_DST;
        emit.flags |= XCCL_FLAG_POST;
    } else {
        emit.op |= XCCL_STEP_SEND;
        emit.sconn = xccl_gen_send_to(&gen, parent_of(&p), 0);
        emit.nsend = 1;
    }
    xccl_gen_step(&gen, &emit);
}

static void binomial_scatter(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct place p = place_of(what);
    int parent = 0, child = 0;

    if (p.at > 0)
        parent = xccl_gen_recv_from(&gen, parent_of(&p), 0);
    (void)conns_down(&gen, &p, &child);
    for (int d = p.span / 2; d > 0; d /= 2) {
        int size = child_size(&p, d);

        if (!size)
            continue;
        if (p.at > 0)
            xccl_gen_relay(&gen, size, parent, child);
        else
            xccl_gen_send(&gen, 0,
                          xccl_gen_chunks(XCCL_BUFFER_IN, rank_at(&p, d + size - 1), size, -1),
                          child);
        child++;
    }
    if (p.at > 0)
        xccl_gen_recv(&gen, xccl_gen_out(0), parent);
    else
        xccl_gen_copy(&gen, 0, xccl_gen_in(what->rank), xccl_gen_out(0));
}

static void binomial_gather(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct place p = place_of(what);
    int parent = 0, child = 0;

    if (p.at > 0)
        parent = xccl_gen_send_to(&gen, parent_of(&p), 0);
    (void)conns_up(&gen, &p, &child);
    if (p.at > 0)
        xccl_gen_send(&gen, 0, xccl_gen_in(0), parent);
    else
        xccl_gen_copy(&gen, 0, xccl_gen_in(0), xccl_gen_out(what->rank));
    for (int d = 1; d < p.span && child_size(&p, d); d *= 2) {
        int size = child_size(&p, d);

        if (p.at > 0)
            xccl_gen_relay(&gen, size, child, parent);
        else
            xccl_gen_recv(&gen, xccl_gen_chunks(XCCL_BUFFER_OUT, rank_at(&p, d), size, 1), child);
        child++;
    }
}

const struct xccl_generator xccl_generator_binomial_broadcast = {
    .name = "binomial",
    .coll = XCCL_COLL_BROADCAST,
    .help = "a tree in which each rank serves up to log n others: log n hops",
    .slots = 1,
    .takes_order = 1,
    .chunks = xccl_gen_one_chunk,
    .emit = binomial_broadcast,
};

const struct xccl_generator xccl_generator_binomial_reduce = {
    .name = "binomial",
    .coll = XCCL_COLL_REDUCE,
    .help = "a tree in which each rank adds up to log n others: log n hops",
    .slots = 1,
    .takes_order = 1,
    .chunks = xccl_gen_one_chunk,
    .emit = binomial_reduce,
};

const struct xccl_generator xccl_generator_binomial_scatter = {
    .name = "binomial",
    .coll = XCCL_COLL_SCATTER,
    .help = "down a tree, inner ranks pass on: log n messages at the root's start",
    .slots = 1,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = binomial_scatter,
};

const struct xccl_generator xccl_generator_binomial_gather = {
    .name = "binomial",
    .coll = XCCL_COLL_GATHER,
    .help = "up a tree, inner ranks pass on: log n connections at the root",
    .slots = 1,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = binomial_gather,
};

/* ---- broadcast as scatter and all-gather ---- */

/* One chunk a place. First the tree: each rank gets the chunks of its subtree and keeps them. Then
 * an open ring from the root on: each rank sends what the next one lacks, in the order p, p-1, ...
 * p+1 of chunks, and so gets what it lacks itself in that order from the one before. */

static int subtree_has(int n, int at, int chunk)
{
    int span = at ? xccl_gen_low_bit(at) : n;

    return chunk >= at && chunk < at + span;
}

struct sag {
    struct xccl_gen gen;
    struct place p;
    int parent, child, next, prev; /* connections; child: the first */
};

static void sag_conns(struct sag *s)
{
    int next = (s->p.at + 1) % s->p.n;

    if (s->p.at > 0)
        s->parent = xccl_gen_recv_from(&s->gen, parent_of(&s->p), 0);
    (void)conns_down(&s->gen, &s->p, &s->child);
    if (next != 0)
        s->next = xccl_gen_send_to(&s->gen, rank_at(&s->p, next), 1);
    if (s->p.at > 0)
        s->prev = xccl_gen_recv_from(&s->gen, rank_at(&s->p, s->p.at - 1), 1);
}

static void sag_scatter(const struct sag *s)
{
    int child = s->child;

    for (int d = s->p.span / 2; d > 0; d /= 2) {
        int size = child_size(&s->p, d), last = s->p.at + d + size - 1;
        struct xccl_chunks out = xccl_gen_chunks(XCCL_BUFFER_OUT, last, size, -1);

        if (!size)
            continue;
        if (s->p.at > 0)
            xccl_gen_recv_send(&s->gen, out, s->parent, child);
        else
            xccl_gen_copy_send(&s->gen, xccl_gen_chunks(XCCL_BUFFER_IN, last, size, -1), out,
                               child);
        child++;
    }
    if (s->p.at > 0)
        xccl_gen_recv(&s->gen, xccl_gen_out(s->p.at), s->parent);
}

/* count chunks from first down, which this rank has or gets, and the next one lacks or not. */
static void sag_spread(const struct sag *s, int first, int count, int has, int lacks)
{
    struct xccl_chunks out = xccl_gen_chunks(XCCL_BUFFER_OUT, first, count, -1);

    if (has && lacks)
        xccl_gen_send(&s->gen, 0, out, s->next);
    else if (lacks)
        xccl_gen_recv_send(&s->gen, out, s->prev, s->next);
    else if (!has)
        xccl_gen_recv(&s->gen, out, s->prev);
}

static void sag_broadcast(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct sag s = {.gen = xccl_gen_begin(builder), .p = place_of(what)};
    int n = s.p.n, at = s.p.at, count;

    if (n == 1) {
        xccl_gen_alone(&s.gen, 0, 1);
        return;
    }
    sag_conns(&s);
    sag_scatter(&s);
    if (at == 0)
        xccl_gen_copy_send(&s.gen, xccl_gen_in(0), xccl_gen_out(0), s.next);
    for (int i = at == 0; i < n; i += count) {
        int chunk = xccl_gen_mod(at - i, n);
        int has = subtree_has(n, at, chunk), lacks = !subtree_has(n, (at + 1) % n, chunk);

        for (count = 1; i + count < n; count++) {
            int other = xccl_gen_mod(at - i - count, n);

            if (subtree_has(n, at, other) != has || subtree_has(n, (at + 1) % n, other) == lacks)
                break;
        }
        sag_spread(&s, chunk, count, has, lacks);
    }
}

const struct xccl_generator xccl_generator_sag_broadcast = {
    .name = "sag",
    .coll = XCCL_COLL_BROADCAST,
    .help = "binomial scatter, then a ring spreads the parts: twice the bytes, from all ranks",
    .slots = 1,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = sag_broadcast,
};
