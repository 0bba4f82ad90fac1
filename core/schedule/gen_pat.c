/* SPDX-License-Identifier: BSD-3-Clause */
/* PAT, parallel aggregated trees (Jeaugey 2025), with an aggregation of A chunks a message: between
 * nhr (A as large as can be: log n messages) and one message a chunk in little memory (A = 1). Let
 * P = 2^L >= n, D = P / A. The chunk of rank r + x is at offset x of rank r. In the all-gather
 * offset x comes in the direction of its lowest bit d, from rank r + d, where it is offset x - d;
 * offsets that lie D apart travel together. The reduce-scatter is the same backwards: offset x is
 * sent to rank r + d, and what comes from rank r - d is added to offset x - d.
 *
 * Order of the reduce-scatter, of messages with offsets y, y + D, y + 2D, ...: y from 1 to D - 1 so
 * that everything below a y in the tree goes first, which leaves at most one partial sum a level of
 * the tree and multiple of D; then those with offsets q, 3q, 5q, ... for q = D, 2D, ... P/2.
 *
 * Odd offsets are sent from IN, as is n - 1, to which nobody adds. Slots: one. Thread: any. */
#include "schedule/gen_int.h"

#define PAT_DEFAULT 4
#define PAT_MAX     32768

struct pat {
    int n, r;
    int levels; /* P = 2^levels */
    int a, d;
    int d_levels; /* d = 2^d_levels */
    int conns; /* see xccl_gen_doubling_conns */
    enum xccl_step_buffer partial; /* where partial sums are */
};

/* count offsets from first on, stride apart, that travel the distance 2^level. */
struct message {
    int level, first, stride, count;
};

static struct pat pat_of(const struct xccl_generator_for *what, enum xccl_step_buffer partial)
{
    struct pat p = {.n = what->nranks, .r = what->rank, .partial = partial};
    int size;

    p.levels = xccl_gen_log2_up(p.n);
    size = 1 << p.levels;
    p.a = xccl_gen_min(what->param ? what->param : PAT_DEFAULT, size);
    p.d = size / p.a;
    p.d_levels = xccl_gen_log2_up(p.d);
    return p;
}

static int pat_serves(const struct xccl_generator_for *what)
{
    return what->param >= 0 && (what->param & (what->param - 1)) == 0;
}

/* Number of messages, in the order of the reduce-scatter; some may have no offsets. */
static int pat_messages(const struct pat *p)
{
    return p->d - 1 + p->levels - p->d_levels;
}

/* The y of message i + 1 of a tree of 2^levels: first the lower half's, then the same in the upper
 * half, then the middle. */
static int pat_tree(int levels, int i)
{
    int y = 0;

    for (int half = 1 << levels >> 1; half > 0; half /= 2) {
        if (i == 2 * half - 2)
            return y + half;
        if (i >= half - 1) {
            i -= half - 1;
            y += half;
        }
    }
    return y;
}

static struct message pat_message(const struct pat *p, int i)
{
    struct message m;

    if (i < p->d - 1) {
        m.first = pat_tree(p->d_levels, i);
        m.stride = p->d;
    } else {
        m.first = p->d;
        for (int q = p->d - 1; q < i; q++)
            m.first *= 2;
        m.stride = 2 * m.first;
    }
    m.level = xccl_gen_log2_up(xccl_gen_low_bit(m.first));
    m.count = xccl_gen_below(p->n, m.first, m.stride);
    return m;
}

/* ---- reduce-scatter ---- */

/* Where the partial sum of an even offset is: in scratch memory A chunks for each level of the
 * tree, but without a tree (D = 1) a chunk for each. */
static int pat_slot(const struct pat *p, int offset)
{
    int y = offset % p->d, level = y ? xccl_gen_log2_up(xccl_gen_low_bit(y)) : p->d_levels;

    return p->d == 1 ? offset / 2 : (level - 1) * p->a + offset / p->d;
}

static struct xccl_chunks pat_partials(const struct pat *p, int first, int count, int stride)
{
    int slot;

    if (p->partial == XCCL_BUFFER_OUT)
        return xccl_gen_chunks(XCCL_BUFFER_OUT, p->r + first, count, stride);
    slot = pat_slot(p, first);
    return xccl_gen_chunks(XCCL_BUFFER_SCRATCH, slot, count,
                           count > 1 ? pat_slot(p, first + stride) - slot : 0);
}

static struct xccl_chunks pat_inputs(const struct pat *p, int first, int count, int stride)
{
    return xccl_gen_chunks(XCCL_BUFFER_IN, p->r + first, count, stride);
}

/* The very last message, after which offset 0 is complete. */
static int pat_last(const struct pat *p, const struct message *m)
{
    return m->first == xccl_gen_power_below(p->n);
}

static void pat_reduce(const struct xccl_gen *gen, const struct pat *p, const struct message *m)
{
    int to = m->first - (1 << m->level), inputs = 0, sums, skip;
    int sconn = p->conns + m->level, rconn = p->conns + 2 * p->levels - 1 - m->level;
    uint8_t flags = pat_last(p, m) ? XCCL_FLAG_POST : 0;

    if (m->level == 0)
        inputs = m->count;
    else if (p->partial == XCCL_BUFFER_SCRATCH && p->n % 2 &&
             m->first + (m->count - 1) * m->stride == p->n - 1)
        inputs = 1;
    sums = m->count - inputs;
    skip = sums * m->stride;
    if (m->level == 0 && p->partial == XCCL_BUFFER_SCRATCH)
        xccl_gen_copy(gen, XCCL_FLAG_PRE, pat_inputs(p, to, m->count, m->stride),
                      pat_partials(p, to, m->count, m->stride));
    xccl_gen_exchange_add(gen, flags, pat_partials(p, m->first, sums, m->stride),
                          pat_partials(p, to, sums, m->stride), rconn, sconn);
    xccl_gen_exchange_add(gen, flags | XCCL_FLAG_PRE,
                          pat_inputs(p, m->first + skip, inputs, m->stride),
                          pat_partials(p, to + skip, inputs, m->stride), rconn, sconn);
}

