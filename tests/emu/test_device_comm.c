/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators of CUDA devices, whole: every collective and messages between processes and within
 * one, through device memory, pinned memory and sockets; streams, groups and graphs; operators with
 * a scalar on the device. */
#include "device_ranks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "../fixtures/verbs_counts.h"

#define COUNT    3000
#define LARGE    150000
#define SIZES    70 /* two times as many as a communicator keeps of a v-collective, and more */
#define THREADS  3
#define MESSAGES 80

static const size_t counts[] = {0, 1, 17, COUNT, LARGE};
#define COUNTS (sizeof counts / sizeof counts[0])

/* --- one collective, checked --- */

static void all_reduce(struct on_device *on, int rank, int nranks, size_t count)
{
    device_put(on, count, rank, 1);
    XT_OK(xcclAllReduce(at(on->in, 0), at(on->out, 0), count, xcclInt32, xcclSum, on->comm,
                        on->stream));
    CHECK_EACH(on, count, sum_of(nranks, i, 1));
}

static void reduce_scatter(struct on_device *on, int rank, int nranks, size_t count)
{
    device_put(on, count * (size_t)nranks, rank, 2);
    XT_OK(xcclReduceScatter(at(on->in, 0), at(on->out, 0), count, xcclInt32, xcclSum, on->comm,
                            on->stream));
    CHECK_EACH(on, count, sum_of(nranks, i + (size_t)rank * count, 2));
}

static void all_gather(struct on_device *on, int rank, int nranks, size_t count)
{
    device_put(on, count, rank, 3);
    XT_OK(xcclAllGather(at(on->in, 0), at(on->out, 0), count, xcclInt32, on->comm, on->stream));
    CHECK_EACH(on, count * (size_t)nranks, world_value((int)(i / count), i % count, 3));
}

static void all_to_all(struct on_device *on, int rank, int nranks, size_t count)
{
    device_put(on, count * (size_t)nranks, rank, 4);
    XT_OK(xcclAlltoAll(at(on->in, 0), at(on->out, 0), count, xcclInt32, on->comm, on->stream));
    CHECK_EACH(on, count * (size_t)nranks,
               world_value((int)(i / count), i % count + (size_t)rank * count, 4));
}

static void rooted(struct on_device *on, int rank, int nranks, size_t count)
{
    for (int root = 0; root < nranks; root++) {
        device_put(on, count, rank, 5);
        XT_OK(xcclBroadcast(at(on->in, 0), at(on->out, 0), count, xcclInt32, root, on->comm,
                            on->stream));
        CHECK_EACH(on, count, world_value(root, i, 5));
    }
    device_put(on, count, rank, 6);
    XT_OK(xcclReduce(at(on->in, 0), at(on->out, 0), count, xcclInt32, xcclMax, nranks - 1, on->comm,
                     on->stream));
    if (rank == nranks - 1) {
        const int32_t *got = device_get(on, count);

        for (size_t i = 0; i < count; i++) {
            int32_t most = world_value(0, i, 6);

            for (int r = 1; r < nranks; r++)
                if (world_value(r, i, 6) > most)
                    most = world_value(r, i, 6);
            XT_CHECK_INT(got[i], most);
        }
    }
    device_put(on, count, rank, 7);
    XT_OK(xcclGather(at(on->in, 0), at(on->out, 0), count, xcclInt32, 0, on->comm, on->stream));
    if (rank == 0)
        CHECK_EACH(on, count * (size_t)nranks, world_value((int)(i / count), i % count, 7));
    device_put(on, count * (size_t)nranks, rank, 8);
    XT_OK(xcclScatter(at(on->in, 0), at(on->out, 0), count, xcclInt32, 0, on->comm, on->stream));
    CHECK_EACH(on, count, world_value(0, i + (size_t)rank * count, 8));
}

/* Everybody sends everybody a message of its own size, oneself too. */
static size_t message_count(int from, int to, size_t count)
{
    return count ? count - (size_t)(from * 3 + to) % (count < 8 ? count : 8) : 0;
}

