/* SPDX-License-Identifier: BSD-3-Clause */
/* What `xccl net list` and `xccl info` know of the plugins found: a copy of each candidate's fate
 * and of its devices' properties, taken while the plugin was open. Texts that come from plugins are
 * copied without control characters.
 *
 * Thread: the program's main thread. */
#ifndef XCCL_TOOLS_NET_NET_LIST_H
#define XCCL_TOOLS_NET_NET_LIST_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "xccl_net.h"

#define XCCL_NET_LIST_DEVICES 32 /* a plugin; more are counted, not shown */
#define XCCL_NET_TEXT_BYTES   96

struct xccl_net_list_device {
    int known; /* 0: properties failed, and name says why */
    xcclNetProperties_v1 props; /* its pointers are gone: see below */
    char name[XCCL_NET_TEXT_BYTES];
    char pci_path[512];
    char provider[XCCL_NET_TEXT_BYTES];
};

struct xccl_net_list_entry {
    char item[256], path[512], contracts[256], reason[768];
    int taken;
    /* Only when taken. */
    char name[XCCL_NET_TEXT_BYTES], contract[XCCL_NET_TEXT_BYTES], wire_id[XCCL_NET_TEXT_BYTES];
    char said[512]; /* what it says of itself and of settings that are not ours */
    uint32_t wire_version;
    int device_count; /* as the plugin says */
    int shown_count; /* of devices below */
    struct xccl_net_list_device *devices;
};

struct xccl_net_list {
    struct xccl_net_list_entry *entries;
    int count, room;
    int short_of_memory; /* something was left out */
};

/* Tries the plugins of XCCL_NET_PLUGIN, with all 1 every plugin file in the folders searched. The
 * settings have been read. 0 after an error, whose text is the thread's. */
int xccl_net_list_collect(int all, struct xccl_net_list *list_out);
void xccl_net_list_free(struct xccl_net_list *list);

/* The facts of an entry as `xccl info` shows them: lines "TITLE: ITEM: FACT". */
void xccl_net_list_brief(const struct xccl_net_list_entry *entry, const char *title);

/* The item that a communicator of such hosts uses: the first that was taken; NULL: none was. */
const char *xccl_net_list_first(const struct xccl_net_list *list);
/* Which one it would be, and why each plugin of the machine's own list is in it or not, as
 * `xccl info` shows them: lines "TITLE: FACT". */
void xccl_net_list_why(const struct xccl_net_list *list, const char *title);

/* "25 Gb/s", or "unknown" for 0. */
void xccl_net_speed_text(uint32_t mbps, char *text_out, size_t bytes);

/* xccl net list: argv[0] is "list". Returns the exit status. */
int xccl_net_list_main(int argc, char **argv);
extern const char xccl_net_list_help[];

#endif
