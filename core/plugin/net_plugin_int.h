/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the files of this folder: a text that grows to its bound and no further, the search for a
 * plugin's file, and the contract's check. Thread: any, during init of a communicator. */
#ifndef XCCL_PLUGIN_NET_PLUGIN_INT_H
#define XCCL_PLUGIN_NET_PLUGIN_INT_H

#include "plugin/net_plugin.h"

#define NET_PATH_BYTES   sizeof(((struct xccl_net *)0)->path)
#define NET_FOLDERS_MAX  24
#define NET_REASON_BYTES 768

/* Why something was refused; what does not fit is cut. */
struct net_reason {
    char text[NET_REASON_BYTES];
};
void net_reason_set(struct net_reason *reason, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends, with "; " between. */
void net_reason_add(struct net_reason *reason, const char *text);

/* The folders in which names are sought, in order. */
struct net_folders {
    char path[NET_FOLDERS_MAX][NET_PATH_BYTES];
    int count;
};
void net_folders_find(struct net_folders *folders);
/* 1: there is such a file. */
int net_file_exists(const char *path);
/* 1: a regular file that nobody but its owner and group can change, in such a folder. */
int net_file_trusted(const char *path, struct net_reason *reason);

/* 1: the table is one of this contract and complete. */
int net_contract_check(const xcclNetPlugin_v1_t *plugin, struct net_reason *reason);
/* Copies what the plugin has and fills the rest with stubs. */
void net_contract_copy(const xcclNetPlugin_v1_t *plugin, xcclNetPlugin_v1_t *calls_out);

#endif
