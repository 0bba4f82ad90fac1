/* SPDX-License-Identifier: BSD-3-Clause */
/* Which steps may send from the buffers of a call without a copy, and receive into them. A rank
 * reads its own schedule alone, so what it cannot see in there is not assumed.
 *
 * What is sent without a copy must not be written before it has been read, and the call ends when
 * all of it has been. So a step may do so when all that it sends
 *   - lies in IN, which nobody writes. In place that holds where no chunk of OUT that is stored is
 *     the same memory; and where the chunk of IN leaves the rank in one message, to one receiver,
 *     and is read by nothing else, and the chunk of OUT is stored once, with everybody's
 *     contribution: then what is stored has come after that message was read, since it has no other
 *     way to hold this rank's contribution;
 *   - or lies in OUT and has been stored for the last time, by this lane. (An exchange sends before
 *     it stores, and may do so for all chunks of an occurrence.)
 * That a message was read is not enough for a network, which may send it again until it is known to
 * have come: XCCL_DIRECT_SEND_KEPT leaves the case with everybody's contribution out.
 *
 * What is received straight into OUT arrives at any time from the beginning of the call on. So a
 * step may do so when it is the only store of all of its chunks and combines nothing. In place the
 * chunk of IN that is the same memory must not be read at all, or as above.
 *
 * A lane may have a part of each chunk: parts are told apart. Tiles are not: what is said here
 * holds in each of them, and they are different memory. Thread: see binding.h. */
#include "base/alloc.h"
#include "exec/binding.h"
#include "schedule/decode.h"

#define SEVERAL     UINT32_MAX
#define SEND_ALWAYS (XCCL_DIRECT_SEND | XCCL_DIRECT_SEND_IN_PLACE | XCCL_DIRECT_SEND_KEPT)

/* What is done with a part of a chunk. */
struct cell {
    uint32_t stores, last, lane; /* last: event of its lane; lane: or SEVERAL */
    uint32_t copies; /* stores that change nothing in place */
    uint32_t reads, sends; /* reads that are not sends alone count as several sends */
};

struct look {
    const struct xccl_schedule *schedule;
    struct cell *in, *out;
    uint32_t parts;
    /* In place: IN in_first + k lies in OUT out_first + k, for so many k. */
    uint32_t in_first, out_first, same;
    int all_in; /* 1: what is stored last has everybody's contribution */
};

/* An event of a lane. */
struct spot {
    struct xccl_event event;
    const struct xccl_schedule_lane *lane;
    uint32_t number, lane_number;
    uint32_t first; /* number of the first chunk of the occurrence */
};

typedef void visit_fn(struct look *look, const struct spot *spot, void *arg);

static uint32_t parts_of(const struct xccl_schedule *schedule)
{
    uint32_t parts = 1;

    for (uint32_t i = 0; i < schedule->nlanes; i++) {
        uint32_t own = schedule->lanes[i].nparts;

        if (own > 1 && parts > 1 && own != parts)
            return 0;
        parts = own > 1 ? own : parts;
    }
    return parts;
}

/* Where the in-place form of the collective has its buffers. */
static void set_same(struct look *look)
{
    const struct xccl_schedule *schedule = look->schedule;
    uint32_t in = schedule->nin, out = schedule->nout;

    look->same = in < out ? in : out;
    look->in_first = in > out ? schedule->rank * out : 0;
    look->out_first = out > in ? schedule->rank * in : 0;
    look->all_in = schedule->coll == XCCL_COLL_ALL_REDUCE || schedule->coll == XCCL_COLL_REDUCE ||
                   schedule->coll == XCCL_COLL_REDUCE_SCATTER;
}

/* The cells of a chunk that a lane works on. */
static struct cell *cells_of(const struct look *look, const struct xccl_schedule_lane *lane,
                             struct cell *table, uint32_t chunk, uint32_t *count_out)
{
    *count_out = lane->nparts > 1 ? 1 : look->parts;
    return table + (size_t)chunk * look->parts + (lane->nparts > 1 ? lane->part : 0);
}

static void note_read(const struct look *look, const struct spot *spot)
{
    const struct xccl_event *event = &spot->event;
    int is_sent = !(event->step->op & XCCL_STEP_XCHG)
                      ? !(event->step->op & (XCCL_STEP_RECV | XCCL_STEP_DST))
                      : 1;
    uint32_t count;
    struct cell *cell = cells_of(look, spot->lane, look->in, event->src, &count);

    for (uint32_t i = 0; i < count; i++) {
        cell[i].reads++;
        cell[i].sends += is_sent ? event->nsend : 2;
    }
}

