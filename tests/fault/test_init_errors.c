/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining goes wrong: each cause gives one clear text on the ranks concerned, and nothing leaks.
 * Where one rank alone has the problem, the others are told which rank it is. Ranks are processes;
 * the harness looks for what they leave behind. */
#include "../collective/world.h"

static void expect(xcclResult_t got, const char *part)
{
    XT_CHECK(got != xcclSuccess);
    XT_CHECK_HAS(xcclGetLastError(NULL), part);
}

static void missing_plugin(int rank, int nranks, void *arg)
{
    xcclComm_t comm = NULL;

    xt_setenv("XCCL_SHM_DISABLE", "1");
    if (rank == 1)
        xt_setenv("XCCL_NET_PLUGIN", "nowhere");
    expect(xcclCommInitRank(&comm, nranks, world_id(arg, rank, 0), rank), "nowhere");
    if (rank != 1)
        XT_CHECK_HAS(xcclGetLastError(NULL), "rank 1 on host");
    XT_CHECK(comm == NULL);
}

XT_TEST(missing_plugin_is_named_on_all_ranks)
{
    xt_mp_run(3, missing_plugin, world_create());
}

static void no_network_wanted(int rank, int nranks, void *arg)
{
    xcclComm_t comm = NULL;

    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_NET_PLUGIN", "none");
    expect(xcclCommInitRank(&comm, nranks, world_id(arg, rank, 0), rank), "XCCL_NET_PLUGIN");
}

XT_TEST(plugin_none_allows_one_host_only)
{
    xt_mp_run(2, no_network_wanted, world_create());
}

static void bad_setting(int rank, int nranks, void *arg)
{
    xcclUniqueId id;

    (void)rank, (void)nranks, (void)arg;
    xt_set_error_source(world_error);
    xt_setenv("XCCL_TIMEOUT_S", "soon");
    expect(xcclGetUniqueId(&id), "XCCL_TIMEOUT_S");
}

XT_TEST(bad_setting_is_refused_with_its_range)
{
    xt_mp_run(1, bad_setting, world_create());
}

static void different_algo(int rank, int nranks, void *arg)
{
    xcclComm_t comm = NULL;

    if (rank == 1)
        xt_setenv("XCCL_ALGO", "ring");
    expect(xcclCommInitRank(&comm, nranks, world_id(arg, rank, 0), rank), "XCCL_ALGO");
}

XT_TEST(setting_that_must_be_alike_is_named_when_it_differs)
{
    xt_mp_run(2, different_algo, world_create());
}

static void one_is_missing(int rank, int nranks, void *arg)
{
    xcclComm_t comm = NULL;

    xt_setenv("XCCL_TIMEOUT_INIT_S", "1");
    if (rank == 2)
        return;
    expect(xcclCommInitRank(&comm, nranks, world_id(arg, rank, 0), rank), "missing: ranks 2 of 3");
}

XT_TEST(missing_rank_is_named_when_the_time_is_over)
{
    xt_mp_run(3, one_is_missing, world_create());
}

static void different_sizes(int rank, int nranks, void *arg)
{
    xcclComm_t comm = NULL;

    xt_allow_leaks("the root stays until its deadline to tell late ranks");
    expect(xcclCommInitRank(&comm, nranks + rank, world_id(arg, rank, 0), rank), "ranks");
}

XT_TEST(ranks_that_disagree_on_their_number_are_told)
{
    xt_setenv("XCCL_TIMEOUT_INIT_S", "5");
    xt_mp_run(2, different_sizes, world_create());
}

static void same_rank_twice(int rank, int nranks, void *arg)
{
    xcclComm_t comm = NULL;

    xt_setenv("XCCL_TIMEOUT_INIT_S", "3");
    expect(xcclCommInitRank(&comm, nranks, world_id(arg, rank, 0), 0), "rank");
}

XT_TEST(one_rank_given_twice_is_an_error)
{
    xt_mp_run(2, same_rank_twice, world_create());
}
