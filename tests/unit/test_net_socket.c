/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket plugin through the loader, on the loopback interface: messages of all sizes, what
 * strangers can do (nothing), what a hostile or dead peer can do (end its own comm with a text). */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/netaddr.h"
#include "plugin/net_plugin.h"
#include "xt.h"

#define STRANGERS    80 /* more than a listener keeps */
#define BIG_BYTES    ((size_t)24 << 20)
#define HELLO_BYTES  64
#define TOKEN_OFFSET 32 /* in the handle: magic, version, 24 bytes of address */

struct pair {
    struct xccl_net *net;
    xcclNetListenComm_t listener;
    xcclNetHandle_t handle;
    void *send, *recv;
    xcclNetMem_t send_mem, recv_mem;
};

static char big[BIG_BYTES];

static struct xccl_net *net_open(void)
{
    static const struct xccl_net_open_args args = {.nranks = 2, .comm_name = "test"};
    struct xccl_net *net = NULL;

    xt_setenv("XCCL_NET_PLUGIN", "socket");
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    XT_OK(xccl_net_open(&args, &net));
    return net;
}

static void pair_listen(struct pair *pair)
{
    memset(pair, 0, sizeof(*pair));
    pair->net = net_open();
    XT_OK(pair->net->calls.listen(pair->net->ctx, 0, &pair->handle, &pair->listener));
}

/* Asks both sides until both have a comm. */
static void pair_connect(struct pair *pair)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclNetConnect_t state = NULL;

    while (!pair->send || !pair->recv) {
        if (!pair->send)
            XT_OK(pair->net->calls.connect(pair->net->ctx, 0, &pair->handle, &state, &pair->send));
        if (!pair->recv)
            XT_OK(pair->net->calls.accept(pair->listener, &pair->recv));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_CHECK(state == NULL);
    XT_OK(pair->net->calls.regMr(pair->send, big, sizeof(big), XCCL_NET_PTR_HOST, &pair->send_mem));
    XT_OK(pair->net->calls.regMr(pair->recv, big, sizeof(big), XCCL_NET_PTR_HOST, &pair->recv_mem));
}

static void pair_open(struct pair *pair)
{
    pair_listen(pair);
    pair_connect(pair);
}

static void pair_close(struct pair *pair)
{
    if (pair->send)
        XT_OK(pair->net->calls.closeSend(pair->send));
    if (pair->recv)
        XT_OK(pair->net->calls.closeRecv(pair->recv));
    if (pair->listener)
        XT_OK(pair->net->calls.closeListen(pair->listener));
    xccl_net_close(pair->net);
}

static void *post_send(struct pair *pair, const void *data, size_t bytes)
{
    xcclNetRequest_t request = NULL;

    XT_OK(pair->net->calls.isend(pair->send, data, bytes, 7, pair->send_mem, &request));
    return request;
}

static void *post_recv(struct pair *pair, void *data, size_t bytes)
{
    xcclNetRequest_t request = NULL;
    uint32_t tag = 7;

    XT_OK(pair->net->calls.irecv(pair->recv, 1, &data, &bytes, &tag, &pair->recv_mem, &request));
    return request;
}

/* Tests until done or error. */
static xcclResult_t finish(struct pair *pair, void *request, size_t *bytes_out)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclResult_t rc = xcclSuccess;
    int done = 0;

    while (rc == xcclSuccess && !done) {
        rc = pair->net->calls.test(request, &done, bytes_out);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    if (rc != xcclSuccess)
        xccl_error_set_text(pair->net->calls.lastError(pair->net->ctx));
    return rc;
}

/* Both ends of one message: a large one needs the tests of both. */
static void finish_both(struct pair *pair, void *send, void *recv, size_t *bytes_out)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    int done = 0;

    while (!done) {
        int sent = 0;

        if (send)
            XT_OK(pair->net->calls.test(send, &sent, NULL));
        if (sent)
            send = NULL;
        XT_OK(pair->net->calls.test(recv, &done, bytes_out));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    if (send)
        XT_OK(finish(pair, send, NULL));
}

