/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests with several ranks share: a page between the processes over which rank 0 passes the
 * unique id, and a checked all-reduce. Header only. */
#ifndef TESTS_COLLECTIVE_WORLD_H
#define TESTS_COLLECTIVE_WORLD_H

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "xccl.h"
#include "xt.h"

struct world {
    xcclUniqueId ids[8];
    _Atomic int ready[8]; /* ids[i] may be read */
    _Atomic int arrived; /* for tests that need a rendezvous of their own */
    int param; /* of the test, set before the ranks start */
    const char *text; /* likewise; a constant */
};

static inline const char *world_error(void)
{
    return xcclGetLastError(NULL);
}

/* Made before xt_mp_run, so that all ranks have it. */
static inline struct world *world_create(void)
{
    struct world *world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    XT_CHECK(world != MAP_FAILED);
    xt_set_error_source(world_error);
    return world;
}

/* Rank 0 makes id number which; the others wait for it. */
static inline xcclUniqueId world_id(struct world *world, int rank, int which)
{
    if (rank == 0) {
        XT_OK(xcclGetUniqueId(&world->ids[which]));
        /* Release: the id before the flag. Pairs with the load below. */
        atomic_store_explicit(&world->ready[which], 1, memory_order_release);
    }
    while (!atomic_load_explicit(&world->ready[which], memory_order_acquire))
        sched_yield(); /* bounded by the test's deadline */
    return world->ids[which];
}

static inline xcclComm_t world_join(struct world *world, int rank, int nranks)
{
    xcclComm_t comm = NULL;

    XT_OK(xcclCommInitRank(&comm, nranks, world_id(world, rank, 0), rank));
    XT_CHECK(comm != NULL);
    return comm;
}

/* Until `count` ranks have come here. */
static inline void world_meet(struct world *world, int count)
{
    atomic_fetch_add_explicit(&world->arrived, 1, memory_order_acq_rel);
    while (atomic_load_explicit(&world->arrived, memory_order_acquire) < count)
        sched_yield();
}

/* Small whole numbers: every order of adding gives the same float. */
static inline int world_value(int rank, size_t i, int round)
{
    return (int)((i * 7 + (size_t)rank * 13 + (size_t)round * 5) % 61) - 20;
}

struct world_case {
    size_t count, offset; /* bytes that the buffers are off their alignment */
    xcclDataType_t type;
    int in_place, round;
};

static inline void world_put(char *at, const struct world_case *c, size_t i, int value)
{
    float number = (float)value;

    memcpy(at + i * 4, c->type == xcclFloat32 ? (const void *)&number : (const void *)&value, 4);
}

static inline int world_get(const char *at, const struct world_case *c, size_t i)
{
    float number;
    int value;

    memcpy(&number, at + i * 4, 4);
    memcpy(&value, at + i * 4, 4);
    return c->type == xcclFloat32 ? (int)number : value;
}

/* One all-reduce with its data looked at, element by element, and the bytes around the result. */
static inline void world_all_reduce(xcclComm_t comm, int rank, int nranks,
                                    const struct world_case *c)
{
    size_t bytes = c->count * 4 + 64 + c->offset;
    char *in = malloc(bytes), *out = malloc(bytes);
    char *from = in + c->offset, *to = c->in_place ? from : out + c->offset;

    XT_CHECK(in && out);
    memset(in, 0x5a, bytes);
    memset(out, 0x5a, bytes);
    for (size_t i = 0; i < c->count; i++)
        world_put(from, c, i, world_value(rank, i, c->round));
    XT_OK(xcclAllReduce(from, to, c->count, c->type, xcclSum, comm, NULL));
    for (size_t i = 0; i < c->count; i++) {
        int want = 0;

        for (int r = 0; r < nranks; r++)
            want += world_value(r, i, c->round);
        if (world_get(to, c, i) != want)
            XT_FAIL("rank %d: element %zu of %zu is %d, want %d (type %d, in place %d, offset %zu)",
                    rank, i, c->count, world_get(to, c, i), want, (int)c->type, c->in_place,
                    c->offset);
    }
    for (size_t i = 0; i < 16; i++)
        XT_CHECK(to[c->count * 4 + i] == 0x5a);
    free(in);
    free(out);
}

static inline double world_seconds(void)
{
    return xt_seconds();
}

#endif
