/* SPDX-License-Identifier: BSD-3-Clause */
/* What line 0 carries where a connection has several lines: headers and small payloads, one after
 * the other. All of it is kept in a ring until the receiver has used it up, so that another line
 * can carry it on when line 0 is lost: from the first byte that is not acknowledged. The receiver
 * knows by the offset what it has already.
 *
 *        first            sent               end
 *   ------|----------------|------------------|------
 *          may have come    with nobody yet     room
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs. */
#include "sock_record.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static size_t ring_at(uint64_t offset)
{
    return (size_t)offset & (SOCK_RING_BYTES - 1);
}

/* As much of it as lies in one piece. */
static size_t piece(uint64_t offset, size_t bytes)
{
    size_t rest = SOCK_RING_BYTES - ring_at(offset);

    return bytes < rest ? bytes : rest;
}

int sock_control_room(const struct sock_scatter *scatter, size_t bytes)
{
    return SOCK_RING_BYTES - (size_t)(scatter->control_end - scatter->control_first) >= bytes;
}

static void put(struct sock_scatter *scatter, const void *data, size_t bytes)
{
    size_t head = piece(scatter->control_end, bytes);

    if (bytes == 0)
        return;
    memcpy(scatter->ring + ring_at(scatter->control_end), data, head);
    memcpy(scatter->ring, (const char *)data + head, bytes - head);
    scatter->control_end += bytes;
}

void sock_control_append(struct sock_sender *sender, struct sock_send *send, uint32_t number)
{
    struct sock_scatter *scatter = sender->scatter;
    uint8_t header[SOCK_HEADER_BYTES];

    sock_header_encode(send, number, header);
    put(scatter, header, sizeof(header));
    if (!send->spread)
        put(scatter, send->data, send->bytes);
    send->control_end = scatter->control_end;
    send->given = 0;
    send->again = 0;
    send->again_asked = 0;
    send->carriers = 0;
    send->whole = 0;
    if (!send->spread)
        return;
    if (scatter->open == 0)
        scatter->first = number;
    scatter->open++;
}

void sock_control_sent(struct sock_sender *sender, uint64_t sent)
{
    sender->scatter->control_sent = sent;
    while (sender->current != sender->posted) {
        struct sock_send *send = &sender->sends[sender->current % SOCK_SENDS];

        if (send->control_end > sent)
            return;
        sender->current++;
        if (!send->spread && !sender->scatter->late)
            sock_send_done(sender, send);
    }
}

void sock_control_used(struct sock_sender *sender)
{
    struct sock_scatter *scatter = sender->scatter;

    for (; scatter->late && scatter->done_first != sender->current; scatter->done_first++) {
        struct sock_send *send = &sender->sends[scatter->done_first % SOCK_SENDS];

        /* The place of a spread one may be another's already, which ends later. */
        if (sender->posted - scatter->done_first > SOCK_SENDS)
            continue;
        if (send->control_end > scatter->control_first)
            return;
        if (!send->spread && send->request.state == SOCK_ACTIVE)
            sock_send_done(sender, send);
    }
}

void sock_control_write(struct sock_sender *sender)
{
    struct sock_scatter *scatter = sender->scatter;

    while (scatter->control_sent != scatter->control_end) {
        size_t want = piece(scatter->control_sent,
                            (size_t)(scatter->control_end - scatter->control_sent));
        const struct iovec iov = {scatter->ring + ring_at(scatter->control_sent), want};
        ssize_t sent = sock_line_send(&sender->comm, 0, &iov, 1, 0);

        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
            sock_line_lost(sender, 0, errno);
            return;
        }
        if (sent > 0)
            sock_control_sent(sender, scatter->control_sent + (uint64_t)sent);
        if (sent < 0 || (size_t)sent < want) {
            sock_comm_full(&sender->comm, 0, 1);
            return;
        }
    }
    sock_comm_full(&sender->comm, 0, 0);
}

/* Among chunks it must never be more than the receiver has room for, or what it waits for could lie
 * behind what it cannot take yet. */
size_t sock_control_next(const struct sock_scatter *scatter, const char **data_out)
{
    size_t bytes = (size_t)(scatter->control_end - scatter->control_sent);
    size_t under_way = (size_t)(scatter->control_sent - scatter->control_first);

    if (under_way >= SOCK_WINDOW_BYTES)
        return 0;
    if (bytes > SOCK_WINDOW_BYTES - under_way)
        bytes = SOCK_WINDOW_BYTES - under_way;
    if (bytes > SOCK_CONTROL_MAX)
        bytes = SOCK_CONTROL_MAX;
    *data_out = (const char *)scatter->ring + ring_at(scatter->control_sent);
    return piece(scatter->control_sent, bytes);
}
