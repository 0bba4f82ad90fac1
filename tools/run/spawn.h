/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank as a process: its environment, its descriptors, and the way from fork to exec.
 *
 * Thread: the program's main thread. */
#ifndef XCCL_TOOLS_RUN_SPAWN_H
#define XCCL_TOOLS_RUN_SPAWN_H

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/netaddr.h"

#define XCCL_JOB_KEY_TEXT_BYTES 65 /* 32 random bytes as hex, and the end */

/* The variables of a rank: this process's, with those that place a rank in a job replaced. */
struct xccl_spawn_env {
    char **vars; /* ends with NULL; the first ones point into the texts below */
    char rank[32], nranks[32], root[32];
    char comm_id[32 + XCCL_ADDR_TEXT_BYTES];
    char job_key[32 + XCCL_JOB_KEY_TEXT_BYTES];
};

/* 0: no memory (told). */
int xccl_spawn_env_init(struct xccl_spawn_env *env, int nranks, const char *comm_id,
                        const char *job_key);
void xccl_spawn_env_fini(struct xccl_spawn_env *env);

struct xccl_spawn_args {
    const char *program;
    char **argv;
    struct xccl_spawn_env *env;
    int rank;
    int fds[3]; /* what the rank gets as descriptors 0, 1 and 2 */
    const sigset_t *mask; /* the rank's signal mask */
    const struct rlimit *files; /* its limit of open files */
};

/* Starts it in a process group of its own; it is killed when this process ends. Returns once the
 * program runs. 0, or an errno: of exec when *exec_failed_out is 1, else of pipe or fork. */
int xccl_spawn(const struct xccl_spawn_args *args, pid_t *pid_out, int *exec_failed_out);

#endif
