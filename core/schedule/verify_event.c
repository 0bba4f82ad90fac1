/* SPDX-License-Identifier: BSD-3-Clause */
/* What an event does to values: reads, combines, stores and sends them, and refuses what no
 * schedule may do. Whether it may happen now, verify_run.c has seen to before. The executor's
 * counterpart handles bytes instead. */
#include "schedule/verify_int.h"

#include "base/alloc.h"

#define CLASS_OPEN (UINT32_MAX - 2) /* of a relay, until it has a message */

static int refused(const struct xccl_verify_run *run)
{
    return run->verdict->kind != XCCL_VERDICT_PROVEN;
}

/* ---- memory ---- */

/* Notes who was at a cell, to know later whether clocks must look. */
static xcclResult_t touch(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                          size_t cell, int write)
{
    uint32_t *who = &run->touched[cell];

    if (run->clocks)
        return xccl_verify_clock_access(run, at, cell, write);
    if (!*who)
        *who = (at->lane + 1) << 2;
    *who |= (uint32_t)(write | (*who >> 2 != at->lane + 1) << 1);
    run->contended |= (*who & 3) == 3;
    return xcclSuccess;
}

static xcclResult_t load(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                         const struct xccl_verify_side *side, struct xccl_value *value_out)
{
    xcclResult_t rc = xcclSuccess;

    *value_out = (struct xccl_value){0};
    if (side->class == XCCL_CLASS_NONE)
        return xcclSuccess;
    if (side->cell != XCCL_CELL_NONE) {
        if (run->touched)
            rc = touch(run, at, side->cell, 0);
        *value_out = run->cells[side->cell];
    }
    if (!value_out->set)
        *value_out = xccl_verify_initial(run, at, side->cell, side->chunk);
    if (!value_out->set)
        xccl_verify_refuse(run, at, XCCL_VERDICT_UNWRITTEN,
                           "reads chunk %u of %s, which no step has written", side->chunk,
                           xccl_verify_buffer_words(side->buffer));
    return rc;
}

/* A value that may not be combined, sent or stored as it is. */
static int is_unfit(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                    const struct xccl_value *value, int combines)
{
    if (value->flags & XCCL_VALUE_RAW)
        xccl_verify_refuse(run, at, XCCL_VERDICT_PRE_POST,
                           "uses the contribution of rank %u without PRE", value->set - 1);
    else if (combines && (value->flags & XCCL_VALUE_POSTED))
        xccl_verify_refuse(run, at, XCCL_VERDICT_PRE_POST, "combines a value after its POST");
    return refused(run);
}

static uint32_t common_rank(const struct xccl_rank_sets *sets, uint32_t a, uint32_t b)
{
    uint32_t rank = 0;

    while (rank < sets->nranks &&
           !(xccl_rank_sets_has(sets, a, rank) && xccl_rank_sets_has(sets, b, rank)))
        rank++;
    return rank;
}

/* *into = *into op *value. */
static xcclResult_t combine(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                            struct xccl_value *into, const struct xccl_value *value)
{
    const struct xccl_value own = *into;
    int overlap = 0;
    xcclResult_t rc;

    if (!value->set)
        return xcclSuccess;
    if (!own.set) {
        *into = *value;
        return xcclSuccess;
    }
    if (!run->net->reduces) {
        xccl_verify_refuse(run, at, XCCL_VERDICT_RESULT,
                           "combines two values in a collective that does not reduce");
        return xcclSuccess;
    }
    if (is_unfit(run, at, &own, 1) || is_unfit(run, at, value, 1))
        return xcclSuccess;
    if (own.origin != value->origin || own.tile != value->tile) {
        xccl_verify_refuse(
            run, at, XCCL_VERDICT_RESULT, "combines chunk %u of tile %u with chunk %u of tile %u",
            own.origin / run->net->parts, own.tile, value->origin / run->net->parts, value->tile);
        return xcclSuccess;
    }
    into->order = xccl_mix64(own.order + value->order);
    rc = xccl_rank_sets_join(run->sets, own.set, value->set, &into->set, &overlap);
    if (overlap)
        xccl_verify_refuse(run, at, XCCL_VERDICT_TWICE,
                           "adds the contribution of rank %u a second time (chunk %u)",
                           common_rank(run->sets, own.set, value->set),
                           own.origin / run->net->parts);
    return rc;
}

