/* SPDX-License-Identifier: BSD-3-Clause */
/* Many ranks of one thread on one device, on one stream: all blocks of a call have to be at work at
 * a time, so all ranks go in one launch, however many they are; two communicators of a group take
 * turns where the device has no room for both. A call that cannot fit is an error at once. On the
 * stand-in. */
#include "device_ranks.h"

#define MOST  64
#define COUNT 640 /* elements of a rank */

struct many {
    int n;
    xccl_cu_stream stream;
    xcclComm_t comms[MOST];
    xccl_cu_ptr in[MOST], out[MOST];
    size_t bytes; /* of each buffer */
};

static void open_many(struct many *many, int n)
{
    int devices[MOST] = {0};

    need_stand_in("its device has more ranks than one is meant for");
    xt_set_error_source(world_error);
    device_settings(NULL);
    device_open();
    *many = (struct many){.n = n, .bytes = (size_t)n * COUNT * 4};
    CU(cuda->stream_create(&many->stream, XCCL_CU_STREAM_NON_BLOCKING));
    XT_OK(xcclCommInitAll(many->comms, n, devices));
    for (int r = 0; r < n; r++) {
        CU(cuda->mem_alloc(&many->in[r], many->bytes));
        CU(cuda->mem_alloc(&many->out[r], many->bytes));
    }
}

static void close_many(struct many *many)
{
    XT_OK(xcclGroupStart());
    for (int r = 0; r < many->n; r++)
        XT_OK(xcclCommDestroy(many->comms[r]));
    XT_OK(xcclGroupEnd());
    for (int r = 0; r < many->n; r++) {
        CU(cuda->mem_free(many->in[r]));
        CU(cuda->mem_free(many->out[r]));
    }
    CU(cuda->stream_destroy(many->stream));
}

static void fill(struct many *many, int round)
{
    size_t count = many->bytes / 4;
    int32_t *host = malloc(many->bytes);

    XT_CHECK(host != NULL);
    for (int r = 0; r < many->n; r++) {
        for (size_t i = 0; i < count; i++)
            host[i] = world_value(r, i, round);
        CU(cuda->copy_to_device(many->in[r], host, many->bytes, many->stream));
        CU(cuda->stream_sync(many->stream));
    }
    free(host);
}

enum verb { REDUCE, GATHER, SCATTER, SPREAD, EXCHANGE, PASS_ON, VERBS };

static xcclResult_t call(struct many *many, enum verb verb, int r, xcclComm_t comm)
{
    void *in = at(many->in[r], 0), *out = at(many->out[r], 0);
    xcclResult_t rc;

    switch (verb) {
    case REDUCE:
        return xcclAllReduce(in, out, COUNT, xcclInt32, xcclSum, comm, many->stream);
    case GATHER:
        return xcclAllGather(in, out, COUNT, xcclInt32, comm, many->stream);
    case SCATTER:
        return xcclReduceScatter(in, out, COUNT, xcclInt32, xcclSum, comm, many->stream);
    case SPREAD:
        return xcclBroadcast(in, out, COUNT, xcclInt32, many->n - 1, comm, many->stream);
    case EXCHANGE:
        return xcclAlltoAll(in, out, COUNT, xcclInt32, comm, many->stream);
    default:
        rc = xcclSend(in, COUNT, xcclInt32, (r + 1) % many->n, comm, many->stream);
        return rc ? rc
                  : xcclRecv(out, COUNT, xcclInt32, (r + many->n - 1) % many->n, comm,
                             many->stream);
    }
}

static int32_t want(const struct many *many, enum verb verb, int r, size_t i, int round)
{
    switch (verb) {
    case REDUCE:
        return sum_of(many->n, i, round);
    case GATHER:
        return world_value((int)(i / COUNT), i % COUNT, round);
    case SCATTER:
        return sum_of(many->n, (size_t)r * COUNT + i, round);
    case SPREAD:
        return world_value(many->n - 1, i, round);
    case EXCHANGE:
        return world_value((int)(i / COUNT), (size_t)r * COUNT + i % COUNT, round);
    default:
        return world_value((r + many->n - 1) % many->n, i, round);
    }
}

