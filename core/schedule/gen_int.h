/* SPDX-License-Identifier: BSD-3-Clause */
/* Short forms of the steps, so that a generator reads like the description of its algorithm. For
 * generators (gen_*.c) alone; all but the double tree have one lane. A rank's connections are
 * numbered in the order in which they are made.
 *
 * Thread: as builder.h. */
#ifndef XCCL_SCHEDULE_GEN_INT_H
#define XCCL_SCHEDULE_GEN_INT_H

#include <stddef.h>

#include "schedule/generators.h"

/* A lane that a generator writes. */
struct xccl_gen {
    struct xccl_builder *builder;
    int lane;
};

/* The first lane. */
struct xccl_gen xccl_gen_begin(struct xccl_builder *builder);

/* Chunks of IN or OUT count modulo their number, whatever the sign of first. */
static inline struct xccl_chunks xccl_gen_chunks(enum xccl_step_buffer buffer, int first, int count,
                                                 int stride)
{
    return (struct xccl_chunks){buffer, count, first, stride, NULL};
}

static inline struct xccl_chunks xccl_gen_in(int chunk)
{
    return XCCL_ONE_CHUNK(XCCL_BUFFER_IN, chunk);
}

static inline struct xccl_chunks xccl_gen_out(int chunk)
{
    return XCCL_ONE_CHUNK(XCCL_BUFFER_OUT, chunk);
}

/* x modulo n, from 0 to n - 1. */
static inline int xccl_gen_mod(int x, int n)
{
    x %= n;
    return x < 0 ? x + n : x;
}

static inline int xccl_gen_low_bit(int x)
{
    return x & -x;
}

/* The least l with 2^l >= n. */
static inline int xccl_gen_log2_up(int n)
{
    int l = 0;

    while (1L << l < n)
        l++;
    return l;
}

/* The largest power of two below n >= 2. */
static inline int xccl_gen_power_below(int n)
{
    int power = 1;

    while (2 * power < n)
        power *= 2;
    return power;
}

static inline int xccl_gen_min(int a, int b)
{
    return a < b ? a : b;
}

/* How many of first, first + stride, ... are below n. */
static inline int xccl_gen_below(int n, int first, int stride)
{
    return first < n ? (n - 1 - first) / stride + 1 : 0;
}

/* ---- connections: each its own group, but for fans ---- */

int xccl_gen_send_to(const struct xccl_gen *gen, int peer, int id);
int xccl_gen_recv_from(const struct xccl_gen *gen, int peer, int id);
/* One fan: peers rank + 1, rank + 2, ... up to rank - 1. */
int xccl_gen_send_to_all(const struct xccl_gen *gen, const struct xccl_generator_for *what);
/* One fan: all peers in rising order. */
int xccl_gen_recv_from_all(const struct xccl_gen *gen, const struct xccl_generator_for *what);

/* A multicast of this rank reaches the peer, and one of the peer this rank. */
static inline int xccl_gen_is_marked(const struct xccl_generator_for *what, int peer)
{
    return what->multicast && what->multicast[what->rank] && what->multicast[peer];
}

/* How many peers are. */
int xccl_gen_marked(const struct xccl_generator_for *what);
/* One fan for a value that goes to all: a multicast where peers are marked, then the others from
 * rank + 1 on. It continues the group before it when same_group is not 0. */
int xccl_gen_spread_to_all(const struct xccl_gen *gen, const struct xccl_generator_for *what,
                           int same_group);
/* The other end of such values: one fan, all peers in rising order, each of its kind. */
int xccl_gen_spread_from_all(const struct xccl_gen *gen, const struct xccl_generator_for *what);

/* For distances 1, 2, 4, ... below nranks (or from the largest down): sends to rank + sign *
 * distance, then, in the opposite order, receives from rank - sign * distance. So with L distances
 * step s sends on the number returned + s and receives on that + 2L - 1 - s: no two steps differ by
 * the same numbers at both ends, since steps that wait for one another must not become one
 * exchange, whose sends may run ahead. */
int xccl_gen_doubling_conns(const struct xccl_gen *gen, const struct xccl_generator_for *what,
                            int sign, int down, int id);

/* ---- steps; connections are fans of one ---- */

void xccl_gen_step(const struct xccl_gen *gen, const struct xccl_emit *emit);

void xccl_gen_copy(const struct xccl_gen *gen, uint8_t flags, struct xccl_chunks src,
                   struct xccl_chunks dst);
void xccl_gen_send(const struct xccl_gen *gen, uint8_t flags, struct xccl_chunks src, int sconn);
void xccl_gen_copy_send(const struct xccl_gen *gen, struct xccl_chunks src, struct xccl_chunks dst,
                        int sconn);
