/* SPDX-License-Identifier: BSD-3-Clause */
/* Between calls and the planner: a call that has its plan starts at once, one that has none yet
 * gets links and plan within its wait.
 * Thread: the crank's holder. */
#ifndef XCCL_CALL_COMM_PLAN_H
#define XCCL_CALL_COMM_PLAN_H

#include "comm/comm.h"

/* Starts the run of the call that comm->args tell. */
xcclResult_t xccl_comm_start_run(struct xcclComm *comm, const struct xccl_plan *plan);
/* Runs of calls. Without a plan: gives the call links and a plan, and starts it. */
extern const struct xccl_run_kind xccl_call_kind;
/* The kind of calls that only make links, for a device that does the rest. */
extern const struct xccl_run_kind xccl_talk_kind;
/* What there is for a call that is only to be connected. *left_out: 1: settings leave no way to do
 * it, on all ranks alike, so that there is nothing to connect; that is no error. */
xcclResult_t xccl_comm_plan_links(struct xcclComm *comm, const struct xccl_call *call,
                                  struct xccl_found *found_out, int *left_out);
/* For operations out of band within a call: a little later than the call's own deadline. */
struct xccl_limit xccl_comm_talk_limit(const struct xcclComm *comm);

#endif
