/* SPDX-License-Identifier: BSD-3-Clause */
/* Elements and what is done with two of them: for every type the bits that the host's kernels give
 * (exec/host/kernels.h). Small floats are widened to float32, combined, and rounded to nearest
 * even; maximum and minimum choose by the order of codes. A kernel has one type; the function is a
 * parameter of templates, so that inner loops have no choice to make. */
#ifndef XCCL_EXEC_CUDA_DEV_NUMBER_H
#define XCCL_EXEC_CUDA_DEV_NUMBER_H

#include "exec/cuda/device_abi.h"
#include "exec/cuda/intrinsics.h"

#if defined(XCCL_EMU)
#include <string.h>
#endif

XD_FN u32 bits_of(float x)
{
#if defined(XCCL_EMU)
    u32 bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
#else
    return __float_as_uint(x);
#endif
}

XD_FN float float_of(u32 bits)
{
#if defined(XCCL_EMU)
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
#else
    return __uint_as_float(bits);
#endif
}

XD_FN u64 bits_of(double x)
{
#if defined(XCCL_EMU)
    u64 bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
#else
    return (u64)__double_as_longlong(x);
#endif
}

XD_FN double double_of(u64 bits)
{
#if defined(XCCL_EMU)
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
#else
    return __longlong_as_double((long long)bits);
#endif
}

template <class T> XD_FN T least_of(T a, T b)
{
    return a < b ? a : b;
}
template <class T> XD_FN T most_of(T a, T b)
{
    return a > b ? a : b;
}

/* --- integers: codes are unsigned, Signed says how they are ordered --- */

template <class Code, class Ordered> struct integer {
    typedef Code code;
    typedef Code scalar;

    template <u32 FN> XD_FN Code combine(Code x, Code y)
    {
        if (FN == XCCL_DEV_SUM)
            return (Code)(x + y);
        if (FN == XCCL_DEV_PROD)
            return (Code)((u64)x * (u64)y);
        if (FN == XCCL_DEV_MAX)
            return (Code)most_of((Ordered)x, (Ordered)y);
        return (Code)least_of((Ordered)x, (Ordered)y);
    }
    XD_FN Code scale(Code x, Code by)
    {
        return (Code)((u64)x * (u64)by);
    }
    XD_FN Code element_scalar(Code element)
    {
        return element;
    }
    /* Toward zero. A divisor that the type cannot hold leaves nothing. */
    XD_FN Code divide(Code x, u32 by)
    {
        Ordered value = (Ordered)x;

        if (sizeof(Code) == 8)
            return (Ordered)-1 < (Ordered)0 ? (Code)((int64_t)value / (int64_t)by)
                                            : (Code)((u64)value / by);
        return (Code)((int64_t)value / (int64_t)by);
    }
};

/* --- float32 and float64 --- */

struct float32 {
    typedef u32 code;
    typedef u32 scalar;

    template <u32 FN> XD_FN u32 combine(u32 a, u32 b)
    {
        float x = float_of(a), y = float_of(b), best;

        if (FN == XCCL_DEV_SUM)
            return bits_of(x + y);
        if (FN == XCCL_DEV_PROD)
            return bits_of(x * y);
        if (y != y)
            return a;
        if (x != x)
            return b;
        if (x == y) /* zeros differ in their sign */
            return FN == XCCL_DEV_MAX ? a & b : a | b;
        best = FN == XCCL_DEV_MAX ? (x > y ? x : y) : (x < y ? x : y);
        return bits_of(best);
    }
    XD_FN u32 scale(u32 x, u32 by)
    {
        return bits_of(float_of(x) * float_of(by));
    }
    XD_FN u32 element_scalar(u32 element)
    {
        return element;
    }
    XD_FN u32 divide(u32 x, u32)
    {
        return x;
    }
};

struct float64 {
    typedef u64 code;
    typedef u64 scalar;

    template <u32 FN> XD_FN u64 combine(u64 a, u64 b)
    {
        double x = double_of(a), y = double_of(b), best;

        if (FN == XCCL_DEV_SUM)
            return bits_of(x + y);
        if (FN == XCCL_DEV_PROD)
            return bits_of(x * y);
        if (y != y)
            return a;
        if (x != x)
            return b;
        if (x == y)
            return FN == XCCL_DEV_MAX ? a & b : a | b;
        best = FN == XCCL_DEV_MAX ? (x > y ? x : y) : (x < y ? x : y);
        return bits_of(best);
    }
    XD_FN u64 scale(u64 x, u64 by)
    {
        return bits_of(double_of(x) * double_of(by));
    }
    XD_FN u64 element_scalar(u64 element)
    {
        return element;
    }
    XD_FN u64 divide(u64 x, u32)
    {
        return x;
    }
};

/* --- small floats --- */

/* Bits; digits behind the point; the exponent field that the least normal number has as float32;
 * the least code that is infinite or no number; the greatest number it can be asked to hold. */
