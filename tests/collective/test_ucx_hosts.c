/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives over the plugin ucx between two network namespaces that stand for hosts: values are
 * right for 2, 4 and 8 ranks, and a link that goes down is an error that says where, in time. Needs
 * root and iproute2, and says so when it has to skip.
 *
 * XT_UCX_BYTES: the largest message (default 1M). */
#include <stdlib.h>

#include "two_hosts.h"

#define LIBRARY XT_BUILD_DIR "/lib/xccl/libxccl-net-ucx.so"

static void over_ucx(const char *tls)
{
    if (access(LIBRARY, R_OK) != 0)
        XT_SKIP("the plugin was not built: UCX's headers (Debian: libucx-dev) are missing");
    xt_setenv("XCCL_NET_PLUGIN", LIBRARY);
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("UCX_TLS", tls);
}

static void collective_is_right(const char *name, int ranks)
{
    const char *most = getenv("XT_UCX_BYTES"), *output = NULL;
    char what[512];

    over_ucx("tcp,self");
    snprintf(
        what, sizeof(what),
        "export XCCL_NRANKS=%d; r=0 pids=; p=\"$1/bin/xccl perf %s -b 0 -e %s -f 64 -n 1 -w 1\";"
        "for i in $(seq 0 %d); do on $([ $((i %% 2)) = 0 ] && echo $a || echo $b) $i \"$p\" &"
        "pids=\"$pids $!\"; done; for pid in $pids; do wait $pid || r=$?; done; exit $r",
        ranks, name, most ? most : "1M", ranks - 1);
    XT_CHECK_INT(on_two_hosts(what, &output), 0);
    XT_CHECK_HAS(output, "# Out of bounds values : 0 OK");
}

XT_TEST_DEADLINE(two_ranks_on_two_hosts_add_up, 60)
{
    collective_is_right("all_reduce", 2);
}

XT_TEST_DEADLINE(four_ranks_on_two_hosts_add_up, 60)
{
    collective_is_right("all_reduce", 4);
}

XT_TEST_DEADLINE(eight_ranks_on_two_hosts_exchange_blocks, 100)
{
    collective_is_right("alltoall", 8);
}

XT_TEST_DEADLINE(four_ranks_on_two_hosts_gather_and_pass_on, 100)
{
    collective_is_right("all_gather", 4);
    collective_is_right("sendrecv", 4);
}

/* Nothing tells the hosts; who is asked no longer answers. */
XT_TEST_DEADLINE(a_link_that_goes_down_is_named, 100)
{
    const char *output = NULL;

    over_ucx("tcp,self");
    on_two_hosts("export XCCL_NRANKS=2 XCCL_TIMEOUT_S=15;"
                 "p=\"$1/bin/xccl perf all_reduce -b 1M -e 1M -n 100000 -w 1\";"
                 "on $a 0 \"$p\" & x=$!; on $b 1 \"$p\" & y=$!; sleep 4;"
                 "kill -0 $x && kill -0 $y && echo both run; s=$SECONDS; ip -n $b link set vb "
                 "down; wait $x; echo first $?; wait $y; echo second $?;"
                 "[ $((SECONDS - s)) -le 30 ] && echo in time",
                 &output);
    XT_CHECK_HAS(output, "both run");
    XT_CHECK_HAS(output, "in time");
    XT_CHECK_HAS(output, "first 1");
    XT_CHECK_HAS(output, "second 1");
    XT_CHECK_HAS(output, "10.77.0.2");
}
