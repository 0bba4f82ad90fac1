/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library takes for granted of a CUDA driver, over the driver of XT_CUDA_LIBRARY: the
 * stand-in, or a real one, of which all this is as true. Thread: one, and processes. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cuda_driver.h"
#include "harness/xt.h"

#define BYTES 4096u

static const struct xccl_cuda_driver *cuda;
static xccl_cu_ctx context;

/* Device 0 is the thread's. Skips the test where there is none. */
static void open_device(void)
{
    const char *library = getenv("XT_CUDA_LIBRARY");

    xt_allow_leaks("a CUDA driver keeps threads and descriptors");
    if (library)
        xt_setenv("XCCL_CUDA_LIBRARY", library);
    cuda = xccl_cuda_driver();
    if (!cuda)
        XT_SKIP("%s", xccl_cuda_why_not());
    XT_CHECK_INT(cuda->ctx_retain(&context, 0), 0);
    XT_CHECK_INT(cuda->ctx_set(context), 0);
}

XT_TEST(contexts_are_a_stack)
{
    xccl_cu_ctx popped, now;
    xccl_cu_device device;

    open_device();
    XT_CHECK_INT(cuda->ctx_push(context), 0);
    XT_CHECK_INT(cuda->ctx_device(&device), 0);
    XT_CHECK_INT(device, 0);
    XT_CHECK_INT(cuda->ctx_pop(&popped), 0);
    XT_CHECK(popped == context);
    XT_CHECK_INT(cuda->ctx_get(&now), 0);
    XT_CHECK(now == context);
    XT_CHECK_INT(cuda->ctx_set(NULL), 0);
    XT_CHECK_INT(cuda->ctx_device(&device), 201);
}

XT_TEST(errors_have_names)
{
    const char *text;

    open_device();
    XT_CHECK_INT(cuda->error_name(2, &text), 0);
    XT_CHECK_TEXT(text, "CUDA_ERROR_OUT_OF_MEMORY");
    XT_CHECK_INT(cuda->error_string(2, &text), 0);
    XT_CHECK_TEXT(text, "out of memory");
    XT_CHECK(cuda->error_name(123456, &text) != 0);
}

XT_TEST(pointers_say_what_they_are)
{
    static char ordinary[64];
    xccl_cu_ptr at, device_at;
    unsigned type = 0;
    int device = -1;
    void *pinned;

    open_device();
    XT_CHECK_INT(cuda->mem_alloc(&at, BYTES), 0);
    XT_CHECK_INT(cuda->pointer_attribute(&type, XCCL_CU_POINTER_MEMORY_TYPE, at + 100), 0);
    XT_CHECK_INT(type, XCCL_CU_MEMORY_DEVICE);
    XT_CHECK_INT(cuda->pointer_attribute(&device, XCCL_CU_POINTER_DEVICE, at), 0);
    XT_CHECK_INT(device, 0);
    XT_CHECK_INT(cuda->host_alloc(&pinned, BYTES, XCCL_CU_HOST_PORTABLE), 0);
    XT_CHECK_INT(
        cuda->pointer_attribute(&type, XCCL_CU_POINTER_MEMORY_TYPE, (xccl_cu_ptr)(uintptr_t)pinned),
        0);
    XT_CHECK_INT(type, XCCL_CU_MEMORY_HOST);
    XT_CHECK_INT(cuda->host_device_ptr(&device_at, pinned, 0), 0);
    XT_CHECK(device_at == (uintptr_t)pinned);
    XT_CHECK_INT(cuda->pointer_attribute(&type, XCCL_CU_POINTER_MEMORY_TYPE,
                                         (xccl_cu_ptr)(uintptr_t)ordinary),
                 1);
    XT_CHECK_INT(cuda->host_free(pinned), 0);
    XT_CHECK_INT(cuda->mem_free(at), 0);
}

static unsigned long long number_of(xccl_cu_ptr at)
{
    unsigned long long number = 0;

    XT_CHECK_INT(cuda->pointer_attribute(&number, XCCL_CU_POINTER_BUFFER_ID, at), 0);
    XT_CHECK(number != 0);
    return number;
}

