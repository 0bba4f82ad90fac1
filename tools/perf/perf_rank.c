/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks of `xccl perf` in this process: they join, do what is asked for, and leave. Every rank
 * tells its own errors; where rank 0 is, the files are written.
 *
 * Thread: with one rank the program's main thread; with several each has a thread of its own, and
 * the main thread waits for them. */
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "command.h"
#include "option.h"
#include "perf/perf.h"
#include "perf/perf_device.h"
#include "perf/perf_vs_mpi.h"

struct rank {
    struct xccl_perf_job job;
    xcclUniqueId id;
    struct xccl_perf_gate *gate; /* NULL: it is the only one here */
    xcclResult_t rc;
    char error[XCCL_ERROR_TEXT_BYTES];
};

/* Tells an error of the library, once, as this rank's. */
static void tell_error(const struct xccl_perf_job *job, xcclResult_t rc, const char *text)
{
    fprintf(stderr, "xccl perf: rank %d: %s: %s\n", job->rank, xcclGetErrorString(rc), text);
}

/* The communicator's error text, or the thread's: the library's, or this program's own. */
static const char *error_text(const struct xccl_perf_job *job)
{
    const char *text = job->comm ? xcclGetLastError(job->comm) : "";

    if (!*text && job->control)
        text = xcclGetLastError(job->control);
    if (!*text)
        text = xcclGetLastError(NULL);
    return *text ? text : xccl_error_text();
}

static size_t buffer_bytes(const struct xccl_perf_job *job)
{
    /* Groups have buffers of their own. */
    return job->options->part == &xccl_perf_groups ? 0 : job->options->max_bytes;
}

/* The communicator of the devices: rank 0 makes its id, and tells it over the host's. */
static xcclResult_t join_device(struct xccl_perf_job *job)
{
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    xcclUniqueId id = {0};
    xcclResult_t rc = xccl_perf_device_open(job, &config.device);

    if (!rc && job->rank == 0)
        rc = xcclGetUniqueId(&id);
    if (!rc)
        rc = xcclBroadcast(&id, &id, sizeof(id), xcclUint8, 0, job->control, NULL);
    if (!rc)
        rc = xcclCommInitRankConfig(&job->comm, job->nranks, id, job->rank, &config);
    explicit_bzero(&id, sizeof(id));
    return rc ? rc : xccl_perf_exchange_places(job);
}

static xcclResult_t mirror_buffers(struct xccl_perf_job *job, size_t bytes)
{
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < 2 && !rc; i++)
        rc = xccl_perf_device_mirror(job, job->memory[i], bytes + XCCL_PERF_MARGINS);
    return rc;
}

static xcclResult_t run_joined(struct xccl_perf_job *job)
{
    size_t bytes = buffer_bytes(job);
    xcclResult_t rc;

    if (job->options->registers == 1 && !job->options->device) {
        job->take = xccl_perf_take_shared;
        job->give = xccl_perf_give_shared;
    }
    rc = xccl_perf_job_init(job, bytes);
    if (!rc)
        rc = xccl_perf_exchange_places(job);
    if (!rc && job->options->device)
        rc = join_device(job);
    if (!rc)
        rc = mirror_buffers(job, bytes);
    if (!rc && job->options->registers == 2 && !job->options->device)
        rc = xccl_perf_register(job, bytes);
    if (!rc && job->options->vs_mpi)
        rc = xccl_perf_mpi_start(job, bytes);
    job->begin_ns = xccl_clock_ns();
    return rc ? rc : job->options->part->run(job);
}

static void abort_comms(const struct xccl_perf_job *job)
{
    if (job->comm && job->comm != job->control)
        (void)xcclCommAbort(job->comm);
    if (job->control)
        (void)xcclCommAbort(job->control);
}

static xcclResult_t destroy_comms(const struct xccl_perf_job *job)
{
    xcclResult_t rc = job->comm == job->control ? xcclSuccess : xcclCommDestroy(job->comm);

    return rc ? rc : xcclCommDestroy(job->control);
}

/* Joins, measures, leaves. Figures that were taken before an error stay. */
static void run_rank(struct rank *rank)
{
    struct xccl_perf_job *job = &rank->job;
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;

    config.device = XCCL_DEVICE_HOST;
    rank->rc = xcclCommInitRankConfig(&job->control, job->nranks, rank->id, job->rank, &config);
    if (!job->options->device)
        job->comm = job->control;
    if (!rank->rc)
        rank->rc = run_joined(job);
    xccl_perf_mpi_stop(job->mpi);
    job->mpi = NULL;
    if (job->rank == 0)
        xccl_perf_progress_clear();
    if (rank->rc) {
        snprintf(rank->error, sizeof(rank->error), "%s", error_text(job));
        tell_error(job, rank->rc, rank->error);
        /* The others need not wait for this rank. */
        abort_comms(job);
        xccl_perf_device_close(job);
        return;
    }
    xccl_perf_device_close(job);
    rank->rc = destroy_comms(job);
    if (rank->rc) {
        snprintf(rank->error, sizeof(rank->error), "%s", xcclGetLastError(NULL));
        tell_error(job, rank->rc, rank->error);
    }
}

