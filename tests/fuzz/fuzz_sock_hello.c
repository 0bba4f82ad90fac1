/* SPDX-License-Identifier: BSD-3-Clause */
/* The two things that the socket plugin reads before it trusts anybody: a connect handle and a
 * hello. What is taken comes out again byte for byte; a hello is right for one token, one line and
 * one count of lines only. Thread: one. */
#include <stdlib.h>
#include <string.h>

#include "net-socket/sock_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_handle(const uint8_t *data, size_t size)
{
    struct sock_handle handle = {.addr_count = 0};
    xcclNetHandle_t bytes = {{0}}, again;

    memcpy(bytes.bytes, data, size < sizeof(bytes) ? size : sizeof(bytes));
    if (sock_handle_decode(&bytes, &handle) != xcclSuccess)
        return;
    if (handle.line_count < 1 || handle.line_count > SOCK_LINES_MAX || handle.addr_count < 1 ||
        handle.addr_count > SOCK_RAILS_MAX)
        abort();
    sock_handle_encode(&handle, &again);
    if (sock_handle_decode(&again, &handle) != xcclSuccess)
        abort();
}

static void try_hello(const uint8_t *data, size_t size)
{
    uint8_t token[SOCK_TOKEN_BYTES] = {0}, bytes[SOCK_HELLO_BYTES] = {0}, want[SOCK_HELLO_BYTES];
    struct sock_hello hello;
    int count = 1 + data[0] % SOCK_LINES_MAX;

    memcpy(bytes, data, size < sizeof(bytes) ? size : sizeof(bytes));
    memcpy(token, bytes + 8, sizeof(token)); /* so that some are right */
    if (!sock_hello_decode(bytes, token, count, &hello))
        return;
    sock_hello_encode(token, &hello, want);
    if (hello.line >= (uint32_t)count || hello.line_count != (uint32_t)count ||
        hello.turn >= SOCK_TURNS || memcmp(bytes, want, sizeof(want)) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    try_handle(data + 1, size - 1);
    try_hello(data, size);
    return 0;
}