/* By which memory is told from what was at the same address before. */
XT_TEST(allocations_have_numbers_that_do_not_come_again)
{
    unsigned long long numbers[20];
    xccl_cu_ptr at, other;

    open_device();
    XT_CHECK_INT(cuda->mem_alloc(&other, BYTES), 0);
    for (int i = 0; i < 20; i++) {
        XT_CHECK_INT(cuda->mem_alloc(&at, BYTES), 0);
        numbers[i] = number_of(at);
        XT_CHECK(numbers[i] == number_of(at + BYTES - 1) && numbers[i] != number_of(other));
        for (int k = 0; k < i; k++)
            XT_CHECK(numbers[k] != numbers[i]);
        XT_CHECK_INT(cuda->mem_free(at), 0);
    }
    XT_CHECK_INT(cuda->mem_free(other), 0);
}

XT_TEST(memory_is_registered_once)
{
    const unsigned flags = XCCL_CU_HOST_PORTABLE | XCCL_CU_HOST_MAPPED;
    void *memory = aligned_alloc(BYTES, BYTES);

    open_device();
    XT_CHECK_INT(cuda->host_register(memory, BYTES, flags), 0);
    XT_CHECK_INT(cuda->host_register(memory, BYTES, flags), XCCL_CU_ALREADY_REGISTERED);
    XT_CHECK_INT(cuda->host_unregister(memory), 0);
    XT_CHECK_INT(cuda->host_unregister(memory), 713);
    free(memory);
}

/* One byte of the memory, by a copy. */
static int byte_at(xccl_cu_ptr at, xccl_cu_stream stream)
{
    unsigned char byte = 0;

    XT_CHECK_INT(cuda->copy_to_host(&byte, at, 1, stream), 0);
    XT_CHECK_INT(cuda->stream_sync(stream), 0);
    return byte;
}

XT_TEST(streams_keep_order_and_wait_for_events)
{
    xccl_cu_stream one, other;
    xccl_cu_event event;
    xccl_cu_ptr at;

    open_device();
    XT_CHECK_INT(cuda->mem_alloc(&at, 2 * BYTES), 0);
    XT_CHECK_INT(cuda->stream_create(&one, XCCL_CU_STREAM_NON_BLOCKING), 0);
    XT_CHECK_INT(cuda->stream_create(&other, XCCL_CU_STREAM_NON_BLOCKING), 0);
    XT_CHECK_INT(cuda->event_create(&event, XCCL_CU_EVENT_DISABLE_TIMING), 0);
    for (int i = 0; i < 50; i++) {
        XT_CHECK_INT(cuda->set_bytes(at, (unsigned char)i, BYTES, one), 0);
        XT_CHECK_INT(cuda->event_record(event, one), 0);
        XT_CHECK_INT(cuda->stream_wait(other, event, 0), 0);
        XT_CHECK_INT(cuda->copy_on_device(at + BYTES, at, BYTES, other), 0);
        XT_CHECK_INT(byte_at(at + 2 * BYTES - 1, other), i);
        XT_CHECK_INT(cuda->event_sync(event), 0);
        XT_CHECK_INT(cuda->event_query(event), 0);
    }
    XT_CHECK_INT(cuda->event_destroy(event), 0);
    XT_CHECK_INT(cuda->stream_destroy(one), 0);
    XT_CHECK_INT(cuda->stream_destroy(other), 0);
    XT_CHECK_INT(cuda->mem_free(at), 0);
}

