/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ways for what a call moves on a host: through slots, which is two copies, or from where it
 * lies, which is one. In private memory of another process it is the kernel that copies; reductions
 * always go through slots there. Two cores near each other copy half the way each, and are quicker
 * than one that copies all the way; cores that are far apart wait for each other's lines. So the
 * distance decides, which is measured once, while ranks join (transport/distance.h). It decides
 * nothing but this, and each sender for itself: receivers take what comes.
 * Thread: the holder of the crank. */
#ifndef XCCL_CALL_COMM_WAYS_H
#define XCCL_CALL_COMM_WAYS_H

#include "comm/comm.h"

/* XCCL_PEER_MEMORY, in the order of its words. */
enum xccl_peer_memory { XCCL_PEER_MEMORY_AUTO, XCCL_PEER_MEMORY_OFF, XCCL_PEER_MEMORY_ON };

/* Sets comm->ways from what is known when the planner is made. */
void xccl_comm_ways_set(struct xcclComm *comm);
/* Chooses for the run that has just begun. Only where comm->ways.any says so. */
void xccl_comm_ways_choose(struct xcclComm *comm);
/* Chooses for a group of sends and receives that moves so many bytes both ways. */
static inline int xccl_comm_ways_is_address(const struct xcclComm *comm, uint64_t bytes)
{
    return comm->ways.address_from && bytes >= comm->ways.address_from;
}

#endif
