/* SPDX-License-Identifier: BSD-3-Clause */
/* Scopes of the builder: what a generator emits for a world of its own, in terms of the world
 * around it. Ranks, chunks and buffers go through tables, ids and connections get what was there
 * before added, and what would do nothing is left out. Thread: as builder.h. */
#include "schedule/builder.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "schedule/builder_int.h"

#define UNEQUAL (-1)

void xccl_build_enter(struct xccl_builder *builder, const struct xccl_build_scope *scope)
{
    struct scoped *scoped = &builder->scoped;

    if (builder->nlanes == 0)
        (void)xccl_build_lane(builder);
    if (builder->rc != xcclSuccess)
        return;
    if (scoped->scope || builder->what.order) {
        xccl_build_fail(builder, "a scope is inside another scope or an order", scope->id0);
        return;
    }
    if (!scope->again)
        scoped->conn0 = builder->lanes[builder->nlanes - 1].nconn;
    scoped->nconns = 0;
    scoped->nlanes = 0;
    scoped->used = 1;
    scoped->begins = 1;
    scoped->scope = scope;
}

/* conn0 stays for a scope that is entered again; outside of scopes connections count from 0. */
void xccl_build_leave(struct xccl_builder *builder)
{
    builder->scoped.scope = NULL;
}

/* ---- lanes and connections ---- */

int xccl_scope_lane(struct xccl_builder *builder)
{
    if (builder->scoped.nlanes++ > 0)
        xccl_build_break(
            builder,
            xccl_fail(
                xcclInvalidArgument, 0, "choose another part, such as ring",
                "%s of %d ranks has parts with several lanes, which cannot run one after the other",
                builder->what.name, builder->what.nranks));
    return (int)builder->nlanes - 1;
}

int xccl_scope_conn(struct xccl_builder *builder, enum xccl_conn_dir dir, int *peer, int *id)
{
    struct scoped *scoped = &builder->scoped;
    const struct xccl_build_scope *scope = scoped->scope;
    const struct lane *lane = &builder->lanes[builder->nlanes - 1];
    uint32_t at = scoped->nconns++;
    const struct xccl_schedule_conn *made;

    if (*peer < 0 || *peer >= scope->nranks || *id < 0 || *id >= scope->nids ||
        scope->id0 + *id > UINT16_MAX) {
        xccl_build_fail(builder, "a connection that its scope has no rank or id for", *id);
        return 0;
    }
    *peer = scope->ranks[*peer];
    *id += scope->id0;
    if (!scope->again)
        return -1;
    made = &builder->conns[lane->conn0 + scoped->conn0 + at];
    if (scoped->conn0 + at >= lane->nconn || made->peer != *peer || made->id != *id ||
        made->dir != dir)
        xccl_build_fail(builder, "a scope that is not as it was before", *peer);
    return (int)at;
}

/* ---- steps ---- */

static int length(const struct xccl_build_scope *scope, const struct xccl_build_side *side, int c)
{
    int count = (int)(side->first[c + 1] - side->first[c]) - scope->part;

    count = count < 0 ? 0 : count;
    return count < scope->nparts ? count : scope->nparts;
}

/* What all chunks of both sides have, or UNEQUAL. */
static int common_length(const struct xccl_build_scope *scope)
{
    const struct xccl_build_side *sides[] = {&scope->in, &scope->out};
    int common = -1;

    for (int i = 0; i < 2; i++)
        for (int c = 0; c < sides[i]->count; c++) {
            int count = length(scope, sides[i], c);

            if (common >= 0 && count != common)
                return UNEQUAL;
            common = count;
        }
    return common < 0 ? 1 : common;
}

/* For scratch memory and relays. */
static int width_of(struct xccl_builder *builder)
{
    int width = common_length(builder->scoped.scope);

    if (width != UNEQUAL)
        return width;
    xccl_build_break(builder,
                     xccl_fail(xcclInvalidArgument, 0, "choose mesh, ring, pairwise or direct",
                               "%s of %d ranks has a part with scratch memory, which cannot work "
                               "on nodes of different sizes",
                               builder->what.name, builder->what.nranks));
    return 0;
}

