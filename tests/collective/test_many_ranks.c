/* SPDX-License-Identifier: BSD-3-Clause */
/* Many ranks in few processes, and many communicators at once: threads of one process, processes
 * with threads, a map for each segment in each process, memory within bounds, nothing left behind.
 * XT_RANKS in the environment: more threads; XT_CYCLES: more cycles. */
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "world.h"

static int number_of(const char *name, int usual)
{
    const char *text = getenv(name);

    return text ? atoi(text) : usual;
}

/* Each rank needs about a dozen descriptors while it joins. */
static void want_descriptors(int nranks)
{
    struct rlimit limit;

    XT_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    XT_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (limit.rlim_max < 16u * (unsigned)nranks + 100)
        XT_SKIP("%d ranks in one process need ulimit -n %d", nranks, 16 * nranks + 100);
}

/* A number of /proc/self/status or smaps_rollup, in KiB. */
static long memory_kib(const char *file, const char *name)
{
    char line[256];
    long kib = 0;
    FILE *from = fopen(file, "re");

    XT_CHECK(from != NULL);
    while (fgets(line, sizeof line, from))
        if (strncmp(line, name, strlen(name)) == 0)
            kib = atol(line + strlen(name));
    fclose(from);
    return kib;
}

/* Maps of segments in this process, and the memory in them. */
static int count_segments(long *kib_out)
{
    FILE *from = fopen("/proc/self/smaps", "re");
    int count = 0, inside = 0;
    char line[512];
    long kib = 0;

    XT_CHECK(from != NULL);
    while (fgets(line, sizeof line, from)) {
        if (strchr(line, '-') && strchr(line, ' ') && strchr(line, '-') < strchr(line, ' ')) {
            inside = strstr(line, "/memfd:xccl ") != NULL;
            count += inside;
        } else if (inside && strncmp(line, "Rss:", 4) == 0) {
            kib += atol(line + 4);
        }
    }
    fclose(from);
    *kib_out = kib;
    return count;
}

static int segments_mapped(void)
{
    long kib;

    return count_segments(&kib);
}

/* --- calls with every value looked at --- */

static int block_value(int from, int to, size_t i)
{
    return (int)((size_t)from * 31 + (size_t)to * 17 + i) % 1009;
}

static int *make_ints(size_t count)
{
    int *ints = calloc(count ? count : 1, sizeof *ints);

    XT_CHECK(ints != NULL);
    return ints;
}

static void check_all_gather(xcclComm_t comm, int rank, int nranks, size_t count)
{
    int *in = make_ints(count), *out = make_ints(count * (size_t)nranks);

    for (size_t i = 0; i < count; i++)
        in[i] = block_value(rank, 0, i);
    XT_OK(xcclAllGather(in, out, count, xcclInt32, comm, NULL));
    for (int from = 0; from < nranks; from++)
        for (size_t i = 0; i < count; i++)
            XT_CHECK_INT(out[(size_t)from * count + i], block_value(from, 0, i));
    free(in);
    free(out);
}

static void check_all_to_all(xcclComm_t comm, int rank, int nranks, size_t count)
{
    size_t all = count * (size_t)nranks;
    int *in = make_ints(all), *out = make_ints(all);

    for (int to = 0; to < nranks; to++)
        for (size_t i = 0; i < count; i++)
            in[(size_t)to * count + i] = block_value(rank, to, i);
    XT_OK(xcclAlltoAll(in, out, count, xcclInt32, comm, NULL));
    for (int from = 0; from < nranks; from++)
        for (size_t i = 0; i < count; i++)
            XT_CHECK_INT(out[(size_t)from * count + i], block_value(from, rank, i));
    free(in);
    free(out);
}

static void check_broadcast(xcclComm_t comm, int rank, int root, size_t count)
{
    int *data = make_ints(count);

    for (size_t i = 0; i < count; i++)
        data[i] = rank == root ? block_value(root, 1, i) : -1;
    XT_OK(xcclBroadcast(data, data, count, xcclInt32, root, comm, NULL));
    for (size_t i = 0; i < count; i++)
        XT_CHECK_INT(data[i], block_value(root, 1, i));
    free(data);
}

