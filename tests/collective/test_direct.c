/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that is read in place: buffers of xcclMemAlloc between processes, any buffers between
 * threads, and the two mixed. What a call was given is the program's again when it returns, so each
 * rank spoils its buffers at once, before the others may have looked at theirs. */
#include <string.h>

#include "world.h"

#define RANKS_MAX 5
#define BLOCK_MAX 150001 /* elements of a block, of int32 */

enum { IN, OUT, SIDES };

struct job {
    xcclComm_t comm;
    int rank, nranks, root, round;
    int in_place;
    size_t count; /* of a block */
    int32_t *in, *out;
    int32_t *memory[SIDES]; /* nranks blocks each, and some room */
};

static int32_t value(const struct job *job, int rank, size_t i)
{
    return (int32_t)(i * 5 + (size_t)rank * 1009 + (size_t)job->round * 77);
}

static int32_t sum(const struct job *job, size_t i)
{
    int32_t all = 0;

    for (int r = 0; r < job->nranks; r++)
        all += value(job, r, i);
    return all;
}

static void fill(struct job *job, size_t elems)
{
    for (size_t i = 0; i < elems; i++)
        job->in[i] = value(job, job->rank, i);
}

static void expect(const struct job *job, const char *what, size_t i, int32_t got, int32_t want)
{
    if (got != want)
        XT_FAIL("%s: round %d, rank %d, %zu elements a block, in place %d: element %zu is %d, not "
                "%d",
                what, job->round, job->rank, job->count, job->in_place, i, got, want);
}

static void spoil(struct job *job)
{
    memset(job->memory[IN], 0x77, (size_t)BLOCK_MAX * 4 * (size_t)job->nranks);
    memset(job->memory[OUT], 0x77, (size_t)BLOCK_MAX * 4 * (size_t)job->nranks);
}

static void all_reduce(struct job *job)
{
    job->out = job->in_place ? job->in : job->out;
    fill(job, job->count);
    XT_OK(xcclAllReduce(job->in, job->out, job->count, xcclInt32, xcclSum, job->comm, NULL));
    for (size_t i = 0; i < job->count; i++)
        expect(job, "all-reduce", i, job->out[i], sum(job, i));
}

static void broadcast(struct job *job)
{
    job->out = job->in_place ? job->in : job->out;
    fill(job, job->count);
    XT_OK(xcclBroadcast(job->in, job->out, job->count, xcclInt32, job->root, job->comm, NULL));
    for (size_t i = 0; i < job->count; i++)
        expect(job, "broadcast", i, job->out[i], value(job, job->root, i));
}

static void reduce(struct job *job)
{
    job->out = job->in_place ? job->in : job->out;
    fill(job, job->count);
    XT_OK(
        xcclReduce(job->in, job->out, job->count, xcclInt32, xcclSum, job->root, job->comm, NULL));
    for (size_t i = 0; i < job->count && job->rank == job->root; i++)
        expect(job, "reduce", i, job->out[i], sum(job, i));
}

static void all_gather(struct job *job)
{
    if (job->in_place)
        job->in = job->out + job->count * (size_t)job->rank;
    fill(job, job->count);
    XT_OK(xcclAllGather(job->in, job->out, job->count, xcclInt32, job->comm, NULL));
    for (size_t i = 0; i < job->count * (size_t)job->nranks; i++)
        expect(job, "all-gather", i, job->out[i],
               value(job, (int)(i / job->count), i % job->count));
}

static void reduce_scatter(struct job *job)
{
    if (job->in_place)
        job->out = job->in + job->count * (size_t)job->rank;
    fill(job, job->count * (size_t)job->nranks);
    XT_OK(xcclReduceScatter(job->in, job->out, job->count, xcclInt32, xcclSum, job->comm, NULL));
    for (size_t i = 0; i < job->count; i++)
        expect(job, "reduce-scatter", i, job->out[i], sum(job, job->count * (size_t)job->rank + i));
}

