/* SPDX-License-Identifier: BSD-3-Clause */
/* Registration: the kernel takes any host memory, so there is nothing to do but to refuse the rest.
 * Any thread. */
#include "sock_int.h"

/* What a registration is: an address that is not NULL and is never followed. */
static char registered;

xcclResult_t sock_reg_mr(void *comm, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem_out)
{
    (void)comm;
    if (type != XCCL_NET_PTR_HOST)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "copy to host memory first",
                                 "sockets accept only host memory, not type %#x", type);
    if (!data && bytes)
        return xccl_fail_quietly(xcclInvalidArgument, 0, NULL, "cannot register %zu bytes at NULL",
                                 bytes);
    *mem_out = &registered;
    return xcclSuccess;
}

xcclResult_t sock_dereg_mr(void *comm, xcclNetMem_t mem)
{
    (void)comm, (void)mem;
    return xcclSuccess;
}
