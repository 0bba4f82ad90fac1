/* SPDX-License-Identifier: BSD-3-Clause */
/* See path_flow.h. A message of 16 bytes or more begins with its number and a hash of the rest,
 * which is drawn from the number; a shorter one is its number's low byte again and again.
 *
 * Thread: the main one of a process. */
#include "path_flow.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"

#define HEAD_BYTES 16
#define OPEN_MS    15000

/* ---- messages ---- */

/* Small ones, those of one line, and those that are spread over several. */
static size_t drawn_bytes(uint64_t number)
{
    uint64_t state = number, dice = xt_random(&state), size = xt_random(&state);

    switch (dice % 8) {
    case 0:
        return size % 64;
    case 1:
    case 2:
    case 3:
        return size % (16 << 10);
    case 4:
    case 5:
        return size % (128 << 10);
    default:
        return (128 << 10) + size % (PATH_MESSAGE_MAX - (128 << 10) + 1);
    }
}

static size_t message_bytes(const struct path_flow *flow, uint64_t number)
{
    size_t drawn = drawn_bytes(number);

    if (flow->bytes)
        return flow->bytes;
    return flow->most && drawn > flow->most ? drawn % (flow->most + 1) : drawn;
}

static uint64_t hash_of(const char *data, size_t bytes)
{
    uint64_t hash = bytes, word;
    size_t at = 0;

    for (; at + sizeof(word) <= bytes; at += sizeof(word)) {
        memcpy(&word, data + at, sizeof(word));
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    for (; at < bytes; at++)
        hash = (hash ^ (uint8_t)data[at]) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

static void message_write(char *data, size_t bytes, uint64_t number)
{
    uint64_t state = ~number, word;

    if (bytes < HEAD_BYTES) {
        memset(data, (int)(number & 0xff), bytes);
        return;
    }
    for (size_t at = HEAD_BYTES; at < bytes; at += sizeof(word)) {
        size_t part = bytes - at < sizeof(word) ? bytes - at : sizeof(word);

        word = xt_random(&state);
        memcpy(data + at, &word, part);
    }
    memcpy(data, &number, sizeof(number));
    word = hash_of(data + HEAD_BYTES, bytes - HEAD_BYTES);
    memcpy(data + sizeof(number), &word, sizeof(word));
}

static void message_check(const char *data, size_t bytes, uint64_t number)
{
    uint64_t has, hash;

    for (size_t at = 0; at < bytes && bytes < HEAD_BYTES; at++)
        XT_CHECK_INT((uint8_t)data[at], number & 0xff);
    if (bytes < HEAD_BYTES)
        return;
    memcpy(&has, data, sizeof(has));
    memcpy(&hash, data + sizeof(has), sizeof(hash));
    if (has != number)
        XT_FAIL("message %llu came where %llu should be", (unsigned long long)has,
                (unsigned long long)number);
    if (hash != hash_of(data + HEAD_BYTES, bytes - HEAD_BYTES))
        XT_FAIL("message %llu of %zu bytes arrived damaged", (unsigned long long)number, bytes);
}

/* ---- instances ---- */

struct xccl_net *path_net_open_item(const char *item, int ipv6)
{
    static const struct xccl_net_open_args args = {
        .nranks = 2, .comm_name = "path", .traffic_class = -1};
    struct xccl_net *net = NULL;

    xt_set_error_source(xccl_error_text);
    xt_setenv("XCCL_SOCKET_IFNAME", "rail");
    xt_setenv("XCCL_SOCKET_FAMILY", ipv6 ? "ipv6" : "ipv4");
    XT_OK(xccl_net_open_item(item, &args, &net));
    return net;
}

struct xccl_net *path_net_open(int ipv6)
{
    return path_net_open_item("socket", ipv6);
}

int path_net_device(const struct xccl_net *net, int rail)
{
    char name[16];

    snprintf(name, sizeof(name), "rail%d", rail);
    for (int dev = 0; dev < net->device_count; dev++) {
        xcclNetProperties_v1 props = {.size = sizeof(props)};

        XT_OK(net->calls.properties(net->ctx, dev, &props));
        if (strcmp(props.name, name) == 0)
            return dev;
    }
    XT_FAIL("the plugin has no device %s", name);
}

int path_net_merge(const struct xccl_net *net)
{
    const int devs[2] = {path_net_device(net, 0), path_net_device(net, 1)};
    int dev = -1, again = -1;
    xcclResult_t rc = net->calls.mergeDevices(net->ctx, devs, 2, &dev);

    if (rc == xcclInvalidUsage)
        XT_SKIP("this plugin does not merge devices");
    XT_OK(rc);
    XT_OK(net->calls.mergeDevices(net->ctx, devs, 2, &again));
    XT_CHECK_INT(again, dev);
    return dev;
}

/* ---- connections ---- */

static void flow_connect(struct path_flow *flow, int dev)
{
    struct xccl_limit limit = xccl_limit_ms(OPEN_MS, NULL);
    const xcclNetPlugin_v1_t *calls = &flow->net->calls;
    xcclNetConnect_t state = NULL;

    path_word_await(&flow->meet->ready, 1);
    while (!flow->comm) {
        XT_OK(calls->connect(flow->net->ctx, dev, &flow->meet->handle, &state, &flow->comm));
        XT_CHECK(!xccl_limit_passed(&limit));
        if (!flow->comm)
            path_nap_ms(1);
    }
}

static void flow_accept(struct path_flow *flow, int dev)
{
    struct xccl_limit limit = xccl_limit_ms(OPEN_MS, NULL);
    const xcclNetPlugin_v1_t *calls = &flow->net->calls;
    xcclNetListenComm_t listener = NULL;

    XT_OK(calls->listen(flow->net->ctx, dev, &flow->meet->handle, &listener));
    path_word_set(&flow->meet->ready, 1);
    while (!flow->comm) {
        XT_OK(calls->accept(listener, &flow->comm));
        XT_CHECK(!xccl_limit_passed(&limit));
        if (!flow->comm)
            path_nap_ms(1);
    }
    XT_OK(calls->closeListen(listener));
}

void path_flow_open(struct path_flow *flow, struct xccl_net *net, int dev, struct path_meet *meet,
                    int is_send)
{
    size_t bytes = flow->bytes, most = flow->most;

    memset(flow, 0, sizeof(*flow));
    flow->net = net;
    flow->meet = meet;
    flow->is_send = is_send;
    flow->bytes = bytes;
    flow->most = most;
    if (is_send)
        flow_connect(flow, dev);
    else
        flow_accept(flow, dev);
    flow->memory = calloc(PATH_DEPTH, PATH_MESSAGE_MAX);
    XT_CHECK(flow->memory != NULL);
    XT_OK(net->calls.regMr(flow->comm, flow->memory, PATH_DEPTH * PATH_MESSAGE_MAX,
                           XCCL_NET_PTR_HOST, &flow->mem));
    XT_OK(net->calls.waitFd(flow->comm, &flow->wait_fd));
    flow->last_s = path_seconds();
}

void path_flow_close(struct path_flow *flow)
{
    const xcclNetPlugin_v1_t *calls = &flow->net->calls;
    xcclResult_t rc = calls->deregMr(flow->comm, flow->mem);

    /* After an error it may say that again. */
    XT_CHECK(rc == xcclSuccess || flow->rc != xcclSuccess);
    XT_OK(flow->is_send ? calls->closeSend(flow->comm) : calls->closeRecv(flow->comm));
    free(flow->memory);
    flow->comm = NULL;
}

/* ---- moving ---- */

/* The comm's own words; where it has none, the instance's. */
static void flow_fail(struct path_flow *flow, xcclResult_t rc)
{
    xcclNetError_v1 error = {.size = sizeof(error)};
    const char *last = flow->net->calls.lastError(flow->net->ctx);

    flow->rc = rc;
    flow->failed_s = path_seconds();
    snprintf(flow->text, sizeof(flow->text), "%s", last);
    if (flow->net->calls.errorDetail(flow->comm, &error) != xcclSuccess)
        return;
    flow->cause = (xcclNetCause_t)error.cause;
    snprintf(flow->peer, sizeof(flow->peer), "%s", error.peer ? error.peer : "");
}

static void flow_post(struct path_flow *flow)
{
    const xcclNetPlugin_v1_t *calls = &flow->net->calls;

    while (!flow->quiet && flow->rc == xcclSuccess) {
        struct path_slot *slot = &flow->slots[flow->posted % PATH_DEPTH];
        void *data = flow->memory + (flow->posted % PATH_DEPTH) * PATH_MESSAGE_MAX;
        size_t bytes = flow->is_send ? message_bytes(flow, flow->posted) : PATH_MESSAGE_MAX;
        uint32_t tag = (uint32_t)flow->posted;
        xcclResult_t rc;

        if (slot->request)
            return;
        if (flow->is_send && !flow->bytes)
            message_write(data, bytes, flow->posted);
        rc = flow->is_send
                 ? calls->isend(flow->comm, data, bytes, tag, flow->mem, &slot->request)
                 : calls->irecv(flow->comm, 1, &data, &bytes, &tag, &flow->mem, &slot->request);
        if (rc != xcclSuccess)
            flow_fail(flow, rc);
        if (!slot->request)
            return;
        slot->number = flow->posted++;
    }
}

static void slot_done(struct path_flow *flow, struct path_slot *slot, size_t bytes)
{
    const char *data = flow->memory + (size_t)(slot - flow->slots) * PATH_MESSAGE_MAX;
    double now = path_seconds();

    XT_CHECK_INT(bytes, message_bytes(flow, slot->number));
    if (!flow->is_send && !flow->bytes)
        message_check(data, bytes, slot->number);
    slot->request = NULL;
    flow->done++;
    flow->payload += bytes;
    if (now - flow->last_s > flow->gap_s)
        flow->gap_s = now - flow->last_s;
    flow->last_s = now;
}

/* Oldest first. */
static void flow_test(struct path_flow *flow)
{
    for (uint64_t i = 0; i < PATH_DEPTH; i++) {
        struct path_slot *slot = &flow->slots[(flow->posted + i) % PATH_DEPTH];
        size_t bytes = 0;
        int done = 0;
        xcclResult_t rc;

        if (!slot->request)
            continue;
        rc = flow->net->calls.test(slot->request, &done, &bytes);
        if (rc != xcclSuccess && flow->rc == xcclSuccess)
            flow_fail(flow, rc);
        else if (rc == xcclSuccess && done)
            slot_done(flow, slot, bytes);
    }
}

int path_flow_move(struct path_flow *flow)
{
    uint64_t before = flow->done;

    if (flow->rc != xcclSuccess)
        return 0;
    flow_post(flow);
    flow_test(flow);
    /* What was complete before an error stays complete. */
    if (flow->rc != xcclSuccess)
        flow_test(flow);
    return (int)(flow->done - before);
}

void path_flow_rest(struct path_flow *const *flows, int count, int ms)
{
    struct pollfd polled[16];
    nfds_t used = 0;

    for (int i = 0; i < count && used < 16; i++) {
        if (flows[i]->rc == xcclSuccess && flows[i]->wait_fd >= 0)
            polled[used++] = (struct pollfd){.fd = flows[i]->wait_fd, .events = POLLIN};
    }
    (void)poll(polled, used, ms);
}

void path_flow_turn(struct path_flow *flow)
{
    if (!path_flow_move(flow))
        path_flow_rest(&flow, 1, 2);
}

static void flow_must(const struct path_flow *flow)
{
    if (flow->rc != xcclSuccess)
        XT_FAIL("%s after %llu messages: %s", flow->is_send ? "send" : "receive",
                (unsigned long long)flow->done, flow->text);
}

void path_flow_end(struct path_flow *flow)
{
    struct xccl_limit limit = xccl_limit_ms(PATH_WAIT_MS, NULL);
    uint64_t total = flow->posted;

    flow->windows++;
    if (flow->is_send) {
        flow->quiet = 1;
        flow->meet->total = total;
        path_word_set(&flow->meet->stopped, flow->windows);
    }
    /* What the receiver has posted beyond the last message waits for the next window. */
    for (;;) {
        if (!flow->is_send && path_word_get(&flow->meet->stopped) >= flow->windows)
            total = flow->meet->total;
        else if (!flow->is_send)
            total = UINT64_MAX;
        if (flow->done >= total)
            break;
        path_flow_turn(flow);
        /* After its last message the sender may have closed: a receive beyond that says so. */
        if (flow->is_send || path_word_get(&flow->meet->stopped) < flow->windows ||
            flow->done < flow->meet->total)
            flow_must(flow);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_CHECK_INT(flow->done, total);
    flow->quiet = 0;
}

/* What all rails of this host have received, less the framing of TCP. */
static double rails_bytes(const struct path_flow *flow)
{
    struct path_counters counters;
    double bytes = 0;

    for (int i = 0; i < flow->net->device_count; i++) {
        xcclNetProperties_v1 props = {.size = sizeof(props)};
        int rail;

        XT_OK(flow->net->calls.properties(flow->net->ctx, i, &props));
        if (props.memberCount > 0 || sscanf(props.name, "rail%d", &rail) != 1)
            continue;
        path_counters_read(rail, &counters);
        bytes += (double)counters.recv_bytes - (double)counters.recv_packets * PATH_HEADER_BYTES;
    }
    return bytes;
}

static void sender_rate(struct path_flow *flow, double time_s)
{
    double end = path_seconds() + time_s + PATH_WAIT_MS * 1e-3;

    while (path_word_get(&flow->meet->stop) <= flow->windows) {
        path_flow_turn(flow);
        flow_must(flow);
        XT_CHECK(path_seconds() < end);
    }
    path_flow_end(flow);
}

double path_flow_rate(struct path_flow *flow, double warm_s, double time_s)
{
    double begin = path_seconds(), first_s = 0, now_s = begin, first = 0, now;

    if (flow->is_send) {
        sender_rate(flow, warm_s + time_s);
        return 0;
    }
    while (now_s < begin + warm_s + time_s) {
        path_flow_turn(flow);
        flow_must(flow);
        now_s = path_seconds();
        if (first_s > 0 || now_s < begin + warm_s)
            continue;
        first = rails_bytes(flow);
        first_s = now_s;
    }
    now = rails_bytes(flow);
    now_s = path_seconds();
    path_word_set(&flow->meet->stop, flow->windows + 1);
    path_flow_end(flow);
    return (now - first) / (now_s - first_s);
}
