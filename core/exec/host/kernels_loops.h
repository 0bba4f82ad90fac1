/* SPDX-License-Identifier: BSD-3-Clause */
/* The loops around one element's arithmetic, and the types that they read and write. Part of
 * kernels_body.h. Plain loops, which the compiler turns into vectors. */
#ifndef XCCL_EXEC_HOST_KERNELS_LOOPS_H
#define XCCL_EXEC_HOST_KERNELS_LOOPS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Equal pointers are fine, since element i depends on nothing but element i. */
#if defined(__clang__)
#define ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define ELEMENTWISE _Pragma("GCC ivdep")
#endif

/* Buffers of users may have any alignment, and any type of theirs. */
#define ANY __attribute__((aligned(1), may_alias))
typedef int8_t any_int8 ANY;
typedef uint8_t any_uint8 ANY;
typedef uint16_t any_uint16 ANY;
typedef int32_t any_int32 ANY;
typedef uint32_t any_uint32 ANY;
typedef int64_t any_int64 ANY;
typedef uint64_t any_uint64 ANY;
typedef float any_float32 ANY;
typedef double any_float64 ANY;

#define MAX_OF(x, y) ((x) > (y) ? (x) : (y))
#define MIN_OF(x, y) ((x) < (y) ? (x) : (y))

/* A kernel named name on elements of type any_elem; combine(x, y) gives one. */
#define REDUCE_LOOP(name, elem, combine)                                                           \
    static void name(void *out, const void *a, const void *b, size_t elem_count)                   \
    {                                                                                              \
        any_##elem *to = out;                                                                      \
        const any_##elem *x = a, *y = b;                                                           \
                                                                                                   \
        ELEMENTWISE                                                                                \
        for (size_t i = 0; i < elem_count; i++)                                                    \
            to[i] = combine(x[i], y[i]);                                                           \
    }

/* A kernel that scales elements by a number of type number, the scalar's first bytes. */
#define SCALE_LOOP(name, elem, number, scale)                                                      \
    static void name(void *out, const void *in, size_t elem_count,                                 \
                     const struct xccl_scalar *scalar)                                             \
    {                                                                                              \
        any_##elem *to = out;                                                                      \
        const any_##elem *x = in;                                                                  \
        number by;                                                                                 \
                                                                                                   \
        memcpy(&by, scalar->bytes, sizeof(by));                                                    \
        ELEMENTWISE                                                                                \
        for (size_t i = 0; i < elem_count; i++)                                                    \
            to[i] = scale(x[i], by);                                                               \
    }

#endif
