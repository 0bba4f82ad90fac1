/* SPDX-License-Identifier: BSD-3-Clause */
/* Private memory that other processes read through the kernel: that they do, and what happens where
 * a buffer cannot be read. And large calls of memory that is read in place. test_direct looks at
 * the data of every collective. */
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/huge_pages.h"
#include "base/param.h"
#include "comm/comm.h"
#include "huge_memory.h"
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

/* --- in place, or through slots --- */

#define LARGE (((size_t)4 << 20) / sizeof(int32_t) + 1027)
#define CALLS 3

static void fill(int32_t *in, int rank, int call)
{
    for (size_t i = 0; i < LARGE; i++)
        in[i] = (int32_t)i + 1000 * rank + call;
}

static int32_t want(enum xccl_coll coll, int nranks, int call, size_t i)
{
    int32_t sum = 0;

    if (coll == XCCL_COLL_BROADCAST)
        return (int32_t)i + call;
    for (int r = 0; r < nranks; r++)
        sum += (int32_t)i + 1000 * r + call;
    return sum;
}

static xcclResult_t call_of(enum xccl_coll coll, const int32_t *in, int32_t *out, xcclComm_t comm)
{
    if (coll == XCCL_COLL_BROADCAST)
        return xcclBroadcast(in, out, LARGE, xcclInt32, 0, comm, NULL);
    if (coll == XCCL_COLL_REDUCE)
        return xcclReduce(in, out, LARGE, xcclInt32, xcclSum, 0, comm, NULL);
    return xcclAllReduce(in, out, LARGE, xcclInt32, xcclSum, comm, NULL);
}

/* Large calls of all kinds, whose data is right. */
static void call_each(xcclComm_t comm, int rank, int nranks, int32_t *in, int32_t *out)
{
    static const enum xccl_coll colls[] = {XCCL_COLL_ALL_REDUCE, XCCL_COLL_BROADCAST,
                                           XCCL_COLL_REDUCE};

    for (int k = 0; k < 3; k++) {
        for (int call = 0; call < CALLS; call++) {
            fill(in, rank, call);
            XT_OK(call_of(colls[k], in, out, comm));
            memset(in, 0x77, LARGE * sizeof *in); /* nobody reads it any more */
            for (size_t i = 0; i < LARGE && (rank == 0 || colls[k] != XCCL_COLL_REDUCE); i++)
                if (out[i] != want(colls[k], nranks, call, i))
                    XT_FAIL("collective %d, call %d: element %zu is %d", (int)colls[k], call, i,
                            out[i]);
        }
    }
}

/* Which calls leave it where it is: by kind and size, and as the setting says. */
static void chooses(int rank, int nranks, void *arg)
{
    xcclComm_t comm = join_or_skip(arg, rank, nranks);
    int always = comm->planner.by_address == XCCL_BY_ADDRESS_ALWAYS;
    char *in = take_pages(2 * BYTES, rank), *out = take_pages(2 * BYTES, 0);

    XT_OK(xcclAllGather(in, out, BYTES, xcclUint8, comm, NULL));
    XT_CHECK(comm->run.plan->by_address);
    XT_OK(xcclAllGather(in, out, XCCL_ADDRESS_MIN / 2 - 16, xcclUint8, comm, NULL));
    XT_CHECK(!comm->run.plan->by_address);
    XT_OK(xcclAllReduce(in, out, BYTES, xcclUint8, xcclSum, comm, NULL));
    XT_CHECK(!comm->run.plan->by_address);
    XT_OK(xcclGather(in, out, BYTES, xcclUint8, 0, comm, NULL));
    XT_CHECK_INT(comm->run.plan->by_address, always);
    XT_OK(xcclCommDestroy(comm));
    munmap(in, 2 * BYTES);
    munmap(out, 2 * BYTES);
}

XT_TEST(large_calls_but_gather_go_by_address)
{
    xt_mp_run(2, chooses, world_create());
}

XT_TEST(the_setting_takes_gather_too)
{
    xt_setenv("XCCL_PEER_MEMORY", "on");
    xt_mp_run(2, chooses, world_create());
}

static xcclComm_t join_in_place(struct world *world, int rank, int nranks)
{
    xcclComm_t comm = world_join(world, rank, nranks);
    int all;

    if (!comm->shm || !xccl_shm_reads_in_place(comm->shm, &all)) {
        XT_OK(xcclCommDestroy(comm));
        XT_SKIP("no memory is read in place here");
    }
    return comm;
}

