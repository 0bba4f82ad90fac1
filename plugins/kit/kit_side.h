/* SPDX-License-Identifier: BSD-3-Clause */
/* The side channel of a comm that is up: sealed notes of a fixed size, which the plugin encodes and
 * keeps room for, and how it shows that the peer has gone. What comes first is the last word; what
 * is said goes out when the socket takes it, with a later call if need be.
 *
 * Thread: one at a time a channel. Nothing here waits, allocates, locks or logs. */
#ifndef KIT_SIDE_H
#define KIT_SIDE_H

#include <stddef.h>
#include <stdint.h>

#include "kit/kit_proof.h"

struct kit_side {
    int fd; /* -1: none */
    int has_ended; /* nothing comes any more */
    int err; /* the way's first error, of either direction, for the kernel tells each once; 0: none,
                so it is the peer that has closed or died */
    uint32_t in_bytes, out_bytes; /* that have come and are not dealt with, that wait to go */
    int is_open; /* the first note of in: its seal was right */
    struct kit_proof proof; /* of the connection: what seals the notes */
};
#define KIT_SEALED(note_bytes) ((note_bytes) + KIT_SEAL_BYTES) /* room for one */

/* Closes the channel, and wipes the keys of its notes. */
void kit_side_close(struct kit_side *side);
/* Reads what has come, behind the in_bytes that are there. */
void kit_side_read(struct kit_side *side, uint8_t *in, size_t room);
/* Of out what the socket takes; the rest is moved to the front. */
void kit_side_write(struct kit_side *side, uint8_t *out);
/* The first note of in. 1: it is whole, and right; its bytes are at in. 0: not yet. -1: it was
 * altered, or is not the peer's. */
int kit_side_note(struct kit_side *side, uint8_t *in, size_t note_bytes);
/* Drops the first note, which was dealt with. */
void kit_side_next(struct kit_side *side, uint8_t *in, size_t note_bytes);
/* 1: this is the note that comes behind those in in, sealed; it is open afterwards, and the channel
 * as it was. */
int kit_side_peek(const struct kit_side *side, uint8_t *bytes, size_t note_bytes);
/* Seals the note that was written to out + out_bytes, where there is a place for it. */
void kit_side_put(struct kit_side *side, uint8_t *out, size_t note_bytes);
/* 1: one more note has a place in out, which has room for so much. */
int kit_side_has_place(struct kit_side *side, uint8_t *out, size_t room, size_t note_bytes);
/* After a call of the system that failed. 1: it is an error, and is kept; 0: "not now". */
int kit_side_keep_err(struct kit_side *side);
/* 1: an error of the network on the way, which tells nothing of the peer. */
int kit_side_is_dark(int err);
/* Asks a peer's host that has been silent for idle_s, count times. Failing costs only that a dead
 * host is noticed later. */
void kit_side_probe(int fd, int idle_s, int interval_s, int count);

#endif
