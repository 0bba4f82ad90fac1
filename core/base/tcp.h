/* SPDX-License-Identifier: BSD-3-Clause */
/* Stream sockets with manners: every descriptor is non-blocking and CLOEXEC, EINTR is handled,
 * every wait has a deadline and an abort flag, SIGPIPE is never raised. TCP and Unix alike. Errors
 * name the peer's address. Any thread; a descriptor belongs to one thread at a time. */
#ifndef XCCL_BASE_TCP_H
#define XCCL_BASE_TCP_H

#include <stddef.h>

#include "base/clock.h"
#include "base/netaddr.h"

/* Listens on addr; port 0 takes one of XCCL_PORT_RANGE, or the system's choice when that is empty.
 * TCP: SO_REUSEADDR, never SO_REUSEPORT; TCP_DEFER_ACCEPT, so clients must speak first.
 * Unix: an abstract name. bound_out (may be NULL) gets the real address. */
xcclResult_t xccl_tcp_listen(const struct xccl_addr *addr, int *fd_out,
                             struct xccl_addr *bound_out);
/* xccl_tcp_listen() without the log line, for addresses that may be missing. */
xcclResult_t xccl_tcp_listen_quietly(const struct xccl_addr *addr, int *fd_out,
                                     struct xccl_addr *bound_out);

/* Takes one connection. Nobody there: xcclSuccess and *fd_out = -1; so too for a peer that has gone
 * already. peer_out may be NULL. An error, told quietly, is most likely a lack of descriptors: the
 * connection stays in the kernel's queue. */
xcclResult_t xccl_tcp_accept(int listen_fd, int *fd_out, struct xccl_addr *peer_out);

/* Starts a connection; *fd_out polls writable when it is decided. */
xcclResult_t xccl_tcp_connect_start(const struct xccl_addr *addr, int *fd_out);
/* Starts a connection in two steps, for options that must be set before it: open makes a socket for
 * addr, connect_on starts it. A socket that cannot start is closed, *fd -1. */
xcclResult_t xccl_tcp_open(const struct xccl_addr *addr, int *fd_out);
xcclResult_t xccl_tcp_connect_on(int *fd, const struct xccl_addr *addr);
/* Asks after one: *done_out 1 when connected; xcclRemoteError when refused or not reached, which
 * may be tried again; xcclSystemError when this host cannot connect. Never blocks. */
xcclResult_t xccl_tcp_connect_test(int fd, const struct xccl_addr *addr, int *done_out);
/* errno of the thread's last connect_on or connect_test that failed, or of its last connect_start;
 * 0: that one was started. */
int xccl_tcp_connect_err(void);
/* Start and wait; a refused TCP connection is tried again, with pauses that grow to 100 ms, until
 * limit. A Unix name that refuses is xcclRemoteError at once: nobody has it any more. */
xcclResult_t xccl_tcp_connect(const struct xccl_addr *addr, const struct xccl_limit *limit,
                              int *fd_out);

/* Waits for events (POLLIN, POLLOUT). xcclTimeout when the limit passes. */
xcclResult_t xccl_tcp_wait(int fd, short events, const struct xccl_limit *limit);

/* What can be moved now, possibly 0 bytes. *moved_out < bytes is not an error. A closed peer is
 * xcclRemoteError. recv: end of stream is xcclRemoteError too. No log line for either: quiet. */
xcclResult_t xccl_tcp_send_some(int fd, const void *data, size_t bytes, size_t *moved_out);
xcclResult_t xccl_tcp_recv_some(int fd, void *data, size_t bytes, size_t *moved_out);
/* 1: nothing can come any more, and nothing lies here unread. */
int xccl_tcp_has_ended(int fd);
/* All of it, or an error. */
xcclResult_t xccl_tcp_send_all(int fd, const void *data, size_t bytes,
                               const struct xccl_limit *limit);
xcclResult_t xccl_tcp_recv_all(int fd, void *data, size_t bytes, const struct xccl_limit *limit);

/* One byte that carries descriptors over a Unix socket; waits. recv closes what it did not expect.
 */
xcclResult_t xccl_tcp_send_fd(int unix_fd, int fd, const struct xccl_limit *limit);
xcclResult_t xccl_tcp_recv_fd(int unix_fd, const struct xccl_limit *limit, int *fd_out);

/* The addresses of a connection's own and of its other end. 0, or -1: it has none. */
int xccl_tcp_local_addr(int fd, struct xccl_addr *addr_out);
int xccl_tcp_peer_addr(int fd, struct xccl_addr *addr_out);
/* The other end's address as text, "?" when unknown. */
void xccl_tcp_peer_text(int fd, char text_out[XCCL_ADDR_TEXT_BYTES]);
/* Closing fd will drop what is under way and leave nothing behind in the kernel: for strangers. */
void xccl_tcp_reset_on_close(int fd);
void xccl_tcp_close(int *fd); /* closes unless -1, and makes it -1 */

#endif
