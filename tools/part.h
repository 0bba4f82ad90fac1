/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of a subcommand, as list, check and perf of `xccl net`: a table, and the choice of one
 * by its name.
 *
 * Thread: the program's main thread. */
#ifndef XCCL_TOOLS_PART_H
#define XCCL_TOOLS_PART_H

struct xccl_part {
    const char *name; /* NULL ends a table */
    const char *help; /* all of it, with a usage line first and a line end last */
    int (*run)(int argc, char **argv); /* argv[0] is the part's name */
};

/* The help of one part, or NULL. */
const char *xccl_part_help(const struct xccl_part *parts, const char *name);
/* Runs the part that argv[1] names. Returns the exit status. */
int xccl_part_main(const char *command, const struct xccl_part *parts, int argc, char **argv);

#endif
