/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives over the plugins ucx and ofi between two network namespaces that stand for hosts:
 * values are right for 2, 4 and 8 ranks, and a link that goes down is an error that says where, in
 * time. Needs root and iproute2, and says so when it has to skip.
 *
 * XT_HOSTS_BYTES: the largest message (default 1M). */
#include <stdlib.h>

#include "two_hosts.h"

struct plugin {
    const char *library, *headers, *variable, *value;
};

static const struct plugin ucx = {XT_BUILD_DIR "/lib/xccl/libxccl-net-ucx.so", "libucx-dev",
                                  "UCX_TLS", "tcp,self"};
static const struct plugin ofi = {XT_BUILD_DIR "/lib/xccl/libxccl-net-ofi.so", "libfabric-dev",
                                  "XCCL_OFI_PROVIDER", "tcp;ofi_rxm"};

static void use(const struct plugin *plugin)
{
    if (access(plugin->library, R_OK) != 0)
        XT_SKIP("the plugin was not built: headers (Debian: %s) are missing", plugin->headers);
    xt_setenv("XCCL_NET_PLUGIN", plugin->library);
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv(plugin->variable, plugin->value);
    /* ofi_rxm takes 80 MiB an endpoint otherwise, two endpoints a connection. */
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
}

static void collective_is_right(const struct plugin *plugin, const char *name, int ranks)
{
    const char *most = getenv("XT_HOSTS_BYTES"), *output = NULL;
    char what[512];

    use(plugin);
    snprintf(
        what, sizeof(what),
        "export XCCL_NRANKS=%d; r=0 pids=; p=\"$1/bin/xccl perf %s -b 0 -e %s -f 64 -n 1 -w 1\";"
        "for i in $(seq 0 %d); do on $([ $((i %% 2)) = 0 ] && echo $a || echo $b) $i \"$p\" &"
        "pids=\"$pids $!\"; done; for pid in $pids; do wait $pid || r=$?; done; exit $r",
        ranks, name, most ? most : "1M", ranks - 1);
    XT_CHECK_INT(on_two_hosts(what, &output), 0);
    XT_CHECK_HAS(output, "# Out of bounds values : 0 OK");
}

XT_TEST_DEADLINE(two_ranks_over_ucx_add_up, 60)
{
    collective_is_right(&ucx, "all_reduce", 2);
}

XT_TEST_DEADLINE(four_ranks_over_ucx_add_gather_and_pass_on, 100)
{
    collective_is_right(&ucx, "all_reduce", 4);
    collective_is_right(&ucx, "all_gather", 4);
    collective_is_right(&ucx, "sendrecv", 4);
}

XT_TEST_DEADLINE(eight_ranks_over_ucx_exchange_blocks, 100)
{
    collective_is_right(&ucx, "alltoall", 8);
}

XT_TEST_DEADLINE(two_ranks_over_ofi_add_up, 60)
{
    collective_is_right(&ofi, "all_reduce", 2);
}

XT_TEST_DEADLINE(four_ranks_over_ofi_gather_and_pass_on, 100)
{
    collective_is_right(&ofi, "all_gather", 4);
    collective_is_right(&ofi, "sendrecv", 4);
}

XT_TEST_DEADLINE(eight_ranks_over_ofi_exchange_blocks, 100)
{
    collective_is_right(&ofi, "alltoall", 8);
}

/* Nothing tells the hosts; who is asked no longer answers. */
static void link_down_is_named(const struct plugin *plugin)
{
    const char *output = NULL;

    use(plugin);
    on_two_hosts("export XCCL_NRANKS=2 XCCL_TIMEOUT_S=15;"
                 "p=\"$1/bin/xccl perf all_reduce -b 1M -e 1M -n 100000 -w 1\";"
                 "on $a 0 \"$p\" & x=$!; on $b 1 \"$p\" & y=$!; sleep 4;"
                 "kill -0 $x && kill -0 $y && echo both run; s=$SECONDS;"
                 "ip -n $b link set vb down; wait $x; echo first $?; wait $y; echo second $?;"
                 "[ $((SECONDS - s)) -le 30 ] && echo in time",
                 &output);
    XT_CHECK_HAS(output, "both run");
    XT_CHECK_HAS(output, "in time");
    XT_CHECK_HAS(output, "first 1");
    XT_CHECK_HAS(output, "second 1");
    XT_CHECK_HAS(output, "10.77.0.2");
}

XT_TEST_DEADLINE(a_link_that_goes_down_under_ucx_is_named, 100)
{
    link_down_is_named(&ucx);
}

XT_TEST_DEADLINE(a_link_that_goes_down_under_ofi_is_named, 100)
{
    link_down_is_named(&ofi);
}
