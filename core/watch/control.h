/* SPDX-License-Identifier: BSD-3-Clause */
/* The control plane of a communicator: the two connections to the neighbours on the ring, moved by
 * the service thread while no user thread is needed for it. It finds out that a neighbour has died
 * (its connection ends without a goodbye, or it is silent for four heartbeats), and it carries
 * notices: the first error, abort or revocation of a communicator goes round the ring both ways, so
 * that every rank returns it.
 *
 * A rank that leaves says goodbye and returns at once; its neighbours pass on, away from it, that
 * it has left. Its connections outlive the communicator in the service thread for a while: they
 * pass on what others say (control_relay.c), and a close with unread bytes would reset a
 * connection, so that the goodbye might be lost.
 *
 * Thread: the service thread; tell and close: any, the loop's lock guards. */
#ifndef XCCL_WATCH_CONTROL_H
#define XCCL_WATCH_CONTROL_H

#include "comm/comm.h"

/* Takes the connections over, also on failure; NULL each when there is one rank. */
xcclResult_t xccl_control_open(struct xcclComm *comm, struct xccl_conn *next,
                               struct xccl_conn *prev, struct xccl_control **control_out);
/* Says goodbye with the number of the last call. The communicator is not touched afterwards. NULL
 * is fine. */
void xccl_control_close(struct xccl_control *control, uint64_t last_seq);
/* If a rank has left in order before call seq: its number, else XCCL_NOBODY. Any thread. */
int xccl_control_left_before(const struct xccl_control *control, uint64_t seq,
                             uint64_t *last_seq_out);
/* 1: the rank is known to have left in order. Any thread. */
int xccl_control_has_left(const struct xccl_control *control, int rank);

/* Compares the calls of ranks that have left with this rank's (xccl_comm_compare()). NULL is
 * fine. The crank's holder. */
void xccl_control_compare_left(struct xccl_control *control);

/* Whether a rank has begun a call with this word, as its own board says; ranks between the two pass
 * question and answer on. Waits, at most so long, unless an error becomes known meanwhile. *theirs:
 * its newest calls, unless the answer is UNKNOWN. One question at a time: the crank's holder. */
enum xccl_begun xccl_control_ask(struct xccl_control *control, int rank, uint64_t word,
                                 uint64_t wait_ns, struct xccl_board_history *theirs_out);

/* The neighbours shall hear soon which calls this rank has made: in one of them it need not hear of
 * all ranks. Any thread; costs little where it was called just before. NULL is fine. */
void xccl_control_hurry(struct xccl_control *control);

/* 1 when the rank is a neighbour that was heard to have begun call seq. Any thread. */
int xccl_control_in_call(const struct xccl_control *control, int rank, uint64_t seq);

#endif
