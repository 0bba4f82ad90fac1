/* SPDX-License-Identifier: BSD-3-Clause */
/* Error texts and log lines: what they look like, and that nothing in them can break out of a line.
 * Lines are read back from a file in the test's own folder, as a person would read them.
 * Each test runs in a process of its own, one thread unless it says otherwise. */
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/os.h"
#include "base/param.h"
#include "log_text.h"
#include "xt.h"

static char sink_line[2048];
static int sink_count;

static void start(const char *level, const char *form)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
    snprintf(log_path, sizeof(log_path), "%s/log", xt_tmpdir());
    xt_setenv("XCCL_CONF_FILE", "/dev/null");
    xt_setenv("XCCL_DEBUG_FILE", log_path);
    xt_setenv("XCCL_DEBUG", level);
    xt_setenv("XCCL_DEBUG_FORMAT", form);
    xccl_param_reset();
}

static int line_count(const char *text)
{
    int count = 0;

    for (; *text; text++)
        count += *text == '\n';
    return count;
}

static void sink(enum xccl_log_level level, const char *line)
{
    (void)level;
    snprintf(sink_line, sizeof(sink_line), "%s", line);
    sink_count++;
}

XT_TEST(fail_tells_what_why_and_what_to_do_and_logs_one_line)
{
    start("warn", "text");
    XT_CHECK_INT(xccl_fail(xcclSystemError, EACCES, "ask for the right", "cannot open %s", "x"),
                 xcclSystemError);
    XT_CHECK_TEXT(xccl_error_text(), "cannot open x: Permission denied; ask for the right");
    XT_CHECK_HAS(log_text(), "error: cannot open x: Permission denied; ask for the right\n");
    XT_CHECK_INT(line_count(text_buffer), 1);
}

XT_TEST(fail_leaves_out_the_parts_that_are_not_given)
{
    start("warn", "text");
    xccl_fail_quietly(xcclInternalError, 0, NULL, "only %d", 1);
    XT_CHECK_TEXT(xccl_error_text(), "only 1");
    xccl_fail_quietly(xcclInternalError, ENOENT, NULL, "with errno");
    XT_CHECK_TEXT(xccl_error_text(), "with errno: No such file or directory");
    xccl_fail_quietly(xcclInternalError, 0, "do this", "with advice");
    XT_CHECK_TEXT(xccl_error_text(), "with advice; do this");
    XT_CHECK_TEXT(log_text(), "");
}

XT_TEST(fail_keeps_errno)
{
    start("warn", "text");
    errno = EXDEV;
    xccl_fail(xcclSystemError, EACCES, NULL, "a");
    XT_CHECK_INT(errno, EXDEV);
    xccl_fail_quietly(xcclSystemError, 99999, NULL, "a");
    XT_CHECK_INT(errno, EXDEV);
    log_text();
}

XT_TEST(error_text_is_cut_and_its_arguments_may_be_the_old_text)
{
    char longer[2 * XCCL_ERROR_TEXT_BYTES];

    xccl_error_set_text("inner");
    xccl_fail_quietly(xcclRemoteError, 0, NULL, "outer: %s", xccl_error_text());
    XT_CHECK_TEXT(xccl_error_text(), "outer: inner");
    xccl_error_set_text(xccl_error_text() + 7);
    XT_CHECK_TEXT(xccl_error_text(), "inner");
    xccl_error_set_text(xccl_error_text());
    XT_CHECK_TEXT(xccl_error_text(), "inner");
    memset(longer, 'a', sizeof(longer));
    longer[sizeof(longer) - 1] = 0;
    xccl_fail_quietly(xcclRemoteError, ENOENT, "advice", "%s", longer);
    XT_CHECK_INT(strlen(xccl_error_text()), XCCL_ERROR_TEXT_BYTES - 1);
    xccl_error_set_text("");
    xccl_error_set_text(longer);
    XT_CHECK_INT(strlen(xccl_error_text()), XCCL_ERROR_TEXT_BYTES - 1);
    xccl_error_set_text(NULL);
    XT_CHECK_TEXT(xccl_error_text(), "");
}

XT_TEST(nothing_in_an_error_text_moves_a_terminal)
{
    char text[] = "host \x1b[2J\r\n\xff \xc3\xa9 \xc2\x9b", small[12] = "a\n\n\n\n\n\n\n\n\n";

    start("error", "text");
    xccl_error_set_text(text);
    XT_CHECK_TEXT(xccl_error_text(), "host \\x1b[2J\\r\\n\\xff \xc3\xa9 \\xc2\\x9b");
    xccl_error_set_text(xccl_error_text()); /* once more changes nothing */
    XT_CHECK_TEXT(xccl_error_text(), "host \\x1b[2J\\r\\n\\xff \xc3\xa9 \\xc2\\x9b");
    XT_CHECK_RC(xccl_fail_quietly(xcclRemoteError, 0, NULL, "rank 3: %s", "a\x07"),
                xcclRemoteError);
    XT_CHECK_TEXT(xccl_error_text(), "rank 3: a\\x07");
    xccl_log_escape(small, sizeof small);
    XT_CHECK_TEXT(small, "a\\n\\n\\n\\n\\n"); /* cut behind a whole one */
}

