/* SPDX-License-Identifier: BSD-3-Clause */
/* The first error of a communicator: stored once, polled by every wait, sent to the other ranks by
 * the hook comm->tell, returned by every later call. The text is written before the word, under a
 * lock that only writers take.
 * Thread: any. */
#include "comm/comm_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "comm/comm_where.h"
#include "comm/device_ops.h"
#include "record/record.h"

#define ERROR_NAP_NS 100000

/* verdict NULL: only the notice is known. */
static int keep(struct xcclComm *comm, const struct xccl_notice *notice,
                const struct xccl_verdict *verdict)
{
    struct xccl_record_cause cause = {.word = NULL};
    int first;

    if (notice->trouble)
        cause = (struct xccl_record_cause){.word = xccl_trouble_row(notice->trouble)->word,
                                           .culprit = notice->culprit,
                                           .finder = notice->origin,
                                           .remedy_at = notice->remedy_at};
    pthread_mutex_lock(&comm->error_lock);
    first = atomic_load_explicit(&comm->error, memory_order_relaxed) == xcclSuccess;
    if (first) {
        snprintf(comm->error_text, sizeof comm->error_text, "%s", notice->text);
        if (verdict)
            comm->verdict = *verdict;
        else
            comm->verdict = (struct xccl_verdict){.trouble = notice->trouble,
                                                  .rc = (xcclResult_t)notice->rc,
                                                  .finder = notice->origin,
                                                  .culprit = notice->culprit};
        xccl_record_error(comm->record, (xcclResult_t)notice->rc, notice->text, &cause);
        /* Release: text and verdict before the word. Pairs with xccl_comm_error(). */
        atomic_store_explicit(&comm->error, notice->rc, memory_order_release);
    }
    pthread_mutex_unlock(&comm->error_lock);
    return first;
}

int xccl_comm_keep_notice(struct xcclComm *comm, const struct xccl_notice *notice)
{
    return keep(comm, notice, NULL);
}

int xccl_comm_set_error(struct xcclComm *comm, xcclResult_t rc, const char *text)
{
    struct xccl_notice notice = {.kind = XCCL_NOTICE_ERROR,
                                 .rc = (uint32_t)rc,
                                 .origin = comm->rank,
                                 .culprit = XCCL_VERDICT_NOBODY};

    snprintf(notice.text, sizeof notice.text, "%s", text);
    return keep(comm, &notice, NULL);
}

void xccl_comm_note_abort(struct xcclComm *comm, const char *who)
{
    snprintf(comm->abort_text, sizeof comm->abort_text,
             "%.150s aborted the communicator, which had failed before: %.300s", who,
             comm->error_text);
    /* Release: the text before. Pairs with xccl_comm_error_text(). */
    atomic_store_explicit(&comm->has_abort_text, 1, memory_order_release);
}

const char *xccl_comm_error_text(const struct xcclComm *comm)
{
    /* Acquire: pairs with xccl_comm_note_abort(). */
    return atomic_load_explicit(&comm->has_abort_text, memory_order_acquire) ? comm->abort_text
                                                                             : comm->error_text;
}

xcclResult_t xccl_comm_error(struct xcclComm *comm)
{
    /* Acquire: pairs with xccl_comm_set_error(); the text does not change afterwards. */
    uint32_t rc = atomic_load_explicit(&comm->error, memory_order_acquire);

    if (__builtin_expect(rc != xcclSuccess, 0))
        xccl_error_set_text(xccl_comm_error_text(comm));
    return (xcclResult_t)rc;
}

void xccl_comm_log_notice(const struct xccl_notice *notice)
{
    /* The other two are somebody's will. */
    xccl_log(notice->kind == XCCL_NOTICE_ERROR ? XCCL_LOG_ERROR : XCCL_LOG_WARN, "%s",
             notice->text);
}

xcclResult_t xccl_comm_async_error(struct xcclComm *comm)
{
    uint64_t until_ns = 0;

    while (comm->ops->hides_error(comm)) {
        uint64_t now_ns = xccl_clock_ns();

        if (!until_ns)
            until_ns = now_ns + 2 * XCCL_VERDICT_NS;
        if (now_ns > until_ns)
            return xcclInvalidUsage;
        nanosleep(&(struct timespec){.tv_nsec = ERROR_NAP_NS}, NULL);
    }
    return xccl_comm_error(comm);
}

