/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of communicators, and the list of those in this process that have joined.
 * Thread: any. */
#ifndef XCCL_COMM_COMM_LIST_H
#define XCCL_COMM_COMM_LIST_H

#include "comm/comm.h"

/* Memory without anything in it; NULL: there is none. */
struct xcclComm *xccl_comm_alloc(const struct xccl_job *job, int rank, int nranks);
/* Puts it on the list. magic: what it is from now on. */
void xccl_comm_publish(struct xcclComm *comm, uint64_t magic);
void xccl_comm_unlist(struct xcclComm *comm);
/* A communicator that others may see already: a split knows its id only once it is under way. */
void xccl_comm_set_id(struct xcclComm *comm, const uint8_t *id);
/* Of a non-blocking communicator whose magic is XCCL_COMM_JOINING: xcclSuccess when it has joined,
 * and its magic tells from now on; xcclInProgress, or why it failed. */
xcclResult_t xccl_comm_check_joined(struct xcclComm *comm);
/* 1 when the calling thread, which owns comm from now on, owns another rank of the communicator. */
int xccl_comm_shares_thread(struct xcclComm *comm);

#endif
