/* SPDX-License-Identifier: BSD-3-Clause */
/* Where chunks lie. A cell is one part of one chunk of OUT in one tile, or of one buffer of
 * scratch; IN has no cells, since nobody may write there, but for what lies in OUT when the call is
 * in place. A size class is a number that says how large a chunk is; chunks of equal class are of
 * equal size on all ranks, and the class of a chunk of IN tells which output it belongs to. */
#include "schedule/verify_int.h"

#include "base/alloc.h"

enum layout { BY_INDEX, OUT_BY_OWNER, IN_BY_OWNER, BY_PAIR, NO_CHUNKS };

static const uint8_t layouts[XCCL_COLL_COUNT] = {
    [XCCL_COLL_ALL_REDUCE] = BY_INDEX,
    [XCCL_COLL_BROADCAST] = BY_INDEX,
    [XCCL_COLL_REDUCE] = BY_INDEX,
    [XCCL_COLL_ALL_GATHER] = OUT_BY_OWNER,
    [XCCL_COLL_REDUCE_SCATTER] = IN_BY_OWNER,
    [XCCL_COLL_ALL_TO_ALL] = BY_PAIR,
    [XCCL_COLL_GATHER] = OUT_BY_OWNER,
    [XCCL_COLL_SCATTER] = IN_BY_OWNER,
    [XCCL_COLL_BARRIER] = NO_CHUNKS,
};

int xccl_verify_has_aliases(enum xccl_coll coll)
{
    return layouts[coll] != BY_PAIR && layouts[coll] != NO_CHUNKS;
}

static void set_classes(struct xccl_verify_lane *at, enum xccl_step_buffer buffer, uint32_t first,
                        uint32_t step)
{
    at->class0[buffer] = first;
    at->class_step[buffer] = step;
}

void xccl_verify_lay_out(const struct xccl_verify_run *run, struct xccl_verify_lane *at)
{
    const struct xccl_verify_memory *memory = &run->memory[at->rank];
    uint32_t parts = run->net->parts, own = at->rank * parts + at->part;
    uint32_t row = run->net->nranks * parts;
    enum layout layout = layouts[run->net->coll];

    set_classes(at, XCCL_BUFFER_IN, at->part, parts);
    set_classes(at, XCCL_BUFFER_OUT, at->part, parts);
    set_classes(at, XCCL_BUFFER_SCRATCH, XCCL_CLASS_ANY, 0);
    set_classes(at, XCCL_BUFFER_ZERO, XCCL_CLASS_NONE, 0);
    if (layout == OUT_BY_OWNER)
        set_classes(at, XCCL_BUFFER_IN, own, 0);
    if (layout == IN_BY_OWNER)
        set_classes(at, XCCL_BUFFER_OUT, own, 0);
    if (layout == BY_PAIR) {
        set_classes(at, XCCL_BUFFER_IN, at->rank * row + at->part, parts);
        set_classes(at, XCCL_BUFFER_OUT, own, row);
    }
    for (int buffer = 0; layout == NO_CHUNKS && buffer < 4; buffer++)
        set_classes(at, (enum xccl_step_buffer)buffer, XCCL_CLASS_NONE, 0);
    at->alias_first = memory->alias_in;
    at->naliases = memory->naliases;
    xccl_verify_lay_out_tile(run, at);
}

void xccl_verify_lay_out_tile(const struct xccl_verify_run *run, struct xccl_verify_lane *at)
{
    const struct xccl_verify_memory *memory = &run->memory[at->rank];

    at->cell0[XCCL_BUFFER_OUT] = memory->cell0 + (size_t)at->tile * memory->nout + at->part;
    at->cell0[XCCL_BUFFER_IN] = at->cell0[XCCL_BUFFER_OUT] +
                                (size_t)memory->alias_out * run->net->parts -
                                (size_t)memory->alias_in * run->net->parts;
    at->cell0[XCCL_BUFFER_SCRATCH] = memory->cell0 + (size_t)memory->nout * run->how.tiles +
                                     (size_t)(at->tile % memory->scrbufs) * memory->nscratch +
                                     at->part;
}

struct xccl_value xccl_verify_initial(const struct xccl_verify_run *run,
                                      const struct xccl_verify_lane *at, size_t cell,
                                      uint32_t chunk)
{
    const struct xccl_verify_memory *memory = &run->memory[at->rank];
    size_t in_out = cell - memory->cell0;

    if (cell != XCCL_CELL_NONE) {
        if (in_out >= (size_t)memory->nout * run->how.tiles)
            return (struct xccl_value){0};
        chunk = (uint32_t)(in_out % memory->nout) / run->net->parts;
        if (chunk - memory->alias_out >= memory->naliases)
            return (struct xccl_value){0};
        chunk += memory->alias_in - memory->alias_out;
    }
    return (struct xccl_value){
        .order = xccl_mix64(at->rank + 1),
        .set = at->rank + 1,
        .origin = xccl_verify_class(at, XCCL_BUFFER_IN, chunk),
        .tile = (uint16_t)at->tile,
        .flags = run->net->reduces ? XCCL_VALUE_RAW : 0,
    };
}

