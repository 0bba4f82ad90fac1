/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of hooks: a chain such as fault:trace:socket, opened as the loader does it, pairs of
 * connected comms in it, both ends in this process, and traffic whose every byte is compared.
 * Header only; one test program each.
 * Thread: the test's own. */
#ifndef TESTS_UNIT_PLUGIN_HOOK_CHAIN_H
#define TESTS_UNIT_PLUGIN_HOOK_CHAIN_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "plugin/net_plugin_int.h"
#include "xt.h"

#define CHAIN_MAX  4
#define WINDOW     24 /* requests that a test keeps in flight; below what any plugin takes */
#define ROOM_BYTES ((size_t)1 << 16)

/* fault:trace:socket is plugins 0, 1, 2. */
struct chain {
    void *libs[CHAIN_MAX];
    xcclNetPlugin_v1_t tables[CHAIN_MAX];
    xcclNetInner_v1 inner[CHAIN_MAX];
    int count;
    const xcclNetPlugin_v1_t *calls;
    xcclNetContext_t ctx;
};

struct pair {
    struct chain *chain;
    xcclNetListenComm_t listener;
    xcclNetHandle_t handle;
    void *send, *recv;
    xcclNetMem_t send_mem, recv_mem;
    char *out, *in; /* WINDOW rooms each */
};

static char logged[8][600];
static int logged_count;

static void keep_line(xcclNetLogLevel_t level, const char *line)
{
    if (level == xcclNetLogInfo && logged_count < 8)
        snprintf(logged[logged_count++], sizeof(logged[0]), "%s", line);
}

static void chain_load(struct chain *chain, const char *item)
{
    memset(chain, 0, sizeof(*chain));
    while (*item) {
        size_t bytes = strcspn(item, ":");
        const xcclNetPlugin_v1_t *table;
        char path[512];

        XT_CHECK(chain->count < CHAIN_MAX);
        snprintf(path, sizeof(path), "%s/lib/xccl/libxccl-net-%.*s.so", XT_BUILD_DIR, (int)bytes,
                 item);
        chain->libs[chain->count] = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!chain->libs[chain->count])
            XT_FAIL("%s", dlerror());
        table = dlsym(chain->libs[chain->count], "xcclNetPlugin_v1");
        XT_CHECK(table != NULL);
        net_contract_copy(table, &chain->tables[chain->count++]);
        item += bytes + (item[bytes] == ':');
    }
    for (int i = 1; i < chain->count; i++)
        chain->inner[i] = (xcclNetInner_v1){.size = sizeof(xcclNetInner_v1),
                                            .plugin = &chain->tables[i],
                                            .inner = i + 1 < chain->count ? &chain->inner[i + 1]
                                                                          : NULL};
    chain->calls = &chain->tables[0];
}

static void chain_unload(struct chain *chain)
{
    for (int i = 0; i < chain->count; i++)
        dlclose(chain->libs[i]);
}

static xcclResult_t chain_init(struct chain *chain)
{
    xcclNetInit_v1 init = {.size = sizeof(init),
                           .commId = 4711,
                           .rank = 3,
                           .nranks = 8,
                           .commName = "test",
                           .log = keep_line,
                           .trafficClass = -1,
                           .inner = chain->count > 1 ? &chain->inner[1] : NULL};
    xcclResult_t rc = chain->calls->init(&init, &chain->ctx);

    xccl_error_set_text(rc == xcclSuccess ? "" : chain->calls->lastError(NULL));
    return rc;
}

/* fault and trace: the settings, NULL for none. */
static void chain_open(struct chain *chain, const char *item, const char *fault, const char *trace)
{
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_NET_FAULT", fault);
    xt_setenv("XCCL_NET_TRACE", trace);
    logged_count = 0;
    chain_load(chain, item);
    XT_OK(chain_init(chain));
}

static void chain_close(struct chain *chain)
{
    XT_OK(chain->calls->finalize(chain->ctx));
    chain_unload(chain);
}

