/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl net perf: reads the options, goes through the rows, and lets the plugins of a comparison
 * take turns, round by round.
 *
 * Thread: the program's main thread. */
#include "json_machine.h"
#include "net/net_perf.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/param.h"
#include "cf_hosts.h"
#include "command.h"
#include "net/net_list.h"
#include "option.h"

#define COMMAND        "net perf"
#define ROWS_MAX       4096
#define ITERS_MAX      1000000000
#define SECONDS_MAX    3600
#define CHECK_BYTES    (UINT64_C(64) << 20) /* of a row's first pass, unless one message is more */
#define TRIALS         16 /* rounds that find out how many messages make one */
#define TRIALS_FEWEST  2
#define TRIAL_GROWTH   16
#define MS_PER_ROUND_5 500

static const struct option long_options[] = {
    {"peer", required_argument, NULL, 'P'},
    {"vs", required_argument, NULL, 'V'},
    {"device", required_argument, NULL, 'D'},
    {"minbytes", required_argument, NULL, 'b'},
    {"maxbytes", required_argument, NULL, 'e'},
    {"stepfactor", required_argument, NULL, 'f'},
    {"iters", required_argument, NULL, 'n'},
    {"seconds", required_argument, NULL, 's'},
    {"rounds", required_argument, NULL, 'r'},
    {"flows", required_argument, NULL, 'F'},
    {"window", required_argument, NULL, 'w'},
    {"both", no_argument, NULL, 'B'},
    {"threads", no_argument, NULL, 't'},
    {"wait", no_argument, NULL, 'W'},
    {"pin", no_argument, NULL, 'c'},
    {"hosts", optional_argument, NULL, 'H'},
    {"timeout", required_argument, NULL, 'T'},
    {"output_json", required_argument, NULL, 'J'},
    {"plot", required_argument, NULL, 'p'},
    {NULL, 0, NULL, 0},
};

/* ---- options ---- */

/* "1,4,16", growing or not. */
static int read_flows(struct xccl_netperf_options *options)
{
    char copy[64];
    char *rest = NULL;
    int count = 0;

    snprintf(copy, sizeof(copy), "%s", optarg);
    for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        int64_t flows = 0;

        if (!xccl_option_int(COMMAND, "--flows", word, 1, XCCL_NETPERF_FLOWS, &flows))
            return 0;
        if (count == XCCL_NETPERF_FLOW_LIST) {
            xccl_option_usage(COMMAND, "--flows %s: at most %d numbers", optarg,
                              XCCL_NETPERF_FLOW_LIST);
            return 0;
        }
        options->flows[count++] = (int)flows;
    }
    if (count == 0 || strlen(optarg) >= sizeof(copy)) {
        xccl_option_usage(COMMAND, "--flows \"%s\": must be numbers such as 1,4,16", optarg);
        return 0;
    }
    options->flow_count = count;
    return 1;
}

static int read_number(int code, struct xccl_netperf_options *options)
{
    switch (code) {
    case 'b':
        return xccl_option_bytes(COMMAND, "-b", optarg, &options->min_bytes);
    case 'e':
        return xccl_option_bytes(COMMAND, "-e", optarg, &options->max_bytes);
    case 'f':
        return xccl_option_int(COMMAND, "-f", optarg, 2, 1 << 20, &options->factor);
    case 'n':
        return xccl_option_int(COMMAND, "-n", optarg, 1, ITERS_MAX, &options->iters);
    case 'r':
        return xccl_option_int(COMMAND, "--rounds", optarg, 1, XCCL_NETPERF_ROUNDS,
                               &options->rounds);
    case 'w':
        return xccl_option_int(COMMAND, "--window", optarg, 1, XCCL_NET_MAX_REQUESTS,
                               &options->window);
    case 's':
        return xccl_option_seconds(COMMAND, "--seconds", optarg, SECONDS_MAX, &options->measure_ms);
    case 'T':
        return xccl_option_seconds(COMMAND, "--timeout", optarg, SECONDS_MAX, &options->timeout_ms);
    default:
        return read_flows(options);
    }
}

