/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages from any rank to any other. A connection carries messages one way only, and its sender
 * alone decides when it ends, so that nothing is lost on the way. It is one of joining, or the
 * sender opens it:
 *
 *   out   none --first message--> shaking --proven--> open --2 s unused, or too many--> ending
 *         ending: FINAL was sent --the other end closes--> none
 *   in    none --proven--> read --FINAL--> none
 *
 * The next connection is not begun before the one before it has ended at both ends: its proof could
 * overtake the other's on the way, and so could its messages.
 *
 * A message is a row of MAIL frames.
 *
 * Thread: callbacks of the service thread, or any with the loop's lock. */
#include "base/alloc.h"
#include "base/log.h"
#include "bootstrap/mail_int.h"

void xccl_boot_pair_fail(struct xccl_boot_pair *pair, xcclResult_t rc, const struct xccl_conn *conn)
{
    xccl_boot_fail_peer(pair->boot, rc, pair->rank, conn);
}

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
    pair->out_source.on_events = xccl_boot_out_on_events;
    pair->out_source.on_timer = xccl_boot_out_on_timer;
    pair->dial = (struct xccl_boot_dial){.boot = boot,
                                         .rank = rank,
                                         .purpose = XCCL_PURPOSE_MAIL,
                                         .source = &pair->out_source,
                                         .conn = &pair->out};
    pair->in_source.on_events = xccl_boot_in_on_events;
    pair->in_source.on_timer = xccl_boot_in_on_timer;
    pair->out_source.owner = pair->in_source.owner = pair;
    boot->pairs[rank] = pair;
    return pair;
}

xcclResult_t xccl_boot_mail_start(struct xccl_bootstrap *boot)
{
    boot->early_end = &boot->early;
    boot->pairs = xccl_calloc((size_t)boot->nranks, sizeof(struct xccl_boot_pair *));
    if (!boot->pairs)
        return xcclSystemError;
    boot->idle.fd = -1;
    boot->idle.timer_ns = XCCL_NEVER_NS;
    boot->idle.on_timer = xccl_boot_idle_on_timer;
    boot->idle.owner = boot;
    return xccl_loop_add(boot->loop, &boot->idle);
}

void xccl_boot_mail_adopt(struct xccl_bootstrap *boot, int rank, struct xccl_conn *conn, int out)
{
    struct xccl_boot_pair *pair = pair_get(boot, rank);

    if (!pair || (out ? pair->out != NULL : pair->in != NULL)) {
        xccl_boot_raise_why(boot, XCCL_TROUBLE_BOOT_CANNOT_EXCHANGE,
                            pair ? xcclInternalError : xcclSystemError, rank,
                            pair ? "a message is already under way" : xccl_error_text());
        xccl_boot_tell_late(boot, conn);
        xccl_conn_close(conn);
    } else if (out) {
        xccl_boot_out_adopt(pair, conn);
    } else {
        xccl_boot_in_watch(pair, conn);
    }
}

void xccl_boot_mail_on_conn(struct xccl_bootstrap *boot, struct xccl_conn *conn)
{
    const struct xccl_hello *hello = xccl_conn_hello(conn);
    struct xccl_boot_pair *pair;

    if (hello->rank >= (uint32_t)boot->nranks || hello->nranks != (uint32_t)boot->nranks ||
        hello->rank == (uint32_t)boot->rank) {
        xccl_log(XCCL_LOG_WARN, "rank %u of %u at %s sends unexpected data to rank %d of %d",
                 hello->rank, hello->nranks, xccl_conn_peer_text(conn), boot->rank, boot->nranks);
        xccl_conn_close(conn);
        return;
    }
    pair = pair_get(boot, (int)hello->rank);
    if (!pair || pair->parked) { /* what is in it was sent, so it must not be lost in silence */
        if (pair)
            xccl_boot_raise_at(boot, XCCL_TROUBLE_BOOT_THIRD_CONNECTION, pair->rank, conn, 0);
        else
            xccl_boot_raise_why(boot, XCCL_TROUBLE_BOOT_CANNOT_EXCHANGE, xcclSystemError,
                                (int)hello->rank, xccl_error_text());
        xccl_boot_tell_late(boot, conn);
        xccl_conn_close(conn);
        return;
    }
    xccl_boot_tell_late(boot, conn);
    if (pair->in)
        pair->parked = conn;
    else if (boot->rc)
        pair->in = conn; /* not read any more, but open until its sender has read */
    else
        xccl_boot_in_watch(pair, conn);
}

void xccl_boot_send_post(struct xccl_bootstrap *boot, struct xccl_boot_send *send)
{
    struct xccl_boot_pair *pair;

    send->started = 1;
    if (send->rank == boot->rank) {
        xccl_boot_send_here(boot, send);
        return;
    }
    pair = pair_get(boot, send->rank);
    if (!pair) {
        xccl_boot_raise_own(boot, XCCL_TROUBLE_BOOT_CANNOT_SEND, xcclSystemError);
        return;
    }
    send->next = NULL;
    *pair->sends_end = send;
    pair->sends_end = &send->next;
    xccl_boot_out_pump(pair);
}

void xccl_boot_mail_stop(struct xccl_bootstrap *boot)
{
    boot->recvs = NULL;
    boot->held_count = 0;
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

        if (pair && pair->out && !pair->shaking && !pair->ending)
            (void)xccl_conn_queue(pair->out, type, body, bytes);
        if (pair && pair->in)
            (void)xccl_conn_queue(pair->in, type, body, bytes);
        if (pair && pair->parked)
            (void)xccl_conn_queue(pair->parked, type, body, bytes);
    }
}

void xccl_boot_mail_close(struct xccl_bootstrap *boot)
{
    xccl_loop_remove(&boot->idle);
    for (int i = 0; i < boot->nranks && boot->pairs; i++) {
        struct xccl_boot_pair *pair = boot->pairs[i];

        if (!pair)
            continue;
        xccl_boot_out_close(pair);
        xccl_boot_in_close(pair);
        xccl_conn_close(pair->parked);
        xccl_free(pair);
    }
    xccl_free(boot->pairs);
    boot->pairs = NULL;
    xccl_boot_early_drop(boot);
}
