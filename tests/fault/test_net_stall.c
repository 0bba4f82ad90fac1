/* SPDX-License-Identifier: BSD-3-Clause */
/* A network plugin that does not come back from a call: the thread inside it is lost, but it is
 * said which plugin and which entry, the other ranks return an error that says so too, and so does
 * the call once the plugin has come back. The fixture's isend blocks FX_MANUAL_STALL_S. */
#include "../collective/world.h"

#include <signal.h>

#define MANUAL  XT_BUILD_DIR "/lib/fixtures/libxccl-net-fx-manual.so"
#define STALL_S "9"

/* Looks come each second, five of the same call are needed. */
#define WITHIN_S 8.0

static void stall(int rank, int nranks, void *arg)
{
    float data[10] = {0};
    double start_s;
    xcclComm_t comm;

    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_NET_PLUGIN", MANUAL);
    if (rank == 0)
        xt_setenv("FX_MANUAL_STALL_S", STALL_S);
    comm = world_join(arg, rank, nranks);
    start_s = world_seconds();
    /* What rank 0 waits for is there when its plugin comes back, so that call may end well. */
    if (xcclAllReduce(data, data, 10, xcclFloat32, xcclSum, comm, NULL) == xcclSuccess)
        XT_CHECK_INT(rank, 0);
    XT_CHECK_RC(xcclAllReduce(data, data, 10, xcclFloat32, xcclSum, comm, NULL), xcclSystemError);
    XT_CHECK_HAS(xcclGetLastError(comm), "rank 0: network plugin ");
    XT_CHECK_HAS(xcclGetLastError(comm), "has not returned from isend for 5 s");
    if (rank != 0)
        XT_CHECK(world_seconds() - start_s < WITHIN_S);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(plugin_that_blocks_in_a_call_is_named_on_all_ranks)
{
    xt_mp_run(3, stall, world_create());
}

/* The service thread lends itself the crank to deliver, and does not come back. */
static void stall_lent(int rank, int nranks, void *arg)
{
    float data[10] = {0};
    double start_s;
    xcclComm_t comm;

    xt_allow_leaks("a communicator that a plugin keeps is not freed");
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_NET_PLUGIN", MANUAL);
    if (rank == 0) {
        xt_setenv("FX_MANUAL_HOLD_MS", "1000");
        xt_setenv("FX_MANUAL_STALL_LENT_S", "20");
    }
    comm = world_join(arg, rank, nranks);
    start_s = world_seconds();
    if (rank == 0) {
        XT_OK(xcclAllReduce(data, data, 1, xcclFloat32, xcclSum, comm, NULL));
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); /* the service thread's turn */
        XT_CHECK_RC(xcclAllReduce(data, data, 1, xcclFloat32, xcclSum, comm, NULL),
                    xcclSystemError);
        XT_CHECK_HAS(xcclGetLastError(comm), "has not returned from progress");
    } else {
        XT_CHECK_RC(xcclAllReduce(data, data, 1, xcclFloat32, xcclSum, comm, NULL),
                    xcclRemoteError);
        XT_CHECK_HAS(xcclGetLastError(comm), "rank 0");
    }
    XT_OK(xcclCommDestroy(comm));
    XT_CHECK(world_seconds() - start_s < 2 * WITHIN_S);
}

XT_TEST(plugin_that_keeps_the_service_thread_costs_an_error_and_no_hang)
{
    xt_mp_run(2, stall_lent, world_create());
}

/* A process that was stopped is not stuck, however long it took. */
static void be_stopped(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm;

    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_HEARTBEAT_S", "0"); /* it is not this that is looked at */
    comm = world_join(world, rank, nranks);
    world_meet(world, nranks + 1);
    for (int round = 0; round < 50; round++) {
        struct world_case c = {.count = 3000, .round = round, .type = xcclFloat32};

        world_all_reduce(comm, rank, nranks, &c);
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(stopped_process_is_not_taken_for_a_plugin_that_blocks)
{
    struct world *world = world_create();
    struct xt_mp *mp = xt_mp_start(2, be_stopped, world);
    int statuses[2];

    while (atomic_load_explicit(&world->arrived, memory_order_acquire) < 2)
        sched_yield();
    xt_mp_kill(mp, 0, SIGSTOP);
    world_meet(world, 3);
    nanosleep(&(struct timespec){.tv_sec = 7}, NULL); /* the time is what is tested */
    xt_mp_kill(mp, 0, SIGCONT);
    xt_mp_wait(mp, statuses);
    XT_CHECK_INT(statuses[0], 0);
    XT_CHECK_INT(statuses[1], 0);
}
