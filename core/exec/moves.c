/* SPDX-License-Identifier: BSD-3-Clause */
/* From steps to moves: the loops of a lane, and what a step means at one place of them in bytes and
 * links. Short plans keep the moves of all lanes; the others make each one when its turn comes,
 * with the same function. Chunks are cut into slices here and nowhere else; what a plan says of its
 * messages and bytes is counted from moves, too. Thread: see exec.h. */
#include "base/alloc.h"
#include "exec/exec.h"
#include "schedule/decode.h"

#define MOVES_KEPT_MAX 64 /* a list of them is 4 KiB: beyond it decoding costs less than misses */

/* What a lane works on of each chunk, in the tile at hand: from first on, up to `bytes`. */
struct window {
    size_t first, bytes;
};

/* A lane that shares its chunks with others has a part of each. */
static struct window window_of(const struct xccl_plan *plan, const struct xccl_place *place)
{
    const struct xccl_schedule_lane *lane = &plan->binding->schedule->lanes[place->lane];
    size_t part = xccl_part_bytes(plan->chunk_bytes, lane->nparts);
    size_t first = (size_t)place->tile * plan->slice_bytes;
    struct window window = {0, 0};

    if (first >= part)
        return window;
    window.first = lane->part * part + first;
    window.bytes = part - first < plan->slice_bytes ? part - first : plan->slice_bytes;
    return window;
}

/* The bytes of a chunk of `size` that lie in the window. */
static uint32_t clip(size_t size, const struct window *window)
{
    if (window->first >= size)
        return 0;
    return (uint32_t)(size - window->first < window->bytes ? size - window->first : window->bytes);
}

/* One side of an event. */
struct side {
    size_t offset;
    uint32_t bytes;
    int sized; /* 1: its chunk says how many bytes there are */
    int ends; /* 1: the last slice of a chunk that ends short, empty or not */
};

/* A chunk of a user's buffer. */
static struct side side_in(const struct xccl_plan *plan, const struct xccl_place *place,
                           const struct xccl_layout *layout, uint32_t chunk)
{
    struct window window = window_of(plan, place);
    size_t size = xccl_layout_size(layout, chunk);

    return (struct side){.offset = xccl_layout_offset(layout, chunk) + window.first,
                         .bytes = clip(size, &window),
                         .sized = 1,
                         .ends = plan->ends_short && size / plan->slice_bytes == place->tile};
}

static struct side side_of(const struct xccl_plan *plan, const struct xccl_place *place,
                           enum xccl_step_buffer buffer, uint32_t chunk)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;
    const struct xccl_schedule_lane *lane = &schedule->lanes[place->lane];
    struct window window = window_of(plan, place);

    switch (buffer) {
    case XCCL_BUFFER_IN:
    case XCCL_BUFFER_OUT:
        return side_in(plan, place, &plan->layouts[buffer], chunk);
    case XCCL_BUFFER_SCRATCH:
        /* One slice of each chunk, for each lane that shares it. */
        chunk += place->tile % schedule->scrbufs * schedule->nscratch;
        chunk = chunk * lane->nparts + lane->part;
        return (struct side){.offset = (size_t)chunk * plan->slice_bytes,
                             .bytes = clip(plan->chunk_bytes, &window)};
    default:
        return (struct side){.sized = 1}; /* a message without data */
    }
}

/* Is there something to move? Empty chunks are skipped at both ends; what goes from or to no memory
 * is a message without data, and never skipped. */
static int is_there(uint32_t bytes, uint8_t op, uint8_t bit, enum xccl_step_buffer buffer)
{
    return bytes || ((op & bit) && buffer == XCCL_BUFFER_ZERO);
}

static void make_value(const struct side *src, const struct side *dst, struct xccl_move *move)
{
    enum xccl_step_buffer src_buffer = (enum xccl_step_buffer)move->src_buffer;
    enum xccl_step_buffer dst_buffer = (enum xccl_step_buffer)move->dst_buffer;

    /* Of scratch memory, and of relays, which name no memory, the other side knows more. */
    move->bytes = (move->op & XCCL_STEP_SRC) && (src->sized || !dst->sized) ? src->bytes
                                                                            : dst->bytes;
    move->send_bytes = move->bytes;
    if (is_there(move->bytes, move->op, XCCL_STEP_SRC, src_buffer) ||
        is_there(move->bytes, move->op, XCCL_STEP_DST, dst_buffer))
        return;
    move->nrecv = 0;
    move->nsend = 0;
}

