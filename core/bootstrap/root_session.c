/* SPDX-License-Identifier: BSD-3-Clause */
/* What happens at a root: ranks report, and each is told where the next one listens. State changes
 * only by proven reports.
 *
 *   reporter  proven --REPORT--> reported --next rank reported too--> told --all told--> closed
 *             proven --ERROR--> closed, and the session fails: that rank cannot join
 *   session   open --all told--> gone
 *             open --mismatch, rank lost, deadline--> failed: every rank, also one that comes
 *             later, gets the same ERROR --as many as ranks told, or deadline--> gone
 *
 * Limits: 1,024 sessions, 2^20 ranks each. Thread: the service thread's callbacks. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "bootstrap/conn_int.h"
#include "bootstrap/message.h"
#include "bootstrap/root_int.h"

#define SESSIONS_MAX  1024
#define NRANKS_MAX    (1u << 20)
#define REPORT_NS     (10 * XCCL_NS_PER_S) /* from proof to report */
#define MARGIN_MAX_MS 500 /* how much before its ranks a session gives up */

struct xccl_root_reporter {
    struct xccl_source source;
    struct xccl_conn *conn;
    struct xccl_root *root;
    struct xccl_root_session *session; /* NULL before the report and after it is over */
    uint32_t rank, place; /* in session->places */
    int told; /* NEXT is in the socket */
    int next_queued;
    struct xccl_boot_report report;
    struct xccl_root_reporter *next, *prev; /* root->reporters: all of them */
};

struct xccl_root_session {
    struct xccl_source timer;
    struct xccl_root *root;
    uint8_t comm_id[16];
    uint32_t nranks;
    /* This root's share of the ranks: first, first + 1 and so on, and behind them, when there are
     * several roots, the guest: the first rank of the next share. */
    uint32_t first, members, place_count;
    uint32_t told; /* members that were told, or ranks once failed */
    uint32_t may_come; /* ranks that may report, by what any of them believes */
    int reported; /* one of them has said so */
    uint64_t deadline_ns;
    int failed;
    struct xccl_boot_error error;
    struct xccl_root_reporter **places;
    uint8_t *counted; /* 1 when told counts that place */
    struct xccl_root_session *next, *prev;
};

static void reporter_free(struct xccl_root_reporter *reporter)
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
}

/* A rank's place, or UINT32_MAX when it should report elsewhere. */
static uint32_t place_of(const struct xccl_root_session *session, uint32_t rank)
{
    if (rank >= session->first && rank - session->first < session->members)
        return rank - session->first;
    if (session->place_count > session->members &&
        rank == (session->first + session->members) % session->nranks)
        return session->members;
    return UINT32_MAX;
}

/* Tells one rank that joining failed, as far as its socket takes it now, and lets go of it. */
static void reporter_refuse(struct xccl_root_reporter *reporter,
                            const struct xccl_boot_error *error)
{
    uint8_t body[XCCL_BOOT_ERROR_MAX];
    size_t bytes = xccl_boot_error_encode(error->rc, error->text, body);

    (void)xccl_conn_queue(reporter->conn, XCCL_BOOT_ERROR, body, bytes);
    reporter_free(reporter);
}

static void session_free(struct xccl_root_session *session)
{
    struct xccl_root *root = session->root;

    xccl_loop_remove(&session->timer);
    for (uint32_t i = 0; i < session->place_count; i++) {
        if (session->places[i])
            reporter_free(session->places[i]);
    }
    if (session->prev)
        session->prev->next = session->next;
    else
        root->sessions = session->next;
    if (session->next)
        session->next->prev = session->prev;
    root->session_count--;
    if (root->single || root->ending)
        xccl_loop_set_timer(&root->timer, xccl_clock_ns());
    xccl_free(session->counted);
    xccl_free(session->places);
    xccl_free(session);
}

/* Over: all members were told their next rank; or, of a failed one, as many of the error as may
 * come. It stays that long for those who come later. */
static int session_over(const struct xccl_root_session *session)
{
    return session->told >= (session->failed ? session->may_come : session->members);
}

static void session_rest(struct xccl_root_session *session)
{
    if (session_over(session))
        session_free(session);
}

static void session_count_told(struct xccl_root_session *session, uint32_t place)
{
    session->told++;
    if (place < session->place_count)
        session->counted[place] = 1;
}

