/* SPDX-License-Identifier: BSD-3-Clause */
/* The algorithms of plugins: what a table has to be, the generators that are made of it, and their
 * proof. Entries are static and are never given back, since schedules and communicators point to
 * them: a process has room for some dozens. Thread: any; one at a time adds. */
#include "schedule/algo_plugin.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "schedule/algo_plugin_int.h"
#include "schedule/verify.h"

#define ENTRIES_MAX 32
#define PLUGINS_MAX 16
#define CHUNKS_MAX  65535
#define SCRBUFS_MAX 16

/* Sizes when version 1 was frozen: a plugin of that day has them whatever was appended since. */
#define TABLE_BYTES     (offsetof(xcclAlgoPlugin_v1_t, algorithms) + sizeof(void *))
#define ALGORITHM_BYTES (offsetof(xcclAlgorithm_v1_t, user) + sizeof(void *))

static_assert(ENTRIES_MAX == XCCL_GENERATORS_ADDED_MAX, "each entry is a generator");

struct plugin {
    const xcclAlgoPlugin_v1_t *table;
    char name[XCCL_ALGO_NAME_MAX], path[512];
};
static struct plugin plugins[PLUGINS_MAX];
static struct xccl_algo_entry entries[ENTRIES_MAX];
static int plugin_count, entry_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all of these */

/* ---- what a generator calls ---- */

xcclAlgoFor_v1_t xccl_algo_for(const struct xccl_algo_entry *entry,
                               const struct xccl_generator_for *what)
{
    return (xcclAlgoFor_v1_t){.size = sizeof(xcclAlgoFor_v1_t),
                              .algorithm = entry->theirs,
                              .nranks = what->nranks,
                              .rank = what->rank,
                              .root = what->root};
}

static int ask_serves(const struct xccl_algo_entry *entry, const struct xccl_generator_for *what)
{
    const xcclAlgoFor_v1_t asked = xccl_algo_for(entry, what);

    return !entry->calls.serves || entry->calls.serves(&asked) != 0;
}

/* What cannot be becomes a number that is refused as too large wherever it is used. */
static int ask_chunks(const struct xccl_algo_entry *entry, const struct xccl_generator_for *what)
{
    const xcclAlgoFor_v1_t asked = xccl_algo_for(entry, what);
    int32_t nchunks = entry->calls.chunks ? entry->calls.chunks(&asked) : what->nranks;

    if (nchunks >= 1 && nchunks <= CHUNKS_MAX)
        return nchunks;
    xccl_log(XCCL_LOG_WARN, "algorithm %s of plugin %s: chunks is %d for %d ranks, not 1 to %d",
             entry->name, entry->plugin, nchunks, what->nranks, CHUNKS_MAX);
    return CHUNKS_MAX + 1;
}

/* A generator's functions are not told which generator they are of. So each entry has functions of
 * its own, which know it by its number. */
#define ENTRY_CALLS(number)                                                                        \
    static int serves_##number(const struct xccl_generator_for *what)                              \
    {                                                                                              \
        return ask_serves(&entries[number], what);                                                 \
    }                                                                                              \
    static int chunks_##number(const struct xccl_generator_for *what)                              \
    {                                                                                              \
        return ask_chunks(&entries[number], what);                                                 \
    }                                                                                              \
    static void emit_##number(struct xccl_builder *builder, const struct xccl_generator_for *what) \
    {                                                                                              \
        xccl_algo_bridge(&entries[number], builder, what);                                         \
    }
#define ENTRY_ROW(number) {serves_##number, chunks_##number, emit_##number},

