/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory that goes from process to process as descriptors of allocations or by fabric
 * handles: calls work, other ways are gone where a driver refuses one of its steps, on one rank or
 * on all, nothing is left behind, and memory of that kind that the program has can be used. */
#include "device_ways.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the ranks do. */
struct scene {
    struct world *world;
    const char *fail; /* XCCL_EMU_FAIL */
    int only; /* of this rank, -1: of all */
    const char *const *fails; /* or by rank */
    struct expected want; /* of every rank, kind 0: none */
    const struct expected *ways; /* likewise, by rank; NULL: none */
};

/* Maps of memory of the stand-in's devices. */
static int count_maps(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;

    XT_CHECK(file != NULL);
    while (fgets(line, sizeof line, file))
        count += strstr(line, "emu-device-memory") != NULL;
    fclose(file);
    return count;
}

static void act(int rank, int nranks, void *arg)
{
    const struct scene *scene = arg;
    struct on_device on;

    if (scene->fail && (scene->only < 0 || scene->only == rank))
        xt_setenv("XCCL_EMU_FAIL", scene->fail);
    if (scene->fails && scene->fails[rank])
        xt_setenv("XCCL_EMU_FAIL", scene->fails[rank]);
    device_settings(NULL);
    device_open();
    device_make(&on, WAYS_COUNT * 4);
    on.comm = world_join(scene->world, rank, nranks);
    call_all(&on, rank, nranks);
    if (scene->want.kind)
        check_way(rank, &scene->want);
    if (scene->ways)
        check_way(rank, &scene->ways[rank]);
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
}

static void run_scene(int nranks, struct scene *scene)
{
    need_stand_in("of the stand-in alone");
    xt_setenv("XCCL_RECORD_DIR", xt_tmpdir());
    scene->world = world_create();
    xt_mp_run(nranks, act, scene);
}

static void run(int nranks, const char *fail, int only, struct expected want)
{
    struct scene scene = {.fail = fail, .only = only, .want = want};

    run_scene(nranks, &scene);
}

/* --- what is refused --- */

XT_TEST(an_allocation_that_is_refused_gives_way_to_ipc)
{
    run(3, "cuMemCreate:*", -1,
        (struct expected){XCCL_RECORD_WAY_IPC, NULL, NULL,
                          "creating a cuMem handle failed on rank "});
}

XT_TEST(a_descriptor_that_is_refused_gives_way_to_ipc)
{
    run(2, "cuMemExportToShareableHandle:*", -1,
        (struct expected){XCCL_RECORD_WAY_IPC, NULL, NULL,
                          "exporting a cuMem handle failed on rank "});
}

XT_TEST(a_granularity_that_is_refused_gives_way_to_ipc)
{
    run(2, "cuMemGetAllocationGranularity:*", -1,
        (struct expected){XCCL_RECORD_WAY_IPC, NULL, NULL, "CUDA_ERROR_INVALID_VALUE"});
}

XT_TEST(a_mapping_that_is_refused_gives_way_to_ipc)
{
    run(2, "cuMemMap:*", -1,
        (struct expected){XCCL_RECORD_WAY_IPC, NULL, NULL,
                          "creating a cuMem handle failed on rank "});
}

XT_TEST(access_that_is_refused_gives_way_to_ipc)
{
    run(2, "cuMemSetAccess:*", -1, (struct expected){XCCL_RECORD_WAY_IPC, NULL, NULL, NULL});
}

/* One rank cannot, so what it opens goes another way, and that says whose fault it is. */
XT_TEST(an_import_that_one_rank_is_refused_gives_way_to_ipc_for_that_rank)
{
    static const char *const fails[] = {NULL, NULL, "cuMemImportFromShareableHandle:*"};
    static const struct expected ways[] = {{XCCL_RECORD_WAY_HANDLE, "1-2", "1", ""},
                                           {XCCL_RECORD_WAY_HANDLE, "0,2", "0", ""},
                                           {XCCL_RECORD_WAY_HANDLE, "", "0-1", ""}};
    struct scene scene = {
        .fails = fails,
        .ways = ways,
        .want = {XCCL_RECORD_WAY_IPC, NULL, NULL,
                 "importing a cuMem handle failed on rank 2: CUDA_ERROR_OUT_OF_MEMORY"}};

    run_scene(3, &scene);
}

