/* SPDX-License-Identifier: BSD-3-Clause */
/* Which cores ranks may use: what one process sees, and what a communicator makes of the sets of
 * its ranks, as launchers bind them. The program holds the library's stages itself. One thread a
 * rank. */
#include "../collective/world.h"

#include <sched.h>

#include "base/os.h"
#include "comm/comm.h"

/* The first cores that this process may use; returns how many there are. */
static int list_cores(int cores_out[2])
{
    cpu_set_t set;
    int count = 0;

    XT_CHECK(sched_getaffinity(0, sizeof(set), &set) == 0);
    for (int i = 0; i < CPU_SETSIZE && count < 2; i++)
        if (CPU_ISSET(i, &set))
            cores_out[count++] = i;
    return count;
}

static void bind_to(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    XT_CHECK(sched_setaffinity(0, sizeof(set), &set) == 0);
}

XT_TEST(a_set_has_the_cores_of_the_process)
{
    uint64_t set[XCCL_CORE_WORDS];
    int cores[2];

    (void)list_cores(cores);
    xccl_os_core_set(set);
    XT_CHECK(xccl_os_cores() > 256 || xccl_os_core_count(set) == xccl_os_cores());
    bind_to(cores[0]);
    xccl_os_core_set(set);
    XT_CHECK_INT(xccl_os_core_count(set), 1);
    XT_CHECK(set[cores[0] / 64 % XCCL_CORE_WORDS] >> (cores[0] % 64) & 1);
    memset(set, 0xff, sizeof set);
    XT_CHECK_INT(xccl_os_core_count(set), 256);
}

/* Whoever waits in a crowd for one thread must leave it the cores. */
XT_TEST(a_crowd_that_waits_long_seldom_wakes_up)
{
    XT_CHECK_INT(xccl_wait_policy_for(2, 2).sleep_max_ns, 50000);
    XT_CHECK_INT(xccl_wait_policy_for(16, 2).sleep_max_ns, 50000);
    for (int ranks = 32; ranks <= 1 << 20; ranks *= 2) {
        struct xccl_wait_policy policy = xccl_wait_policy_for(ranks, 2);

        XT_CHECK(policy.sleep_ns <= policy.sleep_max_ns);
        XT_CHECK(ranks > 8192 || /* 80,000 wake up in a second, on two cores */
                 (uint64_t)ranks * XCCL_NS_PER_S / policy.sleep_max_ns <= 82000);
        XT_CHECK(policy.sleep_max_ns <= 100 * XCCL_NS_PER_MS); /* errors are seen in time */
    }
}

enum binding { TO_ONE_EACH, TO_THE_SAME, TO_ALL };

/* With one core each nobody waits for another's; with one for both a rank leaves it soon. */
static void bound(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    int is_crowded = world->param == TO_THE_SAME, cores[2], value = rank;
    xcclComm_t comm;

    (void)list_cores(cores);
    if (world->param != TO_ALL)
        bind_to(cores[world->param == TO_ONE_EACH ? rank : 0]);
    comm = world_join(world, rank, nranks);
    XT_CHECK_INT(comm->planner.is_crowded, is_crowded);
    XT_CHECK_INT(comm->policy.spins, xccl_wait_policy_for(2, is_crowded ? 1 : 2).spins);
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    XT_CHECK_INT(value, 1);
    XT_OK(xcclCommDestroy(comm));
}

static void run_bound(enum binding binding)
{
    struct world *world = world_create();
    int cores[2];

    if (list_cores(cores) < 2)
        XT_SKIP("this process may use one core only");
    world->param = binding;
    xt_mp_run(2, bound, world);
}

XT_TEST(ranks_with_a_core_each_are_no_crowd)
{
    run_bound(TO_ONE_EACH);
}

XT_TEST(ranks_with_one_core_for_both_are_a_crowd)
{
    run_bound(TO_THE_SAME);
}

XT_TEST(ranks_that_share_two_cores_are_no_crowd)
{
    run_bound(TO_ALL);
}
