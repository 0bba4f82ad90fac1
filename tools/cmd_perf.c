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

#define SIZES_MAX    4096
#define ROWS_MAX     (1 << 20)
#define RANKS_OPTION 256 /* --ranks, which has no letter */
#define COUNT_MAX    1000000000
#define GROUP_MAX    1024
#define CHECKS_MAX   1000
#define TIMEOUT_MAX  1073741824
#define RANKS_FEWEST 2
#define GRACE_MS     5000

static const struct option long_options[] = {
    {"minbytes", required_argument, NULL, 'b'},
    {"maxbytes", required_argument, NULL, 'e'},
    {"stepfactor", required_argument, NULL, 'f'},
    {"stepbytes", required_argument, NULL, 'i'},
    {"iters", required_argument, NULL, 'n'},
    {"warmup_iters", required_argument, NULL, 'w'},
    {"check", required_argument, NULL, 'c'},
    {"op", required_argument, NULL, 'o'},
    {"datatype", required_argument, NULL, 'd'},
    {"agg_iters", required_argument, NULL, 'm'},
    {"timeout", required_argument, NULL, 'T'},
    {"output_json", required_argument, NULL, 'J'},
    {"root", required_argument, NULL, 'r'},
    {"ranks", required_argument, NULL, RANKS_OPTION},
    {NULL, 0, NULL, 0},
};

#define ALL_NAMES                                                                                  \
    "all_reduce, all_gather, broadcast, reduce, reduce_scatter, alltoall, gather, scatter, "       \
    "sendrecv, barrier"
static const char *const subjects[] = {"all_reduce",     "all_gather", "broadcast", "reduce",
                                       "reduce_scatter", "alltoall",   "gather",    "scatter",
                                       "sendrecv",       "barrier",    "bootstrap", NULL};

static int read_count(int code, int64_t low, int64_t high, int64_t *value_out)
{
    char option[3] = {'-', (char)code, '\0'};

    return xccl_option_int("perf", code == RANKS_OPTION ? "--ranks" : option, optarg, low, high,
                           value_out);
}

/* A name, or all of them, as a set of numbers. count: how many there are. */
static int read_set(int code, int (*find)(const char *name), int count, uint32_t *set_out)
{
    int found = find(optarg);

    *set_out = found < 0 ? (1u << count) - 1 : 1u << found;
    if (found >= 0 || strcmp(optarg, "all") == 0)
        return 1;
    if (code == 'o')
        xccl_option_usage("perf", "-o %s: must be sum, prod, max, min, avg or all", optarg);
    else
        xccl_option_usage("perf",
                          "-d %s: must be int8, uint8, int32, uint32, int64, uint64, half, "
                          "float, double, bfloat16, f8e4m3, f8e5m2 or all",
                          optarg);
    return 0;
}

