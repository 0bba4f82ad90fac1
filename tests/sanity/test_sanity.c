/* SPDX-License-Identifier: BSD-3-Clause */
/* The harness is tested: each case of sanity_cases.c must be judged and reported as it deserves.
 * Runs that program, which lies beside this one, once per case. Thread: one. */
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pulse.h"
#include "xt.h"

#define PASSED "1 passed, 0 failed\n"
#define FAILED "0 passed, 1 failed\n"

static const char *cases_path(void)
{
    static char path[1024];
    char own[900];
    ssize_t bytes = readlink("/proc/self/exe", own, sizeof(own) - 1);

    XT_CHECK(bytes > 0);
    own[bytes] = '\0';
    snprintf(path, sizeof(path), "%s/sanity_cases", dirname(own));
    return path;
}

/* Runs one case; returns what was printed. */
static const char *run_case(const char *name, int want_exit)
{
    static const char *output; /* static: gcc 12 takes what is returned for a pointer to it */
    const char *argv[] = {cases_path(), name, NULL};
    int status = xt_run_program(argv, &output);

    if (!WIFEXITED(status) || WEXITSTATUS(status) != want_exit)
        XT_FAIL("%s ended with wait status %#x, want exit status %d: %s", name, status, want_exit,
                output);
    return output;
}

static void expect_failure(const char *name, const char *part)
{
    const char *output = run_case(name, 1);

    XT_CHECK_HAS(output, "FAIL  ");
    XT_CHECK_HAS(output, part);
    XT_CHECK_HAS(output, FAILED);
}

static void expect_pass(const char *name)
{
    const char *output = run_case(name, 0);

    XT_CHECK_HAS(output, "pass  ");
    XT_CHECK_HAS(output, PASSED);
}

XT_TEST(good_test_passes_in_silence)
{
    const char *output = run_case("good_passes", 0);

    XT_CHECK_HAS(output, PASSED);
    XT_CHECK(strstr(output, "this is not shown") == NULL);
}

XT_TEST(settings_of_the_caller_do_not_reach_a_test)
{
    xt_setenv("XCCL_SANITY", "1");
    xt_setenv("XCCL_SANITY_TWO", "2");
    expect_pass("good_has_no_settings");
}

XT_TEST(detached_thread_gets_time_to_end)
{
    expect_pass("good_detached_thread_gets_time");
}

XT_TEST(temporary_folder_is_removed)
{
    char note[512], path[512] = "";
    FILE *file;

    snprintf(note, sizeof(note), "%s/note", xt_tmpdir());
    xt_setenv("SANITY_NOTE", note);
    expect_pass("good_folder_is_removed");
    file = fopen(note, "r");
    XT_CHECK(file != NULL);
    XT_CHECK(fgets(path, sizeof(path), file) != NULL);
    fclose(file);
    XT_CHECK(access(path, F_OK) != 0);
    XT_CHECK(access(dirname(path), F_OK) != 0);
}

XT_TEST(allowed_leak_passes_and_is_told)
{
    const char *output = run_case("good_leak_is_allowed", 0);

    XT_CHECK_HAS(output, "leaks allowed: this test is about leaks");
}

XT_TEST(leak_of_memory_is_caught)
{
    expect_failure("bad_counted_memory", "left behind: 3 blocks of memory");
}

#if defined(__SANITIZE_ADDRESS__)
XT_TEST(leak_of_malloc_is_caught_by_the_sanitizer)
{
    expect_failure("bad_malloc", "LeakSanitizer");
}
#endif

XT_TEST(leak_of_a_descriptor_is_caught_and_named)
{
    expect_failure("bad_descriptor", "(/dev/null)");
}

XT_TEST(leak_of_a_thread_is_caught)
{
    expect_failure("bad_thread", "left behind: thread ");
}

XT_TEST(leak_of_a_running_child_is_caught)
{
    expect_failure("bad_child_runs", "still runs");
}

XT_TEST(leak_of_an_ended_child_is_caught)
{
    expect_failure("bad_child_not_waited_for", "nobody waited for it");
}