#define EIGHT(make, tens)                                                                          \
    make(tens##0) make(tens##1) make(tens##2) make(tens##3) make(tens##4) make(tens##5)            \
        make(tens##6) make(tens##7)
#define ALL(make) EIGHT(make, 0) EIGHT(make, 01) EIGHT(make, 02) EIGHT(make, 03) /* octal */

ALL(ENTRY_CALLS)

static const struct {
    int (*serves)(const struct xccl_generator_for *what);
    int (*chunks)(const struct xccl_generator_for *what);
    void (*emit)(struct xccl_builder *builder, const struct xccl_generator_for *what);
} calls_of[] = {ALL(ENTRY_ROW)};
static_assert(sizeof(calls_of) / sizeof(calls_of[0]) == ENTRIES_MAX, "functions for each entry");

/* ---- what a table has to be ---- */

static xcclResult_t refuse(const char *path, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), cold));
static xcclResult_t refuse(const char *path, const char *fmt, ...)
{
    char why[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    return xccl_fail(xcclInvalidUsage, 0, "correct the plugin according to xccl_algo.h",
                     "algorithm plugin %.200s: %s", path, why);
}

static int name_ok(const char *name)
{
    size_t length = name ? strnlen(name, XCCL_ALGO_NAME_MAX) : 0;

    if (length == 0 || length == XCCL_ALGO_NAME_MAX || name[0] < 'a' || name[0] > 'z')
        return 0;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == length;
}

static int help_ok(const char *help)
{
    size_t length = help ? strnlen(help, XCCL_ALGO_HELP_MAX) : 0;

    for (size_t i = 0; i < length; i++)
        if (help[i] < ' ' || help[i] > '~')
            return 0;
    return length > 0 && length < XCCL_ALGO_HELP_MAX;
}

static xcclResult_t check_algorithm(const xcclAlgorithm_v1_t *theirs, int idx, const char *path)
{
    if (!theirs)
        return refuse(path, "algorithm %d is NULL", idx);
    if (theirs->size < ALGORITHM_BYTES || theirs->size > XCCL_ALGO_SIZE_SANE)
        return refuse(path, "algorithm %d has %zu bytes; version 1 has at least %zu", idx,
                      theirs->size, ALGORITHM_BYTES);
    if (!name_ok(theirs->name))
        return refuse(path,
                      "the name of algorithm %d must have 1 to %d of the characters a-z 0-9 _ - "
                      "and begin with a letter",
                      idx, XCCL_ALGO_NAME_MAX - 1);
    if (!help_ok(theirs->help))
        return refuse(
            path, "the help of algorithm %s must be one line of ASCII with at most %d characters",
            theirs->name, XCCL_ALGO_HELP_MAX - 1);
    if (theirs->coll < 0 || theirs->coll >= XCCL_COLL_WITH_SCHEDULES)
        return refuse(path, "algorithm %s is for collective %d; collectives are 0 to %d",
                      theirs->name, theirs->coll, XCCL_COLL_WITH_SCHEDULES - 1);
    if (theirs->scrbufs < 0 || theirs->scrbufs > SCRBUFS_MAX)
        return refuse(path, "algorithm %s has scrbufs %d, not 0 to %d", theirs->name,
                      theirs->scrbufs, SCRBUFS_MAX);
    if (!theirs->emit)
        return refuse(path, "algorithm %s has no emit: it is NULL", theirs->name);
    return xcclSuccess;
}

/* Its name is not taken: by what there is, or by the first count entries of the same plugin. */
static xcclResult_t check_name(const struct xccl_algo_entry *entry,
                               const struct xccl_algo_entry *before, int count)
{
    enum xccl_coll coll = entry->generator.coll;
    const struct xccl_generator *other;
    int param;

    for (int i = 0; i < count; i++)
        if (before[i].generator.coll == coll && strcmp(before[i].name, entry->name) == 0)
            return refuse(entry->path, "it has two algorithms %s of %s", entry->name,
                          xccl_coll_name(coll));
    other = xccl_generator_find(coll, entry->name, &param);
    if (!other)
        return xcclSuccess;
    if (!xccl_algo_plugin_path(other))
        return refuse(entry->path, "%s of %s is a built-in algorithm; choose another name",
                      entry->name, xccl_coll_name(coll));
    return refuse(entry->path, "%s of %s already exists, from %.100s; choose another name",
                  entry->name, xccl_coll_name(coll), xccl_algo_plugin_path(other));
}

static xcclResult_t check_table(const xcclAlgoPlugin_v1_t *table, const char *path)
{
    if (table->size < TABLE_BYTES || table->size > XCCL_ALGO_SIZE_SANE)
        return refuse(path, "its table has %zu bytes; version 1 has at least %zu", table->size,
                      TABLE_BYTES);
    if (!name_ok(table->name))
        return refuse(
            path,
            "its name must have 1 to %d of the characters a-z 0-9 _ - and begin with a letter",
            XCCL_ALGO_NAME_MAX - 1);
    if (table->count < 1 || !table->algorithms)
        return refuse(path, "it has no algorithms: count is %d%s", table->count,
                      table->algorithms ? "" : ", algorithms is NULL");
    if (table->count > ENTRIES_MAX - entry_count || plugin_count == PLUGINS_MAX)
        return refuse(path,
                      "it has %d algorithms; a process has room for %d in %d plugins, and %d "
                      "are left",
                      table->count, ENTRIES_MAX, PLUGINS_MAX, ENTRIES_MAX - entry_count);
    return xcclSuccess;
}

/* ---- taking it ---- */

static void entry_fill(int number, const xcclAlgorithm_v1_t *theirs, const struct plugin *plugin)
{
    struct xccl_algo_entry *entry = &entries[number];
    size_t bytes = theirs->size < sizeof(*theirs) ? theirs->size : sizeof(*theirs);

    *entry = (struct xccl_algo_entry){
        .theirs = theirs, .plugin = plugin->name, .path = plugin->path};
    memcpy(&entry->calls, theirs, bytes);
    snprintf(entry->name, sizeof(entry->name), "%s", theirs->name);
    snprintf(entry->help, sizeof(entry->help), "%s", theirs->help);
    entry->generator = (struct xccl_generator){.name = entry->name,
                                               .coll = (enum xccl_coll)theirs->coll,
                                               .help = entry->help,
                                               .scrbufs = theirs->scrbufs,
                                               .chunks = calls_of[number].chunks,
                                               .emit = calls_of[number].emit,
                                               .serves = calls_of[number].serves};
}

/* Under the lock. Entries count from the next round on; those of a plugin that is refused are
 * filled again by the next one. */
static xcclResult_t add(const xcclAlgoPlugin_v1_t *table, const char *path)
{
    struct plugin *plugin = &plugins[plugin_count];
    xcclResult_t rc;

    for (int i = 0; i < plugin_count; i++)
        if (plugins[i].table == table)
            return xcclSuccess;
    rc = check_table(table, path);
    if (rc)
        return rc;
    *plugin = (struct plugin){.table = table};
    snprintf(plugin->name, sizeof(plugin->name), "%s", table->name);
    snprintf(plugin->path, sizeof(plugin->path), "%s", path);
    for (int i = 0; i < table->count; i++) {
        rc = check_algorithm(table->algorithms[i], i, path);
        if (rc)
            return rc;
        entry_fill(entry_count + i, table->algorithms[i], plugin);
        rc = check_name(&entries[entry_count + i], &entries[entry_count], i);
        if (rc)
            return rc;
    }
    plugin_count++;
    for (int i = 0; i < table->count; i++)
        if (!xccl_generator_add(&entries[entry_count++].generator))
            return refuse(path, "there is no room for its algorithm %d", i);
    return xcclSuccess;
}

xcclResult_t xccl_algo_plugin_add(const xcclAlgoPlugin_v1_t *table, const char *path)
{
    xcclResult_t rc;

    pthread_mutex_lock(&lock);
    rc = add(table, path);
    pthread_mutex_unlock(&lock);
    return rc;
}

const char *xccl_algo_plugin_path(const struct xccl_generator *generator)
{
    for (int i = 0; i < ENTRIES_MAX; i++)
        if (generator == &entries[i].generator)
            return entries[i].path;
    return NULL;
}

/* ---- the proof ---- */

static xcclResult_t prove(const struct xccl_generator *generator,
                          const struct xccl_generator_for *what, struct xccl_schedule **schedules)
{
    const char *path = xccl_algo_plugin_path(generator);
    struct xccl_verdict verdict;
    xcclResult_t rc = xccl_prove(schedules, what->nranks, &verdict);

    if (rc || verdict.kind == XCCL_VERDICT_PROVEN)
        return rc;
    return xccl_fail(xcclInvalidUsage, 0, NULL,
                     "algorithm %s of %s (%.100s) is refused for %d ranks: %.320s", generator->name,
                     xccl_coll_name(generator->coll), path ? path : "built in", what->nranks,
                     verdict.text);
}

xcclResult_t xccl_algo_plugin_prove(const struct xccl_generator *generator,
                                    const struct xccl_generator_for *what,
                                    struct xccl_schedule **schedule_out)
{
    struct xccl_schedule **schedules;
    xcclResult_t rc;

    if (what->nranks < 1 || what->rank < 0 || what->rank >= what->nranks)
        return xccl_fail(xcclInvalidArgument, 0, "ranks are numbered from 0",
                         "%s cannot be proven for rank %d of %d", generator->name, what->rank,
                         what->nranks);
    schedules = xccl_calloc((size_t)what->nranks, sizeof(void *));
    if (!schedules)
        return xcclSystemError;
    rc = xccl_generator_make_all(generator, what, schedules);
    if (!rc) {
        rc = prove(generator, what, schedules);
        if (!rc && schedule_out) {
            *schedule_out = schedules[what->rank];
            schedules[what->rank] = NULL;
        }
        for (int i = 0; i < what->nranks; i++)
            xccl_schedule_destroy(schedules[i]);
    }
    xccl_free(schedules);
    return rc;
}
