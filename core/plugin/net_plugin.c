/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens network plugins: from the text of an item to one instance with at least one device.
 *
 *   item --search--> file --trusted?--> probe --> library --> hooks around it --> init --> devices
 *
 * Each candidate that falls out on the way leaves one log line and one part of the final error. A
 * name is sought on after a refused file: a second folder may hold a good one.
 *
 * Thread: any, during init and destroy of a communicator. */
#include "plugin/net_plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/param.h"
#include "plugin/net_plugin_int.h"

/* What an instance consists of: the plugin and the hooks around it, from the inside out. */
struct net_chain {
    struct net_library layers[NET_HOOKS_MAX + 1];
    xcclNetInner_v1 inners[NET_HOOKS_MAX + 1];
    const xcclNetInner_v1 *given[NET_HOOKS_MAX + 1]; /* to init of that layer; NULL: nothing */
    int count;
};

/* Where the files of an item are sought. */
struct attempt {
    struct net_item item;
    const char *text; /* of the item */
    const struct xccl_net_open_args *args;
    const struct xccl_net_default *list; /* it is of that one; NULL: of the user's */
    const struct net_teller *teller;
    struct net_reason *why; /* all refusals */
    int position; /* of the item in its list */
};

static void stage(const char *what)
{
    if (net_stage_hook)
        net_stage_hook(what);
}

/* What a plugin says while its init runs in this thread. */
struct said {
    char *info; /* the last line for users, of XCCL_NET_SAID_BYTES */
    char warnings[NET_REASON_BYTES]; /* all of them */
    int held; /* 1: the log gets the warnings when it is known whether the plugin is used */
};
static _Thread_local struct said *said_at; /* NULL: no init runs */

/* What a plugin has to say goes into our log. */
static void plugin_log(xcclNetLogLevel_t level, const char *line)
{
    enum xccl_log_level ours = XCCL_LOG_DEBUG;
    struct said *said = said_at;

    line = line ? line : "";
    if (level <= xcclNetLogError)
        ours = XCCL_LOG_ERROR;
    else if (level == xcclNetLogWarn)
        ours = XCCL_LOG_WARN;
    else if (level == xcclNetLogInfo)
        ours = XCCL_LOG_INFO;
    if (said && level == xcclNetLogInfo)
        snprintf(said->info, XCCL_NET_SAID_BYTES, "%s", line);
    if (said && level == xcclNetLogWarn) {
        size_t used = strlen(said->warnings);

        snprintf(said->warnings + used, sizeof(said->warnings) - used, "%s%s", used ? "; " : "",
                 line);
    }
    if (!said || !said->held || level != xcclNetLogWarn)
        xccl_log(ours, "%s", line);
}

static const char *plugin_text(const struct xccl_net *net)
{
    const char *text = net->calls.lastError(net->ctx);

    return text && *text ? text : "it does not say why";
}

/* ---- one instance ---- */

/* Two ranks must have it in common: "socket/xccl1/2", "ofi/xccl1/1/tcp", "ib/nccl12/2", and in
 * front of it each hook that changes the bytes on the wire. */
static int name_wire(struct xccl_net *net, const char *provider, struct net_reason *reason)
{
    const struct net_library *plugin = &net->chain->layers[0];
    size_t used = 0;

    for (int i = net->chain->count - 1; i > 0; i--) {
        const xcclNetPlugin_v1_t *hook = &net->chain->layers[i].calls;

        if (hook->wireVersion && used < sizeof(net->wire_id))
            used += (size_t)snprintf(net->wire_id + used, sizeof(net->wire_id) - used, "%s/%u+",
                                     hook->name, hook->wireVersion);
    }
    if (used < sizeof(net->wire_id) && plugin->contract != NET_CONTRACT_XCCL)
        used += (size_t)snprintf(net->wire_id + used, sizeof(net->wire_id) - used, "%s/nccl%d/%u",
                                 plugin->calls.name, plugin->contract, plugin->calls.wireVersion);
    else if (used < sizeof(net->wire_id))
        used += (size_t)snprintf(net->wire_id + used, sizeof(net->wire_id) - used,
                                 "%s/xccl1/%u%s%s", plugin->calls.name, plugin->calls.wireVersion,
                                 provider ? "/" : "", provider ? provider : "");
    if (used < sizeof(net->wire_id))
        return 1;
    net_reason_set(
        reason,
        "the names of the plugin, its hooks and its provider have more than %zu letters in all",
        sizeof(net->wire_id) - 1);
    return 0;
}

