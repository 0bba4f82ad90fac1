/* SPDX-License-Identifier: BSD-3-Clause */
/* What every subcommand needs to read its arguments: strict numbers and the message for a wrong
 * one. A value that is not wholly understood is refused.
 *
 * Thread: the program's main thread. */
#ifndef XCCL_TOOLS_OPTION_H
#define XCCL_TOOLS_OPTION_H

#include <stdint.h>

struct option; /* getopt.h */

/* Decimal from low to high. option: its name for the message, as "-n". 1 when it was understood,
 * else 0 after a message that shows the range. */
int xccl_option_int(const char *command, const char *option, const char *text, int64_t low,
                    int64_t high, int64_t *value_out);

/* Bytes from 0 to 1 TiB, decimal, with K, M or G behind the number for powers of 1024. */
int xccl_option_bytes(const char *command, const char *option, const char *text,
                      uint64_t *bytes_out);

/* Seconds with a fraction, as "2.5", from 0 to high; whole milliseconds come out. */
int xccl_option_seconds(const char *command, const char *option, const char *text, int high,
                        uint64_t *ms_out);

/* Prints "xccl COMMAND: TEXT" and where the help is, to standard error; returns XCCL_EXIT_USAGE. */
int xccl_option_usage(const char *command, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), cold));

/* The message for what getopt_long did not take: code is '?' or ':' as it returned. */
int xccl_option_unknown(const char *command, int code, int argc, char **argv,
                        const struct option *known);

/* Prints "TITLE: TEXT" with this thread's error text (base/error.h), unless the log has shown the
 * text on standard error already. */
void xccl_option_tell_error(const char *title);

/* The name most like text of a list that ends with NULL, or NULL when none is near. */
const char *xccl_option_nearest(const char *text, const char *const *names);

#endif
