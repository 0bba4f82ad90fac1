/* SPDX-License-Identifier: BSD-3-Clause */
/* Two hosts (network namespaces) with four rate-limited cards each on one switch, two for each NUMA
 * node, as tests/fixtures/socket_cards.c tells them: eight ranks a host, half of them on either
 * core, use all cards, two each, the near ones. Needs root, iproute2 and tc, and says so when it
 * skips.
 *
 * Cards in one subnet answer each other's ARP unless the two settings of the script are made. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "world.h"

#define RATE_MBIT 40
/* Eight ranks send a quarter of this each to the other host's eight. */
#define BYTES (XT_SANITIZED ? "256K" : "2M")

/* $1: build folder, $2: number that is ours alone, $3: a folder that goes with the test; the rest
 * follows. `ranks PROGRAM`: of all sixteen, the output of each in $3/out. */
static const char script_head[] =
    "X=$1 n=$2 d=$3 a=xccl-a$2 b=xccl-b$2 c=xccl-c$2;"
    "trap 'ip netns del $a; ip netns del $b; ip netns del $c' EXIT;"
    "for k in $a $b $c; do ip netns add $k || exit 77; done;"
    "ip -n $c link add name sw0 type bridge || exit 77; ip -n $c link set dev sw0 up;"
    "host() { ns=$1 h=$2 o=$3;"
    " ip netns exec $ns sh -c 'echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore;"
    "  echo 2 > /proc/sys/net/ipv4/conf/all/arp_announce';"
    " ip -n $ns link set lo up;"
    " for i in 0 1 2 3; do ip link add c$i netns $ns type veth peer name $h$i netns $c || exit 77;"
    "  ip -n $ns addr add 10.77.$o.$((i+1))/16 dev c$i; ip -n $ns link set c$i up;"
    "  ip -n $c link set $h$i master sw0 up;"
    "  ip netns exec $ns tc qdisc add dev c$i root tbf rate ${RATE}mbit burst 64k latency 50ms"
    "   || exit 77; done; }; host $a a 1; host $b b 2;"
    "for i in 0 1 2 3; do p=$d/pci0000:$((i/2))0/0000:$((i/2))0:0$((i%2)).0;"
    " mkdir -p $p $d/cards $d/node/node$((i/2)); echo $((i/2)) > $p/numa_node;"
    " ln -s $p $d/cards/c$i; echo $((i/2)) > $d/node/node$((i/2))/cpulist; done;"
    "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do"
    " ip -n $b -o link show c3 | grep -q 'state UP' && break; sleep 0.05; done;"
    "export FX_CARDS=$d/cards XCCL_NET_PLUGIN=$X/lib/fixtures/libxccl-net-fx-cards.so"
    " XCCL_NRANKS=16 XCCL_COMM_ID=10.77.1.1:4455 XCCL_JOB_KEY=a-key-of-the-test"
    " XCCL_TIMEOUT_INIT_S=20 XCCL_DEBUG=info;"
    "on() { XCCL_RANK=$2 exec ip netns exec $1 sh -c \"mount --bind $d/node"
    " /sys/devices/system/node && exec taskset -c $(($2 % 2)) $3\"; };"
    "ranks() { pids= ; for r in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do"
    " on $([ $r -lt 8 ] && echo $a || echo $b) $r \"$1\" > $d/out$r 2>&1 & pids=\"$pids $!\"; done;"
    " bad=0; for q in $pids; do wait $q || bad=1; done; cat $d/out*; return $bad; };";

static const char *on_cards(const char *what)
{
    char script[6144], number[16];
    const char *const argv[] = {"bash",       "-c",   script,      "cards",
                                XT_BUILD_DIR, number, xt_tmpdir(), NULL};
    const char *output = NULL;
    int status;

    if (geteuid() != 0)
        XT_SKIP("network namespaces need root");
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
        XT_SKIP("needs two cores");
    if (access("/usr/sbin/tc", X_OK) != 0 && access("/sbin/tc", X_OK) != 0)
        XT_SKIP("needs tc, of Debian's package iproute2");
    snprintf(script, sizeof(script), "PATH=$PATH:/usr/sbin:/sbin RATE=%d B=%s;%s%s", RATE_MBIT,
             BYTES, script_head, what);
    snprintf(number, sizeof(number), "%d", (int)getpid());
    status = xt_run_program(argv, &output);
    if (WEXITSTATUS(status) == 77)
        XT_SKIP("cannot make such network namespaces here");
    XT_CHECK_INT(status, 0);
    return output;
}

