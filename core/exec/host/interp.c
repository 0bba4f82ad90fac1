/* SPDX-License-Identifier: BSD-3-Clause */
/* One slice of one step: are there credits and messages? move the bytes; publish; advance the
 * cursor. Written once as an inline function of the protocol. Lengths and offsets come from the own
 * plan only; what lies in shared memory is compared, never used, so a hostile writer can spoil
 * values but never reach beyond a slot. Thread: the holder of the crank. */
#include "exec/host/interp.h"

#define INLINE static inline __attribute__((always_inline))

/* One slice on its way: where it comes from and goes to. */
struct slice {
    const struct xccl_step *step;
    struct xccl_link *const *recv, *const *send; /* the fans */
    uint32_t nrecv, nsend;
    size_t bytes;
    const char *src;
    char *dst;
};

INLINE uint64_t flag_of(const struct xccl_run *run, const struct xccl_link *link)
{
    return (uint64_t)(link->step + 1) << 32 | run->flag_low;
}

INLINE char *slot_header(const struct xccl_link *link)
{
    return link->header + (size_t)link->slot * link->header_stride;
}

INLINE char *slot_payload(const struct xccl_link *link)
{
    return link->payload + (size_t)link->slot * link->payload_stride;
}

INLINE void link_advance(struct xccl_link *link)
{
    link->step++;
    if (++link->slot == link->nslots)
        link->slot = 0;
}

/* How far the slowest reader is. */
static uint32_t slowest_head(const struct xccl_link *link)
{
    uint32_t least = link->step;

    for (uint32_t i = 0; i < link->nheads; i++) {
        uint32_t head;

        if (i == link->own_head)
            continue;
        /* Acquire: the reader's loads from the slot come before its head. Pairs with recv_done().
         */
        head = atomic_load_explicit(link->heads + i * (XCCL_HEAD_STRIDE / sizeof *link->heads),
                                    memory_order_acquire);
        if ((int32_t)(head - least) < 0)
            least = head;
    }
    return least;
}

/* May the next slot be written? Heads are read only when the known limit is used up. */
INLINE int send_ready(struct xccl_link *link)
{
    if (__builtin_expect((int32_t)(link->step - link->limit) < 0, 1))
        return 1;
    link->limit = slowest_head(link) + link->nslots;
    return (int32_t)(link->step - link->limit) < 0;
}

static __attribute__((noinline, cold)) int wrong_call(struct xccl_run *run,
                                                      const struct xccl_link *link)
{
    run->rc = xcclInvalidUsage;
    run->bad_peer = link->peer;
    run->bad_link = link;
    return 0;
}

/* Has the next message come? Equal upper halves with different lower ones: another call's. */
INLINE int recv_ready(struct xccl_run *run, struct xccl_link *link, enum xccl_proto proto,
                      size_t bytes)
{
    uint64_t want = flag_of(run, link), seen;
    const char *at = slot_header(link);

    if (proto == XCCL_PROTO_LINES) {
        uint64_t differ = 0;

        /* Acquire: the line's data was stored before its flag. Pairs with send_lines(). */
        for (size_t line = 0; line * XCCL_LINE_DATA < bytes; line++)
            differ |= want ^
                      atomic_load_explicit(
                          (const _Atomic uint64_t *)(const void *)(at + line * XCCL_LINE_BYTES +
                                                                   XCCL_LINE_DATA),
                          memory_order_acquire);
        if (__builtin_expect(!differ, 1))
            return 1;
        seen = atomic_load_explicit((const _Atomic uint64_t *)(const void *)(at + XCCL_LINE_DATA),
                                    memory_order_relaxed);
    } else {
        const struct xccl_slot_header *header = (const void *)at;

        /* Acquire: payload and size were stored before the flag. Pairs with send_done(). */
        seen = atomic_load_explicit(&header->flag, memory_order_acquire);
        if (__builtin_expect(seen == want, 1))
            return header->bytes == bytes ? 1 : wrong_call(run, link);
    }
    return seen >> 32 == want >> 32 && seen != want ? wrong_call(run, link) : 0;
}

