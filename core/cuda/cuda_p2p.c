/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives of a CUDA communicator. Ranks of a host have links for every pair from the
 * beginning: each offers memory with a place for what every other one sends, and heads, as a
 * binding does. Links to other hosts are made by the host's sends and receives (comm_p2p.c), before
 * the first message, and have their slots in pinned memory.
 *
 * The messages of a group are one work: pairs of a send and a receive go side by side, ordered by
 * distance, so that ranks with many peers meet. Those to other hosts follow in a launch of their
 * own. What a rank sends to itself is copied.
 *
 * Thread: the user's, one at a time a communicator. */
#include <string.h>

#include "base/alloc.h"
#include "base/param.h"
#include "call/comm_p2p_state.h"
#include "cuda/cuda_int.h"
#include "exec/streams.h"

#define SLOTS      8u
#define SLOT_MOST  (256u << 10)
#define SLOT_LEAST (8u << 10)
#define SHARE      4 /* of XCCL_BUFFER_BYTES */
#define CHANNELS   8u
#define HEADERS    (SLOTS * XCCL_LINE_BYTES)
#define FEW        32

struct xccl_cuda_p2p {
    struct xccl_cuda_offer own;
    struct xccl_cuda_held held[XCCL_CUDA_PIECES];
    struct xccl_cuda_held stale[XCCL_CUDA_PIECES]; /* was offered before */
    uint32_t places[XCCL_CUDA_PIECES]; /* of each piece; some may have been left */
    uint32_t channels; /* of links between ranks of this host, the same on all of them */
    xccl_cu_ptr table; /* struct xccl_dev_link[2 * peer of the host + sends][channels] */
    size_t table_bytes;
    xccl_cu_ptr *far; /* by 2 * rank + sends: the one link to another host; 0: not made yet */
};

/* --- memory --- */

static uint64_t place_of(uint32_t slot_bytes)
{
    return HEADERS + (uint64_t)SLOTS * slot_bytes;
}

/* Those whose links are in that piece. */
struct members {
    uint32_t count, unplaced; /* unplaced: of them */
    struct xccl_cuda_want want;
};

static struct members count_members(const struct xcclComm *comm, enum xccl_cuda_which which)
{
    const struct xccl_cuda_edges *edges = &comm->cuda->edges;
    struct members members = {0};

    for (uint32_t i = 0; i < edges->count; i++) {
        const struct xccl_cuda_edge *edge = &edges->own[i];
        int peer = xccl_shm_rank_of(comm->shm, (int)i);

        if (xccl_cuda_edge_piece(edge) != which)
            continue;
        members.count++;
        members.unplaced += edge->place == XCCL_CUDA_NO_PLACE;
        if (edge->kind == XCCL_CUDA_MEMORY_FABRIC)
            members.want.fabrics++;
        else
            members.want.times += !xccl_cuda_same_process(comm, peer);
    }
    return members;
}

/* 1: what was refused is about how this rank's memory gets to that peer. */
static int is_about(const struct xcclComm *comm, uint32_t index,
                    const struct xccl_cuda_why *refused)
{
    const struct xccl_cuda_edge *edge = &comm->cuda->edges.own[index];
    int is_near = xccl_cuda_same_process(comm, xccl_shm_rank_of(comm->shm, (int)index));

    switch (refused->code) {
    case XCCL_CUDA_WHY_FABRIC_CREATE:
    case XCCL_CUDA_WHY_FABRIC_EXPORT:
        return edge->kind == XCCL_CUDA_MEMORY_FABRIC;
    case XCCL_CUDA_WHY_EXPORT:
        return edge->kind == XCCL_CUDA_MEMORY_HANDLE && !is_near;
    case XCCL_CUDA_WHY_IPC_GET:
        return !is_near;
    default:
        return 1;
    }
}

/* Gives all of them places, from 0 on; or, refused, the next kind to whom it is about. */
static void settle(struct xcclComm *comm, enum xccl_cuda_which which,
                   const struct xccl_cuda_why *refused)
{
    struct xccl_cuda_edges *edges = &comm->cuda->edges;
    uint16_t place = 0;

    for (uint32_t i = 0; i < edges->count; i++) {
        struct xccl_cuda_edge *edge = &edges->own[i];

        if (xccl_cuda_edge_piece(edge) != which)
            continue;
        if (!refused->code)
            edge->place = place++;
        else if (is_about(comm, i, refused))
            xccl_cuda_edge_lower(comm->cuda, edge, refused);
    }
}

