/* SPDX-License-Identifier: BSD-3-Clause */
/* Encodes and decodes what crosses. What comes from the network is compared before it is used.
 * Thread: any. */
#include "ib_wire.h"

#include <stdatomic.h>
#include <string.h>

#define LINE_WORDS (sizeof(struct ib_line) / sizeof(uint32_t))

static void port_encode(struct xccl_wire *wire, const struct ib_port_info *port)
{
    xccl_wire_put(wire, port->gid, sizeof(port->gid));
    xccl_wire_put_u16(wire, port->lid);
    xccl_wire_put_u8(wire, port->link_layer);
    xccl_wire_put_u8(wire, port->mtu);
    xccl_wire_put_u8(wire, port->gid_type);
    xccl_wire_put_u8(wire, port->prefix);
    xccl_wire_put(wire, port->name, sizeof(port->name));
}

static void port_decode(struct xccl_wire *wire, struct ib_port_info *port_out)
{
    xccl_wire_get(wire, port_out->gid, sizeof(port_out->gid));
    port_out->lid = xccl_wire_get_u16(wire);
    port_out->link_layer = xccl_wire_get_u8(wire);
    port_out->mtu = xccl_wire_get_u8(wire);
    port_out->gid_type = xccl_wire_get_u8(wire);
    port_out->prefix = xccl_wire_get_u8(wire);
    xccl_wire_get(wire, port_out->name, sizeof(port_out->name));
    port_out->name[sizeof(port_out->name) - 1] = 0;
}

void ib_block_encode(const struct ib_block *block, uint8_t bytes_out[IB_BLOCK_BYTES])
{
    struct xccl_wire wire = kit_hello_begin(&ib_dialect, bytes_out);

    memset(bytes_out + KIT_HELLO_BYTES, 0, IB_BLOCK_BYTES - KIT_HELLO_BYTES);
    xccl_wire_put_u64(&wire, block->ring_addr);
    xccl_wire_put_u32(&wire, block->per_link);
    xccl_wire_put_u32(&wire, block->ports);
    xccl_wire_put_u32(&wire, block->pairs);
    for (int i = 0; i < IB_PORTS_MAX; i++) {
        xccl_wire_put_u32(&wire, block->ring_rkey[i]);
        port_encode(&wire, &block->port[i]);
    }
    for (int i = 0; i < IB_PAIRS_MAX; i++) {
        xccl_wire_put_u32(&wire, block->qp_num[i]);
        xccl_wire_put_u32(&wire, block->psn[i]);
        xccl_wire_put_u8(&wire, block->link[i].receiver);
        xccl_wire_put_u8(&wire, block->link[i].sender);
    }
    for (int i = 0; i < IB_PAIRS_MAX; i++) {
        xccl_wire_put_u32(&wire, block->extras[i].vendor);
        xccl_wire_put_u32(&wire, block->extras[i].options);
        xccl_wire_put_u32(&wire, block->extras[i].mask);
    }
}

static int block_decode(struct xccl_wire *wire, void *block)
{
    struct ib_block *block_out = block;

    block_out->ring_addr = xccl_wire_get_u64(wire);
    block_out->per_link = xccl_wire_get_u32(wire);
    block_out->ports = xccl_wire_get_u32(wire);
    block_out->pairs = xccl_wire_get_u32(wire);
    for (int i = 0; i < IB_PORTS_MAX; i++) {
        block_out->ring_rkey[i] = xccl_wire_get_u32(wire);
        port_decode(wire, &block_out->port[i]);
    }
    for (int i = 0; i < IB_PAIRS_MAX; i++) {
        block_out->qp_num[i] = xccl_wire_get_u32(wire);
        block_out->psn[i] = xccl_wire_get_u32(wire);
        block_out->link[i].receiver = xccl_wire_get_u8(wire);
        block_out->link[i].sender = xccl_wire_get_u8(wire);
    }
    for (int i = 0; i < IB_PAIRS_MAX; i++) {
        block_out->extras[i].vendor = xccl_wire_get_u32(wire);
        block_out->extras[i].options = xccl_wire_get_u32(wire);
        block_out->extras[i].mask = xccl_wire_get_u32(wire);
    }
    return block_out->ports >= 1 && block_out->ports <= IB_PORTS_MAX &&
           block_out->pairs <= IB_PAIRS_MAX && block_out->per_link >= 1 &&
           block_out->per_link <= IB_PAIRS_MAX;
}

