/* SPDX-License-Identifier: BSD-3-Clause */
/* Every setting of XCCL, in one table (param.def): name, type, range, unit, default, help. A value
 * comes from the environment (XCCL_NAME), else from the file that XCCL_CONF_FILE names, else from
 * ~/.xccl.conf, else from /etc/xccl.conf (lines NAME=VALUE, # comments), else it is the default. A
 * file that others can change is not read (base/trust.h), and a program with raised privileges
 * takes nothing that its user could use them for.
 * xccl_param_load() reads and checks all of them once a process; getters are plain loads
 * afterwards and load first when nobody did. Any thread. */
#ifndef XCCL_BASE_PARAM_H
#define XCCL_BASE_PARAM_H

#include <stddef.h>
#include <stdint.h>

#include "xccl_types.h"

enum xccl_param_type {
    XCCL_PARAM_BOOL, /* 0 1 no yes off on false true */
    XCCL_PARAM_INT, /* decimal, with lowest and greatest */
    XCCL_PARAM_BYTES, /* as INT, with K M G for powers of 1024 */
    XCCL_PARAM_STRING, /* anything up to 1,023 bytes */
    XCCL_PARAM_ENUM, /* one of the words in range, separated by '|' */
};

/* XCCL_P_<NAME> for every row of param.def. */
enum xccl_param_id {
#define XCCL_PARAM(name, type, fallback, low, high, unit, words, help) XCCL_P_##name,
#include "param.def"
#undef XCCL_PARAM
    XCCL_PARAM_COUNT
};

enum xccl_param_origin { XCCL_ORIGIN_DEFAULT, XCCL_ORIGIN_ENV, XCCL_ORIGIN_FILE };

struct xccl_param_info {
    const char *name; /* with the XCCL_ prefix */
    enum xccl_param_type type;
    const char *fallback; /* as text, "" for none */
    int64_t low, high; /* INT and BYTES */
    const char *unit, *words, *help;
    int is_guarded; /* 1: not taken from the user of a program with raised privileges */
    enum xccl_param_origin origin;
    const char *value; /* as text, as given; "(set)" in place of a secret */
    const char *file; /* where it came from when origin is FILE, else NULL */
    int line; /* in that file, from 1 */
};

/* Reads and checks everything, and logs once what is wrong: getters alone load in silence, so that
 * a plugin, which has a copy of this table, does not repeat it. A bad value is xcclInvalidArgument
 * with name, value, range and origin; an unknown XCCL_* variable gets a warning with the nearest
 * known name. The verdict is kept: later calls return it again. Not for use before main. */
xcclResult_t xccl_param_load(void);

int64_t xccl_param_int(enum xccl_param_id id); /* BOOL INT BYTES; ENUM: index of the word */
const char *xccl_param_string(enum xccl_param_id id); /* "" when not set */
/* 1 when it was set by the user. */
int xccl_param_is_set(enum xccl_param_id id);
void xccl_param_info(enum xccl_param_id id, struct xccl_param_info *info_out);

/* The settings that must be equal on all ranks (param_page.c), as "NAME=VALUE NAME=VALUE", and a
 * hash of their values. Texts are told as far as 80 bytes; secrets are never among them. */
void xccl_param_job_text(char *text_out, size_t bytes);
uint64_t xccl_param_job_hash(void);

/* Passes the settings whose name contains part (in any case; "": all) to line: a line with name,
 * value, origin and default, then indented lines with the values that are allowed and the help.
 * Secrets are not shown. Returns the number of settings. */
int xccl_param_print(const char *part, void (*line)(void *user, const char *text), void *user);
/* Passes the lines of the reference page settings.md, which has neither values nor origins. */
void xccl_param_page(void (*line)(void *user, const char *text), void *user);

#define XCCL_PARAM_FILE_BYTES  65536 /* greatest settings file */
#define XCCL_PARAM_LINE_BYTES  2048 /* greatest line in it, without its end */
#define XCCL_PARAM_VALUE_BYTES 1023 /* greatest value */

/* One NAME=VALUE of a settings file. Neither text ends with 0; both lie inside the file's text. */
struct xccl_param_line {
    const char *name, *value;
    size_t name_bytes, value_bytes;
    int number; /* from 1 */
};

/* Splits a settings file into its lines and hands each to take(). Spaces around name and value are
 * not part of them; lines that begin with # and empty lines are passed over. Pure: no state, no
 * files. A line that is anything else, or a text over the bounds above, is xcclInvalidArgument
 * with file and line (no log line, and never the line's contents: it may hold a secret); lines
 * before it were taken. */
xcclResult_t xccl_param_parse_file(const char *file, const char *text, size_t bytes,
                                   void (*take)(void *user, const struct xccl_param_line *line),
                                   void *user);

/* Tests only: forget everything, so that the next use reads the environment again. */
void xccl_param_reset(void);

#endif
