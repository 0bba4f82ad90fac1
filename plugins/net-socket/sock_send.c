/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends of a comm. Each message is a 16-byte header and its payload on line 0, in the order of
 * posting. Where there are streams, line 0 has headers and small payloads only, through a ring that
 * keeps them (sock_control.c), and larger payloads are on the streams (sock_scatter.c). Where there
 * are none, zeroes between header and payload make the length of a large message a round one, with
 * which the kernel is quicker; the README has figures.
 *
 *   FREE --isend--> ACTIVE --all bytes with the kernel--> DONE --test--> FREE
 *                          --spread: the receiver has acknowledged it--^
 *
 * A send is written by its isend when test has taken back all sends before it: alone it costs no
 * wait. Otherwise the caller is posting a row, and the row leaves in few writes: at the next test
 * of the comm, or once SOCK_OUT_BYTES of small messages, ROW_BYTES of larger ones or GATHER_SENDS
 * are there. Nothing is done before the kernel has it, so what test called done arrives without
 * further calls.
 *
 * Headers and messages up to COPY_BYTES are copied next to each other, for one long piece costs the
 * kernel less than many short ones; larger payloads go from where they are. Of a message of several
 * MiB one call writes a part, a small one while much comes in, and of a row of large ones the
 * first: what comes in the other direction has its turn before the caches and the kernel's buffers
 * are full of this one.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs. */
#include "sock_record.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/wire.h"

#define COPY_BYTES   1024
#define GATHER_SENDS 16
#define PIECES       16 /* of one write */
/* Of a message of several MiB in one call of test: while much comes in, and while nothing does. */
#define TURN_BYTES  ((size_t)1 << 20)
#define ALONE_BYTES ((size_t)8 << 20)
#define ROW_BYTES   ((size_t)1 << 20) /* of several messages in one call of test, at least */

static_assert(SOCK_OUT_BYTES >= 2 * (COPY_BYTES + SOCK_HEAD_BYTES), "a copied message fits");

static const char zeroes[SOCK_HUGE_UNIT]; /* of pads */

/* The pieces of one write. */
struct gather {
    struct iovec iov[PIECES];
    size_t count;
    size_t out_bytes; /* used of the sender's out */
    size_t bytes; /* all of it */
    int part; /* it ends before all that is posted, on purpose */
};

static struct sock_send *send_at(struct sock_sender *sender, uint32_t count)
{
    return &sender->sends[count % SOCK_SENDS];
}

/* Each message of a comm has a number; without it in the header the stream is damaged. */
void sock_header_encode(const struct sock_send *send, uint32_t number,
                        uint8_t bytes_out[SOCK_HEADER_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(bytes_out, SOCK_HEADER_BYTES);

    xccl_wire_put_u64(&wire, send->bytes);
    xccl_wire_put_u32(&wire, send->tag);
    xccl_wire_put_u32(&wire, (send->spread ? SOCK_SPREAD_CHECK : SOCK_HEADER_CHECK) ^ number);
}

static void gather_add(struct gather *gather, const void *data, size_t bytes)
{
    struct iovec *last = gather->count ? &gather->iov[gather->count - 1] : NULL;

    gather->bytes += bytes;
    if (last && (const char *)last->iov_base + last->iov_len == data)
        last->iov_len += bytes;
    else
        gather->iov[gather->count++] = (struct iovec){(void *)(uintptr_t)data, bytes};
}

static void gather_copy(struct sock_sender *sender, struct gather *gather, const void *data,
                        size_t bytes)
{
    uint8_t *to = sender->out + gather->out_bytes;

    memcpy(to, data, bytes);
    gather->out_bytes += bytes;
    gather_add(gather, to, bytes);
}

/* Of header and pad, where there is one line. */
static size_t head_bytes(const struct sock_sender *sender, const struct sock_send *send)
{
    return SOCK_HEADER_BYTES + sock_pad_bytes(send->bytes, sender->comm.padded_min);
}

/* How much of a large message is written before what comes in has its turn. */
static size_t turn_bytes(struct sock_sender *sender)
{
    uint32_t inbound = atomic_load_explicit(&sender->comm.ctx->inbound, memory_order_relaxed);
    int alone = inbound == sender->inbound;

    sender->inbound = inbound;
    return alone ? ALONE_BYTES : TURN_BYTES;
}

/* What is left of header and pad. A pad within a line of the cache is copied along. */
static void gather_head(struct sock_sender *sender, struct gather *gather, uint32_t number)
{
    const struct sock_send *send = send_at(sender, number);
    size_t head = head_bytes(sender, send),
           copied = head <= SOCK_HEAD_BYTES ? head : SOCK_HEADER_BYTES;
    uint8_t bytes[SOCK_HEAD_BYTES] = {0};

    if (send->moved < copied) {
        sock_header_encode(send, number, bytes);
        gather_copy(sender, gather, bytes + send->moved, copied - send->moved);
        if (head > copied)
            gather_add(gather, zeroes, head - copied);
    } else if (send->moved < head) {
        gather_add(gather, zeroes, head - send->moved);
    }
}

/* What is left of one message. */
static void gather_send(struct sock_sender *sender, struct gather *gather, uint32_t number)
{
    const struct sock_send *send = send_at(sender, number);
    size_t head = head_bytes(sender, send), paid = send->moved > head ? send->moved - head : 0;

    gather_head(sender, gather, number);
    if (send->bytes == paid)
        return;
    if (send->bytes <= COPY_BYTES) {
        gather_copy(sender, gather, send->data + paid, send->bytes - paid);
    } else {
        size_t left = send->bytes - paid;
        size_t turn = left >= 2 * TURN_BYTES ? turn_bytes(sender) : left;

        gather->part = left >= 2 * turn;
        gather_add(gather, send->data + paid, gather->part ? turn : left);
    }
}

static void gather_all(struct sock_sender *sender, struct gather *gather)
{
    gather->count = 0;
    gather->out_bytes = 0;
    gather->bytes = 0;
    gather->part = 0;
    for (uint32_t i = sender->current; i != sender->posted && !gather->part; i++) {
        if (gather->count + 3 > PIECES ||
            gather->out_bytes + SOCK_HEAD_BYTES + COPY_BYTES > SOCK_OUT_BYTES)
            return;
        gather_send(sender, gather, i);
        if (gather->bytes >= ROW_BYTES && i + 1 != sender->posted)
            gather->part = 1;
    }
}

void sock_send_done(struct sock_sender *sender, struct sock_send *send)
{
    send->request.state = SOCK_DONE;
    xccl_net_count_message(&sender->comm.counters, 1, send->bytes);
}

static void account(struct sock_sender *sender, size_t sent)
{
    sender->queued_bytes -= sent;
    while (sender->current != sender->posted) {
        struct sock_send *send = send_at(sender, sender->current);
        size_t left = head_bytes(sender, send) + send->bytes - send->moved;

        if (sent < left) {
            send->moved += sent;
            return;
        }
        sent -= left;
        send->moved += left;
        sender->current++;
        sock_send_done(sender, send);
    }
}

/* The only line. */
static void write_queued(struct sock_sender *sender)
{
    struct gather gather;

    /* Each turn but the last ends at least one message. */
    while (sender->current != sender->posted) {
        ssize_t sent;

        gather_all(sender, &gather);
        sent = sock_line_send(&sender->comm, 0, gather.iov, gather.count, 0);
        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
            sock_comm_fail_errno(&sender->comm, errno);
            return;
        }
        if (sent > 0)
            account(sender, (size_t)sent);
        if (sent < 0 || (size_t)sent < gather.bytes || gather.part) {
            sock_comm_full(&sender->comm, 0, 1);
            return;
        }
    }
    sock_comm_full(&sender->comm, 0, 0);
}

