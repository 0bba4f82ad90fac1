/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads files of plugins that stay: looked at, loaded, kept. A file that is changed between the
 * look and the loading is the business of who may write its folder, which is looked at too.
 * Thread: any. */
#include "plugin/plugin_file.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

void *plugin_file_load(const char *path, const char *kind, const char *symbol,
                       const void **table_out, struct net_reason *reason)
{
    const char *text;
    void *handle;

    if (!net_file_trusted(path, reason))
        return NULL;
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        text = dlerror();
        net_reason_set(reason, "%s", text ? text : "the dynamic loader refuses it");
        return NULL;
    }
    *table_out = dlsym(handle, symbol);
    if (*table_out)
        return handle;
    net_reason_set(reason, "it has no symbol %s, so it is no %s plugin", symbol, kind);
    dlclose(handle);
    return NULL;
}

void plugin_file_keep(const char *path)
{
    void *again = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD | RTLD_NODELETE);

    if (again)
        dlclose(again);
}

void plugin_tell_folders(const struct net_folders *folders, struct net_reason *why)
{
    struct net_reason sought = {"no such file in"};

    for (int i = 0; i < folders->count; i++) {
        size_t used = strlen(sought.text);

        snprintf(sought.text + used, sizeof(sought.text) - used, "%s %.200s", i ? "," : "",
                 folders->path[i]);
    }
    net_reason_add(why, sought.text);
}

uint64_t plugin_file_hash(uint64_t hash, const char *path)
{
    FILE *file = fopen(path, "re");
    char bytes[4096];
    size_t got;

    if (!file)
        return xccl_hash_bytes(hash, path, strlen(path));
    while ((got = fread(bytes, 1, sizeof bytes, file)) > 0)
        hash = xccl_hash_bytes(hash, bytes, got);
    fclose(file);
    return hash;
}