/* Its first import is that of rank 0's memory. */
XT_TEST(an_import_of_one_memory_that_is_refused_leaves_the_others)
{
    static const char *const fails[] = {NULL, NULL, "cuMemImportFromShareableHandle:1"};
    static const struct expected ways[] = {
        {XCCL_RECORD_WAY_IPC, "", "2", "importing a cuMem handle failed on rank 2"},
        {XCCL_RECORD_WAY_HANDLE, "0,2", "0,2", ""},
        {XCCL_RECORD_WAY_IPC, "0", "", "importing a cuMem handle failed on rank 2"}};
    struct scene scene = {.fails = fails, .ways = ways};

    run_scene(3, &scene);
}

/* Rank 2 shares no memory with the others: it goes round with them until they agree. */
static void act_apart(int rank, int nranks, void *arg)
{
    if (rank == 2)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    act(rank, nranks, arg);
}

XT_TEST(a_refusal_on_one_host_is_got_over_while_others_have_none)
{
    static const char *const fails[] = {NULL, "cuMemImportFromShareableHandle:*", NULL};
    static const struct expected ways[] = {
        {XCCL_RECORD_WAY_IPC, "", "1", "importing a cuMem handle failed on rank 1"},
        {XCCL_RECORD_WAY_HANDLE, "", "0", ""},
        {XCCL_RECORD_WAY_NET_PINNED, NULL, NULL, NULL}};
    struct scene scene = {.fails = fails, .ways = ways};

    need_stand_in("of the stand-in alone");
    xt_setenv("XCCL_NET_PLUGIN", DEVICE_SOCKETS);
    xt_setenv("XCCL_RECORD_DIR", xt_tmpdir());
    scene.world = world_create();
    xt_mp_run(3, act_apart, &scene);
}

/* Only the rank's own memory goes another way. */
XT_TEST(an_allocation_that_one_rank_is_refused_changes_its_own_memory)
{
    run(2, "cuMemCreate:*", 1, (struct expected){XCCL_RECORD_WAY_HANDLE, NULL, NULL, ""});
}

/* Rank 2 cannot open what rank 1 offers in place of a handle: the handles of the others stay. */
XT_TEST(ipc_of_one_rank_that_is_refused_leaves_the_handles_of_others)
{
    static const char *const fails[] = {NULL, "cuMemCreate:*", "cuIpcOpenMemHandle_v2:*"};
    struct scene scene = {.fails = fails, .want = {XCCL_RECORD_WAY_HANDLE, NULL, NULL, ""}};

    run_scene(3, &scene);
}

XT_TEST(ipc_that_is_refused_gives_way_to_pinned_memory)
{
    xt_setenv("XCCL_CUDA_CUMEM", "0");
    run(3, "cuIpcOpenMemHandle_v2:*", 1,
        (struct expected){
            XCCL_RECORD_WAY_PINNED, NULL, NULL,
            "opening an IPC handle failed on rank 1: CUDA_ERROR_OUT_OF_MEMORY; XCCL_CUDA_CUMEM=0"});
}

XT_TEST(an_ipc_handle_that_is_refused_gives_way_to_pinned_memory)
{
    xt_setenv("XCCL_CUDA_CUMEM", "0");
    run(2, "cuIpcGetMemHandle:*", -1,
        (struct expected){XCCL_RECORD_WAY_PINNED, NULL, NULL,
                          "creating an IPC handle failed on rank "});
}

XT_TEST(pinned_memory_is_left_where_all_is_refused)
{
    run(3, "cuMemImportFromShareableHandle:*,cuIpcOpenMemHandle_v2:*", 0,
        (struct expected){XCCL_RECORD_WAY_PINNED, NULL, NULL,
                          "opening an IPC handle failed on rank 0: CUDA_ERROR_OUT_OF_MEMORY; "
                          "importing a cuMem handle failed on rank 0: CUDA_ERROR_OUT_OF_MEMORY"});
}

/* When a binding is made later, nobody tries out IPC any more. */
XT_TEST(an_allocation_that_is_refused_later_gives_way_to_pinned_memory)
{
    run(2, "cuMemCreate:3", -1,
        (struct expected){XCCL_RECORD_WAY_PINNED, NULL, NULL,
                          "creating a cuMem handle failed on rank "});
}

