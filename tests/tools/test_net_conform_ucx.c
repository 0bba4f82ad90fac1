/* SPDX-License-Identifier: BSD-3-Clause */
/* The UCX plugin passes the conformance suite over TCP and over each kind of shared memory, carries
 * collectives, and says why where UCX is missing or too old. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xt.h"

#define XCCL   (XT_BUILD_DIR "/bin/xccl")
#define PLUGIN XT_BUILD_DIR "/lib/xccl/libxccl-net-ucx.so"

static void need_plugin(void)
{
    if (access(PLUGIN, R_OK) != 0)
        XT_SKIP("the ucx plugin is not built: libucx-dev is missing");
}

static const char *run(const char *const *argv, int status_want)
{
    const char *output = NULL;
    int status = xt_run_program(argv, &output);

    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0) != status_want)
        XT_FAIL("status %d: %s", status, xt_why(output));
    return output;
}

static void passes(const char *item, const char *transports, const char *form)
{
    const char *argv[] = {XCCL, "net",    "check", "--quick", "--within=0",
                          item, "--form", form,    NULL};

    need_plugin();
    xt_setenv("UCX_TLS", transports);
    XT_CHECK_HAS(run(argv, 0), " passed, 0 failed");
}

XT_TEST_DEADLINE(tcp_passes, 200)
{
    passes(PLUGIN, "tcp,self", "single,threads");
}

XT_TEST_DEADLINE(posix_with_cma_passes, 200)
{
    passes(PLUGIN, "posix,cma,self", "processes");
}

XT_TEST_DEADLINE(sysv_passes, 200)
{
    passes(PLUGIN, "sysv,self", "threads");
}

XT_TEST_DEADLINE(tables_for_nccl_pass, 200)
{
    passes(PLUGIN "@v8", "tcp,self", "threads");
    passes(PLUGIN "@v12", "tcp,self", "threads");
}

static void one_case(const char *item, const char *name, const char *form)
{
    const char *argv[] = {XCCL,     "net", "check",  "--quick", "--within=0", item,
                          "--case", name,  "--form", form,      NULL};

    need_plugin();
    xt_setenv("UCX_TLS", "tcp,self");
    XT_CHECK_HAS(run(argv, 0), " passed, 0 failed");
}

XT_TEST_DEADLINE(peers_that_are_killed_are_noticed_over_tcp, 100)
{
    one_case(PLUGIN, "*killed*", "processes");
}

XT_TEST_DEADLINE(host_program_is_untouched_by_each_contract, 100)
{
    static const char *const items[] = {PLUGIN,        PLUGIN "@v8",  PLUGIN "@v9",
                                        PLUGIN "@v10", PLUGIN "@v11", PLUGIN "@v12"};

    for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++)
        one_case(items[i], "host_program_is_untouched", "single");
}

static void collective_passes(const char *name)
{
    const char *argv[] = {XCCL,  "perf", name,  "--ranks", "2", "-b", "0", "-e",
                          "16M", "-f",   "256", "-n",      "1", "-w", "1", NULL};
    const char *output;

    need_plugin();
    xt_setenv("UCX_TLS", "tcp,self");
    xt_setenv("XCCL_NET_PLUGIN", PLUGIN);
    xt_setenv("XCCL_SHM_DISABLE", "1");
    output = run(argv, 0);
    XT_CHECK_HAS(output, "16777216 ");
    XT_CHECK_HAS(output, "# Out of bounds values : 0 OK");
}

XT_TEST_DEADLINE(collectives_of_two_ranks_are_right, 100)
{
    collective_passes("all_reduce");
    collective_passes("sendrecv");
}

/* Looked for in a folder of ours first. */
static void is_refused(const char *folder, const char *why)
{
    const char *plugin = PLUGIN, *argv[] = {XCCL, "net", "list", plugin, NULL};

    need_plugin();
    xt_setenv("LD_LIBRARY_PATH", folder);
    XT_CHECK_HAS(run(argv, 1), why);
}

XT_TEST(ucx_that_is_too_old_is_named)
{
    is_refused(XT_BUILD_DIR "/lib/fixtures/ucx-old", "UCX of this host is 1.9.0, 1.13 or a later");
}

XT_TEST(ucx_without_its_functions_is_named)
{
    is_refused(XT_BUILD_DIR "/lib/fixtures/ucx-bare", "older than needed: it has no ucp_");
}

XT_TEST(ucx_that_cannot_be_opened_is_named)
{
    const char *folder = xt_tmpdir();
    char path[600];
    FILE *file;

    snprintf(path, sizeof(path), "%s/libucp.so.0", folder);
    file = fopen(path, "we");
    XT_CHECK(file != NULL);
    for (int i = 0; i < 1000; i++)
        fputs("no library\n", file);
    XT_CHECK(fclose(file) == 0);
    is_refused(folder, "cannot open UCX: ");
}
