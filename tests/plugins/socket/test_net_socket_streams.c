/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections of the socket plugin with several streams: large messages arrive whole whichever
 * stream brings which chunk, a stream that stalls holds nothing else back, and chunks that a
 * hostile peer makes up end its comm and place nothing outside. */
#include <poll.h>
#include <stdio.h>

#include "sock_pair.h"

#define MESSAGES 6
#define LARGE    ((size_t)256 << 10) /* 4 chunks of 64 KiB where there are two streams */
#define CHUNK    ((size_t)64 << 10)

static void streams_set(int count)
{
    char text[8];

    snprintf(text, sizeof(text), "%d", count);
    xt_setenv("XCCL_SOCKET_STREAMS", text);
}

/* ---- messages ---- */

/* Posts all, then tests both sides in a drawn order until all are done. */
static void exchange(struct pair *pair, char *in, uint64_t *random, uint64_t seed)
{
    void *sends[MESSAGES], *recvs[MESSAGES];
    size_t sizes[MESSAGES], got[MESSAGES], room = BIG_BYTES / MESSAGES;
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    int left = 2 * MESSAGES;

    for (size_t i = 0; i < MESSAGES; i++) {
        sizes[i] = xt_random(random) % 3 ? xt_random(random) % room : xt_random(random) % 2000;
        fill(big + i * room, sizes[i], seed + i);
        recvs[i] = post_recv(pair, in + i * room, room);
        sends[i] = post_send(pair, big + i * room, sizes[i]);
        XT_CHECK(sends[i] && recvs[i]);
    }
    while (left > 0) {
        size_t at = xt_random(random) % MESSAGES;
        void **request = xt_random(random) % 2 ? &sends[at] : &recvs[at];
        int done = 0;

        if (!*request)
            continue;
        XT_OK(pair->net->calls.test(*request, &done, request == &recvs[at] ? &got[at] : NULL));
        XT_CHECK(!xccl_limit_passed(&limit));
        if (!done)
            continue;
        *request = NULL;
        left--;
    }
    for (size_t i = 0; i < MESSAGES; i++) {
        XT_CHECK_INT(got[i], sizes[i]);
        expect(in + i * room, sizes[i], seed + i);
    }
}

XT_TEST_DEADLINE(large_and_small_messages_in_a_row_arrive_whole, 120)
{
    static const int counts[] = {2, 3, 8};
    uint64_t random = xt_seed();
    char *in = malloc(BIG_BYTES);

    for (int i = 0; i < 3; i++) {
        struct pair pair;

        streams_set(counts[i]);
        pair_open(&pair);
        for (uint64_t round = 0; round < 4; round++)
            exchange(&pair, in, &random, round * 10);
        pair_close(&pair);
    }
    free(in);
}

XT_TEST_DEADLINE(messages_sent_from_the_users_pages_arrive_whole, 60)
{
    uint64_t random = xt_seed();
    char *in = malloc(BIG_BYTES);
    struct pair pair;

    xt_setenv("XCCL_SOCKET_ZEROCOPY", "on");
    streams_set(4);
    pair_open(&pair);
    for (uint64_t round = 0; round < 8; round++)
        exchange(&pair, in, &random, round * 10);
    pair_close(&pair);
    free(in);
}

XT_TEST(closing_with_pages_under_way_ends_at_once)
{
    char *in = malloc(BIG_BYTES);
    struct pair pair;
    void *recv;

    xt_setenv("XCCL_SOCKET_ZEROCOPY", "on");
    streams_set(2);
    pair_open(&pair);
    recv = post_recv(&pair, in, BIG_BYTES);
    XT_CHECK(post_send(&pair, big, BIG_BYTES));
    XT_OK(pair.net->calls.closeSend(pair.send));
    pair.send = NULL;
    XT_CHECK_RC(finish(&pair, recv, NULL), xcclRemoteError);
    pair_close(&pair);
    free(in);
}

