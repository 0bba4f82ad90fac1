/* SPDX-License-Identifier: BSD-3-Clause */
/* `xccl net list` and the words of `xccl net`, through the built program, with the plugins that the
 * loader's tests refuse as examples. The JSON is held against its schema by python3-jsonschema.
 *
 * Thread: one a test. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "xt.h"

#define XCCL     XT_BUILD_DIR "/bin/xccl"
#define FIXTURES XT_BUILD_DIR "/lib/fixtures"
#define SCHEMA   XT_SOURCE_DIR "/tools/schema/net_list.schema.json"
#define ARGS_MAX 16

/* Runs `xccl` with the words of args; returns the exit status. */
static int run_xccl(const char *args, const char **output_out)
{
    char words[1024];
    const char *argv[ARGS_MAX + 1] = {XCCL};
    char *rest = NULL;
    int count = 1, status = 0;

    snprintf(words, sizeof(words), "%s", args);
    for (char *word = strtok_r(words, " ", &rest); word && count < ARGS_MAX;
         word = strtok_r(NULL, " ", &rest))
        argv[count++] = word;
    status = xt_run_program(argv, output_out);
    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

XT_TEST(the_plugin_of_the_setting_is_shown_with_its_devices)
{
    const char *output = NULL;

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    XT_CHECK_INT(run_xccl("net list", &output), 0);
    XT_CHECK_HAS(output, "socket\n");
    XT_CHECK_HAS(output, "/libxccl-net-socket.so\n");
    XT_CHECK_HAS(output, "xcclNetPlugin_v1");
    XT_CHECK_HAS(output, "wire      socket/");
    XT_CHECK_HAS(output, "device");
    XT_CHECK_HAS(output, "lo ");
    XT_CHECK_HAS(output, "host");
    XT_CHECK_HAS(output, "host (any)");
    XT_CHECK_HAS(output, "1 TiB");
    XT_CHECK_HAS(output, "lo      all hosts");
    XT_CHECK_HAS(output, "unix    own host");
    XT_CHECK(strstr(output, "refused") == NULL);
}

XT_TEST(a_refused_plugin_is_shown_with_the_reason)
{
    const char *output = NULL;

    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    XT_CHECK_INT(run_xccl("net list fx-null-entry fx-minimal", &output), 1);
    XT_CHECK_HAS(output, "refused:\n   fx-null-entry");
    XT_CHECK_HAS(output, "its entry isend is NULL");
    XT_CHECK_HAS(output, "fx0");
    XT_CHECK_HAS(output, "fixture/");
    XT_CHECK_INT(run_xccl("net list fx-minimal", &output), 0);
    XT_CHECK(strstr(output, "refused") == NULL);
}

XT_TEST(a_name_that_is_nowhere_is_told_with_the_folders)
{
    const char *output = NULL;

    XT_CHECK_INT(run_xccl("net list nowhere", &output), 1);
    XT_CHECK_HAS(output, "libxccl-net-nowhere.so");
    XT_CHECK_HAS(output, "not found in");
}

XT_TEST(none_is_no_plugin)
{
    const char *output = NULL;

    xt_setenv("XCCL_NET_PLUGIN", "none");
    XT_CHECK_INT(run_xccl("net list", &output), 1);
    XT_CHECK_HAS(output, "XCCL_NET_PLUGIN is none");
}

/* Skips the test where python3 has no such module. */
static void need_module(const char *module)
{
    char code[64];
    const char *argv[] = {"python3", "-c", code, NULL};
    const char *output = NULL;

    snprintf(code, sizeof(code), "import %s", module);
    if (xt_run_program(argv, &output) != 0)
        XT_SKIP("python3 has no module %s", module);
}

XT_TEST(the_json_is_what_its_schema_says)
{
    static const char code[] =
        "import json, sys, jsonschema\n"
        "schema = json.load(open(sys.argv[1]))\n"
        "jsonschema.Draft7Validator.check_schema(schema)\n"
        "found = json.loads(sys.stdin.read() if len(sys.argv) < 3 else open(sys.argv[2]).read())\n"
        "jsonschema.validate(found, schema)\n"
        "plugins = found['plugins']\n"
        "assert [p['taken'] for p in plugins] == [True, False, True, False], plugins\n"
        "assert 'isend' in plugins[1]['reason'], plugins\n"
        "assert plugins[0]['devices'][0]['memory'] == ['host'], plugins\n"
        "assert [d['same_host'] for d in plugins[0]['devices']] == [False, True], plugins\n"
        "assert plugins[2]['devices'][0]['max_bytes'] == 1024, plugins\n"
        "for damage in ('taken', 'item', 'contracts'):\n"
        "    broken = json.loads(json.dumps(found))\n"
        "    del broken['plugins'][0][damage]\n"
        "    try:\n"
        "        jsonschema.validate(broken, schema)\n"
        "    except jsonschema.ValidationError:\n"
        "        continue\n"
        "    raise SystemExit('the schema misses ' + damage)\n";
    const char *argv[] = {"python3", "-c", code, SCHEMA, NULL, NULL};
    const char *output = NULL;
    char path[256];
    FILE *file = NULL;

    need_module("jsonschema");
    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    XT_CHECK_INT(
        run_xccl("net list --json socket fx-null-entry fx-minimal ./does-not-exist.so", &output),
        1);
    snprintf(path, sizeof(path), "%s/list.json", xt_tmpdir());
    file = fopen(path, "we");
    XT_CHECK(file != NULL);
    fputs(output, file);
    fclose(file);
    argv[4] = path;
    if (xt_run_program(argv, &output) != 0)
        XT_FAIL("the schema does not fit: %s", xt_why(output));
}

XT_TEST(all_plugin_files_are_shown_with_their_contracts)
{
    static const char *const parts[] = {
        "contract  ncclNetPlugin_v6\n",
        "contract  ncclNetPlugin_v12\n",
        "xcclNetPlugin_v1 (of xcclNetPlugin_v1 ncclNetPlugin_v12",
        "it crashes in init: signal 6",
        "it crashes in loading it",
        "trace is a hook around another network plugin",
    };
    const char *output = NULL;

    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_PLUGIN_PROBE_S", "1");
    XT_CHECK_INT(run_xccl("net list --all", &output), 0);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        XT_CHECK_HAS(output, parts[i]);
}

XT_TEST(names_on_the_systems_path_are_tried_out_as_well)
{
    const char *output = NULL;

    xt_setenv("LD_LIBRARY_PATH", FIXTURES);
    XT_CHECK_INT(run_xccl("net list fx-crash-init fx-minimal", &output), 1);
    XT_CHECK_HAS(output, "it crashes in init: signal 6");
    XT_CHECK_HAS(output, "/libxccl-net-fx-minimal.so\n");
}

XT_TEST(one_contract_may_be_asked_for)
{
    const char *output = NULL;

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    XT_CHECK_INT(run_xccl("net list socket@v9 fault:socket@v11", &output), 0);
    XT_CHECK_HAS(output, "wire      socket/nccl9/2");
    XT_CHECK_HAS(output, "wire      socket/nccl11/2");
}

XT_TEST(info_shows_the_same_facts)
{
    const char *output = NULL;

    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_NET_PLUGIN", "fx-null-entry,socket");
    XT_CHECK_INT(run_xccl("info", &output), 0);
    XT_CHECK_HAS(output, "net plugin: fx-null-entry: ");
    XT_CHECK_HAS(output, "its entry isend is NULL");
    XT_CHECK_HAS(output, "net plugin: socket: taken: ");
    XT_CHECK_HAS(output, "net plugin: socket: device lo, ");
    XT_CHECK_HAS(output, "net plugin: socket: device unix (own host only), ");
}

XT_TEST(wrong_arguments_are_named)
{
    static const struct {
        const char *args, *says;
    } cases[] = {
        {"net", "name one: list"},
        {"net lits", "did you mean net list?"},
        {"net pref socket", "did you mean net perf?"},
        {"net gibberish", "there is no net gibberish"},
        {"net list --jsn", "did you mean --json?"},
        {"net list --all socket", "--all takes no plugin names"},
        {"net list a,b", "is not the name or path of a plugin"},
        {"net list none", "is not the name or path of a plugin"},
    };
    const char *output = NULL;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        XT_CHECK_INT(run_xccl(cases[i].args, &output), 2);
        XT_CHECK_HAS(output, cases[i].says);
    }
}

XT_TEST(help_is_found_from_each_side)
{
    static const struct {
        const char *args, *says;
    } cases[] = {
        {"help net", "usage: xccl net list"},
        {"net --help", "usage: xccl net list"},
        {"help net perf", "usage: xccl net perf ITEM"},
        {"net list --help", "usage: xccl net list [--all]"},
        {"net perf socket --help", "What the figures mean"},
    };
    const char *output = NULL;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        XT_CHECK_INT(run_xccl(cases[i].args, &output), 0);
        XT_CHECK_HAS(output, cases[i].says);
    }
}
