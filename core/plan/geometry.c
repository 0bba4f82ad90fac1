/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the chunks of a call lie and how they are cut into slices: equal on all ranks, from the
 * count alone. A vector is cut into chunks of equal size, in whole cache lines, the last ones
 * shorter or empty; blocks of ranks are chunks as they are.
 *
 * In v-collectives tables of the call say where blocks lie. In an all-to-all-v a rank knows no
 * sizes but those of its own row and column: all ranks then use slices as large as slots are, each
 * as many tiles as its own blocks need, and blocks end with a slice that is not full, if need be an
 * empty one; so two ranks that count a block differently always see it. Thread: see plan.h. */
#include "base/error.h"
#include "plan/plan_int.h"

#define CHUNK_ALIGN 64u

/* Is the vector cut, or are chunks the ranks' blocks? */
static int is_vector(enum xccl_coll coll)
{
    return coll == XCCL_COLL_ALL_REDUCE || coll == XCCL_COLL_BROADCAST || coll == XCCL_COLL_REDUCE;
}

static xcclResult_t too_large(const struct xccl_call *call)
{
    return xccl_fail(xcclInvalidArgument, 0, "split the call", "%s: a count of %zu is too large",
                     xccl_coll_name(call->coll),
                     call->sizes ? call->sizes->largest / xccl_type_bytes(call->type)
                                 : call->count);
}

xcclResult_t xccl_plan_bytes(const struct xccl_planner *planner, const struct xccl_call *call,
                             size_t *bytes_out)
{
    size_t bytes, all;

    if (__builtin_mul_overflow(call->count, xccl_type_bytes(call->type), &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)planner->nranks, &all) || all > SIZE_MAX / 4)
        return too_large(call);
    *bytes_out = bytes;
    return xcclSuccess;
}

size_t xccl_plan_chunk_bytes(enum xccl_coll coll, size_t bytes, int nchunks)
{
    size_t chunk;

    if (!is_vector(coll) || nchunks == 1)
        return bytes;
    chunk = (bytes + (size_t)nchunks - 1) / (size_t)nchunks;
    return (chunk + CHUNK_ALIGN - 1) & ~(size_t)(CHUNK_ALIGN - 1);
}

/* Chunks as the schedule counts them must then all be full. */
static int is_uneven(const struct xccl_schedule *schedule, size_t bytes, size_t chunk_bytes)
{
    return (schedule->flags & XCCL_SCHEDULE_EQUAL) && is_vector((enum xccl_coll)schedule->coll) &&
           chunk_bytes * schedule->nchunks != bytes;
}

int xccl_plan_is_uneven(const struct xccl_planner *planner, const struct xccl_call *call,
                        const struct xccl_schedule *schedule)
{
    size_t bytes = 0;

    return !call->sizes && xccl_plan_bytes(planner, call, &bytes) == xcclSuccess &&
           is_uneven(schedule, bytes, xccl_plan_chunk_bytes(call->coll, bytes, schedule->nchunks));
}

size_t xccl_plan_known_bytes(const struct xccl_call *call)
{
    return call->coll == XCCL_COLL_ALL_TO_ALL ? 0 : call->sizes->largest;
}

static uint32_t most_parts(const struct xccl_schedule *schedule)
{
    uint32_t most = 1;

    for (uint32_t i = 0; i < schedule->nlanes; i++)
        if (schedule->lanes[i].nparts > most)
            most = schedule->lanes[i].nparts;
    return most;
}

static void set_layouts(struct xccl_plan *plan, size_t bytes)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;

    for (int buffer = XCCL_BUFFER_IN; buffer <= XCCL_BUFFER_OUT; buffer++) {
        uint32_t chunks = xccl_schedule_chunks(schedule, (enum xccl_step_buffer)buffer);

        plan->layouts[buffer] = (struct xccl_layout){
            .stride = plan->chunk_bytes,
            .total = is_vector((enum xccl_coll)schedule->coll) ? bytes : bytes * chunks,
        };
    }
}

/* Memory beside the user's: scratch chunks, a slice of each at a time, and two slices of room: for
 * contributions that the operator changes, and for values on their way. */
