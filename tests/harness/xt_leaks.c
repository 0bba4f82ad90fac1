/* SPDX-License-Identifier: BSD-3-Clause */
/* Leak checks: what a test or rank has left behind compared with what there was when it began.
 * Memory of counted allocators, descriptors, threads, child processes, and files where the library
 * may leave some. Threads and files get a second to go away, because a detached thread ends when it
 * likes. All new files count in the test's own folder of records, except that a killed process may
 * leave its record. /dev/shm belongs to all users and programs: there a new file counts if it is
 * our user's and its name holds the number of this process or of one that the harness forked for
 * it. The library names all of its files so.
 * Thread: the main thread of a test or rank. */
#include "xt_int.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GRACE_MS   1000
#define FORKED_MAX 4096 /* processes; the oldest are forgotten */

enum folder { FOLDER_FDS, FOLDER_THREADS, FOLDER_RUN, FOLDER_SHM, FOLDER_SHM_RUN, FOLDER_COUNT };

struct xt_snapshot {
    uint64_t live_blocks;
    char paths[FOLDER_COUNT][XT_PATH_BYTES];
    char *names[FOLDER_COUNT]; /* "\nname\nname\n" */
};

struct text {
    char *bytes;
    size_t room, used;
};

static pid_t forked[FORKED_MAX];
static unsigned forked_count;

static void text_add(struct text *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void text_add(struct text *text, const char *fmt, ...)
{
    va_list args;
    int count;

    va_start(args, fmt);
    count = vsnprintf(text->bytes + text->used, text->room - text->used, fmt, args);
    va_end(args);
    if (count < 0)
        return;
    text->used += (size_t)count;
    if (text->used >= text->room)
        text->used = text->room - 1;
}

/* The names in a folder, each between newlines; an absent folder is an empty one. */
static char *list_names(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    char *names = NULL, own_fd[16] = "";
    size_t bytes = 0;
    FILE *out = open_memstream(&names, &bytes);

    if (!out)
        abort();
    if (dir)
        snprintf(own_fd, sizeof(own_fd), "%d", dirfd(dir));
    fputc('\n', out);
    while (dir && (entry = readdir(dir))) {
        bool is_own_fd = strcmp(path, "/proc/self/fd") == 0 && strcmp(entry->d_name, own_fd) == 0;

        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && !is_own_fd)
            fprintf(out, "%s\n", entry->d_name);
    }
    if (dir)
        closedir(dir);
    fclose(out);
    return names;
}

int xt_entries(const char *path)
{
    char *names = list_names(path);
    int count = 0;

    for (const char *at = names + 1; *at; at++)
        count += *at == '\n';
    free(names);
    return count;
}

int xt_threads_named(const char *begin)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;
    int count = 0;

    XT_CHECK(dir != NULL);
    while ((entry = readdir(dir))) {
        char path[320], name[32] = "";
        FILE *file;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        file = fopen(path, "re");
        if (!file)
            continue; /* it has ended */
        (void)!fgets(name, sizeof(name), file);
        fclose(file);
        count += strncmp(name, begin, strlen(begin)) == 0;
    }
    closedir(dir);
    return count;
}

int xt_threads_left(const char *begin, int want)
{
    int count = xt_threads_named(begin);

    for (int ms = 0; ms < 2000 && count > want; ms++) {
        usleep(1000);
        count = xt_threads_named(begin);
    }
    return count;
}

/* Steps through names: the next name that is not in before, or NULL. */
static const char *next_new(char **cursor, const char *before)
{
    char *name, needle[NAME_MAX + 3];

    while ((name = strsep(cursor, "\n"))) {
        if (!name[0])
            continue;
        snprintf(needle, sizeof(needle), "\n%s\n", name);
        if (!strstr(before, needle))
            return name;
    }
    return NULL;
}

/* What one entry of a folder points to (a descriptor), or a thread's name. */
static void describe(enum folder folder, const char *path, const char *name, char *what,
                     size_t bytes)
{
    char entry[XT_PATH_BYTES + NAME_MAX + 8];
    FILE *file;

    what[0] = '\0';
    if (folder == FOLDER_FDS) {
        ssize_t used;

        snprintf(entry, sizeof(entry), "%s/%s", path, name);
        used = readlink(entry, what, bytes - 1);
        what[used > 0 ? used : 0] = '\0';
    } else if (folder == FOLDER_THREADS) {
        snprintf(entry, sizeof(entry), "%s/%s/comm", path, name);
        file = fopen(entry, "re");
        if (file && fgets(what, (int)bytes, file))
            what[strcspn(what, "\n")] = '\0';
        if (file)
            fclose(file);
    }
}

/* The record of another process: a rank's, which looks itself, or of one that was killed, which may
 * leave it. */
static bool is_others_record(const char *name)
{
    const char *dot = strrchr(name, '.');
    long pid = atol(name + (name[0] == '.')); /* a dot begins the name of one that is being made */

    return dot && strcmp(dot, ".record") == 0 && pid != (long)getpid();
}

void xt_forked(pid_t pid)
{
    forked[forked_count++ % FORKED_MAX] = pid;
}

/* This process, or one that it has forked by way of the harness. */
static bool is_own_pid(unsigned long pid)
{
    for (unsigned i = 0; i < forked_count && i < FORKED_MAX; i++) {
        if (pid == (unsigned long)forked[i])
            return true;
    }
    return pid == (unsigned long)getpid();
}

