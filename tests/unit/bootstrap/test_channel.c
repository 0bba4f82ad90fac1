/* SPDX-License-Identifier: BSD-3-Clause */
/* The channel without any socket: what proves, what does not, and that every bit of every message
 * counts. The bootstrap's message decoders, which are as pure, are here too.
 * Seeded randomness: a run repeats with XT_SEED. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

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
static const struct xccl_hello hello_a = {.comm_id = {7},
                                          .rank = 3,
                                          .nranks = 8,
                                          .purpose = XCCL_PURPOSE_ROUND,
                                          .detail = 2,
                                          .target = 7};
static const struct xccl_hello hello_b = {.comm_id = {7}, .rank = 7, .nranks = 8};
static const struct xccl_span none = {NULL, 0};

static void pair_begin(struct pair *pair)
{
    XT_OK(xccl_channel_library_init());
    xccl_channel_connect(&pair->a, key, &hello_a, pair->hello);
    xccl_channel_accept(&pair->b, key, &hello_b, NULL);
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
    xccl_channel_accept(&pair.b, other_key, &hello_b, NULL);
    XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_PROOF);
    XT_CHECK_INT(pair.b.state, XCCL_CHANNEL_DEAD);

    /* An answer made with another key, to a hello that it could not read. */
    pair_begin(&pair);
    XT_OK(xccl_channel_library_init());
    xccl_channel_connect(&other.a, other_key, &hello_a, other.hello);
    xccl_channel_accept(&other.b, other_key, &hello_b, NULL);
    XT_CHECK_INT(pair_hello(&other), XCCL_VERDICT_OK);
    memcpy(pair.reply, other.reply, sizeof(pair.reply));
    XT_CHECK_INT(pair_reply(&pair), XCCL_VERDICT_PROOF);
}

XT_TEST(another_communicator_is_refused_unless_any_is_welcome)
{
    static const struct xccl_channel_policy any = {.any_comm_id = 1};
    struct xccl_hello elsewhere = hello_b;
    struct pair pair;

    elsewhere.comm_id[15] = 1;
    pair_begin(&pair);
    xccl_channel_accept(&pair.b, key, &elsewhere, NULL);
    XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_COMM);
    pair_begin(&pair);
    xccl_channel_accept(&pair.b, key, &elsewhere, &any);
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
    xccl_channel_accept(&pair.b, key, &hello_b, NULL);
    XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_OK); /* without a judge: answered, not believed */
    XT_CHECK_INT(pair.b.state, XCCL_CHANNEL_CONFIRM);
    XT_CHECK_INT(pair_confirm(&pair), XCCL_VERDICT_PROOF);
    XT_CHECK_INT(pair.b.state, XCCL_CHANNEL_DEAD);
}

XT_TEST(who_means_another_rank_is_told_which_one_is_here)
{
    static const struct xccl_channel_policy any = {.any_target = 1};
    struct xccl_hello elsewhere = hello_b;
    struct pair pair;
    size_t bytes = 0;

    elsewhere.rank = 6;
    pair_begin(&pair);
    xccl_channel_accept(&pair.b, key, &elsewhere, NULL);
    XT_CHECK_INT(xccl_channel_shake(&pair.b, pair.hello, pair.reply, &bytes), XCCL_VERDICT_TARGET);
    XT_CHECK_INT(bytes, XCCL_SHAKE_MAX_BYTES);
    XT_CHECK_INT(pair.b.state, XCCL_CHANNEL_DEAD);
    XT_CHECK_INT(pair_reply(&pair), XCCL_VERDICT_TARGET);
    XT_CHECK_INT(pair.a.peer.rank, 6);
    pair_begin(&pair);
    xccl_channel_accept(&pair.b, key, &elsewhere, &any);
    XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_OK);
    XT_CHECK_INT(pair_reply(&pair), XCCL_VERDICT_OK);
    XT_CHECK_INT(pair_confirm(&pair), XCCL_VERDICT_OK);
}

/* A judge's opinion, and the arguments of its last call. */
struct court {
    enum xccl_channel_opinion opinion;
    int asked, answered;
    uint64_t tag;
};

static enum xccl_channel_opinion court_judge(void *owner, uint64_t tag, int answered)
{
    struct court *court = owner;

