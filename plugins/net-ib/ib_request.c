/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract's test: moves the request's comm on and says whether the request is through. What
 * happens to a request before is in ib_send.c and ib_recv.c.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs, but for the end of a queue
 * pair that has failed (ib_failover.c), which the library gives back. */
#include "ib_int.h"

static void reap(struct ib_request *request, size_t *bytes_out)
{
    const struct ib_recv *recv = (const struct ib_recv *)request;

    if (bytes_out && request->comm->is_send)
        bytes_out[0] = ((const struct ib_send *)request)->bytes;
    for (int i = 0; bytes_out && !request->comm->is_send && i < recv->count; i++)
        bytes_out[i] = recv->bytes[i];
    request->state = IB_FREE;
}

void ib_comm_move(struct ib_comm *comm)
{
    if (comm->is_send)
        ib_send_move((struct ib_sender *)comm);
    else
        ib_recv_move((struct ib_receiver *)comm);
}

static xcclResult_t test(struct ib_request *request, int *done_out, size_t *bytes_out)
{
    struct ib_comm *comm = request->comm;

    if (request->state == IB_FREE)
        return xccl_fail_quietly(xcclInvalidUsage, 0, "do not test a request after it was done",
                                 "a request is tested again after it was done");
    if (request->state != IB_DONE && comm->rc == xcclSuccess)
        ib_comm_move(comm);
    /* What was complete before the comm failed is still complete. */
    if (request->state != IB_DONE && comm->rc != xcclSuccess)
        return ib_comm_error(comm);
    *done_out = request->state == IB_DONE;
    if (*done_out)
        reap(request, bytes_out);
    return xcclSuccess;
}

xcclResult_t ib_test(xcclNetRequest_t request_, int *done_out, size_t *bytes_out)
{
    struct ib_request *request = request_;
    struct ib_comm *comm = request->comm;
    xcclResult_t rc;

    if (request->is_flush)
        return ib_flush_test(request, done_out);
    if (!ib_comm_claim(comm)) {
        *done_out = 0;
        return xcclSuccess;
    }
    rc = test(request, done_out, bytes_out);
    ib_comm_release(comm);
    return rc;
}
