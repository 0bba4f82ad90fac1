/* SPDX-License-Identifier: BSD-3-Clause */
/* Links of a binding between ranks of one host, and the table that kernels find them in.
 *
 * A rank offers a piece of memory for a binding, one for each sort that some peer is to have
 * (cuda_edges.c): a place for each connection that it receives on from such a peer and each
 * channel, where its slots lie, then a head for each that it sends on to one, which the receiver
 * writes, so that a sender polls its own memory. Which place is whose follows from the schedules of
 * both ranks, which either can make; so the offers are all that is told, in the round in which
 * bindings agree on slices.
 *
 *   piece:  place of receive end 0, channel 0 | channel 1 | ... | place of end 1 ... | heads
 *   place:  SIMPLE: headers of all slots, then payloads; LL, LL128: slots
 *
 * Links over networks have their slots in pinned memory of this process, or in rooms of the device
 * (cuda_room.c), one channel each.
 *
 * Thread: the joining one, then the crank's holder. */
#include <string.h>

#include "base/alloc.h"
#include "base/param.h"
#include "base/wire.h"
#include "connect/comm_links.h"
#include "cuda/cuda_int.h"

#define SLOTS         8u
#define HEADERS_BYTES (SLOTS * XCCL_LINE_BYTES)
#define BUDGET_SHARE  2 /* of XCCL_BUFFER_BYTES, that one binding may take at most */
#define PINNED_SHARE  16 /* likewise, of pinned memory */
#define LL128_STEP    480u /* whole lines, and whole XCCL_TILE_ALIGN */

/* --- offers on their way --- */

#define HANDLE_BYTES 64
static_assert(sizeof(struct xccl_cu_ipc) == HANDLE_BYTES &&
                  sizeof(struct xccl_cu_fabric) == HANDLE_BYTES,
              "either has the room of the other one");

/* One of the two handles, by which piece it is. */
static void put_piece(struct xccl_wire *wire, const struct xccl_cuda_piece *piece, int which)
{
    const void *handle = which == XCCL_CUDA_BY_HANDLE ? (const void *)&piece->fabric : &piece->ipc;

    xccl_wire_put_u32(wire, piece->memory);
    xccl_wire_put_u32(wire, piece->number);
    xccl_wire_put_u64(wire, piece->base);
    xccl_wire_put_u64(wire, piece->heads);
    xccl_wire_put_u64(wire, piece->bytes);
    xccl_wire_put(wire, handle, HANDLE_BYTES);
    xccl_wire_put_u32(wire, piece->why.code);
    xccl_wire_put_u32(wire, piece->why.rank);
    xccl_wire_put_u32(wire, piece->why.result);
}

static void get_piece(struct xccl_wire *wire, struct xccl_cuda_piece *piece, int which)
{
    void *handle = which == XCCL_CUDA_BY_HANDLE ? (void *)&piece->fabric : &piece->ipc;

    *piece = (struct xccl_cuda_piece){0};
    piece->memory = xccl_wire_get_u32(wire);
    piece->number = xccl_wire_get_u32(wire);
    piece->base = xccl_wire_get_u64(wire);
    piece->heads = xccl_wire_get_u64(wire);
    piece->bytes = xccl_wire_get_u64(wire);
    xccl_wire_get(wire, handle, HANDLE_BYTES);
    piece->why.code = xccl_wire_get_u32(wire);
    piece->why.rank = xccl_wire_get_u32(wire);
    piece->why.result = xccl_wire_get_u32(wire);
}

void xccl_cuda_put_offer(const struct xccl_cuda_offer *offer, uint8_t *bytes)
{
    struct xccl_wire wire = xccl_wire_over(bytes, XCCL_CUDA_OFFER_BYTES);

    xccl_wire_put_u32(&wire, offer->channels);
    xccl_wire_put_u32(&wire, offer->slot_bytes);
    xccl_wire_put_u32(&wire, offer->nslots);
    xccl_wire_put_u32(&wire, offer->has_rooms);
    xccl_wire_put_u64(&wire, offer->place_bytes);
    for (int i = 0; i < XCCL_CUDA_PIECES; i++)
        put_piece(&wire, &offer->pieces[i], i);
}

