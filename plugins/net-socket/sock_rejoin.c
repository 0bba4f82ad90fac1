/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams that were lost come again. The sender connects anew once a second, the same way as the
 * first time and no other, so that a line comes back with its path. Its opening has the next turn
 * of that line. The receiver keeps the ports open for it, in the comm; they end with it. It answers
 * on the line with an acknowledgement, before which the sender gives nothing to it: a connection
 * may wait at a port where nobody looks any more. Line 0 does not come again: streams do what it
 * did.
 *
 * Strangers who come to the door of a comm that is up are dropped as before (sock_listen.c).
 *
 * Thread: one at a time a comm. Nothing here locks, and only the ciphers of a line that comes again
 * are allocated; it happens a few times a second, while something is waited for. */
#include "sock_int.h"

#include <errno.h>

#include "base/tcp.h"

#define PAUSE_NS   XCCL_NS_PER_S
#define PROOF_NS   (5 * XCCL_NS_PER_S)
#define DOOR_POLLS 64 /* calls between two looks at the clock */
#define DOOR_NS    (50 * XCCL_NS_PER_MS)

/* ---- sender ---- */

static void begin(struct sock_sender *sender, int idx, uint64_t now_ns)
{
    struct sock_connect *state = sender->scatter->connect;
    struct sock_connect_line *line = &state->lines[idx];

    if (now_ns - line->since_ns < PAUSE_NS)
        return;
    /* A turn that no opening has named is used once more. */
    if (line->greeting.stage > KIT_BEGIN)
        line->turn = (line->turn + 1) % SOCK_TURNS;
    line->again = 1;
    (void)sock_connect_start(state, idx);
}

static void go_on(struct sock_sender *sender, int idx, uint64_t now_ns)
{
    struct sock_connect *state = sender->scatter->connect;
    struct sock_connect_line *line = &state->lines[idx];
    int done = 0, fd = line->fd;
    xcclResult_t rc = sock_connect_line(state, idx, &done);

    if (rc != xcclSuccess || (!done && now_ns - line->since_ns > 4 * PAUSE_NS))
        xccl_tcp_close(&line->fd);
    if (!done)
        return;
    line->fd = -1;
    if (!sock_comm_secure(&sender->comm, idx, &line->greeting.proof)) {
        xccl_tcp_close(&fd); /* the line stays lost, and comes again */
        return;
    }
    sender->comm.turns[idx] = line->turn;
    sender->scatter->flows[idx - 1] = (struct sock_outflow){.kind = SOCK_OUT_NONE};
    sender->scatter->inboxes[idx].have = 0;
    sock_comm_line(&sender->comm, idx, fd, sock_connect_addr(state, idx));
    sender->comm.unproven |= 1u << idx;
}

void sock_rejoin_send(struct sock_sender *sender)
{
    struct sock_comm *comm = &sender->comm;
    uint64_t now_ns = xccl_clock_ns();

    if (!sender->scatter->connect || comm->rc != xcclSuccess)
        return;
    for (int i = 1; i < comm->line_count && comm->rc == xcclSuccess; i++) {
        if (comm->unproven & 1u << i &&
            now_ns - sender->scatter->connect->lines[i].since_ns > PROOF_NS)
            sock_line_lost(sender, i, ETIMEDOUT);
        if (!(comm->lost & 1u << i))
            continue;
        if (sender->scatter->connect->lines[i].fd < 0)
            begin(sender, i, now_ns);
        else
            go_on(sender, i, now_ns);
    }
}

/* ---- receiver ---- */

/* The one before is left, if this end still had it. */
static void take(struct sock_receiver *receiver, struct sock_listen *door, int idx)
{
    sock_collect_lost(receiver, idx, 0);
    if (!sock_comm_secure(&receiver->comm, idx, &door->proofs[idx])) {
        xccl_tcp_close(&door->lines[idx]); /* the sender comes again */
        return;
    }
    receiver->collect->copies = 1;
    receiver->comm.turns[idx] = door->turns[idx];
    receiver->collect->flows[idx - 1] = (struct sock_inflow){.kind = SOCK_IN_HEADER};
    receiver->collect->outboxes[idx].left = 0;
    sock_comm_line(&receiver->comm, idx, door->lines[idx], &door->peer);
    door->lines[idx] = -1;
    sock_ack_prove(receiver, idx);
}

void sock_rejoin_look(struct sock_receiver *receiver)
{
    struct sock_listen *door = receiver->collect->door;
    int came = 0;

    if (!door)
        return;
    /* No descriptor is left: who sleeps must not be woken for it again and again. */
    if (sock_listen_poll(door, &came) != xcclSuccess)
        sock_listen_watch(door, -1);
    if (!came)
        return;
    for (int i = 0; i < receiver->comm.line_count; i++) {
        if (door->lines[i] < 0)
            continue;
        if (i > 0)
            take(receiver, door, i);
        else
            xccl_tcp_close(&door->lines[i]);
    }
}

void sock_rejoin_recv(struct sock_receiver *receiver)
{
    struct sock_collect *collect = receiver->collect;
    uint64_t now_ns;

    int asleep = receiver->comm.wait_fd >= 0; /* now and then: it is not called without a reason */

    if (!collect->door || (!asleep && ++collect->polls % DOOR_POLLS))
        return;
    now_ns = xccl_clock_ns();
    /* Who is at the door wakes a sleeper until he is looked at. */
    if (now_ns < receiver->comm.look_ns && !(asleep && receiver->comm.lost))
        return;
    receiver->comm.look_ns = now_ns + DOOR_NS;
    sock_rejoin_look(receiver);
}
