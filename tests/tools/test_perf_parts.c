/* SPDX-License-Identifier: BSD-3-Clause */
/* `xccl perf` through the built program: percentiles, ranks that are threads, latency, random
 * groups, drawings, progress, and the JSON of each part against its schema. Figures are not judged.
 *
 * Thread: one a test. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "xt.h"

#define XCCL     XT_BUILD_DIR "/bin/xccl"
#define SCHEMAS  XT_SOURCE_DIR "/tools/schema"
#define ARGS_MAX 40
#define GROUPS   "150"

/* Runs `xccl perf` with the words of args; returns the exit status. */
static int run_perf(const char *args, const char **output_out)
{
    char words[1024];
    char *rest = NULL;
    const char *argv[ARGS_MAX + 1] = {XCCL, "perf"};
    int count = 2, status = 0;

    snprintf(words, sizeof(words), "%s", args);
    for (char *word = strtok_r(words, " ", &rest); word && count < ARGS_MAX;
         word = strtok_r(NULL, " ", &rest))
        argv[count++] = word;
    status = xt_run_program(argv, output_out);
    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* A Python program with a file; 77: it lacks a module. */
static void run_python(const char *code, const char *first, const char *second)
{
    const char *argv[] = {"python3", "-c", code, first, second, NULL};
    const char *output = NULL;
    int status = xt_run_program(argv, &output);

    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        XT_SKIP("python3 has no module jsonschema");
    if (status != 0)
        XT_FAIL("%s", xt_why(output));
}

/* What a run writes must be what its schema says, and no required member is one too many. */
static void check_schema(const char *name, const char *args)
{
    static const char code[] =
        "import json, sys\n"
        "try:\n"
        "    import jsonschema\n"
        "except ImportError:\n"
        "    raise SystemExit(77)\n"
        "schema, found = (json.load(open(path)) for path in sys.argv[1:])\n"
        "jsonschema.Draft7Validator.check_schema(schema)\n"
        "jsonschema.validate(found, schema)\n"
        "assert found['error'] is None\n"
        "for member in schema['required']:\n"
        "    broken = {key: value for key, value in found.items() if key != member}\n"
        "    try:\n"
        "        jsonschema.validate(broken, schema)\n"
        "    except jsonschema.ValidationError:\n"
        "        continue\n"
        "    raise SystemExit('the schema misses ' + member)\n";
    char schema[512], path[256], words[600];
    const char *output = NULL;

    snprintf(schema, sizeof(schema), SCHEMAS "/%s.schema.json", name);
    snprintf(path, sizeof(path), "%s/figures.json", xt_tmpdir());
    snprintf(words, sizeof(words), "%s -J %s", args, path);
    XT_CHECK_INT(run_perf(words, &output), 0);
    run_python(code, schema, path);
}

XT_TEST_DEADLINE(the_json_of_each_part_is_what_its_schema_says, 120)
{
    check_schema("perf", "all_reduce --ranks 2 -e 64 -n 3");
    check_schema("perf", "alltoallv --ranks 3 -e 64 -n 3 -I -i 8");
    check_schema("perf_latency", "latency --ranks 2 -e 64 -n 3");
    check_schema("perf_groups", "groups --ranks 2 --groups 5");
    check_schema("perf_bootstrap", "bootstrap --ranks 2 -n 5");
}

XT_TEST_DEADLINE(percentiles_are_in_order_and_in_both_ways, 120)
{
    static const char code[] =
        "import json, sys\n"
        "rows = json.load(open(sys.argv[1]))['results']\n"
        "assert len(rows) == 2, rows\n"
        "for row in rows:\n"
        "    for way in ('out_of_place', 'in_place'):\n"
        "        single = row[way]['single']\n"
        "        values = [single[key] for key in ('min', 'p50', 'p90', 'p99', 'max')]\n"
        "        assert single['iters'] == 50 and 0 < values[0] and values == sorted(values)\n";
    char path[256], words[400];
    const char *output = NULL;

    snprintf(path, sizeof(path), "%s/figures.json", xt_tmpdir());
    snprintf(words, sizeof(words), "all_reduce --ranks 3 -b 8 -e 8K -f 1024 -n 50 -I -J %s", path);
    XT_CHECK_INT(run_perf(words, &output), 0);
    XT_CHECK_HAS(output, "#wrong     min      p50      p90      p99      max     time");
    run_python(code, path, NULL);
}

XT_TEST_DEADLINE(ranks_may_be_threads_of_one_process_or_of_several, 120)
{
    const char *output = NULL;

    XT_CHECK_INT(run_perf("all_gather -t 3 -e 1K -n 5", &output), 0);
    XT_CHECK_HAS(output, "library 0.1.0, 3 ranks");
    XT_CHECK_HAS(output, "# Out of bounds values : 0 OK\n");
    XT_CHECK_INT(run_perf("reduce_scatter --ranks 4 -t 2 -e 1K -n 5", &output), 0);
    XT_CHECK_HAS(output, "library 0.1.0, 4 ranks");
    XT_CHECK_HAS(output, "# Out of bounds values : 0 OK\n");
}

XT_TEST_DEADLINE(threads_under_a_launcher_are_ranks_of_each_process, 120)
{
    const char *argv[] = {XCCL, "run", "-n", "2",  "--", XCCL, "perf", "broadcast",
                          "-t", "2",   "-e", "64", "-n", "3",  NULL};
    const char *output = NULL;

    XT_CHECK_INT(xt_run_program(argv, &output), 0);
    XT_CHECK_HAS(output, "[0] # xccl perf broadcast: library 0.1.0, 4 ranks\n");
    XT_CHECK_HAS(output, "[0] # Out of bounds values : 0 OK\n");
}

XT_TEST_DEADLINE(blocks_of_different_sizes_are_checked_on_any_number_of_ranks, 240)
{
    static const char *const colls[] = {"all_gatherv", "reduce_scatterv", "alltoallv"};

    for (int ranks = 1; ranks <= 5; ranks++) {
        for (int i = 0; i < 3; i++) {
            char args[128];
            const char *output = NULL;

            snprintf(args, sizeof(args), "%s --ranks %d -b 0 -e 30000 -f 40 -n 2 -d int8", colls[i],
                     ranks);
            XT_CHECK_INT(run_perf(args, &output), 0);
            XT_CHECK_HAS(output, "# Out of bounds values : 0 OK\n");
        }
    }
}

XT_TEST_DEADLINE(latency_has_round_trips_and_collectives_by_ranks, 120)
{
    static const char code[] =
        "import json, sys\n"
        "rows = json.load(open(sys.argv[1]))['results']\n"
        "seen = [(r['operation'], r['ranks'], r['size']) for r in rows]\n"
        "assert seen[:2] == [('send_recv', 2, 8), ('send_recv', 2, 256)], seen\n"
        "assert [s for s in seen if s[0] == 'send_recv'] == seen[:2], seen\n"
        "assert [s[1] for s in seen if s[0] == 'barrier'] == [2, 3], seen\n"
        "assert len(seen) == 2 + 2 * (3 * 2 + 1), seen\n"
        "assert all(r['nwrong'] == 0 and r['time'] > 0 for r in rows)\n";
    char path[256], words[300];
    const char *output = NULL;

    snprintf(path, sizeof(path), "%s/figures.json", xt_tmpdir());
    snprintf(words, sizeof(words), "latency --ranks 3 -e 256 -n 20 -J %s", path);
    XT_CHECK_INT(run_perf(words, &output), 0);
    XT_CHECK_HAS(output, "# Out of bounds values : 0 OK\n");
    run_python(code, path, NULL);
    XT_CHECK_INT(run_perf("latency --ranks 1", &output), 1);
    XT_CHECK_HAS(output, "latency needs at least 2 ranks, and there is only one");
}

/* ---- random groups ---- */

/* XT_GROUPS: more of them, in long runs. */
static void check_groups(const char *ranks)
{
    const char *groups = getenv("XT_GROUPS");
    char args[256];
    const char *output = NULL;

    snprintf(args, sizeof(args), "groups %s --comms 3 --groups %s --seed 0x%016llx -T 60", ranks,
             groups ? groups : GROUPS, (unsigned long long)xt_seed());
    XT_CHECK_INT(run_perf(args, &output), 0);
    XT_CHECK_HAS(output, "# communicator 2: ranks ");
    XT_CHECK_HAS(output, " messages; ");
    XT_CHECK_HAS(output, "# Out of bounds values : 0 OK\n");
}

XT_TEST_DEADLINE(random_groups_of_eight_processes_bring_what_they_must, 120)
{
    check_groups("--ranks 8");
}

XT_TEST_DEADLINE(random_groups_of_eight_threads_bring_what_they_must, 120)
{
    check_groups("-t 8");
}

XT_TEST_DEADLINE(random_groups_over_sockets_bring_what_they_must, 120)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    check_groups("--ranks 8");
}

