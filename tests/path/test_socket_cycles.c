/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket plugin connects, transfers and closes again and again: nothing stays behind.
 *
 * XT_CYCLES: how many cycles of each kind (default 300). */
#include "path_cycles.h"
#include "xt.h"

static void cycles_run(const char *device, const char *streams, const char *what)
{
    xt_setenv("XCCL_SOCKET_IFNAME", "=lo");
    xt_setenv("XCCL_SOCKET_FAMILY", "ipv4");
    xt_setenv("XCCL_SOCKET_STREAMS", streams);
    path_cycles("socket", device, what);
}

XT_TEST_DEADLINE(cycles_over_tcp_leave_nothing_behind, 60)
{
    cycles_run("lo", "1", "tcp");
}

XT_TEST_DEADLINE(cycles_over_tcp_with_four_streams_leave_nothing_behind, 60)
{
    cycles_run("lo", "4", "tcp, four streams");
}

XT_TEST_DEADLINE(cycles_over_unix_sockets_leave_nothing_behind, 60)
{
    cycles_run("unix", "1", "Unix sockets");
}

XT_TEST_DEADLINE(cycles_over_unix_sockets_with_four_streams_leave_nothing_behind, 60)
{
    cycles_run("unix", "4", "Unix sockets, four streams");
}
