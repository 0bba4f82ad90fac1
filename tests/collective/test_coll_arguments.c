/* SPDX-License-Identifier: BSD-3-Clause */
/* The arguments of the collectives: each wrong one is named, in every form of overlap, and does no
 * harm; what a rank does not use it need not have. Wrong calls are refused before the other ranks
 * hear of them, so two ranks may get different things wrong. */
#include "world.h"

#include <dlfcn.h>

#define REFUSED(call, part)                                                                        \
    do {                                                                                           \
        XT_CHECK_RC(call, xcclInvalidArgument);                                                    \
        XT_CHECK_HAS(xcclGetLastError(NULL), part);                                                \
    } while (0)

enum { N = 4 }; /* elements of a block */

/* Every collective as a call with the same arguments. */
struct args {
    const void *send;
    void *recv;
    size_t count;
    xcclDataType_t type;
    xcclRedOp_t op;
    int root;
    xcclComm_t comm;
    void *stream;
};

static xcclResult_t broadcast(const struct args *a)
{
    return xcclBroadcast(a->send, a->recv, a->count, a->type, a->root, a->comm, a->stream);
}
static xcclResult_t bcast(const struct args *a)
{
    return xcclBcast(a->recv, a->count, a->type, a->root, a->comm, a->stream);
}
static xcclResult_t reduce(const struct args *a)
{
    return xcclReduce(a->send, a->recv, a->count, a->type, a->op, a->root, a->comm, a->stream);
}
static xcclResult_t all_reduce(const struct args *a)
{
    return xcclAllReduce(a->send, a->recv, a->count, a->type, a->op, a->comm, a->stream);
}
static xcclResult_t all_gather(const struct args *a)
{
    return xcclAllGather(a->send, a->recv, a->count, a->type, a->comm, a->stream);
}
static xcclResult_t reduce_scatter(const struct args *a)
{
    return xcclReduceScatter(a->send, a->recv, a->count, a->type, a->op, a->comm, a->stream);
}
static xcclResult_t alltoall(const struct args *a)
{
    return xcclAlltoAll(a->send, a->recv, a->count, a->type, a->comm, a->stream);
}
static xcclResult_t gather(const struct args *a)
{
    return xcclGather(a->send, a->recv, a->count, a->type, a->root, a->comm, a->stream);
}
static xcclResult_t scatter(const struct args *a)
{
    return xcclScatter(a->send, a->recv, a->count, a->type, a->root, a->comm, a->stream);
}
static xcclResult_t barrier(const struct args *a)
{
    return xcclBarrier(a->comm, a->stream);
}

/* ALL: the buffer has a block a rank. ROOT: only root has it. */
enum { SEND_ALL = 1, RECV_ALL = 2, SEND_ROOT = 4, RECV_ROOT = 8, REDUCES = 16, ROOTED = 32 };

static const struct call {
    const char *name;
    xcclResult_t (*make)(const struct args *args);
    int what;
    const char *count;
} calls[] = {
    {"xcclBroadcast", broadcast, SEND_ROOT | ROOTED, "count"},
    {"xcclReduce", reduce, RECV_ROOT | ROOTED | REDUCES, "count"},
    {"xcclAllReduce", all_reduce, REDUCES, "count"},
    {"xcclAllGather", all_gather, RECV_ALL, "sendcount"},
    {"xcclReduceScatter", reduce_scatter, SEND_ALL | REDUCES, "recvcount"},
    {"xcclAlltoAll", alltoall, SEND_ALL | RECV_ALL, "count"},
    {"xcclGather", gather, RECV_ALL | RECV_ROOT | ROOTED, "count"},
    {"xcclScatter", scatter, SEND_ALL | SEND_ROOT | ROOTED, "count"},
};
#define CALLS (sizeof calls / sizeof calls[0])

static int has(const struct call *call, int rank, int root_only)
{
    return rank == 0 || !(call->what & root_only);
}

static void wrong_values(const struct call *call, const struct args *good)
{
    char prefix[40], text[80];
    struct args bad = *good;

    snprintf(prefix, sizeof prefix, "%s: ", call->name);
#define REFUSED_WITH(part)                                                                         \
    do {                                                                                           \
        snprintf(text, sizeof text, "%s%s", prefix, part);                                         \
        REFUSED(call->make(&bad), text);                                                           \
        bad = *good;                                                                               \
    } while (0)
    bad.comm = NULL;
    REFUSED_WITH("comm is NULL");
    bad.stream = &bad;
    REFUSED_WITH("stream is not a stream");
    bad.type = xcclNumTypes;
    REFUSED_WITH("datatype is 12, not 0..11");
    bad.type = (xcclDataType_t)-1;
    REFUSED_WITH("datatype is -1");
    bad.count = SIZE_MAX / 2;
    snprintf(prefix, sizeof prefix, "%s: %s is ", call->name, call->count);
    REFUSED_WITH("9223372036854775807");
    bad.count = SIZE_MAX / 4 / 4 + 1; /* one block is just too large */
    REFUSED_WITH("1152921504606846976");
    snprintf(prefix, sizeof prefix, "%s: ", call->name);
    if (call->what & (SEND_ALL | RECV_ALL)) { /* one block would do, two are too much */
        bad.count = SIZE_MAX / 4 / 4 / 2 + 1;
        REFUSED_WITH(call->count);
    }
    if (call->what & REDUCES) {
        bad.op = xcclNumOps;
        REFUSED_WITH("op is 5, not 0..4");
    }
    if (call->what & ROOTED) {
        bad.root = 2;
        REFUSED_WITH("root is 2, not 0..1");
        bad.root = -1;
        REFUSED_WITH("root is -1");
    }
#undef REFUSED_WITH
}

