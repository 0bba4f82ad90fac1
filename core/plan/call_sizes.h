/* SPDX-License-Identifier: BSD-3-Clause */
/* The sizes of a call whose blocks have a size each (all-gather-v, reduce-scatter-v, all-to-all-v):
 * made from the user's arrays before the call returns, constant once sealed, and shared by all who
 * hold a reference: the caller, a group, the plan.
 *
 * Thread: any, for references; the one that made it, until it is sealed. */
#ifndef XCCL_PLAN_CALL_SIZES_H
#define XCCL_PLAN_CALL_SIZES_H

#include <stddef.h>
#include <stdint.h>

#include "schedule/schedule.h"

struct xccl_call_sizes {
    _Atomic uint32_t refs;
    /* By XCCL_BUFFER_IN and OUT: how many chunks, and bytes and place in bytes of each. */
    uint32_t chunks[2];
    size_t *sizes[2], *offsets[2];
    /* Of the whole, filled in by seal: */
    size_t largest; /* chunk */
    size_t total; /* bytes of the blocks of all ranks; of all-to-all what this rank sends */
    uint64_t hash; /* of what all ranks know alike: the sizes; of all-to-all 0 */
};

/* Zeroed tables, and one reference. */
xcclResult_t xccl_call_sizes_create(uint32_t in_chunks, uint32_t out_chunks,
                                    struct xccl_call_sizes **sizes_out);
/* The tables are filled in: empty chunks lie at 0. */
void xccl_call_sizes_seal(struct xccl_call_sizes *sizes, enum xccl_coll coll);
/* NULL is fine for both; the last put frees. */
void xccl_call_sizes_get(const struct xccl_call_sizes *sizes);
void xccl_call_sizes_put(const struct xccl_call_sizes *sizes);
/* 1: the same blocks at the same places. */
int xccl_call_sizes_equal(const struct xccl_call_sizes *a, const struct xccl_call_sizes *b);

#endif
