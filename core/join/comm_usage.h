/* SPDX-License-Identifier: BSD-3-Clause */
/* How much memory a rank takes in one communicator, in bytes. Thread: the crank's holder, or the
 * one that joins. */
#ifndef XCCL_JOIN_COMM_USAGE_H
#define XCCL_JOIN_COMM_USAGE_H

#include "comm/comm.h"

struct xccl_comm_usage {
    uint64_t total; /* of the four below */
    uint64_t slots; /* of links: in the own segment, and of network links */
    uint64_t plans; /* plans, schedules, bindings, and the links themselves */
    uint64_t scratch;
    uint64_t tables; /* about ranks */
    uint64_t mapped; /* address space: the segments of all ranks of the host */
};

void xccl_comm_usage(const struct xcclComm *comm, struct xccl_comm_usage *usage_out);

#endif
