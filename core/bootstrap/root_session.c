/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator that comes together at a root: ranks report, and each is told where the next one
 * listens. State changes only by proven reports. Until a rank says that it has joined, root and
 * rank watch each other (alive.h).
 *
 *   reporter  proven --REPORT--> reported --next rank reported too--> told --FINAL--> closed
 *             proven --ERROR--> closed, and the session fails: that rank cannot join
 *   session   open --all have joined--> gone
 *             open --mismatch, rank lost or silent, deadline--> failed: every rank, also one that
 *             comes later, gets the same ERROR --as many as ranks told, or deadline--> gone
 *
 * Limits: 1,024 sessions, 2^20 ranks each. Thread: the service thread's callbacks. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/os.h"
#include "bootstrap/conn_int.h"
#include "bootstrap/root_int.h"

#define SESSIONS_MAX  1024
#define NRANKS_MAX    (1u << 20)
#define MARGIN_MAX_MS 500 /* how much before its ranks a session gives up */

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

static void session_free(struct xccl_root_session *session)
{
    struct xccl_root *root = session->root;

    xccl_loop_remove(&session->timer);
    for (uint32_t i = 0; i < session->place_count; i++) {
        if (session->places[i])
            xccl_reporter_free(session->places[i]);
    }
    if (session->prev)
        session->prev->next = session->next;
    else
        root->sessions = session->next;
    if (session->next)
        session->next->prev = session->prev;
    root->session_count--;
    xccl_free(session->counted);
    xccl_free(session->places);
    xccl_free(session);
    if (root->single)
        xccl_loop_set_timer(&root->timer, xccl_clock_ns());
    else
        xccl_root_rest(root);
}

/* Over: all have joined; or, of a failed one, as many were told the error as may come. It stays
 * that long for those who come later. */
static int session_over(const struct xccl_root_session *session)
{
    return session->settled >= (session->failed ? session->may_come : session->place_count);
}

static void session_rest(struct xccl_root_session *session)
{
    if (session_over(session))
        session_free(session);
}

static void session_count_settled(struct xccl_root_session *session, uint32_t place)
{
    session->settled++;
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
        session_count_settled(session, i);
        xccl_reporter_refuse(reporter, &session->error);
    }
}

static void session_error_list(struct xccl_root_session *session, xcclResult_t rc, const char *fmt,
                               va_list args) __attribute__((format(printf, 3, 0)));
static void session_error_list(struct xccl_root_session *session, xcclResult_t rc, const char *fmt,
                               va_list args)
{
    vsnprintf(session->error.text, sizeof(session->error.text), fmt, args);
    session->error.rc = rc;
}

