/* SPDX-License-Identifier: BSD-3-Clause */
/* A table of choices and its text form, which builtin.tune explains. Reading is one pass over text
 * that anybody may have written: what does not fit is refused with its line. Limits below.
 * Thread: any; a table that was read is constant. */
#ifndef PLUGINS_TUNER_TUNE_TABLE_H
#define PLUGINS_TUNER_TUNE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "xccl_tuner.h"

#define TUNE_TEXT_BYTES_MAX (1u << 20)
#define TUNE_ROWS_MAX       4096
#define TUNE_LINE_BYTES     256
#define TUNE_NAME_BYTES     32
#define TUNE_ERROR_BYTES    320

/* From lowest to greatest, both included. */
struct tune_range {
    uint64_t low, high;
};

enum tune_links { TUNE_LINKS_ANY, TUNE_LINKS_LOCAL, TUNE_LINKS_CROWDED, TUNE_LINKS_NET };

struct tune_row {
    const char *collective; /* constant */
    struct tune_range bytes, ranks, nodes;
    enum tune_links links;
    char algorithm[TUNE_NAME_BYTES];
    int32_t param; /* 0: the algorithm's own */
    const char *protocol; /* constant; NULL: by size */
    int32_t lanes; /* 0: the algorithm's own */
    uint64_t tile; /* 0: the largest */
};

struct tune_table {
    struct tune_row *rows;
    int count;
};

/* 1: table_out has to be freed. 0: error_out says which line, what, and what to do. */
int tune_table_read(const char *text, size_t bytes, struct tune_table *table_out,
                    char error_out[TUNE_ERROR_BYTES]);
void tune_table_free(struct tune_table *table); /* a zeroed one is fine */

/* Edits the candidate that the table says; 1, or 0 where it says nothing. */
int tune_table_choose(const struct tune_table *table, const xcclTunerComm_v1_t *comm,
                      const xcclTunerQuery_v1_t *query, xcclTunerCandidate_v1_t *const *candidates,
                      int32_t count);

#endif
