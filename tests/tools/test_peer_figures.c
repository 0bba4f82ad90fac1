/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/peer_figures and its programs: medians, ratios and losses of known figures; a short run
 * with page, drawing and figures; what a contestant that dies is told as. Figures are not judged.
 *
 * Thread: one a test. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "xt.h"

#define TESTS   XT_BUILD_DIR "/tests/"
#define LAUNCH  XT_BUILD_DIR "/bin/xccl run -n 2 -- " TESTS "xcclbench "
#define BENCH   XT_SOURCE_DIR "/tests/bench"
#define FIGURES "python3 " BENCH "/peer_figures --build " XT_BUILD_DIR " --output $TMPDIR "

/* The page and the program as modules, and a point of two rounds: the second peer is best, 1.5 and
 * 2.5 times. */
#define PYTHON                                                                                     \
    "import importlib.machinery, importlib.util, math, re, sys, types\n"                           \
    "sys.dont_write_bytecode = True\n"                                                             \
    "sys.path.insert(0, '" BENCH "')\n"                                                            \
    "import peer_figures_page as page\n"                                                           \
    "loader = importlib.machinery.SourceFileLoader('peer_figures', '" BENCH "/peer_figures')\n"    \
    "figures = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, "      \
    "loader))\n"                                                                                   \
    "loader.exec_module(figures)\n"                                                                \
    "def point(size=8, coll='all_reduce', **times):\n"                                             \
    "    times = {key.replace('_', '-'): value for key, value in times.items()}\n"                 \
    "    return {'path': 'shm', 'ranks': 2, 'coll': coll, 'size': size, 'times': times}\n"         \
    "two = point(xccl=[2.0, 2.0], openmpi=[9.0, 8.0, None], mpich=[3.0, 5.0])\n"

static void run_script(const char *script)
{
    const char *argv[] = {"/bin/bash", "-ec", script, NULL}, *output = NULL;
    int status = 0;

    xt_setenv("TMPDIR", xt_tmpdir());
    status = xt_run_program(argv, &output);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        XT_FAIL("%s", xt_why(output));
}

static void run_python(const char *script)
{
    const char *argv[] = {"/usr/bin/env", "python3", "-c", script, NULL}, *output = NULL;
    int status = xt_run_program(argv, &output);

    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        XT_FAIL("%s", xt_why(output));
}

XT_TEST(medians_leave_out_rounds_that_were_not_run)
{
    run_python(PYTHON
               "assert page.middle([3.0, None, 1.0, 2.0]) == 2.0\n"
               "assert page.middle([4.0, 1.0]) == 2.5\n"
               "assert math.isnan(page.middle([None])) and math.isnan(page.middle([]))\n"
               "assert page.us_text(math.nan) == '-' and page.us_text(0.1234) == '0.123'\n"
               "assert page.us_text(12.34) == '12.3' and page.us_text(12345.6) == '12346'\n");
}

XT_TEST(the_best_peer_has_the_least_median_and_a_ratio_is_taken_by_round)
{
    run_python(PYTHON
               "assert page.best_peer(two['times']) == 'mpich'\n"
               "assert page.best_peer({'xccl': [1.0], 'openmpi': [None]}) is None\n"
               "ratio = page.ratio_of(two)\n"
               "assert ratio.values == [1.5, 2.5] and str(ratio) == '2.00 (1.50 to 2.50)', ratio\n"
               "assert page.ratio_of(point(xccl=[1.0])) is None\n"
               "assert page.ratio_of(point(mpich=[1.0])) is None\n"
               "late = point(xccl=[2.0, 4.0], mpich=[None, 8.0])\n"
               "assert page.ratio_of(late).values == [2.0]\n"
               "assert page.ratio_of(point(xccl=[4.0], xccl_alloc=[1.0]), 'xccl-alloc', "
               "'xccl').median == 4.0\n");
}

