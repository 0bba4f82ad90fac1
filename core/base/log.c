/* SPDX-License-Identifier: BSD-3-Clause */
/* Log lines: composed on the stack, escaped, cut to 1 KiB and written with one write(2).
 *
 * Reading the settings may itself log (a warning about an unknown name). The settings are therefore
 * read before the lock is taken, so that the inner line may configure the log first; whoever comes
 * second finds it done. Until the settings are known a line waits for them, it is never lost.
 * What a line says may come from a peer: control characters and broken UTF-8 never reach the
 * target. Any thread; nothing here allocates or changes errno. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/os.h"
#include "base/param.h"

#define LINE_BYTES    1024
#define PATH_BYTES    1024
#define CUT_MARK      "..."
#define LEVEL_UNKNOWN (-1)

/* The state of the log. All fields are written before the level is, and never again: a child of
 * fork() that finds no level begins anew. */
static struct {
    struct xccl_lock lock;
    _Atomic int level;
    int fd;
    int json;
} log_state = {.lock = XCCL_LOCK(NULL), .level = LEVEL_UNKNOWN, .fd = STDERR_FILENO};

static void (*_Atomic log_sink)(enum xccl_log_level level, const char *line);
static _Thread_local int shown_rank = -1;

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

/* Bytes that end with a whole character and never run over. */
struct text {
    char *bytes;
    size_t used, room; /* room does not count the final 0 */
    int cut;
};

static void text_put(struct text *text, const char *bytes, size_t count)
{
    if (text->cut || text->room - text->used < count) {
        text->cut = 1;
        return;
    }
    memcpy(text->bytes + text->used, bytes, count);
    text->used += count;
    text->bytes[text->used] = 0;
}

__attribute__((format(printf, 2, 3))) static void text_putf(struct text *text, const char *fmt, ...)
{
    char part[320];
    va_list args;
    int bytes;

    va_start(args, fmt);
    bytes = vsnprintf(part, sizeof(part), fmt, args);
    va_end(args);
    if (bytes > 0)
        text_put(text, part, (size_t)bytes < sizeof(part) ? (size_t)bytes : sizeof(part) - 1);
}

/* Bytes of the UTF-8 character at the head of bytes, 0 when there is none: broken, overlong, a
 * surrogate, or beyond the last code point. */
