/* SPDX-License-Identifier: BSD-3-Clause */
/* Payload over several streams: the sender's side. A message is announced on line 0; its payload is
 * cut into chunks, each with a header of its own, that any stream may carry. A stream gets its next
 * chunk only when the kernel has all of the last one, and the kernel takes little more than a
 * stream can send at the moment (TCP_NOTSENT_LOWAT). So each stream carries what it is able to, and
 * a slow one holds no more than one chunk back.
 *
 *   chunk:  not given --> in the kernel's hands --> acknowledged with its message
 *                 ^----- its line is lost ----'
 *
 * A stream carries other frames before chunks: which lines are lost, and, when it stands in for
 * line 0, what that would carry.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs. */
#include "sock_record.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/wire.h"

#define CHUNK_LOW  ((size_t)64 << 10)
#define CHUNK_HIGH ((size_t)256 << 10)

int sock_rail_of(int line, int rail_count)
{
    return line == 0 ? 0 : (line - 1) % rail_count;
}

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

static size_t chunk_of(const struct sock_sender *sender, const struct sock_send *send)
{
    return sock_chunk_bytes(send->bytes, sender->comm.line_count - 1);
}

/* Chunks of it that have been given. */
static size_t given_count(const struct sock_sender *sender, const struct sock_send *send)
{
    size_t chunk = chunk_of(sender, send);

    return (send->given + chunk - 1) / chunk;
}

static uint8_t *carried_of(const struct sock_sender *sender, uint32_t number)
{
    return sender->scatter->carried[number % SOCK_SENDS];
}

static int is_open(const struct sock_send *send)
{
    return send->spread && !send->whole && send->request.state == SOCK_ACTIVE;
}

/* ---- what a stream carries next ---- */

static void frame(struct sock_outflow *flow, uint32_t check, uint32_t number, uint64_t offset,
                  uint64_t bytes)
{
    struct xccl_wire wire = xccl_wire_over(flow->header, SOCK_FRAME_BYTES);

    xccl_wire_put_u32(&wire, check);
    xccl_wire_put_u32(&wire, number);
    xccl_wire_put_u64(&wire, offset);
    xccl_wire_put_u64(&wire, bytes);
    flow->moved = 0;
}

static void give(struct sock_sender *sender, int stream, uint32_t number, size_t idx)
{
    struct sock_outflow *flow = &sender->scatter->flows[stream];
    struct sock_send *send = &sender->sends[number % SOCK_SENDS];
    size_t chunk = chunk_of(sender, send), offset = idx * chunk;

    flow->kind = SOCK_OUT_CHUNK;
    flow->send = send;
    flow->data = send->data + offset;
    flow->bytes = send->bytes - offset < chunk ? send->bytes - offset : chunk;
    frame(flow, SOCK_CHUNK_CHECK, number, offset, flow->bytes);
    carried_of(sender, number)[idx] = (uint8_t)(1 + stream);
    send->carriers++;
    sender->scatter->carrying++;
}

/* The next chunk of the oldest message that has one. 0: there is none. */
static int take_chunk(struct sock_sender *sender, int stream)
{
    struct sock_scatter *scatter = sender->scatter;

    for (; scatter->first != sender->posted; scatter->first++) {
        struct sock_send *send = &sender->sends[scatter->first % SOCK_SENDS];
        size_t idx = 0;

        if (!is_open(send))
            continue;
        /* Its announcement would come behind it. */
        if (scatter->control > 0 && send->control_end > scatter->control_sent)
            return 0;
        if (send->again > 0) {
            while (carried_of(sender, scatter->first)[idx])
                idx++;
            send->again--;
        } else if (send->given < send->bytes) {
            idx = send->given / chunk_of(sender, send);
            send->given += chunk_of(sender, send);
            if (send->given > send->bytes)
                send->given = send->bytes;
        } else {
            continue;
        }
        give(sender, stream, scatter->first, idx);
        return 1;
    }
    return 0;
}

static int take_control(const struct sock_sender *sender, struct sock_outflow *flow)
{
    flow->bytes = sock_control_next(sender->scatter, &flow->data);
    if (flow->bytes == 0)
        return 0;
    flow->kind = SOCK_OUT_CONTROL;
    flow->end = sender->scatter->control_sent + flow->bytes;
    frame(flow, SOCK_CONTROL_CHECK, 0, sender->scatter->control_sent, flow->bytes);
    return 1;
}

