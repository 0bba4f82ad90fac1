/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests of a comm, taken from its fixed array, and the entries that pass on what is asked of a
 * comm. Nothing here allocates, locks or makes system calls. Thread: the comm's, but for
 * registrations, which touch nothing of the comm that changes. */
#include "net_hook.h"

#include "base/error.h"

struct hook_request *hook_request_at(struct hook_comm *comm, uint32_t slot)
{
    return (struct hook_request *)(void *)(comm->requests + slot * comm->ctx->shape->request_bytes);
}

struct hook_request *hook_request_take(struct hook_comm *comm, enum hook_kind kind)
{
    struct hook_request *request;

    if (comm->free_count == 0)
        return NULL;
    request = hook_request_at(comm, comm->free_slots[--comm->free_count]);
    request->inner = NULL;
    request->kind = (uint8_t)kind;
    request->count = 1;
    request->taken = 1;
    request->number = ++comm->posted;
    return request;
}

void hook_request_put(struct hook_request *request)
{
    struct hook_comm *comm = request->comm;

    request->taken = 0;
    comm->free_slots[comm->free_count++] = request->slot;
}

xcclResult_t hook_request_check(const struct hook_request *request)
{
    if (request->taken)
        return xcclSuccess;
    return xccl_fail_quietly(xcclInvalidUsage, 0, "do not test a request after it was done",
                             "a request is tested again after it was done");
}

/* What the wrapped plugin answered to the request's post. */
static xcclResult_t request_posted(struct hook_request *request, xcclResult_t rc,
                                   xcclNetRequest_t inner, xcclNetRequest_t *request_out)
{
    struct hook_comm *comm = request->comm;

    if (rc == xcclSuccess && inner) {
        request->inner = inner;
        *request_out = request;
        return xcclSuccess;
    }
    hook_request_put(request);
    comm->posted--;
    if (rc != xcclSuccess)
        return hook_pass(comm->ctx, rc);
    *request_out = NULL;
    return xcclSuccess;
}

static xcclResult_t all_in_use(xcclNetRequest_t *request_out)
{
    *request_out = NULL;
    return xcclSuccess;
}

xcclResult_t hook_reg_mr(void *comm_, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem)
{
    const struct hook_comm *comm = comm_;

    return hook_pass(comm->ctx, comm->ctx->plugin->regMr(comm->inner, data, bytes, type, mem));
}

xcclResult_t hook_reg_mr_dma_buf(void *comm_, void *data, size_t bytes, uint32_t type,
                                 uint64_t offset, int fd, xcclNetMem_t *mem)
{
    const struct hook_comm *comm = comm_;

    return hook_pass(
        comm->ctx, comm->ctx->plugin->regMrDmaBuf(comm->inner, data, bytes, type, offset, fd, mem));
}

xcclResult_t hook_dereg_mr(void *comm_, xcclNetMem_t mem)
{
    const struct hook_comm *comm = comm_;

    return hook_pass(comm->ctx, comm->ctx->plugin->deregMr(comm->inner, mem));
}

xcclResult_t hook_export_mr(xcclNetRecvComm_t comm_, xcclNetMem_t mem, xcclNetMemKey_t *key)
{
    const struct hook_comm *comm = comm_;

    return hook_pass(comm->ctx, comm->ctx->plugin->exportMr(comm->inner, mem, key));
}

xcclResult_t hook_isend(xcclNetSendComm_t comm_, const void *data, size_t bytes, uint32_t tag,
                        xcclNetMem_t mem, xcclNetRequest_t *request_out)
{
    struct hook_comm *comm = comm_;
    struct hook_request *request = hook_request_take(comm, HOOK_SEND);
    xcclNetRequest_t inner = NULL;
    xcclResult_t rc;

    if (!request)
        return all_in_use(request_out);
    rc = comm->ctx->plugin->isend(comm->inner, data, bytes, tag, mem, &inner);
    return request_posted(request, rc, inner, request_out);
}

