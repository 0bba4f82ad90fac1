/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines of a socket connection that are lost under traffic: every message arrives whole and once,
 * whichever line it was and at whatever moment, as long as a stream is left; then the error names
 * the peer. Lines are cut by shutting the kernel's sockets down behind the plugin's back. */
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>

#include "sock_pair.h"

#define PROOF_MS 300
#define MESSAGES 24
#define ROOM     (BIG_BYTES / MESSAGES)
#define FDS_MAX  1024

#define LAST_BYTES 300000

/* The sockets of a connection's two ends, by line. */
struct ends {
    int count;
    int send[9], recv[9];
};

static void open_streams(struct pair *pair, int streams, const char *failover)
{
    char text[8];

    snprintf(text, sizeof(text), "%d", streams);
    xt_setenv("XCCL_SOCKET_STREAMS", text);
    xt_setenv("XCCL_SOCKET_FAILOVER", failover);
    pair_open(pair);
}

static int port_of(int fd, int (*ask)(int, struct sockaddr *, socklen_t *))
{
    struct xccl_addr addr = {.bytes = sizeof(addr.sa)};

    if (ask(fd, &addr.sa.any, &addr.bytes) != 0 || addr.sa.any.sa_family != AF_INET)
        return -1;
    return xccl_addr_port(&addr);
}

/* The sender made its sockets line after line, so they are in order; the receiver's have the same
 * ports the other way round. */
static void find_ends(const struct pair *pair, struct ends *ends)
{
    struct xccl_addr addr = handle_addr(&pair->handle);
    int port = xccl_addr_port(&addr);

    ends->count = 0;
    for (int fd = 3; fd < FDS_MAX; fd++) {
        if (port_of(fd, getpeername) == port)
            ends->send[ends->count++] = fd;
    }
    for (int i = 0; i < ends->count; i++) {
        ends->recv[i] = -1;
        for (int fd = 3; fd < FDS_MAX; fd++) {
            if (port_of(fd, getsockname) == port &&
                port_of(fd, getpeername) == port_of(ends->send[i], getsockname))
                ends->recv[i] = fd;
        }
    }
}

/* how: 0 both directions, 1 the sender's bytes end, 2 the receiver ends it. */
static void cut(const struct ends *ends, int line, int how)
{
    if (how == 2)
        shutdown(ends->recv[line], SHUT_RDWR);
    else
        shutdown(ends->send[line], how ? SHUT_WR : SHUT_RDWR);
}

struct traffic {
    size_t sizes[MESSAGES], got[MESSAGES];
    void *sends[MESSAGES], *recvs[MESSAGES];
    int posted_recvs, sent, received;
    char *in;
};

static void traffic_begin(struct pair *pair, struct traffic *traffic, uint64_t *random)
{
    memset(traffic, 0, sizeof(*traffic));
    traffic->in = malloc(BIG_BYTES);
    memset(traffic->in, 0, BIG_BYTES);
    for (size_t i = 0; i < MESSAGES; i++) {
        traffic->sizes[i] = xt_random(random) % 3 ? xt_random(random) % ROOM
                                                  : xt_random(random) % 5000;
        fill(big + i * ROOM, traffic->sizes[i], i);
        traffic->sends[i] = post_send(pair, big + i * ROOM, traffic->sizes[i]);
        XT_CHECK(traffic->sends[i]);
    }
}

/* Tests all that is posted once; window: receives that are posted at a time. */
static xcclResult_t traffic_step(struct pair *pair, struct traffic *traffic, int window)
{
    for (int i = 0; i < MESSAGES; i++) {
        int done = 0;
        xcclResult_t rc;

        if (i >= traffic->posted_recvs && traffic->posted_recvs - traffic->received < window) {
            traffic->recvs[i] = post_recv(pair, traffic->in + (size_t)i * ROOM, ROOM);
            traffic->posted_recvs++;
        }
        if (traffic->sends[i]) {
            rc = pair->net->calls.test(traffic->sends[i], &done, NULL);
            if (rc != xcclSuccess)
                return rc;
            traffic->sends[i] = done ? NULL : traffic->sends[i];
            traffic->sent += done;
        }
        if (!traffic->recvs[i])
            continue;
        rc = pair->net->calls.test(traffic->recvs[i], &done, &traffic->got[i]);
        if (rc != xcclSuccess)
            return rc;
        traffic->recvs[i] = done ? NULL : traffic->recvs[i];
        traffic->received += done;
    }
    return xcclSuccess;
}