static void all_to_all(struct job *job)
{
    fill(job, job->count * (size_t)job->nranks);
    XT_OK(xcclAlltoAll(job->in, job->out, job->count, xcclInt32, job->comm, NULL));
    for (size_t i = 0; i < job->count * (size_t)job->nranks; i++)
        expect(job, "all-to-all", i, job->out[i],
               value(job, (int)(i / job->count), (size_t)job->rank * job->count + i % job->count));
}

/* To the next rank, from the one before, and a second message behind it. */
static void messages(struct job *job)
{
    int next = (job->rank + 1) % job->nranks, before = (job->rank + job->nranks - 1) % job->nranks;

    fill(job, 2 * job->count);
    XT_OK(xcclGroupStart());
    for (size_t k = 0; k < 2; k++) {
        XT_OK(xcclSend(job->in + k * job->count, job->count, xcclInt32, next, job->comm, NULL));
        XT_OK(xcclRecv(job->out + k * job->count, job->count, xcclInt32, before, job->comm, NULL));
    }
    XT_OK(xcclGroupEnd());
    for (size_t i = 0; i < 2 * job->count; i++)
        expect(job, "messages", i, job->out[i], value(job, before, i));
}

/* Elements that one rank has for another, from none to a block. */
static size_t part(const struct job *job, int from, int to)
{
    return job->count * (size_t)((from * 2 + to + job->round) % 4) / 3;
}

/* Blocks of several sizes, with room between them that nobody writes. */
static void expect_blocks(const struct job *job, const char *what, const size_t *counts,
                          const size_t *first)
{
    for (int r = 0; r < job->nranks; r++)
        for (size_t i = 0; i < job->count; i++)
            expect(job, what, (size_t)r * job->count + i, job->out[(size_t)r * job->count + i],
                   i < counts[r] ? value(job, r, first[r] + i) : 0x77777777);
}

static void all_gather_v(struct job *job)
{
    size_t counts[RANKS_MAX], displs[RANKS_MAX], first[RANKS_MAX] = {0};

    for (int r = 0; r < job->nranks; r++) {
        counts[r] = part(job, r, 1);
        displs[r] = (size_t)r * job->count;
    }
    if (job->in_place)
        job->in = job->out + displs[job->rank];
    fill(job, counts[job->rank]);
    XT_OK(xcclAllGatherv(job->in, counts[job->rank], job->out, counts, displs, xcclInt32, job->comm,
                         NULL));
    expect_blocks(job, "all-gather-v", counts, first);
}

static void all_to_all_v(struct job *job)
{
    size_t sent[RANKS_MAX], got[RANKS_MAX], displs[RANKS_MAX], first[RANKS_MAX] = {0};

    for (int r = 0; r < job->nranks; r++) {
        sent[r] = part(job, job->rank, r);
        got[r] = part(job, r, job->rank);
        displs[r] = (size_t)r * job->count;
        first[r] = (size_t)job->rank * job->count;
    }
    fill(job, job->count * (size_t)job->nranks);
    XT_OK(xcclAlltoAllv(job->in, sent, displs, job->out, got, displs, xcclInt32, job->comm, NULL));
    expect_blocks(job, "all-to-all-v", got, first);
}

static void (*const calls[])(struct job *) = {
    all_reduce, broadcast, reduce,       all_gather,   reduce_scatter,
    all_to_all, messages,  all_gather_v, all_to_all_v,
};
#define CALLS ((int)(sizeof calls / sizeof calls[0]))

/* Of xcclMemAlloc, of malloc, or one of each, other ones on other ranks. */
static int32_t *take(const struct job *job, int side, int kind)
{
    size_t bytes = (size_t)BLOCK_MAX * 4 * (size_t)job->nranks + 64;
    void *memory = NULL;

    if (kind == 0 || (kind == 2 && (job->rank + side) % 2))
        XT_OK(xcclMemAlloc(&memory, bytes));
    else
        memory = malloc(bytes);
    XT_CHECK(memory != NULL);
    return memory;
}

