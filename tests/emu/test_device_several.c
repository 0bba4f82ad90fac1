/* SPDX-License-Identifier: BSD-3-Clause */
/* Several devices: ranks of a thread and a process on different ones, with and without access
 * between them, in groups with communicators of other devices, over their streams and legacy
 * streams, in graphs; and that a thread's context and capture mode are what they were after every
 * call. On the stand-in, which has several. */
#include "device_ways.h"

#define COUNT WAYS_COUNT

static xccl_cu_ctx contexts[RANKS_MAX]; /* of devices */

static void open_several(void)
{
    need_stand_in("it needs the stand-in's devices");
    xt_set_error_source(world_error);
    device_settings(NULL);
    device_open();
    for (int i = 0; i < RANKS_MAX; i++)
        CU(cuda->ctx_retain(&contexts[i], i));
}

/* The thread's context and capture mode: unusual ones, so that what changes them shows. */
static const int own_mode = XCCL_CU_CAPTURE_MODE_GLOBAL;

static void set_own(xccl_cu_ctx ctx)
{
    int mode = own_mode;

    CU(cuda->ctx_set(ctx));
    CU(cuda->capture_mode(&mode));
}

static void check_own(xccl_cu_ctx ctx)
{
    xccl_cu_ctx now = NULL;
    int mode = own_mode;

    CU(cuda->ctx_get(&now));
    XT_CHECK(now == ctx);
    CU(cuda->capture_mode(&mode));
    XT_CHECK_INT(mode, own_mode);
}

/* The call leaves the context as it was, whichever that is. */
#define KEEPS(ctx, call)                                                                           \
    do {                                                                                           \
        set_own(ctx);                                                                              \
        XT_OK(call);                                                                               \
        check_own(ctx);                                                                            \
    } while (0)

static void make_on(struct on_device *on, int device)
{
    CU(cuda->ctx_push(contexts[device]));
    device_make(on, 4 * COUNT * 4);
    CU(cuda->ctx_pop(&(xccl_cu_ctx){NULL}));
}

static void put_on(struct on_device *on, int rank, int round)
{
    device_put(on, COUNT, rank, round);
}

