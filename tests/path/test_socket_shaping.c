/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket plugin on a path of 100 Mbit/s between two hosts: it fills it, each way.
 *
 * What there is to fill is the payload that the shaper lets through in full segments: 1,448 of each
 * 1,514 bytes that it counts. A plain TCP stream over the same path, right before, tells what TCP
 * makes of it on this machine, at this moment; the plugin is measured against the smaller of both,
 * and both are printed. A machine that is busy otherwise may spoil a measurement, hence the
 * attempts. */
#include <stdlib.h>

#include "path_flow.h"

#define KBIT     100000
#define SHARE    0.95
#define ATTEMPTS 3
#define WARM_S   0.3
#define TIME_S   0.8

struct stage {
    struct path_hosts hosts;
    int ipv6;
    struct path_meet plain[2][ATTEMPTS], flow[2];
    _Atomic uint32_t good[2]; /* by direction: the receiver's verdict on each attempt */
};

/* The receiver's judgement of one attempt; the sender is told before the test fails. */
static void judge(struct stage *stage, int from, uint32_t attempt, double plain, double got)
{
    double room = path_rail_bytes(&stage->hosts.rails[0]), least = plain < room ? plain : room;

    path_figure("shaping: streams %s, %s: room %.2f MB/s, plain TCP %.2f (%.3f of it), plugin %.2f "
                "(%.3f of it, %.3f of plain TCP)",
                getenv("XCCL_SOCKET_STREAMS"), stage->ipv6 ? "IPv6" : "IPv4", room * 1e-6,
                plain * 1e-6, plain / room, got * 1e-6, got / room, got / plain);
    path_tell(&stage->good[from], attempt, got >= SHARE * least);
    if (got < SHARE * least && attempt == ATTEMPTS)
        XT_FAIL("the plugin fills %.3f of what a path of %d Mbit/s has room for (plain TCP %.3f)",
                got / room, KBIT / 1000, plain / room);
}

static void direction(struct stage *stage, struct xccl_net *net, int from, int host)
{
    int is_send = host == from, good = 0;
    struct path_flow flow = {.bytes = 256 << 10};
    char address[PATH_ADDR_BYTES];

    path_rail_address(&stage->hosts, 0, !from, stage->ipv6, address);
    path_flow_open(&flow, net, path_net_device(net, 0), &stage->flow[from], is_send);
    for (uint32_t i = 1; i <= ATTEMPTS && !good; i++) {
        double plain = path_plain_rate(&stage->plain[from][i - 1], is_send, address, WARM_S,
                                       TIME_S);
        double got = path_flow_rate(&flow, WARM_S, TIME_S);

        if (!is_send)
            judge(stage, from, i, plain, got);
        good = path_ask(&stage->good[from], i);
    }
    path_flow_close(&flow);
}

static void host_run(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;
    struct xccl_net *net;

    (void)nranks;
    path_hosts_enter(&stage->hosts, rank);
    if (stage->ipv6 && !path_has_ipv6())
        XT_SKIP("no IPv6 here");
    net = path_net_open(stage->ipv6);
    direction(stage, net, 0, rank);
    direction(stage, net, 1, rank);
    xccl_net_close(net);
}

static void shaped_path_is_filled(const char *streams, int ipv6)
{
    static const struct path_rail rail = {.host = 1, .kbit = KBIT};
    struct stage *stage = path_shared(sizeof(*stage));

    path_hosts_make(&stage->hosts, &rail, 1);
    stage->ipv6 = ipv6;
    xt_setenv("XCCL_SOCKET_STREAMS", streams);
    xt_mp_run(2, host_run, stage);
    path_hosts_drop(&stage->hosts);
}

XT_TEST_DEADLINE(one_stream_fills_a_shaped_path_each_way, 60)
{
    shaped_path_is_filled("1", 0);
}

XT_TEST_DEADLINE(four_streams_fill_a_shaped_path_each_way, 60)
{
    shaped_path_is_filled("4", 0);
}

XT_TEST_DEADLINE(a_shaped_path_of_ipv6_is_filled_each_way, 60)
{
    shaped_path_is_filled("1", 1);
}
