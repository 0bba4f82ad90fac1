/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the files of this folder:
 *
 *   net_item.c     what the text of an item asks for
 *   net_search.c   where files are sought, and which are trusted
 *   net_probe.c    trying a file out in a process of its own (probe/xccl_probe.c), a tuner's too
 *   net_library.c  one loaded file: its contracts, the newest that is whole, its table
 *   net_contract.c is a table complete, and what fills absent entries
 *   net_plugin.c   an instance: hooks around a plugin, init, devices; lists of items
 *   net_survey.c   all that can be found
 *   net_default.c  the list where no user has named one
 *   net_choose.c   which of several the ranks of a communicator use
 *   net_watch.c    who is inside a plugin, and in which entry
 *   nccl_*.c       NCCL's contracts in terms of ours, one file a family of layouts
 *
 * Thread: any, during init of a communicator. */
#ifndef XCCL_PLUGIN_NET_PLUGIN_INT_H
#define XCCL_PLUGIN_NET_PLUGIN_INT_H

#include "base/nccl_net_abi.h"
#include "base/trust.h"
#include "plugin/net_default.h"
#include "plugin/net_plugin.h"
#include "plugin/nccl_adapter.h"
#include "plugin/net_reason.h"

#define NET_PATH_BYTES      sizeof(((struct xccl_net *)0)->path)
#define NET_FOLDERS_MAX     24
#define NET_HOOKS_MAX       4
#define NET_HOOK_BYTES      32
#define NET_CONTRACT_XCCL   1 /* xcclNetPlugin_v1; 6 to 12 are NCCL's */
#define NET_CONTRACTS_BYTES 256
#define NET_STATIC          "STATIC_PLUGIN" /* the program itself */

/* ---- net_item.c ---- */

/* fault:trace:socket@v10 has hooks fault and trace, name socket, contract 10. */
struct net_item {
    char hooks[NET_HOOKS_MAX][NET_HOOK_BYTES]; /* outermost first */
    int hook_count;
    char name[XCCL_NET_ITEM_BYTES]; /* or a path, when it has a slash */
    int contract; /* 0: the newest */
};
/* 0: the text is no item; reason says why. */
int net_item_parse(const char *text, struct net_item *item_out, struct net_reason *reason);

/* ---- net_search.c ---- */

/* The folders in which names are sought, in order. */
struct net_folders {
    char path[NET_FOLDERS_MAX][NET_PATH_BYTES];
    int own[NET_FOLDERS_MAX]; /* 1: it comes with this library, whoever named it too */
    int count;
};
void net_folders_find(struct net_folders *folders);
/* Folders of the dynamic loader that hold a file of that name, as far as it tells them:
 * LD_LIBRARY_PATH as it was when the program started, and the system's own. Not those of its cache,
 * and not the folders for kinds of processors (glibc-hwcaps) inside of these. */
void net_folders_of_loader(const char *soname, struct net_folders *folders);
/* The plugin folder of the installation, in programs that hold libxccl.a; absent in all others, so
 * that what runs from a build tree never takes the plugins of an installation. */
extern const char *const xccl_plugin_home __attribute__((weak, visibility("hidden")));
/* The next file of that name, in the folders from *at on; at begins at 0. 0: there is none. */
int net_folders_next(const struct net_folders *folders, int *at, const char *name, char *path_out,
                     size_t bytes);
/* 1: there is such a file. */
int net_file_exists(const char *path);
/* 1: nobody but root, this user and the owners of XCCL_PLUGIN_OWNERS can change that file or what
 * leads to it, and this program can open libraries. id_out: the file. */
int net_file_trusted(const char *path, struct xccl_file_id *id_out, struct net_reason *reason);
/* 1: it is still that file, unchanged. since: "after it was looked at". */
int net_file_is(const char *path, const struct xccl_file_id *id, const char *since,
                struct net_reason *reason);
/* The one file that a probe may load, which the process that started it has looked at; NULL: this
 * is no probe. */
extern const struct xccl_file_id *net_file_to_try;
/* 1: the name of a file is one of a network plugin; item_out is how it is asked for by name. */
int net_file_is_plugin(const char *file, char item_out[XCCL_NET_ITEM_BYTES]);

/* ---- net_probe.c ---- */

