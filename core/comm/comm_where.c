/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers from the struct and the tables that it points to: the peers' introductions, the shared
 * segment's list of ranks, the choice of plugins and devices. Changes nothing, calls nothing above
 * it, and so may be used by every folder that knows a communicator.
 * Thread: see the header. */
#include "comm/comm_where.h"

#include <stdio.h>

#include "plugin/tuner_library.h"

int xccl_comm_is_local(const struct xcclComm *comm, int rank)
{
    return rank == comm->rank || (comm->shm && xccl_shm_index_of(comm->shm, rank) >= 0);
}

int xccl_comm_any_remote(const struct xcclComm *comm)
{
    for (int i = 0; i < comm->nranks; i++)
        if (!xccl_comm_is_local(comm, i))
            return 1;
    return 0;
}

int xccl_comm_may_share(const struct xcclComm *comm, int a, int b)
{
    return comm->peers[a].shm && comm->peers[b].shm &&
           comm->peers[a].host_hash == comm->peers[b].host_hash;
}

/* Launchers may bind each rank to one core of its own: then the cores of all ranks count. */
int xccl_comm_host_cores(const struct xcclComm *comm)
{
    const struct xccl_peer *self = &comm->peers[comm->rank];
    uint64_t together[XCCL_CORE_WORDS] = {0};
    uint32_t most = 1, count;

    for (int i = 0; i < comm->nranks; i++) {
        const struct xccl_peer *peer = &comm->peers[i];

        if (peer->host_hash != self->host_hash)
            continue;
        for (int k = 0; k < XCCL_CORE_WORDS; k++)
            together[k] |= peer->core_set[k];
        most = peer->cores > most ? peer->cores : most;
    }
    count = (uint32_t)xccl_os_core_count(together);
    most = count > most ? count : most;
    return most > INT16_MAX ? INT16_MAX : (int)most; /* a peer may send any number */
}

struct xccl_net *xccl_comm_net(const struct xcclComm *comm, int peer)
{
    return comm->nets[comm->net_idx[peer]];
}

int xccl_comm_net_device(const struct xcclComm *comm, int peer)
{
    return xccl_comm_net(comm, peer)->use[comm->net_kind[peer]].number;
}

void xccl_comm_label_text(const struct xcclComm *comm, char *text_out, size_t bytes)
{
    int both = comm->name[0] && comm->labels[0];

    snprintf(text_out, bytes, "%s%s%s%s", comm->name, both ? " (" : "", comm->labels,
             both ? ")" : "");
}

void xccl_comm_name_rank(const struct xcclComm *comm, int rank, char *text_out, size_t bytes)
{
    const struct xccl_peer *peer = &comm->peers[rank];

    snprintf(text_out, bytes, "rank %d (host %s, pid %u)", rank, peer->host, peer->pid);
}

int xccl_comm_find_place(const void *owner, int rank, struct xccl_rank_place *place_out)
{
    const struct xcclComm *comm = owner;

    if (rank >= comm->nranks || !comm->peers)
        return 0;
    snprintf(place_out->host, sizeof place_out->host, "%s", comm->peers[rank].host);
    place_out->pid = comm->peers[rank].pid;
    return 1;
}

const char *xccl_comm_tuner_label(const struct xcclComm *comm)
{
    return comm->tuner ? comm->tuner->label : NULL;
}
