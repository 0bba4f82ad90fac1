/* SPDX-License-Identifier: BSD-3-Clause */
/* Collects what a generator emits for one rank, and makes a schedule of it: records by
 * builder_fold.c, tables, the proof that decoding gives what was emitted, the check. Thread: as
 * builder.h. */
#include "schedule/builder.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "schedule/builder_int.h"

#define TABLE_MAX 65535 /* entries; their numbers have 16 bits */
#define LANES_MAX 255

/* ---- errors and room ---- */

void xccl_build_fail(struct xccl_builder *builder, const char *what, long number)
{
    if (builder->rc == xcclSuccess)
        builder->rc = xccl_fail(xcclInternalError, 0, "report this as a bug in the algorithm",
                                "%s for rank %d of %d: %s (%ld)", builder->what.name,
                                builder->what.rank, builder->what.nranks, what, number);
}

void xccl_build_break(struct xccl_builder *builder, xcclResult_t rc)
{
    if (builder->rc == xcclSuccess)
        builder->rc = rc;
}

int xccl_build_grow(struct xccl_builder *builder, void *table, uint32_t used, uint32_t *room,
                    size_t elem_bytes)
{
    uint32_t more = *room ? 2 * *room : 16;
    void *grown;

    if (builder->rc != xcclSuccess)
        return 0;
    if (used < *room)
        return 1;
    memcpy(&grown, table, sizeof(grown));
    grown = xccl_realloc(grown, more * elem_bytes);
    if (!grown) {
        builder->rc = xcclSystemError;
        return 0;
    }
    memcpy(table, &grown, sizeof(grown));
    *room = more;
    return 1;
}

xcclResult_t xccl_build_begin(const struct xccl_build_for *what, struct xccl_builder **builder_out)
{
    struct xccl_builder *builder;

    if (what->nranks < 1 || what->nranks > TABLE_MAX || what->rank < 0 ||
        what->rank >= what->nranks || what->root < 0 || what->root >= what->nranks ||
        what->nchunks < 1 || what->nchunks > TABLE_MAX || what->scrbufs < 1 ||
        what->scrbufs > TABLE_MAX)
        return xccl_fail(xcclInvalidArgument, 0, "use 1 to 65535 ranks and chunks",
                         "%s cannot be made for rank %d of %d, root %d, with %d chunks", what->name,
                         what->rank, what->nranks, what->root, what->nchunks);
    builder = xccl_calloc(1, sizeof(*builder));
    if (!builder)
        return xcclSystemError;
    builder->what = *what;
    *builder_out = builder;
    return xcclSuccess;
}

void xccl_build_abandon(struct xccl_builder *builder)
{
    if (!builder)
        return;
    for (uint32_t i = 0; i < builder->nlanes; i++)
        xccl_free(builder->lanes[i].steps);
    xccl_free(builder->lanes);
    xccl_free(builder->pool);
    xccl_free(builder->conns);
    xccl_free(builder->waits);
    xccl_free(builder->folded);
    xccl_free(builder->list);
    xccl_free(builder->scoped.lists[0]);
    xccl_free(builder->scoped.lists[1]);
    xccl_free(builder);
}

uint32_t xccl_build_size(const struct xccl_builder *builder, int buffer)
{
    if (buffer == XCCL_BUFFER_SCRATCH)
        return builder->nscratch;
    if (buffer == XCCL_BUFFER_ZERO)
        return 0;
    return xccl_coll_chunks(builder->what.coll, (enum xccl_step_buffer)buffer,
                            builder->what.rank == builder->what.root,
                            (uint32_t)builder->what.nchunks);
}

/* ---- lanes and connections ---- */

int xccl_build_lane(struct xccl_builder *builder)
{
    struct lane *grown;

    if (builder->rc != xcclSuccess)
        return 0;
    if (builder->scoped.scope)
        return xccl_scope_lane(builder);
    if (builder->nlanes == LANES_MAX) {
        xccl_build_fail(builder, "more lanes than allowed", LANES_MAX);
        return 0;
    }
    grown = xccl_realloc(builder->lanes, (builder->nlanes + 1) * sizeof(*grown));
    if (!grown) {
        builder->rc = xcclSystemError;
        return 0;
    }
    builder->lanes = grown;
    grown[builder->nlanes] = (struct lane){.conn0 = builder->nconns};
    return (int)builder->nlanes++;
}

static uint16_t rank_at(const struct xccl_builder *builder, int position)
{
    int is_known = builder->what.order && position >= 0 && position < builder->what.nranks;

    return is_known ? builder->what.order[position] : (uint16_t)position;
}

