/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank whose call has returned may compute for as long as it likes: what its plugin still holds
 * is delivered by the service thread, so its peers end that call as well. The plugin that needs it
 * is tests/fixtures/net_manual.c, whose sends go out only when it is called, FX_MANUAL_HOLD_MS
 * after they were posted. */
#include "../collective/world.h"

#include <signal.h>
#include <sys/wait.h>

#define FIXTURES XT_BUILD_DIR "/lib/fixtures/"
#define MANUAL   FIXTURES "libxccl-net-fx-manual.so"
#define NCCL_V8  FIXTURES "libnccl-net-fx-v8.so"
#define NCCL_V12 FIXTURES "libnccl-net-fx-v12.so"

/* From the return of the passive rank to the end of its peer's call, where a core is free. */
#if defined(XCCL_SANITIZED)
#define WITHIN_MS 200
#else
#define WITHIN_MS 50
#endif

#define ROUNDS 20

/* Calls after which rank 0 computes, and for how long. */
#define CALLS     4
#define COMPUTE_S 0.75

struct passive {
    struct world world;
    const char *plugin, *hold_ms; /* hold_ms: of rank 0, or of all */
    size_t count;
    int hold_all;
    _Atomic int calling[ROUNDS], ended[ROUNDS]; /* of rank 1, by round */
    double returned_s[ROUNDS], ended_s[ROUNDS]; /* rank 0's return, rank 1's end */
    _Atomic int named; /* ranks whose error names the killed one */
};

static struct passive *passive_create(const char *plugin, const char *hold_ms, size_t count)
{
    struct passive *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                             -1, 0);

    XT_CHECK(p != MAP_FAILED);
    xt_set_error_source(world_error);
    p->plugin = plugin;
    p->hold_ms = hold_ms;
    p->count = count;
    return p;
}

static void choose(const struct passive *p, int rank)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_NET_PLUGIN", p->plugin);
    if (rank == 0 || p->hold_all)
        xt_setenv("FX_MANUAL_HOLD_MS", p->hold_ms);
}

static void await(_Atomic int *flag)
{
    /* Acquire: pairs with the release stores of these flags. Bounded by the test's deadline. */
    while (!atomic_load_explicit(flag, memory_order_acquire))
        sched_yield();
}

static void compute_until(double end_s)
{
    volatile unsigned work = 0; /* tidy: allow volatile because the loop is to be kept */

    while (world_seconds() < end_s)
        work = work + 1;
}

/* One call of ones. Rank 0 begins it when rank 1 is at it, so rank 1's data come first and rank 0
 * returns while its plugin still holds its own. */
static void call_round(struct passive *p, xcclComm_t comm, int rank, int round)
{
    float *data = malloc(p->count * sizeof *data);

    XT_CHECK(data);
    for (size_t i = 0; i < p->count; i++)
        data[i] = 1;
    if (rank == 0)
        await(&p->calling[round]);
    else
        atomic_store_explicit(&p->calling[round], 1, memory_order_release);
    XT_OK(xcclAllReduce(data, data, p->count, xcclFloat32, xcclSum, comm, NULL));
    (rank == 0 ? p->returned_s : p->ended_s)[round] = world_seconds();
    if (rank == 1)
        atomic_store_explicit(&p->ended[round], 1, memory_order_release);
    for (size_t i = 0; i < p->count; i++)
        XT_CHECK(data[i] == 2);
    free(data);
}

static double late_ms(const struct passive *p, int round)
{
    return (p->ended_s[round] - p->returned_s[round]) * 1e3;
}

/* --- computing after a call --- */

static void call_and_compute(int rank, int nranks, void *arg)
{
    struct passive *p = arg;
    xcclComm_t comm;

    choose(p, rank);
    comm = world_join(&p->world, rank, nranks);
    for (int round = 0; round < CALLS; round++) {
        call_round(p, comm, rank, round);
        if (rank == 0)
            compute_until(p->returned_s[round] + COMPUTE_S);
    }
    XT_OK(xcclCommDestroy(comm));
}

/* Each call ends while rank 0 still computes. How soon, the quickest tells: in the others, programs
 * beside this one may have had the cores. */
static void peer_ends_in_time(const char *plugin, size_t count)
{
    struct passive *p = passive_create(plugin, "10", count);
    double least_ms = COMPUTE_S * 1e3;

    xt_mp_run(2, call_and_compute, p);
    for (int round = 0; round < CALLS; round++) {
        if (late_ms(p, round) > 0.9e3 * COMPUTE_S)
            XT_FAIL("call %d: the peer ended %.1f ms after the other rank's return", round,
                    late_ms(p, round));
        least_ms = late_ms(p, round) < least_ms ? late_ms(p, round) : least_ms;
    }
    if (least_ms > WITHIN_MS)
        XT_FAIL("the peer ended its calls %.1f ms or more after the other rank's return", least_ms);
}

