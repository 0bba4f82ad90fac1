/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's proven connection to a root: its report, its next rank's address, signs of life. Its
 * session (root_session.c) decides what they mean.
 *
 * Limits: 10 s from the proof to the report. Thread: the service thread's callbacks. */
#include <stdio.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "bootstrap/conn_int.h"
#include "bootstrap/root_int.h"

#define REPORT_NS     (10 * XCCL_NS_PER_S) /* from proof to report */
#define FRAMES_A_TURN 8
#define NEVER_SENT    "it sent what no rank of this version sends"

void xccl_reporter_free(struct xccl_root_reporter *reporter)
{
    struct xccl_root *root = reporter->root;

    xccl_loop_remove(&reporter->source);
    if (reporter->session && reporter->session->places[reporter->place] == reporter)
        reporter->session->places[reporter->place] = NULL;
    if (reporter->prev)
        reporter->prev->next = reporter->next;
    else
        root->reporters = reporter->next;
    if (reporter->next)
        reporter->next->prev = reporter->prev;
    xccl_conn_close(reporter->conn);
    xccl_free(reporter);
    xccl_root_rest(root);
}

void xccl_reporter_refuse(struct xccl_root_reporter *reporter, const struct xccl_boot_error *error)
{
    uint8_t body[XCCL_BOOT_ERROR_MAX];
    size_t bytes = xccl_boot_error_encode(error->rc, error->text, body);

    (void)xccl_conn_queue(reporter->conn, XCCL_BOOT_ERROR, body, bytes);
    xccl_reporter_free(reporter);
}

/* Notes that a rank was told once its NEXT has left. */
static void reporter_note_told(struct xccl_root_reporter *reporter)
{
    int pending = 1;

    if (!reporter->next_queued || reporter->told)
        return;
    if (xccl_conn_flush(reporter->conn, &pending) != xcclSuccess)
        return; /* its socket will say so in a moment: reporter_on_events() */
    (void)xccl_loop_set_events(&reporter->source, pending ? EPOLLIN | EPOLLOUT : EPOLLIN);
    reporter->told = !pending;
}

void xccl_reporter_tell(struct xccl_root_reporter *reporter, const struct xccl_addr *next)
{
    uint8_t body[XCCL_ADDR_WIRE_BYTES];

    if (reporter->next_queued)
        return;
    xccl_addr_encode(next, body);
    if (xccl_conn_queue(reporter->conn, XCCL_BOOT_NEXT, body, sizeof(body)) != xcclSuccess) {
        /* No memory; the callers still need the session, so it fails in the loop's next turn. */
        reporter->no_memory = 1;
        xccl_loop_set_timer(&reporter->source, xccl_clock_ns());
        return;
    }
    reporter->next_queued = 1;
    reporter_note_told(reporter);
}

void xccl_reporter_introduce(const struct xccl_root_reporter *reporter)
{
    xccl_alive_say(&reporter->alive, reporter->conn, reporter->session->own_rank);
}

static void reporter_name(const struct xccl_root_reporter *reporter,
                          char text_out[XCCL_BOOT_NAME_BYTES])
{
    struct xccl_boot_who who = reporter->alive.who;

    snprintf(who.host, sizeof(who.host), "%s", reporter->report.host);
    xccl_alive_name(reporter->rank, &who, text_out);
}

/* A rank went, or sent what none may, before it had joined. */
static void reporter_lost(struct xccl_root_reporter *reporter, const char *why)
{
    char name[XCCL_BOOT_NAME_BYTES];

    if (!reporter->session) {
        xccl_log(XCCL_LOG_INFO, "root: lost a connection before its report: %s", why);
        xccl_reporter_free(reporter);
        return;
    }
    reporter_name(reporter, name);
    xccl_session_give_up(reporter, "%s at %s left while joining (%.200s); look at that rank's log",
                         name, xccl_conn_peer_text(reporter->conn), why);
}

static void reporter_silent(struct xccl_root_reporter *reporter)
{
    char name[XCCL_BOOT_NAME_BYTES];

    reporter_name(reporter, name);
    xccl_session_give_up(reporter, "%s " XCCL_SILENT_TEXT "; " XCCL_SILENT_REMEDY, name);
}