/* Is it a copy between two chunks that are one in place? */
static int is_copy_in_place(const struct look *look, const struct spot *spot)
{
    const struct xccl_event *event = &spot->event;
    const struct xccl_step *step = event->step;
    uint32_t chunk = event->src - look->in_first;

    return (step->op & (XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_ACC)) == XCCL_STEP_SRC &&
           !(step->flags & (XCCL_FLAG_PRE | XCCL_FLAG_POST)) &&
           xccl_step_src_buffer(step) == XCCL_BUFFER_IN && event->src >= look->in_first &&
           chunk < look->same && event->dst == look->out_first + chunk;
}

static void note_store(const struct look *look, const struct spot *spot)
{
    uint32_t count, copies = (uint32_t)is_copy_in_place(look, spot);
    struct cell *cell = cells_of(look, spot->lane, look->out, spot->event.dst, &count);

    for (uint32_t i = 0; i < count; i++) {
        cell[i].lane = cell[i].stores && cell[i].lane != spot->lane_number ? SEVERAL
                                                                           : spot->lane_number;
        cell[i].stores++;
        cell[i].copies += copies;
        cell[i].last = spot->number;
    }
}

static void note(struct look *look, const struct spot *spot, void *arg)
{
    const struct xccl_step *step = spot->event.step;

    (void)arg;
    if ((step->op & XCCL_STEP_SRC) && xccl_step_src_buffer(step) == XCCL_BUFFER_IN)
        note_read(look, spot);
    if ((step->op & XCCL_STEP_DST) && xccl_step_dst_buffer(step) == XCCL_BUFFER_OUT)
        note_store(look, spot);
}

/* The cells of the other buffer that are the same memory in place; NULL: there are none. */
static const struct cell *same_cells(const struct look *look, const struct xccl_schedule_lane *lane,
                                     enum xccl_step_buffer buffer, uint32_t chunk)
{
    uint32_t from = buffer == XCCL_BUFFER_IN ? look->in_first : look->out_first;
    uint32_t to = buffer == XCCL_BUFFER_IN ? look->out_first : look->in_first, count;

    if (chunk < from || chunk - from >= look->same)
        return NULL;
    return cells_of(look, lane, buffer == XCCL_BUFFER_IN ? look->out : look->in, chunk - from + to,
                    &count);
}

/* Does this rank's contribution leave in one message, and come back in one store? */
static int goes_and_comes(const struct look *look, const struct cell *in, const struct cell *out)
{
    return look->all_in && in->reads == 1 && in->sends == 1 && out->stores == 1;
}

static unsigned sends_in(const struct look *look, const struct spot *spot)
{
    uint32_t count;
    const struct cell *in = cells_of(look, spot->lane, look->in, spot->event.src, &count);
    const struct cell *out = same_cells(look, spot->lane, XCCL_BUFFER_IN, spot->event.src);
    unsigned may = SEND_ALWAYS;

    for (uint32_t i = 0; out && i < count; i++)
        if (out[i].stores > out[i].copies)
            may &= goes_and_comes(look, &in[i], &out[i])
                       ? XCCL_DIRECT_SEND | XCCL_DIRECT_SEND_IN_PLACE
                       : XCCL_DIRECT_SEND;
    return may;
}

static unsigned sends_out(const struct look *look, const struct spot *spot, uint32_t chunk)
{
    uint32_t count;
    const struct cell *out = cells_of(look, spot->lane, look->out, chunk, &count);
    int is_exchange = (spot->event.step->op & XCCL_STEP_XCHG) != 0;
    uint32_t end = is_exchange ? spot->first : spot->number + 1; /* stores before it are over */

    for (uint32_t i = 0; i < count; i++)
        if (out[i].stores && (out[i].lane != spot->lane_number || out[i].last >= end))
            return 0;
    return SEND_ALWAYS;
}

static unsigned sends(const struct look *look, const struct spot *spot,
                      enum xccl_step_buffer buffer, uint32_t chunk)
{
    if (buffer == XCCL_BUFFER_IN)
        return sends_in(look, spot);
    return buffer == XCCL_BUFFER_OUT ? sends_out(look, spot, chunk) : 0;
}

