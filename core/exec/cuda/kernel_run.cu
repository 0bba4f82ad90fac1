/* SPDX-License-Identifier: BSD-3-Clause */
/* One kernel of the interpreter, for elements of one type: compiled once for each (kernels.def),
 * with XCCL_DEV_TYPE the type's short name; XCCL_DEV_COPIES: nothing is reduced. */
#include "exec/cuda/dev_interp.h"

#define JOIN_NAMES(a, b) a##b
#define JOIN(a, b)       JOIN_NAMES(a, b)

XD_KERNEL JOIN(xccl_run_, XCCL_DEV_TYPE)(XD_PARAMETER struct xccl_dev_launch launch)
{
    XD_SHARED(struct block, block);

    if (!launch.nworks) /* device.c warms up */
        return;
    run_block<JOIN(number_, XCCL_DEV_TYPE)>(&block, &launch);
}