XT_TEST(a_loss_is_more_than_15_percent_of_a_kept_ratio)
{
    run_python(PYTHON "key = page.key_of(two)\n"
                      "assert key == 'shm 2 all_reduce 8' and page.ratios_of([two]) == {key: 2.0}\n"
                      "assert page.losses([two], {key: 2.34}) == []\n"
                      "assert page.losses([two], {key: 2.37}) == [(two, 2.0, 2.37)]\n"
                      "assert page.losses([two], {'shm 2 all_reduce 64': 9.0}) == []\n"
                      "assert page.losses([point(xccl=[1.0])], {key: 9.0}) == []\n");
}

XT_TEST(promises_are_judged_by_their_own_sizes_and_peers)
{
    run_python(PYTHON
               "rows = page.judge([two, point(size=512, xccl=[2.0], mpich=[2.5], limits=[1.0])])\n"
               "by = {(row[3], row[5]): row for row in rows}\n"
               "assert by['8 B to 128 B', 'the best peer'][7:] == ['1 of 1', '2.00 at 8 B "
               "(all_reduce)'], rows\n"
               "assert by['512 B', 'bare loops'][7:] == ['0 of 1', '0.50 at 512 B (all_reduce)']\n"
               "assert by['512 B to 256 MiB', 'the best peer'][7] == '0 of 1'\n"
               "assert by['0 B to 256 MiB', 'the best peer'][7] == '2 of 2'\n"
               "slower = page.judge([point(xccl=[1.0], mpich=[0.98]), point(size=64, xccl=[1.0], "
               "mpich=[0.9])])\n"
               "assert [row[7] for row in slower if row[0] == 'all'] == ['1 of 2'], slower\n");
}

XT_TEST(a_page_has_tables_and_names_its_drawings)
{
    run_python(PYTHON
               "found = {'points': [two, point(0, 'barrier', xccl=[1.0], mpich=[3.0])], 'extras': "
               "{'late': [{'ranks': 2, 'late_us': 1000, 'cost_us': 3, 'cpu_part': 0.5}], 'idle': "
               "{'ranks': 2, 'cpu_part': 1e-5}, 'one': {'call_ns': 33.3}}, 'seed': 7, 'rounds': 2, "
               "'command': 'make', 'date': '2026-01-02', 'versions': ['A', 'B'], 'pinned': 'free', "
               "'minutes': 1.0, 'others': 0.05, 'loads': [1, 2], 'machine': {'cores': 2, 'memory': "
               "'1 GiB', 'processor': 'P', 'system': 'Linux', 'release': '6', 'congestion': 'c'}}\n"
               "text = re.sub(' +', ' ', page.page(found, 'name'))\n"
               "for part in ('| 8 B | 2.000 | 8.500 | 4.000 | MPICH | 2.00 (1.50 to 2.50) "
               "|', '![2 ranks, shared memory: time over size](name-shm-2.svg)', '| seed | 7 |', "
               "'| versions | A, B |', '33.3 ns', '| 2 | 1 ms | 3.00 us | 50 % |', "
               "'0.0010 %', 'used 5 %'):\n"
               "    assert part in text, (part, text)\n"
               "lines = page.lines_of(page.groups_of(found['points'])['shm', 2])\n"
               "assert 'all_reduce: time of one call, us\\tXCCL\\t8\\t2' in lines, lines\n"
               "assert 'all_reduce: time of one call, us\\t~MPICH\\t8\\t4' in lines, lines\n"
               "assert len(lines) == 3, lines\n");
}

XT_TEST(orders_are_those_of_the_programs)
{
    run_python(PYTHON "import bench_ranks as ranks\n"
                      "text = open('" XT_SOURCE_DIR "/tools/perf/perf_coll.c').read()\n"
                      "assert ranks.NUMBERS == re.findall(r'\\.name = \"(\\w+)\"', text)\n"
                      "text = open('" XT_SOURCE_DIR "/tools/perf/perf_vs_mpi.h').read()\n"
                      "assert '#define XCCL_PERF_MPI_MAGIC 0x%xu' % ranks.MAGIC in text\n"
                      "assert '#define XCCL_PERF_MPI_NEW_PAGES (%d)' % ranks.NEW_PAGES in text\n"
                      "assert (ranks.HELLO.size, ranks.ORDER.size, ranks.ANSWER.size) == (112, 72, "
                      "88)\n");
}

