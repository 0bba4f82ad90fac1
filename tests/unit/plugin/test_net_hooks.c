/* SPDX-License-Identifier: BSD-3-Clause */
/* The hook fault around the socket plugin: what is sent arrives whatever is injected, a seed
 * repeats, injected errors are told and stay, closing frees everything. And what both hooks do the
 * same: without a plugin to wrap they say so, errors of the wrapped one pass. */
#include <stdarg.h>

#include "hook_chain.h"

XT_TEST(messages_arrive_whole_under_the_harmless_faults)
{
    struct traffic traffic;

    run_under("fault:socket", NULL, NULL, 500, &traffic);
    XT_CHECK_HAS(logged[0], "fault around socket: repeat with XCCL_NET_FAULT=seed=4711,");
    XT_CHECK_HAS(logged[0], "busy=0.1,");
    for (uint64_t i = 0, random = xt_seed(); i < 6; i++) {
        char text[128];

        snprintf(text, sizeof(text), "seed=%llu", (unsigned long long)(xt_random(&random) >> 8));
        run_under("fault:socket", text, NULL, 300, &traffic);
        XT_CHECK_HAS(logged[0], text);
        XT_CHECK_HAS(logged[0], "slow_connect=0.3");
    }
}

XT_TEST(messages_arrive_whole_when_every_call_meets_a_fault)
{
    struct traffic traffic;

    run_under("fault:socket",
              "seed=1,busy=.7,delay=1,delay_us=50,partial=0.9,reorder=1,slow_connect=1", NULL, 400,
              &traffic);
    XT_CHECK(traffic.swapped > 0);
}

XT_TEST(a_seed_repeats_its_answers)
{
    const char *const seeds[] = {"seed=21,busy=0.4,partial=0.5", "seed=21,busy=0.4,partial=0.5",
                                 "seed=22,busy=0.4,partial=0.5"};
    uint64_t answers[3];

    for (int i = 0; i < 3; i++) {
        uint64_t all = 0;
        struct chain chain;
        struct pair pair;

        chain_open(&chain, "fault:socket", seeds[i], NULL);
        pair_open(&pair, &chain);
        pair_register(&pair);
        for (int message = 0; message < 200; message++) {
            struct traffic traffic;

            /* One at a time, so that the socket itself is never busy. */
            traffic_run(&traffic, &pair, 1, (uint64_t)message);
            for (int bit = 0; bit < 2; bit++)
                all = all * 1099511628211u + (uint64_t)traffic.posted[bit];
            all = all * 31 + traffic.answers;
        }
        answers[i] = all;
        pair_close(&pair);
        chain_close(&chain);
    }
    XT_CHECK(answers[0] == answers[1]);
    XT_CHECK(answers[0] != answers[2]);
}

XT_TEST(asking_again_a_busy_plugin_draws_nothing)
{
    struct chain chain;
    struct pair pair;
    void *request;
    int posted = 0;

    chain_open(&chain, "fault:socket", "seed=1,error=0.01", NULL);
    pair_open(&pair, &chain);
    /* The socket takes no more than these; hundreds of draws would meet an error. */
    for (int i = 0; i < 3000; i++) {
        XT_OK(post_recv(&pair, 0, &request));
        posted += request != NULL;
    }
    XT_CHECK_INT(posted, XCCL_NET_MAX_REQUESTS);
    pair_close(&pair);
    chain_close(&chain);
}

XT_TEST(a_finished_request_is_told_after_a_later_one)
{
    struct chain chain;
    struct pair pair;
    void *send[2], *recv[2];
    int sent[2] = {0, 0}, done[2] = {0, 0}, first = -1, after = 0;

    chain_open(&chain, "fault:socket", "seed=1,reorder=1", NULL);
    pair_open(&pair, &chain);
    for (int i = 0; i < 2; i++) {
        XT_OK(post_send(&pair, i, 100, &send[i]));
        XT_OK(post_recv(&pair, i, &recv[i]));
    }
    for (int i = 0; i < 1000 && !(done[0] && done[1]); i++) {
        int at = i % 2;

        if (!sent[at])
            XT_OK(test_one(&pair, send[at], &sent[at], NULL));
        after += first == 1 && at == 0 && !done[0];
        if (!done[at])
            XT_OK(test_one(&pair, recv[at], &done[at], NULL));
        if (done[at] && first < 0)
            first = at;
    }
    XT_CHECK(done[0] && done[1]);
    XT_CHECK_INT(first, 1);
    /* Nothing later is left to go before it. */
    XT_CHECK_INT(after, 1);
    pair_close(&pair);
    chain_close(&chain);
}

