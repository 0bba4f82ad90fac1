/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives of a comm, each of one message or of a group of up to 8.
 *
 *   FREE --irecv--> ACTIVE --a message for each part--> DONE --test--> FREE
 *
 * Messages come in the order in which they were sent, and a header chooses the first free part of
 * the `current` receive that has its tag. The next receive is not looked at before the current one
 * is full. Headers are taken from the stage, to which bytes are read ahead (sock_read.c). Zeroes
 * before a payload (sock_send.c) are read to where nobody looks. Of a message whose payload comes
 * over the streams only the header is here (sock_collect.c), so receives may be done in another
 * order than they were posted.
 *
 * Every size from the wire is compared with the posted room before a byte of payload is placed,
 * but for guessed messages: their bytes are in receives that take as much, whatever they turn out
 * to be.
 * After an error requests that are DONE stay done.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs. */
#include "sock_record.h"

#include <string.h>

#include "base/wire.h"

static struct sock_recv *recv_at(struct sock_receiver *receiver, uint32_t count)
{
    return &receiver->recvs[count % SOCK_RECVS];
}

size_t sock_recv_staged(const struct sock_receiver *receiver)
{
    return receiver->stage_end - receiver->stage_first;
}

/* ---- headers ---- */

void sock_recv_damaged(struct sock_receiver *receiver, const char *where, uint32_t number)
{
    sock_comm_fail(&receiver->comm, xcclNetCauseProtocol,
                   xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                                     "the stream from %s is damaged: no header where %s of message "
                                     "%u should begin",
                                     receiver->comm.peer_text, where, number));
}

static void fail_tag(struct sock_receiver *receiver, const struct sock_recv *recv, uint32_t tag)
{
    const char *peer = receiver->comm.peer_text;

    sock_comm_fail(
        &receiver->comm, xcclNetCauseProtocol,
        recv->count == 1
            ? xccl_fail_quietly(xcclInvalidUsage, 0, "use the same tag for both",
                                "a message from %s has tag %u, but its receive has tag %u", peer,
                                tag, recv->parts[0].tag)
            : xccl_fail_quietly(xcclInvalidUsage, 0,
                                "send only messages that the group of receives has tags for",
                                "a message from %s has tag %u, but its group of %d receives has no "
                                "free part with that tag",
                                peer, tag, recv->count));
}

static void fail_size(struct sock_receiver *receiver, uint64_t bytes, size_t room)
{
    sock_comm_fail(&receiver->comm, xcclNetCauseProtocol,
                   xccl_fail_quietly(
                       xcclInvalidUsage, 0, "post a receive that is at least as large as the send",
                       "a message from %s has %llu bytes, but its receive has room for %zu",
                       receiver->comm.peer_text, (unsigned long long)bytes, room));
}

/* The first free part with the tag, or NULL. It is free no more. */
static struct sock_part *part_take(struct sock_recv *recv, uint32_t tag)
{
    for (int i = 0; i < recv->count; i++) {
        if (recv->parts[i].tag != tag || !(recv->free & 1u << i))
            continue;
        recv->free &= ~(1u << i);
        return &recv->parts[i];
    }
    return NULL;
}

/* Reads the header at the front of the stage and finds its part. 0: the comm failed. */
static int header_take(struct sock_receiver *receiver, struct sock_recv *recv)
{
    struct xccl_wire wire = xccl_wire_over(receiver->stage + receiver->stage_first,
                                           SOCK_HEADER_BYTES);
    uint64_t bytes = xccl_wire_get_u64(&wire);
    uint32_t tag = xccl_wire_get_u32(&wire);
    uint32_t check = xccl_wire_get_u32(&wire) ^ receiver->message;
    int spread = receiver->collect && check == SOCK_SPREAD_CHECK;
    struct sock_part *part;

    if (!spread && check != SOCK_HEADER_CHECK) {
        sock_recv_damaged(receiver, "the bytes", receiver->message);
        return 0;
    }
    part = part_take(recv, tag);
    if (!part) {
        fail_tag(receiver, recv, tag);
        return 0;
    }
    if (bytes > part->bytes) {
        fail_size(receiver, bytes, part->bytes);
        return 0;
    }
    receiver->stage_first += SOCK_HEADER_BYTES;
    receiver->guess = receiver->guesses && recv->count == 1 && bytes == part->bytes ? part->bytes
                                                                                    : 0;
    part->bytes = (size_t)bytes;
    if (spread && !sock_collect_open(receiver, receiver->message, recv, part))
        return 0;
    receiver->part = part;
    receiver->own_bytes = spread ? 0 : part->bytes;
    receiver->pad = receiver->collect ? 0 : sock_pad_bytes(part->bytes, receiver->comm.padded_min);
    receiver->moved = 0;
    receiver->spread = spread;
    return 1;
}

/* ---- bytes ---- */

void sock_recv_done(struct sock_receiver *receiver, struct sock_recv *recv, size_t bytes)
{
    xccl_net_count_message(&receiver->comm.counters, 0, bytes);
    recv->missing--;
    if (recv->missing == 0)
        recv->request.state = SOCK_DONE;
}

