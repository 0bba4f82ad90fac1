/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages from any rank to any other. A connection carries messages one way only, from the rank
 * that opened it, so that it alone decides when to close it and nothing is lost on the way:
 *
 *   out   none --first message--> shaking --proven--> open --2 s unused, or too many--> FINAL, none
 *   in    none --proven--> read --FINAL--> none     (a second one waits until the first has ended)
 *
 * A message is a row of MAIL frames. It is laid straight into the memory that waits for it, or kept
 * when it comes early: up to 8 MiB a rank, and beyond that only what stands before a message that
 * is waited for. What has no room stays in the socket, and its sender waits.
 *
 * Thread: callbacks of the service thread, or any with the loop's lock. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/log.h"
#include "bootstrap/bootstrap_int.h"

#define PIECE_BYTES     (60u << 10)
#define FRAMES_A_TURN   16
#define CONNECT_TRIES   3
#define IDLE_NS         (2 * XCCL_NS_PER_S)
#define EARLY_SOFT      (8ull << 20)
#define EARLY_HARD      (1ull << 30)
#define EARLY_COUNT_MAX 65536

/* A message nobody has asked for yet; its bytes follow. */
struct xccl_boot_early {
    struct xccl_boot_mail mail;
    int rank;
    int whole;
    struct xccl_boot_early *next;
    uint8_t data[];
};

struct xccl_boot_pair {
    struct xccl_bootstrap *boot;
    int rank;
    /* to rank */
    struct xccl_source out_source;
    struct xccl_conn *out;
    int shaking, tries;
    uint64_t used_ns;
    struct xccl_boot_send *sends, **sends_end;
    /* from rank */
    struct xccl_source in_source;
    struct xccl_conn *in;
    struct xccl_conn *parked; /* the next, until this one's FINAL was read */
    int held; /* in is not read: there is no room */
    int inside; /* a message has begun */
    struct xccl_boot_mail mail;
    uint64_t at; /* its bytes so far */
    struct xccl_boot_recv *filling; /* it goes here, or */
    struct xccl_boot_early *keeping;
};

/* Open out connections of this process; each costs its two ends up to two descriptors here. */
static _Atomic int out_count;

/* How many may stay open while they are not used. */
static int out_budget(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > 1u << 20)
        return 1 << 17;
    return (int)(limit.rlim_cur / 8);
}

static void out_close(struct xccl_boot_pair *pair)
{
    xccl_loop_remove(&pair->out_source);
    if (pair->out)
        /* Relaxed: a count, which orders nothing. */
        atomic_fetch_sub_explicit(&out_count, 1, memory_order_relaxed);
    xccl_conn_close(pair->out);
    pair->out = NULL;
}

static void in_close(struct xccl_boot_pair *pair)
{
    xccl_loop_remove(&pair->in_source);
    xccl_conn_close(pair->in);
    pair->in = NULL;
    pair->held = 0;
}

static void pair_fail(struct xccl_boot_pair *pair, xcclResult_t rc, const struct xccl_conn *conn)
{
    xccl_boot_fail_peer(pair->boot, rc, pair->rank, conn);
}

/* --- arrivals --- */

static int same_mail(const struct xccl_boot_mail *a, const struct xccl_boot_mail *b)
{
    return a->kind == b->kind && a->round == b->round && a->tag == b->tag;
}

static void lay(struct xccl_boot_recv *recv, uint64_t at, const uint8_t *from, size_t bytes)
{
    for (int i = 0; i < 2 && bytes; i++) {
        size_t room = recv->spans[i].bytes, part;

        if (at >= room) {
            at -= room;
            continue;
        }
        part = bytes < room - at ? bytes : (size_t)(room - at);
        memcpy((uint8_t *)recv->spans[i].data + at, from, part);
        from += part;
        bytes -= part;
        at = 0;
    }
}

