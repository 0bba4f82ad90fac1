/* SPDX-License-Identifier: BSD-3-Clause */
/* A rail of the ofi plugin that fails, over the fabric of ofi_fx.h: what goes again, when memory is
 * given back, what the two ends tell each other, and when it is the connection that fails. */
#include "ofi_fx.h"

#define ALL_TELLS (OFI_TELLS_SIZE | OFI_TELLS_TAG | OFI_TELLS_FAIL)

static struct {
    int warnings;
    char line[512];
} said;

static void log_line(xcclNetLogLevel_t level, const char *line)
{
    XT_CHECK_INT(level, xcclNetLogWarn);
    said.warnings++;
    snprintf(said.line, sizeof(said.line), "%s", line);
}

static void up_rails(int is_send, uint32_t rails, uint64_t piece_bytes)
{
    up_large_with(is_send, rails, piece_bytes, ALL_TELLS);
    memset(&said, 0, sizeof(said));
    fx.ctx.log = log_line;
    for (uint32_t i = 0; i < rails; i++)
        xccl_net_tally_join(&fx.members[i].tally, &fx.comm->rails[i].counters);
}

static void down_rails(void)
{
    for (uint32_t i = 0; i < fx.comm->rail_count; i++)
        xccl_net_tally_leave(&fx.members[i].tally, &fx.comm->rails[i].counters);
    down_large();
}

static void frame_is(uint32_t word, uint32_t number)
{
    uint32_t has = 0;

    XT_CHECK_INT(frame_gone(fx.control, &has), word);
    XT_CHECK_INT(has, number);
}

static void no_frame(void)
{
    uint32_t has;

    XT_CHECK_INT(frame_gone(fx.control, &has), 0);
}

static void poll_often(void)
{
    for (int i = 0; i < 70; i++)
        ofi_request_poll(fx.comm);
    fx.first = fx.end = 0;
}

/* An operation of that rail has failed. */
static void rail_fails(int rail, void *context, int err)
{
    fx.comes_by = rail;
    fails(context, FI_SEND | FI_TAGGED, err);
    ofi_request_poll(fx.comm);
    fx.comes_by = 0;
    fx.comm->failover.since_ns[rail] += 100 * XCCL_NS_PER_S; /* time stands still */
}

/* The time in which the peer may say that it leaves is over. */
static void time_passes(int rail)
{
    fx.comm->failover.since_ns[rail] -= 200 * XCCL_NS_PER_S;
    poll_often();
}

static uint32_t has(uint32_t number, uint32_t what)
{
    return number << 17 | what;
}

/* Message of the receive that was posted as that one. */
static void arrives(int at, size_t bytes)
{
    complete(fx.receives[at].context, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA, bytes, bytes);
    for (int i = 0; i < 3; i++)
        ofi_request_poll(fx.comm);
    fx.first = fx.end = 0;
}

static void move_on(xcclNetRequest_t request)
{
    is_under_way(request);
}

/* --- counting --- */

XT_TEST(a_send_is_done_once_the_receiver_has_counted_it)
{
    xcclNetRequest_t request;

    up_rails(1, 2, 0);
    request = send_bytes(100);
    leaves(fx.sends[0].context);
    is_under_way(request);
    frame_comes(COUNT, 2);
    is_done(request, 100);
    request = send_bytes(100);
    frame_comes(COUNT, 3);
    is_under_way(request); /* the card may read its memory yet */
    leaves(fx.sends[1].context);
    is_done(request, 100);
    down_rails();
}

/* The receiver closes with its last message, and its word of that may come before the queue has the
 * completion. */
XT_TEST(what_a_peer_has_counted_is_done_although_it_has_left)
{
    for (int comes = 0; comes < 2; comes++) {
        xcclNetRequest_t request;
        int done = 0;

        up_rails(1, 2, 0);
        request = send_bytes(100);
        frame_comes(COUNT, 2);
        close(fx.control);
        fx.control = -1;
        while (fx.comm->peer_left != 2) {
            XT_OK(ofi_test(request, &done, NULL));
            XT_CHECK_INT(done, 0);
        }
        fx.comm->left_ns += 100 * XCCL_NS_PER_S; /* time stands still */
        is_under_way(request);
        is_under_way(send_bytes(100));
        XT_CHECK_INT(fx.send_count, 1); /* nothing more goes to it */
        if (comes)
            leaves(fx.sends[0].context);
        fx.comm->left_ns -= 200 * XCCL_NS_PER_S;
        if (comes)
            is_done(request, 100);
        else
            XT_CHECK_RC(test_for_long(request, &done, NULL), xcclRemoteError);
        down_rails();
    }
}

