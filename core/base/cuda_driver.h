/* SPDX-License-Identifier: BSD-3-Clause */
/* The CUDA driver, opened at run time: one table of its functions, so that the library loads, and
 * host communicators work, where there is none. No header of CUDA's is needed; the declarations
 * here are those of its driver API, as libcuda.so.1 exports them.
 *
 * Thread: any. */
#ifndef XCCL_BASE_CUDA_DRIVER_H
#define XCCL_BASE_CUDA_DRIVER_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "xccl_types.h"

typedef int xccl_cu_result; /* 0: success */
typedef int xccl_cu_device;
typedef uint64_t xccl_cu_ptr;
typedef unsigned long long xccl_cu_handle; /* of an allocation */
typedef struct xccl_cu_ctx_st *xccl_cu_ctx;
typedef struct xccl_cu_stream_st *xccl_cu_stream;
typedef struct xccl_cu_event_st *xccl_cu_event;
typedef struct xccl_cu_module_st *xccl_cu_module;
typedef struct xccl_cu_function_st *xccl_cu_function;
typedef struct xccl_cu_graph_st *xccl_cu_graph;
typedef struct xccl_cu_graph_exec_st *xccl_cu_graph_exec;
typedef struct xccl_cu_node_st *xccl_cu_node; /* of a graph */

struct xccl_cu_ipc {
    char bytes[64];
};
struct xccl_cu_fabric {
    unsigned char bytes[64];
};
struct xccl_cu_uuid {
    char bytes[16];
};

/* Of allocations by handles, as the driver has them. */
struct xccl_cu_mem_location {
    int type, id;
};
struct xccl_cu_mem_prop {
    int type, handle_types;
    struct xccl_cu_mem_location location;
    void *windows;
    unsigned char compression, gpu_direct_rdma;
    unsigned short usage;
    unsigned char reserved[4];
};
static_assert(sizeof(struct xccl_cu_mem_prop) == 32, "CUmemAllocationProp is 32 bytes");
struct xccl_cu_mem_access {
    struct xccl_cu_mem_location location;
    int flags;
};
static_assert(sizeof(struct xccl_cu_mem_access) == 12, "CUmemAccessDesc is 12 bytes");

/* Results and numbers of the driver API that are used by name. */
enum {
    XCCL_CU_INVALID_VALUE = 1,
    XCCL_CU_OUT_OF_MEMORY = 2,
    XCCL_CU_INVALID_CONTEXT = 201,
    XCCL_CU_NOT_READY = 600,
    XCCL_CU_PEER_ENABLED = 704,
    XCCL_CU_ALREADY_REGISTERED = 712,
    XCCL_CU_NO_DEVICE = 100,
    XCCL_CU_DEINITIALIZED = 4,
    XCCL_CU_NOT_PERMITTED = 800,
    XCCL_CU_NOT_SUPPORTED = 801,

    XCCL_CU_ATTR_MULTIPROCESSORS = 16, /* of devices */
    XCCL_CU_ATTR_MAJOR = 75,
    XCCL_CU_ATTR_MINOR = 76,
    XCCL_CU_ATTR_UNIFIED_ADDRESSING = 41,
    XCCL_CU_ATTR_COOPERATIVE = 95,
    XCCL_CU_ATTR_VIRTUAL_MEMORY = 102, /* allocations by handles, */
    XCCL_CU_ATTR_HANDLE_FDS = 103, /* which can be exported as descriptors, */
    XCCL_CU_ATTR_RDMA_HANDLES = 110, /* and which network cards may reach */
    XCCL_CU_ATTR_WRITES_ORDERING = 118, /* of writes of network cards to the device's memory */
    XCCL_CU_ATTR_DMABUF = 124,
    XCCL_CU_ATTR_FABRIC_HANDLES = 128, /* allocations that are shared by 64 bytes (12.3) */
    XCCL_CU_WRITES_ORDERED = 100, /* for who works on that device; greater: for all */
    XCCL_CU_RANGE_DMABUF = 1, /* kind of handle */
    XCCL_CU_MEM_PINNED = 1, /* of allocations by handles */
    XCCL_CU_MEM_POSIX_FD = 1,
    XCCL_CU_MEM_FABRIC = 8,
    XCCL_CU_MEM_ON_DEVICE = 1,
    XCCL_CU_MEM_READ_WRITE = 3,
    XCCL_CU_MEM_GRANULARITY_LEAST = 0,

