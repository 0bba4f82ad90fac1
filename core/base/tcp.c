/* SPDX-License-Identifier: BSD-3-Clause */
/* Stream sockets, TCP and abstract Unix names. All waiting is done by poll, in pieces short enough
 * to see the abort flag; system calls that were interrupted are done again.
 *
 * Refused TCP connections are the one error that is retried, in xccl_tcp_connect() only. Data that
 * meets a closed peer is told quietly, since the owner of the connection knows better what it
 * means.
 *
 * Thread: any; a descriptor belongs to one thread at a time. */
#include "base/tcp_int.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/inject.h"
#include "base/os.h"
#include "base/param.h"

/* Silent connections wait in the kernel, up to this many of them (and up to net.core.somaxconn),
 * until they speak or DEFER_ACCEPT_S have passed, rounded up to the kernel's 7 s; more are handed
 * over at once, by SYN cookies. A full queue drops what comes next, and a rank that is dropped
 * tries again after a whole second, so the queue is as long as systems usually allow. */
#define BACKLOG          4096
#define DEFER_ACCEPT_S   5
#define LISTEN_TRIES     16
#define CONNECT_PAUSE_MS 100
#define RECV_FD_MAX      8 /* descriptors taken from one message, to be closed if unexpected */
#define TODO_DESCRIPTORS "raise ulimit -n"
#define TODO_CONNECT     "check that the peer runs and that no firewall is between"

static int is_unix(const struct xccl_addr *addr)
{
    return addr->bytes && addr->sa.any.sa_family == AF_UNIX;
}

/* A family that is spoken here, and no Unix name that would leave a file. */
static xcclResult_t check_addr(const struct xccl_addr *addr)
{
    char text[XCCL_ADDR_TEXT_BYTES];

    if (is_unix(addr) && addr->bytes > offsetof(struct sockaddr_un, sun_path) &&
        addr->bytes <= sizeof(struct sockaddr_un) && addr->sa.un.sun_path[0] == '\0')
        return xcclSuccess;
    if (addr->bytes == sizeof(struct sockaddr_in) && addr->sa.any.sa_family == AF_INET)
        return xcclSuccess;
    if (addr->bytes == sizeof(struct sockaddr_in6) && addr->sa.any.sa_family == AF_INET6)
        return xcclSuccess;
    xccl_addr_format(addr, text);
    return xccl_fail(xcclInvalidArgument, 0, "give an IPv4, IPv6 or abstract Unix address",
                     "%s is not a socket address", text);
}

