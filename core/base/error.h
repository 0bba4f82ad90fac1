/* SPDX-License-Identifier: BSD-3-Clause */
/* How an error is told: the first to know calls xccl_fail() once, everybody else passes rc on.
 * The text of a thread's last error is kept in that thread; a communicator keeps a copy of its own.
 * Any thread. Never allocates. */
#ifndef XCCL_BASE_ERROR_H
#define XCCL_BASE_ERROR_H

#include "xccl_types.h"

#define XCCL_ERROR_TEXT_BYTES 512

/* Keeps "WHAT: strerror(err); TODO" as the thread's error text, logs it as one line at level error,
 * and returns rc. err 0: no errno part. todo NULL: no advice part. Longer texts are cut. */
xcclResult_t xccl_fail(xcclResult_t rc, int err, const char *todo, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

/* xccl_fail() without the log line, for errors that the caller expects and may swallow. */
xcclResult_t xccl_fail_quietly(xcclResult_t rc, int err, const char *todo, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

/* Logs the thread's error text: of something that has failed quietly, and is an error after all.
 * Returns rc; xcclSuccess logs nothing. */
xcclResult_t xccl_error_tell(xcclResult_t rc);

/* The thread's error text, "" if none. Good until the thread's next error. */
const char *xccl_error_text(void);
/* Replaces it (a text that came from a plugin, another thread or another rank). Here and above
 * control characters and broken UTF-8 are escaped, as in lines of the log. */
void xccl_error_set_text(const char *text);

/* A constant text for a code; never NULL. */
const char *xccl_result_text(xcclResult_t rc);

#endif
