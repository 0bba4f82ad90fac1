/* SPDX-License-Identifier: BSD-3-Clause */
/* Between calls and the planner: a call that has its plan starts at once, one that has none yet
 * gets links and plan within its wait. Bindings and links stay until the communicator ends.
 * Thread: the crank's holder, but for fini: the one that leaves. */
#ifndef XCCL_COMM_COMM_PLAN_H
#define XCCL_COMM_COMM_PLAN_H

#include "comm/comm_int.h"

/* Starts the run of the call that comm->args tell. */
xcclResult_t xccl_comm_start_run(struct xcclComm *comm, const struct xccl_plan *plan);
/* For run.step: gives the call links and a plan, and starts it. */
int xccl_comm_prepare_run(struct xccl_run *run);
/* Of the settings XCCL_ALGO and XCCL_PROTO, and of the files of all algorithm plugins, wherever
 * they lie. */
uint32_t xccl_comm_algo_hash(void);
/* 1: settings leave no way to do a call that is only to be connected, on all ranks alike: there is
 * nothing to do. */
static inline int xccl_comm_connects_nothing(int connects, xcclResult_t rc)
{
    return connects && rc == xcclInvalidUsage;
}
/* For operations out of band within a call: a little later than the call's own deadline. */
struct xccl_limit xccl_comm_talk_limit(const struct xcclComm *comm);
/* Plans, bindings, links. */
void xccl_comm_plan_fini(struct xcclComm *comm);

#endif
