/* SPDX-License-Identifier: BSD-3-Clause */
/* The plugin ofi connects, transfers and closes again and again: nothing stays behind. Not over
 * libfabric's net, which loses memory itself with each connection (1.17).
 *
 * XT_CYCLES: how many cycles of each kind (default 300). */
#include <dlfcn.h>
#include <unistd.h>

#include "path_cycles.h"
#include "xt.h"

#define LIBRARY XT_BUILD_DIR "/lib/xccl/libxccl-net-ofi.so"

static void cycles_run(const char *provider, const char *path, const char *what)
{
    void *library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (access(LIBRARY, R_OK) != 0 || !library)
        XT_SKIP("the plugin was not built, or libfabric1 is not installed");
    dlclose(library);
    xt_setenv("XCCL_PLUGIN_PROBE_S", "0");
    xt_setenv("XCCL_OFI_PROVIDER", provider);
    xt_setenv("XCCL_OFI_PATH", path);
    xt_setenv("XCCL_OFI_WAIT", "1");
    xt_setenv("FI_PROVIDER", "tcp,ofi_rxm,udp,ofi_rxd");
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    xt_setenv("FI_OFI_RXM_MSG_RX_SIZE", "64");
    path_cycles(LIBRARY, NULL, what);
}

XT_TEST_DEADLINE(cycles_of_messages_over_tcp_leave_nothing_behind, 100)
{
    cycles_run("tcp;ofi_rxm", "message", "libfabric's tcp");
}

XT_TEST_DEADLINE(cycles_of_writes_over_tcp_leave_nothing_behind, 100)
{
    cycles_run("tcp;ofi_rxm", "write", "libfabric's tcp, written");
}
