/* SPDX-License-Identifier: BSD-3-Clause */
/* Delivery for plugins that need calls from this side after test called a send done (needsProgress
 * in xccl_net.h). Such a communicator has a shared crank and a timer in the service thread, armed
 * while, and only while, the plugin says that something is undelivered and no caller is inside. All
 * other communicators have none of it: progress is NULL and the crank is not shared.
 *
 * Claim and release are how a call, and an abort, take and put the crank of either kind.
 * Thread: as each says. */
#ifndef XCCL_COMM_COMM_PROGRESS_H
#define XCCL_COMM_COMM_PROGRESS_H

#include "comm/comm.h"

/* Init's phase after the network is up, and its undo: initialises the crank. */
xcclResult_t xccl_init_progress(struct xcclComm *comm);
void xccl_comm_progress_destroy(struct xcclComm *comm);
/* Orderly leave: no lending from here on; calls the plugin until nothing is undelivered or 1 s has
 * passed, with a warning then. After an error of the communicator nothing is delivered any more.
 * The thread that destroys or aborts. */
void xccl_comm_progress_leave(struct xcclComm *comm);
/* One turn in the slow branch of a wait. Nothing for communicators without. The crank's holder. */
void xccl_comm_progress_turn(struct xcclComm *comm);

/* The halves for shared cranks; use the functions below. */
int xccl_comm_progress_claim(struct xcclComm *comm);
void xccl_comm_progress_release(struct xcclComm *comm);

/* 1: the thread has the crank. 0: another caller is inside, or this one in an outer call, or a
 * plugin keeps the lender, which is the communicator's error then. Waits for a lender, about 50 us
 * at most unless that is so. */
static inline int xccl_comm_claim(struct xcclComm *comm)
{
    if (__builtin_expect(comm->crank.shared, 0))
        return xccl_comm_progress_claim(comm);
    return xccl_crank_try(&comm->crank);
}

/* Puts the crank. The communicator may be gone afterwards: an abort may wait for it. */
static inline void xccl_comm_release(struct xcclComm *comm)
{
    if (__builtin_expect(comm->crank.shared, 0))
        xccl_comm_progress_release(comm);
    else
        xccl_crank_put(&comm->crank);
}

#endif
