/* SPDX-License-Identifier: BSD-3-Clause */
/* Which plugin a communicator uses. Ranks compare by the text of the wire id alone, and the order
 * is always that of the lower rank, so that both sides of every question get the same answer. Pure.
 * Thread: any. */
#include "plugin/net_choose.h"

#include <string.h>

int xccl_net_row_find(const struct xccl_net_row *row, const char *wire_id)
{
    for (int i = 0; i < row->count; i++) {
        if (strcmp(row->wire_id[i], wire_id) == 0)
            return i;
    }
    return -1;
}

static int all_have(const struct xccl_net_row *rows, int nranks, const char *wire_id)
{
    for (int rank = 0; rank < nranks; rank++) {
        if (rows[rank].needs && xccl_net_row_find(&rows[rank], wire_id) < 0)
            return 0;
    }
    return 1;
}

const char *xccl_net_choose(const struct xccl_net_row *rows, int nranks)
{
    int first = 0;

    while (first < nranks && !rows[first].needs)
        first++;
    for (int i = 0; first < nranks && i < rows[first].count; i++) {
        if (all_have(rows, nranks, rows[first].wire_id[i]))
            return rows[first].wire_id[i];
    }
    return NULL;
}

const char *xccl_net_choose_pair(const struct xccl_net_row *rows, int a, int b)
{
    const struct xccl_net_row *low = &rows[a < b ? a : b], *high = &rows[a < b ? b : a];

    for (int i = 0; i < low->count; i++) {
        if (xccl_net_row_find(high, low->wire_id[i]) >= 0)
            return low->wire_id[i];
    }
    return NULL;
}

int xccl_net_builds_differ(const struct xccl_net_row *rows, int nranks, const char *wire_id,
                           int *a_out, int *b_out)
{
    uint64_t build = 0;

    for (int rank = 0; rank < nranks; rank++) {
        int at = rows[rank].needs ? xccl_net_row_find(&rows[rank], wire_id) : -1;

        if (at < 0 || !rows[rank].build[at] || rows[rank].build[at] == build)
            continue;
        if (build) {
            *b_out = rank;
            return 1;
        }
        build = rows[rank].build[at];
        *a_out = rank;
    }
    return 0;
}