/* The sum over ranks needs no look at all of them for each element. */
static void check_all_reduce(xcclComm_t comm, int rank, int nranks, size_t count)
{
    int *data = make_ints(count);

    for (size_t i = 0; i < count; i++)
        data[i] = rank + (int)i;
    XT_OK(xcclAllReduce(data, data, count, xcclInt32, xcclSum, comm, NULL));
    for (size_t i = 0; i < count; i++)
        XT_CHECK_INT(data[i], nranks * (nranks - 1) / 2 + nranks * (int)i);
    free(data);
}

static void check_neighbours(xcclComm_t comm, int rank, int nranks)
{
    int out[100], in[100];

    for (int i = 0; i < 100; i++)
        out[i] = block_value(rank, 2, (size_t)i);
    XT_OK(xcclGroupStart());
    XT_OK(xcclSend(out, 100, xcclInt32, (rank + 1) % nranks, comm, NULL));
    XT_OK(xcclRecv(in, 100, xcclInt32, (rank + nranks - 1) % nranks, comm, NULL));
    XT_OK(xcclGroupEnd());
    for (int i = 0; i < 100; i++)
        XT_CHECK_INT(in[i], block_value((rank + nranks - 1) % nranks, 2, (size_t)i));
}

/* --- threads of one process --- */

/* Where the time goes; into the file XT_FIGURES too, if there is that variable. */
static void tell(int rank, const char *what, double *since)
{
    const char *path = getenv("XT_FIGURES");
    double now = xt_seconds(), took = now - *since;
    FILE *file = rank == 0 && path ? fopen(path, "ae") : NULL;

    if (rank == 0)
        printf("%-24s %7.3f s\n", what, took);
    if (file) {
        fprintf(file, "%-24s %7.3f s\n", what, took);
        fclose(file);
    }
    *since = now;
}

static void crowd(int rank, int nranks, void *arg)
{
    double since = xt_seconds();
    xcclComm_t comm = world_join(arg, rank, nranks);

    tell(rank, "join", &since);
    for (int i = 0; i < 3; i++)
        XT_OK(xcclBarrier(comm, NULL));
    tell(rank, "3 barriers", &since);
    check_all_reduce(comm, rank, nranks, 2);
    tell(rank, "all-reduce, 8 B", &since);
    check_all_reduce(comm, rank, nranks, 1024);
    tell(rank, "all-reduce, 4 KiB", &since);
    check_all_gather(comm, rank, nranks, 2);
    check_all_gather(comm, rank, nranks, 1024);
    tell(rank, "all-gather, 4 KiB", &since);
    check_broadcast(comm, rank, nranks / 2, 1024);
    tell(rank, "broadcast, 4 KiB", &since);
    check_neighbours(comm, rank, nranks);
    check_all_to_all(comm, rank, nranks, 2);
    tell(rank, "all-to-all, 8 B", &since);
    check_all_to_all(comm, rank, nranks, nranks > 512 ? 320 : 512);
    tell(rank, "all-to-all, over 1 KiB", &since);
    if (rank == 0)
        XT_CHECK_INT(segments_mapped(), nranks);
    XT_OK(xcclBarrier(comm, NULL));
    XT_OK(xcclCommDestroy(comm));
    tell(rank, "leave", &since);
}

XT_TEST_DEADLINE(hundreds_of_ranks_are_threads_of_one_process, 60)
{
    int nranks = number_of("XT_RANKS", XT_SANITIZED ? 48 : 256);
    struct world *world = world_create();
    long most;

    want_descriptors(nranks);
    xt_threads_run(nranks, crowd, world);
    most = memory_kib("/proc/self/status", "VmHWM:");
    printf("most memory: %ld MiB\n", most >> 10);
    XT_CHECK_INT(segments_mapped(), 0);
    if (!XT_SANITIZED)
        XT_CHECK(most < 8l << 20);
}