void xccl_cuda_get_offer(const uint8_t *bytes, struct xccl_cuda_offer *offer)
{
    /* The reader takes bytes that it may change, and does not. */
    struct xccl_wire wire = xccl_wire_over((uint8_t *)(uintptr_t)bytes, XCCL_CUDA_OFFER_BYTES);

    offer->channels = xccl_wire_get_u32(&wire);
    offer->slot_bytes = xccl_wire_get_u32(&wire);
    offer->nslots = xccl_wire_get_u32(&wire);
    offer->has_rooms = xccl_wire_get_u32(&wire);
    offer->place_bytes = xccl_wire_get_u64(&wire);
    for (int i = 0; i < XCCL_CUDA_PIECES; i++)
        get_piece(&wire, &offer->pieces[i], i);
}

/* --- the shape of a piece --- */

static enum xccl_dev_proto proto_of(enum xccl_proto proto)
{
    static const enum xccl_dev_proto protos[] = {[XCCL_PROTO_LINES] = XCCL_DEV_LL,
                                                 [XCCL_PROTO_SMALL] = XCCL_DEV_LL128,
                                                 [XCCL_PROTO_SLICES] = XCCL_DEV_SIMPLE,
                                                 [XCCL_PROTO_TIGHT] = XCCL_DEV_SIMPLE};

    return protos[proto];
}

static const struct {
    uint32_t most, least;
} payloads[] = {[XCCL_DEV_LL] = {16u << 10, 2u << 10},
                [XCCL_DEV_LL128] = {64 * LL128_STEP, 8 * LL128_STEP},
                [XCCL_DEV_SIMPLE] = {256u << 10, 16u << 10}};

/* Memory of one slot, its header apart. */
static uint32_t slot_stride(enum xccl_dev_proto proto, uint32_t payload)
{
    if (proto == XCCL_DEV_LL)
        return (16 + 2 * payload + 127) & ~127u;
    if (proto == XCCL_DEV_LL128)
        return XCCL_DEV_LL128_LINE * (1 + payload / XCCL_DEV_LL128_DATA);
    return payload;
}

static uint64_t place_bytes(enum xccl_dev_proto proto, uint32_t payload)
{
    return (proto == XCCL_DEV_SIMPLE ? HEADERS_BYTES : 0) +
           (uint64_t)SLOTS * slot_stride(proto, payload);
}

/* 1: this connection is with a rank of this host, and in that piece of this rank's memory. */
static int is_in(const struct xcclComm *comm, const struct xccl_schedule_conn *conn,
                 enum xccl_cuda_which which)
{
    return xccl_comm_is_local(comm, conn->peer) &&
           xccl_cuda_edges_piece(comm, comm->rank, conn->peer) == which;
}

/* Ends of one direction in one piece. */
static uint32_t count_ends(const struct xcclComm *comm, const struct xccl_schedule *schedule,
                           enum xccl_conn_dir dir, enum xccl_cuda_which which)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < schedule->nconns; i++)
        count += schedule->conns[i].dir == dir && is_in(comm, &schedule->conns[i], which);
    return count;
}

static uint32_t count_far(const struct xcclComm *comm, const struct xccl_schedule *schedule)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < schedule->nconns; i++)
        count += !xccl_comm_is_local(comm, schedule->conns[i].peer);
    return count;
}

/* Receive ends in memory of the device, or pinned. */
struct receives {
    uint32_t device, pinned;
};

static struct receives count_receives(const struct xcclComm *comm,
                                      const struct xccl_schedule *schedule)
{
    struct receives receives = {0};

    for (int which = 0; which < XCCL_CUDA_PIECES; which++) {
        uint32_t count = count_ends(comm, schedule, XCCL_CONN_RECV, (enum xccl_cuda_which)which);

        if (which == XCCL_CUDA_BY_HOST || comm->cuda->fallen[which].code)
            receives.pinned += count;
        else
            receives.device += count;
    }
    return receives;
}

