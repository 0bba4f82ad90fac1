/* SPDX-License-Identifier: BSD-3-Clause */
/* The runner: main of every test program. Forks one process group per test, enforces the deadline,
 * reports, and removes whatever the test left. It is the reaper of the tests' orphans, so that a
 * process which outlives its test is found and ended. Deadlines are counted from the fork of the
 * test; nothing here waits longer than the nearest of them. Thread: one. */
#include "xt_int.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_JOBS        64
#define SHOWN_BYTES     65536
#define ORPHAN_GRACE_MS 5000 /* a process that was killed may wait for a core to end */
#define DEADLINE_FACTOR (XT_SANITIZED ? 4 : 1)

extern char **environ;

struct slot {
    const struct xt_test *test; /* NULL: free */
    pid_t pid;
    int output_fd;
    bool hung;
    int64_t start_ms, deadline_ms;
    int64_t cpu_ms; /* of the ended test and those it has waited for */
    struct xt_report *report;
};

struct runner {
    const char *program;
    int jobs, repeat;
    char **filters;
    int nfilters;
    int share, shares; /* this run takes one share of so many */
    int passed, failed, skipped, started, left_out;
    char base[XT_PATH_BYTES]; /* private folder that holds the tests' temporary ones */
    struct slot slots[MAX_JOBS];
};

static struct xt_test *tests, **tests_end = &tests;

void xt_register(struct xt_test *test)
{
    *tests_end = test;
    tests_end = &test->next;
}

void xt_finish(struct xt_snapshot *before)
{
    struct xt_report *report = xt_self.report;
    char leaks[XT_REASON_BYTES - 64];

    xt_process_fini();
    xt_snapshot_compare(before, leaks, sizeof(leaks));
    report->ended_ms = xt_now_ms();
    if (leaks[0] && !report->leaks_allowed[0]) {
        snprintf(report->reason, sizeof(report->reason), "left behind: %s", leaks + 2);
        report->stage = XT_FAILED;
        fflush(NULL);
        _exit(1);
    }
    report->stage = XT_RETURNED;
    fflush(NULL);
    if (report->leaks_allowed[0])
        _exit(0);
    /* The long way out, so that a leak or race checker has its say. */
    exit(0);
}

/* Who runs a test trusts the one who has built it: root in a container, say, with a folder of the
 * host's user. */
static void trust_build(void)
{
    char number[16];
    struct stat about;

    if (stat(XT_BUILD_DIR, &about) != 0 || about.st_uid == 0 || about.st_uid == geteuid())
        return;
    snprintf(number, sizeof(number), "%u", (unsigned)about.st_uid);
    setenv("XCCL_PLUGIN_OWNERS", number, 1);
}

/* Tests start without the settings of whoever runs them, and a test program that a test runs runs
 * whole and does not write its results among ours. Records of processes go into the test's own
 * folder. */
static void clean_environment(void)
{
    char name[XT_PATH_BYTES];

    unsetenv("XT_RESULTS");
    unsetenv("XT_SHARE");
    unsetenv("XT_WHOLE");
    if (mkdir(xt_self.report->tmp, 0700) == 0)
        setenv("XDG_RUNTIME_DIR", xt_self.report->tmp, 1);
    for (char **entry = environ; *entry;) {
        size_t bytes = strcspn(*entry, "=");

        if (strncmp(*entry, "XCCL_", 5) != 0 || bytes >= sizeof(name)) {
            entry++;
            continue;
        }
        memcpy(name, *entry, bytes);
        name[bytes] = '\0';
        unsetenv(name);
        entry = environ;
    }
    trust_build();
}

_Noreturn static void test_main(struct runner *run, struct slot *slot)
{
    struct rlimit no_core = {0, 0};
    struct xt_snapshot *before;
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setrlimit(RLIMIT_CORE, &no_core);
    xt_self.report = slot->report;
    clean_environment();
    xt_self.deadline_ms = slot->deadline_ms;
    xt_capture_redirect(slot->output_fd);
    for (int i = 0; i < run->jobs; i++) {
        if (run->slots[i].test)
            close(run->slots[i].output_fd);
    }
    before = xt_snapshot_take();
    slot->test->run();
    xt_finish(before);
}

/* A long run of a test that counts by an environment variable asks for more time. */
static int deadline_s(const struct xt_test *test)
{
    const char *text = getenv("XT_DEADLINE_FACTOR");
    int factor = text ? atoi(text) : 1;

    return test->deadline_s * DEADLINE_FACTOR * (factor > 1 ? factor : 1);
}

