/* SPDX-License-Identifier: BSD-3-Clause */
/* The abstract run: every lane of every rank is a cursor, moved as far as it can; a lane that must
 * wait goes back on the list of ready ones when the other end acts, so a run costs as many steps as
 * there are events. An event takes all it needs at once, messages, slots and the memory it writes,
 * or waits, as the executor does; a received slot is free after the event's stores and sends. An
 * exchange is two events, the send and the receive.
 *
 * Direct: a send leaves a mark on the cell it reads until the receive at the other end is posted,
 * and whoever is to write to that cell, or to post a direct receive into it, waits for that. */
#include "schedule/verify_int.h"

#include <string.h>

#include "base/alloc.h"

static int refused(const struct xccl_verify_run *run)
{
    return run->verdict->kind != XCCL_VERDICT_PROVEN;
}

/* ---- lanes: ready and blocked ---- */

void xccl_verify_make_ready(struct xccl_verify_run *run, uint32_t lane)
{
    struct xccl_verify_lane *at = &run->lanes[lane];
    uint32_t place = run->ready_first + run->ready_count;

    if (at->queued || at->ended)
        return;
    at->block = XCCL_BLOCK_NONE;
    at->queued = 1;
    run->ready[place >= run->net->nlanes ? place - run->net->nlanes : place] = lane;
    run->ready_count++;
}

static struct xccl_verify_lane *take_ready(struct xccl_verify_run *run)
{
    struct xccl_verify_lane *at = &run->lanes[run->ready[run->ready_first]];

    run->ready_first = run->ready_first + 1 == run->net->nlanes ? 0 : run->ready_first + 1;
    run->ready_count--;
    at->queued = 0;
    return at;
}

static int block(struct xccl_verify_lane *at, enum xccl_verify_block kind, uint32_t on)
{
    at->block = (uint8_t)kind;
    at->block_on = on;
    return 0;
}

/* All lanes of a rank that wait for a thing of this kind. */
static void wake_rank(struct xccl_verify_run *run, uint32_t rank, enum xccl_verify_block kind)
{
    const struct xccl_verify_rank *of = &run->net->ranks[rank];

    for (uint32_t i = of->lane0; i < of->lane0 + of->nlanes; i++)
        if (run->lanes[i].block == kind)
            xccl_verify_make_ready(run, i);
}

void xccl_verify_wake_readers(struct xccl_verify_run *run, uint32_t queue)
{
    const struct xccl_verify_queue *of = &run->net->queues[queue];

    for (uint32_t i = of->reader0; i < of->reader0 + of->nreaders; i++) {
        uint32_t lane = run->net->readers[i].lane;

        if (run->lanes[lane].block == XCCL_BLOCK_MESSAGE && run->lanes[lane].block_on == i)
            xccl_verify_make_ready(run, lane);
    }
}

/* ---- the cursor ---- */

static void set_side(const struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                     struct xccl_verify_side *side, enum xccl_step_buffer buffer, uint32_t chunk)
{
    *side = (struct xccl_verify_side){.buffer = buffer,
                                      .chunk = chunk,
                                      .class = xccl_verify_class(at, buffer, chunk),
                                      .cell = xccl_verify_cell(run, at, buffer, chunk)};
}

/* A chunk of that class ends before this tile. */
static int has_ended(const struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                     uint32_t class)
{
    return class < XCCL_CLASS_ANY && at->tile >= run->how.sizes[class / run->net->parts];
}

/* Both sides of an exchange by themselves; else the source decides, if there is one with a size. */
static void set_skips(const struct xccl_verify_run *run, struct xccl_verify_lane *at)
{
    int exchange = at->step->op & XCCL_STEP_XCHG;
    int src = (at->step->op & XCCL_STEP_SRC) && has_ended(run, at, at->src.class);
    int dst = (at->step->op & XCCL_STEP_DST) && has_ended(run, at, at->dst.class);
    int sized = (at->step->op & XCCL_STEP_SRC) && at->src.class < XCCL_CLASS_ANY;

    at->skip_send = (uint8_t)(exchange || sized ? src : dst);
    at->skip_recv = (uint8_t)(exchange || !sized ? dst : src);
}