/* One chunk each way, stored where the result belongs. */
static void pat_reduce_last(const struct xccl_gen *gen, const struct pat *p)
{
    int offset = xccl_gen_power_below(p->n);
    int sconn = p->conns + p->levels - 1, rconn = sconn + 1;

    if (offset == 1 || (p->n % 2 && offset == p->n - 1))
        xccl_gen_send(gen, XCCL_FLAG_PRE, pat_inputs(p, offset, 1, 0), sconn);
    else
        xccl_gen_send(gen, 0, pat_partials(p, offset, 1, 0), sconn);
    if (offset == 1)
        xccl_gen_add(gen, XCCL_FLAG_PRE | XCCL_FLAG_POST, pat_inputs(p, 0, 1, 0), xccl_gen_out(0),
                     rconn);
    else
        xccl_gen_add(gen, XCCL_FLAG_POST, pat_partials(p, 0, 1, 0), xccl_gen_out(0), rconn);
}

static void pat_reduce_scatter(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct pat p = pat_of(what, XCCL_BUFFER_SCRATCH);

    if (p.n == 1) {
        xccl_gen_alone(&gen, XCCL_FLAG_PRE | XCCL_FLAG_POST, 1);
        return;
    }
    p.conns = xccl_gen_doubling_conns(&gen, what, 1, 0, 0);
    for (int i = 0; i < pat_messages(&p); i++) {
        struct message m = pat_message(&p, i);

        if (m.count > 0 && !pat_last(&p, &m))
            pat_reduce(&gen, &p, &m);
    }
    pat_reduce_last(&gen, &p);
}

/* ---- all-gather and all-reduce ---- */

static void pat_gather(const struct xccl_gen *gen, const struct pat *p, int conns)
{
    for (int i = pat_messages(p) - 1; i >= 0; i--) {
        struct message m = pat_message(p, i);
        int from = p->r + m.first - (1 << m.level);

        if (m.count > 0)
            xccl_gen_exchange(gen, xccl_gen_chunks(XCCL_BUFFER_OUT, from, m.count, m.stride),
                              xccl_gen_chunks(XCCL_BUFFER_OUT, p->r + m.first, m.count, m.stride),
                              conns + 2 * p->levels - 1 - m.level, conns + m.level);
    }
}

static void pat_all_gather(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct pat p = pat_of(what, XCCL_BUFFER_OUT);

    if (p.n == 1) {
        xccl_gen_alone(&gen, 0, 1);
        return;
    }
    xccl_gen_copy(&gen, 0, xccl_gen_in(0), xccl_gen_out(p.r));
    pat_gather(&gen, &p, xccl_gen_doubling_conns(&gen, what, -1, 0, 0));
}

/* Partial sums are in OUT, which has room for all of them: no scratch memory. */
static void pat_all_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct pat p = pat_of(what, XCCL_BUFFER_OUT);

    if (p.n == 1) {
        xccl_gen_alone(&gen, XCCL_FLAG_PRE | XCCL_FLAG_POST, 1);
        return;
    }
    p.conns = xccl_gen_doubling_conns(&gen, what, 1, 0, 0);
    xccl_gen_copy(&gen, XCCL_FLAG_PRE, pat_inputs(&p, 0, (p.n + 1) / 2, 2),
                  pat_partials(&p, 0, (p.n + 1) / 2, 2));
    for (int i = 0; i < pat_messages(&p); i++) {
        struct message m = pat_message(&p, i);

        if (m.count > 0)
            pat_reduce(&gen, &p, &m);
    }
    pat_gather(&gen, &p, xccl_gen_doubling_conns(&gen, what, -1, 0, 1));
}

const struct xccl_generator xccl_generator_pat_all_reduce = {
    .name = "pat",
    .coll = XCCL_COLL_ALL_REDUCE,
    .help = "parallel trees, messages of up to PARAM (a power of two) chunks: few hops, small ones",
    .slots = 1,
    .param_min = 1,
    .param_max = PAT_MAX,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = pat_all_reduce,
    .serves = pat_serves,
};

const struct xccl_generator xccl_generator_pat_reduce_scatter = {
    .name = "pat",
    .coll = XCCL_COLL_REDUCE_SCATTER,
    .help = "parallel trees, messages of up to PARAM (a power of two) chunks: little memory",
    .slots = 1,
    .param_min = 1,
    .param_max = PAT_MAX,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = pat_reduce_scatter,
    .serves = pat_serves,
};

const struct xccl_generator xccl_generator_pat_all_gather = {
    .name = "pat",
    .coll = XCCL_COLL_ALL_GATHER,
    .help = "parallel trees, messages of up to PARAM (a power of two) chunks: large ones near",
    .slots = 1,
    .param_min = 1,
    .param_max = PAT_MAX,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = pat_all_gather,
    .serves = pat_serves,
};