static void start(struct runner *run, struct slot *slot, const struct xt_test *test)
{
    memset(slot->report, 0, sizeof(*slot->report));
    if (snprintf(slot->report->tmp, XT_PATH_BYTES, "%s/%d", run->base, run->started) >=
        XT_PATH_BYTES)
        abort();
    run->started++;
    slot->test = test;
    slot->hung = false;
    slot->output_fd = xt_capture_open();
    slot->start_ms = xt_now_ms();
    slot->deadline_ms = slot->start_ms + (int64_t)deadline_s(test) * 1000;
    fflush(NULL);
    slot->pid = fork();
    if (slot->pid < 0) {
        perror("xt: cannot fork a test");
        exit(1);
    }
    if (slot->pid == 0)
        test_main(run, slot);
    /* Both sides do it: whoever is first, the group exists before anybody signals it. */
    setpgid(slot->pid, slot->pid);
}

/* Orphans of an ended test are children of the runner now. Returns the pid of one that runs, 0 if
 * none. */
static pid_t find_orphan(const struct runner *run)
{
    char path[64];
    pid_t pid = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    file = fopen(path, "re");
    if (!file)
        return 0;
    while (fscanf(file, "%d", &pid) == 1) {
        bool is_test = false;

        for (int i = 0; i < run->jobs; i++)
            is_test = is_test || (run->slots[i].test && run->slots[i].pid == pid);
        /* An orphan of a test that still runs is that test's affair. */
        for (int i = 0; i < run->jobs && !is_test; i++)
            is_test = run->slots[i].test && getpgid(pid) == run->slots[i].pid;
        if (!is_test && waitpid(pid, NULL, WNOHANG) == 0)
            break;
        pid = 0;
    }
    fclose(file);
    return pid;
}

/* Ends what the test left running. Writes a reason when something had to be ended. */
static void end_orphans(struct runner *run, char *reason, size_t bytes)
{
    const struct timespec nap = {.tv_nsec = 2000000};
    int64_t end_ms = xt_now_ms() + ORPHAN_GRACE_MS;
    pid_t pid;

    while ((pid = find_orphan(run)) > 0) {
        if (xt_now_ms() >= end_ms) {
            snprintf(reason, bytes, "left behind: process %d outlived the test", (int)pid);
            kill(pid, SIGKILL);
        }
        nanosleep(&nap, NULL);
    }
}

/* Why the test did not pass; "" when it passed. */
static void judge(struct slot *slot, int status, char *reason, size_t bytes)
{
    const struct xt_report *report = slot->report;
    char text[128];

    reason[0] = '\0';
    xt_status_text(status, text, sizeof(text));
    if (slot->hung)
        snprintf(reason, bytes, "hang: %d s", deadline_s(slot->test));
    else if (report->reason[0])
        snprintf(reason, bytes, "%s", report->reason);
    else if (report->stage != XT_RETURNED)
        snprintf(reason, bytes, "%s before the test returned", text);
    else if (status != 0)
        snprintf(reason, bytes, "%s after the test returned (a sanitizer's finding)", text);
}

/* Program, test, milliseconds, verdict, reason, milliseconds of processor time. */
static void append_result(const struct runner *run, const struct slot *slot, int64_t ms,
                          const char *verdict, const char *reason)
{
    const char *path = getenv("XT_RESULTS");
    FILE *file = path && path[0] ? fopen(path, "ae") : NULL;
    char line[XT_REASON_BYTES + 256];

    if (!file)
        return;
    snprintf(line, sizeof(line), "%s\t%s\t%lld\t%s\t", run->program, slot->test->name,
             (long long)ms, verdict);
    /* One write, so that programs side by side do not mix their lines. */
    setvbuf(file, NULL, _IOFBF, sizeof(line) + XT_REASON_BYTES);
    fputs(line, file);
    for (; *reason; reason++)
        fputc(*reason == '\n' || *reason == '\t' ? ' ' : *reason, file);
    fprintf(file, "\t%lld\n", (long long)slot->cpu_ms);
    fclose(file);
}

