/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl perf bootstrap: how long ranks take to meet, and what their out-of-band operations cost. A
 * figure is the median of a rank's own times, and of these the slowest rank's; every byte that was
 * gathered or broadcast is looked at, outside of the times.
 *
 * Ranks are processes, or with --threads threads of this one, each with blocking calls. What the
 * ranks have to agree on (how many iterations) follows from all-gathered numbers, so they do.
 *
 * Thread: each rank's own; the arguments and the output are the main thread's. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/param.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/launcher/launcher.h"
#include "command.h"
#include "json_text.h"
#include "option.h"
#include "perf/perf.h"
#include "run/launch.h"

#define ITERS_FEWEST    5
#define ITERS_MOST      1000
#define ITERS_GIVEN     100000 /* that -n may ask for */
#define WARMUP_ITERS    2
#define ENOUGH_NS       (200 * XCCL_NS_PER_MS)
#define SMALL_BYTES     8u
#define LARGE_BYTES     4096u
#define GATHER_MOST     (UINT64_C(1) << 30) /* bytes that thread-ranks may gather in one process */
#define TAG             7
#define NOT_MEASURED    (-1.0)
#define THREADS_TITLE   "threads of one process"
#define THREADS_DEFAULT 4

struct options {
    int64_t nranks; /* 0: not asked for */
    int64_t iters; /* 0: as many as take 200 ms */
    int threads;
    const char *json_path;
};

enum op { OP_BARRIER, OP_GATHER, OP_BROADCAST, OP_TRIP, OP_KINDS };

/* What is measured, in this order. peer: of a round trip with rank 0; -1 is the last rank. */
static const struct measure {
    const char *name;
    enum op op;
    size_t bytes;
    int peer;
} measures[] = {
    {"barrier", OP_BARRIER, 0, 0},
    {"all-gather", OP_GATHER, SMALL_BYTES, 0},
    {"all-gather", OP_GATHER, LARGE_BYTES, 0},
    {"broadcast", OP_BROADCAST, LARGE_BYTES, 0},
    {"round trip 0 and 1", OP_TRIP, SMALL_BYTES, 1},
    {"round trip 0 and n-1", OP_TRIP, SMALL_BYTES, -1},
};
#define MEASURES     (sizeof(measures) / sizeof(measures[0]))
#define LARGE_GATHER 2 /* the one that takes the most memory */

struct figure {
    double median_us; /* NOT_MEASURED: not done */
    int64_t iters;
};

struct result {
    double init_ms;
    struct figure figures[MEASURES];
    int64_t wrong; /* bytes, over all ranks */
};

struct rank {
    const struct options *options;
    const xcclUniqueId *id;
    struct xccl_perf_gate *gate; /* NULL: none */
    int idx, nranks, threads;
    struct xccl_bootstrap *boot;
    uint32_t round; /* counted alike on all ranks: no two have the same contents */
    uint8_t *data;
    uint64_t *samples;
    int64_t wrong_here;
    struct result result;
    xcclResult_t rc;
    char error[XCCL_ERROR_TEXT_BYTES];
};

/* --- one operation --- */

static struct xccl_limit call_limit(void)
{
    uint64_t timeout_s = (uint64_t)xccl_param_int(XCCL_P_TIMEOUT_S);
    struct xccl_limit limit = xccl_limit_ms(timeout_s * 1000, NULL);

    if (timeout_s == 0)
        limit.deadline_ns = XCCL_NEVER_NS;
    return limit;
}

static uint8_t byte_of(uint32_t round, int rank, size_t at)
{
    uint32_t mixed = (round * 0x9e3779b1u) ^ ((uint32_t)rank * 0x85ebca6bu) ^
                     ((uint32_t)at * 0xc2b2ae35u);

    return (uint8_t)((mixed ^ mixed >> 15) * 0x27d4eb2fu >> 24);
}

static void fill(uint8_t *bytes, size_t count, uint32_t round, int rank)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = byte_of(round, rank, i);
}

static int64_t wrong_bytes(const uint8_t *bytes, size_t count, uint32_t round, int rank)
{
    int64_t wrong = 0;

    for (size_t i = 0; i < count; i++)
        wrong += bytes[i] != byte_of(round, rank, i);
    return wrong;
}

static int peer_of(const struct rank *rank, const struct measure *measure)
{
    return measure->peer < 0 ? rank->nranks - 1 : measure->peer;
}