/* The least of what the device can have at work, the budget, and networks, which have one. */
static void shape(const struct xcclComm *comm, struct xccl_cuda_binding *cuda_binding)
{
    const struct xccl_cuda_comm *cuda = comm->cuda;
    const struct xccl_schedule *schedule = cuda_binding->binding->schedule;
    struct xccl_cuda_offer *own = &cuda_binding->own;
    struct receives receives = count_receives(comm, schedule);
    uint64_t budget = (uint64_t)xccl_param_int(XCCL_P_BUFFER_BYTES), end_bytes;
    uint32_t lanes = schedule->nlanes ? schedule->nlanes : 1;

    own->nslots = SLOTS;
    own->slot_bytes = payloads[cuda_binding->proto].most;
    own->channels = cuda->blocks / lanes < cuda->channels ? cuda->blocks / lanes : cuda->channels;
    if (count_far(comm, schedule))
        own->channels = 1;
    for (uint32_t i = 0; i < schedule->nconns && !own->has_rooms; i++)
        own->has_rooms = !xccl_comm_is_local(comm, schedule->conns[i].peer) &&
                         xccl_cuda_may_have_room(comm, schedule->conns[i].peer);
    for (;;) {
        end_bytes = own->channels * place_bytes(cuda_binding->proto, own->slot_bytes);
        if (receives.device * end_bytes <= budget / BUDGET_SHARE &&
            receives.pinned * end_bytes <= budget / PINNED_SHARE)
            break;
        if (own->slot_bytes / 2 >= payloads[cuda_binding->proto].least)
            own->slot_bytes /= 2;
        else if (own->channels > 1)
            own->channels /= 2;
        else
            break;
    }
    own->place_bytes = place_bytes(cuda_binding->proto, own->slot_bytes);
}

struct xccl_cuda_binding *xccl_cuda_find(const struct xccl_cuda_comm *cuda,
                                         const struct xccl_binding *binding)
{
    struct xccl_cuda_binding *at = cuda->bindings;

    while (at && at->binding != binding)
        at = at->next;
    return at;
}

/* Ranks of other processes that it has links with in that piece. */
static void count_openers(const struct xcclComm *comm, const struct xccl_schedule *schedule,
                          enum xccl_cuda_which which, struct xccl_cuda_want *want)
{
    const struct xccl_cuda_edge *own = comm->cuda->edges.own;

    for (uint32_t i = 0; i < schedule->nconns; i++) {
        int peer = schedule->conns[i].peer, is_new = 1;

        if (!is_in(comm, &schedule->conns[i], which) || xccl_cuda_same_process(comm, peer))
            continue;
        for (uint32_t k = 0; k < i && is_new; k++)
            is_new = schedule->conns[k].peer != peer;
        if (is_new && own[xccl_shm_index_of(comm->shm, peer)].kind == XCCL_CUDA_MEMORY_FABRIC)
            want->fabrics++;
        else if (is_new)
            want->times++;
    }
}

static xcclResult_t offer_piece(struct xcclComm *comm, struct xccl_cuda_binding *made,
                                enum xccl_cuda_which which)
{
    const struct xccl_schedule *schedule = made->binding->schedule;
    uint64_t receives = count_ends(comm, schedule, XCCL_CONN_RECV, which);
    uint64_t sends = count_ends(comm, schedule, XCCL_CONN_SEND, which);
    struct xccl_cuda_piece *piece = &made->own.pieces[which];
    struct xccl_cuda_want want = {0};

    if (!receives && !sends)
        return xcclSuccess;
    piece->heads = receives * made->own.channels * made->own.place_bytes;
    want.bytes = piece->heads + sends * made->own.channels * XCCL_DEV_HEAD_BYTES;
    count_openers(comm, schedule, which, &want);
    return xccl_cuda_offer_piece(comm, which, &want, piece, &made->held[which], NULL);
}

