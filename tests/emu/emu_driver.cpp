// SPDX-License-Identifier: BSD-3-Clause
/* A stand-in for the CUDA driver: the functions of core/base/cuda_driver.h under the driver's own
 * names, over host memory and kernels that are host code in this library. Environment:
 *
 *   XCCL_EMU_DEVICES=8         how many devices there are
 *   XCCL_EMU_SMS=132           how many multiprocessors each has
 *   XCCL_EMU_NO_PEER=1         they cannot access each other; 2: but for neighbours
 *                              3: only devices 0 and 3 cannot
 *   XCCL_EMU_DRIVER_VERSION=12040    the driver's version
 *   XCCL_EMU_WRITES_ORDERING=0 how devices order writes of network cards
 *   XCCL_EMU_HANDLES=0         they have no allocations by handles
 *   XCCL_EMU_GRANULE=2097152   in which sizes these come
 *   XCCL_EMU_FABRIC=1          they have fabric handles, too
 *                              2: but the process has no IMEX channel, and is refused them
 *   XCCL_EMU_FAIL="cuMemAlloc_v2:3,cuMemCreate:*"
 *                              the third call of one function has no memory, and no call of the
 *                              other (without a number the first; "cuInit" finds no device;
 *                              "cuMemImportFromShareableHandle.fabric", likewise exports: of
 *                              fabric handles, else of descriptors)
 *   XCCL_EMU_DIES="cuMemMap"   the process dies in that call
 *   XCCL_EMU_SLOW="cuMemMap"   each such call takes 0.4 s longer
 *
 *   XCCL_EMU_HOLD=1            devices work only while somebody waits for them, or asks: then they
 *                              do the same in each run of a program of one thread
 *
 * What a real driver forbids is an error here, too: calls without a context, memory that is
 * allocated while a capture forbids it, waits for what is captured, kernels and events in streams
 * of other devices.
 *
 * Thread: any. */
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "emu_device.h"
#include "emu_fibers.h"
#include "emu_memory.h"
#include "exec/cuda/device_abi.h"

extern "C" {
#include "base/cuda_driver.h"
}

#define EMU_API extern "C" __attribute__((visibility("default"))) xccl_cu_result

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    PEER_UNSUPPORTED = 217,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    NOT_IN_CAPTURE = 900
};

#define DEVICES_MAX 64

struct xccl_cu_ctx_st {
    int device;
    std::atomic<int> retained;
    unsigned long long peers; /* that access was enabled to, by device */
};
struct xccl_cu_stream_st : emu_stream {
    int device = 0;
};
struct xccl_cu_event_st : emu_event {
    int device = 0;
};
struct xccl_cu_module_st {
    int unused;
};
struct xccl_cu_function_st {
    void *code;
    size_t parameter_bytes;
};
struct xccl_cu_graph_st : emu_graph {
};
struct xccl_cu_graph_exec_st : emu_graph {
};

static int is_initialized;
static struct xccl_cu_ctx_st contexts[DEVICES_MAX];
static struct xccl_cu_stream_st *const default_streams = new xccl_cu_stream_st[DEVICES_MAX];
static thread_local std::vector<xccl_cu_ctx> current;
static thread_local int capture_mode;

static int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text ? atoi(text) : otherwise;
}

/* Is it this call of the function that XCCL_EMU_FAIL names? */
static int fails(const char *symbol)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static std::map<std::string, int> &calls = *new std::map<std::string, int>;
    const char *text = getenv("XCCL_EMU_FAIL"), *end;
    size_t length = strlen(symbol);
    int count;

    if (getenv("XCCL_EMU_DIES") && strcmp(getenv("XCCL_EMU_DIES"), symbol) == 0)
        raise(SIGKILL);
    if (getenv("XCCL_EMU_SLOW") && strcmp(getenv("XCCL_EMU_SLOW"), symbol) == 0)
        usleep(400000);
    for (; text && *text; text = *end ? end + 1 : end) {
        end = strchrnul(text, ',');
        if (strncmp(text, symbol, length) != 0 || !strchr(":,", text[length]))
            continue;
        if (text[length] == ':' && text[length + 1] == '*')
            return 1;
        pthread_mutex_lock(&lock);
        count = ++calls[symbol];
        pthread_mutex_unlock(&lock);
        return count == (text[length] == ':' ? atoi(text + length + 1) : 1);
    }
    return 0;
}

