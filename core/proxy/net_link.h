/* SPDX-License-Identifier: BSD-3-Clause */
/* The network's half of a link: slots in private memory and an op that moves them. The executor
 * fills slots and sets flags (send side) or waits for flags and publishes its head (receive side)
 * exactly as over shared memory; the proxy posts, tests and hands over.
 *
 * Every message is one slot. The first message of an operation on a link begins with a 16-byte
 * preamble: sequence number u64 and signature u64, little endian; an operation that sends nothing
 * on a link sends the bare preamble. A preamble that differs from the receiver's is
 * xcclInvalidUsage. A plain operation has no preamble: then its messages are all there is.
 *
 * Payloads of slots may lie in memory of a CUDA device (a room). The host reads and writes none of
 * it, so there, and at the other ends of such links, the preamble is a message of its own, ahead of
 * the others (apart).
 *
 * Where the device takes any memory, a message need not go through its slot. The executor may give
 * the place of what it sends (reach.h), and tell where messages will go before they come: they are
 * received there, and the slot says so. The first message of an operation with a preamble never is,
 * and nothing is received in a buffer before the preamble has been checked.
 *
 * Thread: the holder of the communicator's crank, but for connect (init). Nothing here allocates or
 * logs after open. */
#ifndef XCCL_PROXY_NET_LINK_H
#define XCCL_PROXY_NET_LINK_H

#include "base/clock.h"
#include "plugin/net_plugin.h"
#include "transport/link.h"
#include "transport/reach.h"
#include "xccl_net.h"

#define XCCL_NET_PREAMBLE_BYTES 16
#define XCCL_NET_COUNT_BYTES    8 /* a message's length, over plugins of NCCL's contract */
#define XCCL_NET_SLOTS          8
#define XCCL_NET_SLOT_BYTES     (128u << 10)
#define XCCL_NET_ROOM_WHY_BYTES 128
#define XCCL_NET_DIRECT_MIN     (16u << 10) /* smaller messages go through slots: a copy is cheap */

struct xccl_net_link;

/* What an operation will do on a link, told before its first progress. */
struct xccl_net_op {
    uint64_t seq, signature; /* of the operation: the preamble */
    uint32_t flag_low; /* low half of the flag words the executor writes and expects */
    uint32_t messages; /* slots that the executor will fill or take; 0: the bare preamble */
    int plain; /* 1: without preambles */
    /* Receive side: payload bytes of every message but the last in order are not known to the
     * proxy; the executor compares header.bytes, which the proxy fills with what arrived. */
    /* Receive end: called when the next message could be received and nobody has told where; tells,
     * of this one and of others. What it does not tell goes into slots. NULL: nothing is told. */
    void (*ahead)(void *owner, struct xccl_net_link *link);
    void *ahead_owner;
};

/* Memory of a device for the payloads of all slots, which the link's maker keeps until the link is
 * gone. */
struct xccl_net_room {
    void *at; /* as the device, and its network card, see it; whole pages */
    size_t bytes; /* xccl_net_link_room_bytes() at least */
    int fd; /* a DMA-BUF of it, the link's from set_room on; -1: registered by its address */
    int *keeps; /* set to 1 when the memory must stay for good: requests that cannot be ended */
    int flushes; /* receive end: 1: what has come is flushed before it is handed over */
};

/* Receive end: listens at once and gives the handle that the sender needs. */
xcclResult_t xccl_net_link_listen(struct xccl_net *net, int dev, int peer, uint32_t slot_bytes,
                                  xcclNetHandle_t *handle_out, struct xccl_net_link **link_out);
/* Send end: nothing happens before the first connect_step. */
xcclResult_t xccl_net_link_create_send(struct xccl_net *net, int dev, int peer, uint32_t slot_bytes,
                                       const xcclNetHandle_t *handle,
                                       struct xccl_net_link **link_out);
size_t xccl_net_link_room_bytes(const struct xccl_net_link *link);
/* Before the link is up. If the plugin cannot register it, the slots stay where they are. */
void xccl_net_link_set_room(struct xccl_net_link *link, const struct xccl_net_room *room);
/* The room, once the link is up; NULL: it has none, or could not use it. */
void *xccl_net_link_room(const struct xccl_net_link *link);
/* A word on it, for people: how the room is reached, or why there is none; then, where the plugin
 * refuses it, why. "": nothing was said. */
void xccl_net_link_set_room_why(struct xccl_net_link *link, const char *why);
const char *xccl_net_link_room_why(const struct xccl_net_link *link);
/* Before the first operation; the same at both ends. */
void xccl_net_link_set_apart(struct xccl_net_link *link, int apart);
/* Moves a connect or accept on; *done_out 1 when the link is up. Never blocks. */
xcclResult_t xccl_net_link_connect_step(struct xccl_net_link *link, int *done_out);
/* Closes everything, with requests in flight too; NULL is fine. */
void xccl_net_link_destroy(struct xccl_net_link *link);

/* The executor's view; lives as long as the net link. */
struct xccl_link *xccl_net_link_view(struct xccl_net_link *link);
int xccl_net_link_peer(const struct xccl_net_link *link);
int xccl_net_link_sends(const struct xccl_net_link *link);
/* Slots without a room, all headers and the head: whole pages that hold nothing else. */
char *xccl_net_link_memory(const struct xccl_net_link *link, size_t *bytes_out);
/* Receive end: 1: it failed since the first message of an operation was of another call; with the
 * number and signature that it had. */
int xccl_net_link_other_call(const struct xccl_net_link *link, uint64_t *seq_out,
                             uint64_t *signature_out);
/* Why it failed, as its plugin says; xcclNetCauseNone when the plugin has not failed. */
xcclNetCause_t xccl_net_link_cause(const struct xccl_net_link *link);

/* NULL: the device takes registered memory only, so that everything goes through slots. */
struct xccl_reach *xccl_net_link_reach(struct xccl_net_link *link);
/* Receive end: the first message that was not told of is received at `at`, unless it is small, and
 * has so many bytes; at NULL: in its slot. 0: no more can be told now. */
int xccl_net_link_expect(struct xccl_net_link *link, void *at, uint32_t bytes);
/* 1: where the next message goes has been told. */
int xccl_net_link_knows(const struct xccl_net_link *link);
/* After an error: buffers of the operation are not read or written any more, for which the
 * connection may be closed. */
void xccl_net_link_let_go(struct xccl_net_link *link);

/* Begins an operation on this end; the previous one is idle. */
void xccl_net_link_begin(struct xccl_net_link *link, const struct xccl_net_op *op);
/* Moves what can move; *moved_out is set to 1 when something did, else left alone. An error text
 * names what failed, not the rank: the caller knows xccl_net_link_peer(). */
xcclResult_t xccl_net_link_progress(struct xccl_net_link *link, int *moved_out);
/* Slots so far, of all operations; wraps. Send end: that the executor has filled; receive end: that
 * were handed over. */
uint32_t xccl_net_link_count(const struct xccl_net_link *link);
/* 1 when the operation's messages have all been sent (memory reusable) or handed over and, on a
 * receive end, the preamble has been checked. */
int xccl_net_link_idle(const struct xccl_net_link *link);

#endif
