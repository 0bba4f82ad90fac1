/* SPDX-License-Identifier: BSD-3-Clause */
/* Payload over several streams: the receiver's side. A header on line 0 opens a message; from then
 * on its chunks are read from any stream, straight to where they belong. A chunk whose message is
 * not open yet waits in its stream, and with it what comes behind.
 *
 * After a line was lost the sender gives its chunks to other streams, so a chunk may come twice;
 * what comes after its message is whole is read and dropped. Then a stream can also wait for good:
 * what is missing lies behind the chunk that waits. When nothing at all has come for STUCK_NS while
 * a receive wants something, the chunks that wait are dropped, and asked for again once their
 * message is announced (sock_ack.c).
 *
 * Nothing from the wire is used before it is checked: the number names an open message, offset and
 * length are those of one of its chunks.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs. */
#include "sock_record.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/tcp.h"
#include "base/wire.h"

#define STUCK_NS   (500 * XCCL_NS_PER_MS)
#define IDLE_POLLS 64 /* one of so many looks at the streams though no message is open */

enum verdict { FRAME_WAITS, FRAME_BEGINS, FRAME_OVER, FRAME_WRONG };

static void bit_set(uint64_t *words, uint32_t number)
{
    words[number % SOCK_SENDS / 64] |= UINT64_C(1) << (number % 64);
}

/* 1: it was set, and is no more. */
static int bit_take(uint64_t *words, uint32_t number)
{
    uint64_t *word = &words[number % SOCK_SENDS / 64], mask = UINT64_C(1) << (number % 64);
    int was = (*word & mask) != 0;

    *word &= ~mask;
    return was;
}

/* ---- messages ---- */

int sock_collect_open(struct sock_receiver *receiver, uint32_t number, struct sock_recv *recv,
                      struct sock_part *part)
{
    struct sock_collect *collect = receiver->collect;
    struct sock_open *open = &collect->opens[number % SOCK_SENDS];

    /* Receives in flight bound the messages that are open, so a place is free unless this end has a
     * mistake; and only a large message is spread. */
    if (open->recv || part->bytes <= SOCK_OWN_MAX) {
        sock_recv_damaged(receiver, "the chunks", number);
        return 0;
    }
    memset(open->have, 0, sizeof(open->have));
    open->recv = recv;
    open->part = part;
    open->number = number;
    open->left = part->bytes;
    open->chunk_bytes = sock_chunk_bytes(part->bytes, receiver->comm.line_count - 1);
    collect->count++;
    if (bit_take(collect->torn, number)) {
        bit_set(collect->again, number);
        collect->ack_due = 1;
    }
    return 1;
}

void sock_collect_whole(struct sock_receiver *receiver, uint32_t number)
{
    struct sock_collect *collect = receiver->collect;

    bit_set(collect->whole, number);
    (void)bit_take(collect->again, number);
    (void)bit_take(collect->torn, number);
    while (bit_take(collect->whole, collect->whole_first))
        collect->whole_first++;
}

/* The rest of what still comes for it goes nowhere. */
static void message_whole(struct sock_receiver *receiver, struct sock_open *open)
{
    struct sock_recv *recv = open->recv;

    for (int i = 0; i < receiver->comm.line_count - 1; i++) {
        struct sock_inflow *flow = &receiver->collect->flows[i];

        if (flow->kind == SOCK_IN_CHUNK && flow->open == open)
            flow->kind = SOCK_IN_DROP;
    }
    open->recv = NULL;
    receiver->collect->count--;
    receiver->collect->ack_due = 1;
    sock_collect_whole(receiver, open->number);
    sock_recv_done(receiver, recv, open->part->bytes);
}

/* ---- lines that are lost ---- */

void sock_collect_lost(struct sock_receiver *receiver, int line, int err)
{
    struct sock_comm *comm = &receiver->comm;

    if (comm->lines[line].fd < 0)
        return;
    if (!comm->lost)
        receiver->collect->lost_errno = err;
    xccl_tcp_close(&comm->lines[line].fd);
    comm->lost |= 1u << line;
    if (line == 0) {
        receiver->owed = 0;
        return;
    }
    receiver->collect->flows[line - 1].kind = SOCK_IN_HEADER;
    receiver->collect->flows[line - 1].left = 0;
    receiver->collect->flows[line - 1].waits = 0;
}