XT_TEST(a_group_is_done_when_its_large_parts_are_whole)
{
    static const size_t bytes[3] = {LARGE, 100, LARGE + 7};
    static const uint32_t tags[3] = {1, 2, 3};
    char *in = malloc(BIG_BYTES);
    void *data[3] = {in, in + (1 << 20), in + (2 << 20)}, *sends[3], *recv = NULL, *small;
    size_t sizes[8], room[3] = {1 << 20, 1 << 20, 1 << 20};
    struct pair pair;
    xcclNetMem_t mems[3];

    streams_set(2);
    pair_open(&pair);
    for (int i = 0; i < 3; i++)
        mems[i] = pair.recv_mem;
    XT_OK(pair.net->calls.irecv(pair.recv, 3, data, room, tags, mems, &recv));
    small = post_recv(&pair, in + (3 << 20), 10);
    for (int i = 2; i >= 0; i--) {
        fill(big + (i << 20), bytes[i], (uint64_t)i);
        XT_OK(pair.net->calls.isend(pair.send, big + (i << 20), bytes[i], tags[i], pair.send_mem,
                                    &sends[i]));
    }
    finish_both(&pair, sends[0], recv, sizes);
    for (int i = 0; i < 3; i++) {
        XT_CHECK_INT(sizes[i], bytes[i]);
        expect(data[i], bytes[i], (uint64_t)i);
    }
    finish_both(&pair, post_send(&pair, "next", 4), small, sizes);
    XT_CHECK_INT(sizes[0], 4);
    XT_OK(finish(&pair, sends[1], NULL));
    XT_OK(finish(&pair, sends[2], NULL));
    pair_close(&pair);
    free(in);
}

XT_TEST(closing_right_after_done_loses_nothing_though_the_receiver_answers)
{
    enum { COUNT = 96, BYTES = 4000 };
    struct pair pair;
    char *in = malloc(BYTES);
    void *sends[COUNT];

    streams_set(4);
    pair_open(&pair);
    for (size_t i = 0; i < COUNT; i++) {
        fill(big + i * BYTES, BYTES, i);
        sends[i] = post_send(&pair, big + i * BYTES, BYTES);
        XT_CHECK(sends[i]);
    }
    for (int i = 0; i < COUNT; i++)
        XT_OK(finish(&pair, sends[i], NULL));
    XT_OK(pair.net->calls.closeSend(pair.send));
    pair.send = NULL;
    /* Acknowledgements go to an end that has closed. */
    for (size_t i = 0; i < COUNT; i++) {
        size_t got = 0;

        XT_OK(finish(&pair, post_recv(&pair, in, BYTES), &got));
        XT_CHECK_INT(got, BYTES);
        expect(in, BYTES, i);
    }
    XT_CHECK_RC(finish(&pair, post_recv(&pair, in, BYTES), NULL), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "closed the connection");
    pair_close(&pair);
    free(in);
}

XT_TEST(a_sleeper_is_not_woken_again_and_again_by_what_was_looked_at)
{
    struct pair pair;
    char *in = malloc(BIG_BYTES);
    void *send, *recv;
    int fd = -1, wakes = 0, done = 0;

    streams_set(2);
    pair_open(&pair);
    recv = post_recv(&pair, in, BIG_BYTES);
    send = post_send(&pair, big, BIG_BYTES);
    XT_OK(pair.net->calls.waitFd(pair.recv, &fd));
    /* The sender is not asked, so only a part of it comes. */
    for (struct pollfd ready = {.fd = fd, .events = POLLIN};;) {
        XT_OK(pair.net->calls.test(recv, &done, NULL));
        XT_CHECK_INT(done, 0);
        if (poll(&ready, 1, 100) == 0)
            break;
        XT_CHECK(++wakes < 2000);
    }
    finish_both(&pair, send, recv, NULL);
    pair_close(&pair);
    free(in);
}

/* ---- the lines of a connection ---- */

static void ask_accept(struct pair *pair, int times)
{
    for (int i = 0; i < times && !pair->recv; i++)
        XT_OK(pair->net->calls.accept(pair->listener, &pair->recv));
}

/* A hostile sender with two streams: fds[0] is line 0. */
static void raw_sender(struct pair *pair, int fds[3])
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);

    streams_set(2);
    pair_listen(pair);
    for (uint8_t i = 0; i < 3; i++)
        fds[i] = raw_line(pair, i, 3);
    while (!pair->recv) {
        ask_accept(pair, 1);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
}

static void raw_close(struct pair *pair, int fds[3])
{
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    pair_close(pair);
}

static void expect_dropped(struct pair *pair, int fd)
{
    struct pollfd gone = {.fd = fd, .events = POLLIN};
    char byte;

    while (poll(&gone, 1, 0) == 0)
        ask_accept(pair, 1);
    XT_CHECK(recv(fd, &byte, 1, 0) <= 0);
    close(fd);
}

