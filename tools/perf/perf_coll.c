/* SPDX-License-Identifier: BSD-3-Clause */
/* The collectives of `xccl perf`: which buffers each has, what its sizes mean, and how its
 * bandwidth is counted (all as in nccl-tests). Where blocks are uneven, they grow from the first to
 * the last as 1, 2, 3 and so on: shares of all elements, whole ones.
 *
 * Thread: any; a job at a time. */
#include <string.h>

#include "perf/perf.h"

#define ALIGN_BYTES 16 /* of a rank's block, as in nccl-tests */

const struct xccl_perf_coll xccl_perf_colls[] = {
    {.name = "all_reduce", .which = XCCL_PERF_ALL_REDUCE, .reduces = 1, .bus = XCCL_PERF_BUS_TWICE},
    {.name = "all_gather",
     .which = XCCL_PERF_ALL_GATHER,
     .recv_all = 1,
     .bus = XCCL_PERF_BUS_OTHERS},
    {.name = "broadcast", .which = XCCL_PERF_BROADCAST, .rooted = 1, .send_at_root = 1},
    {.name = "reduce", .which = XCCL_PERF_REDUCE, .rooted = 1, .reduces = 1, .recv_at_root = 1},
    {.name = "reduce_scatter",
     .which = XCCL_PERF_REDUCE_SCATTER,
     .reduces = 1,
     .send_all = 1,
     .bus = XCCL_PERF_BUS_OTHERS},
    {.name = "alltoall",
     .which = XCCL_PERF_ALLTOALL,
     .send_all = 1,
     .recv_all = 1,
     .apart = 1,
     .bus = XCCL_PERF_BUS_OTHERS},
    {.name = "gather",
     .which = XCCL_PERF_GATHER,
     .rooted = 1,
     .recv_all = 1,
     .recv_at_root = 1,
     .bus = XCCL_PERF_BUS_OTHERS},
    {.name = "scatter",
     .which = XCCL_PERF_SCATTER,
     .rooted = 1,
     .send_all = 1,
     .send_at_root = 1,
     .bus = XCCL_PERF_BUS_OTHERS},
    {.name = "sendrecv", .which = XCCL_PERF_SENDRECV, .apart = 1, .from_before = 1},
    {.name = "all_gatherv",
     .which = XCCL_PERF_ALL_GATHERV,
     .uneven = 1,
     .recv_all = 1,
     .bus = XCCL_PERF_BUS_OTHERS},
    {.name = "reduce_scatterv",
     .which = XCCL_PERF_REDUCE_SCATTERV,
     .uneven = 1,
     .reduces = 1,
     .send_all = 1,
     .bus = XCCL_PERF_BUS_OTHERS},
    {.name = "alltoallv",
     .which = XCCL_PERF_ALLTOALLV,
     .uneven = 1,
     .send_all = 1,
     .recv_all = 1,
     .apart = 1,
     .bus = XCCL_PERF_BUS_OTHERS},
    {.name = "barrier", .which = XCCL_PERF_BARRIER, .apart = 1, .empty = 1},
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

/* Elements of the shares before share i, of n that grow evenly. Nothing overflows: n is small. */
static size_t share_at(size_t all, size_t n, size_t i)
{
    size_t whole = n * (n + 1) / 2, part = i * (i + 1) / 2;

    return all / whole * part + all % whole * part / whole;
}

/* Elements that rank `from` has for rank `to`. */
static size_t block_count(const struct xccl_perf_job *job, size_t count, int from, int to)
{
    const struct xccl_perf_coll *coll = job->coll;
    size_t n = (size_t)job->nranks, i = (size_t)(coll->send_all ? to : from);

    if (!coll->uneven)
        return count;
    if (coll->send_all && coll->recv_all)
        i = (size_t)(from + to) % n;
    return share_at(count, n, i + 1) - share_at(count, n, i);
}

size_t xccl_perf_first_of(const struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                          int from)
{
    size_t first = 0;

    if (!job->coll->uneven)
        return (size_t)job->rank * shape->count;
    for (int to = 0; to < job->rank; to++)
        first += block_count(job, shape->count, from, to);
    return first;
}

/* Sizes and places of all blocks, one behind the other. */
static void fill_blocks(struct xccl_perf_job *job, size_t count)
{
    size_t sent_at = 0, got_at = 0;

    for (int i = 0; i < job->nranks; i++) {
        size_t sent = block_count(job, count, job->rank, i);
        size_t got = block_count(job, count, i, job->rank);

        job->blocks[XCCL_PERF_SENT][i] = sent;
        job->blocks[XCCL_PERF_SENT_AT][i] = sent_at;
        job->blocks[XCCL_PERF_GOT][i] = got;
        job->blocks[XCCL_PERF_GOT_AT][i] = got_at;
        sent_at += sent;
        got_at += got;
    }
}

/* Whole elements and whole 16 bytes a rank, where all have the same. */
static size_t count_of(const struct xccl_perf_job *job, uint64_t bytes)
{
    const struct xccl_perf_coll *coll = job->coll;
    size_t elem_bytes = (size_t)xccl_perf_types[job->type].bytes;
    size_t count = coll->empty ? 0 : bytes / elem_bytes;

    if (coll->uneven || (!coll->send_all && !coll->recv_all))
        return count;
    return (count / (size_t)job->nranks) & ~(ALIGN_BYTES / elem_bytes - 1);
}

struct xccl_perf_shape xccl_perf_shape_of(struct xccl_perf_job *job, uint64_t bytes)
{
    const struct xccl_perf_coll *coll = job->coll;
    size_t elem_bytes = (size_t)xccl_perf_types[job->type].bytes;
    struct xccl_perf_shape shape = {.count = count_of(job, bytes)};
    int to_all = coll->send_all || coll->recv_all;

    fill_blocks(job, shape.count);
    shape.bytes = shape.count * elem_bytes;
    shape.own_count = shape.count;
    if (to_all && !coll->uneven)
        shape.bytes *= (size_t)job->nranks;
    if (to_all) {
        int which = coll->send_all ? XCCL_PERF_SENT : XCCL_PERF_GOT;

        shape.own = job->blocks[which + 1][job->rank];
        shape.own_count = job->blocks[which][job->rank];
    }
    shape.send = coll->send_all ? shape.bytes : shape.own_count * elem_bytes;
    shape.recv = coll->recv_all ? shape.bytes : shape.own_count * elem_bytes;
    if (coll->send_at_root && job->rank != job->root)
        shape.send = 0;
    if (coll->recv_at_root && job->rank != job->root)
        shape.recv = 0;
    if (coll->which == XCCL_PERF_MESSAGE && job->rank != job->peer)
        shape.recv = 0;
    return shape;
}

double xccl_perf_bus_factor(const struct xccl_perf_coll *coll, int nranks)
{
    double n = nranks;

    switch (coll->bus) {
    case XCCL_PERF_BUS_TWICE:
        return 2 * (n - 1) / n;
    case XCCL_PERF_BUS_OTHERS:
        return (n - 1) / n;
    default:
        return 1;
    }
}
