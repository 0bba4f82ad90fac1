/* SPDX-License-Identifier: BSD-3-Clause */
/* What becomes of operations on streams when a rank dies, leaves, aborts, or calls something else:
 * streams and communicators tell in time, and nothing hangs or stays behind. */
#include "../collective/stream_world.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define COUNT 200000 /* floats */

/* Under sanitizers on shared cores everything takes longer. Heartbeats would tell after 3 to 4 s.
 */
#if defined(XCCL_SANITIZED)
#define LIMIT_S 4.0
#else
#define LIMIT_S xt_bound(1, 2.5)
#endif

static void run(int nranks, xt_rank_fn *fn, const char *transport)
{
    struct world *world = world_create();

    world->text = transport;
    xt_mp_run(nranks, fn, world);
}

/* --- a rank dies --- */

/* The last rank comes as far as this, and is killed; the others have but asynchronous work. */
static void lose(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = streams_join(world, rank, nranks);
    xcclStream_t stream = streams_create(), idle = streams_create();
    float *data = calloc(COUNT, sizeof *data);
    xcclResult_t error = xcclSuccess;
    double begin;

    XT_CHECK(data);
    XT_OK(xcclAllReduce(data, data, COUNT, xcclFloat32, xcclSum, comm, stream));
    XT_OK(xcclStreamSynchronize(stream));
    if (rank == nranks - 1) {
        world_meet(world, nranks);
        (void)raise(SIGKILL);
    }
    for (int i = 0; i < 5; i++)
        XT_OK(xcclAllReduce(data, data, COUNT, xcclFloat32, xcclSum, comm, stream));
    world_meet(world, nranks);
    begin = xt_seconds();
    XT_CHECK_RC(rank ? streams_poll(stream) : xcclStreamSynchronize(stream), xcclRemoteError);
    if (xt_seconds() - begin > LIMIT_S)
        XT_FAIL("rank %d needed %.3f s: %s", rank, xt_seconds() - begin, xcclGetLastError(NULL));
    XT_CHECK_HAS(xcclGetLastError(NULL), "rank 2 (host ");
    XT_CHECK_HAS(xcclGetLastError(comm), "rank 2 (host ");
    XT_CHECK_RC(xcclStreamSynchronize(stream), xcclRemoteError); /* it stays, and nothing is left */
    XT_CHECK_RC(xcclStreamQuery(stream), xcclRemoteError);
    XT_CHECK_RC(xcclAllReduce(data, data, 1, xcclFloat32, xcclSum, comm, idle), xcclRemoteError);
    XT_CHECK_RC(xcclAllReduce(data, data, 1, xcclFloat32, xcclSum, comm, NULL), xcclRemoteError);
    XT_OK(xcclStreamQuery(idle));
    XT_OK(xcclCommGetAsyncError(comm, &error));
    XT_CHECK_INT(error, xcclRemoteError);
    XT_OK(xcclStreamDestroy(stream));
    XT_OK(xcclStreamDestroy(idle));
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

static void lose_over(const char *transport)
{
    struct world *world = world_create();
    int statuses[3];

    world->text = transport;
    xt_mp_wait(xt_mp_start(3, lose, world), statuses);
    for (int r = 0; r < 2; r++)
        if (!WIFEXITED(statuses[r]) || WEXITSTATUS(statuses[r]))
            XT_FAIL("rank %d ended with status %d", r, statuses[r]);
}

XT_TEST(stream_tells_within_a_second_that_a_rank_was_killed)
{
    lose_over("shm");
}

XT_TEST(stream_tells_within_a_second_that_a_rank_was_killed_over_sockets)
{
    lose_over("net");
}

/* --- other ends --- */

/* Rank 1 leaves in order; rank 0 has given work that needs it. */
static void leave(int rank, int nranks, void *arg)
{
    xcclComm_t comm = streams_join(arg, rank, nranks);
    xcclStream_t stream = streams_create();
    int32_t value = 1;

    XT_OK(xcclBarrier(comm, NULL));
    if (!rank) {
        for (int i = 0; i < 3; i++)
            XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, stream));
        XT_CHECK_RC(xcclStreamSynchronize(stream), xcclRemoteError);
        XT_CHECK_HAS(xcclGetLastError(NULL), "has left the communicator");
    }
    XT_OK(xcclStreamDestroy(stream));
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(stream_tells_that_a_rank_has_left)
{
    run(2, leave, "shm");
}

XT_TEST(stream_tells_that_a_rank_has_left_over_sockets)
{
    run(2, leave, "net");
}

static void differ(int rank, int nranks, void *arg)
{
    xcclComm_t comm = streams_join(arg, rank, nranks);
    xcclStream_t stream = streams_create();
    int32_t values[2] = {1, 1};

    XT_OK(xcclAllReduce(values, values, rank ? 1 : 2, xcclInt32, xcclSum, comm, stream));
    XT_CHECK_RC(streams_poll(stream), xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "ranks disagree");
    XT_OK(xcclStreamDestroy(stream));
    XT_OK(xcclCommDestroy(comm));
    (void)nranks;
}

XT_TEST(stream_tells_that_ranks_made_different_calls)
{
    run(2, differ, "shm");
}

XT_TEST(stream_tells_that_ranks_made_different_calls_over_sockets)
{
    run(2, differ, "net");
}

