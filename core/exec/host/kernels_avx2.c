/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels for processors with AVX2 and F16C; empty for other kinds of processors. Pure
 * functions: any thread, once kernels.c has seen that the processor has what they need. */
#include "exec/host/kernels_sets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif

#define KERNELS_TABLE xccl_kernels_avx2
#define KERNELS_F16C  8
#include "exec/host/kernels_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