/* refused->code set: it is not there, and not all of them are to have it any more. */
static xcclResult_t make_piece(struct xcclComm *comm, enum xccl_cuda_which which,
                               struct members *members, struct xccl_cuda_why *refused)
{
    struct xccl_cuda_p2p *p2p = comm->cuda->p2p;
    struct xccl_cuda_piece *piece = &p2p->own.pieces[which];
    uint64_t channels = (uint64_t)members->count * p2p->own.channels;
    xcclResult_t rc;

    *refused = (struct xccl_cuda_why){0};
    *piece = (struct xccl_cuda_piece){.heads = channels * p2p->own.place_bytes};
    members->want.bytes = piece->heads + channels * XCCL_DEV_HEAD_BYTES;
    rc = xccl_cuda_offer_piece(comm, which, &members->want, piece, &p2p->held[which], refused);
    if (rc)
        return rc;
    p2p->places[which] = members->count;
    settle(comm, which, refused);
    return xcclSuccess;
}

/* It stays as it is when nobody came to it, and goes when nobody is left. */
static xcclResult_t offer_piece(struct xcclComm *comm, enum xccl_cuda_which which)
{
    struct xccl_cuda_p2p *p2p = comm->cuda->p2p;
    struct members members = count_members(comm, which);
    struct xccl_cuda_why refused = {0};
    xcclResult_t rc = xcclSuccess;

    if (members.count && !members.unplaced)
        return xcclSuccess;
    p2p->stale[which] = p2p->held[which];
    p2p->held[which] = (struct xccl_cuda_held){0};
    p2p->own.pieces[which] = (struct xccl_cuda_piece){0};
    while (members.count && !rc) { /* each turn that is refused lowers a kind */
        rc = make_piece(comm, which, &members, &refused);
        if (!refused.code)
            break;
        members = count_members(comm, which);
    }
    return rc;
}

/* Who is refused one goes on to a later one. */
static xcclResult_t offer_pieces(struct xcclComm *comm, struct xccl_cuda_offer *offer)
{
    xcclResult_t rc = xcclSuccess;

    for (int which = 0; which < XCCL_CUDA_PIECES && !rc; which++)
        rc = offer_piece(comm, (enum xccl_cuda_which)which);
    *offer = comm->cuda->p2p->own;
    return rc;
}

xcclResult_t xccl_cuda_p2p_offer(struct xcclComm *comm, struct xccl_cuda_offer *offer)
{
    struct xccl_cuda_comm *cuda = comm->cuda;
    uint32_t peers = cuda->edges.count ? cuda->edges.count : 1;
    uint64_t budget = (uint64_t)xccl_param_int(XCCL_P_BUFFER_BYTES) / SHARE;
    struct xccl_cuda_p2p *p2p = xccl_calloc(1, sizeof *p2p);
    struct xccl_cuda_offer *own;

    if (!p2p)
        return xcclSystemError;
    cuda->p2p = p2p;
    p2p->far = xccl_calloc(2 * (size_t)comm->nranks, sizeof *p2p->far);
    if (!p2p->far)
        return xcclSystemError;
    own = &p2p->own;
    own->nslots = SLOTS;
    own->slot_bytes = SLOT_MOST;
    own->channels = cuda->channels < CHANNELS ? cuda->channels : CHANNELS;
    while (own->slot_bytes > SLOT_LEAST &&
           peers * own->channels * place_of(own->slot_bytes) > budget)
        own->slot_bytes /= 2;
    while (own->channels > 1 && peers * own->channels * place_of(own->slot_bytes) > budget)
        own->channels /= 2;
    own->place_bytes = place_of(own->slot_bytes);
    return offer_pieces(comm, offer);
}

xcclResult_t xccl_cuda_p2p_offer_again(struct xcclComm *comm, struct xccl_cuda_offer *offer)
{
    return offer_pieces(comm, offer);
}

