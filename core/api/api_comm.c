/* SPDX-License-Identifier: BSD-3-Clause */
/* More of the public calls about communicators: the other ways to make one, its end, and what it
 * may be asked. Thread: the user's. */
#include "xccl.h"

#include <string.h>

#include "api/api_int.h"
#include "api/group.h"
#include "comm/comm_list.h"
#include "cuda/cuda_device.h"
#include "join/join.h"

/* --- joining --- */

xcclResult_t xcclCommInitRankConfig(xcclComm_t *comm, int nranks, xcclUniqueId id, int rank,
                                    xcclConfig_t *config)
{
    struct xccl_join_args args = {
        .comm_out = comm, .nranks = nranks, .rank = rank, .ids = &id, .id_count = 1};
    xcclResult_t rc = xccl_api_join("xcclCommInitRankConfig", &args, config);

    explicit_bzero(&id, sizeof id); /* it holds a secret */
    return rc;
}

static xcclResult_t check_init_all(xcclComm_t *comm_list, int ndev, const int *devlist)
{
    const char *call = "xcclCommInitAll";

    if (!comm_list)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: comm_list is NULL", call);
    if (ndev < 1 || ndev > XCCL_API_RANKS_MAX)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: ndev is %d, not 1..%d", call, ndev,
                         XCCL_API_RANKS_MAX);
    for (int i = 0; devlist && i < ndev; i++)
        if (devlist[i] < 0)
            return xccl_fail(xcclInvalidArgument, 0, "pass device numbers from 0, or NULL",
                             "%s: devlist[%d] is %d", call, i, devlist[i]);
    return xccl_api_check_fork(call);
}

xcclResult_t xcclCommInitAll(xcclComm_t *comm_list, int ndev, const int *devlist)
{
    xcclUniqueId id;
    xcclResult_t rc = check_init_all(comm_list, ndev, devlist), ended;
    int device = XCCL_DEVICE_HOST;

    if (!rc)
        rc = xccl_cuda_default_device(&device);
    if (!rc)
        rc = xccl_unique_id_create_here(&id);
    if (!rc)
        rc = xcclGroupStart();
    if (rc)
        return xccl_group_reject(rc);
    for (int i = 0; i < ndev; i++) {
        struct xccl_join_args args = {.comm_out = &comm_list[i],
                                      .nranks = ndev,
                                      .rank = i,
                                      .ids = &id,
                                      .id_count = 1,
                                      .has_device = 1,
                                      .device = XCCL_DEVICE_HOST};

        if (device != XCCL_DEVICE_HOST)
            args.device = devlist ? devlist[i] : i;
        rc = rc ? rc : xccl_api_join("xcclCommInitAll", &args, NULL);
    }
    ended = xcclGroupEnd();
    explicit_bzero(&id, sizeof id);
    return rc ? rc : ended;
}

/* Groups copy the ids of a join; a split has none. */
static const xcclUniqueId no_id;

static xcclResult_t check_split(const struct xcclComm *comm, int color, xcclComm_t *newcomm)
{
    xcclResult_t rc = xccl_api_check_comm("xcclCommSplit", comm);

    if (rc)
        return rc;
    if (!newcomm)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "xcclCommSplit: newcomm is NULL");
    if (color < 0 && color != XCCL_SPLIT_NOCOLOR)
        return xccl_fail(xcclInvalidArgument, 0, "use a color of 0 or more, or XCCL_SPLIT_NOCOLOR",
                         "xcclCommSplit: color is %d", color);
    return xcclSuccess;
}

xcclResult_t xcclCommSplit(xcclComm_t comm, int color, int key, xcclComm_t *newcomm,
                           xcclConfig_t *config)
{
    struct xccl_join_args args = {.parent = comm};
    struct xccl_entry entry = {.kind = XCCL_ENTRY_INIT, .task.comm = comm, .join = &args};
    xcclResult_t rc = check_split(comm, color, newcomm);

    if (!rc) {
        args.is_nonblocking = comm->is_nonblocking;
        args.device = comm->device;
    }
    if (!rc)
        rc = xccl_api_take_config("xcclCommSplit", config, &args);
    if (!rc && args.device != comm->device)
        rc = xccl_fail(xcclInvalidUsage, 0, "leave the device of the config unset",
                       "xcclCommSplit: device is %d, but the communicator is on device %d",
                       args.device, comm->device);
    if (rc || !newcomm) /* it is there on success, which clang's analyzer does not see */
        return xccl_group_reject(rc);
    *newcomm = NULL;
    args.comm_out = newcomm;
    args.color = color == XCCL_SPLIT_NOCOLOR ? XCCL_NO_COLOR : color;
    args.key = key;
    args.rank = comm->rank;
    args.nranks = comm->nranks;
    args.ids = &no_id;
    args.id_count = 1;
    return xccl_api_add("xcclCommSplit", args.device, &entry);
}

/* --- the end, and questions --- */

xcclResult_t xcclCommFinalize(xcclComm_t comm)
{
    xcclResult_t rc = xccl_api_check_comm("xcclCommFinalize", comm);

    if (rc)
        return xccl_group_reject(rc);
    if (!comm->is_nonblocking)
        xccl_comm_drain(comm);
    rc = xccl_comm_enter_aside(comm);
    if (rc)
        return xccl_group_reject(rc);
    xccl_comm_set_magic(comm, XCCL_COMM_FINAL);
    xccl_comm_leave_aside(comm);
    return xccl_comm_progress_state(comm);
}

xcclResult_t xcclCommGetAsyncError(xcclComm_t comm, xcclResult_t *asyncError)
{
    int is_joining = comm && xccl_comm_magic(comm) == XCCL_COMM_JOINING;
    xcclResult_t rc = is_joining ? xcclSuccess
                                 : xccl_api_check_known("xcclCommGetAsyncError", comm);

    if (rc)
        return rc;
    if (!asyncError)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "xcclCommGetAsyncError: asyncError is NULL");
    rc = is_joining ? xccl_comm_check_joined(comm) : xccl_comm_async_error(comm);
    if (rc)
        xccl_comm_set_told(comm);
    *asyncError = rc ? rc : xccl_comm_progress_state(comm);
    return xcclSuccess;
}

xcclResult_t xcclCommCuDevice(const xcclComm_t comm, int *device)
{
    xcclResult_t rc = xccl_api_check_known("xcclCommCuDevice", comm);

    if (rc)
        return rc;
    if (!device)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "xcclCommCuDevice: device is NULL");
    *device = comm->device;
    return xcclSuccess;
}

XCCL_TWIN(xcclResult_t, xcclCommInitRankConfig,
          (xcclComm_t * comm, int nranks, xcclUniqueId id, int rank, xcclConfig_t *config));
XCCL_TWIN(xcclResult_t, xcclCommInitAll, (xcclComm_t * comm_list, int ndev, const int *devlist));
XCCL_TWIN(xcclResult_t, xcclCommSplit,
          (xcclComm_t comm, int color, int key, xcclComm_t *newcomm, xcclConfig_t *config));
XCCL_TWIN(xcclResult_t, xcclCommFinalize, (xcclComm_t comm));
XCCL_TWIN(xcclResult_t, xcclCommGetAsyncError, (xcclComm_t comm, xcclResult_t *asyncError));
XCCL_TWIN(xcclResult_t, xcclCommCuDevice, (const xcclComm_t comm, int *device));
