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
 * The lines of a merged device go through one of its interfaces each, as far as the system allows;
 * a line that is not connected after 2 s is tried on the way of the system's choice, and then
 * towards the receiver's other addresses.
 *
 * Thread: one at a time a connect. */
#include "sock_int.h"

#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

#include "base/alloc.h"
#include "base/tcp.h"

#define WAY_NS (2 * XCCL_NS_PER_S)

/* The scope of a link-local address is a number of the receiver's host; here it is our interface.
 */
static void address_from_here(const struct sock_device *device, struct xccl_addr *addr)
{
    if (addr->sa.any.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&addr->sa.in6.sin6_addr))
        addr->sa.in6.sin6_scope_id = if_nametoindex(device->netif.name);
}

/* The first way is through our interface on the address's subnet, the second the system's, and
 * then come the receiver's other addresses. */
static int address_of(const struct sock_connect *state, int line)
{
    int tries = state->lines[line].tries, count = state->handle.addr_count;

    return (sock_rail_of(line, count) + (tries > 1 ? tries - 1 : 0)) % count;
}

const struct xccl_addr *sock_connect_addr(const struct sock_connect *state, int line)
{
    return &state->handle.addrs[address_of(state, line)];
}

/* The descriptor stays -1 when it is not the time yet. */
xcclResult_t sock_connect_start(struct sock_connect *state, int idx)
{
    struct sock_connect_line *line = &state->lines[idx];
    int turn = address_of(state, idx);
    struct xccl_addr addr = state->handle.addrs[turn];
    const struct sock_device *rail = NULL;

    if (line->tries == 0)
        rail = sock_merge_towards(state->ctx, state->device, &addr, turn);
    line->connected = 0;
    line->since_ns = xccl_clock_ns();
    address_from_here(rail ? rail : state->device, &addr);
    if (rail && sock_address_connect(state->ctx, &addr, rail->netif.name, &line->fd) == xcclSuccess)
        return xcclSuccess;
    line->tries += line->tries == 0;
    return sock_address_connect(state->ctx, &addr, NULL, &line->fd);
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
    for (int i = 0; i < SOCK_LINES_MAX; i++) {
        state->lines[i].fd = -1;
        state->lines[i].ways = handle.addr_count;
    }
    state->comm = sock_comm_create(ctx, device, 1, handle.line_count, handle.addr_count);
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

/* A way that leads nowhere is left for the next. */
static xcclResult_t line_connected(struct sock_connect *state, int idx)
{
    struct sock_connect_line *line = &state->lines[idx];
    xcclResult_t rc = sock_address_connected(line->fd, &state->handle.addrs[address_of(state, idx)],
                                             &line->connected);

    if (line->connected || line->tries >= line->ways ||
        (rc == xcclSuccess && xccl_clock_ns() - line->since_ns < WAY_NS))
        return rc;
    xccl_tcp_close(&line->fd);
    line->tries++;
    return sock_connect_start(state, idx);
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
    if (line->fd < 0)
        rc = sock_connect_start(state, idx);
    if (rc == xcclSuccess && line->fd >= 0 && !line->connected)
        rc = line_connected(state, idx);
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
