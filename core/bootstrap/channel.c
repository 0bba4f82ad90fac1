/* SPDX-License-Identifier: BSD-3-Clause */
/* The handshake is a pre-shared-key proof: each side sends a fresh nonce, an ephemeral X25519 key
 * and a keyed BLAKE2b over all that was said so far, each message under a key of its own label, so
 * that no message can stand for another. Session keys come from the job secret, what the ephemeral
 * keys share and the whole transcript, one a direction. The accepting side believes nobody before
 * an encrypted CONFIRM: a recorded hello gets a reply at most, and no further. Where it has reason
 * to doubt that a hello is fresh, it asks for another one that repeats a nonce of its own.
 *
 * Thread: one at a time. */
#include "bootstrap/channel.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/wire.h"
#include "xccl.h"

#define HELLO_MAGIC     0x4c434358u /* "XCCL" */
#define REPLY_MAGIC     0x524c4358u /* "XCLR" */
#define CHALLENGE_MAGIC 0x434c4358u /* "XCLC" */

#define NONCE_BYTES   XCCL_NONCE_BYTES
#define MAC_BYTES     32
#define SIGNED_BYTES  (XCCL_HELLO_BYTES - MAC_BYTES)
#define CIPHER_MIN    (XCCL_FRAME_OVERHEAD_BYTES - XCCL_FRAME_PREFIX_BYTES)
#define CONFIRM_BYTES (XCCL_STREAM_HEADER_BYTES + XCCL_FRAME_OVERHEAD_BYTES)

static_assert(crypto_secretstream_xchacha20poly1305_HEADERBYTES == XCCL_STREAM_HEADER_BYTES,
              "stream header on the wire");
static_assert(crypto_secretstream_xchacha20poly1305_ABYTES + 8 == XCCL_FRAME_OVERHEAD_BYTES,
              "frame overhead on the wire");
static_assert(4 + 2 + 2 + 2 + 2 + 4 + 16 + 4 + 4 + 8 + 4 + 2 * NONCE_BYTES + 32 == SIGNED_BYTES,
              "hello on the wire");
static_assert(sizeof(struct xccl_channel) <= 1024, "an unproven connection costs little");

static pthread_once_t sodium_once = PTHREAD_ONCE_INIT;
static int sodium_rc = -1;

static void sodium_start(void)
{
    sodium_rc = sodium_init();
}

xcclResult_t xccl_channel_library_init(void)
{
    pthread_once(&sodium_once, sodium_start);
    if (sodium_rc < 0) {
        return xccl_fail(xcclSystemError, 0, "make /dev/urandom readable in this container",
                         "libsodium cannot start");
    }
    return xcclSuccess;
}

const char *xccl_channel_verdict_text(enum xccl_channel_verdict verdict)
{
    static const char *const texts[XCCL_VERDICT_COUNT] = {
        [XCCL_VERDICT_OK] = "fine",
        [XCCL_VERDICT_NOT_XCCL] = "does not speak xccl's protocol",
        [XCCL_VERDICT_VERSION] = "speaks another version of xccl's protocol",
        [XCCL_VERDICT_FIELD] = "sent a field that may not be",
        [XCCL_VERDICT_PROOF] = "has another job key, or its bytes were altered or replayed",
        [XCCL_VERDICT_COMM] = "belongs to another communicator",
        [XCCL_VERDICT_TARGET] = "meant another rank",
        [XCCL_VERDICT_REPLAY] = "repeated a hello that came before",
        [XCCL_VERDICT_POINT] = "sent a public key of low order",
        [XCCL_VERDICT_LENGTH] = "sent a frame of impossible length",
        [XCCL_VERDICT_TAG] = "sent a frame that was altered, repeated or left out on the way",
        [XCCL_VERDICT_STATE] = "sent bytes at a time when none may come",
    };

    return (unsigned)verdict < XCCL_VERDICT_COUNT ? texts[verdict] : "failed";
}

