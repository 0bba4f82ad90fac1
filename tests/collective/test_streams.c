/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on streams: their order, alone and with calls without a stream; that they go on while
 * the program does something else; what they hold until they end; the life of streams. */
#include <math.h>
#include <stdbool.h>

#include "stream_world.h"

#define LARGE  (1u << 20) /* floats: many slices, so that every rank has to go on moving */
#define CHAIN  300
#define WAIT_S 20.0

static void run(int nranks, xt_rank_fn *fn, const char *transport)
{
    struct world *world = world_create();

    world->text = transport;
    xt_mp_run(nranks, fn, world);
}

/* --- order --- */

/* Each operation needs the result of the one before it. */
static void chain(int rank, int nranks, void *arg)
{
    xcclComm_t comm = streams_join(arg, rank, nranks);
    xcclStream_t stream = streams_create();
    int32_t value[4] = {1 + rank, 0, 0, 0}, expected = 0;

    for (int i = 0; i < CHAIN; i++) {
        int root = i % nranks;

        XT_OK(xcclAllReduce(value, value + 1, 1, xcclInt32, xcclSum, comm, stream));
        XT_OK(xcclBroadcast(value + 1, value + 2, 1, xcclInt32, root, comm, stream));
        XT_OK(xcclAllReduce(value + 2, value, 1, xcclInt32, xcclMax, comm, stream));
    }
    for (int r = 0; r < nranks; r++)
        expected += 1 + r;
    XT_OK(xcclStreamSynchronize(stream));
    XT_OK(xcclStreamQuery(stream));
    for (int i = 1; i < CHAIN; i++) /* wraps like the library's */
        expected = (int32_t)((uint32_t)expected * (uint32_t)nranks);
    XT_CHECK_INT(value[0], expected);
    XT_OK(xcclStreamDestroy(stream));
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(operations_of_a_stream_take_place_in_their_order)
{
    run(3, chain, "shm");
}

XT_TEST(operations_of_a_stream_take_place_in_their_order_over_sockets)
{
    run(3, chain, "net");
}

/* Operations of one communicator on several streams, each on the result of the one before. */
static void chain_across(int rank, int nranks, void *arg)
{
    xcclComm_t comm = streams_join(arg, rank, nranks);
    xcclStream_t streams[3];
    float *data = calloc(LARGE, sizeof *data);

    XT_CHECK(data);
    for (int s = 0; s < 3; s++)
        streams[s] = streams_create();
    streams_fill(data, LARGE, rank);
    for (int i = 0; i < 4; i++)
        XT_OK(xcclAllReduce(data, data, LARGE, xcclFloat32, i ? xcclAvg : xcclSum, comm,
                            streams[i % 3]));
    XT_OK(xcclStreamSynchronize(streams[0])); /* of the last one */
    streams_check(data, LARGE, nranks, 1);
    for (int s = 0; s < 3; s++)
        XT_OK(xcclStreamDestroy(streams[s]));
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

XT_TEST(operations_of_a_communicator_take_place_in_their_order_on_whatever_streams)
{
    run(2, chain_across, "shm");
}

/* A call without a stream sees what was given before; what is given later sees its result. */
static void mix(int rank, int nranks, void *arg)
{
    xcclComm_t comm = streams_join(arg, rank, nranks);
    xcclStream_t stream = streams_create();
    float *data = calloc(LARGE, sizeof *data);

    XT_CHECK(data);
    streams_fill(data, LARGE, rank);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++)
            XT_OK(xcclAllReduce(data, data, LARGE, xcclFloat32, round + i ? xcclAvg : xcclSum, comm,
                                stream));
        XT_OK(xcclAllReduce(data, data, LARGE, xcclFloat32, xcclMax, comm, NULL));
        XT_OK(xcclStreamQuery(stream)); /* all before it is through */
        streams_check(data, LARGE, nranks, 1);
        XT_OK(xcclAllReduce(data, data, LARGE, xcclFloat32, xcclMin, comm, NULL));
    }
    XT_OK(xcclStreamDestroy(stream));
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

XT_TEST(call_without_a_stream_comes_after_what_was_given_before)
{
    run(2, mix, "shm");
}

XT_TEST(call_without_a_stream_comes_after_what_was_given_before_over_sockets)
{
    run(2, mix, "net");
}

/* --- beside computation --- */

/* Rank 0 calls nothing after it has given the operation, until rank 1 says that it has its result:
 * which needs rank 0 to go on moving all the time. */
static void leave_alone(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = streams_join(world, rank, nranks);
    xcclStream_t stream = streams_create();
    float *data = calloc(LARGE, sizeof *data);

    XT_CHECK(data);
    streams_fill(data, LARGE, rank);
    XT_OK(xcclAllReduce(data, data, LARGE, xcclFloat32, xcclSum, comm, rank ? NULL : stream));
    if (rank)
        streams_set(&world->ready[7]);
    else if (!streams_await(&world->ready[7], WAIT_S))
        XT_FAIL("the operation does not go on while its thread is outside of the library");
    XT_OK(xcclStreamSynchronize(stream));
    streams_check(data, LARGE, nranks, 1);
    XT_OK(xcclStreamDestroy(stream));
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

XT_TEST(operation_ends_while_its_thread_is_outside_of_the_library)
{
    run(2, leave_alone, "shm");
}

XT_TEST(operation_ends_while_its_thread_is_outside_of_the_library_over_sockets)
{
    run(2, leave_alone, "net");
}

#define STEPS   40
#define STEP_NS 2000000

/* Operations that wait for the other rank most of the time, as over a slow network. */
static void step_late(int rank, xcclComm_t comm, int32_t *value)
{
    for (int i = 0; i < STEPS; i++) {
        if (rank)
            nanosleep(&(struct timespec){.tv_nsec = STEP_NS}, NULL);
        XT_OK(xcclAllReduce(value, value, 1, xcclInt32, xcclMax, comm, NULL));
    }
}

/* A number of rounds of something that no compiler leaves out. */
static uint64_t compute(uint64_t rounds)
{
    uint64_t state = 1, sum = 0;

    for (uint64_t i = 0; i < rounds; i++)
        sum += xt_random(&state);
    return sum;
}

static double time_compute(uint64_t rounds)
{
    double begin = xt_seconds();

    XT_CHECK(compute(rounds) != 0);
    return xt_seconds() - begin;
}

struct times {
    double communicate, compute, both;
    bool was_done; /* when the computation beside it ended */
};

/* Both ranks; rank 0's times. */
static struct times measure(int rank, xcclComm_t comm, xcclStream_t stream, uint64_t rounds)
{
    struct times times = {0};
    int32_t value = 1;
    double begin;

    XT_OK(xcclBarrier(comm, NULL));
    begin = xt_seconds();
    step_late(rank, comm, &value);
    times.communicate = xt_seconds() - begin;
    if (!rank)
        times.compute = time_compute(rounds);
    XT_OK(xcclBarrier(comm, NULL));
    begin = xt_seconds();
    if (rank) {
        step_late(rank, comm, &value);
    } else {
        for (int i = 0; i < STEPS; i++)
            XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclMax, comm, stream));
        (void)time_compute(rounds);
        times.was_done = xcclStreamQuery(stream) == xcclSuccess;
        XT_OK(xcclStreamSynchronize(stream));
    }
    times.both = xt_seconds() - begin;
    return times;
}

