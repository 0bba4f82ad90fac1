/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread's error text, and the one place that makes it.
 * A text is composed on the stack and copied last: its arguments may point into the old text, and
 * writing the log line may load the settings, which may fail on its own account.
 * Any thread; nothing here allocates, locks or changes errno. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

static _Thread_local char error_text[XCCL_ERROR_TEXT_BYTES];

/* Appends up to the end of the buffer; what does not fit is cut. */
__attribute__((format(printf, 3, 0))) static void append(char *text, size_t *used, const char *fmt,
                                                         va_list args)
{
    int bytes = vsnprintf(text + *used, XCCL_ERROR_TEXT_BYTES - *used, fmt, args);

    if (bytes < 0)
        return;
    *used += (size_t)bytes;
    if (*used >= XCCL_ERROR_TEXT_BYTES)
        *used = XCCL_ERROR_TEXT_BYTES - 1;
}

__attribute__((format(printf, 3, 4))) static void appendf(char *text, size_t *used, const char *fmt,
                                                          ...)
{
    va_list args;

    va_start(args, fmt);
    append(text, used, fmt, args);
    va_end(args);
}

__attribute__((format(printf, 4, 0))) static void compose(char *text, int err, const char *todo,
                                                          const char *fmt, va_list args)
{
    char reason[128];
    size_t used = 0;

    text[0] = 0;
    append(text, &used, fmt, args);
    if (err)
        appendf(text, &used, ": %s", strerror_r(err, reason, sizeof(reason)));
    if (!todo && err == EMFILE)
        todo = "raise ulimit -n; a rank has up to 16 descriptors while it joins";
    if (todo)
        appendf(text, &used, "; %s", todo);
}

/* What both ways of failing have in common. errno stays the caller's. */
__attribute__((format(printf, 4, 0))) static void keep(int loud, int err, const char *todo,
                                                       const char *fmt, va_list args)
{
    int saved_errno = errno;
    char text[XCCL_ERROR_TEXT_BYTES];

    compose(text, err, todo, fmt, args);
    if (loud)
        xccl_log(XCCL_LOG_ERROR, "%s", text);
    xccl_error_set_text(text);
    errno = saved_errno;
}

xcclResult_t xccl_fail(xcclResult_t rc, int err, const char *todo, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    keep(1, err, todo, fmt, args);
    va_end(args);
    return rc;
}

xcclResult_t xccl_fail_quietly(xcclResult_t rc, int err, const char *todo, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    keep(0, err, todo, fmt, args);
    va_end(args);
    return rc;
}

xcclResult_t xccl_error_tell(xcclResult_t rc)
{
    if (rc)
        xccl_log(XCCL_LOG_ERROR, "%s", error_text);
    return rc;
}

const char *xccl_error_text(void)
{
    return error_text;
}

void xccl_error_set_text(const char *text)
{
    size_t bytes = text ? strnlen(text, sizeof(error_text) - 1) : 0;

    /* The text may be the buffer itself or a part of it. */
    if (bytes)
        memmove(error_text, text, bytes);
    error_text[bytes] = 0;
    xccl_log_escape(error_text, sizeof(error_text));
}

const char *xccl_result_text(xcclResult_t rc)
{
    static const char *const texts[xcclNumResults] = {
        [xcclSuccess] = "success",
        [xcclUnhandledCudaError] = "a CUDA call failed",
        [xcclSystemError] = "an operating system call failed",
        [xcclInternalError] = "internal error",
        [xcclInvalidArgument] = "invalid argument",
        [xcclInvalidUsage] = "invalid usage",
        [xcclRemoteError] = "another rank or the network failed",
        [xcclInProgress] = "in progress",
        [xcclTimeout] = "a deadline passed",
    };

    if ((unsigned)rc >= xcclNumResults)
        return "unknown result code";
    return texts[rc];
}
