/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL's network plugins, contract versions 6 to 12, behind our contract. The loader finds the data
 * symbol ncclNetPlugin_vN, checks it, takes the table that speaks to that version, and hands the
 * source to its init as `inner`. All state hangs on instances, so plugins of the same version and
 * several instances of each live side by side. What NCCL's contract cannot keep of ours is said in
 * the heads of nccl_comm.c and nccl_request.c.
 *
 * Thread: as include/xccl_net.h says. */
#ifndef XCCL_PLUGIN_NCCL_ADAPTER_H
#define XCCL_PLUGIN_NCCL_ADAPTER_H

#include "plugin/net_reason.h"
#include "xccl_net.h"

#define NCCL_NAME_BYTES 32

/* What init finds as init->inner: the first member is what a hook would see, the rest is ours. Good
 * until finalize has returned. */
struct nccl_source {
    xcclNetInner_v1 inner;
    const void *table; /* ncclNetPlugin_vN */
    int version; /* N */
};

/* Around looking at a table, which another thread's init may be filling. */
void nccl_tables_lock(void);
void nccl_tables_unlock(void);
/* 1: the table has what may be looked at before init: a name and an init. Else 0 and the reason. */
int nccl_check_init(const struct nccl_source *source, struct net_reason *reason);
/* 1: the table has a name and every entry that the version demands; else 0 and the reason. A table
 * may be whole only after init. */
int nccl_check(const struct nccl_source *source, struct net_reason *reason);
/* The table of contract xccl1 that speaks to a source of that version; NULL: no such version. Its
 * name is "nccl": the plugin's own name is nccl_name(). */
const xcclNetPlugin_v1_t *nccl_adapter(int version);
/* The plugin's name in our alphabet: lower case, blanks and other signs become '-'. It may change
 * in init, as the rest of the table. */
void nccl_name(const struct nccl_source *source, char name_out[NCCL_NAME_BYTES]);

#endif
