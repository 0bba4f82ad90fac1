/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL's tuner plugins behind one call. Version 2 answers with a choice, which becomes a 0 in the
 * cost table; the others write to a copy of the table, which is checked before it counts.
 * Thread: one at a time a tuner. */
#include "plugin/tuner_plugin.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "plugin/nccl_adapter_int.h"
#include "plugin/net_plugin_int.h"

#define UNDECIDED (-1)
#define UNUSABLE  (-1.0f)

struct xccl_tuner {
    void *library;
    const void *table; /* ncclTunerPlugin_vN */
    int version;
    void *ctx;
    _Atomic int *warned, own_warned; /* 1: the one warning was given */
    struct nccl_nvl_domain domain; /* plugins may keep the pointers */
    struct nccl_tuner_constants constants;
    char name[96];
};

/* ---- open ---- */

static int table_check(const struct xccl_tuner *tuner, struct net_reason *reason)
{
    static const char *const names[] = {"name", "init", "getCollInfo", "destroy"};

    for (size_t i = 0; i < 4; i++) {
        const void *entry;

        memcpy(&entry, (const char *)tuner->table + i * sizeof(entry), sizeof(entry));
        if (entry)
            continue;
        net_reason_set(reason, "its entry %s is NULL, but ncclTunerPlugin_v%d requires it",
                       names[i], tuner->version);
        return 0;
    }
    return 1;
}

/* Takes the newest symbol of the loaded library. */
static int table_find(struct xccl_tuner *tuner, struct net_reason *reason)
{
    char symbol[32];

    for (int version = NCCL_TUNER_NEWEST; version >= NCCL_TUNER_OLDEST; version--) {
        snprintf(symbol, sizeof(symbol), "ncclTunerPlugin_v%d", version);
        tuner->table = dlsym(tuner->library, symbol);
        tuner->version = version;
        if (tuner->table)
            return table_check(tuner, reason);
    }
    net_reason_set(reason, "it has no symbol ncclTunerPlugin_v%d to _v%d", NCCL_TUNER_NEWEST,
                   NCCL_TUNER_OLDEST);
    return 0;
}

static int plugin_init(struct xccl_tuner *tuner, const struct xccl_tuner_open_args *args)
{
    const struct nccl_tuner_v2 *old = tuner->table;
    const struct nccl_tuner_v5 *new = tuner->table;

    if (tuner->version < 5)
        return old->init(args->nranks, args->nnodes, nccl_logger_take, &tuner->ctx);
    return new->init(&tuner->ctx, args->comm_id, args->nranks, args->nnodes, nccl_logger_take,
                     &tuner->domain, &tuner->constants);
}

static int tuner_start(struct xccl_tuner *tuner, const struct xccl_tuner_open_args *args,
                       struct net_reason *reason)
{
    const char *name;
    int result;

    memcpy(&name, tuner->table, sizeof(name));
    snprintf(tuner->name, sizeof(tuner->name), "%.64s (ncclTunerPlugin_v%d)", name, tuner->version);
    tuner->warned = args->warned ? args->warned : &tuner->own_warned;
    tuner->domain = args->domain;
    if (args->constants)
        tuner->constants = *args->constants;
    nccl_enter(NULL);
    result = plugin_init(tuner, args);
    nccl_leave();
    if (result) {
        net_reason_set(reason, "init failed (%s): %s", xccl_result_text(nccl_result(result)),
                       nccl_here.warnings[0] ? nccl_here.warnings : "it does not say why");
        return 0;
    }
    if (args->constants)
        *args->constants = tuner->constants;
    return 1;
}

/* One file, or one soname when path has no slash. */
static struct xccl_tuner *file_open(const char *path, const struct xccl_tuner_open_args *args,
                                    struct net_reason *reason)
{
    int sought = strchr(path, '/') == NULL;
    struct xccl_tuner *tuner;
    struct xccl_file_id id;

    if (!sought && !net_file_trusted(path, &id, reason))
        return NULL;
    tuner = xccl_calloc(1, sizeof(*tuner));
    if (!tuner) {
        net_reason_set(reason, "no memory");
        return NULL;
    }
    tuner->library = sought ? net_name_load(path, reason) : net_file_load(path, &id, reason);
    if (!tuner->library)
        goto err_tuner;
    if (table_find(tuner, reason) && tuner_start(tuner, args, reason))
        return tuner;
    net_file_close(tuner->library);
err_tuner:
    xccl_free(tuner);
    return NULL;
}

