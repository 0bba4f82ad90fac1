/* SPDX-License-Identifier: BSD-3-Clause */
/* Copy and reduction kernels on host memory. Plain C, compiled for several instruction sets and
 * chosen at load time; the results are the same bits on all of them, since adding has no freedom
 * here. Pure functions: any thread. */
#ifndef XCCL_EXEC_HOST_KERNELS_H
#define XCCL_EXEC_HOST_KERNELS_H

#include <stddef.h>
#include <string.h>

#include "xccl_types.h"

/* out[i] = a[i] + b[i]. out may equal a or b; other overlaps are not allowed. Any alignment. */
typedef void xccl_reduce_fn(void *out, const void *a, const void *b, size_t elem_count);

/* The kernel for a type and operator, or NULL when this version has none. */
xccl_reduce_fn *xccl_reduce_kernel(xcclDataType_t type, xcclRedOp_t op);

/* Bytes of an element; 0 for an unknown type. */
size_t xccl_type_bytes(xcclDataType_t type);

/* out = parts[0] + parts[1] + .. in that order; count >= 2. out may equal any of the parts. */
void xccl_reduce_many(xccl_reduce_fn *reduce, size_t elem_bytes, void *out,
                      const void *const *parts, unsigned count, size_t elem_count);

/* Fills a slot. From 1 KiB the string instruction beats vector stores, which fetch the line first.
 */
static inline void xccl_fill(void *slot, const void *from, size_t bytes)
{
#if defined(__x86_64__) && !defined(XCCL_SANITIZED)
    if (bytes >= 1024 && bytes < 8192) {
        __asm__ volatile("rep movsb" : "+D"(slot), "+S"(from), "+c"(bytes)::"memory");
        return;
    }
#endif
    memcpy(slot, from, bytes);
}

#endif