static void fill(char *bytes, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (char)(seed + i * 7 + (i >> 8));
}

static void expect(const char *bytes, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != (char)(seed + i * 7 + (i >> 8)))
            XT_FAIL("byte %zu of %zu is wrong (seed %llu)", i, count, (unsigned long long)seed);
    }
}

XT_TEST(a_device_is_described)
{
    struct xccl_net *net = net_open();
    xcclNetProperties_v1 props = {.size = sizeof(props)};
    char canary[offsetof(xcclNetProperties_v1, guid)];
    xcclNetProperties_v1 old = {.size = sizeof(canary), .port = 77};

    XT_OK(net->calls.properties(net->ctx, 0, &props));
    XT_CHECK_TEXT(props.name, "lo");
    XT_CHECK(props.pciPath == NULL);
    XT_CHECK_INT(props.maxRecvs, 1);
    XT_CHECK_INT(props.ptrSupport, XCCL_NET_PTR_HOST);
    /* A caller of an older build: nothing beyond its size is written. */
    XT_OK(net->calls.properties(net->ctx, 0, &old));
    XT_CHECK_TEXT(old.name, "lo");
    XT_CHECK_INT(old.port, 77);
    XT_CHECK_RC(net->calls.properties(net->ctx, 9, &props), xcclInvalidArgument);
    xccl_net_close(net);
}

XT_TEST(messages_of_random_sizes_arrive_whole_and_in_order)
{
    uint64_t random = xt_seed();
    struct pair pair;
    char *in = malloc(1 << 20), *out = malloc(1 << 20);
    xcclNetStats_v1 stats = {.size = sizeof(stats)};
    uint64_t sum = 0;

    pair_open(&pair);
    for (int i = 0; i < 2000; i++) {
        size_t most = (size_t)1 << (xt_random(&random) % 21);
        size_t bytes = xt_random(&random) % (most + 1), got = 99;
        size_t room = bytes + xt_random(&random) % 3 * 1000;
        void *send, *recv;

        if (room > 1 << 20)
            room = bytes;
        fill(out, bytes, (uint64_t)i);
        send = post_send(&pair, out, bytes);
        recv = post_recv(&pair, in, room);
        XT_CHECK(send && recv);
        finish_both(&pair, send, recv, &got);
        XT_CHECK_INT(got, bytes);
        expect(in, bytes, (uint64_t)i);
        sum += bytes;
    }
    XT_OK(pair.net->calls.stats(pair.net->ctx, 0, &stats));
    XT_CHECK_INT(stats.sendCount, 2000);
    XT_CHECK_INT(stats.recvCount, 2000);
    XT_CHECK_INT(stats.sendBytes, sum);
    XT_CHECK_INT(stats.recvBytes, sum);
    pair_close(&pair);
    free(in);
    free(out);
}

XT_TEST(requests_are_tested_in_any_order_and_the_33rd_is_busy)
{
    struct pair pair;
    static char out[32][3000], in[32][3000];
    void *send[32], *recv[32];
    xcclNetStats_v1 stats = {.size = sizeof(stats)};

    pair_open(&pair);
    for (int i = 0; i < 32; i++) {
        fill(out[i], (size_t)i * 90, (uint64_t)i);
        recv[i] = post_recv(&pair, in[i], sizeof(in[i]));
        send[i] = post_send(&pair, out[i], (size_t)i * 90);
        XT_CHECK(send[i] && recv[i]);
    }
    XT_CHECK(post_recv(&pair, in[0], 1) == NULL);
    XT_CHECK(post_send(&pair, out[0], 1) == NULL);
    for (int i = 31; i >= 0; i--)
        XT_OK(finish(&pair, send[i], NULL));
    for (int i = 31; i >= 0; i--) {
        size_t got = 0;

        XT_OK(finish(&pair, recv[i], &got));
        XT_CHECK_INT(got, i * 90);
        expect(in[i], got, (uint64_t)i);
    }
    XT_OK(pair.net->calls.stats(pair.net->ctx, 0, &stats));
    XT_CHECK_INT(stats.busyCount, 2);
    pair_close(&pair);
}