XT_TEST(a_check_measures_losses_again_and_needs_ratios)
{
    run_python(
        PYTHON
        "import json, os, tempfile\n"
        "folder = tempfile.mkdtemp(dir='/tmp', prefix='xt-peer-')\n"
        "args = types.SimpleNamespace(ratios=folder + '/r.json', began=figures.time.monotonic"
        "())\n"
        "found = {key: key for key in ('versions', 'date', 'command', 'seed', 'loads')}\n"
        "found.update(points=[two], machine={'processor': 'P'}, others=0.5)\n"
        "def again(args, todo, versions, points, after=[]):\n"
        "    assert todo == {('shm', 2): [('all_reduce', [8])]}, todo\n"
        "    points.append(after.pop(0))\n"
        "try:\n"
        "    assert figures.check(args, found) == 1\n"
        "    assert figures.keep_ratios(args, found) == 1\n"
        "    assert not os.path.exists(args.ratios)\n"
        "    assert figures.keep_ratios(args, dict(found, others=0.01)) == 0\n"
        "    assert json.load(open(args.ratios))[0]['ratios'] == {'shm 2 all_reduce 8': 2.0}\n"
        "    other = dict(found, others=0.01, machine={'processor': 'Q'}, points=[point(xccl=[1.0]"
        ", mpich=[9.0])])\n"
        "    assert figures.keep_ratios(args, other) == 0\n"
        "    kept = figures.read_kept(args.ratios)\n"
        "    assert [figures.ratios_for(kept, who)[0]['shm 2 all_reduce 8'] for who in 'PQR'] == "
        "[2.0, 9.0, 2.0]\n"
        "    assert figures.ratios_for(kept, 'Q')[1] is None\n"
        "    assert 'P, Q' in figures.ratios_for(kept, 'R')[1]\n"
        "    assert figures.check(args, found) == 0\n"
        "    bad = point(xccl=[5.0], mpich=[5.0])\n"
        "    figures.take_points = lambda *a: again(*a, after=[two])\n"
        "    assert figures.check(args, dict(found, points=[bad])) == 0\n"
        "    left = [bad, bad]\n"
        "    figures.take_points = lambda *a: again(*a, after=left)\n"
        "    assert figures.check(args, dict(found, points=[bad])) == 1 and not left\n"
        "    args.began -= figures.AGAIN_S + 1\n"
        "    assert figures.check(args, dict(found, points=[bad])) == 1\n"
        "    assert figures.check(args, dict(found, points=[])) == 1\n"
        "finally:\n"
        "    if os.path.exists(args.ratios):\n"
        "        os.remove(args.ratios)\n"
        "    os.rmdir(folder)\n");
}

/* What the ranks of a contestant have of the machine's memory; private buffers go, and what comes
 * instead is right; those of xcclMemAlloc and registered ones stay. */
