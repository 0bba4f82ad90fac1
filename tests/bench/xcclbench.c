/* SPDX-License-Identifier: BSD-3-Clause */
/* XCCL's ranks for bench/peer_figures, and what is measured without a peer.
 *
 *   xccl run -n N -- xcclbench serve NAME BYTES [--alloc|--register] [--cores LIST]
 *   xcclbench serve NAME BYTES --threads N [--alloc|--register] [--cores LIST]
 *       ranks, as processes or as threads of one, that carry out orders which come by the socket
 *       NAME (tools/perf/perf_serve.h), with private buffers, registered ones or those of
 *       xcclMemAlloc
 *
 *   xccl run -n N -- xcclbench late US [CALLS]
 *       an all-reduce of 8 bytes to which the last rank comes US microseconds late: how long the
 *       others need from its coming on, and the processor time that they use while they wait
 *
 *   xccl run -n N -- xcclbench idle MS
 *       the processor time of a process with a communicator that has nothing to do
 *
 *   xcclbench one [CALLS]
 *       a call on a communicator of one rank: arguments, plan and launch
 *
 * late, idle and one write one JSON object, of rank 0 or of the worst rank.
 *
 * Thread: the main thread, but with --threads one a rank. */
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "perf/perf_serve.h"
#include "xccl.h"

#define RANKS_MAX  64
#define ROUNDS     11
#define LATE_CALLS 20
#define ONE_CALLS  200000
#define EXIT_USAGE 2
#define NS_PER_US  1000.0

/* One rank. */
struct rank {
    struct xccl_perf_server server;
    xcclUniqueId id;
    const char *name, *cores;
    uint64_t bytes;
    int registers; /* the buffers */
    int ok;
};

static int tell(xcclResult_t rc, xcclComm_t comm)
{
    if (rc == xcclSuccess)
        return 1;
    fprintf(stderr, "xcclbench: %s: %s\n", xcclGetErrorString(rc), xcclGetLastError(comm));
    return 0;
}

/* ---- orders ---- */

static int prepare(struct xccl_perf_server *server, int *has_out)
{
    (void)server;
    *has_out = 1;
    return 1;
}

static int run(struct xccl_perf_server *server, int64_t calls)
{
    const struct xccl_perf_job *job = &server->job;
    struct xccl_perf_buffers at = xccl_perf_buffers_of(job, &server->shape, server->in_place);
    xcclResult_t rc = xcclSuccess;

    for (int64_t i = 0; i < calls && !rc; i++)
        rc = xccl_perf_call(job, at.send, at.recv, server->shape.count);
    return tell(rc, job->comm);
}

static int greatest(struct xccl_perf_server *server, double *value_io)
{
    xcclComm_t comm = server->job.comm;

    return tell(xcclAllReduce(value_io, value_io, 1, xcclFloat64, xcclMax, comm, NULL), comm);
}

static int sum(struct xccl_perf_server *server, int64_t *value_io)
{
    xcclComm_t comm = server->job.comm;

    return tell(xcclAllReduce(value_io, value_io, 1, xcclInt64, xcclSum, comm, NULL), comm);
}

static const struct xccl_perf_server_ops ops = {
    .program = "xcclbench", .prepare = prepare, .run = run, .greatest = greatest, .sum = sum};

/* Pinned only after the communicator has been made, which asks how many cores there are. */
static void *serve_rank(void *arg)
{
    struct rank *rank = arg;
    struct xccl_perf_server *server = &rank->server;
    struct xccl_perf_job *job = &server->job;
    char software[64];
    int version = 0;

    if (!tell(xcclCommInitRank(&job->comm, job->nranks, rank->id, job->rank), NULL))
        return NULL;
    (void)xcclGetVersion(&version);
    snprintf(software, sizeof(software), "XCCL %d.%d.%d", version / 10000, version / 100 % 100,
             version % 100);
    server->keeps_pages = job->take || rank->registers;
    rank->ok = xccl_perf_server_init(server, rank->name, rank->bytes, software);
    if (rank->ok && rank->registers)
        rank->ok = tell(xccl_perf_register(job, rank->bytes), job->comm);
    if (rank->ok) {
        xccl_perf_server_pin(server, rank->cores);
        rank->ok = xccl_perf_server_run(server);
    }
    xccl_perf_server_fini(server);
    if (!rank->ok)
        xcclCommAbort(job->comm);
    else
        rank->ok = tell(xcclCommDestroy(job->comm), NULL);
    return NULL;
}