/* Reads the event that the cursor stands on. */
static void arrive(const struct xccl_verify_run *run, struct xccl_verify_lane *at)
{
    const struct xccl_schedule *schedule = at->schedule;
    const uint32_t *ends = run->net->ends + run->net->ranks[at->rank].conn0;

    at->step = &schedule->steps[schedule->lanes[at->lane].step0 + at->istep];
    xccl_event_decode(schedule, at->lane, at->step, at->occ, at->chunk, &at->event);
    at->sends = ends + at->event.sconn;
    at->recvs = ends + at->event.rconn;
    at->phase = at->occ == 0 && at->chunk == 0 ? XCCL_PHASE_WAIT : XCCL_PHASE_SEND;
    if (!run->how.values)
        return;
    if (at->step->op & XCCL_STEP_SRC)
        set_side(run, at, &at->src, xccl_step_src_buffer(at->step), at->event.src);
    if (at->step->op & XCCL_STEP_DST)
        set_side(run, at, &at->dst, xccl_step_dst_buffer(at->step), at->event.dst);
    if (run->how.sizes)
        set_skips(run, at);
}

/* To the next step or tile; 0 when that was the last. */
static int next_step(const struct xccl_verify_run *run, struct xccl_verify_lane *at)
{
    const struct xccl_schedule_lane *lane = &at->schedule->lanes[at->lane];
    uint32_t *inner = lane->order == XCCL_STEP_MAJOR ? &at->tile : &at->istep;
    uint32_t *outer = lane->order == XCCL_STEP_MAJOR ? &at->istep : &at->tile;
    uint32_t inner_end = lane->order == XCCL_STEP_MAJOR ? run->how.tiles : lane->nstep;
    uint32_t outer_end = lane->order == XCCL_STEP_MAJOR ? lane->nstep : run->how.tiles;

    if (++*inner < inner_end)
        return 1;
    *inner = 0;
    return ++*outer < outer_end;
}

static xcclResult_t give_signal(struct xccl_verify_run *run, const struct xccl_verify_lane *at)
{
    uint32_t number = run->net->signals[run->net->ranks[at->rank].step0 +
                                        (uint32_t)(at->step - at->schedule->steps)];

    if (run->signal_known)
        run->signal_known[number * run->how.tiles + at->tile] = at->known;
    if (run->clocks)
        return xccl_verify_clock_signal(run, at, number);
    return xcclSuccess;
}

/* The event is done. */
static xcclResult_t advance(struct xccl_verify_run *run, struct xccl_verify_lane *at)
{
    const struct xccl_step *step = at->step;
    xcclResult_t rc = xcclSuccess;

    if (++at->chunk == step->cnt) {
        at->chunk = 0;
        if (++at->occ == step->rep) {
            at->occ = 0;
            if (step->flags & XCCL_FLAG_SIGNAL)
                rc = give_signal(run, at);
            at->ended = !next_step(run, at);
            if (run->how.values && !at->ended)
                xccl_verify_lay_out_tile(run, at);
            if (step->flags & XCCL_FLAG_SIGNAL)
                wake_rank(run, at->rank, XCCL_BLOCK_SIGNAL);
        }
    }
    if (at->ended)
        run->ended++;
    else
        arrive(run, at);
    return rc;
}

/* ---- what an event needs ---- */

/* The other lane has ended that step in that tile. */
static int is_past(const struct xccl_verify_lane *other, uint32_t istep, uint32_t tile)
{
    if (other->ended)
        return 1;
    if (other->schedule->lanes[other->lane].order == XCCL_STEP_MAJOR)
        return other->istep > istep || (other->istep == istep && other->tile > tile);
    return other->tile > tile || (other->tile == tile && other->istep > istep);
}

