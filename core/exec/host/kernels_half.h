/* SPDX-License-Identifier: BSD-3-Clause */
/* float16 and bfloat16, and what all floats of 8 and 16 bits share. Part of kernels_body.h. They
 * are widened to float32, combined and rounded to nearest even; that is the correctly rounded
 * result, since float32 has more than twice their digits and two. Bits are moved by integer
 * arithmetic that the compiler turns into vectors; where the processor converts float16 itself
 * (KERNELS_F16C: how many at once), it does. No step reads or makes a denormal float32, but for
 * bfloat16, whose denormals are such. */
#ifndef XCCL_EXEC_HOST_KERNELS_HALF_H
#define XCCL_EXEC_HOST_KERNELS_HALF_H

#include "exec/host/kernels_float.h"

#define FLOAT32_SIGN     0x80000000u
#define FLOAT32_INFINITY 0x7f800000

/* A float of so many bits: digits behind the point; the exponent field that its least normal number
 * has as float32; the least code that is infinite or not a number; the greatest number that it can
 * be asked to hold, as float32: what is greater becomes this, which is infinity for float16. */
struct small_float {
    unsigned bits, digits;
    int32_t exponent_min, special, greatest;
};

#define FLOAT16    ((struct small_float){16, 10, 113, 0x7c00, 0x47800000})
#define FLOAT8E4M3 ((struct small_float){8, 3, 121, 0x7f, 0x43e00000})
#define FLOAT8E5M2 ((struct small_float){8, 2, 113, 0x7c, 0x47600000})

/* All ones where a is below b, else 0. A comparison would become a vector of truths, which
 * compilers carry from one width of elements to another at a price. */
static inline int32_t mask_below(int32_t a, int32_t b)
{
    return (a - b) >> 31;
}

/* Denormal codes count steps of the least number: their float32 is found by giving them the leading
 * one that they lack, and taking it away again. */
static inline float widen(uint32_t code, struct small_float of)
{
    int32_t size = (int32_t)(code & ((1u << (of.bits - 1)) - 1));
    uint32_t sign = code >> (of.bits - 1) << 31;
    int32_t digits = size << (23 - of.digits), least = of.exponent_min << 23;
    int32_t normal = digits + least - (1 << 23);
    float steps = float32_of_bits((uint32_t)(digits + least)) - float32_of_bits((uint32_t)least);
    int32_t denormal = mask_below(size, 1 << of.digits);
    int32_t special = ~mask_below(size, of.special) & FLOAT32_INFINITY;

    normal = ((int32_t)bits_of_float32(steps) & denormal) | (normal & ~denormal);
    return float32_of_bits((uint32_t)(normal | special) | sign);
}

/* Adding a grid so great that its last digit weighs as much as the small float's last digit lets
 * the processor round, for normal and denormal numbers alike. */
static inline uint32_t narrow(float value, struct small_float to)
{
    uint32_t word = bits_of_float32(value), sign = word >> 31 << (to.bits - 1);
    int32_t size = (int32_t)(word & ~FLOAT32_SIGN), least = to.exponent_min << 23;
    int32_t held = MIN_OF(size, to.greatest), exponent = held & FLOAT32_INFINITY;
    int32_t nan = mask_below(FLOAT32_INFINITY, size) & ((1 << (to.bits - 1)) - 1);
    int32_t grid, code;

    exponent = MAX_OF(exponent, least);
    grid = exponent + ((int32_t)(23 - to.digits) << 23);
    code = (int32_t)bits_of_float32(float32_of_bits((uint32_t)held) +
                                    float32_of_bits((uint32_t)grid));
    code = code - grid + ((exponent - least) >> (23 - to.digits));
    return (uint32_t)(code | nan) | sign;
}

static inline float widen_float16(uint16_t code)
{
    return widen(code, FLOAT16);
}

static inline uint16_t narrow_float16(float value)
{
    return (uint16_t)narrow(value, FLOAT16);
}

