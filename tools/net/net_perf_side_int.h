/* SPDX-License-Identifier: BSD-3-Clause */
/* A side of `xccl net perf`, between net_perf_side.c (opens, connects, closes, talks to the
 * program) and net_perf_round.c (moves messages).
 *
 * Each flow is a connection in each direction. An end of a flow holds its requests in the order in
 * which they were posted and tests the oldest.
 *
 * Thread: one a side; a comm is never used by another. */
#ifndef XCCL_TOOLS_NET_NET_PERF_SIDE_INT_H
#define XCCL_TOOLS_NET_NET_PERF_SIDE_INT_H

#include "net/net_perf_side.h"

struct xccl_net; /* plugin/net_plugin.h */

#define NETPERF_SAMPLES 65536u /* latencies that are kept of a round */

enum { NETPERF_OUT, NETPERF_IN }; /* the ends of a flow, seen from here */

struct netperf_end {
    void *comm;
    xcclNetMem_t mem;
    uint64_t posted, done, total; /* total: how many are allowed so far */
    xcclNetRequest_t requests[XCCL_NET_MAX_REQUESTS];
};

struct netperf_flow {
    struct netperf_end ends[2];
    xcclNetListenComm_t listener;
    xcclNetConnect_t connect;
};

struct netperf_side {
    const struct xccl_netperf_side_args *args;
    struct xccl_net *net;
    int dev;
    int needs_progress, crowded;
    struct netperf_flow flows[XCCL_NETPERF_FLOWS];
    int flow_count;
    char *pattern, *room;
    uint64_t pattern_bytes, room_bytes;
    double *samples;
    struct xccl_netperf_round round;
    uint64_t done; /* requests of this round, over all ends */
    uint32_t idle; /* turns in which nothing moved */
    uint64_t idle_since_ns; /* 0: not looked yet */
    uint64_t least_bytes, first_end_ns; /* as in a result; 0: no flow has ended yet */
    int sleepless; /* something waits that no descriptor tells of */
    int asks; /* one message is under way, and who waits for it has nothing else to do */
    int told;
    int follows; /* the error says that the peer or the network failed */
    char error[XCCL_NETPERF_TEXT_BYTES];
};

/* Keep the first error, with the plugin's words. Always 0. */
int netperf_fail(struct netperf_side *side, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int netperf_call_failed(struct netperf_side *side, xcclResult_t rc, const char *call, int flow);

/* Does what message->round says and puts the result in its place. 0: an error is kept. */
int netperf_round(struct netperf_side *side, struct xccl_netperf_message *message);
/* Brings what is still owed to the wire, where the plugin leaves that to its caller. */
int netperf_flush(struct netperf_side *side);

#endif