XT_TEST(a_receive_smaller_than_its_send_names_both_sizes)
{
    struct pair pair;
    static char out[1000], in[2000];
    void *good, *small;

    pair_open(&pair);
    post_send(&pair, out, 10);
    post_send(&pair, out, 1000);
    good = post_recv(&pair, in, 10);
    small = post_recv(&pair, in, 999);
    XT_CHECK_RC(finish(&pair, small, NULL), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "1000 bytes");
    XT_CHECK_HAS(xccl_error_text(), "999");
    /* What was complete before stays complete; afterwards the comm says the same again. */
    XT_OK(finish(&pair, good, NULL));
    XT_CHECK_RC(pair.net->calls.irecv(pair.recv, 1, &(void *){in}, &(size_t){1}, &(uint32_t){7},
                                      &pair.recv_mem, &good),
                xcclInvalidUsage);
    XT_CHECK_HAS(pair.net->calls.lastError(pair.net->ctx), "1000 bytes");
    pair_close(&pair);
}

XT_TEST(what_the_plugin_does_not_take_is_refused_with_a_text)
{
    struct pair pair;
    char bytes[8];
    void *data[2] = {bytes, bytes};
    size_t sizes[2] = {1, 1};
    uint32_t tags[2] = {0, 1};
    xcclNetMem_t mems[2] = {NULL, NULL}, mem = NULL;
    xcclNetRequest_t request = NULL;

    pair_open(&pair);
    XT_CHECK_RC(pair.net->calls.irecv(pair.recv, 2, data, sizes, tags, mems, &request),
                xcclInvalidArgument);
    XT_CHECK_HAS(pair.net->calls.lastError(pair.net->ctx), "takes 1");
    XT_CHECK_RC(pair.net->calls.regMr(pair.recv, bytes, 8, XCCL_NET_PTR_CUDA, &mem),
                xcclInvalidArgument);
    XT_CHECK_HAS(pair.net->calls.lastError(pair.net->ctx), "host memory");
    pair_close(&pair);
}

XT_TEST(unequal_tags_are_an_error)
{
    struct pair pair;
    char bytes[8] = {0};
    void *data = bytes;
    xcclNetRequest_t request = NULL;

    pair_open(&pair);
    post_send(&pair, bytes, 8);
    XT_OK(pair.net->calls.irecv(pair.recv, 1, &data, &(size_t){8}, &(uint32_t){8}, &pair.recv_mem,
                                &request));
    XT_CHECK_RC(finish(&pair, request, NULL), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "tag 7");
    pair_close(&pair);
}

/* ---- strangers and hostile peers ---- */

static struct xccl_addr handle_addr(const xcclNetHandle_t *handle)
{
    struct xccl_addr addr;

    XT_OK(xccl_addr_decode(handle->bytes + 8, &addr));
    return addr;
}

