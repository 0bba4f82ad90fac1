/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the files of the planner: choose.c decides, geometry.c cuts, plan.c keeps. Thread: see
 * plan.h. */
#ifndef XCCL_PLAN_PLAN_INT_H
#define XCCL_PLAN_PLAN_INT_H

#include "plan/plan.h"

/* What a generator is asked for. */
struct xccl_generator_for xccl_plan_what(const struct xccl_planner *planner, int param, int root);

/* Bytes of what count counts: the vector, or one rank's block. Refuses what no memory holds. */
xcclResult_t xccl_plan_bytes(const struct xccl_planner *planner, const struct xccl_call *call,
                             size_t *bytes_out);
/* The largest chunk, of a vector or block of so many bytes. */
size_t xccl_plan_chunk_bytes(enum xccl_coll coll, size_t bytes, int nchunks);
/* The same of a call with sizes, of which all ranks know as much: 0 for all-to-all. */
size_t xccl_plan_known_bytes(const struct xccl_call *call);
/* Where chunks lie and how they are cut. plan->binding is ready. */
xcclResult_t xccl_plan_cut(const struct xccl_planner *planner, const struct xccl_call *call,
                           struct xccl_plan *plan);

#endif