/* There and back, seen from rank 0. */
static xcclResult_t trip(struct rank *rank, const struct measure *measure)
{
    struct xccl_limit limit = call_limit();
    int peer = peer_of(rank, measure);
    xcclResult_t rc = xcclSuccess;

    if (rank->idx == 0) {
        rc = xccl_bootstrap_send(rank->boot, peer, TAG, rank->data, measure->bytes, &limit);
        if (!rc)
            rc = xccl_bootstrap_recv(rank->boot, peer, TAG, rank->data, measure->bytes, &limit);
    } else if (rank->idx == peer) {
        rc = xccl_bootstrap_recv(rank->boot, 0, TAG, rank->data, measure->bytes, &limit);
        if (!rc)
            rc = xccl_bootstrap_send(rank->boot, 0, TAG, rank->data, measure->bytes, &limit);
    }
    return rc;
}

static xcclResult_t run_op(struct rank *rank, const struct measure *measure)
{
    struct xccl_limit limit = call_limit();

    switch (measure->op) {
    case OP_BARRIER:
        return xccl_bootstrap_barrier(rank->boot, NULL, &limit);
    case OP_GATHER:
        return xccl_bootstrap_allgather(rank->boot, NULL, rank->data, measure->bytes, &limit);
    case OP_BROADCAST:
        return xccl_bootstrap_broadcast(rank->boot, NULL, 0, rank->data, measure->bytes, &limit);
    default:
        return trip(rank, measure);
    }
}

/* Contents that the operation must bring, and something else where it must put them. */
static void prepare(struct rank *rank, const struct measure *measure)
{
    size_t bytes = measure->bytes, all = bytes * (size_t)rank->nranks;

    if (measure->op == OP_GATHER) {
        memset(rank->data, 0x5A, all);
        fill(rank->data + bytes * (size_t)rank->idx, bytes, rank->round, rank->idx);
    } else {
        memset(rank->data, 0x5A, bytes);
        if (rank->idx == 0)
            fill(rank->data, bytes, rank->round, 0);
    }
}

static void check(struct rank *rank, const struct measure *measure)
{
    int parts = measure->op == OP_GATHER ? rank->nranks : measure->op == OP_BARRIER ? 0 : 1;

    if (measure->op == OP_TRIP && rank->idx != 0 && rank->idx != peer_of(rank, measure))
        return;
    for (int i = 0; i < parts; i++)
        rank->wrong_here += wrong_bytes(rank->data + measure->bytes * (size_t)i, measure->bytes,
                                        rank->round, i);
}

/* Runs it count times; the times are rank->samples' first ones. */
static xcclResult_t run_many(struct rank *rank, const struct measure *measure, int64_t count)
{
    static const struct measure meet = {.op = OP_BARRIER};
    xcclResult_t rc = xcclSuccess;

    for (int64_t i = 0; i < count && !rc; i++) {
        uint64_t begin_ns = 0;

        rank->round++;
        prepare(rank, measure);
        /* The root of a broadcast is done early; the next one must find all ranks ready. */
        if (measure->op == OP_BROADCAST)
            rc = run_op(rank, &meet);
        begin_ns = xccl_clock_ns();
        if (!rc)
            rc = run_op(rank, measure);
        rank->samples[i] = xccl_clock_ns() - begin_ns;
        if (!rc)
            check(rank, measure);
    }
    return rc;
}

/* --- figures over all ranks --- */

/* Each rank's number, on all of them, in rank order in rank->data. */
static xcclResult_t gather_numbers(struct rank *rank, uint64_t own)
{
    struct xccl_limit limit = call_limit();

    memcpy(rank->data + sizeof(own) * (size_t)rank->idx, &own, sizeof(own));
    return xccl_bootstrap_allgather(rank->boot, NULL, rank->data, sizeof(own), &limit);
}

/* The greatest of all ranks' numbers, or their sum. */
static xcclResult_t over_ranks(struct rank *rank, uint64_t own, int sum, uint64_t *number_out)
{
    uint64_t number = 0;
    xcclResult_t rc = gather_numbers(rank, own);

    for (int i = 0; i < rank->nranks && !rc; i++) {
        uint64_t other = 0;

        memcpy(&other, rank->data + sizeof(other) * (size_t)i, sizeof(other));
        if (sum)
            number += other;
        else if (other > number)
            number = other;
    }
    if (!rc)
        *number_out = number;
    return rc;
}

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *samples, int64_t count)
{
    qsort(samples, (size_t)count, sizeof(*samples), compare_times);
    return samples[count / 2];
}

