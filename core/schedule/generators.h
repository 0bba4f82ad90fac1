/* SPDX-License-Identifier: BSD-3-Clause */
/* The algorithms that XCCL brings: a table of generators, each for one collective. A generator is a
 * pure function of its arguments: the same on all ranks of a communicator. Thread: any. */
#ifndef XCCL_SCHEDULE_GENERATORS_H
#define XCCL_SCHEDULE_GENERATORS_H

#include "schedule/builder.h"

struct xccl_generator_for {
    int nranks, rank, root;
    int param; /* of algorithms with one; 0: its default */
    /* By rank: 1 where one message of this rank reaches it together with all others marked so, and
     * the other way round; this rank is marked too when any is, else the marks do not count. NULL:
     * nowhere. */
    const uint8_t *multicast;
    /* Of hierarchies alone. */
    const int *nodes; /* a node's number for each rank, 0 to nranks - 1; NULL: all ranks in one */
    const char *inner, *outer; /* algorithms in and between nodes; NULL: chosen by their sizes */
    /* Each rank once: who stands at each position, for generators that take an order. NULL: each
     * rank at its own number. rank, root and the schedule's peers and blocks are ranks all the
     * same. */
    const uint16_t *order;
};

struct xccl_generator {
    const char *name; /* "ring", unique within a collective */
    enum xccl_coll coll;
    const char *help; /* one line */
    int param_min, param_max; /* 0: it has no parameter */
    int scrbufs;
    int slots; /* that its schedules need at most; what proofs find is never more */
    int links_all; /* 1: a rank may have links with all others */
    /* 1: near positions exchange more, or sooner, than far ones, so it takes an order of ranks. 0:
     * it sums in the order of ranks, sends all to all, or knows the nodes. */
    int takes_order;
    /* Chunks of the whole vector. */
    int (*chunks)(const struct xccl_generator_for *what);
    /* Emits the steps of one rank; never called for ranks it does not serve. */
    void (*emit)(struct xccl_builder *builder, const struct xccl_generator_for *what);
    int (*serves)(const struct xccl_generator_for *what); /* NULL: every n >= 1 */
    /* In place of chunks where that can fail. xcclInvalidArgument: the text says why, and nothing
     * is logged yet. */
    xcclResult_t (*plan)(enum xccl_coll coll, const struct xccl_generator_for *what,
                         int *nchunks_out);
    /* Connections from one rank to another of a different node, an upper bound, the same on all
     * ranks; NULL: few. A communicator has room for XCCL_CONN_IDS. */
    int (*meetings)(enum xccl_coll coll, const struct xccl_generator_for *what);
};
#define XCCL_CONN_IDS 15

extern const struct xccl_generator *const xccl_generators[]; /* ends with NULL */

/* All that there are, numbered from 0: the built-in ones, then those that were added; NULL behind
 * the last one. Any thread. */
const struct xccl_generator *xccl_generator_at(int idx);
/* Adds one that stays as it is until the process ends; 0: there is no room. One thread at a time.
 */
#define XCCL_GENERATORS_ADDED_MAX 32
int xccl_generator_add(const struct xccl_generator *generator);

/* By name, with the parameter behind a colon ("pat:4"); NULL when there is none. */
const struct xccl_generator *xccl_generator_find(enum xccl_coll coll, const char *name,
                                                 int *param_out);
/* Logs why a plan of a generator failed; returns rc. */
xcclResult_t xccl_generator_told(xcclResult_t rc);
/* The schedule of one rank. */
xcclResult_t xccl_generator_make(const struct xccl_generator *generator,
                                 const struct xccl_generator_for *what,
                                 struct xccl_schedule **schedule_out);
/* Of all ranks; schedules_out has room for nranks, and on failure nothing is left in it. */
xcclResult_t xccl_generator_make_all(const struct xccl_generator *generator,
                                     const struct xccl_generator_for *what,
                                     struct xccl_schedule **schedules_out);

#endif
