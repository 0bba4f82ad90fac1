/* SPDX-License-Identifier: BSD-3-Clause */
/* The collectives of `xccl perf`: which buffers each has, what its sizes mean, how its bandwidth is
 * counted (all as in nccl-tests), and the call itself.
 *
 * Thread: the program's main thread; one rank a process. */
#include <string.h>

#include "perf.h"

#define ALIGN_BYTES 16 /* of a rank's block, as in nccl-tests */

enum {
    ALL_REDUCE,
    ALL_GATHER,
    BROADCAST,
    REDUCE,
    REDUCE_SCATTER,
    ALLTOALL,
    GATHER,
    SCATTER,
    SENDRECV
};

const struct xccl_perf_coll xccl_perf_colls[] = {
    {.name = "all_reduce", .which = ALL_REDUCE, .reduces = 1, .bus = XCCL_PERF_BUS_TWICE},
    {.name = "all_gather", .which = ALL_GATHER, .recv_all = 1, .bus = XCCL_PERF_BUS_OTHERS},
    {.name = "broadcast", .which = BROADCAST, .rooted = 1, .send_at_root = 1},
    {.name = "reduce", .which = REDUCE, .rooted = 1, .reduces = 1, .recv_at_root = 1},
    {.name = "reduce_scatter",
     .which = REDUCE_SCATTER,
     .reduces = 1,
     .send_all = 1,
     .bus = XCCL_PERF_BUS_OTHERS},
    {.name = "alltoall",
     .which = ALLTOALL,
     .send_all = 1,
     .recv_all = 1,
     .apart = 1,
     .bus = XCCL_PERF_BUS_OTHERS},
    {.name = "gather",
     .which = GATHER,
     .rooted = 1,
     .recv_all = 1,
     .recv_at_root = 1,
     .bus = XCCL_PERF_BUS_OTHERS},
    {.name = "scatter",
     .which = SCATTER,
     .rooted = 1,
     .send_all = 1,
     .send_at_root = 1,
     .bus = XCCL_PERF_BUS_OTHERS},
    {.name = "sendrecv", .which = SENDRECV, .apart = 1, .from_before = 1},
    {.name = "barrier", .which = -1, .apart = 1, .empty = 1},
    {.name = NULL},
};

/* Equal but for underscores, and for nccl-tests' "_perf" behind a. */
static int is_same_name(const char *a, const char *b)
{
    for (;;) {
        while (*a == '_' && strcmp(a, "_perf") != 0)
            a++;
        while (*b == '_')
            b++;
        if (!*b)
            return !*a || strcmp(a, "_perf") == 0;
        if (*a++ != *b++)
            return 0;
    }
}

const struct xccl_perf_coll *xccl_perf_coll_find(const char *name)
{
    for (const struct xccl_perf_coll *coll = xccl_perf_colls; coll->name; coll++) {
        if (is_same_name(name, coll->name))
            return coll;
    }
    return NULL;
}

struct xccl_perf_shape xccl_perf_shape_of(const struct xccl_perf_job *job, uint64_t bytes)
{
    const struct xccl_perf_coll *coll = job->options->coll;
    size_t elem_bytes = (size_t)xccl_perf_types[job->type].bytes;
    size_t n = (size_t)job->nranks;
    int by_block = coll->send_all || coll->recv_all;
    struct xccl_perf_shape shape = {.count = coll->empty ? 0 : bytes / elem_bytes};

    if (by_block) /* whole elements and whole 16 bytes a rank */
        shape.count = (shape.count / n) & ~(ALIGN_BYTES / elem_bytes - 1);
    shape.block = shape.count * elem_bytes;
    shape.bytes = shape.block * (by_block ? n : 1);
    shape.send = coll->send_all ? shape.bytes : shape.block;
    shape.recv = coll->recv_all ? shape.bytes : shape.block;
    if (coll->send_at_root && job->rank != job->root)
        shape.send = 0;
    if (coll->recv_at_root && job->rank != job->root)
        shape.recv = 0;
    return shape;
}

double xccl_perf_bus_factor(const struct xccl_perf_job *job)
{
    double n = job->nranks;

    switch (job->options->coll->bus) {
    case XCCL_PERF_BUS_TWICE:
        return 2 * (n - 1) / n;
    case XCCL_PERF_BUS_OTHERS:
        return (n - 1) / n;
    default:
        return 1;
    }
}

/* To the next rank, and from the one before. */
static xcclResult_t send_recv(const struct xccl_perf_job *job, const void *send, void *recv,
                              size_t count)
{
    int next = (job->rank + 1) % job->nranks, before = (job->rank + job->nranks - 1) % job->nranks;
    xcclResult_t rc = xcclGroupStart(), ended;

    if (!rc)
        rc = xcclSend(send, count, job->type, next, job->comm, NULL);
    if (!rc)
        rc = xcclRecv(recv, count, job->type, before, job->comm, NULL);
    ended = xcclGroupEnd();
    return rc ? rc : ended;
}

xcclResult_t xccl_perf_call(const struct xccl_perf_job *job, const void *send, void *recv,
                            size_t count)
{
    xcclDataType_t type = job->type;
    int root = job->root;
    xcclComm_t comm = job->comm;

    switch (job->options->coll->which) {
    case ALL_REDUCE:
        return xcclAllReduce(send, recv, count, type, job->op, comm, NULL);
    case ALL_GATHER:
        return xcclAllGather(send, recv, count, type, comm, NULL);
    case BROADCAST:
        return xcclBroadcast(send, recv, count, type, root, comm, NULL);
    case REDUCE:
        return xcclReduce(send, recv, count, type, job->op, root, comm, NULL);
    case REDUCE_SCATTER:
        return xcclReduceScatter(send, recv, count, type, job->op, comm, NULL);
    case ALLTOALL:
        return xcclAlltoAll(send, recv, count, type, comm, NULL);
    case GATHER:
        return xcclGather(send, recv, count, type, root, comm, NULL);
    case SCATTER:
        return xcclScatter(send, recv, count, type, root, comm, NULL);
    case SENDRECV:
        return send_recv(job, send, recv, count);
    default:
        return xcclBarrier(comm, NULL);
    }
}
