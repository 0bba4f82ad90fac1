/* SPDX-License-Identifier: BSD-3-Clause */
/* Folds what was emitted into affine records, in two ways: the chunks of one step into hops (cnt,
 * cstride, run), or an index list where they have no such order; and steps that follow one another
 * and differ by the same numbers of chunks and connections into occurrences of one record.
 *
 * Greedy: a record grows as long as the next step fits. That is the least for the loops that
 * algorithms have. Thread: as builder.h. */
#include "schedule/builder_int.h"
#include "schedule/decode.h"

/* How the chunks of one side lie. */
struct hops {
    int affine;
    int32_t stride, run;
};

/* Chunks of IN and OUT count modulo their number, those of scratch memory do not go round. */
static int32_t modulus(const struct xccl_builder *builder, int buffer)
{
    return buffer == XCCL_BUFFER_SCRATCH ? 0 : (int32_t)xccl_build_size(builder, buffer);
}

/* From one chunk to another, the short way round. */
static int32_t way(int32_t from, int32_t to, int32_t size)
{
    int32_t delta = to - from;

    if (size == 0)
        return delta;
    delta %= size;
    if (delta > size / 2)
        delta -= size;
    else if (delta < -((size - 1) / 2))
        delta += size;
    return delta;
}

static int same(int32_t chunk, int64_t at, int32_t size)
{
    return size ? (chunk - at) % size == 0 : chunk == at;
}

static int fits(const uint16_t *chunks, uint32_t cnt, int32_t size, const struct hops *hops)
{
    for (uint32_t j = 0; j < cnt; j++) {
        int64_t at = chunks[0] + (int64_t)(j / (uint32_t)hops->run) * hops->stride +
                     j % (uint32_t)hops->run;

        if (!same(chunks[j], at, size))
            return 0;
    }
    return hops->stride >= INT16_MIN && hops->stride <= INT16_MAX;
}

static struct hops hops_of(const uint16_t *chunks, uint32_t cnt, int32_t size)
{
    struct hops hops = {.affine = 1, .run = 1};

    if (cnt == 1)
        return hops;
    hops.stride = way(chunks[0], chunks[1], size);
    if (fits(chunks, cnt, size, &hops))
        return hops;
    while ((uint32_t)hops.run < cnt && same(chunks[hops.run], chunks[0] + hops.run, size))
        hops.run++;
    if ((uint32_t)hops.run < cnt)
        hops.stride = way(chunks[0], chunks[hops.run], size);
    hops.affine = fits(chunks, cnt, size, &hops);
    return hops;
}

/* Where the chunks begin in the index list. */
static uint16_t list_add(struct xccl_builder *builder, const uint16_t *chunks, uint32_t cnt)
{
    uint16_t at = (uint16_t)builder->nlist;

    for (uint32_t j = 0; j < cnt; j++)
        if (xccl_build_grow(builder, &builder->list, builder->nlist, &builder->list_room,
                            sizeof(*builder->list)))
            builder->list[builder->nlist++] = chunks[j];
    return at;
}

/* One step as a record of its own. */
static struct xccl_step record_of(struct xccl_builder *builder, const struct emitted *step)
{
    const uint16_t *src = builder->pool + step->src, *dst = builder->pool + step->dst;
    struct hops src_hops = {.affine = 1, .run = 1}, dst_hops = src_hops, *hops = &dst_hops;
    struct xccl_step record = {.op = step->op,
                               .bufs = XCCL_STEP_BUFS(step->src_buffer, step->dst_buffer),
                               .fan = XCCL_STEP_FAN(step->nrecv, step->nsend),
                               .flags = step->flags | XCCL_FLAG_WAITS(step->nwaits),
                               .rconn = step->rconn,
                               .sconn = step->sconn,
                               .cnt = step->cnt,
                               .rep = 1,
                               .wait = step->wait,
                               .sig = step->sig};

    if (step->op & XCCL_STEP_SRC)
        src_hops = hops_of(src, step->cnt, modulus(builder, step->src_buffer));
    if (step->op & XCCL_STEP_DST)
        dst_hops = hops_of(dst, step->cnt, modulus(builder, step->dst_buffer));
    if ((step->op & XCCL_STEP_SRC) && src_hops.affine &&
        (!(step->op & XCCL_STEP_DST) || !dst_hops.affine))
        hops = &src_hops;
    record.cstride = (int16_t)(hops->affine ? hops->stride : 0);
    record.run = (uint16_t)(hops->affine ? hops->run : 1);
    if (step->op & XCCL_STEP_SRC) {
        record.src = src[0];
        if (!src_hops.affine || src_hops.stride != record.cstride || src_hops.run != record.run) {
            record.bufs |= XCCL_STEP_SRC_LIST;
            record.src = list_add(builder, src, step->cnt);
        }
    }
    if (step->op & XCCL_STEP_DST) {
        record.dst = dst[0];
        if (!dst_hops.affine) {
            record.bufs |= XCCL_STEP_DST_LIST;
            record.dst = list_add(builder, dst, step->cnt);
        }
    }
    return record;
}

/* What the last occurrence of a record began with. */
struct last {
    int32_t src, dst, rconn, sconn;
};

