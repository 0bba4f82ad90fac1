/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of each instruction set. One text, kernels_body.h, is compiled once for each set; all
 * give the same bits, and the tests hold them to it. kernels.c picks when a kernel is looked up, so
 * that a call costs no more than a pointer. Pure functions: any thread. */
#ifndef XCCL_EXEC_HOST_KERNELS_SETS_H
#define XCCL_EXEC_HOST_KERNELS_SETS_H

#include "exec/host/kernels.h"

/* What there is for one type. */
struct xccl_kernels {
    xccl_reduce_fn *reduce[xcclAvg]; /* sum, prod, max, min */
    xccl_scale_fn *mul; /* the scalar: of the type; float32 for floats of 8 and 16 bits */
    xccl_scale_fn *div; /* integers only; the scalar: a uint32_t from 1 to INT32_MAX */
};

struct xccl_kernel_set {
    const char *name;
    const struct xccl_kernels *of_type; /* xcclNumTypes of them */
};

#define XCCL_KERNEL_SETS_MAX 3

/* The sets that this processor can run, the fastest first; returns how many. */
unsigned xccl_kernel_sets(struct xccl_kernel_set *sets_out);

/* The float of 8 or 16 bits that lies there, as float32; 0: the type is another. */
int xccl_small_float_value(xcclDataType_t type, const void *from, float *value_out);

extern const struct xccl_kernels xccl_kernels_plain[xcclNumTypes];
#if defined(__x86_64__)
extern const struct xccl_kernels xccl_kernels_avx2[xcclNumTypes];
extern const struct xccl_kernels xccl_kernels_avx512[xcclNumTypes];
#endif

#endif