XT_TEST(a_comm_is_up_when_each_of_its_lines_has_come_once)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    struct pair pair;
    int fds[3];

    streams_set(2);
    pair_listen(&pair);
    fds[2] = raw_line(&pair, 2, 3);
    fds[0] = raw_line(&pair, 0, 3);
    ask_accept(&pair, 50);
    XT_CHECK(pair.recv == NULL);
    expect_dropped(&pair, raw_line(&pair, 2, 3)); /* has come before */
    expect_dropped(&pair, raw_line(&pair, 3, 3)); /* there is none */
    expect_dropped(&pair, raw_line(&pair, 255, 3));
    expect_dropped(&pair, raw_line(&pair, 1, 4)); /* of another handle */
    XT_CHECK(pair.recv == NULL);
    fds[1] = raw_line(&pair, 1, 3);
    while (!pair.recv) {
        ask_accept(&pair, 1);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    raw_close(&pair, fds);
}

/* ---- chunks from the wire ---- */

static void raw_announce(int fd, uint8_t number, uint64_t bytes)
{
    uint8_t header[16] = {0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 'X', 'C', 'S', 'D'};

    for (int i = 0; i < 8; i++)
        header[i] = (uint8_t)(bytes >> 8 * i);
    header[12] ^= number;
    raw_send(fd, header, sizeof(header));
}

static void raw_chunk(int fd, uint32_t number, uint64_t offset, uint64_t bytes, size_t payload)
{
    uint8_t header[24] = {'X', 'C', 'S', 'C'};

    for (int i = 0; i < 8; i++) {
        header[8 + i] = (uint8_t)(offset >> 8 * i);
        header[16 + i] = (uint8_t)(bytes >> 8 * i);
        if (i < 4)
            header[4 + i] = (uint8_t)(number >> 8 * i);
    }
    raw_send(fd, header, sizeof(header));
    if (payload)
        raw_send(fd, big + offset, payload);
}

XT_TEST(a_chunk_that_comes_before_its_announcement_waits)
{
    struct pair pair;
    char *in = malloc(LARGE);
    int fds[3], done = 1;
    size_t got = 0;
    void *recv;

    raw_sender(&pair, fds);
    fill(big, LARGE, 9);
    recv = post_recv(&pair, in, LARGE);
    raw_chunk(fds[1], 0, CHUNK, CHUNK, CHUNK);
    for (int i = 0; i < 20; i++) {
        XT_OK(pair.net->calls.test(recv, &done, NULL));
        XT_CHECK_INT(done, 0);
    }
    raw_announce(fds[0], 0, LARGE);
    raw_chunk(fds[2], 0, 0, CHUNK, CHUNK);
    raw_chunk(fds[2], 0, 3 * CHUNK, CHUNK, CHUNK);
    /* What is closed between two chunks is missed by nobody. */
    close(fds[2]);
    fds[2] = dup(fds[0]);
    raw_chunk(fds[1], 0, 2 * CHUNK, CHUNK, CHUNK);
    XT_OK(finish(&pair, recv, &got));
    XT_CHECK_INT(got, LARGE);
    expect(in, LARGE, 9);
    raw_close(&pair, fds);
    free(in);
}

XT_TEST(when_line_0_closes_open_messages_still_come_and_further_ones_need_a_stream)
{
    struct pair pair;
    char *in = malloc(LARGE);
    int fds[3], done = 1;
    void *recv, *further;

    raw_sender(&pair, fds);
    fill(big, LARGE, 4);
    recv = post_recv(&pair, in, LARGE);
    further = post_recv(&pair, in, LARGE);
    raw_announce(fds[0], 0, LARGE);
    shutdown(fds[0], SHUT_WR);
    for (int i = 0; i < 20; i++) {
        XT_OK(pair.net->calls.test(further, &done, NULL));
        XT_CHECK_INT(done, 0);
    }
    for (size_t i = 0; i < 4; i++)
        raw_chunk(fds[1 + i % 2], 0, i * CHUNK, CHUNK, CHUNK);
    XT_OK(finish(&pair, recv, NULL));
    expect(in, LARGE, 4);
    XT_OK(pair.net->calls.test(further, &done, NULL));
    XT_CHECK_INT(done, 0);
    shutdown(fds[1], SHUT_WR);
    shutdown(fds[2], SHUT_WR);
    XT_CHECK_RC(finish(&pair, further, NULL), xcclRemoteError);
    raw_close(&pair, fds);
    free(in);
}