XT_TEST(a_receiver_tells_at_once_what_all_has_come)
{
    xcclNetRequest_t requests[3];

    up_rails(0, 2, 0);
    for (int i = 0; i < 3; i++)
        requests[i] = receive_bytes(100);
    arrives(1, 100);
    is_done(requests[1], 100);
    no_frame();
    arrives(0, 100);
    frame_is(COUNT, 3);
    is_done(requests[0], 100);
    arrives(2, 100);
    frame_is(COUNT, 4);
    no_frame();
    is_done(requests[2], 100);
    down_rails();
}

/* The numbers of a group's messages are not in the order of their sends, and a sender may wait for
 * one before it gives the next. */
XT_TEST(messages_of_a_group_are_counted_one_by_one)
{
    static const uint32_t tags[2] = {1, 2};
    void *data[2];
    const size_t bytes[2] = {100, 100};
    size_t sizes[2] = {0, 0};
    xcclNetRequest_t requests[2];
    xcclNetMem_t mems[2];
    int done = 0;

    up_rails(0, 2, 0);
    data[0] = large;
    data[1] = large + 100;
    mems[0] = mems[1] = large_mem;
    XT_OK(ofi_irecv(fx.comm, 2, data, bytes, tags, mems, &requests[0]));
    frame_comes(SWITCH, 1); /* none is early */
    is_under_way(requests[0]);
    frame_is(GROUPS, 1);
    XT_CHECK_INT(fx.receive_count, 2);
    leaves(fx.sent);
    arrives(1, 100);
    frame_is(HAS, has(2, OFI_HAS_ALL));
    no_frame();
    arrives(0, 100);
    frame_is(COUNT, 3);
    XT_OK(test_for_long(requests[0], &done, sizes));
    XT_CHECK(done && sizes[0] == 100 && sizes[1] == 100);
    down_rails();
    up_rails(1, 2, 0);
    for (int i = 0; i < 2; i++) {
        requests[i] = send_bytes(100);
        leaves(fx.sends[i].context);
    }
    frame_comes(HAS, has(2, OFI_HAS_ALL));
    is_done(requests[1], 100);
    is_under_way(requests[0]);
    frame_comes(COUNT, 3);
    is_done(requests[0], 100);
    XT_CHECK_INT(fx.comm->moved, 3);
    down_rails();
}

/* --- control connections --- */

/* That of rail 1; the other one is rail 0's. Gives the peer's end. */
static int up_sides(int is_send)
{
    int fds[2];

    up_rails(is_send, 2, 0);
    XT_CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    fx.comm->links[0].rail = 0;
    ofi_control_add(fx.comm, fds[1], 1);
    return fds[0];
}

XT_TEST(each_frame_goes_by_all_control_connections_and_counts_once)
{
    int side = up_sides(0), first = fx.control;
    xcclNetRequest_t request = receive_bytes(100);
    uint32_t number = 0;

    arrives(0, 100);
    is_done(request, 100);
    frame_is(COUNT, 2);
    XT_CHECK_INT(frame_gone(side, &number), COUNT);
    XT_CHECK_INT(number, 2);
    for (int i = 0; i < 2; i++) {
        fx.control = i ? side : first;
        frame_comes(FAILS, 1);
        frame_comes(ENDED, 1); /* a second one would be an error */
        poll_often();
        XT_OK(fx.comm->rc);
        XT_CHECK_INT(said.warnings, 1);
    }
    fx.control = first;
    close(side);
    down_rails();
}

