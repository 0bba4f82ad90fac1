/* SPDX-License-Identifier: BSD-3-Clause */
/* How a connection comes up; this is the sender's side. Nothing here waits: connect is asked again
 * and again.
 *
 *   receiver                                   sender
 *   listen: a TCP port, a random token
 *      handle {address, token} ------------>   (travels over XCCL's encrypted connections)
 *                             <-------------   control connection: hello {token, endpoints, path}
 *   accept: the hello is right: endpoints,
 *      a receive for message 0 on each
 *      reply {pairs of them, path} -------->   the address vectors take theirs
 *                             <-------------   where rails may fail: a control connection for each
 *                             <=============   message 0, on each
 *   it has come: the comm is up                it is on its way: the comm is up
 *
 * Message 0 makes the provider connect, and proves the way, before the first isend.
 * Thread: one at a time a connect. */
#include "base/alloc.h"
#include "base/tcp.h"
#include "ofi_int.h"

static void say_hello(struct ofi_connect *state)
{
    const struct ofi_comm *comm = state->comm;
    struct ofi_hello hello = {.piece_bytes = comm->device->piece_bytes,
                              .count = comm->rail_count,
                              .tells = ofi_comm_tells(comm)};

    for (uint32_t i = 0; i < comm->rail_count; i++)
        memcpy(hello.names[i], comm->rails[i].end.name, OFI_ADDRESS_BYTES);
    ofi_hello_encode(state->handle.token, &hello, state->hello);
}

static xcclResult_t begin(struct ofi_ctx *ctx, int dev, const xcclNetHandle_t *bytes,
                          struct ofi_connect **state_out)
{
    struct ofi_device *device;
    struct ofi_connect *state;
    struct ofi_handle handle;
    int fd = -1;
    xcclResult_t rc = ofi_device_get(ctx, dev) ? ofi_handle_decode(bytes, &handle)
                                               : xcclInvalidArgument;

    if (rc != xcclSuccess)
        return rc;
    device = ofi_device_open(ctx, dev);
    if (!device)
        return xcclSystemError;
    ofi_comm_sweep(ctx, 0);
    xccl_addr_take_zone(&handle.addr, &device->control);
    state = xccl_calloc(1, sizeof(*state));
    if (!state)
        return xcclSystemError;
    rc = xccl_tcp_connect_start(&handle.addr, &fd);
    if (rc == xcclSuccess) {
        state->comm = ofi_comm_create(ctx, device, 1, fd, &handle.addr);
        rc = state->comm ? xcclSuccess : xcclSystemError;
    }
    if (rc != xcclSuccess) {
        xccl_free(state);
        return rc;
    }
    state->handle = handle;
    say_hello(state);
    *state_out = state;
    return xcclSuccess;
}

/* Starts a control connection for each rail that is to have its own. */
static xcclResult_t open_sides(struct ofi_connect *state, const struct ofi_reply *reply)
{
    struct ofi_comm *comm = state->comm;
    xcclResult_t rc = xcclSuccess;

    state->visit = reply->visit;
    for (uint32_t i = 0; i < comm->rail_count && rc == xcclSuccess; i++) {
        struct xccl_addr *way = &state->ways[comm->link_count];
        int fd = -1;

        if (reply->ways[i] == OFI_WAY_FIRST)
            comm->links[0].rail = i;
        if (reply->ways[i] != OFI_WAY_OWN)
            continue;
        rc = xccl_addr_decode(reply->addrs[i], way);
        if (rc != xcclSuccess)
            return rc;
        xccl_addr_take_zone(way, &comm->rails[i].device->control);
        rc = xccl_tcp_connect_start(way, &fd);
        if (rc == xcclSuccess)
            ofi_control_add(comm, fd, i);
    }
    return rc;
}

/* One after the other says hello. */
static xcclResult_t introduce_sides(struct ofi_connect *state)
{
    struct ofi_comm *comm = state->comm;
    xcclResult_t rc = xcclSuccess;

    while (state->side < comm->link_count && rc == xcclSuccess) {
        struct ofi_link *link = &comm->links[state->side];
        struct ofi_hello hello = {.piece_bytes = state->visit, .tells = link->rail};
        size_t moved = 0;

        if (!state->connected)
            rc = xccl_tcp_connect_test(link->fd, &state->ways[state->side], &state->connected);
        if (rc != xcclSuccess || !state->connected)
            return rc;
        ofi_hello_encode(state->handle.token, &hello, state->hello);
        rc = xccl_tcp_send_some(link->fd, state->hello + state->sent, OFI_HELLO_BYTES - state->sent,
                                &moved);
        state->sent += (uint32_t)moved;
        if (rc != xcclSuccess || state->sent < OFI_HELLO_BYTES)
            return rc;
        state->side++;
        state->sent = 0;
        state->connected = 0;
    }
    return rc;
}

