/* SPDX-License-Identifier: BSD-3-Clause */
/* All-to-all in pairs and by Bruck (1997), and the dissemination barrier. All of them exchange with
 * rank + d and rank - d, for d = 1, 2, 3, ... or d = 1, 2, 4, ...
 *
 * All-to-all is legal out of place only. Slots needed: one. Thread: any. */
#include "schedule/gen_int.h"

/* With each distance once. */
static void pairwise_alltoall(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    int n = what->nranks, r = what->rank;

    for (int d = 1; d < n; d++)
        (void)xccl_gen_send_to(&gen, (r + d) % n, 0);
    for (int d = 1; d < n; d++)
        (void)xccl_gen_recv_from(&gen, xccl_gen_mod(r - d, n), 0);
    xccl_gen_copy(&gen, 0, xccl_gen_in(r), xccl_gen_out(r));
    for (int d = 1; d < n; d++)
        xccl_gen_exchange(&gen, xccl_gen_in(r + d), xccl_gen_out(r - d), n - 2 + d, d - 1);
}

/* Block i is what is i ranks away from where it goes; the bits of i are the distances it travels,
 * the lowest first. So it leaves IN with its lowest bit and comes to OUT with its highest, and in
 * between is scratch chunk i. This is the step of bit d. */
static void bruck_step(const struct xccl_gen *gen, const struct xccl_generator_for *what, int d,
                       int rconn, int sconn)
{
    int n = what->nranks, r = what->rank;
    int highest = xccl_gen_min(2 * d, n) - d - 1; /* d is the highest bit of several */
    int lowest = xccl_gen_below(n, 3 * d, 2 * d); /* the lowest of several */

    xccl_gen_exchange(gen, xccl_gen_in(r + d), xccl_gen_out(r - d), rconn, sconn);
    xccl_gen_exchange(gen, xccl_gen_chunks(XCCL_BUFFER_SCRATCH, d + 1, highest, 1),
                      xccl_gen_chunks(XCCL_BUFFER_OUT, r - d - 1, highest, -1), rconn, sconn);
    xccl_gen_exchange(gen, xccl_gen_chunks(XCCL_BUFFER_IN, r + 3 * d, lowest, 2 * d),
                      xccl_gen_chunks(XCCL_BUFFER_SCRATCH, 3 * d, lowest, 2 * d), rconn, sconn);
    for (int i = 3 * d + 1; i < n && d > 1; i += 2 * d) {
        struct xccl_chunks blocks = xccl_gen_chunks(XCCL_BUFFER_SCRATCH, i,
                                                    xccl_gen_min(d - 1, n - i), 1);

        xccl_gen_exchange(gen, blocks, blocks, rconn, sconn);
    }
}

static void bruck_alltoall(struct xccl_builder *builder, const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    int steps = xccl_gen_log2_up(what->nranks), conns = 0;

    if (steps > 0)
        conns = xccl_gen_doubling_conns(&gen, what, 1, 0, 0);
    xccl_gen_copy(&gen, 0, xccl_gen_in(what->rank), xccl_gen_out(what->rank));
    for (int s = 0; s < steps; s++)
        bruck_step(&gen, what, 1 << s, conns + 2 * steps - 1 - s, conns + s);
}

/* After the exchange with distance d a rank knows that 2d ranks have come. */
static void dissemination_barrier(struct xccl_builder *builder,
                                  const struct xccl_generator_for *what)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    int steps = xccl_gen_log2_up(what->nranks), conns = 0;

    if (steps > 0)
        conns = xccl_gen_doubling_conns(&gen, what, 1, 0, 0);
    for (int s = 0; s < steps; s++)
        xccl_gen_exchange(&gen, XCCL_ONE_CHUNK(XCCL_BUFFER_ZERO, 0),
                          XCCL_ONE_CHUNK(XCCL_BUFFER_ZERO, 0), conns + 2 * steps - 1 - s,
                          conns + s);
}

const struct xccl_generator xccl_generator_pairwise_alltoall = {
    .name = "pairwise",
    .coll = XCCL_COLL_ALL_TO_ALL,
    .help = "with one pair of ranks after the other: n hops, least bytes",
    .slots = 1,
    .links_all = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = pairwise_alltoall,
};

const struct xccl_generator xccl_generator_bruck_alltoall = {
    .name = "bruck",
    .coll = XCCL_COLL_ALL_TO_ALL,
    .help = "half of the data with each of log n pairs of ranks: few hops, for small counts",
    .slots = 1,
    .chunks = xccl_gen_chunk_per_rank,
    .emit = bruck_alltoall,
};

const struct xccl_generator xccl_generator_dissemination_barrier = {
    .name = "dissemination",
    .coll = XCCL_COLL_BARRIER,
    .help = "empty messages over distances 1, 2, 4, ...: log n hops",
    .slots = 1,
    .chunks = xccl_gen_one_chunk,
    .emit = dissemination_barrier,
};
