/* SPDX-License-Identifier: BSD-3-Clause */
/* Kinds of trouble and their texts: every kind has a row, a name for machines and a text with rank,
 * host, cause and remedy; no text leaves its room, loses its remedy, or shows bytes that a terminal
 * would obey. */
#include <stdio.h>
#include <string.h>

#include "verdict/verdict.h"
#include "xt.h"

#define TEXT_BYTES 400 /* as a notice has */
#define WORD_BYTES 24 /* as a record has */

static const char *const hosts[] = {"hostzero", "hostone", "hosttwo"};

static int find(const void *owner, int rank, struct xccl_rank_place *place_out)
{
    (void)owner;
    if (rank > 2)
        return 0;
    snprintf(place_out->host, sizeof place_out->host, "%s", hosts[rank]);
    place_out->pid = 100 + (uint32_t)rank;
    return 1;
}

static const struct xccl_rank_places places = {.find = find};

/* Everything that a template may want is there. */
static struct xccl_verdict full_verdict(enum xccl_trouble trouble)
{
    struct xccl_verdict verdict = {
        .trouble = trouble,
        .finder = 0,
        .culprit = 1,
        .mine = {.kind = XCCL_ACT_CALL, .call = {.seq = 7, .count = 12, .coll = 4, .type = 7}},
        .theirs = {.kind = XCCL_ACT_SEND, .peer = 0, .bytes = 8, .call = {.seq = 6}},
        .seconds = 33,
        .elements = 44,
    };

    xccl_verdict_wait(&verdict, (struct xccl_waited){.rank = 1, .why = XCCL_WAIT_OLDER, .call = 6});
    snprintf(verdict.address, sizeof verdict.address, "10.0.0.2");
    snprintf(verdict.plugin, sizeof verdict.plugin, "plug");
    xccl_verdict_set_why(&verdict, trouble == XCCL_TROUBLE_BOOT_SILENT
                                       ? "rank 1 (host hostone, pid 101)" /* or a root */
                                       : "the evidence");
    return verdict;
}

static const char *text_of(const struct xccl_verdict *verdict)
{
    static char text[TEXT_BYTES];

    (void)xccl_verdict_text(verdict, &places, text, sizeof text);
    return text;
}

XT_TEST(every_kind_has_a_row_and_a_name_of_its_own)
{
    for (int i = XCCL_TROUBLE_NONE + 1; i < XCCL_TROUBLE_COUNT; i++) {
        const struct xccl_trouble_row *row = xccl_trouble_row((enum xccl_trouble)i);

        XT_CHECK(row->word && row->word[0] && strlen(row->word) < WORD_BYTES);
        XT_CHECK_INT(strspn(row->word, "abcdefghijklmnopqrstuvwxyz_"), strlen(row->word));
        for (int k = XCCL_TROUBLE_NONE + 1; k < i; k++)
            XT_CHECK(strcmp(row->word, xccl_trouble_row((enum xccl_trouble)k)->word) != 0);
        XT_CHECK(row->rc > xcclSuccess && row->rc < xcclNumResults);
        /* A text without a remedy ends with evidence, which has one. */
        XT_CHECK(row->remedy[0] || strstr(row->sentence, ": {why}"));
    }
    XT_CHECK_TEXT(xccl_trouble_row(XCCL_TROUBLE_NONE)->word, "other");
    XT_CHECK_TEXT(xccl_trouble_row((enum xccl_trouble)999)->word, "other");
}

XT_TEST(every_text_names_rank_host_cause_and_remedy)
{
    for (int i = XCCL_TROUBLE_NONE + 1; i < XCCL_TROUBLE_COUNT; i++) {
        struct xccl_verdict verdict = full_verdict((enum xccl_trouble)i);
        const struct xccl_trouble_row *row = xccl_trouble_row(verdict.trouble);
        const char *text = text_of(&verdict);
        size_t remedy_at = xccl_verdict_text(&verdict, &places, (char[TEXT_BYTES]){0}, TEXT_BYTES);

        if (strpbrk(text, "{}"))
            XT_FAIL("%s: a place of the template is not filled: %s", row->word, text);
        XT_CHECK_HAS(text, "rank ");
        if (!strstr(text, "host hostzero, pid 100") && !strstr(text, "host hostone, pid 101") &&
            !strstr(text, "rank 0 on host hostzero (pid 100)"))
            XT_FAIL("%s: no host and process: %s", row->word, text);
        XT_CHECK(!remedy_at == !row->remedy[0]);
        if (remedy_at) {
            XT_CHECK(strlen(text + remedy_at) > 8);
            XT_CHECK(memcmp(text + remedy_at - 2, "; ", 2) == 0);
        } else {
            XT_CHECK_HAS(text, "the evidence");
        }
    }
}

