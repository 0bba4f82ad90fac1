/* SPDX-License-Identifier: BSD-3-Clause */
/* What two processes of this machine can do at best, without a library: the bars of
 * bench/peer_figures. Nothing of XCCL's way of moving data is in it.
 *
 *   host_limits line           a cache line handed from one core to another, one way
 *   host_limits staged         an all-reduce (sum of floats) between private buffers: each rank
 *                              copies 64 KiB of its input into a slot that both see, says so in a
 *                              counter, and writes own + other's; two slots a rank
 *   host_limits serve NAME BYTES [CORES]   both, by order of bench/peer_figures (perf_serve.h):
 *                              line as the barrier, staged as the all-reduce
 *
 * Tables have the median of eleven rounds with the least and the greatest. From 16 MiB on the
 * output is written past the caches, on processors for which it knows how.
 *
 * Thread: one a process; two processes. */
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/clock.h"
#include "perf/perf_serve.h"

#define LINE_BYTES 128 /* two, since they are fetched in pairs */
#define SLOT_BYTES ((size_t)64 << 10)
#define SLOTS      2u
#define PAST_BYTES ((size_t)16 << 20)
#define SPINS      20000u /* then it yields: the other may have no core */
#define ROUNDS     11
#define ROUND_NS   20e6
#define TABLE_MOST ((size_t)256 << 20)
#define EXIT_USAGE 2

/* What both processes see. Each counter is written by one of them alone. */
struct seat {
    alignas(LINE_BYTES) _Atomic uint32_t posted; /* slots filled */
    alignas(LINE_BYTES) _Atomic uint32_t taken; /* slots of the other's read */
    alignas(LINE_BYTES) _Atomic uint32_t handed; /* lines */
    alignas(LINE_BYTES) _Atomic uint32_t met;
    alignas(LINE_BYTES) _Atomic uint64_t told[2]; /* bits of what is compared or added up */
};

struct table {
    struct seat seats[2];
    alignas(4096) char slots[2][SLOTS][SLOT_BYTES];
};

struct pair {
    struct table *table;
    int me;
    uint32_t slots, lines, meetings; /* so far */
};

/* ---- two processes ---- */

/* Until *counter has come to want. Acquire: pairs with the release that stored it. */
static void await(_Atomic uint32_t *counter, uint32_t want)
{
    for (uint32_t spins = 0;
         (int32_t)(atomic_load_explicit(counter, memory_order_acquire) - want) < 0; spins++) {
        if (spins >= SPINS)
            sched_yield();
#ifdef __SSE2__
        else
            _mm_pause();
#endif
    }
}

/* Both give a value and get the other's. Two places in turn: the other may still read the last. */
static uint64_t swap_values(struct pair *pair, uint64_t own)
{
    struct seat *mine = &pair->table->seats[pair->me], *other = &pair->table->seats[!pair->me];
    uint32_t number = ++pair->meetings;

    /* Relaxed: met, stored with release behind it and loaded with acquire, orders both. */
    atomic_store_explicit(&mine->told[number & 1], own, memory_order_relaxed);
    atomic_store_explicit(&mine->met, number, memory_order_release);
    await(&other->met, number);
    return atomic_load_explicit(&other->told[number & 1], memory_order_relaxed);
}

/* Not under sanitizers, which are not ready yet when it is chosen. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(XCCL_SANITIZED)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

FOR_EACH_PROCESSOR
static void add(float *restrict out, const float *restrict a, const float *restrict b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = a[i] + b[i];
}

/* Adds with stores that bypass the caches, if the processor has them. */
static void add_past(float *out, const float *a, const float *b, size_t count)
{
    size_t done = 0;

#ifdef __SSE2__
    if ((uintptr_t)out % sizeof(__m128) == 0) {
        for (; done + 4 <= count; done += 4)
            _mm_stream_ps(out + done, _mm_add_ps(_mm_loadu_ps(a + done), _mm_loadu_ps(b + done)));
        _mm_sfence();
    }
#endif
    add(out + done, a + done, b + done, count - done);
}

