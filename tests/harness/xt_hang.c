/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a hanging test hangs: before it is killed, every thread of its process group is written
 * down with its name and what it waits for in the kernel, below the test's own output. Limits: a
 * thread that computes has no place in the kernel and shows as running. Thread: the runner. */
#include "xt_int.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The first line of a small file of /proc, "" if there is none. */
static void read_line(char *text, size_t bytes, int pid, const char *tid, const char *name)
{
    char path[XT_PATH_BYTES + 64];
    FILE *file;

    text[0] = '\0';
    snprintf(path, sizeof(path), "/proc/%d/task/%s/%s", pid, tid, name);
    file = fopen(path, "re");
    if (!file)
        return;
    if (!fgets(text, (int)bytes, file))
        text[0] = '\0';
    fclose(file);
    text[strcspn(text, "\n")] = '\0';
}

void xt_show_process(int fd, pid_t pid)
{
    char path[64], name[64], place[128];
    struct dirent *entry;
    DIR *tasks;

    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    tasks = opendir(path);
    while (tasks && (entry = readdir(tasks))) {
        if (entry->d_name[0] == '.')
            continue;
        read_line(name, sizeof(name), pid, entry->d_name, "comm");
        read_line(place, sizeof(place), pid, entry->d_name, "wchan");
        if (place[0] == '\0' || strcmp(place, "0") == 0)
            snprintf(place, sizeof(place), "running");
        dprintf(fd, "process %d thread %s (%s): %s\n", pid, entry->d_name, name, place);
    }
    if (tasks)
        closedir(tasks);
}

void xt_show_group(int fd, pid_t group)
{
    struct dirent *entry;
    DIR *processes = opendir("/proc");

    while (processes && (entry = readdir(processes))) {
        int pid = atoi(entry->d_name);

        if (pid > 0 && getpgid(pid) == group)
            xt_show_process(fd, pid);
    }
    if (processes)
        closedir(processes);
}
