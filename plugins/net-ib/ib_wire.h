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
#include "xccl_net.h"

#define IB_WIRE_VERSION 2
#define IB_HANDLE_MAGIC 0x48494358u /* "XCIH" */
#define IB_BLOCK_MAGIC  0x42494358u /* "XCIB" */
#define IB_NOTE_MAGIC   0x4e494358u /* "XCIN" */
#define IB_TOKEN_BYTES  32
#define IB_BLOCK_BYTES  192
#define IB_NOTE_BYTES   64
#define IB_PAIRS_MAX    8 /* queue pairs of a connection */
#define IB_CHUNK_BYTES  ((size_t)1 << 20) /* of one RDMA write; part of the wire: see the imm */

struct ib_handle {
    struct xccl_addr addr;
    uint8_t token[IB_TOKEN_BYTES];
};

/* What one end says of its queue pairs. */
struct ib_block {
    uint8_t token[IB_TOKEN_BYTES]; /* the sender's proof; zero from the receiver */
    uint8_t gid[16];
    uint32_t pairs; /* the sender's are a proposal, of which the receiver takes as many as it has */
    uint32_t qp_num[IB_PAIRS_MAX], psn[IB_PAIRS_MAX];
    uint32_t ring_rkey; /* the sender's: where lines go */
    uint64_t ring_addr;
    uint16_t lid;
    uint8_t link_layer, mtu; /* as verbs number them */
    uint8_t gid_type; /* enum ib_gid_type */
    char name[24]; /* of the device, for messages; ends with 0 */
};

/* Kinds of notes, in the side channel of a comm that is up. */
enum {
    IB_NOTE_READY = 1, /* from the sender: its queue pairs take lines */
    IB_NOTE_END = 2, /* from the receiver that closes: what has come, by queue pair */
    IB_NOTE_TOO_LARGE = 3, /* from the sender: value bytes for a receive of value2 */
    IB_NOTE_NO_TAG = 4 /* from the sender: no receive has the tag value */
};

struct ib_note {
    uint32_t kind;
    uint64_t value, value2;
    uint32_t came[IB_PAIRS_MAX]; /* last pieces, counted round */
};

void ib_handle_encode(const struct ib_handle *handle, xcclNetHandle_t *bytes_out);
xcclResult_t ib_handle_decode(const xcclNetHandle_t *bytes, struct ib_handle *handle_out);
void ib_block_encode(const struct ib_block *block, uint8_t bytes_out[IB_BLOCK_BYTES]);
/* 1: it is one of this version and has this token, compared in constant time. */
int ib_block_decode(const uint8_t bytes[IB_BLOCK_BYTES], const uint8_t token[IB_TOKEN_BYTES],
                    struct ib_block *block_out);
void ib_note_encode(const struct ib_note *note, uint8_t bytes_out[IB_NOTE_BYTES]);
int ib_note_decode(const uint8_t bytes[IB_NOTE_BYTES], struct ib_note *note_out);

/* One receive, as the receiver writes it into the sender's memory. The network may put bytes down
 * in any order, so a line counts when its first and last word are the number that is due and its
 * fold is right. */
struct ib_line {
    uint32_t number; /* of the receive, from 1 */
    uint32_t tag;
    uint64_t addr, bytes;
    uint32_t rkey;
    uint32_t count; /* of receives in this group; each has a line of its own */
    uint32_t zero[5];
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
 * pieces of the message less one, 21 bits how many whole chunks of the piece came before. */
#define IB_IMM_CHUNKS_MAX ((1u << 21) - 1)
static inline uint32_t ib_imm(uint32_t chunks, uint32_t pieces, uint32_t slot, uint32_t part)
{
    return chunks << 11 | (pieces - 1) << 8 | slot << 3 | part;
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
static inline uint32_t ib_imm_chunks(uint32_t imm)
{
    return imm >> 11;
}

#endif
