/* SPDX-License-Identifier: BSD-3-Clause */
/* How a connection comes up. Nothing here waits: connect and accept are asked again and again.
 *
 *   receiver                                   sender
 *   listen: a port, a random token
 *      handle {address, token}  ------------>  (travels over XCCL's encrypted connections)
 *                                 <----------  connect: TCP connect, then one hello {token}
 *   accept: reads hellos of all who come,      hello handed to the kernel: the comm is up
 *   the right one is the comm
 *
 * Strangers: a wrong hello closes at once, a silent connection after 5 s, and of 64 unproven
 * connections the oldest makes room for a new one. None of them reaches the caller or delays the
 * right sender, whose hello is there together with its connection (TCP_DEFER_ACCEPT keeps silent
 * ones in the kernel). The token is compared in constant time.
 *
 * With streams a connection has several lines. The handle says how many, each comes with a hello of
 * its own that has its number, and the comm is up when the last one has come, in whatever order.
 *
 * Thread: one at a time a listener, a connect and a comm. */
#include "sock_int.h"

#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/os.h"
#include "base/tcp.h"
#include "base/wire.h"

#define HELLO_LINE_OFFSET    40
#define KEEPALIVE_IDLE_S     10
#define KEEPALIVE_INTERVAL_S 2
#define KEEPALIVE_PROBES     3
#define UNIX_ROOM_BYTES      (1 << 20) /* the default of 208 KiB is less than a chunk */
#define STREAM_BACKLOG_BYTES                                                                       \
    (128 << 10) /* a stream is full when more than that waits to be sent                           \
                 */
#define ACCEPTS_MAX 64 /* new connections looked at in one call */

__attribute__((format(printf, 2, 3))) static void debug_line(const struct sock_ctx *ctx,
                                                             const char *fmt, ...)
{
    char line[256];
    va_list args;

    if (!ctx->log)
        return;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    ctx->log(xcclNetLogDebug, line);
}

/* ---- the bytes ---- */

/* What the right sender says first on a line. */
static void hello_encode(const uint8_t token[SOCK_TOKEN_BYTES], uint32_t line, uint32_t line_count,
                         uint8_t bytes_out[SOCK_HELLO_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(bytes_out, SOCK_HELLO_BYTES);

    memset(bytes_out, 0, SOCK_HELLO_BYTES);
    xccl_wire_put_u32(&wire, SOCK_HELLO_MAGIC);
    xccl_wire_put_u32(&wire, SOCK_WIRE_VERSION);
    xccl_wire_put(&wire, token, SOCK_TOKEN_BYTES);
    xccl_wire_put_u32(&wire, line);
    xccl_wire_put_u32(&wire, line_count);
}

static void handle_encode(const struct sock_handle *handle, xcclNetHandle_t *handle_out)
{
    struct xccl_wire wire = xccl_wire_over(handle_out->bytes, sizeof(handle_out->bytes));
    uint8_t addr[XCCL_ADDR_WIRE_BYTES];

    memset(handle_out, 0, sizeof(*handle_out));
    sock_address_encode(&handle->addr, addr);
    xccl_wire_put_u32(&wire, SOCK_HANDLE_MAGIC);
    xccl_wire_put_u32(&wire, SOCK_WIRE_VERSION);
    xccl_wire_put(&wire, addr, sizeof(addr));
    xccl_wire_put(&wire, handle->token, SOCK_TOKEN_BYTES);
    xccl_wire_put_u32(&wire, handle->line_count);
}

static xcclResult_t handle_decode(const xcclNetHandle_t *bytes, struct sock_handle *handle_out)
{
    xcclNetHandle_t copy = *bytes;
    struct xccl_wire wire = xccl_wire_over(copy.bytes, sizeof(copy.bytes));
    uint32_t magic = xccl_wire_get_u32(&wire), version = xccl_wire_get_u32(&wire);
    uint8_t addr[XCCL_ADDR_WIRE_BYTES];

    if (magic != SOCK_HANDLE_MAGIC || version != SOCK_WIRE_VERSION)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "use the same build of XCCL on all ranks",
                                 "a connect handle is not of the socket plugin, wire version %d",
                                 SOCK_WIRE_VERSION);
    xccl_wire_get(&wire, addr, sizeof(addr));
    xccl_wire_get(&wire, handle_out->token, SOCK_TOKEN_BYTES);
    handle_out->line_count = xccl_wire_get_u32(&wire);
    if (handle_out->line_count < 1 || handle_out->line_count > SOCK_LINES_MAX)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "use the same build of XCCL on all ranks",
                                 "a connect handle of the socket plugin asks for %u lines, at most "
                                 "%d are known",
                                 handle_out->line_count, SOCK_LINES_MAX);
    return sock_address_decode(addr, &handle_out->addr);
}

