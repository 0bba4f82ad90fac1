/* SPDX-License-Identifier: BSD-3-Clause */
/* An all-reduce over network plugins of NCCL's contract, every version that the loader knows, also
 * two plugins of the same version in one process. The plugins are tests/fixtures/nccl_fixture.c,
 * each exporting one version only. Ranks use the network although they share a host. */
#include "world.h"

#define FIXTURE(version) XT_BUILD_DIR "/lib/fixtures/libnccl-net-fx-" version ".so"

static void sum_all(xcclComm_t comm, int rank, int nranks)
{
    static const size_t counts[] = {0, 1, 13, 2049, 70000, 300001};

    for (int round = 0; round < 12; round++) {
        struct world_case c = {.count = counts[round % 6],
                               .round = round,
                               .type = round & 1 ? xcclInt32 : xcclFloat32,
                               .in_place = round % 3 == 0};

        world_all_reduce(comm, rank, nranks, &c);
    }
}

/* Over the plugin that the world names. */
static xcclComm_t join_over(struct world *world, int rank, int nranks)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_NET_PLUGIN", world->text);
    return world_join(world, rank, nranks);
}

static void sum(int rank, int nranks, void *arg)
{
    xcclComm_t comm = join_over(arg, rank, nranks);

    sum_all(comm, rank, nranks);
    XT_OK(xcclCommDestroy(comm));
}

static void over(const char *plugin)
{
    struct world *world = world_create();

    world->text = plugin;
    xt_mp_run(3, sum, world);
}

XT_TEST(every_version_of_the_contract_carries_an_all_reduce)
{
    static const char *const plugins[] = {FIXTURE("v6"), FIXTURE("v7"),  FIXTURE("v8"),
                                          FIXTURE("v9"), FIXTURE("v10"), FIXTURE("v11"),
                                          FIXTURE("v12")};

    for (size_t i = 0; i < sizeof plugins / sizeof plugins[0]; i++)
        over(plugins[i]);
}

XT_TEST_DEADLINE(habits_of_plugins_that_nccl_allows_change_no_sum, 60)
{
    static const char *const habits[] = {"no-size", "posted-size", "fills,no-size", "fills"};
    static const char *const recvs[] = {"1", "8"};

    for (size_t i = 0; i < sizeof habits / sizeof habits[0]; i++) {
        for (size_t k = 0; k < sizeof recvs / sizeof recvs[0]; k++) {
            xt_setenv("FX_NCCL_LIKE", habits[i]);
            xt_setenv("FX_NCCL_RECVS", recvs[k]);
            over(FIXTURE("v6"));
            over(FIXTURE("v12"));
        }
    }
}

/* Each sends to the next rank, and receives from the one before. */
static void pass_on(int rank, int nranks, void *arg)
{
    xcclComm_t comm = join_over(arg, rank, nranks);

    for (int round = 0; round < 3; round++) {
        int32_t mine = 1000 * round + rank, other = -1;

        XT_OK(xcclGroupStart());
        XT_OK(xcclRecv(&other, 1, xcclInt32, (rank + nranks - 1) % nranks, comm, NULL));
        XT_OK(xcclSend(&mine, 1, xcclInt32, (rank + 1) % nranks, comm, NULL));
        XT_OK(xcclGroupEnd());
        XT_CHECK_INT(other, 1000 * round + (rank + nranks - 1) % nranks);
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(a_plugin_that_blocks_in_accept_is_asked_to_connect_first)
{
    for (int nranks = 2; nranks <= 4; nranks++) {
        struct world *world = world_create();

        xt_setenv("FX_NCCL_LIKE", "accept-blocks,no-size");
        world->text = FIXTURE("v6");
        xt_mp_run(nranks, pass_on, world);
    }
}

XT_TEST(faults_around_a_plugin_of_nccl_change_no_sum)
{
    over("fault:" FIXTURE("v6"));
    over("fault:" FIXTURE("v11"));
}

/* Two communicators side by side, each over its own plugin of version 8, and again after both have
 * been unloaded. */
static void two_of_one_version(int rank, int nranks, void *arg)
{
    static const char *const lists[2] = {FIXTURE("v8"), FIXTURE("v8b")};
    struct world *world = arg;

    xt_setenv("XCCL_SHM_DISABLE", "1");
    for (int again = 0; again < 2; again++) {
        xcclComm_t comms[2];

        for (int i = 0; i < 2; i++) {
            xcclUniqueId id = world_id(world, rank, 2 * again + i);
            xcclConfig_t config = XCCL_CONFIG_INITIALIZER;

            config.netName = lists[i];
            XT_OK(xcclCommInitRankScalable(&comms[i], nranks, rank, 1, &id, &config));
        }
        for (int i = 0; i < 4; i++)
            sum_all(comms[i & 1], rank, nranks);
        for (int i = 0; i < 2; i++)
            XT_OK(xcclCommDestroy(comms[i]));
    }
}

XT_TEST(two_plugins_of_one_version_serve_two_communicators_of_a_process)
{
    xt_mp_run(2, two_of_one_version, world_create());
}