static void give(int32_t *memory)
{
    if (xcclMemFree(memory) != xcclSuccess)
        free(memory);
}

static void all_calls(xcclComm_t comm, int rank, int nranks, int kind)
{
    static const size_t counts[] = {1, 1023, 1025, 30000, BLOCK_MAX};
    struct job job = {.comm = comm, .rank = rank, .nranks = nranks};

    job.memory[IN] = take(&job, IN, kind);
    job.memory[OUT] = take(&job, OUT, kind);
    spoil(&job);
    for (int i = 0; i < 2 * CALLS * 5; i++) {
        size_t off = (size_t)(i % 3); /* elements */

        job.round = i;
        job.root = i % nranks;
        job.in_place = i / CALLS % 2;
        job.count = counts[i / (2 * CALLS)];
        job.count -= job.count > off && job.count == BLOCK_MAX ? off : 0;
        job.in = job.memory[IN] + off;
        job.out = job.memory[OUT] + off;
        if (calls[i % CALLS] == messages && nranks == 1)
            continue;
        calls[i % CALLS](&job);
        spoil(&job);
    }
    give(job.memory[IN]);
    give(job.memory[OUT]);
}

/* param: the kind of buffers. */
static void every_call(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks);

    all_calls(comm, rank, nranks, world->param);
    XT_OK(xcclCommDestroy(comm));
}

static void processes(int nranks, int kind)
{
    struct world *world = world_create();

    world->param = kind;
    xt_mp_run(nranks, every_call, world);
}

static void threads(int nranks, int kind)
{
    struct world *world = world_create();

    world->param = kind;
    xt_threads_run(nranks, every_call, world);
}

XT_TEST(shared_memory_is_read_in_place_by_two_processes)
{
    processes(2, 0);
}
XT_TEST(shared_and_private_memory_mix_between_four_processes)
{
    processes(4, 2);
}
XT_TEST(private_memory_is_read_in_place_by_three_threads)
{
    threads(3, 1);
}
XT_TEST(shared_and_private_memory_mix_between_two_threads)
{
    threads(2, 2);
}
/* By the kernel, where it is not left to measurement. */
XT_TEST(private_memory_is_read_by_address_between_processes)
{
    xt_setenv("XCCL_PEER_MEMORY", "off");
    processes(2, 1);
    xt_setenv("XCCL_PEER_MEMORY", "on");
    processes(2, 1);
    processes(4, 2);
}
XT_TEST(private_memory_is_read_by_address_in_rings_and_trees)
{
    xt_setenv("XCCL_PEER_MEMORY", "on");
    xt_setenv("XCCL_ALGO", "ring,pairwise,direct,binomial,chain");
    xt_setenv("XCCL_PROTO", "slices");
    processes(3, 1);
}
XT_TEST(nothing_is_read_in_place_where_the_setting_says_so)
{
    xt_setenv("XCCL_DIRECT", "0");
    processes(2, 0);
    threads(3, 1);
}
/* Whatever the choice would be. */
XT_TEST(rings_read_in_place)
{
    xt_setenv("XCCL_ALGO", "ring");
    xt_setenv("XCCL_PROTO", "slices");
    processes(3, 0);
    threads(4, 1);
}
XT_TEST(meshes_read_in_place)
{
    xt_setenv("XCCL_ALGO", "allreduce:oneshot,twoshot;reducescatter:mesh;allgather:mesh");
    xt_setenv("XCCL_PROTO", "slices");
    processes(4, 0);
    threads(3, 2);
}

/* --- over networks --- */

/* Buffers are handed to the sockets: no memory is shared. */
static void over_sockets(const char *unix_too)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_SOCKET_UNIX", unix_too);
}