/* So that a line that has come again meanwhile is not taken for the one that was lost. */
static uint64_t turns_of(const struct sock_comm *comm)
{
    uint64_t turns = 0;

    for (int i = 0; i < comm->line_count; i++)
        turns |= (uint64_t)comm->turns[i] << i * SOCK_TURN_BITS;
    return turns;
}

static int take(struct sock_sender *sender, int stream)
{
    struct sock_outflow *flow = &sender->scatter->flows[stream];

    if (flow->told != sender->scatter->losses) {
        flow->kind = SOCK_OUT_LOST;
        flow->bytes = 0;
        flow->told = sender->scatter->losses;
        frame(flow, SOCK_LOST_CHECK, sender->comm.lost, turns_of(&sender->comm), 0);
        return 1;
    }
    if (sender->scatter->control == 1 + stream && take_control(sender, flow))
        return 1;
    return take_chunk(sender, stream);
}

/* ---- what becomes of it ---- */

static void check_done(struct sock_sender *sender, struct sock_send *send)
{
    if (send->whole && send->carriers == 0)
        sock_send_done(sender, send);
}

static void frame_done(struct sock_sender *sender, struct sock_outflow *flow)
{
    struct sock_send *send = flow->send;

    /* An acknowledgement that came meanwhile may have gone further. */
    if (flow->kind == SOCK_OUT_CONTROL && flow->end > sender->scatter->control_sent)
        sock_control_sent(sender, flow->end);
    flow->kind = SOCK_OUT_NONE;
    flow->send = NULL;
    if (!send)
        return;
    send->carriers--;
    sender->scatter->carrying--;
    check_done(sender, send);
}

void sock_scatter_whole(struct sock_sender *sender, struct sock_send *send)
{
    send->whole = 1;
    sender->scatter->open--;
    check_done(sender, send);
}

/* Chunks with this mark, or all, are not given any more. */
static void take_back(struct sock_sender *sender, uint32_t number, uint8_t mark, int all)
{
    struct sock_scatter *scatter = sender->scatter;
    struct sock_send *send = &sender->sends[number % SOCK_SENDS];
    uint8_t *carried = carried_of(sender, number);
    size_t count = given_count(sender, send);

    for (size_t i = 0; i < count; i++) {
        if (!carried[i] || (carried[i] != mark && !all))
            continue;
        carried[i] = 0;
        send->again++;
    }
    if (send->again > 0 && (int32_t)(number - scatter->first) < 0)
        scatter->first = number;
}

void sock_scatter_again(struct sock_sender *sender, uint32_t number)
{
    struct sock_send *send = &sender->sends[number % SOCK_SENDS];

    if (send->again_asked)
        return;
    send->again_asked = 1;
    take_back(sender, number, 0, 1);
}

void sock_scatter_lost(struct sock_sender *sender, int line)
{
    struct sock_outflow *flow = &sender->scatter->flows[line - 1];
    struct sock_send *send = flow->send;

    flow->kind = SOCK_OUT_NONE;
    flow->send = NULL;
    if (send) {
        send->carriers--;
        sender->scatter->carrying--;
        check_done(sender, send);
    }
    for (uint32_t i = sender->posted - SOCK_SENDS; i != sender->posted; i++) {
        if (is_open(&sender->sends[i % SOCK_SENDS]))
            take_back(sender, i, (uint8_t)line, 0);
    }
}

/* ---- moving ---- */

/* Header and payload in one call, or apart where the payload may be sent from its pages. */
static ssize_t flow_send(struct sock_sender *sender, int stream, size_t *want_out)
{
    struct sock_outflow *flow = &sender->scatter->flows[stream];
    struct sock_line *line = &sender->comm.lines[1 + stream];
    struct iovec iov[2];
    size_t count = 0;
    int apart = flow->kind == SOCK_OUT_CHUNK && sock_zerocopy_takes(line, flow->bytes);
    size_t paid = flow->moved > SOCK_FRAME_BYTES ? flow->moved - SOCK_FRAME_BYTES : 0;

    *want_out = SOCK_FRAME_BYTES + flow->bytes - flow->moved;
    if (apart && flow->moved >= SOCK_FRAME_BYTES)
        return sock_zerocopy_send(&sender->comm, line, flow->data + paid, flow->bytes - paid);
    if (flow->moved < SOCK_FRAME_BYTES)
        iov[count++] = (struct iovec){flow->header + flow->moved, SOCK_FRAME_BYTES - flow->moved};
    if (apart)
        *want_out = SOCK_FRAME_BYTES - flow->moved;
    else if (flow->bytes > paid)
        iov[count++] = (struct iovec){(void *)(uintptr_t)(flow->data + paid), flow->bytes - paid};
    return sock_line_send(&sender->comm, 1 + stream, iov, count, apart ? MSG_MORE : 0);
}

