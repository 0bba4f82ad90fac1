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
    int status = XCCL_EXIT_OK;

    if (argc == 2 && strcmp(argv[1], "--markdown") == 0) {
        xccl_param_page(print_line, NULL);
        return XCCL_EXIT_OK;
    }
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-')
            return xccl_option_usage("env", "unexpected argument %s", argv[i]);
    }
    /* A wrong setting is an error, but the table is shown all the same. */
    if (xccl_param_load() != xcclSuccess)
        status = XCCL_EXIT_FAILURE;
    if (argc < 2)
        xccl_param_print("", print_line, NULL);
    for (int i = 1; i < argc; i++) {
        if (!xccl_param_print(argv[i], print_line, NULL))
            return xccl_option_usage("env", "no setting has %s in its name", argv[i]);
    }
    return status;
}

const struct xccl_command xccl_cmd_env = {
    .name = "env",
    .summary = "list every setting with its value and origin",
    .run = env_main,
    .help = "usage: xccl env [NAME...]\n"
            "       xccl env --markdown\n"
            "\n"
            "Lists the settings of XCCL: the value of each, the origin of the value, the values\n"
            "that are allowed, and what the setting does.\n"
            "XCCL takes each setting from the first place that has it: the environment; the file\n"
            "that XCCL_CONF_FILE names or, if it names none, ~/.xccl.conf and then\n"
            "/etc/xccl.conf; the default. The files have lines NAME=VALUE.\n"
            "\n"
            "  NAME         show only settings with NAME in their name, in upper or lower case\n"
            "  --markdown   print all settings as a Markdown page, without this host's values\n"
            "\n"
            "Exit status: 0; 1 if a setting has a value that is not allowed (settings without a\n"
            "line \"allowed\" are checked only when they are used); 2 for wrong arguments.\n"
            "\n"
            "example: xccl env timeout\n",
};
