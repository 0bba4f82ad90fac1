/* SPDX-License-Identifier: BSD-3-Clause */
/* Handle, address range, mapping, access: taken in this order, and given back in the reverse one.
 * Thread: any. */
#include "exec/cuda/handle_memory.h"

#include <stdint.h>

static struct xccl_cu_mem_prop prop_of(const struct xccl_cuda_device *device, int fabric)
{
    struct xccl_cu_mem_prop prop = {
        .type = XCCL_CU_MEM_PINNED,
        .handle_types = fabric ? XCCL_CU_MEM_POSIX_FD | XCCL_CU_MEM_FABRIC : XCCL_CU_MEM_POSIX_FD,
        .location = {XCCL_CU_MEM_ON_DEVICE, device->device}};
    int value = 0;

    /* So that network cards may be given it, too. */
    if (!device->driver->device_attribute(&value, XCCL_CU_ATTR_RDMA_HANDLES, device->device) &&
        value)
        prop.gpu_direct_rdma = 1;
    return prop;
}

int xccl_cuda_has_handles(const struct xccl_cuda_device *device)
{
    const struct xccl_cuda_driver *driver = device->driver;
    int maps = 0, exports = 0;

    return driver->mem_create && driver->mem_release && driver->mem_export && driver->mem_import &&
           driver->mem_reserve && driver->mem_unreserve && driver->mem_map && driver->mem_unmap &&
           driver->mem_set_access && driver->mem_granularity &&
           !driver->device_attribute(&maps, XCCL_CU_ATTR_VIRTUAL_MEMORY, device->device) && maps &&
           !driver->device_attribute(&exports, XCCL_CU_ATTR_HANDLE_FDS, device->device) && exports;
}

int xccl_cuda_has_fabric(const struct xccl_cuda_device *device)
{
    int has = 0;

    return !device->driver->device_attribute(&has, XCCL_CU_ATTR_FABRIC_HANDLES, device->device) &&
           has;
}

/* Devices beside the memory's own: one that cannot is none that was promised. The first refusal. */
static xccl_cu_result let_reach(const struct xccl_cuda_device *device,
                                const struct xccl_cuda_block *block, const int *reaches, int count)
{
    const struct xccl_cuda_driver *driver = device->driver;
    xccl_cu_result first = 0;

    for (int i = 0; i < count; i++) {
        struct xccl_cu_mem_access access = {.flags = XCCL_CU_MEM_READ_WRITE};
        xccl_cu_device other;
        xccl_cu_result rc;
        int can = 0;

        if (reaches[i] == device->ordinal || driver->device_get(&other, reaches[i]) ||
            driver->device_can_access(&can, other, device->device) || !can)
            continue;
        access.location = (struct xccl_cu_mem_location){XCCL_CU_MEM_ON_DEVICE, other};
        rc = driver->mem_set_access(block->at, block->bytes, &access, 1);
        first = first ? first : rc;
    }
    return first;
}

/* Gives block.handle a place; with the device's context. On failure the handle stays. */
static xccl_cu_result map(const struct xccl_cuda_device *device, struct xccl_cuda_block *block)
{
    const struct xccl_cuda_driver *driver = device->driver;
    const struct xccl_cu_mem_access access = {{XCCL_CU_MEM_ON_DEVICE, device->device},
                                              XCCL_CU_MEM_READ_WRITE};
    xccl_cu_ptr at = 0;
    xccl_cu_result rc = driver->mem_reserve(&at, block->bytes, 0, 0, 0);

    if (rc)
        return rc;
    rc = driver->mem_map(at, block->bytes, 0, block->handle, 0);
    if (rc)
        goto err_range;
    rc = driver->mem_set_access(at, block->bytes, &access, 1);
    if (rc)
        goto err_map;
    block->at = at;
    return 0;
err_map:
    (void)driver->mem_unmap(at, block->bytes);
err_range:
    (void)driver->mem_unreserve(at, block->bytes);
    return rc;
}

static void unmake(const struct xccl_cuda_driver *driver, const struct xccl_cuda_block *block)
{
    (void)driver->mem_unmap(block->at, block->bytes);
    (void)driver->mem_unreserve(block->at, block->bytes);
    (void)driver->mem_release(block->handle);
}

/* With the device's context. */
static xccl_cu_result create_as(const struct xccl_cuda_device *device, size_t bytes, int fabric,
                                struct xccl_cuda_block *block)
{
    const struct xccl_cuda_driver *driver = device->driver;
    const struct xccl_cu_mem_prop prop = prop_of(device, fabric);
    size_t granule = 0;
    xccl_cu_result rc = driver->mem_granularity(&granule, &prop, XCCL_CU_MEM_GRANULARITY_LEAST);