static void staged(struct pair *pair, const char *in, char *out, size_t bytes)
{
    struct table *table = pair->table;
    struct seat *mine = &table->seats[pair->me], *other = &table->seats[!pair->me];
    void (*adds)(float *out, const float *a, const float *b, size_t count) = add;

    if (bytes >= PAST_BYTES)
        adds = add_past;
    for (size_t at = 0; at < bytes; at += SLOT_BYTES) {
        size_t part = bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES;
        uint32_t number = ++pair->slots, slot = number % SLOTS;

        await(&other->taken, number - SLOTS); /* what was in this slot has been read */
        memcpy(table->slots[pair->me][slot], in + at, part);
        /* Release: the slot before its number. Pairs with await(). */
        atomic_store_explicit(&mine->posted, number, memory_order_release);
        await(&other->posted, number);
        adds((float *)(void *)(out + at), (const float *)(const void *)(in + at),
             (const float *)(const void *)table->slots[!pair->me][slot], part / sizeof(float));
        /* Release: read before it is given back. Pairs with await(). */
        atomic_store_explicit(&mine->taken, number, memory_order_release);
    }
}

/* One way: each call is a hand-over, by both in turn. */
static void line(struct pair *pair)
{
    struct table *table = pair->table;
    uint32_t number = ++pair->lines;
    int giver = (int)(number & 1);

    if (pair->me == giver) /* release: pairs with await() */
        atomic_store_explicit(&table->seats[giver].handed, number, memory_order_release);
    else
        await(&table->seats[giver].handed, number);
}

/* Two processes; in the second one me is 1. NULL after a message. */
static struct table *make_table(void)
{
    struct table *table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (table == MAP_FAILED) {
        perror("host_limits: mmap");
        return NULL;
    }
    memset(table, 0, sizeof(*table)); /* touched before anything is measured */
    return table;
}

static int fork_pair(struct pair *pair, pid_t *child_out)
{
    pid_t parent = getpid();

    pair->table = make_table();
    if (!pair->table)
        return 0;
    *child_out = fork();
    if (*child_out < 0) {
        perror("host_limits: fork");
        return 0;
    }
    pair->me = *child_out == 0;
    if (pair->me && (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent))
        _exit(EXIT_FAILURE);
    return 1;
}

/* The other process's end as an exit status. */
static int reap(pid_t child, int status)
{
    int other = 0;

    if (child == 0)
        _exit(status);
    if (waitpid(child, &other, 0) != child || !WIFEXITED(other))
        return EXIT_FAILURE;
    return status ? status : WEXITSTATUS(other);
}

/* ---- by order ---- */

static int prepare(struct xccl_perf_server *server, int *has_out)
{
    const struct xccl_perf_job *job = &server->job;

    *has_out = job->coll->which == XCCL_PERF_BARRIER ||
               (job->coll->which == XCCL_PERF_ALL_REDUCE && job->type == xcclFloat32 &&
                job->op == xcclSum && !server->in_place);
    return 1;
}

static int run(struct xccl_perf_server *server, int64_t calls)
{
    struct pair *pair = server->user;
    struct xccl_perf_job *job = &server->job;

    for (int64_t i = 0; i < calls; i++) {
        if (job->coll->which == XCCL_PERF_BARRIER)
            line(pair);
        else
            staged(pair, job->send, job->recv, server->shape.bytes);
    }
    return 1;
}

static int greatest(struct xccl_perf_server *server, double *value_io)
{
    uint64_t bits = 0;
    double other = 0;

    memcpy(&bits, value_io, sizeof(bits));
    bits = swap_values(server->user, bits);
    memcpy(&other, &bits, sizeof(other));
    if (other > *value_io)
        *value_io = other;
    return 1;
}

static int sum(struct xccl_perf_server *server, int64_t *value_io)
{
    *value_io += (int64_t)swap_values(server->user, (uint64_t)*value_io);
    return 1;
}

