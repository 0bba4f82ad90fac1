/* SPDX-License-Identifier: BSD-3-Clause */
/* Several rails of the ofi plugin over the fabric of ofi_fx.h: which way a message takes, how large
 * ones are cut, what a rail refuses, and that none of it is lost or counted twice. */
#include "ofi_fx.h"

/* How much of that memory the records name, each byte once; they are of this message alone. */
static size_t covered(const size_t *bytes, const void *const *data, int count)
{
    size_t sum = 0;

    for (int i = 0; i < count; i++) {
        for (int k = 0; k < i; k++)
            XT_CHECK((const uint8_t *)data[i] >= (const uint8_t *)data[k] + bytes[k] ||
                     (const uint8_t *)data[k] >= (const uint8_t *)data[i] + bytes[i]);
        sum += bytes[i];
    }
    return sum;
}

static size_t covered_by_sends(int first, int end)
{
    size_t bytes[RECORDS];
    const void *data[RECORDS];

    for (int i = first; i < end; i++) {
        bytes[i - first] = fx.sends[i].bytes;
        data[i - first] = fx.sends[i].data;
    }
    return covered(bytes, data, end - first);
}

static size_t covered_by_writes(int end)
{
    size_t bytes[RECORDS];
    const void *data[RECORDS];

    for (int i = 0; i < end; i++) {
        bytes[i] = fx.writes[i].bytes;
        data[i] = fx.writes[i].data;
    }
    return covered(bytes, data, end);
}

/* --- sent --- */

XT_TEST(small_messages_take_the_rails_in_turn)
{
    up_large(1, 3, 0);
    for (int i = 0; i < 7; i++) {
        (void)send_bytes(STRIPE);
        XT_CHECK_INT(fx.sends[i].rail, (i + 1) % 3);
    }
    XT_CHECK_INT(fx.send_count, 7);
    down_large();
    up_large(0, 3, 0);
    for (int i = 0; i < 7; i++) {
        (void)receive_bytes(STRIPE);
        XT_CHECK_INT(fx.receives[i].rail, (i + 1) % 3);
    }
    down_large();
}

XT_TEST(a_large_message_is_sent_in_a_piece_for_each_rail)
{
    static const size_t sizes[] = {STRIPE + 1, 2 * STRIPE, 2 * STRIPE + 1, 333333, MEGABYTE};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        xcclNetRequest_t request;
        uint32_t rails = 0;

        up_large(1, 3, 0);
        request = send_bytes(sizes[i]);
        /* The message that says the size, and the pieces. */
        XT_CHECK_INT(fx.sends[0].bytes, 0);
        XT_CHECK_INT(fx.send_count, 1 + (sizes[i] > 2 * STRIPE ? 3 : 2));
        for (int k = 1; k < fx.send_count; k++)
            rails |= 1u << fx.sends[k].rail;
        XT_CHECK_INT(__builtin_popcount(rails), fx.send_count - 1);
        XT_CHECK_INT(covered_by_sends(1, fx.send_count), sizes[i]);
        for (int k = fx.send_count - 1; k >= 0; k--)
            leaves(fx.sends[k].context);
        is_done(request, sizes[i]);
        for (int k = 0; k < 3; k++)
            XT_CHECK_INT(fx.comm->rails[k].load, 0);
        down_large();
    }
}

/* What a rail refuses waits for it, and nothing of the other rails. */
XT_TEST(pieces_go_on_by_the_rails_that_take_them)
{
    xcclNetRequest_t request;
    int done = 0;

    up_large(1, 2, 0);
    fx.refusing = 1; /* message 1 goes by rail 1, with piece 0 */
    request = send_bytes(4 * STRIPE);
    XT_CHECK_INT(fx.send_count, 2);
    XT_CHECK(fx.comm->refused);
    XT_OK(ofi_test(request, &done, NULL));
    XT_CHECK_INT(fx.send_count, 2);
    fx.refusing = 0;
    XT_OK(ofi_test(request, &done, NULL));
    XT_CHECK_INT(fx.send_count, 3);
    XT_CHECK_INT(fx.sends[2].rail, 0);
    XT_CHECK_INT(covered_by_sends(1, 3), 4 * STRIPE);
    down_large();
}