static void check_sum(struct on_device *on, int nranks, int round)
{
    (void)device_get(on, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        XT_CHECK_INT(on->host[i], sum_of(nranks, i, round));
}

static xcclResult_t sum_on(const struct on_device *on)
{
    return xcclAllReduce(at(on->in, 0), at(on->out, 0), COUNT, xcclInt32, xcclSum, on->comm,
                         on->stream);
}

/* Ranks of this thread, on those devices. */
static void join_all(struct on_device *on, int nranks, const int *devices)
{
    xcclComm_t comms[RANKS_MAX];

    KEEPS(contexts[7], xcclCommInitAll(comms, nranks, devices));
    for (int r = 0; r < nranks; r++) {
        int device = -1;

        on[r].comm = comms[r];
        KEEPS(NULL, xcclCommCuDevice(comms[r], &device));
        XT_CHECK_INT(device, devices ? devices[r] : r);
        make_on(&on[r], device);
    }
}

static void leave_all(struct on_device *on, int nranks)
{
    for (int r = 0; r < nranks; r++) {
        KEEPS(r % 2 ? NULL : contexts[6], xcclCommDestroy(on[r].comm));
        device_free(&on[r]);
    }
    check_own(nranks % 2 ? contexts[6] : NULL);
}

static void group_sum(struct on_device *on, int nranks, xccl_cu_ctx ctx, int round)
{
    for (int r = 0; r < nranks; r++)
        put_on(&on[r], r, round);
    KEEPS(ctx, xcclGroupStart());
    for (int r = 0; r < nranks; r++)
        KEEPS(ctx, sum_on(&on[r]));
    KEEPS(ctx, xcclGroupEnd());
    for (int r = 0; r < nranks; r++)
        check_sum(&on[r], nranks, round);
}

/* Everybody sends everybody a part. */
static void group_messages(struct on_device *on, int nranks, int times)
{
    for (int r = 0; r < nranks; r++)
        put_on(&on[r], r, 5);
    set_own(contexts[5]);
    XT_OK(xcclGroupStart());
    for (int r = 0; r < nranks; r++)
        for (int i = 0; i < nranks * times; i++) {
            size_t place = (size_t)i * 10;

            XT_OK(
                xcclSend(at(on[r].in, place), 10, xcclInt32, i % nranks, on[r].comm, on[r].stream));
            XT_OK(xcclRecv(at(on[r].out, place), 10, xcclInt32, i % nranks, on[r].comm,
                           on[r].stream));
        }
    XT_OK(xcclGroupEnd());
    check_own(contexts[5]);
    for (int r = 0; r < nranks; r++) {
        (void)device_get(&on[r], COUNT);
        for (int i = 0; i < nranks * times; i++) {
            /* The k-th from a peer is the k-th that it sent to this rank. */
            size_t sent = (size_t)(i / nranks * nranks + r) * 10;

            for (size_t k = 0; k < 10; k++)
                XT_CHECK_INT(on[r].host[(size_t)i * 10 + k], world_value(i % nranks, sent + k, 5));
        }
    }
}

static void use_all(int nranks, const int *devices)
{
    struct on_device on[RANKS_MAX];

    open_several();
    join_all(on, nranks, devices);
    for (int round = 0; round < 3; round++)
        group_sum(on, nranks, round == 1 ? NULL : contexts[7 - round], round);
    group_messages(on, nranks, 1);
    group_messages(on, nranks, 20); /* more than a launch has room for */
    group_sum(on, nranks, contexts[0], 4);
    leave_all(on, nranks);
}

XT_TEST_DEADLINE(a_thread_has_a_rank_on_each_device, 60)
{
    use_all(4, NULL);
}

XT_TEST_DEADLINE(a_thread_has_ranks_on_devices_in_any_order, 60)
{
    const int devices[4] = {3, 1, 3, 0};

    use_all(4, devices);
}

XT_TEST_DEADLINE(devices_of_a_thread_do_not_reach_each_other, 60)
{
    xt_setenv("XCCL_EMU_NO_PEER", "1");
    use_all(3, NULL);
}

/* Only the one in the middle has its links in device memory. */
XT_TEST_DEADLINE(some_devices_of_a_thread_reach_each_other, 60)
{
    const struct expected to_middle = {XCCL_RECORD_WAY_PEER_ACCESS, "1", NULL, ""};
    const struct expected to_end = {XCCL_RECORD_WAY_PINNED, NULL, NULL,
                                    "the devices of ranks 0 and 2 have no peer access"};
    struct on_device on[3];

    xt_setenv("XCCL_RECORD_DIR", xt_tmpdir());
    xt_setenv("XCCL_EMU_NO_PEER", "2");
    open_several();
    join_all(on, 3, NULL);
    for (int round = 0; round < 3; round++)
        group_sum(on, 3, NULL, round);
    group_messages(on, 3, 2);
    check_way(0, &to_middle);
    check_way(0, &to_end);
    check_way(2, &to_middle);
    leave_all(on, 3);
}

XT_TEST_DEADLINE(devices_of_a_thread_are_not_to_reach_each_other, 60)
{
    const int devices[3] = {1, 1, 2};

    xt_setenv("XCCL_CUDA_P2P", "0");
    use_all(3, devices);
}

/* Each device has one of its own, though all are NULL. */
XT_TEST_DEADLINE(legacy_streams_of_several_devices_are_side_by_side, 60)
{
    struct on_device on[3];

    open_several();
    join_all(on, 3, NULL);
    for (int r = 0; r < 3; r++)
        put_on(&on[r], r, 1);
    XT_OK(xcclGroupStart());
    for (int r = 0; r < 3; r++)
        XT_OK(xcclAllReduce(at(on[r].in, 0), at(on[r].out, 0), COUNT, xcclInt32, xcclSum,
                            on[r].comm, NULL));
    XT_OK(xcclGroupEnd());
    for (int r = 0; r < 3; r++) {
        CU(cuda->ctx_push(contexts[r]));
        CU(cuda->stream_sync(NULL));
        CU(cuda->ctx_pop(&(xccl_cu_ctx){NULL}));
        check_sum(&on[r], 3, 1);
    }
    for (int r = 0; r < 3; r++)
        XT_OK(xcclCommDestroy(on[r].comm));
}

/* Two communicators, of which one device is in both, named in one group in different orders. */
XT_TEST_DEADLINE(communicators_of_several_devices_are_in_one_group, 60)
{
    const int first[2] = {0, 1}, second[3] = {2, 1, 3};
    struct on_device on[5];

    open_several();
    join_all(on, 2, first);
    join_all(on + 2, 3, second);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 5; i++)
            put_on(&on[i], i < 2 ? i : i - 2, round);
        set_own(contexts[4]);
        XT_OK(xcclGroupStart());
        for (int i = 0; i < 5; i++) {
            const struct on_device *one = &on[(i * 2 + round) % 5];

            XT_OK(sum_on(one));
            XT_OK(xcclAllReduce(at(one->out, 0), at(one->out, 0), COUNT, xcclInt32, xcclMax,
                                one->comm, one->stream));
        }
        XT_OK(xcclGroupEnd());
        check_own(contexts[4]);
        for (int i = 0; i < 5; i++)
            check_sum(&on[i], i < 2 ? 2 : 3, round);
    }
    for (int i = 4; i >= 0; i--)
        XT_OK(xcclCommDestroy(on[i].comm));
}

