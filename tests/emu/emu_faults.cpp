// SPDX-License-Identifier: BSD-3-Clause
/* A kernel for tests of the errors that kernels say: every thread of every block finds one, of the
 * kind XCCL_DEV_OTHER_CALL + thread % 2, and of the peer 100 + thread % 2. */
#include "exec/cuda/dev_block.h"

XD_KERNEL xccl_test_faults(XD_PARAMETER struct xccl_dev_launch launch)
{
    const struct xccl_dev_comm *comm = pointer_to<struct xccl_dev_comm>(launch.works[0].comm);
    XD_SHARED(struct block, block);
    u32 odd = (xd_thread() + xd_block()) % 2;

    if (xd_thread() == 0) {
        block.work = launch.works[0];
        block.status = pointer_to<struct xccl_dev_status>(comm->status);
        block.failed = 0;
    }
    xd_sync();
    fail(&block, XCCL_DEV_OTHER_CALL + odd, 100 + odd);
}
