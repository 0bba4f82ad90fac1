/* SPDX-License-Identifier: BSD-3-Clause */
/* What net-ib asks of a card for each message, by count, for time says little without a card: work
 * requests, calls that ring its doorbell, completions that are asked for, lines by which receives
 * are announced. Both ends are in this process; the counts are of both. Over the verbs library of
 * one process (fixtures/verbs_fixture.c). */
#include "ib_rails.h"

#define ROUNDS  64
#define LARGE   ((size_t)4 << 20)
#define GROUP   8
#define WINDOW  16 /* messages of a row */
#define UNASKED 16 /* of so many lines one is signalled */

static uint8_t *from, *to;

struct ways {
    struct pair pair;
    xcclNetMem_t from, to;
};

static void ways_open(struct ways *ways, int ports)
{
    need_plugin();
    from = calloc(GROUP, LARGE);
    to = calloc(GROUP, LARGE);
    XT_CHECK(from && to);
    pair_open(&ways->pair, ports, ports);
    XT_OK(ways->pair.nets[0]->calls.regMr(ways->pair.send, from, GROUP * LARGE, XCCL_NET_PTR_HOST,
                                          &ways->from));
    XT_OK(ways->pair.nets[1]->calls.regMr(ways->pair.recv, to, GROUP * LARGE, XCCL_NET_PTR_HOST,
                                          &ways->to));
}

static void ways_close(struct ways *ways)
{
    XT_OK(ways->pair.nets[0]->calls.deregMr(ways->pair.send, ways->from));
    XT_OK(ways->pair.nets[1]->calls.deregMr(ways->pair.recv, ways->to));
    pair_close(&ways->pair);
    free(from);
    free(to);
}

static void post_recv(struct ways *ways, int parts, size_t bytes, xcclNetRequest_t *request_out)
{
    void *data[GROUP];
    size_t rooms[GROUP];
    uint32_t tags[GROUP];
    xcclNetMem_t mems[GROUP];

    for (int i = 0; i < parts; i++) {
        data[i] = to + (size_t)i * LARGE;
        rooms[i] = bytes;
        tags[i] = (uint32_t)i;
        mems[i] = ways->to;
    }
    XT_OK(ways->pair.nets[1]->calls.irecv(ways->pair.recv, parts, data, rooms, tags, mems,
                                          request_out));
    XT_CHECK(*request_out != NULL);
}

static void post_send(struct ways *ways, int part, size_t bytes, xcclNetRequest_t *request_out)
{
    XT_OK(ways->pair.nets[0]->calls.isend(ways->pair.send, from + (size_t)part * LARGE, bytes,
                                          (uint32_t)part, ways->from, request_out));
    XT_CHECK(*request_out != NULL);
}

static void wait_for(const struct xccl_net *net, xcclNetRequest_t request)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    int done = 0;

    while (!done) {
        XT_OK(net->calls.test(request, &done, NULL));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
}

/* So many receives of so many parts each, all posted before the first send. */
static void move_row(struct ways *ways, int row, int parts, size_t bytes)
{
    xcclNetRequest_t recvs[WINDOW], sends[WINDOW * GROUP];

    for (int i = 0; i < row; i++)
        post_recv(ways, parts, bytes, &recvs[i]);
    for (int i = 0; i < row * parts; i++)
        post_send(ways, i % parts, bytes, &sends[i]);
    for (int i = 0; i < row * parts; i++)
        wait_for(ways->pair.nets[0], sends[i]);
    for (int i = 0; i < row; i++)
        wait_for(ways->pair.nets[1], recvs[i]);
}

struct expected {
    int parts; /* of each receive */
    size_t bytes; /* of each part */
    long calls, writes, last; /* a receive; of them one is its line */
    long inlined, receive_calls;
};

/* Rows of so many receives. Only the last write of a piece is signalled, and seldom a line. */
static void expect(struct ways *ways, int row, const struct expected *want)
{
    long counts[COUNT_KINDS], receives = (long)ROUNDS * row;

    move_row(ways, row, want->parts, want->bytes);
    take_counts(counts);
    for (int i = 0; i < ROUNDS; i++)
        move_row(ways, row, want->parts, want->bytes);
    take_counts(counts);
    XT_CHECK_INT(counts[COUNT_CALLS], receives * want->calls);
    XT_CHECK_INT(counts[COUNT_WRITES], receives * want->writes);
    XT_CHECK_INT(counts[COUNT_LAST], receives * want->last);
    XT_CHECK_INT(counts[COUNT_SIGNALLED], receives * want->last + receives / UNASKED);
    XT_CHECK_INT(counts[COUNT_INLINE], receives * want->inlined);
    XT_CHECK_INT(counts[COUNT_RECEIVES], receives * want->last);
    XT_CHECK(counts[COUNT_RECEIVE_CALLS] <= receives * want->receive_calls);
}

