/* SPDX-License-Identifier: BSD-3-Clause */
/* The channel without any socket: what proves, what does not, and that every bit of every message
 * counts. The bootstrap's message decoders, which are as pure, are here too.
 * Seeded randomness: a run repeats with XT_SEED. */
#include <stdlib.h>

#include "base/alloc.h"
#include "bootstrap/channel.h"
#include "bootstrap/message.h"
#include "xt.h"

#define CONFIRM_BYTES (XCCL_STREAM_HEADER_BYTES + XCCL_FRAME_OVERHEAD_BYTES)

/* Both ends and the bytes between them. */
struct pair {
    struct xccl_channel a, b; /* a connects, b accepts */
    uint8_t hello[XCCL_HELLO_BYTES];
    uint8_t reply[XCCL_SHAKE_MAX_BYTES];
    uint8_t confirm[XCCL_SHAKE_MAX_BYTES];
};

static const uint8_t key[32] = {1, 2, 3};
static const struct xccl_hello hello_a = {
    .comm_id = {7}, .rank = 3, .nranks = 8, .purpose = XCCL_PURPOSE_ROUND, .detail = 2};
static const struct xccl_hello hello_b = {.comm_id = {7}, .rank = 7, .nranks = 8};
static const struct xccl_span none = {NULL, 0};

static void pair_begin(struct pair *pair)
{
    XT_OK(xccl_channel_library_init());
    xccl_channel_connect(&pair->a, key, &hello_a, pair->hello);
    xccl_channel_accept(&pair->b, key, &hello_b, 0);
}

static enum xccl_channel_verdict pair_hello(struct pair *pair)
{
    size_t bytes = 0;
    enum xccl_channel_verdict verdict = xccl_channel_shake(&pair->b, pair->hello, pair->reply,
                                                           &bytes);

    XT_CHECK_INT(bytes, verdict ? 0 : XCCL_SHAKE_MAX_BYTES);
    return verdict;
}

static enum xccl_channel_verdict pair_reply(struct pair *pair)
{
    size_t bytes = 0;
    enum xccl_channel_verdict verdict = xccl_channel_shake(&pair->a, pair->reply, pair->confirm,
                                                           &bytes);

    XT_CHECK_INT(bytes, verdict ? 0 : CONFIRM_BYTES);
    return verdict;
}

static enum xccl_channel_verdict pair_confirm(struct pair *pair)
{
    uint8_t out[XCCL_SHAKE_MAX_BYTES];
    size_t bytes = 0;
    enum xccl_channel_verdict verdict = xccl_channel_shake(&pair->b, pair->confirm, out, &bytes);

    XT_CHECK_INT(bytes, 0);
    return verdict;
}

static void pair_open(struct pair *pair)
{
    pair_begin(pair);
    XT_CHECK_INT(pair_hello(pair), XCCL_VERDICT_OK);
    XT_CHECK_INT(pair_reply(pair), XCCL_VERDICT_OK);
    XT_CHECK_INT(pair_confirm(pair), XCCL_VERDICT_OK);
    XT_CHECK_INT(pair->a.state, XCCL_CHANNEL_OPEN);
    XT_CHECK_INT(pair->b.state, XCCL_CHANNEL_OPEN);
}

/* One frame as a receiver gets it: prefix check, then the cipher. */
static enum xccl_channel_verdict frame_in(struct xccl_channel *channel, uint8_t *frame,
                                          size_t frame_bytes, struct xccl_frame *out)
{
    size_t cipher_bytes = 0;
    enum xccl_channel_verdict verdict = xccl_channel_length(frame, &cipher_bytes);

    if (verdict)
        return verdict;
    if (cipher_bytes != frame_bytes - XCCL_FRAME_PREFIX_BYTES)
        return XCCL_VERDICT_LENGTH;
    return xccl_channel_unseal(channel, frame + XCCL_FRAME_PREFIX_BYTES, cipher_bytes, out);
}

XT_TEST(both_sides_prove_and_learn_who_the_other_is)
{
    struct pair pair;

    pair_open(&pair);
    XT_CHECK_INT(pair.b.peer.rank, 3);
    XT_CHECK_INT(pair.b.peer.nranks, 8);
    XT_CHECK_INT(pair.b.peer.purpose, XCCL_PURPOSE_ROUND);
    XT_CHECK_INT(pair.b.peer.detail, 2);
    XT_CHECK_INT(pair.a.peer.rank, 7);
    XT_CHECK_INT(pair.a.peer.detail, 2);
}