XT_TEST(a_receiver_awaits_the_pieces_of_the_size_that_it_is_told)
{
    xcclNetRequest_t request;

    up_large(0, 2, 0);
    request = receive_bytes(MEGABYTE);
    XT_CHECK_INT(fx.receive_count, 1);
    XT_CHECK_INT(fx.receives[0].bytes, STRIPE);
    size_comes(3 * STRIPE);
    is_under_way(request);
    XT_CHECK_INT(fx.receive_count, 3);
    for (int i = 1; i < 3; i++) {
        XT_CHECK_INT(fx.receives[i].rail, i == 1);
        XT_CHECK(fx.receives[i].tag == (OFI_TAG_PIECE | 1 | (uint64_t)(i - 1) << OFI_TAG_SHIFT));
    }
    XT_CHECK_INT(fx.receives[1].bytes + fx.receives[2].bytes, 3 * STRIPE);
    complete(fx.receives[2].context, FI_RECV | FI_TAGGED, fx.receives[2].bytes, 0);
    is_under_way(request);
    complete(fx.receives[1].context, FI_RECV | FI_TAGGED, fx.receives[1].bytes, 0);
    is_done(request, 3 * STRIPE);
    XT_CHECK_INT(stats_of(&fx.device).recvBytes, 3 * STRIPE);
    XT_CHECK_INT(stats_of(&fx.device).recvCount, 1);
    down_large();
}

XT_TEST(a_piece_of_another_size_is_an_error)
{
    xcclNetRequest_t request;

    up_large(0, 2, 0);
    request = receive_bytes(MEGABYTE);
    size_comes(3 * STRIPE);
    is_under_way(request);
    complete(fx.receives[1].context, FI_RECV | FI_TAGGED, fx.receives[1].bytes - 1, 0);
    is_damaged(request, "a piece of another size");
    down_large();
}

/* A provider that fetches would look for its sender. */
XT_TEST(pieces_of_a_peer_that_is_gone_are_not_awaited)
{
    xcclNetRequest_t request;
    int done = 0;

    up_large(0, 2, 0);
    fx.comm->fetches = 1;
    request = receive_bytes(MEGABYTE);
    XT_CHECK_INT(fx.receive_count, 1);
    size_comes(3 * STRIPE);
    close(fx.control);
    fx.control = -1;
    (void)ofi_test(request, &done, NULL);
    XT_CHECK_INT(done, 0);
    XT_CHECK_INT(fx.receive_count, 1);
    down_large();
}

/* Those behind have had theirs before. */
XT_TEST(sizes_come_in_any_order)
{
    xcclNetRequest_t requests[4];

    up_large(0, 2, 0);
    for (int i = 0; i < 4; i++)
        requests[i] = receive_bytes(MEGABYTE);
    for (int i = 3; i >= 0; i--) {
        int first = fx.receive_count;

        complete(fx.receives[i].context, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA, 0,
                 WRITTEN | 2 * STRIPE);
        is_under_way(requests[i]);
        XT_CHECK_INT(fx.receive_count, first + 2);
        for (int k = first; k < first + 2; k++)
            complete(fx.receives[k].context, FI_RECV | FI_TAGGED, STRIPE, 0);
        is_done(requests[i], 2 * STRIPE);
        fx.first = fx.end = 0;
    }
    down_large();
}

/* As many as the window has, and the places of the first ones serve again. */
XT_TEST(pieces_of_all_messages_under_way_have_their_places)
{
    xcclNetRequest_t requests[OFI_WINDOW];

    up_large(1, 2, 0);
    for (uint32_t i = 0; i < OFI_WINDOW; i++)
        requests[i] = send_bytes(2 * STRIPE);
    XT_CHECK_INT(fx.send_count, 3 * (OFI_WINDOW));
    (void)send_bytes(2 * STRIPE);
    XT_CHECK_INT(fx.send_count, 3 * (OFI_WINDOW));
    for (int i = 0; i < fx.send_count; i++)
        leaves(fx.sends[i].context);
    for (uint32_t i = 0; i < OFI_WINDOW; i++)
        is_done(requests[i], 2 * STRIPE);
    down_large();
}

/* --- written --- */

