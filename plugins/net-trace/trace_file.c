/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines and where they go. Every write is of whole lines and at most what a pipe takes whole, to a
 * file opened for appending, so that threads and processes may share it without a lock. A target
 * that takes nothing for a tenth of a second loses lines, which are counted: tracing must not stop
 * the host program. Thread: a sink any, a buffer its owner's. */
#include "trace_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/os.h"

#define PATH_BYTES    1024
#define FLUSH_NS      (100 * XCCL_NS_PER_MS)
#define WRITE_WAIT_MS 100
#define WRITE_TRIES   8

/* ---- the file ---- */

/* Puts %h, %p and %r into the file name; 0 when the result is too long. */
static int path_expand(const char *pattern, int rank, char path_out[PATH_BYTES])
{
    size_t used = 0;

    path_out[0] = 0;
    for (const char *at = pattern; *at && used < PATH_BYTES; at++) {
        int known = at[0] == '%' && at[1] && strchr("hpr%", at[1]);
        size_t room = PATH_BYTES - used;
        int count;

        if (!known)
            count = snprintf(path_out + used, room, "%c", *at);
        else if (at[1] == 'h')
            count = snprintf(path_out + used, room, "%s", xccl_os_hostname());
        else if (at[1] == '%')
            count = snprintf(path_out + used, room, "%%");
        else
            count = snprintf(path_out + used, room, "%d", at[1] == 'p' ? (int)getpid() : rank);
        used += (size_t)(count > 0 ? count : 0);
        at += known;
    }
    return used < PATH_BYTES;
}

static uint64_t clock_read_ns(clockid_t clock)
{
    struct timespec now = {.tv_sec = 0};

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * XCCL_NS_PER_S + (uint64_t)now.tv_nsec;
}