XT_TEST_DEADLINE(the_same_seed_gives_the_same_groups, 120)
{
    const char *outputs[2] = {NULL, NULL};

    for (int i = 0; i < 2; i++) {
        XT_CHECK_INT(run_perf(i ? "groups -t 5 --comms 6 --groups 20 --seed 77"
                                : "groups --ranks 5 --comms 6 --groups 20 --seed 0x4d",
                              &outputs[i]),
                     0);
        outputs[i] = strstr(outputs[i], "# seed 0x000000000000004d, 20 groups");
        XT_CHECK(outputs[i] != NULL);
    }
    /* But for the time, which is behind the last of the other numbers. */
    XT_CHECK_INT(strncmp(outputs[0], outputs[1],
                         (size_t)(strstr(outputs[0], " of all without") - outputs[0])),
                 0);
}

XT_TEST_DEADLINE(groups_on_few_ranks_with_many_communicators_and_no_data_are_fine, 120)
{
    static const char *const cases[] = {"groups --ranks 1 --comms 32", "groups -t 3 --comms 32",
                                        "groups -t 4 -e 0", "groups --ranks 2 -e 1M --groups 20"};
    const char *output = NULL;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        XT_CHECK_INT(run_perf(cases[i], &output), 0);
        XT_CHECK_HAS(output, "# Out of bounds values : 0 OK\n");
    }
}

