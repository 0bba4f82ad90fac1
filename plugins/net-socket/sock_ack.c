/* SPDX-License-Identifier: BSD-3-Clause */
/* Acknowledgements, where a connection has several lines. Each says all anew, so any may be missed:
 *
 *   what of line 0 is used up     every 64 KiB, or at once when a stream carries it
 *   which messages are whole      when a spread one has become so
 *   which are to be sent again    when a chunk of theirs had to be dropped (sock_collect.c)
 *
 * The receiver writes them to the line that carries what line 0 does, and to one line of each other
 * rail, so that they arrive when a rail is lost, also when the receiver makes no more calls. The
 * sender reads the first one as it waits, and the others now and then. An acknowledgement that the
 * kernel takes no room for is left out; the next one says the same and more.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs. */
#include "sock_record.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/wire.h"

#define USED_UP_BYTES ((uint64_t)64 << 10)

static int bit_of(const uint64_t *words, uint32_t number)
{
    return (int)(words[number % SOCK_SENDS / 64] >> (number % 64) & 1);
}

/* ---- sender ---- */

struct ack {
    uint32_t first; /* messages before it are whole */
    uint64_t used; /* bytes of what line 0 carries */
    uint64_t whole[SOCK_SEND_WORDS], again[SOCK_SEND_WORDS]; /* by number */
};

/* 0: it is none, or speaks of what was never sent. */
static int decode(const struct sock_sender *sender, uint8_t bytes[SOCK_ACK_BYTES], struct ack *ack)
{
    const struct sock_scatter *scatter = sender->scatter;
    struct xccl_wire wire = xccl_wire_over(bytes, SOCK_ACK_BYTES);
    uint32_t check = xccl_wire_get_u32(&wire);

    ack->first = xccl_wire_get_u32(&wire);
    ack->used = xccl_wire_get_u64(&wire);
    for (int i = 0; i < SOCK_SEND_WORDS; i++)
        ack->whole[i] = xccl_wire_get_u64(&wire);
    for (int i = 0; i < SOCK_SEND_WORDS; i++)
        ack->again[i] = xccl_wire_get_u64(&wire);
    /* One that has waited on another line may be older than any number of messages. */
    return check == SOCK_ACK_CHECK && ack->used <= scatter->control_end &&
           (int32_t)(sender->posted - ack->first) >= 0;
}

/* One that was overtaken on another line says less than is known. */
static int is_old(const struct sock_scatter *scatter, const struct ack *ack)
{
    return (int32_t)(ack->first - scatter->whole_first) < 0 || ack->used < scatter->control_first;
}

static void apply(struct sock_sender *sender, const struct ack *ack)
{
    struct sock_scatter *scatter = sender->scatter;
    uint32_t first = scatter->whole_first;

    if (is_old(scatter, ack))
        return;
    scatter->control_first = ack->used;
    /* After line 0 was lost less may have been sent anew than has come. */
    if (scatter->control_sent < ack->used)
        sock_control_sent(sender, ack->used);
    sock_control_used(sender);
    /* Older ones have given their place to others, so they are done. */
    if (sender->posted - first > SOCK_SENDS)
        first = sender->posted - SOCK_SENDS;
    for (uint32_t i = first; i != sender->posted; i++) {
        struct sock_send *send = &sender->sends[i % SOCK_SENDS];
        uint32_t behind = i - ack->first; /* huge when it is before */
        int known = behind < SOCK_SENDS;
        int whole = (int32_t)behind < 0 || (known && bit_of(ack->whole, i));

        if (!send->spread || send->whole || send->request.state != SOCK_ACTIVE)
            continue;
        if (whole)
            sock_scatter_whole(sender, send);
        else if (known && bit_of(ack->again, i))
            sock_scatter_again(sender, i);
    }
    scatter->whole_first = ack->first;
}

