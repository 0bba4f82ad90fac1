/* SPDX-License-Identifier: BSD-3-Clause */
/* A settings file with anything in it. Every line that is handed on lies inside the text and within
 * the bounds that the header states; its value is tried on every setting, and what is accepted lies
 * in that setting's range.
 * Thread: one. */
#include "base/param_int.h"

#include <stdlib.h>
#include <string.h>

struct bounds {
    const char *begin, *end;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_part(const struct bounds *bounds, const char *part, size_t bytes)
{
    if (part < bounds->begin || part > bounds->end || bytes > (size_t)(bounds->end - part))
        abort();
}

static void try_value(enum xccl_param_id id, const char *text)
{
    struct xccl_param_info info;
    int64_t number = 0;

    if (!xccl_param_parse_value(id, text, &number))
        return;
    xccl_param_info(id, &info);
    if (info.type != XCCL_PARAM_STRING && info.type != XCCL_PARAM_ENUM &&
        (number < info.low || number > info.high))
        abort();
    if (info.type == XCCL_PARAM_ENUM && (number < 0 || (size_t)number > strlen(info.words)))
        abort();
    /* A number is digits and at most one letter. */
    if ((info.type == XCCL_PARAM_INT || info.type == XCCL_PARAM_BYTES) &&
        text[strspn(text, "+-0123456789KMGkmg")] != '\0')
        abort();
}

static void take(void *user, const struct xccl_param_line *line)
{
    const struct bounds *bounds = user;
    char value[XCCL_PARAM_VALUE_BYTES + 1];

    check_part(bounds, line->name, line->name_bytes);
    check_part(bounds, line->value, line->value_bytes);
    if (line->number < 1 || line->value_bytes > XCCL_PARAM_VALUE_BYTES)
        abort();
    memcpy(value, line->value, line->value_bytes);
    value[line->value_bytes] = '\0';
    for (int id = 0; id < XCCL_PARAM_COUNT; id++)
        try_value((enum xccl_param_id)id, value);
    if (line->number == 1)
        (void)xccl_param_nearest_name(line->name, line->name_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bounds bounds = {(const char *)data, (const char *)data + size};

    (void)xccl_param_parse_file("fuzz.conf", bounds.begin, size, take, &bounds);
    return 0;
}
