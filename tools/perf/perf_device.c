/* SPDX-License-Identifier: BSD-3-Clause */
/* Mirrors of host memory on a CUDA device, and the stream and graph of calls. A rank takes the
 * device of its number among those of its host, modulo the devices there are. Thread: the rank's.
 */
#include "perf/perf_device.h"

#include <string.h>

#include "base/alloc.h"
#include "base/cuda_driver.h"
#include "base/error.h"

#define NAME_BYTES 40

struct mirror {
    const char *memory;
    size_t bytes;
    xccl_cu_ptr at;
    void *registered; /* with the communicator; NULL: it is not */
    struct mirror *next;
};

struct xccl_perf_device {
    const struct xccl_cuda_driver *driver;
    int ordinal;
    xccl_cu_device device;
    char name[NAME_BYTES];
    xccl_cu_stream stream;
    xccl_cu_graph graph;
    xccl_cu_graph_exec exec;
    struct mirror *mirrors;
};

/* ---- devices ---- */

static int count_before(const struct xccl_perf_job *job)
{
    int before = 0;

    for (int i = 0; i < job->rank; i++)
        before += strcmp(job->places[i].host, job->places[job->rank].host) == 0;
    return before;
}

static xcclResult_t open_stream(struct xccl_perf_device *device)
{
    const struct xccl_cuda_driver *driver = device->driver;
    xccl_cu_ctx ctx = NULL;
    xcclResult_t rc = xccl_cuda_result(driver->device_get(&device->device, device->ordinal),
                                       "opening a CUDA device");

    if (!rc)
        rc = xccl_cuda_result(
            driver->device_name(device->name, sizeof(device->name), device->device),
            "querying the device's name");
    if (!rc)
        rc = xccl_cuda_result(driver->ctx_retain(&ctx, device->device),
                              "creating the device's context");
    if (!rc)
        rc = xccl_cuda_result(driver->ctx_set(ctx), "setting the device's context");
    if (!rc)
        rc = xccl_cuda_result(driver->stream_create(&device->stream, XCCL_CU_STREAM_NON_BLOCKING),
                              "creating a stream");
    return rc;
}

xcclResult_t xccl_perf_device_open(struct xccl_perf_job *job, int *ordinal_out)
{
    const struct xccl_cuda_driver *driver = xccl_cuda_driver();
    struct xccl_perf_device *device = NULL;
    xcclResult_t rc = xcclSuccess;

    if (!driver)
        return xccl_fail(xcclInvalidUsage, 0, "use --device host", "rank %d: %s", job->rank,
                         xccl_cuda_why_not());
    device = xccl_calloc(1, sizeof(*device));
    if (!device)
        return xcclSystemError;
    device->driver = driver;
    device->ordinal = count_before(job) % driver->devices;
    job->device = device;
    rc = open_stream(device);
    job->stream = device->stream;
    *ordinal_out = device->ordinal;
    return rc;
}

static void drop_graph(struct xccl_perf_device *device)
{
    if (device->exec)
        (void)device->driver->graph_exec_destroy(device->exec);
    if (device->graph)
        (void)device->driver->graph_destroy(device->graph);
    device->exec = NULL;
    device->graph = NULL;
}

static void drop_mirror(struct xccl_perf_job *job, struct mirror *mirror)
{
    if (mirror->registered)
        (void)xcclCommDeregister(job->comm, mirror->registered);
    if (job->options->registers)
        (void)xcclMemFree((void *)(uintptr_t)mirror->at);
    else
        (void)job->device->driver->mem_free(mirror->at);
    xccl_free(mirror);
}

void xccl_perf_device_close(struct xccl_perf_job *job)
{
    struct xccl_perf_device *device = job->device;

    if (!device)
        return;
    drop_graph(device);
    while (device->mirrors) {
        struct mirror *mirror = device->mirrors;

        device->mirrors = mirror->next;
        drop_mirror(job, mirror);
    }
    if (device->stream)
        (void)device->driver->stream_destroy(device->stream);
    job->device = NULL;
    xccl_free(device);
}

void xccl_perf_device_name(const struct xccl_perf_job *job, char *text, size_t bytes)
{
    if (job->device)
        snprintf(text, bytes, "%d %s", job->device->ordinal, job->device->name);
    else
        snprintf(text, bytes, "host memory");
}

/* ---- mirrors ---- */

static xcclResult_t take(const struct xccl_perf_job *job, size_t bytes, xccl_cu_ptr *at_out)
{
    void *memory = NULL;
    xcclResult_t rc = xcclSuccess;

    if (!job->options->registers)
        return xccl_cuda_result(job->device->driver->mem_alloc(at_out, bytes),
                                "allocating device memory");
    rc = xcclMemAlloc(&memory, bytes);
    *at_out = (xccl_cu_ptr)(uintptr_t)memory;
    return rc;
}