XT_TEST(frames_come_out_as_they_went_in_both_ways)
{
    static const size_t sizes[] = {0, 1, 15, 16, 4096, XCCL_FRAME_MAX_BYTES};
    uint8_t *body = malloc(XCCL_FRAME_MAX_BYTES);
    uint8_t *wire = malloc(XCCL_FRAME_MAX_BYTES + XCCL_FRAME_OVERHEAD_BYTES);
    struct pair pair;

    XT_CHECK(body && wire);
    for (size_t i = 0; i < XCCL_FRAME_MAX_BYTES; i++)
        body[i] = (uint8_t)(i * 7 + i / 251);
    pair_open(&pair);
    for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t bytes = sizes[i / 2], head = bytes / 3;
        struct xccl_channel *from = i % 2 ? &pair.a : &pair.b, *to = i % 2 ? &pair.b : &pair.a;
        struct xccl_frame frame;
        size_t sealed = xccl_channel_seal(from, (uint16_t)(16 + i), (struct xccl_span){body, head},
                                          (struct xccl_span){body + head, bytes - head}, wire);

        XT_CHECK_INT(sealed, bytes + XCCL_FRAME_OVERHEAD_BYTES);
        XT_CHECK_INT(frame_in(to, wire, sealed, &frame), XCCL_VERDICT_OK);
        XT_CHECK_INT(frame.type, 16 + i);
        XT_CHECK_INT(frame.bytes, bytes);
        XT_CHECK(!bytes || memcmp(frame.body, body, bytes) == 0);
    }
    free(body);
    free(wire);
}

XT_TEST(another_key_is_refused_by_both_sides)
{
    static const uint8_t other_key[32] = {9};
    struct pair pair, other;

    pair_begin(&pair);
    xccl_channel_accept(&pair.b, other_key, &hello_b, 0);
    XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_PROOF);
    XT_CHECK_INT(pair.b.state, XCCL_CHANNEL_DEAD);

    /* An answer made with another key, to a hello that it could not read. */
    pair_begin(&pair);
    XT_OK(xccl_channel_library_init());
    xccl_channel_connect(&other.a, other_key, &hello_a, other.hello);
    xccl_channel_accept(&other.b, other_key, &hello_b, 0);
    XT_CHECK_INT(pair_hello(&other), XCCL_VERDICT_OK);
    memcpy(pair.reply, other.reply, sizeof(pair.reply));
    XT_CHECK_INT(pair_reply(&pair), XCCL_VERDICT_PROOF);
}

XT_TEST(another_communicator_is_refused_unless_any_is_welcome)
{
    struct xccl_hello elsewhere = hello_b;
    struct pair pair;

    elsewhere.comm_id[15] = 1;
    pair_begin(&pair);
    xccl_channel_accept(&pair.b, key, &elsewhere, 0);
    XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_COMM);
    pair_begin(&pair);
    xccl_channel_accept(&pair.b, key, &elsewhere, 1);
    XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_OK);
    XT_CHECK_INT(pair_reply(&pair), XCCL_VERDICT_OK);
    XT_CHECK_INT(pair_confirm(&pair), XCCL_VERDICT_OK);
}

XT_TEST(a_hello_thrown_back_is_no_reply)
{
    struct pair pair;

    pair_begin(&pair);
    memcpy(pair.reply, pair.hello, sizeof(pair.hello));
    XT_CHECK_INT(pair_reply(&pair), XCCL_VERDICT_NOT_XCCL);

    /* Also with the magic of a reply: the keys differ. */
    pair_begin(&pair);
    XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_OK);
    memcpy(pair.reply + 4, pair.hello + 4, sizeof(pair.hello) - 4);
    XT_CHECK_INT(pair_reply(&pair), XCCL_VERDICT_PROOF);
}

XT_TEST(a_recorded_session_does_not_play_again)
{
    struct pair pair;

    pair_open(&pair);
    xccl_channel_accept(&pair.b, key, &hello_b, 0);
    XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_OK); /* answered, but not believed */
    XT_CHECK_INT(pair.b.state, XCCL_CHANNEL_CONFIRM);
    XT_CHECK_INT(pair_confirm(&pair), XCCL_VERDICT_PROOF);
    XT_CHECK_INT(pair.b.state, XCCL_CHANNEL_DEAD);
}

