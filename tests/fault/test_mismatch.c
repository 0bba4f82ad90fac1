/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that make different calls get an error that shows both, over every kind of link and
 * whatever protocols the two calls choose; ranks that do not call at all are named when the
 * deadline passes. */
#include <sys/wait.h>
#include <unistd.h>

#include "../collective/world.h"

#define MANUAL XT_BUILD_DIR "/lib/fixtures/libxccl-net-fx-manual.so"

struct differ {
    struct world world;
    size_t counts[2]; /* what even and odd ranks call with */
    int sockets, same_type;
};

static struct differ *differ_create(size_t even, size_t odd, int sockets)
{
    struct differ *d = mmap(NULL, sizeof *d, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                            0);

    XT_CHECK(d != MAP_FAILED);
    d->counts[0] = even;
    d->counts[1] = odd;
    d->sockets = sockets;
    d->same_type = 1;
    return d;
}

static void call_differently(int rank, int nranks, void *arg)
{
    struct differ *d = arg;
    int *data = calloc(400000, sizeof *data);
    xcclDataType_t type = rank & 1 && !d->same_type ? xcclFloat32 : xcclInt32;
    xcclComm_t comm;
    xcclResult_t rc;

    XT_CHECK(data);
    if (d->sockets)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(&d->world, rank, nranks);
    XT_OK(xcclAllReduce(data, data, 10, xcclInt32, xcclSum, comm, NULL));
    rc = xcclAllReduce(data, data, d->counts[rank & 1], type, xcclSum, comm, NULL);
    if (!rc) /* a call that asks nothing of this rank may end before the error is known */
        rc = xcclAllReduce(data, data, 10, xcclInt32, xcclSum, comm, NULL);
    XT_CHECK_RC(rc, xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(comm), "ranks disagree");
    XT_CHECK_HAS(xcclGetLastError(comm), "call 2");
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

static void differ(int nranks, size_t even, size_t odd, int sockets)
{
    xt_mp_run(nranks, call_differently, differ_create(even, odd, sockets));
}

XT_TEST(different_counts_in_lines_are_an_error)
{
    differ(2, 10, 11, 0);
}
XT_TEST(different_counts_in_small_slots_are_an_error)
{
    differ(2, 1000, 1001, 0);
}
XT_TEST(different_counts_in_slices_are_an_error)
{
    differ(2, 10000, 10001, 0);
}
XT_TEST(different_counts_on_the_ring_are_an_error)
{
    differ(2, 300000, 300001, 0);
}
XT_TEST(different_protocols_are_an_error_and_no_hang)
{
    differ(2, 2, 300000, 0);
}
XT_TEST(different_protocols_are_an_error_on_four_ranks)
{
    differ(4, 2, 1000, 0);
}
XT_TEST(nothing_against_something_is_an_error)
{
    differ(2, 0, 10, 0);
}
XT_TEST(different_counts_over_sockets_are_an_error)
{
    differ(2, 10, 11, 1);
}
XT_TEST(different_sizes_over_sockets_are_an_error)
{
    differ(3, 10, 300000, 1);
}
XT_TEST(nothing_against_something_over_sockets_is_an_error)
{
    differ(2, 0, 10, 1);
}

XT_TEST(different_types_are_an_error)
{
    struct differ *d = differ_create(10, 10, 0);

    d->same_type = 0;
    xt_mp_run(2, call_differently, d);
}

static void one_does_not_call(int rank, int nranks, void *arg)
{
    struct differ *d = arg;
    xcclComm_t comm;
    int value = 1;

    xt_setenv("XCCL_TIMEOUT_S", "1");
    if (d->sockets)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(&d->world, rank, nranks);
    if (rank != 1) {
        XT_CHECK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL) == xcclTimeout);
        XT_CHECK_HAS(xcclGetLastError(comm), "rank 1 (host ");
        XT_CHECK_HAS(xcclGetLastError(comm), "XCCL_TIMEOUT_S");
        if (!d->sockets)
            XT_CHECK(!strstr(xcclGetLastError(comm), "rank 2 (host "));
    }
    world_meet(&d->world, nranks);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(rank_that_does_not_call_is_named_at_the_deadline)
{
    xt_mp_run(3, one_does_not_call, differ_create(0, 0, 0));
}