XT_TEST(result_is_the_row_s_unless_the_verdict_has_one)
{
    struct xccl_verdict verdict = full_verdict(XCCL_TROUBLE_LINK_DOWN);

    XT_CHECK_INT(xccl_verdict_rc(&verdict), xcclRemoteError);
    verdict.rc = xcclSystemError;
    XT_CHECK_INT(xccl_verdict_rc(&verdict), xcclSystemError);
}

XT_TEST(calls_of_both_ranks_are_told)
{
    struct xccl_verdict verdict = full_verdict(XCCL_TROUBLE_CALLS_DIFFER);

    verdict.mine.is_past = 1;
    verdict.theirs = (struct xccl_act){.kind = XCCL_ACT_OTHER_CALL, .call = {.seq = 7}};
    XT_CHECK_TEXT(text_of(&verdict),
                  "ranks disagree: rank 0 was in call 7: all-reduce of 12 float32, sum, but rank 1 "
                  "(host hostone, pid 101) is in call 7: a different call; all ranks must make the "
                  "same calls in the same order");
    verdict.trouble = XCCL_TROUBLE_MESSAGE_DIFFERS;
    verdict.mine = (struct xccl_act){.kind = XCCL_ACT_RECV, .peer = 1, .bytes = 4};
    verdict.theirs = (struct xccl_act){.kind = XCCL_ACT_SEND, .bytes = 8, .is_least = 1};
    XT_CHECK_TEXT(text_of(&verdict),
                  "ranks disagree: rank 0 is in a receive of 4 bytes from rank 1, but rank 1 (host "
                  "hostone, pid 101) is in a send of 8 bytes or more to rank 0; sends and receives "
                  "of two ranks must match in order and size");
    verdict.theirs.bytes = XCCL_ACT_OTHER_BYTES;
    XT_CHECK_HAS(text_of(&verdict), " is in a send of a different size to rank 0;");
    verdict.theirs.kind = XCCL_ACT_SPLIT;
    XT_CHECK_HAS(text_of(&verdict), " is in xcclCommSplit of this communicator;");
    verdict.theirs.kind = XCCL_ACT_CONNECT;
    XT_CHECK_HAS(text_of(&verdict), " is in xcclCommConnectAll;");
}

XT_TEST(missing_evidence_leaves_a_whole_sentence)
{
    struct xccl_verdict verdict = {.trouble = XCCL_TROUBLE_GONE, .finder = 0, .culprit = 9};

    XT_CHECK_TEXT(text_of(&verdict),
                  "rank 9 is gone: its control connection ended without a closing message; check "
                  "what that rank logged, then destroy the communicator");
    verdict = (struct xccl_verdict){.trouble = XCCL_TROUBLE_LINK_BROKEN, .culprit = 1};
    XT_CHECK_TEXT(text_of(&verdict), "rank 0 lost its connection with rank 1 (host hostone, pid "
                                     "101): no reason is known");
    verdict.trouble = XCCL_TROUBLE_CALL_UNKNOWN;
    XT_CHECK(!strstr(text_of(&verdict), "tuner"));
    verdict.culprit = XCCL_VERDICT_NOBODY;
    XT_CHECK_HAS(text_of(&verdict), "but a rank made a different call;");
}

static struct xccl_verdict list_of(uint32_t count, int first)
{
    struct xccl_verdict verdict = full_verdict(XCCL_TROUBLE_LATE);

    verdict.wait_count = 0;
    for (uint32_t i = 0; i < count; i++)
        xccl_verdict_wait(&verdict, (struct xccl_waited){.rank = first + (int)i});
    return verdict;
}

