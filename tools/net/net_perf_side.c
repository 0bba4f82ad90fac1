/* SPDX-License-Identifier: BSD-3-Clause */
/* One side of `xccl net perf`, from its first to its last word with the program: opens a plugin,
 * connects, lets net_perf_round.c move messages, and closes.
 *
 * Limits: host memory. Nothing here waits without a deadline.
 * Thread: one a side. */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/os.h"
#include "base/param.h"
#include "cf_hosts.h"
#include "net/net_perf_side_int.h"
#include "plugin/net_plugin.h"

#define PAGE_BYTES 4096u

/* ---- errors ---- */

int netperf_fail(struct netperf_side *side, const char *fmt, ...)
{
    va_list args;

    if (side->error[0])
        return 0;
    va_start(args, fmt);
    vsnprintf(side->error, sizeof(side->error), fmt, args);
    va_end(args);
    return 0;
}

int netperf_call_failed(struct netperf_side *side, xcclResult_t rc, const char *call, int flow)
{
    const char *text = side->net->calls.lastError(side->net->ctx);

    side->follows = rc == xcclRemoteError;
    return netperf_fail(side, "%s of flow %d: %s: %s", call, flow, xccl_result_text(rc),
                        text && *text ? text : "the plugin does not say why");
}

/* ---- from open to close ---- */

/* By its number or its name. */
static int find_device(struct netperf_side *side)
{
    const char *wanted = side->args->options->device;
    char *end = NULL;
    long number = wanted ? strtol(wanted, &end, 10) : 0;

    if (!wanted || (end != wanted && *end == '\0')) {
        if (number < 0 || number >= side->net->device_count)
            return netperf_fail(side, "there is no device %ld: devices are 0 to %d", number,
                                side->net->device_count - 1);
        side->dev = (int)number;
        return 1;
    }
    for (int i = 0; i < side->net->device_count; i++) {
        xcclNetProperties_v1 props = {.size = sizeof(props)};

        if (side->net->calls.properties(side->net->ctx, i, &props) == xcclSuccess && props.name &&
            strcmp(props.name, wanted) == 0) {
            side->dev = i;
            return 1;
        }
    }
    return netperf_fail(side, "there is no device %s (see xccl net list)", wanted);
}

/* Each side to a core of its own, before the plugin starts helper threads, which follow it. */
static int pin(struct netperf_side *side)
{
    cpu_set_t may, own;
    int wanted = side->args->number;

    CPU_ZERO(&may);
    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof(may), &may) != 0 || CPU_COUNT(&may) < 2)
        return netperf_fail(side, "--pin needs two cores");
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&own) == 0; core++) {
        if (CPU_ISSET(core, &may) && wanted-- == 0)
            CPU_SET(core, &own);
    }
    if (sched_setaffinity(0, sizeof(own), &own) != 0)
        return netperf_fail(side, "--pin: %s", strerror(errno));
    return 1;
}

static int do_open(struct netperf_side *side, struct xccl_netperf_message *message)
{
    struct xccl_net_open_args open_args = {.comm_id = 1,
                                           .rank = side->args->number,
                                           .nranks = 2,
                                           .comm_name = "net perf",
                                           .traffic_class = -1};
    struct xccl_netperf_about about = {.pid = (int32_t)getpid()};
    xcclNetProperties_v1 props = {.size = sizeof(props)};
    xcclResult_t rc = xcclSuccess;

    if (side->args->options->pin && !pin(side))
        return 0;
    if (side->args->options->hosts &&
        !cf_hosts_enter(side->args->options->hosts, side->args->number))
        return netperf_fail(side, "--hosts: cannot enter the network namespace: %s",
                            strerror(errno));
    rc = xccl_net_open_item(side->args->item, &open_args, &side->net);
    if (rc != xcclSuccess) {
        /* The log has shown it, unless it goes into a file. */
        side->told = !*xccl_param_string(XCCL_P_DEBUG_FILE);
        side->net = NULL;
        return netperf_fail(side, "%s", xccl_error_text());
    }
    if (!find_device(side))
        return 0;
    rc = side->net->calls.properties(side->net->ctx, side->dev, &props);
    if (rc != xcclSuccess)
        return netperf_call_failed(side, rc, "properties", 0);
    if (!(props.ptrSupport & XCCL_NET_PTR_HOST))
        return netperf_fail(side, "device %d does not support host memory", side->dev);
    snprintf(about.path, sizeof(about.path), "%s", side->net->path);
    snprintf(about.contract, sizeof(about.contract), "%s", side->net->contract);
    snprintf(about.wire_id, sizeof(about.wire_id), "%s", side->net->wire_id);
    snprintf(about.device, sizeof(about.device), "%s", props.name ? props.name : "");
    snprintf(about.provider, sizeof(about.provider), "%s", props.provider ? props.provider : "");
    about.max_bytes = props.maxBytes;
    about.speed_mbps = props.speedMbps;
    about.needs_progress = side->needs_progress = props.needsProgress != 0;
    message->about = about;
    return 1;
}

