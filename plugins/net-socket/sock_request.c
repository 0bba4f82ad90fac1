/* SPDX-License-Identifier: BSD-3-Clause */
/* Test: moves the request's comm on and says whether the request is through. What happens to a
 * request before is in sock_send.c and sock_recv.c.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs. */
#include "sock_int.h"

/* The sizes of a request that is done, which is free afterwards. */
static void reap_send(struct sock_send *send, size_t *bytes_out)
{
    ((struct sock_sender *)send->request.comm)->reaped++;
    if (bytes_out)
        bytes_out[0] = send->bytes;
}

static void reap_recv(const struct sock_recv *recv, size_t *bytes_out)
{
    for (int i = 0; bytes_out && i < recv->count; i++)
        bytes_out[i] = recv->parts[i].bytes;
}

/* A send that is done moves those queued behind it, unless they wait for a full socket; a receive
 * that is done has nothing to ask for. */
static void progress(struct sock_comm *comm, const struct sock_request *request)
{
    struct sock_sender *sender = (struct sock_sender *)comm;
    int active = request->state == SOCK_ACTIVE;

    if (comm->rc != xcclSuccess)
        return;
    if (comm->is_send && (active || !comm->lines[0].full))
        sock_send_progress(sender);
    if (!comm->is_send && active)
        sock_recv_progress((struct sock_receiver *)comm);
}

xcclResult_t sock_test(xcclNetRequest_t request_, int *done_out, size_t *bytes_out)
{
    struct sock_request *request = request_;
    struct sock_comm *comm = request->comm;

    if (request->state == SOCK_FREE)
        return xccl_fail_quietly(xcclInvalidUsage, 0, "forget a request once it is done",
                                 "a request is tested again after it was done");
    progress(comm, request);
    /* What was complete before the comm failed is still complete. */
    if (request->state == SOCK_ACTIVE && comm->rc != xcclSuccess)
        return sock_comm_error(comm);
    *done_out = request->state == SOCK_DONE;
    if (!*done_out)
        return xcclSuccess;
    if (comm->is_send)
        reap_send(request_, bytes_out);
    else
        reap_recv(request_, bytes_out);
    request->state = SOCK_FREE;
    return xcclSuccess;
}
