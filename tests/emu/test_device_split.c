/* SPDX-License-Identifier: BSD-3-Clause */
/* Splits of CUDA communicators: parent and children are looked after by one thread, they may be
 * closed in any order, and what befalls one of them leaves the others unharmed. */
#include "device_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT    3000
#define CHILDREN 8
#define STALL    0.5 /* s; less than what others have to say who is to blame */

/* A thread names itself when it runs. */
static void check_threads(int want)
{
    double start = xt_seconds();

    while (xt_threads_named("xccl-cuda") != want)
        if (xt_seconds() - start > 10)
            XT_FAIL("%d threads of CUDA communicators, not %d", xt_threads_named("xccl-cuda"),
                    want);
}

static void open_on(struct on_device *on, const char *text)
{
    device_settings(text);
    device_open();
    device_make(on, COUNT * 4);
}

/* Of the communicator, whose ranks have those numbers in the data. */
static void sum_on(struct on_device *on, xcclComm_t comm, const int *ranks, int nranks, int self)
{
    device_put(on, COUNT, ranks[self], 1);
    XT_OK(
        xcclAllReduce(at(on->in, 0), at(on->out, 0), COUNT, xcclInt32, xcclSum, comm, on->stream));
    (void)device_get(on, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        int32_t sum = 0;

        for (int r = 0; r < nranks; r++)
            sum += world_value(ranks[r], i, 1);
        XT_CHECK_INT(on->host[i], sum);
    }
}

static const int all_ranks[RANKS_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};

static xcclResult_t error_of(xcclComm_t comm)
{
    xcclResult_t rc = xcclSuccess;

    XT_OK(xcclCommGetAsyncError(comm, &rc));
    return rc;
}

static void await_error(xcclComm_t comm, xcclResult_t want)
{
    double start = xt_seconds();

    while (!error_of(comm))
        XT_CHECK(xt_seconds() - start < 20);
    XT_CHECK_INT(error_of(comm), want);
}

static void run(int nranks, xt_rank_fn *fn, const char *text, int param)
{
    struct world *world = world_create();

    world->text = text;
    world->param = param;
    xt_mp_run(nranks, fn, world);
}

/* --- one thread --- */

/* The order in which they are closed follows from world->param: the parent is number CHILDREN. */
static void share(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comms[CHILDREN + 1];
    struct on_device on;
    int count = CHILDREN + 1;

    open_on(&on, world->text);
    comms[CHILDREN] = world_join(world, rank, nranks);
    check_threads(1);
    for (int i = 0; i < CHILDREN; i++) /* some are children of children */
        XT_OK(xcclCommSplit(i > 5 ? comms[i - 5] : comms[CHILDREN], 0, rank, &comms[i], NULL));
    check_threads(1);
    for (int i = 0; i < count; i++)
        sum_on(&on, comms[i], all_ranks, nranks, rank);
    for (int i = 0; i < count; i++) {
        int next = (i * 4 + world->param) % count; /* 4 and 9 have no divisor in common */

        XT_OK(xcclCommDestroy(comms[next]));
        check_threads(i + 1 < count);
        for (int k = i + 1; k < count && i % 3 == 0; k++)
            sum_on(&on, comms[(k * 4 + world->param) % count], all_ranks, nranks, rank);
    }
    device_free(&on);
}

XT_TEST_DEADLINE(children_share_the_thread_of_their_parent, 60)
{
    run(2, share, "p2p", 0);
}

XT_TEST_DEADLINE(a_parent_may_be_closed_before_its_children, 60)
{
    run(2, share, "p2p", CHILDREN);
}

XT_TEST_DEADLINE(children_share_the_thread_of_their_parent_over_sockets, 60)
{
    run(2, share, "net", 5);
}

