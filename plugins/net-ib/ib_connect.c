/* SPDX-License-Identifier: BSD-3-Clause */
/* How a connection comes up; this is the sender's side. Nothing here waits: connect is asked again
 * and again, and each state is one function that says whether the next one follows.
 *
 *   receiver                                   sender
 *   listen: a port, a random token
 *      handle {address, token} ------------->  (travels over XCCL's encrypted connections)
 *                                 <----------  connect: TCP, a block {token, queue pair, ring}
 *   accept: the block with the token; a queue
 *   pair of its own, started
 *      block {queue pair} ------------------>  starts its own
 *                                 <----------  note "ready": the comm is up
 *   the comm is up
 *
 * Thread: one at a time a connect. */
#include "ib_int.h"

#include <string.h>

#include "base/alloc.h"
#include "base/param.h"
#include "base/tcp.h"

enum connect_state { CONNECT_REACH, CONNECT_SAY, CONNECT_HEAR, CONNECT_READY, CONNECT_DONE };

struct ib_connect_way {
    struct ib_sender *sender;
    enum connect_state state;
    struct ib_handle handle;
    size_t moved;
    uint8_t bytes[IB_BLOCK_BYTES];
};

static xcclResult_t say_prepare(struct ib_connect_way *way)
{
    struct ib_sender *sender = way->sender;
    struct ib_block block;
    xcclResult_t rc = ib_queue_init(&sender->comm,
                                    (uint32_t)xccl_param_int(XCCL_P_IB_QPS_PER_CONNECTION));

    if (rc == xcclSuccess)
        rc = ib_pin(&sender->comm, sender->ring, sizeof(sender->ring), &sender->ring_mr);
    if (rc != xcclSuccess)
        return rc;
    ib_queue_tell(&sender->comm, &block);
    memcpy(block.token, way->handle.token, sizeof(block.token));
    block.ring_addr = (uintptr_t)sender->ring;
    block.ring_rkey = sender->ring_mr->rkey;
    ib_block_encode(&block, way->bytes);
    return xcclSuccess;
}

static xcclResult_t do_reach(struct ib_connect_way *way, int *next_out)
{
    struct ib_comm *comm = &way->sender->comm;
    xcclResult_t rc = xcclSuccess;

    if (comm->fd < 0)
        rc = xccl_tcp_connect_start(&way->handle.addr, &comm->fd);
    if (rc == xcclSuccess && comm->fd >= 0)
        rc = xccl_tcp_connect_test(comm->fd, &way->handle.addr, next_out);
    return rc;
}

static xcclResult_t send_bytes(struct ib_connect_way *way, size_t bytes, int *next_out)
{
    size_t moved = 0;
    xcclResult_t rc = xccl_tcp_send_some(way->sender->comm.fd, way->bytes + way->moved,
                                         bytes - way->moved, &moved);

    way->moved += moved;
    *next_out = way->moved == bytes;
    if (*next_out)
        way->moved = 0;
    return rc;
}

static xcclResult_t do_say(struct ib_connect_way *way, int *next_out)
{
    return send_bytes(way, IB_BLOCK_BYTES, next_out);
}

static xcclResult_t do_hear(struct ib_connect_way *way, int *next_out)
{
    static const uint8_t no_token[IB_TOKEN_BYTES];
    struct ib_note note = {.kind = IB_NOTE_READY};
    struct ib_comm *comm = &way->sender->comm;
    size_t moved = 0;
    xcclResult_t rc = xccl_tcp_recv_some(comm->fd, way->bytes + way->moved,
                                         IB_BLOCK_BYTES - way->moved, &moved);

    if (rc != xcclSuccess)
        return xccl_fail_quietly(rc, 0, "look for the first error of that process",
                                 "%s has closed the connection during the handshake",
                                 comm->peer_text);
    way->moved += moved;
    if (way->moved < IB_BLOCK_BYTES)
        return xcclSuccess;
    if (!ib_block_decode(way->bytes, no_token, &comm->peer))
        return xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                                 "%s does not answer as the ib plugin does", comm->peer_text);
    if (comm->peer.pairs > comm->queue.count)
        return xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                                 "%s answers with %u queue pairs to %u", comm->peer_text,
                                 comm->peer.pairs, comm->queue.count);
    ib_queue_cut(comm, comm->peer.pairs);
    rc = ib_queue_start(comm);
    ib_note_encode(&note, way->bytes);
    way->moved = 0;
    *next_out = rc == xcclSuccess;
    return rc;
}

static xcclResult_t do_ready(struct ib_connect_way *way, int *next_out)
{
    return send_bytes(way, IB_NOTE_BYTES, next_out);
}

static xcclResult_t (*const states[CONNECT_DONE])(struct ib_connect_way *, int *) = {
    [CONNECT_REACH] = do_reach,
    [CONNECT_SAY] = do_say,
    [CONNECT_HEAR] = do_hear,
    [CONNECT_READY] = do_ready,
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
    rc = ib_handle_decode(handle, &way->handle);
    if (rc != xcclSuccess)
        goto err_way;
    rc = xcclSystemError;
    way->sender = (struct ib_sender *)ib_comm_create(ctx, device, 1);
    if (!way->sender)
        goto err_way;
    xccl_addr_format(&way->handle.addr, way->sender->comm.peer_text);
    rc = say_prepare(way);
    if (rc != xcclSuccess)
        goto err_comm;
    *way_out = way;
    return xcclSuccess;
err_comm:
    ib_close_send(way->sender);
err_way:
    xccl_free(way);
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
    xccl_free(way);
    return xcclSuccess;
}

xcclResult_t ib_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state)
{
    struct ib_connect_way *way = state;

    (void)ctx;
    ib_close_send(way->sender);
    xccl_free(way);
    return xcclSuccess;
}
