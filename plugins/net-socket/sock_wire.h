/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes on the wire, little endian; the README has the tables. What both ends compute alike is
 * here too: how a message is cut, and which way a line takes. Thread: any. */
#ifndef SOCK_WIRE_H
#define SOCK_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define SOCK_WIRE_VERSION 7
#define SOCK_STREAMS_MAX  8 /* that carry the payload of large messages */
#define SOCK_LINES_MAX    (1 + SOCK_STREAMS_MAX)
#define SOCK_CHUNKS_MAX   1024 /* of one message */
/* Where there are streams, a larger payload is not behind its header but on them. */
#define SOCK_OWN_MAX 4080

#define SOCK_ADDRESS_BYTES 20 /* in a handle */
#define SOCK_HEADER_BYTES  16
#define SOCK_HANDLE_MAGIC  0x48534358u /* "XCSH" */
#define SOCK_HELLO_MAGIC   0x4c534358u /* "XCSL" */
#define SOCK_HEADER_CHECK  0x4d534358u /* "XCSM", xor the message's number */
#define SOCK_SPREAD_CHECK  0x44534358u /* "XCSD", likewise: the payload comes in chunks */

/* On a connection of one line zeroes before a large payload make header, zeroes and payload
 * together a multiple of a unit, which grows with the payload. */
#define SOCK_PADDED_MIN ((size_t)16 << 10)
#define SOCK_PAD_UNIT   64
#define SOCK_HEAD_BYTES (SOCK_HEADER_BYTES + SOCK_PAD_UNIT) /* that, and a header, fit in */
#define SOCK_PAGED_MIN  ((size_t)512 << 10)
#define SOCK_PAGED_UNIT 4096
#define SOCK_WIDE_MIN   ((size_t)2 << 20)
#define SOCK_WIDE_UNIT  8192
#define SOCK_HUGE_MIN   ((size_t)16 << 20)
#define SOCK_HUGE_UNIT  16384

/* On a stream: frames, each a header and what its kind says. */
#define SOCK_FRAME_BYTES 24
#define SOCK_CHUNK_CHECK 0x43534358u /* "XCSC": number of the message, offset, bytes; payload */
#define SOCK_LOST_CHECK  0x58534358u /* "XCSX": lost lines, one bit each; their turns; 0 */
/* "XCSK": 0, offset, bytes; what line 0 would have carried. */
#define SOCK_CONTROL_CHECK 0x4b534358u
#define SOCK_CONTROL_MAX   4096 /* bytes of one such frame */
/* A line that is lost may come again. Each connection of a line has a turn, counted round. */
#define SOCK_TURN_BITS 7
#define SOCK_TURNS     (1u << SOCK_TURN_BITS)

/* From the receiver, on line 0 and one line of each other rail. */
#define SOCK_ACK_BYTES 80
#define SOCK_ACK_CHECK 0x41534358u /* "XCSA" */

/* Zeroes before so many bytes; none before fewer than padded_min. */
static inline size_t sock_pad_bytes(size_t bytes, size_t padded_min)
{
    size_t unit = bytes < SOCK_PAGED_MIN  ? SOCK_PAD_UNIT
                  : bytes < SOCK_WIDE_MIN ? SOCK_PAGED_UNIT
                  : bytes < SOCK_HUGE_MIN ? SOCK_WIDE_UNIT
                                          : SOCK_HUGE_UNIT;

    return bytes < padded_min ? 0 : (0 - bytes - SOCK_HEADER_BYTES) & (unit - 1);
}

/* How a message of so many bytes is cut. */
size_t sock_chunk_bytes(size_t bytes, int stream_count);
/* On which of the receiver's addresses a line is. */
int sock_rail_of(int line, int rail_count);

#endif