static const struct xccl_perf_server_ops ops = {
    .program = "host_limits", .prepare = prepare, .run = run, .greatest = greatest, .sum = sum};

static int serve(const char *name, const char *bytes, const char *cores)
{
    struct pair pair = {.me = 0};
    struct xccl_perf_server server = {.ops = &ops, .user = &pair, .fd = -1};
    pid_t child = 0;
    int ok = 0;

    if (!fork_pair(&pair, &child))
        return EXIT_FAILURE;
    server.job.rank = pair.me;
    server.job.nranks = 2;
    ok = xccl_perf_server_init(&server, name, strtoull(bytes, NULL, 10), "bare loops");
    if (ok) {
        xccl_perf_server_pin(&server, cores);
        ok = xccl_perf_server_run(&server);
    }
    xccl_perf_server_fini(&server);
    return reap(child, ok ? EXIT_SUCCESS : EXIT_FAILURE);
}

/* ---- tables ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* ns of one call, on the slower process; both call it. */
static double time_calls(struct xccl_perf_server *server, int64_t calls)
{
    double ns = 1;
    uint64_t begin_ns = 0;

    (void)greatest(server, &ns);
    begin_ns = xccl_clock_ns();
    (void)run(server, calls);
    ns = (double)(xccl_clock_ns() - begin_ns) / (double)calls;
    (void)greatest(server, &ns);
    return ns;
}

static void show(struct xccl_perf_server *server, const char *what)
{
    double rounds_ns[ROUNDS], once_ns = time_calls(server, 100);
    int64_t calls = (int64_t)(ROUND_NS / once_ns) + 1;

    for (int i = 0; i < ROUNDS; i++)
        rounds_ns[i] = time_calls(server, calls);
    qsort(rounds_ns, ROUNDS, sizeof(*rounds_ns), compare);
    if (server->job.rank == 0)
        printf("%-8s %10zu B  %12.3f us [%.3f %.3f]\n", what, server->shape.bytes,
               rounds_ns[ROUNDS / 2] / 1e3, rounds_ns[0] / 1e3, rounds_ns[ROUNDS - 1] / 1e3);
    fflush(stdout);
}

static int tables(const char *what)
{
    struct pair pair = {.me = 0};
    struct xccl_perf_server server = {.ops = &ops, .user = &pair, .fd = -1};
    struct xccl_perf_job *job = &server.job;
    int is_line = strcmp(what, "line") == 0;
    size_t most = is_line ? sizeof(float) : TABLE_MOST;
    pid_t child = 0;

    if (!fork_pair(&pair, &child))
        return EXIT_FAILURE;
    job->rank = pair.me;
    job->nranks = 2;
    job->coll = xccl_perf_coll_find(is_line ? "barrier" : "all_reduce");
    job->send = aligned_alloc(4096, most < 4096 ? 4096 : most);
    job->recv = aligned_alloc(4096, most < 4096 ? 4096 : most);
    if (!job->send || !job->recv)
        return reap(child, EXIT_FAILURE);
    memset(job->send, 0, most);
    memset(job->recv, 0, most);
    xccl_perf_server_pin(&server, "0,1");
    for (size_t bytes = is_line ? 0 : 8; bytes <= most; bytes = is_line ? most + 1 : 4 * bytes) {
        server.shape.bytes = bytes;
        show(&server, what);
    }
    free(job->send);
    free(job->recv);
    return reap(child, EXIT_SUCCESS);
}

int main(int argc, char **argv)
{
    if (argc == 2 && (strcmp(argv[1], "line") == 0 || strcmp(argv[1], "staged") == 0))
        return tables(argv[1]);
    if ((argc == 4 || argc == 5) && strcmp(argv[1], "serve") == 0)
        return serve(argv[2], argv[3], argv[4]);
    fprintf(stderr, "usage: host_limits line | staged | serve NAME BYTES [CORES]\n");
    return EXIT_USAGE;
}
