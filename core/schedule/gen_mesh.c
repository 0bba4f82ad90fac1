/* SPDX-License-Identifier: BSD-3-Clause */
/* Algorithms in which each rank talks to all others at once. Sums are in rank order, this rank's
 * part at its own place, so all ranks and all elements get the same bits whatever the count.
 * Everybody sends to r+1, r+2, ... so that not all begin with the same receiver. What goes to all
 * is one multicast where that reaches several ranks, and a message to each of the rest.
 *
 * Slots needed: one; two for two-shot, whose middle step takes send slots before it gives the
 * receive slots of the same ranks back. Thread: any. */
#include "schedule/gen_int.h"

#define ORDERED_SUM (XCCL_FLAG_PRE | XCCL_FLAG_POST | XCCL_FLAG_ORDERED)

/* To each rank its chunk. */
static void send_chunks(const struct xccl_gen *gen, const struct xccl_generator_for *what,
                        uint8_t flags, int sconn)
{
    for (int i = 1; i < what->nranks; i++)
        xccl_gen_send(gen, flags, xccl_gen_in(what->rank + i), sconn + i - 1);
}

/* From each rank its chunk, the nearest below first, as they send to the nearest above first. */
static void recv_chunks(const struct xccl_gen *gen, const struct xccl_generator_for *what,
                        int rconn)
{
    for (int i = 1; i < what->nranks; i++) {
        int peer = xccl_gen_mod(what->rank - i, what->nranks);

        xccl_gen_recv(gen, xccl_gen_out(peer), rconn + peer - (peer > what->rank));
    }
}

static void oneshot_all_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    int sconn, rconn;

    if (what->nranks == 1) {
        xccl_gen_alone(&gen, XCCL_FLAG_PRE | XCCL_FLAG_POST, 1);
        return;
    }
    sconn = xccl_gen_spread_to_all(&gen, what, 0);
    rconn = xccl_gen_spread_from_all(&gen, what);
    xccl_gen_step(&gen, &(struct xccl_emit){.op = XCCL_STEP_SRC | XCCL_STEP_SEND,
                                            .flags = XCCL_FLAG_PRE,
                                            .src = xccl_gen_in(0),
                                            .sconn = sconn,
                                            .nsend = XCCL_FAN_ALL});
    xccl_gen_step(&gen, &(struct xccl_emit){.op = XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_DST,
                                            .flags = ORDERED_SUM,
                                            .src = xccl_gen_in(0),
                                            .dst = xccl_gen_out(0),
                                            .rconn = rconn,
                                            .nrecv = XCCL_FAN_ALL});
}

/* Connections of two-shot: to each marked peer one for its chunk and the multicast for the sum; to
 * and from others one for both. */
struct twoshot {
    int near, far; /* the first for a chunk to a marked peer, to another one */
    int sum; /* the fan that the sum is sent on */
    int rconn; /* chunks from all, by rank */
    int rsum; /* sums from marked peers, by rank */
};

static struct twoshot twoshot_conns(const struct xccl_gen *gen,
                                    const struct xccl_generator_for *what)
{
    struct twoshot conns = {0};
    int made = 0;

    for (int i = 1; i < what->nranks; i++) {
        int peer = (what->rank + i) % what->nranks;

        if (xccl_gen_is_marked(what, peer))
            (void)xccl_build_conn(gen->builder, gen->lane, XCCL_CONN_SEND, peer, 0, made++ > 0);
    }
    conns.sum = xccl_gen_spread_to_all(gen, what, made > 0);
    conns.far = conns.sum + (made > 0);
    conns.rconn = xccl_gen_recv_from_all(gen, what);
    conns.rsum = conns.rconn + what->nranks - 1;
    for (int peer = 0, first = 1; peer < what->nranks; peer++)
        if (peer != what->rank && xccl_gen_is_marked(what, peer)) {
            (void)xccl_build_multicast(gen->builder, gen->lane, XCCL_CONN_RECV, peer, 0, !first);
            first = 0;
        }
    return conns;
}

static void twoshot_send_chunks(const struct xccl_gen *gen, const struct xccl_generator_for *what,
                                struct twoshot conns)
{
    for (int i = 1; i < what->nranks; i++) {
        int marked = xccl_gen_is_marked(what, (what->rank + i) % what->nranks);

        xccl_gen_send(gen, XCCL_FLAG_PRE, xccl_gen_in(what->rank + i),
                      marked ? conns.near++ : conns.far++);
    }
}

/* As recv_chunks. */
static void twoshot_recv_sums(const struct xccl_gen *gen, const struct xccl_generator_for *what,
                              struct twoshot conns)
{
    int below = 0;

    for (int peer = 0; peer < what->rank; peer++)
        below += xccl_gen_is_marked(what, peer);
    for (int i = 1, last = xccl_gen_marked(what); i < what->nranks; i++) {
        int peer = xccl_gen_mod(what->rank - i, what->nranks), conn;

        if (xccl_gen_is_marked(what, peer))
            conn = conns.rsum + (peer < what->rank ? --below : --last);
        else
            conn = conns.rconn + peer - (peer > what->rank);
        xccl_gen_recv(gen, xccl_gen_out(peer), conn);
    }
}

