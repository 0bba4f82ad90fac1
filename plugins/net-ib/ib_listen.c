/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver's side of coming up: a TCP port, and those who come there. Nothing here waits:
 * accept is asked again and again. No queue pair is made before the sender has proved itself
 * (kit_guest.h). A sender that goes away again before it is ready leaves the door open.
 *
 * Thread: one at a time a listener. */
#include "ib_int.h"

#include <string.h>

#include "base/alloc.h"
#include "base/tcp.h"

#define INTERFACES_MAX 16

struct ib_listener {
    struct ib_ctx *ctx;
    struct ib_device *device;
    struct kit_listener door;
    struct ib_receiver *receiver; /* of the sender that has proved itself; NULL: none yet */
    struct kit_stranger who; /* that sender, without its connection */
    size_t said; /* bytes of the answer that are on their way */
    uint8_t answer[KIT_SEALED(IB_BLOCK_BYTES)];
    size_t have; /* bytes of the sender's last block */
    uint8_t last[KIT_SEALED(IB_BLOCK_BYTES)];
    struct ib_starter starter; /* once that is whole */
};

static xcclResult_t port_open(struct ib_listener *listener)
{
    struct ib_device *device = listener->device;
    struct xccl_netif ifs[INTERFACES_MAX];
    const char *names[INTERFACES_MAX], *own[IB_PORTS_MAX];
    int count = 0, chosen;
    const struct xccl_addr *met = &listener->ctx->met;
    xcclResult_t rc = xccl_netif_choose_near(met->bytes ? met : NULL, ifs, INTERFACES_MAX, &count);

    if (rc != xcclSuccess)
        return rc;
    for (int i = 0; i < count; i++)
        names[i] = ifs[i].name;
    for (uint32_t i = 0; i < device->port_count; i++)
        own[i] = device->ports[i]->netdev;
    chosen = ib_interface_choose(names, count, own, (int)device->port_count);
    return kit_listener_port(&listener->door, 0, &ifs[chosen].addr);
}

xcclResult_t ib_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle_out,
                       xcclNetListenComm_t *listen_out)
{
    struct ib_device *device = ib_device_get(ctx, dev);
    struct ib_listener *listener;
    xcclResult_t rc;

    if (!device)
        return xcclInvalidArgument;
    listener = xccl_calloc(1, sizeof(*listener));
    if (!listener)
        return xcclSystemError;
    listener->ctx = ctx;
    listener->device = device;
    rc = kit_listener_open(&listener->door, &ib_dialect, ((struct ib_ctx *)ctx)->log, device->name);
    if (rc == xcclSuccess)
        rc = port_open(listener);
    if (rc != xcclSuccess) {
        ib_close_listen(listener);
        return rc;
    }
    kit_handle_encode(&ib_dialect, &listener->door.handle, handle_out);
    *listen_out = listener;
    return xcclSuccess;
}

xcclResult_t ib_close_listen(xcclNetListenComm_t listen)
{
    struct ib_listener *listener = listen;

    kit_listener_close(&listener->door);
    ib_start_fini(&listener->starter);
    if (listener->receiver)
        ib_close_recv(listener->receiver);
    xccl_free(listener);
    return xcclSuccess;
}

/* Makes a comm and the answer for a sender that has proved itself. */
static xcclResult_t receiver_make(struct ib_listener *listener, struct kit_stranger *stranger,
                                  const struct ib_block *block)
{
    struct ib_comm *comm = ib_comm_create(listener->ctx, listener->device, 0);
    struct ib_receiver *receiver = (struct ib_receiver *)comm;
    struct ib_link links[IB_PAIRS_MAX];
    struct ib_block here;
    uint32_t count = 0;
    xcclResult_t rc;

    if (!comm)
        return xcclSystemError;
    listener->receiver = receiver;
    listener->said = 0;
    listener->have = 0;
    memset(&listener->starter, 0, sizeof(listener->starter));
    comm->side.fd = stranger->fd;
    comm->side.proof = *kit_guest_proof(&listener->door.guests, &listener->door.step, stranger);
    stranger->fd = -1;
    listener->who = *stranger;
    comm->peer = *block;
    xccl_addr_format(&stranger->peer, comm->peer_text);
    rc = ib_queue_init(comm);
    if (rc != xcclSuccess)
        return rc;
    ib_queue_tell(comm, &here);
    count = ib_links_choose(&here, block, links);
    if (count)
        rc = ib_queue_make(comm, links, count);
    if (rc == xcclSuccess)
        rc = ib_pin(comm, receiver->lines, sizeof(receiver->lines), receiver->lines_mrs);
    if (rc != xcclSuccess)
        return rc;
    if (count)
        ib_queue_tell(comm, &here);
    ib_block_encode(&here, listener->answer);
    kit_proof_seal(&comm->side.proof, listener->answer, IB_BLOCK_BYTES);
    if (count)
        return xcclSuccess;
    /* The other end says why, too. */
    (void)kit_say(comm->side.fd, listener->answer, sizeof(listener->answer), &listener->said);
    return ib_reach_refuse(&here, block);
}