/* session->error is set. Tells all who wait; the session may be gone when this returns. */
static void session_fail(struct xccl_root_session *session)
{
    session->failed = 1;
    xccl_log(XCCL_LOG_ERROR, "root: %s", session->error.text);
    for (uint32_t i = 0; i < session->place_count; i++) {
        struct xccl_root_reporter *reporter = session->places[i];

        if (!reporter)
            continue;
        if (!reporter->told)
            session_count_told(session, i);
        reporter_refuse(reporter, &session->error);
    }
}

static void session_error(struct xccl_root_session *session, xcclResult_t rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void session_error(struct xccl_root_session *session, xcclResult_t rc, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(session->error.text, sizeof(session->error.text), fmt, args);
    va_end(args);
    session->error.rc = rc;
}

static void session_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct xccl_root_session *session = source->owner;
    char missing[200];

    (void)now_ns;
    if (!session->failed) {
        xccl_boot_missing_text((const void *const *)session->places, session->members,
                               session->first, missing, sizeof(missing));
        if (!missing[0])
            snprintf(missing, sizeof(missing), "%u",
                     (session->first + session->members) % session->nranks);
        session_error(
            session, xcclTimeout,
            "missing: ranks %s of %u did not report in time; see whether they were started "
            "and reach the root, or raise XCCL_TIMEOUT_INIT_S",
            missing, session->nranks);
        session_fail(session);
    }
    session_free(session);
}

static struct xccl_root_session *session_find(struct xccl_root *root, const uint8_t comm_id[16])
{
    for (struct xccl_root_session *at = root->sessions; at; at = at->next) {
        if (memcmp(at->comm_id, comm_id, sizeof(at->comm_id)) == 0)
            return at;
    }
    return NULL;
}

/* How many ranks report here, as one of them believes who is of nranks and reports so; a rank that
 * cannot join reports nothing, and then it does not matter. */
static uint32_t share_count(uint32_t nranks, const struct xccl_boot_report *report, uint32_t *first)
{
    uint64_t count = report ? report->meeting_count : 1, idx = report ? report->meeting_idx : 0;

    *first = (uint32_t)(nranks * idx / count);
    return (uint32_t)(nranks * (idx + 1) / count) - *first;
}

static void session_share(struct xccl_root_session *session, const struct xccl_boot_report *report)
{
    session->members = share_count(session->nranks, report, &session->first);
    session->place_count = session->members + (report && report->meeting_count > 1);
    session->may_come = session->place_count;
    session->reported = report != NULL;
}

/* A rank that does not fit may believe in more ranks than the first did; one that could not join
 * has said nothing of the kind. */
static void session_widen(struct xccl_root_session *session, const struct xccl_hello *hello,
                          const struct xccl_boot_report *report)
{
    uint32_t first, count = share_count(hello->nranks, report, &first);

    count += report->meeting_count > 1;
    if (hello->nranks <= NRANKS_MAX && (count > session->may_come || !session->reported))
        session->may_come = count;
    session->reported = 1;
}

/* NULL: no memory, or too many. nranks and the report's share of them were checked. */
static struct xccl_root_session *session_make(struct xccl_root *root,
                                              const struct xccl_hello *hello,
                                              const struct xccl_boot_report *report)
{
    struct xccl_root_session *session;

    if (root->session_count >= SESSIONS_MAX) {
        xccl_log(XCCL_LOG_WARN,
                 "root: %d communicators are already being created; destroy some first",
                 SESSIONS_MAX);
        return NULL;
    }
    session = xccl_calloc(1, sizeof(*session));
    if (!session)
        return NULL;
    session->nranks = hello->nranks;
    session_share(session, report);
    session->places = xccl_calloc(session->place_count, sizeof(struct xccl_root_reporter *));
    session->counted = xccl_calloc(session->place_count, 1);
    if (!session->places || !session->counted)
        goto err_ranks;
    session->root = root;
    memcpy(session->comm_id, hello->comm_id, sizeof(session->comm_id));
    session->deadline_ns = xccl_clock_ns() + root->timeout_ms * XCCL_NS_PER_MS;
    session->timer.fd = -1;
    session->timer.timer_ns = session->deadline_ns;
    session->timer.on_timer = session_on_timer;
    session->timer.owner = session;
    if (xccl_loop_add(root->loop, &session->timer))
        goto err_ranks;
    session->next = root->sessions;
    if (root->sessions)
        root->sessions->prev = session;
    root->sessions = session;
    root->session_count++;
    return session;
err_ranks:
    xccl_free(session->counted);
    xccl_free(session->places);
    xccl_free(session);
    return NULL;
}