XT_TEST(a_device_without_handles_is_named)
{
    xt_setenv("XCCL_EMU_HANDLES", "0");
    run(2, NULL, -1,
        (struct expected){XCCL_RECORD_WAY_IPC, NULL, NULL,
                          "the driver or device of rank 1 does not support cuMem handles"});
}

XT_TEST(granules_may_have_any_size)
{
    xt_setenv("XCCL_EMU_GRANULE", "65536");
    run(2, NULL, -1, (struct expected){XCCL_RECORD_WAY_HANDLE, NULL, NULL, ""});
}

/* --- fabric handles --- */

static void run_fabric(int nranks, const char *has, const char *setting, struct scene *scene)
{
    xt_setenv("XCCL_EMU_FABRIC", has);
    if (setting)
        xt_setenv("XCCL_CUDA_CUMEM", setting);
    run_scene(nranks, scene);
}

XT_TEST(descriptors_go_before_fabric_handles)
{
    struct scene scene = {.want = {XCCL_RECORD_WAY_HANDLE, NULL, NULL, ""}};

    run_fabric(2, "1", NULL, &scene);
}

XT_TEST(fabric_handles_serve_where_a_setting_says_so)
{
    struct scene scene = {
        .want = {XCCL_RECORD_WAY_FABRIC, NULL, NULL, "XCCL_CUDA_CUMEM=fabric on rank "}};

    run_fabric(3, "1", "fabric", &scene);
}

XT_TEST(a_descriptor_that_is_refused_gives_way_to_a_fabric_handle)
{
    struct scene scene = {
        .fail = "cuMemExportToShareableHandle:*",
        .only = -1,
        .want = {XCCL_RECORD_WAY_FABRIC, NULL, NULL, "exporting a cuMem handle failed on rank "}};

    run_fabric(2, "1", NULL, &scene);
}

/* Of three ways in one communicator: rank 2 imports no descriptor, and rank 1's fabric handle
 * neither. */
XT_TEST(an_import_that_is_refused_gives_way_to_a_fabric_handle_for_that_rank)
{
    static const char *const fails[] = {
        NULL, NULL, "cuMemImportFromShareableHandle:*,cuMemImportFromShareableHandle.fabric:2"};
    static const struct expected ways[] = {
        {XCCL_RECORD_WAY_FABRIC, "", "2", "importing a cuMem handle failed on rank 2"},
        {XCCL_RECORD_WAY_IPC, "", "2", "importing a fabric handle failed on rank 2"},
        {XCCL_RECORD_WAY_FABRIC, "0", "", "importing a cuMem handle failed on rank 2"}};
    struct scene scene = {.fails = fails, .ways = ways};

    run_fabric(3, "1", NULL, &scene);
}

XT_TEST(a_process_without_an_imex_channel_does_without_fabric_handles)
{
    struct scene scene = {.want = {XCCL_RECORD_WAY_HANDLE, NULL, NULL, ""}};

    run_fabric(2, "2", NULL, &scene);
}

XT_TEST(a_process_without_an_imex_channel_is_named)
{
    struct scene scene = {
        .want = {XCCL_RECORD_WAY_IPC, NULL, NULL,
                 "creating a fabric handle failed on rank 1: CUDA_ERROR_NOT_PERMITTED"}};

    run_fabric(2, "2", "fabric", &scene);
}

XT_TEST(a_device_without_fabric_handles_is_named)
{
    struct scene scene = {.want = {XCCL_RECORD_WAY_IPC, NULL, NULL,
                                   "XCCL_CUDA_CUMEM=fabric on rank 1; the device of rank 1 does "
                                   "not support fabric handles"}};

    run_fabric(2, "0", "fabric", &scene);
}

XT_TEST(a_fabric_handle_that_is_not_exported_gives_way_to_ipc)
{
    struct scene scene = {
        .fail = "cuMemExportToShareableHandle.fabric:*",
        .only = -1,
        .want = {XCCL_RECORD_WAY_IPC, NULL, NULL, "exporting a fabric handle failed on rank "}};

    run_fabric(2, "1", "fabric", &scene);
}

/* As with descriptors. The third allocation is made without one. */
XT_TEST(a_fabric_handle_that_is_refused_later_gives_way_to_pinned_memory)
{
    struct scene scene = {
        .fail = "cuMemCreate:3",
        .only = -1,
        .want = {XCCL_RECORD_WAY_PINNED, NULL, NULL, "creating a fabric handle failed on rank "}};

    run_fabric(2, "1", "fabric", &scene);
}

