/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that the loader takes and refuses, with real ones of each kind of plugin: their owners,
 * changes between the look, the trial and the loading, files that come with the library, and the
 * folders where the dynamic loader would look. The rules for one path are in test_trust.
 *
 * Each test is a process of its own. One thread. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cuda_driver.h"
#include "base/error.h"
#include "base/log.h"
#include "base/param.h"
#include "plugin/algo_library.h"
#include "plugin/net_plugin_int.h"
#include "plugin/tuner_library.h"
#include "unit/base/given_files.h"
#include "xt.h"

#define SHIPPED  XT_BUILD_DIR "/lib/xccl"
#define FIXTURES XT_BUILD_DIR "/lib/fixtures"
#define OTHER    12345
#define BUILDER  4711 /* the user of an installation */
#define WHOSE    "(owner 12345, mode 0755) belongs neither to root nor to this user: chown it, or"

static void start(void)
{
    snprintf(folder, sizeof(folder), "%.240s", xt_tmpdir());
    xt_setenv("XCCL_DEBUG", "info");
    xt_setenv("XCCL_PLUGIN_PATH", folder);
    xccl_param_reset();
    XT_OK(xccl_param_load());
}

static void run(const char *const *argv)
{
    const char *output;

    if (xt_run_program(argv, &output) != 0)
        XT_FAIL("%s %s: %s", argv[0], argv[1], output);
}

static void give(const char *path, uid_t uid)
{
    XT_CHECK_INT(lchown(path, uid, (gid_t)-1), 0);
}

static void owners_set(const char *owners)
{
    xt_setenv("XCCL_PLUGIN_OWNERS", owners);
    xccl_param_reset();
    XT_OK(xccl_param_load());
}

static xcclResult_t net_open(const char *item)
{
    static const struct xccl_net_open_args args = {.nranks = 2, .comm_name = "test"};
    struct xccl_net *net = NULL;
    xcclResult_t rc = xccl_net_open_item(item, &args, &net);

    xccl_net_close(net);
    return rc;
}

/* ---- each kind of plugin ---- */

static xcclResult_t take_algorithm(const xcclAlgoPlugin_v1_t *table, const char *path)
{
    (void)table, (void)path;
    return xcclSuccess;
}

static xcclResult_t algo_open(const char *path)
{
    return xccl_algo_libraries_load(path, take_algorithm);
}

static xcclResult_t tuner_open(const char *path)
{
    struct xccl_tuner_library *library = NULL;

    return xccl_tuner_library_load(path, &library);
}

static xcclResult_t hook_open(const char *path)
{
    (void)path;
    return net_open("hooked:a"); /* a is there, and this user's */
}

