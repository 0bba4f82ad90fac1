/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes JSON strings and numbers. UTF-8 is checked by its own rules (RFC 3629): no overlong forms,
 * no surrogates, nothing above U+10FFFF.
 *
 * Thread: any; one at a time a file. */
#include "json_text.h"

#include <math.h>

static int is_tail(unsigned char byte)
{
    return (byte & 0xC0) == 0x80;
}

/* How many bytes the character at `at` has; 0 when it is no UTF-8. The text ends with 0, which is
 * no tail, so that nothing behind it is read. */
static int character_bytes(const unsigned char *at)
{
    if (at[0] < 0x80)
        return 1;
    if (at[0] < 0xC2 || at[0] > 0xF4 || !is_tail(at[1]))
        return 0;
    if (at[0] < 0xE0)
        return 2;
    if (!is_tail(at[2]))
        return 0;
    if (at[0] < 0xF0) {
        int overlong = at[0] == 0xE0 && at[1] < 0xA0;
        int surrogate = at[0] == 0xED && at[1] >= 0xA0;

        return overlong || surrogate ? 0 : 3;
    }
    if (!is_tail(at[3]) || (at[0] == 0xF0 && at[1] < 0x90) || (at[0] == 0xF4 && at[1] >= 0x90))
        return 0;
    return 4;
}

void xccl_json_text(FILE *file, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    fputc('"', file);
    while (*at) {
        int bytes = character_bytes(at);

        if (bytes == 0)
            fputs("\\ufffd", file);
        else if (*at < 0x20 || *at == 0x7f)
            fprintf(file, "\\u%04x", *at);
        else if (*at == '"' || *at == '\\')
            fprintf(file, "\\%c", *at);
        else
            fwrite(at, 1, (size_t)bytes, file);
        at += bytes ? bytes : 1;
    }
    fputc('"', file);
}

void xccl_json_text_or_null(FILE *file, const char *text)
{
    if (text && *text)
        xccl_json_text(file, text);
    else
        fputs("null", file);
}

void xccl_json_number(FILE *file, double value, int digits)
{
    if (isfinite(value))
        fprintf(file, "%.*f", digits, value);
    else
        fputs("null", file);
}