static void traffic_end(struct pair *pair, struct traffic *traffic, int window)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);

    while (traffic->sent < MESSAGES || traffic->received < MESSAGES) {
        if (traffic_step(pair, traffic, window) != xcclSuccess)
            XT_FAIL("%s", pair->net->calls.lastError(pair->net->ctx));
        if (xccl_limit_passed(&limit))
            XT_FAIL("%d of %d sent, %d received", traffic->sent, MESSAGES, traffic->received);
    }
    for (size_t i = 0; i < MESSAGES; i++) {
        XT_CHECK_INT(traffic->got[i], traffic->sizes[i]);
        expect(traffic->in + i * ROOM, traffic->sizes[i], i);
    }
    free(traffic->in);
}

/* One connection, one line after another is cut while messages are on their way, until one stream
 * is left. */
static void cut_all_but_one(int streams, int how, int window, uint64_t *random)
{
    struct pair pair;
    struct ends ends;
    int keep = 1 + (int)(xt_random(random) % (uint64_t)streams);

    open_streams(&pair, streams, "1");
    find_ends(&pair, &ends);
    XT_CHECK_INT(ends.count, streams + 1);
    for (int line = 0; line <= streams; line++) {
        struct traffic traffic;
        uint64_t steps = xt_random(random) % 30;

        if (line == keep)
            continue;
        traffic_begin(&pair, &traffic, random);
        for (uint64_t i = 0; i < steps; i++)
            XT_OK(traffic_step(&pair, &traffic, window));
        cut(&ends, line, how);
        traffic_end(&pair, &traffic, window);
    }
    pair_close(&pair);
}

XT_TEST_DEADLINE(lines_that_are_lost_one_after_another_lose_nothing, 120)
{
    static const int streams[3] = {2, 3, 8};
    uint64_t random = xt_seed();

    for (int i = 0; i < 3; i++) {
        for (int how = 0; how < 3; how++) {
            cut_all_but_one(streams[i], how, MESSAGES, &random);
            cut_all_but_one(streams[i], how, 1, &random);
        }
    }
}

static void lose_line_0_and_a_stream(void)
{
    uint64_t random = xt_seed();

    for (int round = 0; round < 10; round++) {
        struct pair pair;
        struct ends ends;
        struct traffic traffic;
        uint64_t steps = xt_random(&random) % 20;

        open_streams(&pair, 4, "1");
        find_ends(&pair, &ends);
        traffic_begin(&pair, &traffic, &random);
        for (uint64_t i = 0; i < steps; i++)
            XT_OK(traffic_step(&pair, &traffic, 4));
        cut(&ends, 0, 0);
        cut(&ends, 1 + round % 4, round % 3);
        traffic_end(&pair, &traffic, 4);
        /* And what is sent afterwards. */
        traffic_begin(&pair, &traffic, &random);
        traffic_end(&pair, &traffic, 4);
        pair_close(&pair);
    }
}

XT_TEST(line_0_and_a_stream_lost_together_lose_nothing)
{
    lose_line_0_and_a_stream();
}

/* Bytes that go again are in records of another connection, with keys of their own. */
XT_TEST(line_0_and_a_stream_lost_together_lose_nothing_that_is_encrypted)
{
    xt_setenv("XCCL_NET_ENCRYPT", "1");
    lose_line_0_and_a_stream();
}

static int is_up(const struct ends *ends, int count, int old_port)
{
    for (int i = 0; i < ends->count; i++) {
        if (ends->recv[i] < 0 || port_of(ends->send[i], getsockname) == old_port)
            return 0;
    }
    return ends->count == count;
}

/* Traffic until the connection has so many lines at both ends, and none from the old port, and for
 * as long again as they take to prove themselves. */
static void await_lines(struct pair *pair, struct ends *ends, int count, int old_port,
                        uint64_t *random)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL), proof = xccl_limit_ms(PROOF_MS, NULL);

    do {
        struct traffic traffic;

        traffic_begin(pair, &traffic, random);
        traffic_end(pair, &traffic, MESSAGES);
        find_ends(pair, ends);
        if (!is_up(ends, count, old_port))
            proof = xccl_limit_ms(PROOF_MS, NULL);
        XT_CHECK(!xccl_limit_passed(&limit));
    } while (!xccl_limit_passed(&proof));
}