xcclResult_t xccl_cuda_offer(struct xcclComm *comm, struct xccl_binding *binding,
                             uint8_t *offer_out, uint32_t *slot_bytes_out)
{
    struct xccl_cuda_comm *cuda = comm->cuda;
    struct xccl_cuda_binding *made = xccl_calloc(1, sizeof *made);
    xcclResult_t rc = xcclSuccess;

    if (!made)
        return xcclSystemError;
    made->next = cuda->bindings;
    cuda->bindings = cuda->binding_now = made;
    made->binding = binding;
    made->proto = proto_of(binding->proto);
    shape(comm, made);
    if (!made->own.channels)
        rc = xccl_fail(xcclInvalidUsage, 0, "use another algorithm, or fewer ranks on the device",
                       "%s of %s needs at least %u blocks at once, but rank %d may use only %u "
                       "blocks of its device",
                       binding->schedule->name,
                       xccl_coll_name((enum xccl_coll)binding->schedule->coll),
                       binding->schedule->nlanes, comm->rank, cuda->blocks);
    for (int which = 0; which < XCCL_CUDA_PIECES && !rc; which++)
        rc = offer_piece(comm, made, (enum xccl_cuda_which)which);
    *slot_bytes_out = made->own.slot_bytes;
    xccl_cuda_put_offer(&made->own, offer_out);
    return rc;
}

/* --- links --- */

/* Which of the ends in its piece of owner's memory belongs to connection id with peer, by owner's
 * schedule; UINT32_MAX: none. */
static uint32_t end_of(const struct xcclComm *comm, const struct xccl_schedule *schedule, int owner,
                       const struct xccl_schedule_conn *want)
{
    enum xccl_cuda_which which = xccl_cuda_edges_piece(comm, owner, want->peer);
    uint32_t end = 0;

    for (uint32_t i = 0; i < schedule->nconns; i++) {
        const struct xccl_schedule_conn *conn = &schedule->conns[i];

        if (conn->dir != want->dir || !xccl_comm_is_local(comm, conn->peer) ||
            xccl_cuda_edges_piece(comm, owner, conn->peer) != which)
            continue;
        if (conn->peer == want->peer && conn->id == want->id)
            return end;
        end++;
    }
    return UINT32_MAX;
}

/* Of one place of several, by channel; 0: it does not end before that. */
static int place_at(const struct xccl_cuda_side *side, uint32_t channel, uint64_t place_bytes,
                    uint64_t begin, uint64_t end, uint64_t *at_out)
{
    uint64_t number = (uint64_t)side->place * side->offer->channels + channel, behind;

    if (channel >= side->offer->channels || end > side->piece->bytes ||
        __builtin_mul_overflow(number + 1, place_bytes, &behind) ||
        __builtin_add_overflow(behind, begin, &behind) || behind > end)
        return 0;
    *at_out = side->base + begin + number * place_bytes;
    return 1;
}

xcclResult_t xccl_cuda_place_link(const struct xccl_cuda_side sides[2], int sends, uint32_t channel,
                                  uint32_t headers, struct xccl_dev_link *link)
{
    /* The receiver has the slots, the sender has the head. */
    const struct xccl_cuda_side *slots = &sides[!sends], *heads = &sides[sends];
    uint64_t needed = headers + (uint64_t)link->nslots * link->payload_stride;

    if (slots->offer->place_bytes < needed ||
        !place_at(slots, channel, slots->offer->place_bytes, 0, slots->piece->heads,
                  &link->header) ||
        !place_at(heads, channel, XCCL_DEV_HEAD_BYTES, heads->piece->heads, heads->piece->bytes,
                  &link->head))
        return xccl_fail(xcclRemoteError, 0, "install the same version everywhere",
                         "rank %d offers memory that is too small for its links with this rank",
                         link->peer);
    link->payload = link->header + headers;
    return xcclSuccess;
}

/* sides: the peer's, and this rank's. */
static xcclResult_t fill_link(const struct xccl_cuda_binding *made,
                              const struct xccl_schedule_conn *conn,
                              const struct xccl_cuda_side sides[2], uint32_t channel,
                              struct xccl_dev_link *link)
{
    int sends = conn->dir == XCCL_CONN_SEND;
    /* The receiver has the slots, the sender has the head. */
    const struct xccl_cuda_offer *slots = sides[!sends].offer;

