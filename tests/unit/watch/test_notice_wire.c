/* SPDX-License-Identifier: BSD-3-Clause */
/* Notices of other ranks: what was sent comes back, and what no rank of this version sends is
 * refused. */
#include <string.h>

#include "watch/notice_wire.h"
#include "xt.h"

#define RANKS 4

static struct xccl_notice notice_make(void)
{
    return (struct xccl_notice){.kind = XCCL_NOTICE_ERROR,
                                .rc = xcclRemoteError,
                                .origin = 3,
                                .culprit = 2,
                                .trouble = XCCL_TROUBLE_GONE,
                                .remedy_at = 16,
                                .text = "rank 2 is gone; look there"};
}

/* Decodes what another rank makes of notice_make(). */
static int decode(const struct xccl_notice *sent, struct xccl_notice *notice_out)
{
    uint8_t body[XCCL_NOTICE_FRAME_BYTES];

    return xccl_notice_decode(body, xccl_notice_encode(sent, body), RANKS, notice_out);
}

XT_TEST(notice_comes_as_it_was_sent)
{
    struct xccl_notice sent = notice_make(), got;

    XT_CHECK(decode(&sent, &got));
    XT_CHECK_INT(got.kind, sent.kind);
    XT_CHECK_INT(got.rc, sent.rc);
    XT_CHECK_INT(got.origin, sent.origin);
    XT_CHECK_INT(got.culprit, sent.culprit);
    XT_CHECK_INT(got.trouble, sent.trouble);
    XT_CHECK_TEXT(got.text + got.remedy_at, "look there");
    sent.culprit = XCCL_VERDICT_NOBODY;
    XT_CHECK(decode(&sent, &got));
    XT_CHECK_INT(got.culprit, XCCL_VERDICT_NOBODY);
}

XT_TEST(notice_with_numbers_of_no_version_is_refused)
{
    struct xccl_notice right = notice_make(), sent[7], got;

    for (size_t i = 0; i < 7; i++)
        sent[i] = right;
    sent[0].origin = RANKS;
    sent[1].culprit = RANKS;
    sent[2].culprit = -2;
    sent[3].trouble = XCCL_TROUBLE_COUNT;
    sent[4].rc = xcclSuccess;
    sent[5].rc = xcclNumResults;
    sent[6].kind = XCCL_NOTICE_END;
    XT_CHECK(decode(&right, &got));
    for (size_t i = 0; i < 7; i++)
        if (decode(&sent[i], &got))
            XT_FAIL("notice %zu is taken", i);
}

XT_TEST(short_and_long_notices_are_refused)
{
    struct xccl_notice sent = notice_make(), got;
    uint8_t body[XCCL_NOTICE_FRAME_BYTES];

    memset(sent.text, 'x', sizeof sent.text); /* of the greatest size, less the 0 */
    XT_CHECK_INT(xccl_notice_encode(&sent, body), sizeof body - 1);
    XT_CHECK(xccl_notice_decode(body, sizeof body - 1, RANKS, &got));
    XT_CHECK_INT(strlen(got.text), sizeof got.text - 1);
    XT_CHECK(!xccl_notice_decode(body, sizeof body, RANKS, &got));
    for (size_t bytes = 0; bytes < XCCL_BOOT_NOTICE_HEAD; bytes++)
        XT_CHECK(!xccl_notice_decode(body, bytes, RANKS, &got));
}

XT_TEST(remedy_outside_of_the_text_is_none)
{
    struct xccl_notice sent = notice_make(), got;

    sent.remedy_at = (uint32_t)strlen(sent.text);
    XT_CHECK(decode(&sent, &got));
    XT_CHECK_INT(got.remedy_at, 0);
    sent.remedy_at = UINT32_MAX;
    XT_CHECK(decode(&sent, &got));
    XT_CHECK_INT(got.remedy_at, 0);
}
