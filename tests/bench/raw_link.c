/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections of raw_sockets: the receiver's side listens where it is told, in its own network
 * namespace, and the sender's side connects as often as connections are wanted. The number of each
 * is the first byte on it. Options are set before a connection is made, since windows are agreed
 * upon then.
 *
 * Thread: a side's first. */
#include "raw_sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

static int make_socket(const struct raw_options *options)
{
    const int on = 1, room = (int)options->buffer_bytes;
    int fd = socket(options->family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        raw_die("no socket: %s", strerror(errno));
    if (room && (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) ||
                 setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room))))
        raw_die("no buffers of %d bytes: %s", room, strerror(errno));
    if (options->family == AF_UNIX)
        return fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (options->congestion && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, options->congestion,
                                          (socklen_t)strlen(options->congestion)))
        raw_die("congestion control %s: %s", options->congestion, strerror(errno));
    return fd;
}

/* Port 0, or of a Unix socket no name: the system chooses. */
static socklen_t own_address(const struct raw_options *options, struct sockaddr_storage *out)
{
    struct sockaddr_in *in = (struct sockaddr_in *)out;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
    const char *text = options->address;

    memset(out, 0, sizeof(*out));
    out->ss_family = (sa_family_t)options->family;
    if (options->family == AF_UNIX)
        return sizeof(sa_family_t);
    if (options->family == AF_INET) {
        if (inet_pton(AF_INET, text ? text : "127.0.0.1", &in->sin_addr) != 1)
            raw_die("%s is no IPv4 address", text);
        return sizeof(*in);
    }
    if (inet_pton(AF_INET6, text ? text : "::1", &in6->sin6_addr) != 1)
        raw_die("%s is no IPv6 address", text);
    return sizeof(*in6);
}

static void accept_all(struct raw_side *side, int listener)
{
    for (int i = 0; i < side->fd_count; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        unsigned char number = 0;

        if (fd < 0 || recv(fd, &number, 1, MSG_WAITALL) != 1 || number >= side->fd_count)
            raw_die("cannot accept: %s", strerror(errno));
        side->fds[number] = fd;
    }
}

static void listen_side(struct raw_side *side)
{
    struct raw_shared *shared = side->shared;
    struct sockaddr_storage address;
    socklen_t bytes = own_address(side->options, &address);
    int listener = make_socket(side->options);

    if (bind(listener, (struct sockaddr *)&address, bytes) || listen(listener, SOMAXCONN))
        raw_die("cannot listen at %s: %s",
                side->options->address ? side->options->address : "loopback", strerror(errno));
    shared->address_bytes = sizeof(shared->address);
    if (getsockname(listener, (struct sockaddr *)&shared->address, &shared->address_bytes))
        raw_die("no address: %s", strerror(errno));
    pthread_barrier_wait(&shared->gate);
    accept_all(side, listener);
    close(listener);
}

static void connect_side(struct raw_side *side)
{
    struct raw_shared *shared = side->shared;

    pthread_barrier_wait(&shared->gate);
    for (int i = 0; i < side->fd_count; i++) {
        unsigned char number = (unsigned char)i;

        side->fds[i] = make_socket(side->options);
        if (connect(side->fds[i], (struct sockaddr *)&shared->address, shared->address_bytes) ||
            send(side->fds[i], &number, 1, MSG_NOSIGNAL) != 1)
            raw_die("cannot connect: %s", strerror(errno));
    }
}

void raw_connect(struct raw_side *side)
{
    if (side->number == 0)
        connect_side(side);
    else
        listen_side(side);
}