XT_TEST(every_code_has_a_text_and_so_has_none)
{
    for (int rc = 0; rc < xcclNumResults; rc++)
        XT_CHECK(xccl_result_text((xcclResult_t)rc)[0]);
    XT_CHECK_TEXT(xccl_result_text(xcclNumResults), "unknown result code");
    XT_CHECK_TEXT(xccl_result_text((xcclResult_t)-1), "unknown result code");
}

static void fail_in_thread(int rank, int nranks, void *arg)
{
    char want[32];

    (void)nranks;
    (void)arg;
    xccl_log_set_rank(rank + 10);
    snprintf(want, sizeof(want), "thread %d", rank);
    for (int i = 0; i < 200; i++) {
        xccl_fail(xcclInternalError, 0, NULL, "thread %d", rank);
        XT_CHECK_TEXT(xccl_error_text(), want);
        XT_CHECK_INT(xccl_log_rank(), rank + 10);
    }
}

XT_TEST(each_thread_has_its_own_error_text_and_rank_and_lines_stay_whole)
{
    int counts[2] = {0};

    start("error", "text");
    xccl_error_set_text("main");
    xt_threads_run(2, fail_in_thread, NULL);
    XT_CHECK_TEXT(xccl_error_text(), "main");
    XT_CHECK_INT(xccl_log_rank(), -1);
    XT_CHECK_INT(line_count(log_text()), 400);
    for (char *line = strtok(text_buffer, "\n"); line; line = strtok(NULL, "\n")) {
        counts[0] += strstr(line, " rank 10 error: thread 0") != NULL;
        counts[1] += strstr(line, " rank 11 error: thread 1") != NULL;
    }
    XT_CHECK_INT(counts[0], 200);
    XT_CHECK_INT(counts[1], 200);
}

XT_TEST(text_line_has_host_process_rank_and_level)
{
    char want[256];

    start("info", "text");
    xccl_log(XCCL_LOG_WARN, "number %d", 5);
    xccl_log_set_rank(3);
    xccl_log(XCCL_LOG_INFO, "number %d", 6);
    snprintf(want, sizeof(want), "xccl %s:%d warn: number 5\nxccl %s:%d rank 3 info: number 6\n",
             xccl_os_hostname(), (int)getpid(), xccl_os_hostname(), (int)getpid());
    XT_CHECK_TEXT(log_text(), want);
}

XT_TEST(lines_above_the_level_are_not_written)
{
    start("info", "text");
    XT_CHECK(xccl_log_on(XCCL_LOG_ERROR));
    XT_CHECK(xccl_log_on(XCCL_LOG_INFO));
    XT_CHECK(!xccl_log_on(XCCL_LOG_DEBUG));
    xccl_log(XCCL_LOG_DEBUG, "no");
    xccl_log(XCCL_LOG_TRACE, "no");
    XT_CHECK_TEXT(log_text(), "");
}

XT_TEST(level_is_warn_when_nothing_is_set)
{
    start(NULL, NULL);
    XT_CHECK(xccl_log_on(XCCL_LOG_WARN));
    XT_CHECK(!xccl_log_on(XCCL_LOG_INFO));
    log_text();
}

XT_TEST(control_characters_never_leave_the_line)
{
    start("warn", "text");
    xccl_log(XCCL_LOG_WARN, "%s",
             "a\nxccl h:1 error: fake\r\t\033[2J\x7f\x01\xc2\x9b|\xc3\xa9|\xff");
    XT_CHECK_HAS(log_text(), "warn: a\\nxccl h:1 error: fake\\r\\t\\x1b[2J\\x7f\\x01\\xc2\\x9b|"
                             "\xc3\xa9|\\xff\n");
    XT_CHECK_INT(line_count(text_buffer), 1);
}

XT_TEST(broken_utf8_is_escaped)
{
    /* Overlong, a surrogate, beyond the last, a lone tail, a cut head. */
    start("warn", "text");
    xccl_log(XCCL_LOG_WARN, "%s",
             "\xc0\xaf \xe0\x80\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \x80 \xe2\x82");
    XT_CHECK_HAS(log_text(),
                 "\\xc0\\xaf \\xe0\\x80\\x80 \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80 \\x80 "
                 "\\xe2\\x82\n");
}