static int waits_done(struct xccl_verify_run *run, struct xccl_verify_lane *at, xcclResult_t *rc)
{
    const struct xccl_schedule *schedule = at->schedule;
    const struct xccl_verify_rank *of = &run->net->ranks[at->rank];

    for (uint32_t i = 0; i < xccl_step_waits(at->step); i++) {
        const struct xccl_schedule_wait *wait = &schedule->waits[at->step->wait + i];
        uint32_t number = of->wait0 + at->step->wait + i, step = run->net->wait_steps[number];
        uint32_t sig = run->net->signals[of->step0 + step];

        if (wait->dist > at->tile)
            continue;
        if (!is_past(&run->lanes[of->lane0 + wait->lane], step - schedule->lanes[wait->lane].step0,
                     at->tile - wait->dist))
            return block(at, XCCL_BLOCK_SIGNAL, number);
        if (run->signal_known && !*rc)
            *rc = xccl_verify_hear(run, at,
                                   run->signal_known[sig * run->how.tiles + at->tile - wait->dist]);
        if (run->clocks)
            xccl_verify_clock_wait(run, at, sig, at->tile - wait->dist);
    }
    return 1;
}

static int have_slots(const struct xccl_verify_run *run, struct xccl_verify_lane *at)
{
    const uint32_t *ends = at->sends;

    for (uint32_t i = 0; i < at->event.nsend; i++)
        if (run->queues[ends[i]].sent - run->queues[ends[i]].freed >= run->how.nslots)
            return block(at, XCCL_BLOCK_SLOT, ends[i]);
    return 1;
}

static int have_messages(const struct xccl_verify_run *run, struct xccl_verify_lane *at)
{
    const uint32_t *ends = at->recvs;

    for (uint32_t i = 0; i < at->event.nrecv; i++)
        if (run->queues[run->net->readers[ends[i]].queue].sent == run->readers[ends[i]].consumed)
            return block(at, XCCL_BLOCK_MESSAGE, ends[i]);
    return 1;
}

/* Nothing still reads where this event writes. */
static int is_writable(struct xccl_verify_run *run, struct xccl_verify_lane *at)
{
    uint32_t mark;

    if (!run->how.direct || !(at->step->op & XCCL_STEP_DST) || at->dst.cell == XCCL_CELL_NONE)
        return 1;
    mark = xccl_verify_mark_pending(run, at->dst.cell);
    return mark == XCCL_NO_MARK ? 1 : block(at, XCCL_BLOCK_MARK, mark);
}

/* ---- events ---- */

/* All there is to a send without values. */
static void count_sends(struct xccl_verify_run *run, const struct xccl_verify_lane *at)
{
    for (uint32_t i = 0; i < at->event.nsend; i++) {
        run->queues[at->sends[i]].sent++;
        xccl_verify_wake_readers(run, at->sends[i]);
    }
}

/* Gives the slots back. */
static xcclResult_t consume(struct xccl_verify_run *run, struct xccl_verify_lane *at)
{
    const struct xccl_verify_net *net = run->net;
    const uint32_t *ends = at->recvs;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < at->event.nrecv; i++) {
        uint32_t number = net->readers[ends[i]].queue;
        const struct xccl_verify_queue *of = &net->queues[number];
        struct xccl_verify_queue_state *queue = &run->queues[number];
        uint32_t freed = run->readers[ends[i]].consumed++;

        if (run->clocks && !rc)
            rc = xccl_verify_clock_consume(run, at, queue, freed);
        freed++;
        for (uint32_t k = 0; of->nreaders > 1 && k < of->nreaders; k++)
            if (run->readers[of->reader0 + k].consumed < freed)
                freed = run->readers[of->reader0 + k].consumed;
        if (freed == queue->freed)
            continue;
        queue->freed = freed;
        if (run->lanes[of->writer].block == XCCL_BLOCK_SLOT &&
            run->lanes[of->writer].block_on == number)
            xccl_verify_make_ready(run, of->writer);
    }
    return rc;
}