/* Two streams captured into one graph, which is launched twice. */
XT_TEST(graphs_replay_what_was_captured)
{
    xccl_cu_stream one, other;
    xccl_cu_event fork, join;
    xccl_cu_graph graph;
    xccl_cu_graph_exec exec;
    xccl_cu_ptr at;
    int is = -1;

    open_device();
    XT_CHECK_INT(cuda->mem_alloc(&at, 2 * BYTES), 0);
    XT_CHECK_INT(cuda->stream_create(&one, XCCL_CU_STREAM_NON_BLOCKING), 0);
    XT_CHECK_INT(cuda->stream_create(&other, XCCL_CU_STREAM_NON_BLOCKING), 0);
    XT_CHECK_INT(cuda->event_create(&fork, XCCL_CU_EVENT_DISABLE_TIMING), 0);
    XT_CHECK_INT(cuda->event_create(&join, XCCL_CU_EVENT_DISABLE_TIMING), 0);
    XT_CHECK_INT(cuda->set_bytes(at, 1, 2 * BYTES, one), 0);
    XT_CHECK_INT(cuda->stream_sync(one), 0);
    XT_CHECK_INT(cuda->stream_begin_capture(one, XCCL_CU_CAPTURE_MODE_GLOBAL), 0);
    XT_CHECK_INT(cuda->event_record(fork, one), 0);
    XT_CHECK_INT(cuda->stream_wait(other, fork, 0), 0);
    XT_CHECK_INT(cuda->stream_capturing(other, &is), 0);
    XT_CHECK_INT(is, XCCL_CU_CAPTURE_ACTIVE);
    XT_CHECK_INT(cuda->set_bytes(at, 7, BYTES, other), 0);
    XT_CHECK_INT(cuda->event_record(join, other), 0);
    XT_CHECK_INT(cuda->stream_wait(one, join, 0), 0);
    XT_CHECK_INT(cuda->copy_on_device(at + BYTES, at, BYTES, one), 0);
    XT_CHECK_INT(cuda->stream_end_capture(one, &graph), 0);
    XT_CHECK_INT(cuda->stream_capturing(other, &is), 0);
    XT_CHECK_INT(is, XCCL_CU_CAPTURE_NONE);
    XT_CHECK_INT(byte_at(at + BYTES, one), 1); /* nothing was done yet */
    XT_CHECK_INT(cuda->graph_instantiate(&exec, graph, 0), 0);
    XT_CHECK_INT(cuda->graph_destroy(graph), 0);
    for (int i = 0; i < 2; i++) {
        XT_CHECK_INT(cuda->set_bytes(at, 2, 2 * BYTES, one), 0);
        XT_CHECK_INT(cuda->graph_launch(exec, one), 0);
        XT_CHECK_INT(byte_at(at + 2 * BYTES - 1, one), 7);
    }
    XT_CHECK_INT(cuda->graph_exec_destroy(exec), 0);
    XT_CHECK_INT(cuda->mem_free(at), 0);
}

XT_TEST(captures_forbid_what_is_unsafe)
{
    int mode = XCCL_CU_CAPTURE_MODE_RELAXED;
    xccl_cu_stream stream;
    xccl_cu_graph graph;
    xccl_cu_ptr at;

    open_device();
    XT_CHECK_INT(cuda->stream_create(&stream, XCCL_CU_STREAM_NON_BLOCKING), 0);
    XT_CHECK_INT(cuda->stream_begin_capture(stream, XCCL_CU_CAPTURE_MODE_GLOBAL), 0);
    XT_CHECK_INT(cuda->capture_mode(&mode), 0);
    XT_CHECK_INT(mode, XCCL_CU_CAPTURE_MODE_GLOBAL);
    XT_CHECK_INT(cuda->mem_alloc(&at, BYTES), 0);
    XT_CHECK_INT(cuda->mem_free(at), 0);
    XT_CHECK_INT(cuda->capture_mode(&mode), 0);
    XT_CHECK_INT(cuda->stream_end_capture(stream, &graph), 0);
    XT_CHECK_INT(cuda->graph_destroy(graph), 0);
    /* In a capture of its own, for a real driver calls it invalid then. */
    XT_CHECK_INT(cuda->stream_begin_capture(stream, XCCL_CU_CAPTURE_MODE_GLOBAL), 0);
    XT_CHECK_INT(cuda->mem_alloc(&at, BYTES), 900);
    (void)cuda->stream_end_capture(stream, &graph);
    XT_CHECK_INT(cuda->stream_destroy(stream), 0);
}

/* An allocation by a handle, mapped. */
struct block {
    xccl_cu_handle handle;
    xccl_cu_ptr at;
    size_t bytes;
};

static const struct xccl_cu_mem_prop block_prop = {.type = XCCL_CU_MEM_PINNED,
                                                   .handle_types = XCCL_CU_MEM_POSIX_FD,
                                                   .location = {XCCL_CU_MEM_ON_DEVICE, 0}};