/* The source, with PRE as the step says. */
static xcclResult_t load_source(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                                struct xccl_value *value_out)
{
    xcclResult_t rc = load(run, at, &at->src, value_out);

    if (rc || refused(run) || !(at->step->flags & XCCL_FLAG_PRE))
        return rc;
    if (!(value_out->flags & XCCL_VALUE_RAW))
        xccl_verify_refuse(run, at, XCCL_VERDICT_PRE_POST,
                           "has PRE, but chunk %u of %s is not a contribution in its original form",
                           at->src.chunk, xccl_verify_buffer_words(at->src.buffer));
    value_out->flags &= (uint16_t)~XCCL_VALUE_RAW;
    return xcclSuccess;
}

static void post(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                 struct xccl_value *value)
{
    uint32_t size = run->sets->sizes[value->set];

    if (value->flags & XCCL_VALUE_POSTED)
        xccl_verify_refuse(run, at, XCCL_VERDICT_PRE_POST, "applies POST to a value a second time");
    else if (size != run->net->nranks)
        xccl_verify_refuse(run, at, XCCL_VERDICT_PRE_POST,
                           "applies POST to a sum of %u of %u contributions", size,
                           run->net->nranks);
    value->flags |= XCCL_VALUE_POSTED;
}

static xcclResult_t store(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                          const struct xccl_value *value)
{
    const char *buffer = xccl_verify_buffer_words(at->dst.buffer);
    xcclResult_t rc = xcclSuccess;

    if (at->dst.class == XCCL_CLASS_NONE)
        return xcclSuccess;
    if (at->dst.cell == XCCL_CELL_NONE) {
        xccl_verify_refuse(run, at, XCCL_VERDICT_RESULT,
                           "writes to chunk %u of %s, which a schedule may only read",
                           at->dst.chunk, buffer);
        return xcclSuccess;
    }
    if (run->touched)
        rc = touch(run, at, at->dst.cell, 1);
    if (!value->set)
        xccl_verify_refuse(run, at, XCCL_VERDICT_UNWRITTEN,
                           "stores a message without data in chunk %u of %s", at->dst.chunk,
                           buffer);
    run->cells[at->dst.cell] = *value;
    return rc;
}

/* Two things of one event that must be equally large. */
static void check_size(struct xccl_verify_run *run, const struct xccl_verify_lane *at, uint32_t a,
                       uint32_t b, const struct xccl_spot *from)
{
    uint32_t parts = run->net->parts;

    if (a == b)
        return;
    if (a == XCCL_CLASS_ANY || b == XCCL_CLASS_ANY) {
        run->verdict->flags |= XCCL_SCHEDULE_EQUAL;
        return;
    }
    if (a == XCCL_CLASS_NONE || b == XCCL_CLASS_NONE)
        xccl_verify_refuse(run, at, XCCL_VERDICT_SIZE, "%s",
                           a == XCCL_CLASS_NONE ? "gets a message without data for a chunk"
                                                : "drops a message with data");
    else
        xccl_verify_refuse(run, at, XCCL_VERDICT_SIZE,
                           "gets chunk %u as chunk %u (by size classes), whose size may differ",
                           a / parts, b / parts);
    if (from)
        xccl_verify_refuse_other(run, from, ", sent by");
}

/* ---- messages ---- */

