/* SPDX-License-Identifier: BSD-3-Clause */
/* A frame of a connection, waited for: the product takes frames in event loops only.
 * Thread: one at a time a connection. */
#ifndef TESTS_UNIT_BOOTSTRAP_CONN_RECV_H
#define TESTS_UNIT_BOOTSTRAP_CONN_RECV_H

#include <poll.h>

#include "base/error.h"
#include "base/tcp.h"
#include "bootstrap/conn.h"
#include "bootstrap/message.h"

/* body_max below the frame's size, and a stream that ended in order, are xcclRemoteError. */
static inline xcclResult_t conn_recv(struct xccl_conn *conn, uint16_t *type_out, void *body_out,
                                     size_t body_max, size_t *bytes_out,
                                     const struct xccl_limit *limit)
{
    for (;;) {
        int got = 0, final = 0, pending = 0;
        xcclResult_t rc = xccl_conn_take(conn, type_out, body_out, body_max, bytes_out, &got,
                                         &final);

        if (rc || got)
            return rc;
        if (final)
            return xccl_fail_quietly(xcclRemoteError, 0, NULL, "the connection was closed");
        rc = xccl_conn_flush(conn, &pending);
        if (!rc)
            rc = xccl_tcp_wait(xccl_conn_fd(conn), (short)(pending ? POLLIN | POLLOUT : POLLIN),
                               limit);
        if (rc)
            return rc;
    }
}

/* As conn_recv, without signs of life (alive.h). */
static inline xcclResult_t news_recv(struct xccl_conn *conn, uint16_t *type_out, void *body_out,
                                     size_t body_max, size_t *bytes_out,
                                     const struct xccl_limit *limit)
{
    xcclResult_t rc;

    do
        rc = conn_recv(conn, type_out, body_out, body_max, bytes_out, limit);
    while (!rc && *type_out == XCCL_BOOT_ALIVE);
    return rc;
}

#endif