/* Sends and receives until something fails; the error and its text. */
static xcclResult_t run_to_error(struct pair *pair, char *text_out, size_t bytes)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclResult_t rc = xcclSuccess;
    void *requests[2] = {NULL, NULL};

    while (rc == xcclSuccess) {
        if (!requests[0])
            rc = post_send(pair, 0, 1000, &requests[0]);
        if (rc == xcclSuccess && !requests[1])
            rc = post_recv(pair, 0, &requests[1]);
        for (int i = 0; rc == xcclSuccess && i < 2; i++) {
            int done = 0;

            if (requests[i])
                rc = test_one(pair, requests[i], &done, NULL);
            if (done)
                requests[i] = NULL;
        }
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    snprintf(text_out, bytes, "%s", xccl_error_text());
    return rc;
}

/* Every further call on the comm that failed gives the error again. */
static void check_it_stays(struct pair *pair, xcclResult_t want, const char *text)
{
    const xcclNetPlugin_v1_t *calls = pair->chain->calls;
    int is_send = strstr(text, "on send comm") != NULL, fd = 77;
    xcclNetError_v1 error = {.size = sizeof(error)};
    void *comm = is_send ? pair->send : pair->recv, *request;
    xcclNetMem_t mem = NULL;

    for (int i = 0; i < 3; i++) {
        xccl_error_set_text("");
        XT_CHECK_RC(is_send ? post_send(pair, 0, 8, &request) : post_recv(pair, 0, &request), want);
        XT_CHECK_TEXT(xccl_error_text(), text);
    }
    XT_CHECK_RC(calls->regMr(comm, pair->in, 8, XCCL_NET_PTR_HOST, &mem), want);
    XT_CHECK_RC(calls->waitFd(comm, &fd), want);
    XT_CHECK(mem == NULL && fd == 77);
    XT_OK(calls->errorDetail(comm, &error));
    XT_CHECK_INT(error.cause,
                 want == xcclRemoteError ? xcclNetCausePeerGone : xcclNetCauseLinkDown);
    XT_CHECK_TEXT(error.text, text);
}

static void fail_under(const char *fault, xcclResult_t want, char *text_out, size_t bytes)
{
    struct chain chain;
    struct pair pair;
    struct traffic traffic;
    struct pair other;

    chain_open(&chain, "fault:socket", fault, NULL);
    pair_open(&pair, &chain);
    XT_CHECK_RC(run_to_error(&pair, text_out, bytes), want);
    check_it_stays(&pair, want, text_out);
    /* Another comm of the instance is unharmed, up to its own first fault. */
    pair_open(&other, &chain);
    traffic_run(&traffic, &other, 1, 5);
    pair_close(&other);
    pair_close(&pair);
    chain_close(&chain);
}

XT_TEST(an_injected_error_is_told_stays_and_repeats)
{
    char text[2][512];

    for (int i = 0; i < 2; i++)
        fail_under("seed=12,error=0.02", xcclSystemError, text[i], sizeof(text[i]));
    XT_CHECK_HAS(text[0], "fault injected: the link has failed");
    XT_CHECK_HAS(text[0], "(seed 12, draw ");
    XT_CHECK_TEXT(text[0], text[1]);
}

XT_TEST(a_dead_peer_is_a_remote_error_that_stays)
{
    char text[512];

    fail_under("seed=5,dead=0.02,partial=0.3", xcclRemoteError, text, sizeof(text));
    XT_CHECK_HAS(text, "fault injected: the peer has died");
}

XT_TEST(a_dead_peer_ends_what_is_in_flight)
{
    struct chain chain;
    struct pair pair;
    void *request, *recv[WINDOW];
    xcclResult_t rc = xcclSuccess;
    int posted = 0, done = 0;

    chain_open(&chain, "fault:socket", "seed=6,dead=0.05", NULL);
    pair_open(&pair, &chain);
    /* What the peer has sent before does not count: nobody has been told of it. */
    XT_OK(post_send(&pair, 0, 8, &request));
    while (rc == xcclSuccess && posted < WINDOW) {
        rc = post_recv(&pair, 0, &recv[posted]);
        posted += rc == xcclSuccess;
    }
    XT_CHECK_RC(rc, xcclRemoteError);
    XT_CHECK(posted > 0);
    for (int i = 0; i < posted; i++) {
        XT_CHECK_RC(test_one(&pair, recv[i], &done, NULL), xcclRemoteError);
        XT_CHECK_HAS(xccl_error_text(), "the peer has died, irecv on receive comm 1");
        XT_CHECK_INT(done, 0);
    }
    pair_close(&pair);
    chain_close(&chain);
}