static xcclResult_t grow_queue(struct xccl_verify_run *run, struct xccl_verify_queue_state *queue)
{
    uint32_t room = run->clocks ? run->how.nslots : queue->room ? 2 * queue->room : 2;
    struct xccl_message *messages = xccl_calloc(room, sizeof(*messages));

    if (!messages)
        return xcclSystemError;
    if (run->clocks) {
        queue->clocks = xccl_calloc(room, 2 * sizeof(*queue->clocks));
        if (!queue->clocks) {
            xccl_free(messages);
            return xcclSystemError;
        }
    }
    for (uint32_t k = queue->freed; k != queue->sent; k++)
        messages[k % room] = queue->messages[k % queue->room];
    xccl_free(queue->messages);
    queue->messages = messages;
    queue->room = room;
    return xcclSuccess;
}

static xcclResult_t put(struct xccl_verify_run *run, uint32_t number,
                        const struct xccl_message *message)
{
    struct xccl_verify_queue_state *queue = &run->queues[number];
    xcclResult_t rc;

    if (queue->sent - queue->freed == queue->room) {
        rc = grow_queue(run, queue);
        if (rc)
            return rc;
    }
    queue->messages[queue->sent % queue->room] = *message;
    return xcclSuccess;
}

/* From where a direct send reads; XCCL_CELL_NONE: it is none, or reads what nobody writes. */
static size_t direct_source(const struct xccl_verify_run *run, const struct xccl_verify_lane *at)
{
    if (!run->how.direct || !(at->step->flags & XCCL_FLAG_DIRECT_SEND))
        return XCCL_CELL_NONE;
    return at->step->op & XCCL_STEP_SRC ? at->src.cell : at->dst.cell;
}

static xcclResult_t send_all(struct xccl_verify_run *run, struct xccl_verify_lane *at,
                             const struct xccl_value *value, uint32_t class)
{
    const uint32_t *ends = at->sends;
    struct xccl_message message = {.value = *value, .class = class, .from = xccl_verify_spot(at)};
    size_t direct = direct_source(run, at);
    uint32_t kept = 0;
    xcclResult_t rc = xcclSuccess;

    if (run->net->coll == XCCL_COLL_BARRIER)
        message.value.set = at->known;
    if (run->clocks)
        rc = xccl_verify_clock_keep(run, at, &kept);
    for (uint32_t i = 0; i < at->event.nsend && !rc; i++) {
        rc = put(run, ends[i], &message);
        if (!rc && run->clocks)
            xccl_verify_clock_send(run, &run->queues[ends[i]], kept);
        if (!rc && direct != XCCL_CELL_NONE)
            rc = xccl_verify_mark_add(run, at, direct, ends[i]);
        run->queues[ends[i]].sent++;
        xccl_verify_wake_readers(run, ends[i]);
    }
    if (kept)
        xccl_verify_clock_forget(run, kept);
    return rc;
}

xcclResult_t xccl_verify_hear(struct xccl_verify_run *run, struct xccl_verify_lane *at,
                              uint32_t set)
{
    int overlap;

    return xccl_rank_sets_join(run->sets, at->known, set, &at->known, &overlap);
}

/* What the next message on a connection holds, combined into the value. */
static xcclResult_t take(struct xccl_verify_run *run, struct xccl_verify_lane *at, uint32_t end,
                         struct xccl_value *value, uint32_t *class)
{
    uint32_t k = run->readers[end].consumed;
    const struct xccl_verify_queue_state *queue = &run->queues[run->net->readers[end].queue];
    const struct xccl_message *message = &queue->messages[k % queue->room];

    if (run->clocks)
        xccl_verify_clock_join(run, at, queue->clocks[2 * (k % queue->room)]);
    if (run->net->coll == XCCL_COLL_BARRIER)
        return xccl_verify_hear(run, at, message->value.set);
    if (*class == CLASS_OPEN)
        *class = message->class;
    check_size(run, at, message->class, *class, &message->from);
    if (refused(run))
        return xcclSuccess;
    return combine(run, at, value, &message->value);
}

/* ---- events ---- */

