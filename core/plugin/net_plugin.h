/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds, loads and opens network plugins, ours and NCCL's. What to open is an item:
 *
 *   [HOOK:]...NAME|PATH[@CONTRACT]     socket   fault:socket   /opt/x/libnccl-net.so   socket@v10
 *
 * XCCL_NET_PLUGIN is a list of items with commas between, tried in order; `none` ends it; `auto`
 * alone is the list of net_default.h. NAME X is libxccl-net-X.so, then libnccl-net-X.so, in
 * XCCL_PLUGIN_PATH, then in the folder of libxccl.so and xccl/ below it, then in the loader's own
 * path. STATIC_PLUGIN is the program itself. The newest contract that a file offers is taken:
 * xcclNetPlugin_v1, then ncclNetPlugin_v12 down to v6; @v10 asks for that one of NCCL's, @xccl1 for
 * ours. Files that others can change are refused (base/trust.h). A file is tried out in a process
 * of its own first, so one that crashes or never comes back is refused like any other
 * (XCCL_PLUGIN_PROBE_S). One log line (info) per candidate: taken, or why not. Absent optional
 * entries are filled with stubs, so that callers never test for NULL.
 *
 * Thread: any, during init and destroy of a communicator. */
#ifndef XCCL_PLUGIN_NET_PLUGIN_H
#define XCCL_PLUGIN_NET_PLUGIN_H

#include "plugin/net_device.h"
#include "plugin/net_watch.h"
#include "xccl_net.h"

#define XCCL_WIRE_ID_BYTES  64
#define XCCL_NET_ITEM_BYTES 256 /* paths are longer than that only by mistake */

/* One opened instance, for one communicator. */
#define XCCL_NET_SAID_BYTES 512

struct xccl_net {
    xcclNetPlugin_v1_t calls; /* complete: stubs filled in */
    xcclNetContext_t ctx;
    int device_count;
    struct xccl_net_device use[XCCL_NET_KINDS]; /* the communicator's choice, see net_device.h */
    struct xccl_card_view view; /* its cards, as they are told to the others, see card_share.h */
    int cards[XCCL_CARDS_MAX]; /* their numbers */
    char wire_id[XCCL_WIRE_ID_BYTES]; /* equal on ranks that can talk; see xccl_net_survey */
    char item[XCCL_NET_ITEM_BYTES]; /* by which it was asked for */
    char path[512];
    char contract[32]; /* the symbol that was taken */
    int is_nccl; /* 1: of NCCL's contract, which promises no sizes of receives */
    int counts; /* 1: so messages begin with their length; the communicator's choice */
    char said[XCCL_NET_SAID_BYTES]; /* the last line for users that its init logged; "" */
    uint64_t build; /* of the file, by its build id; 0: not known */
    int position; /* of the item in its list */
    struct xccl_net_watch *watch; /* the caller's, or its own */
    struct xccl_net_watch own_watch;
    struct net_chain *chain; /* the loader's own */
};

struct xccl_net_open_args {
    uint64_t comm_id;
    int rank, nranks;
    const char *comm_name;
    int traffic_class; /* -1: the plugin's own */
    const char *met_address; /* of this host, by which the ranks have met; NULL: not known */
    struct xccl_net_watch *watch; /* set around every call into the plugin; NULL: nobody looks */
};

/* Opens what a list names, in order, all of it that loads, inits and has a device, up to max (at
 * least 1). Nothing: xcclSystemError whose text lists each candidate with the reason and the
 * folders sought. `none` in front: xcclInvalidUsage saying that it allows one node only. Settings
 * have been loaded (base/param.h). */
xcclResult_t xccl_net_open_list(const char *list, const struct xccl_net_open_args *args,
                                struct xccl_net *nets_out[], int max, int *count_out);
/* Loads settings, then opens one item of a list, or fails as xccl_net_open_list(). */
xcclResult_t xccl_net_open_item(const char *item, const struct xccl_net_open_args *args,
                                struct xccl_net **net_out);
void xccl_net_close(struct xccl_net *net); /* finalize, unload; NULL is fine */

/* The next item of a list without blanks around, *at moves on; 0 at the end. */
int xccl_net_list_item(const char **at, char item_out[XCCL_NET_ITEM_BYTES]);

/* One file that was looked at. */
struct xccl_net_candidate {
    const char *item; /* by which it was found */
    const char *path; /* "" when nothing was found */
    const char *contracts; /* symbols it exports, newest first, blanks between; "" not loaded */
    const char *reason; /* NULL: taken; else why not */
    const struct xccl_net *net; /* NULL: refused; closed after the callback has returned */
};
typedef void xccl_net_seen_fn(void *user, const struct xccl_net_candidate *candidate);

/* Tries every item of XCCL_NET_PLUGIN (all 0), or every plugin file in the folders that are
 * searched (all 1), and tells each candidate's fate. For `xccl info` and `xccl net list`. */
xcclResult_t xccl_net_survey(int all, xccl_net_seen_fn *seen, void *user);

#endif
