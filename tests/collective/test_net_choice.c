/* SPDX-License-Identifier: BSD-3-Clause */
/* Which network plugin a communicator gets when its ranks have different lists: one that all have,
 * else one for each pair, else an error that says who lacks what. Ranks use the network although
 * they share a host. The plugins: our socket plugin under its own contract and under two of NCCL's,
 * which are three different wires. */
#include "world.h"

struct choice {
    struct world world;
    const char *lists[4]; /* by rank */
};

static struct choice *choice_create(const char *a, const char *b, const char *c, const char *d)
{
    struct choice *choice = mmap(NULL, sizeof *choice, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    XT_CHECK(choice != MAP_FAILED);
    xt_set_error_source(world_error);
    memcpy(choice->lists, (const char *[]){a, b, c, d}, sizeof choice->lists);
    return choice;
}

static void choose(const struct choice *choice, int rank)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_NET_PLUGIN", choice->lists[rank]);
}

static void sum(int rank, int nranks, void *arg)
{
    struct choice *choice = arg;
    xcclComm_t comm;

    choose(choice, rank);
    comm = world_join(&choice->world, rank, nranks);
    for (int round = 0; round < 5; round++) {
        struct world_case c = {.count = 40000, .round = round, .type = xcclFloat32};

        world_all_reduce(comm, rank, nranks, &c);
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(lists_in_different_orders_meet_in_what_all_have)
{
    xt_mp_run(4, sum,
              choice_create("socket,socket@v12", "socket@v12,socket", "nowhere,socket@v12",
                            "socket@v12"));
}

XT_TEST(each_pair_finds_a_plugin_when_none_is_common_to_all)
{
    xt_mp_run(3, sum,
              choice_create("socket,socket@v12", "socket,socket@v8", "socket@v12,socket@v8", NULL));
}

static void nothing_in_common(int rank, int nranks, void *arg)
{
    struct choice *choice = arg;
    xcclComm_t comm = NULL;

    choose(choice, rank);
    XT_CHECK_RC(xcclCommInitRank(&comm, nranks, world_id(&choice->world, rank, 0), rank),
                xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "have no network plugin in common");
    XT_CHECK(comm == NULL);
}

XT_TEST(ranks_without_a_common_plugin_all_say_so)
{
    xt_mp_run(3, nothing_in_common, choice_create("socket", "socket,socket@v9", "socket@v9", NULL));
}

/* The config's list is the communicator's own; the setting is the other one's. */
static void two_communicators(int rank, int nranks, void *arg)
{
    struct choice *choice = arg;
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    struct world_case c = {.count = 3000, .type = xcclInt32};
    xcclUniqueId ids[2];
    xcclComm_t comms[2];

    choose(choice, rank);
    config.netName = "socket@v11";
    for (int i = 0; i < 2; i++)
        ids[i] = world_id(&choice->world, rank, i);
    XT_OK(xcclCommInitRankScalable(&comms[0], nranks, rank, 1, &ids[0], &config));
    XT_OK(xcclCommInitRank(&comms[1], nranks, ids[1], rank));
    for (int i = 0; i < 4; i++)
        world_all_reduce(comms[i & 1], rank, nranks, &c);
    for (int i = 0; i < 2; i++)
        XT_OK(xcclCommDestroy(comms[i]));
}

XT_TEST(each_communicator_has_a_choice_of_its_own)
{
    xt_mp_run(2, two_communicators, choice_create("socket", "socket", NULL, NULL));
}

static void bad_list(int rank, int nranks, void *arg)
{
    struct choice *choice = arg;
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    xcclUniqueId id;
    xcclComm_t comm = NULL;

    choose(choice, rank);
    id = world_id(&choice->world, rank, 0);
    config.netName = rank == 1 ? "nowhere" : "socket";
    XT_CHECK_RC(xcclCommInitRankScalable(&comm, nranks, rank, 1, &id, &config),
                rank == 1 ? xcclSystemError : xcclRemoteError);
    XT_CHECK_HAS(xcclGetLastError(NULL), "libxccl-net-nowhere.so not found");
    if (rank != 1)
        XT_CHECK_HAS(xcclGetLastError(NULL), "rank 1 on host ");
}

XT_TEST(rank_without_a_usable_plugin_is_named_on_all)
{
    xt_mp_run(3, bad_list, choice_create("socket", "socket", "socket", NULL));
}
