/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of sizes in one block of memory with a count of references, and what is to be known of
 * all of them together. Thread: see the header. */
#include "plan/call_sizes.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"

static size_t table_bytes(const struct xccl_call_sizes *sizes, int buffer)
{
    return sizes->chunks[buffer] * sizeof(size_t);
}

xcclResult_t xccl_call_sizes_create(uint32_t in_chunks, uint32_t out_chunks,
                                    struct xccl_call_sizes **sizes_out)
{
    size_t entries = 2 * ((size_t)in_chunks + out_chunks);
    struct xccl_call_sizes *sizes = xccl_calloc(1, sizeof *sizes + entries * sizeof(size_t));

    if (!sizes)
        return xcclSystemError;
    atomic_init(&sizes->refs, 1);
    sizes->chunks[XCCL_BUFFER_IN] = in_chunks;
    sizes->chunks[XCCL_BUFFER_OUT] = out_chunks;
    sizes->sizes[XCCL_BUFFER_IN] = (size_t *)(void *)(sizes + 1);
    sizes->sizes[XCCL_BUFFER_OUT] = sizes->sizes[XCCL_BUFFER_IN] + in_chunks;
    sizes->offsets[XCCL_BUFFER_IN] = sizes->sizes[XCCL_BUFFER_OUT] + out_chunks;
    sizes->offsets[XCCL_BUFFER_OUT] = sizes->offsets[XCCL_BUFFER_IN] + in_chunks;
    *sizes_out = sizes;
    return xcclSuccess;
}

static uint64_t hash_more(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
    return hash ^ hash >> 32;
}

void xccl_call_sizes_seal(struct xccl_call_sizes *sizes, enum xccl_coll coll)
{
    int known = coll == XCCL_COLL_ALL_GATHER ? XCCL_BUFFER_OUT : XCCL_BUFFER_IN;

    for (int buffer = XCCL_BUFFER_IN; buffer <= XCCL_BUFFER_OUT; buffer++)
        for (uint32_t i = 0; i < sizes->chunks[buffer]; i++)
            if (sizes->sizes[buffer][i] > sizes->largest)
                sizes->largest = sizes->sizes[buffer][i];
    for (uint32_t i = 0; i < sizes->chunks[known]; i++) {
        sizes->total += sizes->sizes[known][i];
        if (coll != XCCL_COLL_ALL_TO_ALL)
            sizes->hash = hash_more(sizes->hash + i, sizes->sizes[known][i]);
    }
}

void xccl_call_sizes_get(const struct xccl_call_sizes *sizes)
{
    struct xccl_call_sizes *shared = (struct xccl_call_sizes *)(uintptr_t)sizes;

    /* Relaxed: whoever takes another reference has one. */
    if (shared)
        atomic_fetch_add_explicit(&shared->refs, 1, memory_order_relaxed);
}

void xccl_call_sizes_put(const struct xccl_call_sizes *sizes)
{
    struct xccl_call_sizes *shared = (struct xccl_call_sizes *)(uintptr_t)sizes;

    /* Release: reads of the tables before. Acquire: all of them before the memory goes. */
    if (shared && atomic_fetch_sub_explicit(&shared->refs, 1, memory_order_acq_rel) == 1)
        xccl_free(shared);
}

int xccl_call_sizes_equal(const struct xccl_call_sizes *a, const struct xccl_call_sizes *b)
{
    for (int buffer = XCCL_BUFFER_IN; buffer <= XCCL_BUFFER_OUT; buffer++)
        if (a->chunks[buffer] != b->chunks[buffer] ||
            memcmp(a->sizes[buffer], b->sizes[buffer], table_bytes(a, buffer)) != 0 ||
            memcmp(a->offsets[buffer], b->offsets[buffer], table_bytes(a, buffer)) != 0)
            return 0;
    return 1;
}