XT_TEST_DEADLINE(one_thread_joins_as_hundreds_of_ranks, 60)
{
    int nranks = number_of("XT_RANKS", XT_SANITIZED ? 48 : 256);
    xcclComm_t *comms = calloc((size_t)nranks, sizeof(void *));
    int *data = make_ints((size_t)nranks);
    double since = xt_seconds();

    world_create();
    want_descriptors(nranks);
    XT_CHECK(comms != NULL);
    XT_OK(xcclCommInitAll(comms, nranks, NULL));
    tell(0, "join", &since);
    for (int i = 0; i < nranks; i++)
        data[i] = i;
    XT_OK(xcclGroupStart());
    for (int i = 0; i < nranks; i++)
        XT_OK(xcclAllReduce(&data[i], &data[i], 1, xcclInt32, xcclSum, comms[i], NULL));
    XT_OK(xcclGroupEnd());
    tell(0, "all-reduce, 4 B", &since);
    for (int i = 0; i < nranks; i++)
        XT_CHECK_INT(data[i], nranks * (nranks - 1) / 2);
    XT_OK(xcclGroupStart());
    for (int i = 0; i < nranks; i++)
        XT_OK(xcclCommDestroy(comms[i]));
    XT_OK(xcclGroupEnd());
    tell(0, "leave", &since);
    free(comms);
    free(data);
}

/* --- leaving --- */

/* A rank leaves as soon as its last call returns; the others may still read what it sent. */
static void leave_early(int rank, int nranks, void *arg)
{
    struct world *world = arg;

    for (int round = 0; round < 6; round++) {
        uint64_t state = xt_seed() + (uint64_t)(rank * 100 + round);
        xcclComm_t comm = NULL;

        XT_OK(xcclCommInitRank(&comm, nranks, world_id(world, rank, round), rank));
        check_all_gather(comm, rank, nranks, 600);
        for (uint64_t i = xt_random(&state) % 2000; i > 0; i--)
            sched_yield();
        check_all_reduce(comm, rank, nranks, 40);
        XT_OK(xcclCommDestroy(comm));
    }
}

XT_TEST(threads_leave_in_any_order_while_others_still_read)
{
    xt_threads_run(8, leave_early, world_create());
}

static void abort_one(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks);
    int value = rank;

    check_all_to_all(comm, rank, nranks, 500);
    world_meet(world, nranks);
    if (rank == 3) {
        XT_OK(xcclCommAbort(comm));
        return;
    }
    XT_CHECK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL) != xcclSuccess);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(an_aborted_thread_takes_no_memory_from_the_others)
{
    /* The shell of an aborted communicator stays for calls that come too late. */
    xt_allow_leaks("the shell of an aborted communicator");
    xt_threads_run(6, abort_one, world_create());
    XT_CHECK_INT(segments_mapped(), 0);
}

/* --- splits --- */

static void split_among(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks), half = NULL, third = NULL;

    XT_OK(xcclCommSplit(comm, rank % 2, rank, &half, NULL));
    XT_OK(xcclCommSplit(comm, rank < 3 ? 0 : XCCL_SPLIT_NOCOLOR, -rank, &third, NULL));
    check_all_reduce(comm, rank, nranks, 3000);
    XT_OK(xcclCommDestroy(comm));
    check_all_gather(half, rank / 2, nranks / 2, 700);
    check_all_to_all(half, rank / 2, nranks / 2, 700);
    if (third)
        check_broadcast(third, 2 - rank, 0, 5000);
    XT_OK(xcclCommDestroy(third));
    XT_OK(xcclCommDestroy(half));
}

XT_TEST(threads_split_and_the_parts_outlive_the_whole)
{
    xt_threads_run(8, split_among, world_create());
    XT_CHECK_INT(segments_mapped(), 0);
}

/* --- processes with threads --- */

