/* SPDX-License-Identifier: BSD-3-Clause */
/* A sender's line is lost: closed by the peer, broken, or its path is silent while another's is
 * not. The other lines take over what it had:
 *
 *   a stream   its chunks are given once more, to the others
 *   line 0     what the receiver has not used up goes on as frames on the first stream
 *
 * Each stream tells the receiver of the loss before anything else, so that no byte of the lost line
 * is placed after its chunk has come another way. The comm fails when no stream is left, or, with
 * XCCL_SOCKET_FAILOVER=0, with the first line.
 *
 * A line that is silent but alone so waits for XCCL_SOCKET_SILENCE_S.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs. */
#include "sock_int.h"

#include <errno.h>

#include "base/tcp.h"

#define LOOK_NS        (200 * XCCL_NS_PER_MS)
#define LATE_NS        (1500 * XCCL_NS_PER_MS) /* who sleeps looks once a second */
#define SILENT_LINE_MS 1000 /* while another is not silent */
#define WAITING_MS     700 /* so that a second look follows before it is too long */

/* One that the receiver has not answered on since it came again is the last choice: it is given up
 * soon when no answer comes. 0: none is left. */
static int stream_left(const struct sock_comm *comm)
{
    int last = 0;

    for (int i = 1; i < comm->line_count; i++) {
        if (comm->lines[i].fd >= 0 && !(comm->unproven & 1u << i))
            return i;
        if (comm->lines[i].fd >= 0)
            last = i;
    }
    return last;
}

/* Sends from the first byte again that may not have come. */
static void move_control(struct sock_sender *sender, int line)
{
    struct sock_scatter *scatter = sender->scatter;

    scatter->control = line;
    scatter->control_sent = scatter->control_first;
    sender->comm.lines[line].zero = SOCK_ZERO_OFF; /* its bytes may have to arrive after close */
    sender->comm.lines[0].full = 0; /* it is not asked for room any more */
}

void sock_line_lost(struct sock_sender *sender, int line, int err)
{
    struct sock_comm *comm = &sender->comm;
    int other;

    if (comm->rc != xcclSuccess || comm->lines[line].fd < 0)
        return;
    /* What the peer said before it went still counts. */
    (void)sock_ack_read(sender, line);
    if (comm->lines[line].has_pages)
        xccl_tcp_reset_on_close(comm->lines[line].fd);
    xccl_tcp_close(&comm->lines[line].fd);
    comm->lost |= 1u << line;
    comm->unproven &= ~(1u << line);
    sender->scatter->losses++;
    if (line > 0)
        sock_scatter_lost(sender, line);
    other = stream_left(comm);
    /* A receiver that has all may go: what it said before on another line counts as well. */
    for (int i = 0; i < comm->line_count && (!comm->ctx->failover || !other); i++) {
        if (comm->lines[i].fd >= 0)
            (void)sock_ack_read(sender, i);
    }
    if (!comm->ctx->failover || !other)
        sock_comm_fail_errno(comm, err ? err : ECONNRESET);
    else if (line == sender->scatter->control)
        move_control(sender, other);
}

/* Of each line. That data wait counts from the second look on. */
static void silences_read(struct sock_comm *comm, uint32_t ms_out[SOCK_LINES_MAX])
{
    uint32_t waiting = 0;

    for (int i = 0; i < comm->line_count; i++) {
        struct sock_silence silence = {0};

        if (comm->lines[i].fd >= 0)
            sock_path_silence(comm->lines[i].fd, &silence);
        ms_out[i] = silence.asked_ms;
        if (comm->waiting & 1u << i && silence.waits_ms > silence.asked_ms)
            ms_out[i] = silence.waits_ms;
        waiting |= silence.waits_ms >= WAITING_MS ? 1u << i : 0;
    }
    comm->waiting = waiting;
}

static void look_at_several(struct sock_sender *sender)
{
    struct sock_comm *comm = &sender->comm;
    uint32_t quiet = 0, alive = 0, silent_ms[SOCK_LINES_MAX];

    for (int i = 0; i < comm->line_count && comm->rc == xcclSuccess; i++) {
        int err = comm->lines[i].fd >= 0 ? sock_ack_read(sender, i) : 0;

        if (err)
            sock_line_lost(sender, i, err == ESHUTDOWN ? 0 : err);
    }
    silences_read(comm, silent_ms);
    for (int i = 0; i < comm->line_count; i++) {
        alive |= comm->lines[i].fd >= 0 ? 1u << i & ~comm->unproven : 0;
        quiet |= silent_ms[i] >= SILENT_LINE_MS ? 1u << i : 0;
    }
    for (int i = 0; i < comm->line_count && comm->rc == xcclSuccess; i++) {
        /* Line 0 alone can take over nothing. */
        int other = ((alive & ~quiet) & ~1u) != 0;

        if (quiet & 1u << i && (other || silent_ms[i] >= comm->ctx->silence_ms))
            sock_line_lost(sender, i, ETIMEDOUT);
    }
}

static void look_at_one(struct sock_comm *comm)
{
    uint32_t silent_ms[SOCK_LINES_MAX] = {0};

    silences_read(comm, silent_ms);
    if (silent_ms[0] >= comm->ctx->silence_ms)
        sock_comm_fail_errno(comm, ETIMEDOUT);
}

void sock_line_look(struct sock_sender *sender)
{
    struct sock_comm *comm = &sender->comm;
    uint64_t now_ns = xccl_clock_ns();

    if (now_ns < comm->look_ns)
        return;
    if (now_ns > comm->look_ns + LATE_NS)
        comm->waiting = 0; /* this host stood still, or nobody has looked: it begins anew */
    comm->look_ns = now_ns + LOOK_NS;
    if (sender->scatter) {
        look_at_several(sender);
        sock_rejoin_send(sender);
    } else {
        look_at_one(comm);
    }
}
