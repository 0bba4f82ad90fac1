/* SPDX-License-Identifier: BSD-3-Clause */
/* Non-blocking communicators: joining, splitting, calls and leaving go on in the background; what
 * is refused meanwhile; failures and aborts on the way. */
#include "stream_world.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define COUNT 300000 /* floats */
#define RANKS 4

static xcclConfig_t background(void)
{
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;

    config.blocking = 0;
    return config;
}

/* What the communicator says when nothing is in progress any more. */
static xcclResult_t settle(xcclComm_t comm)
{
    xcclResult_t state = xcclInProgress;

    while (state == xcclInProgress) { /* bounded by the test's deadline */
        XT_OK(xcclCommGetAsyncError(comm, &state));
        if (state == xcclInProgress)
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return state;
}

static xcclComm_t begin_join(struct world *world, int rank, int nranks, int which)
{
    xcclConfig_t config = background();
    xcclComm_t comm = NULL;

    XT_CHECK_RC(xcclCommInitRankConfig(&comm, nranks, world_id(world, rank, which), rank, &config),
                xcclInProgress);
    XT_CHECK(comm != NULL);
    return comm;
}

/* A root stays until its deadline, to tell late ranks. */
static void await_roots(void)
{
    while (xt_threads_named("xccl-service")) /* bounded by the test's deadline */
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static void run(int nranks, xt_rank_fn *fn, const char *transport)
{
    struct world *world = world_create();

    world->text = transport;
    xt_mp_run(nranks, fn, world);
}

static void choose(const struct world *world)
{
    if (world->text && !strcmp(world->text, "net"))
        xt_setenv("XCCL_SHM_DISABLE", "1");
}

/* --- joining and calls --- */

/* Calls return at once, take place in their order, and the communicator tells when. */
static void work(int rank, int nranks, void *arg)
{
    xcclComm_t comm;
    xcclStream_t stream = streams_create();
    float *data = calloc(COUNT, sizeof *data);

    choose(arg);
    XT_CHECK(data);
    comm = begin_join(arg, rank, nranks, 0);
    XT_CHECK_RC(settle(comm), xcclSuccess);
    streams_fill(data, COUNT, rank);
    XT_CHECK_RC(xcclAllReduce(data, data, COUNT, xcclFloat32, xcclSum, comm, NULL), xcclInProgress);
    for (int i = 0; i < 5; i++)
        XT_CHECK_RC(xcclAllReduce(data, data, COUNT, xcclFloat32, xcclMax, comm, NULL),
                    xcclInProgress);
    XT_OK(xcclAllReduce(data, data, COUNT, xcclFloat32, xcclMin, comm, stream));
    XT_OK(xcclStreamSynchronize(stream));
    XT_CHECK_RC(settle(comm), xcclSuccess);
    streams_check(data, COUNT, nranks, 1);
    XT_OK(xcclGroupStart());
    XT_OK(xcclSend(data, COUNT / 2, xcclFloat32, (rank + 1) % nranks, comm, NULL));
    XT_OK(xcclRecv(data + COUNT / 2, COUNT / 2, xcclFloat32, (rank + nranks - 1) % nranks, comm,
                   NULL));
    XT_CHECK_RC(xcclGroupEnd(), xcclInProgress);
    XT_CHECK_RC(settle(comm), xcclSuccess);
    streams_check(data, COUNT / 2, nranks, 1);
    XT_CHECK_RC(xcclBarrier(comm, NULL), xcclInProgress);
    (void)xcclCommFinalize(comm);
    XT_CHECK_RC(settle(comm), xcclSuccess);
    XT_CHECK_RC(xcclBarrier(comm, NULL), xcclInvalidUsage);
    XT_OK(xcclCommDestroy(comm));
    XT_OK(xcclStreamDestroy(stream));
    free(data);
}

XT_TEST(communicator_joins_and_works_in_the_background)
{
    run(3, work, "shm");
}

XT_TEST(communicator_joins_and_works_in_the_background_over_sockets)
{
    run(3, work, "net");
}

/* Rank 1 comes when rank 0 says so: until then rank 0 can do nothing with its communicator. */
static void wait_for_it(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = NULL, child = NULL;
    xcclResult_t state = xcclSuccess;
    int32_t value = 1;
    int count;

    if (rank) {
        XT_CHECK(streams_await(&world->ready[7], 20));
        comm = world_join(world, rank, nranks); /* each rank as it likes */
        XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    } else {
        comm = begin_join(world, rank, nranks, 0);
        XT_OK(xcclCommGetAsyncError(comm, &state));
        XT_CHECK_INT(state, xcclInProgress);
        XT_CHECK_RC(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL),
                    xcclInvalidUsage);
        XT_CHECK_HAS(xcclGetLastError(NULL), "has not joined yet; call xcclCommGetAsyncError");
        XT_CHECK_RC(xcclCommCount(comm, &count), xcclInvalidUsage);
        XT_CHECK_RC(xcclCommSplit(comm, 0, 0, &child, NULL), xcclInvalidUsage);
        XT_CHECK_RC(xcclCommFinalize(comm), xcclInvalidUsage);
        XT_CHECK_RC(xcclCommDestroy(comm), xcclInvalidUsage);
        XT_CHECK_RC(xcclSend(&value, 1, xcclInt32, 1, comm, NULL), xcclInvalidUsage);
        streams_set(&world->ready[7]);
        XT_CHECK_RC(settle(comm), xcclSuccess);
        XT_OK(xcclCommCount(comm, &count));
        XT_CHECK_INT(count, nranks);
        XT_CHECK_RC(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL),
                    xcclInProgress);
        XT_CHECK_RC(settle(comm), xcclSuccess);
    }
    XT_CHECK_INT(value, nranks);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(nothing_but_questions_and_abort_is_allowed_before_it_has_joined)
{
    run(2, wait_for_it, "shm");
}

/* One thread joins as all ranks, without a group; then several communicators in one. */
XT_TEST(one_thread_joins_as_all_ranks_without_a_group)
{
    xcclConfig_t config = background();
    xcclComm_t comms[2][RANKS] = {{NULL}};
    xcclUniqueId ids[2];
    int32_t values[RANKS];

    xt_set_error_source(world_error);
    for (int i = 0; i < 2; i++) {
        XT_OK(xcclGetUniqueId(&ids[i]));
        XT_OK(i ? xcclGroupStart() : xcclSuccess);
        for (int r = 0; r < RANKS; r++)
            XT_CHECK_RC(xcclCommInitRankScalable(&comms[i][r], RANKS, r, 1, &ids[i], &config),
                        i ? xcclSuccess : xcclInProgress);
        XT_CHECK_RC(i ? xcclGroupEnd() : xcclInProgress, xcclInProgress);
    }
    memset(ids, 0, sizeof ids); /* they were copied */
    for (int i = 0; i < 2 * RANKS; i++)
        XT_CHECK_RC(settle(comms[i / RANKS][i % RANKS]), xcclSuccess);
    for (int i = 0; i < 2; i++) {
        for (int r = 0; r < RANKS; r++) {
            values[r] = r;
            XT_CHECK_RC(
                xcclAllReduce(&values[r], &values[r], 1, xcclInt32, xcclSum, comms[i][r], NULL),
                xcclInProgress);
        }
        for (int r = 0; r < RANKS; r++)
            XT_CHECK_RC(settle(comms[i][r]), xcclSuccess);
        for (int r = 0; r < RANKS; r++)
            XT_CHECK_INT(values[r], RANKS * (RANKS - 1) / 2);
    }
    for (int i = 0; i < 2 * RANKS; i++)
        XT_OK(xcclCommDestroy(comms[i / RANKS][i % RANKS]));
}

XT_TEST(groups_do_not_mix_kinds)
{
    xcclConfig_t config = background();
    xcclComm_t comms[2] = {NULL, NULL};
    xcclUniqueId ids[2];

    xt_set_error_source(world_error);
    for (int i = 0; i < 2; i++)
        XT_OK(xcclGetUniqueId(&ids[i]));
    XT_OK(xcclGroupStart());
    XT_OK(xcclCommInitRank(&comms[0], 1, ids[0], 0));
    XT_OK(xcclCommInitRankConfig(&comms[1], 1, ids[1], 0, &config));
    XT_CHECK_RC(xcclGroupEnd(), xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL),
                 "a group creates both blocking and non-blocking communicators");
    XT_CHECK(!comms[0] && !comms[1]);
}

