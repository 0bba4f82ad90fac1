/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls, alone or those of a group, that are given to the progress thread (stream/comm_async.h).
 * Entries are those of entry.h; they are not looked at any more when a call here returns.
 * Thread: the user's. */
#ifndef XCCL_STREAM_GROUP_ASYNC_H
#define XCCL_STREAM_GROUP_ASYNC_H

#include "stream/comm_async.h"

/* 1: one of them has a stream, or a communicator of theirs has work before it, or never blocks. */
int xccl_group_is_async(const struct xccl_entry *entries, uint32_t count);
/* Gives all of them together, and waits for those without a stream. xcclInProgress when all went
 * well, and some are of communicators that never block. Entries that are no operations are passed
 * over. */
xcclResult_t xccl_group_submit(const struct xccl_entry *entries, uint32_t count);

#endif
