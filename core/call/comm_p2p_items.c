/* SPDX-License-Identifier: BSD-3-Clause */
/* From the items of a group to streams, one for each peer and direction, and their messages, in the
 * order of the rounds of a pairwise exchange. A group like the last one, which is what programs
 * mostly have, only tells where its buffers are. Thread: the holder of the crank. */
#include "call/comm_p2p_state.h"

#include <string.h>

#include "base/alloc.h"
#include "comm/comm_where.h"
#include "connect/comm_links.h"

static xcclResult_t make_state(struct xcclComm *comm)
{
    struct xccl_comm_p2p *p2p = xccl_calloc(1, sizeof *p2p);

    if (!p2p)
        return xcclSystemError;
    p2p->nranks = comm->nranks;
    p2p->stream_of = xccl_calloc(2 * (size_t)comm->nranks, sizeof(void *));
    if (!p2p->stream_of) {
        xccl_free(p2p);
        return xcclSystemError;
    }
    comm->p2p = p2p;
    comm->count_sent = xccl_p2p_count_sent;
    return xcclSuccess;
}

/* For so many items; a room that was enough once stays. */
static xcclResult_t make_room(struct xccl_comm_p2p *p2p, uint32_t count)
{
    if (count <= p2p->room)
        return xcclSuccess;
    xccl_free(p2p->streams);
    xccl_free(p2p->messages);
    xccl_free(p2p->offers);
    p2p->streams = xccl_calloc(count, sizeof(void *));
    p2p->messages = xccl_calloc(count, sizeof *p2p->messages);
    p2p->offers = xccl_calloc(count, sizeof *p2p->offers);
    p2p->room = p2p->streams && p2p->messages && p2p->offers ? count : 0;
    return p2p->room ? xcclSuccess : xcclSystemError;
}

/* All kinds of links where the peer is on this host, unless there are too many pairs for that. */
static struct xccl_stream *make_stream(struct xcclComm *comm, int peer, int sends)
{
    struct xccl_stream *stream = xccl_calloc_aligned(64, sizeof *stream);
    int n = comm->nranks, ahead = sends ? peer - comm->rank : comm->rank - peer;

    if (!stream)
        return NULL;
    stream->peer = peer;
    stream->sends = sends;
    stream->in_slices = !xccl_comm_is_local(comm, peer) || xccl_shm_is_tight(comm->shm);
    stream->round = 2 * (uint32_t)((ahead + n) % n) + !sends;
    comm->p2p->stream_of[2 * peer + sends] = stream;
    return stream;
}

/* That of an item, which is no send to oneself; NULL without memory. */
static inline struct xccl_stream *stream_for(struct xcclComm *comm,
                                             const struct xccl_p2p_item *item)
{
    struct xccl_stream *stream = comm->p2p->stream_of[2 * item->peer + item->sends];

    return stream ? stream : make_stream(comm, item->peer, item->sends);
}

/* By their rounds when there are few. */
static void sort_streams(struct xccl_stream **streams, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct xccl_stream *stream = streams[i];
        uint32_t at = i;

        for (; at > 0 && streams[at - 1]->round > stream->round; at--)
            streams[at] = streams[at - 1];
        streams[at] = stream;
    }
}

static void add_listed(struct xccl_comm_p2p *p2p, int peer, int sends)
{
    struct xccl_stream *stream = p2p->stream_of[2 * peer + sends];

    if (stream && stream->is_listed)
        p2p->streams[p2p->stream_count++] = stream;
}

/* By the rounds of a pairwise exchange: in round k to rank + k and from rank - k, so that ranks do
 * not all begin with the same one. No more work than a walk over all rounds. */
static void order_streams(struct xcclComm *comm)
{
    struct xccl_comm_p2p *p2p = comm->p2p;
    uint64_t count = p2p->stream_count;
    int n = comm->nranks;

    if (count * count <= 4 * (uint64_t)n) {
        sort_streams(p2p->streams, p2p->stream_count);
        return;
    }
    p2p->stream_count = 0;
    for (int k = 1; k < n; k++) {
        add_listed(p2p, (comm->rank + k) % n, 1);
        add_listed(p2p, (comm->rank + n - k) % n, 0);
    }
}

/* Counts an item, and the link that it needs. One that only connects is no message. */
static void count_item(struct xccl_stream *stream, const struct xccl_p2p_item *item)
{
    if (item->connects) {
        stream->needs |= stream->in_slices ? 1u << XCCL_PROTO_SLICES : XCCL_P2P_ALL_KINDS;
        stream->connects = item->connects == XCCL_CONNECTS_ALL;
        stream->awaited = item->awaited;
    }
    if (!item->connects) {
        stream->count++;
        stream->needs |= 1u << xccl_stream_kind(stream, item->bytes);
    }
}

/* The streams of the items, their messages counted. */
static xcclResult_t list_streams(struct xcclComm *comm, const struct xccl_p2p_item *items,
                                 uint32_t count)
{
    struct xccl_comm_p2p *p2p = comm->p2p;

    for (uint32_t i = 0; i < count; i++) {
        struct xccl_stream *stream;

        if (items[i].peer == comm->rank)
            continue;
        stream = stream_for(comm, &items[i]);
        if (!stream)
            return xcclSystemError;
        if (!stream->is_listed) {
            stream->is_listed = 1;
            stream->count = 0;
            stream->needs = xccl_comm_is_local(comm, stream->peer) ? 0 : 1u << XCCL_PROTO_SLICES;
            p2p->streams[p2p->stream_count++] = stream;
        }
        count_item(stream, &items[i]);
    }
    return xcclSuccess;
}

