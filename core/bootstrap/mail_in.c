/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrivals: what other ranks send is laid straight into the memory that waits for it, or kept when
 * it comes early. What has no room stays in the socket: its connection is not read until somebody
 * waits for that rank, or room is made.
 *
 * Limits: 8 MiB of early messages a rank, and beyond that, to 1 GiB, only what stands before a
 * message that is waited for. Thread: callbacks of the service thread, or any with the loop's lock.
 */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/log.h"
#include "bootstrap/mail_int.h"

#define FRAMES_A_TURN    16
#define EARLY_SOFT       (8ull << 20)
#define EARLY_HARD       (1ull << 30)
#define EARLY_COUNT_SOFT 32768
#define EARLY_COUNT_MAX  65536

/* A message nobody has asked for yet; its bytes follow. */
struct xccl_boot_early {
    struct xccl_boot_mail mail;
    int rank;
    struct xccl_boot_early *next;
    uint8_t data[];
};

void xccl_boot_in_close(struct xccl_boot_pair *pair)
{
    xccl_loop_remove(&pair->in_source);
    xccl_conn_close(pair->in);
    pair->in = NULL;
    pair->boot->held_count -= pair->held;
    pair->held = 0;
}

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
    struct xccl_verdict verdict = {.trouble = XCCL_TROUBLE_BOOT_SIZES_DIFFER,
                                   .elements = mail->total};

    if (mail->total == recv->mail.total)
        return 1;
    snprintf(verdict.why, sizeof verdict.why, "%u", recv->mail.total);
    xccl_boot_raise(boot, &verdict, rank);
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
    char held[80];

    if (boot->early_bytes + mail->total > EARLY_HARD || boot->early_count >= EARLY_COUNT_MAX) {
        snprintf(held, sizeof held, "%llu messages of %llu bytes",
                 (unsigned long long)boot->early_count, (unsigned long long)boot->early_bytes);
        xccl_boot_raise_why(boot, XCCL_TROUBLE_BOOT_TOO_MANY, xcclRemoteError, rank, held);
        return NULL;
    }
    early = xccl_calloc(1, sizeof(*early) + mail->total);
    if (!early) {
        xccl_boot_raise_own(boot, XCCL_TROUBLE_BOOT_CANNOT_KEEP, xcclSystemError);
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
    pair->boot->held_count--;
    /* A timer that is due at once: what was given back wakes no poll. */
    pair->in_source.timer_ns = xccl_clock_ns();
    rc = xccl_loop_add(pair->boot->loop, &pair->in_source);
    if (rc)
        xccl_boot_pair_fail(pair, rc, pair->in);
}

/* A message begins: finds where it goes. 0: nowhere, an error or no room now. */
static int mail_begin(struct xccl_boot_pair *pair, const struct xccl_boot_mail *mail)
{
    struct xccl_bootstrap *boot = pair->boot;
    struct xccl_boot_recv *recv = recv_find(boot, pair->rank, mail);

    if (recv && !fits(boot, pair->rank, mail, recv))
        return 0;
    if (!recv && !is_waited_for(boot, pair->rank) &&
        (boot->early_bytes + mail->total > EARLY_SOFT || boot->early_count >= EARLY_COUNT_SOFT)) {
        pair->held = 1;
        boot->held_count++;
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
        xccl_boot_raise_at(pair->boot, XCCL_TROUBLE_BOOT_MAIL, pair->rank, pair->in, 0);
        return;
    }
    if (!pair->inside && !mail_begin(pair, &mail)) {
        if (pair->held)
            xccl_conn_give_back(pair->in, frame);
        return;
    }
    mail_piece(pair, frame->body + XCCL_BOOT_MAIL_HEAD, frame->bytes - XCCL_BOOT_MAIL_HEAD);
}

/* The sender has closed, or is gone. Whether that matters is for those who wait for it. */
static void in_end(struct xccl_boot_pair *pair, xcclResult_t rc)
{
    struct xccl_conn *parked = pair->parked;

    if (pair->inside || rc == xcclSystemError || (rc && is_waited_for(pair->boot, pair->rank))) {
        if (!rc)
            rc = xccl_fail_quietly(xcclRemoteError, 0, NULL,
                                   "it disconnected in the middle of a message");
        xccl_boot_pair_fail(pair, rc, pair->in);
        return;
    }
    xccl_boot_in_close(pair);
    pair->parked = NULL;
    if (parked)
        xccl_boot_in_watch(pair, parked);
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
        xccl_boot_raise_at(pair->boot, XCCL_TROUBLE_BOOT_MESSAGE, pair->rank, pair->in, frame.type);
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

void xccl_boot_in_on_events(struct xccl_source *source, uint32_t events)
{
    (void)events;
    in_read(source->owner);
}

void xccl_boot_in_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    (void)now_ns;
    in_read(source->owner);
}

void xccl_boot_in_watch(struct xccl_boot_pair *pair, struct xccl_conn *conn)
{
    xcclResult_t rc;

    pair->in = conn;
    pair->in_source.fd = xccl_conn_fd(conn);
    pair->in_source.events = EPOLLIN;
    pair->in_source.timer_ns = XCCL_NEVER_NS;
    rc = xccl_loop_add(pair->boot->loop, &pair->in_source);
    if (rc)
        xccl_boot_pair_fail(pair, rc, conn);
}

/* A message to this rank itself. */
void xccl_boot_send_here(struct xccl_bootstrap *boot, struct xccl_boot_send *send)
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
    send->done = recv || early;
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
    for (int i = 0; i < boot->nranks && boot->held_count; i++) {
        if (boot->pairs[i])
            pair_read_on(boot->pairs[i]);
    }
}

void xccl_boot_recv_post(struct xccl_bootstrap *boot, struct xccl_boot_recv *recv)
{
    struct xccl_boot_early **at = &boot->early;
    struct xccl_boot_pair *pair;
    struct xccl_boot_recv **end = &boot->recvs;

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
        read_on_all(boot); /* those for whom there is no room yet are held again */
        return;
    }
    recv->next = NULL;
    while (*end)
        end = &(*end)->next;
    *end = recv;
    if (boot->pairs[recv->rank])
        pair_read_on(boot->pairs[recv->rank]);
}

int xccl_boot_early_has(const struct xccl_bootstrap *boot, int rank, uint32_t tag)
{
    const struct xccl_boot_early *early = boot->early;

    while (early &&
           (early->rank != rank || early->mail.kind != XCCL_MAIL_USER || early->mail.tag != tag))
        early = early->next;
    return early != NULL;
}

void xccl_boot_early_drop(struct xccl_bootstrap *boot)
{
    while (boot->early)
        early_free(boot, &boot->early);
}