/* Runs init; what it says is kept. */
static xcclResult_t instance_init(struct xccl_net *net, const struct xccl_net_open_args *args,
                                  struct said *said)
{
    struct net_chain *chain = net->chain;
    xcclNetInit_v1 init = {
        .size = sizeof(init),
        .commId = args->comm_id,
        .rank = args->rank,
        .nranks = args->nranks,
        .commName = args->comm_name ? args->comm_name : "",
        .log = plugin_log,
        .trafficClass = args->traffic_class,
        .inner = chain->given[chain->count - 1],
        .metAddress = args->met_address,
        .encrypt = (int32_t)xccl_param_int(XCCL_P_NET_ENCRYPT),
    };
    xcclResult_t rc;

    stage("init");
    xccl_net_enter(net->watch, net->position, XCCL_NET_INIT);
    said_at = said;
    rc = net->calls.init(&init, &net->ctx);
    said_at = NULL;
    xccl_net_leave(net->watch);
    if (rc != xcclSuccess)
        net->ctx = NULL;
    return rc;
}

/* Refuses an instance that cannot protect payload as the setting asks; 1: it can. */
static int encrypts_enough(struct xccl_net *net, struct net_reason *reason)
{
    int64_t asked = xccl_param_int(XCCL_P_NET_ENCRYPT);

    for (int dev = 0; asked && dev < net->device_count; dev++) {
        xcclNetProperties_v1 props = {.size = sizeof(props)};

        if (net->calls.properties(net->ctx, dev, &props) == xcclSuccess &&
            props.flags & XCCL_NET_DEVICE_ENCRYPTS)
            continue;
        net_reason_set(reason,
                       "XCCL_NET_ENCRYPT=%s is set, and this plugin can neither encrypt nor "
                       "authenticate what it sends; the socket plugin can",
                       asked == XCCL_NET_ENCRYPT_MAC ? "mac" : "1");
        return 0;
    }
    return 1;
}

/* Whether the instance can be used, and for what. */
static int instance_check(struct xccl_net *net, const struct attempt *attempt,
                          const struct said *said, struct net_reason *reason)
{
    xcclNetProperties_v1 props = {.size = sizeof(props)};
    xcclResult_t rc;

    stage("devices");
    xccl_net_enter(net->watch, net->position, XCCL_NET_DEVICES);
    rc = net->calls.devices(net->ctx, &net->device_count);
    xccl_net_leave(net->watch);
    if (rc != xcclSuccess) {
        net_reason_set(reason, "devices failed (%s): %s", xccl_result_text(rc), plugin_text(net));
        return 0;
    }
    if (net->device_count <= 0) {
        net_reason_set(reason, "it finds no device on this machine%s%.600s",
                       said->warnings[0] ? ": " : "", said->warnings);
        return 0;
    }
    stage("properties");
    if (net->calls.properties(net->ctx, 0, &props) != xcclSuccess)
        props.provider = NULL;
    return encrypts_enough(net, reason) && name_wire(net, props.provider, reason) &&
           (!attempt->list ||
            net_default_fits(attempt->list, attempt->text, props.provider, reason));
}

/* Runs init and asks for devices; on failure nothing is left. */
static int instance_start(struct xccl_net *net, const struct attempt *attempt,
                          struct net_reason *reason)
{
    struct net_library *plugin = &net->chain->layers[0];
    struct said said = {.info = net->said, .held = attempt->list != NULL};
    xcclResult_t rc = instance_init(net, attempt->args, &said);

    if (rc != xcclSuccess) {
        net_reason_set(reason, "init failed (%s): %s", xccl_result_text(rc), plugin_text(net));
        return 0;
    }
    if (net->is_nccl) {
        nccl_tables_lock();
        nccl_name(&plugin->source, plugin->name); /* init may have filled it in */
        nccl_tables_unlock();
    }
    if (instance_check(net, attempt, &said, reason)) {
        if (said.held && said.warnings[0])
            xccl_log(XCCL_LOG_WARN, "%s", said.warnings);
        return 1;
    }
    stage("finalize");
    net->calls.finalize(net->ctx);
    return 0;
}

static void chain_close(struct net_chain *chain)
{
    while (chain->count > 0)
        net_library_close(&chain->layers[--chain->count]);
}

static int hook_open(struct xccl_net *net, const char *name, struct net_reason *reason);

