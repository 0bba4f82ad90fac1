/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws communicators and groups of calls. Nothing here knows who runs them.
 *
 * Thread: any. */
#include "perf/perf_draw.h"

#include <string.h>

#include "base/alloc.h"

#define KEYS         5 /* few, so that equal ones occur */
#define SMALL_COUNT  300
#define COUNT_KINDS  6
#define SHIFT_MAX    4
#define MESSAGE_OF_9 4 /* so many of nine calls are messages */
#define ALONE_OF_8   1 /* groups of eight that are plain calls */
#define ALONE_CALLS  3

static const struct xccl_perf_coll message = {
    .name = "message", .which = XCCL_PERF_MESSAGE, .apart = 1, .send_at_root = 1};

/* splitmix64 */
static uint64_t next(uint64_t *state)
{
    uint64_t bits = *state += 0x9e3779b97f4a7c15u;

    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    return bits ^ bits >> 31;
}

/* From 0 to count - 1; 0 for a count of 0. */
static int below(uint64_t *state, int count)
{
    return count > 0 ? (int)(next(state) % (uint64_t)count) : 0;
}

static uint64_t state_of(const struct xccl_draw *draw, int64_t number, int salt)
{
    uint64_t state = draw->seed ^ ((uint64_t)number + 1) * 0xd1342543de82ef95u;

    return next(&state) ^ (uint64_t)(salt + 1) * 0x2545f4914f6cdd1du;
}

/* ---- communicators ---- */

static int comm_init(struct xccl_draw_comm *comm, int parent, int split, int room)
{
    comm->parent = parent;
    comm->split = split;
    comm->count = 0;
    comm->ranks = xccl_calloc((size_t)room, sizeof(*comm->ranks));
    return comm->ranks != NULL;
}

/* The parent's ranks of a color, by key and then by their order there. */
static int add_color(struct xccl_draw *draw, const struct xccl_draw_split *split, int color)
{
    const struct xccl_draw_comm *parent = &draw->comms[split->parent];
    struct xccl_draw_comm *comm = &draw->comms[draw->comm_count];

    if (!comm_init(comm, split->parent, draw->split_count, parent->count))
        return 0;
    draw->comm_count++;
    for (int key = 0; key < KEYS; key++) {
        for (int i = 0; i < parent->count; i++) {
            int rank = parent->ranks[i];

            if (split->colors[rank] == color && split->keys[rank] == key)
                comm->ranks[comm->count++] = rank;
        }
    }
    return 1;
}

/* One split: a part of some communicator's ranks, or two parts side by side where there is room. */
static int add_split(struct xccl_draw *draw, uint64_t *state, int room)
{
    struct xccl_draw_split *split = &draw->splits[draw->split_count];
    const struct xccl_draw_comm *parent = NULL;
    int colors = room > 1 ? 1 + below(state, 2) : 1, ok = 0, seconds = 0;

    split->parent = below(state, draw->comm_count);
    split->colors = xccl_calloc((size_t)draw->nranks, sizeof(*split->colors));
    split->keys = xccl_calloc((size_t)draw->nranks, sizeof(*split->keys));
    if (!split->colors || !split->keys)
        return 0;
    parent = &draw->comms[split->parent];
    for (int i = 0; i < parent->count; i++) {
        int color = below(state, 3), rank = parent->ranks[i];

        split->colors[rank] = color < colors ? color : XCCL_SPLIT_NOCOLOR;
        split->keys[rank] = below(state, KEYS);
    }
    split->colors[parent->ranks[below(state, parent->count)]] = 0;
    for (int i = 0; i < parent->count; i++)
        seconds += split->colors[parent->ranks[i]] == 1;
    ok = add_color(draw, split, 0) && (!seconds || add_color(draw, split, 1));
    draw->split_count++;
    return ok;
}