static int do_listen(struct netperf_side *side, struct xccl_netperf_message *message)
{
    side->flow_count = message->count;
    for (int i = 0; i < side->flow_count; i++) {
        xcclResult_t rc = side->net->calls.listen(side->net->ctx, side->dev, &message->handles[i],
                                                  &side->flows[i].listener);

        if (rc != xcclSuccess)
            return netperf_call_failed(side, rc, "listen", i);
    }
    return 1;
}

/* A turn of connecting: 1 when both connections of the flow are up, 0 not yet, -1 failed. */
static int connect_step(struct netperf_side *side, int i, const xcclNetHandle_t *handle)
{
    const xcclNetPlugin_v1_t *calls = &side->net->calls;
    struct netperf_flow *flow = &side->flows[i];
    xcclResult_t rc = xcclSuccess;

    if (!flow->ends[NETPERF_OUT].comm)
        rc = calls->connect(side->net->ctx, side->dev, handle, &flow->connect,
                            &flow->ends[NETPERF_OUT].comm);
    if (rc != xcclSuccess) {
        netperf_call_failed(side, rc, "connect", i);
        return -1;
    }
    if (!flow->ends[NETPERF_IN].comm)
        rc = calls->accept(flow->listener, &flow->ends[NETPERF_IN].comm);
    if (rc != xcclSuccess) {
        netperf_call_failed(side, rc, "accept", i);
        return -1;
    }
    return flow->ends[NETPERF_OUT].comm && flow->ends[NETPERF_IN].comm;
}

static int connect_all(struct netperf_side *side, const xcclNetHandle_t *handles)
{
    uint64_t deadline_ns = xccl_clock_ns() + side->args->options->timeout_ms * XCCL_NS_PER_MS;
    int up = 0;

    while (up < side->flow_count) {
        up = 0;
        for (int i = 0; i < side->flow_count; i++) {
            int step = connect_step(side, i, &handles[i]);

            if (step < 0)
                return 0;
            up += step;
        }
        if (up < side->flow_count && xccl_clock_ns() > deadline_ns)
            return netperf_fail(side,
                                "%d of %d flows are connected after %" PRIu64 " ms (--timeout)", up,
                                side->flow_count, side->args->options->timeout_ms);
        sched_yield();
    }
    return 1;
}

static int make_memory(struct netperf_side *side, const struct xccl_netperf_message *message)
{
    side->room_bytes = message->room_bytes + PAGE_BYTES;
    side->pattern_bytes = message->max_bytes + XCCL_NETPERF_PATTERN_BYTES + PAGE_BYTES;
    side->samples = xccl_calloc(NETPERF_SAMPLES, sizeof(*side->samples));
    side->pattern = xccl_calloc_aligned(PAGE_BYTES, side->pattern_bytes);
    side->room = xccl_calloc_aligned(PAGE_BYTES, side->room_bytes);
    if (!side->samples || !side->pattern || !side->room)
        return netperf_fail(
            side, "no memory for %" PRIu64 " bytes: choose a smaller -e, --flows or --window",
            side->room_bytes + side->pattern_bytes);
    xccl_netperf_pattern_fill(side->pattern, side->pattern_bytes);
    return 1;
}

static int register_all(struct netperf_side *side)
{
    for (int i = 0; i < 2 * side->flow_count; i++) {
        struct netperf_end *end = &side->flows[i / 2].ends[i % 2];
        int out = i % 2 == NETPERF_OUT;
        xcclResult_t rc = side->net->calls.regMr(end->comm, out ? side->pattern : side->room,
                                                 out ? side->pattern_bytes : side->room_bytes,
                                                 XCCL_NET_PTR_HOST, &end->mem);

        if (rc != xcclSuccess)
            return netperf_call_failed(side, rc, "regMr", i / 2);
    }
    return 1;
}

