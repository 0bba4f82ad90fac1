/* SPDX-License-Identifier: BSD-3-Clause */
/* All-reduce over the example plugin: what an author starts from carries a collective as it is.
 * Ranks of one host without shared memory stand for hosts of their own. */
#include "world.h"

static const size_t counts[] = {0, 1, 14, 57, 511, 2049, 16385, 70000, 300001};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))

static void all_sizes(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm;

    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_NET_PLUGIN", "loopback");
    comm = world_join(world, rank, nranks);
    for (int round = 0; round < 3 * (int)COUNTS; round++) {
        struct world_case c = {.count = counts[(size_t)round % COUNTS],
                               .type = round % 2 ? xcclFloat32 : xcclInt32,
                               .in_place = round % 3 == 0,
                               .offset = (size_t)(round % 5),
                               .round = round};

        world_all_reduce(comm, rank, nranks, &c);
    }
    XT_OK(xcclCommDestroy(comm));
}

static void run(int nranks)
{
    struct world *world = world_create();

    xt_mp_run(nranks, all_sizes, world);
}

XT_TEST_DEADLINE(two_ranks_add_up_over_the_example_plugin, 60)
{
    run(2);
}

XT_TEST_DEADLINE(four_ranks_add_up_over_the_example_plugin, 60)
{
    run(4);
}