/* rc again, with the hook's text as the thread's, for XT_OK. */
static xcclResult_t told(const struct chain *chain, xcclResult_t rc)
{
    if (rc != xcclSuccess)
        xccl_error_set_text(chain->calls->lastError(chain->ctx));
    return rc;
}

static void pair_open(struct pair *pair, struct chain *chain)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    const xcclNetPlugin_v1_t *calls = chain->calls;
    xcclNetConnect_t state = NULL;

    memset(pair, 0, sizeof(*pair));
    pair->chain = chain;
    pair->out = calloc(WINDOW, ROOM_BYTES);
    pair->in = calloc(WINDOW, ROOM_BYTES);
    XT_CHECK(pair->out && pair->in);
    XT_OK(told(chain, calls->listen(chain->ctx, 0, &pair->handle, &pair->listener)));
    while (!pair->send || !pair->recv) {
        if (!pair->send)
            XT_OK(told(chain, calls->connect(chain->ctx, 0, &pair->handle, &state, &pair->send)));
        if (!pair->recv)
            XT_OK(told(chain, calls->accept(pair->listener, &pair->recv)));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_CHECK(state == NULL);
}

static void pair_register(struct pair *pair)
{
    const xcclNetPlugin_v1_t *calls = pair->chain->calls;

    XT_OK(told(pair->chain, calls->regMr(pair->send, pair->out, WINDOW * ROOM_BYTES,
                                         XCCL_NET_PTR_HOST, &pair->send_mem)));
    XT_OK(told(pair->chain, calls->regMr(pair->recv, pair->in, WINDOW * ROOM_BYTES,
                                         XCCL_NET_PTR_HOST, &pair->recv_mem)));
}

static void pair_close(struct pair *pair)
{
    const xcclNetPlugin_v1_t *calls = pair->chain->calls;

    XT_OK(calls->closeSend(pair->send));
    XT_OK(calls->closeRecv(pair->recv));
    XT_OK(calls->closeListen(pair->listener));
    free(pair->out);
    free(pair->in);
}

static xcclResult_t post_send(struct pair *pair, int slot, size_t bytes, void **request_out)
{
    return told(pair->chain,
                pair->chain->calls->isend(pair->send, pair->out + (size_t)slot * ROOM_BYTES, bytes,
                                          7, pair->send_mem, request_out));
}

static xcclResult_t post_recv(struct pair *pair, int slot, void **request_out)
{
    void *data = pair->in + (size_t)slot * ROOM_BYTES;
    size_t bytes = ROOM_BYTES;
    uint32_t tag = 7;

    *request_out = NULL;
    return told(pair->chain, pair->chain->calls->irecv(pair->recv, 1, &data, &bytes, &tag,
                                                       &pair->recv_mem, request_out));
}

static xcclResult_t test_one(struct pair *pair, void *request, int *done, size_t *bytes)
{
    return told(pair->chain, pair->chain->calls->test(request, done, bytes));
}

/* ---- many messages, a window of them in flight ---- */

/* What happens in a run of messages on one pair. */
struct traffic {
    struct pair *pair;
    uint64_t random;
    int messages, posted[2], finished[2]; /* 0: sends, 1: receives */
    void *requests[2][WINDOW];
    size_t sizes[WINDOW]; /* of the message in the slot */
    uint64_t answers; /* hash of how often each post was busy */
    int swapped; /* requests told before an earlier one */
};

static size_t draw_size(uint64_t *random)
{
    size_t most = (size_t)1 << (xt_random(random) % 17);

    return xt_random(random) % (most + 1);
}

static char byte_of(int message, size_t idx)
{
    return (char)((size_t)message * 31 + idx * 7 + (idx >> 8));
}