void xccl_cuda_p2p_drop_stale(struct xcclComm *comm)
{
    xccl_cuda_take_back(comm, comm->cuda->p2p->stale);
}

/* --- links --- */

/* Of the peer with that local index: its side, and this rank's. refused: as in a map. */
static xcclResult_t find_sides(struct xcclComm *comm, uint32_t index,
                               const struct xccl_cuda_offer *offer, struct xccl_cuda_side sides[2],
                               struct xccl_cuda_why *refused)
{
    const struct xccl_cuda_edges *edges = &comm->cuda->edges;
    const struct xccl_cuda_edge *theirs = &edges->theirs[index], *own = &edges->own[index];
    struct xccl_cuda_p2p *p2p = comm->cuda->p2p;
    enum xccl_cuda_which which = xccl_cuda_edge_piece(own);

    sides[0] = (struct xccl_cuda_side){.offer = offer,
                                       .piece = &offer->pieces[xccl_cuda_edge_piece(theirs)],
                                       .place = theirs->place};
    sides[1] = (struct xccl_cuda_side){.offer = &p2p->own,
                                       .piece = &p2p->own.pieces[which],
                                       .base = p2p->held[which].at,
                                       .place = own->place};
    return xccl_cuda_map(comm, xccl_shm_rank_of(comm->shm, (int)index), sides[0].piece,
                         &sides[0].base, refused);
}

xcclResult_t xccl_cuda_p2p_try(struct xcclComm *comm, const uint8_t *offers, size_t stride,
                               struct xccl_cuda_why *refused)
{
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < comm->cuda->edges.count && !rc; i++) {
        int peer = xccl_shm_rank_of(comm->shm, (int)i);
        struct xccl_cuda_side sides[2];
        struct xccl_cuda_offer offer;

        if (peer == comm->rank)
            continue;
        xccl_cuda_get_offer(offers + (size_t)peer * stride, &offer);
        rc = find_sides(comm, i, &offer, sides, &refused[i]);
    }
    xccl_cuda_close_opened(comm->cuda, 0);
    return rc;
}

static xcclResult_t fill_link(const struct xccl_cuda_side sides[2], int sends, uint32_t channel,
                              int peer, struct xccl_dev_link *link)
{
    /* The receiver has the slots, the sender has the head. */
    uint32_t slot_bytes = sides[!sends].offer->slot_bytes;

    *link = (struct xccl_dev_link){
        .header_stride = XCCL_LINE_BYTES,
        .payload_stride = slot_bytes,
        .nslots = SLOTS,
        .slot_bytes = slot_bytes,
        .limit = sends ? SLOTS : 0,
        .peer = (uint16_t)peer,
    };
    return xccl_cuda_place_link(sides, sends, channel, HEADERS, link);
}

static xcclResult_t fill_peer(struct xcclComm *comm, const struct xccl_cuda_offer *offer,
                              uint32_t index, struct xccl_dev_link *links)
{
    uint32_t channels = comm->cuda->p2p->channels;
    int peer = xccl_shm_rank_of(comm->shm, (int)index);
    struct xccl_cuda_side sides[2];
    xcclResult_t rc = find_sides(comm, index, offer, sides, NULL);

    for (uint32_t sends = 0; sends < 2; sends++)
        for (uint32_t i = 0; i < channels && !rc; i++)
            rc = fill_link(sides, (int)sends, i, peer, &links[sends * channels + i]);
    for (int sends = 0; sends < 2 && !rc; sends++)
        xccl_cuda_note_near(comm, peer, sends, sides[!sends].piece);
    return rc;
}