int sock_ack_read(struct sock_sender *sender, int line)
{
    struct sock_inbox *inbox = &sender->scatter->inboxes[line];
    struct ack ack;

    for (;;) {
        struct iovec iov = {inbox->bytes + inbox->have, SOCK_ACK_BYTES - inbox->have};
        ssize_t got = sock_line_recv(&sender->comm, line, &iov, 1, 0);

        if (got == 0)
            return ESHUTDOWN;
        if (got < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : errno;
        sender->comm.unproven &= ~(1u << line);
        inbox->have += (size_t)got;
        if (inbox->have < SOCK_ACK_BYTES)
            return 0;
        inbox->have = 0;
        if (!decode(sender, inbox->bytes, &ack)) {
            sock_comm_fail(&sender->comm, xcclNetCauseProtocol,
                           xccl_fail_quietly(xcclRemoteError, 0,
                                             "use the same build of XCCL on all ranks",
                                             "%s sent data that is not an acknowledgement",
                                             sender->comm.peer_text));
            return 0;
        }
        apply(sender, &ack);
    }
}

/* ---- receiver ---- */

static void encode(const struct sock_receiver *receiver, uint64_t used,
                   uint8_t bytes_out[SOCK_ACK_BYTES])
{
    const struct sock_collect *collect = receiver->collect;
    struct xccl_wire wire = xccl_wire_over(bytes_out, SOCK_ACK_BYTES);

    xccl_wire_put_u32(&wire, SOCK_ACK_CHECK);
    xccl_wire_put_u32(&wire, collect->whole_first);
    xccl_wire_put_u64(&wire, used);
    for (int i = 0; i < SOCK_SEND_WORDS; i++)
        xccl_wire_put_u64(&wire, collect->whole[i]);
    for (int i = 0; i < SOCK_SEND_WORDS; i++)
        xccl_wire_put_u64(&wire, collect->again[i]);
}

/* What the kernel takes; the rest of one that it has begun comes before the next. 0: no room. */
static int push(struct sock_receiver *receiver, int line)
{
    struct sock_outbox *outbox = &receiver->collect->outboxes[line];

    while (outbox->left > 0) {
        const struct iovec iov = {outbox->bytes + SOCK_ACK_BYTES - outbox->left, outbox->left};
        ssize_t sent = sock_line_send(&receiver->comm, line, &iov, 1, 0);

        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            outbox->left = 0; /* reading will tell */
        if (sent < 0)
            return 0;
        outbox->left -= (size_t)sent;
    }
    return 1;
}

/* 0: it could not be written, or not yet. */
static int write_to(struct sock_receiver *receiver, int line, uint64_t used)
{
    struct sock_outbox *outbox = &receiver->collect->outboxes[line];

    if (!push(receiver, line))
        return 0;
    encode(receiver, used, outbox->bytes);
    outbox->left = SOCK_ACK_BYTES;
    if (push(receiver, line))
        return 1;
    if (outbox->left == SOCK_ACK_BYTES && !sock_line_sealed(&receiver->comm, line))
        outbox->left = 0; /* nothing of it has gone: a newer one will be better */
    return 0;
}

void sock_ack_prove(struct sock_receiver *receiver, int line)
{
    (void)write_to(receiver, line, receiver->collect->control_read - sock_recv_staged(receiver));
}

/* The lowest line of a rail that is not lost; -1: none. */
static int line_of_rail(const struct sock_comm *comm, int rail)
{
    for (int i = 0; i < comm->line_count; i++) {
        if (comm->lines[i].fd >= 0 && sock_rail_of(i, comm->rail_count) == rail)
            return i;
    }
    return -1;
}

void sock_ack_write(struct sock_receiver *receiver)
{
    struct sock_collect *collect = receiver->collect;
    const struct sock_comm *comm = &receiver->comm;
    uint64_t used = collect->control_read - sock_recv_staged(receiver);
    /* With several rails a small send is not done before: see sock_control_used. */
    uint64_t step = collect->control == 0 && comm->rail_count == 1 ? USED_UP_BYTES : 1;
    int all = collect->ack_due || collect->control > 0 ||
              used - collect->acked_all >= USED_UP_BYTES || comm->lines[0].fd < 0;
    int control = comm->lines[collect->control].fd >= 0 ? collect->control : -1;
    int written = 0;

    if (!collect->ack_due && used - collect->acked_bytes < step)
        return;
    if (control >= 0)
        written |= write_to(receiver, control, used);
    for (int i = 0; i < comm->line_count && all; i++) {
        int first = line_of_rail(comm, sock_rail_of(i, comm->rail_count)) == i;

        /* After a loss another line may be cut as well, and this end may never be called again to
         * see that. */
        if (comm->lines[i].fd >= 0 && i != control &&
            (first || (collect->copies && collect->ack_due) || !written))
            written |= write_to(receiver, i, used);
    }
    if (!written)
        return;
    collect->ack_due = 0;
    collect->acked_bytes = used;
    if (all)
        collect->acked_all = used;
}
