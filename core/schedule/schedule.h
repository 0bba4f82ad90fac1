/* SPDX-License-Identifier: BSD-3-Clause */
/* A schedule: what one rank does in one collective, as compact steps that contain no bytes, no
 * types and no pointers. Count, type, operator, buffers and slot sizes are given when it runs, so
 * one schedule serves every size. A schedule has lanes; a lane is a sequence of steps run once for
 * every tile.
 *
 * A step covers rep occurrences of cnt chunks. Per chunk: wait for a message on each connection of
 * the receive fan; value = source, combined with the messages; store it to the destination; send it
 * on each connection of the send fan. Constant after it was made: any thread may read it. */
#ifndef XCCL_SCHEDULE_SCHEDULE_H
#define XCCL_SCHEDULE_SCHEDULE_H

#include <assert.h>
#include <stdint.h>

#include "xccl_types.h"

/* xccl_step.op: a set of these; twelve combinations are legal (xccl_step_legal). */
#define XCCL_STEP_SRC  1
#define XCCL_STEP_DST  2
#define XCCL_STEP_RECV 4
#define XCCL_STEP_SEND 8
#define XCCL_STEP_ACC  16
#define XCCL_STEP_XCHG 32

enum xccl_step_buffer { XCCL_BUFFER_IN, XCCL_BUFFER_OUT, XCCL_BUFFER_SCRATCH, XCCL_BUFFER_ZERO };

/* xccl_step.bufs: source in bits 0-1, destination in bits 2-3. */
#define XCCL_STEP_BUFS(src, dst) ((uint8_t)((src) | (dst) << 2))

/* xccl_step.fan: receives in bits 0-3, sends in bits 4-7; 15: all that follow in the same group. */
#define XCCL_FAN_ALL        15
#define XCCL_STEP_FAN(r, s) ((uint8_t)((r) | (s) << 4))

/* xccl_step.flags. ORDERED: combine in rank order, this rank's source at its own place. */
#define XCCL_FLAG_PRE     1
#define XCCL_FLAG_POST    2
#define XCCL_FLAG_ORDERED 4
#define XCCL_FLAG_SIGNAL  8

struct xccl_step {
    uint8_t op, bufs, fan, flags;
    uint16_t rconn, sconn; /* first connection of each fan, consecutive in the lane's table */
    uint16_t src, dst; /* first chunk */
    uint16_t cnt; /* chunks in an occurrence ... */
    int16_t cstride; /* ... and the distance between them, mod nchunks */
    uint16_t run; /* contiguous chunks per hop; 1 is plain */
    uint16_t rep; /* occurrences */
    int16_t dsrc, ddst, dconn; /* what an occurrence adds; chunks mod nchunks */
    uint16_t wait, sig;
    uint16_t reserved;
};
static_assert(sizeof(struct xccl_step) == 32, "a step is 32 bytes on every device");

enum xccl_conn_kind { XCCL_CONN_FIFO, XCCL_CONN_MULTICAST };
enum xccl_conn_dir { XCCL_CONN_SEND, XCCL_CONN_RECV };

struct xccl_schedule_conn {
    uint16_t peer; /* the sender of a multicast names itself */
    uint8_t dir, kind;
    uint16_t id; /* equal at both ends: tells connections between the same ranks apart */
    uint16_t group; /* fans never cross groups */
};
static_assert(sizeof(struct xccl_schedule_conn) == 8, "layout is shared with devices");

struct xccl_schedule_lane {
    uint32_t step0, conn0;
    uint16_t nstep, nconn;
    uint8_t order, block, part, nparts;
};
static_assert(sizeof(struct xccl_schedule_lane) == 16, "layout is shared with devices");

struct xccl_schedule {
    const char *name; /* of the algorithm */
    uint16_t nranks, rank;
    uint16_t nchunks, nlanes;
    uint16_t nsteps, nconns;
    uint16_t minslots;
    uint16_t reserved;
    struct xccl_step *steps;
    struct xccl_schedule_conn *conns;
    struct xccl_schedule_lane *lanes;
};

/* All-reduce, every n >= 1; out must be freed with xccl_schedule_destroy.
 *
 * Ring: n chunks; each goes round once to be summed and once more to be spread. 5 records for any
 * n. */
xcclResult_t xccl_gen_ring(int nranks, int rank, struct xccl_schedule **schedule_out);
/* One-shot: everybody sends all to everybody and adds up in rank order. multicast[p] is 1 when one
 * message reaches rank p together with all others marked so. At most XCCL_ONESHOT_MAX_RANKS. */
#define XCCL_ONESHOT_MAX_RANKS 64
xcclResult_t xccl_gen_oneshot(int nranks, int rank, const uint8_t *multicast,
                              struct xccl_schedule **schedule_out);

void xccl_schedule_destroy(struct xccl_schedule *schedule); /* NULL is fine */

/* For generators: one zeroed block for everything. */
xcclResult_t xccl_schedule_create(const char *name, int nranks, int rank, int nchunks, int nsteps,
                                  int nconns, struct xccl_schedule **schedule_out);
/* Every step legal, every connection and chunk inside its table; xcclInternalError says which is
 * not. */
xcclResult_t xccl_schedule_check(const struct xccl_schedule *schedule);

/* 1 for the combinations of op bits that have a meaning. */
int xccl_step_legal(uint8_t op);

/* Connections of a step's fan: from first, `fan` of them or the rest of its group. */
uint32_t xccl_schedule_fan(const struct xccl_schedule *schedule, uint32_t first, uint32_t fan);

/* A chunk number moved by delta, |delta| <= nchunks. */
static inline uint32_t xccl_chunk_add(uint32_t chunk, int32_t delta, uint32_t nchunks)
{
    int32_t moved = (int32_t)chunk + delta;

    if (moved < 0)
        return (uint32_t)(moved + (int32_t)nchunks);
    return (uint32_t)moved >= nchunks ? (uint32_t)moved - nchunks : (uint32_t)moved;
}

#endif
