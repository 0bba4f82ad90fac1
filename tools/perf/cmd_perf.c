/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl perf: starts local ranks of itself when asked to, and as one or several ranks of a job does
 * what was asked for. Only rank 0 shows figures; every rank tells its own errors.
 *
 * Thread: the program's main thread. */
#include "command.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/os.h"
#include "base/param.h"
#include "bootstrap/launcher/launcher.h"
#include "option.h"
#include "perf/perf.h"
#include "perf/perf_help.h"
#include "perf/perf_vs_mpi.h"
#include "run/launch.h"

#define RANKS_FEWEST 2
#define GRACE_MS     5000
#define OWN_ROOT     "XCCL_ROOT" /* what spawn.c gives to ranks */

int xccl_perf_start_ranks(int64_t nranks, char **argv)
{
    int cores = xccl_os_cores();
    struct xccl_launch_args args = {.title = "xccl perf",
                                    .nranks = (int)nranks,
                                    .grace_ms = GRACE_MS,
                                    .program = "/proc/self/exe"};
    size_t count = 0;
    int status = XCCL_EXIT_FAILURE;

    if (args.nranks == 0)
        args.nranks = cores < RANKS_FEWEST ? RANKS_FEWEST : cores;
    if (args.nranks > XCCL_LAUNCH_MAX_RANKS)
        args.nranks = XCCL_LAUNCH_MAX_RANKS;
    while (argv[count])
        count++;
    args.argv = xccl_calloc(count + 2, sizeof(*args.argv));
    if (!args.argv)
        return XCCL_EXIT_FAILURE;
    args.argv[0] = (char *)(uintptr_t) "xccl"; /* exec takes char *, and writes to none */
    memcpy(args.argv + 1, argv, count * sizeof(*argv));
    status = xccl_launch(&args);
    xccl_free(args.argv);
    return status;
}

int xccl_perf_is_rank(int64_t wanted, int nranks, int *status_out)
{
    if (wanted == 0 || wanted == nranks)
        return 1;
    *status_out = XCCL_EXIT_OK;
    /* An interactive shell under srun is a job of one rank. */
    if (nranks > 1)
        *status_out = xccl_option_usage("perf", "--ranks %" PRId64 " inside a job of %d ranks",
                                        wanted, nranks);
    return 0;
}

/* Starts the ranks here: processes, or with -t alone the threads of this one. */
static int start_here(const struct xccl_perf_options *options, char **argv)
{
    int64_t threads = options->threads ? options->threads : 1;

    if (options->threads && (!options->nranks || options->nranks == threads))
        return xccl_perf_run_ranks(options, 0, (int)threads);
    return xccl_perf_start_ranks(options->nranks / threads, argv);
}

/* As one or several ranks of a job that something else has started. */
static int run_in_job(const struct xccl_perf_options *options, const char *launcher, char **argv)
{
    int threads = options->threads ? (int)options->threads : 1;
    int nprocs = 0, proc = 0, status = XCCL_EXIT_OK;

    if (options->vs_mpi && !getenv(OWN_ROOT))
        return xccl_option_usage("perf",
                                 "--vs-mpi cannot run under %s, because it starts MPI's ranks "
                                 "itself on this host; use xccl perf --ranks N --vs-mpi",
                                 launcher);
    if (xcclGetLaunch(NULL, &nprocs, &proc) != xcclSuccess) {
        fprintf(stderr, "xccl perf: %s\n", xcclGetLastError(NULL));
        return XCCL_EXIT_FAILURE;
    }
    if (!xccl_perf_is_rank(options->nranks, nprocs * threads, &status))
        return status ? status : start_here(options, argv);
    return xccl_perf_run_ranks(options, proc * threads, nprocs * threads);
}

/* The settings have been read: where the buffers are. */
static int choose_device(struct xccl_perf_options *options)
{
    options->device = strcmp(xccl_perf_setting(XCCL_P_DEVICE), "cuda") == 0;
    if (options->device && options->vs_mpi)
        return xccl_option_usage(
            "perf", "--vs-mpi measures host memory and cannot be combined with --device cuda");
    if (!options->device && options->graph_launches)
        return xccl_option_usage("perf", "-G %" PRId64 ": graphs need --device cuda",
                                 options->graph_launches);
    return XCCL_EXIT_OK;
}

static int run_perf(struct xccl_perf_options *options, char **argv)
{
    const char *launcher = NULL;
    int is_job = 0, status = XCCL_EXIT_OK;

    if (xccl_param_load() != xcclSuccess) {
        xccl_option_tell_error("xccl perf");
        return XCCL_EXIT_FAILURE;
    }
    status = choose_device(options);
    if (status)
        return status;
    launcher = xccl_launcher_name(&is_job);
    if (!is_job && options->vs_mpi && !xccl_perf_mpi_look())
        return XCCL_EXIT_FAILURE;
    return is_job ? run_in_job(options, launcher, argv) : start_here(options, argv);
}

static int show_help(const char *part)
{
    const char *help = xccl_perf_part_help(part);

    fputs(help ? help : xccl_perf_help, stdout);
    return XCCL_EXIT_OK;
}

static int perf_main(int argc, char **argv)
{
    struct xccl_perf_options options;
    int status = XCCL_EXIT_OK;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return show_help(argv[1]);
    }
    if (argc > 1 && strcmp(argv[1], "bootstrap") == 0)
        return xccl_perf_bootstrap(argc, argv);
    status = xccl_perf_options_read(argc, argv, &options);
    if (!status)
        status = run_perf(&options, argv);
    xccl_perf_options_fini(&options);
    return status;
}

const struct xccl_command xccl_cmd_perf = {
    .name = "perf",
    .summary = "measure collectives, latency, groups and startup, and check results",
    .run = perf_main,
    .part_help = xccl_perf_part_help,
    .help = xccl_perf_help,
};