void sock_send_progress(struct sock_sender *sender)
{
    if (sender->scatter) {
        sock_scatter_progress(sender);
        return;
    }
    write_queued(sender);
    if (sender->comm.lines[0].full)
        sock_line_look(sender);
}

/* 0: there is no room now. */
static int queue(struct sock_sender *sender, struct sock_send *send, const void *data, size_t bytes,
                 uint32_t tag)
{
    send->data = data;
    send->bytes = bytes;
    send->tag = tag;
    send->moved = 0;
    send->spread = sender->scatter && bytes > SOCK_OWN_MAX;
    if (!sender->scatter) {
        sender->queued_bytes += head_bytes(sender, send) + bytes;
        return 1;
    }
    if (!sock_control_room(sender->scatter, SOCK_HEADER_BYTES + (send->spread ? 0 : send->bytes)))
        return 0;
    sock_control_append(sender, send, sender->posted);
    return 1;
}

/* Of a row, whose last message has so many bytes: it is worth a write. */
static int row_is_long(const struct sock_sender *sender, size_t bytes)
{
    const struct sock_scatter *scatter = sender->scatter;

    if (sender->posted - sender->current >= GATHER_SENDS)
        return 1;
    if (scatter)
        return bytes >= SOCK_OUT_BYTES ||
               scatter->control_end - scatter->control_sent >= SOCK_OUT_BYTES;
    return sender->queued_bytes >= (bytes > COPY_BYTES ? ROW_BYTES : SOCK_OUT_BYTES);
}

xcclResult_t sock_isend(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                        xcclNetMem_t mem, xcclNetRequest_t *request_out)
{
    struct sock_sender *sender = comm;
    struct sock_send *send = send_at(sender, sender->posted);
    int alone = sender->posted == sender->reaped;

    (void)mem;
    if (sender->comm.rc != xcclSuccess)
        return sock_comm_error(&sender->comm);
    if (bytes > SOCK_MESSAGE_MAX)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "split the message",
                                 "a message of %zu bytes is too large: at most %zu are possible",
                                 bytes, SOCK_MESSAGE_MAX);
    if (send->request.state != SOCK_FREE || !queue(sender, send, data, bytes, tag)) {
        sock_comm_busy(&sender->comm);
        *request_out = NULL;
        return xcclSuccess;
    }
    send->request.state = SOCK_ACTIVE;
    *request_out = &send->request;
    sender->posted++;
    /* Behind a full socket it waits for its turn in test. Errors show there, too. */
    if (!sender->comm.lines[0].full && (alone || row_is_long(sender, bytes)))
        sock_send_progress(sender);
    return xcclSuccess;
}
