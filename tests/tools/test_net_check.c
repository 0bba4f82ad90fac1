/* SPDX-License-Identifier: BSD-3-Clause */
/* `xccl net check`: the socket plugin passes the suite in every form, a plugin that is right but
 * for one defect fails the case that is about this defect, and the output can be read by people and
 * by programs. The plugin with defects is fixtures/net_broken.c.
 *
 * Thread: one a test. */
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "xt.h"

#define XCCL XT_BUILD_DIR "/bin/xccl"
/* Defects that show by waiting are waited for so long; the suite is slower under sanitizers. */
#ifdef XCCL_SANITIZED
#define WAIT_S "16"
#else
#define WAIT_S "4"
#endif
#define V12    XT_BUILD_DIR "/lib/fixtures/libnccl-net-fx-v12.so"
#define BROKEN XT_BUILD_DIR "/lib/fixtures/libxccl-net-fx-broken.so"

/* Exit status of `xccl net check` with these arguments. */
static int check(const char *const args[], const char **output_out)
{
    const char *argv[20] = {XCCL, "net", "check"};
    int count = 3, status;

    xt_setenv("XCCL_PLUGIN_PATH", XT_BUILD_DIR "/lib/xccl");
    while (args[count - 3] && count < 19) {
        argv[count] = args[count - 3];
        count++;
    }
    argv[count] = NULL;
    status = xt_run_program(argv, output_out);
    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define CHECK(output_out, ...) check((const char *const[]){__VA_ARGS__, NULL}, output_out)

/* ---- plugins that are right ---- */

static void passes(const char *plugin)
{
    const char *output = NULL;
    int status = CHECK(&output, "--quick", plugin);

    if (status != 0)
        XT_FAIL("%s does not pass: %s", plugin, xt_why(output));
    XT_CHECK_HAS(output, " 0 failed, ");
    XT_CHECK_HAS(output, ", 0 left out in ");
    XT_CHECK_HAS(output, "passed  life_of_a_connection               single");
    XT_CHECK_HAS(output, "passed  life_of_a_connection               threads");
    XT_CHECK_HAS(output, "passed  life_of_a_connection               processes");
    if (!strstr(output, "passed  life_of_a_connection               namespaces"))
        XT_CHECK_HAS(output, "skipped life_of_a_connection               namespaces");
}

XT_TEST_DEADLINE(the_socket_plugin_passes_in_every_form, 120)
{
    passes("socket");
}

XT_TEST_DEADLINE(a_plugin_named_by_its_path_with_grouped_receives_passes, 120)
{
    const char *output = NULL;

    passes(BROKEN);
    XT_CHECK_INT(CHECK(&output, "--quick", "--case", "tags_*", "--form", "threads", BROKEN), 0);
    XT_CHECK_HAS(output, "1 passed, 0 failed, 0 skipped");
}

/* What NCCL allows, and plugins of others do, is no defect of a plugin of NCCL's contract. */
XT_TEST_DEADLINE(plugins_of_nccl_with_habits_of_others_pass, 120)
{
    static const struct {
        const char *plugin, *habits, *recvs;
    } cases[] = {
        {"v6", "posted-size", "1"},
        {"v6", "fills,no-size", "8"},
        {"v12", "posted-size", "8"},
        {"v12", "fills,no-size", "1"},
        {"v6", "asks-first,needs-dereg", "1"},
        {"v12", "asks-first,needs-dereg,no-flush", "8"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char path[512];

        snprintf(path, sizeof(path), XT_BUILD_DIR "/lib/fixtures/libnccl-net-fx-%s.so",
                 cases[i].plugin);
        xt_setenv("FX_NCCL_LIKE", cases[i].habits);
        xt_setenv("FX_NCCL_RECVS", cases[i].recvs);
        passes(path);
    }
}

/* Of NCCL's plugins that were met: what the contract does not forbid is told and is no failure. */
XT_TEST_DEADLINE(what_nccl_allows_is_noted, 120)
{
    static const struct {
        const char *habit, *test, *words;
    } notes[] = {
        {"inherits", "descriptors_close_on_exec", "so a program that the host starts inherits it"},
        {"environment", "host_program_is_untouched",
         "FX_NCCL_WAS_HERE is new or has another value"},
    };
    const char *output = NULL;

    for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++) {
        xt_setenv("FX_NCCL_LIKE", notes[i].habit);
        XT_CHECK_INT(CHECK(&output, "--quick", "--case", notes[i].test, V12), 0);
        XT_CHECK_HAS(output, notes[i].words);
        XT_CHECK_HAS(output, "0 passed, 0 failed, 0 skipped, 1 noted, 0 left out");
    }
    xt_setenv("FX_NCCL_LIKE", "deaf");
    XT_CHECK_INT(
        CHECK(&output, "--quick", "--case", "sender_is_killed*", "--form", "processes", V12), 0);
    XT_CHECK_HAS(output, "no error within 5 s");
    XT_CHECK_HAS(output, "0 passed, 0 failed, 0 skipped, 2 noted, 0 left out");
}

/* The last one of the socket plugin's devices, unix. */
XT_TEST_DEADLINE(a_device_for_its_own_host_is_not_asked_to_reach_another, 120)
{
    const char *output = NULL;

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    XT_CHECK_INT(CHECK(&output, "--quick", "--device", "1", "socket"), 0);
    XT_CHECK_HAS(output, " 0 failed, ");
    XT_CHECK_HAS(output, "passed  life_of_a_connection               processes");
    XT_CHECK_HAS(output, "skipped life_of_a_connection               namespaces");
    XT_CHECK_HAS(output, "the device reaches only its own host");
}

/* ---- defects ---- */

/* The defect is found by this case in this form, with these words; without it the case passes. */
static void finds(const char *defect, const char *test, const char *form, const char *words)
{
    const char *output = NULL;

    xt_setenv("FX_BROKEN", defect);
    if (CHECK(&output, "--quick", "--case", test, "--form", form, "--timeout", WAIT_S, BROKEN) != 1)
        XT_FAIL("%s is not found by %s: %s", defect, test, xt_why(output));
    XT_CHECK_HAS(output, "failed ");
    XT_CHECK_HAS(output, words);
    xt_setenv("FX_BROKEN", NULL);
    if (CHECK(&output, "--quick", "--case", test, "--form", form, BROKEN) != 0)
        XT_FAIL("%s fails without the defect: %s", test, xt_why(output));
}

XT_TEST(the_posted_size_for_the_true_size_is_found)
{
    finds("posted-size", "larger_receive_gives_true_size", "processes", "true size (rule 5)");
}

XT_TEST(a_byte_behind_the_receive_is_found)
{
    finds("overrun", "every_size_arrives", "threads", "memory behind its receive was written");
}

XT_TEST(a_message_cut_to_its_receive_is_found)
{
    finds("truncates", "larger_send_is_an_error", "processes", "test reported done");
}

XT_TEST(messages_that_change_places_are_found)
{
    finds("swap", "messages_keep_their_order", "processes", "equal tags");
}

XT_TEST(an_accept_that_blocks_is_found)
{
    finds("accept-blocks", "nothing_blocks_without_a_peer", "single", "accept took ");
}

/* The machine may make any entry wait now and then. */
XT_TEST(an_accept_that_is_slow_once_passes_in_a_second_run)
{
    const char *output = NULL;
    char path[512];

    snprintf(path, sizeof(path), "%s/once", xt_tmpdir());
    xt_setenv("FX_BROKEN", "accept-blocks-once");
    xt_setenv("FX_BROKEN_ONCE", path);
    XT_CHECK_INT(CHECK(&output, "--quick", "--case", "nothing_blocks_without_a_peer", "--form",
                       "single", BROKEN),
                 0);
    XT_CHECK_HAS(output, "1 passed, 0 failed");
    XT_CHECK_HAS(output, "failed in a first run: accept ");
    XT_CHECK_INT(access(path, F_OK), 0);
}

XT_TEST(a_descriptor_left_by_each_connect_is_found)
{
    finds("fd-leak", "comms_leave_nothing", "single", "is still open");
}

XT_TEST(a_write_after_close_is_found)
{
    /* "... was written after closeRecv had returned", or a sanitizer ends it "after closeRecv". */
    finds("late-write", "close_with_receives_in_flight", "single", "after closeRecv");
}

XT_TEST(a_receive_that_is_done_too_early_is_found)
{
    finds("early-done", "done_means_done", "single", "before its message was sent");
}

XT_TEST(a_send_that_is_done_and_never_leaves_is_found)
{
    finds("lazy-done", "done_sends_arrive", "processes", "failed");
    finds("lazy-done", "early_sends_arrive_after_close", "processes", "closed the connection");
}

XT_TEST(tags_that_are_not_looked_at_are_found)
{
    finds("no-tags", "tags_choose_the_part", "threads", "(rule 6)");
}

XT_TEST(the_32nd_request_that_never_ends_is_found)
{
    finds("forgets-32nd", "all_requests_in_flight", "threads", "requests in flight did not happen");
}

XT_TEST(an_error_that_is_forgotten_is_found)
{
    finds("error-forgotten", "sender_is_killed_while_idle", "processes", "rule 9");
}

XT_TEST(a_changed_environment_is_found)
{
    finds("environment", "host_program_is_untouched", "single",
          "the environment has changed (rule 13): FX_WAS_HERE is new");
}

XT_TEST(a_changed_signal_handler_is_found)
{
    finds("handler", "host_program_is_untouched", "single", "signal 12 (SIGUSR2)");
}

XT_TEST(a_changed_folder_is_found)
{
    finds("folder", "host_program_is_untouched", "single",
          "the working directory has changed to /");
}

XT_TEST(a_file_left_behind_is_found)
{
    char mark[16], words[64];
    glob_t left;

    /* Another run of this test leaves such files too, and looks for its own. */
    snprintf(mark, sizeof(mark), "%d", (int)getpid());
    xt_setenv("FX_BROKEN_MARK", mark);
    snprintf(words, sizeof(words), "the file /dev/shm/fx-broken-%s-", mark);
    finds("file", "host_program_is_untouched", "single", words);
    snprintf(words, sizeof(words), "/dev/shm/fx-broken-%s-*", mark);
    XT_CHECK_INT(glob(words, 0, NULL, &left), 0);
    for (size_t i = 0; i < left.gl_pathc; i++)
        (void)unlink(left.gl_pathv[i]);
    globfree(&left);
}

XT_TEST(a_descriptor_for_every_program_is_found)
{
    finds("inherit", "descriptors_close_on_exec", "single", "not close-on-exec");
}

XT_TEST(a_write_beyond_an_older_struct_is_found)
{
    finds("props-overflow", "properties_keep_to_the_size", "single", "properties with size 8");
}

XT_TEST(a_crash_is_told_with_its_signal_and_call)
{
    finds("crash", "every_size_arrives", "processes", "was killed by SIGABRT");
    finds("crash", "every_size_arrives", "threads", "it printed: fx-broken: the reason");
    finds("crash", "every_size_arrives", "threads", "fx-broken: the last line");
}

XT_TEST_DEADLINE(a_hang_is_told_with_its_call, 60)
{
    const char *output = NULL;

    xt_setenv("FX_BROKEN", "hang");
    XT_CHECK_INT(CHECK(&output, "--case", "life_of_a_connection", "--form", "single", "--timeout",
                       "1", BROKEN),
                 1);
    XT_CHECK_HAS(output, "did not return in 1.0 s, last call: closeSend");
}

/* ---- runs that must end in time ---- */

#ifdef XCCL_SANITIZED
#define HANG_WITHIN 32
#else
#define HANG_WITHIN 8
#endif
#define WORD(number)    WORD_OF(number)
#define WORD_OF(number) #number

XT_TEST_DEADLINE(a_plugin_that_hangs_in_each_call_is_checked_within_the_time, 120)
{
    const char *output = NULL, *left;
    uint64_t begin_ns = xccl_clock_ns();

    xt_setenv("FX_BROKEN", "test-hangs");
    XT_CHECK_INT(CHECK(&output, "--quick", "--within", WORD(HANG_WITHIN), BROKEN), 1);
    XT_CHECK((xccl_clock_ns() - begin_ns) / XCCL_NS_PER_S <= HANG_WITHIN);
    XT_CHECK_HAS(output, "failed  life_of_a_connection               processes");
    XT_CHECK_HAS(output, "test has not returned for more than ");
    left = strstr(output, "left out, since the run had to end within " WORD(HANG_WITHIN) ".0 s:");
    if (!left)
        XT_FAIL("nothing is left out: %s", xt_why(output));
    XT_CHECK_HAS(left, " life_of_a_connection/single/threads/namespaces ");
    XT_CHECK_HAS(left, " many_comms ");
    XT_CHECK_HAS(left, "repeat this command with --within 0");
    XT_CHECK_HAS(left, " passed, 1 failed, ");
}

/* Each of its calls returns, but a case takes longer than the run. */
XT_TEST_DEADLINE(a_slow_plugin_is_neither_passed_nor_failed, 60)
{
    const char *output = NULL;

    xt_setenv("FX_BROKEN", "test-is-slow");
    XT_CHECK_INT(CHECK(&output, "--quick", "--within", "2", "--case", "every_size_arrives",
                       "--form", "threads,processes", BROKEN),
                 3);
    XT_CHECK_HAS(output, "cut off every_size_arrives                 processes");
    XT_CHECK_HAS(output, "\n   every_size_arrives\n");
    XT_CHECK_HAS(output, "0 passed, 0 failed, 0 skipped, 0 noted, 2 left out");
}

/* An entry that may take its time, and never returns, has failed; with less time nobody knows. */
XT_TEST_DEADLINE(an_entry_that_never_returns_fails_only_with_enough_time, 90)
{
    const char *output = NULL;

    xt_setenv("FX_BROKEN", "reg-hangs");
    XT_CHECK_INT(CHECK(&output, "--within", "2", "--case", "life_of_a_connection", "--form",
                       "single", BROKEN),
                 3);
    XT_CHECK_HAS(output, "the last call: regMr");
    XT_CHECK_INT(
        CHECK(&output, "--quick", "--case", "life_of_a_connection", "--form", "single", BROKEN), 1);
    XT_CHECK_HAS(output, "last call: regMr");
    XT_CHECK_HAS(output, "0 passed, 1 failed, 0 skipped, 0 noted, 0 left out");
}

/* A wait that had less time than others is no failure of the plugin; one that had all of it is. */
XT_TEST_DEADLINE(a_wait_in_vain_fails_only_with_enough_time, 60)
{
    const char *output = NULL;

    xt_setenv("FX_BROKEN", "never-done");
    XT_CHECK_INT(CHECK(&output, "--within", "2", "--case", "life_of_a_connection", "--form",
                       "single", BROKEN),
                 3);
    XT_CHECK_HAS(output, "did not happen within");
    XT_CHECK_HAS(output, "0 passed, 0 failed, 0 skipped, 0 noted, 1 left out");
    XT_CHECK_INT(CHECK(&output, "--within", "9", "--timeout", "2", "--case", "life_of_a_connection",
                       "--form", "single", BROKEN),
                 1);
    XT_CHECK_HAS(output, "0 passed, 1 failed, 0 skipped, 0 noted, 0 left out");
}

XT_TEST_DEADLINE(processes_that_a_plugin_leaves_are_ended, 60)
{
    const char *output = NULL;
    char path[512], line[32];
    int count = 0;
    FILE *pids;

    snprintf(path, sizeof(path), "%s/pids", xt_tmpdir());
    xt_setenv("FX_BROKEN", "daemon");
    xt_setenv("FX_BROKEN_PIDS", path);
    CHECK(&output, "--quick", "--case", "life_of_a_connection", "--form", "processes", BROKEN);
    XT_CHECK_HAS(output, "1 passed, 0 failed, ");
    pids = fopen(path, "re");
    XT_CHECK(pids != NULL);
    while (fgets(line, sizeof(line), pids)) {
        XT_CHECK(kill(atoi(line), 0) != 0);
        count++;
    }
    fclose(pids);
    /* The first look tries the plugin out before it opens it; the two roles only open it. */
    XT_CHECK(count > 2 && count <= 4);
}

/* ---- the program ---- */

XT_TEST(each_case_is_listed_with_its_rule)
{
    const char *output = NULL;

    XT_CHECK_INT(CHECK(&output, "--list"), 0);
    XT_CHECK_HAS(output, "tags_choose_the_part               rule 6: ");
    XT_CHECK_HAS(output, "(threads processes namespaces remote)");
}

XT_TEST(help_shows_the_options)
{
    const char *output = NULL;

    XT_CHECK_INT(CHECK(&output, "--help"), 0);
    XT_CHECK_HAS(output, "xccl net check");
    XT_CHECK_HAS(output, "--within S");
    XT_CHECK_HAS(output, "3 if no case failed, but some were left out");
}

XT_TEST(wrong_arguments_are_refused)
{
    const char *output = NULL;

    XT_CHECK_INT(CHECK(&output, "--quick"), 2);
    XT_CHECK_HAS(output, "name one plugin");
    XT_CHECK_INT(CHECK(&output, "--form", "rows", "socket"), 2);
    XT_CHECK_HAS(output, "rows");
    XT_CHECK_INT(CHECK(&output, "--within", "soon", "socket"), 2);
    XT_CHECK_HAS(output, "--within soon: must be seconds");
    XT_CHECK_INT(CHECK(&output, "--case", "no_such_case", "socket"), 2);
    XT_CHECK_HAS(output, "--list");
    XT_CHECK_INT(CHECK(&output, "--skip", "/no/such/file", "socket"), 2);
    XT_CHECK_HAS(output, "/no/such/file");
}

XT_TEST(a_plugin_that_does_not_open_is_a_failure_with_its_reason)
{
    const char *output = NULL;

    XT_CHECK_INT(CHECK(&output, "no-such-plugin"), 1);
    XT_CHECK_HAS(output, "no-such-plugin");
}

XT_TEST(a_skipped_case_is_shown_with_its_reason)
{
    char path[512];
    const char *output = NULL;
    FILE *file;

    snprintf(path, sizeof(path), "%s/list.skip", xt_tmpdir());
    file = fopen(path, "we");
    XT_CHECK(file != NULL);
    fputs("# of a test\nlife_*: it never lives\n", file);
    XT_CHECK(fclose(file) == 0);
    XT_CHECK_INT(CHECK(&output, "--skip", path, "--form", "single", "--case", "life_*", "socket"),
                 0);
    XT_CHECK_HAS(output, "skip list: it never lives");
    XT_CHECK_HAS(output, "0 passed, 0 failed, 1 skipped");
}

XT_TEST(seeds_follow_when_the_suite_is_repeated)
{
    const char *output = NULL;

    XT_CHECK_INT(CHECK(&output, "--case", "any_address*", "--form", "threads", "--repeat", "5",
                       "--jobs", "2", "socket"),
                 0);
    XT_CHECK_HAS(output, "5 passed, 0 failed, 0 skipped");
}

XT_TEST_DEADLINE(the_results_are_json_that_programs_read, 60)
{
    static const char program[] =
        "import json, sys\n"
        "d = json.load(open(sys.argv[1]))\n"
        "assert d['plugin'] == 'socket' and d['contract'] and d['path'] and d['xccl'], d\n"
        "assert d['left_out'] == sum(c['verdict'] == 'left out' for c in d['cases']), d\n"
        "assert d['noted'] == 0, d\n"
        "assert d['passed'] == sum(c['verdict'] == 'passed' for c in d['cases']) > 10, d\n"
        "assert all(c['case'] and c['form'] and 'reason' in c and c['ms'] >= 0 for c in "
        "d['cases'])\n";
    char path[512];
    const char *argv[] = {"python3", "-c", program, path, NULL};
    const char *output = NULL;

    snprintf(path, sizeof(path), "%s/check.json", xt_tmpdir());
    XT_CHECK_INT(CHECK(&output, "--quick", "--form", "single", "-J", path, "socket"), 0);
    if (xt_run_program(argv, &output) != 0)
        XT_FAIL("python3 does not read the results: %s", xt_why(output));
}
