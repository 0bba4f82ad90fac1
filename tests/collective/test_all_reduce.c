/* SPDX-License-Identifier: BSD-3-Clause */
/* All-reduce through the public calls: transports, algorithms, numbers of ranks, sizes around every
 * protocol's edge, types, in place, unaligned. */
#include "world.h"

#include <dlfcn.h>

enum transport { SHM, UNIX, TCP, MIXED };

static const size_t counts[] = {0,    1,    2,     13,    14,    15,    28,   55,
                                56,   57,   64,    511,   2047,  2048,  2049, 5000,
                                8191, 8193, 16384, 16385, 70000, 300001};
#define COUNTS (sizeof counts / sizeof counts[0])

/* Ranks of one host without shared memory stand for hosts of their own. */
static void choose(enum transport transport, int rank)
{
    if (transport == UNIX || transport == TCP || (transport == MIXED && rank % 3 == 2))
        xt_setenv("XCCL_SHM_DISABLE", "1");
    if (transport == TCP)
        xt_setenv("XCCL_SOCKET_UNIX", "0");
}

static void all_sizes(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    uint64_t seed = xt_seed();
    xcclComm_t comm;

    choose((enum transport)world->param, rank);
    if (world->text)
        xt_setenv("XCCL_ALGO", world->text);
    comm = world_join(world, rank, nranks);
    for (int round = 0; round < 60; round++) {
        struct world_case c = {
            .count = counts[round < (int)COUNTS ? (size_t)round : xt_random(&seed) % COUNTS],
            .round = round};

        c.type = xt_random(&seed) & 1 ? xcclFloat32 : xcclInt32;
        c.in_place = (int)(xt_random(&seed) & 1);
        c.offset = xt_random(&seed) % 3 ? 0 : xt_random(&seed) % 16;
        world_all_reduce(comm, rank, nranks, &c);
    }
    XT_OK(xcclCommDestroy(comm));
}

static void run(int nranks, enum transport transport, const char *algo)
{
    struct world *world = world_create();

    world->param = transport;
    world->text = algo;
    (void)xt_seed(); /* drawn before the ranks start, so that all have the same */
    xt_mp_run(nranks, all_sizes, world);
}

XT_TEST_DEADLINE(one_rank_copies, 60)
{
    run(1, SHM, NULL);
}
XT_TEST_DEADLINE(two_ranks_over_shared_memory, 60)
{
    run(2, SHM, NULL);
}
XT_TEST_DEADLINE(three_ranks_over_shared_memory, 60)
{
    run(3, SHM, NULL);
}
XT_TEST_DEADLINE(four_ranks_over_shared_memory, 60)
{
    run(4, SHM, NULL);
}
XT_TEST_DEADLINE(eight_ranks_over_shared_memory, 120)
{
    run(8, SHM, NULL);
}
XT_TEST_DEADLINE(sixteen_ranks_over_shared_memory, 120)
{
    run(16, SHM, NULL);
}
XT_TEST_DEADLINE(two_ranks_over_tcp, 60)
{
    run(2, TCP, NULL);
}
XT_TEST_DEADLINE(two_ranks_over_unix_sockets, 60)
{
    run(2, UNIX, NULL);
}
XT_TEST_DEADLINE(three_ranks_over_tcp, 60)
{
    run(3, TCP, NULL);
}
XT_TEST_DEADLINE(four_ranks_over_tcp, 60)
{
    run(4, TCP, NULL);
}
XT_TEST_DEADLINE(four_ranks_over_unix_sockets, 60)
{
    run(4, UNIX, NULL);
}
XT_TEST_DEADLINE(eight_ranks_over_tcp, 120)
{
    run(8, TCP, NULL);
}
XT_TEST_DEADLINE(nine_ranks_over_tcp_beyond_the_mesh, 120)
{
    run(9, TCP, NULL);
}
XT_TEST_DEADLINE(nine_ranks_over_unix_sockets_beyond_the_mesh, 120)
{
    run(9, UNIX, NULL);
}
XT_TEST_DEADLINE(three_ranks_over_both, 60)
{
    run(3, MIXED, NULL);
}
XT_TEST_DEADLINE(five_ranks_over_both, 60)
{
    run(5, MIXED, NULL);
}
XT_TEST_DEADLINE(eight_ranks_over_both, 120)
{
    run(8, MIXED, NULL);
}
XT_TEST_DEADLINE(ring_alone_serves_every_size, 120)
{
    run(4, SHM, "ring");
}
XT_TEST_DEADLINE(ring_alone_serves_every_size_over_both, 120)
{
    run(4, MIXED, "ring");
}
XT_TEST_DEADLINE(oneshot_alone_serves_every_size, 120)
{
    run(4, SHM, "oneshot");
}
XT_TEST_DEADLINE(oneshot_alone_serves_every_size_over_both, 120)
{
    run(4, MIXED, "oneshot");
}
XT_TEST_DEADLINE(oneshot_alone_serves_every_size_over_tcp, 120)
{
    run(4, TCP, "oneshot");
}