XT_TEST(peer_of_a_computing_rank_ends_its_call_over_sockets)
{
    peer_ends_in_time("socket", 100);
}
XT_TEST(peer_of_a_computing_rank_ends_its_call_over_a_plugin_that_needs_progress)
{
    peer_ends_in_time(MANUAL, 100);
}
XT_TEST(peer_of_a_computing_rank_ends_its_large_call_over_a_plugin_that_needs_progress)
{
    peer_ends_in_time(MANUAL, 200000);
}
/* NCCL's contract does not say who delivers by itself, so all of its plugins count as in need. */
XT_TEST(peer_of_a_computing_rank_ends_its_call_over_a_plugin_of_nccl)
{
    peer_ends_in_time(NCCL_V8, 100);
    peer_ends_in_time(NCCL_V12, 200000);
}
XT_TEST(peer_of_a_computing_rank_ends_its_call_over_a_plugin_that_is_often_busy)
{
    peer_ends_in_time("fault:socket", 100);
}

/* Rank 0 makes no library call before rank 1 has ended the round. */
static void call_and_watch(int rank, int nranks, void *arg)
{
    struct passive *p = arg;
    xcclComm_t comm;

    choose(p, rank);
    comm = world_join(&p->world, rank, nranks);
    for (int round = 0; round < ROUNDS; round++) {
        call_round(p, comm, rank, round);
        if (rank == 0)
            await(&p->ended[round]);
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(undelivered_sends_go_out_after_the_return_of_their_call)
{
    struct passive *p = passive_create(MANUAL, "10", 1000);
    int after = 0;

    xt_mp_run(2, call_and_watch, p);
    for (int round = 0; round < ROUNDS; round++)
        after += late_ms(p, round) > 1;
    XT_CHECK(after > 0); /* else the rounds above show nothing */
}

/* --- leaving and aborting with undelivered sends --- */

static void call_and_leave(int rank, int nranks, void *arg)
{
    struct passive *p = arg;

    choose(p, rank);
    for (int round = 0; round < 4; round++) {
        xcclComm_t comm = NULL;

        XT_OK(xcclCommInitRank(&comm, nranks, world_id(&p->world, rank, round), rank));
        call_round(p, comm, rank, round);
        XT_OK(xcclCommDestroy(comm));
    }
}

XT_TEST(destroy_delivers_what_is_pending)
{
    xt_mp_run(2, call_and_leave, passive_create(MANUAL, "30", 1000));
}

/* The plugin holds posted messages for HOLD_S; an abort must not wait for them. */
#define HOLD_S  5
#define HOLD_MS "5000"

static void call_and_abort(int rank, int nranks, void *arg)
{
    struct passive *p = arg;
    float data[10] = {0};
    double start_s;
    xcclComm_t comm;

    choose(p, rank);
    comm = world_join(&p->world, rank, nranks);
    if (rank == 0) {
        await(&p->calling[0]);
        XT_OK(xcclAllReduce(data, data, 10, xcclFloat32, xcclSum, comm, NULL));
        start_s = world_seconds();
        XT_OK(xcclCommAbort(comm));
        XT_CHECK(world_seconds() - start_s < HOLD_S / 2.0);
        XT_CHECK_RC(xcclAllReduce(data, data, 10, xcclFloat32, xcclSum, comm, NULL),
                    xcclRemoteError); /* late, as another thread's call may be */
        return;
    }
    atomic_store_explicit(&p->calling[0], 1, memory_order_release);
    XT_CHECK_RC(xcclAllReduce(data, data, 10, xcclFloat32, xcclSum, comm, NULL), xcclRemoteError);
    XT_CHECK_HAS(xcclGetLastError(comm), "aborted the communicator");
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(abort_waits_for_no_delivery)
{
    xt_mp_run(2, call_and_abort, passive_create(MANUAL, HOLD_MS, 10));
}

/* Rank 0's call returns, and only then does its plugin find that it cannot deliver. */
static void call_and_fail(int rank, int nranks, void *arg)
{
    struct passive *p = arg;
    float data[10] = {0};
    xcclComm_t comm;

    choose(p, rank);
    if (rank == 0)
        xt_setenv("FX_MANUAL_FAIL", "1");
    comm = world_join(&p->world, rank, nranks);
    if (rank == 0) {
        await(&p->calling[0]);
        XT_OK(xcclAllReduce(data, data, 10, xcclFloat32, xcclSum, comm, NULL));
        await(&p->ended[0]);
    }
    atomic_store_explicit(&p->calling[0], 1, memory_order_release);
    XT_CHECK_RC(xcclAllReduce(data, data, 10, xcclFloat32, xcclSum, comm, NULL), xcclSystemError);
    XT_CHECK_HAS(xcclGetLastError(comm), "rank 0 (host ");
    XT_CHECK_HAS(xcclGetLastError(comm), "): network plugin fx-manual cannot deliver");
    XT_CHECK_HAS(xcclGetLastError(comm), "told to fail");
    atomic_store_explicit(&p->ended[0], 1, memory_order_release);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(plugin_that_cannot_deliver_fails_the_communicator_on_all_ranks)
{
    xt_mp_run(2, call_and_fail, passive_create(MANUAL, "5000", 10));
}

/* --- calls in a row --- */

static void many_calls(int rank, int nranks, void *arg)
{
    static const size_t counts[] = {0, 1, 13, 100, 2049, 70000, 300001};
    struct passive *p = arg;
    xcclComm_t comm;

    choose(p, rank);
    if (p->world.param && rank != 2)
        xt_setenv("XCCL_SHM_DISABLE", NULL);
    if (p->world.text)
        xt_setenv("XCCL_ALGO", p->world.text);
    comm = world_join(&p->world, rank, nranks);
    for (int round = 0; round < 70; round++) {
        struct world_case c = {.count = counts[round % 7],
                               .round = round,
                               .type = round & 1 ? xcclInt32 : xcclFloat32,
                               .in_place = round % 3 == 0};

        world_all_reduce(comm, rank, nranks, &c);
    }
    XT_OK(xcclCommDestroy(comm));
}

static void in_a_row(int nranks, const char *hold_ms, int mixed, const char *algo)
{
    struct passive *p = passive_create(MANUAL, hold_ms, 0);

    p->hold_all = 1;
    p->world.param = mixed;
    p->world.text = algo;
    xt_mp_run(nranks, many_calls, p);
}

XT_TEST(calls_in_a_row_give_the_right_data)
{
    in_a_row(2, "0", 0, NULL);
}
XT_TEST(calls_in_a_row_give_the_right_data_while_sends_are_held)
{
    in_a_row(3, "1", 0, NULL);
}
/* Ranks 0 and 1 share memory: rank 1 waits for rank 0, which waits, by way of rank 2, for what rank
 * 1's plugin holds. Only the wait itself can deliver it. */
XT_TEST(waiting_over_shared_memory_delivers_too)
{
    in_a_row(3, "1", 1, "ring");
}

/* --- two callers --- */

struct callers {
    struct passive *p;
    xcclComm_t comm;
    _Atomic int refused;
};

/* Whoever comes first waits inside, since rank 1 calls only when the other has been refused. */
static void two_callers(int thread, int nthreads, void *arg)
{
    struct callers *callers = arg;
    float value = 1;
    xcclResult_t rc;

    (void)thread, (void)nthreads;
    rc = xcclAllReduce(&value, &value, 1, xcclFloat32, xcclSum, callers->comm, NULL);
    if (rc == xcclSuccess) {
        XT_CHECK(value == 2);
        return;
    }
    XT_CHECK_RC(rc, xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "another thread is using this communicator");
    atomic_fetch_add_explicit(&callers->refused, 1, memory_order_relaxed);
    atomic_store_explicit(&callers->p->calling[0], 1, memory_order_release);
}

static void second_caller(int rank, int nranks, void *arg)
{
    struct callers callers = {.p = arg};
    float value = 1;

    choose(callers.p, rank);
    callers.comm = world_join(&callers.p->world, rank, nranks);
    if (rank == 0) {
        xt_threads_run(2, two_callers, &callers);
        XT_CHECK_INT(atomic_load_explicit(&callers.refused, memory_order_relaxed), 1);
    } else {
        await(&callers.p->calling[0]);
        XT_OK(xcclAllReduce(&value, &value, 1, xcclFloat32, xcclSum, callers.comm, NULL));
    }
    XT_OK(xcclCommDestroy(callers.comm));
}

XT_TEST(second_caller_is_told_from_the_service_thread)
{
    xt_mp_run(2, second_caller, passive_create(MANUAL, "1", 1));
}

/* --- a dead peer --- */

static void call_until_error(int rank, int nranks, void *arg)
{
    struct passive *p = arg;
    float data[10] = {0};
    xcclResult_t rc = xcclSuccess;
    xcclComm_t comm;

    choose(p, rank);
    comm = world_join(&p->world, rank, nranks);
    while (!rc) {
        rc = xcclAllReduce(data, data, 10, xcclFloat32, xcclSum, comm, NULL);
        atomic_fetch_add_explicit(&p->world.arrived, 1, memory_order_relaxed);
    }
    XT_CHECK_RC(rc, xcclRemoteError);
    XT_CHECK_HAS(xcclGetLastError(comm), "rank 2 (host ");
    atomic_fetch_add_explicit(&p->named, 1, memory_order_relaxed);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(killed_rank_is_named_over_a_plugin_that_needs_progress)
{
    struct passive *p = passive_create(MANUAL, "1", 10);
    struct xt_mp *mp;
    int statuses[3];

    p->hold_all = 1;
    mp = xt_mp_start(3, call_until_error, p);
    while (atomic_load_explicit(&p->world.arrived, memory_order_relaxed) < 60)
        sched_yield(); /* bounded by the test's deadline */
    xt_mp_kill(mp, 2, SIGKILL);
    xt_mp_wait(mp, statuses);
    XT_CHECK_INT(statuses[0], 0);
    XT_CHECK_INT(statuses[1], 0);
    XT_CHECK_INT(atomic_load_explicit(&p->named, memory_order_relaxed), 2);
}
