/* SPDX-License-Identifier: BSD-3-Clause */
/* What both ends of a connection have: the first error, which stays and is given to each later
 * call, the side channel, and the end. Completion errors are told in words, with device, port,
 * peer, its GID, the vendor's code and a hint.
 *
 * A queue pair does not tell that its peer has gone, but after many retries. The TCP connection of
 * the handshake stays open for that: a closed one says so, and notes say the rest.
 *
 * Thread: one at a time a comm, but for ib_error_detail. Nothing here logs; only create allocates.
 */
#include "ib_int.h"

#include <string.h>

#include "base/alloc.h"

/* A port that goes down tells so only after it has lost packets. */
#define FLUSHED_NS (200 * XCCL_NS_PER_MS)

struct ib_comm *ib_comm_create(struct ib_ctx *ctx, struct ib_device *device, int is_send)
{
    size_t bytes = is_send ? sizeof(struct ib_sender) : sizeof(struct ib_receiver);
    struct ib_comm *comm = xccl_calloc_aligned(64, bytes);
    struct ib_sender *sender = (struct ib_sender *)comm;
    struct ib_receiver *receiver = (struct ib_receiver *)comm;

    if (!comm)
        return NULL;
    comm->ctx = ctx;
    comm->device = device;
    comm->is_send = is_send;
    comm->side.fd = -1;
    if (is_send)
        sender->group = 1;
    for (int i = 0; is_send && i < IB_SENDS; i++)
        sender->sends[i].request.comm = comm;
    for (int i = 0; !is_send && i < IB_RECVS; i++)
        receiver->recvs[i].request.comm = comm;
    xccl_net_tally_join(&device->tally, &comm->counters);
    return comm;
}

/* The queue pair first: afterwards the device touches no memory of requests. */
xcclResult_t ib_close_send(xcclNetSendComm_t comm_)
{
    struct ib_sender *sender = comm_;

    ib_service_remove(&sender->comm);
    ib_queue_fini(&sender->comm);
    ib_unpin(&sender->comm, sender->ring_mrs);
    ib_dereg_all(&sender->comm);
    kit_side_close(&sender->comm.side);
    xccl_net_tally_leave(&sender->comm.device->tally, &sender->comm.counters);
    xccl_free(sender);
    return xcclSuccess;
}

/* An acknowledgement may be lost with the queue pair, so the sender is told what has come. */
xcclResult_t ib_close_recv(xcclNetRecvComm_t comm_)
{
    struct ib_receiver *receiver = comm_;
    struct ib_note note = {.kind = IB_NOTE_END};

    ib_service_remove(&receiver->comm);
    if (receiver->comm.queue.up_count && receiver->comm.rc == xcclSuccess)
        ib_recv_move(receiver);
    ib_queue_fini(&receiver->comm);
    ib_flush_close(receiver);
    ib_unpin(&receiver->comm, receiver->lines_mrs);
    ib_dereg_all(&receiver->comm);
    for (int i = 0; i < IB_PAIRS_MAX; i++)
        note.came[i] = receiver->comm.queue.pairs[i].last_pieces;
    ib_comm_tell(&receiver->comm, &note);
    kit_side_close(&receiver->comm.side);
    xccl_net_tally_leave(&receiver->comm.device->tally, &receiver->comm.counters);
    xccl_free(receiver);
    return xcclSuccess;
}

/* ---- errors ---- */

void ib_comm_fail_code(struct ib_comm *comm, xcclNetCause_t cause, int64_t vendor_code,
                       int sys_errno, xcclResult_t rc)
{
    if (comm->rc != xcclSuccess)
        return;
    comm->cause = cause;
    comm->vendor_code = vendor_code;
    comm->sys_errno = sys_errno;
    comm->rc = rc;
    strncpy(comm->error_text, xccl_error_text(), sizeof(comm->error_text) - 1);
    /* Release: pairs with ib_error_detail. Nothing of it changes any more. */
    atomic_store_explicit(&comm->has_failed, 1, memory_order_release);
}

