/* SPDX-License-Identifier: BSD-3-Clause */
/* The names of the entries. The rest of the watch is inline.
 * Thread: any. */
#include "plugin/net_watch.h"

const char *xccl_net_entry_name(enum xccl_net_entry entry)
{
    static const char *const names[XCCL_NET_ENTRY_COUNT] = {
        [XCCL_NET_OUTSIDE] = "nothing",       [XCCL_NET_INIT] = "init",
        [XCCL_NET_FINALIZE] = "finalize",     [XCCL_NET_DEVICES] = "devices",
        [XCCL_NET_PROPERTIES] = "properties", [XCCL_NET_MERGE] = "mergeDevices",
        [XCCL_NET_LISTEN] = "listen",         [XCCL_NET_CONNECT] = "connect",
        [XCCL_NET_ACCEPT] = "accept",         [XCCL_NET_REG_MR] = "regMr",
        [XCCL_NET_DEREG_MR] = "deregMr",      [XCCL_NET_CLOSE] = "a close",
        [XCCL_NET_ISEND] = "isend",           [XCCL_NET_IRECV] = "irecv",
        [XCCL_NET_IFLUSH] = "iflush",         [XCCL_NET_TEST] = "test",
        [XCCL_NET_PROGRESS] = "progress",
    };

    return (unsigned)entry < XCCL_NET_ENTRY_COUNT ? names[entry] : "an unknown entry";
}
