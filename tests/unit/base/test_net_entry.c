/* SPDX-License-Identifier: BSD-3-Clause */
/* What network plugins answer alike: which devices may be merged, and counters of comms that come
 * and go. */
#include "base/error.h"
#include "base/net_entry.h"
#include "xt.h"

XT_TEST(devices_that_may_be_merged)
{
    static const int some[] = {2, 0, 1}, twice[] = {1, 2, 1}, beyond[] = {0, 3}, below[] = {-1, 0};

    XT_CHECK(xccl_net_may_merge(some, 3, 4, 3));
    XT_CHECK(xccl_net_may_merge(some, 1, 4, 3));
    XT_CHECK(!xccl_net_may_merge(some, 0, 4, 3));
    XT_CHECK_HAS(xccl_error_text(), "cannot merge 0 devices: 1 to 4 are possible");
    XT_CHECK(!xccl_net_may_merge(some, 3, 2, 3));
    XT_CHECK_HAS(xccl_error_text(), "cannot merge 3 devices: 1 to 2 are possible");
    XT_CHECK(!xccl_net_may_merge(twice, 3, 4, 3));
    XT_CHECK_HAS(xccl_error_text(), "device 1 is listed twice");
    XT_CHECK(!xccl_net_may_merge(beyond, 2, 4, 3));
    XT_CHECK_HAS(xccl_error_text(), "device 3 does not exist: there are 3 devices");
    XT_CHECK(!xccl_net_may_merge(below, 2, 4, 3));
}

static void check_stats(const struct xccl_net_tally *tally, uint64_t send_bytes,
                        uint64_t send_count, uint64_t recv_bytes, uint64_t busy_count)
{
    xcclNetStats_v1 stats = {.size = sizeof(stats)};

    xccl_net_tell_stats(tally, &stats);
    XT_CHECK_INT(stats.sendBytes, send_bytes);
    XT_CHECK_INT(stats.sendCount, send_count);
    XT_CHECK_INT(stats.recvBytes, recv_bytes);
    XT_CHECK_INT(stats.busyCount, busy_count);
}

XT_TEST(counts_of_comms_that_have_left_stay)
{
    struct xccl_net_tally tally = {0}, other = {0};
    struct xccl_net_counters comms[3] = {0}, never = {0};

    for (int i = 0; i < 3; i++)
        xccl_net_tally_join(&tally, &comms[i]);
    xccl_net_count_message(&comms[0], 1, 5);
    xccl_net_count_message(&comms[1], 1, 7);
    xccl_net_count_message(&comms[2], 0, 11);
    check_stats(&tally, 12, 2, 11, 0);
    xccl_net_tally_leave(&tally, &comms[1]); /* from the middle, the end, the front */
    check_stats(&tally, 12, 2, 11, 0);
    xccl_net_count_message(&comms[0], 1, 100);
    xccl_net_count(&comms[2].busy_count, 1);
    xccl_net_tally_leave(&tally, &comms[0]);
    xccl_net_tally_leave(&tally, &comms[2]);
    xccl_net_tally_leave(&tally, &comms[2]); /* once more does no harm */
    xccl_net_tally_leave(&tally, &never);
    check_stats(&tally, 112, 3, 11, 1);
    check_stats(&other, 0, 0, 0, 0);
}

/* A caller of an older header has room for less. */
XT_TEST(no_more_is_told_than_there_is_room_for)
{
    struct xccl_net_tally tally = {0};
    struct {
        xcclNetStats_v1 stats;
        uint8_t guard;
    } small = {.stats = {.size = offsetof(xcclNetStats_v1, sendCount)}, .guard = 0x5a};
    const xcclNetError_v1 all = {.cause = xcclNetCauseTimeout, .peer = "a", .text = "b"};
    xcclNetError_v1 error = {.size = offsetof(xcclNetError_v1, peer), .text = "kept"};

    tally.left.send_count = 3;
    small.stats.sendCount = 77;
    xccl_net_tell_stats(&tally, &small.stats);
    XT_CHECK_INT(small.stats.sendCount, 77);
    XT_CHECK_INT(small.guard, 0x5a);
    xccl_net_tell_error(&all, &error);
    XT_CHECK_INT(error.size, offsetof(xcclNetError_v1, peer));
    XT_CHECK_INT(error.cause, xcclNetCauseTimeout);
    XT_CHECK(error.peer == NULL);
    XT_CHECK_TEXT(error.text, "kept");
}