/* Reads the option that getopt found; 0 after a message. */
static int read_option(int code, struct xccl_netperf_options *options)
{
    switch (code) {
    case 'P':
        options->peer = optarg;
        return 1;
    case 'V':
        options->vs = optarg;
        return 1;
    case 'D':
        options->device = optarg;
        return 1;
    case 'B':
        options->both = 1;
        return 1;
    case 't':
        options->threads = 1;
        return 1;
    case 'W':
        options->wait = 1;
        return 1;
    case 'c':
        options->pin = 1;
        return 1;
    case 'H':
        options->hosts_text = optarg ? optarg : "";
        return 1;
    case 'J':
        options->json_path = optarg;
        return 1;
    case 'p':
        options->plot_path = optarg;
        return 1;
    default:
        return read_number(code, options);
    }
}

static uint64_t next_size(const struct xccl_netperf_options *options, uint64_t bytes)
{
    return bytes ? bytes * (uint64_t)options->factor : 1;
}

static size_t count_rows(const struct xccl_netperf_options *options)
{
    size_t sizes = 0;

    for (uint64_t bytes = options->min_bytes; bytes <= options->max_bytes;
         bytes = next_size(options, bytes))
        sizes++;
    return sizes * (size_t)options->flow_count * (options->both ? 2 : 1);
}

static int check_options(const struct xccl_netperf_options *options)
{
    if (options->min_bytes > options->max_bytes)
        return xccl_option_usage(COMMAND, "-b %" PRIu64 " is more than -e %" PRIu64,
                                 options->min_bytes, options->max_bytes);
    if (count_rows(options) > ROWS_MAX)
        return xccl_option_usage(COMMAND, "more than %d rows; choose a larger -f", ROWS_MAX);
    if (options->timeout_ms == 0)
        return xccl_option_usage(COMMAND, "--timeout 0: must be more than 0");
    if (options->measure_ms == 0)
        return xccl_option_usage(COMMAND, "--seconds 0: must be more than 0");
    if (options->hosts_text && options->threads)
        return xccl_option_usage(COMMAND, "--hosts and --threads cannot be combined");
    if (options->hosts_text && *options->hosts_text && !strchr(options->hosts_text, ','))
        return xccl_option_usage(COMMAND,
                                 "--hosts=%s: must be two network namespaces, as in "
                                 "--hosts=left,right",
                                 options->hosts_text);
    return XCCL_EXIT_OK;
}

static int read_arguments(int argc, char **argv, struct xccl_netperf_options *options)
{
    int code = 0;

    opterr = 0;
    while ((code = getopt_long(argc, argv, ":b:e:f:n:w:T:J:", long_options, NULL)) != -1) {
        if (code == '?' || code == ':')
            return xccl_option_unknown(COMMAND, code, argc, argv, long_options);
        if (!read_option(code, options))
            return XCCL_EXIT_USAGE;
    }
    if (optind == argc)
        return xccl_option_usage(
            COMMAND, "no plugin is named; name one, for example `xccl net perf socket`");
    if (optind < argc - 1)
        return xccl_option_usage(
            COMMAND, "unexpected argument %s: name one plugin, and others with --peer or --vs",
            argv[optind + 1]);
    options->item = argv[optind];
    return check_options(options);
}

/* ---- measuring ---- */

static void round_init(const struct xccl_netperf_row *row, enum xccl_netperf_what what,
                       struct xccl_netperf_round *round_out)
{
    static uint32_t salt;

    *round_out = (struct xccl_netperf_round){.what = (int32_t)what,
                                             .flows = row->flows,
                                             .both = row->directions == 2,
                                             .window = row->window,
                                             .salt = ++salt,
                                             .bytes = row->bytes,
                                             .iters = 1};
}

/* The row's first pass: few messages, each of them compared byte by byte. */
static int check_row(struct xccl_netperf_pair *pair, const struct xccl_netperf_row *row)
{
    struct xccl_netperf_round round;
    struct xccl_netperf_result result;
    uint64_t fits = 0;

    round_init(row, XCCL_NETPERF_STREAM, &round);
    fits = CHECK_BYTES / (xccl_netperf_stride(row->bytes) * (uint64_t)row->flows);
    round.check = 1;
    /* More than the window, so that memory is used a second time. */
    round.iters = 2 * (uint64_t)row->window + 1;
    if (round.iters > fits)
        round.iters = fits ? fits : 1;
    return xccl_netperf_pair_round(pair, &round, &result);
}

