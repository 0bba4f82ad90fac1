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
    uint8_t begins; /* a scope: it waits for what is before it, so is no exchange with that */
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

/* The scope that is entered. */
struct scoped {
    const struct xccl_build_scope *scope; /* NULL: none */
    int used; /* there was one */
    int begins; /* the next step is its first one */
    uint32_t conn0, nconns; /* its first connection in the lane, and how many were asked for */
    uint32_t nlanes; /* how many were asked for */
    uint16_t *lists[2]; /* chunks of the two sides of the step that is translated */
    uint32_t lengths[2], rooms[2];
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
    struct scoped scoped;
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

/* What a generator has done wrong. */
void xccl_build_fail(struct xccl_builder *builder, const char *what, long number);

/* Within a scope: the lane, the connection of the same number inside or -1 where a new one has to
 * be made, with peer and id as they are outside. */
int xccl_scope_lane(struct xccl_builder *builder);
int xccl_scope_conn(struct xccl_builder *builder, enum xccl_conn_dir dir, int *peer, int *id);
/* The step as it is outside; 0: there is none. count_out: messages, where no side says so. */
int xccl_scope_step(struct xccl_builder *builder, const struct xccl_emit *inside,
                    struct xccl_emit *emit_out, int *count_out);
/* Takes out the connections that no step uses, and numbers those of each pair of ranks anew. */
void xccl_build_prune(struct xccl_builder *builder);

/* The lane's records behind those that are there. */
void xccl_build_fold(struct xccl_builder *builder, const struct lane *lane);
/* Decodes a lane of the schedule and compares it with what was emitted. */
int xccl_build_says_the_same(const struct xccl_builder *builder, uint32_t lane,
                             const struct xccl_schedule *schedule);

#endif
