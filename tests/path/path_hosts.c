/* SPDX-License-Identifier: BSD-3-Clause */
/* See path_hosts.h. A maker process creates the namespaces, inside a user namespace unless it is
 * root, sends descriptors of them and ends; from then on only the descriptors hold them. The ip and
 * tc programs do the rest.
 *
 * Thread: the main one of a process. */
#include "path_hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cf_hosts.h"
#include "xt.h"

#define SCRIPT_BYTES 8192
#define FDS_MAX      (PATH_HOSTS_MAX + 1)
#define NOBODY       "02:00:00:00:00:99"
#define LATENCY_MS   50 /* the most that a shaped rail keeps waiting before it drops */

/* ---- making namespaces ---- */

/* What the maker tells, with the descriptors: those of the hosts, then of the user namespace. */
struct made {
    char reason[128]; /* "" when they are there */
    int fd_count;
};

static void make_namespaces(int host_count, struct made *made, int fds[FDS_MAX])
{
    int user = geteuid() != 0;

    if (user && !cf_hosts_become_root()) {
        snprintf(made->reason, sizeof(made->reason), "needs root or user namespaces: %s",
                 strerror(errno));
        return;
    }
    for (int i = 0; i < host_count + user; i++) {
        if (i < host_count && unshare(CLONE_NEWNET) != 0) {
            snprintf(made->reason, sizeof(made->reason),
                     "network namespaces are not allowed here: %s", strerror(errno));
            return;
        }
        fds[i] = open(i < host_count ? "/proc/self/ns/net" : "/proc/self/ns/user",
                      O_RDONLY | O_CLOEXEC);
        if (fds[i] < 0) {
            snprintf(made->reason, sizeof(made->reason), "cannot open /proc/self/ns: %s",
                     strerror(errno));
            return;
        }
        made->fd_count = i + 1;
    }
}

_Noreturn static void maker_run(int socket_fd, int host_count)
{
    struct made made = {.fd_count = 0};
    int fds[FDS_MAX];
    union {
        char bytes[CMSG_SPACE(sizeof(fds))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    struct iovec iov = {&made, sizeof(made)};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

    make_namespaces(host_count, &made, fds);
    if (!made.reason[0]) {
        size_t bytes = sizeof(int) * (size_t)made.fd_count;
        struct cmsghdr *head = &control.align;

        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(head), fds, bytes);
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(bytes);
    }
    _exit(sendmsg(socket_fd, &message, 0) == (ssize_t)sizeof(made) ? 0 : 1);
}

static void receive_namespaces(int socket_fd, struct made *made, int fds[FDS_MAX])
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * FDS_MAX)];
        struct cmsghdr align;
    } control;
    struct iovec iov = {made, sizeof(*made)};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *head;

    if (recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*made))
        XT_FAIL("the process that makes namespaces said nothing");
    head = CMSG_FIRSTHDR(&message);
    if (head)
        memcpy(fds, CMSG_DATA(head), sizeof(int) * (size_t)made->fd_count);
}

static void namespaces_open(struct path_hosts *hosts)
{
    struct made made = {.fd_count = 0};
    int ends[2], fds[FDS_MAX] = {0};
    pid_t pid;

    XT_CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid = fork();
    XT_CHECK(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        maker_run(ends[1], hosts->host_count);
    }
    close(ends[1]);
    receive_namespaces(ends[0], &made, fds);
    close(ends[0]);
    XT_CHECK_INT(waitpid(pid, NULL, 0), pid);
    if (made.reason[0])
        XT_SKIP("%s", made.reason);
    for (int i = 0; i < hosts->host_count; i++)
        hosts->net_fds[i] = fds[i];
    if (made.fd_count > hosts->host_count)
        hosts->user_fd = fds[hosts->host_count];
}

static int try_enter(const struct path_hosts *hosts, int host)
{
    if (hosts->user_fd >= 0 && setns(hosts->user_fd, CLONE_NEWUSER) != 0)
        return 0;
    return setns(hosts->net_fds[host], CLONE_NEWNET) == 0;
}

void path_hosts_enter(const struct path_hosts *hosts, int host)
{
    if (!try_enter(hosts, host))
        XT_FAIL("cannot enter the namespace of host %d: %s", host, strerror(errno));
}

void path_hosts_drop(struct path_hosts *hosts)
{
    for (int i = 0; i < hosts->host_count; i++)
        close(hosts->net_fds[i]);
    if (hosts->user_fd >= 0)
        close(hosts->user_fd);
}

/* ---- scripts ---- */

_Noreturn static void script_run(const struct path_hosts *hosts, int host, const char *script,
                                 int output_fd)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (!try_enter(hosts, host))
        _exit(126);
    for (int i = 0; i < hosts->host_count; i++)
        (void)fcntl(hosts->net_fds[i], F_SETFD, 0); /* scripts name them */
    dup2(null, 0);
    dup2(output_fd, 1);
    dup2(output_fd, 2);
    execl("/bin/sh", "sh", "-c", script, (char *)NULL);
    _exit(127);
}