#define TRIES 9

static int by_size(const void *a, const void *b)
{
    const double *left = a, *right = b;

    return *left < *right ? -1 : *left > *right;
}

/* Where other programs run, one of several tries must show that the operations ended while the rank
 * computed; on a quiet machine the median of the times must show what that saves. Rank 1 takes part
 * in all tries. */
static void overlap(int rank, int nranks, void *arg)
{
    xcclComm_t comm = streams_join(arg, rank, nranks);
    xcclStream_t stream = streams_create();
    uint64_t rounds = 1u << 20;
    double shares[TRIES];
    struct times times = {0};
    int done = 0;

    while (!rank && time_compute(rounds) < 1.5 * STEPS * STEP_NS * 1e-9)
        rounds *= 2;
    for (int i = 0; i < TRIES; i++) {
        times = measure(rank, comm, stream, rounds);
        done += times.was_done;
        if (times.compute < 1.5 * times.communicate && times.compute < 1)
            rounds *= 2; /* other programs took part of the time that it was chosen by */
        shares[i] = times.both / (times.communicate + times.compute);
    }
    qsort(shares, TRIES, sizeof shares[0], by_size);
    if (!rank && (done == 0 || shares[TRIES / 2] > xt_bound(0.85, INFINITY)))
        XT_FAIL("%d of %d streams were done when the computation was; communication %.3f s, "
                "computation %.3f s, both together %.3f s: %.2f of the sum, from %.2f to %.2f",
                done, TRIES, times.communicate, times.compute, times.both, shares[TRIES / 2],
                shares[0], shares[TRIES - 1]);
    XT_OK(xcclStreamDestroy(stream));
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST_DEADLINE(communication_and_computation_take_less_than_one_after_the_other, 60)
{
    run(2, overlap, "shm");
}

/* --- what operations hold --- */

/* Operators are destroyed and arrays changed before the operations that need them begin. */
static void hold(int rank, int nranks, void *arg)
{
    xcclComm_t comm = streams_join(arg, rank, nranks);
    xcclStream_t stream = streams_create();
    float *data = calloc(LARGE, sizeof *data), sums[80], gathered[4];

    XT_CHECK(data && nranks == 2);
    streams_fill(data, LARGE, rank);
    XT_OK(xcclAllReduce(data, data, LARGE, xcclFloat32, xcclSum, comm, stream));
    for (int i = 0; i < 80; i++) {
        float factor = (float)(i + 1);
        xcclRedOp_t op;

        sums[i] = 1;
        /* 64 are held at most; then the stream has to catch up. */
        while (xcclRedOpCreatePreMulSum(&op, &factor, xcclFloat32, xcclScalarHostImmediate, comm))
            XT_OK(xcclStreamSynchronize(stream));
        XT_OK(xcclAllReduce(&sums[i], &sums[i], 1, xcclFloat32, op, comm, stream));
        XT_OK(xcclRedOpDestroy(op, comm));
    }
    for (int i = 0; i < 3; i++) {
        size_t counts[2] = {1, 3};

        XT_OK(
            xcclAllGatherv(sums, counts[rank], gathered, counts, NULL, xcclFloat32, comm, stream));
        counts[0] = counts[1] = 77;
    }
    XT_OK(xcclStreamSynchronize(stream));
    streams_check(data, LARGE, nranks, 1);
    for (int i = 0; i < 80; i++)
        XT_CHECK(sums[i] == (float)(2 * (i + 1)));
    XT_CHECK(gathered[0] == 2 && gathered[1] == 2 && gathered[3] == 6);
    XT_OK(xcclStreamDestroy(stream));
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

XT_TEST(operators_and_sizes_live_until_the_operation_ends)
{
    run(2, hold, "shm");
}

/* --- the life of streams --- */

XT_TEST(all_streams_of_a_process_have_one_thread_and_it_ends_with_them)
{
    xcclStream_t streams[3];

    xt_set_error_source(world_error);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++)
            streams[i] = streams_create();
        while (!xt_threads_named("xccl-progress")) /* it names itself */
            sched_yield();
        XT_CHECK_INT(xt_threads_named("xccl-progress"), 1);
        for (int i = 0; i < 3; i++)
            XT_OK(xcclStreamDestroy(streams[i]));
        XT_CHECK_INT(xt_threads_left("xccl-progress", 0), 0);
    }
}