/* The sender's last block: its queue pairs and its ring. */
static xcclResult_t last_take(struct ib_listener *listener, const struct ib_block *block)
{
    struct ib_receiver *receiver = listener->receiver;
    struct ib_comm *comm = &receiver->comm;
    xcclResult_t rc = xcclSuccess;

    memcpy(comm->peer.qp_num, block->qp_num, sizeof(block->qp_num));
    memcpy(comm->peer.psn, block->psn, sizeof(block->psn));
    memcpy(comm->peer.extras, block->extras, sizeof(block->extras));
    memcpy(comm->peer.ring_rkey, block->ring_rkey, sizeof(block->ring_rkey));
    comm->peer.ring_addr = block->ring_addr;
    for (uint32_t i = 0; i < comm->queue.count && rc == xcclSuccess; i++)
        rc = ib_recv_start(receiver, i);
    return rc;
}

static xcclResult_t receiver_start(struct ib_listener *listener, int *done_out)
{
    struct ib_comm *comm = &listener->receiver->comm;
    xcclResult_t rc = ib_start_move(&listener->starter, comm, done_out);

    return rc == xcclSuccess && *done_out ? ib_service_add(comm) : rc;
}

/* Moves the handshake with the right sender on. *done_out 1: it is ready. */
static xcclResult_t receiver_move(struct ib_listener *listener, int *done_out)
{
    struct ib_comm *comm = &listener->receiver->comm;
    struct ib_block block;
    xcclResult_t rc;

    if (listener->starter.comm)
        return receiver_start(listener, done_out);
    rc = kit_say(comm->side.fd, listener->answer, sizeof(listener->answer), &listener->said);
    if (rc == xcclSuccess && listener->said == sizeof(listener->answer))
        rc = kit_hear(comm->side.fd, listener->last, sizeof(listener->last), &listener->have);
    if (rc == xcclSuccess && listener->have < sizeof(listener->last))
        return xcclSuccess;
    if (rc == xcclSuccess && kit_proof_open(&comm->side.proof, listener->last, IB_BLOCK_BYTES) &&
        kit_hello_read(&ib_dialect, listener->last, &block) && block.pairs == comm->queue.count) {
        rc = last_take(listener, &block);
        return rc == xcclSuccess ? receiver_start(listener, done_out) : rc;
    }
    kit_doorstep_drop(&listener->door.step, &listener->who,
                      rc == xcclSuccess ? "a wrong last block"
                                        : "it disconnected during the handshake");
    ib_close_recv(listener->receiver);
    listener->receiver = NULL;
    return xcclSuccess;
}

xcclResult_t ib_accept(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm_out)
{
    struct ib_listener *listener = listen;
    uint64_t now_ns = xccl_clock_ns();
    struct kit_stranger *stranger;
    struct ib_block block;
    xcclResult_t rc = kit_listener_fill(&listener->door, now_ns);
    int at = 0, done = 0;

    while (rc == xcclSuccess &&
           (stranger = kit_listener_next(&listener->door, &at, now_ns, &block))) {
        if (!listener->receiver)
            rc = receiver_make(listener, stranger, &block);
        else
            kit_doorstep_drop(&listener->door.step, stranger, ib_dialect.wrong);
    }
    if (rc == xcclSuccess && listener->receiver)
        rc = receiver_move(listener, &done);
    if (rc != xcclSuccess)
        return rc;
    *comm_out = done ? listener->receiver : NULL;
    if (done)
        listener->receiver = NULL;
    return xcclSuccess;
}
