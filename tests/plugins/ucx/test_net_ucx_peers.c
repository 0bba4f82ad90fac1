/* SPDX-License-Identifier: BSD-3-Clause */
/* What the UCX plugin does when the other end of a side socket says a worker address that is
 * damaged or not whole: the connection is closed, with words where somebody asks, and the right
 * peer still gets in. And what it does when UCX's own connections break, of which side sockets know
 * nothing; and what stats says. Nothing here waits for longer than END_NS. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/tcp.h"
#include "ucx_ends.h"

#define GARBAGE 100

/* Makes a hello whose address is noise, which is harmed further once it is sealed. */
static size_t noise_hello(uint8_t bytes_out[UCX_HELLO_MAX])
{
    const struct ucx_hello hello = {UCX_NET, GARBAGE, 1, 2, 0};
    uint64_t random = xt_seed();
    uint8_t noise[GARBAGE];

    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (uint8_t)xt_random(&random);
    return ucx_hello_encode(&hello, noise, bytes_out);
}

static int socket_to(const struct xccl_addr *addr)
{
    uint64_t end_ns = xccl_clock_ns() + END_NS;
    int fd = -1, done = 0;

    XT_OK(xccl_tcp_connect_start(addr, &fd));
    while (!done && xccl_clock_ns() < end_ns)
        XT_OK(xccl_tcp_connect_test(fd, addr, &done));
    XT_CHECK(done);
    return fd;
}

/* The listener closes fd, and gives nobody a comm. */
static void expect_dropped(struct plugin *plugin, int fd)
{
    uint64_t end_ns = xccl_clock_ns() + END_NS;
    ssize_t got = -1;
    char byte;

    do {
        xcclNetRecvComm_t comm = NULL;

        XT_OK(plugin->calls->accept(plugin->listener, &comm));
        XT_CHECK(comm == NULL);
        got = recv(fd, &byte, 1, MSG_DONTWAIT);
        usleep(1000);
    } while (got < 0 && errno == EAGAIN && xccl_clock_ns() < end_ns);
    XT_CHECK(got == 0 || (got < 0 && errno == ECONNRESET));
    close(fd);
}

static void expect_connection(struct plugin *plugin)
{
    pair_close(pair_open(plugin));
}

/* Sends, with the right token, a hello that was damaged on the way, or half of one and no more. */
static void sender_says(int half)
{
    struct kit_opening opening = {.magic = UCX_HELLO_MAGIC, .version = UCX_WIRE_VERSION};
    uint8_t hello[KIT_SEALED(UCX_HELLO_MAX)], answer[KIT_ANSWER_BYTES];
    uint64_t end_ns = xccl_clock_ns() + END_NS;
    struct kit_proof proof = {.is_sender = 0};
    struct plugin plugin;
    size_t bytes, heard = 0, sent = 0;
    int fd;

    plugin_open(&plugin);
    bytes = noise_hello(hello);
    opening.hello_bytes = (uint32_t)bytes;
    kit_proof_begin(&proof, plugin.parts.where.token, &opening);
    fd = socket_to(&plugin.parts.where.addrs[0]);
    XT_OK(kit_say(fd, proof.opening, KIT_OPENING_BYTES, &sent));
    while (heard < sizeof(answer) && xccl_clock_ns() < end_ns) {
        xcclNetRecvComm_t comm = NULL;

        XT_OK(plugin.calls->accept(plugin.listener, &comm));
        XT_CHECK(comm == NULL);
        XT_OK(kit_hear(fd, answer, sizeof(answer), &heard));
    }
    XT_CHECK(kit_proof_hear(&proof, plugin.parts.where.token, answer));
    kit_proof_seal(&proof, hello, bytes);
    hello[bytes - 1] ^= 1;
    sent = 0;
    XT_OK(kit_say(fd, hello, half ? bytes - GARBAGE / 2 : KIT_SEALED(bytes), &sent));
    shutdown(fd, SHUT_WR);
    expect_dropped(&plugin, fd);
    expect_connection(&plugin);
    plugin_close(&plugin);
}

XT_TEST_DEADLINE(a_sender_with_a_damaged_address_is_dropped, 90)
{
    sender_says(0);
}

XT_TEST_DEADLINE(a_sender_with_half_an_address_is_dropped, 90)
{
    sender_says(1);
}

/* A receiver of the test's answers who opens, with so many bytes less of its hello, then closes. */
static void answer_damaged(int fd, const uint8_t *token, size_t less)
{
    uint8_t opening[KIT_OPENING_BYTES], answer[KIT_ANSWER_BYTES], hello[UCX_ANSWER_MAX];
    struct kit_proof proof = {.is_sender = 0};
    size_t count;

    (void)fcntl(fd, F_SETFL, 0);
    XT_CHECK_INT(recv(fd, opening, sizeof(opening), MSG_WAITALL), sizeof(opening));
    kit_proof_read(&proof, opening);
    kit_proof_answer(&proof, token, answer);
    XT_CHECK_INT(send(fd, answer, sizeof(answer), MSG_NOSIGNAL), sizeof(answer));
    count = ucx_answer_seal(&proof, hello, noise_hello(hello)) - less;
    if (count > 0)
        hello[count - 1] ^= 1;
    XT_CHECK_INT(send(fd, hello, count, MSG_NOSIGNAL), count);
    shutdown(fd, SHUT_WR);
}

