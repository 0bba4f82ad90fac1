/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket plugin through the loader: messages of all sizes, groups with tags, requests in any
 * order, closing at any time. What strangers and hostile peers can do is in
 * test_net_socket_peers.c. */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "sock_pair.h"

XT_TEST(a_device_is_described)
{
    struct xccl_net *net = net_open();
    xcclNetProperties_v1 props = {.size = sizeof(props)};
    char canary[offsetof(xcclNetProperties_v1, guid)];
    xcclNetProperties_v1 old = {.size = sizeof(canary), .port = 77};

    XT_OK(net->calls.properties(net->ctx, 0, &props));
    XT_CHECK_TEXT(props.name, "lo");
    XT_CHECK(props.pciPath == NULL);
    XT_CHECK_INT(props.maxRecvs, 8);
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

XT_TEST(requests_are_tested_in_any_order_and_beyond_32_times_8_it_is_busy)
{
    struct pair pair;
    static char out[256][300], in[32][300];
    void *send[256], *recv[32];
    xcclNetStats_v1 stats = {.size = sizeof(stats)};

    pair_open(&pair);
    for (size_t i = 0; i < 32; i++)
        XT_CHECK((recv[i] = post_recv(&pair, in[i], sizeof(in[i]))) != NULL);
    for (size_t i = 0; i < 256; i++) {
        fill(out[i], i, i);
        XT_CHECK((send[i] = post_send(&pair, out[i], i)) != NULL);
    }
    XT_CHECK(post_recv(&pair, in[0], 1) == NULL);
    XT_CHECK(post_send(&pair, out[0], 1) == NULL);
    for (int i = 255; i >= 0; i--)
        XT_OK(finish(&pair, send[i], NULL));
    for (size_t first = 0; first < 256; first += 32) {
        for (size_t i = 32; i-- > 0;) {
            size_t got = 0;

            XT_OK(finish(&pair, recv[i], &got));
            XT_CHECK_INT(got, first + i);
            expect(in[i], got, first + i);
        }
        for (size_t i = 0; i < 32 && first < 224; i++)
            XT_CHECK((recv[i] = post_recv(&pair, in[i], sizeof(in[i]))) != NULL);
    }
    XT_OK(pair.net->calls.stats(pair.net->ctx, 0, &stats));
    XT_CHECK_INT(stats.busyCount, 2);
    pair_close(&pair);
}

/* ---- groups ---- */

struct group {
    int count;
    void *data[8];
    size_t bytes[8];
    uint32_t tags[8];
    xcclNetMem_t mems[8];
};

/* count parts of part_bytes each at data, with these tags. */
static void *post_group(struct pair *pair, char *data, size_t part_bytes, const uint32_t *tags,
                        int count)
{
    struct group group = {.count = count};
    xcclNetRequest_t request = NULL;

    for (int i = 0; i < count; i++) {
        group.data[i] = data + (size_t)i * part_bytes;
        group.bytes[i] = part_bytes;
        group.tags[i] = tags[i];
        group.mems[i] = pair->recv_mem;
    }
    XT_OK(pair->net->calls.irecv(pair->recv, count, group.data, group.bytes, group.tags, group.mems,
                                 &request));
    memset(&group, 0xee, sizeof(group)); /* not looked at after return */
    return request;
}

static void send_tagged(struct pair *pair, const char *text, uint32_t tag)
{
    xcclNetRequest_t request = NULL;

    XT_OK(pair->net->calls.isend(pair->send, text, strlen(text), tag, pair->send_mem, &request));
    XT_OK(finish(pair, request, NULL));
}

XT_TEST(a_send_goes_to_the_first_free_part_with_its_tag)
{
    static const uint32_t tags[4] = {5, 6, 5, 0xffffffff};
    struct pair pair;
    char in[2][4][10] = {{{0}}};
    size_t sizes[8] = {99, 99, 99, 99, 99, 99, 99, 99};
    void *first, *second;
    int done = 1;

    pair_open(&pair);
    first = post_group(&pair, in[0][0], 10, tags, 4);
    second = post_group(&pair, in[1][0], 10, tags, 2);
    send_tagged(&pair, "last", 0xffffffff);
    send_tagged(&pair, "one", 5);
    send_tagged(&pair, "three", 5);
    for (int i = 0; i < 20; i++) {
        XT_OK(pair.net->calls.test(second, &done, NULL));
        XT_CHECK_INT(done, 0);
        XT_OK(pair.net->calls.test(first, &done, NULL));
        XT_CHECK_INT(done, 0);
    }
    send_tagged(&pair, "", 6);
    send_tagged(&pair, "six", 6);
    send_tagged(&pair, "five", 5);
    XT_OK(finish(&pair, first, sizes));
    XT_CHECK(sizes[0] == 3 && sizes[1] == 0 && sizes[2] == 5 && sizes[3] == 4 && sizes[4] == 99);
    XT_CHECK_TEXT(in[0][0], "one");
    XT_CHECK_TEXT(in[0][1], "");
    XT_CHECK_TEXT(in[0][2], "three");
    XT_CHECK_TEXT(in[0][3], "last");
    XT_OK(finish(&pair, second, sizes));
    XT_CHECK_TEXT(in[1][0], "five");
    XT_CHECK_TEXT(in[1][1], "six");
    pair_close(&pair);
}

XT_TEST(a_send_without_a_free_part_is_an_error_that_names_its_tag)
{
    static const uint32_t tags[2] = {1, 2};
    struct pair pair;
    char in[2][10];
    void *group;

    pair_open(&pair);
    group = post_group(&pair, in[0], 10, tags, 2);
    send_tagged(&pair, "a", 2);
    send_tagged(&pair, "b", 2);
    XT_CHECK_RC(finish(&pair, group, NULL), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "tag 2");
    XT_CHECK_HAS(xccl_error_text(), "group of 2");
    pair_close(&pair);
}

XT_TEST(sends_in_a_row_leave_together_and_one_alone_at_once)
{
    struct pair pair;
    static char in[3][10];
    void *send[3];
    struct pollfd wait = {.events = POLLIN};
    int there = 0, done = 0;

    pair_open(&pair);
    XT_OK(pair.net->calls.waitFd(pair.recv, &wait.fd));
    send[0] = post_send(&pair, "alone", 5);
    XT_CHECK_INT(poll(&wait, 1, 10000), 1);
    for (int i = 1; i < 3; i++)
        send[i] = post_send(&pair, "behind", 6);
    XT_CHECK_INT(ioctl(wait.fd, FIONREAD, &there), 0);
    XT_CHECK_INT(there, 21);
    /* Done means that it arrives without another call. */
    XT_OK(pair.net->calls.test(send[2], &done, NULL));
    XT_CHECK_INT(done, 1);
    for (int i = 0; i < 3; i++)
        XT_OK(finish(&pair, post_recv(&pair, in[i], 10), NULL));
    XT_CHECK_TEXT(in[2], "behind");
    XT_OK(finish(&pair, send[0], NULL));
    XT_OK(finish(&pair, send[1], NULL));
    pair_close(&pair);
}

XT_TEST(a_receive_smaller_than_its_send_names_both_sizes)
{
    struct pair pair;
    static char out[1000], in[2000];
    void *good, *small;

    pair_open(&pair);
    XT_OK(finish(&pair, post_send(&pair, out, 10), NULL));
    XT_OK(finish(&pair, post_send(&pair, out, 1000), NULL));
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
    void *data[9] = {bytes};
    size_t sizes[9] = {1};
    uint32_t tags[9] = {0};
    xcclNetMem_t mems[9] = {NULL}, mem = NULL;
    xcclNetRequest_t request = NULL;

    pair_open(&pair);
    for (int count = 0; count < 10; count += 9) {
        XT_CHECK_RC(pair.net->calls.irecv(pair.recv, count, data, sizes, tags, mems, &request),
                    xcclInvalidArgument);
        XT_CHECK_HAS(pair.net->calls.lastError(pair.net->ctx), "accepts 1 to 8");
    }
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

/* ---- Unix sockets ---- */

/* With lo as the only interface. */
#define UNIX_DEVICE 1

XT_TEST(unix_sockets_are_the_last_device_unless_switched_off)
{
    struct xccl_net *net = net_open();
    xcclNetProperties_v1 props = {.size = sizeof(props)};

    XT_CHECK_INT(net->device_count, UNIX_DEVICE + 1);
    XT_OK(net->calls.properties(net->ctx, UNIX_DEVICE, &props));
    XT_CHECK_TEXT(props.name, "unix");
    XT_CHECK(props.pciPath == NULL);
    xccl_net_close(net);
    xt_setenv("XCCL_SOCKET_UNIX", "0");
    net = net_open();
    XT_CHECK_INT(net->device_count, UNIX_DEVICE);
    xccl_net_close(net);
}

XT_TEST(the_handle_says_how_to_come_whatever_device_connects)
{
    static char in[100000];

    for (int way = 0; way < 4; way++) {
        struct pair pair;
        void *send;
        size_t got = 0;

        pair_listen_on(&pair, way & 1);
        pair_connect_on(&pair, way >> 1);
        fill(big, sizeof(in), (uint64_t)way);
        send = post_send(&pair, big, sizeof(in));
        finish_both(&pair, send, post_recv(&pair, in, sizeof(in)), &got);
        XT_CHECK_INT(got, sizeof(in));
        expect(in, got, (uint64_t)way);
        pair_close(&pair);
    }
}

XT_TEST(a_unix_peer_is_named_by_its_process)
{
    struct pair pair;
    xcclNetError_v1 error = {.size = sizeof(error)};
    char process[40], in[8];

    sprintf(process, "unix:process %d", (int)getpid());
    pair_listen_on(&pair, UNIX_DEVICE);
    pair_connect_on(&pair, UNIX_DEVICE);
    XT_OK(pair.net->calls.closeSend(pair.send));
    pair.send = NULL;
    XT_CHECK_RC(finish(&pair, post_recv(&pair, in, sizeof(in)), NULL), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), process);
    XT_OK(pair.net->calls.errorDetail(pair.recv, &error));
    XT_CHECK_INT(error.cause, xcclNetCausePeerGone);
    XT_CHECK_TEXT(error.peer, process);
    pair_close(&pair);
}

XT_TEST(a_unix_name_that_is_not_here_is_an_error_that_says_so)
{
    struct pair pair;
    xcclNetConnect_t state = NULL;

    pair_listen_on(&pair, UNIX_DEVICE);
    pair.handle.bytes[ADDR_OFFSET + 4] ^= 1;
    XT_CHECK_RC(
        pair.net->calls.connect(pair.net->ctx, UNIX_DEVICE, &pair.handle, &state, &pair.send),
        xcclRemoteError);
    XT_CHECK(state == NULL && pair.send == NULL);
    XT_CHECK_HAS(pair.net->calls.lastError(pair.net->ctx), "only peers on one host");
    pair_close(&pair);
}

/* ---- what the kernel is told ---- */

#define QUEUE_FULL 8 /* connections at most that fill a queue of none */
#define FDS        256

static int is_connecting(int fd)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info);

    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
           info.tcpi_state == TCP_SYN_SENT;
}