XT_TEST(a_control_connection_that_is_lost_takes_its_rail_with_it)
{
    int side = up_sides(1);
    xcclNetRequest_t request = send_bytes(100); /* by rail 1 */

    leaves(fx.sends[0].context);
    close(side);
    poll_often();
    fx.comm->failover.since_ns[1] += 100 * XCCL_NS_PER_S;
    is_under_way(request);
    XT_CHECK_INT(fx.comm->peer_left, 0);
    time_passes(1);
    frame_is(FAILS, 1);
    frame_is(ENDED, 1);
    frame_comes(ENDED, 1);
    move_on(request);
    XT_CHECK_INT(fx.send_count, 2); /* the provider has called it complete, and it was lost */
    XT_CHECK_INT(fx.sends[1].rail, 0);
    leaves(fx.sends[1].context);
    frame_comes(COUNT, 2);
    is_done(request, 100);
    shutdown(fx.control, SHUT_RDWR);
    poll_often();
    XT_CHECK_INT(fx.comm->peer_left, 2);
    down_rails();
}

/* --- a sender --- */

XT_TEST(what_the_receiver_has_not_goes_again_by_the_others)
{
    xcclNetRequest_t requests[7];

    up_rails(1, 2, 0);
    for (int i = 0; i < 6; i++)
        requests[i] = send_bytes((size_t)i + 10); /* 1, 3 and 5 go by rail 1 */
    leaves(fx.sends[0].context);
    leaves(fx.sends[1].context);
    rail_fails(1, fx.sends[2].context, FI_EIO);
    requests[6] = send_bytes(16); /* its home is rail 1 */
    poll_often();
    XT_CHECK_INT(fx.send_count, 6);
    no_frame();
    time_passes(1);
    frame_is(FAILS, 1);
    frame_is(ENDED, 1);
    XT_CHECK_INT(said.warnings, 0);
    move_on(requests[6]);
    XT_CHECK_INT(fx.send_count, 6);
    frame_comes(FAILS, 1);
    frame_comes(HAS, has(1, OFI_HAS_HEAD));
    frame_comes(HAS, has(5, OFI_HAS_HEAD));
    frame_comes(ENDED, 1);
    move_on(requests[6]);
    XT_CHECK_INT(fx.send_count, 8);
    for (int i = 6; i < 8; i++) {
        XT_CHECK_INT(fx.sends[i].tag & OFI_TAG_NUMBER, i == 6 ? 3 : 7);
        XT_CHECK_INT(fx.sends[i].bytes, i == 6 ? 12 : 16);
        XT_CHECK_INT(fx.sends[i].rail, 0);
    }
    for (int i = 3; i < 8; i++) {
        if (i != 4)
            leaves(fx.sends[i].context);
    }
    is_under_way(requests[2]);
    frame_comes(COUNT, 8);
    for (int i = 0; i < 7; i++)
        is_done(requests[i], (size_t)i + 10);
    XT_CHECK_INT(said.warnings, 1);
    XT_CHECK_TEXT(said.line,
                  "rail 1 of 2 to the peer, card1 (fake), has dropped out: another error; the "
                  "others go on, with 1 pieces sent again");
    XT_CHECK_INT(stats_of(&fx.device).failoverCount, 1);
    XT_CHECK_INT(stats_of(&fx.members[1]).failoverCount, 1);
    XT_CHECK_INT(stats_of(&fx.members[1]).resendCount, 1);
    XT_CHECK_INT(stats_of(&fx.members[0]).failoverCount, 0);
    XT_CHECK_INT(fx.comm->idle == UINT64_MAX, 1);
    down_rails();
}

/* The provider has it until the endpoint is closed, whatever the receiver says. */
XT_TEST(memory_is_not_given_back_before_the_endpoint_is_closed)
{
    xcclNetRequest_t request;

    up_rails(1, 2, 0);
    request = send_bytes(100);
    rail_fails(1, NULL, FI_EIO);
    frame_comes(COUNT, 2);
    is_under_way(request);
    XT_CHECK_INT(fx.closed, 0);
    time_passes(1);
    XT_CHECK(fx.closed > 0);
    is_done(request, 100);
    down_rails();
}

