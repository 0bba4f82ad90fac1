/* SPDX-License-Identifier: BSD-3-Clause */
/* A schedule: what one rank does in one collective, as compact steps that contain no bytes, no
 * types and no pointers. Count, type, operator, buffers and slot sizes are given when it runs, so
 * one schedule serves every size. A schedule has lanes, side by side; a lane is a sequence of steps
 * run once for every tile.
 *
 * A step covers rep occurrences of cnt chunks; decode.h says what each of them does, for all who
 * read steps. Generators make schedules through builder.h. Constant after it was made: any thread
 * may read it. */
#ifndef XCCL_SCHEDULE_SCHEDULE_H
#define XCCL_SCHEDULE_SCHEDULE_H

#include <assert.h>
#include <stdint.h>

#include "schedule/step_codes.h"
#include "xccl_types.h"

enum xccl_coll {
    XCCL_COLL_BROADCAST, /* the first five are NCCL's numbers, as tuners know them */
    XCCL_COLL_REDUCE,
    XCCL_COLL_ALL_GATHER,
    XCCL_COLL_REDUCE_SCATTER,
    XCCL_COLL_ALL_REDUCE,
    XCCL_COLL_ALL_TO_ALL,
    XCCL_COLL_GATHER,
    XCCL_COLL_SCATTER,
    XCCL_COLL_BARRIER,
    XCCL_COLL_SEND_RECV, /* the last: a group of sends and receives, which has no schedules */
    XCCL_COLL_COUNT
};
#define XCCL_COLL_WITH_SCHEDULES XCCL_COLL_SEND_RECV /* all before it */

/* xccl_step.bufs: source in bits 0-1, destination in bits 2-3. LIST: src or dst is not a chunk but
 * the first of cnt entries of the index table; such a step has one occurrence. */
#define XCCL_STEP_BUFS(src, dst) ((uint8_t)((src) | (dst) << 2))
#define XCCL_STEP_SRC_LIST       16
#define XCCL_STEP_DST_LIST       32

/* xccl_step.fan: receives in bits 0-3, sends in bits 4-7; 15: all that follow in the same group. */
#define XCCL_FAN_ALL        15
#define XCCL_STEP_FAN(r, s) ((uint8_t)((r) | (s) << 4))

struct xccl_step {
    uint8_t op, bufs, fan, flags;
    uint16_t rconn, sconn; /* first connection of each fan, consecutive in the lane's table */
    uint16_t src, dst; /* first chunk */
    uint16_t cnt; /* chunks in an occurrence ... */
    int16_t cstride; /* ... in hops of run contiguous ones, this far apart */
    uint16_t run; /* 1 is plain */
    uint16_t rep; /* occurrences */
    int16_t dsrc, ddst, dconn; /* what an occurrence adds */
    uint16_t wait; /* first entry of the wait table */
    uint16_t sig; /* number that waits name */
    uint16_t reserved;
};
static_assert(sizeof(struct xccl_step) == 32, "a step is 32 bytes on every device");

/* Of the same rank: until the lane's step with that sig is done in the tile dist before this one;
 * a tile that never was is done. */
struct xccl_schedule_wait {
    uint8_t lane, dist;
    uint16_t sig;
};
static_assert(sizeof(struct xccl_schedule_wait) == 4, "layout is shared with devices");

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

/* xccl_schedule.flags. EQUAL: chunks of different sizes (v-collectives) are beyond it. */
#define XCCL_SCHEDULE_EQUAL 1

struct xccl_schedule {
    const char *name; /* of the algorithm; owned by it */
    uint8_t coll; /* enum xccl_coll */
    uint8_t class; /* reproducibility, 1 to 3; 0: not proven */
    uint16_t flags;
    uint16_t nranks, rank;
    uint16_t root; /* of rooted collectives, else 0 */
    uint16_t nchunks; /* of the whole vector */
    uint16_t nin, nout; /* chunks of IN and OUT; 0: the rank has no such buffer */
    uint16_t nlanes;
    uint16_t nscratch; /* chunks of scratch memory ... */
    uint16_t scrbufs; /* ... and how many of it; tile t uses t mod scrbufs */
    uint16_t minslots;
    uint16_t nsteps, nconns, nwaits, nlist;
    struct xccl_step *steps;
    struct xccl_schedule_conn *conns;
    struct xccl_schedule_lane *lanes;
    struct xccl_schedule_wait *waits;
    uint16_t *list;
};

void xccl_schedule_destroy(struct xccl_schedule *schedule); /* NULL is fine */

/* How much of everything a schedule has. */
struct xccl_schedule_shape {
    const char *name; /* lives at least as long as the schedule */
    enum xccl_coll coll;
    uint16_t nranks, rank, root;
    uint16_t nchunks, nlanes, nscratch, scrbufs;
    uint16_t nsteps, nconns, nwaits, nlist;
};

/* One zeroed block for everything, with lanes that are empty. */
xcclResult_t xccl_schedule_create(const struct xccl_schedule_shape *shape,
                                  struct xccl_schedule **schedule_out);
/* Every step legal; every connection, chunk, wait and index inside its table and buffer;
 * xcclInternalError says which is not. What it lets through can be decoded by anybody. */
xcclResult_t xccl_schedule_check(const struct xccl_schedule *schedule);

/* 1 for the combinations of op bits that have a meaning. */
int xccl_step_legal(uint8_t op);

const char *xccl_coll_name(enum xccl_coll coll); /* "all_reduce", ... */
int xccl_coll_reduces(enum xccl_coll coll);
int xccl_coll_rooted(enum xccl_coll coll);
/* Chunks that IN or OUT has, of nchunks; 0: only the root has it, and the rank is not. */
uint32_t xccl_coll_chunks(enum xccl_coll coll, enum xccl_step_buffer buffer, int is_root,
                          uint32_t nchunks);

static inline uint32_t xccl_schedule_chunks(const struct xccl_schedule *schedule,
                                            enum xccl_step_buffer buffer)
{
    const uint16_t chunks[4] = {schedule->nin, schedule->nout, schedule->nscratch, 0};

    return chunks[buffer];
}

/* From first of a lane's table on: how many connections are of its group. */
uint32_t xccl_schedule_group(const struct xccl_schedule *schedule, uint32_t lane, uint32_t first);

/* Connections of a step's fan: `fan` of them, or the rest of the group. */
static inline uint32_t xccl_schedule_fan(const struct xccl_schedule *schedule, uint32_t lane,
                                         uint32_t first, uint32_t fan)
{
    return fan == XCCL_FAN_ALL ? xccl_schedule_group(schedule, lane, first) : fan;
}

#endif
