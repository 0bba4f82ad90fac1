/* SPDX-License-Identifier: BSD-3-Clause */
/* The write path: messages above OFI_EAGER_BYTES (of ofi_rxm: what it sends at once itself) are
 * written into the memory of their receive.
 *
 *   receiver                                      sender
 *   irecv n: a receive for message n
 *      note {n, address, key, room} ---------->   kept until message n is sent
 *                               <--------------   isend n: message n, empty, its size beside it
 *                               <==============   writes there; beside each: n and which piece it
 * is message n and all pieces of its size have     the message and all writes are complete: done
 *   come: done
 *
 * A smaller message is message n itself, and its note, if there was one, is forgotten. All of these
 * may overtake each other: notes and writes name the message, the message says how many pieces
 * there are, and a piece that comes twice, or of no receive that is in flight, is an error. A
 * message that is larger than its receive is found by its size, and nothing is written.
 *
 * A sender of small messages may have closed before their receives are posted. So a note that finds
 * nobody is no error: once the peer has left (ofi_control.c) no request waits for its note, and
 * only a message that was to be written fails with a note that was lost.
 *
 * The completion queue holds, besides a message for each request: at the receiver a note and all
 * pieces of each request, for none is written that was not announced; at the sender OFI_REQUESTS
 * receives for notes and OFI_WRITES writes. A sender that is late with its receives for notes
 * leaves them to the provider, as all messages that come early.
 *
 * Notes and writes are posted in isend, irecv and test, never in progress: between a deregMr with
 * requests in flight and the close that must follow, their memory is not named any more.
 * Thread: the comm's. Nothing here allocates, locks or logs, but for create. */
#include "base/alloc.h"
#include "ofi_int.h"

#define NUMBER_MASK 0xffffffu /* of a message's number beside a write */
#define PIECE_BITS  8
#define NO_NOTE     "what is no note of a receive"
/* A message whose note was lost waits for its writes so long: the note may have come all the same.
 */
#define LOST_NS (5 * XCCL_NS_PER_S)

static uint32_t pieces_of(const struct ofi_device *device, size_t bytes)
{
    return (uint32_t)((bytes + device->piece_bytes - 1) / device->piece_bytes);
}

xcclResult_t ofi_write_create(struct ofi_comm *comm)
{
    struct ofi_rma *rma;

    if (!comm->device->piece_bytes)
        return xcclSuccess;
    rma = xccl_calloc_aligned(64, sizeof(*rma));
    if (!rma)
        return xcclSystemError;
    comm->rma = rma;
    rma->idle_notes = comm->is_send ? UINT32_MAX : 0;
    rma->idle_writes = UINT32_MAX;
    for (uint32_t i = 0; i < OFI_REQUESTS; i++) {
        rma->note_ops[i].kind = OFI_NOTE;
        rma->note_ops[i].place = i;
        rma->write_ops[i].kind = OFI_WRITE;
        rma->write_ops[i].place = i;
    }
    return ofi_mem_register(comm, rma->note_bytes, sizeof(rma->note_bytes), 0, &rma->mem);
}

/* Pieces and what is sent at once follow from one number and the provider, so both ends cut alike.
 */
void ofi_write_agree(struct ofi_comm *comm, uint64_t piece_bytes)
{
    size_t eager = comm->fetches ? OFI_RXM_EAGER_BYTES : OFI_EAGER_BYTES;

    comm->writes = piece_bytes && piece_bytes == comm->device->piece_bytes;
    if (!comm->writes)
        return;
    comm->bytes_max = ofi_device_bytes(comm->device);
    comm->eager_max = piece_bytes < eager ? piece_bytes : eager;
}

size_t ofi_write_cq_entries(const struct ofi_device *device)
{
    size_t pieces;

    if (!device->piece_bytes)
        return 0;
    pieces = (size_t)OFI_REQUESTS * pieces_of(device, ofi_device_bytes(device));
    return OFI_REQUESTS + (pieces > OFI_WRITES ? pieces : OFI_WRITES);
}

/* A note that is not kept for longer than its message cannot be taken for one of 2^32 messages
 * later. */
static void forget_note(struct ofi_comm *comm, uint32_t number)
{
    struct ofi_note *note = &comm->rma->notes[number % OFI_WINDOW];

    if (note->number == number)
        note->valid = 0;
}

void ofi_write_begin(struct ofi_comm *comm, struct ofi_request *request, const void *data,
                     size_t bytes, xcclNetMem_t mem)
{
    request->wanted = request->seen = 0;
    request->pieces = request->next = 0;
    request->notice = OFI_NOTICE_NONE;
    request->plain = 0;
    request->lost_ns = 0;
    if (bytes <= comm->eager_max) {
        if (comm->is_send)
            forget_note(comm, request->number);
        return;
    }
    request->data = data;
    request->mem = mem;
    if (comm->is_send) {
        request->pieces = pieces_of(comm->device, bytes);
        request->left += request->pieces;
    } else {
        request->notice = OFI_NOTICE_DUE;
        request->left++;
    }
    comm->rma->waiting++;
}

/* --- the provider's calls; all give -FI_EAGAIN for "not now" --- */

