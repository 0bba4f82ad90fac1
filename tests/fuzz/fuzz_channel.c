/* SPDX-License-Identifier: BSD-3-Clause */
/* Hostile bytes for the channel and the message decoders behind it. The first byte chooses:
 *   0  the accepting side meets a stranger            1  the connecting side meets a stranger
 *   2  a proven session, then raw hostile frames      3  a proven session with a broken peer: the
 *      input is cut into frames that are sealed in order, unsealed and decoded
 *   4  a proven session and a man in the middle who adds the input to a sealed frame
 *   5  a hello of somebody who has the key and says whatever the input says, then as 0
 * Randomness is a counter, so that a finding repeats. */
#include <stdlib.h>
#include <string.h>

#include "bootstrap/channel.h"
#include "bootstrap/message.h"

static uint64_t random_state;

static const char *random_name(void)
{
    return "counter";
}

static uint32_t random_next(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static void random_fill(void *out, const size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)out)[i] = (uint8_t)random_next();
}

static struct randombytes_implementation random_counter = {
    .implementation_name = random_name, .random = random_next, .buf = random_fill};

static const uint8_t key[32] = {1};
static const struct xccl_hello self = {
    .comm_id = {2}, .rank = 1, .nranks = 4, .purpose = XCCL_PURPOSE_ROUND, .target = 1};

/* Whatever steps the handshake takes with these bytes, none may succeed to the end. */
static void meet_stranger(struct xccl_channel *channel, const uint8_t *data, size_t bytes)
{
    uint8_t out[XCCL_SHAKE_MAX_BYTES];
    size_t need = xccl_channel_need(channel), out_bytes;

    while (need && need <= bytes) {
        if (xccl_channel_peek(channel, data, bytes) != XCCL_VERDICT_OK)
            break;
        if (xccl_channel_shake(channel, data, out, &out_bytes) != XCCL_VERDICT_OK)
            break;
        data += need;
        bytes -= need;
        need = xccl_channel_need(channel);
    }
    if (channel->state == XCCL_CHANNEL_OPEN)
        abort(); /* nobody proves without the key */
}

/* The input is what a hello signs; its MAC is right, as channel.c makes it. */
static void meet_insider(struct xccl_channel *channel, const uint8_t *data, size_t bytes)
{
    static const char *const labels[2] = {"xccl 2 hello", "mac"};
    const size_t signed_bytes = XCCL_HELLO_BYTES - 32;
    uint8_t hello[XCCL_HELLO_BYTES] = {0}, out[XCCL_SHAKE_MAX_BYTES], keys[3][32];
    size_t taken = bytes < signed_bytes ? bytes : signed_bytes, out_bytes;

    memcpy(hello, data, taken);
    memcpy(keys[0], key, 32);
    for (int i = 0; i < 2; i++) {
        crypto_generichash_state state;

        crypto_generichash_init(&state, keys[i], 32, 32);
        crypto_generichash_update(&state, (const uint8_t *)labels[i], strlen(labels[i]) + 1);
        if (i == 1)
            crypto_generichash_update(&state, hello, signed_bytes);
        crypto_generichash_final(&state, keys[i + 1], 32);
    }
    memcpy(hello + signed_bytes, keys[2], 32);
    if (xccl_channel_shake(channel, hello, out, &out_bytes) == XCCL_VERDICT_PROOF)
        abort(); /* the MAC is right */
    meet_stranger(channel, data + taken, bytes - taken);
}

static void session_open(struct xccl_channel *a, struct xccl_channel *b)
{
    uint8_t hello[XCCL_HELLO_BYTES], reply[XCCL_SHAKE_MAX_BYTES], confirm[XCCL_SHAKE_MAX_BYTES];
    size_t bytes;

    xccl_channel_connect(a, key, &self, hello);
    xccl_channel_accept(b, key, &self, NULL);
    if (xccl_channel_shake(b, hello, reply, &bytes) ||
        xccl_channel_shake(a, reply, confirm, &bytes) ||
        xccl_channel_shake(b, confirm, reply, &bytes))
        abort();
}

/* As a connection reads: prefix, length, cipher. */
static int frame_in(struct xccl_channel *channel, const uint8_t *data, size_t bytes,
                    struct xccl_frame *frame, uint8_t **memory_out)
{
    size_t cipher_bytes;

