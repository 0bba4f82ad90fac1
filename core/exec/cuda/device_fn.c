/* SPDX-License-Identifier: BSD-3-Clause */
/* Operators for kernels on devices: the enum and the names that core/exec/cuda/device_abi.h
 * promises, and the scalar of the host's operator as it is. Names of kernels are found by the
 * driver, so they are texts. Thread: any. */
#include "exec/cuda/device_fn.h"

static enum xccl_dev_fn fn_of(xcclRedOp_t op)
{
    switch (op) {
    case xcclProd:
        return XCCL_DEV_PROD;
    case xcclMax:
        return XCCL_DEV_MAX;
    case xcclMin:
        return XCCL_DEV_MIN;
    default:
        return XCCL_DEV_SUM; /* averages and a program's own are sums of scaled numbers */
    }
}

struct xccl_device_fn xccl_device_fn_of(const struct xccl_plan *plan, xcclRedOp_t op)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;
    const struct xccl_operator *reduction = &plan->reduction;
    struct xccl_device_fn fn = {XCCL_DEV_SUM, 0, 0};

    if (!xccl_coll_reduces((enum xccl_coll)schedule->coll))
        return fn;
    fn.fn = fn_of(op);
    if (reduction->pre)
        fn.flags |= XCCL_DEV_PRE;
    if (reduction->post)
        fn.flags |= XCCL_DEV_POST;
    if (fn.flags || schedule->nranks > 1)
        fn.flags |= XCCL_DEV_REDUCES;
    static_assert(sizeof fn.scalar == sizeof reduction->scalar.bytes, "one is copied to the other");
    memcpy(&fn.scalar, reduction->scalar.bytes, sizeof fn.scalar);
    return fn;
}

const char *xccl_device_kernel(xcclDataType_t type, uint32_t flags)
{
    static const char *const names[xcclNumTypes] = {
        [xcclInt8] = "xccl_run_i8",         [xcclUint8] = "xccl_run_u8",
        [xcclInt32] = "xccl_run_i32",       [xcclUint32] = "xccl_run_u32",
        [xcclInt64] = "xccl_run_i64",       [xcclUint64] = "xccl_run_u64",
        [xcclFloat16] = "xccl_run_f16",     [xcclFloat32] = "xccl_run_f32",
        [xcclFloat64] = "xccl_run_f64",     [xcclBfloat16] = "xccl_run_bf16",
        [xcclFloat8e4m3] = "xccl_run_e4m3", [xcclFloat8e5m2] = "xccl_run_e5m2",
    };

    if (!(flags & XCCL_DEV_REDUCES))
        return "xccl_run_copy";
    return (unsigned)type < xcclNumTypes ? names[type] : NULL;
}
