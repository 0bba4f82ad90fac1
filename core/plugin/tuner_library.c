/* SPDX-License-Identifier: BSD-3-Clause */
/* From the setting to the table of a file, as algorithm plugins go:
 *
 *   setting --search--> file --trusted? tried out?--> loaded --symbol?--> table --whole?--> kept
 *
 * A file that a user has named is tried out in a process of its own first (net_probe.c): one that
 * crashes or does not come back costs a warning, and the built-in choice is used.
 *
 * A name is sought on after a refused file. Entries are static and never given back, since
 * communicators point to them. Thread: any; one at a time loads. */
#include "plugin/tuner_library.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "plugin/net_plugin_int.h"
#include "plugin/plugin_file.h"
#include "plugin/tuner_library_int.h"

#define SYMBOL        "xcclTunerPlugin_v1"
#define LIBRARIES_MAX 8
#define SIZE_SANE     (64u << 10)
#define SAID_BYTES    160

/* Size when version 1 was frozen: a plugin of that day has it whatever was appended since. */
#define TABLE_BYTES (offsetof(xcclTunerPlugin_v1_t, lastError) + sizeof(void *))

static struct xccl_tuner_library libraries[LIBRARIES_MAX];
static int library_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of both */

/* ---- what a table has to be ---- */

static int name_ok(const char *name)
{
    size_t length = name ? strnlen(name, XCCL_TUNER_NAME_MAX) : 0;

    if (length == 0 || length == XCCL_TUNER_NAME_MAX || name[0] < 'a' || name[0] > 'z')
        return 0;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == length;
}

static int table_check(const xcclTunerPlugin_v1_t *table, struct net_reason *reason)
{
    if (table->size < TABLE_BYTES || table->size > SIZE_SANE)
        net_reason_set(reason, "its table has %zu bytes; version 1 has at least %zu", table->size,
                       TABLE_BYTES);
    else if (!name_ok(table->name))
        net_reason_set(
            reason,
            "its name must have 1 to %d of the characters a-z 0-9 _ - and begin with a letter",
            XCCL_TUNER_NAME_MAX - 1);
    else if (!table->init || !table->choose || !table->finalize)
        net_reason_set(reason, "its entry %s is NULL",
                       !table->init     ? "init"
                       : !table->choose ? "choose"
                                        : "finalize");
    else
        return 1;
    return 0;
}

/* ---- one file ---- */

/* One search for a setting's file. */
struct search {
    struct net_reason why; /* all refusals */
    int is_ours; /* 1: of files that come with this library, which need no trial */
    int broken; /* 1: some file of it crashed or did not come back */
};

static struct xccl_tuner_library *find_known(const char *path)
{
    for (int i = 0; i < library_count; i++)
        if (strcmp(libraries[i].path, path) == 0)
            return &libraries[i];
    return NULL;
}

static void describe(struct xccl_tuner_library *library, const char *name, const char *path)
{
    const char *file = strrchr(path, '/');

    snprintf(library->name, sizeof library->name, "%s", name);
    snprintf(library->path, sizeof library->path, "%s", path);
    snprintf(library->label, sizeof library->label, "%s (%.100s)", name, file ? file + 1 : path);
    library->hash = plugin_file_hash(XCCL_HASH_START, path);
}

static int take_ours(struct xccl_tuner_library *library, const xcclTunerPlugin_v1_t *table,
                     const char *path, struct net_reason *reason)
{
    uint64_t digest;

    if (!table_check(table, reason))
        return 0;
    memcpy(&library->calls, table,
           table->size < sizeof library->calls ? table->size : sizeof library->calls);
    library->is_nccl = 0;
    describe(library, table->name, path);
    digest = table->digest ? table->digest() : 0;
    library->hash = xccl_hash_bytes(library->hash, &digest, sizeof digest);
    return 1;
}

static int take_nccl(struct xccl_tuner_library *library, const char *path,
                     const struct xccl_file_id *id, struct net_reason *reason)
{
    if (!tuner_nccl_is(path, id, reason))
        return 0;
    library->calls = tuner_nccl_calls;
    library->is_nccl = 1;
    describe(library, "nccl", path);
    return 1;
}

/* 1: the file may be loaded here: it came back from a trial, if one was made. */
static int may_load(const char *path, struct search *search, struct xccl_file_id *id_out,
                    struct net_reason *reason)
{
    if (!net_file_trusted(path, id_out, reason))
        return 0;
    if (search->is_ours || net_probe(path, id_out, 0, NET_PROBE_TUNER, reason) != NET_PROBE_BAD)
        return 1;
    search->broken = 1;
    return 0;
}

/* 1: library is filled in, from a table of ours or else of NCCL's. */
static int take_file(struct xccl_tuner_library *library, const char *path,
                     const struct xccl_file_id *id, struct net_reason *reason)
{
    const void *table;
    void *handle = plugin_file_load(path, id, "tuner", SYMBOL, &table, reason);
    int good = handle ? take_ours(library, table, path, reason)
                      : take_nccl(library, path, id, reason);

    if (good)
        plugin_file_keep(path);
    if (handle)
        net_file_close(handle);
    return good;
}

/* NULL: refused, which is added to what the search tells. */
static struct xccl_tuner_library *try_file(const char *path, struct search *search)
{
    struct xccl_tuner_library *library = find_known(path);
    struct net_reason reason = {""}, line = {""};
    struct xccl_file_id id;

