/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams, asynchronous operations and joins in the background with each allocation failing in
 * turn: an error, nothing leaked, and what has not been refused takes place. The program holds the
 * library's stages itself, because libxccl.so does not show core/base/inject.h. */
#include "../collective/stream_world.h"
#include "base/inject.h"

#define RANKS     2
#define TURNS_MAX 400

/* Both ranks of a group, messages and calls. */
static xcclResult_t give(xcclComm_t *comms, xcclStream_t stream, int32_t (*values)[4])
{
    xcclResult_t rc;

    XT_OK(xcclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        (void)xcclSend(values[r], 1, xcclInt32, !r, comms[r], stream);
        (void)xcclRecv(values[r] + 1, 1, xcclInt32, !r, comms[r], stream);
        (void)xcclAllReduce(values[r] + 2, values[r] + 2, 1, xcclInt32, xcclSum, comms[r], stream);
    }
    rc = xcclGroupEnd();
    return rc;
}

/* 1: the k-th chance was there, and failed. */
static int try_one(uint64_t k)
{
    int32_t values[RANKS][4] = {{5, 0, 1, 0}, {7, 0, 1, 0}};
    xcclComm_t comms[RANKS];
    xcclStream_t stream = NULL;
    xcclResult_t rc;
    int failed;

    XT_OK(xcclCommInitAll(comms, RANKS, NULL));
    xccl_inject_arm(k);
    rc = xcclStreamCreate(&stream);
    XT_CHECK(!rc == (stream != NULL));
    if (!rc)
        rc = give(comms, stream, values);
    if (!rc)
        rc = xcclStreamSynchronize(stream);
    failed = xccl_inject_chances() >= k;
    xccl_inject_arm(0);
    if (rc)
        XT_CHECK(failed && rc == xcclSystemError && *xcclGetLastError(NULL));
    if (!rc)
        for (int r = 0; r < RANKS; r++)
            XT_CHECK(values[r][1] == values[!r][0] && values[r][2] == RANKS);
    if (stream)
        XT_OK(xcclStreamDestroy(stream));
    XT_OK(xcclGroupStart());
    for (int r = 0; r < RANKS; r++)
        XT_OK(xcclCommDestroy(comms[r]));
    XT_OK(xcclGroupEnd());
    return failed;
}

XT_TEST_DEADLINE(streams_and_their_work_fail_cleanly_without_memory, 120)
{
    uint64_t k = 1;

    xt_set_error_source(world_error);
    while (try_one(k) && k < TURNS_MAX)
        k++;
    XT_CHECK(k > 8 && k < TURNS_MAX);
}

/* --- joins in the background --- */

static xcclResult_t settle(xcclComm_t comm)
{
    xcclResult_t state = xcclInProgress;

    while (state == xcclInProgress) { /* bounded by the test's deadline */
        XT_OK(xcclCommGetAsyncError(comm, &state));
        sched_yield();
    }
    return state;
}

static void begin_joins(xcclComm_t *comms, const xcclUniqueId *id, int in_group)
{
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;

    config.blocking = 0;
    XT_OK(in_group ? xcclGroupStart() : xcclSuccess);
    for (int r = 0; r < RANKS; r++)
        (void)xcclCommInitRankConfig(&comms[r], RANKS, *id, r, &config);
    (void)(in_group ? xcclGroupEnd() : xcclSuccess);
}

/* The ranks of one thread, one of whose chances fails. 1: it was there. */
static int try_join(uint64_t k, int in_group)
{
    xcclComm_t comms[RANKS] = {NULL, NULL};
    xcclUniqueId id;
    int failed, joined = 0;

    XT_OK(xcclGetUniqueId(&id));
    xccl_inject_arm(k);
    begin_joins(comms, &id, in_group);
    for (int r = 0; r < RANKS; r++) {
        xcclResult_t rc = comms[r] ? settle(comms[r]) : xcclSystemError;

        XT_CHECK(!rc || *xcclGetLastError(comms[r]));
        joined += !rc;
    }
    failed = xccl_inject_chances() >= k;
    xccl_inject_arm(0);
    XT_CHECK(joined == RANKS || failed);
    for (int r = 0; r < RANKS; r++)
        XT_OK(xcclCommDestroy(comms[r]));
    return failed;
}

/* A sample: a fifth of the chances. */
static void try_joins(int in_group)
{
    uint64_t state = xt_seed(), k = 1 + xt_random(&state) % 3;

    xt_set_error_source(world_error);
    xt_setenv("XCCL_TIMEOUT_INIT_S", "2");
    while (try_join(k, in_group) && k < 5000)
        k += 1 + xt_random(&state) % 9;
    XT_CHECK(k > 50 && k < 5000);
    while (xt_threads_named("xccl-service")) /* a root stays until its deadline */
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

XT_TEST_DEADLINE(joins_in_the_background_fail_cleanly_without_memory, 200)
{
    try_joins(0);
}

XT_TEST_DEADLINE(joins_of_a_group_in_the_background_fail_cleanly_without_memory, 200)
{
    try_joins(1);
}