/* Keyed BLAKE2b over a label and up to two messages; the label is hashed with its zero byte. */
static void keyed_hash(const uint8_t key[32], const char *label, struct xccl_span first,
                       struct xccl_span second, uint8_t hash_out[32])
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, key, 32, 32);
    crypto_generichash_update(&state, (const uint8_t *)label, strlen(label) + 1);
    if (first.bytes)
        crypto_generichash_update(&state, first.data, first.bytes);
    if (second.bytes)
        crypto_generichash_update(&state, second.data, second.bytes);
    crypto_generichash_final(&state, hash_out, 32);
    sodium_memzero(&state, sizeof(state));
}

static void mac_make(const uint8_t key[32], const char *label, struct xccl_span first,
                     struct xccl_span second, uint8_t mac_out[MAC_BYTES])
{
    const struct xccl_span none = {NULL, 0};
    uint8_t label_key[32];

    keyed_hash(key, label, none, none, label_key);
    keyed_hash(label_key, "mac", first, second, mac_out);
    sodium_memzero(label_key, sizeof(label_key));
}

static void hello_mac(const uint8_t key[32], const uint8_t *hello, uint8_t mac_out[MAC_BYTES])
{
    mac_make(key, "xccl 2 hello", (struct xccl_span){hello, SIGNED_BYTES},
             (struct xccl_span){NULL, 0}, mac_out);
}

/* The MAC of a reply or a challenge. */
static void answer_mac(const uint8_t key[32], const char *label, const uint8_t *hello,
                       const uint8_t *answer, uint8_t mac_out[MAC_BYTES])
{
    mac_make(key, label, (struct xccl_span){hello, XCCL_HELLO_BYTES},
             (struct xccl_span){answer, SIGNED_BYTES}, mac_out);
}

/* Random parts of a hello, reply or challenge. */
struct fresh {
    uint8_t nonce[NONCE_BYTES], challenge[NONCE_BYTES], public_key[32];
};

/* Encodes a hello, reply or challenge without its MAC. */
static void hello_encode(uint32_t magic, const struct xccl_hello *hello, const struct fresh *fresh,
                         uint8_t *out)
{
    struct xccl_wire wire = xccl_wire_over(out, SIGNED_BYTES);

    xccl_wire_put_u32(&wire, magic);
    xccl_wire_put_u16(&wire, XCCL_WIRE_VERSION);
    xccl_wire_put_u16(&wire, hello->purpose);
    xccl_wire_put_u16(&wire, hello->detail);
    xccl_wire_put_u16(&wire, 0);
    xccl_wire_put_u32(&wire, hello->version);
    xccl_wire_put(&wire, hello->comm_id, sizeof(hello->comm_id));
    xccl_wire_put_u32(&wire, hello->rank);
    xccl_wire_put_u32(&wire, hello->nranks);
    xccl_wire_put_u64(&wire, hello->settings_hash);
    xccl_wire_put_u32(&wire, hello->target);
    xccl_wire_put(&wire, fresh->nonce, sizeof(fresh->nonce));
    xccl_wire_put(&wire, fresh->challenge, sizeof(fresh->challenge));
    xccl_wire_put(&wire, fresh->public_key, sizeof(fresh->public_key));
    assert(!wire.bad && wire.at == wire.end);
}

static enum xccl_channel_verdict hello_decode(uint32_t magic, const uint8_t *in,
                                              struct xccl_hello *hello_out, struct fresh *fresh_out)
{
    uint8_t copy[SIGNED_BYTES];
    struct xccl_wire wire = xccl_wire_over(copy, sizeof(copy));
    struct xccl_hello hello = {0};