INLINE void send_lines(const struct xccl_run *run, struct xccl_link *link, const char *from,
                       size_t bytes)
{
    uint64_t flag = flag_of(run, link);
    char *line = slot_header(link);

    for (size_t at = 0; at < bytes; at += XCCL_LINE_DATA, line += XCCL_LINE_BYTES) {
        size_t here = bytes - at < XCCL_LINE_DATA ? bytes - at : XCCL_LINE_DATA;

        memcpy(line, from + at, here);
        /* Release: the line's data before its flag. Pairs with recv_ready(). */
        atomic_store_explicit((_Atomic uint64_t *)(void *)(line + XCCL_LINE_DATA), flag,
                              memory_order_release);
    }
    link_advance(link);
}

INLINE void gather_lines(const struct xccl_link *link, char *to, size_t bytes)
{
    const char *line = slot_header(link);

    for (size_t at = 0; at < bytes; at += XCCL_LINE_DATA, line += XCCL_LINE_BYTES)
        memcpy(to + at, line, bytes - at < XCCL_LINE_DATA ? bytes - at : XCCL_LINE_DATA);
}

INLINE void send_done(const struct xccl_run *run, struct xccl_link *link, size_t bytes)
{
    struct xccl_slot_header *header = (void *)slot_header(link);

    header->bytes = (uint32_t)bytes;
    /* Release: payload and size before the flag. Pairs with recv_ready(). */
    atomic_store_explicit(&header->flag, flag_of(run, link), memory_order_release);
    link_advance(link);
}

/* Gives the slot back. With four slots or more the head is published for half of them at a time. */
INLINE void recv_done(struct xccl_link *link)
{
    uint16_t lag = link->nslots > 3 ? (uint16_t)(link->nslots / 2) : 1;

    link_advance(link);
    if ((uint16_t)((uint16_t)link->step - link->published) < lag)
        return;
    link->published = (uint16_t)link->step;
    /* Release: this reader's loads from the slot before its head. Pairs with slowest_head(). */
    atomic_store_explicit(link->heads, link->step, memory_order_release);
}

INLINE void send_all(const struct xccl_run *run, const struct slice *slice, enum xccl_proto proto,
                     const char *from)
{
    for (uint32_t i = 0; i < slice->nsend; i++) {
        if (proto == XCCL_PROTO_LINES) {
            send_lines(run, slice->send[i], from, slice->bytes);
            continue;
        }
        xccl_fill(slot_payload(slice->send[i]), from, slice->bytes);
        send_done(run, slice->send[i], slice->bytes);
    }
}

/* The messages, and the own source at its place in rank order (or first), as parts to add up. Lines
 * are gathered into room first. Returns how many parts. */
INLINE unsigned collect(const struct xccl_run *run, const struct slice *slice,
                        enum xccl_proto proto, char *room, const void **parts)
{
    int own_left = (slice->step->op & XCCL_STEP_SRC) != 0;
    int ordered = (slice->step->flags & XCCL_FLAG_ORDERED) != 0;
    uint32_t rank = run->plan->binding->schedule->rank;
    unsigned count = 0;

    for (uint32_t i = 0; i < slice->nrecv; i++) {
        const struct xccl_link *link = slice->recv[i];

        if (own_left && (!ordered || link->peer > rank)) {
            parts[count++] = slice->src;
            own_left = 0;
        }
        if (proto == XCCL_PROTO_LINES) {
            gather_lines(link, room, slice->bytes);
            parts[count++] = room;
            room += XCCL_LINES_MAX_BYTES;
        } else {
            parts[count++] = slot_payload(link);
        }
    }
    if (own_left)
        parts[count++] = slice->src;
    return count;
}

/* Receive, combine, store, send. A value that is both stored and sent is made in the destination
 * and copied to the slot from there; one that is only sent is made in the slot, and only when there
 * is one receiver: no schedule sends a sum to many without storing it. */