/* Takes the same time whatever differs. */
static int bytes_equal(const uint8_t *a, const uint8_t *b, size_t bytes)
{
    /* tidy: allow volatile because it keeps the compiler from leaving early */
    volatile uint8_t differ = 0;

    for (size_t i = 0; i < bytes; i++)
        differ = (uint8_t)(differ | (a[i] ^ b[i]));
    return differ == 0;
}

/* ---- a comm ---- */

static int same_host(int fd)
{
    struct xccl_addr own = {.bytes = sizeof(own.sa)}, peer = {.bytes = sizeof(peer.sa)};

    if (getsockname(fd, &own.sa.any, &own.bytes) != 0 ||
        getpeername(fd, &peer.sa.any, &peer.bytes) != 0)
        return 0;
    xccl_addr_set_port(&own, 1);
    xccl_addr_set_port(&peer, 1);
    return xccl_addr_equal(&own, &peer);
}

/* Options that help; a kernel that refuses one still moves bytes, so no result is looked at.
 * TCP_USER_TIMEOUT is left alone on purpose: it also ends a connection whose peer is alive but does
 * not read for that long, such as a rank that computes. Keepalive asks the peer's kernel, not the
 * peer. */
static void socket_tune(const struct sock_ctx *ctx, int fd, const struct xccl_addr *peer)
{
    const int on = 1, idle = KEEPALIVE_IDLE_S, interval = KEEPALIVE_INTERVAL_S,
              probes = KEEPALIVE_PROBES, traffic = ctx->traffic_class, unix_room = UNIX_ROOM_BYTES;

    if (peer->sa.any.sa_family == AF_UNIX) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &unix_room, sizeof(unix_room));
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    if (traffic >= 0) {
        setsockopt(fd, IPPROTO_IP, IP_TOS, &traffic, sizeof(traffic));
        setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &traffic, sizeof(traffic));
    }
    /* Inside one host BBR halves the throughput of CUBIC, and there is no network to be kind to. */
    if (same_host(fd))
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
}

static void comm_take_line(const struct sock_ctx *ctx, struct sock_comm *comm, int line, int fd,
                           const struct xccl_addr *peer)
{
    const int backlog = STREAM_BACKLOG_BYTES;

    comm->lines[line].fd = fd;
    socket_tune(ctx, fd, peer);
    if (line > 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &backlog, sizeof(backlog));
    else
        sock_address_peer(fd, peer, comm->peer_text);
}

/* ---- receiver ---- */

xcclResult_t sock_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle_out,
                         xcclNetListenComm_t *listen_out)
{
    struct sock_device *device = sock_device_get(ctx, dev);
    struct sock_listen *listener;
    struct sock_handle handle;
    xcclResult_t rc;

    if (!device)
        return xcclInvalidArgument;
    listener = xccl_calloc(1, sizeof(*listener));
    if (!listener)
        return xcclSystemError;
    listener->ctx = ctx;
    listener->device = device;
    for (int i = 0; i < SOCK_PENDING_MAX; i++)
        listener->pending[i].fd = -1;
    for (int i = 0; i < SOCK_LINES_MAX; i++)
        listener->lines[i] = -1;
    rc = xccl_os_random(listener->token, sizeof(listener->token));
    if (rc != xcclSuccess)
        goto err_listener;
    memcpy(handle.token, listener->token, sizeof(handle.token));
    handle.line_count = device->line_count;
    rc = sock_address_listen(device, &listener->fd, &handle.addr);
    if (rc != xcclSuccess)
        goto err_listener;
    handle_encode(&handle, handle_out);
    *listen_out = listener;
    return xcclSuccess;
err_listener:
    xccl_free(listener);
    return rc;
}

