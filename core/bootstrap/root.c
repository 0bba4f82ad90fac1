/* SPDX-License-Identifier: BSD-3-Clause */
/* The root: where ranks report and are told where the next rank listens. Event-driven, so no peer
 * can hold it up; state changes only by proven reports.
 *
 *   reporter  proven --REPORT--> reported --next rank reported too--> told --all told--> closed
 *             proven --ERROR--> closed, and the session fails: that rank cannot join
 *   session   open --all told--> gone
 *             open --mismatch, rank lost, deadline--> failed: every rank, also one that comes
 *             later, gets the same ERROR --as many as ranks told, or deadline--> gone
 *
 * A root of one communicator ends with its session, one of a launcher when it is destroyed.
 * Limits: 1,024 sessions, 2^20 ranks each; no fail-over: when the root's process dies, joining
 * ends. Thread: the service thread's callbacks; create and destroy from any, under the loop's lock.
 */
#include "bootstrap/bootstrap.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/param.h"
#include "bootstrap/acceptor.h"
#include "bootstrap/conn_int.h"
#include "bootstrap/message.h"
#include "bootstrap/root_int.h"

#define SESSIONS_MAX  1024
#define NRANKS_MAX    (1u << 20)
#define REPORT_NS     (10 * XCCL_NS_PER_S) /* from proof to report */
#define MARGIN_MAX_MS 500 /* how much before its ranks a session gives up */

struct session;

struct reporter {
    struct xccl_source source;
    struct xccl_conn *conn;
    struct xccl_root *root;
    struct session *session; /* NULL before the report and after it is over */
    uint32_t rank;
    int told; /* NEXT is in the socket */
    int next_queued;
    struct xccl_boot_report report;
    struct reporter *next, *prev; /* root->reporters: all of them */
};

struct session {
    struct xccl_source timer;
    struct xccl_root *root;
    uint8_t comm_id[16];
    uint32_t nranks, reported, told;
    uint64_t deadline_ns;
    int failed;
    struct xccl_boot_error error;
    struct reporter **ranks; /* nranks places */
    uint8_t *counted; /* nranks places: 1 when told counts that rank */
    struct session *next, *prev;
};

struct xccl_root {
    struct xccl_source timer; /* the end of a single root */
    struct xccl_loop *loop;
    struct xccl_acceptor *acceptor;
    struct xccl_addr addr;
    uint8_t comm_id[16];
    int single;
    pid_t pid; /* a fork's child has the memory but not the thread */
    uint64_t timeout_ms;
    int session_count;
    struct session *sessions;
    struct reporter *reporters;
    struct xccl_root *next; /* single_roots */
};

/* Roots of this process that end by themselves. Guarded by single_mutex, which is taken inside a
 * loop's lock and never around one. */
static pthread_mutex_t single_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct xccl_root *single_roots;

static void reporter_free(struct reporter *reporter)
{
    struct xccl_root *root = reporter->root;

    xccl_loop_remove(&reporter->source);
    if (reporter->session && reporter->session->ranks[reporter->rank] == reporter)
        reporter->session->ranks[reporter->rank] = NULL;
    if (reporter->prev)
        reporter->prev->next = reporter->next;
    else
        root->reporters = reporter->next;
    if (reporter->next)
        reporter->next->prev = reporter->prev;
    xccl_conn_close(reporter->conn);
    xccl_free(reporter);
}

/* Tells one rank that joining failed, as far as its socket takes it now, and lets go of it. */
static void reporter_refuse(struct reporter *reporter, const struct xccl_boot_error *error)
{
    uint8_t body[XCCL_BOOT_ERROR_MAX];
    size_t bytes = xccl_boot_error_encode(error->rc, error->text, body);

    (void)xccl_conn_queue(reporter->conn, XCCL_BOOT_ERROR, body, bytes);
    reporter_free(reporter);
}

