/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl net: what concerns network plugins. Here is only the table of its parts.
 *
 * Thread: the program's main thread. */
#include "command.h"

#include <stddef.h>

#include "net/net_check.h"
#include "net/net_list.h"
#include "net/net_perf.h"
#include "part.h"

/* In the order of the help. */
static const struct xccl_part parts[] = {
    {"list", xccl_net_list_help, xccl_net_list_main},
    {"check", xccl_net_check_help, xccl_net_check_main},
    {"perf", xccl_net_perf_help, xccl_net_perf_main},
    {NULL, NULL, NULL},
};

static const char *part_help(const char *name)
{
    return xccl_part_help(parts, name);
}

static int net_main(int argc, char **argv)
{
    return xccl_part_main("net", parts, argc, argv);
}

const struct xccl_command xccl_cmd_net = {
    .name = "net",
    .summary = "list, check and measure network plugins",
    .run = net_main,
    .part_help = part_help,
    .help =
        "usage: xccl net list [--all] [--json] [ITEM...]\n"
        "       xccl net check [options] PLUGIN\n"
        "       xccl net perf ITEM [--peer ITEM2] [--vs ITEM3] [options]\n"
        "\n"
        "Examines network plugins of XCCL and of NCCL. None of these commands needs a\n"
        "communicator, a GPU or a second host.\n"
        "\n"
        "  list   show the plugins found, what each offers, and why others were refused\n"
        "  check  check whether a plugin keeps each rule of its contract; one line per rule\n"
        "  perf   measure latency, bandwidth and message rate between two processes; a\n"
        "         first pass checks every byte; --vs compares two plugins\n"
        "\n"
        "ITEM or PLUGIN is a name or path, as in XCCL_NET_PLUGIN: socket, fault:socket,\n"
        "/opt/x/libnccl-net.so, socket@v10 (version 10 of NCCL's contract). Details: `xccl help\n"
        "net list`, `xccl help net check`, `xccl help net perf`.\n"
        "\n"
        "Exit status: 0; 1 if something failed; 2 for wrong arguments.\n"
        "\n"
        "examples: xccl net list --all\n"
        "          xccl net check ./libxccl-net-mine.so\n"
        "          xccl net perf socket --flows 1,4 --both\n"
        "          xccl net perf ./libnccl-net.so --vs socket --plot sizes.svg\n",
};