static void report(struct runner *run, struct slot *slot, int64_t ms, const char *reason)
{
    const char *verdict = "pass";
    char *output;

    if (slot->report->stage == XT_SKIPPED && !slot->hung) {
        verdict = "skip";
        run->skipped++;
        printf("skip  %-60s %6lld ms  %s\n", slot->test->name, (long long)ms, reason);
    } else if (reason[0]) {
        verdict = "fail";
        run->failed++;
        printf("FAIL  %-60s %6lld ms  %s\n", slot->test->name, (long long)ms, reason);
        output = xt_capture_read(slot->output_fd, SHOWN_BYTES);
        xt_print_lines("    | ", output);
        free(output);
        printf("    again: XT_SEED=%#llx %s %s\n", (unsigned long long)xt_seed(), run->program,
               slot->test->name);
    } else {
        run->passed++;
        printf("pass  %-60s %6lld ms%s%s\n", slot->test->name, (long long)ms,
               slot->report->leaks_allowed[0] ? "  leaks allowed: " : "",
               slot->report->leaks_allowed);
    }
    append_result(run, slot, ms, verdict, reason);
    fflush(stdout);
}

static void finish(struct runner *run, struct slot *slot, int status)
{
    int64_t ms = xt_now_ms() - slot->start_ms;
    char reason[XT_REASON_BYTES + 64], orphans[XT_REASON_BYTES] = "";

    judge(slot, status, reason, sizeof(reason));
    /* After a failure nobody asks what is left; end it at once. */
    if (reason[0])
        kill(-slot->pid, SIGKILL);
    slot->pid = 0;
    end_orphans(run, orphans, sizeof(orphans));
    if (!reason[0] && !slot->report->leaks_allowed[0])
        snprintf(reason, sizeof(reason), "%s", orphans);
    report(run, slot, ms, reason);
    xt_remove_tree(slot->report->tmp);
    close(slot->output_fd);
    slot->test = NULL;
}

static int64_t milliseconds(struct timeval time)
{
    return (int64_t)time.tv_sec * 1000 + time.tv_usec / 1000;
}

/* Looks at every running test once. Returns how many run. */
static int poll_slots(struct runner *run)
{
    int running = 0;

    for (int i = 0; i < run->jobs; i++) {
        struct slot *slot = &run->slots[i];
        struct rusage usage;
        int status = 0;

        if (!slot->test)
            continue;
        if (!slot->hung && xt_now_ms() >= slot->deadline_ms) {
            slot->hung = true;
            xt_show_group(slot->output_fd, slot->pid);
            kill(-slot->pid, SIGKILL);
            kill(slot->pid, SIGKILL);
        }
        if (wait4(slot->pid, &status, slot->hung ? 0 : WNOHANG, &usage) == slot->pid) {
            slot->cpu_ms = milliseconds(usage.ru_utime) + milliseconds(usage.ru_stime);
            finish(run, slot, status);
        } else {
            running++;
        }
    }
    return running;
}

/* Sleeps until a child ends or a beat is due. */
static void wait_for_child(void)
{
    const struct timespec patience = {.tv_nsec = PULSE_BEAT_MS * 1000000};
    sigset_t child;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigtimedwait(&child, NULL, &patience);
    pulse_beat(xt_pulse);
}

static struct slot *free_slot(struct runner *run)
{
    for (;;) {
        if (poll_slots(run) < run->jobs) {
            for (int i = 0; i < run->jobs; i++) {
                if (!run->slots[i].test)
                    return &run->slots[i];
            }
        }
        wait_for_child();
    }
}

static bool is_name(const char *text)
{
    for (const struct xt_test *test = tests; test; test = test->next) {
        if (strcmp(test->name, text) == 0)
            return true;
    }
    return false;
}

/* A filter that is the whole name of a test selects that test alone. */
static bool is_selected(const struct runner *run, const struct xt_test *test)
{
    for (int i = 0; i < run->nfilters; i++) {
        const char *filter = run->filters[i];

        if (is_name(filter) ? strcmp(test->name, filter) == 0 : strstr(test->name, filter) != NULL)
            return true;
    }
    return run->nfilters == 0;
}

/* Whether a test is another run's. Which share has a test is drawn by the seed, so that with
 * time each has all of them. A test that was asked for by its whole name is never left out. */
static bool is_elsewhere(const struct runner *run, const struct xt_test *test)
{
    uint64_t state = xt_seed();

    if (run->shares < 2)
        return false;
    for (int i = 0; i < run->nfilters; i++) {
        if (strcmp(test->name, run->filters[i]) == 0)
            return false;
    }
    for (const char *c = run->program; *c; c++)
        state = (state ^ (unsigned char)*c) * 0x100000001b3u;
    for (const char *c = test->name; *c; c++)
        state = (state ^ (unsigned char)*c) * 0x100000001b3u;
    return xt_random(&state) % (uint64_t)run->shares != (uint64_t)run->share;
}

