/* SPDX-License-Identifier: BSD-3-Clause */
/* How error texts name a call of a rank, so that two calls have the same text only when nothing
 * differs that the user has given.
 * Thread: any. */
#ifndef XCCL_VERDICT_CALL_TEXT_H
#define XCCL_VERDICT_CALL_TEXT_H

#include <stddef.h>

#include "verdict/board_call.h"

/* "call 7: all-reduce of 12 float32, sum", "call 8: broadcast of 3 int8, root 2", "call 9:
 * all-gather-v of 20 int8 in all (counts 5f3c91d0)", "call 10: all-to-all-v of 7 int8 sent" */
void xccl_call_describe(const struct xccl_board_call *call, char *text_out, size_t bytes);

#endif