XT_TEST(without_fabric_handles_and_ipc_memory_is_pinned)
{
    struct scene scene = {
        .fail = "cuMemImportFromShareableHandle:*,"
                "cuMemImportFromShareableHandle.fabric:*,cuIpcOpenMemHandle_v2:*",
        .only = -1,
        .want = {XCCL_RECORD_WAY_PINNED, NULL, NULL, "opening an IPC handle failed on rank "}};

    run_fabric(2, "1", NULL, &scene);
}

/* --- what is left behind --- */

/* Descriptors, when there are no fewer for a second: goodbyes are on their way for 0.8 s. */
static int count_descriptors(void)
{
    int least = xt_entries("/proc/self/fd");

    for (double since = xt_seconds(); xt_seconds() - since < 1;) {
        int now = xt_entries("/proc/self/fd");

        if (now < least) {
            least = now;
            since = xt_seconds();
        }
        usleep(10000);
    }
    return least;
}

/* Goodbyes may take longer where the machine is busy. */
static void await_descriptors(int most)
{
    double start = xt_seconds();

    while (xt_entries("/proc/self/fd") > most)
        if (xt_seconds() - start > 10)
            XT_FAIL("%d descriptors are open, not %d", xt_entries("/proc/self/fd"), most);
}

static void come_and_go(int rank, int nranks, void *arg)
{
    const struct scene *scene = arg;
    int descriptors = 0, maps = 0;

    if (scene->fail && (scene->only < 0 || scene->only == rank))
        xt_setenv("XCCL_EMU_FAIL", scene->fail);
    device_settings(NULL);
    device_open();
    for (int i = 0; i < 4; i++) {
        struct on_device on;

        device_make(&on, WAYS_COUNT * 4);
        XT_OK(xcclCommInitRank(&on.comm, nranks, world_id(scene->world, rank, i), rank));
        call_all(&on, rank, nranks);
        XT_OK(xcclCommDestroy(on.comm));
        device_free(&on);
        if (!i) { /* the first one opens what stays open */
            descriptors = count_descriptors();
            maps = count_maps();
            continue;
        }
        XT_CHECK_INT(count_maps(), maps);
        await_descriptors(descriptors);
    }
}

static void check_left(int nranks, const char *fail, int only)
{
    struct scene scene = {.fail = fail, .only = only};

    need_stand_in("of the stand-in alone");
    scene.world = world_create();
    xt_mp_run(nranks, come_and_go, &scene);
}

XT_TEST_DEADLINE(nothing_is_left_of_a_communicator, 60)
{
    check_left(2, NULL, -1);
}

XT_TEST_DEADLINE(nothing_is_left_where_descriptors_are_refused, 60)
{
    check_left(2, "cuMemExportToShareableHandle:*", -1);
}

XT_TEST_DEADLINE(nothing_is_left_where_imports_are_refused, 60)
{
    check_left(2, "cuMemImportFromShareableHandle:*", -1);
}

XT_TEST_DEADLINE(nothing_is_left_with_fabric_handles, 60)
{
    xt_setenv("XCCL_EMU_FABRIC", "1");
    xt_setenv("XCCL_CUDA_CUMEM", "fabric");
    check_left(2, NULL, -1);
}

XT_TEST_DEADLINE(nothing_is_left_where_fabric_handles_are_refused, 60)
{
    xt_setenv("XCCL_EMU_FABRIC", "1");
    check_left(3, "cuMemImportFromShareableHandle:*,cuMemImportFromShareableHandle.fabric:2", 2);
}

/* Memory of all three kinds in one communicator: rank 2 opens nobody's. */
XT_TEST_DEADLINE(nothing_is_left_where_one_rank_is_refused, 60)
{
    check_left(3, "cuMemImportFromShareableHandle:*,cuIpcOpenMemHandle_v2:*", 2);
}

XT_TEST_DEADLINE(nothing_is_left_where_access_is_refused, 60)
{
    check_left(2, "cuMemSetAccess:*", -1);
}

/* Descriptors that stand for an allocation of which this process has another one: the driver keeps
 * one of each, so these are for other processes. */
