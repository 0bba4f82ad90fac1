/* SPDX-License-Identifier: BSD-3-Clause */
/* Values as JSON, for the files and outputs that programs read. What comes in may be hostile: the
 * name of a device is whatever a plugin says.
 *
 * Thread: any; one at a time a file. */
#ifndef XCCL_TOOLS_JSON_TEXT_H
#define XCCL_TOOLS_JSON_TEXT_H

#include <stdio.h>

/* A text as a JSON string. Bytes that are no UTF-8 come out as U+FFFD, so that the result always is
 * JSON. */
void xccl_json_text(FILE *file, const char *text);
/* A text as a JSON string, or null for NULL and "". */
void xccl_json_text_or_null(FILE *file, const char *text);
/* A number with so many digits after the point, or null for one that JSON has no word for. */
void xccl_json_number(FILE *file, double value, int digits);

#endif