static int is_measured(const struct rank *rank, const struct measure *measure)
{
    uint64_t all = (uint64_t)rank->nranks * (uint64_t)rank->nranks * measure->bytes;

    if (measure->op == OP_GATHER && rank->threads && all > GATHER_MOST)
        return 0;
    if (measure->op == OP_TRIP)
        return measure->peer < 0 ? rank->nranks > 2 : rank->nranks > 1;
    return 1;
}

static xcclResult_t run_measure(struct rank *rank, size_t idx)
{
    const struct measure *measure = &measures[idx];
    struct figure *figure = &rank->result.figures[idx];
    int64_t iters = rank->options->iters;
    uint64_t time_ns = 0;
    xcclResult_t rc = xcclSuccess;

    figure->median_us = NOT_MEASURED;
    if (!is_measured(rank, measure))
        return xcclSuccess;
    rc = run_many(rank, measure, WARMUP_ITERS);
    if (!rc)
        rc = over_ranks(rank, rank->samples[WARMUP_ITERS - 1], 0, &time_ns);
    if (rc)
        return rc;
    if (iters == 0) {
        iters = (int64_t)(ENOUGH_NS / (time_ns + 1));
        iters = iters < ITERS_FEWEST ? ITERS_FEWEST : iters > ITERS_MOST ? ITERS_MOST : iters;
    }
    rc = run_many(rank, measure, iters);
    if (rc)
        return rc;
    time_ns = median(rank->samples, iters);
    /* A round trip takes as long as rank 0 sees. */
    if (measure->op == OP_TRIP && rank->idx != 0)
        time_ns = 0;
    rc = over_ranks(rank, time_ns, 0, &time_ns);
    figure->median_us = (double)time_ns / 1e3;
    figure->iters = iters;
    return rc;
}

/* --- one rank --- */

static xcclResult_t run_joined(struct rank *rank, uint64_t join_ns)
{
    uint64_t number = 0;
    xcclResult_t rc = over_ranks(rank, join_ns, 0, &number);

    rank->result.init_ms = (double)number / 1e6;
    for (size_t i = 0; i < MEASURES && !rc; i++)
        rc = run_measure(rank, i);
    if (!rc)
        rc = over_ranks(rank, (uint64_t)rank->wrong_here, 1, &number);
    rank->result.wrong = (int64_t)number;
    return rc;
}

static xcclResult_t take_memory(struct rank *rank)
{
    int64_t iters = rank->options->iters > ITERS_MOST ? rank->options->iters : ITERS_MOST;
    size_t part = is_measured(rank, &measures[LARGE_GATHER]) ? LARGE_BYTES : SMALL_BYTES;

    rank->data = xccl_calloc(1, part * (size_t)rank->nranks + LARGE_BYTES);
    rank->samples = xccl_calloc((size_t)iters, sizeof(*rank->samples));
    return rank->data && rank->samples ? xcclSuccess : xcclSystemError;
}

static xcclResult_t run_job(struct rank *rank, const struct xccl_job *job)
{
    struct xccl_limit limit;
    uint64_t begin_ns = 0;
    xcclResult_t rc = take_memory(rank);

    if (!xccl_perf_gate_pass(rank->gate))
        return xcclSuccess;
    if (rc) {
        xccl_bootstrap_decline(job, rank->idx, rank->nranks, rc);
        return rc;
    }
    begin_ns = xccl_clock_ns();
    limit = xccl_limit_ms((uint64_t)xccl_param_int(XCCL_P_TIMEOUT_INIT_S) * 1000, NULL);
    rc = xccl_bootstrap_open(job, rank->idx, rank->nranks, &limit, &rank->boot);
    if (rc)
        return rc;
    rc = run_joined(rank, xccl_clock_ns() - begin_ns);
    if (rc)
        xccl_bootstrap_fail(rank->boot, rc);
    return rc;
}

static xcclResult_t run_rank(struct rank *rank)
{
    struct xccl_job job;
    xcclResult_t rc = xccl_job_init(rank->id, 1, rank->idx, rank->nranks, &job);

    if (!rc)
        rc = run_job(rank, &job);
    explicit_bzero(&job, sizeof(job));
    return rc;
}

