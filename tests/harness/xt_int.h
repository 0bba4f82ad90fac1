/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the harness share. Three kinds of process: the runner (main, one), a test
 * (forked by the runner, leader of its own process group) and a rank (forked by a test). A process
 * that was forked by the harness tells its parent how it went through a struct xt_report in shared
 * memory, because an exit status has no room for a reason. Thread: the main thread of each process,
 * except xt_fail_at and xt_skip_at (any). */
#ifndef XT_INT_H
#define XT_INT_H

#include <stdbool.h>

#include "pulse.h"
#include "xt.h"

#define XT_EXIT_SKIP    77
#define XT_REASON_BYTES 1024
#define XT_PATH_BYTES   256
#define XT_OUTPUT_BYTES (1024 * 1024)

/* How far a test or a rank came. Written by the process itself, read by its parent after its end.
 */
enum xt_stage { XT_RUNNING, XT_RETURNED, XT_FAILED, XT_SKIPPED };

struct xt_report {
    enum xt_stage stage;
    int64_t ended_ms; /* when stage was set */
    char reason[XT_REASON_BYTES];
    char leaks_allowed[XT_REASON_BYTES / 4];
    char tmp[XT_PATH_BYTES]; /* folder for xt_tmpdir(); made on first use, removed by the runner */
};

/* What this process is: set after each fork. */
struct xt_self {
    struct xt_report *report;
    int64_t deadline_ms; /* xt_now_ms() at which the runner kills the test */
    bool is_rank;
};
extern struct xt_self xt_self;

/* Stands still while the machine does, once there is a pulse (pulse.h): the runner beats. */
int64_t xt_now_ms(void);
extern struct pulse *xt_pulse;
/* Shared with the children to come, zeroed. Ends the process when there is no memory. */
void *xt_shared_alloc(size_t bytes);
void xt_shared_free(void *memory, size_t bytes);
/* A memfd that captures output. */
int xt_capture_open(void);
/* The last max_bytes of it, with an end byte, to be freed. */
char *xt_capture_read(int fd, size_t max_bytes);
/* stdin from nowhere, stdout and stderr into fd. */
void xt_capture_redirect(int fd);
/* Prints text with a prefix before every line. */
void xt_print_lines(const char *prefix, const char *text);
/* "exit status 3", "killed by signal 11 (Segmentation fault)". */
void xt_status_text(int status, char *text, size_t bytes);
/* Writes to fd what every thread of a process, or of a process group, waits for. */
void xt_show_process(int fd, pid_t pid);
void xt_show_group(int fd, pid_t group);
/* Removes a folder and what is in it. An absent one is fine. */
void xt_remove_tree(const char *path);

/* What a test or a rank does around its function: environment, leak checks, exit status. */
struct xt_snapshot;
struct xt_snapshot *xt_snapshot_take(void);
/* Writes what has come since, "" if nothing, and frees the snapshot. */
void xt_snapshot_compare(struct xt_snapshot *before, char *text, size_t bytes);
/* This process has forked pid: files with that number in their names are the test's. */
void xt_forked(pid_t pid);
uint64_t xt_live_blocks(void);
const char *xt_error_source_text(void);
/* What the last program of xt_run_program() has printed; NULL: there was none, or it was silent. */
const char *xt_last_output(void);
/* Frees what xt_tmpdir() and xt_run_program() handed out. */
void xt_process_fini(void);
/* The end of a test or rank whose function has returned. */
_Noreturn void xt_finish(struct xt_snapshot *before);

#endif