XT_TEST(written_pieces_take_the_rail_with_the_fewest_bytes)
{
    xcclNetRequest_t request;
    size_t by_rail[2] = {0, 0};
    int done = 0;

    up_large(1, 2, MEGABYTE);
    request = send_bytes(8 * STRIPE);
    noted(1, MEGABYTE);
    fx.comm->rails[0].load += 4 * STRIPE; /* it has that much to do */
    XT_OK(ofi_test(request, &done, NULL));
    XT_CHECK_INT(fx.write_count, 4);
    for (int i = 0; i < 4; i++)
        by_rail[fx.writes[i].rail] += fx.writes[i].bytes;
    XT_CHECK_INT(by_rail[0], 2 * STRIPE);
    XT_CHECK_INT(by_rail[1], 6 * STRIPE);
    XT_CHECK_INT(covered_by_writes(4), 8 * STRIPE);
    leaves(fx.sends[0].context);
    for (int i = 0; i < 4; i++)
        leaves(fx.writes[i].context);
    is_done(request, 8 * STRIPE);
    XT_CHECK_INT(fx.comm->rails[0].load, 4 * STRIPE);
    XT_CHECK_INT(fx.comm->rails[1].load, 0);
    down_large();
}

XT_TEST(a_piece_that_a_rail_does_not_take_goes_by_another_one)
{
    xcclNetRequest_t request;
    int done = 0;

    up_large(1, 2, MEGABYTE);
    request = send_bytes(8 * STRIPE);
    noted(1, MEGABYTE);
    fx.refusing = 2;
    XT_OK(ofi_test(request, &done, NULL));
    XT_CHECK_INT(fx.write_count, 4);
    for (int i = 0; i < 4; i++)
        XT_CHECK_INT(fx.writes[i].rail, 0);
    XT_CHECK_INT(covered_by_writes(4), 8 * STRIPE);
    /* While none takes any the rest waits. */
    request = send_bytes(8 * STRIPE);
    noted(2, MEGABYTE);
    fx.refusing = 3;
    XT_OK(ofi_test(request, &done, NULL));
    XT_CHECK_INT(fx.write_count, 4);
    fx.refusing = 0;
    XT_OK(ofi_test(request, &done, NULL));
    XT_CHECK_INT(fx.write_count, 8);
    down_large();
}

XT_TEST(what_was_written_is_counted_by_the_rail_that_it_came_by)
{
    xcclNetRequest_t request;

    up_large(0, 2, MEGABYTE);
    for (uint32_t i = 0; i < 2; i++)
        xccl_net_tally_join(&fx.members[i].tally, &fx.comm->rails[i].counters);
    request = receive_bytes(MEGABYTE);
    XT_CHECK_INT(fx.note_count, 1);
    fx.comm->notes.out = 0;
    ofi_request_less(&fx.comm->groups[0]);
    piece_comes(1, 0); /* before the size is known */
    is_under_way(request);
    fx.comes_by = 1;
    for (uint32_t piece = 1; piece < 4; piece++)
        piece_comes(1, piece);
    is_under_way(request);
    size_comes(8 * STRIPE);
    is_done(request, 8 * STRIPE);
    XT_CHECK_INT(stats_of(&fx.device).recvBytes, 8 * STRIPE);
    XT_CHECK_INT(stats_of(&fx.members[0]).recvBytes, 2 * STRIPE);
    XT_CHECK_INT(stats_of(&fx.members[1]).recvBytes, 6 * STRIPE);
    for (uint32_t i = 0; i < 2; i++)
        xccl_net_tally_leave(&fx.members[i].tally, &fx.comm->rails[i].counters);
    down_large();
}

/* --- what is not taken for good --- */

static void is_said_of(const char *text)
{
    XT_CHECK_RC(fx.comm->rc, xcclRemoteError);
    XT_CHECK_HAS(fx.comm->error_text, text);
    XT_CHECK_HAS(fx.comm->error_text, " (fake): unreachable");
    down_large();
}

static xcclResult_t try_bytes(size_t bytes)
{
    xcclNetRequest_t request = NULL;

    return ofi_isend(fx.comm, large, bytes, 7, large_mem, &request);
}

