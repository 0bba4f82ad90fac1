/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels are loops that the compiler turns into vectors; target_clones makes one copy for each
 * instruction set and the loader picks. Not under sanitizers: their run-time is not up when the
 * loader asks. Built with -ffp-contract=off, so that no copy rounds differently. */
#include "exec/host/kernels.h"

#include <stdint.h>

#if defined(__x86_64__) && !defined(XCCL_SANITIZED)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

/* Equal pointers are fine, since element i depends on nothing but element i. */
#if defined(__clang__)
#define ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define ELEMENTWISE _Pragma("GCC ivdep")
#endif

#define REDUCE_BLOCK_BYTES 4096

/* Buffers of users may have any alignment. */
typedef float unaligned_float __attribute__((aligned(1)));
typedef uint32_t unaligned_u32 __attribute__((aligned(1)));

CLONES static void sum_float32(void *out, const void *a, const void *b, size_t elem_count)
{
    unaligned_float *to = out;
    const unaligned_float *x = a, *y = b;

    ELEMENTWISE
    for (size_t i = 0; i < elem_count; i++)
        to[i] = x[i] + y[i];
}

/* Unsigned: signed overflow would be undefined, and wrapping gives the same bits. */
CLONES static void sum_int32(void *out, const void *a, const void *b, size_t elem_count)
{
    unaligned_u32 *to = out;
    const unaligned_u32 *x = a, *y = b;

    ELEMENTWISE
    for (size_t i = 0; i < elem_count; i++)
        to[i] = x[i] + y[i];
}

xccl_reduce_fn *xccl_reduce_kernel(xcclDataType_t type, xcclRedOp_t op)
{
    if (op != xcclSum)
        return NULL;
    switch ((int)type) {
    case xcclFloat32:
        return sum_float32;
    case xcclInt32:
        return sum_int32;
    default:
        return NULL;
    }
}

size_t xccl_type_bytes(xcclDataType_t type)
{
    static const uint8_t bytes[xcclNumTypes] = {
        [xcclInt8] = 1,    [xcclUint8] = 1,    [xcclInt32] = 4,      [xcclUint32] = 4,
        [xcclInt64] = 8,   [xcclUint64] = 8,   [xcclFloat16] = 2,    [xcclFloat32] = 4,
        [xcclFloat64] = 8, [xcclBfloat16] = 2, [xcclFloat8e4m3] = 1, [xcclFloat8e5m2] = 1,
    };

    return (unsigned)type < xcclNumTypes ? bytes[type] : 0;
}

/* Block by block through a buffer that stays in the first cache: out may be one of the parts, so it
 * is written only when all parts of the block have been read. */
void xccl_reduce_many(xccl_reduce_fn *reduce, size_t elem_bytes, void *out,
                      const void *const *parts, unsigned count, size_t elem_count)
{
    _Alignas(64) char sum[REDUCE_BLOCK_BYTES];
    size_t block_count = REDUCE_BLOCK_BYTES / elem_bytes;

    if (count == 2) {
        reduce(out, parts[0], parts[1], elem_count);
        return;
    }
    for (size_t first = 0; first < elem_count; first += block_count) {
        size_t here = elem_count - first < block_count ? elem_count - first : block_count;
        size_t offset = first * elem_bytes;

        reduce(sum, (const char *)parts[0] + offset, (const char *)parts[1] + offset, here);
        for (unsigned i = 2; i + 1 < count; i++)
            reduce(sum, sum, (const char *)parts[i] + offset, here);
        reduce((char *)out + offset, sum, (const char *)parts[count - 1] + offset, here);
    }
}