static void list_add(struct xccl_builder *builder, int list, int64_t chunk)
{
    struct scoped *scoped = &builder->scoped;

    if (chunk < 0 || chunk >= UINT16_MAX)
        xccl_build_fail(builder, "a chunk number is out of range", (long)chunk);
    if (xccl_build_grow(builder, &scoped->lists[list], scoped->lengths[list], &scoped->rooms[list],
                        sizeof(*scoped->lists[list])))
        scoped->lists[list][scoped->lengths[list]++] = (uint16_t)chunk;
}

static void chunk_add(struct xccl_builder *builder, int list, int buffer, int64_t chunk)
{
    const struct xccl_build_scope *scope = builder->scoped.scope;
    const struct xccl_build_side *side = buffer == XCCL_BUFFER_IN ? &scope->in : &scope->out;

    if (buffer == XCCL_BUFFER_ZERO) {
        list_add(builder, list, 0);
    } else if (buffer == XCCL_BUFFER_SCRATCH) {
        int width = width_of(builder);

        for (int i = 0; i < width; i++)
            list_add(builder, list, scope->scratch0 + chunk * scope->nparts + i);
    } else if (side->count == 0) {
        xccl_build_fail(builder, "the scope has no such buffer", buffer);
    } else {
        int c = (int)((chunk % side->count + side->count) % side->count);
        const uint16_t *chunks = side->chunks + side->first[c] + scope->part;

        for (int i = 0; i < length(scope, side, c); i++)
            list_add(builder, list, chunks[i]);
    }
}

static struct xccl_chunks translate(struct xccl_builder *builder, int list,
                                    const struct xccl_chunks *inside)
{
    struct scoped *scoped = &builder->scoped;
    const struct xccl_build_scope *scope = scoped->scope;
    enum xccl_step_buffer buffer = inside->buffer;

    scoped->lengths[list] = 0;
    for (int i = 0; i < inside->count && builder->rc == xcclSuccess; i++)
        chunk_add(builder, list, buffer,
                  inside->list ? inside->list[i] : inside->first + (int64_t)i * inside->stride);
    if (buffer == XCCL_BUFFER_IN || buffer == XCCL_BUFFER_OUT)
        buffer = buffer == XCCL_BUFFER_IN ? scope->in.buffer : scope->out.buffer;
    return (struct xccl_chunks){
        .buffer = buffer, .count = (int)scoped->lengths[list], .list = scoped->lists[list]};
}

/* A copy of memory onto itself, which nobody notices. */
static int copies_nothing(const struct xccl_emit *emit)
{
    const uint8_t copy = XCCL_STEP_SRC | XCCL_STEP_DST;

    return (emit->op & (uint8_t)~XCCL_STEP_SEND) == copy &&
           !(emit->flags & (XCCL_FLAG_PRE | XCCL_FLAG_POST)) &&
           emit->src.buffer == emit->dst.buffer && emit->src.count == emit->dst.count &&
           memcmp(emit->src.list, emit->dst.list,
                  (size_t)emit->src.count * sizeof(*emit->src.list)) == 0;
}

int xccl_scope_step(struct xccl_builder *builder, const struct xccl_emit *inside,
                    struct xccl_emit *emit_out, int *count_out)
{
    const struct scoped *scoped = &builder->scoped;
    int sides = inside->op & (XCCL_STEP_SRC | XCCL_STEP_DST), chunks = 0;