/* Opens one file and logs what became of it; a refusal is added to why. */
static struct xccl_tuner *candidate_open(const char *path, const struct xccl_tuner_open_args *args,
                                         struct net_reason *why)
{
    struct net_reason reason = {""}, fate;
    struct xccl_tuner *tuner = file_open(path, args, &reason);

    if (tuner) {
        xccl_log(XCCL_LOG_INFO, "tuner plugin %s: taken from %s", tuner->name, path);
        return tuner;
    }
    net_reason_set(&fate, "%.300s: %.400s", path, reason.text);
    net_reason_add(why, fate.text);
    xccl_log(XCCL_LOG_INFO, "tuner plugin refused: %s", fate.text);
    return NULL;
}

/* Opens the first usable file of that name in some folders; seen_out: there were files. */
static struct xccl_tuner *folders_open(const struct net_folders *folders, const char *soname,
                                       const struct xccl_tuner_open_args *args,
                                       struct net_reason *why, int *seen_out)
{
    char path[NET_PATH_BYTES + 128];
    struct xccl_tuner *tuner = NULL;

    for (int at = 0; !tuner && net_folders_next(folders, &at, soname, path, sizeof(path));) {
        *seen_out = 1;
        tuner = candidate_open(path, args, why);
    }
    return tuner;
}

static struct xccl_tuner *item_open(const char *item, const struct xccl_tuner_open_args *args,
                                    struct net_reason *why)
{
    char soname[128];
    struct net_folders folders;
    struct xccl_tuner *tuner;
    int seen = 0;

    if (strchr(item, '/'))
        return candidate_open(item, args, why);
    snprintf(soname, sizeof(soname), "libnccl-tuner-%.64s.so", item);
    net_folders_find(&folders);
    tuner = folders_open(&folders, soname, args, why, &seen);
    if (tuner)
        return tuner;
    seen = 0;
    net_folders_of_loader(soname, &folders);
    tuner = folders_open(&folders, soname, args, why, &seen);
    /* The loader would take a refused one all the same. */
    return seen ? tuner : candidate_open(soname, args, why);
}

xcclResult_t xccl_tuner_open(const char *item, const char *net_path,
                             const struct xccl_tuner_open_args *args, struct xccl_tuner **tuner_out)
{
    struct net_reason why = {""};
    struct xccl_tuner *tuner = NULL;

    if (item && *item)
        tuner = item_open(item, args, &why);
    if (!tuner && net_path && *net_path)
        tuner = candidate_open(net_path, args, &why);
    if (!tuner)
        return xccl_fail_quietly(xcclSystemError, 0, "check its name and XCCL_PLUGIN_PATH",
                                 "no usable tuner plugin: %.380s",
                                 why.text[0] ? why.text : "no plugin was named");
    *tuner_out = tuner;
    return xcclSuccess;
}

/* 1: nobody has warned of it. Relaxed: a count, with nothing behind it. */
static int is_first(struct xccl_tuner *tuner)
{
    return !atomic_exchange_explicit(tuner->warned, 1, memory_order_relaxed);
}

void xccl_tuner_close(struct xccl_tuner *tuner)
{
    const struct nccl_tuner_v2 *table; /* destroy and finalize are one place and one form */
    int result;

    if (!tuner)
        return;
    table = tuner->table;
    nccl_enter(NULL);
    result = table->destroy(tuner->ctx);
    nccl_leave();
    if (result && is_first(tuner))
        xccl_log(XCCL_LOG_WARN, "tuner plugin %s reported an error when it was closed: %s",
                 tuner->name, nccl_here.warnings[0] ? nccl_here.warnings : "it does not say why");
    net_file_close(tuner->library);
    xccl_free(tuner);
}

const char *xccl_tuner_name(const struct xccl_tuner *tuner)
{
    return tuner->name;
}

/* ---- ask ---- */

/* It is asked again for each call of each communicator, and would say the same. */
static void warn_once(struct xccl_tuner *tuner, const char *what, const char *why)
{
    if (is_first(tuner))
        xccl_log(XCCL_LOG_WARN,
                 "tuner plugin %s: %s: %s; the built-in choice is used, for this call and each "
                 "time this happens again",
                 tuner->name, what, why);
}

static int is_unusable(float cost)
{
    return cost == UNUSABLE;
}

static int algo_usable(const float table[NCCL_ALGOS][NCCL_PROTOS], int first, int last)
{
    for (int algo = first; algo <= last; algo++) {
        for (int proto = 0; proto < NCCL_PROTOS; proto++) {
            if (!is_unusable(table[algo][proto]))
                return 1;
        }
    }
    return 0;
}

struct question {
    int func, pipe_ops, registered;
    size_t bytes;
};

/* Version 2 knows no table: its choice becomes a 0. A choice outside of the table is told by a
 * result that the check refuses. */
