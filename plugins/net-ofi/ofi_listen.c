/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver's side of coming up: a TCP port, and those who come there. Nothing here waits:
 * accept is asked again and again.
 *
 * Strangers: a wrong hello closes at once, a silent connection after 5 s, and when too many have
 * not proved themselves the oldest makes room. None of them costs an endpoint, reaches the caller
 * or delays the right sender. Thread: one at a time a listener. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/os.h"
#include "base/tcp.h"
#include "ofi_int.h"

xcclResult_t ofi_listen(xcclNetContext_t ctx_, int dev, xcclNetHandle_t *handle_out,
                        xcclNetListenComm_t *listen_out)
{
    struct ofi_ctx *ctx = ctx_;
    struct ofi_device *device = ofi_device_get(ctx, dev);
    struct ofi_listen *listener;
    struct ofi_handle handle;
    xcclResult_t rc;

    if (!device)
        return xcclInvalidArgument;
    device = ofi_device_open(ctx, dev);
    if (!device)
        return xcclSystemError;
    ofi_comm_sweep(ctx, 0);
    listener = xccl_calloc(1, sizeof(*listener));
    if (!listener)
        return xcclSystemError;
    listener->ctx = ctx;
    listener->device = device;
    listener->fd = -1;
    listener->step.log = ctx->log;
    listener->step.device = device->name;
    rc = xccl_doorstep_init(&listener->step, OFI_HELLO_BYTES);
    if (rc == xcclSuccess)
        rc = xccl_os_random(handle.token, sizeof(handle.token));
    memcpy(listener->token, handle.token, sizeof(handle.token));
    if (rc == xcclSuccess)
        rc = xccl_tcp_listen(&device->control, &listener->fd, &handle.addr);
    if (rc != xcclSuccess) {
        ofi_close_listen(listener);
        return rc;
    }
    ofi_handle_encode(&handle, handle_out);
    *listen_out = listener;
    return xcclSuccess;
}

xcclResult_t ofi_close_listen(xcclNetListenComm_t listen_)
{
    struct ofi_listen *listener = listen_;

    xccl_doorstep_fini(&listener->step);
    xccl_tcp_close(&listener->fd);
    ofi_comm_destroy(listener->comm);
    xccl_free(listener);
    return xcclSuccess;
}

/* The endpoint's address of a sender whose hello is complete and right, else NULL. */
static const uint8_t *prove(struct ofi_listen *listener, struct xccl_stranger *stranger,
                            uint64_t now_ns, uint64_t *piece_bytes_out)
{
    const uint8_t *name;

    if (!xccl_doorstep_read(&listener->step, stranger, OFI_HELLO_BYTES, now_ns))
        return NULL;
    name = ofi_hello_decode(stranger->hello, listener->token, piece_bytes_out);
    if (!name)
        xccl_doorstep_drop(&listener->step, stranger, "a wrong hello");
    return name;
}

/* The right one has come: its comm. */
static xcclResult_t welcome(struct ofi_listen *listener, struct xccl_stranger *stranger,
                            const uint8_t *name, uint64_t piece_bytes)
{
    struct ofi_comm *comm = ofi_comm_create(listener->ctx, listener->device, 0, stranger->fd,
                                            &stranger->peer);
    xcclResult_t rc;

    stranger->fd = -1;
    if (!comm)
        return xcclSystemError;
    rc = ofi_endpoint_aim(comm, name);
    if (rc != xcclSuccess) {
        ofi_comm_destroy(comm);
        return rc;
    }
    ofi_write_agree(comm, piece_bytes);
    listener->comm = comm;
    listener->posted = 0;
    listener->sent = 0;
    ofi_reply_encode(&comm->end, comm->writes ? piece_bytes : 0, listener->reply);
    return xcclSuccess;
}

static xcclResult_t look(struct ofi_listen *listener)
{
    uint64_t now_ns = xccl_clock_ns();
    xcclResult_t rc = xccl_doorstep_fill(&listener->step, listener->fd, now_ns);

    for (int i = 0; i < XCCL_DOORSTEP_PLACES && rc == xcclSuccess && !listener->comm; i++) {
        struct xccl_stranger *stranger = &listener->step.places[i];
        uint64_t piece_bytes = 0;
        const uint8_t *name = stranger->fd < 0 ? NULL
                                               : prove(listener, stranger, now_ns, &piece_bytes);

        if (name)
            rc = welcome(listener, stranger, name, piece_bytes);
    }
    return rc;
}

/* A receive for message 0, the reply out, message 0 in. A sender that gives up leaves the door open
 * for another try. */
static xcclResult_t move(struct ofi_listen *listener, int *done_out)
{
    struct ofi_comm *comm = listener->comm;
    size_t moved = 0;
    xcclResult_t rc = xcclSuccess;

    if (!listener->posted)
        rc = ofi_request_first(comm, &listener->posted);
    if (rc == xcclSuccess && listener->posted && listener->sent < OFI_REPLY_BYTES)
        rc = xccl_tcp_send_some(comm->fd, listener->reply + listener->sent,
                                OFI_REPLY_BYTES - listener->sent, &moved);
    listener->sent += (uint32_t)moved;
    if (rc == xcclSuccess) {
        ofi_request_poll(comm);
        rc = comm->rc;
    }
    *done_out = rc == xcclSuccess && listener->sent == OFI_REPLY_BYTES && comm->moved == 1;
    return rc;
}

xcclResult_t ofi_accept(xcclNetListenComm_t listen_, xcclNetRecvComm_t *comm_out)
{
    struct ofi_listen *listener = listen_;
    xcclResult_t rc = xcclSuccess;
    int done = 0;

    if (!listener->comm)
        rc = look(listener);
    if (rc != xcclSuccess)
        return rc;
    if (listener->comm && move(listener, &done) != xcclSuccess) {
        ofi_comm_destroy(listener->comm);
        listener->comm = NULL;
    }
    if (!done) {
        *comm_out = NULL;
        return xcclSuccess;
    }
    ofi_comm_up(listener->comm);
    *comm_out = listener->comm;
    listener->comm = NULL;
    return xcclSuccess;
}