    *emit_out = *inside;
    emit_out->flags &= (uint8_t)~scoped->scope->clear;
    emit_out->rconn += (int)scoped->conn0;
    emit_out->sconn += (int)scoped->conn0;
    if (inside->op & XCCL_STEP_SRC) {
        emit_out->src = translate(builder, 0, &inside->src);
        chunks += emit_out->src.count;
    }
    if (inside->op & XCCL_STEP_DST) {
        emit_out->dst = translate(builder, 1, &inside->dst);
        chunks += emit_out->dst.count;
    }
    *count_out = sides ? chunks : width_of(builder);
    if (builder->rc != xcclSuccess || *count_out == 0)
        return 0;
    if (sides == (XCCL_STEP_SRC | XCCL_STEP_DST) && copies_nothing(emit_out)) {
        emit_out->op &= (uint8_t)~XCCL_STEP_DST;
        return emit_out->op != XCCL_STEP_SRC;
    }
    return 1;
}

/* ---- connections without messages ---- */

static void mark_fan(const struct xccl_schedule_conn *conns, uint32_t nconn, uint32_t first,
                     uint32_t fan, uint8_t *used)
{
    for (uint32_t i = first; i < nconn && i - first < fan; i++) {
        if (fan == UINT32_MAX && conns[i].group != conns[first].group)
            return;
        used[i] = 1;
    }
}

/* The lane's connections, packed from to on, with steps that name the new numbers. */
static uint32_t pack(struct xccl_builder *builder, struct lane *lane, uint32_t to, uint8_t *used,
                     uint16_t *place)
{
    struct xccl_schedule_conn *conns = builder->conns + lane->conn0;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < lane->nsteps; i++) {
        const struct emitted *step = &lane->steps[i];

        if (step->op & XCCL_STEP_RECV)
            mark_fan(conns, lane->nconn, step->rconn,
                     step->nrecv == XCCL_FAN_ALL ? UINT32_MAX : step->nrecv, used);
        if (step->op & XCCL_STEP_SEND)
            mark_fan(conns, lane->nconn, step->sconn,
                     step->nsend == XCCL_FAN_ALL ? UINT32_MAX : step->nsend, used);
    }
    for (uint32_t i = 0; i < lane->nconn; i++) {
        place[i] = (uint16_t)kept;
        if (used[i])
            builder->conns[to + kept++] = conns[i];
    }
    for (uint32_t i = 0; i < lane->nsteps; i++) {
        struct emitted *step = &lane->steps[i];

        if (step->op & XCCL_STEP_RECV)
            step->rconn = place[step->rconn];
        if (step->op & XCCL_STEP_SEND)
            step->sconn = place[step->sconn];
    }
    lane->conn0 = to;
    lane->nconn = kept;
    return kept;
}

/* Connections of a pair of ranks are numbered from 0 on, in the order of the ids that scopes gave
 * them: links have few numbers (transport/shm.h). Both ends come to the same, for what is used at
 * one is used at the other. */
static void number_ids(const struct xccl_builder *builder, uint16_t *ids)
{
    struct xccl_schedule_conn *conns = builder->conns;

    for (uint32_t i = 0; i < builder->nconns; i++) {
        ids[i] = 0;
        for (uint32_t k = 0; k < builder->nconns; k++)
            if (conns[k].peer == conns[i].peer && conns[k].dir == conns[i].dir &&
                conns[k].kind == conns[i].kind && conns[k].id < conns[i].id)
                ids[i]++;
    }
    for (uint32_t i = 0; i < builder->nconns; i++)
        if (conns[i].kind == XCCL_CONN_FIFO)
            conns[i].id = ids[i];
}

void xccl_build_prune(struct xccl_builder *builder)
{
    uint32_t to = 0;
    uint16_t *place;
    uint8_t *used;

    if (builder->rc != xcclSuccess || builder->nconns == 0)
        return;
    place = xccl_calloc(builder->nconns, sizeof(*place) + sizeof(*used));
    if (!place) {
        builder->rc = xcclSystemError;
        return;
    }
    used = (uint8_t *)(place + builder->nconns);
    for (uint32_t i = 0; i < builder->nlanes; i++) {
        uint32_t conn0 = builder->lanes[i].conn0;

        to += pack(builder, &builder->lanes[i], to, used + conn0, place + conn0);
    }
    builder->nconns = to;
    number_ids(builder, place);
    xccl_free(place);
}
