/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL's tuner plugins, versions 2 to 6, over fixtures that know none of our headers: a good answer
 * counts, a bad one costs one warning and changes nothing. */
#include "plugin/tuner_plugin.h"

#include <stdio.h>

#include "base/error.h"
#include "base/log.h"
#include "xt.h"

#define FIXTURES  XT_BUILD_DIR "/lib/fixtures"
#define BYTES     4096 /* what the fixture wants to be asked about */
#define PIPE_OPS  3
#define FUNC_GOOD 0

static char last_line[1100];
static int warnings;

static void keep_line(enum xccl_log_level level, const char *line)
{
    if (level > XCCL_LOG_WARN)
        return;
    /* The plugin's own lines are not counted: the tuner's say what follows. */
    if (!strstr(line, "tuner plugin"))
        return;
    warnings++;
    snprintf(last_line, sizeof(last_line), "%s", line);
}

static struct xccl_tuner_open_args args = {
    .comm_id = 99, .nranks = 16, .nnodes = 2, .domain = {2, 7, 9}};

static struct xccl_tuner *tuner_open(int version)
{
    struct xccl_tuner *tuner = NULL;
    char name[32], wanted[64];

    warnings = 0;
    xccl_log_set_sink(keep_line);
    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    snprintf(name, sizeof(name), "fx-v%d", version);
    snprintf(wanted, sizeof(wanted), "FX tuner (ncclTunerPlugin_v%d)", version);
    XT_OK(xccl_tuner_open(name, NULL, &args, &tuner));
    XT_CHECK_TEXT(xccl_tuner_name(tuner), wanted);
    return tuner;
}

static void table_fill(float table[NCCL_ALGOS][NCCL_PROTOS])
{
    for (int i = 0; i < NCCL_ALGOS * NCCL_PROTOS; i++)
        table[i / NCCL_PROTOS][i % NCCL_PROTOS] = 10.0f + (float)i;
    /* No collnet; NVLS without LL. */
    for (int proto = 0; proto < NCCL_PROTOS; proto++)
        table[NCCL_ALGO_COLLNET_DIRECT][proto] = table[NCCL_ALGO_COLLNET_CHAIN][proto] = -1;
    table[NCCL_ALGO_NVLS][NCCL_PROTO_LL] = -1;
}

/* Asks; changed_out: how many entries changed. */
static int ask(struct xccl_tuner *tuner, int func, int registered, int *channels, int *changed_out,
               float table[NCCL_ALGOS][NCCL_PROTOS])
{
    float before[NCCL_ALGOS][NCCL_PROTOS];
    int said;

    table_fill(before);
    table_fill(table);
    *channels = 0;
    *changed_out = 0;
    said = xccl_tuner_cost(tuner, func, BYTES, PIPE_OPS, registered, table, channels);
    for (int i = 0; i < NCCL_ALGOS * NCCL_PROTOS; i++)
        *changed_out += before[i / NCCL_PROTOS][i % NCCL_PROTOS] !=
                        table[i / NCCL_PROTOS][i % NCCL_PROTOS];
    return said;
}

XT_TEST(tuner_layouts_are_the_measured_ones)
{
    XT_CHECK_INT(sizeof(struct nccl_tuner_v2), 32);
    XT_CHECK_INT(sizeof(struct nccl_tuner_v3), 32);
    XT_CHECK_INT(sizeof(struct nccl_tuner_v4), 32);
    XT_CHECK_INT(sizeof(struct nccl_tuner_v5), 32);
    XT_CHECK_INT(sizeof(struct nccl_tuner_v6), 40);
    XT_CHECK_INT(sizeof(struct nccl_nvl_domain), 12);
    XT_CHECK_INT(sizeof(struct nccl_tuner_constants), 1152);
    XT_CHECK_INT(offsetof(struct nccl_tuner_v6, get_chunk_size), 32);
    XT_CHECK_INT(offsetof(struct nccl_tuner_constants, link_latencies), 168);
    XT_CHECK_INT(offsetof(struct nccl_tuner_constants, channel_nvls_tree), 1056);
}

XT_TEST(a_choice_becomes_a_zero_and_channels_are_taken)
{
    for (int version = 2; version <= 6; version++) {
        struct xccl_tuner *tuner = tuner_open(version);
        float table[NCCL_ALGOS][NCCL_PROTOS];
        int channels, changed;

        XT_CHECK_INT(ask(tuner, FUNC_GOOD, 0, &channels, &changed, table), 1);
        XT_CHECK(table[NCCL_ALGO_RING][NCCL_PROTO_SIMPLE] == 0);
        XT_CHECK_INT(changed, 1);
        XT_CHECK_INT(channels, 4);
        XT_CHECK_INT(ask(tuner, FUNC_GOOD, 1, &channels, &changed, table), 1);
        XT_CHECK_INT(changed, version >= 4 ? 2 : 1);
        XT_CHECK_INT(ask(tuner, 4, 0, &channels, &changed, table), 1);
        XT_CHECK_INT(changed, 0);
        XT_CHECK_INT(channels, 0);
        XT_CHECK_INT(warnings, 0);
        xccl_tuner_close(tuner);
    }
    xccl_tuner_close(NULL);
}

