/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl algo: what concerns algorithms and their schedules. Here is only the table of its parts.
 *
 * Thread: the program's main thread. */
#include <stddef.h>

#include "algo/algo_int.h"
#include "command.h"
#include "part.h"

/* In the order of the help. */
static const struct xccl_part parts[] = {
    {"list", xccl_algo_list_help, xccl_algo_list_main},
    {"show", xccl_algo_show_help, xccl_algo_show_main},
    {"verify", xccl_algo_verify_help, xccl_algo_verify_main},
    {NULL, NULL, NULL},
};

static const char *part_help(const char *name)
{
    return xccl_part_help(parts, name);
}

static int algo_main(int argc, char **argv)
{
    return xccl_part_main("algo", parts, argc, argv);
}

const struct xccl_command xccl_cmd_algo = {
    .name = "algo",
    .summary = "list, show and verify the algorithms of collectives",
    .run = algo_main,
    .part_help = part_help,
    .help = "usage: xccl algo list [-n N|--nodes A,B,...] [--coll COLL] [--plugin FILE]\n"
            "       xccl algo show NAME -n N|--nodes A,B,... [options]\n"
            "       xccl algo verify NAME|--all [-n N|A..B|--nodes A,B,...] [options]\n"
            "       xccl algo verify --plugin FILE [NAME|--all] [-n N|A..B] [options]\n"
            "       xccl algo verify FILE...\n"
            "\n"
            "An algorithm produces a schedule: a short list of records that says what each rank\n"
            "does, for messages of any size. XCCL proves a schedule correct before it runs it.\n"
            "These commands move no data and need no GPU.\n"
            "\n"
            "  list    list the algorithms, with the cost of each in messages and bytes\n"
            "  show    print the schedule of one algorithm, as text or JSON\n"
            "  verify  prove schedules that are built in, in a plugin, or in a file; a refusal\n"
            "          shows the smallest counter-example\n"
            "Details: `xccl help algo list`, `xccl help algo show`, `xccl help algo verify`.\n"
            "\n"
            "--plugin FILE (or XCCL_ALGO_PLUGIN) is the path or the name of a shared library with\n"
            "algorithms, written against include/xccl_algo.h.\n"
            "\n"
            "Exit status: 0; 1 if a schedule is not proven; 2 for wrong arguments.\n"
            "\n"
            "examples: xccl algo list -n 16\n"
            "          xccl algo show ring --coll all_reduce -n 8 --rank 0\n"
            "          xccl algo verify --all -n 1..64\n"
            "          xccl algo show hier --coll all_reduce --nodes 4,4,2\n"
            "          xccl algo verify mine.txt\n",
};
