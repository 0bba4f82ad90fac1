/* SPDX-License-Identifier: BSD-3-Clause */
/* After an abort every call on the communicator says so: who aborted it, rank and host, on the rank
 * itself and on the others, also when it had failed before, or had not joined yet. */
#include "collective/world.h"

#include <unistd.h>

#define RANKS   3
#define ABORTER 1

/* The call must have failed with all of the parts in its text. */
static void told(xcclResult_t rc, const char *call, const char *who, const char *what)
{
    const char *text = xcclGetLastError(NULL);

    if (rc != xcclRemoteError || !strstr(text, who) || !strstr(text, what))
        XT_FAIL("%s returned %d: %s", call, (int)rc, text);
}

#define TOLD(call) told(call, #call, who, what)

static void call_everything(xcclComm_t comm, xcclStream_t stream, const char *who, const char *what)
{
    xcclComm_t part = NULL;
    xcclResult_t state = xcclSuccess;
    xcclRedOp_t op;
    void *handle = NULL;
    uint64_t bytes;
    float value = 1;

    TOLD(xcclAllReduce(&value, &value, 1, xcclFloat32, xcclSum, comm, NULL));
    TOLD(xcclAllReduce(&value, &value, 1, xcclFloat32, xcclSum, comm, stream));
    TOLD(xcclBroadcast(&value, &value, 1, xcclFloat32, 0, comm, NULL));
    TOLD(xcclSend(&value, 1, xcclFloat32, 0, comm, NULL));
    TOLD(xcclRecv(&value, 1, xcclFloat32, 0, comm, NULL));
    TOLD(xcclBarrier(comm, NULL));
    TOLD(xcclCommSplit(comm, 0, 0, &part, NULL));
    TOLD(xcclCommRegister(comm, &value, sizeof value, &handle));
    TOLD(xcclRedOpCreatePreMulSum(&op, &value, xcclFloat32, xcclScalarHostImmediate, comm));
    TOLD(xcclCommMemStats(comm, xcclStatHostMemTotal, &bytes));
    XT_OK(xcclGroupStart());
    (void)xcclAllReduce(&value, &value, 1, xcclFloat32, xcclSum, comm, NULL);
    TOLD(xcclGroupEnd());
    XT_OK(xcclCommGetAsyncError(comm, &state));
    told(state, "xcclCommGetAsyncError", who, what);
    TOLD(xcclCommFinalize(comm));
    XT_CHECK_HAS(xcclCommGetLastError(comm), who);
    XT_CHECK_HAS(xcclCommGetLastError(comm), what);
}

/* Waits until the notice is there. */
static void await_error(xcclComm_t comm)
{
    xcclResult_t state = xcclSuccess;

    while (state == xcclSuccess) { /* bounded by the test's deadline */
        XT_OK(xcclCommGetAsyncError(comm, &state));
        sched_yield();
    }
}

static void abort_and_call(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclStream_t stream = NULL;
    xcclComm_t comm;
    char who[64];
    int value = 1;

    if (world->param)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(world, rank, nranks);
    XT_OK(xcclStreamCreate(&stream));
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    if (rank == ABORTER) {
        world->ready[1] = (int)getpid();
        XT_OK(xcclCommAbort(comm));
    } else {
        await_error(comm);
    }
    snprintf(who, sizeof who, ", pid %d) ", world->ready[1]);
    call_everything(comm, stream, "rank 1 (host ", "aborted the communicator");
    XT_CHECK_HAS(xcclCommGetLastError(comm), who);
    XT_OK(xcclStreamDestroy(stream));
    world_meet(world, nranks);
    if (rank != ABORTER)
        XT_OK(xcclCommDestroy(comm));
}

XT_TEST(every_call_after_an_abort_says_who_aborted_over_shared_memory)
{
    xt_mp_run(RANKS, abort_and_call, world_create());
}

XT_TEST(every_call_after_an_abort_says_who_aborted_over_sockets)
{
    struct world *world = world_create();

    world->param = 1;
    xt_mp_run(RANKS, abort_and_call, world);
}

/* Rank 2 leaves before a call; rank 0 aborts what has failed then. */
static void fail_and_abort(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclStream_t stream = NULL;
    xcclComm_t comm = world_join(world, rank, nranks);
    int value = 1;

    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    if (rank == 2) {
        XT_OK(xcclCommDestroy(comm));
    } else {
        XT_CHECK_RC(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL),
                    xcclRemoteError);
        XT_CHECK_HAS(xcclGetLastError(comm), "has left the communicator");
    }
    world_meet(world, nranks);
    if (rank == 0) {
        XT_OK(xcclStreamCreate(&stream));
        XT_OK(xcclCommAbort(comm));
        call_everything(comm, stream, "rank 0 (host ",
                        "aborted the communicator, which had failed before: rank 2 (host ");
        XT_OK(xcclStreamDestroy(stream));
    } else if (rank == 1) {
        XT_OK(xcclCommDestroy(comm));
    }
}

XT_TEST(abort_of_a_failed_communicator_is_told_before_the_failure)
{
    xt_mp_run(RANKS, fail_and_abort, world_create());
}

XT_TEST(abort_while_joining_is_told_by_every_call)
{
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    xcclComm_t comm = NULL;
    xcclResult_t state = xcclSuccess;
    xcclUniqueId id;
    int value = 1;

    xt_set_error_source(world_error);
    xt_allow_leaks("the id's root waits for rank 1 to tell it");
    config.blocking = 0;
    XT_OK(xcclGetUniqueId(&id));
    XT_CHECK_RC(xcclCommInitRankConfig(&comm, 2, id, 0, &config), xcclInProgress);
    XT_OK(xcclCommAbort(comm)); /* rank 1 never comes */
    for (int i = 0; i < 2; i++) {
        XT_CHECK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL) != xcclSuccess);
        XT_CHECK_HAS(xcclGetLastError(NULL), "rank 0 (host ");
        XT_CHECK_HAS(xcclGetLastError(NULL), "was aborted while it was joining");
    }
    XT_OK(xcclCommGetAsyncError(comm, &state));
    XT_CHECK(state != xcclSuccess && state != xcclInProgress);
    XT_CHECK_HAS(xcclCommGetLastError(comm), "was aborted while it was joining");
}