/* --- splits --- */

/* The parent's calls before and after a split keep their places; children inherit the kind. */
static void split(int rank, int nranks, void *arg)
{
    xcclComm_t comm, child = NULL, none = NULL;
    int32_t values[4] = {1, 1, 1, 1};

    choose(arg);
    comm = begin_join(arg, rank, nranks, 0);
    XT_CHECK_RC(settle(comm), xcclSuccess);
    for (int round = 0; round < 3; round++) {
        values[0] = values[1] = values[2] = 1;
        XT_CHECK_RC(xcclAllReduce(values, values, 1, xcclInt32, xcclSum, comm, NULL),
                    xcclInProgress);
        XT_CHECK_RC(xcclCommSplit(comm, rank % 2, -rank, &child, NULL), xcclInProgress);
        XT_CHECK_RC(xcclAllReduce(values + 1, values + 1, 1, xcclInt32, xcclSum, comm, NULL),
                    xcclInProgress);
        XT_CHECK_RC(xcclCommSplit(comm, rank ? 0 : XCCL_SPLIT_NOCOLOR, 0, &none, NULL),
                    xcclInProgress);
        XT_CHECK_RC(settle(child), xcclSuccess);
        XT_CHECK_RC(xcclAllReduce(values + 2, values + 2, 1, xcclInt32, xcclSum, child, NULL),
                    xcclInProgress);
        XT_CHECK(!none == !rank);
        if (none)
            XT_CHECK_RC(settle(none), xcclSuccess);
        XT_CHECK_RC(settle(comm), xcclSuccess);
        XT_CHECK_RC(settle(child), xcclSuccess);
        XT_CHECK_INT(values[0], nranks);
        XT_CHECK_INT(values[1], nranks);
        XT_CHECK_INT(values[2], nranks / 2);
        XT_OK(xcclCommDestroy(child));
        XT_OK(xcclCommDestroy(none));
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(splits_keep_their_place_among_the_calls_of_the_parent)
{
    run(4, split, "shm");
}

XT_TEST(splits_keep_their_place_among_the_calls_of_the_parent_over_sockets)
{
    run(4, split, "net");
}

/* A blocking parent with a child that is not: the parent's next call comes after the split; and the
 * parent may go as soon as it likes. */
static void split_blocking(int rank, int nranks, void *arg)
{
    xcclComm_t comm = streams_join(arg, rank, nranks), child = NULL;
    xcclConfig_t config = background();
    int32_t value = 1;

    XT_CHECK_RC(xcclCommSplit(comm, 0, 0, &child, &config), xcclInProgress);
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    XT_CHECK_INT(value, nranks);
    XT_OK(xcclCommDestroy(comm));
    XT_CHECK_RC(settle(child), xcclSuccess);
    XT_CHECK_RC(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, child, NULL), xcclInProgress);
    XT_CHECK_RC(settle(child), xcclSuccess);
    XT_CHECK_INT(value, nranks * nranks);
    XT_OK(xcclCommDestroy(child));
}

XT_TEST(blocking_communicator_has_a_child_that_is_not)
{
    run(3, split_blocking, "shm");
}

/* --- failures and aborts --- */

/* Nobody else comes. */
XT_TEST(join_that_fails_is_told_and_can_be_destroyed_or_aborted)
{
    xcclConfig_t config = background();
    xcclUniqueId id;
    xcclComm_t comm = NULL;

    xt_set_error_source(world_error);
    xt_setenv("XCCL_TIMEOUT_INIT_S", "1");
    for (int aborts = 0; aborts < 2; aborts++) {
        XT_OK(xcclGetUniqueId(&id));
        XT_CHECK_RC(xcclCommInitRankConfig(&comm, 2, id, 0, &config), xcclInProgress);
        XT_CHECK_RC(settle(comm), xcclTimeout);
        XT_CHECK_HAS(xcclGetLastError(comm), "rank");
        XT_CHECK_RC(xcclBarrier(comm, NULL), xcclTimeout);
        XT_OK(aborts ? xcclCommAbort(comm) : xcclCommDestroy(comm));
    }
}

XT_TEST(join_is_aborted_on_its_way)
{
    xcclConfig_t config = background();
    xcclUniqueId id;
    xcclComm_t comm = NULL;
    double begin;

    xt_set_error_source(world_error);
    xt_setenv("XCCL_TIMEOUT_INIT_S", "3");
    for (int round = 0; round < 4; round++) {
        XT_OK(xcclGetUniqueId(&id));
        XT_CHECK_RC(xcclCommInitRankConfig(&comm, 2, id, 0, &config), xcclInProgress);
        if (round % 2)
            nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
        begin = xt_seconds();
        XT_OK(xcclCommAbort(comm));
        XT_CHECK(xt_seconds() - begin < 4);
        XT_CHECK_RC(xcclBarrier(comm, NULL), xcclInvalidUsage); /* too late, but harmless */
        XT_CHECK_HAS(xcclGetLastError(NULL), "aborted while it was joining");
    }
    await_roots();
}

/* Rank 0 gives up while the others join: they hear of it, well before their deadline. */
static void give_up(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclUniqueId id;
    xcclConfig_t config = background();
    xcclComm_t comm = NULL;
    xcclResult_t rc = xcclSuccess;

    choose(world);
    /* Before the id: where rank 0 leaves before anybody has reported, only its root's own deadline
     * ends the waiting for the last one. */
    xt_setenv("XCCL_TIMEOUT_INIT_S", "5");
    id = world_id(world, rank, 0);
    if (rank == nranks - 1)
        return; /* never comes */
    XT_CHECK_RC(xcclCommInitRankConfig(&comm, nranks, id, rank, &config), xcclInProgress);
    if (rank) {
        rc = settle(comm);
        XT_CHECK(rc == xcclRemoteError || rc == xcclInvalidUsage);
        XT_OK(xcclCommDestroy(comm));
    } else {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        XT_OK(xcclCommAbort(comm));
        await_roots(); /* its root serves the others */
    }
}

XT_TEST(other_ranks_hear_of_a_join_that_was_aborted)
{
    run(4, give_up, "shm");
}

/* A rank dies while the others have calls at work. */
static void lose(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm;
    float *data = calloc(COUNT, sizeof *data);

    choose(world);
    XT_CHECK(data);
    comm = begin_join(world, rank, nranks, 0);
    XT_CHECK_RC(settle(comm), xcclSuccess);
    XT_CHECK_RC(xcclAllReduce(data, data, COUNT, xcclFloat32, xcclSum, comm, NULL), xcclInProgress);
    XT_CHECK_RC(settle(comm), xcclSuccess);
    world_meet(world, nranks);
    if (rank == 1)
        (void)raise(SIGKILL);
    (void)xcclAllReduce(data, data, COUNT, xcclFloat32, xcclSum, comm, NULL);
    XT_CHECK_RC(settle(comm), xcclRemoteError);
    XT_CHECK_HAS(xcclGetLastError(comm), "rank 1 (host ");
    XT_CHECK_RC(xcclAllReduce(data, data, COUNT, xcclFloat32, xcclSum, comm, NULL),
                xcclRemoteError);
    XT_OK(rank ? xcclCommAbort(comm) : xcclCommDestroy(comm));
    free(data);
}

XT_TEST(communicator_tells_that_a_rank_was_killed)
{
    struct world *world = world_create();
    int statuses[3];

    world->text = "net";
    xt_mp_wait(xt_mp_start(3, lose, world), statuses);
    for (int r = 0; r < 3; r++)
        if (r != 1 && (!WIFEXITED(statuses[r]) || WEXITSTATUS(statuses[r])))
            XT_FAIL("rank %d ended with status %d", r, statuses[r]);
}

/* --- several threads --- */

static void *watch(void *arg)
{
    XT_CHECK_RC(settle(arg), xcclSuccess);
    return NULL;
}

static void as_thread(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclConfig_t config = background();
    xcclUniqueId id = world_id(world, rank, 0);
    int32_t value = 1;

    for (int i = 0; i < 5; i++) {
        xcclComm_t comm = NULL;
        pthread_t thread;

        if (i)
            id = world_id(world, rank, i);
        XT_CHECK_RC(xcclCommInitRankConfig(&comm, nranks, id, rank, &config), xcclInProgress);
        XT_CHECK_INT(pthread_create(&thread, NULL, watch, comm), 0);
        XT_CHECK_RC(settle(comm), xcclSuccess);
        XT_CHECK_INT(pthread_join(thread, NULL), 0);
        value = 1;
        XT_CHECK_RC(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL),
                    xcclInProgress);
        XT_CHECK_RC(settle(comm), xcclSuccess);
        XT_CHECK_INT(value, nranks);
        XT_OK(xcclCommDestroy(comm));
    }
}

XT_TEST(ranks_that_are_threads_join_in_the_background)
{
    xt_threads_run(RANKS, as_thread, world_create());
}
