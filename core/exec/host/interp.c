/* SPDX-License-Identifier: BSD-3-Clause */
/* One slice of one step: are there credits and messages? move the bytes; publish; advance the
 * cursor. Written once as an inline function of the protocol. Lengths and offsets come from the own
 * plan only; what lies in shared memory is compared, never used, so a hostile writer can spoil
 * values but never reach beyond a slot. Thread: the holder of the crank. */
#include "exec/host/interp.h"

#include "base/copy.h"
#include "exec/host/slots.h"
#include "schedule/decode.h"

INLINE int all_send_ready(const struct xccl_move *move)
{
    for (uint32_t i = 0; i < move->nsend; i++)
        if (!send_ready(move->send[i]))
            return 0;
    return 1;
}

/* What the end of a link of this binding reaches. */
INLINE struct xccl_reach *reach_of(const struct xccl_run *run, struct xccl_link *const *link)
{
    const struct xccl_binding *binding = run->plan->binding;

    return binding->reaches[link - binding->links];
}

/* stays: where `from` lies in the arena, from 1 on, or STAYS; 0: it is going to be overwritten. */
#define STAYS UINT64_MAX

/* Networks want what stays to be left alone longer than ranks of this host. */
INLINE int may_stay(const struct xccl_run *run, const struct xccl_move *move,
                    const struct xccl_reach *reach)
{
    return !reach->is_net ||
           (move->direct & run->direct & (XCCL_DIRECT_SEND | XCCL_DIRECT_SEND_KEPT));
}

INLINE void send_slice(struct xccl_run *run, const struct xccl_move *move,
                       struct xccl_link *const *link, const char *from, uint64_t stays)
{
    struct xccl_reach *reach = reach_of(run, link);
    size_t bytes = move->send_bytes;

    if (reach && stays && bytes >= reach->min_bytes && may_stay(run, move, reach) &&
        send_in_place(run, *link, reach, stays == STAYS ? 0 : stays, from, bytes))
        return;
    if (bytes)
        xccl_copy_to_slot(slot_to_fill(*link, reach), from, bytes);
    send_done(run, *link, bytes);
}

/* The messages are there; may they be read? */
INLINE int begin_reading_all(const struct xccl_run *run, const struct xccl_move *move)
{
    for (uint32_t i = 0; i < move->nrecv; i++) {
        if (begin_reading(move->recv[i], reach_of(run, &move->recv[i])))
            continue;
        while (i-- > 0)
            end_reading(move->recv[i], reach_of(run, &move->recv[i]));
        return 0;
    }
    return 1;
}

/* All are there, and may be read. */
INLINE int all_recv_ready(struct xccl_run *run, const struct xccl_move *move, enum xccl_proto proto)
{
    for (uint32_t i = 0; i < move->nrecv; i++)
        if (!recv_ready(run, move->recv[i], proto, move->bytes))
            return 0;
    return proto != XCCL_PROTO_SLICES || begin_reading_all(run, move);
}

/* They have been read. Before the value is sent on: what comes of it then comes after the reading.
 */
INLINE void end_reading_all(const struct xccl_run *run, const struct xccl_move *move,
                            enum xccl_proto proto)
{
    if (proto == XCCL_PROTO_SLICES)
        for (uint32_t i = 0; i < move->nrecv; i++)
            end_reading(move->recv[i], reach_of(run, &move->recv[i]));
}

INLINE void recv_all_done(const struct xccl_move *move)
{
    for (uint32_t i = 0; i < move->nrecv; i++)
        recv_done(move->recv[i]);
}

/* In place, what is stored now may have been offered before. Its reader has finished, for else this
 * value could not have come (direct.c), on whatever way; here that is seen. */
INLINE void see_readers(const struct xccl_run *run, enum xccl_proto proto)
{
    if (proto == XCCL_PROTO_SLICES && run->offers && (run->direct & XCCL_DIRECT_SEND_IN_PLACE))
        xccl_interp_see_readers(run);
}