/* As a word: within a longer number or a hexadecimal one it is chance. */
static bool names_own_pid(const char *name)
{
    for (const char *at = name; *at; at++) {
        char *end;
        unsigned long pid = strtoul(at, &end, 10);

        if (isdigit((unsigned char)*at) && (at == name || !isalnum((unsigned char)at[-1])) &&
            !isalnum((unsigned char)*end) && is_own_pid(pid))
            return true;
    }
    return false;
}

/* Whether a new file in a folder that all programs of the machine share is of this test. Nothing
 * but its name can tell: other programs, of this user too, make and remove files meanwhile. */
static bool is_ours(enum folder folder, const char *path, const char *name)
{
    char entry[XT_PATH_BYTES + NAME_MAX + 2];
    struct stat info;

    if (folder == FOLDER_SHM && strncmp(name, "xccl", 4) != 0)
        return false;
    /* The folder of records stays, and its number is a user's. */
    snprintf(entry, sizeof(entry), "xccl-%u", (unsigned)geteuid());
    if (strcmp(name, entry) == 0 || !names_own_pid(name))
        return false;
    snprintf(entry, sizeof(entry), "%s/%s", path, name);
    return lstat(entry, &info) == 0 && info.st_uid == geteuid();
}

/* Whether an entry may be new without being a leak of this test. */
static bool is_allowed(enum folder folder, const char *path, const char *name)
{
    if (folder < FOLDER_RUN)
        return false;
    return is_others_record(name) || (folder != FOLDER_RUN && !is_ours(folder, path, name));
}

static void compare_once(const struct xt_snapshot *before, enum folder folder, struct text *text)
{
    static const char *const nouns[FOLDER_COUNT] = {"descriptor", "thread", "file", "file", "file"};
    const char *path = before->paths[folder], *name;
    char *names = list_names(path), *cursor = names, what[512];

    while ((name = next_new(&cursor, before->names[folder]))) {
        if (is_allowed(folder, path, name))
            continue;
        describe(folder, path, name, what, sizeof(what));
        if (folder >= FOLDER_RUN)
            text_add(text, "; file %s/%s", path, name);
        else
            text_add(text, "; %s %s (%s)", nouns[folder], name, what);
    }
    free(names);
}

/* Looks until nothing is new or the grace is over; only the last look counts. */
static void compare_folder(const struct xt_snapshot *before, enum folder folder, struct text *text)
{
    const struct timespec nap = {.tv_nsec = 2000000};
    int64_t end_ms = xt_now_ms() + (folder == FOLDER_FDS ? 0 : GRACE_MS);
    size_t used = text->used;

    for (;;) {
        text->used = used;
        text->bytes[used] = '\0';
        compare_once(before, folder, text);
        if (text->used == used || xt_now_ms() >= end_ms)
            return;
        nanosleep(&nap, NULL);
    }
}

static void compare_children(struct text *text)
{
    char path[XT_PATH_BYTES], pids[256] = "";
    pid_t pid;
    FILE *file;

    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
        text_add(text, "; child process %d has ended, but nobody waited for it", (int)pid);
    if (pid < 0)
        return;
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    file = fopen(path, "re");
    if (file && !fgets(pids, sizeof(pids), file))
        pids[0] = '\0';
    if (file)
        fclose(file);
    text_add(text, "; child process %sstill runs", pids);
}

#if XT_TSAN
static void *idle_run(void *arg)
{
    return arg;
}
#endif

struct xt_snapshot *xt_snapshot_take(void)
{
    struct xt_snapshot *snapshot = calloc(1, sizeof(*snapshot));
    const char *run = getenv("XDG_RUNTIME_DIR");

    if (!snapshot)
        abort();
#if XT_TSAN
    /* The sanitizer starts a thread of its own with the program's first; it must be in the list. */
    pthread_t idle;

    if (pthread_create(&idle, NULL, idle_run, NULL) == 0)
        pthread_join(idle, NULL);
#endif
    forked_count = 0;
    snprintf(snapshot->paths[FOLDER_FDS], XT_PATH_BYTES, "/proc/self/fd");
    snprintf(snapshot->paths[FOLDER_THREADS], XT_PATH_BYTES, "/proc/self/task");
    snprintf(snapshot->paths[FOLDER_SHM], XT_PATH_BYTES, "/dev/shm");
    snprintf(snapshot->paths[FOLDER_RUN], XT_PATH_BYTES, "%s/xccl", run ? run : "/nonexistent");
    snprintf(snapshot->paths[FOLDER_SHM_RUN], XT_PATH_BYTES, "/dev/shm/xccl-%u", getuid());
    for (int i = 0; i < FOLDER_COUNT; i++)
        snapshot->names[i] = list_names(snapshot->paths[i]);
    snapshot->live_blocks = xt_live_blocks();
    return snapshot;
}

void xt_snapshot_compare(struct xt_snapshot *before, char *text, size_t bytes)
{
    struct text out = {.bytes = text, .room = bytes};
    uint64_t live_blocks;

    text[0] = '\0';
    compare_children(&out);
    compare_folder(before, FOLDER_THREADS, &out);
    /* After the threads: one that was still ending may have held memory. */
    live_blocks = xt_live_blocks();
    if (live_blocks > before->live_blocks)
        text_add(&out, "; %llu blocks of memory",
                 (unsigned long long)(live_blocks - before->live_blocks));
    for (int i = 0; i < FOLDER_COUNT; i++) {
        if (i != FOLDER_THREADS)
            compare_folder(before, (enum folder)i, &out);
        free(before->names[i]);
    }
    free(before);
}
