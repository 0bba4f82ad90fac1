/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures one size. A time is that of many calls between two looks at the clock, divided by their
 * number; before the first look the ranks meet in a small all-reduce, and the slowest rank's time
 * counts. Ranks tell each other figures through sums of vectors in which each rank fills only its
 * own part: such a sum is exact, and the same bits everywhere, so that all take the same decisions.
 * Whatever is measured, these are all-reduces.
 *
 * Thread: the program's main thread; one rank a process. */
#include <assert.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/os.h"
#include "perf.h"

#define ELEM_BYTES   4u
#define PAGE_BYTES   4096u
#define RECORD_WORDS (sizeof(struct xccl_perf_place) / ELEM_BYTES)
#define ENOUGH_US    20000.0 /* a batch of calls that takes this long is a measurement */
#define ITERS_MAX    1000000
#define BATCHES_MAX  16
#define WRONG_MAX    0x7fffffff
#define LATE_NS      200000 /* of a barrier's last rank */

static_assert(sizeof(struct xccl_perf_place) % ELEM_BYTES == 0, "a place is whole words");

xcclResult_t xccl_perf_job_init(struct xccl_perf_job *job)
{
    size_t bytes = job->options->max_bytes;

    job->data = xccl_calloc(1, sizeof(*job->data));
    job->places = xccl_calloc(job->nranks, sizeof(*job->places));
    for (int i = 0; i < 2; i++) {
        job->patterns[i] = xccl_calloc(1, sizeof(*job->patterns[i]));
        job->exchange[i] = xccl_calloc(job->nranks, sizeof(*job->places));
        job->memory[i] = xccl_calloc_aligned(PAGE_BYTES, bytes + 2 * PAGE_BYTES);
    }
    if (!job->data || !job->places || !job->patterns[0] || !job->patterns[1] || !job->exchange[0] ||
        !job->exchange[1] || !job->memory[0] || !job->memory[1]) {
        xccl_perf_job_fini(job);
        return xccl_fail(xcclSystemError, 0, "choose a smaller -e",
                         "rank %d has no memory for two buffers of %zu bytes", job->rank, bytes);
    }
    job->send = job->memory[0] + PAGE_BYTES;
    job->recv = job->memory[1] + PAGE_BYTES;
    return xcclSuccess;
}

void xccl_perf_job_fini(struct xccl_perf_job *job)
{
    for (int i = 0; i < 2; i++) {
        xccl_free(job->patterns[i]);
        xccl_free(job->exchange[i]);
        xccl_free(job->memory[i]);
        job->patterns[i] = NULL;
        job->exchange[i] = NULL;
        job->memory[i] = NULL;
    }
    xccl_free(job->places);
    xccl_free(job->data);
    job->places = NULL;
    job->data = NULL;
}

xcclResult_t xccl_perf_exchange(struct xccl_perf_job *job, const void *own, size_t words)
{
    size_t own_at = (size_t)job->rank * words * ELEM_BYTES;
    xcclResult_t rc = xcclSuccess;

    memset(job->exchange[0], 0, (size_t)job->nranks * words * ELEM_BYTES);
    memcpy((char *)job->exchange[0] + own_at, own, words * ELEM_BYTES);
    rc = xcclAllReduce(job->exchange[0], job->exchange[1], (size_t)job->nranks * words, xcclInt32,
                       xcclSum, job->comm, NULL);
    if (rc)
        return rc;
    if (memcmp((char *)job->exchange[1] + own_at, own, words * ELEM_BYTES) != 0)
        return xccl_fail(xcclInternalError, 0, "report it with the output of `xccl info`",
                         "rank %d told the others a figure and got back another one", job->rank);
    return xcclSuccess;
}

xcclResult_t xccl_perf_exchange_places(struct xccl_perf_job *job)
{
    struct xccl_perf_place own = {.pid = (int32_t)getpid()};
    xcclResult_t rc = xcclSuccess;

    strncpy(own.host, xccl_os_hostname(), sizeof(own.host) - 1);
    rc = xccl_perf_exchange(job, &own, RECORD_WORDS);
    if (rc)
        return rc;
    memcpy(job->places, job->exchange[1], (size_t)job->nranks * sizeof(*job->places));
    for (int i = 0; i < job->nranks; i++)
        job->places[i].host[XCCL_PERF_HOST_BYTES - 1] = '\0';
    return xcclSuccess;
}

/* One call, or a group of them. */
static xcclResult_t run_once(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                             int in_place, int64_t group_calls)
{
    struct xccl_perf_buffers at = xccl_perf_buffers_of(job, shape, in_place);
    xcclResult_t rc = xcclSuccess;
    xcclResult_t end_rc = xcclSuccess;

    if (group_calls == 1)
        return xccl_perf_call(job, at.send, at.recv, shape->count);
    rc = xcclGroupStart();
    if (rc)
        return rc;
    for (int64_t i = 0; i < group_calls && !rc; i++)
        rc = xccl_perf_call(job, at.send, at.recv, shape->count);
    end_rc = xcclGroupEnd();
    return rc ? rc : end_rc;
}

/* All ranks leave it at nearly the same time. */
static xcclResult_t meet(struct xccl_perf_job *job)
{
    return xcclAllReduce(job->exchange[0], job->exchange[1], 1, xcclInt32, xcclSum, job->comm,
                         NULL);
}

