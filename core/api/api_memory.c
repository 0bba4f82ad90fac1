/* SPDX-License-Identifier: BSD-3-Clause */
/* The public calls about memory: memory to be had, and buffers to be registered. Thread: the
 * user's. */
#include "xccl.h"

#include "api/api_int.h"
#include "call/comm_call.h"
#include "comm/comm_memory.h"
#include "comm/device_ops.h"
#include "cuda/cuda_device.h"
#include "exec/cuda/user_memory.h"
#include "join/comm_usage.h"

xcclResult_t xcclMemAlloc(void **ptr, size_t size)
{
    int device;
    xcclResult_t rc;

    if (!ptr)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "xcclMemAlloc: ptr is NULL");
    *ptr = NULL;
    if (!size)
        return xcclSuccess;
    rc = xccl_api_check_fork("xcclMemAlloc");
    if (!rc)
        rc = xccl_cuda_default_device(&device);
    if (rc || device == XCCL_DEVICE_HOST)
        return rc ? rc : xccl_user_memory_create(size, ptr);
    return xccl_cuda_user_alloc(device, size, ptr);
}

xcclResult_t xcclMemFree(void *ptr)
{
    xcclResult_t rc = ptr ? xccl_api_check_fork("xcclMemFree") : xcclSuccess;

    if (rc)
        return rc;
    if (!ptr || xccl_user_memory_destroy(ptr) || xccl_cuda_user_free(ptr))
        return xcclSuccess;
    return xccl_fail(xcclInvalidArgument, 0,
                     "free memory once, with the function that belongs to its allocation",
                     "xcclMemFree: ptr is %p, which xcclMemAlloc did not return", ptr);
}

xcclResult_t xcclCommRegister(const xcclComm_t comm, void *buff, size_t size, void **handle)
{
    struct xccl_registered *registered = NULL;
    xcclResult_t rc = xccl_api_check_comm("xcclCommRegister", comm);
    const struct xccl_device_ops *ops;

    if (rc)
        return rc;
    if (!buff || !handle)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "xcclCommRegister: %s is NULL",
                         buff ? "handle" : "buff");
    if (!size || size > UINTPTR_MAX - (uintptr_t)buff)
        return xccl_fail(xcclInvalidArgument, 0, NULL,
                         "xcclCommRegister: size is %zu, which buff cannot have", size);
    rc = xccl_comm_enter_aside(comm);
    if (rc)
        return rc;
    ops = comm->ops;
    rc = xccl_comm_register(comm, buff, size, &registered);
    if (!rc)
        *handle = registered;
    xccl_comm_leave_aside(comm);
    if (!rc)
        ops->registered(buff, size);
    return rc;
}

xcclResult_t xcclCommDeregister(const xcclComm_t comm, void *handle)
{
    xcclResult_t rc = xccl_api_check_known("xcclCommDeregister", comm);

    if (!rc)
        rc = xccl_comm_enter_aside(comm);
    if (rc)
        return rc;
    if (!xccl_comm_deregister(comm, handle))
        rc = xccl_fail(
            xcclInvalidArgument, 0,
            "deregister each handle once, with the communicator that registered it",
            "xcclCommDeregister: handle is %p, which is not a handle of this communicator", handle);
    xccl_comm_leave_aside(comm);
    return rc;
}

/* 0: there is no such statistic. */
static int pick_stat(const struct xcclComm *comm, const struct xccl_comm_usage *usage,
                     xcclCommMemStat_t stat, uint64_t *value)
{
    switch ((int)stat) { /* the caller's number */
    case xcclStatGpuMemSuspend:
    case xcclStatGpuMemSuspended:
        *value = 0; /* nothing can be put away meanwhile */
        return 1;
    case xcclStatGpuMemPersist:
    case xcclStatGpuMemTotal:
        *value = comm->ops->bytes(comm);
        return 1;
    case xcclStatHostMemTotal:
        *value = usage->total;
        return 1;
    case xcclStatHostMemPersist:
        *value = comm->joined_bytes;
        return 1;
    case xcclStatHostMemOnDemand:
        *value = usage->total > comm->joined_bytes ? usage->total - comm->joined_bytes : 0;
        return 1;
    case xcclStatHostMemSlots:
        *value = usage->slots;
        return 1;
    case xcclStatHostMemPlans:
        *value = usage->plans;
        return 1;
    case xcclStatHostMemScratch:
        *value = usage->scratch;
        return 1;
    case xcclStatHostMemTables:
        *value = usage->tables;
        return 1;
    case xcclStatHostMemMapped:
        *value = usage->mapped;
        return 1;
    default:
        return 0;
    }
}

xcclResult_t xcclCommMemStats(const xcclComm_t comm, xcclCommMemStat_t stat, uint64_t *value)
{
    xcclResult_t rc = xccl_api_check_known("xcclCommMemStats", comm);
    struct xccl_comm_usage usage;

    if (rc)
        return rc;
    if (!value)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "xcclCommMemStats: value is NULL");
    rc = xccl_comm_enter(comm);
    if (rc)
        return rc;
    xccl_comm_usage(comm, &usage);
    if (!pick_stat(comm, &usage, stat, value))
        rc = xccl_fail(xcclInvalidArgument, 0, "see xcclCommMemStat_t",
                       "xcclCommMemStats: there is no statistic %d", (int)stat);
    xccl_comm_leave(comm);
    return rc;
}

XCCL_TWIN(xcclResult_t, xcclMemAlloc, (void **ptr, size_t size));
XCCL_TWIN(xcclResult_t, xcclMemFree, (void *ptr));
XCCL_TWIN(xcclResult_t, xcclCommRegister,
          (const xcclComm_t comm, void *buff, size_t size, void **handle));
XCCL_TWIN(xcclResult_t, xcclCommMemStats,
          (const xcclComm_t comm, xcclCommMemStat_t stat, uint64_t *value));
XCCL_TWIN(xcclResult_t, xcclCommDeregister, (const xcclComm_t comm, void *handle));