static int do_connect(struct netperf_side *side, struct xccl_netperf_message *message)
{
    int sleeps = side->args->options->wait ? 1 : -1;

    if (!make_memory(side, message) || !connect_all(side, message->handles))
        return 0;
    for (int i = 0; i < side->flow_count; i++) {
        xcclResult_t rc = side->net->calls.closeListen(side->flows[i].listener);

        side->flows[i].listener = NULL;
        if (rc != xcclSuccess)
            return netperf_call_failed(side, rc, "closeListen", i);
    }
    if (!register_all(side))
        return 0;
    /* Only who sleeps asks: a plugin that was asked may have to keep the descriptor ready. */
    for (int i = 0; i < 2 && sleeps >= 0; i++) {
        int fd = -1;

        if (side->net->calls.waitFd(side->flows[0].ends[i].comm, &fd) != xcclSuccess || fd < 0) {
            sleeps = 0;
            break;
        }
    }
    message->about.can_sleep = sleeps;
    return 1;
}

/* Closes an end that may be up. */
static void close_end(struct netperf_side *side, int flow, int way)
{
    struct netperf_end *end = &side->flows[flow].ends[way];
    const xcclNetPlugin_v1_t *calls = &side->net->calls;
    xcclResult_t rc = xcclSuccess;

    if (!end->comm)
        return;
    if (end->mem)
        rc = calls->deregMr(end->comm, end->mem);
    if (rc != xcclSuccess)
        netperf_call_failed(side, rc, "deregMr", flow);
    rc = way == NETPERF_OUT ? calls->closeSend(end->comm) : calls->closeRecv(end->comm);
    if (rc != xcclSuccess)
        netperf_call_failed(side, rc, way == NETPERF_OUT ? "closeSend" : "closeRecv", flow);
    end->comm = NULL;
}

/* Undoes all of it, whatever has been done. Errors are kept. */
static void side_close(struct netperf_side *side)
{
    if (!side->net)
        return;
    netperf_flush(side);
    for (int i = 0; i < side->flow_count; i++) {
        struct netperf_flow *flow = &side->flows[i];

        if (flow->connect)
            side->net->calls.closeConnect(side->net->ctx, flow->connect);
        if (flow->listener)
            side->net->calls.closeListen(flow->listener);
        close_end(side, i, NETPERF_OUT);
        close_end(side, i, NETPERF_IN);
    }
    xccl_net_close(side->net);
    side->net = NULL;
    xccl_free(side->pattern);
    xccl_free(side->room);
    xccl_free(side->samples);
}

static int do_quit(struct netperf_side *side, struct xccl_netperf_message *message)
{
    (void)message;
    side_close(side);
    return side->error[0] == '\0';
}

/* ---- the conversation ---- */

static int answer(struct netperf_side *side, struct xccl_netperf_message *message, int fine)
{
    ssize_t sent = 0;

    if (!fine) {
        message->kind = XCCL_NETPERF_ERROR;
        message->error.told = side->told;
        message->error.follows = side->follows;
        memcpy(message->error.text, side->error, sizeof(side->error));
    }
    do {
        sent = send(side->args->fd, message, sizeof(*message), MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)sizeof(*message);
}

void xccl_netperf_side_run(const struct xccl_netperf_side_args *args)
{
    static int (*const does[])(struct netperf_side *, struct xccl_netperf_message *) = {
        [XCCL_NETPERF_OPEN] = do_open,       [XCCL_NETPERF_LISTEN] = do_listen,
        [XCCL_NETPERF_CONNECT] = do_connect, [XCCL_NETPERF_ROUND] = netperf_round,
        [XCCL_NETPERF_QUIT] = do_quit,
    };
    struct xccl_netperf_message *message = xccl_calloc(1, sizeof(*message));
    struct netperf_side *side = xccl_calloc(1, sizeof(*side));
    int fine = message && side;

    if (side) {
        side->args = args;
        side->crowded = xccl_os_cores() < 2;
    }
    while (fine) {
        ssize_t got = recv(args->fd, message, sizeof(*message), 0);

        if (got < 0 && errno == EINTR)
            continue;
        /* The program is gone, or has nothing more to say. */
        if (got != (ssize_t)sizeof(*message))
            break;
        fine = does[message->kind](side, message);
        if (!answer(side, message, fine) || message->kind == XCCL_NETPERF_QUIT)
            break;
    }
    if (side)
        side_close(side);
    xccl_free(side);
    xccl_free(message);
    close(args->fd);
}