INLINE void send_all(struct xccl_run *run, const struct xccl_move *move, enum xccl_proto proto,
                     const char *from, uint64_t stays)
{
    for (uint32_t i = 0; i < move->nsend; i++) {
        if (proto == XCCL_PROTO_LINES) {
            send_lines(run, move->send[i], from, move->send_bytes);
            continue;
        }
        if (proto == XCCL_PROTO_SLICES) {
            send_slice(run, move, &move->send[i], from, stays);
            continue;
        }
        if (move->send_bytes)
            xccl_copy_to_slot(slot_payload(move->send[i]), from, move->send_bytes);
        send_done(run, move->send[i], move->send_bytes);
    }
}

/* May what lies there be sent without a copy, and where is it? */
INLINE uint64_t stays_at(const struct xccl_run *run, const struct xccl_move *move,
                         enum xccl_step_buffer buffer, size_t offset)
{
    if (!(move->direct & run->direct & (XCCL_DIRECT_SEND | XCCL_DIRECT_SEND_IN_PLACE)))
        return 0;
    return run->places[buffer] ? run->places[buffer] + offset : STAYS;
}

/* May bytes at src, which source_of() gave, be sent without a copy, and where are they? */
INLINE uint64_t source_stays(const struct xccl_run *run, const struct xccl_move *move,
                             const char *src)
{
    return src == run->room ? 0 : stays_at(run, move, move->src_buffer, move->src);
}

/* A place in a buffer. Added as numbers: an empty buffer may be NULL, to which C adds nothing. */
INLINE char *place_in(const struct xccl_run *run, int buffer, size_t offset)
{
    return (char *)((uintptr_t)run->buffers[buffer] + offset);
}

/* The source, where the step has one; as its operator wants it where it is this rank's
 * contribution. */
INLINE const char *source_of(const struct xccl_run *run, const struct xccl_move *move)
{
    const struct xccl_operator *op = &run->plan->reduction;
    const char *src = place_in(run, move->src_buffer, move->src);

    if (__builtin_expect(!op->pre || !(move->flags & XCCL_FLAG_PRE), 1))
        return src;
    op->pre(run->room, src, move->send_bytes / run->plan->elem_bytes, &op->scalar);
    return run->room;
}

INLINE char *destination_of(const struct xccl_run *run, const struct xccl_move *move)
{
    int stores = (move->op & XCCL_STEP_DST) && move->dst_buffer != XCCL_BUFFER_ZERO;

    return stores ? place_in(run, move->dst_buffer, move->dst) : NULL;
}

/* A value that is final now. */
INLINE void finish(const struct xccl_run *run, const struct xccl_move *move, char *value)
{
    const struct xccl_operator *op = &run->plan->reduction;

    if (__builtin_expect(op->post && (move->flags & XCCL_FLAG_POST), 0))
        op->post(value, value, move->bytes / run->plan->elem_bytes, &op->scalar);
}

INLINE int has_finish(const struct xccl_run *run, const struct xccl_move *move)
{
    return run->plan->reduction.post && (move->flags & XCCL_FLAG_POST);
}

#define NOT_TO_BE_HAD UINT32_MAX

/* The messages, and src, if any, at its place in rank order (or first), as parts to combine. Lines
 * are gathered into room first. to: where one message alone is going to be stored, or NULL. Returns
 * how many parts, or NOT_TO_BE_HAD, and then all messages are as they were. */
INLINE unsigned collect(struct xccl_run *run, const struct xccl_move *move, enum xccl_proto proto,
                        const char *src, char *room, char *to)
{
    const struct xccl_binding *binding = run->plan->binding;
    int ordered = (move->flags & XCCL_FLAG_ORDERED) != 0;
    const void **parts = binding->parts;
    unsigned count = 0;

    for (uint32_t i = 0; i < move->nrecv; i++) {
        const struct xccl_link *link = move->recv[i];

        if (src && (!ordered || link->peer > binding->schedule->rank)) {
            parts[count++] = src;
            src = NULL;
        }
        if (proto == XCCL_PROTO_LINES) {
            gather_lines(link, room, move->bytes);
            parts[count++] = room;
            room += XCCL_LINES_MAX_BYTES;
        } else if (proto == XCCL_PROTO_SLICES) {
            struct xccl_reach *reach = reach_of(run, &move->recv[i]);
            const char *at = message_at(run, link, reach, move->bytes, to);

            if (__builtin_expect(!at, 0)) {
                end_reading_all(run, move, proto);
                return NOT_TO_BE_HAD;
            }
            parts[count++] = at;
        } else {
            parts[count++] = slot_payload(link);
        }
    }
    if (src)
        parts[count++] = src;
    return count;
}