/* A group mixes messages of one and a collective of the other. */
XT_TEST_DEADLINE(messages_and_calls_of_several_devices_are_in_one_group, 60)
{
    const int first[2] = {0, 1}, second[2] = {1, 2};
    struct on_device on[4];

    open_several();
    join_all(on, 2, first);
    join_all(on + 2, 2, second);
    for (int i = 0; i < 4; i++)
        put_on(&on[i], i % 2, 1);
    set_own(contexts[3]);
    XT_OK(xcclGroupStart());
    for (int i = 0; i < 2; i++) {
        XT_OK(xcclSend(at(on[i].in, 0), COUNT, xcclInt32, 1 - i, on[i].comm, on[i].stream));
        XT_OK(sum_on(&on[i + 2]));
        XT_OK(xcclRecv(at(on[i].out, 0), COUNT, xcclInt32, 1 - i, on[i].comm, on[i].stream));
    }
    XT_OK(xcclGroupEnd());
    check_own(contexts[3]);
    for (int i = 0; i < 2; i++) {
        check_sum(&on[i + 2], 2, 1);
        (void)device_get(&on[i], COUNT);
        for (size_t k = 0; k < COUNT; k++)
            XT_CHECK_INT(on[i].host[k], world_value(1 - i, k, 1));
    }
    for (int i = 0; i < 4; i++)
        XT_OK(xcclCommDestroy(on[i].comm));
}