xcclResult_t trace_sink_open(const char *pattern, int rank, struct trace_sink *sink_out)
{
    char path[PATH_BYTES];

    sink_out->fd = STDERR_FILENO;
    sink_out->is_file = 0;
    sink_out->epoch_ns = clock_read_ns(CLOCK_REALTIME) - xccl_clock_ns();
    if (!pattern[0])
        return xcclSuccess;
    if (!path_expand(pattern, rank, path))
        return xccl_fail_quietly(xcclInvalidArgument, ENAMETOOLONG,
                                 "set XCCL_NET_TRACE to a shorter name",
                                 "cannot open the trace file %.200s", pattern);
    /* Without waiting for the reader of a named pipe; later writes look for room first. */
    sink_out->fd = open(
        path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (sink_out->fd < 0)
        return xccl_fail_quietly(xcclSystemError, errno,
                                 "set XCCL_NET_TRACE to a writable file that is not a symbolic "
                                 "link, or to nothing for standard error",
                                 "cannot open the trace file %.200s", path);
    sink_out->is_file = 1;
    return xcclSuccess;
}

void trace_sink_close(struct trace_sink *sink)
{
    if (sink->is_file)
        close(sink->fd);
    sink->fd = -1;
}

/* A pipe whose reader has gone must not end the program: its signal is held back in this thread,
 * and taken away unless it had been waiting before. */
static ssize_t write_quietly(int fd, const char *text, size_t bytes)
{
    const struct timespec now = {0, 0};
    sigset_t pipe_only, before, waiting;
    ssize_t wrote = -1;

    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
    sigpending(&waiting);
    for (int tries = 0; wrote < 0 && tries < WRITE_TRIES; tries++) {
        wrote = write(fd, text, bytes);
        if (wrote < 0 && errno != EINTR)
            break;
    }
    if (wrote < 0 && errno == EPIPE && !sigismember(&waiting, SIGPIPE))
        (void)sigtimedwait(&pipe_only, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return wrote;
}

/* Whole lines, in one write. What finds no room in time is lost, and counted. */
static void sink_write(struct trace_sink *sink, const char *text, size_t bytes, uint32_t lines)
{
    struct pollfd room = {.fd = sink->fd, .events = POLLOUT};
    int stuck = atomic_load_explicit(&sink->stuck, memory_order_relaxed);
    ssize_t wrote = -1;

    if (poll(&room, 1, stuck ? 0 : WRITE_WAIT_MS) > 0 && !(room.revents & (POLLERR | POLLHUP)))
        wrote = write_quietly(sink->fd, text, bytes);
    atomic_store_explicit(&sink->stuck, wrote < 0, memory_order_relaxed);
    if (wrote < (ssize_t)bytes)
        atomic_fetch_add_explicit(&sink->lost, lines, memory_order_relaxed);
}

/* ---- buffers ---- */

void trace_buffer_start(struct trace_buffer *buffer, struct trace_sink *sink)
{
    buffer->sink = sink;
    buffer->flushed_ns = xccl_clock_ns();
}

void trace_buffer_flush(struct trace_buffer *buffer)
{
    if (buffer->used > 0)
        sink_write(buffer->sink, buffer->text, buffer->used, buffer->lines);
    buffer->used = 0;
    buffer->lines = 0;
}

void trace_buffer_age(struct trace_buffer *buffer, uint64_t now_ns)
{
    if (now_ns - buffer->flushed_ns < FLUSH_NS)
        return;
    buffer->flushed_ns = now_ns;
    trace_buffer_flush(buffer);
}

/* ---- lines ---- */

static int64_t thread_id(void)
{
    static _Thread_local int64_t id;

    if (id == 0)
        id = xccl_os_thread_id();
    return id;
}

/* Error texts come from other libraries: no control characters, so that a line stays a line. */
static void text_clean(char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            text[i] = '?';
    }
}

/* Composes the line, its end included, at most TRACE_LINE_BYTES. Returns its bytes. */
__attribute__((format(printf, 5, 0))) static size_t
line_compose(char *line, const struct trace_sink *sink, const struct trace_span *span,
             xcclResult_t rc, const char *fmt, va_list args)
{
    uint64_t end_ns = xccl_clock_ns(), at_ns = sink->epoch_ns + span->start_ns;
    size_t room = TRACE_LINE_BYTES - 1; /* one byte for the line end */
    size_t used = 0;

    for (int part = 0; part < 3 && used < room; part++) {
        int count;

        if (part == 0)
            count = snprintf(
                line, room, "%llu.%09llu %lld %s ", (unsigned long long)(at_ns / XCCL_NS_PER_S),
                (unsigned long long)(at_ns % XCCL_NS_PER_S), (long long)thread_id(), span->entry);
        else if (part == 1)
            count = vsnprintf(line + used, room - used, fmt, args);
        else if (rc == xcclSuccess)
            count = snprintf(line + used, room - used, " = ok %llu ns",
                             (unsigned long long)(end_ns - span->start_ns));
        else
            count = snprintf(line + used, room - used, " = error %d %llu ns: %s", (int)rc,
                             (unsigned long long)(end_ns - span->start_ns), xccl_error_text());
        used += (size_t)(count > 0 ? count : 0);
    }
    if (used > room - 1)
        used = room - 1;
    text_clean(line, used);
    line[used] = '\n';
    return used + 1;
}

xcclResult_t trace_end(struct trace_buffer *buffer, const struct trace_span *span, xcclResult_t rc,
                       const char *fmt, ...)
{
    va_list args;

    if (TRACE_BUFFER_BYTES - buffer->used < TRACE_LINE_BYTES)
        trace_buffer_flush(buffer);
    va_start(args, fmt);
    buffer->used += (uint32_t)line_compose(buffer->text + buffer->used, buffer->sink, span, rc, fmt,
                                           args);
    va_end(args);
    buffer->lines++;
    trace_buffer_age(buffer, span->start_ns);
    return rc;
}

xcclResult_t trace_end_now(struct trace_sink *sink, const struct trace_span *span, xcclResult_t rc,
                           const char *fmt, ...)
{
    char line[TRACE_LINE_BYTES];
    va_list args;
    size_t bytes;

    va_start(args, fmt);
    bytes = line_compose(line, sink, span, rc, fmt, args);
    va_end(args);
    sink_write(sink, line, bytes, 1);
    return rc;
}
