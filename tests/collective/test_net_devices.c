/* SPDX-License-Identifier: BSD-3-Clause */
/* Which device of its plugin a connection uses, told by the log lines of whole programs: `unix`
 * between ranks of one host that share no memory, an interface where that is switched off or the
 * ranks are in different network namespaces, several as one where XCCL_NET_RAILS asks for it. The
 * plugin with rails is tests/fixtures/net_manual.c. */
#include "two_hosts.h"
#include "world.h"

#define HELLO    XT_BUILD_DIR "/examples/hello"
#define XCCL     XT_BUILD_DIR "/bin/xccl"
#define MANUAL   XT_BUILD_DIR "/lib/fixtures/libxccl-net-fx-manual.so"
#define NCCL_V12 XT_BUILD_DIR "/lib/fixtures/libnccl-net-fx-v12.so"

static int occurrences(const char *text, const char *part)
{
    int found = 0;

    for (; (text = strstr(text, part)); text += strlen(part))
        found++;
    return found;
}

/* Four ranks over lo that add numbers; their log and output. */
static const char *add_up(void)
{
    const char *const argv[] = {XCCL, "run", "-n", "4", "--", HELLO, NULL};
    const char *output = NULL;

    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_DEBUG", "info");
    if (xt_run_program(argv, &output) != 0)
        XT_FAIL("the ranks failed: %s", xt_why(output));
    XT_CHECK_INT(occurrences(output, "of 4: sum = 6 10 14 18"), 4);
    return output;
}

XT_TEST(ranks_of_one_host_use_unix_sockets)
{
    const char *output = add_up();

    XT_CHECK_INT(occurrences(output, ": device unix for 3 ranks"), 4);
    XT_CHECK(!strstr(output, "device lo"));
}

XT_TEST(without_unix_sockets_they_use_an_interface)
{
    const char *output;

    xt_setenv("XCCL_SOCKET_UNIX", "0");
    output = add_up();
    XT_CHECK_INT(occurrences(output, ": device lo for 3 ranks"), 4);
    XT_CHECK(!strstr(output, "device unix"));
}

/* --- one rank is unlike the others --- */

