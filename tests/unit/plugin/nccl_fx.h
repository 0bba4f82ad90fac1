/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of the adapters of NCCL's network plugins: a fixture of a version, loaded and opened
 * through its adapter, and a connected pair of comms. The fixture knows none of our headers and is
 * strict about NCCL's contract: whatever it does not like is an error with a text. Header only; one
 * test program each. Thread: the test's own. */
#ifndef TESTS_UNIT_PLUGIN_NCCL_FX_H
#define TESTS_UNIT_PLUGIN_NCCL_FX_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "plugin/net_plugin_int.h"
#include "xt.h"

#define FIRST      6
#define LAST       12
#define PART_BYTES ((size_t)1 << 20)

/* What the plugins of a test log; more is dropped. */
static char lines[64][600];
static int line_count;

static inline void keep_line(xcclNetLogLevel_t level, const char *line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    (void)level;
    pthread_mutex_lock(&lock);
    if (line_count < 64)
        snprintf(lines[line_count++], sizeof(lines[0]), "%s", line);
    pthread_mutex_unlock(&lock);
}

static inline int lines_with(const char *part)
{
    int count = 0;

    for (int i = 0; i < line_count; i++)
        count += strstr(lines[i], part) != NULL;
    return count;
}

/* A plugin file that stays loaded, and one instance. */
struct fixture {
    struct nccl_source source;
    const xcclNetPlugin_v1_t *calls;
    xcclNetContext_t ctx;
    int max_recvs;
};

static inline const char *text(const struct fixture *fx)
{
    return fx->calls->lastError(fx->ctx);
}

/* Checks a call and shows the plugin's text. */
#define FX_OK(fx, call)                                                                            \
    do {                                                                                           \
        int rc_ = (int)(call);                                                                     \
        if (rc_)                                                                                   \
            XT_FAIL("v%d %s: %d: %s", (fx)->source.version, #call, rc_, text(fx));                 \
    } while (0)

static inline void fixture_load(struct fixture *fx, int version, const char *suffix)
{
    char path[512], symbol[32];
    void *library;

    memset(fx, 0, sizeof(*fx));
    snprintf(path, sizeof(path), XT_BUILD_DIR "/lib/fixtures/libnccl-net-fx-v%d%s.so", version,
             suffix);
    snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", version);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        XT_FAIL("%s", dlerror());
    fx->source = (struct nccl_source){.inner = {.size = sizeof(xcclNetInner_v1)},
                                      .table = dlsym(library, symbol),
                                      .version = version};
    XT_CHECK(fx->source.table != NULL);
    fx->calls = nccl_adapter(version);
    XT_CHECK(fx->calls != NULL);
}

static inline xcclResult_t fixture_init(struct fixture *fx)
{
    xcclNetInit_v1 init = {
        .size = sizeof(init),
        .commId = 77,
        .nranks = 2,
        .commName = "test",
        .log = keep_line,
        .trafficClass = 105,
        .inner = &fx->source.inner,
    };

    xt_setenv("XCCL_DEBUG", "info");
    return fx->calls->init(&init, &fx->ctx);
}

static inline void fixture_open(struct fixture *fx, int version, const char *suffix)
{
    xcclNetProperties_v1 props = {.size = sizeof(props)};

    if (!getenv("FX_NCCL_ADDR"))
        xt_setenv("FX_NCCL_ADDR", "127.0.0.1");
    fixture_load(fx, version, suffix);
    FX_OK(fx, fixture_init(fx));
    FX_OK(fx, fx->calls->properties(fx->ctx, 0, &props));
    fx->max_recvs = props.maxRecvs;
}

static inline void fixture_close(struct fixture *fx)
{
    FX_OK(fx, fx->calls->finalize(fx->ctx));
}

struct pair {
    struct fixture *fx;
    xcclNetHandle_t handle;
    xcclNetListenComm_t listener;
    void *send, *recv;
    xcclNetMem_t send_mem, recv_mem;
    char *send_data, *recv_data;
    size_t bytes;
};

static char send_memory[8 * PART_BYTES], recv_memory[8 * PART_BYTES];

static inline void pair_connect(struct pair *pair)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    const xcclNetPlugin_v1_t *calls = pair->fx->calls;
    xcclNetConnect_t state = NULL;
    xcclNetHandle_t copies[2] = {pair->handle, pair->handle};
    int turn = 0;

    while (!pair->send || !pair->recv) {
        XT_CHECK(!xccl_limit_passed(&limit));
        /* A copy at another address each time, as rule 12 allows. */
        if (!pair->send)
            FX_OK(pair->fx,
                  calls->connect(pair->fx->ctx, 0, &copies[turn++ % 2], &state, &pair->send));
        if (!pair->recv)
            FX_OK(pair->fx, calls->accept(pair->listener, &pair->recv));
    }
    XT_CHECK(state == NULL);
}