static void session_free(struct session *session)
{
    struct xccl_root *root = session->root;

    xccl_loop_remove(&session->timer);
    for (uint32_t rank = 0; rank < session->nranks; rank++) {
        if (session->ranks[rank])
            reporter_free(session->ranks[rank]);
    }
    if (session->prev)
        session->prev->next = session->next;
    else
        root->sessions = session->next;
    if (session->next)
        session->next->prev = session->prev;
    root->session_count--;
    if (root->single)
        xccl_loop_set_timer(&root->timer, xccl_clock_ns());
    xccl_free(session->counted);
    xccl_free(session->ranks);
    xccl_free(session);
}

/* A failed session stays for those who come later, until as many were told as there are ranks. */
static void session_rest(struct session *session)
{
    if (session->told >= session->nranks)
        session_free(session);
}

static void session_count_told(struct session *session, uint32_t rank)
{
    session->told++;
    if (rank < session->nranks)
        session->counted[rank] = 1;
}

/* session->error is set. Tells all who wait; the session may be gone when this returns. */
static void session_fail(struct session *session)
{
    session->failed = 1;
    xccl_log(XCCL_LOG_ERROR, "root: %s", session->error.text);
    for (uint32_t rank = 0; rank < session->nranks; rank++) {
        struct reporter *reporter = session->ranks[rank];

        if (!reporter)
            continue;
        if (!reporter->told)
            session_count_told(session, rank);
        reporter_refuse(reporter, &session->error);
    }
}

static void session_error(struct session *session, xcclResult_t rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void session_error(struct session *session, xcclResult_t rc, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(session->error.text, sizeof(session->error.text), fmt, args);
    va_end(args);
    session->error.rc = rc;
}

static void session_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct session *session = source->owner;
    char missing[200];

    (void)now_ns;
    if (!session->failed) {
        xccl_boot_missing_text((const void *const *)session->ranks, session->nranks, missing,
                               sizeof(missing));
        session_error(
            session, xcclTimeout,
            "missing: ranks %s of %u did not report in time; see whether they were started "
            "and reach the root, or raise XCCL_TIMEOUT_INIT_S",
            missing, session->nranks);
        session_fail(session);
    }
    session_free(session);
}

static struct session *session_find(struct xccl_root *root, const uint8_t comm_id[16])
{
    for (struct session *at = root->sessions; at; at = at->next) {
        if (memcmp(at->comm_id, comm_id, sizeof(at->comm_id)) == 0)
            return at;
    }
    return NULL;
}

/* NULL: no memory, or too many. nranks was checked. */
static struct session *session_make(struct xccl_root *root, const struct xccl_hello *hello)
{
    struct session *session;

    if (root->session_count >= SESSIONS_MAX) {
        xccl_log(XCCL_LOG_WARN, "root: %d communicators are joining already; end some first",
                 SESSIONS_MAX);
        return NULL;
    }
    session = xccl_calloc(1, sizeof(*session));
    if (!session)
        return NULL;
    session->ranks = xccl_calloc(hello->nranks, sizeof(struct reporter *));
    session->counted = xccl_calloc(hello->nranks, 1);
    if (!session->ranks || !session->counted)
        goto err_ranks;
    session->root = root;
    session->nranks = hello->nranks;
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
    xccl_free(session->ranks);
    xccl_free(session);
    return NULL;
}

/* The session gives up a little before the first of its ranks does, so that the list of missing
 * ranks still reaches it. */
static void session_take_deadline(struct session *session, uint32_t timeout_ms)
{
    uint32_t margin_ms = timeout_ms / 4 < MARGIN_MAX_MS ? timeout_ms / 4 : MARGIN_MAX_MS;
    uint64_t deadline_ns = xccl_clock_ns() + (timeout_ms - margin_ms) * XCCL_NS_PER_MS;

    if (deadline_ns < session->deadline_ns) {
        session->deadline_ns = deadline_ns;
        xccl_loop_set_timer(&session->timer, deadline_ns);
    }
}

static const struct reporter *session_anyone(const struct session *session)
{
    for (uint32_t rank = 0; rank < session->nranks; rank++) {
        if (session->ranks[rank])
            return session->ranks[rank];
    }
    return NULL;
}

