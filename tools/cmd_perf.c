/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl perf: reads nccl-tests' letters, starts local ranks of itself when asked to, and as a rank
 * runs through the sizes. Only rank 0 shows figures; every rank tells its own errors.
 *
 * Thread: the program's main thread; one rank a process. */
#include "command.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/os.h"
#include "base/param.h"
#include "bootstrap/launcher.h"
#include "launch.h"
#include "option.h"
#include "perf.h"

#define ROWS_MAX     4096
#define COUNT_MAX    1000000000
#define GROUP_MAX    1024
#define CHECKS_MAX   1000
#define TIMEOUT_MAX  1073741824
#define RANKS_FEWEST 2
#define GRACE_MS     5000

static const struct option long_options[] = {
    {"minbytes", required_argument, NULL, 'b'},   {"maxbytes", required_argument, NULL, 'e'},
    {"stepfactor", required_argument, NULL, 'f'}, {"stepbytes", required_argument, NULL, 'i'},
    {"iters", required_argument, NULL, 'n'},      {"warmup_iters", required_argument, NULL, 'w'},
    {"check", required_argument, NULL, 'c'},      {"op", required_argument, NULL, 'o'},
    {"datatype", required_argument, NULL, 'd'},   {"agg_iters", required_argument, NULL, 'm'},
    {"timeout", required_argument, NULL, 'T'},    {"output_json", required_argument, NULL, 'J'},
    {"ranks", required_argument, NULL, 'r'},      {NULL, 0, NULL, 0},
};

static const char *const subjects[] = {"all_reduce", "bootstrap", NULL};

static int read_count(int code, int64_t low, int64_t high, int64_t *value_out)
{
    char option[3] = {'-', (char)code, '\0'};

    return xccl_option_int("perf", code == 'r' ? "--ranks" : option, optarg, low, high, value_out);
}

static int read_type(xcclDataType_t *type_out)
{
    if (strcmp(optarg, "float") == 0 || strcmp(optarg, "float32") == 0) {
        *type_out = xcclFloat32;
        return 1;
    }
    if (strcmp(optarg, "int32") == 0 || strcmp(optarg, "int") == 0) {
        *type_out = xcclInt32;
        return 1;
    }
    xccl_option_usage("perf", "-d %s: this version offers float and int32", optarg);
    return 0;
}

/* The library reads the setting when it is first called, which is later. */
static int read_timeout(void)
{
    int64_t seconds = 0;

    if (!read_count('T', 0, TIMEOUT_MAX, &seconds))
        return 0;
    if (setenv("XCCL_TIMEOUT_S", optarg, 1)) {
        xccl_option_usage("perf", "-T %s: no memory", optarg);
        return 0;
    }
    return 1;
}

/* Reads the option that getopt found; 0 after a message. */
static int read_option(int code, struct xccl_perf_options *options)
{
    switch (code) {
    case 'b':
        return xccl_option_bytes("perf", "-b", optarg, &options->min_bytes);
    case 'e':
        return xccl_option_bytes("perf", "-e", optarg, &options->max_bytes);
    case 'f':
        return read_count(code, 2, 1 << 20, &options->factor);
    case 'i':
        return xccl_option_bytes("perf", "-i", optarg, &options->step_bytes);
    case 'n':
        options->iters_given = 1;
        return read_count(code, 1, COUNT_MAX, &options->iters);
    case 'w':
        return read_count(code, 0, COUNT_MAX, &options->warmup_iters);
    case 'c':
        return read_count(code, 0, CHECKS_MAX, &options->check_runs);
    case 'm':
        return read_count(code, 1, GROUP_MAX, &options->group_calls);
    case 'r':
        return read_count(code, 1, XCCL_LAUNCH_MAX_RANKS, &options->nranks);
    case 'd':
        return read_type(&options->type);
    case 'T':
        return read_timeout();
    case 'J':
        options->json_path = optarg;
        return 1;
    case 'o':
        if (strcmp(optarg, "sum") == 0)
            return 1;
        xccl_option_usage("perf", "-o %s: this version offers sum", optarg);
        return 0;
    default:
        return 0;
    }
}

/* The size after bytes. */
static uint64_t next_size(const struct xccl_perf_options *options, uint64_t bytes)
{
    if (options->step_bytes)
        return bytes + options->step_bytes;
    return bytes ? bytes * (uint64_t)options->factor : sizeof(float);
}

/* What stands where "all_reduce" should. */
static int wrong_subject(int argc, char **argv)
{
    const char *given = optind < argc ? argv[optind] : "";
    const char *near = xccl_option_nearest(given, subjects);

    if (optind >= argc)
        return xccl_option_usage("perf", "no collective is named; this version offers all_reduce, "
                                         "and bootstrap");
    if (near && strcmp(near, given) != 0)
        return xccl_option_usage("perf", "there is no collective %s; did you mean %s?", given,
                                 near);
    if (strcmp(given, "bootstrap") == 0)
        return xccl_option_usage("perf", "bootstrap comes first: xccl perf bootstrap [options]");
    if (near)
        return xccl_option_usage("perf", "%s is not understood", argv[optind + 1]);
    return xccl_option_usage("perf", "there is no collective %s; this version offers all_reduce",
                             given);
}

