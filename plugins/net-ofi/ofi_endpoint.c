/* SPDX-License-Identifier: BSD-3-Clause */
/* An endpoint with its completion queue and its address vector. The queue is twice as long as all
 * that may be under way in a comm, so it cannot overrun: messages or their receives, notes, pieces
 * of large messages (ofi_piece.c), and reads that flush device memory. Thread: the comm's. */
#include <string.h>

#include "ofi_int.h"

static xcclResult_t failed(const struct ofi_ctx *ctx, const struct ofi_device *device,
                           const char *what, int err)
{
    return xccl_fail_quietly(xcclSystemError, 0, "check ulimit -n and ulimit -l",
                             "cannot %s on %s (%s): %s", what, device->name,
                             device->info->fabric_attr->prov_name, ctx->library.strerror(-err));
}

/* With a descriptor to sleep on where one is wanted and the provider has such queues. */
static int open_queue(struct ofi_device *device, struct fi_cq_attr *attr, struct ofi_endpoint *end)
{
    if (ofi_wait_wanted(device)) {
        attr->wait_obj = FI_WAIT_FD;
        end->can_wait = fi_cq_open(device->domain, attr, &end->cq, NULL) == 0;
        if (end->can_wait && fi_control(&end->cq->fid, FI_GETWAIT, &end->cq_fd) == 0)
            return 0;
        if (end->can_wait)
            fi_close(&end->cq->fid);
        end->can_wait = 0;
    }
    attr->wait_obj = FI_WAIT_NONE;
    return fi_cq_open(device->domain, attr, &end->cq, NULL);
}

static xcclResult_t open_parts(struct ofi_ctx *ctx, struct ofi_device *device,
                               const struct ofi_device *of, struct ofi_endpoint *end)
{
    size_t flushes = device->takes_cuda ? OFI_REQUESTS : 0;
    struct fi_cq_attr cq = {
        .size = 2 * (OFI_WINDOW + OFI_REQUESTS + ofi_piece_cq_entries(of) + flushes),
        .format = FI_CQ_FORMAT_TAGGED};
    /* FI_AV_MAP is deprecated in libfabric 2. The peer, and to flush itself. */
    struct fi_av_attr av = {.type = FI_AV_TABLE, .count = device->takes_cuda ? 2 : 1};
    int err = open_queue(device, &cq, end);

    if (err)
        return failed(ctx, device, "make a completion queue", err);
    err = fi_av_open(device->domain, &av, &end->av, NULL);
    if (err)
        return failed(ctx, device, "make an address vector", err);
    err = fi_endpoint(device->domain, device->info, &end->ep, NULL);
    if (err)
        return failed(ctx, device, "make an endpoint", err);
    err = fi_ep_bind(end->ep, &end->cq->fid, FI_SEND | FI_RECV);
    if (!err)
        err = fi_ep_bind(end->ep, &end->av->fid, 0);
    /* ofi_rxm (1.17) crashes at the close of an endpoint to which nothing is bound. */
    if (!err && device->takes_cuda) {
        err = ofi_hmem_restrict(ctx, end->ep);
        if (err)
            return failed(ctx, device, "reach device memory without the help of CUDA", err);
    }
    if (!err)
        err = fi_enable(end->ep);
    if (err)
        return failed(ctx, device, "enable an endpoint", err);
    end->name_bytes = sizeof(end->name);
    err = fi_getname(&end->ep->fid, end->name, &end->name_bytes);
    if (err)
        return failed(ctx, device, "get the address of an endpoint", err);
    return xcclSuccess;
}

xcclResult_t ofi_endpoint_open(struct ofi_ctx *ctx, struct ofi_device *device,
                               const struct ofi_device *of, struct ofi_endpoint *end_out)
{
    struct ofi_manners manners;
    xcclResult_t rc;

    ofi_manners_begin(&manners);
    rc = open_parts(ctx, device, of, end_out);
    ofi_manners_end(&manners);
    kit_silent_watch(&end_out->crowd, &manners.fds, end_out->name, end_out->name_bytes);
    if (rc != xcclSuccess)
        ofi_endpoint_close(end_out);
    return rc;
}

void ofi_endpoint_close(struct ofi_endpoint *end)
{
    kit_silent_forget(&end->crowd);
    /* The endpoint first: the others are busy before. */
    if (end->ep)
        fi_close(&end->ep->fid);
    if (end->cq)
        fi_close(&end->cq->fid);
    if (end->av)
        fi_close(&end->av->fid);
    memset(end, 0, sizeof(*end));
}

xcclResult_t ofi_endpoint_aim(struct ofi_comm *comm, struct ofi_rail *rail, const uint8_t *name)
{
    int count = fi_av_insert(rail->end.av, name, 1, &rail->end.peer, 0, NULL);

    memcpy(rail->end.peer_name, name, OFI_ADDRESS_BYTES);
    if (count == 1)
        return xcclSuccess;
    return xccl_fail_quietly(xcclRemoteError, 0, NULL, "%s does not accept the address of %s: %s",
                             rail->device->name, comm->peer_text,
                             comm->ctx->library.strerror(count < 0 ? -count : FI_EINVAL));
}
