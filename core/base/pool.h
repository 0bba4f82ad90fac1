/* SPDX-License-Identifier: BSD-3-Clause */
/* A fixed number of equal objects in memory taken once: data paths take from it and answer "busy"
 * when it is empty. One thread at a time. */
#ifndef XCCL_BASE_POOL_H
#define XCCL_BASE_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "xccl_types.h"

struct xccl_pool {
    void *memory;
    void *free_list;
    size_t object_bytes;
    uint32_t count, taken;
};

/* Objects are zeroed once, aligned to 64 bytes when object_bytes is a multiple of 64, else to 16.
 * An object keeps its bytes while it is not taken. */
xcclResult_t xccl_pool_init(struct xccl_pool *pool, size_t object_bytes, uint32_t count);
void xccl_pool_fini(struct xccl_pool *pool);
void *xccl_pool_take(struct xccl_pool *pool); /* NULL: all taken */
void xccl_pool_give(struct xccl_pool *pool, void *object);

#endif
