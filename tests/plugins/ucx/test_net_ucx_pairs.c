/* SPDX-License-Identifier: BSD-3-Clause */
/* Two connections of the UCX plugin that go opposite ways between the same two instances share a
 * worker, and so a connection of UCX's: counted here by TCP sockets, both ends of which are in this
 * process. Data comes whole from as many threads as there are comms; a close leaves the other
 * comm as it was, but for one in the middle of a transfer, which is told. */
#include <pthread.h>
#include <string.h>

#include "ucx_ends.h"

#define FDS 1024

struct two {
    struct plugin a, b;
};

static void two_open(struct two *two)
{
    xt_setenv("UCX_NET_DEVICES", "lo"); /* one connection a link */
    plugin_open(&two->a);
    plugin_open(&two->b);
}

static void two_close(struct two *two)
{
    plugin_close(&two->a);
    plugin_close(&two->b);
}

/* TCP connections of UCX, which are not to or from a listener's port. */
static int data_connections(const struct two *two)
{
    in_port_t a = (in_port_t)xccl_addr_port(&two->a.parts.where.addrs[0]);
    in_port_t b = (in_port_t)xccl_addr_port(&two->b.parts.where.addrs[0]);
    int ends = 0;

    for (int fd = 3; fd < FDS; fd++) {
        in_port_t peer = port_of(fd, 1), own = port_of(fd, 0);

        ends += peer && peer != a && peer != b && own != a && own != b;
    }
    XT_CHECK(ends % 2 == 0);
    return ends / 2;
}

static void expect_message(struct pair pair, size_t bytes)
{
    struct message message = message_post(pair, bytes);

    message_end(&message);
    if (!message.sent || !message.received)
        XT_FAIL("%zu bytes: %s", bytes, pair.from->calls->lastError(NULL));
    XT_CHECK(memcmp(message.from, message.to, bytes) == 0);
    message_free(&message);
}

static void expect_messages(struct pair pair)
{
    static const size_t sizes[] = {1, 8, 5000, 100000, 4u << 20};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        expect_message(pair, sizes[i]);
}

static void share_one_after_the_other(int connections)
{
    struct two two;
    struct pair there, back, third;

    two_open(&two);
    there = pair_between(&two.a, &two.b);
    XT_CHECK_INT(data_connections(&two), 1);
    back = pair_between(&two.b, &two.a);
    expect_messages(there);
    expect_messages(back);
    XT_CHECK_INT(data_connections(&two), connections);
    third = pair_between(&two.a, &two.b); /* the same way as the first */
    expect_messages(third);
    XT_CHECK_INT(data_connections(&two), connections + 1);
    pair_close(there);
    pair_close(back);
    expect_messages(third);
    pair_close(third);
    two_close(&two);
}

XT_TEST_DEADLINE(two_that_go_opposite_ways_share_a_connection, 90)
{
    share_one_after_the_other(1);
}

XT_TEST_DEADLINE(a_setting_keeps_them_apart, 90)
{
    xt_setenv("XCCL_UCX_PAIR", "0");
    share_one_after_the_other(2);
}

XT_TEST_DEADLINE(within_one_instance_too, 90)
{
    struct two two;
    struct pair one, other;

    two_open(&two);
    XT_CHECK_INT(data_connections(&two), 0);
    one = pair_open(&two.a);
    other = pair_open(&two.a);
    expect_messages(one);
    expect_messages(other);
    XT_CHECK_INT(data_connections(&two), 1);
    pair_close(one);
    expect_messages(other);
    pair_close(other);
    two_close(&two);
}

/* ---- at the same time ---- */

struct half_open {
    struct pair pair;
    xcclNetConnect_t state;
    xcclNetHandle_t handle;
    xcclNetListenComm_t listener;
};

static struct half_open half_open(struct plugin *from, struct plugin *to)
{
    struct half_open half = {.pair = {.from = from, .to = to}};

    XT_OK(to->calls->listen(to->ctx, 0, &half.handle, &half.listener));
    return half;
}

