/* SPDX-License-Identifier: BSD-3-Clause */
/* What xcclMemAlloc gives on a device: zeroed device memory, known by its address.
 *
 * Thread: any. */
#ifndef XCCL_EXEC_CUDA_USER_MEMORY_H
#define XCCL_EXEC_CUDA_USER_MEMORY_H

#include <stddef.h>

#include "xccl_types.h"

xcclResult_t xccl_cuda_user_alloc(int ordinal, size_t bytes, void **at_out);
/* 0: it is none of these. */
int xccl_cuda_user_free(void *at);

#endif