static int count_given(void)
{
    ino_t known[1024];
    int count = 0, given = 0;

    for (int fd = 0; fd < 1024; fd++) {
        char path[64], name[128];
        struct stat status;
        ssize_t bytes;

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        bytes = readlink(path, name, sizeof name - 1);
        if (bytes <= 0 || stat(path, &status) != 0) /* by path: it is another thread's to close */
            continue;
        name[bytes] = '\0';
        if (!strstr(name, "emu-device-memory"))
            continue;
        for (int i = 0; i < count; i++)
            given += known[i] == status.st_ino;
        known[count++] = status.st_ino;
    }
    return given;
}

static void give(int rank, int nranks, void *arg)
{
    const struct scene *scene = arg;
    struct on_device on;
    double start;

    device_settings(NULL);
    device_open();
    device_make(&on, WAYS_COUNT * 4);
    on.comm = world_join(scene->world, rank, nranks);
    call_all(&on, rank, nranks);
    check_way(rank, &(struct expected){XCCL_RECORD_WAY_HANDLE, NULL, NULL, ""});
    for (start = xt_seconds(); count_given(); XT_CHECK(xt_seconds() - start < 10))
        ;
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
}

XT_TEST(descriptors_are_closed_when_all_have_them)
{
    struct scene scene = {0};

    need_stand_in("of the stand-in alone");
    xt_setenv("XCCL_RECORD_DIR", xt_tmpdir());
    scene.world = world_create();
    xt_mp_run(3, give, &scene);
}

/* A rank that dies has given its memory: the others unmap it, and end. */
static void survive(int rank, int nranks, void *arg)
{
    const struct scene *scene = arg;
    struct on_device on;
    xcclResult_t rc = xcclSuccess;
    double start;
    int maps;

    device_settings(NULL);
    device_open();
    device_make(&on, WAYS_COUNT * 4);
    maps = count_maps();
    on.comm = world_join(scene->world, rank, nranks);
    call_all(&on, rank, nranks);
    XT_CHECK(count_maps() > maps);
    world_meet(scene->world, nranks);
    if (rank == 1)
        raise(SIGKILL);
    (void)xcclAllReduce(at(on.in, 0), at(on.out, 0), WAYS_COUNT, xcclInt32, xcclSum, on.comm,
                        on.stream);
    for (start = xt_seconds(); !rc; XT_CHECK(xt_seconds() - start < 20))
        XT_OK(xcclCommGetAsyncError(on.comm, &rc));
    XT_CHECK_INT(rc, xcclRemoteError);
    XT_CHECK_HAS(xcclGetLastError(on.comm), "rank 1");
    XT_OK(xcclCommDestroy(on.comm));
    XT_CHECK_INT(count_maps(), maps);
}

XT_TEST(memory_of_a_rank_that_died_is_given_back)
{
    struct scene scene = {0};
    int statuses[3];

    need_stand_in("of the stand-in alone");
    scene.world = world_create();
    xt_mp_wait(xt_mp_start(3, survive, &scene), statuses);
    XT_CHECK_INT(statuses[0], 0);
    XT_CHECK(WIFSIGNALED(statuses[1]));
    XT_CHECK_INT(statuses[2], 0);
}

/* Before the others have asked for its memory: they find nobody who gives it. */
static void die_while_joining(int rank, int nranks, void *arg)
{
    const struct scene *scene = arg;
    xcclComm_t comm = NULL;

    if (rank == 1)
        xt_setenv("XCCL_EMU_DIES", "cuMemImportFromShareableHandle");
    device_settings(NULL);
    device_open();
    XT_CHECK(xcclCommInitRank(&comm, nranks, world_id(scene->world, rank, 0), rank) != xcclSuccess);
    XT_CHECK_HAS(xcclGetLastError(NULL), "rank 1");
}

XT_TEST_DEADLINE(a_rank_that_dies_while_joining_is_named, 60)
{
    struct scene scene = {0};
    int statuses[3];

    need_stand_in("of the stand-in alone");
    xt_setenv("XCCL_TIMEOUT_INIT_S", "20");
    scene.world = world_create();
    xt_mp_wait(xt_mp_start(3, die_while_joining, &scene), statuses);
    XT_CHECK_INT(statuses[0], 0);
    XT_CHECK(WIFSIGNALED(statuses[1]));
    XT_CHECK_INT(statuses[2], 0);
}

