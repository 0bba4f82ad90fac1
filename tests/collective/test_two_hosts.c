/* SPDX-License-Identifier: BSD-3-Clause */
/* Two network namespaces joined by a veth pair stand for two hosts: ranks of one share memory,
 * ranks of different ones meet and talk over TCP, through the installed programs as a user starts
 * them. Needs root and iproute2, and says so when it has to skip. */
#include "two_hosts.h"

XT_TEST_DEADLINE(ranks_of_two_hosts_add_up_over_shared_memory_and_tcp, 60)
{
    const char *output = NULL;
    int status = on_two_hosts("h=$1/examples/hello; export XCCL_DEBUG=info;"
                              "on $a 0 $h & on $a 1 $h & on $b 2 $h & on $b 3 $h & wait",
                              &output);

    XT_CHECK_INT(status, 0);
    XT_CHECK_HAS(output, "rank 0 of 4: sum = 6 10 14 18");
    XT_CHECK_HAS(output, "rank 3 of 4: sum = 6 10 14 18");
    XT_CHECK_HAS(output, "1 others by shared memory");
    XT_CHECK_HAS(output, "2 others by network plugin socket");
}

XT_TEST_DEADLINE(sizes_and_values_are_right_between_two_hosts, 120)
{
    const char *output = NULL;
    int status = on_two_hosts("p=\"$1/bin/xccl perf all_reduce -b 4 -e 4M -f 8 -n 5\";"
                              "on $a 0 \"$p\" & on $b 1 \"$p\" & on $a 2 \"$p\" & on $b 3 \"$p\" &"
                              "wait",
                              &output);

    XT_CHECK_INT(status, 0);
    XT_CHECK_HAS(output, "# Out of bounds values : 0 OK");
}

/* Ranks 0 and 3 on one host, 1 and 2 on the other, so that hosts have ranks in turns. */
static void collectives_are_right(const char *algo)
{
    const char *output = NULL;
    char what[1024];
    int status;

    snprintf(what, sizeof(what),
             "export XCCL_ALGO='%s'; r=0; for c in all_reduce all_gather reduce_scatter broadcast"
             " reduce gather scatter alltoall all_gatherv reduce_scatterv alltoallv barrier; do"
             " pids=; p=\"$1/bin/xccl perf $c -b 40 -e 640K -f 128 -n 2 -w 1\";"
             " for i in 0 1 2 3; do"
             " on $([ $((i %% 3)) = 0 ] && echo $a || echo $b) $i \"$p\" & pids=\"$pids $!\"; done;"
             " for pid in $pids; do wait $pid || { echo $c failed; r=1; }; done; done; exit $r",
             algo);
    status = on_two_hosts(what, &output);
    XT_CHECK_INT(status, 0);
    XT_CHECK_HAS(output, "# Out of bounds values : 0 OK");
}

XT_TEST_DEADLINE(all_collectives_are_right_in_stages_by_hosts, 120)
{
    collectives_are_right("auto");
}

XT_TEST_DEADLINE(all_collectives_are_right_in_rings_and_trees_over_an_order, 120)
{
    collectives_are_right("^hier,rails,oneshot,twoshot,mesh,direct");
}

static void bootstrap_is_measured(const char *comm_id)
{
    const char *output = NULL;
    char what[512];
    int status;

    snprintf(what, sizeof(what),
             "export XCCL_COMM_ID=%s; p=\"$1/bin/xccl perf bootstrap -n 20\"; r=0 pids=;"
             "for i in 0 1 2 3; do on $([ $((i %% 2)) = 0 ] && echo $a || echo $b) $i \"$p\" &"
             "pids=\"$pids $!\"; done; for pid in $pids; do wait $pid || r=$?; done; exit $r",
             comm_id);
    status = on_two_hosts(what, &output);
    XT_CHECK_INT(status, 0);
    XT_CHECK_HAS(output, "barrier");
    XT_CHECK_HAS(output, "round trip");
}

XT_TEST_DEADLINE(ranks_of_two_hosts_meet_and_talk_out_of_band_over_ipv4, 60)
{
    bootstrap_is_measured("10.77.0.1:4455");
}

XT_TEST_DEADLINE(ranks_of_two_hosts_meet_and_talk_out_of_band_over_ipv6, 60)
{
    bootstrap_is_measured("[fd77::1]:4455");
}