    XCCL_CU_FUNC_THREADS_MAX = 0, /* of functions */
    XCCL_CU_FUNC_REGISTERS = 4,
    XCCL_CU_FUNC_LOCAL_BYTES = 3,
    XCCL_CU_FUNC_SHARED_BYTES = 1,
    XCCL_CU_FUNC_BINARY_VERSION = 6,

    XCCL_CU_STREAM_NON_BLOCKING = 1,
    XCCL_CU_EVENT_DISABLE_TIMING = 2,
    XCCL_CU_HOST_PORTABLE = 1, /* of pinned memory, allocated and registered */
    XCCL_CU_HOST_MAPPED = 2,
    XCCL_CU_IPC_LAZY_PEER_ACCESS = 1,
    XCCL_CU_CAPTURE_NONE = 0, /* cuStreamIsCapturing */
    XCCL_CU_CAPTURE_ACTIVE = 1,
    XCCL_CU_CAPTURE_DEPENDS_ALSO = 0, /* cuStreamUpdateCaptureDependencies */
    XCCL_CU_WAIT_EXTERNAL = 1, /* cuStreamWaitEvent in a capture: for what each replay finds */
    XCCL_CU_CAPTURE_MODE_GLOBAL = 0,
    XCCL_CU_CAPTURE_MODE_RELAXED = 2,
    XCCL_CU_POINTER_MEMORY_TYPE = 2, /* of pointers: answers a u32 */
    XCCL_CU_POINTER_BUFFER_ID = 7, /* u64, another one for each allocation of the process */
    XCCL_CU_POINTER_DEVICE = 9, /* int */
    XCCL_CU_MEMORY_HOST = 1,
    XCCL_CU_MEMORY_DEVICE = 2
};

