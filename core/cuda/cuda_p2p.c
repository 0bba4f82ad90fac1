/* SPDX-License-Identifier: BSD-3-Clause */
/* Links for sends and receives of a CUDA communicator. Ranks of a host have links for every pair
 * from the beginning: each offers memory with a place for what every other one sends, and heads, as
 * a binding does. Links to other hosts are made by the host's sends and receives (comm_p2p.c),
 * before the first message, and have their slots in pinned memory.
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

struct xccl_stream *xccl_cuda_p2p_stream(const struct xcclComm *comm, int peer, int sends)
{
    return comm->p2p ? comm->p2p->stream_of[2 * peer + sends] : NULL;
}

int xccl_cuda_p2p_needs_link(const struct xcclComm *comm, int peer, int sends)
{
    const struct xccl_stream *stream;

    if (peer == comm->rank || xccl_comm_is_local(comm, peer))
        return 0;
    stream = xccl_cuda_p2p_stream(comm, peer, sends);
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
        rc = xccl_cuda_net_view(cuda, xccl_cuda_p2p_stream(comm, peer, sends)->net, &link);
        if (!rc)
            rc = xccl_cuda_pool_alloc(cuda, sizeof link, at);
        if (!rc)
            rc = xccl_cuda_upload(cuda->device, *at, &link, sizeof link);
    }
    *at_out = *at;
    return rc;
}

uint32_t xccl_cuda_p2p_channels(const struct xccl_cuda_comm *cuda)
{
    return cuda->p2p->channels;
}

xcclResult_t xccl_cuda_p2p_link(struct xcclComm *comm, int peer, int sends, int far,
                                xccl_cu_ptr *at_out)
{
    const struct xccl_cuda_p2p *p2p = comm->cuda->p2p;
    uint64_t number;

    if (far)
        return far_link(comm, peer, sends, at_out);
    number = 2 * (uint64_t)xccl_shm_index_of(comm->shm, peer) + (uint64_t)sends;
    *at_out = p2p->table + number * p2p->channels * sizeof(struct xccl_dev_link);
    return xcclSuccess;
}
