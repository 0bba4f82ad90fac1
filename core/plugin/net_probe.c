/* SPDX-License-Identifier: BSD-3-Clause */
/* Trying a network plugin or a tuner out in a process of its own: a program that comes with this
 * library loads the file, makes an instance, and writes a line before each step. If it dies or does
 * not come back, the last line says where, and this process never loads the file. The answer is
 * kept: a file is not tried again here while it stays the same.
 *
 * Where the program is missing or may not be started, plugins are loaded untried, with one line.
 * Settings of the plugin itself are the same in both: the environment is handed on. Thread: any. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/param.h"
#include "plugin/net_plugin_int.h"

#define PROGRAM    "xccl-probe"
#define KNOWN_MAX  32
#define ANSWER_MAX 512
#define REAP_MS    1000 /* for a killed process to be gone */
#define LOOK_NS    200000 /* it ends right after its last word */

extern char **environ;

struct known {
    enum net_probe_answer answer; /* GOOD or BAD */
    struct net_reason why; /* BAD */
    char path[NET_PATH_BYTES];
    int contract;
    enum net_probe_depth depth;
    struct xccl_file_id id; /* zeroes of a soname */
};
static struct known known[KNOWN_MAX];
static unsigned known_count; /* all ever noted; the oldest makes room */
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

/* A soname is looked for by the loader: its file is not known, and its name has to do. */
static struct known describe(const char *path, const struct xccl_file_id *id, int contract,
                             enum net_probe_depth depth)
{
    struct known this = {.contract = contract, .depth = depth};

    snprintf(this.path, sizeof(this.path), "%s", path);
    if (id)
        this.id = *id;
    return this;
}

/* One that has made an instance has been loaded, too. */
static int is_covered(enum net_probe_depth depth, enum net_probe_depth by)
{
    return depth == by || (depth == NET_PROBE_LOAD && by == NET_PROBE_INIT);
}

/* 1: it has been tried, and this has the answer then. */
static int recall(struct known *this)
{
    int found = 0;

    pthread_mutex_lock(&known_lock);
    for (unsigned i = 0; i < known_count && i < KNOWN_MAX && !found; i++) {
        const struct known *k = &known[i];

        found = k->contract == this->contract && is_covered(this->depth, k->depth) &&
                xccl_file_id_is_same(&k->id, &this->id) && strcmp(k->path, this->path) == 0;
        if (found) {
            this->answer = k->answer;
            this->why = k->why;
        }
    }
    pthread_mutex_unlock(&known_lock);
    return found;
}

static void note(const struct known *this)
{
    pthread_mutex_lock(&known_lock);
    known[known_count++ % KNOWN_MAX] = *this;
    pthread_mutex_unlock(&known_lock);
}

/* The program lies with the plugins of this library; folders that a user added do not count. */
static int find_program(char path_out[NET_PATH_BYTES], struct net_reason *reason)
{
    struct net_folders folders;
    struct xccl_file_id id;

    net_reason_set(reason, PROGRAM " is missing in the folder of the plugins");
    net_folders_find(&folders);
    for (int i = 0; i < folders.count; i++) {
        if (folders.own[i] &&
            (size_t)snprintf(path_out, NET_PATH_BYTES, "%s/" PROGRAM, folders.path[i]) <
                NET_PATH_BYTES &&
            access(path_out, X_OK) == 0 && net_file_trusted(path_out, &id, reason))
            return 1;
    }
    return 0;
}

void net_probe_id_format(const struct xccl_file_id *id, char text_out[NET_PROBE_ID_BYTES])
{
    snprintf(text_out, NET_PROBE_ID_BYTES, "%llu:%llu:%lld:%lld.%ld:%lld.%ld",
             (unsigned long long)id->dev, (unsigned long long)id->ino, (long long)id->bytes,
             (long long)id->modified.tv_sec, id->modified.tv_nsec, (long long)id->changed.tv_sec,
             id->changed.tv_nsec);
}

int net_probe_id_parse(const char *text, struct xccl_file_id *id_out)
{
    unsigned long long dev, ino;
    long long bytes, modified, changed;
    char rest;

    if (sscanf(text, "%llu:%llu:%lld:%lld.%ld:%lld.%ld%c", &dev, &ino, &bytes, &modified,
               &id_out->modified.tv_nsec, &changed, &id_out->changed.tv_nsec, &rest) != 7)
        return 0;
    id_out->dev = dev;
    id_out->ino = ino;
    id_out->bytes = bytes;
    id_out->modified.tv_sec = modified;
    id_out->changed.tv_sec = changed;
    return 1;
}

