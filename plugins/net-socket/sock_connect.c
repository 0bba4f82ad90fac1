/* SPDX-License-Identifier: BSD-3-Clause */
/* How a connection comes up; this is the sender's side. Nothing here waits: connect is asked again
 * and again.
 *
 *   receiver                                   sender
 *   listen: a port, a random token
 *      handle {addresses, token, lines} ---->  (travels over XCCL's encrypted connections)
 *                                 <----------  connect: each line one hello {token, line}
 *   accept: reads hellos of all who come,      hellos handed to the kernel: the comm is up
 *   those with the token are the comm
 *
 * By which way a line goes is sock_ways.c's: those of a merged device through one of its interfaces
 * each, as far as the system allows.
 *
 * Thread: one at a time a connect. */
#include "sock_int.h"

#include <string.h>

#include "base/alloc.h"
#include "base/tcp.h"

static xcclResult_t connect_begin(struct sock_ctx *ctx, int dev, const xcclNetHandle_t *bytes,
                                  struct sock_connect **state_out)
{
    struct sock_device *device = sock_device_get(ctx, dev);
    struct sock_connect *state;
    struct sock_handle handle = {.line_count = 0};
    xcclResult_t rc;

    if (!device)
        return xcclInvalidArgument;
    rc = sock_handle_decode(bytes, &handle);
    if (rc != xcclSuccess)
        return rc;
    sock_linger_sweep(ctx, 0);
    state = xccl_calloc(1, sizeof(*state));
    if (!state)
        return xcclSystemError;
    state->ctx = ctx;
    state->device = device;
    state->handle = handle;
    for (int i = 0; i < SOCK_LINES_MAX; i++) {
        state->lines[i].fd = -1;
    }
    sock_ways_order(state);
    state->comm = sock_comm_create(ctx, device, 1, handle.line_count, handle.rail_count);
    if (!state->comm) {
        xccl_free(state);
        return xcclSystemError;
    }
    for (int i = 0; i < handle.line_count && rc == xcclSuccess; i++)
        rc = sock_connect_start(state, i);
    if (rc != xcclSuccess) {
        sock_close_connect(ctx, state);
        return rc;
    }
    *state_out = state;
    return xcclSuccess;
}

static void hello_write(struct sock_connect *state, int idx)
{
    struct sock_connect_line *line = &state->lines[idx];
    struct sock_hello hello = {.line = (uint32_t)idx,
                               .line_count = (uint32_t)state->handle.line_count,
                               .turn = line->turn};

    sock_hello_encode(state->handle.token, &hello, line->hello);
}

/* *done_out 1: the hello is on its way. */
xcclResult_t sock_connect_line(struct sock_connect *state, int idx, int *done_out)
{
    struct sock_connect_line *line = &state->lines[idx];
    size_t moved = 0;
    xcclResult_t rc = xcclSuccess;

    *done_out = 0;
    if (!line->connected)
        rc = sock_ways_go_on(state, idx);
    if (rc != xcclSuccess || !line->connected)
        return rc;
    if (line->sent == 0)
        hello_write(state, idx);
    if (line->sent < SOCK_HELLO_BYTES)
        rc = xccl_tcp_send_some(line->fd, line->hello + line->sent, SOCK_HELLO_BYTES - line->sent,
                                &moved);
    line->sent += moved;
    *done_out = line->sent == SOCK_HELLO_BYTES;
    return rc;
}

/* *done_out 1: all lines are up. */
static xcclResult_t connect_move(struct sock_connect *state, int *done_out)
{
    int done = 0;

    for (int i = 0; i < state->handle.line_count; i++) {
        int line_done = 0;
        xcclResult_t rc = sock_connect_line(state, i, &line_done);

        if (rc != xcclSuccess)
            return rc;
        done += line_done;
    }
    *done_out = done == state->handle.line_count;
    return xcclSuccess;
}

/* A line that is lost comes again the same way. */
static void keep_for_later(struct sock_connect *state, struct sock_comm *comm)
{
    struct sock_scatter *scatter = ((struct sock_sender *)comm)->scatter;

    if (scatter && comm->ctx->failover)
        scatter->connect = state;
    else
        xccl_free(state);
}

xcclResult_t sock_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                          xcclNetConnect_t *state_, xcclNetSendComm_t *comm_out)
{
    struct sock_connect *state = *state_;
    struct sock_comm *comm;
    xcclResult_t rc = xcclSuccess;
    int done = 0;

    if (!state) {
        rc = connect_begin(ctx, dev, handle, &state);
        if (rc != xcclSuccess)
            return rc;
        *state_ = state;
    }
    rc = connect_move(state, &done);
    if (rc == xcclSuccess && !done) {
        *comm_out = NULL;
        return xcclSuccess;
    }
    *state_ = NULL;
    if (rc != xcclSuccess) {
        sock_close_connect(ctx, state);
        return rc;
    }
    for (int i = 0; i < state->handle.line_count; i++) {
        sock_tune_line(state->comm, i, state->lines[i].fd, sock_connect_addr(state, i));
        state->lines[i].fd = -1;
    }
    comm = state->comm;
    state->comm = NULL;
    keep_for_later(state, comm);
    rc = sock_comm_up(comm);
    if (rc == xcclSuccess)
        *comm_out = comm;
    return rc;
}

xcclResult_t sock_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state_)
{
    struct sock_connect *state = state_;

    (void)ctx;
    for (int i = 0; i < SOCK_LINES_MAX; i++)
        xccl_tcp_close(&state->lines[i].fd);
    if (state->comm)
        sock_close_comm(state->comm);
    xccl_free(state);
    return xcclSuccess;
}