    if (library)
        return library;
    if (library_count == LIBRARIES_MAX || strlen(path) >= sizeof library->path) {
        net_reason_add(&search->why, library_count == LIBRARIES_MAX
                                         ? "too many tuners were loaded before"
                                         : "its path is too long");
        return NULL;
    }
    library = &libraries[library_count];
    if (may_load(path, search, &id, &reason) && take_file(library, path, &id, &reason)) {
        library_count++;
        xccl_log(XCCL_LOG_INFO, "tuner plugin %s: taken from %s", library->name, path);
        return library;
    }
    net_reason_set(&line, "%.300s: %.400s", path, reason.text);
    net_reason_add(&search->why, line.text);
    xccl_log(XCCL_LOG_INFO, "tuner plugin refused: %s", line.text);
    return NULL;
}

/* ---- the search ---- */

static struct xccl_tuner_library *try_folders(const struct net_folders *folders, const char *file,
                                              struct search *search)
{
    struct xccl_tuner_library *library = NULL;
    char path[PLUGIN_PATH_BYTES];

    for (int at = 0; !library && net_folders_next(folders, &at, file, path, sizeof path);)
        library = try_file(path, search);
    return library;
}

static struct xccl_tuner_library *try_item(const char *item, struct search *search)
{
    char file[XCCL_NET_ITEM_BYTES + 32];
    struct net_folders folders;
    struct xccl_tuner_library *library;

    if (strchr(item, '/'))
        return try_file(item, search);
    net_folders_find(&folders);
    snprintf(file, sizeof file, "libxccl-tuner-%s.so", item);
    library = try_folders(&folders, file, search);
    if (!library) {
        snprintf(file, sizeof file, "libnccl-tuner-%s.so", item);
        library = try_folders(&folders, file, search);
    }
    if (!library && !search->why.text[0])
        plugin_tell_folders(&folders, &search->why);
    return library;
}

/* The one that comes with the library. */
static struct xccl_tuner_library *try_default(void)
{
    static int warned; /* under the lock */
    struct search search = {.is_ours = 1};
    struct net_folders folders;
    struct xccl_tuner_library *library;

    net_folders_find(&folders);
    library = try_folders(&folders, "libxccl-tuner.so", &search);
    if (!library && search.why.text[0] && !warned++)
        xccl_log(XCCL_LOG_WARN,
                 "the tuner plugin cannot be used: %s; the built-in choice is used; repair the "
                 "plugin, or set XCCL_TUNER_PLUGIN=none",
                 search.why.text);
    return library;
}

static xcclResult_t load(const char *setting, struct xccl_tuner_library **library_out)
{
    static int warned; /* under the lock */
    struct search search = {.is_ours = 0};
    const char *todo = "correct XCCL_TUNER_PLUGIN or XCCL_PLUGIN_PATH";

    *library_out = NULL;
    if (strcmp(setting, "none") == 0)
        return xcclSuccess;
    if (!setting[0] || strcmp(setting, "auto") == 0) {
        *library_out = try_default();
        return xcclSuccess;
    }
    if (strlen(setting) >= XCCL_NET_ITEM_BYTES)
        net_reason_set(&search.why, "its name has more than %d letters", XCCL_NET_ITEM_BYTES - 1);
    else
        *library_out = try_item(setting, &search);
    if (search.broken && !*library_out && !warned++)
        xccl_log(XCCL_LOG_WARN,
                 "tuner plugin %.60s cannot be used: %.330s; the built-in choice is used; repair "
                 "the plugin, or set XCCL_TUNER_PLUGIN=none",
                 setting, search.why.text);
    if (*library_out || search.broken)
        return xcclSuccess;
    if (!strchr(setting, '/') && strstr(setting, ".so"))
        todo = "write ./ in front of a file in this folder: a path must contain a slash";
    return xccl_fail(xcclInvalidUsage, 0, todo, "tuner plugin %.60s cannot be used: %.330s",
                     setting, search.why.text);
}

xcclResult_t xccl_tuner_library_load(const char *setting, struct xccl_tuner_library **library_out)
{
    xcclResult_t rc;

    pthread_mutex_lock(&lock);
    rc = load(setting, library_out);
    pthread_mutex_unlock(&lock);
    return rc;
}

/* ---- a communicator ---- */

int xccl_tuner_start(struct xccl_tuner_library *library, const xcclTunerComm_v1_t *comm,
                     void **ctx_out)
{
    const char *said = NULL;
    void *ctx = NULL;

    if (library->is_nccl) {
        if (tuner_nccl_start(library, comm, &ctx)) {
            *ctx_out = ctx;
            return 1;
        }
        said = xccl_error_text();
    } else {
        if (library->calls.init(comm, &ctx) == 0) {
            *ctx_out = ctx;
            return 1;
        }
        said = library->calls.lastError ? library->calls.lastError() : NULL;
    }
    /* Relaxed: a count, with nothing behind it. */
    if (!atomic_exchange_explicit(&library->warned, 1, memory_order_relaxed))
        xccl_log(XCCL_LOG_WARN,
                 "tuner plugin %s: init failed: %.*s; the built-in choice is used; repair the "
                 "plugin, or set XCCL_TUNER_PLUGIN=none",
                 library->label, library->is_nccl ? XCCL_ERROR_TEXT_BYTES : 2 * SAID_BYTES,
                 said ? said : "it does not say why");
    return 0;
}
