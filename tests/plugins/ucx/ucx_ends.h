/* SPDX-License-Identifier: BSD-3-Clause */
/* Instances of the UCX plugin over TCP in one process, connections between them, and messages, for
 * tests that look at what is behind. Nothing here waits for longer than END_NS. Header only. */
#ifndef TESTS_PLUGINS_UCX_UCX_ENDS_H
#define TESTS_PLUGINS_UCX_UCX_ENDS_H

#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net-ucx/ucx_wire.h"
#include "xccl_net.h"
#include "xt.h"

#define PLUGIN XT_BUILD_DIR "/lib/xccl/libxccl-net-ucx.so"
#define END_NS (30 * XCCL_NS_PER_S)

struct plugin {
    const xcclNetPlugin_v1_t *calls;
    xcclNetContext_t ctx;
    xcclNetHandle_t handle;
    xcclNetListenComm_t listener;
    struct ucx_handle parts; /* what handle says */
};

/* An instance that listens. */
static inline void plugin_open(struct plugin *plugin)
{
    xcclNetInit_v1 init = {
        .size = sizeof(init), .commId = 1, .rank = -1, .commName = "", .trafficClass = -1};
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

static inline void plugin_close(struct plugin *plugin)
{
    XT_OK(plugin->calls->closeListen(plugin->listener));
    XT_OK(plugin->calls->finalize(plugin->ctx));
}

struct pair {
    xcclNetSendComm_t send;
    xcclNetRecvComm_t recv;
    struct plugin *from, *to;
};

/* From one instance to another, or to itself. */
static inline struct pair pair_between(struct plugin *from, struct plugin *to)
{
    uint64_t end_ns = xccl_clock_ns() + END_NS;
    xcclNetConnect_t state = NULL;
    struct pair pair = {NULL, NULL, from, to};

    while ((!pair.send || !pair.recv) && xccl_clock_ns() < end_ns) {
        if (!pair.send)
            XT_OK(from->calls->connect(from->ctx, 0, &to->handle, &state, &pair.send));
        if (!pair.recv)
            XT_OK(to->calls->accept(to->listener, &pair.recv));
    }
    XT_CHECK(pair.send && pair.recv);
    return pair;
}

static inline struct pair pair_open(struct plugin *plugin)
{
    return pair_between(plugin, plugin);
}

static inline void pair_close(struct pair pair)
{
    XT_OK(pair.from->calls->closeSend(pair.send));
    XT_OK(pair.to->calls->closeRecv(pair.recv));
}

/* A message that is under way. */
struct message {
    struct pair pair;
    char *from, *to;
    xcclNetRequest_t send, recv;
    int sent, received;
    xcclResult_t send_rc, recv_rc;
};

static inline struct message message_post(struct pair pair, size_t bytes)
{
    struct message message = {.pair = pair, .from = calloc(1, bytes), .to = calloc(1, bytes)};
    void *to = message.to;
    uint32_t tag = 7;

    XT_CHECK(message.from && message.to);
    for (size_t i = 0; i < bytes; i += 97)
        message.from[i] = (char)(i + bytes);
    XT_OK(pair.to->calls->irecv(pair.recv, 1, &to, &bytes, &tag, NULL, &message.recv));
    message.send_rc = pair.from->calls->isend(pair.send, message.from, bytes, tag, NULL,
                                              &message.send);
    XT_CHECK(message.recv && (message.send || message.send_rc != xcclSuccess));
    return message;
}

/* Until both ends know. */
static inline void message_end(struct message *message)
{
    const xcclNetPlugin_v1_t *calls = message->pair.from->calls;
    uint64_t end_ns = xccl_clock_ns() + END_NS;
    int pending = 0;

    while (xccl_clock_ns() < end_ns) {
        if (!message->sent && message->send_rc == xcclSuccess)
            message->send_rc = calls->test(message->send, &message->sent, NULL);
        if (!message->received && message->recv_rc == xcclSuccess)
            message->recv_rc = calls->test(message->recv, &message->received, NULL);
        if ((message->sent || message->send_rc != xcclSuccess) &&
            (message->received || message->recv_rc != xcclSuccess))
            return;
        XT_OK(calls->progress(message->pair.from->ctx, &pending));
        XT_OK(calls->progress(message->pair.to->ctx, &pending));
    }
    XT_FAIL("a message has no end");
}

static inline void message_free(struct message *message)
{
    free(message->from);
    free(message->to);
}

static inline in_port_t port_of(int fd, int of_peer)
{
    struct sockaddr_storage addr = {.ss_family = AF_UNSPEC};
    socklen_t bytes = sizeof(addr);
    int rc = of_peer ? getpeername(fd, (struct sockaddr *)&addr, &bytes)
                     : getsockname(fd, (struct sockaddr *)&addr, &bytes);

    if (rc != 0 || (addr.ss_family != AF_INET && addr.ss_family != AF_INET6))
        return 0;
    /* Ports lie at the same place in both. */
    return ntohs(((struct sockaddr_in *)&addr)->sin_port);
}

#endif