static int device_number()
{
    int number = setting("XCCL_EMU_DEVICES", 8);

    return number < 0 ? 0 : number > DEVICES_MAX ? DEVICES_MAX : number;
}

static int has_context()
{
    return !current.empty() && current.back();
}

static int current_device()
{
    return has_context() ? current.back()->device : 0;
}

/* Each device has a legacy stream of its own. */
static emu_stream *stream_of(xccl_cu_stream stream)
{
    return stream ? stream : &default_streams[current_device()];
}

/* Kernels and events go to streams of their device. */
static int is_of(xccl_cu_stream stream, int device)
{
    return (stream ? stream->device : current_device()) == device;
}

/* What may not be done while somebody captures, and is done. */
static int is_unsafe()
{
    return capture_mode != XCCL_CU_CAPTURE_MODE_RELAXED && emu_is_capturing_for_all();
}

/* ---- the driver and its devices ---- */

EMU_API cuInit(unsigned flags)
{
    if (flags)
        return INVALID_VALUE;
    if (fails(__func__))
        return XCCL_CU_NO_DEVICE;
    for (int i = 0; i < DEVICES_MAX; i++)
        contexts[i].device = i;
    is_initialized = 1;
    return device_number() ? OK : (int)XCCL_CU_NO_DEVICE;
}

EMU_API cuDriverGetVersion(int *version)
{
    *version = setting("XCCL_EMU_DRIVER_VERSION", 12040);
    return OK;
}