XT_TEST(process_that_outlives_its_test_is_caught)
{
    expect_failure("bad_orphan", "outlived the test");
}

XT_TEST(leak_of_a_file_is_caught)
{
    expect_failure("bad_file", "/xccl/left");
}

XT_TEST(leak_of_an_own_record_is_caught_and_that_of_a_killed_process_allowed)
{
    expect_failure("bad_record", "-1.record");
    expect_failure("bad_record_that_was_being_made", "-1.record");
    expect_pass("good_record_of_another");
}

/* The case leaves a file in /dev/shm: it must be told, and is removed here. */
static void expect_left_in_shm(const char *name)
{
    const char *output = run_case(name, 1), *found;
    char path[256];

    XT_CHECK_HAS(output, FAILED);
    XT_CHECK_HAS(output, "left behind: file /dev/shm/xccl-");
    found = strstr(output, "file /dev/shm/xccl-");
    XT_CHECK_INT(sscanf(found, "file %255s", path), 1);
    XT_CHECK_INT(unlink(path), 0);
}

XT_TEST(leak_of_a_file_in_shm_is_caught)
{
    expect_left_in_shm("bad_file_in_shm");
    expect_left_in_shm("bad_record_in_shm");
    expect_left_in_shm("bad_file_of_a_killed_rank");
}

#define STRANGERS 5

/* As other programs may name their files, here the process pid. The first is a folder. */
static void name_strangers(int pid, char paths_out[STRANGERS][64])
{
    unsigned user = geteuid();

    snprintf(paths_out[0], 64, "/dev/shm/xccl-4711");
    snprintf(paths_out[1], 64, "/dev/shm/xccl-%d-foo", pid);
    snprintf(paths_out[2], 64, "/dev/shm/xccl-foo-%d", pid);
    snprintf(paths_out[3], 64, "/dev/shm/xccl-%u/%d-1.record", user, pid);
    snprintf(paths_out[4], 64, "/dev/shm/xccl-%u/left-%d", user, pid);
}