/* Sender: receives for notes, which are all alike. */
static ssize_t post_places(struct ofi_comm *comm)
{
    struct ofi_rma *rma = comm->rma;

    while (rma->idle_notes) {
        uint32_t place = (uint32_t)__builtin_ctz(rma->idle_notes);
        ssize_t err = fi_trecv(comm->end.ep, rma->note_bytes[place], OFI_NOTE_BYTES,
                               ofi_mem_desc(comm, rma->mem), FI_ADDR_UNSPEC, 0, 0,
                               &rma->note_ops[place]);

        if (err)
            return err;
        rma->idle_notes &= ~(1u << place);
    }
    return 0;
}

/* Receiver: the request waits for its note no longer. */
static void withdraw(struct ofi_request *request)
{
    struct ofi_comm *comm = request->comm;
    struct ofi_rma *rma = comm->rma;
    uint32_t bit = 1u << (uint32_t)(request - comm->requests);

    if (request->notice == OFI_NOTICE_DUE) {
        request->notice = OFI_NOTICE_NEEDLESS;
        rma->waiting--;
    } else if (request->notice == OFI_NOTICE_GIVEN && rma->notes_out & bit) {
        rma->notes_out &= ~bit; /* its writes may be on their way yet */
    } else {
        return;
    }
    request->left--;
    ofi_request_settle(request);
}

/* No more notes are given, so the bytes of one that the provider still has stay as they are. */
static void withdraw_all(struct ofi_comm *comm)
{
    for (int i = 0; i < OFI_REQUESTS && (comm->rma->waiting || comm->rma->notes_out); i++) {
        if (comm->requests[i].state == OFI_ACTIVE)
            withdraw(&comm->requests[i]);
    }
    ofi_control_count(comm);
}

/* Its sender may have closed, after a message that needed none; that is told elsewhere. */
static void note_lost(struct ofi_request *request, int err)
{
    request->comm->rma->lost = err;
    request->lost_ns = xccl_clock_ns();
    withdraw(request);
    ofi_control_count(request->comm);
}

static ssize_t post_note(struct ofi_comm *comm, struct ofi_request *request)
{
    struct ofi_rma *rma = comm->rma;
    uint32_t place = (uint32_t)(request - comm->requests);
    struct ofi_note note = {.number = request->number, .room = request->bytes};
    ssize_t err;

    if (request->notice != OFI_NOTICE_DUE)
        return 0;
    /* irecv has looked: it is registered. */
    (void)ofi_mem_remote(comm, request->mem, request->data, &note);
    ofi_note_encode(&note, rma->note_bytes[place]);
    rma->note_ops[place].request = request;
    err = fi_tsend(comm->end.ep, rma->note_bytes[place], OFI_NOTE_BYTES,
                   ofi_mem_desc(comm, rma->mem), comm->end.peer, 0, &rma->note_ops[place]);
    if (err == -FI_EAGAIN)
        return err;
    if (err) {
        note_lost(request, (int)-err);
        return 0;
    }
    request->notice = OFI_NOTICE_GIVEN;
    rma->notes_out |= 1u << place;
    rma->waiting--;
    return 0;
}

static ssize_t post_piece(struct ofi_comm *comm, struct ofi_request *request,
                          const struct ofi_note *note)
{
    struct ofi_rma *rma = comm->rma;
    uint32_t place = (uint32_t)__builtin_ctz(rma->idle_writes);
    size_t piece_bytes = comm->device->piece_bytes, from = request->next * piece_bytes;
    size_t bytes = request->bytes - from < piece_bytes ? request->bytes - from : piece_bytes;
    uint64_t beside = (uint64_t)(request->number & NUMBER_MASK) << PIECE_BITS | request->next;
    ssize_t err;

    rma->write_ops[place].request = request;
    err = fi_writedata(comm->end.ep, request->data + from, bytes, ofi_mem_desc(comm, request->mem),
                       beside, comm->end.peer, note->addr + from, note->key,
                       &rma->write_ops[place]);
    if (err)
        return err;
    rma->idle_writes &= ~(1u << place);
    request->next++;
    return 0;
}

static ssize_t post_pieces(struct ofi_comm *comm, struct ofi_request *request)
{
    const struct ofi_note *note = &comm->rma->notes[request->number % OFI_WINDOW];
    ssize_t err = 0;

    if (request->next == request->pieces || !note->valid || note->number != request->number)
        return 0;
    if (note->room < request->bytes) {
        /* The receiver finds it by the size that it was told. */
        request->left -= request->pieces - request->next;
        request->next = request->pieces;
    }
    while (!err && request->next < request->pieces && comm->rma->idle_writes)
        err = post_piece(comm, request, note);
    if (request->next == request->pieces) {
        comm->rma->waiting--;
        forget_note(comm, request->number);
        ofi_request_settle(request);
    }
    return err;
}