/* What is sent lies in the source, or where it has been stored; a step that finishes what it copies
 * sends either. */
static unsigned may_send(const struct look *look, const struct spot *spot)
{
    const struct xccl_event *event = &spot->event;
    const struct xccl_step *step = event->step;
    int stores = (step->op & XCCL_STEP_DST) != 0, combines = step->op & XCCL_STEP_ACC;
    unsigned may = SEND_ALWAYS;

    if (!(step->op & XCCL_STEP_XCHG) && (step->op & XCCL_STEP_RECV))
        return stores && !combines ? sends(look, spot, xccl_step_dst_buffer(step), event->dst) : 0;
    if (!(step->op & XCCL_STEP_XCHG) && stores && (step->flags & XCCL_FLAG_POST))
        may = sends(look, spot, xccl_step_dst_buffer(step), event->dst);
    return may & sends(look, spot, xccl_step_src_buffer(step), event->src);
}

static unsigned may_receive(const struct look *look, const struct spot *spot)
{
    const struct xccl_event *event = &spot->event;
    const struct xccl_step *step = event->step;
    uint32_t count;
    const struct cell *out, *in;

    if (!(step->op & XCCL_STEP_DST) || xccl_step_dst_buffer(step) != XCCL_BUFFER_OUT ||
        (step->op & XCCL_STEP_ACC) || event->nrecv != 1 ||
        ((step->op & XCCL_STEP_SRC) && !(step->op & XCCL_STEP_XCHG)))
        return 0;
    out = cells_of(look, spot->lane, look->out, event->dst, &count);
    in = same_cells(look, spot->lane, XCCL_BUFFER_OUT, event->dst);
    for (uint32_t i = 0; i < count; i++)
        if (out[i].stores != 1)
            return 0;
    for (uint32_t i = 0; in && i < count; i++)
        if (in[i].reads && !goes_and_comes(look, &in[i], &out[i]))
            return XCCL_DIRECT_RECV;
    return XCCL_DIRECT_RECV | XCCL_DIRECT_RECV_IN_PLACE;
}

/* A step may what all of its events may. */
static void judge(struct look *look, const struct spot *spot, void *arg)
{
    uint8_t *direct = arg;
    unsigned may = 0;

    if (spot->event.nsend)
        may |= may_send(look, spot);
    if (spot->event.nrecv)
        may |= may_receive(look, spot);
    direct[spot->event.step - look->schedule->steps] &= (uint8_t)may;
}

static void visit_step(struct look *look, struct spot *spot, const struct xccl_step *step,
                       visit_fn *visit, void *arg)
{
    for (uint32_t occ = 0; occ < step->rep; occ++) {
        spot->first = spot->number;
        for (uint32_t j = 0; j < step->cnt; j++) {
            xccl_event_decode(look->schedule, spot->lane_number, step, occ, j, &spot->event);
            visit(look, spot, arg);
            spot->number++;
        }
    }
}

static void visit_all(struct look *look, visit_fn *visit, void *arg)
{
    const struct xccl_schedule *schedule = look->schedule;

    for (uint32_t i = 0; i < schedule->nlanes; i++) {
        struct spot spot = {.lane = &schedule->lanes[i], .lane_number = i};

        for (uint32_t j = 0; j < spot.lane->nstep; j++)
            visit_step(look, &spot, &schedule->steps[spot.lane->step0 + j], visit, arg);
    }
}

xcclResult_t xccl_direct_mark(const struct xccl_schedule *schedule, uint8_t *direct_out)
{
    struct look look = {.schedule = schedule, .parts = parts_of(schedule)};
    uint32_t nin = schedule->nin, nout = schedule->nout;

    if (!look.parts)
        return xcclSuccess; /* marks are zero */
    set_same(&look);
    look.in = xccl_calloc(((size_t)nin + nout + 1) * look.parts, sizeof *look.in);
    if (!look.in)
        return xcclSystemError;
    look.out = look.in + (size_t)nin * look.parts;
    for (uint32_t i = 0; i < schedule->nsteps; i++)
        direct_out[i] = UINT8_MAX;
    visit_all(&look, note, NULL);
    visit_all(&look, judge, direct_out);
    xccl_free(look.in);
    return xcclSuccess;
}
