/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads and opens network plugins: from the list of names to one instance with at least one device.
 *
 *   name --search--> file --trusted?--> dlopen --symbol--> contract complete? --init--> devices > 0
 *
 * Each candidate that falls out on the way leaves one log line and one part of the final error. A
 * name is sought on after a refused file: a second folder may hold a good one. Files of the
 * loader's own path are looked at after loading, since only the loader knows where that path leads.
 *
 * Thread: any, during init and destroy of a communicator. */
#include "plugin/net_plugin.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/param.h"
#include "plugin/net_plugin_int.h"

#define CONTRACT   "xcclNetPlugin_v1"
#define NAME_BYTES 256 /* of one item of the list, paths are longer than that only by mistake */

/* What a plugin has to say goes into our log. */
static void plugin_log(xcclNetLogLevel_t level, const char *line)
{
    enum xccl_log_level ours = XCCL_LOG_DEBUG;

    if (level <= xcclNetLogError)
        ours = XCCL_LOG_ERROR;
    else if (level == xcclNetLogWarn)
        ours = XCCL_LOG_WARN;
    else if (level == xcclNetLogInfo)
        ours = XCCL_LOG_INFO;
    xccl_log(ours, "%s", line ? line : "");
}

static const char *plugin_text(const struct xccl_net *net)
{
    const char *text = net->calls.lastError(net->ctx);

    return text && *text ? text : "it does not say why";
}

/* Runs init and asks for devices; on failure nothing is left. */
static int instance_start(struct xccl_net *net, const struct xccl_net_open_args *args,
                          struct net_reason *reason)
{
    xcclNetInit_v1 init = {
        .size = sizeof(init),
        .commId = args->comm_id,
        .rank = args->rank,
        .nranks = args->nranks,
        .commName = args->comm_name ? args->comm_name : "",
        .log = plugin_log,
        .trafficClass = -1,
    };
    xcclResult_t rc = net->calls.init(&init, &net->ctx);

    if (rc != xcclSuccess) {
        net->ctx = NULL;
        net_reason_set(reason, "init failed (%s): %s", xccl_result_text(rc), plugin_text(net));
        return 0;
    }
    rc = net->calls.devices(net->ctx, &net->device_count);
    if (rc == xcclSuccess && net->device_count > 0)
        return 1;
    if (rc != xcclSuccess)
        net_reason_set(reason, "devices failed (%s): %s", xccl_result_text(rc), plugin_text(net));
    else
        net_reason_set(reason, "it finds no device on this machine");
    net->calls.finalize(net->ctx);
    return 0;
}

/* Takes the symbol out of a loaded library; on failure the caller unloads. */
static int library_bind(struct xccl_net *net, const struct xccl_net_open_args *args,
                        struct net_reason *reason)
{
    const xcclNetPlugin_v1_t *plugin = dlsym((void *)net->chain, CONTRACT);

    if (!plugin) {
        net_reason_set(reason, "it has no symbol " CONTRACT);
        return 0;
    }
    if (!net_contract_check(plugin, reason))
        return 0;
    net_contract_copy(plugin, &net->calls);
    if (!instance_start(net, args, reason))
        return 0;
    snprintf(net->wire_id, sizeof(net->wire_id), "%s/xccl1/%u", net->calls.name,
             net->calls.wireVersion);
    return 1;
}

/* Where the loader found it. */
static void library_path(void *library, char path_out[NET_PATH_BYTES])
{
    struct link_map *map = NULL;

    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name)
        snprintf(path_out, NET_PATH_BYTES, "%s", map->l_name);
}

/* Opens one file, or one soname when path has no slash. NULL: refused, and reason says why. */
static struct xccl_net *file_open(const char *path, const struct xccl_net_open_args *args,
                                  struct net_reason *reason)
{
    int sought = strchr(path, '/') == NULL;
    struct xccl_net *net;

