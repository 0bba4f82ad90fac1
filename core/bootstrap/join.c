/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining: once a root has told where the next rank listens (root_link.c), all addresses spread in
 * rounds:
 *
 *   round k: r+2^k pushes the addresses of ranks r+2^k+1 to r+2^(k+1) to r, once it has those of
 *            rounds 0 to k-1; r has connected to it, since it knows where it listens by then
 *
 * Addresses go one way on each connection; the other way carries ERROR only. Afterwards messages go
 * the same way over it (mail.c); the connections of round 0 are the ring. A split's child knows all
 * addresses and makes the ring only.
 *
 * Thread: callbacks of the service thread, or any with the loop's lock. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/wire.h"
#include "bootstrap/bootstrap_int.h"

#define PIECE_BYTES   (60u << 10)
#define FRAMES_A_TURN 16

/* --- the rounds --- */

static void round_close(struct xccl_boot_round *round)
{
    xccl_loop_remove(&round->source);
    xccl_conn_close(round->conn);
    round->conn = NULL;
}

static void round_watch(struct xccl_boot_round *round, uint32_t events)
{
    xcclResult_t rc = xccl_boot_watch(round->boot, &round->source, round->conn, events);

    if (rc)
        xccl_boot_fail_peer(round->boot, rc, round->rank, round->conn);
}

/* A connection of the ring is proven: both ends say who they are, and that they run. */
static void ring_begin(struct xccl_boot_round *round)
{
    if (round->round == 0)
        xccl_loop_set_timer(&round->source, xccl_alive_begin(&round->alive, round->conn,
                                                             (uint32_t)round->boot->rank));
}

/* Where byte offset of this round's block lies in the list of addresses, and how many bytes from
 * there on lie in one piece. A block of rank r begins with the address of rank r + 1. */
static uint8_t *block_at(const struct xccl_bootstrap *boot, int rank, uint64_t offset,
                         uint64_t *in_row_out)
{
    uint64_t all = (uint64_t)boot->nranks * XCCL_ADDR_WIRE_BYTES;
    uint64_t at = ((uint64_t)rank + 1) * XCCL_ADDR_WIRE_BYTES + offset;

    at %= all;
    *in_row_out = all - at;
    return boot->addrs + at;
}

/* A piece of the block that this round takes. */
static void round_on_addrs(struct xccl_boot_round *round, const struct xccl_frame *frame)
{
    struct xccl_bootstrap *boot = round->boot;
    struct xccl_wire wire = xccl_wire_over((void *)(uintptr_t)frame->body, frame->bytes);
    uint64_t offset = xccl_wire_get_u64(&wire), in_row = 0;

    if (wire.bad || offset != round->moved || xccl_wire_left(&wire) > round->total - offset ||
        !xccl_wire_left(&wire)) {
        xccl_boot_raise_at(boot, XCCL_TROUBLE_BOOT_ADDRESSES, round->rank, round->conn, 0);
        return;
    }
    while (xccl_wire_left(&wire)) {
        uint8_t *to = block_at(boot, round->rank, round->moved, &in_row);
        uint64_t bytes = xccl_wire_left(&wire) < in_row ? xccl_wire_left(&wire) : in_row;

        xccl_wire_get(&wire, to, bytes);
        round->moved += bytes;
    }
    round->done = round->moved == round->total;
}

/* A frame that nobody waits for, or the end of one who should go on. */
static void round_not_due(struct xccl_boot_round *round, const struct xccl_frame *frame)
{
    if (frame->final)
        xccl_boot_raise_at(round->boot, XCCL_TROUBLE_BOOT_END, round->rank, round->conn, 0);
    else
        xccl_boot_raise_at(round->boot, XCCL_TROUBLE_BOOT_MESSAGE, round->rank, round->conn,
                           frame->type);
}

/* Leaves a frame, and all that follows, in the connection for whoever takes the ring. Signs of life
 * are sent until then. */