/* -1 with errno on failure. */
static int socket_open(const struct xccl_addr *addr)
{
    if (xccl_inject_due()) {
        errno = EMFILE;
        return -1;
    }
    return socket(addr->sa.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static void set_option(int fd, int level, int option, int value)
{
    /* All options set here make things faster or kinder; none is needed for being right. */
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

/* Whether the limit ends a wait now. An abort is told quietly: whoever set the flag knows. */
static xcclResult_t limit_check(const struct xccl_limit *limit, int fd, const char *doing)
{
    char peer[XCCL_ADDR_TEXT_BYTES];

    if (xccl_limit_aborted(limit)) {
        xccl_tcp_peer_text(fd, peer);
        return xccl_fail_quietly(xcclInvalidUsage, 0, NULL, "aborted while %s %s", doing, peer);
    }
    if (xccl_limit_passed(limit)) {
        xccl_tcp_peer_text(fd, peer);
        return xccl_fail(xcclTimeout, 0, "check whether the peer still runs",
                         "timed out while %s %s", doing, peer);
    }
    return xcclSuccess;
}

/* ---- listening ---- */

/* One of 0 and errno. EADDRINUSE may come from listen() as well: SO_REUSEADDR lets two sockets that
 * do not listen yet bind one port. */
static int listen_once(const struct xccl_addr *addr, int *fd_out)
{
    int fd = socket_open(addr);
    int err;

    if (fd < 0)
        return errno;
    if (!is_unix(addr)) {
        set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        set_option(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, DEFER_ACCEPT_S);
    }
    if (bind(fd, &addr->sa.any, addr->bytes) != 0 || listen(fd, BACKLOG) != 0) {
        err = errno;
        close(fd);
        return err;
    }
    *fd_out = fd;
    return 0;
}

/* One port of "LOW-HIGH"; end is the character that must follow it. */
static int parse_port(const char **text, char end, uint32_t *port_out)
{
    const char *at = *text;
    uint32_t port = 0;

    if (*at == '0')
        return 0;
    while (*at >= '0' && *at <= '9' && port <= UINT16_MAX)
        port = port * 10 + (uint32_t)(*at++ - '0');
    if (*at != end || port == 0 || port > UINT16_MAX)
        return 0;
    *text = at + (end != '\0');
    *port_out = port;
    return 1;
}

int xccl_port_range_parse(const char *text, struct xccl_port_range *range_out)
{
    struct xccl_port_range range;

    if (!parse_port(&text, '-', &range.low) || !parse_port(&text, '\0', &range.high) ||
        range.low > range.high)
        return -1;
    *range_out = range;
    return 0;
}

static xcclResult_t port_range_get(struct xccl_port_range *range_out)
{
    const char *text = xccl_param_string(XCCL_P_PORT_RANGE);

    *range_out = (struct xccl_port_range){0, 0};
    if (text[0] != '\0' && xccl_port_range_parse(text, range_out) != 0)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "give LOW-HIGH, both from 1 to 65535",
                                 "XCCL_PORT_RANGE=\"%.64s\" is not a range of ports", text);
    return xcclSuccess;
}

/* Every port of the range, from a random one on, so that ranks which start together rarely collide.
 */
static int listen_range(struct xccl_addr *addr, const struct xccl_port_range *range,
                        uint32_t random, int *fd_out)
{
    uint32_t count = range->high - range->low + 1;
    int err = EADDRINUSE;

    for (uint32_t i = 0; i < count && err == EADDRINUSE; i++) {
        xccl_addr_set_port(addr, (uint16_t)(range->low + (random % count + i) % count));
        err = listen_once(addr, fd_out);
    }
    return err;
}

static xcclResult_t listen_fail(const struct xccl_addr *addr, const struct xccl_port_range *range,
                                int err)
{
    char text[XCCL_ADDR_TEXT_BYTES];

    if (range->high && err == EADDRINUSE)
        return xccl_fail_quietly(xcclSystemError, err, "widen XCCL_PORT_RANGE",
                                 "no port of XCCL_PORT_RANGE %u-%u is free", range->low,
                                 range->high);
    xccl_addr_format(addr, text);
    return xccl_fail_quietly(xcclSystemError, err,
                             err == EMFILE || err == ENFILE ? TODO_DESCRIPTORS
                                                            : "choose another address or port",
                             "cannot listen on %s", text);
}

/* A fine address; errors are not logged. */
static xcclResult_t listen_at(const struct xccl_addr *addr, int *fd_out,
                              struct xccl_addr *bound_out)
{
    struct xccl_port_range range = {0, 0};
    struct xccl_addr trial = *addr;
    int fd = -1, err = EADDRINUSE;
    uint32_t random = 0;
    xcclResult_t rc;

    if (!is_unix(addr) && xccl_addr_port(addr) == 0) {
        rc = port_range_get(&range);
        if (!rc)
            rc = xccl_os_random(&random, sizeof(random));
        if (rc)
            return rc;
    }
    if (range.high) {
        err = listen_range(&trial, &range, random, &fd);
    } else {
        /* The system's choice can collide with another socket that is about to listen. */
        int tries = !is_unix(addr) && xccl_addr_port(addr) == 0 ? LISTEN_TRIES : 1;

        for (int i = 0; i < tries && err == EADDRINUSE; i++)
            err = listen_once(&trial, &fd);
    }
    if (err)
        return listen_fail(addr, &range, err);
    if (bound_out) {
        memset(&trial, 0, sizeof(trial));
        trial.bytes = sizeof(trial.sa);
        if (getsockname(fd, &trial.sa.any, &trial.bytes) != 0) {
            rc = xccl_fail_quietly(xcclSystemError, errno, NULL,
                                   "cannot query the address of a listening socket");
            close(fd);
            return rc;
        }
        *bound_out = trial;
    }
    *fd_out = fd;
    return xcclSuccess;
}

xcclResult_t xccl_tcp_listen_quietly(const struct xccl_addr *addr, int *fd_out,
                                     struct xccl_addr *bound_out)
{
    xcclResult_t rc = check_addr(addr);

    return rc ? rc : listen_at(addr, fd_out, bound_out);
}

xcclResult_t xccl_tcp_listen(const struct xccl_addr *addr, int *fd_out, struct xccl_addr *bound_out)
{
    xcclResult_t rc = check_addr(addr);

    return rc ? rc : xccl_error_tell(listen_at(addr, fd_out, bound_out));
}

/* What accept tells about a connection that failed before it was taken; the next one may be well.
 */
static int accept_is_nobody(int err)
{
    static const int nobody[] = {EAGAIN,       ECONNABORTED, EPROTO,    EPERM,
                                 ENETDOWN,     ENOPROTOOPT,  EHOSTDOWN, ENONET,
                                 EHOSTUNREACH, ENETUNREACH,  ETIMEDOUT};

    for (size_t i = 0; i < sizeof(nobody) / sizeof(nobody[0]); i++) {
        if (err == nobody[i])
            return 1;
    }
    return 0;
}

xcclResult_t xccl_tcp_accept(int listen_fd, int *fd_out, struct xccl_addr *peer_out)
{
    struct xccl_addr peer;
    int fd = -1, err = 0;

    do {
        memset(&peer, 0, sizeof(peer));
        peer.bytes = sizeof(peer.sa);
        if (xccl_inject_due()) {
            err = EMFILE;
            break;
        }
        fd = accept4(listen_fd, &peer.sa.any, &peer.bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        err = fd < 0 ? errno : 0;
    } while (err == EINTR);
    if (err && !accept_is_nobody(err))
        return xccl_fail_quietly(xcclSystemError, err,
                                 err == EMFILE || err == ENFILE ? TODO_DESCRIPTORS : NULL,
                                 "cannot accept a connection");
    if (fd >= 0 && !is_unix(&peer))
        set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (fd >= 0 && peer_out)
        *peer_out = peer;
    *fd_out = fd;
    return xcclSuccess;
}

/* ---- connecting ---- */

/* 0 or errno. An interrupted connect goes on by itself, like one that is in progress. */
static int connect_open(const struct xccl_addr *addr, int *fd_out)
{
    int fd = socket_open(addr);

    if (fd < 0)
        return errno;
    if (!is_unix(addr))
        set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    *fd_out = fd;
    return 0;
}

static int connect_on(int *fd, const struct xccl_addr *addr)
{
    int err = 0;

    if (xccl_inject_due())
        err = ENETDOWN;
    else if (connect(*fd, &addr->sa.any, addr->bytes) != 0)
        err = errno;
    if (!err || err == EINPROGRESS || err == EINTR)
        return 0;
    xccl_tcp_close(fd);
    return err;
}

static int connect_begin(const struct xccl_addr *addr, int *fd_out)
{
    int fd = -1;
    int err = connect_open(addr, &fd);

    if (!err)
        err = connect_on(&fd, addr);
    if (!err)
        *fd_out = fd;
    return err;
}

int xccl_tcp_local_addr(int fd, struct xccl_addr *addr_out)
{
    struct xccl_addr here = {.bytes = sizeof(here.sa)};

    if (getsockname(fd, &here.sa.any, &here.bytes) != 0)
        return -1;
    *addr_out = here;
    return 0;
}

int xccl_tcp_peer_addr(int fd, struct xccl_addr *addr_out)
{
    struct xccl_addr there = {.bytes = sizeof(there.sa)};

    if (getpeername(fd, &there.sa.any, &there.bytes) != 0)
        return -1;
    *addr_out = there;
    return 0;
}

/* A port of the system's choice on this host can connect to itself while nobody listens there. */
static int connected_to_itself(int fd)
{
    struct xccl_addr here, there;

    if (xccl_tcp_local_addr(fd, &here) != 0 || xccl_tcp_peer_addr(fd, &there) != 0)
        return 0;
    return !is_unix(&here) && xccl_addr_equal(&here, &there);
}

/* 0 with *done_out, or errno. */
static int connect_verdict(int fd, int *done_out)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    socklen_t bytes = sizeof(int);
    int err = 0, ready;

    do {
        ready = poll(&wait, 1, 0);
    } while (ready < 0 && errno == EINTR);
    if (ready < 0)
        return errno;
    if (wait.revents & POLLNVAL)
        return EBADF;
    if (ready == 0) {
        *done_out = 0;
        return 0;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &bytes) != 0)
        return errno;
    if (err == 0 && connected_to_itself(fd))
        err = ECONNREFUSED;
    if (err == 0)
        *done_out = 1;
    return err;
}

/* Quiet: who asked for the connection knows what for, and tells. */
static int connect_may_retry(int err)
{
    return err == ECONNREFUSED || err == ETIMEDOUT || err == EHOSTUNREACH || err == EAGAIN ||
           err == ECONNRESET;
}

/* A Unix name is told when its owner listens, and a full queue is EAGAIN: refused, the owner has
 * gone, and whoever waited for it would wait in vain. */
static int connect_may_come(const struct xccl_addr *addr, int err)
{
    return connect_may_retry(err) && !(is_unix(addr) && err == ECONNREFUSED);
}

static _Thread_local int connect_err; /* why a connection of this thread failed last */

int xccl_tcp_connect_err(void)
{
    return connect_err;
}

/* What another try may mend is the peer's trouble, all else is this host's. */
static xcclResult_t connect_fail(const struct xccl_addr *addr, int err)
{
    char text[XCCL_ADDR_TEXT_BYTES];

    connect_err = err;
    xccl_addr_format(addr, text);
    if (err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS || err == EBADF)
        return xccl_fail_quietly(xcclSystemError, err, TODO_DESCRIPTORS, "cannot connect to %s",
                                 text);
    return xccl_fail_quietly(connect_may_retry(err) ? xcclRemoteError : xcclSystemError, err,
                             TODO_CONNECT, "cannot connect to %s", text);
}

xcclResult_t xccl_tcp_connect_start(const struct xccl_addr *addr, int *fd_out)
{
    xcclResult_t rc = check_addr(addr);
    int err;

    connect_err = 0;
    if (rc)
        return rc;
    err = connect_begin(addr, fd_out);
    return err ? connect_fail(addr, err) : xcclSuccess;
}

xcclResult_t xccl_tcp_open(const struct xccl_addr *addr, int *fd_out)
{
    xcclResult_t rc = check_addr(addr);
    int err;

    connect_err = 0;
    if (rc)
        return rc;
    err = connect_open(addr, fd_out);
    return err ? connect_fail(addr, err) : xcclSuccess;
}

xcclResult_t xccl_tcp_connect_on(int *fd, const struct xccl_addr *addr)
{
    int err = connect_on(fd, addr);

    return err ? connect_fail(addr, err) : xcclSuccess;
}

xcclResult_t xccl_tcp_connect_test(int fd, const struct xccl_addr *addr, int *done_out)
{
    int err = connect_verdict(fd, done_out);

    return err ? connect_fail(addr, err) : xcclSuccess;
}

/* Sleeps at most ms; fd -1: only sleeps. An early return is fine: callers loop. */
static void poll_briefly(int fd, short events, int ms)
{
    struct pollfd wait = {.fd = fd, .events = events};

    (void)poll(&wait, fd >= 0 ? 1 : 0, ms);
}

static xcclResult_t connect_give_up(const struct xccl_addr *addr, const struct xccl_limit *limit,
                                    int last_err)
{
    char text[XCCL_ADDR_TEXT_BYTES];

    xccl_addr_format(addr, text);
    if (xccl_limit_aborted(limit))
        return xccl_fail_quietly(xcclInvalidUsage, 0, NULL, "aborted while connecting to %s", text);
    if (last_err)
        return xccl_fail(xcclTimeout, last_err, TODO_CONNECT,
                         "no connection to %s before the deadline; last attempt", text);
    return xccl_fail(xcclTimeout, 0, TODO_CONNECT,
                     "no connection to %s before the deadline; there was no answer", text);
}

static int must_stop(const struct xccl_limit *limit)
{
    return xccl_limit_aborted(limit) || xccl_limit_passed(limit);
}

xcclResult_t xccl_tcp_connect(const struct xccl_addr *addr, const struct xccl_limit *limit,
                              int *fd_out)
{
    int pause_ms = 1, left_ms, last_err = 0, fd = -1, done = 0;
    xcclResult_t rc = check_addr(addr);

    if (rc)
        return rc;
    for (;;) {
        int err = connect_begin(addr, &fd);

        while (!err) {
            err = connect_verdict(fd, &done);
            if (err || done || must_stop(limit))
                break;
            poll_briefly(fd, POLLOUT, xccl_limit_poll_ms(limit));
        }
        if (!err && done)
            break;
        xccl_tcp_close(&fd);
        if (err && !connect_may_come(addr, err))
            return connect_fail(addr, err);
        last_err = err ? err : last_err;
        if (must_stop(limit))
            return connect_give_up(addr, limit, last_err);
        left_ms = xccl_limit_poll_ms(limit);
        poll_briefly(-1, 0, left_ms >= 0 && left_ms < pause_ms ? left_ms : pause_ms);
        pause_ms = pause_ms * 2 < CONNECT_PAUSE_MS ? pause_ms * 2 : CONNECT_PAUSE_MS;
    }
    *fd_out = fd;
    return xcclSuccess;
}

/* ---- data ---- */

xcclResult_t xccl_tcp_wait(int fd, short events, const struct xccl_limit *limit)
{
    if (fd < 0)
        return xccl_fail(xcclInternalError, EBADF, NULL, "cannot wait for a socket");
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = events};
        xcclResult_t rc;
        int ready;

        /* An abort wins over data; data wins over a deadline that has passed. */
        if (!xccl_limit_aborted(limit)) {
            ready = poll(&wait, 1, xccl_limit_poll_ms(limit));
            if (ready < 0 && errno != EINTR)
                return xccl_fail(xcclSystemError, errno, NULL, "cannot wait for a socket");
            if (ready > 0 && (wait.revents & POLLNVAL))
                return xccl_fail(xcclInternalError, EBADF, NULL, "cannot wait for a socket");
            if (ready > 0)
                return xcclSuccess;
        }
        rc = limit_check(limit, fd, "waiting for");
        if (rc)
            return rc;
    }
}

