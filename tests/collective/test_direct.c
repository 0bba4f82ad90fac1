/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that is read in place: buffers of xcclMemAlloc between processes, any buffers between
 * threads, and the two mixed. What a call was given is the program's again when it returns, so each
 * rank spoils its buffers at once, before the others may have looked at theirs. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

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

/* --- what is left when somebody goes --- */

/* Rank 1 dies while rank 0 waits for it to read; or, as the root, after it has offered its memory
 * and before rank 0 reads it. An error at once, and no fault on either side. */
static void one_dies(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks);
    size_t bytes = 32u << 20;
    int root = world->param;
    void *memory = calloc(1, bytes);
    double begun;

    XT_CHECK(memory != NULL);
    if (root == 0) {
        free(memory);
        XT_OK(xcclMemAlloc(&memory, bytes));
    }
    XT_OK(xcclBroadcast(memory, memory, 1 << 20, xcclUint8, root, comm, NULL));
    world_meet(world, 3);
    if (rank == 1 && root == 0)
        pause(); /* until it is killed */
    if (rank == 0 && root == 1)
        usleep(300000);
    begun = world_seconds();
    XT_CHECK(xcclBroadcast(memory, memory, bytes, xcclUint8, root, comm, NULL) != xcclSuccess);
    XT_CHECK_HAS(xcclGetLastError(comm), "rank 1");
    XT_CHECK(world_seconds() - begun < 10);
    XT_OK(xcclCommDestroy(comm));
    give(memory);
}

static void kill_one(int root)
{
    struct world *world = world_create();
    struct xt_mp *mp;
    int statuses[2];

    world->param = root;
    mp = xt_mp_start(2, one_dies, world);
    world_meet(world, 3);
    usleep(50000); /* the root has sent what there are slots for */
    xt_mp_kill(mp, 1, SIGKILL);
    xt_mp_wait(mp, statuses);
    XT_CHECK_INT(statuses[0], 0);
}

XT_TEST(a_sender_hears_that_its_reader_has_died)
{
    kill_one(0);
}
XT_TEST(a_reader_hears_that_the_sender_has_died)
{
    xt_setenv("XCCL_PEER_MEMORY", "on");
    kill_one(1);
}

/* --- what a network still has when a call has failed --- */

/* Rank 1 is stopped while rank 0 waits for the rest of what it sends. Once the call has returned,
 * nothing comes any more into what was rank 0's buffer. */
#define STOPPED_BYTES ((size_t)64 << 20)
#define STOPPED_AT    ((size_t)1 << 20) /* when this byte has come */
enum { BY_TIMEOUT, BY_ABORT, BY_MESSAGES, BY_STREAM };

static _Atomic unsigned char *stopped_memory; /* of rank 0, seen by the one who stops rank 1 */

struct stopped {
    xcclComm_t comm;
    xcclStream_t stream;
    unsigned char *memory;
    int how;
};

static void *abort_soon(void *arg)
{
    usleep(700000);
    XT_OK(xcclCommAbort(((struct stopped *)arg)->comm));
    return NULL;
}

static xcclResult_t receive_rest(const struct stopped *stopped)
{
    xcclResult_t rc;

    if (stopped->how == BY_MESSAGES)
        return xcclRecv(stopped->memory, STOPPED_BYTES, xcclUint8, 1, stopped->comm, NULL);
    rc = xcclBroadcast(stopped->memory, stopped->memory, STOPPED_BYTES, xcclUint8, 1, stopped->comm,
                       stopped->stream);
    return stopped->stream && !rc ? xcclStreamSynchronize(stopped->stream) : rc;
}

static void wait_and_look(struct world *world, const struct stopped *stopped)
{
    XT_CHECK_INT(stopped->memory[STOPPED_BYTES - 1], 0); /* it was not all there */
    memset(stopped->memory, 0x3c, STOPPED_BYTES);
    world_meet(world, 5); /* rank 1 goes on */
    world_meet(world, 7); /* and has had its time */
    for (size_t i = 0; i < STOPPED_BYTES; i++)
        if (stopped->memory[i] != 0x3c)
            XT_FAIL("byte %zu was written after the call had failed", i);
}

static void leave(const struct stopped *stopped, int rank)
{
    if (stopped->stream)
        (void)xcclStreamDestroy(stopped->stream); /* tells of the call's error */
    if (stopped->how != BY_ABORT || rank == 1)
        XT_OK(xcclCommDestroy(stopped->comm));
}