    if (!sought && !net_file_trusted(path, reason))
        return NULL;
    net = xccl_calloc(1, sizeof(*net));
    if (!net) {
        net_reason_set(reason, "no memory");
        return NULL;
    }
    net->chain = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!net->chain) {
        const char *text = dlerror();

        net_reason_set(reason, "%s", text ? text : "the loader refuses it");
        goto err_net;
    }
    library_path((void *)net->chain, net->path);
    if (sought && !net_file_trusted(net->path, reason))
        goto err_library;
    if (!library_bind(net, args, reason))
        goto err_library;
    return net;
err_library:
    dlclose((void *)net->chain);
err_net:
    xccl_free(net);
    return NULL;
}

/* A candidate's fate goes to the log, or to a survey's line. */
struct teller {
    void (*line)(void *user, const char *text);
    void *user;
};

static void tell(const struct teller *teller, const char *name, const char *fate)
{
    char text[NET_REASON_BYTES + NAME_BYTES + 64];

    snprintf(text, sizeof(text), "network plugin %s: %s", name, fate);
    if (teller->line)
        teller->line(teller->user, text);
    else
        xccl_log(XCCL_LOG_INFO, "%s", text);
}

/* Tries one file of a name: tells its fate, and adds a refusal to why. */
static struct xccl_net *candidate_open(const char *name, const char *path,
                                       const struct xccl_net_open_args *args,
                                       const struct teller *teller, struct net_reason *why)
{
    struct net_reason reason = {""}, fate;
    struct xccl_net *net = file_open(path, args, &reason);

    if (net) {
        net_reason_set(&fate, "taken: %s, %d device%s, wire %s", net->path, net->device_count,
                       net->device_count == 1 ? "" : "s", net->wire_id);
        tell(teller, name, fate.text);
        return net;
    }
    net_reason_set(&fate, "%.300s refused: %.400s", path, reason.text);
    tell(teller, name, fate.text);
    net_reason_add(why, fate.text);
    return NULL;
}

/* The loader's own path. Not being there is no refusal of its own: the caller lists what was
 * sought. */
static struct xccl_net *system_open(const char *name, const char *soname,
                                    const struct xccl_net_open_args *args,
                                    const struct teller *teller, struct net_reason *why)
{
    void *probe = dlopen(soname, RTLD_LAZY | RTLD_LOCAL);
    struct xccl_net *net;

    if (!probe) {
        const char *text = dlerror();

        if (text && !strstr(text, "cannot open shared object file")) {
            tell(teller, name, text);
            net_reason_add(why, text);
        }
        return NULL;
    }
    net = candidate_open(name, soname, args, teller, why);
    dlclose(probe);
    return net;
}

static struct xccl_net *name_open(const char *name, const struct xccl_net_open_args *args,
                                  const struct teller *teller, struct net_reason *why)
{
    struct net_folders folders;
    struct net_reason sought = {""};
    char soname[NAME_BYTES + 32], path[NET_PATH_BYTES + NAME_BYTES + 32];
    struct xccl_net *net;

    snprintf(soname, sizeof(soname), "libxccl-net-%s.so", name);
    net_folders_find(&folders);
    for (int i = 0; i < folders.count; i++) {
        snprintf(path, sizeof(path), "%s/%s", folders.path[i], soname);
        if (!net_file_exists(path))
            continue;
        net = candidate_open(name, path, args, teller, why);
        if (net)
            return net;
    }
    net = system_open(name, soname, args, teller, why);
    if (net || why->text[0])
        return net;
    net_reason_set(&sought, "%s not found in", soname);
    for (int i = 0; i < folders.count; i++) {
        size_t used = strlen(sought.text);

        snprintf(sought.text + used, sizeof(sought.text) - used, " %s,", folders.path[i]);
    }
    net_reason_set(why, "%.700s nor on the system's path", sought.text);
    tell(teller, name, why->text);
    return NULL;
}

/* The next item of the list without blanks around; 0 at the end. Items that do not fit are cut and
 * then not found, which names them. */
