/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures one size. A time is that of many calls between two looks at the clock, divided by their
 * number; before the first look the ranks meet in a small all-reduce, and the slowest rank's time
 * counts. Ranks tell each other figures through sums of vectors in which each rank fills only its
 * own part: such a sum is exact, and the same bits everywhere, so that all take the same decisions.
 * Whatever is measured, these are all-reduces.
 *
 * Thread: the rank's. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/os.h"
#include "perf/perf.h"
#include "perf/perf_device.h"
#include "perf/perf_vs_mpi.h"

#define ELEM_BYTES   4u
#define RECORD_WORDS (sizeof(struct xccl_perf_place) / ELEM_BYTES)
#define BATCHES_MAX  16
#define WRONG_MAX    0x7fffffff
#define VS_ROUNDS    5 /* of ours and MPI's in turn */
#define LATE_NS      200000 /* of a barrier's last rank */

static_assert(sizeof(struct xccl_perf_place) % ELEM_BYTES == 0, "a place is whole words");

xcclResult_t xccl_perf_exchange(struct xccl_perf_job *job, const void *own, size_t words)
{
    size_t own_at = (size_t)job->rank * words * ELEM_BYTES;
    xcclResult_t rc = xcclSuccess;

    memset(job->exchange[0], 0, (size_t)job->nranks * words * ELEM_BYTES);
    memcpy((char *)job->exchange[0] + own_at, own, words * ELEM_BYTES);
    rc = xcclAllReduce(job->exchange[0], job->exchange[1], (size_t)job->nranks * words, xcclInt32,
                       xcclSum, job->control, NULL);
    if (rc)
        return rc;
    if (memcmp((char *)job->exchange[1] + own_at, own, words * ELEM_BYTES) != 0)
        return xccl_fail(xcclInternalError, 0, "report it with the output of `xccl info`",
                         "rank %d sent a figure to the other ranks and received a different one",
                         job->rank);
    return xcclSuccess;
}

xcclResult_t xccl_perf_exchange_places(struct xccl_perf_job *job)
{
    struct xccl_perf_place own = {.pid = (int32_t)getpid()};
    xcclResult_t rc = xcclSuccess;

    strncpy(own.host, xccl_os_hostname(), sizeof(own.host) - 1);
    xccl_perf_device_name(job, own.device, sizeof(own.device));
    rc = xccl_perf_exchange(job, &own, RECORD_WORDS);
    if (rc)
        return rc;
    memcpy(job->places, job->exchange[1], (size_t)job->nranks * sizeof(*job->places));
    for (int i = 0; i < job->nranks; i++) {
        job->places[i].host[XCCL_PERF_HOST_BYTES - 1] = '\0';
        job->places[i].device[XCCL_PERF_HOST_BYTES - 1] = '\0';
    }
    return xcclSuccess;
}

/* One call, or a group of them. */
static xcclResult_t run_once(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                             int in_place, int64_t group_calls)
{
    struct xccl_perf_buffers at = xccl_perf_buffers_of(job, shape, in_place);
    const void *send = xccl_perf_device_at(job, at.send);
    void *recv = xccl_perf_device_at(job, at.recv);
    xcclResult_t rc = xcclSuccess;
    xcclResult_t end_rc = xcclSuccess;

    if (group_calls == 1)
        return xccl_perf_call(job, send, recv, shape->count);
    rc = xcclGroupStart();
    if (rc)
        return rc;
    for (int64_t i = 0; i < group_calls && !rc; i++)
        rc = xccl_perf_call(job, send, recv, shape->count);
    end_rc = xcclGroupEnd();
    return rc ? rc : end_rc;
}

/* All ranks leave it at nearly the same time. */
static xcclResult_t meet(struct xccl_perf_job *job)
{
    return xcclAllReduce(job->exchange[0], job->exchange[1], 1, xcclInt32, xcclSum, job->control,
                         NULL);
}

static xcclResult_t run_batch(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                              int in_place, int64_t iters)
{
    xcclResult_t rc = xcclSuccess;

    for (int64_t i = 0; i < iters && !rc; i++)
        rc = run_once(job, shape, in_place, job->options->group_calls);
    return rc;
}