static void ring_keep(struct xccl_boot_round *round, const struct xccl_frame *frame)
{
    uint64_t timer_ns = round->source.timer_ns;

    if (!frame->final)
        xccl_conn_give_back(round->conn, frame);
    round->kept = 1;
    xccl_loop_remove(&round->source);
    round->source.fd = -1;
    round->source.events = 0;
    round->source.timer_ns = timer_ns;
    if (frame->final || xccl_loop_add(round->boot->loop, &round->source))
        round->source.timer_ns = XCCL_NEVER_NS; /* only the signs would be missed */
}

/* Takes a frame that is not part of the list of addresses. 1: it was one. */
static int ring_take(struct xccl_boot_round *round, const struct xccl_frame *frame)
{
    if (round->round != 0 || frame->final)
        return 0;
    if (frame->type == XCCL_BOOT_ALIVE)
        return xccl_alive_take(&round->alive, frame) == 0;
    if (frame->type == XCCL_BOOT_HEARTBEAT)
        return 1;
    if (frame->type == XCCL_BOOT_NOTICE && xccl_boot_take_notice(round->boot, frame))
        ring_keep(round, frame);
    return frame->type == XCCL_BOOT_NOTICE;
}

/* Takes one frame. 0: there is none, or nothing more is wanted. */
static int round_take_one(struct xccl_boot_round *round)
{
    struct xccl_bootstrap *boot = round->boot;
    struct xccl_frame frame;
    int got = 0;
    xcclResult_t rc = xccl_conn_take_frame(round->conn, &frame, &got);

    if (rc) {
        xccl_boot_fail_peer(boot, rc, round->rank, round->conn);
        xccl_loop_remove(&round->source);
        return 0;
    }
    if (!got)
        return 0;
    xccl_alive_hear(&round->alive);
    if (ring_take(round, &frame))
        return boot->state != XCCL_BOOT_FAILED;
    if (!frame.final && frame.type == XCCL_BOOT_ERROR)
        xccl_boot_fail_told(boot, &frame, round->conn);
    else if (!frame.final && frame.type == XCCL_BOOT_ADDRS && !round->give && !round->done)
        round_on_addrs(round, &frame);
    else if (boot->rc)
        xccl_loop_remove(&round->source); /* it says no more */
    else if (!round->done)
        round_not_due(round, &frame);
    else
        ring_keep(round, &frame);
    return !boot->rc && round->conn && !round->done;
}

/* The other end of a connection that this rank has made is proven. */
static void round_proven(struct xccl_boot_round *round)
{
    struct xccl_bootstrap *boot = round->boot;
    const struct xccl_hello *other = xccl_conn_hello(round->conn);

    /* Who was split off listens before it knows its rank; but only it has the right secret there.
     */
    if (!boot->has_parent &&
        (other->rank != (uint32_t)round->rank || other->nranks != (uint32_t)boot->nranks)) {
        xccl_boot_fail(boot, xcclRemoteError,
                       "rank %u of %u answers at %s instead of rank %d of %d; check whether "
                       "addresses are translated between the hosts, and set XCCL_SOCKET_IFNAME",
                       other->rank, other->nranks, xccl_conn_peer_text(round->conn), round->rank,
                       boot->nranks);
        return;
    }
    xccl_boot_note_met(boot, round->conn);
    round->shaking = 0;
    round->done = round->total == 0;
    ring_begin(round);
    round_watch(round, EPOLLIN);
}

/* This rank has failed while it connected: whoever waits for it there is told as soon as it can be.
 */
static void round_shake_to_tell(struct xccl_boot_round *round)
{
    int done = 0;
    xcclResult_t rc = xccl_conn_shake(round->conn, &done);

    if (!rc && !done)
        rc = xccl_loop_set_events(&round->source, xccl_conn_shake_events(round->conn));
    if (rc || done)
        xccl_loop_remove(&round->source);
    if (!done)
        return;
    round->shaking = 0;
    xccl_boot_tell_late(round->boot, round->conn);
}

static void round_read(struct xccl_boot_round *round)
{
    for (int i = 0; i < FRAMES_A_TURN && round->conn && !round->kept && round_take_one(round); i++)
        continue;
}