/* The time of the one line of figures, in us. */
static double time_of(const char *output, const char *from)
{
    const char *at = strstr(output, from), *line = at ? strstr(at, " float ") : NULL;

    XT_CHECK(line);
    for (int column = 0; column < 4; column++) {
        line += strspn(line, " ");
        if (column < 3)
            line += strcspn(line, " ");
    }
    return strtod(line, NULL);
}

/* How many times as fast four cards are as one. */
static double ratio_now(const char *coll)
{
    const char *output;
    char what[256];
    double all, one;

    snprintf(what, sizeof(what),
             "p=\"$X/bin/xccl perf %s -b $B -e $B -n 2 -w 1\";"
             "echo ALL; ranks \"$p\" && echo ONE && XCCL_SOCKET_IFNAME=c0 ranks \"$p\"",
             coll);
    output = on_cards(what);

    XT_CHECK_HAS(output, "4 cards of host");
    XT_CHECK_HAS(output, "shared out to ranks: 0,4 on c0; 1,5 on c2; 2,6 on c1; 3,7 on c3");
    XT_CHECK_HAS(output, "shared out to ranks: 8,12 on c0; 9,13 on c2; 10,14 on c1; 11,15 on c3");
    XT_CHECK(!strstr(output, "passed over"));
    all = time_of(output, "ALL");
    one = time_of(output, "ONE");
    printf("%s: one card %.0f ms, four cards %.0f ms, ratio %.2f\n", coll, one / 1000, all / 1000,
           one / all);
    return one / all;
}

/* The rest of the machine costs four cards more than one: the best of three counts. */
static void four_cards_are_four(const char *coll)
{
    double best = 0;

    for (int i = 0; i < 3 && best <= 0.9 * 4 && !(i && XT_SANITIZED); i++) {
        double ratio = ratio_now(coll);

        best = ratio > best ? ratio : best;
    }
    if (!XT_SANITIZED && best <= 0.9 * 4)
        XT_FAIL("%s is %.2f times as fast with four cards as with one", coll, best);
}

XT_TEST_DEADLINE(eight_ranks_use_four_cards_and_four_times_the_rate_of_one, 180)
{
    four_cards_are_four("alltoall");
}

/* Ranks of a host carry a share each. */
XT_TEST_DEADLINE(what_goes_in_stages_uses_four_cards_too, 240)
{
    four_cards_are_four("all_reduce");
    four_cards_are_four("broadcast");
    four_cards_are_four("reduce");
}

/* One rank a host merges all cards. */
XT_TEST_DEADLINE(one_rank_uses_all_cards_as_one, 120)
{
    const char *output = on_cards(
        "export XCCL_NRANKS=2 XCCL_RECORD_DIR=$d/record; mkdir $d/record;"
        "p=\"$X/bin/xccl perf all_reduce -b 4M -e 4M -n 5 -w 1\";"
        "on $a 0 \"$p\" > $d/out0 2>&1 & on $b 1 \"$p\" > $d/out1 2>&1 &"
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 0.1;"
        " $X/bin/xccl report > $d/report 2>&1; grep -q '1 socket' $d/report && break; done; wait;"
        "cat $d/report $d/out0 $d/out1");

    XT_CHECK_HAS(output, ": device c0+c1+c2+c3, which merges 4 devices, for 1 rank");
    XT_CHECK_HAS(output, "rank network to other hosts\n     0 socket c0+c1+c2+c3\n");
    XT_CHECK_HAS(output, "     1 socket c0+c1+c2+c3\n");
    XT_CHECK_HAS(output, "# Out of bounds values : 0 OK");
}