/* Loads the plugin's file and the hooks, from the inside out. */
static int chain_open(struct xccl_net *net, const struct net_item *item, const char *path,
                      const struct xccl_file_id *id, struct net_reason *reason)
{
    struct net_chain *chain = net->chain;

    if (!net_library_open(&chain->layers[0], path, id, item->contract, reason))
        return 0;
    if (chain->layers[0].contract != NET_CONTRACT_XCCL)
        chain->given[0] = &chain->layers[0].source.inner;
    chain->count = 1;
    snprintf(net->path, sizeof(net->path), "%s", chain->layers[0].path);
    snprintf(net->contract, sizeof(net->contract), "%s",
             net_contract_symbol(chain->layers[0].contract));
    net->is_nccl = chain->layers[0].contract != NET_CONTRACT_XCCL;
    net->build = chain->layers[0].build;
    for (int i = item->hook_count - 1; i >= 0; i--) {
        if (!hook_open(net, item->hooks[i], reason)) {
            chain_close(chain);
            return 0;
        }
    }
    net->calls = chain->layers[chain->count - 1].calls;
    return 1;
}

/* The first file of that name that loads; a hook comes with XCCL or from XCCL_PLUGIN_PATH. */
static int hook_open(struct xccl_net *net, const char *name, struct net_reason *reason)
{
    struct net_chain *chain = net->chain;
    struct net_folders folders;
    struct net_reason why = {""};
    struct xccl_file_id id;
    char path[NET_PATH_BYTES + NET_HOOK_BYTES + 32];

    net_folders_find(&folders);
    for (int i = 0; i < folders.count; i++) {
        snprintf(path, sizeof(path), "%s/libxccl-net-%s.so", folders.path[i], name);
        if (!net_file_exists(path))
            continue;
        why.text[0] = 0;
        if (!net_file_trusted(path, &id, &why) ||
            net_probe(path, &id, NET_CONTRACT_XCCL, NET_PROBE_LOAD, &why) == NET_PROBE_BAD ||
            !net_library_open(&chain->layers[chain->count], path, &id, NET_CONTRACT_XCCL, &why))
            continue;
        chain->inners[chain->count] = (xcclNetInner_v1){
            .size = sizeof(xcclNetInner_v1),
            .plugin = &chain->layers[chain->count - 1].calls,
            .inner = chain->given[chain->count - 1]};
        chain->given[chain->count] = &chain->inners[chain->count];
        chain->count++;
        return 1;
    }
    net_reason_set(reason, "hook %s: %.600s", name,
                   why.text[0] ? why.text : "no libxccl-net-NAME.so of that name was found");
    return 0;
}

static struct xccl_net *net_alloc(const struct attempt *attempt)
{
    struct xccl_net *net = xccl_calloc(1, sizeof(*net));

    if (!net)
        return NULL;
    net->chain = xccl_calloc(1, sizeof(*net->chain));
    if (!net->chain) {
        xccl_free(net);
        return NULL;
    }
    snprintf(net->item, sizeof(net->item), "%s", attempt->text);
    net->position = attempt->position;
    net->watch = attempt->args->watch ? attempt->args->watch : &net->own_watch;
    return net;
}

static void net_free(struct xccl_net *net)
{
    xccl_free(net->chain);
    xccl_free(net);
}

/* Opens one file, or one soname when path has no slash. NULL: refused, and reason says why. */
static struct xccl_net *file_open(const struct attempt *attempt, const char *path,
                                  char contracts_out[NET_CONTRACTS_BYTES],
                                  struct net_reason *reason)
{
    int is_path = strchr(path, '/') != NULL, in_program = strcmp(path, NET_STATIC) == 0;
    struct xccl_file_id looked_at;
    const struct xccl_file_id *id = is_path ? &looked_at : NULL;
    struct xccl_net *net;

    if (is_path && !net_file_trusted(path, &looked_at, reason))
        return NULL;
    if (!in_program &&
        net_probe(path, id, attempt->item.contract, NET_PROBE_INIT, reason) == NET_PROBE_BAD)
        return NULL;
    net = net_alloc(attempt);
    if (!net) {
        net_reason_set(reason, "no memory");
        return NULL;
    }
    if (chain_open(net, &attempt->item, path, id, reason)) {
        memcpy(contracts_out, net->chain->layers[0].contracts, NET_CONTRACTS_BYTES);
        if (instance_start(net, attempt, reason))
            return net;
        chain_close(net->chain);
    } else {
        memcpy(contracts_out, net->chain->layers[0].contracts, NET_CONTRACTS_BYTES);
    }
    net_free(net);
    return NULL;
}

