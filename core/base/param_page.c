/* SPDX-License-Identifier: BSD-3-Clause */
/* Shows the settings to people, in the lines of `xccl env` and the reference page settings.md, and
 * to other ranks, in a text and a hash of those that must be equal on all ranks of a job.
 * param.c finds the values and their places.
 *
 * Limits: a line that does not fit is cut. Thread: any. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/param_int.h"

#define GUARDED    "guarded: a program with raised privileges takes it from /etc/xccl.conf alone"
#define TOLD_BYTES 2048
#define CELL_BYTES 640
#define PAGE_WIDTH 88

/* One clause, in lines of at most PAGE_WIDTH; those after the first are indented further. */
static void tell_clause(const char *text, size_t length, void (*line)(void *user, const char *text),
                        void *user)
{
    char told[PAGE_WIDTH + 1];

    for (size_t indent = 4; length; indent = 6) {
        size_t room = PAGE_WIDTH - indent, fit;

        for (fit = length > room ? room : length; fit < length && fit && text[fit] != ' ';)
            fit--;
        fit = fit ? fit : room; /* a word longer than a line */
        snprintf(told, sizeof(told), "%*s%.*s", (int)indent, "", (int)fit, text);
        line(user, told);
        fit += fit < length && text[fit] == ' ';
        text += fit;
        length -= fit;
    }
}

/* The clauses of a help: the thing that is set, each value with its meaning, limits. */
static void tell_help(const char *help, void (*line)(void *user, const char *text), void *user)
{
    for (const char *end; *help; help = *end ? end + 2 : end) {
        end = strstr(help, "; ");
        if (!end)
            end = help + strlen(help);
        tell_clause(help, (size_t)(end - help), line, user);
    }
}

static void tell_row(enum xccl_param_id id, void (*line)(void *user, const char *text), void *user)
{
    struct xccl_param_info info;
    char told[TOLD_BYTES], range[XCCL_PARAM_RANGE_BYTES], where[XCCL_PARAM_WHERE_BYTES];

    xccl_param_info(id, &info);
    if (info.origin == XCCL_ORIGIN_DEFAULT)
        snprintf(told, sizeof(told), "%s=%s (default)", info.name, info.value);
    else
        snprintf(told, sizeof(told), "%s=%s (%.300s; default %s)", info.name, info.value,
                 xccl_param_where((struct xccl_param_place){.file = info.file, .line = info.line},
                                  where),
                 info.fallback[0] ? info.fallback : "empty");
    /* A value is one line, whatever the environment holds. */
    for (char *at = told; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    }
    line(user, told);
    if (xccl_param_rows[id].type != XCCL_PARAM_STRING) {
        xccl_param_range(&xccl_param_rows[id], range);
        snprintf(told, sizeof(told), "allowed: %s%s", range,
                 xccl_param_rows[id].type == XCCL_PARAM_BOOL
                     ? " (or no, off, false and yes, on, true)"
                     : "");
        tell_clause(told, strlen(told), line, user);
    }
    tell_help(info.help, line, user);
    if (info.is_guarded)
        tell_clause(GUARDED, strlen(GUARDED), line, user);
}

/* Copies a cell of a table; '|' would end it. */
static void escape_cell(const char *text, char cell_out[CELL_BYTES])
{
    size_t used = 0;

    for (; *text && used + 3 < CELL_BYTES; text++) {
        if (*text == '|')
            cell_out[used++] = '\\';
        cell_out[used++] = *text;
    }
    cell_out[used] = 0;
}

static void tell_table_row(const struct xccl_param_row *row,
                           void (*line)(void *user, const char *text), void *user)
{
    static const char *const type_names[] = {"yes or no", "number", "bytes", "text", "word"};
    char told[TOLD_BYTES], range[XCCL_PARAM_RANGE_BYTES];
    char range_cell[CELL_BYTES], help_cell[CELL_BYTES];
    const char *quote = row->fallback[0] ? "`" : "";

    xccl_param_range(row, range);
    escape_cell(row->type == XCCL_PARAM_STRING ? "" : range, range_cell);
    escape_cell(row->help, help_cell);
    snprintf(told, sizeof(told), "| `%s` | %s | %s | %s%s%s | %s%s |", row->name,
             type_names[row->type], range_cell, quote, row->fallback, quote, help_cell,
             row->is_guarded ? "; *guarded*" : "");
    line(user, told);
}