static int add_conn(struct xccl_builder *builder, int lane, enum xccl_conn_kind kind,
                    enum xccl_conn_dir dir, int peer, int id, int same_group)
{
    struct xccl_schedule_conn conn = {.dir = (uint8_t)dir, .kind = (uint8_t)kind};
    int made = -1;
    struct lane *of;

    if (builder->rc == xcclSuccess && (lane < 0 || (uint32_t)lane + 1 != builder->nlanes))
        xccl_build_fail(builder, "a connection for a lane that is not the last one", lane);
    if (builder->nconns == TABLE_MAX)
        xccl_build_fail(builder, "more connections than allowed", TABLE_MAX);
    if (!xccl_build_grow(builder, &builder->conns, builder->nconns, &builder->conns_room,
                         sizeof(*builder->conns)))
        return 0;
    if (builder->scoped.scope)
        made = xccl_scope_conn(builder, dir, &peer, &id);
    if (made >= 0 || builder->rc != xcclSuccess)
        return made;
    conn.peer = rank_at(builder, peer);
    conn.id = (uint16_t)id;
    of = &builder->lanes[lane];
    if (of->nconn > 0) {
        uint16_t last = builder->conns[builder->nconns - 1].group;

        conn.group = (uint16_t)(same_group ? last : last + 1);
    }
    builder->conns[builder->nconns++] = conn;
    made = (int)(of->nconn++);
    return builder->scoped.scope ? made - (int)builder->scoped.conn0 : made;
}

int xccl_build_conn(struct xccl_builder *builder, int lane, enum xccl_conn_dir dir, int peer,
                    int id, int same_group)
{
    return add_conn(builder, lane, XCCL_CONN_FIFO, dir, peer, id, same_group);
}

int xccl_build_multicast(struct xccl_builder *builder, int lane, enum xccl_conn_dir dir, int peer,
                         int id, int same_group)
{
    return add_conn(builder, lane, XCCL_CONN_MULTICAST, dir, peer, id, same_group);
}

/* ---- steps ---- */

/* Is each chunk of the buffer the block of a rank? */
static int has_blocks(enum xccl_coll coll, enum xccl_step_buffer buffer)
{
    switch (coll) {
    case XCCL_COLL_ALL_GATHER:
    case XCCL_COLL_GATHER:
        return buffer == XCCL_BUFFER_OUT;
    case XCCL_COLL_REDUCE_SCATTER:
    case XCCL_COLL_SCATTER:
        return buffer == XCCL_BUFFER_IN;
    default:
        return coll == XCCL_COLL_ALL_TO_ALL &&
               (buffer == XCCL_BUFFER_IN || buffer == XCCL_BUFFER_OUT);
    }
}

/* Puts chunks first to first + count of a side into the pool. */
static uint32_t pool_add(struct xccl_builder *builder, const struct xccl_chunks *chunks, int first,
                         int count)
{
    uint32_t at = builder->pool_used;
    int64_t size = xccl_build_size(builder, chunks->buffer);
    int wraps = chunks->buffer == XCCL_BUFFER_IN || chunks->buffer == XCCL_BUFFER_OUT;

    if (wraps && size == 0) {
        xccl_build_fail(builder, "the rank has no such buffer", chunks->buffer);
        return at;
    }
    for (int i = first; i < first + count; i++) {
        int64_t chunk = chunks->list ? chunks->list[i]
                                     : chunks->first + (int64_t)i * chunks->stride;

        if (!xccl_build_grow(builder, &builder->pool, builder->pool_used, &builder->pool_room,
                             sizeof(*builder->pool)))
            return at;
        if (wraps)
            chunk = (chunk % size + size) % size;
        if (builder->what.order && has_blocks(builder->what.coll, chunks->buffer))
            chunk = rank_at(builder, (int)chunk);
        if (chunks->buffer == XCCL_BUFFER_ZERO)
            chunk = 0;
        if (chunk < 0 || chunk >= TABLE_MAX) {
            xccl_build_fail(builder, "a chunk number is out of range", (long)chunk);
            return at;
        }
        if (chunks->buffer == XCCL_BUFFER_SCRATCH && chunk >= builder->nscratch)
            builder->nscratch = (uint32_t)chunk + 1;
        builder->pool[builder->pool_used++] = (uint16_t)chunk;
    }
    return at;
}

