/* SPDX-License-Identifier: BSD-3-Clause */
/* The ib plugin over a verbs library of one process (fixtures/verbs_fixture.c): it passes the
 * conformance suite in the forms of one process, and says why it cannot be used where there is no
 * library or no port. Over a real library it is tested in a guest: ci/vm. */
#include <sys/wait.h>
#include <unistd.h>

#include "xt.h"

#define PLUGIN  XT_BUILD_DIR "/lib/xccl/libxccl-net-ib.so"
#define LIBRARY XT_BUILD_DIR "/lib/fixtures/libverbs-fixture.so"

static const char xccl[] = XT_BUILD_DIR "/bin/xccl";

/* Where the header was absent the plugin was not built. */
static void need_plugin(void)
{
    if (access(PLUGIN, R_OK) != 0)
        XT_SKIP("net-ib is not built: there is no infiniband/verbs.h");
}

static int run(const char *const *argv, const char **output_out)
{
    int status = xt_run_program(argv, output_out);

    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void suite_passes_merged(const char *plugin, const char *rails)
{
    const char *argv[] = {
        xccl,      "net", "check", "--quick", "--within=0", "--form", "single,threads",
        "--rails", rails, plugin,  NULL};
    const char *output = NULL;

    need_plugin();
    xt_setenv("XCCL_IB_LIBRARY", LIBRARY);
    if (run(argv, &output) != 0)
        XT_FAIL("xccl net check %s: %s", plugin, xt_why(output));
    XT_CHECK_HAS(output, " passed, 0 failed");
}

static void suite_passes(const char *plugin)
{
    suite_passes_merged(plugin, "1");
}

XT_TEST_DEADLINE(ib_passes_with_ports_merged, 120)
{
    xt_setenv("VERBS_FIXTURE_CARDS", "2");
    suite_passes_merged("ib", "2");
}

XT_TEST_DEADLINE(ib_passes_with_four_ports_and_several_queue_pairs, 120)
{
    xt_setenv("VERBS_FIXTURE_CARDS", "4");
    xt_setenv("XCCL_IB_QPS_PER_CONNECTION", "3");
    suite_passes_merged("ib", "4");
}

XT_TEST_DEADLINE(ib_passes_merged_by_a_table_for_nccl, 120)
{
    xt_setenv("VERBS_FIXTURE_CARDS", "2");
    suite_passes_merged("ib@v11", "2");
}

XT_TEST_DEADLINE(ib_passes_the_suite_in_one_process, 120)
{
    suite_passes("ib");
}

XT_TEST_DEADLINE(ib_passes_through_a_table_for_nccl, 120)
{
    suite_passes("ib@v8");
}

/* Sizes, groups and tags, and a receive that is larger than its send. What NCCL never does, a send
 * that is too large, is looked at through the own contract. */
XT_TEST_DEADLINE(ib_moves_data_through_each_table_for_nccl, 120)
{
    static const char *const tables[] = {"ib@v8", "ib@v9", "ib@v10", "ib@v11", "ib@v12"};
    static const char *const cases[] = {"every_size_arrives", "tags_choose_the_part",
                                        "larger_receive_gives_true_size"};
    const char *output = NULL;

    need_plugin();
    xt_setenv("XCCL_IB_LIBRARY", LIBRARY);
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++) {
        for (size_t k = 0; k < sizeof(cases) / sizeof(*cases); k++) {
            const char *argv[] = {xccl,      "net",    "check",  "--quick", "--within=0", "--form",
                                  "threads", "--case", cases[k], tables[i], NULL};

            if (run(argv, &output) != 0)
                XT_FAIL("%s through %s: %s", cases[k], tables[i], xt_why(output));
            XT_CHECK_HAS(output, "1 passed, 0 failed");
        }
    }
}

XT_TEST_DEADLINE(ib_passes_with_several_queue_pairs, 120)
{
    xt_setenv("XCCL_IB_QPS_PER_CONNECTION", "3");
    suite_passes("ib");
}

XT_TEST(ib_says_that_there_is_no_verbs_library)
{
    static const char *const argv[] = {xccl, "net", "list", "ib", NULL};
    const char *output = NULL;

    need_plugin();
    xt_setenv("XCCL_IB_LIBRARY", "libverbs-that-is-not-there.so");
    XT_CHECK(run(argv, &output) == 1);
    XT_CHECK_HAS(output, "cannot open the verbs library: libverbs-that-is-not-there.so");
}