    *memory_out = NULL;
    if (bytes < XCCL_FRAME_PREFIX_BYTES || xccl_channel_length(data, &cipher_bytes) ||
        bytes - XCCL_FRAME_PREFIX_BYTES < cipher_bytes)
        return -1;
    *memory_out = malloc(cipher_bytes);
    if (!*memory_out)
        return -1;
    memcpy(*memory_out, data + XCCL_FRAME_PREFIX_BYTES, cipher_bytes);
    return xccl_channel_unseal(channel, *memory_out, cipher_bytes, frame) ? -1 : 0;
}

static void decode_all(const struct xccl_frame *frame)
{
    struct xccl_boot_report report;
    struct xccl_boot_error error;
    struct xccl_boot_mail mail;
    struct xccl_addr addr;

    if (xccl_boot_report_decode(frame->body, frame->bytes, &report) == 0 &&
        (strlen(report.host) >= sizeof(report.host) || !report.addr.bytes))
        abort();
    if (xccl_boot_error_decode(frame->body, frame->bytes, &error) == 0 &&
        strlen(error.text) >= sizeof(error.text))
        abort();
    (void)xccl_boot_mail_decode(frame->body, frame->bytes, &mail);
    (void)xccl_boot_next_decode(frame->body, frame->bytes, &addr);
}

static void broken_peer(const uint8_t *data, size_t bytes)
{
    struct xccl_channel a, b;

    session_open(&a, &b);
    while (bytes >= 2) {
        size_t body_bytes = data[0] < bytes - 2 ? data[0] : bytes - 2;
        uint8_t wire[256 + XCCL_FRAME_OVERHEAD_BYTES], *memory;
        struct xccl_frame frame;
        size_t sealed = data[1] == 255
                            ? xccl_channel_seal_final(&a, wire)
                            : xccl_channel_seal(&a, data[1], (struct xccl_span){NULL, 0},
                                                (struct xccl_span){data + 2, body_bytes}, wire);

        if (sealed && frame_in(&b, wire, sealed, &frame, &memory) == 0) {
            decode_all(&frame);
            free(memory);
        } else if (sealed) {
            free(memory);
            break;
        }
        data += 2 + body_bytes;
        bytes -= 2 + body_bytes;
    }
    xccl_channel_wipe(&a);
    xccl_channel_wipe(&b);
}

/* Only an input of zeroes changes nothing. */
static void alter_frame(const uint8_t *data, size_t bytes)
{
    uint8_t wire[XCCL_FRAME_OVERHEAD_BYTES + 16], *memory;
    const struct xccl_span body = {"sixteen bytes ..", 16};
    struct xccl_channel a, b;
    struct xccl_frame frame;
    int altered = 0, refused;

    session_open(&a, &b);
    if (xccl_channel_seal(&a, 17, (struct xccl_span){NULL, 0}, body, wire) != sizeof(wire))
        abort();
    for (size_t i = 0; i < bytes && i < sizeof(wire); i++) {
        wire[i] = (uint8_t)(wire[i] + data[i]);
        altered |= data[i];
    }
    refused = frame_in(&b, wire, sizeof(wire), &frame, &memory) != 0;
    free(memory);
    if (refused != (altered != 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct xccl_channel a, b;
    struct xccl_frame frame;
    uint8_t hello[XCCL_HELLO_BYTES], *memory;

    if (!random_state) {
        randombytes_set_implementation(&random_counter);
        if (xccl_channel_library_init())
            abort();
    }
    random_state = 1;
    if (bytes < 1)
        return 0;
    switch (data[0]) {
    case 0:
        xccl_channel_accept(&b, key, &self, NULL);
        meet_stranger(&b, data + 1, bytes - 1);
        break;
    case 1:
        xccl_channel_connect(&a, key, &self, hello);
        meet_stranger(&a, data + 1, bytes - 1);
        break;
    case 2:
        session_open(&a, &b);
        if (frame_in(&b, data + 1, bytes - 1, &frame, &memory) == 0)
            abort(); /* nobody seals without the key */
        free(memory);
        break;
    case 5:
        xccl_channel_accept(&b, key, &self, NULL);
        meet_insider(&b, data + 1, bytes - 1);
        break;
    case 4:
        alter_frame(data + 1, bytes - 1);
        break;
    default:
        broken_peer(data + 1, bytes - 1);
        break;
    }
    return 0;
}