/* The reply is here. */
static xcclResult_t agree(struct ofi_connect *state)
{
    struct ofi_comm *comm = state->comm;
    struct ofi_reply reply;
    xcclResult_t rc;

    if (!ofi_reply_decode(state->reply, comm->rail_count, &reply))
        return xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                                 "%s answers what is not of the ofi plugin", comm->peer_text);
    state->introduced = 1;
    state->side = 1;
    state->sent = 0;
    state->connected = 0;
    rc = ofi_comm_pair(comm, reply.count, reply.ends, reply.names);
    if (rc == xcclSuccess)
        rc = ofi_comm_equip(comm, reply.piece_bytes, reply.tells);
    if (rc == xcclSuccess && !comm->writes && comm->bytes_max < ofi_device_bytes(comm->device))
        return xccl_fail_quietly(xcclRemoteError, 0, "set XCCL_OFI_PATH alike on all ranks",
                                 "%s does not take writes as this end's %s sends them",
                                 comm->peer_text, comm->device->name);
    return rc == xcclSuccess ? open_sides(state, &reply) : rc;
}

/* The hello out, the reply in. */
static xcclResult_t introduce(struct ofi_connect *state)
{
    struct ofi_comm *comm = state->comm;
    size_t moved = 0;
    xcclResult_t rc = xcclSuccess;

    if (!state->connected)
        rc = xccl_tcp_connect_test(comm->links[0].fd, &state->handle.addr, &state->connected);
    if (rc == xcclSuccess && state->connected && state->sent < OFI_HELLO_BYTES) {
        rc = xccl_tcp_send_some(comm->links[0].fd, state->hello + state->sent,
                                OFI_HELLO_BYTES - state->sent, &moved);
        state->sent += (uint32_t)moved;
    }
    if (rc != xcclSuccess || state->sent < OFI_HELLO_BYTES)
        return rc;
    moved = 0;
    rc = xccl_tcp_recv_some(comm->links[0].fd, state->reply + state->have,
                            OFI_REPLY_BYTES - state->have, &moved);
    state->have += (uint32_t)moved;
    if (rc != xcclSuccess || state->have < OFI_REPLY_BYTES)
        return rc;
    return agree(state);
}

static xcclResult_t move(struct ofi_connect *state, int *done_out)
{
    struct ofi_comm *comm = state->comm;
    xcclResult_t rc = xcclSuccess;

    if (!state->introduced)
        rc = introduce(state);
    if (rc == xcclSuccess && state->introduced)
        rc = introduce_sides(state);
    if (rc == xcclSuccess && state->introduced && !state->probed)
        rc = ofi_request_first(comm, &state->probed);
    if (rc != xcclSuccess)
        return rc;
    if (state->introduced)
        ofi_request_poll(comm);
    *done_out = comm->moved == 1 && state->side == comm->link_count;
    return comm->rc == xcclSuccess ? xcclSuccess : ofi_comm_error(comm);
}

xcclResult_t ofi_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                         xcclNetConnect_t *state_, xcclNetSendComm_t *comm_out)
{
    struct ofi_connect *state = *state_;
    xcclResult_t rc = xcclSuccess;
    int done = 0;

    if (!state) {
        rc = begin(ctx, dev, handle, &state);
        if (rc != xcclSuccess)
            return rc;
        *state_ = state;
    }
    rc = move(state, &done);
    if (rc == xcclSuccess && !done) {
        *comm_out = NULL;
        return xcclSuccess;
    }
    *state_ = NULL;
    if (rc != xcclSuccess) {
        ofi_close_connect(ctx, state);
        return rc;
    }
    ofi_comm_up(state->comm);
    *comm_out = state->comm;
    xccl_free(state);
    return xcclSuccess;
}

xcclResult_t ofi_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state_)
{
    struct ofi_connect *state = state_;

    (void)ctx;
    ofi_comm_destroy(state->comm);
    xccl_free(state);
    return xcclSuccess;
}
