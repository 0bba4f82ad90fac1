/* SPDX-License-Identifier: BSD-3-Clause */
/* What algorithm and tuner plugins have in common: a file is looked at before it is loaded, has one
 * symbol, and stays. Network plugins go other ways: they are tried out first, and come and go.
 * Thread: any. */
#ifndef XCCL_PLUGIN_PLUGIN_FILE_H
#define XCCL_PLUGIN_PLUGIN_FILE_H

#include <stdint.h>

#include "plugin/net_plugin_int.h"

/* A path: folder, item, and the longest of prefixes and endings. */
#define PLUGIN_PATH_BYTES (NET_PATH_BYTES + XCCL_NET_ITEM_BYTES + 32)

/* Loads a file that was looked at (net_file_trusted), and finds its symbol; NULL with a reason.
 * kind: "algorithm". */
void *plugin_file_load(const char *path, const struct xccl_file_id *id, const char *kind,
                       const char *symbol, const void **table_out, struct net_reason *reason);
/* What was loaded stays until the process ends. */
void plugin_file_keep(const char *path);
/* Adds where a name was sought. */
void plugin_tell_folders(const struct net_folders *folders, struct net_reason *why);
/* Of what is in it. A file that cannot be read any more is told from all others by its name. */
uint64_t plugin_file_hash(uint64_t hash, const char *path);

#endif