INLINE void combine(struct xccl_run *run, const struct slice *slice, enum xccl_proto proto)
{
    _Alignas(64) char room[XCCL_ONESHOT_MAX_RANKS * XCCL_LINES_MAX_BYTES]; /* lines only */
    _Alignas(64) char line_sum[XCCL_LINES_MAX_BYTES];
    const void *parts[XCCL_ONESHOT_MAX_RANKS];
    const struct xccl_plan *plan = run->plan;
    unsigned count = collect(run, slice, proto, room, parts);
    int to_slot = slice->nsend && !slice->dst && proto != XCCL_PROTO_LINES;
    char *to = slice->dst ? slice->dst : to_slot ? slot_payload(slice->send[0]) : line_sum;

    if (count > 1)
        xccl_reduce_many(plan->reduce, plan->elem_bytes, to, parts, count,
                         slice->bytes / plan->elem_bytes);
    else
        xccl_fill(to, parts[0], slice->bytes);
    if (to_slot)
        send_done(run, slice->send[0], slice->bytes);
    else if (slice->nsend)
        send_all(run, slice, proto, to);
    for (uint32_t i = 0; i < slice->nrecv; i++)
        recv_done(slice->recv[i]);
}

INLINE void local(struct xccl_run *run, const struct slice *slice, enum xccl_proto proto)
{
    if (slice->dst && slice->src && slice->dst != slice->src)
        memcpy(slice->dst, slice->src, slice->bytes);
    send_all(run, slice, proto, slice->src);
}

/* To the next slice: chunks of an occurrence, occurrences of a step, steps of a tile, tiles. */
INLINE void lane_advance(struct xccl_run *run, struct xccl_run_lane *lane)
{
    const struct xccl_step *step = lane->step;
    uint32_t nchunks = run->plan->binding->schedule->nchunks;

    if (++lane->occurrence < step->rep) {
        lane->src = xccl_chunk_add(lane->src, step->dsrc, nchunks);
        lane->dst = xccl_chunk_add(lane->dst, step->ddst, nchunks);
        return;
    }
    lane->occurrence = 0;
    if (++lane->step == lane->end) {
        lane->step = lane->first;
        if (++lane->tile == run->plan->tiles) {
            lane->done = 1;
            run->lanes_left--;
            return;
        }
    }
    lane->src = lane->step->src;
    lane->dst = lane->step->dst;
}

INLINE struct slice slice_now(const struct xccl_run *run, const struct xccl_run_lane *lane)
{
    const struct xccl_step *step = lane->step;
    const struct xccl_binding *binding = run->plan->binding;
    int has_dst = (step->op & XCCL_STEP_DST) != 0, has_src = (step->op & XCCL_STEP_SRC) != 0;
    size_t tile_offset = (size_t)lane->tile * run->plan->slice_bytes;
    uint32_t shift = lane->occurrence * (uint32_t)step->dconn;
    struct xccl_fan fan = binding->fans[step - binding->schedule->steps];

    return (struct slice){
        .step = step,
        .recv = binding->links + step->rconn + shift,
        .send = binding->links + step->sconn + shift,
        .nrecv = fan.nrecv,
        .nsend = fan.nsend,
        .bytes = xccl_slice_bytes(run->plan, has_src ? lane->src : lane->dst, lane->tile),
        .src = has_src ? run->in + lane->src * run->plan->chunk_bytes + tile_offset : NULL,
        .dst = has_dst ? run->out + lane->dst * run->plan->chunk_bytes + tile_offset : NULL,
    };
}

INLINE int lane_move(struct xccl_run *run, struct xccl_run_lane *lane, enum xccl_proto proto)
{
    struct slice slice = slice_now(run, lane);

    if (slice.bytes) {
        for (uint32_t i = 0; i < slice.nsend; i++)
            if (!send_ready(slice.send[i]))
                return 0;
        for (uint32_t i = 0; i < slice.nrecv; i++)
            if (!recv_ready(run, slice.recv[i], proto, slice.bytes))
                return 0;
        if (slice.nrecv)
            combine(run, &slice, proto);
        else
            local(run, &slice, proto);
    }
    lane_advance(run, lane);
    return 1;
}

int xccl_interp_lines(struct xccl_run *run, struct xccl_run_lane *lane)
{
    return lane_move(run, lane, XCCL_PROTO_LINES);
}

int xccl_interp_small(struct xccl_run *run, struct xccl_run_lane *lane)
{
    return lane_move(run, lane, XCCL_PROTO_SMALL);
}

int xccl_interp_slices(struct xccl_run *run, struct xccl_run_lane *lane)
{
    return lane_move(run, lane, XCCL_PROTO_SLICES);
}
