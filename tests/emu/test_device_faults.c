/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes wrong with CUDA communicators: no driver, ranks that call something else, that do not
 * come, that abort or die; a device without memory; kinds that do not go together. Errors are in
 * words, on all ranks, and in time; kernels end. */
#include "device_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT 3000
/* s: an error is on all ranks. Heartbeats would tell after 3 to 4. */
#define SOON xt_bound(1, 2.5)

/* Waits for the stream, whose kernels end by an error; how long it took. */
static double wait_stream(struct on_device *on)
{
    double start = xt_seconds();

    while (cuda->stream_query(on->stream) == XCCL_CU_NOT_READY)
        XT_CHECK(xt_seconds() - start < 20);
    return xt_seconds() - start;
}

/* The communicator's error, which comes before long. */
static xcclResult_t await_error(struct on_device *on, double *took)
{
    double start = xt_seconds();
    xcclResult_t rc = xcclSuccess;

    while (!rc) {
        XT_OK(xcclCommGetAsyncError(on->comm, &rc));
        *took = xt_seconds() - start;
        XT_CHECK(*took < 20);
    }
    return rc;
}

/* A call that fails by what others do is at work, or they were quicker: it returns the
 * communicator's error. */
static void begun(const struct on_device *on, xcclResult_t rc)
{
    xcclResult_t error = xcclSuccess;

    if (!rc)
        return;
    XT_OK(xcclCommGetAsyncError(on->comm, &error));
    XT_CHECK_INT(rc, error);
}

static void join(struct on_device *on, int rank, int nranks, struct world *world)
{
    device_settings(world->text);
    device_open();
    device_make(on, (size_t)nranks * COUNT * 4);
    on->comm = world_join(world, rank, nranks);
    device_put(on, COUNT, rank, 0);
    /* Everything is warm before time is taken. */
    XT_OK(xcclAllReduce(at(on->in, 0), at(on->out, 0), COUNT, xcclInt32, xcclSum, on->comm,
                        on->stream));
    XT_OK(xcclAllGather(at(on->in, 0), at(on->out, 0), 10, xcclInt32, on->comm, on->stream));
    CU(cuda->stream_sync(on->stream));
    world_meet(world, nranks);
}

static void run(int nranks, xt_rank_fn *fn, const char *text)
{
    struct world *world = world_create();

    world->text = text;
    xt_mp_run(nranks, fn, world);
}

/* --- ranks that disagree --- */

static void other_type(int rank, int nranks, void *arg)
{
    struct on_device on;
    double took;

    join(&on, rank, nranks, arg);
    begun(&on, xcclAllReduce(at(on.in, 0), at(on.out, 0), COUNT, rank ? xcclInt32 : xcclUint32,
                             xcclSum, on.comm, on.stream));
    XT_CHECK_INT(await_error(&on, &took), xcclInvalidUsage);
    XT_CHECK(took < SOON);
    XT_CHECK_HAS(xcclGetLastError(on.comm), "ranks disagree");
    XT_CHECK_HAS(xcclGetLastError(on.comm), "all-reduce of 3000");
    XT_CHECK(wait_stream(&on) < SOON);
    XT_OK(xcclCommDestroy(on.comm));
}

XT_TEST(another_datatype_is_an_error_on_all_ranks)
{
    run(3, other_type, "p2p");
}

XT_TEST(another_datatype_is_an_error_on_all_ranks_over_sockets)
{
    run(3, other_type, "net");
}

static void other_call(int rank, int nranks, void *arg)
{
    struct on_device on;
    double took;

    join(&on, rank, nranks, arg);
    if (rank)
        begun(&on, xcclAllReduce(at(on.in, 0), at(on.out, 0), COUNT, xcclInt32, xcclSum, on.comm,
                                 on.stream));
    else
        begun(&on, xcclAllGather(at(on.in, 0), at(on.out, 0), 10, xcclInt32, on.comm, on.stream));
    XT_CHECK_INT(await_error(&on, &took), xcclInvalidUsage);
    XT_CHECK(took < SOON);
    XT_CHECK_HAS(xcclGetLastError(on.comm), "ranks disagree");
    XT_CHECK(wait_stream(&on) < SOON);
    XT_OK(xcclCommDestroy(on.comm));
}

XT_TEST(another_collective_is_an_error_on_all_ranks)
{
    run(3, other_call, "p2p");
}

