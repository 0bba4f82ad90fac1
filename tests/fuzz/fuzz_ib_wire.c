/* SPDX-License-Identifier: BSD-3-Clause */
/* What the ib plugin reads of its peer: handle, block, note and line. The first words are put
 * right, so that the rest is looked at. What is taken is within its limits and comes out again byte
 * for byte; and ports that two blocks choose are among those that the blocks have. Thread: one. */
#include <stdlib.h>
#include <string.h>

#include "fuzz_take.h"
#include "net-ib/ib_choice.h"
#include "net-ib/ib_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void stamp(uint8_t *to, uint32_t magic, uint32_t second)
{
    for (int i = 0; i < 4; i++) {
        to[i] = (uint8_t)(magic >> (8 * i));
        to[4 + i] = (uint8_t)(second >> (8 * i));
    }
}

static void try_handle(const uint8_t **data, size_t *size)
{
    xcclNetHandle_t bytes = {{0}}, again;
    struct kit_handle handle;

    take(data, size, &bytes, KIT_HEAD_BYTES + KIT_ADDRS_MAX * XCCL_ADDR_WIRE_BYTES);
    stamp(bytes.bytes, IB_HANDLE_MAGIC, IB_WIRE_VERSION);
    if (kit_handle_decode(&ib_dialect, &bytes, &handle) != xcclSuccess)
        return;
    kit_handle_encode(&ib_dialect, &handle, &again);
    if (kit_handle_decode(&ib_dialect, &again, &handle) != xcclSuccess ||
        memcmp(&again, &bytes, sizeof(again)) != 0)
        abort();
}

/* 1: it is one. */
static int try_block(const uint8_t **data, size_t *size, struct ib_block *block_out)
{
    uint8_t bytes[IB_BLOCK_BYTES], again[IB_BLOCK_BYTES];
    struct ib_block block;

    take(data, size, bytes, sizeof(bytes));
    stamp(bytes, IB_BLOCK_MAGIC, IB_WIRE_VERSION);
    /* Small numbers: most would be too large. */
    for (int i = 16; i < 28; i++)
        bytes[i] = i % 4 ? 0 : bytes[i] % 20;
    if (!kit_hello_read(&ib_dialect, bytes, block_out))
        return 0;
    if (block_out->ports < 1 || block_out->ports > IB_PORTS_MAX || block_out->per_link < 1 ||
        block_out->per_link > IB_PAIRS_MAX || block_out->pairs > IB_PAIRS_MAX)
        abort();
    ib_block_encode(block_out, again);
    if (!kit_hello_read(&ib_dialect, again, &block) || block.pairs != block_out->pairs)
        abort();
    return 1;
}

static void try_links(const struct ib_block *receiver, const struct ib_block *sender)
{
    struct ib_link links[IB_PAIRS_MAX];
    uint32_t count = ib_links_choose(receiver, sender, links);

    if (count > IB_PAIRS_MAX)
        abort();
    for (uint32_t i = 0; i < count; i++) {
        if (links[i].receiver >= receiver->ports || links[i].sender >= sender->ports ||
            receiver->port[links[i].receiver].mtu == IB_MTU_NONE ||
            sender->port[links[i].sender].mtu == IB_MTU_NONE)
            abort();
    }
}

static void try_note(const uint8_t **data, size_t *size)
{
    uint8_t bytes[IB_NOTE_BYTES], again[IB_NOTE_BYTES];
    struct ib_note note;

    take(data, size, bytes, sizeof(bytes));
    stamp(bytes, IB_NOTE_MAGIC, bytes[4] % 10);
    bytes[89] = bytes[90] = bytes[91] = 0; /* the pair */
    if (!ib_note_decode(bytes, &note))
        return;
    if (note.kind < IB_NOTE_END || note.kind > IB_NOTE_READY || note.pair >= IB_PAIRS_MAX)
        abort();
    ib_note_encode(&note, again);
    if (memcmp(bytes, again, 120) != 0) /* the rest is zero, and nobody's */
        abort();
}

static void try_line(const uint8_t **data, size_t *size)
{
    struct ib_line line, back;

    take(data, size, &line, sizeof(line));
    if (line.number == 0 || ib_line_read(&line, line.number + 1, &back))
        return;
    ib_line_seal(&line);
    if (!ib_line_read(&line, line.number, &back) || memcmp(&line, &back, sizeof(line)) != 0)
        abort();
    line.addr ^= 1;
    if (ib_line_read(&line, line.number, &back))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ib_block receiver, sender;

    try_note(&data, &size);
    try_line(&data, &size);
    if (try_block(&data, &size, &receiver) && try_block(&data, &size, &sender))
        try_links(&receiver, &sender);
    try_handle(&data, &size);
    return 0;
}
