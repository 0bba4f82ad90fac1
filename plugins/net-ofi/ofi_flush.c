/* SPDX-License-Identifier: BSD-3-Clause */
/* Data in a device's memory can be seen by its kernels once it has left the card's queue towards
 * that device, which the completion in host memory does not say. A read from there pushes it, for
 * no read passes a write: so iflush reads a byte of what was received by each rail, from the comm's
 * endpoint to itself. Memory of the host needs none, and makes no request.
 *
 * Reads are of the comm's completion queues, and take their turn with all else: what a rail does
 * not take now goes with the next isend, irecv, iflush or test. A rail that fails cannot read any
 * more, and that its endpoint is closed says nothing of the card's queue towards the device: once a
 * comm has a device's memory registered, the error of any rail ends it (ofi_failover.c). Rails that
 * dropped out before have brought nothing there.
 *
 * Thread: the comm's. Nothing here allocates, locks or logs, but for create. */
#include "base/alloc.h"
#include "ofi_int.h"

#define ALIGN_BYTES 64

xcclResult_t ofi_flush_create(struct ofi_comm *comm)
{
    struct ofi_flusher *flusher;

    if (comm->is_send || !comm->device->takes_cuda)
        return xcclSuccess;
    flusher = xccl_calloc_aligned(ALIGN_BYTES, sizeof(*flusher));
    if (!flusher)
        return xcclSystemError;
    comm->flusher = flusher;
    for (uint32_t i = 0; i < OFI_REQUESTS; i++) {
        struct ofi_flush *flush = &flusher->flushes[i];

        flush->comm = comm;
        for (uint32_t k = 0; k < OFI_RAILS_MAX; k++) {
            flush->ops[k].kind = OFI_FLUSH;
            flush->ops[k].place = i;
            flush->ops[k].rail = k;
        }
    }
    for (uint32_t i = 0; i < comm->rail_count; i++) {
        struct ofi_rail *rail = &comm->rails[i];
        int count = fi_av_insert(rail->end.av, rail->end.name, 1, &flusher->self[i], 0, NULL);

        if (count != 1)
            return xccl_fail_quietly(
                xcclSystemError, 0, NULL,
                "%s does not accept its own address, which is needed to flush device memory: %s",
                rail->device->name, comm->ctx->library.strerror(count < 0 ? -count : FI_EINVAL));
    }
    return ofi_mem_register(comm, flusher->bytes, sizeof(flusher->bytes), FI_READ, &flusher->mem);
}

void ofi_flush_destroy(struct ofi_comm *comm)
{
    xccl_free(comm->flusher);
    comm->flusher = NULL;
}

int ofi_flush_is_needed(const struct ofi_comm *comm)
{
    return comm->flusher && comm->flusher->has_device_memory;
}

int ofi_flush_is_under_way(const struct ofi_comm *comm)
{
    for (uint32_t i = 0; comm->flusher && i < OFI_REQUESTS; i++) {
        if (comm->flusher->flushes[i].state == OFI_ACTIVE)
            return 1;
    }
    return 0;
}

struct ofi_flush *ofi_flush_of(const struct ofi_comm *comm, xcclNetRequest_t request)
{
    struct ofi_flusher *flusher = comm->flusher;
    uintptr_t at = (uintptr_t)request, first = (uintptr_t)flusher;

    return flusher && at >= first && at < first + sizeof(flusher->flushes) ? request : NULL;
}

static void fail(struct ofi_comm *comm, uint32_t rail_idx, int err, const char *detail)
{
    const struct ofi_rail *rail = &comm->rails[rail_idx];

    ofi_comm_fail(
        comm, xcclNetCauseLocal,
        xccl_fail_quietly(xcclSystemError, 0, "see the kernel's log",
                          "%s (%s) cannot flush device memory after a message from %s: %s%s%s",
                          rail->device->name, rail->device->info->fabric_attr->prov_name,
                          comm->peer_text, comm->ctx->library.strerror(err), *detail ? ", " : "",
                          detail));
}

