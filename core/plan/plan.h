/* SPDX-License-Identifier: BSD-3-Clause */
/* From a call to a plan: which algorithm, which protocol, what geometry. The choice follows from
 * tables and settings alone, so all ranks choose alike. Plans are kept: a repeated call costs one
 * comparison.
 *
 * Thread: the holder of the crank, between runs. */
#ifndef XCCL_PLAN_PLAN_H
#define XCCL_PLAN_PLAN_H

#include "exec/exec.h"

enum xccl_algo { XCCL_ALGO_AUTO, XCCL_ALGO_ONESHOT, XCCL_ALGO_RING, XCCL_ALGO_COUNT };

/* What is planned. */
struct xccl_call {
    enum xccl_coll coll;
    xcclDataType_t type;
    xcclRedOp_t op;
    size_t count;
};

/* The bindings a communicator offers; NULL where it has none. */
struct xccl_planner {
    struct xccl_binding *bindings[XCCL_ALGO_COUNT][XCCL_PROTO_COUNT];
    enum xccl_algo forced; /* XCCL_ALGO */
    int nranks;
    struct xccl_plan *last;
    struct xccl_plan **table; /* open addressing */
    uint32_t plan_count;
};

xcclResult_t xccl_planner_init(struct xccl_planner *planner);
void xccl_planner_fini(
    struct xccl_planner *planner); /* frees plans, not bindings; a zeroed one is fine */

/* The plan of a call, made when it is new. Good until the next get. */
xcclResult_t xccl_plan_get(struct xccl_planner *planner, const struct xccl_call *call,
                           const struct xccl_plan **plan_out);

/* The choice alone: the algorithm and protocol for so many bytes. */
void xccl_plan_choose(const struct xccl_planner *planner, size_t bytes, enum xccl_algo *algo_out,
                      enum xccl_proto *proto_out);

const char *xccl_algo_name(enum xccl_algo algo);

#endif
