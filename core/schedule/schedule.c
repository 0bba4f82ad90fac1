/* SPDX-License-Identifier: BSD-3-Clause */
/* Storage of schedules, and the check that every record is well-formed before anything runs it.
 * Thread: any; a schedule under construction belongs to one. */
#include "schedule/schedule.h"

#include "base/alloc.h"
#include "base/error.h"

#define STEP_ONE (XCCL_STEP_SRC | XCCL_STEP_DST | XCCL_STEP_RECV | XCCL_STEP_SEND)

xcclResult_t xccl_schedule_create(const char *name, int nranks, int rank, int nchunks, int nsteps,
                                  int nconns, struct xccl_schedule **schedule_out)
{
    size_t conn_bytes = (size_t)nconns * sizeof(struct xccl_schedule_conn);
    size_t step_bytes = (size_t)nsteps * sizeof(struct xccl_step);
    size_t head_bytes = (sizeof(struct xccl_schedule) + 31) & ~(size_t)31;
    struct xccl_schedule *schedule;
    char *at;

    schedule = xccl_calloc_aligned(64, head_bytes + step_bytes + conn_bytes +
                                           sizeof(struct xccl_schedule_lane));
    if (!schedule)
        return xcclSystemError;
    at = (char *)schedule + head_bytes;
    schedule->name = name;
    schedule->nranks = (uint16_t)nranks;
    schedule->rank = (uint16_t)rank;
    schedule->nchunks = (uint16_t)nchunks;
    schedule->nsteps = (uint16_t)nsteps;
    schedule->nconns = (uint16_t)nconns;
    schedule->nlanes = 1;
    schedule->minslots = 1;
    schedule->steps = (struct xccl_step *)(void *)at;
    schedule->conns = (struct xccl_schedule_conn *)(void *)(at + step_bytes);
    schedule->lanes = (struct xccl_schedule_lane *)(void *)(at + step_bytes + conn_bytes);
    schedule->lanes[0].nstep = (uint16_t)nsteps;
    schedule->lanes[0].nconn = (uint16_t)nconns;
    schedule->lanes[0].nparts = 1;
    *schedule_out = schedule;
    return xcclSuccess;
}

void xccl_schedule_destroy(struct xccl_schedule *schedule)
{
    xccl_free(schedule);
}

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

uint32_t xccl_schedule_fan(const struct xccl_schedule *schedule, uint32_t first, uint32_t fan)
{
    uint32_t count = 0;

    if (fan != XCCL_FAN_ALL)
        return fan;
    while (first + count < schedule->nconns &&
           schedule->conns[first + count].group == schedule->conns[first].group)
        count++;
    return count;
}

static int fan_ok(const struct xccl_schedule *schedule, const struct xccl_step *step, int dir)
{
    uint32_t field = dir == XCCL_CONN_RECV ? step->fan & 15u : step->fan >> 4;
    uint32_t first = dir == XCCL_CONN_RECV ? step->rconn : step->sconn;
    int used = (step->op & (dir == XCCL_CONN_RECV ? XCCL_STEP_RECV : XCCL_STEP_SEND)) != 0;
    int32_t span = step->dconn * (step->rep - 1);
    uint32_t count;

    if (!used)
        return field == 0;
    if (!field || first >= schedule->nconns)
        return 0;
    count = xccl_schedule_fan(schedule, first, field);
    if ((int32_t)first + span < 0 || (int32_t)(first + count) + span > schedule->nconns)
        return 0;
    for (uint32_t i = 0; i < count; i++)
        if (schedule->conns[first + i].dir != dir)
            return 0;
    return 1;
}

static int chunks_ok(const struct xccl_schedule *schedule, const struct xccl_step *step)
{
    int32_t n = schedule->nchunks;

    if (!step->cnt || !step->rep || step->run > 1)
        return 0;
    if ((step->op & XCCL_STEP_SRC) && step->src >= n)
        return 0;
    if ((step->op & XCCL_STEP_DST) && step->dst >= n)
        return 0;
    return step->dsrc >= -n && step->dsrc <= n && step->ddst >= -n && step->ddst <= n &&
           step->cstride >= -n && step->cstride <= n;
}

xcclResult_t xccl_schedule_check(const struct xccl_schedule *schedule)
{
    for (uint32_t i = 0; i < schedule->nconns; i++) {
        if (schedule->conns[i].peer >= schedule->nranks)
            return xccl_fail(xcclInternalError, 0, "report this as a bug of the algorithm",
                             "%s schedule of rank %u: connection %u names rank %u of %u",
                             schedule->name, schedule->rank, i, schedule->conns[i].peer,
                             schedule->nranks);
    }
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        const struct xccl_step *step = &schedule->steps[i];

        if (xccl_step_legal(step->op) && chunks_ok(schedule, step) &&
            fan_ok(schedule, step, XCCL_CONN_RECV) && fan_ok(schedule, step, XCCL_CONN_SEND))
            continue;
        return xccl_fail(xcclInternalError, 0, "report this as a bug of the algorithm",
                         "%s schedule of rank %u: step %u (op %u) is not well-formed",
                         schedule->name, schedule->rank, i, step->op);
    }
    return xcclSuccess;
}