/* Gives an error of libfabric. */
static ssize_t read_by(struct ofi_comm *comm, struct ofi_flush *flush, uint32_t rail_idx)
{
    struct ofi_rail *rail = &comm->rails[rail_idx];
    struct ofi_flusher *flusher = comm->flusher;
    struct ofi_op *op = &flush->ops[rail_idx];
    struct ofi_target target;

    if (!ofi_mem_target(rail, flush->mem, flush->data, FI_REMOTE_READ, &target))
        return -FI_EACCES;
    return fi_read(rail->end.ep, &flusher->bytes[op->place][rail_idx], 1,
                   ofi_mem_desc(rail, flusher->mem), flusher->self[rail_idx], target.addr,
                   target.key, op);
}

/* 0: all its reads are given, or the comm has failed. */
static int give(struct ofi_comm *comm, struct ofi_flush *flush)
{
    for (uint32_t i = 0; flush->todo >> i; i++) {
        ssize_t err = flush->todo >> i & 1 ? read_by(comm, flush, i) : 0;

        if (err == -FI_EAGAIN)
            continue;
        if (err) {
            fail(comm, i, (int)-err, "");
            return 0;
        }
        flush->todo &= ~(1u << i);
    }
    return flush->todo != 0;
}

void ofi_flush_push(struct ofi_comm *comm)
{
    struct ofi_flusher *flusher = comm->flusher;

    for (uint32_t i = 0; flusher && flusher->waiting >> i && comm->rc == xcclSuccess;) {
        i += (uint32_t)__builtin_ctz(flusher->waiting >> i);
        if (give(comm, &flusher->flushes[i]))
            comm->refused = 1;
        else
            flusher->waiting &= ~(1u << i);
        if (++i == OFI_REQUESTS)
            break;
    }
}

void ofi_flush_completed(struct ofi_comm *comm, const struct ofi_op *op)
{
    struct ofi_flush *flush = &comm->flusher->flushes[op->place];

    flush->left &= ~(1u << op->rail);
    if (flush->left)
        return;
    flush->state = OFI_DONE;
    comm->ready++;
    comm->idle_polls = 0;
    if (comm->peer_left)
        comm->left_ns = xccl_clock_ns(); /* there may be another one to come */
}

int ofi_flush_failed(struct ofi_comm *comm, uint32_t rail_idx, const struct fi_cq_err_entry *entry,
                     const char *detail)
{
    const struct ofi_op *op = entry->op_context;

    if (!op || entry->flags & (FI_REMOTE_READ | FI_REMOTE_WRITE) || op->kind != OFI_FLUSH)
        return 0;
    comm->vendor = entry->prov_errno;
    fail(comm, rail_idx, entry->err, detail);
    return 1;
}

static struct ofi_flush *take(struct ofi_flusher *flusher)
{
    for (uint32_t i = 0; i < OFI_REQUESTS; i++) {
        if (flusher->flushes[i].state == OFI_FREE)
            return &flusher->flushes[i];
    }
    return NULL;
}

xcclResult_t ofi_iflush(xcclNetRecvComm_t comm_, int count, void *const *data, const size_t *bytes,
                        const xcclNetMem_t *mems, xcclNetRequest_t *request_out)
{
    struct ofi_comm *comm = comm_;
    struct ofi_flush *flush;
    int most = ofi_device_parts(comm->device);

    if (count < 1 || count > most)
        return xccl_fail_quietly(xcclInvalidArgument, 0, NULL,
                                 "cannot flush %d buffers together: at most %d are possible", count,
                                 most);
    /* A device that takes more than one has no device memory. */
    if (!comm->flusher || !bytes[0] || !mems || !ofi_mem_is_cuda(mems[0])) {
        *request_out = NULL;
        return xcclSuccess;
    }
    if (comm->rc != xcclSuccess)
        return ofi_comm_error(comm);
    flush = take(comm->flusher);
    if (!flush)
        return xccl_fail_quietly(xcclInvalidUsage, 0, "test some first",
                                 "%d flushes are already in flight", OFI_REQUESTS);
    flush->state = OFI_ACTIVE;
    flush->data = data[0];
    flush->mem = mems[0];
    flush->todo = ((1u << comm->rail_count) - 1) & ~ofi_failover_closed(comm);
    flush->left = flush->todo;
    comm->flusher->waiting |= 1u << (uint32_t)(flush - comm->flusher->flushes);
    ofi_flush_push(comm);
    if (comm->rc != xcclSuccess)
        return ofi_comm_error(comm);
    *request_out = flush;
    return xcclSuccess;
}
