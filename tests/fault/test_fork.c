/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that fork: after making ids, whose roots live in the parent's service thread, and with
 * a communicator, which stays the parent's. The harness' rank processes are children of such a
 * parent. */
#include "../collective/world.h"

#include <sys/wait.h>
#include <unistd.h>

static void skip_under_tsan(void)
{
    if (XT_TSAN)
        XT_SKIP("the thread sanitizer does not follow forks of processes with threads");
}

/* Its memory allocator may be locked by a thread of the parent that the child does not have. */
static void skip_under_asan(void)
{
    if (XT_ASAN)
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

/* Makes each call, in a child: a refusal names its own call, and the parent's group is not here. */
static int try_everything(const xcclUniqueId *id, void *memory)
{
    xcclUniqueId other;
    xcclComm_t comm = NULL;
    xcclStream_t stream = NULL;
    void *more = NULL;
    int nranks, rank, version;

#define REFUSED(call, code)                                                                        \
    do {                                                                                           \
        if ((call) != xcclInvalidUsage)                                                            \
            return code;                                                                           \
        if (!strstr(xcclGetLastError(NULL), "this process was forked from process ") ||            \
            !strstr(xcclGetLastError(NULL), "call exec first"))                                    \
            return (code) + 100;                                                                   \
    } while (0)
    if (xcclGroupEnd() != xcclInvalidUsage)
        return 1;
    REFUSED(xcclCommInitRank(&comm, 1, *id, 0), 2);
    REFUSED(xcclCommInitRankConfig(&comm, 1, *id, 0, NULL), 3);
    REFUSED(xcclCommInitRankScalable(&comm, 1, 0, 1, id, NULL), 4);
    REFUSED(xcclCommInitAll(&comm, 1, NULL), 5);
    REFUSED(xcclGetUniqueId(&other), 6);
    REFUSED(xcclGetLaunch(&other, &nranks, &rank), 7);
    REFUSED(xcclGetLaunchLocal(&nranks, &rank), 8);
    REFUSED(xcclMemAlloc(&more, 4096), 9);
    REFUSED(xcclMemFree(memory), 10);
    REFUSED(xcclStreamCreate(&stream), 11);
#undef REFUSED
    if (xcclGetVersion(&version) || !*xcclGetErrorString(xcclSystemError) || xcclGroupStart() ||
        xcclGroupEnd() || xcclMemFree(NULL) || xcclStreamSynchronize(NULL))
        return 12;
    return ((char *)memory)[0] == 3 ? 0 : 13; /* which it shares with its parent */
}

static void fork_inside_a_group(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks);
    int32_t value = 1;
    void *memory = NULL;
    int status = -1;
    pid_t pid;

    XT_OK(xcclMemAlloc(&memory, 4096));
    memset(memory, 3, 4096);
    XT_OK(xcclGroupStart());
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    pid = fork();
    if (!pid)
        _exit(try_everything(&world->ids[0], memory));
    XT_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    XT_CHECK_INT(status, 0);
    XT_OK(xcclGroupEnd());
    XT_CHECK_INT(value, nranks);
    XT_OK(xcclMemFree(memory));
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(child_of_a_process_with_communicators_gets_an_error_from_each_call)
{
    skip_under_tsan();
    xt_mp_run(2, fork_inside_a_group, world_create());
}

/* A child of a process that has made no communicator, though it has memory, may make some; and its
 * own child may not. */
static int join_alone(void *memory)
{
    xcclUniqueId id;
    xcclComm_t comm = NULL;
    void *own = NULL;
    int status = -1;
    pid_t pid;

    if (xcclMemAlloc(&own, 4096) || xcclMemFree(own) || xcclMemFree(memory))
        return 1;
    if (xcclGetUniqueId(&id) || xcclCommInitRank(&comm, 1, id, 0))
        return 2;
    pid = fork();
    if (!pid)
        _exit(xcclGetUniqueId(&id) == xcclInvalidUsage ? 0 : 1);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
        return 3;
    return xcclCommDestroy(comm) ? 4 : 0;
}

XT_TEST(child_of_a_process_without_communicators_may_make_some)
{
    void *memory = NULL;
    int status = -1;
    pid_t pid;

    skip_under_tsan();
    XT_OK(xcclMemAlloc(&memory, 1 << 20));
    memset(memory, 5, 1 << 20);
    pid = fork();
    if (!pid)
        _exit(join_alone(memory));
    XT_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    XT_CHECK_INT(status, 0);
    XT_CHECK_INT(((char *)memory)[(1 << 20) - 1], 5); /* the child's xcclMemFree() left it alone */
    XT_OK(xcclMemFree(memory));
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