    XT_CHECK(court->asked++ == 0 || tag != court->tag);
    court->tag = tag;
    court->answered = answered;
    return answered ? XCCL_OPINION_FINE : court->opinion;
}

/* Has b challenge a; pair.hello is the first hello then, second the other. */
static void pair_challenge(struct pair *pair, struct court *court, uint8_t *second)
{
    const struct xccl_channel_policy policy = {.judge = court_judge, .owner = court};
    size_t bytes = 0;

    *court = (struct court){.opinion = XCCL_OPINION_CHALLENGE};
    pair_begin(pair);
    xccl_channel_accept(&pair->b, key, &hello_b, &policy);
    XT_CHECK_INT(pair_hello(pair), XCCL_VERDICT_OK);
    XT_CHECK_INT(pair->b.state, XCCL_CHANNEL_HELLO);
    XT_CHECK_INT(xccl_channel_peek(&pair->a, pair->reply, XCCL_SHAKE_MAX_BYTES), XCCL_VERDICT_OK);
    XT_CHECK_INT(xccl_channel_shake(&pair->a, pair->reply, second, &bytes), XCCL_VERDICT_OK);
    XT_CHECK_INT(bytes, XCCL_HELLO_BYTES);
    XT_CHECK_INT(pair->a.state, XCCL_CHANNEL_REPLY);
}

XT_TEST(a_challenge_is_answered_once_and_by_its_own_connection_only)
{
    uint8_t second[XCCL_SHAKE_MAX_BYTES], other[XCCL_SHAKE_MAX_BYTES];
    struct court court, other_court;
    struct pair pair, other_pair;
    size_t bytes = 0;

    pair_challenge(&pair, &court, second);
    memcpy(pair.hello, second, sizeof(pair.hello));
    XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_OK);
    XT_CHECK(court.answered && court.asked == 2);
    XT_CHECK_INT(pair_reply(&pair), XCCL_VERDICT_OK);
    XT_CHECK_INT(pair_confirm(&pair), XCCL_VERDICT_OK);

    /* The recorded hello again, and an answer to another challenge. */
    pair_challenge(&pair, &court, second);
    XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_REPLAY);
    pair_challenge(&pair, &court, second);
    pair_challenge(&other_pair, &other_court, other);
    memcpy(pair.hello, other, sizeof(pair.hello));
    XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_REPLAY);
    /* An answer where nobody asked. */
    pair_begin(&pair);
    memcpy(pair.hello, other, sizeof(pair.hello));
    XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_REPLAY);
    /* A second challenge, which only somebody with the key can make. */
    pair_challenge(&pair, &court, second);
    pair.a.challenged = 1;
    memcpy(other_pair.reply, pair.reply, sizeof(pair.reply));
    other_pair.a = pair.a;
    XT_CHECK(xccl_channel_shake(&other_pair.a, other_pair.reply, other, &bytes) != XCCL_VERDICT_OK);
    XT_CHECK_INT(other_pair.a.state, XCCL_CHANNEL_DEAD);
}

XT_TEST(every_bit_of_a_challenge_counts)
{
    const struct xccl_channel_policy policy = {.judge = court_judge};
    uint8_t second[XCCL_SHAKE_MAX_BYTES];

    for (size_t bit = 0; bit < 8 * XCCL_HELLO_BYTES; bit++) {
        struct court court = {.opinion = XCCL_OPINION_CHALLENGE};
        struct xccl_channel_policy own = policy;
        struct pair pair;
        size_t bytes = 0;

        own.owner = &court;
        pair_begin(&pair);
        xccl_channel_accept(&pair.b, key, &hello_b, &own);
        XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_OK);
        pair.reply[bit / 8] ^= (uint8_t)(1u << bit % 8);
        XT_CHECK(xccl_channel_shake(&pair.a, pair.reply, second, &bytes) != XCCL_VERDICT_OK);
        XT_CHECK_INT(bytes, 0);
    }
}

/* Offset of the ephemeral key in a hello and in a reply. */
#define KEY_AT 84