/* All of a message that comes on line 0 has come. */
static void message_end(struct sock_receiver *receiver, struct sock_recv *recv)
{
    receiver->last_bytes = receiver->own_bytes;
    receiver->part = NULL;
    receiver->message++;
    if (!recv->free)
        receiver->current++;
    if (receiver->spread)
        return;
    if (receiver->collect)
        sock_collect_whole(receiver, receiver->message - 1);
    sock_recv_done(receiver, recv, receiver->own_bytes);
}

/* What the stage has of the pad. */
static void stage_skip_pad(struct sock_receiver *receiver)
{
    size_t bytes = sock_recv_staged(receiver);

    if (bytes > receiver->pad)
        bytes = receiver->pad;
    receiver->pad -= bytes;
    receiver->stage_first += (uint32_t)bytes;
}

int sock_recv_serve(struct sock_receiver *receiver)
{
    uint32_t first = receiver->current;

    while (receiver->current != receiver->posted) {
        struct sock_recv *recv = recv_at(receiver, receiver->current);
        size_t bytes;

        if (!receiver->part) {
            if (sock_recv_staged(receiver) < SOCK_HEADER_BYTES || !header_take(receiver, recv))
                break;
        }
        stage_skip_pad(receiver);
        bytes = receiver->own_bytes - receiver->moved;
        if (bytes > sock_recv_staged(receiver))
            bytes = sock_recv_staged(receiver);
        if (bytes > 0)
            memcpy(receiver->part->data + receiver->moved, receiver->stage + receiver->stage_first,
                   bytes);
        receiver->moved += bytes;
        receiver->stage_first += (uint32_t)bytes;
        if (receiver->moved < receiver->own_bytes)
            break;
        message_end(receiver, recv);
    }
    return receiver->current != first;
}

void sock_recv_closed(struct sock_receiver *receiver)
{
    sock_comm_fail(&receiver->comm, xcclNetCausePeerGone,
                   xccl_fail_quietly(xcclRemoteError, 0, "see the first error of that process",
                                     "%s closed the connection while a receive on %s waited",
                                     receiver->comm.peer_text, receiver->comm.device->netif.name));
}

int sock_recv_feed(struct sock_receiver *receiver, const char *data, size_t bytes)
{
    sock_read_compact(receiver);
    if (bytes > SOCK_STAGE_BYTES - receiver->stage_end)
        return 0;
    memcpy(receiver->stage + receiver->stage_end, data, bytes);
    receiver->stage_end += (uint32_t)bytes;
    receiver->collect->control_read += bytes;
    sock_recv_serve(receiver);
    return 1;
}

/* Nothing more is wanted of line 0, and who sleeps until chunks come would be woken by what was
 * only looked at, again and again. */
static void settle_for_sleep(struct sock_receiver *receiver)
{
    int err;

    if (receiver->owed == 0 || receiver->rest || receiver->comm.wait_fd < 0 ||
        receiver->current != receiver->posted)
        return;
    err = sock_read_settle(receiver);
    if (err)
        sock_read_ended(receiver, err);
}

void sock_recv_progress(struct sock_receiver *receiver)
{
    size_t got = 0;
    int more;

    if (receiver->rest) {
        receiver->rest = 0;
        return;
    }
    /* Bytes read ahead may be enough for now. The kernel wakes no one for those a line holds. */
    more = !sock_recv_serve(receiver) || sock_line_holds(&receiver->comm, 0);

    while (more && (got < SOCK_MOVE_BYTES || sock_line_holds(&receiver->comm, 0)) &&
           receiver->comm.rc == xcclSuccess && receiver->comm.lines[0].fd >= 0 &&
           receiver->current != receiver->posted) {
        more = sock_read_some(receiver, &got);
        if (receiver->comm.rc == xcclSuccess)
            sock_recv_serve(receiver);
    }
    receiver->rest = receiver->owed > 0 && got == receiver->owed && !receiver->part &&
                     sock_recv_staged(receiver) == 0;
    if (!receiver->collect || receiver->comm.rc != xcclSuccess)
        return;
    settle_for_sleep(receiver);
    sock_rejoin_recv(receiver);
    sock_collect_progress(receiver, &got);
    if (receiver->comm.rc == xcclSuccess)
        sock_ack_write(receiver);
}

/* ---- the contract's entry ---- */

xcclResult_t sock_irecv(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                        const uint32_t *tags, const xcclNetMem_t *mems,
                        xcclNetRequest_t *request_out)
{
    struct sock_receiver *receiver = comm;
    struct sock_recv *recv = recv_at(receiver, receiver->posted);

    (void)mems;
    if (receiver->comm.rc != xcclSuccess)
        return sock_comm_error(&receiver->comm);
    if (count < 1 || count > SOCK_PARTS)
        return xccl_fail_quietly(
            xcclInvalidArgument, 0, "see maxRecvs in the properties of the device",
            "%d receives in one irecv: the socket plugin accepts 1 to %d", count, SOCK_PARTS);
    if (recv->request.state != SOCK_FREE) {
        sock_comm_busy(&receiver->comm);
        *request_out = NULL;
        return xcclSuccess;
    }
    recv->request.state = SOCK_ACTIVE;
    recv->count = count;
    recv->missing = count;
    recv->free = (1u << count) - 1;
    for (int i = 0; i < count; i++)
        recv->parts[i] = (struct sock_part){data[i], bytes[i], tags[i]};
    *request_out = &recv->request;
    receiver->posted++;
    return xcclSuccess;
}
