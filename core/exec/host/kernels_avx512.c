/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels for processors with AVX-512 (F, BW, VL); empty for other kinds of processors. Pure
 * functions: any thread, once kernels.c has seen that the processor has what they need. */
#include "exec/host/kernels_sets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,f16c"))),            \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,f16c")
#endif

#define KERNELS_TABLE xccl_kernels_avx512
#define KERNELS_F16C  16
#include "exec/host/kernels_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
