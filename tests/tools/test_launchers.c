/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs under the launchers that people use, without flags or settings: the first program of the
 * README, `xccl perf bootstrap` and `xccl perf all_reduce`, which look at every byte. Slurm is a
 * cluster of one node of the test's own. A launcher that is not installed is a skip.
 *
 * Thread: one a test. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xt.h"

#define XCCL  XT_BUILD_DIR "/bin/xccl"
#define HELLO XT_BUILD_DIR "/examples/hello"
#define NODE  XT_SOURCE_DIR "/tests/fixtures/slurm_node.sh"
#define PERF  XCCL " perf bootstrap -n 20"
#define COLL  XCCL " perf all_reduce -b 8 -e 1K -f 128 -n 3"

static size_t count_of(const char *text, const char *part)
{
    size_t bytes = strlen(part), count = 0;

    /* Not strstr: the address sanitizer's measures the whole text at each call. */
    for (; *text; text++)
        count += *text == *part && strncmp(text, part, bytes) == 0;
    return count;
}

/* Runs a shell script; returns its exit status. A shell stays around it: hydra itself is sometimes
 * ended by SIGPIPE when its ranks leave early, which counts as a status here. */
static int run_script(const char *script, const char **output_out)
{
    const char *argv[] = {"/bin/bash", "-c", "eval \"$1\"; exit $?", "bash", script, NULL};
    int status = xt_run_program(argv, output_out);

    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Skips unless there is such a program. The launchers' own files stay in the test's folder. */
static void need(const char *program)
{
    char script[128];
    const char *output = NULL;

    snprintf(script, sizeof(script), "command -v %s", program);
    if (run_script(script, &output) != 0)
        XT_SKIP("%s is not installed", program);
    xt_setenv("TMPDIR", xt_tmpdir());
    xt_setenv("XCCL_JOB_KEY", NULL);
}

/* libpmix and the libraries below it are not built for sanitizers, and keep memory to the end. */
static void allow_pmix(void)
{
    if (XT_TSAN)
        XT_SKIP("libpmix is not built for the thread sanitizer");
    xt_setenv("ASAN_OPTIONS", "detect_leaks=0");
}

/* Four ranks of each program. start: a command line up to the program. */
static void check_start(const char *start)
{
    char script[1024];
    const char *output = NULL;
    int status = 0;

    snprintf(script, sizeof(script), "%s " HELLO, start);
    status = run_script(script, &output);
    printf("%s", output);
    XT_CHECK_INT(status, 0);
    XT_CHECK_INT(count_of(output, " of 4: sum = 6 10 14 18\n"), 4);
    snprintf(script, sizeof(script), "%s " PERF, start);
    status = run_script(script, &output);
    printf("%s", output);
    XT_CHECK_INT(status, 0);
    XT_CHECK_INT(count_of(output, "# xccl perf bootstrap: 4 ranks, "), 1);
    XT_CHECK_INT(count_of(output, "# Wrong bytes : 0 OK\n"), 1);
    XT_CHECK_HAS(output, "round trip 0 and n-1");
    snprintf(script, sizeof(script), "%s " COLL, start);
    status = run_script(script, &output);
    printf("%s", output);
    XT_CHECK_INT(status, 0);
    XT_CHECK_INT(count_of(output, "# xccl perf all_reduce: library "), 1);
    XT_CHECK_INT(count_of(output, ", 4 ranks\n"), 1);
    XT_CHECK_INT(count_of(output, "# Out of bounds values : 0 OK\n"), 1);
}

XT_TEST_DEADLINE(ranks_of_xccl_run_find_each_other, 120)
{
    check_start(XCCL " run -n 4 --");
}

XT_TEST_DEADLINE(ranks_of_open_mpis_mpirun_find_each_other, 120)
{
    need("mpirun.openmpi");
    allow_pmix();
    check_start("mpirun.openmpi --allow-run-as-root --oversubscribe -n 4");
}

static void need_mpi(void)
{
    need("mpirun.openmpi");
    need("mpicc.openmpi");
    if (XT_SANITIZED)
        XT_SKIP("libxccl.so is built for a sanitizer, and this program is not");
}

/* $TMPDIR/program, of one source file. */
static void build_with_mpi(const char *source)
{
    const char *output = NULL;
    char script[1024];

    snprintf(script, sizeof(script),
             "mpicc.openmpi -I" XT_SOURCE_DIR "/include -o $TMPDIR/program %s -L" XT_BUILD_DIR
             "/lib -lxccl -Wl,-rpath," XT_BUILD_DIR "/lib",
             source);
    XT_CHECK_INT(run_script(script, &output), 0);
}

/* MPI and XCCL in one program, in both orders of beginning and end. */
XT_TEST_DEADLINE(open_mpi_in_the_same_program_shares_pmix, 120)
{
    static const char code[] =
        "#include <mpi.h>\n#include <stdio.h>\n#include <xccl.h>\n"
        "int main(int argc, char **argv)\n"
        "{\n"
        "    int nranks = 0, rank = 0, mpi_rank = 0, local = 0, locals = 0;\n"
        "    xcclUniqueId id, other;\n"
        "    if (argc > 1 && xcclGetLaunch(&id, &nranks, &rank))\n"
        "        return 1;\n"
        "    MPI_Init(NULL, NULL);\n"
        "    MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);\n"
        "    if (xcclGetLaunch(&id, &nranks, &rank))\n"
        "        return 2;\n"
        "    if (xcclGetLaunchLocal(&locals, &local) || local != rank || locals != 2)\n"
        "        return 3;\n"
        "    if (xcclGetLaunch(&id, NULL, &rank) != xcclInvalidArgument)\n"
        "        return 4;\n"
        "    if (pxcclGetLaunch(NULL, &locals, &local) || local != rank || locals != nranks)\n"
        "        return 5;\n"
        "    other = id;\n"
        "    MPI_Bcast(&other, sizeof(other), MPI_BYTE, 0, MPI_COMM_WORLD);\n"
        "    MPI_Finalize();\n"
        "    printf(\"%s\\n\", rank == mpi_rank && !__builtin_memcmp(&id, &other, sizeof(id))\n"
        "        ? \"agreed\" : \"differ\");\n"
        "    return 0;\n"
        "}\n";
    const char *output = NULL;
    char path[512];
    FILE *file;

    need_mpi();
    snprintf(path, sizeof(path), "%s/both.c", xt_tmpdir());
    file = fopen(path, "we");
    XT_CHECK(file != NULL);
    fputs(code, file);
    fclose(file);
    build_with_mpi(path);
    XT_CHECK_INT(run_script("cd $TMPDIR && for first in '' xccl; do mpirun.openmpi "
                            "--allow-run-as-root --oversubscribe -n 2 ./program $first || exit; "
                            "done",
                            &output),
                 0);
    XT_CHECK_INT(count_of(output, "agreed\n"), 4);
}

/* The shape of NCCL's first examples: a thread with two devices, here two ranks. */
XT_TEST_DEADLINE(two_processes_of_two_ranks_each_add_on_streams, 120)
{
    const char *output = NULL;

    need_mpi();
    build_with_mpi(XT_SOURCE_DIR "/examples/two_ranks_a_process.c");
    XT_CHECK_INT(run_script("mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 "
                            "$TMPDIR/program",
                            &output),
                 0);
    XT_CHECK_INT(count_of(output, " of 2: two ranks, 1048576 sums each, 0 wrong\n"), 2);
}

XT_TEST_DEADLINE(ranks_of_mpichs_mpirun_find_each_other, 120)
{
    need("mpirun.mpich");
    check_start("mpirun.mpich -n 4");
}

XT_TEST_DEADLINE(ranks_of_mpichs_mpirun_find_each_other_by_pmi_port, 120)
{
    need("mpirun.mpich");
    check_start("mpirun.mpich -pmi-port -n 4");
}

XT_TEST_DEADLINE(ranks_of_mpichs_mpirun_find_each_other_by_pmi_2, 120)
{
    need("mpirun.mpich");
    check_start("mpirun.mpich -env PMI_JOBID job -n 4");
}

XT_TEST_DEADLINE(all_reduce_is_measured_under_a_launcher_without_flags, 120)
{
    const char *output = NULL;

    need("mpirun.mpich");
    XT_CHECK_INT(run_script("mpirun.mpich -n 2 " XCCL " perf all_reduce -e 64 -n 2", &output), 0);
    XT_CHECK_HAS(output, "# xccl perf all_reduce: library ");
    XT_CHECK_INT(count_of(output, "# Out of bounds values : 0 OK\n"), 1);
    XT_CHECK(run_script("mpirun.mpich -n 2 " XCCL " perf all_reduce --ranks 3", &output) != 0);
    XT_CHECK_HAS(output, "--ranks 3 inside a job of 2 ranks");
}

XT_TEST_DEADLINE(a_rank_that_fails_under_mpirun_ends_the_job, 120)
{
    const char *output = NULL;

    need("mpirun.mpich");
    /* Rank 0 cannot make an id, and the others hear why. */
    XT_CHECK(run_script("mpirun.mpich -n 2 sh -c 'test $PMI_RANK = 1 || export "
                        "XCCL_SOCKET_IFNAME==none; exec " HELLO "'",
                        &output) != 0);
    XT_CHECK_HAS(output, "rank 0 could not make a unique id: ");
}

/* Four processes with these variables; %d is the rank. */
static void check_variables(const char *variables, const char *secret)
{
    char start[600];

    /* The run's name makes the port: one of this test's own. */
    snprintf(
        start, sizeof(start),
        "export RUN=%d-%s %s; ranks() { for r in 0 1 2 3; do env %s \"$@\" & pids=\"$pids $!\";"
        " done; for p in $pids; do wait $p || exit 1; done; }; ranks",
        (int)getpid(), secret ? "key" : "none", secret ? secret : "", variables);
    check_start(start);
}

#define TORCH                                                                                      \
    "RANK=$r WORLD_SIZE=4 LOCAL_RANK=$r LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 "                 \
    "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=$RUN"

XT_TEST_DEADLINE(ranks_with_torchruns_variables_find_each_other, 120)
{
    const char *output = NULL;

    need("env");
    check_variables(TORCH, "XCCL_JOB_KEY=0123456789abcdef");
    /* No key, no secret: that is said once. */
    XT_CHECK_INT(run_script("unset XCCL_JOB_KEY; export RUN=lone-$$; for r in 0 1; do env " TORCH
                            " WORLD_SIZE=2 " HELLO " & done; wait",
                            &output),
                 0);
    XT_CHECK_INT(count_of(output, " of 2: sum = 1 3 5 7\n"), 2);
    XT_CHECK_HAS(output, " warn: ");
    XT_CHECK_HAS(output, "XCCL_JOB_KEY");
    XT_CHECK_INT(count_of(output, "without a job key"), 1);
}

XT_TEST_DEADLINE(ranks_with_slurms_variables_find_each_other, 120)
{
    need("env");
    check_variables("SLURM_PROCID=$r SLURM_JOB_ID=$RUN SLURM_STEP_ID=0 SLURM_NTASKS=9 "
                    "SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 "
                    "SLURM_STEP_NODELIST=localhost,other[1-3]",
                    "XCCL_JOB_KEY=0123456789abcdef");
}

/* Both programs by all three ways of one Slurm, and a batch script, which is no rank. */
XT_TEST_DEADLINE(ranks_of_slurms_srun_find_each_other, 240)
{
    static const char script[] =
        "export XCCL_JOB_KEY=0123456789abcdef\n"
        "for way in %s pmi2 none; do\n"
        "  echo \"== $way\"\n"
        "  srun --mpi=$way -n 4 " HELLO " || exit 1\n"
        "  srun --mpi=$way -n 4 " PERF " || exit 1\n"
        "  srun --mpi=$way -n 4 " COLL " || exit 1\n"
        "done\n"
        "printf '#!/bin/sh\\n" HELLO "\\n' > $TMPDIR/batch\n"
        "sbatch -n 4 --wait -o $TMPDIR/out $TMPDIR/batch && cat $TMPDIR/out\n";
    char text[2048];
    const char *argv[] = {NODE, "sh", "-c", text, NULL};
    const char *output = NULL;
    int status = 99;

    need("env");
    if (!XT_TSAN)
        allow_pmix();
    snprintf(text, sizeof(text), script, XT_TSAN ? "" : "pmix");
    /* 99: a port was taken by somebody else meanwhile. */
    for (int i = 0; i < 3 && status == 99; i++)
        status = WEXITSTATUS(xt_run_program(argv, &output));
    if (status == 77)
        XT_SKIP("%s", output);
    printf("%s", output);
    XT_CHECK_INT(status, 0);
    XT_CHECK_INT(count_of(output, " of 4: sum = 6 10 14 18\n"), XT_TSAN ? 8 : 12);
    XT_CHECK_INT(count_of(output, "# xccl perf bootstrap: 4 ranks, PMIx"), !XT_TSAN);
    XT_CHECK_INT(count_of(output, "# xccl perf bootstrap: 4 ranks, PMI ("), 1);
    XT_CHECK_INT(count_of(output, "# xccl perf bootstrap: 4 ranks, Slurm without PMI"), 1);
    XT_CHECK_INT(count_of(output, "# Wrong bytes : 0 OK\n"), XT_TSAN ? 2 : 3);
    XT_CHECK_INT(count_of(output, "# Out of bounds values : 0 OK\n"), XT_TSAN ? 2 : 3);
    XT_CHECK_INT(count_of(output, "rank 0 of 1: sum = 0 1 2 3\n"), 1);
}

/* Puts a false libpmix.so.2 before the real one. */
static void make_pmix(const char *code)
{
    char source[200], library[200];
    const char *argv[] = {"cc", "-shared", "-fPIC", "-o", library, source, NULL};
    const char *folder = xt_tmpdir(), *output = NULL;
    FILE *file = NULL;

    snprintf(source, sizeof(source), "%s/pmix.c", folder);
    snprintf(library, sizeof(library), "%s/libpmix.so.2", folder);
    file = fopen(source, "we");
    XT_CHECK(file != NULL);
    fprintf(file, "#include <unistd.h>\n%s\n", code);
    fclose(file);
    if (xt_run_program(argv, &output) != 0)
        XT_SKIP("no compiler to make a false library with: %s", output);
    xt_setenv("LD_LIBRARY_PATH", folder);
    xt_setenv("PMIX_NAMESPACE", "job");
    xt_setenv("PMIX_RANK", "0");
    xt_setenv("XCCL_TIMEOUT_INIT_S", "1");
}

static void check_pmix_error(const char *says)
{
    const char *argv[] = {HELLO, NULL};
    const char *output = NULL;

    XT_CHECK_INT(WEXITSTATUS(xt_run_program(argv, &output)), 1);
    XT_CHECK_HAS(output, says);
}

#define ALL_BUT_INIT                                                                               \
    "int PMIx_Finalize(void) { return 0; } int PMIx_Put(void) { return 0; }"                       \
    "int PMIx_Commit(void) { return 0; } int PMIx_Fence(void) { return 0; }"                       \
    "int PMIx_Get(void) { return -46; }"                                                           \
    "const char *PMIx_Error_string(int s) { (void)s; return \"SOME-ERROR\"; }"

XT_TEST(a_pmix_library_without_a_function_is_named)
{
    make_pmix("int PMIx_Init(void) { return 0; }");
    check_pmix_error("libpmix.so.2 has no PMIx_Finalize; install libpmix 3.0 or newer");
}

XT_TEST(a_pmix_library_that_is_too_old_is_named)
{
    make_pmix(ALL_BUT_INIT "int PMIx_Init(void) { return 0; }"
                           "const char *PMIx_Get_version(void) { return \"PMIx 2.2.1\"; }");
    check_pmix_error("libpmix.so.2 is \"PMIx 2.2.1\", which cannot be used");
}

XT_TEST(an_error_of_pmix_is_told_with_its_text)
{
    make_pmix(ALL_BUT_INIT "int PMIx_Init(void) { return -25; }"
                           "const char *PMIx_Get_version(void) { return \"OpenPMIx 4.2\"; }");
    check_pmix_error("PMIx_Init failed: SOME-ERROR (-25)");
}

XT_TEST(a_pmix_server_without_a_size_is_an_error)
{
    make_pmix(ALL_BUT_INIT "int PMIx_Init(void) { return 0; }"
                           "const char *PMIx_Get_version(void) { return \"OpenPMIx 4.2\"; }");
    check_pmix_error("the launcher's PMIx server reports rank 0 of 0");
}

XT_TEST(a_pmix_server_that_does_not_answer_ends_in_a_timeout)
{
    make_pmix(ALL_BUT_INIT "int PMIx_Init(void) { for (;;) pause(); }"
                           "const char *PMIx_Get_version(void) { return \"OpenPMIx 4.2\"; }");
    check_pmix_error("the launcher's PMIx server did not answer in time");
}

XT_TEST_DEADLINE(bootstrap_is_measured_on_threads_and_written_as_json, 120)
{
    char script[512];
    const char *folder = xt_tmpdir(), *output = NULL;

    snprintf(script, sizeof(script),
             XCCL " perf bootstrap --threads --ranks 5 -n 10 -J %s/f && cat %s/f", folder, folder);
    XT_CHECK_INT(run_script(script, &output), 0);
    XT_CHECK_HAS(output, "# xccl perf bootstrap: 5 ranks, threads of one process\n");
    XT_CHECK_HAS(output, "# joined in ");
    XT_CHECK_HAS(output, "# Wrong bytes : 0 OK\n");
    XT_CHECK_HAS(output, "\"nranks\": 5,");
    XT_CHECK_HAS(output, "{\"operation\": \"all-gather\", \"bytes\": 4096, \"iters\": 10, ");
    XT_CHECK_HAS(output, "\"wrong_bytes\": 0,\n  \"error\": null\n}\n");
}

XT_TEST_DEADLINE(bootstrap_starts_ranks_of_its_own, 120)
{
    const char *output = NULL;

    XT_CHECK_INT(run_script(XCCL " perf bootstrap --ranks 3 -n 10", &output), 0);
    XT_CHECK_INT(count_of(output, "# xccl perf bootstrap: 3 ranks, "), 1);
    XT_CHECK_INT(count_of(output, "# Wrong bytes : 0 OK\n"), 1);
}

XT_TEST(wrong_arguments_of_bootstrap_are_usage_errors)
{
    const char *output = NULL;

    XT_CHECK_INT(run_script(XCCL " perf bootstrap --ranks 0", &output), 2);
    XT_CHECK_HAS(output, "must be a whole number from 1 to 4096");
    XT_CHECK_INT(run_script(XCCL " perf bootstrap --thread 3", &output), 2);
    XT_CHECK_INT(run_script(XCCL " perf bootstrap twice", &output), 2);
    XT_CHECK_HAS(output, "unexpected argument twice");
    XT_CHECK_INT(run_script(XCCL " perf -n 3 bootstrap", &output), 2);
    XT_CHECK_HAS(output, "bootstrap must come first");
}