xcclResult_t xccl_cuda_p2p_take(struct xcclComm *comm, const uint8_t *offers, size_t stride)
{
    struct xccl_cuda_comm *cuda = comm->cuda;
    struct xccl_cuda_p2p *p2p = cuda->p2p;
    uint32_t peers = cuda->edges.count;
    struct xccl_cuda_offer offer;
    struct xccl_dev_link *links;
    xcclResult_t rc = xcclSuccess;

    if (!peers)
        return xcclSuccess;
    if (p2p->held[XCCL_CUDA_BY_HANDLE].number) { /* whoever could has asked for it */
        xccl_shm_take_back(comm->shm, p2p->held[XCCL_CUDA_BY_HANDLE].number);
        p2p->held[XCCL_CUDA_BY_HANDLE].number = 0;
    }
    p2p->channels = p2p->own.channels;
    for (uint32_t i = 0; i < peers; i++) {
        xccl_cuda_get_offer(offers + (size_t)xccl_shm_rank_of(comm->shm, (int)i) * stride, &offer);
        if (offer.channels < p2p->channels)
            p2p->channels = offer.channels;
    }
    p2p->table_bytes = 2 * (size_t)peers * p2p->channels * sizeof *links;
    links = xccl_calloc_aligned(64, p2p->table_bytes + sizeof *links);
    if (!links)
        return xcclSystemError;
    for (uint32_t i = 0; i < peers && !rc; i++) {
        int peer = xccl_shm_rank_of(comm->shm, (int)i);

        xccl_cuda_get_offer(offers + (size_t)peer * stride, &offer);
        if (peer != comm->rank)
            rc = fill_peer(comm, &offer, i, links + 2 * i * p2p->channels);
    }
    if (!rc)
        rc = xccl_cuda_pool_alloc(cuda, p2p->table_bytes, &p2p->table);
    if (!rc)
        rc = xccl_cuda_upload(cuda->device, p2p->table, links, p2p->table_bytes);
    xccl_free(links);
    return rc;
}

/* Those with heads in that piece. */
static int is_piece_read(const struct xcclComm *comm, enum xccl_cuda_which which)
{
    const struct xccl_cuda_p2p *p2p = comm->cuda->p2p;
    const struct xccl_cuda_edges *edges = &comm->cuda->edges;
    uint32_t channels = p2p->own.channels, heads = p2p->places[which] * channels;
    uint32_t *link_of = xccl_calloc((size_t)heads + 1, sizeof *link_of);
    int all = 1;

    for (uint32_t i = 0; link_of && i < heads; i++)
        link_of[i] = UINT32_MAX;
    for (uint32_t i = 0; link_of && i < edges->count; i++)
        for (uint32_t c = 0; c < p2p->channels; c++)
            if (xccl_cuda_edge_piece(&edges->own[i]) == which)
                link_of[edges->own[i].place * channels + c] = (2 * i + 1) * p2p->channels + c;
    if (link_of)
        all = xccl_cuda_is_read(
            comm->cuda,
            &(struct xccl_cuda_reading){.table = p2p->table,
                                        .links = 2 * edges->count * p2p->channels,
                                        .heads = p2p->held[which].at + p2p->own.pieces[which].heads,
                                        .head_count = heads,
                                        .link_of = link_of});
    xccl_free(link_of);
    return all;
}

int xccl_cuda_p2p_is_read(const struct xcclComm *comm)
{
    const struct xccl_cuda_p2p *p2p = comm->cuda->p2p;

    for (int which = 0; which < XCCL_CUDA_PIECES && p2p->table; which++)
        if (p2p->held[which].memory && !is_piece_read(comm, (enum xccl_cuda_which)which))
            return 0;
    return 1;
}

void xccl_cuda_p2p_free(struct xccl_cuda_comm *cuda)
{
    struct xccl_cuda_p2p *p2p = cuda->p2p;

    if (!p2p)
        return;
    cuda->p2p = NULL;
    xccl_cuda_take_back(cuda->comm, p2p->held);
    xccl_cuda_take_back(cuda->comm, p2p->stale);
    xccl_cuda_pool_free(cuda, p2p->table, p2p->table_bytes);
    for (int i = 0; p2p->far && i < 2 * cuda->comm->nranks; i++)
        xccl_cuda_pool_free(cuda, p2p->far[i], sizeof(struct xccl_dev_link));
    xccl_free(p2p->far);
    xccl_free(p2p);
}

static struct xccl_stream *stream_of(const struct xcclComm *comm, int peer, int sends)
{
    return comm->p2p ? comm->p2p->stream_of[2 * peer + sends] : NULL;
}

int xccl_cuda_p2p_needs_link(const struct xcclComm *comm, int peer, int sends)
{
    const struct xccl_stream *stream;

    if (peer == comm->rank || xccl_comm_is_local(comm, peer))
        return 0;
    stream = stream_of(comm, peer, sends);
    return !stream || !stream->net;
}