static int fits(struct xccl_bootstrap *boot, int rank, const struct xccl_boot_mail *mail,
                const struct xccl_boot_recv *recv)
{
    if (mail->total == recv->mail.total)
        return 1;
    xccl_boot_fail(boot, xcclInvalidUsage,
                   "rank %d sends %u bytes where rank %d expects %u, out of band; use one version "
                   "of xccl and the same calls everywhere",
                   rank, mail->total, boot->rank, recv->mail.total);
    return 0;
}

static struct xccl_boot_recv *recv_find(struct xccl_bootstrap *boot, int rank,
                                        const struct xccl_boot_mail *mail)
{
    for (struct xccl_boot_recv **at = &boot->recvs; *at; at = &(*at)->next) {
        struct xccl_boot_recv *recv = *at;

        if (recv->rank != rank || !same_mail(&recv->mail, mail))
            continue;
        *at = recv->next;
        return recv;
    }
    return NULL;
}

static int is_waited_for(const struct xccl_bootstrap *boot, int rank)
{
    for (const struct xccl_boot_recv *recv = boot->recvs; recv; recv = recv->next) {
        if (recv->rank == rank)
            return 1;
    }
    return 0;
}

/* Keeps a message that comes early. NULL: an error. */
static struct xccl_boot_early *early_add(struct xccl_bootstrap *boot, int rank,
                                         const struct xccl_boot_mail *mail)
{
    struct xccl_boot_early *early;

    if (boot->early_bytes + mail->total > EARLY_HARD || boot->early_count >= EARLY_COUNT_MAX) {
        xccl_boot_fail(boot, xcclRemoteError,
                       "rank %d holds %llu messages of %llu bytes that it has not asked for, and "
                       "rank %d sends one more; receive them, or send fewer",
                       boot->rank, (unsigned long long)boot->early_count,
                       (unsigned long long)boot->early_bytes, rank);
        return NULL;
    }
    early = xccl_calloc(1, sizeof(*early) + mail->total);
    if (!early) {
        xccl_boot_fail(boot, xcclSystemError, "rank %d on its way: %s", boot->rank,
                       xccl_error_text());
        return NULL;
    }
    early->mail = *mail;
    early->rank = rank;
    *boot->early_end = early;
    boot->early_end = &early->next;
    boot->early_bytes += mail->total;
    boot->early_count++;
    return early;
}

static void early_free(struct xccl_bootstrap *boot, struct xccl_boot_early **at)
{
    struct xccl_boot_early *early = *at;

    *at = early->next;
    if (boot->early_end == &early->next)
        boot->early_end = at;
    boot->early_bytes -= early->mail.total;
    boot->early_count--;
    xccl_free(early);
}

static void pair_read_on(struct xccl_boot_pair *pair)
{
    xcclResult_t rc;

    if (!pair->held)
        return;
    pair->held = 0;
    /* A timer that is due at once: what was given back wakes no poll. */
    pair->in_source.timer_ns = xccl_clock_ns();
    rc = xccl_loop_add(pair->boot->loop, &pair->in_source);
    if (rc)
        pair_fail(pair, rc, pair->in);
}

/* A message begins: finds where it goes. 0: nowhere, an error or no room now. */
static int mail_begin(struct xccl_boot_pair *pair, const struct xccl_boot_mail *mail)
{
    struct xccl_bootstrap *boot = pair->boot;
    struct xccl_boot_recv *recv = recv_find(boot, pair->rank, mail);

    if (recv && !fits(boot, pair->rank, mail, recv))
        return 0;
    if (!recv && boot->early_bytes + mail->total > EARLY_SOFT && !is_waited_for(boot, pair->rank)) {
        pair->held = 1;
        return 0;
    }
    pair->keeping = recv ? NULL : early_add(boot, pair->rank, mail);
    if (!recv && !pair->keeping)
        return 0;
    pair->filling = recv;
    pair->inside = 1;
    pair->mail = *mail;
    pair->at = 0;
    return 1;
}