void ib_comm_fail(struct ib_comm *comm, xcclNetCause_t cause, xcclResult_t rc)
{
    ib_comm_fail_code(comm, cause, 0, 0, rc);
}

xcclResult_t ib_comm_error(const struct ib_comm *comm)
{
    xccl_error_set_text(comm->error_text);
    return comm->rc;
}

static void fail_channel(struct ib_comm *comm)
{
    int err = comm->side.err;

    ib_comm_fail_code(
        comm, kit_side_is_dark(err) ? xcclNetCauseTimeout : xcclNetCauseLocal, 0, err,
        xccl_fail_quietly(xcclRemoteError, err, IB_CHANNEL_TODO,
                          "the side channel to the peer %s of %s on %s has failed", comm->peer_text,
                          comm->is_send ? "a send connection" : "a receive connection",
                          comm->device->name));
}

void ib_comm_fail_gone(struct ib_comm *comm)
{
    if (comm->side.err) {
        fail_channel(comm);
        return;
    }
    ib_comm_fail(comm, xcclNetCausePeerGone,
                 xccl_fail_quietly(xcclRemoteError, 0, "see the first error of that process",
                                   "the peer %s of %s on %s has disconnected", comm->peer_text,
                                   comm->is_send ? "a send connection" : "a receive connection",
                                   comm->device->name));
}

static xcclNetCause_t cause_of(enum ibv_wc_status status, const char **hint_out)
{
    switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
        *hint_out = "the peer's port does not answer: look at cables, routes, and, for RoCE, the "
                    "GIDs; XCCL_IB_TIMEOUT and XCCL_IB_RETRY_CNT say how long it is asked";
        return xcclNetCauseTimeout;
    case IBV_WC_RNR_RETRY_EXC_ERR:
        *hint_out = "the peer posts no receives: look for its error";
        return xcclNetCausePeerGone;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
        *hint_out = "the peer's memory is not registered any more, or its process has failed";
        return xcclNetCauseRemoteAccess;
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
        *hint_out = "memory of a request was freed before it was done";
        return xcclNetCauseLocal;
    case IBV_WC_WR_FLUSH_ERR:
        *hint_out = "the card has given up this connection: look at its interface, the kernel's "
                    "log and the peer's first error";
        return xcclNetCauseUnknown;
    case IBV_WC_LOC_QP_OP_ERR:
        *hint_out = "see that its interface is up and has a way to the peer, and the kernel's log";
        return xcclNetCauseLocal;
    case IBV_WC_FATAL_ERR:
    case IBV_WC_GENERAL_ERR:
        *hint_out = "see the kernel's log for the device";
        return xcclNetCauseLinkDown;
    default:
        *hint_out = NULL;
        return xcclNetCauseUnknown;
    }
}

static void fail_status(struct ib_comm *comm, const struct ib_pair *pair, enum ibv_wc_status status,
                        uint32_t vendor_code)
{
    struct ib_device *device = comm->queue.ports[pair->port].device;
    const struct ib_port_info *peer = &comm->peer.port[pair->peer_port];
    char gid[IB_GID_TEXT_BYTES];
    const char *hint, *down = "";
    xcclNetCause_t cause = cause_of(status, &hint);

    if (ib_port_is_down(comm->ctx, device)) {
        cause = xcclNetCauseLinkDown;
        hint = "check its cable and interface";
        down = ", its port is down";
    }
    ib_gid_format(peer->gid, gid);
    ib_comm_fail_code(
        comm, cause, vendor_code, 0,
        xccl_fail_quietly(cause == xcclNetCauseLocal ? xcclSystemError : xcclRemoteError, 0, hint,
                          "%s %s %s of %s with GID %s failed: %s (vendor code %#x)%s", device->name,
                          comm->is_send ? "to" : "from", peer->name, comm->peer_text, gid,
                          comm->ctx->verbs->wc_status_str(status), vendor_code, down));
}