int xccl_draw_init(struct xccl_draw *draw, uint64_t seed, int nranks, int comm_count,
                   uint64_t max_bytes)
{
    uint64_t state = 0;

    *draw = (struct xccl_draw){.seed = seed, .nranks = nranks, .max_bytes = max_bytes};
    state = state_of(draw, -1, 0);
    if (!comm_init(&draw->comms[0], -1, -1, nranks))
        return 0;
    draw->comm_count = 1;
    for (int i = 0; i < nranks; i++)
        draw->comms[0].ranks[i] = i;
    draw->comms[0].count = nranks;
    while (draw->comm_count < comm_count) {
        if (!add_split(draw, &state, comm_count - draw->comm_count))
            return 0;
    }
    return 1;
}

void xccl_draw_fini(struct xccl_draw *draw)
{
    for (int i = 0; i < XCCL_DRAW_COMMS; i++) {
        xccl_free(draw->comms[i].ranks);
        xccl_free(draw->splits[i].colors);
        xccl_free(draw->splits[i].keys);
    }
    memset(draw, 0, sizeof(*draw));
}

int xccl_draw_rank(const struct xccl_draw_comm *comm, int rank)
{
    for (int i = 0; i < comm->count; i++) {
        if (comm->ranks[i] == rank)
            return i;
    }
    return -1;
}

/* ---- groups ---- */

/* None, one, a few, or up to the most. */
static uint64_t draw_bytes(uint64_t *state, const struct xccl_draw *draw, xcclDataType_t type)
{
    uint64_t elem_bytes = (uint64_t)xccl_perf_types[type].bytes, count = 0;
    int kind = below(state, COUNT_KINDS);

    if (kind == 1)
        count = 1;
    if (kind > 1)
        count = (uint64_t)below(state, SMALL_COUNT);
    if (kind == COUNT_KINDS - 1)
        count = next(state) % (draw->max_bytes / elem_bytes + 1);
    return count * elem_bytes < draw->max_bytes ? count * elem_bytes : draw->max_bytes;
}

static void draw_call(const struct xccl_draw *draw, uint64_t *state, int grouped,
                      struct xccl_draw_call *call)
{
    int colls = 0, members = 0;

    while (xccl_perf_colls[colls].name)
        colls++;
    *call = (struct xccl_draw_call){.comm = below(state, draw->comm_count)};
    members = draw->comms[call->comm].count;
    call->coll = &xccl_perf_colls[below(state, colls)];
    if (below(state, 9) < MESSAGE_OF_9 && grouped)
        call->coll = &message;
    call->type = (xcclDataType_t)below(state, xcclNumTypes);
    call->op = (xcclRedOp_t)below(state, xcclNumOps);
    call->root = below(state, members);
    call->peer = below(state, members);
    call->in_place = below(state, 2) && !call->coll->apart;
    call->bytes = draw_bytes(state, draw, call->type);
    call->shift = (uint32_t)below(state, SHIFT_MAX);
    call->salt = (uint32_t)next(state);
}

void xccl_draw_group(const struct xccl_draw *draw, int64_t number, struct xccl_draw_group *group)
{
    uint64_t state = state_of(draw, number, 0);

    group->grouped = below(&state, 8) >= ALONE_OF_8;
    group->call_count = 1 + below(&state, group->grouped ? XCCL_DRAW_CALLS : ALONE_CALLS);
    group->nested = below(&state, 2) ? 0 : below(&state, group->call_count + 1);
    for (int i = 0; i < group->call_count; i++)
        draw_call(draw, &state, group->grouped, &group->calls[i]);
}

void xccl_draw_order(const struct xccl_draw *draw, const struct xccl_draw_group *group,
                     int64_t number, int rank, int order[XCCL_DRAW_CALLS])
{
    uint64_t state = state_of(draw, number, 1 + rank);
    int taken[XCCL_DRAW_CALLS] = {0};

    for (int at = 0; at < group->call_count; at++) {
        int pick = 0, skip = group->grouped ? below(&state, group->call_count - at) : 0;

        /* Some call that is left, and then the first that is left of its communicator. */
        while (taken[pick] || skip-- > 0)
            pick++;
        for (int i = 0; i < pick; i++) {
            if (!taken[i] && group->calls[i].comm == group->calls[pick].comm)
                pick = i;
        }
        taken[pick] = 1;
        order[at] = pick;
    }
}
