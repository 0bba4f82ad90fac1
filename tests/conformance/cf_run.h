/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the files of the runner: one run of a case, its process, its line. Thread: the runner's,
 * the only one of its process. */
#ifndef XCCL_CF_RUN_H
#define XCCL_CF_RUN_H

#include <stdio.h>
#include <sys/types.h>

#include "cf_hosts.h"
#include "cf_int.h"

#define CF_CASE_MS (30000ull * CF_SLOW)

/* One case in one form with one seed. */
struct cf_task {
    const struct cf_case *test;
    unsigned form;
    uint64_t seed;
    pid_t pid; /* 0: not running */
    int pidfd, output_fd;
    uint64_t begin_ns, end_ns; /* end: the deadline */
    struct cf_shared *shared;
    int verdict;
    uint64_t ms;
    char text[CF_TEXT_BYTES + 200];
};

/* In the child: runs the role functions of task in its form. Ends the process. */
_Noreturn void cf_form_run(const struct xccl_conformance_options *options,
                           const struct cf_hosts *hosts, struct cf_task *task);
/* In the child: opens the plugin once and fills what the runner wants to know. */
_Noreturn void cf_form_look(const struct xccl_conformance_options *options,
                            struct cf_shared *shared);
const char *cf_form_name(unsigned form);
/* Says how a process ended that should not have: "was killed by SIGSEGV in isend". */
void cf_tell_end(const struct cf_shared *shared, int status, int role, char *text, size_t bytes);

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
    int passed, failed, skipped;
    int first; /* of the JSON array */
};
int cf_report_begin(struct cf_report *report, const struct xccl_conformance_options *options,
                    const struct cf_shared *plugin);
void cf_report_task(struct cf_report *report, const struct cf_task *task);
/* 0: the JSON file could not be written. */
int cf_report_end(struct cf_report *report, uint64_t ms);

#endif