/* How many messages take about as long as a round should. The quickest trial counts: whatever else
 * the machine does only makes them slower. */
static int find_iters(struct xccl_netperf_job *job, int pair, struct xccl_netperf_row *row,
                      enum xccl_netperf_what what, uint64_t *iters_out)
{
    const struct xccl_netperf_options *options = job->options;
    double target_ns = (double)options->measure_ms * 1e6 / (double)(options->rounds * 2);
    struct xccl_netperf_round round;
    struct xccl_netperf_result result;
    uint64_t low = what == XCCL_NETPERF_LATENCY || row->flows == 1 ? 4 : 1, iters = low;
    double best_ns = INFINITY, wanted = 0;

    for (int i = 0; i < TRIALS && !options->iters; i++) {
        round_init(row, what, &round);
        round.iters = iters;
        if (!xccl_netperf_pair_round(&job->pairs[pair], &round, &result))
            return 0;
        best_ns = fmin(best_ns, (double)(result.end_ns - result.start_ns + 1) / (double)iters);
        wanted = fmin(target_ns / best_ns, ITERS_MAX);
        if (i >= TRIALS_FEWEST && wanted < 3 * (double)iters)
            break;
        iters = (uint64_t)fmin(wanted, TRIAL_GROWTH * (double)iters);
        iters = iters < low ? low : iters;
    }
    if (options->iters)
        wanted = (double)options->iters;
    *iters_out = wanted < (double)low && !options->iters ? low : (uint64_t)wanted;
    return 1;
}

static int measure_latency(struct xccl_netperf_pair *pair, const struct xccl_netperf_row *row,
                           int64_t at, struct xccl_netperf_figure *figure)
{
    struct xccl_netperf_round round;
    struct xccl_netperf_result result;

    round_init(row, XCCL_NETPERF_LATENCY, &round);
    round.iters = figure->latency_iters;
    if (!xccl_netperf_pair_round(pair, &round, &result))
        return 0;
    figure->p50_us[at] = result.p50_us;
    figure->p99_us[at] = result.p99_us;
    return 1;
}

static int measure_stream(struct xccl_netperf_pair *pair, const struct xccl_netperf_row *row,
                          int64_t at, struct xccl_netperf_figure *figure)
{
    struct xccl_netperf_round round;
    struct xccl_netperf_result result;
    double messages = 0, ns = 0, bytes = 0;

    round_init(row, XCCL_NETPERF_STREAM, &round);
    round.iters = figure->stream_iters;
    if (!xccl_netperf_pair_round(pair, &round, &result))
        return 0;
    messages = (double)figure->stream_iters * row->flows * row->directions;
    bytes = messages * (double)row->bytes;
    ns = (double)(result.end_ns - result.start_ns) + 1;
    figure->gbs[at] = bytes / ns;
    figure->mmsgs[at] = messages / ns * 1e3;
    figure->cpu_s_gib[at] = bytes > 0 ? (double)result.cpu_ns / 1e9 / (bytes / (double)(1 << 30))
                                      : 0;
    figure->busy[at] = result.busy;
    figure->least_gbs[at] = (double)result.least_bytes /
                            ((double)(result.first_end_ns - result.start_ns) + 1);
    return 1;
}

/* Who is first in one round is last in the next: what goes before makes a difference. */
static int in_turn(const struct xccl_netperf_job *job, int64_t at, int i)
{
    return at % 2 ? job->pair_count - 1 - i : i;
}

static int measure_row(struct xccl_netperf_job *job, struct xccl_netperf_row *row)
{
    for (int k = 0; k < job->pair_count; k++) {
        struct xccl_netperf_figure *figure = &row->figures[k];

        if (!check_row(&job->pairs[k], row) ||
            !find_iters(job, k, row, XCCL_NETPERF_STREAM, &figure->stream_iters))
            return 0;
        if (row->has_latency &&
            !find_iters(job, k, row, XCCL_NETPERF_LATENCY, &figure->latency_iters))
            return 0;
    }
    for (int64_t at = 0; at < job->options->rounds; at++) {
        for (int i = 0; row->has_latency && i < job->pair_count; i++) {
            int k = in_turn(job, at, i);

            if (!measure_latency(&job->pairs[k], row, at, &row->figures[k]))
                return 0;
        }
        for (int i = 0; i < job->pair_count; i++) {
            int k = in_turn(job, at, i);

            if (!measure_stream(&job->pairs[k], row, at, &row->figures[k]))
                return 0;
        }
    }
    return 1;
}

