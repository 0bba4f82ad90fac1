/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a device. A driver that is to free memory, also pinned memory of the host, may wait for
 * all kernels of the device first (https://github.com/NVIDIA/nccl/issues/48); a kernel may wait for
 * another rank of this process, and that for whoever frees. So what one with kernels of its own
 * leaves is freed when no kernel of the library is at work; until then it goes to the next one who
 * wants as much. The program's own kernels are waited for then, as by any cudaFree.
 *
 * Thread: any. The device's lock guards the list and who has kernels; it is held while memory is
 * freed, so that none begins meanwhile. */
#include "base/alloc.h"
#include "exec/cuda/device.h"

struct xccl_cuda_left {
    struct xccl_cuda_left *next;
    void *host; /* NULL: device memory */
    xccl_cu_ptr at;
    size_t bytes;
};

/* --- kernels --- */

void xccl_cuda_worker_join(struct xccl_cuda_device *device, struct xccl_cuda_worker *worker)
{
    pthread_mutex_lock(&device->lock);
    worker->next = device->workers;
    device->workers = worker;
    pthread_mutex_unlock(&device->lock);
}

void xccl_cuda_worker_leave(struct xccl_cuda_device *device, struct xccl_cuda_worker *worker)
{
    struct xccl_cuda_worker **at = &device->workers;

    pthread_mutex_lock(&device->lock);
    while (*at && *at != worker)
        at = &(*at)->next;
    if (*at)
        *at = worker->next;
    pthread_mutex_unlock(&device->lock);
}

void xccl_cuda_launch_begin(struct xccl_cuda_device *device)
{
    pthread_mutex_lock(&device->lock);
    device->launching++;
    pthread_mutex_unlock(&device->lock);
}

void xccl_cuda_launch_end(struct xccl_cuda_device *device)
{
    pthread_mutex_lock(&device->lock);
    device->launching--;
    pthread_mutex_unlock(&device->lock);
}

/* With the lock, and the device's context. */
static int is_idle(const struct xccl_cuda_device *device)
{
    const struct xccl_cuda_worker *worker = device->workers;

    if (device->launching)
        return 0;
    while (worker && !worker->is_captured &&
           !(worker->has_launched && device->driver->event_query(worker->event)))
        worker = worker->next;
    return !worker;
}

/* --- what was left --- */

/* With the lock. has_context 0: the device's has ended, and its memory with it. */
static int free_all(struct xccl_cuda_device *device, int has_context)
{
    struct xccl_cuda_left *left = device->left;
    int some = left != NULL;

    for (; left; left = device->left) {
        device->left = left->next;
        if (has_context && left->host)
            (void)device->driver->host_free(left->host);
        else if (has_context)
            (void)device->driver->mem_free(left->at);
        xccl_free(left);
    }
    return some;
}

void xccl_cuda_drop_left(struct xccl_cuda_device *device)
{
    int has_context = device->left && !xccl_cuda_enter(device);

    pthread_mutex_lock(&device->lock);
    (void)free_all(device, has_context);
    pthread_mutex_unlock(&device->lock);
    if (has_context)
        xccl_cuda_leave(device);
}

int xccl_cuda_free_left(struct xccl_cuda_device *device)
{
    int some;

    if (xccl_cuda_enter(device))
        return 0;
    pthread_mutex_lock(&device->lock);
    some = is_idle(device) && free_all(device, 1);
    pthread_mutex_unlock(&device->lock);
    xccl_cuda_leave(device);
    return some;
}

/* 1: it will be freed. */
static int leave(struct xccl_cuda_device *device, void *host, xccl_cu_ptr at, size_t bytes)
{
    struct xccl_cuda_left *left = xccl_calloc(1, sizeof *left);

    if (!left)
        return 0;
    pthread_mutex_lock(&device->lock);
    *left = (struct xccl_cuda_left){device->left, host, at, bytes};
    device->left = left;
    pthread_mutex_unlock(&device->lock);
    (void)xccl_cuda_free_left(device);
    return 1;
}

void xccl_cuda_free_later(struct xccl_cuda_device *device, xccl_cu_ptr at, size_t bytes)
{
    if (at && !leave(device, NULL, at, bytes)) /* one that waits is better than none */
        xccl_cuda_free(device, at);
}

void xccl_cuda_host_free_later(struct xccl_cuda_device *device, void *at, xccl_cu_ptr device_at,
                               size_t bytes)
{
    if (at && !leave(device, at, device_at, bytes))
        xccl_cuda_host_free(device, at);
}

/* What is just of that size; 0: there is none. */
static int take_left(struct xccl_cuda_device *device, int is_host, size_t bytes,
                     struct xccl_cuda_left *left_out)
{
    struct xccl_cuda_left **at = &device->left, *found;

    pthread_mutex_lock(&device->lock);
    while (*at && ((*at)->bytes != bytes || ((*at)->host != NULL) != is_host))
        at = &(*at)->next;
    found = *at;
    if (found) {
        *at = found->next;
        *left_out = *found;
    }
    pthread_mutex_unlock(&device->lock);
    xccl_free(found);
    return found != NULL;
}

/* --- taking and giving --- */

/* What the driver says; *rc_out: of its context. */
static xccl_cu_result take(struct xccl_cuda_device *device, size_t bytes, xccl_cu_ptr *at_out,
                           xcclResult_t *rc_out)
{
    struct xccl_cuda_left left;
    xccl_cu_result result;

    *at_out = 0;
    *rc_out = xcclSuccess;
    if (take_left(device, 0, bytes, &left)) {
        *at_out = left.at;
        return 0;
    }
    *rc_out = xccl_cuda_enter(device);
    if (*rc_out)
        return 0;
    result = device->driver->mem_alloc(at_out, bytes);
    if (result == XCCL_CU_OUT_OF_MEMORY && xccl_cuda_free_left(device))
        result = device->driver->mem_alloc(at_out, bytes);
    xccl_cuda_leave(device);
    return result;
}

xcclResult_t xccl_cuda_alloc(struct xccl_cuda_device *device, size_t bytes, xccl_cu_ptr *at_out)
{
    xcclResult_t rc;
    xccl_cu_result result = take(device, bytes, at_out, &rc);

    return rc ? rc : xccl_cuda_result(result, "device memory");
}

xcclResult_t xccl_cuda_try_alloc(struct xccl_cuda_device *device, size_t bytes, xccl_cu_ptr *at_out)
{
    xcclResult_t rc;
    xccl_cu_result result = take(device, bytes, at_out, &rc);

    return rc ? rc : xccl_cuda_result_quietly(result, "device memory");
}

void xccl_cuda_free(const struct xccl_cuda_device *device, xccl_cu_ptr at)
{
    if (!at || xccl_cuda_enter(device))
        return;
    (void)device->driver->mem_free(at);
    xccl_cuda_leave(device);
}

xcclResult_t xccl_cuda_host_alloc(struct xccl_cuda_device *device, size_t bytes, void **at_out,
                                  xccl_cu_ptr *device_at_out)
{
    struct xccl_cuda_left left;
    xcclResult_t rc;

    if (take_left(device, 1, bytes, &left)) {
        *at_out = left.host;
        *device_at_out = left.at;
        return xcclSuccess;
    }
    rc = xccl_cuda_enter(device);
    if (rc)
        return rc;
    rc = xccl_cuda_result(
        device->driver->host_alloc(at_out, bytes, XCCL_CU_HOST_PORTABLE | XCCL_CU_HOST_MAPPED),
        "pinned memory");
    if (!rc) {
        rc = xccl_cuda_result(device->driver->host_device_ptr(device_at_out, *at_out, 0),
                              "pinned memory");
        if (rc)
            (void)device->driver->host_free(*at_out);
    }
    xccl_cuda_leave(device);
    return rc;
}

void xccl_cuda_host_free(const struct xccl_cuda_device *device, void *at)
{
    if (!at || xccl_cuda_enter(device))
        return;
    (void)device->driver->host_free(at);
    xccl_cuda_leave(device);
}
