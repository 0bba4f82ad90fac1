/* SPDX-License-Identifier: BSD-3-Clause */
/* Tuner plugins: found, looked at, refused with a reason, begun; NCCL's through the same calls.
 * Each test is a process of its own. One thread. */
#include "plugin/tuner_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/param.h"
#include "xt.h"

#define SHIPPED  XT_BUILD_DIR "/lib/xccl"
#define FIXTURES XT_BUILD_DIR "/lib/fixtures"

static int warnings;
static char warning[1100];

static void keep_line(enum xccl_log_level level, const char *line)
{
    /* A plugin's own lines are not counted. */
    if (level > XCCL_LOG_WARN || !strstr(line, "tuner"))
        return;
    warnings++;
    snprintf(warning, sizeof warning, "%s", line);
}

static void start(const char *path)
{
    xt_setenv("XCCL_PLUGIN_PATH", path);
    XT_OK(xccl_param_load());
    xccl_log_set_sink(keep_line);
}

static struct xccl_tuner_library *load(const char *setting)
{
    struct xccl_tuner_library *library = NULL;

    XT_OK(xccl_tuner_library_load(setting, &library));
    return library;
}

static void refused(const char *setting, const char *why)
{
    struct xccl_tuner_library *library = NULL;

    XT_CHECK_RC(xccl_tuner_library_load(setting, &library), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), why);
    XT_CHECK(!library);
}

static void copy_file(const char *from, const char *to)
{
    const char *const argv[] = {"/bin/cp", from, to, NULL};
    const char *output;

    XT_CHECK_INT(xt_run_program(argv, &output), 0);
}

/* ---- files ---- */

/* What a copy of the command finds that lies where no plugins are. */
static const char *info_elsewhere(void)
{
    static char folder[256], program[300];
    const char *const argv[] = {program, "info", NULL};
    const char *output;

    xt_setenv("LD_LIBRARY_PATH", XT_BUILD_DIR "/lib");
    snprintf(folder, sizeof folder, "%s/elsewhere", xt_tmpdir());
    XT_CHECK_INT(mkdir(folder, 0755), 0);
    snprintf(program, sizeof program, "%s/xccl", folder);
    copy_file(XT_BUILD_DIR "/bin/xccl", program);
    (void)xt_run_program(argv, &output);
    return output;
}

XT_TEST(without_a_plugin_nothing_is_said)
{
    const char *output = info_elsewhere();

    XT_CHECK_HAS(output, "tuner: none, the built-in choice is used");
    XT_CHECK(!strstr(output, "tuner plugin"));
    start(SHIPPED);
    XT_CHECK(!load("none"));
    XT_CHECK_INT(warnings, 0);
}

XT_TEST(names_and_paths_are_found_and_loaded_once)
{
    struct xccl_tuner_library *library;

    start(SHIPPED ":" FIXTURES);
    library = load("auto");
    XT_CHECK(library && load("") == library);
    XT_CHECK_TEXT(library->name, "table");
    XT_CHECK_TEXT(library->label, "table (libxccl-tuner.so)");
    XT_CHECK(load("auto") == library);
    XT_CHECK(load(SHIPPED "/libxccl-tuner.so") == library);
    XT_CHECK(load("fx") != library);
    XT_CHECK_TEXT(load("fx")->name, "fixture");
    XT_CHECK(load("fx")->hash != library->hash);
    XT_CHECK(load("fx-v4")->is_nccl);
    XT_CHECK_INT(warnings, 0);
}

XT_TEST(the_digest_of_a_plugin_is_part_of_what_ranks_compare)
{
    uint64_t plain;
    char path[256];

    start(FIXTURES);
    plain = load("fx")->hash;
    xt_setenv("FX_TUNER_DIGEST", "7");
    snprintf(path, sizeof path, "%s/libxccl-tuner-fx.so", xt_tmpdir());
    copy_file(FIXTURES "/libxccl-tuner-fx.so", path);
    XT_CHECK(load(path)->hash != plain);
}

XT_TEST(what_cannot_be_used_is_refused_with_the_reason)
{
    start(FIXTURES);
    refused("nobody", "no such file in " FIXTURES);
    refused("/nowhere/libxccl-tuner-x.so", "No such file or directory");
    refused("fx-no-symbol",
            "it has no symbol xcclTunerPlugin_v1, and none from ncclTunerPlugin_v6 down to "
            "ncclTunerPlugin_v2, so it is no tuner plugin");
    refused("fx-short-table", "its table has 16 bytes; version 1 has at least 56");
    refused("fx-null-entry", "its entry finalize is NULL");
    refused("fx-bad-name", "its name must have 1 to 31");
    refused("libxccl-tuner-fx.so", "a path must contain a slash");
}

