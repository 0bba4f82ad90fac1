/* SPDX-License-Identifier: BSD-3-Clause */
/* How a connection comes up; this is the sender's side. Nothing here waits: connect is asked again
 * and again, and each state is one function that says whether the next one follows.
 *
 *   receiver                                   sender
 *   listen: a port, a random token
 *      handle {address, token} ------------->  (travels over XCCL's encrypted connections)
 *                                 <--------->  connect: TCP, both prove the token (kit_guest.h)
 *                                 <----------  block {ports}
 *   accept: which ports talk to which, queue
 *   pairs for that
 *      block {ports, queue pairs} ---------->  queue pairs of its own, started
 *                                 <----------  block {queue pairs, ring}: the comm is up
 *   starts its own: the comm is up
 *
 * All blocks are sealed. Nothing is sent before a line has come, and no line before the receiver
 * has started.
 * Thread: one at a time a connect. */
#include "ib_int.h"

#include <string.h>

#include "base/alloc.h"
#include "base/tcp.h"

enum connect_state { CONNECT_GREET, CONNECT_HEAR, CONNECT_START, CONNECT_TELL, CONNECT_DONE };

struct ib_connect_way {
    struct ib_sender *sender;
    enum connect_state state;
    struct kit_handle handle; /* of one address */
    struct kit_greeting greeting;
    size_t told; /* bytes of the last block */
    uint8_t bytes[KIT_SEALED(IB_BLOCK_BYTES)];
    struct ib_starter starter;
};

/* The token and the keys of its proof do not stay in memory. */
static void way_free(struct ib_connect_way *way)
{
    explicit_bzero(way, sizeof(*way));
    xccl_free(way);
}

static xcclResult_t say_prepare(struct ib_connect_way *way)
{
    struct ib_block block;
    xcclResult_t rc = ib_queue_init(&way->sender->comm);

    if (rc != xcclSuccess)
        return rc;
    ib_queue_tell(&way->sender->comm, &block);
    ib_block_encode(&block, way->bytes);
    return xccl_tcp_connect_start(&way->handle.addrs[0], &way->sender->comm.side.fd);
}

/* The peer's block is there: queue pairs as it says. */
static xcclResult_t pairs_make(struct ib_connect_way *way)
{
    struct ib_sender *sender = way->sender;
    struct ib_comm *comm = &sender->comm;
    struct ib_block block;
    xcclResult_t rc;

    ib_queue_tell(comm, &block);
    if (comm->peer.pairs == 0)
        return ib_reach_refuse(&block, &comm->peer);
    for (uint32_t i = 0; i < comm->peer.pairs; i++) {
        const struct ib_link *link = &comm->peer.link[i];

        if (link->sender >= comm->queue.port_count || link->receiver >= comm->peer.ports)
            return xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                                     "%s answers with ports that do not exist", comm->peer_text);
    }
    rc = ib_queue_make(comm, comm->peer.link, comm->peer.pairs);
    if (rc == xcclSuccess)
        rc = ib_pin(comm, sender->ring, sizeof(sender->ring), sender->ring_mrs);
    return rc;
}

/* They are started: what they have taken of the peer's offer is known, too. */
static xcclResult_t do_start(struct ib_connect_way *way, int *next_out)
{
    struct ib_sender *sender = way->sender;
    struct ib_comm *comm = &sender->comm;
    struct ib_block block;
    xcclResult_t rc = ib_start_move(&way->starter, comm, next_out);

    if (rc != xcclSuccess || !*next_out)
        return rc;
    ib_queue_tell(comm, &block);
    block.ring_addr = (uintptr_t)sender->ring;
    for (uint32_t i = 0; i < comm->queue.port_count; i++)
        block.ring_rkey[i] = sender->ring_mrs[i]->rkey;
    ib_block_encode(&block, way->bytes);
    kit_proof_seal(&comm->side.proof, way->bytes, IB_BLOCK_BYTES);
    return xcclSuccess;
}

static xcclResult_t do_greet(struct ib_connect_way *way, int *next_out)
{
    struct kit_side *side = &way->sender->comm.side;
    const struct kit_intro intro = {.dialect = &ib_dialect,
                                    .token = way->handle.token,
                                    .hello = way->bytes,
                                    .hello_bytes = IB_BLOCK_BYTES};
    xcclResult_t rc = kit_greet(&way->greeting, side->fd, &way->handle.addrs[0], &intro, next_out);

    if (*next_out)
        side->proof = way->greeting.proof;
    return rc;
}

