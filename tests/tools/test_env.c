/* SPDX-License-Identifier: BSD-3-Clause */
/* `xccl env` and `xccl info` through the built program, and the settings page beside the table that
 * it is made from.
 *
 * Thread: one a test. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "xt.h"

#define XCCL XT_BUILD_DIR "/bin/xccl"

static const char *const setting_names[] = {
#define XCCL_PARAM(name, type, fallback, low, high, unit, words, help) "XCCL_" #name,
#include "base/param.def"
#undef XCCL_PARAM
};
#define SETTINGS (sizeof(setting_names) / sizeof(setting_names[0]))

static int run_xccl(const char *command, const char *option, const char **output_out)
{
    const char *argv[] = {XCCL, command, option, NULL};
    int status = xt_run_program(argv, output_out);

    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

XT_TEST(env_lists_every_setting)
{
    const char *output = NULL;

    XT_CHECK_INT(run_xccl("env", NULL, &output), 0);
    for (size_t i = 0; i < SETTINGS; i++)
        XT_CHECK_HAS(output, setting_names[i]);
    XT_CHECK_INT(run_xccl("env", "--markdown", &output), 0);
    for (size_t i = 0; i < SETTINGS; i++)
        XT_CHECK_HAS(output, setting_names[i]);
}

XT_TEST(env_shows_a_value_that_is_set)
{
    const char *output = NULL;

    xt_setenv("XCCL_TIMEOUT_S", "1234");
    XT_CHECK_INT(run_xccl("env", NULL, &output), 0);
    XT_CHECK_HAS(output, "XCCL_TIMEOUT_S=1234 (environment");
    XT_CHECK_INT(run_xccl("env", "timeout", &output), 0);
    XT_CHECK_HAS(output, "XCCL_TIMEOUT_S=1234 (environment");
    XT_CHECK(strstr(output, "XCCL_ALGO") == NULL);
    XT_CHECK_INT(run_xccl("env", "elephant", &output), 2);
    XT_CHECK_HAS(output, "no setting has elephant in its name");
}

XT_TEST(env_fails_on_a_value_that_is_not_allowed)
{
    const char *output = NULL;

    xt_setenv("XCCL_TIMEOUT_S", "soon");
    XT_CHECK_INT(run_xccl("env", NULL, &output), 1);
    XT_CHECK_HAS(output, "XCCL_TIMEOUT_S");
    XT_CHECK_HAS(output, "soon");
    XT_CHECK_INT(run_xccl("env", "--markup", &output), 2);
}

XT_TEST(the_settings_page_is_what_env_prints)
{
    FILE *file = fopen(XT_SOURCE_DIR "/core/base/settings.md", "re");
    const char *output = NULL;
    char *page = NULL;
    size_t room = 0;

    XT_CHECK(file != NULL);
    XT_CHECK(getdelim(&page, &room, '\0', file) > 0);
    fclose(file);
    XT_CHECK_INT(run_xccl("env", "--markdown", &output), 0);
    XT_CHECK_TEXT(page, output);
    free(page);
}

XT_TEST(info_tells_what_the_host_offers)
{
    static const char *const names[] = {"xccl: ",          "library: ",   "host: ",      "cores: ",
                                        "shared memory: ", "interface: ", "net plugin: "};
    const char *output = NULL;

    for (size_t i = 0; i < SETTINGS; i++)
        xt_setenv(setting_names[i], NULL);
    xt_setenv("XCCL_CONF_FILE", "/dev/null");
    XT_CHECK_INT(run_xccl("info", NULL, &output), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        XT_CHECK_HAS(output, names[i]);
    XT_CHECK_HAS(output, "setting: XCCL_CONF_FILE=/dev/null from the environment\n");
}

XT_TEST(the_jobs_secret_is_not_shown)
{
    const char *output = NULL;

    xt_setenv("XCCL_JOB_KEY", "very-secret-words-of-this-job");
    XT_CHECK_INT(run_xccl("info", NULL, &output), 0);
    XT_CHECK_HAS(output, "setting: XCCL_JOB_KEY=");
    XT_CHECK(strstr(output, "very-secret") == NULL);
    XT_CHECK_INT(run_xccl("env", NULL, &output), 0);
    XT_CHECK(strstr(output, "very-secret") == NULL);
}
