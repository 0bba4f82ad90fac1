/* SPDX-License-Identifier: BSD-3-Clause */
/* Large messages: in pieces over all rails.
 *
 * On the write path (above OFI_EAGER_BYTES, of ofi_rxm what it sends at once itself) they are
 * written into the memory of their receive:
 *
 *   receiver                                      sender
 *   irecv n: a receive for message n
 *      note {n, address, key, room} ---------->   kept until message n is sent
 *                               <--------------   isend n: message n, empty, its size beside it
 *                               <==============   writes there; beside each: n and which piece it
 * is message n and all pieces of its size have     the message and all writes are complete: done
 *   come: done
 *
 * Else, where there are several rails, above OFI_STRIPE_BYTES, they are sent:
 *
 *   irecv n: a receive for message n
 *                               <--------------   isend n: message n, empty, its size beside it
 *   a receive for each piece    <==============   a message for each piece, one a rail
 *
 * Both ends cut alike, by the size, the number of rails and what a write may carry. A piece that is
 * written goes by the rail with the fewest bytes under way that takes it; one that is sent by the
 * rail that its number says, for the receiver must know. Small messages, whole or empty, take the
 * rails in turn.
 *
 * All of these may overtake each other: notes (ofi_note.c) and writes name the message, the message
 * says how many pieces there are, and a piece that comes twice, or of no receive that is in flight,
 * is an error. A message that is larger than its receive is found by its size, and no piece comes.
 *
 * A rail's completion queue holds, besides messages and notes: on the write path at the receiver as
 * many pieces as OFI_REQUESTS receives of the largest message have, for none is written that was
 * not announced; at the sender OFI_WRITES writes; else all pieces of each message under way, for
 * the other rails may have failed.
 *
 * Pieces are posted in isend, irecv and test, never in progress, as notes are.
 * Thread: the comm's. Nothing here allocates, locks or logs, but create. */
#include "base/alloc.h"
#include "ofi_int.h"

#define NUMBER_MASK 0xffffffu /* of a message's number beside a write */
#define PIECE_BITS  8
#define ALIGN_BYTES 4096 /* where pieces meet */
#define SHARES      2u /* of a message that a rail is offered on the write path */

xcclResult_t ofi_piece_create(struct ofi_comm *comm)
{
    struct ofi_pieces *pieces = &comm->pieces;
    uint32_t count = OFI_WINDOW * OFI_RAILS_MAX;

    pieces->idle = UINT32_MAX;
    for (uint32_t i = 0; i < OFI_WRITES; i++) {
        pieces->writes[i].kind = OFI_PIECE;
        pieces->writes[i].place = i;
    }
    if (comm->writes && comm->is_send) {
        pieces->noted = xccl_calloc(OFI_MESSAGES, sizeof(*pieces->noted));
        pieces->targets = xccl_calloc((size_t)OFI_MESSAGES * comm->rail_count,
                                      sizeof(*pieces->targets));
        return pieces->noted && pieces->targets ? xcclSuccess : xcclSystemError;
    }
    if (comm->writes || !comm->cuts)
        return xcclSuccess;
    pieces->sends = xccl_calloc_aligned(64, count * sizeof(*pieces->sends));
    if (!pieces->sends)
        return xcclSystemError;
    for (uint32_t i = 0; i < count; i++)
        pieces->sends[i].kind = OFI_PIECE;
    return xcclSuccess;
}

void ofi_piece_destroy(struct ofi_comm *comm)
{
    xccl_free(comm->pieces.noted);
    xccl_free(comm->pieces.targets);
    xccl_free(comm->pieces.sends);
}

/* Pieces and what is sent at once follow from one number, the rails and the provider, so both ends
 * cut alike. */
void ofi_piece_agree(struct ofi_comm *comm, uint64_t piece_bytes)
{
    size_t eager = comm->fetches ? OFI_RXM_EAGER_BYTES : OFI_EAGER_BYTES;

    comm->writes = piece_bytes && piece_bytes == comm->device->piece_bytes;
    comm->cuts = comm->writes || (comm->rail_count > 1 && comm->tells_size);
    if (comm->writes)
        comm->bytes_max = ofi_device_bytes(comm->device);
    comm->eager_max = comm->writes ? eager : OFI_STRIPE_BYTES;
    if (comm->writes && piece_bytes < eager)
        comm->eager_max = piece_bytes;
}