static xcclResult_t data_fail(int fd, int err, const char *doing)
{
    char peer[XCCL_ADDR_TEXT_BYTES];

    xccl_tcp_peer_text(fd, peer);
    return xccl_fail_quietly(xcclRemoteError, err, NULL, "%s %s failed", doing, peer);
}

static xcclResult_t stream_ended(int fd)
{
    char peer[XCCL_ADDR_TEXT_BYTES];

    xccl_tcp_peer_text(fd, peer);
    return xccl_fail_quietly(xcclRemoteError, 0, NULL, "%s closed the connection", peer);
}

xcclResult_t xccl_tcp_send_some(int fd, const void *data, size_t bytes, size_t *moved_out)
{
    ssize_t moved = 0;

    if (bytes > 0) {
        do {
            moved = send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        } while (moved < 0 && errno == EINTR);
    }
    if (moved < 0 && errno != EAGAIN)
        return data_fail(fd, errno, "sending to");
    *moved_out = moved < 0 ? 0 : (size_t)moved;
    return xcclSuccess;
}

xcclResult_t xccl_tcp_recv_some(int fd, void *data, size_t bytes, size_t *moved_out)
{
    ssize_t moved;

    if (bytes == 0) {
        *moved_out = 0;
        return xcclSuccess;
    }
    do {
        moved = recv(fd, data, bytes, MSG_DONTWAIT);
    } while (moved < 0 && errno == EINTR);
    if (moved == 0)
        return stream_ended(fd);
    if (moved < 0 && errno != EAGAIN)
        return data_fail(fd, errno, "receiving from");
    *moved_out = moved < 0 ? 0 : (size_t)moved;
    return xcclSuccess;
}