static int run_all(struct runner *run)
{
    int selected = 0;

    for (int round = 0; round < run->repeat; round++) {
        for (const struct xt_test *test = tests; test; test = test->next) {
            if (!is_selected(run, test))
                continue;
            selected++;
            if (is_elsewhere(run, test)) {
                run->left_out++;
                continue;
            }
            start(run, free_slot(run), test);
        }
    }
    while (poll_slots(run) > 0)
        wait_for_child();
    if (selected == 0) {
        fprintf(stderr, "%s: no test has such a name; --list shows them all\n", run->program);
        return 2;
    }
    printf("%d passed, %d failed", run->passed, run->failed);
    if (run->skipped)
        printf(", %d skipped", run->skipped);
    if (run->left_out)
        printf(", %d left to other shares", run->left_out);
    printf("\n");
    if (run->failed)
        return 1;
    return run->passed ? 0 : XT_EXIT_SKIP;
}

/* Returns -1 to go on, else the exit status. */
static int parse(struct runner *run, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int *number = NULL;

        if (strcmp(argv[i], "--list") == 0) {
            for (const struct xt_test *test = tests; test; test = test->next)
                printf("%s\n", test->name);
            return 0;
        }
        if (strcmp(argv[i], "--repeat") == 0)
            number = &run->repeat;
        if (strcmp(argv[i], "--jobs") == 0)
            number = &run->jobs;
        if (!number && argv[i][0] != '-') {
            run->filters[run->nfilters++] = argv[i];
            continue;
        }
        if (number && i + 1 < argc)
            *number = atoi(argv[++i]);
        if (!number || *number < 1 || run->jobs > MAX_JOBS) {
            fprintf(stderr, "usage: %s [--list] [--repeat N] [--jobs 1..%d] [NAME...]\n",
                    run->program, MAX_JOBS);
            return 2;
        }
    }
    return -1;
}

/* Whether XT_WHOLE, names of programs with spaces between, has this one. */
static bool is_whole(const char *program)
{
    const char *names = getenv("XT_WHOLE");
    size_t bytes = strlen(program);

    while (names && (names = strstr(names, program))) {
        bool begins = names == getenv("XT_WHOLE") || names[-1] == ' ';

        names += bytes;
        if (begins && (*names == ' ' || *names == '\0'))
            return true;
    }
    return false;
}

/* XT_SHARE=K/N: K from 0 to N-1. Returns false when it is something else. */
static bool parse_share(struct runner *run)
{
    const char *text = getenv("XT_SHARE");
    int end = 0;

    if (!text || !text[0] || is_whole(run->program))
        return true;
    if (sscanf(text, "%d/%d%n", &run->share, &run->shares, &end) == 2 && text[end] == '\0' &&
        run->share >= 0 && run->share < run->shares)
        return true;
    fprintf(stderr, "%s: XT_SHARE is \"%s\"; it has the form K/N, K from 0 to N-1\n", run->program,
            text);
    return false;
}

int main(int argc, char **argv)
{
    struct runner run = {.jobs = 1, .repeat = 1};
    const char *slash = strrchr(argv[0], '/'), *tmp = getenv("TMPDIR");
    struct xt_report *reports;
    sigset_t child;
    int rc;

    run.program = slash ? slash + 1 : argv[0];
    run.filters = calloc((size_t)argc + 1, sizeof(*run.filters));
    if (!run.filters)
        return 1;
    rc = parse_share(&run) ? parse(&run, argc, argv) : 2;
    if (rc >= 0)
        goto out;
    rc = 1;
    snprintf(run.base, sizeof(run.base), "%s/xt-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
    if (!mkdtemp(run.base)) {
        fprintf(stderr, "%s: cannot make %s: %s; set TMPDIR to a writable folder\n", run.program,
                run.base, strerror(errno));
        goto out;
    }
    reports = xt_shared_alloc(sizeof(*reports) * (size_t)run.jobs);
    xt_pulse = xt_shared_alloc(sizeof(*xt_pulse));
    for (int i = 0; i < run.jobs; i++)
        run.slots[i].report = &reports[i];
    xt_seed();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    rc = run_all(&run);
    xt_shared_free(reports, sizeof(*reports) * (size_t)run.jobs);
    xt_shared_free(xt_pulse, sizeof(*xt_pulse));
    xt_remove_tree(run.base);
out:
    free(run.filters);
    return rc;
}
