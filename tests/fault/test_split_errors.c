/* SPDX-License-Identifier: BSD-3-Clause */
/* Splits that go wrong: a rank dies, does not come, ends the communicator, or has no memory for a
 * moment, on every rank and at every place in turn. All ranks get an error, soon, nothing is left
 * behind, and the parent is either unharmed or failed, for all of them alike. The program holds the
 * library's stages itself, because libxccl.so does not show core/base/inject.h.
 *
 * Thread: two ranks a process where memory fails, else one. */
#include "../collective/world.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/inject.h"

#define SOON_S  6.0
#define SAMPLES 15

static xcclResult_t use(xcclComm_t comm)
{
    int one = 1;

    return xcclAllReduce(&one, &one, 1, xcclInt32, xcclSum, comm, NULL);
}

/* --- ranks that do not come --- */

static void fails_soon(xcclComm_t comm, const char *part)
{
    xcclComm_t child = NULL;
    double start = world_seconds();
    xcclResult_t rc = xcclCommSplit(comm, 0, 0, &child, NULL);

    XT_CHECK(rc != xcclSuccess);
    XT_CHECK(child == NULL);
    XT_CHECK_HAS(xcclGetLastError(NULL), part);
    XT_CHECK(world_seconds() - start < SOON_S);
    XT_CHECK(use(comm) != xcclSuccess); /* the ranks are no longer of one mind */
    XT_CHECK(xcclCommSplit(comm, 0, 0, &child, NULL) != xcclSuccess);
    XT_OK(xcclCommDestroy(comm));
}

static void one_dies(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm;

    if (world->param)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(world, rank, nranks);
    XT_OK(use(comm));
    world_meet(world, nranks);
    if (rank == 1)
        raise(SIGKILL);
    fails_soon(comm, "rank 1 (host ");
}

static void run_one_dies(int sockets)
{
    struct world *world = world_create();
    struct xt_mp *mp;
    int statuses[3];

    world->param = sockets;
    mp = xt_mp_start(3, one_dies, world);
    xt_mp_wait(mp, statuses);
    XT_CHECK(WIFSIGNALED(statuses[1]));
    XT_CHECK_INT(statuses[0], 0);
    XT_CHECK_INT(statuses[2], 0);
}

XT_TEST(rank_that_dies_in_a_split_is_named)
{
    run_one_dies(0);
}
XT_TEST(rank_that_dies_in_a_split_over_sockets_is_named)
{
    run_one_dies(1);
}

static void one_is_missing(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm;

    xt_setenv("XCCL_TIMEOUT_INIT_S", "1");
    comm = world_join(world, rank, nranks);
    if (rank == 1) {
        xcclResult_t rc = xcclSuccess;

        while (!rc) /* it hears of it; bounded by the test's deadline */
            XT_OK(xcclCommGetAsyncError(comm, &rc));
        XT_OK(xcclCommDestroy(comm));
        return;
    }
    fails_soon(comm, "timed out");
}

XT_TEST(split_without_one_of_the_ranks_ends_at_its_deadline)
{
    xt_mp_run(3, one_is_missing, world_create());
}

/* Both would wait for ever: neither comes to where the other one is. */
static void one_does_something_else(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks), child = NULL;
    double start;

    for (int i = 0; i < 3; i++) { /* splits that all make are none of it */
        XT_OK(xcclCommSplit(comm, 0, rank, &child, NULL));
        XT_OK(use(comm));
        XT_OK(xcclCommDestroy(child));
    }
    start = world_seconds();
    if (rank == 1)
        XT_CHECK(use(comm) != xcclSuccess);
    else
        XT_CHECK(xcclCommSplit(comm, 0, 0, &child, NULL) != xcclSuccess);
    XT_CHECK_HAS(xcclGetLastError(comm), "ranks disagree: rank 1 is in call 4: all-reduce");
    XT_CHECK_HAS(xcclGetLastError(comm), "xcclCommSplit");
    XT_CHECK(world_seconds() - start < SOON_S);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(rank_in_another_call_while_the_others_split_is_an_error_on_all)
{
    xt_mp_run(3, one_does_something_else, world_create());
}