/* Streams of two devices are captured, and both graphs replayed. */
XT_TEST_DEADLINE(calls_on_several_devices_are_captured, 60)
{
    xccl_cu_graph_exec execs[2];
    struct on_device on[2];

    open_several();
    join_all(on, 2, NULL);
    group_sum(on, 2, NULL, 0);
    for (int r = 0; r < 2; r++)
        CU(cuda->stream_begin_capture(on[r].stream, XCCL_CU_CAPTURE_MODE_GLOBAL));
    XT_OK(xcclGroupStart());
    for (int r = 0; r < 2; r++)
        XT_OK(sum_on(&on[r]));
    XT_OK(xcclGroupEnd());
    for (int r = 0; r < 2; r++) {
        xccl_cu_graph graph;

        CU(cuda->stream_end_capture(on[r].stream, &graph));
        CU(cuda->graph_instantiate(&execs[r], graph, 0));
        CU(cuda->graph_destroy(graph));
    }
    for (int round = 1; round < 5; round++) {
        for (int r = 0; r < 2; r++)
            put_on(&on[r], r, round);
        for (int r = 0; r < 2; r++)
            CU(cuda->graph_launch(execs[r], on[r].stream));
        for (int r = 0; r < 2; r++)
            check_sum(&on[r], 2, round);
    }
    for (int r = 0; r < 2; r++)
        CU(cuda->graph_exec_destroy(execs[r]));
    for (int r = 0; r < 2; r++)
        XT_OK(xcclCommDestroy(on[r].comm));
}

XT_TEST_DEADLINE(ranks_on_several_devices_are_split, 60)
{
    struct on_device on[4];
    xcclComm_t children[4];

    open_several();
    join_all(on, 4, NULL);
    set_own(contexts[6]);
    XT_OK(xcclGroupStart());
    for (int r = 0; r < 4; r++)
        XT_OK(xcclCommSplit(on[r].comm, r / 2, r, &children[r], NULL));
    XT_OK(xcclGroupEnd());
    check_own(contexts[6]);
    for (int r = 0; r < 4; r++) {
        int device = -1;

        XT_OK(xcclCommCuDevice(children[r], &device));
        XT_CHECK_INT(device, r);
        XT_OK(xcclCommDestroy(on[r].comm));
        on[r].comm = children[r];
    }
    for (int half = 0; half < 4; half += 2)
        group_sum(on + half, 2, contexts[6], half);
    for (int r = 0; r < 4; r++)
        XT_OK(xcclCommDestroy(on[r].comm));
}

XT_TEST(memory_is_of_the_threads_device)
{
    void *memory[4];
    int device = -1;

    open_several();
    for (int i = 0; i < 4; i++) {
        KEEPS(contexts[i], xcclMemAlloc(&memory[i], 1000));
        CU(cuda->pointer_attribute(&device, XCCL_CU_POINTER_DEVICE,
                                   (xccl_cu_ptr)(uintptr_t)memory[i]));
        XT_CHECK_INT(device, i);
    }
    for (int i = 0; i < 4; i++)
        KEEPS(contexts[3 - i], xcclMemFree(memory[i]));
}

/* Memory that the first rank's device has pinned is needed by the second one until it ends, and
 * nobody but the library holds the first device. */
XT_TEST_DEADLINE(a_device_stays_as_long_as_what_it_has_pinned, 60)
{
    const int devices[2] = {1, 2};
    xcclComm_t comms[2];

    need_stand_in("it needs the stand-in's devices");
    xt_setenv("XCCL_CUDA_P2P", "0");
    xt_set_error_source(world_error);
    device_settings(NULL);
    device_open();
    XT_OK(xcclCommInitAll(comms, 2, devices));
    XT_OK(xcclCommDestroy(comms[0]));
    XT_OK(xcclCommDestroy(comms[1]));
    XT_OK(xcclCommInitAll(comms, 2, devices));
    XT_OK(xcclCommDestroy(comms[1]));
    XT_OK(xcclCommDestroy(comms[0]));
}

/* --- several processes, each with ranks on several devices --- */

struct scene {
    struct world *world;
    const char *setting;
    struct expected same, other; /* ways of rank 0 to its own process and the other one */
};

