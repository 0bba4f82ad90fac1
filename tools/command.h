/* SPDX-License-Identifier: BSD-3-Clause */
/* The subcommands of the xccl program. Each has one file cmd_NAME.c that defines one entry; xccl.c
 * holds the table of entries, finds the one that is meant and prints the help.
 *
 * Thread: the program's main thread. */
#ifndef XCCL_TOOLS_COMMAND_H
#define XCCL_TOOLS_COMMAND_H

/* Exit statuses of the program; `xccl run` hands on the status of the first rank that failed. */
enum {
    XCCL_EXIT_OK = 0,
    XCCL_EXIT_FAILURE = 1,
    XCCL_EXIT_USAGE = 2,
};

struct xccl_command {
    const char *name;
    const char *summary; /* one line for the list of commands */
    const char *help; /* all of it, with a usage line first and a line end last */
    /* argv[0] is the command's name. Returns the exit status. --help has been handled unless it
     * comes after an argument that is no option. */
    int (*run)(int argc, char **argv);
    /* The help of one of its parts, as of list for `xccl help net list`; NULL: it has no such
     * part. The entry is NULL for commands without parts. */
    const char *(*part_help)(const char *part);
};

extern const struct xccl_command xccl_cmd_algo;
extern const struct xccl_command xccl_cmd_env;
extern const struct xccl_command xccl_cmd_info;
extern const struct xccl_command xccl_cmd_net;
extern const struct xccl_command xccl_cmd_perf;
extern const struct xccl_command xccl_cmd_report;
extern const struct xccl_command xccl_cmd_run;

#endif