XT_TEST(rank_that_does_not_call_is_named_at_the_deadline_over_sockets)
{
    xt_mp_run(3, one_does_not_call, differ_create(0, 0, 1));
}

/* The rank that asks nothing (count 0) goes on, and waits in its next call on other slots. */
static void nothing_then_much(int rank, int nranks, void *arg)
{
    struct differ *d = arg;
    float *data = calloc(200000, sizeof *data);
    xcclComm_t comm = world_join(&d->world, rank, nranks);
    double start = world_seconds();
    xcclResult_t rc;

    XT_CHECK(data);
    rc = xcclAllReduce(data, data, rank ? 8 : 0, xcclFloat32, xcclSum, comm, NULL);
    if (!rc)
        rc = xcclAllReduce(data, data, 100000, xcclFloat32, xcclSum, comm, NULL);
    XT_CHECK_RC(rc, xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(comm), "ranks disagree");
    XT_CHECK(world_seconds() - start < 10);
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

XT_TEST(nothing_against_something_is_found_after_it_went_on)
{
    xt_mp_run(2, nothing_then_much, differ_create(0, 0, 0));
}

static void nothing_and_nobody(int rank, int nranks, void *arg)
{
    struct differ *d = arg;
    xcclComm_t comm;

    xt_setenv("XCCL_TIMEOUT_S", "1");
    xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(&d->world, rank, nranks);
    if (rank == 0) {
        XT_CHECK(xcclAllReduce(NULL, NULL, 0, xcclFloat32, xcclSum, comm, NULL) == xcclTimeout);
        XT_CHECK_HAS(xcclGetLastError(comm), "rank 1 (host ");
    }
    world_meet(&d->world, nranks);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(call_with_nothing_to_do_waits_over_sockets_and_names_who_is_late)
{
    xt_mp_run(2, nothing_and_nobody, differ_create(0, 0, 1));
}

/* Four ranks in a ring over sockets, rank 2 absent: nobody may be blamed who waits too. */
static void ring_without_one(int rank, int nranks, void *arg)
{
    struct differ *d = arg;
    xcclComm_t comm;
    int value = 1;

    xt_setenv("XCCL_TIMEOUT_S", "2");
    xt_setenv("XCCL_ALGO", "ring");
    xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(&d->world, rank, nranks);
    if (rank != 2) {
        XT_CHECK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL) == xcclTimeout);
        XT_CHECK_HAS(xcclGetLastError(comm), "for rank 2 (host ");
    }
    world_meet(&d->world, nranks);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(ring_names_the_rank_that_does_not_come_and_none_that_waits)
{
    xt_mp_run(4, ring_without_one, differ_create(0, 0, 1));
}

/* All ranks make the same calls, but a message of call 3 is not what its sender has sent. */
static void receive_what_nobody_sent(int rank, int nranks, void *arg)
{
    struct differ *d = arg;
    size_t count = d->counts[0];
    int *data = calloc(count + 1, sizeof *data);
    xcclResult_t rc = xcclSuccess;
    xcclComm_t comm;

    XT_CHECK(data);
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_NET_PLUGIN", MANUAL);
    xt_setenv("FX_MANUAL_DAMAGE", rank == (int)d->counts[1] ? d->world.text : NULL);
    comm = world_join(&d->world, rank, nranks);
    for (int call = 1; call <= 4 && !rc; call++)
        rc = xcclAllReduce(data, data, count, xcclInt32, xcclSum, comm, NULL);
    XT_CHECK_RC(rc, xcclRemoteError);
    XT_CHECK_HAS(xcclGetLastError(comm), "in call 3: all-reduce of ");
    XT_CHECK_HAS(xcclGetLastError(comm), "that the other rank did not send");
    XT_CHECK_HAS(xcclGetLastError(comm), "XCCL_NET_ENCRYPT");
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

static void nobody_sent(int nranks, const char *damage, size_t count, size_t sender)
{
    struct differ *d = differ_create(count, sender, 1);

    d->world.text = damage;
    xt_mp_run(nranks, receive_what_nobody_sent, d);
}

XT_TEST(a_message_with_a_wrong_signature_is_called_damaged_or_injected)
{
    nobody_sent(2, "3:8", 2, 1);
}
XT_TEST(so_is_one_of_a_rank_that_is_no_neighbour)
{
    nobody_sent(5, "3:15", 2, 2);
}
XT_TEST(so_is_the_first_message_of_a_large_call)
{
    nobody_sent(3, "3:11", 300000, 0);
}
XT_TEST(so_is_one_of_an_earlier_call)
{
    nobody_sent(2, "3:0", 2, 0);
}
XT_TEST(so_is_one_of_a_call_that_nobody_can_have_begun)
{
    nobody_sent(2, "3:7", 2, 0);
}
XT_TEST(so_is_one_that_was_cut)
{
    nobody_sent(2, "3:-1", 2, 1);
}

XT_TEST(so_is_one_that_was_cut_before_its_signature_ends)
{
    nobody_sent(2, "3:-1", 0, 1);
}

/* The preamble shows that a call was another one, and its sender says which. */
static void call_other_counts(int rank, int nranks, void *arg)
{
    struct differ *d = arg;
    int data[16] = {0};
    xcclComm_t comm;

    xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(&d->world, rank, nranks);
    XT_CHECK_RC(xcclAllReduce(data, data, d->counts[rank & 1], xcclInt32, xcclSum, comm, NULL),
                xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(comm), "in call 1: all-reduce of 10 int32, sum");
    XT_CHECK_HAS(xcclGetLastError(comm), "in call 1: all-reduce of 11 int32, sum");
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(an_error_over_sockets_shows_both_calls)
{
    xt_mp_run(2, call_other_counts, differ_create(10, 11, 1));
}

static void await_arrived(struct world *world, int count)
{
    while (atomic_load_explicit(&world->arrived, memory_order_acquire) < count)
        usleep(1000); /* bounded by the test's deadline */
}

static void leave_between(int rank, int nranks, struct world *world)
{
    int data[10] = {0}, all[50];
    xcclComm_t comm = world_join(world, rank, nranks);
    xcclResult_t rc;

    for (int root = 0; root <= 3; root += 3) /* the connections */
        XT_OK(xcclGather(data, all, 10, xcclInt32, root, comm, NULL));
    if (rank == 2 || rank == 3)
        await_arrived(world, 2);
    rc = xcclGather(data, all, 10, xcclInt32, rank == 2 ? 3 : 0, comm, NULL);
    if (rank == 0) {
        XT_CHECK_RC(rc, xcclInvalidUsage);
        XT_CHECK_HAS(xcclGetLastError(comm), "in call 3: gather of 10 int32, root 0");
        XT_CHECK_HAS(xcclGetLastError(comm), "in call 3: gather of 10 int32, root 3");
    }
    rc = xcclCommDestroy(comm);
    if (rank == 1 || rank == 4) {
        XT_OK(rc);
        atomic_fetch_add_explicit(&world->arrived, 1, memory_order_acq_rel);
    }
}

/* Ranks 1 and 4 have left when rank 2 makes another call than the rest. Rank 0 stands between them
 * on the ring. */
static void call_when_neighbours_have_left(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    int status = 0;
    pid_t pid = 0;

    xt_setenv("XCCL_SHM_DISABLE", "1");
    if (world->param && (rank == 1 || rank == 4))
        pid = fork();
    XT_CHECK(pid >= 0);
    if (pid) {
        XT_CHECK(waitpid(pid, &status, 0) == pid);
        XT_CHECK_INT(status, 0);
    } else {
        leave_between(rank, nranks, world);
    }
    if (world->param && !pid && (rank == 1 || rank == 4))
        exit(0); /* while others are in a call */
    world_meet(world, nranks + 2);
}

XT_TEST(ranks_that_have_left_pass_on_which_calls_differ)
{
    xt_mp_run(5, call_when_neighbours_have_left, world_create());
}

XT_TEST(so_do_processes_that_exit)
{
    struct world *world = world_create();

    world->param = 1;
    xt_mp_run(5, call_when_neighbours_have_left, world);
}
