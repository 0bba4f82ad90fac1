/* SPDX-License-Identifier: BSD-3-Clause */
/* The builder as a plugin sees it. Every number that comes from there is looked at here, before the
 * real builder (builder.h) gets it, so that a mistake is told by the step that the plugin emitted,
 * and no number does harm. Whether the steps are right is the proof's business.
 *
 * Limits: pointers cannot be looked at; so many steps and chunks a rank that memory has a bound.
 * Thread: as builder.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "schedule/algo_plugin_int.h"
#include "schedule/builder_int.h"

#define LANES_MAX  255
#define ENDS_MAX   65535 /* connections of a rank; chunks of a step */
#define CHUNKS_MAX 65535
#define NUMBER_MAX 65535 /* ids and sigs */
#define DIST_MAX   255
#define FAN_MAX    14
#define STEPS_MAX  (1 << 20)
#define EVENTS_MAX (1 << 24) /* chunks of all steps together, each side for itself */

static_assert((int)XCCL_COLL_BROADCAST == xcclAlgoBroadcast &&
                  (int)XCCL_COLL_REDUCE == xcclAlgoReduce &&
                  (int)XCCL_COLL_ALL_GATHER == xcclAlgoAllGather &&
                  (int)XCCL_COLL_REDUCE_SCATTER == xcclAlgoReduceScatter &&
                  (int)XCCL_COLL_ALL_REDUCE == xcclAlgoAllReduce &&
                  (int)XCCL_COLL_ALL_TO_ALL == xcclAlgoAllToAll &&
                  (int)XCCL_COLL_GATHER == xcclAlgoGather &&
                  (int)XCCL_COLL_SCATTER == xcclAlgoScatter &&
                  (int)XCCL_COLL_BARRIER == xcclAlgoBarrier,
              "collectives have the numbers of the contract");
static_assert((int)XCCL_BUFFER_IN == xcclAlgoIn && (int)XCCL_BUFFER_OUT == xcclAlgoOut &&
                  (int)XCCL_BUFFER_SCRATCH == xcclAlgoScratch &&
                  (int)XCCL_BUFFER_ZERO == xcclAlgoZero && (int)XCCL_CONN_SEND == xcclAlgoSend &&
                  (int)XCCL_CONN_RECV == xcclAlgoRecv,
              "buffers and directions have the numbers of the contract");
static_assert(XCCL_STEP_SRC == XCCL_ALGO_SRC && XCCL_STEP_DST == XCCL_ALGO_DST &&
                  XCCL_STEP_RECV == XCCL_ALGO_RECV && XCCL_STEP_SEND == XCCL_ALGO_SEND &&
                  XCCL_STEP_ACC == XCCL_ALGO_ACC && XCCL_STEP_XCHG == XCCL_ALGO_XCHG,
              "ops have the bits of the contract");
static_assert(XCCL_FLAG_PRE == XCCL_ALGO_PRE && XCCL_FLAG_POST == XCCL_ALGO_POST &&
                  XCCL_FLAG_ORDERED == XCCL_ALGO_ORDERED && XCCL_FLAG_SIGNAL == XCCL_ALGO_SIGNAL &&
                  XCCL_FAN_ALL == XCCL_ALGO_FAN_ALL,
              "flags have the bits of the contract");

#define OPS_ALL   (XCCL_ALGO_XCHG | (XCCL_ALGO_XCHG - 1))
#define FLAGS_ALL (XCCL_ALGO_SIGNAL | (XCCL_ALGO_SIGNAL - 1))

/* An end of a connection. */
struct end {
    uint16_t peer, group; /* groups count from 0 in each lane */
    uint8_t dir;
};

struct bridge_lane {
    int number; /* the builder's */
    uint32_t end0, nends, nsteps;
};

struct bridge {
    xcclAlgoBuilder_v1_t calls; /* first: by this the plugin names the whole */
    const struct xccl_algo_entry *entry;
    struct xccl_builder *builder;
    const struct xccl_generator_for *what;
    struct end *ends;
    uint32_t nends, ends_room;
    uint32_t nsteps, nevents;
    int lane; /* that the call is about; -1: none */
    int nlanes;
    /* The greatest lane that a wait names, and who does. */
    int waited, waits_lane;
    uint32_t waits_step;
    struct bridge_lane lanes[LANES_MAX];
};

