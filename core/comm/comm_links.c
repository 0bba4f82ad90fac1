/* SPDX-License-Identifier: BSD-3-Clause */
/* Init: the network connections, then the schedules bound to links. Connections
 * needed: the ring's where a neighbour is on another host (or shared memory is off), and one each
 * way between all pairs that share no memory when there are few ranks. All are made at once and
 * none waits for another, so no order of ranks can block. Nothing rings when a plugin's connection
 * is up, so that phase is polled. Thread: the joining one. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "base/wire.h"
#include "comm/comm_int.h"

#define WIRE_TEXT_BYTES    320
#define SLICES_WIRE_BYTES  8
#define NET_SLOT_MIN       (8u << 10)
#define CONNECT_VERDICT_MS 300
#define CONNECT_SPARE_NS   (500 * XCCL_NS_PER_MS)
#define LOCAL_COPY_MAX     (1u << 30) /* a communicator of one rank: slices are memory copies */

/* Everything that links own. The mesh is indexed by peer. */
struct xccl_comm_links {
    struct xccl_net_link *ring_send, *ring_recv;
    struct xccl_net_link **mesh_send, **mesh_recv;
    int nranks;
    struct xccl_link *shm_links; /* views on shared memory, taken one after the other */
    uint32_t shm_used, shm_room;
    struct xccl_binding *bindings[XCCL_ALGO_COUNT * XCCL_PROTO_COUNT];
    int binding_count;
};

/* One rank's part of the exchange before connecting. */
struct offer {
    uint32_t rc;
    char text[WIRE_TEXT_BYTES];
    xcclNetHandle_t ring, mesh[XCCL_NET_MESH_MAX];
};

/* The mesh is not told when there are too many ranks for one. */
static size_t mesh_handles(const struct xcclComm *comm)
{
    return comm->nranks <= XCCL_NET_MESH_MAX ? XCCL_NET_MESH_MAX : 0;
}

static size_t offer_bytes(const struct xcclComm *comm)
{
    return 4 + WIRE_TEXT_BYTES + XCCL_NET_HANDLE_BYTES * (1 + mesh_handles(comm));
}

static void put_offer(const struct xcclComm *comm, const struct offer *offer, uint8_t *part)
{
    struct xccl_wire wire = xccl_wire_over(part, offer_bytes(comm));

    xccl_wire_put_u32(&wire, offer->rc);
    xccl_wire_put(&wire, offer->text, sizeof offer->text);
    xccl_wire_put(&wire, &offer->ring, sizeof offer->ring);
    xccl_wire_put(&wire, offer->mesh, mesh_handles(comm) * XCCL_NET_HANDLE_BYTES);
}

static void get_offer(const struct xccl_init *init, int rank, struct offer *offer)
{
    size_t bytes = offer_bytes(init->comm);
    struct xccl_wire wire = xccl_wire_over(init->parts + (size_t)rank * bytes, bytes);

    offer->rc = xccl_wire_get_u32(&wire);
    xccl_wire_get(&wire, offer->text, sizeof offer->text);
    xccl_wire_get(&wire, &offer->ring, sizeof offer->ring);
    xccl_wire_get(&wire, offer->mesh, mesh_handles(init->comm) * XCCL_NET_HANDLE_BYTES);
    offer->text[sizeof offer->text - 1] = 0;
}

int xccl_comm_is_local(const struct xcclComm *comm, int rank)
{
    return rank == comm->rank || (comm->shm && xccl_shm_index_of(comm->shm, rank) >= 0);
}

int xccl_comm_any_remote(const struct xcclComm *comm)
{
    for (int i = 0; i < comm->nranks; i++)
        if (!xccl_comm_is_local(comm, i))
            return 1;
    return 0;
}

static int neighbour(const struct xcclComm *comm, int distance)
{
    return (comm->rank + distance + comm->nranks) % comm->nranks;
}

/* Slots of the network links of this rank, within its budget. Ranks may differ: the slices that all
 * agree on fit the smallest. */
