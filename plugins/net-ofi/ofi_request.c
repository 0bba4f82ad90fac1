/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages: a send, or one part of a receive, is one call of the provider, whose tag is the
 * message's number, so messages and completions may come in any order; what a large one takes
 * besides is in ofi_piece.c. What the provider does not take now waits, in the order of posting.
 *
 *   FREE --isend, irecv--> TAKEN --> MATCHED --> ACTIVE --completion--> DONE --test--> FREE
 *                      (its number is known)  (the provider has it)
 *
 * A sender is never more than OFI_WINDOW messages ahead of what the receiver has counted: more
 * would pile up in the receiver's memory. So a receiver needs no more receives with the provider.
 * Messages take the rails in turn, by their numbers, for the receiver must know where to await
 * them.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs. */
#include <errno.h>
#include <string.h>

#include "ofi_int.h"

#define LOOK_POLLS   64 /* without a completion, before the control connection is looked at */
#define ROOM_POLLS   4 /* the same of a sender that may not send before it is told */
#define QUIET_NS     (100 * XCCL_NS_PER_MS) /* of one whose peer has left, until it is over */
#define OWED_NS      (5 * XCCL_NS_PER_S)
#define PROVIDER_MAX 256 /* bytes of a provider's text */
#define FETCH_BYTES  1024 /* no provider fetches a message that is not larger */

void ofi_request_truncated(struct ofi_comm *comm, size_t over)
{
    ofi_comm_fail(
        comm, xcclNetCauseProtocol,
        xccl_fail_quietly(xcclInvalidUsage, 0, "make the sizes of both ends equal",
                          "a message of %s is larger than its receive by %zu bytes or more",
                          comm->peer_text, over));
}

void ofi_request_damaged(struct ofi_comm *comm, const char *what)
{
    ofi_comm_fail(comm, xcclNetCauseProtocol,
                  xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                                    "%s sends %s", comm->peer_text, what));
}

void ofi_request_less(struct ofi_group *group)
{
    if (--group->left)
        return;
    group->state = OFI_DONE;
    group->comm->ready++;
    group->comm->notes.pieces -= group->pieces;
    group->comm->notes.lost &= ~(1u << (uint32_t)(group - group->comm->groups));
}

static int is_first(const struct ofi_message *message)
{
    const struct ofi_comm *comm = message->comm;

    return message >= comm->first && message < comm->first + OFI_RAILS_MAX;
}

static int is_come(const struct ofi_comm *comm, uint32_t number)
{
    const struct ofi_message *message = &comm->messages[comm->by_number[number % OFI_MESSAGES]];

    return message->number == number && message->state == OFI_DONE;
}

/* Receiver, where rails may fail. */
static void move_front(struct ofi_comm *comm)
{
    while ((int32_t)(comm->front - comm->posted) < 0 && is_come(comm, comm->front))
        comm->front++;
}

static void arrived(struct ofi_message *message)
{
    struct ofi_comm *comm = message->comm;
    struct ofi_group *group = &comm->groups[message->group];

    ofi_piece_tally(message);
    if (comm->failover.on && group->row != OFI_NO_ROW) {
        move_front(comm);
        if ((int32_t)(message->number - comm->front) >= 0)
            ofi_failover_tell(comm, message->number);
    }
    ofi_request_less(group);
}

void ofi_request_settle(struct ofi_message *message)
{
    struct ofi_comm *comm = message->comm;

    if (message->left || message->seen != message->wanted)
        return;
    message->state = OFI_DONE;
    comm->idle |= 1ull << message->op;
    comm->idle_polls = 0;
    comm->settled = 0;
    if (comm->peer_left || comm->match.misfit)
        comm->left_ns = xccl_clock_ns();
    if (is_first(message)) {
        comm->proved |= 1u << (message - comm->first);
        comm->moved = comm->front = comm->proved == (1u << comm->rail_count) - 1;
        /* Both know, and what is said now not all control connections would carry. */
        if (comm->failover.on)
            comm->counted = comm->moved;
        return;
    }
    comm->moved++;
    xccl_net_count_message(&comm->counters, comm->is_send, message->bytes);
    if (comm->is_send)
        comm->ready++;
    else
        arrived(message);
}

