/* SPDX-License-Identifier: BSD-3-Clause */
/* The log-step all-gather and its connections, in one event loop.
 *
 *   round k: r+2^k pushes its parts [r+2^k, r+2^(k+1)) to r, once it has rounds 0 to k-1
 *
 * Data goes one way on each connection; the other way carries ERROR only. A peer that is done is
 * watched for its end alone, because what it sends then belongs to what comes next. A rank that
 * fails tells all its peers why before it closes, so everybody's error names the first culprit.
 *
 * Thread: the rank's own. */
#include "bootstrap/bootstrap_int.h"

#include <assert.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "bootstrap/message.h"

#define PIECE_BYTES   (60u << 10)
#define FRAMES_A_TURN 16
#define CONNECT_TRIES 3
#define LINGER_NS     (300 * XCCL_NS_PER_MS)
#define VERDICT_NS    (500 * XCCL_NS_PER_MS) /* how long the root is listened to after a loss */

/* Keeps the first error; later ones are its echo. */
static void boot_fail(struct xccl_bootstrap *boot, xcclResult_t rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void boot_fail(struct xccl_bootstrap *boot, xcclResult_t rc, const char *fmt, ...)
{
    va_list args;

    if (boot->rc)
        return;
    boot->rc = rc;
    va_start(args, fmt);
    vsnprintf(boot->error, sizeof(boot->error), fmt, args);
    va_end(args);
}

/* A peer's connection failed and the thread's error text says how. */
static void boot_fail_peer(struct xccl_boot_peer *peer, xcclResult_t rc)
{
    char why[XCCL_ERROR_TEXT_BYTES];

    snprintf(why, sizeof(why), "%s", xccl_error_text());
    if (peer->round < 0) {
        peer->boot->root_unaware = 1;
        boot_fail(peer->boot, rc, "rank %d lost the root at %s: %.300s", peer->boot->rank,
                  xccl_conn_peer_text(peer->conn), why);
    } else {
        peer->boot->maybe_echo |= !peer->boot->rc;
        boot_fail(peer->boot, rc, "rank %d lost rank %d at %s: %.300s; look at that rank's log",
                  peer->boot->rank, peer->rank, xccl_conn_peer_text(peer->conn), why);
    }
}

void xccl_boot_peer_close(struct xccl_boot_peer *peer)
{
    xccl_loop_remove(&peer->source);
    xccl_conn_close(peer->conn);
    peer->conn = NULL;
}

/* Watches for events, or for nothing at all: a closed peer would otherwise wake the loop for ever.
 */
void xccl_boot_peer_watch(struct xccl_boot_peer *peer, uint32_t events)
{
    xcclResult_t rc = xcclSuccess;

    if (!events) {
        xccl_loop_remove(&peer->source);
    } else if (peer->source.loop) {
        rc = xccl_loop_set_events(&peer->source, events);
    } else {
        peer->source.fd = xccl_conn_fd(peer->conn);
        peer->source.events = events;
        rc = xccl_loop_add(peer->boot->loop, &peer->source);
    }
    if (rc)
        boot_fail_peer(peer, rc);
}

static void peer_on_error_frame(struct xccl_boot_peer *peer, const struct xccl_frame *frame)
{
    struct xccl_boot_error error;

    if (xccl_boot_error_decode(frame->body, frame->bytes, &error) == 0) {
        /* A root without memory for the first rank keeps nothing of it for the others. */
        if (peer->round < 0 && error.rc == xcclSystemError)
            peer->boot->root_unaware = 1;
        boot_fail(peer->boot, error.rc, "%s", error.text);
    } else {
        boot_fail(peer->boot, xcclRemoteError,
                  "%s sent an error that cannot be read; use one version of xccl everywhere",
                  xccl_conn_peer_text(peer->conn));
    }
}

/* Where byte offset of the block of rank first lies in the caller's data, and how many bytes from
 * there on lie in one piece. */
static uint8_t *block_at(const struct xccl_bootstrap *boot, int first, uint64_t offset,
                         uint64_t *in_row_out)
{
    uint64_t all = (uint64_t)boot->nranks * boot->part_bytes;
    uint64_t at = (uint64_t)first * boot->part_bytes + offset;

    if (at >= all)
        at -= all;
    *in_row_out = all - at;
    return boot->data + at;
}

/* A piece of the block that this round takes. */
static void peer_on_data(struct xccl_boot_peer *peer, const struct xccl_frame *frame)
{
    struct xccl_bootstrap *boot = peer->boot;
    struct xccl_boot_data data;
    const uint8_t *from = frame->body + XCCL_BOOT_DATA_HEAD;
    uint64_t left = frame->bytes - XCCL_BOOT_DATA_HEAD, in_row = 0;
    uint8_t *to;

    if (xccl_boot_data_decode(frame->body, frame->bytes, &data) != 0 || data.seq != boot->seq ||
        data.offset != peer->moved) {
        boot_fail(
            boot, xcclRemoteError,
            "rank %d at %s is at another out-of-band all-gather than rank %d; use one version "
            "of xccl everywhere",
            peer->rank, xccl_conn_peer_text(peer->conn), boot->rank);
        return;
    }
    if (data.part_bytes != boot->part_bytes || left > peer->total - peer->moved ||
        (!left && peer->total)) {
        boot_fail(boot, xcclInvalidUsage,
                  "rank %d gathers %u bytes a rank, rank %d gathers %zu; use one version of xccl "
                  "and the same settings everywhere",
                  peer->rank, data.part_bytes, boot->rank, boot->part_bytes);
        return;
    }
    while (left) {
        uint64_t bytes;

        to = block_at(boot, peer->rank, peer->moved, &in_row);
        bytes = left < in_row ? left : in_row;
        memcpy(to, from, bytes);
        from += bytes;
        left -= bytes;
        peer->moved += bytes;
    }
    peer->done = peer->moved == peer->total;
    if (peer->done)
        xccl_boot_peer_watch(peer, EPOLLRDHUP);
}

static void peer_on_next(struct xccl_boot_peer *peer, const struct xccl_frame *frame)
{
    struct xccl_bootstrap *boot = peer->boot;
    struct xccl_addr addr;

    if (boot->next_known || xccl_boot_next_decode(frame->body, frame->bytes, &addr) != 0) {
        boot_fail(boot, xcclRemoteError,
                  "the root at %s sent an address that cannot be read; use one version of xccl "
                  "everywhere",
                  xccl_conn_peer_text(peer->conn));
        return;
    }
    memcpy(boot->next_addrs + (size_t)boot->rank * XCCL_ADDR_WIRE_BYTES, frame->body,
           XCCL_ADDR_WIRE_BYTES);
    boot->next_known = 1;
}

static void peer_on_final(struct xccl_boot_peer *peer)
{
    struct xccl_bootstrap *boot = peer->boot;

    if (peer->round < 0 && boot->next_known) {
        xccl_boot_peer_watch(peer, 0); /* it has told everybody */
        return;
    }
    if (peer->round < 0) {
        boot->root_unaware = 1;
        boot_fail(boot, xcclRemoteError,
                  "the root at %s closed before rank %d was told its next rank; look at the "
                  "log of the process that made the id",
                  xccl_conn_peer_text(peer->conn), boot->rank);
    } else {
        boot_fail(boot, xcclRemoteError,
                  "rank %d at %s left before rank %d had all from it; look "
                  "at that rank's log",
                  peer->rank, xccl_conn_peer_text(peer->conn), boot->rank);
    }
}

/* Takes one frame. 0: there is none, or nothing more is wanted. */
static int peer_take_one(struct xccl_boot_peer *peer)
{
    struct xccl_frame frame;
    int got = 0;
    xcclResult_t rc = xccl_conn_take_frame(peer->conn, &frame, &got);

    if (rc) {
        boot_fail_peer(peer, rc);
        return 0;
    }
    if (!got)
        return 0;
    if (frame.final) {
        peer_on_final(peer);
        return 0;
    }
    if (frame.type == XCCL_BOOT_ERROR)
        peer_on_error_frame(peer, &frame);
    else if (frame.type == XCCL_BOOT_NEXT && peer->round < 0)
        peer_on_next(peer, &frame);
    else if (frame.type == XCCL_BOOT_DATA && peer->round >= 0 && !peer->give &&
             frame.bytes >= XCCL_BOOT_DATA_HEAD && peer->boot->gathering)
        peer_on_data(peer, &frame);
    else
        boot_fail(peer->boot, xcclRemoteError,
                  "rank %d at %s sent a message of type %u that is not due; use one version of "
                  "xccl everywhere",
                  peer->rank, xccl_conn_peer_text(peer->conn), frame.type);
    return !peer->boot->rc && !peer->done;
}

/* The stream of a peer that is done with this all-gather has ended: it died, gave up, or has left
 * in order, perhaps after frames for later. */
static void peer_on_hangup(struct xccl_boot_peer *peer)
{
    struct xccl_frame frame;
    int got = 0;
    xcclResult_t rc = xccl_conn_take_frame(peer->conn, &frame, &got);

    if (rc) {
        boot_fail_peer(peer, rc);
    } else if (got && !frame.final && frame.type == XCCL_BOOT_ERROR) {
        peer_on_error_frame(peer, &frame);
    } else if (got) {
        if (!frame.final)
            xccl_conn_give_back(peer->conn, &frame);
        xccl_boot_peer_watch(peer, 0);
    }
}

struct xccl_hello xccl_boot_hello(const struct xccl_bootstrap *boot, uint16_t purpose,
                                  uint16_t detail)
{
    struct xccl_hello hello = {.rank = (uint32_t)boot->rank,
                               .nranks = (uint32_t)boot->nranks,
                               .purpose = purpose,
                               .detail = detail};

    memcpy(hello.comm_id, boot->job.comm_id, sizeof(hello.comm_id));
    return hello;
}

/* Connects to the rank that serves this round; its address is known. */
static void peer_connect(struct xccl_boot_peer *peer)
{
    struct xccl_bootstrap *boot = peer->boot;
    struct xccl_hello hello = xccl_boot_hello(boot, XCCL_PURPOSE_ROUND, (uint16_t)peer->round);
    size_t before = (size_t)((peer->rank + boot->nranks - 1) % boot->nranks);
    struct xccl_addr addr;
    char text[XCCL_ADDR_TEXT_BYTES] = "?", why[XCCL_ERROR_TEXT_BYTES];
    xcclResult_t rc = xccl_boot_next_decode(boot->next_addrs + before * XCCL_ADDR_WIRE_BYTES,
                                            XCCL_ADDR_WIRE_BYTES, &addr)
                          ? xcclRemoteError
                          : xcclSuccess;

    if (!rc) {
        xccl_addr_format(&addr, text);
        rc = xccl_conn_start(&addr, boot->job.secret, &hello, &peer->conn);
    }
    if (rc) {
        snprintf(why, sizeof(why), "%s", xccl_error_text());
        boot_fail(boot, rc, "rank %d cannot reach rank %d at %s: %.300s; look at that rank's log",
                  boot->rank, peer->rank, text, why);
        return;
    }
    peer->shaking = 1;
    peer->tries++;
    xccl_boot_peer_watch(peer, xccl_conn_shake_events(peer->conn));
}

static void peer_shake(struct xccl_boot_peer *peer)
{
    struct xccl_bootstrap *boot = peer->boot;
    const struct xccl_hello *other;
    int done = 0;
    xcclResult_t rc = xccl_conn_shake(peer->conn, &done);

    if (rc && xccl_conn_turned_away(peer->conn) && peer->tries < CONNECT_TRIES) {
        xccl_boot_peer_close(peer);
        peer_connect(peer);
        return;
    }
    if (rc) {
        boot_fail_peer(peer, rc);
        return;
    }
    if (!done) {
        xccl_boot_peer_watch(peer, xccl_conn_shake_events(peer->conn));
        return;
    }
    other = xccl_conn_hello(peer->conn);
    if (other->rank != (uint32_t)peer->rank || other->nranks != (uint32_t)boot->nranks) {
        boot_fail(
            boot, xcclRemoteError,
            "rank %u of %u answers at %s where rank %d of %d should be; see whether addresses "
            "are translated between the hosts, and set XCCL_SOCKET_IFNAME",
            other->rank, other->nranks, xccl_conn_peer_text(peer->conn), peer->rank, boot->nranks);
        return;
    }
    peer->shaking = 0;
    xccl_boot_peer_watch(peer, EPOLLIN);
}

static void peer_on_events(struct xccl_source *source, uint32_t events)
{
    struct xccl_boot_peer *peer = source->owner;

    if (peer->boot->rc)
        return;
    if (peer->shaking) {
        peer_shake(peer);
    } else if (peer->done) {
        peer_on_hangup(peer);
    } else if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) {
        for (int i = 0; i < FRAMES_A_TURN && peer_take_one(peer); i++)
            continue;
    }
    xccl_boot_pump(peer->boot);
}