/* With work in them. */
static void end_early(int rank, int nranks, void *arg)
{
    xcclComm_t comm = streams_join(arg, rank, nranks);
    xcclStream_t stream = streams_create(), other = streams_create();
    float *data = calloc(LARGE, sizeof *data);

    XT_CHECK(data);
    streams_fill(data, LARGE, rank);
    XT_OK(xcclAllReduce(data, data, LARGE, xcclFloat32, xcclSum, comm, stream));
    XT_OK(xcclStreamDestroy(stream));
    streams_check(data, LARGE, nranks, 1);
    XT_OK(xcclAllReduce(data, data, LARGE, xcclFloat32, xcclAvg, comm, other));
    XT_OK(xcclAllReduce(data, data, LARGE, xcclFloat32, xcclAvg, comm, other));
    if (rank)
        XT_OK(xcclCommFinalize(comm));
    XT_OK(xcclCommDestroy(comm));
    XT_OK(xcclStreamQuery(other));
    streams_check(data, LARGE, nranks, 1);
    XT_OK(xcclStreamDestroy(other));
    free(data);
}

XT_TEST(destroying_a_stream_or_a_communicator_waits_for_its_work)
{
    run(2, end_early, "shm");
}

XT_TEST(destroying_a_stream_or_a_communicator_waits_for_its_work_over_sockets)
{
    run(2, end_early, "net");
}

