/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends frames on a ring connection, and closes it. What becomes of a connection that is found
 * broken thereby is decided by control.c, or control_relay.c. Thread: any, with the loop's lock. */
#include <sys/epoll.h>

#include "watch/control_int.h"

void xccl_control_close_neighbour(struct neighbour *neighbour)
{
    xccl_loop_remove(&neighbour->source);
    xccl_conn_close(neighbour->conn);
    neighbour->conn = NULL;
}

void xccl_control_flush(struct neighbour *neighbour)
{
    int pending = 0;

    if (!neighbour->conn)
        return;
    if (!xccl_conn_flush(neighbour->conn, &pending))
        (void)xccl_loop_set_events(&neighbour->source, pending ? EPOLLIN | EPOLLOUT : EPOLLIN);
    /* An answer to a frame that was just read: the reader comes to the end by itself. A call from
     * here would go one deeper for each further question. */
    else if (!neighbour->reading)
        neighbour->control->on_broken(neighbour);
}

xcclResult_t xccl_control_send(struct neighbour *neighbour, uint16_t type, const void *body,
                               size_t bytes)
{
    xcclResult_t rc;

    if (!neighbour->conn || neighbour->is_shut)
        return xcclSuccess;
    rc = xccl_conn_queue(neighbour->conn, type, body, bytes);
    if (!rc)
        xccl_control_flush(neighbour);
    return rc;
}