/* ---- drawings ---- */

XT_TEST_DEADLINE(the_drawing_is_well_formed_with_a_line_for_each_way, 120)
{
    static const char code[] =
        "import sys, xml.dom.minidom\n"
        "svg = xml.dom.minidom.parse(sys.argv[1]).documentElement\n"
        "lines = svg.getElementsByTagName('polyline')\n"
        "points = [len(line.getAttribute('points').split()) for line in lines]\n"
        "assert points == [int(n) for n in sys.argv[2].split(',')], points\n"
        "text = ' '.join(t.firstChild.data for t in svg.getElementsByTagName('text'))\n"
        "for part in ('XCCL: float', 'out of place', 'bus bandwidth, GB/s', 'xccl perf '):\n"
        "    assert part in text, part\n"
        "assert 'nan' not in svg.toxml() and 'inf' not in svg.toxml()\n";
    static const struct {
        const char *args, *points;
    } cases[] = {
        {"all_reduce --ranks 2 -b 8 -e 2K -f 16 -n 3", "3,3,3,3"},
        {"broadcast --ranks 2 -b 64 -e 64 -n 3 -r all", "1,1,1,1,1,1,1,1"},
        {"alltoall --ranks 2 -b 0 -e 256 -i 128 -n 3", "2,2"},
    };
    char path[256], words[400];
    const char *output = NULL;

    snprintf(path, sizeof(path), "%s/figures.svg", xt_tmpdir());
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(words, sizeof(words), "%s --plot %s", cases[i].args, path);
        XT_CHECK_INT(run_perf(words, &output), 0);
        run_python(code, path, cases[i].points);
    }
}

/* ---- progress ---- */

XT_TEST_DEADLINE(a_long_run_shows_on_a_terminal_how_far_it_is, 120)
{
    static const char code[] =
        "import os, pty, subprocess, sys\n"
        "words = [sys.argv[1]] + sys.argv[2].split()\n"
        "master, slave = pty.openpty()\n"
        "run = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=slave)\n"
        "os.close(slave)\n"
        "shown = b''\n"
        "try:\n"
        "    while piece := os.read(master, 4096):\n"
        "        shown += piece\n"
        "except OSError:\n"
        "    pass\n"
        "assert run.wait() == 0\n"
        "assert b' of 60 rows, ' in shown, shown\n"
        "assert shown.endswith(b'\\r\\x1b[K'), shown\n"
        "quiet = subprocess.run(words, capture_output=True, check=True)\n"
        "assert quiet.stderr == b'', quiet.stderr\n";

    run_python(code, XCCL, "perf all_reduce --ranks 2 -b 8 -e 480 -i 8 -c 0");
}

/* ---- what is refused ---- */

XT_TEST(wrong_arguments_are_named)
{
    static const struct {
        const char *args, *says;
    } cases[] = {
        {"latency twice", "unexpected argument twice"},
        {"latency --ranks 2 -o sum", "-o is not an option of latency"},
        {"groups --plot x.svg", "--plot is not an option of groups"},
        {"groups --comms 33", "--comms 33: must be a whole number from 1 to 32"},
        {"groups --seed 0x5g", "--seed 0x5g: must be a number"},
        {"groups --seed -1", "--seed -1: must be a number"},
        {"groups --groups 0", "--groups 0: must be"},
        {"groups -b 8", "-b is not an option of groups"},
        {"all_reduce --seed 1", "--seed is not an option of a collective"},
        {"-n 3 groups", "groups must come first: xccl perf groups [options]"},
        {"all_reduce --ranks 3 -t 2", "not a multiple of the threads per process"},
        {"all_reduce -t 0", "-t 0: must be"},
        {"all_reduce --vs_mpi", "did you mean --vs-mpi?"},
        {"latincy", "did you mean latency?"},
    };
    const char *output = NULL;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        XT_CHECK_INT(run_perf(cases[i].args, &output), 2);
        XT_CHECK_HAS(output, cases[i].says);
    }
}

XT_TEST(each_part_has_help)
{
    const char *output = NULL;

    XT_CHECK_INT(run_perf("--help", &output), 0);
    XT_CHECK_HAS(output, "usage: xccl perf COLLECTIVE");
    XT_CHECK_INT(run_perf("all_reduce --help", &output), 0);
    XT_CHECK_HAS(output, "usage: xccl perf COLLECTIVE");
    XT_CHECK_INT(run_perf("latency --help", &output), 0);
    XT_CHECK_HAS(output, "usage: xccl perf latency");
    XT_CHECK_INT(run_perf("groups -h", &output), 0);
    XT_CHECK_HAS(output, "usage: xccl perf groups");
}
