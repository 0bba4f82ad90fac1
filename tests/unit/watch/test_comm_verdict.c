/* SPDX-License-Identifier: BSD-3-Clause */
/* Which calls of two ranks belong together, where that shows without a communicator: calls that do
 * not would be raised as an error of one, and there is none here.
 * Thread: one. */
#include "watch/comm_verdict.h"

#include "xt.h"

static xcclResult_t compare(uint32_t coll, uint64_t mine_count, uint64_t their_count)
{
    struct xccl_board_call mine = {.seq = 9, .count = mine_count, .coll = coll};
    struct xccl_board_call theirs = {.seq = 9, .count = their_count, .coll = coll};

    return xccl_comm_compare_calls(NULL, 1, &mine, &theirs); /* NULL: no difference is raised */
}

XT_TEST(equal_calls_belong_together)
{
    XT_OK(compare(XCCL_COLL_ALL_REDUCE, 10, 10));
    XT_OK(compare(XCCL_BOARD_SIZED | XCCL_COLL_ALL_GATHER, 10, 10));
}

/* Each rank sends as many elements as it likes. */
XT_TEST(so_do_an_all_to_all_of_other_counts_and_its_peer)
{
    XT_OK(compare(XCCL_BOARD_SIZED | XCCL_COLL_ALL_TO_ALL, 1250, 1000));
    XT_OK(compare(XCCL_BOARD_SIZED | XCCL_BOARD_CONNECTS | XCCL_COLL_ALL_TO_ALL, 0, 1000));
}