static void mail_piece(struct xccl_boot_pair *pair, const uint8_t *from, size_t bytes)
{
    if (pair->filling)
        lay(pair->filling, pair->at, from, bytes);
    else if (bytes)
        memcpy(pair->keeping->data + pair->at, from, bytes);
    pair->at += bytes;
    if (pair->at < pair->mail.total)
        return;
    if (pair->filling)
        pair->filling->done = 1;
    else
        pair->keeping->whole = 1;
    pair->filling = NULL;
    pair->keeping = NULL;
    pair->inside = 0;
}

static void in_on_mail(struct xccl_boot_pair *pair, const struct xccl_frame *frame)
{
    struct xccl_boot_mail mail;

    if (xccl_boot_mail_decode(frame->body, frame->bytes, &mail) != 0 ||
        mail.offset != (pair->inside ? pair->at : 0) ||
        (pair->inside && (!same_mail(&mail, &pair->mail) || mail.total != pair->mail.total))) {
        xccl_boot_fail(pair->boot, xcclRemoteError,
                       "rank %d at %s sent a message that cannot be read; use one version of xccl "
                       "everywhere",
                       pair->rank, xccl_conn_peer_text(pair->in));
        return;
    }
    if (!pair->inside && !mail_begin(pair, &mail)) {
        if (pair->held)
            xccl_conn_give_back(pair->in, frame);
        return;
    }
    mail_piece(pair, frame->body + XCCL_BOOT_MAIL_HEAD, frame->bytes - XCCL_BOOT_MAIL_HEAD);
}

static void in_watch(struct xccl_boot_pair *pair, struct xccl_conn *conn);

/* The sender has closed, or is gone. Whether that matters is for those who wait for it. */
static void in_end(struct xccl_boot_pair *pair, xcclResult_t rc)
{
    struct xccl_conn *parked = pair->parked;

    if (pair->inside || (rc && is_waited_for(pair->boot, pair->rank))) {
        if (!rc)
            rc = xccl_fail_quietly(xcclRemoteError, 0, NULL, "it left in the midst of a message");
        pair_fail(pair, rc, pair->in);
        return;
    }
    in_close(pair);
    pair->parked = NULL;
    if (parked)
        in_watch(pair, parked);
}

/* Takes one frame. 0: nothing more is to be had now. */
static int in_take_one(struct xccl_boot_pair *pair)
{
    struct xccl_frame frame;
    int got = 0;
    xcclResult_t rc = xccl_conn_take_frame(pair->in, &frame, &got);

    if (rc || (got && frame.final)) {
        in_end(pair, rc);
        return 0;
    }
    if (!got)
        return 0;
    if (frame.type == XCCL_BOOT_MAIL)
        in_on_mail(pair, &frame);
    else if (frame.type == XCCL_BOOT_ERROR)
        xccl_boot_fail_told(pair->boot, &frame, pair->in);
    else
        xccl_boot_fail(pair->boot, xcclRemoteError,
                       "rank %d at %s sent a message of type %u that is not due; use one version "
                       "of xccl everywhere",
                       pair->rank, xccl_conn_peer_text(pair->in), frame.type);
    return !pair->boot->rc && !pair->held;
}

static void in_read(struct xccl_boot_pair *pair)
{
    int more = 1;

    xccl_log_set_rank(pair->boot->rank);
    for (int i = 0; i < FRAMES_A_TURN && more; i++)
        more = in_take_one(pair);
    if (pair->held)
        xccl_loop_remove(&pair->in_source);
    xccl_boot_op_advance(pair->boot);
    xccl_log_set_rank(-1);
}

static void in_on_events(struct xccl_source *source, uint32_t events)
{
    (void)events;
    in_read(source->owner);
}

static void in_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    (void)now_ns;
    in_read(source->owner);
}

static void in_watch(struct xccl_boot_pair *pair, struct xccl_conn *conn)
{
    xcclResult_t rc;

    pair->in = conn;
    pair->in_source.fd = xccl_conn_fd(conn);
    pair->in_source.events = EPOLLIN;
    pair->in_source.timer_ns = XCCL_NEVER_NS;
    rc = xccl_loop_add(pair->boot->loop, &pair->in_source);
    if (rc)
        pair_fail(pair, rc, conn);
}