/* The time of iters calls on the slowest rank. Times travel as whole nanoseconds in two words. */
static xcclResult_t time_batch(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                               int in_place, int64_t iters, double *us_out)
{
    uint64_t start_ns = 0;
    uint64_t own_ns = 0;
    uint64_t slowest_ns = 0;
    int64_t launches = job->options->graph_launches;
    xcclResult_t rc = xcclSuccess;

    if (launches)
        rc = xccl_perf_device_capture(job, 1);
    if (launches && !rc)
        rc = run_batch(job, shape, in_place, iters);
    if (launches && !rc)
        rc = xccl_perf_device_capture(job, 0);
    if (!rc)
        rc = meet(job);
    if (rc)
        return rc;
    start_ns = xccl_clock_ns();
    if (launches)
        rc = xccl_perf_device_replay(job, launches);
    else
        rc = run_batch(job, shape, in_place, iters);
    if (!rc)
        rc = xccl_perf_device_wait(job);
    own_ns = (xccl_clock_ns() - start_ns) / (uint64_t)(launches ? launches : 1);
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

xcclResult_t xccl_perf_time(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                            int in_place, int exact, int64_t *iters_io, double *us_out)
{
    int64_t next = *iters_io;
    xcclResult_t rc = xcclSuccess;

    for (int64_t i = 0; i < job->options->warmup_iters && !rc; i++)
        rc = run_once(job, shape, in_place, job->options->group_calls);
    if (!rc)
        rc = xccl_perf_device_wait(job);
    for (int batch = 0; batch < BATCHES_MAX && next && !rc; batch++) {
        *iters_io = next;
        rc = time_batch(job, shape, in_place, next, us_out);
        next = exact ? 0 : xccl_perf_next_iters(next, *us_out);
    }
    return rc;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), compare_doubles);
    return values[count / 2];
}

/* Ours and MPI's in turn, so that what else the machine does hits both; the medians count. While
 * one runs, the other's ranks sleep. */
static xcclResult_t measure_beside(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                                   int in_place, struct xccl_perf_figure *figure)
{
    double ours[VS_ROUNDS] = {0}, theirs[VS_ROUNDS] = {0}, calls = 0;
    struct xccl_perf_beside *beside = &figure->mpi;
    struct xccl_perf_mpi_answer answer = {0};
    xcclResult_t rc = xcclSuccess;

    figure->iters = job->options->iters;
    for (int i = 0; i < VS_ROUNDS && !rc; i++) {
        int exact = i || job->options->iters_given;
        double ratio = 0;

        rc = xccl_perf_time(job, shape, in_place, exact, &figure->iters, &ours[i]);
        calls = (double)(figure->iters * job->options->group_calls);
        ours[i] /= calls;
        if (!rc)
            rc = xccl_perf_mpi_round(job, shape, in_place, &answer);
        theirs[i] = answer.time_us;
        ratio = ours[i] > 0 ? answer.time_us / ours[i] : 0;
        beside->ratio_low = i && beside->ratio_low < ratio ? beside->ratio_low : ratio;
        beside->ratio_high = i && beside->ratio_high > ratio ? beside->ratio_high : ratio;
        if (i == 0)
            beside->wrong = answer.wrong;
    }
    if (rc)
        return rc;
    figure->time_us = median(ours, VS_ROUNDS);
    beside->time_us = median(theirs, VS_ROUNDS);
    if (figure->time_us > 0)
        beside->ratio = beside->time_us / figure->time_us;
    return xcclSuccess;
}

static xcclResult_t measure_time(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                                 int in_place, struct xccl_perf_figure *figure)
{
    double us = 0;
    xcclResult_t rc = xcclSuccess;

    if (job->options->vs_mpi)
        return measure_beside(job, shape, in_place, figure);
    figure->iters = job->options->iters;
    rc = xccl_perf_time(job, shape, in_place,
                        job->options->iters_given || job->options->graph_launches, &figure->iters,
                        &us);
    figure->time_us = us / (double)(figure->iters * job->options->group_calls);
    return rc;
}

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* The sorted sample that so many percent are not above. */
static size_t at(int64_t count, int64_t percent)
{
    return (size_t)(count * percent / 100);
}

/* Each call by itself, in a run of its own: looks at the clock cost time. Of each call the slowest
 * rank's time counts; there and back is as long as rank 0 sees, and half of it counts. */