struct wrong {
    uint32_t number;
    uint64_t offset, bytes;
};

XT_TEST(a_chunk_that_does_not_fit_its_message_ends_the_comm_and_places_nothing)
{
    static const struct wrong wrongs[] = {
        {0, LARGE, CHUNK}, /* beyond the end */
        {0, UINT64_MAX - CHUNK + 1, CHUNK},
        {0, 0, CHUNK + 1}, /* not the length of a chunk */
        {0, 0, UINT64_MAX},
        {0, 0, 0},
        {0, 1, CHUNK}, /* between two chunks */
        {0, 3 * CHUNK, 2 * CHUNK},
        {400, 0, CHUNK}, /* of a message that cannot be announced yet */
        {UINT32_MAX, 0, CHUNK}, /* of one that is through */
    };
    char *in = malloc(2 * LARGE);

    for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
        struct pair pair;
        int fds[3];
        void *recv;

        raw_sender(&pair, fds);
        memset(in, 0xee, 2 * LARGE);
        memset(big, 1, 2 * LARGE);
        recv = post_recv(&pair, in + CHUNK, LARGE);
        raw_announce(fds[0], 0, LARGE);
        raw_chunk(fds[1], wrongs[i].number, wrongs[i].offset, wrongs[i].bytes, 0);
        XT_CHECK_RC(finish(&pair, recv, NULL), xcclRemoteError);
        XT_CHECK_HAS(xccl_error_text(), "damaged");
        for (size_t k = 0; k < CHUNK; k++)
            XT_CHECK(in[k] == (char)0xee && in[CHUNK + LARGE + k] == (char)0xee);
        raw_close(&pair, fds);
    }
    free(in);
}

XT_TEST(a_small_or_too_large_message_cannot_be_announced_in_chunks)
{
    static const uint64_t sizes[3] = {0, 4080, LARGE + 1};

    for (int i = 0; i < 3; i++) {
        struct pair pair;
        char *in = malloc(LARGE);
        int fds[3];
        void *recv;

        raw_sender(&pair, fds);
        recv = post_recv(&pair, in, LARGE);
        raw_announce(fds[0], 0, sizes[i]);
        XT_CHECK_RC(finish(&pair, recv, NULL), i < 2 ? xcclRemoteError : xcclInvalidUsage);
        raw_close(&pair, fds);
        free(in);
    }
}

XT_TEST(streams_that_close_before_the_message_is_whole_end_the_comm)
{
    for (int cut = 0; cut < 3; cut++) {
        struct pair pair;
        char *in = malloc(LARGE);
        int fds[3];
        void *recv;

        raw_sender(&pair, fds);
        recv = post_recv(&pair, in, LARGE);
        raw_announce(fds[0], 0, LARGE);
        /* In the middle of a header, of a chunk, or between two. */
        if (cut == 0)
            raw_send(fds[1], "XCSC", 4);
        else
            raw_chunk(fds[1], 0, 0, CHUNK, cut == 1 ? 1000 : CHUNK);
        for (int i = 0; i < 3; i++)
            close(fds[i]);
        XT_CHECK_RC(finish(&pair, recv, NULL), xcclRemoteError);
        XT_CHECK_HAS(xccl_error_text(), "127.0.0.1:");
        pair_close(&pair);
        free(in);
    }
}

/* The acknowledgement that says most, of those that have come. */
static void raw_ack(int fd, uint8_t ack_out[80])
{
    while (recv(fd, ack_out, 80, MSG_DONTWAIT | MSG_PEEK) == 80)
        XT_CHECK_INT(recv(fd, ack_out, 80, MSG_DONTWAIT), 80);
    XT_CHECK(memcmp(ack_out, "XCSA", 4) == 0);
}

