/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that is read in place, where a call does not end well: somebody dies, a deadline passes, a
 * call is aborted, a connection breaks, a message has another size than its buffer. The buffers are
 * the program's again when the call returns: nobody reads or writes them any more. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "world.h"

/* Buffers are handed to sockets: no memory is shared. */
static void over_sockets(void)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_SOCKET_UNIX", "0");
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
    if (xcclMemFree(memory) != xcclSuccess)
        free(memory);
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

    over_sockets();
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
        XT_CHECK_HAS(xcclGetLastError(comm), "ranks disagree: rank 1 is in a receive of ");
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
    over_sockets();
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
    over_sockets();
    for (int threads = 0; threads < 2; threads++)
        for (int i = 0; i < 8; i++) {
            struct world *world = world_create();

            world->param = i;
            xt_setenv("XCCL_SOCKET_THREADS", threads ? "1" : "0");
            xt_setenv("XCCL_SOCKET_STREAMS", i % 3 ? "1" : "3");
            xt_mp_run(2, wrong_size, world);
        }
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
