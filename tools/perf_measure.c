/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures one size. A time is that of many calls between two looks at the clock, divided by their
 * number; before the first look the ranks meet in a small all-reduce, and the slowest rank's time
 * counts. Ranks tell each other figures through sums of vectors in which each rank fills only its
 * own part: such a sum is exact, and the same bits everywhere, so that all take the same decisions.
 *
 * Thread: the program's main thread; one rank a process. */
#include <assert.h>
#include <string.h>
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
#define POISON_BYTE  0x5A
#define WRONG_MAX    0x7fffffff

static_assert(sizeof(struct xccl_perf_place) % ELEM_BYTES == 0, "a place is whole words");

xcclResult_t xccl_perf_job_init(struct xccl_perf_job *job)
{
    size_t bytes = job->options->max_bytes;

    job->data = xccl_calloc(1, sizeof(*job->data));
    job->places = xccl_calloc(job->nranks, sizeof(*job->places));
    for (int i = 0; i < 2; i++) {
        job->exchange[i] = xccl_calloc(job->nranks, sizeof(*job->places));
        job->memory[i] = xccl_calloc_aligned(PAGE_BYTES, bytes + 2 * PAGE_BYTES);
    }
    if (!job->data || !job->places || !job->exchange[0] || !job->exchange[1] || !job->memory[0] ||
        !job->memory[1]) {
        xccl_perf_job_fini(job);
        return xccl_fail(xcclSystemError, 0, "choose a smaller -e",
                         "rank %d has no memory for two buffers of %zu bytes", job->rank, bytes);
    }
    job->send = job->memory[0] + PAGE_BYTES;
    job->recv = job->memory[1] + PAGE_BYTES;
    job->data->type = job->options->type;
    job->data->rank = job->rank;
    job->data->nranks = job->nranks;
    return xcclSuccess;
}

void xccl_perf_job_fini(struct xccl_perf_job *job)
{
    for (int i = 0; i < 2; i++) {
        xccl_free(job->exchange[i]);
        xccl_free(job->memory[i]);
        job->exchange[i] = NULL;
        job->memory[i] = NULL;
    }
    xccl_free(job->places);
    xccl_free(job->data);
    job->places = NULL;
    job->data = NULL;
}

/* Every rank gives words of 32 bits and gets everybody's, in rank order, in job->exchange[1]. */
static xcclResult_t exchange(struct xccl_perf_job *job, const void *own, size_t words)
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
    rc = exchange(job, &own, RECORD_WORDS);
    if (rc)
        return rc;
    memcpy(job->places, job->exchange[1], (size_t)job->nranks * sizeof(*job->places));
    for (int i = 0; i < job->nranks; i++)
        job->places[i].host[XCCL_PERF_HOST_BYTES - 1] = '\0';
    return xcclSuccess;
}

