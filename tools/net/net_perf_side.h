/* SPDX-License-Identifier: BSD-3-Clause */
/* What the program and a side of `xccl net perf` say to each other: one message each way at a time,
 * over a socketpair that keeps messages apart.
 *
 * Thread: a side is one thread, of a process of its own or of one with the other side. */
#ifndef XCCL_TOOLS_NET_NET_PERF_SIDE_H
#define XCCL_TOOLS_NET_NET_PERF_SIDE_H

#include "net/net_perf.h"

enum xccl_netperf_kind {
    XCCL_NETPERF_OPEN, /* answer: about */
    XCCL_NETPERF_LISTEN, /* count flows; answer: handles */
    XCCL_NETPERF_CONNECT, /* the other side's handles, room for messages */
    XCCL_NETPERF_ROUND, /* answer: result */
    XCCL_NETPERF_QUIT,
    XCCL_NETPERF_ERROR, /* an answer: text; told 1: the log has shown it already */
};

struct xccl_netperf_message {
    int32_t kind; /* of an answer: that of the question, or ERROR */
    int32_t count;
    uint64_t max_bytes, room_bytes;
    union {
        struct xccl_netperf_about about;
        struct xccl_netperf_round round;
        struct xccl_netperf_result result;
        struct {
            int32_t told;
            int32_t follows; /* 1: the other side's error is the cause, if it has one */
            char text[XCCL_NETPERF_TEXT_BYTES];
        } error;
        xcclNetHandle_t handles[XCCL_NETPERF_FLOWS];
    };
};

struct xccl_netperf_side_args {
    const struct xccl_netperf_options *options;
    const char *item;
    struct xccl_netperf_shared *shared;
    int number; /* 0 sends in rows of one direction */
    int fd;
};

/* Serves the program until it says quit or is gone. Closes fd. */
void xccl_netperf_side_run(const struct xccl_netperf_side_args *args);

/* Contents (net_perf_data.c). All messages come from one pattern; where in it a message begins
 * follows from round, flow and number, so that a late, lost or doubled message shows. */
#define XCCL_NETPERF_PATTERN_BYTES (UINT64_C(64) * 1021) /* more than the largest message has */

void xccl_netperf_pattern_fill(char *pattern, uint64_t bytes);
/* sender: the number of the side that sends. */
uint64_t xccl_netperf_pattern_at(uint32_t salt, int sender, int flow, uint64_t number);
/* How many bytes are equal from the first on. */
uint64_t xccl_netperf_same_bytes(const char *got, const char *want, uint64_t bytes);

#endif