XT_TEST_DEADLINE(networks_send_from_buffers_and_receive_into_them, 120)
{
    over_sockets("0");
    for (int nranks = 2; nranks <= RANKS_MAX; nranks++)
        processes(nranks, 1);
}
XT_TEST_DEADLINE(unix_sockets_send_from_buffers_and_receive_into_them, 120)
{
    over_sockets("1");
    for (int nranks = 2; nranks <= RANKS_MAX; nranks++)
        processes(nranks, 1);
}
XT_TEST_DEADLINE(threads_send_from_buffers_over_networks, 120)
{
    over_sockets("0");
    threads(3, 2);
}
XT_TEST_DEADLINE(helper_threads_streams_and_zero_copies_take_buffers_too, 120)
{
    over_sockets("0");
    xt_setenv("XCCL_SOCKET_THREADS", "1");
    processes(2, 1);
    xt_setenv("XCCL_SOCKET_STREAMS", "3");
    processes(3, 1);
    xt_setenv("XCCL_SOCKET_ZEROCOPY", "on");
    processes(2, 1);
}
XT_TEST_DEADLINE(networks_that_stall_take_buffers_too, 120)
{
    over_sockets("0");
    xt_setenv("XCCL_NET_PLUGIN", "fault:socket");
    processes(2, 1);
    processes(4, 1);
}
XT_TEST_DEADLINE(rings_receive_in_buffers, 120)
{
    over_sockets("0");
    xt_setenv("XCCL_ALGO", "ring");
    processes(2, 1);
    processes(3, 1);
    processes(5, 1);
}
XT_TEST_DEADLINE(trees_receive_in_buffers, 120)
{
    over_sockets("0");
    xt_setenv("XCCL_ALGO", "allreduce:dtree;broadcast:binomial;reduce:binomial");
    processes(2, 1);
    processes(4, 1);
    processes(5, 1);
}
XT_TEST_DEADLINE(meshes_receive_in_buffers, 120)
{
    over_sockets("0");
    xt_setenv("XCCL_ALGO", "allreduce:oneshot,twoshot;reducescatter:mesh;allgather:mesh");
    processes(3, 1);
    processes(5, 1);
}
XT_TEST_DEADLINE(networks_copy_where_the_setting_says_so, 120)
{
    over_sockets("0");
    xt_setenv("XCCL_DIRECT", "0");
    processes(3, 1);
}

/* --- two processes of two threads --- */

struct pair {
    struct world *world;
    int process;
};

static void of_pair(int thread, int nthreads, void *arg)
{
    const struct pair *pair = arg;

    every_call(pair->process * nthreads + thread, 2 * nthreads, pair->world);
}

static void of_process(int rank, int nranks, void *arg)
{
    struct pair pair = {arg, rank};

    (void)nranks;
    xt_threads_run(2, of_pair, &pair);
}

XT_TEST(two_processes_of_two_threads_read_in_both_ways)
{
    for (int kind = 0; kind < 3; kind++) {
        struct world *world = world_create();

        world->param = kind;
        xt_mp_run(2, of_process, world);
    }
}

/* Memory that its owner has freed and taken anew is zeroed, however often. */
static void free_again(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks);
    size_t count = 100000;

    for (int i = 0; i < 20; i++) {
        int32_t *in, *out;

        XT_OK(xcclMemAlloc((void **)&in, count * 4));
        XT_OK(xcclMemAlloc((void **)&out, count * 4));
        for (size_t k = 0; k < count; k++) {
            XT_CHECK(!in[k] && !out[k]);
            in[k] = i + rank;
        }
        XT_OK(xcclAllReduce(in, out, count, xcclInt32, xcclSum, comm, NULL));
        for (size_t k = 0; k < count; k++)
            XT_CHECK_INT(out[k], 2 * i + 1);
        XT_OK(xcclMemFree(i % 2 ? in : out));
        XT_OK(xcclMemFree(i % 2 ? out : in));
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(memory_may_be_freed_after_a_call_and_taken_again)
{
    xt_mp_run(2, free_again, world_create());
}