/* Skips the test where the driver or the device have none. */
static size_t need_handles(void)
{
    int has = 0;
    size_t granule = 0;

    XT_CHECK_INT(cuda->device_attribute(&has, XCCL_CU_ATTR_HANDLE_FDS, 0), 0);
    if (!has || !cuda->mem_create)
        XT_SKIP("no allocations by handles");
    XT_CHECK_INT(cuda->mem_granularity(&granule, &block_prop, XCCL_CU_MEM_GRANULARITY_LEAST), 0);
    XT_CHECK(granule >= BYTES);
    return granule;
}

static void map_block(struct block *block)
{
    const struct xccl_cu_mem_access access = {{XCCL_CU_MEM_ON_DEVICE, 0}, XCCL_CU_MEM_READ_WRITE};

    XT_CHECK_INT(cuda->mem_reserve(&block->at, block->bytes, 0, 0, 0), 0);
    XT_CHECK_INT(cuda->mem_map(block->at, block->bytes, 0, block->handle, 0), 0);
    XT_CHECK_INT(cuda->mem_set_access(block->at, block->bytes, &access, 1), 0);
}

static void free_block(const struct block *block)
{
    XT_CHECK_INT(cuda->mem_unmap(block->at, block->bytes), 0);
    XT_CHECK_INT(cuda->mem_unreserve(block->at, block->bytes), 0);
    XT_CHECK_INT(cuda->mem_release(block->handle), 0);
}

XT_TEST(descriptors_stand_for_allocations)
{
    struct block own = {0}, other = {0};
    unsigned type = 0;
    int fd = -1;

    open_device();
    own.bytes = other.bytes = need_handles();
    XT_CHECK_INT(cuda->mem_create(&own.handle, own.bytes, &block_prop, 0), 0);
    map_block(&own);
    XT_CHECK_INT(cuda->pointer_attribute(&type, XCCL_CU_POINTER_MEMORY_TYPE, own.at + 100), 0);
    XT_CHECK_INT(type, XCCL_CU_MEMORY_DEVICE);
    XT_CHECK_INT(cuda->mem_export(&fd, own.handle, XCCL_CU_MEM_POSIX_FD, 0), 0);
    XT_CHECK(fd >= 0);
    XT_CHECK_INT(cuda->mem_import(&other.handle, (void *)(intptr_t)fd, XCCL_CU_MEM_POSIX_FD), 0);
    close(fd);
    map_block(&other);
    XT_CHECK_INT(cuda->set_bytes(own.at, 7, own.bytes, NULL), 0);
    XT_CHECK_INT(byte_at(other.at + own.bytes - 1, NULL), 7);
    free_block(&own);
    /* It lives as long as one maps it. */
    XT_CHECK_INT(byte_at(other.at, NULL), 7);
    free_block(&other);
    XT_CHECK(cuda->mem_release(other.handle) != 0);
}

XT_TEST(allocations_by_handles_are_whole_granules)
{
    struct block block = {0};
    struct xccl_cu_ipc ipc;
    size_t granule;

    open_device();
    granule = need_handles();
    XT_CHECK(cuda->mem_create(&block.handle, granule + BYTES, &block_prop, 0) != 0);
    block.bytes = granule;
    XT_CHECK_INT(cuda->mem_create(&block.handle, block.bytes, &block_prop, 0), 0);
    map_block(&block);
    /* Neither way of the other kind is open to it. */
    XT_CHECK(cuda->ipc_get(&ipc, block.at) != 0);
    XT_CHECK(cuda->mem_free(block.at) != 0);
    XT_CHECK(cuda->mem_unreserve(block.at, block.bytes) != 0); /* it is mapped */
    free_block(&block);
}

static void in_process(int rank, int nranks, void *shared)
{
    struct xccl_cu_ipc *handle = shared;
    xccl_cu_ptr at;

    (void)nranks;
    open_device();
    if (rank == 0) {
        XT_CHECK_INT(cuda->mem_alloc(&at, BYTES), 0);
        XT_CHECK_INT(cuda->set_bytes(at, 0, BYTES, NULL), 0);
        XT_CHECK_INT(byte_at(at, NULL), 0);
        XT_CHECK_INT(cuda->ipc_get(&handle[1], at), 0);
        /* Release: the handle before what says that it is there. Pairs with the load below. */
        __atomic_store_n(&handle[0].bytes[0], 1, __ATOMIC_RELEASE);
        while (byte_at(at + BYTES - 1, NULL) != 9)
            ;
        XT_CHECK(cuda->ipc_open(&at, handle[1], XCCL_CU_IPC_LAZY_PEER_ACCESS) != 0);
        return;
    }
    while (!__atomic_load_n(&handle[0].bytes[0], __ATOMIC_ACQUIRE))
        ;
    XT_CHECK_INT(cuda->ipc_open(&at, handle[1], XCCL_CU_IPC_LAZY_PEER_ACCESS), 0);
    XT_CHECK_INT(cuda->set_bytes(at, 9, BYTES, NULL), 0);
    XT_CHECK_INT(byte_at(at, NULL), 9);
    XT_CHECK_INT(cuda->ipc_close(at), 0);
}