static void sum_mixed(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm;

    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_SOCKET_UNIX", rank == 2 ? "0" : "1");
    comm = world_join(world, rank, nranks);
    for (int round = 0; round < 5; round++) {
        struct world_case c = {.count = 40000, .round = round, .type = xcclFloat32};

        world_all_reduce(comm, rank, nranks, &c);
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(rank_without_unix_sockets_is_reached_all_the_same)
{
    xt_mp_run(4, sum_mixed, world_create());
}

/* --- two namespaces of one host --- */

static const char *in_two_namespaces(void)
{
    const char *output = NULL;

    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_DEBUG", "info");
    XT_CHECK_INT(on_two_hosts("h=$1/examples/hello; on $a 0 $h & on $a 1 $h & on $b 2 $h & on $b 3 "
                              "$h & wait",
                              &output),
                 0);
    return output;
}

XT_TEST_DEADLINE(ranks_of_two_namespaces_use_an_interface_between_them, 60)
{
    const char *output = in_two_namespaces();

    XT_CHECK_INT(occurrences(output, "of 4: sum = 6 10 14 18"), 4);
    XT_CHECK_INT(occurrences(output, ": device unix for 1 rank"), 4);
    XT_CHECK_INT(occurrences(output, ": device va for 2 ranks"), 2);
    XT_CHECK_INT(occurrences(output, ": device vb for 2 ranks"), 2);
}

XT_TEST_DEADLINE(plugin_that_reaches_its_own_host_only_is_refused_between_two, 60)
{
    const char *output;

    xt_setenv("XCCL_NET_PLUGIN", MANUAL);
    xt_setenv("FX_MANUAL_ONLY_NEAR", "1");
    output = in_two_namespaces();
    XT_CHECK(!strstr(output, "sum ="));
    XT_CHECK_HAS(output, " on host "); /* which pair is found first is open */
    XT_CHECK_HAS(output, " cannot reach rank ");
    XT_CHECK_HAS(output, "work only inside its own host and network namespace; begin "
                         "XCCL_NET_PLUGIN with a plugin that reaches other hosts");
}

/* --- several devices as one --- */

static const char *add_up_on_rails(const char *plugin, const char *rails, const char *speeds)
{
    xt_setenv("XCCL_NET_PLUGIN", plugin);
    xt_setenv("XCCL_SOCKET_UNIX", "0"); /* the last device is lo too, and reaches all */
    xt_setenv("XCCL_NET_RAILS", rails);
    xt_setenv("FX_MANUAL_SPEEDS", speeds);
    return add_up();
}

XT_TEST(rails_are_used_as_one_device)
{
    const char *output = add_up_on_rails(MANUAL, "2", "1000,1000,1000");

    XT_CHECK_INT(occurrences(output, ": device rails, which merges 2 devices, for 3 ranks"), 4);
    XT_CHECK(!strstr(output, "XCCL_NET_RAILS is"));
}

XT_TEST(rails_are_used_behind_hooks)
{
    const char *output = add_up_on_rails("fault:trace:" MANUAL, "2", "1000,1000");

    XT_CHECK_INT(occurrences(output, ": device rails, which merges 2 devices, for 3 ranks"), 4);
}

XT_TEST(rails_of_a_plugin_of_nccl_are_used)
{
    const char *output;

    xt_setenv("FX_NCCL_SPEED", "1000");
    output = add_up_on_rails(NCCL_V12, "2", NULL);
    XT_CHECK_INT(occurrences(output, ": device fx+, which merges 2 devices, for 3 ranks"), 4);
}

XT_TEST(one_rail_each_is_shared_out)
{
    const char *output = add_up_on_rails(MANUAL, "1", "1000,1000");

    XT_CHECK_INT(occurrences(output, ": device rail0 for 3 ranks"), 2);
    XT_CHECK_INT(occurrences(output, ": device rail1 for 3 ranks"), 2);
    XT_CHECK_HAS(output, "2 cards of host");
    XT_CHECK_HAS(output, "are shared out to ranks: 0,2 on rail0; 1,3 on rail1");
}

XT_TEST(without_a_setting_all_cards_are_used)
{
    const char *output = add_up_on_rails(MANUAL, "0", "1000,1000,1000,1000,1000,1000,1000,1000");

    XT_CHECK_HAS(output, "8 cards of host");
    XT_CHECK_HAS(output, "to ranks: 0 on rail0+rail4; 1 on rail1+rail5; 2 on rail2+rail6; 3 on "
                         "rail3+rail7");
    XT_CHECK_INT(occurrences(output, ": device rails, which merges 2 devices, for 3 ranks"), 4);
}

XT_TEST(slower_cards_and_those_of_unknown_speed_are_left_alone)
{
    const char *output = add_up_on_rails(MANUAL, "0", "500,1000,0,1000");

    XT_CHECK_HAS(output, "to ranks: 0,2 on rail1; 1,3 on rail3");
}

XT_TEST(fewer_rails_than_asked_for_are_used_and_told)
{
    const char *output = add_up_on_rails(MANUAL, "4", "1000,500,1000");

    /* The interface below, of unknown speed, goes with them. */
    XT_CHECK_INT(occurrences(output, "XCCL_NET_RAILS is 4, but network plugin fx-manual/xccl1/1 "
                                     "has only 3 suitable devices and uses them"),
                 4);
    XT_CHECK_INT(occurrences(output, ": device rails, which merges 3 devices, for 3 ranks"), 4);
}

XT_TEST(plugin_that_does_not_merge_uses_one_device_and_it_is_told)
{
    const char *output;

    xt_setenv("FX_MANUAL_MERGE", "0");
    output = add_up_on_rails(MANUAL, "2", "1000,1000");
    XT_CHECK_INT(occurrences(output, "cannot merge 2 devices (told not to merge) and uses fewer"),
                 4);
    XT_CHECK(!strstr(output, ": device rails"));
}

XT_TEST(ranks_of_one_host_need_no_rails)
{
    const char *output;

    xt_setenv("XCCL_NET_PLUGIN", MANUAL);
    xt_setenv("XCCL_NET_RAILS", "2");
    xt_setenv("FX_MANUAL_SPEEDS", "1000,1000");
    output = add_up();
    XT_CHECK_INT(occurrences(output, ": device unix for 3 ranks"), 4);
    XT_CHECK(!strstr(output, "rails"));
}