static int raw_connect(const xcclNetHandle_t *handle)
{
    struct xccl_addr addr = handle_addr(handle);
    int fd = socket(addr.sa.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    XT_CHECK(fd >= 0);
    XT_CHECK_INT(connect(fd, &addr.sa.any, addr.bytes), 0);
    return fd;
}

static void raw_send(int fd, const void *bytes, size_t count)
{
    XT_CHECK_INT(send(fd, bytes, count, MSG_NOSIGNAL), count);
}

XT_TEST(strangers_with_garbage_or_silence_do_not_disturb)
{
    struct pair pair;
    int fds[STRANGERS];
    char garbage[200], byte = 1;
    uint64_t random = xt_seed();

    pair_listen(&pair);
    for (int i = 0; i < STRANGERS; i++) {
        for (size_t k = 0; k < sizeof(garbage); k++)
            garbage[k] = (char)xt_random(&random);
        fds[i] = raw_connect(&pair.handle);
        /* A third say too little, a third garbage, a third nothing. */
        if (i % 3 == 0)
            raw_send(fds[i], garbage, 1 + (size_t)i % 63);
        if (i % 3 == 1)
            raw_send(fds[i], garbage, sizeof(garbage));
    }
    for (int i = 0; i < 50; i++) {
        XT_OK(pair.net->calls.accept(pair.listener, &pair.recv));
        XT_CHECK(pair.recv == NULL);
    }
    /* Garbage is closed at once: the end of the stream, or a reset for what was not read. */
    XT_CHECK(recv(fds[1], &byte, 1, 0) <= 0);
    pair_connect(&pair);
    post_send(&pair, "hello", 5);
    XT_OK(finish(&pair, post_recv(&pair, garbage, 5), NULL));
    for (int i = 0; i < STRANGERS; i++)
        close(fds[i]);
    pair_close(&pair);
}

XT_TEST(a_hello_with_a_wrong_token_or_version_is_dropped)
{
    struct pair pair;
    uint8_t hello[HELLO_BYTES] = {'X', 'C', 'S', 'L', 1};
    char byte;

    pair_listen(&pair);
    for (int wrong = 0; wrong < HELLO_BYTES; wrong += 7) {
        int fd = raw_connect(&pair.handle);

        memcpy(hello + 8, pair.handle.bytes + TOKEN_OFFSET, 32);
        hello[wrong] ^= 1;
        raw_send(fd, hello, sizeof(hello));
        hello[wrong] ^= 1;
        for (struct pollfd gone = {.fd = fd, .events = POLLIN}; poll(&gone, 1, 0) == 0;) {
            XT_OK(pair.net->calls.accept(pair.listener, &pair.recv));
            XT_CHECK(pair.recv == NULL);
        }
        XT_CHECK_INT(recv(fd, &byte, 1, 0), 0);
        close(fd);
    }
    pair_close(&pair);
}

/* Comes up as a sender that then says what it likes. */
static int raw_sender(struct pair *pair)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    uint8_t hello[HELLO_BYTES] = {'X', 'C', 'S', 'L', 1};
    int fd;

    pair_listen(pair);
    memcpy(hello + 8, pair->handle.bytes + TOKEN_OFFSET, 32);
    fd = raw_connect(&pair->handle);
    /* In two parts: a hello is put together from what comes. */
    raw_send(fd, hello, 10);
    XT_OK(pair->net->calls.accept(pair->listener, &pair->recv));
    XT_CHECK(pair->recv == NULL);
    raw_send(fd, hello + 10, sizeof(hello) - 10);
    while (!pair->recv) {
        XT_OK(pair->net->calls.accept(pair->listener, &pair->recv));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    return fd;
}

XT_TEST(a_header_from_the_wire_is_checked_before_a_byte_is_placed)
{
    static const uint8_t huge[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                     7,    0,    0,    0,    'X',  'C',  'S',  'M'};
    static const uint8_t damaged[16] = {1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 2, 3, 4};
    char in[64];
    struct pair pair;
    int fd = raw_sender(&pair);

    raw_send(fd, huge, sizeof(huge));
    XT_CHECK_RC(finish(&pair, post_recv(&pair, in, sizeof(in)), NULL), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "18446744073709551615 bytes");
    close(fd);
    pair_close(&pair);

    fd = raw_sender(&pair);
    raw_send(fd, damaged, sizeof(damaged));
    XT_CHECK_RC(finish(&pair, post_recv(&pair, in, sizeof(in)), NULL), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "damaged");
    close(fd);
    pair_close(&pair);
}

XT_TEST(damaged_streams_never_write_outside_a_receive)
{
    uint64_t random = xt_seed();

    for (int round = 0; round < 60; round++) {
        uint8_t stream[400], in[3][100];
        struct pair pair;
        int fd = raw_sender(&pair);
        xcclResult_t rc = xcclSuccess;

        /* Three good messages of up to 80 bytes, with up to three bytes changed. */
        memset(stream, 0, sizeof(stream));
        for (size_t i = 0, at = 0; i < 3; i++) {
            stream[at] = (uint8_t)(xt_random(&random) % 81);
            stream[at + 8] = 7;
            memcpy(stream + at + 12, "XCSM", 4);
            stream[at + 12] ^= (uint8_t)i;
            at += 16u + stream[at];
        }
        for (uint64_t i = xt_random(&random) % 4; i > 0; i--)
            stream[xt_random(&random) % 100] ^= (uint8_t)xt_random(&random);
        raw_send(fd, stream, xt_random(&random) % sizeof(stream));
        close(fd);
        memset(in, 0xee, sizeof(in));
        for (int i = 0; i < 3 && rc == xcclSuccess; i++) {
            size_t got = 0;

            rc = finish(&pair, post_recv(&pair, in[i], 80), &got);
            XT_CHECK(rc == xcclSuccess || rc == xcclRemoteError || rc == xcclInvalidUsage);
            XT_CHECK(got <= 80);
        }
        for (int i = 0; i < 3; i++)
            for (int k = 80; k < 100; k++)
                XT_CHECK_INT(in[i][k], 0xee);
        pair_close(&pair);
    }
}

XT_TEST(a_stream_in_single_bytes_is_put_together)
{
    static const uint8_t header[16] = {3, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 'X', 'C', 'S', 'M'};
    char in[8] = {0};
    struct pair pair;
    int fd = raw_sender(&pair), done = 0;
    size_t got = 0;
    void *request = post_recv(&pair, in, sizeof(in));

    for (size_t i = 0; i < 19; i++) {
        XT_OK(pair.net->calls.test(request, &done, &got));
        XT_CHECK_INT(done, 0);
        raw_send(fd, i < 16 ? (const char *)header + i : &"abc"[i - 16], 1);
    }
    XT_OK(finish(&pair, request, &got));
    XT_CHECK_INT(got, 3);
    XT_CHECK(memcmp(in, "abc", 3) == 0);
    close(fd);
    pair_close(&pair);
}

XT_TEST(a_handle_of_another_kind_is_refused)
{
    struct xccl_net *net = net_open();
    xcclNetHandle_t handle;
    xcclNetConnect_t state = NULL;
    xcclNetSendComm_t comm = NULL;

    memset(&handle, 0x5a, sizeof(handle));
    XT_CHECK_RC(net->calls.connect(net->ctx, 0, &handle, &state, &comm), xcclInvalidArgument);
    XT_CHECK(state == NULL && comm == NULL);
    XT_CHECK_HAS(net->calls.lastError(net->ctx), "handle");
    xccl_net_close(net);
}

XT_TEST(the_handle_keeps_to_its_96_bytes)
{
    struct pair pair;

    pair_listen(&pair);
    for (int i = 96; i < XCCL_NET_HANDLE_BYTES; i++)
        XT_CHECK_INT(pair.handle.bytes[i], 0);
    pair_close(&pair);
}

/* ---- going away ---- */

XT_TEST(a_connect_under_way_can_be_given_up)
{
    struct xccl_addr addr = {.bytes = sizeof(struct sockaddr_in)};
    struct pair pair;
    xcclNetConnect_t state = NULL;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fds[8];

    /* A listener whose queue is full leaves further connects undecided. */
    addr.sa.in4.sin_family = AF_INET;
    addr.sa.in4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    XT_CHECK_INT(bind(listener, &addr.sa.any, addr.bytes), 0);
    XT_CHECK_INT(listen(listener, 0), 0);
    XT_CHECK_INT(getsockname(listener, &addr.sa.any, &addr.bytes), 0);
    for (int i = 0; i < 8; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(fds[i], &addr.sa.any, addr.bytes);
    }
    pair_listen(&pair);
    xccl_addr_encode(&addr, pair.handle.bytes + 8);
    for (int i = 0; i < 5; i++) {
        XT_OK(pair.net->calls.connect(pair.net->ctx, 0, &pair.handle, &state, &pair.send));
        XT_CHECK(pair.send == NULL && state != NULL);
    }
    XT_OK(pair.net->calls.closeConnect(pair.net->ctx, state));
    for (int i = 0; i < 8; i++)
        close(fds[i]);
    close(listener);
    pair_close(&pair);
}

XT_TEST(a_refused_connect_names_the_address)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    struct pair pair;
    xcclNetConnect_t state = NULL;
    xcclResult_t rc = xcclSuccess;
    char text[XCCL_ADDR_TEXT_BYTES];
    struct xccl_addr addr;

    pair_listen(&pair);
    addr = handle_addr(&pair.handle);
    xccl_addr_format(&addr, text);
    XT_OK(pair.net->calls.closeListen(pair.listener));
    pair.listener = NULL;
    while (rc == xcclSuccess) {
        rc = pair.net->calls.connect(pair.net->ctx, 0, &pair.handle, &state, &pair.send);
        XT_CHECK(pair.send == NULL && !xccl_limit_passed(&limit));
    }
    XT_CHECK_INT(rc, xcclRemoteError);
    XT_CHECK(state == NULL);
    XT_CHECK_HAS(pair.net->calls.lastError(pair.net->ctx), text);
    pair_close(&pair);
}

