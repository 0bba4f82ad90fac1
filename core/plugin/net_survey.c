/* SPDX-License-Identifier: BSD-3-Clause */
/* Everything that can be found, each opened and closed again, so that what is told is what a
 * communicator would get. Limits: a plugin that needs long for its init takes that long here.
 * Thread: any. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "plugin/net_plugin_int.h"

static const struct xccl_net_open_args survey_args = {
    .nranks = 1, .comm_name = "survey", .traffic_class = -1};

static void look(const char *item, const struct xccl_net_default *list,
                 const struct net_teller *teller)
{
    struct net_reason why = {""};

    xccl_net_close(net_item_open(item, &survey_args, list, teller, &why));
}

static int wanted(const struct dirent *entry)
{
    char item[XCCL_NET_ITEM_BYTES];

    return net_file_is_plugin(entry->d_name, item);
}

/* All plugin files of one folder, in the order of their names. */
static void look_in(const char *folder, const struct net_teller *teller)
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, wanted, alphasort);

    for (int i = 0; i < count; i++) {
        char path[NET_PATH_BYTES];

        if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name) <
            sizeof(path))
            look(path, NULL, teller);
        free(entries[i]);
    }
    free(entries);
}

xcclResult_t xccl_net_survey(int all, xccl_net_seen_fn *seen, void *user)
{
    const struct net_teller teller = {seen, user};
    char item[XCCL_NET_ITEM_BYTES];
    struct net_folders folders;
    const char *at, *named;
    xcclResult_t rc = xccl_param_load();

    if (rc != xcclSuccess)
        return rc;
    if (all) {
        net_folders_find(&folders);
        for (int i = 0; i < folders.count; i++)
            look_in(folders.path[i], &teller);
        return xcclSuccess;
    }
    named = xccl_param_string(XCCL_P_NET_PLUGIN);
    at = xccl_net_list_items(named);
    while (xccl_net_list_item(&at, item) && strcmp(item, "none") != 0)
        look(item, xccl_net_is_auto(named) ? xccl_net_default() : NULL, &teller);
    return xcclSuccess;
}
