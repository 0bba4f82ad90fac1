/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining goes wrong: each cause gives one clear text on the ranks concerned, and nothing leaks.
 * Where one rank alone has the problem, the others are told which rank it is. Ranks are processes;
 * the harness looks for what they leave behind. */
#include "../collective/world.h"

#include <arpa/inet.h>
#include <unistd.h>

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

/* One rank cannot even read its settings; the others need not wait for it. */
static void bad_setting_of_one(int rank, int nranks, void *arg)
{
    double start = world_seconds();
    xcclComm_t comm = NULL;

    xt_setenv("XCCL_TIMEOUT_INIT_S", "20");
    if (rank == 1)
        xt_setenv("XCCL_TIMEOUT_S", "soon");
    expect(xcclCommInitRank(&comm, nranks, world_id(arg, rank, 0), rank), "XCCL_TIMEOUT_S");
    if (rank != 1)
        XT_CHECK_HAS(xcclGetLastError(NULL), "rank 1 ");
    XT_CHECK(world_seconds() - start < 8);
}

XT_TEST(rank_with_a_bad_setting_is_named_on_the_others)
{
    xt_mp_run(3, bad_setting_of_one, world_create());
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

/* A port that is free now, as text behind 127.0.0.1. */
static void choose_meeting(char text[32])
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof addr;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    XT_CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&addr, bytes) == 0);
    XT_CHECK(getsockname(fd, (struct sockaddr *)&addr, &bytes) == 0);
    close(fd);
    snprintf(text, 32, "127.0.0.1:%d", ntohs(addr.sin_port));
}

static void meet_by_key(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclUniqueId id;
    xcclComm_t comm = NULL;

    xt_set_error_source(world_error);
    xt_setenv("XCCL_COMM_ID", world->ids[0].internal);
    xt_setenv("XCCL_JOB_KEY", rank == 1 && world->param ? "another secret" : "the secret");
    xt_setenv("XCCL_TIMEOUT_INIT_S", world->param ? "2" : "10");
    XT_OK(xcclGetUniqueId(&id));
    if (!world->param) {
        XT_OK(xcclCommInitRank(&comm, nranks, id, rank));
        XT_OK(xcclCommDestroy(comm));
        return;
    }
    expect(xcclCommInitRank(&comm, nranks, id, rank),
           rank == 1 ? "refused the connection: its job key or communicator differs"
                     : "missing: ranks 1 of 2");
    XT_CHECK(comm == NULL);
}

static void run_meet_by_key(int wrong)
{
    struct world *world = world_create();

    world->param = wrong;
    choose_meeting(world->ids[0].internal);
    xt_mp_run(2, meet_by_key, world);
}

XT_TEST(ranks_meet_at_a_given_address_with_one_job_key)
{
    run_meet_by_key(0);
}

XT_TEST(rank_with_the_wrong_job_key_is_told_and_stays_outside)
{
    run_meet_by_key(1);
}
