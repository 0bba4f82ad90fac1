/* SPDX-License-Identifier: BSD-3-Clause */
/* Fixed objects out of one block, with a stack of the free ones behind them in the same block. The
 * stack holds pointers, so an object's bytes are its user's alone: what was left in it when it was
 * given back is there when it is taken again. Last given, first taken: its lines are still in
 * cache. One thread at a time; take and give do not allocate, lock or make system calls. */
#include "base/pool.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

#define SMALL_ALIGN 16
#define LARGE_ALIGN 64

xcclResult_t xccl_pool_init(struct xccl_pool *pool, size_t object_bytes, uint32_t count)
{
    size_t stride = object_bytes ? object_bytes : 1;
    size_t objects_bytes, stack_bytes, bytes;
    char *memory;
    void **stack;

    memset(pool, 0, sizeof(*pool));
    if (__builtin_add_overflow(stride, SMALL_ALIGN - 1, &stride))
        goto err_size;
    stride &= ~(size_t)(SMALL_ALIGN - 1);
    if (__builtin_mul_overflow(stride, (size_t)count, &objects_bytes) ||
        __builtin_mul_overflow(sizeof(void *), (size_t)count, &stack_bytes) ||
        __builtin_add_overflow(objects_bytes, stack_bytes, &bytes))
        goto err_size;
    memory = xccl_calloc_aligned(object_bytes % LARGE_ALIGN ? SMALL_ALIGN : LARGE_ALIGN, bytes);
    if (!memory)
        return xcclSystemError;

    /* The lowest object lies on top and is taken first. */
    stack = (void **)(void *)(memory + objects_bytes);
    for (uint32_t i = 0; i < count; i++)
        stack[i] = memory + (size_t)(count - 1 - i) * stride;
    *pool = (struct xccl_pool){
        .memory = memory, .free_list = stack, .object_bytes = stride, .count = count};
    return xcclSuccess;

err_size:
    return xccl_fail(xcclSystemError, ENOMEM, "ask for fewer or smaller objects",
                     "cannot make a pool of %u objects of %zu bytes", count, object_bytes);
}

void xccl_pool_fini(struct xccl_pool *pool)
{
    xccl_free(pool->memory);
    memset(pool, 0, sizeof(*pool));
}

void *xccl_pool_take(struct xccl_pool *pool)
{
    void **stack = pool->free_list;

    if (pool->taken == pool->count)
        return NULL;
    pool->taken++;
    return stack[pool->count - pool->taken];
}

void xccl_pool_give(struct xccl_pool *pool, void *object)
{
    void **stack = pool->free_list;

    assert(pool->taken > 0);
    assert((char *)object >= (char *)pool->memory && (char *)object < (char *)pool->free_list);
    assert(((size_t)((char *)object - (char *)pool->memory)) % pool->object_bytes == 0);
    stack[pool->count - pool->taken] = object;
    pool->taken--;
}
