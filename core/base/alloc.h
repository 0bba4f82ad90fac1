/* SPDX-License-Identifier: BSD-3-Clause */
/* Counted allocators. All memory of the core is zeroed, counted and freed with xccl_free(); tests
 * let each allocation fail in turn (inject.h). Never on the path of a message. Any thread. */
#ifndef XCCL_BASE_ALLOC_H
#define XCCL_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "xccl_types.h"

/* NULL: no memory (overflow of count * bytes included); xccl_fail() has been called. */
void *xccl_calloc(size_t count, size_t bytes);
/* align: a power of two of at least 8. */
void *xccl_calloc_aligned(size_t align, size_t bytes);
/* Grows or shrinks; new bytes are not zeroed. NULL leaves old as it was. */
void *xccl_realloc(void *old, size_t bytes);
char *xccl_strdup(const char *text);
void xccl_free(void *memory); /* NULL is fine */

/* Of one block, as it is counted. NULL: 0. */
size_t xccl_alloc_bytes(const void *memory);
/* Blocks alive and bytes in them. */
uint64_t xccl_alloc_live(void);
uint64_t xccl_alloc_live_bytes(void);

#endif