XT_TEST(pieces_that_were_sent_go_again_one_by_one)
{
    xcclNetRequest_t request;

    up_rails(1, 3, 0);
    request = send_bytes(3 * STRIPE); /* by rail 1, its pieces 0, 1, 2 by rails 1, 2, 0 */
    XT_CHECK_INT(fx.send_count, 4);
    rail_fails(1, NULL, FI_EIO);
    time_passes(1);
    frame_comes(HAS, has(1, 1u << 2));
    frame_comes(ENDED, 1);
    move_on(request);
    /* The message and piece 0 by the next rail; what went by others has not failed. */
    XT_CHECK_INT(fx.send_count, 6);
    for (int i = 4; i < 6; i++)
        XT_CHECK_INT(fx.sends[i].rail, 2);
    XT_CHECK_INT(fx.sends[4].tag & (OFI_TAG_PIECE | OFI_TAG_NUMBER), 1);
    XT_CHECK_INT(fx.sends[5].tag, OFI_TAG_PIECE | 1);
    XT_CHECK(fx.sends[5].data == large);
    /* That one fails, too: what has come is known by now. */
    rail_fails(2, NULL, FI_EIO);
    time_passes(2);
    frame_comes(HAS, has(1, OFI_HAS_HEAD | 1u << 2 | 1u << 0));
    frame_comes(ENDED, 2);
    move_on(request);
    XT_CHECK_INT(fx.send_count, 7);
    XT_CHECK_INT(fx.sends[6].rail, 0);
    XT_CHECK(fx.sends[6].data == large + STRIPE);
    leaves(fx.sends[3].context);
    leaves(fx.sends[6].context);
    frame_comes(COUNT, 2);
    is_done(request, 3 * STRIPE);
    XT_CHECK_INT(said.warnings, 2);
    XT_CHECK_INT(stats_of(&fx.device).resendCount, 3);
    down_rails();
}

XT_TEST(pieces_that_were_written_go_again_one_by_one)
{
    xcclNetRequest_t request;
    uint32_t lost = 0;
    int done = 0;

    up_rails(1, 2, MEGABYTE);
    request = send_bytes(8 * STRIPE); /* the message by rail 1 */
    noted(1, MEGABYTE);
    XT_OK(ofi_test(request, &done, NULL));
    XT_CHECK_INT(fx.write_count, 4);
    rail_fails(0, NULL, FI_EIO);
    time_passes(0);
    fx.comes_by = 1;
    for (int i = 0; i < 4; i++) {
        if (fx.writes[i].rail == 0)
            lost |= 1u << (fx.writes[i].tag & 0xff);
    }
    XT_CHECK_INT(__builtin_popcount(lost), 2);
    lost &= lost - 1; /* the receiver has one of them */
    frame_comes(HAS, has(1, ~lost & 0xf));
    frame_comes(ENDED, 0);
    move_on(request);
    XT_CHECK_INT(fx.write_count, 5);
    XT_CHECK_INT(fx.writes[4].rail, 1);
    XT_CHECK_INT(1u << (fx.writes[4].tag & 0xff), lost);
    XT_CHECK_INT(fx.send_count, 1);
    leaves(fx.sends[0].context);
    for (int i = 0; i < 5; i++) {
        if (fx.writes[i].rail == 1)
            leaves(fx.writes[i].context);
    }
    is_under_way(request);
    frame_comes(COUNT, 2);
    is_done(request, 8 * STRIPE);
    XT_CHECK_INT(fx.comm->pieces.idle, UINT32_MAX);
    down_rails();
}

/* --- a receiver --- */

XT_TEST(a_receiver_says_what_has_come_and_awaits_the_rest_by_the_others)
{
    xcclNetRequest_t requests[4];

    up_rails(0, 2, 0);
    for (int i = 0; i < 3; i++)
        requests[i] = receive_bytes(MEGABYTE); /* 1 and 3 by rail 1 */
    complete(fx.receives[1].context, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA, 0,
             WRITTEN | 2 * STRIPE);
    is_under_way(requests[1]); /* message 2: its pieces 0 and 1 by rails 0 and 1 */
    XT_CHECK_INT(fx.receive_count, 5);
    fx.first = fx.end = 0;
    complete(fx.receives[3].context, FI_RECV | FI_TAGGED, STRIPE, 0);
    arrives(2, 50);
    is_done(requests[2], 50);
    frame_comes(FAILS, 1);
    poll_often();
    frame_is(FAILS, 1);
    frame_is(HAS, has(2, OFI_HAS_HEAD | 1u << 0));
    frame_is(HAS, has(3, OFI_HAS_HEAD | 0xffff));
    frame_is(ENDED, 1);
    no_frame();
    requests[3] = receive_bytes(100); /* by rail 0 */
    XT_CHECK_INT(fx.receive_count, 6);
    frame_comes(ENDED, 1);
    move_on(requests[3]);
    XT_CHECK_INT(fx.receive_count, 8);
    XT_CHECK_INT(fx.receives[6].tag, 1 | 7u << OFI_TAG_SHIFT); /* and the caller's tag */
    XT_CHECK_INT(fx.receives[7].tag, OFI_TAG_PIECE | 2 | 1u << OFI_TAG_SHIFT);
    XT_CHECK(fx.receives[7].data == large + STRIPE);
    XT_CHECK(fx.receives[6].rail == 0 && fx.receives[7].rail == 0);
    arrives(6, 70);
    is_done(requests[0], 70);
    frame_is(COUNT, 2);
    complete(fx.receives[7].context, FI_RECV | FI_TAGGED, STRIPE, 0);
    is_done(requests[1], 2 * STRIPE);
    frame_is(COUNT, 4);
    XT_CHECK_HAS(said.line, "the peer has dropped this rail");
    XT_CHECK_HAS(said.line, "2 pieces awaited again");
    XT_CHECK_INT(stats_of(&fx.members[1]).failoverCount, 1);
    down_rails();
}