    memcpy(copy, in, sizeof(copy));
    if (xccl_wire_get_u32(&wire) != magic)
        return XCCL_VERDICT_NOT_XCCL;
    if (xccl_wire_get_u16(&wire) != XCCL_WIRE_VERSION)
        return XCCL_VERDICT_VERSION;
    hello.purpose = xccl_wire_get_u16(&wire);
    hello.detail = xccl_wire_get_u16(&wire);
    if (xccl_wire_get_u16(&wire) != 0)
        return XCCL_VERDICT_FIELD;
    hello.version = xccl_wire_get_u32(&wire);
    xccl_wire_get(&wire, hello.comm_id, sizeof(hello.comm_id));
    hello.rank = xccl_wire_get_u32(&wire);
    hello.nranks = xccl_wire_get_u32(&wire);
    hello.settings_hash = xccl_wire_get_u64(&wire);
    hello.target = xccl_wire_get_u32(&wire);
    xccl_wire_get(&wire, fresh_out->nonce, sizeof(fresh_out->nonce));
    xccl_wire_get(&wire, fresh_out->challenge, sizeof(fresh_out->challenge));
    xccl_wire_get(&wire, fresh_out->public_key, sizeof(fresh_out->public_key));
    *hello_out = hello;
    return XCCL_VERDICT_OK;
}

static enum xccl_channel_verdict channel_die(struct xccl_channel *channel,
                                             enum xccl_channel_verdict verdict)
{
    xccl_channel_wipe(channel);
    channel->state = XCCL_CHANNEL_DEAD;
    return verdict;
}

/* Makes a hello with a new nonce. It answers channel->challenge, if that is set. */
static void hello_make(struct xccl_channel *channel, uint8_t hello_out[XCCL_HELLO_BYTES])
{
    struct fresh fresh;

    randombytes_buf(fresh.nonce, sizeof(fresh.nonce));
    memcpy(fresh.challenge, channel->challenge, sizeof(fresh.challenge));
    memcpy(fresh.public_key, channel->pair.public_key, sizeof(fresh.public_key));
    hello_encode(HELLO_MAGIC, &channel->self, &fresh, channel->hello);
    hello_mac(channel->key, channel->hello, channel->hello + SIGNED_BYTES);
    memcpy(hello_out, channel->hello, XCCL_HELLO_BYTES);
}

void xccl_channel_connect(struct xccl_channel *channel, const uint8_t key[32],
                          const struct xccl_hello *self, uint8_t hello_out[XCCL_HELLO_BYTES])
{
    memset(channel, 0, sizeof(*channel));
    channel->state = XCCL_CHANNEL_REPLY;
    channel->self = *self;
    memcpy(channel->key, key, sizeof(channel->key));
    xccl_ephemeral_make(&channel->pair);
    hello_make(channel, hello_out);
}

void xccl_channel_accept(struct xccl_channel *channel, const uint8_t key[32],
                         const struct xccl_hello *self, const struct xccl_channel_policy *policy)
{
    memset(channel, 0, sizeof(*channel));
    channel->state = XCCL_CHANNEL_HELLO;
    channel->self = *self;
    if (policy)
        channel->policy = *policy;
    memcpy(channel->key, key, sizeof(channel->key));
}

size_t xccl_channel_need(const struct xccl_channel *channel)
{
    switch (channel->state) {
    case XCCL_CHANNEL_HELLO:
        return XCCL_HELLO_BYTES;
    case XCCL_CHANNEL_REPLY:
        return XCCL_HELLO_BYTES + XCCL_STREAM_HEADER_BYTES;
    case XCCL_CHANNEL_CONFIRM:
        return CONFIRM_BYTES;
    case XCCL_CHANNEL_OPEN:
    case XCCL_CHANNEL_FINAL:
    case XCCL_CHANNEL_DEAD:
        break;
    }
    return 0;
}

static int begins(const uint8_t *in, size_t bytes, uint32_t magic)
{
    for (size_t i = 0; i < bytes && i < sizeof(magic); i++) {
        if (in[i] != (uint8_t)(magic >> (8 * i)))
            return 0;
    }
    return 1;
}