static int read_arguments(int argc, char **argv, struct xccl_perf_options *options)
{
    size_t sizes = 0;
    int code = 0;

    opterr = 0;
    while ((code = getopt_long(argc, argv, ":b:e:f:i:n:w:c:o:d:m:T:J:", long_options, NULL)) !=
           -1) {
        if (code == '?' || code == ':')
            return xccl_option_unknown("perf", code, argc, argv, long_options);
        if (!read_option(code, options))
            return XCCL_EXIT_USAGE;
    }
    if (optind != argc - 1 || strcmp(argv[optind], subjects[0]) != 0)
        return wrong_subject(argc, argv);
    if (options->min_bytes > options->max_bytes)
        return xccl_option_usage("perf", "-b %" PRIu64 " is more than -e %" PRIu64,
                                 options->min_bytes, options->max_bytes);
    for (uint64_t bytes = options->min_bytes; bytes <= options->max_bytes;
         bytes = next_size(options, bytes)) {
        if (++sizes > ROWS_MAX)
            return xccl_option_usage("perf", "these are more than %d sizes; choose a greater -i",
                                     ROWS_MAX);
    }
    return XCCL_EXIT_OK;
}

/* Tells an error of the library, once, as this rank's. */
static void tell_error(const struct xccl_perf_job *job, xcclResult_t rc, const char *text)
{
    fprintf(stderr, "xccl perf: rank %d: %s: %s\n", job->rank, xcclGetErrorString(rc), text);
}

/* The communicator's error text, or the thread's: the library's, or this program's own. */
static const char *error_text(const struct xccl_perf_job *job)
{
    const char *text = job->comm ? xcclGetLastError(job->comm) : "";

    if (!*text)
        text = xcclGetLastError(NULL);
    return *text ? text : xccl_error_text();
}

static xcclResult_t run_sizes(struct xccl_perf_job *job, struct xccl_perf_row *rows,
                              size_t *row_count)
{
    const struct xccl_perf_options *options = job->options;
    xcclResult_t rc = xccl_perf_exchange_places(job);

    if (rc)
        return rc;
    if (job->rank == 0)
        xccl_perf_table_head(job);
    for (uint64_t bytes = options->min_bytes; bytes <= options->max_bytes;
         bytes = next_size(options, bytes)) {
        rc = xccl_perf_measure(job, bytes, &rows[*row_count]);
        if (rc)
            return rc;
        if (job->rank == 0)
            xccl_perf_table_row(job, &rows[*row_count]);
        (*row_count)++;
    }
    if (job->rank == 0)
        xccl_perf_table_foot(job, rows, *row_count);
    return xcclSuccess;
}

static xcclResult_t join(struct xccl_perf_job *job)
{
    xcclUniqueId id;
    xcclResult_t rc = xcclGetLaunch(&id, &job->nranks, &job->rank);

    if (rc)
        return rc;
    return xcclCommInitRank(&job->comm, job->nranks, id, job->rank);
}

/* Joins, measures, leaves. Figures that were taken before an error stay in rows. */
static xcclResult_t run_job(struct xccl_perf_job *job, struct xccl_perf_row *rows,
                            size_t *row_count, char *error, size_t error_bytes)
{
    xcclResult_t rc = join(job);

    if (!rc)
        rc = xccl_perf_job_init(job);
    if (!rc)
        rc = run_sizes(job, rows, row_count);
    if (rc) {
        snprintf(error, error_bytes, "%s", error_text(job));
        tell_error(job, rc, error);
        /* The others need not wait for this rank. */
        if (job->comm)
            xcclCommAbort(job->comm);
        return rc;
    }
    rc = xcclCommDestroy(job->comm);
    if (rc) {
        snprintf(error, error_bytes, "%s", xcclGetLastError(NULL));
        tell_error(job, rc, error);
    }
    return rc;
}

/* What one rank does, from the first to the last call. */
static int rank_main(const struct xccl_perf_options *options, int rank, int nranks)
{
    struct xccl_perf_job job = {.options = options, .rank = rank, .nranks = nranks};
    struct xccl_perf_row *rows = NULL;
    size_t row_count = 0;
    char error[XCCL_ERROR_TEXT_BYTES] = "";
    FILE *json = NULL;
    int status = XCCL_EXIT_FAILURE;

    if (options->json_path && job.rank == 0) {
        json = fopen(options->json_path, "we");
        if (!json) {
            fprintf(stderr, "xccl perf: cannot write %s: %s\n", options->json_path,
                    strerror(errno));
            return XCCL_EXIT_FAILURE;
        }
    }
    rows = xccl_calloc(ROWS_MAX, sizeof(*rows));
    if (!rows)
        goto out;
    if (run_job(&job, rows, &row_count, error, sizeof(error)) == xcclSuccess && job.wrong_here == 0)
        status = XCCL_EXIT_OK;
    if (json && !xccl_perf_json_write(json, &job, rows, row_count, *error ? error : NULL)) {
        fprintf(stderr, "xccl perf: cannot write %s: %s\n", options->json_path, strerror(errno));
        status = XCCL_EXIT_FAILURE;
    }
out:
    xccl_perf_job_fini(&job);
    xccl_free(rows);
    if (json)
        fclose(json);
    return status;
}

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

