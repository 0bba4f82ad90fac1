/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of CUDA communicators: which way its record says that links go. Header only.
 * Thread: any. */
#ifndef TESTS_EMU_DEVICE_WAYS_H
#define TESTS_EMU_DEVICE_WAYS_H

#include "collective/own_record.h"
#include "device_ranks.h"

#define WAYS_COUNT 3000 /* elements that most tests add up */

/* A way that the record of this process must have; text NULL: any, else a part. */
struct expected {
    enum xccl_record_way_kind kind;
    const char *to, *from, *why;
};

static inline const struct xccl_record_path *find_way(const struct xccl_record_comm *comm,
                                                      const struct expected *want)
{
    for (uint32_t i = 0; i < comm->way_count; i++) {
        const struct xccl_record_path *way = &comm->ways[i];

        if (way->kind == want->kind && (!want->to || strcmp(way->to, want->to) == 0) &&
            (!want->from || strcmp(way->from, want->from) == 0) &&
            (!want->why || (want->why[0] ? strstr(way->why, want->why) != NULL : !way->why[0])))
            return way;
    }
    return NULL;
}

/* rank -1: of any rank of this process. */
static inline void check_way(int rank, const struct expected *want)
{
    struct xccl_record_view view;
    int found = 0;

    XT_CHECK(own_record(&view));
    for (uint32_t i = 0; i < view.count; i++) {
        const struct xccl_record_comm *comm = &view.comms[i];

        if ((rank >= 0 && (int)comm->rank != rank) || comm->state == XCCL_RECORD_LEFT)
            continue;
        found |= find_way(comm, want) != NULL;
        for (uint32_t k = 0; k < comm->way_count; k++)
            printf("rank %u: way %d to %s from %s: %s\n", comm->rank, (int)comm->ways[k].kind,
                   comm->ways[k].to, comm->ways[k].from, comm->ways[k].why);
    }
    if (!found)
        XT_FAIL("rank %d has no way %d to %s from %s: %s", rank, (int)want->kind,
                want->to ? want->to : "any", want->from ? want->from : "any",
                want->why ? want->why : "any");
    xccl_record_view_free(&view);
}

static inline xcclComm_t join_on(struct world *world, int rank, int nranks, int device)
{
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    xcclComm_t comm;

    config.device = device;
    XT_OK(xcclCommInitRankConfig(&comm, nranks, world_id(world, rank, 0), rank, &config));
    return comm;
}

static inline void one_sum(struct on_device *on, int rank, int nranks)
{
    size_t count = on->bytes / 4;

    device_put(on, count, rank, 1);
    XT_OK(xcclAllReduce(at(on->in, 0), at(on->out, 0), count, xcclInt32, xcclSum, on->comm,
                        on->stream));
    (void)device_get(on, count);
    for (size_t i = 0; i < count; i++)
        XT_CHECK_INT(on->host[i], sum_of(nranks, i, 1));
}

static inline void gather(struct on_device *on, int rank, int nranks)
{
    size_t count = WAYS_COUNT / (size_t)nranks;

    device_put(on, count, rank, 2);
    XT_OK(xcclAllGather(at(on->in, 0), at(on->out, 0), count, xcclInt32, on->comm, on->stream));
    (void)device_get(on, count * (size_t)nranks);
    for (size_t i = 0; i < count * (size_t)nranks; i++)
        XT_CHECK_INT(on->host[i], world_value((int)(i / count), i % count, 2));
}

static inline void pass_on(struct on_device *on, int rank, int nranks)
{
    device_put(on, WAYS_COUNT, rank, 3);
    XT_OK(xcclGroupStart());
    XT_OK(
        xcclSend(at(on->in, 0), WAYS_COUNT, xcclInt32, (rank + 1) % nranks, on->comm, on->stream));
    XT_OK(xcclRecv(at(on->out, 0), WAYS_COUNT, xcclInt32, (rank + nranks - 1) % nranks, on->comm,
                   on->stream));
    XT_OK(xcclGroupEnd());
    (void)device_get(on, WAYS_COUNT);
    for (size_t i = 0; i < WAYS_COUNT; i++)
        XT_CHECK_INT(on->host[i], world_value((rank + nranks - 1) % nranks, i, 3));
}

/* Every rank to every other one. */
static inline void exchange(struct on_device *on, int rank, int nranks)
{
    size_t count = WAYS_COUNT / (size_t)nranks;

    device_put(on, WAYS_COUNT, rank, 4);
    XT_OK(xcclAlltoAll(at(on->in, 0), at(on->out, 0), count, xcclInt32, on->comm, on->stream));
    (void)device_get(on, WAYS_COUNT);
    for (size_t i = 0; i < count * (size_t)nranks; i++)
        XT_CHECK_INT(on->host[i],
                     world_value((int)(i / count), (size_t)rank * count + i % count, 4));
}

/* Calls of several kinds, so that several bindings have memory, and all pairs have links. */
static inline void call_all(struct on_device *on, int rank, int nranks)
{
    one_sum(on, rank, nranks);
    gather(on, rank, nranks);
    pass_on(on, rank, nranks);
    exchange(on, rank, nranks);
}

#endif