/* Compares a newcomer with those before it. 0: it fits; else session->error says why not. */
static int session_check(struct session *session, const struct reporter *reporter)
{
    const struct xccl_hello *hello = xccl_conn_hello(reporter->conn);
    const struct reporter *other = session_anyone(session);
    const char *host = reporter->report.host;

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
    } else if (session->ranks[hello->rank]) {
        other = session->ranks[hello->rank];
        session_error(session, xcclInvalidUsage,
                      "rank %u is there twice: on host %s at %s and on host %s at %s; give each "
                      "process a rank of its own",
                      hello->rank, other->report.host, xccl_conn_peer_text(other->conn), host,
                      xccl_conn_peer_text(reporter->conn));
    } else if (other && other->report.xccl_version != reporter->report.xccl_version) {
        session_error(session, xcclInvalidUsage,
                      "rank %u on host %s runs xccl %u, rank %u on host %s runs xccl %u; install "
                      "the same version everywhere",
                      hello->rank, host, reporter->report.xccl_version, other->rank,
                      other->report.host, other->report.xccl_version);
    } else {
        return 0;
    }
    return -1;
}

/* Counts a rank as told once its NEXT has left; ends the session after the last. */
static void reporter_count_told(struct reporter *reporter)
{
    struct session *session = reporter->session;
    int pending = 1;

    if (!reporter->next_queued || reporter->told)
        return;
    if (xccl_conn_flush(reporter->conn, &pending) != xcclSuccess)
        return; /* its socket will say so in a moment: reporter_on_events() */
    (void)xccl_loop_set_events(&reporter->source, pending ? EPOLLIN | EPOLLOUT : EPOLLIN);
    if (pending)
        return;
    reporter->told = 1;
    session_count_told(session, reporter->rank);
}

