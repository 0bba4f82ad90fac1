/* SPDX-License-Identifier: BSD-3-Clause */
/* Why a call does not end, and who is to blame.
 * Thread: the crank's holder, but for xccl_comm_compare and xccl_comm_look, which touch
 * boards and the error only. */
#ifndef XCCL_WATCH_COMM_VERDICT_H
#define XCCL_WATCH_COMM_VERDICT_H

#include "comm/comm.h"

/* A call as boards tell it. */
struct xccl_board_call xccl_comm_board_call(const struct xccl_call *call, uint64_t seq);
/* The call that this rank is in, or was in last. */
struct xccl_board_call xccl_comm_own_call(const struct xcclComm *comm);
/* Looks for an error of another rank, ranks in other calls, ranks that left, and the deadline. For
 * runs of calls (xccl_run_kind), as the next one. */
xcclResult_t xccl_comm_check_call(struct xccl_run *run, uint64_t waited_ns);
/* Looks for ranks that left before this call. */
xcclResult_t xccl_comm_check_left(struct xccl_run *run, int again);
/* Do so for a call that only makes links for a device, which has no number yet. */
xcclResult_t xccl_comm_check_talk(struct xccl_run *run, uint64_t waited_ns);
xcclResult_t xccl_comm_check_left_talk(struct xccl_run *run, int again);
/* The call has failed with rc: raises the communicator's error, with the rank that caused it,
 * unless there is one already. Returns the one in force. */
xcclResult_t xccl_comm_blame(struct xcclComm *comm, xcclResult_t rc);
/* A rank that makes connections for a call says which one: xcclInvalidUsage when it is another one
 * than this rank's. The crank's holder. */
xcclResult_t xccl_comm_same_call(struct xcclComm *comm, int peer,
                                 const struct xccl_board_call *theirs);
/* Compares calls of the same number. */
xcclResult_t xccl_comm_compare_calls(struct xcclComm *comm, int peer,
                                     const struct xccl_board_call *mine,
                                     const struct xccl_board_call *theirs);
/* Peer makes the same call in another way: an error that says whose fault it is. Any thread. */
xcclResult_t xccl_comm_fail_choice(const struct xcclComm *comm, int peer);
/* Gives the control plane a moment to say what really happened: the communicator's error, if there
 * is one by then. A rank that dies or disagrees makes others give up, and their leaving must not be
 * taken for the cause. */
xcclResult_t xccl_comm_await_error(struct xcclComm *comm, uint64_t wait_ns);
/* Compares the newest calls of another rank with this rank's: raises the error where they differ.
 * Any thread. */
xcclResult_t xccl_comm_compare(struct xcclComm *comm, int peer,
                               const struct xccl_board_history *theirs);
/* Compares with ranks of this host. Any thread. */
xcclResult_t xccl_comm_look(struct xcclComm *comm);
/* May the call end on this rank before all ranks have begun it? Else a difference shows in what the
 * ranks send each other. */
int xccl_comm_may_end_early(const struct xcclComm *comm, const struct xccl_board_call *call);
/* Compares in such a call, which the board has. Of ranks that differ the one that begins last finds
 * it at once; where it is not known whether the others have begun, and for ranks of other hosts,
 * the service threads look before long. */
xcclResult_t xccl_comm_look_early(struct xcclComm *comm);
/* Compares with all ranks whose calls can be known before this rank leaves; asks a neighbour whose
 * last calls may not be known. An error: ranks disagree, which no call has returned. The crank's
 * holder. */
xcclResult_t xccl_comm_last_look(struct xcclComm *comm);

#endif