/* --- how they are cut --- */

static size_t divide(size_t bytes, size_t by)
{
    return (bytes + by - 1) / by;
}

/* All pieces but the last are so long. */
static size_t piece_length(const struct ofi_comm *comm, size_t bytes)
{
    size_t most = comm->writes ? comm->device->piece_bytes : SIZE_MAX, length;
    uint32_t shares = comm->writes ? SHARES * comm->rail_count : comm->rail_count;
    size_t stripes = divide(bytes, OFI_STRIPE_BYTES);

    if (comm->rail_count == 1)
        return most;
    length = divide(bytes, stripes < shares ? stripes : shares);
    length = divide(length, ALIGN_BYTES) * ALIGN_BYTES;
    return length < most ? length : most;
}

uint32_t ofi_piece_count(const struct ofi_comm *comm, size_t bytes)
{
    return (uint32_t)divide(bytes, piece_length(comm, bytes));
}

uint32_t ofi_piece_most(const struct ofi_device *device)
{
    uint32_t shares = device->member_count > 1 ? SHARES * device->member_count : 1;
    uint32_t pieces;

    if (!device->piece_bytes)
        return 0;
    pieces = (uint32_t)divide(ofi_device_bytes(device), device->piece_bytes);
    return pieces < shares ? shares : pieces;
}

size_t ofi_piece_cq_entries(const struct ofi_device *device)
{
    size_t written = (size_t)OFI_REQUESTS * ofi_piece_most(device);
    size_t sent = device->member_count > 1 ? OFI_WINDOW * (size_t)device->member_count : 0;

    return written > sent ? written : sent;
}

/* --- begin --- */

static uint32_t all_of(uint32_t pieces)
{
    return (uint32_t)((1ull << pieces) - 1);
}

/* What is not kept for longer than its message cannot be taken for that of one 2^32 messages later.
 */
static void forget_noted(struct ofi_comm *comm, uint32_t number)
{
    struct ofi_noted *noted = &comm->pieces.noted[number % OFI_MESSAGES];

    if (noted->number == number)
        noted->valid = 0;
}

void ofi_piece_forget(struct ofi_comm *comm, uint32_t number)
{
    if (comm->writes)
        forget_noted(comm, number);
}

void ofi_piece_begin(struct ofi_message *message)
{
    struct ofi_comm *comm = message->comm;

    message->todo = message->wanted = message->seen = message->ways = 0;
    if (!comm->is_send)
        return;
    if (message->bytes <= comm->eager_max) {
        if (comm->writes)
            forget_noted(comm, message->number);
        return;
    }
    message->todo = all_of(ofi_piece_count(comm, message->bytes));
    message->left += (uint32_t)__builtin_popcount(message->todo);
    if (comm->pieces.waiting++ == 0)
        comm->pieces.oldest = comm->posted;
}

/* One that is behind the oldest, for all that is known of that. */
static void wait_again(const struct ofi_message *message)
{
    struct ofi_comm *comm = message->comm;
    uint32_t last = comm->taken - 1, place = (uint32_t)(message - comm->messages);
    uint32_t at = last - (last - place) % OFI_MESSAGES;

    if (comm->pieces.waiting++ == 0 || (int32_t)(at - comm->pieces.oldest) < 0)
        comm->pieces.oldest = at;
}

/* --- the provider's calls; what a rail refuses (-FI_EAGAIN) is in blocked, a bit each --- */

/* The one with the fewest bytes under way, behind the last one chosen where they are alike. */
static uint32_t least_rail(const struct ofi_comm *comm, uint32_t piece, uint32_t blocked)
{
    uint32_t least = OFI_RAILS_MAX;

    for (uint32_t i = 0; i < comm->rail_count; i++) {
        uint32_t at = (piece + i) % comm->rail_count;

        if (!((blocked | comm->failover.failed) >> at & 1) &&
            (least == OFI_RAILS_MAX || comm->rails[at].load < comm->rails[least].load))
            least = at;
    }
    return least;
}