static void check(struct many *many, enum verb verb, int round)
{
    size_t count = verb == GATHER || verb == EXCHANGE ? (size_t)many->n * COUNT : COUNT;
    int32_t *got = malloc(many->bytes);

    XT_CHECK(got != NULL);
    CU(cuda->stream_sync(many->stream));
    for (int r = 0; r < many->n; r++) {
        CU(cuda->copy_to_host(got, many->out[r], count * 4, many->stream));
        CU(cuda->stream_sync(many->stream));
        for (size_t i = 0; i < count; i++)
            if (got[i] != want(many, verb, r, i, round))
                XT_FAIL("call %d, rank %d of %d: element %zu is %d, not %d", (int)verb, r, many->n,
                        i, (int)got[i], (int)want(many, verb, r, i, round));
    }
    free(got);
}

static void group(struct many *many, enum verb verb)
{
    XT_OK(xcclGroupStart());
    for (int r = 0; r < many->n; r++)
        XT_OK(call(many, verb, r, many->comms[r]));
    XT_OK(xcclGroupEnd());
}

static void call_some(int n, int step)
{
    struct many many;

    xt_setenv("XCCL_BUFFER_BYTES", "4M");
    open_many(&many, n);
    for (int verb = 0; verb < VERBS; verb += step) {
        fill(&many, verb);
        group(&many, (enum verb)verb);
        check(&many, (enum verb)verb, verb);
    }
    close_many(&many);
}

/* One more than a launch brings along. */
XT_TEST_DEADLINE(all_calls_work_with_25_ranks_on_a_device, 60)
{
    call_some(25, 1);
}

XT_TEST_DEADLINE(sums_and_messages_work_with_64_ranks_on_a_device, 60)
{
    call_some(64, PASS_ON);
}

/* Works that lie in device memory are there for each replay. */
XT_TEST_DEADLINE(many_ranks_are_captured, 60)
{
    xccl_cu_graph graph;
    xccl_cu_graph_exec exec;
    struct many many;

    xt_setenv("XCCL_BUFFER_BYTES", "4M");
    open_many(&many, 26);
    group(&many, REDUCE); /* makes links */
    CU(cuda->stream_sync(many.stream));
    CU(cuda->stream_begin_capture(many.stream, XCCL_CU_CAPTURE_MODE_GLOBAL));
    group(&many, REDUCE);
    CU(cuda->stream_end_capture(many.stream, &graph));
    CU(cuda->graph_instantiate(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        fill(&many, round);
        group(&many, PASS_ON); /* may use memory that launches were lent */
        CU(cuda->graph_launch(exec, many.stream));
        check(&many, REDUCE, round);
    }
    CU(cuda->graph_exec_destroy(exec));
    CU(cuda->graph_destroy(graph));
    close_many(&many);
}

/* Each of them takes 8 of the device's 12 blocks. */
XT_TEST_DEADLINE(communicators_of_a_group_take_turns, 60)
{
    int devices[MOST] = {0};
    xcclComm_t others[MOST];
    struct many many;

    xt_setenv("XCCL_EMU_SMS", "12");
    open_many(&many, 8);
    XT_OK(xcclCommInitAll(others, many.n, devices));
    for (int verb = 0; verb < VERBS; verb += VERBS - 1) {
        fill(&many, verb);
        XT_OK(xcclGroupStart());
        for (int r = 0; r < many.n; r++) {
            XT_OK(call(&many, (enum verb)verb, r, many.comms[r]));
            XT_OK(call(&many, (enum verb)verb, r, others[r]));
        }
        XT_OK(xcclGroupEnd());
        check(&many, (enum verb)verb, verb);
    }
    XT_OK(xcclGroupStart());
    for (int r = 0; r < many.n; r++)
        XT_OK(xcclCommDestroy(others[r]));
    XT_OK(xcclGroupEnd());
    close_many(&many);
}

/* More ranks than the device has multiprocessors. */
XT_TEST_DEADLINE(ranks_without_room_are_an_error_at_once, 60)
{
    xcclResult_t rc = xcclSuccess;
    struct many many;
    double start;

    xt_setenv("XCCL_EMU_SMS", "8");
    open_many(&many, 9);
    XT_OK(xcclGroupStart());
    for (int r = 0; r < many.n; r++)
        XT_OK(call(&many, PASS_ON, r, many.comms[r]));
    start = xt_seconds();
    rc = xcclGroupEnd();
    XT_CHECK(xt_seconds() - start < xt_bound(2, 10));
    XT_CHECK_INT(rc, xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "9 blocks at once");
    XT_CHECK_HAS(xcclGetLastError(NULL), "room for 8");
    XT_CHECK_HAS(xcclGetLastError(NULL), "use fewer ranks on the device");
    for (int r = 0; r < many.n; r++)
        XT_OK(xcclCommAbort(many.comms[r]));
}
