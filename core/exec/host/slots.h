/* SPDX-License-Identifier: BSD-3-Clause */
/* Slots of links, from inside: is there room or a message, where does it lie, publish it, give it
 * back. Written once, as inline functions of the protocol, for all that moves data over links.
 * What lies in shared memory is compared, never used, so a hostile writer can spoil values but
 * never reach beyond a slot. Thread: the holder of the crank. */
#ifndef XCCL_EXEC_HOST_SLOTS_H
#define XCCL_EXEC_HOST_SLOTS_H

#include <errno.h>

#include "base/error.h"
#include "exec/exec.h"
#include "transport/peer_memory.h"

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

/* Has the next slot been written, whatever it holds? */
INLINE int has_come(const struct xccl_link *link)
{
    const struct xccl_slot_header *header = (const void *)slot_header(link);

    /* Acquire: payload and size were stored before the flag. Pairs with send_done(). */
    return atomic_load_explicit(&header->flag, memory_order_acquire) >> 32 == link->step + 1;
}

/* And does it say that it is this message? */
INLINE int is_this(const struct xccl_run *run, const struct xccl_link *link, size_t bytes)
{
    const struct xccl_slot_header *header = (const void *)slot_header(link);

    /* Relaxed: pairs with has_come() before it. */
    return atomic_load_explicit(&header->flag, memory_order_relaxed) == flag_of(run, link) &&
           header->bytes == bytes;
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

/* place: where the payload has stayed; 0: it is in the slot, or offered. */
INLINE void publish(const struct xccl_run *run, struct xccl_link *link, size_t bytes,
                    uint64_t place)
{
    struct xccl_slot_header *header = (void *)slot_header(link);

    header->bytes = (uint32_t)bytes;
    /* Relaxed: the flag publishes it. */
    atomic_store_explicit(&header->place, place, memory_order_relaxed);
    /* Release: payload and size before the flag. Pairs with recv_ready(). */
    atomic_store_explicit(&header->flag, flag_of(run, link), memory_order_release);
    link_advance(link);
}

INLINE void send_done(const struct xccl_run *run, struct xccl_link *link, size_t bytes)
{
    publish(run, link, bytes, 0);
}

/* --- messages that stay where they are (transport/reach.h) --- */

/* NULL: the slot's own payload counts. */
INLINE void offer(const struct xccl_link *link, const struct xccl_reach *reach, const char *at)
{
    /* Relaxed: the flag publishes it. */
    if (reach && reach->offers)
        atomic_store_explicit(&reach->offers[link->slot].at, at, memory_order_relaxed);
}

/* 1: such bytes stay in private memory; place: where they lie in the arena, 0 outside of it. */
INLINE int goes_by_address(const struct xccl_run *run, const struct xccl_reach *reach,
                           uint64_t place, size_t bytes)
{
    return !(place && reach->takes_places) && !reach->offers && reach->takes_addresses &&
           run->by_address && bytes >= reach->address_min;
}

/* Sends bytes that nobody writes before they have been read: place is where they lie in the arena,
 * 0 outside of it. 0: it has to be copied. */
INLINE int send_in_place(struct xccl_run *run, struct xccl_link *link, struct xccl_reach *reach,
                         uint64_t place, const char *from, size_t bytes)
{
    if (place && reach->takes_places)
        from = NULL;
    else if (reach->offers)
        place = 0;
    else if (goes_by_address(run, reach, place, bytes))
        place = XCCL_PLACE_ADDRESS | (uint64_t)(uintptr_t)from;
    else
        return 0;
    offer(link, reach, from);
    publish(run, link, bytes, place);
    reach->last = link->step;
    reach->is_open = 1;
    run->offers = 1;
    return 1;
}

/* The slot to copy a message into; the message is not offered in place. */
INLINE char *slot_to_fill(const struct xccl_link *link, const struct xccl_reach *reach)
{
    offer(link, reach, NULL);
    return slot_payload(link);
}

/* Around the reading of a message that may be offered. 0: it is not any more. */
INLINE int begin_reading(const struct xccl_link *link, struct xccl_reach *reach)
{
    struct xccl_offer *at = reach && reach->offers ? &reach->offers[link->slot] : NULL;

    if (!at)
        return 1;
    /* Sequentially consistent, both: whoever revokes sees this reader, or this reader sees that.
     * Pairs with xccl_reach_revoke(). */
    atomic_fetch_add_explicit(&at->readers, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&at->at, memory_order_seq_cst) != XCCL_OFFER_REVOKED)
        return 1;
    atomic_fetch_sub_explicit(&at->readers, 1, memory_order_release);
    return 0;
}