/* The link to another host as the kernel sees it. */
static xcclResult_t far_link(struct xcclComm *comm, int peer, int sends, xccl_cu_ptr *at_out)
{
    struct xccl_cuda_comm *cuda = comm->cuda;
    xccl_cu_ptr *at = &cuda->p2p->far[2 * peer + sends];
    struct xccl_dev_link link;
    xcclResult_t rc = xcclSuccess;

    if (!*at) {
        rc = xccl_cuda_net_view(cuda, stream_of(comm, peer, sends)->net, &link);
        if (!rc)
            rc = xccl_cuda_pool_alloc(cuda, sizeof link, at);
        if (!rc)
            rc = xccl_cuda_upload(cuda->device, *at, &link, sizeof link);
    }
    *at_out = *at;
    return rc;
}

/* --- a group's messages --- */

/* The messages of one communicator, on their way to a launch. */
struct group {
    struct xcclComm *comm;
    const struct xccl_cuda_op **ops; /* sends, then receives; of each by distance */
    uint32_t nsends, nreceives;
    xccl_cu_stream stream; /* of the first one */
    int launched;
    uint32_t *rows; /* while they are laid out */
    struct xccl_dev_messages work;
};

static uint32_t distance(const struct xcclComm *comm, const struct xccl_cuda_op *op)
{
    uint32_t n = (uint32_t)comm->nranks, peer = (uint32_t)op->p2p.peer, rank = (uint32_t)comm->rank;

    return (op->p2p.sends ? peer + n - rank : rank + n - peer) % n;
}

/* In the order of distance; those of one peer stay as they are. */
static void add_sorted(struct group *group, const struct xccl_cuda_op *op, uint32_t first,
                       uint32_t *count)
{
    uint32_t at = first + *count;

    while (at > first && distance(group->comm, group->ops[at - 1]) > distance(group->comm, op)) {
        group->ops[at] = group->ops[at - 1];
        at--;
    }
    group->ops[at] = op;
    ++*count;
}

static int is_of(const struct xccl_cuda_op *op, const struct xcclComm *comm, int far)
{
    return op->is_p2p && op->task.comm == comm && op->p2p.peer != comm->rank &&
           xccl_comm_is_local(comm, op->p2p.peer) == !far;
}

/* Low halves of flag words: over a network as the host's, else of the size. */
static uint32_t flag_low_of(uint64_t bytes, int far)
{
    uint64_t mixed = (bytes + 1) * 0x9e3779b97f4a7c15ull;

    return far ? XCCL_STREAM_FLAG : (uint32_t)(mixed ^ mixed >> 32);
}

static xcclResult_t item_of(const struct xccl_cuda_op *op, int far, struct xccl_dev_item *item)
{
    struct xcclComm *comm = op->task.comm;
    const struct xccl_cuda_p2p *p2p = comm->cuda->p2p;
    xcclResult_t rc = xcclSuccess;
    xccl_cu_ptr link;

    if (far)
        rc = far_link(comm, op->p2p.peer, op->p2p.sends, &link);
    else
        link = p2p->table + (2 * (uint64_t)xccl_shm_index_of(comm->shm, op->p2p.peer) +
                             (uint64_t)op->p2p.sends) *
                                p2p->channels * sizeof(struct xccl_dev_link);
    *item = (struct xccl_dev_item){.at = (uint64_t)(uintptr_t)op->p2p.at,
                                   .bytes = op->p2p.bytes,
                                   .link = link,
                                   .sends = (uint32_t)op->p2p.sends,
                                   .flag_low = flag_low_of(op->p2p.bytes, far)};
    return rc;
}