/* Two communicators that do not come from one have a thread each. */
static void apart(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    struct on_device on;
    xcclComm_t comms[2];

    open_on(&on, world->text);
    for (int i = 0; i < 2; i++)
        XT_OK(xcclCommInitRank(&comms[i], nranks, world_id(world, rank, i), rank));
    check_threads(2);
    XT_OK(xcclCommDestroy(comms[0]));
    check_threads(1);
    sum_on(&on, comms[1], all_ranks, nranks, rank);
    XT_OK(xcclCommDestroy(comms[1]));
    check_threads(0);
    device_free(&on);
}

XT_TEST(communicators_of_their_own_have_threads_of_their_own)
{
    run(2, apart, "p2p", 0);
}

/* Ranks of one thread, split in groups. */
XT_TEST_DEADLINE(ranks_of_a_thread_are_split_as_a_group, 60)
{
    xcclComm_t parents[3], children[3];
    const int devices[3] = {0};
    struct on_device on[3];

    xt_set_error_source(world_error);
    device_settings("p2p");
    device_open();
    XT_OK(xcclCommInitAll(parents, 3, devices));
    XT_OK(xcclGroupStart());
    for (int r = 0; r < 3; r++)
        XT_OK(xcclCommSplit(parents[r], r == 1 ? XCCL_SPLIT_NOCOLOR : 0, r, &children[r], NULL));
    XT_OK(xcclGroupEnd());
    check_threads(3);
    XT_CHECK(children[1] == NULL);
    for (int r = 0; r < 3; r++)
        XT_OK(xcclCommDestroy(parents[r]));
    check_threads(2);
    for (int r = 0; r < 3; r += 2) {
        device_make(&on[r], COUNT * 4);
        device_put(&on[r], COUNT, r, 1);
    }
    XT_OK(xcclGroupStart());
    for (int r = 0; r < 3; r += 2)
        XT_OK(xcclAllReduce(at(on[r].in, 0), at(on[r].out, 0), COUNT, xcclInt32, xcclSum,
                            children[r], on[r].stream));
    XT_OK(xcclGroupEnd());
    for (int r = 0; r < 3; r += 2) {
        (void)device_get(&on[r], COUNT);
        for (size_t i = 0; i < COUNT; i++)
            XT_CHECK_INT(on[r].host[i], world_value(0, i, 1) + world_value(2, i, 1));
        XT_OK(xcclCommDestroy(children[r]));
        device_free(&on[r]);
    }
    check_threads(0);
}

/* --- one of them fails --- */

static void abort_child(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t parent, children[3];
    struct on_device on;

    open_on(&on, world->text);
    parent = world_join(world, rank, nranks);
    for (int i = 0; i < 3; i++) {
        XT_OK(xcclCommSplit(parent, 0, rank, &children[i], NULL));
        sum_on(&on, children[i], all_ranks, nranks, rank);
    }
    if (rank == 1)
        XT_OK(xcclCommAbort(children[1]));
    else
        await_error(children[1], xcclRemoteError);
    for (int round = 0; round < 20; round++) {
        sum_on(&on, children[round % 2 * 2], all_ranks, nranks, rank);
        sum_on(&on, parent, all_ranks, nranks, rank);
    }
    if (rank != 1)
        XT_OK(xcclCommDestroy(children[1]));
    sum_on(&on, children[2], all_ranks, nranks, rank);
    XT_OK(xcclCommDestroy(children[0]));
    XT_OK(xcclCommDestroy(parent));
    sum_on(&on, children[2], all_ranks, nranks, rank);
    XT_OK(xcclCommDestroy(children[2]));
    check_threads(0);
    device_free(&on);
}

XT_TEST_DEADLINE(an_abort_of_one_child_leaves_the_others_unharmed, 60)
{
    run(3, abort_child, "p2p", 0);
}

XT_TEST_DEADLINE(an_abort_of_one_child_leaves_the_others_unharmed_over_sockets, 60)
{
    run(3, abort_child, "net", 0);
}