XT_TEST(processes_share_memory)
{
    struct xccl_cu_ipc *handles = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    XT_CHECK(handles != MAP_FAILED);
    xt_allow_leaks("memory is shared with processes");
    xt_mp_run(2, in_process, handles);
    munmap(handles, BYTES);
}

/* --- the stand-in alone --- */

static void open_stand_in(void)
{
    if (!getenv("XT_CUDA_LIBRARY"))
        XT_SKIP("of the stand-in alone");
    open_device();
}

XT_TEST(the_named_call_fails)
{
    xccl_cu_ptr at[3];

    xt_setenv("XCCL_EMU_FAIL", "cuMemAlloc_v2:2");
    open_stand_in();
    XT_CHECK_INT(cuda->mem_alloc(&at[0], BYTES), 0);
    XT_CHECK_INT(cuda->mem_alloc(&at[1], BYTES), 2);
    XT_CHECK_INT(cuda->mem_alloc(&at[2], BYTES), 0);
    XT_CHECK_INT(byte_at(at[2] + BYTES - 1, NULL), 0xa5);
    XT_CHECK_INT(cuda->mem_free(at[0]), 0);
    XT_CHECK_INT(cuda->mem_free(at[2]), 0);
}

XT_TEST(several_calls_fail)
{
    xccl_cu_ptr at;
    void *pinned;

    xt_setenv("XCCL_EMU_FAIL", "cuMemHostAlloc:*,cuMemAlloc_v2");
    open_stand_in();
    XT_CHECK_INT(cuda->mem_alloc(&at, BYTES), 2);
    XT_CHECK_INT(cuda->mem_alloc(&at, BYTES), 0);
    for (int i = 0; i < 3; i++)
        XT_CHECK_INT(cuda->host_alloc(&pinned, BYTES, 0), 2);
    XT_CHECK_INT(cuda->mem_free(at), 0);
}

XT_TEST(there_may_be_no_device)
{
    if (!getenv("XT_CUDA_LIBRARY"))
        XT_SKIP("of the stand-in alone");
    xt_allow_leaks("a CUDA driver keeps threads and descriptors");
    xt_setenv("XCCL_EMU_FAIL", "cuInit");
    xt_setenv("XCCL_CUDA_LIBRARY", getenv("XT_CUDA_LIBRARY"));
    XT_CHECK(!xccl_cuda_driver());
}

/* Streams belong to devices, and each device has a legacy one. */
XT_TEST(streams_are_of_their_device)
{
    xccl_cu_stream stream;
    xccl_cu_event event;
    xccl_cu_ctx other;

    open_stand_in();
    XT_CHECK_INT(cuda->stream_create(&stream, XCCL_CU_STREAM_NON_BLOCKING), 0);
    XT_CHECK_INT(cuda->event_create(&event, XCCL_CU_EVENT_DISABLE_TIMING), 0);
    XT_CHECK_INT(cuda->event_record(event, stream), 0);
    XT_CHECK_INT(cuda->event_record(event, NULL), 0);
    XT_CHECK_INT(cuda->ctx_retain(&other, 1), 0);
    XT_CHECK_INT(cuda->ctx_push(other), 0);
    XT_CHECK_INT(cuda->event_record(event, stream), 0);
    XT_CHECK_INT(cuda->event_record(event, NULL), 400);
    XT_CHECK_INT(cuda->stream_wait(NULL, event, 0), 0);
    XT_CHECK_INT(cuda->ctx_pop(&other), 0);
    XT_CHECK_INT(cuda->event_destroy(event), 0);
    XT_CHECK_INT(cuda->stream_destroy(stream), 0);
}

