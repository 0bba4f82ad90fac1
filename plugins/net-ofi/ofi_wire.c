/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two ends say to each other first, and notes, byte by byte. An endpoint's address is what
 * the provider makes it, and its length the same at both ends: the rest is zero.
 * Thread: any. */
#include <string.h>

#include "ofi_int.h"

void ofi_hello_encode(const struct ofi_hello *hello, uint8_t bytes_out[OFI_HELLO_BYTES])
{
    struct xccl_wire wire = kit_hello_begin(&ofi_dialect, bytes_out);

    xccl_wire_put_u64(&wire, hello->piece_bytes);
    xccl_wire_put_u32(&wire, hello->count);
    xccl_wire_put_u32(&wire, hello->tells);
    xccl_wire_put(&wire, hello->names, sizeof(hello->names));
}

static int hello_decode(struct xccl_wire *wire, void *hello)
{
    struct ofi_hello *hello_out = hello;

    hello_out->piece_bytes = xccl_wire_get_u64(wire);
    hello_out->count = xccl_wire_get_u32(wire);
    hello_out->tells = xccl_wire_get_u32(wire);
    xccl_wire_get(wire, hello_out->names, sizeof(hello_out->names));
    return hello_out->count ? hello_out->count <= OFI_RAILS_MAX : hello_out->tells < OFI_RAILS_MAX;
}

const struct kit_dialect ofi_dialect = {.plugin = "ofi",
                                        .wrong = "a wrong hello",
                                        .handle_magic = OFI_HANDLE_MAGIC,
                                        .hello_magic = OFI_HANDLE_MAGIC,
                                        .version = OFI_WIRE_VERSION,
                                        .hello_bytes = OFI_HELLO_BYTES,
                                        .hello_bytes_max = OFI_HELLO_BYTES,
                                        .decode = hello_decode};

void ofi_reply_encode(const struct ofi_reply *reply, uint8_t bytes_out[OFI_REPLY_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(bytes_out, OFI_REPLY_BYTES);

    xccl_wire_put_u32(&wire, OFI_HANDLE_MAGIC);
    xccl_wire_put_u32(&wire, OFI_WIRE_VERSION);
    xccl_wire_put_u64(&wire, reply->piece_bytes);
    xccl_wire_put_u32(&wire, reply->count);
    xccl_wire_put_u32(&wire, reply->tells);
    xccl_wire_put_u64(&wire, reply->visit);
    for (int i = 0; i < OFI_RAILS_MAX; i++) {
        xccl_wire_put_u32(&wire, reply->ends[i]);
        xccl_wire_put_u32(&wire, reply->ways[i]);
        xccl_wire_put(&wire, reply->addrs[i], XCCL_ADDR_WIRE_BYTES);
        xccl_wire_put(&wire, reply->names[i], OFI_ADDRESS_BYTES);
    }
}

int ofi_reply_decode(const uint8_t bytes[OFI_REPLY_BYTES], uint32_t ends,
                     struct ofi_reply *reply_out)
{
    uint8_t copy[OFI_REPLY_BYTES];
    struct xccl_wire wire = xccl_wire_over(copy, sizeof(copy));
    uint32_t seen = 0, firsts = 0, owns = 0;

    memcpy(copy, bytes, sizeof(copy));
    if (xccl_wire_get_u32(&wire) != OFI_HANDLE_MAGIC ||
        xccl_wire_get_u32(&wire) != OFI_WIRE_VERSION)
        return 0;
    reply_out->piece_bytes = xccl_wire_get_u64(&wire);
    reply_out->count = xccl_wire_get_u32(&wire);
    reply_out->tells = xccl_wire_get_u32(&wire);
    reply_out->visit = xccl_wire_get_u64(&wire);
    if (reply_out->count < 1 || reply_out->count > ends)
        return 0;
    for (uint32_t i = 0; i < OFI_RAILS_MAX; i++) {
        uint32_t end = xccl_wire_get_u32(&wire);

        reply_out->ways[i] = xccl_wire_get_u32(&wire);
        xccl_wire_get(&wire, reply_out->addrs[i], XCCL_ADDR_WIRE_BYTES);
        xccl_wire_get(&wire, reply_out->names[i], OFI_ADDRESS_BYTES);
        reply_out->ends[i] = end;
        if (i < reply_out->count &&
            (end >= ends || seen >> end & 1 || reply_out->ways[i] > OFI_WAY_OWN))
            return 0;
        firsts += i < reply_out->count && reply_out->ways[i] == OFI_WAY_FIRST;
        owns += i < reply_out->count && reply_out->ways[i] == OFI_WAY_OWN;
        seen |= i < reply_out->count ? 1u << end : 0;
    }
    /* One more is the first one's. */
    return firsts <= 1 && owns < OFI_RAILS_MAX;
}

size_t ofi_note_bytes(uint32_t parts, uint32_t targets)
{
    return OFI_NOTE_HEAD + (size_t)parts * (OFI_NOTE_PART + (size_t)targets * OFI_NOTE_TARGET);
}

size_t ofi_note_encode(const struct ofi_note *note, uint32_t targets, uint8_t *bytes_out)
{
    size_t bytes = ofi_note_bytes(note->count, targets);
    struct xccl_wire wire = xccl_wire_over(bytes_out, bytes);

    xccl_wire_put_u32(&wire, OFI_HANDLE_MAGIC);
    xccl_wire_put_u32(&wire, note->first);
    xccl_wire_put_u32(&wire, note->count);
    xccl_wire_put_u32(&wire, note->row);
    for (uint32_t i = 0; i < note->count; i++) {
        xccl_wire_put_u32(&wire, note->parts[i].tag);
        xccl_wire_put_u32(&wire, note->parts[i].number);
        xccl_wire_put_u64(&wire, note->parts[i].room);
        for (uint32_t k = 0; k < targets; k++) {
            xccl_wire_put_u64(&wire, note->parts[i].targets[k].addr);
            xccl_wire_put_u64(&wire, note->parts[i].targets[k].key);
        }
    }
    return bytes;
}

int ofi_note_decode(const uint8_t *bytes, size_t bytes_count, uint32_t targets,
                    struct ofi_note *note_out)
{
    uint8_t copy[OFI_NOTE_BYTES];
    struct xccl_wire wire = xccl_wire_over(copy, bytes_count);

    if (bytes_count > sizeof(copy))
        return 0;
    memcpy(copy, bytes, bytes_count);
    if (xccl_wire_get_u32(&wire) != OFI_HANDLE_MAGIC)
        return 0;
    note_out->first = xccl_wire_get_u32(&wire);
    note_out->count = xccl_wire_get_u32(&wire);
    note_out->row = xccl_wire_get_u32(&wire);
    if (note_out->count < 1 || note_out->count > OFI_PARTS ||
        bytes_count != ofi_note_bytes(note_out->count, targets))
        return 0;
    for (uint32_t i = 0; i < note_out->count; i++) {
        note_out->parts[i].tag = xccl_wire_get_u32(&wire);
        note_out->parts[i].number = xccl_wire_get_u32(&wire);
        note_out->parts[i].room = xccl_wire_get_u64(&wire);
        for (uint32_t k = 0; k < targets; k++) {
            note_out->parts[i].targets[k].addr = xccl_wire_get_u64(&wire);
            note_out->parts[i].targets[k].key = xccl_wire_get_u64(&wire);
        }
    }
    return 1;
}