static size_t bytes_of(const struct ofi_message *message, uint32_t piece, size_t *from_out)
{
    size_t length = piece_length(message->comm, message->bytes);

    *from_out = piece * length;
    return message->bytes - *from_out < length ? message->bytes - *from_out : length;
}

static ssize_t write_piece(struct ofi_message *message, uint32_t piece, uint32_t rail_idx,
                           struct ofi_op *op)
{
    struct ofi_comm *comm = message->comm;
    struct ofi_rail *rail = &comm->rails[rail_idx];
    uint32_t at = message->number % OFI_MESSAGES * comm->rail_count + rail_idx;
    const struct ofi_target *target = &comm->pieces.targets[at];
    uint64_t beside = (uint64_t)(message->number & NUMBER_MASK) << PIECE_BITS | piece;
    size_t from, bytes = bytes_of(message, piece, &from);

    op->message = message;
    op->rail = rail_idx;
    op->piece = piece;
    op->load = bytes;
    return fi_writedata(rail->end.ep, message->data + from, bytes, ofi_mem_desc(rail, message->mem),
                        beside ^ comm->beside, rail->end.peer, target->addr + from, target->key,
                        op);
}

static void given(struct ofi_message *message, struct ofi_op *op)
{
    struct ofi_comm *comm = message->comm;

    op->busy = 1;
    message->todo &= ~(1u << op->piece);
    message->ways = (message->ways & ~(3u << 2 * op->piece)) | op->rail << 2 * op->piece;
    if (comm->is_send)
        comm->rails[op->rail].load += op->load;
}

/* What the provider's call says of that rail. 1: it has taken the piece. */
static int is_taken(struct ofi_comm *comm, uint32_t rail, ssize_t err, uint32_t *blocked)
{
    if (err == -FI_EAGAIN)
        *blocked |= 1u << rail;
    else if (err)
        ofi_failover_fail(comm, rail, (int)-err,
                          !comm->is_send ? "receiving from"
                          : comm->writes ? "writing to"
                                         : "sending to",
                          "");
    return !err;
}

static void write_pieces(struct ofi_message *message, uint32_t *blocked)
{
    struct ofi_comm *comm = message->comm;
    struct ofi_pieces *pieces = &comm->pieces;

    while (message->todo && pieces->idle && comm->rc == xcclSuccess) {
        uint32_t piece = (uint32_t)__builtin_ctz(message->todo);
        uint32_t rail = least_rail(comm, message->number + piece, *blocked);
        struct ofi_op *op = &pieces->writes[__builtin_ctz(pieces->idle)];

        if (rail == OFI_RAILS_MAX)
            return;
        if (!is_taken(comm, rail, write_piece(message, piece, rail, op), blocked))
            continue;
        pieces->idle &= ~(1u << op->place);
        given(message, op);
    }
}

static ssize_t send_piece(struct ofi_message *message, struct ofi_op *op)
{
    struct ofi_rail *rail = &message->comm->rails[op->rail];
    uint64_t tag = (OFI_TAG_PIECE | (message->number & OFI_TAG_NUMBER) |
                    (uint64_t)op->piece << OFI_TAG_SHIFT) ^
                   message->comm->secret;
    void *desc = ofi_mem_desc(rail, message->mem);
    size_t from, bytes = bytes_of(message, op->piece, &from);

    op->message = message;
    op->load = bytes;
    if (message->comm->is_send)
        return fi_tsend(rail->end.ep, message->data + from, bytes, desc, rail->end.peer, tag, op);
    return fi_trecv(rail->end.ep, (void *)(uintptr_t)(message->data + from), bytes, desc,
                    FI_ADDR_UNSPEC, tag, 0, op);
}

/* One a rail. */
static void send_pieces(struct ofi_message *message, uint32_t *blocked)
{
    struct ofi_comm *comm = message->comm;

    for (uint32_t piece = 0; message->todo >> piece && comm->rc == xcclSuccess; piece++) {
        struct ofi_op *op = &comm->pieces.sends[message->op * OFI_RAILS_MAX + piece];

        if (!(message->todo >> piece & 1))
            continue;
        op->piece = piece;
        op->rail = ofi_failover_home(comm, message->number + piece);
        if (op->rail == OFI_RAILS_MAX || *blocked >> op->rail & 1)
            continue;
        if (is_taken(comm, op->rail, send_piece(message, op), blocked))
            given(message, op);
    }
}

