/* SPDX-License-Identifier: BSD-3-Clause */
/* The loader: each reason to refuse a plugin has its text, a list goes on behind a refusal, absent
 * entries are stubs. The broken plugins are in tests/fixtures. */
#include "plugin/net_plugin.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/param.h"
#include "xt.h"

#define FIXTURES XT_BUILD_DIR "/lib/fixtures"

static char lines[128][1100];
static int line_count;

static void keep_line(enum xccl_log_level level, const char *line)
{
    (void)level;
    if (line_count < 128)
        snprintf(lines[line_count++], sizeof(lines[0]), "%s", line);
}

static int lines_with(const char *part)
{
    int count = 0;

    for (int i = 0; i < line_count; i++)
        count += strstr(lines[i], part) != NULL;
    return count;
}

static xcclResult_t open_list(const char *list, struct xccl_net **net_out)
{
    static const struct xccl_net_open_args args = {
        .comm_id = 1, .rank = 0, .nranks = 2, .comm_name = "test"};

    int count = 0;

    xt_setenv("XCCL_DEBUG", "info");
    xccl_log_set_sink(keep_line);
    XT_OK(xccl_param_load());
    return xccl_net_open_list(list, &args, net_out, 1, &count);
}

/* The list is refused with a text that has part, and a log line says so too. */
static void refused(const char *list, const char *part)
{
    struct xccl_net *net = NULL;

    XT_CHECK_RC(open_list(list, &net), xcclSystemError);
    XT_CHECK(net == NULL);
    XT_CHECK_HAS(xccl_error_text(), "no usable network plugin");
    XT_CHECK_HAS(xccl_error_text(), part);
    XT_CHECK(lines_with(part) >= 2);
}

static void copy_file(const char *from, const char *to, mode_t mode)
{
    char bytes[4096];
    ssize_t got;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    XT_CHECK(in >= 0 && out >= 0);
    while ((got = read(in, bytes, sizeof(bytes))) > 0)
        XT_CHECK(write(out, bytes, (size_t)got) == got);
    XT_CHECK_INT(fchmod(out, mode), 0);
    close(in);
    close(out);
}

XT_TEST(a_missing_plugin_is_named_with_the_folders_sought)
{
    xt_setenv("XCCL_PLUGIN_PATH", "/no/such/folder");
    refused("nowhere", "libxccl-net-nowhere.so not found in /no/such/folder");
}

XT_TEST(a_missing_path_is_named)
{
    refused("/no/such/plugin.so", "/no/such/plugin.so refused");
    XT_CHECK_HAS(xccl_error_text(), "No such file");
}

XT_TEST(a_file_that_is_no_library_is_refused)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/libxccl-net-text.so", xt_tmpdir());
    copy_file("/proc/self/environ", path, 0644);
    refused(path, "libxccl-net-text.so refused");
}

XT_TEST(a_library_without_the_symbol_is_refused)
{
    refused(FIXTURES "/libxccl-net-fx-no-symbol.so", "no symbol xcclNetPlugin_v1");
}

XT_TEST(a_missing_entry_is_named)
{
    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    refused("fx-null-entry", "its entry isend is NULL");
}

XT_TEST(a_short_table_is_refused)
{
    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    refused("fx-short-table", "contract version 1 needs at least");
}

XT_TEST(a_name_that_is_a_path_is_refused)
{
    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    refused("fx-bad-name", "its name does not consist of");
}

XT_TEST(an_init_error_shows_the_plugins_own_text)
{
    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    refused("fx-init-error", "the fixture was told to fail");
    XT_CHECK_INT(lines_with("fixture at work"), 1);
}

XT_TEST(a_plugin_without_devices_is_refused)
{
    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    refused("fx-no-device", "finds no device");
}

XT_TEST(a_plugin_that_crashes_costs_nothing_but_itself)
{
    struct xccl_net *net = NULL;

    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    refused("fx-crash-load", "it crashes in loading it: signal 6 (Aborted)");
    refused("fx-crash-init", "it crashes in init: signal 6 (Aborted)");
    refused("fx-exit-init", "it ends the process in init");
    XT_OK(open_list("fx-crash-load,fx-crash-init,fx-minimal", &net));
    XT_CHECK_HAS(net->path, "fx-minimal");
    xccl_net_close(net);
}

XT_TEST(a_plugin_that_does_not_come_back_is_refused_after_the_deadline)
{
    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    xt_setenv("XCCL_PLUGIN_PROBE_S", "1");
    refused("fx-stall-load", "it does not return from loading it within 1 s");
    refused("fx-stall-init", "it does not return from init within 1 s");
}