/* a's hello with another ephemeral key, under the job key: as channel.c does it. */
static void hello_with_key(struct xccl_channel *a, const uint8_t public_key[32],
                           uint8_t hello[XCCL_HELLO_BYTES])
{
    static const char *const labels[2] = {"xccl 2 hello", "mac"};
    uint8_t keys[3][32];

    memcpy(keys[0], a->key, 32);
    memcpy(hello + KEY_AT, public_key, 32);
    for (int i = 0; i < 2; i++) {
        crypto_generichash_state state;

        crypto_generichash_init(&state, keys[i], 32, 32);
        crypto_generichash_update(&state, (const uint8_t *)labels[i], strlen(labels[i]) + 1);
        if (i == 1)
            crypto_generichash_update(&state, hello, XCCL_HELLO_BYTES - 32);
        crypto_generichash_final(&state, keys[i + 1], 32);
    }
    memcpy(hello + XCCL_HELLO_BYTES - 32, keys[2], 32);
}

/* Keys of low order with the right MAC: their sender has the job key, and wants a session that all
 * can read. */
XT_TEST(public_keys_of_low_order_are_refused)
{
    static const uint8_t low[3][32] = {
        {0},
        {1},
        {0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3,
         0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32,
         0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00},
    };
    struct xccl_ephemeral pair, other;
    uint8_t shared[32], back[32];

    XT_OK(xccl_channel_library_init());
    xccl_ephemeral_make(&pair);
    xccl_ephemeral_make(&other);
    XT_CHECK(memcmp(pair.secret, other.secret, 32) != 0); /* nobody joins: none is shared */
    XT_CHECK_INT(xccl_ephemeral_share(&pair, other.public_key, shared), 0);
    XT_CHECK_INT(xccl_ephemeral_share(&other, pair.public_key, back), 0);
    XT_CHECK(memcmp(shared, back, 32) == 0);
    for (int i = 0; i < 3; i++) {
        struct xccl_channel a, b;
        uint8_t hello[XCCL_HELLO_BYTES], reply[XCCL_SHAKE_MAX_BYTES];
        size_t bytes = 0;

        XT_CHECK_INT(xccl_ephemeral_share(&pair, low[i], shared), -1);
        xccl_channel_connect(&a, key, &hello_a, hello);
        hello_with_key(&a, a.pair.public_key, hello);
        xccl_channel_accept(&b, key, &hello_b, NULL);
        XT_CHECK_INT(xccl_channel_shake(&b, hello, reply, &bytes), XCCL_VERDICT_OK);
        hello_with_key(&a, low[i], hello);
        xccl_channel_accept(&b, key, &hello_b, NULL);
        XT_CHECK_INT(xccl_channel_shake(&b, hello, reply, &bytes), XCCL_VERDICT_POINT);
        XT_CHECK_INT(bytes, 0);
    }
}

/* A thief has a recorded session and learns the job key later: neither may give the session keys.
 * Two sessions of the same hellos but other ephemeral keys cannot read each other. */
XT_TEST(the_job_key_and_a_recording_do_not_give_the_session)
{
    uint8_t wire[XCCL_FRAME_OVERHEAD_BYTES];
    struct xccl_frame frame;
    struct pair pair, thief;

    pair_begin(&pair);
    thief = pair; /* the hello as sent, the job key, all but the ephemeral secret */
    randombytes_buf(thief.a.pair.secret, sizeof(thief.a.pair.secret));
    XT_CHECK_INT(pair_hello(&pair), XCCL_VERDICT_OK);
    memcpy(thief.reply, pair.reply, sizeof(thief.reply));
    XT_CHECK_INT(pair_reply(&pair), XCCL_VERDICT_OK);
    XT_CHECK_INT(pair_confirm(&pair), XCCL_VERDICT_OK);
    XT_CHECK_INT(pair_reply(&thief), XCCL_VERDICT_OK); /* the MACs are the job key's alone */
    XT_CHECK_INT(xccl_channel_seal(&pair.b, 16, none, none, wire), sizeof(wire));
    XT_CHECK_INT(frame_in(&thief.a, wire, sizeof(wire), &frame), XCCL_VERDICT_TAG);
}

XT_TEST(handshakes_share_a_pair_only_while_ranks_join)
{
    struct xccl_ephemeral first, second, third;

    XT_OK(xccl_channel_library_init());
    xccl_ephemeral_hold();
    xccl_ephemeral_hold();
    xccl_ephemeral_make(&first);
    xccl_ephemeral_make(&second);
    XT_CHECK(memcmp(&first, &second, sizeof(first)) == 0);
    xccl_ephemeral_release();
    xccl_ephemeral_make(&second);
    XT_CHECK(memcmp(&first, &second, sizeof(first)) == 0);
    xccl_ephemeral_release();
    xccl_ephemeral_make(&second);
    XT_CHECK(memcmp(&first, &second, sizeof(first)) != 0);
    xccl_ephemeral_hold();
    xccl_ephemeral_make(&third);
    XT_CHECK(memcmp(&first, &third, sizeof(first)) != 0);
    xccl_ephemeral_release();
    xccl_ephemeral_release(); /* one too many, as in a fork's child, does no harm */
}

