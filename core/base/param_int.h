/* SPDX-License-Identifier: BSD-3-Clause */
/* The pure parts behind a setting's name and value, for their fuzz target. No state is read or
 * kept.
 * Any thread. */
#ifndef XCCL_BASE_PARAM_INT_H
#define XCCL_BASE_PARAM_INT_H

#include "base/param.h"

/* 1 when text is a value of that setting, with its number; 0: *number_out means nothing. */
int xccl_param_parse_value(enum xccl_param_id id, const char *text, int64_t *number_out);
/* The known name that was probably meant, or NULL. */
const char *xccl_param_nearest_name(const char *name, size_t bytes);

#endif