static struct xccl_cu_mem_prop fabric_prop(void)
{
    return (struct xccl_cu_mem_prop){.type = XCCL_CU_MEM_PINNED,
                                     .handle_types = XCCL_CU_MEM_POSIX_FD | XCCL_CU_MEM_FABRIC,
                                     .location = {XCCL_CU_MEM_ON_DEVICE, 0}};
}

/* A fabric handle is that of memory that was made for it, and is good while that is there. */
XT_TEST(fabric_handles_are_of_memory_made_for_them)
{
    struct xccl_cu_mem_prop prop = fabric_prop();
    struct xccl_cu_fabric fabric, wrong = {{0}};
    xccl_cu_handle made, plain, imported;
    size_t granule;
    int value;

    xt_setenv("XCCL_EMU_FABRIC", "1");
    open_stand_in();
    XT_CHECK_INT(cuda->device_attribute(&value, XCCL_CU_ATTR_FABRIC_HANDLES, 0), 0);
    XT_CHECK_INT(value, 1);
    XT_CHECK_INT(cuda->mem_granularity(&granule, &prop, XCCL_CU_MEM_GRANULARITY_LEAST), 0);
    XT_CHECK_INT(cuda->mem_create(&made, granule, &prop, 0), 0);
    prop.handle_types = XCCL_CU_MEM_POSIX_FD;
    XT_CHECK_INT(cuda->mem_create(&plain, granule, &prop, 0), 0);
    XT_CHECK_INT(cuda->mem_export(&fabric, plain, XCCL_CU_MEM_FABRIC, 0), XCCL_CU_INVALID_VALUE);
    XT_CHECK_INT(cuda->mem_export(&fabric, made, XCCL_CU_MEM_FABRIC, 0), 0);
    XT_CHECK_INT(cuda->mem_import(&imported, &wrong, XCCL_CU_MEM_FABRIC), XCCL_CU_INVALID_VALUE);
    XT_CHECK_INT(cuda->mem_import(&imported, &fabric, XCCL_CU_MEM_FABRIC), 0);
    XT_CHECK_INT(cuda->mem_release(imported), 0);
    XT_CHECK_INT(cuda->mem_release(made), 0);
    XT_CHECK_INT(cuda->mem_release(plain), 0);
    XT_CHECK_INT(cuda->mem_import(&imported, &fabric, XCCL_CU_MEM_FABRIC), XCCL_CU_INVALID_VALUE);
}

/* What the attribute says is true of the device, not of the process. */
XT_TEST(fabric_handles_need_a_channel)
{
    struct xccl_cu_mem_prop prop = fabric_prop();
    xccl_cu_handle made;
    size_t granule;
    int value;

    xt_setenv("XCCL_EMU_FABRIC", "2");
    open_stand_in();
    XT_CHECK_INT(cuda->device_attribute(&value, XCCL_CU_ATTR_FABRIC_HANDLES, 0), 0);
    XT_CHECK_INT(value, 1);
    XT_CHECK_INT(cuda->mem_granularity(&granule, &prop, XCCL_CU_MEM_GRANULARITY_LEAST), 0);
    XT_CHECK_INT(cuda->mem_create(&made, granule, &prop, 0), XCCL_CU_NOT_PERMITTED);
    xt_setenv("XCCL_EMU_FABRIC", "0");
    XT_CHECK_INT(cuda->mem_create(&made, granule, &prop, 0), XCCL_CU_NOT_SUPPORTED);
}

XT_TEST(devices_are_as_the_environment_says)
{
    int value = 0;

    xt_setenv("XCCL_EMU_DEVICES", "2");
    xt_setenv("XCCL_EMU_SMS", "16");
    xt_setenv("XCCL_EMU_NO_PEER", "1");
    xt_setenv("XCCL_EMU_DRIVER_VERSION", "13000");
    open_stand_in();
    XT_CHECK_INT(cuda->devices, 2);
    XT_CHECK_INT(cuda->version, 13000);
    XT_CHECK_INT(cuda->device_attribute(&value, XCCL_CU_ATTR_MULTIPROCESSORS, 1), 0);
    XT_CHECK_INT(value, 16);
    XT_CHECK_INT(cuda->device_can_access(&value, 0, 1), 0);
    XT_CHECK_INT(value, 0);
}