static int measure_rows(struct xccl_netperf_job *job)
{
    const struct xccl_netperf_options *options = job->options;
    int directions_max = options->both ? 2 : 1;

    for (uint64_t bytes = options->min_bytes; bytes <= job->max_bytes;
         bytes = next_size(options, bytes)) {
        for (int i = 0; i < options->flow_count * directions_max; i++) {
            struct xccl_netperf_row *row = &job->rows[job->row_count];

            row->bytes = bytes;
            row->flows = options->flows[i / directions_max];
            row->directions = 1 + i % directions_max;
            row->window = xccl_netperf_window(options, bytes, row->flows);
            row->has_latency = row->directions == 1;
            if (!measure_row(job, row))
                return 0;
            xccl_netperf_table_row(job, row);
            job->row_count++;
        }
    }
    return 1;
}

/* ---- the run ---- */

/* Where the messages of the greediest row land. */
static uint64_t room_bytes(const struct xccl_netperf_job *job, int *flows_out)
{
    const struct xccl_netperf_options *options = job->options;
    uint64_t most = 0;

    *flows_out = 1;
    for (int i = 0; i < options->flow_count; i++) {
        int flows = options->flows[i];

        *flows_out = flows > *flows_out ? flows : *flows_out;
        for (uint64_t bytes = options->min_bytes; bytes <= job->max_bytes;
             bytes = next_size(options, bytes)) {
            uint64_t room = xccl_netperf_stride(bytes) * (uint64_t)flows *
                            (uint64_t)xccl_netperf_window(options, bytes, flows);

            most = room > most ? room : most;
        }
    }
    return most;
}

/* Tells what is wrong with the run as a whole. Always 0. */
__attribute__((format(printf, 2, 3))) static int job_fail(struct xccl_netperf_job *job,
                                                          const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(job->pairs[0].error, sizeof(job->pairs[0].error), fmt, args);
    va_end(args);
    fprintf(stderr, "xccl net perf: %s\n", job->pairs[0].error);
    return 0;
}

/* Better than a process that the system kills in the midst. */
static int memory_fits(struct xccl_netperf_job *job, uint64_t room)
{
    uint64_t needed = 2 * (uint64_t)job->pair_count * (room + job->max_bytes), there = 0;
    char text[64];

    xccl_proc_value("/proc/meminfo", "MemAvailable", text, sizeof(text));
    there = strtoull(text, NULL, 10) * 1024;
    if (there == 0 || needed <= there)
        return 1;
    return job_fail(job,
                    "the messages need %" PRIu64 " MiB of memory, but only %" PRIu64
                    " MiB are free: choose a smaller -e, --flows or --window",
                    needed >> 20, there >> 20);
}

static int start(struct xccl_netperf_job *job)
{
    const struct xccl_netperf_options *options = job->options;
    uint64_t room = 0;
    int flows = 0;

    job->max_bytes = options->max_bytes;
    job->pair_count = options->vs ? 2 : 1;
    for (int k = 0; k < job->pair_count; k++) {
        const char *first = k ? options->vs : options->item;
        const char *second = k == 0 && options->peer ? options->peer : first;

        if (!xccl_netperf_pair_start(&job->pairs[k], options, first, second))
            return 0;
        for (int i = 0; i < 2; i++) {
            if (job->pairs[k].about[i].max_bytes < job->max_bytes)
                job->max_bytes = job->pairs[k].about[i].max_bytes;
        }
    }
    if (options->min_bytes > job->max_bytes)
        return job_fail(
            job, "the largest message of the device has %" PRIu64 " bytes: choose a smaller -b",
            job->max_bytes);
    room = room_bytes(job, &flows);
    if (!memory_fits(job, room))
        return 0;
    for (int k = 0; k < job->pair_count; k++) {
        if (!xccl_netperf_pair_connect(&job->pairs[k], flows, job->max_bytes, room))
            return 0;
    }
    return 1;
}

