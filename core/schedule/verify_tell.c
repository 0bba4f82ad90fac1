/* SPDX-License-Identifier: BSD-3-Clause */
/* Refusals in words. The first one counts, since all later ones may follow from it; of a deadlock,
 * the shortest circle of lanes that wait for each other, or one that waits for a lane that has
 * ended. */
#include "schedule/verify_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

#define CIRCLE_TOLD_MAX 6 /* lanes of it */

const char *xccl_verify_buffer_words(enum xccl_step_buffer buffer)
{
    static const char *const words[] = {"the input", "the output", "scratch", "nothing"};

    return words[buffer & 3];
}

const char *xccl_verify_op_words(const struct xccl_step *step)
{
    switch (step->op) {
    case XCCL_STEP_SRC | XCCL_STEP_DST:
        return "copy";
    case XCCL_STEP_SRC | XCCL_STEP_SEND:
        return "send";
    case XCCL_STEP_SRC | XCCL_STEP_DST | XCCL_STEP_SEND:
        return "copy+send";
    case XCCL_STEP_RECV | XCCL_STEP_DST:
        return "recv";
    case XCCL_STEP_RECV | XCCL_STEP_SEND:
        return "recv+send";
    case XCCL_STEP_RECV | XCCL_STEP_DST | XCCL_STEP_SEND:
        return "recv+copy+send";
    case XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_DST:
        return "recv+reduce";
    case XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_SEND:
        return "recv+reduce+send";
    case XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_DST | XCCL_STEP_SEND:
        return "recv+reduce+copy+send";
    case XCCL_STEP_SRC | XCCL_STEP_DST | XCCL_STEP_ACC:
        return "reduce";
    default:
        return step->op & XCCL_STEP_ACC ? "exchange+reduce" : "exchange";
    }
}

/* Adds to the text; what is too long for it is cut. */
static void append(struct xccl_verdict *verdict, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), cold));

static void append_args(struct xccl_verdict *verdict, const char *fmt, va_list args)
    __attribute__((format(printf, 2, 0), cold));

static void append_args(struct xccl_verdict *verdict, const char *fmt, va_list args)
{
    size_t used = strlen(verdict->text);

    (void)vsnprintf(verdict->text + used, sizeof(verdict->text) - used, fmt, args);
}

static void append(struct xccl_verdict *verdict, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    append_args(verdict, fmt, args);
    va_end(args);
}

void xccl_verdict_refuse(struct xccl_verdict *verdict, enum xccl_verdict_kind kind, int rank,
                         const char *fmt, ...)
{
    const struct xccl_verdict_place none = {-1, -1, -1, -1, -1, -1};
    va_list args;

    if (verdict->kind != XCCL_VERDICT_PROVEN)
        return;
    verdict->kind = kind;
    verdict->place = verdict->other = none;
    verdict->place.rank = rank;
    verdict->text[0] = '\0';
    va_start(args, fmt);
    append_args(verdict, fmt, args);
    va_end(args);
}

/* ---- places ---- */

static struct xccl_verdict_place place_of(const struct xccl_verify_run *run,
                                          const struct xccl_spot *spot)
{
    const struct xccl_verify_lane *lane = &run->lanes[spot->lane];

    return (struct xccl_verdict_place){.rank = (int)lane->rank,
                                       .lane = (int)lane->lane,
                                       .step = spot->step,
                                       .occ = spot->occ,
                                       .chunk = spot->chunk,
                                       .tile = spot->tile};
}

static void append_place(struct xccl_verify_run *run, const struct xccl_spot *spot)
{
    const struct xccl_verify_lane *at = &run->lanes[spot->lane];
    const struct xccl_schedule *schedule = at->schedule;
    const struct xccl_step *step = &schedule->steps[schedule->lanes[at->lane].step0 + spot->step];
    struct xccl_event event;

    append(run->verdict, "rank %u lane %u step %u (%s)", at->rank, at->lane, spot->step,
           xccl_verify_op_words(step));
    if (step->rep > 1)
        append(run->verdict, " occurrence %u", spot->occ);
    xccl_event_decode(schedule, at->lane, step, spot->occ, spot->chunk, &event);
    if (step->op & (XCCL_STEP_SRC | XCCL_STEP_DST))
        append(run->verdict, " chunk %u", step->op & XCCL_STEP_SRC ? event.src : event.dst);
    append(run->verdict, " tile %u", spot->tile);
}

void xccl_verify_refuse(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                        enum xccl_verdict_kind kind, const char *fmt, ...)
{
    struct xccl_spot spot = xccl_verify_spot(at);
    va_list args;

    if (run->verdict->kind != XCCL_VERDICT_PROVEN)
        return;
    xccl_verdict_refuse(run->verdict, kind, (int)at->rank, "%s", "");
    run->verdict->place = place_of(run, &spot);
    append_place(run, &spot);
    append(run->verdict, " ");
    va_start(args, fmt);
    append_args(run->verdict, fmt, args);
    va_end(args);
}

