/* SPDX-License-Identifier: BSD-3-Clause */
/* `xccl run` and the choice of a subcommand, through the built program: output, exit statuses, ends
 * of ranks and of the launcher. And the first program of the README. No test sleeps: ranks wait for
 * files, the test for pipes and process descriptors.
 *
 * Thread: one a test. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xt.h"

#define XCCL  XT_BUILD_DIR "/bin/xccl"
#define HELLO XT_BUILD_DIR "/examples/hello"

/* Runs N ranks of a shell script; grace "" for the default. Returns the exit status. */
static int run_script(const char *nranks, const char *grace, const char *script,
                      const char **output_out)
{
    const char *plain[] = {XCCL, "run", "-n", nranks, "--", "sh", "-c", script, NULL};
    const char *with_grace[] = {XCCL, "run", "--grace", grace,  "-n", nranks,
                                "--", "sh",  "-c",      script, NULL};
    int status = xt_run_program(*grace ? with_grace : plain, output_out);

    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Runs xccl with up to four arguments. */
static int run_xccl(const char *a, const char *b, const char *c, const char *d,
                    const char **output_out)
{
    const char *argv[] = {XCCL, a, b, c, d, NULL};
    int status = xt_run_program(argv, output_out);

    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static size_t count_of(const char *text, const char *part)
{
    size_t bytes = strlen(part), count = 0;

    /* Not strstr: the address sanitizer's measures the whole text at each call. */
    for (; *text; text++)
        count += *text == *part && strncmp(text, part, bytes) == 0;
    return count;
}

XT_TEST(every_line_has_its_ranks_prefix)
{
    const char *output = NULL;

    XT_CHECK_INT(run_script("3", "", "echo out $XCCL_RANK of $XCCL_NRANKS; echo err >&2", &output),
                 0);
    XT_CHECK_HAS(output, "[0] out 0 of 3\n");
    XT_CHECK_HAS(output, "[1] out 1 of 3\n");
    XT_CHECK_HAS(output, "[2] out 2 of 3\n");
    XT_CHECK_HAS(output, "[1] err\n");
    XT_CHECK_INT(count_of(output, "\n"), 6);
}

XT_TEST(one_rank_and_no_prefix_write_as_they_are)
{
    const char *argv[] = {XCCL, "run", "-n", "2", "--no-prefix", "--", "echo", "plain", NULL};
    const char *output = NULL;

    XT_CHECK_INT(run_script("1", "", "echo alone; printf end", &output), 0);
    XT_CHECK_TEXT(output, "alone\nend");
    XT_CHECK_INT(xt_run_program(argv, &output), 0);
    XT_CHECK_TEXT(output, "plain\nplain\n");
}

XT_TEST(a_last_line_without_an_end_is_shown)
{
    const char *output = NULL;

    XT_CHECK_INT(run_script("2", "", "printf partial", &output), 0);
    XT_CHECK_HAS(output, "[0] partial\n");
    XT_CHECK_HAS(output, "[1] partial\n");
}

XT_TEST(no_line_is_lost_or_torn)
{
    enum { RANKS = 6, LINES = 3000 };
    const char *output = NULL;
    int next[RANKS] = {0};
    int lines = 0;

    XT_CHECK_INT(run_script("6", "", "seq 0 2999", &output), 0);
    for (const char *at = output; *at; at = strchr(at, '\n') + 1) {
        int rank = -1;
        int number = -1;

        XT_CHECK(sscanf(at, "[%d] %d\n", &rank, &number) == 2);
        XT_CHECK(rank >= 0 && rank < RANKS);
        XT_CHECK_INT(number, next[rank]);
        next[rank]++;
        lines++;
        XT_CHECK(strchr(at, '\n') != NULL);
    }
    XT_CHECK_INT(lines, RANKS * LINES);
}

XT_TEST(a_very_long_line_comes_in_pieces_and_whole)
{
    const char *output = NULL;

    XT_CHECK_INT(run_script("2", "", "head -c 150000 /dev/zero | tr '\\0' x; echo", &output), 0);
    XT_CHECK_INT(count_of(output, "x"), 300000);
    XT_CHECK_INT(count_of(output, "\n"), 6);
    XT_CHECK_INT(count_of(output, "[1] x"), 3);
}

XT_TEST(the_first_failing_ranks_status_is_the_jobs)
{
    const char *output = NULL;

    XT_CHECK_INT(run_script("3", "", "if [ $XCCL_RANK = 1 ]; then exit 7; fi", &output), 7);
    XT_CHECK_HAS(output, "xccl run: rank 1 (pid ");
    XT_CHECK_HAS(output, ") exited with status 7\n");
}

XT_TEST(a_killed_rank_is_the_first_to_fail_though_others_end_for_want_of_it)
{
    char script[512];
    const char *output = NULL;

    /* Rank 0 ends when the pipe does, which the kernel closes before rank 1 can be reaped. */
    snprintf(script, sizeof(script),
             "f=%s/fifo; if [ $XCCL_RANK = 1 ]; then mkfifo $f.new; mv $f.new $f; exec 3>$f;"
             "kill -9 $$; fi; while ! [ -p $f ]; do :; done; cat $f; exit 3",
             xt_tmpdir());
    XT_CHECK_INT(run_script("2", "", script, &output), 128 + SIGKILL);
    XT_CHECK_HAS(output, "xccl run: rank 1 (pid ");
    XT_CHECK_HAS(output, "killed by signal 9 (Killed)");
}

XT_TEST(a_rank_that_aborts_for_want_of_another_is_not_the_first_to_fail)
{
    const char *output = NULL;

    XT_CHECK_INT(run_script("2", "",
                            "if [ $XCCL_RANK = 0 ]; then exit 3; fi;"
                            "sleep 0.02; kill -ABRT $$",
                            &output),
                 3);
    XT_CHECK_HAS(output, "xccl run: rank 0 (pid ");
    XT_CHECK_HAS(output, "exited with status 3");
}

XT_TEST(a_killed_rank_is_named_and_the_others_may_speak)
{
    char script[512];
    const char *output = NULL;

    /* Rank 0 speaks only once rank 1 is gone. */
    snprintf(script, sizeof(script),
             "f=%s/pid; if [ $XCCL_RANK = 1 ]; then echo $$ > $f.new; mv $f.new $f; kill -9 $$; fi;"
             "while ! [ -e $f ]; do :; done; while kill -0 $(cat $f) 2>/dev/null; do :; done;"
             "echo survivor speaks",
             xt_tmpdir());
    XT_CHECK_INT(run_script("2", "", script, &output), 128 + SIGKILL);
    XT_CHECK_HAS(output, "xccl run: rank 1 (pid ");
    XT_CHECK_HAS(output, ") killed by signal 9 (Killed)\n");
    XT_CHECK_HAS(output, "[0] survivor speaks\n");
}

XT_TEST(ranks_that_go_on_are_told_to_end)
{
    const char *output = NULL;

    XT_CHECK_INT(run_script("2", "0.05",
                            "if [ $XCCL_RANK = 1 ]; then exit 3; fi;"
                            "trap 'echo told; exit 0' TERM; while :; do :; done",
                            &output),
                 3);
    XT_CHECK_HAS(output, "1 rank is still running 0.05 s later; ending it\n");
    XT_CHECK_HAS(output, "[0] told\n");
}

XT_TEST(ranks_that_do_not_listen_are_killed)
{
    const char *output = NULL;

    XT_CHECK_INT(run_script("2", "0",
                            "trap '' TERM; if [ $XCCL_RANK = 1 ]; then exit 4; fi;"
                            "while :; do :; done",
                            &output),
                 4);
}

/* Waits until a process, of which this one need not be the parent, has ended. */
static void wait_gone(pid_t pid)
{
    struct pollfd poll_fd = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};

    if (poll_fd.fd < 0) {
        XT_CHECK_INT(errno, ESRCH);
        return;
    }
    XT_CHECK_INT(poll(&poll_fd, 1, 20000), 1);
    close(poll_fd.fd);
}

XT_TEST(what_a_rank_leaves_running_ends_with_the_job)
{
    const char *output = NULL;
    int in_group = 0;
    int outside = 0;

    XT_CHECK_INT(
        run_script("1", "",
                   "sleep 1000 >/dev/null & echo $!; setsid sleep 1000 >/dev/null & echo $!",
                   &output),
        0);
    XT_CHECK_INT(sscanf(output, "%d %d", &in_group, &outside), 2);
    wait_gone(in_group);
    wait_gone(outside);
}

struct launcher {
    pid_t pid;
    FILE *output;
};

/* A launcher in the background, its output in a pipe. */
static struct launcher start_launcher(const char *script)
{
    const char *argv[] = {XCCL, "run", "-n", "2", "--", "sh", "-c", script, NULL};
    struct launcher launcher = {.pid = -1};
    posix_spawn_file_actions_t actions;
    int ends[2] = {-1, -1};

    XT_CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
    XT_CHECK_INT(posix_spawn_file_actions_init(&actions), 0);
    XT_CHECK_INT(posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO), 0);
    XT_CHECK_INT(
        posix_spawn(&launcher.pid, XCCL, &actions, NULL, (char *const *)(uintptr_t)argv, environ),
        0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    launcher.output = fdopen(ends[0], "re");
    XT_CHECK(launcher.output != NULL);
    return launcher;
}

XT_TEST(ranks_die_with_their_launcher)
{
    struct launcher launcher = start_launcher("echo $$; while :; do :; done");
    int rank = -1;
    int pid = 0;
    int status = 0;

    XT_CHECK_INT(fscanf(launcher.output, "[%d] %d", &rank, &pid), 2);
    XT_CHECK_INT(kill(launcher.pid, SIGKILL), 0);
    XT_CHECK_INT(waitpid(launcher.pid, &status, 0), launcher.pid);
    wait_gone(pid);
    fclose(launcher.output);
}

XT_TEST(an_interrupt_is_passed_on)
{
    struct launcher launcher = start_launcher(
        "trap 'echo got it; exit 0' INT; echo up; while :; do :; done");
    char line[64];
    int got = 0;
    int status = 0;

    for (int i = 0; i < 2; i++)
        XT_CHECK(fgets(line, sizeof(line), launcher.output) != NULL);
    XT_CHECK_INT(kill(launcher.pid, SIGINT), 0);
    while (fgets(line, sizeof(line), launcher.output))
        got += strstr(line, "got it") != NULL;
    XT_CHECK_INT(got, 2);
    XT_CHECK_INT(waitpid(launcher.pid, &status, 0), launcher.pid);
    XT_CHECK_INT(WEXITSTATUS(status), 128 + SIGINT);
    fclose(launcher.output);
}

XT_TEST(a_second_interrupt_kills)
{
    struct launcher launcher = start_launcher("trap 'echo deaf' INT; echo up; while :; do :; done");
    char line[64];
    int status = 0;

    for (int i = 0; i < 2; i++)
        XT_CHECK(fgets(line, sizeof(line), launcher.output) != NULL);
    XT_CHECK_INT(kill(launcher.pid, SIGINT), 0);
    XT_CHECK(fgets(line, sizeof(line), launcher.output) != NULL);
    XT_CHECK_INT(kill(launcher.pid, SIGINT), 0);
    XT_CHECK_INT(waitpid(launcher.pid, &status, 0), launcher.pid);
    XT_CHECK_INT(WEXITSTATUS(status), 128 + SIGINT);
    fclose(launcher.output);
}

XT_TEST(a_program_that_is_not_there_is_told_once)
{
    const char *argv[] = {XCCL, "run", "-n", "3", "--", "no-such-program", NULL};
    const char *output = NULL;
    int status = xt_run_program(argv, &output);

    XT_CHECK_INT(WEXITSTATUS(status), 127);
    XT_CHECK_TEXT(output, "xccl run: cannot start no-such-program: No such file or directory\n");
}

XT_TEST(wrong_arguments_are_usage_errors)
{
    const char *output = NULL;

    XT_CHECK_INT(run_xccl("run", "-n", "0", "true", &output), 2);
    XT_CHECK_HAS(output, "a whole number from 1 to 4096");
    XT_CHECK_INT(run_xccl("run", "-n", "4097", "true", &output), 2);
    XT_CHECK_INT(run_xccl("run", "-n", "2x", "true", &output), 2);
    XT_CHECK_INT(run_xccl("run", "-n", "2", NULL, &output), 2);
    XT_CHECK_INT(run_xccl("run", "true", NULL, NULL, &output), 2);
    XT_CHECK_HAS(output, "the number of ranks is missing");
    XT_CHECK_INT(run_xccl("run", "--grave", "2", NULL, &output), 2);
    XT_CHECK_HAS(output, "did you mean --grace?");
}

XT_TEST(an_unknown_command_gets_the_nearest_name)
{
    const char *output = NULL;

    XT_CHECK_INT(run_xccl("prf", NULL, NULL, NULL, &output), 2);
    XT_CHECK_TEXT(output, "xccl: there is no command prf; did you mean perf?\n");
    XT_CHECK_INT(run_xccl("elephant", NULL, NULL, NULL, &output), 2);
    XT_CHECK_HAS(output, "`xccl help` lists them");
    XT_CHECK_INT(run_xccl("topo", NULL, NULL, NULL, &output), 2);
    XT_CHECK_HAS(output, "the command topo is planned");
}

XT_TEST(help_is_the_same_both_ways)
{
    static const char *const names[] = {"run", "perf", "info", "env"};
    const char *a = NULL;
    const char *b = NULL;

    XT_CHECK_INT(run_xccl("--help", NULL, NULL, NULL, &a), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        XT_CHECK_HAS(a, names[i]);
        XT_CHECK_INT(run_xccl("help", names[i], NULL, NULL, &b), 0);
        XT_CHECK_HAS(b, "usage: xccl ");
    }
    XT_CHECK_INT(run_xccl("run", "--help", NULL, NULL, &a), 0);
    XT_CHECK_INT(run_xccl("help", "run", NULL, NULL, &b), 0);
    XT_CHECK_TEXT(a, b);
    XT_CHECK_INT(run_xccl("help", "run", "--help", NULL, &b), 0);
    XT_CHECK_TEXT(a, b);
    XT_CHECK_INT(run_xccl("--help", NULL, NULL, NULL, &a), 0);
    XT_CHECK_INT(run_xccl("help", "help", NULL, NULL, &b), 0);
    XT_CHECK_TEXT(a, b);
    XT_CHECK_INT(run_xccl("help", "--help", NULL, NULL, &b), 0);
    XT_CHECK_TEXT(a, b);
}

XT_TEST(help_for_a_part_that_does_not_exist_is_refused)
{
    const char *output = NULL;

    XT_CHECK_INT(run_xccl("help", "perf", "all_reduce", NULL, &output), 0);
    XT_CHECK_HAS(output, "usage: xccl perf COLLECTIVE");
    XT_CHECK_INT(run_xccl("help", "perf", "startup", NULL, &output), 2);
    XT_CHECK_HAS(output, "there is no help for perf startup; `xccl help perf`");
    XT_CHECK_INT(run_xccl("help", "run", "fast", NULL, &output), 2);
    XT_CHECK_HAS(output, "there is no help for run fast");
}

XT_TEST_DEADLINE(hello_adds_over_all_ranks, 60)
{
    const char *argv[] = {XCCL, "run", "-n", "4", "--", HELLO, NULL};
    const char *alone[] = {HELLO, NULL};
    const char *output = NULL;

    XT_CHECK_INT(xt_run_program(argv, &output), 0);
    XT_CHECK_HAS(output, "[0] rank 0 of 4: sum = 6 10 14 18\n");
    XT_CHECK_HAS(output, "[3] rank 3 of 4: sum = 6 10 14 18\n");
    XT_CHECK_INT(count_of(output, "\n"), 4);
    XT_CHECK_INT(xt_run_program(alone, &output), 0);
    XT_CHECK_TEXT(output, "rank 0 of 1: sum = 0 1 2 3\n");
}

XT_TEST_DEADLINE(a_rank_that_ends_before_it_reports_is_named_by_those_who_wait, 60)
{
    double began = xt_seconds();
    const char *output = NULL;

    XT_CHECK_INT(run_script("3", "", "[ $XCCL_RANK != 1 ] || exit 5; exec " HELLO, &output), 5);
    XT_CHECK_HAS(output, "rank 1 (host ");
    XT_CHECK_HAS(output, ") exited with status 5 before it reported to the root");
    XT_CHECK(xt_seconds() - began < xt_bound(3, 15));
}

/* A whole file as text; the caller frees it. Not inlined: gcc 12 then takes the text for a local.
 */
static __attribute__((noinline)) char *read_file(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = NULL;
    size_t room = 0;

    XT_CHECK(file != NULL);
    XT_CHECK(getdelim(&text, &room, '\0', file) > 0);
    fclose(file);
    return text;
}

/* Parts of it, with blank lines between, in its order. */
XT_TEST(the_readme_shows_parts_of_hello_as_they_are)
{
    char *readme = read_file(XT_SOURCE_DIR "/README.md");
    char *hello = read_file(XT_SOURCE_DIR "/examples/hello.c");
    char *part = strstr(readme, "```c\n"), *rest = hello, *end = NULL;

    XT_CHECK(part != NULL);
    part += strlen("```c\n");
    end = strstr(part, "```\n");
    XT_CHECK(end != NULL && end > part);
    *end = '\0';
    for (char *next = part; next; part = next) {
        next = strstr(part, "\n\n");
        if (next) {
            *next = '\0';
            next += 2;
        }
        XT_CHECK_HAS(rest, part);
        rest = strstr(rest, part) + strlen(part);
    }
    free(hello);
    free(readme);
}
