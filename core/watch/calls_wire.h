/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of a rank in frames of the control plane. A call: u64 number, u64 count, u32 collective,
 * u32 type, u32 operator, u32 root. A history (transport/board.h): u64 word, u32 number of the
 * newest call, 16 u32 low halves of words, 8 calls. What comes is the sender's to say and is only
 * compared and shown. Thread: any. */
#ifndef XCCL_WATCH_CALLS_WIRE_H
#define XCCL_WATCH_CALLS_WIRE_H

#include "base/wire.h"
#include "transport/board.h"

#define XCCL_CALL_BYTES    32
#define XCCL_HISTORY_BYTES (8 + 4 + 4 * XCCL_HISTORY_LOWS + XCCL_CALL_BYTES * XCCL_HISTORY_TOLD)

void xccl_call_put(struct xccl_wire *wire, const struct xccl_board_call *call);
struct xccl_board_call xccl_call_get(struct xccl_wire *wire);
/* Calls of a board up to number `until`; 0: the newest. */
void xccl_history_put(struct xccl_wire *wire, const struct xccl_board_history *history);
void xccl_history_put_board(struct xccl_wire *wire, const struct xccl_board *board, uint32_t until);
void xccl_history_get(struct xccl_wire *wire, struct xccl_board_history *history_out);

#endif
