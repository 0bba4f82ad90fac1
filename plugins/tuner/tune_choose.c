/* SPDX-License-Identifier: BSD-3-Clause */
/* Looks a call up in a table. The first row that holds and can be done is forced; a row that asks
 * for what there is not here, or not any more, is passed over.
 * Thread: any. */
#include <string.h>

#include "tune_table.h"

static int holds(uint64_t value, const struct tune_range *range)
{
    return value >= range->low && value <= range->high;
}

/* Ranks share memory, and some have to wait until others leave a core to them. */
static int is_crowded(const xcclTunerComm_v1_t *comm)
{
    return comm->allLocal && comm->cores > 0 && comm->nranks > comm->cores;
}

static int links_hold(enum tune_links links, const xcclTunerComm_v1_t *comm)
{
    switch (links) {
    case TUNE_LINKS_LOCAL:
        return comm->allLocal != 0;
    case TUNE_LINKS_CROWDED:
        return is_crowded(comm);
    case TUNE_LINKS_NET:
        return !comm->allLocal;
    default:
        return 1;
    }
}

static int row_holds(const struct tune_row *row, const xcclTunerComm_v1_t *comm,
                     const xcclTunerQuery_v1_t *query)
{
    return links_hold(row->links, comm) && holds(query->bytes, &row->bytes) &&
           holds((uint64_t)comm->nranks, &row->ranks) &&
           holds((uint64_t)comm->nnodes, &row->nodes) &&
           strcmp(query->collective, row->collective) == 0;
}

/* Of several protocols the one that is usual, which costs least. NULL: it may not be used. */
static xcclTunerCandidate_v1_t *find(const struct tune_row *row,
                                     xcclTunerCandidate_v1_t *const *candidates, int32_t count)
{
    xcclTunerCandidate_v1_t *best = NULL;

    for (int32_t i = 0; i < count; i++) {
        xcclTunerCandidate_v1_t *one = candidates[i];

        if (one->cost < 0 || strcmp(one->algorithm, row->algorithm) != 0 ||
            (row->protocol && strcmp(one->protocol, row->protocol) != 0) ||
            (row->param && (row->param < one->paramMin || row->param > one->paramMax)))
            continue;
        if (!best || one->cost < best->cost)
            best = one;
    }
    return best;
}

static void edit(const struct tune_row *row, xcclTunerCandidate_v1_t *candidate)
{
    uint64_t tile = row->tile;

    candidate->cost = 0;
    if (row->param)
        candidate->param = row->param;
    if (row->lanes && candidate->lanesMax) {
        candidate->lanes = row->lanes < candidate->lanesMin   ? candidate->lanesMin
                           : row->lanes > candidate->lanesMax ? candidate->lanesMax
                                                              : row->lanes;
    }
    if (!tile || tile >= candidate->tileMax)
        return;
    tile -= tile % candidate->tileAlign;
    candidate->tileBytes = tile < candidate->tileMin ? candidate->tileMin : tile;
}

int tune_table_choose(const struct tune_table *table, const xcclTunerComm_v1_t *comm,
                      const xcclTunerQuery_v1_t *query, xcclTunerCandidate_v1_t *const *candidates,
                      int32_t count)
{
    for (int i = 0; i < table->count; i++) {
        const struct tune_row *row = &table->rows[i];
        xcclTunerCandidate_v1_t *found;

        if (!row_holds(row, comm, query))
            continue;
        found = find(row, candidates, count);
        if (!found)
            continue;
        edit(row, found);
        return 1;
    }
    return 0;
}
