/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank revokes a communicator: calls that wait and calls that come later return an error that
 * names it, on all ranks, and the communicator is destroyed in order afterwards. There is no public
 * call for it yet, so the program holds the library's stages itself.
 *
 * Thread: one in each rank, and the library's. */
#include "../collective/world.h"

#include "base/alloc.h"
#include "base/inject.h"
#include "comm/comm.h"
#include "join/join.h"

#define REVOKER 1

static void revoke(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = NULL;
    int value = 1;

    if (world->param)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(world, rank, nranks);
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    if (rank == REVOKER)
        xccl_comm_revoke(comm);
    for (int i = 0; i < 2; i++) {
        XT_CHECK_RC(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL),
                    xcclRemoteError);
        XT_CHECK_HAS(xcclGetLastError(comm), "rank 1 (host ");
        XT_CHECK_HAS(xcclGetLastError(comm), "revoked the communicator");
    }
    xccl_comm_revoke(comm); /* once more changes nothing */
    XT_CHECK_HAS(xcclGetLastError(comm), "rank 1 (host ");
    XT_OK(xcclCommDestroy(comm));
}

/* The revoker has no memory for its notices, either way, and some chances later it has. The other
 * rank, which may learn of it by a notice only, returns from its call all the same. */
static void revoke_without_memory(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = NULL;
    int value = 1;

    xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(world, rank, nranks);
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    if (rank == REVOKER) {
        xccl_inject_arm_all((uint64_t)world->param);
        xccl_comm_revoke(comm);
        XT_CHECK(xccl_inject_chances() >= 2);
    } else {
        double start = xt_seconds();

        XT_CHECK_RC(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL),
                    xcclRemoteError);
        XT_CHECK_HAS(xcclGetLastError(comm), "revoked the communicator");
        XT_CHECK(xt_seconds() - start < 5);
    }
    world_meet(world, nranks); /* nobody leaves before */
    xccl_inject_arm(0);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(notice_that_found_no_memory_is_sent_later)
{
    xt_set_alloc_source(xccl_alloc_live);
    xt_setenv("XCCL_PLUGIN_PATH", XT_BUILD_DIR "/lib/xccl");
    for (int k = 2; k <= 10; k += 4) {
        struct world *world = world_create();

        world->param = k;
        xt_mp_run(2, revoke_without_memory, world);
    }
}

/* A rank whose library does not escape what it sends. */
static void tell_raw(int rank, int nranks, void *arg)
{
    static const char raw[] = "rank 1 says \x1b[2J\x1b]0;x\x07 \r\n\xc3( bye";
    struct xccl_notice notice = {
        .kind = XCCL_NOTICE_ERROR, .rc = xcclRemoteError, .origin = REVOKER};
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks);
    int value = 1;

    memcpy(notice.text, raw, sizeof raw);
    if (rank == REVOKER) {
        comm->tell(comm, &notice);
    } else {
        XT_CHECK_RC(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL),
                    xcclRemoteError);
        XT_CHECK_TEXT(xcclCommGetLastError(comm),
                      "rank 1 says \\x1b[2J\\x1b]0;x\\x07 \\r\\n\\xc3( bye");
        XT_CHECK_TEXT(xcclGetLastError(NULL), xcclCommGetLastError(comm));
    }
    world_meet(world, nranks);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(text_of_another_rank_is_escaped_where_it_enters)
{
    xt_set_alloc_source(xccl_alloc_live);
    xt_mp_run(2, tell_raw, world_create());
}

static void run_revoke(int sockets)
{
    struct world *world = world_create();

    xt_set_alloc_source(xccl_alloc_live);
    xt_setenv("XCCL_PLUGIN_PATH", XT_BUILD_DIR "/lib/xccl");
    world->param = sockets;
    xt_mp_run(4, revoke, world);
}

XT_TEST(revoked_communicator_names_the_revoker_on_all_ranks)
{
    run_revoke(0);
}

XT_TEST(revoked_communicator_names_the_revoker_on_all_ranks_over_sockets)
{
    run_revoke(1);
}

/* Ranks that leave at different times, with signs of life under way both ways: nobody takes a
 * goodbye for a death. The next calls of those who stay name who has left. */
static void leave_one_by_one(int rank, int nranks, void *arg)
{
    struct world *world = arg;

    for (int round = 0; round < 20; round++) {
        xcclComm_t comm = NULL;
        int value = 1;

        if (rank == 0) {
            XT_OK(xcclGetUniqueId(&world->ids[0]));
            /* Release: the id before the flag. Pairs with the load below. */
            atomic_store_explicit(&world->ready[0], round + 1, memory_order_release);
        }
        while (atomic_load_explicit(&world->ready[0], memory_order_acquire) <= round)
            sched_yield(); /* bounded by the test's deadline */
        XT_OK(xcclCommInitRank(&comm, nranks, world->ids[0], rank));
        XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
        nanosleep(&(struct timespec){.tv_nsec = rank * 3000000L}, NULL);
        XT_CHECK_INT(xccl_comm_error(comm), xcclSuccess);
        XT_OK(xcclCommDestroy(comm));
        world_meet(world, (round + 1) * nranks);
    }
}

XT_TEST(goodbye_is_never_taken_for_a_death)
{
    struct world *world = world_create();

    xt_set_alloc_source(xccl_alloc_live);
    xt_mp_run(4, leave_one_by_one, world);
}