    if (!rc && (!granule || bytes > SIZE_MAX - granule))
        rc = XCCL_CU_INVALID_VALUE;
    if (rc)
        return rc;
    block->bytes = (bytes + granule - 1) / granule * granule;
    return driver->mem_create(&block->handle, block->bytes, &prop, 0);
}

/* A device may say that it has fabric handles, and refuse them when memory is made: without an IMEX
 * channel it is CUDA_ERROR_NOT_PERMITTED (https://github.com/microsoft/mscclpp/issues/467),
 * elsewhere other results. Whatever it is, memory without them may still be had. */
static xccl_cu_result create(const struct xccl_cuda_device *device, size_t bytes, int fabric,
                             struct xccl_cuda_block *block)
{
    xccl_cu_result rc;

    if (!fabric)
        return create_as(device, bytes, 0, block);
    rc = create_as(device, bytes, 1, block);
    block->has_fabric = !rc;
    block->no_fabric = rc;
    return rc ? create_as(device, bytes, 0, block) : rc;
}

xccl_cu_result xccl_cuda_block_create(const struct xccl_cuda_device *device, size_t bytes,
                                      const int *reaches, int count, int is_promised, int fabric,
                                      struct xccl_cuda_block *block_out)
{
    const struct xccl_cuda_driver *driver = device->driver;
    struct xccl_cuda_block block = {0};
    xccl_cu_result rc;

    if (xccl_cuda_enter(device))
        return XCCL_CU_INVALID_CONTEXT;
    rc = create(device, bytes, fabric, &block);
    if (rc)
        goto out;
    rc = map(device, &block);
    if (rc) {
        (void)driver->mem_release(block.handle);
        goto out;
    }
    rc = let_reach(device, &block, reaches, count);
    if (rc && is_promised)
        unmake(driver, &block);
    else
        *block_out = block;
    rc = is_promised ? rc : 0;
out:
    xccl_cuda_leave(device);
    return rc;
}

static xccl_cu_result export_as(const struct xccl_cuda_device *device,
                                const struct xccl_cuda_block *block, int type, void *shareable_out)
{
    xccl_cu_result rc;

    if (xccl_cuda_enter(device))
        return XCCL_CU_INVALID_CONTEXT;
    rc = device->driver->mem_export(shareable_out, block->handle, type, 0);
    xccl_cuda_leave(device);
    return rc;
}

xccl_cu_result xccl_cuda_block_export(const struct xccl_cuda_device *device,
                                      const struct xccl_cuda_block *block, int *fd_out)
{
    return export_as(device, block, XCCL_CU_MEM_POSIX_FD, fd_out);
}

xccl_cu_result xccl_cuda_block_export_fabric(const struct xccl_cuda_device *device,
                                             const struct xccl_cuda_block *block,
                                             struct xccl_cu_fabric *fabric_out)
{
    return export_as(device, block, XCCL_CU_MEM_FABRIC, fabric_out);
}

static xccl_cu_result import_as(const struct xccl_cuda_device *device, int type, void *shareable,
                                size_t bytes, struct xccl_cuda_block *block_out)
{
    struct xccl_cuda_block block = {.bytes = bytes};
    xccl_cu_result rc;

    if (xccl_cuda_enter(device))
        return XCCL_CU_INVALID_CONTEXT;
    rc = device->driver->mem_import(&block.handle, shareable, type);
    if (!rc) {
        rc = map(device, &block);
        if (rc)
            (void)device->driver->mem_release(block.handle);
    }
    if (!rc)
        *block_out = block;
    xccl_cuda_leave(device);
    return rc;
}

xccl_cu_result xccl_cuda_block_import(const struct xccl_cuda_device *device, int fd, size_t bytes,
                                      struct xccl_cuda_block *block_out)
{
    /* The descriptor itself, in the place of a pointer. */
    return import_as(device, XCCL_CU_MEM_POSIX_FD, (void *)(intptr_t)fd, bytes, block_out);
}

xccl_cu_result xccl_cuda_block_import_fabric(const struct xccl_cuda_device *device,
                                             const struct xccl_cu_fabric *fabric, size_t bytes,
                                             struct xccl_cuda_block *block_out)
{
    struct xccl_cu_fabric copy = *fabric; /* the driver's argument is not const */

    return import_as(device, XCCL_CU_MEM_FABRIC, &copy, bytes, block_out);
}

void xccl_cuda_block_free(const struct xccl_cuda_device *device, struct xccl_cuda_block *block)
{
    if (!block->at || xccl_cuda_enter(device))
        return;
    unmake(device->driver, block);
    xccl_cuda_leave(device);
    *block = (struct xccl_cuda_block){0};
}