XT_TEST(every_bit_of_the_handshake_counts)
{
    struct pair pair;

    for (size_t bit = 0; bit < 8 * XCCL_HELLO_BYTES; bit++) {
        pair_begin(&pair);
        pair.hello[bit / 8] ^= (uint8_t)(1u << bit % 8);
        XT_CHECK(pair_hello(&pair) != XCCL_VERDICT_OK);
    }
    for (size_t bit = 0; bit < 8 * XCCL_HELLO_BYTES; bit++) {
        pair_begin(&pair);
        XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_OK);
        pair.reply[bit / 8] ^= (uint8_t)(1u << bit % 8);
        XT_CHECK(pair_reply(&pair) != XCCL_VERDICT_OK);
    }
    for (size_t bit = 0; bit < 8 * CONFIRM_BYTES; bit++) {
        pair_begin(&pair);
        XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_OK);
        XT_CHECK_INT(pair_reply(&pair), XCCL_VERDICT_OK);
        pair.confirm[bit / 8] ^= (uint8_t)(1u << bit % 8);
        XT_CHECK(pair_confirm(&pair) != XCCL_VERDICT_OK);
    }
}

/* The acceptor's stream header comes with the reply but is believed only through its first frame.
 */
XT_TEST(an_altered_stream_header_spoils_the_first_frame)
{
    uint8_t wire[XCCL_FRAME_OVERHEAD_BYTES];

    for (size_t bit = 0; bit < 8 * XCCL_STREAM_HEADER_BYTES; bit++) {
        struct xccl_frame frame;
        struct pair pair;

        pair_begin(&pair);
        XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_OK);
        pair.reply[XCCL_HELLO_BYTES + bit / 8] ^= (uint8_t)(1u << bit % 8);
        XT_CHECK_INT(pair_reply(&pair), XCCL_VERDICT_OK);
        XT_CHECK_INT(pair_confirm(&pair), XCCL_VERDICT_OK);
        XT_CHECK_INT(xccl_channel_seal(&pair.b, 16, none, none, wire), sizeof(wire));
        XT_CHECK_INT(frame_in(&pair.a, wire, sizeof(wire), &frame), XCCL_VERDICT_TAG);
    }
}

XT_TEST(every_bit_of_a_frame_counts)
{
    static const char body[] = "what was said";
    const size_t bytes = sizeof(body) + XCCL_FRAME_OVERHEAD_BYTES;
    struct pair pair;

    pair_open(&pair);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        struct pair copy = pair;
        struct xccl_frame frame = {0};
        uint8_t wire[sizeof(body) + XCCL_FRAME_OVERHEAD_BYTES];

        XT_CHECK_INT(
            xccl_channel_seal(&copy.a, 16, none, (struct xccl_span){body, sizeof(body)}, wire),
            bytes);
        wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
        XT_CHECK(frame_in(&copy.b, wire, bytes, &frame) != XCCL_VERDICT_OK);
        XT_CHECK(frame.body == NULL);
    }
}

XT_TEST(a_frame_repeated_left_out_or_from_the_other_side_is_refused)
{
    uint8_t first[XCCL_FRAME_OVERHEAD_BYTES], second[XCCL_FRAME_OVERHEAD_BYTES];
    uint8_t again[XCCL_FRAME_OVERHEAD_BYTES];
    struct xccl_frame frame;
    struct pair pair, copy;

    pair_open(&pair);
    xccl_channel_seal(&pair.a, 16, none, none, first);
    xccl_channel_seal(&pair.a, 17, none, none, second);
    copy = pair;
    XT_CHECK_INT(frame_in(&copy.b, second, sizeof(second), &frame), XCCL_VERDICT_TAG);
    copy = pair;
    memcpy(again, first, sizeof(first));
    XT_CHECK_INT(frame_in(&copy.b, first, sizeof(first), &frame), XCCL_VERDICT_OK);
    XT_CHECK_INT(frame_in(&copy.b, again, sizeof(again), &frame), XCCL_VERDICT_TAG);
    XT_CHECK_INT(frame_in(&copy.b, second, sizeof(second), &frame), XCCL_VERDICT_STATE);
    copy = pair;
    xccl_channel_seal(&copy.a, 16, none, none, first);
    XT_CHECK_INT(frame_in(&copy.a, first, sizeof(first), &frame), XCCL_VERDICT_TAG);
}