XT_TEST(a_chunk_in_the_way_of_what_is_missing_is_dropped_and_asked_for_again)
{
    struct pair pair;
    char *in = malloc(2 * LARGE);
    uint8_t ack[80] = {0};
    int fds[3], done;
    void *first, *second;

    raw_sender(&pair, fds);
    fill(big, LARGE, 1);
    first = post_recv(&pair, in, LARGE);
    raw_announce(fds[0], 0, LARGE);
    /* Both streams are at the next message before the first one is whole. */
    for (size_t i = 0; i < 3; i++)
        raw_chunk(fds[1], 0, i * CHUNK, CHUNK, CHUNK);
    raw_chunk(fds[1], 1, 0, CHUNK, CHUNK);
    raw_chunk(fds[2], 1, CHUNK, CHUNK, CHUNK);
    raw_chunk(fds[2], 0, 3 * CHUNK, CHUNK, CHUNK);
    XT_OK(finish(&pair, first, NULL));
    expect(in, LARGE, 1);
    second = post_recv(&pair, in + LARGE, LARGE);
    raw_announce(fds[0], 1, LARGE);
    for (int i = 0; i < 20; i++) {
        XT_OK(pair.net->calls.test(second, &done, NULL));
        XT_CHECK_INT(done, 0);
    }
    raw_ack(fds[0], ack);
    XT_CHECK_INT(ack[4], 1); /* message 0 is whole */
    XT_CHECK_INT(ack[48], 1 << 1); /* message 1 is to be sent again */
    for (size_t i = 0; i < 4; i++)
        raw_chunk(fds[1], 1, i * CHUNK, CHUNK, CHUNK);
    XT_OK(finish(&pair, second, NULL));
    expect(in + LARGE, LARGE, 1);
    raw_close(&pair, fds);
    free(in);
}

XT_TEST(a_chunk_that_comes_twice_counts_once)
{
    struct pair pair;
    char *in = malloc(LARGE);
    int fds[3], done = 1;
    void *recv;

    raw_sender(&pair, fds);
    fill(big, LARGE, 5);
    recv = post_recv(&pair, in, LARGE);
    raw_announce(fds[0], 0, LARGE);
    for (size_t i = 0; i < 4; i++)
        raw_chunk(fds[1 + i % 2], 0, i / 2 * CHUNK, CHUNK, CHUNK);
    for (int i = 0; i < 50; i++) {
        XT_OK(pair.net->calls.test(recv, &done, NULL));
        XT_CHECK_INT(done, 0);
    }
    raw_chunk(fds[1], 0, 2 * CHUNK, CHUNK, CHUNK);
    raw_chunk(fds[2], 0, 3 * CHUNK, CHUNK, CHUNK);
    XT_OK(finish(&pair, recv, NULL));
    expect(in, LARGE, 5);
    raw_close(&pair, fds);
    free(in);
}

/* ---- a stream that stalls ---- */

/* What the plugin has sent on fd, thrown away. */
static size_t drain(int fd)
{
    static char bytes[1 << 16];
    ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    return got > 0 ? (size_t)got : 0;
}

XT_TEST(a_stream_that_stalls_does_not_hold_back_the_others)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    struct pair pair;
    struct xccl_addr addr;
    xcclNetConnect_t state = NULL;
    int listener, fds[4], done = 0;
    const int room = 1 << 16;
    size_t fast = 0;
    void *send;

    /* A receiver of three streams that is not the plugin. */
    streams_set(3);
    pair_listen(&pair);
    addr = handle_addr(&pair.handle);
    xccl_addr_set_port(&addr, 0);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    XT_CHECK_INT(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)), 0);
    XT_CHECK_INT(bind(listener, &addr.sa.any, addr.bytes), 0);
    XT_CHECK_INT(listen(listener, 8), 0);
    XT_CHECK_INT(getsockname(listener, &addr.sa.any, &addr.bytes), 0);
    handle_set_addr(&pair.handle, &addr);
    while (!pair.send) {
        struct pollfd there = {.fd = listener, .events = POLLIN};

        XT_OK(pair.net->calls.connect(pair.net->ctx, 0, &pair.handle, &state, &pair.send));
        if (poll(&there, 1, 0) == 1) {
            int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            uint32_t line = raw_answer(fd, &pair.handle);

            XT_CHECK(line < 4);
            fds[line] = fd;
        }
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    for (int i = 0; i < 4; i++) {
        uint8_t seal[KIT_SEAL_BYTES];

        XT_CHECK_INT(recv(fds[i], seal, sizeof(seal), MSG_WAITALL), sizeof(seal));
    }
    send = post_send(&pair, big, BIG_BYTES);
    /* Nobody reads line 3. All others bring all but what it holds: a chunk, and the kernel's. */
    while (fast < BIG_BYTES - (4 << 20)) {
        XT_OK(pair.net->calls.test(send, &done, NULL));
        fast += drain(fds[1]) + drain(fds[2]);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    close(listener);
    pair_close(&pair);
}
