/* SPDX-License-Identifier: BSD-3-Clause */
/* The links of streams. Over shared memory those that the group's messages need are made at once;
 * over networks the receiver listens, and tells the sender out of band where; the sender makes its
 * end when that word has come; then connect and accept are polled. Words out of band go one at a
 * time: first all that this rank has to say, then those that have come; nobody is waited for in a
 * certain order. Thread: the holder of the crank. */
#include "call/comm_p2p_state.h"
#include "call/comm_plan.h"
#include "comm/comm_where.h"
#include "connect/comm_bind.h"
#include "connect/comm_links.h"

#define P2P_TAG 0x50325000u /* of words out of band */
#define NOBODY  UINT32_MAX

static struct xccl_schedule_conn conn_of(const struct xccl_stream *stream)
{
    return (struct xccl_schedule_conn){.peer = (uint16_t)stream->peer,
                                       .dir = stream->sends ? XCCL_CONN_SEND : XCCL_CONN_RECV,
                                       .kind = XCCL_CONN_FIFO,
                                       .id = XCCL_P2P_ID};
}

static struct xccl_comm_link *net_link_of(const struct xcclComm *comm,
                                          const struct xccl_stream *stream)
{
    struct xccl_schedule_conn conn = conn_of(stream);

    return xccl_comm_link_find(comm, &conn, XCCL_PROTO_SLICES);
}

/* Where all go in slices over shared memory, those are tight: each may send to all. */
static enum xccl_proto proto_of(const struct xccl_stream *stream, enum xccl_proto kind)
{
    return stream->in_slices ? XCCL_PROTO_TIGHT : kind;
}

/* The links that a stream of this host lacks. */
static xcclResult_t make_near(struct xcclComm *comm, struct xccl_stream *stream)
{
    struct xccl_schedule_conn conn = conn_of(stream);
    struct xccl_comm_link *link;

    for (int kind = 0; kind < XCCL_STREAM_KINDS; kind++) {
        enum xccl_proto proto = proto_of(stream, (enum xccl_proto)kind);
        xcclResult_t rc;

        if (!(stream->needs & ~stream->has & 1u << kind))
            continue;
        rc = xccl_comm_link_shm(comm, &conn, proto);
        if (rc)
            return rc;
        link = xccl_comm_link_find(comm, &conn, proto);
        stream->links[kind] = xccl_comm_link_view(link);
        if (kind == XCCL_PROTO_SLICES)
            stream->slices_reach = xccl_comm_link_reach(link);
        stream->has |= 1u << kind;
    }
    xccl_stream_begin(stream);
    return xcclSuccess;
}

/* What needs no word with the peer. */
static xcclResult_t make_links(struct xcclComm *comm)
{
    struct xccl_comm_p2p *p2p = comm->p2p;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < p2p->stream_count && !rc; i++) {
        struct xccl_stream *stream = p2p->streams[i];
        struct xccl_schedule_conn conn = conn_of(stream);
        struct xccl_p2p_offer *offer = &p2p->offers[i];

        *offer = (struct xccl_p2p_offer){0};
        if (xccl_p2p_is_up(stream))
            continue;
        if (xccl_comm_is_local(comm, stream->peer)) {
            rc = make_near(comm, stream);
        } else if (!stream->sends) {
            offer->slot_bytes = xccl_comm_net_slot_bytes(comm, 2);
            rc = xccl_comm_link_net(comm, &conn, offer->slot_bytes, &offer->handle);
        }
    }
    return rc;
}

/* A receiver has told where it listens. */
static xcclResult_t take_offer(struct xcclComm *comm)
{
    struct xccl_comm_p2p *p2p = comm->p2p;
    struct xccl_schedule_conn conn = conn_of(p2p->streams[p2p->taken]);

    return xccl_comm_link_net(comm, &conn, p2p->word.slot_bytes, &p2p->word.handle);
}

/* The first stream whose receiver's word is there and has not been taken. */
static uint32_t find_word(const struct xcclComm *comm)
{
    const struct xccl_comm_p2p *p2p = comm->p2p;

    for (uint32_t i = 0; i < p2p->stream_count; i++)
        if (p2p->streams[i]->sends && !xccl_p2p_is_up(p2p->streams[i]) &&
            !net_link_of(comm, p2p->streams[i]) &&
            xccl_bootstrap_has_mail(comm->boot, p2p->streams[i]->peer, P2P_TAG))
            return i;
    return NOBODY;
}

