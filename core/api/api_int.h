/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of public calls share: the second name of each call, and the look at the
 * communicator that nearly all of them begin with. Stays in this folder. Thread: any. */
#ifndef XCCL_API_API_INT_H
#define XCCL_API_API_INT_H

#include "comm/comm.h"

/* Each call has a twin with a p in front of its name, for tools that interpose it. */
#define XCCL_TWIN(result, name, args)                                                              \
    result p##name args __attribute__((alias(#name), visibility("default")))

/* Why comm is no communicator that this process may use; xcclSuccess when it is one. call: the name
 * of the public call, for the text. */
xcclResult_t xccl_api_check_comm(const char *call, const struct xcclComm *comm);

#endif