/* It runs in a process of its own first, so nothing of it happens here. */
static void is_broken(const char *what, const char *why)
{
    xt_setenv("XCCL_PLUGIN_PROBE_S", "1");
    xt_setenv("FX_TUNER", what);
    start(FIXTURES);
    XT_CHECK(!load("fx"));
    XT_CHECK(!load("fx"));
    XT_CHECK_INT(warnings, 1);
    XT_CHECK_HAS(warning, "libxccl-tuner-fx.so: ");
    XT_CHECK_HAS(warning, why);
    XT_CHECK_HAS(warning, "the built-in choice is used");
}

XT_TEST(a_tuner_that_crashes_in_loading_is_named_and_not_used)
{
    is_broken("crash-load", "it crashes in loading it: signal 6 (Aborted)");
}

XT_TEST(a_tuner_that_crashes_in_init_is_named_and_not_used)
{
    is_broken("crash-init", "it crashes in init: signal 6 (Aborted)");
}

XT_TEST(a_tuner_that_crashes_in_a_choice_is_named_and_not_used)
{
    is_broken("crash-choose", "it crashes in choose: signal 6 (Aborted)");
}

XT_TEST(a_tuner_that_hangs_is_named_and_not_used)
{
    is_broken("hang-init", "it does not return from init within 1 s (XCCL_PLUGIN_PROBE_S)");
}

/* A name is sought on after a file that crashes. */
XT_TEST(a_tuner_of_nccl_behind_one_that_crashes_is_used)
{
    const char *first = xt_tmpdir();
    const struct xccl_tuner_library *library;
    char path[300], folders[700];

    snprintf(path, sizeof path, "%s/libxccl-tuner-fx-v6.so", first);
    copy_file(FIXTURES "/libxccl-tuner-fx.so", path);
    snprintf(folders, sizeof folders, "%s:" FIXTURES, first);
    xt_setenv("FX_TUNER", "crash-load");
    start(folders);
    library = load("fx-v6");
    XT_CHECK(library && library->is_nccl);
    XT_CHECK_INT(warnings, 0);
}

XT_TEST(a_file_that_anybody_can_change_is_refused_and_as_the_default_costs_one_warning)
{
    const char *folder = xt_tmpdir(), *output;
    char path[256];

    snprintf(path, sizeof path, "%s/libxccl-tuner.so", folder);
    copy_file(SHIPPED "/libxccl-tuner.so", path);
    XT_CHECK_INT(chmod(path, 0666), 0);
    start(folder);
    refused(path, "is world-writable: chmod o-w it");
    output = info_elsewhere();
    XT_CHECK_HAS(output, "warn: the tuner plugin cannot be used: ");
    XT_CHECK_HAS(output, "is world-writable");
    XT_CHECK_HAS(output, "tuner: none, the built-in choice is used");
    XT_CHECK_INT(chmod(path, 0644), 0);
    XT_CHECK_TEXT(load("auto")->path, path);
}

/* ---- the plugin that is shipped, and its file ---- */

static const xcclTunerComm_v1_t four = {
    .size = sizeof four, .nranks = 4, .nnodes = 1, .allLocal = 1, .commId = 99};

static void bad_file(const char *path, const char *why)
{
    struct xccl_tuner_library *library;
    void *ctx = NULL;

    xt_setenv("XCCL_TUNER_FILE", path);
    start(SHIPPED);
    library = load("auto");
    XT_CHECK(library != NULL);
    XT_CHECK_INT(xccl_tuner_start(library, &four, &ctx), 0);
    XT_CHECK_INT(xccl_tuner_start(library, &four, &ctx), 0);
    XT_CHECK(!ctx);
    XT_CHECK_INT(warnings, 1);
    XT_CHECK_HAS(warning, "tuner plugin table (libxccl-tuner.so): init failed: ");
    XT_CHECK_HAS(warning, why);
    XT_CHECK_HAS(warning, "the built-in choice is used");
}

XT_TEST(a_table_that_is_not_there_is_told_once)
{
    bad_file("/nowhere/my.tune", "/nowhere/my.tune: No such file or directory");
}
XT_TEST(a_table_that_never_ends_is_not_read)
{
    bad_file("/dev/zero", "/dev/zero: it is not a regular file");
}
XT_TEST(a_table_that_would_block_is_not_read)
{
    char path[256];

    snprintf(path, sizeof path, "%s/fifo", xt_tmpdir());
    XT_CHECK_INT(mkfifo(path, 0600), 0);
    bad_file(path, "it is not a regular file");
}
XT_TEST(a_table_that_is_too_large_is_not_read)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof path, "%s/large", xt_tmpdir());
    file = fopen(path, "we");
    XT_CHECK(file && ftruncate(fileno(file), (1 << 20) + 1) == 0);
    fclose(file);
    bad_file(path, "it has more than 1 MiB");
}
XT_TEST(a_table_with_a_wrong_row_is_told_with_its_line)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof path, "%s/my.tune", xt_tmpdir());
    file = fopen(path, "we");
    XT_CHECK(file != NULL);
    fputs("tuner-table 1\nall_reduce * * * * ring LL auto auto\n", file);
    fclose(file);
    bad_file(path, "my.tune, line 2: word 7 is \"LL\"; write lines, small, slices or auto");
}

