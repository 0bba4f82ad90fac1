/* SPDX-License-Identifier: BSD-3-Clause */
/* XCCL_NET_ENCRYPT and the socket plugin: two settings are an error that both ends get, a caller
 * who sleeps misses nothing of what was opened ahead, other plugins are refused by the name of the
 * setting, and each device says that it can. What somebody on the way does is in
 * fault/test_middleman.c. */
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>

#include "sock_pair.h"

#define SMALL 40
#define LARGE ((size_t)3 << 20)

/* An instance of its own, whatever the setting is. */
static xcclNetContext_t instance(const struct xccl_net *net, int encrypt)
{
    xcclNetInit_v1 init = {.size = sizeof(init),
                           .rank = 0,
                           .nranks = 2,
                           .commName = "test",
                           .trafficClass = -1,
                           .encrypt = encrypt};
    xcclNetContext_t ctx = NULL;

    XT_OK(net->calls.init(&init, &ctx));
    return ctx;
}

/* Connects until both ends have an error; gives their texts. */
static void meet(struct pair *pair, xcclNetContext_t sender, char texts_out[2][512])
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclNetConnect_t state = NULL;

    texts_out[0][0] = texts_out[1][0] = 0;
    while (!texts_out[0][0] || !texts_out[1][0]) {
        if (!texts_out[0][0] &&
            pair->net->calls.connect(sender, 0, &pair->handle, &state, &pair->send) != xcclSuccess)
            snprintf(texts_out[0], 512, "%s", pair->net->calls.lastError(NULL));
        if (!texts_out[1][0] && pair->net->calls.accept(pair->listener, &pair->recv) != xcclSuccess)
            snprintf(texts_out[1], 512, "%s", pair->net->calls.lastError(NULL));
        XT_CHECK(!pair->send && !pair->recv);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
}

static void differ(const char *streams, int sends, int receives, const char *there,
                   const char *here)
{
    struct pair pair = {.net = NULL};
    char texts[2][512];
    xcclNetContext_t sender, receiver;

    xt_setenv("XCCL_SOCKET_STREAMS", streams);
    pair.net = net_open();
    sender = instance(pair.net, sends);
    receiver = instance(pair.net, receives);
    XT_OK(pair.net->calls.listen(receiver, 0, &pair.handle, &pair.listener));
    meet(&pair, sender, texts);
    XT_CHECK_HAS(texts[0], there);
    XT_CHECK_HAS(texts[1], here);
    XT_CHECK_HAS(texts[0], "set XCCL_NET_ENCRYPT to the same on all ranks");
    XT_OK(pair.net->calls.closeListen(pair.listener));
    XT_OK(pair.net->calls.finalize(sender));
    XT_OK(pair.net->calls.finalize(receiver));
    xccl_net_close(pair.net);
}

XT_TEST(settings_that_differ_are_an_error_at_both_ends)
{
    differ("1", XCCL_NET_ENCRYPT_FULL, XCCL_NET_ENCRYPT_MAC, "XCCL_NET_ENCRYPT is 1 here and mac",
           "XCCL_NET_ENCRYPT is mac here and 1");
}

XT_TEST(one_end_without_the_setting_is_an_error_at_both)
{
    differ("3", XCCL_NET_ENCRYPT_NONE, XCCL_NET_ENCRYPT_FULL, "XCCL_NET_ENCRYPT is 0 here and 1",
           "XCCL_NET_ENCRYPT is 1 here and 0");
}

XT_TEST(a_plugin_that_cannot_is_refused_by_the_name_of_the_setting)
{
    static const struct xccl_net_open_args args = {.nranks = 2, .comm_name = "test"};
    struct xccl_net *net = NULL;

    xt_setenv("XCCL_NET_ENCRYPT", "mac");
    XT_CHECK(xccl_net_open_item(XT_BUILD_DIR "/lib/fixtures/libxccl-net-fx-minimal.so", &args,
                                &net) != xcclSuccess);
    XT_CHECK_HAS(xccl_error_text(), "XCCL_NET_ENCRYPT=mac is set");
    XT_CHECK_HAS(xccl_error_text(), "the socket plugin can");
}

/* Sleeps whenever test says no, each time for as long as it takes: a wake-up that is missing is the
 * test's deadline. */
static void sleep_through(struct pair *pair, void **requests, int count)
{
    struct pollfd asleep = {.events = POLLIN};

    XT_OK(pair->net->calls.waitFd(pair->recv, &asleep.fd));
    for (int i = 0; i < count; i++) {
        int done = 0;
        size_t bytes;

        while (!done) {
            XT_OK(pair->net->calls.test(requests[i], &done, &bytes));
            if (!done && poll(&asleep, 1, 5000) == 0)
                XT_FAIL("nobody woke the receiver for message %d", i);
        }
    }
}

/* The sender has all with the kernel, or in a process of its own. */
static void send_all(struct pair *pair)
{
    void *sends[SMALL + 2];
    int left = 0;

    for (int i = 0; i < SMALL + 2; i++) {
        size_t bytes = i == SMALL / 2 || i == SMALL + 1 ? LARGE : 100 + (size_t)i;

        sends[left++] = post_send(pair, big, bytes);
    }
    for (int i = 0; i < left; i++)
        XT_OK(finish(pair, sends[i], NULL));
}

static void sleeper(const char *encrypt, const char *streams, const char *threads)
{
    struct pair pair;
    void *recvs[SMALL + 2];
    int pid;

    xt_setenv("XCCL_NET_ENCRYPT", encrypt);
    xt_setenv("XCCL_SOCKET_STREAMS", streams);
    xt_setenv("XCCL_SOCKET_THREADS", threads);
    pair_open(&pair);
    fill(big, LARGE, 3);
    pid = fork(); /* it has the sending end only */
    XT_CHECK(pid >= 0);
    if (pid == 0) {
        send_all(&pair);
        _exit(0);
    }
    for (int round = 0; round < SMALL + 2; round += 14) {
        for (int i = 0; i < 14; i++) {
            int at = round + i;

            recvs[i] = post_recv(&pair, big + LARGE,
                                 at == SMALL / 2 || at == SMALL + 1 ? LARGE : 100 + (size_t)at);
        }
        sleep_through(&pair, recvs, 14);
    }
    expect(big + LARGE, LARGE, 3);
    XT_OK(pair.net->calls.closeRecv(pair.recv));
    XT_CHECK_INT(waitpid(pid, NULL, 0), pid);
    pair.recv = NULL;
    pair_close(&pair);
}

XT_TEST_DEADLINE(who_sleeps_is_woken_for_all_that_comes_in_records, 30)
{
    sleeper("1", "1", "0");
}

XT_TEST_DEADLINE(who_sleeps_is_woken_for_all_that_comes_in_records_of_streams, 30)
{
    sleeper("mac", "3", "0");
}