    *link = (struct xccl_dev_link){
        .header_stride = XCCL_LINE_BYTES,
        .payload_stride = slot_stride(made->proto, slots->slot_bytes),
        .nslots = slots->nslots,
        .slot_bytes = slots->slot_bytes,
        .limit = sends ? slots->nslots : 0,
        .peer = conn->peer,
    };
    return xccl_cuda_place_link(sides, sends, channel,
                                made->proto == XCCL_DEV_SIMPLE ? HEADERS_BYTES : 0, link);
}

static xcclResult_t no_end(const struct xcclComm *comm, const struct xccl_schedule_conn *conn)
{
    return xccl_fail(xcclInternalError, 0, "report this as a bug in the algorithm",
                     "rank %d does not have the other end of connection %u of rank %d", conn->peer,
                     conn->id, comm->rank);
}

static xcclResult_t link_conn(struct xcclComm *comm, struct xccl_cuda_binding *made, uint32_t at,
                              const struct xccl_cuda_offer *offer)
{
    const struct xccl_schedule_conn *conn = &made->binding->schedule->conns[at];
    struct xccl_schedule_conn other = *conn;
    enum xccl_cuda_which own = xccl_cuda_edges_piece(comm, comm->rank, conn->peer);
    enum xccl_cuda_which peers = xccl_cuda_edges_piece(comm, conn->peer, comm->rank);
    struct xccl_cuda_side sides[2] = {{.offer = offer}, {.offer = &made->own}};
    struct xccl_schedule *theirs = NULL;
    int sends = conn->dir == XCCL_CONN_SEND;
    xcclResult_t rc;

    if (own == XCCL_CUDA_PIECES)
        return no_end(comm, conn);
    rc = xccl_plan_schedule_of(&comm->planner, made->binding, conn->peer, &theirs);
    if (rc)
        return rc;
    sides[0].piece = &offer->pieces[peers];
    sides[1].piece = &made->own.pieces[own];
    sides[1].base = made->held[own].at;
    other.peer = (uint16_t)comm->rank;
    other.dir = sends ? XCCL_CONN_RECV : XCCL_CONN_SEND;
    sides[0].place = end_of(comm, theirs, conn->peer, &other);
    sides[1].place = end_of(comm, made->binding->schedule, comm->rank, conn);
    xccl_schedule_destroy(theirs);
    if (sides[0].place == UINT32_MAX || sides[1].place == UINT32_MAX || offer->nslots != SLOTS)
        return no_end(comm, conn);
    rc = xccl_cuda_map(comm, conn->peer, sides[0].piece, &sides[0].base, NULL);
    for (uint32_t i = 0; i < made->channels && !rc; i++)
        rc = fill_link(made, conn, sides, i, &made->links[at * made->channels + i]);
    if (!rc)
        xccl_cuda_note_near(comm, conn->peer, sends, sides[!sends].piece);
    return rc;
}

xcclResult_t xccl_cuda_take_offers(struct xcclComm *comm, const uint8_t *offers, size_t stride)
{
    struct xccl_cuda_binding *made = comm->cuda->binding_now;
    const struct xccl_schedule *schedule = made->binding->schedule;
    struct xccl_cuda_offer offer;
    xcclResult_t rc = xcclSuccess;

    made->channels = made->own.channels;
    for (int i = 0; i < comm->nranks; i++) {
        xccl_cuda_get_offer(offers + (size_t)i * stride, &offer);
        if (offer.channels < made->channels)
            made->channels = offer.channels;
        made->apart |= offer.has_rooms != 0;
    }
    if (!made->channels)
        return xccl_fail(xcclInternalError, 0, "report this as a bug", "a rank has no channels");
    made->links = xccl_calloc_aligned(64, (schedule->nconns * made->channels + 1u) *
                                              sizeof *made->links);
    if (!made->links)
        return xcclSystemError;
    for (uint32_t i = 0; i < schedule->nconns && !rc; i++) {
        int peer = schedule->conns[i].peer;

        if (!xccl_comm_is_local(comm, peer))
            continue;
        xccl_cuda_get_offer(offers + (size_t)peer * stride, &offer);
        rc = link_conn(comm, made, i, &offer);
    }
    return rc;
}

