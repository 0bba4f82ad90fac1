/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory of a communicator. Before a driver frees memory it may wait for all kernels of the
 * device; also for those of other ranks of the process, which may wait for what this one does next.
 * So what a call needs no longer is kept for later ones. When the communicator ends, or there is no
 * memory, it is left to the device (exec/cuda/device_memory.c).
 *
 * Thread: the caller's. */
#include "base/alloc.h"
#include "base/error.h"
#include "cuda/cuda_int.h"

#define ROUNDED_BYTES ((size_t)1 << 20) /* up to here sizes are powers of two, so that they fit */
#define LEAST_BYTES   ((size_t)512)

size_t xccl_cuda_pool_rounded(size_t bytes)
{
    size_t power = LEAST_BYTES;

    if (bytes > ROUNDED_BYTES)
        return bytes;
    while (power < bytes)
        power *= 2;
    return power;
}

/* Takes a spare block of that size from the pool; 0: there is none. */
static xccl_cu_ptr take_spare(struct xccl_cuda_comm *cuda, size_t size)
{
    struct xccl_cuda_spare **at = &cuda->spares, *spare;
    xccl_cu_ptr found;

    while (*at && (*at)->bytes != size)
        at = &(*at)->next;
    spare = *at;
    if (!spare)
        return 0;
    *at = spare->next;
    found = spare->at;
    xccl_free(spare);
    return found;
}

/* No kernel of the communicator uses the list. */
static void leave_list(struct xccl_cuda_comm *cuda, struct xccl_cuda_spare **list)
{
    struct xccl_cuda_spare *spare;

    while ((spare = *list)) {
        *list = spare->next;
        cuda->device_bytes -= spare->bytes;
        xccl_cuda_free_later(cuda->device, spare->at, spare->bytes);
        xccl_free(spare);
    }
}

int xccl_cuda_is_done(const struct xccl_cuda_comm *cuda)
{
    int done;

    if (!cuda->worker.has_launched)
        return 1;
    if (xccl_cuda_enter(cuda->device))
        return 0;
    done = cuda->driver->event_query(cuda->worker.event) == 0;
    xccl_cuda_leave(cuda->device);
    return done;
}

xcclResult_t xccl_cuda_pool_try(struct xccl_cuda_comm *cuda, size_t bytes, xccl_cu_ptr *at_out)
{
    size_t size = xccl_cuda_pool_rounded(bytes);
    xcclResult_t rc = xcclSystemError;

    *at_out = take_spare(cuda, size);
    if (*at_out)
        return xcclSuccess;
    if (cuda->spares && xccl_cuda_is_done(cuda)) {
        rc = xccl_cuda_try_alloc(cuda->device, size, at_out);
        if (rc)
            leave_list(cuda, &cuda->spares);
    }
    if (rc)
        rc = xccl_cuda_try_alloc(cuda->device, size, at_out);
    if (!rc)
        cuda->device_bytes += size;
    return rc;
}

xcclResult_t xccl_cuda_pool_alloc(struct xccl_cuda_comm *cuda, size_t bytes, xccl_cu_ptr *at_out)
{
    return xccl_error_tell(xccl_cuda_pool_try(cuda, bytes, at_out));
}

void xccl_cuda_pool_free(struct xccl_cuda_comm *cuda, xccl_cu_ptr at, size_t bytes)
{
    struct xccl_cuda_spare *spare = at ? xccl_calloc(1, sizeof *spare) : NULL;

    if (spare) {
        *spare = (struct xccl_cuda_spare){cuda->spares, at, xccl_cuda_pool_rounded(bytes)};
        cuda->spares = spare;
    } else if (at) { /* no memory: one that waits is better than none */
        xccl_cuda_free(cuda->device, at);
        cuda->device_bytes -= xccl_cuda_pool_rounded(bytes);
    }
}

/* Returns the memory lent to launches that have ended. */
static void take_back(struct xccl_cuda_comm *cuda)
{
    struct xccl_cuda_spare *lent;

    if (!cuda->lent || !xccl_cuda_is_done(cuda))
        return;
    while ((lent = cuda->lent)) {
        cuda->lent = lent->next;
        xccl_cuda_pool_free(cuda, lent->at, lent->bytes);
        xccl_free(lent);
    }
}

xcclResult_t xccl_cuda_pool_lend(struct xccl_cuda_comm *cuda, const void *data, size_t bytes,
                                 int captured, xccl_cu_ptr *at_out)
{
    struct xccl_cuda_spare **list = captured ? &cuda->kept : &cuda->lent, *lent;
    xcclResult_t rc;

    if (!captured)
        take_back(cuda);
    lent = xccl_calloc(1, sizeof *lent);
    if (!lent)
        return xcclSystemError;
    lent->bytes = xccl_cuda_pool_rounded(bytes);
    rc = xccl_cuda_pool_alloc(cuda, bytes, &lent->at);
    if (!rc)
        rc = xccl_cuda_upload(cuda->device, lent->at, data, bytes);
    if (rc) {
        xccl_cuda_pool_free(cuda, lent->at, bytes);
        xccl_free(lent);
        return rc;
    }
    lent->next = *list;
    *list = lent;
    *at_out = lent->at;
    return xcclSuccess;
}

void xccl_cuda_pool_drop(struct xccl_cuda_comm *cuda)
{
    leave_list(cuda, &cuda->spares);
    leave_list(cuda, &cuda->lent);
    leave_list(cuda, &cuda->kept);
}
