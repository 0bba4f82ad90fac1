/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices of this process, each opened once for all communicators of it. Thread: any; a lock guards
 * the table and the opening. */
#include "exec/cuda/device.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/fork.h"
#include "exec/cuda/device_abi.h"
#include "exec/cuda/images.h"

#define KERNELS_MAX     16
#define PARAMETERS_MOST 4096 /* bytes of a launch */

struct kernel {
    xccl_cu_module module;
    xccl_cu_function function;
    const char *name;
};

static struct xccl_lock lock = XCCL_LOCK(NULL); /* a child of fork() has no driver */
static struct xccl_cuda_device *devices[XCCL_CUDA_DEVICES_MAX];
static _Thread_local int capture_mode; /* of the program, while the thread is inside */
static _Thread_local int depth; /* how often it is */

xcclResult_t xccl_cuda_enter(const struct xccl_cuda_device *device)
{
    int mode = XCCL_CU_CAPTURE_MODE_RELAXED;
    xcclResult_t rc = xccl_cuda_result(device->driver->ctx_push(device->ctx), "a CUDA context");

    if (rc)
        return rc;
    if (!depth) {
        rc = xccl_cuda_result(device->driver->capture_mode(&mode), "a capture mode");
        if (rc) {
            (void)device->driver->ctx_pop(&(xccl_cu_ctx){NULL});
            return rc;
        }
        capture_mode = mode;
    }
    depth++;
    return xcclSuccess;
}

void xccl_cuda_leave(const struct xccl_cuda_device *device)
{
    if (--depth == 0)
        (void)device->driver->capture_mode(&capture_mode);
    (void)device->driver->ctx_pop(&(xccl_cu_ctx){NULL});
}

/* --- opening --- */

static xcclResult_t load_kernel(struct xccl_cuda_device *device,
                                const struct xccl_cuda_image_file *file, struct kernel *kernel)
{
    const struct xccl_cuda_driver *driver = device->driver;
    int threads = 0, blocks = 0;
    xcclResult_t rc = xccl_cuda_result(driver->module_load(&kernel->module, file->image),
                                       "loading device code");

    if (!rc)
        rc = xccl_cuda_result(
            driver->module_function(&kernel->function, kernel->module, file->kernel), file->kernel);
    if (!rc) /* asking for an attribute loads it, where loading is lazy */
        rc = xccl_cuda_result(
            driver->function_attribute(&threads, XCCL_CU_FUNC_THREADS_MAX, kernel->function),
            file->kernel);
    if (rc)
        return rc;
    kernel->name = file->kernel;
    if ((unsigned)threads < device->threads)
        device->threads = (unsigned)threads;
    rc = xccl_cuda_result(driver->occupancy(&blocks, kernel->function, (int)device->threads, 0),
                          file->kernel);
    if (!rc && blocks < 1)
        rc = xccl_fail(xcclInternalError, 0, "report this as a bug",
                       "a block of kernel %s does not fit on device %d", file->kernel,
                       device->ordinal);
    return rc;
}

static xcclResult_t load_kernels(struct xccl_cuda_device *device)
{
    struct kernel *kernels = xccl_calloc(KERNELS_MAX, sizeof *kernels);
    const struct xccl_cuda_image_file *file;
    xcclResult_t rc = xcclSuccess;

    if (!kernels)
        return xcclSystemError;
    device->kernels = kernels;
    for (unsigned i = 0; i < KERNELS_MAX && !rc && (file = xccl_cuda_image_at(i)); i++)
        rc = load_kernel(device, file, &kernels[i]);
    if (rc && !xccl_cuda_has_device_code())
        rc = xccl_fail(xcclInvalidUsage, 0, "build it with nvcc, or set XCCL_DEVICE=host",
                       "this library was built without device code for CUDA");
    return rc;
}

/* Once without work: the first launch of a kernel that needs more local memory than the ones before
 * waits until the device is idle, which it never is beside a kernel that waits for this one. */
static xcclResult_t warm_up(const struct xccl_cuda_device *device)
{
    static char nothing[PARAMETERS_MOST];
    const struct kernel *kernels = device->kernels;
    void *parameters[] = {nothing};
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < KERNELS_MAX && kernels[i].function && !rc; i++)
        rc = xccl_cuda_result(device->driver->launch(kernels[i].function, 1, 1, 1, device->threads,
                                                     1, 1, 0, device->stream, parameters, NULL),
                              kernels[i].name);
    return rc ? rc : xccl_cuda_result(device->driver->stream_sync(device->stream), "warming up");
}

static xcclResult_t describe(struct xccl_cuda_device *device)
{
    const struct xccl_cuda_driver *driver = device->driver;
    xcclResult_t rc = xccl_cuda_result(driver->device_get(&device->device, device->ordinal),
                                       "a CUDA device");

    if (!rc)
        rc = xccl_cuda_result(
            driver->device_name(device->name, sizeof device->name, device->device), "its name");
    if (!rc)
        rc = xccl_cuda_result(driver->device_uuid(&device->uuid, device->device), "its UUID");
    if (!rc)
        rc = xccl_cuda_result(driver->device_attribute(&device->multiprocessors,
                                                       XCCL_CU_ATTR_MULTIPROCESSORS,
                                                       device->device),
                              "its multiprocessors");
    return rc;
}

