/* SPDX-License-Identifier: BSD-3-Clause */
/* A plugin that is linked into the program: STATIC_PLUGIN finds it among the program's own symbols.
 * The table is the smallest fixture's.
 *
 * A program that holds the library may lie anywhere, so it also looks into the plugin folder of the
 * installation, which libxccl.a names: here, the folder of the fixtures. Thread: one. */
#define FIXTURE_MINIMAL
#include "../fixtures/net_fixture.c"

#include "base/error.h"
#include "plugin/net_plugin.h"
#include "plugin/net_plugin_int.h"
#include "xt.h"

const char *const xccl_plugin_home = XT_BUILD_DIR "/lib/fixtures";

XT_TEST(plugin_in_the_program_itself_is_found)
{
    static const struct xccl_net_open_args args = {.nranks = 2, .traffic_class = -1};
    struct xccl_net *net = NULL;

    xt_set_error_source(xccl_error_text);
    XT_OK(xccl_net_open_item("STATIC_PLUGIN", &args, &net));
    XT_CHECK_TEXT(net->calls.name, "fixture");
    XT_CHECK_TEXT(net->path, "(this program)");
    XT_CHECK(net->calls.isend == xcclNetPlugin_v1.isend);
    xccl_net_close(net);
    XT_CHECK_RC(xccl_net_open_item("STATIC_PLUGIN@v8", &args, &net), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "no symbol ncclNetPlugin_v8, only xcclNetPlugin_v1");
}

XT_TEST(plugins_of_the_installation_are_found_last)
{
    static const struct xccl_net_open_args args = {.nranks = 2, .traffic_class = -1};
    struct net_folders folders;
    struct xccl_net *net = NULL;

    if (XT_ASAN)
        XT_SKIP("program and plugin have one symbol, which the address sanitizer does not allow");
    xt_set_error_source(xccl_error_text);
    net_folders_find(&folders);
    XT_CHECK(folders.count > 1);
    XT_CHECK_TEXT(folders.path[folders.count - 1], xccl_plugin_home);
    XT_CHECK(folders.own[folders.count - 1]); /* xccl-probe may lie there */
    XT_OK(xccl_net_open_item("fx-minimal", &args, &net));
    XT_CHECK_TEXT(net->path, XT_BUILD_DIR "/lib/fixtures/libxccl-net-fx-minimal.so");
    xccl_net_close(net);
}