static uint16_t waits_add(struct xccl_builder *builder, const struct xccl_emit *emit)
{
    uint16_t at = (uint16_t)builder->nwaits;

    for (int i = 0; i < emit->nwaits; i++) {
        if (builder->nwaits == TABLE_MAX)
            xccl_build_fail(builder, "more waits than allowed", TABLE_MAX);
        if (!xccl_build_grow(builder, &builder->waits, builder->nwaits, &builder->waits_room,
                             sizeof(*builder->waits)))
            return 0;
        builder->waits[builder->nwaits++] = emit->waits[i];
    }
    return at;
}

/* Chunks first to first + count of what was emitted, as a step of that op. */
static void step_add(struct xccl_builder *builder, int lane, const struct xccl_emit *emit,
                     uint8_t op, uint8_t flags, int first, int count)
{
    const struct xccl_chunks *src = &emit->src;
    struct lane *of = &builder->lanes[lane];
    struct emitted step = {.op = op,
                           .flags = flags,
                           .begins = (uint8_t)builder->scoped.begins,
                           .cnt = (uint16_t)count};

    builder->scoped.begins = 0;
    if (count > TABLE_MAX) {
        xccl_build_fail(builder, "more chunks in a step than allowed", count);
        return;
    }
    /* What is received behind an exchange with ACC is added to where it goes. */
    if ((emit->op & XCCL_STEP_XCHG) && (op & XCCL_STEP_SRC) && !(op & XCCL_STEP_SEND))
        src = &emit->dst;
    if (op & XCCL_STEP_SRC) {
        step.src_buffer = (uint8_t)src->buffer;
        step.src = pool_add(builder, src, first, count);
    }
    if (op & XCCL_STEP_DST) {
        step.dst_buffer = (uint8_t)emit->dst.buffer;
        step.dst = pool_add(builder, &emit->dst, first, count);
    }
    if (op & XCCL_STEP_RECV) {
        step.rconn = (uint16_t)emit->rconn;
        step.nrecv = (uint8_t)emit->nrecv;
    }
    if (op & XCCL_STEP_SEND) {
        step.sconn = (uint16_t)emit->sconn;
        step.nsend = (uint8_t)emit->nsend;
    }
    if (first == 0 && emit->nwaits > 0) {
        step.nwaits = (uint8_t)emit->nwaits;
        step.wait = waits_add(builder, emit);
    }
    step.sig = (uint16_t)emit->sig;
    if (xccl_build_grow(builder, &of->steps, of->nsteps, &of->room, sizeof(*of->steps)))
        of->steps[of->nsteps++] = step;
}

/* What one side of an exchange has more than the other. */
static void rest_add(struct xccl_builder *builder, int lane, const struct xccl_emit *emit, int both)
{
    uint8_t add = emit->op & XCCL_STEP_ACC;

    if (emit->src.count > both)
        step_add(builder, lane, emit, XCCL_STEP_SRC | XCCL_STEP_SEND,
                 emit->flags & (uint8_t)~XCCL_FLAG_POST, both, emit->src.count - both);
    if (emit->dst.count > both)
        step_add(builder, lane, emit,
                 (uint8_t)(XCCL_STEP_RECV | XCCL_STEP_DST | (add ? XCCL_STEP_SRC : 0)),
                 emit->flags & (uint8_t)~XCCL_FLAG_PRE, both, emit->dst.count - both);
}

/* messages: how many, where no side says so. */
static void steps_add(struct xccl_builder *builder, int lane, const struct xccl_emit *emit,
                      int messages)
{
    int src = emit->op & XCCL_STEP_SRC ? emit->src.count : -1;
    int dst = emit->op & XCCL_STEP_DST ? emit->dst.count : -1;
    int count = src < 0 ? dst : src, both;

    if (src < 0 && dst < 0)
        count = messages;
    if (emit->op & XCCL_STEP_XCHG) {
        both = src < dst ? src : dst;
        if (both > 0)
            step_add(builder, lane, emit, emit->op, emit->flags, 0, both);
        rest_add(builder, lane, emit, both);
        return;
    }
    if (count < 1 || (src >= 0 && dst >= 0 && src != dst)) {
        xccl_build_fail(builder, "the sides of a step have different numbers of chunks, or none",
                        dst);
        return;
    }
    step_add(builder, lane, emit, emit->op, emit->flags, 0, count);
}