xcclResult_t sock_close_listen(xcclNetListenComm_t listen_)
{
    struct sock_listen *listener = listen_;

    for (int i = 0; i < SOCK_PENDING_MAX; i++)
        xccl_tcp_close(&listener->pending[i].fd);
    for (int i = 0; i < SOCK_LINES_MAX; i++)
        xccl_tcp_close(&listener->lines[i]);
    xccl_tcp_close(&listener->fd);
    xccl_free(listener);
    return xcclSuccess;
}

static void pending_drop(struct sock_listen *listener, struct sock_pending *pending,
                         const char *why)
{
    char peer[XCCL_ADDR_TEXT_BYTES];

    xccl_addr_format(&pending->peer, peer);
    debug_line(listener->ctx, "dropped a connection of %s on %s: %s", peer,
               listener->device->netif.name, why);
    xccl_tcp_close(&pending->fd);
}

/* A free place, or the oldest one's. */
static struct sock_pending *pending_place(struct sock_listen *listener)
{
    struct sock_pending *oldest = &listener->pending[0];

    for (int i = 0; i < SOCK_PENDING_MAX; i++) {
        struct sock_pending *pending = &listener->pending[i];

        if (pending->fd < 0)
            return pending;
        if (pending->since_ns < oldest->since_ns)
            oldest = pending;
    }
    pending_drop(listener, oldest, "too many at once have not said who they are");
    return oldest;
}

/* Takes in those who wait at the port. */
static xcclResult_t pending_fill(struct sock_listen *listener, uint64_t now_ns)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        struct sock_pending *pending;
        struct xccl_addr peer;
        int fd = -1;
        xcclResult_t rc = xccl_tcp_accept(listener->fd, &fd, &peer);

        if (rc != xcclSuccess || fd < 0)
            return rc;
        pending = pending_place(listener);
        *pending = (struct sock_pending){.fd = fd, .since_ns = now_ns, .peer = peer};
    }
    return xcclSuccess;
}

/* The line that a complete hello is for: -1 when it is wrong, or has come before. */
static int hello_line(const struct sock_listen *listener, struct sock_pending *pending)
{
    uint32_t count = listener->device->line_count;
    struct xccl_wire wire = xccl_wire_over(pending->hello + HELLO_LINE_OFFSET, sizeof(uint32_t));
    uint32_t line = xccl_wire_get_u32(&wire);
    uint8_t want[SOCK_HELLO_BYTES];

    hello_encode(listener->token, line, count, want);
    if (!bytes_equal(pending->hello, want, SOCK_HELLO_BYTES) || line >= count ||
        listener->lines[line] >= 0)
        return -1;
    return (int)line;
}

/* Reads what has come of a hello. 1: it is complete and right, and its connection a line of the
 * comm now. A wrong one is gone afterwards. */
static int pending_prove(struct sock_listen *listener, struct sock_pending *pending,
                         uint64_t now_ns)
{
    size_t moved = 0;
    int line;
    xcclResult_t rc = xccl_tcp_recv_some(pending->fd, pending->hello + pending->have,
                                         SOCK_HELLO_BYTES - pending->have, &moved);

    if (rc != xcclSuccess) {
        pending_drop(listener, pending, "it has gone");
        return 0;
    }
    pending->have += moved;
    if (pending->have < SOCK_HELLO_BYTES) {
        if (now_ns - pending->since_ns > SOCK_SILENT_NS)
            pending_drop(listener, pending, "no complete hello in 5 s");
        return 0;
    }
    line = hello_line(listener, pending);
    if (line < 0) {
        pending_drop(listener, pending, "a wrong hello");
        return 0;
    }
    listener->lines[line] = pending->fd;
    if (line == 0)
        listener->peer = pending->peer;
    pending->fd = -1;
    return 1;
}

static int lines_complete(const struct sock_listen *listener)
{
    for (uint32_t i = 0; i < listener->device->line_count; i++) {
        if (listener->lines[i] < 0)
            return 0;
    }
    return 1;
}

