/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses as text and as wire bytes from anybody. What is accepted must come back unchanged from
 * its own text and its own wire form.
 * Thread: one. */
#include "base/netaddr.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse_text(const uint8_t *data, size_t size)
{
    struct xccl_addr addr, again;
    char text[XCCL_ADDR_TEXT_BYTES], *input = malloc(size + 1);

    if (!input)
        return;
    memcpy(input, data, size);
    input[size] = '\0';
    if (xccl_addr_parse(input, 0, &addr) == xcclSuccess) {
        xccl_addr_format(&addr, text);
        /* Resolve: a zone is written by its name when this machine has one for its number. */
        if (xccl_addr_parse(text, 1, &again) != xcclSuccess || !xccl_addr_equal(&addr, &again))
            abort();
    }
    free(input);
}

static void decode_wire(const uint8_t *data)
{
    uint8_t wire[XCCL_ADDR_WIRE_BYTES];
    struct xccl_addr addr;

    if (xccl_addr_decode(data, &addr) != xcclSuccess)
        return;
    xccl_addr_encode(&addr, wire);
    if (memcmp(wire, data, sizeof(wire)) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse_text(data, size);
    if (size >= XCCL_ADDR_WIRE_BYTES)
        decode_wire(data);
    return 0;
}