/* --- departures --- */

static void out_on_events(struct xccl_source *source, uint32_t events);

static struct xccl_boot_pair *pair_get(struct xccl_bootstrap *boot, int rank)
{
    struct xccl_boot_pair *pair = boot->pairs[rank];

    if (pair)
        return pair;
    pair = xccl_calloc(1, sizeof(*pair));
    if (!pair)
        return NULL;
    pair->boot = boot;
    pair->rank = rank;
    pair->sends_end = &pair->sends;
    pair->out_source.fd = pair->in_source.fd = -1;
    pair->out_source.timer_ns = pair->in_source.timer_ns = XCCL_NEVER_NS;
    pair->out_source.on_events = out_on_events;
    pair->in_source.on_events = in_on_events;
    pair->in_source.on_timer = in_on_timer;
    pair->out_source.owner = pair->in_source.owner = pair;
    boot->pairs[rank] = pair;
    return pair;
}

static void out_connect(struct xccl_boot_pair *pair)
{
    struct xccl_bootstrap *boot = pair->boot;
    struct xccl_hello hello = xccl_boot_hello(boot, XCCL_PURPOSE_MAIL, 0);
    char text[XCCL_ADDR_TEXT_BYTES] = "?", why[XCCL_ERROR_TEXT_BYTES];
    struct xccl_addr addr;
    xcclResult_t rc = xcclRemoteError;

    if (xccl_boot_addr(boot, pair->rank, &addr) == 0) {
        xccl_addr_format(&addr, text);
        rc = xccl_conn_start(&addr, boot->job.secret, &hello, &pair->out);
    }
    if (rc) {
        snprintf(why, sizeof(why), "%s", xccl_error_text());
        xccl_boot_fail(boot, rc,
                       "rank %d cannot reach rank %d at %s: %.300s; look at that rank's log",
                       boot->rank, pair->rank, text, why);
        return;
    }
    atomic_fetch_add_explicit(&out_count, 1, memory_order_relaxed);
    pair->shaking = 1;
    pair->tries++;
    pair->out_source.fd = xccl_conn_fd(pair->out);
    pair->out_source.events = xccl_conn_shake_events(pair->out);
    rc = xccl_loop_add(boot->loop, &pair->out_source);
    if (rc)
        pair_fail(pair, rc, pair->out);
}

/* Queues the next piece of a message. */
static xcclResult_t send_piece(struct xccl_boot_pair *pair, struct xccl_boot_send *send)
{
    uint8_t head[XCCL_BOOT_MAIL_HEAD];
    uint64_t at = send->mail.offset;
    struct xccl_span span = send->spans[0];

    if (at >= span.bytes) {
        at -= span.bytes;
        span = send->spans[1];
    }
    span.data = span.bytes ? (const uint8_t *)span.data + at : NULL;
    span.bytes -= at;
    if (span.bytes > PIECE_BYTES)
        span.bytes = PIECE_BYTES;
    xccl_boot_mail_encode(&send->mail, head);
    send->mail.offset += (uint32_t)span.bytes;
    send->queued = send->mail.offset == send->mail.total;
    return xccl_conn_queue_parts(pair->out, XCCL_BOOT_MAIL, (struct xccl_span){head, sizeof(head)},
                                 span);
}

/* Sends what the socket takes; *pending_out 1 when it is full. */
static xcclResult_t out_push(struct xccl_boot_pair *pair, int *pending_out)
{
    xcclResult_t rc = xccl_conn_flush(pair->out, pending_out);

    while (!rc && !*pending_out && pair->sends) {
        struct xccl_boot_send *send = pair->sends;

        if (send->queued) {
            send->done = 1;
            pair->sends = send->next;
            if (!pair->sends)
                pair->sends_end = &pair->sends;
            continue;
        }
        rc = send_piece(pair, send);
        if (!rc)
            rc = xccl_conn_flush(pair->out, pending_out);
    }
    return rc;
}

