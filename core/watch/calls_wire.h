/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of a rank in frames of the control plane. A call: u64 number, u64 count, u32 collective,
 * u32 type, u32 operator, u32 root. A history (transport/board.h): u64 word, u32 number of the
 * newest call, 16 u32 low halves of words, 8 calls. A rank that has left: i32 rank, u64 number of
 * its last call, then its history, or only the word of that. What comes is the sender's to say and
 * is only compared and shown. Thread: any. */
#ifndef XCCL_WATCH_CALLS_WIRE_H
#define XCCL_WATCH_CALLS_WIRE_H

#include "base/wire.h"
#include "transport/board.h"

#define XCCL_CALL_BYTES    32
#define XCCL_HISTORY_BYTES (8 + 4 + 4 * XCCL_HISTORY_LOWS + XCCL_CALL_BYTES * XCCL_HISTORY_TOLD)
#define XCCL_LEFT_BYTES    (4 + 8 + XCCL_HISTORY_BYTES) /* at most */

struct xccl_left {
    int rank, has_calls; /* has_calls 0: only the word of calls is there */
    uint64_t last_seq;
    struct xccl_board_history calls;
};

void xccl_call_put(struct xccl_wire *wire, const struct xccl_board_call *call);
struct xccl_board_call xccl_call_get(struct xccl_wire *wire);
/* Calls of a board up to number `until`; 0: the newest. */
void xccl_history_put(struct xccl_wire *wire, const struct xccl_board_history *history);
void xccl_history_put_board(struct xccl_wire *wire, const struct xccl_board *board, uint32_t until);
void xccl_history_get(struct xccl_wire *wire, struct xccl_board_history *history_out);
/* Returns how many bytes of out are used. */
size_t xccl_left_encode(const struct xccl_left *left, uint8_t out[XCCL_LEFT_BYTES]);
/* 0: it is none, or there is no such rank. */
int xccl_left_decode(uint8_t *body, size_t bytes, int nranks, struct xccl_left *left_out);

#endif