/* Posts message next of a side, if its slot is free. */
static void traffic_post(struct traffic *traffic, int side)
{
    int message = traffic->posted[side], slot = message % WINDOW;
    size_t bytes = traffic->sizes[slot];
    void *request = NULL;

    if (message == traffic->messages || traffic->requests[side][slot])
        return;
    if (side == 0) {
        /* The receiver may still look at what the slot's last message was. */
        if (message - WINDOW >= traffic->finished[1])
            return;
        XT_OK(post_send(traffic->pair, slot, bytes, &request));
    } else {
        XT_OK(post_recv(traffic->pair, slot, &request));
    }
    traffic->answers = traffic->answers * 1099511628211u + (request ? 2u : 1u) + (uint64_t)side;
    traffic->requests[side][slot] = request;
    if (request)
        traffic->posted[side]++;
}

static void check_message(const struct traffic *traffic, int slot, int message, size_t bytes)
{
    const char *in = traffic->pair->in + (size_t)slot * ROOM_BYTES;

    XT_CHECK_INT(bytes, traffic->sizes[slot]);
    for (size_t i = 0; i < bytes; i++) {
        if (in[i] != byte_of(message, i))
            XT_FAIL("byte %zu of message %d is wrong", i, message);
    }
}

/* The message of a slot that is in flight. */
static int message_in(const struct traffic *traffic, int side, int slot)
{
    int last = traffic->posted[side] - 1;

    return last - (last - slot) % WINDOW;
}

static void traffic_test(struct traffic *traffic, int side)
{
    int earlier = 0;

    for (int i = 0; i < WINDOW; i++) {
        int slot = (traffic->posted[side] + i) % WINDOW, done = 0;
        size_t bytes = SIZE_MAX;

        if (!traffic->requests[side][slot])
            continue;
        XT_OK(test_one(traffic->pair, traffic->requests[side][slot], &done, &bytes));
        earlier += !done;
        if (!done)
            continue;
        traffic->swapped += earlier > 0;
        traffic->requests[side][slot] = NULL;
        if (side == 1)
            check_message(traffic, slot, message_in(traffic, side, slot), bytes);
        else
            XT_CHECK_INT(bytes, traffic->sizes[slot]);
        traffic->finished[side]++;
    }
}

/* Makes the next messages whose slots both sides have left. */
static void traffic_fill(struct traffic *traffic, int *filled)
{
    while (*filled < traffic->messages && *filled < traffic->posted[0] + WINDOW) {
        int slot = *filled % WINDOW;
        char *out = traffic->pair->out + (size_t)slot * ROOM_BYTES;

        if (traffic->requests[0][slot] || traffic->requests[1][slot] ||
            *filled - WINDOW >= traffic->posted[1])
            return;
        traffic->sizes[slot] = draw_size(&traffic->random);
        for (size_t i = 0; i < traffic->sizes[slot]; i++)
            out[i] = byte_of(*filled, i);
        ++*filled;
    }
}

static void traffic_run(struct traffic *traffic, struct pair *pair, int messages, uint64_t seed)
{
    struct xccl_limit limit = xccl_limit_ms(60000, NULL);
    int filled = 0;

    memset(traffic, 0, sizeof(*traffic));
    traffic->pair = pair;
    traffic->random = seed;
    traffic->messages = messages;
    while (traffic->finished[0] < messages || traffic->finished[1] < messages) {
        traffic_fill(traffic, &filled);
        for (int side = 0; side < 2; side++) {
            if (traffic->posted[side] < filled)
                traffic_post(traffic, side);
            traffic_test(traffic, side);
        }
        XT_CHECK(!xccl_limit_passed(&limit));
    }
}

static void run_under(const char *item, const char *fault, const char *trace, int messages,
                      struct traffic *traffic)
{
    struct chain chain;
    struct pair pair;

    chain_open(&chain, item, fault, trace);
    pair_open(&pair, &chain);
    pair_register(&pair);
    traffic_run(traffic, &pair, messages, 99);
    pair_close(&pair);
    chain_close(&chain);
}

#endif