/* Makes one value of parts at `to`, which may be one of them: what was received there. */
INLINE void combine(const struct xccl_run *run, const struct xccl_move *move, char *to,
                    unsigned count)
{
    const struct xccl_plan *plan = run->plan;
    const void **parts = plan->binding->parts;

    if (count > 1)
        xccl_reduce_many(plan->reduction.reduce, plan->elem_bytes, to, parts, count,
                         move->bytes / plan->elem_bytes);
    else if (move->bytes && to != parts[0])
        xccl_copy(to, parts[0], move->bytes);
    finish(run, move, to);
}

/* Memory for a value that is not stored, but sent. */
INLINE char *room_for(const struct xccl_run *run, enum xccl_proto proto, char *line)
{
    return proto == XCCL_PROTO_LINES ? line : run->room + run->plan->slice_bytes;
}

/* Where a value for one receiver is made. */
INLINE char *slot_for(const struct xccl_run *run, const struct xccl_move *move,
                      enum xccl_proto proto)
{
    return proto == XCCL_PROTO_SLICES ? slot_to_fill(move->send[0], reach_of(run, &move->send[0]))
                                      : slot_payload(move->send[0]);
}

/* Receive, combine, store, send. A value that is both stored and sent is made in the destination
 * and copied to the slot from there; one that is only sent is made in the slot where there is one
 * receiver. 0: a message is not to be had, and nothing has moved. */
INLINE int receive(struct xccl_run *run, const struct xccl_move *move, enum xccl_proto proto)
{
    _Alignas(64) char gathered[XCCL_LINES_FAN_MAX * XCCL_LINES_MAX_BYTES]; /* lines only */
    _Alignas(64) char line[XCCL_LINES_MAX_BYTES];
    const char *src = move->op & XCCL_STEP_SRC ? source_of(run, move) : NULL;
    char *dst = destination_of(run, move);
    unsigned count = collect(run, move, proto, src, gathered, src ? NULL : dst);
    int to_slot = !dst && move->nsend == 1 && proto != XCCL_PROTO_LINES;

    if (proto == XCCL_PROTO_SLICES && count == NOT_TO_BE_HAD)
        return 0;
    if (dst) {
        see_readers(run, proto);
        combine(run, move, dst, count);
        end_reading_all(run, move, proto);
        send_all(run, move, proto, dst, stays_at(run, move, move->dst_buffer, move->dst));
    } else if (to_slot) {
        combine(run, move, slot_for(run, move, proto), count);
        end_reading_all(run, move, proto);
        send_done(run, move->send[0], move->bytes);
    } else if (count == 1 && !has_finish(run, move)) {
        send_all(run, move, proto, run->plan->binding->parts[0], 0);
        end_reading_all(run, move, proto);
    } else if (move->nsend) {
        combine(run, move, room_for(run, proto, line), count);
        end_reading_all(run, move, proto);
        send_all(run, move, proto, room_for(run, proto, line), 0);
    } else {
        end_reading_all(run, move, proto);
    }
    recv_all_done(move);
    return 1;
}

/* Copy, or add to memory. */
INLINE void store_own(const struct xccl_run *run, const struct xccl_move *move, const char *src,
                      char *dst)
{
    const struct xccl_plan *plan = run->plan;

    if (!dst || !move->bytes)
        return;
    if (move->op & XCCL_STEP_ACC)
        plan->reduction.reduce(dst, dst, src, move->bytes / plan->elem_bytes);
    else if (dst != src)
        xccl_copy(dst, src, move->bytes);
    finish(run, move, dst);
}

/* Without receiving: send, copy, add to memory. What is sent goes first, where it is not what is
 * finished here: other ranks wait for it, and for what is stored none does. */
