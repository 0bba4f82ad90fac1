/* SPDX-License-Identifier: BSD-3-Clause */
/* Joins in groups: many ranks and communicators of one thread come up side by side, without threads
 * of their own, all of them or none; and several ids for one communicator.
 *
 * Thread: one or two a process, and the library's. */
#include <sys/resource.h>

#include "../collective/world.h"

#define MANY       64
#define FDS_A_RANK 8
#define FDS_COMMON                                                                                 \
    12 /* While they join, ranks of one process have both ends of all connections in it. */
static void raise_fd_limit(void)
{
    struct rlimit limit;

    XT_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    XT_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* --- one thread, many ranks --- */

struct many {
    xcclComm_t comms[MANY];
    int count, threads_before, threads_most;
    _Atomic int joining; /* 1: somebody counts; 2: from here on; 3: over */
};

static void join_many(struct many *many, xcclUniqueId id)
{
    XT_OK(xcclGroupStart());
    for (int i = 0; i < many->count; i++)
        XT_OK(xcclCommInitRank(&many->comms[i], many->count, id, i));
    XT_OK(xcclGroupEnd());
}

static void use_and_leave(struct many *many)
{
    int values[MANY];

    XT_OK(xcclGroupStart());
    for (int i = 0; i < many->count; i++) {
        values[i] = i;
        XT_OK(xcclAllReduce(&values[i], &values[i], 1, xcclInt32, xcclSum, many->comms[i], NULL));
    }
    XT_OK(xcclGroupEnd());
    for (int i = 0; i < many->count; i++)
        XT_CHECK_INT(values[i], many->count * (many->count - 1) / 2);
    XT_OK(xcclGroupStart());
    for (int i = 0; i < many->count; i++)
        XT_OK(xcclCommDestroy(many->comms[i]));
    XT_OK(xcclGroupEnd());
}

/* Until joining is at least state; bounded by the test's deadline. */
static void await_state(struct many *many, int state)
{
    /* Acquire: pairs with the release stores below. */
    while (atomic_load_explicit(&many->joining, memory_order_acquire) < state)
        sched_yield();
}

/* One thread joins, the other one counts threads meanwhile. */
static void join_and_count(int thread, int nthreads, void *arg)
{
    struct many *many = arg;

    (void)nthreads;
    if (thread == 0) {
        xcclUniqueId id;

        await_state(many, 1);
        XT_OK(xcclGetUniqueId(&id)); /* the service thread is there from now on */
        many->threads_before = xt_entries("/proc/self/task");
        atomic_store_explicit(&many->joining, 2, memory_order_release);
        join_many(many, id);
        atomic_store_explicit(&many->joining, 3, memory_order_release);
        return;
    }
    atomic_store_explicit(&many->joining, 1, memory_order_release);
    await_state(many, 2);
    while (atomic_load_explicit(&many->joining, memory_order_acquire) < 3) {
        int threads = xt_entries("/proc/self/task");

        if (threads > many->threads_most)
            many->threads_most = threads;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

XT_TEST_DEADLINE(one_thread_joins_as_64_ranks_and_no_thread_is_made, 60)
{
    struct many many = {.count = MANY};

    xt_set_error_source(world_error);
    raise_fd_limit();
    xt_threads_run(2, join_and_count, &many);
    XT_CHECK_INT(many.threads_most, many.threads_before);
    use_and_leave(&many);
}

/* Connections that are not used for two seconds are closed. */
XT_TEST(rank_at_rest_has_at_most_eight_descriptors)
{
    struct many many = {.count = 32};
    int before = xt_entries("/proc/self/fd"), more;
    double start = world_seconds();
    xcclUniqueId id;

    xt_set_error_source(world_error);
    raise_fd_limit();
    XT_OK(xcclGetUniqueId(&id));
    join_many(&many, id);
    do {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        more = xt_entries("/proc/self/fd") - before;
    } while (more > many.count * FDS_A_RANK && world_seconds() < start + 10);
    printf("%d descriptors for %d ranks after %.1f s\n", more, many.count, world_seconds() - start);
    XT_CHECK(more <= many.count * FDS_A_RANK);
    use_and_leave(&many);
}

/* --- several communicators, several threads --- */

#define COMMS 3
#define OWN   2 /* ranks of each communicator in each thread */

struct crossed {
    xcclUniqueId ids[COMMS];
};

/* Neither the communicators nor their ranks come in the same order in the two threads. */
static void join_crossed(int thread, int nthreads, void *arg)
{
    struct crossed *crossed = arg;
    xcclComm_t comms[COMMS][OWN];
    int values[COMMS][OWN], nranks = nthreads * OWN;

    XT_OK(xcclGroupStart());
    for (int i = 0; i < COMMS * OWN; i++) {
        int c = thread ? COMMS - 1 - i % COMMS : i / OWN, own = thread ? i / COMMS : i % OWN;

        XT_OK(xcclCommInitRank(&comms[c][own], nranks, crossed->ids[c], thread + nthreads * own));
        XT_CHECK(comms[c][own] == NULL);
    }
    XT_OK(xcclGroupEnd());
    XT_OK(xcclGroupStart());
    for (int c = 0; c < COMMS; c++)
        for (int own = 0; own < OWN; own++) {
            values[c][own] = thread + nthreads * own + 10 * c;
            XT_OK(xcclAllReduce(&values[c][own], &values[c][own], 1, xcclInt32, xcclSum,
                                comms[c][own], NULL));
        }
    XT_OK(xcclGroupEnd());
    XT_OK(xcclGroupStart());
    for (int c = 0; c < COMMS; c++)
        for (int own = 0; own < OWN; own++) {
            XT_CHECK_INT(values[c][own], nranks * (nranks - 1) / 2 + nranks * 10 * c);
            XT_OK(xcclCommDestroy(comms[c][own]));
        }
    XT_OK(xcclGroupEnd());
}

static void run_crossed(void)
{
    struct crossed crossed;

    xt_set_error_source(world_error);
    for (int c = 0; c < COMMS; c++)
        XT_OK(xcclGetUniqueId(&crossed.ids[c]));
    xt_threads_run(2, join_crossed, &crossed);
}

XT_TEST(communicators_are_joined_side_by_side_whatever_the_order_in_each_thread)
{
    run_crossed();
}

XT_TEST(communicators_over_sockets_are_joined_side_by_side_whatever_the_order)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    run_crossed();
}

/* --- one of them fails --- */

/* Both ranks of a good communicator, and rank 0 of one whose other rank never comes. */
XT_TEST(group_with_a_rank_that_misses_its_peer_joins_nothing)
{
    xcclComm_t good[2] = {NULL, NULL}, bad = NULL;
    xcclUniqueId ids[2];

    xt_set_error_source(world_error);
    xt_setenv("XCCL_TIMEOUT_INIT_S", "1");
    for (int i = 0; i < 2; i++)
        XT_OK(xcclGetUniqueId(&ids[i]));
    XT_OK(xcclGroupStart());
    XT_OK(xcclCommInitRank(&good[0], 2, ids[0], 0));
    XT_OK(xcclCommInitRank(&bad, 2, ids[1], 0));
    XT_OK(xcclCommInitRank(&good[1], 2, ids[0], 1));
    XT_CHECK(xcclGroupEnd() != xcclSuccess);
    XT_CHECK_HAS(xcclGetLastError(NULL), "missing: ranks 1 of 2");
    XT_CHECK(!good[0] && !good[1] && !bad);
}

XT_TEST(group_whose_ranks_disagree_on_their_number_joins_nothing)
{
    xcclComm_t good = NULL, bad[2] = {NULL, NULL};
    xcclUniqueId ids[2];

    xt_set_error_source(world_error);
    xt_setenv("XCCL_TIMEOUT_INIT_S", "2");
    xt_allow_leaks("the root stays until its deadline to tell late ranks");
    for (int i = 0; i < 2; i++)
        XT_OK(xcclGetUniqueId(&ids[i]));
    XT_OK(xcclGroupStart());
    XT_OK(xcclCommInitRank(&good, 1, ids[0], 0));
    for (int i = 0; i < 2; i++)
        XT_OK(xcclCommInitRank(&bad[i], 2 + i, ids[1], i));
    XT_CHECK(xcclGroupEnd() != xcclSuccess);
    XT_CHECK_HAS(xcclGetLastError(NULL), "ranks");
    XT_CHECK(!good && !bad[0] && !bad[1]);
}

/* Rank 0's group is refused before it begins: rank 1 must not wait for it. */
static void refused_group(int rank, int nranks, void *arg)
{
    xcclUniqueId id = world_id(arg, rank, 0);
    xcclComm_t comm = NULL, wrong = NULL;
    double start = world_seconds();

    if (rank == 1) {
        XT_CHECK(xcclCommInitRank(&comm, nranks, id, rank) != xcclSuccess);
        XT_CHECK_HAS(xcclGetLastError(NULL), "rank is 5, not 0..1");
        XT_CHECK(world_seconds() - start < 8);
        return;
    }
    XT_OK(xcclGroupStart());
    XT_OK(xcclCommInitRank(&comm, nranks, id, rank));
    XT_CHECK_RC(xcclCommInitRank(&wrong, nranks, id, 5), xcclInvalidArgument);
    XT_CHECK_RC(xcclGroupEnd(), xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(NULL), "rank is 5, not 0..1");
    XT_CHECK(!comm && !wrong);
}

XT_TEST(refused_group_tells_the_ranks_that_would_wait_for_it)
{
    xt_setenv("XCCL_TIMEOUT_INIT_S", "20");
    xt_mp_run(2, refused_group, world_create());
}

/* Rank 0 has joined the good communicator when the other one fails, and leaves it again. */
static void half_joined(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = NULL, bad = NULL;
    xcclUniqueId id;
    int value = 1;

    /* Long enough for the good one on a busy machine. */
    xt_setenv("XCCL_TIMEOUT_INIT_S", rank ? "20" : "4");
    id = world_id(world, rank, 0);
    if (rank == 0) {
        XT_OK(xcclGroupStart());
        XT_OK(xcclCommInitRank(&comm, nranks, id, rank));
        XT_OK(xcclCommInitRank(&bad, 2, world_id(world, rank, 1), 0));
        XT_CHECK(xcclGroupEnd() != xcclSuccess);
        XT_CHECK_HAS(xcclGetLastError(NULL), "missing: ranks 1 of 2");
        XT_CHECK(!comm && !bad);
        return;
    }
    XT_OK(xcclCommInitRank(&comm, nranks, id, rank));
    XT_CHECK_RC(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL), xcclRemoteError);
    XT_CHECK_HAS(xcclGetLastError(comm), "rank 0 (host ");
    XT_CHECK_HAS(xcclGetLastError(comm), ") leaves, because its thread could not create");
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(rank_that_leaves_again_because_of_its_group_says_so)
{
    xt_mp_run(2, half_joined, world_create());
}

/* --- several ids --- */

#define IDS 3

/* Id i is made by process i; the others wait for it. */
static void share_ids(struct world *world, int process)
{
    if (process < IDS) {
        XT_OK(xcclGetUniqueId(&world->ids[process]));
        /* Release: the id before the flag. Pairs with the load below. */
        atomic_store_explicit(&world->ready[process], 1, memory_order_release);
    }
    for (int i = 0; i < IDS; i++)
        while (!atomic_load_explicit(&world->ready[i], memory_order_acquire))
            sched_yield(); /* bounded by the test's deadline */
}

static void scalable(int process, int nprocs, void *arg)
{
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    struct world *world = arg;
    struct world_case c = {100, 0, xcclInt32, 0, 1};
    xcclComm_t comm = NULL;

    share_ids(world, process);
    XT_OK(xcclCommInitRankScalable(&comm, nprocs, process, IDS, world->ids,
                                   process % 2 ? &config : NULL));
    world_all_reduce(comm, process, nprocs, &c);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(ranks_of_many_processes_meet_by_several_ids)
{
    xt_mp_run(5, scalable, world_create());
}

/* The ids are the user's again when the call has returned. */
static void scalable_group(int process, int nprocs, void *arg)
{
    struct world *world = arg;
    struct many many = {.count = 2};
    int nranks = nprocs * 2, values[2];

    share_ids(world, process);
    XT_OK(xcclGroupStart());
    for (int i = 0; i < 2; i++) {
        xcclUniqueId ids[IDS];

        memcpy(ids, world->ids, sizeof ids);
        XT_OK(
            xcclCommInitRankScalable(&many.comms[i], nranks, process + nprocs * i, IDS, ids, NULL));
        memset(ids, 0, sizeof ids);
    }
    XT_OK(xcclGroupEnd());
    XT_OK(xcclGroupStart());
    for (int i = 0; i < 2; i++) {
        values[i] = 1;
        XT_OK(xcclAllReduce(&values[i], &values[i], 1, xcclInt32, xcclSum, many.comms[i], NULL));
    }
    XT_OK(xcclGroupEnd());
    XT_CHECK_INT(values[0], nranks);
    XT_CHECK_INT(values[1], nranks);
    XT_OK(xcclGroupStart());
    for (int i = 0; i < 2; i++)
        XT_OK(xcclCommDestroy(many.comms[i]));
    XT_OK(xcclGroupEnd());
}

XT_TEST(group_keeps_a_copy_of_several_ids)
{
    xt_mp_run(3, scalable_group, world_create());
}

/* Rank 1 has the ids in another order, which is another job. */
static void swapped_ids(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = NULL;
    xcclUniqueId ids[IDS];
    double start;

    xt_setenv("XCCL_TIMEOUT_INIT_S", "20");
    xt_allow_leaks("the roots stay until their deadline to tell late ranks");
    share_ids(world, rank);
    memcpy(ids, world->ids, sizeof ids);
    if (rank == 1) {
        ids[0] = world->ids[1];
        ids[1] = world->ids[0];
    }
    start = world_seconds();
    XT_CHECK(xcclCommInitRankScalable(&comm, nranks, rank, IDS, ids, NULL) != xcclSuccess);
    XT_CHECK_HAS(xcclGetLastError(NULL), "ids");
    XT_CHECK(world_seconds() - start < 8);
}

XT_TEST(ranks_that_give_the_ids_in_another_order_are_told)
{
    xt_mp_run(IDS, swapped_ids, world_create());
}

/* A config of another header, and every other argument that cannot be. */
static void wrong_arguments(int rank, int nranks, void *arg)
{
    struct {
        xcclConfig_t config;
        char newer[16];
    } config = {.config = XCCL_CONFIG_INITIALIZER};
    xcclUniqueId id = world_id(arg, rank, 0);
    xcclComm_t comm = NULL;
    char known[64];

    XT_CHECK_RC(xcclCommInitRankScalable(NULL, nranks, rank, 1, &id, NULL), xcclInvalidArgument);
    XT_CHECK_RC(xcclCommInitRankScalable(&comm, nranks, rank, 0, &id, NULL), xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(NULL), "nId is 0, not 1..1");
    XT_CHECK_RC(xcclCommInitRankScalable(&comm, nranks, rank, 2, &id, NULL), xcclInvalidArgument);
    XT_CHECK_RC(xcclCommInitRankScalable(&comm, nranks, rank, 1, NULL, NULL), xcclInvalidArgument);
    config.config.magic++;
    XT_CHECK_RC(xcclCommInitRankScalable(&comm, nranks, rank, 1, &id, &config.config),
                xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(NULL), "XCCL_CONFIG_INITIALIZER");
    config.config.magic--;
    config.config.size = sizeof config;
    config.config.version += 100;
    XT_CHECK_RC(xcclCommInitRankScalable(&comm, nranks, rank, 1, &id, &config.config),
                xcclInvalidArgument);
    snprintf(known, sizeof known, "knows only the first %zu", sizeof(xcclConfig_t));
    XT_CHECK_HAS(xcclGetLastError(NULL), known);
    XT_CHECK(comm == NULL);
}

XT_TEST(config_of_a_newer_header_and_wrong_counts_of_ids_are_refused)
{
    xt_mp_run(1, wrong_arguments, world_create());
}
