/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests that go wrong on purpose, each in one way, and a few that do not. Not registered with
 * ctest: test_sanity.c runs them one by one and compares what the harness says. Thread: each test
 * has its own process. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xt.h"

static uint64_t pretended_blocks;

static uint64_t pretended_live(void)
{
    return pretended_blocks;
}

static void *pause_run(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static void *noop_run(void *arg)
{
    return arg;
}

static pid_t fork_sleeper(void)
{
    pid_t pid = fork();

    XT_CHECK(pid >= 0);
    while (pid == 0)
        pause();
    return pid;
}

XT_TEST(good_passes)
{
    printf("this is not shown\n");
    XT_CHECK_INT(1 + 1, 2);
    XT_CHECK_TEXT("a", "a");
    XT_CHECK_HAS("abc", "b");
    XT_OK(0);
}

XT_TEST(good_has_no_settings)
{
    XT_CHECK(getenv("XCCL_SANITY") == NULL);
    XT_CHECK(getenv("XCCL_SANITY_TWO") == NULL);
}

XT_TEST(good_detached_thread_gets_time)
{
    pthread_t thread;

    XT_CHECK_INT(pthread_create(&thread, NULL, noop_run, NULL), 0);
    XT_CHECK_INT(pthread_detach(thread), 0);
}

XT_TEST(good_folder_is_removed)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/file", xt_tmpdir());
    file = fopen(path, "w");
    XT_CHECK(file != NULL);
    fclose(file);
    /* The name goes to the outside, which checks that it is gone. */
    if (getenv("SANITY_NOTE")) {
        file = fopen(getenv("SANITY_NOTE"), "w");
        XT_CHECK(file != NULL);
        fputs(path, file);
        fclose(file);
    }
}

XT_TEST(good_leak_is_allowed)
{
    xt_allow_leaks("this test is about leaks");
    XT_CHECK(open("/dev/null", O_RDONLY) >= 0);
}

XT_TEST(bad_counted_memory)
{
    xt_set_alloc_source(pretended_live);
    pretended_blocks = 3;
}

static _Atomic uintptr_t lost_block;

/* The sanitizer takes any word of a stack or a register for a pointer, old ones too: blocks are
 * lost deep below the frames that stand when it looks, and many, so that no left-over word is the
 * last pointer to all of them. */
__attribute__((noinline)) static void lose_blocks(int depth)
{
    char frame[256];
    void *block;

    snprintf(frame, sizeof(frame), "%d", depth);
    if (depth > 0)
        lose_blocks(depth - 1);
    block = malloc(100);
    /* Relaxed: one thread; written so that it is not left out. */
    atomic_store_explicit(&lost_block, (uintptr_t)block, memory_order_relaxed);
    XT_CHECK(block != NULL && atoi(frame) == depth);
    atomic_store_explicit(&lost_block, 0, memory_order_relaxed);
}

XT_TEST(bad_malloc)
{
    lose_blocks(20);
}

XT_TEST(bad_descriptor)
{
    XT_CHECK(open("/dev/null", O_RDONLY) >= 0);
}

XT_TEST(bad_thread)
{
    pthread_t thread;

    XT_CHECK_INT(pthread_create(&thread, NULL, pause_run, NULL), 0);
}

XT_TEST(bad_child_runs)
{
    fork_sleeper();
}