XT_TEST(long_line_is_cut_at_one_kibibyte_and_marked)
{
    char longer[4096];

    start("warn", "text");
    memset(longer, 'a', sizeof(longer));
    longer[sizeof(longer) - 1] = 0;
    xccl_log(XCCL_LOG_WARN, "%s", longer);
    XT_CHECK_INT(strlen(log_text()), 1024);
    XT_CHECK_HAS(text_buffer, "aaa...\n");
}

XT_TEST(json_line_is_one_object_with_escaped_text)
{
    char want[512];
    const char *rest;

    start("warn", "json");
    xccl_log_set_rank(2);
    xccl_log(XCCL_LOG_WARN, "%s", "say \"a\\b\"\n\033\x7f\xc2\x9b\xc3\xa9\xff");
    XT_CHECK(strncmp(log_text(), "{\"time\":", 8) == 0);
    rest = strchr(text_buffer, ',');
    XT_CHECK(rest != NULL);
    snprintf(want, sizeof(want),
             ",\"host\":\"%s\",\"pid\":%d,\"rank\":2,\"level\":\"warn\",\"text\":"
             "\"say \\\"a\\\\b\\\"\\n\\u001b\\u007f\\u009b\xc3\xa9\\ufffd\"}\n",
             xccl_os_hostname(), (int)getpid());
    XT_CHECK_TEXT(rest, want);
}

XT_TEST(json_line_stays_an_object_when_it_is_cut)
{
    char longer[4096];

    start("warn", "json");
    for (int skip = 0; skip < 8; skip++) {
        memset(longer, 'x', sizeof(longer));
        memset(longer + skip, '"', sizeof(longer) - 1 - skip);
        longer[sizeof(longer) - 1] = 0;
        xccl_log(XCCL_LOG_WARN, "%s", longer);
    }
    XT_CHECK_INT(line_count(log_text()), 8);
    XT_CHECK_HAS(text_buffer, "\"rank\":null");
    for (char *line = strtok(text_buffer, "\n"); line; line = strtok(NULL, "\n")) {
        size_t bytes = strlen(line);

        XT_CHECK(bytes < 1024 && bytes > 1015);
        XT_CHECK_TEXT(line + bytes - 7, "\\\"...\"}");
    }
}

XT_TEST(log_keeps_errno)
{
    start("warn", "text");
    errno = EXDEV;
    xccl_log(XCCL_LOG_WARN, "%m");
    XT_CHECK_INT(errno, EXDEV);
    xccl_log(XCCL_LOG_TRACE, "x");
    XT_CHECK_INT(errno, EXDEV);
    XT_CHECK(xccl_log_on(XCCL_LOG_WARN));
    XT_CHECK_INT(errno, EXDEV);
    XT_CHECK_HAS(log_text(), "warn: Invalid cross-device link\n");
}

XT_TEST(file_name_takes_host_and_process_and_the_file_is_private)
{
    char pattern[600], path[900];
    struct stat info;

    start("warn", "text");
    snprintf(pattern, sizeof(pattern), "%s-%%h-%%p-%%%%-%%x", log_path);
    snprintf(path, sizeof(path), "%s-%s-%d-%%-%%x", log_path, xccl_os_hostname(), (int)getpid());
    xt_setenv("XCCL_DEBUG_FILE", pattern);
    xccl_param_reset();
    umask(0);
    xccl_log(XCCL_LOG_WARN, "hello");
    XT_CHECK_INT(stat(path, &info), 0);
    XT_CHECK_INT(info.st_mode & 0777, 0600);
    xccl_log_reset();
}

XT_TEST(file_is_appended_to_and_not_inherited)
{
    int found = 0;

    start("warn", "text");
    for (int i = 0; i < 2; i++) {
        xccl_log(XCCL_LOG_WARN, "line %d", i);
        for (int fd = 3; fd < 16; fd++) {
            int flags = fcntl(fd, F_GETFL);

            if (flags >= 0 && (flags & O_APPEND) && (flags & O_ACCMODE) == O_WRONLY &&
                (fcntl(fd, F_GETFD) & FD_CLOEXEC) && !(flags & O_NONBLOCK))
                found++;
        }
        xccl_log_reset();
    }
    XT_CHECK_INT(found, 2);
    XT_CHECK_INT(line_count(log_text()), 2);
}

/* Runs body with standard error in a file; what was written to it. */
static const char *stderr_of(void (*body)(void))
{
    int kept = dup(STDERR_FILENO), fd = open(log_path, O_RDWR | O_CREAT | O_TRUNC, 0600);

    XT_CHECK(kept >= 0 && fd >= 0);
    dup2(fd, STDERR_FILENO);
    body();
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(fd);
    return log_text();
}

