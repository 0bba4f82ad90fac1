/* SPDX-License-Identifier: BSD-3-Clause */
/* The xccl program: one command with subcommands. Here is only the table, the choice and the help;
 * each subcommand has a file of its own (command.h).
 *
 * Thread: the program's main thread. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "option.h"
#include "xccl.h"

/* In the order of the help. */
static const struct xccl_command *const commands[] = {
    &xccl_cmd_run,  &xccl_cmd_perf, &xccl_cmd_report, &xccl_cmd_net,
    &xccl_cmd_algo, &xccl_cmd_info, &xccl_cmd_env,
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

/* Commands that README calls planned: who tries one is not sent to another of a like name. */
static const char *const planned[] = {"topo", "tune"};

static const struct xccl_command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    }
    return NULL;
}

static int show_overview(void)
{
    printf("xccl: collective communication between processes\n"
           "\n"
           "usage: xccl COMMAND [arguments]\n"
           "\n");
    for (size_t i = 0; i < COMMANDS; i++)
        printf("  %-8s %s\n", commands[i]->name, commands[i]->summary);
    printf("  %-8s %s\n", "help", "show how to use a command, for example `xccl help run`");
    printf("\n"
           "`xccl --version` prints the version. Exit status: 0 success, 1 failure, 2 wrong "
           "arguments;\n"
           "xccl run also passes on that of the program.\n"
           "\n"
           "Try it: xccl perf all_reduce --ranks 4\n");
    return XCCL_EXIT_OK;
}

static int unknown_command(const char *name)
{
    const char *names[COMMANDS + 2] = {[COMMANDS] = "help"};
    const char *near = NULL;

    for (size_t i = 0; i < COMMANDS; i++)
        names[i] = commands[i]->name;
    for (size_t i = 0; i < sizeof(planned) / sizeof(planned[0]); i++) {
        if (strcmp(planned[i], name) == 0) {
            fprintf(stderr, "xccl: the command %s is planned; this version does not have it yet\n",
                    name);
            return XCCL_EXIT_USAGE;
        }
    }
    near = xccl_option_nearest(name, names);
    if (near)
        fprintf(stderr, "xccl: there is no command %s; did you mean %s?\n", name, near);
    else
        fprintf(stderr, "xccl: there is no command %s; `xccl help` lists them\n", name);
    return XCCL_EXIT_USAGE;
}

/* part: a word behind the command's, or NULL; more: another one, which is one too many. */
static int show_help(const char *name, const char *part, const char *more)
{
    const struct xccl_command *command = find_command(name);
    const char *help = NULL;

    if (strcmp(name, "help") == 0)
        return show_overview();
    if (!command)
        return unknown_command(name);
    if (part && strcmp(part, "--help") != 0)
        help = command->part_help ? command->part_help(part) : NULL;
    else
        help = command->help;
    if (part && more && strcmp(more, "--help") != 0)
        help = NULL;
    if (!help) {
        fprintf(stderr,
                "xccl: there is no help for %s %s%s%s; `xccl help %s` shows what there is\n", name,
                part, more ? " " : "", more ? more : "", name);
        return XCCL_EXIT_USAGE;
    }
    fputs(help, stdout);
    return XCCL_EXIT_OK;
}

static int show_version(void)
{
    int version = 0;

    if (xcclGetVersion(&version) != xcclSuccess)
        return XCCL_EXIT_FAILURE;
    printf("xccl %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
    return XCCL_EXIT_OK;
}

/* --help counts up to the first argument that is not an option: what follows may be for a program.
 */
static int wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && argv[i][0] == '-' && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return 1;
    }
    return 0;
}

static int run_command(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "--help";
    const struct xccl_command *command = NULL;

    if (argc < 2) {
        show_overview();
        return XCCL_EXIT_USAGE;
    }
    if (strcmp(name, "--version") == 0)
        return show_version();
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        if (argc > 2 && !wants_help(argc - 1, argv + 1))
            return show_help(argv[2], argv[3], argc > 4 ? argv[4] : NULL);
        return show_overview();
    }
    command = find_command(name);
    if (!command)
        return unknown_command(name);
    if (wants_help(argc - 1, argv + 1))
        return show_help(name, NULL, NULL);
    return command->run(argc - 1, argv + 1);
}

/* A file opened later must not become descriptor 0, 1 or 2 and get what is meant for the terminal.
 */
static int hold_standard_fds(void)
{
    int fd = -1;

    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (fd < 0)
            return 0;
    } while (fd <= STDERR_FILENO);
    close(fd);
    return 1;
}

int main(int argc, char **argv)
{
    int status = XCCL_EXIT_FAILURE;

    if (!hold_standard_fds())
        return XCCL_EXIT_FAILURE;
    status = run_command(argc, argv);
    /* What could not be written, to a full disk say, is a failure too. */
    if (fflush(stdout) && status == XCCL_EXIT_OK) {
        perror("xccl: cannot write to standard output");
        status = XCCL_EXIT_FAILURE;
    }
    return status;
}
