/* SPDX-License-Identifier: BSD-3-Clause */
/* Double binary tree all-reduce (Sanders, Speck and Traff 2009): two trees over all ranks, each for
 * one half of the data (a chunk), such that the inner ranks of one are leaves of the other. In a
 * tree the sum goes up to its root and the result down again.
 *
 * Lane 2t goes up tree t, lane 2t + 1 goes down, on all ranks; a connection's id is the number of
 * the lane at the end that is no root. At its root a tree has one step for both, in the lane that
 * goes up, and the other lane is empty. Slots needed: one. Thread: any. */
#include "schedule/gen_int.h"

#define NOBODY (-1)

struct family {
    int parent, child[2];
};

/* In the tree where odd ranks are leaves and rank 0 is the root, for n >= 2. */
static struct family family_even(int n, int r)
{
    struct family f = {NOBODY, {NOBODY, NOBODY}};
    int bit = xccl_gen_low_bit(r), half = bit / 2;

    if (r == 0) {
        f.child[0] = xccl_gen_power_below(n);
        return f;
    }
    f.parent = (r ^ bit) | 2 * bit;
    if (f.parent >= n)
        f.parent = r ^ bit;
    if (half > 0)
        f.child[0] = r - half;
    while (half > 0 && r + half >= n)
        half /= 2;
    if (half > 0)
        f.child[1] = r + half;
    return f;
}

/* Tree 1 is the mirror image of tree 0 where n is even, and moved by one where it is odd. */
static struct family family_of(int n, int r, int tree)
{
    struct family f;
    int *const of[] = {&f.parent, &f.child[0], &f.child[1]};

    if (tree == 0)
        return family_even(n, r);
    f = family_even(n, n % 2 ? xccl_gen_mod(r - 1, n) : n - 1 - r);
    for (int i = 0; i < 3; i++)
        if (*of[i] != NOBODY)
            *of[i] = n % 2 ? (*of[i] + 1) % n : n - 1 - *of[i];
    return f;
}

/* Connections to or from the children, one fan. */
static int child_conns(const struct xccl_gen *gen, const struct family *f, enum xccl_conn_dir dir,
                       int id, int *count_out)
{
    int first = 0;

    *count_out = 0;
    for (int i = 0; i < 2; i++) {
        int conn;

        if (f->child[i] == NOBODY)
            continue;
        conn = xccl_build_conn(gen->builder, gen->lane, dir, f->child[i], id, *count_out > 0);
        if ((*count_out)++ == 0)
            first = conn;
    }
    return first;
}

static void tree_root(struct xccl_builder *builder, const struct family *f, int tree)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct xccl_emit emit = {.op = XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_DST | XCCL_STEP_SEND,
                             .flags = XCCL_FLAG_PRE | XCCL_FLAG_POST,
                             .src = xccl_gen_in(tree),
                             .dst = xccl_gen_out(tree)};

    emit.rconn = child_conns(&gen, f, XCCL_CONN_RECV, 2 * tree, &emit.nrecv);
    emit.sconn = child_conns(&gen, f, XCCL_CONN_SEND, 2 * tree + 1, &emit.nsend);
    xccl_gen_step(&gen, &emit);
    (void)xccl_build_lane(builder);
}

static void tree_up(struct xccl_builder *builder, const struct family *f, int tree)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct xccl_emit emit = {.op = XCCL_STEP_SRC | XCCL_STEP_SEND,
                             .flags = XCCL_FLAG_PRE,
                             .src = xccl_gen_in(tree),
                             .nsend = 1};

    emit.rconn = child_conns(&gen, f, XCCL_CONN_RECV, 2 * tree, &emit.nrecv);
    emit.sconn = xccl_gen_send_to(&gen, f->parent, 2 * tree);
    if (emit.nrecv > 0)
        emit.op |= XCCL_STEP_RECV;
    xccl_gen_step(&gen, &emit);
}

static void tree_down(struct xccl_builder *builder, const struct family *f, int tree)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct xccl_emit emit = {
        .op = XCCL_STEP_RECV | XCCL_STEP_DST, .dst = xccl_gen_out(tree), .nrecv = 1};

    emit.rconn = xccl_gen_recv_from(&gen, f->parent, 2 * tree + 1);
    emit.sconn = child_conns(&gen, f, XCCL_CONN_SEND, 2 * tree + 1, &emit.nsend);
    if (emit.nsend > 0)
        emit.op |= XCCL_STEP_SEND;
    xccl_gen_step(&gen, &emit);
}

static void dtree_all_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    if (what->nranks == 1) {
        struct xccl_gen gen = xccl_gen_begin(builder);

        xccl_gen_alone(&gen, XCCL_FLAG_PRE | XCCL_FLAG_POST, 2);
        return;
    }
    for (int tree = 0; tree < 2; tree++) {
        struct family f = family_of(what->nranks, what->rank, tree);

        if (f.parent == NOBODY) {
            tree_root(builder, &f, tree);
            continue;
        }
        tree_up(builder, &f, tree);
        tree_down(builder, &f, tree);
    }
}

static int two_chunks(const struct xccl_generator_for *what)
{
    (void)what;
    return 2;
}

const struct xccl_generator xccl_generator_dtree_all_reduce = {
    .name = "dtree",
    .coll = XCCL_COLL_ALL_REDUCE,
    .help = "two binary trees, half of the data up and down each: least bytes, 2 log n hops",
    .slots = 1,
    .takes_order = 1,
    .chunks = two_chunks,
    .emit = dtree_all_reduce,
};
