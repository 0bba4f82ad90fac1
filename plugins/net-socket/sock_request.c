/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract's entries for requests: isend and irecv lead to the code that moves the comm, or to
 * its helper thread (sock_handover.c); test moves the request's comm on and says whether the
 * request is through. What happens to a request before is in sock_send.c and sock_recv.c.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs. */
#include "sock_int.h"

#include "sock_helper_int.h"

xcclResult_t sock_post_send(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                            xcclNetMem_t mem, xcclNetRequest_t *request_out)
{
    if (((struct sock_comm *)comm)->hand)
        return sock_hand_isend(comm, data, bytes, tag, mem, request_out);
    return sock_isend(comm, data, bytes, tag, mem, request_out);
}

xcclResult_t sock_post_recv(xcclNetRecvComm_t comm, int count, void *const *data,
                            const size_t *bytes, const uint32_t *tags, const xcclNetMem_t *mems,
                            xcclNetRequest_t *request_out)
{
    if (((struct sock_comm *)comm)->hand)
        return sock_hand_irecv(comm, count, data, bytes, tags, mems, request_out);
    return sock_irecv(comm, count, data, bytes, tags, mems, request_out);
}

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

void sock_request_reap(struct sock_request *request, size_t *bytes_out)
{
    if (request->comm->is_send)
        reap_send((struct sock_send *)request, bytes_out);
    else
        reap_recv((struct sock_recv *)request, bytes_out);
    request->state = SOCK_FREE;
}

void sock_comm_move(struct sock_comm *comm)
{
    if (comm->rc != xcclSuccess)
        return;
    if (comm->is_send)
        sock_send_progress((struct sock_sender *)comm);
    else
        sock_recv_progress((struct sock_receiver *)comm);
}

/* A send that is done moves those queued behind it, unless they wait for a full socket; a receive
 * that is done has nothing to ask for. */
static void progress(struct sock_comm *comm, const struct sock_request *request)
{
    if (request->state == SOCK_ACTIVE || (comm->is_send && !comm->lines[0].full))
        sock_comm_move(comm);
}

xcclResult_t sock_request_gone(void)
{
    return xccl_fail_quietly(xcclInvalidUsage, 0, "do not test a request after it was done",
                             "a request is tested again after it was done");
}

xcclResult_t sock_test(xcclNetRequest_t request_, int *done_out, size_t *bytes_out)
{
    struct sock_request *request = request_;
    struct sock_comm *comm = request->comm;

    if (comm->hand)
        return sock_hand_test(request, done_out, bytes_out);
    if (request->state == SOCK_FREE)
        return sock_request_gone();
    progress(comm, request);
    /* What was complete before the comm failed is still complete. */
    if (request->state == SOCK_ACTIVE && comm->rc != xcclSuccess)
        return sock_comm_error(comm);
    *done_out = request->state == SOCK_DONE;
    if (*done_out)
        sock_request_reap(request, bytes_out);
    return xcclSuccess;
}
