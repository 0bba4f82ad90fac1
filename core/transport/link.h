/* SPDX-License-Identifier: BSD-3-Clause */
/* A link: one end of one directed connection on a channel, as the executor sees it. A ring of slots
 * with ever-growing step numbers. The writer may write step s when s < head + slots; slot s holds a
 * message when its flag word is (s + 1) << 32 | signature. Shared memory and network look the same:
 * over a network the slots are private and the proxy stands in for the other end, on the same
 * thread.
 *
 * Thread: the holder of the communicator's crank. Only flag words and heads are shared. */
#ifndef XCCL_TRANSPORT_LINK_H
#define XCCL_TRANSPORT_LINK_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define XCCL_LINE_BYTES      64
#define XCCL_LINE_DATA       56 /* the last 8 bytes of a line are its flag word */
#define XCCL_HEAD_STRIDE     128 /* each reader's head on lines of its own: no false sharing */
#define XCCL_LINES_MAX_BYTES 224
#define XCCL_SMALL_MAX_BYTES 8192
#define XCCL_SLOTS_MAX       5 /* that a schedule may ask for: every FIFO offers as many */

/* How messages lie in slots. */
enum xccl_proto {
    XCCL_PROTO_LINES, /* lines of 56 B data and 8 B flag */
    XCCL_PROTO_SMALL, /* a header line directly before the payload */
    XCCL_PROTO_SLICES, /* headers in an array, payload page-aligned */
    XCCL_PROTO_NAMED, /* so many may be chosen; what follows is used where those need too much */
    XCCL_PROTO_TIGHT =
        XCCL_PROTO_NAMED, /* like slices, few and small: for links of everybody with everybody */
    XCCL_PROTO_COUNT
};

/* At the start of a slot (SMALL) or in the header array (SLICES). */
struct xccl_slot_header {
    _Atomic uint64_t
        flag; /* release by the writer after payload and bytes; acquire by the reader */
    uint32_t bytes; /* evidence for error texts; compared, never used as a length */
    uint32_t reserved;
    _Atomic uint64_t
        place; /* SLICES: where the payload has stayed (reach.h); 0: it is in the slot */
    uint32_t unused[10];
};
static_assert(sizeof(struct xccl_slot_header) == XCCL_LINE_BYTES, "a slot header is one line");

struct xccl_link {
    char *header; /* slot 0's header; LINES: slot 0's first line */
    char *payload; /* slot 0's payload; LINES: the same as header */
    uint32_t header_stride, payload_stride;
    uint32_t nslots;
    uint32_t slot; /* step % nslots, kept by wrapping */
    uint32_t step; /* messages written (writer) or taken (reader) so far; wraps */
    uint32_t limit; /* writer: step may be written while step - limit is negative */
    /* Writer: the first reader's head; reader: its own. heads[i * XCCL_HEAD_STRIDE / 4] is reader
     * i. */
    _Atomic uint32_t *heads;
    uint16_t nheads; /* writer: readers; 1 on a FIFO */
    uint16_t own_head; /* writer of a multicast: its own entry among the heads, to be skipped */
    uint16_t peer; /* rank at the other end; the writer of a multicast: itself */
    uint16_t published; /* reader: step % 65536 at the last head store */
    uint32_t slot_bytes; /* payload that fits */
    uint16_t lag; /* reader: heads are published for so many slots at a time */
    uint16_t reserved;
};
static_assert(sizeof(struct xccl_link) <= 64, "one link, one line");

/* Slots that a schedule may count on: the reader's lag uses up the others. */
static inline uint32_t xccl_link_slots(const struct xccl_link *link)
{
    return link->nslots - link->lag + 1u;
}

#endif
