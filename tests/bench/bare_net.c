/* SPDX-License-Identifier: BSD-3-Clause */
/* Bare sockets behind the contract of network plugins, for `xccl net perf socket --vs`: the same
 * program moves the same memory over net-socket and over a connection that carries nothing but
 * payload, round by round. No header, no tag, no token, no failover; a receive is as large as its
 * message. BARE_NET is `unix`, `tcp4` or `tcp6`; TCP has CUBIC, which net-socket chooses on short
 * ways, and goes to the first address that is not loopback, if there is one.
 *
 * For measuring alone: whoever connects first is the sender.
 * Thread: one at a time a comm. */
#include <assert.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "xccl_net.h"

#define NAME_BYTES 16
#define BYTES_MAX  ((uint64_t)1 << 40)

struct way { /* a handle */
    struct sockaddr_storage addr;
    socklen_t len;
};

enum state { FREE, ACTIVE, DONE };

struct request {
    enum state state;
    char *data;
    size_t bytes, moved;
    struct comm *comm;
};

struct comm { /* requests from current to end are ACTIVE */
    int fd, wait_fd, sends;
    uint32_t current, end;
    xcclResult_t rc;
    struct request requests[XCCL_NET_MAX_REQUESTS];
};

static char instance;
static _Thread_local char error[160];

static_assert(sizeof(struct sockaddr_un) <= sizeof(struct sockaddr_storage), "any address fits");

static xcclResult_t failed(const char *what)
{
    snprintf(error, sizeof(error), "%s: %s", what, strerror(errno));
    return xcclSystemError;
}

static const char *bn_last_error(xcclNetContext_t ctx)
{
    (void)ctx;
    return error;
}

static int family_of(const char *name)
{
    if (name && strcmp(name, "unix") == 0)
        return AF_UNIX;
    if (name && strcmp(name, "tcp6") == 0)
        return AF_INET6;
    return name && strcmp(name, "tcp4") == 0 ? AF_INET : -1;
}

static int family(void)
{
    return family_of(getenv("BARE_NET"));
}

static xcclResult_t bn_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out)
{
    (void)init;
    if (family() < 0) {
        snprintf(error, sizeof(error), "set BARE_NET to unix, tcp4 or tcp6");
        return xcclInvalidArgument;
    }
    *ctx_out = &instance;
    return xcclSuccess;
}

static xcclResult_t bn_finalize(xcclNetContext_t ctx)
{
    (void)ctx;
    return xcclSuccess;
}

static xcclResult_t bn_devices(xcclNetContext_t ctx, int *count_out)
{
    (void)ctx;
    *count_out = 1;
    return xcclSuccess;
}

static xcclResult_t bn_properties(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props)
{
    size_t size = props->size;

    (void)ctx, (void)dev;
    memset(props, 0, size);
    props->size = size;
    props->name = "unix"; /* as the figures ask both plugins for it: `--device unix` */
    props->ptrSupport = XCCL_NET_PTR_HOST;
    props->maxRecvs = 1;
    props->maxBytes = BYTES_MAX;
    return xcclSuccess;
}

/* ---- connections ---- */

/* Where others reach this end: an address of this host, or a name that nobody guesses. */
static int own_way(struct way *way)
{
    struct ifaddrs *all = NULL, *one;

    memset(way, 0, sizeof(*way));
    way->addr.ss_family = (sa_family_t)family();
    if (family() == AF_UNIX) {
        struct sockaddr_un *name = (struct sockaddr_un *)&way->addr;

        way->len = offsetof(struct sockaddr_un, sun_path) + 1 + NAME_BYTES;
        return getrandom(name->sun_path + 1, NAME_BYTES, 0) == NAME_BYTES ? 0 : -1;
    }
    if (family() == AF_INET6) {
        way->len = sizeof(struct sockaddr_in6);
        ((struct sockaddr_in6 *)&way->addr)->sin6_addr = in6addr_loopback;
        return 0;
    }
    way->len = sizeof(struct sockaddr_in);
    ((struct sockaddr_in *)&way->addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (getifaddrs(&all) != 0)
        return -1;
    for (one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET || one->ifa_flags & IFF_LOOPBACK)
            continue;
        memcpy(&way->addr, one->ifa_addr, sizeof(struct sockaddr_in));
        break;
    }
    freeifaddrs(all);
    return 0;
}

