/* SPDX-License-Identifier: BSD-3-Clause */
/* Storage of schedules, and the check that every record is well-formed before anything runs it.
 * Thread: any; a schedule under construction belongs to one. */
#include "schedule/schedule.h"

#include "base/alloc.h"
#include "base/error.h"
#include "schedule/decode.h"

#define STEP_ONE (XCCL_STEP_SRC | XCCL_STEP_DST | XCCL_STEP_RECV | XCCL_STEP_SEND)

static const struct coll {
    const char *name;
    uint8_t reduces, rooted;
    uint8_t vector[2]; /* IN, OUT: have all chunks, not one */
    uint8_t root_only[2];
} colls[XCCL_COLL_COUNT] = {
    [XCCL_COLL_ALL_REDUCE] = {"all_reduce", 1, 0, {1, 1}, {0, 0}},
    [XCCL_COLL_BROADCAST] = {"broadcast", 0, 1, {1, 1}, {1, 0}},
    [XCCL_COLL_REDUCE] = {"reduce", 1, 1, {1, 1}, {0, 1}},
    [XCCL_COLL_ALL_GATHER] = {"all_gather", 0, 0, {0, 1}, {0, 0}},
    [XCCL_COLL_REDUCE_SCATTER] = {"reduce_scatter", 1, 0, {1, 0}, {0, 0}},
    [XCCL_COLL_ALL_TO_ALL] = {"alltoall", 0, 0, {1, 1}, {0, 0}},
    [XCCL_COLL_GATHER] = {"gather", 0, 1, {0, 1}, {0, 1}},
    [XCCL_COLL_SCATTER] = {"scatter", 0, 1, {1, 0}, {1, 0}},
    [XCCL_COLL_BARRIER] = {"barrier", 0, 0, {0, 0}, {0, 0}},
    [XCCL_COLL_SEND_RECV] = {"send_recv", 0, 0, {0, 0}, {0, 0}},
};

const char *xccl_coll_name(enum xccl_coll coll)
{
    return coll < XCCL_COLL_COUNT ? colls[coll].name : "?";
}

int xccl_coll_reduces(enum xccl_coll coll)
{
    return colls[coll].reduces;
}

int xccl_coll_rooted(enum xccl_coll coll)
{
    return colls[coll].rooted;
}

uint32_t xccl_coll_chunks(enum xccl_coll coll, enum xccl_step_buffer buffer, int is_root,
                          uint32_t nchunks)
{
    if (coll == XCCL_COLL_BARRIER || (colls[coll].root_only[buffer] && !is_root))
        return 0;
    return colls[coll].vector[buffer] ? nchunks : 1;
}

/* ---- storage ---- */

/* Takes bytes of the block, aligned for any of the tables. */
static size_t part_at(size_t *used, size_t bytes)
{
    size_t at = *used;

    *used = (at + bytes + 31) & ~(size_t)31;
    return at;
}

xcclResult_t xccl_schedule_create(const struct xccl_schedule_shape *shape,
                                  struct xccl_schedule **schedule_out)
{
    size_t used = 0, steps, conns, lanes, waits, list;
    int is_root = shape->rank == shape->root;
    struct xccl_schedule *schedule;
    char *block;

    (void)part_at(&used, sizeof(*schedule));
    steps = part_at(&used, shape->nsteps * sizeof(struct xccl_step));
    conns = part_at(&used, shape->nconns * sizeof(struct xccl_schedule_conn));
    lanes = part_at(&used, shape->nlanes * sizeof(struct xccl_schedule_lane));
    waits = part_at(&used, shape->nwaits * sizeof(struct xccl_schedule_wait));
    list = part_at(&used, shape->nlist * sizeof(uint16_t));
    block = xccl_calloc_aligned(64, used);
    if (!block)
        return xcclSystemError;
    schedule = (struct xccl_schedule *)(void *)block;
    *schedule = (struct xccl_schedule){
        .name = shape->name,
        .coll = (uint8_t)shape->coll,
        .nranks = shape->nranks,
        .rank = shape->rank,
        .root = shape->root,
        .nchunks = shape->nchunks,
        .nin = (uint16_t)xccl_coll_chunks(shape->coll, XCCL_BUFFER_IN, is_root, shape->nchunks),
        .nout = (uint16_t)xccl_coll_chunks(shape->coll, XCCL_BUFFER_OUT, is_root, shape->nchunks),
        .nlanes = shape->nlanes,
        .nscratch = shape->nscratch,
        .scrbufs = shape->scrbufs ? shape->scrbufs : 1,
        .minslots = 1,
        .nsteps = shape->nsteps,
        .nconns = shape->nconns,
        .nwaits = shape->nwaits,
        .nlist = shape->nlist,
        .steps = (struct xccl_step *)(void *)(block + steps),
        .conns = (struct xccl_schedule_conn *)(void *)(block + conns),
        .lanes = (struct xccl_schedule_lane *)(void *)(block + lanes),
        .waits = (struct xccl_schedule_wait *)(void *)(block + waits),
        .list = (uint16_t *)(void *)(block + list),
    };
    for (int i = 0; i < shape->nlanes; i++)
        schedule->lanes[i].nparts = 1;
    *schedule_out = schedule;
    return xcclSuccess;
}

