/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts the ranks of a job on this host, hosts the root at which they meet, passes their output
 * and signals on, and reports the first rank that fails. Used by `xccl run`, and by `xccl perf
 * --ranks`.
 *
 * Thread: the program's main thread; it blocks SIGCHLD, SIGINT, SIGTERM and SIGHUP and stays the
 * only thread but for the service thread of the root. */
#ifndef XCCL_TOOLS_RUN_LAUNCH_H
#define XCCL_TOOLS_RUN_LAUNCH_H

#include <stdint.h>

#define XCCL_LAUNCH_MAX_RANKS 4096

struct xccl_launch_args {
    const char *title; /* begins the launcher's own lines: "xccl run" */
    int nranks; /* 1..XCCL_LAUNCH_MAX_RANKS */
    int prefix; /* 1: output goes line by line behind "[rank] "; 0: ranks write themselves */
    uint64_t grace_ms; /* how long ranks may go on after the first failure or signal */
    const char *program; /* looked for in PATH unless it has a slash */
    char **argv; /* ends with NULL */
};

/* Runs the job to its end and leaves no process behind. Returns 0, or the first failing rank's exit
 * status (128 + signal for a killed one), 127 or 126 when the program cannot be started, 128 +
 * signal when this process was told to end, 1 when the job could not be set up. */
int xccl_launch(const struct xccl_launch_args *args);

#endif
