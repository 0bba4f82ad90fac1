/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl net: what concerns network plugins. Here is only the table of its parts.
 *
 * Thread: the program's main thread. */
#include "command.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "net_check.h"
#include "net_list.h"
#include "net_perf.h"
#include "option.h"

/* In the order of the help. */
static const struct part {
    const char *name;
    const char *help;
    int (*run)(int argc, char **argv);
} parts[] = {
    {"list", xccl_net_list_help, xccl_net_list_main},
    {"check", xccl_net_check_help, xccl_net_check_main},
    {"perf", xccl_net_perf_help, xccl_net_perf_main},
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

static const struct part *find_part(const char *name)
{
    for (size_t i = 0; i < PARTS; i++) {
        if (strcmp(parts[i].name, name) == 0)
            return &parts[i];
    }
    return NULL;
}

static const char *part_help(const char *name)
{
    const struct part *part = find_part(name);

    return part ? part->help : NULL;
}

static int unknown_part(const char *name)
{
    const char *names[PARTS + 1] = {NULL};
    const char *near = NULL;

    for (size_t i = 0; i < PARTS; i++)
        names[i] = parts[i].name;
    near = xccl_option_nearest(name, names);
    if (near)
        return xccl_option_usage("net", "there is no net %s; did you mean net %s?", name, near);
    return xccl_option_usage("net", "there is no net %s", name);
}

static int is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int net_main(int argc, char **argv)
{
    const struct part *part = NULL;

    if (argc < 2)
        return xccl_option_usage("net", "say what: list, check or perf");
    part = find_part(argv[1]);
    if (!part)
        return unknown_part(argv[1]);
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (is_help(argv[i])) {
            fputs(part->help, stdout);
            return XCCL_EXIT_OK;
        }
    }
    return part->run(argc - 1, argv + 1);
}

const struct xccl_command xccl_cmd_net = {
    .name = "net",
    .summary = "list, check and measure network plugins",
    .run = net_main,
    .part_help = part_help,
    .help = "usage: xccl net list [--all] [--json] [ITEM...]\n"
            "       xccl net check [options] ITEM\n"
            "       xccl net perf ITEM [--peer ITEM2] [--vs ITEM3] [options]\n"
            "\n"
            "Looks at network plugins without a communicator, XCCL's and NCCL's alike, and needs\n"
            "neither a GPU nor a second host.\n"
            "\n"
            "  list   the plugins found, what each offers, and why others were refused\n"
            "  check  whether a plugin keeps the rules of xccl_net.h, one line a rule\n"
            "  perf   latency, bandwidth and message rate between two processes, with every byte\n"
            "         of a first pass checked; two plugins side by side with --vs\n"
            "\n"
            "ITEM is a plugin's name or path as in XCCL_NET_PLUGIN: socket, fault:socket,\n"
            "/opt/x/libnccl-net.so, socket@v10. `xccl help net perf` and the like say more.\n"
            "\n"
            "Exit status: 0; 1 when something failed; 2 for wrong arguments.\n"
            "\n"
            "examples: xccl net list --all\n"
            "          xccl net check ./libxccl-net-mine.so\n"
            "          xccl net perf socket --flows 1,4 --both\n"
            "          xccl net perf ./libnccl-net.so --vs socket --plot sizes.svg\n",
};