/* Starts it; 0 or an errno. The caller closes *fd_out and reaps. */
static int start(const char *program, const struct known *this, const char *id, pid_t *pid_out,
                 int *fd_out)
{
    char number[16];
    static const char *const words[] = {
        [NET_PROBE_LOAD] = "load", [NET_PROBE_INIT] = "init", [NET_PROBE_TUNER] = "tuner"};
    const char *argv[] = {program, this->path, number, words[this->depth], id, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    int fds[2], rc;

    snprintf(number, sizeof(number), "%d", this->contract);
    if (pipe2(fds, O_CLOEXEC) != 0)
        return errno;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    /* What the host program ignores or blocks must not keep the probe from dying. */
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    rc = posix_spawn(pid_out, program, &actions, &attributes, (char **)(uintptr_t)argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    if (rc != 0)
        close(fds[0]);
    *fd_out = fds[0];
    return rc;
}

/* The last word has come: what still holds the pipe open, a helper of the plugin, need not end. */
static int is_final(const char *answer, size_t bytes)
{
    static const char *const words[] = {"\n" NET_PROBE_WORD_DONE "\n",
                                        "\n" NET_PROBE_WORD_ABSENT "\n"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t length = strlen(words[i]);

        if (bytes >= length && strcmp(answer + bytes - length, words[i]) == 0)
            return 1;
    }
    return 0;
}

/* Reads until it has ended or the time is over; 1: it has ended. Lines that do not fit are lost. */
static int listen_to(int fd, uint64_t end_ns, char answer_out[ANSWER_MAX])
{
    size_t have = 0;

    answer_out[0] = 0;
    for (;;) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        uint64_t now_ns = xccl_clock_ns();
        char bytes[256];
        ssize_t got;

        if (now_ns >= end_ns)
            return 0;
        if (poll(&poller, 1, (int)((end_ns - now_ns) / XCCL_NS_PER_MS) + 1) <= 0)
            continue;
        got = read(fd, bytes, sizeof(bytes));
        if (got == 0)
            return 1;
        if (got < 0 && errno != EINTR)
            return 1;
        for (ssize_t i = 0; i < got && have + 1 < ANSWER_MAX; i++)
            answer_out[have++] = bytes[i];
        answer_out[have] = 0;
        if (is_final(answer_out, have))
            return 1;
    }
}

/* Its status; -1 when somebody else of this process has waited for it. */
static int reap(pid_t pid, int ended, int *killed_out)
{
    uint64_t end_ns = xccl_clock_ns() + REAP_MS * XCCL_NS_PER_MS;
    int status = -1;

    while (xccl_clock_ns() < end_ns) {
        pid_t got = waitpid(pid, &status, WNOHANG);

        if (got == pid)
            return status;
        if (got < 0 && errno != EINTR)
            return -1;
        /* It is ours as long as waitpid finds it: no other process has the number. */
        if (got == 0 && (!ended || xccl_clock_ns() + REAP_MS / 2 * XCCL_NS_PER_MS > end_ns))
            *killed_out = kill(pid, SIGKILL) == 0;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    return -1;
}

/* The last whole line. */
static const char *last_line(char answer[ANSWER_MAX])
{
    size_t bytes = strlen(answer);
    char *line;

    while (bytes > 0 && answer[bytes - 1] == '\n')
        answer[--bytes] = 0;
    line = strrchr(answer, '\n');
    return line ? line + 1 : answer;
}

static void tell_untried(const char *why)
{
    static atomic_int told;

    /* Relaxed: only one line more or less. */
    if (!atomic_exchange_explicit(&told, 1, memory_order_relaxed))
        xccl_log(XCCL_LOG_INFO, "plugins are loaded without being tested first: %s", why);
}

/* What came of a probe that was started. */
static enum net_probe_answer judge(pid_t pid, int fd, int limit_s, struct net_reason *reason)
{
    char answer[ANSWER_MAX];
    int ended = listen_to(fd, xccl_clock_ns() + (uint64_t)limit_s * XCCL_NS_PER_S, answer);
    const char *line = last_line(answer);
    int status, killed = 0;

    close(fd);
    status = reap(pid, ended, &killed);
    if (strcmp(line, NET_PROBE_WORD_DONE) == 0)
        return NET_PROBE_GOOD;
    if (strcmp(line, NET_PROBE_WORD_ABSENT) == 0)
        return NET_PROBE_ABSENT;
    if (!ended || killed)
        net_reason_set(reason, "it does not return from %.64s within %d s (XCCL_PLUGIN_PROBE_S)",
                       line, limit_s);
    else if (status != -1 && WIFSIGNALED(status))
        net_reason_set(reason, "it crashes in %.64s: signal %d (%s)", line, WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    else
        net_reason_set(reason, "it ends the process in %.64s", line);
    return NET_PROBE_BAD;
}

enum net_probe_answer net_probe(const char *path, const struct xccl_file_id *id, int contract,
                                enum net_probe_depth depth, struct net_reason *reason)
{
    struct known this = describe(path, id, contract, depth);
    int limit_s = (int)xccl_param_int(XCCL_P_PLUGIN_PROBE_S), fd = -1, err;
    char program[NET_PATH_BYTES], id_text[NET_PROBE_ID_BYTES] = "";
    struct net_reason why;
    pid_t pid = -1;

    if (limit_s == 0)
        return NET_PROBE_GOOD;
    if (recall(&this)) {
        *reason = this.why;
        return this.answer;
    }
    if (!find_program(program, &why)) {
        tell_untried(why.text);
        return NET_PROBE_GOOD;
    }
    if (id)
        net_probe_id_format(id, id_text);
    err = start(program, &this, id_text, &pid, &fd);
    if (err) {
        tell_untried(strerror(err));
        return NET_PROBE_GOOD;
    }
    this.answer = judge(pid, fd, limit_s, reason);
    if (id && !net_file_is(path, id, "while it was tried out", reason))
        return NET_PROBE_BAD;
    this.why = *reason;
    if (this.answer != NET_PROBE_ABSENT)
        note(&this);
    return this.answer;
}
