/* SPDX-License-Identifier: BSD-3-Clause */
/* Two network namespaces joined by a veth pair stand for two hosts. Root makes them as they are;
 * anybody else inside a user namespace, where the kernel lets them. A keeper process makes them,
 * runs the ip program, and hands over descriptors; the namespaces go with the last descriptor.
 *
 * Thread: one, the only one of its process. */
#include "cf_hosts.h"
#include "cf_run.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

/* $1, $2: processes that live in the two namespaces. The keeper itself is in the first. */
static const char script[] =
    "set -e; PATH=$PATH:/usr/sbin:/sbin;"
    "command -v ip >/dev/null 2>&1 || exit 70;"
    "ip link add xcf0 type veth peer name xcf1 netns $2;"
    "ip addr add 10.77.0.1/24 dev xcf0; ip addr add fd77::1/64 dev xcf0 nodad;"
    "ip link set lo up; ip link set xcf0 up;"
    "nsenter -t $2 -n sh -c 'ip addr add 10.77.0.2/24 dev xcf1;"
    "ip addr add fd77::2/64 dev xcf1 nodad; ip link set lo up; ip link set xcf1 up;"
    /* The kernel says a little later that a link runs, and UCX takes no other. */
    "for i in 1 2 3 4 5 6 7 8 9 10; do ip -o link show xcf1 | grep -q \"state UP\" && break;"
    "sleep 0.05; done'";

static int write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0)
        close(fd);
    return good;
}

int cf_hosts_become_root(void)
{
    char map[64];
    unsigned uid = (unsigned)geteuid(), gid = (unsigned)getegid();

    if (unshare(CLONE_NEWUSER) != 0)
        return 0;
    snprintf(map, sizeof(map), "0 %u 1", uid);
    if (!write_text("/proc/self/setgroups", "deny") || !write_text("/proc/self/uid_map", map))
        return 0;
    snprintf(map, sizeof(map), "0 %u 1", gid);
    return write_text("/proc/self/gid_map", map);
}