XT_TEST(a_refusal_is_remembered)
{
    uint64_t begin_ns;

    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    xt_setenv("XCCL_PLUGIN_PROBE_S", "2");
    refused("fx-stall-init", "within 2 s");
    begin_ns = xccl_clock_ns();
    refused("fx-stall-init", "within 2 s");
    XT_CHECK(xccl_clock_ns() - begin_ns < XCCL_NS_PER_S);
}

XT_TEST(neither_long_paths_nor_own_folders_escape_the_trial)
{
    char folder[512], path[1024];

    /* The folder that the library would look in anyway, named by the user as well. */
    snprintf(path, sizeof(path), "%s:%s", XT_BUILD_DIR "/lib/xccl", FIXTURES);
    xt_setenv("XCCL_PLUGIN_PATH", path);
    refused("fx-crash-init", "it crashes in init");
    snprintf(folder, sizeof(folder), "%s/%0200d", xt_tmpdir(), 0);
    XT_CHECK_INT(mkdir(folder, 0700), 0);
    snprintf(path, sizeof(path), "%s/%0100d.so", folder, 0);
    copy_file(FIXTURES "/libxccl-net-fx-crash-init.so", path, 0644);
    if (strlen(path) < 254)
        XT_FAIL("%s is too short to test anything", path);
    refused(path, "it has more than 254 letters");
}

XT_TEST(what_was_sought_is_named_without_a_trial_too)
{
    xt_setenv("XCCL_PLUGIN_PATH", "/no/such/folder");
    xt_setenv("XCCL_PLUGIN_PROBE_S", "0");
    refused("nowhere", "libxccl-net-nowhere.so not found in /no/such/folder");
}

XT_TEST(a_good_plugin_is_tried_once_a_process)
{
    struct xccl_net *net = NULL;
    char path[512];

    /* The probe's own copy of the file goes away between two loads: no second probe misses it. */
    snprintf(path, sizeof(path), "%s/libxccl-net-once.so", xt_tmpdir());
    copy_file(FIXTURES "/libxccl-net-fx-minimal.so", path, 0644);
    XT_OK(open_list(path, &net));
    xccl_net_close(net);
    XT_OK(open_list(path, &net));
    xccl_net_close(net);
    /* Another file under the same name is another plugin. */
    XT_CHECK_INT(unlink(path), 0);
    copy_file(FIXTURES "/libxccl-net-fx-crash-init.so", path, 0644);
    refused(path, "it crashes in init");
}

XT_TEST(a_file_beside_a_damaged_one_is_found)
{
    struct xccl_net *net = NULL;
    char folder[512], path[1024];

    /* Two folders hold the name; the first file is no library. */
    snprintf(folder, sizeof(folder), "%s", xt_tmpdir());
    snprintf(path, sizeof(path), "%s/libxccl-net-fx-minimal.so", folder);
    copy_file("/proc/self/environ", path, 0644);
    snprintf(path, sizeof(path), "%s:%s", folder, FIXTURES);
    xt_setenv("XCCL_PLUGIN_PATH", path);
    XT_OK(open_list("fx-minimal", &net));
    XT_CHECK_HAS(net->path, FIXTURES);
    XT_CHECK_INT(lines_with("refused"), 1);
    xccl_net_close(net);
}

XT_TEST(what_stands_for_no_plugin_is_told_apart)
{
    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    refused("fx-minimal@v99", "only xccl1 or v6 to v12 may follow the @");
    refused(FIXTURES "/libnccl-net-fx-v8.so@v5", "only xccl1 or v6 to v12 may follow the @");
    refused("fault:" FIXTURES "/libnccl-net-fx-v8.so@v5", "only xccl1 or v6 to v12 may follow");
    refused(FIXTURES "/libnccl-net-fx-v8.so@xccl2", "only xccl1 or v6 to v12 may follow the @");
    refused("fx minimal", "is not the name of a plugin");
    refused("a:b:c:d:e:socket", "at most 4 hooks");
    refused("fault:", "no plugin follows the hook");
    refused("fx-minimal@v8", "it has no symbol ncclNetPlugin_v8, only xcclNetPlugin_v1");
    refused("nohook:fx-minimal", "hook nohook: no libxccl-net-");
}

XT_TEST(a_contract_may_be_asked_for_and_names_of_paths_may_hold_signs)
{
    struct xccl_net *net = NULL;
    char path[512];

    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    XT_OK(open_list("fx-minimal@xccl1", &net));
    XT_CHECK_TEXT(net->contract, "xcclNetPlugin_v1");
    xccl_net_close(net);
    snprintf(path, sizeof(path), "%s/libxccl-net-a@b:c.so", xt_tmpdir());
    copy_file(FIXTURES "/libxccl-net-fx-minimal.so", path, 0644);
    XT_OK(open_list(path, &net));
    xccl_net_close(net);
}

