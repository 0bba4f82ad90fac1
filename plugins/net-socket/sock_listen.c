/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver's side of coming up: a port on each of the device's interfaces, and on others of
 * this host as far as the handle has room, and those who come there. Nothing here waits: accept is
 * asked again and again.
 *
 * Strangers: a wrong opening closes at once, a silent connection after 5 s, and of 64 unproven
 * connections the oldest that has not opened makes room for a new one. None of them reaches the
 * caller or delays the right sender, whose opening is there together with its connection
 * (TCP_DEFER_ACCEPT keeps silent ones in the kernel). How one proves itself is the kit's
 * (kit_guest.h).
 *
 * Each line of a connection comes with an opening of its own that has its number, and the comm is
 * up when the last one has proved itself, in whatever order.
 *
 * Thread: one at a time a listener. */
#include "sock_int.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/os.h"
#include "base/tcp.h"

/* A port on this interface. Where others share its subnet the answers would take the way of the
 * first one there, unless the system refuses to bind it. */
static xcclResult_t open_port(struct sock_listen *listener, const struct sock_device *rail,
                              struct sock_handle *handle)
{
    int at = listener->port_count;
    xcclResult_t rc = sock_address_listen(rail, &listener->fds[at], &handle->addrs[at]);

    if (rc != xcclSuccess)
        return rc;
    if (sock_subnet_shared(listener->ctx, rail))
        (void)setsockopt(listener->fds[at], SOL_SOCKET, SO_BINDTODEVICE, rail->netif.name,
                         (socklen_t)strlen(rail->netif.name));
    listener->port_count++;
    return xcclSuccess;
}

static int is_rail(const struct sock_device *device, int number)
{
    for (int i = 0; i < device->rail_count && device->rail_count > 1; i++) {
        if (device->rails[i] == number)
            return 1;
    }
    return 0;
}

/* Other interfaces of this host, for senders whom those of the device do not reach. What cannot
 * listen is left out. */
static void open_alternatives(struct sock_listen *listener, struct sock_handle *handle)
{
    const struct sock_device *device = listener->device;
    struct sock_ctx *ctx = listener->ctx;

    if (device->netif.addr.sa.any.sa_family == AF_UNIX || !ctx->alternatives)
        return;
    for (int i = 0; i < ctx->device_count && listener->port_count < SOCK_RAILS_MAX; i++) {
        const struct sock_device *other = &ctx->devices[i];

        if (other != device && other->rail_count == 1 && !is_rail(device, i) &&
            other->netif.addr.sa.any.sa_family != AF_UNIX)
            (void)open_port(listener, other, handle);
    }
}

static xcclResult_t open_ports(struct sock_listen *listener, struct sock_handle *handle)
{
    const struct sock_device *device = listener->device;
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < device->rail_count && rc == xcclSuccess; i++)
        rc = open_port(listener,
                       device->rail_count == 1 ? device : &listener->ctx->devices[device->rails[i]],
                       handle);
    if (rc != xcclSuccess)
        return rc;
    open_alternatives(listener, handle);
    handle->addr_count = listener->port_count;
    handle->rail_count = device->rail_count;
    handle->line_count = listener->line_count;
    handle->encrypt = listener->ctx->encrypt;
    handle->ciphers = sock_ciphers(handle->encrypt);
    memcpy(handle->token, listener->guests.token, sizeof(handle->token));
    return xcclSuccess;
}

/* Failing only costs a wake-up. */
static void watch(const struct sock_listen *listener, int fd, int on)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (listener->wait_fd >= 0 && fd >= 0)
        (void)epoll_ctl(listener->wait_fd, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event);
}

static void watch_new(void *listener, int fd)
{
    watch(listener, fd, 1);
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
    for (int i = 0; i < SOCK_LINES_MAX; i++)
        listener->lines[i] = -1;
    listener->step.log = ctx->log;
    listener->step.device = device->name;
    listener->step.came = watch_new;
    listener->step.user = listener;
    listener->guests.dialect = &sock_dialect;
    if (kit_doorstep_init(&listener->step, KIT_PLACE_BYTES(0)) == xcclSuccess)
        return listener;
    sock_close_listen(listener);
    return NULL;
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
    rc = xccl_os_random(listener->guests.token, sizeof(listener->guests.token));
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
    struct sock_ctx *ctx = listener->ctx;

    kit_doorstep_fini(&listener->step);
    for (int i = 0; i < SOCK_LINES_MAX; i++)
        xccl_tcp_close(&listener->lines[i]);
    for (int i = 0; i < SOCK_RAILS_MAX; i++)
        xccl_tcp_close(&listener->fds[i]);
    sodium_memzero(listener, sizeof(*listener)); /* token and keys */
    xccl_free(listener);
    sock_linger_sweep(ctx, 0);
    return xcclSuccess;
}