int xccl_tcp_has_ended(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

/* Between two pieces of a transfer: waits when nothing moved, else looks whether time is up. */
static xcclResult_t between_pieces(int fd, short events, size_t moved,
                                   const struct xccl_limit *limit)
{
    if (moved == 0)
        return xccl_tcp_wait(fd, events, limit);
    return limit_check(limit, fd, events == POLLOUT ? "sending to" : "receiving from");
}

xcclResult_t xccl_tcp_send_all(int fd, const void *data, size_t bytes,
                               const struct xccl_limit *limit)
{
    const char *at = data;

    while (bytes > 0) {
        size_t moved = 0;
        xcclResult_t rc = xccl_tcp_send_some(fd, at, bytes, &moved);

        at += moved;
        bytes -= moved;
        if (!rc && bytes > 0)
            rc = between_pieces(fd, POLLOUT, moved, limit);
        if (rc)
            return rc;
    }
    return xcclSuccess;
}

xcclResult_t xccl_tcp_recv_all(int fd, void *data, size_t bytes, const struct xccl_limit *limit)
{
    char *at = data;

    while (bytes > 0) {
        size_t moved = 0;
        xcclResult_t rc = xccl_tcp_recv_some(fd, at, bytes, &moved);

        at += moved;
        bytes -= moved;
        if (!rc && bytes > 0)
            rc = between_pieces(fd, POLLIN, moved, limit);
        if (rc)
            return rc;
    }
    return xcclSuccess;
}

/* ---- descriptors ---- */

xcclResult_t xccl_tcp_send_fd(int unix_fd, int fd, const struct xccl_limit *limit)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char byte = 'F';
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};

    memset(&control, 0, sizeof(control));
    control.align.cmsg_level = SOL_SOCKET;
    control.align.cmsg_type = SCM_RIGHTS;
    control.align.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.align), &fd, sizeof(int));
    for (;;) {
        xcclResult_t rc;

        if (sendmsg(unix_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
            return xcclSuccess;
        if (errno == EBADF)
            return xccl_fail(xcclInternalError, errno, NULL, "cannot send descriptor %d", fd);
        if (errno != EAGAIN && errno != EINTR)
            return data_fail(unix_fd, errno, "sending a descriptor to");
        rc = xccl_tcp_wait(unix_fd, POLLOUT, limit);
        if (rc)
            return rc;
    }
}

/* Takes the descriptors out of a message; -1 unless it was exactly one, and then none stays open.
 */
static int take_only_fd(struct msghdr *message)
{
    int only = -1, count = 0;

    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
        size_t bytes = at->cmsg_len - CMSG_LEN(0);

        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i + sizeof(int) <= bytes; i += sizeof(int)) {
            int fd;

            memcpy(&fd, CMSG_DATA(at) + i, sizeof(fd));
            if (count++ == 0)
                only = fd;
            else
                close(fd);
        }
    }
    if (count != 1 || (message->msg_flags & MSG_CTRUNC))
        xccl_tcp_close(&only);
    return only;
}

