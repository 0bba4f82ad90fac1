/* SPDX-License-Identifier: BSD-3-Clause */
/* A group's items become streams, one for each peer and direction, in the order of the rounds of a
 * pairwise exchange. Each stream goes its way on its own:
 *
 *   no link   over shared memory it is made at once; over networks the receiver listens, and tells
 *             the sender out of band where; the sender makes its end when that word has come
 *   link      connect and accept, polled
 *   up        slices move
 *
 * Words out of band go one at a time: first all that this rank has to say, then those that have
 * come; nobody is waited for in a certain order. Thread: see the header. */
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

#define NOBODY UINT32_MAX

struct xccl_comm_p2p {
    struct xccl_message *messages; /* stream after stream */
    struct xccl_stream *streams; /* link is NULL until it is up */
    struct offer *offers; /* by stream: of new receive ends over networks */
    int32_t *stream_of; /* by 2 * peer + sends; -1: none. Kept clean between groups. */
    uint32_t room, stream_count;
    uint32_t told; /* streams whose senders have been told, or need not be */
    int listens; /* 1: what needs no word with peers has been made */
    int talks; /* 1: an out-of-band operation is at work */
    uint32_t taken; /* by it: the stream whose receiver's word comes, or NOBODY */
    struct offer word; /* its memory */
};

void xccl_comm_p2p_free(struct xccl_comm_p2p *p2p)
{
    if (!p2p)
        return;
    xccl_free(p2p->messages);
    xccl_free(p2p->streams);
    xccl_free(p2p->offers);
    xccl_free(p2p->stream_of);
    xccl_free(p2p);
}

size_t xccl_comm_p2p_bytes(const struct xccl_comm_p2p *p2p)
{
    if (!p2p)
        return 0;
    return xccl_alloc_bytes(p2p) + xccl_alloc_bytes(p2p->messages) +
           xccl_alloc_bytes(p2p->streams) + xccl_alloc_bytes(p2p->offers) +
           xccl_alloc_bytes(p2p->stream_of);
}

/* --- from items to streams --- */

static xcclResult_t make_state(struct xcclComm *comm)
{
    struct xccl_comm_p2p *p2p = xccl_calloc(1, sizeof *p2p);
    size_t places = 2 * (size_t)comm->nranks;

    if (!p2p)
        return xcclSystemError;
    p2p->stream_of = xccl_calloc(places, sizeof *p2p->stream_of);
    if (!p2p->stream_of) {
        xccl_free(p2p);
        return xcclSystemError;
    }
    for (size_t i = 0; i < places; i++)
        p2p->stream_of[i] = -1;
    comm->p2p = p2p;
    return xcclSuccess;
}

/* For so many items; a room that was enough once stays. */
static xcclResult_t make_room(struct xccl_comm_p2p *p2p, uint32_t count)
{
    if (count <= p2p->room)
        return xcclSuccess;
    xccl_free(p2p->messages);
    xccl_free(p2p->streams);
    xccl_free(p2p->offers);
    p2p->messages = xccl_calloc(count, sizeof *p2p->messages);
    p2p->streams = xccl_calloc(count, sizeof *p2p->streams);
    p2p->offers = xccl_calloc(count, sizeof *p2p->offers);
    p2p->room = p2p->messages && p2p->streams && p2p->offers ? count : 0;
    return p2p->room ? xcclSuccess : xcclSystemError;
}

static int32_t *place_of(struct xccl_comm_p2p *p2p, const struct xccl_p2p_item *item)
{
    return &p2p->stream_of[2 * item->peer + item->sends];
}

/* The next stream, of peer in one direction, when there are items for it. */
static void add_stream(struct xccl_comm_p2p *p2p, int peer, int sends)
{
    int32_t *place = &p2p->stream_of[2 * peer + sends];

    if (*place < 0)
        return;
    *place = (int32_t)p2p->stream_count;
    p2p->streams[p2p->stream_count++] = (struct xccl_stream){.peer = peer, .sends = sends};
}

