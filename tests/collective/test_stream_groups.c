/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams with groups, several communicators, messages, and ranks that are threads of one process
 * or all of one thread. */
#include "stream_world.h"

#define MANY  50000 /* floats */
#define RANKS 4

static void run(int nranks, xt_rank_fn *fn, const char *transport)
{
    struct world *world = world_create();

    world->text = transport;
    xt_mp_run(nranks, fn, world);
}

/* --- messages --- */

static void check_all(const float *data, size_t count, float want)
{
    for (size_t i = 0; i < count; i++)
        if (data[i] != want)
            XT_FAIL("element %zu is %g, want %g", i, (double)data[i], (double)want);
}

static void fill(float *data, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        data[i] = value;
}

/* Round the ring in groups, many of them queued; each sends what the one before has received. */
static void ring(int rank, int nranks, void *arg)
{
    xcclComm_t comm = streams_join(arg, rank, nranks);
    xcclStream_t stream = streams_create();
    float *data = calloc(2 * MANY, sizeof *data);
    int next = (rank + 1) % nranks, previous = (rank + nranks - 1) % nranks, rounds = 20 * nranks;

    XT_CHECK(data);
    fill(data, MANY, (float)rank);
    for (int i = 0; i < rounds; i++) {
        size_t from = (size_t)(i % 2) * MANY;

        XT_OK(xcclGroupStart());
        XT_OK(xcclSend(data + from, MANY, xcclFloat32, next, comm, stream));
        XT_OK(xcclRecv(data + MANY - from, MANY, xcclFloat32, previous, comm, stream));
        XT_OK(xcclGroupEnd());
    }
    XT_OK(streams_poll(stream));
    check_all(data, MANY, (float)rank); /* all the way round */
    XT_OK(xcclStreamDestroy(stream));
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

XT_TEST(messages_on_a_stream_go_round_the_ring)
{
    run(3, ring, "shm");
}

XT_TEST(messages_on_a_stream_go_round_the_ring_over_sockets)
{
    run(3, ring, "net");
}

/* Outside of groups: to and fro. */
static void ping(int rank, int nranks, void *arg)
{
    xcclComm_t comm = streams_join(arg, rank, nranks);
    xcclStream_t stream = streams_create();
    int32_t value = rank ? 0 : 4711;

    for (int i = 0; i < 200; i++) {
        int sends = (i + rank) % 2 == 0;

        XT_OK(sends ? xcclSend(&value, 1, xcclInt32, !rank, comm, stream)
                    : xcclRecv(&value, 1, xcclInt32, !rank, comm, stream));
    }
    XT_OK(xcclStreamSynchronize(stream));
    XT_CHECK_INT(value, 4711);
    XT_OK(xcclStreamDestroy(stream));
    XT_OK(xcclCommDestroy(comm));
    (void)nranks;
}

XT_TEST(messages_on_a_stream_keep_their_order_without_groups)
{
    run(2, ping, "shm");
}

/* Messages of one group on two streams, to oneself too, and a call behind them: both streams have
 * to wait, and what follows on either sees the data. */
static void two_streams(int rank, int nranks, void *arg)
{
    xcclComm_t comm = streams_join(arg, rank, nranks);
    xcclStream_t a = streams_create(), b = streams_create();
    float *data = calloc(4 * MANY, sizeof *data), *sent = data, *own = data + 2 * MANY;

    XT_CHECK(data);
    fill(sent, MANY, (float)(rank + 1));
    for (int i = 0; i < 10; i++) {
        XT_OK(xcclGroupStart());
        XT_OK(xcclAllReduce(own, own, MANY, xcclFloat32, xcclMax, comm, b)); /* after the rest */
        XT_OK(xcclSend(sent, MANY, xcclFloat32, !rank, comm, a));
        XT_OK(xcclRecv(sent + MANY, MANY, xcclFloat32, !rank, comm, b));
        XT_OK(xcclSend(sent, MANY, xcclFloat32, rank, comm, b));
        XT_OK(xcclRecv(own, MANY, xcclFloat32, rank, comm, a));
        XT_OK(xcclGroupEnd());
        XT_OK(xcclStreamSynchronize(i % 2 ? a : b));
        check_all(sent + MANY, MANY, (float)(2 - rank));
        XT_OK(xcclStreamSynchronize(b));
        check_all(own, MANY, (float)nranks);
    }
    XT_OK(xcclStreamDestroy(a));
    XT_OK(xcclStreamDestroy(b));
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

XT_TEST(messages_of_a_group_on_two_streams_go_together)
{
    run(2, two_streams, "shm");
}

XT_TEST(messages_of_a_group_on_two_streams_go_together_over_sockets)
{
    run(2, two_streams, "net");
}

/* --- several communicators --- */

/* The ranks name the communicators of a group in different orders, on one stream and on several,
 * one of them without a stream. */
static void orders(int rank, int nranks, void *arg)
{
    xcclComm_t comms[3];
    xcclStream_t streams[3];
    float *data = calloc(3 * MANY, sizeof *data);

    XT_CHECK(data);
    comms[0] = streams_join(arg, rank, nranks);
    for (int c = 0; c < 3; c++) {
        if (c)
            comms[c] = streams_join_more(arg, rank, nranks, c);
        streams[c] = streams_create();
    }
    for (int round = 0; round < 12; round++) {
        for (int c = 0; c < 3; c++)
            fill(data + c * MANY, MANY, (float)(c + 1));
        XT_OK(xcclGroupStart());
        for (int k = 0; k < 3; k++) {
            int c = (k + rank * (1 + round)) % 3;
            xcclStream_t stream = round % 2 ? streams[c] : streams[0];

            if (round % 3 == 2 && c == 1)
                stream = NULL;
            XT_OK(xcclAllReduce(data + c * MANY, data + c * MANY, MANY, xcclFloat32, xcclSum,
                                comms[c], stream));
        }
        XT_OK(xcclGroupEnd());
        if (round % 3 == 2)
            check_all(data + MANY, MANY, (float)(2 * nranks));
        for (int c = 0; c < 3; c++)
            XT_OK(xcclStreamSynchronize(streams[c]));
        for (int c = 0; c < 3; c++)
            check_all(data + c * MANY, MANY, (float)((c + 1) * nranks));
    }
    for (int c = 0; c < 3; c++) {
        XT_OK(xcclStreamDestroy(streams[c]));
        XT_OK(xcclCommDestroy(comms[c]));
    }
    free(data);
}

XT_TEST(communicators_of_a_group_go_side_by_side_whatever_their_streams)
{
    run(3, orders, "shm");
}

XT_TEST(communicators_of_a_group_go_side_by_side_whatever_their_streams_over_sockets)
{
    run(2, orders, "net");
}

/* Communicator a waits for rank 1. b on another stream does not, b behind it in its stream does. */
static void independent(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t a = streams_join(world, rank, nranks);
    xcclComm_t b = streams_join_more(world, rank, nranks, 1);
    xcclStream_t one = streams_create(), two = streams_create();
    int32_t values[3] = {1, 1, 1};

    if (rank) {
        XT_OK(xcclAllReduce(values + 1, values + 1, 1, xcclInt32, xcclSum, b, NULL));
        XT_CHECK(streams_await(&world->ready[7], 20));
        XT_OK(xcclAllReduce(values, values, 1, xcclInt32, xcclSum, a, NULL));
        XT_OK(xcclAllReduce(values + 2, values + 2, 1, xcclInt32, xcclSum, b, NULL));
    } else {
        XT_OK(xcclAllReduce(values, values, 1, xcclInt32, xcclSum, a, one));
        XT_OK(xcclAllReduce(values + 1, values + 1, 1, xcclInt32, xcclSum, b, two));
        XT_OK(xcclAllReduce(values + 2, values + 2, 1, xcclInt32, xcclSum, b, one));
        XT_OK(streams_poll(two));
        XT_CHECK_INT(values[1], nranks);
        XT_CHECK_RC(xcclStreamQuery(one), xcclInProgress);
        streams_set(&world->ready[7]);
        XT_OK(xcclStreamSynchronize(one));
    }
    XT_CHECK_INT(values[0], nranks);
    XT_CHECK_INT(values[2], nranks);
    XT_OK(xcclStreamDestroy(one));
    XT_OK(xcclStreamDestroy(two));
    XT_OK(xcclCommDestroy(a));
    XT_OK(xcclCommDestroy(b));
}

XT_TEST(communicators_on_different_streams_do_not_wait_for_each_other)
{
    run(2, independent, "shm");
}

/* A split comes after what its parent was given, and children have streams too. */
static void split(int rank, int nranks, void *arg)
{
    xcclComm_t comm = streams_join(arg, rank, nranks), child = NULL;
    xcclStream_t stream = streams_create();
    float *data = calloc(MANY, sizeof *data);

    XT_CHECK(data);
    fill(data, MANY, 1);
    for (int i = 0; i < 5; i++)
        XT_OK(xcclAllReduce(data, data, MANY, xcclFloat32, i ? xcclMax : xcclSum, comm, stream));
    XT_OK(xcclCommSplit(comm, rank % 2, 0, &child, NULL));
    check_all(data, MANY, (float)nranks);
    XT_OK(xcclAllReduce(data, data, MANY, xcclFloat32, xcclSum, child, stream));
    XT_OK(xcclAllReduce(data, data, MANY, xcclFloat32, xcclMax, comm, stream));
    XT_OK(xcclStreamSynchronize(stream));
    check_all(data, MANY, (float)(nranks * (nranks / 2)));
    XT_OK(xcclCommDestroy(child));
    XT_OK(xcclStreamDestroy(stream));
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

XT_TEST(split_comes_after_what_its_parent_was_given)
{
    run(4, split, "shm");
}

/* --- ranks of one process --- */

static void as_thread(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks);
    xcclStream_t stream = streams_create();
    float *data = calloc(MANY, sizeof *data);

    XT_CHECK(data);
    for (int i = 0; i < 40; i++) {
        streams_fill(data, MANY, rank);
        XT_OK(xcclAllReduce(data, data, MANY, xcclFloat32, xcclSum, comm, stream));
        XT_OK(xcclAllReduce(data, data, MANY, xcclFloat32, xcclMax, comm,
                            (i + rank) % 5 ? stream : NULL));
        XT_OK(i % 2 ? xcclStreamSynchronize(stream) : streams_poll(stream));
        streams_check(data, MANY, nranks, 1);
    }
    XT_OK(xcclStreamDestroy(stream));
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

XT_TEST_DEADLINE(ranks_that_are_threads_share_the_progress_thread, 60)
{
    xt_threads_run(RANKS, as_thread, world_create());
}

XT_TEST_DEADLINE(ranks_that_are_threads_share_the_progress_thread_over_sockets, 60)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_threads_run(RANKS, as_thread, world_create());
}

/* One thread gives operations to all ranks of a communicator, without groups and in them. */
XT_TEST(one_thread_serves_all_ranks_with_streams)
{
    xcclComm_t comms[RANKS];
    xcclStream_t streams[RANKS];
    float *data = calloc(RANKS * MANY, sizeof *data);

    xt_set_error_source(world_error);
    XT_CHECK(data);
    XT_OK(xcclCommInitAll(comms, RANKS, NULL));
    for (int r = 0; r < RANKS; r++)
        streams[r] = streams_create();
    for (int round = 0; round < 20; round++) {
        for (int r = 0; r < RANKS; r++)
            streams_fill(data + (size_t)r * MANY, MANY, r);
        if (round % 2)
            XT_OK(xcclGroupStart());
        for (int r = 0; r < RANKS; r++)
            XT_OK(xcclAllReduce(data + (size_t)r * MANY, data + (size_t)r * MANY, MANY, xcclFloat32,
                                xcclSum, comms[r], streams[round % 4 < 2 ? r : 0]));
        if (round % 2)
            XT_OK(xcclGroupEnd());
        if (round % 4 == 2) /* one behind the other on one stream: the first waits for the last */
            XT_CHECK_RC(xcclStreamQuery(streams[0]), xcclInProgress);
        if (round % 4 == 2)
            break;
        for (int r = 0; r < RANKS; r++)
            XT_OK(xcclStreamSynchronize(streams[r]));
        for (int r = 0; r < RANKS; r++)
            streams_check(data + (size_t)r * MANY, MANY, RANKS, 1);
    }
    XT_OK(xcclCommAbort(comms[0]));
    for (int r = 0; r < RANKS; r++) {
        XT_OK(xcclStreamDestroy(streams[r]));
        XT_OK(r ? xcclCommDestroy(comms[r]) : xcclSuccess);
    }
    free(data);
}
