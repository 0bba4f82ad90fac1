/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules from anybody: the first byte says text (even) or JSON (odd), the rest is read. What is
 * accepted passes the check, can be decoded, and comes back from its own text and its own JSON
 * field by field.
 * Thread: one. */
#include "schedule/text.h"

#include <stdlib.h>
#include <string.h>

#include "schedule/decode.h"

typedef int print_fn(FILE *file, struct xccl_schedule *const *schedules, int nranks);
typedef xcclResult_t read_fn(const char *text, size_t bytes, const char *where,
                             struct xccl_schedule_set *set_out);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_table(const void *a, const void *b, size_t entries, size_t entry_bytes)
{
    if (entries && memcmp(a, b, entries * entry_bytes) != 0)
        abort();
}

static void check_equal(const struct xccl_schedule *a, const struct xccl_schedule *b)
{
    if (strcmp(a->name, b->name) != 0 || a->coll != b->coll || a->class != b->class ||
        a->flags != b->flags || a->nranks != b->nranks || a->rank != b->rank ||
        a->root != b->root || a->nchunks != b->nchunks || a->nlanes != b->nlanes ||
        a->nscratch != b->nscratch || a->scrbufs != b->scrbufs || a->minslots != b->minslots ||
        a->nsteps != b->nsteps || a->nconns != b->nconns || a->nwaits != b->nwaits ||
        a->nlist != b->nlist || a->nin != b->nin || a->nout != b->nout)
        abort();
    check_table(a->steps, b->steps, a->nsteps, sizeof(*a->steps));
    check_table(a->conns, b->conns, a->nconns, sizeof(*a->conns));
    check_table(a->lanes, b->lanes, a->nlanes, sizeof(*a->lanes));
    check_table(a->waits, b->waits, a->nwaits, sizeof(*a->waits));
    check_table(a->list, b->list, a->nlist, sizeof(*a->list));
}

/* The last of the step's chunks; connections must lie in the table. */
static void check_decodes(const struct xccl_schedule *schedule, uint32_t lane,
                          const struct xccl_step *step)
{
    struct xccl_event event;

    xccl_event_decode(schedule, lane, step, step->rep - 1u, step->cnt - 1u, &event);
    if (event.rconn + event.nrecv > schedule->nconns ||
        event.sconn + event.nsend > schedule->nconns)
        abort();
}

static void check_round_trip(const struct xccl_schedule_set *set, print_fn *print, read_fn *read)
{
    struct xccl_schedule_set again;
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    if (!file)
        return;
    if (print(file, set->schedules, set->nranks) || fclose(file))
        abort();
    if (read(text, bytes, "again", &again) != xcclSuccess || again.nranks != set->nranks)
        abort();
    for (int r = 0; r < set->nranks; r++)
        check_equal(again.schedules[r], set->schedules[r]);
    xccl_schedule_set_fini(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct xccl_schedule_set set;
    read_fn *read = size && *data & 1 ? xccl_schedule_read_json : xccl_schedule_read;

    if (size == 0 || read((const char *)data + 1, size - 1, "fuzz", &set) != xcclSuccess)
        return 0;
    for (int r = 0; r < set.nranks; r++) {
        const struct xccl_schedule *schedule = set.schedules[r];

        if (xccl_schedule_check(schedule) != xcclSuccess || schedule->rank != r)
            abort();
        for (uint32_t i = 0; i < schedule->nlanes; i++)
            for (uint32_t j = 0; j < schedule->lanes[i].nstep; j++)
                check_decodes(schedule, i, &schedule->steps[schedule->lanes[i].step0 + j]);
    }
    check_round_trip(&set, xccl_schedule_print, xccl_schedule_read);
    check_round_trip(&set, xccl_schedule_print_json, xccl_schedule_read_json);
    xccl_schedule_set_fini(&set);
    return 0;
}