/* A process outside of the case: makes its files once the case has begun. */
_Noreturn static void strangers_main(const char *begun, const char *made)
{
    char paths[STRANGERS][64], folder[64];

    while (access(begun, F_OK) != 0) /* bounded by the test's deadline */
        usleep(1000);
    name_strangers((int)getpid(), paths);
    snprintf(folder, sizeof(folder), "/dev/shm/xccl-%u", (unsigned)geteuid());
    (void)mkdir(folder, 0700);
    if (mkdir(paths[0], 0700) == 0 && geteuid() == 0 && chown(paths[0], 4711, 4711) != 0)
        _exit(1);
    for (int i = 1; i < STRANGERS; i++)
        close(open(paths[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    for (int i = 1; i < STRANGERS; i++) {
        if (access(paths[i], F_OK) != 0)
            _exit(1);
    }
    close(open(made, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    _exit(0);
}

XT_TEST(files_of_other_programs_and_users_are_not_counted)
{
    const char *folder = xt_tmpdir();
    char paths[STRANGERS][64], begun[300], made[300];
    int status = 0;
    pid_t pid;

    snprintf(begun, sizeof(begun), "%s/begun", folder);
    snprintf(made, sizeof(made), "%s/made", folder);
    xt_setenv("SANITY_STRANGERS", folder);
    pid = fork();
    XT_CHECK(pid >= 0);
    if (pid == 0)
        strangers_main(begun, made);
    expect_pass("good_files_of_strangers");
    XT_CHECK_INT(waitpid(pid, &status, 0), pid);
    XT_CHECK_INT(status, 0);
    name_strangers((int)pid, paths);
    for (int i = 0; i < STRANGERS; i++)
        (void)remove(paths[i]);
}

XT_TEST(hang_is_ended_with_its_children)
{
    const char *output = run_case("bad_hang", 1);

    XT_CHECK_HAS(output, "hang: ");
    /* What its threads waited for. */
    XT_CHECK_HAS(output, "(sanity_cases): ");
}

XT_TEST(crash_is_told_with_its_signal_and_output)
{
    const char *output = run_case("bad_crash", 1);

    XT_CHECK_HAS(output, "before the test returned");
    XT_CHECK_HAS(output, "shown before the crash");
    XT_CHECK_HAS(output, FAILED);
}

XT_TEST(exit_inside_a_test_is_no_pass)
{
    expect_failure("bad_exit", "exit status 0 before the test returned");
}

XT_TEST(failed_check_shows_values_and_output)
{
    const char *output = run_case("bad_check", 1);

    XT_CHECK_HAS(output, "2 + 2 is 4, want 5");
    XT_CHECK_HAS(output, "| shown with the failure");
    XT_CHECK_HAS(output, "again: XT_SEED=");
}

XT_TEST(clock_stands_still_until_the_next_beat)
{
    struct pulse pulse = {0};
    uint64_t begin_ns, end_ns;

    pulse_beat(&pulse);
    begin_ns = pulse_now(&pulse);
    XT_CHECK(begin_ns >= pulse.end_ns - PULSE_LATE_NS && begin_ns < pulse.end_ns);
    /* As if the beat had been a minute ago. */
    pulse.end_ns -= 60000000000u;
    end_ns = pulse.end_ns;
    XT_CHECK(pulse_now(&pulse) == end_ns && pulse_now(&pulse) == end_ns);
    pulse_beat(&pulse);
    XT_CHECK(pulse.lost_ns >= 59000000000u && pulse.end_ns == end_ns + PULSE_LATE_NS);
    begin_ns = pulse_now(&pulse);
    XT_CHECK(begin_ns >= end_ns && begin_ns < end_ns + PULSE_LATE_NS + 1);
    XT_CHECK(pulse_now(NULL) >= begin_ns + pulse.lost_ns);
}

XT_TEST(failed_program_tells_the_line_that_failed)
{
    const char *output = run_case("bad_program", 1);

    XT_CHECK_HAS(output, "run_talker(NULL) is 3, want 0; the last program said: "
                         "failed  ninth\n      of old age\n");
    XT_CHECK_HAS(output, "| passed no_error_199");
    output = run_case("bad_output", 1);
    XT_CHECK_HAS(output, "output lacks \"0 failed\": failed  ninth\n      of old age\n");
    XT_CHECK_HAS(output, "| passed no_error_199");
}

XT_TEST(failed_call_shows_the_error_text)
{
    expect_failure("bad_result", "returned 4, want 0: no such peer");
}

XT_TEST(skip_is_told_with_its_reason)
{
    const char *output = run_case("skip_says_why", 77);

    XT_CHECK_HAS(output, "there is no such hardware");
    XT_CHECK_HAS(output, "0 passed, 0 failed, 1 skipped\n");
}

XT_TEST(ranks_and_threads_pass)
{
    expect_pass("good_ranks");
    expect_pass("good_thread_ranks");
    expect_pass("good_killed_rank");
}

XT_TEST(failing_rank_is_named_with_its_output)
{
    const char *output = run_case("bad_rank", 1);

    XT_CHECK_HAS(output, "rank:2: ");
    XT_CHECK_HAS(output, "rank two does not like it");
    XT_CHECK_HAS(output, "rank 2| I am rank 2");
}

XT_TEST(failing_thread_fails_the_test)
{
    expect_failure("bad_thread_rank", "rank two does not like it");
}

XT_TEST(leak_in_a_rank_is_caught)
{
    expect_failure("bad_rank_leaks", "(/dev/zero)");
}

XT_TEST(hanging_ranks_are_named)
{
    expect_failure("bad_ranks_hang", "hang: did not return");
}

XT_TEST(unknown_name_and_flag_are_refused)
{
    XT_CHECK_HAS(run_case("no_such_test", 2), "no test has such a name");
    XT_CHECK_HAS(run_case("--no-such-flag", 2), "usage: ");
    XT_CHECK_HAS(run_case("--list", 0), "bad_hang\n");
}

XT_TEST(tests_side_by_side_are_judged_alone)
{
    const char *argv[] = {cases_path(), "--jobs",         "4", "--repeat", "2",
                          "good_",      "bad_descriptor", NULL};
    const char *output;
    int status = xt_run_program(argv, &output);

    XT_CHECK_INT(WEXITSTATUS(status), 1);
    XT_CHECK_HAS(output, "\n20 passed, 2 failed\n");
}

/* How many of the shared cases ran with a share and a seed, and which. */
static int ran_of_share(const char *share, unsigned seed, char *names, size_t bytes)
{
    const char *argv[] = {cases_path(), "shared_", NULL}, *output, *line;
    char text[32];
    int count = 0;

    snprintf(text, sizeof(text), "%u", seed);
    xt_setenv("XT_SHARE", share);
    xt_setenv("XT_SEED", text);
    names[0] = '\0';
    XT_CHECK(WIFEXITED(xt_run_program(argv, &output)));
    XT_CHECK_HAS(output, " passed, 0 failed");
    for (line = output; (line = strstr(line, "pass  shared_")); line++, count++)
        snprintf(names + strlen(names), bytes - strlen(names), "%.12s ", line + 6);
    return count;
}

XT_TEST(shares_are_a_whole_and_change_with_the_seed)
{
    char names[2][512];
    int differ = 0;

    for (unsigned seed = 1; seed <= 8; seed++) {
        int first = ran_of_share("0/2", seed, names[0], sizeof(names[0]));

        XT_CHECK_INT(first + ran_of_share("1/2", seed, names[1], sizeof(names[1])), 8);
        XT_CHECK_INT(ran_of_share("0/2", seed, names[1], sizeof(names[1])), first);
        XT_CHECK_TEXT(names[1], names[0]);
        ran_of_share("0/2", seed + 1, names[1], sizeof(names[1]));
        differ += strcmp(names[0], names[1]) != 0;
    }
    XT_CHECK(differ >= 4);
    XT_CHECK_INT(ran_of_share("", 1, names[0], sizeof(names[0])), 8);
}

XT_TEST(test_asked_for_by_name_is_in_every_share)
{
    xt_setenv("XT_SHARE", "0/2");
    expect_pass("shared_a");
    xt_setenv("XT_SHARE", "1/2");
    expect_pass("shared_a");
    xt_setenv("XT_SHARE", "2/2");
    XT_CHECK_HAS(run_case("shared_a", 2), "XT_SHARE is \"2/2\"");
    xt_setenv("XT_SHARE", "half");
    XT_CHECK_HAS(run_case("shared_a", 2), "XT_SHARE is \"half\"");
}

XT_TEST(a_program_named_whole_has_no_share)
{
    char names[512];
    int first;

    xt_setenv("XT_WHOLE", "sanity_case test_sanity_cases sanity_cases_more");
    first = ran_of_share("0/2", 1, names, sizeof(names));
    XT_CHECK_INT(first + ran_of_share("1/2", 1, names, sizeof(names)), 8);
    xt_setenv("XT_WHOLE", "test_perf sanity_cases");
    XT_CHECK_INT(ran_of_share("0/2", 1, names, sizeof(names)), 8);
    xt_setenv("XT_WHOLE", "sanity_cases test_perf");
    XT_CHECK_INT(ran_of_share("1/2", 1, names, sizeof(names)), 8);
}

XT_TEST(results_are_written_for_programs)
{
    char path[512], line[512] = "", *end = NULL;
    FILE *file;

    snprintf(path, sizeof(path), "%s/results", xt_tmpdir());
    xt_setenv("XT_RESULTS", path);
    run_case("bad_check", 1);
    file = fopen(path, "r");
    XT_CHECK(file != NULL);
    XT_CHECK(fgets(line, sizeof(line), file) != NULL);
    fclose(file);
    XT_CHECK_HAS(line, "sanity_cases\tbad_check\t");
    XT_CHECK_HAS(line, "\tfail\tsanity_cases.c:");
    XT_CHECK(strtol(strrchr(line, '\t') + 1, &end, 10) >= 0 && *end == '\n');
}

XT_TEST(same_seed_gives_same_numbers)
{
    uint64_t one = xt_seed(), two = xt_seed();

    XT_CHECK(xt_random(&one) == xt_random(&two));
    XT_CHECK(one == two);
    XT_CHECK(xt_random(&one) != two);
}