/* The first error that a pair has told, or "". */
static const char *error_text(const struct xccl_netperf_job *job)
{
    for (int k = 0; k < job->pair_count; k++) {
        if (job->pairs[k].error[0])
            return job->pairs[k].error;
    }
    return "";
}

/* 0: there are no such hosts, which has been told. */
static int find_hosts(struct xccl_netperf_job *job, const char *text, struct cf_hosts *hosts)
{
    char names[256];
    char *second = NULL;

    snprintf(names, sizeof(names), "%s", text);
    second = strchr(names, ',');
    if (!names[0] && cf_hosts_make(hosts))
        return 1;
    if (second) {
        *second++ = '\0';
        if (cf_hosts_open(hosts, names, second))
            return 1;
    }
    return job_fail(job, "--hosts: %s", hosts->reason);
}

static int measure_all(struct xccl_netperf_job *job)
{
    int fine = start(job);

    if (fine) {
        xccl_netperf_table_head(job);
        fine = measure_rows(job);
    }
    for (int k = 0; fine && k < job->pair_count; k++)
        fine = xccl_netperf_pair_finish(&job->pairs[k]);
    for (int k = 0; k < job->pair_count; k++)
        xccl_netperf_pair_stop(&job->pairs[k]);
    return fine;
}

/* Opened before anything is measured, so that a wrong path is told at once. NULL path: fine. */
static int open_output(const char *path, FILE **file_out)
{
    *file_out = path ? fopen(path, "we") : NULL;
    if (!path || *file_out)
        return 1;
    fprintf(stderr, "xccl net perf: cannot write %s: %s\n", path, strerror(errno));
    return 0;
}

static int close_output(const char *path, FILE *file, int written)
{
    if (!file)
        return 1;
    written &= fclose(file) == 0;
    if (!written)
        fprintf(stderr, "xccl net perf: cannot write %s: %s\n", path, strerror(errno));
    return written;
}

int xccl_net_perf_main(int argc, char **argv)
{
    struct xccl_netperf_options options = {.min_bytes = 8,
                                           .max_bytes = UINT64_C(64) << 20,
                                           .factor = 2,
                                           .measure_ms = MS_PER_ROUND_5,
                                           .rounds = 5,
                                           .flows = {1},
                                           .flow_count = 1,
                                           .timeout_ms = 10000};
    struct xccl_netperf_job *job = NULL;
    struct cf_hosts hosts = {0};
    FILE *json = NULL, *plot = NULL;
    int status = read_arguments(argc, argv, &options), fine = 0;

    if (status)
        return status;
    if (xccl_param_load() != xcclSuccess) {
        xccl_option_tell_error("xccl " COMMAND);
        return XCCL_EXIT_FAILURE;
    }
    job = xccl_calloc(1, sizeof(*job));
    if (!job)
        return XCCL_EXIT_FAILURE;
    job->options = &options;
    job->rows = xccl_calloc(count_rows(&options), sizeof(*job->rows));
    if (job->rows && open_output(options.json_path, &json) &&
        open_output(options.plot_path, &plot)) {
        if (options.hosts_text)
            options.hosts = &hosts;
        fine = (!options.hosts || find_hosts(job, options.hosts_text, &hosts)) && measure_all(job);
        cf_hosts_drop(&hosts);
        fine &= close_output(options.json_path, json,
                             !json || xccl_netperf_json_write(json, job, error_text(job)));
        fine &= close_output(options.plot_path, plot, !plot || xccl_netperf_plot_write(plot, job));
        json = plot = NULL;
    }
    if (json)
        fclose(json);
    xccl_free(job->rows);
    xccl_free(job);
    return fine ? XCCL_EXIT_OK : XCCL_EXIT_FAILURE;
}