template <int BITS, int DIGITS, int EXPONENT_MIN, int SPECIAL, u32 GREATEST, int TOP> struct small {
    XD_FN float widen(u32 code)
    {
        u32 size = code & ((1u << (BITS - 1)) - 1), sign = code >> (BITS - 1) << 31;
        u32 least = (u32)EXPONENT_MIN << 23, digits = size << (23 - DIGITS);
        u32 normal = digits + least - (1u << 23);

        if (size < (1u << DIGITS)) /* steps of the least number */
            normal = bits_of(float_of(digits + least) - float_of(least));
        if (size >= (u32)SPECIAL)
            normal |= 0x7f800000u;
        return float_of(normal | sign);
    }
    /* A grid whose last digit weighs as much as the small float's makes the processor round. */
    XD_FN u32 narrow(float value)
    {
        u32 word = bits_of(value), sign = word >> 31 << (BITS - 1), size = word & 0x7fffffffu;
        u32 held = least_of(size, GREATEST), least = (u32)EXPONENT_MIN << 23;
        u32 exponent = most_of(held & 0x7f800000u, least);
        u32 grid = exponent + ((u32)(23 - DIGITS) << 23), code;

        if (size > 0x7f800000u)
            return ((1u << (BITS - 1)) - 1) | sign;
        code = bits_of(float_of(held) + float_of(grid));
        return (code - grid + ((exponent - least) >> (23 - DIGITS))) | sign;
    }
    /* Codes in the order of their numbers, what is none where it is never chosen. */
    XD_FN int key(u32 code, int never)
    {
        int size = (int)(code & ((1u << (BITS - 1)) - 1));

        if (size > TOP)
            return never;
        return code >> (BITS - 1) ? -1 - size : size;
    }
    template <u32 FN> XD_FN u32 choose(u32 a, u32 b)
    {
        int never = FN == XCCL_DEV_MAX ? -0x10000 : 0x10000;
        int x = key(a, never), y = key(b, never);

        if (FN == XCCL_DEV_MAX)
            return x > y ? a : b;
        return x < y ? a : b;
    }
};

template <class Code, class Small> struct small_float {
    typedef Code code;
    typedef u32 scalar; /* a float32 */

    template <u32 FN> XD_FN Code combine(Code a, Code b)
    {
        if (FN == XCCL_DEV_SUM)
            return (Code)Small::narrow(Small::widen(a) + Small::widen(b));
        if (FN == XCCL_DEV_PROD)
            return (Code)Small::narrow(Small::widen(a) * Small::widen(b));
        return (Code)Small::template choose<FN>(a, b);
    }
    XD_FN Code scale(Code x, u32 by)
    {
        return (Code)Small::narrow(Small::widen(x) * float_of(by));
    }
    XD_FN u32 element_scalar(Code element)
    {
        return bits_of(Small::widen(element));
    }
    XD_FN Code divide(Code x, u32)
    {
        return x;
    }
};

struct half_bits : small<16, 10, 113, 0x7c00, 0x47800000u, 0x7c00> {
#if !defined(XCCL_EMU)
    XD_FN float widen(u32 code)
    {
        float value;

        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((u16)code));
        return value;
    }
    XD_FN u32 narrow(float value)
    {
        u16 code;

        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(value));
        return code;
    }
#endif
};

struct brain_bits : small<16, 7, 1, 0x7f80, 0, 0x7f80> {
    XD_FN float widen(u32 code)
    {
        return float_of(code << 16);
    }
    XD_FN u32 narrow(float value)
    {
        u32 word = bits_of(value);

        if ((word & 0x7fffffffu) > 0x7f800000u)
            return word >> 16 | 0x40;
        return (word + 0x7fff + (word >> 16 & 1)) >> 16;
    }
};

typedef integer<u8, int8_t> number_i8;
typedef integer<u8, u8> number_u8;
typedef integer<u32, int32_t> number_i32;
typedef integer<u32, u32> number_u32;
typedef integer<u64, int64_t> number_i64;
typedef integer<u64, u64> number_u64;
typedef float32 number_f32;
typedef float64 number_f64;
typedef small_float<u16, half_bits> number_f16;
typedef small_float<u16, brain_bits> number_bf16;
typedef small_float<u8, small<8, 3, 121, 0x7f, 0x43e00000u, 0x7e>> number_e4m3;
typedef small_float<u8, small<8, 2, 113, 0x7c, 0x47600000u, 0x7c>> number_e5m2;
/* No reduction: bytes. */
typedef integer<u8, u8> number_copy;

/* --- words of elements --- */

template <class N, u32 FN> XD_FN u64 combine_word(u64 x, u64 y)
{
    typedef typename N::code code;
    const u32 bits = 8 * sizeof(code);
    u64 out = 0;

    if (bits == 64)
        return (u64)N::template combine<FN>((code)x, (code)y);
#pragma unroll
    for (u32 at = 0; at < 64; at += bits)
        out |= (u64)N::template combine<FN>((code)(x >> at), (code)(y >> at)) << at;
    return out;
}

template <class N> XD_FN u64 scale_word(u64 x, u64 by)
{
    typedef typename N::code code;
    const u32 bits = 8 * sizeof(code);
    u64 out = 0;

    for (u32 at = 0; at < 64; at += bits)
        out |= (u64)N::scale((code)(x >> at), (typename N::scalar)by) << at;
    return out;
}

template <class N> XD_FN u64 divide_word(u64 x, u32 by)
{
    typedef typename N::code code;
    const u32 bits = 8 * sizeof(code);
    u64 out = 0;

    for (u32 at = 0; at < 64; at += bits)
        out |= (u64)N::divide((code)(x >> at), by) << at;
    return out;
}

#endif
