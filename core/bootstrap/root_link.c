/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's connection to a root: report where this rank listens, hear where the next one does, and
 * of the failure of others.
 *
 * Thread: callbacks of the service thread, or any with the loop's lock. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/os.h"
#include "base/param.h"
#include "bootstrap/bootstrap_int.h"

#define FRAMES_A_TURN 16
#define CONNECT_TRIES 3
#define PAUSE_MAX_MS  100 /* between two tries to reach a root */

/* Nothing at all is watched for no events: a closed peer would otherwise wake the loop for ever. */
xcclResult_t xccl_boot_watch(struct xccl_bootstrap *boot, struct xccl_source *source,
                             const struct xccl_conn *conn, uint32_t events)
{
    if (!events) {
        xccl_loop_remove(source);
        return xcclSuccess;
    }
    if (source->loop && source->fd == xccl_conn_fd(conn))
        return xccl_loop_set_events(source, events);
    xccl_loop_remove(source);
    source->fd = xccl_conn_fd(conn);
    source->events = events;
    return xccl_loop_add(boot->loop, source);
}

static void link_fail(struct xccl_boot_root_link *link, xcclResult_t rc)
{
    struct xccl_bootstrap *boot = link->boot;
    char why[XCCL_ERROR_TEXT_BYTES];

    snprintf(why, sizeof(why), "%s", xccl_error_text());
    link->reported = 0;
    xccl_boot_fail(
        boot, rc,
        "rank %d of %d cannot report to the root: %.300s; check whether the process that created "
        "the id still runs, and whether this host can reach it over the network",
        boot->rank, boot->nranks, why);
}

static void link_lost(struct xccl_boot_root_link *link, xcclResult_t rc)
{
    struct xccl_bootstrap *boot = link->boot;
    char why[XCCL_ERROR_TEXT_BYTES];

    snprintf(why, sizeof(why), "%s", xccl_error_text());
    link->reported = 0;
    xccl_boot_fail(boot, rc, "rank %d lost the root at %s: %.300s", boot->rank,
                   xccl_conn_peer_text(link->conn), why);
}

void xccl_boot_link_close(struct xccl_boot_root_link *link)
{
    xccl_loop_remove(&link->source);
    xccl_conn_close(link->conn);
    link->conn = NULL;
}

/* Tries again a little later: 1, 2, 4 ms and so on. */
static void link_pause(struct xccl_boot_root_link *link)
{
    uint64_t pause_ms = link->attempt < 8 ? 1ull << link->attempt : PAUSE_MAX_MS;
    xcclResult_t rc;

    xccl_boot_link_close(link);
    link->source.fd = -1;
    link->source.timer_ns = xccl_clock_ns() +
                            (pause_ms < PAUSE_MAX_MS ? pause_ms : PAUSE_MAX_MS) * XCCL_NS_PER_MS;
    rc = xccl_loop_add(link->boot->loop, &link->source);
    if (rc)
        link_fail(link, rc);
}

/* How long one try may take. Several addresses take turns, for the last is no better than the
 * first. With one, the system's own pauses after a lost packet soon grow longer than a new try
 * takes. */
static uint64_t link_patience_ns(const struct xccl_boot_root_link *link)
{
    if (link->meeting->root_count > 1)
        return XCCL_NS_PER_S;
    return (link->attempt < 4 ? 3ull << link->attempt : 48) * XCCL_NS_PER_S;
}

/* Connects to the next of the root's addresses. */
static void link_connect(struct xccl_boot_root_link *link)
{
    const struct xccl_meeting *meeting = link->meeting;
    struct xccl_hello hello = xccl_boot_hello(link->boot, XCCL_PURPOSE_ROOT, 0);
    struct xccl_addr addr = meeting->roots[link->attempt % meeting->root_count];
    xcclResult_t rc;

    xccl_boot_link_close(link);
    link->attempt++;
    link->shaking = 1;
    memcpy(hello.comm_id, meeting->comm_id, sizeof(hello.comm_id));
    if (!meeting->owns_root) /* else it was given here, with this host's zone */
        xccl_addr_take_zone(&addr, &link->boot->self_addr);
    rc = xccl_conn_start(&addr, meeting->secret, &hello, &link->conn);
    if (rc == xcclRemoteError) {
        link_pause(link);
        return;
    }
    link->source.timer_ns = xccl_clock_ns() + link_patience_ns(link);
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

static void link_shake(struct xccl_boot_root_link *link)
{
    int done = 0;
    xcclResult_t rc = xccl_conn_shake(link->conn, &done);

    if (rc == xcclRemoteError && xccl_conn_unreached(link->conn)) {
        link_pause(link);
        return;
    }
    /* A busy acceptor may have dropped us for a newer stranger, so one refusal is not believed. */
    if (rc && xccl_conn_turned_away(link->conn) && ++link->turned_away < CONNECT_TRIES) {
        link_pause(link);
        return;
    }
    if (!rc && !done)
        rc = xccl_boot_watch(link->boot, &link->source, link->conn,
                             xccl_conn_shake_events(link->conn));
    if (rc) {
        link_fail(link, rc);
    } else if (done) {
        link->shaking = 0;
        xccl_loop_set_timer(&link->source, XCCL_NEVER_NS);
        link_report(link);
    }
}

static void link_on_next(struct xccl_boot_root_link *link, const struct xccl_frame *frame)
{
    struct xccl_bootstrap *boot = link->boot;
    struct xccl_addr addr;

    if (link != &boot->root_links[0] || boot->next_known ||
        xccl_boot_next_decode(frame->body, frame->bytes, &addr) != 0) {
        xccl_boot_fail(boot, xcclRemoteError,
                       "the root at %s sent an address that cannot be read; use one version of "
                       "xccl everywhere",
                       xccl_conn_peer_text(link->conn));
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
        xccl_boot_fail(boot, xcclRemoteError,
                       "the root at %s closed before rank %d received the address of its next "
                       "rank; see the log of the process that created the id",
                       xccl_conn_peer_text(link->conn), boot->rank);
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

    if (rc) {
        link->told = 1;
        link_lost(link, rc);
    } else if (!got) {
        return 0;
    } else if (frame.final) {
        link_on_final(link);
    } else if (frame.type == XCCL_BOOT_ERROR) {
        link_on_error(link, &frame);
    } else if (frame.type == XCCL_BOOT_NEXT) {
        link_on_next(link, &frame);
    } else {
        xccl_boot_fail(link->boot, xcclRemoteError,
                       "the root at %s sent an unexpected message of type %u; use one version of "
                       "xccl everywhere",
                       xccl_conn_peer_text(link->conn), frame.type);
    }
    return link->source.loop != NULL && !link->boot->rc;
}

static void link_on_events(struct xccl_source *source, uint32_t events)
{
    struct xccl_boot_root_link *link = source->owner;

    xccl_log_set_rank(link->boot->rank);
    if (link->shaking) {
        link_shake(link);
    } else {
        if (events & EPOLLOUT)
            link_flush(link);
        for (int i = 0; i < FRAMES_A_TURN && source->loop && link_take_one(link); i++)
            continue;
    }
    xccl_log_set_rank(-1);
}

static void link_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    (void)now_ns;
    link_connect(source->owner);
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
        if (boot->root_links[i].meeting && !boot->root_links[i].reported)
            return 1;
    }
    return 0;
}