/* The other ends of marks may go on. A direct receive waits until its memory is free. */
static int post_receives(struct xccl_verify_run *run, struct xccl_verify_lane *at)
{
    const uint32_t *ends = at->recvs;

    if ((at->step->flags & XCCL_FLAG_DIRECT_RECV) && !is_writable(run, at))
        return 0;
    for (uint32_t i = 0; i < at->event.nrecv; i++) {
        run->readers[ends[i]].posted++;
        wake_rank(run, run->net->queues[run->net->readers[ends[i]].queue].rank, XCCL_BLOCK_MARK);
    }
    return 1;
}

/* Messages, slots, memory, and then all of it. */
static int go(struct xccl_verify_run *run, struct xccl_verify_lane *at, xcclResult_t *rc)
{
    int exchange = at->step->op & XCCL_STEP_XCHG;

    if (at->skip_recv && (exchange || at->skip_send)) {
        *rc = advance(run, at);
        return 1;
    }
    if ((!exchange && !have_slots(run, at)) || !have_messages(run, at) || !is_writable(run, at))
        return 0;
    if (run->clocks) {
        xccl_verify_clock_tick(run, at);
        if (run->how.direct && (at->step->flags & XCCL_FLAG_DIRECT_RECV))
            *rc = xccl_verify_clock_direct(run, at);
        if (!exchange)
            xccl_verify_clock_slots(run, at);
    }
    if (run->how.values) {
        if (!*rc)
            *rc = xccl_verify_receive(run, at);
        if (*rc || refused(run))
            return 0;
    } else if (!exchange) {
        count_sends(run, at);
    }
    if (!*rc)
        *rc = consume(run, at);
    if (!*rc)
        *rc = advance(run, at);
    return 1;
}

/* One event of the lane, as far as it comes: 1 when it is done, and the lane may have another. */
static int move(struct xccl_verify_run *run, struct xccl_verify_lane *at, xcclResult_t *rc)
{
    if (at->phase == XCCL_PHASE_WAIT) {
        if (xccl_step_waits(at->step) && !waits_done(run, at, rc))
            return 0;
        at->phase = XCCL_PHASE_SEND;
    }
    if (at->phase == XCCL_PHASE_SEND) {
        if ((at->step->op & XCCL_STEP_XCHG) && !at->skip_send) {
            if (!have_slots(run, at))
                return 0;
            if (run->how.values)
                *rc = xccl_verify_send_source(run, at);
            else
                count_sends(run, at);
        }
        at->phase = run->how.direct ? XCCL_PHASE_POST : XCCL_PHASE_GO;
    }
    if (at->phase == XCCL_PHASE_POST) {
        if (!at->skip_recv && !*rc && !refused(run) && !post_receives(run, at))
            return 0;
        at->phase = XCCL_PHASE_GO;
    }
    return *rc || refused(run) ? 0 : go(run, at, rc);
}

static void tell_left_over(struct xccl_verify_run *run)
{
    for (uint32_t i = 0; i < run->net->nreaders && !refused(run); i++) {
        const struct xccl_verify_reader *reader = &run->net->readers[i];
        const struct xccl_verify_queue *queue = &run->net->queues[reader->queue];
        uint32_t left = run->queues[reader->queue].sent - run->readers[i].consumed;

        if (left)
            xccl_verdict_refuse(
                run->verdict, XCCL_VERDICT_LEFT_OVER, (int)reader->rank,
                "rank %u lane %u ends without reading %u messages from rank %u lane %u",
                reader->rank, run->lanes[reader->lane].lane, left, queue->rank,
                run->lanes[queue->writer].lane);
    }
}

