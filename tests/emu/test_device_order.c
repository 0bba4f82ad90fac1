/* SPDX-License-Identifier: BSD-3-Clause */
/* Launches of a communicator run one after the other, in the order in which the program gave them:
 * random programs of calls on several streams, of captures, and of graphs that are replayed beside
 * calls, by two communicators. Each call works on what the ones before have left, so a value says
 * whether the order was kept; a model on the host says which values there must be.
 *
 * The stand-in's devices work only while the program waits, so that everything else is at work at a
 * time, and a program does the same whenever it runs. XT_PROGRAMS: how many of each kind; program k
 * has seed XT_SEED + k. */
#include <unistd.h>

#include "device_ranks.h"

#define RANKS       2
#define COMMS       2
#define STREAMS     3
#define GRAPHS      3
#define CALLS       6 /* of a graph, at most */
#define STEPS       24 /* of a program */
#define COUNT       600 /* elements, at most */
#define USUAL       12
#define VALUES_MOST 2 /* buffers of a communicator's rank */
#define LINES       16384 /* elements that go in lines of LL128 */

enum verb { SUM_OVER, SUM_BACK, SPREAD, MOST, PASS_ON, GATHER, VERBS };

/* A call of all ranks of a communicator. */
struct call {
    enum verb verb;
    int comm, root;
    size_t count;
};

struct graph {
    int is_there;
    uint32_t calls;
    struct call call[CALLS];
    xccl_cu_graph_exec execs[RANKS]; /* by device */
};

/* A communicator's part of a program. */
struct side {
    xcclComm_t comms[RANKS];
    xccl_cu_ptr at[RANKS][VALUES_MOST];
    uint32_t values[RANKS][VALUES_MOST][COUNT]; /* the model */
};

struct program {
    int devices; /* 1: all ranks are on one, and have the same streams */
    uint64_t random;
    xccl_cu_ctx contexts[RANKS];
    xccl_cu_stream streams[STREAMS][RANKS]; /* by device */
    xccl_cu_event forks[RANKS], joins[RANKS];
    xccl_cu_event gone[RANKS][STEPS]; /* behind streams that were destroyed */
    uint32_t gone_count;
    struct side sides[COMMS];
    struct graph graphs[GRAPHS];
};

static uint32_t draw(struct program *program, uint32_t below)
{
    return (uint32_t)(xt_random(&program->random) >> 33) % below;
}

static int device_of(const struct program *program, int rank)
{
    return program->devices == 1 ? 0 : rank;
}

/* --- the model --- */

static void model(struct side *side, const struct call *call)
{
    uint32_t before[RANKS][VALUES_MOST][COUNT];
    size_t part = call->count / RANKS;

    memcpy(before, side->values, sizeof before);
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < call->count; i++) {
            uint32_t a = before[0][0][i], b = before[1][0][i];

            if (call->verb == SUM_OVER)
                side->values[r][1][i] = a + b;
            else if (call->verb == SUM_BACK)
                side->values[r][0][i] = before[0][1][i] + before[1][1][i];
            else if (call->verb == SPREAD)
                side->values[r][1][i] = before[call->root][0][i];
            else if (call->verb == MOST)
                side->values[r][0][i] = a > b ? a : b;
            else if (call->verb == PASS_ON)
                side->values[r][1][i] = before[!r][0][i];
            else if (i < part * RANKS)
                side->values[r][0][i] = before[i / part][1][i % part];
        }
}

/* --- calls --- */

static xcclResult_t call_rank(struct side *side, const struct call *call, int r,
                              xccl_cu_stream stream)
{
    void *a = at(side->at[r][0], 0), *b = at(side->at[r][1], 0);
    xcclComm_t comm = side->comms[r];
    size_t n = call->count;
    xcclResult_t rc;

    switch (call->verb) {
    case SUM_OVER:
        return xcclAllReduce(a, b, n, xcclUint32, xcclSum, comm, stream);
    case SUM_BACK:
        return xcclAllReduce(b, a, n, xcclUint32, xcclSum, comm, stream);
    case SPREAD:
        return xcclBroadcast(a, b, n, xcclUint32, call->root, comm, stream);
    case MOST:
        return xcclAllReduce(a, a, n, xcclUint32, xcclMax, comm, stream);
    case PASS_ON:
        rc = xcclSend(a, n, xcclUint32, !r, comm, stream);
        return rc ? rc : xcclRecv(b, n, xcclUint32, !r, comm, stream);
    default:
        return xcclAllGather(b, a, n / RANKS, xcclUint32, comm, stream);
    }
}

static struct call draw_call(struct program *program)
{
    return (struct call){.verb = (enum verb)draw(program, VERBS),
                         .comm = (int)draw(program, COMMS),
                         .root = (int)draw(program, RANKS),
                         .count = 1 + draw(program, draw(program, 2) ? COUNT : 32)};
}

