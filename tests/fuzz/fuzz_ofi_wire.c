/* SPDX-License-Identifier: BSD-3-Clause */
/* What the ofi plugin reads of its peer: handle, hello, reply and note. The first words are put
 * right, and numbers made small, so that the rest is looked at. What is taken is within its limits
 * and comes out again byte for byte; and rails are paired with those that there are. Thread: one.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz_take.h"
#include "net-ofi/ofi_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(uint8_t *to, uint32_t number)
{
    struct xccl_wire wire = xccl_wire_over(to, 4);

    xccl_wire_put_u32(&wire, number);
}

static void begin(uint8_t *to)
{
    put(to, OFI_HANDLE_MAGIC);
    put(to + 4, OFI_WIRE_VERSION);
}

static void try_handle(const uint8_t **data, size_t *size)
{
    xcclNetHandle_t bytes, again;
    struct kit_handle handle;

    take(data, size, &bytes, sizeof(bytes));
    begin(bytes.bytes);
    if (kit_handle_decode(&ofi_dialect, &bytes, &handle) != xcclSuccess)
        return;
    kit_handle_encode(&ofi_dialect, &handle, &again);
    if (memcmp(&again, &bytes, KIT_HEAD_BYTES + (size_t)handle.addr_count * XCCL_ADDR_WIRE_BYTES) !=
        0)
        abort();
}

/* 1: it is one. */
static int try_hello(const uint8_t **data, size_t *size, struct ofi_hello *hello_out)
{
    uint8_t bytes[OFI_HELLO_BYTES], again[OFI_HELLO_BYTES];

    take(data, size, bytes, sizeof(bytes));
    begin(bytes);
    put(bytes + 16, bytes[16] % (OFI_RAILS_MAX + 2));
    if (!kit_hello_read(&ofi_dialect, bytes, hello_out))
        return 0;
    if (hello_out->count > OFI_RAILS_MAX ||
        (!hello_out->count && hello_out->tells >= OFI_RAILS_MAX))
        abort();
    ofi_hello_encode(hello_out, again);
    if (memcmp(bytes, again, sizeof(bytes)) != 0)
        abort();
    return 1;
}

static void try_pairs(const struct ofi_hello *own, const struct ofi_hello *peer)
{
    uint8_t names[OFI_RAILS_MAX][OFI_ADDRESS_BYTES], peers[OFI_RAILS_MAX][OFI_ADDRESS_BYTES];
    uint32_t ends[OFI_RAILS_MAX], others[OFI_RAILS_MAX], count, seen = 0, met = 0;

    if (!own->count || !peer->count)
        return;
    memcpy(names, own->names, sizeof(names));
    memcpy(peers, peer->names, sizeof(peers));
    count = ofi_rail_pair(own->count, names, peer->count, peers, ends, others);
    if (count < 1 || count > own->count || count > peer->count)
        abort();
    for (uint32_t i = 0; i < count; i++) {
        if (ends[i] >= own->count || others[i] >= peer->count || seen >> ends[i] & 1 ||
            met >> others[i] & 1)
            abort();
        seen |= 1u << ends[i];
        met |= 1u << others[i];
    }
}

static void try_reply(const uint8_t **data, size_t *size)
{
    const size_t rail_bytes = (OFI_REPLY_BYTES - 32) / OFI_RAILS_MAX;
    uint8_t bytes[OFI_REPLY_BYTES], again[OFI_REPLY_BYTES];
    uint32_t ends = 1 + (*size ? **data % OFI_RAILS_MAX : 0), seen = 0;
    struct ofi_reply reply;

    take(data, size, bytes, sizeof(bytes));
    begin(bytes);
    put(bytes + 16, bytes[16] % (OFI_RAILS_MAX + 2));
    for (uint32_t i = 0; i < OFI_RAILS_MAX; i++) {
        uint8_t *rail = bytes + 32 + i * rail_bytes;

        put(rail, rail[0] % (OFI_RAILS_MAX + 1));
        put(rail + 4, rail[4] % 4);
    }
    if (!ofi_reply_decode(bytes, ends, &reply))
        return;
    if (reply.count < 1 || reply.count > ends)
        abort();
    for (uint32_t i = 0; i < reply.count; i++) {
        if (reply.ends[i] >= ends || seen >> reply.ends[i] & 1 || reply.ways[i] > OFI_WAY_OWN)
            abort();
        seen |= 1u << reply.ends[i];
    }
    ofi_reply_encode(&reply, again);
    if (memcmp(bytes, again, sizeof(bytes)) != 0)
        abort();
}

static void try_note(const uint8_t **data, size_t *size)
{
    uint8_t bytes[OFI_NOTE_BYTES], again[OFI_NOTE_BYTES];
    uint32_t targets = 1 + (*size ? **data % OFI_RAILS_MAX : 0), parts;
    struct ofi_note note;
    size_t length;

    take(data, size, bytes, sizeof(bytes));
    parts = bytes[8] % (OFI_PARTS + 2);
    length = ofi_note_bytes(parts, targets);
    if (bytes[9] % 8 == 0)
        length -= bytes[10];
    length = length < sizeof(bytes) ? length : sizeof(bytes);
    put(bytes, OFI_HANDLE_MAGIC);
    put(bytes + 8, parts);
    if (!ofi_note_decode(bytes, length, targets, &note))
        return;
    if (note.count < 1 || note.count > OFI_PARTS ||
        ofi_note_encode(&note, targets, again) != length || memcmp(bytes, again, length) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ofi_hello own, peer;

    try_handle(&data, &size);
    try_note(&data, &size);
    if (try_hello(&data, &size, &own) && try_hello(&data, &size, &peer))
        try_pairs(&own, &peer);
    try_reply(&data, &size);
    return 0;
}