XT_TEST(close_with_requests_in_flight_ends_them)
{
    struct pair pair;
    void *recv;

    pair_open(&pair);
    for (int i = 0; i < 4; i++)
        XT_CHECK(post_send(&pair, big, sizeof(big)) != NULL);
    recv = post_recv(&pair, big, sizeof(big));
    XT_OK(pair.net->calls.closeSend(pair.send));
    pair.send = NULL;
    /* The receiver sees the end of the stream in the middle of the message. */
    XT_CHECK_RC(finish(&pair, recv, NULL), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "127.0.0.1:");
    pair_close(&pair);
}

XT_TEST(a_receiver_may_close_with_requests_in_flight)
{
    struct pair pair;
    void *send = NULL;
    xcclResult_t rc = xcclSuccess;
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);

    pair_open(&pair);
    for (int i = 0; i < 4; i++)
        XT_CHECK(post_recv(&pair, big, sizeof(big)) != NULL);
    XT_OK(pair.net->calls.closeRecv(pair.recv));
    pair.recv = NULL;
    while (rc == xcclSuccess && !xccl_limit_passed(&limit)) {
        rc = pair.net->calls.isend(pair.send, big, 4096, 7, pair.send_mem, &send);
        if (rc == xcclSuccess)
            rc = finish(&pair, send, NULL);
    }
    XT_CHECK_INT(rc, xcclRemoteError);
    XT_CHECK_HAS(pair.net->calls.lastError(pair.net->ctx), "127.0.0.1:");
    pair_close(&pair);
}