/* Sends to oneself, in their order: the k-th goes to the k-th receive. */
static xcclResult_t copy_own(const struct xccl_cuda_op *ops, uint32_t count,
                             const struct xccl_cuda_op *send, uint32_t number)
{
    struct xccl_cuda_comm *cuda = send->task.comm->cuda;
    xcclResult_t rc;

    for (uint32_t i = 0; i < count; i++) {
        if (!ops[i].is_p2p || ops[i].task.comm != cuda->comm || ops[i].p2p.sends ||
            ops[i].p2p.peer != cuda->comm->rank || number-- > 0)
            continue;
        if (!send->p2p.bytes || send->p2p.at == ops[i].p2p.at)
            return xcclSuccess;
        rc = xccl_cuda_enter(cuda->device);
        if (rc)
            return rc;
        rc = xccl_cuda_result(cuda->driver->copy_on_device((xccl_cu_ptr)(uintptr_t)ops[i].p2p.at,
                                                           (xccl_cu_ptr)(uintptr_t)send->p2p.at,
                                                           send->p2p.bytes, ops[i].stream),
                              "copying a message from a rank to itself");
        xccl_cuda_leave(cuda->device);
        return rc;
    }
    return xcclSuccess; /* it has been checked that there is one */
}

static xcclResult_t copy_all_own(const struct xccl_cuda_op *ops, uint32_t count,
                                 const struct xcclComm *comm)
{
    uint32_t number = 0;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < count && !rc; i++)
        if (ops[i].is_p2p && ops[i].task.comm == comm && ops[i].p2p.sends &&
            ops[i].p2p.peer == comm->rank)
            rc = copy_own(ops, count, &ops[i], number++);
    return rc;
}

/* Streams of a group's messages besides the first one wait for each other. */
static xcclResult_t join_streams(const struct group *group, int after)
{
    struct xccl_cuda_comm *cuda = group->comm->cuda;
    uint32_t count = group->nsends + group->nreceives;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < count && !rc; i++) {
        xccl_cu_stream stream = group->ops[i]->stream;

        if (stream == group->stream || (i && stream == group->ops[i - 1]->stream))
            continue;
        if (!after)
            rc = xccl_cuda_result(cuda->driver->event_record(cuda->worker.event, stream),
                                  "recording an event");
        if (!rc)
            rc = xccl_cuda_result(
                cuda->driver->stream_wait(after ? stream : group->stream, cuda->worker.event, 0),
                "waiting for a stream of the group");
    }
    return rc;
}

/* Items that do not fit into a launch lie in device memory. */
static xcclResult_t place_items(struct group *group, const struct xccl_dev_item *items,
                                int capturing, struct xccl_dev_messages_launch *launch,
                                uint32_t *used)
{
    struct xccl_cuda_comm *cuda = group->comm->cuda;
    uint32_t count = group->work.nsends + group->work.nreceives;
    xccl_cu_ptr at;
    xcclResult_t rc;

    if (*used + count <= XCCL_DEV_ITEMS_MAX) {
        memcpy(&launch->items[*used], items, count * sizeof *items);
        group->work.first_item = *used;
        *used += count;
        return xcclSuccess;
    }
    rc = xccl_cuda_pool_lend(cuda, items, count * sizeof *items, capturing, &at);
    if (rc)
        return rc;
    group->work.sends = at;
    group->work.receives = at + group->work.nsends * sizeof *items;
    return xcclSuccess;
}

/* How many peers the sorted messages are for. */
static uint32_t count_peers(const struct xccl_cuda_op *const *ops, uint32_t count)
{
    uint32_t peers = 0;

    for (uint32_t i = 0; i < count; i++)
        peers += !i || ops[i]->p2p.peer != ops[i - 1]->p2p.peer;
    return peers;
}

/* Items of pair p are those at p, p + pairs and so on. All messages of a peer belong to one pair,
 * for they share a link; so some places stay empty. rows: of each pair, used so far. Returns how
 * many places there are. items NULL: counts only. */
static xcclResult_t lay_out(const struct xccl_cuda_op *const *ops, uint32_t count, int far,
                            struct xccl_dev_item *items, struct group *group, uint32_t *places_out)
{
    uint32_t pairs = group->work.pairs, pair = 0, at;
    xcclResult_t rc = xcclSuccess;

    *places_out = 0;
    memset(group->rows, 0, pairs * sizeof *group->rows);
    for (uint32_t i = 0; i < count && !rc; i++) {
        if (i && ops[i]->p2p.peer != ops[i - 1]->p2p.peer)
            pair = (pair + 1) % pairs;
        at = group->rows[pair]++ * pairs + pair;
        if (at >= *places_out)
            *places_out = at + 1;
        if (items)
            rc = item_of(ops[i], far, &items[at]);
    }
    return rc;
}

