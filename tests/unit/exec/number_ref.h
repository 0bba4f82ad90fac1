/* SPDX-License-Identifier: BSD-3-Clause */
/* Arithmetic on the elements of all types, one at a time, in double and with the rounding written
 * out: what the reduction kernels are held to. An element is its bits in a uint64_t. */
#ifndef TESTS_UNIT_EXEC_NUMBER_REF_H
#define TESTS_UNIT_EXEC_NUMBER_REF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "xccl_types.h"

/* exponent_bits 0: an integer. */
struct number_type {
    const char *name;
    int bits, is_signed, exponent_bits, has_infinity;
};

static const struct number_type number_types[xcclNumTypes] = {
    [xcclInt8] = {"int8", 8, 1, 0, 0},
    [xcclUint8] = {"uint8", 8, 0, 0, 0},
    [xcclInt32] = {"int32", 32, 1, 0, 0},
    [xcclUint32] = {"uint32", 32, 0, 0, 0},
    [xcclInt64] = {"int64", 64, 1, 0, 0},
    [xcclUint64] = {"uint64", 64, 0, 0, 0},
    [xcclFloat16] = {"float16", 16, 1, 5, 1},
    [xcclFloat32] = {"float32", 32, 1, 8, 1},
    [xcclFloat64] = {"float64", 64, 1, 11, 1},
    [xcclBfloat16] = {"bfloat16", 16, 1, 8, 1},
    [xcclFloat8e4m3] = {"float8e4m3", 8, 1, 4, 0},
    [xcclFloat8e5m2] = {"float8e5m2", 8, 1, 5, 1},
};

static inline int number_digits(const struct number_type *of)
{
    return of->bits - 1 - of->exponent_bits;
}

static inline int number_bias(const struct number_type *of)
{
    return (1 << (of->exponent_bits - 1)) - 1;
}

static inline uint64_t number_mask(const struct number_type *of)
{
    return UINT64_MAX >> (64 - of->bits);
}

/* All bits but the sign: in all types that is no number. */
static inline uint64_t number_nan(const struct number_type *of)
{
    return number_mask(of) >> 1;
}

static inline uint64_t number_infinity(const struct number_type *of)
{
    return ((uint64_t)(1 << of->exponent_bits) - 1) << number_digits(of);
}

static inline int number_is_nan(const struct number_type *of, uint64_t bits)
{
    uint64_t size = bits & number_nan(of);

    if (of->exponent_bits == 0)
        return 0;
    return of->has_infinity ? size > number_infinity(of) : size == number_nan(of);
}

/* Same bits; one NaN is as good as another. */
static inline int number_same(const struct number_type *of, uint64_t x, uint64_t y)
{
    return x == y || (number_is_nan(of, x) && number_is_nan(of, y));
}

static inline double number_value(const struct number_type *of, uint64_t bits)
{
    int digits = number_digits(of), exponent;
    uint64_t size = bits & number_nan(of), fraction = size & (((uint64_t)1 << digits) - 1);
    double value;

    exponent = (int)(size >> digits);
    if (number_is_nan(of, bits))
        return (double)NAN;
    if (of->has_infinity && size == number_infinity(of))
        value = (double)INFINITY;
    else if (exponent == 0)
        value = ldexp((double)fraction, 1 - number_bias(of) - digits);
    else
        value = ldexp((double)(fraction + ((uint64_t)1 << digits)),
                      exponent - number_bias(of) - digits);
    return bits >> (of->bits - 1) ? -value : value;
}

/* The greatest finite number's bits. */
static inline uint64_t number_greatest(const struct number_type *of)
{
    return of->has_infinity ? number_infinity(of) - 1 : number_nan(of) - 1;
}