XT_TEST(what_was_complete_before_the_real_peer_closed_stays_complete)
{
    const char *const items[] = {"fault:socket", "trace:socket", "fault:trace:socket"};
    const char *folder = xt_tmpdir();
    char path[512];

    snprintf(path, sizeof(path), "%s/trace", folder);
    for (int i = 0; i < 3; i++) {
        struct xccl_limit limit = xccl_limit_ms(20000, NULL);
        struct chain chain;
        struct pair pair;
        void *send, *recv[3];
        xcclResult_t rc = xcclSuccess;
        int done = 0;

        chain_open(&chain, items[i], "seed=1,busy=0", path);
        pair_open(&pair, &chain);
        XT_OK(post_send(&pair, 0, 8, &send));
        while (!done)
            XT_OK(test_one(&pair, send, &done, NULL));
        XT_OK(chain.calls->closeSend(pair.send));
        XT_OK(post_recv(&pair, 0, &recv[0]));
        XT_OK(post_recv(&pair, 1, &recv[1]));
        for (done = 0; rc == xcclSuccess && !xccl_limit_passed(&limit);)
            rc = test_one(&pair, recv[1], &done, NULL);
        XT_CHECK_RC(rc, xcclRemoteError);
        XT_CHECK_HAS(xccl_error_text(), "closed the connection");
        XT_OK(test_one(&pair, recv[0], &done, NULL));
        XT_CHECK_INT(done, 1);
        XT_CHECK_RC(post_recv(&pair, 1, &recv[2]), xcclRemoteError);
        XT_CHECK_HAS(xccl_error_text(), "closed the connection");
        XT_OK(chain.calls->closeRecv(pair.recv));
        XT_OK(chain.calls->closeListen(pair.listener));
        free(pair.in);
        free(pair.out);
        chain_close(&chain);
    }
}

XT_TEST(a_registration_that_failed_can_be_asked_again)
{
    struct chain chain;
    struct pair pair;
    struct traffic traffic;
    int failed = 0;

    chain_open(&chain, "fault:socket", "seed=3,reg=0.5", NULL);
    pair_open(&pair, &chain);
    for (int i = 0; i < 40; i++) {
        xcclNetMem_t mem = NULL;
        xcclResult_t rc = told(
            &chain, chain.calls->regMr(pair.send, pair.out, 64, XCCL_NET_PTR_HOST, &mem));

        XT_CHECK((rc == xcclSuccess) == (mem != NULL));
        failed += rc != xcclSuccess;
        if (rc != xcclSuccess) {
            XT_CHECK_RC(rc, xcclSystemError);
            XT_CHECK_HAS(xccl_error_text(), "fault injected: no memory can be registered");
        } else {
            XT_OK(chain.calls->deregMr(pair.send, mem));
        }
    }
    XT_CHECK(failed > 5 && failed < 35);
    traffic_run(&traffic, &pair, 10, 1);
    pair_close(&pair);
    chain_close(&chain);
}

XT_TEST(an_injected_connect_error_leaves_nothing)
{
    xcclNetListenComm_t listener;
    xcclNetConnect_t state = NULL;
    xcclNetSendComm_t comm = NULL;
    xcclNetHandle_t handle;
    struct chain chain;

    chain_open(&chain, "fault:socket", "seed=3,error=1", NULL);
    XT_OK(chain.calls->listen(chain.ctx, 0, &handle, &listener));
    XT_CHECK_RC(told(&chain, chain.calls->connect(chain.ctx, 0, &handle, &state, &comm)),
                xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "fault injected: connect 1 is refused (seed 3, draw 1)");
    XT_CHECK(state == NULL && comm == NULL);
    XT_OK(chain.calls->closeListen(listener));
    chain_close(&chain);
}