XT_TEST(unloading_is_followed_by_a_load_that_starts_anew)
{
    struct xccl_net *net = NULL, *other = NULL;

    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    for (int i = 0; i < 20; i++) {
        XT_OK(open_list("fx-minimal", &net));
        XT_OK(open_list("fx-minimal", &other));
        xccl_net_close(net);
        xccl_net_close(other);
    }
}

XT_TEST(a_world_writable_file_is_refused)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/libxccl-net-loose.so", xt_tmpdir());
    copy_file(FIXTURES "/libxccl-net-fx-minimal.so", path, 0666);
    refused(path, "world-writable");
}

XT_TEST(a_world_writable_folder_is_refused)
{
    const char *folder = xt_tmpdir();
    char path[512];

    snprintf(path, sizeof(path), "%s/libxccl-net-loose.so", folder);
    copy_file(FIXTURES "/libxccl-net-fx-minimal.so", path, 0644);
    XT_CHECK_INT(chmod(folder, 0777), 0);
    refused(path, "world-writable");
    /* The sticky bit keeps others from replacing the file. */
    XT_CHECK_INT(chmod(folder, 01777), 0);
    struct xccl_net *net = NULL;
    XT_OK(open_list(path, &net));
    xccl_net_close(net);
}

XT_TEST(all_candidates_are_listed_when_none_is_usable)
{
    struct xccl_net *net = NULL;

    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    XT_CHECK_RC(open_list("fx-no-device, fx-init-error", &net), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "fx-no-device");
    XT_CHECK(lines_with("fx-init-error") >= 1);
}

XT_TEST(a_list_goes_on_behind_a_refusal_and_stubs_fill_the_table)
{
    struct xccl_net *net = NULL;
    xcclNetStats_v1 stats = {.size = sizeof(stats), .sendBytes = 9};
    xcclNetRequest_t request = &stats;
    int fd = 5, pending = 7;

    xt_setenv("XCCL_PLUGIN_PATH", "/no/such/folder::" FIXTURES);
    XT_OK(open_list(" fx-no-symbol ,,fx-minimal,socket", &net));
    XT_CHECK_TEXT(net->calls.name, "fixture");
    XT_CHECK_TEXT(net->wire_id, "fixture/xccl1/7");
    XT_CHECK_INT(net->device_count, 1);
    XT_CHECK_HAS(net->path, "libxccl-net-fx-minimal.so");
    XT_CHECK_INT(lines_with("no symbol"), 1);
    XT_CHECK_INT(lines_with("taken"), 1);
    XT_OK(net->calls.stats(net->ctx, 0, &stats));
    XT_CHECK_INT(stats.sendBytes, 0);
    XT_OK(net->calls.waitFd(NULL, &fd));
    XT_CHECK_INT(fd, -1);
    XT_OK(net->calls.progress(net->ctx, &pending));
    XT_CHECK_INT(pending, 0);
    XT_OK(net->calls.iflush(NULL, 0, NULL, NULL, NULL, &request));
    XT_CHECK(request == NULL);
    xccl_net_close(net);
    xccl_net_close(NULL);
}

XT_TEST(none_allows_one_node_only)
{
    static const struct xccl_net_open_args args = {.nranks = 2, .traffic_class = -1};
    struct xccl_net *net = NULL;

    int count = 0;

    XT_OK(xccl_param_load());
    XT_CHECK_RC(xccl_net_open_list("none", &args, &net, 1, &count), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "one host only");
}

static void survey_line(void *user, const struct xccl_net_candidate *candidate)
{
    (*(int *)user)++;
    keep_line(XCCL_LOG_INFO, candidate->reason ? candidate->reason : "taken");
}

XT_TEST(a_survey_tells_every_candidates_fate)
{
    int told = 0;

    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    xt_setenv("XCCL_NET_PLUGIN", "fx-null-entry,fx-minimal,nowhere,none");
    XT_OK(xccl_net_survey(0, survey_line, &told));
    XT_CHECK_INT(told, 3);
    XT_CHECK_HAS(lines[0], "isend");
    XT_CHECK_HAS(lines[1], "taken");
    XT_CHECK_HAS(lines[2], "not found");
}

XT_TEST(the_socket_plugin_is_found_beside_the_program_and_exports_one_symbol)
{
    static const char *const hidden[] = {"sock_isend", "xccl_fail", "xccl_tcp_listen"};
    struct xccl_net *net = NULL;

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    XT_OK(open_list("socket", &net));
    XT_CHECK_TEXT(net->calls.name, "socket");
    void *library = dlopen(net->path, RTLD_NOW | RTLD_NOLOAD);
    XT_CHECK(library);
    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
        XT_CHECK(dlsym(library, hidden[i]) == NULL);
    dlclose(library);
    xccl_net_close(net);
}