XT_TEST(a_child_of_fork_shares_no_pair_of_its_parents)
{
    struct xccl_ephemeral parents, first, second;
    int status = -1;
    pid_t pid;

    XT_OK(xccl_channel_library_init());
    xccl_ephemeral_hold();
    xccl_ephemeral_make(&parents);
    pid = fork();
    if (!pid) {
        xccl_ephemeral_make(&first);
        xccl_ephemeral_make(&second); /* nobody joins here */
        _exit((memcmp(&parents, &first, sizeof(first)) == 0) |
              (memcmp(&first, &second, sizeof(first)) == 0) << 1);
    }
    XT_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    XT_CHECK_INT(status, 0);
    xccl_ephemeral_make(&second);
    XT_CHECK(memcmp(&parents, &second, sizeof(second)) == 0);
    xccl_ephemeral_release();
}

XT_TEST(another_version_is_named_on_both_sides)
{
    uint8_t old[96] = {'X', 'C', 'C', 'L', 1, 0, 1, 0, 0, 0, 0, 0, 0x39, 0x30};
    uint8_t notice[XCCL_NOTICE_BYTES];
    char text[256];
    struct pair pair;

    pair_begin(&pair);
    XT_CHECK_INT(xccl_channel_peek(&pair.b, old, 15), XCCL_VERDICT_OK);
    XT_CHECK_INT(xccl_channel_peek(&pair.b, old, 16), XCCL_VERDICT_VERSION);
    xccl_channel_version_text(&pair.b, text, sizeof(text));
    XT_CHECK_HAS(text, "speaks version 1 of xccl's protocol for joining (xccl 1.23.45)");
    XT_CHECK_HAS(text, "this is version 2");
    XT_CHECK_HAS(text, "install the newer xccl there too");
    xccl_channel_notice(notice);
    XT_CHECK(memcmp(notice, "XCLR\2\0", 6) == 0);
    notice[4] = 3;
    XT_CHECK_INT(xccl_channel_peek(&pair.a, notice, sizeof(notice)), XCCL_VERDICT_VERSION);
    xccl_channel_version_text(&pair.a, text, sizeof(text));
    XT_CHECK_HAS(text, "speaks version 3");
    XT_CHECK_HAS(text, "install the newer xccl here too");
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
    XT_CHECK(memcmp(&pair.a.pair, &zero.pair, sizeof(zero.pair)) == 0);
    XT_CHECK(memcmp(&pair.b.pair, &zero.pair, sizeof(zero.pair)) == 0);
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

XT_TEST(a_sign_of_life_comes_back_whole_or_not_at_all)
{
    struct xccl_boot_who who = {.process_id = 0x0123456789abcdefu,
                                .host_hash = UINT64_MAX,
                                .pid = 12,
                                .rank = XCCL_BOOT_NO_RANK,
                                .beat_ms = 1000,
                                .host = "a\x1b[2J"};
    struct xccl_boot_who got = {.pid = 7};
    uint8_t wire[XCCL_BOOT_ALIVE_MAX + 1] = {0};
    size_t bytes = xccl_boot_alive_encode(&who, wire);

    for (size_t cut = 0; cut < bytes; cut++)
        XT_CHECK_INT(xccl_boot_alive_decode(wire, cut, &got), -1);
    XT_CHECK_INT(xccl_boot_alive_decode(wire, bytes + 1, &got), -1);
    XT_CHECK_INT(got.pid, 7);
    XT_CHECK_INT(xccl_boot_alive_decode(wire, bytes, &got), 0);
    XT_CHECK(got.process_id == who.process_id && got.host_hash == who.host_hash);
    XT_CHECK(got.pid == 12 && got.rank == XCCL_BOOT_NO_RANK && got.beat_ms == 1000);
    XT_CHECK_TEXT(got.host, "a?[2J");
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
