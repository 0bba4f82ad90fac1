/* SPDX-License-Identifier: BSD-3-Clause */
/* The handle, and what the two ends say to each other first, byte by byte. An endpoint's address is
 * what the provider makes it, and its length the same at both ends: the rest is zero.
 * Limit: the 96 bytes of a handle that NCCL can carry. Thread: any. */
#include <string.h>

#include "ofi_int.h"

#define TODO_BUILD "use the same build of XCCL on all ranks"

static_assert(8 + OFI_TOKEN_BYTES + XCCL_ADDR_WIRE_BYTES <= XCCL_NET_HANDLE_USED, "it fits");

void ofi_handle_encode(const struct ofi_handle *handle, xcclNetHandle_t *handle_out)
{
    struct xccl_wire wire = xccl_wire_over(handle_out->bytes, sizeof(handle_out->bytes));
    uint8_t addr[XCCL_ADDR_WIRE_BYTES];

    memset(handle_out, 0, sizeof(*handle_out));
    xccl_addr_encode(&handle->addr, addr);
    xccl_wire_put_u32(&wire, OFI_HANDLE_MAGIC);
    xccl_wire_put_u32(&wire, OFI_WIRE_VERSION);
    xccl_wire_put(&wire, handle->token, OFI_TOKEN_BYTES);
    xccl_wire_put(&wire, addr, sizeof(addr));
}

xcclResult_t ofi_handle_decode(const xcclNetHandle_t *bytes, struct ofi_handle *handle_out)
{
    xcclNetHandle_t copy = *bytes;
    struct xccl_wire wire = xccl_wire_over(copy.bytes, sizeof(copy.bytes));
    uint32_t magic = xccl_wire_get_u32(&wire), version = xccl_wire_get_u32(&wire);
    uint8_t addr[XCCL_ADDR_WIRE_BYTES];

    if (magic != OFI_HANDLE_MAGIC || version != OFI_WIRE_VERSION)
        return xccl_fail_quietly(xcclInvalidArgument, 0, TODO_BUILD,
                                 "a connect handle is not of the ofi plugin, wire version %d",
                                 OFI_WIRE_VERSION);
    xccl_wire_get(&wire, handle_out->token, OFI_TOKEN_BYTES);
    xccl_wire_get(&wire, addr, sizeof(addr));
    return xccl_addr_decode(addr, &handle_out->addr);
}

void ofi_hello_encode(const uint8_t token[OFI_TOKEN_BYTES], const struct ofi_endpoint *end,
                      uint64_t piece_bytes, uint8_t bytes_out[OFI_HELLO_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(bytes_out, OFI_HELLO_BYTES);

    xccl_wire_put_u32(&wire, OFI_HANDLE_MAGIC);
    xccl_wire_put_u32(&wire, OFI_WIRE_VERSION);
    xccl_wire_put(&wire, token, OFI_TOKEN_BYTES);
    xccl_wire_put(&wire, end->name, OFI_ADDRESS_BYTES);
    xccl_wire_put_u64(&wire, piece_bytes);
}

static int starts_right(const uint8_t *bytes)
{
    uint8_t head[8];
    struct xccl_wire wire = xccl_wire_over(head, sizeof(head));

    memcpy(head, bytes, sizeof(head));
    return xccl_wire_get_u32(&wire) == OFI_HANDLE_MAGIC &&
           xccl_wire_get_u32(&wire) == OFI_WIRE_VERSION;
}

/* The last field of a hello and of a reply. */
static uint64_t piece_bytes_get(const uint8_t *after)
{
    uint8_t tail[8];
    struct xccl_wire wire = xccl_wire_over(tail, sizeof(tail));

    memcpy(tail, after, sizeof(tail));
    return xccl_wire_get_u64(&wire);
}

const uint8_t *ofi_hello_decode(const uint8_t bytes[OFI_HELLO_BYTES],
                                const uint8_t token[OFI_TOKEN_BYTES], uint64_t *piece_bytes_out)
{
    const uint8_t *name = bytes + 8 + OFI_TOKEN_BYTES;

    if (!xccl_token_equal(bytes + 8, token, OFI_TOKEN_BYTES) || !starts_right(bytes))
        return NULL;
    *piece_bytes_out = piece_bytes_get(name + OFI_ADDRESS_BYTES);
    return name;
}

void ofi_reply_encode(const struct ofi_endpoint *end, uint64_t piece_bytes,
                      uint8_t bytes_out[OFI_REPLY_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(bytes_out, OFI_REPLY_BYTES);

    xccl_wire_put_u32(&wire, OFI_HANDLE_MAGIC);
    xccl_wire_put_u32(&wire, OFI_WIRE_VERSION);
    xccl_wire_put(&wire, end->name, OFI_ADDRESS_BYTES);
    xccl_wire_put_u64(&wire, piece_bytes);
}

const uint8_t *ofi_reply_decode(const uint8_t bytes[OFI_REPLY_BYTES], uint64_t *piece_bytes_out)
{
    if (!starts_right(bytes))
        return NULL;
    *piece_bytes_out = piece_bytes_get(bytes + 8 + OFI_ADDRESS_BYTES);
    return bytes + 8;
}

void ofi_note_encode(const struct ofi_note *note, uint8_t bytes_out[OFI_NOTE_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(bytes_out, OFI_NOTE_BYTES);

    xccl_wire_put_u32(&wire, OFI_HANDLE_MAGIC);
    xccl_wire_put_u32(&wire, note->number);
    xccl_wire_put_u64(&wire, note->addr);
    xccl_wire_put_u64(&wire, note->key);
    xccl_wire_put_u64(&wire, note->room);
}

int ofi_note_decode(const uint8_t bytes[OFI_NOTE_BYTES], struct ofi_note *note_out)
{
    uint8_t copy[OFI_NOTE_BYTES];
    struct xccl_wire wire = xccl_wire_over(copy, sizeof(copy));

    memcpy(copy, bytes, sizeof(copy));
    if (xccl_wire_get_u32(&wire) != OFI_HANDLE_MAGIC)
        return 0;
    note_out->number = xccl_wire_get_u32(&wire);
    note_out->addr = xccl_wire_get_u64(&wire);
    note_out->key = xccl_wire_get_u64(&wire);
    note_out->room = xccl_wire_get_u64(&wire);
    note_out->valid = 1;
    return 1;
}
