/* SPDX-License-Identifier: BSD-3-Clause */
/* `xccl perf --vs-mpi` through the built program, with the MPI of this machine: columns, JSON,
 * drawing, what MPI does not have, and how it ends without MPI or when MPI's ranks die.
 *
 * Thread: one a test. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xt.h"

#define XCCL   XT_BUILD_DIR "/bin/xccl"
#define HELPER XT_BUILD_DIR "/lib/xccl/xccl-perf-mpi"
#define SCHEMA XT_SOURCE_DIR "/tools/schema/perf.schema.json"

/* Runs a shell script; returns its exit status. */
static int run_script(const char *script, const char **output_out)
{
    const char *argv[] = {"/bin/bash", "-c", script, NULL};
    int status = xt_run_program(argv, output_out);

    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void need_mpi(void)
{
    if (access(HELPER, X_OK) != 0)
        XT_SKIP("built without MPI (or for a sanitizer)");
    /* The launcher's own files stay in the test's folder. */
    xt_setenv("TMPDIR", xt_tmpdir());
}

XT_TEST_DEADLINE(every_collective_is_measured_beside_mpis, 240)
{
    static const char script[] =
        "for coll in all_reduce all_gather broadcast reduce reduce_scatter alltoall gather scatter "
        "sendrecv all_gatherv reduce_scatterv alltoallv barrier; do\n"
        "    " XCCL " perf $coll --ranks 3 -b 1000 -e 1000 -n 3 --vs-mpi -J $TMPDIR/f.json "
        "> $TMPDIR/out 2>&1 || { cat $TMPDIR/out; exit 1; }\n"
        "    grep -q '# Out of bounds, MPI   : 0$' $TMPDIR/out || { cat $TMPDIR/out; exit 1; }\n"
        "    python3 - $coll $TMPDIR/f.json << 'END' || exit 1\n"
        "import json, sys\n"
        "coll, row = sys.argv[1], json.load(open(sys.argv[2]))['results'][0]\n"
        "apart = coll in ('alltoall', 'alltoallv', 'sendrecv', 'barrier')\n"
        "assert (row['in_place'] is None) == apart\n"
        "assert (row['out_of_place']['mpi'] is None) == (coll == 'broadcast'), row\n"
        "for way in ('out_of_place', 'in_place'):\n"
        "    mpi = row[way] and row[way]['mpi']\n"
        "    assert not mpi or mpi['nwrong'] in ((None,) if coll == 'barrier' else (0,)), row\n"
        "    assert not mpi or 0 < mpi['ratio_low'] <= mpi['ratio_high'], row\n"
        "    ratio = mpi and mpi['time'] / row[way]['time']\n"
        "    assert not mpi or abs(mpi['ratio'] / ratio - 1) < 0.02, row\n"
        "END\n"
        "done\n";
    const char *output = NULL;

    need_mpi();
    if (run_script(script, &output) != 0)
        XT_FAIL("%s", xt_why(output));
}

XT_TEST_DEADLINE(what_mpi_has_not_is_not_available, 120)
{
    const char *output = NULL;

    need_mpi();
    XT_CHECK_INT(
        run_script(XCCL " perf reduce --ranks 2 -b 64 -e 64 -n 3 -d half --vs-mpi", &output), 0);
    XT_CHECK_HAS(output, "    MPI   ratio");
    XT_CHECK_HAS(output, "     N/A     N/A\n");
    XT_CHECK_INT(
        run_script(XCCL " perf reduce --ranks 2 -b 64 -e 64 -n 3 -o avg --vs-mpi", &output), 0);
    XT_CHECK_HAS(output, "     N/A     N/A\n");
}

XT_TEST_DEADLINE(json_and_drawing_have_mpis_figures, 120)
{
    static const char script[] = XCCL
        " perf all_reduce -t 2 -b 8 -e 2K -f 16 -n 5 -o all --vs-mpi -J $TMPDIR/f.json "
        "--plot $TMPDIR/f.svg && python3 - $TMPDIR/f.json $TMPDIR/f.svg " SCHEMA " << 'END'\n"
        "import json, sys, xml.dom.minidom\n"
        "found = json.load(open(sys.argv[1]))\n"
        "assert found['mpi_library'], found\n"
        "text = xml.dom.minidom.parse(sys.argv[2]).documentElement.toxml()\n"
        "assert 'MPI: float sum, in place' in text and 'XCCL: float avg' in text\n"
        "assert 'MPI: float avg' not in text\n"
        "try:\n"
        "    import jsonschema\n"
        "    jsonschema.validate(found, json.load(open(sys.argv[3])))\n"
        "except ImportError:\n"
        "    pass\n"
        "END\n";
    const char *output = NULL;

    need_mpi();
    if (run_script(script, &output) != 0)
        XT_FAIL("%s", xt_why(output));
}

XT_TEST(without_mpis_launcher_it_says_what_to_install)
{
    const char *output = NULL;

    need_mpi();
    XT_CHECK_INT(run_script("PATH= " XCCL " perf all_reduce --ranks 2 --vs-mpi", &output), 1);
    XT_CHECK_HAS(output, "there is no mpirun in PATH; install MPI's launcher (Debian: ");
}

/* The library alone, without what lies beside it. */
XT_TEST(without_the_helper_it_says_what_to_install)
{
    const char *output = NULL;

    xt_setenv("TMPDIR", xt_tmpdir());
    XT_CHECK_INT(run_script("mkdir $TMPDIR/bin $TMPDIR/lib && cp " XCCL " $TMPDIR/bin && "
                            "cp -P " XT_BUILD_DIR "/lib/libxccl.so* $TMPDIR/lib && "
                            "$TMPDIR/bin/xccl perf all_reduce --ranks 2 --vs-mpi",
                            &output),
                 1);
    XT_CHECK_HAS(output, "/lib/xccl/xccl-perf-mpi, which is built only if CMake finds MPI");
    XT_CHECK_HAS(output, "libopenmpi-dev");
}

XT_TEST(under_another_launcher_it_is_refused)
{
    const char *output = NULL;

    XT_CHECK_INT(run_script("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 "
                            "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 " XCCL
                            " perf all_reduce --vs-mpi",
                            &output),
                 2);
    XT_CHECK_HAS(output, "it starts MPI's ranks itself");
}

/* A launcher that fails, and one whose ranks never come. */
XT_TEST_DEADLINE(a_launcher_that_fails_ends_the_run_with_its_words, 120)
{
    const char *output = NULL;

    need_mpi();
    XT_CHECK_INT(
        run_script("mkdir $TMPDIR/bin && for name in mpirun.openmpi mpirun.mpich mpirun; do\n"
                   "  printf '#!/bin/sh\\necho no slots today\\nexit 3\\n' > $TMPDIR/bin/$name\n"
                   "  chmod +x $TMPDIR/bin/$name\n"
                   "done\n"
                   "PATH=$TMPDIR/bin:$PATH " XCCL " perf all_reduce --ranks 2 --vs-mpi",
                   &output),
        1);
    XT_CHECK_HAS(output, "no slots today");
    XT_CHECK_HAS(output, "MPI's launcher has ended with status 3");
}

XT_TEST_DEADLINE(mpis_ranks_that_are_killed_end_the_run_and_leave_nothing_behind, 120)
{
    static const char script[] =
        "mark=$$-$RANDOM\n"
        "MARK=$mark " XCCL " perf all_reduce --ranks 2 -b 1M -e 1M -n 2000 --vs-mpi &\n"
        "ours() { grep -lz \"^MARK=$mark$\" /proc/[0-9]*/environ 2> /dev/null | cut -d/ -f3; }\n"
        "mpis() { for p in $(ours); do\n"
        "    tr '\\0' ' ' < /proc/$p/cmdline | grep -q 'xccl-perf-mpi rank' && echo $p; done; }\n"
        "until [[ $(mpis | wc -l) -ge 3 ]]; do kill -0 $! || exit 9; done\n"
        "kill -9 $(mpis | tail -n 1)\n"
        "wait $! && exit 8\n"
        "for _ in {1..500}; do [[ -z $(ours) ]] && exit 0; done\n"
        "exit 7\n";
    const char *output = NULL;

    need_mpi();
    XT_CHECK_INT(run_script(script, &output), 0);
    XT_CHECK_HAS(output, "--vs-mpi: ");
}
