/* SPDX-License-Identifier: BSD-3-Clause */
/* What net_link.c, which makes and ends links, and net_link_op.c, which moves what is on them,
 * share. Stays in this folder.
 * Thread: see net_link.h. */
#ifndef XCCL_PROXY_NET_LINK_INT_H
#define XCCL_PROXY_NET_LINK_INT_H

#include "proxy/net_link.h"

#include <assert.h>

#define PAGE_BYTES     4096u
#define ROOM_BYTES     64u /* before each payload */
#define BARE_OFFSET    (XCCL_NET_SLOTS * XCCL_LINE_BYTES)
#define HEAD_OFFSET    2048u
#define SLOT_BYTES_MAX (1u << 30)

static_assert(BARE_OFFSET + XCCL_LINE_BYTES <= HEAD_OFFSET &&
                  HEAD_OFFSET + XCCL_HEAD_STRIDE + ROOM_BYTES <= PAGE_BYTES,
              "page 0 holds all of it");
static_assert(XCCL_NET_PREAMBLE_BYTES + XCCL_NET_COUNT_BYTES <= ROOM_BYTES,
              "preamble and length lie in the room");
static_assert(XCCL_NET_SLOTS <= XCCL_NET_MAX_REQUESTS, "every plugin offers that many requests");

enum link_state { LINK_CONNECT, LINK_REGISTER, LINK_UP, LINK_FAILED };

struct xccl_net_link {
    struct xccl_link view;
    struct xccl_net *net;
    int sends; /* 1: send end */
    enum link_state state;

    /* The op. Messages are counted from 0 in each operation, slots and steps go on for ever. */
    struct xccl_net_op op;
    uint32_t total; /* messages on the wire: at least the bare preamble */
    uint32_t posted, done; /* of this operation */
    uint32_t post_step; /* step of the next post; of the executor's numbering, wraps */
    uint32_t post_slot, done_slot;
    xcclNetRequest_t requests[XCCL_NET_SLOTS + 1]; /* by slot; the last one: of a bare message */
    /* A room, and what is flushed there: messages up to `tested` have come, those before
     * `flushing` are on their way to the device. */
    struct xccl_net_room room;
    xcclNetMem_t room_mem; /* NULL: payloads are in memory */
    char room_why[XCCL_NET_ROOM_WHY_BYTES];
    int apart;
    uint32_t tested, flushing;
    xcclNetRequest_t flush;
    uint32_t came[XCCL_NET_SLOTS]; /* bytes, by slot */
    uint32_t flush_max; /* buffers in one flush */
    /* Buffers: by slot, what the executor sends from there, or where a message is received. */
    struct xccl_reach reach;
    struct xccl_offer offers[XCCL_NET_SLOTS];
    int any_memory; /* 1: of the device */
    int is_lent; /* 1: this operation has given the plugin a buffer */
    int too_long; /* 1: a message did not fit into its buffer; the executor has it */
    /* Receive end: what has been told of the messages before `told`, by message. */
    struct target {
        char *at; /* NULL: into the slot */
        uint32_t bytes;
    } targets[XCCL_NET_SLOTS];
    uint32_t told;

    void *comm;
    xcclNetMem_t mem;
    char *memory;
    size_t memory_bytes;
    int dev, peer;
    xcclNetCause_t cause; /* of the plugin's first error */
    xcclNetHandle_t handle; /* send end */
    xcclNetConnect_t connecting; /* send end */
    xcclNetListenComm_t listener; /* receive end, until accepted */
    _Atomic uint32_t *head; /* in memory */
    int is_other; /* 1: a preamble was of another call: */
    uint64_t other_seq, other_signature;
};

/* Makes the plugin's text of a failed call the thread's error text, with the peer's address. Quiet:
 * the caller adds the rank. The link is good for nothing but its end then. */
xcclResult_t xccl_net_link_failed(struct xccl_net_link *link, xcclResult_t rc, const char *what);
xcclResult_t xccl_net_link_not_up(const struct xccl_net_link *link);

/* Around each call into the plugin, for the one who looks for calls that do not come back. */
static inline void net_enter(struct xccl_net_link *link, enum xccl_net_entry entry)
{
    xccl_net_enter(link->net->watch, link->net->position, entry);
}

static inline void net_leave(struct xccl_net_link *link)
{
    xccl_net_leave(link->net->watch);
}

#endif