XT_TEST(a_slow_connect_is_given_up_or_abandoned_without_a_trace)
{
    xcclNetConnect_t state = NULL, abandoned = NULL;
    xcclNetListenComm_t listener;
    xcclNetSendComm_t comm = NULL;
    xcclNetHandle_t handle;
    struct chain chain;

    chain_open(&chain, "fault:socket", "seed=3,slow_connect=1", NULL);
    XT_OK(chain.calls->listen(chain.ctx, 0, &handle, &listener));
    XT_OK(chain.calls->connect(chain.ctx, 0, &handle, &state, &comm));
    XT_OK(chain.calls->connect(chain.ctx, 0, &handle, &abandoned, &comm));
    XT_CHECK(state && abandoned && !comm);
    for (int i = 0; i < 12; i++)
        XT_OK(chain.calls->accept(listener, &comm));
    XT_CHECK(comm == NULL);
    XT_OK(chain.calls->closeConnect(chain.ctx, state));
    XT_OK(chain.calls->closeListen(listener));
    chain_close(&chain);
}

XT_TEST(closing_ends_sends_that_are_held_back)
{
    struct chain chain;
    struct pair pair;
    void *send[WINDOW], *recv;
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclResult_t rc = xcclSuccess;

    chain_open(&chain, "fault:socket", "seed=4,partial=1", NULL);
    pair_open(&pair, &chain);
    for (int i = 0; i < 3; i++)
        XT_OK(post_send(&pair, i, ROOM_BYTES, &send[i]));
    XT_OK(post_recv(&pair, 0, &recv));
    XT_OK(chain.calls->closeSend(pair.send));
    /* What the memory holds now must not arrive. */
    memset(pair.out, 0xee, WINDOW * ROOM_BYTES);
    while (rc == xcclSuccess && !xccl_limit_passed(&limit)) {
        int done = 0;

        rc = test_one(&pair, recv, &done, NULL);
        /* With partial=1 the wrapped plugin is never asked about a receive. */
        if (!done && rc == xcclSuccess)
            break;
    }
    for (size_t i = 0; i < ROOM_BYTES; i++)
        XT_CHECK(pair.in[i] == 0);
    XT_OK(chain.calls->closeRecv(pair.recv));
    XT_OK(chain.calls->closeListen(pair.listener));
    free(pair.in);
    free(pair.out);
    chain_close(&chain);
}