/* Queues the next piece of this round's block. An empty block is one empty piece. */
static xcclResult_t peer_give_piece(struct xccl_boot_peer *peer)
{
    struct xccl_bootstrap *boot = peer->boot;
    struct xccl_boot_data data = {boot->seq, (uint32_t)boot->part_bytes, peer->moved};
    uint8_t head[XCCL_BOOT_DATA_HEAD];
    uint64_t bytes = peer->total - peer->moved, in_row = 0;
    const uint8_t *from = block_at(boot, boot->rank, peer->moved, &in_row);

    if (bytes > in_row)
        bytes = in_row;
    if (bytes > PIECE_BYTES)
        bytes = PIECE_BYTES;
    xccl_boot_data_encode(&data, head);
    peer->moved += bytes;
    peer->all_queued = peer->moved == peer->total;
    return xccl_conn_queue_parts(peer->conn, XCCL_BOOT_DATA, (struct xccl_span){head, sizeof(head)},
                                 (struct xccl_span){from, bytes});
}

/* A push failed, most likely because the peer gave up; then it has said why. */
static void boot_fail_give(struct xccl_boot_peer *peer, xcclResult_t rc)
{
    char why[XCCL_ERROR_TEXT_BYTES];
    struct xccl_frame frame;
    int got = 0;

    snprintf(why, sizeof(why), "%s", xccl_error_text());
    if (xccl_conn_take_frame(peer->conn, &frame, &got) == xcclSuccess && got && !frame.final &&
        frame.type == XCCL_BOOT_ERROR)
        peer_on_error_frame(peer, &frame);
    xccl_error_set_text(why);
    boot_fail_peer(peer, rc); /* kept only if there was no word of the peer's */
}