/* Rounded to nearest even; what is too great is infinity, for 8 bits the greatest number. */
static inline uint64_t number_of_value(const struct number_type *of, double value)
{
    uint64_t sign = (uint64_t)(signbit(value) != 0) << (of->bits - 1);
    uint64_t overflow = of->bits == 8 ? number_greatest(of) : number_infinity(of);
    int digits = number_digits(of), exponent;
    double steps;

    if (isnan(value))
        return number_nan(of);
    if (isinf(value) || value == 0)
        return value == 0 ? sign : sign | overflow;
    frexp(value, &exponent); /* value lies below 2^exponent */
    if (exponent - 1 < 1 - number_bias(of))
        exponent = 2 - number_bias(of);
    /* How many of the last digit's weight; rint rounds to nearest even. */
    steps = rint(ldexp(fabs(value), digits - (exponent - 1)));
    if (steps == ldexp(1, digits + 1)) {
        steps /= 2;
        exponent++;
    }
    if (exponent - 1 + number_bias(of) >= 1 << of->exponent_bits)
        return sign | overflow;
    /* A denormal number has no leading one to take off, and exponent field 0. */
    steps += ldexp((double)(exponent - 2 + number_bias(of)), digits);
    return steps > (double)number_greatest(of) ? sign | overflow : sign | (uint64_t)steps;
}

static inline uint64_t number_of_float32(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline uint64_t number_of_float64(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* The value of an integer with its sign. */
static inline int64_t number_integer(const struct number_type *of, uint64_t bits)
{
    if (of->is_signed && bits >> (of->bits - 1))
        bits |= ~number_mask(of);
    return (int64_t)bits;
}

static inline int number_integer_less(const struct number_type *of, uint64_t x, uint64_t y)
{
    return of->is_signed ? number_integer(of, x) < number_integer(of, y) : x < y;
}

/* Whether y is chosen for the maximum of two numbers; of equal ones a +0. */
static inline int number_less(const struct number_type *of, uint64_t x, uint64_t y)
{
    double a, b;

    if (of->exponent_bits == 0)
        return number_integer_less(of, x, y);
    if (number_is_nan(of, x) || number_is_nan(of, y))
        return number_is_nan(of, x);
    a = number_value(of, x);
    b = number_value(of, y);
    return a < b || (a == b && signbit(a) && !signbit(b));
}

static inline uint64_t number_min(const struct number_type *of, uint64_t x, uint64_t y)
{
    if (number_is_nan(of, x) || number_is_nan(of, y))
        return number_is_nan(of, x) ? y : x;
    return number_less(of, x, y) ? x : y;
}

static inline uint64_t number_float_of(const struct number_type *of, double value)
{
    return of->bits == 64 ? number_of_float64(value) : number_of_value(of, value);
}

/* Sums and products of two numbers with at most 24 digits are right in double, or rounded so that
 * rounding again does no harm. */
static inline uint64_t number_combine(const struct number_type *of, xcclRedOp_t op, uint64_t x,
                                      uint64_t y)
{
    switch ((int)op) {
    case xcclSum:
        return of->exponent_bits ? number_float_of(of, number_value(of, x) + number_value(of, y))
                                 : (x + y) & number_mask(of);
    case xcclProd:
        return of->exponent_bits ? number_float_of(of, number_value(of, x) * number_value(of, y))
                                 : (x * y) & number_mask(of);
    case xcclMax:
        return number_less(of, x, y) ? y : x;
    default:
        return number_min(of, x, y);
    }
}

/* x times a number of the type, for float16 and less of float32. */
static inline uint64_t number_scale(const struct number_type *of, uint64_t x, double by)
{
    double value = number_value(of, x);

    if (of->bits < 32) {
        float product = (float)value * (float)by;

        return number_of_value(of, (double)product);
    }
    return number_float_of(of, value * by);
}

static inline uint64_t number_divide(const struct number_type *of, uint64_t x, int64_t by)
{
    if (of->is_signed)
        return (uint64_t)(number_integer(of, x) / by) & number_mask(of);
    return x / (uint64_t)by;
}

static inline uint64_t number_get(const void *from, size_t i, const struct number_type *of)
{
    size_t bytes = (size_t)of->bits / 8;
    uint64_t bits = 0;

    memcpy(&bits, (const char *)from + i * bytes, bytes);
    return bits;
}

static inline void number_put(void *to, size_t i, const struct number_type *of, uint64_t bits)
{
    size_t bytes = (size_t)of->bits / 8;

    memcpy((char *)to + i * bytes, &bits, bytes);
}

#endif