XT_TEST(the_first_to_be_waited_for_may_be_the_last_posted)
{
    struct chain chain;
    struct pair pair;
    void *send[200] = {NULL}, *recv[200] = {NULL};
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    int sends = 0, recvs = 0, done = 0;

    /* More sends than the socket takes: those that the hook holds need the slots of others. */
    chain_open(&chain, "fault:socket", "seed=4,partial=0.5", NULL);
    pair_open(&pair, &chain);
    while (sends < 100) {
        XT_OK(post_send(&pair, 0, 16, &send[sends]));
        if (!send[sends])
            break;
        sends++;
    }
    XT_CHECK(sends > 32);
    while (!done) {
        if (recvs < sends) {
            XT_OK(post_recv(&pair, 0, &recv[recvs]));
            recvs += recv[recvs] != NULL;
        }
        for (int i = 0; i < recvs; i++) {
            int received = 0;

            if (recv[i])
                XT_OK(test_one(&pair, recv[i], &received, NULL));
            if (received)
                recv[i] = NULL;
        }
        XT_OK(test_one(&pair, send[sends - 1], &done, NULL));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    for (int i = 0; i < sends - 1; i++) {
        for (done = 0; !done;) {
            XT_OK(test_one(&pair, send[i], &done, NULL));
            XT_CHECK(!xccl_limit_passed(&limit));
        }
    }
    XT_CHECK_RC(test_one(&pair, send[0], &done, NULL), xcclInvalidUsage);
    pair_close(&pair);
    chain_close(&chain);
}

XT_TEST(a_hook_around_nothing_says_what_to_write)
{
    struct chain chain;

    xt_setenv("XCCL_NET_TRACE", NULL);
    xt_setenv("XCCL_NET_FAULT", NULL);
    chain_load(&chain, "fault");
    XT_CHECK_RC(chain_init(&chain), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "fault is a hook");
    XT_CHECK_HAS(xccl_error_text(), "write fault:socket");
    chain_unload(&chain);
    chain_load(&chain, "trace");
    XT_CHECK_RC(chain_init(&chain), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "write trace:socket");
    chain_unload(&chain);
}

XT_TEST(a_setting_that_is_wrong_is_named)
{
    static const struct {
        const char *setting, *part;
    } cases[] = {
        {"bussy=0.1", "words are seed, delay_us, busy, delay, partial, reorder, slow_connect"},
        {"bussy=0.1", "'bussy=0.1'"},
        {"busy", "not a known WORD=VALUE"},
        {"busy=1.5", "'busy=1.5': the value must be 0 to 1"},
        {"busy=2", "0 to 1"},
        {"busy=", "0 to 1"},
        {"busy=.", "0 to 1"},
        {"delay=-1", "0 to 1"},
        {"delay=0.1x", "0 to 1"},
        {"seed=x", "up to 19 digits"},
        {"seed=1,delay_us=1000001", "0 to 1000000"},
        {"=1", "not a known WORD=VALUE"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct chain chain;

        xt_setenv("XCCL_NET_FAULT", cases[i].setting);
        chain_load(&chain, "fault:socket");
        XT_CHECK_RC(chain_init(&chain), xcclInvalidArgument);
        XT_CHECK_HAS(xccl_error_text(), "XCCL_NET_FAULT has '");
        XT_CHECK_HAS(xccl_error_text(), cases[i].part);
        chain_unload(&chain);
    }
}

XT_TEST(an_error_of_the_wrapped_plugin_passes_both_hooks)
{
    xcclNetProperties_v1 props = {.size = sizeof(props)};
    const char *folder = xt_tmpdir();
    xcclNetConnect_t state = NULL;
    xcclNetSendComm_t comm = NULL;
    xcclNetHandle_t handle;
    struct chain chain;
    char path[512];

    snprintf(path, sizeof(path), "%s/trace", folder);
    memset(&handle, 9, sizeof(handle));
    chain_open(&chain, "fault:trace:socket", "seed=1,busy=0.1", path);
    XT_CHECK_RC(told(&chain, chain.calls->properties(chain.ctx, 99, &props)), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "device 99 does not exist");
    XT_CHECK_RC(told(&chain, chain.calls->connect(chain.ctx, 0, &handle, &state, &comm)),
                xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "does not belong to wire version");
    XT_CHECK(state == NULL && comm == NULL);
    chain_close(&chain);
}

XT_TEST(a_flush_that_needs_no_waiting_waits_when_asked_to)
{
    const char *const settings[] = {"seed=1,busy=1", "seed=1,delay=1,delay_us=1000"};

    for (int i = 0; i < 2; i++) {
        struct xccl_limit limit = xccl_limit_ms(20000, NULL);
        struct chain chain;
        struct pair pair;
        void *request = &chain, *data;
        size_t bytes = 8;
        int done = 0;

        chain_open(&chain, "fault:socket", settings[i], NULL);
        pair_open(&pair, &chain);
        data = pair.in;
        XT_OK(told(&chain,
                   chain.calls->iflush(pair.recv, 1, &data, &bytes, &pair.recv_mem, &request)));
        /* Never busy: without a request the flush is done. */
        XT_CHECK_INT(request != NULL, i == 1);
        while (request && !done) {
            XT_OK(test_one(&pair, request, &done, NULL));
            XT_CHECK(!xccl_limit_passed(&limit));
        }
        pair_close(&pair);
        chain_close(&chain);
    }
}

/* ---- entries that the socket does not have ---- */

static char heard[512];

__attribute__((format(printf, 1, 2))) static xcclResult_t hear(const char *fmt, ...)
{
    size_t used = strlen(heard);
    va_list args;

    va_start(args, fmt);
    vsnprintf(heard + used, sizeof(heard) - used, fmt, args);
    va_end(args);
    return xcclSuccess;
}

static xcclResult_t hear_put(xcclNetSendComm_t comm, const void *data, size_t bytes,
                             xcclNetMem_t mem, const xcclNetMemKey_t *key, uint64_t offset,
                             xcclNetRequest_t *request)
{
    (void)comm;
    *request = NULL;
    return hear("put %s %zu %s %d %d;", (const char *)data, bytes, (char *)mem, key->bytes[0],
                (int)offset);
}

/* tidy: allow parameters because the contract's entry has as many */
static xcclResult_t hear_put_signal(xcclNetSendComm_t comm, const void *data, size_t bytes,
                                    xcclNetMem_t mem, const xcclNetMemKey_t *key, uint64_t offset,
                                    const xcclNetMemKey_t *signal_key, uint64_t signal_offset,
                                    uint64_t value, xcclNetRequest_t *request)
{
    (void)comm;
    *request = NULL;
    return hear("signal %s %zu %s %d %d %d %d %d;", (const char *)data, bytes, (char *)mem,
                key->bytes[0], (int)offset, signal_key->bytes[0], (int)signal_offset, (int)value);
}

static xcclResult_t hear_export(xcclNetRecvComm_t comm, xcclNetMem_t mem, xcclNetMemKey_t *key)
{
    (void)comm;
    key->bytes[0] = 9;
    return hear("export %s;", (char *)mem);
}

static xcclResult_t hear_dma_buf(void *comm, void *data, size_t bytes, uint32_t type,
                                 uint64_t offset, int fd, xcclNetMem_t *mem)
{
    (void)comm;
    *mem = data;
    return hear("dma %s %zu %u %d %d;", (char *)data, bytes, type, (int)offset, fd);
}

static xcclResult_t hear_merge(xcclNetContext_t ctx, const int *devs, int count, int *dev)
{
    (void)ctx;
    *dev = 5;
    return hear("merge %d %d %d;", devs[0], devs[1], count);
}

static xcclResult_t hear_detail(void *comm, xcclNetError_v1 *error)
{
    (void)comm;
    error->cause = xcclNetCauseTimeout;
    return hear("detail;");
}

static xcclResult_t hear_progress(xcclNetContext_t ctx, int *pending)
{
    (void)ctx;
    *pending = 1;
    return hear("progress;");
}

static void call_optional(struct chain *chain, struct pair *pair)
{
    const xcclNetPlugin_v1_t *calls = chain->calls;
    xcclNetMemKey_t keys[2] = {{{1}}, {{2}}};
    xcclNetError_v1 error = {.size = sizeof(error)};
    char data[] = "data", mem[] = "mem";
    xcclNetMem_t made = NULL;
    int devs[2] = {3, 4}, dev = 0, pending = 0;
    void *request = NULL;

    XT_OK(calls->iput(pair->send, data, 11, mem, &keys[0], 12, &request));
    XT_OK(calls->iputSignal(pair->send, data, 13, mem, &keys[0], 14, &keys[1], 15, 16, &request));
    XT_CHECK(request == NULL);
    XT_OK(calls->exportMr(pair->recv, mem, &keys[0]));
    XT_CHECK_INT(keys[0].bytes[0], 9);
    XT_OK(calls->regMrDmaBuf(pair->send, data, 17, XCCL_NET_PTR_HOST, 18, 19, &made));
    XT_CHECK(made == data);
    XT_OK(calls->mergeDevices(chain->ctx, devs, 2, &dev));
    XT_CHECK_INT(dev, 5);
    XT_OK(calls->errorDetail(pair->recv, &error));
    XT_CHECK_INT(error.cause, xcclNetCauseTimeout);
    XT_OK(calls->progress(chain->ctx, &pending));
    XT_CHECK_INT(pending, 1);
    XT_CHECK_TEXT(heard, "put data 11 mem 1 12;signal data 13 mem 1 14 2 15 16;export mem;"
                         "dma data 17 1 18 19;merge 3 4 2;detail;progress;");
}

XT_TEST(optional_entries_reach_the_wrapped_plugin)
{
    const char *folder = xt_tmpdir();
    char path[512];

    snprintf(path, sizeof(path), "%s/trace", folder);
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_NET_FAULT", "busy=0");
    xt_setenv("XCCL_NET_TRACE", path);
    for (int i = 0; i < 2; i++) {
        xcclNetPlugin_v1_t *inner;
        struct chain chain;
        struct pair pair;

        chain_load(&chain, i == 0 ? "fault:socket" : "trace:socket");
        inner = &chain.tables[1];
        inner->iput = hear_put;
        inner->iputSignal = hear_put_signal;
        inner->exportMr = hear_export;
        inner->regMrDmaBuf = hear_dma_buf;
        inner->mergeDevices = hear_merge;
        inner->errorDetail = hear_detail;
        inner->progress = hear_progress;
        XT_OK(chain_init(&chain));
        pair_open(&pair, &chain);
        heard[0] = 0;
        call_optional(&chain, &pair);
        pair_close(&pair);
        chain_close(&chain);
    }
}