/* The reporter may be gone when this returns. */
static void reporter_on_frame(struct xccl_root_reporter *reporter, const struct xccl_frame *frame)
{
    struct xccl_boot_error error;

    /* A guest is told its next rank by its own root. */
    if (frame->final && reporter->session && (reporter->told || reporter->is_guest)) {
        xccl_session_joined(reporter);
    } else if (frame->final) {
        reporter_lost(reporter, "it closed the connection");
    } else if (frame->type == XCCL_BOOT_ERROR &&
               xccl_boot_error_decode(frame->body, frame->bytes, &error) == 0) {
        if (reporter->session)
            reporter_lost(reporter, error.text);
        else if (xccl_conn_hello(reporter->conn)->rank < xccl_conn_hello(reporter->conn)->nranks)
            xccl_session_decline(reporter, &error);
        else
            reporter_lost(reporter, NEVER_SENT);
    } else if (!reporter->session && frame->type == XCCL_BOOT_REPORT &&
               xccl_boot_report_decode(frame->body, frame->bytes, &reporter->report) == 0) {
        xccl_session_report(reporter);
    } else {
        reporter_lost(reporter, NEVER_SENT);
    }
}

/* Takes one frame. 1: it was a sign of life; 0: there is none; -1: anything else, and the reporter
 * may be gone. */
static int reporter_take_one(struct xccl_root_reporter *reporter)
{
    struct xccl_frame frame;
    int got = 0;
    xcclResult_t rc = xccl_conn_take_frame(reporter->conn, &frame, &got);

    if (rc) {
        char why[XCCL_ERROR_TEXT_BYTES];

        snprintf(why, sizeof(why), "%s", xccl_error_text());
        reporter_lost(reporter, why);
        return -1;
    }
    if (!got)
        return 0;
    xccl_alive_hear(&reporter->alive);
    if (!frame.final && frame.type == XCCL_BOOT_ALIVE &&
        xccl_alive_take(&reporter->alive, &frame) == 0)
        return 1;
    reporter_on_frame(reporter, &frame);
    return -1;
}

/* 0: the reporter may be gone. */
static int reporter_read(struct xccl_root_reporter *reporter)
{
    int took = 1;

    for (int i = 0; i < FRAMES_A_TURN && took == 1; i++)
        took = reporter_take_one(reporter);
    return took >= 0;
}

static void reporter_on_events(struct xccl_source *source, uint32_t events)
{
    struct xccl_root_reporter *reporter = source->owner;

    if (reporter_read(reporter) && events & EPOLLOUT && reporter->session)
        reporter_note_told(reporter);
}

/* A sign of life is due, or the rank's is missing. */
static void reporter_beat(struct xccl_root_reporter *reporter, uint64_t now_ns)
{
    uint64_t next_ns;

    if (!reporter_read(reporter))
        return;
    if (xccl_alive_turn(&reporter->alive, reporter->conn, reporter->session->own_rank, now_ns,
                        &next_ns))
        reporter_silent(reporter);
    else
        xccl_loop_set_timer(&reporter->source, next_ns);
}

static void reporter_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct xccl_root_reporter *reporter = source->owner;

    if (!reporter->session)
        reporter_lost(reporter, "no report within 10 s");
    else if (reporter->no_memory)
        reporter_lost(reporter, "the root could not tell it its next rank");
    else
        reporter_beat(reporter, now_ns);
}

void xccl_root_on_conn(void *owner, struct xccl_conn *conn)
{
    struct xccl_root *root = owner;
    struct xccl_root_reporter *reporter;

    if (xccl_conn_hello(conn)->purpose != XCCL_PURPOSE_ROOT)
        goto err_conn;
    reporter = xccl_calloc(1, sizeof(*reporter));
    if (!reporter)
        goto err_conn;
    reporter->root = root;
    reporter->conn = conn;
    reporter->source.fd = xccl_conn_fd(conn);
    reporter->source.events = EPOLLIN;
    reporter->source.timer_ns = xccl_clock_ns() + REPORT_NS;
    reporter->source.on_events = reporter_on_events;
    reporter->source.on_timer = reporter_on_timer;
    reporter->source.owner = reporter;
    if (xccl_loop_add(root->loop, &reporter->source))
        goto err_reporter;
    reporter->next = root->reporters;
    if (root->reporters)
        root->reporters->prev = reporter;
    root->reporters = reporter;
    (void)xccl_alive_begin(&reporter->alive, conn, XCCL_BOOT_NO_RANK);
    return;
err_reporter:
    xccl_free(reporter);
err_conn:
    xccl_conn_close(conn);
}
