/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver's side of coming up: a port, and those who come there. Nothing here waits: accept is
 * asked again and again.
 *
 * Strangers: a wrong hello closes at once, a silent connection after 5 s, and of 32 unproven
 * connections the oldest makes room for a new one. The token is compared in constant time, and
 * before it is right nothing of a hello reaches UCX. A sender that proves itself and then goes
 * leaves the place free again.
 *
 * Thread: one at a time a listener. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/os.h"
#include "base/tcp.h"
#include "ucx_int.h"

#define ACCEPTS_MAX 64 /* new connections looked at in one call */

xcclResult_t ucx_listen(xcclNetContext_t ctx_, int dev, xcclNetHandle_t *handle_out,
                        xcclNetListenComm_t *listen_out)
{
    struct ucx_ctx *ctx = ctx_;
    struct ucx_device *device = ucx_device_get(ctx, dev);
    struct ucx_handle handle = {.host = ctx->host};
    struct ucx_listen *listener;
    xcclResult_t rc;

    if (!device)
        return xcclInvalidArgument;
    listener = xccl_calloc(1, sizeof(*listener));
    if (!listener)
        return xcclSystemError;
    listener->ctx = ctx;
    listener->device = device;
    listener->fd = -1;
    for (int i = 0; i < UCX_PENDING_MAX; i++)
        listener->pending[i].fd = -1;
    rc = xccl_os_random(listener->token, sizeof(listener->token));
    if (rc == xcclSuccess)
        rc = xccl_tcp_listen(&device->netif.addr, &listener->fd, &handle.addr);
    if (rc != xcclSuccess) {
        ucx_close_listen(listener);
        return rc;
    }
    handle.modes = ucx_device_modes(ctx, device);
    memcpy(handle.token, listener->token, sizeof(handle.token));
    ucx_handle_encode(&handle, handle_out);
    *listen_out = listener;
    return xcclSuccess;
}

xcclResult_t ucx_close_listen(xcclNetListenComm_t listen_)
{
    struct ucx_listen *listener = listen_;

    for (int i = 0; i < UCX_PENDING_MAX; i++)
        xccl_tcp_close(&listener->pending[i].fd);
    xccl_tcp_close(&listener->fd);
    if (listener->comm)
        ucx_close_comm(listener->comm);
    xccl_free(listener);
    return xcclSuccess;
}

static void pending_drop(struct ucx_listen *listener, struct ucx_pending *pending, const char *why)
{
    char peer[XCCL_ADDR_TEXT_BYTES], line[400];

    if (listener->ctx->log) {
        xccl_addr_format(&pending->peer, peer);
        snprintf(line, sizeof(line), "dropped a connection of %s on %.31s: %.250s", peer,
                 listener->device->name, why);
        listener->ctx->log(xcclNetLogDebug, line);
    }
    xccl_tcp_close(&pending->fd);
}

/* A free place, or the oldest one's. */
static struct ucx_pending *pending_place(struct ucx_listen *listener)
{
    struct ucx_pending *oldest = &listener->pending[0];

    for (int i = 0; i < UCX_PENDING_MAX; i++) {
        struct ucx_pending *pending = &listener->pending[i];

        if (pending->fd < 0)
            return pending;
        if (pending->since_ns < oldest->since_ns)
            oldest = pending;
    }
    pending_drop(listener, oldest, "too many at once have not said who they are");
    return oldest;
}

static xcclResult_t pending_fill(struct ucx_listen *listener, uint64_t now_ns)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        struct ucx_pending *pending;
        struct xccl_addr peer;
        int fd = -1;
        xcclResult_t rc = xccl_tcp_accept(listener->fd, &fd, &peer);

        if (rc != xcclSuccess || fd < 0)
            return rc;
        pending = pending_place(listener);
        pending->fd = fd;
        pending->since_ns = now_ns;
        pending->peer = peer;
        pending->have = 0;
    }
    return xcclSuccess;
}

/* NULL: not all has come; else what to say of it, "" when it is right. */
static const char *hello_read(struct ucx_listen *listener, struct ucx_pending *pending,
                              struct ucx_hello *hello)
{
    for (int i = 0; i < 2; i++) {
        size_t want = UCX_HEAD_BYTES, moved = 0;

        if (pending->have >= UCX_HEAD_BYTES) {
            if (!ucx_hello_decode(pending->bytes, listener->token, hello))
                return "a wrong hello";
            want += hello->address_bytes;
        }
        if (xccl_tcp_recv_some(pending->fd, pending->bytes + pending->have, want - pending->have,
                               &moved) != xcclSuccess)
            return "it has gone";
        pending->have += moved;
        if (pending->have < want)
            return NULL;
    }
    if (!(ucx_device_modes(listener->ctx, listener->device) & 1u << hello->mode))
        return "it asks for transports that are not here";
    return ucx_hello_intact(hello, pending->bytes + UCX_HEAD_BYTES) ? ""
                                                                    : "a damaged worker address";
}