xcclResult_t sock_accept(xcclNetListenComm_t listen_, xcclNetRecvComm_t *comm_out)
{
    struct sock_listen *listener = listen_;
    uint64_t now_ns = xccl_clock_ns();
    struct sock_comm *comm;
    int came = 0;
    xcclResult_t rc = pending_fill(listener, now_ns);

    if (rc != xcclSuccess)
        return rc;
    for (int i = 0; i < SOCK_PENDING_MAX; i++) {
        if (listener->pending[i].fd >= 0)
            came |= pending_prove(listener, &listener->pending[i], now_ns);
    }
    if (!came || !lines_complete(listener)) {
        *comm_out = NULL;
        return xcclSuccess;
    }
    comm = sock_comm_create(listener->device, 0, (int)listener->device->line_count);
    if (!comm)
        return xcclSystemError;
    for (int i = 0; i < comm->line_count; i++) {
        comm_take_line(listener->ctx, comm, i, listener->lines[i], &listener->peer);
        listener->lines[i] = -1;
    }
    *comm_out = comm;
    return xcclSuccess;
}

/* ---- sender ---- */

/* The scope of a link-local address is a number of the receiver's host; here it is our interface.
 */
static struct xccl_addr addr_from_here(const struct sock_device *device, struct xccl_addr addr)
{
    if (addr.sa.any.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&addr.sa.in6.sin6_addr))
        addr.sa.in6.sin6_scope_id = if_nametoindex(device->netif.name);
    return addr;
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
    rc = handle_decode(bytes, &handle);
    if (rc != xcclSuccess)
        return rc;
    state = xccl_calloc(1, sizeof(*state));
    if (!state)
        return xcclSystemError;
    state->addr = addr_from_here(device, handle.addr);
    for (uint32_t i = 0; i < SOCK_LINES_MAX; i++) {
        state->lines[i].fd = -1;
        hello_encode(handle.token, i, handle.line_count, state->lines[i].hello);
    }
    state->comm = sock_comm_create(device, 1, (int)handle.line_count);
    if (!state->comm) {
        xccl_free(state);
        return xcclSystemError;
    }
    for (uint32_t i = 0; i < handle.line_count && rc == xcclSuccess; i++)
        rc = sock_address_connect(&state->addr, &state->lines[i].fd);
    if (rc != xcclSuccess) {
        sock_close_connect(ctx, state);
        return rc;
    }
    *state_out = state;
    return xcclSuccess;
}

/* *done_out 1: the hello is on its way. */
static xcclResult_t line_move(const struct sock_connect *state, struct sock_connect_line *line,
                              int *done_out)
{
    size_t moved = 0;
    xcclResult_t rc = xcclSuccess;

    *done_out = 0;
    if (line->fd < 0)
        rc = sock_address_connect(&state->addr, &line->fd);
    if (rc == xcclSuccess && line->fd >= 0 && !line->connected)
        rc = sock_address_connected(line->fd, &state->addr, &line->connected);
    if (rc != xcclSuccess || !line->connected)
        return rc;
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

    for (int i = 0; i < state->comm->line_count; i++) {
        int line_done = 0;
        xcclResult_t rc = line_move(state, &state->lines[i], &line_done);

        if (rc != xcclSuccess)
            return rc;
        done += line_done;
    }
    *done_out = done == state->comm->line_count;
    return xcclSuccess;
}

xcclResult_t sock_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                          xcclNetConnect_t *state_, xcclNetSendComm_t *comm_out)
{
    struct sock_connect *state = *state_;
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
    for (int i = 0; i < state->comm->line_count; i++)
        comm_take_line(ctx, state->comm, i, state->lines[i].fd, &state->addr);
    *comm_out = state->comm;
    xccl_free(state);
    return xcclSuccess;
}

xcclResult_t sock_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state_)
{
    struct sock_connect *state = state_;

    (void)ctx;
    for (int i = 0; i < SOCK_LINES_MAX; i++)
        xccl_tcp_close(&state->lines[i].fd);
    sock_close_comm(state->comm);
    xccl_free(state);
    return xcclSuccess;
}
