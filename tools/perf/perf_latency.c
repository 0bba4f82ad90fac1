/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl perf latency: half a round trip of a message between two ranks, and small collectives by
 * the number of ranks: the first 2, 4, 8 and so on, as communicators split from all. Percentiles
 * are of single calls; every row's data is checked.
 *
 * Thread: the rank's. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "json_text.h"
#include "perf/perf.h"

static const struct xccl_perf_coll measured[] = {
    {.name = "send_recv", .which = XCCL_PERF_PING, .apart = 1, .from_before = 1},
    {.name = "all_reduce", .which = XCCL_PERF_ALL_REDUCE, .reduces = 1, .apart = 1},
    {.name = "broadcast", .which = XCCL_PERF_BROADCAST, .rooted = 1, .send_at_root = 1, .apart = 1},
    {.name = "reduce",
     .which = XCCL_PERF_REDUCE,
     .rooted = 1,
     .reduces = 1,
     .recv_at_root = 1,
     .apart = 1},
    {.name = "barrier", .which = XCCL_PERF_BARRIER, .empty = 1, .apart = 1},
};
#define MEASURED (sizeof(measured) / sizeof(measured[0]))

static void show_head(const struct xccl_perf_job *job)
{
    xccl_perf_head_run(job);
    xccl_perf_head_devices(job);
    printf("# send_recv is half a round trip; the others are calls, on the slowest rank; in us\n");
    printf("# %10s  %5s  %8s  %8s  %8s %8s %8s %8s %8s %6s\n", "operation", "ranks", "bytes",
           "mean", "min", "p50", "p90", "p99", "max", "#wrong");
    fflush(stdout);
}

static void show_row(const struct xccl_perf_row *row)
{
    const struct xccl_perf_figure *figure = &row->out_of_place;
    const struct xccl_perf_spread *single = &figure->single;

    printf("%12s  %5d  %8" PRIu64 "  %8.3f  %8.3f %8.3f %8.3f %8.3f %8.3f", row->coll->name,
           row->nranks, row->bytes, figure->time_us, single->min_us, single->p50_us, single->p90_us,
           single->p99_us, single->max_us);
    if (figure->wrong < 0)
        printf(" %6s\n", "N/A");
    else
        printf(" %6" PRId64 "\n", figure->wrong);
    fflush(stdout);
}

/* All sizes of one operation on the job's communicator of now. */
static xcclResult_t run_operation(struct xccl_perf_job *job, const struct xccl_perf_coll *coll)
{
    const struct xccl_perf_options *options = job->options;
    uint64_t most = coll->empty ? options->min_bytes : options->max_bytes;

    job->coll = coll;
    for (uint64_t bytes = options->min_bytes; bytes <= most;
         bytes = xccl_perf_next_size(options, bytes)) {
        struct xccl_perf_row *row = &job->rows[job->row_count];
        xcclResult_t rc = xccl_perf_measure(job, bytes, row);

        if (rc)
            return rc;
        job->row_count++;
        if (job->rank != 0)
            continue;
        xccl_perf_progress_clear();
        show_row(row);
        xccl_perf_progress(job, "rows at most", (int64_t)job->row_count, (int64_t)job->row_room);
    }
    return xcclSuccess;
}

static xcclResult_t run_members(struct xccl_perf_job *job)
{
    xcclResult_t rc = xcclSuccess;

    for (size_t i = 0; i < MEASURED && !rc; i++) {
        if (measured[i].which != XCCL_PERF_PING || job->nranks == 2)
            rc = run_operation(job, &measured[i]);
    }
    return rc;
}

/* The first `count` ranks, while the others wait. */
static xcclResult_t run_first(struct xccl_perf_job *job, int count)
{
    xcclComm_t all = job->comm, few = NULL, control = job->control, few_control = NULL;
    int all_count = job->nranks, is_member = job->rank < count;
    xcclResult_t rc = xcclSuccess;

    if (count < all_count)
        rc = xcclCommSplit(all, is_member ? 0 : XCCL_SPLIT_NOCOLOR, job->rank, &few, NULL);
    if (!rc && count < all_count && control != all)
        rc = xcclCommSplit(control, is_member ? 0 : XCCL_SPLIT_NOCOLOR, job->rank, &few_control,
                           NULL);
    if (rc)
        return rc;
    if (is_member) {
        job->comm = few ? few : all;
        job->control = few_control ? few_control : control == all ? job->comm : control;
        job->nranks = count;
        rc = run_members(job);
        job->comm = all;
        job->control = control;
        job->nranks = all_count;
    }
    /* The others learn of an error by the end of the whole communicator. */
    if (rc && few) {
        xcclCommAbort(few);
        if (few_control)
            xcclCommAbort(few_control);
        return rc;
    }
    if (!rc)
        rc = xcclCommDestroy(few);
    if (!rc)
        rc = xcclCommDestroy(few_control);
    if (!rc)
        rc = xccl_perf_exchange(job, &job->salt, 1);
    /* Those who waited have not counted what was measured. */
    if (!rc)
        memcpy(&job->salt, job->exchange[1], sizeof(job->salt));
    return rc;
}

static xcclResult_t run(struct xccl_perf_job *job)
{
    xcclResult_t rc = xcclSuccess;
    int64_t wrong = 0;

    if (job->nranks < 2)
        return xccl_fail(xcclInvalidArgument, 0, "use --ranks 2 or more",
                         "latency needs at least 2 ranks, and there is only one");
    job->type = xcclFloat32;
    job->op = xcclSum;
    if (job->rank == 0)
        show_head(job);
    for (int count = 2; count <= job->nranks && !rc; count *= 2)
        rc = run_first(job, count);
    if (!rc && (job->nranks & (job->nranks - 1)) != 0)
        rc = run_first(job, job->nranks);
    if (job->rank == 0 && !rc) {
        wrong = xccl_perf_wrong_total(job);
        printf("# Out of bounds values : %" PRId64 " %s\n", wrong, wrong ? "FAILED" : "OK");
    }
    return rc;
}

static void write_json(FILE *file, const struct xccl_perf_job *job)
{
    fprintf(file, "  \"results\": [");
    for (size_t i = 0; i < job->row_count; i++) {
        const struct xccl_perf_row *row = &job->rows[i];

        fprintf(file,
                "%s\n    {\"operation\": \"%s\", \"ranks\": %d, \"size\": %" PRIu64
                ", \"time\": %.4f, \"iters\": %" PRId64 ", \"single\": ",
                i ? "," : "", row->coll->name, row->nranks, row->bytes, row->out_of_place.time_us,
                row->out_of_place.iters);
        xccl_perf_json_spread(file, &row->out_of_place.single);
        fprintf(file, ", \"nwrong\": ");
        if (row->out_of_place.wrong < 0)
            fprintf(file, "null}");
        else
            fprintf(file, "%" PRId64 "}", row->out_of_place.wrong);
    }
    fprintf(file, "\n  ],\n");
}

const struct xccl_perf_part xccl_perf_latency = {
    .name = "latency",
    .takes = "befinwcTJtND",
    .run = run,
    .json = write_json,
};