static int serve_threads(struct rank *ranks, int count)
{
    pthread_t threads[RANKS_MAX];
    int started = 0, ok = tell(xcclGetUniqueId(&ranks[0].id), NULL);

    for (int i = 0; i < count && ok; i++) {
        ranks[i].id = ranks[0].id;
        ok = pthread_create(&threads[i], NULL, serve_rank, &ranks[i]) == 0;
        started += ok;
    }
    if (started < count)
        exit(EXIT_FAILURE); /* those that run would wait for the others */
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        ok = ok && ranks[i].ok;
    }
    return ok;
}

static int serve(int argc, char **argv)
{
    static const struct option options[] = {{"alloc", no_argument, NULL, 'a'},
                                            {"register", no_argument, NULL, 'r'},
                                            {"threads", required_argument, NULL, 't'},
                                            {"cores", required_argument, NULL, 'c'},
                                            {NULL, 0, NULL, 0}};
    static struct rank ranks[RANKS_MAX];
    struct rank first = {.server = {.ops = &ops, .fd = -1}};
    struct xccl_perf_job *job = &first.server.job;
    int threads = 0, letter = 0;

    while ((letter = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (letter == 'a') {
            job->take = xccl_perf_take_shared;
            job->give = xccl_perf_give_shared;
        } else if (letter == 'r') {
            first.registers = 1;
        } else if (letter == 't') {
            threads = (int)strtol(optarg, NULL, 10);
        } else if (letter == 'c') {
            first.cores = optarg;
        } else {
            return EXIT_USAGE;
        }
    }
    if (argc - optind != 3 || threads < 0 || threads > RANKS_MAX)
        return EXIT_USAGE;
    first.name = argv[optind + 1];
    first.bytes = strtoull(argv[optind + 2], NULL, 10);
    if (!threads && !tell(xcclGetLaunch(&first.id, &job->nranks, &job->rank), NULL))
        return EXIT_FAILURE;
    if (threads)
        job->nranks = threads;
    for (int i = 0; i < (threads ? threads : 1); i++) {
        ranks[i] = first;
        ranks[i].server.job.rank += i;
    }
    if (threads)
        return serve_threads(ranks, threads) ? EXIT_SUCCESS : EXIT_FAILURE;
    serve_rank(&ranks[0]);
    return ranks[0].ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- without a peer ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), compare);
    return values[count / 2];
}

static double cpu_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* A communicator of all that were started, or of this process alone. */
static int join(int alone, xcclComm_t *comm_out, int *rank_out, int *nranks_out)
{
    xcclUniqueId id;

    *rank_out = 0;
    *nranks_out = 1;
    if (!tell(alone ? xcclGetUniqueId(&id) : xcclGetLaunch(&id, nranks_out, rank_out), NULL))
        return 0;
    return tell(xcclCommInitRank(comm_out, *nranks_out, id, *rank_out), NULL);
}

/* What a call with a late rank cost this rank. */
struct waited {
    double begin_ns, end_ns; /* on a clock that the ranks of a host share */
    double cpu_ns;
};

/* The late rank works meanwhile: it keeps its core busy, as a rank does that has more to do. */
static void work_for(double us)
{
    double end_ns = (double)xccl_clock_ns() + us * NS_PER_US;

    while ((double)xccl_clock_ns() < end_ns)
        continue;
}

static int late_call(xcclComm_t comm, double late_us, struct waited *own)
{
    float in[2] = {1, 2}, out[2];
    double cpu = 0;

    if (!tell(xcclBarrier(comm, NULL), comm))
        return 0;
    if (late_us > 0)
        work_for(late_us);
    own->begin_ns = (double)xccl_clock_ns();
    cpu = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    if (!tell(xcclAllReduce(in, out, 2, xcclFloat32, xcclSum, comm, NULL), comm))
        return 0;
    own->end_ns = (double)xccl_clock_ns();
    own->cpu_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    return 1;
}

/* For each call, of the rank that fared worst: us from the late rank's coming to its return, and
 * processor time as a part of the time waited. */
static int late_calls(xcclComm_t comm, int is_late, double late_us, int calls, double *cost_us,
                      double *cpu_part)
{
    for (int i = 0; i < calls; i++) {
        struct waited own;
        double came_ns = 0, worst[2] = {0, 0};

        if (!late_call(comm, is_late ? late_us : 0, &own))
            return 0;
        came_ns = is_late ? own.begin_ns : 0;
        if (!tell(xcclAllReduce(&came_ns, &came_ns, 1, xcclFloat64, xcclMax, comm, NULL), comm))
            return 0;
        if (!is_late) {
            worst[0] = (own.end_ns - came_ns) / NS_PER_US;
            worst[1] = own.cpu_ns / (own.end_ns - own.begin_ns);
        }
        if (!tell(xcclAllReduce(worst, worst, 2, xcclFloat64, xcclMax, comm, NULL), comm))
            return 0;
        cost_us[i] = worst[0];
        cpu_part[i] = worst[1];
    }
    return 1;
}

