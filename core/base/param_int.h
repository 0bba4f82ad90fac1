/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts that param.c, which reads and checks the settings, shares with param_page.c, which shows
 * them; and the pure parts behind a setting's name and value, for their fuzz target. No state is
 * read or kept here. Any thread. */
#ifndef XCCL_BASE_PARAM_INT_H
#define XCCL_BASE_PARAM_INT_H

#include "base/param.h"

struct xccl_param_row {
    const char *name;
    enum xccl_param_type type;
    const char *fallback;
    int64_t low, high;
    const char *unit, *words, *help;
    int is_guarded; /* 1: see param.def */
};
extern const struct xccl_param_row xccl_param_rows[XCCL_PARAM_COUNT];

/* The place of a text: file NULL is the environment. */
struct xccl_param_place {
    const char *file;
    int line;
};
#define XCCL_PARAM_WHERE_BYTES (XCCL_PARAM_VALUE_BYTES + 17)
/* "environment" or "FILE:LINE". */
const char *xccl_param_where(struct xccl_param_place place, char text_out[XCCL_PARAM_WHERE_BYTES]);

#define XCCL_PARAM_RANGE_BYTES 160
/* Describes the values that a row may have, for people. */
void xccl_param_range(const struct xccl_param_row *row, char text_out[XCCL_PARAM_RANGE_BYTES]);

/* 1 when text is a value of that setting, with its number; 0: *number_out means nothing. */
int xccl_param_parse_value(enum xccl_param_id id, const char *text, int64_t *number_out);
/* The known name that was probably meant, or NULL. */
const char *xccl_param_nearest_name(const char *name, size_t bytes);

#endif