static const struct {
    xccl_cu_result rc;
    const char *name, *text;
} errors[] = {
    {OK, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {XCCL_CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {PEER_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {XCCL_CU_PEER_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
     "peer access is already enabled"},
    {XCCL_CU_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {XCCL_CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {XCCL_CU_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered "
     "memory region"},
    {NOT_IN_CAPTURE, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another "
     "stream"},
};

EMU_API cuGetErrorName(xccl_cu_result rc, const char **text)
{
    for (auto &one : errors)
        if (one.rc == rc) {
            *text = one.name;
            return OK;
        }
    return INVALID_VALUE;
}

EMU_API cuGetErrorString(xccl_cu_result rc, const char **text)
{
    for (auto &one : errors)
        if (one.rc == rc) {
            *text = one.text;
            return OK;
        }
    return INVALID_VALUE;
}

EMU_API cuDeviceGetCount(int *count)
{
    *count = device_number();
    return is_initialized ? OK : NOT_INITIALIZED;
}

EMU_API cuDeviceGet(xccl_cu_device *device, int ordinal)
{
    *device = ordinal;
    return ordinal >= 0 && ordinal < device_number() ? OK : INVALID_DEVICE;
}

EMU_API cuDeviceGetName(char *name, int bytes, xccl_cu_device device)
{
    snprintf(name, (size_t)bytes, "stand-in device %d", device);
    return OK;
}

EMU_API cuDeviceGetAttribute(int *value, int which, xccl_cu_device device)
{
    (void)device;
    switch (which) {
    case XCCL_CU_ATTR_MULTIPROCESSORS:
        *value = setting("XCCL_EMU_SMS", EMU_SMS);
        return OK;
    case XCCL_CU_ATTR_MAJOR:
        *value = 9;
        return OK;
    case XCCL_CU_ATTR_UNIFIED_ADDRESSING:
    case XCCL_CU_ATTR_COOPERATIVE:
    case XCCL_CU_ATTR_DMABUF:
        *value = 1;
        return OK;
    case XCCL_CU_ATTR_VIRTUAL_MEMORY:
    case XCCL_CU_ATTR_HANDLE_FDS:
    case XCCL_CU_ATTR_RDMA_HANDLES:
        *value = setting("XCCL_EMU_HANDLES", 1);
        return OK;
    case XCCL_CU_ATTR_FABRIC_HANDLES:
        *value = setting("XCCL_EMU_FABRIC", 0) != 0;
        return OK;
    case XCCL_CU_ATTR_WRITES_ORDERING:
        *value = setting("XCCL_EMU_WRITES_ORDERING", 0);
        return OK;
    default:
        *value = 0;
        return OK;
    }
}

EMU_API cuDeviceGetUuid_v2(struct xccl_cu_uuid *uuid, xccl_cu_device device)
{
    memset(uuid, 0xe3, sizeof *uuid);
    uuid->bytes[15] = (char)device;
    return OK;
}

EMU_API cuDeviceGetPCIBusId(char *text, int bytes, xccl_cu_device device)
{
    snprintf(text, (size_t)bytes, "ffff:%02x:00.0", device);
    return OK;
}

static int reaches(int device, int peer)
{
    switch (setting("XCCL_EMU_NO_PEER", 0)) {
    case 0:
        return device != peer;
    case 2:
        return abs(device - peer) == 1;
    case 3:
        return device != peer && !(device + peer == 3 && device * peer == 0);
    default:
        return 0;
    }
}

EMU_API cuDeviceCanAccessPeer(int *can, xccl_cu_device device, xccl_cu_device peer)
{
    *can = reaches(device, peer);
    return OK;
}

/* ---- contexts ---- */

EMU_API cuDevicePrimaryCtxRetain(xccl_cu_ctx *ctx, xccl_cu_device device)
{
    if (device < 0 || device >= device_number())
        return INVALID_DEVICE;
    *ctx = &contexts[device];
    contexts[device].retained++;
    return OK;
}

/* A real one takes all memory along that is its own, from under whoever uses it. */
EMU_API cuDevicePrimaryCtxRelease_v2(xccl_cu_device device)
{
    if (device < 0 || device >= device_number() || contexts[device].retained <= 0)
        return INVALID_CONTEXT;
    if (--contexts[device].retained == 0 && emu_memory_any(device)) {
        fprintf(stderr, "the context of device %d goes with memory that is still its own\n",
                device);
        abort();
    }
    return OK;
}

EMU_API cuCtxGetCurrent(xccl_cu_ctx *ctx)
{
    *ctx = has_context() ? current.back() : nullptr;
    return OK;
}

EMU_API cuCtxSetCurrent(xccl_cu_ctx ctx)
{
    if (current.empty())
        current.push_back(ctx);
    else
        current.back() = ctx;
    return OK;
}

EMU_API cuCtxPushCurrent_v2(xccl_cu_ctx ctx)
{
    current.push_back(ctx);
    return OK;
}

EMU_API cuCtxPopCurrent_v2(xccl_cu_ctx *ctx)
{
    if (current.empty())
        return INVALID_CONTEXT;
    *ctx = current.back();
    current.pop_back();
    return OK;
}

EMU_API cuCtxGetDevice(xccl_cu_device *device)
{
    if (!has_context())
        return INVALID_CONTEXT;
    *device = current.back()->device;
    return OK;
}

EMU_API cuCtxEnablePeerAccess(xccl_cu_ctx ctx, unsigned flags)
{
    unsigned long long bit = 1ull << ctx->device;

    if (!has_context() || flags)
        return INVALID_CONTEXT;
    if (!reaches(current.back()->device, ctx->device))
        return PEER_UNSUPPORTED;
    if (current.back()->peers & bit)
        return XCCL_CU_PEER_ENABLED;
    current.back()->peers |= bit;
    return OK;
}

/* ---- memory ---- */

/* cuMemAlloc waits for copies to host memory that is not pinned, which wait for their streams: seen
 * of driver 580. Those from such memory wait likewise, but for few bytes, says CUDA's manual. */
#define STAGED_BYTES (64u << 10)
static pthread_rwlock_t of_memory = PTHREAD_RWLOCK_INITIALIZER;

static void memory_await()
{
    pthread_rwlock_wrlock(&of_memory);
    pthread_rwlock_unlock(&of_memory);
}

EMU_API cuMemAlloc_v2(xccl_cu_ptr *at, size_t bytes)
{
    if (fails(__func__))
        return OUT_OF_MEMORY;
    if (!has_context())
        return INVALID_CONTEXT;
    memory_await();
    return is_unsafe() ? NOT_IN_CAPTURE : emu_memory_alloc(at, bytes, current.back()->device);
}

/* A driver may wait for what the device does, and mostly does so: here always, as with pinned
 * memory (https://github.com/NVIDIA/nccl/issues/48). */
EMU_API cuMemFree_v2(xccl_cu_ptr at)
{
    if (is_unsafe())
        return NOT_IN_CAPTURE;
    emu_kernels_sync();
    return emu_memory_free(at);
}

EMU_API cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    if (fails(__func__))
        return OUT_OF_MEMORY;
    (void)flags;
    if (!has_context())
        return INVALID_CONTEXT;
    return is_unsafe() ? NOT_IN_CAPTURE : emu_host_alloc(at, bytes, current.back()->device);
}

EMU_API cuMemFreeHost(void *at)
{
    if (is_unsafe())
        return NOT_IN_CAPTURE;
    emu_kernels_sync();
    return emu_host_free(at);
}

EMU_API cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags)
{
    if (fails(__func__))
        return OUT_OF_MEMORY;
    (void)flags;
    return has_context() ? emu_host_register(at, bytes, current.back()->device) : INVALID_CONTEXT;
}

EMU_API cuMemHostUnregister(void *at)
{
    return emu_host_unregister(at);
}

EMU_API cuMemHostGetDevicePointer_v2(xccl_cu_ptr *device_at, void *at, unsigned flags)
{
    int device;

    (void)flags;
    *device_at = (uintptr_t)at;
    return emu_memory_kind((uintptr_t)at, &device) == XCCL_CU_MEMORY_HOST ? OK : INVALID_VALUE;
}

EMU_API cuPointerGetAttribute(void *value, int which, xccl_cu_ptr at)
{
    int device = 0, kind = emu_memory_kind(at, &device);

    if (!kind)
        return INVALID_VALUE;
    if (which == XCCL_CU_POINTER_MEMORY_TYPE)
        *(unsigned *)value = (unsigned)kind;
    else if (which == XCCL_CU_POINTER_DEVICE)
        *(int *)value = device;
    else if (which == XCCL_CU_POINTER_BUFFER_ID)
        *(unsigned long long *)value = emu_memory_number(at);
    else
        return INVALID_VALUE;
    return OK;
}

/* A file of the whole allocation: who gets it does not map it. */
EMU_API cuMemGetHandleForAddressRange(void *handle, xccl_cu_ptr at, size_t bytes, int kind,
                                      unsigned long long flags)
{
    if (fails(__func__))
        return OUT_OF_MEMORY;
    if (kind != XCCL_CU_RANGE_DMABUF || flags || at % 4096 || bytes % 4096)
        return INVALID_VALUE;
    return has_context() ? emu_memory_file((int *)handle, at, bytes) : INVALID_CONTEXT;
}

EMU_API cuIpcGetMemHandle(struct xccl_cu_ipc *handle, xccl_cu_ptr at)
{
    if (fails(__func__))
        return OUT_OF_MEMORY;
    return emu_ipc_get(handle->bytes, at);
}

EMU_API cuIpcOpenMemHandle_v2(xccl_cu_ptr *at, struct xccl_cu_ipc handle, unsigned flags)
{
    if (fails(__func__))
        return OUT_OF_MEMORY;
    if (flags != XCCL_CU_IPC_LAZY_PEER_ACCESS)
        return INVALID_VALUE;
    return has_context() ? emu_ipc_open(at, handle.bytes, current.back()->device) : INVALID_CONTEXT;
}

EMU_API cuIpcCloseMemHandle(xccl_cu_ptr at)
{
    return emu_ipc_close(at);
}

/* ---- allocations by handles ---- */

static size_t granule()
{
    return (size_t)setting("XCCL_EMU_GRANULE", 2 << 20);
}

/* As real ones do: the attribute says nothing about channels, and creation does. */
static int fabric_result(void)
{
    static const int results[] = {XCCL_CU_NOT_SUPPORTED, OK, XCCL_CU_NOT_PERMITTED};
    int has = setting("XCCL_EMU_FABRIC", 0);

    return results[has < 0 || has > 2 ? 0 : has];
}

static int check_prop(const struct xccl_cu_mem_prop *prop)
{
    if (prop->type != XCCL_CU_MEM_PINNED || prop->location.type != XCCL_CU_MEM_ON_DEVICE ||
        prop->location.id < 0 || prop->location.id >= device_number())
        return INVALID_VALUE;
    if (prop->handle_types == (XCCL_CU_MEM_POSIX_FD | XCCL_CU_MEM_FABRIC))
        return fabric_result();
    return prop->handle_types == XCCL_CU_MEM_POSIX_FD ? OK : INVALID_VALUE;
}

/* It does not look whether there is a channel. */
EMU_API cuMemGetAllocationGranularity(size_t *bytes, const struct xccl_cu_mem_prop *prop, int which)
{
    if (fails(__func__) || which != XCCL_CU_MEM_GRANULARITY_LEAST ||
        check_prop(prop) == INVALID_VALUE)
        return INVALID_VALUE;
    *bytes = granule();
    return OK;
}

EMU_API cuMemCreate(xccl_cu_handle *handle, size_t bytes, const struct xccl_cu_mem_prop *prop,
                    unsigned long long flags)
{
    int rc;

    if (fails(__func__))
        return OUT_OF_MEMORY;
    rc = check_prop(prop);
    if (flags || !bytes || bytes % granule() || rc)
        return rc ? rc : INVALID_VALUE;
    return is_unsafe() ? NOT_IN_CAPTURE
                       : emu_handle_create(handle, bytes, prop->location.id, prop->handle_types);
}

EMU_API cuMemRelease(xccl_cu_handle handle)
{
    return emu_handle_release(handle);
}

EMU_API cuMemExportToShareableHandle(void *shareable, xccl_cu_handle handle, int type,
                                     unsigned long long flags)
{
    if (type == XCCL_CU_MEM_FABRIC && !flags)
        return fails("cuMemExportToShareableHandle.fabric")
                   ? OUT_OF_MEMORY
                   : emu_fabric_export((unsigned char *)shareable, handle);
    if (fails(__func__))
        return OUT_OF_MEMORY;
    return type == XCCL_CU_MEM_POSIX_FD && !flags ? emu_handle_export((int *)shareable, handle)
                                                  : INVALID_VALUE;
}

static int import_fabric(xccl_cu_handle *handle, const void *shareable)
{
    if (fails("cuMemImportFromShareableHandle.fabric"))
        return OUT_OF_MEMORY;
    return fabric_result() ? fabric_result()
                           : emu_fabric_import(handle, (const unsigned char *)shareable,
                                               current.back()->device);
}

EMU_API cuMemImportFromShareableHandle(xccl_cu_handle *handle, void *shareable, int type)
{
    if (type == XCCL_CU_MEM_POSIX_FD && fails(__func__))
        return OUT_OF_MEMORY;
    if (!has_context())
        return INVALID_CONTEXT;
    if (type == XCCL_CU_MEM_FABRIC)
        return import_fabric(handle, shareable);
    return type == XCCL_CU_MEM_POSIX_FD
               ? emu_handle_import(handle, (int)(intptr_t)shareable, current.back()->device)
               : INVALID_VALUE;
}

EMU_API cuMemAddressReserve(xccl_cu_ptr *at, size_t bytes, size_t align, xccl_cu_ptr wanted,
                            unsigned long long flags)
{
    if (fails(__func__))
        return OUT_OF_MEMORY;
    return !bytes || bytes % granule() || align || wanted || flags ? INVALID_VALUE
                                                                   : emu_reserve(at, bytes);
}

EMU_API cuMemAddressFree(xccl_cu_ptr at, size_t bytes)
{
    return emu_unreserve(at, bytes);
}

EMU_API cuMemMap(xccl_cu_ptr at, size_t bytes, size_t offset, xccl_cu_handle handle,
                 unsigned long long flags)
{
    if (fails(__func__))
        return OUT_OF_MEMORY;
    return offset || flags ? INVALID_VALUE : emu_map(at, bytes, handle);
}

EMU_API cuMemUnmap(xccl_cu_ptr at, size_t bytes)
{
    return is_unsafe() ? NOT_IN_CAPTURE : emu_unmap(at, bytes);
}

EMU_API cuMemSetAccess(xccl_cu_ptr at, size_t bytes, const struct xccl_cu_mem_access *access,
                       size_t count)
{
    int rc = fails(__func__) ? OUT_OF_MEMORY : OK;

    for (size_t i = 0; i < count && !rc; i++)
        rc = access[i].location.type == XCCL_CU_MEM_ON_DEVICE &&
                     access[i].location.id < device_number() &&
                     access[i].flags == XCCL_CU_MEM_READ_WRITE
                 ? emu_set_access(at, bytes)
                 : INVALID_VALUE;
    return rc;
}

/* ---- copies ---- */

static int copy(uint64_t to, const void *from, size_t bytes, int keeps, xccl_cu_stream stream,
                emu_op_ptr *op_out = nullptr)
{
    auto op = std::make_shared<emu_op>();

    op->kind = EMU_COPY;
    op->to = (char *)(uintptr_t)to;
    op->from = (const char *)from;
    op->bytes = bytes;
    if (keeps)
        op->kept.assign(op->from, op->from + bytes);
    if (op_out)
        *op_out = op;
    return emu_enqueue(stream_of(stream), op);
}

/* Between host memory that is not pinned and a device. */
static int copy_pageable(uint64_t to, const void *from, size_t bytes, xccl_cu_stream stream)
{
    emu_op_ptr op;
    int rc;

    if (stream_of(stream)->graph)
        return copy(to, from, bytes, 0, stream);
    pthread_rwlock_rdlock(&of_memory);
    rc = copy(to, from, bytes, 0, stream, &op);
    if (!rc)
        rc = emu_op_sync(op);
    pthread_rwlock_unlock(&of_memory);
    return rc;
}

EMU_API cuMemcpyHtoDAsync_v2(xccl_cu_ptr to, const void *from, size_t bytes, xccl_cu_stream stream)
{
    int device, pinned;

    if (emu_memory_kind(to, &device) != XCCL_CU_MEMORY_DEVICE && bytes)
        return INVALID_VALUE;
    pinned = emu_memory_kind((uintptr_t)from, &device) != 0;
    if (pinned || bytes <= STAGED_BYTES)
        return copy(to, from, bytes, !pinned, stream);
    return copy_pageable(to, from, bytes, stream);
}

EMU_API cuMemcpyDtoHAsync_v2(void *to, xccl_cu_ptr from, size_t bytes, xccl_cu_stream stream)
{
    int device;

    if (emu_memory_kind(from, &device) != XCCL_CU_MEMORY_DEVICE && bytes)
        return INVALID_VALUE;
    if (emu_memory_kind((uintptr_t)to, &device))
        return copy((uintptr_t)to, (const void *)(uintptr_t)from, bytes, 0, stream);
    return copy_pageable((uintptr_t)to, (const void *)(uintptr_t)from, bytes, stream);
}

EMU_API cuMemcpyDtoDAsync_v2(xccl_cu_ptr to, xccl_cu_ptr from, size_t bytes, xccl_cu_stream stream)
{
    return copy(to, (const void *)(uintptr_t)from, bytes, 0, stream);
}

EMU_API cuMemsetD8Async(xccl_cu_ptr to, unsigned char value, size_t bytes, xccl_cu_stream stream)
{
    auto op = std::make_shared<emu_op>();

    op->kind = EMU_SET;
    op->to = (char *)(uintptr_t)to;
    op->value = value;
    op->bytes = bytes;
    return emu_enqueue(stream_of(stream), op);
}

/* ---- streams and events ---- */

EMU_API cuStreamCreate(xccl_cu_stream *stream, unsigned flags)
{
    if (fails(__func__))
        return OUT_OF_MEMORY;
    (void)flags;
    if (!has_context())
        return INVALID_CONTEXT;
    static std::atomic<uint64_t> ids;

    *stream = new xccl_cu_stream_st;
    (*stream)->id = DEVICES_MAX + ++ids;
    (*stream)->device = current_device();
    return OK;
}

EMU_API cuStreamDestroy_v2(xccl_cu_stream stream)
{
    if (!stream)
        return INVALID_HANDLE;
    delete stream; /* its operations go on */
    return OK;
}

EMU_API cuStreamSynchronize(xccl_cu_stream stream)
{
    return stream_of(stream)->graph ? NOT_IN_CAPTURE : emu_op_sync(stream_of(stream)->last);
}

EMU_API cuStreamQuery(xccl_cu_stream stream)
{
    return stream_of(stream)->graph ? NOT_IN_CAPTURE : emu_op_query(stream_of(stream)->last);
}

EMU_API cuStreamWaitEvent(xccl_cu_stream stream, xccl_cu_event event, unsigned flags)
{
    if (!event || flags > XCCL_CU_WAIT_EXTERNAL)
        return event ? INVALID_VALUE : INVALID_HANDLE;
    return flags ? emu_capture_wait(stream_of(stream), event)
                 : emu_stream_wait(stream_of(stream), event);
}

/* The legacy stream has the number of its device. */
EMU_API cuStreamGetId(xccl_cu_stream stream, uint64_t *id)
{
    *id = stream ? stream->id : 1 + (uint64_t)current_device();
    return OK;
}

EMU_API cuStreamIsCapturing(xccl_cu_stream stream, int *status)
{
    *status = stream_of(stream)->graph ? XCCL_CU_CAPTURE_ACTIVE : XCCL_CU_CAPTURE_NONE;
    return OK;
}

EMU_API cuStreamGetCaptureInfo_v2(xccl_cu_stream stream, int *status, uint64_t *id,
                                  xccl_cu_graph *graph, const xccl_cu_node **nodes, size_t *count)
{
    static thread_local xccl_cu_node last;
    emu_stream *at = stream_of(stream);

    *status = at->graph ? XCCL_CU_CAPTURE_ACTIVE : XCCL_CU_CAPTURE_NONE;
    if (!at->graph)
        return OK;
    last = (xccl_cu_node)at->last.get();
    if (id)
        *id = at->graph->id;
    if (graph)
        *graph = static_cast<xccl_cu_graph_st *>(at->graph);
    if (nodes)
        *nodes = &last;
    if (count)
        *count = last != nullptr;
    return OK;
}

EMU_API cuStreamUpdateCaptureDependencies(xccl_cu_stream stream, xccl_cu_node *nodes, size_t count,
                                          unsigned flags)
{
    return flags == XCCL_CU_CAPTURE_DEPENDS_ALSO
               ? emu_capture_depend(stream_of(stream), (emu_op *const *)nodes, count)
               : INVALID_VALUE;
}

EMU_API cuStreamBeginCapture_v2(xccl_cu_stream stream, int mode)
{
    return stream ? emu_capture_begin(stream, mode) : NOT_IN_CAPTURE;
}

EMU_API cuStreamEndCapture(xccl_cu_stream stream, xccl_cu_graph *graph)
{
    emu_graph *made;
    int rc = stream ? emu_capture_end(stream, &made) : NOT_IN_CAPTURE;

    if (rc)
        return rc;
    *graph = static_cast<xccl_cu_graph_st *>(made);
    return OK;
}

EMU_API cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = capture_mode;

    capture_mode = *mode;
    *mode = before;
    return OK;
}

EMU_API cuGraphInstantiateWithFlags(xccl_cu_graph_exec *exec, xccl_cu_graph graph,
                                    unsigned long long flags)
{
    if (fails(__func__))
        return OUT_OF_MEMORY;
    (void)flags;
    *exec = new xccl_cu_graph_exec_st;
    (*exec)->ops = graph->ops;
    return OK;
}

EMU_API cuGraphLaunch(xccl_cu_graph_exec exec, xccl_cu_stream stream)
{
    return emu_graph_launch(exec, stream_of(stream));
}

EMU_API cuGraphExecDestroy(xccl_cu_graph_exec exec)
{
    delete exec;
    return OK;
}

EMU_API cuGraphDestroy(xccl_cu_graph graph)
{
    delete static_cast<emu_graph *>(graph);
    return OK;
}

EMU_API cuGraphAddEventRecordNode(xccl_cu_node *node, xccl_cu_graph graph,
                                  const xccl_cu_node *after, size_t count, xccl_cu_event event)
{
    return emu_graph_record(graph, (emu_op *const *)after, count, event, (emu_op **)node);
}

EMU_API cuGraphAddDependencies(xccl_cu_graph graph, const xccl_cu_node *from,
                               const xccl_cu_node *to, size_t count)
{
    return emu_graph_edges(graph, (emu_op *const *)from, (emu_op *const *)to, count, 0);
}

EMU_API cuGraphRemoveDependencies(xccl_cu_graph graph, const xccl_cu_node *from,
                                  const xccl_cu_node *to, size_t count)
{
    return emu_graph_edges(graph, (emu_op *const *)from, (emu_op *const *)to, count, 1);
}

EMU_API cuEventCreate(xccl_cu_event *event, unsigned flags)
{
    if (fails(__func__))
        return OUT_OF_MEMORY;
    (void)flags;
    if (!has_context())
        return INVALID_CONTEXT;
    *event = new xccl_cu_event_st;
    (*event)->device = current_device();
    return OK;
}

EMU_API cuEventDestroy_v2(xccl_cu_event event)
{
    delete event;
    return OK;
}

EMU_API cuEventRecord(xccl_cu_event event, xccl_cu_stream stream)
{
    return event && is_of(stream, event->device) ? emu_event_record(event, stream_of(stream))
                                                 : INVALID_HANDLE;
}

EMU_API cuEventSynchronize(xccl_cu_event event)
{
    return emu_op_sync(event->op);
}

EMU_API cuEventQuery(xccl_cu_event event)
{
    return emu_op_query(event->op);
}

EMU_API cuEventElapsedTime(float *ms, xccl_cu_event from, xccl_cu_event to)
{
    if (emu_op_query(from->op) || emu_op_query(to->op))
        return NOT_READY;
    *ms = from->op && to->op ? (float)(to->op->done_at - from->op->done_at) : 0;
    return OK;
}

/* ---- kernels ---- */

EMU_API cuModuleLoadData(xccl_cu_module *module, const void *image)
{
    if (fails(__func__))
        return OUT_OF_MEMORY;
    if (!has_context() || !image)
        return has_context() ? INVALID_VALUE : INVALID_CONTEXT;
    if (is_unsafe())
        return NOT_IN_CAPTURE;
    *module = new xccl_cu_module_st;
    return OK;
}

EMU_API cuModuleUnload(xccl_cu_module module)
{
    delete module;
    return OK;
}

/* Functions live as long as the library. */
EMU_API cuModuleGetFunction(xccl_cu_function *function, xccl_cu_module module, const char *name)
{
    Dl_info info;
    void *self, *code;

    (void)module;
    if (!dladdr((void *)cuInit, &info))
        return NOT_FOUND;
    self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    code = self ? dlsym(self, name) : nullptr;
    if (self)
        dlclose(self);
    if (!code || strncmp(name, "xccl_", 5) != 0)
        return NOT_FOUND;
    static std::vector<xccl_cu_function> &known = *new std::vector<xccl_cu_function>;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    size_t bytes = strcmp(name, "xccl_messages") == 0 ? sizeof(struct xccl_dev_messages_launch)
                                                      : sizeof(struct xccl_dev_launch);
    pthread_mutex_lock(&lock);
    *function = nullptr;
    for (auto *one : known)
        if (one->code == code)
            *function = one;
    if (!*function) {
        *function = new xccl_cu_function_st{code, bytes};
        known.push_back(*function);
    }
    pthread_mutex_unlock(&lock);
    return OK;
}

EMU_API cuFuncGetAttribute(int *value, int which, xccl_cu_function function)
{
    if (!function)
        return INVALID_HANDLE;
    switch (which) {
    case 0: /* threads of a block at most */
        *value = EMU_THREADS;
        return OK;
    case XCCL_CU_FUNC_REGISTERS:
        *value = 64;
        return OK;
    case XCCL_CU_FUNC_BINARY_VERSION:
        *value = 90;
        return OK;
    default:
        *value = 0;
        return OK;
    }
}

EMU_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, xccl_cu_function function,
                                                    int threads, size_t shared_bytes)
{
    (void)shared_bytes;
    *blocks = threads <= (int)EMU_THREADS;
    return function ? OK : INVALID_HANDLE;
}

EMU_API cuLaunchKernel(xccl_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       xccl_cu_stream stream, void **parameters, void **extra)
{
    auto op = std::make_shared<emu_op>();

    if (fails(__func__))
        return OUT_OF_MEMORY;
    if (!has_context() || !is_of(stream, current_device()))
        return has_context() ? INVALID_HANDLE : INVALID_CONTEXT;
    if (!function || !parameters || extra || shared_bytes)
        return function ? INVALID_VALUE : INVALID_HANDLE;
    if (!grid_x || grid_y != 1 || grid_z != 1 || block_x != EMU_THREADS || block_y != 1 ||
        block_z != 1)
        return INVALID_VALUE;
    op->kind = EMU_KERNEL;
    op->kernel = function->code;
    op->parameter.assign((const char *)parameters[0],
                         (const char *)parameters[0] + function->parameter_bytes);
    op->blocks = grid_x;
    op->device = current_device();
    return emu_enqueue(stream_of(stream), op);
}
