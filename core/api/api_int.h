/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of public calls share: the second name of each call, and the look at the
 * communicator that nearly all of them begin with. Stays in this folder. Thread: any. */
#ifndef XCCL_API_API_INT_H
#define XCCL_API_API_INT_H

#include "api/group.h"
#include "stream/comm_async.h"

/* Each call has a twin with a p in front of its name, for tools that interpose it. */
#define XCCL_TWIN(result, name, args)                                                              \
    result p##name args __attribute__((alias(#name), visibility("default")))

/* Why comm is no communicator that this process may use; xcclSuccess when it is one. call: the name
 * of the public call, for the text. */
xcclResult_t xccl_api_check_comm(const char *call, const struct xcclComm *comm);
/* Checks comm as xccl_api_check_comm() does, for calls that may follow xcclCommFinalize. */
xcclResult_t xccl_api_check_known(const char *call, const struct xcclComm *comm);

/* Refuses a child of a process that has made communicators, with xcclInvalidUsage; see base/fork.h.
 */
xcclResult_t xccl_api_check_fork(const char *call);
/* Says why stream, which is not NULL, does not belong to this process; xcclSuccess when it does. */
xcclResult_t xccl_api_check_stream(const char *call, const struct xccl_host_stream *stream);

/* api.c: xccl_group_add, in a range of NVTX if it is for a CUDA device. */
xcclResult_t xccl_api_add(const char *call, int device, const struct xccl_entry *entry);

#define XCCL_API_RANKS_MAX 65535

/* api.c: checks the arguments of a call that joins by ids, with a config or NULL, and joins. */
xcclResult_t xccl_api_join(const char *call, const struct xccl_join_args *args,
                           const xcclConfig_t *config);
/* Checks a config (may be NULL) and takes from it what it has. */
xcclResult_t xccl_api_take_config(const char *call, const xcclConfig_t *config,
                                  struct xccl_join_args *args);
/* api_op.c: why the operator of a task, from xcclNumOps on, is none of the communicator's for the
 * task's datatype; xcclSuccess when it is one. */
xcclResult_t xccl_api_check_op(const char *call, const struct xccl_task *task);

#endif