xcclResult_t xccl_tcp_recv_fd(int unix_fd, const struct xccl_limit *limit, int *fd_out)
{
    for (;;) {
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(RECV_FD_MAX * sizeof(int))];
        } control;
        char byte = 0;
        struct iovec part = {.iov_base = &byte, .iov_len = 1};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof(control.bytes)};
        ssize_t got = recvmsg(unix_fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        xcclResult_t rc;

        if (got == 0)
            return stream_ended(unix_fd);
        if (got > 0) {
            char peer[XCCL_ADDR_TEXT_BYTES];
            int fd = take_only_fd(&message);

            if (fd >= 0) {
                *fd_out = fd;
                return xcclSuccess;
            }
            xccl_tcp_peer_text(unix_fd, peer);
            return xccl_fail(xcclRemoteError, 0,
                             "raise ulimit -n if this process has few files left",
                             "%s did not send exactly one descriptor", peer);
        }
        if (errno != EAGAIN && errno != EINTR)
            return data_fail(unix_fd, errno, "receiving a descriptor from");
        rc = xccl_tcp_wait(unix_fd, POLLIN, limit);
        if (rc)
            return rc;
    }
}

/* ---- names and ends ---- */

void xccl_tcp_peer_text(int fd, char text_out[XCCL_ADDR_TEXT_BYTES])
{
    struct xccl_addr peer = {.bytes = sizeof(peer.sa)};
    struct ucred who;
    socklen_t bytes = sizeof(who);

    if (getpeername(fd, &peer.sa.any, &peer.bytes) != 0 || peer.bytes == 0) {
        snprintf(text_out, XCCL_ADDR_TEXT_BYTES, "?");
        return;
    }
    /* The connecting end of a Unix socket has no name, but the kernel knows its process. */
    if (is_unix(&peer) && peer.bytes <= offsetof(struct sockaddr_un, sun_path) &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0) {
        snprintf(text_out, XCCL_ADDR_TEXT_BYTES, "unix:process %d", (int)who.pid);
        return;
    }
    xccl_addr_format(&peer, text_out);
}

void xccl_tcp_reset_on_close(int fd)
{
    const struct linger none = {.l_onoff = 1, .l_linger = 0};

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

void xccl_tcp_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}
