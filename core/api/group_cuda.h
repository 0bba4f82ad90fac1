/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations of CUDA communicators in a group, or alone: links that are missing are made first, as
 * the host's calls make theirs, then all is launched, and nobody waits. Thread: the user's. */
#ifndef XCCL_API_GROUP_CUDA_H
#define XCCL_API_GROUP_CUDA_H

#include "api/group.h"

/* 1: an operation of a CUDA communicator. */
static inline int xccl_group_is_cuda(const struct xccl_group_entry *entry)
{
    return entry->kind <= XCCL_ENTRY_P2P && entry->task.comm->cuda;
}

/* Those of CUDA communicators; the others are passed over. */
xcclResult_t xccl_group_launch(const struct xccl_group_entry *entries, uint32_t count);

#endif