/* Calls of different communicators in one group. */
static void call_group(struct program *program, const struct call *calls, uint32_t count,
                       xccl_cu_stream *streams)
{
    XT_OK(xcclGroupStart());
    for (uint32_t i = 0; i < count; i++)
        for (int r = 0; r < RANKS; r++)
            XT_OK(call_rank(&program->sides[calls[i].comm], &calls[i], r,
                            streams[device_of(program, r)]));
    XT_OK(xcclGroupEnd());
}

static void call_now(struct program *program)
{
    struct call calls[2] = {draw_call(program), draw_call(program)};
    uint32_t count = 1 + draw(program, 2), s = draw(program, STREAMS);

    calls[1].comm = !calls[0].comm;
    call_group(program, calls, count, program->streams[s]);
    for (uint32_t i = 0; i < count; i++)
        model(&program->sides[calls[i].comm], &calls[i]);
}

/* --- captures and graphs --- */

static void make_current(const struct program *program, int device)
{
    CU(cuda->ctx_set(program->contexts[device]));
}

/* That the second stream is captured along with the first one, and that it is not any more. */
static void fork_or_join(struct program *program, uint32_t from, uint32_t to, xccl_cu_event *events)
{
    for (int d = 0; d < program->devices; d++) {
        CU(cuda->event_record(events[d], program->streams[from][d]));
        CU(cuda->stream_wait(program->streams[to][d], events[d], 0));
    }
}

static void begin_capture(struct program *program, struct graph *graph, uint32_t s)
{
    for (int d = 0; d < program->devices; d++) {
        if (graph->is_there)
            CU(cuda->graph_exec_destroy(graph->execs[d]));
        CU(cuda->stream_begin_capture(program->streams[s][d], XCCL_CU_CAPTURE_MODE_RELAXED));
    }
    graph->is_there = 0;
    graph->calls = 0;
}

static void capture_call(struct program *program, struct graph *graph, uint32_t s)
{
    struct call *call = &graph->call[graph->calls++];

    *call = draw_call(program);
    call_group(program, call, 1, program->streams[s]);
}

static void end_capture(struct program *program, struct graph *graph, uint32_t s)
{
    for (int d = 0; d < program->devices; d++) {
        xccl_cu_graph captured;

        CU(cuda->stream_end_capture(program->streams[s][d], &captured));
        make_current(program, d);
        CU(cuda->graph_instantiate(&graph->execs[d], captured, 0));
        CU(cuda->graph_destroy(captured));
    }
    graph->is_there = 1;
}

/* One that may use a second stream. */
static void capture(struct program *program)
{
    struct graph *graph = &program->graphs[draw(program, GRAPHS)];
    uint32_t s = draw(program, STREAMS), other = (s + 1) % STREAMS,
             calls = 1 + draw(program, CALLS);
    int forks = draw(program, 2) != 0;

    begin_capture(program, graph, s);
    if (forks)
        fork_or_join(program, s, other, program->forks);
    while (calls--)
        capture_call(program, graph, forks && draw(program, 2) ? other : s);
    if (forks)
        fork_or_join(program, other, s, program->joins);
    end_capture(program, graph, s);
}

/* Two at a time. */
static void capture_two(struct program *program)
{
    uint32_t g = draw(program, GRAPHS), s = draw(program, STREAMS),
             calls = 2 + draw(program, CALLS);
    struct graph *graphs[2] = {&program->graphs[g], &program->graphs[(g + 1) % GRAPHS]};
    uint32_t streams[2] = {s, (s + 1) % STREAMS};

    for (int i = 0; i < 2; i++)
        begin_capture(program, graphs[i], streams[i]);
    for (uint32_t i = 0; i < calls; i++)
        capture_call(program, graphs[i % 2], streams[i % 2]);
    for (int i = 0; i < 2; i++)
        end_capture(program, graphs[i], streams[i]);
}

static void replay(struct program *program)
{
    struct graph *graph = &program->graphs[draw(program, GRAPHS)];
    uint32_t s = draw(program, STREAMS);

    if (!graph->is_there)
        return;
    for (int d = 0; d < program->devices; d++)
        CU(cuda->graph_launch(graph->execs[d], program->streams[s][d]));
    for (uint32_t i = 0; i < graph->calls; i++)
        model(&program->sides[graph->call[i].comm], &graph->call[i]);
}

/* --- a program --- */

static void make_stream(struct program *program, uint32_t s, int d)
{
    make_current(program, d);
    CU(cuda->stream_create(&program->streams[s][d], XCCL_CU_STREAM_NON_BLOCKING));
}