/* --- memory of the program --- */

static void use_memory(int rank, int nranks, void *arg)
{
    const struct scene *scene = arg;
    struct on_device on = {.bytes = WAYS_COUNT * 4};
    int before = 0;

    if (scene->fail)
        xt_setenv("XCCL_EMU_FAIL", scene->fail);
    device_settings(NULL);
    device_open();
    on.comm = world_join(scene->world, rank, nranks);
    on.host = calloc(1, on.bytes);
    CU(cuda->stream_create(&on.stream, XCCL_CU_STREAM_NON_BLOCKING));
    for (int pass = 0; pass < 2; pass++) {
        void *in, *out, *handle;

        XT_OK(xcclMemAlloc(&in, on.bytes));
        XT_OK(xcclMemAlloc(&out, on.bytes));
        XT_OK(xcclCommRegister(on.comm, in, on.bytes, &handle));
        on.in = (xccl_cu_ptr)(uintptr_t)in;
        on.out = (xccl_cu_ptr)(uintptr_t)out;
        CU(cuda->copy_to_host(on.host, on.in, on.bytes, on.stream));
        CU(cuda->stream_sync(on.stream));
        for (size_t i = 0; i < WAYS_COUNT; i++)
            XT_CHECK_INT(on.host[i], 0);
        one_sum(&on, rank, nranks);
        XT_OK(xcclCommDeregister(on.comm, handle));
        XT_OK(xcclMemFree(in));
        XT_OK(xcclMemFree(out));
        XT_CHECK_RC(xcclMemFree(out), xcclInvalidArgument);
        if (pass) /* the first call has made what the communicator keeps */
            XT_CHECK_INT(count_maps(), before);
        before = count_maps();
    }
    XT_OK(xcclCommDestroy(on.comm));
    CU(cuda->stream_destroy(on.stream));
    free(on.host);
}

static void check_memory(const char *fail)
{
    struct scene scene = {.fail = fail};

    need_stand_in("of the stand-in alone");
    scene.world = world_create();
    xt_mp_run(2, use_memory, &scene);
}

XT_TEST(memory_for_the_program_is_by_handles)
{
    check_memory(NULL);
}

XT_TEST(memory_for_the_program_does_without_handles)
{
    check_memory("cuMemCreate:*");
}

/* The program's own allocation, registered. */
static void use_own(int rank, int nranks, void *arg)
{
    const struct scene *scene = arg;
    const struct xccl_cu_mem_prop prop = {.type = XCCL_CU_MEM_PINNED,
                                          .handle_types = XCCL_CU_MEM_POSIX_FD,
                                          .location = {XCCL_CU_MEM_ON_DEVICE, 0}};
    const struct xccl_cu_mem_access access = {{XCCL_CU_MEM_ON_DEVICE, 0}, XCCL_CU_MEM_READ_WRITE};
    const size_t bytes = 2 << 20;
    struct on_device on;
    xccl_cu_handle memory;
    xccl_cu_ptr at_memory, was;
    void *handle;

    device_settings(NULL);
    device_open();
    device_make(&on, WAYS_COUNT * 4);
    on.comm = world_join(scene->world, rank, nranks);
    CU(cuda->mem_create(&memory, bytes, &prop, 0));
    CU(cuda->mem_reserve(&at_memory, bytes, 0, 0, 0));
    CU(cuda->mem_map(at_memory, bytes, 0, memory, 0));
    CU(cuda->mem_set_access(at_memory, bytes, &access, 1));
    was = on.in;
    on.in = at_memory;
    XT_OK(xcclCommRegister(on.comm, at(on.in, 0), bytes, &handle));
    call_all(&on, rank, nranks);
    XT_OK(xcclCommDeregister(on.comm, handle));
    on.in = was;
    XT_OK(xcclCommDestroy(on.comm));
    CU(cuda->mem_unmap(at_memory, bytes));
    CU(cuda->mem_unreserve(at_memory, bytes));
    CU(cuda->mem_release(memory));
    device_free(&on);
}

XT_TEST(memory_by_handles_of_the_program_is_registered_and_used)
{
    struct scene scene = {0};

    need_stand_in("of the stand-in alone");
    scene.world = world_create();
    xt_mp_run(2, use_own, &scene);
}
