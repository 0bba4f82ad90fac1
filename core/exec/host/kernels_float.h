/* SPDX-License-Identifier: BSD-3-Clause */
/* float32 and float64. Part of kernels_body.h. Maximum and minimum look at both orders of the
 * operands' places, so that swapping them changes no bit. */
#ifndef XCCL_EXEC_HOST_KERNELS_FLOAT_H
#define XCCL_EXEC_HOST_KERNELS_FLOAT_H

#include "exec/host/kernels_loops.h"

#define SUM_OF(x, y)  ((x) + (y))
#define PROD_OF(x, y) ((x) * (y))

static inline uint32_t bits_of_float32(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float float32_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline uint64_t bits_of_float64(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline double float64_of_bits(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Equal operands differ at most in the sign of a zero: the positive one is greater. When y is no
 * number the answer is x; when x is none, all comparisons are false and it is y. */
#define FLOATS(type, ctype, bits)                                                                  \
    static inline ctype max_of_##type(ctype x, ctype y)                                            \
    {                                                                                              \
        uint##bits##_t differ = -(uint##bits##_t)(x != y);                                         \
        ctype most = x > y ? x : y;                                                                \
                                                                                                   \
        most = type##_of_bits(bits_of_##type(most) & (bits_of_##type(x) | differ));                \
        return y != y ? x : most;                                                                  \
    }                                                                                              \
    static inline ctype min_of_##type(ctype x, ctype y)                                            \
    {                                                                                              \
        uint##bits##_t alike = -(uint##bits##_t)(x == y);                                          \
        ctype least = x < y ? x : y;                                                               \
                                                                                                   \
        least = type##_of_bits(bits_of_##type(least) | (bits_of_##type(x) & alike));               \
        return y != y ? x : least;                                                                 \
    }                                                                                              \
    REDUCE_LOOP(sum_##type, type, SUM_OF)                                                          \
    REDUCE_LOOP(prod_##type, type, PROD_OF)                                                        \
    REDUCE_LOOP(max_##type, type, max_of_##type)                                                   \
    REDUCE_LOOP(min_##type, type, min_of_##type)                                                   \
    SCALE_LOOP(mul_##type, type, ctype, PROD_OF)

FLOATS(float32, float, 32)
FLOATS(float64, double, 64)

#endif
