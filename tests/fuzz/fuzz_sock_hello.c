/* SPDX-License-Identifier: BSD-3-Clause */
/* The two things that the socket plugin reads before it trusts anybody: a connect handle and an
 * opening. What is taken comes out again byte for byte; an opening needs the token, and is right
 * for one line and one count of lines only. Thread: one. */
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

/* An opening's fields are checked though its MAC is right. */
static void try_opening(const uint8_t *data, size_t size)
{
    static const uint8_t token[KIT_TOKEN_BYTES] = {1};
    uint8_t bytes[KIT_OPENING_BYTES] = {0}, answer[KIT_ANSWER_BYTES];
    struct kit_proof proof = {.is_sender = 0}, sender = {.is_sender = 0};
    struct sock_opening opening;
    uint32_t again[KIT_CONTEXT_WORDS];
    int count = 1 + data[0] % SOCK_LINES_MAX;

    memcpy(bytes, data, size < sizeof(bytes) ? size : sizeof(bytes));
    kit_proof_read(&proof, bytes);
    if (kit_proof_is_right(&proof, token))
        abort(); /* 128 bits were guessed */
    kit_proof_begin(&sender, token, &proof.said);
    kit_proof_read(&proof, sender.opening);
    if (!kit_proof_is_right(&proof, token))
        abort();
    kit_proof_answer(&proof, token, answer);
    if (!kit_proof_hear(&sender, token, answer))
        abort();
    if (!sock_opening_get(proof.said.context, count, &opening))
        return;
    sock_opening_put(&opening, again);
    if (opening.line >= (uint32_t)count || opening.line_count != (uint32_t)count ||
        opening.turn >= SOCK_TURNS || memcmp(again, proof.said.context, sizeof(again)) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    try_handle(data + 1, size - 1);
    try_opening(data, size);
    return 0;
}
