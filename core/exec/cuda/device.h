/* SPDX-License-Identifier: BSD-3-Clause */
/* A CUDA device of this process: its primary context, the kernels, loaded all at once (one that is
 * loaded while others spin never comes), and memory. What is done here is done beside whatever the
 * program does with its streams, also while its thread captures one.
 *
 * Thread: any. */
#ifndef XCCL_EXEC_CUDA_DEVICE_H
#define XCCL_EXEC_CUDA_DEVICE_H

#include "base/cuda_driver.h"

#define XCCL_CUDA_NAME_BYTES  64
#define XCCL_CUDA_DEVICES_MAX 64 /* of a process that are used */

struct xccl_cuda_device {
    const struct xccl_cuda_driver *driver;
    int ordinal;
    xccl_cu_device device;
    xccl_cu_ctx ctx;
    struct xccl_cu_uuid uuid;
    char name[XCCL_CUDA_NAME_BYTES];
    int multiprocessors;
    unsigned threads; /* of a block of every kernel */
    xccl_cu_stream stream; /* the library's own */
    void *kernels; /* device.c */
    int refs;
};

/* Opens it, or counts one more user. */
xcclResult_t xccl_cuda_device_get(int ordinal, struct xccl_cuda_device **device_out);
void xccl_cuda_device_put(struct xccl_cuda_device *device); /* NULL is fine */
/* One of the kernels; they are all there. */
xccl_cu_function xccl_cuda_device_function(const struct xccl_cuda_device *device, const char *name);

/* Makes the device's context the thread's and its capture mode relaxed, until leave. Pairs may lie
 * inside of pairs. */
xcclResult_t xccl_cuda_enter(const struct xccl_cuda_device *device);
void xccl_cuda_leave(const struct xccl_cuda_device *device);

xcclResult_t xccl_cuda_alloc(const struct xccl_cuda_device *device, size_t bytes,
                             xccl_cu_ptr *at_out);
void xccl_cuda_free(const struct xccl_cuda_device *device, xccl_cu_ptr at); /* 0 is fine */
/* Pinned memory, and where the device sees it. */
xcclResult_t xccl_cuda_host_alloc(const struct xccl_cuda_device *device, size_t bytes,
                                  void **at_out, xccl_cu_ptr *device_at_out);
void xccl_cuda_host_free(const struct xccl_cuda_device *device, void *at);
/* Done when they return. */
xcclResult_t xccl_cuda_upload(const struct xccl_cuda_device *device, xccl_cu_ptr to,
                              const void *from, size_t bytes);
xcclResult_t xccl_cuda_download(const struct xccl_cuda_device *device, void *to, xccl_cu_ptr from,
                                size_t bytes);
xcclResult_t xccl_cuda_clear(const struct xccl_cuda_device *device, xccl_cu_ptr at, size_t bytes);

#endif
