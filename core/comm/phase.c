/* SPDX-License-Identifier: BSD-3-Clause */
/* The exchange between ranks that join: an all-gather over the bootstrap, whose parts stay with the
 * rank that joins until the next one or its end.
 * Thread: the joining one. */
#include "comm/phase.h"

#include "base/alloc.h"

uint8_t *xccl_init_parts(struct xccl_init *init, size_t part_bytes)
{
    xccl_free(init->parts);
    init->part_bytes = part_bytes;
    init->parts = xccl_calloc((size_t)init->comm->nranks, part_bytes);
    return init->parts ? init->parts + (size_t)init->comm->rank * part_bytes : NULL;
}

xcclResult_t xccl_init_gather(struct xccl_init *init)
{
    return xccl_bootstrap_allgather_start(init->comm->boot, NULL, init->parts, init->part_bytes,
                                          &init->limit);
}