static uint32_t net_slot_bytes(const struct xcclComm *comm)
{
    uint64_t links = 2, budget = comm->peers[comm->rank].buffer_bytes;
    uint32_t bytes = XCCL_NET_SLOT_BYTES;

    if (comm->nranks <= XCCL_NET_MESH_MAX)
        links += 2u * (uint64_t)(comm->nranks - 1);
    if (comm->shm)
        budget -= budget < xccl_shm_bytes(comm->shm) ? budget : xccl_shm_bytes(comm->shm);
    while (bytes > NET_SLOT_MIN && links * XCCL_NET_SLOTS * bytes > budget)
        bytes /= 2;
    return bytes;
}

/* Listens for everybody who will connect. */
static xcclResult_t make_offer(struct xcclComm *comm, struct offer *offer)
{
    int left = neighbour(comm, -1);
    xcclResult_t rc = xcclSuccess;

    if (!xccl_comm_is_local(comm, left))
        rc = xccl_net_link_listen(xccl_comm_net(comm, left), xccl_comm_net_device(comm, left), left,
                                  net_slot_bytes(comm), &offer->ring, &comm->links->ring_recv);
    for (int i = 0; i < comm->nranks && comm->nranks <= XCCL_NET_MESH_MAX && !rc; i++)
        if (!xccl_comm_is_local(comm, i))
            rc = xccl_net_link_listen(xccl_comm_net(comm, i), xccl_comm_net_device(comm, i), i,
                                      net_slot_bytes(comm), &offer->mesh[i],
                                      &comm->links->mesh_recv[i]);
    return rc;
}

/* All ranks listen? The error names rank and reason on every rank. */
static xcclResult_t judge_offers(const struct xccl_init *init, struct offer *offer)
{
    const struct xcclComm *comm = init->comm;

    for (int i = 0; i < comm->nranks; i++) {
        get_offer(init, i, offer);
        if (offer->rc &&
            i == comm->rank) { /* other ranks of this thread have errors of their own */
            xccl_error_set_text(offer->text);
            return (xcclResult_t)offer->rc;
        }
        if (offer->rc)
            return xccl_fail(xcclRemoteError, 0, NULL, "rank %d on host %s: %s", i,
                             comm->peers[i].host, offer->text);
    }
    return xcclSuccess;
}

static xcclResult_t make_senders(const struct xccl_init *init, struct offer *offer)
{
    struct xcclComm *comm = init->comm;
    struct xccl_comm_links *links = comm->links;
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < comm->nranks && !rc; i++) {
        struct xccl_net *net = xccl_comm_net(comm, i);

        if (xccl_comm_is_local(comm, i))
            continue;
        get_offer(init, i, offer);
        if (i == neighbour(comm, 1))
            rc = xccl_net_link_create_send(net, xccl_comm_net_device(comm, i), i,
                                           net_slot_bytes(comm), &offer->ring, &links->ring_send);
        if (!rc && comm->nranks <= XCCL_NET_MESH_MAX)
            rc = xccl_net_link_create_send(net, xccl_comm_net_device(comm, i), i,
                                           net_slot_bytes(comm), &offer->mesh[comm->rank],
                                           &links->mesh_send[i]);
    }
    return rc;
}

/* Ends that are not up yet. */
struct connect_rest {
    int count, peer; /* peer: of the first one */
};

/* Moves one end on; counts it when it is not up yet. */
static xcclResult_t connect_one(const struct xcclComm *comm, struct xccl_net_link *link,
                                struct connect_rest *rest)
{
    char name[128], why[XCCL_ERROR_TEXT_BYTES];
    int done = 0;
    xcclResult_t rc;

    if (!link)
        return xcclSuccess;
    rc = xccl_net_link_connect_step(link, &done);
    if (!done && rest->count++ == 0)
        rest->peer = xccl_net_link_peer(link);
    if (!rc)
        return rc;
    snprintf(why, sizeof why, "%s", xccl_error_text());
    xccl_comm_name_rank(comm, xccl_net_link_peer(link), name, sizeof name);
    return xccl_fail(rc, 0, NULL, "rank %d cannot connect to %s: %.300s", comm->rank, name, why);
}