XT_TEST(bad_child_not_waited_for)
{
    siginfo_t info;
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    /* Until it has ended and is seen to have, but leaving it to be waited for. Its descriptors
     * closing would be too early a sign: they close before it counts as ended. */
    XT_CHECK_INT(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

XT_TEST(bad_orphan)
{
    pid_t pid = fork();

    XT_CHECK(pid >= 0);
    if (pid == 0) {
        fork_sleeper();
        _exit(0);
    }
    XT_CHECK_INT(waitpid(pid, NULL, 0), pid);
}

static void leave_file(const char *folder, const char *name)
{
    char path[512];
    FILE *file = NULL;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    /* Another program may remove a folder in /dev/shm as soon as it is there. */
    for (int i = 0; i < 1000 && !file; i++) {
        XT_CHECK(mkdir(folder, 0700) == 0 || errno == EEXIST);
        file = fopen(path, "w");
    }
    XT_CHECK(file != NULL);
    fclose(file);
}

/* The folder of the library's records, which is the test's own. */
static const char *own_folder(void)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/xccl", getenv("XDG_RUNTIME_DIR"));
    return path;
}

/* Where records lie without a session: programs outside of the test use it too. */
static const char *shared_folder(void)
{
    static char path[64];

    snprintf(path, sizeof(path), "/dev/shm/xccl-%u", (unsigned)geteuid());
    return path;
}

/* before, the number of this process, after. */
static const char *pid_name(const char *before, const char *after)
{
    static char name[64];

    snprintf(name, sizeof(name), "%s%d%s", before, (int)getpid(), after);
    return name;
}

XT_TEST(bad_file)
{
    leave_file(own_folder(), "left");
}

XT_TEST(bad_record)
{
    leave_file(own_folder(), pid_name("", "-1.record"));
}

XT_TEST(bad_record_that_was_being_made)
{
    leave_file(own_folder(), pid_name(".", "-1.record"));
}

/* As of a process that was killed. */
XT_TEST(good_record_of_another)
{
    leave_file(own_folder(), "1-1.record");
}

XT_TEST(bad_file_in_shm)
{
    leave_file("/dev/shm", pid_name("xccl-", "-left"));
}

XT_TEST(bad_record_in_shm)
{
    leave_file(shared_folder(), pid_name("", "-1.record"));
}

static void leave_and_die(int rank, int nranks, void *arg)
{
    (void)rank;
    (void)nranks;
    (void)arg;
    leave_file("/dev/shm", pid_name("xccl-", "-left"));
    kill(getpid(), SIGKILL);
}

XT_TEST(bad_file_of_a_killed_rank)
{
    int status;

    xt_mp_wait(xt_mp_start(1, leave_and_die, NULL), &status);
    XT_CHECK_INT(WTERMSIG(status), SIGKILL);
}

/* Files come to /dev/shm from outside of this test while it runs. */
XT_TEST(good_files_of_strangers)
{
    const char *folder = getenv("SANITY_STRANGERS");
    char made[600];

    if (!folder)
        return;
    leave_file(folder, "begun");
    snprintf(made, sizeof(made), "%s/made", folder);
    while (access(made, F_OK) != 0) /* bounded by the test's deadline */
        usleep(1000);
}

XT_TEST_DEADLINE(bad_hang, 1)
{
    fork_sleeper();
    for (;;)
        pause();
}

XT_TEST(bad_crash)
{
    printf("shown before the crash\n");
    raise(SIGSEGV);
}

XT_TEST(bad_exit)
{
    exit(0);
}

/* A program with more to say than a failure text takes; what failed is in the middle. */
static int run_talker(const char **output_out)
{
    static const char script[] =
        "i=0; while [ $i -lt 200 ]; do echo passed no_error_$i; i=$((i+1));"
        "[ $i -eq 9 ] && echo 'failed  ninth' && echo '      of old age';"
        "done; echo 199 passed, 1 failed; exit 3";
    const char *argv[] = {"/bin/sh", "-c", script, NULL};

    return xt_run_program(argv, output_out) >> 8;
}

XT_TEST(bad_program)
{
    XT_CHECK_INT(run_talker(NULL), 0);
}

XT_TEST(bad_output)
{
    const char *output = NULL;

    XT_CHECK_INT(run_talker(&output), 3);
    XT_CHECK_HAS(output, "0 failed");
}

XT_TEST(bad_check)
{
    printf("shown with the failure\n");
    XT_CHECK_INT(2 + 2, 5);
}

static const char *pretended_error(void)
{
    return "no such peer";
}

XT_TEST(bad_result)
{
    xt_set_error_source(pretended_error);
    XT_OK(4);
}

XT_TEST(skip_says_why)
{
    XT_SKIP("there is no such hardware");
}

static void rank_good(int rank, int nranks, void *arg)
{
    XT_CHECK(rank < nranks);
    XT_CHECK(arg == NULL);
}

static void rank_two_fails(int rank, int nranks, void *arg)
{
    (void)nranks;
    (void)arg;
    printf("I am rank %d\n", rank);
    if (rank == 2)
        XT_FAIL("rank two does not like it");
}

static void rank_one_leaks(int rank, int nranks, void *arg)
{
    (void)nranks;
    (void)arg;
    if (rank == 1)
        XT_CHECK(open("/dev/zero", O_RDONLY) >= 0);
}

static void rank_waits(int rank, int nranks, void *arg)
{
    (void)rank;
    (void)nranks;
    (void)arg;
    for (;;)
        pause();
}

XT_TEST(good_ranks)
{
    xt_mp_run(4, rank_good, NULL);
}

XT_TEST(good_thread_ranks)
{
    xt_threads_run(4, rank_good, NULL);
}

XT_TEST(bad_rank)
{
    xt_mp_run(4, rank_two_fails, NULL);
}

XT_TEST(bad_thread_rank)
{
    xt_threads_run(4, rank_two_fails, NULL);
}

XT_TEST(bad_rank_leaks)
{
    xt_mp_run(2, rank_one_leaks, NULL);
}

XT_TEST_DEADLINE(bad_ranks_hang, 2)
{
    xt_mp_run(2, rank_waits, NULL);
}

XT_TEST(good_killed_rank)
{
    int statuses[2];
    struct xt_mp *mp = xt_mp_start(2, rank_waits, NULL);

    XT_CHECK(xt_mp_pid(mp, 1) > 0);
    xt_mp_kill(mp, 0, SIGKILL);
    xt_mp_kill(mp, 1, SIGTERM);
    xt_mp_wait(mp, statuses);
    XT_CHECK_INT(WTERMSIG(statuses[0]), SIGKILL);
    XT_CHECK_INT(WTERMSIG(statuses[1]), SIGTERM);
}

#define SHARED(name)                                                                               \
    XT_TEST(name)                                                                                  \
    {                                                                                              \
        XT_CHECK_INT(1 + 1, 2);                                                                    \
    }

SHARED(shared_a)
SHARED(shared_b)
SHARED(shared_c)
SHARED(shared_d)
SHARED(shared_e)
SHARED(shared_f)
SHARED(shared_g)
SHARED(shared_h)