/* The session gives up a little before the first of its ranks does, so that the list of missing
 * ranks still reaches it. */
static void session_take_deadline(struct xccl_root_session *session, uint32_t timeout_ms)
{
    uint32_t margin_ms = timeout_ms / 4 < MARGIN_MAX_MS ? timeout_ms / 4 : MARGIN_MAX_MS;
    uint64_t deadline_ns = xccl_clock_ns() + (timeout_ms - margin_ms) * XCCL_NS_PER_MS;

    if (deadline_ns < session->deadline_ns) {
        session->deadline_ns = deadline_ns;
        xccl_loop_set_timer(&session->timer, deadline_ns);
    }
}

static const struct xccl_root_reporter *session_anyone(const struct xccl_root_session *session)
{
    for (uint32_t i = 0; i < session->place_count; i++) {
        if (session->places[i])
            return session->places[i];
    }
    return NULL;
}

static void version_text(uint32_t version, char text_out[16])
{
    snprintf(text_out, 16, "%u.%u.%u", version / 10000 % 1000, version / 100 % 100, version % 100);
}

/* What every rank must have alike, before anything is said of their numbers. 0: alike. */
static int session_compare(struct xccl_root_session *session,
                           const struct xccl_root_reporter *reporter,
                           const struct xccl_root_reporter *other)
{
    const struct xccl_hello *mine = xccl_conn_hello(reporter->conn);
    const struct xccl_hello *theirs = xccl_conn_hello(other->conn);
    const struct xccl_boot_report *a = &reporter->report, *b = &other->report;
    char version[2][16];

    if (mine->version != theirs->version) {
        version_text(mine->version, version[0]);
        version_text(theirs->version, version[1]);
        session_error(session, xcclInvalidUsage,
                      "rank %u on host %s runs xccl %s, rank %u on host %s runs xccl %s; install "
                      "the same version everywhere",
                      mine->rank, a->host, version[0], theirs->rank, b->host, version[1]);
    } else if (mine->settings_hash != theirs->settings_hash) {
        session_error(session, xcclInvalidUsage,
                      "rank %u on host %s has %s, rank %u on host %s has %s; set these alike "
                      "everywhere",
                      mine->rank, a->host, a->settings, theirs->rank, b->host, b->settings);
    } else if (memcmp(a->job_id, b->job_id, sizeof(a->job_id)) != 0 ||
               a->meeting_count != b->meeting_count || a->meeting_idx != b->meeting_idx) {
        session_error(session, xcclInvalidUsage,
                      "rank %u on host %s and rank %u on host %s were given different unique ids "
                      "(%u and %u of them); give all ranks the same ones in the same order",
                      mine->rank, a->host, theirs->rank, b->host, a->meeting_count,
                      b->meeting_count);
    } else {
        return 0;
    }
    return -1;
}

/* Compares a newcomer with those before it. 0: it fits; else session->error says why not. */
static int session_check(struct xccl_root_session *session,
                         const struct xccl_root_reporter *reporter)
{
    const struct xccl_hello *hello = xccl_conn_hello(reporter->conn);
    const struct xccl_root_reporter *other = session_anyone(session);
    const char *host = reporter->report.host;
    uint32_t place = place_of(session, hello->rank);

    if (other && session_compare(session, reporter, other) != 0)
        return -1;
    if (hello->rank >= hello->nranks) {
        session_error(session, xcclInvalidArgument,
                      "rank %u on host %s is out of range: it says %u ranks; count ranks from 0",
                      hello->rank, host, hello->nranks);
    } else if (hello->nranks != session->nranks) {
        session_error(session, xcclInvalidUsage,
                      "rank %u on host %s says %u ranks, rank %u on host %s says %u; give all the "
                      "same number",
                      hello->rank, host, hello->nranks, other ? other->rank : 0,
                      other ? other->report.host : "?", session->nranks);
    } else if (place == UINT32_MAX) {
        session_error(session, xcclInvalidUsage,
                      "rank %u on host %s reports to root %u of %u, which is not its own; use one "
                      "version of xccl everywhere",
                      hello->rank, host, reporter->report.meeting_idx,
                      reporter->report.meeting_count);
    } else if (session->places[place]) {
        other = session->places[place];
        session_error(session, xcclInvalidUsage,
                      "rank %u is there twice: on host %s at %s and on host %s at %s; give each "
                      "process a rank of its own",
                      hello->rank, other->report.host, xccl_conn_peer_text(other->conn), host,
                      xccl_conn_peer_text(reporter->conn));
    } else {
        return 0;
    }
    return -1;
}

