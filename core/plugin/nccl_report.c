/* SPDX-License-Identifier: BSD-3-Clause */
/* What plugins say. Errors of NCCL's contract are a number; the reason, when there is one, was
 * logged just before. So the warnings of a call are kept in its thread, in order, and become part
 * of the error's text: the first one is mostly the cause. The logger has no context argument:
 * nccl_enter tells this thread whose log its lines belong to. Lines from a plugin's own threads,
 * and from calls in which our contract's log is not to be called, go to XCCL's own log.
 *
 * Thread: any. Nothing here allocates or locks. */
#include "plugin/nccl_adapter_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

_Thread_local struct nccl_here nccl_here;

static enum xccl_log_level our_level(xcclNetLogLevel_t level)
{
    if (level == xcclNetLogError)
        return XCCL_LOG_ERROR;
    if (level == xcclNetLogWarn)
        return XCCL_LOG_WARN;
    return level == xcclNetLogInfo ? XCCL_LOG_INFO : XCCL_LOG_DEBUG;
}

static void say(xcclNetLogger_t log, xcclNetLogLevel_t level, const char *line)
{
    if (log)
        log(level, line);
    else
        xccl_log(our_level(level), "%s", line);
}

/* One line without control signs and without an end. */
static void tidy(char *text)
{
    size_t bytes = strlen(text);

    while (bytes > 0 && (text[bytes - 1] == '\n' || text[bytes - 1] == ' '))
        text[--bytes] = 0;
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = ' ';
    }
}

/* Behind those before it, as far as there is room; one that is repeated is kept once. */
static void keep_warning(const char *text)
{
    size_t used = strlen(nccl_here.warnings), room = sizeof(nccl_here.warnings) - used;

    if (used == 0 || !strstr(nccl_here.warnings, text))
        snprintf(nccl_here.warnings + used, room, "%s%.255s", used ? "; " : "", text);
}

void nccl_logger_take(int level, unsigned long flags, const char *file, int line, const char *fmt,
                      ...)
{
    xcclNetLogLevel_t ours = xcclNetLogDebug;
    xcclNetLogger_t log = nccl_here.log;
    char text[1024];
    va_list args;

    (void)flags, (void)file, (void)line;
    if (level == NCCL_LOG_WARN)
        ours = xcclNetLogWarn;
    else if (level == NCCL_LOG_INFO || level == NCCL_LOG_VERSION)
        ours = xcclNetLogInfo;
    else if (level == NCCL_LOG_ABORT)
        ours = xcclNetLogError;
    /* Plugins tell much on these levels, also for each message. */
    if (!fmt || level == NCCL_LOG_NONE || (ours >= xcclNetLogInfo && !xccl_log_on(our_level(ours))))
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    tidy(text);
    if (ours <= xcclNetLogWarn)
        keep_warning(text);
    say(log, ours, text);
}

void nccl_line(const struct nccl_instance *instance, xcclNetLogLevel_t level, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    say(instance->log, level, text);
}

/* xcclInProgress is no answer of this contract either. */
xcclResult_t nccl_result(int result)
{
    if (result <= xcclSuccess || result >= xcclNumResults || result == xcclInProgress)
        return xcclInternalError;
    return (xcclResult_t)result;
}

xcclResult_t nccl_failed(const struct nccl_instance *instance, const char *entry, int result)
{
    const char *why = nccl_here.warnings[0] ? nccl_here.warnings : "it does not say why";
    xcclResult_t rc = nccl_result(result);
    char number[32] = "";

    if ((int)rc != result)
        snprintf(number, sizeof(number), " (its result %d)", result);
    snprintf(nccl_here.text, sizeof(nccl_here.text), "%s %s: %s%s: %.440s", instance->name, entry,
             xccl_result_text(rc), number, why);
    return rc;
}

xcclResult_t nccl_refuse(const struct nccl_instance *instance, const char *entry, xcclResult_t rc,
                         const char *fmt, ...)
{
    size_t used;
    va_list args;

    snprintf(nccl_here.text, sizeof(nccl_here.text), "%s %s: ", instance->name, entry);
    used = strlen(nccl_here.text);
    va_start(args, fmt);
    vsnprintf(nccl_here.text + used, sizeof(nccl_here.text) - used, fmt, args);
    va_end(args);
    return rc;
}

const char *nccl_last_error(xcclNetContext_t ctx)
{
    (void)ctx;
    return nccl_here.text;
}
