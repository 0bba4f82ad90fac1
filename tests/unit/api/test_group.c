/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: one thread with several ranks, several communicators in any order, refused and nested
 * groups. Joins of many ranks and communicators by one thread are in test_group_join.c. */
#include "../collective/world.h"

/* One thread, two ranks a process, as NCCL's first example does it. */
static void two_ranks_a_thread(int process, int nprocs, void *arg)
{
    struct world *world = arg;
    xcclUniqueId id = world_id(world, process, 0);
    xcclComm_t comms[2] = {NULL, NULL};
    float data[2][100];

    XT_OK(xcclGroupStart());
    for (int i = 0; i < 2; i++)
        XT_OK(xcclCommInitRank(&comms[i], nprocs * 2, id, process * 2 + i));
    XT_CHECK(comms[0] == NULL); /* nothing happens before the end */
    XT_OK(xcclGroupEnd());
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 100; k++)
                data[i][k] = (float)(process * 2 + i + round);
        XT_OK(xcclGroupStart());
        for (int i = 0; i < 2; i++)
            XT_OK(xcclAllReduce(data[i], data[i], 100, xcclFloat32, xcclSum, comms[i], NULL));
        XT_OK(xcclGroupEnd());
        for (int i = 0; i < 2; i++)
            XT_CHECK(data[i][99] == (float)(nprocs * (2 * nprocs - 1) + 2 * nprocs * round));
    }
    XT_CHECK_RC(xcclAllReduce(data[0], data[0], 100, xcclFloat32, xcclSum, comms[0], NULL),
                xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "use a group");
    XT_OK(xcclGroupStart());
    XT_OK(xcclCommDestroy(comms[0]));
    XT_OK(xcclCommDestroy(comms[1]));
    XT_OK(xcclGroupEnd());
}

XT_TEST(one_thread_may_own_two_ranks_in_groups)
{
    xt_mp_run(2, two_ranks_a_thread, world_create());
}

/* Rank-dependent order of communicators inside one group; several operations on each. */
static void any_order(int rank, int nranks, void *arg)
{
    enum { COMMS = 3, OPS = 4 };
    struct world *world = arg;
    xcclComm_t comms[COMMS];
    int data[COMMS][OPS];

    for (int c = 0; c < COMMS; c++)
        XT_OK(xcclCommInitRank(&comms[c], nranks, world_id(world, rank, c), rank));
    for (int round = 0; round < 30; round++) {
        XT_OK(xcclGroupStart());
        for (int i = 0; i < COMMS; i++) {
            int c = (i + rank + round) % COMMS;

            for (int op = 0; op < OPS; op++) {
                data[c][op] = rank + 10 * c + 100 * op;
                XT_OK(xcclAllReduce(&data[c][op], &data[c][op], 1, xcclInt32, xcclSum, comms[c],
                                    NULL));
            }
        }
        XT_OK(xcclGroupEnd());
        for (int c = 0; c < COMMS; c++)
            for (int op = 0; op < OPS; op++)
                XT_CHECK_INT(data[c][op], nranks * (nranks - 1) / 2 + nranks * (10 * c + 100 * op));
    }
    for (int c = 0; c < COMMS; c++)
        XT_OK(xcclCommDestroy(comms[c]));
}

XT_TEST(a_group_may_name_communicators_in_any_order)
{
    xt_mp_run(4, any_order, world_create());
}

/* any_order() over sockets: the operations advance side by side, whatever waits. */
static void any_order_over_sockets(int rank, int nranks, void *arg)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    any_order(rank, nranks, arg);
}

XT_TEST(a_group_may_name_communicators_in_any_order_over_sockets)
{
    xt_mp_run(3, any_order_over_sockets, world_create());
}

static void refused(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks);
    int value = 1;

    XT_OK(xcclGroupStart());
    XT_OK(xcclGroupStart());
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    XT_CHECK_RC(xcclAllReduce(NULL, &value, 1, xcclInt32, xcclSum, comm, NULL),
                xcclInvalidArgument);
    XT_OK(xcclGroupEnd());
    XT_CHECK_RC(xcclGroupEnd(), xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(NULL), "sendbuff is NULL");
    XT_CHECK_INT(value, 1); /* nothing of the group was done */
    XT_CHECK_RC(xcclGroupEnd(), xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "no group is open");
    XT_OK(xcclGroupStart());
    XT_OK(xcclGroupEnd()); /* empty */
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    XT_CHECK_INT(value, nranks);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(a_wrong_call_keeps_the_whole_group_from_starting)
{
    xt_mp_run(2, refused, world_create());
}

static void thousands(int rank, int nranks, void *arg)
{
    enum { OPS = 3000 };
    xcclComm_t comm = world_join(arg, rank, nranks);
    int *values = calloc(OPS, sizeof *values);

    XT_CHECK(values);
    XT_OK(xcclGroupStart());
    for (int i = 0; i < OPS; i++) {
        values[i] = i + rank;
        XT_OK(xcclAllReduce(&values[i], &values[i], 1, xcclInt32, xcclSum, comm, NULL));
    }
    XT_OK(xcclGroupEnd());
    for (int i = 0; i < OPS; i++)
        XT_CHECK_INT(values[i], nranks * i + nranks * (nranks - 1) / 2);
    free(values);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(a_group_holds_thousands_of_operations)
{
    xt_mp_run(2, thousands, world_create());
}

static void twice(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks);
    int value = 1;

    XT_OK(xcclGroupStart());
    XT_OK(xcclCommDestroy(comm));
    XT_CHECK_RC(xcclCommDestroy(comm), xcclInvalidUsage);
    XT_CHECK_RC(xcclGroupEnd(), xcclInvalidUsage);
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL)); /* it still lives */
    XT_OK(xcclGroupStart());
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    XT_OK(xcclCommAbort(comm));
    XT_CHECK_RC(xcclGroupEnd(), xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "aborted inside a group");
    XT_CHECK_RC(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL), xcclRemoteError);
    XT_CHECK_HAS(xcclGetLastError(comm), "aborted the communicator");
}