void xccl_schedule_destroy(struct xccl_schedule *schedule)
{
    xccl_free(schedule);
}

/* ---- the check ---- */

int xccl_step_legal(uint8_t op)
{
    switch (op) {
    case XCCL_STEP_SRC | XCCL_STEP_DST:
    case XCCL_STEP_SRC | XCCL_STEP_SEND:
    case XCCL_STEP_SRC | XCCL_STEP_DST | XCCL_STEP_SEND:
    case XCCL_STEP_RECV | XCCL_STEP_DST:
    case XCCL_STEP_RECV | XCCL_STEP_SEND:
    case XCCL_STEP_RECV | XCCL_STEP_DST | XCCL_STEP_SEND:
    case XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_DST:
    case XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_SEND:
    case STEP_ONE:
    case XCCL_STEP_SRC | XCCL_STEP_DST | XCCL_STEP_ACC:
    case STEP_ONE | XCCL_STEP_XCHG:
    case STEP_ONE | XCCL_STEP_XCHG | XCCL_STEP_ACC:
        return 1;
    default:
        return 0;
    }
}

uint32_t xccl_schedule_group(const struct xccl_schedule *schedule, uint32_t lane, uint32_t first)
{
    const struct xccl_schedule_lane *of = &schedule->lanes[lane];
    const struct xccl_schedule_conn *conns = schedule->conns + of->conn0;
    uint32_t count = 0;

    while (first + count < of->nconn && conns[first + count].group == conns[first].group)
        count++;
    return count;
}

/* The fan lies in the lane's table, with one direction, at each occurrence. */
static int fan_ok(const struct xccl_schedule *schedule, uint32_t lane, const struct xccl_step *step,
                  int dir)
{
    const struct xccl_schedule_lane *of = &schedule->lanes[lane];
    uint32_t field = dir == XCCL_CONN_RECV ? step->fan & 15u : step->fan >> 4;
    int64_t first = dir == XCCL_CONN_RECV ? step->rconn : step->sconn;
    int used = (step->op & (dir == XCCL_CONN_RECV ? XCCL_STEP_RECV : XCCL_STEP_SEND)) != 0;
    uint32_t occs = step->dconn ? step->rep : 1;

    if (!used)
        return field == 0;
    if (!field)
        return 0;
    for (uint32_t occ = 0; occ < occs; occ++, first += step->dconn) {
        uint32_t count;

        if (first < 0 || first >= of->nconn)
            return 0;
        count = xccl_schedule_fan(schedule, lane, (uint32_t)first, field);
        if (first + count > of->nconn)
            return 0;
        for (uint32_t i = 0; i < count; i++)
            if (schedule->conns[of->conn0 + (uint32_t)first + i].dir != dir)
                return 0;
    }
    return 1;
}

/* One side of a step. */
static int side_ok(const struct xccl_schedule *schedule, const struct xccl_step *step, int is_dst)
{
    enum xccl_step_buffer buffer = is_dst ? xccl_step_dst_buffer(step) : xccl_step_src_buffer(step);
    uint32_t first = is_dst ? step->dst : step->src, size = xccl_schedule_chunks(schedule, buffer);
    int list = step->bufs & (is_dst ? XCCL_STEP_DST_LIST : XCCL_STEP_SRC_LIST);

    if (!(step->op & (is_dst ? XCCL_STEP_DST : XCCL_STEP_SRC)))
        return !list;
    if (buffer == XCCL_BUFFER_ZERO)
        return !list && !(is_dst && (step->op & XCCL_STEP_ACC));
    if (!list)
        return first < size;
    if (step->rep != 1 || first + step->cnt > schedule->nlist)
        return 0;
    for (uint32_t i = 0; i < step->cnt; i++)
        if (schedule->list[first + i] >= size)
            return 0;
    return 1;
}

