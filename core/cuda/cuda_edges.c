/* SPDX-License-Identifier: BSD-3-Clause */
/* Which kind of memory each pair of ranks of a host has its links in. The owner of memory chooses,
 * for every other rank of its host by itself: one that does not reach the owner's device, or cannot
 * open its memory, leaves the others as they are. What was chosen, and why it is no better, goes
 * round with the offers for messages, as a row for each rank, in every round in which ranks join
 * (cuda_agree.c); so all ranks of a host know where in the owner's pieces each of them is.
 *
 *   row: for each rank of the host, by local index: kind, place, what refused better kinds
 *
 * Thread: the joining one; once all have joined, nothing changes. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/param.h"
#include "base/wire.h"
#include "connect/comm_links.h"
#include "cuda/cuda_int.h"

/* Words of XCCL_CUDA_CUMEM. */
#define CUMEM_OFF    0
#define CUMEM_FABRIC 2

#define EDGE_BYTES (1 + 2 + XCCL_CUDA_WHYS * (1 + 2))

/* --- the kinds to begin with --- */

/* Why code on that peer's device cannot read and write this device's memory. */
static enum xccl_cuda_why_code obstacle(const struct xccl_cuda_comm *cuda,
                                        const struct xccl_peer *peer)
{
    const struct xccl_cuda_driver *driver = cuda->driver;
    struct xccl_cu_uuid uuid;
    xccl_cu_device device;
    int can = 0;

    if (!xccl_param_int(XCCL_P_CUDA_P2P))
        return XCCL_CUDA_WHY_SETTING;
    if (memcmp(peer->uuid, cuda->device->uuid.bytes, sizeof peer->uuid) == 0)
        return XCCL_CUDA_WHY_NONE;
    for (int i = 0; i < driver->devices; i++)
        if (!driver->device_get(&device, i) && !driver->device_uuid(&uuid, device) &&
            memcmp(uuid.bytes, peer->uuid, sizeof uuid.bytes) == 0)
            return !driver->device_can_access(&can, device, cuda->device->device) && can
                       ? XCCL_CUDA_WHY_NONE
                       : XCCL_CUDA_WHY_APART;
    return XCCL_CUDA_WHY_HIDDEN;
}

/* For other processes whose device reaches this one's. why: what says no to better ones. */
static enum xccl_cuda_memory best_kind(const struct xccl_cuda_comm *cuda,
                                       struct xccl_cuda_why why[XCCL_CUDA_WHYS])
{
    int64_t setting = xccl_param_int(XCCL_P_CUDA_CUMEM);

    if (setting == CUMEM_OFF || !xccl_cuda_has_handles(cuda->device)) {
        why[0].code = setting == CUMEM_OFF ? XCCL_CUDA_WHY_CUMEM_OFF : XCCL_CUDA_WHY_CUMEM_LACKS;
        return XCCL_CUDA_MEMORY_DEVICE;
    }
    if (setting != CUMEM_FABRIC)
        return XCCL_CUDA_MEMORY_HANDLE;
    why[0].code = XCCL_CUDA_WHY_CUMEM_FABRIC;
    why[2] = cuda->no_fabric;
    return cuda->no_fabric.code ? XCCL_CUDA_MEMORY_DEVICE : XCCL_CUDA_MEMORY_FABRIC;
}

static void choose(struct xcclComm *comm)
{
    struct xccl_cuda_edges *edges = &comm->cuda->edges;
    const struct xccl_cuda_why self = {.rank = (uint32_t)comm->rank};
    struct xccl_cuda_why why[XCCL_CUDA_WHYS] = {self, self, self};
    enum xccl_cuda_memory others;
    int by_handles = 0;

    if (!xccl_cuda_has_fabric(comm->cuda->device))
        comm->cuda->no_fabric = (struct xccl_cuda_why){.code = XCCL_CUDA_WHY_FABRIC_LACKS,
                                                       .rank = (uint32_t)comm->rank};
    others = best_kind(comm->cuda, why);
    for (uint32_t i = 0; i < edges->count; i++) {
        struct xccl_cuda_edge *edge = &edges->own[i];
        int peer = xccl_shm_rank_of(comm->shm, (int)i);
        enum xccl_cuda_why_code code = obstacle(comm->cuda, &comm->peers[peer]);

        *edge = (struct xccl_cuda_edge){.place = XCCL_CUDA_NO_PLACE};
        if (peer == comm->rank)
            continue;
        if (code) {
            edge->kind = XCCL_CUDA_MEMORY_HOST;
            edge->why[1] = (struct xccl_cuda_why){.code = code, .rank = (uint32_t)peer};
        } else if (xccl_cuda_same_process(comm, peer)) {
            edge->kind = XCCL_CUDA_MEMORY_DEVICE;
        } else {
            edge->kind = (uint8_t)others;
            memcpy(edge->why, why, sizeof edge->why);
            by_handles |= others != XCCL_CUDA_MEMORY_DEVICE;
        }
    }
    /* Those of this process take what is there for others. */
    for (uint32_t i = 0; i < edges->count && by_handles; i++)
        if (edges->own[i].kind == XCCL_CUDA_MEMORY_DEVICE)
            edges->own[i].kind = XCCL_CUDA_MEMORY_HANDLE;
}