/* Moves all ends on. */
static xcclResult_t connect_each(const struct xcclComm *comm, struct connect_rest *rest)
{
    struct xccl_comm_links *links = comm->links;
    xcclResult_t rc = connect_one(comm, links->ring_send, rest);

    if (!rc)
        rc = connect_one(comm, links->ring_recv, rest);
    for (int i = 0; i < comm->nranks && !rc; i++) {
        rc = connect_one(comm, links->mesh_send[i], rest);
        if (!rc)
            rc = connect_one(comm, links->mesh_recv[i], rest);
    }
    return rc;
}

/* A connection failed. Most often the peer has given up, and then the bootstrap says why before
 * long, in place of this error. */
static void keep_lost(struct xccl_init *init, xcclResult_t rc)
{
    init->lost_rc = rc;
    init->lost_ns = xccl_clock_ns() + CONNECT_VERDICT_MS * XCCL_NS_PER_MS;
    snprintf(init->lost_text, sizeof init->lost_text, "%s", xccl_error_text());
}

static xcclResult_t fail_waiting(const struct xcclComm *comm, const struct connect_rest *rest)
{
    const struct xccl_net *net = xccl_comm_net(comm, rest->peer);
    char name[128];

    xccl_comm_name_rank(comm, rest->peer, name, sizeof name);
    return xccl_fail(xcclTimeout, 0,
                     "check that the hosts reach each other's addresses, or raise "
                     "XCCL_TIMEOUT_INIT_S",
                     "rank %d still waits for %d network connections, the first one with %s, by "
                     "device %s of plugin %s",
                     comm->rank, rest->count, name, net->use[comm->net_kind[rest->peer]].name,
                     net->wire_id);
}

xcclResult_t xccl_init_connect(struct xccl_init *init, enum xccl_init_state *state_out)
{
    const struct xcclComm *comm = init->comm;
    struct connect_rest rest = {0, 0};
    xcclResult_t rc;

    *state_out = XCCL_INIT_POLL;
    if (init->lost_rc && xccl_clock_ns() < init->lost_ns)
        return xcclSuccess;
    if (init->lost_rc) {
        xccl_error_set_text(init->lost_text);
        return init->lost_rc;
    }
    rc = connect_each(comm, &rest);
    if (rc)
        keep_lost(init, rc);
    else if (!rest.count)
        *state_out = XCCL_INIT_DONE;
    else if (xccl_limit_passed(&init->limit) ||
             xccl_clock_ns() + CONNECT_SPARE_NS > init->limit.deadline_ns)
        /* A little early: this rank knows for whom it waits, the others would only say for it. */
        return fail_waiting(comm, &rest);
    return xcclSuccess;
}

static xcclResult_t create_links(struct xcclComm *comm)
{
    struct xccl_comm_links *links = xccl_calloc(1, sizeof *links);
    size_t n = (size_t)comm->nranks;

    if (!links)
        return xcclSystemError;
    comm->links = links;
    links->nranks = comm->nranks;
    links->mesh_send = xccl_calloc(n, sizeof(void *));
    links->mesh_recv = xccl_calloc(n, sizeof(void *));
    links->shm_room = (uint32_t)(XCCL_PROTO_COUNT * n + 2);
    links->shm_links = xccl_calloc_aligned(64, links->shm_room * sizeof *links->shm_links);
    if (!links->mesh_send || !links->mesh_recv || !links->shm_links)
        return xcclSystemError;
    return xcclSuccess;
}

/* Says where this rank listens, or why it cannot. */
xcclResult_t xccl_init_offer(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    uint8_t *own = xccl_init_parts(init, offer_bytes(comm));
    struct offer offer = {0};
    xcclResult_t rc = create_links(comm);

    if (rc || !own)
        return xcclSystemError;
    if (xccl_comm_any_remote(comm))
        offer.rc = (uint32_t)make_offer(comm, &offer);
    if (offer.rc)
        memcpy(offer.text, xccl_error_text(), strnlen(xccl_error_text(), sizeof offer.text - 1));
    put_offer(comm, &offer, own);
    *state_out = XCCL_INIT_DONE;
    return xccl_init_gather(init);
}

