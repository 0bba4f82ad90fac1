/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of base/tcp.h that wait. The bootstrap is moved by the service thread, which no peer
 * may hold up, so a call of one of these is a failure of the test.
 *
 * Thread: the only one. */
#include "base/tcp.h"
#include "sim_loop.h"

xcclResult_t xccl_tcp_connect(const struct xccl_addr *addr, const struct xccl_limit *limit,
                              int *fd_out)
{
    (void)addr;
    (void)limit;
    (void)fd_out;
    sim_fail("the library waited in xccl_tcp_connect");
}

xcclResult_t xccl_tcp_wait(int fd, short events, const struct xccl_limit *limit)
{
    (void)limit;
    sim_fail("the library waited in xccl_tcp_wait for descriptor %d, events %d", fd, events);
}

xcclResult_t xccl_tcp_send_all(int fd, const void *data, size_t bytes,
                               const struct xccl_limit *limit)
{
    (void)data;
    (void)limit;
    sim_fail("the library waited in xccl_tcp_send_all for descriptor %d, %zu bytes", fd, bytes);
}

xcclResult_t xccl_tcp_recv_all(int fd, void *data, size_t bytes, const struct xccl_limit *limit)
{
    (void)data;
    (void)limit;
    sim_fail("the library waited in xccl_tcp_recv_all for descriptor %d, %zu bytes", fd, bytes);
}

xcclResult_t xccl_tcp_send_fd(int unix_fd, int fd, const struct xccl_limit *limit)
{
    (void)limit;
    sim_fail("the library sent descriptor %d over %d", fd, unix_fd);
}

xcclResult_t xccl_tcp_recv_fd(int unix_fd, const struct xccl_limit *limit, int *fd_out)
{
    (void)limit;
    (void)fd_out;
    sim_fail("the library waited for a descriptor over %d", unix_fd);
}