static void give(struct ofi_message *message, uint32_t *blocked)
{
    struct ofi_comm *comm = message->comm;
    const struct ofi_noted *noted;

    if (!comm->writes) {
        if (!comm->is_send && ofi_request_too_late(comm, message))
            return;
        send_pieces(message, blocked);
    } else {
        noted = &comm->pieces.noted[message->number % OFI_MESSAGES];
        if (!noted->valid || noted->number != message->number)
            return;
        if (noted->room < message->bytes) {
            /* The receiver finds it by the size that it was told. */
            message->left -= (uint32_t)__builtin_popcount(message->todo);
            message->todo = 0;
        }
        write_pieces(message, blocked);
    }
    if (message->todo)
        return;
    comm->pieces.waiting--;
    if (!comm->failover.on)
        ofi_piece_forget(comm, message->number);
    ofi_request_settle(message);
}

static int waits(const struct ofi_message *message)
{
    return message->state == OFI_ACTIVE && message->todo;
}

void ofi_piece_push(struct ofi_comm *comm)
{
    struct ofi_pieces *pieces = &comm->pieces;
    uint32_t blocked = 0;

    if (!pieces->waiting || comm->rc != xcclSuccess)
        return;
    if (comm->taken - pieces->oldest > OFI_MESSAGES)
        pieces->oldest = comm->taken - OFI_MESSAGES;
    while (pieces->oldest != comm->taken && !waits(&comm->messages[pieces->oldest % OFI_MESSAGES]))
        pieces->oldest++;
    for (uint32_t at = pieces->oldest;
         at != comm->taken && pieces->waiting && comm->rc == xcclSuccess &&
         blocked != all_of(comm->rail_count);
         at++) {
        if (waits(&comm->messages[at % OFI_MESSAGES]))
            give(&comm->messages[at % OFI_MESSAGES], &blocked);
    }
    if (blocked)
        comm->refused = 1;
}

/* 1: the message was sent, and where it is written to is known already or no more of use. Until it
 * was it has its own number. */
static int is_late(const struct ofi_comm *comm, uint32_t number)
{
    const struct ofi_message *message = &comm->messages[number % OFI_MESSAGES];

    return (int32_t)(number - comm->posted) < 0 && (message->number != number || !waits(message));
}

void ofi_piece_noted(struct ofi_comm *comm, uint32_t number, const struct ofi_part *part)
{
    uint32_t at = number % OFI_MESSAGES;

    if (is_late(comm, number))
        return;
    comm->pieces.noted[at] = (struct ofi_noted){.number = number, .valid = 1, .room = part->room};
    for (uint32_t i = 0; i < comm->rail_count; i++)
        comm->pieces.targets[at * comm->rail_count + i] = part->targets[i];
}

/* --- completions --- */

void ofi_piece_completed(struct ofi_comm *comm, const struct ofi_op *op, size_t bytes)
{
    struct ofi_message *message = op->message;
    struct ofi_rail *rail = &comm->rails[op->rail];

    xccl_net_count_message(&rail->counters, comm->is_send, op->load);
    if (!comm->is_send && bytes != op->load) {
        ofi_request_damaged(comm, "a piece of another size");
        return;
    }
    if (!comm->is_send) {
        message->seen |= 1u << op->piece;
    } else {
        if (comm->writes)
            comm->pieces.idle |= 1u << op->place;
        rail->load -= op->load;
        message->left--;
    }
    ofi_request_settle(message);
}

void ofi_piece_came(struct ofi_comm *comm, uint32_t rail, uint64_t beside)
{
    uint32_t what = (uint32_t)beside ^ comm->beside;
    uint32_t number = what >> PIECE_BITS, piece = what & ((1u << PIECE_BITS) - 1);
    struct ofi_message *message = &comm->messages[comm->by_number[number % OFI_MESSAGES]];

    if (message->state != OFI_ACTIVE || message->bytes <= comm->eager_max ||
        comm->groups[message->group].notice != OFI_NOTICE_GIVEN || piece >= OFI_PIECES_MAX ||
        (message->number & NUMBER_MASK) != number || message->seen & 1u << piece ||
        (message->wanted && !(message->wanted & 1u << piece))) {
        ofi_request_damaged(comm, "a write that no receive in flight awaits");
        return;
    }
    message->seen |= 1u << piece;
    message->ways |= rail << 2 * piece;
    ofi_request_settle(message);
}