static void tune(int fd)
{
    int on = 1;

    if (family() == AF_UNIX)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", strlen("cubic"));
}

static xcclResult_t bn_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle_out,
                              xcclNetListenComm_t *listen_out)
{
    struct way way;
    int *fd = malloc(sizeof(*fd));

    (void)ctx, (void)dev;
    if (!fd || own_way(&way) != 0) {
        free(fd);
        return failed("listen");
    }
    *fd = socket(way.addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd >= 0)
        tune(*fd); /* those that come have it from the beginning */
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&way.addr, way.len) != 0 ||
        listen(*fd, SOMAXCONN) != 0 ||
        (family() != AF_UNIX && getsockname(*fd, (struct sockaddr *)&way.addr, &way.len) != 0)) {
        xcclResult_t rc = failed("listen");

        if (*fd >= 0)
            close(*fd);
        free(fd);
        return rc;
    }
    memset(handle_out, 0, sizeof(*handle_out));
    memcpy(handle_out, &way.len, sizeof(way.len));
    memcpy((char *)handle_out + sizeof(way.len), &way.addr, way.len);
    *listen_out = fd;
    return xcclSuccess;
}

static struct comm *comm_new(int fd, int sends)
{
    struct comm *comm = calloc(1, sizeof(*comm));

    if (!comm)
        return NULL;
    comm->fd = fd;
    comm->wait_fd = -1;
    comm->sends = sends;
    tune(fd);
    return comm;
}

static xcclResult_t bn_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                               xcclNetConnect_t *state, xcclNetSendComm_t *comm_out)
{
    struct sockaddr_storage addr;
    socklen_t len;
    int fd;

    (void)ctx, (void)dev, (void)state;
    memcpy(&len, handle, sizeof(len));
    if (len > sizeof(*handle) - sizeof(len))
        return failed("a handle of another plugin");
    memcpy(&addr, (const char *)handle + sizeof(len), len);
    fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        tune(fd);
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, len) != 0 ||
        !(*comm_out = comm_new(fd, 1))) {
        xcclResult_t rc = failed("connect");

        if (fd >= 0)
            close(fd);
        return rc;
    }
    return xcclSuccess;
}

static xcclResult_t bn_accept(xcclNetListenComm_t listener, xcclNetRecvComm_t *comm_out)
{
    int fd = accept4(*(int *)listener, NULL, NULL, SOCK_CLOEXEC);

    *comm_out = NULL;
    if (fd < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? xcclSuccess
                                                                         : failed("accept");
    *comm_out = comm_new(fd, 0);
    if (*comm_out)
        return xcclSuccess;
    close(fd);
    return failed("accept");
}

static xcclResult_t bn_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state)
{
    (void)ctx, (void)state;
    return xcclSuccess;
}

static xcclResult_t bn_close(void *comm_)
{
    struct comm *comm = comm_;

    if (comm->wait_fd >= 0)
        close(comm->wait_fd);
    close(comm->fd);
    free(comm);
    return xcclSuccess;
}

static xcclResult_t bn_close_listen(xcclNetListenComm_t listener)
{
    close(*(int *)listener);
    free(listener);
    return xcclSuccess;
}

/* ---- messages ---- */

static xcclResult_t bn_reg_mr(void *comm, void *data, size_t bytes, uint32_t type,
                              xcclNetMem_t *mem_out)
{
    (void)comm, (void)data, (void)bytes, (void)type;
    *mem_out = &instance;
    return xcclSuccess;
}

static xcclResult_t bn_dereg_mr(void *comm, xcclNetMem_t mem)
{
    (void)comm, (void)mem;
    return xcclSuccess;
}

