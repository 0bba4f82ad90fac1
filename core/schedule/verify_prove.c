/* SPDX-License-Identifier: BSD-3-Clause */
/* The whole proof of an algorithm: in every way that a call may be run. What it found out is
 * written into the schedules. Marks of direct transfers are set generously and taken off where the
 * direct run is refused; taking one off only lets others go on earlier, so what was proven before
 * stays true. */
#include "schedule/verify.h"

#include "schedule/verify_int.h"

#define DIRECT_BOTH (XCCL_FLAG_DIRECT_SEND | XCCL_FLAG_DIRECT_RECV)
#define MANY_SLOTS  8

/* What it sends lies in memory as it is sent. */
static int sends_memory(const struct xccl_schedule *schedule, uint32_t lane,
                        const struct xccl_step *step)
{
    const uint8_t relayed = XCCL_STEP_RECV | XCCL_STEP_DST | XCCL_STEP_SEND;
    int src = (step->op & XCCL_STEP_SRC) && xccl_step_src_buffer(step) != XCCL_BUFFER_ZERO;

    if (!(step->op & XCCL_STEP_SEND))
        return 0;
    if (step->op & XCCL_STEP_XCHG)
        return src;
    if (step->op == relayed)
        return xccl_step_dst_buffer(step) != XCCL_BUFFER_ZERO &&
               xccl_schedule_fan(schedule, lane, step->rconn, step->fan & 15u) == 1;
    return src && !(step->op & XCCL_STEP_RECV);
}

/* What it receives goes to memory as it comes. */
static int receives_memory(const struct xccl_schedule *schedule, uint32_t lane,
                           const struct xccl_step *step)
{
    if (!(step->op & XCCL_STEP_RECV) || !(step->op & XCCL_STEP_DST) || (step->op & XCCL_STEP_ACC) ||
        xccl_step_dst_buffer(step) == XCCL_BUFFER_ZERO)
        return 0;
    if ((step->op & XCCL_STEP_SRC) && !(step->op & XCCL_STEP_XCHG))
        return 0;
    return xccl_schedule_fan(schedule, lane, step->rconn, step->fan & 15u) == 1;
}

/* Returns how many marks there are. */
static uint32_t mark_all(const struct xccl_verify_net *net)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < net->nranks; i++) {
        struct xccl_schedule *schedule = net->schedules[i];

        for (uint32_t lane = 0; lane < schedule->nlanes; lane++) {
            struct xccl_step *step = &schedule->steps[schedule->lanes[lane].step0];

            for (uint32_t k = 0; k < schedule->lanes[lane].nstep; k++, step++) {
                int send = sends_memory(schedule, lane, step);
                int recv = receives_memory(schedule, lane, step);

                step->flags = (uint8_t)((step->flags & ~DIRECT_BOTH) |
                                        (send ? XCCL_FLAG_DIRECT_SEND : 0) |
                                        (recv ? XCCL_FLAG_DIRECT_RECV : 0));
                count += (uint32_t)(send + recv);
            }
        }
    }
    return count;
}

/* Of one step of one rank, or of all ranks (rank -1), or of all steps (lane -1). */
static uint32_t unmark(const struct xccl_verify_net *net, int rank, int lane, int step)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < net->nranks; i++) {
        const struct xccl_schedule *schedule = net->schedules[i];

        for (uint32_t k = 0; k < schedule->nlanes && (rank < 0 || i == (uint32_t)rank); k++) {
            struct xccl_step *of = schedule->steps + schedule->lanes[k].step0;

            for (uint32_t j = 0; j < schedule->lanes[k].nstep; j++) {
                if (lane >= 0 && (k != (uint32_t)lane || j != (uint32_t)step))
                    continue;
                count += (of[j].flags & DIRECT_BOTH) != 0;
                of[j].flags &= (uint8_t)~DIRECT_BOTH;
            }
        }
    }
    return count;
}

/* After a direct run was refused for another reason than standing still: the steps that it names,
 * then those on all ranks, then all. */
static void unmark_named(const struct xccl_verify_net *net, const struct xccl_verdict *verdict)
{
    const struct xccl_verdict_place *place = &verdict->place, *other = &verdict->other;
    uint32_t count = 0;

    if (place->lane >= 0 && place->step >= 0) {
        count += unmark(net, place->rank, place->lane, place->step);
        if (other->rank >= 0 && other->lane >= 0)
            count += unmark(net, other->rank, other->lane, other->step);
        if (!count)
            count = unmark(net, -1, place->lane, place->step);
    }
    if (!count)
        (void)unmark(net, -1, -1, -1);
}