/* Slots shrink to fit the budget, on one rank more than on others; all agree on slices that fit. */
static void small_buffers(int rank, int nranks, void *arg)
{
    xt_setenv("XCCL_BUFFER_BYTES", rank == 1 ? "1M" : "3M");
    all_sizes(rank, nranks, arg);
}

static void run_small_buffers(enum transport transport)
{
    struct world *world = world_create();

    world->param = transport;
    (void)xt_seed();
    xt_mp_run(4, small_buffers, world);
}

XT_TEST_DEADLINE(small_and_unequal_budgets_over_shared_memory, 60)
{
    run_small_buffers(SHM);
}

XT_TEST_DEADLINE(small_and_unequal_budgets_over_sockets, 60)
{
    run_small_buffers(TCP);
}

XT_TEST_DEADLINE(small_and_unequal_budgets_over_both, 60)
{
    run_small_buffers(MIXED);
}

/* All ranks of a process: threads. */
static void one_thread(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks);

    for (int round = 0; round < 30; round++) {
        struct world_case c = {counts[(size_t)round % COUNTS], 0, xcclFloat32, round & 1, round};

        world_all_reduce(comm, rank, nranks, &c);
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST_DEADLINE(four_threads_of_one_process, 60)
{
    xt_threads_run(4, one_thread, world_create());
}

/* Every rank computes the same bits, also where rounding depends on the order. */
static void same_bits(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm;
    enum { COUNT = 40000 };
    float *data = malloc(COUNT * 4);
    float *hashes = calloc((size_t)nranks, 4);
    uint64_t state = 77 + (uint64_t)rank;
    uint32_t hash = 0;

    XT_CHECK(data && hashes);
    choose((enum transport)world->param, rank);
    comm = world_join(world, rank, nranks);
    for (int round = 0; round < 4; round++) {
        int count = round & 1 ? COUNT : 50;

        for (int i = 0; i < count; i++)
            data[i] = (float)(int32_t)xt_random(&state) * 1e-5f;
        XT_OK(xcclAllReduce(data, data, (size_t)count, xcclFloat32, xcclSum, comm, NULL));
        for (int i = 0; i < count * 4; i++)
            hash = hash * 31 + ((unsigned char *)data)[i];
    }
    hashes[rank] = (float)(hash & 0xffffff); /* exact as a float */
    XT_OK(xcclAllReduce(hashes, hashes, (size_t)nranks, xcclFloat32, xcclSum, comm, NULL));
    for (int r = 0; r < nranks; r++)
        XT_CHECK(hashes[r] == hashes[0]);
    XT_OK(xcclCommDestroy(comm));
    free(hashes);
    free(data);
}

static void run_same_bits(int transport)
{
    struct world *world = world_create();

    world->param = transport;
    xt_mp_run(5, same_bits, world);
}

XT_TEST_DEADLINE(all_ranks_get_the_same_bits_over_shared_memory, 60)
{
    run_same_bits(SHM);
}
XT_TEST_DEADLINE(all_ranks_get_the_same_bits_over_both, 60)
{
    run_same_bits(MIXED);
}

static long resident_pages(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    long size, resident = 0;

    XT_CHECK(file && fscanf(file, "%ld %ld", &size, &resident) == 2);
    fclose(file);
    return resident;
}

/* What a process has when nothing of the last cycle is under way any more. */
struct residue {
    long kib;
    int fds, threads;
};

static struct residue residue_now(void)
{
    struct residue now;

    /* The service thread says goodbye for a while. */
    for (int tries = 0; tries < 3000 && xt_entries("/proc/self/task") > 1; tries++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    now.kib = resident_pages() * 4;
    now.fds = xt_entries("/proc/self/fd");
    now.threads = xt_entries("/proc/self/task");
    return now;
}

/* The file XT_FIGURES gets the figures, if there is that variable. */
static void check_residue(int rank, int cycles, const struct residue *before)
{
    struct residue after = residue_now(); /* before a file is open */
    const char *path = getenv("XT_FIGURES");
    FILE *file = path ? fopen(path, "ae") : NULL;

    if (file) {
        fprintf(file,
                "rank %d: %ld KiB, %d descriptors, %d threads after %d cycles; %ld, %d, %d after "
                "%d\n",
                rank, before->kib, before->fds, before->threads, cycles / 10, after.kib, after.fds,
                after.threads, cycles);
        fclose(file);
    }
    XT_CHECK_INT(after.fds, before->fds);
    XT_CHECK_INT(after.threads, before->threads);
    if (cycles >= 1000) /* the first tenth warms up */
        XT_CHECK(after.kib <= before->kib + 1024);
}

static void join_and_leave(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    struct residue before = {0};

    for (int i = 0; i < world->param; i++) {
        struct world_case c = {10, 0, xcclInt32, 0, i};
        xcclComm_t comm = NULL;

        if (i == world->param / 10)
            before = residue_now();
        if (rank == 0) {
            XT_OK(xcclGetUniqueId(&world->ids[0]));
            /* Release: the id before the number. Pairs with the load below. */
            atomic_store_explicit(&world->ready[0], i + 1, memory_order_release);
        }
        while (atomic_load_explicit(&world->ready[0], memory_order_acquire) != i + 1)
            sched_yield();
        XT_OK(xcclCommInitRank(&comm, nranks, world->ids[0], rank));
        world_all_reduce(comm, rank, nranks, &c);
        XT_OK(xcclCommDestroy(comm));
    }
    check_residue(rank, world->param, &before);
}

/* XT_CYCLES in the environment makes it longer. Descriptors, threads and files: the harness. */
XT_TEST_DEADLINE(cycles_of_joining_and_leaving_leak_nothing, 4000)
{
    const char *cycles = getenv("XT_CYCLES");
    struct world *world = world_create();

    world->param = cycles ? atoi(cycles) : 30;
    xt_mp_run(2, join_and_leave, world);
}

static void wrong_arguments(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks), none = NULL;
    xcclUniqueId id = {{0}};
    float a[8] = {0};
    int value;

#define REFUSED(call, part)                                                                        \
    do {                                                                                           \
        XT_CHECK_RC(call, xcclInvalidArgument);                                                    \
        XT_CHECK_HAS(xcclGetLastError(NULL), part);                                                \
    } while (0)
    REFUSED(xcclAllReduce(NULL, a, 4, xcclFloat32, xcclSum, comm, NULL), "sendbuff is NULL");
    REFUSED(xcclAllReduce(a, NULL, 4, xcclFloat32, xcclSum, comm, NULL), "recvbuff is NULL");
    REFUSED(xcclAllReduce(a, a + 1, 4, xcclFloat32, xcclSum, comm, NULL), "overlap");
    REFUSED(xcclAllReduce(a, a, 4, (xcclDataType_t)77, xcclSum, comm, NULL), "datatype is 77");
    REFUSED(xcclAllReduce(a, a, 4, xcclFloat32, (xcclRedOp_t)9, comm, NULL), "op is 9");
    REFUSED(xcclAllReduce(a, a, SIZE_MAX / 2, xcclFloat32, xcclSum, comm, NULL), "count is");
    REFUSED(xcclAllReduce(a, a, 4, xcclFloat32, xcclSum, NULL, NULL), "comm is NULL");
    REFUSED(xcclAllReduce(a, a, 4, xcclFloat32, xcclSum, comm, a), "stream is not a stream");
    REFUSED(xcclCommCount(comm, NULL), "count is NULL");
    REFUSED(xcclCommUserRank(comm, NULL), "rank is NULL");
    REFUSED(xcclCommCount(NULL, &value), "comm is NULL");
    REFUSED(xcclGetUniqueId(NULL), "id is NULL");
    REFUSED(xcclGetVersion(NULL), "version is NULL");
    REFUSED(xcclCommInitRank(NULL, 1, id, 0), "comm is NULL");
    REFUSED(xcclCommInitRank(&none, 0, id, 0), "nranks is 0");
    REFUSED(xcclCommInitRank(&none, 2, id, 2), "rank is 2");
    REFUSED(xcclCommInitRank(&none, 2, id, -1), "rank is -1");
    XT_CHECK(xcclCommInitRank(&none, 2, id, 0) != xcclSuccess); /* no id at all */
    XT_CHECK(none == NULL);
#undef REFUSED
    XT_OK(xcclCommCount(comm, &value));
    XT_CHECK_INT(value, nranks);
    XT_OK(xcclCommUserRank(comm, &value));
    XT_CHECK_INT(value, rank);
    XT_OK(xcclGetVersion(&value));
    XT_CHECK_INT(value, XCCL_VERSION_CODE);
    XT_OK(xcclAllReduce(NULL, NULL, 0, xcclFloat32, xcclSum, comm, NULL)); /* nothing to do */
    XT_OK(xcclAllReduce(a, a, 4, xcclFloat32, xcclSum, comm, NULL)); /* still good */
    XT_OK(xcclCommDestroy(comm));
    XT_OK(xcclCommDestroy(NULL));
}

XT_TEST(every_wrong_argument_is_named_and_harmless)
{
    xt_mp_run(2, wrong_arguments, world_create());
}

XT_TEST(every_result_has_a_text)
{
    for (int rc = -1; rc <= xcclNumResults; rc++)
        XT_CHECK(xcclGetErrorString((xcclResult_t)rc)[0]);
}

XT_TEST(twins_are_the_same_functions)
{
    /* By the loader: a compiler may take it for granted that two names are two functions. */
    XT_CHECK(dlsym(RTLD_DEFAULT, "xcclAllReduce") == dlsym(RTLD_DEFAULT, "pxcclAllReduce"));
    XT_CHECK(dlsym(RTLD_DEFAULT, "xcclGroupEnd") == dlsym(RTLD_DEFAULT, "pxcclGroupEnd"));
    XT_CHECK(dlsym(RTLD_DEFAULT, "pxcclGroupEnd") != NULL);
}