static int list_next(const char **at, char item_out[NAME_BYTES])
{
    while (**at) {
        const char *first = *at + strspn(*at, " \t,");
        size_t bytes = strcspn(first, ",");

        *at = first + bytes;
        while (bytes > 0 && (first[bytes - 1] == ' ' || first[bytes - 1] == '\t'))
            bytes--;
        if (bytes == 0)
            continue;
        snprintf(item_out, NAME_BYTES, "%.*s", (int)(bytes < NAME_BYTES ? bytes : NAME_BYTES - 1),
                 first);
        return 1;
    }
    return 0;
}

static struct xccl_net *item_open(const char *item, const struct xccl_net_open_args *args,
                                  const struct teller *teller, struct net_reason *why)
{
    if (strchr(item, '/'))
        return candidate_open(item, item, args, teller, why);
    return name_open(item, args, teller, why);
}

xcclResult_t xccl_net_open(const struct xccl_net_open_args *args, struct xccl_net **net_out)
{
    const struct teller teller = {NULL, NULL};
    struct net_reason all = {""};
    char item[NAME_BYTES];
    const char *at;
    xcclResult_t rc = xccl_param_load();

    if (rc != xcclSuccess)
        return rc;
    at = xccl_param_string(XCCL_P_NET_PLUGIN);
    while (list_next(&at, item)) {
        struct net_reason why = {""}, named;
        struct xccl_net *net;

        if (strcmp(item, "none") == 0)
            return xccl_fail(xcclInvalidUsage, 0,
                             "name a plugin there, or keep all ranks on one node",
                             "XCCL_NET_PLUGIN=none allows one node only%s%s",
                             all.text[0] ? "; before it: " : "", all.text);
        net = item_open(item, args, &teller, &why);
        if (net) {
            *net_out = net;
            return xcclSuccess;
        }
        net_reason_set(&named, "%.64s: %.600s", item, why.text);
        net_reason_add(&all, named.text);
    }
    return xccl_fail(xcclSystemError, 0, "see XCCL_NET_PLUGIN and XCCL_PLUGIN_PATH",
                     "no usable network plugin: %.380s",
                     all.text[0] ? all.text : "XCCL_NET_PLUGIN names none");
}

void xccl_net_close(struct xccl_net *net)
{
    if (!net)
        return;
    if (net->calls.finalize(net->ctx) != xcclSuccess) {
        net->ctx = NULL; /* gone, but the text is the thread's */
        xccl_log(XCCL_LOG_WARN, "network plugin %s cannot finalize: %s", net->calls.name,
                 plugin_text(net));
    }
    dlclose((void *)net->chain);
    xccl_free(net);
}

xcclResult_t xccl_net_open_item(const char *item, const struct xccl_net_open_args *args,
                                struct xccl_net **net_out)
{
    const struct teller teller = {NULL, NULL};
    struct net_reason why = {""};
    struct xccl_net *net = item_open(item, args, &teller, &why);

    if (!net)
        return xccl_fail(xcclSystemError, 0, "see XCCL_NET_PLUGIN and XCCL_PLUGIN_PATH",
                         "no usable network plugin: %.380s", why.text);
    snprintf(net->item, sizeof(net->item), "%s", item);
    snprintf(net->contract, sizeof(net->contract), "%s", CONTRACT);
    *net_out = net;
    return xcclSuccess;
}

xcclResult_t xccl_net_survey(int all, xccl_net_seen_fn *seen, void *user)
{
    const struct teller teller = {NULL, NULL};
    const struct xccl_net_open_args args = {.nranks = 1, .comm_name = "survey"};
    char item[NAME_BYTES];
    const char *at;
    xcclResult_t rc = xccl_param_load();

    (void)all;
    if (rc != xcclSuccess)
        return rc;
    at = xccl_param_string(XCCL_P_NET_PLUGIN);
    while (list_next(&at, item) && strcmp(item, "none") != 0) {
        struct net_reason why = {""};
        struct xccl_net *net = item_open(item, &args, &teller, &why);
        struct xccl_net_candidate candidate = {item, net ? net->path : "", net ? CONTRACT : "",
                                               net ? NULL : why.text, net};

        seen(user, &candidate);
        xccl_net_close(net);
    }
    return xcclSuccess;
}
