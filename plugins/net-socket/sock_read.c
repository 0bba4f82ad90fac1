/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads of line 0. One brings, as far as they have come, in the order of the stream:
 *
 *   the rest of the message that is coming    straight to its place
 *   messages behind it, as they are guessed   headers aside, payloads to where they belong
 *   bytes ahead                               to the stage, from which sock_recv.c serves
 *
 * So many small messages are one read, and a large payload is not copied twice. Behind a message of
 * LARGE_BYTES or more only the next header is read ahead, unless it has filled its receive and the
 * next receives are as large: then they are guessed to be filled, too, for a read of its own for
 * each header costs a tenth of the throughput at 64 KiB. What turns out to be something else goes
 * to the stage, and its memory, which is posted, may hold other bytes behind the message.
 *
 * TCP acknowledges as soon as a small message is taken, which costs the caller as much as half the
 * way of its answer. So where nothing is expected but headers, bytes are only looked at (MSG_PEEK);
 * they are taken with the next look but one, when the caller has had a turn to post what follows.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs. */
#include "sock_record.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define LARGE_BYTES ((size_t)16 << 10)
#define PIECES      (2 + 2 * SOCK_HEADS + 1)

/* What one read is to bring. */
struct reading {
    struct iovec iov[PIECES];
    int count;
    int guessed; /* the piece with which the guessed messages begin */
    int heads; /* of them, each with its payload behind */
    size_t bytes; /* all of it */
    size_t pad, payload; /* of the message that is coming */
};

void sock_read_compact(struct sock_receiver *receiver)
{
    size_t have = sock_recv_staged(receiver);

    if (have > 0 && receiver->stage_first > 0)
        memmove(receiver->stage, receiver->stage + receiver->stage_first, have);
    receiver->stage_first = 0;
    receiver->stage_end = (uint32_t)have;
}

static void add(struct reading *reading, void *data, size_t bytes)
{
    reading->iov[reading->count++] = (struct iovec){data, bytes};
    reading->bytes += bytes;
}

/* Receives of one message each, so that it is known whose is whose. */
static void add_guessed(struct sock_receiver *receiver, struct reading *reading)
{
    size_t bytes = receiver->guess;
    uint32_t at = receiver->current + (receiver->part != NULL);

    if (bytes < LARGE_BYTES)
        return;
    reading->guessed = reading->count;
    while (reading->heads < SOCK_HEADS &&
           (size_t)(reading->heads + 1) * bytes <= SOCK_GUESS_BYTES && at != receiver->posted) {
        const struct sock_recv *recv = &receiver->recvs[at++ % SOCK_RECVS];

        if (recv->count > 1 || recv->parts[0].bytes != bytes)
            return;
        add(reading, receiver->heads[reading->heads++],
            SOCK_HEADER_BYTES + sock_pad_bytes(bytes, receiver->comm.padded_min));
        add(reading, recv->parts[0].data, bytes);
    }
}

/* A pad that is coming has emptied the stage, whose end takes it. */
static void prepare(struct sock_receiver *receiver, struct reading *reading)
{
    size_t have = sock_recv_staged(receiver);
    size_t before = receiver->part ? receiver->own_bytes : receiver->last_bytes;

    sock_read_compact(receiver);
    reading->count = 0;
    reading->bytes = 0;
    reading->heads = 0;
    reading->pad = receiver->pad;
    reading->payload = receiver->part ? receiver->own_bytes - receiver->moved : 0;
    if (reading->pad > 0)
        add(reading, receiver->stage + SOCK_STAGE_BYTES - reading->pad, reading->pad);
    if (reading->payload > 0)
        add(reading, receiver->part->data + receiver->moved, reading->payload);
    if (have == 0)
        add_guessed(receiver, reading);
    if (reading->heads > 0)
        add(reading, receiver->heads[SOCK_HEADS], SOCK_HEADER_BYTES);
    else if (before >= LARGE_BYTES && have < SOCK_HEADER_BYTES)
        add(reading, receiver->stage + have, SOCK_HEADER_BYTES - have);
    else
        add(reading, receiver->stage + have, SOCK_STAGE_BYTES - have);
}

/* Where there are streams they may bring the rest. */
void sock_read_ended(struct sock_receiver *receiver, int err)
{
    if (receiver->comm.rc != xcclSuccess)
        return; /* it was no record */
    if (receiver->collect)
        sock_collect_lost(receiver, 0, err);
    else if (err)
        sock_comm_fail_errno(&receiver->comm, err);
    else
        sock_recv_closed(receiver);
}