/* name in the table | symbol | arguments */
#define XCCL_CUDA_FUNCTIONS(X)                                                                     \
    X(init, cuInit, (unsigned flags))                                                              \
    X(driver_version, cuDriverGetVersion, (int *version))                                          \
    X(error_name, cuGetErrorName, (xccl_cu_result rc, const char **text))                          \
    X(error_string, cuGetErrorString, (xccl_cu_result rc, const char **text))                      \
    X(device_count, cuDeviceGetCount, (int *count))                                                \
    X(device_get, cuDeviceGet, (xccl_cu_device * device, int ordinal))                             \
    X(device_name, cuDeviceGetName, (char *name, int bytes, xccl_cu_device device))                \
    X(device_attribute, cuDeviceGetAttribute, (int *value, int which, xccl_cu_device device))      \
    X(device_uuid, cuDeviceGetUuid_v2, (struct xccl_cu_uuid * uuid, xccl_cu_device device))        \
    X(device_pci, cuDeviceGetPCIBusId, (char *text, int bytes, xccl_cu_device device))             \
    X(device_can_access, cuDeviceCanAccessPeer,                                                    \
      (int *can, xccl_cu_device device, xccl_cu_device peer))                                      \
    X(ctx_retain, cuDevicePrimaryCtxRetain, (xccl_cu_ctx * ctx, xccl_cu_device device))            \
    X(ctx_release, cuDevicePrimaryCtxRelease_v2, (xccl_cu_device device))                          \
    X(ctx_get, cuCtxGetCurrent, (xccl_cu_ctx * ctx))                                               \
    X(ctx_set, cuCtxSetCurrent, (xccl_cu_ctx ctx))                                                 \
    X(ctx_push, cuCtxPushCurrent_v2, (xccl_cu_ctx ctx))                                            \
    X(ctx_pop, cuCtxPopCurrent_v2, (xccl_cu_ctx * ctx))                                            \
    X(ctx_device, cuCtxGetDevice, (xccl_cu_device * device))                                       \
    X(ctx_enable_peer, cuCtxEnablePeerAccess, (xccl_cu_ctx ctx, unsigned flags))                   \
    X(mem_alloc, cuMemAlloc_v2, (xccl_cu_ptr * at, size_t bytes))                                  \
    X(mem_free, cuMemFree_v2, (xccl_cu_ptr at))                                                    \
    X(host_alloc, cuMemHostAlloc, (void **at, size_t bytes, unsigned flags))                       \
    X(host_free, cuMemFreeHost, (void *at))                                                        \
    X(host_register, cuMemHostRegister_v2, (void *at, size_t bytes, unsigned flags))               \
    X(host_unregister, cuMemHostUnregister, (void *at))                                            \
    X(host_device_ptr, cuMemHostGetDevicePointer_v2,                                               \
      (xccl_cu_ptr * device_at, void *at, unsigned flags))                                         \
    X(copy_to_device, cuMemcpyHtoDAsync_v2,                                                        \
      (xccl_cu_ptr to, const void *from, size_t bytes, xccl_cu_stream stream))                     \
    X(copy_to_host, cuMemcpyDtoHAsync_v2,                                                          \
      (void *to, xccl_cu_ptr from, size_t bytes, xccl_cu_stream stream))                           \
    X(copy_on_device, cuMemcpyDtoDAsync_v2,                                                        \
      (xccl_cu_ptr to, xccl_cu_ptr from, size_t bytes, xccl_cu_stream stream))                     \
    X(set_bytes, cuMemsetD8Async,                                                                  \
      (xccl_cu_ptr to, unsigned char value, size_t bytes, xccl_cu_stream stream))                  \
    X(pointer_attribute, cuPointerGetAttribute, (void *value, int which, xccl_cu_ptr at))          \
    X(ipc_get, cuIpcGetMemHandle, (struct xccl_cu_ipc * handle, xccl_cu_ptr at))                   \
    X(ipc_open, cuIpcOpenMemHandle_v2,                                                             \
      (xccl_cu_ptr * at, struct xccl_cu_ipc handle, unsigned flags))                               \
    X(ipc_close, cuIpcCloseMemHandle, (xccl_cu_ptr at))                                            \
    X(stream_create, cuStreamCreate, (xccl_cu_stream * stream, unsigned flags))                    \
    X(stream_destroy, cuStreamDestroy_v2, (xccl_cu_stream stream))                                 \
    X(stream_sync, cuStreamSynchronize, (xccl_cu_stream stream))                                   \
    X(stream_query, cuStreamQuery, (xccl_cu_stream stream))                                        \
    X(stream_wait, cuStreamWaitEvent,                                                              \
      (xccl_cu_stream stream, xccl_cu_event event, unsigned flags))                                \
    X(stream_capturing, cuStreamIsCapturing, (xccl_cu_stream stream, int *status))                 \
    X(stream_capture_info, cuStreamGetCaptureInfo_v2,                                              \
      (xccl_cu_stream stream, int *status, uint64_t *id, xccl_cu_graph *graph,                     \
       const xccl_cu_node **nodes, size_t *count))                                                 \
    X(stream_capture_depends, cuStreamUpdateCaptureDependencies,                                   \
      (xccl_cu_stream stream, xccl_cu_node * nodes, size_t count, unsigned flags))                 \
    X(stream_begin_capture, cuStreamBeginCapture_v2, (xccl_cu_stream stream, int mode))            \
    X(stream_end_capture, cuStreamEndCapture, (xccl_cu_stream stream, xccl_cu_graph * graph))      \
    X(capture_mode, cuThreadExchangeStreamCaptureMode, (int *mode))                                \
    X(graph_instantiate, cuGraphInstantiateWithFlags,                                              \
      (xccl_cu_graph_exec * exec, xccl_cu_graph graph, unsigned long long flags))                  \
    X(graph_launch, cuGraphLaunch, (xccl_cu_graph_exec exec, xccl_cu_stream stream))               \
    X(graph_exec_destroy, cuGraphExecDestroy, (xccl_cu_graph_exec exec))                           \
    X(graph_destroy, cuGraphDestroy, (xccl_cu_graph graph))                                        \
    X(graph_add_record, cuGraphAddEventRecordNode,                                                 \
      (xccl_cu_node * node, xccl_cu_graph graph, const xccl_cu_node *after, size_t count,          \
       xccl_cu_event event))                                                                       \
    X(graph_depend, cuGraphAddDependencies,                                                        \
      (xccl_cu_graph graph, const xccl_cu_node *from, const xccl_cu_node *to, size_t count))       \
    X(graph_release, cuGraphRemoveDependencies,                                                    \
      (xccl_cu_graph graph, const xccl_cu_node *from, const xccl_cu_node *to, size_t count))       \
    X(event_create, cuEventCreate, (xccl_cu_event * event, unsigned flags))                        \
    X(event_destroy, cuEventDestroy_v2, (xccl_cu_event event))                                     \
    X(event_record, cuEventRecord, (xccl_cu_event event, xccl_cu_stream stream))                   \
    X(event_sync, cuEventSynchronize, (xccl_cu_event event))                                       \
    X(event_query, cuEventQuery, (xccl_cu_event event))                                            \
    X(event_elapsed, cuEventElapsedTime, (float *ms, xccl_cu_event from, xccl_cu_event to))        \
    X(module_load, cuModuleLoadData, (xccl_cu_module * module, const void *image))                 \
    X(module_unload, cuModuleUnload, (xccl_cu_module module))                                      \
    X(module_function, cuModuleGetFunction,                                                        \
      (xccl_cu_function * function, xccl_cu_module module, const char *name))                      \
    X(function_attribute, cuFuncGetAttribute, (int *value, int which, xccl_cu_function function))  \
    X(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor,                                      \
      (int *blocks, xccl_cu_function function, int threads, size_t shared_bytes))                  \
    X(launch, cuLaunchKernel,                                                                      \
      (xccl_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,               \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       xccl_cu_stream stream, void **parameters, void **extra))