XT_TEST(ranks_that_are_waited_for_are_named_or_counted)
{
    struct xccl_verdict verdict = list_of(2, 2);

    XT_CHECK_HAS(text_of(&verdict), ", for rank 2 (host hosttwo, pid 102), rank 3; check ");
    verdict = list_of(40, 10);
    XT_CHECK_HAS(text_of(&verdict),
                 ", for rank 10, rank 11, rank 12, rank 13, rank 14, rank 15 and 34 more; check ");
    verdict.waits[0].why = XCCL_WAIT_BETWEEN;
    verdict.waits[0].call = 5;
    XT_CHECK_HAS(text_of(&verdict), "for rank 10 (between calls, its last was 5), rank 11");
    verdict.trouble = XCCL_TROUBLE_MESSAGES_LATE;
    verdict.waits[0].why = XCCL_WAIT_SEND;
    verdict.waits[1].why = XCCL_WAIT_RECV;
    XT_CHECK_HAS(text_of(&verdict), ", to send to rank 10, to receive from rank 11, rank 12");
}

/* Names of a list are whole, as long as there is room for one. */
XT_TEST(list_without_room_counts_whom_it_cannot_name)
{
    struct xccl_verdict verdict = list_of(6, 0);
    char text[TEXT_BYTES];

    (void)xccl_verdict_text(&verdict, &places, text, 230);
    XT_CHECK(strlen(text) < 230);
    XT_CHECK_HAS(text, "for rank 0 (host hostzero, pid 100), rank 1 (host hostone, pid 101) and 4 "
                       "more; check what the other ranks do, or raise XCCL_TIMEOUT_S");
}

XT_TEST(long_evidence_is_cut_and_the_remedy_stays)
{
    struct xccl_verdict verdict = full_verdict(XCCL_TROUBLE_LINK_TIMEOUT);
    char why[600];

    memset(why, 'x', sizeof why);
    why[sizeof why - 1] = '\0';
    xccl_verdict_set_why(&verdict, why);
    XT_CHECK_INT(strlen(verdict.why), XCCL_VERDICT_WHY_BYTES - 1);
    XT_CHECK_INT(strlen(text_of(&verdict)), TEXT_BYTES - 1);
    XT_CHECK_HAS(text_of(&verdict), "xxx...; check that the other host is up and reachable from "
                                    "this host");
}

/* Characters of two bytes are whole. */
static int has_whole_characters(const char *text)
{
    for (; *text; text++) {
        int is_first = ((unsigned char)*text & 0xe0) == 0xc0;

        if (is_first != (((unsigned char)text[is_first] & 0xc0) == 0x80))
            return 0;
        text += is_first;
    }
    return 1;
}

/* A text in buffers of every size: it stays inside, it ends, and no character is halved. */
static void check_rooms(const struct xccl_verdict *verdict)
{
    char text[TEXT_BYTES + 8];

    for (size_t bytes = 1; bytes <= TEXT_BYTES; bytes++) {
        size_t remedy_at, end;

        memset(text, 0x55, sizeof text);
        remedy_at = xccl_verdict_text(verdict, &places, text, bytes);
        end = strnlen(text, bytes);
        XT_CHECK(end < bytes && remedy_at <= end);
        XT_CHECK(!remedy_at || memcmp(text + remedy_at - 2, "; ", 2) == 0);
        for (size_t i = bytes; i < sizeof text; i++)
            XT_CHECK(text[i] == 0x55);
        if (bytes > 8) /* a mark of a cut has room */
            XT_CHECK(has_whole_characters(text));
    }
    XT_CHECK_INT(xccl_verdict_text(verdict, &places, text, 0), 0);
}

XT_TEST(text_stays_in_its_room)
{
    for (int i = XCCL_TROUBLE_NONE; i < XCCL_TROUBLE_COUNT; i++) {
        struct xccl_verdict verdict = full_verdict((enum xccl_trouble)i);

        check_rooms(&verdict);
        for (size_t k = 0; k + 2 < sizeof verdict.why; k += 2)
            memcpy(verdict.why + k, "\xc3\xa4", 3);
        check_rooms(&verdict);
    }
}

XT_TEST(bytes_of_others_are_escaped)
{
    struct xccl_verdict verdict = full_verdict(XCCL_TROUBLE_LINK_DOWN);

    xccl_verdict_set_why(&verdict, "\x1b[2J\r\n\xff");
    XT_CHECK_HAS(text_of(&verdict), "\\x1b[2J\\r\\n\\xff; check the network");
}
