/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's side of joining. Everything after the report to the root is one event loop and one
 * operation: a log-step all-gather. Rank r connects to r + 2^k in round k and is served there; the
 * first all-gather spreads addresses (part r is the address of rank r + 1, as the root told it),
 * and so makes the connections that later ones use.
 *
 *   round k: r+2^k pushes its parts [r+2^k, r+2^(k+1)) to r, once it has rounds 0 to k-1
 *
 * Data goes one way on each connection; the other way carries ERROR only. A rank that fails tells
 * all its peers why before it closes, so everybody's error names the first culprit.
 *
 * Limits: 2^20 ranks, parts of 1 MiB. Thread: the rank's own. */
#include "bootstrap/bootstrap.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/os.h"
#include "bootstrap/acceptor.h"
#include "bootstrap/conn_int.h"
#include "bootstrap/message.h"
#include "bootstrap/root_int.h"

#define ROUNDS_MAX     20
#define PART_MAX_BYTES (1u << 20)
#define PIECE_BYTES    (60u << 10)
#define FRAMES_A_TURN  16
#define CONNECT_TRIES  3

/* One connection. give: this rank pushes (accepted from r - 2^k); else it takes (opened to r + 2^k,
 * or to the root with round -1). */
struct boot_peer {
    struct xccl_source source;
    struct xccl_bootstrap *boot;
    struct xccl_conn *conn;
    int rank, round, give;
    int shaking, tries;
    uint64_t moved, total; /* bytes of the block of this all-gather */
    int all_queued, done;
};

struct xccl_bootstrap {
    struct xccl_job job;
    int rank, nranks, rounds;
    struct xccl_loop *loop;
    struct xccl_acceptor *acceptor;
    struct xccl_root *root; /* of rank 0 under XCCL_COMM_ID, while joining */
    struct boot_peer root_peer;
    struct boot_peer take[ROUNDS_MAX], give[ROUNDS_MAX];
    uint8_t *next_addrs; /* nranks parts of XCCL_ADDR_WIRE_BYTES */
    int next_known, joined, ring_taken;
    /* the all-gather in progress */
    uint8_t *data;
    size_t part_bytes;
    uint32_t seq;
    int gathering;
    /* the first error; its text is complete */
    xcclResult_t rc;
    char error[XCCL_ERROR_TEXT_BYTES];
};

static void boot_pump(struct xccl_bootstrap *boot);

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
static void boot_fail_peer(struct boot_peer *peer, xcclResult_t rc)
{
    char why[XCCL_ERROR_TEXT_BYTES];

    snprintf(why, sizeof(why), "%s", xccl_error_text());
    if (peer->round < 0) {
        boot_fail(peer->boot, rc, "rank %d lost the root at %s: %.300s", peer->boot->rank,
                  xccl_conn_peer_text(peer->conn), why);
    } else {
        boot_fail(peer->boot, rc, "rank %d lost rank %d at %s: %.300s; look at that rank's log",
                  peer->boot->rank, peer->rank, xccl_conn_peer_text(peer->conn), why);
    }
}

static void peer_close(struct boot_peer *peer)
{
    xccl_loop_remove(&peer->source);
    xccl_conn_close(peer->conn);
    peer->conn = NULL;
}

/* Watches for events, or for nothing at all: a closed peer would otherwise wake the loop for ever.
 */
static void peer_watch(struct boot_peer *peer, uint32_t events)
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