/* One call for the message whose turn it is, so that two directions take turns. */
static void move(struct comm *comm)
{
    struct request *request = &comm->requests[comm->current % XCCL_NET_MAX_REQUESTS];
    size_t left = request->bytes - request->moved;
    char *at = request->data + request->moved;
    ssize_t moved = comm->sends ? send(comm->fd, at, left, MSG_DONTWAIT | MSG_NOSIGNAL)
                                : recv(comm->fd, at, left, MSG_DONTWAIT);

    if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (moved < 0) {
        comm->rc = failed("the connection");
        return;
    }
    if (moved == 0 && left > 0) {
        snprintf(error, sizeof(error), "the connection: the peer has closed it");
        comm->rc = xcclRemoteError;
        return;
    }
    request->moved += (size_t)moved;
    if (request->moved < request->bytes)
        return;
    request->state = DONE;
    comm->current++;
}

static xcclResult_t post(struct comm *comm, void *data, size_t bytes, xcclNetRequest_t *out)
{
    struct request *request = &comm->requests[comm->end % XCCL_NET_MAX_REQUESTS];

    *out = NULL;
    if (comm->rc != xcclSuccess || request->state != FREE)
        return comm->rc;
    *request = (struct request){ACTIVE, data, bytes, 0, comm};
    *out = request;
    if (comm->end++ == comm->current)
        move(comm);
    return xcclSuccess;
}

static xcclResult_t bn_isend(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                             xcclNetMem_t mem, xcclNetRequest_t *request_out)
{
    (void)tag, (void)mem;
    return post(comm, (void *)(uintptr_t)data, bytes, request_out);
}

static xcclResult_t bn_irecv(xcclNetRecvComm_t comm, int count, void *const *data,
                             const size_t *bytes, const uint32_t *tags, const xcclNetMem_t *mems,
                             xcclNetRequest_t *request_out)
{
    (void)count, (void)tags, (void)mems;
    return post(comm, data[0], bytes[0], request_out);
}

static xcclResult_t bn_test(xcclNetRequest_t request_, int *done, size_t *bytes)
{
    struct request *request = request_;

    if (request->state == ACTIVE && request->comm->rc == xcclSuccess)
        move(request->comm);
    *done = request->state == DONE;
    if (!*done)
        return request->comm->rc;
    if (bytes)
        *bytes = request->bytes;
    request->state = FREE;
    return xcclSuccess;
}

static xcclResult_t bn_wait_fd(void *comm_, int *fd_out)
{
    struct comm *comm = comm_;

    if (comm->wait_fd < 0) {
        struct epoll_event event = {.events = comm->sends ? EPOLLOUT : EPOLLIN};

        int fd = epoll_create1(EPOLL_CLOEXEC);

        if (fd < 0 || epoll_ctl(fd, EPOLL_CTL_ADD, comm->fd, &event) != 0) {
            xcclResult_t rc = failed("epoll");

            if (fd >= 0)
                close(fd);
            return rc;
        }
        comm->wait_fd = fd;
    }
    *fd_out = comm->wait_fd;
    return xcclSuccess;
}

XCCL_NET_EXPORT const xcclNetPlugin_v1_t xcclNetPlugin_v1 = {
    .size = sizeof(xcclNetPlugin_v1_t),
    .name = "bare",
    .wireVersion = 1,
    .init = bn_init,
    .finalize = bn_finalize,
    .devices = bn_devices,
    .properties = bn_properties,
    .listen = bn_listen,
    .connect = bn_connect,
    .closeConnect = bn_close_connect,
    .accept = bn_accept,
    .regMr = bn_reg_mr,
    .deregMr = bn_dereg_mr,
    .isend = bn_isend,
    .irecv = bn_irecv,
    .test = bn_test,
    .closeSend = bn_close,
    .closeRecv = bn_close,
    .closeListen = bn_close_listen,
    .lastError = bn_last_error,
    .waitFd = bn_wait_fd,
};