/* Those without which there is another way: NULL in a driver that does not have them. */
#define XCCL_CUDA_LATER_FUNCTIONS(X)                                                               \
    X(stream_id, cuStreamGetId, (xccl_cu_stream stream, uint64_t * id)) /* 12.0 */                 \
    X(mem_granularity, cuMemGetAllocationGranularity,                                              \
      (size_t * bytes, const struct xccl_cu_mem_prop *prop, int which))                            \
    X(mem_create, cuMemCreate,                                                                     \
      (xccl_cu_handle * handle, size_t bytes, const struct xccl_cu_mem_prop *prop,                 \
       unsigned long long flags))                                                                  \
    X(mem_release, cuMemRelease, (xccl_cu_handle handle))                                          \
    X(mem_export, cuMemExportToShareableHandle,                                                    \
      (void *shareable, xccl_cu_handle handle, int type, unsigned long long flags))                \
    X(mem_import, cuMemImportFromShareableHandle,                                                  \
      (xccl_cu_handle * handle, void *shareable, int type))                                        \
    X(mem_reserve, cuMemAddressReserve,                                                            \
      (xccl_cu_ptr * at, size_t bytes, size_t align, xccl_cu_ptr wanted,                           \
       unsigned long long flags))                                                                  \
    X(mem_unreserve, cuMemAddressFree, (xccl_cu_ptr at, size_t bytes))                             \
    X(mem_map, cuMemMap,                                                                           \
      (xccl_cu_ptr at, size_t bytes, size_t offset, xccl_cu_handle handle,                         \
       unsigned long long flags))                                                                  \
    X(mem_unmap, cuMemUnmap, (xccl_cu_ptr at, size_t bytes))                                       \
    X(mem_set_access, cuMemSetAccess,                                                              \
      (xccl_cu_ptr at, size_t bytes, const struct xccl_cu_mem_access *access, size_t count))       \
    X(mem_range_handle, cuMemGetHandleForAddressRange,                                             \
      (void *handle, xccl_cu_ptr at, size_t bytes, int kind, unsigned long long flags))

struct xccl_cuda_driver {
/* A name cannot be enclosed: NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define XCCL_CUDA_MEMBER(name, symbol, args) xccl_cu_result(*name) args;
    XCCL_CUDA_FUNCTIONS(XCCL_CUDA_MEMBER)
    XCCL_CUDA_LATER_FUNCTIONS(XCCL_CUDA_MEMBER)
#undef XCCL_CUDA_MEMBER
    int version; /* of the driver: 12040 is 12.4 */
    int devices; /* at least 1 */
};

/* 1: the driver is in this process, loaded by the program or by this library. Loads nothing, and
 * asks no loader, whose lock another thread may hold while it loads a plugin: the function reads
 * the process's map of files and compares their names up to ".so". */
int xccl_cuda_driver_is_loaded(void);
/* The driver, opened and initialized by the first call, for the rest of the process; NULL: there is
 * none that can be used. The reason is xccl_cuda_why_not(), in words. */
const struct xccl_cuda_driver *xccl_cuda_driver(void);
/* "libcuda.so.1: cannot open shared object file ..."; "" when there is one. After the former. */
const char *xccl_cuda_why_not(void);
/* rc of a call of the driver's as an error of the library, xcclUnhandledCudaError: "WHAT:
 * CUDA_ERROR_OUT_OF_MEMORY (out of memory)". 0: xcclSuccess. */
xcclResult_t xccl_cuda_result(xccl_cu_result rc, const char *what);
xcclResult_t xccl_cuda_result_quietly(xccl_cu_result rc, const char *what); /* not logged */

#endif
