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

#include "base/clock.h"
#include "pulse.h"

#define JOBS_MAX    64
#define ORPHANS_MAX 1000
#define STUCK_S     (5 * CF_SLOW) /* in one call of a case that had all its time: it hangs */
#define REAP_MS     2000 /* for a killed process to be gone */
#define OVERDUE_S   (3 * CF_SLOW) /* see cf_enter_short() */

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
    pid_t parent = getpid();

    if (!task_memory(task))
        return 0;
    *task->shared = *plugin;
    task->output_fd = memfd_create("conformance", MFD_CLOEXEC);
    task->begin_ns = cf_now();
    task->end_ns = task->begin_ns + (task->give_ms ? task->give_ms : CF_CASE_MS) * CF_MS;
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
        /* The first look has tried the plugin out, and this process is there to be crashed. */
        setenv("XCCL_PLUGIN_PROBE_S", "0", 0);
        cf_form_run(options, hosts, task);
    }
    setpgid(task->pid, task->pid);
    task->pidfd = (int)syscall(SYS_pidfd_open, task->pid, 0);
    return 1;
}

/* Where the two parts of a long output are: a library that aborts says why first, a plugin's last
 * warning comes last. */
#define OUTPUT_PART 400

/* The begin and the end of what the process has printed. */
static void add_output(struct cf_task *task)
{
    off_t all = lseek(task->output_fd, 0, SEEK_END);
    int is_long = all > 2 * OUTPUT_PART;
    char first[2 * OUTPUT_PART + 1], last[OUTPUT_PART + 1] = "";
    ssize_t got = pread(task->output_fd, first, is_long ? OUTPUT_PART : 2 * OUTPUT_PART, 0);
    size_t used = strlen(task->text);

    if (got <= 0)
        return;
    first[got] = 0;
    if (is_long) {
        got = pread(task->output_fd, last, OUTPUT_PART, all - OUTPUT_PART);
        last[got > 0 ? got : 0] = 0;
    }
    snprintf(task->text + used, sizeof(task->text) - used, "\nit printed: %s%s%s", first,
             is_long ? " [...] " : "", last);
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

/* The role that stays in a call that may not wait; -1: none. */
static int overdue_role(const struct cf_task *task)
{
    uint64_t now_ns = cf_now();

    for (int role = 0; role < CF_ROLES; role++) {
        uint64_t overdue_ns = atomic_load_explicit(&task->shared->overdue_ns[role],
                                                   memory_order_relaxed);

        if (overdue_ns && now_ns > overdue_ns)
            return role;
    }
    return -1;
}

/* A role has been in one call, which may take its time, for longer than any machine needs. */
static int is_stuck(const struct cf_task *task)
{
    uint64_t now_ns = cf_now();
    int stuck = 0;

    for (int role = 0; role < CF_ROLES; role++) {
        uint64_t entered_ns = atomic_load_explicit(&task->shared->entered_ns[role],
                                                   memory_order_relaxed);

        stuck |= entered_ns && now_ns > entered_ns + STUCK_S * 1000ull * CF_MS;
    }
    return stuck;
}

static void tell_overdue(struct cf_task *task)
{
    int role = overdue_role(task);
    const char *who = role == CF_SENDER ? "sender: " : "receiver: ";

    task->overdue = 1;
    snprintf(task->text, sizeof(task->text),
             "%s%s has not returned for more than %d s; no entry may wait for a peer (rule 1)",
             task->form == CF_SINGLE ? "" : who, last_call(task->shared, role < 0 ? 0 : role),
             OVERDUE_S);
}

/* The case had less time than it asks for: nobody knows how it would have ended. But what a first
 * run has seen stays. */
static void tell_cut(struct cf_task *task, int late)
{
    char seen[CF_TEXT_BYTES];

    snprintf(seen, sizeof(seen), "%.*s", CF_TEXT_BYTES - 1, task->text);
    task->verdict = task->again ? CF_FAILED : CF_LEFT_OUT;
    snprintf(task->text, sizeof(task->text),
             "%.600s%sended after %.1f s, to keep to the run's time%s%.600s",
             task->again ? seen : "", task->again ? "; the second one " : "",
             (double)(cf_now() - task->begin_ns) / 1e9,
             late ? "; the last call: " : "; until then: ",
             late ? last_call(task->shared, CF_SENDER) : task->shared->text);
}

/* Kills a process, and its group where it leads one. 0: it is not gone after a while, as one that
 * stays inside the kernel. */
static int reap(pid_t pid, int leads, int *status_out)
{
    uint64_t end_ns = xccl_clock_ns() + REAP_MS * CF_MS;
    pid_t got;

    if (kill(leads ? -pid : pid, SIGKILL) != 0 && errno == EPERM)
        return 0;
    while ((got = waitpid(pid, status_out, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        if (xccl_clock_ns() > end_ns)
            return 0;
        cf_sleep_ms(1);
    }
    return 1;
}

void cf_task_end(struct cf_task *task, enum cf_ending ending)
{
    struct cf_shared *shared = task->shared;
    int status = 0, gone = reap(task->pid, 1, &status), verdict;

    /* Pairs with the release in cf_settle(): the text is whole. */
    verdict = atomic_load_explicit(&shared->text_ready, memory_order_acquire)
                  ? atomic_load_explicit(&shared->verdict, memory_order_relaxed)
                  : CF_NONE;
    task->verdict = CF_FAILED;
    if (verdict != CF_NONE) {
        task->verdict = verdict;
        snprintf(task->text, sizeof(task->text), "%s", shared->text);
        if (verdict == CF_FAILED && task->squeezed &&
            atomic_load_explicit(&shared->waited, memory_order_relaxed))
            tell_cut(task, 0);
    } else if (!gone) {
        snprintf(task->text, sizeof(task->text),
                 "its process %d does not end when it is killed, so it stays inside the kernel; "
                 "last call: %s; see /proc/%d/stack",
                 (int)task->pid, last_call(shared, CF_SENDER), (int)task->pid);
    } else if (ending == CF_OVERDUE) {
        tell_overdue(task);
    } else if (ending == CF_AT_DEADLINE && task->cut && (task->squeezed || !is_stuck(task))) {
        tell_cut(task, 1);
    } else if (ending == CF_AT_DEADLINE) {
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
        enum cf_ending ending = CF_BY_ITSELF;

        if (!(fds[i].revents & POLLIN)) {
            if (running[i]->limited && overdue_role(running[i]) >= 0)
                ending = CF_OVERDUE;
            else if (now_ns >= running[i]->end_ns)
                ending = CF_AT_DEADLINE;
            else
                continue;
        }
        cf_task_end(running[i], ending);
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

/* ---- what cases leave running ---- */

/* The first child other than keep; 0: there is none, or the system does not list them. */
static pid_t orphan_find(pid_t keep)
{
    char path[64];
    FILE *file;
    int pid = 0;

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    file = fopen(path, "re");
    if (!file)
        return 0;
    while (pid == 0 && fscanf(file, "%d", &pid) == 1) {
        if (pid == (int)keep)
            pid = 0;
    }
    fclose(file);
    return (pid_t)pid;
}

static int adopts;

/* Not where there are children already: a shell that became this program had them. */
void cf_orphans_adopt(void)
{
    adopts = orphan_find(0) == 0 && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

/* A killed process hands its own children on, so this looks again until there is none. */
void cf_orphans_end(pid_t keep)
{
    pid_t pid;

    for (int i = 0; adopts && i < ORPHANS_MAX; i++) {
        pid = orphan_find(keep);
        if (pid <= 0)
            return;
        if (reap(pid, 0, NULL))
            continue;
        fprintf(
            stderr,
            "xccl net check: process %d, which a case left running, cannot be ended; look at it "
            "with ps\n",
            (int)pid);
        return;
    }
}

int cf_look(const struct xccl_conformance_options *options, uint64_t give_ms,
            struct cf_shared *plugin_out)
{
    static const struct cf_case opened = {.name = "open", .forms = CF_SINGLE};
    struct cf_task task = {.test = &opened, .form = CF_SINGLE, .pidfd = -1, .output_fd = -1};
    int good;

    task.seed = options->seed;
    task.give_ms = give_ms;
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
