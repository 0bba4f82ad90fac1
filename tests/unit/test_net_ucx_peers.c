/* SPDX-License-Identifier: BSD-3-Clause */
/* What the UCX plugin does when the other end of a side socket says a worker address that is
 * damaged or not whole: the connection is closed, with words where somebody asks, and the right
 * peer still gets in. Nothing here waits for longer than END_NS. */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/tcp.h"
#include "net-ucx/ucx_wire.h"
#include "xccl_net.h"
#include "xt.h"

#define PLUGIN  XT_BUILD_DIR "/lib/xccl/libxccl-net-ucx.so"
#define END_NS  (30 * XCCL_NS_PER_S)
#define GARBAGE 100

struct plugin {
    const xcclNetPlugin_v1_t *calls;
    xcclNetContext_t ctx;
    xcclNetHandle_t handle;
    xcclNetListenComm_t listener;
    struct ucx_handle parts; /* what handle says */
};

static void plugin_open(struct plugin *plugin)
{
    xcclNetInit_v1 init = {.size = sizeof(init), .rank = -1, .commName = "", .trafficClass = -1};
    void *library;

    if (access(PLUGIN, R_OK) != 0)
        XT_SKIP("the ucx plugin is not built: libucx-dev is missing");
    xt_setenv("UCX_TLS", "tcp,self");
    library = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
    XT_CHECK(library != NULL);
    plugin->calls = dlsym(library, "xcclNetPlugin_v1");
    XT_CHECK(plugin->calls != NULL);
    if (plugin->calls->init(&init, &plugin->ctx) != xcclSuccess)
        XT_FAIL("init: %s", plugin->calls->lastError(NULL));
    XT_OK(plugin->calls->listen(plugin->ctx, 0, &plugin->handle, &plugin->listener));
    XT_OK(ucx_handle_decode(&plugin->handle, &plugin->parts));
}

static void plugin_close(struct plugin *plugin)
{
    XT_OK(plugin->calls->closeListen(plugin->listener));
    XT_OK(plugin->calls->finalize(plugin->ctx));
}

/* A hello with the token that is right, whose address is noise; its hash is of other noise. */
static size_t damaged_hello(const struct plugin *plugin, uint8_t bytes_out[UCX_HELLO_MAX])
{
    uint64_t random = xt_seed();
    uint8_t noise[GARBAGE];
    size_t bytes;

    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (uint8_t)xt_random(&random);
    bytes = ucx_hello_encode(plugin->parts.token, UCX_NET, noise, sizeof(noise), bytes_out);
    bytes_out[bytes - 1] ^= 1;
    return bytes;
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
    const xcclNetPlugin_v1_t *calls = plugin->calls;
    uint64_t end_ns = xccl_clock_ns() + END_NS;
    xcclNetConnect_t state = NULL;
    xcclNetSendComm_t send_comm = NULL;
    xcclNetRecvComm_t recv_comm = NULL;

    while ((!send_comm || !recv_comm) && xccl_clock_ns() < end_ns) {
        if (!send_comm)
            XT_OK(calls->connect(plugin->ctx, 0, &plugin->handle, &state, &send_comm));
        if (!recv_comm)
            XT_OK(calls->accept(plugin->listener, &recv_comm));
    }
    XT_CHECK(send_comm && recv_comm);
    XT_OK(calls->closeSend(send_comm));
    XT_OK(calls->closeRecv(recv_comm));
}

XT_TEST_DEADLINE(a_sender_with_a_damaged_address_is_dropped, 90)
{
    struct plugin plugin;
    uint8_t hello[UCX_HELLO_MAX];
    size_t bytes, sent = 0;
    int fd;

    plugin_open(&plugin);
    bytes = damaged_hello(&plugin, hello);
    fd = socket_to(&plugin.parts.addr);
    XT_OK(xccl_tcp_send_some(fd, hello, bytes, &sent));
    XT_CHECK(sent == bytes);
    expect_dropped(&plugin, fd);
    expect_connection(&plugin);
    plugin_close(&plugin);
}

XT_TEST_DEADLINE(a_sender_with_half_an_address_is_dropped, 90)
{
    struct plugin plugin;
    uint8_t hello[UCX_HELLO_MAX];
    size_t bytes, sent = 0;
    int fd;

    plugin_open(&plugin);
    bytes = damaged_hello(&plugin, hello);
    fd = socket_to(&plugin.parts.addr);
    XT_OK(xccl_tcp_send_some(fd, hello, bytes - GARBAGE / 2, &sent));
    XT_CHECK(sent == bytes - GARBAGE / 2);
    shutdown(fd, SHUT_WR);
    expect_dropped(&plugin, fd);
    expect_connection(&plugin);
    plugin_close(&plugin);
}

/* A receiver of ours answers a connect with so many bytes of the answer, then closes. */
static void connect_fails(size_t answer_less, const char *why)
{
    struct plugin plugin;
    struct ucx_handle handle;
    struct xccl_addr own, peer;
    uint8_t hello[UCX_HELLO_MAX];
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
    XT_OK(xccl_tcp_listen(&own, &listen_fd, &handle.addr));
    handle.modes = 1u << UCX_NET;
    ucx_handle_encode(&handle, &bytes);
    while (rc == xcclSuccess && xccl_clock_ns() < end_ns) {
        size_t count, sent = 0;

        rc = plugin.calls->connect(plugin.ctx, 0, &bytes, &state, &comm);
        XT_CHECK(comm == NULL);
        if (fd >= 0 || xccl_tcp_accept(listen_fd, &fd, &peer) != xcclSuccess || fd < 0)
            continue;
        count = damaged_hello(&plugin, hello) - answer_less;
        XT_OK(xccl_tcp_send_some(fd, hello, count, &sent));
        shutdown(fd, SHUT_WR);
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
    connect_fails(GARBAGE / 2, "closed a connect over UCX");
}

XT_TEST_DEADLINE(a_receiver_that_says_nothing_and_goes_is_an_error_at_once, 90)
{
    connect_fails(UCX_HEAD_BYTES + GARBAGE, "closed a connect over UCX");
}
