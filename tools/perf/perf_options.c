/* SPDX-License-Identifier: BSD-3-Clause */
/* The arguments of `xccl perf`: nccl-tests' letters, one table for all parts, of which each takes
 * some.
 *
 * Thread: the program's main thread. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/os.h"
#include "command.h"
#include "option.h"
#include "perf/perf.h"
#include "run/launch.h"

#define SIZES_MAX   4096
#define COUNT_MAX   1000000000
#define GROUP_MAX   1024
#define CHECKS_MAX  1000
#define TIMEOUT_MAX 1073741824
#define COMMS_MAX   32
#define COMMAND_MAX 4096

/* Options without a letter of their own have a number above all letters, and below it the letter by
 * which a part says that it takes them. */
#define WORD(letter) (256 + (letter))
#define SHORT        ":b:e:f:i:n:w:c:o:d:m:r:T:J:t:R:IG:"

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
    {"nthreads", required_argument, NULL, 't'},
    {"intervals", no_argument, NULL, 'I'},
    {"ranks", required_argument, NULL, WORD('N')},
    {"vs-mpi", no_argument, NULL, WORD('V')},
    {"plot", required_argument, NULL, WORD('P')},
    {"device", required_argument, NULL, WORD('D')},
    {"cudagraph", required_argument, NULL, 'G'},
    {"groups", required_argument, NULL, WORD('g')},
    {"comms", required_argument, NULL, WORD('C')},
    {"seed", required_argument, NULL, WORD('S')},
    {"local_register", required_argument, NULL, 'R'},
    {NULL, 0, NULL, 0},
};

#define ALL_NAMES                                                                                  \
    "all_reduce, all_gather, broadcast, reduce, reduce_scatter, alltoall, gather, scatter, "       \
    "sendrecv, all_gatherv, reduce_scatterv, alltoallv, barrier"
static const char *const subjects[] = {
    "all_reduce", "all_gather", "broadcast",       "reduce",    "reduce_scatter",
    "alltoall",   "gather",     "scatter",         "sendrecv",  "all_gatherv",
    "barrier",    "alltoallv",  "reduce_scatterv", "bootstrap", "latency",
    "groups",     NULL};
static const struct xccl_perf_part *const parts[] = {&xccl_perf_latency, &xccl_perf_groups};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

/* The option's name as it was meant. */
static const char *option_name(int code)
{
    static char letter[3] = "-?";

    for (const struct option *at = long_options; code > 255 && at->name; at++) {
        static char name[32];

        if (at->val != code)
            continue;
        snprintf(name, sizeof(name), "--%s", at->name);
        return name;
    }
    letter[1] = (char)code;
    return letter;
}

static int read_count(int code, int64_t low, int64_t high, int64_t *value_out)
{
    return xccl_option_int("perf", option_name(code), optarg, low, high, value_out);
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

/* As it is printed: 0x and sixteen digits, or decimal. */
static int read_seed(struct xccl_perf_options *options)
{
    char *end = NULL;

    errno = 0;
    options->seed = strtoull(optarg, &end, 0);
    options->seed_given = 1;
    if (end != optarg && !*end && !errno && *optarg != '-')
        return 1;
    xccl_option_usage("perf", "--seed %s: must be a number of at most 64 bits", optarg);
    return 0;
}

/* Reads --device into XCCL_DEVICE; 0 after a message. */
static int read_device(void)
{
    if (strcmp(optarg, "host") == 0 || strcmp(optarg, "cuda") == 0) {
        if (!setenv("XCCL_DEVICE", optarg, 1))
            return 1;
        xccl_option_usage("perf", "--device %s: no memory", optarg);
        return 0;
    }
    xccl_option_usage("perf", "--device %s: must be host or cuda", optarg);
    return 0;
}

/* Those with a letter only in long form; 0 after a message. */
static int read_word(int code, struct xccl_perf_options *options)
{
    switch (code) {
    case WORD('N'):
        return read_count(code, 1, XCCL_LAUNCH_MAX_RANKS, &options->nranks);
    case WORD('V'):
        options->vs_mpi = 1;
        return 1;
    case WORD('P'):
        options->plot_path = optarg;
        return 1;
    case WORD('D'):
        return read_device();
    case WORD('g'):
        return read_count(code, 1, COUNT_MAX, &options->group_count);
    case WORD('C'):
        return read_count(code, 1, COMMS_MAX, &options->comm_count);
    default:
        return read_seed(options);
    }
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
    case 't':
        return read_count(code, 1, XCCL_LAUNCH_MAX_RANKS, &options->threads);
    case 'G':
        return read_count(code, 0, COUNT_MAX, &options->graph_launches);
    case 'R':
        return read_count(code, 0, 2, &options->registers);
    case 'I':
        options->single = 1;
        return 1;
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
        return read_word(code, options);
    }
}

uint64_t xccl_perf_next_size(const struct xccl_perf_options *options, uint64_t bytes)
{
    if (options->step_bytes)
        return bytes + options->step_bytes;
    return bytes ? bytes * (uint64_t)options->factor : sizeof(float);
}

size_t xccl_perf_count_sizes(const struct xccl_perf_options *options)
{
    size_t sizes = 0;

    for (uint64_t bytes = options->min_bytes; bytes <= options->max_bytes && sizes <= SIZES_MAX;
         bytes = xccl_perf_next_size(options, bytes))
        sizes++;
    return sizes;
}