static void unlist_streams(struct xccl_comm_p2p *p2p)
{
    for (uint32_t i = 0; i < p2p->stream_count; i++)
        p2p->streams[i]->is_listed = 0;
    p2p->stream_count = 0;
}

/* Gives the streams their messages; next counts them. */
static void fill_streams(struct xcclComm *comm, const struct xccl_p2p_item *items, uint32_t count)
{
    struct xccl_comm_p2p *p2p = comm->p2p;
    struct xccl_message *at = p2p->messages;

    for (uint32_t i = 0; i < p2p->stream_count; i++) {
        p2p->streams[i]->messages = at;
        p2p->streams[i]->next = 0;
        at += p2p->streams[i]->count;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct xccl_stream *stream;

        if (items[i].peer == comm->rank || items[i].connects)
            continue;
        stream = stream_for(comm, &items[i]);
        p2p->messages[stream->messages - p2p->messages + stream->next++] = (struct xccl_message){
            items[i].at, items[i].bytes};
    }
}

/* What is only sent is not exchanged: it shall go into slots, so that the sender need not wait. */
static uint64_t exchanged_bytes(const struct xccl_p2p_item *items, uint32_t count)
{
    uint64_t bytes[2] = {0, 0}; /* received, sent */

    for (uint32_t i = 0; i < count; i++)
        bytes[items[i].sends != 0] += items[i].bytes;
    return bytes[0] && bytes[1] ? bytes[0] + bytes[1] : 0;
}

xcclResult_t xccl_p2p_arrange(struct xcclComm *comm, const struct xccl_p2p_item *items,
                              uint32_t count)
{
    xcclResult_t rc = comm->p2p ? xcclSuccess : make_state(comm);

    if (rc)
        return rc;
    comm->p2p->shape_count = 0;
    comm->p2p->exchanged = exchanged_bytes(items, count);
    unlist_streams(comm->p2p);
    rc = make_room(comm->p2p, count);
    if (!rc)
        rc = list_streams(comm, items, count);
    if (rc)
        return rc;
    order_streams(comm);
    fill_streams(comm, items, count);
    return xcclSuccess;
}

/* --- the same again --- */

static int may_repeat(const struct xccl_p2p_item *items, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!items[i].bytes || items[i].connects)
            return 0;
    return count <= XCCL_P2P_SHAPE;
}

void xccl_p2p_keep_shape(struct xcclComm *comm, const struct xccl_p2p_item *items, uint32_t count)
{
    struct xccl_comm_p2p *p2p = comm->p2p;

    if (!may_repeat(items, count))
        return;
    for (uint32_t i = 0; i < count; i++) {
        struct xccl_stream *stream = p2p->stream_of[2 * items[i].peer + items[i].sends];

        p2p->shape[i] = (struct xccl_p2p_shape){
            .bytes = items[i].bytes,
            .peer = items[i].peer,
            .sends = items[i].sends,
            .message = (uint32_t)(stream->messages - p2p->messages) + stream->next++};
    }
    for (uint32_t i = 0; i < p2p->stream_count; i++)
        p2p->streams[i]->next = 0; /* it has counted once more */
    p2p->shape_count = count;
}

int xccl_p2p_repeat(struct xccl_comm_p2p *p2p, const struct xccl_p2p_item *items, uint32_t count)
{
    const struct xccl_p2p_shape *shape = p2p->shape;

    if (!p2p->shape_count || count != p2p->shape_count)
        return 0;
    for (uint32_t i = 0; i < count; i++, shape++) {
        if (items[i].bytes != shape->bytes || items[i].peer != shape->peer ||
            items[i].sends != shape->sends || items[i].connects)
            return 0;
        p2p->messages[shape->message].at = items[i].at;
    }
    return 1;
}

/* --- sends to oneself --- */

/* The item of the k-th message to oneself. */
static const struct xccl_p2p_item *own_item(const struct xcclComm *comm,
                                            const struct xccl_p2p_item *items, uint32_t count,
                                            int sends, uint32_t *from)
{
    for (; *from < count; ++*from)
        if (items[*from].peer == comm->rank && items[*from].sends == sends)
            return &items[(*from)++];
    return NULL;
}

xcclResult_t xccl_p2p_do_own(const struct xcclComm *comm, const struct xccl_p2p_item *items,
                             uint32_t count, int copies)
{
    uint32_t sent_from = 0, recv_from = 0;

    for (;;) {
        const struct xccl_p2p_item *sent = own_item(comm, items, count, 1, &sent_from);
        const struct xccl_p2p_item *received = own_item(comm, items, count, 0, &recv_from);

        if (!sent && !received)
            return xcclSuccess;
        if (!sent || !received || sent->bytes != received->bytes)
            return xccl_fail(xcclInvalidUsage, 0, "put matching sends and receives into one group",
                             "rank %d: a send to itself and its receive differ in size, or one of "
                             "them is missing",
                             comm->rank);
        if (copies && sent->bytes)
            memmove(received->at, sent->at, sent->bytes);
    }
}

int xccl_p2p_has_own(const struct xcclComm *comm, const struct xccl_p2p_item *items, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (items[i].peer == comm->rank)
            return 1;
    return 0;
}