/* Streams by the rounds of a pairwise exchange: in round k to rank + k and from rank - k, so that
 * ranks do not all begin with the same one. Their messages are counted. */
static void make_streams(struct xcclComm *comm, const struct xccl_p2p_item *items, uint32_t count)
{
    struct xccl_comm_p2p *p2p = comm->p2p;
    int n = comm->nranks;

    for (uint32_t i = 0; i < count; i++)
        *place_of(p2p, &items[i]) = 0;
    p2p->stream_count = 0;
    for (int k = 1; k < n; k++) {
        add_stream(p2p, (comm->rank + k) % n, 1);
        add_stream(p2p, (comm->rank + n - k) % n, 0);
    }
    for (uint32_t i = 0; i < count; i++)
        if (items[i].peer != comm->rank)
            p2p->streams[*place_of(p2p, &items[i])].count++;
}

static void fill_streams(struct xcclComm *comm, const struct xccl_p2p_item *items, uint32_t count)
{
    struct xccl_comm_p2p *p2p = comm->p2p;
    struct xccl_message *at = p2p->messages;

    for (uint32_t i = 0; i < p2p->stream_count; i++) {
        p2p->streams[i].messages = at;
        at += p2p->streams[i].count;
        p2p->streams[i].count = 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct xccl_stream *stream;

        if (items[i].peer == comm->rank)
            continue;
        stream = &p2p->streams[*place_of(p2p, &items[i])];
        p2p->messages[stream->messages - p2p->messages + stream->count++] = (struct xccl_message){
            items[i].at, items[i].bytes};
    }
    for (uint32_t i = 0; i < count; i++)
        *place_of(p2p, &items[i]) = -1;
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

/* Each may send to all. */
static enum xccl_proto proto_to(const struct xcclComm *comm, int peer)
{
    return comm->shm && xccl_shm_is_tight(comm->shm) && xccl_comm_is_local(comm, peer)
               ? XCCL_PROTO_TIGHT
               : XCCL_PROTO_SLICES;
}

static struct xccl_comm_link *link_of(const struct xcclComm *comm, const struct xccl_stream *stream)
{
    struct xccl_schedule_conn conn = conn_of(stream);

    return xccl_comm_link_find(comm, &conn, proto_to(comm, stream->peer));
}

/* What needs no word with the peer. */
static xcclResult_t make_links(struct xcclComm *comm)
{
    struct xccl_comm_p2p *p2p = comm->p2p;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < p2p->stream_count && !rc; i++) {
        struct xccl_schedule_conn conn = conn_of(&p2p->streams[i]);
        struct offer *offer = &p2p->offers[i];

        *offer = (struct offer){0};
        if (link_of(comm, &p2p->streams[i]))
            continue;
        if (xccl_comm_is_local(comm, conn.peer)) {
            rc = xccl_comm_link_shm(comm, &conn, proto_to(comm, conn.peer));
        } else if (conn.dir == XCCL_CONN_RECV) {
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
    struct xccl_schedule_conn conn = conn_of(&p2p->streams[p2p->taken]);

    return xccl_comm_link_net(comm, &conn, p2p->word.slot_bytes, &p2p->word.handle);
}

/* The first stream whose receiver's word is there and has not been taken. */
static uint32_t find_word(const struct xcclComm *comm)
{
    const struct xccl_comm_p2p *p2p = comm->p2p;

    for (uint32_t i = 0; i < p2p->stream_count; i++)
        if (p2p->streams[i].sends && !p2p->streams[i].link && !link_of(comm, &p2p->streams[i]) &&
            xccl_bootstrap_has_mail(comm->boot, p2p->streams[i].peer, P2P_TAG))
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
        return xccl_bootstrap_send_start(comm->boot, p2p->streams[next].peer, P2P_TAG,
                                         &p2p->offers[next], sizeof(struct offer), &limit);
    }
    p2p->taken = find_word(comm);
    if (p2p->taken == NOBODY)
        return xcclSuccess;
    p2p->talks = 1;
    return xccl_bootstrap_recv_start(comm->boot, p2p->streams[p2p->taken].peer, P2P_TAG, &p2p->word,
                                     sizeof p2p->word, &limit);
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

/* Brings the link of a stream up. */
static xcclResult_t connect_stream(struct xcclComm *comm, struct xccl_stream *stream,
                                   int *moved_out)
{
    struct xccl_comm_link *link = link_of(comm, stream);
    xcclResult_t rc = xcclSuccess;

    if (!link)
        return xcclSuccess;
    if (link->net && !link->is_up)
        rc = xccl_net_link_connect_step(link->net, &link->is_up);
    if (rc) {
        comm->run.bad_peer = stream->peer;
        comm->run.bad_net = link->net;
        return rc;
    }
    if (link->net && !link->is_up)
        return xcclSuccess;
    stream->link = xccl_comm_link_view(link);
    stream->net = link->net;
    stream->reach = xccl_comm_link_reach(link);
    xccl_stream_begin(stream);
    *moved_out = 1;
    return xcclSuccess;
}

/* --- the run --- */

static int is_done(const struct xccl_stream *stream)
{
    return stream->link && xccl_stream_done(stream);
}

/* 1: all links of streams are up. */
static int all_up(const struct xccl_comm_p2p *p2p)
{
    uint32_t up = 0;

    while (up < p2p->stream_count && p2p->streams[up].link)
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
        if (!p2p->streams[i].link)
            rc = connect_stream(comm, &p2p->streams[i], moved_out);
    return rc;
}

static int step(struct xccl_run *run)
{
    struct xcclComm *comm = run->owner;
    struct xccl_comm_p2p *p2p = comm->p2p;
    int moved = 0, rest = p2p->talks;

    if (!p2p->listens || p2p->talks || !all_up(p2p))
        run->rc = go_on(comm, &moved);
    for (uint32_t i = 0; i < p2p->stream_count && !run->rc; i++) {
        if (p2p->streams[i].link && !is_done(&p2p->streams[i]))
            moved |= xccl_stream_progress(run, &p2p->streams[i]);
        rest |= !is_done(&p2p->streams[i]);
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
        const struct xccl_stream *stream = &p2p->streams[i];
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

/* Nothing moves, so what a peer that left has sent before has come. */
xcclResult_t xccl_comm_p2p_check_left(struct xcclComm *comm)
{
    const struct xccl_comm_p2p *p2p = comm->p2p;

    for (uint32_t i = 0; i < p2p->stream_count; i++) {
        const struct xccl_stream *stream = &p2p->streams[i];
        char name[128];

        if (is_done(stream) || !has_left(comm, stream->peer))
            continue;
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
    char name[128];

    if (!xccl_comm_in_p2p(comm) || !link)
        return 0;
    xccl_comm_name_rank(comm, comm->run.bad_peer, name, sizeof name);
    (void)xccl_comm_fail(comm, xcclInvalidUsage,
                         "rank %d receives a message of another size than %s sends; sends and "
                         "receives of two ranks must match in order and size",
                         comm->rank, name);
    return 1;
}

/* --- beginning --- */

xcclResult_t xccl_comm_check_p2p(const struct xcclComm *comm, const struct xccl_p2p_item *items,
                                 uint32_t count)
{
    return do_own(comm, items, count, 0);
}

static xcclResult_t set_up(struct xcclComm *comm, const struct xccl_p2p_item *items, uint32_t count)
{
    xcclResult_t rc = do_own(comm, items, count, 0);

    if (!rc && !comm->p2p)
        rc = make_state(comm);
    if (!rc)
        rc = make_room(comm->p2p, count);
    if (rc)
        return rc;
    (void)do_own(comm, items, count, 1);
    make_streams(comm, items, count);
    fill_streams(comm, items, count);
    comm->p2p->listens = 0;
    comm->p2p->talks = 0;
    comm->p2p->told = 0;
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
    comm->run.flag_low = XCCL_STREAM_FLAG;
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
