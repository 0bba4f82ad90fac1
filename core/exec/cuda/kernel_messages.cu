/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel of sends and receives. */
#include "exec/cuda/dev_messages.h"

XD_KERNEL xccl_messages(XD_PARAMETER struct xccl_dev_messages_launch launch)
{
    XD_SHARED(struct pair_block, pair);

    if (!launch.nworks) /* device.c warms up */
        return;
    run_pair(&pair, &launch);
}