static void go_on(struct half_open *half, int connects, int accepts)
{
    const xcclNetPlugin_v1_t *calls = half->pair.from->calls;

    if (connects && !half->pair.send)
        XT_OK(
            calls->connect(half->pair.from->ctx, 0, &half->handle, &half->state, &half->pair.send));
    if (accepts && !half->pair.recv)
        XT_OK(calls->accept(half->listener, &half->pair.recv));
}

static void go_on_for(struct half_open *half, int connects, int accepts)
{
    for (int i = 0; i < 50; i++) {
        go_on(half, connects, accepts);
        usleep(1000);
    }
}

static void finish(struct half_open *halves, int count)
{
    uint64_t end_ns = xccl_clock_ns() + END_NS;
    int missing = 1;

    while (missing && xccl_clock_ns() < end_ns) {
        missing = 0;
        for (int i = 0; i < count; i++) {
            go_on(&halves[i], 1, 1);
            missing |= !halves[i].pair.send || !halves[i].pair.recv;
        }
    }
    XT_CHECK(!missing);
    for (int i = 0; i < count; i++) {
        XT_OK(halves[i].pair.to->calls->closeListen(halves[i].listener));
        expect_messages(halves[i].pair);
    }
}

XT_TEST_DEADLINE(two_that_connect_at_the_same_time_share_one, 90)
{
    struct two two;
    struct half_open halves[2];

    two_open(&two);
    halves[0] = half_open(&two.a, &two.b);
    halves[1] = half_open(&two.b, &two.a);
    for (int i = 0; i < 2; i++)
        go_on_for(&halves[i], 1, 0);
    for (int i = 0; i < 2; i++)
        go_on_for(&halves[i], 0, 1);
    finish(halves, 2);
    for (int i = 0; i < 2; i++)
        pair_close(halves[i].pair);
    two_close(&two);
}

/* The second of two connects one way is accepted first, where the other end takes the first of two
 * for its own: the two ends choose differently, and all three go on. */
XT_TEST_DEADLINE(ends_that_choose_differently_still_connect, 90)
{
    struct two two;
    struct half_open halves[3];

    two_open(&two);
    halves[0] = half_open(&two.a, &two.b);
    halves[1] = half_open(&two.a, &two.b);
    halves[2] = half_open(&two.b, &two.a);
    for (int i = 0; i < 3; i++)
        go_on_for(&halves[i], 1, 0);
    go_on_for(&halves[1], 0, 1);
    go_on_for(&halves[2], 0, 1);
    finish(halves, 3);
    for (int i = 0; i < 3; i++) {
        pair_close(halves[i].pair);
        for (int j = i + 1; j < 3; j++)
            expect_messages(halves[j].pair);
    }
    two_close(&two);
}

/* ---- threads ---- */

#define THREAD_MESSAGES 3000

struct work {
    struct pair pair;
    int is_send;
};

static size_t size_of(int i)
{
    return i % 50 == 49 ? 200000 + (size_t)i : 1 + (size_t)i % 700;
}

static char byte_of(int i, size_t at)
{
    return (char)((size_t)i * 31 + at * 7 + 1);
}

static void until_done(const xcclNetPlugin_v1_t *calls, xcclNetRequest_t request, size_t want)
{
    uint64_t end_ns = xccl_clock_ns() + END_NS;
    size_t bytes = want;
    int done = 0;

    while (!done && xccl_clock_ns() < end_ns)
        XT_OK(calls->test(request, &done, &bytes));
    XT_CHECK(done && bytes == want);
}

static void *one_end(void *arg)
{
    const struct work *work = arg;
    const xcclNetPlugin_v1_t *calls = work->pair.from->calls;
    char *memory = malloc(size_of(THREAD_MESSAGES) + 300000);

    XT_CHECK(memory != NULL);
    for (int i = 0; i < THREAD_MESSAGES; i++) {
        uint64_t end_ns = xccl_clock_ns() + END_NS;
        xcclNetRequest_t request = NULL;
        size_t bytes = size_of(i);
        void *data = memory;
        uint32_t tag = 5;

        if (work->is_send)
            for (size_t k = 0; k < bytes; k++)
                memory[k] = byte_of(i, k);
        while (!request && xccl_clock_ns() < end_ns) {
            if (work->is_send)
                XT_OK(calls->isend(work->pair.send, memory, bytes, tag, NULL, &request));
            else
                XT_OK(calls->irecv(work->pair.recv, 1, &data, &bytes, &tag, NULL, &request));
        }
        XT_CHECK(request != NULL);
        until_done(calls, request, bytes);
        if (!work->is_send)
            for (size_t k = 0; k < bytes; k++)
                XT_CHECK(memory[k] == byte_of(i, k));
    }
    free(memory);
    return NULL;
}

