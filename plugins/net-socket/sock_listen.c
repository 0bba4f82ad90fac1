/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver's side of coming up: a port on each of the device's interfaces, and those who come
 * there. Nothing here waits: accept is asked again and again.
 *
 * Strangers: a wrong hello closes at once, a silent connection after 5 s, and of 64 unproven
 * connections the oldest makes room for a new one. None of them reaches the caller or delays the
 * right sender, whose hello is there together with its connection (TCP_DEFER_ACCEPT keeps silent
 * ones in the kernel). The token is compared in constant time.
 *
 * Each line of a connection comes with a hello of its own that has its number, and the comm is up
 * when the last one has come, in whatever order.
 *
 * Thread: one at a time a listener. */
#include "sock_int.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/os.h"
#include "base/tcp.h"

#define ACCEPTS_MAX 64 /* new connections looked at in one call */

static xcclResult_t open_ports(struct sock_listen *listener, struct sock_handle *handle)
{
    const struct sock_device *device = listener->device;

    for (int i = 0; i < device->rail_count; i++) {
        const struct sock_device *rail = device->rail_count == 1
                                             ? device
                                             : &listener->ctx->devices[device->rails[i]];
        xcclResult_t rc = sock_address_listen(rail, &listener->fds[i], &handle->addrs[i]);

        if (rc != xcclSuccess)
            return rc;
        /* Or the answers would take the way of the first one in that subnet. Where the system
         * refuses it they do. */
        if (i > 0 && sock_merge_shares(listener->ctx, device, i))
            (void)setsockopt(listener->fds[i], SOL_SOCKET, SO_BINDTODEVICE, rail->netif.name,
                             (socklen_t)strlen(rail->netif.name));
    }
    handle->addr_count = device->rail_count;
    handle->line_count = listener->line_count;
    memcpy(handle->token, listener->token, sizeof(handle->token));
    return xcclSuccess;
}

static struct sock_listen *listener_create(struct sock_ctx *ctx, struct sock_device *device)
{
    struct sock_listen *listener = xccl_calloc(1, sizeof(*listener));

    if (!listener)
        return NULL;
    listener->ctx = ctx;
    listener->device = device;
    listener->line_count = 1 + device->stream_count;
    listener->wait_fd = -1;
    for (int i = 0; i < SOCK_RAILS_MAX; i++)
        listener->fds[i] = -1;
    for (int i = 0; i < SOCK_PENDING_MAX; i++)
        listener->pending[i].fd = -1;
    for (int i = 0; i < SOCK_LINES_MAX; i++)
        listener->lines[i] = -1;
    return listener;
}

xcclResult_t sock_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle_out,
                         xcclNetListenComm_t *listen_out)
{
    struct sock_device *device = sock_device_get(ctx, dev);
    struct sock_listen *listener;
    struct sock_handle handle = {.addr_count = 0};
    xcclResult_t rc;

    if (!device)
        return xcclInvalidArgument;
    sock_linger_sweep(ctx, 0);
    listener = listener_create(ctx, device);
    if (!listener)
        return xcclSystemError;
    rc = xccl_os_random(listener->token, sizeof(listener->token));
    if (rc == xcclSuccess)
        rc = open_ports(listener, &handle);
    if (rc != xcclSuccess) {
        sock_close_listen(listener);
        return rc;
    }
    sock_handle_encode(&handle, handle_out);
    *listen_out = listener;
    return xcclSuccess;
}

xcclResult_t sock_close_listen(xcclNetListenComm_t listen_)
{
    struct sock_listen *listener = listen_;

    for (int i = 0; i < SOCK_PENDING_MAX; i++)
        xccl_tcp_close(&listener->pending[i].fd);
    for (int i = 0; i < SOCK_LINES_MAX; i++)
        xccl_tcp_close(&listener->lines[i]);
    for (int i = 0; i < SOCK_RAILS_MAX; i++)
        xccl_tcp_close(&listener->fds[i]);
    xccl_free(listener);
    return xcclSuccess;
}

/* Failing only costs a wake-up. */
static void watch(const struct sock_listen *listener, int fd, int on)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (listener->wait_fd >= 0 && fd >= 0)
        (void)epoll_ctl(listener->wait_fd, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event);
}

void sock_listen_watch(struct sock_listen *listener, int wait_fd)
{
    for (int i = 0; i < SOCK_RAILS_MAX && wait_fd < 0; i++)
        watch(listener, listener->fds[i], 0);
    listener->wait_fd = wait_fd;
    for (int i = 0; i < SOCK_RAILS_MAX; i++)
        watch(listener, listener->fds[i], 1);
    for (int i = 0; i < SOCK_PENDING_MAX; i++)
        watch(listener, listener->pending[i].fd, 1);
}