#define THREADS 4

struct mixed {
    struct world *world;
    int process, processes;
    xt_rank_fn *fn;
};

static void mixed_thread(int thread, int threads, void *arg)
{
    const struct mixed *mixed = arg;

    mixed->fn(mixed->process * threads + thread, mixed->processes * threads, mixed->world);
}

static void use_mixed(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks);

    check_all_reduce(comm, rank, nranks, 5);
    check_all_reduce(comm, rank, nranks, 100000);
    check_all_gather(comm, rank, nranks, 3000);
    check_all_to_all(comm, rank, nranks, 900);
    check_broadcast(comm, rank, nranks - 1, 20000);
    check_neighbours(comm, rank, nranks);
    XT_CHECK_INT(segments_mapped(), nranks); /* not so many for each thread */
    XT_OK(xcclBarrier(comm, NULL));
    XT_OK(xcclCommDestroy(comm));
}

static void run_mixed(int process, int processes, void *arg)
{
    struct mixed mixed = *(struct mixed *)arg;

    mixed.process = process;
    mixed.processes = processes;
    xt_threads_run(THREADS, mixed_thread, &mixed);
    XT_CHECK_INT(segments_mapped(), 0);
}

XT_TEST(processes_with_threads_map_each_segment_once)
{
    struct mixed mixed = {.world = world_create(), .fn = use_mixed};

    xt_mp_run(2, run_mixed, &mixed);
}

#define ALIVE 100

/* Ids for more than a world has, by a broadcast over a first communicator. */
static void hundred(int rank, int nranks, void *arg)
{
    xcclComm_t first = world_join(arg, rank, nranks), comms[ALIVE];
    xcclUniqueId ids[ALIVE];
    int count = XT_SANITIZED ? ALIVE / 5 : ALIVE;

    for (int i = 0; i < count && rank == 0; i++)
        XT_OK(xcclGetUniqueId(&ids[i]));
    XT_OK(xcclBroadcast(ids, ids, sizeof ids, xcclInt8, 0, first, NULL));
    for (int i = 0; i < count; i++) {
        XT_OK(xcclCommInitRank(&comms[i], nranks, ids[i], rank));
        check_all_reduce(comms[i], rank, nranks, (size_t)i + 1);
    }
    XT_CHECK_INT(segments_mapped(), (count + 1) * nranks);
    XT_OK(xcclBarrier(first, NULL));
    for (int i = 0; i < count; i++)
        check_all_reduce(comms[(i * 7) % count], rank, nranks, 3);
    for (int i = 0; i < count; i++)
        XT_OK(xcclCommDestroy(comms[(i * 7 + 5) % count]));
    check_all_reduce(first, rank, nranks, 3);
    XT_OK(xcclCommDestroy(first));
}

XT_TEST_DEADLINE(a_hundred_communicators_are_alive_at_once, 90)
{
    struct mixed mixed = {.world = world_create(), .fn = hundred};

    want_descriptors(THREADS * ALIVE);
    xt_mp_run(2, run_mixed, &mixed);
}

/* --- cycles --- */

struct cycles {
    xcclUniqueId id;
    pthread_barrier_t step;
    int count;
};

static void one_cycle(struct cycles *cycles, int rank, int nranks)
{
    xcclComm_t comm = NULL;

    if (rank == 0)
        XT_OK(xcclGetUniqueId(&cycles->id));
    pthread_barrier_wait(&cycles->step);
    XT_OK(xcclCommInitRank(&comm, nranks, cycles->id, rank));
    check_all_reduce(comm, rank, nranks, 100);
    XT_OK(xcclCommDestroy(comm));
    pthread_barrier_wait(&cycles->step);
}

/* Into the file XT_FIGURES too, if there is that variable. */
static void tell_cycles(long before, int warm, long after, int count)
{
    const char *path = getenv("XT_FIGURES");
    FILE *file = path ? fopen(path, "ae") : NULL;

    printf("memory: %ld KiB after %d cycles, %ld after %d\n", before, warm, after, count);
    if (!file)
        return;
    fprintf(file, "threads: %ld KiB after %d cycles, %ld after %d\n", before, warm, after, count);
    fclose(file);
}