XT_TEST(without_a_verbs_library_the_next_plugin_is_taken)
{
    static const char *const argv[] = {xccl, "perf", "all_reduce", "-t", "2", "-e", "8", NULL};
    const char *output = NULL, *line;
    int count = 0;

    need_plugin();
    xt_setenv("XCCL_IB_LIBRARY", "libverbs-that-is-not-there.so");
    xt_setenv("XCCL_NET_PLUGIN", "ib,socket");
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_DEBUG", "info");
    XT_CHECK(run(argv, &output) == 0);
    XT_CHECK_HAS(output, "Out of bounds values : 0 OK");
    for (line = output; (line = strstr(line, "the verbs library")) != NULL; line++)
        count++;
    XT_CHECK_INT(count, 2); /* of each rank */
}

XT_TEST(ib_shows_its_active_ports)
{
    static const char *const argv[] = {xccl, "net", "list", "ib", NULL};
    const char *output = NULL;

    need_plugin();
    xt_setenv("XCCL_IB_LIBRARY", LIBRARY);
    XT_CHECK(run(argv, &output) == 0);
    XT_CHECK_HAS(output, "fx0:1");
    XT_CHECK_HAS(output, "100 Gb/s");
}

XT_TEST(ib_without_a_port_cannot_be_used)
{
    static const char *const argv[] = {xccl, "net", "list", "ib", NULL};
    const char *output = NULL;

    need_plugin();
    xt_setenv("XCCL_IB_LIBRARY", LIBRARY);
    xt_setenv("VERBS_FIXTURE_DOWN", "1");
    XT_CHECK(run(argv, &output) == 1);
    xt_setenv("VERBS_FIXTURE_DOWN", NULL);
    xt_setenv("XCCL_IB_HCA", "^fx0");
    XT_CHECK(run(argv, &output) == 1);
}

/* Whatever the library refuses, at init, in the handshake or at work: the error says what. */
XT_TEST_DEADLINE(ib_says_what_failed, 120)
{
    static const struct {
        const char *name, *text;
    } fails[] = {
        {"alloc_pd", "cannot create a protection domain on fx0:1"},
        {"create_cq", "cannot create a completion queue on fx0:1"},
        {"create_qp", "cannot create a queue pair on fx0:1"},
        {"modify_qp", "cannot set up a queue pair on fx0:1"},
        {"reg_mr", "on fx0:1"},
        {"query_gid", "fx0:1 has no GID that can be used"},
        {"post_recv", "fx0:1 accepts no more receives from "},
        {"post_send", "fx0:1 accepts no more work for "},
        {"poll_cq", "cannot read the completions of fx0:1"},
        {"write", "failed: retry exceeded (vendor code 0)"},
    };
    const char *argv[] = {xccl, "perf", "all_reduce", "-t", "2", "-b",
                          "8",  "-e",   "8",          "-n", "5", NULL};
    const char *output = NULL;

    need_plugin();
    xt_setenv("XCCL_IB_LIBRARY", LIBRARY);
    xt_setenv("XCCL_NET_PLUGIN", "ib");
    xt_setenv("XCCL_SHM_DISABLE", "1");
    for (size_t i = 0; i < sizeof(fails) / sizeof(fails[0]); i++) {
        xt_setenv("VERBS_FIXTURE_FAIL", fails[i].name);
        if (run(argv, &output) != 1)
            XT_FAIL("nothing failed without ibv_%s", fails[i].name);
        XT_CHECK_HAS(output, fails[i].text);
    }
}

/* Work requests are lost without a word from then on; 8 times 67 ms is for how long a card would
 * send them again, and after which a port that is down counts. */
XT_TEST(ib_names_the_port_the_card_or_the_queue_that_failed)
{
    static const struct {
        const char *event, *text;
    } fails[] = {
        {NULL, "the port is down"}, {"card", "the card has failed"}, {"queue", "queue pair has"}};
    static const char *const argv[] = {xccl,  "perf", "all_reduce", "-t", "2",   "-b",
                                       "64K", "-e",   "64K",        "-n", "200", NULL};
    const char *output = NULL;

    need_plugin();
    xt_setenv("XCCL_IB_LIBRARY", LIBRARY);
    xt_setenv("XCCL_NET_PLUGIN", "ib");
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_IB_TIMEOUT", "14");
    xt_setenv("VERBS_FIXTURE_DOWN_AFTER", "500");
    for (size_t i = 0; i < sizeof(fails) / sizeof(fails[0]); i++) {
        xt_setenv("VERBS_FIXTURE_EVENT", fails[i].event);
        XT_CHECK(run(argv, &output) == 1);
        XT_CHECK_HAS(output, "fx0:1, the path ");
        XT_CHECK_HAS(output, " of 127.0.0.1:");
        XT_CHECK_HAS(output, fails[i].text);
    }
}