/* Counts a rank as told once its NEXT has left; ends the session after the last. */
static void reporter_count_told(struct xccl_root_reporter *reporter)
{
    struct xccl_root_session *session = reporter->session;
    int pending = 1;

    if (!reporter->next_queued || reporter->told)
        return;
    if (xccl_conn_flush(reporter->conn, &pending) != xcclSuccess)
        return; /* its socket will say so in a moment: reporter_on_events() */
    (void)xccl_loop_set_events(&reporter->source, pending ? EPOLLIN | EPOLLOUT : EPOLLIN);
    if (pending)
        return;
    reporter->told = 1;
    session_count_told(session, reporter->place);
}

/* Tells the member at a place where the next one listens, if that is known. */
static void session_tell(struct xccl_root_session *session, uint32_t place)
{
    struct xccl_root_reporter *reporter = session->places[place];
    const struct xccl_root_reporter *next = session->places[(place + 1) % session->place_count];
    uint8_t body[XCCL_ADDR_WIRE_BYTES];

    if (place >= session->members)
        return; /* the guest is told by its own root */

    if (!reporter || !next || reporter->next_queued)
        return;
    xccl_addr_encode(&next->report.addr, body);
    if (xccl_conn_queue(reporter->conn, XCCL_BOOT_NEXT, body, sizeof(body)) != xcclSuccess) {
        /* No memory; the callers still need the session, so it fails in the loop's next turn. */
        xccl_loop_set_timer(&reporter->source, xccl_clock_ns());
        return;
    }
    reporter->next_queued = 1;
    reporter_count_told(reporter);
}

/* The session for a report (NULL: for a rank that cannot join), made if it is the first. NULL: the
 * reporter was refused and is gone. */
static struct xccl_root_session *session_for(struct xccl_root_reporter *reporter,
                                             const struct xccl_boot_report *report)
{
    const struct xccl_hello *hello = xccl_conn_hello(reporter->conn);
    struct xccl_boot_error error = {xcclSystemError,
                                    "the root has no room for one more; try later"};
    struct xccl_root_session *session = session_find(reporter->root, hello->comm_id);

    if (session)
        return session;
    if (hello->nranks == 0 || hello->nranks > NRANKS_MAX) {
        error.rc = xcclInvalidArgument;
        snprintf(error.text, sizeof(error.text), "rank %u on host %s says %u ranks; use 1 to %u",
                 hello->rank, reporter->report.host, hello->nranks, NRANKS_MAX);
    } else if (report && report->meeting_count > hello->nranks) {
        error.rc = xcclInvalidArgument;
        snprintf(error.text, sizeof(error.text), "rank %u on host %s says %u roots for %u ranks",
                 hello->rank, report->host, report->meeting_count, hello->nranks);
    } else {
        session = session_make(reporter->root, hello, report);
    }
    if (!session)
        reporter_refuse(reporter, &error);
    return session;
}

/* A report came; the reporter may be gone when this returns. */
static void reporter_on_report(struct xccl_root_reporter *reporter)
{
    /* Without a session the reporter is gone. */
    struct xccl_root_session *session = session_for(reporter, &reporter->report);
    uint32_t place;
    int again;

    if (!session)
        return;
    place = place_of(session, xccl_conn_hello(reporter->conn)->rank);
    /* One that was told already and tries again; not one that is there twice, which is a process of
     * its own and the failure itself. */
    again = session->failed && place != UINT32_MAX && session->counted[place];
    if (!session->failed && session_check(session, reporter) != 0)
        session_fail(session);
    if (session->failed) {
        session_widen(session, xccl_conn_hello(reporter->conn), &reporter->report);
        if (!again)
            session_count_told(session, place);
        reporter_refuse(reporter, &session->error);
        session_rest(session);
        return;
    }
    reporter->session = session;
    reporter->rank = xccl_conn_hello(reporter->conn)->rank;
    reporter->place = place;
    session->places[place] = reporter;
    xccl_loop_set_timer(&reporter->source, XCCL_NEVER_NS);
    session_take_deadline(session, reporter->report.timeout_ms);
    session_tell(session, place);
    session_tell(session, (place + session->place_count - 1) % session->place_count);
    session_rest(session);
}

