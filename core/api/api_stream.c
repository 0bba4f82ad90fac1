/* SPDX-License-Identifier: BSD-3-Clause */
/* The public calls about streams of the host. What is done with a call's stream is group_async.c.
 * Thread: the user's. */
#include "xccl.h"

#include "api/api_int.h"
#include "api/group.h"

xcclResult_t xccl_api_check_stream(const char *call, const struct xccl_host_stream *stream)
{
    enum xccl_stream_kind kind = xccl_host_stream_kind(stream);
    xcclResult_t rc;

    if (kind == XCCL_STREAM_OWN)
        return xcclSuccess;
    rc = xccl_api_check_fork(call);
    if (rc)
        return rc;
    if (kind == XCCL_STREAM_FORKED)
        return xccl_fail(xcclInvalidUsage, 0, "create a stream in this process",
                         "%s: stream belongs to the process that forked this one", call);
    return xccl_fail(xcclInvalidArgument, 0, "pass a stream from xcclStreamCreate, or NULL",
                     "%s: stream is not a stream of this library, or has been destroyed", call);
}

xcclResult_t xcclStreamCreate(xcclStream_t *stream)
{
    struct xccl_host_stream *created = NULL;
    xcclResult_t rc;

    if (!stream)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "xcclStreamCreate: stream is NULL");
    *stream = NULL;
    rc = xccl_api_check_fork("xcclStreamCreate");
    if (!rc)
        rc = xccl_host_stream_create(&created);
    if (!rc)
        *stream = created;
    return rc;
}

xcclResult_t xcclStreamDestroy(xcclStream_t stream)
{
    xcclResult_t rc = xccl_api_check_stream("xcclStreamDestroy", stream);

    if (rc)
        return rc;
    if (xccl_group_has_stream(stream))
        return xccl_fail(xcclInvalidUsage, 0, "end the group first",
                         "xcclStreamDestroy: the open group of this thread has calls for stream");
    xccl_host_stream_destroy(stream);
    return xcclSuccess;
}

xcclResult_t xcclStreamSynchronize(xcclStream_t stream)
{
    xcclResult_t rc = stream ? xccl_api_check_stream("xcclStreamSynchronize", stream) : xcclSuccess;

    return rc || !stream ? rc : xccl_host_stream_wait(stream);
}

xcclResult_t xcclStreamQuery(xcclStream_t stream)
{
    xcclResult_t rc = stream ? xccl_api_check_stream("xcclStreamQuery", stream) : xcclSuccess;

    return rc || !stream ? rc : xccl_host_stream_query(stream);
}

XCCL_TWIN(xcclResult_t, xcclStreamCreate, (xcclStream_t * stream));
XCCL_TWIN(xcclResult_t, xcclStreamDestroy, (xcclStream_t stream));
XCCL_TWIN(xcclResult_t, xcclStreamSynchronize, (xcclStream_t stream));
XCCL_TWIN(xcclResult_t, xcclStreamQuery, (xcclStream_t stream));
