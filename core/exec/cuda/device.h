/* SPDX-License-Identifier: BSD-3-Clause */
/* A CUDA device of this process: its primary context, the kernels, loaded all at once (one that is
 * loaded while others spin never comes), and memory. What is done here is done beside whatever the
 * program does with its streams, also while its thread captures one.
 *
 * Thread: any. */
#ifndef XCCL_EXEC_CUDA_DEVICE_H
#define XCCL_EXEC_CUDA_DEVICE_H

#include <pthread.h>

#include "base/cuda_driver.h"

#define XCCL_CUDA_NAME_BYTES  64
#define XCCL_CUDA_DEVICES_MAX 64 /* of a process that are used */

/* One who launches kernels; of its last launch, written between launch_begin and _end. */
struct xccl_cuda_worker {
    struct xccl_cuda_worker *next;
    xccl_cu_event event; /* behind it */
    int has_launched;
    int is_captured; /* one ever was: a graph may run its kernels at any time */
};

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

    pthread_mutex_t lock; /* of what follows */
    struct xccl_cuda_worker *workers;
    uint32_t launching; /* threads that are about to */
    struct xccl_cuda_left *left; /* memory that is to be freed; device_memory.c */
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

/* --- device_memory.c --- */
xcclResult_t xccl_cuda_alloc(struct xccl_cuda_device *device, size_t bytes, xccl_cu_ptr *at_out);
/* Does the same where another way follows: a refusal of the driver is not logged. */
xcclResult_t xccl_cuda_try_alloc(struct xccl_cuda_device *device, size_t bytes,
                                 xccl_cu_ptr *at_out);
void xccl_cuda_free(const struct xccl_cuda_device *device, xccl_cu_ptr at); /* 0 is fine */
/* Pinned memory, and where the device sees it. */
xcclResult_t xccl_cuda_host_alloc(struct xccl_cuda_device *device, size_t bytes, void **at_out,
                                  xccl_cu_ptr *device_at_out);
void xccl_cuda_host_free(const struct xccl_cuda_device *device, void *at);
/* Frees memory that no kernel uses any more, without a wait for the kernels of other workers: as
 * soon as none is at work, or somebody takes as much. */
void xccl_cuda_free_later(struct xccl_cuda_device *device, xccl_cu_ptr at, size_t bytes);
void xccl_cuda_host_free_later(struct xccl_cuda_device *device, void *at, xccl_cu_ptr device_at,
                               size_t bytes);
int xccl_cuda_free_left(struct xccl_cuda_device *device); /* now, if that can be; 1: some was */
void xccl_cuda_drop_left(struct xccl_cuda_device *device); /* it has no workers any more */
void xccl_cuda_worker_join(struct xccl_cuda_device *device, struct xccl_cuda_worker *worker);
/* Its kernels have ended. */
void xccl_cuda_worker_leave(struct xccl_cuda_device *device, struct xccl_cuda_worker *worker);
/* Around a worker's launch and the event behind it. */
void xccl_cuda_launch_begin(struct xccl_cuda_device *device);
void xccl_cuda_launch_end(struct xccl_cuda_device *device);

/* --- copies --- */
/* Done when they return. */
xcclResult_t xccl_cuda_upload(const struct xccl_cuda_device *device, xccl_cu_ptr to,
                              const void *from, size_t bytes);
xcclResult_t xccl_cuda_download(const struct xccl_cuda_device *device, void *to, xccl_cu_ptr from,
                                size_t bytes);
xcclResult_t xccl_cuda_clear(const struct xccl_cuda_device *device, xccl_cu_ptr at, size_t bytes);

#endif
