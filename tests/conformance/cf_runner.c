/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the cases: first one look at the plugin, then a process for each case and form, at most
 * `jobs` at the same time, each with a deadline; lines come in the order of the table. The process
 * of a case leads a group, which is ended with it, so nothing stays behind.
 *
 * Thread: one; every process is made by a fork of it. */
#include "cf_run.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pulse.h"

#define JOBS_MAX  64
#define TASKS_MAX 4096

struct runner {
    const struct xccl_conformance_options *options;
    struct cf_hosts hosts;
    struct cf_skips skips;
    struct cf_report report;
    struct cf_shared plugin; /* what the first look found */
    struct cf_task *tasks;
    int task_count;
};

unsigned xccl_conformance_form(const char *name)
{
    for (unsigned form = 1; form <= XCCL_CONFORMANCE_FORMS; form <<= 1) {
        if (strcmp(name, cf_form_name(form)) == 0)
            return form;
    }
    return 0;
}

void xccl_conformance_list(void)
{
    const struct cf_case *test;

    for (int i = 0; (test = cf_case_at(i)); i++) {
        printf("%-34s ", test->name);
        if (test->rule)
            printf("rule %d: ", test->rule);
        printf("%s (", test->text);
        for (unsigned form = 1, first = 1; form <= XCCL_CONFORMANCE_FORMS; form <<= 1) {
            if (!(test->forms & form))
                continue;
            printf("%s%s", first ? "" : " ", cf_form_name(form));
            first = 0;
        }
        puts(")");
    }
}

/* ---- one task ---- */

/* seed=N is appended to XCCL_NET_FAULT, if it names none, so that --repeat also repeats faults. */
static void pass_seed(const char *item, uint64_t seed)
{
    const char *fault = getenv("XCCL_NET_FAULT");
    char text[1024];

    if (strncmp(item, "fault:", 6) != 0 && !strstr(item, ":fault:"))
        return;
    if (fault && strstr(fault, "seed="))
        return;
    snprintf(text, sizeof(text), "%s%sseed=%llu", fault ? fault : "", fault && *fault ? "," : "",
             (unsigned long long)seed);
    setenv("XCCL_NET_FAULT", text, 1);
}