/* Pushes of this round's block what the socket takes; done when its last byte is in the socket. */
static void peer_give(struct xccl_boot_peer *peer)
{
    int pending = 0;
    xcclResult_t rc = xccl_conn_flush(peer->conn, &pending);

    while (!rc && !pending && !peer->all_queued) {
        rc = peer_give_piece(peer);
        if (!rc)
            rc = xccl_conn_flush(peer->conn, &pending);
    }
    if (rc) {
        boot_fail_give(peer, rc);
        return;
    }
    peer->done = !pending && peer->all_queued;
    /* What a peer sends once it has all is for later: only its end concerns us then. */
    if (peer->done)
        xccl_boot_peer_watch(peer, EPOLLRDHUP);
    else
        xccl_boot_peer_watch(peer, pending ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Does all that can be done now; called after every event. */
void xccl_boot_pump(struct xccl_bootstrap *boot)
{
    int known = 0;

    if (!boot->gathering)
        return;
    while (known < boot->rounds && boot->take[known].done)
        known++;
    for (int k = 0; k < boot->rounds && k <= known && !boot->rc; k++) {
        struct xccl_boot_peer *take = &boot->take[k], *give = &boot->give[k];

        if (!take->conn && !boot->joined)
            peer_connect(take);
        if (!boot->rc && give->conn && !give->done)
            peer_give(give);
    }
}

int xccl_boot_gathered(const struct xccl_bootstrap *boot)
{
    for (int k = 0; k < boot->rounds; k++) {
        if (!boot->take[k].done || !boot->give[k].done)
            return 0;
    }
    return 1;
}

void xccl_boot_gather_start(struct xccl_bootstrap *boot, void *data, size_t part_bytes)
{
    boot->data = data ? data : boot->next_addrs; /* without bytes any place will do */
    boot->part_bytes = part_bytes;
    boot->seq++;
    boot->gathering = 1;
    for (int k = 0; k < boot->rounds; k++) {
        int step = 1 << k, parts = boot->nranks - step < step ? boot->nranks - step : step;
        struct xccl_boot_peer *take = &boot->take[k], *give = &boot->give[k];

        take->moved = give->moved = 0;
        take->done = give->done = give->all_queued = 0;
        take->total = give->total = (uint64_t)parts * part_bytes;
        if (take->conn && !take->shaking)
            xccl_boot_peer_watch(take, EPOLLIN);
        if (give->conn)
            xccl_boot_peer_watch(give, EPOLLIN);
    }
    xccl_boot_pump(boot);
}

/* Says what this rank still waits for. */
static void boot_fail_waiting(struct xccl_bootstrap *boot, xcclResult_t rc, const char *what)
{
    if (!boot->gathering) {
        boot_fail(boot, rc,
                  "%s: rank %d of %d was not told its next rank by the root at %s; see whether all "
                  "ranks were started, or raise XCCL_TIMEOUT_INIT_S",
                  what, boot->rank, boot->nranks, xccl_conn_peer_text(boot->root_peer.conn));
        return;
    }
    for (int k = 0; k < boot->rounds; k++) {
        const struct xccl_boot_peer *take = &boot->take[k], *give = &boot->give[k];

        if (!take->done) {
            boot_fail(boot, rc, "%s: rank %d waits for rank %d at %s; look at what that rank does",
                      what, boot->rank, take->rank,
                      take->conn ? xccl_conn_peer_text(take->conn) : "an address not known yet");
        } else if (!give->done) {
            boot_fail(boot, rc, "%s: rank %d waits for rank %d to %s; look at what that rank does",
                      what, boot->rank, give->rank, give->conn ? "read" : "connect");
        }
    }
}

/* Runs the loop until *done says so, an error, the limit or an abort. */
void xccl_boot_run(struct xccl_bootstrap *boot, int (*done)(const struct xccl_bootstrap *),
                   const struct xccl_limit *limit)
{
    while (!boot->rc && !done(boot)) {
        xcclResult_t rc;

        if (xccl_limit_aborted(limit)) {
            boot_fail_waiting(boot, xcclInvalidUsage, "aborted");
        } else if (xccl_limit_passed(limit)) {
            boot_fail_waiting(boot, xcclTimeout, "time is up");
        } else {
            rc = xccl_loop_run_once(boot->loop, xccl_limit_poll_ms(limit));
            if (rc)
                boot_fail(boot, rc, "%s", xccl_error_text());
        }
    }
}

/* This rank lost a peer while the root still listens: what the root says is nearer to the cause,
 * for it hears of a death from all sides. */
static void boot_hear_root(struct xccl_bootstrap *boot)
{
    uint64_t until_ns = xccl_clock_ns() + VERDICT_NS;
    int listening = boot->root_peer.source.loop != NULL;

    while (listening && xccl_clock_ns() < until_ns) {
        struct pollfd pollfd = {.fd = xccl_conn_fd(boot->root_peer.conn), .events = POLLIN};
        struct xccl_boot_error error;
        struct xccl_frame frame;
        int got = 0;

        if (xccl_conn_take_frame(boot->root_peer.conn, &frame, &got) != xcclSuccess)
            return;
        if (!got)
            (void)poll(&pollfd, 1, 50);
        else if (frame.final)
            return;
        else if (frame.type == XCCL_BOOT_ERROR &&
                 xccl_boot_error_decode(frame.body, frame.bytes, &error) == 0) {
            boot->rc = error.rc;
            snprintf(boot->error, sizeof(boot->error), "%s", error.text);
            return;
        }
    }
}

static int boot_all_came(const struct xccl_bootstrap *boot)
{
    for (int k = 0; k < boot->rounds; k++) {
        if (!boot->give[k].conn)
            return 0;
    }
    return 1;
}

/* Stays at the door for those who are on their way here: they would find it shut and blame this
 * rank instead of the culprit. bootstrap.c tells them as they come in. */
static void boot_linger(struct xccl_bootstrap *boot)
{
    uint64_t until_ns = xccl_clock_ns() + LINGER_NS;

    for (int k = 0; k < boot->rounds; k++) {
        xccl_loop_remove(&boot->take[k].source);
        xccl_loop_remove(&boot->give[k].source);
    }
    xccl_loop_remove(&boot->root_peer.source);
    while (!boot_all_came(boot) && xccl_clock_ns() < until_ns) {
        if (xccl_loop_run_once(boot->loop, 50) != xcclSuccess)
            return;
    }
}

void xccl_boot_tell_peers(struct xccl_bootstrap *boot)
{
    uint8_t body[XCCL_BOOT_ERROR_MAX];
    size_t bytes = xccl_boot_error_encode(boot->rc, boot->error, body);

    if (boot->root_peer.conn)
        (void)xccl_conn_queue(boot->root_peer.conn, XCCL_BOOT_ERROR, body, bytes);
    for (int k = 0; k < boot->rounds; k++) {
        struct xccl_boot_peer *peers[] = {&boot->take[k], &boot->give[k]};

        for (int i = 0; i < 2; i++) {
            if (peers[i]->conn && !peers[i]->shaking)
                (void)xccl_conn_queue(peers[i]->conn, XCCL_BOOT_ERROR, body, bytes);
        }
    }
}

/* The error becomes the thread's, and every peer is told. */
xcclResult_t xccl_boot_give_up(struct xccl_bootstrap *boot)
{
    if (boot->maybe_echo)
        boot_hear_root(boot);
    xccl_boot_tell_peers(boot);
    boot->gathering = 0;
    if (boot->acceptor)
        boot_linger(boot);
    return xccl_fail(boot->rc, 0, NULL, "%s", boot->error);
}

void xccl_boot_peer_init(struct xccl_bootstrap *boot, struct xccl_boot_peer *peer, int rank,
                         int round, int give)
{
    peer->boot = boot;
    peer->rank = rank;
    peer->round = round;
    peer->give = give;
    peer->source.fd = -1;
    peer->source.timer_ns = XCCL_NEVER_NS;
    peer->source.on_events = peer_on_events;
    peer->source.owner = peer;
}
