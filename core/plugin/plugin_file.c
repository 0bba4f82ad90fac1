/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads files of plugins that stay: looked at, loaded if they are still the same, kept.
 *
 * Limits: a file stays until the process ends, whatever becomes of its name. Thread: any. */
#include "plugin/plugin_file.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

void *plugin_file_load(const char *path, const struct xccl_file_id *id, const char *kind,
                       const char *symbol, const void **table_out, struct net_reason *reason)
{
    void *handle = net_file_load(path, id, reason);

    if (!handle)
        return NULL;
    *table_out = dlsym(handle, symbol);
    if (*table_out)
        return handle;
    net_reason_set(reason, "it has no symbol %s, so it is no %s plugin", symbol, kind);
    net_file_close(handle);
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