/* What the collective's in-place form makes one memory. */
static void set_aliases(const struct xccl_verify_run *run, uint32_t rank)
{
    const struct xccl_schedule *schedule = run->net->schedules[rank];
    uint32_t in = xccl_schedule_chunks(schedule, XCCL_BUFFER_IN);
    uint32_t out = xccl_schedule_chunks(schedule, XCCL_BUFFER_OUT);
    struct xccl_verify_memory *memory = &run->memory[rank];

    if (!run->how.in_place || !in || !out || !xccl_verify_has_aliases(run->net->coll))
        return;
    memory->naliases = in < out ? in : out;
    memory->alias_in = in > out ? rank : 0;
    memory->alias_out = out > in ? rank : 0;
}

xcclResult_t xccl_verify_memory_init(struct xccl_verify_run *run)
{
    uint32_t parts = run->net->parts;

    run->memory = xccl_calloc(run->net->nranks, sizeof(*run->memory));
    if (!run->memory)
        return xcclSystemError;
    for (uint32_t r = 0; r < run->net->nranks; r++) {
        const struct xccl_schedule *schedule = run->net->schedules[r];
        struct xccl_verify_memory *memory = &run->memory[r];

        *memory = (struct xccl_verify_memory){
            .cell0 = run->ncells,
            .nout = xccl_schedule_chunks(schedule, XCCL_BUFFER_OUT) * parts,
            .nscratch = schedule->nscratch * parts,
            .scrbufs = schedule->scrbufs,
        };
        set_aliases(run, r);
        run->ncells += (size_t)memory->nout * run->how.tiles +
                       (size_t)memory->nscratch * memory->scrbufs;
    }
    run->cells = xccl_calloc(run->ncells + 1, sizeof(*run->cells));
    if (run->cells && run->net->many_lanes)
        run->touched = xccl_calloc(run->ncells + 1, sizeof(*run->touched));
    if (run->cells && run->how.direct)
        run->marks0 = xccl_calloc(run->ncells + 1, sizeof(*run->marks0));
    if (!run->cells || (run->net->many_lanes && !run->touched) || (run->how.direct && !run->marks0))
        return xcclSystemError;
    return xcclSuccess;
}

/* ---- exchanges ---- */

/* One occurrence. latest[cell]: number of the last chunk that is sent from there, plus 1. */
static int exchange_ok(struct xccl_verify_run *run, struct xccl_verify_lane *at, uint32_t *latest)
{
    const struct xccl_step *step = at->step;
    enum xccl_step_buffer src = xccl_step_src_buffer(step), dst = xccl_step_dst_buffer(step);
    size_t cell0 = run->memory[at->rank].cell0, cell;
    struct xccl_event event;

    enum { NOTE, CHECK, CLEAR, PASSES };
    for (int pass = NOTE; pass < PASSES; pass++) {
        for (at->chunk = 0; at->chunk < step->cnt; at->chunk++) {
            xccl_event_decode(at->schedule, at->lane, step, at->occ, at->chunk, &event);
            cell = pass == CHECK ? xccl_verify_cell(run, at, dst, event.dst)
                                 : xccl_verify_cell(run, at, src, event.src);
            if (cell == XCCL_CELL_NONE)
                continue;
            if (pass == CHECK && latest[cell - cell0] > at->chunk + 1)
                goto refuse;
            if (pass != CHECK)
                latest[cell - cell0] = pass == NOTE ? at->chunk + 1 : 0;
        }
    }
    return 1;
refuse:
    xccl_verify_refuse(run, at, XCCL_VERDICT_EXCHANGE,
                       "receives its chunk number %u into chunk %u of %s, which it also sends as "
                       "number %u: that send may run before this receive",
                       at->chunk, event.dst, xccl_verify_buffer_words(dst),
                       latest[cell - cell0] - 1);
    return 0;
}

/* All occurrences of a step. */
static int exchanges_ok(struct xccl_verify_run *run, struct xccl_verify_lane *at, uint32_t *latest)
{
    for (at->occ = 0; at->occ < at->step->rep; at->occ++)
        if (!exchange_ok(run, at, latest))
            return 0;
    return 1;
}

xcclResult_t xccl_verify_exchanges(struct xccl_verify_run *run)
{
    uint32_t *latest = NULL;
    size_t most = 0;

    for (uint32_t r = 0; r < run->net->nranks; r++) {
        size_t next = r + 1 < run->net->nranks ? run->memory[r + 1].cell0 : run->ncells;

        most = next - run->memory[r].cell0 > most ? next - run->memory[r].cell0 : most;
    }
    for (uint32_t i = 0; i < run->net->nlanes; i++) {
        struct xccl_verify_lane at = run->lanes[i];

        for (at.istep = 0; at.istep < at.schedule->lanes[at.lane].nstep; at.istep++) {
            at.step = &at.schedule->steps[at.schedule->lanes[at.lane].step0 + at.istep];
            if (!(at.step->op & XCCL_STEP_XCHG) || at.step->cnt == 1)
                continue;
            if (!latest)
                latest = xccl_calloc(most + 1, sizeof(*latest));
            if (!latest)
                return xcclSystemError;
            if (!exchanges_ok(run, &at, latest))
                goto refused;
        }
    }
refused:
    xccl_free(latest);
    return xcclSuccess;
}
