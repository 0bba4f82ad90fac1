/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/host_figures: places of ranks, what must cross cards, ratios and verdicts of known figures;
 * a short run between two hosts. Figures are not judged.
 *
 * Thread: one a test. */
#include <stdio.h>
#include <sys/wait.h>

#include "xt.h"

#define BENCH XT_SOURCE_DIR "/tests/bench"

/* The page as a module, and a point: two hosts of two ranks with a card of 1 byte per us, whose
 * calls take twice the limit and move half as much again as they must. */
#define PYTHON                                                                                     \
    "import sys\n"                                                                                 \
    "sys.dont_write_bytecode = True\n"                                                             \
    "sys.path.insert(0, '" BENCH "')\n"                                                            \
    "import host_figures_page as page\n"                                                           \
    "def point(us=[200.0], coll='all_reduce', who='xccl', moved=150):\n"                           \
    "    return {'place': [0, 1, 0, 1], 'order': 'round', 'coll': coll, 'size': 100, 'rates': "    \
    "[1e6, 1e6], 'who': {who: {'us': us, 'moved': [[moved, 10], [10, moved]]}}}\n"

static void run_python(const char *script)
{
    const char *argv[] = {"/usr/bin/env", "python3", "-c", script, NULL}, *output = NULL;
    int status = xt_run_program(argv, &output);

    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        XT_FAIL("%s", xt_why(output));
}

XT_TEST(ranks_are_placed_in_blocks_in_turn_and_at_random)
{
    run_python(PYTHON "counts = page.read_hosts('3+1+2')\n"
                      "assert page.place_of(counts, 'block', 1) == [0, 0, 0, 1, 2, 2]\n"
                      "assert page.place_of(counts, 'round', 1) == [0, 1, 2, 0, 2, 0]\n"
                      "drawn = page.place_of(counts, 'random', 1)\n"
                      "assert sorted(drawn) == [0, 0, 0, 1, 2, 2]\n"
                      "assert drawn == page.place_of(counts, 'random', 1)\n"
                      "assert len({tuple(page.place_of(counts, 'random', i)) for i in range(20)}) "
                      "> 5\n"
                      "for text in ('4', '2+0', 'a+b'):\n"
                      "    try:\n"
                      "        page.read_hosts(text)\n"
                      "    except ValueError:\n"
                      "        continue\n"
                      "    raise AssertionError(text)\n");
}

XT_TEST(what_must_cross_hangs_on_the_ranks_of_each_host)
{
    run_python(PYTHON
               "def crosses(coll, place, want):\n"
               "    got = page.must_cross(coll, 120, place)\n"
               "    assert all(abs(a - b) < 1e-9 for a, b in zip(got, want)), (coll, place, got)\n"
               "    assert len(got) == len(want)\n"
               "three_one, mixed = [0, 0, 0, 1], [2, 0, 1, 0, 0, 0]\n"
               "crosses('all_reduce', three_one, [120, 120])\n"
               "crosses('all_reduce', mixed, [160, 160, 160])\n"
               "crosses('all_gather', three_one, [30, 90])\n"
               "crosses('reduce_scatter', mixed, [40, 100, 100])\n"
               "crosses('broadcast', mixed, [120, 120, 120])\n"
               "crosses('reduce', three_one, [120, 120])\n"
               "crosses('gather', three_one, [30, 30])\n"
               "crosses('gather', mixed, [80, 20, 100])\n"
               "crosses('scatter', mixed, [80, 20, 100])\n"
               "crosses('alltoall', three_one, [90, 90])\n"
               "crosses('alltoall', mixed, [160, 100, 100])\n"
               "crosses('barrier', three_one, [0, 0])\n"
               "assert page.size_of('all_gather', 1000, 7) == 7 * 128\n"
               "assert page.size_of('all_reduce', 1002, 7) == 1000\n");
}

XT_TEST(a_limit_is_that_of_the_slowest_host_and_shares_are_against_it)
{
    run_python(PYTHON "slow = dict(point(), rates=[1e6, 5e5])\n"
                      "assert abs(page.limit_us(point()) - 100) < 1e-9\n"
                      "assert abs(page.limit_us(slow) - 200) < 1e-9\n"
                      "share = page.Share(point([200.0, 260.0, 150.0, 210.0, 190.0]), 'xccl')\n"
                      "assert (share.median, share.low, share.high) == (200, 190, 210)\n"
                      "assert abs(share.ratio - 2) < 1e-9 and abs(share.moved - 1.5) < 1e-9\n"
                      "rails = point()\n"
                      "rails['who']['xccl']['moved'] = [[50, 0], [75, 0], [1, 50], [0, 50]]\n"
                      "assert abs(page.Share(rails, 'xccl').moved - 1.5) < 1e-9\n"
                      "assert page.size_text((2 << 20) - 64) == '2 MiB'\n"
                      "assert page.size_text(512) == '512 B'\n");
}

XT_TEST(a_verdict_needs_most_points_near_and_none_far)
{
    run_python(PYTHON "near, off, far = point([120.0]), point([140.0]), point([160.0])\n"
                      "assert page.is_kept([near] * 20, 'xccl')\n"
                      "assert page.is_kept([near] * 19 + [off], 'xccl')\n"
                      "assert not page.is_kept([near] * 18 + [off] * 2, 'xccl')\n"
                      "assert not page.is_kept([near] * 30 + [far], 'xccl')\n"
                      "assert not page.is_kept([], 'xccl')\n"
                      "line = page.last_line([near, off, far], 'xccl')\n"
                      "assert line == 'xccl: 1 of 3 points within 1.25 times the wire\\'s limit, "
                      "1 above 1.5, worst 1.60: 2+2 round-robin, all_reduce 100 B', line\n"
                      "assert 'no points' in page.last_line([near], 'openmpi')\n"
                      "two = point([10.0, 20.0])\n"
                      "two['who']['b'] = {'us': [20.0, 20.0]}\n"
                      "assert page.ratios_of(two, 'xccl', 'b') == [1.0, 2.0]\n"
                      "assert ': ' in page.beside_line([two], 'xccl', 'b')\n");
}

/* Without namespaces here there is nothing to run; a machine that is too busy has no good bed. */
XT_TEST_DEADLINE(a_short_run_between_two_hosts_leaves_a_table_and_figures, 120)
{
    const char *argv[] = {
        "/bin/bash", "-ec",
        "cd $0; out=$(" BENCH "/host_figures --build " XT_BUILD_DIR
        " --hosts 1+1 --orders block round --collectives all_reduce gather --sizes 256K "
        "--rounds 3 --contestants xccl -J figures.json 2> err) || true\n"
        "if grep 'bed is not good' <<< \"$out\" || grep -E 'Operation not permitted|there is no' "
        "err; then exit 77; fi\n"
        "echo \"$out\"; cat err\n"
        "grep -q '1+1 | *block | *gather | 256 KiB | xccl | ' <<< \"$out\"\n"
        "grep -q '^xccl: [0-9] of 2 points within 1.25 times' <<< \"$out\"\n"
        "grep -q '\"coll\": \"all_reduce\"' figures.json\n",
        xt_tmpdir(), NULL};
    const char *output = NULL;
    int status = xt_run_program(argv, &output);

    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        XT_SKIP("%s", output);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        XT_FAIL("%s", xt_why(output));
}
