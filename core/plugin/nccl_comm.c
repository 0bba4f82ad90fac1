/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections and memory over NCCL's contract.
 *
 * A plugin may keep the state of a connect inside the 128 bytes of the handle, so ours is a heap
 * object with a copy of the handle, the same memory on each retry. NCCL has no way to give up a
 * connect: closeConnect frees what is ours, and what the plugin made of it is lost.
 *
 * Nor may its comms be closed with requests in flight: they are tested for at most 100 ms, and when
 * some are left the plugin's comm is left open on purpose, with one warning. The memory that those
 * requests name may then still be written, so the close says xcclInProgress, and the instance
 * stays, the plugin's and ours. Registrations are given back before, as NCCL does when it aborts.
 *
 * Thread: one at a time a listener, a connect and a comm; registrations also from a second. */
#include "plugin/nccl_adapter_int.h"

#include <string.h>

#include "base/alloc.h"

#define DRAIN_MS 100

struct listener {
    struct nccl_instance *instance;
    void *inner;
    struct nccl_device device;
    struct nccl_comm *spare; /* made before the plugin's comm, so that success cannot fail */
    xcclResult_t rc; /* once set, it stays, with text */
    char text[XCCL_ERROR_TEXT_BYTES];
};

struct connecting {
    _Alignas(64) char handle[NCCL_NET_HANDLE_BYTES];
    int dev; /* the plugin's number */
    struct nccl_comm *comm; /* made first, so that success cannot fail */
};

/* What a NULL registration is for our callers: an address that is never followed. */
static char no_mem;

void *nccl_mem_inner(xcclNetMem_t mem)
{
    return mem == &no_mem ? NULL : mem;
}

/* ---- comms ---- */

static struct nccl_comm *comm_create(struct nccl_instance *instance,
                                     const struct nccl_device *device, int is_send)
{
    int count = instance->ops->requests * (is_send ? device->props.maxRecvs : 1);
    int all = is_send ? count : 2 * count; /* flushes have places of their own */
    struct nccl_comm *comm;

    comm = xccl_calloc_aligned(64, sizeof(*comm) + (size_t)all * sizeof(comm->requests[0]));
    if (!comm)
        return NULL;
    comm->instance = instance;
    comm->is_send = is_send;
    comm->max_recvs = device->props.maxRecvs;
    comm->max_bytes = device->props.maxBytes;
    comm->ptr_support = device->props.ptrSupport;
    comm->request_count = count;
    comm->messages = comm->flushes = (struct nccl_in_flight){NCCL_REQUESTS_MAX, NCCL_REQUESTS_MAX};
    for (int i = 0; i < all; i++)
        comm->requests[i].comm = comm;
    return comm;
}

static void comm_begin(struct nccl_comm *comm, void *inner)
{
    struct nccl_instance *instance = comm->instance;

    comm->inner = inner;
    pthread_mutex_lock(&instance->lock);
    comm->next = instance->comms;
    comm->link = &instance->comms;
    if (comm->next)
        comm->next->link = &comm->next;
    instance->comms = comm;
    pthread_mutex_unlock(&instance->lock);
}

xcclResult_t nccl_close_comm(void *comm_)
{
    struct nccl_comm *comm = comm_;
    struct nccl_instance *instance = comm->instance;
    const char *entry = comm->is_send ? "closeSend" : "closeRecv";
    xcclResult_t rc = xcclSuccess;
    int left, result;

    pthread_mutex_lock(&instance->lock);
    *comm->link = comm->next;
    if (comm->next)
        comm->next->link = comm->link;
    pthread_mutex_unlock(&instance->lock);
    nccl_enter(instance->log);
    left = nccl_comm_drain(comm, DRAIN_MS);
    if (left > 0) {
        atomic_store_explicit(&instance->left_open, 1, memory_order_relaxed);
        rc = xcclInProgress;
        nccl_line(instance, xcclNetLogWarn,
                  "%s %s: %d request%s in flight after %d ms; NCCL's contract cannot end them, so "
                  "the plugin's comm stays open until the process ends",
                  instance->name, entry, left, left == 1 ? " is" : "s are", DRAIN_MS);
    } else {
        result = comm->is_send ? instance->common.close_send(comm->inner)
                               : instance->common.close_recv(comm->inner);
        /* A comm that had failed may fail in its close as well; nobody can do anything about it. */
        if (result && comm->rc == xcclSuccess)
            rc = nccl_failed(instance, entry, result);
    }
    nccl_leave();
    xccl_free(comm);
    return rc;
}

