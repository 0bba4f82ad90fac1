/* SPDX-License-Identifier: BSD-3-Clause */
/* One event, one line, one write(2). Level XCCL_DEBUG (error warn info debug trace, default warn),
 * form XCCL_DEBUG_FORMAT (text json), target XCCL_DEBUG_FILE (%h host, %p pid; default stderr).
 * error and warn ask a person to act; info grows with communicators, debug with objects, trace with
 * messages. Any thread; never allocates. Settings are read once, at the first line. */
#ifndef XCCL_BASE_LOG_H
#define XCCL_BASE_LOG_H

#include <stddef.h>

enum xccl_log_level {
    XCCL_LOG_ERROR = 0,
    XCCL_LOG_WARN = 1,
    XCCL_LOG_INFO = 2,
    XCCL_LOG_DEBUG = 3,
    XCCL_LOG_TRACE = 4,
};

/* 1 when lines of this level are written. */
int xccl_log_on(enum xccl_log_level level);

/* Text form: "xccl HOST:PID rank R warn: LINE" ("rank R" only when set). JSON form: one object
 * with time (seconds since 1970), host, pid, rank (null when not set), level, text. Control
 * characters are escaped, lines over 1 KiB are cut and end with "...". errno is kept. */
void xccl_log(enum xccl_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), cold));

/* Escapes a text in place as lines are, for texts of other ranks and of plugins: control characters
 * and broken UTF-8 become \n, \x1b and so on; twice is as good as once. room: of the buffer, at
 * most 1 KiB of which counts; what does not fit is cut behind a whole character. */
void xccl_log_escape(char *text, size_t room);

/* The rank shown on this thread's lines; -1 for none. */
void xccl_log_set_rank(int rank);
int xccl_log_rank(void);

/* Sends lines elsewhere as well (tests, plugins); NULL ends it. The line has neither prefix nor
 * line end. Only lines of a level that is on. */
void xccl_log_set_sink(void (*sink)(enum xccl_log_level level, const char *line));

/* Tests only: closes the target and reads the settings again at the next line. */
void xccl_log_reset(void);

#endif
