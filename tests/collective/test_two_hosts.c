/* SPDX-License-Identifier: BSD-3-Clause */
/* Two network namespaces joined by a veth pair stand for two hosts: ranks of one share memory,
 * ranks of different ones meet and talk over TCP, through the installed programs as a user starts
 * them. Needs root and iproute2, and says so when it has to skip. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xt.h"

/* The two hosts, removed however the script ends. $1: build folder, $2: number that is ours alone.
 */
static const char hosts[] =
    "a=xccl-a$2 b=xccl-b$2; trap 'ip netns del $a; ip netns del $b' EXIT;"
    "ip netns add $a && ip netns add $b || exit 77;"
    "ip link add va netns $a type veth peer name vb netns $b || exit 77;"
    "ip -n $a addr add 10.77.0.1/24 dev va; ip -n $b addr add 10.77.0.2/24 dev vb;"
    "ip -n $a addr add fd77::1/64 dev va nodad; ip -n $b addr add fd77::2/64 dev vb nodad;"
    "for n in $a $b; do ip -n $n link set lo up; done;"
    "ip -n $a link set va up; ip -n $b link set vb up;"
    "export XCCL_NRANKS=4 XCCL_COMM_ID=10.77.0.1:4455 XCCL_JOB_KEY=a-key-of-the-test "
    "XCCL_TIMEOUT_INIT_S=20;"
    "on() { XCCL_RANK=$2 ip netns exec $1 $3; };";

static int on_two_hosts(const char *what, const char **output)
{
    char script[2048], number[16];
    const char *argv[] = {"bash", "-c", script, "hosts", XT_BUILD_DIR, number, NULL};

    if (geteuid() != 0)
        XT_SKIP("network namespaces need root");
    if (access("/usr/sbin/ip", X_OK) != 0 && access("/sbin/ip", X_OK) != 0)
        XT_SKIP("needs ip, of Debian's package iproute2");
    snprintf(script, sizeof(script), "%s%s", hosts, what);
    snprintf(number, sizeof(number), "%d", (int)getpid());
    return xt_run_program(argv, output);
}

XT_TEST_DEADLINE(ranks_of_two_hosts_add_up_over_shared_memory_and_tcp, 60)
{
    const char *output = NULL;
    int status = on_two_hosts("h=$1/examples/hello; export XCCL_DEBUG=info;"
                              "on $a 0 $h & on $a 1 $h & on $b 2 $h & on $b 3 $h & wait",
                              &output);

    if (WEXITSTATUS(status) == 77)
        XT_SKIP("cannot make network namespaces here");
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

    if (WEXITSTATUS(status) == 77)
        XT_SKIP("cannot make network namespaces here");
    XT_CHECK_INT(status, 0);
    XT_CHECK_HAS(output, "# Out of bounds values : 0 OK");
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
    if (WEXITSTATUS(status) == 77)
        XT_SKIP("cannot make network namespaces here");
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