static const struct xccl_perf_part *part_find(const char *name)
{
    for (size_t i = 0; i < PARTS; i++) {
        if (strcmp(name, parts[i]->name) == 0)
            return parts[i];
    }
    return NULL;
}

/* What stands where a collective should. */
static int wrong_subject(int argc, char **argv)
{
    const char *given = optind < argc ? argv[optind] : "";
    const char *near = xccl_option_nearest(given, subjects);

    if (optind >= argc)
        return xccl_option_usage("perf", "no collective is named; there are " ALL_NAMES
                                         ", and bootstrap, latency and groups");
    if (strcmp(given, "bootstrap") == 0 || part_find(given))
        return xccl_option_usage("perf", "%s must come first: xccl perf %s [options]", given,
                                 given);
    if (xccl_perf_coll_find(given))
        return xccl_option_usage("perf", "unexpected argument %s", argv[optind + 1]);
    if (near)
        return xccl_option_usage("perf", "there is no collective %s; did you mean %s?", given,
                                 near);
    return xccl_option_usage("perf", "there is no collective %s; there are " ALL_NAMES, given);
}

/* What belongs together, once all has been read. */
static int check_sizes(struct xccl_perf_options *options)
{
    if (options->min_bytes > options->max_bytes)
        return xccl_option_usage("perf", "-b %" PRIu64 " is more than -e %" PRIu64,
                                 options->min_bytes, options->max_bytes);
    if (xccl_perf_count_sizes(options) > SIZES_MAX)
        return xccl_option_usage("perf", "more than %d sizes; choose a larger -i", SIZES_MAX);
    if (options->threads && options->nranks % options->threads)
        return xccl_option_usage(
            "perf",
            "--ranks %" PRId64 " -t %" PRId64
            ": the number of ranks is not a multiple of the threads per process",
            options->nranks, options->threads);
    return XCCL_EXIT_OK;
}

static void check_coll(struct xccl_perf_options *options)
{
    if (!options->coll->reduces)
        options->ops = 1u << xcclSum;
    if (options->coll->empty) {
        options->types = 1u << xcclInt8;
        options->max_bytes = options->min_bytes = 0;
    }
    if (!options->coll->rooted)
        options->root = 0;
}

static void set_defaults(const struct xccl_perf_part *part, struct xccl_perf_options *options)
{
    *options = (struct xccl_perf_options){.part = part,
                                          .min_bytes = 8,
                                          .max_bytes = UINT64_C(8) << 20,
                                          .factor = 4,
                                          .iters = 20,
                                          .warmup_iters = 5,
                                          .check_runs = 1,
                                          .group_calls = 1,
                                          .group_count = 100,
                                          .comm_count = 3,
                                          .types = 1u << xcclFloat32,
                                          .ops = 1u << xcclSum};
    if (part == &xccl_perf_latency) {
        options->max_bytes = UINT64_C(8) << 10;
        options->factor = 32;
        options->single = 1;
    }
    if (part == &xccl_perf_groups) {
        options->min_bytes = 0;
        options->max_bytes = UINT64_C(64) << 10;
    }
}

/* The words as they came, for files of figures. */
static int note_command(int argc, char **argv, struct xccl_perf_options *options)
{
    char *text = xccl_calloc(1, COMMAND_MAX);
    size_t used = 0;

    if (!text)
        return XCCL_EXIT_FAILURE;
    used = (size_t)snprintf(text, COMMAND_MAX, "xccl");
    for (int i = 0; i < argc && used < COMMAND_MAX; i++)
        used += (size_t)snprintf(text + used, COMMAND_MAX - used, " %s", argv[i]);
    options->command = text;
    return XCCL_EXIT_OK;
}

void xccl_perf_options_fini(struct xccl_perf_options *options)
{
    xccl_free((void *)(uintptr_t)options->command);
    options->command = NULL;
}

static int read_options(int argc, char **argv, struct xccl_perf_options *options)
{
    const char *name = options->part->name;
    int code = 0;

    opterr = 0;
    while ((code = getopt_long(argc, argv, SHORT, long_options, NULL)) != -1) {
        if (code == '?' || code == ':')
            return xccl_option_unknown("perf", code, argc, argv, long_options);
        if (!strchr(options->part->takes, code & 0xff))
            return xccl_option_usage("perf", "%s is not an option of %s", option_name(code),
                                     name ? name : "a collective");
        if (!read_option(code, options))
            return XCCL_EXIT_USAGE;
    }
    return XCCL_EXIT_OK;
}

int xccl_perf_options_read(int argc, char **argv, struct xccl_perf_options *options)
{
    const struct xccl_perf_part *part = argc > 1 ? part_find(argv[1]) : NULL;
    int skip = part ? 1 : 0;
    int status = XCCL_EXIT_OK;

    set_defaults(part ? part : &xccl_perf_sizes, options);
    status = note_command(argc, argv, options);
    /* getopt changes the order of its arguments, which is of no harm: they mean the same. */
    if (!status)
        status = read_options(argc - skip, argv + skip, options);
    if (status)
        return status;
    argc -= skip;
    argv += skip;
    if (part && optind < argc)
        return xccl_option_usage("perf", "unexpected argument %s", argv[optind]);
    if (!part) {
        options->coll = optind == argc - 1 ? xccl_perf_coll_find(argv[optind]) : NULL;
        if (!options->coll)
            return wrong_subject(argc, argv);
        check_coll(options);
    }
    return check_sizes(options);
}
