/* SPDX-License-Identifier: BSD-3-Clause */
/* The test harness. A test file is a program: XT_TEST functions, no main. Each test runs in a
 * process of its own with a deadline, and fails when it leaks: memory of the counted allocators,
 * descriptors, threads, child processes, or files in the places where the library may leave some.
 * Exit codes: 0 pass, 77 skip, else fail. Arguments of a test program: `--list`, `--repeat N`,
 * `--jobs N`, names or parts of names. Environment: XT_SEED, XT_RESULTS (a file that gets a line
 * per test: program, name, ms, verdict, reason, ms of processor time), XT_DEADLINE_FACTOR (longer
 * deadlines for long runs), XT_SHARE=K/N (share K of N of the tests, drawn by the seed), XT_WHOLE
 * (names of programs with spaces between, which run whole all the same).
 * XT_BUILD_DIR and XT_SOURCE_DIR are defined as texts: where bin/ and lib/ were built, and the
 * repository. */
#ifndef XT_H
#define XT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

/* What this program was built with: 1 or 0. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define XT_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define XT_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(XT_ASAN)
#define XT_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__) && !defined(XT_TSAN)
#define XT_TSAN 1
#endif
#ifndef XT_ASAN
#define XT_ASAN 0
#endif
#ifndef XT_TSAN
#define XT_TSAN 0
#endif
#define XT_SANITIZED (XT_ASAN || XT_TSAN)

typedef void xt_fn(void);

struct xt_test {
    const char *name, *file;
    xt_fn *run;
    int deadline_s;
    struct xt_test *next;
};
void xt_register(struct xt_test *test);

#define XT_TEST_DEADLINE(test_name, seconds)                                                       \
    static void xt_run_##test_name(void);                                                          \
    __attribute__((constructor)) static void xt_add_##test_name(void)                              \
    {                                                                                              \
        static struct xt_test test = {#test_name, __FILE__, xt_run_##test_name, (seconds), NULL};  \
        xt_register(&test);                                                                        \
    }                                                                                              \
    static void xt_run_##test_name(void)

/* 30 s; the runner multiplies deadlines by 4 under sanitizers. */
#define XT_TEST(test_name) XT_TEST_DEADLINE(test_name, 30)

/* Ends the test (or the rank, inside xt_mp_run) as failed, with file, line and text. */
_Noreturn void xt_fail_at(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void xt_skip_at(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define XT_FAIL(...)   xt_fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define XT_SKIP(...)   xt_skip_at(__FILE__, __LINE__, __VA_ARGS__)
#define XT_CHECK(cond) ((cond) ? (void)0 : xt_fail_at(__FILE__, __LINE__, "not true: %s", #cond))
/* Once a program was run, the failure text ends with why the last one failed: got is often its exit
 * status. */
#define XT_CHECK_INT(got, want)                                                                    \
    xt_check_int_at(__FILE__, __LINE__, #got, (long long)(got), (long long)(want))
/* An xcclResult_t; prints the thread's error text when it is not what was wanted. */
#define XT_CHECK_RC(call, want)  xt_check_rc_at(__FILE__, __LINE__, #call, (int)(call), (int)(want))
#define XT_OK(call)              XT_CHECK_RC(call, 0)
#define XT_CHECK_TEXT(got, want) xt_check_text_at(__FILE__, __LINE__, #got, (got), (want))
/* part occurs in text. A long text is printed, and its failure text is xt_why()'s of it. */
#define XT_CHECK_HAS(text, part) xt_check_has_at(__FILE__, __LINE__, #text, (text), (part))

void xt_check_int_at(const char *file, int line, const char *what, long long got, long long want);
void xt_check_rc_at(const char *file, int line, const char *what, int got, int want);
void xt_check_text_at(const char *file, int line, const char *what, const char *got,
                      const char *want);
void xt_check_has_at(const char *file, int line, const char *what, const char *text,
                     const char *part);

/* Where error texts come from, so that XT_CHECK_RC can show them: xccl_error_text, or a function
 * around xcclGetLastError. NULL: none. */
void xt_set_error_source(const char *(*source)(void));
/* Where live allocations are counted: xccl_alloc_live. NULL: not checked. */
void xt_set_alloc_source(uint64_t (*source)(void));
/* Skips the leak checks of this test, with a reason that is printed. */
void xt_allow_leaks(const char *reason);

/* The seed of this run: XT_SEED or drawn once, printed with a failure. Then a generator. */
uint64_t xt_seed(void);
uint64_t xt_random(uint64_t *state);

/* N processes, each running fn(rank, nranks, arg); fails the test showing the first rank that
 * failed, its output and the exit of each. A rank passes when fn returns. */
typedef void xt_rank_fn(int rank, int nranks, void *arg);
void xt_mp_run(int nranks, xt_rank_fn *fn, void *arg);

/* xt_mp_run() in pieces, for tests that hurt a rank in mid-run. */
struct xt_mp;
struct xt_mp *xt_mp_start(int nranks, xt_rank_fn *fn, void *arg);
pid_t xt_mp_pid(struct xt_mp *mp, int rank);
void xt_mp_kill(struct xt_mp *mp, int rank, int signal_number);
/* Waits for all; statuses_out[rank] = wait status. Frees mp. Does not fail the test. */
void xt_mp_wait(struct xt_mp *mp, int *statuses_out);

/* N threads of this process. A failed check in one fails the test. */
void xt_threads_run(int nranks, xt_rank_fn *fn, void *arg);

/* A clock for limits: seconds, less those in which the whole machine stood still (a virtual machine
 * may be stopped for a while), as far as that was half a second or more at a time. */
double xt_seconds(void);
/* What was left out so far. The library's own deadlines know nothing of it. */
double xt_lost_seconds(void);
/* The bound of a time in seconds. quiet_s: what is promised of a machine that does nothing else,
 * which the environment says with XT_QUIET=1. busy_s: beside other programs, which may have the
 * cores for a while; still less than what the next slower way takes, which the test tells apart. */
double xt_bound(double quiet_s, double busy_s);
/* Sorts values and returns the middle one. */
double xt_median(double *values, int count);
/* A line for the figures of a run: added to the file that XT_FIGURES names, if it does. */
void xt_figure(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A fresh folder, removed with its contents after the test. */
const char *xt_tmpdir(void);
/* setenv for this test process. value NULL: unset. */
void xt_setenv(const char *name, const char *value);
/* Runs a program, captures stdout and stderr together (at most 1 MiB), returns its wait status.
 * Deadline as the test's. output_out is freed by the harness. argv ends with NULL. */
int xt_run_program(const char *const *argv, const char **output_out);
/* Why a program failed, for a failure text, which has no room for a long output: the lines that
 * begin with "fail" or hold "error: " or "FAILED", each with the indented ones below it; where
 * there are none, the output's last lines. Prints the whole output, which is shown when the test
 * fails. Freed by the harness. */
const char *xt_why(const char *output);
/* Entries of a folder, such as /proc/self/fd, but for "." and ".." and, there, the folder's own. */
int xt_entries(const char *path);
/* Threads of this process whose names begin so; "": all. */
int xt_threads_named(const char *begin);
/* Threads whose names begin so, once there are at most want, or after 2 s: pthread_join returns
 * before the kernel has taken the thread out of /proc. */
int xt_threads_left(const char *begin, int want);

#endif