XT_TEST_DEADLINE(private_memory_is_given_back_and_taken_anew, 120)
{
    run_python(
        PYTHON
        "import os, time\n"
        "sys.argv = ['', '--build', '" XT_BUILD_DIR "', '--contestants', 'xccl', "
        "'xccl-threads', 'xccl-alloc', 'xccl-registered']\n"
        "args = figures.read_arguments()\n"
        "figures.find_programs(args)\n"
        "def status(pid, field):\n"
        "    try:\n"
        "        text = open('/proc/' + pid + '/status').read()\n"
        "    except OSError:\n"
        "        return 0\n"
        "    found = re.search(field + r':\\s+(\\d+)', text)\n"
        "    return int(found[1]) if found else 0\n"
        "def resident(contestant):\n"
        "    lead = contestant.process.pid\n"
        "    pids = [pid for pid in os.listdir('/proc') if pid.isdigit() and (int(pid) == lead "
        "or status(pid, 'PPid') == lead)]\n"
        "    return sum(status(pid, 'VmRSS') for pid in pids) >> 10\n"
        "with figures.World(args, 'shm', 2, 8 << 20) as world:\n"
        "    for contestant in world.there:\n"
        "        assert contestant.order('all_reduce', 8 << 20, 1, 1, 1, 1)[2] == 0\n"
        "        before = after = resident(contestant)\n"
        "        contestant.take_new_pages()\n"
        "        goes = contestant.name in ('xccl', 'xccl-threads')\n"
        "        end = time.monotonic() + (20 if goes else 0.3)\n"
        "        while before - after < 30 and time.monotonic() < end:\n"
        "            time.sleep(0.02)\n"
        "            after = resident(contestant)\n"
        "        print(contestant.name, before, after)\n"
        "        assert (before - after >= 30) == goes, (contestant.name, before, after)\n"
        "        assert contestant.order('all_reduce', 1 << 20, 1, 1, 1, 1)[2] == 0\n"
        "        end = time.monotonic() + 20\n"
        "        while before - resident(contestant) >= 8 and time.monotonic() < end:\n"
        "            time.sleep(0.02)\n"
        "        assert before - resident(contestant) < 8, (contestant.name, 'all of it')\n");
}

XT_TEST_DEADLINE(a_short_run_leaves_page_drawing_and_figures, 240)
{
    run_script(FIGURES
               "--ranks 2 --paths shm --sizes 8 2097152 --collectives all_reduce barrier broadcast "
               "reduce_scatter alltoallv --contestants xccl xccl-alloc xccl-registered "
               "xccl-threads xccl-no-record limits openmpi --rounds 2 --group-ms 1 --idle-ms 50 "
               "--seed 7 > $TMPDIR/out 2>&1 || "
               "{ cat $TMPDIR/out; exit 1; }\n"
               "cd $TMPDIR\n"
               "grep -q '^### alltoallv, 2 ranks, shared memory$' peers-*.md\n"
               "grep -q '^| seed | 7 |$' peers-*.md\n"
               "grep -q 'A call on a communicator of one rank takes' peers-*.md\n"
               "grep -q 'all_reduce: time of one call, us' peers-*-shm-2.svg\n"
               "mv peers-*.md first.md\n" FIGURES "--again peers-*.json > /dev/null\n"
               "cmp first.md peers-*.md\n"
               "python3 - peers-*.json << 'END'\n"
               "import json, sys\n"
               "points = json.load(open(sys.argv[1]))['points']\n"
               "assert len(points) == 8, points\n"
               "for point in points:\n"
               "    times = point['times']\n"
               "    limited = point['coll'] in ('all_reduce', 'barrier')\n"
               "    assert ('limits' in times) == limited, point\n"
               "    assert ('xccl-no-record' in times) == (point['coll'] == 'all_reduce' and "
               "point['size'] == 8), point\n"
               "    assert ('xccl-registered' in times) == (point['size'] > 8), point\n"
               "    for values in times.values():\n"
               "        assert len(values) == 2 and values[0] > 0, point\n"
               "END\n");
}

XT_TEST_DEADLINE(a_run_that_is_ended_leaves_a_page_of_what_there_is, 120)
{
    run_script(FIGURES
               "--ranks 2 --paths shm --sizes 8 --collectives all_reduce --contestants xccl "
               "--rounds 100000 --group-ms 1 --no-extras > $TMPDIR/out 2>&1 & sleep 2; kill $!\n"
               "if wait $! || ls $TMPDIR/peers-*; then exit 1; fi\n" FIGURES
               "--ranks 2 --paths shm --sizes 8 16 32 64 --collectives all_reduce all_gather "
               "broadcast reduce --contestants xccl --rounds 1000 --group-ms 1 --no-extras > "
               "$TMPDIR/out 2>&1 &\n"
               "for i in {1..600}; do\n"
               "    ! grep -q 'shm 2 all_reduce 16 B' $TMPDIR/out || break\n"
               "    sleep 0.1\n"
               "done\n"
               "kill $!\n"
               "if wait $!; then exit 1; fi\n"
               "grep 'it was told to end' $TMPDIR/out\n"
               "grep '; not to its end: it was told to end |$' $TMPDIR/peers-*.md\n"
               "grep '^### all_reduce, 2 ranks, shared memory$' $TMPDIR/peers-*.md\n");
}

