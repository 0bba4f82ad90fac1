/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes that collectives move between two hosts of two ranks each, as the hosts' interfaces count
 * them in the busier direction: at most so many times the bytes that must cross there, with ranks
 * placed on the hosts in blocks and round-robin. Must cross: of an all-reduce half a vector in each
 * of two phases; of the others a host's share, or the whole vector to or from the root's host. */
#include <stdlib.h>

#include "path_hosts.h"
#include "path_stage.h"
#include "xccl.h"

#define RANKS  4
#define HOSTS  2
#define COUNT  ((size_t)1 << 20) /* floats of a whole vector */
#define VECTOR (4.0 * (double)COUNT)
#define CALLS  3
#define WARM   1
#define MOST                                                                                       \
    1.1 /* times what must cross: headers, acknowledgements, and what keeps ranks together */

typedef xcclResult_t call_fn(const float *in, float *out, xcclComm_t comm);

static xcclResult_t all_reduce(const float *in, float *out, xcclComm_t comm)
{
    return xcclAllReduce(in, out, COUNT, xcclFloat32, xcclSum, comm, NULL);
}

static xcclResult_t all_gather(const float *in, float *out, xcclComm_t comm)
{
    return xcclAllGather(in, out, COUNT / RANKS, xcclFloat32, comm, NULL);
}

static xcclResult_t reduce_scatter(const float *in, float *out, xcclComm_t comm)
{
    return xcclReduceScatter(in, out, COUNT / RANKS, xcclFloat32, xcclSum, comm, NULL);
}

static xcclResult_t broadcast(const float *in, float *out, xcclComm_t comm)
{
    return xcclBroadcast(in, out, COUNT, xcclFloat32, 0, comm, NULL);
}

static xcclResult_t reduce(const float *in, float *out, xcclComm_t comm)
{
    return xcclReduce(in, out, COUNT, xcclFloat32, xcclSum, 0, comm, NULL);
}

static xcclResult_t gather(const float *in, float *out, xcclComm_t comm)
{
    return xcclGather(in, out, COUNT / RANKS, xcclFloat32, 0, comm, NULL);
}

static xcclResult_t scatter(const float *in, float *out, xcclComm_t comm)
{
    return xcclScatter(in, out, COUNT / RANKS, xcclFloat32, 0, comm, NULL);
}

static xcclResult_t all_to_all(const float *in, float *out, xcclComm_t comm)
{
    return xcclAlltoAll(in, out, COUNT / RANKS, xcclFloat32, comm, NULL);
}

enum order { BLOCK, ROUND_ROBIN, ORDERS };

static const struct {
    const char *name;
    call_fn *call;
    double must; /* vectors */
} rows[] = {
    {"all_reduce", all_reduce, 1.0},
    {"all_gather", all_gather, 0.5},
    {"reduce_scatter", reduce_scatter, 0.5},
    {"broadcast", broadcast, 1.0},
    {"reduce", reduce, 1.0},
    {"gather", gather, 0.5},
    {"scatter", scatter, 0.5},
    {"all_to_all", all_to_all, 1.0},
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

struct stage {
    struct path_hosts hosts;
    enum order order;
    xcclUniqueId id;
    _Atomic uint32_t made;
};

static int host_of(const struct stage *stage, int rank)
{
    return stage->order == BLOCK ? rank / (RANKS / HOSTS) : rank % HOSTS;
}

/* All ranks' calls so far have moved all of their bytes. */
static void counters_now(xcclComm_t comm, struct path_counters *counters_out)
{
    XT_OK(xcclBarrier(comm, NULL));
    path_counters_read(0, counters_out);
    XT_OK(xcclBarrier(comm, NULL));
}

static void row_run(const struct stage *stage, size_t row, int rank, float *in, float *out,
                    xcclComm_t comm)
{
    double must = rows[row].must * VECTOR * CALLS, sent, got;
    struct path_counters before, after;

    for (int i = 0; i < WARM; i++)
        XT_OK(rows[row].call(in, out, comm));
    counters_now(comm, &before);
    for (int i = 0; i < CALLS; i++)
        XT_OK(rows[row].call(in, out, comm));
    counters_now(comm, &after);
    sent = (double)(after.send_bytes - before.send_bytes) / must;
    got = (double)(after.recv_bytes - before.recv_bytes) / must;
    if (host_of(stage, rank) == 0)
        path_figure("bytes: %s, %s, rank %d: %.3f sent and %.3f received of what must cross",
                    rows[row].name, stage->order == BLOCK ? "block" : "round-robin", rank, sent,
                    got);
    XT_CHECK(sent > 0.9 || got > 0.9);
    if (sent > MOST || got > MOST)
        XT_FAIL("%s moves %.2f and %.2f times what must cross, more than %.2f", rows[row].name,
                sent, got, MOST);
}

static const char *last_error(void)
{
    return xcclGetLastError(NULL);
}

static void rank_run(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;
    float *in = calloc(COUNT, sizeof(*in)), *out = calloc(COUNT, sizeof(*out));
    xcclComm_t comm = NULL;

    XT_CHECK(in && out);
    path_hosts_enter(&stage->hosts, host_of(stage, rank));
    xt_setenv("XCCL_NET_PLUGIN", "socket");
    xt_setenv("XCCL_TIMEOUT_S", "20");
    if (rank == 0) {
        XT_OK(xcclGetUniqueId(&stage->id));
        path_word_set(&stage->made, 1);
    }
    path_word_await(&stage->made, 1);
    XT_OK(xcclCommInitRank(&comm, nranks, stage->id, rank));
    for (size_t row = 0; row < ROWS; row++)
        row_run(stage, row, rank, in, out, comm);
    XT_OK(xcclCommDestroy(comm));
    free(in);
    free(out);
}

static void bytes_are_few(enum order order)
{
    static const struct path_rail rail = {.host = 1};
    struct stage *stage = path_shared(sizeof(*stage));

    stage->order = order;
    path_hosts_make(&stage->hosts, &rail, 1);
    xt_set_error_source(last_error);
    xt_mp_run(RANKS, rank_run, stage);
    path_hosts_drop(&stage->hosts);
}

XT_TEST(collectives_move_few_bytes_between_hosts_that_have_blocks_of_ranks)
{
    bytes_are_few(BLOCK);
}

XT_TEST(collectives_move_few_bytes_between_hosts_that_take_turns_with_ranks)
{
    bytes_are_few(ROUND_ROBIN);
}
