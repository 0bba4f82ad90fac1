/* SPDX-License-Identifier: BSD-3-Clause */
/* Ring all-reduce (Patarasuk and Yuan 2009). With next = r+1 and prev = r-1, rank r sends chunk
 * r-1, then n-2 times receives a chunk, adds its own part and passes it on, then completes chunk r,
 * stores it and sends it round; n-2 times it stores and passes on, and keeps the last. 2(n-1)
 * messages of 1/n of the data each way. The sum of chunk c starts at rank c+1 and goes round: the
 * same bits on all ranks, in an order that differs per chunk. Slots needed: two, since a step
 * that receives and sends takes its send slot before it gives the receive slot back.
 *
 *   connection 0: send to r+1        connection 1: receive from r-1 */
#include "schedule/schedule.h"

enum { RING_SEND, RING_RECV };

static struct xccl_step ring_step(uint8_t op, uint32_t src, uint32_t dst)
{
    return (struct xccl_step){
        .op = op,
        .bufs = XCCL_STEP_BUFS(XCCL_BUFFER_IN, XCCL_BUFFER_OUT),
        .fan = XCCL_STEP_FAN((op & XCCL_STEP_RECV) ? 1 : 0, (op & XCCL_STEP_SEND) ? 1 : 0),
        .rconn = RING_RECV,
        .sconn = RING_SEND,
        .src = (uint16_t)src,
        .dst = (uint16_t)dst,
        .cnt = 1,
        .run = 1,
        .rep = 1,
    };
}

static void ring_steps(struct xccl_schedule *schedule)
{
    uint32_t n = schedule->nranks, r = schedule->rank;
    uint32_t prev = xccl_chunk_add(r, -1, n), next = xccl_chunk_add(r, 1, n);
    struct xccl_step *step = schedule->steps;

    *step = ring_step(XCCL_STEP_SRC | XCCL_STEP_SEND, prev, 0);
    step++->flags = XCCL_FLAG_PRE;
    if (n > 2) {
        *step = ring_step(XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_SEND,
                          xccl_chunk_add(prev, -1, n), 0);
        step->rep = (uint16_t)(n - 2);
        step->dsrc = -1;
        step++->flags = XCCL_FLAG_PRE;
    }
    *step = ring_step(XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_DST | XCCL_STEP_SEND, r, r);
    step++->flags = XCCL_FLAG_PRE | XCCL_FLAG_POST;
    if (n > 2) {
        *step = ring_step(XCCL_STEP_RECV | XCCL_STEP_DST | XCCL_STEP_SEND, 0, prev);
        step->rep = (uint16_t)(n - 2);
        step++->ddst = -1;
    }
    *step = ring_step(XCCL_STEP_RECV | XCCL_STEP_DST, 0, next);
}

xcclResult_t xccl_gen_ring(int nranks, int rank, struct xccl_schedule **schedule_out)
{
    int nsteps = nranks == 1 ? 1 : nranks == 2 ? 3 : 5;
    uint16_t n = (uint16_t)nranks, r = (uint16_t)rank;
    struct xccl_schedule *schedule;
    xcclResult_t rc;

    rc = xccl_schedule_create(&(struct xccl_schedule_shape){.name = "ring",
                                                            .coll = XCCL_COLL_ALL_REDUCE,
                                                            .nranks = n,
                                                            .rank = r,
                                                            .nchunks = n,
                                                            .nlanes = 1,
                                                            .nsteps = (uint16_t)nsteps,
                                                            .nconns = nranks == 1 ? 0 : 2},
                              &schedule);
    if (rc)
        return rc;
    schedule->minslots = 2;
    schedule->lanes[0].nstep = schedule->nsteps;
    schedule->lanes[0].nconn = schedule->nconns;
    if (nranks == 1) {
        schedule->steps[0] = ring_step(XCCL_STEP_SRC | XCCL_STEP_DST, 0, 0);
        schedule->steps[0].flags = XCCL_FLAG_PRE | XCCL_FLAG_POST;
    } else {
        schedule->conns[RING_SEND] = (struct xccl_schedule_conn){
            .peer = (uint16_t)((r + 1) % n), .dir = XCCL_CONN_SEND, .group = RING_SEND};
        schedule->conns[RING_RECV] = (struct xccl_schedule_conn){
            .peer = (uint16_t)((r + n - 1) % n), .dir = XCCL_CONN_RECV, .group = RING_RECV};
        ring_steps(schedule);
    }
    *schedule_out = schedule;
    return xcclSuccess;
}
