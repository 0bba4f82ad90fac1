/* SPDX-License-Identifier: BSD-3-Clause */
/* Two network namespaces joined by a veth pair stand for two hosts, for tests that start programs
 * on them as a user would. Needs root and iproute2, and skips the test with the reason without
 * them. Header only. */
#ifndef TESTS_COLLECTIVE_TWO_HOSTS_H
#define TESTS_COLLECTIVE_TWO_HOSTS_H

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xt.h"

/* The two hosts $a and $b, removed however the script ends; `on HOST RANK COMMAND`. $1: build
 * folder, $2: number that is ours alone, $3: a folder that goes with the test. */
static const char two_hosts_script[] =
    "a=xccl-a$2 b=xccl-b$2; trap 'ip netns del $a; ip netns del $b' EXIT;"
    "ip netns add $a && ip netns add $b || exit 77;"
    "ip link add va netns $a type veth peer name vb netns $b || exit 77;"
    "ip -n $a addr add 10.77.0.1/24 dev va; ip -n $b addr add 10.77.0.2/24 dev vb;"
    "ip -n $a addr add fd77::1/64 dev va nodad; ip -n $b addr add fd77::2/64 dev vb nodad;"
    "for n in $a $b; do ip -n $n link set lo up; done;"
    "ip -n $a link set va up; ip -n $b link set vb up;"
    /* The kernel says a little later that a link runs, and some libraries take no other. */
    "for i in 1 2 3 4 5 6 7 8 9 10; do ip -n $b -o link show vb | grep -q 'state UP' &&"
    " ip -n $a -o link show va | grep -q 'state UP' && break; sleep 0.05; done;"
    "export XCCL_NRANKS=4 XCCL_COMM_ID=10.77.0.1:4455 XCCL_JOB_KEY=a-key-of-the-test "
    "XCCL_TIMEOUT_INIT_S=20;"
    "on() { XCCL_RANK=$2 exec ip netns exec $1 $3; };";

/* Runs the shell commands there; returns bash's wait status. */
static inline int on_two_hosts(const char *what, const char **output_out)
{
    char script[2048], number[16];
    const char *const argv[] = {"bash",       "-c",   script,      "hosts",
                                XT_BUILD_DIR, number, xt_tmpdir(), NULL};
    int status;

    if (geteuid() != 0)
        XT_SKIP("network namespaces need root");
    if (access("/usr/sbin/ip", X_OK) != 0 && access("/sbin/ip", X_OK) != 0)
        XT_SKIP("needs ip, of Debian's package iproute2");
    snprintf(script, sizeof(script), "%s%s", two_hosts_script, what);
    snprintf(number, sizeof(number), "%d", (int)getpid());
    status = xt_run_program(argv, output_out);
    if (WEXITSTATUS(status) == 77)
        XT_SKIP("cannot make network namespaces here");
    return status;
}

#endif