xcclResult_t xccl_perf_device_mirror(struct xccl_perf_job *job, const char *memory, size_t bytes)
{
    struct mirror *mirror = NULL;
    xcclResult_t rc = xcclSuccess;

    if (!job->device)
        return xcclSuccess;
    mirror = xccl_calloc(1, sizeof(*mirror));
    if (!mirror)
        return xcclSystemError;
    mirror->memory = memory;
    mirror->bytes = bytes;
    rc = take(job, bytes, &mirror->at);
    if (rc) {
        xccl_free(mirror);
        return xccl_fail(rc, 0, "choose a smaller -e",
                         "rank %d: cannot allocate %zu bytes on device %d", job->rank, bytes,
                         job->device->ordinal);
    }
    mirror->next = job->device->mirrors;
    job->device->mirrors = mirror;
    if (job->options->registers)
        rc = xcclCommRegister(job->comm, (void *)(uintptr_t)mirror->at, bytes, &mirror->registered);
    return rc;
}

static xccl_cu_ptr find(const struct xccl_perf_device *device, const char *memory)
{
    const struct mirror *mirror = device->mirrors;

    while (mirror && (memory < mirror->memory || memory >= mirror->memory + mirror->bytes))
        mirror = mirror->next;
    return mirror ? mirror->at + (xccl_cu_ptr)(memory - mirror->memory) : 0;
}

void *xccl_perf_device_at(const struct xccl_perf_job *job, const void *memory)
{
    if (!job->device || !memory)
        return (void *)(uintptr_t)memory;
    return (void *)(uintptr_t)find(job->device, memory);
}

static xcclResult_t copy(const struct xccl_perf_job *job, char *memory, size_t bytes, int pushes)
{
    const struct xccl_perf_device *device = job->device;
    xccl_cu_ptr at = find(device, memory);
    xccl_cu_result rc = device->driver->stream_sync(device->stream);

    /* A copy between memory that is not pinned and a stream at work waits within the driver, and
     * holds its lock: other ranks of this process could not allocate meanwhile, which what it waits
     * for may need. */
    if (rc)
        return xccl_cuda_result(rc, "waiting for the stream");
    if (pushes)
        rc = device->driver->copy_to_device(at, memory, bytes, device->stream);
    else
        rc = device->driver->copy_to_host(memory, at, bytes, device->stream);
    return xccl_cuda_result(rc, "copying a buffer");
}

static xcclResult_t copy_written(const struct xccl_perf_job *job,
                                 const struct xccl_perf_buffers *at, int pushes)
{
    return copy(job, at->written - XCCL_PERF_GUARD_BYTES,
                at->written_bytes + 2u * XCCL_PERF_GUARD_BYTES, pushes);
}

xcclResult_t xccl_perf_device_push(const struct xccl_perf_job *job,
                                   const struct xccl_perf_shape *shape, int in_place)
{
    struct xccl_perf_buffers at;
    xcclResult_t rc = xcclSuccess;

    if (!job->device || job->coll->empty)
        return xcclSuccess;
    at = xccl_perf_buffers_of(job, shape, in_place);
    rc = copy_written(job, &at, 1);
    if (!rc && !in_place && shape->send)
        rc = copy(job, at.send, shape->send, 1);
    return rc ? rc : xccl_perf_device_wait(job);
}

xcclResult_t xccl_perf_device_pull(const struct xccl_perf_job *job,
                                   const struct xccl_perf_shape *shape, int in_place)
{
    struct xccl_perf_buffers at;
    xcclResult_t rc = xcclSuccess;

    if (!job->device || job->coll->empty)
        return xcclSuccess;
    at = xccl_perf_buffers_of(job, shape, in_place);
    rc = copy_written(job, &at, 0);
    return rc ? rc : xccl_perf_device_wait(job);
}

/* ---- streams and graphs ---- */

/* A communicator that fails ends its kernels: then the stream is done, and the data is not. */
xcclResult_t xccl_perf_device_wait(const struct xccl_perf_job *job)
{
    xcclResult_t rc = xcclSuccess, async = xcclSuccess;

    if (!job->device)
        return xcclSuccess;
    rc = xccl_cuda_result(job->device->driver->stream_sync(job->device->stream),
                          "waiting for the stream");
    if (!rc)
        rc = xcclCommGetAsyncError(job->comm, &async);
    return rc ? rc : async;
}

xcclResult_t xccl_perf_device_capture(struct xccl_perf_job *job, int begins)
{
    struct xccl_perf_device *device = job->device;
    const struct xccl_cuda_driver *driver = device->driver;
    xcclResult_t rc = xcclSuccess;

    if (begins) {
        drop_graph(device);
        return xccl_cuda_result(
            driver->stream_begin_capture(device->stream, XCCL_CU_CAPTURE_MODE_RELAXED),
            "beginning a graph");
    }
    rc = xccl_cuda_result(driver->stream_end_capture(device->stream, &device->graph),
                          "ending a graph");
    if (!rc)
        rc = xccl_cuda_result(driver->graph_instantiate(&device->exec, device->graph, 0),
                              "creating a graph");
    return rc ? rc : xccl_perf_device_replay(job, 1);
}

xcclResult_t xccl_perf_device_replay(struct xccl_perf_job *job, int64_t launches)
{
    struct xccl_perf_device *device = job->device;
    xccl_cu_result rc = 0;

    for (int64_t i = 0; i < launches && !rc; i++)
        rc = device->driver->graph_launch(device->exec, device->stream);
    return rc ? xccl_cuda_result(rc, "launching a graph") : xccl_perf_device_wait(job);
}
