/* SPDX-License-Identifier: BSD-3-Clause */
/* Between comm.c, which has the list of communicators and their ends, and comm_init.c, which has
 * the phases of joining. Memory is comm.c's. Thread: the one that joins, destroys or aborts. */
#ifndef XCCL_COMM_COMM_INT_H
#define XCCL_COMM_COMM_INT_H

#include "comm/comm.h"

/* Runs all phases on a zeroed communicator with rank, nranks, id and error_lock set; undoes
 * what was done on failure. */
xcclResult_t xccl_comm_init(struct xcclComm *comm, const struct xccl_job *job);
/* Undoes all phases. */
void xccl_comm_undo_all(struct xcclComm *comm);

#endif
