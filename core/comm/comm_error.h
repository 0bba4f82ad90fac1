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
#include "xccl.h"

struct xcclComm;

/* Why a communicator has failed, as it is sent to the other ranks. */
enum xccl_notice_kind {
    XCCL_NOTICE_ERROR = 1, /* something went wrong */
    XCCL_NOTICE_ABORT = 2, /* a rank ended it and is gone */
    XCCL_NOTICE_REVOKE = 3, /* a rank wants everybody to stop using it */
    XCCL_NOTICE_END
};

/* For others to say who is to blame for a connection that broke. */
#define XCCL_VERDICT_NS (700 * XCCL_NS_PER_MS)

#define XCCL_NOTICE_TEXT_BYTES 400

struct xccl_notice {
    enum xccl_notice_kind kind;
    uint32_t rc;
    int32_t origin; /* the rank that raised it */
    char text[XCCL_NOTICE_TEXT_BYTES];
};

/* Sends a notice to the other ranks. */
typedef void xccl_comm_tell_fn(struct xcclComm *comm, const struct xccl_notice *notice);

/* Raises an error: the first one is kept and sent to the other ranks; the text in force becomes the
 * thread's. Returns the result in force. */
xcclResult_t xccl_comm_fail(struct xcclComm *comm, xcclResult_t rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), cold));
/* Raises an error of any kind, as xccl_comm_fail() raises XCCL_NOTICE_ERROR. */
xcclResult_t xccl_comm_raise(struct xcclComm *comm, enum xccl_notice_kind kind, xcclResult_t rc,
                             const char *fmt, ...) __attribute__((format(printf, 4, 5), cold));
/* Keeps rc and text unless there is an error already; 1 when it was the first. Sends nothing, logs
 * nothing. */
int xccl_comm_set_error(struct xcclComm *comm, xcclResult_t rc, const char *text);
/* The error in force, or xcclSuccess; its text becomes the thread's. */
xcclResult_t xccl_comm_error(struct xcclComm *comm);
/* Logs a notice: an error as such, the will of a rank as a warning. */
void xccl_comm_log_notice(const struct xccl_notice *notice);

#endif