/* The time of iters calls on the slowest rank. Times travel as whole nanoseconds in two words. */
static xcclResult_t time_batch(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                               int in_place, int64_t iters, double *us_out)
{
    uint64_t start_ns = 0;
    uint64_t own_ns = 0;
    uint64_t slowest_ns = 0;
    xcclResult_t rc = meet(job);

    if (rc)
        return rc;
    start_ns = xccl_clock_ns();
    for (int64_t i = 0; i < iters && !rc; i++)
        rc = run_once(job, shape, in_place, job->options->group_calls);
    own_ns = xccl_clock_ns() - start_ns;
    if (rc)
        return rc;
    rc = xccl_perf_exchange(job, &own_ns, sizeof(own_ns) / ELEM_BYTES);
    if (rc)
        return rc;
    for (int i = 0; i < job->nranks; i++) {
        uint64_t ns = 0;

        memcpy(&ns, (char *)job->exchange[1] + (size_t)i * sizeof(ns), sizeof(ns));
        if (ns > slowest_ns)
            slowest_ns = ns;
    }
    *us_out = (double)slowest_ns / 1000.0;
    return xcclSuccess;
}

/* Measures in batches that grow until one takes long enough; the last one counts. */
static xcclResult_t measure_time(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                                 int in_place, struct xccl_perf_figure *figure)
{
    const struct xccl_perf_options *options = job->options;
    int64_t iters = options->iters;
    double us = 0;

    for (int64_t i = 0; i < options->warmup_iters; i++) {
        xcclResult_t rc = run_once(job, shape, in_place, options->group_calls);

        if (rc)
            return rc;
    }
    for (int batch = 0; batch < BATCHES_MAX; batch++) {
        double growth = 0;
        xcclResult_t rc = time_batch(job, shape, in_place, iters, &us);

        if (rc)
            return rc;
        if (options->iters_given || us >= ENOUGH_US || iters >= ITERS_MAX)
            break;
        growth = 1.2 * ENOUGH_US / (us > 1 ? us : 1);
        if (growth > 100)
            growth = 100;
        iters = (int64_t)((double)iters * growth) + 1;
        if (iters > ITERS_MAX)
            iters = ITERS_MAX;
    }
    figure->iters = iters;
    figure->time_us = us / (double)(iters * options->group_calls);
    return xcclSuccess;
}

/* Nobody may leave a barrier before the last rank has come; one comes late. Only times of the same
 * host are compared: their clock is one. */
static xcclResult_t check_barrier(struct xccl_perf_job *job)
{
    const struct timespec nap = {.tv_nsec = LATE_NS};
    uint64_t own[2] = {0}, other[2] = {0};
    xcclResult_t rc = xcclSuccess;

    if ((int)(++job->data->salt % (uint32_t)job->nranks) == job->rank)
        (void)nanosleep(&nap, NULL);
    own[0] = xccl_clock_ns();
    rc = xccl_perf_call(job, NULL, NULL, 0);
    own[1] = xccl_clock_ns();
    if (!rc)
        rc = xccl_perf_exchange(job, own, sizeof(own) / ELEM_BYTES);
    for (int i = 0; i < job->nranks && !rc; i++) {
        memcpy(other, (char *)job->exchange[1] + (size_t)i * sizeof(other), sizeof(other));
        if (strcmp(job->places[i].host, job->places[job->rank].host) == 0 && other[0] > own[1])
            job->wrong_here++;
    }
    return rc;
}

static xcclResult_t check_once(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                               int in_place)
{
    xcclResult_t rc = xcclSuccess;

    if (job->options->coll->empty)
        return check_barrier(job);
    xccl_perf_check_begin(job, shape, in_place);
    rc = run_once(job, shape, in_place, 1);
    if (!rc)
        xccl_perf_check_end(job, shape, in_place);
    return rc;
}

/* Runs the checks and adds up what all ranks found. */
static xcclResult_t measure_wrong(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                                  int in_place, struct xccl_perf_figure *figure)
{
    int64_t before = job->wrong_here;
    int64_t found = 0;
    int32_t own = 0;
    xcclResult_t rc = xcclSuccess;

    figure->wrong = -1;
    if (job->options->check_runs == 0)
        return xcclSuccess;
    for (int64_t i = 0; i < job->options->check_runs && !rc; i++)
        rc = check_once(job, shape, in_place);
    if (rc)
        return rc;
    found = job->wrong_here - before;
    own = found < WRONG_MAX ? (int32_t)found : WRONG_MAX;
    rc = xccl_perf_exchange(job, &own, 1);
    if (rc)
        return rc;
    figure->wrong = 0;
    for (int i = 0; i < job->nranks; i++)
        figure->wrong += ((int32_t *)job->exchange[1])[i];
    return xcclSuccess;
}

static xcclResult_t measure_figure(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                                   int in_place, struct xccl_perf_figure *figure)
{
    xcclResult_t rc = xcclSuccess;

    /* In place results grow until they are infinite or wrap around; neither costs time. */
    xccl_perf_check_begin(job, shape, in_place);
    rc = measure_time(job, shape, in_place, figure);
    if (rc)
        return rc;
    figure->algbw = figure->time_us > 0 ? (double)shape->bytes / figure->time_us / 1000.0 : 0;
    figure->busbw = figure->algbw * xccl_perf_bus_factor(job);
    return measure_wrong(job, shape, in_place, figure);
}

xcclResult_t xccl_perf_measure(struct xccl_perf_job *job, uint64_t bytes,
                               struct xccl_perf_row *row_out)
{
    const struct xccl_perf_coll *coll = job->options->coll;
    struct xccl_perf_shape shape = xccl_perf_shape_of(job, bytes);
    struct xccl_perf_row row = {.bytes = shape.bytes,
                                .count = shape.count,
                                .type = job->type,
                                .op = job->op,
                                .root = coll->rooted ? job->root : -1};
    xcclResult_t rc = measure_figure(job, &shape, 0, &row.out_of_place);

    if (!rc && !coll->apart)
        rc = measure_figure(job, &shape, 1, &row.in_place);
    if (!rc)
        *row_out = row;
    return rc;
}
