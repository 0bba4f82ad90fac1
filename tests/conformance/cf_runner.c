/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the cases: first one look at the plugin, then a process for each case and form, at most
 * `jobs` at the same time, each with a deadline; lines come in the order of the table.
 *
 * Thread: one; every process is made by a fork of it. */
#include "cf_remote.h"
#include "cf_run.h"

#include "base/tcp.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TASKS_MAX 4096

struct runner {
    struct xccl_conformance_options options;
    struct cf_hosts hosts;
    struct cf_remote remote;
    struct cf_skips skips;
    struct cf_report report;
    struct cf_shared plugin; /* what the first look found */
    struct cf_task *tasks, *spare;
    int task_count;
    uint64_t end_ns; /* cf_budget_end() */
    int hangs; /* a call that did not return was no accident: the next one is not tried again */
};

unsigned xccl_conformance_form(const char *name)
{
    for (unsigned form = 1; form < CF_FORM_END; form <<= 1) {
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
        for (unsigned form = 1, first = 1; form < CF_FORM_END; form <<= 1) {
            if (!cf_has_form(test, form))
                continue;
            printf("%s%s", first ? "" : " ", cf_form_name(form));
            first = 0;
        }
        puts(")");
    }
}

/* ---- which tasks ---- */

/* Decides what needs no process: 1 when the task has its verdict. */
static int task_decide(struct runner *runner, struct cf_task *task)
{
    const struct cf_case *test = task->test;
    const char *reason = cf_skips_find(&runner->skips, test->name);

    task->verdict = CF_SKIPPED;
    if (reason) {
        snprintf(task->text, sizeof(task->text), "skip list: %s", reason);
    } else if (test->flags & CF_OWN && strncmp(runner->plugin.contract, "nccl", 4) == 0) {
        snprintf(task->text, sizeof(task->text), "NCCL's contract: %s", test->why);
    } else if (test->flags & CF_FULL && runner->options.quick) {
        snprintf(task->text, sizeof(task->text), "takes long; runs only without --quick");
    } else if ((task->form == CF_NAMESPACES || task->form == CF_REMOTE) &&
               runner->plugin.props.sameHost) {
        snprintf(task->text, sizeof(task->text), "the device reaches only its own host");
    } else if (task->form == CF_REMOTE && xccl_tcp_has_ended(runner->remote.fd)) {
        task->verdict = CF_FAILED;
        snprintf(task->text, sizeof(task->text), CF_HOST_GONE);
    } else {
        task->verdict = CF_NONE;
        return 0;
    }
    return 1;
}

/* 0: there are no namespaces for it here. Making them takes a while. */
static int task_place(struct runner *runner, struct cf_task *task)
{
    if (task->form != CF_NAMESPACES || cf_hosts_make(&runner->hosts))
        return 1;
    task->verdict = CF_SKIPPED;
    snprintf(task->text, sizeof(task->text), "%s", runner->hosts.reason);
    return 0;
}

static void add_case(struct runner *runner, const struct cf_case *test, uint64_t seed)
{
    const struct xccl_conformance_options *options = &runner->options;

    if (options->case_pattern && fnmatch(options->case_pattern, test->name, 0) != 0)
        return;
    for (unsigned form = 1; form < CF_FORM_END; form <<= 1) {
        if (!(options->forms & form) || !cf_has_form(test, form) || runner->task_count == TASKS_MAX)
            continue;
        runner->tasks[runner->task_count++] = (struct cf_task){
            .test = test,
            .form = form,
            .seed = seed,
            .give_ms = options->timeout_ms,
            .role = options->reverse ? CF_RECEIVER : CF_SENDER,
            .channel = -1,
            .pidfd = -1,
            .output_fd = -1};
    }
}

static void make_tasks(struct runner *runner, uint64_t seed)
{
    const struct cf_case *test;

    runner->task_count = 0;
    for (int i = 0; (test = cf_case_at(i)); i++)
        add_case(runner, test, seed);
    if (runner->options.within_ms)
        cf_budget_order(runner->tasks, runner->spare, runner->task_count);
}

/* ---- all tasks ---- */

/* Runs a case once more where an entry took long: the system may have made it wait, as it does for
 * sockets while other network namespaces are removed. A plugin that waits is as slow again. Returns
 * how many run now. */