static void pending_drop(struct sock_listen *listener, struct sock_pending *pending,
                         const char *why)
{
    char peer[XCCL_ADDR_TEXT_BYTES], line[256];

    /* A door is looked at in test, which does not log. */
    if (listener->ctx->log && !listener->is_door) {
        xccl_addr_format(&pending->peer, peer);
        snprintf(line, sizeof(line), "dropped a connection of %s on %s: %s", peer,
                 listener->device->name, why);
        listener->ctx->log(xcclNetLogDebug, line);
    }
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
static xcclResult_t pending_fill(struct sock_listen *listener, int listen_fd, uint64_t now_ns)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        struct sock_pending *pending;
        struct xccl_addr peer;
        int fd = -1;
        xcclResult_t rc = xccl_tcp_accept(listen_fd, &fd, &peer);

        if (rc != xcclSuccess || fd < 0)
            return rc;
        pending = pending_place(listener);
        *pending = (struct sock_pending){.fd = fd, .since_ns = now_ns, .peer = peer};
        watch(listener, fd, 1);
    }
    return xcclSuccess;
}

/* A line comes once; later, for a comm that is up, only in a turn that has not been. */
static int is_due(const struct sock_listen *listener, const struct sock_hello *hello)
{
    uint32_t ahead = (hello->turn - listener->turns[hello->line]) % SOCK_TURNS;

    if (listener->lines[hello->line] >= 0)
        return 0;
    return listener->is_door ? ahead > 0 && ahead < SOCK_TURNS / 2 : hello->turn == 0;
}

/* Reads what has come of a hello. 1: it is complete and right, and its connection a line of the
 * comm now. A wrong one is gone afterwards. */
static int pending_prove(struct sock_listen *listener, struct sock_pending *pending,
                         uint64_t now_ns)
{
    size_t moved = 0;
    struct sock_hello hello;
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
    if (!sock_hello_decode(pending->hello, listener->token, listener->line_count, &hello) ||
        !is_due(listener, &hello)) {
        pending_drop(listener, pending, "a wrong hello");
        return 0;
    }
    watch(listener, pending->fd, 0);
    listener->lines[hello.line] = pending->fd;
    listener->turns[hello.line] = hello.turn;
    if (hello.line == 0)
        listener->peer = pending->peer;
    pending->fd = -1;
    return 1;
}

static int lines_complete(const struct sock_listen *listener)
{
    for (int i = 0; i < listener->line_count; i++) {
        if (listener->lines[i] < 0)
            return 0;
    }
    return 1;
}

xcclResult_t sock_listen_poll(struct sock_listen *listener, int *came_out)
{
    uint64_t now_ns = xccl_clock_ns();
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < listener->device->rail_count && rc == xcclSuccess; i++)
        rc = pending_fill(listener, listener->fds[i], now_ns);
    if (rc != xcclSuccess)
        return rc;
    *came_out = 0;
    for (int i = 0; i < SOCK_PENDING_MAX; i++) {
        if (listener->pending[i].fd >= 0)
            *came_out |= pending_prove(listener, &listener->pending[i], now_ns);
    }
    return xcclSuccess;
}

struct sock_listen *sock_listen_copy(const struct sock_listen *listener)
{
    struct sock_listen *copy = listener_create(listener->ctx, listener->device);

    if (!copy)
        return NULL;
    copy->is_door = 1;
    memcpy(copy->token, listener->token, sizeof(copy->token));
    for (int i = 0; i < listener->device->rail_count; i++) {
        copy->fds[i] = fcntl(listener->fds[i], F_DUPFD_CLOEXEC, 0);
        if (copy->fds[i] >= 0)
            continue;
        sock_close_listen(copy);
        return NULL;
    }
    return copy;
}

xcclResult_t sock_accept(xcclNetListenComm_t listen_, xcclNetRecvComm_t *comm_out)
{
    struct sock_listen *listener = listen_;
    struct sock_comm *comm;
    int came = 0;
    xcclResult_t rc = sock_listen_poll(listener, &came);

    if (rc != xcclSuccess)
        return rc;
    if (!came || !lines_complete(listener)) {
        *comm_out = NULL;
        return xcclSuccess;
    }
    comm = sock_comm_create(listener->ctx, listener->device, 0, listener->line_count,
                            listener->device->rail_count);
    if (!comm)
        return xcclSystemError;
    if (listener->line_count > 1 && listener->ctx->failover)
        ((struct sock_receiver *)comm)->collect->door = sock_listen_copy(listener);
    for (int i = 0; i < comm->line_count; i++) {
        sock_tune_line(comm, i, listener->lines[i], &listener->peer);
        listener->lines[i] = -1;
    }
    rc = sock_comm_up(comm);
    if (rc == xcclSuccess)
        *comm_out = comm;
    return rc;
}