static void messages(struct on_device *on, int rank, int nranks, size_t count)
{
    device_put(on, count, rank, 9);
    XT_OK(xcclGroupStart());
    for (int peer = 0; peer < nranks; peer++) {
        XT_OK(xcclSend(at(on->in, 0), message_count(rank, peer, count), xcclInt32, peer, on->comm,
                       on->stream));
        XT_OK(xcclRecv(at(on->out, (size_t)peer * count), message_count(peer, rank, count),
                       xcclInt32, peer, on->comm, on->stream));
    }
    XT_OK(xcclGroupEnd());
    (void)device_get(on, count * (size_t)nranks);
    for (int peer = 0; peer < nranks; peer++)
        for (size_t i = 0; i < message_count(peer, rank, count); i++)
            XT_CHECK_INT(on->host[(size_t)peer * count + i], world_value(peer, i, 9));
}

/* Each rank sends rank r r + 1 blocks. */
static void all_to_all_v(struct on_device *on, int rank, int nranks, size_t count)
{
    size_t sends[RANKS_MAX], send_at[RANKS_MAX], receives[RANKS_MAX], receive_at[RANKS_MAX];
    size_t block = count / 10, sent = 0, came = 0;

    for (int i = 0; i < nranks; i++) {
        sends[i] = block * (size_t)(i + 1);
        send_at[i] = sent;
        sent += sends[i];
        receives[i] = block * (size_t)(rank + 1);
        receive_at[i] = came;
        came += receives[i];
    }
    device_put(on, sent, rank, 10);
    XT_OK(xcclAlltoAllv(at(on->in, 0), sends, send_at, at(on->out, 0), receives, receive_at,
                        xcclInt32, on->comm, on->stream));
    (void)device_get(on, came);
    for (int peer = 0; peer < nranks; peer++)
        for (size_t i = 0; i < receives[peer]; i++)
            XT_CHECK_INT(on->host[receive_at[peer] + i], world_value(peer, send_at[rank] + i, 10));
}

static void every_call(struct world *world, int rank, int nranks)
{
    struct on_device on;
    int device;

    device_make(&on, (size_t)nranks * LARGE * 4);
    on.comm = world_join(world, rank, nranks);
    XT_OK(xcclCommCuDevice(on.comm, &device));
    XT_CHECK_INT(device, 0);
    for (size_t i = 0; i < COUNTS; i++) {
        all_reduce(&on, rank, nranks, counts[i]);
        reduce_scatter(&on, rank, nranks, counts[i]);
        all_gather(&on, rank, nranks, counts[i]);
        all_to_all(&on, rank, nranks, counts[i]);
        rooted(&on, rank, nranks, counts[i] < COUNT ? counts[i] : COUNT);
        messages(&on, rank, nranks, counts[i]);
        all_to_all_v(&on, rank, nranks, counts[i]);
        XT_OK(xcclBarrier(on.comm, on.stream));
    }
    CU(cuda->stream_sync(on.stream));
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
}

static void everything(int rank, int nranks, void *arg)
{
    struct world *world = arg;

    device_settings(world->text);
    device_open();
    every_call(world, rank, nranks);
}

static void run(int nranks, xt_rank_fn *fn, const char *text)
{
    struct world *world = world_create();

    world->text = text;
    xt_mp_run(nranks, fn, world);
}

XT_TEST_DEADLINE(every_call_of_a_rank_alone, 60)
{
    run(1, everything, "p2p");
}

XT_TEST_DEADLINE(every_call_between_two_processes, 60)
{
    run(2, everything, "p2p");
}

XT_TEST_DEADLINE(every_call_between_three_processes, 60)
{
    run(3, everything, "p2p");
}

XT_TEST_DEADLINE(every_call_through_pinned_memory, 60)
{
    run(2, everything, "pinned");
}

XT_TEST_DEADLINE(every_call_over_sockets, 60)
{
    run(3, everything, "net");
}

/* Busy, late, in pieces, out of order: nothing of that may show. */
XT_TEST_DEADLINE(every_call_over_a_network_that_stalls, 60)
{
    run(3, everything, "fault");
}

