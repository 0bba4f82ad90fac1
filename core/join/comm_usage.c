/* SPDX-License-Identifier: BSD-3-Clause */
/* How much memory a rank takes: counted when somebody asks, by a walk over what the communicator
 * has, so that no allocation and no call pays for it. Slots are counted by the rank whose segment
 * they lie in, so the sum over ranks counts each once. What the process has once, such as the
 * service thread, plugins and their buffers, is no rank's. Thread: the crank's holder, or the one
 * that joins. */
#include "join/comm_usage.h"

#include "base/alloc.h"
#include "call/comm_p2p.h"
#include "connect/comm_links.h"

static uint64_t table_bytes(const struct xcclComm *comm)
{
    uint64_t bytes = xccl_alloc_bytes(comm) + xccl_alloc_bytes(comm->peers) +
                     xccl_alloc_bytes(comm->multicast) + xccl_alloc_bytes(comm->nodes) +
                     xccl_alloc_bytes(comm->order) + xccl_alloc_bytes(comm->net_idx) +
                     xccl_alloc_bytes(comm->net_kind) + xccl_alloc_bytes(comm->bind) +
                     xccl_comm_p2p_bytes(comm->p2p);

    if (comm->shm)
        bytes += xccl_shm_table_bytes(comm->shm);
    if (comm->boot)
        bytes += xccl_bootstrap_table_bytes(comm->boot);
    return bytes;
}

void xccl_comm_usage(const struct xcclComm *comm, struct xccl_comm_usage *usage_out)
{
    uint64_t net_slots = 0;

    *usage_out = (struct xccl_comm_usage){.tables = table_bytes(comm),
                                          .scratch = xccl_alloc_bytes(comm->args.scratch)};
    usage_out->plans = xccl_planner_bytes(&comm->planner);
    usage_out->plans += xccl_comm_links_bytes(comm->links, &net_slots);
    usage_out->slots = net_slots;
    if (comm->shm) {
        usage_out->slots += xccl_shm_bytes(comm->shm);
        usage_out->mapped = xccl_shm_mapped_bytes(comm->shm);
    }
    usage_out->total = usage_out->slots + usage_out->plans + usage_out->scratch + usage_out->tables;
}
