/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds plugins and checks that their files are trusted. Folders, in order: XCCL_PLUGIN_PATH, the
 * folder of the file that holds this code (libxccl.so) and xccl/ below it, and, when that file is
 * the program itself, xccl/ in the library folders next to the program's, then the folder of the
 * installation that libxccl.a came from. The loader's own path comes last. Its folders are searched
 * here as far as it tells them, so that a file is looked at before any of its code runs; files that
 * only its cache has (/etc/ld.so.conf, root's) are looked at afterwards.
 *
 * base/trust.h has the rules: a path that passes leads to the same file until a trusted owner
 * changes that. So a file is loaded by its path; a descriptor (/proc/self/fd/N) would be no safer,
 * and would show $ORIGIN, dladdr() and debuggers the wrong place. Changes by trusted owners are
 * noticed all the same: the file that was looked at, the one that was tried out and the one that is
 * loaded must be one and unchanged. Thread: any. */
#include "plugin/net_plugin_int.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os.h"
#include "base/param.h"
#include "base/trust.h"

void net_reason_set(struct net_reason *reason, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(reason->text, sizeof(reason->text), fmt, args);
    va_end(args);
}

void net_reason_add(struct net_reason *reason, const char *text)
{
    size_t used = strlen(reason->text);

    snprintf(reason->text + used, sizeof(reason->text) - used, "%s%s", used ? "; " : "", text);
}

/* Adds a folder once. What does not fit is left out: such a path could not be opened anyway. */
static void folders_add(struct net_folders *folders, const char *path, const char *below, int own)
{
    char *slot = folders->path[folders->count < NET_FOLDERS_MAX ? folders->count : 0];
    char joined[PATH_MAX];

    if (folders->count == NET_FOLDERS_MAX || !*path)
        return;
    if ((size_t)snprintf(joined, sizeof(joined), "%s%s", path, below) >= NET_PATH_BYTES)
        return;
    for (int i = 0; i < folders->count; i++) {
        if (strcmp(folders->path[i], joined) != 0)
            continue;
        folders->own[i] |= own;
        return;
    }
    memcpy(slot, joined, strlen(joined) + 1);
    folders->own[folders->count++] = own;
}

static void folders_add_list(struct net_folders *folders, const char *list)
{
    char item[NET_PATH_BYTES];

    /* Some places are for the folders that come with this library. */
    while (*list && folders->count < NET_FOLDERS_MAX - 5) {
        size_t bytes = strcspn(list, ":");

        if (bytes > 0 && bytes < sizeof(item)) {
            memcpy(item, list, bytes);
            item[bytes] = 0;
            folders_add(folders, item, "", 0);
        }
        list += bytes + (list[bytes] == ':');
    }
}

/* Adds the folders that come with the file of this code. */
static void folders_add_own(struct net_folders *folders)
{
    char own[PATH_MAX], program[PATH_MAX];
    int in_program;
    char *slash;

    if (!xccl_trust_home(own))
        return;
    if (!realpath("/proc/self/exe", program))
        program[0] = 0;
    in_program = strcmp(own, program) == 0;
    slash = strrchr(own, '/');
    *slash = 0;
    folders_add(folders, own, "", 1);
    folders_add(folders, own, "/xccl", 1);
    slash = strrchr(own, '/');
    if (!in_program || !slash)
        return;
    *slash = 0;
    folders_add(folders, own, "/lib/xccl", 1);
    if (XCCL_LIBDIR[0] == '/')
        folders_add(folders, XCCL_LIBDIR, "/xccl", 1);
    else
        folders_add(folders, own, "/" XCCL_LIBDIR "/xccl", 1);
    if (&xccl_plugin_home)
        folders_add(folders, xccl_plugin_home, "", 1);
}

void net_folders_find(struct net_folders *folders)
{
    folders->count = 0;
    folders_add_list(folders, xccl_param_string(XCCL_P_PLUGIN_PATH));
    folders_add_own(folders);
}

void net_folders_of_loader(const char *soname, struct net_folders *folders)
{
    char path[NET_PATH_BYTES + XCCL_NET_ITEM_BYTES];
    void *program = dlopen(NULL, RTLD_LAZY);
    Dl_serinfo size, *list = NULL;

    folders->count = 0;
    if (program && dlinfo(program, RTLD_DI_SERINFOSIZE, &size) == 0)
        list = malloc(size.dls_size);
    if (list) {
        *list = size;
        if (dlinfo(program, RTLD_DI_SERINFO, list) != 0)
            list->dls_cnt = 0;
        for (unsigned i = 0; i < list->dls_cnt; i++) {
            const char *folder = list->dls_serpath[i].dls_name;

            snprintf(path, sizeof(path), "%s/%s", folder, soname);
            if (net_file_exists(path))
                folders_add(folders, folder, "", 0);
        }
        free(list);
    }
    if (program)
        dlclose(program);
}

int net_folders_next(const struct net_folders *folders, int *at, const char *name, char *path_out,
                     size_t bytes)
{
    while (*at < folders->count) {
        snprintf(path_out, bytes, "%s/%s", folders->path[(*at)++], name);
        if (net_file_exists(path_out))
            return 1;
    }
    return 0;
}

int net_file_exists(const char *path)
{
    struct stat about;

    return stat(path, &about) == 0;
}

int net_file_is_plugin(const char *file, char item_out[XCCL_NET_ITEM_BYTES])
{
    static const char *const prefixes[] = {"libxccl-net-", "libnccl-net-"};
    size_t bytes = strlen(file);

    if (bytes <= 3 || strcmp(file + bytes - 3, ".so") != 0)
        return 0;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        size_t front = strlen(prefixes[i]);

        if (strncmp(file, prefixes[i], front) != 0 || bytes <= front + 3)
            continue;
        snprintf(item_out, XCCL_NET_ITEM_BYTES, "%.*s", (int)(bytes - front - 3), file + front);
        return 1;
    }
    snprintf(item_out, XCCL_NET_ITEM_BYTES, "%.200s", file);
    return strcmp(file, "libnccl-net.so") == 0;
}

const struct xccl_file_id *net_file_to_try;

int net_file_is(const char *path, const struct xccl_file_id *id, const char *since,
                struct net_reason *reason)
{
    struct xccl_file_id now;

    if (xccl_file_id_get(path, &now) && xccl_file_id_is_same(id, &now))
        return 1;
    net_reason_set(reason,
                   "%.300s was replaced or changed %s; wait until its installation has "
                   "ended, then start again",
                   path, since);
    return 0;
}

int net_file_trusted(const char *path, struct xccl_file_id *id_out, struct net_reason *reason)
{
    const char *cannot = xccl_os_cannot_load(), *own[NET_FOLDERS_MAX];
    struct net_folders folders = {.count = 0};
    struct xccl_trust_rules rules = {.owners = xccl_param_string(XCCL_P_PLUGIN_OWNERS), .own = own};

    if (cannot) {
        net_reason_set(reason, "%s", cannot);
        return 0;
    }
    if (net_file_to_try) {
        *id_out = *net_file_to_try;
        return net_file_is(path, id_out, "before it was tried out", reason);
    }
    folders_add_own(&folders);
    for (int i = 0; i < folders.count; i++)
        if (!&xccl_plugin_home || strcmp(folders.path[i], xccl_plugin_home) != 0)
            own[rules.own_count++] = folders.path[i];
    return xccl_trust_look(path, &rules, id_out, reason->text, sizeof(reason->text));
}
