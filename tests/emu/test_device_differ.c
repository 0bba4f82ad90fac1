/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of CUDA communicators that do not belong together, drawn by a seed: one rank, the odd one,
 * calls something other than the rest, or nothing. All ranks have to fail in time, whatever they do
 * meanwhile, with one text that names two calls and the ranks that made them, both as they were;
 * one or two further communicators of the ranks go on beside it.
 *
 * Every case has communicators of its own, split from one that stays whole. Those that have failed
 * are destroyed together, for the end of one that has just failed gives others time to notice.
 * XT_MISMATCH_RUNS: cases of each test, one of each class in turn. XT_MISMATCH_CLASS: one class. */
#include <unistd.h>

#define FEW 1 /* case of a test by default */
#include "device_unlike.h"

#define COMMS_MOST   3
#define BUFFER_BYTES (UNLIKE_RANKS_MAX * 14000 * 8)
#define AT_ONCE_S    1.0 /* a mismatch is an error within so many seconds */
#define BUSY_S       4.0 /* longer, beside other programs */
#define FOLLOWING    3 /* right calls after the pair, until one fails */
#define BEFORE_MOST  5 /* right calls before it, which may still be at work */
#define DELAY_MAX_US 3000
#define SMALL        16 /* elements of a right call */
#define ENDED_MOST   8 /* communicators that have failed and are kept */

/* The first ones are those of enum unlike. */
#define ONE_CALL_FEWER UNLIKE_COUNT
#define CLASS_COUNT    (UNLIKE_COUNT + 1)

enum after { AFTER_CALLS, AFTER_NOTHING, AFTER_LEAVING, AFTER_NEW_LINKS, AFTER_COUNT };

static const char *const class_names[CLASS_COUNT] = {
    "other_root",     "other_count",      "nothing_or_some", "other_type",
    "other_operator", "other_collective", "one_call_fewer"};

struct drawn {
    int class, comms, before, odd;
    int warm; /* the calls were made before, rightly, so that all links are there */
    int replays; /* the call is captured in a graph, which is launched */
    enum after after;
    struct act acts[UNLIKE_RANKS_MAX];
    unsigned delay_us[UNLIKE_RANKS_MAX];
};

/* One rank's communicators in a case; the first one fails. */
struct rank {
    struct page *page;
    int rank, nranks;
    struct on_device on[COMMS_MOST];
    xcclComm_t whole, ended[ENDED_MOST];
    int ended_count;
};

static double bound(void)
{
    return xt_bound(AT_ONCE_S, AT_ONCE_S + BUSY_S);
}

/* --- drawing --- */

static int class_of(uint64_t number)
{
    const char *only = getenv("XT_MISMATCH_CLASS");

    for (int i = 0; only && i < CLASS_COUNT; i++)
        if (!strcmp(only, class_names[i]))
            return i;
    return (int)(number % CLASS_COUNT);
}

static void draw(struct drawn *drawn, uint64_t seed, int nranks)
{
    uint64_t random = seed;
    struct act even, odd;

    drawn->class = class_of(seed ^ seed >> 32);
    drawn->odd = (int)(xt_random(&random) % (unsigned)nranks);
    drawn->comms = 1 + (int)(xt_random(&random) % COMMS_MOST);
    drawn->before = (int)(xt_random(&random) % (BEFORE_MOST + 1));
    drawn->warm = (int)(xt_random(&random) % 2);
    drawn->replays = drawn->warm && xt_random(&random) % 3 == 0;
    drawn->after = (enum after)(xt_random(&random) % AFTER_COUNT);
    for (int i = 0; i < nranks; i++)
        drawn->delay_us[i] = (unsigned)(xt_random(&random) % DELAY_MAX_US);
    if (drawn->class == ONE_CALL_FEWER) {
        even = draw_collective(&random, nranks);
        while (is_rooted(even.coll)) /* it may end without the odd one */
            even = draw_collective(&random, nranks);
        odd = (struct act){.kind = LEAVE};
    } else {
        unlike_draw((enum unlike)drawn->class, &random, nranks, &even, &odd);
    }
    for (int i = 0; i < nranks; i++)
        drawn->acts[i] = i == drawn->odd ? odd : even;
}

/* --- one case --- */

static xcclResult_t right_call(struct on_device *on)
{
    return xcclAllReduce(at(on->in, 0), at(on->out, 0), SMALL, xcclInt32, xcclSum, on->comm,
                         on->stream);
}

/* One whose links may have to be made first. */
static xcclResult_t new_call(struct on_device *on)
{
    return xcclAllGather(at(on->in, 0), at(on->out, 0), SMALL, xcclInt32, on->comm, on->stream);
}

/* The communicators beside the one that fails. */
static void call_others(struct rank *rank, const struct drawn *drawn)
{
    for (int c = 1; c < drawn->comms; c++)
        XT_OK(right_call(&rank->on[c]));
}

