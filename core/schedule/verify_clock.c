/* SPDX-License-Identifier: BSD-3-Clause */
/* Vector clocks: what each lane knows of the moments of all lanes. Messages, slots given back and
 * waits carry them on. Two accesses of a cell by different lanes, one of them a write, must be
 * ordered, which means that the later lane knows of the earlier moment. Made only for schedules
 * where two lanes of a rank meet in a cell: a clock is as large as there are lanes. */
#include "schedule/verify_int.h"

#include <string.h>

#include "base/alloc.h"

struct access {
    uint32_t moment, next; /* next: of the reads of a cell */
    struct xccl_spot spot;
};

struct kept {
    uint32_t *clock;
    uint32_t uses, next; /* next: of the free ones */
};

struct xccl_verify_clocks {
    uint32_t nlanes;
    uint32_t *now; /* nlanes of each lane */
    struct kept *kept; /* number 0 is none */
    uint32_t nkept, kept_room, kept_free;
    uint32_t *signals; /* kept clocks, of each signal and tile */
    struct access *writes; /* of each cell; moment 0: none */
    uint32_t *reads0; /* of each cell: first read; 0: none */
    struct access *reads; /* number 0 is none */
    uint32_t nreads, reads_room, reads_free;
};

xcclResult_t xccl_verify_clocks_create(struct xccl_verify_run *run)
{
    struct xccl_verify_clocks *clocks = xccl_calloc(1, sizeof(*clocks));
    size_t nlanes = run->net->nlanes;

    if (!clocks)
        return xcclSystemError;
    run->clocks = clocks;
    clocks->nlanes = run->net->nlanes;
    clocks->nkept = clocks->nreads = 1;
    clocks->now = xccl_calloc(nlanes * nlanes, sizeof(*clocks->now));
    clocks->writes = xccl_calloc(run->ncells + 1, sizeof(*clocks->writes));
    clocks->reads0 = xccl_calloc(run->ncells + 1, sizeof(*clocks->reads0));
    clocks->signals = xccl_calloc((size_t)run->net->nsignals * run->how.tiles + 1,
                                  sizeof(*clocks->signals));
    if (clocks->now && clocks->writes && clocks->reads0 && clocks->signals)
        return xcclSuccess;
    return xcclSystemError; /* the run's end frees them */
}

void xccl_verify_clocks_destroy(struct xccl_verify_clocks *clocks)
{
    if (!clocks)
        return;
    for (uint32_t i = 1; i < clocks->nkept; i++)
        xccl_free(clocks->kept[i].clock);
    xccl_free(clocks->kept);
    xccl_free(clocks->now);
    xccl_free(clocks->signals);
    xccl_free(clocks->writes);
    xccl_free(clocks->reads0);
    xccl_free(clocks->reads);
    xccl_free(clocks);
}

static uint32_t *now_of(const struct xccl_verify_clocks *clocks, uint32_t lane)
{
    return clocks->now + (size_t)lane * clocks->nlanes;
}

void xccl_verify_clock_tick(struct xccl_verify_run *run, const struct xccl_verify_lane *at)
{
    now_of(run->clocks, at->number)[at->number]++;
}

static void join(uint32_t *into, const uint32_t *from, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        into[i] = into[i] > from[i] ? into[i] : from[i];
}

/* ---- kept clocks ---- */

/* Room for one more in an array of things with 0 as none. */
static xcclResult_t grow(void **array, uint32_t *room, size_t bytes)
{
    uint32_t more = *room ? 2 * *room : 64;
    void *grown = xccl_realloc(*array, more * bytes);

    if (!grown)
        return xcclSystemError;
    *array = grown;
    *room = more;
    return xcclSuccess;
}

static xcclResult_t new_kept(struct xccl_verify_clocks *clocks, uint32_t *kept_out)
{
    uint32_t number = clocks->kept_free;
    void *array = clocks->kept;
    xcclResult_t rc;

    if (number) {
        clocks->kept_free = clocks->kept[number].next;
        *kept_out = number;
        return xcclSuccess;
    }
    if (clocks->nkept >= clocks->kept_room) {
        rc = grow(&array, &clocks->kept_room, sizeof(*clocks->kept));
        if (rc)
            return rc;
        clocks->kept = array;
    }
    number = clocks->nkept;
    clocks->kept[number] = (struct kept){
        .clock = xccl_calloc(clocks->nlanes, sizeof(*clocks->kept[number].clock))};
    if (!clocks->kept[number].clock)
        return xcclSystemError;
    clocks->nkept++;
    *kept_out = number;
    return xcclSuccess;
}

xcclResult_t xccl_verify_clock_keep(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                                    uint32_t *kept_out)
{
    struct xccl_verify_clocks *clocks = run->clocks;
    xcclResult_t rc = new_kept(clocks, kept_out);

    if (rc)
        return rc;
    memcpy(clocks->kept[*kept_out].clock, now_of(clocks, at->number),
           clocks->nlanes * sizeof(*clocks->now));
    clocks->kept[*kept_out].uses = 1;
    return xcclSuccess;
}

void xccl_verify_clock_forget(struct xccl_verify_run *run, uint32_t kept)
{
    struct xccl_verify_clocks *clocks = run->clocks;

    if (!kept || --clocks->kept[kept].uses)
        return;
    clocks->kept[kept].next = clocks->kept_free;
    clocks->kept_free = kept;
}

void xccl_verify_clock_join(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                            uint32_t kept)
{
    if (kept)
        join(now_of(run->clocks, at->number), run->clocks->kept[kept].clock, run->clocks->nlanes);
}

/* ---- what carries them ---- */

