/* SPDX-License-Identifier: BSD-3-Clause */
/* The links that a communicator has so far, by peer, and making the ends that need no word with the
 * peer: over shared memory, and the receive ends over a network. A link serves all schedules that
 * name its connection. Thread: see comm_links.h. */
#include "connect/comm_links.h"

#include "base/alloc.h"
#include "base/param.h"
#include "comm/comm_record.h"
#include "comm/comm_where.h"
#include "comm/device_ops.h"

#define NET_SLOT_MIN (8u << 10)

struct xccl_comm_links {
    int nranks;
    struct xccl_comm_link **by_peer; /* lists */
    uint64_t net_bytes; /* taken by the slots of network links */
};

xcclResult_t xccl_comm_links_create(struct xcclComm *comm)
{
    struct xccl_comm_links *links = xccl_calloc(1, sizeof *links);

    if (!links)
        return xcclSystemError;
    comm->links = links;
    links->nranks = comm->nranks;
    links->by_peer = xccl_calloc((size_t)comm->nranks, sizeof(void *));
    return links->by_peer ? xcclSuccess : xcclSystemError;
}

void xccl_comm_links_destroy(struct xccl_comm_links *links)
{
    if (!links)
        return;
    for (int i = 0; links->by_peer && i < links->nranks; i++) {
        struct xccl_comm_link *next;

        for (struct xccl_comm_link *link = links->by_peer[i]; link; link = next) {
            next = link->next;
            xccl_net_link_destroy(link->net);
            xccl_free(link);
        }
    }
    xccl_free(links->by_peer);
    xccl_free(links);
}

void xccl_comm_links_let_go(struct xccl_comm_links *links)
{
    for (int i = 0; links && i < links->nranks; i++)
        for (struct xccl_comm_link *link = links->by_peer[i]; link; link = link->next)
            if (link->net)
                xccl_net_link_let_go(link->net);
}

size_t xccl_comm_links_bytes(const struct xccl_comm_links *links, uint64_t *net_slots_out)
{
    size_t bytes = 0;

    if (!links)
        return 0;
    *net_slots_out = links->net_bytes;
    for (int i = 0; i < links->nranks; i++)
        for (const struct xccl_comm_link *link = links->by_peer[i]; link; link = link->next)
            bytes += xccl_alloc_bytes(link) + xccl_alloc_bytes(link->net);
    return bytes + xccl_alloc_bytes(links) + xccl_alloc_bytes(links->by_peer);
}

struct xccl_comm_link *xccl_comm_link_find(const struct xcclComm *comm,
                                           const struct xccl_schedule_conn *conn,
                                           enum xccl_proto proto)
{
    struct xccl_comm_link *link = comm->links->by_peer[conn->peer];

    while (link && (link->conn.dir != conn->dir || link->conn.kind != conn->kind ||
                    link->conn.id != conn->id || link->proto != proto))
        link = link->next;
    return link;
}

static struct xccl_comm_link *add_link(struct xcclComm *comm, const struct xccl_schedule_conn *conn,
                                       enum xccl_proto proto)
{
    struct xccl_comm_link *link = xccl_calloc_aligned(64, sizeof *link);

    if (!link)
        return NULL;
    link->conn = *conn;
    link->proto = proto;
    link->next = comm->links->by_peer[conn->peer];
    comm->links->by_peer[conn->peer] = link;
    return link;
}

/* It is the first of its list. */
static void drop_newest(struct xcclComm *comm, struct xccl_comm_link *link)
{
    comm->links->by_peer[link->conn.peer] = link->next;
    xccl_free(link);
}

static xcclResult_t make_shm(struct xcclComm *comm, const struct xccl_schedule_conn *conn,
                             enum xccl_proto proto, struct xccl_link *link_out)
{
    int index = xccl_shm_index_of(comm->shm, conn->peer);

    if (conn->kind == XCCL_CONN_MULTICAST && conn->dir == XCCL_CONN_SEND)
        return xccl_shm_multicast_send(comm->shm, proto, link_out);
    if (conn->kind == XCCL_CONN_MULTICAST)
        return xccl_shm_multicast_recv(comm->shm, proto, index, link_out);
    if (conn->dir == XCCL_CONN_SEND)
        return xccl_shm_fifo_send(comm->shm, proto, index, conn->id, link_out);
    return xccl_shm_fifo_recv(comm->shm, proto, index, conn->id, link_out);
}

