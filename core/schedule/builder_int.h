/* SPDX-License-Identifier: BSD-3-Clause */
/* What builder.c collects and builder_fold.c folds: emitted steps with all their chunks, then the
 * records they become.
 *
 * Thread: as builder.h. */
#ifndef XCCL_SCHEDULE_BUILDER_INT_H
#define XCCL_SCHEDULE_BUILDER_INT_H

#include <stddef.h>

#include "schedule/builder.h"

/* A step as it was emitted: all its chunks one by one. */
struct emitted {
    uint8_t op, flags; /* flags without the number of waits */
    uint8_t src_buffer, dst_buffer;
    uint8_t nrecv, nsend; /* as in a step's fan */
    uint8_t nwaits;
    uint16_t rconn, sconn, sig, wait;
    uint16_t cnt;
    uint32_t src, dst; /* first entries in the pool of chunks; unused without SRC, DST */
};

struct lane {
    struct emitted *steps;
    uint32_t nsteps, room;
    uint32_t conn0;
    uint32_t nconn;
};

struct xccl_builder {
    struct xccl_build_for what;
    xcclResult_t rc; /* the first error */
    struct lane *lanes;
    uint32_t nlanes;
    uint16_t *pool; /* of chunks */
    uint32_t pool_used, pool_room;
    struct xccl_schedule_conn *conns;
    uint32_t nconns, conns_room;
    struct xccl_schedule_wait *waits;
    uint32_t nwaits, waits_room;
    uint32_t nscratch;
    /* Of the fold. */
    struct xccl_step *folded;
    uint32_t nfolded, folded_room;
    uint16_t *list;
    uint32_t nlist, list_room;
};

/* Chunks of a buffer for the rank that is built, as xccl_schedule_chunks; of scratch memory what is
 * named so far. */
uint32_t xccl_build_size(const struct xccl_builder *builder, int buffer);

/* Makes room for one more entry of *table, whose entries have elem_bytes. 0: an error is kept. */
int xccl_build_grow(struct xccl_builder *builder, void *table, uint32_t used, uint32_t *room,
                    size_t elem_bytes);

/* The lane's records behind those that are there. */
void xccl_build_fold(struct xccl_builder *builder, const struct lane *lane);
/* Decodes a lane of the schedule and compares it with what was emitted. */
int xccl_build_says_the_same(const struct xccl_builder *builder, uint32_t lane,
                             const struct xccl_schedule *schedule);

#endif