static void make_exchange(const struct side *src, const struct side *dst, struct xccl_move *move)
{
    move->bytes = dst->bytes;
    move->send_bytes = src->bytes;
    if (!src->ends &&
        !is_there(src->bytes, move->op, XCCL_STEP_SRC, (enum xccl_step_buffer)move->src_buffer))
        move->nsend = 0;
    if (!dst->ends &&
        !is_there(dst->bytes, move->op, XCCL_STEP_DST, (enum xccl_step_buffer)move->dst_buffer))
        move->nrecv = 0;
}

void xccl_move_make(const struct xccl_plan *plan, const struct xccl_place *place,
                    struct xccl_move *move_out)
{
    const struct xccl_binding *binding = plan->binding;
    const struct xccl_step *step = place->step;
    struct window window = window_of(plan, place);
    struct xccl_event event;
    /* What is said by neither side is a chunk like all others (EQUAL). */
    struct side src = {.bytes = clip(plan->chunk_bytes, &window)}, dst = src;

    xccl_event_decode(binding->schedule, place->lane, step, place->occurrence, place->chunk,
                      &event);
    *move_out = (struct xccl_move){
        .recv = binding->links + event.rconn,
        .send = binding->links + event.sconn,
        .nrecv = (uint16_t)event.nrecv,
        .nsend = (uint16_t)event.nsend,
        .left = (uint16_t)(step->cnt - 1 - place->chunk),
        .op = step->op,
        .flags = step->flags,
        .src_buffer = (uint8_t)xccl_step_src_buffer(step),
        .dst_buffer = (uint8_t)xccl_step_dst_buffer(step),
        .direct = binding->direct[step - binding->schedule->steps],
    };
    if (step->op & XCCL_STEP_SRC)
        src = side_of(plan, place, xccl_step_src_buffer(step), event.src);
    if (step->op & XCCL_STEP_DST)
        dst = side_of(plan, place, xccl_step_dst_buffer(step), event.dst);
    move_out->src = src.offset;
    move_out->dst = dst.offset;
    if (step->op & XCCL_STEP_XCHG)
        make_exchange(&src, &dst, move_out);
    else
        make_value(&src, &dst, move_out);
}

struct xccl_place xccl_place_first(const struct xccl_plan *plan, uint32_t lane)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;

    return (struct xccl_place){.lane = lane, .step = schedule->steps + schedule->lanes[lane].step0};
}

int xccl_place_next(const struct xccl_plan *plan, struct xccl_place *place)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;
    const struct xccl_schedule_lane *lane = &schedule->lanes[place->lane];
    const struct xccl_step *first = schedule->steps + lane->step0, *end = first + lane->nstep;

    if (++place->chunk < place->step->cnt)
        return 1;
    place->chunk = 0;
    if (++place->occurrence < place->step->rep)
        return 1;
    place->occurrence = 0;
    if (lane->order == XCCL_STEP_MAJOR) {
        if (++place->tile < plan->tiles)
            return 1;
        place->tile = 0;
        return ++place->step < end;
    }
    if (++place->step < end)
        return 1;
    place->step = first;
    return ++place->tile < plan->tiles;
}

/* --- lists --- */

static int has_effect(const struct xccl_move *move)
{
    return move->nrecv || move->nsend ||
           ((move->op & XCCL_STEP_SRC) && (move->op & XCCL_STEP_DST) && move->bytes);
}

/* Chunks of one tile of all lanes, at most one more than are kept. */
static uint32_t count_places(const struct xccl_schedule *schedule)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < schedule->nsteps && count <= MOVES_KEPT_MAX; i++)
        count += (uint32_t)schedule->steps[i].cnt * schedule->steps[i].rep;
    return count;
}

/* An exchange is kept whole: its sends run ahead among its chunks. */
static int is_kept(const struct xccl_move *move)
{
    return has_effect(move) || (move->op & XCCL_STEP_XCHG);
}

static uint32_t list_lane(const struct xccl_plan *plan, uint32_t lane, struct xccl_move *moves_out)
{
    struct xccl_place place = xccl_place_first(plan, lane);
    uint32_t count = 0;

    if (!plan->binding->schedule->lanes[lane].nstep)
        return 0;
    do {
        xccl_move_make(plan, &place, &moves_out[count]);
        count += (uint32_t)is_kept(&moves_out[count]);
    } while (xccl_place_next(plan, &place));
    return count;
}

