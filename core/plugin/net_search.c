/* SPDX-License-Identifier: BSD-3-Clause */
/* Where plugins are sought, and which files are trusted. Folders, in order: XCCL_PLUGIN_PATH, the
 * folder of the file that holds this code (libxccl.so) and xccl/ below it, and, when that file is
 * the program itself, xccl/ in the library folders next to the program's, then the folder of the
 * installation that libxccl.a came from. The loader's own path comes last and is the loader's
 * business. Which files are trusted is base/trust.h's to say.
 *
 * Thread: any. */
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

/* The real path of the file that holds this code; 0 when the system does not say. */
static int own_file(char path_out[PATH_MAX])
{
    Dl_info info;
    void (*here)(struct net_folders * folders) = net_folders_find;
    void *address;

    memcpy(&address, &here, sizeof(address));
    if (!dladdr(address, &info) || !info.dli_fname)
        return 0;
    /* The name of a program is what it was started by, maybe a bare word found through PATH. */
    if (!strchr(info.dli_fname, '/') || !realpath(info.dli_fname, path_out))
        return realpath("/proc/self/exe", path_out) != NULL;
    return 1;
}

void net_folders_find(struct net_folders *folders)
{
    char own[PATH_MAX], program[PATH_MAX];
    int in_program;
    char *slash;

    folders->count = 0;
    folders_add_list(folders, xccl_param_string(XCCL_P_PLUGIN_PATH));
    if (!own_file(own))
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

int net_file_trusted(const char *path, struct net_reason *reason)
{
    const char *cannot = xccl_os_cannot_load();

    if (cannot) {
        net_reason_set(reason, "%s", cannot);
        return 0;
    }
    return xccl_trust_file(path, reason->text, sizeof(reason->text));
}
