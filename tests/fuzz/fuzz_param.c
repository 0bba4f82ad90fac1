/* SPDX-License-Identifier: BSD-3-Clause */
/* A settings file with anything in it. Every line that is handed on lies inside the text and within
 * the bounds that the header states.
 * Thread: one. */
#include "base/param.h"

#include <stdlib.h>

struct bounds {
    const char *begin, *end;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_part(const struct bounds *bounds, const char *part, size_t bytes)
{
    if (part < bounds->begin || part > bounds->end || bytes > (size_t)(bounds->end - part))
        abort();
}

static void take(void *user, const struct xccl_param_line *line)
{
    const struct bounds *bounds = user;

    check_part(bounds, line->name, line->name_bytes);
    check_part(bounds, line->value, line->value_bytes);
    if (line->number < 1 || line->value_bytes > XCCL_PARAM_VALUE_BYTES)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bounds bounds = {(const char *)data, (const char *)data + size};

    (void)xccl_param_parse_file("fuzz.conf", bounds.begin, size, take, &bounds);
    return 0;
}
