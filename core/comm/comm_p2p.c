/* SPDX-License-Identifier: BSD-3-Clause */
/* A group's items become messages of streams, one stream for each peer and direction, which stay
 * with their links; those of a group go side by side, in the order of the rounds of a pairwise
 * exchange. Each stream goes its way on its own:
 *
 *   no link   over shared memory those that the group's messages need are made at once; over
 *             networks the receiver listens, and tells the sender out of band where; the sender
 *             makes its end when that word has come
 *   link      connect and accept, polled
 *   up        messages move
 *
 * Words out of band go one at a time: first all that this rank has to say, then those that have
 * come; nobody is waited for in a certain order. A repeated group takes no memory, and its work
 * grows with its messages, not with the ranks. Thread: see the header. */
#include "comm/comm_p2p.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/comm_bind.h"
#include "comm/comm_links.h"
#include "comm/comm_plan.h"
#include "comm/comm_progress.h"
#include "comm/comm_record.h"
#include "comm/comm_verdict.h"
#include "comm/control.h"
#include "exec/streams.h"

#define P2P_TAG 0x50325000u /* of words out of band */
#define LEFT_NS (100 * XCCL_NS_PER_MS)

/* What a receiver tells its sender. */
struct offer {
    uint32_t slot_bytes, reserved;
    xcclNetHandle_t handle;
};

#define NOBODY    UINT32_MAX
#define ALL_KINDS ((1u << XCCL_STREAM_KINDS) - 1)

struct xccl_comm_p2p {
    int nranks;
    struct xccl_stream **stream_of; /* by 2 * peer + sends; NULL: not used yet */
    /* Of the group at work: */
    struct xccl_stream **streams; /* those that have items, by their rounds */
    struct xccl_message *messages; /* stream after stream */
    struct offer *offers; /* by stream: of new receive ends over networks */
    uint32_t room, stream_count;
    int all_up; /* 1: all have the links that they need */
    uint32_t told; /* streams whose senders have been told, or need not be */
    int listens; /* 1: what needs no word with peers has been made */
    int talks; /* 1: an out-of-band operation is at work */
    uint32_t taken; /* by it: the stream whose receiver's word comes, or NOBODY */
    struct offer word; /* its memory */
    uint64_t looked_ns; /* of the wait: when links were looked at that have not been made */
};

void xccl_comm_p2p_free(struct xccl_comm_p2p *p2p)
{
    if (!p2p)
        return;
    for (int i = 0; p2p->stream_of && i < 2 * p2p->nranks; i++)
        xccl_free(p2p->stream_of[i]);
    xccl_free(p2p->stream_of);
    xccl_free(p2p->streams);
    xccl_free(p2p->messages);
    xccl_free(p2p->offers);
    xccl_free(p2p);
}

size_t xccl_comm_p2p_bytes(const struct xccl_comm_p2p *p2p)
{
    size_t bytes;

    if (!p2p)
        return 0;
    bytes = xccl_alloc_bytes(p2p) + xccl_alloc_bytes(p2p->stream_of) +
            xccl_alloc_bytes(p2p->streams) + xccl_alloc_bytes(p2p->messages) +
            xccl_alloc_bytes(p2p->offers);
    for (int i = 0; i < 2 * p2p->nranks; i++)
        bytes += xccl_alloc_bytes(p2p->stream_of[i]);
    return bytes;
}

/* --- from items to streams --- */

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

/* What of it the group needs. An empty one connects ranks of other hosts, no more. */
static void count_item(struct xccl_stream *stream, const struct xccl_p2p_item *item)
{
    if (item->connects)
        stream->needs |= stream->in_slices ? 1u << XCCL_PROTO_SLICES : ALL_KINDS;
    if (item->bytes) {
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

        if (items[i].peer == comm->rank || !items[i].bytes)
            continue;
        stream = stream_for(comm, &items[i]);
        p2p->messages[stream->messages - p2p->messages + stream->next++] = (struct xccl_message){
            items[i].at, items[i].bytes};
    }
}

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