static void in_arena(int rank, int nranks, void *arg)
{
    xcclComm_t comm = join_in_place(arg, rank, nranks);
    void *in, *out;

    XT_OK(xcclMemAlloc(&in, LARGE * sizeof(int32_t)));
    XT_OK(xcclMemAlloc(&out, LARGE * sizeof(int32_t)));
    call_each(comm, rank, nranks, in, out);
    XT_OK(xcclMemFree(in));
    XT_OK(xcclMemFree(out));
    XT_OK(xcclCommDestroy(comm));
}

static void in_one_process(int rank, int nranks, void *arg)
{
    xcclComm_t comm = join_in_place(arg, rank, nranks);
    size_t bytes = LARGE * sizeof(int32_t);
    char *in = take_pages(bytes, 0), *out = take_pages(bytes, 0);

    call_each(comm, rank, nranks, (int32_t *)(void *)in, (int32_t *)(void *)out);
    XT_OK(xcclCommDestroy(comm));
    munmap(in, bytes);
    munmap(out, bytes);
}

XT_TEST(large_calls_of_shared_memory_are_read_in_place)
{
    xt_mp_run(2, in_arena, world_create());
}

XT_TEST(large_calls_between_threads_are_read_in_place)
{
    xt_threads_run(3, in_one_process, world_create());
}

/* --- huge pages --- */

#define OFTEN 40 /* calls */

static void exchange(xcclComm_t comm, int rank, char *in, char *out, size_t bytes)
{
    XT_OK(xcclGroupStart());
    XT_OK(xcclSend(in, bytes, xcclUint8, 1 - rank, comm, NULL));
    XT_OK(xcclRecv(out, bytes, xcclUint8, 1 - rank, comm, NULL));
    XT_OK(xcclGroupEnd());
}

static _Atomic int
    advices; /* calls of madvise() about more than a page; long waits look into one */

/* Takes the place of the C library's, for the library under test too. */
int madvise(void *at, size_t bytes, int advice)
{
    /* Relaxed: a count, of several threads. */
    if (bytes > (size_t)sysconf(_SC_PAGESIZE))
        atomic_fetch_add_explicit(&advices, 1, memory_order_relaxed);
    return (int)syscall(SYS_madvise, at, bytes, advice);
}

static void keeps_small_pages(int rank, int nranks, void *arg)
{
    size_t bytes = 4 * XCCL_HUGE_PAGE;
    char *in = huge_map(bytes, MAP_PRIVATE), *out = huge_map(bytes, MAP_PRIVATE);
    xcclComm_t comm = join_or_skip(arg, rank, nranks);
    void *registered;

    for (int call = 0; call < OFTEN; call++) {
        if (call == 2) /* the first of each kind have made links */
            atomic_store_explicit(&advices, 0, memory_order_relaxed);
        memset(in, rank + call, bytes);
        if (call % 2)
            XT_OK(xcclAllReduce(in, out, bytes, xcclUint8, xcclSum, comm, NULL));
        else
            exchange(comm, rank, in, out, bytes);
        XT_CHECK_INT(out[bytes - 1], (char)(call % 2 ? 1 + 2 * call : 1 - rank + call));
        XT_CHECK_INT(huge_kib(in, "AnonHugePages") + huge_kib(out, "AnonHugePages"), 0);
    }
    XT_CHECK_INT(atomic_load_explicit(&advices, memory_order_relaxed), 0);
    XT_OK(xcclCommRegister(comm, in, bytes, &registered));
    XT_CHECK(atomic_load_explicit(&advices, memory_order_relaxed) > 0 &&
             huge_kib(in, "AnonHugePages") > 0);
    XT_OK(xcclCommDestroy(comm));
    munmap(in, bytes);
    munmap(out, bytes);
}

/* Only what the program registers, or takes by xcclMemAlloc, gets huge pages. */
XT_TEST(the_programs_memory_keeps_its_pages)
{
    huge_skip_unless_asked();
    xt_mp_run(2, keeps_small_pages, world_create());
}

static void without(int rank, int nranks, void *arg)
{
    xcclComm_t comm;

    xt_setenv("XCCL_PEER_MEMORY", rank == 1 ? "off" : "on");
    comm = world_join(arg, rank, nranks);
    XT_CHECK(!reads_by_address(comm));
    XT_CHECK_INT(comm->planner.by_address, XCCL_BY_ADDRESS_NEVER);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(the_setting_of_one_rank_keeps_all_from_it)
{
    xt_mp_run(3, without, world_create());
}