/* A new stream may have the old one's handle, and the old one's work goes on. */
static void change_streams(struct program *program)
{
    uint32_t s = draw(program, STREAMS);

    for (int d = 0; d < program->devices; d++) {
        xccl_cu_event *gone = &program->gone[d][program->gone_count];

        make_current(program, d);
        CU(cuda->event_create(gone, XCCL_CU_EVENT_DISABLE_TIMING));
        CU(cuda->event_record(*gone, program->streams[s][d]));
        CU(cuda->stream_destroy(program->streams[s][d]));
        make_stream(program, s, d);
    }
    program->gone_count++;
}

static void fill(struct program *program, struct side *side)
{
    for (int r = 0; r < RANKS; r++)
        for (int v = 0; v < VALUES_MOST; v++) {
            make_current(program, device_of(program, r));
            CU(cuda->mem_alloc(&side->at[r][v], sizeof side->values[r][v]));
            for (size_t i = 0; i < COUNT; i++)
                side->values[r][v][i] = (uint32_t)xt_random(&program->random);
            CU(cuda->copy_to_device(side->at[r][v], side->values[r][v], sizeof side->values[r][v],
                                    program->streams[0][device_of(program, r)]));
        }
    for (int d = 0; d < program->devices; d++)
        CU(cuda->stream_sync(program->streams[0][d]));
}

static void start(struct program *program)
{
    int devices[RANKS] = {0};

    for (int d = 0; d < program->devices; d++) {
        CU(cuda->ctx_retain(&program->contexts[d], d));
        make_current(program, d);
        CU(cuda->event_create(&program->forks[d], XCCL_CU_EVENT_DISABLE_TIMING));
        CU(cuda->event_create(&program->joins[d], XCCL_CU_EVENT_DISABLE_TIMING));
    }
    for (uint32_t s = 0; s < STREAMS; s++)
        for (int d = 0; d < program->devices; d++)
            make_stream(program, s, d);
    for (int r = 0; r < RANKS; r++)
        devices[r] = device_of(program, r);
    for (int c = 0; c < COMMS; c++) {
        XT_OK(xcclCommInitAll(program->sides[c].comms, RANKS, devices));
        fill(program, &program->sides[c]);
    }
}

static void check_values(const struct program *program, uint32_t step)
{
    static uint32_t got[COUNT];

    for (int d = 0; d < program->devices; d++) {
        for (int s = 0; s < STREAMS; s++)
            CU(cuda->stream_sync(program->streams[s][d]));
        for (uint32_t i = 0; i < program->gone_count; i++)
            CU(cuda->event_sync(program->gone[d][i]));
    }
    for (int c = 0; c < COMMS; c++)
        for (int r = 0; r < RANKS; r++)
            for (int v = 0; v < VALUES_MOST; v++) {
                const struct side *side = &program->sides[c];
                xccl_cu_stream stream = program->streams[0][device_of(program, r)];

                CU(cuda->copy_to_host(got, side->at[r][v], sizeof got, stream));
                CU(cuda->stream_sync(stream));
                for (size_t i = 0; i < COUNT; i++)
                    if (got[i] != side->values[r][v][i])
                        XT_FAIL("step %u: communicator %d, rank %d, buffer %d: element %zu is %u, "
                                "not %u",
                                step, c, r, v, i, got[i], side->values[r][v][i]);
            }
}

static void finish(struct program *program)
{
    for (int c = 0; c < COMMS; c++)
        for (int r = 0; r < RANKS; r++) {
            xcclResult_t rc;

            XT_OK(xcclCommGetAsyncError(program->sides[c].comms[r], &rc));
            XT_OK(rc);
        }
    for (int c = 0; c < COMMS; c++) {
        XT_OK(xcclGroupStart());
        for (int r = 0; r < RANKS; r++)
            XT_OK(xcclCommDestroy(program->sides[c].comms[r]));
        XT_OK(xcclGroupEnd());
    }
}

static void run_program(struct program *program)
{
    static void (*const steps[])(struct program *) = {
        call_now, call_now, call_now, call_now, replay,      replay,
        replay,   replay,   capture,  capture,  capture_two, change_streams};

    static void (*const plain[])(struct program *) = {call_now, call_now, change_streams};
    int captures = draw(program, 4) != 0;

    start(program);
    for (uint32_t i = 0; i < STEPS; i++) {
        if (captures)
            steps[draw(program, sizeof steps / sizeof steps[0])](program);
        else
            plain[draw(program, sizeof plain / sizeof plain[0])](program);
        if (draw(program, 8) == 0)
            check_values(program, i);
    }
    check_values(program, STEPS);
    finish(program);
}

/* --- many of them --- */

struct kind {
    const char *schedule;
    int devices;
    uint64_t seed;
};