xcclResult_t xccl_verify_run_go(struct xccl_verify_run *run)
{
    xcclResult_t rc = xcclSuccess;

    if (run->how.values)
        rc = xccl_verify_exchanges(run);
    for (uint32_t i = 0; i < run->net->nlanes; i++) {
        if (run->lanes[i].ended) {
            run->ended++;
            continue;
        }
        arrive(run, &run->lanes[i]);
        xccl_verify_make_ready(run, i);
    }
    while (run->ready_count && !rc && !refused(run)) {
        struct xccl_verify_lane *at = take_ready(run);

        while (!at->ended && move(run, at, &rc) && !rc)
            continue;
    }
    if (rc || refused(run))
        return rc;
    if (run->ended < run->net->nlanes)
        xccl_verify_tell_deadlock(run);
    else
        tell_left_over(run);
    if (!refused(run) && run->how.values)
        rc = xccl_verify_outputs(run);
    return rc;
}

/* ---- its memory ---- */

static void init_lanes(struct xccl_verify_run *run)
{
    const struct xccl_verify_net *net = run->net;

    for (uint32_t r = 0; r < net->nranks; r++) {
        for (uint32_t i = 0; i < net->ranks[r].nlanes; i++) {
            const struct xccl_schedule_lane *lane = &net->schedules[r]->lanes[i];

            run->lanes[net->ranks[r].lane0 + i] = (struct xccl_verify_lane){
                .schedule = net->schedules[r],
                .number = net->ranks[r].lane0 + i,
                .rank = r,
                .lane = i,
                .part = lane->part,
                .known = r + 1,
                .ended = lane->nstep == 0,
            };
        }
    }
}

xcclResult_t xccl_verify_run_init(struct xccl_verify_run *run, const struct xccl_verify_net *net,
                                  const struct xccl_verify_how *how, struct xccl_rank_sets *sets,
                                  struct xccl_verdict *verdict)
{
    xcclResult_t rc = xcclSystemError;

    *run = (struct xccl_verify_run){
        .net = net, .how = *how, .sets = sets, .verdict = verdict, .marks_free = XCCL_NO_MARK};
    run->lanes = xccl_calloc(net->nlanes + (size_t)1, sizeof(*run->lanes));
    run->queues = xccl_calloc(net->nqueues + (size_t)1, sizeof(*run->queues));
    run->readers = xccl_calloc(net->nreaders + (size_t)1, sizeof(*run->readers));
    run->ready = xccl_calloc(net->nlanes + (size_t)1, sizeof(*run->ready));
    if (!run->lanes || !run->queues || !run->readers || !run->ready)
        goto failed;
    init_lanes(run);
    if (how->values) {
        rc = xccl_verify_memory_init(run);
        if (rc)
            goto failed;
        for (uint32_t i = 0; i < net->nlanes; i++)
            xccl_verify_lay_out(run, &run->lanes[i]);
    }
    if (how->values && net->coll == XCCL_COLL_BARRIER) {
        run->signal_known = xccl_calloc((size_t)net->nsignals * how->tiles + 1,
                                        sizeof(*run->signal_known));
        rc = run->signal_known ? xcclSuccess : xcclSystemError;
        if (rc)
            goto failed;
    }
    if (how->clocks) {
        rc = xccl_verify_clocks_create(run);
        if (rc)
            goto failed;
    }
    return xcclSuccess;
failed:
    xccl_verify_run_fini(run);
    return xcclSystemError;
}

void xccl_verify_run_fini(struct xccl_verify_run *run)
{
    for (uint32_t i = 0; run->queues && i < run->net->nqueues; i++) {
        xccl_free(run->queues[i].messages);
        xccl_free(run->queues[i].clocks);
    }
    xccl_verify_clocks_destroy(run->clocks);
    xccl_free(run->lanes);
    xccl_free(run->queues);
    xccl_free(run->readers);
    xccl_free(run->ready);
    xccl_free(run->memory);
    xccl_free(run->cells);
    xccl_free(run->touched);
    xccl_free(run->marks0);
    xccl_free(run->marks);
    xccl_free(run->signal_known);
    *run = (struct xccl_verify_run){0};
}
