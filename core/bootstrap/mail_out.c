/* SPDX-License-Identifier: BSD-3-Clause */
/* Departures: a connection to a rank is made for the first message to it, moves what waits in line,
 * and is ended when it was not used for 2 s or when the process has too many of them. Thread:
 * callbacks of the service thread, or any with the loop's lock. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "base/log.h"
#include "bootstrap/mail_int.h"

#define PIECE_BYTES (60u << 10)
#define IDLE_NS     (2 * XCCL_NS_PER_S)

/* Open out connections of this process; each costs its two ends up to two descriptors here. */
static _Atomic int out_count;

/* How many may stay open while they are not used. */
static int out_budget(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > 1u << 20)
        return 1 << 17;
    return (int)(limit.rlim_cur / 4);
}

void xccl_boot_out_close(struct xccl_boot_pair *pair)
{
    xccl_loop_remove(&pair->out_source);
    if (pair->counted)
        /* Relaxed: a count, which orders nothing. */
        atomic_fetch_sub_explicit(&out_count, 1, memory_order_relaxed);
    xccl_conn_close(pair->out);
    pair->out = NULL;
    pair->counted = pair->ending = pair->shaking = 0;
}

/* Nothing waits to be sent: says so, until the other end closes. What cannot be said is no loss to
 * this rank. */
static void out_end(struct xccl_boot_pair *pair)
{
    int pending = 0;
    xcclResult_t rc = xccl_conn_finish(pair->out, &pending);

    pair->ending = 1;
    if (!rc)
        rc = xccl_loop_set_events(&pair->out_source, pending ? EPOLLIN | EPOLLOUT : EPOLLIN);
    if (rc)
        xccl_boot_out_close(pair);
}

static void out_count_in(struct xccl_boot_pair *pair)
{
    pair->counted = 1;
    atomic_fetch_add_explicit(&out_count, 1, memory_order_relaxed);
}

static void out_connect(struct xccl_boot_pair *pair)
{
    out_count_in(pair);
    pair->shaking = 1;
    xccl_boot_dial_start(&pair->dial);
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

static void out_rest(struct xccl_boot_pair *pair)
{
    struct xccl_bootstrap *boot = pair->boot;

    if (atomic_load_explicit(&out_count, memory_order_relaxed) > out_budget()) {
        out_end(pair);
        return;
    }
    pair->used_ns = xccl_clock_ns();
    if (boot->idle.timer_ns == XCCL_NEVER_NS)
        xccl_loop_set_timer(&boot->idle, pair->used_ns + IDLE_NS);
}

/* Moves what waits for this rank. */
void xccl_boot_out_pump(struct xccl_boot_pair *pair)
{
    int pending = 0;
    xcclResult_t rc;

    if (!pair->out && !pair->shaking && pair->sends)
        out_connect(pair);
    if (!pair->out || pair->shaking || pair->ending || pair->boot->rc)
        return;
    rc = out_push(pair, &pending);
    if (!rc)
        rc = xccl_loop_set_events(&pair->out_source, pending ? EPOLLIN | EPOLLOUT : EPOLLIN);
    if (rc)
        xccl_boot_fail_push(pair->boot, rc, pair->rank, pair->out);
    else if (!pending)
        out_rest(pair);
}

static void out_proven(struct xccl_boot_pair *pair)
{
    const struct xccl_hello *other = xccl_conn_hello(pair->out);

    if (!pair->boot->has_parent && other->rank != (uint32_t)pair->rank) {
        xccl_boot_raise_at(pair->boot, XCCL_TROUBLE_BOOT_WRONG_RANK, pair->rank, pair->out,
                           other->rank);
        return;
    }
    pair->shaking = 0;
    xccl_boot_out_pump(pair);
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
        xccl_boot_raise_at(pair->boot, XCCL_TROUBLE_BOOT_MESSAGE, pair->rank, pair->out,
                           frame.type);
    } else if (pair->ending) {
        xccl_boot_out_close(pair);
        xccl_boot_out_pump(pair);
    } else if (rc || pair->sends) {
        /* One that ends without a word may never have been read: without memory for its proof the
         * other end drops it. What was sent over it must not be missed in silence. */
        if (!rc)
            rc = xccl_fail_quietly(xcclRemoteError, 0, NULL, "it has disconnected");
        xccl_boot_pair_fail(pair, rc, pair->out);
    } else {
        xccl_boot_out_close(pair);
    }
}

void xccl_boot_out_on_events(struct xccl_source *source, uint32_t events)
{
    struct xccl_boot_pair *pair = source->owner;

    xccl_log_set_rank(pair->boot->rank);
    if (pair->shaking) {
        if (xccl_boot_dial_shake(&pair->dial))
            out_proven(pair);
    } else {
        if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
            out_read(pair);
        if (pair->out && !pair->boot->rc && (events & EPOLLOUT)) {
            if (pair->ending)
                out_end(pair);
            else
                xccl_boot_out_pump(pair);
        }
    }
    xccl_boot_op_advance(pair->boot);
    xccl_log_set_rank(-1);
}

void xccl_boot_out_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct xccl_boot_pair *pair = source->owner;

    (void)now_ns;
    xccl_log_set_rank(pair->boot->rank);
    if (pair->shaking && xccl_boot_dial_on_timer(&pair->dial))
        out_proven(pair);
    xccl_boot_op_advance(pair->boot);
    xccl_log_set_rank(-1);
}

void xccl_boot_out_adopt(struct xccl_boot_pair *pair, struct xccl_conn *conn)
{
    xcclResult_t rc;

    out_count_in(pair);
    pair->dial.tries.answers = 1;
    pair->out = conn;
    pair->out_source.fd = xccl_conn_fd(conn);
    pair->out_source.events = EPOLLIN;
    rc = xccl_loop_add(pair->boot->loop, &pair->out_source);
    if (rc)
        xccl_boot_pair_fail(pair, rc, conn);
    else
        out_rest(pair);
}

/* Closes what was not used for a while. */
void xccl_boot_idle_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct xccl_bootstrap *boot = source->owner;
    uint64_t next_ns = XCCL_NEVER_NS;

    for (int i = 0; i < boot->nranks; i++) {
        struct xccl_boot_pair *pair = boot->pairs[i];

        if (!pair || !pair->out || pair->sends || pair->shaking || pair->ending)
            continue;
        if (pair->used_ns + IDLE_NS <= now_ns)
            out_end(pair);
        else if (pair->used_ns + IDLE_NS < next_ns)
            next_ns = pair->used_ns + IDLE_NS;
    }
    xccl_loop_set_timer(source, next_ns);
}
