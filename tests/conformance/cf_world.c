/* SPDX-License-Identifier: BSD-3-Clause */
/* What belongs to the process and to the host program: descriptors, threads, children, files,
 * environment, signal handlers, folder, standard streams (rule 13). Taken before and compared
 * after. Threads and descriptors of a library may end a moment after its last call, so a
 * difference counts only when it stays for a second.
 *
 * Thread: one; no other of ours may open descriptors meanwhile. */
#include "cf_int.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FDS_MAX     1024
#define FILES_BYTES 16384
#define STAY_MS     (1000 * CF_SLOW)

struct cf_world {
    unsigned char fds[FDS_MAX];
    int threads;
    int children;
    char files[FILES_BYTES]; /* names of ours, a line each */
    uint64_t env_hash;
    char **env; /* copies */
    char folder[512];
    struct stat streams[3];
    struct sigaction signals[65];
    sigset_t mask;
};

/* ---- parts ---- */

static void take_fds(unsigned char fds[FDS_MAX])
{
    DIR *dir = opendir("/proc/self/fd");
    const struct dirent *entry;

    memset(fds, 0, FDS_MAX);
    while (dir && (entry = readdir(dir))) {
        int fd = atoi(entry->d_name);

        if (entry->d_name[0] != '.' && fd != dirfd(dir) && fd < FDS_MAX)
            fds[fd] = 1;
    }
    if (dir)
        closedir(dir);
}

static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;

    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

/* Numbers in a text of the kernel, as children are listed. */
static int count_children(void)
{
    char path[64], text[512];
    int count = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    file = fopen(path, "re");
    if (!file)
        return 0;
    while (fscanf(file, "%511s", text) == 1)
        count++;
    fclose(file);
    return count;
}

/* Whether word stands in name with neither a letter nor a digit beside it: "ib" is in "xt-ib-1",
 * but not in "xt-qRibz0". */
static int has_word(const char *name, const char *word)
{
    size_t bytes = strlen(word);

    for (const char *at = name; bytes && (at = strstr(at, word)); at++) {
        if ((at == name || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[bytes]))
            return 1;
    }
    return 0;
}

/* The folders belong to all programs of the machine. A file there is ours when it is our user's and
 * its name holds our process number or the plugin's name. */
static int is_ours(const struct cf *me, int folder_fd, const char *name)
{
    char number[16];
    struct stat info;

    snprintf(number, sizeof(number), "%d", (int)getpid());
    return (has_word(name, number) || has_word(name, me->shared->name)) &&
           fstatat(folder_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_uid == geteuid();
}

static void take_files(const struct cf *me, char files[FILES_BYTES])
{
    static const char *const folders[] = {"/tmp", "/dev/shm"};
    size_t used = 0;

    files[0] = 0;
    for (int i = 0; i < 2; i++) {
        DIR *dir = opendir(folders[i]);
        const struct dirent *entry;

        while (dir && (entry = readdir(dir))) {
            if (used + 300 < FILES_BYTES && is_ours(me, dirfd(dir), entry->d_name))
                used += (size_t)snprintf(files + used, FILES_BYTES - used, "%s/%s\n", folders[i],
                                         entry->d_name);
        }
        if (dir)
            closedir(dir);
    }
}

static uint64_t hash_env(void)
{
    uint64_t hash = 1469598103934665603u;

    for (char **at = environ; at && *at; at++) {
        for (const char *text = *at; *text; text++)
            hash = (hash ^ (unsigned char)*text) * 1099511628211u;
        hash = (hash ^ '\n') * 1099511628211u;
    }
    return hash;
}

/* NULL: no memory. */
static char **copy_env(void)
{
    size_t count = 0;
    char **copy;

    while (environ && environ[count])
        count++;
    copy = calloc(count + 1, sizeof(*copy));
    for (size_t i = 0; copy && i < count; i++) {
        copy[i] = strdup(environ[i]);
        if (!copy[i])
            return NULL; /* the process ends */
    }
    return copy;
}

static void free_env(char **env)
{
    for (size_t i = 0; env[i]; i++)
        free(env[i]);
    free(env);
}

static void *nothing(void *arg)
{
    return arg;
}

/* A thread sanitizer starts a thread of its own together with the first one of the program. */
static void first_thread(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, nothing, NULL) == 0)
        pthread_join(thread, NULL);
}

struct cf_world *cf_world_take(struct cf *me)
{
    struct cf_world *world = calloc(1, sizeof(*world));

    if (!world)
        cf_skip(me, "no memory");
    first_thread();
    take_fds(world->fds);
    world->threads = count_entries("/proc/self/task");
    world->children = count_children();
    take_files(me, world->files);
    world->env_hash = hash_env();
    world->env = copy_env();
    if (!world->env)
        cf_skip(me, "no memory");
    if (!getcwd(world->folder, sizeof(world->folder)))
        world->folder[0] = 0;
    for (int i = 0; i < 3; i++)
        fstat(i, &world->streams[i]);
    for (int i = 1; i < 65; i++)
        sigaction(i, NULL, &world->signals[i]);
    sigprocmask(SIG_SETMASK, NULL, &world->mask);
    return world;
}

/* ---- comparing ---- */

/* The first descriptor that is there now and was not before; -1: none. */
static int new_fd(const struct cf_world *before)
{
    unsigned char now[FDS_MAX];

    take_fds(now);
    for (int fd = 0; fd < FDS_MAX; fd++) {
        if (now[fd] && !before->fds[fd])
            return fd;
    }
    return -1;
}