/* The size comes beside the data, too, for ofi_rxd cuts a message that is too large in silence.
 * 0: the comm has failed. */
static int came(struct ofi_message *message, const struct fi_cq_tagged_entry *entry)
{
    struct ofi_comm *comm = message->comm;
    int is_told = (entry->flags & FI_REMOTE_CQ_DATA) != 0;

    if (comm->cuts && !is_told) {
        ofi_request_damaged(comm, "a message without its size");
        return 0;
    }
    if (comm->cuts && entry->data & OFI_IN_PIECES)
        return ofi_piece_headed(message, entry->data & ~(uint64_t)OFI_IN_PIECES);
    if (is_told && entry->data > message->bytes) {
        ofi_request_truncated(comm, entry->data - message->bytes);
        return 0;
    }
    message->bytes = entry->len;
    return !comm->cuts || is_first(message) || ofi_piece_plain(message);
}

/* 0: the comm has failed, or ends in time: the message is never done. */
static int received(struct ofi_message *message, const struct fi_cq_tagged_entry *entry)
{
    struct ofi_comm *comm = message->comm;
    struct ofi_message *own = message;

    if (comm->match.guess == message)
        own = ofi_group_came(message, (uint32_t)((entry->tag ^ comm->secret) >> OFI_TAG_SHIFT),
                             entry->len);
    if (!own || !came(own, entry))
        return 0;
    own->left--;
    ofi_request_settle(own);
    if (comm->match.by_row)
        ofi_group_look(comm, own);
    return 1;
}

static void message_completed(struct ofi_comm *comm, const struct ofi_op *op,
                              const struct fi_cq_tagged_entry *entry)
{
    struct ofi_rail *rail = &comm->rails[op->rail];

    if (!is_first(op->message))
        xccl_net_count_message(&rail->counters, comm->is_send,
                               comm->is_send ? op->load : entry->len);
    if (!comm->is_send) {
        (void)received(op->message, entry);
        return;
    }
    rail->load -= op->load;
    op->message->left--;
    ofi_request_settle(op->message);
}

static void completed(struct ofi_comm *comm, uint32_t rail, const struct fi_cq_tagged_entry *entry)
{
    struct ofi_op *op = entry->op_context;

    /* It has no context of ours. */
    if (entry->flags & FI_REMOTE_WRITE) {
        if (comm->writes && !comm->is_send)
            ofi_piece_came(comm, rail, entry->data);
        else
            ofi_request_damaged(comm, "a write that nobody awaits");
        return;
    }
    op->busy = 0;
    switch (op->kind) {
    case OFI_MESSAGE:
        message_completed(comm, op, entry);
        break;
    case OFI_NOTE:
        ofi_note_completed(comm, op, entry->len);
        break;
    case OFI_PIECE:
        ofi_piece_completed(comm, op, entry->len);
        break;
    case OFI_FLUSH:
        ofi_flush_completed(comm, op);
        break;
    }
}

static const char *doing(const struct ofi_comm *comm)
{
    return comm->is_send ? "sending to" : "receiving from";
}

static void poll_error(struct ofi_comm *comm, uint32_t idx)
{
    struct ofi_rail *rail = &comm->rails[idx];
    struct fi_cq_err_entry entry;
    char text[PROVIDER_MAX] = "", data[64];
    ssize_t got;

    memset(&entry, 0, sizeof(entry));
    entry.err_data = data;
    entry.err_data_size = sizeof(data);
    got = fi_cq_readerr(rail->end.cq, &entry, 0);
    if (got == -FI_EAGAIN)
        return;
    if (got < 0) {
        ofi_failover_fail(comm, idx, (int)-got, "reading an error", "");
        return;
    }
    if (ofi_note_failed(comm, &entry))
        return;
    if (entry.err == FI_ETRUNC) {
        ofi_request_truncated(comm, entry.olen);
        return;
    }
    fi_cq_strerror(rail->end.cq, entry.prov_errno, entry.err_data, text, sizeof(text));
    if (ofi_flush_failed(comm, idx, &entry, text))
        return;
    comm->vendor = entry.prov_errno;
    ofi_failover_fail(comm, idx, entry.err, doing(comm), text);
}