INLINE void local(struct xccl_run *run, const struct xccl_move *move, enum xccl_proto proto)
{
    const char *src = source_of(run, move);
    char *dst = destination_of(run, move);
    int sends_dst = dst && has_finish(run, move);

    if (!sends_dst)
        send_all(run, move, proto, src, source_stays(run, move, src));
    store_own(run, move, src, dst);
    if (sends_dst)
        send_all(run, move, proto, dst, stays_at(run, move, move->dst_buffer, move->dst));
}

/* What an exchange receives: stored, or added to memory. 0: as above. */
INLINE int take(struct xccl_run *run, const struct xccl_move *move, enum xccl_proto proto)
{
    _Alignas(64) char gathered[XCCL_LINES_FAN_MAX * XCCL_LINES_MAX_BYTES]; /* lines only */
    _Alignas(64) char line[XCCL_LINES_MAX_BYTES];
    const struct xccl_plan *plan = run->plan;
    char *dst = destination_of(run, move), *sum;
    unsigned count = collect(run, move, proto, NULL, gathered,
                             move->op & XCCL_STEP_ACC ? NULL : dst);

    if (proto == XCCL_PROTO_SLICES && count == NOT_TO_BE_HAD)
        return 0;
    if (dst)
        see_readers(run, proto);
    if (dst && count && !(move->op & XCCL_STEP_ACC)) {
        combine(run, move, dst, count);
    } else if (dst && count) {
        const char *value = plan->binding->parts[0];

        if (count > 1) {
            sum = room_for(run, proto, line);
            xccl_reduce_many(plan->reduction.reduce, plan->elem_bytes, sum, plan->binding->parts,
                             count, move->bytes / plan->elem_bytes);
            value = sum;
        }
        plan->reduction.reduce(dst, dst, value, move->bytes / plan->elem_bytes);
        finish(run, move, dst);
    }
    end_reading_all(run, move, proto);
    recv_all_done(move);
    return 1;
}

/* --- the way of a lane --- */

/* Are the waits of the step at hand over? They ask what other lanes have done. */
static __attribute__((noinline)) int waits_over(const struct xccl_run *run,
                                                struct xccl_run_lane *lane)
{
    const struct xccl_binding *binding = run->plan->binding;
    const struct xccl_step *step = lane->place.step;

    for (uint32_t i = 0; i < xccl_step_waits(step); i++) {
        uint32_t entry = step->wait + i, dist = binding->schedule->waits[entry].dist;

        if (lane->place.tile >= dist &&
            run->signals[binding->wait_for[entry]] < lane->place.tile - dist + 1)
            return 0;
    }
    lane->waited = 1;
    return 1;
}

static void lane_done(struct xccl_run *run, struct xccl_run_lane *lane)
{
    lane->move = NULL;
    run->lanes_left--;
}

static void give_signal(struct xccl_run *run, const struct xccl_place *place)
{
    const struct xccl_binding *binding = run->plan->binding;
    uint16_t signal = binding->signal_of[place->step - binding->schedule->steps];

    if (signal != XCCL_NO_SIGNAL)
        run->signals[signal] = place->tile + 1;
}

/* On to the next place of a lane that has no list. */
static void decode_next(struct xccl_run *run, struct xccl_run_lane *lane)
{
    struct xccl_place *place = &lane->place;

    if (!lane->move->left && place->occurrence + 1 == place->step->rep) {
        give_signal(run, place);
        lane->waited = 0;
    }
    if (xccl_place_next(run->plan, place))
        xccl_move_make(run->plan, place, &lane->now);
    else
        lane_done(run, lane);
}

INLINE void lane_advance(struct xccl_run *run, struct xccl_run_lane *lane)
{
    if (lane->ahead && !--lane->ahead)
        lane->ahead_ends = 0;
    if (!lane->end)
        decode_next(run, lane);
    else if (++lane->move == lane->end)
        lane_done(run, lane);
}

/* --- sends ahead --- */

/* Moves that are looked at beyond the one that waits. */
#define AHEAD_MAX 64

INLINE int only_sends(const struct xccl_move *move)
{
    return (move->op & (XCCL_STEP_SRC | XCCL_STEP_SEND | XCCL_STEP_RECV | XCCL_STEP_DST |
                        XCCL_STEP_ACC | XCCL_STEP_XCHG)) == (XCCL_STEP_SRC | XCCL_STEP_SEND);
}