static int run_again(struct runner *runner, struct cf_task *task)
{
    int took_long = task->verdict == CF_FAILED && task->shared &&
                    (atomic_load_explicit(&task->shared->took_long, memory_order_relaxed) ||
                     (task->overdue && !runner->hangs));
    char first[CF_TEXT_BYTES];

    runner->hangs |= task->overdue && task->again;
    if (!took_long || task->again || task->form == CF_REMOTE)
        return 0;
    cf_task_drop(task);
    task->again = 1;
    task->overdue = 0;
    /* Stays where the second run passes, and counts where there is no time for one. */
    snprintf(first, sizeof(first), "%.*s", CF_TEXT_BYTES - 1, task->text);
    snprintf(task->text, sizeof(task->text), "failed in a first run: %s", first);
    if (!cf_budget_give(runner->end_ns, &runner->options, task)) {
        task->verdict = CF_FAILED;
        return 0;
    }
    if (!cf_task_start(&runner->options, &runner->hosts, &runner->plugin, task, 0))
        return 0;
    task->verdict = CF_NONE;
    return 1;
}

static void run_tasks(struct runner *runner)
{
    int started = 0, told = 0, running = 0;

    while (told < runner->task_count) {
        while (running < runner->options.jobs && started < runner->task_count) {
            struct cf_task *task = &runner->tasks[started];

            if (task_decide(runner, task) ||
                !cf_budget_give(runner->end_ns, &runner->options, task) ||
                !task_place(runner, task)) {
                started++;
                continue;
            }
            if (!cf_task_start(&runner->options, &runner->hosts, &runner->plugin, task, 0)) {
                task->verdict = CF_SKIPPED;
                snprintf(task->text, sizeof(task->text), "cannot start a process on this machine");
            } else {
                running++;
            }
            started++;
        }
        if (running > 0)
            running -= cf_tasks_wait(runner->tasks, started);
        if (running == 0)
            cf_orphans_end(runner->hosts.keeper);
        for (int i = told; i < started; i++)
            running += run_again(runner, &runner->tasks[i]);
        for (; told < started && runner->tasks[told].verdict != CF_NONE; told++) {
            cf_report_task(&runner->report, &runner->tasks[told]);
            cf_task_drop(&runner->tasks[told]);
        }
    }
}

/* How long the first look may take. */
static uint64_t look_ms(const struct runner *runner)
{
    uint64_t left_ms = cf_budget_left_ms(runner->end_ns);
    uint64_t own_ms = runner->options.timeout_ms ? runner->options.timeout_ms : CF_CASE_MS;

    return left_ms && left_ms < own_ms ? left_ms : own_ms;
}

static int run_all(struct runner *runner)
{
    const struct xccl_conformance_options *options = &runner->options;
    uint64_t begin_ns;

    if (options->remote && !cf_remote_find(&runner->remote, &runner->options))
        return XCCL_CONFORMANCE_USAGE;
    cf_beat();
    begin_ns = cf_now();
    runner->end_ns = cf_budget_end(options);
    if (!cf_look(options, look_ms(runner), &runner->plugin))
        return XCCL_CONFORMANCE_FAILED;
    if (!cf_skips_load(&runner->skips, options->skip_path, runner->plugin.name))
        return XCCL_CONFORMANCE_USAGE;
    make_tasks(runner, options->seed);
    if (runner->task_count == 0) {
        fprintf(stderr, "xccl net check: no case has this name and form; --list shows all cases\n");
        return XCCL_CONFORMANCE_USAGE;
    }
    if (options->remote && !cf_remote_open(&runner->remote, &runner->options, &runner->plugin))
        return XCCL_CONFORMANCE_FAILED;
    if (!cf_report_begin(&runner->report, options, &runner->plugin))
        return XCCL_CONFORMANCE_USAGE;
    for (int64_t i = 0; i < options->repeat; i++) {
        if (i > 0)
            runner->end_ns = cf_budget_end(options);
        make_tasks(runner, options->seed + (uint64_t)i);
        run_tasks(runner);
    }
    if (!cf_report_end(&runner->report, (cf_now() - begin_ns) / CF_MS) || runner->report.failed)
        return XCCL_CONFORMANCE_FAILED;
    return runner->report.left_out ? XCCL_CONFORMANCE_PARTLY : XCCL_CONFORMANCE_PASSED;
}

int xccl_conformance_run(const struct xccl_conformance_options *options)
{
    static struct runner runner;
    int status = XCCL_CONFORMANCE_FAILED;

    runner = (struct runner){.options = *options, .remote = {.fd = -1}};
    cf_orphans_adopt();
    runner.tasks = calloc(TASKS_MAX, sizeof(*runner.tasks));
    runner.spare = calloc(TASKS_MAX, sizeof(*runner.spare));
    if (runner.tasks && runner.spare)
        status = run_all(&runner);
    else
        fprintf(stderr, "xccl net check: no memory\n");
    cf_remote_close(&runner.remote);
    cf_hosts_drop(&runner.hosts);
    cf_orphans_end(0);
    free(runner.tasks);
    free(runner.spare);
    return status;
}
