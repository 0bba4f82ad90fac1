/* SPDX-License-Identifier: BSD-3-Clause */
/* Our plugins, and those of NCCL's contract that the loader adapts, pass the conformance suite in
 * all of its forms: one process, two, and two network namespaces where this machine allows them.
 * Behind the hook fault the seeds come from the run's own, and each has one form. Sanitized builds
 * send less, draw fewer seeds and leave out versions whose layouts are near another's. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "xt.h"

#define XCCL     XT_BUILD_DIR "/bin/xccl"
#define FIXTURES XT_BUILD_DIR "/lib/fixtures"
#define ARGS_MAX 16

/* The complete suites take all forms; besides, sanitized builds take those in which they see both
 * ends at once. */
#if defined(XCCL_SANITIZED)
#define QUICK   "--quick --within 0 --form single,threads "
#define LARGEST "64M"
#define SEEDS   "3"
static const char *const fault_forms[] = {"single", "threads"};
static const char *const exported[] = {"v8", "v12"};
static const char *const adapted[] = {"v6", "v9", "v12"};
#else
#define QUICK   "--quick --within 0 "
#define LARGEST "1G"
#define SEEDS   "6"
static const char *const fault_forms[] = {"single", "threads", "processes", "namespaces"};
static const char *const exported[] = {"v8", "v9", "v10", "v11", "v12"};
static const char *const adapted[] = {"v6", "v7", "v8", "v9", "v10", "v11", "v12"};
#endif

/* Runs the suite with the words of args. */
static void passes(const char *args)
{
    const char *argv[ARGS_MAX + 1] = {XCCL, "net", "check"}, *output = NULL;
    char words[1024], *rest = NULL;
    int count = 3, status;

    snprintf(words, sizeof(words), "%s", args);
    for (char *word = strtok_r(words, " ", &rest); word && count < ARGS_MAX;
         word = strtok_r(NULL, " ", &rest))
        argv[count++] = word;
    status = xt_run_program(argv, &output);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        XT_FAIL("xccl net check %s: status %d: %s", args, status, xt_why(output));
    XT_CHECK_HAS(output, " passed, 0 failed");
}

XT_TEST_DEADLINE(socket_passes_the_complete_suite, 240)
{
    passes("--max-bytes " LARGEST " socket");
}

XT_TEST_DEADLINE(smallest_plugin_passes_the_complete_suite, 240)
{
    passes("--max-bytes " LARGEST " loopback");
}

XT_TEST_DEADLINE(socket_passes_through_each_of_its_tables_for_nccl, 60)
{
    char args[64];

    for (size_t i = 0; i < sizeof(exported) / sizeof(exported[0]); i++) {
        snprintf(args, sizeof(args), QUICK "socket@%s", exported[i]);
        passes(args);
    }
}

XT_TEST_DEADLINE(plugins_of_every_version_of_nccl_pass, 60)
{
    char args[512];

    for (size_t i = 0; i < sizeof(adapted) / sizeof(adapted[0]); i++) {
        snprintf(args, sizeof(args), QUICK FIXTURES "/libnccl-net-fx-%s.so", adapted[i]);
        passes(args);
    }
}

XT_TEST_DEADLINE(grouped_receives_pass, 30)
{
    passes(QUICK FIXTURES "/libxccl-net-fx-broken.so"); /* no defect is asked for */
}

XT_TEST_DEADLINE(hook_that_traces_changes_nothing, 30)
{
    xt_setenv("XCCL_NET_TRACE", "/dev/null");
    passes(QUICK "trace:socket");
}

static void passes_behind_faults(const char *seeds, const char *plugin)
{
    char args[512];

    for (unsigned i = 0; i < sizeof(fault_forms) / sizeof(fault_forms[0]); i++) {
        snprintf(args, sizeof(args),
                 "--quick --within 0 --form %s --jobs 2 --seed %u --repeat %s fault:%s",
                 fault_forms[i], (unsigned)(xt_seed() % 1000000) + i * 100, seeds, plugin);
        passes(args);
    }
}

XT_TEST_DEADLINE(socket_passes_behind_the_hook_that_injects_faults, 400)
{
    passes_behind_faults(SEEDS, "socket");
}

XT_TEST_DEADLINE(others_pass_behind_the_hook_that_injects_faults, 100)
{
    passes_behind_faults("1", "loopback");
    passes_behind_faults("1", FIXTURES "/libnccl-net-fx-v6.so");
    passes_behind_faults("1", FIXTURES "/libnccl-net-fx-v12.so");
    passes_behind_faults("1", FIXTURES "/libxccl-net-fx-broken.so");
}