/* How long nothing may come of a peer that has left until it is over: what it had sent may be in
 * the network's buffers yet, and what it says has left it is worth a longer wait. To a sender it
 * has sent nothing but what completes the sends of what it has received, and that goes another way
 * than the word that it has left, which may overtake. */
static int64_t patience_ns(const struct ofi_comm *comm)
{
    /* A sender whose message has no part waits until those before it are counted. */
    if (comm->is_send && !comm->peer_left)
        return comm->counted != comm->posted ? OWED_NS : 0;
    if (comm->is_send)
        return comm->moved != comm->posted ? QUIET_NS : 0;
    if (ofi_flush_is_under_way(comm))
        return OWED_NS;
    return comm->peer_left == 1 && (int32_t)(comm->goodbye - comm->moved) > 0 ? OWED_NS : QUIET_NS;
}

static void misfit(struct ofi_comm *comm)
{
    ofi_comm_fail(comm, xcclNetCauseProtocol,
                  xccl_fail_quietly(xcclInvalidUsage, 0, "post receives with the tags of the sends",
                                    "%s %s a message with tag %u%s", comm->peer_text,
                                    comm->is_send ? "has no receive for" : "sends",
                                    comm->match.misfit_tag,
                                    comm->is_send ? "" : ", for which there is no receive"));
}

static void look_left(struct ofi_comm *comm)
{
    int silent = kit_side_is_dark(comm->sys_errno);

    if ((!comm->peer_left && !comm->match.misfit) || comm->rc != xcclSuccess ||
        (int64_t)(xccl_clock_ns() - comm->left_ns) < patience_ns(comm))
        return;
    if (comm->match.misfit) {
        misfit(comm);
        return;
    }
    ofi_comm_fail(
        comm, silent ? xcclNetCauseTimeout : xcclNetCausePeerGone,
        xccl_fail_quietly(xcclRemoteError, 0,
                          silent ? "check whether that host and the network path to it are up"
                                 : "see the first error of that process",
                          "connection %s %s on %s: %s", comm->is_send ? "to" : "from",
                          comm->peer_text, comm->device->name,
                          silent ? "its host no longer answers"
                                 : "the peer has closed it or has ended"));
}

ssize_t ofi_request_poll_rail(struct ofi_comm *comm, uint32_t idx)
{
    struct fi_cq_tagged_entry entries[OFI_POLL_ENTRIES];
    struct ofi_rail *rail = &comm->rails[idx];
    ssize_t got = fi_cq_read(rail->end.cq, entries, OFI_POLL_ENTRIES);

    for (ssize_t i = 0; i < got; i++)
        completed(comm, idx, &entries[i]);
    if (got == -FI_EAVAIL)
        poll_error(comm, idx);
    else if (got < 0 && got != -FI_EAGAIN)
        ofi_failover_fail(comm, idx, (int)-got, "waiting for", "");
    return got == -FI_EAGAIN ? 0 : got;
}

/* Receiver, where rails may fail: the sender is told at once. */
static void count_front(struct ofi_comm *comm)
{
    move_front(comm);
    ofi_control_count(comm);
}

/* 1: a sender waits to be told of what has left. */
static int waits_for_count(const struct ofi_comm *comm)
{
    return comm->failover.on && comm->is_send && comm->counted != comm->posted &&
           comm->idle_polls % ROOM_POLLS == 0;
}

void ofi_request_poll(struct ofi_comm *comm)
{
    ssize_t got = 0;

    for (uint32_t i = 0; i < comm->rail_count; i++) {
        ssize_t one = comm->rails[i].end.cq ? ofi_request_poll_rail(comm, i) : 0;

        got += one > 0 ? one : 0;
    }
    if (comm->failover.on) {
        if (!comm->is_send)
            count_front(comm);
        ofi_failover_move(comm);
    } else if (got > 0 && !comm->is_send) {
        ofi_control_count(comm);
    }
    if (got > 0)
        return;
    comm->idle_polls++;
    /* Who sleeps asks seldom, and may have been woken by the control connection. */
    if ((comm->idle_polls % LOOK_POLLS == 0 || waits_for_count(comm) ||
         (comm->sleep.on && !ofi_wait_asks(comm))) &&
        comm->rc == xcclSuccess) {
        ofi_control_look(comm);
        look_left(comm);
        ofi_note_look(comm);
        (void)kit_silent_look(comm->ctx->log);
    }
}

