/* SPDX-License-Identifier: BSD-3-Clause */
/* Integers. Part of kernels_body.h. Sums and products are taken unsigned: signed overflow would be
 * undefined, and wrapping gives the same bits. Division is a product with a reciprocal, since
 * vectors have no integer division. */
#ifndef XCCL_EXEC_HOST_KERNELS_INTEGER_H
#define XCCL_EXEC_HOST_KERNELS_INTEGER_H

#include "exec/host/kernels_loops.h"

#define WRAPPING(bits)                                                                             \
    static inline uint##bits##_t sum_u##bits(uint##bits##_t x, uint##bits##_t y)                   \
    {                                                                                              \
        return (uint##bits##_t)(x + y);                                                            \
    }                                                                                              \
    static inline uint##bits##_t prod_u##bits(uint##bits##_t x, uint##bits##_t y)                  \
    {                                                                                              \
        return (uint##bits##_t)(x * y);                                                            \
    }                                                                                              \
    REDUCE_LOOP(sum_int##bits, uint##bits, sum_u##bits)                                            \
    REDUCE_LOOP(prod_int##bits, uint##bits, prod_u##bits)                                          \
    SCALE_LOOP(mul_int##bits, uint##bits, uint##bits##_t, prod_u##bits)                            \
    REDUCE_LOOP(max_int##bits, int##bits, MAX_OF)                                                  \
    REDUCE_LOOP(min_int##bits, int##bits, MIN_OF)                                                  \
    REDUCE_LOOP(max_uint##bits, uint##bits, MAX_OF)                                                \
    REDUCE_LOOP(min_uint##bits, uint##bits, MIN_OF)

WRAPPING(8)
WRAPPING(32)
WRAPPING(64)

/* x / by, as by * ratio is at most 2^bits - 1 and more than 2^bits - 1 - by: the upper half of
 * x * ratio is the quotient or one less. */
#define QUOTIENT(name, half, full, bits)                                                           \
    static inline half name(half x, half by, half ratio)                                           \
    {                                                                                              \
        half quotient = (half)(((full)x * ratio) >> (bits));                                       \
        half rest = (half)(x - quotient * by);                                                     \
                                                                                                   \
        return (half)(quotient + (rest >= by));                                                    \
    }

QUOTIENT(quotient16, uint16_t, uint32_t, 16)
QUOTIENT(quotient32, uint32_t, uint64_t, 32)
__extension__ typedef unsigned __int128 uint128;
QUOTIENT(quotient64, uint64_t, uint128, 64)

/* elem: the type; work: the unsigned type of the arithmetic, of so many bits; sign_of(x): all ones
 * for negative numbers, else 0. A divisor above most is as good as most: the quotient is 0. */
#define DIVIDE_LOOP(name, elem, work, bits, most, sign_of)                                         \
    static void name(void *out, const void *in, size_t elem_count,                                 \
                     const struct xccl_scalar *scalar)                                             \
    {                                                                                              \
        any_##elem *to = out;                                                                      \
        const any_##elem *x = in;                                                                  \
        uint32_t divisor;                                                                          \
        work by, ratio;                                                                            \
                                                                                                   \
        memcpy(&divisor, scalar->bytes, sizeof(divisor));                                          \
        by = (work)MIN_OF(divisor, (most));                                                        \
        ratio = (work)((work)-1 / by);                                                             \
        ELEMENTWISE                                                                                \
        for (size_t i = 0; i < elem_count; i++) {                                                  \
            work sign = (work)sign_of(x[i]);                                                       \
            work size = (work)(((work)x[i] ^ sign) - sign);                                        \
                                                                                                   \
            to[i] = (elem##_t)((quotient##bits(size, by, ratio) ^ sign) - sign);                   \
        }                                                                                          \
    }

#define SIGN_OF(x) ((x) < 0 ? -1 : 0)
#define NO_SIGN(x) 0

DIVIDE_LOOP(div_int8, int8, uint16_t, 16, 256u, SIGN_OF)
DIVIDE_LOOP(div_uint8, uint8, uint16_t, 16, 256u, NO_SIGN)
DIVIDE_LOOP(div_int32, int32, uint32_t, 32, UINT32_MAX, SIGN_OF)
DIVIDE_LOOP(div_uint32, uint32, uint32_t, 32, UINT32_MAX, NO_SIGN)
DIVIDE_LOOP(div_int64, int64, uint64_t, 64, UINT32_MAX, SIGN_OF)
DIVIDE_LOOP(div_uint64, uint64, uint64_t, 64, UINT32_MAX, NO_SIGN)

#endif
