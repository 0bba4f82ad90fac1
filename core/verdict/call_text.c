/* SPDX-License-Identifier: BSD-3-Clause */
/* The words for a call in error texts: its number, and all that must be equal on all ranks. What
 * a rank of another host said of itself may be anything, and then the text says "?".
 * Thread: any. */
#include "verdict/call_text.h"

#include <assert.h>
#include <stdio.h>

#include "schedule/schedule.h"
#include "xccl_types.h"

void xccl_call_describe(const struct xccl_board_call *call, char *text_out, size_t bytes)
{
    static const char *const types[xcclNumTypes] = {
        "int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
        "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
    static const char *const ops[] = {"sum", "prod", "max", "min", "avg", "premulsum"};
    static_assert(sizeof ops / sizeof ops[0] == xcclNumOps + 1, "and one for the program's own");
    static const char *const colls[XCCL_COLL_COUNT] = {
        [XCCL_COLL_BROADCAST] = "broadcast",   [XCCL_COLL_REDUCE] = "reduce",
        [XCCL_COLL_ALL_GATHER] = "all-gather", [XCCL_COLL_REDUCE_SCATTER] = "reduce-scatter",
        [XCCL_COLL_ALL_REDUCE] = "all-reduce", [XCCL_COLL_ALL_TO_ALL] = "all-to-all",
        [XCCL_COLL_GATHER] = "gather",         [XCCL_COLL_SCATTER] = "scatter",
        [XCCL_COLL_BARRIER] = "barrier",
    };
    enum xccl_coll coll = (enum xccl_coll)(call->coll & ~XCCL_BOARD_SIZED);
    int known = (unsigned)coll < XCCL_COLL_COUNT, sized = (call->coll & XCCL_BOARD_SIZED) != 0;
    int used;

    if (call->coll & XCCL_BOARD_CONNECTS) {
        snprintf(text_out, bytes, "call %llu: xcclCommConnectAll", (unsigned long long)call->seq);
        return;
    }
    used = snprintf(text_out, bytes, "call %llu: %s%s", (unsigned long long)call->seq,
                    known && colls[coll] ? colls[coll] : "?", sized ? "-v" : "");
    if (known && coll != XCCL_COLL_BARRIER)
        used += snprintf(text_out + used, bytes - (size_t)used, " of %llu %s",
                         (unsigned long long)call->count,
                         call->type < xcclNumTypes ? types[call->type] : "?");
    if (sized && coll == XCCL_COLL_ALL_TO_ALL)
        used += snprintf(text_out + used, bytes - (size_t)used, " sent");
    else if (sized)
        used += snprintf(text_out + used, bytes - (size_t)used, " in total (hash of counts %08x)",
                         call->root);
    if (known && xccl_coll_reduces(coll))
        used += snprintf(text_out + used, bytes - (size_t)used, ", %s",
                         call->op <= xcclNumOps ? ops[call->op] : "?");
    if (known && xccl_coll_rooted(coll))
        snprintf(text_out + used, bytes - (size_t)used, ", root %u", call->root);
}
