/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank is killed, stopped or aborts while its kernels and those of the others are at work: during
 * calls, while a graph is replayed, and while a group of several calls is captured beside calls of
 * another stream. Communicators of 2, 3 and 5 processes at a time. The others have an error in
 * words and in time, their kernels end, and so does their communicator.
 * XT_ENDS_ROUNDS: how often, in another scene each time. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device_ranks.h"

#define COUNT  20000
#define CALLS  40 /* so many that they are at work when the rank ends */
#define GROUP  4 /* of a graph */
#define VICTIM 1
#define SIZES  3 /* communicators */
#define RANKS  5 /* at most */

enum how { KILLED, STOPPED, ABORTED };
enum scene { DURING_CALLS, DURING_REPLAYS, DURING_A_CAPTURE, SCENES };

struct scenario {
    struct world *world;
    enum how how;
    enum scene scene;
    int nranks;
    uint64_t random; /* draws when */
    _Atomic double ended_at; /* for the victim */
};

/* Words of the error texts, beside the rank. */
static const char *const words[] = {
    [KILLED] = "is gone", [STOPPED] = "does not respond", [ABORTED] = "aborted the communicator"};

static double limit_of(enum how how)
{
    return how == STOPPED ? xt_bound(5, 8) : xt_bound(1, 3);
}

static xcclResult_t call(struct on_device *on, xccl_cu_stream stream)
{
    return xcclAllReduce(at(on->in, 0), at(on->out, 0), COUNT, xcclInt32, xcclSum, on->comm,
                         stream);
}

/* The rest of a rank that has failed may fail too. */
static xcclResult_t call_many(struct on_device *on)
{
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < CALLS && !rc; i++)
        rc = call(on, on->stream);
    return rc;
}

static xcclResult_t capture(struct on_device *on, xccl_cu_stream stream, xccl_cu_graph *graph_out)
{
    xcclResult_t rc = xcclSuccess, ended;

    CU(cuda->stream_begin_capture(stream, XCCL_CU_CAPTURE_MODE_RELAXED));
    for (int k = 0; k < 3 && !rc; k++) {
        XT_OK(xcclGroupStart());
        for (int i = 0; i < GROUP && !rc; i++)
            rc = call(on, stream);
        ended = xcclGroupEnd();
        rc = rc ? rc : ended;
    }
    CU(cuda->stream_end_capture(stream, graph_out));
    return rc;
}

static xcclResult_t replay(struct on_device *on)
{
    xccl_cu_graph_exec exec;
    xccl_cu_graph graph;
    xcclResult_t rc = capture(on, on->stream, &graph);

    if (rc) /* the others may have been quicker */
        return rc;
    CU(cuda->graph_instantiate(&exec, graph, 0));
    for (int i = 0; i < CALLS / GROUP; i++)
        CU(cuda->graph_launch(exec, on->stream));
    return rc;
}

/* Graphs of which some calls have failed are not used. */
static xcclResult_t capture_on(struct on_device *on)
{
    xcclResult_t rc = call_many(on);
    xccl_cu_stream other;
    xccl_cu_graph graph;
    double until = xt_seconds() + 10;

    CU(cuda->stream_create(&other, XCCL_CU_STREAM_NON_BLOCKING));
    while (!rc && xt_seconds() < until) {
        rc = capture(on, other, &graph);
        CU(cuda->graph_destroy(graph));
    }
    return rc;
}

static xcclResult_t act(struct on_device *on, enum scene scene)
{
    if (scene == DURING_CALLS)
        return call_many(on);
    return scene == DURING_REPLAYS ? replay(on) : capture_on(on);
}

/* In the middle of its kernels. */
static void end_victim(struct scenario *scenario, struct on_device *on)
{
    enum scene scene = scenario->scene == DURING_A_CAPTURE ? DURING_CALLS : scenario->scene;

    XT_OK(act(on, scene));
    usleep((unsigned)(xt_random(&scenario->random) % 20000));
    XT_CHECK_INT(cuda->stream_query(on->stream), XCCL_CU_NOT_READY);
    atomic_store_explicit(&scenario->ended_at, xt_seconds(), memory_order_relaxed);
    if (scenario->how == KILLED)
        raise(SIGKILL);
    if (scenario->how == STOPPED)
        raise(SIGSTOP);
    XT_OK(xcclCommAbort(on->comm));
    XT_CHECK(xt_seconds() - atomic_load_explicit(&scenario->ended_at, memory_order_relaxed) <
             xt_bound(2, 10));
    _exit(0);
}

