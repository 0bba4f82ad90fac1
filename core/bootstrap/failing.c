/* SPDX-License-Identifier: BSD-3-Clause */
/* The first error of a rank, and how the others come to know it.
 *
 *   none --own error, or told by a peer or the root--> FAILED: all peers are told, once
 *   none --a neighbour's notice, and the operation does not complete after it--> FAILED
 *   none --a peer is lost while the root is there--> HEARING --root's verdict, its end, or 0.5 s-->
 *   FAILED
 *
 * A rank that is told tells its own peers in turn, so an error goes round the ring and is the same
 * on all ranks: the first culprit's. For 0.25 s the door stays open for those who are on their way
 * here; they would find it shut and blame this rank instead.
 *
 * Thread: callbacks of the service thread, or any with the loop's lock. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/wire.h"
#include "bootstrap/bootstrap_int.h"

#define LINGER_NS  (250 * XCCL_NS_PER_MS) /* a destroy after an error takes 0.3 s at most */
#define VERDICT_NS (500 * XCCL_NS_PER_MS) /* how long the root is listened to after a loss */
/* How long the operation at work may take after a notice: of a lost rank, and of anything else. */
#define LOST_NS   (500 * XCCL_NS_PER_MS)
#define NOTICE_NS (3 * XCCL_NS_PER_S)

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
    char text[XCCL_ERROR_TEXT_BYTES];

    /* That a connection does not take it is no news, and the thread's own text may be the user's.
     */
    snprintf(text, sizeof(text), "%s", xccl_error_text());
    boot->state = XCCL_BOOT_FAILED;
    /* Release: the error before. Pairs with xccl_limit_aborted(). */
    atomic_store_explicit(&boot->failed, 1, memory_order_release);
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
    xccl_error_set_text(text);
}

/* 1: a neighbour on the ring may say why another rank has gone. */
static int ring_hears(const struct xccl_bootstrap *boot)
{
    const struct xccl_boot_round *take = &boot->take[0], *give = &boot->give[0];

    return (take->conn && !take->shaking && !take->kept) || (give->conn && !give->kept);
}

/* Somebody may know better why a peer has gone: the root while ranks join, and a neighbour of that
 * peer, whose word goes round the ring, as long as nobody names ranks here. */
static int hears_more(const struct xccl_bootstrap *boot)
{
    const struct xccl_boot_root_link *link = &boot->root_links[0];

    if (!boot->maybe_echo)
        return 0;
    if (link->conn && !link->shaking && !link->told && !link->ending)
        return 1;
    return boot->state == XCCL_BOOT_UP && !boot->places.find && ring_hears(boot);
}