static void sender_stops(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    struct stopped stopped = {.how = world->param,
                              .memory = rank == 0 ? (unsigned char *)stopped_memory
                                                  : calloc(1, STOPPED_BYTES)};
    pthread_t aborter;
    xcclResult_t rc;

    stopped.comm = world_join(world, rank, nranks);
    XT_CHECK(stopped.memory != NULL);
    if (stopped.how == BY_STREAM)
        XT_OK(xcclStreamCreate(&stopped.stream));
    /* A little, so that the links are there. */
    XT_OK(xcclBroadcast(stopped.memory, stopped.memory, 100, xcclUint8, 1, stopped.comm, NULL));
    world_meet(world, 3);
    if (rank == 1) {
        memset(stopped.memory, 5, STOPPED_BYTES);
        rc = stopped.how == BY_MESSAGES
                 ? xcclSend(stopped.memory, STOPPED_BYTES, xcclUint8, 0, stopped.comm, NULL)
                 : xcclBroadcast(stopped.memory, stopped.memory, STOPPED_BYTES, xcclUint8, 1,
                                 stopped.comm, NULL);
        XT_CHECK(rc != xcclSuccess);
        leave(&stopped, rank);
        free(stopped.memory);
        return;
    }
    if (stopped.how == BY_ABORT)
        XT_CHECK_INT(pthread_create(&aborter, NULL, abort_soon, &stopped), 0);
    XT_CHECK(receive_rest(&stopped) != xcclSuccess);
    if (stopped.how == BY_ABORT)
        pthread_join(aborter, NULL);
    wait_and_look(world, &stopped);
    leave(&stopped, rank);
}

static void check_stopped(int how)
{
    struct world *world = world_create();
    struct xt_mp *mp;
    int statuses[2];

    over_sockets("0");
    xt_setenv("XCCL_SOCKET_THREADS", "1"); /* which goes on receiving between calls */
    xt_setenv("XCCL_TIMEOUT_S", "2");
    world->param = how;
    stopped_memory = mmap(NULL, STOPPED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                          -1, 0);
    XT_CHECK(stopped_memory != MAP_FAILED);
    mp = xt_mp_start(2, sender_stops, world);
    world_meet(world, 3);
    while (!atomic_load_explicit(&stopped_memory[STOPPED_AT], memory_order_relaxed))
        sched_yield(); /* bounded by the test's deadline */
    xt_mp_kill(mp, 1, SIGSTOP);
    world_meet(world, 5);
    xt_mp_kill(mp, 1, SIGCONT);
    usleep(500000);
    world_meet(world, 7);
    xt_mp_wait(mp, statuses);
    XT_CHECK_INT(statuses[0], 0);
    XT_CHECK_INT(statuses[1], 0);
}

XT_TEST_DEADLINE(a_call_that_timed_out_has_let_go_of_its_buffer, 60)
{
    check_stopped(BY_TIMEOUT);
}
XT_TEST_DEADLINE(an_aborted_call_has_let_go_of_its_buffer, 60)
{
    check_stopped(BY_ABORT);
}
XT_TEST_DEADLINE(a_receive_that_timed_out_has_let_go_of_its_buffer, 60)
{
    check_stopped(BY_MESSAGES);
}
XT_TEST_DEADLINE(a_call_of_a_stream_has_let_go_of_its_buffer, 60)
{
    check_stopped(BY_STREAM);
}

/* --- messages of another size than their buffer --- */

/* Of rank 0 to rank 1, which takes `taken`; nothing is written behind that. */
static void wrong_message(struct world *world, xcclComm_t comm, int rank, size_t sent, size_t taken)
{
    char *memory = malloc(sent + taken + 1);

    XT_CHECK(memory != NULL);
    memset(memory, 0x3c, sent + taken + 1);
    if (rank == 0) {
        (void)xcclSend(memory, sent, xcclUint8, 1, comm, NULL);
        world_meet(world, 2);
    } else {
        memset(memory, 0, sent + taken + 1);
        XT_CHECK_RC(xcclRecv(memory, taken, xcclUint8, 0, comm, NULL), xcclInvalidUsage);
        XT_CHECK_HAS(xcclGetLastError(comm), "rank 1 receives a message of another size than");
        for (size_t i = taken; i < sent + taken; i++)
            XT_CHECK_INT(memory[i], 0);
        world_meet(world, 2);
    }
    free(memory);
}

