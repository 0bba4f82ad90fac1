/* SPDX-License-Identifier: BSD-3-Clause */
/* From the text of an item to the table of a file:
 *
 *   item --search--> file --trusted?--> loaded --symbol?--> table --taker--> kept
 *
 * A name is sought on after a refused file: a second folder may hold a good one. But a table that
 * the taker refuses ends the search, for it is the plugin that was meant. Thread: any. */
#include "plugin/algo_library.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "plugin/plugin_file.h"

#define SYMBOL "xcclAlgoPlugin_v1"

/* What came of an item so far. */
struct search {
    const char *item;
    xccl_algo_taker_fn *take;
    struct net_reason why; /* all refusals */
    int taken;
};

/* Adds a refusal, with its line. */
static void refused(struct search *search, const char *path, const struct net_reason *reason)
{
    struct net_reason line = {""};

    net_reason_set(&line, "%.300s: %.400s", path, reason->text);
    net_reason_add(&search->why, line.text);
    xccl_log(XCCL_LOG_INFO, "algorithm plugin %.100s: refused: %s", search->item, line.text);
}

/* An error is the taker's. */
static xcclResult_t try_file(struct search *search, const char *path)
{
    const void *table;
    struct net_reason reason = {""};
    struct xccl_file_id id;
    void *handle = NULL;
    xcclResult_t rc;

    if (net_file_trusted(path, &id, &reason))
        handle = plugin_file_load(path, &id, "algorithm", SYMBOL, &table, &reason);
    if (!handle) {
        refused(search, path, &reason);
        return xcclSuccess;
    }
    rc = search->take(table, path);
    if (rc == xcclSuccess) {
        plugin_file_keep(path);
        search->taken = 1;
        xccl_log(XCCL_LOG_INFO, "algorithm plugin %.100s: taken from %s", search->item, path);
    }
    net_file_close(handle);
    return rc;
}

static xcclResult_t try_name(struct search *search)
{
    char path[PLUGIN_PATH_BYTES];
    struct net_folders folders;
    int seen = 0;

    net_folders_find(&folders);
    for (int i = 0; i < folders.count && !search->taken; i++) {
        xcclResult_t rc;

        snprintf(path, sizeof(path), "%s/libxccl-algo-%s.so", folders.path[i], search->item);
        if (!net_file_exists(path))
            continue;
        seen = 1;
        rc = try_file(search, path);
        if (rc)
            return rc;
    }
    if (!seen)
        plugin_tell_folders(&folders, &search->why);
    return xcclSuccess;
}

static xcclResult_t item_load(const char *item, xccl_algo_taker_fn *take)
{
    struct search search = {.item = item, .take = take};
    int is_path = strchr(item, '/') != NULL;
    const char *todo = "correct XCCL_ALGO_PLUGIN or XCCL_PLUGIN_PATH";
    xcclResult_t rc = is_path ? try_file(&search, item) : try_name(&search);

    if (rc || search.taken)
        return rc;
    if (!is_path && strstr(item, ".so"))
        todo = "write ./ in front of a file in this folder: a path must contain a slash";
    return xccl_fail(xcclInvalidUsage, 0, todo, "algorithm plugin %.60s cannot be used: %.330s",
                     item, search.why.text);
}

xcclResult_t xccl_algo_libraries_load(const char *list, xccl_algo_taker_fn *take)
{
    char item[XCCL_NET_ITEM_BYTES];
    xcclResult_t rc = xcclSuccess;

    while (!rc && xccl_net_list_item(&list, item))
        rc = item_load(item, take);
    return rc;
}