static void expect_fds(struct cf *me, const struct cf_world *before, const char *when)
{
    uint64_t end_ns = cf_now() + STAY_MS * CF_MS;
    char path[64], target[256] = "?";
    ssize_t got;
    int fd;

    while ((fd = new_fd(before)) >= 0) {
        if (cf_now() < end_ns) {
            cf_sleep_ms(5);
            continue;
        }
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        got = readlink(path, target, sizeof(target) - 1);
        target[got > 0 ? got : 0] = 0;
        cf_fail(me, "%s descriptor %d (%s) is still open; it was not before", when, fd, target);
    }
}

static void expect_threads(struct cf *me, const struct cf_world *before, const char *when)
{
    uint64_t end_ns = cf_now() + STAY_MS * CF_MS;
    int now;

    while ((now = count_entries("/proc/self/task")) > before->threads) {
        if (cf_now() > end_ns)
            cf_fail(me, "%s %d more threads than before still run", when, now - before->threads);
        cf_sleep_ms(5);
    }
    now = count_children();
    if (now > before->children)
        cf_fail(me, "%s %d more child processes than before exist", when, now - before->children);
}

static int maps_have(const char *pid, const char *path)
{
    char name[300], *line = NULL;
    size_t room = 0;
    FILE *maps;
    int found = 0;

    snprintf(name, sizeof(name), "/proc/%s/maps", pid);
    maps = fopen(name, "re");
    while (maps && !found && getline(&line, &room, maps) > 0)
        found = strstr(line, path) != NULL;
    if (maps)
        fclose(maps);
    free(line);
    return found;
}

/* Another program that came up meanwhile has its own files there. */
static int is_used_elsewhere(const char *path)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    int found = 0;

    while (processes && !found && (entry = readdir(processes))) {
        if (atoi(entry->d_name) > 0 && atoi(entry->d_name) != (int)getpid())
            found = maps_have(entry->d_name, path);
    }
    if (processes)
        closedir(processes);
    return found;
}

static void expect_files(struct cf *me, const struct cf_world *before, const char *when)
{
    char files[FILES_BYTES];

    take_files(me, files);
    for (char *line = strtok(files, "\n"); line; line = strtok(NULL, "\n")) {
        if (!strstr(before->files, line) && !is_used_elsewhere(line) && access(line, F_OK) == 0)
            cf_fail(me, "%s the file %s is left behind", when, line);
    }
}

/* A variable that was not there, or had another value; NULL: one is missing. */
static const char *new_variable(const struct cf_world *before)
{
    for (char **at = environ; at && *at; at++) {
        int found = 0;

        for (size_t i = 0; before->env[i] && !found; i++)
            found = strcmp(before->env[i], *at) == 0;
        if (!found)
            return *at;
    }
    return NULL;
}

static void expect_env(struct cf *me, const struct cf_world *before, const char *when)
{
    const char *name = new_variable(before);

    if (hash_env() != before->env_hash)
        cf_breach(me, "%s the environment has changed (rule 13): %.*s is %s", when,
                  (int)(name ? strcspn(name, "=") : 10), name ? name : "a variable",
                  name ? "new or has another value" : "missing");
}

static void expect_signals(struct cf *me, const struct cf_world *before, const char *when)
{
    struct sigaction now;
    sigset_t mask;

    for (int i = 1; i < 65; i++) {
        memset(&now, 0, sizeof(now));
        if (sigaction(i, NULL, &now) != 0)
            continue;
        if (now.sa_handler != before->signals[i].sa_handler)
            cf_breach(me, "%s the handler of signal %d (SIG%s) has changed (rule 13)", when, i,
                      i < 32 ? sigabbrev_np(i) : "RT");
    }
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int i = 1; i < 65; i++) {
        if (sigismember(&mask, i) != sigismember(&before->mask, i))
            cf_breach(me, "%s the signal mask has changed (signal %d, rule 13)", when, i);
    }
}

static void expect_host(struct cf *me, const struct cf_world *before, const char *when)
{
    char folder[512] = "";
    struct stat stream;

    expect_env(me, before, when);
    if (getcwd(folder, sizeof(folder)) && strcmp(folder, before->folder) != 0)
        cf_breach(me, "%s the working directory has changed to %s (rule 13)", when, folder);
    for (int i = 0; i < 3; i++) {
        memset(&stream, 0, sizeof(stream));
        if (fstat(i, &stream) != 0 || stream.st_ino != before->streams[i].st_ino ||
            stream.st_dev != before->streams[i].st_dev)
            cf_breach(me, "%s standard stream %d is a different file (rule 13)", when, i);
    }
    expect_signals(me, before, when);
}

void cf_world_expect(struct cf *me, struct cf_world *before, int host, const char *when)
{
    expect_fds(me, before, when);
    expect_threads(me, before, when);
    expect_files(me, before, when);
    if (host)
        expect_host(me, before, when);
    free_env(before->env);
    free(before);
}

/* Of the sanitizers, which have an allocator of their own. */
__attribute__((weak)) size_t __sanitizer_get_current_allocated_bytes(void);

size_t cf_heap_bytes(void)
{
    struct mallinfo2 info;

    if (__sanitizer_get_current_allocated_bytes)
        return __sanitizer_get_current_allocated_bytes();
    info = mallinfo2();
    return info.uordblks + info.hblkhd;
}