xcclResult_t hook_irecv(xcclNetRecvComm_t comm_, int count, void *const *data, const size_t *bytes,
                        const uint32_t *tags, const xcclNetMem_t *mems,
                        xcclNetRequest_t *request_out)
{
    struct hook_comm *comm = comm_;
    struct hook_request *request = hook_request_take(comm, HOOK_RECV);
    xcclNetRequest_t inner = *request_out == XCCL_NET_RECV_OPTIONAL ? XCCL_NET_RECV_OPTIONAL : NULL;
    xcclResult_t rc;

    if (!request)
        return all_in_use(request_out);
    request->count = count;
    rc = comm->ctx->plugin->irecv(comm->inner, count, data, bytes, tags, mems, &inner);
    return request_posted(request, rc, inner, request_out);
}

xcclResult_t hook_iflush(xcclNetRecvComm_t comm_, int count, void *const *data, const size_t *bytes,
                         const xcclNetMem_t *mems, xcclNetRequest_t *request_out)
{
    struct hook_comm *comm = comm_;
    struct hook_request *request = hook_request_take(comm, HOOK_FLUSH);
    xcclNetRequest_t inner = NULL;
    xcclResult_t rc;

    /* No request means that nothing is to be waited for, so this one cannot say busy. */
    if (!request)
        return xccl_fail_quietly(xcclInvalidUsage, 0, "test requests until they are done",
                                 "more than %d requests are in flight", HOOK_REQUESTS);
    request->count = count;
    rc = comm->ctx->plugin->iflush(comm->inner, count, data, bytes, mems, &inner);
    return request_posted(request, rc, inner, request_out);
}

xcclResult_t hook_iput(xcclNetSendComm_t comm_, const void *data, size_t bytes, xcclNetMem_t mem,
                       const xcclNetMemKey_t *key, uint64_t offset, xcclNetRequest_t *request_out)
{
    struct hook_comm *comm = comm_;
    struct hook_request *request = hook_request_take(comm, HOOK_PUT);
    xcclNetRequest_t inner = NULL;
    xcclResult_t rc;

    if (!request)
        return all_in_use(request_out);
    rc = comm->ctx->plugin->iput(comm->inner, data, bytes, mem, key, offset, &inner);
    return request_posted(request, rc, inner, request_out);
}

/* tidy: allow parameters because the contract's entry has as many */
xcclResult_t hook_iput_signal(xcclNetSendComm_t comm_, const void *data, size_t bytes,
                              xcclNetMem_t mem, const xcclNetMemKey_t *key, uint64_t offset,
                              const xcclNetMemKey_t *signal_key, uint64_t signal_offset,
                              uint64_t value, xcclNetRequest_t *request_out)
{
    struct hook_comm *comm = comm_;
    struct hook_request *request = hook_request_take(comm, HOOK_PUT);
    xcclNetRequest_t inner = NULL;
    xcclResult_t rc;

    if (!request)
        return all_in_use(request_out);
    rc = comm->ctx->plugin->iputSignal(comm->inner, data, bytes, mem, key, offset, signal_key,
                                       signal_offset, value, &inner);
    return request_posted(request, rc, inner, request_out);
}

xcclResult_t hook_test(xcclNetRequest_t request_, int *done, size_t *bytes)
{
    struct hook_request *request = request_;
    const struct hook_ctx *ctx = request->comm->ctx;
    int finished = 0;
    xcclResult_t rc = hook_request_check(request);

    if (rc != xcclSuccess)
        return rc;
    rc = hook_pass(ctx, ctx->plugin->test(request->inner, &finished, bytes));
    if (rc != xcclSuccess)
        return rc;
    if (finished)
        hook_request_put(request);
    *done = finished;
    return xcclSuccess;
}

xcclResult_t hook_wait_fd(void *comm_, int *fd)
{
    const struct hook_comm *comm = comm_;

    return hook_pass(comm->ctx, comm->ctx->plugin->waitFd(comm->inner, fd));
}

xcclResult_t hook_error_detail(void *comm_, xcclNetError_v1 *error)
{
    const struct hook_comm *comm = comm_;

    return hook_pass(comm->ctx, comm->ctx->plugin->errorDetail(comm->inner, error));
}