void sock_listen_watch(struct sock_listen *listener, int wait_fd)
{
    for (int i = 0; i < SOCK_RAILS_MAX && wait_fd < 0; i++)
        watch(listener, listener->fds[i], 0);
    listener->wait_fd = wait_fd;
    for (int i = 0; i < SOCK_RAILS_MAX; i++)
        watch(listener, listener->fds[i], 1);
    for (int i = 0; i < KIT_DOORSTEP_PLACES; i++)
        watch(listener, listener->step.places[i].fd, 1);
}

/* All lines of a comm have the cipher of the first one, which this end has offered. */
static int suits(const struct sock_listen *listener, const struct sock_opening *opening)
{
    if (opening->encrypt != listener->ctx->encrypt)
        return 1; /* which is told */
    if (listener->cipher != KIT_CIPHER_NONE)
        return opening->cipher == listener->cipher;
    return opening->cipher == sock_cipher_choose(opening->encrypt, 1u << opening->cipher);
}

/* A line comes once; later, for a comm that is up, in another turn than it has: an old one cannot
 * come, for each proof is of its own connection. */
static int is_due(const struct sock_listen *listener, const struct sock_opening *opening)
{
    if (listener->lines[opening->line] >= 0)
        return 0;
    return listener->is_door ? opening->turn != listener->turns[opening->line] : opening->turn == 0;
}

/* After a conversation, as the handshake is, the kernel holds acknowledgements back (tcp(7),
 * TCP_QUICKACK). What follows goes one way, and a sender that closes keeps its sockets until the
 * last one has come. Failing costs no more than that. */
static void acknowledge_soon(int fd)
{
    const int on = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof(on));
}

/* 1: he has proved himself, and his connection is a line of the comm now. A wrong one is gone
 * afterwards. */
static int prove(struct sock_listen *listener, struct kit_stranger *stranger, uint64_t now_ns)
{
    const struct kit_proof *proof = kit_guest_proof(&listener->guests, &listener->step, stranger);
    struct sock_opening opening;

    if (!kit_guest_prove(&listener->guests, &listener->step, stranger, now_ns))
        return 0;
    if (!sock_opening_get(proof->said.context, listener->line_count, &opening) ||
        !is_due(listener, &opening) || !suits(listener, &opening)) {
        kit_doorstep_drop(&listener->step, stranger, "its line is there, or is none of these");
        return 0;
    }
    if (opening.encrypt != listener->ctx->encrypt) {
        listener->is_refused = 1;
        listener->their_encrypt = opening.encrypt;
    }
    listener->cipher = opening.cipher;
    watch(listener, stranger->fd, 0);
    acknowledge_soon(stranger->fd);
    listener->lines[opening.line] = stranger->fd;
    listener->turns[opening.line] = opening.turn;
    listener->proofs[opening.line] = *proof;
    if (opening.line == 0)
        listener->peer = stranger->peer;
    stranger->fd = -1;
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

    for (int i = 0; i < listener->port_count && rc == xcclSuccess; i++)
        rc = kit_doorstep_fill(&listener->step, listener->fds[i], now_ns);
    if (rc != xcclSuccess)
        return rc;
    *came_out = 0;
    for (int i = 0; i < KIT_DOORSTEP_PLACES; i++) {
        if (listener->step.places[i].fd >= 0)
            *came_out |= prove(listener, &listener->step.places[i], now_ns);
    }
    return xcclSuccess;
}

struct sock_listen *sock_listen_copy(const struct sock_listen *listener)
{
    struct sock_listen *copy = listener_create(listener->ctx, listener->device);

    if (!copy)
        return NULL;
    copy->is_door = 1;
    copy->cipher = listener->cipher;
    copy->step.log = NULL; /* a door is looked at in test, which does not log */
    memcpy(copy->guests.token, listener->guests.token, sizeof(copy->guests.token));
    copy->port_count = listener->port_count;
    for (int i = 0; i < listener->port_count; i++) {
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
    if (listener->is_refused) {
        char peer[XCCL_ADDR_TEXT_BYTES];

        xccl_addr_format(&listener->peer, peer);
        return sock_encrypt_differs(listener->ctx->encrypt, listener->their_encrypt, peer);
    }
    if (!came || !lines_complete(listener)) {
        *comm_out = NULL;
        return xcclSuccess;
    }
    comm = sock_comm_create(listener->ctx, listener->device, 0, listener->line_count,
                            listener->device->rail_count);
    if (!comm)
        return xcclSystemError;
    comm->cipher = listener->cipher;
    if (listener->line_count > 1 && listener->ctx->failover)
        ((struct sock_receiver *)comm)->collect->door = sock_listen_copy(listener);
    for (int i = 0; i < comm->line_count; i++) {
        sock_tune_line(comm, i, listener->lines[i], &listener->peer);
        listener->lines[i] = -1;
    }
    for (int i = 0; i < comm->line_count; i++) {
        if (sock_comm_secure(comm, i, &listener->proofs[i]))
            continue;
        sock_close_comm(comm);
        return xcclSystemError;
    }
    rc = sock_comm_up(comm);
    if (rc == xcclSuccess)
        *comm_out = comm;
    return rc;
}