static const struct kind {
    const char *file, *name;
    xcclResult_t (*open)(const char *path);
} kinds[] = {
    {FIXTURES "/libxccl-net-fx-minimal.so", "libxccl-net-a.so", net_open},
    {FIXTURES "/libnccl-net-fx-v8.so", "libnccl-net-b.so", net_open},
    {SHIPPED "/libxccl-net-fault.so", "libxccl-net-hooked.so", hook_open},
    {SHIPPED "/libxccl-algo-hello.so", "libxccl-algo-c.so", algo_open},
    {SHIPPED "/libxccl-tuner.so", "libxccl-tuner-d.so", tuner_open},
    {FIXTURES "/libnccl-tuner-fx-v5.so", "libnccl-tuner-e.so", tuner_open},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

XT_TEST(every_kind_of_plugin_is_taken_from_this_user)
{
    start();
    for (size_t i = 0; i < KINDS; i++)
        XT_OK(kinds[i].open(copy(kinds[i].file, kinds[i].name)));
}

XT_TEST(every_kind_of_plugin_is_refused_from_another_user_unless_that_one_is_named)
{
    need_root();
    start();
    for (size_t i = 0; i < KINDS; i++) {
        const char *path;

        copy(kinds[0].file, kinds[0].name);
        path = copy(kinds[i].file, kinds[i].name);
        give(path, OTHER);
        owners_set("");
        XT_CHECK(kinds[i].open(path) != xcclSuccess);
        XT_CHECK_HAS(xccl_error_text(), kinds[i].name);
        XT_CHECK_HAS(xccl_error_text(), WHOSE);
        XT_CHECK_HAS(xccl_error_text(), "name the owner in XCCL_PLUGIN_OWNERS");
        XT_CHECK(dlopen(path, RTLD_NOW | RTLD_NOLOAD) == NULL);
        owners_set("12345");
        XT_OK(kinds[i].open(path));
    }
}

XT_TEST(a_refused_file_is_not_tried_out_either)
{
    const char *path;

    need_root();
    start();
    path = copy(FIXTURES "/libxccl-net-fx-crash-load.so", "libxccl-net-a.so");
    XT_CHECK(net_open(path) != xcclSuccess);
    XT_CHECK_HAS(xccl_error_text(), "it crashes in loading it");
    give(path, OTHER);
    XT_CHECK(net_open(path) != xcclSuccess);
    XT_CHECK_HAS(xccl_error_text(), WHOSE);
    XT_CHECK(!strstr(xccl_error_text(), "crashes"));
}

/* ---- between the look and the loading ---- */

/* Two good plugins, and a link to the first. */
static const char *make_link(struct xccl_file_id *id_out)
{
    struct net_reason why = {""};
    const char *link = in_folder("link.so");

    copy(FIXTURES "/libxccl-net-fx-minimal.so", "first.so");
    copy(FIXTURES "/libxccl-net-fx-crash-load.so", "second.so");
    XT_CHECK_INT(symlink("first.so", link), 0);
    if (!net_file_trusted(link, id_out, &why))
        XT_FAIL("%s", why.text);
    return link;
}

/* The second file ends the process that loads it, so a test that comes back has not loaded it. */
static void swap_link(const char *link)
{
    XT_CHECK_INT(symlink("second.so", in_folder("new.so")), 0);
    XT_CHECK_INT(rename(in_folder("new.so"), link), 0);
}

static void check_not_loaded(const char *link, const struct xccl_file_id *id)
{
    struct net_reason why = {""};

    XT_CHECK(net_file_load(link, id, &why) == NULL);
    XT_CHECK_HAS(why.text, "link.so was replaced or changed after it was looked at");
}

XT_TEST(a_link_that_is_swapped_after_the_look_is_not_followed)
{
    struct xccl_file_id id;
    const char *link;

    start();
    link = make_link(&id);
    swap_link(link);
    check_not_loaded(link, &id);
}

XT_TEST(a_file_that_is_written_after_the_look_is_not_loaded)
{
    struct xccl_file_id id;
    const char *link;
    int fd;

    start();
    link = make_link(&id);
    fd = open(in_folder("first.so"), O_WRONLY | O_APPEND | O_CLOEXEC);
    XT_CHECK_INT(write(fd, "x", 1), 1);
    close(fd);
    check_not_loaded(link, &id);
}

XT_TEST(the_same_file_is_loaded)
{
    struct net_reason why = {""};
    struct xccl_file_id id;
    const char *link;
    void *handle;

    start();
    link = make_link(&id);
    handle = net_file_load(link, &id, &why);
    XT_CHECK(handle != NULL);
    net_file_close(handle);
}

XT_TEST(the_trial_loads_no_other_file_than_the_one_that_was_looked_at)
{
    static const enum net_probe_depth depths[] = {NET_PROBE_LOAD, NET_PROBE_INIT, NET_PROBE_TUNER};

    start();
    for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
        struct net_reason why = {""};
        struct xccl_file_id id;
        const char *link;

        snprintf(folder, sizeof(folder), "%.240s", xt_tmpdir());
        link = make_link(&id);
        swap_link(link);
        XT_CHECK_INT(net_probe(link, &id, NET_CONTRACT_XCCL, depths[i], &why), NET_PROBE_BAD);
        XT_CHECK_HAS(why.text, "link.so was replaced or changed while it was tried out");
        XT_CHECK(!strstr(why.text, "crashes"));
    }
}

XT_TEST(the_identity_of_a_file_survives_the_way_to_the_trial)
{
    const struct xccl_file_id id = {.dev = UINT64_MAX,
                                    .ino = 7,
                                    .bytes = 1ll << 40,
                                    .modified = {.tv_sec = -5, .tv_nsec = 999999999},
                                    .changed = {.tv_sec = 1ll << 34, .tv_nsec = 1}};
    struct xccl_file_id back;
    char text[NET_PROBE_ID_BYTES];

    net_probe_id_format(&id, text);
    XT_CHECK(net_probe_id_parse(text, &back));
    XT_CHECK(xccl_file_id_is_same(&id, &back));
    XT_CHECK(!net_probe_id_parse("1:2:3:4.5:6.7x", &back));
    XT_CHECK(!net_probe_id_parse("1:2:3:4.5:6", &back));
    XT_CHECK(!net_probe_id_parse("", &back));
}