const struct kit_dialect ib_dialect = {.plugin = "ib",
                                       .wrong = "a wrong block",
                                       .handle_magic = IB_HANDLE_MAGIC,
                                       .hello_magic = IB_BLOCK_MAGIC,
                                       .version = IB_WIRE_VERSION,
                                       .hello_bytes = IB_BLOCK_BYTES,
                                       .hello_bytes_max = IB_BLOCK_BYTES,
                                       .decode = block_decode};

void ib_note_encode(const struct ib_note *note, uint8_t bytes_out[IB_NOTE_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(bytes_out, IB_NOTE_BYTES);

    memset(bytes_out, 0, IB_NOTE_BYTES);
    xccl_wire_put_u32(&wire, IB_NOTE_MAGIC);
    xccl_wire_put_u32(&wire, note->kind);
    xccl_wire_put_u64(&wire, note->value);
    xccl_wire_put_u64(&wire, note->value2);
    for (int i = 0; i < IB_PAIRS_MAX; i++)
        xccl_wire_put_u32(&wire, note->came[i]);
    xccl_wire_put_u32(&wire, note->pair);
    xccl_wire_put_u32(&wire, note->generation);
    xccl_wire_put_u32(&wire, note->qp_num);
    xccl_wire_put_u32(&wire, note->psn);
    xccl_wire_put(&wire, note->gid, sizeof(note->gid));
}

int ib_note_decode(const uint8_t bytes[IB_NOTE_BYTES], struct ib_note *note_out)
{
    uint8_t copy[IB_NOTE_BYTES];
    struct xccl_wire wire = xccl_wire_over(copy, sizeof(copy));
    uint32_t magic;

    memcpy(copy, bytes, sizeof(copy));
    magic = xccl_wire_get_u32(&wire);
    note_out->kind = xccl_wire_get_u32(&wire);
    note_out->value = xccl_wire_get_u64(&wire);
    note_out->value2 = xccl_wire_get_u64(&wire);
    for (int i = 0; i < IB_PAIRS_MAX; i++)
        note_out->came[i] = xccl_wire_get_u32(&wire);
    note_out->pair = xccl_wire_get_u32(&wire);
    note_out->generation = xccl_wire_get_u32(&wire);
    note_out->qp_num = xccl_wire_get_u32(&wire);
    note_out->psn = xccl_wire_get_u32(&wire);
    xccl_wire_get(&wire, note_out->gid, sizeof(note_out->gid));
    return magic == IB_NOTE_MAGIC && note_out->kind >= IB_NOTE_END &&
           note_out->kind <= IB_NOTE_READY && note_out->pair < IB_PAIRS_MAX;
}

static uint32_t line_fold(const struct ib_line *line)
{
    uint32_t words[LINE_WORDS], fold = IB_NOTE_MAGIC;

    memcpy(words, line, sizeof(words));
    for (size_t i = 0; i < LINE_WORDS; i++)
        fold ^= words[i];
    return fold ^ line->fold;
}

void ib_line_seal(struct ib_line *line)
{
    line->number2 = line->number;
    line->fold = line_fold(line);
}

int ib_line_read(const struct ib_line *ring, uint32_t number, struct ib_line *line_out)
{
    const _Atomic uint32_t *from = (const _Atomic uint32_t *)(const void *)ring;
    uint32_t words[LINE_WORDS];

    /* Relaxed, word by word: the writer is the network, which pairs with nothing. A copy that mixes
     * two lines has a wrong fold, and is read again with the next call. */
    if (atomic_load_explicit(&from[0], memory_order_relaxed) != number ||
        atomic_load_explicit(&from[LINE_WORDS - 1], memory_order_relaxed) != number)
        return 0;
    for (size_t i = 0; i < LINE_WORDS; i++)
        words[i] = atomic_load_explicit(&from[i], memory_order_relaxed);
    memcpy(line_out, words, sizeof(words));
    return line_out->number == number && line_out->number2 == number &&
           line_out->fold == line_fold(line_out);
}