static void other_size(int rank, int nranks, void *arg)
{
    struct on_device on;
    double took;

    join(&on, rank, nranks, arg);
    if (rank)
        begun(&on, xcclRecv(at(on.out, 0), 100, xcclInt32, 0, on.comm, on.stream));
    else
        begun(&on, xcclSend(at(on.in, 0), 99, xcclInt32, 1, on.comm, on.stream));
    if (rank) {
        XT_CHECK_INT(await_error(&on, &took), xcclInvalidUsage);
        XT_CHECK(took < SOON);
        XT_CHECK_HAS(xcclGetLastError(on.comm), "rank 0");
    }
    XT_CHECK(wait_stream(&on) < SOON);
    (void)await_error(&on, &took);
    XT_OK(xcclCommDestroy(on.comm));
}

XT_TEST(a_message_of_another_size_is_an_error)
{
    run(2, other_size, "p2p");
}

/* --- ranks that do not come --- */

static void late(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    struct on_device on;
    double took;

    xt_setenv("XCCL_TIMEOUT_S", "1");
    join(&on, rank, nranks, arg);
    if (rank == 1) {
        world_meet(world, 2 * nranks); /* the others have their error by now */
        XT_OK(xcclCommDestroy(on.comm));
        return;
    }
    begun(&on, xcclAllReduce(at(on.in, 0), at(on.out, 0), COUNT, xcclInt32, xcclSum, on.comm,
                             on.stream));
    XT_CHECK_INT(await_error(&on, &took), xcclTimeout);
    XT_CHECK(took < 5);
    XT_CHECK_HAS(xcclGetLastError(on.comm), "rank 1");
    XT_CHECK(wait_stream(&on) < SOON);
    world_meet(world, 2 * nranks);
    XT_OK(xcclCommDestroy(on.comm));
}

XT_TEST(a_rank_that_does_not_come_is_named)
{
    run(3, late, "p2p");
}

/* --- aborts and deaths --- */

static void abort_one(int rank, int nranks, void *arg)
{
    struct on_device on;
    double took, start;

    join(&on, rank, nranks, arg);
    if (rank == 1) {
        usleep(100000);
        start = xt_seconds();
        XT_OK(xcclCommAbort(on.comm));
        XT_CHECK(xt_seconds() - start < xt_bound(2, 2.5));
        return;
    }
    begun(&on, xcclAllReduce(at(on.in, 0), at(on.out, 0), COUNT, xcclInt32, xcclSum, on.comm,
                             on.stream));
    XT_CHECK_INT(await_error(&on, &took), xcclRemoteError);
    XT_CHECK(took < SOON + 0.1);
    XT_CHECK_HAS(xcclGetLastError(on.comm), "rank 1");
    XT_CHECK_HAS(xcclGetLastError(on.comm), "aborted");
    XT_CHECK(wait_stream(&on) < SOON);
    XT_OK(xcclCommDestroy(on.comm));
}

XT_TEST(an_abort_ends_the_kernels_of_all_ranks)
{
    run(3, abort_one, "p2p");
}

/* In the middle of a kernel of its own. */
static void abort_self(int rank, int nranks, void *arg)
{
    struct on_device on;
    double took;

    join(&on, rank, nranks, arg);
    if (rank == 1) {
        XT_CHECK_INT(await_error(&on, &took), xcclRemoteError);
        XT_OK(xcclCommDestroy(on.comm));
        return;
    }
    begun(&on, xcclAllReduce(at(on.in, 0), at(on.out, 0), COUNT, xcclInt32, xcclSum, on.comm,
                             on.stream));
    usleep(100000);
    XT_CHECK_INT(cuda->stream_query(on.stream), XCCL_CU_NOT_READY);
    XT_OK(xcclCommAbort(on.comm));
    XT_CHECK(wait_stream(&on) < SOON);
}

XT_TEST(a_rank_aborts_its_own_kernel)
{
    run(2, abort_self, "p2p");
}

static void survive(int rank, int nranks, void *arg)
{
    struct on_device on;
    double took;

    join(&on, rank, nranks, arg);
    if (rank == 1)
        raise(SIGKILL);
    begun(&on, xcclAllReduce(at(on.in, 0), at(on.out, 0), COUNT, xcclInt32, xcclSum, on.comm,
                             on.stream));
    XT_CHECK_INT(await_error(&on, &took), xcclRemoteError);
    XT_CHECK(took < xt_bound(2, 2.5));
    XT_CHECK_HAS(xcclGetLastError(on.comm), "rank 1");
    XT_CHECK(wait_stream(&on) < SOON);
    XT_OK(xcclCommDestroy(on.comm));
}