xcclResult_t xccl_init_senders(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct offer offer = {0};
    xcclResult_t rc = judge_offers(init, &offer);

    if (rc)
        return rc;
    *state_out = XCCL_INIT_DONE;
    return make_senders(init, &offer);
}

void xccl_comm_links_destroy(struct xccl_comm_links *links)
{
    if (!links)
        return;
    for (int i = 0; i < links->binding_count; i++)
        xccl_binding_destroy(links->bindings[i]);
    xccl_net_link_destroy(links->ring_send);
    xccl_net_link_destroy(links->ring_recv);
    for (int i = 0; i < links->nranks && links->mesh_send && links->mesh_recv; i++) {
        xccl_net_link_destroy(links->mesh_send[i]);
        xccl_net_link_destroy(links->mesh_recv[i]);
    }
    xccl_free(links->mesh_send);
    xccl_free(links->mesh_recv);
    xccl_free(links->shm_links);
    xccl_free(links);
}

/* The end of a link over shared memory that a connection names. */
static struct xccl_link *bind_shm(struct xcclComm *comm, const struct xccl_schedule_conn *conn,
                                  enum xccl_proto proto)
{
    struct xccl_link *link = &comm->links->shm_links[comm->links->shm_used++];
    int index = xccl_shm_index_of(comm->shm, conn->peer);

    if (conn->kind == XCCL_CONN_MULTICAST && conn->dir == XCCL_CONN_SEND)
        xccl_shm_multicast_send(comm->shm, proto, link);
    else if (conn->kind == XCCL_CONN_MULTICAST)
        xccl_shm_multicast_recv(comm->shm, proto, index, link);
    else if (conn->dir == XCCL_CONN_SEND)
        xccl_shm_ring_send(comm->shm, index, link);
    else
        xccl_shm_ring_recv(comm->shm, index, link);
    return link;
}

static struct xccl_net_link *net_of(const struct xcclComm *comm, enum xccl_algo algo,
                                    const struct xccl_schedule_conn *conn)
{
    const struct xccl_comm_links *links = comm->links;

    if (algo == XCCL_ALGO_RING)
        return conn->dir == XCCL_CONN_SEND ? links->ring_send : links->ring_recv;
    return conn->dir == XCCL_CONN_SEND ? links->mesh_send[conn->peer]
                                       : links->mesh_recv[conn->peer];
}

static void bind_conns(struct xcclComm *comm, struct xccl_binding *binding, enum xccl_algo algo)
{
    const struct xccl_schedule *schedule = binding->schedule;

    binding->slot_bytes = LOCAL_COPY_MAX;
    for (uint16_t i = 0; i < schedule->nconns; i++) {
        const struct xccl_schedule_conn *conn = &schedule->conns[i];

        if (xccl_comm_is_local(comm, conn->peer)) {
            binding->links[i] = bind_shm(comm, conn, binding->proto);
        } else {
            binding->nets[i] = net_of(comm, algo, conn);
            binding->links[i] = xccl_net_link_view(binding->nets[i]);
            binding->net_conns[binding->net_count++] = i;
        }
        assert(binding->links[i]->nslots >= schedule->minslots);
        if (binding->links[i]->slot_bytes < binding->slot_bytes)
            binding->slot_bytes = binding->links[i]->slot_bytes;
    }
}

static xcclResult_t bind_schedule(struct xcclComm *comm, enum xccl_algo algo, enum xccl_proto proto,
                                  const uint8_t *multicast)
{
    struct xccl_schedule *schedule;
    struct xccl_binding *binding;
    xcclResult_t rc;

    if (algo == XCCL_ALGO_RING)
        rc = xccl_gen_ring(comm->nranks, comm->rank, &schedule);
    else
        rc = xccl_gen_oneshot(comm->nranks, comm->rank, multicast, &schedule);
    if (rc)
        return rc;
    rc = xccl_schedule_check(schedule);
    if (rc) {
        xccl_schedule_destroy(schedule);
        return rc;
    }
    rc = xccl_binding_create(schedule, proto, &binding);
    if (rc)
        return rc;
    comm->links->bindings[comm->links->binding_count++] = binding;
    bind_conns(comm, binding, algo);
    comm->planner.bindings[algo][proto] = binding;
    return xcclSuccess;
}