/* Ranks disagree in one child. */
static void disagree(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t parent, child;
    struct on_device on;

    open_on(&on, world->text);
    parent = world_join(world, rank, nranks);
    XT_OK(xcclCommSplit(parent, 0, rank, &child, NULL));
    sum_on(&on, child, all_ranks, nranks, rank);
    (void)xcclAllReduce(at(on.in, 0), at(on.out, 0), COUNT, rank ? xcclInt32 : xcclUint32, xcclSum,
                        child, on.stream);
    await_error(child, xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(child), "ranks disagree");
    for (int round = 0; round < 10; round++)
        sum_on(&on, parent, all_ranks, nranks, rank);
    XT_OK(xcclCommDestroy(child));
    XT_OK(xcclCommDestroy(parent));
    check_threads(0);
    device_free(&on);
}

XT_TEST(a_mismatch_in_one_child_leaves_its_parent_unharmed)
{
    run(3, disagree, "p2p", 0);
}

XT_TEST(a_mismatch_in_one_child_leaves_its_parent_unharmed_over_sockets)
{
    run(3, disagree, "net", 0);
}

/* Ranks 0 and 1 have a child, and ranks 0 and 2. Rank 1 dies: what others may say about that is
 * waited for without holding up the other child. */
static void outlive(int rank, int nranks, void *arg)
{
    static const int with_2[] = {0, 2};
    struct world *world = arg;
    xcclComm_t parent, with_1, other;
    struct on_device on;
    double start;

    open_on(&on, world->text);
    parent = world_join(world, rank, nranks);
    XT_OK(xcclCommSplit(parent, rank == 2 ? XCCL_SPLIT_NOCOLOR : 0, rank, &with_1, NULL));
    XT_OK(xcclCommSplit(parent, rank == 1 ? XCCL_SPLIT_NOCOLOR : 0, rank, &other, NULL));
    if (rank != 2)
        sum_on(&on, with_1, all_ranks, 2, rank);
    if (rank != 1)
        sum_on(&on, other, with_2, 2, rank / 2);
    world_meet(world, nranks);
    if (rank == 1)
        raise(SIGKILL);
    if (rank == 0) /* whose other end is gone; the kernel waits on a stream of its own */
        (void)xcclAllReduce(at(on.in, 0), at(on.in, 0), COUNT, xcclInt32, xcclSum, with_1, NULL);
    for (int round = 0; round < 100; round++) {
        start = xt_seconds();
        sum_on(&on, other, with_2, 2, rank / 2);
        XT_CHECK(xt_seconds() - start < STALL);
    }
    await_error(parent, xcclRemoteError);
    if (rank == 0)
        await_error(with_1, xcclRemoteError);
    XT_CHECK_INT(error_of(other), xcclSuccess);
    if (rank == 0)
        XT_OK(xcclCommDestroy(with_1));
    XT_OK(xcclCommDestroy(parent));
    sum_on(&on, other, with_2, 2, rank / 2);
    XT_OK(xcclCommDestroy(other));
    check_threads(0);
    device_free(&on);
}

static void outlive_over(const char *text)
{
    struct world *world = world_create();
    int statuses[3];

    world->text = text;
    xt_mp_wait(xt_mp_start(3, outlive, world), statuses);
    if (WIFEXITED(statuses[0]) && WEXITSTATUS(statuses[0]) == 77)
        XT_SKIP("no CUDA driver");
    XT_CHECK_INT(statuses[0], 0);
    XT_CHECK_INT(statuses[2], 0);
}

XT_TEST_DEADLINE(a_rank_that_dies_leaves_children_without_it_unharmed, 60)
{
    outlive_over("p2p");
}

XT_TEST_DEADLINE(a_rank_that_dies_leaves_children_without_it_unharmed_over_sockets, 60)
{
    outlive_over("net");
}