/* ---- what a plugin relies on ---- */

/* A file that needs another one beside it, by $ORIGIN. */
XT_TEST(a_plugin_finds_the_libraries_that_lie_beside_it)
{
    start();
    copy(FIXTURES "/origin", "vendor");
    XT_OK(net_open(in_folder("vendor/libxccl-net-fx-origin.so")));
    /* The folder may be reached by a link. */
    XT_CHECK_INT(symlink("vendor", in_folder("current")), 0);
    XT_OK(net_open(in_folder("current/libxccl-net-fx-origin.so")));
    XT_CHECK_INT(unlink(in_folder("vendor/libfx-sibling.so")), 0);
    XT_CHECK(net_open(in_folder("vendor/libxccl-net-fx-origin.so")) != xcclSuccess);
    XT_CHECK_HAS(xccl_error_text(), "libfx-sibling.so: cannot open shared object file");
}

/* ---- the dynamic loader's folders ---- */

/* The output of `xccl net list ITEM`, with a folder in LD_LIBRARY_PATH. */
static const char *list(const char *program, const char *libraries, const char *item)
{
    const char *const argv[] = {program, "net", "list", item, NULL};
    const char *output;

    xt_setenv("XCCL_PLUGIN_PATH", NULL);
    xt_setenv("LD_LIBRARY_PATH", libraries);
    (void)xt_run_program(argv, &output);
    return output;
}

XT_TEST(a_name_on_the_loaders_path_is_looked_at_before_any_of_its_code_runs)
{
    const char *path, *output;

    need_root();
    start();
    path = copy(FIXTURES "/libxccl-net-fx-minimal.so", "libxccl-net-x.so");
    output = list(XT_BUILD_DIR "/bin/xccl", folder, "x");
    XT_CHECK_HAS(output, path);
    XT_CHECK_HAS(output, "xcclNetPlugin_v1");
    /* Loading it would end the process. */
    path = copy(FIXTURES "/libxccl-net-fx-crash-load.so", "libxccl-net-y.so");
    give(path, OTHER);
    output = list(XT_BUILD_DIR "/bin/xccl", folder, "y");
    XT_CHECK_HAS(output, "belongs neither to root nor to this user");
    XT_CHECK(!strstr(output, "crashes"));
}

static int has_processor_folder(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
#else
    return 0;
#endif
}

/* The search for names leaves the loader's folders for kinds of processors to the loader, as it
 * does its cache. */
XT_TEST(a_file_that_only_the_loader_finds_is_looked_at_once_it_is_loaded)
{
    const char *path, *output;

    need_root();
    if (!has_processor_folder())
        XT_SKIP("this processor is not x86-64-v2");
    start();
    XT_CHECK_INT(mkdir(in_folder("glibc-hwcaps"), 0755), 0);
    XT_CHECK_INT(mkdir(in_folder("glibc-hwcaps/x86-64-v2"), 0755), 0);
    path = copy(FIXTURES "/libxccl-net-fx-minimal.so", "glibc-hwcaps/x86-64-v2/libxccl-net-x.so");
    output = list(XT_BUILD_DIR "/bin/xccl", folder, "x");
    XT_CHECK_HAS(output, path);
    XT_CHECK_HAS(output, "xcclNetPlugin_v1");
    give(path, OTHER);
    output = list(XT_BUILD_DIR "/bin/xccl", folder, "x");
    XT_CHECK_HAS(output, "libxccl-net-x.so " WHOSE);
    XT_CHECK(!strstr(output, "xcclNetPlugin_v1"));
}

/* ---- libraries that a setting names ---- */