static void check_others(struct rank *rank, const struct drawn *drawn)
{
    for (int c = 1; c < drawn->comms; c++) {
        xcclResult_t rc;

        CHECK_EACH(&rank->on[c], SMALL, sum_of(rank->nranks, i, c));
        XT_OK(xcclCommGetAsyncError(rank->on[c].comm, &rc));
        XT_OK(rc);
    }
}

static xcclResult_t act(const struct act *act, struct on_device *on)
{
    return act->kind == LEAVE
               ? xcclSuccess
               : unlike_call(act, on->comm, at(on->in, 0), at(on->out, 0), on->stream);
}

/* By way of a graph, which stays until the communicator has ended. */
static xcclResult_t replay(const struct act *what, struct on_device *on)
{
    xccl_cu_graph_exec exec;
    xccl_cu_graph graph;
    xcclResult_t rc;

    CU(cuda->stream_begin_capture(on->stream, XCCL_CU_CAPTURE_MODE_RELAXED));
    rc = act(what, on);
    CU(cuda->stream_end_capture(on->stream, &graph));
    if (rc)
        return rc;
    CU(cuda->graph_instantiate(&exec, graph, 0));
    CU(cuda->graph_launch(exec, on->stream));
    CU(cuda->graph_exec_destroy(exec));
    CU(cuda->graph_destroy(graph));
    return xcclSuccess;
}

static void warm_up(const struct drawn *drawn, struct rank *rank)
{
    for (int i = 0; i < rank->nranks; i++)
        XT_OK(act(&drawn->acts[i], &rank->on[0]));
    CU(cuda->stream_sync(rank->on[0].stream));
}

/* Does what follows until the error is there, or for as long as it may take. */
static xcclResult_t follow(const struct drawn *drawn, struct rank *rank)
{
    double until = xt_seconds() + bound();
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; drawn->after == AFTER_CALLS && i < FOLLOWING && !rc; i++)
        rc = right_call(&rank->on[0]);
    if (drawn->after == AFTER_NEW_LINKS)
        rc = new_call(&rank->on[0]);
    while (!rc && xt_seconds() < until) {
        usleep(1000);
        XT_OK(xcclCommGetAsyncError(rank->on[0].comm, &rc));
    }
    return rc;
}

static void keep_text(struct outcome *outcome, xcclComm_t comm)
{
    snprintf(outcome->text, sizeof outcome->text, "%s", xcclGetLastError(comm));
}

static int leaves(const struct drawn *drawn, int rank)
{
    if (drawn->class == ONE_CALL_FEWER)
        return rank == drawn->odd;
    return drawn->after == AFTER_LEAVING;
}

/* Kernels of a communicator that has failed end. */
static void await_stream(struct on_device *on)
{
    double start = xt_seconds();

    while (cuda->stream_query(on->stream) == XCCL_CU_NOT_READY)
        XT_CHECK(xt_seconds() - start < 20);
}

static void run_pair(const struct drawn *drawn, struct rank *rank)
{
    struct outcome *outcome = &rank->page->outcomes[rank->rank];
    const struct act *own = &drawn->acts[rank->rank];
    struct on_device *on = &rank->on[0];
    double began = xt_seconds();

    *outcome = (struct outcome){.rc = xcclSuccess};
    usleep(drawn->delay_us[rank->rank]);
    for (int i = 0; i < drawn->before; i++)
        XT_OK(right_call(on));
    outcome->rc = drawn->replays && own->kind == COLLECTIVE ? replay(own, on) : act(own, on);
    call_others(rank, drawn);
    if (!outcome->rc && !leaves(drawn, rank->rank))
        outcome->rc = follow(drawn, rank);
    outcome->seconds = xt_seconds() - began;
    if (outcome->rc)
        keep_text(outcome, on->comm);
    if (outcome->rc || !leaves(drawn, rank->rank)) {
        rank->ended[rank->ended_count++] = on->comm;
    } else {
        outcome->rc = xcclCommDestroy(on->comm);
        outcome->seconds = xt_seconds() - began;
        if (outcome->rc)
            keep_text(outcome, NULL);
    }
    await_stream(on);
}

static void destroy_ended(struct rank *rank)
{
    while (rank->ended_count)
        (void)xcclCommDestroy(rank->ended[--rank->ended_count]);
}

static void run_case(const struct drawn *drawn, struct rank *rank)
{
    if (rank->ended_count == ENDED_MOST)
        destroy_ended(rank);
    for (int c = 0; c < drawn->comms; c++) {
        XT_OK(xcclCommSplit(rank->whole, 0, rank->rank, &rank->on[c].comm, NULL));
        device_put(&rank->on[c], SMALL, rank->rank, c);
    }
    if (drawn->warm)
        warm_up(drawn, rank);
    gate(rank->page, rank->rank, rank->nranks);
    run_pair(drawn, rank);
    check_others(rank, drawn);
    for (int c = 1; c < drawn->comms; c++)
        XT_OK(xcclCommDestroy(rank->on[c].comm));
}