/* A push failed, most likely because the peer gave up; then it has said why. */
static void out_failed(struct xccl_boot_pair *pair, xcclResult_t rc)
{
    char why[XCCL_ERROR_TEXT_BYTES];
    struct xccl_frame frame;
    int got = 0;

    snprintf(why, sizeof(why), "%s", xccl_error_text());
    if (xccl_conn_take_frame(pair->out, &frame, &got) == xcclSuccess && got && !frame.final &&
        frame.type == XCCL_BOOT_ERROR)
        xccl_boot_fail_told(pair->boot, &frame, pair->out);
    xccl_error_set_text(why);
    pair_fail(pair, rc, pair->out);
}

static void out_rest(struct xccl_boot_pair *pair)
{
    struct xccl_bootstrap *boot = pair->boot;

    if (atomic_load_explicit(&out_count, memory_order_relaxed) > out_budget()) {
        out_close(pair);
        return;
    }
    pair->used_ns = xccl_clock_ns();
    if (boot->idle.timer_ns == XCCL_NEVER_NS)
        xccl_loop_set_timer(&boot->idle, pair->used_ns + IDLE_NS);
}

/* Moves what waits for this rank. */
static void out_pump(struct xccl_boot_pair *pair)
{
    int pending = 0;
    xcclResult_t rc;

    if (!pair->out && pair->sends)
        out_connect(pair);
    if (!pair->out || pair->shaking || pair->boot->rc)
        return;
    rc = out_push(pair, &pending);
    if (!rc)
        rc = xccl_loop_set_events(&pair->out_source, pending ? EPOLLIN | EPOLLOUT : EPOLLIN);
    if (rc)
        out_failed(pair, rc);
    else if (!pending)
        out_rest(pair);
}

static void out_shake(struct xccl_boot_pair *pair)
{
    const struct xccl_hello *other;
    int done = 0;
    xcclResult_t rc = xccl_conn_shake(pair->out, &done);

    if (rc && xccl_conn_turned_away(pair->out) && pair->tries < CONNECT_TRIES) {
        out_close(pair);
        out_connect(pair);
        return;
    }
    if (!rc && !done)
        rc = xccl_loop_set_events(&pair->out_source, xccl_conn_shake_events(pair->out));
    if (rc) {
        pair_fail(pair, rc, pair->out);
        return;
    }
    if (!done)
        return;
    other = xccl_conn_hello(pair->out);
    if (!pair->boot->has_parent && other->rank != (uint32_t)pair->rank) {
        xccl_boot_fail(pair->boot, xcclRemoteError,
                       "rank %u answers at %s where rank %d should be; look at both ranks' logs",
                       other->rank, xccl_conn_peer_text(pair->out), pair->rank);
        return;
    }
    pair->shaking = pair->tries = 0;
    out_pump(pair);
}

/* The receiver says something: why it gives up, or that it leaves. */
static void out_read(struct xccl_boot_pair *pair)
{
    struct xccl_frame frame;
    int got = 0;
    xcclResult_t rc = xccl_conn_take_frame(pair->out, &frame, &got);

    if (!rc && !got)
        return;
    if (!rc && !frame.final && frame.type == XCCL_BOOT_ERROR) {
        xccl_boot_fail_told(pair->boot, &frame, pair->out);
    } else if (!rc && !frame.final) {
        xccl_boot_fail(pair->boot, xcclRemoteError,
                       "rank %d at %s sent a message of type %u that is not due; use one version "
                       "of xccl everywhere",
                       pair->rank, xccl_conn_peer_text(pair->out), frame.type);
    } else if (pair->sends) {
        if (!rc)
            rc = xccl_fail_quietly(xcclRemoteError, 0, NULL, "it has left");
        pair_fail(pair, rc, pair->out);
    } else {
        out_close(pair);
    }
}