static void one_aborts(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks);

    XT_OK(use(comm));
    if (rank == 2) {
        xt_allow_leaks("the memory of an aborted communicator stays for late calls");
        XT_OK(xcclCommAbort(comm));
        return;
    }
    fails_soon(comm, "rank 2 ");
}

XT_TEST(abort_ends_the_split_of_the_others)
{
    xt_mp_run(3, one_aborts, world_create());
}

/* One thread splits for rank 0; the other one, which has rank 1, does not split but ends rank 0. */
struct pair {
    xcclUniqueId id;
    xcclComm_t comms[2];
    struct world *world;
};

static void abort_the_other(int rank, int nranks, void *arg)
{
    struct pair *pair = arg;
    double start;

    XT_OK(xcclCommInitRank(&pair->comms[rank], nranks, pair->id, rank));
    world_meet(pair->world, nranks);
    start = world_seconds();
    if (rank == 0) {
        xcclComm_t child = NULL;

        XT_CHECK_RC(xcclCommSplit(pair->comms[0], 0, 0, &child, NULL), xcclRemoteError);
        XT_CHECK_HAS(xcclGetLastError(NULL), "aborted the communicator");
    } else {
        XT_OK(xcclCommAbort(pair->comms[0]));
        XT_OK(xcclCommDestroy(pair->comms[1]));
    }
    XT_CHECK(world_seconds() - start < SOON_S);
}

XT_TEST(abort_by_another_thread_ends_a_split)
{
    struct pair pair = {.world = world_create()};

    xt_allow_leaks("the memory of an aborted communicator stays for late calls");
    XT_OK(xcclGetUniqueId(&pair.id));
    xt_threads_run(2, abort_the_other, &pair);
}

/* A rank that is refused its split can still make it, and the others wait for that. */
static void one_corrects_itself(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks), child;

    if (rank == 0) {
        XT_CHECK_RC(xcclCommSplit(comm, -7, 0, &child, NULL), xcclInvalidArgument);
        XT_CHECK_RC(xcclCommSplit(comm, 0, 0, NULL, NULL), xcclInvalidArgument);
    }
    XT_OK(xcclCommSplit(comm, 0, 0, &child, NULL));
    XT_OK(use(child));
    XT_OK(use(comm));
    XT_OK(xcclCommDestroy(child));
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(refused_split_can_be_made_while_the_others_wait)
{
    xt_mp_run(2, one_corrects_itself, world_create());
}

/* --- memory that fails --- */

/* Two threads, a rank each; the k-th chance to fail in the split fails, on whoever has it. */
struct rounds {
    pthread_barrier_t barrier;
    xcclUniqueId id;
    uint64_t k, chances;
    int color[2];
    xcclResult_t split[2], child[2], parent[2];
    double took_s[2];
};

static void one_round(int rank, int nranks, void *arg)
{
    struct rounds *rounds = arg;
    xcclComm_t comm = NULL, child = NULL;
    double start;

    XT_OK(xcclCommInitRank(&comm, nranks, rounds->id, rank));
    XT_OK(use(comm));
    pthread_barrier_wait(&rounds->barrier);
    if (rank == 0)
        xccl_inject_arm(rounds->k);
    pthread_barrier_wait(&rounds->barrier);
    start = world_seconds();
    rounds->split[rank] = xcclCommSplit(comm, rounds->color[rank], -rank, &child, NULL);
    if (rounds->split[rank] && !xcclGetLastError(NULL)[0])
        XT_FAIL("rank %d: chance %llu: an error without a text", rank,
                (unsigned long long)rounds->k);
    pthread_barrier_wait(&rounds->barrier);
    if (rank == 0) {
        rounds->chances = xccl_inject_chances();
        xccl_inject_arm(0);
    }
    pthread_barrier_wait(&rounds->barrier);
    XT_CHECK(!child == (rounds->split[rank] || rounds->color[rank] < 0));
    rounds->child[rank] = child ? use(child) : rounds->split[rank];
    rounds->parent[rank] = use(comm);
    rounds->took_s[rank] = world_seconds() - start;
    XT_OK(xcclCommDestroy(child));
    XT_OK(xcclCommDestroy(comm));
}