/* --- the verdict --- */

static const char *judge_one(const struct drawn *drawn, const struct outcome *outcome, int nranks)
{
    if (!outcome->rc)
        return "no error";
    if (outcome->seconds > bound())
        return "late";
    if (drawn->class == ONE_CALL_FEWER)
        return strstr(outcome->text, "has left") ? NULL : "it does not say who has left";
    if (outcome->rc != xcclInvalidUsage)
        return "another result";
    /* Ranks may meet, and differ, where links are made for what follows. */
    if (drawn->after == AFTER_NEW_LINKS && strstr(outcome->text, "ranks disagree") &&
        strstr(outcome->text, "all-gather of 16 int32"))
        return NULL;
    return unlike_text(drawn->acts, outcome->text, nranks);
}

static void show(const struct drawn *drawn, const struct page *page, int nranks, uint64_t seed,
                 int rank, const char *why)
{
    printf("FAIL %s by %s, %d ranks, case seed %#llx, %d communicators, %d calls before, after %d, "
           "warm %d, replays %d: rank %d: %s\n",
           class_names[drawn->class], page->way, nranks, (unsigned long long)seed, drawn->comms,
           drawn->before, (int)drawn->after, drawn->warm, drawn->replays, rank, why);
    unlike_show(page, drawn->acts, drawn->delay_us, nranks);
}

/* All ranks fail. Of those that leave right after the pair one at least. */
static int judge(const struct drawn *drawn, const struct page *page, int nranks, uint64_t seed)
{
    int errors = 0;

    for (int i = 0; i < nranks; i++) {
        const struct outcome *outcome = &page->outcomes[i];
        const char *why;

        errors += outcome->rc != xcclSuccess;
        if (leaves(drawn, i) && !outcome->rc)
            continue;
        why = judge_one(drawn, outcome, nranks);
        if (!why)
            continue;
        show(drawn, page, nranks, seed, i, why);
        return 1;
    }
    if (!errors)
        show(drawn, page, nranks, seed, -1, "no error on any rank");
    return !errors;
}

/* --- ranks that are processes or threads --- */

static void run_cases(int number, int nranks, void *arg)
{
    struct page *page = arg;
    struct rank *rank = calloc(1, sizeof *rank);
    xccl_cu_ctx ctx;

    XT_CHECK(rank != NULL);
    rank->page = page;
    rank->rank = number;
    rank->nranks = nranks;
    CU(cuda->ctx_retain(&ctx, 0));
    CU(cuda->ctx_set(ctx));
    rank->whole = world_join(&page->world, number, nranks);
    for (int c = 0; c < COMMS_MOST; c++)
        device_make(&rank->on[c], c ? SMALL * 4 : BUFFER_BYTES);
    for (int i = 0; i < page->runs; i++) {
        uint64_t seed = page->seed + (uint64_t)i;
        struct drawn drawn = {0};

        draw(&drawn, seed, nranks);
        run_case(&drawn, rank);
        gate(rank->page, rank->rank, rank->nranks);
        if (number == 0)
            page->failed += judge(&drawn, page, nranks, seed);
        gate(rank->page, rank->rank, rank->nranks);
    }
    destroy_ended(rank);
    XT_OK(xcclCommDestroy(rank->whole));
    for (int c = 0; c < COMMS_MOST; c++)
        device_free(&rank->on[c]);
    free(rank);
}

/* --- ranks of one thread --- */

/* All of them call in one group, each on its stream or all on one. */
static void group_call(const struct drawn *drawn, struct on_device *ons, int nranks, int one_stream,
                       struct page *page)
{
    double began = xt_seconds();
    xcclResult_t rc = xcclSuccess;

    XT_OK(xcclGroupStart());
    for (int r = 0; r < nranks; r++) {
        struct on_device on = ons[r];

        on.stream = ons[one_stream ? 0 : r].stream;
        for (int i = 0; i < drawn->before; i++)
            XT_OK(right_call(&on));
        XT_OK(act(&drawn->acts[r], &on));
    }
    (void)xcclGroupEnd();
    for (int r = 0; r < nranks; r++) {
        struct outcome *outcome = &page->outcomes[r];

        for (rc = xcclSuccess; !rc && xt_seconds() - began < bound(); usleep(1000))
            XT_OK(xcclCommGetAsyncError(ons[r].comm, &rc));
        outcome->rc = rc;
        outcome->seconds = xt_seconds() - began;
        outcome->text[0] = 0;
        if (rc)
            keep_text(outcome, ons[r].comm);
    }
    for (int r = 0; r < nranks; r++)
        await_stream(&ons[r]);
}