/* Fails the comm when what the receives wait for cannot come any more. */
static void check_hope(struct sock_receiver *receiver)
{
    struct sock_comm *comm = &receiver->comm;
    const struct sock_collect *collect = receiver->collect;
    uint32_t streams = ((1u << comm->line_count) - 1) & ~1u;
    int wants_line_0 = receiver->current != receiver->posted;

    if ((comm->lost & streams) != streams ||
        (collect->count == 0 && (!(comm->lost & 1u) || !wants_line_0)))
        return;
    /* One may be at the door. */
    sock_rejoin_look(receiver);
    if ((comm->lost & streams) != streams)
        return;
    if (collect->lost_errno)
        sock_comm_fail_errno(comm, collect->lost_errno);
    else
        sock_recv_closed(receiver);
}

/* ---- frames ---- */

static enum verdict chunk_begin(struct sock_receiver *receiver, struct sock_inflow *flow,
                                uint32_t number)
{
    struct sock_open *open = &receiver->collect->opens[number % SOCK_SENDS];
    uint64_t bytes = flow->bytes, want;

    if (!open->recv || open->number != number) {
        if (number - receiver->message < SOCK_SENDS)
            return FRAME_WAITS;
        /* A copy of what has come already; a slow line may bring it after any number of others. */
        if (!receiver->collect->copies || (int32_t)(receiver->message - number) <= 0)
            return FRAME_WRONG;
        flow->kind = SOCK_IN_DROP;
        return FRAME_BEGINS;
    }
    if (flow->offset >= open->part->bytes || flow->offset % open->chunk_bytes)
        return FRAME_WRONG;
    want = open->part->bytes - flow->offset;
    if (want > open->chunk_bytes)
        want = open->chunk_bytes;
    if (bytes != want)
        return FRAME_WRONG;
    receiver->collect->dropping = 0;
    flow->kind = SOCK_IN_CHUNK;
    flow->open = open;
    flow->data = open->part->data + flow->offset;
    return FRAME_BEGINS;
}

static enum verdict lost_begin(struct sock_receiver *receiver, int stream, uint32_t lines)
{
    const struct sock_inflow *flow = &receiver->collect->flows[stream];
    struct sock_comm *comm = &receiver->comm;

    if (lines >> comm->line_count || lines & 1u << (1 + stream) || flow->bytes)
        return FRAME_WRONG;
    receiver->collect->copies = 1;
    for (int i = 0; i < comm->line_count; i++) {
        uint32_t turn = (uint32_t)(flow->offset >> i * SOCK_TURN_BITS) % SOCK_TURNS;

        if (lines & 1u << i && turn == comm->turns[i])
            sock_collect_lost(receiver, i, ECONNABORTED);
    }
    return FRAME_OVER;
}

static enum verdict control_begin(struct sock_receiver *receiver, int stream)
{
    struct sock_collect *collect = receiver->collect;
    struct sock_inflow *flow = &collect->flows[stream];

    /* Its loss was told before. */
    if (!(receiver->comm.lost & 1u) || flow->bytes == 0 || flow->bytes > SOCK_CONTROL_MAX ||
        flow->offset > collect->control_read)
        return FRAME_WRONG;
    if (collect->control != 1 + stream) {
        collect->control = 1 + stream;
        collect->ack_due = 1;
    }
    collect->dropping = 0;
    flow->kind = SOCK_IN_CONTROL;
    flow->data = collect->control_bytes;
    return FRAME_BEGINS;
}

/* Looks at a complete header. */
static enum verdict frame_begin(struct sock_receiver *receiver, int stream)
{
    struct sock_inflow *flow = &receiver->collect->flows[stream];
    struct xccl_wire wire = xccl_wire_over(flow->header, SOCK_FRAME_BYTES);
    uint32_t check = xccl_wire_get_u32(&wire), number = xccl_wire_get_u32(&wire);
    enum verdict verdict = FRAME_WRONG;

