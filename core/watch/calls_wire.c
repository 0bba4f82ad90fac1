/* SPDX-License-Identifier: BSD-3-Clause */
/* Encodes and decodes calls; calls_wire.h has the layout. A frame that is too short makes the wire
 * bad, which the caller looks at. Thread: any. */
#include "watch/calls_wire.h"

struct xccl_board_call xccl_call_get(struct xccl_wire *wire)
{
    struct xccl_board_call call = {.seq = xccl_wire_get_u64(wire)};

    call.count = xccl_wire_get_u64(wire);
    call.coll = xccl_wire_get_u32(wire);
    call.type = xccl_wire_get_u32(wire);
    call.op = xccl_wire_get_u32(wire);
    call.root = xccl_wire_get_u32(wire);
    return call;
}

void xccl_call_put(struct xccl_wire *wire, const struct xccl_board_call *call)
{
    xccl_wire_put_u64(wire, call->seq);
    xccl_wire_put_u64(wire, call->count);
    xccl_wire_put_u32(wire, call->coll);
    xccl_wire_put_u32(wire, call->type);
    xccl_wire_put_u32(wire, call->op);
    xccl_wire_put_u32(wire, call->root);
}

void xccl_history_get(struct xccl_wire *wire, struct xccl_board_history *history_out)
{
    history_out->word = xccl_wire_get_u64(wire);
    history_out->newest = xccl_wire_get_u32(wire);
    for (uint32_t i = 0; i < XCCL_HISTORY_LOWS; i++)
        history_out->lows[i] = xccl_wire_get_u32(wire);
    for (uint32_t i = 0; i < XCCL_HISTORY_TOLD; i++)
        history_out->told[i] = xccl_call_get(wire);
}

void xccl_history_put(struct xccl_wire *wire, const struct xccl_board_history *history)
{
    xccl_wire_put_u64(wire, history->word);
    xccl_wire_put_u32(wire, history->newest);
    for (uint32_t i = 0; i < XCCL_HISTORY_LOWS; i++)
        xccl_wire_put_u32(wire, history->lows[i]);
    for (uint32_t i = 0; i < XCCL_HISTORY_TOLD; i++)
        xccl_call_put(wire, &history->told[i]);
}

void xccl_history_put_board(struct xccl_wire *wire, const struct xccl_board *board, uint32_t until)
{
    struct xccl_board_history history;

    xccl_board_copy(board, until, &history);
    xccl_history_put(wire, &history);
}

size_t xccl_left_encode(const struct xccl_left *left, uint8_t out[XCCL_LEFT_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(out, XCCL_LEFT_BYTES);

    xccl_wire_put_u32(&wire, (uint32_t)left->rank);
    xccl_wire_put_u64(&wire, left->last_seq);
    if (left->has_calls)
        xccl_history_put(&wire, &left->calls);
    else
        xccl_wire_put_u64(&wire, left->calls.word);
    return XCCL_LEFT_BYTES - xccl_wire_left(&wire);
}

int xccl_left_decode(uint8_t *body, size_t bytes, int nranks, struct xccl_left *left_out)
{
    struct xccl_wire wire = xccl_wire_over(body, bytes);

    *left_out = (struct xccl_left){.rank = (int32_t)xccl_wire_get_u32(&wire)};
    left_out->last_seq = xccl_wire_get_u64(&wire);
    left_out->has_calls = xccl_wire_left(&wire) > sizeof left_out->calls.word;
    if (left_out->has_calls)
        xccl_history_get(&wire, &left_out->calls);
    else
        left_out->calls.word = xccl_wire_get_u64(&wire);
    return !wire.bad && !xccl_wire_left(&wire) && left_out->rank >= 0 && left_out->rank < nranks;
}