/* A rank went, or sent what none may, before everybody was told. */
static void reporter_lost(struct xccl_root_reporter *reporter, const char *why)
{
    struct xccl_root_session *session = reporter->session;

    if (!session) {
        xccl_log(XCCL_LOG_INFO, "root: lost a connection before its report: %s", why);
        reporter_free(reporter);
        return;
    }
    session_error(session, xcclRemoteError,
                  "rank %u on host %s at %s left while joining (%.200s); look at that rank's log",
                  reporter->rank, reporter->report.host, xccl_conn_peer_text(reporter->conn), why);
    if (!reporter->told)
        session_count_told(session, reporter->place); /* nobody will ask again for this one */
    reporter_free(reporter);
    session_fail(session);
    session_rest(session);
}

/* A rank says that it cannot join, instead of reporting; the reporter is gone when this returns. */
static void reporter_on_decline(struct xccl_root_reporter *reporter,
                                const struct xccl_boot_error *error)
{
    const struct xccl_hello *hello = xccl_conn_hello(reporter->conn);
    uint32_t rank = hello->rank, place;
    struct xccl_root_session *session;

    if (rank >= hello->nranks) {
        reporter_lost(reporter, "it sent what no rank of this version sends");
        return;
    }
    session = session_for(reporter, NULL);
    if (!session)
        return;
    if (!session->failed) {
        session_error(session, xcclRemoteError,
                      "rank %u at %s cannot join: %.300s; look at that rank's log", rank,
                      xccl_conn_peer_text(reporter->conn), error->text);
        session_fail(session);
    }
    /* It may have been refused before, and nobody may be counted twice. */
    place = place_of(session, rank);
    if (place != UINT32_MAX && !session->counted[place])
        session_count_told(session, place);
    reporter_free(reporter);
    session_rest(session);
}

/* The reporter may be gone when this returns. */
static void reporter_on_frame(struct xccl_root_reporter *reporter, const struct xccl_frame *frame)
{
    struct xccl_boot_error error;

    if (frame->final) {
        reporter_lost(reporter, "it closed the connection");
    } else if (frame->type == XCCL_BOOT_ERROR &&
               xccl_boot_error_decode(frame->body, frame->bytes, &error) == 0) {
        if (reporter->session)
            reporter_lost(reporter, error.text);
        else
            reporter_on_decline(reporter, &error);
    } else if (!reporter->session && frame->type == XCCL_BOOT_REPORT &&
               xccl_boot_report_decode(frame->body, frame->bytes, &reporter->report) == 0) {
        reporter_on_report(reporter);
    } else {
        reporter_lost(reporter, "it sent what no rank of this version sends");
    }
}

static void reporter_on_events(struct xccl_source *source, uint32_t events)
{
    struct xccl_root_reporter *reporter = source->owner;
    struct xccl_frame frame;
    int got = 0;
    xcclResult_t rc = xccl_conn_take_frame(reporter->conn, &frame, &got);

    if (rc) {
        char why[XCCL_ERROR_TEXT_BYTES];

        snprintf(why, sizeof(why), "%s", xccl_error_text());
        reporter_lost(reporter, why);
        return;
    }
    if (got) {
        reporter_on_frame(reporter, &frame);
        return;
    }
    if (events & EPOLLOUT && reporter->session) {
        struct xccl_root_session *session = reporter->session;

        reporter_count_told(reporter);
        session_rest(session);
    }
}

static void reporter_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct xccl_root_reporter *reporter = source->owner;

    (void)now_ns;
    reporter_lost(reporter, reporter->session ? "the root could not tell it its next rank"
                                              : "no report within 10 s");
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
    return;
err_reporter:
    xccl_free(reporter);
err_conn:
    xccl_conn_close(conn);
}

void xccl_root_end_sessions(struct xccl_root *root)
{
    while (root->sessions) {
        struct xccl_root_session *session = root->sessions;

        if (!session->failed) {
            session_error(
                session, xcclRemoteError,
                "the root was closed while ranks were joining; look at its process's log");
            session_fail(session);
        }
        session_free(session);
    }
    while (root->reporters)
        reporter_free(root->reporters);
}
