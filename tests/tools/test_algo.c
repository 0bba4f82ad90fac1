/* SPDX-License-Identifier: BSD-3-Clause */
/* `xccl algo` through the built program: all algorithms are proven, what show prints is proven when
 * it is read back, and what is spoiled is refused with its place.
 *
 * Thread: one a test. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "xt.h"

#define XCCL     XT_BUILD_DIR "/bin/xccl"
#define ARGS_MAX 12

#if defined(XCCL_SANITIZED)
#define RANKS "1..6"
#define MANY  "33"
#else
#define RANKS "1..24"
#define MANY  "25..64"
#endif

/* The words are cut at blanks. */
static int run_algo(const char *words, const char **output_out)
{
    const char *argv[ARGS_MAX + 2] = {XCCL, "algo"};
    char copy[512], *rest = copy;
    int count = 2, status;

    snprintf(copy, sizeof(copy), "%s", words);
    for (char *word; (word = strtok_r(rest, " ", &rest)) && count <= ARGS_MAX;)
        argv[count++] = word;
    argv[count] = NULL;
    status = xt_run_program(argv, output_out);
    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    XT_CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

XT_TEST_DEADLINE(all_algorithms_are_proven_for_each_small_number_of_ranks, 300)
{
    const char *output = NULL;

    XT_CHECK_INT(run_algo("verify --all -n " RANKS, &output), 0);
    XT_CHECK_HAS(output, " 0 refused, in ");
    XT_CHECK_HAS(output, "all_reduce     ring");
}

XT_TEST_DEADLINE(all_algorithms_are_proven_for_some_larger_numbers_of_ranks, 300)
{
    const char *output = NULL;

    XT_CHECK_INT(run_algo("verify --all --sample 3 -n " MANY, &output), 0);
    XT_CHECK_HAS(output, " 0 refused, in ");
}

XT_TEST_DEADLINE(list_shows_each_algorithm_with_its_costs, 120)
{
    const char *output = NULL;

    XT_CHECK_INT(run_algo("list -n 7", &output), 0);
    XT_CHECK_HAS(output, "all_reduce     ring                 5      12     1.714     2     2");
    XT_CHECK_HAS(output, "alltoall       pairwise             2       6");
    XT_CHECK_INT(run_algo("list -n 4 --coll broadcast", &output), 0);
    XT_CHECK_HAS(output, "broadcast      chain");
    XT_CHECK(!strstr(output, "all_reduce"));
}

static void what_show_prints_is_proven(const char *show, const char *file)
{
    const char *output = NULL;
    char path[256], words[300];

    snprintf(path, sizeof(path), "%s/%s", xt_tmpdir(), file);
    XT_CHECK_INT(run_algo(show, &output), 0);
    write_file(path, output);
    snprintf(words, sizeof(words), "verify %s", path);
    XT_CHECK_INT(run_algo(words, &output), 0);
    XT_CHECK_HAS(output, " is proven: ");
}

XT_TEST(what_show_prints_as_text_is_proven_when_it_is_read_back)
{
    what_show_prints_is_proven("show dtree -n 6", "dtree.txt");
    what_show_prints_is_proven("show binomial --coll gather -n 5 --root 2", "gather.txt");
}

XT_TEST(what_show_prints_as_json_is_proven_when_it_is_read_back)
{
    what_show_prints_is_proven("show nhr --coll all_reduce -n 5 --json", "nhr.json");
}

XT_TEST(a_schedule_with_a_spoiled_step_is_refused_with_its_place)
{
    const char *output = NULL;
    char path[256], words[300], *text, *at;

    XT_CHECK_INT(run_algo("show ring --coll all_reduce -n 4", &output), 0);
    text = strdup(output);
    XT_CHECK(text);
    /* The last receive of rank 0 goes to another chunk. */
    at = strstr(text, "out:1");
    XT_CHECK(at);
    at[4] = '2';
    snprintf(path, sizeof(path), "%s/ring.txt", xt_tmpdir());
    write_file(path, text);
    free(text);
    snprintf(words, sizeof(words), "verify %s", path);
    XT_CHECK_INT(run_algo(words, &output), 1);
    XT_CHECK_HAS(output, "REFUSED: ");
    XT_CHECK_HAS(output, "rank 0");
}

XT_TEST(one_rank_is_shown_chunk_by_chunk)
{
    const char *output = NULL;

    XT_CHECK_INT(run_algo("show ring --coll all_reduce -n 3 --rank 1 --explicit", &output), 0);
    XT_CHECK_HAS(output, "rank 1 lane 0 step 0.0: source in[0] to 2 pre\n");
    XT_CHECK_HAS(output, "rank 1 lane 0 step 1.0: from 0 source in[2] to 2 pre\n");
    XT_CHECK(!strstr(output, "rank 0"));
}

XT_TEST(an_order_of_ranks_is_shown_proven_and_checked)
{
    const char *output = NULL;

    what_show_prints_is_proven("show ring --coll all_gather -n 5 --order 4,0,2,1,3", "order.txt");
    XT_CHECK_INT(run_algo("show ring --coll all_gather -n 4 --order 0,2,1,3 --rank 1", &output), 0);
    XT_CHECK_HAS(output, "send fifo peer 3");
    XT_CHECK_HAS(output, "recv fifo peer 2");
    XT_CHECK_INT(run_algo("show ring --coll all_gather -n 4 --order 0,2,1,2", &output), 2);
    XT_CHECK_HAS(output, "--order must give each rank from 0 to 3 once");
    XT_CHECK_INT(run_algo("show ring --coll all_gather -n 4 --order 0,2,1", &output), 2);
    XT_CHECK_HAS(output, "--order must give each rank from 0 to 3 once");
    XT_CHECK_INT(run_algo("show ring --coll all_gather -n 2 --order 0,x", &output), 2);
    XT_CHECK_INT(run_algo("show mesh --coll all_gather -n 4 --order 0,2,1,3", &output), 2);
    XT_CHECK_HAS(output, "--order does not apply to mesh");
}

XT_TEST(a_hierarchy_is_for_the_nodes_that_are_named)
{
    const char *output = NULL;

    XT_CHECK_INT(run_algo("verify hier --coll all_reduce --nodes 3,1,4", &output), 0);
    XT_CHECK_HAS(output, "1 proven, 0 refused, in ");
    XT_CHECK_INT(run_algo("verify hier --coll broadcast --nodes 2,3 --inner chain", &output), 0);
    XT_CHECK_HAS(output, "5 proven, 0 refused, in ");
    XT_CHECK_INT(run_algo("show hier --coll all_reduce --nodes 2,2", &output), 0);
    XT_CHECK_HAS(output, "schedule hier all_reduce ranks 4 root 0 chunks 4 minslots 2");
    XT_CHECK_INT(run_algo("list --coll barrier --nodes 2,2", &output), 0);
    XT_CHECK_HAS(output, "# 4 ranks");
    what_show_prints_is_proven("show hier --coll reduce --nodes 1,3 --root 2", "hier.txt");
}

XT_TEST(nodes_that_cannot_be_are_told)
{
    const char *output = NULL;

    XT_CHECK_INT(run_algo("verify hier --coll barrier --nodes 3,0", &output), 2);
    XT_CHECK_HAS(output, "--nodes 0: must be");
    XT_CHECK_INT(run_algo("verify hier --coll barrier --nodes 3,2 -n 4", &output), 2);
    XT_CHECK_HAS(output, "--nodes gives 5 ranks, but -n gives 4");
    XT_CHECK_INT(run_algo("verify hier --coll barrier --nodes 65535,1", &output), 2);
    XT_CHECK_HAS(output, "more than 65535 ranks");
    XT_CHECK_INT(run_algo("show pairwise --nodes 2,2", &output), 2);
    XT_CHECK_HAS(output, "--nodes does not apply to pairwise; it applies to hier");
    XT_CHECK_INT(run_algo("show hier --coll all_reduce --nodes 3,2 --outer dtree", &output), 1);
    XT_CHECK_HAS(output, "several lanes");
}

XT_TEST(wrong_words_are_told_with_what_is_right)
{
    const char *output = NULL;

    XT_CHECK_INT(run_algo("verify rign -n 4", &output), 2);
    XT_CHECK_HAS(output, "there is no algorithm rign; `xccl algo list` lists all");
    XT_CHECK_INT(run_algo("show ring -n 4", &output), 2);
    XT_CHECK_HAS(output, "choose one with --coll");
    XT_CHECK_INT(run_algo("list --coll all_redcue", &output), 2);
    XT_CHECK_HAS(output, "did you mean all_reduce?");
    XT_CHECK_INT(run_algo("verify --all -n 9..3", &output), 2);
    XT_CHECK_INT(run_algo("verify pat:3 --coll all_gather -n 8", &output), 1);
    XT_CHECK_HAS(output, "nothing to prove");
    XT_CHECK_INT(run_algo("verify /nowhere.txt", &output), 1);
    XT_CHECK_HAS(output, "cannot read /nowhere.txt");
}

/* ---- plugins ---- */

#define HELLO    XT_BUILD_DIR "/lib/xccl/libxccl-algo-hello.so"
#define FIXTURES XT_BUILD_DIR "/lib/fixtures/libxccl-algo-fx-"

XT_TEST(an_algorithm_plugin_is_listed_shown_and_proven)
{
    const char *output = NULL;

    XT_CHECK_INT(run_algo("list -n 5 --plugin " HELLO, &output), 0);
    XT_CHECK_HAS(output, "all_gather     hello                3       4     0.800     1     3");
    XT_CHECK(!strstr(output, "ring"));
    XT_CHECK_INT(run_algo("verify --plugin " HELLO " -n 1..16", &output), 0);
    XT_CHECK_HAS(output, "all_gather     hello               16       0     1     3");
    XT_CHECK_HAS(output, "16 proven, 0 refused, in ");
    XT_CHECK_INT(run_algo("verify hello --plugin hello -n 7", &output), 0);
    XT_CHECK_HAS(output, "1 proven, 0 refused, in ");
    what_show_prints_is_proven("show hello -n 4 --plugin " HELLO, "hello.txt");
    XT_CHECK_INT(run_algo("list -n 2", &output), 0);
    XT_CHECK(!strstr(output, "hello"));
}

XT_TEST(the_plugins_of_the_settings_stand_behind_the_built_in_algorithms)
{
    const char *output = NULL;

    xt_setenv("XCCL_ALGO_PLUGIN", "hello");
    XT_CHECK_INT(run_algo("list -n 2 --coll all_gather", &output), 0);
    XT_CHECK_HAS(output, "all_gather     ring");
    XT_CHECK_HAS(output, "all_gather     hello");
    XT_CHECK_INT(run_algo("verify hier --coll all_gather --inner hello --nodes 3,2", &output), 0);
    XT_CHECK_HAS(output, "1 proven, 0 refused, in ");
    xt_setenv("XCCL_ALGO_PLUGIN", "hello,not-there");
    XT_CHECK_INT(run_algo("list -n 2", &output), 1);
    XT_CHECK_HAS(output, "algorithm plugin not-there cannot be used: no such file in ");
}

XT_TEST(a_wrong_algorithm_of_a_plugin_is_refused_with_its_counter_example)
{
    const char *output = NULL;

    XT_CHECK_INT(run_algo("verify --plugin " FIXTURES "wrong.so -n 2", &output), 1);
    XT_CHECK_HAS(output, "REFUSED broadcast line, 2 ranks, root 0: rank 1 ");
    XT_CHECK_INT(run_algo("verify --plugin " FIXTURES "bad-step.so -n 4", &output), 1);
    XT_CHECK_HAS(output, "algorithm line of plugin fx, rank 0 of 4, lane 0, step 0: src has 70000");
    XT_CHECK_INT(run_algo("show line -n 2 --plugin " FIXTURES "no-symbol.so", &output), 1);
    XT_CHECK_HAS(output, "it has no symbol xcclAlgoPlugin_v1");
}