static int late(int argc, char **argv)
{
    double late_us = argc > 2 ? strtod(argv[2], NULL) : -1;
    int calls = argc > 3 ? (int)strtol(argv[3], NULL, 10) : LATE_CALLS, rank = 0, nranks = 0,
        ok = 0;
    double cost_us[1000], cpu_part[1000];
    xcclComm_t comm = NULL;

    if (late_us < 0 || calls < 1 || calls > 1000)
        return EXIT_USAGE;
    if (!join(0, &comm, &rank, &nranks))
        return EXIT_FAILURE;
    ok = nranks > 1 && late_calls(comm, rank == nranks - 1, late_us, calls, cost_us, cpu_part);
    if (nranks < 2)
        fprintf(stderr,
                "xcclbench: late needs two ranks or more: xccl run -n 2 -- xcclbench ...\n");
    if (ok && rank == 0)
        printf("{\"late_us\": %.0f, \"ranks\": %d, \"calls\": %d, \"cost_us\": %.3f, "
               "\"cpu_part\": %.4f}\n",
               late_us, nranks, calls, median(cost_us, calls), median(cpu_part, calls));
    return ok && tell(xcclCommDestroy(comm), NULL) ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Between two calls, with the service thread asleep; all threads of the process count. */
static int idle(int argc, char **argv)
{
    long ms = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    struct timespec nap = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    double part = 0, cpu = 0, begin_ns = 0;
    int rank = 0, nranks = 0, ok = 0;
    xcclComm_t comm = NULL;

    if (ms < 1)
        return EXIT_USAGE;
    if (!join(0, &comm, &rank, &nranks))
        return EXIT_FAILURE;
    ok = tell(xcclBarrier(comm, NULL), comm);
    begin_ns = (double)xccl_clock_ns();
    cpu = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    (void)nanosleep(&nap, NULL);
    part = (cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) / ((double)xccl_clock_ns() - begin_ns);
    ok = ok && tell(xcclAllReduce(&part, &part, 1, xcclFloat64, xcclMax, comm, NULL), comm);
    if (ok && rank == 0)
        printf("{\"idle_ms\": %ld, \"ranks\": %d, \"cpu_part\": %.7f}\n", ms, nranks, part);
    return ok && tell(xcclCommDestroy(comm), NULL) ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* By the thread's own time: it waits for nobody, and what else the machine does is left out. */
static int one(int argc, char **argv)
{
    int64_t calls = argc > 2 ? strtoll(argv[2], NULL, 10) : ONE_CALLS;
    double rounds_ns[ROUNDS];
    float in[2] = {1, 2}, out[2] = {0, 0};
    xcclComm_t comm = NULL;
    xcclResult_t rc = xcclSuccess;
    int rank = 0, nranks = 0;

    if (calls < 1)
        return EXIT_USAGE;
    if (!join(1, &comm, &rank, &nranks))
        return EXIT_FAILURE;
    for (int r = 0; r < ROUNDS && !rc; r++) {
        double begin_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID);

        for (int64_t i = 0; i < calls && !rc; i++)
            rc = xcclAllReduce(in, out, 2, xcclFloat32, xcclSum, comm, NULL);
        rounds_ns[r] = (cpu_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns) / (double)calls;
    }
    if (!tell(rc, comm) || out[1] != 2)
        return EXIT_FAILURE;
    printf("{\"calls\": %lld, \"call_ns\": %.2f}\n", (long long)calls, median(rounds_ns, ROUNDS));
    return tell(xcclCommDestroy(comm), NULL) ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *word;
        int (*run)(int argc, char **argv);
    } modes[] = {{"serve", serve}, {"late", late}, {"idle", idle}, {"one", one}};
    int status = EXIT_USAGE;

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]) && argc > 1; i++) {
        if (strcmp(argv[1], modes[i].word) == 0)
            status = modes[i].run(argc, argv);
    }
    if (status == EXIT_USAGE)
        fprintf(stderr, "usage: xccl run -n N -- xcclbench serve NAME BYTES [--alloc]"
                        " [--cores LIST]\n"
                        "       xcclbench serve NAME BYTES --threads N [--alloc] [--cores LIST]\n"
                        "       xccl run -n N -- xcclbench late US [CALLS]\n"
                        "       xccl run -n N -- xcclbench idle MS\n"
                        "       xcclbench one [CALLS]\n");
    return status;
}