const char xccl_net_perf_help[] =
    "usage: xccl net perf ITEM [--peer ITEM2] [--vs ITEM3] [options]\n"
    "\n"
    "Measures a network plugin between two processes of this host, a sender and a receiver,\n"
    "without a communicator. Each side is one thread and opens the plugin itself.\n"
    "\n"
    "  ITEM                 a plugin's name or path, as in XCCL_NET_PLUGIN: socket,\n"
    "                       fault:socket, /opt/x/libnccl-net.so, socket@v10\n"
    "      --peer ITEM2     plugin that the receiver opens (default: ITEM), to test that two\n"
    "                       builds, or two versions of the contract, work together\n"
    "      --vs ITEM3       measure this plugin as well, alternating with ITEM in each round\n"
    "      --device D       device, by name or number (default: the first)\n"
    "  -b, --minbytes B     smallest message (default 8); K, M or G may follow the number\n"
    "  -e, --maxbytes B     largest message (default 64M, or the device's limit)\n"
    "  -f, --stepfactor F   factor from each size to the next (default 2)\n"
    "      --flows N,N,...  numbers of connections (flows) between the sides, 1 to 64; one\n"
    "                       thread per side drives all of them (default 1)\n"
    "      --both           measure each row with data in both directions as well\n"
    "  -w, --window N       messages in flight per connection, 1 to 32 (default: 4 MiB divided\n"
    "                       by the size, but 2 to 32; 1 if all connections together would need\n"
    "                       more than 1 GiB)\n"
    "  -n, --iters N        messages per flow and round, instead of --seconds\n"
    "      --seconds S      time per row and plugin (default 0.5)\n"
    "      --rounds N       rounds per row (default 5); the table shows their median\n"
    "      --threads        run both sides as threads of one process\n"
    "      --wait           let an idle side sleep on the plugin's descriptor (waitFd) until a\n"
    "                       transfer advances; without it, the side polls\n"
    "      --pin            bind each side, and the plugin's threads with it, to a separate\n"
    "                       core\n"
    "      --hosts[=A,B]    put each side into a network namespace: A and B are names from `ip\n"
    "                       netns` or paths; without them, two are created for this run and\n"
    "                       joined by a veth pair\n"
    "  -T, --timeout S      end the run if a side makes no progress for S seconds (default 10)\n"
    "  -J, --output_json F  write machine, settings, and the figures of every round to file F\n"
    "      --plot F         draw the figures into file F (SVG)\n"
    "\n"
    "What the figures mean:\n"
    "  lat, p99   half a round trip in microseconds: the median and the 99th percentile. One\n"
    "             message is in flight at a time, on each flow in turn. Rows with two\n"
    "             directions (--both) show none.\n"
    "  GB/s       10^9 bytes per second, from the first send to the last completed receive,\n"
    "             over all flows and directions. +-% is half the distance from the lowest to\n"
    "             the highest round, in percent of the median.\n"
    "  Mmsg/s     10^6 messages per second, computed like GB/s\n"
    "  cpu s/GiB  processor seconds of both sides per GiB, including polling, which --wait\n"
    "             avoids. With --threads, helper threads of the plugin are not counted.\n"
    "  busy       cores that the busier side uses: its processor time divided by the time\n"
    "  least      GB/s of the slowest flow, measured until the fastest flow ends: how fair\n"
    "             the flows are\n"
    "  ratio      with --vs: ITEM's GB/s divided by ITEM3's, and ITEM3's lat divided by ITEM's;\n"
    "             above 1, ITEM is better. One ratio per round: their median, lowest and highest.\n"
    "\n"
    "Checks: a first pass of each row, which is not timed, compares every byte of every\n"
    "message. After each timed round, parts of the last message of each flow are compared. The\n"
    "size of each message is always checked.\n"
    "Accuracy: two otherwise idle cores give steady figures. A side that waits yields its core\n"
    "after a hundred polls without success. If the two sides share a core, figures depend on\n"
    "the system's scheduler, which a large +-% shows; --pin prevents it.\n"
    "\n"
    "Exit status: 0; 1 if data was wrong, or if a side failed or died; 2 for wrong arguments.\n"
    "\n"
    "examples: xccl net perf socket --flows 1,4,16 --both\n"
    "          xccl net perf ./libxccl-net-x.so --vs socket -b 64 -e 1M -J figures.json\n"
    "          xccl net perf socket --peer socket@v10 -n 100\n";