/* Two ranks in each process: rank r on device r. */
static void pair(int process, int processes, void *arg)
{
    const struct scene *scene = arg;
    int nranks = 2 * processes;
    xcclUniqueId id;
    struct on_device on[2];

    open_several();
    device_settings(scene->setting);
    id = world_id(scene->world, process, 0);
    set_own(contexts[7]);
    XT_OK(xcclGroupStart());
    for (int i = 0; i < 2; i++) {
        xcclConfig_t config = XCCL_CONFIG_INITIALIZER;

        config.device = 2 * process + i;
        XT_OK(xcclCommInitRankConfig(&on[i].comm, nranks, id, 2 * process + i, &config));
    }
    XT_OK(xcclGroupEnd());
    check_own(contexts[7]);
    for (int i = 0; i < 2; i++)
        make_on(&on[i], 2 * process + i);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2; i++)
            put_on(&on[i], 2 * process + i, round);
        XT_OK(xcclGroupStart());
        for (int i = 0; i < 2; i++)
            XT_OK(sum_on(&on[i]));
        XT_OK(xcclGroupEnd());
        check_own(contexts[7]);
        for (int i = 0; i < 2; i++)
            check_sum(&on[i], nranks, round);
    }
    if (process == 0 && scene->same.kind) {
        check_way(0, &scene->same);
        check_way(0, &scene->other);
    }
    for (int i = 0; i < 2; i++)
        XT_OK(xcclCommDestroy(on[i].comm));
}

static void run_pairs(struct scene *scene)
{
    xt_setenv("XCCL_RECORD_DIR", xt_tmpdir());
    scene->world = world_create();
    xt_mp_run(2, pair, scene);
}

XT_TEST_DEADLINE(processes_have_ranks_on_several_devices, 60)
{
    struct scene scene = {.same = {XCCL_RECORD_WAY_PEER_ACCESS, "1", "1", ""},
                          .other = {XCCL_RECORD_WAY_HANDLE, "2-3", "2-3", ""}};

    run_pairs(&scene);
}

XT_TEST_DEADLINE(processes_have_ranks_on_several_devices_by_ipc, 60)
{
    struct scene scene = {.same = {XCCL_RECORD_WAY_PEER_ACCESS, "1", "1", ""},
                          .other = {XCCL_RECORD_WAY_IPC, "2", NULL, "XCCL_CUDA_CUMEM=0 on rank 2"}};

    xt_setenv("XCCL_CUDA_CUMEM", "0");
    run_pairs(&scene);
}

/* Which the ranks of one process do not need among each other. */
XT_TEST_DEADLINE(an_ipc_handle_that_is_refused_leaves_peer_access_within_a_process, 60)
{
    struct scene scene = {
        .same = {XCCL_RECORD_WAY_PEER_ACCESS, "1", "1", NULL},
        .other = {XCCL_RECORD_WAY_PINNED, "2", NULL, "creating an IPC handle failed on rank "}};

    xt_setenv("XCCL_CUDA_CUMEM", "0");
    xt_setenv("XCCL_EMU_FAIL", "cuIpcGetMemHandle:*");
    run_pairs(&scene);
}

/* What the process's other device is refused is no memory for links. */
XT_TEST_DEADLINE(access_of_the_other_device_that_is_refused_gives_way_to_ipc, 60)
{
    struct scene scene = {
        .same = {XCCL_RECORD_WAY_PEER_ACCESS, "1", NULL, NULL},
        .other = {XCCL_RECORD_WAY_IPC, NULL, NULL, "creating a cuMem handle failed on rank "}};

    xt_setenv("XCCL_EMU_FAIL", "cuMemSetAccess:2");
    run_pairs(&scene);
}

XT_TEST_DEADLINE(processes_have_ranks_on_devices_that_do_not_reach_each_other, 60)
{
    struct scene scene = {
        .same = {XCCL_RECORD_WAY_PINNED, "1", NULL, "the devices of ranks 0 and 1"},
        .other = {XCCL_RECORD_WAY_PINNED, "2", NULL, "the devices of ranks 0 and 2"}};

    xt_setenv("XCCL_EMU_NO_PEER", "1");
    run_pairs(&scene);
}

XT_TEST_DEADLINE(processes_have_ranks_on_several_devices_over_sockets, 60)
{
    struct scene scene = {.setting = "net"};

    run_pairs(&scene);
}
