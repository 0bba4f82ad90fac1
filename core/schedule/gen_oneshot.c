/* SPDX-License-Identifier: BSD-3-Clause */
/* One-shot all-reduce: one chunk; send everything to all others, then add up what all sent in rank
 * order 0..n-1, this rank's own input at its own place. One hop; the same bits on every rank and
 * for every element, whatever the count. Slots needed: one.
 *
 *   group 0: sends. One multicast for the ranks it reaches, then a FIFO for each other rank,
 * starting at r+1 so that the ranks do not all begin with the same receiver. group 1: receives from
 * all others, in rank order. */
#include "schedule/schedule.h"

#include "base/error.h"

enum { GROUP_SEND, GROUP_RECV };

static int count_sends(int nranks, int rank, const uint8_t *multicast)
{
    int fifos = 0, reached = 0;

    for (int peer = 0; peer < nranks; peer++) {
        if (peer == rank)
            continue;
        if (multicast[peer])
            reached = 1;
        else
            fifos++;
    }
    return fifos + reached;
}

static void make_conns(struct xccl_schedule *schedule, const uint8_t *multicast)
{
    uint32_t n = schedule->nranks, r = schedule->rank, at = 0;
    int reached = 0;

    for (uint32_t p = 0; p < n; p++)
        reached |= p != r && multicast[p];
    if (reached)
        schedule->conns[at++] = (struct xccl_schedule_conn){.peer = (uint16_t)r,
                                                            .dir = XCCL_CONN_SEND,
                                                            .kind = XCCL_CONN_MULTICAST,
                                                            .group = GROUP_SEND};
    for (uint32_t i = 1; i < n; i++) {
        uint32_t peer = (r + i) % n;

        if (!multicast[peer])
            schedule->conns[at++] = (struct xccl_schedule_conn){.peer = (uint16_t)peer,
                                                                .dir = XCCL_CONN_SEND,
                                                                .kind = XCCL_CONN_FIFO,
                                                                .group = GROUP_SEND};
    }
    for (uint32_t peer = 0; peer < n; peer++) {
        if (peer == r)
            continue;
        schedule->conns[at++] = (struct xccl_schedule_conn){
            .peer = (uint16_t)peer,
            .dir = XCCL_CONN_RECV,
            .kind = multicast[peer] ? XCCL_CONN_MULTICAST : XCCL_CONN_FIFO,
            .group = GROUP_RECV};
    }
}

xcclResult_t xccl_gen_oneshot(int nranks, int rank, const uint8_t *multicast,
                              struct xccl_schedule **schedule_out)
{
    struct xccl_schedule *schedule;
    struct xccl_step step = {.cnt = 1, .run = 1, .rep = 1};
    int nsends = count_sends(nranks, rank, multicast);
    xcclResult_t rc;

    if (nranks > XCCL_ONESHOT_MAX_RANKS)
        return xccl_fail(xcclInvalidArgument, 0, "use the ring algorithm",
                         "one-shot serves at most %d ranks, not %d", XCCL_ONESHOT_MAX_RANKS,
                         nranks);
    rc = xccl_schedule_create(
        &(struct xccl_schedule_shape){.name = "oneshot",
                                      .coll = XCCL_COLL_ALL_REDUCE,
                                      .nranks = (uint16_t)nranks,
                                      .rank = (uint16_t)rank,
                                      .nchunks = 1,
                                      .nlanes = 1,
                                      .nsteps = nranks == 1 ? 1 : 2,
                                      .nconns = (uint16_t)(nranks == 1 ? 0 : nsends + nranks - 1)},
        &schedule);
    if (rc)
        return rc;
    schedule->lanes[0].nstep = schedule->nsteps;
    schedule->lanes[0].nconn = schedule->nconns;
    step.bufs = XCCL_STEP_BUFS(XCCL_BUFFER_IN, XCCL_BUFFER_OUT);
    step.flags = XCCL_FLAG_PRE | XCCL_FLAG_POST | XCCL_FLAG_ORDERED;
    if (nranks == 1) {
        step.op = XCCL_STEP_SRC | XCCL_STEP_DST;
        schedule->steps[0] = step;
        schedule->steps[0].flags = XCCL_FLAG_PRE | XCCL_FLAG_POST;
    } else {
        make_conns(schedule, multicast);
        schedule->steps[0] = step;
        schedule->steps[0].op = XCCL_STEP_SRC | XCCL_STEP_SEND;
        schedule->steps[0].fan = XCCL_STEP_FAN(0, XCCL_FAN_ALL);
        schedule->steps[0].flags = XCCL_FLAG_PRE;
        schedule->steps[1] = step;
        schedule->steps[1].op = XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_DST;
        schedule->steps[1].fan = XCCL_STEP_FAN(XCCL_FAN_ALL, 0);
        schedule->steps[1].rconn = (uint16_t)nsends;
    }
    *schedule_out = schedule;
    return xcclSuccess;
}