/* Tells rank where the next one listens, if that is known. */
static void session_tell(struct session *session, uint32_t rank)
{
    struct reporter *reporter = session->ranks[rank];
    const struct reporter *next = session->ranks[(rank + 1) % session->nranks];
    uint8_t body[XCCL_ADDR_WIRE_BYTES];

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

/* The session for a report, made if it is the first. NULL: the reporter was refused and is gone. */
static struct session *session_for(struct reporter *reporter)
{
    const struct xccl_hello *hello = xccl_conn_hello(reporter->conn);
    struct xccl_boot_error error = {xcclSystemError,
                                    "the root has no room for one more; try later"};
    struct session *session = session_find(reporter->root, hello->comm_id);

    if (session)
        return session;
    if (hello->nranks == 0 || hello->nranks > NRANKS_MAX) {
        error.rc = xcclInvalidArgument;
        snprintf(error.text, sizeof(error.text), "rank %u on host %s says %u ranks; use 1 to %u",
                 hello->rank, reporter->report.host, hello->nranks, NRANKS_MAX);
    } else {
        session = session_make(reporter->root, hello);
    }
    if (!session)
        reporter_refuse(reporter, &error);
    return session;
}

/* A report came; the reporter may be gone when this returns. */
static void reporter_on_report(struct reporter *reporter)
{
    uint32_t rank = xccl_conn_hello(reporter->conn)->rank;
    struct session *session = session_for(reporter); /* without one the reporter is gone */
    int again;

    if (!session)
        return;
    /* One that was told already and tries again; not one that is there twice, which is a process of
     * its own and the failure itself. */
    again = session->failed && rank < session->nranks && session->counted[rank];
    if (!session->failed && session_check(session, reporter) != 0)
        session_fail(session);
    if (session->failed) {
        if (!again)
            session_count_told(session, rank);
        reporter_refuse(reporter, &session->error);
        session_rest(session);
        return;
    }
    reporter->session = session;
    reporter->rank = rank;
    session->ranks[rank] = reporter;
    session->reported++;
    xccl_loop_set_timer(&reporter->source, XCCL_NEVER_NS);
    session_take_deadline(session, reporter->report.timeout_ms);
    session_tell(session, rank);
    session_tell(session, (rank + session->nranks - 1) % session->nranks);
    if (session->told == session->nranks)
        session_free(session);
}

/* A rank went, or sent what none may, before everybody was told. */
static void reporter_lost(struct reporter *reporter, const char *why)
{
    struct session *session = reporter->session;

    if (!session) {
        xccl_log(XCCL_LOG_INFO, "root: lost a connection before its report: %s", why);
        reporter_free(reporter);
        return;
    }
    session_error(session, xcclRemoteError,
                  "rank %u on host %s at %s left while joining (%.200s); look at that rank's log",
                  reporter->rank, reporter->report.host, xccl_conn_peer_text(reporter->conn), why);
    if (!reporter->told)
        session_count_told(session, reporter->rank); /* nobody will ask again for this one */
    reporter_free(reporter);
    session_fail(session);
    session_rest(session);
}

/* A rank says that it cannot join, instead of reporting; the reporter is gone when this returns. */
static void reporter_on_decline(struct reporter *reporter, const struct xccl_boot_error *error)
{
    const struct xccl_hello *hello = xccl_conn_hello(reporter->conn);
    uint32_t rank = hello->rank;
    struct session *session;

    if (rank >= hello->nranks) {
        reporter_lost(reporter, "it sent what no rank of this version sends");
        return;
    }
    session = session_for(reporter);
    if (!session)
        return;
    if (!session->failed) {
        session_error(session, xcclRemoteError,
                      "rank %u at %s cannot join: %.300s; look at that rank's log", rank,
                      xccl_conn_peer_text(reporter->conn), error->text);
        session_fail(session);
    }
    /* It may have been refused before, and nobody may be counted twice. */
    if (rank < session->nranks && !session->counted[rank])
        session_count_told(session, rank);
    reporter_free(reporter);
    session_rest(session);
}

/* The reporter may be gone when this returns. */
static void reporter_on_frame(struct reporter *reporter, const struct xccl_frame *frame)
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
    struct reporter *reporter = source->owner;
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
        struct session *session = reporter->session;

        reporter_count_told(reporter);
        if (session->told == session->nranks)
            session_free(session);
    }
}

static void reporter_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct reporter *reporter = source->owner;

    (void)now_ns;
    reporter_lost(reporter, reporter->session ? "the root could not tell it its next rank"
                                              : "no report within 10 s");
}

