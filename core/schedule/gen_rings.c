/* SPDX-License-Identifier: BSD-3-Clause */
/* Ring and chain (Patarasuk and Yuan 2009). In a ring every rank sends to the next and receives
 * from the one before; chunk c of a sum starts at rank c + 1 and is complete at rank c, so chunks
 * are added up in different orders. A chain is a ring that is open at the root: one chunk, which
 * tiles make a pipeline.
 *
 * A step that receives and sends takes its send slot before it gives the receive slot back: two
 * slots where the way is closed, one where it is open. Thread: any. */
#include "schedule/gen_int.h"

enum { TO_NEXT, FROM_PREV }; /* connections */

#define WHOLE (XCCL_FLAG_PRE | XCCL_FLAG_POST)

static void ring_conns(const struct xccl_gen *gen, const struct xccl_generator_for *what)
{
    (void)xccl_gen_send_to(gen, (what->rank + 1) % what->nranks, 0);
    (void)xccl_gen_recv_from(gen, xccl_gen_mod(what->rank - 1, what->nranks), 0);
}

/* Chunks r-1, r-2, ... r+1 take this rank's part and go on. */
static void ring_add(const struct xccl_gen *gen, int n, int r)
{
    xccl_gen_send(gen, XCCL_FLAG_PRE, xccl_gen_in(r - 1), TO_NEXT);
    if (n > 2)
        xccl_gen_add_send(gen, XCCL_FLAG_PRE, xccl_gen_chunks(XCCL_BUFFER_IN, r - 2, n - 2, -1),
                          FROM_PREV, TO_NEXT);
}

/* The finished chunks of ring_add() arrive, are kept and passed on, except the last one, which the
 * next rank has. */
static void ring_spread(const struct xccl_gen *gen, int n, int r)
{
    if (n > 2)
        xccl_gen_recv_send(gen, xccl_gen_chunks(XCCL_BUFFER_OUT, r - 1, n - 2, -1), FROM_PREV,
                           TO_NEXT);
    xccl_gen_recv(gen, xccl_gen_out(r + 1), FROM_PREV);
}

static void ring_all_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    int n = what->nranks, r = what->rank;

    if (n == 1) {
        xccl_gen_alone(&gen, WHOLE, 1);
        return;
    }
    ring_conns(&gen, what);
    ring_add(&gen, n, r);
    xccl_gen_step(&gen, &(struct xccl_emit){.op = XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_DST |
                                                  XCCL_STEP_SEND,
                                            .flags = WHOLE,
                                            .src = xccl_gen_in(r),
                                            .dst = xccl_gen_out(r),
                                            .rconn = FROM_PREV,
                                            .nrecv = 1,
                                            .sconn = TO_NEXT,
                                            .nsend = 1});
    ring_spread(&gen, n, r);
}

static void ring_reduce_scatter(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    int n = what->nranks, r = what->rank;

    if (n == 1) {
        xccl_gen_alone(&gen, WHOLE, 1);
        return;
    }
    ring_conns(&gen, what);
    ring_add(&gen, n, r);
    xccl_gen_add(&gen, WHOLE, xccl_gen_in(r), xccl_gen_out(0), FROM_PREV);
}

static void ring_all_gather(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    int n = what->nranks, r = what->rank;

    if (n == 1) {
        xccl_gen_alone(&gen, 0, 1);
        return;
    }
    ring_conns(&gen, what);
    xccl_gen_copy_send(&gen, xccl_gen_in(0), xccl_gen_out(r), TO_NEXT);
    ring_spread(&gen, n, r);
}

/* From the root up: root, root + 1, ... root - 1. */
static void chain_broadcast(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    int n = what->nranks, place = xccl_gen_mod(what->rank - what->root, n);
    int next = 0, prev = 0;

    if (n == 1) {
        xccl_gen_alone(&gen, 0, 1);
        return;
    }
    if (place < n - 1)
        next = xccl_gen_send_to(&gen, (what->rank + 1) % n, 0);
    if (place > 0)
        prev = xccl_gen_recv_from(&gen, xccl_gen_mod(what->rank - 1, n), 0);
    if (place == 0)
        xccl_gen_copy_send(&gen, xccl_gen_in(0), xccl_gen_out(0), next);
    else if (place < n - 1)
        xccl_gen_recv_send(&gen, xccl_gen_out(0), prev, next);
    else
        xccl_gen_recv(&gen, xccl_gen_out(0), prev);
}

/* Towards the root: root + 1, root + 2, ... root. */
static void chain_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    int n = what->nranks, place = xccl_gen_mod(what->rank - what->root, n);
    int next = 0, prev = 0;

    if (n == 1) {
        xccl_gen_alone(&gen, WHOLE, 1);
        return;
    }
    if (place != 0)
        next = xccl_gen_send_to(&gen, (what->rank + 1) % n, 0);
    if (place != 1)
        prev = xccl_gen_recv_from(&gen, xccl_gen_mod(what->rank - 1, n), 0);
    if (place == 0)
        xccl_gen_add(&gen, WHOLE, xccl_gen_in(0), xccl_gen_out(0), prev);
    else if (place == 1)
        xccl_gen_send(&gen, XCCL_FLAG_PRE, xccl_gen_in(0), next);
    else
        xccl_gen_add_send(&gen, XCCL_FLAG_PRE, xccl_gen_in(0), prev, next);
}

const struct xccl_generator xccl_generator_ring_all_reduce = {
    .name = "ring",
    .coll = XCCL_COLL_ALL_REDUCE,
    .help = "each chunk goes round to be summed and once more to be spread: least bytes, n hops",
    .slots = 2,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = ring_all_reduce,
};

const struct xccl_generator xccl_generator_ring_reduce_scatter = {
    .name = "ring",
    .coll = XCCL_COLL_REDUCE_SCATTER,
    .help = "each chunk goes round and takes every rank's part: neighbours only, n hops",
    .slots = 2,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = ring_reduce_scatter,
};

const struct xccl_generator xccl_generator_ring_all_gather = {
    .name = "ring",
    .coll = XCCL_COLL_ALL_GATHER,
    .help = "each chunk goes round: neighbours only, n hops",
    .slots = 2,
    .takes_order = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = ring_all_gather,
};

const struct xccl_generator xccl_generator_chain_broadcast = {
    .name = "chain",
    .coll = XCCL_COLL_BROADCAST,
    .help = "from rank to rank, tile by tile: least bytes, n hops",
    .slots = 1,
    .takes_order = 1,
    .chunks = xccl_gen_one_chunk,
    .emit = chain_broadcast,
};

const struct xccl_generator xccl_generator_chain_reduce = {
    .name = "chain",
    .coll = XCCL_COLL_REDUCE,
    .help = "summed from rank to rank, tile by tile: least bytes, n hops",
    .slots = 1,
    .takes_order = 1,
    .chunks = xccl_gen_one_chunk,
    .emit = chain_reduce,
};