static void out_on_events(struct xccl_source *source, uint32_t events)
{
    struct xccl_boot_pair *pair = source->owner;

    xccl_log_set_rank(pair->boot->rank);
    if (pair->shaking) {
        out_shake(pair);
    } else {
        if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
            out_read(pair);
        if (pair->out && !pair->boot->rc && (events & EPOLLOUT))
            out_pump(pair);
    }
    xccl_boot_op_advance(pair->boot);
    xccl_log_set_rank(-1);
}

/* Closes what was not used for a while. */
static void idle_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct xccl_bootstrap *boot = source->owner;
    uint64_t next_ns = XCCL_NEVER_NS;

    for (int i = 0; i < boot->nranks; i++) {
        struct xccl_boot_pair *pair = boot->pairs[i];

        if (!pair || !pair->out || pair->sends || pair->shaking)
            continue;
        if (pair->used_ns + IDLE_NS <= now_ns)
            out_close(pair);
        else if (pair->used_ns + IDLE_NS < next_ns)
            next_ns = pair->used_ns + IDLE_NS;
    }
    xccl_loop_set_timer(source, next_ns);
}

/* --- for the rest of the bootstrap --- */

xcclResult_t xccl_boot_mail_start(struct xccl_bootstrap *boot)
{
    boot->early_end = &boot->early;
    boot->pairs = xccl_calloc((size_t)boot->nranks, sizeof(struct xccl_boot_pair *));
    if (!boot->pairs)
        return xcclSystemError;
    boot->idle.fd = -1;
    boot->idle.timer_ns = XCCL_NEVER_NS;
    boot->idle.on_timer = idle_on_timer;
    boot->idle.owner = boot;
    return xccl_loop_add(boot->loop, &boot->idle);
}

void xccl_boot_mail_on_conn(struct xccl_bootstrap *boot, struct xccl_conn *conn)
{
    const struct xccl_hello *hello = xccl_conn_hello(conn);
    int rank = (int)hello->rank;
    struct xccl_boot_pair *pair = NULL;

    if (hello->rank < (uint32_t)boot->nranks && hello->nranks == (uint32_t)boot->nranks &&
        rank != boot->rank)
        pair = pair_get(boot, rank);
    if (!pair || pair->parked) {
        xccl_log(XCCL_LOG_WARN, "rank %u of %u at %s sends to rank %d of %d without reason",
                 hello->rank, hello->nranks, xccl_conn_peer_text(conn), boot->rank, boot->nranks);
        xccl_conn_close(conn);
        return;
    }
    if (boot->rc) {
        uint8_t body[XCCL_BOOT_ERROR_MAX];

        (void)xccl_conn_queue(conn, XCCL_BOOT_ERROR, body,
                              xccl_boot_error_encode(boot->rc, boot->error, body));
    }
    if (pair->in)
        pair->parked = conn;
    else if (boot->rc)
        pair->in = conn; /* not read any more, but open until its sender has read */
    else
        in_watch(pair, conn);
}

/* A message to this rank itself. */
static void send_here(struct xccl_bootstrap *boot, struct xccl_boot_send *send)
{
    struct xccl_boot_recv *recv = recv_find(boot, boot->rank, &send->mail);
    struct xccl_boot_early *early = NULL;
    uint64_t at = 0;

    if (recv && !fits(boot, boot->rank, &send->mail, recv))
        return;
    if (!recv)
        early = early_add(boot, boot->rank, &send->mail);
    for (int i = 0; i < 2 && (recv || early) && send->spans[i].bytes; i++) {
        if (recv)
            lay(recv, at, send->spans[i].data, send->spans[i].bytes);
        else
            memcpy(early->data + at, send->spans[i].data, send->spans[i].bytes);
        at += send->spans[i].bytes;
    }
    if (recv)
        recv->done = 1;
    if (early)
        early->whole = 1;
    send->done = recv || early;
}

