/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: between xcclGroupStart and the outermost xcclGroupEnd a thread's calls are only noted. At
 * the end joins come first, side by side, then the operations, all communicators side by side, each
 * with its sends and receives together and then its calls in their order, then the leaves. All is
 * done by the calling thread, but for groups with asynchronous work: their operations are given to
 * the progress thread together, and those without a stream are waited for. Outside a group an entry
 * is executed at once. Thread: each has groups of its own. */
#ifndef XCCL_API_GROUP_H
#define XCCL_API_GROUP_H

#include "comm/entry.h"
#include "stream/comm_async.h"

/* Notes the entry, or executes it when no group is open. */
xcclResult_t xccl_group_add(const struct xccl_entry *entry);
/* Notes a call or a message, or executes it when no group is open. */
xcclResult_t xccl_group_add_call(const struct xccl_task *task, struct xccl_host_stream *stream);
xcclResult_t xccl_group_add_p2p(struct xcclComm *comm, const struct xccl_p2p_item *item,
                                struct xccl_host_stream *stream);
/* A call inside a group was wrong: the whole group will not be executed. Returns rc. */
xcclResult_t xccl_group_reject(xcclResult_t rc);

/* Rejects the group as xccl_group_reject() does. If memory was short, which the other ranks cannot
 * know, comm has failed, too. */
xcclResult_t xccl_group_lack(struct xcclComm *comm, xcclResult_t rc);
/* 1: calls of this thread's open group were given to the stream. */
int xccl_group_has_stream(const struct xccl_host_stream *stream);

/* comm is going to be aborted: this thread's open group drops its entries and will not be executed.
 */
void xccl_group_forget(const struct xcclComm *comm);

/* Makes children of fork() begin with no group. Call before the first join. */
void xccl_group_watch_forks(void);

#endif