static int perf_main(int argc, char **argv)
{
    struct xccl_perf_options options = {.min_bytes = 8,
                                        .max_bytes = UINT64_C(8) << 20,
                                        .factor = 4,
                                        .iters = 20,
                                        .warmup_iters = 5,
                                        .check_runs = 1,
                                        .group_calls = 1,
                                        .type = xcclFloat32};
    int status = XCCL_EXIT_OK;
    int nranks = 0, rank = 0, is_job = 0;

    if (argc > 1 && strcmp(argv[1], "bootstrap") == 0)
        return xccl_perf_bootstrap(argc, argv);
    /* getopt changes the order of its arguments, which is of no harm: they mean the same. */
    status = read_arguments(argc, argv, &options);
    if (status)
        return status;
    if (xccl_param_load() != xcclSuccess) {
        xccl_option_tell_error("xccl perf");
        return XCCL_EXIT_FAILURE;
    }
    xccl_launcher_name(&is_job);
    if (!is_job)
        return xccl_perf_start_ranks(options.nranks, argv);
    if (xcclGetLaunch(NULL, &nranks, &rank) != xcclSuccess) {
        fprintf(stderr, "xccl perf: %s\n", xcclGetLastError(NULL));
        return XCCL_EXIT_FAILURE;
    }
    if (!xccl_perf_is_rank(options.nranks, nranks, &status))
        return status ? status : xccl_perf_start_ranks(options.nranks, argv);
    return rank_main(&options, rank, nranks);
}

const struct xccl_command xccl_cmd_perf = {
    .name = "perf",
    .summary = "measure and check a collective, or how ranks meet",
    .run = perf_main,
    .help =
        "usage: xccl perf all_reduce [options]\n"
        "       xccl perf bootstrap [--ranks N] [--threads] [-n N] [-J F]\n"
        "\n"
        "Measures all_reduce over a range of sizes, out of place and in place, and compares every\n"
        "element of a result with what it must be. The table has the columns of nccl-tests.\n"
        "Started by xccl run, mpirun, srun or torchrun it is one rank of that job; else it starts\n"
        "ranks on this host itself.\n"
        "\n"
        "      --ranks N        ranks to start (default: one for each usable core, at least 2)\n"
        "  -b, --minbytes B     smallest size (default 8); K, M and G may follow the number\n"
        "  -e, --maxbytes B     greatest size (default 8M)\n"
        "  -f, --stepfactor F   each size is F times the one before (default 4)\n"
        "  -i, --stepbytes B    each size is B more than the one before, instead of -f\n"
        "  -n, --iters N        calls that are timed together, exactly; without -n at least 20, "
        "and\n"
        "                       as many as take 20 ms\n"
        "  -w, --warmup_iters N calls before that, not timed (default 5)\n"
        "  -m, --agg_iters N    calls in one group (default 1); times are of one call all the "
        "same\n"
        "  -c, --check N        checked calls after the timed ones (default 1; 0: no check)\n"
        "  -d, --datatype T     float or int32 (default float)\n"
        "  -o, --op OP          sum\n"
        "  -T, --timeout S      how long a call may wait for other ranks (sets XCCL_TIMEOUT_S)\n"
        "  -J, --output_json F  writes the figures to F as JSON too\n"
        "\n"
        "time is that of one call on the slowest rank; algbw is size / time; busbw is algbw times\n"
        "2(n-1)/n, what the wires of a ring would carry; #wrong counts the wrong elements, and "
        "the\n"
        "bytes beside the receive buffer that were written, over all ranks.\n"
        "\n"
        "bootstrap measures how ranks meet and talk before there is a communicator: joining, "
        "barrier,\n"
        "all-gather, broadcast, and messages there and back; medians, of the slowest rank. "
        "--threads\n"
        "makes the ranks threads of this process; -n, --ranks and -J are as above (without -n as "
        "many\n"
        "as take 200 ms).\n"
        "\n"
        "Exit status: 0; 1 when a value was wrong or a rank failed; 2 for wrong arguments.\n"
        "\n"
        "examples: xccl perf all_reduce --ranks 4\n"
        "          mpirun -n 4 xccl perf bootstrap\n"
        "          xccl run -n 2 -- xccl perf all_reduce -b 1K -e 64M -f 2\n",
};
