/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the files of the runner: one run of a case, its process, its line. Thread: the runner's,
 * the only one of its process. */
#ifndef XCCL_CF_RUN_H
#define XCCL_CF_RUN_H

#include <stdio.h>
#include <sys/types.h>

#include "cf_hosts.h"
#include "cf_int.h"

#define CF_CASE_MS   (30000ull * CF_SLOW)
#define CF_FORM_END  (XCCL_CONFORMANCE_REMOTE << 1) /* forms are the bits below */
#define CF_CASES_MAX 256

/* One case in one form with one seed. */
struct cf_task {
    const struct cf_case *test;
    unsigned form;
    uint64_t seed;
    int role,
        channel; /* form remote: of this host; to the other one, -1 where it is called first */
    pid_t pid; /* 0: not running */
    int pidfd, output_fd;
    uint64_t begin_ns, end_ns; /* end: the deadline */
    uint64_t give_ms; /* how long it may take; 0: CF_CASE_MS, and waits as long as they are */
    /* In a run with a time limit. cut: its end at the deadline is no failure. squeezed: it has
     * less time than others, so a wait in vain is none either. */
    int limited, cut, squeezed;
    int overdue; /* it was ended in a call that may not wait */
    struct cf_shared *shared;
    int verdict, again; /* again: this is the second run */
    uint64_t ms;
    char text[CF_TEXT_BYTES + 900];
};

/* In the child: runs the role functions of task in its form. Ends the process. */
_Noreturn void cf_form_run(const struct xccl_conformance_options *options,
                           const struct cf_hosts *hosts, struct cf_task *task);
/* In the child: opens the plugin once and fills what the runner wants to know. */
_Noreturn void cf_form_look(const struct xccl_conformance_options *options,
                            struct cf_shared *shared);
const char *cf_form_name(unsigned form);
int cf_has_form(const struct cf_case *test, unsigned form);
/* Says how a process ended that should not have: "was killed by SIGSEGV in isend". */
#define CF_KILLED_BY "was killed by SIG"
void cf_tell_end(const struct cf_shared *shared, int status, int role, char *text, size_t bytes);

/* ---- cf_task.c ---- */

/* In a child: it is killed when its parent dies, or has ended already. */
void cf_die_with(pid_t parent);
/* Starts the process of a case; look: that of the first look. plugin: what that found. 0: the
 * machine has no room for another process. */
int cf_task_start(const struct xccl_conformance_options *options, const struct cf_hosts *hosts,
                  const struct cf_shared *plugin, struct cf_task *task, int look);
/* Why a process is ended by the runner. */
enum cf_ending { CF_BY_ITSELF, CF_AT_DEADLINE, CF_OVERDUE };
/* Its process has ended, or is ended now: task has its verdict. */
void cf_task_end(struct cf_task *task, enum cf_ending ending);
/* Ends and reaps what cases have left running, other than the process keep; no case may be
 * running. Once cf_orphans_adopt() was called, such processes become this one's children. */
void cf_orphans_adopt(void);
void cf_orphans_end(pid_t keep);
/* Sleeps until one of the running tasks ends or is late, or a beat is due; ends those. Returns how
 * many ended. */
int cf_tasks_wait(struct cf_task *tasks, int count);
void cf_task_drop(struct cf_task *task); /* its memory */
/* Opens the plugin once, in a process of its own, for at most give_ms (0: CF_CASE_MS). 0: it does
 * not open, which has been told. */
int cf_look(const struct xccl_conformance_options *options, uint64_t give_ms,
            struct cf_shared *plugin_out);

/* ---- cf_budget.c: a run with a time limit ---- */

/* When this run ends that begins now; UINT64_MAX: no limit. */
uint64_t cf_budget_end(const struct xccl_conformance_options *options);
/* What is left until then, at least 1; 0: no limit. */
uint64_t cf_budget_left_ms(uint64_t end_ns);
/* Gives the task its time. 0: there is none, and its verdict is CF_LEFT_OUT. */
int cf_budget_give(uint64_t end_ns, const struct xccl_conformance_options *options,
                   struct cf_task *task);
/* Puts first what tells most. spare: room for as many. */
void cf_budget_order(struct cf_task *tasks, struct cf_task *spare, int count);

/* ---- cf_report.c ---- */

/* Which cases are skipped, from a file. */
struct cf_skips {
    struct cf_skip_line {
        char pattern[64], reason[160];
    } lines[128];
    int count;
};
/* 0: a named file cannot be read; the message has been printed. */
int cf_skips_load(struct cf_skips *skips, const char *path, const char *plugin);
/* The reason, or NULL. */
const char *cf_skips_find(const struct cf_skips *skips, const char *test);

/* The output. */
struct cf_report {
    FILE *lines, *json;
    const char *json_path;
    int brief; /* repeated: only what failed has a line */
    int passed, failed, skipped, noted, left_out;
    /* By number of the case: the forms that were left out, and those that had time. */
    unsigned left_forms[CF_CASES_MAX], run_forms[CF_CASES_MAX];
    const struct xccl_conformance_options *options;
    int first; /* of the JSON array */
};
int cf_report_begin(struct cf_report *report, const struct xccl_conformance_options *options,
                    const struct cf_shared *plugin);
void cf_report_task(struct cf_report *report, const struct cf_task *task);
/* 0: the JSON file could not be written. */
int cf_report_end(struct cf_report *report, uint64_t ms);

#endif