    flow->offset = xccl_wire_get_u64(&wire);
    flow->bytes = (size_t)xccl_wire_get_u64(&wire);
    if (check == SOCK_CHUNK_CHECK && flow->bytes <= SOCK_MESSAGE_MAX)
        verdict = chunk_begin(receiver, flow, number);
    else if (check == SOCK_LOST_CHECK)
        verdict = lost_begin(receiver, stream, number);
    else if (check == SOCK_CONTROL_CHECK)
        verdict = control_begin(receiver, stream);
    flow->waits = verdict == FRAME_WAITS;
    if (verdict == FRAME_BEGINS || verdict == FRAME_OVER)
        flow->have = 0;
    if (verdict == FRAME_BEGINS)
        flow->left = flow->bytes;
    return verdict;
}

/* What has come before on another line is skipped. */
static void control_end(struct sock_receiver *receiver, const struct sock_inflow *flow)
{
    struct sock_collect *collect = receiver->collect;
    uint64_t end = flow->offset + flow->bytes;
    size_t fresh = end > collect->control_read ? (size_t)(end - collect->control_read) : 0;

    if (fresh && !sock_recv_feed(receiver, collect->control_bytes + flow->bytes - fresh, fresh))
        sock_recv_damaged(receiver, "too much instead", receiver->message);
}

static void chunk_end(struct sock_receiver *receiver, const struct sock_inflow *flow)
{
    struct sock_open *open = flow->open;
    uint64_t idx = flow->offset / open->chunk_bytes;
    uint64_t *word = &open->have[idx / 64], mask = UINT64_C(1) << (idx % 64);

    if (*word & mask)
        return;
    *word |= mask;
    open->left -= flow->bytes;
    if (open->left == 0)
        message_whole(receiver, open);
}

static void frame_end(struct sock_receiver *receiver, struct sock_inflow *flow)
{
    struct sock_inflow ended = *flow;

    flow->kind = SOCK_IN_HEADER;
    if (ended.kind == SOCK_IN_CHUNK)
        chunk_end(receiver, &ended);
    else if (ended.kind == SOCK_IN_CONTROL)
        control_end(receiver, &ended);
}

/* ---- reading ---- */

/* Bytes that came: the rest of the frame, then the next header. */
static void flow_account(struct sock_receiver *receiver, struct sock_inflow *flow, size_t got)
{
    size_t paid = flow->left < got ? flow->left : got;

    /* Where a chunk is dropped there is nothing to add to. */
    if (paid > 0 && flow->kind != SOCK_IN_DROP)
        flow->data += paid;
    flow->left -= paid;
    flow->have += got - paid;
    if (flow->kind != SOCK_IN_HEADER && flow->left == 0)
        frame_end(receiver, flow);
}

/* Where the next bytes go. Returns how many are wanted. */
static size_t flow_prepare(struct sock_receiver *receiver, struct sock_inflow *flow,
                           struct msghdr *message, char *scratch, size_t scratch_bytes)
{
    struct iovec *iov = message->msg_iov;
    size_t want = flow->left;

    (void)receiver;
    if (flow->kind == SOCK_IN_DROP && want > scratch_bytes) {
        iov[message->msg_iovlen++] = (struct iovec){scratch, scratch_bytes};
        return scratch_bytes;
    }
    if (want > 0)
        iov[message->msg_iovlen++] = (struct iovec){
            flow->kind == SOCK_IN_DROP ? scratch : flow->data, want};
    iov[message->msg_iovlen++] = (struct iovec){flow->header + flow->have,
                                                SOCK_FRAME_BYTES - flow->have};
    return want + SOCK_FRAME_BYTES - flow->have;
}