static xcclResult_t lay_out_both(struct group *group, int far, struct xccl_dev_item *items)
{
    const struct xccl_cuda_op *const *receives = group->ops + group->nsends;
    struct xccl_dev_item *behind = items ? items + group->work.nsends : NULL;
    xcclResult_t rc = lay_out(group->ops, group->nsends, far, items, group, &group->work.nsends);

    return rc ? rc
              : lay_out(receives, group->nreceives, far, behind, group, &group->work.nreceives);
}

/* What the group's messages look like to the kernel. */
static xcclResult_t prepare(struct group *group, int far, int capturing,
                            struct xccl_dev_messages_launch *launch, uint32_t *used)
{
    struct xccl_cuda_comm *cuda = group->comm->cuda;
    uint32_t to = count_peers(group->ops, group->nsends);
    uint32_t from = count_peers(group->ops + group->nsends, group->nreceives);
    struct xccl_dev_item few[FEW] = {{0}}, *items = few;
    uint32_t count;
    xcclResult_t rc;

    group->work.channels = far ? 1 : cuda->p2p->channels;
    group->work.pairs = cuda->blocks / group->work.channels;
    if (!group->work.pairs)
        group->work.pairs = 1;
    if (group->work.pairs > (to > from ? to : from))
        group->work.pairs = to > from ? to : from;
    group->work.comm = cuda->comm_at;
    group->work.nblocks = group->work.pairs * group->work.channels;
    group->rows = xccl_calloc(group->work.pairs, sizeof *group->rows);
    if (!group->rows)
        return xcclSystemError;
    rc = lay_out_both(group, far, NULL);
    count = group->work.nsends + group->work.nreceives;
    if (!rc && count > FEW)
        items = xccl_calloc(count, sizeof *items);
    if (!rc && !items)
        rc = xcclSystemError;
    if (!rc)
        rc = lay_out_both(group, far, items);
    if (!rc)
        rc = place_items(group, items, capturing, launch, used);
    xccl_free(group->rows);
    if (items != few)
        xccl_free(items);
    return rc;
}

/* Network links learn what will go over them, before the kernel asks. */
static xcclResult_t begin_far(struct group *group)
{
    struct xcclComm *comm = group->comm;
    struct xccl_cuda_comm *cuda = comm->cuda;
    uint32_t count = group->nsends + group->nreceives;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < count && !rc; i++) {
        const struct xccl_p2p_item *item = &group->ops[i]->p2p;
        struct xccl_net_link *net = stream_of(comm, item->peer, item->sends)->net;
        uint32_t slot_bytes = xccl_net_link_view(net)->slot_bytes;
        uint32_t slots = item->bytes ? (uint32_t)((item->bytes + slot_bytes - 1) / slot_bytes) : 1;

        rc = xccl_cuda_watch_messages(cuda, net, slots);
    }
    return rc;
}

