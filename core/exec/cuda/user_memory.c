/* SPDX-License-Identifier: BSD-3-Clause */
/* Each allocation holds its device open, so that the context outlives communicators. The list is
 * short: programs take few buffers, and large ones. Thread: any; by the lock. */
#include "exec/cuda/user_memory.h"

#include "base/alloc.h"
#include "base/fork.h"
#include "base/param.h"
#include "exec/cuda/handle_memory.h"

struct user_memory {
    struct xccl_cuda_device *device;
    xccl_cu_ptr at;
    struct xccl_cuda_block block; /* its memory, where that is by a handle */
    struct user_memory *next;
};

static struct user_memory *all;

/* Empties the list in a child of fork(), which cannot use the driver. */
static void forget_all(void)
{
    all = NULL;
}

static struct xccl_lock lock = XCCL_LOCK(forget_all);

/* By a handle, open to all devices of the process that reach it. 0: it is not. */
static int take_block(struct user_memory *memory, size_t bytes)
{
    const struct xccl_cuda_device *device = memory->device;
    int devices[XCCL_CUDA_DEVICES_MAX], count = device->driver->devices;

    if (!xccl_param_int(XCCL_P_CUDA_CUMEM) || !xccl_cuda_has_handles(device))
        return 0;
    if (count > XCCL_CUDA_DEVICES_MAX)
        count = XCCL_CUDA_DEVICES_MAX;
    for (int i = 0; i < count; i++)
        devices[i] = i;
    if (xccl_cuda_block_create(device, bytes, devices, count, 0, 0, &memory->block))
        return 0;
    memory->at = memory->block.at;
    return 1;
}

static xcclResult_t take(struct user_memory *memory, int ordinal, size_t bytes)
{
    xcclResult_t rc = xccl_cuda_device_get(ordinal, &memory->device);

    if (!rc && !take_block(memory, bytes))
        rc = xccl_cuda_alloc(memory->device, bytes, &memory->at);
    if (!rc)
        rc = xccl_cuda_clear(memory->device, memory->at, bytes);
    return rc;
}

static void give(struct user_memory *memory)
{
    if (memory->block.at)
        xccl_cuda_block_free(memory->device, &memory->block);
    else if (memory->at)
        xccl_cuda_free(memory->device, memory->at);
    xccl_cuda_device_put(memory->device);
    xccl_free(memory);
}

xcclResult_t xccl_cuda_user_alloc(int ordinal, size_t bytes, void **at_out)
{
    struct user_memory *memory = xccl_calloc(1, sizeof *memory);
    xcclResult_t rc;

    if (!memory)
        return xcclSystemError;
    rc = take(memory, ordinal, bytes);
    if (rc) {
        give(memory);
        return rc;
    }
    *at_out = (void *)(uintptr_t)memory->at;
    xccl_lock_take(&lock);
    memory->next = all;
    all = memory;
    xccl_lock_give(&lock);
    return xcclSuccess;
}

int xccl_cuda_user_free(void *at)
{
    struct user_memory *found, **where = &all;

    xccl_lock_take(&lock);
    while (*where && (*where)->at != (xccl_cu_ptr)(uintptr_t)at)
        where = &(*where)->next;
    found = *where;
    if (found)
        *where = found->next;
    xccl_lock_give(&lock);
    if (!found)
        return 0;
    give(found);
    return 1;
}