XT_TEST(a_bad_answer_changes_nothing_and_is_warned_of_once)
{
    static const struct {
        int func;
        const char *text;
    } bad[] = {
        {1, "getCollInfo failed"},
        {2, "an entry of -1"},
        {3, "its number of channels"},
        {5, ""}, /* version 2 names what is not there, the others write what is no number */
    };

    for (int version = 2; version <= 6; version++) {
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
            struct xccl_tuner *tuner = tuner_open(version);
            float table[NCCL_ALGOS][NCCL_PROTOS];
            int channels, changed;

            for (int turn = 0; turn < 3; turn++) {
                XT_CHECK_INT(ask(tuner, bad[i].func, 0, &channels, &changed, table), 0);
                XT_CHECK_INT(changed, 0);
                XT_CHECK_INT(channels, 0);
            }
            XT_CHECK_INT(warnings, 1);
            XT_CHECK_HAS(last_line, bad[i].text);
            XT_CHECK_HAS(last_line, "the built-in choice is used");
            XT_CHECK_INT(ask(tuner, FUNC_GOOD, 0, &channels, &changed, table), 1);
            xccl_tuner_close(tuner);
        }
    }
}

XT_TEST(chunks_become_smaller_only)
{
    for (int version = 2; version <= 6; version++) {
        struct xccl_tuner *tuner = tuner_open(version);
        static const size_t wanted[] = {500, 1000, 1000, 1000}; /* half, error, double, 0 */

        for (int func = 0; func < 4; func++)
            XT_CHECK_INT(
                xccl_tuner_chunk(tuner, func, BYTES, NCCL_ALGO_RING, NCCL_PROTO_SIMPLE, 4, 1000),
                version == 6 ? wanted[func] : 1000);
        XT_CHECK_INT(warnings, version == 6);
        xccl_tuner_close(tuner);
    }
}

XT_TEST(the_chunk_entry_may_be_absent)
{
    struct xccl_tuner *tuner = NULL;

    XT_OK(xccl_tuner_open(FIXTURES "/libnccl-tuner-fx-v6n.so", NULL, &args, &tuner));
    XT_CHECK_INT(xccl_tuner_chunk(tuner, 0, BYTES, 1, 2, 4, 1000), 1000);
    xccl_tuner_close(tuner);
}

XT_TEST(constants_are_the_plugins_to_change_from_version_5_on)
{
    struct nccl_tuner_constants constants = {.base_latencies = {{4}}};
    struct xccl_tuner *tuner;

    args.constants = &constants;
    tuner = tuner_open(4);
    XT_CHECK(constants.base_latencies[0][0] == 4);
    xccl_tuner_close(tuner);
    tuner = tuner_open(6);
    XT_CHECK(constants.base_latencies[0][0] == 5);
    XT_CHECK(constants.channel_nvls_tree[3][2] == 2);
    xccl_tuner_close(tuner);
    args.constants = NULL;
}

XT_TEST(a_network_library_may_hold_the_tuner)
{
    struct xccl_tuner *tuner = NULL;

    XT_OK(xccl_tuner_open(NULL, FIXTURES "/libnccl-tuner-fx-v5.so", &args, &tuner));
    xccl_tuner_close(tuner);
    XT_OK(xccl_tuner_open("nowhere", FIXTURES "/libnccl-tuner-fx-v5.so", &args, &tuner));
    xccl_tuner_close(tuner);
}

XT_TEST(what_cannot_be_used_is_named)
{
    struct xccl_tuner *tuner = NULL;

    XT_CHECK_RC(xccl_tuner_open("nowhere", FIXTURES "/libnccl-net-fx-v9.so", &args, &tuner),
                xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "libnccl-tuner-nowhere.so");
    XT_CHECK_HAS(xccl_error_text(), "no symbol ncclTunerPlugin_v6 to _v2");
    XT_CHECK_RC(xccl_tuner_open(NULL, NULL, &args, &tuner), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "no plugin was named");
    xt_setenv("FX_TUNER_RESULT", "5");
    XT_CHECK_RC(xccl_tuner_open(NULL, FIXTURES "/libnccl-tuner-fx-v2.so", &args, &tuner),
                xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "init failed (");
    XT_CHECK_HAS(xccl_error_text(), "fixture: told to fail");
    XT_CHECK(tuner == NULL);
}
