/* SPDX-License-Identifier: BSD-3-Clause */
/* The check of one call of `xccl perf`: where the buffers lie, new contents, poison where the
 * result is to come, guards around it, and afterwards every element compared. In place what the
 * call has no reason to change must be as it was.
 *
 * Thread: the rank's. */
#include <string.h>

#include "perf/perf.h"

#define POISON_BYTE 0x5A

struct xccl_perf_buffers xccl_perf_buffers_of(const struct xccl_perf_job *job,
                                              const struct xccl_perf_shape *shape, int in_place)
{
    size_t own = shape->own * (size_t)xccl_perf_types[job->type].bytes;
    struct xccl_perf_buffers at = {job->send, job->recv, job->recv, shape->recv};

    if (!in_place)
        return at;
    at.send = shape->send ? job->recv : NULL;
    at.recv = shape->recv ? job->recv : NULL;
    if (shape->send && shape->recv > shape->send)
        at.send += own;
    if (shape->recv && shape->send > shape->recv)
        at.recv += own;
    if (shape->send > shape->recv)
        at.written_bytes = shape->send;
    return at;
}

void xccl_perf_check_data(struct xccl_perf_job *job, const struct xccl_perf_shape *shape)
{
    size_t longest = shape->bytes / (size_t)xccl_perf_types[job->type].bytes;

    job->data->salt = job->salt;
    job->data->type = job->type;
    job->data->op = job->op;
    job->data->reduces = job->coll->reduces;
    job->data->nranks = job->nranks;
    job->data->span = (uint32_t)(longest < XCCL_PERF_PERIOD ? longest : XCCL_PERF_PERIOD);
}

void xccl_perf_check_begin(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                           int in_place)
{
    struct xccl_perf_buffers at = xccl_perf_buffers_of(job, shape, in_place);
    size_t elem_bytes = (size_t)xccl_perf_types[job->type].bytes;

    job->salt++;
    xccl_perf_check_data(job, shape);
    memset(at.written, POISON_BYTE, at.written_bytes);
    if (shape->send) {
        xccl_perf_pattern_draw(job->data, job->rank, job->patterns[0]);
        xccl_perf_pattern_fill(job->data, job->patterns[0], at.send, shape->send / elem_bytes);
    }
    xccl_perf_guard_fill(at.written, at.written_bytes);
}

/* Whose block i is. */
static int rank_of(const struct xccl_perf_job *job, int i)
{
    if (job->coll->from_before)
        return (job->rank + job->nranks - 1) % job->nranks;
    return job->coll->recv_all ? i : job->root;
}

int64_t xccl_perf_check_blocks(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                               const char *recv)
{
    const struct xccl_perf_coll *coll = job->coll;
    size_t elem_bytes = (size_t)xccl_perf_types[job->type].bytes;
    struct xccl_perf_stretch part = {.count = shape->recv / elem_bytes, .is_result = coll->reduces};
    int64_t wrong = 0;

    if (!shape->recv)
        return 0;
    if (coll->reduces)
        xccl_perf_pattern_reduce(job->data, job->patterns[1]);
    for (int i = 0; i < (coll->recv_all ? job->nranks : 1); i++) {
        size_t at = coll->recv_all ? job->blocks[XCCL_PERF_GOT_AT][i] : 0;

        if (coll->recv_all)
            part.count = job->blocks[XCCL_PERF_GOT][i];
        if (coll->send_all)
            part.first = xccl_perf_first_of(job, shape, rank_of(job, i));
        if (!coll->reduces)
            xccl_perf_pattern_draw(job->data, rank_of(job, i), job->patterns[1]);
        wrong += xccl_perf_pattern_wrong(job->data, job->patterns[1], recv + at * elem_bytes, part);
    }
    return wrong;
}

/* In place: what this rank sent and is not part of what it received. */
static int64_t wrong_rest(struct xccl_perf_job *job, const struct xccl_perf_shape *shape)
{
    size_t elem_bytes = (size_t)xccl_perf_types[job->type].bytes;
    size_t all = shape->send / elem_bytes;
    struct xccl_perf_stretch low = {.count = shape->recv ? shape->own : all};
    struct xccl_perf_stretch high = {.first = shape->own + shape->own_count};
    int64_t wrong = 0;

    if (shape->send <= shape->recv)
        return 0;
    xccl_perf_pattern_draw(job->data, job->rank, job->patterns[0]);
    wrong = xccl_perf_pattern_wrong(job->data, job->patterns[0], job->recv, low);
    if (!shape->recv)
        return wrong;
    high.count = all - high.first;
    return wrong + xccl_perf_pattern_wrong(job->data, job->patterns[0],
                                           job->recv + high.first * elem_bytes, high);
}

void xccl_perf_check_end(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                         int in_place)
{
    struct xccl_perf_buffers at = xccl_perf_buffers_of(job, shape, in_place);
    int64_t outside = xccl_perf_guard_wrong(at.written, at.written_bytes);

    xccl_perf_check_data(job, shape);
    job->wrong_here += xccl_perf_check_blocks(job, shape, at.recv);
    if (in_place)
        job->wrong_here += wrong_rest(job, shape);
    if (outside)
        fprintf(stderr,
                "xccl perf: rank %d: %lld bytes outside of the receive buffer of %zu bytes were "
                "written\n",
                job->rank, (long long)outside, at.written_bytes);
    job->wrong_here += outside;
}
