/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL's tuners behind the calls of ours: candidates that have a counterpart are written into
 * NCCL's cost table, and what the plugin changed there comes back. The lowest entry counts as 0,
 * which forces it, since the plugin's other numbers are times of NCCL's model, and ours are not.
 * Thread: see tuner_library.h. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "plugin/plugin_file.h"
#include "plugin/tuner_library_int.h"
#include "plugin/tuner_plugin.h"

#define UNUSABLE (-1.0f)
#define PIPE_OPS 1 /* calls are planned one by one */

struct session {
    struct xccl_tuner *tuner;
    uint64_t nranks;
};

static const struct {
    const char *name;
    int func, blocks; /* blocks: our bytes are one rank's, NCCL's are those of all */
} colls[] = {{"broadcast", 0, 0},
             {"reduce", 1, 0},
             {"all_gather", 2, 1},
             {"reduce_scatter", 3, 1},
             {"all_reduce", 4, 0}};
#define COLLS (sizeof colls / sizeof colls[0])

/* A ring of NCCL's that broadcasts is our chain. */
static const struct {
    const char *name;
    enum nccl_algo algo;
} algos[] = {{"dtree", NCCL_ALGO_TREE},
             {"ring", NCCL_ALGO_RING},
             {"chain", NCCL_ALGO_RING},
             {"pat", NCCL_ALGO_PAT}};
#define ALGOS (sizeof algos / sizeof algos[0])

static const char *const protos[NCCL_PROTOS] = {
    [NCCL_PROTO_LL] = "lines", [NCCL_PROTO_LL128] = "small", [NCCL_PROTO_SIMPLE] = "slices"};

int tuner_nccl_is(const char *path, const struct xccl_file_id *id, struct net_reason *reason)
{
    struct net_reason why = {""};
    char symbol[32];

    for (int version = NCCL_TUNER_NEWEST; version >= NCCL_TUNER_OLDEST; version--) {
        const void *table;
        void *handle;

        snprintf(symbol, sizeof symbol, "ncclTunerPlugin_v%d", version);
        handle = plugin_file_load(path, id, "tuner", symbol, &table, &why);
        if (!handle)
            continue;
        net_file_close(handle);
        return 1;
    }
    /* If the file could not be loaded, the caller has the reason already. */
    if (strstr(why.text, "it has no symbol"))
        net_reason_set(
            reason,
            "it has no symbol xcclTunerPlugin_v1, and none from ncclTunerPlugin_v%d down "
            "to ncclTunerPlugin_v%d, so it is no tuner plugin",
            NCCL_TUNER_NEWEST, NCCL_TUNER_OLDEST);
    return 0;
}

int tuner_nccl_start(struct xccl_tuner_library *library, const xcclTunerComm_v1_t *comm,
                     void **ctx_out)
{
    const struct xccl_tuner_open_args args = {.comm_id = comm->commId,
                                              .nranks = (size_t)comm->nranks,
                                              .nnodes = (size_t)comm->nnodes,
                                              .warned = &library->warned};
    struct session *session = xccl_calloc(1, sizeof *session);

    if (!session)
        return 0;
    session->nranks = (uint64_t)comm->nranks;
    if (xccl_tuner_open(library->path, NULL, &args, &session->tuner)) {
        xccl_free(session);
        return 0;
    }
    *ctx_out = session;
    return 1;
}

static void session_end(void *ctx)
{
    struct session *session = ctx;

    xccl_tuner_close(session->tuner);
    xccl_free(session);
}

/* The place of a candidate in NCCL's table; 0: it has none there. */
static int place_of(const xcclTunerCandidate_v1_t *candidate, int *algo_out, int *proto_out)
{
    for (size_t i = 0; i < ALGOS; i++) {
        for (int proto = 0; proto < NCCL_PROTOS; proto++) {
            if (strcmp(candidate->algorithm, algos[i].name) != 0 ||
                strcmp(candidate->protocol, protos[proto]) != 0)
                continue;
            *algo_out = (int)algos[i].algo;
            *proto_out = proto;
            return 1;
        }
    }
    return 0;
}

static void clear(float table[NCCL_ALGOS][NCCL_PROTOS])
{
    for (int algo = 0; algo < NCCL_ALGOS; algo++)
        for (int proto = 0; proto < NCCL_PROTOS; proto++)
            table[algo][proto] = UNUSABLE;
}

static int is_changed(const float before[NCCL_ALGOS][NCCL_PROTOS],
                      const float after[NCCL_ALGOS][NCCL_PROTOS])
{
    for (int algo = 0; algo < NCCL_ALGOS; algo++)
        for (int proto = 0; proto < NCCL_PROTOS; proto++)
            if (before[algo][proto] != after[algo][proto])
                return 1;
    return 0;
}

/* The candidate whose entry is the lowest. */
static xcclTunerCandidate_v1_t *cheapest(xcclTunerCandidate_v1_t *const *candidates, int32_t count,
                                         const float table[NCCL_ALGOS][NCCL_PROTOS])
{
    xcclTunerCandidate_v1_t *best = NULL;
    float least = 0;

    for (int32_t i = 0; i < count; i++) {
        int algo, proto;

        if (!place_of(candidates[i], &algo, &proto) || !(table[algo][proto] >= 0) ||
            candidates[i]->cost < 0 || (best && table[algo][proto] >= least))
            continue;
        best = candidates[i];
        least = table[algo][proto];
    }
    return best;
}

static void set_tile(struct session *session, uint64_t bytes, int func, int channels,
                     xcclTunerCandidate_v1_t *best)
{
    int algo = 0, proto = 0;
    size_t chunk;

    (void)place_of(best, &algo, &proto);
    chunk = xccl_tuner_chunk(session->tuner, func, bytes, algo, proto, channels, best->tileMax);
    if (chunk < best->tileMin)
        chunk = best->tileMin;
    best->tileBytes = chunk - chunk % best->tileAlign;
}

static int32_t session_choose(void *ctx, const xcclTunerQuery_v1_t *query,
                              xcclTunerCandidate_v1_t *const *candidates, int32_t count)
{
    struct session *session = ctx;
    float table[NCCL_ALGOS][NCCL_PROTOS], before[NCCL_ALGOS][NCCL_PROTOS];
    xcclTunerCandidate_v1_t *best;
    uint64_t bytes = query->bytes;
    size_t coll = 0;
    int channels = 0;

    while (coll < COLLS && strcmp(query->collective, colls[coll].name) != 0)
        coll++;
    if (coll == COLLS)
        return 0;
    if (colls[coll].blocks)
        bytes *= session->nranks;
    clear(table);
    for (int32_t i = 0; i < count; i++) {
        int algo, proto;

        if (place_of(candidates[i], &algo, &proto) && candidates[i]->cost >= 0)
            table[algo][proto] = (float)candidates[i]->cost;
    }
    memcpy(before, table, sizeof before);
    if (!xccl_tuner_cost(session->tuner, colls[coll].func, bytes, PIPE_OPS, 0, table, &channels) ||
        !is_changed((const float(*)[NCCL_PROTOS])before, (const float(*)[NCCL_PROTOS])table))
        return 0;
    best = cheapest(candidates, count, (const float(*)[NCCL_PROTOS])table);
    if (!best)
        return 0;
    best->cost = 0;
    set_tile(session, bytes, colls[coll].func, channels, best);
    return 1;
}

const xcclTunerPlugin_v1_t tuner_nccl_calls = {.size = sizeof tuner_nccl_calls,
                                               .name = "nccl",
                                               .choose = session_choose,
                                               .finalize = session_end};