static void wrong_block(struct world *world, xcclComm_t comm, int rank, size_t sent, size_t taken)
{
    size_t sends[2] = {100, 100}, takes[2] = {100, 100};
    char *in = calloc(2, 1u << 20), *out = calloc(2, 1u << 20);
    xcclResult_t rc;

    XT_CHECK(in && out);
    if (rank == 0)
        sends[1] = sent;
    else
        takes[0] = taken;
    rc = xcclAlltoAllv(in, sends, NULL, out, takes, NULL, xcclUint8, comm, NULL);
    if (rank == 1) {
        XT_CHECK_RC(rc, xcclInvalidUsage);
        XT_CHECK_HAS(xcclGetLastError(comm), "sendcounts[1] of rank 0 must equal recvcounts[0]");
    }
    world_meet(world, 2);
    free(in);
    free(out);
}

static void wrong_size(int rank, int nranks, void *arg)
{
    static const size_t sizes[][2] = {
        {262144, 200000}, {262144, 131073 + 20000}, {200000, 262144}, {700000, 17000}};
    struct world *world = arg;
    const size_t *size = sizes[world->param / 2];
    xcclComm_t comm = world_join(world, rank, nranks);

    (world->param % 2 ? wrong_block : wrong_message)(world, comm, rank, size[0], size[1]);
    (void)xcclCommDestroy(comm);
}

/* Until a connection breaks; then the buffers are the program's, who frees them at once. */
static void until_it_breaks(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks);
    size_t count = 300000;
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < 10000 && !rc; i++) {
        char *in = malloc(count), *out = malloc(count * (size_t)nranks);

        XT_CHECK(in && out);
        memset(in, rank + i, count);
        rc = i % 2 ? xcclAllGather(in, out, count, xcclUint8, comm, NULL)
                   : xcclBroadcast(in, out, count, xcclUint8, i % nranks, comm, NULL);
        for (int r = 0; r < nranks && !rc; r++)
            if (i % 2)
                XT_CHECK_INT((unsigned char)out[(size_t)r * count + (size_t)i % count],
                             (unsigned char)(r + i));
        free(in);
        free(out);
    }
    XT_CHECK(rc != xcclSuccess);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST_DEADLINE(buffers_may_be_freed_when_a_connection_has_broken, 120)
{
    over_sockets("0");
    xt_setenv("XCCL_NET_PLUGIN", "fault:socket");
    for (int i = 0; i < 6; i++) {
        char fault[64];

        snprintf(fault, sizeof fault, "seed=%d,busy=0.1,%s=0.0007", i + 1,
                 i % 2 ? "dead" : "error");
        xt_setenv("XCCL_NET_FAULT", fault);
        xt_setenv("XCCL_SOCKET_THREADS", i / 2 % 2 ? "1" : "0");
        xt_mp_run(2 + i % 3, until_it_breaks, world_create());
    }
}

XT_TEST_DEADLINE(a_message_of_another_size_than_its_buffer_is_told, 120)
{
    over_sockets("0");
    for (int threads = 0; threads < 2; threads++)
        for (int i = 0; i < 8; i++) {
            struct world *world = world_create();

            world->param = i;
            xt_setenv("XCCL_SOCKET_THREADS", threads ? "1" : "0");
            xt_setenv("XCCL_SOCKET_STREAMS", i % 3 ? "1" : "3");
            xt_mp_run(2, wrong_size, world);
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

/* --- calls that fail give their buffers back --- */

#define ABORTS      30
#define ABORT_BYTES (8u << 20)

struct aborted {
    xcclComm_t comm;
    useconds_t delay;
};

static void *abort_later(void *arg)
{
    const struct aborted *aborted = arg;

    usleep(aborted->delay);
    XT_OK(xcclCommAbort(aborted->comm));
    return NULL;
}

/* A thread aborts while others may be reading its memory, and unmaps that at once: nobody faults.
 */
static void abort_and_unmap(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks);
    struct aborted aborted = {comm, (useconds_t)(world->param * 97 % 2500)};
    char *memory = mmap(NULL, ABORT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                        0);
    xcclResult_t rc = xcclSuccess;
    pthread_t thread;

    XT_CHECK(memory != MAP_FAILED);
    memset(memory, rank, ABORT_BYTES);
    if (rank == 0)
        XT_CHECK_INT(pthread_create(&thread, NULL, abort_later, &aborted), 0);
    while (!rc)
        rc = xcclBroadcast(memory, memory, ABORT_BYTES, xcclUint8, 0, comm, NULL);
    XT_CHECK_INT(munmap(memory, ABORT_BYTES), 0);
    if (rank == 0)
        XT_CHECK_INT(pthread_join(thread, NULL), 0);
    else
        XT_OK(xcclCommDestroy(comm));
}

XT_TEST(an_aborted_call_lets_nobody_read_its_memory_any_more)
{
    for (int i = 0; i < ABORTS; i++) {
        struct world *world = world_create();

        world->param = i;
        xt_threads_run(3, abort_and_unmap, world);
    }
}