/* queue->clocks: of the message in a slot, then of those who freed it. */
static uint32_t *slot_clocks(const struct xccl_verify_queue_state *queue, uint32_t k)
{
    return &queue->clocks[2 * (k % queue->room)];
}

void xccl_verify_clock_send(struct xccl_verify_run *run, struct xccl_verify_queue_state *queue,
                            uint32_t kept)
{
    uint32_t *slot = slot_clocks(queue, queue->sent);

    xccl_verify_clock_forget(run, slot[0]);
    run->clocks->kept[kept].uses++;
    slot[0] = kept;
}

void xccl_verify_clock_slots(struct xccl_verify_run *run, const struct xccl_verify_lane *at)
{
    const uint32_t *ends = at->sends;

    for (uint32_t i = 0; i < at->event.nsend; i++) {
        struct xccl_verify_queue_state *queue = &run->queues[ends[i]];
        uint32_t *slot;

        if (!queue->room)
            continue;
        slot = slot_clocks(queue, queue->sent);
        xccl_verify_clock_join(run, at, slot[1]);
        xccl_verify_clock_forget(run, slot[1]);
        slot[1] = 0;
    }
}

xcclResult_t xccl_verify_clock_consume(struct xccl_verify_run *run,
                                       const struct xccl_verify_lane *at,
                                       struct xccl_verify_queue_state *queue, uint32_t k)
{
    uint32_t *slot = slot_clocks(queue, k);

    if (!slot[1])
        return xccl_verify_clock_keep(run, at, &slot[1]);
    join(run->clocks->kept[slot[1]].clock, now_of(run->clocks, at->number), run->clocks->nlanes);
    return xcclSuccess;
}

xcclResult_t xccl_verify_clock_signal(struct xccl_verify_run *run,
                                      const struct xccl_verify_lane *at, uint32_t signal)
{
    return xccl_verify_clock_keep(
        run, at, &run->clocks->signals[(size_t)signal * run->how.tiles + at->tile]);
}

void xccl_verify_clock_wait(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                            uint32_t signal, uint32_t tile)
{
    xccl_verify_clock_join(run, at, run->clocks->signals[(size_t)signal * run->how.tiles + tile]);
}

/* ---- accesses ---- */

static int is_ordered(const struct xccl_verify_clocks *clocks, const struct xccl_verify_lane *at,
                      const struct access *before)
{
    return before->spot.lane == at->number ||
           now_of(clocks, at->number)[before->spot.lane] >= before->moment;
}

static void refuse_race(struct xccl_verify_run *run, const struct xccl_verify_lane *at, int write,
                        const struct access *before, int before_write)
{
    xccl_verify_refuse(run, at, XCCL_VERDICT_RACE,
                       "%s memory that is also %s, in an undefined order,",
                       write ? "writes" : "reads", before_write ? "written" : "read");
    xccl_verify_refuse_other(run, &before->spot, " by");
}

/* The reads of a cell: the last one of each lane since it was written. */
static xcclResult_t add_read(struct xccl_verify_clocks *clocks, size_t cell,
                             const struct access *access)
{
    uint32_t *first = &clocks->reads0[cell], number;
    void *array = clocks->reads;
    xcclResult_t rc;

    for (number = *first; number; number = clocks->reads[number].next) {
        if (clocks->reads[number].spot.lane != access->spot.lane)
            continue;
        clocks->reads[number].moment = access->moment;
        clocks->reads[number].spot = access->spot;
        return xcclSuccess;
    }
    number = clocks->reads_free;
    if (number) {
        clocks->reads_free = clocks->reads[number].next;
    } else {
        if (clocks->nreads >= clocks->reads_room) {
            rc = grow(&array, &clocks->reads_room, sizeof(*clocks->reads));
            if (rc)
                return rc;
            clocks->reads = array;
        }
        number = clocks->nreads++;
    }
    clocks->reads[number] = *access;
    clocks->reads[number].next = *first;
    *first = number;
    return xcclSuccess;
}

/* Refuses a write beside one of them; then they are done with. */
static void end_reads(struct xccl_verify_run *run, const struct xccl_verify_lane *at, size_t cell)
{
    struct xccl_verify_clocks *clocks = run->clocks;
    uint32_t number = clocks->reads0[cell], next;

    for (; number; number = next) {
        if (!is_ordered(clocks, at, &clocks->reads[number]))
            refuse_race(run, at, 1, &clocks->reads[number], 0);
        next = clocks->reads[number].next;
        clocks->reads[number].next = clocks->reads_free;
        clocks->reads_free = number;
    }
    clocks->reads0[cell] = 0;
}

xcclResult_t xccl_verify_clock_access(struct xccl_verify_run *run,
                                      const struct xccl_verify_lane *at, size_t cell, int write)
{
    struct xccl_verify_clocks *clocks = run->clocks;
    struct access access = {.moment = now_of(clocks, at->number)[at->number],
                            .spot = xccl_verify_spot(at)};
    struct access *before = &clocks->writes[cell];

    if (before->moment && !is_ordered(clocks, at, before))
        refuse_race(run, at, write, before, 1);
    if (!write)
        return add_read(clocks, cell, &access);
    end_reads(run, at, cell);
    *before = access;
    return xcclSuccess;
}

xcclResult_t xccl_verify_clock_direct(struct xccl_verify_run *run,
                                      const struct xccl_verify_lane *at)
{
    for (uint32_t i = 0; i < at->event.nrecv; i++) {
        uint32_t end = at->recvs[i];

        xccl_verify_clock_join(
            run, at,
            *slot_clocks(&run->queues[run->net->readers[end].queue], run->readers[end].consumed));
    }
    if (at->dst.cell == XCCL_CELL_NONE)
        return xcclSuccess;
    return xccl_verify_clock_access(run, at, at->dst.cell, 1);
}