xcclResult_t nccl_error_detail(void *comm_, xcclNetError_v1 *error)
{
    const struct nccl_comm *comm = comm_;
    xcclNetError_v1 all = {.size = error->size, .cause = xcclNetCauseNone, .text = comm->text};
    size_t bytes = error->size < sizeof(all) ? error->size : sizeof(all);

    if (comm->rc == xcclRemoteError)
        all.cause = xcclNetCausePeerGone;
    else if (comm->rc != xcclSuccess)
        all.cause = xcclNetCauseUnknown;
    memcpy(error, &all, bytes);
    return xcclSuccess;
}

/* ---- receiver ---- */

xcclResult_t nccl_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle_out,
                         xcclNetListenComm_t *listen_out)
{
    struct nccl_instance *instance = ctx;
    _Alignas(64) char handle[NCCL_NET_HANDLE_BYTES] = {0};
    struct nccl_device device;
    struct listener *listener;
    xcclResult_t rc = xcclSuccess;
    int result;

    if (!nccl_device_get(instance, "listen", dev, &device))
        return xcclInvalidArgument;
    listener = xccl_calloc(1, sizeof(*listener));
    if (!listener)
        return nccl_refuse(instance, "listen", xcclSystemError, "no memory");
    listener->instance = instance;
    listener->device = device;
    nccl_enter(instance->log);
    result = instance->ops->listen(instance, device.inner, handle, &listener->inner);
    if (result)
        rc = nccl_failed(instance, "listen", result);
    else if (!listener->inner)
        rc = nccl_refuse(instance, "listen", xcclInternalError,
                         "the plugin returned success, but no comm");
    nccl_leave();
    if (rc != xcclSuccess) {
        xccl_free(listener);
        return rc;
    }
    memcpy(handle_out->bytes, handle, sizeof(handle_out->bytes));
    *listen_out = listener;
    return xcclSuccess;
}

xcclResult_t nccl_accept(xcclNetListenComm_t listen_, xcclNetRecvComm_t *comm_out)
{
    struct listener *listener = listen_;
    struct nccl_instance *instance = listener->instance;
    void *inner = NULL;
    int result;

    if (listener->rc != xcclSuccess) {
        memcpy(nccl_here.text, listener->text, sizeof(nccl_here.text));
        return listener->rc;
    }
    if (!listener->spare)
        listener->spare = comm_create(instance, &listener->device, 0);
    if (!listener->spare)
        return nccl_refuse(instance, "accept", xcclSystemError, "no memory");
    nccl_enter(instance->log);
    result = instance->ops->accept(instance, listener->inner, &inner);
    if (result)
        listener->rc = nccl_failed(instance, "accept", result);
    nccl_leave();
    if (result) {
        memcpy(listener->text, nccl_here.text, sizeof(listener->text));
        return listener->rc;
    }
    if (inner) {
        comm_begin(listener->spare, inner);
        *comm_out = listener->spare;
        listener->spare = NULL;
    } else {
        *comm_out = NULL;
    }
    return xcclSuccess;
}

xcclResult_t nccl_close_listen(xcclNetListenComm_t listen_)
{
    struct listener *listener = listen_;
    struct nccl_instance *instance = listener->instance;
    xcclResult_t rc = xcclSuccess;
    int result;

    nccl_enter(instance->log);
    result = instance->common.close_listen(listener->inner);
    if (result)
        rc = nccl_failed(instance, "closeListen", result);
    nccl_leave();
    xccl_free(listener->spare);
    xccl_free(listener);
    return rc;
}

/* ---- sender ---- */

/* NULL: *rc_out and the error text say why. */
static struct connecting *connect_begin(struct nccl_instance *instance, int dev,
                                        const xcclNetHandle_t *handle, xcclResult_t *rc_out)
{
    struct nccl_device device;
    struct connecting *state;

    *rc_out = xcclInvalidArgument;
    if (!nccl_device_get(instance, "connect", dev, &device))
        return NULL;
    state = xccl_calloc_aligned(64, sizeof(*state));
    if (!state)
        goto err_memory;
    state->comm = comm_create(instance, &device, 1);
    if (!state->comm)
        goto err_state;
    state->dev = device.inner;
    memcpy(state->handle, handle->bytes, sizeof(state->handle));
    return state;
err_state:
    xccl_free(state);
err_memory:
    *rc_out = nccl_refuse(instance, "connect", xcclSystemError, "no memory");
    return NULL;
}

