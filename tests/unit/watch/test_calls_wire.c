/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of a rank that has left, in a frame: what was sent comes back, with all calls or with the
 * word of the last one only; anything else is refused. */
#include <string.h>

#include "watch/calls_wire.h"
#include "xt.h"

#define RANKS 4

static struct xccl_left left_make(int has_calls)
{
    struct xccl_left left = {.rank = 3, .has_calls = has_calls, .last_seq = 7};

    left.calls.word = (uint64_t)7 << 32 | 0x1234;
    if (!has_calls)
        return left;
    left.calls.newest = 7;
    for (uint32_t i = 0; i < XCCL_HISTORY_LOWS; i++)
        left.calls.lows[i] = 0x1234 + i;
    for (uint32_t i = 0; i < XCCL_HISTORY_TOLD; i++)
        left.calls.told[i] = (struct xccl_board_call){
            .seq = 7 - i, .count = 100 + i, .coll = i, .type = 1, .op = 2, .root = 3};
    return left;
}

static void comes_back(int has_calls, size_t bytes)
{
    struct xccl_left sent = left_make(has_calls), got;
    uint8_t body[XCCL_LEFT_BYTES];

    XT_CHECK_INT(xccl_left_encode(&sent, body), bytes);
    XT_CHECK(xccl_left_decode(body, bytes, RANKS, &got));
    XT_CHECK_INT(got.rank, sent.rank);
    XT_CHECK_INT(got.has_calls, has_calls);
    XT_CHECK_INT(got.last_seq, sent.last_seq);
    XT_CHECK(memcmp(&got.calls, &sent.calls, sizeof got.calls) == 0);
}

XT_TEST(calls_come_as_they_were_sent)
{
    comes_back(1, XCCL_LEFT_BYTES);
}

XT_TEST(so_does_the_word_alone)
{
    comes_back(0, 20);
}

XT_TEST(frames_of_other_sizes_are_refused)
{
    struct xccl_left sent = left_make(1), got;
    uint8_t body[XCCL_LEFT_BYTES + 1] = {0};

    (void)xccl_left_encode(&sent, body);
    for (size_t bytes = 0; bytes <= sizeof body; bytes++)
        XT_CHECK_INT(xccl_left_decode(body, bytes, RANKS, &got),
                     bytes == 20 || bytes == XCCL_LEFT_BYTES);
}

XT_TEST(ranks_that_there_are_not_are_refused)
{
    struct xccl_left sent = left_make(1), got;
    uint8_t body[XCCL_LEFT_BYTES];

    sent.rank = RANKS;
    XT_CHECK(!xccl_left_decode(body, xccl_left_encode(&sent, body), RANKS, &got));
    sent.rank = -1;
    XT_CHECK(!xccl_left_decode(body, xccl_left_encode(&sent, body), RANKS, &got));
}
