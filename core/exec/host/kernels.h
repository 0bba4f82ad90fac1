/* SPDX-License-Identifier: BSD-3-Clause */
/* Copy and reduction kernels on host memory. Plain C, compiled for several instruction sets and
 * chosen at run time; the results are the same bits on all of them, as long as the thread has the
 * default floating-point mode. Pure functions: any thread.
 *
 * What one combination of two elements gives:
 * - Integers wrap, as unsigned arithmetic does.
 * - Floats: the exact sum or product, rounded once to the type, to nearest even. float16, bfloat16
 *   and the 8-bit types are rounded after each combination, as if through float32.
 * - Overflow is infinity, but for both 8-bit types the greatest number of that sign, 448 or 57344,
 *   as CUDA converts to them: an infinite float8e5m2 does not survive a sum, product or scaling.
 * - Maximum and minimum are one of the operands, unchanged, whatever their order: a number rather
 *   than a NaN, and +0 is greater than -0. So they do not depend on the algorithm either.
 * - A NaN comes out as a NaN; its sign and its payload are the processor's choice.
 *
 * Averages: floats multiply each contribution by 1 / nranks (pre), then sum. 1 / nranks is rounded
 * to float64 for float64, else to float32; for the smaller types the product is taken in float32
 * and then rounded to the type. Integers sum, wrapping, then divide by nranks, toward zero (post).
 * One rank: neither. PreMulSum multiplies by a scalar of the type, rounded as a product is. */
#ifndef XCCL_EXEC_HOST_KERNELS_H
#define XCCL_EXEC_HOST_KERNELS_H

#include <stddef.h>
#include <string.h>

#include "xccl_types.h"

/* out[i] = a[i] and b[i] combined. out may equal a or b; other overlaps are not allowed. Any
 * alignment. */
typedef void xccl_reduce_fn(void *out, const void *a, const void *b, size_t elem_count);

/* The kernel of sum, prod, max or min; NULL for others, and for avg, which is more than that. */
xccl_reduce_fn *xccl_reduce_kernel(xcclDataType_t type, xcclRedOp_t op);

/* One number, as its bytes lie in memory. Of which type is between xccl_operator_find or
 * xccl_operator_premul and the kernel. */
struct xccl_scalar {
    _Alignas(8) unsigned char bytes[8];
};

/* out[i] = in[i] scaled. out may equal in; other overlaps are not allowed. Any alignment. */
typedef void xccl_scale_fn(void *out, const void *in, size_t elem_count,
                           const struct xccl_scalar *scalar);

/* All that an operator does with elements of a type: pre to each rank's contribution before it is
 * combined, post to the final value; NULL where there is nothing to do. */
struct xccl_operator {
    xccl_reduce_fn *reduce;
    xccl_scale_fn *pre, *post;
    struct xccl_scalar scalar; /* of pre and post */
};

/* How this operator works among nranks ranks. Returns 1, or 0 and nothing set: no such type or
 * operator, or nranks below 1. Cheap enough for every call. */
int xccl_operator_find(xcclDataType_t type, xcclRedOp_t op, int nranks,
                       struct xccl_operator *operator_out);

/* The sum of contributions that are first multiplied by scalar, a number of this type at any
 * address; it is copied. Returns 1, or 0 and nothing set: no such type. */
int xccl_operator_premul(xcclDataType_t type, const void *scalar,
                         struct xccl_operator *operator_out);

/* Bytes of an element; 0 for an unknown type. */
size_t xccl_type_bytes(xcclDataType_t type);

/* out = parts[0], parts[1] and so on combined in that order; count >= 2. out may equal any of the
 * parts. */
void xccl_reduce_many(xccl_reduce_fn *reduce, size_t elem_bytes, void *out,
                      const void *const *parts, unsigned count, size_t elem_count);

#endif