/* ---- NCCL's ---- */

static xcclTunerCandidate_v1_t candidate(const char *algorithm, const char *protocol, double cost)
{
    return (xcclTunerCandidate_v1_t){.size = sizeof(xcclTunerCandidate_v1_t),
                                     .algorithm = algorithm,
                                     .protocol = protocol,
                                     .cost = cost,
                                     .tileBytes = 8192,
                                     .tileMin = 64,
                                     .tileMax = 8192,
                                     .tileAlign = 32};
}

/* The fixture makes ring with Simple cheapest for a broadcast, fails for a reduce, breaks the rules
 * for an all-gather, and says nothing about an all-reduce. */
static int ask_nccl(struct xccl_tuner_library *library, const char *collective, uint64_t bytes,
                    xcclTunerCandidate_v1_t *chain)
{
    static const xcclTunerComm_v1_t sixteen = {
        .size = sizeof sixteen, .nranks = 16, .nnodes = 2, .commId = 99};
    xcclTunerCandidate_v1_t other = candidate("binomial", "lines", 1);
    xcclTunerCandidate_v1_t *list[] = {&other, chain};
    const xcclTunerQuery_v1_t query = {
        .size = sizeof query, .collective = collective, .bytes = bytes, .elemBytes = 1};
    void *ctx = NULL;
    int said;

    *chain = candidate("chain", "slices", 2);
    XT_CHECK_INT(xccl_tuner_start(library, &sixteen, &ctx), 1);
    said = library->calls.choose(ctx, &query, list, 2);
    library->calls.finalize(ctx);
    XT_CHECK(other.cost == 1);
    return said;
}

XT_TEST(tuners_of_nccl_force_what_has_a_counterpart_and_are_silent_about_the_rest)
{
    struct xccl_tuner_library *library;
    xcclTunerCandidate_v1_t chain;

    start(FIXTURES);
    library = load("fx-v4");
    XT_CHECK_TEXT(library->label, "nccl (libnccl-tuner-fx-v4.so)");
    XT_CHECK_INT(ask_nccl(library, "broadcast", 4096, &chain), 1);
    XT_CHECK(chain.cost == 0);
    XT_CHECK_INT(chain.tileBytes, 8192);
    XT_CHECK_INT(warnings, 0);
    XT_CHECK_INT(ask_nccl(library, "all_reduce", 4096, &chain), 0);
    XT_CHECK_INT(ask_nccl(library, "alltoall", 4096, &chain), 0);
    XT_CHECK_INT(warnings, 0);
    XT_CHECK_INT(ask_nccl(library, "all_gather", 256, &chain), 0);
    XT_CHECK(chain.cost == 2);
    XT_CHECK_HAS(warning, "its answer is refused");
    XT_CHECK_INT(warnings, 1);
}

/* Each question is that of a communicator of its own. */
XT_TEST(a_tuner_of_nccl_that_misbehaves_is_told_once_a_process_and_library)
{
    static const char *const names[] = {"fx-v3", "fx-v4"};
    xcclTunerCandidate_v1_t chain;

    start(FIXTURES);
    for (int i = 0; i < 2; i++) {
        struct xccl_tuner_library *library = load(names[i]);
        void *ctx = NULL;

        for (int turn = 0; turn < 4; turn++) {
            XT_CHECK_INT(ask_nccl(library, turn & 1 ? "all_gather" : "reduce", 256, &chain), 0);
            XT_CHECK_INT(warnings, i + 1);
        }
        XT_CHECK_HAS(warning, names[i] + 3);
        XT_CHECK_HAS(warning, "the built-in choice is used");
        XT_CHECK_INT(xccl_tuner_start(library, &four, &ctx), 0); /* it wants 16 ranks */
        XT_CHECK_INT(warnings, i + 1);
    }
}

XT_TEST(an_nccl_tuner_whose_init_fails_is_told_once)
{
    struct xccl_tuner_library *library;
    void *ctx = NULL;

    start(FIXTURES);
    library = load("fx-v4");
    XT_CHECK_INT(xccl_tuner_start(library, &four, &ctx), 0); /* it wants 16 ranks */
    XT_CHECK_HAS(warning, "init failed");
}