/* Sends to oneself are copies; copies is 0 for a look at them alone. */
static xcclResult_t do_own(const struct xcclComm *comm, const struct xccl_p2p_item *items,
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

/* --- links --- */

static struct xccl_schedule_conn conn_of(const struct xccl_stream *stream)
{
    return (struct xccl_schedule_conn){.peer = (uint16_t)stream->peer,
                                       .dir = stream->sends ? XCCL_CONN_SEND : XCCL_CONN_RECV,
                                       .kind = XCCL_CONN_FIFO,
                                       .id = XCCL_P2P_ID};
}

static int is_up(const struct xccl_stream *stream)
{
    return !(stream->needs & ~stream->has);
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
        struct offer *offer = &p2p->offers[i];

        *offer = (struct offer){0};
        if (is_up(stream))
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
        if (p2p->streams[i]->sends && !is_up(p2p->streams[i]) &&
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
                                         &p2p->offers[next], sizeof(struct offer), &limit);
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

/* --- the run --- */

static int is_done(const struct xccl_stream *stream)
{
    return is_up(stream) && xccl_stream_done(stream);
}

static int all_up(const struct xccl_comm_p2p *p2p)
{
    uint32_t up = 0;

    while (up < p2p->stream_count && is_up(p2p->streams[up]))
        up++;
    return up == p2p->stream_count;
}

static xcclResult_t go_on(struct xcclComm *comm, int *moved_out)
{
    struct xccl_comm_p2p *p2p = comm->p2p;
    xcclResult_t rc = xcclSuccess;

    if (!p2p->listens) {
        rc = make_links(comm);
        p2p->listens = 1;
    }
    if (!rc && (p2p->talks || !all_up(p2p)))
        rc = talk(comm, moved_out);
    for (uint32_t i = 0; i < p2p->stream_count && !rc; i++)
        if (!is_up(p2p->streams[i]))
            rc = connect_stream(comm, p2p->streams[i], moved_out);
    p2p->all_up = all_up(p2p);
    return rc;
}

static int step(struct xccl_run *run)
{
    struct xcclComm *comm = run->owner;
    struct xccl_comm_p2p *p2p = comm->p2p;
    int moved = 0, rest = p2p->talks;

    if (__builtin_expect(!p2p->all_up || p2p->talks, 0))
        run->rc = go_on(comm, &moved);
    for (uint32_t i = 0; i < p2p->stream_count && !run->rc; i++) {
        struct xccl_stream *stream = p2p->streams[i];

        if (is_done(stream))
            continue;
        if (is_up(stream))
            moved |= xccl_stream_progress(run, stream);
        rest |= !is_done(stream);
    }
    run->finished = !rest && !p2p->talks && !run->rc;
    return moved;
}

int xccl_comm_in_p2p(const struct xcclComm *comm)
{
    return !comm->run.plan && comm->run.step == step;
}

static void list_peers(const struct xcclComm *comm, char *text_out, size_t bytes)
{
    const struct xccl_comm_p2p *p2p = comm->p2p;
    int used = 0;

    text_out[0] = '\0';
    for (uint32_t i = 0; i < p2p->stream_count && used < (int)bytes - 1; i++) {
        const struct xccl_stream *stream = p2p->streams[i];
        char name[128];

        if (is_done(stream))
            continue;
        xccl_comm_name_rank(comm, stream->peer, name, sizeof name);
        used += snprintf(text_out + used, bytes - (size_t)used, "%s%s %s", used ? ", " : "",
                         stream->sends ? "to send to" : "to receive from", name);
    }
}

/* A peer has left in order: on this host its board says so, elsewhere the control plane knows it of
 * the ring's neighbours. Of others the network tells, or the deadline. */
static int has_left(const struct xcclComm *comm, int peer)
{
    int index = comm->shm ? xccl_shm_index_of(comm->shm, peer) : -1;
    uint64_t last_seq;

    if (index < 0)
        return xccl_control_left_before(comm->control, UINT64_MAX, &last_seq) == peer;
    /* Acquire: what it did before it left. Pairs with undo_shm() in comm_init.c. */
    return atomic_load_explicit(&xccl_shm_board(comm->shm, index)->outside, memory_order_acquire) ==
           2;
}

/* came: what is there of the message that stream expects; NULL: that is not known. */
static xcclResult_t fail_size(struct xcclComm *comm, const struct xccl_stream *stream,
                              const struct xccl_came *came)
{
    char name[128], sizes[96] = "";

    xccl_comm_name_rank(comm, stream->peer, name, sizeof name);
    if (came)
        snprintf(sizes, sizeof sizes, ", %llu bytes%s and not %zu", (unsigned long long)came->bytes,
                 came->is_all ? "" : " or more", stream->messages[stream->next].bytes);
    return xccl_comm_fail(comm, xcclInvalidUsage,
                          "rank %d receives a message of another size than %s sends%s; sends and "
                          "receives of two ranks must match in order and size",
                          comm->rank, name, sizes);
}

/* Has the message that a stream waits for come over another link than that of its size? all 1: this
 * end may not have made that one, but its place is known. */
static xcclResult_t look_aside(struct xcclComm *comm, const struct xccl_stream *stream, int all)
{
    int index = comm->shm ? xccl_shm_index_of(comm->shm, stream->peer) : -1;

    if (stream->sends || stream->in_slices || !is_up(stream) || stream->next == stream->count)
        return xcclSuccess;
    for (int kind = 0; kind < XCCL_STREAM_KINDS; kind++) {
        const struct xccl_link *link = stream->links[kind];
        enum xccl_proto proto = (enum xccl_proto)kind;
        struct xccl_came came;
        struct xccl_link place;

        if (proto == stream->kind || (!link && !all))
            continue;
        if (!link && xccl_shm_fifo_look(comm->shm, proto, index, XCCL_P2P_ID, &place))
            continue; /* no memory to look at it: the deadline remains */
        if (xccl_stream_came(stream, proto, link ? link : &place, &came))
            return fail_size(comm, stream, &came);
    }
    return xcclSuccess;
}

/* Links that this end has not made are looked at seldom, which costs a system call. */
static xcclResult_t look_at_all(struct xcclComm *comm, uint64_t waited_ns)
{
    struct xccl_comm_p2p *p2p = comm->p2p;
    xcclResult_t rc = xcclSuccess;
    int all;

    if (waited_ns < p2p->looked_ns) /* something has moved */
        p2p->looked_ns = 0;
    all = waited_ns - p2p->looked_ns > LEFT_NS;
    if (all)
        p2p->looked_ns = waited_ns;
    for (uint32_t i = 0; i < p2p->stream_count && !rc; i++)
        rc = look_aside(comm, p2p->streams[i], all);
    return rc;
}

/* Nothing moves, so what a peer that left has sent before has come. */
xcclResult_t xccl_comm_p2p_check_left(struct xcclComm *comm)
{
    const struct xccl_comm_p2p *p2p = comm->p2p;

    for (uint32_t i = 0; i < p2p->stream_count; i++) {
        const struct xccl_stream *stream = p2p->streams[i];
        xcclResult_t rc;
        char name[128];

        if (is_done(stream) || !has_left(comm, stream->peer))
            continue;
        rc = look_aside(comm, stream, 1);
        if (rc)
            return rc;
        xccl_comm_name_rank(comm, stream->peer, name, sizeof name);
        return xccl_comm_fail(comm, xcclRemoteError,
                              "%s has left the communicator, but rank %d still waits %s it", name,
                              comm->rank, stream->sends ? "to send to" : "to receive from");
    }
    return xcclSuccess;
}

static xcclResult_t check(struct xccl_run *run, uint64_t waited_ns)
{
    struct xcclComm *comm = run->owner;
    char peers[320];
    xcclResult_t rc;

    xccl_comm_progress_turn(comm);
    xccl_record_waits(comm->record);
    rc = xccl_comm_error(comm);
    if (!rc)
        rc = look_at_all(comm, waited_ns);
    if (!rc && waited_ns > LEFT_NS)
        rc = xccl_comm_p2p_check_left(comm);
    if (rc || waited_ns <= comm->timeout_ns)
        return rc;
    list_peers(comm, peers, sizeof peers);
    return xccl_comm_fail(comm, xcclTimeout,
                          "rank %d has waited %llu s in sends and receives, %s; look at what they "
                          "do, or raise XCCL_TIMEOUT_S",
                          comm->rank, (unsigned long long)(waited_ns / XCCL_NS_PER_S), peers);
}

/* What a slice of another size says; 0: the group failed otherwise. */
int xccl_comm_p2p_blame(struct xcclComm *comm)
{
    const struct xccl_link *link = comm->run.bad_link;
    const struct xccl_stream *stream;
    struct xccl_came came;

    if (!xccl_comm_in_p2p(comm) || !link)
        return 0;
    stream = comm->p2p->stream_of[2 * comm->run.bad_peer];
    if (!stream->net && xccl_stream_came(stream, stream->kind, link, &came))
        (void)fail_size(comm, stream, &came);
    else if (!look_aside(comm, stream, 1)) /* a later one is here, so this one came elsewhere */
        (void)fail_size(comm, stream, NULL);
    return 1;
}

/* --- beginning --- */

xcclResult_t xccl_comm_check_p2p(const struct xcclComm *comm, const struct xccl_p2p_item *items,
                                 uint32_t count)
{
    return do_own(comm, items, count, 0);
}

static int has_own(const struct xcclComm *comm, const struct xccl_p2p_item *items, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (items[i].peer == comm->rank)
            return 1;
    return 0;
}

/* The streams of a group, with their messages, in order. */
static xcclResult_t make_group(struct xcclComm *comm, const struct xccl_p2p_item *items,
                               uint32_t count)
{
    xcclResult_t rc = comm->p2p ? xcclSuccess : make_state(comm);

    if (rc)
        return rc;
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

static xcclResult_t set_up(struct xcclComm *comm, const struct xccl_p2p_item *items, uint32_t count)
{
    int own = has_own(comm, items, count);
    xcclResult_t rc = own ? do_own(comm, items, count, 0) : xcclSuccess;
    struct xccl_comm_p2p *p2p;

    if (!rc)
        rc = make_group(comm, items, count);
    if (rc)
        return rc;
    if (own)
        (void)do_own(comm, items, count, 1);
    p2p = comm->p2p;
    for (uint32_t i = 0; i < p2p->stream_count; i++)
        if (is_up(p2p->streams[i]))
            xccl_stream_begin(p2p->streams[i]);
    p2p->all_up = all_up(p2p);
    p2p->listens = 0;
    p2p->talks = 0;
    p2p->told = 0;
    p2p->looked_ns = 0;
    return xcclSuccess;
}

xcclResult_t xccl_comm_begin_p2p(struct xcclComm *comm, const struct xccl_p2p_item *items,
                                 uint32_t count)
{
    xcclResult_t rc = xccl_comm_enter(comm);

    if (rc)
        return rc;
    rc = set_up(comm, items, count);
    if (rc) {
        xccl_comm_leave(comm);
        return rc;
    }
    xccl_run_clear(&comm->run);
    comm->run.step = step;
    comm->run.check = check;
    comm->run.owner = comm;
    xccl_comm_record_begin_p2p(comm, items, count);
    return xcclSuccess;
}

xcclResult_t xccl_comm_execute_p2p(struct xcclComm *comm, const struct xccl_p2p_item *items,
                                   uint32_t count)
{
    struct xccl_run *run = &comm->run;
    xcclResult_t rc = xccl_comm_begin_p2p(comm, items, count);
    unsigned which;

    if (rc)
        return rc;
    xccl_exec_wait(&run, 1, &comm->policy, &which);
    return xccl_comm_end(comm, run->rc);
}
