/* SPDX-License-Identifier: BSD-3-Clause */
/* What a communicator tells its record (record/record.h): the hooks of calls, in one line each, and
 * nothing where no record is kept. Thread: the crank's holder, or before the first call the thread
 * that joins. */
#ifndef XCCL_COMM_COMM_RECORD_H
#define XCCL_COMM_COMM_RECORD_H

#include "comm/entry.h"
#include "record/record.h"

void xccl_comm_record_open(struct xcclComm *comm);
/* The ranks of a split have found each other. */
void xccl_comm_record_describe(struct xcclComm *comm);
/* Calls may begin. */
void xccl_comm_record_ready(struct xcclComm *comm);
/* The end of a link was made. */
void xccl_comm_record_link(struct xcclComm *comm, const struct xccl_schedule_conn *conn);
/* What the next groups of sends and receives consist of; one of them has begun. */
void xccl_comm_record_p2p(struct xcclComm *comm, const struct xccl_p2p_item *items, uint32_t count);
void xccl_comm_record_begin_p2p(struct xcclComm *comm);
/* The call at work is another one than the last, or a group has been between them. */
void xccl_comm_record_call(struct xcclComm *comm);
/* Another call than the one at work has begun, and has ended. */
void xccl_comm_record_begin_apart(struct xcclComm *comm, const struct xccl_call *call);
void xccl_comm_record_end_apart(struct xcclComm *comm, const struct xccl_call *call,
                                const uint64_t sent[2], const uint64_t received[2]);
/* The call of comm->call and comm->seq, which had begun, is the one at work again. */
void xccl_comm_record_resume(struct xcclComm *comm);
/* The call at work got a plan that is new. */
void xccl_comm_record_plan(struct xcclComm *comm);
/* Notes by which algorithm a plan does a call. */
void xccl_comm_record_algo(struct xcclComm *comm, const struct xccl_call *call,
                           const struct xccl_plan *plan);
/* Of xccl_comm_record_end(). */
void xccl_comm_record_end_other(struct xcclComm *comm, xcclResult_t rc);

/* The call of comm->call and comm->seq has begun. */
static inline void xccl_comm_record_begin(struct xcclComm *comm)
{
    struct xccl_record *record = comm->record;

    if (!record)
        return;
    xccl_record_begin(record, comm->seq << 32 | (uint32_t)record->call.word);
}

/* The call or group at work has ended with rc. */
static inline void xccl_comm_record_end(struct xcclComm *comm, xcclResult_t rc)
{
    const struct xccl_plan *plan = comm->run.plan;

    if (!comm->record)
        return;
    if (__builtin_expect(!rc && plan, 1))
        xccl_record_end(comm->record, plan->traffic.sent, plan->traffic.received);
    else
        xccl_comm_record_end_other(comm, rc);
}

#endif