static void round_on_events(struct xccl_source *source, uint32_t events)
{
    struct xccl_boot_round *round = source->owner;

    xccl_log_set_rank(round->boot->rank);
    if (round->shaking && round->boot->rc) {
        round_shake_to_tell(round);
    } else if (round->shaking) {
        if (xccl_boot_dial_shake(&round->dial))
            round_proven(round);
    } else if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) {
        round_read(round);
    }
    xccl_boot_join_pump(round->boot);
    xccl_log_set_rank(-1);
}

/* A sign of life is due on the ring, or the neighbour's is missing. */
static void ring_beat(struct xccl_boot_round *round, uint64_t now_ns)
{
    struct xccl_bootstrap *boot = round->boot;
    char name[XCCL_BOOT_NAME_BYTES];
    uint64_t next_ns;

    round_read(round);
    if (boot->state == XCCL_BOOT_FAILED || !round->source.loop)
        return;
    if (round->kept)
        xccl_alive_hear(&round->alive); /* it has joined, and whoever takes the ring judges it */
    if (!xccl_alive_turn(&round->alive, round->conn, (uint32_t)boot->rank, now_ns, &next_ns)) {
        xccl_loop_set_timer(&round->source, next_ns);
        return;
    }
    xccl_boot_name(boot, round->rank, name);
    xccl_boot_fail_silent(boot, name, round->conn);
}

static void round_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct xccl_boot_round *round = source->owner;

    xccl_log_set_rank(round->boot->rank);
    if (round->shaking && xccl_boot_dial_on_timer(&round->dial))
        round_proven(round);
    else if (!round->shaking && round->conn)
        ring_beat(round, now_ns);
    xccl_boot_join_pump(round->boot);
    xccl_log_set_rank(-1);
}

/* Queues the next piece of this round's block. */
static xcclResult_t give_piece(struct xccl_boot_round *give)
{
    uint8_t head[XCCL_BOOT_ADDRS_HEAD];
    struct xccl_wire wire = xccl_wire_over(head, sizeof(head));
    uint64_t bytes = give->total - give->moved, in_row = 0;
    const uint8_t *from = block_at(give->boot, give->boot->rank, give->moved, &in_row);

    if (bytes > in_row)
        bytes = in_row;
    if (bytes > PIECE_BYTES)
        bytes = PIECE_BYTES;
    xccl_wire_put_u64(&wire, give->moved);
    give->moved += bytes;
    give->all_queued = give->moved == give->total;
    return xccl_conn_queue_parts(give->conn, XCCL_BOOT_ADDRS,
                                 (struct xccl_span){head, sizeof(head)},
                                 (struct xccl_span){from, bytes});
}