static void rank_main(struct rank *rank)
{
    rank->rc = run_rank(rank);
    if (rank->rc)
        snprintf(rank->error, sizeof(rank->error), "%s", xccl_error_text());
    xccl_bootstrap_close(rank->boot);
    xccl_free(rank->data);
    xccl_free(rank->samples);
}

/* --- output --- */

static void show_table(const struct rank *rank, const char *launcher)
{
    const struct result *result = &rank->result;

    printf("# xccl perf bootstrap: %d ranks, %s\n", rank->nranks,
           rank->threads ? THREADS_TITLE : launcher);
    printf("# joined in %.3f ms (slowest rank)\n#\n", result->init_ms);
    printf("# %-20s  %6s  %6s  %10s\n", "operation", "bytes", "iters", "median");
    printf("# %-20s  %6s  %6s  %10s\n", "", "(rank)", "", "(us)");
    for (size_t i = 0; i < MEASURES; i++) {
        if (result->figures[i].median_us < 0)
            continue;
        printf("  %-20s  %6zu  %6" PRId64 "  %10.2f\n", measures[i].name, measures[i].bytes,
               result->figures[i].iters, result->figures[i].median_us);
    }
    printf("# Wrong bytes : %" PRId64 " %s\n", result->wrong, result->wrong ? "FAILED" : "OK");
}

/* 0 when it could not be written. */
static int write_json(FILE *file, const struct rank *rank, const char *launcher)
{
    const struct result *result = &rank->result;
    const char *comma = "";

    fprintf(file,
            "{\n  \"bench\": \"bootstrap\",\n  \"xccl_version\": \"%d.%d.%d\",\n"
            "  \"nranks\": %d,\n  \"ranks_are\": \"%s\",\n  \"launcher\": ",
            XCCL_MAJOR, XCCL_MINOR, XCCL_PATCH, rank->nranks,
            rank->threads ? "threads" : "processes");
    xccl_json_text(file, launcher);
    fprintf(file, ",\n  \"init_ms\": %.4f,\n  \"results\": [", result->init_ms);
    for (size_t i = 0; i < MEASURES; i++) {
        if (rank->rc || result->figures[i].median_us < 0)
            continue;
        fprintf(file, "%s\n    {\"operation\": ", comma);
        xccl_json_text(file, measures[i].name);
        fprintf(file, ", \"bytes\": %zu, \"iters\": %" PRId64 ", \"median_us\": %.4f}",
                measures[i].bytes, result->figures[i].iters, result->figures[i].median_us);
        comma = ",";
    }
    fprintf(file, "\n  ],\n  \"wrong_bytes\": %" PRId64 ",\n  \"error\": ", result->wrong);
    if (rank->rc)
        xccl_json_text(file, rank->error);
    else
        fprintf(file, "null");
    fprintf(file, "\n}\n");
    return fflush(file) == 0 && !ferror(file);
}

/* Shows what rank 0 knows; the others tell their errors only. */
static int show_rank(const struct rank *rank, const char *launcher, FILE *json)
{
    int status = rank->rc || rank->result.wrong ? XCCL_EXIT_FAILURE : XCCL_EXIT_OK;

    if (rank->rc)
        fprintf(stderr, "xccl perf: rank %d: %s: %s\n", rank->idx, xccl_result_text(rank->rc),
                rank->error);
    else if (rank->idx == 0)
        show_table(rank, launcher);
    if (json && !write_json(json, rank, launcher)) {
        fprintf(stderr, "xccl perf: cannot write %s: %s\n", rank->options->json_path,
                strerror(errno));
        status = XCCL_EXIT_FAILURE;
    }
    return status;
}

/* 0 after a message. */
static int open_json(const struct options *options, FILE **file_out)
{
    *file_out = NULL;
    if (!options->json_path)
        return 1;
    *file_out = fopen(options->json_path, "we");
    if (!*file_out)
        fprintf(stderr, "xccl perf: cannot write %s: %s\n", options->json_path, strerror(errno));
    return *file_out != NULL;
}

/* --- ranks as threads --- */

static void *thread_main(void *arg)
{
    struct rank *rank = arg;

    xccl_log_set_rank(rank->idx);
    rank_main(rank);
    return NULL;
}

/* Shows the first rank that failed, else rank 0. */
static int show_crowd(const struct rank *ranks, int nranks, FILE *json)
{
    for (int i = 0; i < nranks; i++) {
        if (ranks[i].rc)
            return show_rank(&ranks[i], THREADS_TITLE, json);
    }
    return show_rank(&ranks[0], THREADS_TITLE, json);
}

