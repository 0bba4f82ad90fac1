/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that the library hands out, and buffers that a program registers.
 * Thread: as each says. */
#ifndef XCCL_COMM_COMM_MEMORY_H
#define XCCL_COMM_COMM_MEMORY_H

#include "comm/comm.h"

/* Whole pages, zeroed, of this process. Any thread. */
xcclResult_t xccl_user_memory_create(size_t bytes, void **memory_out);
/* 0: memory is not the beginning of any. Any thread. */
int xccl_user_memory_destroy(const void *memory);
/* Notes a buffer that is going to be used again and again. The crank's holder. */
xcclResult_t xccl_comm_register(struct xcclComm *comm, void *buffer, size_t bytes,
                                struct xccl_registered **registered_out);
/* 0: there is no such one. The crank's holder. */
int xccl_comm_deregister(struct xcclComm *comm, const void *registered);
/* Forgets all that is registered. The one that leaves. */
void xccl_comm_registered_drop(struct xcclComm *comm);

#endif
