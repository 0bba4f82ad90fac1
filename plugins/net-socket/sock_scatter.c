/* SPDX-License-Identifier: BSD-3-Clause */
/* Large messages over several streams: the sender's side. A message is announced on line 0; its
 * payload is cut into chunks, each with a header of its own, that any stream may carry. A stream
 * gets its next chunk only when the kernel has all of the last one, and the kernel takes little
 * more than a stream can send at the moment (TCP_NOTSENT_LOWAT). So each stream carries what it is
 * able to, and a slow one holds no more than one chunk back.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs. */
#include "sock_int.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/wire.h"

#define CHUNK_LOW  ((size_t)64 << 10)
#define CHUNK_HIGH ((size_t)256 << 10)

/* Two chunks a stream, so that a fast one finds more to do; and not too many of them in all. */
size_t sock_chunk_bytes(size_t bytes, int stream_count)
{
    size_t chunk = bytes / (2 * (size_t)stream_count), least = bytes / SOCK_CHUNKS_MAX + 1;

    if (chunk > CHUNK_HIGH)
        chunk = CHUNK_HIGH;
    if (chunk < least)
        chunk = least;
    return (chunk + CHUNK_LOW - 1) / CHUNK_LOW * CHUNK_LOW;
}

static void chunk_header(uint8_t header_out[SOCK_CHUNK_BYTES], uint32_t number, size_t offset,
                         size_t bytes)
{
    struct xccl_wire wire = xccl_wire_over(header_out, SOCK_CHUNK_BYTES);

    xccl_wire_put_u32(&wire, SOCK_CHUNK_CHECK);
    xccl_wire_put_u32(&wire, number);
    xccl_wire_put_u64(&wire, offset);
    xccl_wire_put_u64(&wire, bytes);
}

/* The next chunk of the oldest message that has one. 0: there is none. */
static int chunk_take(struct sock_sender *sender, struct sock_outflow *flow)
{
    struct sock_scatter *scatter = sender->scatter;

    for (; scatter->first != sender->posted; scatter->first++) {
        struct sock_send *send = &sender->sends[scatter->first % SOCK_SENDS];
        size_t bytes, rest = send->bytes - send->own_bytes - send->given;

        if (rest == 0)
            continue;
        bytes = sock_chunk_bytes(send->bytes, sender->comm.line_count - 1);
        if (bytes > rest)
            bytes = rest;
        chunk_header(flow->header, scatter->first, send->given, bytes);
        flow->send = send;
        flow->data = send->data + send->given;
        flow->bytes = bytes;
        flow->moved = 0;
        send->given += bytes;
        return 1;
    }
    return 0;
}

static void chunk_done(struct sock_sender *sender, struct sock_outflow *flow)
{
    struct sock_send *send = flow->send;

    flow->send = NULL;
    send->left -= flow->bytes;
    if (send->left > 0)
        return;
    sender->scatter->open--;
    /* Else its announcement still waits for line 0. */
    if (send->moved == SOCK_HEADER_BYTES)
        sock_send_done(sender, send);
}

/* One write. Returns 1 when the stream may take more. */
static int flow_write(struct sock_sender *sender, int stream)
{
    struct sock_outflow *flow = &sender->scatter->flows[stream];
    struct iovec iov[2];
    struct msghdr message = {.msg_iov = iov};
    size_t paid = 0, want;
    ssize_t sent;

    if (!flow->send && !chunk_take(sender, flow)) {
        sock_comm_full(&sender->comm, 1 + stream, 0);
        return 0;
    }
    if (flow->moved < SOCK_CHUNK_BYTES)
        iov[message.msg_iovlen++] = (struct iovec){flow->header + flow->moved,
                                                   SOCK_CHUNK_BYTES - flow->moved};
    else
        paid = flow->moved - SOCK_CHUNK_BYTES;
    iov[message.msg_iovlen++] = (struct iovec){(void *)(uintptr_t)(flow->data + paid),
                                               flow->bytes - paid};
    want = SOCK_CHUNK_BYTES + flow->bytes - flow->moved;
    do
        sent = sendmsg(sender->comm.lines[1 + stream].fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
        sock_comm_fail_errno(&sender->comm, errno);
        return 0;
    }
    if (sent > 0)
        flow->moved += (size_t)sent;
    sock_comm_full(&sender->comm, 1 + stream, sent < 0 || (size_t)sent < want);
    if (sent < 0 || (size_t)sent < want)
        return 0;
    chunk_done(sender, flow);
    return 1;
}

/* Streams take turns, a chunk each, until all are full or nothing is left. */
void sock_scatter_progress(struct sock_sender *sender)
{
    uint32_t count = (uint32_t)sender->comm.line_count - 1, able = (1u << count) - 1;

    while (able && sender->comm.rc == xcclSuccess) {
        uint32_t stream = sender->scatter->turn;

        sender->scatter->turn = (stream + 1) % count;
        if (able & 1u << stream && !flow_write(sender, (int)stream))
            able &= ~(1u << stream);
    }
}
