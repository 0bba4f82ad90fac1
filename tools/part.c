/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses among the parts of a subcommand. A part's help is printed when --help stands anywhere
 * before a `--`. Thread: the program's main thread. */
#include "part.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "option.h"

#define PARTS_MAX 8

static const struct xccl_part *find_part(const struct xccl_part *parts, const char *name)
{
    for (; parts->name; parts++) {
        if (strcmp(parts->name, name) == 0)
            return parts;
    }
    return NULL;
}

const char *xccl_part_help(const struct xccl_part *parts, const char *name)
{
    const struct xccl_part *part = find_part(parts, name);

    return part ? part->help : NULL;
}

static int no_part(const char *command, const struct xccl_part *parts)
{
    char names[128] = "";
    size_t used = 0;

    for (int i = 0; parts[i].name; i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                                 i == 0              ? ""
                                 : parts[i + 1].name ? ", "
                                                     : " or ",
                                 parts[i].name);
    return xccl_option_usage(command, "name one: %s", names);
}

static int unknown_part(const char *command, const struct xccl_part *parts, const char *name)
{
    const char *names[PARTS_MAX + 1] = {NULL}, *near;

    for (int i = 0; i < PARTS_MAX && parts[i].name; i++)
        names[i] = parts[i].name;
    near = xccl_option_nearest(name, names);
    if (near)
        return xccl_option_usage(command, "there is no %s %s; did you mean %s %s?", command, name,
                                 command, near);
    return xccl_option_usage(command, "there is no %s %s", command, name);
}

int xccl_part_main(const char *command, const struct xccl_part *parts, int argc, char **argv)
{
    const struct xccl_part *part;

    if (argc < 2)
        return no_part(command, parts);
    part = find_part(parts, argv[1]);
    if (!part)
        return unknown_part(command, parts, argv[1]);
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(part->help, stdout);
            return XCCL_EXIT_OK;
        }
    }
    return part->run(argc - 1, argv + 1);
}