/* Its slots are the executor's, here the kernel's. */
xcclResult_t xccl_cuda_net_view(struct xccl_cuda_comm *cuda, struct xccl_net_link *net,
                                struct xccl_dev_link *link)
{
    const struct xccl_link *view = xccl_net_link_view(net);
    const void *room = xccl_net_link_room(net);
    size_t bytes;
    char *memory = xccl_net_link_memory(net, &bytes);
    xccl_cu_ptr at = 0;
    xcclResult_t rc = xccl_cuda_pin(cuda, memory, bytes, &at);

    xccl_cuda_note_net(cuda->comm, net);
    *link = (struct xccl_dev_link){
        .header = at + (uint64_t)(view->header - memory),
        .payload = room ? (uintptr_t)room : at + (uint64_t)(view->payload - memory),
        .head = at + (uint64_t)((char *)view->heads - memory),
        .header_stride = view->header_stride,
        .payload_stride = view->payload_stride,
        .nslots = view->nslots,
        .slot_bytes = view->slot_bytes,
        .step = view->step,
        .slot = view->slot,
        .limit = view->limit,
        .peer = view->peer,
    };
    return rc;
}

/* A network link whose state all bindings share. */
struct xccl_cuda_home {
    const struct xccl_net_link *net;
    uint32_t number;
    struct xccl_cuda_home *next;
};

/* Gives the link a home when it is new. apart: as of its first binding, at both ends. */
static xcclResult_t house(struct xccl_cuda_comm *cuda, struct xccl_net_link *net, int apart,
                          struct xccl_dev_link *link)
{
    struct xccl_dev_home state = {.step = link->step, .slot = link->slot, .limit = link->limit};
    struct xccl_cuda_home *home = cuda->homes;
    xcclResult_t rc;

    while (home && home->net != net)
        home = home->next;
    if (home) {
        link->home = home->number;
        return xcclSuccess;
    }
    link->home = cuda->homes ? cuda->homes->number + 1 : 1;
    if (link->home >= XCCL_CUDA_HOMES)
        return xccl_fail(xcclInvalidUsage, 0, "use algorithms with fewer connections",
                         "rank %d has more than %u network links", cuda->comm->rank,
                         XCCL_CUDA_HOMES - 1);
    home = xccl_calloc(1, sizeof *home);
    if (!home)
        return xcclSystemError;
    xccl_net_link_set_apart(net, apart);
    *home = (struct xccl_cuda_home){net, link->home, cuda->homes};
    cuda->homes = home;
    rc = xccl_cuda_upload(cuda->device, cuda->homes_at + link->home * sizeof state, &state,
                          sizeof state);
    return rc;
}

xcclResult_t xccl_cuda_bound(struct xcclComm *comm, struct xccl_binding *binding)
{
    struct xccl_cuda_comm *cuda = comm->cuda;
    struct xccl_cuda_binding *made = xccl_cuda_find(cuda, binding);
    size_t count = (size_t)binding->schedule->nconns * made->channels;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < binding->net_count && !rc; i++) {
        struct xccl_dev_link *link = &made->links[binding->net_conns[i] * made->channels];

        rc = xccl_cuda_net_view(cuda, binding->nets[binding->net_conns[i]], link);
        if (!rc)
            rc = house(cuda, binding->nets[binding->net_conns[i]], made->apart, link);
    }
    made->table_bytes = (count + 1) * sizeof *made->links;
    if (!rc)
        rc = xccl_cuda_pool_alloc(cuda, made->table_bytes, &made->table);
    if (!rc)
        rc = xccl_cuda_upload(cuda->device, made->table, made->links, made->table_bytes);
    made->signals_bytes = (size_t)(binding->nsignals + 1) * made->channels * sizeof(uint64_t);
    if (!rc)
        rc = xccl_cuda_pool_alloc(cuda, made->signals_bytes, &made->signals);
    if (!rc)
        rc = xccl_cuda_clear(cuda->device, made->signals, made->signals_bytes);
    xccl_free(made->links);
    made->links = NULL;
    cuda->binding_now = NULL;
    return rc;
}