XT_TEST(closing_right_after_done_loses_nothing)
{
    struct pair pair;
    static char in[200000];
    void *send;
    size_t got = 0;

    pair_open(&pair);
    fill(big, sizeof(in), 3);
    send = post_send(&pair, big, sizeof(in));
    finish_both(&pair, send, post_recv(&pair, in, sizeof(in)), &got);
    XT_CHECK_INT(got, sizeof(in));
    expect(in, got, 3);
    send = post_send(&pair, big, 5000);
    XT_OK(finish(&pair, send, NULL));
    XT_OK(pair.net->calls.closeSend(pair.send));
    pair.send = NULL;
    XT_OK(finish(&pair, post_recv(&pair, in, sizeof(in)), &got));
    XT_CHECK_INT(got, 5000);
    expect(in, got, 3);
    pair_close(&pair);
}

XT_TEST(wait_descriptors_tell_when_to_ask_again)
{
    struct pair pair;
    struct pollfd wait = {.events = POLLIN};
    struct pollfd room = {.events = POLLIN};
    void *send, *recv;
    int done = 0;

    pair_open(&pair);
    XT_OK(pair.net->calls.waitFd(pair.recv, &wait.fd));
    XT_OK(pair.net->calls.waitFd(pair.send, &room.fd));
    XT_CHECK_INT(poll(&wait, 1, 0), 0);
    XT_CHECK_INT(poll(&room, 1, 0), 0);
    send = post_send(&pair, big, sizeof(big));
    XT_OK(pair.net->calls.test(send, &done, NULL));
    XT_CHECK_INT(done, 0);
    XT_CHECK_INT(poll(&wait, 1, 10000), 1);
    recv = post_recv(&pair, big, sizeof(big));
    while (!done) {
        int sent = 0;

        XT_OK(pair.net->calls.test(recv, &done, NULL));
        if (send && poll(&room, 1, 0) == 1)
            XT_OK(pair.net->calls.test(send, &sent, NULL));
        if (sent)
            send = NULL;
    }
    if (send)
        XT_OK(finish(&pair, send, NULL));
    XT_CHECK_INT(poll(&room, 1, 0), 0);
    pair_close(&pair);
}

