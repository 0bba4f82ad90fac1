/* SPDX-License-Identifier: BSD-3-Clause */
/* What a call's operator is for kernels on devices: which function of elements, what happens to
 * contributions and final values, the number that they are scaled by, and the kernel's name. From
 * the host's operator, so that both give the same values. Pure functions: any thread. */
#ifndef XCCL_EXEC_CUDA_DEVICE_FN_H
#define XCCL_EXEC_CUDA_DEVICE_FN_H

#include "exec/cuda/device_abi.h"
#include "exec/exec.h"

struct xccl_device_fn {
    uint32_t fn; /* enum xccl_dev_fn */
    uint32_t flags; /* XCCL_DEV_REDUCES, PRE and POST; 0: data are copied as they are */
    uint64_t scalar; /* the bytes of struct xccl_scalar, for struct xccl_dev_work */
};

/* Of a plan and the operator of its call; from xcclNumOps on a program's own. The same on all ranks
 * but for the scalar. */
struct xccl_device_fn xccl_device_fn_of(const struct xccl_plan *plan, xcclRedOp_t op);

/* "xccl_run_f32", or "xccl_run_copy" where flags say that nothing is reduced; NULL: no such type.
 */
const char *xccl_device_kernel(xcclDataType_t type, uint32_t flags);

#endif