enum xccl_channel_verdict xccl_channel_peek(struct xccl_channel *channel, const uint8_t *in,
                                            size_t bytes)
{
    uint8_t head[XCCL_HELLO_HEAD_BYTES];
    struct xccl_wire wire = xccl_wire_over(head, sizeof(head));

    if (channel->state == XCCL_CHANNEL_HELLO
            ? !begins(in, bytes, HELLO_MAGIC)
            : channel->state == XCCL_CHANNEL_REPLY && !begins(in, bytes, REPLY_MAGIC) &&
                  !begins(in, bytes, CHALLENGE_MAGIC))
        return XCCL_VERDICT_NOT_XCCL;
    if ((channel->state != XCCL_CHANNEL_HELLO && channel->state != XCCL_CHANNEL_REPLY) ||
        bytes < sizeof(head))
        return XCCL_VERDICT_OK;
    memcpy(head, in, sizeof(head));
    (void)xccl_wire_get_u32(&wire);
    channel->peer_wire = xccl_wire_get_u16(&wire);
    (void)xccl_wire_get_u16(&wire);
    (void)xccl_wire_get_u32(&wire);
    channel->peer.version = xccl_wire_get_u32(&wire);
    return channel->peer_wire == XCCL_WIRE_VERSION ? XCCL_VERDICT_OK : XCCL_VERDICT_VERSION;
}

void xccl_channel_version_text(const struct xccl_channel *channel, char *text_out, size_t bytes)
{
    uint32_t theirs = channel->peer.version;
    int is_newer = channel->peer_wire > XCCL_WIRE_VERSION;
    char name[48] = "an unknown xccl";

    if (theirs)
        snprintf(name, sizeof(name), "xccl %u.%u.%u", theirs / 10000, theirs / 100 % 100,
                 theirs % 100);
    snprintf(text_out, bytes,
             "speaks version %u of xccl's protocol for joining (%s), and this is version %d (xccl "
             "%d.%d.%d); install the newer xccl %s",
             channel->peer_wire, name, XCCL_WIRE_VERSION, XCCL_MAJOR, XCCL_MINOR, XCCL_PATCH,
             is_newer ? "here too" : "there too");
}