/* The differences between two occurrences; 0 when there is no single one of connections. */
static int deltas(const struct xccl_builder *builder, const struct xccl_step *next,
                  const struct last *last, struct last *by)
{
    *by = (struct last){0};
    if (next->op & XCCL_STEP_SRC)
        by->src = way(last->src, next->src, modulus(builder, next->bufs & 3));
    if (next->op & XCCL_STEP_DST)
        by->dst = way(last->dst, next->dst, modulus(builder, next->bufs >> 2 & 3));
    if (next->op & XCCL_STEP_RECV)
        by->rconn = next->rconn - last->rconn;
    if (next->op & XCCL_STEP_SEND)
        by->sconn = next->sconn - last->sconn;
    if ((next->op & XCCL_STEP_RECV) && (next->op & XCCL_STEP_SEND) && by->rconn != by->sconn)
        return 0;
    if (!(next->op & XCCL_STEP_RECV))
        by->rconn = by->sconn;
    return by->src >= INT16_MIN && by->src <= INT16_MAX && by->dst >= INT16_MIN &&
           by->dst <= INT16_MAX && by->rconn >= INT16_MIN && by->rconn <= INT16_MAX;
}

static int alike(const struct xccl_step *a, const struct xccl_step *b)
{
    return a->op == b->op && a->bufs == b->bufs && a->fan == b->fan && a->flags == b->flags &&
           a->cnt == b->cnt && a->cstride == b->cstride && a->run == b->run &&
           !(a->bufs & (XCCL_STEP_SRC_LIST | XCCL_STEP_DST_LIST)) &&
           !(a->flags & (XCCL_FLAG_SIGNAL | XCCL_FLAG_ORDERED | XCCL_FLAG_WAITS(3)));
}

/* 1: next has become one more occurrence of record. */
static int join(const struct xccl_builder *builder, struct xccl_step *record, struct last *last,
                const struct xccl_step *next)
{
    struct last by;

    if (!alike(record, next) || record->rep == UINT16_MAX || !deltas(builder, next, last, &by))
        return 0;
    if (record->rep == 1) {
        record->dsrc = (int16_t)by.src;
        record->ddst = (int16_t)by.dst;
        record->dconn = (int16_t)by.rconn;
    } else if (record->dsrc != by.src || record->ddst != by.dst || record->dconn != by.rconn) {
        return 0;
    }
    record->rep++;
    *last = (struct last){next->src, next->dst, next->rconn, next->sconn};
    return 1;
}

void xccl_build_fold(struct xccl_builder *builder, const struct lane *lane)
{
    struct xccl_step *record = NULL;
    struct last last = {0};

    for (uint32_t i = 0; i < lane->nsteps && builder->rc == xcclSuccess; i++) {
        const struct emitted *step = &lane->steps[i];
        struct xccl_step next = record_of(builder, step);
        int apart = step->begins && (step->op & XCCL_STEP_XCHG);

        if (record && !apart && join(builder, record, &last, &next))
            continue;
        if (!xccl_build_grow(builder, &builder->folded, builder->nfolded, &builder->folded_room,
                             sizeof(*builder->folded)))
            return;
        record = &builder->folded[builder->nfolded++];
        *record = next;
        last = (struct last){next.src, next.dst, next.rconn, next.sconn};
    }
}

/* ---- the proof ---- */

static int event_same(const struct xccl_builder *builder, const struct xccl_schedule *schedule,
                      uint32_t lane, const struct emitted *step, const struct xccl_event *event,
                      uint32_t j)
{
    const struct xccl_step *record = event->step;
    uint32_t conn0 = schedule->lanes[lane].conn0;

    if (record->op != step->op || record->cnt != step->cnt || (record->fan & 15) != step->nrecv ||
        record->fan >> 4 != step->nsend ||
        record->flags != (step->flags | XCCL_FLAG_WAITS(step->nwaits)))
        return 0;
    if ((step->op & XCCL_STEP_SRC) &&
        ((record->bufs & 3) != step->src_buffer || event->src != builder->pool[step->src + j]))
        return 0;
    if ((step->op & XCCL_STEP_DST) &&
        ((record->bufs >> 2 & 3) != step->dst_buffer || event->dst != builder->pool[step->dst + j]))
        return 0;
    if ((step->op & XCCL_STEP_RECV) && event->rconn != conn0 + step->rconn)
        return 0;
    if ((step->op & XCCL_STEP_SEND) && event->sconn != conn0 + step->sconn)
        return 0;
    return step->nwaits == 0 || record->wait == step->wait;
}

int xccl_build_says_the_same(const struct xccl_builder *builder, uint32_t lane,
                             const struct xccl_schedule *schedule)
{
    const struct xccl_schedule_lane *of = &schedule->lanes[lane];
    const struct lane *emitted = &builder->lanes[lane];
    uint32_t at = 0;

    for (uint32_t i = 0; i < of->nstep; i++) {
        const struct xccl_step *record = &schedule->steps[of->step0 + i];

        for (uint32_t occ = 0; occ < record->rep; occ++, at++) {
            if (at == emitted->nsteps)
                return 0;
            for (uint32_t j = 0; j < record->cnt; j++) {
                struct xccl_event event;

                xccl_event_decode(schedule, lane, record, occ, j, &event);
                if (!event_same(builder, schedule, lane, &emitted->steps[at], &event, j))
                    return 0;
            }
        }
    }
    return at == emitted->nsteps;
}
