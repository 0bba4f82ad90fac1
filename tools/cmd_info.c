/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl info: what this host offers to XCCL, one "name: value" a line. A name may come several
 * times.
 *
 * Thread: the program's main thread. */
#include "command.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/netaddr.h"
#include "base/os.h"
#include "base/param.h"
#include "bootstrap/launcher/launcher.h"
#include "net/net_list.h"
#include "option.h"
#include "plugin/tuner_library.h"
#include "xccl.h"

#define INTERFACES_MAX 16

static void show(const char *name, const char *value)
{
    printf("%s: %s\n", name, value);
}

static int show_versions(void)
{
    /* A function's address as data, the way dladdr wants it. */
    union {
        xcclResult_t (*call)(int *version);
        const void *address;
    } symbol = {.call = xcclGetVersion};
    Dl_info library = {.dli_fname = NULL};
    int version = 0;

    printf("xccl: %d.%d.%d\n", XCCL_MAJOR, XCCL_MINOR, XCCL_PATCH);
    if (xcclGetVersion(&version) != xcclSuccess) {
        show("library", xcclGetLastError(NULL));
        return 0;
    }
    if (!dladdr(symbol.address, &library))
        library.dli_fname = NULL;
    printf("library: %d.%d.%d %s\n", version / 10000, version / 100 % 100, version % 100,
           library.dli_fname ? library.dli_fname : "(path unknown)");
    return 1;
}

static int show_host(void)
{
    printf("host: %s\n", xccl_os_hostname());
    printf("cores: %d usable by this process\n", xccl_os_cores());
    return 1;
}

/* What would tell a program here its rank. */
static int show_launcher(void)
{
    show("launcher", xccl_launcher_name(NULL));
    return 1;
}

static int show_interfaces(void)
{
    struct xccl_netif interfaces[INTERFACES_MAX];
    char text[XCCL_ADDR_TEXT_BYTES];
    int count = 0;

    if (xccl_netif_choose(interfaces, INTERFACES_MAX, &count) != xcclSuccess) {
        printf("interface: none, %s\n", xccl_error_text());
        return 0;
    }
    for (int i = 0; i < count; i++) {
        char *port = NULL;

        xccl_addr_format(&interfaces[i].addr, text);
        port = strrchr(text, ':'); /* none has been chosen yet */
        if (port)
            *port = '\0';
        printf("interface: %s %s\n", interfaces[i].name, text);
    }
    return 1;
}

static int show_shared_memory(void)
{
    struct xccl_map map = {.fd = -1};

    if (xccl_map_create("xccl-info", 1 << 16, &map) != xcclSuccess) {
        printf("shared memory: none, %s\n", xccl_error_text());
        return 0;
    }
    xccl_map_close(&map);
    if (xccl_param_int(XCCL_P_SHM_DISABLE))
        show("shared memory", "sealed memory files work; not used because XCCL_SHM_DISABLE is set");
    else
        show("shared memory", "sealed memory files work");
    return 1;
}

static int show_plugins(void)
{
    struct xccl_net_list list;

    if (!xccl_net_list_collect(0, &list)) {
        printf("net plugin: none, %s\n", xccl_error_text());
        return 0;
    }
    xccl_net_list_why(&list, "network");
    for (int i = 0; i < list.count; i++)
        xccl_net_list_brief(&list.entries[i], "net plugin");
    if (list.count == 0)
        show("net plugin", "none: XCCL_NET_PLUGIN names none");
    xccl_net_list_free(&list);
    return 1;
}

static int show_tuner(void)
{
    struct xccl_tuner_library *library;

    if (xccl_tuner_library_load(xccl_param_string(XCCL_P_TUNER_PLUGIN), &library) != xcclSuccess) {
        printf("tuner: none, %s\n", xccl_error_text());
        return 0;
    }
    if (library)
        printf("tuner: %s from %s\n", library->name, library->path);
    else
        show("tuner", "none, the built-in choice is used");
    return 1;
}

static int show_settings(void)
{
    int shown = 0;

    for (int id = 0; id < XCCL_PARAM_COUNT; id++) {
        struct xccl_param_info info;
        const char *value = NULL;

        xccl_param_info((enum xccl_param_id)id, &info);
        if (info.origin == XCCL_ORIGIN_DEFAULT)
            continue;
        /* The key is a secret, and this output is made for being passed on. */
        value = id == XCCL_P_JOB_KEY ? "(not shown)" : info.value;
        printf("setting: %s=%s from %s\n", info.name, value,
               info.origin == XCCL_ORIGIN_FILE ? info.file : "the environment");
        shown++;
    }
    if (!shown)
        show("setting", "all are at their defaults");
    return 1;
}

static int info_main(int argc, char **argv)
{
    static int (*const parts[])(void) = {show_versions,   show_host,          show_launcher,
                                         show_interfaces, show_shared_memory, show_plugins,
                                         show_tuner,      show_settings};
    int status = XCCL_EXIT_OK;

    if (argc > 1)
        return xccl_option_usage("info", "unexpected argument %s", argv[1]);
    if (xccl_param_load() != xcclSuccess) {
        xccl_option_tell_error("xccl info");
        return XCCL_EXIT_FAILURE;
    }
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!parts[i]())
            status = XCCL_EXIT_FAILURE;
    }
    return status;
}

const struct xccl_command xccl_cmd_info = {
    .name = "info",
    .summary = "show what this host offers: versions, interfaces, plugins",
    .run = info_main,
    .help =
        "usage: xccl info\n"
        "\n"
        "Shows what XCCL finds on this host, one \"name: value\" per line: versions, the host\n"
        "and the cores that this process may use, the launcher that started this process, the\n"
        "network interfaces chosen (best first), whether shared memory works, the network plugin\n"
        "that ranks on different hosts would use and why, each network plugin that was tried and\n"
        "the result, the tuner plugin, and the settings that are not at their default.\n"
        "The output holds host names and addresses, but never the job's secret: it can go into\n"
        "a bug report.\n"
        "\n"
        "Exit status: 0; 1 if something that XCCL needs is missing; 2 for wrong arguments.\n",
};