void ofi_request_init(struct ofi_comm *comm)
{
    for (uint32_t i = 0; i < OFI_RAILS_MAX; i++) {
        comm->first[i].comm = comm;
        comm->first[i].data = (const uint8_t *)&comm->probe[i];
        comm->first[i].bytes = sizeof(comm->probe[i]);
    }
    comm->idle = UINT64_MAX;
    for (uint32_t i = 0; i < OFI_WINDOW; i++)
        comm->ops[i].place = i;
    for (uint32_t i = 0; i < OFI_MESSAGES; i++)
        comm->messages[i].comm = comm;
    for (uint32_t i = 0; i < OFI_REQUESTS; i++)
        comm->groups[i].comm = comm;
}

/* --- what waits for the provider --- */

static ssize_t post(const struct ofi_message *message, struct ofi_op *op)
{
    struct ofi_comm *comm = message->comm;
    struct ofi_rail *rail = &comm->rails[op->rail];
    uint64_t ignore, tag = ofi_group_tag(message, &ignore), beside = message->bytes;
    const void *data = message->data;
    size_t bytes = message->bytes;
    void *desc;

    if (comm->cuts && bytes > comm->eager_max) {
        beside = OFI_IN_PIECES | bytes;
        bytes = comm->is_send ? 0 : comm->eager_max;
    }
    op->load = bytes;
    desc = ofi_mem_desc(rail, bytes ? message->mem : comm->probe_mem);
    if (bytes == 0)
        data = comm->probe;
    if (comm->is_send && comm->tells_size)
        return fi_tsenddata(rail->end.ep, data, bytes, desc, beside, rail->end.peer, tag, op);
    if (comm->is_send)
        return fi_tsend(rail->end.ep, data, bytes, desc, rail->end.peer, tag, op);
    return fi_trecv(rail->end.ep, (void *)(uintptr_t)data, bytes, desc, FI_ADDR_UNSPEC, tag, ignore,
                    op);
}

/* 0: started; -FI_EAGAIN: not now. */
static ssize_t try_start(struct ofi_message *message, uint32_t rail)
{
    struct ofi_comm *comm = message->comm;
    struct ofi_op *op = &comm->ops[__builtin_ctzll(comm->idle)];
    ssize_t err;

    op->message = message;
    op->rail = rail;
    err = post(message, op);
    if (err)
        return err;
    comm->idle &= ~(1ull << op->place);
    op->busy = 1;
    message->op = op->place;
    message->state = OFI_ACTIVE;
    message->left = 1;
    if (comm->is_send)
        comm->rails[rail].load += op->load;
    if (comm->is_send && comm->failover.on && !is_first(message)) {
        message->left++; /* until it is counted */
        message->arrived = 0;
        comm->by_number[message->number % OFI_MESSAGES] = (uint8_t)(message - comm->messages);
    }
    if (comm->cuts && !is_first(message))
        ofi_piece_begin(message);
    return 0;
}

/* ofi_rxm only announces a large message, and fetches it when its receive is posted; where the
 * connection has ended in between it crashes (1.17). So a receive that may be of such a message is
 * not posted once the peer has left without that message having left it: then there is none. Of a
 * row that is so for all parts, as nobody knows which message each one is for. */
int ofi_request_too_late(struct ofi_comm *comm, const struct ofi_message *message)
{
    const struct ofi_group *group = &comm->groups[message->group];
    uint32_t last = group->row == OFI_NO_ROW ? message->number : group->first + group->count - 1;
    size_t bytes = message->bytes;

    if (comm->cuts && bytes > comm->eager_max)
        bytes = comm->eager_max;
    if (!comm->fetches || bytes <= FETCH_BYTES)
        return 0;
    ofi_control_look(comm);
    return comm->peer_left == 2 || (comm->peer_left && (int32_t)(last - comm->goodbye) >= 0);
}