XT_TEST_DEADLINE(a_stream_that_was_lost_comes_again_so_that_all_others_may_be, 120)
{
    uint64_t random = xt_seed();
    struct pair pair;
    struct ends ends;

    open_streams(&pair, 2, "1");
    find_ends(&pair, &ends);
    XT_CHECK_INT(ends.count, 3);
    cut(&ends, 0, 0);
    await_lines(&pair, &ends, 2, 0, &random);
    /* Line 0 stays away; the others take turns. */
    for (int round = 0; round < 4; round++) {
        int port = port_of(ends.send[round % 2], getsockname);
        struct traffic traffic;

        traffic_begin(&pair, &traffic, &random);
        cut(&ends, round % 2, round % 3);
        traffic_end(&pair, &traffic, 1);
        await_lines(&pair, &ends, 2, port, &random);
    }
    pair_close(&pair);
}

/* The receiver is asked only when its descriptor says so. */
static void pass_to_sleeper(struct pair *pair, char *in, int fd)
{
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);
    void *recv = post_recv(pair, in, BIG_BYTES), *send = post_send(pair, big, BIG_BYTES);
    int sent = 0, got = 0;

    XT_OK(pair->net->calls.test(recv, &got, NULL));
    while (!sent || !got) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};

        if (!sent)
            XT_OK(pair->net->calls.test(send, &sent, NULL));
        if (!got && poll(&ready, 1, sent ? 100 : 0) > 0)
            XT_OK(pair->net->calls.test(recv, &got, NULL));
        if (xccl_limit_passed(&limit))
            XT_FAIL("the receiver sleeps on");
    }
}

XT_TEST_DEADLINE(a_sleeping_receiver_is_woken_for_a_line_that_comes_again, 60)
{
    uint64_t until;
    struct pair pair;
    struct ends ends;
    char *in = malloc(BIG_BYTES);
    int fd = -1;

    open_streams(&pair, 2, "1");
    find_ends(&pair, &ends);
    XT_OK(pair.net->calls.waitFd(pair.recv, &fd));
    cut(&ends, 2, 2);
    until = xccl_clock_ns() + 2 * XCCL_NS_PER_S;
    while (xccl_clock_ns() < until)
        pass_to_sleeper(&pair, in, fd);
    pair_close(&pair);
    free(in);
}

struct closer {
    struct pair *pair;
    char *in;
};

static void *receive_and_close(void *arg)
{
    struct closer *closer = arg;

    XT_OK(finish(closer->pair, post_recv(closer->pair, closer->in, LAST_BYTES), NULL));
    XT_OK(closer->pair->net->calls.closeRecv(closer->pair->recv));
    closer->pair->recv = NULL;
    return NULL;
}

XT_TEST_DEADLINE(a_receiver_that_closes_after_the_last_message_is_no_error, 60)
{
    char *in = malloc(LAST_BYTES);

    for (int i = 0; i < 60; i++) {
        struct pair pair;
        struct closer closer = {&pair, in};
        pthread_t thread;
        int fd;

        open_streams(&pair, 4, i % 2 ? "1" : "0");
        XT_OK(pair.net->calls.waitFd(pair.send, &fd));
        XT_CHECK_INT(pthread_create(&thread, NULL, receive_and_close, &closer), 0);
        XT_OK(finish(&pair, post_send(&pair, big, LAST_BYTES), NULL));
        pthread_join(thread, NULL);
        pair_close(&pair);
    }
    free(in);
}

static xcclResult_t run_into_error(struct pair *pair, struct traffic *traffic)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclResult_t rc = xcclSuccess;

    while (rc == xcclSuccess) {
        rc = traffic_step(pair, traffic, MESSAGES);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    free(traffic->in);
    return rc;
}

XT_TEST(when_no_stream_is_left_the_error_names_the_peer)
{
    uint64_t random = xt_seed();
    struct traffic traffic;
    struct pair pair;
    struct ends ends;

    open_streams(&pair, 2, "1");
    find_ends(&pair, &ends);
    traffic_begin(&pair, &traffic, &random);
    for (int i = 0; i < 3; i++)
        cut(&ends, i, 0);
    XT_CHECK_RC(run_into_error(&pair, &traffic), xcclRemoteError);
    XT_CHECK_HAS(pair.net->calls.lastError(pair.net->ctx), "127.0.0.1:");
    pair_close(&pair);
}

XT_TEST(without_failover_the_first_line_that_is_lost_ends_the_comm)
{
    uint64_t random = xt_seed();
    struct traffic traffic;
    struct pair pair;
    struct ends ends;

    open_streams(&pair, 4, "0");
    find_ends(&pair, &ends);
    traffic_begin(&pair, &traffic, &random);
    cut(&ends, 3, 0);
    XT_CHECK_RC(run_into_error(&pair, &traffic), xcclRemoteError);
    pair_close(&pair);
}