static int has_marks(const struct xccl_verify_net *net)
{
    for (uint32_t i = 0; i < net->nranks; i++)
        for (uint32_t k = 0; k < net->schedules[i]->nsteps; k++)
            if (net->schedules[i]->steps[k].flags & DIRECT_BOTH)
                return 1;
    return 0;
}

/* Direct: until it is proven, with fewer marks each time. */
static xcclResult_t prove_direct(const struct xccl_verify_net *net,
                                 const struct xccl_verify_how *how, struct xccl_rank_sets *sets)
{
    struct xccl_verdict verdict = {.place.rank = -1};
    xcclResult_t rc = xcclSuccess;

    while (!rc && has_marks(net)) {
        uint32_t unmarked;

        rc = xccl_verify_data(net, how, sets, &verdict, &unmarked);
        if (rc || verdict.kind == XCCL_VERDICT_PROVEN)
            break;
        if (!unmarked)
            unmark_named(net, &verdict);
    }
    return rc;
}

/* All ways of one kind: buffered first, since what is refused there is refused. */
static xcclResult_t prove_ways(const struct xccl_verify_net *net, struct xccl_rank_sets *sets,
                               struct xccl_verdict *verdict)
{
    uint32_t slots[2] = {verdict->minslots, MANY_SLOTS};
    uint8_t class = 3;
    xcclResult_t rc = xcclSuccess;

    for (int way = 0; way < 8 && !rc && verdict->kind == XCCL_VERDICT_PROVEN; way++) {
        struct xccl_verify_how how = {.nslots = slots[way & 1],
                                      .tiles = xccl_verify_tiles(net, slots[way & 1]),
                                      .in_place = way >> 1 & 1,
                                      .direct = way >> 2,
                                      .values = 1};

        if (((way & 1) && slots[0] >= MANY_SLOTS) ||
            (how.in_place && !xccl_verify_has_aliases(net->coll)))
            continue;
        if (how.direct) {
            rc = prove_direct(net, &how, sets);
        } else {
            rc = xccl_verify_data(net, &how, sets, verdict, NULL);
            class = verdict->class < class ? verdict->class : class;
        }
    }
    verdict->class = class;
    return rc;
}

static xcclResult_t prove_net(const struct xccl_verify_net *net, struct xccl_verdict *verdict)
{
    struct xccl_rank_sets sets;
    xcclResult_t rc;

    (void)mark_all(net);
    rc = xccl_verify_minslots(net, verdict);
    if (rc || verdict->kind != XCCL_VERDICT_PROVEN)
        return rc;
    rc = xccl_rank_sets_init(&sets, (int)net->nranks);
    if (rc)
        return rc;
    rc = prove_ways(net, &sets, verdict);
    xccl_rank_sets_fini(&sets);
    return rc;
}

/* class 0 and no marks: not proven. */
static void write_down(const struct xccl_verify_net *net, const struct xccl_verdict *verdict)
{
    int proven = verdict->kind == XCCL_VERDICT_PROVEN;

    if (!proven)
        (void)unmark(net, -1, -1, -1);
    for (uint32_t i = 0; i < net->nranks; i++) {
        struct xccl_schedule *schedule = net->schedules[i];

        schedule->class = proven ? verdict->class : 0;
        if (!proven)
            continue;
        schedule->minslots = verdict->minslots;
        schedule->flags = verdict->flags;
    }
}

xcclResult_t xccl_prove(struct xccl_schedule *const *schedules, int nranks,
                        struct xccl_verdict *verdict_out)
{
    struct xccl_verdict verdict = {.place.rank = -1, .other.rank = -1};
    struct xccl_verify_net net;
    xcclResult_t rc;

    rc = xccl_verify_net_init(&net, schedules, nranks, &verdict);
    if (rc)
        return rc;
    if (verdict.kind == XCCL_VERDICT_PROVEN) {
        rc = prove_net(&net, &verdict);
        if (rc)
            verdict.kind = XCCL_VERDICT_SHAPE; /* nothing is proven */
        write_down(&net, &verdict);
        xccl_verify_net_fini(&net);
    }
    if (!rc)
        *verdict_out = verdict;
    return rc;
}
