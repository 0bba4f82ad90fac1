/* SPDX-License-Identifier: BSD-3-Clause */
/* Two network namespaces joined by a veth pair, which stand for two hosts: the namespaces form of
 * `xccl net check`, and `xccl net perf --hosts`.
 *
 * Thread: that of a process that has no other. */
#ifndef XCCL_CF_HOSTS_H
#define XCCL_CF_HOSTS_H

#include <sys/types.h>

#define CF_HOSTS 2

/* They live as long as this is not dropped. Zero it before make. */
struct cf_hosts {
    int tried;
    char reason[200]; /* why there are none; "" when there are */
    pid_t keeper;
    int user_fd; /* -1: no user namespace was needed */
    int net_fds[CF_HOSTS];
};
/* Makes them at the first call. 1: they are there. */
int cf_hosts_make(struct cf_hosts *hosts);
/* Takes two that exist: names of `ip netns`, or paths as /proc/PID/ns/net. 1: they are there. */
int cf_hosts_open(struct cf_hosts *hosts, const char *first, const char *second);
void cf_hosts_drop(struct cf_hosts *hosts);
/* Makes the calling process root of a user namespace of its own. 0: not allowed. */
int cf_hosts_become_root(void);
/* Moves the calling process into one. 0: not possible, errno says why. */
int cf_hosts_enter(const struct cf_hosts *hosts, int host);

#endif