/* The text is kept; now the rest. */
static void begin_failing(struct xccl_bootstrap *boot, xcclResult_t rc)
{
    boot->rc = rc;
    if (!hears_more(boot)) {
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

/* A neighbour on the ring, or the root in the rank's process, has said so itself. NULL: neither. */
static const struct xccl_boot_who *who_is(const struct xccl_bootstrap *boot, int rank)
{
    const struct xccl_boot_round *rounds[] = {&boot->take[0], &boot->give[0]};

    for (int i = 0; i < 2; i++) {
        const struct xccl_alive *root = &boot->root_links[i].alive;

        if (rounds[i]->boot && rounds[i]->rank == rank && rounds[i]->alive.known)
            return &rounds[i]->alive.who;
        if (root->known && root->who.rank == (uint32_t)rank)
            return &root->who;
    }
    return NULL;
}

int xccl_boot_find_place(const void *owner, int rank, struct xccl_rank_place *place_out)
{
    const struct xccl_bootstrap *boot = owner;
    const struct xccl_boot_who *who = who_is(boot, rank);
    const struct xccl_rank_place *ring =
        &boot->ring_places[rank != (boot->rank + 1) % boot->nranks];

    if (rank == boot->rank)
        return xccl_alive_find_self(NULL, rank, place_out);
    if (boot->places.find)
        return boot->places.find(boot->places.owner, rank, place_out);
    if (who) {
        snprintf(place_out->host, sizeof(place_out->host), "%.63s", who->host);
        place_out->pid = who->pid;
        return 1;
    }
    *place_out = *ring;
    return ring->host[0] && (rank == (boot->rank + 1) % boot->nranks ||
                             rank == (boot->rank + boot->nranks - 1) % boot->nranks);
}

void xccl_boot_name(const struct xccl_bootstrap *boot, int rank,
                    char text_out[XCCL_BOOT_NAME_BYTES])
{
    struct xccl_rank_places places = {.find = xccl_boot_find_place, .owner = boot};

    xccl_verdict_name(&places, rank, text_out, XCCL_BOOT_NAME_BYTES);
}

void xccl_boot_raise(struct xccl_bootstrap *boot, struct xccl_verdict *verdict, int culprit)
{
    struct xccl_rank_places places = {.find = xccl_boot_find_place, .owner = boot};
    char text[XCCL_BOOT_ERROR_TEXT_MAX + 1];

    verdict->finder = boot->rank;
    verdict->culprit = culprit;
    (void)xccl_verdict_text(verdict, &places, text, sizeof(text));
    xccl_boot_fail(boot, xccl_verdict_rc(verdict), "%s", text);
}

void xccl_boot_raise_at(struct xccl_bootstrap *boot, enum xccl_trouble trouble, int rank,
                        const struct xccl_conn *conn, uint64_t number)
{
    struct xccl_verdict verdict = {.trouble = trouble, .elements = number};

    snprintf(verdict.address, sizeof(verdict.address), "%s", xccl_conn_peer_text(conn));
    xccl_boot_raise(boot, &verdict, rank);
}

void xccl_boot_raise_why(struct xccl_bootstrap *boot, enum xccl_trouble trouble, xcclResult_t rc,
                         int culprit, const char *why)
{
    struct xccl_verdict verdict = {.trouble = trouble, .rc = rc};

    xccl_verdict_set_why(&verdict, why);
    xccl_boot_raise(boot, &verdict, culprit);
}

void xccl_boot_raise_own(struct xccl_bootstrap *boot, enum xccl_trouble trouble, xcclResult_t rc)
{
    xccl_boot_raise_why(boot, trouble, rc, boot->rank, xccl_error_text());
}

void xccl_boot_fail_peer(struct xccl_bootstrap *boot, xcclResult_t rc, int rank,
                         const struct xccl_conn *conn)
{
    struct xccl_verdict verdict = {.trouble = XCCL_TROUBLE_BOOT_LOST, .rc = rc};

    if (boot->rc)
        return;
    if (boot->notice[0]) { /* the peer has left for that reason, or it is the one that was lost */
        xccl_boot_fail_text(boot, xcclRemoteError, boot->notice);
        return;
    }
    xccl_verdict_set_why(&verdict, xccl_error_text());
    snprintf(verdict.address, sizeof(verdict.address), "%s", xccl_conn_peer_text(conn));
    /* A neighbour on the ring is lost: nobody knows more. */
    boot->maybe_echo = boot->state != XCCL_BOOT_UP || !who_is(boot, rank);
    xccl_boot_raise(boot, &verdict, rank);
}

/* 1: no other rank was heard of lately either, so the own network is the likely cause. */
static int is_cut_off(const struct xccl_bootstrap *boot, const struct xccl_conn *silent)
{
    const struct xccl_boot_round *rounds[] = {&boot->take[0], &boot->give[0]};
    uint64_t now_ns = xccl_clock_ns();
    int weak = 0, fine = 0;

    if (boot->nranks == 2)
        return 0;
    for (int i = 0; i < 2; i++) {
        const struct xccl_boot_root_link *link = &boot->root_links[i];

        if (rounds[i]->conn && rounds[i]->conn != silent && rounds[i]->alive.known) {
            weak += xccl_alive_is_weak(&rounds[i]->alive, now_ns);
            fine += !xccl_alive_is_weak(&rounds[i]->alive, now_ns);
        }
        if (link->conn && link->conn != silent && !link->ending && link->alive.known)
            fine += !xccl_alive_is_weak(&link->alive, now_ns);
    }
    return weak && !fine;
}

void xccl_boot_fail_silent(struct xccl_bootstrap *boot, const char *name,
                           const struct xccl_conn *conn)
{
    struct xccl_verdict verdict = {.trouble = is_cut_off(boot, conn) ? XCCL_TROUBLE_BOOT_CUT_OFF
                                                                     : XCCL_TROUBLE_BOOT_SILENT};

    boot->maybe_echo = 0;
    xccl_verdict_set_why(&verdict, name);
    xccl_boot_raise(boot, &verdict, XCCL_VERDICT_NOBODY);
}

void xccl_boot_fail_text(struct xccl_bootstrap *boot, xcclResult_t rc, const char *text)
{
    struct xccl_verdict verdict = {.trouble = XCCL_TROUBLE_GIVEN_UP, .culprit = boot->rank};
    struct xccl_rank_places places = {.find = xccl_boot_find_place, .owner = boot};
    char self[XCCL_BOOT_NAME_BYTES], reworded[XCCL_BOOT_ERROR_TEXT_MAX + 1];

    xccl_boot_name(boot, boot->rank, self);
    if (xccl_alive_is_given_up(text, self)) {
        (void)xccl_verdict_text(&verdict, &places, reworded, sizeof(reworded));
        text = reworded;
    }
    if (boot->state == XCCL_BOOT_HEARING) {
        boot->rc = rc;
        snprintf(boot->error, sizeof(boot->error), "%s", text);
        settle(boot);
    } else {
        xccl_boot_fail(boot, rc, "%s", text);
    }
}

void xccl_boot_fail_told(struct xccl_bootstrap *boot, const struct xccl_frame *frame,
                         const struct xccl_conn *conn)
{
    struct xccl_verdict verdict = {.trouble = XCCL_TROUBLE_BOOT_UNREADABLE};
    struct xccl_boot_error error;

    if (xccl_boot_error_decode(frame->body, frame->bytes, &error) != 0) {
        xccl_verdict_set_why(&verdict, xccl_conn_peer_text(conn));
        xccl_boot_raise(boot, &verdict, XCCL_VERDICT_NOBODY);
    } else {
        xccl_boot_fail_text(boot, error.rc, error.text);
    }
}

void xccl_boot_end_soon(struct xccl_bootstrap *boot)
{
    if (!boot->notice[0] || boot->op.kind == XCCL_OP_NONE ||
        boot->notice_end_ns >= boot->limit.deadline_ns)
        return;
    boot->limit.deadline_ns = boot->notice_end_ns;
    xccl_loop_set_timer(&boot->timer, boot->notice_end_ns);
}

/* All ranks are in the last exchange of joining when the first of them has joined. So the exchange
 * completes, unless a rank was lost in it; then the notice says which. */
int xccl_boot_take_notice(struct xccl_bootstrap *boot, const struct xccl_frame *frame)
{
    struct xccl_wire wire = xccl_wire_over((void *)(uintptr_t)frame->body, frame->bytes);
    uint32_t kind = xccl_wire_get_u32(&wire), rc = xccl_wire_get_u32(&wire);
    int lost = kind == XCCL_BOOT_NOTICE_ERROR && rc == xcclRemoteError;
    uint8_t body[XCCL_BOOT_ERROR_MAX] = {xcclRemoteError};
    struct xccl_boot_error error;
    size_t bytes;

    (void)xccl_wire_take(&wire, XCCL_BOOT_NOTICE_HEAD - 8); /* ranks and kind of trouble */
    bytes = xccl_wire_left(&wire);
    if (bytes > XCCL_BOOT_ERROR_TEXT_MAX)
        bytes = XCCL_BOOT_ERROR_TEXT_MAX;
    xccl_wire_get(&wire, body + 1, bytes);
    if (wire.bad || xccl_boot_error_decode(body, bytes + 1, &error) != 0)
        return 1; /* whoever takes the ring refuses it */
    if (boot->state != XCCL_BOOT_UP) {
        xccl_boot_fail_text(boot, xcclRemoteError, error.text);
        return 0;
    }
    if (!boot->notice[0]) {
        snprintf(boot->notice, sizeof(boot->notice), "%s", error.text);
        boot->notice_end_ns = xccl_clock_ns() + (lost ? LOST_NS : NOTICE_NS);
    }
    xccl_boot_end_soon(boot);
    return 1;
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
    if (boot->notice[0]) {
        xccl_boot_fail_text(boot, xcclRemoteError, boot->notice);
        return;
    }
    boot->above->wait_text(boot, waits, sizeof(waits));
    xccl_boot_fail(boot, xcclTimeout, "timed out: rank %d of %d %.400s", boot->rank, boot->nranks,
                   waits);
}