static void connect_fails(size_t answer_less, const char *why)
{
    struct plugin plugin;
    struct ucx_handle handle;
    struct xccl_addr own, peer;
    xcclNetHandle_t bytes;
    xcclNetConnect_t state = NULL;
    xcclNetSendComm_t comm = NULL;
    xcclResult_t rc = xcclSuccess;
    uint64_t end_ns = xccl_clock_ns() + END_NS;
    int listen_fd = -1, fd = -1;

    plugin_open(&plugin);
    handle = plugin.parts;
    XT_OK(xccl_addr_parse("127.0.0.1:1", 0, &own));
    xccl_addr_set_port(&own, 0);
    XT_OK(xccl_tcp_listen(&own, &listen_fd, &handle.where.addrs[0]));
    handle.modes = 1u << UCX_NET;
    ucx_handle_encode(&handle, &bytes);
    while (rc == xcclSuccess && xccl_clock_ns() < end_ns) {
        rc = plugin.calls->connect(plugin.ctx, 0, &bytes, &state, &comm);
        XT_CHECK(comm == NULL);
        if (fd >= 0 || xccl_tcp_accept(listen_fd, &fd, &peer) != xcclSuccess || fd < 0)
            continue;
        answer_damaged(fd, handle.where.token, answer_less);
    }
    XT_CHECK(rc == xcclRemoteError);
    XT_CHECK(state == NULL);
    XT_CHECK_HAS(plugin.calls->lastError(plugin.ctx), why);
    XT_CHECK_HAS(plugin.calls->lastError(plugin.ctx), "127.0.0.1:");
    close(fd);
    close(listen_fd);
    plugin_close(&plugin);
}

XT_TEST_DEADLINE(a_receiver_with_a_damaged_address_is_an_error_at_once, 90)
{
    connect_fails(0, "a damaged worker address");
}

XT_TEST_DEADLINE(a_receiver_with_half_an_address_is_an_error_at_once, 90)
{
    connect_fails(GARBAGE / 2, "closed a connection over UCX");
}

XT_TEST_DEADLINE(a_receiver_that_says_nothing_and_goes_is_an_error_at_once, 90)
{
    connect_fails(KIT_SEALED(UCX_HEAD_BYTES) + KIT_SEALED(GARBAGE), "closed a connection over UCX");
}

/* ---- messages ---- */

/* Breaks every TCP connection of this process but side sockets. How many. */
static int cut_data_connections(const struct plugin *plugin)
{
    in_port_t side = (in_port_t)xccl_addr_port(&plugin->parts.where.addrs[0]);
    int count = 0;

    for (int fd = 3; fd < 512; fd++) {
        in_port_t peer = port_of(fd, 1), own = port_of(fd, 0);

        if (!peer || peer == side || own == side)
            continue;
        XT_CHECK(shutdown(fd, SHUT_RDWR) == 0 || errno == ENOTCONN);
        count++;
    }
    return count;
}

/* The side socket stays: only UCX can know. */
static void breaks_with(size_t bytes)
{
    struct plugin plugin;
    struct message message;
    struct pair pair;

    plugin_open(&plugin);
    pair = pair_open(&plugin);
    message = message_post(pair, 1024);
    message_end(&message);
    XT_CHECK(message.sent && message.received);
    message_free(&message);
    XT_CHECK(cut_data_connections(&plugin) > 0);
    message = message_post(pair, bytes);
    message_end(&message);
    XT_CHECK(!message.received && message.recv_rc == xcclRemoteError);
    XT_CHECK_HAS(plugin.calls->lastError(plugin.ctx), "UCX connection");
    XT_CHECK(message.send_rc == xcclSuccess || message.send_rc == xcclRemoteError);
    pair_close(pair);
    message_free(&message);
    expect_connection(&plugin);
    plugin_close(&plugin);
}

XT_TEST_DEADLINE(a_small_message_over_a_broken_connection_is_an_error, 90)
{
    breaks_with(64);
}

XT_TEST_DEADLINE(a_large_message_over_a_broken_connection_is_an_error, 90)
{
    breaks_with((size_t)4 << 20);
}

static xcclNetStats_v1 stats_of(struct plugin *plugin)
{
    xcclNetStats_v1 stats = {.size = sizeof(stats)};

    XT_OK(plugin->calls->stats(plugin->ctx, 0, &stats));
    return stats;
}

XT_TEST_DEADLINE(stats_count_comms_that_are_up_and_that_are_closed, 90)
{
    struct plugin plugin;
    struct message message;
    struct pair pair;
    xcclNetStats_v1 stats;

    plugin_open(&plugin);
    for (uint64_t round = 1; round <= 2; round++) {
        pair = pair_open(&plugin);
        message = message_post(pair, 1000);
        message_end(&message);
        message_free(&message);
        for (int closed = 0; closed < 2; closed++) {
            stats = stats_of(&plugin);
            XT_CHECK(stats.sendCount == round && stats.recvCount == round);
            XT_CHECK(stats.sendBytes == 1000 * round && stats.recvBytes == 1000 * round);
            if (!closed)
                pair_close(pair);
        }
    }
    plugin_close(&plugin);
}
