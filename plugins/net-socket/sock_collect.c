/* SPDX-License-Identifier: BSD-3-Clause */
/* Large messages over several streams: the receiver's side. A header on line 0 opens a message;
 * from then on its chunks are read from any stream, straight to where they belong. A chunk whose
 * message is not open yet waits in its stream, and with it what comes behind.
 *
 * Nothing from the wire is used before it is checked: the number names an open message, offset and
 * length are those of one of its chunks, and that chunk has not come before.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs. */
#include "sock_int.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/wire.h"

enum verdict { CHUNK_WAITS, CHUNK_BEGINS, CHUNK_WRONG };

int sock_collect_open(struct sock_receiver *receiver, uint32_t number, struct sock_recv *recv,
                      struct sock_part *part)
{
    struct sock_collect *collect = receiver->collect;
    struct sock_open *open = &collect->opens[number % SOCK_SENDS];

    /* Receives in flight bound the messages that are open, so a place is free unless this end has a
     * mistake; and only a large message is spread. */
    if (open->recv || part->bytes < SOCK_SPREAD_BYTES) {
        sock_recv_damaged(receiver, "the chunks", number);
        return 0;
    }
    memset(open->seen, 0, sizeof(open->seen));
    open->recv = recv;
    open->part = part;
    open->number = number;
    open->left = part->bytes;
    open->chunk_bytes = sock_chunk_bytes(part->bytes, receiver->comm.line_count - 1);
    collect->count++;
    return 1;
}

/* Looks at a complete header. */
static enum verdict chunk_begin(struct sock_receiver *receiver, struct sock_inflow *flow)
{
    struct xccl_wire wire = xccl_wire_over(flow->header, SOCK_CHUNK_BYTES);
    uint32_t check = xccl_wire_get_u32(&wire), number = xccl_wire_get_u32(&wire);
    uint64_t offset = xccl_wire_get_u64(&wire), bytes = xccl_wire_get_u64(&wire), index, want;
    struct sock_open *open = &receiver->collect->opens[number % SOCK_SENDS];

    if (check != SOCK_CHUNK_CHECK)
        return CHUNK_WRONG;
    if (!open->recv || open->number != number)
        return number - receiver->message < SOCK_SENDS ? CHUNK_WAITS : CHUNK_WRONG;
    if (offset >= open->part->bytes || offset % open->chunk_bytes)
        return CHUNK_WRONG;
    want = open->part->bytes - offset;
    if (want > open->chunk_bytes)
        want = open->chunk_bytes;
    index = offset / open->chunk_bytes;
    if (bytes != want || open->seen[index / 64] >> (index % 64) & 1)
        return CHUNK_WRONG;
    open->seen[index / 64] |= UINT64_C(1) << (index % 64);
    flow->open = open;
    flow->data = open->part->data + offset;
    flow->bytes = flow->left = (size_t)bytes;
    flow->have = 0;
    return CHUNK_BEGINS;
}

static void chunk_done(struct sock_receiver *receiver, struct sock_inflow *flow)
{
    struct sock_open *open = flow->open;
    struct sock_recv *recv = open->recv;

    flow->open = NULL;
    open->left -= flow->bytes;
    if (open->left > 0)
        return;
    open->recv = NULL;
    receiver->collect->count--;
    sock_recv_done(receiver, recv, open->part->bytes);
}

/* The peer has closed the stream: between two chunks it may, as long as others bring the rest. */
static void flow_closed(struct sock_receiver *receiver, struct sock_inflow *flow)
{
    flow->closed = 1;
    if (flow->open || flow->have)
        sock_recv_closed(receiver);
}

/* A stream has the chunks of earlier messages first. So one that waits for a later message brings
 * nothing for an open one any more, and neither does one that is closed. */
static void check_hope(struct sock_receiver *receiver)
{
    int closed = 0, waits = 0;

    for (int i = 0; i < receiver->comm.line_count - 1; i++) {
        closed += receiver->collect->flows[i].closed;
        waits += receiver->collect->flows[i].waits;
    }
    if (closed + waits < receiver->comm.line_count - 1)
        return;
    if (closed)
        sock_recv_closed(receiver);
    else
        sock_recv_damaged(receiver, "a chunk", receiver->message);
}

/* Bytes that came: the rest of the chunk, then the next header. */
static void flow_account(struct sock_receiver *receiver, struct sock_inflow *flow, size_t got)
{
    size_t paid = flow->left < got ? flow->left : got;

    /* Before the first chunk there is nothing to add to. */
    if (paid > 0)
        flow->data += paid;
    flow->left -= paid;
    flow->have += got - paid;
    if (flow->open && flow->left == 0)
        chunk_done(receiver, flow);
}

/* One read. Returns 1 when there may be more. */
static int flow_read(struct sock_receiver *receiver, int stream, size_t *got_out)
{
    struct sock_inflow *flow = &receiver->collect->flows[stream];
    struct iovec iov[2];
    struct msghdr message = {.msg_iov = iov};
    size_t want = flow->left + SOCK_CHUNK_BYTES - flow->have;
    ssize_t got;

    if (flow->left > 0)
        iov[message.msg_iovlen++] = (struct iovec){flow->data, flow->left};
    iov[message.msg_iovlen++] = (struct iovec){flow->header + flow->have,
                                               SOCK_CHUNK_BYTES - flow->have};
    do
        got = recvmsg(receiver->comm.lines[1 + stream].fd, &message, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            sock_comm_fail_errno(&receiver->comm, errno);
        return 0;
    }
    if (got == 0) {
        flow_closed(receiver, flow);
        return 0;
    }
    *got_out += (size_t)got;
    flow_account(receiver, flow, (size_t)got);
    return (size_t)got == want;
}

/* A chunk at most. Returns 1 when there may be more. */
static int flow_step(struct sock_receiver *receiver, int stream, size_t *got_out)
{
    struct sock_inflow *flow = &receiver->collect->flows[stream];

    if (flow->closed)
        return 0;
    if (!flow->open && flow->have == SOCK_CHUNK_BYTES) {
        enum verdict verdict = chunk_begin(receiver, flow);

        flow->waits = verdict == CHUNK_WAITS;
        if (verdict == CHUNK_WRONG)
            sock_recv_damaged(receiver, "a chunk", receiver->message);
        if (verdict != CHUNK_BEGINS)
            return 0;
    }
    return flow_read(receiver, stream, got_out);
}

void sock_collect_progress(struct sock_receiver *receiver, size_t *got_out)
{
    int count = receiver->comm.line_count - 1;
    uint32_t able = (1u << count) - 1;

    while (able && *got_out < SOCK_MOVE_BYTES) {
        for (int i = 0; i < count; i++) {
            if (receiver->collect->count == 0 || receiver->comm.rc != xcclSuccess)
                return;
            if (able & 1u << i && !flow_step(receiver, i, got_out))
                able &= ~(1u << i);
        }
    }
    /* All have been asked since the last message was opened. */
    if (!able && receiver->comm.rc == xcclSuccess && receiver->collect->count > 0)
        check_hope(receiver);
}