XT_TEST(destroying_twice_or_aborting_inside_a_group_is_refused_and_harmless)
{
    xt_mp_run(1, twice, world_create());
}

/* Joined in one group by one thread, then one thread for each rank: no group is needed. */
struct handed_out {
    xcclComm_t comms[2];
};

static void use_one(int thread, int nthreads, void *arg)
{
    struct handed_out *job = arg;

    for (int i = 0; i < 100; i++) {
        int value = thread;

        XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, job->comms[thread], NULL));
        XT_CHECK_INT(value, nthreads * (nthreads - 1) / 2);
    }
}

XT_TEST(ranks_joined_by_one_thread_may_be_handed_to_others)
{
    struct handed_out job = {{NULL, NULL}};
    xcclUniqueId id;

    XT_OK(xcclGetUniqueId(&id));
    XT_OK(xcclGroupStart());
    for (int i = 0; i < 2; i++)
        XT_OK(xcclCommInitRank(&job.comms[i], 2, id, i));
    XT_OK(xcclGroupEnd());
    xt_threads_run(2, use_one, &job);
    for (int i = 0; i < 2; i++)
        XT_OK(xcclCommDestroy(job.comms[i]));
}

/* One thread works through groups, another aborts in the middle of one. */
struct abort_job {
    xcclComm_t comm;
    _Atomic int groups;
};

static void group_and_abort(int thread, int nthreads, void *arg)
{
    struct abort_job *job = arg;
    xcclResult_t rc = xcclSuccess;
    int values[300] = {0};

    (void)nthreads;
    if (thread) {
        while (atomic_load_explicit(&job->groups, memory_order_acquire) < 20)
            sched_yield();
        XT_OK(xcclCommAbort(job->comm));
        return;
    }
    while (!rc) {
        XT_OK(xcclGroupStart());
        for (int i = 0; i < 300; i++)
            XT_OK(xcclAllReduce(&values[i], &values[i], 1, xcclInt32, xcclSum, job->comm, NULL));
        rc = xcclGroupEnd();
        atomic_fetch_add_explicit(&job->groups, 1, memory_order_release);
    }
    XT_CHECK_INT(rc, xcclRemoteError);
}

XT_TEST(abort_in_the_middle_of_another_threads_group_ends_it)
{
    struct abort_job job = {0};
    xcclUniqueId id;

    XT_OK(xcclGetUniqueId(&id));
    XT_OK(xcclCommInitRank(&job.comm, 1, id, 0));
    xt_threads_run(2, group_and_abort, &job);
}

static float simulated(xcclComm_t comm, size_t count)
{
    xcclSimInfo_t info = XCCL_SIM_INFO_INITIALIZER;

    XT_OK(xcclGroupStart());
    XT_OK(xcclAllReduce(NULL, NULL, 0, xcclFloat32, xcclSum, comm, NULL));
    if (count) {
        void *memory = malloc(2 * count);

        XT_CHECK(memory);
        XT_OK(xcclAlltoAll(memory, (char *)memory + count, count / 3, xcclInt8, comm, NULL));
        XT_OK(xcclGroupStart());
        XT_OK(xcclSend(memory, count, xcclInt8, 1, comm, NULL));
        XT_OK(xcclGroupSimulateEnd(&info));
        XT_CHECK(info.estimatedTime == 0); /* the outermost end says it */
        free(memory);
    }
    XT_OK(xcclGroupSimulateEnd(&info));
    return info.estimatedTime;
}

/* One rank alone asks, and the others hear nothing of it. */
static void one_asks(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks);
    xcclSimInfo_t info = XCCL_SIM_INFO_INITIALIZER, wrong = {0};
    int data = rank;

    if (rank == 0) {
        float none = simulated(comm, 0), small = simulated(comm, 300),
              large = simulated(comm, 3 << 20);

        printf("estimates: %.2f, %.2f, %.2f us\n", none, small, large);
        XT_CHECK(0 < none && none < small && small < large);
        XT_CHECK(small < 1000 && large > 100 && large < 1e6);
        XT_CHECK_RC(xcclGroupSimulateEnd(&info), xcclInvalidUsage);
        XT_OK(xcclGroupStart());
        XT_CHECK_RC(xcclGroupSimulateEnd(NULL), xcclInvalidArgument);
        XT_CHECK_RC(xcclGroupSimulateEnd(&wrong), xcclInvalidArgument);
        XT_OK(xcclCommDestroy(comm)); /* noted only */
        XT_CHECK_RC(xcclGroupSimulateEnd(&info), xcclInvalidUsage);
    }
    XT_OK(xcclAllReduce(&data, &data, 1, xcclInt32, xcclSum, comm, NULL));
    XT_CHECK_INT(data, nranks * (nranks - 1) / 2);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(a_simulated_group_is_estimated_and_not_done)
{
    xt_mp_run(3, one_asks, world_create());
}
XT_TEST(a_simulated_group_over_sockets_is_estimated_and_not_done)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_mp_run(3, one_asks, world_create());
}