XT_TEST(message_is_a_line_and_a_write)
{
    static const struct expected want[] = {
        {1, 0, 2, 2, 1, 1, 1},  {1, 8, 2, 2, 1, 2, 1},        {1, 64, 2, 2, 1, 2, 1},
        {1, 65, 2, 2, 1, 1, 1}, {1, 64 << 10, 2, 2, 1, 1, 1}, {1, 1 << 20, 2, 2, 1, 1, 1}};
    struct ways ways;

    ways_open(&ways, 1);
    for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
        expect(&ways, 1, &want[i]);
        expect(&ways, WINDOW, &want[i]);
    }
    ways_close(&ways);
}

/* The writes of 1 MiB each are given to the card in one call. */
XT_TEST(large_message_is_one_call)
{
    static const struct expected want = {1, LARGE, 2, 5, 1, 1, 1};
    struct ways ways;

    ways_open(&ways, 1);
    expect(&ways, 1, &want);
    ways_close(&ways);
}

/* Its lines together are more than the card takes inline. */
XT_TEST(group_is_announced_by_one_write)
{
    static const struct expected want = {GROUP, 8, 1 + GROUP, 1 + GROUP, GROUP, GROUP, 1};
    struct ways ways;

    ways_open(&ways, 1);
    expect(&ways, 1, &want);
    ways_close(&ways);
}

XT_TEST(two_ports_carry_a_piece_each_of_a_large_message)
{
    static const struct expected small = {1, 8, 2, 2, 1, 2, 1},
                                 striped = {1, 1 << 20, 3, 3, 2, 1, 2},
                                 large = {1, LARGE, 3, 5, 2, 1, 2};
    struct ways ways;

    ways_open(&ways, 2);
    expect(&ways, 1, &small);
    expect(&ways, 1, &striped);
    expect(&ways, 1, &large);
    ways_close(&ways);
}

/* All but the last unit of 64 KiB, or what is left of it, goes as writes that may be spread. */
XT_TEST(large_messages_may_be_spread_over_ways)
{
    static const struct expected whole = {1, 64 << 10, 2, 2, 1, 1, 1},
                                 more = {1, (64 << 10) + 1, 2, 3, 1, 2, 1},
                                 large = {1, LARGE, 2, 6, 1, 1, 1};
    struct ways ways;

    xt_setenv("XCCL_IB_ADAPTIVE_ROUTING", "on");
    ways_open(&ways, 1);
    expect(&ways, 1, &whole);
    expect(&ways, 1, &more);
    expect(&ways, 1, &large);
    ways_close(&ways);
}

/* Two small messages behind a large one that is under way both go by the other port. */
XT_TEST(messages_take_the_port_with_the_fewest_bytes_under_way)
{
    static const size_t bytes[] = {100 << 10, 8, 8, 8};
    xcclNetRequest_t recvs[4], sends[4];
    struct ways ways;
    long before[2], after[2];

    ways_open(&ways, 2);
    for (int i = 0; i < 4; i++)
        post_recv(&ways, 1, bytes[i], &recvs[i]);
    for (int card = 0; card < 2; card++)
        before[card] = posts_of(card);
    for (int i = 0; i < 4; i++)
        post_send(&ways, 0, bytes[i], &sends[i]);
    for (int card = 0; card < 2; card++)
        after[card] = posts_of(card) - before[card];
    XT_CHECK_INT(after[0] + after[1], 4);
    XT_CHECK_INT(after[0] < after[1] ? after[0] : after[1], 1);
    for (int i = 0; i < 4; i++) {
        wait_for(ways.pair.nets[0], sends[i]);
        wait_for(ways.pair.nets[1], recvs[i]);
    }
    ways_close(&ways);
}

XT_TEST(row_of_small_messages_gives_back_receives_together)
{
    struct ways ways;
    long counts[COUNT_KINDS];

    ways_open(&ways, 1);
    move_row(&ways, WINDOW, 1, 8);
    take_counts(counts);
    for (int i = 0; i < ROUNDS; i++)
        move_row(&ways, WINDOW, 1, 8);
    take_counts(counts);
    XT_CHECK(counts[COUNT_RECEIVE_CALLS] * 4 <= counts[COUNT_RECEIVES]);
    ways_close(&ways);
}
