/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's connection to a root: report where this rank listens, hear where the next one does, and
 * of the failure of others.
 *
 * Thread: callbacks of the service thread, or any with the loop's lock. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/os.h"
#include "base/param.h"
#include "bootstrap/bootstrap_int.h"

#define FRAMES_A_TURN 16
#define PROOF_NS      (3 * XCCL_NS_PER_S) /* it doubles with every answer */
#define PAUSE_MAX_MS  100 /* between two tries to reach a root */
#define NOTE_NS       XCCL_NS_PER_S /* of failed tries, until the log says so */

static void link_fail(struct xccl_boot_root_link *link, xcclResult_t rc)
{
    link->reported = 0;
    xccl_boot_raise_own(link->boot, XCCL_TROUBLE_ROOT_UNREPORTED, rc);
}

/* "the root at 10.0.0.1:4000, in the process of rank 0 (host a, pid 12)", as far as it is known. */
static void root_text(const struct xccl_boot_root_link *link, char *text_out, size_t bytes)
{
    const struct xccl_boot_who *who = &link->alive.who;
    char name[XCCL_BOOT_NAME_BYTES];

    xccl_alive_name(who->rank, who, name);
    if (!link->alive.known)
        snprintf(text_out, bytes, "the root at %s", xccl_conn_peer_text(link->conn));
    else if (who->rank == XCCL_BOOT_NO_RANK)
        snprintf(text_out, bytes, "the root at %s (host %s, pid %u)",
                 xccl_conn_peer_text(link->conn), who->host, who->pid);
    else
        snprintf(text_out, bytes, "the root at %s, in the process of %s",
                 xccl_conn_peer_text(link->conn), name);
}

static void link_lost(struct xccl_boot_root_link *link, xcclResult_t rc)
{
    char why[XCCL_VERDICT_WHY_BYTES], root[2 * XCCL_BOOT_NAME_BYTES];

    root_text(link, root, sizeof(root));
    snprintf(why, sizeof(why), "%.180s: %.200s", root, xccl_error_text());
    link->reported = 0;
    xccl_boot_raise_why(link->boot, XCCL_TROUBLE_ROOT_LOST, rc, XCCL_VERDICT_NOBODY, why);
}

void xccl_boot_link_close(struct xccl_boot_root_link *link)
{
    xccl_loop_remove(&link->source);
    xccl_conn_close(link->conn);
    link->conn = NULL;
}