/* What the way has done, and not the memory that was named. */
static int is_of_the_way(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_FATAL_ERR:
    case IBV_WC_GENERAL_ERR:
        return 1;
    default:
        return 0;
    }
}

void ib_comm_fail_wc(struct ib_comm *comm, struct ib_pair *pair, const struct ibv_wc *wc)
{
    if (pair->state != IB_PAIR_UP && pair->state != IB_PAIR_ANSWERED)
        return; /* it has ended already */
    if (is_of_the_way(wc->status) && ib_pair_break(comm, pair))
        return;
    if (wc->status != IBV_WC_WR_FLUSH_ERR)
        fail_status(comm, pair, wc->status, wc->vendor_err);
    else if (comm->flushed_ns == 0)
        comm->flushed_ns = xccl_clock_ns();
}

void ib_comm_flushed(struct ib_comm *comm)
{
    if (comm->flushed_ns && xccl_clock_ns() - comm->flushed_ns > FLUSHED_NS)
        fail_status(comm, &comm->queue.pairs[0], IBV_WC_WR_FLUSH_ERR, 0);
}

xcclResult_t ib_error_detail(void *comm_, xcclNetError_v1 *error)
{
    struct ib_comm *comm = comm_;
    xcclNetError_v1 full = {.cause = xcclNetCauseNone, .peer = comm->peer_text, .text = ""};

    /* Acquire: pairs with ib_comm_fail_code. The service may have the comm, for long; the error
     * needs no claim, for it is written once. */
    if (atomic_load_explicit(&comm->has_failed, memory_order_acquire)) {
        full.cause = (int32_t)comm->cause;
        full.sysErrno = comm->sys_errno;
        full.vendorCode = comm->vendor_code;
        full.text = comm->error_text;
    }
    xccl_net_tell_error(&full, error);
    return xcclSuccess;
}

/* ---- side channel ---- */

/* More of a note. 1: it is whole. */
static int note_read(struct ib_comm *comm)
{
    if (comm->side.in_bytes == sizeof(comm->note))
        return 1; /* it waits for the service */
    kit_side_read(&comm->side, comm->note, sizeof(comm->note));
    if (comm->side.in_bytes == sizeof(comm->note) && comm->served && !comm->is_serviced)
        ib_service_wake(&comm->ctx->service);
    return comm->side.in_bytes == sizeof(comm->note);
}

int ib_comm_listen(struct ib_comm *comm, struct ib_note *note_out)
{
    if (comm->side.has_ended || ++comm->idle % IB_IDLE_TURNS)
        return 0;
    ib_events_look(comm);
    kit_side_write(&comm->side, comm->out);
    if (comm->unsettled)
        ib_failover_move(comm);
    if (!note_read(comm))
        return 0;
    if (kit_side_note(&comm->side, comm->note, IB_NOTE_BYTES) > 0 &&
        ib_note_decode(comm->note, note_out)) {
        if (ib_failover_leaves(comm, note_out))
            return 0; /* it stays where it is */
        kit_side_next(&comm->side, comm->note, IB_NOTE_BYTES);
        return 1;
    }
    kit_side_next(&comm->side, comm->note, IB_NOTE_BYTES);
    ib_comm_fail(comm, xcclNetCauseProtocol,
                 xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                                   "%s sent data that is not a control message of the ib plugin",
                                   comm->peer_text));
    return 0;
}

void ib_comm_tell(struct ib_comm *comm, const struct ib_note *note)
{
    /* A queue pair has one of these under way at a time, and each is answered. */
    if (!kit_side_has_place(&comm->side, comm->out, sizeof(comm->out), IB_NOTE_BYTES)) {
        ib_comm_fail(comm, xcclNetCauseTimeout,
                     xccl_fail_quietly(xcclRemoteError, 0,
                                       "check that host, and the network path to it",
                                       "%s does not read its control messages", comm->peer_text));
        return;
    }
    ib_note_encode(note, comm->out + comm->side.out_bytes);
    kit_side_put(&comm->side, comm->out, IB_NOTE_BYTES);
    kit_side_write(&comm->side, comm->out);
}