static void peer_on_error_frame(struct boot_peer *peer, const struct xccl_frame *frame)
{
    struct xccl_boot_error error;

    if (xccl_boot_error_decode(frame->body, frame->bytes, &error) == 0) {
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
static void peer_on_data(struct boot_peer *peer, const struct xccl_frame *frame)
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
        peer_watch(peer, EPOLLRDHUP);
}

static void peer_on_next(struct boot_peer *peer, const struct xccl_frame *frame)
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

static void peer_on_final(struct boot_peer *peer)
{
    struct xccl_bootstrap *boot = peer->boot;

    if (peer->round < 0 && boot->next_known) {
        peer_watch(peer, 0); /* it has told everybody */
        return;
    }
    if (peer->round < 0) {
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
static int peer_take_one(struct boot_peer *peer)
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

/* The stream of a peer that is done with this all-gather has ended: it died, gave up, or has left in
 * order, perhaps after frames for later. */
static void peer_on_hangup(struct boot_peer *peer)
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
        peer_watch(peer, 0);
    }
}

/* The hello of a peer that this rank takes from. */
static struct xccl_hello boot_hello(const struct xccl_bootstrap *boot, uint16_t purpose,
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
static void peer_connect(struct boot_peer *peer)
{
    struct xccl_bootstrap *boot = peer->boot;
    struct xccl_hello hello = boot_hello(boot, XCCL_PURPOSE_ROUND, (uint16_t)peer->round);
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
    peer_watch(peer, xccl_conn_shake_events(peer->conn));
}

static void peer_shake(struct boot_peer *peer)
{
    struct xccl_bootstrap *boot = peer->boot;
    const struct xccl_hello *other;
    int done = 0;
    xcclResult_t rc = xccl_conn_shake(peer->conn, &done);

    if (rc && xccl_conn_turned_away(peer->conn) && peer->tries < CONNECT_TRIES) {
        peer_close(peer);
        peer_connect(peer);
        return;
    }
    if (rc) {
        boot_fail_peer(peer, rc);
        return;
    }
    if (!done) {
        peer_watch(peer, xccl_conn_shake_events(peer->conn));
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
    peer_watch(peer, EPOLLIN);
}

static void peer_on_events(struct xccl_source *source, uint32_t events)
{
    struct boot_peer *peer = source->owner;

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
    boot_pump(peer->boot);
}

/* Queues the next piece of this round's block. An empty block is one empty piece. */
static xcclResult_t peer_give_piece(struct boot_peer *peer)
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

/* Pushes of this round's block what the socket takes; done when its last byte is in the socket. */
static void peer_give(struct boot_peer *peer)
{
    int pending = 0;
    xcclResult_t rc = xccl_conn_flush(peer->conn, &pending);

    while (!rc && !pending && !peer->all_queued) {
        rc = peer_give_piece(peer);
        if (!rc)
            rc = xccl_conn_flush(peer->conn, &pending);
    }
    if (rc) {
        boot_fail_peer(peer, rc);
        return;
    }
    peer->done = !pending && peer->all_queued;
    /* What a peer sends once it has all is for later: only its end concerns us then. */
    if (peer->done)
        peer_watch(peer, EPOLLRDHUP);
    else
        peer_watch(peer, pending ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Does all that can be done now; called after every event. */
static void boot_pump(struct xccl_bootstrap *boot)
{
    int known = 0;

    if (!boot->gathering)
        return;
    while (known < boot->rounds && boot->take[known].done)
        known++;
    for (int k = 0; k < boot->rounds && k <= known && !boot->rc; k++) {
        struct boot_peer *take = &boot->take[k], *give = &boot->give[k];

        if (!take->conn && !boot->joined)
            peer_connect(take);
        if (!boot->rc && give->conn && !give->done)
            peer_give(give);
    }
}

static int boot_gathered(const struct xccl_bootstrap *boot)
{
    for (int k = 0; k < boot->rounds; k++) {
        if (!boot->take[k].done || !boot->give[k].done)
            return 0;
    }
    return 1;
}

static void boot_gather_start(struct xccl_bootstrap *boot, void *data, size_t part_bytes)
{
    boot->data = data ? data : boot->next_addrs; /* without bytes any place will do */
    boot->part_bytes = part_bytes;
    boot->seq++;
    boot->gathering = 1;
    for (int k = 0; k < boot->rounds; k++) {
        int step = 1 << k, parts = boot->nranks - step < step ? boot->nranks - step : step;
        struct boot_peer *take = &boot->take[k], *give = &boot->give[k];

        take->moved = give->moved = 0;
        take->done = give->done = give->all_queued = 0;
        take->total = give->total = (uint64_t)parts * part_bytes;
        if (take->conn && !take->shaking)
            peer_watch(take, EPOLLIN);
        if (give->conn)
            peer_watch(give, EPOLLIN);
    }
    boot_pump(boot);
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
        const struct boot_peer *take = &boot->take[k], *give = &boot->give[k];

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
static void boot_run(struct xccl_bootstrap *boot, int (*done)(const struct xccl_bootstrap *),
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

/* The error becomes the thread's, and every peer is told. */
static xcclResult_t boot_give_up(struct xccl_bootstrap *boot)
{
    uint8_t body[XCCL_BOOT_ERROR_MAX];
    size_t bytes = xccl_boot_error_encode(boot->rc, boot->error, body);

    if (boot->root_peer.conn)
        (void)xccl_conn_queue(boot->root_peer.conn, XCCL_BOOT_ERROR, body, bytes);
    for (int k = 0; k < boot->rounds; k++) {
        struct boot_peer *peers[] = {&boot->take[k], &boot->give[k]};

        for (int i = 0; i < 2; i++) {
            if (peers[i]->conn && !peers[i]->shaking)
                (void)xccl_conn_queue(peers[i]->conn, XCCL_BOOT_ERROR, body, bytes);
        }
    }
    boot->gathering = 0;
    return xccl_fail(boot->rc, 0, NULL, "%s", boot->error);
}

static void boot_on_conn(void *owner, struct xccl_conn *conn)
{
    struct xccl_bootstrap *boot = owner;
    const struct xccl_hello *hello = xccl_conn_hello(conn);
    struct boot_peer *give = hello->detail < boot->rounds ? &boot->give[hello->detail] : NULL;

    if (hello->purpose != XCCL_PURPOSE_ROUND || !give || give->conn ||
        hello->nranks != (uint32_t)boot->nranks || hello->rank != (uint32_t)give->rank) {
        xccl_log(XCCL_LOG_WARN,
                 "rank %u of %u at %s asked rank %d for round %u, which is not its turn; give each "
                 "process a rank of its own",
                 hello->rank, hello->nranks, xccl_conn_peer_text(conn), boot->rank, hello->detail);
        xccl_conn_close(conn);
        return;
    }
    give->conn = conn;
    peer_watch(give, EPOLLIN);
    boot_pump(boot);
}

static void peer_init(struct xccl_bootstrap *boot, struct boot_peer *peer, int rank, int round,
                      int give)
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

/* A rank listens where the root can be reached from: loopback for loopback, else the best
 * interface, of the root's family if there is one. */
static xcclResult_t boot_listen_addr(const struct xccl_addr *root, struct xccl_addr *addr_out)
{
    struct xccl_netif ifs[8];
    int count = 0, best = 0;
    int loopback4 = root->sa.any.sa_family == AF_INET &&
                    (ntohl(root->sa.in4.sin_addr.s_addr) >> 24) == 127;
    int loopback6 = root->sa.any.sa_family == AF_INET6 &&
                    IN6_IS_ADDR_LOOPBACK(&root->sa.in6.sin6_addr);
    xcclResult_t rc;

    if (loopback4 || loopback6) {
        *addr_out = *root;
        xccl_addr_set_port(addr_out, 0);
        return xcclSuccess;
    }
    rc = xccl_netif_choose(ifs, 8, &count);
    if (rc)
        return rc;
    for (int i = count - 1; i >= 0; i--) {
        if (ifs[i].addr.sa.any.sa_family == root->sa.any.sa_family)
            best = i;
    }
    *addr_out = ifs[best].addr;
    return xcclSuccess;
}

static xcclResult_t boot_listen(struct xccl_bootstrap *boot)
{
    struct xccl_acceptor_args args = {.loop = boot->loop,
                                      .rank = (uint32_t)boot->rank,
                                      .nranks = (uint32_t)boot->nranks,
                                      .on_conn = boot_on_conn,
                                      .owner = boot};
    xcclResult_t rc = boot_listen_addr(&boot->job.roots[0], &args.addr);

    if (rc)
        return rc;
    memcpy(args.key, boot->job.secret, sizeof(args.key));
    memcpy(args.comm_id, boot->job.comm_id, sizeof(args.comm_id));
    rc = xccl_acceptor_open(&args, &boot->acceptor);
    sodium_memzero(args.key, sizeof(args.key));
    return rc;
}

/* Connects to the first root address that answers. */
static xcclResult_t boot_reach_root(struct xccl_bootstrap *boot, const struct xccl_limit *limit)
{
    struct xccl_hello hello = boot_hello(boot, XCCL_PURPOSE_ROOT, 0);

    for (int i = 0;; i++) {
        const struct xccl_addr *addr = &boot->job.roots[i % boot->job.root_count];
        struct xccl_limit slice = *limit;
        uint64_t slice_ns = xccl_clock_ns() + XCCL_NS_PER_S;
        xcclResult_t rc;

        /* The last of several addresses is no better than the first: they take turns. */
        if (boot->job.root_count > 1 && slice_ns < slice.deadline_ns)
            slice.deadline_ns = slice_ns;
        rc = xccl_conn_open(addr, boot->job.secret, &hello, &slice, &boot->root_peer.conn);
        if (rc != xcclTimeout || xccl_limit_passed(limit) || boot->job.root_count == 1)
            return rc;
    }
}

static xcclResult_t boot_report(struct xccl_bootstrap *boot, const struct xccl_limit *limit)
{
    struct xccl_boot_report report = {.library_version = XCCL_VERSION_CODE};
    uint8_t body[XCCL_BOOT_REPORT_MAX];
    uint64_t now_ns, left_ms;
    char why[XCCL_ERROR_TEXT_BYTES];
    xcclResult_t rc = boot_reach_root(boot, limit);

    if (rc) {
        snprintf(why, sizeof(why), "%s", xccl_error_text());
        return xccl_fail(rc, 0,
                         "see whether the process that made the id still runs, and whether the "
                         "network lets this host reach it",
                         "rank %d of %d cannot report to the root: %.300s", boot->rank,
                         boot->nranks, why);
    }
    now_ns = xccl_clock_ns();
    left_ms = limit->deadline_ns > now_ns ? (limit->deadline_ns - now_ns) / XCCL_NS_PER_MS : 0;
    report.timeout_ms = left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX;
    report.addr = *xccl_acceptor_addr(boot->acceptor);
    snprintf(report.host, sizeof(report.host), "%s", xccl_os_hostname());
    rc = xccl_conn_send(boot->root_peer.conn, XCCL_BOOT_REPORT, body,
                        xccl_boot_report_encode(&report, body), limit);
    if (rc)
        return xccl_fail(rc, 0, NULL, "rank %d cannot report to the root at %s", boot->rank,
                         xccl_conn_peer_text(boot->root_peer.conn));
    peer_watch(&boot->root_peer, EPOLLIN);
    return xcclSuccess;
}

static int boot_next_known(const struct xccl_bootstrap *boot)
{
    return boot->next_known;
}

static xcclResult_t boot_join(struct xccl_bootstrap *boot, const struct xccl_limit *limit)
{
    xcclResult_t rc = xccl_loop_create(&boot->loop);

    if (rc)
        return rc;
    boot->next_addrs = xccl_calloc((size_t)boot->nranks, XCCL_ADDR_WIRE_BYTES);
    if (!boot->next_addrs)
        return xcclSystemError;
    if (boot->job.owns_root && boot->rank == 0) {
        rc = xccl_root_create(&boot->job.roots[0], boot->job.secret, &boot->root);
        if (rc)
            return rc;
    }
    rc = boot_listen(boot);
    if (rc)
        return rc;
    rc = boot_report(boot, limit);
    if (rc)
        return rc;
    boot_run(boot, boot_next_known, limit);
    if (!boot->rc) {
        boot_gather_start(boot, boot->next_addrs, XCCL_ADDR_WIRE_BYTES);
        boot_run(boot, boot_gathered, limit);
    }
    if (boot->rc)
        return boot_give_up(boot);
    boot->gathering = 0;
    boot->joined = 1;
    peer_close(&boot->root_peer);
    xccl_acceptor_close(boot->acceptor);
    boot->acceptor = NULL;
    xccl_root_destroy(boot->root);
    boot->root = NULL;
    return xcclSuccess;
}

xcclResult_t xccl_bootstrap_open(const struct xccl_job *job, int rank, int nranks,
                                 const struct xccl_limit *limit, struct xccl_bootstrap **boot_out)
{
    struct xccl_bootstrap *boot;
    xcclResult_t rc;

    if (nranks < 1 || nranks > 1 << ROUNDS_MAX || rank < 0 || rank >= nranks) {
        return xccl_fail(xcclInvalidArgument, 0, "use 0 <= rank < nranks", "rank %d of %d ranks",
                         rank, nranks);
    }
    rc = xccl_channel_library_init();
    if (rc)
        return rc;
    boot = xccl_calloc(1, sizeof(*boot));
    if (!boot)
        return xcclSystemError;
    boot->job = *job;
    boot->rank = rank;
    boot->nranks = nranks;
    while (1 << boot->rounds < nranks)
        boot->rounds++;
    peer_init(boot, &boot->root_peer, 0, -1, 0);
    for (int k = 0; k < boot->rounds; k++) {
        peer_init(boot, &boot->take[k], (rank + (1 << k)) % nranks, k, 0);
        peer_init(boot, &boot->give[k], (rank + nranks - (1 << k)) % nranks, k, 1);
    }
    if (nranks > 1)
        rc = boot_join(boot, limit);
    else
        xccl_root_end_single(job->comm_id);
    if (rc) {
        xccl_bootstrap_close(boot);
        return rc;
    }
    *boot_out = boot;
    return xcclSuccess;
}

xcclResult_t xccl_bootstrap_allgather(struct xccl_bootstrap *boot, void *data, size_t part_bytes,
                                      const struct xccl_limit *limit)
{
    if (part_bytes > PART_MAX_BYTES) {
        return xccl_fail(xcclInvalidArgument, 0, "split it",
                         "an out-of-band all-gather of %zu bytes a rank", part_bytes);
    }
    if (boot->nranks == 1)
        return xcclSuccess;
    if (boot->rc || boot->ring_taken) {
        return xccl_fail(xcclInvalidUsage, 0, "report this as a bug of xccl",
                         "an out-of-band all-gather after %s",
                         boot->rc ? "an error" : "the ring was taken");
    }
    boot_gather_start(boot, data, part_bytes);
    boot_run(boot, boot_gathered, limit);
    boot->gathering = 0;
    boot->data = NULL;
    return boot->rc ? boot_give_up(boot) : xcclSuccess;
}

void xccl_bootstrap_take_ring(struct xccl_bootstrap *boot, struct xccl_conn **next_out,
                              struct xccl_conn **prev_out)
{
    *next_out = *prev_out = NULL;
    if (boot->nranks == 1 || boot->ring_taken)
        return;
    xccl_loop_remove(&boot->take[0].source);
    xccl_loop_remove(&boot->give[0].source);
    *next_out = boot->take[0].conn;
    *prev_out = boot->give[0].conn;
    boot->take[0].conn = boot->give[0].conn = NULL;
    boot->ring_taken = 1;
}

void xccl_bootstrap_derive_key(const struct xccl_bootstrap *boot, const char *purpose,
                               uint8_t key_out[32])
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, boot->job.secret, sizeof(boot->job.secret), 32);
    crypto_generichash_update(&state, (const uint8_t *)"xccl 1 derive", 14);
    crypto_generichash_update(&state, boot->job.comm_id, sizeof(boot->job.comm_id));
    crypto_generichash_update(&state, (const uint8_t *)purpose, strlen(purpose));
    crypto_generichash_final(&state, key_out, 32);
    sodium_memzero(&state, sizeof(state));
}

void xccl_bootstrap_close(struct xccl_bootstrap *boot)
{
    if (!boot)
        return;
    peer_close(&boot->root_peer);
    for (int k = 0; k < boot->rounds; k++) {
        peer_close(&boot->take[k]);
        peer_close(&boot->give[k]);
    }
    xccl_acceptor_close(boot->acceptor);
    xccl_root_destroy(boot->root);
    xccl_loop_destroy(boot->loop);
    xccl_free(boot->next_addrs);
    sodium_memzero(&boot->job, sizeof(boot->job));
    xccl_free(boot);
}