void xccl_channel_notice(uint8_t notice_out[XCCL_NOTICE_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(notice_out, XCCL_NOTICE_BYTES);

    memset(notice_out, 0, XCCL_NOTICE_BYTES);
    xccl_wire_put_u32(&wire, REPLY_MAGIC);
    xccl_wire_put_u16(&wire, XCCL_WIRE_VERSION);
    xccl_wire_put_u16(&wire, 0);
    xccl_wire_put_u32(&wire, 0);
    xccl_wire_put_u32(&wire, XCCL_VERSION_CODE);
}

/* From now on channel->key is the secret of this session; that of the job is gone from here, and so
 * is our half of the ephemeral keys. */
static enum xccl_channel_verdict session_key(struct xccl_channel *channel,
                                             const uint8_t peer_key[32])
{
    uint8_t shared[32], key[32];
    int rc = xccl_ephemeral_share(&channel->pair, peer_key, shared);

    sodium_memzero(&channel->pair, sizeof(channel->pair));
    if (rc != 0)
        return XCCL_VERDICT_POINT;
    keyed_hash(channel->key, "xccl 2 session", (struct xccl_span){shared, sizeof(shared)},
               (struct xccl_span){NULL, 0}, key);
    memcpy(channel->key, key, sizeof(key));
    sodium_memzero(shared, sizeof(shared));
    sodium_memzero(key, sizeof(key));
    return XCCL_VERDICT_OK;
}

/* The key of one direction, from all that both sides said. */
static void direction_key(const struct xccl_channel *channel, const char *label,
                          const uint8_t *reply, uint8_t key_out[32])
{
    keyed_hash(channel->key, label, (struct xccl_span){channel->hello, XCCL_HELLO_BYTES},
               (struct xccl_span){reply, XCCL_HELLO_BYTES}, key_out);
}

/* The accepting side's own fields, for a reply or a challenge. */
static struct xccl_hello answer_fields(const struct xccl_channel *channel)
{
    struct xccl_hello answer = channel->self;

    memcpy(answer.comm_id, channel->peer.comm_id, sizeof(answer.comm_id));
    answer.purpose = channel->peer.purpose;
    answer.detail = channel->peer.detail;
    answer.target = channel->peer.rank;
    return answer;
}

/* Asks for another hello that repeats our nonce; nothing is kept of the first. With a nonce of
 * zeroes it says which rank is here to somebody who meant another. */
static void challenge_make(struct xccl_channel *channel, int is_refusal, uint8_t *out,
                           size_t *out_bytes)
{
    struct xccl_hello answer = answer_fields(channel);
    struct fresh fresh = {0};

    if (!is_refusal)
        randombytes_buf(channel->challenge, sizeof(channel->challenge));
    memcpy(fresh.nonce, channel->challenge, sizeof(fresh.nonce));
    memset(out, 0, XCCL_SHAKE_MAX_BYTES);
    hello_encode(CHALLENGE_MAGIC, &answer, &fresh, out);
    answer_mac(channel->key, "xccl 2 challenge", channel->hello, out, out + SIGNED_BYTES);
    channel->challenged = 1;
    *out_bytes = XCCL_SHAKE_MAX_BYTES;
}

/* Judges a hello with a right proof: does it mean this acceptor, and is it fresh? */
static enum xccl_channel_verdict hello_judge(struct xccl_channel *channel, const uint8_t *in,
                                             const struct fresh *fresh,
                                             enum xccl_channel_opinion *opinion_out)
{
    int answered = channel->challenged &&
                   memcmp(fresh->challenge, channel->challenge, NONCE_BYTES) == 0;
    const struct xccl_channel_policy *policy = &channel->policy;
    uint64_t tag;

    *opinion_out = XCCL_OPINION_FINE;
    if (!policy->any_comm_id && memcmp(channel->peer.comm_id, channel->self.comm_id, 16) != 0)
        return XCCL_VERDICT_COMM;
    if (!policy->any_target && channel->peer.target != channel->self.rank)
        return XCCL_VERDICT_TARGET;
    if (answered != !sodium_is_zero(fresh->challenge, NONCE_BYTES))
        return XCCL_VERDICT_REPLAY; /* it answers somebody else's challenge */
    if (channel->challenged && !answered)
        return XCCL_VERDICT_REPLAY;
    memcpy(&tag, in + SIGNED_BYTES, sizeof(tag));
    if (policy->judge)
        *opinion_out = policy->judge(policy->owner, tag, answered);
    return *opinion_out == XCCL_OPINION_REPLAY ? XCCL_VERDICT_REPLAY : XCCL_VERDICT_OK;
}

static void reply_make(struct xccl_channel *channel, uint8_t *out)
{
    struct xccl_hello answer = answer_fields(channel);
    struct fresh fresh = {0};

    xccl_ephemeral_make(&channel->pair);
    randombytes_buf(fresh.nonce, sizeof(fresh.nonce));
    memcpy(fresh.public_key, channel->pair.public_key, sizeof(fresh.public_key));
    hello_encode(REPLY_MAGIC, &answer, &fresh, out);
    answer_mac(channel->key, "xccl 2 reply", channel->hello, out, out + SIGNED_BYTES);
}

/* HELLO: the hello may be a recorded one, so nothing is believed yet. */
static enum xccl_channel_verdict shake_hello(struct xccl_channel *channel, const uint8_t *in,
                                             uint8_t *out, size_t *out_bytes)
{
    uint8_t mac[MAC_BYTES], key[32];
    enum xccl_channel_opinion opinion;
    struct fresh fresh;
    enum xccl_channel_verdict verdict = hello_decode(HELLO_MAGIC, in, &channel->peer, &fresh);

    if (verdict)
        return channel_die(channel, verdict);
    hello_mac(channel->key, in, mac);
    if (sodium_memcmp(mac, in + SIGNED_BYTES, MAC_BYTES) != 0)
        return channel_die(channel, XCCL_VERDICT_PROOF);
    memcpy(channel->hello, in, XCCL_HELLO_BYTES);
    verdict = hello_judge(channel, in, &fresh, &opinion);
    if (verdict == XCCL_VERDICT_TARGET)
        challenge_make(channel, 1, out, out_bytes);
    if (verdict)
        return channel_die(channel, verdict);
    if (opinion == XCCL_OPINION_CHALLENGE) {
        challenge_make(channel, 0, out, out_bytes);
        return XCCL_VERDICT_OK;
    }
    reply_make(channel, out);
    verdict = session_key(channel, fresh.public_key);
    if (verdict)
        return channel_die(channel, verdict);
    direction_key(channel, "xccl 2 accept to connect", out, key);
    crypto_secretstream_xchacha20poly1305_init_push(&channel->push, out + XCCL_HELLO_BYTES, key);
    /* The other direction's key rests where its stream will be until the header comes. */
    direction_key(channel, "xccl 2 connect to accept", out, key);
    memcpy(channel->key, key, sizeof(key));
    sodium_memzero(key, sizeof(key));
    *out_bytes = XCCL_HELLO_BYTES + XCCL_STREAM_HEADER_BYTES;
    channel->state = XCCL_CHANNEL_CONFIRM;
    return XCCL_VERDICT_OK;
}

/* Answers a challenge: the other side has the key, and gets another hello. */
static enum xccl_channel_verdict shake_challenge(struct xccl_channel *channel, const uint8_t *in,
                                                 uint8_t *out, size_t *out_bytes)
{
    uint8_t mac[MAC_BYTES];
    struct fresh fresh;
    enum xccl_channel_verdict verdict = hello_decode(CHALLENGE_MAGIC, in, &channel->peer, &fresh);

    if (verdict)
        return channel_die(channel, verdict);
    answer_mac(channel->key, "xccl 2 challenge", channel->hello, in, mac);
    if (sodium_memcmp(mac, in + SIGNED_BYTES, MAC_BYTES) != 0)
        return channel_die(channel, XCCL_VERDICT_PROOF);
    if (sodium_is_zero(fresh.nonce, sizeof(fresh.nonce)))
        return channel_die(channel, XCCL_VERDICT_TARGET);
    if (channel->challenged)
        return channel_die(channel, XCCL_VERDICT_STATE);
    channel->challenged = 1;
    memcpy(channel->challenge, fresh.nonce, sizeof(channel->challenge));
    hello_make(channel, out);
    *out_bytes = XCCL_HELLO_BYTES;
    return XCCL_VERDICT_OK;
}

static enum xccl_channel_verdict shake_reply(struct xccl_channel *channel, const uint8_t *in,
                                             uint8_t *out, size_t *out_bytes)
{
    const struct xccl_span none = {NULL, 0};
    uint8_t mac[MAC_BYTES], key[32];
    struct fresh fresh;
    enum xccl_channel_verdict verdict;

    if (begins(in, sizeof(uint32_t), CHALLENGE_MAGIC))
        return shake_challenge(channel, in, out, out_bytes);
    verdict = hello_decode(REPLY_MAGIC, in, &channel->peer, &fresh);
    if (verdict)
        return channel_die(channel, verdict);
    answer_mac(channel->key, "xccl 2 reply", channel->hello, in, mac);
    if (sodium_memcmp(mac, in + SIGNED_BYTES, MAC_BYTES) != 0)
        return channel_die(channel, XCCL_VERDICT_PROOF);
    if (memcmp(channel->peer.comm_id, channel->self.comm_id, 16) != 0)
        return channel_die(channel, XCCL_VERDICT_COMM);
    if (channel->peer.purpose != channel->self.purpose ||
        channel->peer.detail != channel->self.detail || channel->peer.target != channel->self.rank)
        return channel_die(channel, XCCL_VERDICT_FIELD);
    verdict = session_key(channel, fresh.public_key);
    if (verdict)
        return channel_die(channel, verdict);
    direction_key(channel, "xccl 2 accept to connect", in, key);
    crypto_secretstream_xchacha20poly1305_init_pull(&channel->pull, in + XCCL_HELLO_BYTES, key);
    direction_key(channel, "xccl 2 connect to accept", in, key);
    crypto_secretstream_xchacha20poly1305_init_push(&channel->push, out, key);
    sodium_memzero(key, sizeof(key));
    sodium_memzero(channel->key, sizeof(channel->key));
    channel->state = XCCL_CHANNEL_OPEN;
    *out_bytes = XCCL_STREAM_HEADER_BYTES + xccl_channel_seal(channel, XCCL_FRAME_CONFIRM, none,
                                                              none, out + XCCL_STREAM_HEADER_BYTES);
    return XCCL_VERDICT_OK;
}

static enum xccl_channel_verdict shake_confirm(struct xccl_channel *channel, const uint8_t *in)
{
    uint8_t copy[CONFIRM_BYTES - XCCL_STREAM_HEADER_BYTES];
    struct xccl_frame frame;
    size_t cipher_bytes;
    enum xccl_channel_verdict verdict;

    memcpy(copy, in + XCCL_STREAM_HEADER_BYTES, sizeof(copy));
    verdict = xccl_channel_length(copy, &cipher_bytes);
    if (verdict)
        return channel_die(channel, verdict);
    if (cipher_bytes != CIPHER_MIN)
        return channel_die(channel, XCCL_VERDICT_LENGTH);
    crypto_secretstream_xchacha20poly1305_init_pull(&channel->pull, in, channel->key);
    sodium_memzero(channel->key, sizeof(channel->key));
    channel->state = XCCL_CHANNEL_OPEN;
    verdict = xccl_channel_unseal(channel, copy + XCCL_FRAME_PREFIX_BYTES, cipher_bytes, &frame);
    if (verdict == XCCL_VERDICT_TAG)
        return XCCL_VERDICT_PROOF;
    if (verdict)
        return verdict;
    if (frame.final || frame.type != XCCL_FRAME_CONFIRM)
        return channel_die(channel, XCCL_VERDICT_FIELD);
    return XCCL_VERDICT_OK;
}

enum xccl_channel_verdict xccl_channel_shake(struct xccl_channel *channel, const uint8_t *in,
                                             uint8_t out[XCCL_SHAKE_MAX_BYTES], size_t *out_bytes)
{
    *out_bytes = 0;
    switch (channel->state) {
    case XCCL_CHANNEL_HELLO:
        return shake_hello(channel, in, out, out_bytes);
    case XCCL_CHANNEL_REPLY:
        return shake_reply(channel, in, out, out_bytes);
    case XCCL_CHANNEL_CONFIRM:
        return shake_confirm(channel, in);
    case XCCL_CHANNEL_OPEN:
    case XCCL_CHANNEL_FINAL:
    case XCCL_CHANNEL_DEAD:
        break;
    }
    return XCCL_VERDICT_STATE;
}

/* The plaintext is laid where its cipher will be and encrypted in place, so no scratch is needed.
 */
static size_t seal(struct xccl_channel *channel, uint16_t type, struct xccl_span head,
                   struct xccl_span body, uint8_t tag, uint8_t *frame_out)
{
    uint8_t *plain = frame_out + XCCL_FRAME_PREFIX_BYTES + 1;
    size_t plain_bytes = 4 + head.bytes + body.bytes;
    size_t cipher_bytes = plain_bytes + crypto_secretstream_xchacha20poly1305_ABYTES;
    struct xccl_wire wire = xccl_wire_over(frame_out, XCCL_FRAME_PREFIX_BYTES);

    xccl_wire_put_u32(&wire, (uint32_t)cipher_bytes);
    wire = xccl_wire_over(plain, plain_bytes);
    xccl_wire_put_u16(&wire, type);
    xccl_wire_put_u16(&wire, 0);
    xccl_wire_put(&wire, head.data, head.bytes);
    xccl_wire_put(&wire, body.data, body.bytes);
    crypto_secretstream_xchacha20poly1305_push(&channel->push, frame_out + XCCL_FRAME_PREFIX_BYTES,
                                               NULL, plain, plain_bytes, NULL, 0, tag);
    return XCCL_FRAME_PREFIX_BYTES + cipher_bytes;
}

static int may_send(const struct xccl_channel *channel)
{
    return !channel->final_sent &&
           (channel->state == XCCL_CHANNEL_OPEN || channel->state == XCCL_CHANNEL_FINAL);
}

size_t xccl_channel_seal(struct xccl_channel *channel, uint16_t type, struct xccl_span head,
                         struct xccl_span body, uint8_t *frame_out)
{
    if (!may_send(channel) || head.bytes > XCCL_FRAME_MAX_BYTES ||
        body.bytes > XCCL_FRAME_MAX_BYTES - head.bytes)
        return 0;
    return seal(channel, type, head, body, crypto_secretstream_xchacha20poly1305_TAG_MESSAGE,
                frame_out);
}

size_t xccl_channel_seal_final(struct xccl_channel *channel,
                               uint8_t frame_out[XCCL_FRAME_OVERHEAD_BYTES])
{
    const struct xccl_span none = {NULL, 0};

    if (!may_send(channel))
        return 0;
    channel->final_sent = 1;
    return seal(channel, XCCL_FRAME_FINAL, none, none,
                crypto_secretstream_xchacha20poly1305_TAG_FINAL, frame_out);
}

enum xccl_channel_verdict xccl_channel_length(const uint8_t prefix[XCCL_FRAME_PREFIX_BYTES],
                                              size_t *cipher_bytes_out)
{
    uint8_t copy[XCCL_FRAME_PREFIX_BYTES];
    struct xccl_wire wire = xccl_wire_over(copy, sizeof(copy));
    uint32_t cipher_bytes;

    memcpy(copy, prefix, sizeof(copy));
    cipher_bytes = xccl_wire_get_u32(&wire);
    if (cipher_bytes < CIPHER_MIN || cipher_bytes > XCCL_FRAME_MAX_BYTES + CIPHER_MIN)
        return XCCL_VERDICT_LENGTH;
    *cipher_bytes_out = cipher_bytes;
    return XCCL_VERDICT_OK;
}

enum xccl_channel_verdict xccl_channel_unseal(struct xccl_channel *channel, uint8_t *cipher,
                                              size_t cipher_bytes, struct xccl_frame *frame_out)
{
    unsigned char tag = 0;
    unsigned long long plain_bytes = 0;
    struct xccl_frame frame = {0};
    struct xccl_wire wire;

    if (channel->state != XCCL_CHANNEL_OPEN)
        return XCCL_VERDICT_STATE;
    if (cipher_bytes < CIPHER_MIN || cipher_bytes > XCCL_FRAME_MAX_BYTES + CIPHER_MIN)
        return channel_die(channel, XCCL_VERDICT_LENGTH);
    if (crypto_secretstream_xchacha20poly1305_pull(&channel->pull, cipher + 1, &plain_bytes, &tag,
                                                   cipher, cipher_bytes, NULL, 0) != 0)
        return channel_die(channel, XCCL_VERDICT_TAG);
    wire = xccl_wire_over(cipher + 1, (size_t)plain_bytes);
    frame.type = xccl_wire_get_u16(&wire);
    if (xccl_wire_get_u16(&wire) != 0)
        return channel_die(channel, XCCL_VERDICT_FIELD);
    frame.bytes = xccl_wire_left(&wire);
    frame.body = wire.at;
    frame.final = tag == crypto_secretstream_xchacha20poly1305_TAG_FINAL;
    if (frame.final && (frame.bytes || frame.type != XCCL_FRAME_FINAL))
        return channel_die(channel, XCCL_VERDICT_FIELD);
    if (!frame.final && (tag != crypto_secretstream_xchacha20poly1305_TAG_MESSAGE ||
                         frame.type == XCCL_FRAME_FINAL))
        return channel_die(channel, XCCL_VERDICT_FIELD);
    if (frame.final)
        channel->state = XCCL_CHANNEL_FINAL;
    *frame_out = frame;
    return XCCL_VERDICT_OK;
}

void xccl_channel_wipe(struct xccl_channel *channel)
{
    sodium_memzero(channel->key, sizeof(channel->key));
    sodium_memzero(&channel->pair, sizeof(channel->pair));
    sodium_memzero(channel->hello, sizeof(channel->hello));
    sodium_memzero(&channel->push, sizeof(channel->push));
    sodium_memzero(&channel->pull, sizeof(channel->pull));
    channel->state = XCCL_CHANNEL_DEAD;
}