static size_t utf8_bytes(const char *bytes, size_t count)
{
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t first = (uint8_t)bytes[0];
    uint32_t code;
    size_t length;

    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (count < length)
        return 0;
    code = first & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (((uint8_t)bytes[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | ((uint8_t)bytes[i] & 0x3f);
    }
    if (code < lowest[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 0;
    return length;
}

/* 1 for what may move a terminal's cursor or start a sequence: C0, DEL and C1. */
static int is_control(const char *bytes, size_t length)
{
    uint8_t first = (uint8_t)bytes[0];

    if (length == 1)
        return first < 0x20 || first == 0x7f;
    return length == 2 && first == 0xc2 && (uint8_t)bytes[1] < 0xa0;
}

/* One character that cannot be shown as it is; count bytes of it. */
static void text_escape(struct text *text, const char *bytes, size_t count, int json)
{
    static const char letters[] = "n\nt\tr\r";

    if (count == 1) {
        for (const char *letter = letters; *letter; letter += 2) {
            if (bytes[0] == letter[1]) {
                text_putf(text, "\\%c", letter[0]);
                return;
            }
        }
    }
    if (!json) {
        for (size_t i = 0; i < count; i++)
            text_putf(text, "\\x%02x", (uint8_t)bytes[i]);
    } else if ((uint8_t)bytes[0] < 0x80) {
        text_putf(text, "\\u%04x", (uint8_t)bytes[0]);
    } else if (count == 2) {
        text_putf(text, "\\u%04x", (uint8_t)bytes[1]); /* C1: the code equals the second byte */
    } else {
        text_putf(text, "\\ufffd");
    }
}

static void text_put_escaped(struct text *text, const char *bytes, size_t count, int json)
{
    size_t length;

    for (size_t i = 0; i < count && !text->cut; i += length) {
        length = utf8_bytes(bytes + i, count - i);
        if (length == 0) {
            length = 1;
            text_escape(text, bytes + i, 1, json);
        } else if (is_control(bytes + i, length)) {
            text_escape(text, bytes + i, length, json);
        } else if (json && (bytes[i] == '"' || bytes[i] == '\\')) {
            text_putf(text, "\\%c", bytes[i]);
        } else {
            text_put(text, bytes + i, length);
        }
    }
}

/* 1: nothing in it has to be escaped. */
static int is_plain(const char *bytes, size_t count)
{
    size_t length;

    for (size_t i = 0; i < count; i += length) {
        length = utf8_bytes(bytes + i, count - i);
        if (!length || is_control(bytes + i, length))
            return 0;
    }
    return 1;
}

void xccl_log_escape(char *text, size_t room)
{
    size_t limit = room - 1 < LINE_BYTES ? room - 1 : LINE_BYTES, count = strnlen(text, limit);
    char bytes[LINE_BYTES + 1];
    struct text out = {.bytes = bytes, .room = limit};

    text[count] = 0;
    if (is_plain(text, count))
        return;
    bytes[0] = 0;
    text_put_escaped(&out, text, count, 0);
    memcpy(text, bytes, out.used + 1);
}

/* Appends the message, leaving room for what must follow it. */
static void text_put_message(struct text *text, const char *line, size_t bytes, int json,
                             size_t tail_bytes)
{
    size_t room = text->room;

    text->room = room - tail_bytes - strlen(CUT_MARK);
    text_put_escaped(text, line, bytes, json);
    text->room = room;
    if (text->cut) {
        text->cut = 0;
        text_put(text, CUT_MARK, strlen(CUT_MARK));
    }
}

static void compose_text(struct text *out, enum xccl_log_level level, const char *line,
                         size_t bytes)
{
    text_putf(out, "xccl %.64s:%d ", xccl_os_hostname(), (int)getpid());
    if (shown_rank >= 0)
        text_putf(out, "rank %d ", shown_rank);
    text_putf(out, "%s: ", level_names[level]);
    text_put_message(out, line, bytes, 0, 1);
    text_put(out, "\n", 1);
}

static void compose_json(struct text *out, enum xccl_log_level level, const char *line,
                         size_t bytes)
{
    static const char tail[] = "\"}\n";
    const char *host = xccl_os_hostname();
    struct timespec now;

    /* Seconds since 1970: a calendar would read the time zone's file, and so allocate. */
    clock_gettime(CLOCK_REALTIME, &now);
    text_putf(out, "{\"time\":%lld.%06ld,\"host\":\"", (long long)now.tv_sec, now.tv_nsec / 1000);
    text_put_escaped(out, host, strnlen(host, 64), 1);
    text_putf(out, "\",\"pid\":%d,\"rank\":", (int)getpid());
    if (shown_rank >= 0)
        text_putf(out, "%d", shown_rank);
    else
        text_putf(out, "null");
    text_putf(out, ",\"level\":\"%s\",\"text\":\"", level_names[level]);
    text_put_message(out, line, bytes, 1, sizeof(tail) - 1);
    text_put(out, tail, sizeof(tail) - 1);
}

#define WRITE_WAIT_MS 100

/* A signal may interrupt a write to a pipe; a target that takes only a part gets only a part. A
 * pipe that nobody reads loses the line: the service thread logs too, and must not stop for it. */
static void write_line(int fd, const char *bytes, size_t count)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};

    if (poll(&wait, 1, WRITE_WAIT_MS) == 0)
        return;
    for (int tries = 0; tries < 8; tries++) {
        if (write(fd, bytes, count) >= 0 || errno != EINTR)
            return;
    }
}

/* Puts %h and %p into the file name; 0 when the result is too long. */
static int expand_path(const char *pattern, char path_out[PATH_BYTES])
{
    struct text path = {.bytes = path_out, .room = PATH_BYTES - 1};

    path_out[0] = 0;
    for (const char *at = pattern; *at; at++) {
        if (at[0] == '%' && at[1] == 'h')
            text_putf(&path, "%s", xccl_os_hostname());
        else if (at[0] == '%' && at[1] == 'p')
            text_putf(&path, "%d", (int)getpid());
        else
            text_put(&path, at, 1);
        if (at[0] == '%' && (at[1] == 'h' || at[1] == 'p' || at[1] == '%'))
            at++;
    }
    return !path.cut;
}

/* Opens the log's file; standard error when there is none or it cannot be had. */
static int open_target(const char *pattern)
{
    char path[PATH_BYTES], message[PATH_BYTES + 128];
    int fd = -1;

    if (!pattern[0])
        return STDERR_FILENO;
    /* Without waiting for the reader of a named pipe; afterwards writes wait as on standard error.
     */
    if (expand_path(pattern, path))
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    else
        errno = ENAMETOOLONG;
    if (fd < 0) {
        struct text out = {.bytes = (char[LINE_BYTES + 1]){0}, .room = LINE_BYTES};

        snprintf(message, sizeof(message),
                 "cannot open the log file %.900s: %s; set XCCL_DEBUG_FILE"
                 " to a file that can be written, or unset it",
                 pattern, strerrordesc_np(errno));
        compose_text(&out, XCCL_LOG_WARN, message, strlen(message));
        write_line(STDERR_FILENO, out.bytes, out.used);
        return STDERR_FILENO;
    }
    fcntl(fd, F_SETFL, O_APPEND);
    return fd;
}

/* Reads the settings at the first line; the level in force. */
static int log_level(void)
{
    /* Acquire: the target was written before the level. Pairs with the release store below. */
    int level = atomic_load_explicit(&log_state.level, memory_order_acquire);
    int wanted_level, json;
    const char *pattern;

    if (level != LEVEL_UNKNOWN)
        return level;
    wanted_level = (int)xccl_param_int(XCCL_P_DEBUG);
    json = xccl_param_int(XCCL_P_DEBUG_FORMAT) == 1;
    pattern = xccl_param_string(XCCL_P_DEBUG_FILE);
    xccl_lock_take(&log_state.lock);
    level = atomic_load_explicit(&log_state.level, memory_order_relaxed);
    if (level == LEVEL_UNKNOWN) {
        level = wanted_level;
        log_state.json = json;
        log_state.fd = open_target(pattern);
        /* Release: pairs with the acquire above. */
        atomic_store_explicit(&log_state.level, level, memory_order_release);
    }
    xccl_lock_give(&log_state.lock);
    return level;
}

int xccl_log_on(enum xccl_log_level level)
{
    int saved_errno = errno;
    int on = (int)level <= log_level();

    errno = saved_errno;
    return on;
}

void xccl_log(enum xccl_log_level level, const char *fmt, ...)
{
    int saved_errno = errno;
    char line[LINE_BYTES + 1], bytes[LINE_BYTES + 1];
    struct text out = {.bytes = bytes, .room = LINE_BYTES};
    struct text plain = {.bytes = line, .room = LINE_BYTES};
    char message[LINE_BYTES + 8];
    void (*sink)(enum xccl_log_level, const char *);
    va_list args;
    int count;

    if ((int)level > log_level())
        goto out_errno;
    errno = saved_errno; /* for %m */
    va_start(args, fmt);
    count = vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    if (count < 0)
        goto out_errno;
    if ((size_t)count >= sizeof(message))
        count = sizeof(message) - 1;

    if (log_state.json)
        compose_json(&out, level, message, (size_t)count);
    else
        compose_text(&out, level, message, (size_t)count);
    write_line(log_state.fd, out.bytes, out.used);

    /* Acquire: what the sink needs was made before it was set. Pairs with xccl_log_set_sink. */
    sink = atomic_load_explicit(&log_sink, memory_order_acquire);
    if (sink) {
        line[0] = 0;
        text_put_message(&plain, message, (size_t)count, 0, 0);
        sink(level, line);
    }
out_errno:
    errno = saved_errno;
}

void xccl_log_set_rank(int rank)
{
    shown_rank = rank < 0 ? -1 : rank;
}

int xccl_log_rank(void)
{
    return shown_rank;
}

void xccl_log_set_sink(void (*sink)(enum xccl_log_level level, const char *line))
{
    /* Release: pairs with the acquire in xccl_log. */
    atomic_store_explicit(&log_sink, sink, memory_order_release);
}

void xccl_log_reset(void)
{
    xccl_lock_take(&log_state.lock);
    if (log_state.fd != STDERR_FILENO)
        close(log_state.fd);
    log_state.fd = STDERR_FILENO;
    log_state.json = 0;
    /* Release: as above; only tests come here, while no other thread logs. */
    atomic_store_explicit(&log_state.level, LEVEL_UNKNOWN, memory_order_release);
    xccl_lock_give(&log_state.lock);
}
