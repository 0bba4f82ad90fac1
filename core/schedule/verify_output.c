/* SPDX-License-Identifier: BSD-3-Clause */
/* What must lie in the outputs when all lanes have ended, and how alike the sums are: class 2, the
 * same order of summing on all ranks; class 3, the same order for all chunks too. */
#include "schedule/verify_int.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"

static int refused(const struct xccl_verify_run *run)
{
    return run->verdict->kind != XCCL_VERDICT_PROVEN;
}

/* A chunk of an output. */
struct output {
    struct xccl_verify_lane at; /* a lane only for its rank, part and tile */
    uint32_t chunk, class;
    struct xccl_value value;
};

static void refuse(struct xccl_verify_run *run, const struct output *output,
                   enum xccl_verdict_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

static void refuse(struct xccl_verify_run *run, const struct output *output,
                   enum xccl_verdict_kind kind, const char *fmt, ...)
{
    char what[128];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    xccl_verdict_refuse(run->verdict, kind, (int)output->at.rank,
                        "rank %u ends with an output that %s: chunk %u, tile %u", output->at.rank,
                        what, output->chunk, output->at.tile);
    run->verdict->place.chunk = (int)output->chunk;
    run->verdict->place.tile = (int)output->at.tile;
}

/* Whose contribution an output is where nothing is reduced. */
static uint32_t owner_of(const struct xccl_verify_run *run, const struct output *output)
{
    const struct xccl_schedule *schedule = run->net->schedules[output->at.rank];

    switch (run->net->coll) {
    case XCCL_COLL_BROADCAST:
    case XCCL_COLL_SCATTER:
        return schedule->root;
    default:
        return output->chunk;
    }
}

static void check_reduced(struct xccl_verify_run *run, const struct output *output)
{
    const struct xccl_rank_sets *sets = run->sets;
    uint32_t lacks = 0;

    if (sets->sizes[output->value.set] < sets->nranks) {
        while (xccl_rank_sets_has(sets, output->value.set, lacks))
            lacks++;
        refuse(run, output, XCCL_VERDICT_RESULT, "lacks the contribution of rank %u", lacks);
    } else if (!(output->value.flags & XCCL_VALUE_POSTED)) {
        refuse(run, output, XCCL_VERDICT_PRE_POST, "had no POST");
    }
}

static void check_output(struct xccl_verify_run *run, struct output *output)
{
    size_t cell = xccl_verify_cell(run, &output->at, XCCL_BUFFER_OUT, output->chunk);

    output->value = run->cells[cell];
    if (!output->value.set)
        output->value = xccl_verify_initial(run, &output->at, cell, 0);
    if (!output->value.set)
        refuse(run, output, XCCL_VERDICT_RESULT, "no step has written");
    else if (output->value.origin != output->class)
        refuse(run, output, XCCL_VERDICT_RESULT, "contains the data of chunk %u",
               output->value.origin / run->net->parts);
    else if (output->value.tile != output->at.tile)
        refuse(run, output, XCCL_VERDICT_RESULT, "contains the data of tile %u",
               output->value.tile);
    else if (output->value.flags & XCCL_VALUE_RAW)
        refuse(run, output, XCCL_VERDICT_PRE_POST, "is a contribution without PRE");
    else if (run->net->reduces)
        check_reduced(run, output);
    else if (output->value.set != owner_of(run, output) + 1)
        refuse(run, output, XCCL_VERDICT_RESULT, "contains the data of rank %u",
               output->value.set - 1);
}

static void note_hash(struct xccl_verify_run *run, const struct output *output)
{
    uint64_t where = (uint64_t)output->at.rank << 32 | output->chunk * run->net->parts |
                     output->at.part;
    uint64_t what = run->sets->hashes[output->value.set] + output->value.order;

    run->verdict->hash += xccl_mix64(xccl_mix64(where) ^ xccl_mix64(what));
}

/* orders: of each class, as the first output had it. */
static void note_order(struct xccl_verify_run *run, const struct output *output, uint64_t *orders)
{
    uint64_t order = output->value.order;

    if (!orders[output->class])
        orders[output->class] = order;
    if (orders[output->class] != order)
        run->verdict->class = 1;
}

/* All outputs of the rank, of one part and tile. */
static void check_part(struct xccl_verify_run *run, struct output *output, uint64_t *orders)
{
    const struct xccl_verify_net *net = run->net;
    uint32_t chunks = run->memory[output->at.rank].nout / net->parts;

    xccl_verify_lay_out(run, &output->at);
    for (output->chunk = 0; output->chunk < chunks && !refused(run); output->chunk++) {
        output->class = xccl_verify_class(&output->at, XCCL_BUFFER_OUT, output->chunk);
        if (run->how.sizes && output->at.tile >= run->how.sizes[output->class / net->parts])
            continue;
        check_output(run, output);
        if (output->at.tile == 0)
            note_hash(run, output);
        if (net->reduces)
            note_order(run, output, orders);
    }
}

static void check_barrier(struct xccl_verify_run *run)
{
    const struct xccl_verify_net *net = run->net;

    for (uint32_t r = 0; r < net->nranks && !refused(run); r++) {
        uint32_t unknown = 0, lane, first = net->ranks[r].lane0;

        for (; unknown < net->nranks && !refused(run); unknown++) {
            for (lane = first; lane < first + net->ranks[r].nlanes; lane++)
                if (xccl_rank_sets_has(run->sets, run->lanes[lane].known, unknown))
                    break;
            if (unknown != r && lane == first + net->ranks[r].nlanes)
                xccl_verdict_refuse(run->verdict, XCCL_VERDICT_RESULT, (int)r,
                                    "rank %u can leave the barrier before rank %u has entered it",
                                    r, unknown);
        }
    }
}

xcclResult_t xccl_verify_outputs(struct xccl_verify_run *run)
{
    const struct xccl_verify_net *net = run->net;
    size_t nclasses = (size_t)net->schedules[0]->nchunks * net->parts;
    uint64_t *orders;

    run->verdict->class = 3;
    run->verdict->hash = 0;
    if (net->coll == XCCL_COLL_BARRIER) {
        check_barrier(run);
        return xcclSuccess;
    }
    orders = xccl_calloc(nclasses, sizeof(*orders));
    if (!orders)
        return xcclSystemError;
    for (uint32_t i = 0; i < net->nranks * net->parts && !refused(run); i++) {
        struct output output = {.at = {.rank = i / net->parts, .part = i % net->parts}};

        for (; output.at.tile < run->how.tiles && !refused(run); output.at.tile++)
            check_part(run, &output, orders);
    }
    for (size_t i = 0, first = 0; i < nclasses && run->verdict->class == 3; i++) {
        first = orders[first] ? first : i;
        if (orders[i] && orders[i] != orders[first])
            run->verdict->class = 2;
    }
    xccl_free(orders);
    return xcclSuccess;
}