static inline void pair_open_over(struct pair *pair, struct fixture *fx, char *send_data,
                                  char *recv_data, size_t bytes)
{
    memset(pair, 0, sizeof(*pair));
    pair->fx = fx;
    pair->send_data = send_data;
    pair->recv_data = recv_data;
    pair->bytes = bytes;
    FX_OK(fx, fx->calls->listen(fx->ctx, 0, &pair->handle, &pair->listener));
    pair_connect(pair);
    FX_OK(fx, fx->calls->closeListen(pair->listener));
    FX_OK(fx, fx->calls->regMr(pair->send, send_data, bytes, XCCL_NET_PTR_HOST, &pair->send_mem));
    FX_OK(fx, fx->calls->regMr(pair->recv, recv_data, bytes, XCCL_NET_PTR_HOST, &pair->recv_mem));
    XT_CHECK(pair->send_mem && pair->recv_mem);
}

static inline void pair_open(struct pair *pair, struct fixture *fx)
{
    pair_open_over(pair, fx, send_memory, recv_memory, sizeof(send_memory));
}

static inline void pair_close(struct pair *pair)
{
    const xcclNetPlugin_v1_t *calls = pair->fx->calls;

    FX_OK(pair->fx, calls->deregMr(pair->send, pair->send_mem));
    FX_OK(pair->fx, calls->deregMr(pair->recv, pair->recv_mem));
    FX_OK(pair->fx, calls->closeSend(pair->send));
    FX_OK(pair->fx, calls->closeRecv(pair->recv));
}

/* Asks until it is not busy; from a place of the pair's memory. */
static inline xcclNetRequest_t post_send(struct pair *pair, size_t at, size_t bytes, uint32_t tag)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclNetRequest_t request = NULL;

    while (!request && !xccl_limit_passed(&limit))
        FX_OK(pair->fx, pair->fx->calls->isend(pair->send, pair->send_data + at, bytes, tag,
                                               pair->send_mem, &request));
    XT_CHECK(request != NULL);
    return request;
}

static inline xcclNetRequest_t post_recv(struct pair *pair, int count, const size_t *at,
                                         const size_t *bytes, const uint32_t *tags)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclNetMem_t mems[XCCL_NET_MAX_RECVS];
    void *data[XCCL_NET_MAX_RECVS];
    xcclNetRequest_t request = NULL;

    for (int i = 0; i < count; i++) {
        data[i] = pair->recv_data + at[i];
        mems[i] = pair->recv_mem;
    }
    while (!request && !xccl_limit_passed(&limit)) {
        /* The hint, and rubbish, which means nothing. */
        request = count & 1 ? XCCL_NET_RECV_OPTIONAL : (xcclNetRequest_t)data;
        FX_OK(pair->fx,
              pair->fx->calls->irecv(pair->recv, count, data, bytes, tags, mems, &request));
    }
    XT_CHECK(request != NULL);
    return request;
}

static inline xcclNetRequest_t post_one(struct pair *pair, size_t at, size_t bytes, uint32_t tag)
{
    return post_recv(pair, 1, &at, &bytes, &tag);
}

static inline void wait_both(struct pair *pair, xcclNetRequest_t send, xcclNetRequest_t recv,
                             size_t *bytes_out)
{
    struct xccl_limit limit = xccl_limit_ms(60000, NULL);
    size_t sent[1];
    int sent_done = send == NULL, recv_done = recv == NULL;

    while (!sent_done || !recv_done) {
        XT_CHECK(!xccl_limit_passed(&limit));
        if (!sent_done)
            FX_OK(pair->fx, pair->fx->calls->test(send, &sent_done, sent));
        if (!recv_done)
            FX_OK(pair->fx, pair->fx->calls->test(recv, &recv_done, bytes_out));
    }
}

static inline void fill(char *data, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i += 61)
        data[i] = (char)xt_random(&seed);
}

#endif
