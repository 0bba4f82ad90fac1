/* SPDX-License-Identifier: BSD-3-Clause */
/* The process of one case: started by a fork, a group of its own, watched, ended with its deadline;
 * what its verdict is. Whatever it started ends with it, so nothing stays behind.
 *
 * Thread: the runner's, the only one of its process. */
#include "cf_run.h"

#include <errno.h>
#include <fcntl.h>
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

#define JOBS_MAX 64

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

void cf_die_with(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1); /* it died before that was asked for */
}

/* Becomes the process of a case: a group of its own, output into the task's file. */
static void become_case(const struct cf_task *task, pid_t parent)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    setpgid(0, 0);
    cf_die_with(parent);
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

int cf_task_start(const struct xccl_conformance_options *options, const struct cf_hosts *hosts,
                  const struct cf_shared *plugin, struct cf_task *task, int look)
{
    uint64_t ms = options->timeout_ms;
    pid_t parent = getpid();

    if (!task_memory(task))
        return 0;
    *task->shared = *plugin;
    task->output_fd = memfd_create("conformance", MFD_CLOEXEC);
    task->begin_ns = cf_now();
    task->end_ns = task->begin_ns + (ms ? ms : CF_CASE_MS) * CF_MS;
    fflush(NULL);
    task->pid = fork();
    if (task->pid < 0) {
        task->pid = 0;
        if (task->output_fd >= 0)
            close(task->output_fd);
        task->output_fd = -1;
        return 0;
    }
    if (task->pid == 0) {
        become_case(task, parent);
        pass_seed(options->item, task->seed);
        if (look)
            cf_form_look(options, task->shared);
        cf_form_run(options, hosts, task);
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
        snprintf(task->text, sizeof(task->text), CF_LATE " %.1f s, last call: %s", s,
                 last_call(task->shared, CF_SENDER));
    else if (task->form == CF_REMOTE)
        snprintf(task->text, sizeof(task->text), CF_LATE " %.1f s, last call: %s (%s)", s,
                 last_call(task->shared, task->role),
                 task->role == CF_SENDER ? "sender" : "receiver");
    else
        snprintf(task->text, sizeof(task->text),
                 CF_LATE " %.1f s, last call: %s (sender), %s (receiver)", s,
                 last_call(task->shared, CF_SENDER), last_call(task->shared, CF_RECEIVER));
}

void cf_task_end(struct cf_task *task, int late)
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

int cf_tasks_wait(struct cf_task *tasks, int count)
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
        cf_task_end(running[i], !(fds[i].revents & POLLIN));
        ended++;
    }
    return ended;
}

void cf_task_drop(struct cf_task *task)
{
    if (task->shared)
        munmap(task->shared, sizeof(*task->shared));
    task->shared = NULL;
}

int cf_look(const struct xccl_conformance_options *options, struct cf_shared *plugin_out)
{
    static const struct cf_case opened = {.name = "open", .forms = CF_SINGLE};
    struct cf_task task = {.test = &opened, .form = CF_SINGLE, .pidfd = -1, .output_fd = -1};
    int good;

    task.seed = options->seed;
    if (!cf_task_start(options, NULL, plugin_out, &task, 1)) {
        fprintf(stderr, "xccl net check: cannot start a process on this machine\n");
        return 0;
    }
    while (cf_tasks_wait(&task, 1) == 0)
        ;
    good = task.verdict == CF_PASSED;
    if (good)
        *plugin_out = *task.shared;
    else
        fprintf(stderr, "xccl net check: %s: %s\n", options->item, task.text);
    cf_task_drop(&task);
    return good;
}