/* Returns the wait status; what it printed is in text_out. */
static int script_try(const struct path_hosts *hosts, int host, const char *script,
                      char text_out[512])
{
    int fd = memfd_create("script", MFD_CLOEXEC), status = -1;
    ssize_t got;
    pid_t pid;

    XT_CHECK(fd >= 0);
    fflush(NULL);
    pid = fork();
    XT_CHECK(pid >= 0);
    if (pid == 0)
        script_run(hosts, host, script, fd);
    XT_CHECK_INT(waitpid(pid, &status, 0), pid);
    got = pread(fd, text_out, 511, 0);
    text_out[got > 0 ? got : 0] = '\0';
    close(fd);
    return status;
}

void path_hosts_run(const struct path_hosts *hosts, int host, const char *script)
{
    char full[SCRIPT_BYTES + 64], text[512];
    int status;

    snprintf(full, sizeof(full), "set -e; PATH=$PATH:/usr/sbin:/sbin; %s", script);
    status = script_try(hosts, host, full, text);
    if (status != 0)
        XT_FAIL("on host %d the script '%s' ended with status %d: %s", host, script, status, text);
}

struct script {
    char text[SCRIPT_BYTES];
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void script_add(struct script *script, const char *fmt,
                                                             ...)
{
    va_list args;
    int count;

    va_start(args, fmt);
    count = vsnprintf(script->text + script->used, SCRIPT_BYTES - script->used, fmt, args);
    va_end(args);
    XT_CHECK(count >= 0 && (size_t)count < SCRIPT_BYTES - script->used);
    script->used += (size_t)count;
}

/* ---- rails ---- */

void path_rail_address(const struct path_hosts *hosts, int rail, int host, int ipv6,
                       char text_out[PATH_ADDR_BYTES])
{
    snprintf(text_out, PATH_ADDR_BYTES, ipv6 ? "fd77:%x::%d" : "10.77.%d.%d",
             (unsigned)hosts->rails[rail].subnet, 1 + 2 * rail + (host != 0));
}

double path_rail_bytes(const struct path_rail *rail)
{
    const double payload = PATH_MTU + 14 - PATH_HEADER_BYTES;

    return rail->kbit * 1000.0 / 8 * payload / (PATH_MTU + 14);
}

/* One end of it as it should be; every command may be repeated. */
static void rail_script(const struct path_hosts *hosts, int rail, int host, struct script *script)
{
    int kbit = hosts->rails[rail].kbit;
    char own[PATH_ADDR_BYTES], own6[PATH_ADDR_BYTES];

    path_rail_address(hosts, rail, host, 0, own);
    path_rail_address(hosts, rail, host, 1, own6);
    script_add(script, "ip addr replace %s/24 dev rail%d; ip link set rail%d up;", own, rail, rail);
    /* After a link was down its IPv6 address has gone. A system may do without IPv6. */
    script_add(script, "ip addr replace %s/64 dev rail%d nodad 2>/dev/null || true;", own6, rail);
    /* A burst of 4 ms or 32 KiB: less would depend on the kernel's clock. */
    if (kbit)
        script_add(script,
                   "tc qdisc replace dev rail%d root tbf rate %dkbit burst %d latency %dms;", rail,
                   kbit, kbit / 2 > 32768 ? kbit / 2 : 32768, LATENCY_MS);
}

static void rails_join(const struct path_hosts *hosts)
{
    for (int host = 0; host < hosts->host_count; host++) {
        struct script script = {.used = 0};

        script_add(&script, "ip link set lo up;");
        for (int i = 0; i < hosts->rail_count; i++) {
            if (host == 0)
                script_add(&script,
                           "ip link add rail%d type veth peer name rail%d netns /proc/self/fd/%d;",
                           i, i, hosts->net_fds[hosts->rails[i].host]);
            if (host == 0 || host == hosts->rails[i].host)
                rail_script(hosts, i, host, &script);
        }
        path_hosts_run(hosts, host, script.text);
    }
}

void path_hosts_make(struct path_hosts *hosts, const struct path_rail *rails, int rail_count)
{
    char text[512];

    memset(hosts, 0, sizeof(*hosts));
    hosts->user_fd = -1;
    hosts->rail_count = rail_count;
    for (int i = 0; i < rail_count; i++) {
        hosts->rails[i] = rails[i];
        if (rails[i].host >= hosts->host_count)
            hosts->host_count = rails[i].host + 1;
    }
    XT_CHECK(rail_count <= PATH_RAILS_MAX && hosts->host_count <= PATH_HOSTS_MAX);
    namespaces_open(hosts);
    if (script_try(hosts, 0, "PATH=$PATH:/usr/sbin:/sbin; command -v ip && command -v tc", text))
        XT_SKIP("needs ip and tc, of Debian's package iproute2");
    if (script_try(hosts, 0,
                   "PATH=$PATH:/usr/sbin:/sbin; ip link add probe0 type veth peer name probe1 &&"
                   "tc qdisc replace dev probe0 root tbf rate 1mbit burst 32k latency 50ms &&"
                   "ip link del probe0",
                   text))
        XT_SKIP("no veth pairs with a shaper (TBF) here: %s", text);
    rails_join(hosts);
}

static void rail_end_cut(const struct path_hosts *hosts, int rail, int end, enum path_cut how)
{
    struct script script = {.used = 0};
    char peer[PATH_ADDR_BYTES], peer6[PATH_ADDR_BYTES];
    int host = end ? hosts->rails[rail].host : 0;

    path_rail_address(hosts, rail, !end, 0, peer);
    path_rail_address(hosts, rail, !end, 1, peer6);
    switch (how) {
    case PATH_CUT_SILENT:
        script_add(&script, "tc qdisc replace dev rail%d root blackhole", rail);
        break;
    case PATH_CUT_ROUTE:
        /* A socket that is bound to the interface takes no notice of the route; the frames that it
         * sends are for nobody. */
        script_add(&script, "ip route replace blackhole %s/32; ", peer);
        script_add(&script, "ip neigh replace %s lladdr %s nud permanent dev rail%d;", peer, NOBODY,
                   rail);
        script_add(&script,
                   "{ ip -6 route replace blackhole %s/128;"
                   "ip neigh replace %s lladdr %s nud permanent dev rail%d; } 2>/dev/null || true",
                   peer6, peer6, NOBODY, rail);
        break;
    case PATH_CUT_LINK:
        if (!end)
            return;
        script_add(&script, "ip link set rail%d down", rail);
        break;
    }
    path_hosts_run(hosts, host, script.text);
}

void path_rail_cut(const struct path_hosts *hosts, int rail, enum path_cut how)
{
    /* The far end first: what it still sends is what a real host would have sent. */
    rail_end_cut(hosts, rail, 1, how);
    rail_end_cut(hosts, rail, 0, how);
}

void path_rail_restore(const struct path_hosts *hosts, int rail)
{
    for (int end = 0; end < 2; end++) {
        struct script script = {.used = 0};
        char peer[PATH_ADDR_BYTES], peer6[PATH_ADDR_BYTES];
        int host = end ? hosts->rails[rail].host : 0;

        path_rail_address(hosts, rail, !end, 0, peer);
        path_rail_address(hosts, rail, !end, 1, peer6);
        script_add(&script,
                   "{ ip route del blackhole %s/32; ip -6 route del blackhole %s/128;"
                   "ip neigh del %s dev rail%d; ip neigh del %s dev rail%d;"
                   "tc qdisc del dev rail%d root; } 2>/dev/null || true;",
                   peer, peer6, peer, rail, peer6, rail, rail);
        rail_script(hosts, rail, host, &script);
        path_hosts_run(hosts, host, script.text);
    }
}

/* ---- looking ---- */

void path_counters_read(int rail, struct path_counters *counters_out)
{
    FILE *file = fopen("/proc/net/dev", "re");
    char line[512], name[16];
    int found = 0;

    XT_CHECK(file != NULL);
    snprintf(name, sizeof(name), "rail%d:", rail);
    while (!found && fgets(line, sizeof(line), file)) {
        const char *at = strstr(line, name);

        found = at && sscanf(at + strlen(name), "%lu %lu %*u %*u %*u %*u %*u %*u %lu %lu",
                             &counters_out->recv_bytes, &counters_out->recv_packets,
                             &counters_out->send_bytes, &counters_out->send_packets) == 4;
    }
    fclose(file);
    XT_CHECK(found);
}

void path_host_counters(const struct path_hosts *hosts, int host, int rail,
                        struct path_counters *counters_out)
{
    int ends[2];
    pid_t pid;

    XT_CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
    fflush(NULL);
    pid = fork();
    XT_CHECK(pid >= 0);
    if (pid == 0) {
        path_hosts_enter(hosts, host);
        path_counters_read(rail, counters_out);
        _exit(write(ends[1], counters_out, sizeof(*counters_out)) != sizeof(*counters_out));
    }
    close(ends[1]);
    XT_CHECK_INT(read(ends[0], counters_out, sizeof(*counters_out)), sizeof(*counters_out));
    close(ends[0]);
    XT_CHECK_INT(waitpid(pid, NULL, 0), pid);
}

int path_has_ipv6(void)
{
    FILE *file = fopen("/proc/net/if_inet6", "re");
    char line[256];
    int found = 0;

    while (file && !found && fgets(line, sizeof(line), file))
        found = strstr(line, "rail0") != NULL;
    if (file)
        fclose(file);
    return found;
}