static void wrong_pointers(const struct call *call, int rank, const struct args *good)
{
    struct args bad = *good;

    bad.send = NULL;
    if (has(call, rank, SEND_ROOT))
        REFUSED(call->make(&bad), "sendbuff is NULL and ");
    bad = *good;
    bad.recv = NULL;
    if (has(call, rank, RECV_ROOT))
        REFUSED(call->make(&bad), "recvbuff is NULL and ");
}

/* All places of one buffer relative to the other at which they overlap, but for the in-place form.
 */
static void wrong_overlaps(const struct call *call, int rank, const struct args *good,
                           float *memory)
{
    struct args bad = *good;
    int send = call->what & SEND_ALL ? 2 * N : N, recv = call->what & RECV_ALL ? 2 * N : N;
    int in_place = 0;

    if (!has(call, rank, SEND_ROOT) || !has(call, rank, RECV_ROOT))
        return;
    if (send < recv)
        in_place = rank * N;
    if (recv < send)
        in_place = -rank * N;
    bad.recv = memory + 4 * N;
    for (int shift = 1 - send; shift < recv; shift++) {
        bad.send = memory + 4 * N + shift;
        if (shift != in_place || (send > N && recv > N))
            REFUSED(call->make(&bad), "sendbuff and recvbuff overlap");
    }
    bad.send = (char *)bad.recv + 1 - 4 * send; /* by one byte */
    REFUSED(call->make(&bad), "sendbuff and recvbuff overlap");
}

static void wrong_arguments(int rank, int nranks, void *arg)
{
    static float in[8 * N], out[8 * N], both[12 * N];
    struct args good = {in, out, N, xcclFloat32, xcclSum, 0, world_join(arg, rank, nranks), NULL};
    struct args none = good;

    for (size_t i = 0; i < CALLS; i++) {
        wrong_values(&calls[i], &good);
        wrong_pointers(&calls[i], rank, &good);
        wrong_overlaps(&calls[i], rank, &good, both);
    }
    REFUSED(xcclBcast(NULL, N, xcclFloat32, 0, good.comm, NULL), "xcclBcast: buff is NULL");
    REFUSED(xcclBcast(in, N, xcclFloat32, 7, good.comm, NULL), "xcclBcast: root is 7");
    REFUSED(xcclBarrier(NULL, NULL), "xcclBarrier: comm is NULL");
    REFUSED(xcclBarrier(good.comm, in), "xcclBarrier: stream is not a stream");
    for (size_t i = 0; i < sizeof both / sizeof both[0]; i++)
        XT_CHECK(both[i] == 0); /* nothing has been written */
    none.send = none.recv = NULL; /* what is not used may be missing, and with nothing to do all */
    none.count = 0;
    for (size_t i = 0; i < CALLS; i++) {
        XT_OK(calls[i].make(&none));
        good.send = has(&calls[i], rank, SEND_ROOT) ? in : NULL;
        good.recv = has(&calls[i], rank, RECV_ROOT) ? out : NULL;
        XT_OK(calls[i].make(&good));
    }
    XT_OK(barrier(&good));
    XT_OK(bcast(&good));
    XT_OK(xcclCommDestroy(good.comm));
}

XT_TEST(every_wrong_argument_of_a_collective_is_named_and_harmless)
{
    xt_mp_run(2, wrong_arguments, world_create());
}