static void be_late(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm;
    xcclStream_t stream = streams_create();
    int32_t value = 1;

    xt_setenv("XCCL_TIMEOUT_S", "1");
    comm = streams_join(world, rank, nranks);
    if (rank) {
        XT_CHECK(streams_await(&world->ready[7], 20));
    } else {
        XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, stream));
        XT_CHECK_RC(xcclStreamSynchronize(stream), xcclTimeout);
        XT_CHECK_HAS(xcclGetLastError(NULL), "rank 1 (host ");
        streams_set(&world->ready[7]);
    }
    XT_OK(xcclStreamDestroy(stream));
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(operation_on_a_stream_has_a_deadline)
{
    run(2, be_late, "shm");
}

/* --- aborts --- */

static void *abort_soon(void *arg)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    XT_OK(xcclCommAbort(arg));
    return NULL;
}

/* Rank 0 aborts while work is outstanding, from another thread than the one that waits. */
static void abort_one(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = streams_join(world, rank, nranks);
    xcclComm_t other = streams_join_more(world, rank, nranks, 1);
    xcclStream_t stream = streams_create();
    float *data = calloc(COUNT, sizeof *data);
    int32_t value = 1;
    pthread_t thread;
    double begin;

    XT_CHECK(data);
    XT_OK(xcclAllReduce(data, data, COUNT, xcclFloat32, xcclSum, comm, stream));
    XT_OK(xcclStreamSynchronize(stream));
    if (rank) {
        xcclResult_t error = xcclSuccess;

        while (!error)
            XT_OK(xcclCommGetAsyncError(comm, &error));
        XT_CHECK_RC(xcclAllReduce(data, data, 1, xcclFloat32, xcclSum, comm, stream),
                    xcclRemoteError);
    } else {
        for (int i = 0; i < 50; i++)
            XT_OK(xcclAllReduce(data, data, COUNT, xcclFloat32, xcclSum, comm, stream));
        XT_CHECK_INT(pthread_create(&thread, NULL, abort_soon, comm), 0);
        begin = xt_seconds();
        XT_CHECK_RC(xcclStreamSynchronize(stream), xcclRemoteError);
        XT_CHECK(xt_seconds() - begin < LIMIT_S + 0.05);
        XT_CHECK_HAS(xcclGetLastError(NULL), "aborted the communicator");
        XT_CHECK_INT(pthread_join(thread, NULL), 0);
        XT_CHECK_RC(xcclAllReduce(data, data, 1, xcclFloat32, xcclSum, comm, stream),
                    xcclRemoteError); /* too late, but harmless */
    }
    /* The other communicator is as it was, on the same stream. */
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, other, stream));
    while (xcclStreamQuery(stream) == xcclInProgress)
        sched_yield();
    XT_OK(xcclCommDestroy(other));
    XT_CHECK_INT(value, nranks);
    if (rank)
        XT_OK(xcclCommDestroy(comm));
    XT_OK(xcclStreamDestroy(stream));
    free(data);
}

XT_TEST(abort_drops_the_work_of_a_communicator_and_of_no_other)
{
    run(2, abort_one, "shm");
}

XT_TEST(abort_drops_the_work_of_a_communicator_and_of_no_other_over_sockets)
{
    run(2, abort_one, "net");
}

/* What stands behind an operation that waits for another rank is dropped without it. */
static void abort_behind(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = streams_join(world, rank, nranks);
    xcclComm_t other = streams_join_more(world, rank, nranks, 1);
    xcclStream_t stream = streams_create();
    int32_t value = 1, dropped = 1;
    double begin = xt_seconds();

    if (rank) {
        XT_CHECK(streams_await(&world->ready[7], 20));
    } else {
        XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, stream));
        XT_OK(xcclAllReduce(&dropped, &dropped, 1, xcclInt32, xcclSum, other, stream));
    }
    XT_OK(rank ? xcclCommDestroy(other) : xcclCommAbort(other));
    XT_CHECK(rank || xt_seconds() - begin < LIMIT_S);
    XT_CHECK_RC(xcclStreamQuery(stream), rank ? xcclSuccess : xcclRemoteError);
    streams_set(&world->ready[7]);
    if (rank)
        XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    XT_OK(xcclCommDestroy(comm)); /* after its work */
    XT_CHECK_INT(value, nranks);
    XT_CHECK_INT(dropped, 1);
    XT_OK(xcclStreamDestroy(stream));
}

XT_TEST(abort_drops_work_that_stands_behind_that_of_another_communicator)
{
    run(2, abort_behind, "shm");
}

/* Abort while threads give work and calls to the same communicator in turns, again and again. */
static void abort_at_random(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    uint64_t state = xt_seed() + (uint64_t)rank;

    for (int round = 0; round < 6; round++) {
        xcclComm_t comm = streams_join_more(world, rank, nranks, round);
        xcclStream_t stream = streams_create();
        int32_t value = 1;
        pthread_t thread;
        xcclResult_t rc = xcclSuccess;

        if (rank == round % nranks)
            XT_CHECK_INT(pthread_create(&thread, NULL, abort_soon, comm), 0);
        while (!rc) {
            rc = xcclAllReduce(&value, &value, 1, xcclInt32, xcclMax, comm,
                               xt_random(&state) % 3 ? stream : NULL);
            if (!rc && xt_random(&state) % 8 == 0)
                rc = xcclStreamSynchronize(stream);
        }
        XT_CHECK_INT(rc, xcclRemoteError);
        XT_OK(xcclStreamDestroy(stream));
        if (rank == round % nranks)
            XT_CHECK_INT(pthread_join(thread, NULL), 0);
        else
            XT_OK(xcclCommDestroy(comm));
    }
}

XT_TEST_DEADLINE(abort_ends_streams_and_calls_at_any_moment, 60)
{
    run(2, abort_at_random, "shm");
}
