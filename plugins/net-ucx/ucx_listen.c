/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver's side of coming up: a port, and those who come there. Nothing here waits: accept is
 * asked again and again. Before a sender has proved itself (kit_guest.h) nothing of its hello
 * reaches UCX. One that proves itself and then goes leaves the place free again.
 *
 * Thread: one at a time a listener. */
#include <string.h>

#include "base/alloc.h"
#include "base/tcp.h"
#include "base/wire.h"
#include "ucx_int.h"

xcclResult_t ucx_listen(xcclNetContext_t ctx_, int dev, xcclNetHandle_t *handle_out,
                        xcclNetListenComm_t *listen_out)
{
    struct ucx_ctx *ctx = ctx_;
    struct ucx_device *device = ucx_device_get(ctx, dev);
    struct ucx_handle handle = {.host = ctx->host, .instance = ctx->instance};
    struct ucx_listen *listener;
    xcclResult_t rc;

    if (!device)
        return xcclInvalidArgument;
    listener = xccl_calloc(1, sizeof(*listener));
    if (!listener)
        return xcclSystemError;
    listener->ctx = ctx;
    listener->device = device;
    rc = kit_listener_open(&listener->door, &ucx_dialect, ctx->log, device->name);
    if (rc == xcclSuccess)
        rc = kit_listener_port(&listener->door, 0, &device->netif.addr);
    if (rc != xcclSuccess) {
        ucx_close_listen(listener);
        return rc;
    }
    handle.modes = ucx_device_modes(ctx, device);
    handle.where = listener->door.handle;
    ucx_handle_encode(&handle, handle_out);
    *listen_out = listener;
    return xcclSuccess;
}

xcclResult_t ucx_close_listen(xcclNetListenComm_t listen_)
{
    struct ucx_listen *listener = listen_;

    kit_listener_close(&listener->door);
    if (listener->comm)
        ucx_close_comm(listener->comm);
    xccl_free(listener);
    return xcclSuccess;
}

static const struct kit_proof *proof_of(struct ucx_listen *listener,
                                        const struct kit_stranger *stranger)
{
    return kit_guest_proof(&listener->door.guests, &listener->door.step, stranger);
}

/* Checks the hello of a sender that has proved itself. 0: it was wrong, and the sender is
 * dropped. */
static int hello_check(struct ucx_listen *listener, struct kit_stranger *stranger,
                       const struct ucx_hello *hello)
{
    const struct kit_proof *proof = proof_of(listener, stranger);
    const char *why = NULL;

    if (!(ucx_device_modes(listener->ctx, listener->device) & 1u << hello->mode))
        why = "it asks for transports that this device does not have";
    else if (proof->said.hello_bytes != UCX_HEAD_BYTES + hello->address_bytes)
        why = "its hello is not as long as its head says";
    if (why)
        kit_doorstep_drop(&listener->door.step, stranger, why);
    return !why;
}

/* Makes and seals our hello, and an endpoint for the address in the sender's. *can_out 0: UCX
 * cannot reach it. */
static xcclResult_t comm_join(struct ucx_listen *listener, struct ucx_comm *comm,
                              const struct ucx_hello *hello, const uint8_t *address, int *can_out)
{
    xcclResult_t rc;

    ucx_link_claim_wait(comm->link);
    rc = ucx_link_hello(comm, listener->out, &listener->out_bytes);
    if (rc == xcclSuccess)
        listener->out_bytes = ucx_answer_seal(&comm->side.proof, listener->out,
                                              listener->out_bytes);
    *can_out = rc == xcclSuccess && ucx_link_join(comm, hello, address) == xcclSuccess;
    ucx_link_give(comm->link);
    return rc;
}

/* Makes a comm for a sender that has proved itself. A sender that UCX cannot reach is dropped, and
 * learns of it by the end of its side socket; as with strangers, the caller has the deadline. */
static xcclResult_t comm_begin(struct ucx_listen *listener, struct kit_stranger *stranger,
                               const struct ucx_hello *hello)
{
    struct ucx_comm *comm = NULL;
    int can = 0;
    xcclResult_t rc = ucx_comm_create(listener->ctx, listener->device, hello->mode, 0, &comm);

    if (rc != xcclSuccess)
        return rc;
    xccl_addr_format(&stranger->peer, comm->peer_text);
    ucx_comm_prove(comm, proof_of(listener, stranger));
    rc = ucx_link_take(comm, hello->instance, hello);
    if (rc == xcclSuccess)
        rc = comm_join(listener, comm, hello, stranger->hello + UCX_HEAD_BYTES, &can);
    if (!can) {
        if (rc == xcclSuccess)
            kit_doorstep_drop(&listener->door.step, stranger, xccl_error_text());
        ucx_close_comm(comm);
        return rc;
    }
    ucx_comm_side(comm, stranger->fd, &stranger->peer);
    stranger->fd = -1;
    listener->out_sent = listener->ready_have = 0;
    listener->comm = comm;
    return xcclSuccess;
}

static xcclResult_t prove(struct ucx_listen *listener, uint64_t now_ns)
{
    xcclResult_t rc = kit_listener_fill(&listener->door, now_ns);
    struct kit_stranger *stranger;
    struct ucx_hello hello;
    int at = 0;

    while (rc == xcclSuccess && !listener->comm &&
           (stranger = kit_listener_next(&listener->door, &at, now_ns, &hello))) {
        if (hello_check(listener, stranger, &hello))
            rc = comm_begin(listener, stranger, &hello);
    }
    return rc;
}

/* Answer, turn the worker, wait for the word; with the claim. *done_out 1: it has come. */
static xcclResult_t comm_turn(struct ucx_listen *listener, int *done_out)
{
    struct ucx_comm *comm = listener->comm;
    xcclResult_t rc = kit_say(comm->side.fd, listener->out, listener->out_bytes,
                              &listener->out_sent);

    (void)ucx_comm_poll(comm);
    if (rc == xcclSuccess)
        rc = kit_hear(comm->side.fd, listener->ready, sizeof(listener->ready),
                      &listener->ready_have);
    if (rc == xcclSuccess && comm->rc != xcclSuccess)
        rc = ucx_comm_error(comm);
    if (rc == xcclSuccess && listener->ready_have == sizeof(listener->ready)) {
        struct xccl_wire wire = xccl_wire_over(listener->ready, UCX_READY_BYTES);

        *done_out = kit_proof_open(&comm->side.proof, listener->ready, UCX_READY_BYTES) &&
                    xccl_wire_get_u32(&wire) == UCX_HELLO_MAGIC;
        rc = *done_out ? xcclSuccess : xcclRemoteError; /* it has given up */
    }
    return rc;
}

static xcclResult_t comm_move(struct ucx_listen *listener, int *done_out)
{
    xcclResult_t rc;

    ucx_link_claim_wait(listener->comm->link);
    rc = comm_turn(listener, done_out);
    ucx_link_give(listener->comm->link);
    return rc;
}

xcclResult_t ucx_accept(xcclNetListenComm_t listen_, xcclNetRecvComm_t *comm_out)
{
    struct ucx_listen *listener = listen_;
    int done = 0;
    xcclResult_t rc;

    ucx_library_enter(listener->ctx->log);
    rc = prove(listener, xccl_clock_ns());
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
