/* SPDX-License-Identifier: BSD-3-Clause */
/* The rows of `xccl perf COLLECTIVE`, in nccl-tests' order: sizes inside of roots, operators and
 * types.
 *
 * Thread: the rank's. */
#include <inttypes.h>

#include "base/alloc.h"
#include "command.h"
#include "option.h"
#include "perf/perf.h"

#define ROWS_MAX (1 << 20)

static size_t count_rows(const struct xccl_perf_job *job)
{
    const struct xccl_perf_options *options = job->options;
    size_t sizes = xccl_perf_count_sizes(options);

    if (options->part == &xccl_perf_groups)
        return 1;
    if (options->part == &xccl_perf_latency)
        return sizes * XCCL_PERF_LATENCY_ROWS;
    return sizes * (size_t)__builtin_popcount(options->types) *
           (size_t)__builtin_popcount(options->ops) * (size_t)(options->root < 0 ? job->nranks : 1);
}

int xccl_perf_rows_init(struct xccl_perf_job *job)
{
    const struct xccl_perf_options *options = job->options;

    job->row_room = count_rows(job);
    if (options->root >= job->nranks && job->rank == 0)
        xccl_option_usage("perf", "-r %" PRId64 ": must be a rank from 0 to %d", options->root,
                          job->nranks - 1);
    if (job->row_room > ROWS_MAX && job->rank == 0)
        xccl_option_usage("perf", "more than %d rows; choose fewer sizes", ROWS_MAX);
    if (options->root >= job->nranks || job->row_room > ROWS_MAX)
        return XCCL_EXIT_USAGE;
    job->rows = xccl_calloc(job->row_room, sizeof(*job->rows));
    return job->rows ? XCCL_EXIT_OK : XCCL_EXIT_FAILURE;
}

xcclResult_t xccl_perf_run_sizes(struct xccl_perf_job *job)
{
    const struct xccl_perf_options *options = job->options;

    for (uint64_t bytes = options->min_bytes; bytes <= options->max_bytes;
         bytes = xccl_perf_next_size(options, bytes)) {
        struct xccl_perf_row *row = &job->rows[job->row_count];
        xcclResult_t rc = xccl_perf_measure(job, bytes, row);

        if (rc)
            return rc;
        job->row_count++;
        if (job->rank != 0)
            continue;
        xccl_perf_progress_clear();
        xccl_perf_table_row(job, row);
        xccl_perf_progress(job, "rows", (int64_t)job->row_count, (int64_t)job->row_room);
    }
    return xcclSuccess;
}

static xcclResult_t run_roots(struct xccl_perf_job *job)
{
    const struct xccl_perf_options *options = job->options;
    int first = options->root < 0 ? 0 : (int)options->root;
    int last = options->root < 0 ? job->nranks - 1 : first;
    xcclResult_t rc = xcclSuccess;

    for (job->root = first; job->root <= last && !rc; job->root++)
        rc = xccl_perf_run_sizes(job);
    return rc;
}

static xcclResult_t run(struct xccl_perf_job *job)
{
    const struct xccl_perf_options *options = job->options;
    xcclResult_t rc = xcclSuccess;

    if (job->rank == 0)
        xccl_perf_table_head(job);
    for (int type = 0; type < xcclNumTypes && !rc; type++) {
        for (int op = 0; op < xcclNumOps && !rc; op++) {
            job->type = (xcclDataType_t)type;
            job->op = (xcclRedOp_t)op;
            if (options->types >> type & options->ops >> op & 1)
                rc = run_roots(job);
        }
    }
    if (job->rank == 0 && !rc)
        xccl_perf_table_foot(job);
    return rc;
}

const struct xccl_perf_part xccl_perf_sizes = {
    .takes = "befinwcodmrTJtIRNVPDG",
    .run = run,
    .json = xccl_perf_json_sizes,
};
