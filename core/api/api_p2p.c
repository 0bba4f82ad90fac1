/* SPDX-License-Identifier: BSD-3-Clause */
/* Send and receive: look at every argument, and note the message. All messages of a group go
 * together (call/comm_p2p.h). Thread: the user's. */
#include "xccl.h"

#include <stddef.h>

#include "api/api_int.h"
#include "api/group.h"
#include "api/range.h"
#include "comm/device_ops.h"

#define BYTES_MAX (SIZE_MAX / 4)

static xcclResult_t check(const char *call, const char *buffer, const struct xccl_p2p_item *item,
                          xcclComm_t comm)
{
    xcclResult_t rc = xccl_api_check_comm(call, comm);

    if (rc)
        return rc;
    if (item->peer < 0 || item->peer >= comm->nranks)
        return xccl_fail(xcclInvalidArgument, 0, "name a rank of the communicator",
                         "%s: peer is %d, not 0..%d", call, item->peer, comm->nranks - 1);
    if (item->bytes && !item->at)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: %s is NULL and count is not 0", call,
                         buffer);
    return xcclSuccess;
}

/* What a call gives. */
struct args {
    void *at;
    size_t count;
    xcclDataType_t type;
    int peer, sends;
    xcclStream_t stream;
};

static xcclResult_t submit(const char *call, const char *buffer, const struct args *args,
                           xcclComm_t comm)
{
    struct xccl_p2p_item item = {.peer = args->peer, .sends = args->sends, .at = args->at};
    size_t elem_bytes = xccl_type_bytes(args->type);
    xcclResult_t rc;

    if (!elem_bytes)
        rc = xccl_fail(xcclInvalidArgument, 0, NULL, "%s: datatype is %d, not 0..%d", call,
                       (int)args->type, xcclNumTypes - 1);
    else if (args->count > BYTES_MAX / elem_bytes)
        rc = xccl_fail(xcclInvalidArgument, 0, "split the call", "%s: count is %zu", call,
                       args->count);
    else {
        item.bytes = args->count * elem_bytes;
        rc = check(call, buffer, &item, comm);
        if (!rc && args->stream && !comm->ops->queues)
            rc = xccl_api_check_stream(call, args->stream);
    }
    if (rc)
        return xccl_group_reject(rc);
    if (!comm->ops->queues)
        return xccl_group_add_p2p(comm, &item, args->stream);
    xccl_range_push(call);
    rc = xccl_group_add_p2p(comm, &item, args->stream);
    xccl_range_pop();
    return rc;
}

xcclResult_t xcclSend(const void *sendbuff, size_t count, xcclDataType_t datatype, int peer,
                      xcclComm_t comm, xcclStream_t stream)
{
    /* Sending only reads. */
    struct args args = {(void *)(uintptr_t)sendbuff, count, datatype, peer, 1, stream};

    return submit("xcclSend", "sendbuff", &args, comm);
}

xcclResult_t xcclRecv(void *recvbuff, size_t count, xcclDataType_t datatype, int peer,
                      xcclComm_t comm, xcclStream_t stream)
{
    struct args args = {recvbuff, count, datatype, peer, 0, stream};

    return submit("xcclRecv", "recvbuff", &args, comm);
}

XCCL_TWIN(xcclResult_t, xcclSend,
          (const void *sendbuff, size_t count, xcclDataType_t datatype, int peer, xcclComm_t comm,
           xcclStream_t stream));
XCCL_TWIN(xcclResult_t, xcclRecv,
          (void *recvbuff, size_t count, xcclDataType_t datatype, int peer, xcclComm_t comm,
           xcclStream_t stream));