static void group_warm_up(const struct drawn *drawn, struct on_device *ons, int nranks)
{
    for (int i = 0; i < nranks; i++) {
        XT_OK(xcclGroupStart());
        for (int r = 0; r < nranks; r++)
            XT_OK(act(&drawn->acts[i], &ons[r]));
        XT_OK(xcclGroupEnd());
    }
    for (int r = 0; r < nranks; r++)
        CU(cuda->stream_sync(ons[r].stream));
}

static void group_case(struct page *page, struct on_device *ons, int nranks, uint64_t seed)
{
    int devices[UNLIKE_RANKS_MAX] = {0};
    xcclComm_t comms[UNLIKE_RANKS_MAX];
    struct drawn drawn = {0};

    draw(&drawn, seed, nranks);
    if (drawn.class == ONE_CALL_FEWER) /* nobody leaves within a group */
        return;
    drawn.after = AFTER_NOTHING;
    drawn.replays = 0;
    XT_OK(xcclCommInitAll(comms, nranks, devices));
    for (int r = 0; r < nranks; r++) {
        ons[r].comm = comms[r];
        device_put(&ons[r], SMALL, r, 0);
    }
    if (drawn.warm)
        group_warm_up(&drawn, ons, nranks);
    group_call(&drawn, ons, nranks, seed % 2 == 0, page);
    page->failed += judge(&drawn, page, nranks, seed);
    XT_OK(xcclGroupStart());
    for (int r = 0; r < nranks; r++)
        XT_OK(xcclCommDestroy(comms[r]));
    XT_OK(xcclGroupEnd());
}

static void one_thread(int nranks, uint64_t number)
{
    struct page *page = page_create("p2p", number, FEW);
    struct on_device ons[UNLIKE_RANKS_MAX];

    set_up(page);
    for (int r = 0; r < nranks; r++)
        device_make(&ons[r], BUFFER_BYTES);
    for (int i = 0; i < page->runs; i++)
        group_case(page, ons, nranks, page->seed + (uint64_t)i);
    for (int r = 0; r < nranks; r++)
        device_free(&ons[r]);
    XT_CHECK_INT(page->failed, 0);
}

/* --- who reads buffers as soon as the stream has ended --- */

/* A right call behind the unlike one takes nothing from it: its kernel ends at once. */
static void read_at_once(int rank, int nranks, void *arg)
{
    struct page *page = arg;
    struct on_device on;
    xcclResult_t rc;

    set_up(page);
    device_make(&on, BUFFER_BYTES);
    on.comm = world_join(&page->world, rank, nranks);
    device_put(&on, SMALL, rank, 0);
    XT_OK(right_call(&on));
    CU(cuda->stream_sync(on.stream));
    gate(page, rank, nranks);
    XT_OK(xcclAllReduce(at(on.in, 0), at(on.out, 0), 1000 + (size_t)(rank == 1), xcclInt32, xcclSum,
                        on.comm, on.stream));
    rc = right_call(&on);
    CU(cuda->stream_sync(on.stream));
    if (!rc)
        XT_OK(xcclCommGetAsyncError(on.comm, &rc));
    XT_CHECK_RC(rc, xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(on.comm), "all-reduce of 1001 int32, sum");
    gate(page, rank, nranks);
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
}

XT_TEST_DEADLINE(an_error_is_known_when_the_stream_has_ended, 60)
{
    xt_mp_run(3, read_at_once, page_create("p2p", 20, FEW));
}

#define MATRIX(name, call)                                                                         \
    XT_TEST_DEADLINE(name, 60)                                                                     \
    {                                                                                              \
        call;                                                                                      \
    }

MATRIX(device_calls_of_two_processes_differ, processes(2, "p2p", 1))
MATRIX(device_calls_of_three_processes_differ, processes(3, "p2p", 2))
MATRIX(device_calls_of_five_processes_differ, processes(5, "p2p", 3))
MATRIX(device_calls_through_pinned_memory_differ, processes(3, "pinned", 4))
MATRIX(device_calls_of_two_ranks_over_sockets_differ, processes(2, "net", 5))
MATRIX(device_calls_of_three_ranks_over_sockets_differ, processes(3, "net", 6))
MATRIX(device_calls_of_five_ranks_over_sockets_differ, processes(5, "net", 7))
MATRIX(device_calls_of_two_threads_differ, threads(2, 8))
MATRIX(device_calls_of_three_threads_differ, threads(3, 9))
MATRIX(device_calls_of_one_thread_with_two_ranks_differ, one_thread(2, 10))
MATRIX(device_calls_of_one_thread_with_five_ranks_differ, one_thread(5, 11))