INLINE int sends(const struct xccl_move *move)
{
    return (move->op & (XCCL_STEP_SEND | XCCL_STEP_XCHG)) != 0;
}

static void note_store(const struct xccl_run *run, struct xccl_run_lane *lane,
                       const struct xccl_move *move)
{
    uintptr_t at = (uintptr_t)destination_of(run, move);
    int where = move->dst_buffer == XCCL_BUFFER_SCRATCH;

    if (!at)
        return;
    if (at < lane->stores[where].first)
        lane->stores[where].first = at;
    if (at + move->bytes > lane->stores[where].end)
        lane->stores[where].end = at + move->bytes;
}

/* The move of which nothing has been sent; lane->ahead is not 0. */
INLINE const struct xccl_move *next_of(const struct xccl_run_lane *lane)
{
    return lane->end ? lane->move + lane->ahead : &lane->next;
}

/* That one is done with. */
INLINE void pass_next(const struct xccl_run *run, struct xccl_run_lane *lane,
                      const struct xccl_move *move)
{
    note_store(run, lane, move);
    lane->ahead++;
    if (lane->end)
        lane->ahead_ends = lane->move + lane->ahead == lane->end;
    else if (xccl_place_next(run->plan, &lane->next_place))
        xccl_move_make(run->plan, &lane->next_place, &lane->next);
    else
        lane->ahead_ends = 1;
}

/* The move at hand is the first one that has sent all that it sends before it receives. */
INLINE void begin_ahead(const struct xccl_run *run, struct xccl_run_lane *lane)
{
    if (lane->end && lane->move + 1 == lane->end) {
        lane->ahead = 1;
        lane->ahead_ends = 1;
        return;
    }
    for (int i = 0; i < 2; i++) {
        lane->stores[i].first = UINTPTR_MAX;
        lane->stores[i].end = 0;
    }
    if (!lane->end)
        lane->next_place = lane->place;
    pass_next(run, lane, lane->move);
}

INLINE void send_source(struct xccl_run *run, const struct xccl_move *move, enum xccl_proto proto)
{
    const char *src = source_of(run, move);

    send_all(run, move, proto, src, source_stays(run, move, src));
}

/* Of the exchange at hand some chunk has not been sent. */
INLINE int is_exchanging(const struct xccl_run_lane *lane)
{
    return (lane->move->op & XCCL_STEP_XCHG) && lane->ahead <= lane->move->left;
}

/* May next go before the moves between have received? Within the occurrence of an exchange that is
 * proven. Beyond it none of them may have to store what it sends, nor another lane, which messages
 * alone may hold back until then; an empty message says that the one before it has come; no lane
 * may ask how far this one is, no message say how many come; and in a network exchanges with many
 * at once would get into each other's way. */
static int may_go_ahead(const struct xccl_run *run, const struct xccl_run_lane *lane,
                        const struct xccl_move *next)
{
    uintptr_t at = (uintptr_t)place_in(run, next->src_buffer, next->src);
    const struct xccl_binding *binding = run->plan->binding;
    int is_stored = 0;

    if (is_exchanging(lane))
        return 1;
    if (!(next->op & XCCL_STEP_XCHG) && !only_sends(next))
        return 0;
    if (binding->schedule->nlanes > 1 || binding->schedule->nwaits || run->plan->ends_short)
        return 0;
    if ((next->op & XCCL_STEP_XCHG) && binding->net_count)
        return 0;
    for (int i = 0; i < 2; i++)
        is_stored |= at < lane->stores[i].end && at + next->send_bytes > lane->stores[i].first;
    return !is_stored && (next->send_bytes || !next->nsend);
}

/* The lane waits to receive: what the moves behind it send may go, as long as there are slots, and
 * none of those left out sends, so that each link keeps its order. Else each tile, and each peer of
 * an exchange with several, would wait for the one before to come across. 1: something was sent. */
static __attribute__((noinline)) int go_ahead(struct xccl_run *run, struct xccl_run_lane *lane,
                                              enum xccl_proto proto)
{
    int moved = 0;