/* ---- errors ---- */

/* Keeps the first error, with the place of the call. Returns 0. */
static int wrong(struct bridge *bridge, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), cold));
static int wrong(struct bridge *bridge, const char *fmt, ...)
{
    char why[256], place[64] = "";
    va_list args;

    if (bridge->builder->rc != xcclSuccess)
        return 0;
    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    if (bridge->lane >= 0)
        snprintf(place, sizeof(place), ", lane %d, step %u", bridge->lane,
                 bridge->lanes[bridge->lane].nsteps);
    xccl_build_break(
        bridge->builder,
        xccl_fail(xcclInvalidArgument, 0, "correct the plugin according to xccl_algo.h",
                  "algorithm %s of plugin %s, rank %d of %d%s: %s", bridge->entry->name,
                  bridge->entry->plugin, bridge->what->rank, bridge->what->nranks, place, why));
    return 0;
}

/* What the plugin was given; NULL where it does not say, or after an error. */
static struct bridge *bridge_of(const struct xcclAlgoBuilder *build)
{
    struct bridge *bridge = (struct bridge *)(uintptr_t)build;

    if (!bridge || bridge->builder->rc != xcclSuccess)
        return NULL;
    bridge->lane = -1;
    return bridge;
}

/* ---- lanes and connections ---- */

static int32_t bridge_lane(const struct xcclAlgoBuilder *build)
{
    struct bridge *bridge = bridge_of(build);

    if (!bridge)
        return 0;
    if (bridge->nlanes == LANES_MAX)
        return wrong(bridge, "it creates more than %d lanes", LANES_MAX);
    bridge->lanes[bridge->nlanes] = (struct bridge_lane){.number = xccl_build_lane(bridge->builder),
                                                         .end0 = bridge->nends};
    return bridge->nlanes++;
}

static int end_ok(struct bridge *bridge, const struct end *last, unsigned dir, int32_t peer,
                  int32_t id)
{
    int nranks = bridge->what->nranks;

    if (dir > XCCL_CONN_RECV)
        return wrong(bridge, "a connection has direction %u, not 0 or 1", dir);
    if (peer < 0 || peer >= nranks || peer == bridge->what->rank)
        return wrong(bridge, "a connection names rank %d, which is not another rank from 0 to %d",
                     peer, nranks - 1);
    if (id < 0 || id > NUMBER_MAX)
        return wrong(bridge, "a connection has id %d, not 0 to %d", id, NUMBER_MAX);
    if (bridge->nends == ENDS_MAX)
        return wrong(bridge, "it creates more than %d connections", ENDS_MAX);
    if (last && last->dir != dir)
        return wrong(bridge, "a group has connections of both directions");
    return 1;
}

static int32_t bridge_conn(const struct xcclAlgoBuilder *build, int32_t lane, xcclAlgoDir_t dir,
                           int32_t peer, int32_t id, int32_t same_group)
{
    struct bridge *bridge = bridge_of(build);
    const struct end *last = NULL;
    struct bridge_lane *of;

    if (!bridge)
        return 0;
    if (lane < 0 || lane != bridge->nlanes - 1)
        return wrong(bridge, "a connection is for lane %d, which is not the last one", lane);
    bridge->lane = lane;
    of = &bridge->lanes[lane];
    if (of->nends > 0)
        last = &bridge->ends[bridge->nends - 1];
    if (!end_ok(bridge, same_group ? last : NULL, (unsigned)dir, peer, id) ||
        !xccl_build_grow(bridge->builder, &bridge->ends, bridge->nends, &bridge->ends_room,
                         sizeof(*bridge->ends)))
        return 0;
    bridge->ends[bridge->nends] = (struct end){.peer = (uint16_t)peer, .dir = (uint8_t)dir};
    if (of->nends > 0)
        bridge->ends[bridge->nends].group = (uint16_t)(bridge->ends[bridge->nends - 1].group +
                                                       !same_group);
    bridge->nends++;
    (void)xccl_build_conn(bridge->builder, of->number, (enum xccl_conn_dir)dir, peer, id,
                          same_group != 0);
    return (int32_t)of->nends++;
}

