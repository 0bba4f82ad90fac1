/* SPDX-License-Identifier: BSD-3-Clause */
/* The first error of a rank, and how the others come to know it.
 *
 *   none --own error, or told by a peer or the root--> FAILED: all peers are told, once
 *   none --a peer is lost while the root is there--> HEARING --root's verdict, its end, or 0.5 s-->
 *   FAILED
 *
 * A rank that is told tells its own peers in turn, so an error goes round the ring and is the same
 * on all ranks: the first culprit's. For 0.3 s the door stays open for those who are on their way
 * here; they would find it shut and blame this rank instead.
 *
 * Thread: callbacks of the service thread, or any with the loop's lock. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "bootstrap/bootstrap_int.h"

#define LINGER_NS  (300 * XCCL_NS_PER_MS)
#define VERDICT_NS (500 * XCCL_NS_PER_MS) /* how long the root is listened to after a loss */

static size_t error_frame(const struct xccl_bootstrap *boot, uint8_t body_out[XCCL_BOOT_ERROR_MAX])
{
    return xccl_boot_error_encode(boot->aborted ? xcclRemoteError : boot->rc, boot->error,
                                  body_out);
}

void xccl_boot_tell_late(const struct xccl_bootstrap *boot, struct xccl_conn *conn)
{
    uint8_t body[XCCL_BOOT_ERROR_MAX];

    if (boot->state == XCCL_BOOT_FAILED)
        (void)xccl_conn_queue(conn, XCCL_BOOT_ERROR, body, error_frame(boot, body));
}

/* The error is final. Nothing is freed: callers are in the midst of what failed. */
static void settle(struct xccl_bootstrap *boot)
{
    uint8_t body[XCCL_BOOT_ERROR_MAX];
    size_t bytes = error_frame(boot, body);

    boot->state = XCCL_BOOT_FAILED;
    boot->op.kind = XCCL_OP_NONE;
    boot->above->tell(boot, XCCL_BOOT_ERROR, body, bytes);
    for (struct xccl_boot_parked *at = boot->parked; at; at = at->next)
        (void)xccl_conn_queue(at->conn, XCCL_BOOT_ERROR, body, bytes);
    boot->above->stop(boot, 0);
    xccl_loop_set_timer(&boot->timer, XCCL_NEVER_NS);
    boot->linger_ns = xccl_clock_ns() + LINGER_NS;
    if (boot->bell)
        xccl_bell_ring(boot->bell);
    xccl_bell_ring(&boot->own_bell);
    /* Nobody will take it now, and others may wait for it already. */
    if (boot->child)
        xccl_boot_fail(boot->child, boot->aborted ? xcclRemoteError : boot->rc, "%s", boot->error);
}

/* The text is kept; now the rest. */
static void begin_failing(struct xccl_bootstrap *boot, xcclResult_t rc)
{
    const struct xccl_boot_root_link *link = &boot->root_links[0];

    boot->rc = rc;
    if (!boot->maybe_echo || !link->conn || link->shaking || link->told) {
        settle(boot);
        return;
    }
    boot->state = XCCL_BOOT_HEARING;
    boot->above->stop(boot, 1);
    xccl_loop_set_timer(&boot->timer, xccl_clock_ns() + VERDICT_NS);
}

void xccl_boot_fail(struct xccl_bootstrap *boot, xcclResult_t rc, const char *fmt, ...)
{
    va_list args;

    if (boot->state == XCCL_BOOT_HEARING) /* the root is lost too */
        settle(boot);
    if (boot->rc)
        return;
    va_start(args, fmt);
    vsnprintf(boot->error, sizeof(boot->error), fmt, args);
    va_end(args);
    begin_failing(boot, rc);
}

void xccl_boot_fail_peer(struct xccl_bootstrap *boot, xcclResult_t rc, int rank,
                         const struct xccl_conn *conn)
{
    char why[XCCL_ERROR_TEXT_BYTES];

    if (boot->rc)
        return;
    snprintf(why, sizeof(why), "%s", xccl_error_text());
    boot->maybe_echo = 1;
    xccl_boot_fail(boot, rc, "rank %d lost rank %d at %s: %.300s; see that rank's log", boot->rank,
                   rank, xccl_conn_peer_text(conn), why);
}

void xccl_boot_fail_told(struct xccl_bootstrap *boot, const struct xccl_frame *frame,
                         const struct xccl_conn *conn)
{
    struct xccl_boot_error error;

    if (xccl_boot_error_decode(frame->body, frame->bytes, &error) != 0) {
        xccl_boot_fail(boot, xcclRemoteError,
                       "%s sent an error that cannot be read; use one version of xccl everywhere",
                       xccl_conn_peer_text(conn));
    } else if (boot->state == XCCL_BOOT_HEARING) {
        boot->rc = error.rc;
        snprintf(boot->error, sizeof(boot->error), "%s", error.text);
        settle(boot);
    } else {
        xccl_boot_fail(boot, error.rc, "%s", error.text);
    }
}

/* Most likely the peer gave up; then it has said why. */
void xccl_boot_fail_push(struct xccl_bootstrap *boot, xcclResult_t rc, int rank,
                         struct xccl_conn *conn)
{
    char why[XCCL_ERROR_TEXT_BYTES];
    struct xccl_frame frame;
    int got = 0;

    snprintf(why, sizeof(why), "%s", xccl_error_text());
    if (xccl_conn_take_frame(conn, &frame, &got) == xcclSuccess && got && !frame.final &&
        frame.type == XCCL_BOOT_ERROR)
        xccl_boot_fail_told(boot, &frame, conn);
    xccl_error_set_text(why);
    /* Kept only if there was no word of the peer's. */
    xccl_boot_fail_peer(boot, rc, rank, conn);
}

void xccl_boot_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct xccl_bootstrap *boot = source->owner;
    char waits[XCCL_ERROR_TEXT_BYTES];

    (void)now_ns;
    if (boot->state == XCCL_BOOT_HEARING) {
        settle(boot);
        return;
    }
    if (boot->rc || boot->op.kind == XCCL_OP_NONE)
        return;
    boot->above->wait_text(boot, waits, sizeof(waits));
    xccl_boot_fail(boot, xcclTimeout, "timed out: rank %d of %d %.400s", boot->rank, boot->nranks,
                   waits);
}