static void twoshot_all_reduce(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    struct twoshot conns;

    if (what->nranks == 1) {
        xccl_gen_alone(&gen, XCCL_FLAG_PRE | XCCL_FLAG_POST, 1);
        return;
    }
    conns = twoshot_conns(&gen, what);
    twoshot_send_chunks(&gen, what, conns);
    xccl_gen_step(&gen, &(struct xccl_emit){.op = XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_DST |
                                                  XCCL_STEP_SEND,
                                            .flags = ORDERED_SUM,
                                            .src = xccl_gen_in(what->rank),
                                            .dst = xccl_gen_out(what->rank),
                                            .rconn = conns.rconn,
                                            .nrecv = XCCL_FAN_ALL,
                                            .sconn = conns.sum,
                                            .nsend = XCCL_FAN_ALL});
    twoshot_recv_sums(&gen, what, conns);
}

static void mesh_reduce_scatter(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    int sconn, rconn;

    if (what->nranks == 1) {
        xccl_gen_alone(&gen, XCCL_FLAG_PRE | XCCL_FLAG_POST, 1);
        return;
    }
    sconn = xccl_gen_send_to_all(&gen, what);
    rconn = xccl_gen_recv_from_all(&gen, what);
    send_chunks(&gen, what, XCCL_FLAG_PRE, sconn);
    xccl_gen_step(&gen, &(struct xccl_emit){.op = XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_DST,
                                            .flags = ORDERED_SUM,
                                            .src = xccl_gen_in(what->rank),
                                            .dst = xccl_gen_out(0),
                                            .rconn = rconn,
                                            .nrecv = XCCL_FAN_ALL});
}

static void mesh_all_gather(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    int sconn, rconn;

    if (what->nranks == 1) {
        xccl_gen_alone(&gen, 0, 1);
        return;
    }
    sconn = xccl_gen_spread_to_all(&gen, what, 0);
    rconn = xccl_gen_spread_from_all(&gen, what);
    xccl_gen_step(&gen, &(struct xccl_emit){.op = XCCL_STEP_SRC | XCCL_STEP_DST | XCCL_STEP_SEND,
                                            .src = xccl_gen_in(0),
                                            .dst = xccl_gen_out(what->rank),
                                            .sconn = sconn,
                                            .nsend = XCCL_FAN_ALL});
    recv_chunks(&gen, what, rconn);
}

static void direct_scatter(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);

    if (what->rank != what->root) {
        xccl_gen_recv(&gen, xccl_gen_out(0), xccl_gen_recv_from(&gen, what->root, 0));
        return;
    }
    if (what->nranks > 1)
        send_chunks(&gen, what, 0, xccl_gen_send_to_all(&gen, what));
    xccl_gen_copy(&gen, 0, xccl_gen_in(what->rank), xccl_gen_out(0));
}

static void direct_gather(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);

    if (what->rank != what->root) {
        xccl_gen_send(&gen, 0, xccl_gen_in(0), xccl_gen_send_to(&gen, what->root, 0));
        return;
    }
    xccl_gen_copy(&gen, 0, xccl_gen_in(0), xccl_gen_out(what->rank));
    if (what->nranks > 1)
        recv_chunks(&gen, what, xccl_gen_recv_from_all(&gen, what));
}

const struct xccl_generator xccl_generator_oneshot_all_reduce = {
    .name = "oneshot",
    .coll = XCCL_COLL_ALL_REDUCE,
    .help = "all send everything to all, who add up in rank order: one hop, n times the bytes",
    .slots = 1,
    .chunks = xccl_gen_one_chunk,
    .emit = oneshot_all_reduce,
};

const struct xccl_generator xccl_generator_twoshot_all_reduce = {
    .name = "twoshot",
    .coll = XCCL_COLL_ALL_REDUCE,
    .help = "each rank sums one chunk in rank order and sends it to all: two hops, least bytes",
    .slots = 2,
    .links_all = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = twoshot_all_reduce,
};

const struct xccl_generator xccl_generator_mesh_reduce_scatter = {
    .name = "mesh",
    .coll = XCCL_COLL_REDUCE_SCATTER,
    .help = "all send to all, who add up in rank order: one hop",
    .slots = 1,
    .links_all = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = mesh_reduce_scatter,
};

const struct xccl_generator xccl_generator_mesh_all_gather = {
    .name = "mesh",
    .coll = XCCL_COLL_ALL_GATHER,
    .help = "all send to all: one hop",
    .slots = 1,
    .links_all = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = mesh_all_gather,
};

const struct xccl_generator xccl_generator_direct_scatter = {
    .name = "direct",
    .coll = XCCL_COLL_SCATTER,
    .help = "the root sends to each rank: one hop, n messages",
    .slots = 1,
    .links_all = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = direct_scatter,
};

const struct xccl_generator xccl_generator_direct_gather = {
    .name = "direct",
    .coll = XCCL_COLL_GATHER,
    .help = "each rank sends to the root: one hop, n messages",
    .slots = 1,
    .links_all = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = direct_gather,
};