static int task_memory(struct cf_task *task)
{
    if (task->shared)
        return 1;
    task->shared = mmap(NULL, sizeof(*task->shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (task->shared == MAP_FAILED)
        task->shared = NULL;
    return task->shared != NULL;
}

/* Becomes the process of a case: a group of its own, output into the task's file. */
static void become_case(const struct cf_task *task)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (fd >= 0) {
        dup2(fd, 0);
        close(fd);
    }
    if (task->output_fd >= 0) {
        dup2(task->output_fd, 1);
        dup2(task->output_fd, 2);
        close(task->output_fd);
    }
}

/* 0: the machine has no room for another process. */
static int task_start(struct runner *runner, struct cf_task *task, int look)
{
    uint64_t ms = runner->options->timeout_ms;

    if (!task_memory(task))
        return 0;
    *task->shared = runner->plugin;
    task->output_fd = memfd_create("conformance", MFD_CLOEXEC);
    task->begin_ns = cf_now();
    task->end_ns = task->begin_ns + (ms ? ms : CF_CASE_MS) * CF_MS;
    fflush(NULL);
    task->pid = fork();
    if (task->pid < 0)
        return 0;
    if (task->pid == 0) {
        become_case(task);
        pass_seed(runner->options->item, task->seed);
        if (look)
            cf_form_look(runner->options, task->shared);
        cf_form_run(runner->options, &runner->hosts, task);
    }
    setpgid(task->pid, task->pid);
    task->pidfd = (int)syscall(SYS_pidfd_open, task->pid, 0);
    return 1;
}

/* The end of what the process has printed. */
static void add_output(struct cf_task *task)
{
    char bytes[600];
    size_t used = strlen(task->text);
    off_t end = lseek(task->output_fd, 0, SEEK_END);
    off_t from = end > (off_t)sizeof(bytes) - 1 ? end - ((off_t)sizeof(bytes) - 1) : 0;
    ssize_t got = pread(task->output_fd, bytes, sizeof(bytes) - 1, from);

    if (got <= 0)
        return;
    bytes[got] = 0;
    snprintf(task->text + used, sizeof(task->text) - used, "\nit printed: %s", bytes);
}

static const char *last_call(const struct cf_shared *shared, int role)
{
    const char *call = atomic_load_explicit(&shared->call[role], memory_order_relaxed);

    return call ? call : "none";
}

static void tell_late(struct cf_task *task)
{
    double s = (double)(task->end_ns - task->begin_ns) / 1e9;

    if (task->form == CF_SINGLE)
        snprintf(task->text, sizeof(task->text), "did not return in %.1f s, last call: %s", s,
                 last_call(task->shared, CF_SENDER));
    else
        snprintf(task->text, sizeof(task->text),
                 "did not return in %.1f s, last call: %s (sender), %s (receiver)", s,
                 last_call(task->shared, CF_SENDER), last_call(task->shared, CF_RECEIVER));
}

/* The process has ended or is ended now: what is its verdict? */
static void task_end(struct cf_task *task, int late)
{
    struct cf_shared *shared = task->shared;
    int status = 0, verdict;

    kill(-task->pid, SIGKILL);
    while (waitpid(task->pid, &status, 0) < 0 && errno == EINTR)
        ;
    /* Pairs with the release in cf_settle(): the text is whole. */
    verdict = atomic_load_explicit(&shared->text_ready, memory_order_acquire)
                  ? atomic_load_explicit(&shared->verdict, memory_order_relaxed)
                  : CF_NONE;
    task->verdict = CF_FAILED;
    if (verdict != CF_NONE) {
        task->verdict = verdict;
        snprintf(task->text, sizeof(task->text), "%s", shared->text);
    } else if (late) {
        tell_late(task);
    } else if (status != 0) {
        cf_tell_end(shared, status, CF_SENDER, task->text, sizeof(task->text));
    } else {
        task->verdict = CF_PASSED;
    }
    /* The first look has said it all, unless it crashed. */
    if (task->verdict == CF_FAILED && task->output_fd >= 0 &&
        (verdict == CF_NONE || task->test->send || task->test->solo))
        add_output(task);
    task->ms = (cf_now() - task->begin_ns) / CF_MS;
    if (task->output_fd >= 0)
        close(task->output_fd);
    if (task->pidfd >= 0)
        close(task->pidfd);
    task->pid = 0;
}

/* ---- which tasks ---- */

/* Decides what needs no process: 1 when the task has its verdict. */
static int task_decide(struct runner *runner, struct cf_task *task)
{
    const struct cf_case *test = task->test;
    const char *reason = cf_skips_find(&runner->skips, test->name);

    task->verdict = CF_SKIPPED;
    if (reason) {
        snprintf(task->text, sizeof(task->text), "by list: %s", reason);
    } else if (test->flags & CF_OWN && strncmp(runner->plugin.contract, "nccl", 4) == 0) {
        snprintf(task->text, sizeof(task->text), "NCCL's contract: %s", test->why);
    } else if (test->flags & CF_FULL && runner->options->quick) {
        snprintf(task->text, sizeof(task->text), "takes long; without --quick it runs");
    } else if (task->form == CF_NAMESPACES && runner->plugin.props.sameHost) {
        snprintf(task->text, sizeof(task->text), "the device reaches its own host only");
    } else if (task->form == CF_NAMESPACES && !cf_hosts_make(&runner->hosts)) {
        snprintf(task->text, sizeof(task->text), "%s", runner->hosts.reason);
    } else {
        task->verdict = CF_NONE;
        return 0;
    }
    return 1;
}

static void add_case(struct runner *runner, const struct cf_case *test, uint64_t seed)
{
    const struct xccl_conformance_options *options = runner->options;

    if (options->case_pattern && fnmatch(options->case_pattern, test->name, 0) != 0)
        return;
    for (unsigned form = 1; form <= XCCL_CONFORMANCE_FORMS; form <<= 1) {
        if (!(test->forms & options->forms & form) || runner->task_count == TASKS_MAX)
            continue;
        runner->tasks[runner->task_count++] = (struct cf_task){
            .test = test, .form = form, .seed = seed, .pidfd = -1, .output_fd = -1};
    }
}

static void make_tasks(struct runner *runner, uint64_t seed)
{
    const struct cf_case *test;

    runner->task_count = 0;
    for (int i = 0; (test = cf_case_at(i)); i++)
        add_case(runner, test, seed);
}

/* ---- all tasks ---- */

/* Sleeps until one of the running tasks ends or is late, or a beat is due; ends those. Returns how
 * many ended. */
static int tasks_wait(struct cf_task *tasks, int count)
{
    struct pollfd fds[JOBS_MAX];
    struct cf_task *running[JOBS_MAX];
    uint64_t now_ns = cf_now(), first_ns = UINT64_MAX;
    int fd_count = 0, ended = 0, ms;

    for (int i = 0; i < count && fd_count < JOBS_MAX; i++) {
        if (tasks[i].pid <= 0)
            continue;
        running[fd_count] = &tasks[i];
        fds[fd_count++] = (struct pollfd){.fd = tasks[i].pidfd, .events = POLLIN};
        first_ns = tasks[i].end_ns < first_ns ? tasks[i].end_ns : first_ns;
    }
    ms = first_ns > now_ns ? (int)((first_ns - now_ns) / CF_MS) + 1 : 0;
    ms = ms < PULSE_BEAT_MS ? ms : PULSE_BEAT_MS;
    if (poll(fds, (nfds_t)fd_count, ms) < 0 && errno != EINTR)
        cf_sleep_ms(1);
    cf_beat();
    now_ns = cf_now();
    for (int i = 0; i < fd_count; i++) {
        int late = now_ns >= running[i]->end_ns;

        if (!(fds[i].revents & POLLIN) && !late)
            continue;
        task_end(running[i], !(fds[i].revents & POLLIN));
        ended++;
    }
    return ended;
}

static void run_tasks(struct runner *runner)
{
    int started = 0, told = 0, running = 0;

    while (told < runner->task_count) {
        while (running < runner->options->jobs && started < runner->task_count) {
            struct cf_task *task = &runner->tasks[started];

            if (task_decide(runner, task)) {
                started++;
                continue;
            }
            if (!task_start(runner, task, 0)) {
                task->verdict = CF_SKIPPED;
                snprintf(task->text, sizeof(task->text), "this machine has no room for a process");
            } else {
                running++;
            }
            started++;
        }
        if (running > 0)
            running -= tasks_wait(runner->tasks, started);
        for (; told < started && runner->tasks[told].verdict != CF_NONE; told++) {
            cf_report_task(&runner->report, &runner->tasks[told]);
            if (runner->tasks[told].shared)
                munmap(runner->tasks[told].shared, sizeof(struct cf_shared));
        }
    }
}

/* Opens the plugin once, in a process of its own. 0: it does not open, which has been told. */
static int look(struct runner *runner)
{
    static const struct cf_case opened = {.name = "open", .forms = CF_SINGLE};
    struct cf_task task = {.test = &opened, .form = CF_SINGLE, .pidfd = -1, .output_fd = -1};
    int good;

    task.seed = runner->options->seed;
    if (!task_start(runner, &task, 1)) {
        fprintf(stderr, "xccl net check: this machine has no room for a process\n");
        return 0;
    }
    while (tasks_wait(&task, 1) == 0)
        ;
    good = task.verdict == CF_PASSED;
    if (good)
        runner->plugin = *task.shared;
    else
        fprintf(stderr, "xccl net check: %s: %s\n", runner->options->item, task.text);
    munmap(task.shared, sizeof(*task.shared));
    return good;
}

static int run_all(struct runner *runner)
{
    const struct xccl_conformance_options *options = runner->options;
    uint64_t begin_ns;

    cf_beat();
    begin_ns = cf_now();
    if (!look(runner))
        return 1;
    if (!cf_skips_load(&runner->skips, options->skip_path, runner->plugin.name))
        return 2;
    make_tasks(runner, options->seed);
    if (runner->task_count == 0) {
        fprintf(stderr, "xccl net check: no case has such a name and form; see --list\n");
        return 2;
    }
    if (!cf_report_begin(&runner->report, options, &runner->plugin))
        return 2;
    for (int64_t i = 0; i < options->repeat; i++) {
        make_tasks(runner, options->seed + (uint64_t)i);
        run_tasks(runner);
    }
    if (!cf_report_end(&runner->report, (cf_now() - begin_ns) / CF_MS))
        return 1;
    return runner->report.failed > 0;
}

int xccl_conformance_run(const struct xccl_conformance_options *options)
{
    static struct runner runner;
    int status = 1;

    runner = (struct runner){.options = options};
    runner.tasks = calloc(TASKS_MAX, sizeof(*runner.tasks));
    if (runner.tasks)
        status = run_all(&runner);
    else
        fprintf(stderr, "xccl net check: no memory\n");
    cf_hosts_drop(&runner.hosts);
    free(runner.tasks);
    return status;
}