/* One read. Returns 1 when there may be more. */
static int flow_read(struct sock_receiver *receiver, int stream, size_t *got_out)
{
    struct sock_inflow *flow = &receiver->collect->flows[stream];
    struct iovec iov[2];
    struct msghdr message = {.msg_iov = iov};
    char scratch[4096];
    size_t want = flow_prepare(receiver, flow, &message, scratch, sizeof(scratch));
    ssize_t got;

    got = sock_line_recv(&receiver->comm, 1 + stream, iov, message.msg_iovlen, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (got <= 0) {
        sock_collect_lost(receiver, 1 + stream, got < 0 ? errno : 0);
        return 0;
    }
    *got_out += (size_t)got;
    flow_account(receiver, flow, (size_t)got);
    return (size_t)got == want || sock_line_holds(&receiver->comm, 1 + stream);
}

static void drop(struct sock_collect *collect, struct sock_inflow *flow)
{
    struct xccl_wire wire = xccl_wire_over(flow->header + sizeof(uint32_t), sizeof(uint32_t));

    bit_set(collect->torn, xccl_wire_get_u32(&wire));
    collect->copies = 1;
    flow->waits = 0;
    flow->kind = SOCK_IN_DROP;
    flow->left = flow->bytes;
    flow->have = 0;
}

/* A frame at most. Returns 1 when there may be more. */
static int flow_step(struct sock_receiver *receiver, int stream, size_t *got_out)
{
    struct sock_inflow *flow = &receiver->collect->flows[stream];

    if (receiver->comm.lines[1 + stream].fd < 0)
        return 0;
    if (flow->kind == SOCK_IN_HEADER && flow->have == SOCK_FRAME_BYTES) {
        enum verdict verdict = frame_begin(receiver, stream);

        if (verdict == FRAME_WRONG)
            sock_recv_damaged(receiver, "a chunk", receiver->message);
        if (verdict == FRAME_WAITS && receiver->collect->dropping)
            drop(receiver->collect, flow);
        else if (verdict == FRAME_WRONG || verdict == FRAME_WAITS)
            return 0;
    }
    return flow_read(receiver, stream, got_out);
}

/* Nothing came in this call. When all lines wait or are lost, what is missing can only lie behind
 * the chunks that wait. */
static void check_stuck(struct sock_receiver *receiver)
{
    struct sock_collect *collect = receiver->collect;
    int waits = 0, silent = receiver->comm.lines[0].fd >= 0;
    uint64_t now_ns;

    for (int i = 0; i < receiver->comm.line_count - 1; i++) {
        waits += collect->flows[i].waits;
        silent += !collect->flows[i].waits && receiver->comm.lines[1 + i].fd >= 0;
    }
    if (!waits)
        return;
    now_ns = xccl_clock_ns();
    if (!collect->stuck_ns)
        collect->stuck_ns = now_ns;
    if (silent && now_ns - collect->stuck_ns < STUCK_NS)
        return;
    collect->dropping = 1;
    collect->stuck_ns = 0;
}

/* Before a message is open the streams bring something only after a loss. */
static int is_wanted(struct sock_receiver *receiver)
{
    struct sock_collect *collect = receiver->collect;

    return collect->count > 0 || receiver->comm.lost || ++collect->idle_polls % IDLE_POLLS == 0;
}

/* Losses that have been told and not been looked at: the acknowledgement that follows must not go
 * into a line that the sender has left, for this end may not be called again. */
static void hear_losses(struct sock_receiver *receiver)
{
    for (int i = 0; i < receiver->comm.line_count - 1; i++) {
        struct sock_inflow *flow = &receiver->collect->flows[i];
        struct xccl_wire wire = xccl_wire_over(flow->header, sizeof(uint32_t));

        if (receiver->comm.lines[1 + i].fd >= 0 && flow->kind == SOCK_IN_HEADER &&
            flow->have == SOCK_FRAME_BYTES && xccl_wire_get_u32(&wire) == SOCK_LOST_CHECK &&
            frame_begin(receiver, i) == FRAME_WRONG)
            sock_recv_damaged(receiver, "a chunk", receiver->message);
    }
}

void sock_collect_progress(struct sock_receiver *receiver, size_t *got_out)
{
    int count = receiver->comm.line_count - 1;
    uint32_t able = (1u << count) - 1;

    if (!is_wanted(receiver))
        return;
    while (able && (*got_out < SOCK_MOVE_BYTES || receiver->comm.ctx->encrypt)) {
        for (int i = 0; i < count; i++) {
            if (receiver->comm.rc != xcclSuccess)
                return;
            /* The kernel wakes nobody for what a line holds, so that is read whatever came. */
            if (able & 1u << i &&
                ((*got_out >= SOCK_MOVE_BYTES && !sock_line_holds(&receiver->comm, 1 + i)) ||
                 !flow_step(receiver, i, got_out)))
                able &= ~(1u << i);
        }
        /* What the caller wanted is there; the rest may wait until it wants more. */
        if (receiver->collect->count == 0 && receiver->current == receiver->posted) {
            hear_losses(receiver);
            return;
        }
    }
    if (receiver->comm.rc != xcclSuccess)
        return;
    if (*got_out > 0)
        receiver->collect->stuck_ns = 0;
    else
        check_stuck(receiver);
    check_hope(receiver);
}
