/* SPDX-License-Identifier: BSD-3-Clause */
/* The error word of a communicator. The first error wins, whether a failure, an abort or a
 * revocation: it is kept with its text, and every later call returns it. Who carries it to the
 * other ranks is not known here: the control plane sets comm->tell while it is open.
 * Thread: any. */
#ifndef XCCL_COMM_COMM_ERROR_H
#define XCCL_COMM_COMM_ERROR_H

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "verdict/verdict.h"
#include "xccl.h"

struct xcclComm;

/* Why a communicator has failed, as it is sent to the other ranks. */
enum xccl_notice_kind {
    XCCL_NOTICE_ERROR = 1, /* something went wrong */
    XCCL_NOTICE_ABORT = 2, /* a rank ended it and is gone */
    XCCL_NOTICE_REVOKE = 3, /* a rank wants everybody to stop using it */
    XCCL_NOTICE_END
};

/* Time for others to say who is to blame for a connection that broke. */
#define XCCL_VERDICT_NS (700 * XCCL_NS_PER_MS)

#define XCCL_NOTICE_TEXT_BYTES 400

struct xccl_notice {
    enum xccl_notice_kind kind;
    uint32_t rc;
    int32_t origin; /* the rank that raised it */
    int32_t culprit; /* or XCCL_VERDICT_NOBODY */
    enum xccl_trouble trouble; /* NONE: only the text is known */
    uint32_t remedy_at; /* where the text says what to do; 0: that is not known */
    char text[XCCL_NOTICE_TEXT_BYTES];
};

/* Sends a notice to the other ranks. */
typedef void xccl_comm_tell_fn(struct xcclComm *comm, const struct xccl_notice *notice);

/* Raises the error that a verdict leads to: the first one is kept and sent to the other ranks; the
 * text in force becomes the thread's. Takes no memory. Returns the result in force. */
xcclResult_t xccl_comm_raise(struct xcclComm *comm, const struct xccl_verdict *verdict)
    __attribute__((cold));
/* Raises an error of which only the text is known, as xccl_comm_raise() does. */
xcclResult_t xccl_comm_fail(struct xcclComm *comm, xcclResult_t rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), cold));
/* Raises an error of this rank itself, with the thread's error text as evidence. */
xcclResult_t xccl_comm_fail_own(struct xcclComm *comm, xcclResult_t rc, enum xccl_trouble trouble)
    __attribute__((cold));
/* A verdict that this rank has found. */
struct xccl_verdict xccl_comm_verdict(const struct xcclComm *comm, enum xccl_trouble trouble,
                                      int culprit);
/* The text of a verdict, with hosts and processes of its ranks. Returns where its remedy begins. */
size_t xccl_comm_verdict_text(const struct xcclComm *comm, const struct xccl_verdict *verdict,
                              char *text_out, size_t bytes);
/* The next three keep an error unless there is one already; 1 when it was the first. They send and
 * log nothing: an error of another rank, a verdict, and a text. */
int xccl_comm_keep_notice(struct xcclComm *comm, const struct xccl_notice *notice);
int xccl_comm_keep_verdict(struct xcclComm *comm, const struct xccl_verdict *verdict,
                           struct xccl_notice *notice_out);
int xccl_comm_set_error(struct xcclComm *comm, xcclResult_t rc, const char *text);
/* This rank has aborted the communicator, which had failed before: from now on the text says who
 * did, and then why it had failed. Once. */
void xccl_comm_note_abort(struct xcclComm *comm, const char *who);
/* The text of the error in force. */
const char *xccl_comm_error_text(const struct xcclComm *comm);
/* The error in force, or xcclSuccess; its text becomes the thread's. */
xcclResult_t xccl_comm_error(struct xcclComm *comm);
/* Asked once a stream has ended: waits, 1.4 s at most, while a kernel of the device has found an
 * error and the communicator does not know whose it is, and returns the error in force, or
 * xcclInvalidUsage if it is not known yet. That kernel ends, and so do those behind it, without
 * data in their buffers; a stream waits for no more. */
xcclResult_t xccl_comm_async_error(struct xcclComm *comm);
/* Logs a notice: an error as such, the will of a rank as a warning. */
void xccl_comm_log_notice(const struct xccl_notice *notice);

#endif
