/* SPDX-License-Identifier: BSD-3-Clause */
/* What two hosts of `xccl net check` say to each other: a word, an answer, the end of a case. What
 * is taken keeps to its bounds and comes out again byte for byte. Thread: one. */
#include <stdlib.h>
#include <string.h>

#include "cf_remote.h"

#define TOKEN "token"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int is_text(const char *text, size_t bytes)
{
    return memchr(text, 0, bytes) != NULL;
}

static void try_word(uint8_t bytes[CF_WORD_BYTES])
{
    uint8_t again[CF_WORD_BYTES];
    struct cf_word word;

    if (!cf_word_decode(bytes, TOKEN, &word))
        return;
    cf_word_encode(&word, TOKEN, again);
    if (word.kind < CF_WORD_SESSION || word.kind > CF_WORD_CHANNEL || word.role >= CF_ROLES ||
        word.timeout_ms > CF_DEADLINE_MS || !is_text(word.name, sizeof(word.name)) ||
        memcmp(bytes, again, sizeof(again)) != 0)
        abort();
}

static void try_answer(uint8_t bytes[CF_ANSWER_BYTES])
{
    uint8_t again[CF_ANSWER_BYTES];
    struct cf_answer answer;

    if (!cf_answer_decode(bytes, &answer))
        return;
    cf_answer_encode(&answer, again);
    if (!is_text(answer.plugin, sizeof(answer.plugin)) ||
        !is_text(answer.contract, sizeof(answer.contract)) ||
        !is_text(answer.why, sizeof(answer.why)) || memcmp(bytes, again, sizeof(again)) != 0)
        abort();
}

static void try_end(uint8_t bytes[CF_END_BYTES])
{
    uint8_t again[CF_END_BYTES];
    char text[CF_TEXT_BYTES];
    int verdict = cf_end_decode(bytes, text);

    if (verdict == CF_NONE)
        return;
    cf_end_encode(verdict, text, again);
    if (verdict > CF_NOTED || !is_text(text, sizeof(text)) ||
        memcmp(bytes, again, sizeof(again)) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t bytes[CF_END_BYTES] = {0};

    memcpy(bytes, data, size < sizeof(bytes) ? size : sizeof(bytes));
    try_end(bytes);
    try_answer(bytes);
    try_word(bytes);
    return 0;
}