XT_TEST(libraries_that_settings_name_follow_the_same_rules)
{
    const char *path, *output;

    need_root();
    start();
    path = copy(FIXTURES "/libxccl-net-fx-crash-load.so", "library.so");
    give(path, OTHER);
    xt_setenv("XCCL_IB_LIBRARY", path);
    output = list(XT_BUILD_DIR "/bin/xccl", NULL, "ib");
    XT_CHECK_HAS(output, "cannot open the verbs library: the file ");
    XT_CHECK_HAS(output, "library.so " WHOSE);
    XT_CHECK_HAS(output, "; set XCCL_IB_LIBRARY to another file");
    xt_setenv("XCCL_CUDA_LIBRARY", path);
    xccl_param_reset();
    XT_CHECK(xccl_cuda_driver() == NULL);
    XT_CHECK_HAS(xccl_cuda_why_not(), "there is no CUDA driver: the file ");
    XT_CHECK_HAS(xccl_cuda_why_not(), "library.so " WHOSE);
}

/* The ofi plugin opens a libfabric, and asks the CUDA driver by itself. */
XT_TEST(libraries_of_the_ofi_plugin_follow_the_same_rules)
{
    const char *fabric, *cuda, *output;

    need_root();
    if (access(FIXTURES "/fabric-efa/libfabric.so.1", R_OK) != 0)
        XT_SKIP("the ofi plugin was not built");
    start();
    xt_setenv("XCCL_DEBUG", "info");
    cuda = copy(FIXTURES "/libxccl-net-fx-crash-load.so", "cuda.so");
    give(cuda, OTHER);
    xt_setenv("XCCL_CUDA_LIBRARY", cuda);
    fabric = copy(FIXTURES "/fabric-efa/libfabric.so.1", "libfabric.so.1");
    xt_setenv("XCCL_OFI_LIBRARY", fabric);
    output = list(XT_BUILD_DIR "/bin/xccl", NULL, "ofi");
    XT_CHECK_HAS(output, "device memory: there is no CUDA driver: the file ");
    XT_CHECK_HAS(output, "cuda.so " WHOSE);
    give(fabric, OTHER);
    output = list(XT_BUILD_DIR "/bin/xccl", NULL, "ofi");
    XT_CHECK_HAS(output, "libfabric.so.1 " WHOSE);
    xt_setenv("XCCL_PLUGIN_OWNERS", "12345");
    xt_setenv("XCCL_CUDA_LIBRARY", NULL);
    XT_CHECK(!strstr(list(XT_BUILD_DIR "/bin/xccl", NULL, "ofi"), "belongs neither"));
}

/* ---- what comes with the library ---- */

/* An installation of another user: lib/libxccl.so.0, lib/xccl, bin/xccl, and a plugin elsewhere. */
static void install(void)
{
    const char *const chown_all[] = {"/bin/chown", "-R", "4711:4711", folder, NULL};

    XT_CHECK_INT(mkdir(in_folder("lib"), 0755), 0);
    XT_CHECK_INT(mkdir(in_folder("bin"), 0755), 0);
    XT_CHECK_INT(mkdir(in_folder("lib/xccl"), 0755), 0);
    XT_CHECK_INT(mkdir(in_folder("more"), 0755), 0);
    copy(XT_BUILD_DIR "/lib/libxccl.so.0", "lib/libxccl.so.0");
    copy(SHIPPED "/libxccl-net-socket.so", "lib/xccl/libxccl-net-socket.so");
    copy(SHIPPED "/xccl-probe", "lib/xccl/xccl-probe");
    copy(FIXTURES "/libxccl-net-fx-minimal.so", "bin/libxccl-net-x.so");
    copy(FIXTURES "/libxccl-net-fx-minimal.so", "more/libxccl-net-y.so");
    copy(XT_BUILD_DIR "/bin/xccl", "bin/xccl");
    run(chown_all);
}

static const char *list_installed(const char *item)
{
    char libraries[300];

    snprintf(libraries, sizeof(libraries), "%s/lib", folder);
    return list(in_folder("bin/xccl"), libraries, item);
}

static void check_taken(const char *item, const char *name)
{
    const char *output = list_installed(item);

    XT_CHECK_HAS(output, in_folder(name));
    XT_CHECK_HAS(output, "xcclNetPlugin_v1");
    XT_CHECK(!strstr(output, "refused"));
}

