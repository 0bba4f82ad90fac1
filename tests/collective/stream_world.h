/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests of streams share: joining over a transport, queries until done, work that is checked.
 * Header only. */
#ifndef TESTS_COLLECTIVE_STREAM_WORLD_H
#define TESTS_COLLECTIVE_STREAM_WORLD_H

#include "world.h"

/* text of the world: "shm", or "net" for sockets in its place. */
static inline xcclComm_t streams_join(struct world *world, int rank, int nranks)
{
    if (world->text && !strcmp(world->text, "net"))
        xt_setenv("XCCL_SHM_DISABLE", "1");
    return world_join(world, rank, nranks);
}

/* Another communicator of the same ranks. */
static inline xcclComm_t streams_join_more(struct world *world, int rank, int nranks, int which)
{
    xcclComm_t comm = NULL;

    XT_OK(xcclCommInitRank(&comm, nranks, world_id(world, rank, which), rank));
    return comm;
}

static inline xcclStream_t streams_create(void)
{
    xcclStream_t stream = NULL;

    XT_OK(xcclStreamCreate(&stream));
    XT_CHECK(stream != NULL);
    return stream;
}

/* What the stream says when it is not in progress any more. */
static inline xcclResult_t streams_poll(xcclStream_t stream)
{
    xcclResult_t rc = xcclStreamQuery(stream);

    while (rc == xcclInProgress) { /* bounded by the test's deadline */
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        rc = xcclStreamQuery(stream);
    }
    return rc;
}

/* A flag in a page that the ranks share: set it, or wait for it without a call of the library; 0:
 * it has not been set within so many seconds. */
static inline void streams_set(_Atomic int *flag)
{
    /* Release: pairs with streams_await(). */
    atomic_store_explicit(flag, 1, memory_order_release);
}

static inline int streams_await(_Atomic int *flag, double seconds)
{
    double end = xt_seconds() + seconds;

    while (!atomic_load_explicit(flag, memory_order_acquire)) {
        if (xt_seconds() > end)
            return 0;
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return 1;
}

static inline void streams_fill(float *data, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++)
        data[i] = (float)world_value(rank, i, 0);
}

/* data is the sum over all ranks of what streams_fill() put there, times factor. */
static inline void streams_check(const float *data, size_t count, int nranks, float factor)
{
    for (size_t i = 0; i < count; i++) {
        float want = 0;

        for (int r = 0; r < nranks; r++)
            want += (float)world_value(r, i, 0);
        if (data[i] != want * factor)
            XT_FAIL("element %zu of %zu is %g, want %g", i, count, (double)data[i],
                    (double)(want * factor));
    }
}

#endif