static xcclResult_t launch_with(struct group *groups, uint32_t count, uint32_t first, int far)
{
    struct xccl_dev_messages_launch launch = {0};
    struct xccl_cuda_comm *cuda = groups[first].comm->cuda;
    xccl_cu_stream stream = groups[first].stream;
    void *parameters[] = {&launch};
    uint32_t blocks = 0, used = 0;
    int capturing = 0;
    xcclResult_t rc = xccl_cuda_enter(cuda->device);

    if (rc)
        return rc;
    xccl_cuda_launch_begin(cuda->device);
    rc = xccl_cuda_result(cuda->driver->stream_capturing(stream, &capturing),
                          "querying the stream's capture");
    capturing = capturing == XCCL_CU_CAPTURE_ACTIVE;
    if (capturing && far && !rc)
        rc = xccl_fail(xcclInvalidUsage, 0, "send to other hosts outside of graphs",
                       "rank %d: messages to other hosts cannot be captured in a graph",
                       cuda->comm->rank);
    for (uint32_t i = first; i < count && !rc && launch.nworks < XCCL_DEV_WORKS_MAX; i++) {
        struct group *group = &groups[i];

        if (group->launched || group->stream != stream || group->comm->cuda->device != cuda->device)
            continue;
        rc = prepare(group, far, capturing, &launch, &used);
        if (!rc)
            rc = xccl_cuda_order(group->comm->cuda, stream, capturing);
        if (!rc)
            rc = join_streams(group, 0);
        if (!rc && far)
            rc = begin_far(group);
        group->work.block0 = blocks;
        blocks += group->work.nblocks;
        launch.works[launch.nworks++] = group->work;
        group->launched = 2;
    }
    if (!rc)
        rc = xccl_cuda_result(
            cuda->driver->launch(xccl_cuda_device_function(cuda->device, "xccl_messages"), blocks,
                                 1, 1, cuda->device->threads, 1, 1, 0, stream, parameters, NULL),
            "launching a kernel");
    for (uint32_t i = first; i < count; i++) {
        if (groups[i].launched != 2)
            continue;
        groups[i].launched = 1;
        if (!rc)
            rc = xccl_cuda_launched(groups[i].comm->cuda, stream, capturing);
        if (!rc)
            rc = join_streams(&groups[i], 1);
    }
    xccl_cuda_launch_end(cuda->device);
    xccl_cuda_leave(cuda->device);
    return rc;
}

/* The group of the communicator of ops[at], if this is its first message of that kind. */
static int collect(const struct xccl_cuda_op *ops, uint32_t count, uint32_t at, int far,
                   struct group *group)
{
    struct xcclComm *comm = ops[at].task.comm;

    for (uint32_t i = 0; i < at; i++)
        if (is_of(&ops[i], comm, far))
            return 0;
    group->comm = comm;
    group->stream = ops[at].stream;
    for (uint32_t i = at; i < count; i++)
        if (is_of(&ops[i], comm, far) && ops[i].p2p.sends)
            add_sorted(group, &ops[i], 0, &group->nsends);
    for (uint32_t i = at; i < count; i++)
        if (is_of(&ops[i], comm, far) && !ops[i].p2p.sends)
            add_sorted(group, &ops[i], group->nsends, &group->nreceives);
    return 1;
}

static xcclResult_t launch_kind(const struct xccl_cuda_op *ops, uint32_t count, int far,
                                struct group *groups, const struct xccl_cuda_op **room)
{
    uint32_t found = 0, used = 0;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < count; i++) {
        if (!ops[i].is_p2p || !is_of(&ops[i], ops[i].task.comm, far))
            continue;
        groups[found] = (struct group){.ops = room + used};
        if (!collect(ops, count, i, far, &groups[found]))
            continue;
        used += groups[found].nsends + groups[found].nreceives;
        found++;
    }
    for (uint32_t i = 0; i < found; i++) {
        xcclResult_t more;

        if (groups[i].launched)
            continue;
        more = launch_with(groups, found, i, far);
        if (more && !xccl_comm_error(groups[i].comm))
            more = xccl_comm_fail(groups[i].comm, more, "rank %d cannot launch messages: %.400s",
                                  groups[i].comm->rank, xccl_error_text());
        rc = rc ? rc : more;
    }
    return rc;
}

static xcclResult_t copy_own_of_all(const struct xccl_cuda_op *ops, uint32_t count)
{
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < count && !rc; i++) {
        uint32_t first = 0;

        while (!ops[first].is_p2p || ops[first].task.comm != ops[i].task.comm)
            if (++first >= i)
                break;
        if (ops[i].is_p2p && first >= i)
            rc = copy_all_own(ops, count, ops[i].task.comm);
    }
    return rc;
}

xcclResult_t xccl_cuda_p2p_launch(const struct xccl_cuda_op *ops, uint32_t count)
{
    struct group *groups = xccl_calloc(count, sizeof *groups);
    const struct xccl_cuda_op **room = xccl_calloc(count, sizeof(void *));
    xcclResult_t rc = groups && room ? copy_own_of_all(ops, count) : xcclSystemError;

    for (int far = 0; far < 2 && !rc; far++)
        rc = launch_kind(ops, count, far, groups, room);
    xccl_free(groups);
    xccl_free(room);
    return rc;
}