void xccl_net_close(struct xccl_net *net)
{
    xcclResult_t rc;

    if (!net)
        return;
    stage("finalize");
    xccl_net_enter(net->watch, net->position, XCCL_NET_FINALIZE);
    rc = net->calls.finalize(net->ctx);
    xccl_net_leave(net->watch);
    if (rc != xcclSuccess) {
        net->ctx = NULL; /* gone, but the text is the thread's */
        xccl_log(XCCL_LOG_WARN, "network plugin %s cannot finalize: %s", net->calls.name,
                 plugin_text(net));
    }
    chain_close(net->chain);
    net_free(net);
}

/* ---- the candidates of an item ---- */

/* Tells one candidate's fate, and adds a refusal to why. */
static void tell(const struct attempt *attempt, const char *path, const char *contracts,
                 const struct xccl_net *net, const struct net_reason *reason)
{
    struct xccl_net_candidate candidate = {.item = attempt->text,
                                           .path = net ? net->path : path,
                                           .contracts = contracts,
                                           .reason = net ? NULL : reason->text,
                                           .net = net};
    struct net_reason fate;

    if (net)
        net_reason_set(&fate, "taken: %s, contract %s, %d device%s, wire %s", net->path,
                       net->contract, net->device_count, net->device_count == 1 ? "" : "s",
                       net->wire_id);
    else if (*path)
        net_reason_set(&fate, "%.200s refused: %.540s", path, reason->text);
    else
        fate = *reason;
    if (!net)
        net_reason_add(attempt->why, fate.text);
    if (attempt->teller && attempt->teller->seen)
        attempt->teller->seen(attempt->teller->user, &candidate);
    else
        xccl_log(XCCL_LOG_INFO, "network plugin %.255s: %s", attempt->text, fate.text);
}

/* Tries one file of an item. */
static struct xccl_net *candidate_open(const struct attempt *attempt, const char *path)
{
    char contracts[NET_CONTRACTS_BYTES] = "";
    struct net_reason reason = {""};
    struct xccl_net *net = file_open(attempt, path, contracts, &reason);

    tell(attempt, path, contracts, net, &reason);
    return net;
}

/* Opens the first usable file of that name in some folders; seen_out: there were files. */
static struct xccl_net *folders_open(const struct attempt *attempt, const char *soname,
                                     const struct net_folders *folders, int *seen_out)
{
    char path[NET_PATH_BYTES + XCCL_NET_ITEM_BYTES + 32];
    struct xccl_net *net = NULL;

    for (int at = 0; !net && net_folders_next(folders, &at, soname, path, sizeof(path));) {
        *seen_out = 1;
        net = candidate_open(attempt, path);
    }
    return net;
}

/* The loader's own path. Not being there is no refusal of its own: the caller lists what was
 * sought. */
static struct xccl_net *system_open(const struct attempt *attempt, const char *soname)
{
    struct net_folders folders;
    struct net_reason why = {""};
    enum net_probe_answer answer;
    struct xccl_net *net;
    void *handle;
    int seen = 0;

    net_folders_of_loader(soname, &folders);
    net = folders_open(attempt, soname, &folders, &seen);
    if (seen) /* the loader would take a refused one all the same */
        return net;
    answer = net_probe(soname, NULL, NET_CONTRACT_XCCL, NET_PROBE_LOAD, &why);
    if (answer == NET_PROBE_ABSENT)
        return NULL;
    if (answer == NET_PROBE_GOOD) { /* or not tried at all */
        handle = dlopen(soname, RTLD_LAZY | RTLD_LOCAL);
        if (!handle && net_is_absent(dlerror()))
            return NULL;
        if (handle)
            dlclose(handle);
    }
    return candidate_open(attempt, soname);
}

static struct xccl_net *prefix_open(const struct attempt *attempt, const char *prefix,
                                    const struct net_folders *folders)
{
    char soname[XCCL_NET_ITEM_BYTES + 32];
    struct xccl_net *net;
    int seen = 0;

    snprintf(soname, sizeof(soname), "%s%s.so", prefix, attempt->item.name);
    net = folders_open(attempt, soname, folders, &seen);
    if (net || xccl_os_cannot_load())
        return net;
    return system_open(attempt, soname);
}

static struct xccl_net *name_open(const struct attempt *attempt)
{
    struct net_folders folders;
    struct net_reason sought = {""};
    struct xccl_net *net;