void xccl_boot_send_post(struct xccl_bootstrap *boot, struct xccl_boot_send *send)
{
    struct xccl_boot_pair *pair;

    boot->mail_used = 1;
    send->started = 1;
    if (send->rank == boot->rank) {
        send_here(boot, send);
        return;
    }
    pair = pair_get(boot, send->rank);
    if (!pair) {
        xccl_boot_fail(boot, xcclSystemError, "rank %d cannot send: %s", boot->rank,
                       xccl_error_text());
        return;
    }
    send->next = NULL;
    *pair->sends_end = send;
    pair->sends_end = &send->next;
    out_pump(pair);
}

/* The pair that is at work on an early message. */
static struct xccl_boot_pair *keeper_of(struct xccl_bootstrap *boot,
                                        const struct xccl_boot_early *early)
{
    struct xccl_boot_pair *pair = boot->pairs[early->rank];

    return pair && pair->keeping == early ? pair : NULL;
}

static void read_on_all(struct xccl_bootstrap *boot)
{
    for (int i = 0; i < boot->nranks; i++) {
        if (boot->pairs[i])
            pair_read_on(boot->pairs[i]);
    }
}

void xccl_boot_recv_post(struct xccl_bootstrap *boot, struct xccl_boot_recv *recv)
{
    struct xccl_boot_early **at = &boot->early;
    struct xccl_boot_pair *pair;
    struct xccl_boot_recv **end = &boot->recvs;
    int was_full = boot->early_bytes > EARLY_SOFT;

    recv->started = 1;
    while (*at && ((*at)->rank != recv->rank || !same_mail(&(*at)->mail, &recv->mail)))
        at = &(*at)->next;
    if (*at) {
        if (!fits(boot, recv->rank, &(*at)->mail, recv))
            return;
        pair = keeper_of(boot, *at);
        lay(recv, 0, (*at)->data, pair ? pair->at : recv->mail.total);
        recv->done = !pair;
        if (pair) {
            pair->filling = recv;
            pair->keeping = NULL;
        }
        early_free(boot, at);
        if (was_full && boot->early_bytes <= EARLY_SOFT)
            read_on_all(boot);
        return;
    }
    recv->next = NULL;
    while (*end)
        end = &(*end)->next;
    *end = recv;
    if (boot->pairs[recv->rank])
        pair_read_on(boot->pairs[recv->rank]);
}

void xccl_boot_mail_stop(struct xccl_bootstrap *boot)
{
    boot->recvs = NULL;
    xccl_loop_remove(&boot->idle);
    for (int i = 0; i < boot->nranks && boot->pairs; i++) {
        struct xccl_boot_pair *pair = boot->pairs[i];

        if (!pair)
            continue;
        xccl_loop_remove(&pair->in_source);
        xccl_loop_remove(&pair->out_source);
        pair->sends = NULL;
        pair->sends_end = &pair->sends;
        pair->filling = NULL;
        pair->held = 0;
    }
}

void xccl_boot_mail_tell(struct xccl_bootstrap *boot, uint16_t type, const void *body, size_t bytes)
{
    for (int i = 0; i < boot->nranks && boot->pairs; i++) {
        struct xccl_boot_pair *pair = boot->pairs[i];

        if (pair && pair->out && !pair->shaking)
            (void)xccl_conn_queue(pair->out, type, body, bytes);
        if (pair && pair->in)
            (void)xccl_conn_queue(pair->in, type, body, bytes);
    }
}

void xccl_boot_mail_close(struct xccl_bootstrap *boot)
{
    xccl_loop_remove(&boot->idle);
    for (int i = 0; i < boot->nranks && boot->pairs; i++) {
        struct xccl_boot_pair *pair = boot->pairs[i];

        if (!pair)
            continue;
        out_close(pair);
        in_close(pair);
        xccl_conn_close(pair->parked);
        xccl_free(pair);
    }
    xccl_free(boot->pairs);
    boot->pairs = NULL;
    while (boot->early)
        early_free(boot, &boot->early);
}
