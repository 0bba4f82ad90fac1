/* SPDX-License-Identifier: BSD-3-Clause */
/* The smallest complete network plugin: Unix stream sockets between processes of one host. The
 * rules are in xccl_net.h; plugins/README.md walks through this file. The handle is a secret of two
 * parts: the receiver's socket is named by the first, the sender's by the second, so accept knows
 * at once who has come and drops who has not the name or is of another user. A process that is
 * killed while it listens leaves the file of its socket behind in /tmp. Thread: rule 3. */
#define _GNU_SOURCE 1 /* accept4, struct ucred */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <xccl_net.h>

enum { TURNS = 64, HEADER = 16, BYTES_MAX = 1 << 30 };

struct secret { /* 40 bytes of a handle; NCCL's shim leaves us 96 */
    uint64_t receiver;
    uint8_t sender[32];
};
struct listener {
    int fd;
    struct sockaddr_un at, sender;
};
struct request {
    enum { FREE, ACTIVE, DONE } state;
    uint64_t header[2], bytes, tag; /* bytes and tag: on the wire; as posted */
    char *data;
    size_t moved; /* of header and data */
    struct comm *comm;
};
struct comm { /* requests are used round and round; those from current to end are ACTIVE */
    int fd, is_send;
    uint32_t current, end;
    xcclResult_t rc; /* the first error stays */
    struct request requests[XCCL_NET_MAX_REQUESTS];
};

static char nothing; /* to remember: instances and registrations are an address, no more */
static _Thread_local char last_error[160];
#define FAIL(rc, ...) (snprintf(last_error, sizeof(last_error), __VA_ARGS__), rc)

static const char *lb_last_error(void *ctx) { return last_error; }
static xcclResult_t lb_init(const xcclNetInit_v1 *init, void **ctx) {
    *ctx = &nothing;
    return xcclSuccess;
}
static xcclResult_t lb_finalize(void *ctx) { return xcclSuccess; }
static xcclResult_t lb_devices(void *ctx, int *count) { return *count = 1, xcclSuccess; }
static xcclResult_t lb_properties(void *ctx, int dev, xcclNetProperties_v1 *props) {
    xcclNetProperties_v1 all = {.size = props->size, .name = "loopback", .maxRecvs = 1};
    if (dev != 0) return FAIL(xcclInvalidArgument, "device %d of 1", dev);
    all.ptrSupport = XCCL_NET_PTR_HOST;
    all.maxBytes = BYTES_MAX;
    memcpy(props, &all, props->size < sizeof(all) ? props->size : sizeof(all));
    return xcclSuccess;
}

/* Connections. Nothing waits: what is not ready is asked again.
 * A socket, the receiver's address, which is a file, and the sender's, which is none. */
static int socket_of(const void *handle, struct sockaddr_un *at, struct sockaddr_un *sender) {
    struct secret secret;
    memcpy(&secret, handle, sizeof(secret));
    at->sun_family = sender->sun_family = AF_UNIX;
    snprintf(at->sun_path, 40, "/tmp/xccl-%016llx", (unsigned long long)secret.receiver);
    memcpy(sender->sun_path + 1, secret.sender, sizeof(secret.sender));
    return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}
static xcclResult_t lb_close_listen(void *listen_comm) {
    struct listener *own = listen_comm;
    if (own->fd >= 0) close(own->fd);
    unlink(own->at.sun_path);
    return free(own), xcclSuccess;
}
static xcclResult_t lb_listen(void *ctx, int dev, xcclNetHandle_t *handle, void **listen_comm) {
    struct listener *own = dev == 0 ? calloc(1, sizeof(*own)) : NULL;
    xcclNetHandle_t secret = {{0}};
    if (!own || getrandom(&secret, sizeof(struct secret), 0) != sizeof(struct secret))
        return free(own), FAIL(xcclSystemError, "device %d of 1, or no memory", dev);
    own->fd = socket_of(&secret, &own->at, &own->sender);
    if (own->fd < 0 || bind(own->fd, (struct sockaddr *)&own->at, sizeof(own->at)) != 0 ||
            listen(own->fd, SOMAXCONN) != 0) {
        (void)FAIL(xcclSystemError, "cannot listen in /tmp: %s", strerror(errno));
        return lb_close_listen(own), xcclSystemError;
    }
    return *handle = secret, *listen_comm = own, xcclSuccess;
}
static xcclResult_t lb_close(void *comm) {
    close(((struct comm *)comm)->fd);
    return free(comm), xcclSuccess;
}
static xcclResult_t lb_connect(
        void *ctx, int dev, const xcclNetHandle_t *handle, void **state, void **send_comm) {
    struct comm *comm = calloc(1, sizeof(*comm));
    struct sockaddr_un at = {0}, own = {0};
    int fd = socket_of(handle, &at, &own), err = comm ? 0 : ENOMEM;
    if (fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof(own)) != 0 ||
            connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0)
        err = errno;
    if (!err) {
        comm->fd = fd;
        comm->is_send = 1;
        return *send_comm = comm, xcclSuccess;
    }
    if (fd >= 0) close(fd);
    free(comm);
    if (err == EAGAIN) return *send_comm = NULL, xcclSuccess; /* many connect: ask again */
    return FAIL(xcclRemoteError, "cannot connect to %s: %s", at.sun_path, strerror(err));
}
static xcclResult_t lb_accept(void *listen_comm, void **recv_comm) {
    struct listener *own = listen_comm;
    struct sockaddr_un who = {0};
    struct ucred user = {.uid = (uid_t)-1};
    struct comm *comm = calloc(1, sizeof(*comm));
    int fd = accept4(own->fd, (struct sockaddr *)&who, &(socklen_t){sizeof(who)},
            SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (comm && fd >= 0) getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &(socklen_t){sizeof(user)});
    if (user.uid == geteuid() && memcmp(&who, &own->sender, sizeof(who)) == 0) {
        comm->fd = fd;
        unlink(own->at.sun_path);
        return *recv_comm = comm, xcclSuccess;
    }
    if (fd >= 0) close(fd); /* a stranger */
    if (!comm) return FAIL(xcclSystemError, "no memory for a comm");
    return free(comm), *recv_comm = NULL, xcclSuccess;
}