    net_folders_find(&folders);
    net = prefix_open(attempt, "libxccl-net-", &folders);
    if (!net && !attempt->list) /* the list of the machine's cards means our own */
        net = prefix_open(attempt, "libnccl-net-", &folders);
    if (net || attempt->why->text[0])
        return net;
    net_reason_set(&sought, "libxccl-net-%.200s.so not found in", attempt->item.name);
    for (int i = 0; i < folders.count; i++) {
        size_t used = strlen(sought.text);

        snprintf(sought.text + used, sizeof(sought.text) - used, " %s,", folders.path[i]);
    }
    snprintf(sought.text + strlen(sought.text), sizeof(sought.text) - strlen(sought.text),
             " nor on the system's path, and no libnccl-net-%.64s.so either", attempt->item.name);
    tell(attempt, "", "", NULL, &sought);
    return NULL;
}

static struct xccl_net *attempt_open(struct attempt *attempt)
{
    struct net_reason reason = {""};

    if (!net_item_parse(attempt->text, &attempt->item, &reason)) {
        tell(attempt, "", "", NULL, &reason);
        return NULL;
    }
    if (strchr(attempt->item.name, '/') || strcmp(attempt->item.name, NET_STATIC) == 0)
        return candidate_open(attempt, attempt->item.name);
    return name_open(attempt);
}

struct xccl_net *net_item_open(const char *text, const struct xccl_net_open_args *args,
                               const struct xccl_net_default *list, const struct net_teller *teller,
                               struct net_reason *why)
{
    struct attempt attempt = {
        .text = text, .args = args, .list = list, .teller = teller, .why = why};

    return attempt_open(&attempt);
}

struct xccl_net *net_file_open(const char *path, int contract,
                               const struct xccl_net_open_args *args, struct net_reason *why)
{
    const struct attempt attempt = {
        .item = {.contract = contract}, .text = path, .args = args, .why = why};

    return candidate_open(&attempt, path);
}

/* ---- lists ---- */

xcclResult_t xccl_net_open_item(const char *item, const struct xccl_net_open_args *args,
                                struct xccl_net **net_out)
{
    struct net_reason why = {""};
    struct xccl_net *net = NULL;
    xcclResult_t rc = xccl_param_load();

    if (rc != xcclSuccess)
        return rc;
    net = net_item_open(item, args, NULL, NULL, &why);
    if (!net)
        return xccl_fail(xcclSystemError, 0, "check XCCL_NET_PLUGIN and XCCL_PLUGIN_PATH",
                         "network plugin %.64s cannot be used: %.360s", item, why.text);
    *net_out = net;
    return xcclSuccess;
}

xcclResult_t xccl_net_open_list(const char *list, const struct xccl_net_open_args *args,
                                struct xccl_net *nets_out[], int max, int *count_out)
{
    const struct xccl_net_default *own = xccl_net_is_auto(list) ? xccl_net_default() : NULL;
    struct net_reason all = {""};
    char item[XCCL_NET_ITEM_BYTES];
    const char *at = xccl_net_list_items(list);
    int count = 0;

    for (int position = 0; count < max && xccl_net_list_item(&at, item); position++) {
        struct net_reason why = {""}, named;
        struct attempt attempt = {
            .text = item, .args = args, .list = own, .why = &why, .position = position};

        if (strcmp(item, "none") == 0) {
            if (count == 0)
                return xccl_fail(xcclInvalidUsage, 0,
                                 "name a plugin in XCCL_NET_PLUGIN, or start all ranks on one host",
                                 "XCCL_NET_PLUGIN=none allows ranks on one host only%s%.300s",
                                 all.text[0] ? "; before it: " : "", all.text);
            break;
        }
        nets_out[count] = attempt_open(&attempt);
        if (nets_out[count])
            count++;
        else if (own)
            net_default_tell(own, item, why.text);
        net_reason_set(&named, "%.64s: %.600s", item, why.text);
        if (why.text[0]) /* a path is named already */
            net_reason_add(&all, strncmp(why.text, item, strlen(item)) ? named.text : why.text);
    }
    if (max > 1 && count == max && xccl_net_list_item(&at, item))
        xccl_log(XCCL_LOG_INFO,
                 "network plugin %s and the ones after it are not opened: at most %d are used",
                 item, max);
    if (count == 0)
        return xccl_fail(xcclSystemError, 0, "check XCCL_NET_PLUGIN and XCCL_PLUGIN_PATH",
                         "no usable network plugin: %.380s",
                         all.text[0] ? all.text : "XCCL_NET_PLUGIN names no plugin");
    *count_out = count;
    return xcclSuccess;
}