static void run_cycles(int rank, int nranks, void *arg)
{
    struct cycles *cycles = arg;
    long before = 0, after;
    int fds = 0, threads = 0, warm = cycles->count / 4;

    for (int i = 0; i < cycles->count; i++) {
        one_cycle(cycles, rank, nranks);
        if (rank != 0 || (i != warm && i != cycles->count - 1))
            continue;
        after = memory_kib("/proc/self/status", "VmRSS:");
        if (i == warm) {
            before = after;
            fds = xt_entries("/proc/self/fd");
            threads = xt_entries("/proc/self/task");
            continue;
        }
        tell_cycles(before, warm, after, i);
        XT_CHECK_INT(segments_mapped(), 0);
        if (!XT_SANITIZED)
            XT_CHECK(after <= before + 1024);
        /* The service thread may still be closing what the last cycle left. */
        for (int tries = 0; tries < 2000 && xt_entries("/proc/self/fd") > fds; tries++)
            usleep(1000);
        XT_CHECK(xt_entries("/proc/self/fd") <= fds);
        XT_CHECK(xt_entries("/proc/self/task") <= threads);
    }
}

XT_TEST_DEADLINE(cycles_of_threads_leave_nothing_behind, 4000)
{
    struct cycles cycles = {.count = number_of("XT_CYCLES", XT_SANITIZED ? 40 : 300)};

    world_create();
    pthread_barrier_init(&cycles.step, NULL, 4);
    xt_threads_run(4, run_cycles, &cycles);
    pthread_barrier_destroy(&cycles.step);
}

/* --- memory --- */

/* Sums over ranks are relaxed: a barrier of the communicator orders them. */

static uint64_t stat_of(xcclComm_t comm, xcclCommMemStat_t stat)
{
    uint64_t value = UINT64_MAX;

    XT_OK(xcclCommMemStats(comm, stat, &value));
    return value;
}

struct report {
    struct world *world;
    _Atomic uint64_t total, slots;
};