XT_TEST_DEADLINE(four_threads_move_the_four_ends, 120)
{
    struct two two;
    struct work works[4];
    pthread_t threads[4];

    two_open(&two);
    works[0].pair = works[1].pair = pair_between(&two.a, &two.b);
    works[2].pair = works[3].pair = pair_between(&two.b, &two.a);
    XT_CHECK_INT(data_connections(&two), 1);
    for (int i = 0; i < 4; i++) {
        works[i].is_send = i % 2;
        XT_CHECK_INT(pthread_create(&threads[i], NULL, one_end, &works[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        XT_CHECK_INT(pthread_join(threads[i], NULL), 0);
    pair_close(works[0].pair);
    pair_close(works[2].pair);
    two_close(&two);
}

/* ---- closes ---- */

XT_TEST_DEADLINE(one_that_closes_in_order_leaves_the_other, 90)
{
    for (int receiver_first = 0; receiver_first < 2; receiver_first++) {
        struct two two;
        struct pair there, back;

        two_open(&two);
        there = pair_between(&two.a, &two.b);
        back = pair_between(&two.b, &two.a);
        expect_messages(there);
        if (receiver_first)
            XT_OK(two.b.calls->closeRecv(there.recv));
        XT_OK(two.a.calls->closeSend(there.send));
        expect_messages(back);
        if (!receiver_first)
            XT_OK(two.b.calls->closeRecv(there.recv));
        expect_messages(back);
        there = pair_between(&two.a, &two.b); /* a link is for two, once */
        expect_messages(there);
        expect_messages(back);
        pair_close(back);
        expect_messages(there);
        pair_close(there);
        two_close(&two);
    }
}

/* ---- an end that closes while the other way is busy ---- */

/* Small sends are over at once, so nothing of UCX tells. */
XT_TEST_DEADLINE(a_sender_hears_of_its_receiver_while_the_other_way_is_busy, 90)
{
    struct two two;
    struct pair there, back;
    uint64_t end_ns = xccl_clock_ns() + END_NS;
    xcclResult_t rc = xcclSuccess;

    two_open(&two);
    there = pair_between(&two.a, &two.b);
    back = pair_between(&two.b, &two.a);
    XT_OK(two.b.calls->closeRecv(there.recv));
    while (rc == xcclSuccess && xccl_clock_ns() < end_ns) {
        xcclNetRequest_t request = NULL;
        char byte = 1;
        int done = 0;

        rc = two.a.calls->isend(there.send, &byte, 1, 7, NULL, &request);
        while (rc == xcclSuccess && request && !done && xccl_clock_ns() < end_ns)
            rc = two.a.calls->test(request, &done, NULL);
        expect_message(back, 8);
    }
    XT_CHECK_RC(rc, xcclRemoteError);
    XT_CHECK_HAS(two.a.calls->lastError(NULL), "ended: the peer closed it or died");
    expect_messages(back);
    XT_OK(two.a.calls->closeSend(there.send));
    expect_messages(back);
    pair_close(back);
    two_close(&two);
}

XT_TEST_DEADLINE(a_receiver_hears_of_its_sender_while_the_other_way_is_busy, 90)
{
    struct two two;
    struct pair there, back;
    uint64_t end_ns = xccl_clock_ns() + END_NS;
    xcclNetRequest_t request = NULL;
    char memory[8];
    void *data = memory;
    size_t bytes = sizeof(memory);
    uint32_t tag = 7;
    xcclResult_t rc = xcclSuccess;
    int done = 0;

    two_open(&two);
    there = pair_between(&two.a, &two.b);
    back = pair_between(&two.b, &two.a);
    XT_OK(two.b.calls->irecv(there.recv, 1, &data, &bytes, &tag, NULL, &request));
    XT_OK(two.a.calls->closeSend(there.send));
    while (rc == xcclSuccess && !done && xccl_clock_ns() < end_ns) {
        rc = two.b.calls->test(request, &done, NULL);
        expect_message(back, 8);
    }
    XT_CHECK_RC(rc, xcclRemoteError);
    XT_OK(two.b.calls->closeRecv(there.recv));
    expect_messages(back);
    pair_close(back);
    two_close(&two);
}

/* Receives that were posted and got nothing are no transfer. */
XT_TEST_DEADLINE(a_receive_that_waits_is_taken_back, 90)
{
    struct two two;
    struct pair there, back;
    xcclNetRequest_t request = NULL;
    char memory[64];
    void *data = memory;
    size_t bytes = sizeof(memory);
    uint32_t tag = 1;

    two_open(&two);
    there = pair_between(&two.a, &two.b);
    back = pair_between(&two.b, &two.a);
    XT_OK(two.b.calls->irecv(there.recv, 1, &data, &bytes, &tag, NULL, &request));
    XT_OK(two.b.calls->closeRecv(there.recv));
    expect_messages(back);
    XT_OK(two.a.calls->closeSend(there.send));
    expect_messages(back);
    pair_close(back);
    two_close(&two);
}

static xcclResult_t until_error(const xcclNetPlugin_v1_t *calls, xcclNetRequest_t request)
{
    uint64_t end_ns = xccl_clock_ns() + END_NS;
    xcclResult_t rc = xcclSuccess;
    int done = 0;

    while (rc == xcclSuccess && !done && xccl_clock_ns() < end_ns)
        rc = calls->test(request, &done, NULL);
    XT_CHECK(!done);
    return rc;
}

/* UCX cannot take memory back but with its worker. */
XT_TEST_DEADLINE(one_that_closes_in_a_transfer_takes_the_other_with_it, 90)
{
    const size_t large = (size_t)8 << 20;
    struct two two;
    struct pair there, back;
    xcclNetRequest_t send = NULL, recv = NULL;
    char *from = calloc(1, large), byte = 0;
    void *data = &byte;
    size_t bytes = 1;
    uint32_t tag = 1;

    XT_CHECK(from != NULL);
    two_open(&two);
    there = pair_between(&two.a, &two.b);
    back = pair_between(&two.b, &two.a);
    XT_OK(two.a.calls->irecv(back.recv, 1, &data, &bytes, &tag, NULL, &recv));
    XT_OK(two.a.calls->isend(there.send, from, large, tag, NULL, &send));
    XT_CHECK(send && recv);
    XT_OK(two.a.calls->closeSend(there.send));
    free(from);
    XT_CHECK_RC(until_error(two.a.calls, recv), xcclSystemError);
    XT_CHECK_HAS(two.a.calls->lastError(NULL),
                 "ended together with the one in the opposite direction");
    XT_CHECK_HAS(two.a.calls->lastError(NULL), "XCCL_UCX_PAIR=0");
    XT_OK(two.b.calls->closeRecv(there.recv));
    pair_close(back);
    there = pair_between(&two.a, &two.b);
    expect_messages(there);
    pair_close(there);
    two_close(&two);
}

XT_TEST_DEADLINE(kept_apart_one_that_closes_in_a_transfer_does_not, 90)
{
    const size_t large = (size_t)8 << 20;
    struct two two;
    struct pair there, back;
    xcclNetRequest_t send = NULL;
    char *from = calloc(1, large);

    xt_setenv("XCCL_UCX_PAIR", "0");
    XT_CHECK(from != NULL);
    two_open(&two);
    there = pair_between(&two.a, &two.b);
    back = pair_between(&two.b, &two.a);
    XT_OK(two.a.calls->isend(there.send, from, large, 1, NULL, &send));
    XT_OK(two.a.calls->closeSend(there.send));
    free(from);
    expect_messages(back);
    XT_OK(two.b.calls->closeRecv(there.recv));
    pair_close(back);
    two_close(&two);
}