/* A buffer that only root uses may be anything elsewhere, also memory that overlaps the other. */
static void unused_buffers(int rank, int nranks, void *arg)
{
    int data[4 * N] = {0};
    const void *nowhere = (const void *)(uintptr_t)16;
    xcclComm_t comm = world_join(arg, rank, nranks);

    data[0] = 40 + rank;
    XT_OK(xcclBroadcast(rank == 1 ? data : nowhere, data, N, xcclInt32, 1, comm, NULL));
    XT_CHECK_INT(data[0], 41);
    XT_OK(xcclReduce(data, rank == 1 ? data : data + 1, N, xcclInt32, xcclSum, 1, comm, NULL));
    XT_CHECK_INT(data[0], rank == 1 ? 41 * nranks : 41);
    XT_OK(xcclScatter(rank == 0 ? data : nowhere, data, 1, xcclInt32, 0, comm, NULL));
    XT_OK(xcclGather(data, rank == 0 ? data : data + 1, 1, xcclInt32, 0, comm, NULL));
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(what_a_rank_does_not_use_is_not_looked_at)
{
    xt_mp_run(3, unused_buffers, world_create());
}

/* A communicator of one has the same rules. */
static void alone(int rank, int nranks, void *arg)
{
    int data[N] = {1, 2, 3, 4}, out[N];
    xcclComm_t comm = world_join(arg, rank, nranks);

    REFUSED(xcclAlltoAll(data, data, N, xcclInt32, comm, NULL), "no in-place form");
    REFUSED(xcclAllGather(data, data + 1, 2, xcclInt32, comm, NULL), "overlap in part");
    XT_OK(xcclAlltoAll(data, out, N, xcclInt32, comm, NULL));
    XT_CHECK(memcmp(data, out, sizeof data) == 0);
    XT_OK(xcclAllGather(data, data, N, xcclInt32, comm, NULL));
    XT_OK(xcclBarrier(comm, NULL));
    XT_CHECK(memcmp(data, out, sizeof data) == 0);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(one_rank_keeps_the_same_rules)
{
    xt_mp_run(1, alone, world_create());
}

/* One wrong call keeps the whole group from being executed. */
static void wrong_in_a_group(int rank, int nranks, void *arg)
{
    int data[4] = {rank, 0, 0, 0};
    xcclComm_t comm = world_join(arg, rank, nranks);

    XT_OK(xcclGroupStart());
    XT_OK(xcclBcast(data, 1, xcclInt32, 0, comm, NULL));
    REFUSED(xcclBcast(data, 1, xcclInt32, 9, comm, NULL), "root is 9");
    XT_CHECK_RC(xcclGroupEnd(), xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(NULL), "root is 9");
    XT_CHECK_INT(data[0], rank);
    XT_OK(xcclBcast(data, 1, xcclInt32, 0, comm, NULL));
    XT_CHECK_INT(data[0], 0);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(a_wrong_collective_in_a_group_stops_the_group)
{
    xt_mp_run(2, wrong_in_a_group, world_create());
}

XT_TEST(every_collective_has_a_twin)
{
    char twin[40];

    for (size_t i = 0; i < CALLS + 2; i++) {
        const char *name = i < CALLS ? calls[i].name : i == CALLS ? "xcclBcast" : "xcclBarrier";

        snprintf(twin, sizeof twin, "p%s", name);
        XT_CHECK(dlsym(RTLD_DEFAULT, name) != NULL);
        XT_CHECK(dlsym(RTLD_DEFAULT, name) == dlsym(RTLD_DEFAULT, twin));
    }
}

/* Ranks that do not mean the same are told so. */
struct disagree {
    struct world world;
    int roots;
};

/* Two roots wait for nobody: what they have sent is found by the next call that receives there. */
static xcclResult_t different_roots(int rank, xcclComm_t comm)
{
    int data[4] = {0};
    xcclResult_t rc = xcclBcast(data, 4, xcclInt32, rank & 1, comm, NULL);

    for (int root = 0; root < 2 && !rc; root++)
        rc = xcclBcast(data, 4, xcclInt32, root, comm, NULL);
    return rc;
}

static xcclResult_t different_collectives(int rank, xcclComm_t comm)
{
    int data[4] = {0}, out[4];

    if (rank & 1)
        return xcclAllGather(data, out, 2, xcclInt32, comm, NULL);
    return xcclAlltoAll(data, out, 2, xcclInt32, comm, NULL);
}

static void disagree(int rank, int nranks, void *arg)
{
    struct disagree *d = arg;
    const char *text;
    xcclComm_t comm;

    if (d->world.param)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(&d->world, rank, nranks);
    XT_CHECK_RC(d->roots ? different_roots(rank, comm) : different_collectives(rank, comm),
                xcclInvalidUsage);
    text = xcclGetLastError(comm);
    XT_CHECK_HAS(text, "ranks disagree");
    XT_CHECK_HAS(text, d->roots ? ", root " : "all-to-all of 2 int32");
    XT_CHECK_HAS(text, "make the same calls in the same order");
    XT_OK(xcclCommDestroy(comm));
}

static void run_disagree(int roots, int sockets)
{
    struct disagree *d = mmap(NULL, sizeof *d, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                              -1, 0);

    XT_CHECK(d != MAP_FAILED);
    d->roots = roots;
    d->world.param = sockets;
    xt_mp_run(2, disagree, d);
}

XT_TEST(different_roots_are_an_error)
{
    run_disagree(1, 0);
}
XT_TEST(different_roots_over_sockets_are_an_error)
{
    run_disagree(1, 1);
}
XT_TEST(different_collectives_are_an_error)
{
    run_disagree(0, 0);
}
XT_TEST(different_collectives_over_sockets_are_an_error)
{
    run_disagree(0, 1);
}