static void set_room(struct xccl_plan *plan)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;

    plan->scratch_bytes = (size_t)schedule->nscratch * schedule->scrbufs * most_parts(schedule) *
                          plan->slice_bytes;
    if (plan->reduction.pre || plan->binding->keeps_values)
        plan->room_bytes = 2 * (size_t)plan->slice_bytes;
}

/* Slices and tiles, of plan->chunk_bytes. */
static xcclResult_t cut_chunks(const struct xccl_call *call, uint32_t tile_bytes,
                               struct xccl_plan *plan)
{
    size_t tiles = 0;

    plan->slice_bytes = plan->binding->slot_bytes & ~(XCCL_TILE_ALIGN - 1);
    if (tile_bytes && tile_bytes < plan->slice_bytes)
        plan->slice_bytes = tile_bytes;
    if (plan->slice_bytes > plan->chunk_bytes &&
        !plan->ends_short) /* scratch memory is no larger than needed */
        plan->slice_bytes = (uint32_t)((plan->chunk_bytes + XCCL_TILE_ALIGN - 1) &
                                       ~(size_t)(XCCL_TILE_ALIGN - 1));
    if (plan->slice_bytes)
        tiles = plan->ends_short ? plan->chunk_bytes / plan->slice_bytes + 1
                                 : (plan->chunk_bytes + plan->slice_bytes - 1) / plan->slice_bytes;
    if (tiles > UINT32_MAX)
        return too_large(call);
    plan->tiles = call->coll == XCCL_COLL_BARRIER ? 1 : (uint32_t)tiles;
    return xcclSuccess;
}

/* Where the last of so many chunks ends. */
static size_t end_of(const size_t *offsets, const size_t *sizes, uint32_t chunks)
{
    size_t end = 0;

    for (uint32_t i = 0; i < chunks; i++)
        if (sizes[i] && offsets[i] + sizes[i] > end)
            end = offsets[i] + sizes[i];
    return end;
}

/* A v-collective. The tables stay as long as the plan. */
static xcclResult_t cut_sized(const struct xccl_call *call, uint32_t tile_bytes,
                              struct xccl_plan *plan)
{
    xcclResult_t rc;

    plan->elem_bytes = (uint32_t)xccl_type_bytes(call->type);
    plan->chunk_bytes = call->sizes->largest;
    plan->ends_short = call->coll == XCCL_COLL_ALL_TO_ALL;
    rc = cut_chunks(call, tile_bytes, plan);
    if (rc)
        return rc;
    for (int buffer = XCCL_BUFFER_IN; buffer <= XCCL_BUFFER_OUT; buffer++) {
        const size_t *offsets = call->sizes->offsets[buffer], *sizes = call->sizes->sizes[buffer];
        uint32_t chunks = xccl_schedule_chunks(plan->binding->schedule,
                                               (enum xccl_step_buffer)buffer);

        plan->layouts[buffer] = (struct xccl_layout){
            .total = end_of(offsets, sizes, chunks), .offsets = offsets, .sizes = sizes};
    }
    set_room(plan);
    return xcclSuccess;
}

xcclResult_t xccl_plan_cut(const struct xccl_planner *planner, const struct xccl_call *call,
                           uint32_t tile_bytes, struct xccl_plan *plan)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;
    size_t bytes = 0;
    xcclResult_t rc;

    if (call->sizes)
        return cut_sized(call, tile_bytes, plan);
    rc = xccl_plan_bytes(planner, call, &bytes);
    if (rc)
        return rc;
    plan->elem_bytes = (uint32_t)xccl_type_bytes(call->type);
    plan->chunk_bytes = xccl_plan_chunk_bytes(call->coll, bytes, schedule->nchunks);
    if (is_uneven(schedule, bytes, plan->chunk_bytes))
        return xccl_fail_quietly(xcclInvalidUsage, 0, "choose another algorithm with XCCL_ALGO",
                                 "%s of %s needs a count that %u divides", schedule->name,
                                 xccl_coll_name(call->coll), schedule->nchunks);
    rc = cut_chunks(call, tile_bytes, plan);
    if (rc)
        return rc;
    set_layouts(plan, bytes);
    set_room(plan);
    return xcclSuccess;
}