/* Waits until no more is held than before the round. */
static void check_given_back(uint64_t k, int fds_before, uint64_t blocks_before)
{
    double until = world_seconds() + SOON_S;

    while (xt_entries("/proc/self/fd") > fds_before || xccl_alloc_live() > blocks_before) {
        if (world_seconds() > until)
            XT_FAIL("chance %llu leaves %d descriptors and %lld blocks behind",
                    (unsigned long long)k, xt_entries("/proc/self/fd") - fds_before,
                    (long long)(xccl_alloc_live() - blocks_before));
        sched_yield();
    }
}

static void check_round(const struct rounds *rounds)
{
    unsigned long long k = rounds->k;
    int child_ok = !rounds->child[0] && !rounds->child[1];

    for (int rank = 0; rank < 2; rank++)
        if (rounds->took_s[rank] > SOON_S)
            XT_FAIL("rank %d: chance %llu took %.1f s", rank, k, rounds->took_s[rank]);
    if (rounds->color[0] == rounds->color[1] && !child_ok &&
        (!rounds->child[0] || !rounds->child[1]))
        XT_FAIL("chance %llu: the child works on one rank only", k);
    if (!rounds->parent[0] != !rounds->parent[1])
        XT_FAIL("chance %llu: the parent works on one rank only", k);
}

/* A sample of the chances; XT_ALL=1: all of them. */
static void each_chance(int color0, int color1)
{
    struct rounds rounds = {.color = {color0, color1}};
    uint64_t random = xt_seed(), blocks, chances, step;
    int fds, tried = 0, failed = 0;

    xt_set_error_source(world_error);
    xt_setenv("XCCL_TIMEOUT_INIT_S", "5");
    xt_setenv("XCCL_TIMEOUT_S", "5");
    XT_CHECK(pthread_barrier_init(&rounds.barrier, NULL, 2) == 0);
    rounds.k = UINT64_MAX; /* nothing fails: what the process does once is done */
    XT_OK(xcclGetUniqueId(&rounds.id));
    xt_threads_run(2, one_round, &rounds);
    check_round(&rounds);
    XT_CHECK_INT(rounds.child[0] | rounds.child[1] | rounds.parent[0] | rounds.parent[1], 0);
    do {
        fds = xt_entries("/proc/self/fd");
        blocks = xccl_alloc_live();
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    } while (fds > xt_entries("/proc/self/fd") || blocks > xccl_alloc_live());
    chances = rounds.chances;
    step = getenv("XT_ALL") ? 1 : 1 + chances / SAMPLES;
    for (rounds.k = 1 + xt_random(&random) % step; rounds.k <= chances; rounds.k += step) {
        XT_OK(xcclGetUniqueId(&rounds.id));
        xt_threads_run(2, one_round, &rounds);
        check_round(&rounds);
        check_given_back(rounds.k, fds, blocks);
        tried++;
        failed += rounds.split[0] || rounds.split[1];
    }
    printf("%d of about %llu chances tried, %d of them an error\n", tried,
           (unsigned long long)chances, failed);
    XT_CHECK(failed > 0);
    pthread_barrier_destroy(&rounds.barrier);
}

XT_TEST_DEADLINE(split_gets_over_missing_memory_or_fails_on_all_ranks, 300)
{
    each_chance(0, 0);
}
XT_TEST_DEADLINE(split_into_single_ranks_gets_over_missing_memory, 300)
{
    each_chance(1, 0);
}
XT_TEST_DEADLINE(split_with_a_rank_left_out_gets_over_missing_memory, 300)
{
    each_chance(0, XCCL_SPLIT_NOCOLOR);
}