/* One write. Returns 1 when the stream may take more. */
static int flow_write(struct sock_sender *sender, int stream)
{
    struct sock_outflow *flow = &sender->scatter->flows[stream];
    size_t want;
    ssize_t sent;

    if (flow->kind == SOCK_OUT_NONE && !take(sender, stream)) {
        sock_comm_full(&sender->comm, 1 + stream, 0);
        return 0;
    }
    do
        sent = flow_send(sender, stream, &want);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
        sock_line_lost(sender, 1 + stream, errno);
        return 0;
    }
    if (sent > 0)
        flow->moved += (size_t)sent;
    sock_comm_full(&sender->comm, 1 + stream, sent < 0 || (size_t)sent < want);
    if (sent < 0 || (size_t)sent < want)
        return 0;
    if (flow->moved == SOCK_FRAME_BYTES + flow->bytes)
        frame_done(sender, flow);
    return 1;
}

/* Streams take turns, a frame each, until all are full or nothing is left. */
static void write_streams(struct sock_sender *sender)
{
    uint32_t count = (uint32_t)sender->comm.line_count - 1, able = (1u << count) - 1;

    while (able && sender->comm.rc == xcclSuccess) {
        uint32_t stream = sender->scatter->turn;

        sender->scatter->turn = (stream + 1) % count;
        if (able & 1u << stream &&
            (sender->comm.lines[1 + stream].fd < 0 || sender->comm.unproven & 2u << stream ||
             !flow_write(sender, (int)stream)))
            able &= ~(1u << stream);
    }
}

/* 1: acknowledgements are waited for. */
static int is_owed(const struct sock_scatter *scatter)
{
    return scatter->open > 0 || (scatter->late && scatter->control_first != scatter->control_end) ||
           scatter->control_end - scatter->control_first > SOCK_RING_BYTES / 2 ||
           (scatter->control > 0 && scatter->control_first != scatter->control_end);
}

static void read_acks(struct sock_sender *sender)
{
    int line = sender->scatter->control;
    int err = sock_ack_read(sender, line);

    if (err)
        sock_line_lost(sender, line, err == ESHUTDOWN ? 0 : err);
    /* The first one on a line that has come again lets it work. */
    for (int i = 1; i < sender->comm.line_count && sender->comm.unproven; i++) {
        if (sender->comm.lines[i].fd >= 0 && sender->comm.unproven & 1u << i)
            (void)sock_ack_read(sender, i);
    }
}

/* Who sleeps is woken by what comes on any line, so it must not stay there. */
static void empty_lines(struct sock_sender *sender)
{
    for (int i = 0; i < sender->comm.line_count && sender->comm.rc == xcclSuccess; i++) {
        struct sock_line *line = &sender->comm.lines[i];
        int err = 0;

        if (line->fd < 0)
            continue;
        if (line->has_pages)
            sock_zerocopy_drain(&sender->comm, line);
        if (i != sender->scatter->control)
            err = sock_ack_read(sender, i);
        /* An end would wake again and again, too. */
        if (err)
            sock_line_lost(sender, i, err == ESHUTDOWN ? 0 : err);
    }
}

void sock_scatter_progress(struct sock_sender *sender)
{
    struct sock_scatter *scatter = sender->scatter;

    if (scatter->control == 0)
        sock_control_write(sender);
    if (sender->comm.rc == xcclSuccess && is_owed(scatter))
        read_acks(sender);
    if (sender->comm.rc == xcclSuccess && sender->comm.wait_fd >= 0)
        empty_lines(sender);
    /* After a loss a message may be whole before the copy of one of its chunks has left. */
    if (sender->comm.rc == xcclSuccess &&
        (scatter->open > 0 || scatter->control > 0 || scatter->carrying > 0))
        write_streams(sender);
    if (sender->comm.rc == xcclSuccess && (is_owed(scatter) || sender->comm.lines[0].full))
        sock_line_look(sender);
}
