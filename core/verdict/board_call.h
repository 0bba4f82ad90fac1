/* SPDX-License-Identifier: BSD-3-Clause */
/* A call of a rank as others see it: on its board, in frames of the control plane, in verdicts.
 * Plain data; those that came from another rank may hold anything. */
#ifndef XCCL_VERDICT_BOARD_CALL_H
#define XCCL_VERDICT_BOARD_CALL_H

#include <stdint.h>

#define XCCL_BOARD_SIZED    0x80u /* beside the collective: blocks have sizes of their own */
#define XCCL_BOARD_CONNECTS 0x40u /* likewise: part of xcclCommConnectAll */

struct xccl_board_call {
    uint64_t seq, count;
    uint32_t coll, type, op, root; /* root: of a call with sizes: their hash */
};

#endif
