/* SPDX-License-Identifier: BSD-3-Clause */
/* The handle, byte by byte, and what the opening of a line says (kit_proof.h). A handle says how
 * many lines the connection has and to which addresses they go in turn, and by which others the
 * receiver can be reached.
 *
 * Limits: with up to two addresses a handle stays within the 96 bytes that NCCL can carry.
 * Thread: any. */
#include "sock_int.h"

#include <string.h>

#include "base/wire.h"

#define ADDRESSES_OFFSET 44
#define ENCRYPT_MASK     3 /* the setting, and above it the ciphers, in a byte */
#define CIPHERS_SHIFT    4
#define ENCRYPT_SHIFT    8 /* in the second word of an opening, above the lines */
#define CIPHER_SHIFT     16
#define TODO_BUILD       "use the same build of XCCL on all ranks"

static_assert(KIT_CIPHER_KINDS <= 4 && XCCL_NET_ENCRYPT_FULL <= ENCRYPT_MASK, "a byte has both");
static_assert(ADDRESSES_OFFSET + SOCK_RAILS_MAX * SOCK_ADDRESS_BYTES <= XCCL_NET_HANDLE_BYTES,
              "all addresses fit");
static_assert(ADDRESSES_OFFSET + 2 * SOCK_ADDRESS_BYTES <= XCCL_NET_HANDLE_USED, "two do for NCCL");

void sock_handle_encode(const struct sock_handle *handle, xcclNetHandle_t *handle_out)
{
    struct xccl_wire wire = xccl_wire_over(handle_out->bytes, sizeof(handle_out->bytes));

    memset(handle_out, 0, sizeof(*handle_out));
    xccl_wire_put_u32(&wire, SOCK_HANDLE_MAGIC);
    xccl_wire_put_u32(&wire, SOCK_WIRE_VERSION);
    xccl_wire_put(&wire, handle->token, KIT_TOKEN_BYTES);
    xccl_wire_put_u8(&wire, (uint8_t)handle->line_count);
    xccl_wire_put_u8(&wire, (uint8_t)(handle->encrypt | handle->ciphers << CIPHERS_SHIFT));
    xccl_wire_put_u8(&wire, (uint8_t)handle->addr_count);
    xccl_wire_put_u8(&wire, (uint8_t)handle->rail_count);
    for (int i = 0; i < handle->addr_count; i++) {
        uint8_t addr[SOCK_ADDRESS_BYTES];

        sock_address_encode(&handle->addrs[i], addr);
        xccl_wire_put(&wire, addr, sizeof(addr));
    }
}

xcclResult_t sock_handle_decode(const xcclNetHandle_t *bytes, struct sock_handle *handle_out)
{
    xcclNetHandle_t copy = *bytes;
    struct xccl_wire wire = xccl_wire_over(copy.bytes, sizeof(copy.bytes));
    uint32_t magic = xccl_wire_get_u32(&wire), version = xccl_wire_get_u32(&wire);
    xcclResult_t rc = xcclSuccess;
    uint8_t crypt;

    if (magic != SOCK_HANDLE_MAGIC || version != SOCK_WIRE_VERSION)
        return xccl_fail_quietly(
            xcclInvalidArgument, 0, TODO_BUILD,
            "a connect handle does not belong to wire version %d of the socket plugin",
            SOCK_WIRE_VERSION);
    xccl_wire_get(&wire, handle_out->token, KIT_TOKEN_BYTES);
    handle_out->line_count = xccl_wire_get_u8(&wire);
    crypt = xccl_wire_get_u8(&wire);
    handle_out->encrypt = crypt & ENCRYPT_MASK;
    handle_out->ciphers = crypt >> CIPHERS_SHIFT;
    handle_out->addr_count = xccl_wire_get_u8(&wire);
    handle_out->rail_count = xccl_wire_get_u8(&wire);
    if (handle_out->line_count < 1 || handle_out->line_count > SOCK_LINES_MAX)
        return xccl_fail_quietly(
            xcclInvalidArgument, 0, TODO_BUILD,
            "a connect handle of the socket plugin asks for %d lines; at most %d are supported",
            handle_out->line_count, SOCK_LINES_MAX);
    if (handle_out->addr_count < 1 || handle_out->addr_count > SOCK_RAILS_MAX)
        return xccl_fail_quietly(
            xcclInvalidArgument, 0, TODO_BUILD,
            "a connect handle of the socket plugin has %d addresses; at most %d are supported",
            handle_out->addr_count, SOCK_RAILS_MAX);
    if (handle_out->rail_count < 1 || handle_out->rail_count > handle_out->addr_count)
        return xccl_fail_quietly(xcclInvalidArgument, 0, TODO_BUILD,
                                 "a connect handle of the socket plugin has %d rails, but %d "
                                 "addresses",
                                 handle_out->rail_count, handle_out->addr_count);
    for (int i = 0; i < handle_out->addr_count && rc == xcclSuccess; i++) {
        uint8_t addr[SOCK_ADDRESS_BYTES];

        xccl_wire_get(&wire, addr, sizeof(addr));
        rc = sock_address_decode(addr, &handle_out->addrs[i]);
    }
    return rc;
}

const struct kit_dialect sock_dialect = {.plugin = "socket",
                                         .wrong = "a wrong opening",
                                         .handle_magic = SOCK_HANDLE_MAGIC,
                                         .hello_magic = SOCK_HELLO_MAGIC,
                                         .version = SOCK_WIRE_VERSION};

void sock_opening_put(const struct sock_opening *opening, uint32_t context_out[KIT_CONTEXT_WORDS])
{
    context_out[0] = opening->line;
    context_out[1] = opening->line_count | (uint32_t)opening->encrypt << ENCRYPT_SHIFT |
                     (uint32_t)opening->cipher << CIPHER_SHIFT;
    context_out[2] = opening->turn;
}

int sock_opening_get(const uint32_t context[KIT_CONTEXT_WORDS], int line_count,
                     struct sock_opening *opening_out)
{
    opening_out->line = context[0];
    opening_out->line_count = context[1] & 0xff;
    opening_out->encrypt = (int)(context[1] >> ENCRYPT_SHIFT & 0xff);
    opening_out->cipher = context[1] >> CIPHER_SHIFT;
    opening_out->turn = context[2];
    return opening_out->line_count == (uint32_t)line_count &&
           opening_out->line < opening_out->line_count && opening_out->turn < SOCK_TURNS &&
           opening_out->encrypt <= XCCL_NET_ENCRYPT_FULL && opening_out->cipher < KIT_CIPHER_KINDS;
}
