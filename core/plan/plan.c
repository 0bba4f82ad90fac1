/* SPDX-License-Identifier: BSD-3-Clause */
/* Choice tables, geometry, and the cache of plans. A full cache is emptied: plans are cheap, and a
 * program with over a thousand different calls in turn gains little from keeping them.
 * Thread: see plan.h. */
#include "plan/plan.h"

#include "base/alloc.h"
#include "base/error.h"

#define TABLE_SLOTS     2048u /* a power of two */
#define PLANS_MAX       1024u
#define CHUNK_ALIGN     64u
#define NET_ONESHOT_MAX 8192u

const char *xccl_algo_name(enum xccl_algo algo)
{
    static const char *const names[XCCL_ALGO_COUNT] = {"auto", "oneshot", "ring"};

    return (unsigned)algo < XCCL_ALGO_COUNT ? names[algo] : "?";
}

xcclResult_t xccl_planner_init(struct xccl_planner *planner)
{
    planner->table = xccl_calloc(TABLE_SLOTS, sizeof(struct xccl_plan *));
    return planner->table ? xcclSuccess : xcclSystemError;
}

static void drop_plans(struct xccl_planner *planner)
{
    for (uint32_t i = 0; i < TABLE_SLOTS; i++) {
        if (planner->table[i])
            xccl_free(planner->table[i]->net_messages);
        xccl_free(planner->table[i]);
        planner->table[i] = NULL;
    }
    planner->plan_count = 0;
    planner->last = NULL;
}

void xccl_planner_fini(struct xccl_planner *planner)
{
    if (planner->table)
        drop_plans(planner);
    xccl_free(planner->table);
    planner->table = NULL;
}

static uint64_t mix(uint64_t value)
{
    value *= 0x9e3779b97f4a7c15ull;
    value ^= value >> 29;
    value *= 0xbf58476d1ce4e5b9ull;
    return value ^ value >> 32;
}

/* Up to where sending all to all beats two rounds. */
static size_t oneshot_limit(int nranks)
{
    if (nranks <= 2)
        return 64u << 10;
    return nranks <= 4 ? 32u << 10 : 8u << 10;
}

void xccl_plan_choose(const struct xccl_planner *planner, size_t bytes, enum xccl_algo *algo_out,
                      enum xccl_proto *proto_out)
{
    struct xccl_binding *const *oneshot = planner->bindings[XCCL_ALGO_ONESHOT];
    int all_local = oneshot[XCCL_PROTO_LINES] != NULL;
    size_t limit = all_local ? oneshot_limit(planner->nranks) : NET_ONESHOT_MAX;
    int one = oneshot[XCCL_PROTO_SLICES] != NULL && bytes <= limit;

    if (planner->forced != XCCL_ALGO_AUTO)
        one = planner->forced == XCCL_ALGO_ONESHOT;
    if (!planner->bindings[XCCL_ALGO_RING][XCCL_PROTO_SLICES])
        one = 1;
    *algo_out = one ? XCCL_ALGO_ONESHOT : XCCL_ALGO_RING;
    *proto_out = XCCL_PROTO_SLICES;
    if (one && all_local && bytes <= XCCL_LINES_MAX_BYTES)
        *proto_out = XCCL_PROTO_LINES;
    else if (one && all_local && bytes <= XCCL_SMALL_MAX_BYTES)
        *proto_out = XCCL_PROTO_SMALL;
}

/* Where chunks lie and how they are cut: equal on all ranks, from the count alone. */
static xcclResult_t set_geometry(struct xccl_plan *plan, const struct xccl_call *call)
{
    size_t nchunks = plan->binding->schedule->nchunks, tiles;

    plan->elem_bytes = (uint32_t)xccl_type_bytes(call->type);
    plan->slice_bytes = plan->binding->slot_bytes / plan->elem_bytes * plan->elem_bytes;
    if (__builtin_mul_overflow(call->count, (size_t)plan->elem_bytes, &plan->total_bytes) ||
        plan->total_bytes > SIZE_MAX / 4)
        return xccl_fail(xcclInvalidArgument, 0, "split the call", "count %zu of %u-byte elements",
                         call->count, plan->elem_bytes);
    plan->chunk_bytes = (plan->total_bytes + nchunks - 1) / nchunks;
    plan->chunk_bytes = (plan->chunk_bytes + CHUNK_ALIGN - 1) & ~(size_t)(CHUNK_ALIGN - 1);
    tiles = (plan->chunk_bytes + plan->slice_bytes - 1) / plan->slice_bytes;
    if (tiles > UINT32_MAX)
        return xccl_fail(xcclInvalidArgument, 0, "split the call", "count %zu is too large",
                         call->count);
    plan->tiles = (uint32_t)tiles;
    return xcclSuccess;
}

static xcclResult_t make_plan(struct xccl_planner *planner, const struct xccl_call *call,
                              const uint64_t key[2], struct xccl_plan **plan_out)
{
    size_t bytes = call->count * xccl_type_bytes(call->type);
    struct xccl_plan *plan = xccl_calloc_aligned(64, sizeof *plan);
    enum xccl_algo algo;
    enum xccl_proto proto;
    xcclResult_t rc = xcclSystemError;

    if (!plan)
        return rc;
    xccl_plan_choose(planner, bytes, &algo, &proto);
    plan->binding = planner->bindings[algo][proto];
    plan->key[0] = key[0];
    plan->key[1] = key[1];
    plan->reduce = xccl_reduce_kernel(call->type, call->op);
    rc = set_geometry(plan, call);
    if (rc)
        goto fail;
    plan->signature = mix(mix(key[0]) + key[1]) + (uint64_t)algo * 31 + (uint64_t)proto;
    plan->net_messages = xccl_calloc((size_t)plan->binding->net_count + 1,
                                     sizeof *plan->net_messages);
    rc = xcclSystemError;
    if (!plan->net_messages)
        goto fail;
    for (uint32_t i = 0; i < plan->binding->net_count; i++)
        plan->net_messages[i] = xccl_plan_messages(plan, plan->binding->net_conns[i]);
    *plan_out = plan;
    return xcclSuccess;
fail:
    xccl_free(plan);
    return rc;
}

xcclResult_t xccl_plan_get(struct xccl_planner *planner, const struct xccl_call *call,
                           const struct xccl_plan **plan_out)
{
    uint64_t key[2] = {call->count,
                       (uint64_t)call->coll << 32 | (uint64_t)call->type << 8 | (uint64_t)call->op};
    struct xccl_plan *plan = planner->last;
    uint32_t slot;
    xcclResult_t rc;

    if (plan && plan->key[0] == key[0] && plan->key[1] == key[1]) {
        *plan_out = plan;
        return xcclSuccess;
    }
    if (planner->plan_count == PLANS_MAX)
        drop_plans(planner);
    slot = (uint32_t)(mix(key[0]) + key[1]) & (TABLE_SLOTS - 1);
    for (plan = planner->table[slot]; plan; plan = planner->table[slot]) {
        if (plan->key[0] == key[0] && plan->key[1] == key[1])
            break;
        slot = (slot + 1) & (TABLE_SLOTS - 1);
    }
    if (!plan) {
        rc = make_plan(planner, call, key, &plan);
        if (rc)
            return rc;
        planner->table[slot] = plan;
        planner->plan_count++;
    }
    planner->last = plan;
    *plan_out = plan;
    return xcclSuccess;
}
