/* SPDX-License-Identifier: BSD-3-Clause */
/* A tuner's table with anything in it: it is refused with a text, or all of its rows are within
 * bounds and can be looked up.
 * Thread: one. */
#include "tune_table.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_row(const struct tune_row *row)
{
    if (!row->collective || row->bytes.low > row->bytes.high || row->ranks.low > row->ranks.high ||
        row->ranks.high > INT32_MAX || row->nodes.high > INT32_MAX || row->param < 0 ||
        row->lanes < 0 || strnlen(row->algorithm, TUNE_NAME_BYTES) == TUNE_NAME_BYTES)
        abort();
}

static void look_up(const struct tune_table *table, const struct tune_row *row)
{
    const xcclTunerComm_v1_t comm = {.size = sizeof comm,
                                     .nranks = (int32_t)row->ranks.high,
                                     .nnodes = (int32_t)row->nodes.low,
                                     .allLocal = row->links != TUNE_LINKS_NET,
                                     .cores = row->links == TUNE_LINKS_CROWDED};
    const xcclTunerQuery_v1_t query = {
        .size = sizeof query, .collective = row->collective, .bytes = row->bytes.high};
    xcclTunerCandidate_v1_t one = {.size = sizeof one,
                                   .algorithm = row->algorithm,
                                   .protocol = row->protocol ? row->protocol : "slices",
                                   .cost = 1,
                                   .paramMax = 64,
                                   .tileBytes = 4096,
                                   .tileMin = 64,
                                   .tileMax = 4096,
                                   .tileAlign = 32};
    xcclTunerCandidate_v1_t *list[] = {&one};

    if (tune_table_choose(table, &comm, &query, list, 1) &&
        (one.cost != 0 || one.tileBytes < one.tileMin || one.tileBytes > one.tileMax ||
         one.tileBytes % one.tileAlign || one.param > one.paramMax))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tune_table table;
    char error[TUNE_ERROR_BYTES];

    memset(error, 'x', sizeof error);
    if (!tune_table_read((const char *)data, size, &table, error)) {
        if (!memchr(error, '\0', sizeof error) || strncmp(error, "line ", 5) != 0)
            abort();
        return 0;
    }
    if (table.count < 0 || table.count > TUNE_ROWS_MAX)
        abort();
    for (int i = 0; i < table.count; i++) {
        check_row(&table.rows[i]);
        look_up(&table, &table.rows[i]);
    }
    tune_table_free(&table);
    return 0;
}