/* Until the communicator has failed, however long the victim takes to end. */
static double await_error(struct scenario *scenario, struct on_device *on, xcclResult_t *rc_out)
{
    double start = xt_seconds();

    for (*rc_out = xcclSuccess; !*rc_out; usleep(500)) {
        XT_OK(xcclCommGetAsyncError(on->comm, rc_out));
        XT_CHECK(xt_seconds() - start < 25);
    }
    return xt_seconds() - atomic_load_explicit(&scenario->ended_at, memory_order_relaxed);
}

static void survive(struct scenario *scenario, struct on_device *on, int rank)
{
    xcclResult_t rc = act(on, scenario->scene), error;
    double took = await_error(scenario, on, &error), start = xt_seconds();
    const char *text = xcclGetLastError(on->comm);

    if (took > limit_of(scenario->how))
        XT_FAIL("rank %d of %d, scene %d: %.2f s: %s", rank, scenario->nranks, (int)scenario->scene,
                took, text);
    XT_CHECK_INT(error, xcclRemoteError);
    XT_CHECK(!rc || rc == error);
    XT_CHECK_HAS(text, "rank 1 (");
    XT_CHECK_HAS(text, words[scenario->how]);
    while (cuda->stream_query(on->stream) == XCCL_CU_NOT_READY)
        XT_CHECK(xt_seconds() - start < xt_bound(1, 10)); /* the stand-in wants cores */
    XT_OK(xcclCommDestroy(on->comm));
}

static void act_as(int rank, int nranks, void *arg)
{
    struct scenario *scenario = arg;
    struct on_device on;

    device_settings("p2p");
    device_open();
    device_make(&on, COUNT * 4);
    on.comm = world_join(scenario->world, rank, nranks);
    device_put(&on, COUNT, rank, 0);
    XT_OK(call(&on, on.stream)); /* makes links */
    CU(cuda->stream_sync(on.stream));
    world_meet(scenario->world, nranks);
    if (rank == VICTIM)
        end_victim(scenario, &on);
    survive(scenario, &on, rank);
    fflush(NULL);
    _exit(0); /* what the driver keeps is not looked at */
}

/* --- the parent's part --- */

static struct scenario *scenario_create(enum how how, int size, uint64_t round)
{
    static const int sizes[SIZES] = {2, 3, 5};
    struct scenario *scenario = mmap(NULL, sizeof *scenario, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    XT_CHECK(scenario != MAP_FAILED);
    scenario->world = world_create();
    scenario->how = how;
    scenario->scene = (enum scene)((xt_seed() + round + (uint64_t)size) % SCENES);
    scenario->nranks = sizes[size];
    scenario->random = xt_seed() + round * SIZES + (uint64_t)size;
    return scenario;
}

/* A process that was stopped does not end by itself. */
static void check_ended(struct xt_mp *mp, const struct scenario *scenario)
{
    int statuses[RANKS];

    for (int r = 0; r < scenario->nranks; r++)
        if (r != VICTIM)
            (void)waitid(P_PID, (id_t)xt_mp_pid(mp, r), &(siginfo_t){0}, WEXITED | WNOWAIT);
    if (scenario->how == STOPPED)
        xt_mp_kill(mp, VICTIM, SIGKILL);
    xt_mp_wait(mp, statuses);
    for (int r = 0; r < scenario->nranks; r++)
        if (r != VICTIM || scenario->how == ABORTED)
            XT_CHECK_INT(statuses[r], 0);
    munmap(scenario->world, sizeof *scenario->world);
}

static void end_one(enum how how)
{
    const char *text = getenv("XT_ENDS_ROUNDS");
    uint64_t rounds = text ? strtoull(text, NULL, 0) : 1;

    need_stand_in("it takes calls that are slow");
    for (uint64_t round = 0; round < rounds; round++) {
        struct scenario *scenarios[SIZES];
        struct xt_mp *mps[SIZES];

        for (int i = 0; i < SIZES; i++) {
            scenarios[i] = scenario_create(how, i, round);
            mps[i] = xt_mp_start(scenarios[i]->nranks, act_as, scenarios[i]);
        }
        for (int i = 0; i < SIZES; i++)
            check_ended(mps[i], scenarios[i]);
    }
}

XT_TEST_DEADLINE(a_rank_is_killed_amid_its_kernels, 60)
{
    end_one(KILLED);
}

XT_TEST_DEADLINE(a_rank_is_stopped_amid_its_kernels, 60)
{
    end_one(STOPPED);
}

XT_TEST_DEADLINE(a_rank_aborts_amid_its_kernels, 60)
{
    end_one(ABORTED);
}