/* --- ranks that are threads --- */

typedef void thread_rank_fn(struct world *world, int rank, int nranks);

struct thread_rank {
    thread_rank_fn *fn;
    struct world *world;
    xccl_cu_ctx ctx;
    int rank, nranks;
};

static void *thread_rank_main(void *arg)
{
    struct thread_rank *me = arg;

    CU(cuda->ctx_set(me->ctx));
    me->fn(me->world, me->rank, me->nranks);
    return NULL;
}

/* On the device of this thread. */
static void run_threads(int nranks, thread_rank_fn *fn)
{
    struct thread_rank ranks[THREADS];
    pthread_t threads[THREADS];

    for (int i = 0; i < nranks; i++) {
        ranks[i] = (struct thread_rank){fn, i ? ranks[0].world : world_create(), NULL, i, nranks};
        CU(cuda->ctx_get(&ranks[i].ctx));
    }
    for (int i = 0; i < nranks; i++)
        XT_CHECK(pthread_create(&threads[i], NULL, thread_rank_main, &ranks[i]) == 0);
    for (int i = 0; i < nranks; i++)
        XT_CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Of more sizes than are kept, and each time a kernel waits for the last rank before that calls: a
 * driver that were asked for memory back would wait for the kernel. */
static void many_sizes(struct world *world, int rank, int nranks)
{
    struct on_device on;

    device_make(&on, (size_t)nranks * SIZES * 4);
    on.comm = world_join(world, rank, nranks);
    for (size_t size = 1; size <= SIZES; size++) {
        const size_t sizes[] = {size, size, size}, from[] = {0, size, 2 * size};

        device_put(&on, size, rank, (int)size);
        if (rank == nranks - 1)
            (void)usleep(5000);
        XT_OK(xcclAllGatherv(at(on.in, 0), size, at(on.out, 0), sizes, from, xcclInt32, on.comm,
                             on.stream));
        CHECK_EACH(&on, size * (size_t)nranks, world_value((int)(i / size), i % size, (int)size));
    }
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
}

XT_TEST_DEADLINE(memory_of_calls_is_given_back_without_a_wait_for_other_ranks, 60)
{
    device_settings(NULL);
    device_open();
    run_threads(3, many_sizes);
}

/* More messages at once than fit into a launch: their list lies in device memory, which is used
 * again. */
static void many_messages(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    uint64_t before = 0, after;
    struct on_device on;

    device_settings(world->text);
    device_open();
    device_make(&on, MESSAGES * 4);
    on.comm = world_join(world, rank, nranks);
    for (int round = 0; round < 12; round++) {
        device_put(&on, MESSAGES, rank, round);
        XT_OK(xcclGroupStart());
        for (size_t i = 0; i < MESSAGES; i++) {
            XT_OK(xcclSend(at(on.in, i), 1, xcclInt32, !rank, on.comm, on.stream));
            XT_OK(xcclRecv(at(on.out, i), 1, xcclInt32, !rank, on.comm, on.stream));
        }
        XT_OK(xcclGroupEnd());
        CHECK_EACH(&on, MESSAGES, world_value(!rank, i, round));
        XT_OK(xcclCommMemStats(on.comm, xcclStatGpuMemTotal, &after));
        XT_CHECK(after > 0);
        if (round < 2)
            before = after;
        XT_CHECK_INT(after, before);
    }
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
}

XT_TEST_DEADLINE(lists_of_many_messages_use_the_same_memory, 60)
{
    run(2, many_messages, "p2p");
}

/* --- network cards that reach device memory: net-ib over the verbs library of one process --- */

#define IB_PLUGIN  XT_BUILD_DIR "/lib/xccl/libxccl-net-ib.so"
#define IB_LIBRARY XT_BUILD_DIR "/lib/fixtures/libverbs-fixture.so"

/* Three ranks over net-ib. How many reads of device memory its cards have made, which are flushes.
 */
static long reads_of(thread_rank_fn *fn, const char *plugin, const char *gdr)
{
    void (*take_counts)(long counts[COUNT_KINDS]);
    void *library = dlopen(IB_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    long counted[COUNT_KINDS];

    if (access(IB_PLUGIN, R_OK) != 0 || !library)
        XT_SKIP("net-ib is not built: there is no infiniband/verbs.h");
    *(void **)&take_counts = dlsym(library, "verbs_fixture_counts");
    XT_CHECK(take_counts != NULL);
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_NET_PLUGIN", plugin);
    xt_setenv("XCCL_IB_LIBRARY", IB_LIBRARY);
    xt_setenv("XCCL_CUDA_GDR", gdr);
    device_settings(NULL);
    device_open();
    take_counts(counted);
    run_threads(3, fn);
    take_counts(counted);
    return counted[COUNT_READS];
}

#define CARDS_REACH "the fixture's cards reach the stand-in's memory alone"

static void check_reads_of(const char *plugin, const char *gdr, int flushes)
{
    if (strcmp(gdr, "on") == 0)
        need_stand_in(CARDS_REACH);
    XT_CHECK_INT(reads_of(every_call, plugin, gdr) > 0, flushes);
}

static void check_reads(const char *gdr, int flushes)
{
    check_reads_of(IB_PLUGIN, gdr, flushes);
}

XT_TEST_DEADLINE(network_cards_write_to_device_memory, 60)
{
    check_reads("on", 1);
}

/* Flushes that are late, receives that are busy. */
XT_TEST_DEADLINE(network_cards_that_stall_write_to_device_memory, 60)
{
    check_reads_of("fault:" IB_PLUGIN, "on", 1);
}

/* The plugin as NCCL sees it. */
XT_TEST_DEADLINE(network_cards_of_nccls_plugins_write_to_device_memory, 60)
{
    check_reads_of(IB_PLUGIN "@v11", "on", 1);
}

/* Such a device needs no flush. */
XT_TEST_DEADLINE(network_cards_write_to_device_memory_in_order, 60)
{
    xt_setenv("XCCL_EMU_WRITES_ORDERING", "100");
    check_reads("on", 0);
}

/* Some ends of links have their slots there, others do not. */
XT_TEST_DEADLINE(network_cards_reach_device_memory_of_some_links, 60)
{
    xt_setenv("VERBS_FIXTURE_FAIL", "some_reg_dmabuf_mr");
    check_reads("on", 1);
}

XT_TEST_DEADLINE(device_memory_that_no_card_takes_is_not_needed, 60)
{
    xt_setenv("VERBS_FIXTURE_FAIL", "reg_dmabuf_mr");
    XT_CHECK_INT(reads_of(every_call, IB_PLUGIN, "on"), 0);
}

/* One link cannot be given device memory, the others are. */
XT_TEST_DEADLINE(device_memory_that_has_no_dma_buf_is_not_needed, 60)
{
    xt_setenv("XCCL_EMU_FAIL", "cuMemGetHandleForAddressRange:1");
    check_reads("on", 1);
}

/* Until what came cannot be flushed: all ranks have an error in words, and their kernels end. */
static void flush_fails(struct world *world, int rank, int nranks)
{
    double start = xt_seconds();
    xcclResult_t rc = xcclSuccess;
    struct on_device on;

    device_make(&on, COUNT * 4);
    on.comm = world_join(world, rank, nranks);
    /* Where others fail first it gives their error. */
    (void)xcclAllReduce(at(on.in, 0), at(on.out, 0), COUNT, xcclInt32, xcclSum, on.comm, on.stream);
    while (!rc) {
        XT_OK(xcclCommGetAsyncError(on.comm, &rc));
        XT_CHECK(xt_seconds() - start < 20);
    }
    XT_CHECK_HAS(xcclGetLastError(on.comm), "cannot flush the memory of a device");
    while (cuda->stream_query(on.stream) == XCCL_CU_NOT_READY)
        XT_CHECK(xt_seconds() - start < 30);
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
}

XT_TEST_DEADLINE(flush_that_fails_is_an_error_on_all_ranks, 60)
{
    need_stand_in(CARDS_REACH);
    xt_setenv("VERBS_FIXTURE_FAIL", "read");
    XT_CHECK(reads_of(flush_fails, IB_PLUGIN, "on") > 0);
}

/* The stand-in's devices are on no PCI root. */
XT_TEST_DEADLINE(network_cards_that_are_far_do_not_touch_device_memory, 60)
{
    check_reads("auto", 0);
}

/* Rank 1 goes on, to a call that needs connections, while what it sends in the one before has not
 * begun to move; the others come to the next call only with it in hand. */
static void goes_on(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    struct on_device on;

    device_settings(world->text);
    device_open();
    device_make(&on, LARGE * 4);
    on.comm = world_join(world, rank, nranks);
    for (int round = 0; round < 2; round++) {
        device_put(&on, LARGE, rank, round);
        XT_OK(xcclBroadcast(at(on.in, 0), at(on.out, 0), LARGE, xcclInt32, 1, on.comm, on.stream));
        if (rank != 1 || !round)
            CHECK_EACH(&on, LARGE, world_value(1, i, round));
    }
    if (world->param) {
        XT_OK(xcclBroadcast(at(on.in, 0), at(on.in, 0), LARGE, xcclInt32, 2, on.comm, on.stream));
    } else {
        XT_OK(xcclGroupStart());
        XT_OK(xcclSend(at(on.in, 0), 10, xcclInt32, (rank + 1) % nranks, on.comm, on.stream));
        XT_OK(xcclRecv(at(on.in, 10), 10, xcclInt32, (rank + 2) % nranks, on.comm, on.stream));
        XT_OK(xcclGroupEnd());
    }
    CHECK_EACH(&on, LARGE, world_value(1, i, 1));
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
}

XT_TEST_DEADLINE(connections_are_made_while_a_call_is_at_work, 60)
{
    for (int param = 0; param < 2; param++) {
        struct world *world = world_create();

        world->text = "net";
        world->param = param;
        xt_mp_run(3, goes_on, world);
    }
}

/* --- several ranks of one process --- */

/* Ranks of one thread, on device 0; streams: how many, that they share. */
static void join_all(struct on_device *on, int nranks, int streams)
{
    xcclComm_t comms[RANKS_MAX];
    const int devices[RANKS_MAX] = {0};

    device_settings("p2p");
    xt_set_error_source(world_error);
    device_open();
    XT_OK(xcclCommInitAll(comms, nranks, devices));
    for (int r = 0; r < nranks; r++) {
        device_make(&on[r], (size_t)nranks * COUNT * 4);
        on[r].comm = comms[r];
        if (r >= streams) {
            CU(cuda->stream_destroy(on[r].stream));
            on[r].stream = on[r % streams].stream;
        }
    }
}

static void leave_all(struct on_device *on, int nranks)
{
    for (int r = 0; r < nranks; r++)
        XT_OK(xcclCommDestroy(on[r].comm));
}

static void group_all_reduce(struct on_device *on, int nranks, size_t count, int round)
{
    for (int r = 0; r < nranks; r++)
        device_put(&on[r], count, r, round);
    XT_OK(xcclGroupStart());
    for (int r = 0; r < nranks; r++)
        XT_OK(xcclAllReduce(at(on[r].in, 0), at(on[r].out, 0), count, xcclInt32, xcclSum,
                            on[r].comm, on[r].stream));
    XT_OK(xcclGroupEnd());
    for (int r = 0; r < nranks; r++)
        CHECK_EACH(&on[r], count, sum_of(nranks, i, round));
}

XT_TEST_DEADLINE(ranks_of_one_thread_share_a_device, 60)
{
    struct on_device on[RANKS_MAX];

    join_all(on, 4, 4);
    for (int round = 0; round < 3; round++)
        group_all_reduce(on, 4, COUNT, round);
    leave_all(on, 4);
}

XT_TEST_DEADLINE(ranks_of_one_thread_share_a_stream, 60)
{
    struct on_device on[RANKS_MAX];

    join_all(on, 4, 1);
    for (int round = 0; round < 3; round++)
        group_all_reduce(on, 4, COUNT, round);
    leave_all(on, 4);
}

XT_TEST_DEADLINE(ranks_of_one_thread_use_the_legacy_stream, 60)
{
    struct on_device on[RANKS_MAX];

    join_all(on, 2, 2);
    for (int r = 0; r < 2; r++) {
        CU(cuda->stream_destroy(on[r].stream));
        on[r].stream = NULL;
    }
    group_all_reduce(on, 2, COUNT, 1);
    leave_all(on, 2);
}

/* A group of several calls and messages of each rank. */
XT_TEST_DEADLINE(a_group_of_many_calls_is_launched_at_once, 60)
{
    struct on_device on[RANKS_MAX];

    join_all(on, 3, 3);
    for (int r = 0; r < 3; r++)
        device_put(&on[r], COUNT, r, 0);
    XT_OK(xcclGroupStart());
    for (int r = 0; r < 3; r++) {
        XT_OK(xcclAllReduce(at(on[r].in, 0), at(on[r].out, 0), COUNT, xcclInt32, xcclSum,
                            on[r].comm, on[r].stream));
        XT_OK(xcclAllReduce(at(on[r].out, 0), at(on[r].out, 0), COUNT, xcclInt32, xcclSum,
                            on[r].comm, on[r].stream));
        XT_OK(xcclSend(at(on[r].in, 0), 10, xcclInt32, (r + 1) % 3, on[r].comm, on[r].stream));
        XT_OK(xcclRecv(at(on[r].out, COUNT), 10, xcclInt32, (r + 2) % 3, on[r].comm, on[r].stream));
    }
    XT_OK(xcclGroupEnd());
    for (int r = 0; r < 3; r++) {
        CHECK_EACH(&on[r], COUNT, 3 * sum_of(3, i, 0));
        (void)device_get(&on[r], COUNT + 10);
        for (size_t i = 0; i < 10; i++)
            XT_CHECK_INT(on[r].host[COUNT + i], world_value((r + 2) % 3, i, 0));
    }
    leave_all(on, 3);
}

XT_TEST(the_first_call_of_several_ranks_of_a_thread_needs_a_group)
{
    struct on_device on[RANKS_MAX];

    join_all(on, 2, 2);
    XT_CHECK_RC(
        xcclAlltoAll(at(on[0].in, 0), at(on[0].out, 0), 1, xcclInt32, on[0].comm, on[0].stream),
        xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "group");
    leave_all(on, 2);
}

/* --- streams and graphs --- */

/* Calls of one communicator on several streams, each needing the one before. */
static void several_streams(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    struct on_device on;
    xccl_cu_stream streams[3];

    device_settings(world->text);
    device_open();
    device_make(&on, LARGE * 4);
    on.comm = world_join(world, rank, nranks);
    for (int i = 0; i < 3; i++)
        CU(cuda->stream_create(&streams[i], XCCL_CU_STREAM_NON_BLOCKING));
    device_put(&on, LARGE, rank, 1);
    XT_OK(
        xcclAllReduce(at(on.in, 0), at(on.out, 0), LARGE, xcclInt32, xcclSum, on.comm, streams[0]));
    for (int i = 1; i < 6; i++)
        XT_OK(xcclAllReduce(at(on.out, 0), at(on.out, 0), LARGE, xcclInt32, xcclMax, on.comm,
                            streams[i % 3]));
    CU(cuda->stream_sync(streams[2]));
    CHECK_EACH(&on, LARGE, sum_of(nranks, i, 1));
    for (int i = 0; i < 3; i++)
        CU(cuda->stream_destroy(streams[i]));
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
}

XT_TEST_DEADLINE(calls_of_a_communicator_keep_their_order_across_streams, 60)
{
    run(2, several_streams, "p2p");
}

/* A captured call is replayed, with others between the replays. */
static void graphs(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    struct on_device on;
    xccl_cu_graph graph;
    xccl_cu_graph_exec exec;

    device_settings(world->text);
    device_open();
    device_make(&on, (size_t)nranks * COUNT * 4);
    on.comm = world_join(world, rank, nranks);
    CU(cuda->stream_begin_capture(on.stream, XCCL_CU_CAPTURE_MODE_GLOBAL));
    XT_OK(
        xcclAllReduce(at(on.in, 0), at(on.out, 0), COUNT, xcclInt32, xcclSum, on.comm, on.stream));
    XT_OK(xcclAllGather(at(on.in, 0), at(on.out, COUNT), 1, xcclInt32, on.comm, on.stream));
    CU(cuda->stream_end_capture(on.stream, &graph));
    CU(cuda->graph_instantiate(&exec, graph, 0));
    for (int round = 0; round < 20; round++) {
        device_put(&on, COUNT, rank, round);
        CU(cuda->graph_launch(exec, on.stream));
        (void)device_get(&on, COUNT);
        for (size_t i = 0; i < COUNT; i++)
            if (on.host[i] != sum_of(nranks, i, round))
                XT_FAIL("replay %d: element %zu is %d", round, i, (int)on.host[i]);
        if (round % 5 == 0)
            all_reduce(&on, rank, nranks, COUNT);
    }
    CU(cuda->graph_exec_destroy(exec));
    CU(cuda->graph_destroy(graph));
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
}

XT_TEST_DEADLINE(captured_calls_are_replayed, 60)
{
    run(2, graphs, "p2p");
}

XT_TEST_DEADLINE(captured_calls_are_replayed_over_sockets, 60)
{
    run(2, graphs, "net");
}

/* --- operators --- */

static void scaled(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    struct on_device on;
    xcclRedOp_t here, there;
    int32_t by = rank + 2;

    device_settings(world->text);
    device_open();
    device_make(&on, COUNT * 4);
    on.comm = world_join(world, rank, nranks);
    CU(cuda->copy_to_device(on.out, &by, 4, on.stream));
    CU(cuda->stream_sync(on.stream));
    XT_OK(xcclRedOpCreatePreMulSum(&here, &by, xcclInt32, xcclScalarHostImmediate, on.comm));
    device_put(&on, COUNT, rank, 1);
    XT_OK(xcclAllReduce(at(on.in, 0), at(on.out, 0), COUNT, xcclInt32, here, on.comm, on.stream));
    for (int pass = 0; pass < 2; pass++) {
        (void)device_get(&on, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            int32_t want = 0;

            for (int r = 0; r < nranks; r++)
                want += world_value(r, i, 1) * (r + 2);
            XT_CHECK_INT(on.host[i], want);
        }
        if (pass)
            break;
        /* The scalar is read when the operation takes place. */
        CU(cuda->copy_to_device(on.in + COUNT * 4 - 4, &by, 4, on.stream));
        XT_OK(xcclRedOpCreatePreMulSum(&there, at(on.in, COUNT - 1), xcclInt32, xcclScalarDevice,
                                       on.comm));
        device_put(&on, COUNT, rank, 1);
        CU(cuda->copy_to_device(on.in + COUNT * 4 - 4, &by, 4, on.stream));
        XT_OK(xcclAllReduce(at(on.in, 0), at(on.out, 0), COUNT - 1, xcclInt32, there, on.comm,
                            on.stream));
        CU(cuda->copy_to_host(on.host, on.out, 4, on.stream));
        CU(cuda->stream_sync(on.stream));
        {
            int32_t last = 0;

            for (int r = 0; r < nranks; r++)
                last += world_value(r, COUNT - 1, 1) * (r + 2);
            CU(cuda->copy_to_device(on.out + COUNT * 4 - 4, &last, 4, on.stream));
        }
    }
    XT_OK(xcclRedOpDestroy(here, on.comm));
    XT_OK(xcclRedOpDestroy(there, on.comm));
    device_put(&on, COUNT, rank, 2);
    XT_OK(
        xcclAllReduce(at(on.in, 0), at(on.out, 0), COUNT, xcclInt32, xcclAvg, on.comm, on.stream));
    CHECK_EACH(&on, COUNT, sum_of(nranks, i, 2) / nranks);
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
}

XT_TEST_DEADLINE(scalars_of_operators_are_on_the_host_or_the_device, 60)
{
    run(2, scaled, "p2p");
}