/* --- the end --- */

int xccl_cuda_is_read(const struct xccl_cuda_comm *cuda, const struct xccl_cuda_reading *what)
{
    size_t table_bytes = what->links * sizeof(struct xccl_dev_link);
    size_t heads_bytes = (size_t)what->head_count * XCCL_DEV_HEAD_BYTES;
    struct xccl_dev_link *links = xccl_calloc_aligned(64, table_bytes + 64);
    char *heads = xccl_calloc(1, heads_bytes + 1);
    int all = 1;

    if (links && heads && !xccl_cuda_download(cuda->device, links, what->table, table_bytes) &&
        !xccl_cuda_download(cuda->device, heads, what->heads, heads_bytes))
        for (uint32_t i = 0; i < what->head_count && all; i++) {
            uint32_t head;

            memcpy(&head, heads + (size_t)i * XCCL_DEV_HEAD_BYTES, sizeof head);
            all = what->link_of[i] == UINT32_MAX || links[what->link_of[i]].step == head;
        }
    xccl_free(links);
    xccl_free(heads);
    return all;
}

/* Those with heads in that piece. */
static int is_piece_read(const struct xcclComm *comm, const struct xccl_cuda_binding *made,
                         enum xccl_cuda_which which)
{
    const struct xccl_schedule *schedule = made->binding->schedule;
    uint32_t count = count_ends(comm, schedule, XCCL_CONN_SEND, which) * made->own.channels;
    uint32_t *link_of = xccl_calloc(count + 1, sizeof *link_of), end = 0;
    struct xccl_cuda_reading what = {.table = made->table,
                                     .links = schedule->nconns * made->channels,
                                     .heads = made->held[which].at + made->own.pieces[which].heads,
                                     .head_count = count,
                                     .link_of = link_of};
    int all = 1;

    if (!link_of || !count || !made->table) {
        xccl_free(link_of);
        return 1;
    }
    for (uint32_t i = 0; i < schedule->nconns; i++) {
        if (schedule->conns[i].dir != XCCL_CONN_SEND || !is_in(comm, &schedule->conns[i], which))
            continue;
        for (uint32_t c = 0; c < made->own.channels; c++)
            link_of[end * made->own.channels + c] = c < made->channels ? i * made->channels + c
                                                                       : UINT32_MAX;
        end++;
    }
    all = xccl_cuda_is_read(comm->cuda, &what);
    xccl_free(link_of);
    return all;
}

int xccl_cuda_links_read(const struct xcclComm *comm)
{
    for (const struct xccl_cuda_binding *at = comm->cuda->bindings; at; at = at->next)
        for (int which = 0; which < XCCL_CUDA_PIECES; which++)
            if (!is_piece_read(comm, at, (enum xccl_cuda_which)which))
                return 0;
    return 1;
}

void xccl_cuda_drop_links(struct xccl_cuda_comm *cuda)
{
    while (cuda->bindings) {
        struct xccl_cuda_binding *made = cuda->bindings;

        cuda->bindings = made->next;
        xccl_cuda_take_back(cuda->comm, made->held);
        xccl_cuda_pool_free(cuda, made->table, made->table_bytes);
        xccl_cuda_pool_free(cuda, made->signals, made->signals_bytes);
        xccl_free(made->links);
        xccl_free(made);
    }
    xccl_cuda_close_opened(cuda, 1);
    while (cuda->homes) {
        struct xccl_cuda_home *home = cuda->homes;

        cuda->homes = home->next;
        xccl_free(home);
    }
    xccl_cuda_drop_pins(cuda);
}
