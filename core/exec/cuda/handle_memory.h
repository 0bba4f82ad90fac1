/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory that is made by a handle (cuMemCreate) and handed to other processes of the host as
 * a file descriptor: who has the descriptor has the memory, whatever namespaces the processes are
 * in, and it lives as long as one of them maps it. Devices with fabric handles share the same
 * memory by 64 bytes, too, which go any way that bytes go; both processes need access to one IMEX
 * channel of the driver (/dev/nvidia-caps-imex-channels), and that nothing says but the driver's
 * refusal.
 *
 * All functions are quiet, for there are other ways: results are the driver's, 0 is success.
 * Thread: any. */
#ifndef XCCL_EXEC_CUDA_HANDLE_MEMORY_H
#define XCCL_EXEC_CUDA_HANDLE_MEMORY_H

#include "exec/cuda/device.h"

/* A mapped allocation; at 0: none. */
struct xccl_cuda_block {
    xccl_cu_ptr at;
    size_t bytes; /* whole granules */
    xccl_cu_handle handle;
    int has_fabric; /* 1: it may be exported by a fabric handle */
    xccl_cu_result no_fabric; /* 0: that was not asked for, or not refused */
};

/* 1: the driver and the device have all that is needed. */
int xccl_cuda_has_handles(const struct xccl_cuda_device *device);
/* 1: the device says that it has fabric handles, if it has handles. */
int xccl_cuda_has_fabric(const struct xccl_cuda_device *device);

/* At least so many bytes, with whatever is in them. reaches: count ordinals of devices of this
 * process that use it besides its own; those that do not reach it are left out, and, where nothing
 * is promised, those that are refused. fabric: to be exported in that way, too, where it may be. */
xccl_cu_result xccl_cuda_block_create(const struct xccl_cuda_device *device, size_t bytes,
                                      const int *reaches, int count, int is_promised, int fabric,
                                      struct xccl_cuda_block *block_out);
/* A descriptor for others, the caller's. */
xccl_cu_result xccl_cuda_block_export(const struct xccl_cuda_device *device,
                                      const struct xccl_cuda_block *block, int *fd_out);
/* The memory that another process exported, of block.bytes there. The descriptor stays the
 * caller's. */
xccl_cu_result xccl_cuda_block_import(const struct xccl_cuda_device *device, int fd, size_t bytes,
                                      struct xccl_cuda_block *block_out);
/* Exports and imports a block by a fabric handle instead of a descriptor. */
xccl_cu_result xccl_cuda_block_export_fabric(const struct xccl_cuda_device *device,
                                             const struct xccl_cuda_block *block,
                                             struct xccl_cu_fabric *fabric_out);
xccl_cu_result xccl_cuda_block_import_fabric(const struct xccl_cuda_device *device,
                                             const struct xccl_cu_fabric *fabric, size_t bytes,
                                             struct xccl_cuda_block *block_out);
/* Of any kind; a zeroed one is fine. */
void xccl_cuda_block_free(const struct xccl_cuda_device *device, struct xccl_cuda_block *block);

#endif