/* Both of a receiver's notes by the rail that fails; the message of one of them is done. */
XT_TEST(notes_are_given_again)
{
    xcclNetRequest_t requests[3];

    up_rails(0, 2, MEGABYTE);
    for (int i = 0; i < 3; i++) {
        requests[i] = receive_bytes(MEGABYTE); /* notes 0, 1 and 2 by rails 0, 1 and 0 */
        leaves(fx.sent);
    }
    XT_CHECK_INT(fx.note_count, 3);
    arrives(0, 100);
    is_done(requests[0], 100);
    frame_comes(FAILS, 0);
    frame_comes(ENDED, 0);
    poll_often();
    fx.comes_by = 1;
    move_on(requests[2]);
    XT_CHECK_INT(fx.note_count, 4);
    XT_CHECK_INT(fx.note.first, 3);
    XT_CHECK_INT(((struct ofi_op *)fx.sent)->rail, 1);
    for (uint32_t piece = 0; piece < 4; piece++)
        piece_comes(3, piece);
    complete(fx.receives[2].context, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA, 0,
             WRITTEN | 8 * STRIPE);
    is_under_way(requests[2]);
    fx.first = fx.end = 0;
    leaves(fx.sent);
    is_done(requests[2], 8 * STRIPE);
    down_rails();
}

/* A sender that has closed does not take it either: that shows first. */
XT_TEST(a_note_that_fails_goes_by_another_rail_and_its_rail_drops_out_in_time)
{
    xcclNetRequest_t request;

    up_rails(0, 2, MEGABYTE);
    request = receive_bytes(MEGABYTE);
    rail_fails(0, fx.sent, FI_EHOSTUNREACH);
    move_on(request);
    XT_CHECK_INT(fx.note_count, 2);
    XT_CHECK_INT(((struct ofi_op *)fx.sent)->rail, 1);
    no_frame();
    time_passes(0);
    frame_is(FAILS, 0);
    frame_is(ENDED, 0);
    XT_CHECK_INT(fx.comm->notes.lost, 0);
    down_rails();
}

static void sender_hears_of(uint32_t first, uint32_t row, const uint32_t *tags, uint32_t count)
{
    struct ofi_note note = {.first = first, .count = count, .row = row};

    for (uint32_t i = 0; i < count; i++)
        note.parts[i] = (struct ofi_part){.number = first + i, .tag = tags[i], .room = 100};
    ofi_group_noted(fx.comm, &note);
    XT_OK(fx.comm->rc);
}

XT_TEST(a_note_that_comes_twice_says_the_same_again)
{
    static const uint32_t tags[2] = {7, 8};
    xcclNetRequest_t request;
    int writes = 0;

    up_rails(1, 2, 0);
    frame_comes(GROUPS, 1);
    poll_often();
    sender_hears_of(1, 0, tags, 2);
    sender_hears_of(1, 0, tags, 2);
    request = send_bytes(10);
    XT_CHECK_INT(fx.send_count, 1);
    sender_hears_of(1, 0, tags, 2);
    XT_OK(ofi_isend(fx.comm, large, 11, 8, large_mem, &request));
    sender_hears_of(1, 0, tags, 2);
    sender_hears_of(3, 1, tags, 2);
    XT_CHECK_INT(fx.send_count, 2);
    down_rails();
    up_rails(1, 2, MEGABYTE);
    request = send_bytes(8 * STRIPE);
    noted(1, MEGABYTE);
    noted(1, MEGABYTE);
    move_on(request);
    writes = fx.write_count;
    noted(1, MEGABYTE);
    move_on(request);
    XT_CHECK_INT(fx.write_count, writes);
    down_rails();
}