XT_TEST(lengths_out_of_range_are_refused_before_anything_is_read)
{
    static const uint32_t bad[] = {0, 20, XCCL_FRAME_MAX_BYTES + 22, 0x7fffffff, 0xffffffff};
    uint8_t prefix[4];
    size_t bytes = 0;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        for (int b = 0; b < 4; b++)
            prefix[b] = (uint8_t)(bad[i] >> (8 * b));
        XT_CHECK_INT(xccl_channel_length(prefix, &bytes), XCCL_VERDICT_LENGTH);
    }
    memcpy(prefix, (const uint8_t[]){21, 0, 0, 0}, 4);
    XT_CHECK_INT(xccl_channel_length(prefix, &bytes), XCCL_VERDICT_OK);
    XT_CHECK_INT(bytes, 21);
    memcpy(prefix, (const uint8_t[]){21, 0, 1, 0}, 4);
    XT_CHECK_INT(xccl_channel_length(prefix, &bytes), XCCL_VERDICT_OK);
    XT_CHECK_INT(bytes, XCCL_FRAME_MAX_BYTES + 21);
}

XT_TEST(final_ends_a_direction_and_nothing_may_follow)
{
    uint8_t wire[XCCL_FRAME_OVERHEAD_BYTES], late[XCCL_FRAME_OVERHEAD_BYTES];
    struct xccl_frame frame;
    struct pair pair;

    pair_open(&pair);
    XT_CHECK_INT(xccl_channel_seal_final(&pair.a, wire), sizeof(wire));
    XT_CHECK_INT(xccl_channel_seal(&pair.a, 16, none, none, late), 0);
    XT_CHECK_INT(xccl_channel_seal_final(&pair.a, late), 0);
    XT_CHECK_INT(frame_in(&pair.b, wire, sizeof(wire), &frame), XCCL_VERDICT_OK);
    XT_CHECK_INT(frame.final, 1);
    XT_CHECK_INT(pair.b.state, XCCL_CHANNEL_FINAL);
    XT_CHECK_INT(frame_in(&pair.b, wire, sizeof(wire), &frame), XCCL_VERDICT_STATE);
    /* The other direction still works. */
    XT_CHECK_INT(xccl_channel_seal(&pair.b, 18, none, none, wire), sizeof(wire));
    XT_CHECK_INT(frame_in(&pair.a, wire, sizeof(wire), &frame), XCCL_VERDICT_OK);
    XT_CHECK_INT(frame.type, 18);
}

XT_TEST(bodies_that_are_too_large_are_not_sealed)
{
    uint8_t *wire = malloc(2 * XCCL_FRAME_MAX_BYTES);
    struct pair pair;

    XT_CHECK(wire != NULL);
    pair_open(&pair);
    XT_CHECK_INT(xccl_channel_seal(&pair.a, 16, (struct xccl_span){wire, 1},
                                   (struct xccl_span){wire, XCCL_FRAME_MAX_BYTES}, wire),
                 0);
    XT_CHECK_INT(xccl_channel_seal(&pair.a, 16, (struct xccl_span){wire, SIZE_MAX},
                                   (struct xccl_span){wire, 2}, wire),
                 0);
    free(wire);
}

XT_TEST(secrets_are_gone_after_wipe)
{
    static const struct xccl_channel zero;
    struct pair pair;

    pair_open(&pair);
    XT_CHECK(memcmp(pair.b.key, zero.key, sizeof(zero.key)) == 0);
    xccl_channel_wipe(&pair.b);
    XT_CHECK(memcmp(&pair.b.push, &zero.push, sizeof(zero.push)) == 0);
    XT_CHECK(memcmp(&pair.b.pull, &zero.pull, sizeof(zero.pull)) == 0);
    XT_CHECK(memcmp(pair.b.hello, zero.hello, sizeof(zero.hello)) == 0);
}

static struct xccl_boot_report report_sample(void)
{
    struct xccl_boot_report report = {
        .timeout_ms = 5000, .meeting_idx = 1, .meeting_count = 2, .host = "b", .settings = "A=1"};

    XT_OK(xccl_addr_parse("10.1.2.3:4000", 0, &report.addr));
    return report;
}

