/* SPDX-License-Identifier: BSD-3-Clause */
/* The first error of a communicator: stored once, polled by every wait, sent to the other ranks by
 * the hook comm->tell, returned by every later call. The text is written before the word, under a
 * lock that only writers take.
 * Thread: any. */
#include "comm/comm_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "comm/comm_where.h"
#include "record/record.h"

int xccl_comm_set_error(struct xcclComm *comm, xcclResult_t rc, const char *text)
{
    int first;

    pthread_mutex_lock(&comm->error_lock);
    first = atomic_load_explicit(&comm->error, memory_order_relaxed) == xcclSuccess;
    if (first) {
        snprintf(comm->error_text, sizeof comm->error_text, "%s", text);
        xccl_record_error(comm->record, rc, text);
        /* Release: the text before the word. Pairs with xccl_comm_error(). */
        atomic_store_explicit(&comm->error, (uint32_t)rc, memory_order_release);
    }
    pthread_mutex_unlock(&comm->error_lock);
    return first;
}

xcclResult_t xccl_comm_error(struct xcclComm *comm)
{
    /* Acquire: pairs with xccl_comm_set_error(); the text does not change afterwards. */
    uint32_t rc = atomic_load_explicit(&comm->error, memory_order_acquire);

    if (__builtin_expect(rc != xcclSuccess, 0))
        xccl_error_set_text(comm->error_text);
    return (xcclResult_t)rc;
}

void xccl_comm_log_notice(const struct xccl_notice *notice)
{
    /* The other two are somebody's will. */
    xccl_log(notice->kind == XCCL_NOTICE_ERROR ? XCCL_LOG_ERROR : XCCL_LOG_WARN, "%s",
             notice->text);
}

static xcclResult_t raise_kind(struct xcclComm *comm, enum xccl_notice_kind kind, xcclResult_t rc,
                               const char *fmt, va_list args) __attribute__((format(printf, 4, 0)));

static xcclResult_t raise_kind(struct xcclComm *comm, enum xccl_notice_kind kind, xcclResult_t rc,
                               const char *fmt, va_list args)
{
    struct xccl_notice notice = {.kind = kind, .rc = (uint32_t)rc, .origin = comm->rank};
    char label[XCCL_COMM_NAME_BYTES + 64]; /* the error itself needs room, too */
    int used = 0;

    xccl_comm_label_text(comm, label, sizeof label);
    if (label[0])
        used = snprintf(notice.text, sizeof notice.text, "communicator %s: ", label);
    vsnprintf(notice.text + used, sizeof notice.text - (size_t)used, fmt, args);
    if (xccl_comm_set_error(comm, rc, notice.text)) {
        /* The others first: a log may be slow. */
        if (comm->tell)
            comm->tell(comm, &notice);
        xccl_comm_log_notice(&notice);
    }
    return xccl_comm_error(comm);
}

xcclResult_t xccl_comm_raise(struct xcclComm *comm, enum xccl_notice_kind kind, xcclResult_t rc,
                             const char *fmt, ...)
{
    xcclResult_t known;
    va_list args;

    va_start(args, fmt);
    known = raise_kind(comm, kind, rc, fmt, args);
    va_end(args);
    return known;
}

xcclResult_t xccl_comm_fail(struct xcclComm *comm, xcclResult_t rc, const char *fmt, ...)
{
    xcclResult_t known;
    va_list args;

    va_start(args, fmt);
    known = raise_kind(comm, XCCL_NOTICE_ERROR, rc, fmt, args);
    va_end(args);
    return known;
}