/* A probe loads the file; or also makes an instance of a network plugin; or also begins as a tuner
 * and asks for choices. */
enum net_probe_depth { NET_PROBE_LOAD, NET_PROBE_INIT, NET_PROBE_TUNER };
enum net_probe_answer {
    NET_PROBE_BAD, /* it crashed, did not come back or was changed, as reason says */
    NET_PROBE_ABSENT, /* the loader finds no file of that name */
    NET_PROBE_GOOD, /* it came back, whatever it said; or probing is off or not possible here */
};
/* id: of the file; NULL: path is a soname, which the loader is asked for. */
enum net_probe_answer net_probe(const char *path, const struct xccl_file_id *id, int contract,
                                enum net_probe_depth depth, struct net_reason *reason);
/* An id as the probing process gets it. */
#define NET_PROBE_ID_BYTES 160
void net_probe_id_format(const struct xccl_file_id *id, char text_out[NET_PROBE_ID_BYTES]);
/* 1: the text is one. */
int net_probe_id_parse(const char *text, struct xccl_file_id *id_out);
/* What the probing process writes at the end. */
#define NET_PROBE_WORD_DONE   "done"
#define NET_PROBE_WORD_ABSENT "absent"

/* ---- net_contract.c ---- */

/* 1: the table is one of this contract and complete. */
int net_contract_check(const xcclNetPlugin_v1_t *plugin, struct net_reason *reason);
/* Copies what the plugin has and fills the rest with stubs. */
void net_contract_copy(const xcclNetPlugin_v1_t *plugin, xcclNetPlugin_v1_t *calls_out);

/* ---- net_library.c ---- */

/* Loads a file that was looked at, if it is still the same; NULL with a reason. */
void *net_file_load(const char *path, const struct xccl_file_id *id, struct net_reason *reason);
/* Loads the file that the loader finds under a soname and looks at it afterwards, since only the
 * loader knows where its cache leads; NULL with a reason. */
void *net_name_load(const char *soname, struct net_reason *reason);
void net_file_close(void *handle);

/* A loaded file. Stays where it is: tables point into it. */
struct net_library {
    void *handle;
    char path[NET_PATH_BYTES]; /* as the loader says */
    char contracts[NET_CONTRACTS_BYTES]; /* what it exports, newest first */
    int contract; /* the one taken */
    uint64_t build; /* 0: the file has no build id */
    xcclNetPlugin_v1_t calls; /* complete */
    struct nccl_source source; /* when it is NCCL's */
    char name[32]; /* when it is NCCL's: what calls.name points to */
};
/* Loads a file that was looked at (id), a soname (no slash) or NET_STATIC (id NULL). On failure
 * nothing stays loaded; contracts may be filled all the same. */
int net_library_open(struct net_library *library, const char *path, const struct xccl_file_id *id,
                     int contract, struct net_reason *reason);
void net_library_close(struct net_library *library);
/* The symbol of a contract; number 1 or 6 to 12. */
const char *net_contract_symbol(int contract);

/* ---- net_plugin.c ---- */

/* Who hears of each file that was looked at. */
struct net_teller {
    xccl_net_seen_fn *seen; /* NULL: the log alone */
    void *user;
};
/* Opens the first candidate of an item that works; why collects the refusals. list: the default
 * list that it is of; NULL: the user's. */
struct xccl_net *net_item_open(const char *text, const struct xccl_net_open_args *args,
                               const struct xccl_net_default *list, const struct net_teller *teller,
                               struct net_reason *why);
/* Opens this file, or this soname, and nothing else. For the probe. */
struct xccl_net *net_file_open(const char *path, int contract,
                               const struct xccl_net_open_args *args, struct net_reason *why);
/* 1: these words of the loader say that there is no file of that name. */
int net_is_absent(const char *loader_text);
/* A step before each thing that may not come back; NULL: nobody listens. For the probe. */
extern void (*net_stage_hook)(const char *stage);

/* ---- net_default.c ---- */

/* 1: a plugin of that list, opened, is for cards for which it is in the list. */
int net_default_fits(const struct xccl_net_default *list, const char *name, const char *provider,
                     struct net_reason *reason);
/* Warns, once a process, that the plugin of this machine's best cards is passed over. */
void net_default_tell(const struct xccl_net_default *list, const char *name, const char *why);

#endif