void ofi_write_push(struct ofi_comm *comm)
{
    ssize_t err = 0;

    if (!comm->writes || comm->rc != xcclSuccess)
        return;
    if (!comm->is_send && comm->peer_left) {
        withdraw_all(comm);
        return;
    }
    if (comm->is_send)
        err = post_places(comm);
    for (uint32_t back = OFI_REQUESTS; back && comm->rma->waiting && !err; back--) {
        struct ofi_request *request = &comm->requests[(comm->posted - back) % OFI_REQUESTS];

        if (request->state == OFI_ACTIVE)
            err = comm->is_send ? post_pieces(comm, request) : post_note(comm, request);
    }
    comm->rma->refused = err != 0;
    if (err && err != -FI_EAGAIN)
        ofi_comm_fail_fabric(comm, (int)-err, "writing to", "");
}

/* --- completions --- */

/* 1: the message was sent, and its note serves no more. */
static int is_late(const struct ofi_comm *comm, uint32_t number)
{
    const struct ofi_request *request = &comm->requests[number % OFI_REQUESTS];

    return (int32_t)(number - comm->posted) < 0 &&
           (request->state != OFI_ACTIVE || request->number != number ||
            request->next == request->pieces);
}

static void noted(struct ofi_comm *comm, const struct ofi_op *op, size_t bytes)
{
    struct ofi_rma *rma = comm->rma;
    struct ofi_note note;

    rma->idle_notes |= 1u << op->place;
    if (bytes != OFI_NOTE_BYTES || !ofi_note_decode(rma->note_bytes[op->place], &note)) {
        ofi_request_damaged(comm, NO_NOTE);
        return;
    }
    if ((int32_t)(note.number - comm->posted) >= OFI_REQUESTS) {
        ofi_request_damaged(comm, "a note of a receive that cannot be in flight");
        return;
    }
    if (!is_late(comm, note.number))
        rma->notes[note.number % OFI_WINDOW] = note;
}

void ofi_write_came(struct ofi_comm *comm, uint64_t beside)
{
    uint32_t number = (uint32_t)beside >> PIECE_BITS, piece = beside & ((1u << PIECE_BITS) - 1);
    struct ofi_request *request = &comm->requests[number % OFI_REQUESTS];

    if (request->state != OFI_ACTIVE || request->notice != OFI_NOTICE_GIVEN || request->plain ||
        piece >= OFI_PIECES_MAX || (request->number & NUMBER_MASK) != number ||
        request->seen & 1u << piece || (request->wanted && !(request->wanted & 1u << piece))) {
        ofi_request_damaged(comm, "a write that no receive in flight awaits");
        return;
    }
    request->seen |= 1u << piece;
    ofi_request_settle(request);
}

int ofi_write_completed(struct ofi_comm *comm, const struct fi_cq_data_entry *entry)
{
    struct ofi_op *op = entry->op_context;

    if (op->kind == OFI_MESSAGE)
        return 0;
    if (op->kind == OFI_NOTE && comm->is_send) {
        noted(comm, op, entry->len);
    } else if (op->kind == OFI_NOTE) {
        if (comm->rma->notes_out & 1u << op->place)
            withdraw(op->request);
    } else {
        comm->rma->idle_writes |= 1u << op->place;
        op->request->left--;
        ofi_request_settle(op->request);
    }
    return 1;
}

int ofi_write_failed(struct ofi_comm *comm, const struct fi_cq_err_entry *entry)
{
    const struct ofi_op *op = entry->op_context;

    if (!comm->writes || entry->flags & FI_REMOTE_WRITE || !op || op->kind != OFI_NOTE)
        return 0;
    if (comm->is_send && entry->err != FI_ETRUNC)
        return 0;
    if (comm->is_send)
        ofi_request_damaged(comm, NO_NOTE);
    else if (comm->rma->notes_out & 1u << op->place)
        note_lost(op->request, entry->err);
    return 1;
}

int ofi_write_headed(struct ofi_request *request, size_t bytes)
{
    struct ofi_comm *comm = request->comm;

    if (bytes > request->bytes) {
        ofi_request_truncated(comm, bytes - request->bytes);
        return 0;
    }
    if (request->notice != OFI_NOTICE_NONE)
        request->wanted = (1u << pieces_of(comm->device, bytes)) - 1;
    if (!request->wanted || request->seen & ~request->wanted) {
        ofi_request_damaged(comm, "a size that its writes do not have");
        return 0;
    }
    request->bytes = bytes;
    return 1;
}

int ofi_write_plain(struct ofi_request *request)
{
    if (request->seen) {
        ofi_request_damaged(request->comm, "writes of a message that is not written");
        return 0;
    }
    request->plain = 1;
    if (request->notice == OFI_NOTICE_DUE)
        withdraw(request);
    return 1;
}

void ofi_write_look(struct ofi_comm *comm)
{
    uint64_t now_ns;

    if (!comm->writes || !comm->rma->lost)
        return;
    now_ns = xccl_clock_ns();
    for (int i = 0; i < OFI_REQUESTS; i++) {
        const struct ofi_request *request = &comm->requests[i];

        if (request->state == OFI_ACTIVE && request->lost_ns && request->wanted &&
            now_ns - request->lost_ns >= LOST_NS)
            ofi_comm_fail_fabric(comm, comm->rma->lost, "announcing to", "");
    }
}