/* --- raising --- */

struct xccl_verdict xccl_comm_verdict(const struct xcclComm *comm, enum xccl_trouble trouble,
                                      int culprit)
{
    return (struct xccl_verdict){.trouble = trouble, .finder = comm->rank, .culprit = culprit};
}

size_t xccl_comm_verdict_text(const struct xcclComm *comm, const struct xccl_verdict *verdict,
                              char *text_out, size_t bytes)
{
    struct xccl_rank_places places = {.find = xccl_comm_find_place, .owner = comm};

    return xccl_verdict_text(verdict, &places, text_out, bytes);
}

/* Begins a text with the communicator's name and labels, if it has any. */
static size_t put_label(const struct xcclComm *comm, struct xccl_notice *notice)
{
    char label[XCCL_COMM_NAME_BYTES + 64]; /* the error itself needs room, too */

    xccl_comm_label_text(comm, label, sizeof label);
    if (!label[0])
        return 0;
    xccl_log_escape(label, sizeof label);
    return (size_t)snprintf(notice->text, sizeof notice->text, "communicator %s: ", label);
}

/* The others first: a log may be slow. */
static xcclResult_t tell_first(struct xcclComm *comm, int first, const struct xccl_notice *notice)
{
    if (first && comm->tell)
        comm->tell(comm, notice);
    if (first)
        xccl_comm_log_notice(notice);
    return xccl_comm_error(comm);
}

static enum xccl_notice_kind kind_of(enum xccl_trouble trouble)
{
    switch (trouble) {
    case XCCL_TROUBLE_ABORTED:
        return XCCL_NOTICE_ABORT;
    case XCCL_TROUBLE_REVOKED:
        return XCCL_NOTICE_REVOKE;
    default:
        return XCCL_NOTICE_ERROR;
    }
}

int xccl_comm_keep_verdict(struct xcclComm *comm, const struct xccl_verdict *verdict,
                           struct xccl_notice *notice_out)
{
    size_t used, remedy_at;

    *notice_out = (struct xccl_notice){.kind = kind_of(verdict->trouble),
                                       .rc = (uint32_t)xccl_verdict_rc(verdict),
                                       .origin = verdict->finder,
                                       .culprit = verdict->culprit,
                                       .trouble = verdict->trouble};
    used = put_label(comm, notice_out);
    remedy_at = xccl_comm_verdict_text(comm, verdict, notice_out->text + used,
                                       sizeof notice_out->text - used);
    notice_out->remedy_at = remedy_at ? (uint32_t)(used + remedy_at) : 0;
    return keep(comm, notice_out, verdict);
}

xcclResult_t xccl_comm_raise(struct xcclComm *comm, const struct xccl_verdict *verdict)
{
    struct xccl_notice notice;
    int first = xccl_comm_keep_verdict(comm, verdict, &notice);

    return tell_first(comm, first, &notice);
}

xcclResult_t xccl_comm_fail_own(struct xcclComm *comm, xcclResult_t rc, enum xccl_trouble trouble)
{
    int culprit = trouble == XCCL_TROUBLE_OTHER ? XCCL_VERDICT_NOBODY : comm->rank;
    struct xccl_verdict verdict = xccl_comm_verdict(comm, trouble, culprit);

    verdict.rc = rc;
    xccl_verdict_set_why(&verdict, xccl_error_text());
    return xccl_comm_raise(comm, &verdict);
}

xcclResult_t xccl_comm_fail(struct xcclComm *comm, xcclResult_t rc, const char *fmt, ...)
{
    struct xccl_notice notice = {.kind = XCCL_NOTICE_ERROR,
                                 .rc = (uint32_t)rc,
                                 .origin = comm->rank,
                                 .culprit = XCCL_VERDICT_NOBODY};
    size_t used = put_label(comm, &notice);
    va_list args;

    va_start(args, fmt);
    vsnprintf(notice.text + used, sizeof notice.text - used, fmt, args);
    va_end(args);
    xccl_log_escape(notice.text, sizeof notice.text);
    return tell_first(comm, keep(comm, &notice, NULL), &notice);
}