/* The source and the messages, in the order of the step. */
static xcclResult_t sum(struct xccl_verify_run *run, struct xccl_verify_lane *at,
                        struct xccl_value *value, uint32_t *class)
{
    const struct xccl_step *step = at->step;
    const struct xccl_schedule_conn *conns = at->schedule->conns + at->event.rconn;
    const uint32_t *ends = at->recvs;
    int own_left = (step->op & XCCL_STEP_SRC) && !(step->op & XCCL_STEP_XCHG);
    struct xccl_value own = {0};
    xcclResult_t rc = xcclSuccess;

    if (own_left)
        rc = load_source(run, at, &own);
    for (uint32_t i = 0; i < at->event.nrecv && !rc && !refused(run); i++) {
        if (own_left && (!(step->flags & XCCL_FLAG_ORDERED) || conns[i].peer > at->rank)) {
            rc = combine(run, at, value, &own);
            own_left = 0;
        }
        if (!rc)
            rc = take(run, at, ends[i], value, class);
    }
    if (own_left && !rc && !refused(run))
        rc = combine(run, at, value, &own);
    return rc;
}

/* Of the message that the event sends, and what it receives must be like. */
static uint32_t class_of_event(const struct xccl_verify_lane *at)
{
    uint8_t op = at->step->op;

    if (op & XCCL_STEP_XCHG)
        return at->dst.class;
    if ((op & XCCL_STEP_SRC) && at->src.class < XCCL_CLASS_ANY)
        return at->src.class;
    if (op & XCCL_STEP_DST)
        return at->dst.class;
    return op & XCCL_STEP_SRC ? at->src.class : CLASS_OPEN;
}

/* A local source and a destination, both memory, of one value. */
static int has_two_sides(const struct xccl_verify_lane *at)
{
    return (at->step->op & XCCL_STEP_SRC) && (at->step->op & XCCL_STEP_DST) &&
           !(at->step->op & XCCL_STEP_XCHG) && at->src.class != XCCL_CLASS_NONE &&
           at->dst.class != XCCL_CLASS_NONE;
}

xcclResult_t xccl_verify_receive(struct xccl_verify_run *run, struct xccl_verify_lane *at)
{
    const struct xccl_step *step = at->step;
    uint32_t class = class_of_event(at);
    struct xccl_value value = {0}, old;
    xcclResult_t rc = sum(run, at, &value, &class);

    if (rc || refused(run))
        return rc;
    if (run->net->coll != XCCL_COLL_BARRIER) {
        if (class == XCCL_CLASS_ANY || !(step->op & (XCCL_STEP_SRC | XCCL_STEP_DST)))
            run->verdict->flags |= XCCL_SCHEDULE_EQUAL;
        if (has_two_sides(at))
            check_size(run, at, at->src.class, at->dst.class, NULL);
    }
    if (step->op & XCCL_STEP_ACC) {
        rc = load(run, at, &at->dst, &old);
        if (!rc && !refused(run))
            rc = combine(run, at, &value, &old);
    }
    if (rc || refused(run) || is_unfit(run, at, &value, 0))
        return rc;
    if (step->flags & XCCL_FLAG_POST)
        post(run, at, &value);
    if (step->op & XCCL_STEP_DST)
        rc = store(run, at, &value);
    if (!rc && !(step->op & XCCL_STEP_XCHG) && at->event.nsend && !refused(run))
        rc = send_all(run, at, &value, class);
    return rc;
}

xcclResult_t xccl_verify_send_source(struct xccl_verify_run *run, struct xccl_verify_lane *at)
{
    struct xccl_value value = {0};
    xcclResult_t rc = xcclSuccess;

    if (run->clocks) {
        xccl_verify_clock_tick(run, at);
        xccl_verify_clock_slots(run, at);
    }
    rc = load_source(run, at, &value);
    if (rc || refused(run) || is_unfit(run, at, &value, 0))
        return rc;
    return send_all(run, at, &value, at->src.class);
}