static void say_hello(void)
{
    errno = EXDEV;
    xccl_log(XCCL_LOG_WARN, "hello: %m");
    XT_CHECK_INT(errno, EXDEV);
}

XT_TEST(file_that_cannot_be_opened_gives_a_warning_and_standard_error)
{
    start("warn", "text");
    xt_setenv("XCCL_DEBUG_FILE", "/nowhere/log");
    xccl_param_reset();
    XT_CHECK_INT(line_count(stderr_of(say_hello)), 2);
    XT_CHECK_HAS(text_buffer, "warn: cannot open the log file /nowhere/log: No such file or "
                              "directory; set XCCL_DEBUG_FILE");
    XT_CHECK_HAS(text_buffer, "warn: hello: Invalid cross-device link\n");
}

XT_TEST(target_is_standard_error_when_no_file_is_set)
{
    start("warn", "text");
    xt_setenv("XCCL_DEBUG_FILE", NULL);
    xccl_param_reset();
    XT_CHECK_INT(line_count(stderr_of(say_hello)), 1);
    XT_CHECK_HAS(text_buffer, "warn: hello: Invalid cross-device link\n");
}

XT_TEST(named_pipe_without_reader_does_not_block_the_log)
{
    char path[600];

    start("warn", "text");
    snprintf(path, sizeof(path), "%s-pipe", log_path);
    XT_CHECK_INT(mkfifo(path, 0600), 0);
    xt_setenv("XCCL_DEBUG_FILE", path);
    xccl_param_reset();
    XT_CHECK_HAS(stderr_of(say_hello), "warn: cannot open the log file");
}

XT_TEST(sink_gets_lines_that_are_on_without_prefix_and_escaped)
{
    start("warn", "json");
    xccl_log_set_sink(sink);
    xccl_log(XCCL_LOG_INFO, "off");
    XT_CHECK_INT(sink_count, 0);
    xccl_log(XCCL_LOG_WARN, "say \"a\"\n");
    XT_CHECK_INT(sink_count, 1);
    XT_CHECK_TEXT(sink_line, "say \"a\"\\n");
    xccl_log_set_sink(NULL);
    xccl_log(XCCL_LOG_WARN, "later");
    XT_CHECK_INT(sink_count, 1);
    log_text();
}

XT_TEST(first_line_may_be_one_about_the_settings_themselves)
{
    start("warn", "json");
    xt_setenv("XCCL_DEBG", "info");
    xt_setenv("XCCL_RANK", "x");
    xccl_param_reset();
    XT_CHECK_RC(xccl_param_load(), xcclInvalidArgument);
    xccl_fail(xcclInternalError, 0, NULL, "first");
    XT_CHECK_TEXT(xccl_error_text(), "first");
    XT_CHECK_INT(line_count(log_text()), 3);
    XT_CHECK_HAS(text_buffer, "did you mean XCCL_DEBUG?");
    XT_CHECK_HAS(text_buffer, "XCCL_RANK=x is not");
    XT_CHECK_HAS(text_buffer, "\"text\":\"first\"");
}

static void log_many(int rank, int nranks, void *arg)
{
    (void)nranks;
    (void)arg;
    for (int i = 0; i < 100; i++)
        xccl_log(XCCL_LOG_WARN, "%d", rank);
    (void)xccl_param_load(); /* whoever comes first tells of the unknown name */
}

XT_TEST(two_threads_may_write_the_first_line_at_once)
{
    start("warn", "text");
    xt_setenv("XCCL_DEBG", "info");
    xccl_param_reset();
    xt_threads_run(2, log_many, NULL);
    XT_CHECK_INT(line_count(log_text()), 201);
}

/* Standard error is a pipe that is full, as when whoever started the program does not read on. */
XT_TEST(a_target_that_nobody_reads_loses_lines_and_stops_nobody)
{
    static char page[4096];
    int pipes[2], saved = dup(STDERR_FILENO);
    uint64_t begin_ns;

    XT_CHECK(saved >= 0 && pipe2(pipes, O_NONBLOCK | O_CLOEXEC) == 0);
    while (write(pipes[1], page, sizeof(page)) > 0)
        ;
    XT_CHECK(fcntl(pipes[1], F_SETFL, 0) == 0); /* from here on a write would wait */
    XT_CHECK(dup2(pipes[1], STDERR_FILENO) >= 0);
    xt_setenv("XCCL_CONF_FILE", "/dev/null");
    xccl_param_reset();
    begin_ns = xccl_clock_ns();
    xccl_log(XCCL_LOG_WARN, "nobody hears this");
    begin_ns = xccl_clock_ns() - begin_ns;
    XT_CHECK(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    close(pipes[0]);
    close(pipes[1]);
    XT_CHECK(begin_ns < 2 * XCCL_NS_PER_S);
}