static int run_threads(const struct options *options)
{
    struct xccl_perf_gate *gate = xccl_perf_gate_create();
    int nranks = options->nranks ? (int)options->nranks : THREADS_DEFAULT;
    struct rank *ranks = xccl_calloc((size_t)nranks, sizeof(*ranks));
    xcclUniqueId id = {{0}};
    FILE *json = NULL;
    int status = XCCL_EXIT_FAILURE;

    if (!ranks || !gate || xccl_unique_id_create(&id)) {
        xccl_option_tell_error("xccl perf");
        goto out;
    }
    if (!open_json(options, &json))
        goto out;
    for (int i = 0; i < nranks; i++)
        ranks[i] = (struct rank){
            .options = options, .id = &id, .gate = gate, .idx = i, .nranks = nranks, .threads = 1};
    if (xccl_perf_crowd_run(gate, ranks, sizeof(*ranks), nranks, thread_main))
        status = show_crowd(ranks, nranks, json);
out:
    if (json)
        fclose(json);
    explicit_bzero(&id, sizeof(id));
    xccl_perf_gate_destroy(gate);
    xccl_free(ranks);
    return status;
}

/* --- ranks as processes --- */

static int run_process(const struct options *options)
{
    struct rank *rank = xccl_calloc(1, sizeof(*rank));
    struct xccl_launch launch;
    xcclUniqueId id = {{0}};
    FILE *json = NULL;
    int status = XCCL_EXIT_FAILURE;

    if (!rank || xccl_launcher_id(&id, &launch)) {
        xccl_option_tell_error("xccl perf");
        goto out;
    }
    *rank = (struct rank){
        .options = options, .id = &id, .idx = launch.rank, .nranks = launch.nranks};
    if (launch.rank == 0 && !open_json(options, &json))
        goto out;
    rank_main(rank);
    status = show_rank(rank, launch.launcher, json);
out:
    if (json)
        fclose(json);
    explicit_bzero(&id, sizeof(id));
    xccl_free(rank);
    return status;
}

/* --- arguments --- */

static const struct option long_options[] = {
    {"ranks", required_argument, NULL, 'r'},
    {"threads", no_argument, NULL, 't'},
    {"iters", required_argument, NULL, 'n'},
    {"output_json", required_argument, NULL, 'J'},
    {NULL, 0, NULL, 0},
};

static int read_arguments(int argc, char **argv, struct options *options)
{
    int code = 0, understood = 1;

    opterr = 0;
    while (understood && (code = getopt_long(argc, argv, ":n:J:", long_options, NULL)) != -1) {
        if (code == 'r')
            understood = xccl_option_int("perf", "--ranks", optarg, 1, XCCL_LAUNCH_MAX_RANKS,
                                         &options->nranks);
        else if (code == 'n')
            understood = xccl_option_int("perf", "-n", optarg, 1, ITERS_GIVEN, &options->iters);
        else if (code == 't')
            options->threads = 1;
        else if (code == 'J')
            options->json_path = optarg;
        else
            return xccl_option_unknown("perf", code, argc, argv, long_options);
    }
    if (!understood)
        return XCCL_EXIT_USAGE;
    if (optind < argc)
        return xccl_option_usage("perf", "unexpected argument %s", argv[optind]);
    return XCCL_EXIT_OK;
}

int xccl_perf_bootstrap(int argc, char **argv)
{
    struct options options = {.nranks = 0};
    struct xccl_launch launch;
    int status = read_arguments(argc - 1, argv + 1, &options);
    int is_job = 0;

    if (status)
        return status;
    if (xccl_param_load() != xcclSuccess) {
        xccl_option_tell_error("xccl perf");
        return XCCL_EXIT_FAILURE;
    }
    if (options.threads)
        return run_threads(&options);
    xccl_launcher_name(&is_job);
    if (!is_job)
        return xccl_perf_start_ranks(options.nranks, argv);
    if (xccl_launcher_place(&launch)) {
        xccl_option_tell_error("xccl perf");
        return XCCL_EXIT_FAILURE;
    }
    if (!xccl_perf_is_rank(options.nranks, launch.nranks, &status))
        return status ? status : xccl_perf_start_ranks(options.nranks, argv);
    return run_process(&options);
}
