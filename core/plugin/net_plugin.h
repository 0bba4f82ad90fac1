/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds, loads and opens network plugins. XCCL_NET_PLUGIN is a list of names or paths; name X is
 * libxccl-net-X.so in XCCL_PLUGIN_PATH, then in the folder of libxccl.so and xccl/ below it, then
 * in the loader's own path. One log line (info) per candidate: taken, or why not. World-writable
 * files are refused. Absent optional entries are filled with stubs, so that callers never test for
 * NULL.
 *
 * Thread: any, during init and destroy of a communicator. */
#ifndef XCCL_PLUGIN_NET_PLUGIN_H
#define XCCL_PLUGIN_NET_PLUGIN_H

#include "xccl_net.h"

#define XCCL_WIRE_ID_BYTES 64

/* One opened instance, for one communicator. */
struct xccl_net {
    xcclNetPlugin_v1_t calls; /* complete: stubs filled in */
    xcclNetContext_t ctx;
    int device_count;
    char wire_id[XCCL_WIRE_ID_BYTES]; /* name/contract/wire version: equal on ranks that can talk */
    char path[512];
    void *library;
};

struct xccl_net_open_args {
    uint64_t comm_id;
    int rank, nranks;
    const char *comm_name;
};

/* Opens the first plugin of the list that loads, inits and has a device. None: xcclSystemError
 * whose text lists each candidate with the reason and the folders sought. `none`: xcclInvalidUsage
 * saying that XCCL_NET_PLUGIN=none allows one node only. */
xcclResult_t xccl_net_open(const struct xccl_net_open_args *args, struct xccl_net **net_out);
void xccl_net_close(struct xccl_net *net); /* finalize, unload; NULL is fine */

/* For `xccl info`: tries every name of the list and tells each candidate's fate as a line. */
xcclResult_t xccl_net_survey(void (*line)(void *user, const char *text), void *user);

#endif