static int waits_ok(const struct xccl_schedule *schedule, const struct xccl_step *step)
{
    if (step->wait + xccl_step_waits(step) > schedule->nwaits)
        return 0;
    for (uint32_t i = 0; i < xccl_step_waits(step); i++)
        if (schedule->waits[step->wait + i].lane >= schedule->nlanes)
            return 0;
    return 1;
}

/* In order of rank, so that all ranks add up alike. */
static int ordered_ok(const struct xccl_schedule *schedule, uint32_t lane,
                      const struct xccl_step *step)
{
    const struct xccl_schedule_conn *conn = schedule->conns + schedule->lanes[lane].conn0 +
                                            step->rconn;
    uint32_t count;

    if (!(step->flags & XCCL_FLAG_ORDERED))
        return 1;
    if (!(step->op & XCCL_STEP_RECV) || (step->op & XCCL_STEP_XCHG) || step->dconn)
        return 0;
    count = xccl_schedule_fan(schedule, lane, step->rconn, step->fan & 15u);
    for (uint32_t i = 1; i < count; i++)
        if (conn[i].peer <= conn[i - 1].peer)
            return 0;
    return 1;
}

static int step_ok(const struct xccl_schedule *schedule, uint32_t lane,
                   const struct xccl_step *step)
{
    return xccl_step_legal(step->op) && step->cnt && step->rep && step->run &&
           side_ok(schedule, step, 0) && side_ok(schedule, step, 1) &&
           fan_ok(schedule, lane, step, XCCL_CONN_RECV) &&
           fan_ok(schedule, lane, step, XCCL_CONN_SEND) && waits_ok(schedule, step) &&
           ordered_ok(schedule, lane, step);
}

static xcclResult_t check_tables(const struct xccl_schedule *schedule)
{
    uint32_t steps = 0, conns = 0;
    int good = schedule->coll < XCCL_COLL_WITH_SCHEDULES && schedule->nranks > 0 &&
               schedule->rank < schedule->nranks && schedule->root < schedule->nranks &&
               schedule->nchunks > 0 && schedule->scrbufs > 0 && schedule->minslots > 0;

    for (uint32_t i = 0; i < schedule->nlanes; i++) {
        const struct xccl_schedule_lane *lane = &schedule->lanes[i];

        good &= lane->step0 == steps && lane->conn0 == conns && lane->nparts > 0 &&
                lane->part < lane->nparts && lane->order <= XCCL_STEP_MAJOR;
        steps += lane->nstep;
        conns += lane->nconn;
    }
    if (good && steps == schedule->nsteps && conns == schedule->nconns)
        return xcclSuccess;
    return xccl_fail(xcclInternalError, 0, "report this as a bug in the algorithm",
                     "%s schedule of rank %u of %u: its tables are inconsistent", schedule->name,
                     schedule->rank, schedule->nranks);
}

xcclResult_t xccl_schedule_check(const struct xccl_schedule *schedule)
{
    xcclResult_t rc = check_tables(schedule);

    if (rc)
        return rc;
    for (uint32_t i = 0; i < schedule->nconns; i++) {
        const struct xccl_schedule_conn *conn = &schedule->conns[i];

        if (conn->peer >= schedule->nranks || conn->dir > XCCL_CONN_RECV ||
            conn->kind > XCCL_CONN_MULTICAST)
            return xccl_fail(
                xcclInternalError, 0, "report this as a bug in the algorithm",
                "%s schedule of rank %u: connection %u names rank %u, but there are %u ranks",
                schedule->name, schedule->rank, i, conn->peer, schedule->nranks);
    }
    for (uint32_t lane = 0; lane < schedule->nlanes; lane++) {
        for (uint32_t i = 0; i < schedule->lanes[lane].nstep; i++) {
            const struct xccl_step *step = &schedule->steps[schedule->lanes[lane].step0 + i];

            if (step_ok(schedule, lane, step))
                continue;
            return xccl_fail(
                xcclInternalError, 0, "report this as a bug in the algorithm",
                "%s schedule of rank %u: step %u of lane %u (op %u) is not well-formed",
                schedule->name, schedule->rank, i, lane, step->op);
        }
    }
    return xcclSuccess;
}
