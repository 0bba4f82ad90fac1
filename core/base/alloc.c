/* SPDX-License-Identifier: BSD-3-Clause */
/* The counted allocators. A block is counted with the size that the C library gave it, which is
 * what xccl_free can still find out; so no header of ours stands before it and any alignment works.
 * A block of 0 bytes is one of 1 byte: NULL always means that there was no memory.
 * Any thread; the counters order nothing and are relaxed. */
#include "base/alloc.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/inject.h"

static _Atomic uint64_t live_count;
static _Atomic uint64_t live_bytes;

static void count_in(void *memory)
{
    atomic_fetch_add_explicit(&live_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&live_bytes, malloc_usable_size(memory), memory_order_relaxed);
}

static void count_out(uint64_t bytes)
{
    atomic_fetch_sub_explicit(&live_count, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&live_bytes, bytes, memory_order_relaxed);
}

static void no_memory(size_t bytes)
{
    xccl_fail(xcclSystemError, ENOMEM, "free memory on this host, or raise the limit of the job",
              "cannot allocate %zu bytes", bytes);
}

void *xccl_calloc(size_t count, size_t bytes)
{
    void *memory;
    size_t total;

    if (__builtin_mul_overflow(count, bytes, &total)) {
        xccl_fail(xcclSystemError, ENOMEM, "allocate fewer",
                  "cannot allocate %zu objects of %zu bytes", count, bytes);
        return NULL;
    }
    memory = xccl_inject_due() ? NULL : calloc(1, total ? total : 1);
    if (!memory) {
        no_memory(total);
        return NULL;
    }
    count_in(memory);
    return memory;
}

void *xccl_calloc_aligned(size_t align, size_t bytes)
{
    void *memory = NULL;

    if (align < sizeof(void *) || (align & (align - 1)) != 0) {
        xccl_fail(xcclInternalError, 0, "use an alignment that is a power of two and at least 8",
                  "cannot allocate %zu bytes aligned to %zu", bytes, align);
        return NULL;
    }
    if (bytes == 0)
        bytes = 1;
    if (xccl_inject_due() || posix_memalign(&memory, align, bytes) != 0) {
        no_memory(bytes);
        return NULL;
    }
    memset(memory, 0, bytes);
    count_in(memory);
    return memory;
}

void *xccl_realloc(void *old, size_t bytes)
{
    size_t old_bytes = old ? malloc_usable_size(old) : 0;
    void *memory = xccl_inject_due() ? NULL : realloc(old, bytes ? bytes : 1);

    if (!memory) {
        no_memory(bytes);
        return NULL;
    }
    if (old)
        count_out(old_bytes);
    count_in(memory);
    return memory;
}

char *xccl_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = xccl_calloc(1, bytes);

    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

void xccl_free(void *memory)
{
    if (!memory)
        return;
    count_out(malloc_usable_size(memory));
    free(memory);
}

size_t xccl_alloc_bytes(const void *memory)
{
    return memory ? malloc_usable_size((void *)(uintptr_t)memory) : 0;
}

uint64_t xccl_alloc_live(void)
{
    return atomic_load_explicit(&live_count, memory_order_relaxed);
}

uint64_t xccl_alloc_live_bytes(void)
{
    return atomic_load_explicit(&live_bytes, memory_order_relaxed);
}
