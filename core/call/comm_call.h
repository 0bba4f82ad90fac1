/* SPDX-License-Identifier: BSD-3-Clause */
/* One call of a communicator, from its begin to its end.
 * Thread: the caller, who holds the crank from begin to end. */
#ifndef XCCL_CALL_COMM_CALL_H
#define XCCL_CALL_COMM_CALL_H

#include "comm/entry.h"

/* Begins a task: sequence number, board, plan, run. The crank is taken and kept until end. */
xcclResult_t xccl_comm_begin(struct xcclComm *comm, const struct xccl_task *task);
/* After the run is done, or failed with rc: puts the crank; turns rc into the communicator's error.
 */
xcclResult_t xccl_comm_end(struct xcclComm *comm, xcclResult_t rc);
/* Both, with the wait between. */
xcclResult_t xccl_comm_execute(struct xcclComm *comm, const struct xccl_task *task);

/* A use of the communicator that is no operation: takes the crank, unless somebody is inside or the
 * communicator has failed. leave puts it. */
xcclResult_t xccl_comm_enter(struct xcclComm *comm);
void xccl_comm_leave(struct xcclComm *comm);

#endif