xcclResult_t nccl_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                          xcclNetConnect_t *state_, xcclNetSendComm_t *comm_out)
{
    struct nccl_instance *instance = ctx;
    struct connecting *state = *state_;
    xcclResult_t rc = xcclSuccess;
    void *inner = NULL;
    int result;

    if (!state) {
        state = connect_begin(instance, dev, handle, &rc);
        if (!state)
            return rc;
        rc = xcclSuccess;
        *state_ = state;
    }
    nccl_enter(instance->log);
    result = instance->ops->connect(instance, state->dev, state->handle, &inner);
    if (result)
        rc = nccl_failed(instance, "connect", result);
    nccl_leave();
    if (!result && !inner) {
        *comm_out = NULL;
        return xcclSuccess;
    }
    *state_ = NULL;
    if (result) {
        xccl_free(state->comm);
    } else {
        comm_begin(state->comm, inner);
        *comm_out = state->comm;
    }
    xccl_free(state);
    return rc;
}

xcclResult_t nccl_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state_)
{
    struct nccl_instance *instance = ctx;
    struct connecting *state = state_;

    if (!state)
        return xcclSuccess;
    nccl_line(instance, xcclNetLogDebug,
              "%s: a connect was given up; NCCL's contract has no way to tell the plugin, so what "
              "it made for it is lost",
              instance->name);
    xccl_free(state->comm);
    xccl_free(state);
    return xcclSuccess;
}

/* ---- memory ---- */

xcclResult_t nccl_reg_mr(void *comm_, void *data, size_t bytes, uint32_t type,
                         xcclNetMem_t *mem_out)
{
    struct nccl_comm *comm = comm_;
    struct nccl_instance *instance = comm->instance;
    xcclResult_t rc = xcclSuccess;
    void *inner = NULL;
    int result;

    if (bytes > instance->ops->reg_bytes_max)
        return nccl_refuse(instance, "regMr", xcclInvalidArgument,
                           "cannot register %zu bytes: NCCL's contract v%d allows at most %zu; "
                           "register smaller parts",
                           bytes, instance->ops->version, instance->ops->reg_bytes_max);
    if (!(type & comm->ptr_support))
        return nccl_refuse(
            instance, "regMr", xcclInvalidArgument,
            "the memory has type %#x, but the device accepts %#x; copy to host memory first", type,
            comm->ptr_support);
    nccl_enter(instance->log);
    result = instance->ops->reg_mr(instance, comm->inner, data, bytes, (int)type, &inner);
    if (result)
        rc = nccl_failed(instance, "regMr", result);
    nccl_leave();
    if (rc == xcclSuccess)
        *mem_out = inner ? inner : &no_mem;
    return rc;
}

xcclResult_t nccl_reg_mr_dmabuf(void *comm_, void *data, size_t bytes, uint32_t type,
                                uint64_t offset, int fd, xcclNetMem_t *mem_out)
{
    struct nccl_comm *comm = comm_;
    struct nccl_instance *instance = comm->instance;
    xcclResult_t rc = xcclSuccess;
    void *inner = NULL;
    int result;

    if (!instance->common.reg_mr_dmabuf)
        return nccl_refuse(instance, "regMrDmaBuf", xcclInvalidUsage,
                           "this plugin cannot register a DMA-BUF");
    nccl_enter(instance->log);
    result = instance->common.reg_mr_dmabuf(comm->inner, data, bytes, (int)type, offset, fd,
                                            &inner);
    if (result)
        rc = nccl_failed(instance, "regMrDmaBuf", result);
    nccl_leave();
    if (rc == xcclSuccess)
        *mem_out = inner ? inner : &no_mem;
    return rc;
}

xcclResult_t nccl_dereg_mr(void *comm_, xcclNetMem_t mem)
{
    struct nccl_comm *comm = comm_;
    struct nccl_instance *instance = comm->instance;
    xcclResult_t rc = xcclSuccess;
    int result;

    nccl_enter(instance->log);
    result = instance->common.dereg_mr(comm->inner, nccl_mem_inner(mem));
    if (result)
        rc = nccl_failed(instance, "deregMr", result);
    nccl_leave();
    return rc;
}
