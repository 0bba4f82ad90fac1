/* SPDX-License-Identifier: BSD-3-Clause */
/* Fork and exec of one rank. This process has a second thread (the root's), so between fork and
 * exec the child calls only what is safe there: no memory is taken, nothing is printed. A pipe that
 * exec closes tells the parent how exec went.
 *
 * Thread: the program's main thread. Its end is what PR_SET_PDEATHSIG reports to the ranks, so it
 * must be the thread that lives as long as the process. */
#include "run/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"

/* What a rank gets from its launcher and from nobody else. The key file goes because a rank accepts
 * one key only. */
static const char *const own_names[] = {"XCCL_RANK",    "XCCL_NRANKS", "XCCL_COMM_ID",
                                        "XCCL_JOB_KEY", "XCCL_ROOT",   "XCCL_JOB_KEY_FILE"};
#define OWN_NAMES        (sizeof(own_names) / sizeof(own_names[0]))
#define OWN_VARS         5
#define EXIT_NOT_STARTED 127

extern char **environ;

static int is_own(const char *var)
{
    for (size_t i = 0; i < OWN_NAMES; i++) {
        size_t bytes = strlen(own_names[i]);

        if (strncmp(var, own_names[i], bytes) == 0 && var[bytes] == '=')
            return 1;
    }
    return 0;
}

int xccl_spawn_env_init(struct xccl_spawn_env *env, int nranks, const char *comm_id,
                        const char *job_key)
{
    size_t count = 0;
    size_t at = OWN_VARS;

    while (environ && environ[count])
        count++;
    env->vars = xccl_calloc(count + OWN_VARS + 1, sizeof(*env->vars));
    if (!env->vars)
        return 0;
    snprintf(env->nranks, sizeof(env->nranks), "XCCL_NRANKS=%d", nranks);
    snprintf(env->root, sizeof(env->root), "XCCL_ROOT=launcher");
    snprintf(env->comm_id, sizeof(env->comm_id), "XCCL_COMM_ID=%s", comm_id);
    snprintf(env->job_key, sizeof(env->job_key), "XCCL_JOB_KEY=%s", job_key);
    env->vars[0] = env->rank;
    env->vars[1] = env->nranks;
    env->vars[2] = env->root;
    env->vars[3] = env->comm_id;
    env->vars[4] = env->job_key;
    for (size_t i = 0; i < count; i++) {
        if (!is_own(environ[i]))
            env->vars[at++] = environ[i];
    }
    return 1;
}

void xccl_spawn_env_fini(struct xccl_spawn_env *env)
{
    xccl_free(env->vars);
    /* The key is the job's secret. */
    explicit_bzero(env, sizeof(*env));
}

/* In the child: makes fds its descriptors 0, 1 and 2. Sources below 3 are moved up first, so that
 * none is overwritten before its turn. */
static int place_fds(const int fds[3])
{
    int moved[3];

    for (int i = 0; i < 3; i++) {
        moved[i] = fds[i] > 2 ? fds[i] : fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
        if (moved[i] < 0)
            return 0;
    }
    for (int i = 0; i < 3; i++) {
        if (dup2(moved[i], i) < 0)
            return 0;
    }
    return 1;
}

/* The child's way to exec. Returns only when something failed, with errno set. */
static void become_rank(const struct xccl_spawn_args *args, pid_t parent)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};

    if (setpgid(0, 0))
        return;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL))
        return;
    /* The parent may have ended before the line above took effect. */
    if (getppid() != parent)
        _exit(EXIT_NOT_STARTED);
    if (!place_fds(args->fds))
        return;
    if (setrlimit(RLIMIT_NOFILE, args->files))
        return;
    if (sigaction(SIGPIPE, &plain, NULL))
        return;
    if (sigprocmask(SIG_SETMASK, args->mask, NULL))
        return;
    execvpe(args->program, args->argv, args->env->vars);
}

/* What the child wrote before it gave up: its errno, or 0 once exec has closed the pipe. */
static int read_verdict(int fd)
{
    int error = 0;
    ssize_t got = 0;

    do {
        got = read(fd, &error, sizeof(error));
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof(error) ? error : 0;
}

int xccl_spawn(const struct xccl_spawn_args *args, pid_t *pid_out, int *exec_failed_out)
{
    pid_t parent = getpid();
    pid_t pid = -1;
    int verdict[2] = {-1, -1};
    int error = 0;

    snprintf(args->env->rank, sizeof(args->env->rank), "XCCL_RANK=%d", args->rank);
    if (pipe2(verdict, O_CLOEXEC))
        return errno;
    pid = fork();
    if (pid < 0) {
        error = errno;
        close(verdict[0]);
        close(verdict[1]);
        return error;
    }
    if (pid == 0) {
        become_rank(args, parent);
        error = errno;
        /* If even this write fails the parent sees the exit status, which is no success either. */
        (void)!write(verdict[1], &error, sizeof(error));
        _exit(EXIT_NOT_STARTED);
    }
    close(verdict[1]);
    error = read_verdict(verdict[0]);
    close(verdict[0]);
    if (error) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            continue;
        *exec_failed_out = 1;
        return error;
    }
    *pid_out = pid;
    return 0;
}