static int ask_v2(const struct xccl_tuner *tuner, const struct question *question,
                  float table[NCCL_ALGOS][NCCL_PROTOS], int *channels)
{
    const struct nccl_tuner_v2 *plugin = tuner->table;
    int algo = UNDECIDED, proto = UNDECIDED;
    int collnet = algo_usable(table, NCCL_ALGO_COLLNET_DIRECT, NCCL_ALGO_COLLNET_CHAIN);
    int nvls = algo_usable(table, NCCL_ALGO_NVLS, NCCL_ALGO_NVLS_TREE);
    int result = plugin->get_coll_info(tuner->ctx, question->func, question->bytes, collnet, nvls,
                                       question->pipe_ops, &algo, &proto, channels);

    if (result || (algo == UNDECIDED && proto == UNDECIDED))
        return result;
    if (algo < 0 || algo >= NCCL_ALGOS || proto < 0 || proto >= NCCL_PROTOS)
        return xcclInvalidArgument;
    table[algo][proto] = 0;
    return 0;
}

static int ask(const struct xccl_tuner *tuner, const struct question *question,
               float table[NCCL_ALGOS][NCCL_PROTOS], int *channels)
{
    const struct nccl_tuner_v3 *third = tuner->table;
    const struct nccl_tuner_v4 *later = tuner->table; /* 5 and 6 have it in the same place */
    float **flat = (float **)(void *)table;

    if (tuner->version == 2)
        return ask_v2(tuner, question, table, channels);
    if (tuner->version == 3)
        return third->get_coll_info(tuner->ctx, question->func, question->bytes, question->pipe_ops,
                                    flat, NCCL_ALGOS, NCCL_PROTOS, channels);
    return later->get_coll_info(tuner->ctx, question->func, question->bytes, question->pipe_ops,
                                flat, NCCL_ALGOS, NCCL_PROTOS, question->registered, channels);
}

/* NULL, or the rule that was broken. */
static const char *answer_check(const float before[NCCL_ALGOS][NCCL_PROTOS],
                                const float after[NCCL_ALGOS][NCCL_PROTOS], int channels)
{
    if (channels < 0 || channels > NCCL_CHANNELS_MAX)
        return "its number of channels is not 0 to 64";
    for (int algo = 0; algo < NCCL_ALGOS; algo++) {
        for (int proto = 0; proto < NCCL_PROTOS; proto++) {
            float was = before[algo][proto], is = after[algo][proto];

            if (is_unusable(was) && !is_unusable(is))
                return "it chose what cannot be used here (an entry of -1)";
            /* The first is true for what is not a number, too. */
            if (!(is >= 0) && !is_unusable(is))
                return "a predicted time is not a number of at least 0";
        }
    }
    return NULL;
}

int xccl_tuner_cost(struct xccl_tuner *tuner, int func, size_t bytes, int pipe_ops, int registered,
                    float table[NCCL_ALGOS][NCCL_PROTOS], int *channels)
{
    const struct question question = {func, pipe_ops, registered, bytes};
    float answer[NCCL_ALGOS][NCCL_PROTOS];
    int chosen = *channels, result;
    const char *broken;

    memcpy(answer, table, sizeof(answer));
    nccl_enter(NULL);
    result = ask(tuner, &question, answer, &chosen);
    nccl_leave();
    if (result) {
        warn_once(tuner, "getCollInfo failed", xccl_result_text(nccl_result(result)));
        return 0;
    }
    broken = answer_check((const float(*)[NCCL_PROTOS])table, (const float(*)[NCCL_PROTOS])answer,
                          chosen);
    if (broken) {
        warn_once(tuner, "its answer is refused", broken);
        return 0;
    }
    memcpy(table, answer, sizeof(answer));
    *channels = chosen;
    return 1;
}

size_t xccl_tuner_chunk(struct xccl_tuner *tuner, int func, size_t bytes, int algo, int proto,
                        int channels, size_t chunk_bytes)
{
    const struct nccl_tuner_v6 *plugin = tuner->table;
    size_t chosen = chunk_bytes;
    int result;

    if (tuner->version < 6 || !plugin->get_chunk_size)
        return chunk_bytes;
    nccl_enter(NULL);
    result = plugin->get_chunk_size(tuner->ctx, func, bytes, algo, proto, channels, &chosen);
    nccl_leave();
    if (result) {
        warn_once(tuner, "getChunkSize failed", xccl_result_text(nccl_result(result)));
        return chunk_bytes;
    }
    return chosen > 0 && chosen < chunk_bytes ? chosen : chunk_bytes;
}