static void session_error(struct xccl_root_session *session, xcclResult_t rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void session_error(struct xccl_root_session *session, xcclResult_t rc, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    session_error_list(session, rc, fmt, args);
    va_end(args);
}

/* The ranks that have not reported; of several roots the guest may be the only one. */
static void session_missing(const struct xccl_root_session *session, char *text_out, size_t bytes)
{
    const void **seen = xccl_calloc(session->members, sizeof(*seen));

    for (uint32_t i = 0; seen && i < session->members; i++)
        seen[i] = session->places[i] || session->counted[i] ? session : NULL;
    text_out[0] = '\0';
    if (seen)
        xccl_boot_missing_text(seen, session->members, session->first, text_out, bytes);
    xccl_free(seen);
    if (!text_out[0])
        snprintf(text_out, bytes, "%u", (session->first + session->members) % session->nranks);
}

static void session_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct xccl_root_session *session = source->owner;
    char missing[200];

    (void)now_ns;
    /* Where all have reported, each has a deadline of its own. */
    if (!session->failed && session->came < session->place_count) {
        session_missing(session, missing, sizeof(missing));
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
    session->own_rank = XCCL_BOOT_NO_RANK;
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

/* Tells the member at a place where the next one listens, if that is known. */
static void session_tell(struct xccl_root_session *session, uint32_t place)
{
    struct xccl_root_reporter *reporter = session->places[place];
    const struct xccl_root_reporter *next = session->places[(place + 1) % session->place_count];

    if (reporter && next && !reporter->is_guest)
        xccl_reporter_tell(reporter, &next->report.addr);
}

/* A rank has reported: watches it, and learns whether it is one of this process. */
static void session_watch(struct xccl_root_session *session, struct xccl_root_reporter *reporter)
{
    xccl_loop_set_timer(&reporter->source, reporter->alive.look_ns);
    if (session->own_rank == XCCL_BOOT_NO_RANK && xccl_alive_is_here(&reporter->alive)) {
        session->own_rank = reporter->rank;
        for (uint32_t i = 0; i < session->place_count; i++) {
            if (session->places[i] && session->places[i] != reporter)
                xccl_reporter_introduce(session->places[i]);
        }
    } else if (session->own_rank != XCCL_BOOT_NO_RANK) {
        xccl_reporter_introduce(reporter);
    }
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
        xccl_reporter_refuse(reporter, &error);
    return session;
}

/* Its number has joined already: this one alone is refused. */
static void reporter_refuse_again(struct xccl_root_reporter *reporter)
{
    struct xccl_boot_error error = {.rc = xcclInvalidUsage};

    snprintf(error.text, sizeof(error.text),
             "rank %u on host %s reports to the root, but rank %u has joined already; give each "
             "process a rank of its own, and each communicator an id of its own",
             xccl_conn_hello(reporter->conn)->rank, reporter->report.host,
             xccl_conn_hello(reporter->conn)->rank);
    xccl_reporter_refuse(reporter, &error);
}

/* 1: the session waits for a rank that has ended, and session->error says so. */
static int session_misses_ended(struct xccl_root_session *session)
{
    const struct xccl_root *root = session->root;
    uint32_t place = place_of(session, root->ended_rank);

    if (session->failed || session->nranks != root->ended_nranks || place == UINT32_MAX ||
        session->places[place] || session->counted[place])
        return 0;
    session_error(session, xcclRemoteError, "%s before it reported to the root; look at its output",
                  root->ended_text);
    session_count_settled(session, place);
    return 1;
}

void xccl_session_report(struct xccl_root_reporter *reporter)
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
            session_count_settled(session, place);
        xccl_reporter_refuse(reporter, &session->error);
        session_rest(session);
        return;
    }
    if (session->counted[place]) {
        reporter_refuse_again(reporter);
        return;
    }
    reporter->session = session;
    reporter->rank = xccl_conn_hello(reporter->conn)->rank;
    reporter->place = place;
    reporter->is_guest = place >= session->members;
    session->places[place] = reporter;
    session->came++;
    session_watch(session, reporter);
    session_take_deadline(session, reporter->report.timeout_ms);
    session_tell(session, place);
    session_tell(session, (place + session->place_count - 1) % session->place_count);
    if (session_misses_ended(session))
        session_fail(session);
    session_rest(session);
}

void xccl_session_give_up(struct xccl_root_reporter *reporter, const char *fmt, ...)
{
    struct xccl_root_session *session = reporter->session;
    va_list args;

    va_start(args, fmt);
    session_error_list(session, xcclRemoteError, fmt, args);
    va_end(args);
    session_count_settled(session, reporter->place);
    xccl_reporter_refuse(reporter, &session->error);
    session_fail(session);
    session_rest(session);
}

void xccl_session_joined(struct xccl_root_reporter *reporter)
{
    struct xccl_root_session *session = reporter->session;

    session_count_settled(session, reporter->place);
    xccl_reporter_free(reporter);
    session_rest(session);
}

void xccl_session_decline(struct xccl_root_reporter *reporter, const struct xccl_boot_error *error)
{
    const struct xccl_hello *hello = xccl_conn_hello(reporter->conn);
    uint32_t rank = hello->rank, place;
    struct xccl_root_session *session;

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
        session_count_settled(session, place);
    xccl_reporter_free(reporter);
    session_rest(session);
}

void xccl_root_on_starved(void *owner, const char *why, const char *todo)
{
    struct xccl_root *root = owner;
    struct xccl_root_session *next;

    for (struct xccl_root_session *session = root->sessions; session; session = next) {
        next = session->next;
        if (session->failed || session->came == session->place_count)
            continue;
        session_error(
            session, xcclRemoteError,
            "the process with the root (host %s, pid %d) cannot accept more ranks: %.250s; %s",
            xccl_os_hostname(), (int)getpid(), why, todo);
        session_fail(session);
        session_rest(session);
    }
}

void xccl_root_on_ended(struct xccl_root *root)
{
    struct xccl_root_session *next;

    for (struct xccl_root_session *session = root->sessions; session; session = next) {
        next = session->next;
        if (!session_misses_ended(session))
            continue;
        session_fail(session);
        session_rest(session);
    }
}

void xccl_root_end_sessions(struct xccl_root *root)
{
    while (root->sessions) {
        struct xccl_root_session *session = root->sessions;

        /* Where all have reported, they go on without it. */
        if (!session->failed && session->came < session->place_count) {
            session_error(
                session, xcclRemoteError,
                "the root was closed while ranks were joining; look at its process's log");
            session_fail(session);
        }
        session_free(session);
    }
    while (root->reporters)
        xccl_reporter_free(root->reporters);
}
