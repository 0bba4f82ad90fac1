/* SPDX-License-Identifier: BSD-3-Clause */
/* Notices, and what ranks called that have left, from a proven but broken peer: what is accepted
 * has ranks that there are, comes back unchanged from its own encoding, and a notice has an ended
 * text without control characters. Then the bytes as evidence of every kind of trouble, of which no
 * text may leave its room. Thread: one. */
#include "watch/calls_wire.h"
#include "watch/notice_wire.h"

#include <stdlib.h>
#include <string.h>

#define RANKS 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_notice(const uint8_t *data, size_t size)
{
    struct xccl_notice notice, again;
    uint8_t body[XCCL_NOTICE_FRAME_BYTES];

    if (!xccl_notice_decode(data, size, RANKS, &notice))
        return;
    if (strnlen(notice.text, sizeof notice.text) == sizeof notice.text || notice.origin < 0 ||
        notice.origin >= RANKS || notice.culprit < XCCL_VERDICT_NOBODY || notice.culprit >= RANKS ||
        (notice.remedy_at && notice.remedy_at >= strlen(notice.text)))
        abort();
    for (const char *at = notice.text; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            abort();
    if (!xccl_notice_decode(body, xccl_notice_encode(&notice, body), RANKS, &again) ||
        strcmp(notice.text, again.text) != 0 || notice.trouble != again.trouble ||
        notice.culprit != again.culprit || notice.remedy_at != again.remedy_at)
        abort();
}

static void check_left(const uint8_t *data, size_t size)
{
    uint8_t *in = malloc(size ? size : 1), out[XCCL_LEFT_BYTES]; /* in: of just this size */
    struct xccl_left left;

    if (!in)
        return;
    if (size)
        memcpy(in, data, size);
    if (xccl_left_decode(in, size, RANKS, &left) &&
        (left.rank < 0 || left.rank >= RANKS || xccl_left_encode(&left, out) != size ||
         memcmp(in, out, size) != 0))
        abort();
    free(in);
}

/* The first bytes choose kind and room; all of them are numbers, names and evidence. */
static void check_text(const uint8_t *data, size_t size)
{
    struct xccl_verdict verdict = {.trouble = XCCL_TROUBLE_NONE};
    size_t bytes = size > 2 ? 1 + (size_t)data[1] * 2 : 1, remedy_at;
    char *text = malloc(bytes); /* of just this size */

    if (!text)
        return;
    if (size)
        memcpy(&verdict, data, size < sizeof verdict ? size : sizeof verdict);
    verdict.trouble = (enum xccl_trouble)(size ? data[0] : 0);
    verdict.address[sizeof verdict.address - 1] = '\0';
    verdict.plugin[sizeof verdict.plugin - 1] = '\0';
    verdict.why[sizeof verdict.why - 1] = '\0';
    remedy_at = xccl_verdict_text(&verdict, NULL, text, bytes);
    if (strnlen(text, bytes) == bytes || remedy_at > strlen(text))
        abort();
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_notice(data, size);
    check_left(data, size);
    check_text(data, size);
    return 0;
}