static void report_memory(int rank, int nranks, void *arg)
{
    struct report *report = arg;
    xcclComm_t comm = world_join(report->world, rank, nranks);
    uint64_t joined = stat_of(comm, xcclStatHostMemTotal), total;
    long kib;

    XT_CHECK_INT(stat_of(comm, xcclStatHostMemPersist), joined);
    XT_CHECK_INT(stat_of(comm, xcclStatHostMemOnDemand), 0);
    check_all_to_all(comm, rank, nranks, 300);
    check_all_to_all(comm, rank, nranks, 20000);
    total = stat_of(comm, xcclStatHostMemTotal);
    XT_CHECK(total > joined);
    XT_CHECK_INT(stat_of(comm, xcclStatHostMemOnDemand), total - joined);
    XT_CHECK_INT(stat_of(comm, xcclStatHostMemSlots) + stat_of(comm, xcclStatHostMemPlans) +
                     stat_of(comm, xcclStatHostMemScratch) + stat_of(comm, xcclStatHostMemTables),
                 total);
    XT_CHECK(stat_of(comm, xcclStatHostMemMapped) > stat_of(comm, xcclStatHostMemSlots));
    check_all_to_all(comm, rank, nranks, 300);
    XT_CHECK_INT(stat_of(comm, xcclStatHostMemTotal), total); /* a known call takes nothing */
    atomic_fetch_add_explicit(&report->total, total, memory_order_relaxed);
    atomic_fetch_add_explicit(&report->slots, stat_of(comm, xcclStatHostMemSlots),
                              memory_order_relaxed);
    XT_OK(xcclBarrier(comm, NULL));
    if (rank == 0) {
        uint64_t slots = atomic_load_explicit(&report->slots, memory_order_relaxed);

        XT_CHECK_INT(count_segments(&kib), nranks);
        printf("slots: %llu KiB told, %ld KiB in memory; all: %llu KiB\n",
               (unsigned long long)slots >> 10, kib,
               (unsigned long long)atomic_load_explicit(&report->total, memory_order_relaxed) >>
                   10);
        XT_CHECK((uint64_t)kib << 10 > slots / 10 * 9 && (uint64_t)kib << 10 < slots / 10 * 12);
    }
    XT_OK(xcclBarrier(comm, NULL));
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(memory_statistics_agree_with_what_the_system_counts)
{
    struct report report = {.world = world_create()};
    long before = memory_kib("/proc/self/status", "RssShmem:"), after;

    xt_threads_run(16, report_memory, &report);
    after = memory_kib("/proc/self/status", "RssShmem:");
    XT_CHECK(after - before < 64); /* all of it was given back */
}

XT_TEST(memory_statistics_refuse_what_they_do_not_know)
{
    xcclComm_t comm = NULL;
    uint64_t value = 7;

    world_create();
    XT_OK(xcclCommInitAll(&comm, 1, NULL));
    XT_CHECK_RC(xcclCommMemStats(comm, xcclStatHostMemTotal, NULL), xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(NULL), "value is NULL");
    XT_CHECK_RC(xcclCommMemStats(comm, (xcclCommMemStat_t)99, &value), xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(NULL), "there is no statistic 99");
    XT_CHECK_RC(xcclCommMemStats(NULL, xcclStatHostMemTotal, &value), xcclInvalidArgument);
    XT_CHECK_INT(value, 7);
    for (int stat = xcclStatGpuMemSuspend; stat <= xcclStatGpuMemTotal; stat++)
        XT_CHECK_INT(stat_of(comm, (xcclCommMemStat_t)stat), 0);
    XT_CHECK_INT(stat_of(comm, xcclStatHostMemSlots), 0); /* nobody to talk to */
    XT_CHECK(stat_of(comm, xcclStatHostMemTotal) > 0);
    XT_OK(xcclCommFinalize(comm));
    XT_CHECK(stat_of(comm, xcclStatHostMemTotal) > 0);
    XT_OK(xcclCommDestroy(comm));
}

/* All processes at once; PSS counts each shared page once. */
struct shared_sum {
    _Atomic uint64_t kib;
};

struct all_pairs {
    struct world *world;
    struct shared_sum *sum;
};

static void all_pairs_rank(int rank, int nranks, void *arg)
{
    const struct all_pairs *pairs = arg;
    xcclComm_t comm = world_join(pairs->world, rank, nranks);
    uint64_t kib;

    check_all_to_all(comm, rank, nranks, 2);
    check_all_to_all(comm, rank, nranks, 600);
    check_all_to_all(comm, rank, nranks, 4096);
    XT_OK(xcclBarrier(comm, NULL));
    atomic_fetch_add_explicit(&pairs->sum->kib,
                              (uint64_t)memory_kib("/proc/self/smaps_rollup", "Pss:"),
                              memory_order_relaxed);
    XT_OK(xcclBarrier(comm, NULL));
    kib = atomic_load_explicit(&pairs->sum->kib, memory_order_relaxed);
    if (rank == 0)
        printf("%d processes, all to all: %llu MiB\n", nranks, (unsigned long long)kib >> 10);
    if (!XT_SANITIZED)
        XT_CHECK(kib < 4ull << 20);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST_DEADLINE(all_to_all_of_many_processes_stays_within_memory, 60)
{
    struct all_pairs pairs = {.world = world_create()};

    pairs.sum = mmap(NULL, sizeof *pairs.sum, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                     -1, 0);
    XT_CHECK(pairs.sum != MAP_FAILED);
    xt_mp_run(XT_SANITIZED ? 12 : 64, all_pairs_rank, &pairs);
    munmap(pairs.sum, sizeof *pairs.sum);
}
