/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl env: every setting, from the table in core/base/param.def. The settings page of the
 * documentation is the output of `xccl env --markdown`.
 *
 * Thread: the program's main thread. */
#include "command.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/param.h"
#include "option.h"

static void print_line(void *user, const char *text)
{
    (void)user;
    puts(text);
}

static int env_main(int argc, char **argv)
{
    int markdown = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--markdown") != 0)
            return xccl_option_usage("env", "unexpected argument %s", argv[i]);
        markdown = 1;
    }
    /* The page must not depend on where it was made, and a wrong setting is told but does not keep
     * the table from being shown. */
    if (!markdown && xccl_param_load() != xcclSuccess) {
        xccl_param_print(0, print_line, NULL);
        return XCCL_EXIT_FAILURE;
    }
    xccl_param_print(markdown, print_line, NULL);
    return XCCL_EXIT_OK;
}

const struct xccl_command xccl_cmd_env = {
    .name = "env",
    .summary = "list every setting with its value and origin",
    .run = env_main,
    .help = "usage: xccl env [--markdown]\n"
            "\n"
            "Lists every setting of XCCL: its value, the origin of the value, and what it sets.\n"
            "A value comes from the environment; or else from the file that XCCL_CONF_FILE\n"
            "names (if it names none, from ~/.xccl.conf, then /etc/xccl.conf; lines\n"
            "NAME=VALUE); or else it is the default.\n"
            "\n"
            "  --markdown   print all settings as a Markdown page, without this host's values\n"
            "\n"
            "Exit status: 0; 1 if a setting has a value that is not allowed; 2 for wrong\n"
            "arguments.\n",
};