void xccl_boot_link_finish(struct xccl_boot_root_link *link)
{
    int pending = 0;

    if (!link->conn)
        return;
    link->ending = 1;
    xccl_loop_set_timer(&link->source, XCCL_NEVER_NS);
    if (link->told || xccl_conn_finish(link->conn, &pending))
        xccl_boot_link_close(link);
    else
        (void)xccl_loop_set_events(&link->source, pending ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Nothing that comes now is news. */
static void link_end(struct xccl_boot_root_link *link, uint32_t events)
{
    struct xccl_frame frame = {.final = 0};
    int pending = 0, got = 1;
    xcclResult_t rc = events & EPOLLOUT ? xccl_conn_finish(link->conn, &pending) : xcclSuccess;

    for (int i = 0; i < FRAMES_A_TURN && !rc && got && !frame.final; i++)
        rc = xccl_conn_take_frame(link->conn, &frame, &got);
    if (rc || frame.final)
        xccl_boot_link_close(link);
    else
        (void)xccl_loop_set_events(&link->source, pending ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Tries again a little later: 2, 4 ms and so on. */
static void link_pause(struct xccl_boot_root_link *link)
{
    uint64_t pause_ms = link->tries.begun < 7 ? 1ull << link->tries.begun : PAUSE_MAX_MS;
    xcclResult_t rc;

    xccl_boot_link_close(link);
    link->source.fd = -1;
    link->source.timer_ns = xccl_clock_ns() + pause_ms * XCCL_NS_PER_MS;
    rc = xccl_loop_add(link->boot->loop, &link->source);
    if (rc)
        link_fail(link, rc);
}

/* How long the proof may take: the system's own pauses after a lost packet soon grow longer than a
 * new connection takes. */
static uint64_t proof_until_ns(const struct xccl_boot_root_link *link)
{
    int doubled = link->tries.answers < 5 ? link->tries.answers - 1 : 4;

    return xccl_clock_ns() + (PROOF_NS << doubled);
}

/* All addresses of a unique id's root, which listened before the id was there, are out of reach. */
static void link_give_up(struct xccl_boot_root_link *link)
{
    const struct xccl_meeting *meeting = link->meeting;
    enum xccl_trouble trouble = XCCL_TROUBLE_ROOT_NO_WAY;
    char text[XCCL_TRIES_TEXT_BYTES];

    link->given_up = 1;
    xccl_tries_text(&link->tries, meeting->roots, meeting->root_count, text);
    if (meeting->owns_root)
        trouble = XCCL_TROUBLE_ROOT_NO_WAY_OF_ID;
    else if (xccl_tries_all_refused(&link->tries, meeting->root_count))
        trouble = XCCL_TROUBLE_ROOT_REFUSES;
    xccl_boot_raise_why(link->boot, trouble, xcclRemoteError, XCCL_VERDICT_NOBODY, text);
}

/* The host of rank 0 may still be starting, so it is waited for; but the address may be wrong. */
static void link_warn(struct xccl_boot_root_link *link)
{
    const struct xccl_boot_root_link *first = &link->boot->root_links[0];
    char text[XCCL_TRIES_TEXT_BYTES];

    if (link->tries.warned || link != first)
        return;
    link->tries.warned = 1;
    xccl_tries_text(&link->tries, link->meeting->roots, link->meeting->root_count, text);
    xccl_log(
        XCCL_LOG_WARN,
        "rank %d on host %s has tried for %d s to reach rank 0 at %s and tries on; check that "
        "rank 0's host is up, or set XCCL_COMM_ID to an address of it that this host can reach",
        link->boot->rank, xccl_os_hostname(), XCCL_TRIES_GIVE_UP_MS / 1000, text);
}

/* Each address of the root has failed for a while, and it is tried on: address and reason, once. */
static void link_note(struct xccl_boot_root_link *link)
{
    char text[XCCL_TRIES_TEXT_BYTES];

    if (link->noted || xccl_clock_ns() < link->tries.since_ns + NOTE_NS)
        return;
    link->noted = 1;
    xccl_tries_text(&link->tries, link->meeting->roots, link->meeting->root_count, text);
    xccl_log(XCCL_LOG_INFO,
             "rank %d on host %s has not reached the root yet: %s; it tries on; check that %s, and "
             "that no firewall is between",
             link->boot->rank, xccl_os_hostname(), text,
             link->meeting->owns_root ? "rank 0 was started and XCCL_COMM_ID is its address"
                                      : "the process that created the id still runs");
}

/* A try failed with an errno; 0: nobody answered. */
static void link_missed(struct xccl_boot_root_link *link, int err)
{
    int count = link->meeting->root_count, owns_root = link->meeting->owns_root;

    xccl_tries_failed(&link->tries, err);
    link_note(link);
    if (xccl_tries_is_over(&link->tries, count, xccl_clock_ns())) {
        if (!owns_root || xccl_tries_all_unroutable(&link->tries, count)) {
            link_give_up(link);
            return;
        }
        if (!xccl_tries_all_refused(&link->tries, count)) /* else it is up, and rank 0 will come */
            link_warn(link);
    }
    link_pause(link);
}

/* Connects to the next of the root's addresses. */
static void link_connect(struct xccl_boot_root_link *link)
{
    const struct xccl_meeting *meeting = link->meeting;
    struct xccl_hello hello = xccl_boot_hello(link->boot, XCCL_PURPOSE_ROOT, 0);
    uint64_t now_ns = xccl_clock_ns();
    struct xccl_addr addr;
    xcclResult_t rc;

    xccl_boot_link_close(link);
    addr = meeting->roots[xccl_tries_next(&link->tries, meeting->root_count, now_ns)];
    link->shaking = 1;
    link->connected = 0;
    memcpy(hello.comm_id, meeting->comm_id, sizeof(hello.comm_id));
    if (!meeting->owns_root) /* else it was given here, with this host's zone */
        xccl_addr_take_zone(&addr, &link->boot->self_addr);
    rc = xccl_conn_start(&addr, meeting->secret, &hello, &link->conn);
    if (rc && xccl_tries_may_mend(xccl_tcp_connect_err())) {
        link_missed(link, xccl_tcp_connect_err());
        return;
    }
    link->source.timer_ns = now_ns +
                            xccl_tries_patience_ns(&link->tries, meeting->root_count, now_ns);
    if (!rc)
        rc = xccl_boot_watch(link->boot, &link->source, link->conn,
                             xccl_conn_shake_events(link->conn));
    if (rc)
        link_fail(link, rc);
}

static void link_flush(struct xccl_boot_root_link *link)
{
    int pending = 0;
    xcclResult_t rc = xccl_conn_flush(link->conn, &pending);

    if (!rc)
        rc = xccl_boot_watch(link->boot, &link->source, link->conn,
                             pending ? EPOLLIN | EPOLLOUT : EPOLLIN);
    if (rc)
        link_lost(link, rc);
}

static void link_report(struct xccl_boot_root_link *link)
{
    struct xccl_bootstrap *boot = link->boot;
    struct xccl_boot_report report = {.meeting_count = (uint32_t)boot->job.meeting_count};
    uint8_t body[XCCL_BOOT_REPORT_MAX];
    uint64_t now_ns = xccl_clock_ns(), left_ms = 0;
    uint32_t count = report.meeting_count, idx = (uint32_t)boot->job.meeting_idx;
    xcclResult_t rc;

    /* First, so that the root can judge each rank that has reported. */
    xccl_loop_set_timer(&link->source,
                        xccl_alive_begin(&link->alive, link->conn, (uint32_t)boot->rank));
    if (boot->limit.deadline_ns > now_ns)
        left_ms = (boot->limit.deadline_ns - now_ns) / XCCL_NS_PER_MS;
    report.timeout_ms = left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX;
    report.meeting_idx = link->meeting == &boot->job.own ? idx : (idx + count - 1) % count;
    memcpy(report.job_id, boot->job.comm_id, sizeof(report.job_id));
    report.addr = boot->self_addr;
    snprintf(report.host, sizeof(report.host), "%s", xccl_os_hostname());
    xccl_param_job_text(report.settings, sizeof(report.settings));
    rc = xccl_conn_queue(link->conn, XCCL_BOOT_REPORT, body,
                         xccl_boot_report_encode(&report, body));
    if (rc) {
        link_lost(link, rc);
        return;
    }
    link->reported = 1;
    link_flush(link);
}

/* Where this rank listens is decided now: where it has met the first root. */
static void link_proven(struct xccl_boot_root_link *link)
{
    struct xccl_bootstrap *boot = link->boot;
    const struct xccl_meeting *meeting = link->meeting;
    struct xccl_boot_met *met = &boot->met[link - boot->root_links];
    xcclResult_t rc;

    link->shaking = 0;
    xccl_loop_set_timer(&link->source, XCCL_NEVER_NS);
    if (meeting->root_count > 1) {
        static_assert(sizeof(met->roots) == sizeof(meeting->roots), "all of a root's addresses");
        memcpy(met->roots, meeting->roots, sizeof(met->roots));
        met->count = meeting->root_count;
        met->idx = link->tries.idx;
    }
    rc = boot->acceptor ? xcclSuccess : xccl_boot_listen_met(boot, link);
    if (!rc) {
        link_report(link);
        return;
    }
    link->reported = 1; /* it hears of the failure by this connection */
    xccl_boot_raise_own(boot, XCCL_TROUBLE_BOOT_CANNOT_JOIN, rc);
}

static void link_shake(struct xccl_boot_root_link *link)
{
    int done = 0;
    xcclResult_t rc = xccl_conn_shake(link->conn, &done);
    int err = rc ? xccl_conn_unreached(link->conn) : 0;

    if (err && xccl_tries_may_mend(err)) {
        link_missed(link, err);
        return;
    }
    if (!link->connected && xccl_conn_is_connected(link->conn)) {
        link->connected = 1;
        xccl_tries_answered(&link->tries);
        xccl_loop_set_timer(&link->source, proof_until_ns(link));
    }
    if (rc && xccl_boot_may_mend(link->conn, rc, link->meeting->root_count, &link->turned_away)) {
        link_pause(link);
        return;
    }
    if (!rc && !done)
        rc = xccl_boot_watch(link->boot, &link->source, link->conn,
                             xccl_conn_shake_events(link->conn));
    if (rc)
        link_fail(link, rc);
    else if (done)
        link_proven(link);
}

static void link_on_next(struct xccl_boot_root_link *link, const struct xccl_frame *frame)
{
    struct xccl_bootstrap *boot = link->boot;
    struct xccl_addr addr;

    if (link != &boot->root_links[0] || boot->next_known ||
        xccl_boot_next_decode(frame->body, frame->bytes, &addr) != 0) {
        xccl_boot_raise_at(boot, XCCL_TROUBLE_ROOT_ADDRESS, XCCL_VERDICT_NOBODY, link->conn, 0);
        return;
    }
    memcpy(boot->addrs + (size_t)((boot->rank + 1) % boot->nranks) * XCCL_ADDR_WIRE_BYTES,
           frame->body, XCCL_ADDR_WIRE_BYTES);
    boot->next_known = 1;
    xccl_boot_join_pump(boot);
}

static void link_on_final(struct xccl_boot_root_link *link)
{
    struct xccl_bootstrap *boot = link->boot;

    xccl_loop_remove(&link->source);
    link->told = 1;
    if (link == &boot->root_links[0] && !boot->next_known) {
        link->reported = 0;
        xccl_boot_raise_at(boot, XCCL_TROUBLE_ROOT_CLOSED, XCCL_VERDICT_NOBODY, link->conn, 0);
    }
}

static void link_on_error(struct xccl_boot_root_link *link, const struct xccl_frame *frame)
{
    struct xccl_boot_error error;

    /* A root without memory for the first rank keeps nothing of it for the others. */
    if (xccl_boot_error_decode(frame->body, frame->bytes, &error) == 0 &&
        error.rc == xcclSystemError)
        link->reported = 0;
    link->told = 1;
    xccl_boot_fail_told(link->boot, frame, link->conn);
}

/* 0: nothing more is to be had now. */
static int link_take_one(struct xccl_boot_root_link *link)
{
    struct xccl_frame frame;
    int got = 0;
    xcclResult_t rc = xccl_conn_take_frame(link->conn, &frame, &got);

    if (got)
        xccl_alive_hear(&link->alive);
    if (rc) {
        link->told = 1;
        link_lost(link, rc);
    } else if (!got) {
        return 0;
    } else if (!frame.final && frame.type == XCCL_BOOT_ALIVE &&
               xccl_alive_take(&link->alive, &frame) == 0) {
        return 1;
    } else if (frame.final) {
        link_on_final(link);
    } else if (frame.type == XCCL_BOOT_ERROR) {
        link_on_error(link, &frame);
    } else if (frame.type == XCCL_BOOT_NEXT) {
        link_on_next(link, &frame);
    } else {
        xccl_boot_raise_at(link->boot, XCCL_TROUBLE_ROOT_MESSAGE, XCCL_VERDICT_NOBODY, link->conn,
                           frame.type);
    }
    return link->source.loop != NULL && !link->boot->rc && !link->ending;
}

static void link_read(struct xccl_boot_root_link *link)
{
    for (int i = 0; i < FRAMES_A_TURN && link->source.loop && link_take_one(link); i++)
        continue;
}

static void link_on_events(struct xccl_source *source, uint32_t events)
{
    struct xccl_boot_root_link *link = source->owner;

    xccl_log_set_rank(link->boot->rank);
    if (link->shaking) {
        link_shake(link);
    } else if (link->ending) {
        link_end(link, events);
    } else {
        if (events & EPOLLOUT)
            link_flush(link);
        link_read(link);
    }
    xccl_log_set_rank(-1);
}

/* A sign of life is due, or the root's is missing. */
static void link_beat(struct xccl_boot_root_link *link, uint64_t now_ns)
{
    struct xccl_bootstrap *boot = link->boot;
    char root[2 * XCCL_BOOT_NAME_BYTES];
    uint64_t next_ns;

    link_read(link);
    if (!link->source.loop || boot->state == XCCL_BOOT_FAILED || link->ending)
        return;
    if (!xccl_alive_turn(&link->alive, link->conn, (uint32_t)boot->rank, now_ns, &next_ns)) {
        xccl_loop_set_timer(&link->source, next_ns);
        return;
    }
    root_text(link, root, sizeof(root));
    link->told = 1;
    link->reported = 0;
    link->given_up = 1;
    xccl_boot_fail_silent(boot, root, link->conn);
}

/* Its host has answered, but the root has not. */
static void link_unproven(struct xccl_boot_root_link *link)
{
    if (!link->noted)
        xccl_log(XCCL_LOG_INFO,
                 "rank %d on host %s is connected to the root at %s, which does not answer; it "
                 "tries again; check that the root's process is not stopped",
                 link->boot->rank, xccl_os_hostname(), xccl_conn_peer_text(link->conn));
    link->noted = 1;
}

static void link_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct xccl_boot_root_link *link = source->owner;
    int was_connected = link->connected;

    xccl_log_set_rank(link->boot->rank);
    /* A thread that was given no time has not seen yet what came meanwhile. */
    if (!link->conn) {
        link_connect(link);
    } else if (!link->shaking) {
        link_beat(link, now_ns);
    } else {
        link_shake(link);
        if (!link->boot->rc && link->conn && link->shaking && was_connected == link->connected) {
            if (link->connected) {
                link_unproven(link);
                link_connect(link);
            } else {
                link_missed(link, 0);
            }
        }
    }
    xccl_log_set_rank(-1);
}

void xccl_boot_link_start(struct xccl_bootstrap *boot, struct xccl_boot_root_link *link)
{
    link->boot = boot;
    link->source.fd = -1;
    link->source.on_events = link_on_events;
    link->source.on_timer = link_on_timer;
    link->source.owner = link;
    link_connect(link);
}

int xccl_boot_root_unaware(const struct xccl_bootstrap *boot)
{
    for (int i = 0; i < 2; i++) {
        const struct xccl_boot_root_link *link = &boot->root_links[i];

        if (link->meeting && !link->reported && !link->given_up)
            return 1;
    }
    return 0;
}