static void *rank_main(void *arg)
{
    struct rank *rank = arg;

    if (!xccl_perf_gate_pass(rank->gate))
        return NULL;
    if (rank->gate)
        xccl_log_set_rank(rank->job.rank);
    run_rank(rank);
    return NULL;
}

/* All ranks of this process; 0 after a message when they could not be started. */
static int run_all(struct rank *ranks, int count)
{
    struct xccl_perf_gate *gate = NULL;
    int started = 0;

    if (count == 1) {
        rank_main(&ranks[0]);
        return 1;
    }
    gate = xccl_perf_gate_create();
    for (int i = 0; i < count; i++)
        ranks[i].gate = gate;
    if (gate)
        started = xccl_perf_crowd_run(gate, ranks, sizeof(*ranks), count, rank_main);
    xccl_perf_gate_destroy(gate);
    return started;
}

/* Opened before the measurement, so that a wrong name does not cost the figures. 0 after a message.
 */
static int open_file(const char *path, FILE **file_out)
{
    if (!path)
        return 1;
    *file_out = fopen(path, "we");
    if (!*file_out)
        fprintf(stderr, "xccl perf: cannot write %s: %s\n", path, strerror(errno));
    return *file_out != NULL;
}

static int write_failed(const char *path)
{
    fprintf(stderr, "xccl perf: cannot write %s: %s\n", path, strerror(errno));
    return XCCL_EXIT_FAILURE;
}

/* What the ranks here have come to, as an exit status. files: JSON and the drawing, or NULL. */
static int end_ranks(const struct rank *ranks, int count, FILE *const files[2])
{
    const struct xccl_perf_options *options = ranks[0].job.options;
    int status = XCCL_EXIT_OK;

    for (int i = 0; i < count; i++) {
        if (ranks[i].rc || ranks[i].job.wrong_here)
            status = XCCL_EXIT_FAILURE;
    }
    if (files[0] &&
        !xccl_perf_json_write(files[0], &ranks[0].job, *ranks[0].error ? ranks[0].error : NULL))
        status = write_failed(options->json_path);
    if (files[1] && !xccl_perf_plot_write(files[1], &ranks[0].job))
        status = write_failed(options->plot_path);
    return status;
}

/* The k-th rank of this process, of nranks in all. */
static int rank_init(struct rank *rank, const struct xccl_perf_options *options, int idx,
                     int nranks)
{
    rank->job = (struct xccl_perf_job){
        .options = options, .coll = options->coll, .rank = idx, .nranks = nranks};
    return xccl_perf_rows_init(&rank->job);
}

int xccl_perf_run_ranks(const struct xccl_perf_options *options, int first_rank, int nranks)
{
    int count = options->threads ? (int)options->threads : 1;
    struct rank *ranks = xccl_calloc((size_t)count, sizeof(*ranks));
    FILE *files[2] = {NULL, NULL};
    xcclUniqueId id;
    int status = ranks ? XCCL_EXIT_OK : XCCL_EXIT_FAILURE, nprocs = 0, proc = 0;

    for (int i = 0; i < count && !status; i++)
        status = rank_init(&ranks[i], options, first_rank + i, nranks);
    if (!status && first_rank == 0 &&
        (!open_file(options->json_path, &files[0]) || !open_file(options->plot_path, &files[1])))
        status = XCCL_EXIT_FAILURE;
    if (!status && xcclGetLaunch(&id, &nprocs, &proc) != xcclSuccess) {
        fprintf(stderr, "xccl perf: %s\n", xcclGetLastError(NULL));
        status = XCCL_EXIT_FAILURE;
    }
    for (int i = 0; i < count && !status; i++)
        ranks[i].id = id;
    explicit_bzero(&id, sizeof(id));
    if (!status)
        status = run_all(ranks, count) ? end_ranks(ranks, count, files) : XCCL_EXIT_FAILURE;
    for (int i = 0; i < 2; i++) {
        if (files[i])
            fclose(files[i]);
    }
    for (int i = 0; i < count && ranks; i++) {
        xccl_perf_job_fini(&ranks[i].job);
        xccl_free(ranks[i].job.rows);
    }
    if (ranks)
        explicit_bzero(ranks, (size_t)count * sizeof(*ranks));
    xccl_free(ranks);
    return status;
}