#define REFUSED(call, part)                                                                        \
    do {                                                                                           \
        XT_CHECK_RC(call, xcclInvalidArgument);                                                    \
        XT_CHECK_HAS(xcclGetLastError(NULL), part);                                                \
    } while (0)

XT_TEST(what_is_no_stream_is_refused)
{
    uint64_t nothing[8] = {0};
    xcclStream_t stream = streams_create();
    void *const strays[] = {nothing, (char *)nothing + 1, (void *)1, (void *)2};

    xt_set_error_source(world_error);
    REFUSED(xcclStreamCreate(NULL), "xcclStreamCreate: stream is NULL");
    for (size_t i = 0; i < sizeof strays / sizeof strays[0]; i++) {
        REFUSED(xcclStreamDestroy(strays[i]), "xcclStreamDestroy: stream is not a stream");
        REFUSED(xcclStreamQuery(strays[i]), "xcclStreamQuery: stream is not a stream");
        REFUSED(xcclStreamSynchronize(strays[i]), "xcclStreamSynchronize: stream is not a stream");
    }
    REFUSED(xcclStreamDestroy(NULL), "xcclStreamDestroy: stream is not a stream");
    XT_OK(xcclStreamQuery(NULL));
    XT_OK(xcclStreamSynchronize(NULL));
    XT_OK(xcclStreamQuery(stream)); /* nothing was given to it */
    XT_OK(xcclStreamSynchronize(stream));
    XT_OK(pxcclStreamDestroy(stream));
}

/* A wrong call does not get into the queue. */
static void wrong_call(int rank, int nranks, void *arg)
{
    xcclComm_t comm = streams_join(arg, rank, nranks);
    xcclStream_t stream = streams_create();
    float value = 1;

    REFUSED(xcclAllReduce(NULL, &value, 1, xcclFloat32, xcclSum, comm, stream), "sendbuff is NULL");
    REFUSED(xcclSend(&value, 1, xcclFloat32, 9, comm, stream), "peer is 9");
    XT_CHECK_RC(xcclSend(&value, 1, xcclFloat32, rank, comm, stream), xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "put matching sends and receives into one group");
    XT_OK(xcclStreamQuery(stream));
    XT_OK(xcclGroupStart());
    XT_OK(xcclAllReduce(&value, &value, 1, xcclFloat32, xcclSum, comm, stream));
    XT_CHECK_RC(xcclStreamDestroy(stream), xcclInvalidUsage);
    XT_OK(xcclStreamQuery(stream)); /* the group has only noted it */
    XT_OK(xcclGroupEnd());
    XT_OK(xcclStreamSynchronize(stream));
    XT_CHECK(value == (float)nranks);
    XT_OK(xcclStreamDestroy(stream));
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(wrong_calls_are_refused_at_once_and_change_nothing)
{
    run(2, wrong_call, "shm");
}