static void root_on_conn(void *owner, struct xccl_conn *conn)
{
    struct xccl_root *root = owner;
    struct reporter *reporter;

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

/* Frees everything; the loop's lock is held. Those who still wait are told. */
static void root_fini(struct xccl_root *root)
{
    xccl_acceptor_close(root->acceptor);
    xccl_loop_remove(&root->timer);
    root->single = 0; /* the last session must not arm the timer again */
    while (root->sessions) {
        struct session *session = root->sessions;

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
    xccl_free(root);
}

static xcclResult_t root_make(const struct xccl_acceptor_args *args, struct xccl_root **root_out)
{
    struct xccl_acceptor_args own_args = *args;
    struct xccl_root *root = xccl_calloc(1, sizeof(*root));
    xcclResult_t rc = xcclSystemError;

    if (!root)
        return rc;
    root->timer.fd = -1;
    root->timer.timer_ns = XCCL_NEVER_NS;
    root->pid = getpid();
    root->timeout_ms = (uint64_t)xccl_param_int(XCCL_P_TIMEOUT_INIT_S) * 1000;
    memcpy(root->comm_id, args->comm_id, sizeof(root->comm_id));
    rc = xccl_service_get(&root->loop);
    if (rc)
        goto err_root;
    own_args.loop = root->loop;
    own_args.on_conn = root_on_conn;
    own_args.owner = root;
    rc = xccl_acceptor_open(&own_args, &root->acceptor);
    sodium_memzero(own_args.key, sizeof(own_args.key));
    if (rc)
        goto err_service;
    root->addr = *xccl_acceptor_addr(root->acceptor);
    *root_out = root;
    return xcclSuccess;
err_service:
    xccl_service_put();
err_root:
    xccl_free(root);
    return rc;
}

xcclResult_t xccl_root_create(struct xccl_addr *addr, const uint8_t secret[32],
                              struct xccl_root **root_out)
{
    struct xccl_acceptor_args args = {.addr = *addr, .any_comm_id = 1, .rank = UINT32_MAX};
    xcclResult_t rc;

    memcpy(args.key, secret, sizeof(args.key));
    rc = root_make(&args, root_out);
    sodium_memzero(args.key, sizeof(args.key));
    if (rc)
        return rc;
    *addr = (*root_out)->addr;
    return xcclSuccess;
}

void xccl_root_destroy(struct xccl_root *root)
{
    struct xccl_loop *loop;

    if (!root)
        return;
    loop = root->loop;
    xccl_loop_lock(loop);
    root_fini(root);
    xccl_loop_unlock(loop);
    xccl_service_put();
}

/* A child must not find the mutex locked by a thread that it does not have. */
static void single_lock(void)
{
    pthread_mutex_lock(&single_mutex);
}

static void single_unlock(void)
{
    pthread_mutex_unlock(&single_mutex);
}

static void single_watch_forks(void)
{
    (void)pthread_atfork(single_lock, single_unlock, single_unlock);
}

/* Takes a root out of the list of those that end by themselves. 0: it was not there any more. */
static int single_unlist(const struct xccl_root *root)
{
    int found = 0;

    pthread_mutex_lock(&single_mutex);
    for (struct xccl_root **at = &single_roots; *at && !found; at = &(*at)->next) {
        if (*at == root) {
            *at = root->next;
            found = 1;
            break;
        }
    }
    pthread_mutex_unlock(&single_mutex);
    return found;
}

/* The session is over, or nobody came in time. */
static void single_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct xccl_root *root = source->owner;

    (void)now_ns;
    if (!single_unlist(root))
        return; /* xccl_root_end_single() has it and waits for the loop's lock */
    root_fini(root);
    xccl_service_put_later();
}

xcclResult_t xccl_root_start_single(struct xccl_job *job, uint64_t timeout_ms)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct xccl_acceptor_args args = {.addr = job->roots[0], .rank = UINT32_MAX};
    struct xccl_root *root;
    xcclResult_t rc;

    pthread_once(&once, single_watch_forks);
    memcpy(args.key, job->secret, sizeof(args.key));
    memcpy(args.comm_id, job->comm_id, sizeof(args.comm_id));
    rc = root_make(&args, &root);
    sodium_memzero(args.key, sizeof(args.key));
    if (rc)
        return rc;
    job->roots[0] = root->addr;
    xccl_loop_lock(root->loop);
    root->single = 1;
    root->timeout_ms = timeout_ms;
    root->timer.timer_ns = xccl_clock_ns() + timeout_ms * XCCL_NS_PER_MS;
    root->timer.on_timer = single_on_timer;
    root->timer.owner = root;
    rc = xccl_loop_add(root->loop, &root->timer);
    if (!rc) {
        pthread_mutex_lock(&single_mutex);
        root->next = single_roots;
        single_roots = root;
        pthread_mutex_unlock(&single_mutex);
    }
    xccl_loop_unlock(root->loop);
    if (rc)
        xccl_root_destroy(root);
    return rc;
}

void xccl_root_end_single(const uint8_t comm_id[16])
{
    struct xccl_root *found = NULL;

    pthread_mutex_lock(&single_mutex);
    for (struct xccl_root **at = &single_roots; *at; at = &(*at)->next) {
        if ((*at)->pid == getpid() && memcmp((*at)->comm_id, comm_id, 16) == 0) {
            found = *at;
            *at = found->next;
            break;
        }
    }
    pthread_mutex_unlock(&single_mutex);
    xccl_root_destroy(found);
}