void xccl_verify_refuse_other(struct xccl_verify_run *run, const struct xccl_spot *spot,
                              const char *words)
{
    if (run->verdict->other.rank >= 0)
        return;
    run->verdict->other = place_of(run, spot);
    append(run->verdict, "%s ", words);
    append_place(run, spot);
}

/* ---- deadlocks ---- */

/* The lane that a blocked lane waits for. */
static uint32_t awaited(const struct xccl_verify_run *run, const struct xccl_verify_lane *at)
{
    const struct xccl_verify_net *net = run->net;
    const struct xccl_verify_queue *queue;
    uint32_t i = 0;

    switch (at->block) {
    case XCCL_BLOCK_MESSAGE:
        return net->queues[net->readers[at->block_on].queue].writer;
    case XCCL_BLOCK_SLOT:
        queue = &net->queues[at->block_on];
        while (run->readers[queue->reader0 + i].consumed != run->queues[at->block_on].freed)
            i++;
        return net->readers[queue->reader0 + i].lane;
    case XCCL_BLOCK_MARK:
        queue = &net->queues[run->marks[at->block_on].queue];
        while (run->readers[queue->reader0 + i].posted > run->marks[at->block_on].message)
            i++;
        return net->readers[queue->reader0 + i].lane;
    default:
        return net->ranks[at->rank].lane0 +
               at->schedule->waits[at->block_on - net->ranks[at->rank].wait0].lane;
    }
}

static void append_wait(struct xccl_verify_run *run, const struct xccl_verify_lane *at)
{
    const struct xccl_verify_lane *other = &run->lanes[awaited(run, at)];
    const char *const words[] = {
        [XCCL_BLOCK_NONE] = "waits for",
        [XCCL_BLOCK_MESSAGE] = "waits for a message from",
        [XCCL_BLOCK_SLOT] = "waits for a free slot to",
        [XCCL_BLOCK_SIGNAL] = "waits for a signal from",
        [XCCL_BLOCK_MARK] = "may not write its message directly until the receive is posted by"};

    append(run->verdict, "%s rank %u lane %u", words[at->block], other->rank, other->lane);
}

/* A lane on the shortest circle, or the one that waits for a lane that has ended. */
static uint32_t find_circle(const struct xccl_verify_run *run, uint32_t *numbers)
{
    uint32_t best = UINT32_MAX, shortest = UINT32_MAX, walk = 0;

    for (uint32_t i = 0; i < run->net->nlanes; i++) {
        uint32_t lane = i, length;

        if (run->lanes[i].ended || numbers[i])
            continue;
        walk++;
        /* To the end of the way: a lane that was met, or the last before one that has ended. */
        while (!numbers[lane]) {
            uint32_t next = awaited(run, &run->lanes[lane]);

            numbers[lane] = walk;
            if (run->lanes[next].ended)
                return lane;
            lane = next;
        }
        if (numbers[lane] != walk)
            continue;
        length = 1;
        for (uint32_t at = awaited(run, &run->lanes[lane]); at != lane; length++)
            at = awaited(run, &run->lanes[at]);
        if (length < shortest) {
            shortest = length;
            best = lane;
        }
    }
    return best;
}

void xccl_verify_tell_deadlock(struct xccl_verify_run *run)
{
    uint32_t *numbers = xccl_calloc(run->net->nlanes, sizeof(*numbers));
    uint32_t first, lane, told = 0;
    struct xccl_spot spot;

    /* Without memory for the search any lane that stands still is told. */
    for (first = 0; run->lanes[first].ended;)
        first++;
    if (numbers)
        first = find_circle(run, numbers);
    xccl_free(numbers);
    xccl_verify_refuse(run, &run->lanes[first], XCCL_VERDICT_DEADLOCK, "%s", "");
    append_wait(run, &run->lanes[first]);
    lane = awaited(run, &run->lanes[first]);
    spot = xccl_verify_spot(&run->lanes[lane]);
    if (!run->lanes[lane].ended)
        run->verdict->other = place_of(run, &spot);
    while (lane != first && !run->lanes[lane].ended && ++told < CIRCLE_TOLD_MAX) {
        spot = xccl_verify_spot(&run->lanes[lane]);
        append(run->verdict, ", which at step %u (%s) tile %u ", spot.step,
               xccl_verify_op_words(run->lanes[lane].step), spot.tile);
        append_wait(run, &run->lanes[lane]);
        lane = awaited(run, &run->lanes[lane]);
    }
    if (run->lanes[lane].ended)
        append(run->verdict, ", which has ended");
    else if (lane != first)
        append(run->verdict, ", and so on");
    append(run->verdict, "; slots: %u", run->how.nslots);
}