static int compare_hosts(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* The most ranks of one host that may share memory; 0: there is no memory. */
static uint32_t widest_host(const struct xcclComm *comm)
{
    uint64_t *hosts = xccl_calloc((size_t)comm->nranks, sizeof *hosts);
    uint32_t widest = hosts != NULL, same = 1;

    if (!hosts)
        return 0;
    for (int i = 0; i < comm->nranks; i++)
        hosts[i] = comm->peers[i].host_hash;
    qsort(hosts, (size_t)comm->nranks, sizeof *hosts, compare_hosts);
    for (int i = 1; i < comm->nranks; i++) {
        same = hosts[i] == hosts[i - 1] ? same + 1 : 1;
        widest = same > widest ? same : widest;
    }
    xccl_free(hosts);
    return widest;
}

xcclResult_t xccl_cuda_edges_init(struct xcclComm *comm)
{
    struct xccl_cuda_edges *edges = &comm->cuda->edges;
    size_t count = comm->shm ? (size_t)xccl_shm_nlocal(comm->shm) : 0;

    edges->widest = widest_host(comm);
    if (!edges->widest)
        return xcclSystemError;
    if (count < 2)
        return xcclSuccess;
    edges->own = xccl_calloc(count, sizeof *edges->own);
    edges->theirs = xccl_calloc(count, sizeof *edges->theirs);
    edges->kinds = xccl_calloc(count, count);
    if (!edges->own || !edges->theirs || !edges->kinds)
        return xcclSystemError;
    edges->count = (uint32_t)count;
    choose(comm);
    return xcclSuccess;
}

void xccl_cuda_edges_fini(struct xccl_cuda_edges *edges)
{
    xccl_free(edges->own);
    xccl_free(edges->theirs);
    xccl_free(edges->kinds);
    *edges = (struct xccl_cuda_edges){0};
}

void xccl_cuda_edge_lower(const struct xccl_cuda_comm *cuda, struct xccl_cuda_edge *edge,
                          const struct xccl_cuda_why *why)
{
    int by_handle = edge->kind == XCCL_CUDA_MEMORY_HANDLE;

    /* What could not be made has no fabric handle either. */
    if (by_handle && !cuda->no_fabric.code && why->code != XCCL_CUDA_WHY_CREATE) {
        edge->kind = XCCL_CUDA_MEMORY_FABRIC; /* in its place */
        edge->why[0] = *why;
        return;
    }
    if (edge->kind == XCCL_CUDA_MEMORY_FABRIC)
        edge->why[2] = *why;
    else
        edge->why[!by_handle] = *why;
    if (by_handle && cuda->no_fabric.code != XCCL_CUDA_WHY_FABRIC_LACKS)
        edge->why[2] = cuda->no_fabric;
    edge->kind = by_handle || edge->kind == XCCL_CUDA_MEMORY_FABRIC ? XCCL_CUDA_MEMORY_DEVICE
                                                                    : XCCL_CUDA_MEMORY_HOST;
    edge->place = XCCL_CUDA_NO_PLACE;
}

/* --- what all know --- */

enum xccl_cuda_which xccl_cuda_edge_piece(const struct xccl_cuda_edge *edge)
{
    static const enum xccl_cuda_which pieces[XCCL_CUDA_MEMORY_END] = {
        [XCCL_CUDA_MEMORY_NONE] = XCCL_CUDA_PIECES,
        [XCCL_CUDA_MEMORY_DEVICE] = XCCL_CUDA_BY_DEVICE,
        [XCCL_CUDA_MEMORY_HOST] = XCCL_CUDA_BY_HOST,
        [XCCL_CUDA_MEMORY_HANDLE] = XCCL_CUDA_BY_HANDLE,
        [XCCL_CUDA_MEMORY_FABRIC] = XCCL_CUDA_BY_HANDLE,
    };

    return pieces[edge->kind];
}

enum xccl_cuda_which xccl_cuda_edges_piece(const struct xcclComm *comm, int owner, int peer)
{
    const struct xccl_cuda_edges *edges = &comm->cuda->edges;
    struct xccl_cuda_edge edge = {0};
    uint32_t row, column;

    if (!edges->count) /* it is alone */
        return XCCL_CUDA_PIECES;
    row = (uint32_t)xccl_shm_index_of(comm->shm, owner);
    column = (uint32_t)xccl_shm_index_of(comm->shm, peer);
    edge.kind = edges->kinds[row * edges->count + column];
    return xccl_cuda_edge_piece(&edge);
}

int xccl_cuda_edges_give(const struct xcclComm *comm)
{
    const struct xccl_cuda_edges *edges = &comm->cuda->edges;

    for (uint32_t i = 0; i < edges->count; i++)
        if (edges->own[i].kind == XCCL_CUDA_MEMORY_HANDLE &&
            !xccl_cuda_same_process(comm, xccl_shm_rank_of(comm->shm, (int)i)))
            return 1;
    return 0;
}

size_t xccl_cuda_edges_row_bytes(const struct xccl_cuda_edges *edges)
{
    return (size_t)edges->widest * EDGE_BYTES;
}

void xccl_cuda_edges_put(const struct xccl_cuda_edges *edges, uint8_t *row)
{
    struct xccl_wire wire = xccl_wire_over(row, xccl_cuda_edges_row_bytes(edges));

    for (uint32_t i = 0; i < edges->count; i++) {
        const struct xccl_cuda_edge *edge = &edges->own[i];

        xccl_wire_put_u8(&wire, edge->kind);
        xccl_wire_put_u16(&wire, edge->place);
        for (int k = 0; k < XCCL_CUDA_WHYS; k++) {
            xccl_wire_put_u8(&wire, (uint8_t)edge->why[k].code);
            xccl_wire_put_u16(&wire, (uint16_t)edge->why[k].result); /* the driver's are small */
        }
    }
}

/* Who it is about follows from what it is. */
static uint32_t about(uint32_t code, int owner, int peer)
{
    int is_peer = code == XCCL_CUDA_WHY_APART || code == XCCL_CUDA_WHY_HIDDEN ||
                  code == XCCL_CUDA_WHY_IMPORT || code == XCCL_CUDA_WHY_IPC_OPEN ||
                  code == XCCL_CUDA_WHY_FABRIC_IMPORT;

    return (uint32_t)(is_peer ? peer : owner);
}

/* 0: it is not understood. */
static int get_edge(struct xccl_wire *wire, int owner, int peer, struct xccl_cuda_edge *edge)
{
    edge->kind = xccl_wire_get_u8(wire);
    edge->place = xccl_wire_get_u16(wire);
    for (int k = 0; k < XCCL_CUDA_WHYS; k++) {
        edge->why[k].code = xccl_wire_get_u8(wire);
        edge->why[k].result = xccl_wire_get_u16(wire);
        edge->why[k].rank = about(edge->why[k].code, owner, peer);
        if (edge->why[k].code >= XCCL_CUDA_WHY_END)
            return 0;
    }
    return !wire->bad && edge->kind < XCCL_CUDA_MEMORY_END &&
           (edge->kind == XCCL_CUDA_MEMORY_NONE) == (owner == peer);
}

xcclResult_t xccl_cuda_edges_get(struct xcclComm *comm, const uint8_t *rows, size_t stride)
{
    struct xccl_cuda_edges *edges = &comm->cuda->edges;

    for (uint32_t i = 0; i < edges->count; i++) {
        int owner = xccl_shm_rank_of(comm->shm, (int)i);
        /* The reader takes bytes that it may change, and does not. */
        struct xccl_wire wire = xccl_wire_over((uint8_t *)(uintptr_t)rows + (size_t)owner * stride,
                                               xccl_cuda_edges_row_bytes(edges));

        for (uint32_t k = 0; k < edges->count; k++) {
            int peer = xccl_shm_rank_of(comm->shm, (int)k);
            struct xccl_cuda_edge edge;

            if (!get_edge(&wire, owner, peer, &edge))
                return xccl_fail(
                    xcclRemoteError, 0, "install the same version everywhere",
                    "rank %d sent rank %d a memory offer that this version does not understand",
                    owner, peer);
            edges->kinds[i * edges->count + k] = edge.kind;
            if (peer == comm->rank)
                edges->theirs[i] = edge;
        }
    }
    return xcclSuccess;
}
