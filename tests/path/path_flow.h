/* SPDX-License-Identifier: BSD-3-Clause */
/* One direction of a connection between two processes, of the socket plugin unless said otherwise:
 * numbered messages, checked at the receiver for order, size and every byte. Opened through the
 * loader. What a comm says when it fails is kept, so that the other flows of a process go on.
 *
 * Thread: the main one of a process; flows do not know each other. */
#ifndef PATH_FLOW_H
#define PATH_FLOW_H

#include "path_hosts.h"
#include "path_stage.h"
#include "plugin/net_plugin.h"

#define PATH_MESSAGE_MAX ((size_t)1 << 20)
#define PATH_DEPTH       8 /* messages in flight */

struct path_flow {
    struct xccl_net *net;
    struct path_meet *meet;
    int is_send;
    size_t bytes; /* of each message; 0: of many sizes, and every byte is checked */
    size_t most; /* of many sizes up to this one; 0: to PATH_MESSAGE_MAX */
    int quiet; /* nothing more is posted */
    void *comm;
    int wait_fd;
    char *memory;
    xcclNetMem_t mem;
    struct path_slot {
        void *request;
        uint64_t number;
    } slots[PATH_DEPTH];
    uint64_t posted, done, payload; /* messages begun and through; bytes of those that are */
    uint32_t windows;
    double last_s, gap_s; /* when a message was last through; the longest time without one */
    /* The error, when there was one. */
    xcclResult_t rc;
    xcclNetCause_t cause;
    double failed_s;
    char text[512], peer[128];
};

/* An instance with the devices of this host's rails and no others. ipv6 0: IPv4. */
struct xccl_net *path_net_open(int ipv6);
/* An instance of a plugin that follows the settings of sockets, with this host's rails only. */
struct xccl_net *path_net_open_item(const char *item, int ipv6);
/* Device of a rail, as properties name it. */
int path_net_device(const struct xccl_net *net, int rail);
/* Merges the devices of rails 0 and 1. Skips the test when the plugin does not merge devices. */
int path_net_merge(const struct xccl_net *net);

/* Both ends call it; it returns when this end is up. */
void path_flow_open(struct path_flow *flow, struct xccl_net *net, int dev, struct path_meet *meet,
                    int is_send);
void path_flow_close(struct path_flow *flow);

/* Posts what there is room for, unless quiet, and tests all. Returns how many got through; an error
 * is kept in rc. */
int path_flow_move(struct path_flow *flow);
/* Asleep until one of the flows may move, at most ms. */
void path_flow_rest(struct path_flow *const *flows, int count, int ms);
/* Moves one flow, or rests for 2 ms. */
void path_flow_turn(struct path_flow *flow);

/* Both ends: moves messages for warm_s and then time_s, then empties the connection. Returns the
 * receiver's bytes per second, and 0 to the sender: what the interfaces of all rails counted in
 * time_s, less the framing. So it does not matter that messages which are spread over streams get
 * through in bunches. Nothing else may use the rails. Errors fail the test. */
double path_flow_rate(struct path_flow *flow, double warm_s, double time_s);

/* Sender: tells how many messages there were, and moves the last of them. Receiver: the rest. */
void path_flow_end(struct path_flow *flow);

#endif
