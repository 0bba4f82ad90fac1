/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums of floats between two hosts of three ranks each, placed in blocks, in turns and anyhow, and
 * their last bits. By default all ranks get the same ones, in each repeated call too, while another
 * placement may have others. With XCCL_DETERMINISM=3 placements have the same bits. */
#include <stdlib.h>
#include <string.h>

#include "path_hosts.h"
#include "path_stage.h"
#include "xccl.h"

#define RANKS      6
#define PLACEMENTS 3
#define COUNT      ((size_t)60000) /* beyond what goes from all to all */
#define SIZES      2
#define CALLS      3 /* all-reduce, reduce-scatter, reduce */

static const char *const placements[PLACEMENTS] = {"000111", "010101", "101100"};

struct stage {
    struct path_hosts hosts;
    const char *placement, *determinism;
    xcclUniqueId id;
    _Atomic uint32_t made;
    uint64_t bits[RANKS][SIZES][CALLS];
};

static uint64_t hash_of(const float *data, size_t count)
{
    uint64_t hash = 14695981039346656037ull;

    for (size_t i = 0; i < count; i++) {
        uint32_t word;

        memcpy(&word, &data[i], sizeof word);
        hash = (hash ^ word) * 1099511628211ull;
    }
    return hash;
}

/* All, or this rank's part, of the result of each. Repeated, it has the same bits. */
static void sums_run(struct stage *stage, int rank, int size, const float *in, float *out,
                     xcclComm_t comm)
{
    size_t count = size ? COUNT : 600;

    for (int again = 0; again < 3; again++) {
        uint64_t bits[CALLS];

        XT_OK(xcclAllReduce(in, out, count, xcclFloat32, xcclSum, comm, NULL));
        bits[0] = hash_of(out, count);
        XT_OK(xcclReduceScatter(in, out, count / RANKS, xcclFloat32, xcclSum, comm, NULL));
        bits[1] = hash_of(out, count / RANKS);
        memset(out, 0, count * sizeof *out);
        XT_OK(xcclReduce(in, out, count, xcclFloat32, xcclSum, 4, comm, NULL));
        bits[2] = hash_of(out, count);
        for (int call = 0; call < CALLS && again; call++)
            XT_CHECK(stage->bits[rank][size][call] == bits[call]);
        memcpy(stage->bits[rank][size], bits, sizeof bits);
    }
}

static void rank_run(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;
    float *in = calloc(COUNT, sizeof *in), *out = calloc(COUNT, sizeof *out);
    uint64_t random = 77 + (uint64_t)rank; /* the same in every placement */
    xcclComm_t comm = NULL;

    XT_CHECK(in && out);
    for (size_t i = 0; i < COUNT; i++)
        in[i] = (float)(xt_random(&random) % 1000003) * 1e-3F - 300;
    path_hosts_enter(&stage->hosts, stage->placement[rank] - '0');
    xt_setenv("XCCL_NET_PLUGIN", "socket");
    xt_setenv("XCCL_TIMEOUT_S", "20");
    xt_setenv("XCCL_DETERMINISM", stage->determinism);
    if (rank == 0) {
        XT_OK(xcclGetUniqueId(&stage->id));
        path_word_set(&stage->made, 1);
    }
    path_word_await(&stage->made, 1);
    XT_OK(xcclCommInitRank(&comm, nranks, stage->id, rank));
    for (int size = 0; size < SIZES; size++)
        sums_run(stage, rank, size, in, out, comm);
    XT_OK(xcclCommDestroy(comm));
    free(in);
    free(out);
}

static const char *last_error(void)
{
    return xcclGetLastError(NULL);
}

static struct stage *stage_run(const char *placement, const char *determinism)
{
    static const struct path_rail rail = {.host = 1};
    struct stage *stage = path_shared(sizeof *stage);

    stage->placement = placement;
    stage->determinism = determinism;
    path_hosts_make(&stage->hosts, &rail, 1);
    xt_set_error_source(last_error);
    xt_mp_run(RANKS, rank_run, stage);
    path_hosts_drop(&stage->hosts);
    for (int size = 0; size < SIZES; size++)
        for (int rank = 1; rank < RANKS; rank++)
            XT_CHECK(stage->bits[rank][size][0] == stage->bits[0][size][0]);
    return stage;
}

XT_TEST_DEADLINE(all_ranks_have_the_same_bits_in_each_placement_and_call, 60)
{
    for (int i = 0; i < PLACEMENTS; i++)
        (void)stage_run(placements[i], "2");
}

XT_TEST_DEADLINE(placements_have_the_same_bits_where_these_do_not_depend_on_places, 60)
{
    const struct stage *first = stage_run(placements[0], "3");

    for (int i = 1; i < PLACEMENTS; i++) {
        const struct stage *other = stage_run(placements[i], "3");

        for (int rank = 0; rank < RANKS; rank++)
            for (int size = 0; size < SIZES; size++)
                for (int call = 0; call < CALLS; call++)
                    if (other->bits[rank][size][call] != first->bits[rank][size][call])
                        XT_FAIL("rank %d, size %d, call %d: placement %s has other bits than %s",
                                rank, size, call, placements[i], placements[0]);
    }
}