/* Pushes of this round's block what the socket takes; done when its last byte is in the socket. */
static void give_push(struct xccl_boot_round *give)
{
    int pending = 0;
    xcclResult_t rc = xccl_conn_flush(give->conn, &pending);

    while (!rc && !pending && !give->all_queued) {
        rc = give_piece(give);
        if (!rc)
            rc = xccl_conn_flush(give->conn, &pending);
    }
    if (rc) {
        xccl_boot_fail_push(give->boot, rc, give->rank, give->conn);
        return;
    }
    give->done = !pending && give->all_queued;
    round_watch(give, pending ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static int all_done(const struct xccl_bootstrap *boot)
{
    for (int k = 0; k < boot->rounds; k++) {
        if (!boot->take[k].done || !boot->give[k].done)
            return 0;
    }
    return 1;
}

/* A connection that has done its work goes on as one for messages, the same way: from who pushed to
 * who took. */
static void round_hand_over(struct xccl_boot_round *round)
{
    struct xccl_conn *conn = round->conn;

    if (!round->done || !conn || round->boot->rc)
        return;
    xccl_loop_remove(&round->source);
    round->conn = NULL;
    xccl_boot_mail_adopt(round->boot, round->rank, conn, round->give);
}

/* What was needed to join only. */
static void joined(struct xccl_bootstrap *boot)
{
    for (int i = 0; i < 2; i++)
        xccl_boot_link_finish(&boot->root_links[i]);
    xccl_boot_share_pair(boot, 0);
    boot->state = XCCL_BOOT_UP;
    boot->limit.deadline_ns = XCCL_NEVER_NS;
    xccl_boot_op_end(boot);
}

/* Does all that can be done now; called after every event. */
void xccl_boot_join_pump(struct xccl_bootstrap *boot)
{
    int known = 0;

    if (boot->state != XCCL_BOOT_JOINING || !boot->next_known)
        return;
    while (known < boot->rounds && boot->take[known].done)
        known++;
    for (int k = 0; k < boot->rounds && k <= known && !boot->rc; k++) {
        struct xccl_boot_round *take = &boot->take[k], *give = &boot->give[k];

        if (!take->conn && !take->done && !take->shaking) {
            take->shaking = 1;
            xccl_boot_dial_start(&take->dial);
        }
        if (!boot->rc && give->conn && !give->done)
            give_push(give);
    }
    for (int k = 1; k < boot->rounds && !boot->rc; k++) {
        round_hand_over(&boot->take[k]);
        round_hand_over(&boot->give[k]);
    }
    if (!boot->rc && all_done(boot))
        joined(boot);
}

void xccl_boot_join_on_conn(struct xccl_bootstrap *boot, struct xccl_conn *conn)
{
    const struct xccl_hello *hello = xccl_conn_hello(conn);
    struct xccl_boot_round *give = hello->detail < boot->rounds ? &boot->give[hello->detail] : NULL;

    if (!give || give->conn || give->done || hello->nranks != (uint32_t)boot->nranks ||
        hello->rank != (uint32_t)give->rank) {
        xccl_log(XCCL_LOG_WARN,
                 "rank %u of %u at %s asked rank %d for round %u out of turn; give each process a "
                 "different rank",
                 hello->rank, hello->nranks, xccl_conn_peer_text(conn), boot->rank, hello->detail);
        xccl_conn_close(conn);
        return;
    }
    xccl_boot_note_met(boot, conn);
    give->conn = conn;
    give->all_queued = give->done = give->total == 0;
    xccl_boot_tell_late(boot, conn);
    if (boot->rc)
        return; /* it is told now, or once the verdict is known */
    ring_begin(give);
    round_watch(give, EPOLLIN);
    xccl_boot_join_pump(boot);
}

/* --- for the rest of the bootstrap --- */

static void round_init(struct xccl_bootstrap *boot, struct xccl_boot_round *round, int k, int give)
{
    int step = 1 << k, parts = boot->nranks - step < step ? boot->nranks - step : step;

    round->boot = boot;
    round->rank = (boot->rank + (give ? boot->nranks - step : step)) % boot->nranks;
    round->round = k;
    round->give = give;
    round->total = (uint64_t)parts * XCCL_ADDR_WIRE_BYTES;
    round->source.fd = -1;
    round->source.timer_ns = XCCL_NEVER_NS;
    round->source.on_events = round_on_events;
    round->source.on_timer = round_on_timer;
    round->source.owner = round;
    round->dial = (struct xccl_boot_dial){.boot = boot,
                                          .rank = round->rank,
                                          .purpose = XCCL_PURPOSE_ROUND,
                                          .detail = (uint16_t)k,
                                          .source = &round->source,
                                          .conn = &round->conn};
}

void xccl_boot_join_start(struct xccl_bootstrap *boot)
{
    const struct xccl_meeting *meetings[2] = {&boot->job.own,
                                              boot->job.guest ? &boot->job.before : NULL};

    while (1 << boot->rounds < boot->nranks)
        boot->rounds++;
    for (int k = 0; k < boot->rounds; k++) {
        round_init(boot, &boot->take[k], k, 0);
        round_init(boot, &boot->give[k], k, 1);
    }
    for (int i = 0; i < 2 && meetings[i] && !boot->rc; i++) {
        boot->root_links[i].meeting = meetings[i];
        xccl_boot_link_start(boot, &boot->root_links[i]);
    }
}

void xccl_boot_ring_start(struct xccl_bootstrap *boot)
{
    boot->rounds = boot->nranks > 1;
    boot->next_known = 1;
    if (boot->rounds) {
        round_init(boot, &boot->take[0], 0, 0);
        round_init(boot, &boot->give[0], 0, 1);
        boot->take[0].total = boot->give[0].total = 0;
    }
    xccl_boot_unpark(boot);
    xccl_boot_join_pump(boot);
}

/* What this rank still waits for. */
void xccl_boot_join_wait_text(const struct xccl_bootstrap *boot, char *text_out, size_t bytes)
{
    const struct xccl_boot_root_link *link = &boot->root_links[0];
    char name[XCCL_BOOT_NAME_BYTES];

    if (!boot->next_known && link->meeting && !link->tries.answers) {
        char tried[XCCL_TRIES_TEXT_BYTES];

        xccl_tries_text(&link->tries, link->meeting->roots, link->meeting->root_count, tried);
        snprintf(text_out, bytes,
                 "did not reach the root at %.230s; see whether the root's process runs and no "
                 "firewall is between, or set %s",
                 tried,
                 link->meeting->owns_root ? "XCCL_COMM_ID to an address that this host can reach"
                                          : "XCCL_SOCKET_IFNAME on all hosts");
        return;
    }
    if (!boot->next_known) {
        snprintf(text_out, bytes,
                 "was not told its next rank by the root%s%s; see whether all ranks were started "
                 "and the root's process runs, or raise XCCL_TIMEOUT_INIT_S",
                 link->conn ? " at " : "", link->conn ? xccl_conn_peer_text(link->conn) : "");
        return;
    }
    for (int k = 0; k < boot->rounds; k++) {
        const struct xccl_boot_round *take = &boot->take[k], *give = &boot->give[k];

        if (!take->done) {
            struct xccl_addr addrs[XCCL_TRIES_ADDRS];
            char at[XCCL_ADDR_TEXT_BYTES] = "an address not known yet";

            if (take->conn)
                snprintf(at, sizeof(at), "%s", xccl_conn_peer_text(take->conn));
            else if (xccl_boot_addr_list(boot, take->rank, addrs))
                xccl_addr_format(&addrs[0], at);
            xccl_boot_name(boot, take->rank, name);
            snprintf(text_out, bytes, "waits for %s at %s; look at what that rank does", name, at);
            return;
        }
        if (!give->done) {
            xccl_boot_name(boot, give->rank, name);
            snprintf(text_out, bytes, "waits for %s to %s; look at what that rank does", name,
                     give->conn ? "read" : "connect");
            return;
        }
    }
    snprintf(text_out, bytes, "waits for nobody");
}

void xccl_boot_join_tell(struct xccl_bootstrap *boot, uint16_t type, const void *body, size_t bytes)
{
    for (int i = 0; i < 2; i++) {
        struct xccl_boot_root_link *link = &boot->root_links[i];

        if (link->conn && !link->shaking && !link->ending)
            (void)xccl_conn_queue(link->conn, type, body, bytes);
    }
    for (int k = 0; k < boot->rounds; k++) {
        struct xccl_boot_round *rounds[] = {&boot->take[k], &boot->give[k]};

        for (int i = 0; i < 2; i++) {
            if (rounds[i]->conn && !rounds[i]->shaking)
                (void)xccl_conn_queue(rounds[i]->conn, type, body, bytes);
        }
    }
}

void xccl_boot_join_stop(struct xccl_bootstrap *boot, int keep_hearing)
{
    for (int i = 0; i < 2 && !keep_hearing; i++)
        xccl_loop_remove(&boot->root_links[i].source);
    for (int k = keep_hearing; k < boot->rounds; k++) {
        /* One that connects is told once it has; one between two tries is not tried again. */
        if (!boot->take[k].shaking || !boot->take[k].conn)
            xccl_loop_remove(&boot->take[k].source);
        xccl_loop_remove(&boot->give[k].source);
    }
}

void xccl_boot_join_close(struct xccl_bootstrap *boot)
{
    for (int i = 0; i < 2; i++)
        xccl_boot_link_close(&boot->root_links[i]);
    for (int k = 0; k < boot->rounds; k++) {
        round_close(&boot->take[k]);
        round_close(&boot->give[k]);
    }
}