static xcclResult_t make_reach(struct xcclComm *comm, const struct xccl_schedule_conn *conn,
                               struct xccl_reach *reach_out)
{
    int index = xccl_shm_index_of(comm->shm, conn->peer);

    if (conn->kind == XCCL_CONN_MULTICAST && conn->dir == XCCL_CONN_SEND)
        return xccl_shm_multicast_send_reach(comm->shm, reach_out);
    if (conn->kind == XCCL_CONN_MULTICAST)
        return xccl_shm_multicast_recv_reach(comm->shm, index, reach_out);
    if (conn->dir == XCCL_CONN_SEND)
        return xccl_shm_fifo_send_reach(comm->shm, index, conn->id, reach_out);
    return xccl_shm_fifo_recv_reach(comm->shm, index, conn->id, reach_out);
}

xcclResult_t xccl_comm_link_shm(struct xcclComm *comm, const struct xccl_schedule_conn *conn,
                                enum xccl_proto proto)
{
    struct xccl_comm_link *link = add_link(comm, conn, proto);
    xcclResult_t rc;

    if (!link)
        return xcclSystemError;
    rc = make_shm(comm, conn, proto, &link->shm);
    if (!rc && proto == XCCL_PROTO_SLICES)
        rc = make_reach(comm, conn, &link->reach);
    if (rc)
        drop_newest(comm, link);
    else
        xccl_comm_record_link(comm, conn);
    return rc;
}

uint32_t xccl_comm_net_slot_bytes(const struct xcclComm *comm, uint32_t more)
{
    uint64_t budget = comm->peers[comm->rank].buffer_bytes, taken = comm->links->net_bytes;
    uint32_t bytes = XCCL_NET_SLOT_BYTES;

    if (comm->shm)
        taken += xccl_shm_bytes(comm->shm);
    budget -= budget < taken ? budget : taken;
    while (bytes > NET_SLOT_MIN && (uint64_t)more * XCCL_NET_SLOTS * bytes > budget)
        bytes /= 2;
    return bytes;
}

xcclResult_t xccl_comm_link_net(struct xcclComm *comm, const struct xccl_schedule_conn *conn,
                                uint32_t slot_bytes, xcclNetHandle_t *handle)
{
    int peer = conn->peer, dev = xccl_comm_net_device(comm, peer);
    struct xccl_comm_link *link = add_link(comm, conn, XCCL_PROTO_SLICES);
    struct xccl_net *net = xccl_comm_net(comm, peer);
    xcclResult_t rc;

    if (!link)
        return xcclSystemError;
    if (conn->dir == XCCL_CONN_RECV)
        rc = xccl_net_link_listen(net, dev, peer, slot_bytes, handle, &link->net);
    else
        rc = xccl_net_link_create_send(net, dev, peer, slot_bytes, handle, &link->net);
    if (!rc)
        comm->ops->give_room(comm, link->net, peer, conn->dir == XCCL_CONN_RECV);
    if (rc) {
        xccl_net_link_destroy(link->net);
        drop_newest(comm, link);
        return rc;
    }
    comm->links->net_bytes += (uint64_t)slot_bytes * XCCL_NET_SLOTS;
    xccl_comm_record_link(comm, conn);
    return xcclSuccess;
}

struct xccl_link *xccl_comm_link_view(struct xccl_comm_link *link)
{
    return link->net ? xccl_net_link_view(link->net) : &link->shm;
}

struct xccl_reach *xccl_comm_link_reach(struct xccl_comm_link *link)
{
    const struct xccl_reach *reach = &link->reach;

    if (link->net)
        return xccl_param_int(XCCL_P_DIRECT) ? xccl_net_link_reach(link->net) : NULL;
    return reach->offers || reach->arena || reach->takes_places || reach->takes_addresses ||
                   reach->pid
               ? &link->reach
               : NULL;
}

void xccl_comm_links_revoke(struct xcclComm *comm)
{
    for (int i = 0; i < comm->links->nranks; i++)
        for (struct xccl_comm_link *link = comm->links->by_peer[i]; link; link = link->next)
            if (link->conn.dir == XCCL_CONN_SEND)
                xccl_reach_revoke(&link->reach, &link->shm);
}
