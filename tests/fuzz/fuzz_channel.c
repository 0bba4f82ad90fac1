/* SPDX-License-Identifier: BSD-3-Clause */
/* A stranger at both sides of a channel, and a man in the middle of an open one. The first byte of
 * the input chooses which, the rest is what he sends. Without the key nobody gets a channel open,
 * and an altered frame is never unsealed. Thread: one. */
#include "bootstrap/channel.h"

#include <stdlib.h>
#include <string.h>

enum scene { AT_THE_ACCEPTING_SIDE, AT_THE_CONNECTING_SIDE, IN_THE_MIDDLE, SCENE_COUNT };

static const uint8_t key[32] = {1, 2, 3};
static const struct xccl_hello self = {.comm_id = {7}, .rank = 1, .nranks = 4, .purpose = 1};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Feeds the bytes as far as the channel asks for some; it must not open. */
static void shake_stranger(struct xccl_channel *channel, const uint8_t *data, size_t size)
{
    uint8_t out[XCCL_SHAKE_MAX_BYTES];
    size_t need, out_bytes;

    while ((need = xccl_channel_need(channel)) > 0 && need <= size) {
        if (xccl_channel_shake(channel, data, out, &out_bytes) != XCCL_VERDICT_OK)
            break;
        data += need;
        size -= need;
    }
    if (channel->state == XCCL_CHANNEL_OPEN || channel->state == XCCL_CHANNEL_FINAL)
        abort();
}

static void open_pair(struct xccl_channel *one, struct xccl_channel *two)
{
    uint8_t wire[2][XCCL_SHAKE_MAX_BYTES];
    size_t bytes;

    xccl_channel_connect(one, key, &self, wire[0]);
    xccl_channel_accept(two, key, &self, 0);
    if (xccl_channel_shake(two, wire[0], wire[1], &bytes) != XCCL_VERDICT_OK ||
        xccl_channel_shake(one, wire[1], wire[0], &bytes) != XCCL_VERDICT_OK ||
        xccl_channel_shake(two, wire[0], wire[1], &bytes) != XCCL_VERDICT_OK)
        abort();
}

/* Adds the input to a sealed frame, byte by byte; only an input of zeros changes nothing. */
static void alter_frame(const uint8_t *data, size_t size)
{
    static const uint8_t body[] = "sixteen bytes ..";
    uint8_t wire[XCCL_FRAME_OVERHEAD_BYTES + sizeof(body)];
    struct xccl_span head = {NULL, 0}, rest = {body, sizeof(body)};
    struct xccl_channel one, two;
    struct xccl_frame frame;
    size_t wire_bytes, cipher_bytes;
    int altered = 0;

    open_pair(&one, &two);
    wire_bytes = xccl_channel_seal(&one, 17, head, rest, wire);
    if (wire_bytes != sizeof(wire))
        abort();
    for (size_t i = 0; i < size && i < wire_bytes; i++) {
        altered |= data[i];
        wire[i] ^= data[i];
    }
    if (xccl_channel_length(wire, &cipher_bytes) == XCCL_VERDICT_OK &&
        cipher_bytes == wire_bytes - XCCL_FRAME_PREFIX_BYTES) {
        enum xccl_channel_verdict verdict = xccl_channel_unseal(
            &two, wire + XCCL_FRAME_PREFIX_BYTES, cipher_bytes, &frame);

        if ((verdict == XCCL_VERDICT_OK) != (altered == 0))
            abort();
    }
    xccl_channel_wipe(&one);
    xccl_channel_wipe(&two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t hello[XCCL_HELLO_BYTES];
    struct xccl_channel channel;

    if (size == 0 || xccl_channel_library_init() != xcclSuccess)
        return 0;
    switch ((enum scene)(data[0] % SCENE_COUNT)) {
    case AT_THE_ACCEPTING_SIDE:
        xccl_channel_accept(&channel, key, &self, 0);
        shake_stranger(&channel, data + 1, size - 1);
        xccl_channel_wipe(&channel);
        break;
    case AT_THE_CONNECTING_SIDE:
        xccl_channel_connect(&channel, key, &self, hello);
        shake_stranger(&channel, data + 1, size - 1);
        xccl_channel_wipe(&channel);
        break;
    default:
        alter_frame(data + 1, size - 1);
    }
    return 0;
}
