/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the values of options, and words the messages for wrong ones. Nothing here ends the
 * program: the caller returns the exit status.
 *
 * Thread: the program's main thread. */
#include "option.h"

#include <ctype.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/param.h"
#include "command.h"

#define NAME_MAX_BYTES 32 /* longer names are like no other */
#define OPTIONS_MAX    32

/* Reads digits from *text on; 0 when there is none or the number is greater than INT64_MAX. */
static int read_digits(const char **text, int64_t *value_out)
{
    int64_t value = 0;
    const char *at = *text;

    if (!isdigit((unsigned char)*at))
        return 0;
    for (; isdigit((unsigned char)*at); at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *at - '0', &value))
            return 0;
    }
    *text = at;
    *value_out = value;
    return 1;
}

int xccl_option_int(const char *command, const char *option, const char *text, int64_t low,
                    int64_t high, int64_t *value_out)
{
    const char *at = text;
    int negative = *at == '-';
    int64_t value = 0;

    at += negative;
    if (!read_digits(&at, &value) || *at)
        goto refuse;
    if (negative)
        value = -value;
    if (value < low || value > high)
        goto refuse;
    *value_out = value;
    return 1;
refuse:
    xccl_option_usage(command, "%s %s: must be a whole number from %lld to %lld", option, text,
                      (long long)low, (long long)high);
    return 0;
}

int xccl_option_bytes(const char *command, const char *option, const char *text,
                      uint64_t *bytes_out)
{
    static const char units[] = "KMG";
    const char *at = text;
    const char *unit = NULL;
    int64_t value = 0;

    if (!read_digits(&at, &value))
        goto refuse;
    if (*at) {
        unit = strchr(units, toupper((unsigned char)*at));
        at++;
    }
    if (*at || (at[-1] && !unit && !isdigit((unsigned char)at[-1])))
        goto refuse;
    for (const char *power = units; unit && power <= unit; power++) {
        if (__builtin_mul_overflow(value, 1024, &value))
            goto refuse;
    }
    if (value > INT64_C(1) << 40)
        goto refuse;
    *bytes_out = (uint64_t)value;
    return 1;
refuse:
    xccl_option_usage(command,
                      "%s %s: must be a number of bytes up to 1024G, such as 8, 64K or 16M", option,
                      text);
    return 0;
}

int xccl_option_seconds(const char *command, const char *option, const char *text, int high,
                        uint64_t *ms_out)
{
    const char *at = text;
    int64_t whole = 0;
    uint64_t ms = 0;
    uint64_t unit = 100;

    if (!read_digits(&at, &whole) || whole > high)
        goto refuse;
    if (*at == '.') {
        at++;
        for (; isdigit((unsigned char)*at) && unit; at++, unit /= 10)
            ms += unit * (uint64_t)(*at - '0');
    }
    ms += (uint64_t)whole * 1000;
    if (*at || ms > (uint64_t)high * 1000)
        goto refuse;
    *ms_out = ms;
    return 1;
refuse:
    xccl_option_usage(command,
                      "%s %s: must be seconds from 0 to %d, at most three digits after the "
                      "point",
                      option, text, high);
    return 0;
}

int xccl_option_usage(const char *command, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fprintf(stderr, "xccl %s: ", command);
    vfprintf(stderr, fmt, args);
    fprintf(stderr, " (see `xccl help %s`)\n", command);
    va_end(args);
    return XCCL_EXIT_USAGE;
}

int xccl_option_unknown(const char *command, int code, int argc, char **argv,
                        const struct option *known)
{
    const char *names[OPTIONS_MAX + 1] = {NULL};
    const char *given = optind > 0 && optind <= argc ? argv[optind - 1] : "";
    const char *near = NULL;

    if (code == ':')
        return xccl_option_usage(command, "%s needs a value", given);
    if (strncmp(given, "--", 2) != 0)
        return xccl_option_usage(command, "there is no option -%c", optopt ? optopt : '?');
    for (int i = 0; known[i].name && i < OPTIONS_MAX; i++)
        names[i] = known[i].name;
    near = xccl_option_nearest(given + 2, names);
    if (near)
        return xccl_option_usage(command, "there is no option %s; did you mean --%s?", given, near);
    return xccl_option_usage(command, "there is no option %s", given);
}

void xccl_option_tell_error(const char *title)
{
    if (*xccl_param_string(XCCL_P_DEBUG_FILE))
        fprintf(stderr, "%s: %s\n", title, xccl_error_text());
}

/* How many letters to insert, drop or change to make a of b; both are short. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_BYTES + 1];
    size_t b_bytes = strlen(b);

    for (size_t j = 0; j <= b_bytes; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < b_bytes; j++) {
            size_t best = diagonal + (a[i] != b[j]);

            diagonal = row[j + 1];
            if (row[j + 1] + 1 < best)
                best = row[j + 1] + 1;
            if (row[j] + 1 < best)
                best = row[j] + 1;
            row[j + 1] = best;
        }
    }
    return row[b_bytes];
}

const char *xccl_option_nearest(const char *text, const char *const *names)
{
    const char *nearest = NULL;
    size_t nearest_edits = 0;

    if (strlen(text) > NAME_MAX_BYTES)
        return NULL;
    for (; *names; names++) {
        size_t name_bytes = strlen(*names);
        size_t edits = 0;

        if (name_bytes > NAME_MAX_BYTES)
            continue;
        edits = edit_distance(text, *names);
        /* Up to a third of the name may differ, or two letters of a short one, but never all of it.
         */
        if (edits > 2 + name_bytes / 4 || edits >= name_bytes)
            continue;
        if (!nearest || edits < nearest_edits) {
            nearest = *names;
            nearest_edits = edits;
        }
    }
    return nearest;
}