/* ---- a peer that dies ---- */

struct killing {
    int pipe[2]; /* the receiver's handle goes to the sender */
};

static void send_for_ever(struct pair *pair)
{
    for (;;) {
        void *send = post_send(pair, big, 100000);

        if (send)
            XT_OK(finish(pair, send, NULL));
    }
}

static void killed_in_the_middle(int rank, int nranks, void *arg)
{
    struct killing *killing = arg;
    struct pair pair = {0};
    xcclNetConnect_t state = NULL;
    uint64_t killed_ns;
    pid_t sender;

    (void)nranks;
    pair.net = net_open();
    if (rank == 1) {
        sender = getpid();
        XT_CHECK_INT(read(killing->pipe[0], &pair.handle, sizeof(pair.handle)),
                     sizeof(pair.handle));
        while (!pair.send)
            XT_OK(pair.net->calls.connect(pair.net->ctx, 0, &pair.handle, &state, &pair.send));
        XT_CHECK_INT(write(killing->pipe[1], &sender, sizeof(sender)), sizeof(sender));
        send_for_ever(&pair);
    }
    XT_OK(pair.net->calls.listen(pair.net->ctx, 0, &pair.handle, &pair.listener));
    XT_CHECK_INT(write(killing->pipe[1], &pair.handle, sizeof(pair.handle)), sizeof(pair.handle));
    while (!pair.recv)
        XT_OK(pair.net->calls.accept(pair.listener, &pair.recv));
    for (int i = 0; i < 100; i++)
        XT_OK(finish(&pair, post_recv(&pair, big, sizeof(big)), NULL));
    XT_CHECK_INT(read(killing->pipe[0], &sender, sizeof(sender)), sizeof(sender));
    kill(sender, SIGKILL);
    killed_ns = xccl_clock_ns();
    for (xcclResult_t rc = xcclSuccess; rc == xcclSuccess;) {
        void *recv = NULL, *data = big;

        rc = pair.net->calls.irecv(pair.recv, 1, &data, &(size_t){sizeof(big)}, &(uint32_t){7},
                                   &pair.recv_mem, &recv);
        if (rc == xcclSuccess)
            rc = finish(&pair, recv, NULL);
        XT_CHECK(rc == xcclSuccess || rc == xcclRemoteError);
    }
    XT_CHECK(xccl_clock_ns() - killed_ns < XCCL_NS_PER_S);
    XT_CHECK_HAS(xccl_error_text(), "127.0.0.1:");
    pair_close(&pair);
}

XT_TEST(a_killed_peer_is_an_error_within_a_second_that_names_its_address)
{
    struct killing killing;
    struct xt_mp *mp;
    int statuses[2];

    XT_CHECK_INT(pipe(killing.pipe), 0);
    mp = xt_mp_start(2, killed_in_the_middle, &killing);
    xt_mp_wait(mp, statuses);
    XT_CHECK_INT(statuses[0], 0);
    XT_CHECK(WIFSIGNALED(statuses[1]) && WTERMSIG(statuses[1]) == SIGKILL);
    close(killing.pipe[0]);
    close(killing.pipe[1]);
}