/* --- a rail that fails --- */

static void over(struct ofi_comm *comm, struct ofi_op *op, uint32_t rail)
{
    if (!op->busy || op->rail != rail)
        return;
    op->busy = 0;
    if (!comm->is_send)
        return;
    if (comm->writes)
        comm->pieces.idle |= 1u << op->place;
    op->message->left--;
    ofi_request_settle(op->message);
}

void ofi_piece_over(struct ofi_comm *comm, uint32_t rail)
{
    struct ofi_pieces *pieces = &comm->pieces;

    for (uint32_t i = 0; i < OFI_WINDOW * OFI_RAILS_MAX && pieces->sends; i++)
        over(comm, &pieces->sends[i], rail);
    for (uint32_t i = 0; i < OFI_WRITES; i++)
        over(comm, &pieces->writes[i], rail);
}

/* Pieces that have gone by it, or are awaited there, and have not come. */
static uint32_t missed(const struct ofi_message *message, uint32_t rail)
{
    const struct ofi_comm *comm = message->comm;
    uint32_t all = message->wanted, come = message->seen, pieces = 0;

    if (comm->is_send) {
        all = message->bytes > comm->eager_max ? all_of(ofi_piece_count(comm, message->bytes)) : 0;
        come = message->arrived;
    } else if (comm->writes) {
        return 0; /* they come by whatever rail */
    }
    for (uint32_t piece = 0; all >> piece; piece++)
        pieces |= (uint32_t)((message->ways >> 2 * piece & 3) == rail) << piece;
    return pieces & all & ~come & ~message->todo;
}

uint32_t ofi_piece_again(struct ofi_comm *comm, uint32_t rail)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < OFI_MESSAGES && comm->cuts; i++) {
        struct ofi_message *message = &comm->messages[i];
        uint32_t pieces = message->state == OFI_ACTIVE ? missed(message, rail) : 0;

        if (!pieces)
            continue;
        if (!message->todo)
            wait_again(message);
        message->todo |= pieces;
        if (comm->is_send)
            message->left += (uint32_t)__builtin_popcount(pieces);
        sum += (uint32_t)__builtin_popcount(pieces);
    }
    return sum;
}

/* How much a piece was is not known before the message's size. */
void ofi_piece_tally(struct ofi_message *message)
{
    struct ofi_comm *comm = message->comm;

    for (uint32_t piece = 0; comm->writes && message->wanted >> piece; piece++) {
        size_t from, bytes = bytes_of(message, piece, &from);

        xccl_net_count_message(&comm->rails[message->ways >> 2 * piece & 3].counters, 0, bytes);
    }
}

int ofi_piece_headed(struct ofi_message *message, size_t bytes)
{
    struct ofi_comm *comm = message->comm;

    if (bytes > message->bytes) {
        ofi_request_truncated(comm, bytes - message->bytes);
        return 0;
    }
    if (bytes > comm->eager_max)
        message->wanted = all_of(ofi_piece_count(comm, bytes));
    if (!message->wanted || message->seen & ~message->wanted) {
        ofi_request_damaged(comm, "a size that its writes do not have");
        return 0;
    }
    message->bytes = bytes;
    if (comm->writes) {
        ofi_note_missed(&comm->groups[message->group]);
        return 1;
    }
    message->todo = message->wanted;
    /* Sizes come in any order, and so later than those of messages behind. */
    wait_again(message);
    return 1;
}

int ofi_piece_plain(struct ofi_message *message)
{
    struct ofi_comm *comm = message->comm;
    struct ofi_group *group = &comm->groups[message->group];

    if (message->seen) {
        ofi_request_damaged(comm, "writes of a message that is not written");
        return 0;
    }
    if (group->notice == OFI_NOTICE_DUE && group->count == 1 && group->row == OFI_NO_ROW)
        ofi_note_withdraw(group);
    return 1;
}