/* A process in a namespace of its own that waits to be ended. */
static pid_t start_second(void)
{
    int ready[2];
    char word = 0;
    pid_t pid, parent = getpid();

    if (pipe2(ready, O_CLOEXEC) != 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        cf_die_with(parent);
        word = unshare(CLONE_NEWNET) == 0;
        if (write(ready[1], &word, 1) != 1 || !word)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    if (read(ready[0], &word, 1) != 1 || !word) {
        close(ready[0]);
        return -1;
    }
    close(ready[0]);
    return pid;
}

static int run_script(pid_t second)
{
    char number[16];
    pid_t pid;
    int status = -1;

    snprintf(number, sizeof(number), "%d", (int)second);
    pid = fork();
    if (pid == 0) {
        int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

        dup2(fd, 1);
        dup2(fd, 2);
        execl("/bin/sh", "sh", "-c", script, "hosts", "", number, (char *)NULL);
        _exit(71);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Tells the runner over the pipe: a text (why not), or "" and the second process's number. */
static _Noreturn void keep(int fd, pid_t parent)
{
    struct {
        char reason[160];
        pid_t second;
        int user;
    } word;

    memset(&word, 0, sizeof(word));
    cf_die_with(parent);
    if (geteuid() != 0) {
        word.user = 1;
        if (!cf_hosts_become_root())
            snprintf(word.reason, sizeof(word.reason), "needs root or user namespaces: %s",
                     strerrordesc_np(errno));
    }
    if (!word.reason[0] && unshare(CLONE_NEWNET) != 0)
        snprintf(word.reason, sizeof(word.reason), "network namespaces are not allowed here: %s",
                 strerrordesc_np(errno));
    if (!word.reason[0]) {
        int status = -1;

        word.second = start_second();
        if (word.second > 0)
            status = run_script(word.second);
        if (status == 70)
            snprintf(word.reason, sizeof(word.reason), "needs the ip program (package iproute2)");
        else if (status != 0)
            snprintf(word.reason, sizeof(word.reason),
                     "cannot connect two network namespaces here");
    }
    if (write(fd, &word, sizeof(word)) != (ssize_t)sizeof(word))
        _exit(1);
    for (;;)
        pause();
}

static int open_of(pid_t pid, const char *what)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, what);
    return open(path, O_RDONLY | O_CLOEXEC);
}

int cf_hosts_make(struct cf_hosts *hosts)
{
    struct {
        char reason[160];
        pid_t second;
        int user;
    } word;
    pid_t parent = getpid();
    int ends[2];

    if (hosts->tried)
        return hosts->reason[0] == 0;
    *hosts = (struct cf_hosts){.tried = 1, .user_fd = -1, .net_fds = {-1, -1}};
    memset(&word, 0, sizeof(word));
    snprintf(hosts->reason, sizeof(hosts->reason), "cannot create network namespaces here");
    if (pipe2(ends, O_CLOEXEC) != 0)
        return 0;
    hosts->keeper = fork();
    if (hosts->keeper == 0) {
        close(ends[0]);
        keep(ends[1], parent);
    }
    close(ends[1]);
    if (hosts->keeper > 0 && read(ends[0], &word, sizeof(word)) == (ssize_t)sizeof(word))
        snprintf(hosts->reason, sizeof(hosts->reason), "%s", word.reason);
    close(ends[0]);
    if (hosts->reason[0])
        return 0;
    if (word.user)
        hosts->user_fd = open_of(hosts->keeper, "user");
    hosts->net_fds[0] = open_of(hosts->keeper, "net");
    hosts->net_fds[1] = open_of(word.second, "net");
    if (hosts->net_fds[0] < 0 || hosts->net_fds[1] < 0)
        snprintf(hosts->reason, sizeof(hosts->reason), "cannot open /proc/PID/ns/net");
    return hosts->reason[0] == 0;
}

int cf_hosts_open(struct cf_hosts *hosts, const char *first, const char *second)
{
    *hosts = (struct cf_hosts){.tried = 1, .user_fd = -1, .net_fds = {-1, -1}};
    for (int i = 0; i < CF_HOSTS; i++) {
        const char *name = i ? second : first;
        char path[160];

        snprintf(path, sizeof(path), "%s%s", strchr(name, '/') ? "" : "/run/netns/", name);
        hosts->net_fds[i] = open(path, O_RDONLY | O_CLOEXEC);
        if (hosts->net_fds[i] >= 0)
            continue;
        snprintf(hosts->reason, sizeof(hosts->reason), "cannot open %s: %s", path,
                 strerrordesc_np(errno));
        return 0;
    }
    return 1;
}

void cf_hosts_drop(struct cf_hosts *hosts)
{
    if (!hosts->tried)
        return;
    if (hosts->keeper > 0) {
        kill(hosts->keeper, SIGKILL);
        waitpid(hosts->keeper, NULL, 0);
    }
    for (int i = 0; i < CF_HOSTS; i++) {
        if (hosts->net_fds[i] >= 0)
            close(hosts->net_fds[i]);
    }
    if (hosts->user_fd >= 0)
        close(hosts->user_fd);
}

/* /sys shows the interfaces of the namespace in which it was mounted, and UCX looks for them there.
 * Where it may not be mounted anew plugins see what they would see in such a container. */
static void show_own_sysfs(void)
{
    if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        (void)mount("sysfs", "/sys", "sysfs", 0, NULL);
}

int cf_hosts_enter(const struct cf_hosts *hosts, int host)
{
    if (hosts->user_fd >= 0 && setns(hosts->user_fd, CLONE_NEWUSER) != 0)
        return 0;
    if (setns(hosts->net_fds[host], CLONE_NEWNET) != 0)
        return 0;
    show_own_sysfs();
    return 1;
}
