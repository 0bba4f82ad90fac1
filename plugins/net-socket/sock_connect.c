/* SPDX-License-Identifier: BSD-3-Clause */
/* How a connection comes up; this is the sender's side. Nothing here waits: connect is asked again
 * and again.
 *
 *   receiver                                   sender
 *   listen: a port, a random token
 *      handle {addresses, token, lines} ---->  (travels over XCCL's encrypted connections)
 *                                 <----------  connect: on each line an opening {line, turn}
 *   accept: answers who opens rightly ------>  the answer is right
 *                                 <----------  a seal (kit_proof.h): the comm is up
 *   who has sealed rightly on each line is
 *   the comm
 *
 * By which way a line goes is sock_ways.c's: those of a merged device through one of its interfaces
 * each, as far as the system allows.
 *
 * Thread: one at a time a connect. */
#include "sock_int.h"

#include <sodium.h>
#include <string.h>

#include "base/alloc.h"
#include "base/tcp.h"

/* The token and the keys of its proofs do not stay in memory. */
static void state_free(struct sock_connect *state)
{
    sodium_memzero(state, sizeof(*state));
    xccl_free(state);
}

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
    state->cipher = sock_cipher_choose(ctx->encrypt, handle.ciphers);
    for (int i = 0; i < SOCK_LINES_MAX; i++) {
        state->lines[i].fd = -1;
    }
    sock_ways_order(state);
    state->comm = sock_comm_create(ctx, device, 1, handle.line_count, handle.rail_count);
    if (!state->comm) {
        state_free(state);
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

static xcclResult_t line_prove(struct sock_connect *state, int idx, int *done_out)
{
    struct sock_connect_line *line = &state->lines[idx];
    const struct sock_opening opening = {.line = (uint32_t)idx,
                                         .line_count = (uint32_t)state->handle.line_count,
                                         .turn = line->turn,
                                         .encrypt = state->ctx->encrypt,
                                         .cipher = state->cipher};
    struct kit_intro intro = {
        .dialect = &sock_dialect, .token = state->handle.token, .hello = line->seal};

    sock_opening_put(&opening, intro.context);
    return kit_prove(&line->greeting, line->fd, sock_connect_addr(state, idx), &intro, done_out);
}

/* *done_out 1: both ends have proved themselves. */
xcclResult_t sock_connect_line(struct sock_connect *state, int idx, int *done_out)
{
    struct sock_connect_line *line = &state->lines[idx];
    xcclResult_t rc = xcclSuccess;

    *done_out = 0;
    if (!line->connected)
        rc = sock_ways_go_on(state, idx);
    if (rc != xcclSuccess || !line->connected)
        return rc;
    rc = line_prove(state, idx, done_out);
    return rc == xcclSuccess ? rc : sock_ways_failed(state, idx, rc);
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
        state_free(state);
}

/* All hellos are on their way. */
static xcclResult_t lines_give(struct sock_connect *state)
{
    struct sock_comm *comm = state->comm;

    comm->cipher = state->cipher;
    for (int i = 0; i < state->handle.line_count; i++) {
        sock_tune_line(comm, i, state->lines[i].fd, sock_connect_addr(state, i));
        state->lines[i].fd = -1;
        if (state->handle.encrypt != comm->ctx->encrypt)
            return sock_encrypt_differs(comm->ctx->encrypt, state->handle.encrypt, comm->peer_text);
        if (!sock_comm_secure(comm, i, &state->lines[i].greeting.proof))
            return xcclSystemError;
    }
    return xcclSuccess;
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
    if (rc == xcclSuccess)
        rc = lines_give(state);
    if (rc != xcclSuccess) {
        sock_close_connect(ctx, state);
        return rc;
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
    state_free(state);
    return xcclSuccess;
}