/* The one with the token has come. One that UCX cannot reach is gone, or finds out by the end of
 * its side socket: as with strangers, the caller has the deadline. */
static xcclResult_t comm_begin(struct ucx_listen *listener, struct ucx_pending *pending,
                               const struct ucx_hello *hello)
{
    struct ucx_comm *comm = NULL;
    xcclResult_t rc = ucx_comm_create(listener->ctx, listener->device, hello->mode, listener->token,
                                      0, &comm);

    if (rc != xcclSuccess)
        return rc;
    xccl_addr_format(&pending->peer, comm->peer_text);
    rc = ucx_comm_hello(comm, listener->out, &listener->out_bytes);
    if (rc == xcclSuccess && ucx_comm_join(comm, pending->bytes + UCX_HEAD_BYTES) != xcclSuccess) {
        pending_drop(listener, pending, xccl_error_text());
        ucx_close_comm(comm);
        return xcclSuccess;
    }
    if (rc != xcclSuccess) {
        ucx_close_comm(comm);
        return rc;
    }
    ucx_comm_side(comm, pending->fd, &pending->peer);
    pending->fd = -1;
    listener->out_sent = listener->ready_have = 0;
    listener->comm = comm;
    return xcclSuccess;
}

static xcclResult_t pending_prove(struct ucx_listen *listener, uint64_t now_ns)
{
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < UCX_PENDING_MAX && !listener->comm && rc == xcclSuccess; i++) {
        struct ucx_pending *pending = &listener->pending[i];
        struct ucx_hello hello;
        const char *why;

        if (pending->fd < 0)
            continue;
        why = hello_read(listener, pending, &hello);
        if (why && !why[0])
            rc = comm_begin(listener, pending, &hello);
        else if (why)
            pending_drop(listener, pending, why);
        else if (now_ns - pending->since_ns > UCX_SILENT_NS)
            pending_drop(listener, pending, "no complete hello in 5 s");
    }
    return rc;
}

/* Answer, turn the worker, wait for the word. *done_out 1: it has come. */
static xcclResult_t comm_move(struct ucx_listen *listener, int *done_out)
{
    struct ucx_comm *comm = listener->comm;
    size_t sent = 0, have = 0;
    xcclResult_t rc = xcclSuccess;

    if (listener->out_sent < listener->out_bytes)
        rc = xccl_tcp_send_some(comm->side_fd, listener->out + listener->out_sent,
                                listener->out_bytes - listener->out_sent, &sent);
    listener->out_sent += sent;
    (void)ucx_comm_poll(comm);
    if (rc == xcclSuccess)
        rc = xccl_tcp_recv_some(comm->side_fd, listener->ready + listener->ready_have,
                                UCX_READY_BYTES - listener->ready_have, &have);
    listener->ready_have += have;
    *done_out = rc == xcclSuccess && listener->ready_have == UCX_READY_BYTES;
    return rc;
}

xcclResult_t ucx_accept(xcclNetListenComm_t listen_, xcclNetRecvComm_t *comm_out)
{
    struct ucx_listen *listener = listen_;
    uint64_t now_ns = xccl_clock_ns();
    int done = 0;
    xcclResult_t rc;

    ucx_library_enter(listener->ctx->log);
    rc = pending_fill(listener, now_ns);
    if (rc == xcclSuccess)
        rc = pending_prove(listener, now_ns);
    /* Who proves himself and goes is no error: the caller has the deadline. */
    if (rc == xcclSuccess && listener->comm && comm_move(listener, &done) != xcclSuccess) {
        ucx_close_comm(listener->comm);
        listener->comm = NULL;
        ucx_library_enter(listener->ctx->log);
    }
    ucx_library_leave();
    if (rc != xcclSuccess)
        return rc;
    if (done)
        ucx_comm_up(listener->comm);
    *comm_out = done ? listener->comm : NULL;
    if (done)
        listener->comm = NULL;
    return xcclSuccess;
}
