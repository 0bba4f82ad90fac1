/* SPDX-License-Identifier: BSD-3-Clause */
/* Slots of links, from inside: is there room or a message, where does it lie, publish it, give it
 * back. Written once, as inline functions of the protocol, for all that moves data over links.
 * What lies in shared memory is compared, never used, so a hostile writer can spoil values but
 * never reach beyond a slot. Thread: the holder of the crank. */
#ifndef XCCL_EXEC_HOST_SLOTS_H
#define XCCL_EXEC_HOST_SLOTS_H

#include "exec/exec.h"

#define INLINE static inline __attribute__((always_inline))

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

static __attribute__((noinline, cold)) int wrong_size(struct xccl_run *run,
                                                      const struct xccl_link *link)
{
    run->other_size = 1;
    return wrong_call(run, link);
}

/* Has the next message come? Equal upper halves with different lower ones: another call's. */
INLINE int recv_ready(struct xccl_run *run, struct xccl_link *link, enum xccl_proto proto,
                      size_t bytes)
{
    uint64_t want = flag_of(run, link), seen;
    const char *at = slot_header(link);

    if (proto == XCCL_PROTO_LINES) {
        uint64_t differ = 0;

        /* Acquire: the line's data was stored before its flag. Pairs with send_lines(). A message
         * without data is one line. */
        for (size_t line = 0; line == 0 || line * XCCL_LINE_DATA < bytes; line++)
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
            return header->bytes == bytes ? 1 : wrong_size(run, link);
    }
    return seen >> 32 == want >> 32 && seen != want ? wrong_call(run, link) : 0;
}

INLINE void send_done(const struct xccl_run *run, struct xccl_link *link, size_t bytes)
{
    struct xccl_slot_header *header = (void *)slot_header(link);

    header->bytes = (uint32_t)bytes;
    /* Release: payload and size before the flag. Pairs with recv_ready(). */
    atomic_store_explicit(&header->flag, flag_of(run, link), memory_order_release);
    link_advance(link);
}

/* Gives the slot back. Where there are many, the head is published for several at a time. */
INLINE void recv_done(struct xccl_link *link)
{
    link_advance(link);
    if ((uint16_t)((uint16_t)link->step - link->published) < link->lag)
        return;
    link->published = (uint16_t)link->step;
    /* Release: this reader's loads from the slot before its head. Pairs with slowest_head(). */
    atomic_store_explicit(link->heads, link->step, memory_order_release);
}

#endif
