/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of sends and receives share: the state of a communicator's streams, and of the
 * group at work. Stays in this folder.
 *
 *   comm_p2p.c          a group begins and moves
 *   comm_p2p_items.c    from the group's items to streams and their messages
 *   comm_p2p_links.c    the links that these need
 *   comm_p2p_verdict.c  the slow branch of the wait: who is waited for, who is to blame
 *
 * Thread: the holder of the crank. */
#ifndef XCCL_CALL_COMM_P2P_STATE_H
#define XCCL_CALL_COMM_P2P_STATE_H

#include "call/comm_p2p.h"
#include "exec/streams.h"

#define XCCL_P2P_ALL_KINDS ((1u << XCCL_STREAM_KINDS) - 1)
#define XCCL_P2P_SHAPE     64 /* items of a group that may come again without much ado */

/* What a receiver tells its sender. */
struct xccl_p2p_offer {
    uint32_t slot_bytes, reserved;
    xcclNetHandle_t handle;
};

/* An item but for its buffer. */
struct xccl_p2p_shape {
    size_t bytes;
    int peer, sends;
    uint32_t message; /* its index */
};

struct xccl_comm_p2p {
    int nranks;
    struct xccl_stream **stream_of; /* by 2 * peer + sends; NULL: not used yet */
    /* Of the group at work: */
    struct xccl_stream **streams; /* those that have items, by their rounds */
    struct xccl_message *messages; /* stream after stream */
    struct xccl_p2p_offer *offers; /* by stream: of new receive ends over networks */
    uint32_t room, stream_count;
    int all_up; /* 1: all have the links that they need */
    uint32_t told; /* streams whose senders have been told, or need not be */
    int listens; /* 1: what needs no word with peers has been made */
    int talks; /* 1: an out-of-band operation is at work */
    uint32_t taken; /* by it: the stream whose receiver's word comes, or none */
    struct xccl_p2p_offer word; /* its memory */
    uint64_t looked_ns; /* of the wait: when links were looked at that have not been made */
    /* What the group's items were like; 0: a group like this one takes the whole way. */
    uint64_t exchanged; /* bytes of its messages, if they go both ways */
    uint32_t shape_count;
    struct xccl_p2p_shape shape[XCCL_P2P_SHAPE];
};

/* It has the links that the group needs. */
static inline int xccl_p2p_is_up(const struct xccl_stream *stream)
{
    return !(stream->needs & ~stream->has);
}

static inline int xccl_p2p_is_done(const struct xccl_stream *stream)
{
    return xccl_p2p_is_up(stream) && xccl_stream_done(stream);
}

int xccl_p2p_all_up(const struct xccl_comm_p2p *p2p);

/* --- comm_p2p_items.c --- */

/* 1: the group is like the last one, all of whose links were there, and its messages are set. */
int xccl_p2p_repeat(struct xccl_comm_p2p *p2p, const struct xccl_p2p_item *items, uint32_t count);
/* The streams of a group, with their messages, in order. */
xcclResult_t xccl_p2p_arrange(struct xcclComm *comm, const struct xccl_p2p_item *items,
                              uint32_t count);
/* The group may come again: all links are there. */
void xccl_p2p_keep_shape(struct xcclComm *comm, const struct xccl_p2p_item *items, uint32_t count);
int xccl_p2p_has_own(const struct xcclComm *comm, const struct xccl_p2p_item *items,
                     uint32_t count);
/* Sends to oneself are copies; copies is 0 for a look at them alone. */
xcclResult_t xccl_p2p_do_own(const struct xcclComm *comm, const struct xccl_p2p_item *items,
                             uint32_t count, int copies);

/* --- comm_p2p_links.c --- */

/* Brings the links on that the group lacks. *moved_out is set to 1 when something moved. */
xcclResult_t xccl_p2p_connect(struct xcclComm *comm, int *moved_out);

/* --- comm_p2p_verdict.c --- */

/* Of struct xccl_run. */
xcclResult_t xccl_p2p_check(struct xccl_run *run, uint64_t waited_ns);
int xccl_p2p_blame(struct xccl_run *run);
xcclResult_t xccl_p2p_check_left(struct xccl_run *run, int again);
/* comm->count_sent. */
void xccl_p2p_count_sent(const struct xcclComm *comm, uint32_t *sent_out);

#endif