static int has_room(struct ofi_comm *comm)
{
    if (!comm->is_send || comm->posted - comm->counted < OFI_WINDOW)
        return 1;
    if (comm->idle_polls % ROOM_POLLS == 0)
        ofi_control_look(comm);
    return comm->posted - comm->counted < OFI_WINDOW;
}

static void start_all(struct ofi_comm *comm)
{
    uint32_t rail = 0;
    ssize_t err = 0;

    if (comm->match.guess)
        ofi_group_move(comm);
    while (comm->posted != comm->taken && !err && comm->rc == xcclSuccess) {
        struct ofi_message *message;

        if (!comm->idle || !has_room(comm) || (comm->in_order && comm->pieces.waiting))
            break;
        message = ofi_group_next(comm);
        if (!message || (!comm->is_send && ofi_request_too_late(comm, message)))
            break;
        rail = ofi_failover_home(comm, message->number);
        if (rail == OFI_RAILS_MAX)
            break;
        err = try_start(message, rail);
        if (!err)
            comm->posted++;
    }
    if (err == -FI_EAGAIN)
        comm->refused = 1;
    else if (err)
        ofi_failover_fail(comm, rail, (int)-err, doing(comm), "");
}

/* --- a rail that fails --- */

/* The receiver has all of it. */
static void count_message(struct ofi_message *message)
{
    message->arrived = OFI_HAS_ALL;
    ofi_piece_forget(message->comm, message->number);
    message->left--;
    ofi_request_settle(message);
}

/* A message that is under way, and not counted; NULL: there is none (any more). */
static struct ofi_message *uncounted(struct ofi_comm *comm, uint32_t number)
{
    struct ofi_message *message = &comm->messages[comm->by_number[number % OFI_MESSAGES]];

    return message->state == OFI_ACTIVE && message->number == number &&
                   message->arrived != OFI_HAS_ALL
               ? message
               : NULL;
}

void ofi_request_counted(struct ofi_comm *comm, uint32_t end)
{
    for (uint32_t number = comm->counted; number != end; number++) {
        struct ofi_message *message = uncounted(comm, number);

        if (message)
            count_message(message);
    }
}

void ofi_request_arrived(struct ofi_comm *comm, uint32_t number, uint32_t has)
{
    struct ofi_message *message = uncounted(comm, number);

    if (!message)
        return;
    message->arrived |= has;
    if (message->arrived == OFI_HAS_ALL)
        count_message(message);
}

void ofi_request_over(struct ofi_comm *comm, uint32_t rail)
{
    for (uint32_t i = 0; i < OFI_WINDOW; i++) {
        struct ofi_op *op = &comm->ops[i];

        if (!op->busy || op->rail != rail)
            continue;
        op->busy = 0;
        /* Message 0 proves nothing more of a rail that is out. */
        if (!comm->is_send && !is_first(op->message))
            continue;
        op->message->left--;
        ofi_request_settle(op->message);
    }
}

/* 1: what the operation was for has not come; a receiver's waits for that, and for nothing else. */
static int is_missed(const struct ofi_comm *comm, const struct ofi_op *op)
{
    const struct ofi_message *message = op->message;

    if (comm->idle >> op->place & 1 || message->state != OFI_ACTIVE || message->op != op->place)
        return 0;
    return comm->is_send ? !(message->arrived & OFI_HAS_HEAD) : message->left != 0;
}

uint32_t ofi_request_again(struct ofi_comm *comm, uint32_t rail)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < OFI_WINDOW; i++) {
        struct ofi_op *op = &comm->ops[i];

        if (op->rail != rail || comm->failover.again >> i & 1 || !is_missed(comm, op))
            continue;
        comm->failover.again |= 1ull << i;
        if (comm->is_send)
            op->message->left++;
        sum++;
    }
    return sum;
}

uint32_t ofi_request_has(const struct ofi_comm *comm, uint32_t number)
{
    const struct ofi_message *message = &comm->messages[comm->by_number[number % OFI_MESSAGES]];

    if (is_come(comm, number))
        return OFI_HAS_ALL;
    if (message->number != number || message->state != OFI_ACTIVE)
        return 0;
    return (message->left ? 0 : OFI_HAS_HEAD) | message->seen;
}