/* Nobody takes connections there, and the kernel answers no more of them. */
static int full_listener(struct xccl_addr *addr_out, int fds[QUEUE_FULL])
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    memset(addr_out, 0, sizeof(*addr_out));
    addr_out->bytes = sizeof(addr_out->sa.in4);
    addr_out->sa.in4.sin_family = AF_INET;
    addr_out->sa.in4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    XT_CHECK(bind(listener, &addr_out->sa.any, addr_out->bytes) == 0 && listen(listener, 0) == 0);
    XT_CHECK(getsockname(listener, &addr_out->sa.any, &addr_out->bytes) == 0);
    for (int i = 0; i < QUEUE_FULL; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        XT_CHECK(connect(fds[i], &addr_out->sa.any, addr_out->bytes) == 0 || errno == EINPROGRESS);
    }
    return listener;
}

/* A socket that had BBR first sends by the clock whatever it has later. */
XT_TEST(a_connection_has_its_congestion_control_from_the_start)
{
    struct pair pair;
    struct xccl_addr addr;
    xcclNetConnect_t state = NULL;
    char name[16] = "";
    socklen_t bytes = sizeof(name);
    int others[QUEUE_FULL], listener, found = -1;

    xt_setenv("XCCL_SOCKET_CONGESTION", "reno"); /* every kernel has it, none by default */
    pair_listen(&pair);
    listener = full_listener(&addr, others);
    handle_set_addr(&pair.handle, &addr);
    XT_OK(pair.net->calls.connect(pair.net->ctx, 0, &pair.handle, &state, &pair.send));
    XT_CHECK(state != NULL && pair.send == NULL);
    for (int fd = 3; fd < FDS; fd++) {
        int own = 0;

        for (int i = 0; i < QUEUE_FULL; i++)
            own |= fd == others[i];
        if (!own && is_connecting(fd))
            found = fd;
    }
    XT_CHECK(found >= 0);
    XT_CHECK(getsockopt(found, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) == 0);
    XT_CHECK_TEXT(name, "reno");
    XT_OK(pair.net->calls.closeConnect(pair.net->ctx, state));
    for (int i = 0; i < QUEUE_FULL; i++)
        close(others[i]);
    close(listener);
    pair_close(&pair);
}

/* ---- going away ---- */

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
