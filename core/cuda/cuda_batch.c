/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ranks' shares go in one launch, and their works in it. All blocks of a launch are at work
 * at a time, and ranks of one thread may be given the same stream; so the shares of all ranks of a
 * communicator go together, and further communicators come behind them where they are too many for
 * the device.
 *
 * Thread: the user's. */
#include <string.h>

#include "base/alloc.h"
#include "cuda/cuda_int.h"

struct xccl_cuda_share *xccl_cuda_share_at(const struct xccl_cuda_shares *shares, uint32_t number)
{
    return (struct xccl_cuda_share *)((char *)shares->all + (size_t)number * shares->stride);
}

/* For the stream of a, though perhaps by another kernel. */
static int is_for(const struct xccl_cuda_share *a, const struct xccl_cuda_share *b)
{
    return b->state == XCCL_CUDA_WAITS && a->stream == b->stream &&
           a->cuda->device == b->cuda->device;
}

/* Blocks of the ranks of a communicator that go together, from the first of them on. */
static uint32_t blocks_of(const struct xccl_cuda_shares *shares, uint32_t at)
{
    const struct xccl_cuda_share *first = xccl_cuda_share_at(shares, at);
    uint32_t blocks = 0;

    for (uint32_t i = at; i < shares->count; i++) {
        const struct xccl_cuda_share *share = xccl_cuda_share_at(shares, i);

        if (!xccl_cuda_is_one(first->cuda, share->cuda))
            break;
        if (is_for(first, share) && first->function == share->function)
            blocks += share->nblocks;
    }
    return blocks;
}

struct xccl_cuda_batch xccl_cuda_gather(const struct xccl_cuda_shares *shares, uint32_t first)
{
    const struct xccl_cuda_share *begin = xccl_cuda_share_at(shares, first);
    const struct xccl_cuda_share waits = {
        .cuda = begin->cuda, .stream = begin->stream, .function = begin->function};
    const struct xccl_cuda_comm *last = NULL;
    uint32_t room = (uint32_t)begin->cuda->device->multiprocessors;
    struct xccl_cuda_batch batch = {.first = first};

    for (uint32_t i = first; i < shares->count; i++) {
        struct xccl_cuda_share *share = xccl_cuda_share_at(shares, i);

        if (!is_for(&waits, share))
            continue;
        if (share->function != waits.function)
            break;
        if (last && !xccl_cuda_is_one(last, share->cuda) &&
            batch.blocks + blocks_of(shares, i) > room)
            break;
        last = share->cuda;
        share->block0 = batch.blocks;
        share->state = XCCL_CUDA_TAKEN;
        batch.blocks += share->nblocks;
        batch.works++;
    }
    return batch;
}

xcclResult_t xccl_cuda_check_room(const struct xccl_cuda_device *device,
                                  const struct xccl_cuda_batch *batch)
{
    if (batch->blocks <= (uint32_t)device->multiprocessors)
        return xcclSuccess;
    return xccl_fail(xcclInvalidUsage, 0,
                     "use fewer ranks on the device, lower XCCL_CUDA_CHANNELS, or choose an "
                     "algorithm with fewer lanes (XCCL_ALGO)",
                     "the calls of %u ranks on one stream need %u blocks at once, but device %d "
                     "has room for %d",
                     batch->works, batch->blocks, device->ordinal, device->multiprocessors);
}

static xcclResult_t put_works(const struct xccl_cuda_shares *shares,
                              const struct xccl_cuda_batch *batch, int is_captured, void *near,
                              uint64_t *far_out)
{
    size_t bytes = shares->work_bytes;
    char *works = near;
    uint32_t count = 0;
    xcclResult_t rc = xcclSuccess;

    if (batch->works > XCCL_DEV_WORKS_MAX)
        works = xccl_calloc(batch->works, bytes);
    if (!works)
        return xcclSystemError;
    for (uint32_t i = batch->first; i < shares->count; i++) {
        const struct xccl_cuda_share *share = xccl_cuda_share_at(shares, i);

        if (share->state == XCCL_CUDA_TAKEN)
            memcpy(works + count++ * bytes, (const char *)share + shares->work_at, bytes);
    }
    if (works != near) {
        rc = xccl_cuda_pool_lend(xccl_cuda_share_at(shares, batch->first)->cuda, works,
                                 batch->works * bytes, is_captured, far_out);
        xccl_free(works);
    }
    return rc;
}

xcclResult_t xccl_cuda_launch(const struct xccl_cuda_shares *shares,
                              const struct xccl_cuda_batch *batch, int is_captured, void *parameter,
                              void *near, uint64_t *far_out)
{
    const struct xccl_cuda_share *share = xccl_cuda_share_at(shares, batch->first);
    const struct xccl_cuda_device *device = share->cuda->device;
    xcclResult_t rc = put_works(shares, batch, is_captured, near, far_out);

    if (rc)
        return rc;
    return xccl_cuda_result(device->driver->launch(share->function, batch->blocks, 1, 1,
                                                   device->threads, 1, 1, 0, share->stream,
                                                   &parameter, NULL),
                            "launching a kernel");
}