void xccl_build_step(struct xccl_builder *builder, int lane, const struct xccl_emit *emit)
{
    struct xccl_emit outside;
    int messages = 1;

    if (builder->rc != xcclSuccess)
        return;
    if (lane < 0 || (uint32_t)lane >= builder->nlanes || emit->nwaits < 0 || emit->nwaits > 3) {
        xccl_build_fail(builder, "a step of a lane that does not exist, or with more than 3 waits",
                        lane);
        return;
    }
    if (!builder->scoped.scope)
        steps_add(builder, lane, emit, messages); /* without sides: what is received is sent */
    else if (xccl_scope_step(builder, emit, &outside, &messages))
        steps_add(builder, lane, &outside, messages);
}

/* ---- the end ---- */

static void tables_copy(const struct xccl_builder *builder, const uint32_t *steps,
                        struct xccl_schedule *schedule)
{
    uint32_t step0 = 0;

    for (uint32_t i = 0; i < builder->nlanes; i++) {
        schedule->lanes[i].step0 = step0;
        schedule->lanes[i].conn0 = builder->lanes[i].conn0;
        schedule->lanes[i].nstep = (uint16_t)steps[i];
        schedule->lanes[i].nconn = (uint16_t)builder->lanes[i].nconn;
        step0 += steps[i];
    }
    if (builder->nfolded)
        memcpy(schedule->steps, builder->folded, builder->nfolded * sizeof(*builder->folded));
    if (builder->nconns)
        memcpy(schedule->conns, builder->conns, builder->nconns * sizeof(*builder->conns));
    if (builder->nwaits)
        memcpy(schedule->waits, builder->waits, builder->nwaits * sizeof(*builder->waits));
    if (builder->nlist)
        memcpy(schedule->list, builder->list, builder->nlist * sizeof(*builder->list));
}

/* Nobody's fault where generators are put together. */
static void too_many(struct xccl_builder *builder)
{
    if (!builder->scoped.used)
        xccl_build_fail(builder, "more steps or list entries than allowed", (long)builder->nfolded);
    else
        xccl_build_break(
            builder,
            xccl_fail(xcclInvalidArgument, 0, "choose other parts, such as ring",
                      "%s of %d ranks needs more steps or list entries than allowed (65535)",
                      builder->what.name, builder->what.nranks));
}

static xcclResult_t make(struct xccl_builder *builder, struct xccl_schedule **schedule_out)
{
    uint32_t steps[LANES_MAX];
    struct xccl_schedule *schedule;
    xcclResult_t rc;

    if (builder->scoped.used)
        xccl_build_prune(builder);
    for (uint32_t i = 0; i < builder->nlanes; i++) {
        uint32_t before = builder->nfolded;

        xccl_build_fold(builder, &builder->lanes[i]);
        steps[i] = builder->nfolded - before;
    }
    if (builder->rc == xcclSuccess && (builder->nfolded > TABLE_MAX || builder->nlist > TABLE_MAX))
        too_many(builder);
    if (builder->rc != xcclSuccess)
        return builder->rc;
    rc = xccl_schedule_create(
        &(struct xccl_schedule_shape){.name = builder->what.name,
                                      .coll = builder->what.coll,
                                      .nranks = (uint16_t)builder->what.nranks,
                                      .rank = rank_at(builder, builder->what.rank),
                                      .root = rank_at(builder, builder->what.root),
                                      .nchunks = (uint16_t)builder->what.nchunks,
                                      .nlanes = (uint16_t)builder->nlanes,
                                      .nscratch = (uint16_t)builder->nscratch,
                                      .scrbufs = (uint16_t)builder->what.scrbufs,
                                      .nsteps = (uint16_t)builder->nfolded,
                                      .nconns = (uint16_t)builder->nconns,
                                      .nwaits = (uint16_t)builder->nwaits,
                                      .nlist = (uint16_t)builder->nlist},
        &schedule);
    if (rc)
        return rc;
    tables_copy(builder, steps, schedule);
    rc = xccl_schedule_check(schedule);
    for (uint32_t i = 0; i < builder->nlanes && !rc; i++)
        if (!xccl_build_says_the_same(builder, i, schedule)) {
            xccl_build_fail(builder,
                            "the records of a lane do not match the steps that were emitted", i);
            rc = builder->rc;
        }
    if (rc) {
        xccl_schedule_destroy(schedule);
        return rc;
    }
    *schedule_out = schedule;
    return xcclSuccess;
}

xcclResult_t xccl_build_end(struct xccl_builder *builder, struct xccl_schedule **schedule_out)
{
    xcclResult_t rc = builder->rc;

    if (rc == xcclSuccess)
        rc = make(builder, schedule_out);
    xccl_build_abandon(builder);
    return rc;
}