/* The command holds the loader itself: bin/xccl is the file whose owner counts. */
XT_TEST(plugins_that_come_with_a_program_may_belong_to_its_owner)
{
    const char *path;

    need_root();
    start();
    install();
    check_taken("socket", "lib/xccl/libxccl-net-socket.so");
    check_taken("x", "bin/libxccl-net-x.so");
    /* Another folder of that owner does not come with it. */
    XT_CHECK_HAS(list_installed(in_folder("more/libxccl-net-y.so")),
                 "more (owner 4711, mode 0755) belongs neither to root nor to this user");
    XT_CHECK_INT(symlink("../../more/libxccl-net-y.so", in_folder("lib/xccl/libxccl-net-z.so")), 0);
    XT_CHECK_HAS(list_installed("z"), "(owner 4711, mode 0755) belongs neither");
    /* A file of a third user does not either. */
    path = in_folder("lib/xccl/libxccl-net-socket.so");
    give(path, OTHER);
    XT_CHECK_HAS(list_installed("socket"), "(owner 12345");
    give(path, BUILDER);
    XT_CHECK_INT(chmod(path, 0777), 0);
    XT_CHECK_HAS(list_installed("socket"), "is world-writable");
    XT_CHECK_INT(chmod(path, 0755), 0);
    XT_CHECK_INT(chmod(in_folder("lib/xccl"), 0777), 0);
    XT_CHECK_HAS(list_installed("socket"), "lib/xccl (owner 4711, mode 0777) is world-writable");
    XT_CHECK_INT(chmod(in_folder("lib/xccl"), 0755), 0);
    XT_CHECK_INT(chmod(in_folder("bin"), 0777), 0);
    XT_CHECK_HAS(list_installed("x"), "bin (owner 4711, mode 0777) is world-writable");
}

XT_TEST(a_group_that_can_write_a_program_may_write_its_plugins)
{
    const char *path, *program;

    need_root();
    start();
    install();
    path = in_folder("lib/xccl/libxccl-net-socket.so");
    program = in_folder("bin/xccl");
    XT_CHECK_INT(chmod(path, 0775), 0);
    XT_CHECK_HAS(list_installed("socket"), "group 4711, mode 0775): its group");
    XT_CHECK_INT(chmod(program, 0775), 0);
    check_taken("socket", "lib/xccl/libxccl-net-socket.so");
    XT_CHECK_INT(chmod(program, 0755), 0);
    XT_CHECK_HAS(list_installed("socket"), "group 4711, mode 0775): its group");
    XT_CHECK_INT(chmod(in_folder("bin"), 0775), 0);
    check_taken("socket", "lib/xccl/libxccl-net-socket.so");
    XT_CHECK_INT(chown(path, BUILDER, OTHER), 0);
    XT_CHECK_HAS(list_installed("socket"), "group 12345, mode 0775): its group");
}

/* Two ranks that have only the network, in a program whose library lies in lib/. */
static const char *perf_installed(void)
{
    const char *const argv[] = {
        in_folder("bin/xccl"), "perf", "all_reduce", "--ranks", "2", "-b", "8", "-e", "8", NULL};
    const char *output;

    xt_setenv("XCCL_PLUGIN_PATH", NULL);
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_NET_PLUGIN", "socket");
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    (void)xt_run_program(argv, &output);
    return output;
}

XT_TEST(plugins_that_come_with_the_library_may_belong_to_its_owner)
{
    char taken[600];

    need_root();
    start();
    install();
    snprintf(taken, sizeof(taken), "taken: %s/lib/xccl/libxccl-net-socket.so", folder);
    XT_CHECK_HAS(perf_installed(), taken);
    give(in_folder("lib/xccl/libxccl-net-socket.so"), OTHER);
    XT_CHECK_HAS(perf_installed(), "(owner 12345, mode 0755) belongs neither to root");
    give(in_folder("lib/libxccl.so.0"), OTHER);
    give(in_folder("lib/xccl"), 0);
    XT_CHECK_HAS(perf_installed(), taken);
}

XT_TEST(a_helper_program_of_another_user_is_not_started)
{
    const char *output;

    need_root();
    start();
    install();
    xt_setenv("XCCL_DEBUG", "info");
    give(in_folder("lib/xccl/xccl-probe"), OTHER);
    output = list_installed("socket");
    XT_CHECK_HAS(output, "plugins are loaded without being tested first: the file ");
    XT_CHECK_HAS(output, "xccl-probe (owner 12345, mode 0755) belongs neither");
    give(in_folder("lib/xccl/xccl-probe"), BUILDER);
    XT_CHECK(!strstr(list_installed("socket"), "without being tested first"));
}