static xcclResult_t do_tell(struct ib_connect_way *way, int *next_out)
{
    const size_t bytes = KIT_SEALED(IB_BLOCK_BYTES);
    xcclResult_t rc = kit_say(way->sender->comm.side.fd, way->bytes, bytes, &way->told);

    *next_out = way->told == bytes;
    return rc;
}

static xcclResult_t do_hear(struct ib_connect_way *way, int *next_out)
{
    struct ib_comm *comm = &way->sender->comm;
    const size_t bytes = KIT_SEALED(IB_BLOCK_BYTES);
    xcclResult_t rc = kit_hear(comm->side.fd, way->bytes, bytes, &way->greeting.heard);

    if (rc != xcclSuccess)
        return xccl_fail_quietly(rc, 0, "see the first error of that process",
                                 "%s has closed the connection during the handshake",
                                 comm->peer_text);
    if (way->greeting.heard < bytes)
        return xcclSuccess;
    if (!kit_proof_open(&comm->side.proof, way->bytes, IB_BLOCK_BYTES) ||
        !kit_hello_read(&ib_dialect, way->bytes, &comm->peer))
        return xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                                 "the answer of %s is not from the ib plugin", comm->peer_text);
    rc = pairs_make(way);
    *next_out = rc == xcclSuccess;
    return rc;
}

static xcclResult_t (*const states[CONNECT_DONE])(struct ib_connect_way *, int *) = {
    [CONNECT_GREET] = do_greet,
    [CONNECT_HEAR] = do_hear,
    [CONNECT_START] = do_start,
    [CONNECT_TELL] = do_tell,
};

static xcclResult_t way_begin(struct ib_ctx *ctx, int dev, const xcclNetHandle_t *handle,
                              struct ib_connect_way **way_out)
{
    struct ib_device *device = ib_device_get(ctx, dev);
    struct ib_connect_way *way;
    xcclResult_t rc = xcclInvalidArgument;

    if (!device)
        return rc;
    way = xccl_calloc(1, sizeof(*way));
    if (!way)
        return xcclSystemError;
    rc = kit_handle_decode(&ib_dialect, handle, &way->handle);
    if (rc != xcclSuccess)
        goto err_way;
    rc = xcclSystemError;
    way->sender = (struct ib_sender *)ib_comm_create(ctx, device, 1);
    if (!way->sender)
        goto err_way;
    xccl_addr_format(&way->handle.addrs[0], way->sender->comm.peer_text);
    rc = say_prepare(way);
    if (rc != xcclSuccess)
        goto err_comm;
    *way_out = way;
    return xcclSuccess;
err_comm:
    ib_close_send(way->sender);
err_way:
    way_free(way);
    return rc;
}

xcclResult_t ib_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                        xcclNetConnect_t *state, xcclNetSendComm_t *comm_out)
{
    struct ib_connect_way *way = *state;
    xcclResult_t rc = xcclSuccess;
    int next = 1;

    if (!way) {
        rc = way_begin(ctx, dev, handle, &way);
        if (rc != xcclSuccess)
            return rc;
        *state = way;
    }
    while (next && rc == xcclSuccess && way->state != CONNECT_DONE) {
        next = 0;
        rc = states[way->state](way, &next);
        way->state += next;
    }
    if (rc == xcclSuccess && way->state == CONNECT_DONE)
        rc = ib_service_add(&way->sender->comm);
    if (rc == xcclSuccess && way->state != CONNECT_DONE) {
        *comm_out = NULL;
        return xcclSuccess;
    }
    *state = NULL;
    if (rc != xcclSuccess) {
        ib_close_connect(ctx, way);
        return rc;
    }
    *comm_out = way->sender;
    way_free(way);
    return xcclSuccess;
}

xcclResult_t ib_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state)
{
    struct ib_connect_way *way = state;

    (void)ctx;
    ib_start_fini(&way->starter);
    ib_close_send(way->sender);
    way_free(way);
    return xcclSuccess;
}
