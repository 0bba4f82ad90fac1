/* SPDX-License-Identifier: BSD-3-Clause */
/* The handle and the hello, byte by byte. A handle says how many lines the connection has and to
 * which addresses they go in turn, and by which others the receiver can be reached; a hello is what
 * a line begins with, and is compared whole.
 *
 * Limits: with up to two addresses a handle stays within the 96 bytes that NCCL can carry.
 * Thread: any. */
#include "sock_int.h"

#include <string.h>

#include "base/wire.h"

#define ADDRESSES_OFFSET  44
#define HELLO_LINE_OFFSET 40
#define TODO_BUILD        "use the same build of XCCL on all ranks"

static_assert(ADDRESSES_OFFSET + SOCK_RAILS_MAX * SOCK_ADDRESS_BYTES <= XCCL_NET_HANDLE_BYTES,
              "all addresses fit");
static_assert(ADDRESSES_OFFSET + 2 * SOCK_ADDRESS_BYTES <= XCCL_NET_HANDLE_USED, "two do for NCCL");

void sock_handle_encode(const struct sock_handle *handle, xcclNetHandle_t *handle_out)
{
    struct xccl_wire wire = xccl_wire_over(handle_out->bytes, sizeof(handle_out->bytes));

    memset(handle_out, 0, sizeof(*handle_out));
    xccl_wire_put_u32(&wire, SOCK_HANDLE_MAGIC);
    xccl_wire_put_u32(&wire, SOCK_WIRE_VERSION);
    xccl_wire_put(&wire, handle->token, SOCK_TOKEN_BYTES);
    xccl_wire_put_u16(&wire, (uint16_t)handle->line_count);
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

    if (magic != SOCK_HANDLE_MAGIC || version != SOCK_WIRE_VERSION)
        return xccl_fail_quietly(
            xcclInvalidArgument, 0, TODO_BUILD,
            "a connect handle does not belong to wire version %d of the socket plugin",
            SOCK_WIRE_VERSION);
    xccl_wire_get(&wire, handle_out->token, SOCK_TOKEN_BYTES);
    handle_out->line_count = xccl_wire_get_u16(&wire);
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

void sock_hello_encode(const uint8_t token[SOCK_TOKEN_BYTES], const struct sock_hello *hello,
                       uint8_t bytes_out[SOCK_HELLO_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(bytes_out, SOCK_HELLO_BYTES);

    memset(bytes_out, 0, SOCK_HELLO_BYTES);
    xccl_wire_put_u32(&wire, SOCK_HELLO_MAGIC);
    xccl_wire_put_u32(&wire, SOCK_WIRE_VERSION);
    xccl_wire_put(&wire, token, SOCK_TOKEN_BYTES);
    xccl_wire_put_u32(&wire, hello->line);
    xccl_wire_put_u32(&wire, hello->line_count);
    xccl_wire_put_u32(&wire, hello->turn);
}

int sock_hello_decode(const uint8_t bytes[SOCK_HELLO_BYTES], const uint8_t token[SOCK_TOKEN_BYTES],
                      int line_count, struct sock_hello *hello_out)
{
    uint8_t copy[SOCK_HELLO_BYTES], want[SOCK_HELLO_BYTES];
    struct xccl_wire wire = xccl_wire_over(copy + HELLO_LINE_OFFSET, 3 * sizeof(uint32_t));

    memcpy(copy, bytes, sizeof(copy));
    hello_out->line = xccl_wire_get_u32(&wire);
    hello_out->line_count = xccl_wire_get_u32(&wire);
    hello_out->turn = xccl_wire_get_u32(&wire);
    sock_hello_encode(token, hello_out, want);
    return xccl_token_equal(bytes, want, SOCK_HELLO_BYTES) &&
           hello_out->line_count == (uint32_t)line_count &&
           hello_out->line < hello_out->line_count && hello_out->turn < SOCK_TURNS;
}