/* In a process of its own. */
static void one(int rank, int nranks, void *arg)
{
    const struct kind *kind = arg;
    struct program *program = calloc(1, sizeof *program);
    char seed[32];

    (void)rank;
    (void)nranks;
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)(kind->seed >> 1));
    xt_set_error_source(world_error);
    xt_setenv("XCCL_EMU_SCHEDULE", kind->schedule);
    xt_setenv("XCCL_EMU_SEED", seed);
    xt_setenv("XCCL_EMU_HOLD", "1");
    xt_setenv("XCCL_CUDA_CHANNELS", "2");
    device_settings(NULL);
    device_open();
    XT_CHECK(program != NULL);
    program->devices = kind->devices;
    program->random = kind->seed;
    run_program(program);
    free(program);
    fflush(NULL);
    _exit(0); /* the harness would wait a second for the driver's thread to end */
}

static void run_programs(const char *schedule, int devices)
{
    const char *text = getenv("XT_PROGRAMS");
    uint64_t count = text ? strtoull(text, NULL, 0) : USUAL;

    need_stand_in("devices that work only while the program waits");
    for (uint64_t k = 0; k < count; k++) {
        struct kind kind = {schedule, devices, xt_seed() + k};
        int status;

        xt_mp_wait(xt_mp_start(1, one, &kind), &status);
        if (status)
            XT_FAIL("program %llu, %s order, %d devices: XT_SEED=%#llx XT_PROGRAMS=1 repeats it",
                    (unsigned long long)k, schedule, devices, (unsigned long long)kind.seed);
    }
}

#define PROGRAMS(schedule)                                                                         \
    XT_TEST_DEADLINE(programs_keep_their_order_on_one_device_##schedule, 60)                       \
    {                                                                                              \
        run_programs(#schedule, 1);                                                                \
    }                                                                                              \
    XT_TEST_DEADLINE(programs_keep_their_order_on_two_devices_##schedule, 60)                      \
    {                                                                                              \
        run_programs(#schedule, 2);                                                                \
    }

PROGRAMS(fair)
PROGRAMS(favour)
PROGRAMS(starve)
PROGRAMS(random)

/* --- a block that has few turns --- */

static void sum_all(struct on_device *on, xccl_cu_stream stream)
{
    XT_OK(xcclGroupStart());
    for (int r = 0; r < RANKS; r++)
        XT_OK(xcclAllReduce(at(on[r].in, 0), at(on[r].out, 0), LINES, xcclInt32, xcclSum,
                            on[r].comm, stream));
    XT_OK(xcclGroupEnd());
}

static xccl_cu_graph_exec capture_sums(struct on_device *on, xccl_cu_stream stream)
{
    xccl_cu_graph_exec exec;
    xccl_cu_graph graph;

    CU(cuda->stream_begin_capture(stream, XCCL_CU_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < CALLS; i++)
        sum_all(on, stream);
    CU(cuda->stream_end_capture(stream, &graph));
    CU(cuda->graph_instantiate(&exec, graph, 0));
    CU(cuda->graph_destroy(graph));
    return exec;
}

/* All lines of a message that are there are moved in one turn: with a turn for each of them this
 * takes half a minute. */
XT_TEST_DEADLINE(a_starved_block_keeps_up_with_its_lines, 60)
{
    int devices[RANKS] = {0};
    struct on_device on[RANKS];
    xcclComm_t comms[RANKS];
    xccl_cu_graph_exec exec;
    double start;

    need_stand_in("its blocks have turns");
    xt_set_error_source(world_error);
    xt_setenv("XCCL_EMU_SCHEDULE", "starve");
    device_settings(NULL);
    device_open();
    XT_OK(xcclCommInitAll(comms, RANKS, devices));
    for (int r = 0; r < RANKS; r++) {
        device_make(&on[r], LINES * 4);
        on[r].comm = comms[r];
        device_put(&on[r], LINES, r, 0);
    }
    sum_all(on, on[0].stream);
    exec = capture_sums(on, on[0].stream);
    start = xt_seconds();
    for (int round = 0; round < 10; round++) {
        CU(cuda->graph_launch(exec, on[0].stream));
        sum_all(on, on[1].stream);
        CU(cuda->stream_sync(on[0].stream));
        for (int r = 0; r < RANKS; r++)
            CHECK_EACH(&on[r], LINES, sum_of(RANKS, i, 0));
    }
    XT_CHECK(xt_seconds() - start < xt_bound(3, 15));
    CU(cuda->graph_exec_destroy(exec));
    XT_OK(xcclGroupStart());
    for (int r = 0; r < RANKS; r++)
        XT_OK(xcclCommDestroy(comms[r]));
    XT_OK(xcclGroupEnd());
    for (int r = 0; r < RANKS; r++)
        device_free(&on[r]);
}
