/* SPDX-License-Identifier: BSD-3-Clause */
/* On what machine figures were taken, and when, for JSON files.
 *
 * Thread: any; one at a time a file. */
#ifndef XCCL_TOOLS_JSON_MACHINE_H
#define XCCL_TOOLS_JSON_MACHINE_H

#include <stdio.h>

/* The members "date" and "machine" of an object, each with a comma behind. */
void xccl_json_machine(FILE *file);
/* The value of the first line "key: value" of a file of /proc, or "". */
void xccl_proc_value(const char *path, const char *key, char *value_out, size_t bytes);

#endif