XT_TEST(reports_survive_the_wire_and_cut_ones_are_refused)
{
    struct xccl_boot_report report = report_sample(), got;
    uint8_t wire[XCCL_BOOT_REPORT_MAX + 1] = {0};
    size_t bytes = xccl_boot_report_encode(&report, wire);

    XT_CHECK_INT(xccl_boot_report_decode(wire, bytes, &got), 0);
    XT_CHECK_INT(got.timeout_ms, 5000);
    XT_CHECK_TEXT(got.host, "b");
    XT_CHECK_TEXT(got.settings, "A=1");
    XT_CHECK_INT(got.meeting_idx, 1);
    XT_CHECK(xccl_addr_equal(&got.addr, &report.addr));
    for (size_t cut = 0; cut < bytes; cut++)
        XT_CHECK_INT(xccl_boot_report_decode(wire, cut, &got), -1);
    XT_CHECK_INT(xccl_boot_report_decode(wire, bytes + 1, &got), -1);
}

XT_TEST(a_piece_lies_inside_its_message)
{
    struct xccl_boot_mail mail = {XCCL_MAIL_STEP, 3, 0xfedcba98u, 100, 60}, got;
    uint8_t wire[XCCL_BOOT_MAIL_HEAD + 50] = {0};

    xccl_boot_mail_encode(&mail, wire);
    XT_CHECK_INT(xccl_boot_mail_decode(wire, XCCL_BOOT_MAIL_HEAD + 40, &got), 0);
    XT_CHECK(got.kind == mail.kind && got.round == 3 && got.tag == mail.tag);
    XT_CHECK(got.total == 100 && got.offset == 60);
    XT_CHECK_INT(xccl_boot_mail_decode(wire, XCCL_BOOT_MAIL_HEAD + 41, &got), -1);
    XT_CHECK_INT(xccl_boot_mail_decode(wire, XCCL_BOOT_MAIL_HEAD, &got), -1);
    XT_CHECK_INT(xccl_boot_mail_decode(wire, XCCL_BOOT_MAIL_HEAD - 1, &got), -1);
    mail.offset = 101;
    xccl_boot_mail_encode(&mail, wire);
    XT_CHECK_INT(xccl_boot_mail_decode(wire, XCCL_BOOT_MAIL_HEAD + 1, &got), -1);
    mail = (struct xccl_boot_mail){XCCL_MAIL_KIND_END, 0, 0, 0, 0};
    xccl_boot_mail_encode(&mail, wire);
    XT_CHECK_INT(xccl_boot_mail_decode(wire, XCCL_BOOT_MAIL_HEAD, &got), -1);
    mail.kind = XCCL_MAIL_USER; /* a message without bytes has one empty piece */
    xccl_boot_mail_encode(&mail, wire);
    XT_CHECK_INT(xccl_boot_mail_decode(wire, XCCL_BOOT_MAIL_HEAD, &got), 0);
}

XT_TEST(texts_from_peers_are_made_printable)
{
    struct xccl_boot_error got;
    uint8_t wire[XCCL_BOOT_ERROR_MAX + 1] = {0};
    size_t bytes = xccl_boot_error_encode(xcclTimeout, "a\n\033[2Jb", wire);

    XT_CHECK_INT(xccl_boot_error_decode(wire, bytes, &got), 0);
    XT_CHECK_TEXT(got.text, "a??[2Jb");
    XT_CHECK_INT(got.rc, xcclTimeout);
    XT_CHECK_INT(xccl_boot_error_decode(wire, 0, &got), -1);
    XT_CHECK_INT(xccl_boot_error_decode(wire, sizeof(wire), &got), -1);
    wire[0] = xcclSuccess;
    XT_CHECK_INT(xccl_boot_error_decode(wire, bytes, &got), -1);
    wire[0] = xcclNumResults;
    XT_CHECK_INT(xccl_boot_error_decode(wire, bytes, &got), -1);
}

XT_TEST(missing_ranks_are_listed_as_ranges_that_fit)
{
    const void *seen[64] = {0};
    char text[200];

    seen[0] = seen[1] = seen[3] = seen[4] = text;
    xccl_boot_missing_text(seen, 8, 0, text, sizeof(text));
    XT_CHECK_TEXT(text, "2, 5..7");
    for (int i = 0; i < 64; i++)
        seen[i] = i % 2 ? text : NULL;
    xccl_boot_missing_text(seen, 64, 100, text, 48);
    XT_CHECK_HAS(text, "100, 102, 104");
    XT_CHECK_HAS(text, " more");
    XT_CHECK(strlen(text) < 48);
}