static const char *const page_head[] = {
    "# Settings",
    "",
    "Every setting of XCCL. `xccl env --markdown` prints this page; `xccl env` shows the values in",
    "force and the origin of each.",
    "",
    "XCCL looks up each setting separately and uses the first place that has it:",
    "",
    "1. the environment variable of that name;",
    "2. the file that `XCCL_CONF_FILE` names; or, if it names none, `~/.xccl.conf`, then",
    "   `/etc/xccl.conf`;",
    "3. the default.",
    "",
    "All settings are read and checked once per process. A value that is not allowed makes the",
    "creation of communicators fail, even if another place takes precedence. Settings of type text",
    "are checked when they are used. An unknown name that begins with `XCCL_` gives a warning with",
    "the most similar known name.",
    "",
    "A settings file must belong to root or to the user of the program. Nobody else may be able",
    "to write it, a folder on the way to it, or a symbolic link on the way. A file that breaks",
    "this rule gives a warning and is not read. `XCCL_CONF_FILE=/dev/null` means no file.",
    "",
    "Settings marked *guarded* name code to load, or files to read or write. A program that runs",
    "set-user-id, set-group-id or with file capabilities takes them from `/etc/xccl.conf` alone,",
    "does not read `~/.xccl.conf`, and says so in one warning.",
    "",
    "A file has one `NAME=VALUE` per line, with the full name (`XCCL_DEBUG=info`), at most 2,048",
    "bytes per line and 64 KiB in all. Spaces around name and value are ignored; quotes are part",
    "of the value. Lines that begin with `#` are comments. If a name occurs twice, the later line",
    "counts.",
    "",
    "Numbers are decimal. Bytes may end in `K`, `M` or `G` (powers of 1,024). Yes is `1`, `yes`,",
    "`on` or `true`; no is `0`, `no`, `off` or `false`. Words may be in upper or lower case.",
    "",
    "| Setting | Type | Range | Default | What it sets |",
    "|---|---|---|---|---|",
};

int xccl_param_print(const char *part, void (*line)(void *user, const char *text), void *user)
{
    int count = 0;

    for (int id = 0; id < XCCL_PARAM_COUNT; id++) {
        if (!strcasestr(xccl_param_rows[id].name, part))
            continue;
        tell_row((enum xccl_param_id)id, line, user);
        count++;
    }
    return count;
}

void xccl_param_page(void (*line)(void *user, const char *text), void *user)
{
    for (size_t i = 0; i < sizeof(page_head) / sizeof(page_head[0]); i++)
        line(user, page_head[i]);
    for (int id = 0; id < XCCL_PARAM_COUNT; id++)
        tell_table_row(&xccl_param_rows[id], line, user);
}

/* ---- of a job ---- */

/* A rank with another algorithm would wait for messages that nobody sends, and one without
 * heartbeats would be taken for dead. */
static const enum xccl_param_id job_wide[] = {XCCL_P_ALGO, XCCL_P_DETERMINISM, XCCL_P_HEARTBEAT_S,
                                              XCCL_P_NET_ENCRYPT, XCCL_P_PROTO};

void xccl_param_job_text(char *text_out, size_t bytes)
{
    size_t used = 0;

    text_out[0] = '\0';
    for (size_t i = 0; i < sizeof job_wide / sizeof job_wide[0]; i++) {
        struct xccl_param_info info;
        int written;

        xccl_param_info(job_wide[i], &info);
        written = snprintf(text_out + used, bytes - used, "%s%s=%.80s", used ? " " : "", info.name,
                           info.value[0] ? info.value : info.fallback);
        if (written < 0 || (size_t)written >= bytes - used)
            return;
        used += (size_t)written;
    }
}

/* Over values: spellings of a number are alike, those of a text are not. */
uint64_t xccl_param_job_hash(void)
{
    uint64_t hash = XCCL_HASH_START;

    for (size_t i = 0; i < sizeof job_wide / sizeof job_wide[0]; i++) {
        struct xccl_param_info info;
        uint8_t value[8];

        xccl_param_info(job_wide[i], &info);
        if (info.type == XCCL_PARAM_STRING) { /* with its end, so that the next one begins anew */
            const char *text = xccl_param_string(job_wide[i]);

            hash = xccl_hash_bytes(hash, text, strlen(text) + 1);
            continue;
        }
        for (int at = 0; at < 8; at++)
            value[at] = (uint8_t)((uint64_t)xccl_param_int(job_wide[i]) >> (8 * at));
        hash = xccl_hash_bytes(hash, value, sizeof value);
    }
    return hash;
}