/* One call, or a group of them. */
static xcclResult_t run_once(struct xccl_perf_job *job, int in_place, size_t count,
                             int64_t group_calls)
{
    const void *send = in_place ? job->recv : job->send;
    xcclResult_t rc = xcclSuccess;
    xcclResult_t end_rc = xcclSuccess;

    if (group_calls == 1)
        return xcclAllReduce(send, job->recv, count, job->options->type, xcclSum, job->comm, NULL);
    rc = xcclGroupStart();
    if (rc)
        return rc;
    for (int64_t i = 0; i < group_calls && !rc; i++)
        rc = xcclAllReduce(send, job->recv, count, job->options->type, xcclSum, job->comm, NULL);
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
static xcclResult_t time_batch(struct xccl_perf_job *job, int in_place, size_t count, int64_t iters,
                               double *us_out)
{
    uint64_t start_ns = 0;
    uint64_t own_ns = 0;
    uint64_t slowest_ns = 0;
    xcclResult_t rc = meet(job);

    if (rc)
        return rc;
    start_ns = xccl_clock_ns();
    for (int64_t i = 0; i < iters && !rc; i++)
        rc = run_once(job, in_place, count, job->options->group_calls);
    own_ns = xccl_clock_ns() - start_ns;
    if (rc)
        return rc;
    rc = exchange(job, &own_ns, sizeof(own_ns) / ELEM_BYTES);
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
static xcclResult_t measure_time(struct xccl_perf_job *job, int in_place, size_t count,
                                 struct xccl_perf_figure *figure)
{
    const struct xccl_perf_options *options = job->options;
    int64_t iters = options->iters;
    double us = 0;

    for (int64_t i = 0; i < options->warmup_iters; i++) {
        xcclResult_t rc = run_once(job, in_place, count, options->group_calls);

        if (rc)
            return rc;
    }
    for (int batch = 0; batch < BATCHES_MAX; batch++) {
        double growth = 0;
        xcclResult_t rc = time_batch(job, in_place, count, iters, &us);

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

/* New contents, poison where the result is to come, guards around it, one call, every element
 * compared. */
static xcclResult_t check_once(struct xccl_perf_job *job, int in_place, size_t count)
{
    size_t bytes = count * ELEM_BYTES;
    int64_t outside = 0;
    xcclResult_t rc = xcclSuccess;

    xccl_perf_data_draw(job->data, ++job->salt);
    memset(job->recv, POISON_BYTE, bytes);
    xccl_perf_data_fill(job->data, in_place ? job->recv : job->send, count);
    xccl_perf_guard_fill(job->recv, bytes);
    rc = run_once(job, in_place, count, 1);
    if (rc)
        return rc;
    job->wrong_here += xccl_perf_data_wrong(job->data, job->recv, count);
    outside = xccl_perf_guard_wrong(job->recv, bytes);
    if (outside)
        fprintf(stderr,
                "xccl perf: rank %d: %lld bytes beside the receive buffer of %zu bytes were "
                "written\n",
                job->rank, (long long)outside, bytes);
    job->wrong_here += outside;
    return xcclSuccess;
}

/* Runs the checks and adds up what all ranks found. */
static xcclResult_t measure_wrong(struct xccl_perf_job *job, int in_place, size_t count,
                                  struct xccl_perf_figure *figure)
{
    int64_t before = job->wrong_here;
    int64_t found = 0;
    int32_t own = 0;
    xcclResult_t rc = xcclSuccess;

    figure->wrong = -1;
    if (job->options->check_runs == 0)
        return xcclSuccess;
    for (int64_t i = 0; i < job->options->check_runs && !rc; i++)
        rc = check_once(job, in_place, count);
    if (rc)
        return rc;
    found = job->wrong_here - before;
    own = found < WRONG_MAX ? (int32_t)found : WRONG_MAX;
    rc = exchange(job, &own, 1);
    if (rc)
        return rc;
    figure->wrong = 0;
    for (int i = 0; i < job->nranks; i++)
        figure->wrong += ((int32_t *)job->exchange[1])[i];
    return xcclSuccess;
}

static xcclResult_t measure_figure(struct xccl_perf_job *job, int in_place, size_t count,
                                   struct xccl_perf_figure *figure)
{
    double bytes = (double)(count * ELEM_BYTES);
    xcclResult_t rc = xcclSuccess;

    /* In place the sums grow until they are infinite or wrap around; neither costs time. */
    xccl_perf_data_draw(job->data, ++job->salt);
    xccl_perf_data_fill(job->data, job->send, count);
    xccl_perf_data_fill(job->data, job->recv, count);
    rc = measure_time(job, in_place, count, figure);
    if (rc)
        return rc;
    figure->algbw = figure->time_us > 0 ? bytes / figure->time_us / 1000.0 : 0;
    figure->busbw = figure->algbw * 2.0 * (job->nranks - 1) / job->nranks;
    return measure_wrong(job, in_place, count, figure);
}

xcclResult_t xccl_perf_measure(struct xccl_perf_job *job, uint64_t bytes,
                               struct xccl_perf_row *row_out)
{
    struct xccl_perf_row row = {.count = bytes / ELEM_BYTES};
    xcclResult_t rc = xcclSuccess;

    row.bytes = row.count * ELEM_BYTES;
    rc = measure_figure(job, 0, row.count, &row.out_of_place);
    if (rc)
        return rc;
    rc = measure_figure(job, 1, row.count, &row.in_place);
    if (rc)
        return rc;
    *row_out = row;
    return xcclSuccess;
}