static int read_root(int64_t *root_out)
{
    if (strcmp(optarg, "all") != 0)
        return read_count('r', -1, XCCL_LAUNCH_MAX_RANKS - 1, root_out);
    *root_out = -1;
    return 1;
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
    case RANKS_OPTION:
        return read_count(code, 1, XCCL_LAUNCH_MAX_RANKS, &options->nranks);
    case 'r':
        return read_root(&options->root);
    case 'd':
        return read_set(code, xccl_perf_type_find, xcclNumTypes, &options->types);
    case 'o':
        return read_set(code, xccl_perf_op_find, xcclNumOps, &options->ops);
    case 'T':
        return read_timeout();
    case 'J':
        options->json_path = optarg;
        return 1;
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

static size_t count_sizes(const struct xccl_perf_options *options)
{
    size_t sizes = 0;

    for (uint64_t bytes = options->min_bytes; bytes <= options->max_bytes && sizes <= SIZES_MAX;
         bytes = next_size(options, bytes))
        sizes++;
    return sizes;
}

/* What stands where a collective should. */
static int wrong_subject(int argc, char **argv)
{
    const char *given = optind < argc ? argv[optind] : "";
    const char *near = xccl_option_nearest(given, subjects);

    if (optind >= argc)
        return xccl_option_usage("perf",
                                 "no collective is named; there are " ALL_NAMES ", and bootstrap");
    if (strcmp(given, "bootstrap") == 0)
        return xccl_option_usage("perf", "bootstrap comes first: xccl perf bootstrap [options]");
    if (xccl_perf_coll_find(given))
        return xccl_option_usage("perf", "%s is not understood", argv[optind + 1]);
    if (near)
        return xccl_option_usage("perf", "there is no collective %s; did you mean %s?", given,
                                 near);
    return xccl_option_usage("perf", "there is no collective %s; there are " ALL_NAMES, given);
}

static int read_arguments(int argc, char **argv, struct xccl_perf_options *options)
{
    int code = 0;

    opterr = 0;
    while ((code = getopt_long(argc, argv, ":b:e:f:i:n:w:c:o:d:m:r:T:J:", long_options, NULL)) !=
           -1) {
        if (code == '?' || code == ':')
            return xccl_option_unknown("perf", code, argc, argv, long_options);
        if (!read_option(code, options))
            return XCCL_EXIT_USAGE;
    }
    options->coll = optind == argc - 1 ? xccl_perf_coll_find(argv[optind]) : NULL;
    if (!options->coll)
        return wrong_subject(argc, argv);
    if (!options->coll->reduces)
        options->ops = 1u << xcclSum;
    if (options->coll->empty) {
        options->types = 1u << xcclInt8;
        options->max_bytes = options->min_bytes = 0;
    }
    if (!options->coll->rooted)
        options->root = 0;
    if (options->min_bytes > options->max_bytes)
        return xccl_option_usage("perf", "-b %" PRIu64 " is more than -e %" PRIu64,
                                 options->min_bytes, options->max_bytes);
    if (count_sizes(options) > SIZES_MAX)
        return xccl_option_usage("perf", "these are more than %d sizes; choose a greater -i",
                                 SIZES_MAX);
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

/* All figures of a run, in memory for the JSON file. */
struct figures {
    struct xccl_perf_row *rows;
    size_t count, room;
};

/* All sizes of the job's type, op and root. */
static xcclResult_t run_sizes(struct xccl_perf_job *job, struct figures *figures)
{
    const struct xccl_perf_options *options = job->options;

    for (uint64_t bytes = options->min_bytes; bytes <= options->max_bytes;
         bytes = next_size(options, bytes)) {
        struct xccl_perf_row *row = &figures->rows[figures->count];
        xcclResult_t rc = xccl_perf_measure(job, bytes, row);

        if (rc)
            return rc;
        if (job->rank == 0)
            xccl_perf_table_row(job, row);
        figures->count++;
    }
    return xcclSuccess;
}

static xcclResult_t run_roots(struct xccl_perf_job *job, struct figures *figures)
{
    const struct xccl_perf_options *options = job->options;
    int first = options->root < 0 ? 0 : (int)options->root;
    int last = options->root < 0 ? job->nranks - 1 : first;
    xcclResult_t rc = xcclSuccess;

    for (job->root = first; job->root <= last && !rc; job->root++)
        rc = run_sizes(job, figures);
    return rc;
}

/* As nccl-tests orders them: sizes inside of roots, operators and types. */
static xcclResult_t run_all(struct xccl_perf_job *job, struct figures *figures)
{
    const struct xccl_perf_options *options = job->options;
    xcclResult_t rc = xccl_perf_exchange_places(job);

    if (rc)
        return rc;
    if (job->rank == 0)
        xccl_perf_table_head(job);
    for (int type = 0; type < xcclNumTypes && !rc; type++) {
        for (int op = 0; op < xcclNumOps && !rc; op++) {
            job->type = (xcclDataType_t)type;
            job->op = (xcclRedOp_t)op;
            if (options->types >> type & options->ops >> op & 1)
                rc = run_roots(job, figures);
        }
    }
    if (job->rank == 0 && !rc)
        xccl_perf_table_foot(job, figures->rows, figures->count);
    return rc;
}

/* Room for every row of the table. An exit status; rank 0 says why. */
static int figures_init(const struct xccl_perf_options *options, int rank, int nranks,
                        struct figures *figures)
{
    size_t sets = (size_t)__builtin_popcount(options->types) *
                  (size_t)__builtin_popcount(options->ops) *
                  (size_t)(options->root < 0 ? nranks : 1);

    figures->room = sets * count_sizes(options);
    if (options->root >= nranks && rank == 0)
        xccl_option_usage("perf", "-r %" PRId64 ": the ranks are 0 to %d", options->root,
                          nranks - 1);
    if (figures->room > ROWS_MAX && rank == 0)
        xccl_option_usage("perf", "these are more than %d rows; ask for fewer sizes", ROWS_MAX);
    if (options->root >= nranks || figures->room > ROWS_MAX)
        return XCCL_EXIT_USAGE;
    figures->rows = xccl_calloc(figures->room, sizeof(*figures->rows));
    return figures->rows ? XCCL_EXIT_OK : XCCL_EXIT_FAILURE;
}

static xcclResult_t join(struct xccl_perf_job *job)
{
    xcclUniqueId id;
    xcclResult_t rc = xcclGetLaunch(&id, &job->nranks, &job->rank);

    if (rc)
        return rc;
    return xcclCommInitRank(&job->comm, job->nranks, id, job->rank);
}

/* Joins, measures, leaves. Figures that were taken before an error stay. */
static xcclResult_t run_job(struct xccl_perf_job *job, struct figures *figures, char *error,
                            size_t error_bytes)
{
    xcclResult_t rc = join(job);

    if (!rc)
        rc = xccl_perf_job_init(job);
    if (!rc)
        rc = run_all(job, figures);
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
    struct figures figures = {0};
    char error[XCCL_ERROR_TEXT_BYTES] = "";
    FILE *json = NULL;
    int status = XCCL_EXIT_OK;

    status = figures_init(options, rank, nranks, &figures);
    if (status)
        return status;
    status = XCCL_EXIT_FAILURE;
    if (options->json_path && job.rank == 0) {
        json = fopen(options->json_path, "we");
        if (!json) {
            fprintf(stderr, "xccl perf: cannot write %s: %s\n", options->json_path,
                    strerror(errno));
            goto out;
        }
    }
    if (run_job(&job, &figures, error, sizeof(error)) == xcclSuccess && job.wrong_here == 0)
        status = XCCL_EXIT_OK;
    if (json &&
        !xccl_perf_json_write(json, &job, figures.rows, figures.count, *error ? error : NULL)) {
        fprintf(stderr, "xccl perf: cannot write %s: %s\n", options->json_path, strerror(errno));
        status = XCCL_EXIT_FAILURE;
    }
out:
    xccl_perf_job_fini(&job);
    xccl_free(figures.rows);
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
                                        .types = 1u << xcclFloat32,
                                        .ops = 1u << xcclSum};
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
        "usage: xccl perf COLLECTIVE [options]\n"
        "       xccl perf bootstrap [--ranks N] [--threads] [-n N] [-J F]\n"
        "\n"
        "COLLECTIVE is all_reduce, all_gather, broadcast, reduce, reduce_scatter, alltoall, "
        "gather,\n"
        "scatter, sendrecv (to the next rank, from the one before) or barrier. Measures it over a\n"
        "range of sizes, out of place and in place, and compares every element of a result with\n"
        "what it must be. The table has the columns of nccl-tests. Started by xccl run, mpirun, "
        "srun or torchrun it is one rank of that job; "
        "else\n"
        "it starts ranks on this host itself.\n"
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
        "  -d, --datatype T     int8, uint8, int32, uint32, int64, uint64, half, float, double,\n"
        "                       bfloat16, f8e4m3, f8e5m2 or all (default float)\n"
        "  -o, --op OP          sum, prod, max, min, avg or all, of collectives that reduce\n"
        "                       (default sum)\n"
        "  -r, --root N         root of broadcast, reduce, gather and scatter (default 0); all or "
        "-1:\n"
        "                       each rank in turn\n"
        "  -T, --timeout S      how long a call may wait for other ranks (sets XCCL_TIMEOUT_S)\n"
        "  -J, --output_json F  writes the figures to F as JSON too\n"
        "\n"
        "A size is that of the largest buffer: with all_gather, reduce_scatter, alltoall, gather "
        "and\n"
        "scatter all blocks together, each rounded down to 16 bytes; count is what the call is "
        "given.\n"
        "alltoall and sendrecv have no in-place form; barrier has no sizes, and in a check one "
        "rank\n"
        "comes late.\n"
        "\n"
        "time is that of one call on the slowest rank; algbw is size / time; busbw is algbw times\n"
        "2(n-1)/n for all_reduce, 1 for broadcast, reduce and sendrecv, else (n-1)/n: what the\n"
        "busiest wire would carry; #wrong counts the wrong elements, and the bytes beside the "
        "receive buffer "
        "that\n"
        "were written, over all ranks.\n"
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
        "          xccl perf reduce --ranks 3 -b 1M -e 1M -d all -o all -r all\n"
        "          mpirun -n 4 xccl perf bootstrap\n"
        "          xccl run -n 2 -- xccl perf all_reduce -b 1K -e 64M -f 2\n",
};