/* Begins the next operation out of band, if there is one. */
static xcclResult_t begin_talk(struct xcclComm *comm)
{
    struct xccl_comm_p2p *p2p = comm->p2p;
    struct xccl_limit limit = xccl_comm_talk_limit(comm);
    uint32_t next;

    p2p->taken = NOBODY;
    while (p2p->told < p2p->stream_count && !p2p->offers[p2p->told].slot_bytes)
        p2p->told++;
    if (p2p->told < p2p->stream_count) {
        next = p2p->told++;
        p2p->talks = 1;
        return xccl_bootstrap_send_start(comm->boot, p2p->streams[next]->peer, P2P_TAG,
                                         &p2p->offers[next], sizeof(struct xccl_p2p_offer), &limit);
    }
    p2p->taken = find_word(comm);
    if (p2p->taken == NOBODY)
        return xcclSuccess;
    p2p->talks = 1;
    return xccl_bootstrap_recv_start(comm->boot, p2p->streams[p2p->taken]->peer, P2P_TAG,
                                     &p2p->word, sizeof p2p->word, &limit);
}

/* Moves the talk on. *moved_out is set to 1 when it moved. */
static xcclResult_t talk(struct xcclComm *comm, int *moved_out)
{
    struct xccl_comm_p2p *p2p = comm->p2p;
    int ended = 1;
    xcclResult_t rc = xcclSuccess;

    if (p2p->talks)
        rc = xccl_bootstrap_test(comm->boot, &ended);
    if (rc || !ended)
        return rc;
    if (p2p->talks && p2p->taken != NOBODY)
        rc = take_offer(comm);
    *moved_out |= p2p->talks;
    p2p->talks = 0;
    if (!rc)
        rc = begin_talk(comm);
    *moved_out |= p2p->talks;
    return rc;
}

/* Brings the link of a stream to another host up. */
static xcclResult_t connect_stream(struct xcclComm *comm, struct xccl_stream *stream,
                                   int *moved_out)
{
    struct xccl_comm_link *link = net_link_of(comm, stream);
    xcclResult_t rc;

    if (!link)
        return xcclSuccess;
    rc = xccl_net_link_connect_step(link->net, &link->is_up);
    if (rc) {
        comm->run.bad_peer = stream->peer;
        comm->run.bad_net = link->net;
        return rc;
    }
    if (!link->is_up)
        return xcclSuccess;
    stream->links[XCCL_PROTO_SLICES] = xccl_comm_link_view(link);
    stream->slices_reach = xccl_comm_link_reach(link);
    stream->net = link->net;
    stream->has = 1u << XCCL_PROTO_SLICES;
    xccl_stream_begin(stream);
    *moved_out = 1;
    return xcclSuccess;
}

/* Moves on the ends that send, or those that receive. *unknown_out 1: no word of a peer has come.
 */
static xcclResult_t connect_streams(struct xcclComm *comm, int sends, int *unknown_out,
                                    int *moved_out)
{
    struct xccl_comm_p2p *p2p = comm->p2p;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < p2p->stream_count && !rc; i++) {
        struct xccl_stream *stream = p2p->streams[i];

        if (stream->sends != sends || xccl_p2p_is_up(stream))
            continue;
        if (!net_link_of(comm, stream))
            *unknown_out = 1;
        rc = connect_stream(comm, stream, moved_out);
    }
    return rc;
}

xcclResult_t xccl_p2p_connect(struct xcclComm *comm, int *moved_out)
{
    struct xccl_comm_p2p *p2p = comm->p2p;
    xcclResult_t rc = xcclSuccess;
    int unknown = 0;

    if (!p2p->listens) {
        rc = make_links(comm);
        p2p->listens = 1;
    }
    if (!rc && (p2p->talks || !xccl_p2p_all_up(p2p)))
        rc = talk(comm, moved_out);
    /* No receiving end before each sending end has begun, as in NCCL: a plugin whose accept blocks
     * (google-fastsocket) then waits for a peer that connects, not for one that waits likewise. */
    if (!rc)
        rc = connect_streams(comm, 1, &unknown, moved_out);
    if (!rc && !unknown)
        rc = connect_streams(comm, 0, &unknown, moved_out);
    p2p->all_up = xccl_p2p_all_up(p2p);
    return rc;
}
