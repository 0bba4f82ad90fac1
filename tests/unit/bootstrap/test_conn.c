/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections over real sockets: frames of all sizes, waiting and not, limits, and every way a
 * stream may end. A thread plays the accepting end. */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "bootstrap/conn_int.h"
#include "conn_recv.h"
#include "xt.h"

__attribute__((constructor)) static void sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

static const uint8_t key[32] = {1};
static const struct xccl_hello hello = {
    .comm_id = {2}, .rank = 1, .nranks = 4, .purpose = XCCL_PURPOSE_SEGMENT, .target = 3};
static const struct xccl_hello self = {.comm_id = {2}, .rank = 3, .nranks = 4};

struct ends {
    struct xccl_conn *near, *far;
};

static struct xccl_limit limit_s(uint64_t seconds)
{
    return xccl_limit_ms(seconds * 1000, NULL);
}

/* Both handshakes side by side in one thread. */
static void ends_open(struct ends *ends)
{
    struct xccl_limit limit = limit_s(10);
    struct xccl_addr addr, bound;
    int listen_fd, fd = -1, near_done = 0, far_done = 0;

    XT_OK(xccl_addr_parse("127.0.0.1:1", 0, &addr));
    xccl_addr_set_port(&addr, 0);
    XT_OK(xccl_tcp_listen(&addr, &listen_fd, &bound));
    XT_OK(xccl_conn_start(&bound, key, &hello, &ends->near));
    while (fd < 0) {
        XT_OK(xccl_conn_shake(ends->near, &near_done));
        XT_OK(xccl_tcp_accept(listen_fd, &fd, NULL));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_OK(xccl_conn_adopt(fd, key, &self, NULL, &ends->far));
    while (!near_done || !far_done) {
        if (!near_done)
            XT_OK(xccl_conn_shake(ends->near, &near_done));
        if (!far_done)
            XT_OK(xccl_conn_shake(ends->far, &far_done));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    xccl_tcp_close(&listen_fd);
}

XT_TEST(both_ends_know_each_other)
{
    struct ends ends;

    ends_open(&ends);
    XT_CHECK_INT(xccl_conn_hello(ends.far)->rank, 1);
    XT_CHECK_INT(xccl_conn_hello(ends.far)->purpose, XCCL_PURPOSE_SEGMENT);
    XT_CHECK_INT(xccl_conn_hello(ends.near)->rank, 3);
    xccl_conn_close(ends.near);
    xccl_conn_close(ends.far);
}

XT_TEST(frames_of_all_sizes_arrive_whole_and_in_order)
{
    struct xccl_limit limit = limit_s(10);
    uint8_t *out = malloc(XCCL_FRAME_MAX_BYTES), *in = malloc(XCCL_FRAME_MAX_BYTES);
    struct ends ends;

    XT_CHECK(out && in);
    for (size_t i = 0; i < XCCL_FRAME_MAX_BYTES; i++)
        out[i] = (uint8_t)(i * 13 + i / 256);
    ends_open(&ends);
    for (size_t bytes = 0; bytes <= XCCL_FRAME_MAX_BYTES; bytes = bytes * 3 + 1) {
        uint16_t type = 0;
        size_t got = 0;

        XT_OK(xccl_conn_send(ends.near, (uint16_t)(32 + bytes % 100), out, bytes, &limit));
        XT_OK(conn_recv(ends.far, &type, in, XCCL_FRAME_MAX_BYTES, &got, &limit));
        XT_CHECK_INT(type, 32 + bytes % 100);
        XT_CHECK_INT(got, bytes);
        XT_CHECK(!bytes || memcmp(in, out, bytes) == 0);
    }
    XT_CHECK_RC(xccl_conn_queue(ends.near, 32, out, XCCL_FRAME_MAX_BYTES + 1), xcclInvalidArgument);
    free(out);
    free(in);
    xccl_conn_close(ends.near);
    xccl_conn_close(ends.far);
}

/* Two blind writers would deadlock; queue, flush and take do not. */
XT_TEST(large_traffic_both_ways_does_not_deadlock)
{
    struct xccl_limit limit = limit_s(20);
    uint8_t *body = calloc(1, XCCL_FRAME_MAX_BYTES), *in = malloc(XCCL_FRAME_MAX_BYTES);
    struct ends ends;
    int sent[2] = {0, 0}, got[2] = {0, 0};

    XT_CHECK(body && in);
    ends_open(&ends);
    while (got[0] < 200 || got[1] < 200) {
        for (int i = 0; i < 2; i++) {
            struct xccl_conn *conn = i ? ends.far : ends.near;
            int pending = 0, have = 0, final = 0;
            uint16_t type;
            size_t bytes;

            XT_OK(xccl_conn_flush(conn, &pending));
            if (!pending && sent[i] < 200) {
                XT_OK(xccl_conn_queue(conn, 32, body, XCCL_FRAME_MAX_BYTES));
                sent[i]++;
            }
            XT_OK(xccl_conn_take(conn, &type, in, XCCL_FRAME_MAX_BYTES, &bytes, &have, &final));
            got[i] += have;
        }
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    free(body);
    free(in);
    xccl_conn_close(ends.near);
    xccl_conn_close(ends.far);
}

XT_TEST(a_peer_that_does_not_read_costs_256_kib_at_most)
{
    uint8_t *body = calloc(1, XCCL_FRAME_MAX_BYTES);
    xcclResult_t rc = xcclSuccess;
    struct ends ends;

    XT_CHECK(body != NULL);
    ends_open(&ends);
    for (int i = 0; i < 10000 && !rc; i++)
        rc = xccl_conn_queue(ends.near, 32, body, XCCL_FRAME_MAX_BYTES);
    XT_CHECK_RC(rc, xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "does not read");
    free(body);
    xccl_conn_close(ends.near);
    xccl_conn_close(ends.far);
}

/* What the other end sent meanwhile is not lost with the end of the own side, nor does it reset it.
 */
XT_TEST(frames_are_taken_after_the_own_side_was_finished)
{
    struct xccl_limit limit = limit_s(10);
    int pending = 1, got = 0, final = 0;
    struct ends ends;
    uint16_t type = 0;
    size_t bytes = 0;
    uint8_t body[8];

    ends_open(&ends);
    XT_OK(xccl_conn_send(ends.near, 32, "last", 4, &limit));
    while (pending)
        XT_OK(xccl_conn_finish(ends.near, &pending));
    XT_CHECK(xccl_conn_queue(ends.near, 32, "more", 4) != xcclSuccess);
    XT_OK(xccl_conn_send(ends.far, 33, "late", 4, &limit));
    XT_OK(conn_recv(ends.near, &type, body, sizeof(body), &bytes, &limit));
    XT_CHECK_INT(type, 33);
    XT_OK(conn_recv(ends.far, &type, body, sizeof(body), &bytes, &limit));
    XT_CHECK_INT(type, 32);
    while (!final) {
        XT_OK(xccl_conn_take(ends.far, &type, body, sizeof(body), &bytes, &got, &final));
        XT_CHECK(!got && !xccl_limit_passed(&limit));
    }
    xccl_conn_close(ends.far);
    final = 0;
    while (!final) {
        XT_OK(xccl_conn_take(ends.near, &type, body, sizeof(body), &bytes, &got, &final));
        XT_CHECK(!got && !xccl_limit_passed(&limit));
    }
    xccl_conn_close(ends.near);
}

XT_TEST(an_ordered_end_is_told_apart_from_a_cut)
{
    uint8_t in[8];
    uint16_t type;
    size_t bytes;
    int got, final;
    struct ends ends;
    struct xccl_limit limit = limit_s(10);

    ends_open(&ends);
    XT_OK(xccl_conn_queue(ends.near, 32, "last", 4));
    xccl_conn_close(ends.near);
    XT_OK(conn_recv(ends.far, &type, in, sizeof(in), &bytes, &limit));
    XT_OK(xccl_tcp_wait(xccl_conn_fd(ends.far), POLLIN, &limit));
    XT_OK(xccl_conn_take(ends.far, &type, in, sizeof(in), &bytes, &got, &final));
    XT_CHECK_INT(got, 0);
    XT_CHECK_INT(final, 1);
    XT_CHECK_RC(conn_recv(ends.far, &type, in, sizeof(in), &bytes, &limit), xcclRemoteError);
    xccl_conn_close(ends.far);

    ends_open(&ends);
    XT_CHECK_INT(shutdown(xccl_conn_fd(ends.near), SHUT_WR), 0);
    XT_OK(xccl_tcp_wait(xccl_conn_fd(ends.far), POLLIN, &limit));
    XT_CHECK_RC(xccl_conn_take(ends.far, &type, in, sizeof(in), &bytes, &got, &final),
                xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "without announcing it");
    xccl_conn_close(ends.near);
    xccl_conn_close(ends.far);
}

XT_TEST(bytes_from_the_side_break_the_stream)
{
    struct xccl_limit limit = limit_s(10);
    static const uint8_t bad_length[4] = {0xff, 0xff, 0xff, 0xff};
    static const uint8_t bad_frame[25] = {21};
    struct xccl_span forged[] = {{bad_length, sizeof(bad_length)}, {bad_frame, sizeof(bad_frame)}};

    for (int i = 0; i < 2; i++) {
        uint8_t in[8];
        uint16_t type;
        size_t bytes;
        struct ends ends;

        ends_open(&ends);
        XT_OK(xccl_tcp_send_all(xccl_conn_fd(ends.near), forged[i].data, forged[i].bytes, &limit));
        XT_CHECK_RC(conn_recv(ends.far, &type, in, sizeof(in), &bytes, &limit), xcclRemoteError);
        XT_CHECK_HAS(xccl_error_text(), i ? "altered" : "impossible length");
        XT_CHECK_RC(xccl_conn_queue(ends.far, 32, "x", 1), xcclRemoteError);
        xccl_conn_close(ends.near);
        xccl_conn_close(ends.far);
    }
}

XT_TEST(a_frame_larger_than_the_readers_room_is_an_error)
{
    struct xccl_limit limit = limit_s(10);
    uint8_t in[8];
    uint16_t type;
    size_t bytes;
    struct ends ends;

    ends_open(&ends);
    XT_OK(xccl_conn_send(ends.near, 32, "123456789", 9, &limit));
    XT_CHECK_RC(conn_recv(ends.far, &type, in, sizeof(in), &bytes, &limit), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "sent 9 bytes; at most 8");
    xccl_conn_close(ends.near);
    xccl_conn_close(ends.far);
}

XT_TEST(waiting_ends_with_the_limit)
{
    struct xccl_limit limit = xccl_limit_ms(50, NULL);
    uint8_t in[8];
    uint16_t type;
    size_t bytes;
    struct ends ends;

    ends_open(&ends);
    XT_CHECK_RC(conn_recv(ends.far, &type, in, sizeof(in), &bytes, &limit), xcclTimeout);
    xccl_conn_close(ends.near);
    xccl_conn_close(ends.far);
}

/* Someone else's server: takes the connection, reads the hello and hangs up, or answers in another
 * language. */
struct server {
    int listen_fd, rounds;
    const char *answer;
};

static void *server_run(void *arg)
{
    struct server *server = arg;
    struct xccl_limit limit = limit_s(10);

    for (int i = 0; i < server->rounds; i++) {
        uint8_t in[XCCL_HELLO_BYTES];
        int fd = -1;

        XT_OK(xccl_tcp_wait(server->listen_fd, POLLIN, &limit));
        XT_OK(xccl_tcp_accept(server->listen_fd, &fd, NULL));
        XT_CHECK(fd >= 0);
        XT_OK(xccl_tcp_recv_all(fd, in, sizeof(in), &limit));
        if (server->answer) {
            uint8_t out[XCCL_SHAKE_MAX_BYTES] = {0};

            memcpy(out, server->answer, strlen(server->answer));
            XT_OK(xccl_tcp_send_all(fd, out, sizeof(out), &limit));
        }
        xccl_tcp_close(&fd);
    }
    return NULL;
}

static void meet_server(const char *answer, int rounds, const char *says)
{
    struct server server = {.rounds = rounds, .answer = answer};
    struct xccl_limit limit = limit_s(10);
    struct xccl_addr addr, bound;
    struct xccl_conn *conn = NULL;
    pthread_t thread;

    XT_OK(xccl_addr_parse("127.0.0.1:1", 0, &addr));
    xccl_addr_set_port(&addr, 0);
    XT_OK(xccl_tcp_listen(&addr, &server.listen_fd, &bound));
    XT_CHECK_INT(pthread_create(&thread, NULL, server_run, &server), 0);
    XT_CHECK_RC(xccl_conn_open(&bound, key, &hello, &limit, &conn), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), says);
    XT_CHECK(conn == NULL);
    XT_CHECK_INT(pthread_join(thread, NULL), 0);
    xccl_tcp_close(&server.listen_fd);
}

XT_TEST(a_server_that_hangs_up_is_believed_the_third_time)
{
    meet_server(NULL, 3, "key or communicator differs");
}

/* A proof that nobody waits for any more must not look like one that was heard: what would be sent
 * behind it were lost. */
XT_TEST(a_reply_from_one_that_has_gone_is_no_connection)
{
    struct xccl_limit limit = limit_s(10);
    uint8_t in[XCCL_HELLO_BYTES], out[XCCL_SHAKE_MAX_BYTES];
    struct xccl_addr addr, bound;
    struct xccl_channel channel;
    struct xccl_conn *conn;
    int listen_fd, fd = -1, done = 0;
    size_t bytes = 0;

    XT_OK(xccl_addr_parse("127.0.0.1:1", 0, &addr));
    xccl_addr_set_port(&addr, 0);
    XT_OK(xccl_tcp_listen(&addr, &listen_fd, &bound));
    XT_OK(xccl_conn_start(&bound, key, &hello, &conn));
    while (fd < 0) {
        XT_OK(xccl_conn_shake(conn, &done));
        XT_OK(xccl_tcp_accept(listen_fd, &fd, NULL));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_OK(xccl_tcp_recv_all(fd, in, sizeof(in), &limit));
    xccl_channel_accept(&channel, key, &self, NULL);
    XT_OK(xccl_channel_shake(&channel, in, out, &bytes));
    XT_OK(xccl_tcp_send_all(fd, out, bytes, &limit));
    xccl_tcp_close(&fd);
    XT_OK(xccl_tcp_wait(xccl_conn_fd(conn), POLLRDHUP, &limit));
    XT_CHECK_RC(xccl_conn_shake(conn, &done), xcclRemoteError);
    XT_CHECK(!done && xccl_conn_turned_away(conn));
    XT_CHECK_HAS(xccl_error_text(), "it has ended");
    xccl_conn_close(conn);
    xccl_channel_wipe(&channel);
    xccl_tcp_close(&listen_fd);
}

XT_TEST(a_server_of_another_kind_is_named)
{
    meet_server("HTTP/1.1 400 Bad Request", 1, "does not speak xccl's protocol");
}
