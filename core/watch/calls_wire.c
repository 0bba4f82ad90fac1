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
