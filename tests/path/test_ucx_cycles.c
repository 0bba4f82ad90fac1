/* SPDX-License-Identifier: BSD-3-Clause */
/* The plugin ucx connects, transfers and closes again and again: nothing stays behind.
 *
 * XT_CYCLES: how many cycles of each kind (default 300). */
#include <unistd.h>

#include "path_cycles.h"
#include "xt.h"

#define LIBRARY XT_BUILD_DIR "/lib/xccl/libxccl-net-ucx.so"

static void cycles_run(const char *tls)
{
    if (access(LIBRARY, R_OK) != 0)
        XT_SKIP("the plugin was not built: UCX's headers (Debian: libucx-dev) are missing");
    xt_setenv("UCX_TLS", tls);
    path_cycles(LIBRARY, NULL, tls);
}

XT_TEST_DEADLINE(cycles_over_tcp_leave_nothing_behind, 100)
{
    cycles_run("tcp,self");
}

XT_TEST_DEADLINE(cycles_over_shared_memory_leave_nothing_behind, 100)
{
    cycles_run("posix,cma");
}
