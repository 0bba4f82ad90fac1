/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the files of the planner: choose.c decides, geometry.c cuts, plan.c keeps. Thread: see
 * plan.h. */
#ifndef XCCL_PLAN_PLAN_INT_H
#define XCCL_PLAN_PLAN_INT_H

#include "plan/plan.h"

/* The order that a generator takes, NULL for that of ranks: whoever sums alike wherever ranks are
 * has no other one. */
const uint16_t *xccl_plan_order(const struct xccl_planner *planner,
                                const struct xccl_generator *generator);
/* What a generator is asked for. */
struct xccl_generator_for xccl_plan_what(const struct xccl_planner *planner,
                                         const struct xccl_generator *generator, int param,
                                         int root);

/* Bytes of what count counts: the vector, or one rank's block. Refuses what no memory holds. */
xcclResult_t xccl_plan_bytes(const struct xccl_planner *planner, const struct xccl_call *call,
                             size_t *bytes_out);
/* The largest chunk, of a vector or block of so many bytes. */
size_t xccl_plan_chunk_bytes(enum xccl_coll coll, size_t bytes, int nchunks);
/* The largest chunk of a call with sizes, if all ranks know it; 0 for all-to-all. */
size_t xccl_plan_known_bytes(const struct xccl_call *call);
/* Where chunks lie and how they are cut. plan->binding is ready. tile_bytes: of the choice. */
xcclResult_t xccl_plan_cut(const struct xccl_planner *planner, const struct xccl_call *call,
                           uint32_t tile_bytes, struct xccl_plan *plan);
/* 1: the schedule wants chunks of one size, and the vector cannot be cut so. */
int xccl_plan_is_uneven(const struct xccl_planner *planner, const struct xccl_call *call,
                        const struct xccl_schedule *schedule);

/* --- choose.c: what a choice may be, and the one without a tuner --- */

/* May the call be done by it, whatever the setting says? */
int xccl_plan_fits(const struct xccl_planner *planner, const struct xccl_call *call,
                   const struct xccl_generator *generator, int param);
/* May messages lie so, with the setting? */
int xccl_plan_proto_fits(const struct xccl_planner *planner, const struct xccl_call *call,
                         enum xccl_proto proto);
/* The protocol that the built-in choice would take for chunks of that size. */
xcclResult_t xccl_plan_choose_proto(const struct xccl_planner *planner,
                                    const struct xccl_call *call, size_t chunk_bytes,
                                    enum xccl_proto *proto_out);
xcclResult_t xccl_plan_choose_built_in(const struct xccl_planner *planner,
                                       const struct xccl_call *call,
                                       struct xccl_choice *choice_out);

/* --- tune.c: the tuner --- */

#define XCCL_TILE_ALIGN 32u /* of every slot, and of no element less */

/* Lets the tuner change the built-in choice. */
xcclResult_t xccl_plan_tune(const struct xccl_planner *planner, const struct xccl_call *call,
                            size_t bytes, struct xccl_choice *choice);
/* What it chose cannot be used, because of the thread's error. */
void xccl_plan_tuner_refuse(const struct xccl_planner *planner, const struct xccl_call *call,
                            const struct xccl_choice *choice);
/* A line (debug) about a new plan. */
void xccl_plan_tell(const struct xccl_planner *planner, const struct xccl_call *call,
                    const struct xccl_choice *choice, const struct xccl_plan *plan);

#endif