XT_TEST_DEADLINE(ours_and_the_peers_go_over_tcp_too, 120)
{
    run_script(FIGURES "--ranks 3 --paths tcp --sizes 100 --collectives all_reduce sendrecv "
                       "--rounds 2 --group-ms 1 --no-extras --contestants xccl openmpi > "
                       "$TMPDIR/out 2>&1 || { cat $TMPDIR/out; exit 1; }\n"
                       "grep -q '^### sendrecv, 3 ranks, TCP on all sides$' $TMPDIR/peers-*.md\n");
}

XT_TEST_DEADLINE(programs_say_what_they_have_measured_and_what_is_wrong, 120)
{
    run_script(LAUNCH
               "late 1000 3 | grep -q '{\"late_us\": 1000, \"ranks\": 2, \"calls\": 3, '\n" LAUNCH
               "idle 50 | grep -q '{\"idle_ms\": 50, \"ranks\": 2, \"cpu_part\": 0\\.'\n" TESTS
               "xcclbench one 1000 | grep -q '{\"calls\": 1000, \"call_ns\": '\n"
               "fails() {\n"
               "    local want=$1 text=$2 got=0\n"
               "    shift 2\n"
               "    \"$@\" > $TMPDIR/said 2>&1 < /dev/null || got=$?\n"
               "    grep -q -- \"$text\" $TMPDIR/said && [[ $got -eq $want ]] && return\n"
               "    echo \"$got of $*\"; cat $TMPDIR/said; exit 1\n"
               "}\n"
               "fails 2 'usage: xccl run' " TESTS "xcclbench\n"
               "fails 2 'usage: xccl run' " TESTS "xcclbench late\n"
               "fails 1 'late needs two ranks' " XT_BUILD_DIR "/bin/xccl run -n 1 -- " TESTS
               "xcclbench late 10\n"
               "fails 1 'cannot connect to the program that started it' " TESTS
               "host_limits serve 0033 64\n"
               "fails 2 'usage: host_limits' " TESTS "host_limits blast\n"
               "printf 'a\\tb\\t8\\t1\\na\\tb\\t8\\n' > $TMPDIR/lines\n"
               "fails 1 'line 2: no panel' bash -c '" TESTS "plot_lines t n < $TMPDIR/lines'\n");
}

XT_TEST_DEADLINE(a_contestant_that_dies_is_told_by_name, 120)
{
    run_python(
        PYTHON
        "args = types.SimpleNamespace(core_list=[], launcher='/bin/false', programs={'xccl': "
        "'x', 'limits': '/bin/false'}, contestants=['limits'], memory=1 << 30)\n"
        "def told(text, act):\n"
        "    try:\n"
        "        act()\n"
        "    except figures.Failure as error:\n"
        "        assert text in str(error), error\n"
        "        return\n"
        "    raise AssertionError(text)\n"
        "told('limits, 2 ranks: ended with 1', lambda: figures.World(args, 'shm', 2, 64)"
        ".__enter__())\n"
        "args.sizes = [1 << 28, 1 << 29]\n"
        "assert figures.sizes_that_fit(args, 'shm', 2) == [1 << 28]\n"
        "told('choose smaller --sizes', lambda: figures.sizes_that_fit(args, 'shm', 4))\n"
        "told('written no figures', lambda: figures.take_json(['/bin/true']))\n"
        "told('exited with 1', lambda: figures.take_json(['/bin/false']))\n");
}