static xcclResult_t measure_single(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                                   int in_place, struct xccl_perf_figure *figure)
{
    struct xccl_perf_spread *spread = &figure->single;
    int64_t iters = figure->iters < XCCL_PERF_SINGLE_MAX ? figure->iters : XCCL_PERF_SINGLE_MAX;
    double unit = 1000.0 * (double)job->options->group_calls;
    uint64_t *samples = job->samples;
    int is_ping = job->coll->which == XCCL_PERF_PING;
    xcclResult_t rc = meet(job);

    for (int64_t i = 0; i < iters && !rc; i++) {
        uint64_t begin_ns = xccl_clock_ns();

        rc = run_once(job, shape, in_place, job->options->group_calls);
        if (!rc)
            rc = xccl_perf_device_wait(job);
        samples[i] = is_ping && job->rank != 0 ? 0 : xccl_clock_ns() - begin_ns;
    }
    if (!rc)
        rc = xcclAllReduce(samples, samples, (size_t)iters, xcclUint64, xcclMax, job->control,
                           NULL);
    if (rc)
        return rc;
    if (is_ping)
        unit *= 2;
    qsort(samples, (size_t)iters, sizeof(*samples), compare_times);
    *spread = (struct xccl_perf_spread){
        .min_us = (double)samples[0] / unit,
        .p50_us = (double)samples[at(iters, 50)] / unit,
        .p90_us = (double)samples[at(iters, 90)] / unit,
        .p99_us = (double)samples[at(iters, 99)] / unit,
        .max_us = (double)samples[iters - 1] / unit,
        .iters = iters,
    };
    return xcclSuccess;
}

/* Nobody may leave a barrier before the last rank has come; one comes late. Only times of the same
 * host are compared: their clock is one. */
static xcclResult_t check_barrier(struct xccl_perf_job *job)
{
    const struct timespec nap = {.tv_nsec = LATE_NS};
    uint64_t own[2] = {0}, other[2] = {0};
    xcclResult_t rc = xcclSuccess;

    if ((int)(++job->salt % (uint32_t)job->nranks) == job->rank)
        (void)nanosleep(&nap, NULL);
    own[0] = xccl_clock_ns();
    rc = xccl_perf_call(job, NULL, NULL, 0);
    if (!rc)
        rc = xccl_perf_device_wait(job);
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

    if (job->coll->empty)
        return check_barrier(job);
    xccl_perf_check_begin(job, shape, in_place);
    rc = xccl_perf_device_push(job, shape, in_place);
    if (!rc)
        rc = run_once(job, shape, in_place, 1);
    if (!rc)
        rc = xccl_perf_device_pull(job, shape, in_place);
    if (!rc)
        xccl_perf_check_end(job, shape, in_place);
    return rc;
}

xcclResult_t xccl_perf_exchange_wrong(struct xccl_perf_job *job, int64_t before, int64_t *wrong_out)
{
    int64_t found = job->wrong_here - before;
    int32_t own = found < WRONG_MAX ? (int32_t)found : WRONG_MAX;
    xcclResult_t rc = xccl_perf_exchange(job, &own, 1);

    if (rc)
        return rc;
    *wrong_out = 0;
    for (int i = 0; i < job->nranks; i++)
        *wrong_out += ((int32_t *)job->exchange[1])[i];
    return xcclSuccess;
}

/* Runs the checks and adds up what all ranks found. */
static xcclResult_t measure_wrong(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                                  int in_place, struct xccl_perf_figure *figure)
{
    int64_t before = job->wrong_here;
    xcclResult_t rc = xcclSuccess;

    figure->wrong = -1;
    if (job->options->check_runs == 0)
        return xcclSuccess;
    for (int64_t i = 0; i < job->options->check_runs && !rc; i++)
        rc = check_once(job, shape, in_place);
    return rc ? rc : xccl_perf_exchange_wrong(job, before, &figure->wrong);
}

static xcclResult_t measure_figure(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                                   int in_place, struct xccl_perf_figure *figure)
{
    double factor = xccl_perf_bus_factor(job->coll, job->nranks) / 1000.0;
    xcclResult_t rc = xcclSuccess;

    /* In place results grow until they are infinite or wrap around; neither costs time. */
    xccl_perf_check_begin(job, shape, in_place);
    rc = xccl_perf_device_push(job, shape, in_place);
    if (!rc)
        rc = measure_time(job, shape, in_place, figure);
    if (!rc && job->samples)
        rc = measure_single(job, shape, in_place, figure);
    if (rc)
        return rc;
    if (job->coll->which == XCCL_PERF_PING)
        figure->time_us /= 2;
    figure->algbw = figure->time_us > 0 ? (double)shape->bytes / figure->time_us / 1000.0 : 0;
    if (figure->time_us > 0)
        figure->busbw = (double)shape->bytes / figure->time_us * factor;
    if (figure->mpi.time_us > 0)
        figure->mpi.busbw = (double)shape->bytes / figure->mpi.time_us * factor;
    return measure_wrong(job, shape, in_place, figure);
}

xcclResult_t xccl_perf_measure(struct xccl_perf_job *job, uint64_t bytes,
                               struct xccl_perf_row *row_out)
{
    const struct xccl_perf_coll *coll = job->coll;
    struct xccl_perf_shape shape = xccl_perf_shape_of(job, bytes);
    struct xccl_perf_row row = {.coll = coll,
                                .nranks = job->nranks,
                                .bytes = shape.bytes,
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
