/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that fork: after making ids, whose roots live in the parent's service thread, and with
 * a communicator, which stays the parent's. The harness' rank processes are children of such a
 * parent. */
#include "../collective/world.h"

#include <sys/wait.h>
#include <unistd.h>

/* Whether this program was built with a sanitizer of threads, or of addresses. */
#if defined(__has_feature)
#define SANITIZES(what) (__has_feature(what##_sanitizer))
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZES(what) (sizeof #what == sizeof "address")
#else
#define SANITIZES(what) 0
#endif

static void skip_under_tsan(void)
{
    if (SANITIZES(thread))
        XT_SKIP("the thread sanitizer does not follow forks of processes with threads");
}

/* Its memory allocator may be locked by a thread of the parent that the child does not have. */
static void skip_under_asan(void)
{
    if (SANITIZES(address))
        XT_SKIP("the address sanitizer's allocator does not survive forks of busy threads");
}

static void join_with(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    struct world_case c = {100, 0, xcclFloat32, 0, 1};
    xcclComm_t comm = NULL;

    for (int i = 0; i < 2; i++) {
        XT_OK(xcclCommInitRank(&comm, nranks, world->ids[i], rank));
        world_all_reduce(comm, rank, nranks, &c);
        XT_OK(xcclCommDestroy(comm));
    }
}

XT_TEST(ranks_may_be_forked_by_the_process_that_made_the_ids)
{
    struct world *world = world_create();
    double start = world_seconds();

    skip_under_tsan();
    skip_under_asan();
    XT_OK(xcclGetUniqueId(&world->ids[0]));
    XT_OK(xcclGetUniqueId(&world->ids[1]));
    xt_mp_run(2, join_with, world);
    XT_CHECK(world_seconds() - start < 4); /* nobody waited for a thread that was not there */
}

/* In a child: refused, and nothing of the parent's is touched. */
static void misuse(xcclComm_t comm)
{
    int value = 1;

    if (xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL) != xcclInvalidUsage ||
        !strstr(xcclGetLastError(NULL), "forked"))
        _exit(1);
    if (xcclCommDestroy(comm) != xcclInvalidUsage || xcclCommAbort(comm) != xcclInvalidUsage)
        _exit(2);
    _exit(0);
}

static void fork_in_the_middle(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks);
    struct world_case c = {100, 0, xcclInt32, 0, 1};
    int status = -1;
    pid_t pid;

    world_all_reduce(comm, rank, nranks, &c);
    pid = fork();
    if (!pid)
        misuse(comm);
    XT_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    XT_CHECK_INT(status, 0);
    world_all_reduce(comm, rank, nranks, &c); /* the parent's is as good as before */
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(communicator_of_the_parent_is_refused_in_a_child_and_unharmed)
{
    skip_under_tsan();
    xt_mp_run(2, fork_in_the_middle, world_create());
}

/* In a child with a stream of its parent: 0 when all is as it should be. */
static int try_streams(xcclStream_t stream)
{
    xcclStream_t own = NULL;

    if (xcclStreamQuery(stream) != xcclInvalidUsage ||
        !strstr(xcclGetLastError(NULL), "to the process that forked this one"))
        return 1;
    if (xcclStreamDestroy(stream) != xcclInvalidUsage)
        return 2;
    if (xcclStreamCreate(&own) || xcclStreamQuery(own) || xcclStreamDestroy(own))
        return 3;
    return 0;
}

XT_TEST(stream_of_the_parent_is_refused_in_a_child_that_may_have_its_own)
{
    xcclStream_t stream = NULL;
    int status = -1;
    pid_t pid;

    skip_under_tsan();
    XT_OK(xcclStreamCreate(&stream));
    pid = fork();
    if (!pid)
        _exit(try_streams(stream));
    XT_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    XT_CHECK_INT(status, 0);
    XT_OK(xcclStreamQuery(stream));
    XT_OK(xcclStreamDestroy(stream));
}