/* ---- steps ---- */

static int scratch_ok(struct bridge *bridge, const char *side, const xcclAlgoChunks_t *chunks)
{
    for (int i = 0; i < chunks->count; i++) {
        int64_t chunk = chunks->list ? chunks->list[i]
                                     : chunks->first + (int64_t)i * chunks->stride;

        if (chunk < 0 || chunk >= CHUNKS_MAX)
            return wrong(bridge, "%s is chunk %lld of scratch memory, not 0 to %d", side,
                         (long long)chunk, CHUNKS_MAX - 1);
    }
    return 1;
}

/* A side that the step has. */
static int side_ok(struct bridge *bridge, const char *side, const xcclAlgoChunks_t *chunks,
                   int least)
{
    static const char *const names[] = {"In", "Out"};
    int is_root = bridge->what->rank == bridge->what->root;

    if (chunks->buffer < xcclAlgoIn || chunks->buffer > xcclAlgoZero)
        return wrong(bridge, "%s is buffer %d, not 0 to %d", side, chunks->buffer, xcclAlgoZero);
    if (chunks->count < least || chunks->count > CHUNKS_MAX)
        return wrong(bridge, "%s has %d chunks, not %d to %d", side, chunks->count, least,
                     CHUNKS_MAX);
    bridge->nevents += (uint32_t)chunks->count;
    if (chunks->buffer == xcclAlgoScratch)
        return scratch_ok(bridge, side, chunks);
    if (chunks->buffer != xcclAlgoZero &&
        xccl_coll_chunks(bridge->entry->generator.coll, (enum xccl_step_buffer)chunks->buffer,
                         is_root, 1) == 0)
        return wrong(bridge, "%s is %s, which this rank does not have", side,
                     names[chunks->buffer]);
    return 1;
}

static int sides_ok(struct bridge *bridge, const xcclAlgoStep_v1_t *step)
{
    int exchange = (step->op & XCCL_ALGO_XCHG) != 0;
    int has_src = (step->op & XCCL_ALGO_SRC) != 0, has_dst = (step->op & XCCL_ALGO_DST) != 0;

    if (has_src && !side_ok(bridge, "src", &step->src, !exchange))
        return 0;
    if (has_dst && !side_ok(bridge, "dst", &step->dst, !exchange))
        return 0;
    if (has_src && has_dst && !exchange && step->src.count != step->dst.count)
        return wrong(bridge, "src has %d chunks, but dst has %d", step->src.count, step->dst.count);
    if ((step->op & XCCL_ALGO_ACC) && step->dst.buffer == xcclAlgoZero)
        return wrong(bridge, "the step adds to Zero, which is not memory");
    return 1;
}

/* Connections from first on that are of its group, so far. */
static int32_t group_length(const struct bridge *bridge, const struct bridge_lane *of,
                            int32_t first)
{
    const struct end *ends = bridge->ends + of->end0;
    uint32_t at = (uint32_t)first;

    while (at < of->nends && ends[at].group == ends[first].group)
        at++;
    return (int32_t)at - first;
}

/* The connections of one direction, of one group, that the lane has. */
static int fan_ok(struct bridge *bridge, int dir, int32_t first, int32_t count, int ordered)
{
    const char *word = dir == XCCL_CONN_SEND ? "send" : "recv";
    const struct bridge_lane *of = &bridge->lanes[bridge->lane];
    const struct end *ends;
    int32_t known = count;

    if ((count < 1 || count > FAN_MAX) && count != XCCL_ALGO_FAN_ALL)
        return wrong(bridge, "n%s is %d, not 1 to %d or XCCL_ALGO_FAN_ALL", word, count, FAN_MAX);
    if (first < 0 || (uint32_t)first >= of->nends)
        return wrong(bridge, "%cconn is %d, but the lane has %u connections", word[0], first,
                     of->nends);
    ends = bridge->ends + of->end0 + first;
    if (count == XCCL_ALGO_FAN_ALL)
        known = group_length(bridge, of, first);
    if ((uint32_t)(first + known) > of->nends)
        return wrong(bridge, "n%s is %d from connection %d on, but the lane has %u connections",
                     word, count, first, of->nends);
    for (int32_t i = 0; i < known; i++) {
        if (ends[i].dir != dir)
            return wrong(bridge, "connection %d has the wrong direction for %s", first + i, word);
        if (ends[i].group != ends->group)
            return wrong(bridge, "connections %d and %d are not in the same group", first,
                         first + i);
        if (ordered && i > 0 && ends[i].peer <= ends[i - 1].peer)
            return wrong(bridge, "the step is ORDERED, but its peers are not in rising order");
    }
    return 1;
}