void xccl_gen_recv(const struct xccl_gen *gen, struct xccl_chunks dst, int rconn);
/* Stores what it passes on. */
void xccl_gen_recv_send(const struct xccl_gen *gen, struct xccl_chunks dst, int rconn, int sconn);
/* Passes on count messages that it does not store. */
void xccl_gen_relay(const struct xccl_gen *gen, int count, int rconn, int sconn);
/* dst = src + message. */
void xccl_gen_add(const struct xccl_gen *gen, uint8_t flags, struct xccl_chunks src,
                  struct xccl_chunks dst, int rconn);
/* src + message is sent. */
void xccl_gen_add_send(const struct xccl_gen *gen, uint8_t flags, struct xccl_chunks src, int rconn,
                       int sconn);
/* Sends src; dst = message. The counts may differ, and be 0. */
void xccl_gen_exchange(const struct xccl_gen *gen, struct xccl_chunks src, struct xccl_chunks dst,
                       int rconn, int sconn);
/* Sends src; dst = dst + message. */
void xccl_gen_exchange_add(const struct xccl_gen *gen, uint8_t flags, struct xccl_chunks src,
                           struct xccl_chunks dst, int rconn, int sconn);

/* The whole schedule of a communicator of one rank. */
void xccl_gen_alone(const struct xccl_gen *gen, uint8_t flags, int nchunks);

/* ---- numbers of chunks ---- */

int xccl_gen_one_chunk(const struct xccl_generator_for *what);
int xccl_gen_chunk_per_rank(const struct xccl_generator_for *what);

/* ---- the table's entries ---- */

extern const struct xccl_generator xccl_generator_ring_all_reduce;
extern const struct xccl_generator xccl_generator_ring_reduce_scatter;
extern const struct xccl_generator xccl_generator_ring_all_gather;
extern const struct xccl_generator xccl_generator_chain_broadcast;
extern const struct xccl_generator xccl_generator_chain_reduce;
extern const struct xccl_generator xccl_generator_dtree_all_reduce;
extern const struct xccl_generator xccl_generator_oneshot_all_reduce;
extern const struct xccl_generator xccl_generator_twoshot_all_reduce;
extern const struct xccl_generator xccl_generator_mesh_reduce_scatter;
extern const struct xccl_generator xccl_generator_mesh_all_gather;
extern const struct xccl_generator xccl_generator_rd_all_reduce;
extern const struct xccl_generator xccl_generator_rhd_all_reduce;
extern const struct xccl_generator xccl_generator_rhd_reduce_scatter;
extern const struct xccl_generator xccl_generator_rhd_all_gather;
extern const struct xccl_generator xccl_generator_nhr_all_reduce;
extern const struct xccl_generator xccl_generator_nhr_reduce_scatter;
extern const struct xccl_generator xccl_generator_nhr_all_gather;
extern const struct xccl_generator xccl_generator_nb_all_reduce;
extern const struct xccl_generator xccl_generator_nb_reduce_scatter;
extern const struct xccl_generator xccl_generator_nb_all_gather;
extern const struct xccl_generator xccl_generator_pat_all_reduce;
extern const struct xccl_generator xccl_generator_pat_reduce_scatter;
extern const struct xccl_generator xccl_generator_pat_all_gather;
extern const struct xccl_generator xccl_generator_binomial_broadcast;
extern const struct xccl_generator xccl_generator_binomial_reduce;
extern const struct xccl_generator xccl_generator_binomial_scatter;
extern const struct xccl_generator xccl_generator_binomial_gather;
extern const struct xccl_generator xccl_generator_sag_broadcast;
extern const struct xccl_generator xccl_generator_direct_scatter;
extern const struct xccl_generator xccl_generator_direct_gather;
extern const struct xccl_generator xccl_generator_pairwise_alltoall;
extern const struct xccl_generator xccl_generator_bruck_alltoall;
extern const struct xccl_generator xccl_generator_dissemination_barrier;
extern const struct xccl_generator xccl_generator_hier_all_reduce;
extern const struct xccl_generator xccl_generator_hier_reduce_scatter;
extern const struct xccl_generator xccl_generator_hier_all_gather;
extern const struct xccl_generator xccl_generator_hier_broadcast;
extern const struct xccl_generator xccl_generator_hier_reduce;
extern const struct xccl_generator xccl_generator_hier_barrier;
extern const struct xccl_generator xccl_generator_hier_alltoall;
extern const struct xccl_generator xccl_generator_hier_gather;
extern const struct xccl_generator xccl_generator_hier_scatter;
extern const struct xccl_generator xccl_generator_rails_broadcast;
extern const struct xccl_generator xccl_generator_rails_reduce;

#endif