static enum xccl_again again_of(const struct xccl_plan *plan)
{
    const struct xccl_binding *binding = plan->binding;
    const struct xccl_schedule *schedule = binding->schedule;

    if (schedule->nlanes != 1 || !plan->lane_moves[1] || binding->net_count || binding->offer_count)
        return XCCL_AGAIN_WHOLE;
    return schedule->nconns ? XCCL_AGAIN_LANE : XCCL_AGAIN_ALONE;
}

xcclResult_t xccl_plan_resolve(struct xccl_plan *plan)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;
    uint32_t count = count_places(schedule);

    /* Waits and signals belong to steps, which a list does not know. */
    if (plan->tiles != 1 || count > MOVES_KEPT_MAX || schedule->nwaits)
        return xcclSuccess;
    plan->moves = xccl_calloc_aligned(64, (count + 1) * sizeof *plan->moves);
    plan->lane_moves = xccl_calloc(schedule->nlanes + 1u, sizeof *plan->lane_moves);
    if (!plan->moves || !plan->lane_moves)
        return xcclSystemError;
    for (uint32_t i = 0; i < schedule->nlanes; i++)
        plan->lane_moves[i + 1] = plan->lane_moves[i] +
                                  list_lane(plan, i, plan->moves + plan->lane_moves[i]);
    plan->again = again_of(plan);
    if (plan->again != XCCL_AGAIN_WHOLE)
        plan->moves_end = plan->moves + plan->lane_moves[1];
    return xcclSuccess;
}

/* --- messages and bytes --- */

/* Chunks of one size move alike, so few places are looked at: one of a step where all its chunks
 * are alike, else one of each row of chunks that are. */

struct tally {
    const struct xccl_plan *plan;
    const int *nodes;
    uint32_t *messages; /* NULL: nobody asks */
    struct xccl_plan_traffic *traffic;
};

/* What a place moves over each of its connections, in all tiles. */
struct place_sum {
    uint32_t sends, receives; /* messages */
    uint64_t sent, received; /* bytes */
};

/* Tiles in which a place of tile 0 has something to send, or to receive: sizes only shrink from
 * tile to tile, and messages without data come in each. */
static uint32_t tiles_with(const struct xccl_plan *plan, struct xccl_place place, int sends)
{
    uint32_t low = 1, high = plan->tiles; /* it has something in tile 0 */

    while (low < high) { /* the first tile without */
        struct xccl_move move;

        place.tile = low + (high - low) / 2;
        xccl_move_make(plan, &place, &move);
        if (sends ? move.nsend : move.nrecv)
            low = place.tile + 1;
        else
            high = place.tile;
    }
    return low;
}

/* Full slices but for the last that there is. */
static uint64_t bytes_of(const struct xccl_plan *plan, struct xccl_place place,
                         const struct xccl_move *first, uint32_t tiles, int sends)
{
    struct xccl_move last = *first;

    place.tile = tiles - 1;
    if (tiles > 1)
        xccl_move_make(plan, &place, &last);
    return (uint64_t)(tiles - 1) * (sends ? first->send_bytes : first->bytes) +
           (sends ? last.send_bytes : last.bytes);
}

/* place: of tile 0. */
static struct place_sum sum_of(const struct xccl_plan *plan, const struct xccl_place *place)
{
    struct place_sum sum = {0, 0, 0, 0};
    struct xccl_move move;

    xccl_move_make(plan, place, &move);
    if (move.nsend) {
        sum.sends = tiles_with(plan, *place, 1);
        sum.sent = bytes_of(plan, *place, &move, sum.sends, 1);
    }
    if (move.nrecv) {
        sum.receives = tiles_with(plan, *place, 0);
        sum.received = bytes_of(plan, *place, &move, sum.receives, 0);
    }
    return sum;
}

static int is_far(const struct tally *tally, uint32_t conn)
{
    const struct xccl_schedule *schedule = tally->plan->binding->schedule;

    return tally->nodes && tally->nodes[schedule->conns[conn].peer] != tally->nodes[schedule->rank];
}