static xcclResult_t lb_reg_mr(void *comm, void *data, size_t bytes, uint32_t type, void **mem) {
    if (type != XCCL_NET_PTR_HOST) return FAIL(xcclInvalidArgument, "memory of type %u", type);
    return *mem = &nothing, xcclSuccess;
}
static xcclResult_t lb_forget(void *owner, void *what) { return xcclSuccess; } /* mem, connect */

/* Moves the current request, and those behind it, as far as the socket lets them. */
static void move(struct comm *comm) {
    for (int i = 0; i < TURNS && !comm->rc && comm->current != comm->end; i++) {
        struct request *r = &comm->requests[comm->current % XCCL_NET_MAX_REQUESTS];
        int in_header = r->moved < HEADER;
        char *at = in_header ? (char *)r->header + r->moved : r->data + r->moved - HEADER;
        size_t left = (in_header ? 0 : r->header[0]) + HEADER - r->moved;
        ssize_t n = comm->is_send ? send(comm->fd, at, left, MSG_NOSIGNAL)
                                  : recv(comm->fd, at, left, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        r->moved += n > 0 ? (size_t)n : 0;
        if (n <= 0) comm->rc = xcclRemoteError;
        if (comm->rc || r->moved < HEADER) continue;
        if (r->header[0] > r->bytes || r->header[1] != r->tag) comm->rc = xcclInvalidUsage;
        if (comm->rc || r->moved < HEADER + r->header[0]) continue;
        r->state = DONE;
        comm->current++;
    }
}
static xcclResult_t comm_error(const struct comm *comm) {
    if (comm->rc == xcclRemoteError) return FAIL(comm->rc, "the peer has closed or died");
    return FAIL(comm->rc, "a message is larger than its receive, or has another tag");
}
static xcclResult_t post(struct comm *comm, void *data, size_t bytes, uint32_t tag, void **out) {
    struct request *r = &comm->requests[comm->end % XCCL_NET_MAX_REQUESTS];
    if (comm->rc) return comm_error(comm);
    *out = r->state == FREE ? r : NULL; /* NULL: busy */
    if (!*out) return xcclSuccess;
    *r = (struct request){ACTIVE, {bytes, tag}, bytes, tag, data, 0, comm};
    comm->end++;
    return move(comm), xcclSuccess;
}
static xcclResult_t lb_isend(
        void *comm, const void *data, size_t bytes, uint32_t tag, void *mem, void **request) {
    if (bytes > BYTES_MAX) return FAIL(xcclInvalidArgument, "%zu bytes, at most 1 GiB", bytes);
    return post(comm, (void *)(uintptr_t)data, bytes, tag, request);
}
static xcclResult_t lb_irecv(void *comm, int count, void *const *data, const size_t *bytes,
        const uint32_t *tags, void *const *mems, void **request) {
    if (count != 1) return FAIL(xcclInvalidArgument, "%d receives in one, at most 1", count);
    return post(comm, data[0], bytes[0], tags[0], request);
}
static xcclResult_t lb_test(void *request, int *done, size_t *bytes) {
    struct request *r = request;
    if (r->state == ACTIVE) move(r->comm);
    if (r->state == ACTIVE && r->comm->rc) return comm_error(r->comm);
    *done = r->state == DONE;
    if (*done && bytes) bytes[0] = r->header[0];
    if (*done) r->state = FREE;
    return xcclSuccess;
}

/* clang-format off */
XCCL_NET_EXPORT const xcclNetPlugin_v1_t xcclNetPlugin_v1 = {
    .size = sizeof(xcclNetPlugin_v1_t), .name = "loopback", .wireVersion = 1,
    .init = lb_init, .finalize = lb_finalize, .devices = lb_devices, .properties = lb_properties,
    .listen = lb_listen, .connect = lb_connect, .closeConnect = lb_forget, .accept = lb_accept,
    .regMr = lb_reg_mr, .deregMr = lb_forget, .isend = lb_isend, .irecv = lb_irecv,
    .test = lb_test, .closeSend = lb_close, .closeRecv = lb_close, .closeListen = lb_close_listen,
    .lastError = lb_last_error,
};