/* A call that may fail, on the stream of on. Its result, once it is over, and how long it took. */
static xcclResult_t try_sum(struct on_device *on, xcclComm_t comm, double *took)
{
    double start = xt_seconds();
    xcclResult_t rc = xcclAllReduce(at(on->in, 0), at(on->out, 0), COUNT, xcclInt32, xcclSum, comm,
                                    on->stream);

    while (cuda->stream_query(on->stream) == XCCL_CU_NOT_READY)
        XT_CHECK(xt_seconds() - start < 20);
    *took = xt_seconds() - start;
    return rc ? rc : error_of(comm);
}

/* Connections of the network die, most likely of the child that has most calls, and nobody else
 * knows why: while it waits for a verdict, calls of the other child take no longer than ever. */
static void lose_connections(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t parent, busy, other;
    struct on_device on, busy_on;
    xcclResult_t rc = xcclSuccess;
    double took = 0, longest = 0;
    int ends = 0;

    open_on(&on, world->text);
    device_make(&busy_on, COUNT * 4);
    parent = world_join(world, rank, nranks);
    XT_OK(xcclCommSplit(parent, 0, rank, &busy, NULL));
    XT_OK(xcclCommSplit(parent, 0, rank, &other, NULL));
    for (int round = 1; !ends; round++) {
        for (int i = 0; i < 60 && !error_of(busy); i++)
            (void)xcclAllReduce(at(busy_on.in, 0), at(busy_on.out, 0), COUNT, xcclInt32, xcclSum,
                                busy, busy_on.stream);
        for (int i = 0; i < 20 && !rc; i++) { /* side by side with them */
            rc = try_sum(&on, other, &took);
            longest = !rc && took > longest ? took : longest;
        }
        for (double since = xt_seconds(); cuda->stream_query(busy_on.stream) == XCCL_CU_NOT_READY;)
            XT_CHECK(xt_seconds() - since < 20);
        /* Relaxed: the ranks meet behind it, and once more before the next store. */
        if (rc || error_of(busy))
            atomic_store_explicit(&world->ready[1], 1, memory_order_relaxed);
        world_meet(world, (2 * round - 1) * nranks);
        ends = atomic_load_explicit(&world->ready[1], memory_order_relaxed);
        world_meet(world, 2 * round * nranks);
    }
    printf("the longest call of the other child took %.3f s\n", longest);
    XT_CHECK(longest < STALL);
    XT_OK(xcclCommDestroy(busy));
    XT_OK(xcclCommDestroy(other));
    XT_OK(xcclCommDestroy(parent));
    check_threads(0);
}

XT_TEST_DEADLINE(connections_that_die_hold_up_no_other_child, 60)
{
    xt_setenv("XCCL_NET_FAULT", "seed=5,dead=0.004");
    run(2, lose_connections, "fault", 0);
}

/* Rank 1 opens memory of the others slowly, one after the other. They need what rank 0 has, and
 * leave meanwhile. */
static void leave_at_once(int rank, int nranks, void *arg)
{
    static const size_t counts[RANKS_MAX] = {1}, places[RANKS_MAX] = {0};
    struct on_device on;
    xcclComm_t whole;

    xt_setenv("XCCL_ALGO", "all_gather:mesh");
    open_on(&on, "p2p");
    whole = world_join(arg, rank, nranks);
    XT_OK(xcclCommSplit(whole, 0, rank, &on.comm, NULL));
    if (rank == 1)
        xt_setenv("XCCL_EMU_SLOW", "cuMemMap");
    XT_OK(xcclAllGatherv(at(on.in, 0), counts[rank], at(on.out, 0), counts, places, xcclInt32,
                         on.comm, on.stream));
    CU(cuda->stream_sync(on.stream));
    XT_OK(error_of(on.comm));
    XT_OK(xcclCommDestroy(on.comm));
    XT_OK(xcclCommDestroy(whole));
    device_free(&on);
}

XT_TEST_DEADLINE(a_rank_that_leaves_waits_until_others_have_opened_its_memory, 60)
{
    need_stand_in("its driver can be slow");
    xt_mp_run(4, leave_at_once, world_create());
}