static int fans_ok(struct bridge *bridge, const xcclAlgoStep_v1_t *step)
{
    int ordered = (step->flags & XCCL_ALGO_ORDERED) != 0;

    if (ordered && (!(step->op & XCCL_ALGO_RECV) || (step->op & XCCL_ALGO_XCHG)))
        return wrong(bridge, "the step is ORDERED, but it receives nothing or is an exchange");
    if ((step->op & XCCL_ALGO_RECV) &&
        !fan_ok(bridge, XCCL_CONN_RECV, step->rconn, step->nrecv, ordered))
        return 0;
    return !(step->op & XCCL_ALGO_SEND) ||
           fan_ok(bridge, XCCL_CONN_SEND, step->sconn, step->nsend, 0);
}

static int waits_ok(struct bridge *bridge, const xcclAlgoStep_v1_t *step)
{
    if ((step->flags & XCCL_ALGO_SIGNAL) && (step->sig < 0 || step->sig > NUMBER_MAX))
        return wrong(bridge, "sig is %d, not 0 to %d", step->sig, NUMBER_MAX);
    if (step->nwaits < 0 || step->nwaits > XCCL_ALGO_WAITS_MAX)
        return wrong(bridge, "nwaits is %d, not 0 to %d", step->nwaits, XCCL_ALGO_WAITS_MAX);
    for (int i = 0; i < step->nwaits; i++) {
        const xcclAlgoWait_t *wait = &step->waits[i];

        if (wait->lane < 0 || wait->lane >= LANES_MAX || wait->dist < 0 || wait->dist > DIST_MAX ||
            wait->sig < 0 || wait->sig > NUMBER_MAX)
            return wrong(bridge, "wait %d is for lane %d, dist %d, sig %d, which is out of range",
                         i, wait->lane, wait->dist, wait->sig);
        if (wait->lane > bridge->waited) {
            bridge->waited = wait->lane;
            bridge->waits_lane = bridge->lane;
            bridge->waits_step = bridge->lanes[bridge->lane].nsteps;
        }
    }
    return 1;
}

/* The size when version 1 was frozen. */
#define STEP_BYTES (offsetof(xcclAlgoStep_v1_t, reserved) + sizeof(int32_t))

/* Copies what we know of a step; what we do not know must be zero. */
static int step_read(struct bridge *bridge, const xcclAlgoStep_v1_t *step, xcclAlgoStep_v1_t *copy)
{
    size_t size;

    if (!step)
        return wrong(bridge, "the step is NULL");
    size = step->size;
    if (size < STEP_BYTES || size > XCCL_ALGO_SIZE_SANE)
        return wrong(bridge, "the step has size %zu; version 1 has %zu or more", size, STEP_BYTES);
    for (size_t i = offsetof(xcclAlgoStep_v1_t, reserved); i < size; i++)
        if (((const unsigned char *)step)[i])
            return wrong(bridge, "the step has fields that this XCCL does not know");
    memcpy(copy, step, size < sizeof(*copy) ? size : sizeof(*copy));
    return 1;
}

static int step_ok(struct bridge *bridge, const xcclAlgoStep_v1_t *step)
{
    if (step->op > OPS_ALL || !xccl_step_legal((uint8_t)step->op))
        return wrong(bridge, "op 0x%x is not one of the twelve valid operations", step->op);
    if (step->flags > FLAGS_ALL)
        return wrong(bridge, "flags 0x%x has unknown bits", step->flags);
    if (!sides_ok(bridge, step) || !fans_ok(bridge, step) || !waits_ok(bridge, step))
        return 0;
    if (bridge->nsteps == STEPS_MAX || bridge->nevents > EVENTS_MAX)
        return wrong(bridge, "it emits more than %d steps or %d chunks", STEPS_MAX, EVENTS_MAX);
    return 1;
}