/* What is to be given once more, by the rail that stands in. */
static void start_again(struct ofi_comm *comm)
{
    uint64_t left = comm->failover.again;

    for (; left && comm->rc == xcclSuccess; left &= left - 1) {
        struct ofi_op *op = &comm->ops[__builtin_ctzll(left)];
        uint32_t rail;
        ssize_t err;

        if (!comm->is_send && ofi_request_too_late(comm, op->message))
            return;
        rail = ofi_failover_home(comm, op->message->number);
        if (rail == OFI_RAILS_MAX)
            continue;
        op->rail = rail;
        err = post(op->message, op);
        if (err == -FI_EAGAIN)
            comm->refused = 1;
        else if (err)
            ofi_failover_fail(comm, rail, (int)-err, doing(comm), "");
        if (err)
            continue;
        op->busy = 1;
        comm->failover.again &= ~(1ull << op->place);
        if (comm->is_send)
            comm->rails[rail].load += op->load;
    }
}

/* Gives the provider all that waits for it; nothing for a peer that has left, from whom completions
 * alone may come. */
static void push(struct ofi_comm *comm)
{
    comm->refused = 0;
    if (comm->is_send && comm->peer_left)
        return;
    if (comm->failover.again)
        start_again(comm);
    start_all(comm);
    ofi_note_push(comm);
    ofi_piece_push(comm);
    ofi_flush_push(comm);
}

uint32_t ofi_request_left(const struct ofi_comm *comm)
{
    for (uint32_t back = OFI_MESSAGES; back > 0; back--) {
        uint32_t at = comm->taken - back;
        enum ofi_state state = comm->messages[at % OFI_MESSAGES].state;

        if (state != OFI_FREE && state != OFI_DONE)
            return at;
    }
    return comm->taken;
}

static void move(struct ofi_comm *comm)
{
    ofi_request_poll(comm);
    push(comm);
    ofi_wait_arm(comm);
}

/* The caller has as much in flight as it may. */
static xcclResult_t busy(struct ofi_comm *comm, xcclNetRequest_t *request_out)
{
    move(comm);
    if (comm->rc != xcclSuccess)
        return ofi_comm_error(comm);
    xccl_net_count(&comm->counters.busy_count, 1);
    *request_out = NULL;
    return xcclSuccess;
}

static struct ofi_message *take(struct ofi_comm *comm, const void *data, size_t bytes, uint32_t tag,
                                xcclNetMem_t mem)
{
    struct ofi_message *message = &comm->messages[comm->taken++ % OFI_MESSAGES];

    message->state = OFI_TAKEN;
    message->data = data;
    message->bytes = bytes;
    message->tag = tag;
    message->mem = mem;
    return message;
}

xcclResult_t ofi_isend(xcclNetSendComm_t comm_, const void *data, size_t bytes, uint32_t tag,
                       xcclNetMem_t mem, xcclNetRequest_t *request_out)
{
    struct ofi_comm *comm = comm_;
    struct ofi_message *message;

    if (comm->rc != xcclSuccess)
        return ofi_comm_error(comm);
    if (bytes > comm->bytes_max)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "split the message",
                                 "a message of %zu bytes is too large: at most %zu are possible",
                                 bytes, comm->bytes_max);
    if (comm->messages[comm->taken % OFI_MESSAGES].state != OFI_FREE)
        return busy(comm, request_out);
    message = take(comm, data, bytes, tag, mem);
    push(comm);
    if (comm->rc != xcclSuccess)
        return ofi_comm_error(comm);
    *request_out = message;
    return xcclSuccess;
}

/* A receive may be larger than any message. */
static size_t room_of(const struct ofi_comm *comm, size_t bytes)
{
    return bytes < comm->bytes_max ? bytes : comm->bytes_max;
}