/* `times` places that move the same over the connections of the event. */
static void add_places(const struct tally *tally, const struct xccl_event *event,
                       const struct place_sum *sum, uint32_t times)
{
    for (uint32_t i = 0; i < event->nsend && sum->sends; i++) {
        tally->traffic->sent[is_far(tally, event->sconn + i)] += times * sum->sent;
        if (tally->messages)
            tally->messages[event->sconn + i] += times * sum->sends;
    }
    for (uint32_t i = 0; i < event->nrecv && sum->receives; i++) {
        tally->traffic->received[is_far(tally, event->rconn + i)] += times * sum->received;
        if (tally->messages)
            tally->messages[event->rconn + i] += times * sum->receives;
    }
}

/* Of the source or destination of a step: the user's buffer, whose chunks say how much moves. NULL:
 * another one, whose chunks are all alike, or none. */
static const struct xccl_layout *layout_of(const struct xccl_plan *plan,
                                           const struct xccl_step *step, uint8_t bit)
{
    enum xccl_step_buffer buffer = bit == XCCL_STEP_SRC ? xccl_step_src_buffer(step)
                                                        : xccl_step_dst_buffer(step);

    return (step->op & bit) && buffer <= XCCL_BUFFER_OUT ? &plan->layouts[buffer] : NULL;
}

static int is_alike(const struct xccl_plan *plan, const struct xccl_layout *layout)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;
    size_t chunks = layout == &plan->layouts[XCCL_BUFFER_IN] ? schedule->nin : schedule->nout;

    return !layout || (!layout->sizes && layout->total >= chunks * layout->stride);
}

/* All chunks of the step are as large as any. */
static void count_alike(const struct tally *tally, struct xccl_place place)
{
    const struct xccl_schedule *schedule = tally->plan->binding->schedule;
    const struct xccl_step *step = place.step;
    const struct place_sum sum = sum_of(tally->plan, &place);
    uint32_t times = step->dconn ? 1 : step->rep; /* occurrences over the same connections */

    for (uint32_t occ = 0; occ < step->rep; occ += times) {
        struct xccl_event event;

        xccl_event_decode(schedule, place.lane, step, occ, 0, &event);
        add_places(tally, &event, &sum, times * step->cnt);
    }
}

static void count_each(const struct tally *tally, struct xccl_place place)
{
    const struct xccl_plan *plan = tally->plan;
    const struct xccl_step *step = place.step;
    const struct xccl_layout *src_layout = layout_of(plan, step, XCCL_STEP_SRC);
    const struct xccl_layout *dst_layout = layout_of(plan, step, XCCL_STEP_DST);
    struct place_sum sum = {0, 0, 0, 0};
    size_t src = SIZE_MAX, dst = SIZE_MAX; /* what sum is of; no chunk is as large */

    for (place.occurrence = 0; place.occurrence < step->rep; place.occurrence++)
        for (place.chunk = 0; place.chunk < step->cnt; place.chunk++) {
            struct xccl_event event;
            size_t src_size, dst_size;

            xccl_event_decode(plan->binding->schedule, place.lane, step, place.occurrence,
                              place.chunk, &event);
            src_size = src_layout ? xccl_layout_size(src_layout, event.src) : 0;
            dst_size = dst_layout ? xccl_layout_size(dst_layout, event.dst) : 0;
            if (src_size != src || dst_size != dst)
                sum = sum_of(plan, &place);
            src = src_size;
            dst = dst_size;
            add_places(tally, &event, &sum, 1);
        }
}

void xccl_plan_count(const struct xccl_plan *plan, const int *nodes, uint32_t *messages,
                     struct xccl_plan_traffic *traffic_out)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;
    const struct tally tally = {plan, nodes, messages, traffic_out};

    *traffic_out = (struct xccl_plan_traffic){{0, 0}, {0, 0}};
    for (uint32_t i = 0; i < schedule->nlanes && plan->tiles; i++) {
        struct xccl_place place = xccl_place_first(plan, i);
        const struct xccl_step *end = place.step + schedule->lanes[i].nstep;

        for (; place.step < end; place.step++) {
            const struct xccl_step *step = place.step;

            if (!(step->op & (XCCL_STEP_RECV | XCCL_STEP_SEND)))
                continue;
            if (is_alike(plan, layout_of(plan, step, XCCL_STEP_SRC)) &&
                is_alike(plan, layout_of(plan, step, XCCL_STEP_DST)))
                count_alike(&tally, place);
            else
                count_each(&tally, place);
        }
    }
}