int sock_read_settle(struct sock_receiver *receiver)
{
    while (receiver->owed > 0) {
        ssize_t got = recv(receiver->comm.lines[0].fd, NULL, receiver->owed,
                           MSG_TRUNC | MSG_DONTWAIT);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? errno : ECONNRESET;
        receiver->owed -= (uint32_t)got;
    }
    return 0;
}

/* Headers, or payloads and the next ones. */
static ssize_t read_line(struct sock_receiver *receiver, struct reading *reading)
{
    int peek = reading->count == 1 && reading->iov[0].iov_len == SOCK_STAGE_BYTES &&
               receiver->comm.peeks;
    ssize_t got = sock_line_recv(&receiver->comm, 0, reading->iov, (size_t)reading->count,
                                 peek ? MSG_PEEK : 0);

    if (peek && got > 0)
        receiver->owed = (uint32_t)got;
    return got;
}

static void count_inbound(struct sock_ctx *ctx)
{
    uint32_t inbound = atomic_load_explicit(&ctx->inbound, memory_order_relaxed);

    atomic_store_explicit(&ctx->inbound, inbound + 1, memory_order_relaxed);
}

/* Puts bytes that were read from a piece on, but for its first `skip`, into the empty stage. */
static void spill(struct sock_receiver *receiver, const struct reading *reading,
                  const struct iovec *piece, size_t skip, size_t bytes)
{
    const struct iovec *end = reading->iov + reading->count;

    receiver->stage_first = 0;
    receiver->stage_end = 0;
    for (; bytes > 0 && piece < end; piece++, skip = 0) {
        size_t part = piece->iov_len - skip < bytes ? piece->iov_len - skip : bytes;

        memcpy(receiver->stage + receiver->stage_end, (const char *)piece->iov_base + skip, part);
        receiver->stage_end += (uint32_t)part;
        bytes -= part;
    }
}

/* Serves guessed messages: those that are as guessed are in their places. */
static void take_guessed(struct sock_receiver *receiver, const struct reading *reading, size_t got)
{
    const struct iovec *piece = reading->iov + reading->guessed;

    for (int i = 0; i < reading->heads && got >= piece->iov_len; i++, piece += 2) {
        size_t guess = piece[1].iov_len;
        size_t moved = got - piece->iov_len < guess ? got - piece->iov_len : guess;

        spill(receiver, reading, piece, 0, SOCK_HEADER_BYTES);
        sock_recv_serve(receiver);
        if (receiver->comm.rc != xcclSuccess)
            return;
        if (!receiver->part || receiver->own_bytes != guess) {
            spill(receiver, reading, piece, SOCK_HEADER_BYTES, got - SOCK_HEADER_BYTES);
            return;
        }
        receiver->pad = 0;
        receiver->moved = moved;
        got -= piece->iov_len + moved;
    }
    spill(receiver, reading, piece, 0, got);
}

/* Gives what was read to the message that is coming, and to those behind it. */
static void take(struct sock_receiver *receiver, const struct reading *reading, size_t got)
{
    if (got < reading->pad) {
        receiver->pad -= got;
        return;
    }
    got -= reading->pad;
    receiver->pad = 0;
    if (got < reading->payload) {
        receiver->moved += got;
        return;
    }
    receiver->moved += reading->payload;
    got -= reading->payload;
    if (reading->heads > 0)
        take_guessed(receiver, reading, got);
    else
        receiver->stage_end += (uint32_t)got;
}

int sock_read_some(struct sock_receiver *receiver, size_t *got_out)
{
    struct reading reading;
    int err = sock_read_settle(receiver);
    ssize_t got;

    if (err) {
        sock_read_ended(receiver, err);
        return 0;
    }
    prepare(receiver, &reading);
    got = read_line(receiver, &reading);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (got <= 0) {
        sock_read_ended(receiver, got < 0 ? errno : 0);
        return 0;
    }
    *got_out += (size_t)got;
    if ((size_t)got >= LARGE_BYTES)
        count_inbound(receiver->comm.ctx);
    if (receiver->collect)
        receiver->collect->control_read += (size_t)got;
    take(receiver, &reading, (size_t)got);
    return (size_t)got == reading.bytes || sock_line_holds(&receiver->comm, 0);
}