/* Says how large slices may be on this rank's links, of either algorithm. */
static xcclResult_t propose_slices(struct xccl_init *init)
{
    uint8_t *own = xccl_init_parts(init, SLICES_WIRE_BYTES);
    struct xccl_wire wire;

    if (!own)
        return xcclSystemError;
    wire = xccl_wire_over(own, SLICES_WIRE_BYTES);
    for (int algo = XCCL_ALGO_ONESHOT; algo <= XCCL_ALGO_RING; algo++) {
        const struct xccl_binding *binding = init->comm->planner.bindings[algo][XCCL_PROTO_SLICES];

        xccl_wire_put_u32(&wire, binding ? binding->slot_bytes : UINT32_MAX);
    }
    return xccl_init_gather(init);
}

xcclResult_t xccl_init_bindings(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    int mesh = comm->nranks <=
               (xccl_comm_any_remote(comm) ? XCCL_NET_MESH_MAX : XCCL_ONESHOT_MAX_RANKS);
    uint8_t *multicast = xccl_calloc((size_t)comm->nranks, 1);
    xcclResult_t rc = xcclSystemError;

    if (!multicast)
        return rc;
    for (int i = 0; i < comm->nranks; i++)
        multicast[i] = (uint8_t)xccl_comm_is_local(comm, i);
    rc = xccl_planner_init(&comm->planner);
    comm->planner.nranks = comm->nranks;
    comm->planner.forced = (enum xccl_algo)xccl_param_int(XCCL_P_ALGO);
    for (int proto = 0; proto < XCCL_PROTO_COUNT && mesh && !rc; proto++)
        if (proto == XCCL_PROTO_SLICES || (!xccl_comm_any_remote(comm) && comm->nranks > 1))
            rc = bind_schedule(comm, XCCL_ALGO_ONESHOT, (enum xccl_proto)proto, multicast);
    if (!rc)
        rc = bind_schedule(comm, XCCL_ALGO_RING, XCCL_PROTO_SLICES, multicast);
    if (!rc && !mesh && comm->planner.forced == XCCL_ALGO_ONESHOT)
        rc = xccl_fail(xcclInvalidUsage, 0, "use XCCL_ALGO=ring or auto",
                       "XCCL_ALGO=oneshot does not serve %d ranks on these links", comm->nranks);
    xccl_free(multicast);
    if (rc)
        return rc;
    *state_out = XCCL_INIT_DONE;
    return propose_slices(init);
}

/* Slices have one size on a ring whose links differ, and it must be the same on all ranks. */
xcclResult_t xccl_init_slices(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    struct xccl_binding *(*bindings)[XCCL_PROTO_COUNT] = comm->planner.bindings;
    size_t bytes = (size_t)comm->nranks * SLICES_WIRE_BYTES;
    struct xccl_wire wire = xccl_wire_over(init->parts, bytes);
    uint32_t least[2] = {UINT32_MAX, UINT32_MAX};

    for (int i = 0; i < 2 * comm->nranks; i++) {
        uint32_t slice = xccl_wire_get_u32(&wire);

        if (slice < least[i & 1])
            least[i & 1] = slice;
    }
    for (int algo = XCCL_ALGO_ONESHOT; algo <= XCCL_ALGO_RING; algo++)
        if (bindings[algo][XCCL_PROTO_SLICES])
            bindings[algo][XCCL_PROTO_SLICES]->slot_bytes = least[algo - XCCL_ALGO_ONESHOT];
    *state_out = XCCL_INIT_DONE;
    return xcclSuccess;
}