    while ((!lane->ahead_ends || is_exchanging(lane)) && lane->ahead < AHEAD_MAX) {
        const struct xccl_move *next = next_of(lane);

        if (sends(next)) {
            if (!may_go_ahead(run, lane, next)) {
                lane->ahead_ends = 1;
                break;
            }
            if (!all_send_ready(next))
                break;
            send_source(run, next, proto);
            moved = 1;
        }
        pass_next(run, lane, next);
    }
    return moved;
}

/* Sends ahead, as go_ahead(), from a move that is no exchange. 0 if the move itself sends. */
static __attribute__((noinline)) int wait_ahead(struct xccl_run *run, struct xccl_run_lane *lane,
                                                enum xccl_proto proto)
{
    if (!lane->ahead) {
        if (sends(lane->move))
            return 0;
        begin_ahead(run, lane);
    }
    return go_ahead(run, lane, proto);
}

INLINE int exchange(struct xccl_run *run, struct xccl_run_lane *lane, enum xccl_proto proto)
{
    int moved = 0;

    if (!lane->ahead) {
        if (!all_send_ready(lane->move))
            return 0;
        send_source(run, lane->move, proto);
        begin_ahead(run, lane);
        moved = 1;
    }
    if (!lane->ahead_ends || is_exchanging(lane))
        moved |= go_ahead(run, lane, proto);
    if (!all_recv_ready(run, lane->move, proto) || !take(run, lane->move, proto))
        return moved;
    lane_advance(run, lane);
    return 1;
}

INLINE int lane_move(struct xccl_run *run, struct xccl_run_lane *lane, enum xccl_proto proto)
{
    const struct xccl_move *move = lane->move;

    if (!lane->end && !lane->waited && !waits_over(run, lane))
        return 0;
    if (__builtin_expect(move->op & XCCL_STEP_XCHG, 0))
        return exchange(run, lane, proto);
    if (lane->ahead && only_sends(move)) { /* it has been sent */
        lane_advance(run, lane);
        return 1;
    }
    if (!all_send_ready(move) || !all_recv_ready(run, move, proto))
        return lane->end || run->rc ? 0 : wait_ahead(run, lane, proto);
    if (move->nrecv && !receive(run, move, proto))
        return 0;
    if (!(move->op & XCCL_STEP_RECV))
        local(run, move, proto);
    lane_advance(run, lane);
    return 1;
}

/* Each lane as far as it can. */
INLINE int move_lanes(struct xccl_run *run, enum xccl_proto proto)
{
    int moved = 0;

    for (uint32_t i = 0; i < run->nlanes; i++)
        while (run->lanes[i].move && lane_move(run, &run->lanes[i], proto))
            moved = 1;
    return moved;
}

int xccl_interp_lines(struct xccl_run *run)
{
    return move_lanes(run, XCCL_PROTO_LINES);
}

int xccl_interp_small(struct xccl_run *run)
{
    return move_lanes(run, XCCL_PROTO_SMALL);
}

int xccl_interp_slices(struct xccl_run *run)
{
    return move_lanes(run, XCCL_PROTO_SLICES);
}

int xccl_interp_tight(struct xccl_run *run)
{
    return move_lanes(run, XCCL_PROTO_TIGHT);
}

int xccl_interp_alone(struct xccl_run *run)
{
    const struct xccl_move *move = run->plan->moves, *end = run->plan->moves_end;

    if (!run->lanes_left)
        return 0;
    for (; move < end; move++)
        store_own(run, move, source_of(run, move), destination_of(run, move));
    run->lanes_left = 0;
    return 1;
}

void xccl_interp_see_readers(const struct xccl_run *run)
{
    const struct xccl_binding *binding = run->plan->binding;

    for (uint32_t i = 0; i < binding->offer_count; i++)
        see_readers_of(binding->links[binding->offer_conns[i]],
                       binding->reaches[binding->offer_conns[i]]);
}

int xccl_interp_all_read(struct xccl_run *run)
{
    const struct xccl_binding *binding = run->plan->binding;

    for (uint32_t i = 0; i < binding->offer_count; i++) {
        uint16_t conn = binding->offer_conns[i];

        if (!is_read(binding->links[conn], binding->reaches[conn]))
            return 0;
    }
    run->offers = 0;
    return 1;
}
