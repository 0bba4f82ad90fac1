/* SPDX-License-Identifier: BSD-3-Clause */
/* The floats of 8 bits. Part of kernels_body.h. Both are the upper part of a float16: of the number
 * itself for float8e5m2, of its 2^-8 for float8e4m3; denormals too. So they are spread out to
 * float16, combined as such a block at a time, and the lower part is rounded away. Rounding twice
 * does no harm, because float16 has more than twice their digits and two; where it has not, close
 * to 0, because sums are exact there and no product of two lies where it matters. The tests try
 * all. */
#ifndef XCCL_EXEC_HOST_KERNELS_FP8_H
#define XCCL_EXEC_HOST_KERNELS_FP8_H

#include "exec/host/kernels_half.h"

/* Small enough to stay in the first cache. */
#define FP8_BLOCK_COUNT 1024

EXTREMES(float8e4m3, 8, 0x7e)
EXTREMES(float8e5m2, 8, 0x7c)

static inline uint16_t spread_float8e4m3(uint8_t code)
{
    int16_t size = code & 0x7f, nan = (int16_t)((0x7e - size) >> 15) & 0x7fff;

    return (uint16_t)(size << 7 | nan | (code & 0x80) << 8);
}

static inline uint16_t spread_float8e5m2(uint8_t code)
{
    return (uint16_t)(code << 8);
}

/* Without the lower digits of a float16, of which shift are too many: rounded to nearest even, and
 * at most top, the greatest number. */
static inline uint8_t gather_float8(uint16_t code, unsigned shift, int16_t top)
{
    int16_t size = (int16_t)(code & 0x7fff), odd = (int16_t)(size >> shift & 1);
    int16_t nan = (int16_t)((0x7c00 - size) >> 15) & 0x7f;
    int16_t kept = (int16_t)((uint16_t)(size + odd + (1 << (shift - 1)) - 1) >> shift);

    kept = MIN_OF(kept, top);
    return (uint8_t)(kept | nan | (code >> 8 & 0x80));
}

static inline uint8_t gather_float8e4m3(uint16_t code)
{
    return gather_float8(code, 7, 0x7e);
}

static inline uint8_t gather_float8e5m2(uint16_t code)
{
    return gather_float8(code, 8, 0x7b);
}

#define FLOAT8_BLOCKS(type)                                                                        \
    static void spread_all_##type(uint16_t *out, const any_uint8 *in, size_t elem_count)           \
    {                                                                                              \
        ELEMENTWISE                                                                                \
        for (size_t i = 0; i < elem_count; i++)                                                    \
            out[i] = spread_##type(in[i]);                                                         \
    }                                                                                              \
    static void gather_all_##type(any_uint8 *out, const uint16_t *in, size_t elem_count)           \
    {                                                                                              \
        ELEMENTWISE                                                                                \
        for (size_t i = 0; i < elem_count; i++)                                                    \
            out[i] = gather_##type(in[i]);                                                         \
    }                                                                                              \
    static void reduce_##type(void *out, const void *a, const void *b, size_t elem_count,          \
                              xccl_reduce_fn *reduce)                                              \
    {                                                                                              \
        uint16_t x[FP8_BLOCK_COUNT], y[FP8_BLOCK_COUNT];                                           \
                                                                                                   \
        for (size_t i = 0; i < elem_count; i += FP8_BLOCK_COUNT) {                                 \
            size_t left = elem_count - i, here = MIN_OF(left, (size_t)FP8_BLOCK_COUNT);            \
                                                                                                   \
            spread_all_##type(x, (const any_uint8 *)a + i, here);                                  \
            spread_all_##type(y, (const any_uint8 *)b + i, here);                                  \
            reduce(x, x, y, here);                                                                 \
            gather_all_##type((any_uint8 *)out + i, x, here);                                      \
        }                                                                                          \
    }                                                                                              \
    static inline uint8_t scaled_##type(uint8_t code, float by)                                    \
    {                                                                                              \
        return (uint8_t)narrow(widen(code, SMALL_##type) * by, SMALL_##type);                      \
    }                                                                                              \
    SCALE_LOOP(mul_##type, uint8, float, scaled_##type)

/* Scaling has any digits below the last, so it is rounded from float32 at once. */
#define SMALL_float8e4m3 FLOAT8E4M3
#define SMALL_float8e5m2 FLOAT8E5M2

FLOAT8_BLOCKS(float8e4m3)
FLOAT8_BLOCKS(float8e5m2)

static void sum_float8e4m3(void *out, const void *a, const void *b, size_t elem_count)
{
    reduce_float8e4m3(out, a, b, elem_count, sum_float16);
}

static void prod_float8e4m3(void *out, const void *a, const void *b, size_t elem_count)
{
    reduce_float8e4m3(out, a, b, elem_count, prod_256_float16);
}

static void sum_float8e5m2(void *out, const void *a, const void *b, size_t elem_count)
{
    reduce_float8e5m2(out, a, b, elem_count, sum_float16);
}

static void prod_float8e5m2(void *out, const void *a, const void *b, size_t elem_count)
{
    reduce_float8e5m2(out, a, b, elem_count, prod_float16);
}

#endif
