/* SPDX-License-Identifier: BSD-3-Clause */
/* Why a call does not end, and who is to blame.
 * Thread: the crank's holder, but for xccl_comm_compare_calls, which is the service thread's and
 * touches the board and the error only. */
#ifndef XCCL_WATCH_COMM_VERDICT_H
#define XCCL_WATCH_COMM_VERDICT_H

#include "comm/comm.h"

/* A call as boards tell it. */
struct xccl_board_call xccl_comm_board_call(const struct xccl_call *call, uint64_t seq);
/* The call that this rank is in, or was in last. */
struct xccl_board_call xccl_comm_own_call(const struct xcclComm *comm);
/* For runs of calls (xccl_run_kind): an error of another rank, ranks in other calls, ranks that
 * left, the deadline; and neighbours that left before this call. */
xcclResult_t xccl_comm_check_call(struct xccl_run *run, uint64_t waited_ns);
xcclResult_t xccl_comm_check_left(struct xccl_run *run, int again);
/* The call has failed with rc: raises the communicator's error, with the rank that caused it,
 * unless there is one already. Returns the one in force. */
xcclResult_t xccl_comm_blame(struct xcclComm *comm, xcclResult_t rc);
/* A rank that makes connections for a call says which one: xcclInvalidUsage when it is another one
 * than this rank's. The crank's holder. */
xcclResult_t xccl_comm_same_call(struct xcclComm *comm, int peer,
                                 const struct xccl_board_call *theirs);
/* The rank of that name makes the same call in another way: an error that says whose fault it is.
 * Any thread. */
xcclResult_t xccl_comm_fail_choice(const struct xcclComm *comm, const char *name);
/* Gives the control plane a moment to say what really happened: the communicator's error, if there
 * is one by then. A rank that dies or disagrees makes others give up, and their leaving must not be
 * taken for the cause. */
xcclResult_t xccl_comm_await_error(struct xcclComm *comm, uint64_t wait_ns);
/* A neighbour said which call it is in: board word and description. Raises the error when this rank
 * is in another call of the same number. */
void xccl_comm_compare_calls(struct xcclComm *comm, int peer, uint64_t word,
                             const struct xccl_board_call *theirs);

#endif
