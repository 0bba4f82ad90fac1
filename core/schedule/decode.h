/* SPDX-License-Identifier: BSD-3-Clause */
/* What a step means, once for all: the verifier, the simulator, the drawing and the executors read
 * steps through these functions.
 *
 * A lane runs, for each tile, its steps in order; a step its occurrences in order; an occurrence
 * its chunks in order; a chunk its slices. For each of them:
 *
 *   1. the waits of the step, before its first chunk of a tile;
 *   2. without XCHG: value = source (PRE: this rank's contribution); then for each receiving
 *      connection of the fan in order, value = value op message - or, ORDERED, the source and the
 *      messages in order of rank; POST: the value is final; then the value is stored to the
 *      destination, or destination = destination op value with ACC; then it is sent on all sending
 *      connections of the fan. The received slots are given back at the end;
 *   3. with XCHG: the source is sent on the sending connections; then what the receiving
 *      connections bring is combined and stored as above (PRE is about the source, POST about what
 *      is stored). Sends may run ahead of receives within the occurrence, never behind them; beyond
 *      it as any send may: where nobody could tell, since what it sends has been stored.
 *
 * Chunks of IN and OUT count modulo those of the buffer, chunks of SCRATCH modulo nscratch; tile t
 * uses the scratch memory t mod scrbufs. */
#ifndef XCCL_SCHEDULE_DECODE_H
#define XCCL_SCHEDULE_DECODE_H

#include "schedule/schedule.h"

/* One chunk of one occurrence. Connections are numbers in the whole table of the schedule. */
struct xccl_event {
    const struct xccl_step *step;
    uint32_t src, dst; /* chunks of their buffers; 0 where there is none */
    uint32_t rconn, nrecv; /* first connection and how many */
    uint32_t sconn, nsend;
};

static inline enum xccl_step_buffer xccl_step_src_buffer(const struct xccl_step *step)
{
    return (enum xccl_step_buffer)(step->bufs & 3);
}

static inline enum xccl_step_buffer xccl_step_dst_buffer(const struct xccl_step *step)
{
    return (enum xccl_step_buffer)(step->bufs >> 2 & 3);
}

static inline uint32_t xccl_step_waits(const struct xccl_step *step)
{
    return step->flags >> 4 & 3u;
}

/* Where chunk j of occurrence occ lies, in a buffer of size chunks (0: of no size). */
static inline uint32_t xccl_step_chunk(const struct xccl_step *step, uint32_t first, int32_t delta,
                                       uint32_t occ, uint32_t j, uint32_t size)
{
    uint32_t hop = step->run == 1 ? j : j / step->run, in_hop = step->run == 1 ? 0 : j % step->run;
    int64_t at = (int64_t)first + (int64_t)occ * delta + (int64_t)hop * step->cstride + in_hop;

    if (size == 0)
        return 0;
    if (at < 0)
        at += size;
    /* Most loops go round once at most. */
    if (at < 0 || at >= size) {
        at %= (int64_t)size;
        at += at < 0 ? size : 0;
    }
    return (uint32_t)at;
}

/* For a step of a checked schedule, occ < rep, j < cnt. */
static inline void xccl_event_decode(const struct xccl_schedule *schedule, uint32_t lane,
                                     const struct xccl_step *step, uint32_t occ, uint32_t j,
                                     struct xccl_event *event_out)
{
    uint32_t conn0 = schedule->lanes[lane].conn0;
    int32_t shift = (int32_t)occ * step->dconn;

    *event_out = (struct xccl_event){.step = step};
    if (step->op & XCCL_STEP_SRC)
        event_out->src = step->bufs & XCCL_STEP_SRC_LIST
                             ? schedule->list[step->src + j]
                             : xccl_step_chunk(
                                   step, step->src, step->dsrc, occ, j,
                                   xccl_schedule_chunks(schedule, xccl_step_src_buffer(step)));
    if (step->op & XCCL_STEP_DST)
        event_out->dst = step->bufs & XCCL_STEP_DST_LIST
                             ? schedule->list[step->dst + j]
                             : xccl_step_chunk(
                                   step, step->dst, step->ddst, occ, j,
                                   xccl_schedule_chunks(schedule, xccl_step_dst_buffer(step)));
    if (step->op & XCCL_STEP_RECV) {
        event_out->rconn = (uint32_t)((int32_t)step->rconn + shift);
        event_out->nrecv = xccl_schedule_fan(schedule, lane, event_out->rconn, step->fan & 15u);
        event_out->rconn += conn0;
    }
    if (step->op & XCCL_STEP_SEND) {
        event_out->sconn = (uint32_t)((int32_t)step->sconn + shift);
        event_out->nsend = xccl_schedule_fan(schedule, lane, event_out->sconn, step->fan >> 4);
        event_out->sconn += conn0;
    }
}

#endif