static xcclResult_t check_receives(const struct ofi_comm *comm, int count, void *const *data,
                                   const size_t *bytes, const xcclNetMem_t *mems)
{
    struct ofi_target target;
    int most = comm->tells_tag ? OFI_PARTS : 1;

    if (count < 1 || count > most)
        return xccl_fail_quietly(
            xcclInvalidArgument, 0,
            ofi_device_parts(comm->device) > most ? "use the same libfabric on all hosts" : NULL,
            "cannot post %d receives together: at most %d are possible", count, most);
    for (int i = 0; i < count && comm->writes; i++) {
        size_t room = room_of(comm, bytes[i]);
        uint32_t rail = ofi_failover_next(comm, 0);

        if (room > comm->eager_max && rail != OFI_RAILS_MAX &&
            !ofi_mem_remote(&comm->rails[rail], mems ? mems[i] : NULL, data[i], &target))
            return xccl_fail_quietly(xcclInvalidArgument, 0, "register the buffer",
                                     "a receive buffer of %zu bytes is not registered", room);
    }
    return xcclSuccess;
}

xcclResult_t ofi_irecv(xcclNetRecvComm_t comm_, int count, void *const *data, const size_t *bytes,
                       const uint32_t *tags, const xcclNetMem_t *mems,
                       xcclNetRequest_t *request_out)
{
    struct ofi_comm *comm = comm_;
    uint32_t place = comm->groups_taken % OFI_REQUESTS;
    struct ofi_group *group = &comm->groups[place];
    xcclResult_t rc;

    if (comm->rc != xcclSuccess)
        return ofi_comm_error(comm);
    rc = check_receives(comm, count, data, bytes, mems);
    if (rc != xcclSuccess)
        return rc;
    if (group->state != OFI_FREE)
        return busy(comm, request_out);
    *group = (struct ofi_group){.comm = comm,
                                .state = OFI_ACTIVE,
                                .first = comm->taken,
                                .count = (uint32_t)count,
                                .row = OFI_NO_ROW,
                                .left = (uint32_t)count};
    comm->groups_taken++;
    for (int i = 0; i < count; i++)
        take(comm, data[i], room_of(comm, bytes[i]), tags[i], mems ? mems[i] : NULL)->group = place;
    ofi_group_taken(comm, group);
    push(comm);
    if (comm->rc != xcclSuccess)
        return ofi_comm_error(comm);
    *request_out = group;
    return xcclSuccess;
}

xcclResult_t ofi_request_first(struct ofi_comm *comm, int *posted_out)
{
    int waits = 0;

    /* One that is dead may refuse for ever. */
    for (uint32_t i = 0; i < comm->rail_count; i++) {
        struct ofi_message *message = &comm->first[i];
        ssize_t err = 0;

        message->mem = comm->probe_mem;
        if (message->state == OFI_FREE)
            err = try_start(message, i);
        if (err && err != -FI_EAGAIN) {
            ofi_comm_fail_rail(comm, &comm->rails[i], (int)-err, "greeting", "");
            return comm->rc;
        }
        waits |= err != 0;
    }
    *posted_out = !waits;
    if (!waits)
        comm->taken = comm->posted = 1;
    return xcclSuccess;
}

static void sizes_get(const struct ofi_comm *comm, const struct ofi_group *group, size_t *bytes_out)
{
    for (uint32_t i = 0; i < group->count; i++)
        bytes_out[i] = comm->messages[(group->first + i) % OFI_MESSAGES].bytes;
}

xcclResult_t ofi_test(xcclNetRequest_t request, int *done_out, size_t *bytes_out)
{
    struct ofi_comm *comm = *(struct ofi_comm *const *)request;
    struct ofi_message *message = request;
    struct ofi_group *group = request;
    struct ofi_flush *flush = ofi_flush_of(comm, request);
    enum ofi_state *state = flush ? &flush->state : comm->is_send ? &message->state : &group->state;

    if (*state == OFI_FREE)
        return xccl_fail_quietly(xcclInvalidUsage, 0, "do not test a request after it was done",
                                 "a request is tested again after it was done");
    if (*state != OFI_DONE && comm->rc == xcclSuccess)
        move(comm);
    /* What was complete before the comm failed is still complete. */
    if (*state != OFI_DONE && comm->rc != xcclSuccess)
        return ofi_comm_error(comm);
    *done_out = *state == OFI_DONE;
    if (!*done_out)
        return xcclSuccess;
    *state = OFI_FREE;
    comm->ready--;
    if (bytes_out && comm->is_send)
        bytes_out[0] = message->bytes;
    else if (bytes_out && !flush)
        sizes_get(comm, group, bytes_out);
    return xcclSuccess;
}
