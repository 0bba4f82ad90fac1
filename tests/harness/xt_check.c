/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks, and the two ways a test ends early: as failed or as skipped. Both write the reason to the
 * report of this process and leave by _exit, so that they work in any thread and in any depth.
 * Threads: any. */
#include "xt_int.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern const char *xccl_error_text(void) __attribute__((weak));
extern uint64_t xccl_alloc_live(void) __attribute__((weak));

#define LONG_BYTES 600 /* of a text that does not leave enough room for what it lacks */

struct xt_self xt_self;

static const char *(*error_source)(void);
static uint64_t (*alloc_source)(void);
static atomic_flag ending = ATOMIC_FLAG_INIT;

void xt_set_error_source(const char *(*source)(void))
{
    error_source = source;
}

void xt_set_alloc_source(uint64_t (*source)(void))
{
    alloc_source = source;
}

const char *xt_error_source_text(void)
{
    if (error_source)
        return error_source();
    if (xccl_error_text)
        return xccl_error_text();
    return "";
}

uint64_t xt_live_blocks(void)
{
    if (alloc_source)
        return alloc_source();
    if (xccl_alloc_live)
        return xccl_alloc_live();
    return 0;
}

__attribute__((format(printf, 4, 0))) _Noreturn static void
end_early(enum xt_stage stage, const char *file, int line, const char *fmt, va_list args)
{
    struct xt_report *report = xt_self.report;
    const char *base = strrchr(file, '/');
    int used;

    /* Only the first thread that fails tells; the others wait here for the end of the process.
     * Relaxed: nothing but the flag itself is handed over. */
    while (atomic_flag_test_and_set_explicit(&ending, memory_order_relaxed))
        pause();
    base = base ? base + 1 : file;
    if (!report) {
        fprintf(stderr, "%s:%d: a check outside of a test failed\n", base, line);
        _exit(1);
    }
    used = snprintf(report->reason, sizeof(report->reason), "%s:%d: ", base, line);
    vsnprintf(report->reason + used, sizeof(report->reason) - (size_t)used, fmt, args);
    report->ended_ms = xt_now_ms();
    report->stage = stage;
    fflush(NULL);
    _exit(stage == XT_SKIPPED ? XT_EXIT_SKIP : 1);
}

void xt_fail_at(const char *file, int line, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    end_early(XT_FAILED, file, line, fmt, args);
}

void xt_skip_at(const char *file, int line, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    end_early(XT_SKIPPED, file, line, fmt, args);
}

void xt_allow_leaks(const char *reason)
{
    snprintf(xt_self.report->leaks_allowed, sizeof(xt_self.report->leaks_allowed), "%s", reason);
}

void xt_check_int_at(const char *file, int line, const char *what, long long got, long long want)
{
    const char *output;

    if (got == want)
        return;
    output = xt_last_output();
    xt_fail_at(file, line, "%s is %lld, want %lld%s%s", what, got, want,
               output ? "; the last program said: " : "", output ? xt_why(output) : "");
}

void xt_check_rc_at(const char *file, int line, const char *what, int got, int want)
{
    const char *text;

    if (got == want)
        return;
    text = got ? xt_error_source_text() : "";
    xt_fail_at(file, line, "%s returned %d, want %d%s%s", what, got, want, text[0] ? ": " : "",
               text);
}

void xt_check_text_at(const char *file, int line, const char *what, const char *got,
                      const char *want)
{
    if (!got || strcmp(got, want) != 0)
        xt_fail_at(file, line, "%s is \"%s\", want \"%s\"", what, got ? got : "(null)", want);
}

void xt_check_has_at(const char *file, int line, const char *what, const char *text,
                     const char *part)
{
    if (text && strstr(text, part))
        return;
    if (text && strlen(text) > LONG_BYTES)
        xt_fail_at(file, line, "%s lacks \"%s\": %s", what, part, xt_why(text));
    xt_fail_at(file, line, "%s is \"%s\", which lacks \"%s\"", what, text ? text : "(null)", part);
}

void xt_figure(const char *fmt, ...)
{
    const char *path = getenv("XT_FIGURES");
    FILE *file = path ? fopen(path, "ae") : NULL;
    va_list args;

    if (!file)
        return;
    va_start(args, fmt);
    vfprintf(file, fmt, args);
    va_end(args);
    fclose(file);
}