static struct xccl_chunks chunks_of(const xcclAlgoChunks_t *chunks)
{
    return (struct xccl_chunks){.buffer = (enum xccl_step_buffer)chunks->buffer,
                                .count = chunks->count,
                                .first = chunks->first,
                                .stride = chunks->stride,
                                .list = chunks->list};
}

/* Only what the op has: the rest of a step may be anything. */
static void step_build(struct bridge *bridge, const xcclAlgoStep_v1_t *step)
{
    struct xccl_emit emit = {
        .op = (uint8_t)step->op, .flags = (uint8_t)step->flags, .nwaits = step->nwaits};

    if (step->op & XCCL_ALGO_SRC)
        emit.src = chunks_of(&step->src);
    if (step->op & XCCL_ALGO_DST)
        emit.dst = chunks_of(&step->dst);
    if (step->op & XCCL_ALGO_RECV) {
        emit.rconn = step->rconn;
        emit.nrecv = step->nrecv;
    }
    if (step->op & XCCL_ALGO_SEND) {
        emit.sconn = step->sconn;
        emit.nsend = step->nsend;
    }
    if (step->flags & XCCL_ALGO_SIGNAL)
        emit.sig = step->sig;
    for (int i = 0; i < step->nwaits; i++)
        emit.waits[i] = (struct xccl_schedule_wait){.lane = (uint8_t)step->waits[i].lane,
                                                    .dist = (uint8_t)step->waits[i].dist,
                                                    .sig = (uint16_t)step->waits[i].sig};
    xccl_build_step(bridge->builder, bridge->lanes[bridge->lane].number, &emit);
}

static void bridge_step(const struct xcclAlgoBuilder *build, int32_t lane,
                        const xcclAlgoStep_v1_t *step)
{
    struct bridge *bridge = bridge_of(build);
    xcclAlgoStep_v1_t copy = {0};

    if (!bridge)
        return;
    if (lane < 0 || lane >= bridge->nlanes) {
        (void)wrong(bridge, "a step is for lane %d, but the number of lanes is %d", lane,
                    bridge->nlanes);
        return;
    }
    bridge->lane = lane;
    if (!step_read(bridge, step, &copy) || !step_ok(bridge, &copy))
        return;
    step_build(bridge, &copy);
    bridge->lanes[lane].nsteps++;
    bridge->nsteps++;
}

/* ---- the end ---- */

static void bridge_fail(const struct xcclAlgoBuilder *build, const char *why)
{
    struct bridge *bridge = bridge_of(build);

    if (bridge)
        (void)wrong(bridge, "%.200s", why ? why : "it gives up and does not say why");
}

static int32_t bridge_failed(const struct xcclAlgoBuilder *build)
{
    return bridge_of(build) == NULL;
}

void xccl_algo_bridge(const struct xccl_algo_entry *entry, struct xccl_builder *builder,
                      const struct xccl_generator_for *what)
{
    const xcclAlgoFor_v1_t asked = xccl_algo_for(entry, what);
    struct bridge bridge = {.calls = {.size = sizeof(bridge.calls),
                                      .lane = bridge_lane,
                                      .conn = bridge_conn,
                                      .step = bridge_step,
                                      .fail = bridge_fail,
                                      .failed = bridge_failed},
                            .entry = entry,
                            .builder = builder,
                            .what = what,
                            .lane = -1,
                            .waited = -1};

    entry->calls.emit(&bridge.calls, &asked);
    bridge.lane = -1;
    if (bridge.waited >= bridge.nlanes)
        (void)wrong(&bridge, "step %u of lane %d waits for lane %d, but the number of lanes is %d",
                    bridge.waits_step, bridge.waits_lane, bridge.waited, bridge.nlanes);
    else if (bridge.nlanes == 0)
        (void)wrong(&bridge, "it creates no lane");
    xccl_free(bridge.ends);
}
