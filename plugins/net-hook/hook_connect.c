/* SPDX-License-Identifier: BSD-3-Clause */
/* Listening comms, connects and comms of the wrapped plugin, each in an object of ours. The comm of
 * a connect or an accept is taken before the wrapped plugin is asked, so that nothing has to be
 * undone once it has connected. Thread: one at a time an object. */
#include "net_hook.h"

#include "base/alloc.h"

#define COMM_ALIGN 64

static size_t comm_head_bytes(const struct hook_shape *shape)
{
    return (shape->comm_bytes + COMM_ALIGN - 1) / COMM_ALIGN * COMM_ALIGN;
}

static struct hook_comm *comm_create(struct hook_ctx *ctx, int is_send, int dev, uint32_t number)
{
    const struct hook_shape *shape = ctx->shape;
    size_t head = comm_head_bytes(shape);
    struct hook_comm *comm = xccl_calloc_aligned(COMM_ALIGN,
                                                 head + HOOK_REQUESTS * shape->request_bytes);

    if (!comm)
        return NULL;
    comm->ctx = ctx;
    comm->is_send = is_send;
    comm->dev = dev;
    comm->number = number;
    comm->requests = (char *)comm + head;
    for (uint32_t i = 0; i < HOOK_REQUESTS; i++) {
        struct hook_request *request = hook_request_at(comm, i);

        request->comm = comm;
        request->slot = (uint16_t)i;
        comm->free_slots[i] = (uint16_t)(HOOK_REQUESTS - 1 - i);
    }
    comm->free_count = HOOK_REQUESTS;
    return comm;
}

xcclResult_t hook_listen(xcclNetContext_t ctx_, int dev, xcclNetHandle_t *handle,
                         xcclNetListenComm_t *comm_out)
{
    struct hook_ctx *ctx = ctx_;
    struct hook_listen *listener = xccl_calloc(1, ctx->shape->listen_bytes);
    xcclResult_t rc;

    if (!listener)
        return xcclSystemError;
    rc = hook_pass(ctx, ctx->plugin->listen(ctx->inner, dev, handle, &listener->inner));
    if (rc != xcclSuccess) {
        xccl_free(listener);
        return rc;
    }
    listener->ctx = ctx;
    listener->dev = dev;
    listener->number = atomic_fetch_add_explicit(&ctx->listen_count, 1, memory_order_relaxed) + 1;
    *comm_out = listener;
    return xcclSuccess;
}

xcclResult_t hook_accept(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm_out)
{
    struct hook_listen *listener = listen;
    const struct hook_ctx *ctx = listener->ctx;
    xcclNetRecvComm_t inner = NULL;
    xcclResult_t rc;

    if (!listener->spare)
        listener->spare = comm_create(listener->ctx, 0, listener->dev, listener->number);
    if (!listener->spare)
        return xcclSystemError;
    rc = hook_pass(ctx, ctx->plugin->accept(listener->inner, &inner));
    if (rc != xcclSuccess)
        return rc;
    *comm_out = NULL;
    if (!inner)
        return xcclSuccess;
    listener->spare->inner = inner;
    *comm_out = listener->spare;
    listener->spare = NULL;
    return xcclSuccess;
}

xcclResult_t hook_close_listen(xcclNetListenComm_t listen)
{
    struct hook_listen *listener = listen;
    const struct hook_ctx *ctx = listener->ctx;
    xcclResult_t rc = hook_pass(ctx, ctx->plugin->closeListen(listener->inner));

    xccl_free(listener->spare);
    xccl_free(listener);
    return rc;
}

/* Takes it out of the instance's list and frees it, but not the wrapped plugin's state. */
static void connect_destroy(struct hook_connect *state)
{
    struct hook_ctx *ctx = state->ctx;

    pthread_mutex_lock(&ctx->lock);
    if (state->prev)
        state->prev->next = state->next;
    else
        ctx->connects = state->next;
    if (state->next)
        state->next->prev = state->prev;
    pthread_mutex_unlock(&ctx->lock);
    xccl_free(state->comm);
    xccl_free(state);
}

xcclResult_t hook_connect_begin(xcclNetContext_t ctx_, int dev, xcclNetConnect_t *state_out)
{
    struct hook_ctx *ctx = ctx_;
    struct hook_connect *state;

    if (*state_out)
        return xcclSuccess;
    state = xccl_calloc(1, ctx->shape->connect_bytes);
    if (!state)
        return xcclSystemError;
    state->number = atomic_fetch_add_explicit(&ctx->connect_count, 1, memory_order_relaxed) + 1;
    state->comm = comm_create(ctx, 1, dev, state->number);
    if (!state->comm) {
        xccl_free(state);
        return xcclSystemError;
    }
    state->ctx = ctx;
    pthread_mutex_lock(&ctx->lock);
    state->next = ctx->connects;
    if (state->next)
        state->next->prev = state;
    ctx->connects = state;
    pthread_mutex_unlock(&ctx->lock);
    *state_out = state;
    return xcclSuccess;
}

xcclResult_t hook_connect(xcclNetContext_t ctx_, int dev, const xcclNetHandle_t *handle,
                          xcclNetConnect_t *state_out, xcclNetSendComm_t *comm_out)
{
    const struct hook_ctx *ctx = ctx_;
    xcclNetSendComm_t inner = NULL;
    struct hook_connect *state;
    xcclResult_t rc = hook_connect_begin(ctx_, dev, state_out);

    if (rc != xcclSuccess)
        return rc;
    state = *state_out;
    rc = hook_pass(ctx, ctx->plugin->connect(ctx->inner, dev, handle, &state->inner, &inner));
    if (rc == xcclSuccess && !inner) {
        *comm_out = NULL;
        return xcclSuccess;
    }
    *state_out = NULL;
    if (rc == xcclSuccess) {
        state->comm->inner = inner;
        *comm_out = state->comm;
        state->comm = NULL;
    }
    connect_destroy(state);
    return rc;
}

xcclResult_t hook_close_connect(xcclNetContext_t ctx_, xcclNetConnect_t state_)
{
    const struct hook_ctx *ctx = ctx_;
    struct hook_connect *state = state_;
    xcclResult_t rc = xcclSuccess;

    if (state->inner)
        rc = hook_pass(ctx, ctx->plugin->closeConnect(ctx->inner, state->inner));
    connect_destroy(state);
    return rc;
}

xcclResult_t hook_close_send(xcclNetSendComm_t comm_)
{
    struct hook_comm *comm = comm_;
    xcclResult_t rc = hook_pass(comm->ctx, comm->ctx->plugin->closeSend(comm->inner));

    xccl_free(comm);
    return rc;
}

xcclResult_t hook_close_recv(xcclNetRecvComm_t comm_)
{
    struct hook_comm *comm = comm_;
    xcclResult_t rc = hook_pass(comm->ctx, comm->ctx->plugin->closeRecv(comm->inner));

    xccl_free(comm);
    return rc;
}