static void kill_one(const char *text)
{
    struct world *world = world_create();
    int statuses[3];

    world->text = text;
    xt_mp_wait(xt_mp_start(3, survive, world), statuses);
    if (WIFEXITED(statuses[0]) && WEXITSTATUS(statuses[0]) == 77)
        XT_SKIP("no CUDA driver");
    XT_CHECK_INT(statuses[0], 0);
    XT_CHECK_INT(statuses[2], 0);
}

XT_TEST(a_rank_that_dies_is_named)
{
    kill_one("p2p");
}

XT_TEST(a_rank_that_dies_is_named_over_sockets)
{
    kill_one("net");
}

/* --- connections that fail --- */

/* Calls until a connection fails: all ranks have an error in words, and their kernels end. */
static void until_it_fails(int rank, int nranks, void *arg)
{
    xcclResult_t rc = xcclSuccess;
    struct on_device on;
    double took;

    join(&on, rank, nranks, arg);
    for (int i = 0; i < 2000 && !rc; i++) {
        rc = xcclAllReduce(at(on.in, 0), at(on.out, 0), COUNT, xcclInt32, xcclSum, on.comm,
                           on.stream);
        if (!rc)
            rc = xccl_cuda_result(cuda->stream_sync(on.stream), "stream_sync");
        if (!rc)
            XT_OK(xcclCommGetAsyncError(on.comm, &rc));
    }
    XT_CHECK(rc != xcclSuccess);
    XT_CHECK_INT(await_error(&on, &took), rc);
    XT_CHECK_HAS(xcclGetLastError(on.comm), "rank ");
    XT_CHECK(wait_stream(&on) < SOON);
    XT_OK(xcclCommDestroy(on.comm));
}

static void fail_by(const char *faults)
{
    xt_setenv("XCCL_NET_FAULT", faults);
    run(3, until_it_fails, "fault");
}

XT_TEST(requests_that_fail_are_an_error_on_all_ranks)
{
    fail_by("seed=1,busy=0.1,error=0.002");
}

XT_TEST(connections_that_die_are_an_error_on_all_ranks)
{
    fail_by("seed=2,busy=0.1,dead=0.002");
}

/* --- no driver, no device --- */

XT_TEST(without_a_driver_the_host_works_and_cuda_says_why)
{
    xcclComm_t comm;
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    xcclUniqueId id;
    float value = 3;

    xt_set_error_source(world_error);
    xt_setenv("XCCL_CUDA_LIBRARY", "/nowhere/libcuda.so.1");
    XT_OK(xcclCommInitAll(&comm, 1, NULL));
    XT_OK(xcclAllReduce(&value, &value, 1, xcclFloat32, xcclSum, comm, NULL));
    XT_OK(xcclCommDestroy(comm));
    XT_OK(xcclGetUniqueId(&id));
    config.device = 0;
    XT_CHECK_RC(xcclCommInitRankConfig(&comm, 1, id, 0, &config), xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "no CUDA driver");
    XT_CHECK_HAS(xcclGetLastError(NULL), "/nowhere/libcuda.so.1");
    XT_CHECK_HAS(xcclGetLastError(NULL), "XCCL_DEVICE=host");
}

static void mixed_kinds(int rank, int nranks, void *arg)
{
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    xcclComm_t comm = NULL;

    device_settings(NULL);
    device_open();
    config.device = rank ? 0 : XCCL_DEVICE_HOST;
    XT_CHECK(xcclCommInitRankConfig(&comm, nranks, world_id(arg, rank, 0), rank, &config) !=
             xcclSuccess);
    XT_CHECK_HAS(xcclGetLastError(NULL), "CUDA device");
    XT_CHECK_HAS(xcclGetLastError(NULL), "the host");
}

XT_TEST(ranks_of_the_host_and_of_devices_do_not_mix)
{
    run(2, mixed_kinds, NULL);
}

XT_TEST(a_device_that_is_not_there_is_refused)
{
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    xcclComm_t comm;
    xcclUniqueId id;

    xt_set_error_source(world_error);
    device_settings(NULL);
    device_open();
    XT_OK(xcclGetUniqueId(&id));
    config.device = 63;
    XT_CHECK_RC(xcclCommInitRankConfig(&comm, 1, id, 0, &config), xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(NULL), "device 63");
}