INLINE void end_reading(const struct xccl_link *link, struct xccl_reach *reach)
{
    /* Release: the reading before it. Pairs with xccl_reach_revoke(). */
    if (reach && reach->offers)
        atomic_fetch_sub_explicit(&reach->offers[link->slot].readers, 1, memory_order_release);
}

INLINE void see_readers_of(const struct xccl_link *link, const struct xccl_reach *reach)
{
    /* Acquire: pairs with end_reading(). */
    for (uint32_t i = 0; reach->offers && i < link->nslots; i++)
        (void)atomic_load_explicit(&reach->offers[i].readers, memory_order_acquire);
}

/* Of the memory of another process; NULL `to`: into the room. NULL: the sender has taken it back,
 * and says why by other ways; or, with the run's error, it cannot be read. */
static __attribute__((noinline)) const char *read_peer(struct xccl_run *run,
                                                       const struct xccl_link *link,
                                                       const struct xccl_reach *reach,
                                                       uint64_t place, size_t bytes, char *to)
{
    const struct xccl_slot_header *header = (const void *)slot_header(link);
    int is_read;

    if (!to)
        to = reach->room;
    if (place == XCCL_PLACE_REVOKED)
        return NULL;
    is_read = xccl_peer_read(reach->pid, to, place & ~XCCL_PLACE_ADDRESS, bytes);
    /* Acquire: what the program has written there since would come with its revocation. Pairs with
     * xccl_reach_revoke(). */
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&header->place, memory_order_relaxed) == XCCL_PLACE_REVOKED)
        return NULL;
    if (is_read)
        return to;
    run->rc = xccl_fail_quietly(xcclRemoteError, errno,
                                "if it is no ordinary memory, set XCCL_PEER_MEMORY=off",
                                "its memory cannot be read");
    run->bad_peer = link->peer;
    return NULL;
}

/* Where the bytes of the message at hand lie. to: where they are to be, or NULL; some can be put
 * there at once. NULL: it is not to be had. */
INLINE const char *message_at(struct xccl_run *run, const struct xccl_link *link,
                              const struct xccl_reach *reach, size_t bytes, char *to)
{
    const struct xccl_slot_header *header = (const void *)slot_header(link);
    const char *offered = NULL;
    uint64_t place, offset;

    if (!reach)
        return slot_payload(link);
    /* Relaxed: the reading has begun. */
    if (reach->offers)
        offered = atomic_load_explicit(&reach->offers[link->slot].at, memory_order_relaxed);
    if (offered)
        return offered;
    /* Relaxed: read once, since it is checked; it came before the flag. */
    place = atomic_load_explicit(&header->place, memory_order_relaxed);
    if (place & XCCL_PLACE_ADDRESS && reach->pid)
        return read_peer(run, link, reach, place, bytes, to);
    offset = place - 1;
    if (!reach->arena || offset >= reach->arena_bytes || bytes > reach->arena_bytes - offset)
        return slot_payload(link);
    return reach->arena + offset;
}

/* Has everything been read that has stayed here? */
INLINE int is_read(struct xccl_link *link, struct xccl_reach *reach)
{
    if (reach->is_open && (int32_t)(slowest_head(link) - reach->last) >= 0)
        reach->is_open = 0;
    return !reach->is_open;
}

INLINE void send_lines(const struct xccl_run *run, struct xccl_link *link, const char *from,
                       size_t bytes)
{
    uint64_t flag = flag_of(run, link);
    char *line = slot_header(link);

    for (size_t at = 0; at == 0 || at < bytes; at += XCCL_LINE_DATA, line += XCCL_LINE_BYTES) {
        size_t here = bytes - at < XCCL_LINE_DATA ? bytes - at : XCCL_LINE_DATA;

        if (here)
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
