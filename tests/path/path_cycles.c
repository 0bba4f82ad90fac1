/* SPDX-License-Identifier: BSD-3-Clause */
/* A cycle opens both ends of a connection in this process, passes messages and closes it; the ends
 * take turns in closing first, so that the addresses which TCP keeps for a while afterwards are
 * those of either. Each fifty cycles the plugin's instance is another one. */
#include "path_cycles.h"

#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "path_stage.h"
#include "plugin/net_plugin.h"

#define MESSAGES      3
#define MESSAGE_BYTES ((size_t)256 << 10) /* spread over all streams */
#define AN_INSTANCE   50 /* cycles, then there is a new one */
#define RSS_BYTES     (1 << 20) /* that it may grow */

struct ends {
    struct xccl_net *net;
    int dev;
    void *send, *recv;
    xcclNetMem_t send_mem, recv_mem;
};

static char out[MESSAGES][MESSAGE_BYTES], in[MESSAGES][MESSAGE_BYTES];

/* ---- what there is ---- */

struct usage {
    int fds, threads;
    long rss_bytes;
};

static struct usage usage_now(void)
{
    struct usage usage = {xt_entries("/proc/self/fd"), xt_entries("/proc/self/task"), 0};
    FILE *file = fopen("/proc/self/statm", "re");

    XT_CHECK(file != NULL);
    XT_CHECK_INT(fscanf(file, "%*d %ld", &usage.rss_bytes), 1);
    fclose(file);
    usage.rss_bytes *= sysconf(_SC_PAGESIZE);
    return usage;
}

/* ---- a cycle ---- */

static void own_network(void)
{
    struct ifreq request = {.ifr_name = "lo"};
    int fd;

    if (unshare(CLONE_NEWNET) != 0)
        return;
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    XT_CHECK(fd >= 0);
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    XT_CHECK_INT(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    close(fd);
}

static void instance_open(struct ends *ends, const char *item, const char *device)
{
    static const struct xccl_net_open_args args = {
        .nranks = 2, .comm_name = "cycles", .traffic_class = -1};

    XT_OK(xccl_net_open_item(item, &args, &ends->net));
    for (ends->dev = 0; ends->dev < ends->net->device_count; ends->dev++) {
        xcclNetProperties_v1 props = {.size = sizeof(props)};

        XT_OK(ends->net->calls.properties(ends->net->ctx, ends->dev, &props));
        if (!device || strcmp(props.name, device) == 0)
            return;
    }
    XT_FAIL("the plugin has no device %s", device ? device : "at all");
}

static void connect_both(struct ends *ends)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    const xcclNetPlugin_v1_t *calls = &ends->net->calls;
    xcclNetListenComm_t listener = NULL;
    xcclNetConnect_t state = NULL;
    xcclNetHandle_t handle;

    ends->send = NULL;
    ends->recv = NULL;
    XT_OK(calls->listen(ends->net->ctx, ends->dev, &handle, &listener));
    while (!ends->send || !ends->recv) {
        if (!ends->send)
            XT_OK(calls->connect(ends->net->ctx, ends->dev, &handle, &state, &ends->send));
        if (!ends->recv)
            XT_OK(calls->accept(listener, &ends->recv));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_OK(calls->closeListen(listener));
    XT_OK(calls->regMr(ends->send, out, sizeof(out), XCCL_NET_PTR_HOST, &ends->send_mem));
    XT_OK(calls->regMr(ends->recv, in, sizeof(in), XCCL_NET_PTR_HOST, &ends->recv_mem));
}

static void transfer(struct ends *ends, uint64_t cycle)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    const xcclNetPlugin_v1_t *calls = &ends->net->calls;
    void *requests[2 * MESSAGES] = {NULL};
    int left = 2 * MESSAGES;

    for (int i = 0; i < MESSAGES; i++) {
        void *to = in[i];
        size_t bytes = MESSAGE_BYTES;
        uint32_t tag = 1;

        memcpy(out[i], &cycle, sizeof(cycle));
        XT_OK(calls->irecv(ends->recv, 1, &to, &bytes, &tag, &ends->recv_mem, &requests[2 * i]));
        XT_OK(calls->isend(ends->send, out[i], i ? MESSAGE_BYTES : 8, 1, ends->send_mem,
                           &requests[2 * i + 1]));
    }
    while (left > 0) {
        XT_CHECK(!xccl_limit_passed(&limit));
        for (int i = 0; i < 2 * MESSAGES; i++) {
            int done = 0;

            if (!requests[i])
                continue;
            XT_OK(calls->test(requests[i], &done, NULL));
            left -= done;
            requests[i] = done ? NULL : requests[i];
        }
    }
    for (int i = 0; i < MESSAGES; i++)
        XT_CHECK(memcmp(in[i], &cycle, sizeof(cycle)) == 0);
}

static void close_both(struct ends *ends, int sender_first)
{
    const xcclNetPlugin_v1_t *calls = &ends->net->calls;

    if (sender_first)
        XT_OK(calls->closeSend(ends->send));
    XT_OK(calls->closeRecv(ends->recv));
    if (!sender_first)
        XT_OK(calls->closeSend(ends->send));
}

void path_cycles(const char *item, const char *device, const char *what)
{
    const char *text = getenv("XT_CYCLES");
    int cycles = text ? atoi(text) : 300;
    struct usage before = {0, 0, 0}, after;
    double begin = path_seconds();
    struct ends ends;

    own_network();
    xt_set_error_source(xccl_error_text);
    instance_open(&ends, item, device);
    for (int i = 0; i < 2 * AN_INSTANCE + cycles; i++) {
        if (i % AN_INSTANCE == AN_INSTANCE - 1) {
            xccl_net_close(ends.net);
            instance_open(&ends, item, device);
        }
        /* Two instances have come and gone: what is made once is there. */
        if (i == 2 * AN_INSTANCE)
            before = usage_now();
        connect_both(&ends);
        transfer(&ends, (uint64_t)i);
        close_both(&ends, i % 2);
    }
    after = usage_now();
    xccl_net_close(ends.net);
    path_figure("cycles: %d over %s: %.0f us each; %d descriptors, %d threads, memory %+ld KiB",
                cycles, what, (path_seconds() - begin) * 1e6 / (cycles + 2 * AN_INSTANCE),
                after.fds - before.fds, after.threads - before.threads,
                (after.rss_bytes - before.rss_bytes) / 1024);
    XT_CHECK_INT(after.fds, before.fds);
    XT_CHECK_INT(after.threads, before.threads);
#ifndef XCCL_SANITIZED
    /* Sanitizers keep what was freed. */
    XT_CHECK(after.rss_bytes <= before.rss_bytes + RSS_BYTES);
#endif
}
