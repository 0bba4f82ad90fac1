/* SPDX-License-Identifier: BSD-3-Clause */
/* The text of an item: [HOOK:]...NAME|PATH[@CONTRACT]. Colons before the first slash separate
 * hooks; only a known contract behind the last @ is one, so that paths may hold either sign.
 * Thread: any. */
#include <stdio.h>
#include <string.h>

#include "plugin/net_plugin_int.h"

#define NAME_SIGNS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+"

/* The contract of what stands behind the @; 0: none of that name. */
static int contract_of(const char *text)
{
    char known[16];

    if (strcmp(text, "xccl1") == 0)
        return NET_CONTRACT_XCCL;
    for (int version = NCCL_NET_OLDEST; version <= NCCL_NET_NEWEST; version++) {
        snprintf(known, sizeof(known), "v%d", version);
        if (strcmp(text, known) == 0)
            return version;
    }
    return 0;
}

/* A path may end in an @ of its own, so only what looks like a version is meant as one. */
static int looks_like_contract(const char *text)
{
    const char *digits = strncmp(text, "xccl", 4) == 0 ? text + 4 : text + (*text == 'v');

    return digits > text && *digits && digits[strspn(digits, "0123456789")] == 0;
}

/* Takes the hooks off the front; the rest stays in item->name. */
static int take_hooks(struct net_item *item, struct net_reason *reason)
{
    for (;;) {
        char *colon = strchr(item->name, ':'), *slash = strchr(item->name, '/');
        size_t bytes = colon ? (size_t)(colon - item->name) : 0;

        if (!colon || (slash && slash < colon))
            return 1;
        if (item->hook_count == NET_HOOKS_MAX || bytes == 0 || bytes >= NET_HOOK_BYTES) {
            net_reason_set(
                reason,
                "\"%.64s\": write at most %d hooks of 1 to %d letters in front of the plugin",
                item->name, NET_HOOKS_MAX, NET_HOOK_BYTES - 1);
            return 0;
        }
        memcpy(item->hooks[item->hook_count], item->name, bytes);
        item->hooks[item->hook_count++][bytes] = 0;
        memmove(item->name, colon + 1, strlen(colon + 1) + 1);
    }
}

int net_item_parse(const char *text, struct net_item *item_out, struct net_reason *reason)
{
    struct net_item item = {.hook_count = 0};
    const char *at;
    int is_path;

    /* One that fills the room has been cut by the list. */
    if ((size_t)snprintf(item.name, sizeof(item.name), "%s", text) >= sizeof(item.name) - 1) {
        net_reason_set(reason, "it has more than %zu letters", sizeof(item.name) - 2);
        return 0;
    }
    if (!take_hooks(&item, reason))
        return 0;
    at = strrchr(item.name, '@');
    item.contract = at ? contract_of(at + 1) : 0;
    if (item.contract)
        item.name[at - item.name] = 0;
    is_path = strchr(item.name, '/') != NULL;
    if (at && !item.contract &&
        (!is_path || (looks_like_contract(at + 1) && !net_file_exists(item.name)))) {
        net_reason_set(reason, "\"%.128s\": only xccl1 or v%d to v%d may follow the @", item.name,
                       NCCL_NET_OLDEST, NCCL_NET_NEWEST);
        return 0;
    }
    if (!is_path && item.name[strspn(item.name, NAME_SIGNS)]) {
        net_reason_set(reason, "\"%.128s\" is not the name of a plugin", item.name);
        return 0;
    }
    if (!item.name[0]) {
        net_reason_set(reason, "no plugin follows the hook");
        return 0;
    }
    *item_out = item;
    return 1;
}

int xccl_net_list_item(const char **at, char item_out[XCCL_NET_ITEM_BYTES])
{
    while (**at) {
        const char *first = *at + strspn(*at, " \t,");
        size_t bytes = strcspn(first, ",");

        *at = first + bytes;
        while (bytes > 0 && (first[bytes - 1] == ' ' || first[bytes - 1] == '\t'))
            bytes--;
        if (bytes == 0)
            continue;
        if (bytes >= XCCL_NET_ITEM_BYTES)
            bytes = XCCL_NET_ITEM_BYTES - 1;
        memcpy(item_out, first, bytes);
        item_out[bytes] = 0;
        return 1;
    }
    return 0;
}