/* --- what ends the connection --- */

XT_TEST(the_last_rail_ends_the_connection)
{
    xcclNetRequest_t request;
    int done = 0;

    up_rails(1, 2, 0);
    request = send_bytes(100);
    rail_fails(1, fx.sends[0].context, FI_EIO);
    is_under_way(request);
    rail_fails(0, NULL, FI_EHOSTUNREACH);
    XT_CHECK_RC(ofi_test(request, &done, NULL), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "sending to the peer on card0 (fake): unreachable");
    frame_is(FAILS, 0);
    down_rails();
    up_rails(0, 2, 0);
    request = receive_bytes(100);
    frame_comes(FAILS, 0);
    frame_comes(FAILS, 1);
    XT_CHECK_RC(test_for_long(request, &done, NULL), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "receiving from the peer on card1");
    XT_CHECK_HAS(xccl_error_text(), "the peer has given up the last rail");
    down_rails();
}

/* One after the other is doubted, and each hopes for the other. */
XT_TEST(two_rails_that_fail_at_once_end_it_with_their_own_error)
{
    xcclNetRequest_t request;
    int done = 0;

    up_rails(1, 2, 0);
    request = send_bytes(100);
    for (int rail = 0; rail < 2; rail++) {
        XT_CHECK(ofi_failover_doubt(fx.comm, (uint32_t)rail, FI_EHOSTUNREACH));
        fx.comm->failover.since_ns[rail] += 100 * XCCL_NS_PER_S;
    }
    is_under_way(request);
    time_passes(0);
    frame_is(FAILS, 0);
    time_passes(1);
    XT_CHECK_RC(ofi_test(request, &done, NULL), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "sending to the peer on card1 (fake): unreachable");
    down_rails();
}

XT_TEST(memory_that_is_refused_is_no_doubt)
{
    up_rails(1, 2, 0);
    XT_CHECK(!ofi_failover_doubt(fx.comm, 1, FI_EACCES));
    XT_CHECK_INT(fx.comm->failover.doubted, 0);
    down_rails();
}

XT_TEST(what_hurts_memory_and_not_the_way_ends_the_connection)
{
    xcclNetRequest_t request;
    int done = 0;

    up_rails(1, 2, 0);
    request = send_bytes(100);
    rail_fails(1, fx.sends[0].context, FI_EACCES);
    XT_CHECK_RC(ofi_test(request, &done, NULL), xcclRemoteError);
    down_rails();
}

/* Its endpoints fail ours; what it has sent before is there. */
XT_TEST(a_peer_that_leaves_is_no_rail_that_fails)
{
    xcclNetRequest_t request;

    up_rails(0, 2, 0);
    request = receive_bytes(100); /* by rail 1 */
    rail_fails(1, NULL, FI_ENOTCONN);
    goodbye(2);
    time_passes(1);
    XT_CHECK_INT(fx.closed, 0);
    fx.comes_by = 1;
    arrives(0, 100);
    is_done(request, 100);
    frame_is(COUNT, 2);
    XT_CHECK_INT(said.warnings, 0);
    down_rails();
}

XT_TEST(a_peer_that_speaks_of_rails_that_are_not_there_is_an_error)
{
    static const struct {
        uint32_t tells, word, number;
    } rows[] = {{ALL_TELLS, FAILS, 2},
                {ALL_TELLS, ENDED, UINT32_MAX},
                {OFI_TELLS_SIZE, FAILS, 0},
                {OFI_TELLS_SIZE, HAS, 0}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        xcclNetRequest_t request;
        int done = 0;

        up_large_with(1, 2, 0, rows[i].tells);
        request = send_bytes(100);
        frame_comes(rows[i].word, rows[i].number);
        XT_CHECK_RC(test_for_long(request, &done, NULL), xcclRemoteError);
        XT_CHECK_HAS(xccl_error_text(), "does not follow the protocol");
        down_large();
    }
}
