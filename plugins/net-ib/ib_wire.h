/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes that cross: handle, blocks and notes on the side channel (little endian), and the lines
 * of the clear-to-send ring (as the machine has them: x86-64 and aarch64 are alike). The README has
 * the tables. Thread: any. */
#ifndef IB_WIRE_H
#define IB_WIRE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/netaddr.h"
#include "kit/kit_hello.h"

#define IB_WIRE_VERSION 5
#define IB_HANDLE_MAGIC 0x48494358u /* "XCIH" */
#define IB_BLOCK_MAGIC  0x42494358u /* "XCIB" */
#define IB_NOTE_MAGIC   0x4e494358u /* "XCIN" */
#define IB_BLOCK_BYTES  640
#define IB_NOTE_BYTES   128
#define IB_PORTS_MAX    4 /* of one end */
#define IB_PAIRS_MAX    16 /* queue pairs of a connection */
#define IB_PIECES_MAX   8 /* of a message */
#define IB_UNIT_BYTES   ((size_t)64 << 10) /* see the immediate value */

extern const struct kit_dialect ib_dialect;

#define IB_MTU_NONE 0 /* of a port that is left out, whose index stays */

/* What one end says of a port. */
struct ib_port_info {
    uint8_t gid[16];
    uint16_t lid;
    uint8_t link_layer, mtu; /* as verbs number them */
    uint8_t gid_type; /* enum ib_gid_type */
    uint8_t prefix; /* bits of the GID that name its subnet; 0: not known */
    char name[24]; /* of the device, for messages; ends with 0 */
};

/* What a vendor's cards agree on for a queue pair beyond the standard, as verbs have it; zero:
 * nothing. */
struct ib_extras {
    uint32_t vendor, options, mask;
};

/* A queue pair that is to be: the ports of the receiver and of the sender, by index. */
struct ib_link {
    uint8_t receiver, sender;
};

/* What one end says of itself: the sender its ports, the receiver its own with the queue pairs of
 * both, the sender its queue pairs and its ring. */
struct ib_block {
    uint64_t ring_addr; /* the sender's: where lines go */
    uint32_t ring_rkey[IB_PORTS_MAX];
    uint32_t per_link; /* queue pairs wanted for each two ports that talk */
    uint32_t ports, pairs;
    struct ib_port_info port[IB_PORTS_MAX];
    uint32_t qp_num[IB_PAIRS_MAX], psn[IB_PAIRS_MAX];
    struct ib_link link[IB_PAIRS_MAX];
    struct ib_extras extras[IB_PAIRS_MAX]; /* the receiver's offer, what the sender has taken */
};

/* Kinds of notes, in the side channel of a comm that is up. */
enum {
    IB_NOTE_END = 1, /* from the receiver that closes: what has come, by queue pair */
    IB_NOTE_TOO_LARGE = 2, /* from the sender: value bytes for a receive of value2 */
    IB_NOTE_NO_TAG = 3, /* from the sender: no receive has the tag value */
    IB_NOTE_ENDED = 4, /* a queue pair is no more; from the receiver: came[0], what came by it */
    IB_NOTE_OFFER = 5, /* from the sender: a new one in its place */
    IB_NOTE_ANSWER = 6, /* from the receiver: its end of that, which receives */
    IB_NOTE_REFUSE = 7, /* from the receiver: not now */
    IB_NOTE_READY = 8 /* from the sender: its end receives as well */
};

struct ib_note {
    uint32_t kind;
    uint64_t value, value2;
    uint32_t came[IB_PAIRS_MAX]; /* last pieces, counted round */
    /* Of ended and later: which queue pair, and the how manieth in its place. */
    uint32_t pair, generation;
    uint32_t qp_num, psn; /* of offer and answer, with the port's GID as it is now */
    uint8_t gid[16];
};

/* kit_hello_read reads it. */
void ib_block_encode(const struct ib_block *block, uint8_t bytes_out[IB_BLOCK_BYTES]);
void ib_note_encode(const struct ib_note *note, uint8_t bytes_out[IB_NOTE_BYTES]);
int ib_note_decode(const uint8_t bytes[IB_NOTE_BYTES], struct ib_note *note_out);

/* One receive, as the receiver writes it into the sender's memory. The network may put bytes down
 * in any order, so a line counts when its first and last word are the number that is due and its
 * fold is right. */
struct ib_line {
    uint32_t number; /* of the receive, from 1 */
    uint32_t tag;
    uint64_t addr, bytes;
    uint32_t rkey[IB_PORTS_MAX]; /* by the receiver's port */
    uint32_t count; /* of receives in this group; each has a line of its own */
    uint32_t zero[2];
    uint32_t fold; /* exclusive or of all other words, and IB_NOTE_MAGIC */
    uint32_t zero2;
    uint32_t number2;
};
static_assert(sizeof(struct ib_line) == 64, "a line of the cache");
static_assert(offsetof(struct ib_line, number2) == 60, "the last word");

void ib_line_seal(struct ib_line *line);
/* 1: *line_out is a whole line with this number. ring is written by the network meanwhile. */
int ib_line_read(const struct ib_line *ring, uint32_t number, struct ib_line *line_out);

/* The immediate value of a piece's last write: 3 bits part, 5 bits slot of the receive, 3 bits the
 * pieces of the message less one, 3 bits which of them, 18 bits how many units of 64 KiB of the
 * piece came before. */
#define IB_IMM_UNITS_MAX ((1u << 18) - 1)
static inline uint32_t ib_imm(uint32_t pieces, uint32_t slot, uint32_t part)
{
    return (pieces - 1) << 8 | slot << 3 | part;
}
static inline uint32_t ib_imm_piece(uint32_t units, uint32_t piece)
{
    return units << 14 | piece << 11;
}
static inline uint32_t ib_imm_part(uint32_t imm)
{
    return imm & 7;
}
static inline uint32_t ib_imm_slot(uint32_t imm)
{
    return imm >> 3 & 31;
}
static inline uint32_t ib_imm_pieces(uint32_t imm)
{
    return (imm >> 8 & 7) + 1;
}
static inline uint32_t ib_imm_which(uint32_t imm)
{
    return imm >> 11 & 7;
}
static inline uint32_t ib_imm_units(uint32_t imm)
{
    return imm >> 14;
}

/* Which ports talk to which, by what both ends have said; links_out: at most IB_PAIRS_MAX, in
 * turns. Ports of one subnet talk to each other. What has no such partner is left out, unless its
 * partner would be free otherwise, or there is no subnet at all that both have. 0: no two ports can
 * talk to each other. */
uint32_t ib_links_choose(const struct ib_block *receiver, const struct ib_block *sender,
                         struct ib_link links_out[IB_PAIRS_MAX]);
/* Why two ports cannot talk; NULL: they can. */
const char *ib_reach_obstacle(const struct ib_port_info *a, const struct ib_port_info *b);

#endif
