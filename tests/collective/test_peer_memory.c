/* SPDX-License-Identifier: BSD-3-Clause */
/* Private memory that other processes read through the kernel: that they do, and what happens where
 * a buffer cannot be read. test_direct looks at the data of every collective. */
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "world.h"

#define BYTES ((size_t)100 << 10) /* one slot would hold it */

static int reads_by_address(const struct xcclComm *comm)
{
    return comm->shm && xccl_shm_takes_addresses(comm->shm);
}

/* Small pages of its own, of which nothing else is a part. */
static char *take_pages(size_t bytes, int value)
{
    char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    XT_CHECK(pages != MAP_FAILED);
    memset(pages, value, bytes);
    return pages;
}

static xcclComm_t join_or_skip(struct world *world, int rank, int nranks)
{
    xcclComm_t comm = world_join(world, rank, nranks);

    if (!reads_by_address(comm)) {
        XT_OK(xcclCommDestroy(comm));
        XT_SKIP("processes may not read each other's memory here");
    }
    return comm;
}

/* What stays in the root's buffer has been read when the root returns; a copy in a slot would let
 * it return at once. */
static void root_waits(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = join_or_skip(world, rank, nranks);
    char *memory = take_pages(BYTES, rank);

    /* The links are there. */
    XT_OK(xcclBroadcast(memory, memory, BYTES, xcclUint8, 0, comm, NULL));
    XT_OK(xcclBarrier(comm, NULL));
    memset(memory, 7 + rank, BYTES);
    if (rank == 1) {
        usleep(200000);
        atomic_store_explicit(&world->arrived, 1, memory_order_relaxed); /* the call publishes it */
    }
    XT_OK(xcclBroadcast(memory, memory, BYTES, xcclUint8, 0, comm, NULL));
    XT_CHECK_INT(atomic_load_explicit(&world->arrived, memory_order_relaxed), 1);
    for (size_t i = 0; i < BYTES; i++)
        XT_CHECK_INT(memory[i], 7);
    XT_OK(xcclCommDestroy(comm));
    munmap(memory, BYTES);
}

XT_TEST(a_large_broadcast_is_read_from_the_roots_memory)
{
    xt_setenv("XCCL_PEER_MEMORY", "on");
    xt_mp_run(2, root_waits, world_create());
}

/* The reader says what to do about it; the root hears of the failure. */
static void unreadable(int rank, int nranks, void *arg)
{
    xcclComm_t comm = join_or_skip(arg, rank, nranks);
    char *memory = take_pages(BYTES, rank);

    XT_OK(xcclBroadcast(memory, memory, BYTES, xcclUint8, 0, comm, NULL));
    XT_OK(xcclBarrier(comm, NULL));
    if (rank == 0)
        XT_CHECK_INT(mprotect(memory, BYTES, PROT_NONE), 0);
    XT_CHECK(xcclBroadcast(memory, memory, BYTES, xcclUint8, 0, comm, NULL) != xcclSuccess);
    XT_CHECK_HAS(xcclGetLastError(comm), "cannot be read");
    XT_CHECK_HAS(xcclGetLastError(comm), "XCCL_PEER_MEMORY=off");
    XT_CHECK_HAS(xcclGetLastError(comm), "rank 0");
    XT_OK(xcclCommDestroy(comm));
    munmap(memory, BYTES);
}

XT_TEST(a_buffer_that_cannot_be_read_is_an_error_on_both_sides)
{
    xt_setenv("XCCL_PEER_MEMORY", "on");
    xt_mp_run(2, unreadable, world_create());
}

static void without(int rank, int nranks, void *arg)
{
    xcclComm_t comm;

    xt_setenv("XCCL_PEER_MEMORY", rank == 1 ? "off" : "on");
    comm = world_join(arg, rank, nranks);
    XT_CHECK(!reads_by_address(comm));
    XT_CHECK(!comm->ways || !comm->ways->takes_addresses);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(the_setting_of_one_rank_keeps_all_from_it)
{
    xt_mp_run(3, without, world_create());
}