static void close_device(struct xccl_cuda_device *device)
{
    struct kernel *kernels = device->kernels;

    xccl_cuda_drop_left(device);
    if (device->ctx && !xccl_cuda_enter(device)) {
        for (int i = 0; kernels && i < KERNELS_MAX; i++)
            if (kernels[i].module)
                (void)device->driver->module_unload(kernels[i].module);
        if (device->stream)
            (void)device->driver->stream_destroy(device->stream);
        xccl_cuda_leave(device);
    }
    if (device->ctx)
        (void)device->driver->ctx_release(device->device);
    pthread_mutex_destroy(&device->lock);
    xccl_free(kernels);
    xccl_free(device);
}

static xcclResult_t open_device(struct xccl_cuda_device *device)
{
    xcclResult_t rc = describe(device);

    if (!rc)
        rc = xccl_cuda_result(device->driver->ctx_retain(&device->ctx, device->device),
                              "the context of a CUDA device");
    if (!rc)
        rc = xccl_cuda_enter(device);
    if (rc)
        return rc;
    rc = xccl_cuda_result(
        device->driver->stream_create(&device->stream, XCCL_CU_STREAM_NON_BLOCKING), "a stream");
    if (!rc)
        rc = load_kernels(device);
    if (!rc)
        rc = warm_up(device);
    xccl_cuda_leave(device);
    return rc;
}

xcclResult_t xccl_cuda_device_get(int ordinal, struct xccl_cuda_device **device_out)
{
    const struct xccl_cuda_driver *driver = xccl_cuda_driver();
    struct xccl_cuda_device *device;
    xcclResult_t rc = xcclSuccess;

    if (!driver || ordinal < 0 || ordinal >= driver->devices || ordinal >= XCCL_CUDA_DEVICES_MAX)
        return xccl_fail(xcclInvalidUsage, 0, NULL, "CUDA device %d cannot be used: %s", ordinal,
                         driver ? "there is none" : xccl_cuda_why_not());
    xccl_lock_take(&lock);
    device = devices[ordinal];
    if (!device) {
        device = xccl_calloc(1, sizeof *device);
        rc = device ? xcclSuccess : xcclSystemError;
        if (device) {
            device->driver = driver;
            device->ordinal = ordinal;
            device->threads = XCCL_DEV_THREADS;
            pthread_mutex_init(&device->lock, NULL);
            rc = open_device(device);
        }
        if (rc && device)
            close_device(device);
        else
            devices[ordinal] = device;
    }
    if (!rc) {
        device->refs++;
        *device_out = device;
    }
    xccl_lock_give(&lock);
    return rc;
}

void xccl_cuda_device_put(struct xccl_cuda_device *device)
{
    if (!device)
        return;
    xccl_lock_take(&lock);
    if (--device->refs == 0) {
        devices[device->ordinal] = NULL;
        close_device(device);
    }
    xccl_lock_give(&lock);
}

xccl_cu_function xccl_cuda_device_function(const struct xccl_cuda_device *device, const char *name)
{
    const struct kernel *kernels = device->kernels;

    for (int i = 0; i < KERNELS_MAX && kernels[i].name; i++)
        if (strcmp(kernels[i].name, name) == 0)
            return kernels[i].function;
    return NULL;
}

/* --- copies --- */

static xcclResult_t finish(const struct xccl_cuda_device *device, xccl_cu_result result,
                           const char *what)
{
    xcclResult_t rc = xccl_cuda_result(result, what);

    if (!rc)
        rc = xccl_cuda_result(device->driver->stream_sync(device->stream), what);
    xccl_cuda_leave(device);
    return rc;
}

xcclResult_t xccl_cuda_upload(const struct xccl_cuda_device *device, xccl_cu_ptr to,
                              const void *from, size_t bytes)
{
    xcclResult_t rc = xccl_cuda_enter(device);

    return rc ? rc
              : finish(device, device->driver->copy_to_device(to, from, bytes, device->stream),
                       "a copy to device memory");
}

xcclResult_t xccl_cuda_download(const struct xccl_cuda_device *device, void *to, xccl_cu_ptr from,
                                size_t bytes)
{
    xcclResult_t rc = xccl_cuda_enter(device);

    return rc ? rc
              : finish(device, device->driver->copy_to_host(to, from, bytes, device->stream),
                       "a copy from device memory");
}

xcclResult_t xccl_cuda_clear(const struct xccl_cuda_device *device, xccl_cu_ptr at, size_t bytes)
{
    xcclResult_t rc = xccl_cuda_enter(device);

    return rc ? rc
              : finish(device, device->driver->set_bytes(at, 0, bytes, device->stream),
                       "clearing device memory");
}