/* As integers with the sign's complement undone, codes are ordered as their numbers are, -0 before
 * +0; top is the greatest that is a number. What is none goes where it is never chosen: there, the
 * key's code is no number either. */
#define EXTREMES(type, bits, top)                                                                  \
    static inline int##bits##_t flip_##type(int##bits##_t code)                                    \
    {                                                                                              \
        return (int##bits##_t)(code ^ (code >> ((bits)-1) & INT##bits##_MAX));                     \
    }                                                                                              \
    static inline int##bits##_t key_##type(uint##bits##_t code, int##bits##_t never)               \
    {                                                                                              \
        int##bits##_t key = flip_##type((int##bits##_t)code);                                      \
                                                                                                   \
        return (int##bits##_t)((code & INT##bits##_MAX) > (top) ? never : key);                    \
    }                                                                                              \
    static inline uint##bits##_t max_of_##type(uint##bits##_t x, uint##bits##_t y)                 \
    {                                                                                              \
        int##bits##_t a = key_##type(x, INT##bits##_MIN), b = key_##type(y, INT##bits##_MIN);      \
                                                                                                   \
        return (uint##bits##_t)flip_##type(a > b ? a : b);                                         \
    }                                                                                              \
    static inline uint##bits##_t min_of_##type(uint##bits##_t x, uint##bits##_t y)                 \
    {                                                                                              \
        int##bits##_t a = key_##type(x, INT##bits##_MAX), b = key_##type(y, INT##bits##_MAX);      \
                                                                                                   \
        return (uint##bits##_t)flip_##type(a < b ? a : b);                                         \
    }                                                                                              \
    REDUCE_LOOP(max_##type, uint##bits, max_of_##type)                                             \
    REDUCE_LOOP(min_##type, uint##bits, min_of_##type)

EXTREMES(float16, 16, 0x7c00)
EXTREMES(bfloat16, 16, 0x7f80)

/* Two at a time, as the halves of a word: each half is a float32 when the other is cleared, so
 * there is nothing to spread out and pack. A NaN's lower half is clear, since it comes from an
 * operand or is the processor's own: rounding leaves it what it is. */
static inline uint32_t round_bfloat16(float value)
{
    uint32_t word = bits_of_float32(value);

    return word + 0x7fff + (word >> 16 & 1);
}

#define BFLOAT16_HIGH(pair) float32_of_bits((pair)&0xffff0000)
#define BFLOAT16_LOW(pair)  float32_of_bits((pair) << 16)

static inline uint32_t pair_bfloat16(float high, float low)
{
    return (round_bfloat16(high) & 0xffff0000) | round_bfloat16(low) >> 16;
}

#define REDUCE_BFLOAT16(name, combine)                                                             \
    static inline uint32_t name##_pair(uint32_t x, uint32_t y)                                     \
    {                                                                                              \
        return pair_bfloat16(combine(BFLOAT16_HIGH(x), BFLOAT16_HIGH(y)),                          \
                             combine(BFLOAT16_LOW(x), BFLOAT16_LOW(y)));                           \
    }                                                                                              \
    REDUCE_LOOP(name##_pairs, uint32, name##_pair)                                                 \
    static void name(void *out, const void *a, const void *b, size_t elem_count)                   \
    {                                                                                              \
        size_t last = elem_count - 1;                                                              \
                                                                                                   \
        name##_pairs(out, a, b, elem_count / 2);                                                   \
        if (elem_count % 2)                                                                        \
            ((any_uint16 *)out)[last] = (uint16_t)name##_pair(((const any_uint16 *)a)[last],       \
                                                              ((const any_uint16 *)b)[last]);      \
    }

REDUCE_BFLOAT16(sum_bfloat16, SUM_OF)
REDUCE_BFLOAT16(prod_bfloat16, PROD_OF)

static inline uint32_t scaled_bfloat16(uint32_t pair, float by)
{
    return pair_bfloat16(BFLOAT16_HIGH(pair) * by, BFLOAT16_LOW(pair) * by);
}

SCALE_LOOP(mul_bfloat16_pairs, uint32, float, scaled_bfloat16)

static void mul_bfloat16(void *out, const void *in, size_t elem_count,
                         const struct xccl_scalar *scalar)
{
    size_t last = elem_count - 1;
    float by;

    memcpy(&by, scalar->bytes, sizeof(by));
    mul_bfloat16_pairs(out, in, elem_count / 2, scalar);
    if (elem_count % 2)
        ((any_uint16 *)out)[last] = (uint16_t)scaled_bfloat16(((const any_uint16 *)in)[last], by);
}

/* A product of operands that are both 2^-8 of what they stand for, as kernels_fp8.h has them. */
#define PROD_256_OF(x, y) ((x)*256 * (y))

#if !defined(KERNELS_F16C)
#define REDUCE_FLOAT16(name, combine)                                                              \
    static inline uint16_t name##_one(uint16_t x, uint16_t y)                                      \
    {                                                                                              \
        return narrow_float16(combine(widen_float16(x), widen_float16(y)));                        \
    }                                                                                              \
    REDUCE_LOOP(name, uint16, name##_one)

static inline uint16_t scaled_float16(uint16_t x, float by)
{
    return narrow_float16(widen_float16(x) * by);
}

SCALE_LOOP(mul_float16, uint16, float, scaled_float16)
#else

#if KERNELS_F16C == 16
typedef __m512 wide_float;
#define WIDE_GET(from) _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(from)))
#define WIDE_PUT(to, wide)                                                                         \
    _mm256_storeu_si256((void *)(to), _mm512_cvtps_ph((wide), _MM_FROUND_TO_NEAREST_INT))
#define WIDE_OF(number) _mm512_set1_ps(number)
#else
typedef __m256 wide_float;
#define WIDE_GET(from) _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from)))
#define WIDE_PUT(to, wide)                                                                         \
    _mm_storeu_si128((void *)(to), _mm256_cvtps_ph((wide), _MM_FROUND_TO_NEAREST_INT))
#define WIDE_OF(number) _mm256_set1_ps(number)
#endif
#define ONE_GET(from)    _cvtsh_ss(*(from))
#define ONE_PUT(to, one) (*(to) = _cvtss_sh((one), _MM_FROUND_TO_NEAREST_INT))

#define REDUCE_FLOAT16(name, combine)                                                              \
    static void name(void *out, const void *a, const void *b, size_t elem_count)                   \
    {                                                                                              \
        any_uint16 *to = out;                                                                      \
        const any_uint16 *x = a, *y = b;                                                           \
        size_t i = 0;                                                                              \
                                                                                                   \
        for (; i + KERNELS_F16C <= elem_count; i += KERNELS_F16C) {                                \
            wide_float both = combine(WIDE_GET(x + i), WIDE_GET(y + i));                           \
                                                                                                   \
            WIDE_PUT(to + i, both);                                                                \
        }                                                                                          \
        for (; i < elem_count; i++)                                                                \
            ONE_PUT(to + i, combine(ONE_GET(x + i), ONE_GET(y + i)));                              \
    }

static void mul_float16(void *out, const void *in, size_t elem_count,
                        const struct xccl_scalar *scalar)
{
    any_uint16 *to = out;
    const any_uint16 *x = in;
    size_t i = 0;
    float by;

    memcpy(&by, scalar->bytes, sizeof(by));
    for (; i + KERNELS_F16C <= elem_count; i += KERNELS_F16C) {
        wide_float scaled = WIDE_GET(x + i) * WIDE_OF(by);

        WIDE_PUT(to + i, scaled);
    }
    for (; i < elem_count; i++)
        ONE_PUT(to + i, ONE_GET(x + i) * by);
}

#endif

REDUCE_FLOAT16(sum_float16, SUM_OF)
REDUCE_FLOAT16(prod_float16, PROD_OF)
REDUCE_FLOAT16(prod_256_float16, PROD_256_OF)

#endif