/* By name, not the device that they are merged to. */
XT_TEST(an_error_of_posting_names_the_rail)
{
    xcclNetRequest_t request;
    int done = 0;

    up_large(1, 2, 0);
    fx.broken = 2;
    XT_CHECK_RC(try_bytes(100), xcclRemoteError);
    is_said_of("sending to the peer on card1");
    up_large(1, 2, 0);
    fx.broken = 1;
    XT_CHECK_RC(try_bytes(2 * STRIPE), xcclRemoteError);
    is_said_of("sending to the peer on card0");
    up_large(1, 2, MEGABYTE);
    request = send_bytes(8 * STRIPE);
    noted(1, MEGABYTE);
    fx.comm->notes.idle = 0; /* no place for a note has to be posted */
    fx.broken = 1;
    XT_CHECK_RC(ofi_test(request, &done, NULL), xcclRemoteError);
    is_said_of("writing to the peer on card0");
    up_large(0, 2, 0);
    request = receive_bytes(MEGABYTE);
    size_comes(3 * STRIPE);
    fx.broken = 1;
    XT_CHECK_RC(ofi_test(request, &done, NULL), xcclRemoteError);
    is_said_of("receiving from the peer on card0");
    up_large(1, 2, MEGABYTE);
    fx.broken = 1; /* the message itself goes by the other one */
    XT_CHECK_RC(try_bytes(0), xcclRemoteError);
    is_said_of("awaiting notes of the peer on card0");
}

/* --- cut alike --- */

XT_TEST(pieces_are_a_message_for_every_size_and_number_of_rails)
{
    static const uint64_t most[] = {0, 10000, 80021, MEGABYTE};

    for (uint32_t rails = 1; rails <= OFI_RAILS_MAX; rails++) {
        for (size_t m = rails == 1; m < sizeof(most) / sizeof(most[0]); m++) {
            uint64_t random = xt_seed();

            up_on(1, rails, most[m]);
            for (int i = 0; i < 2000; i++) {
                size_t bytes = fx.comm->eager_max + 1 +
                               xt_random(&random) % (fx.comm->bytes_max - fx.comm->eager_max);
                uint32_t count = ofi_piece_count(fx.comm, bytes);

                XT_CHECK(count >= 1 && count <= OFI_PIECES_MAX);
                XT_CHECK(most[m] || count <= rails);
                XT_CHECK(!most[m] || count <= ofi_piece_most(&fx.device));
                XT_CHECK(!most[m] || count * most[m] >= bytes);
            }
            down();
        }
    }
}

/* --- merging --- */

static xcclResult_t merge(struct ofi_ctx *ctx, int count, const int *devs, int *dev_out)
{
    return ofi_merge(ctx, devs, count, dev_out);
}

XT_TEST(devices_that_are_alike_become_one_and_the_same_ones_again_the_same)
{
    struct ofi_ctx *ctx = calloc(1, sizeof(*ctx));
    xcclNetProperties_v1 props = {.size = sizeof(props)};
    int dev = -1, again = -1;

    up(0);
    XT_CHECK(ctx != NULL);
    ctx->device_count = 5;
    for (int i = 0; i < 5; i++) {
        make_device(&ctx->devices[i], i == 3 ? 0 : PIECE);
        snprintf(ctx->devices[i].name, sizeof(ctx->devices[i].name), "card%d", i);
        ctx->devices[i].speed_mbps = 100;
    }
    XT_OK(merge(ctx, 2, (int[]){1, 0}, &dev));
    XT_CHECK_INT(dev, 5);
    XT_OK(merge(ctx, 2, (int[]){1, 0}, &again));
    XT_CHECK_INT(again, 5);
    XT_OK(merge(ctx, 1, (int[]){2}, &again));
    XT_CHECK_INT(again, 2);
    XT_OK(merge(ctx, 4, (int[]){0, 1, 2, 4}, &again));
    XT_CHECK_INT(again, 6);
    XT_OK(ofi_properties(ctx, dev, &props));
    XT_CHECK_TEXT(props.name, "card1+card0");
    XT_CHECK_INT(props.speedMbps, 200);
    XT_CHECK_INT(props.memberCount, 2);
    XT_CHECK(props.members[0] == 1 && props.members[1] == 0);
    XT_CHECK_RC(merge(ctx, 2, (int[]){0, 3}, &dev), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "devices card3 and card0 support different messages");
    XT_CHECK_RC(merge(ctx, 2, (int[]){5, 2}, &dev), xcclInvalidUsage);
    XT_CHECK_RC(merge(ctx, 2, (int[]){0, 0}, &dev), xcclInvalidArgument);
    XT_CHECK_RC(merge(ctx, 5, (int[]){0, 1, 2, 3, 4}, &dev), xcclInvalidArgument);
    XT_CHECK_INT(ctx->device_count, 7);
    free(ctx);
    down();
}
