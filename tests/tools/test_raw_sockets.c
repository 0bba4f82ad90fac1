/* SPDX-License-Identifier: BSD-3-Clause */
/* What bench/socket_figures sets the socket plugin beside: each mode of raw_sockets, and the plugin
 * of bare sockets, moves its messages intact; what is measured is said, and not judged.
 *
 * Thread: one a test. */
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xt.h"

#define RAW      XT_BUILD_DIR "/tests/raw_sockets"
#define BARE     XT_BUILD_DIR "/lib/fixtures/libxccl-net-bare.so"
#define XCCL     XT_BUILD_DIR "/bin/xccl"
#define ARGS_MAX 24

static int run_raw(const char *args, const char **output_out)
{
    char words[512];
    const char *argv[ARGS_MAX + 1] = {RAW};
    char *rest = NULL;
    int count = 1, status = 0;

    snprintf(words, sizeof(words), "%s", args);
    for (char *word = strtok_r(words, " ", &rest); word && count < ARGS_MAX;
         word = strtok_r(NULL, " ", &rest))
        argv[count++] = word;
    status = xt_run_program(argv, output_out);
    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The number behind "key": in a line of JSON. */
static double value_of(const char *output, const char *key)
{
    char quoted[64];
    const char *at = NULL;

    snprintf(quoted, sizeof(quoted), "\"%s\": ", key);
    at = strstr(output, quoted);
    if (!at)
        XT_FAIL("no %s in %s", key, xt_why(output));
    at += strlen(quoted);
    return strtod(*at == '{' ? strchr(at, ' ') : at, NULL);
}

static void check_run(const char *args)
{
    const char *output = NULL;
    char all[512];

    snprintf(all, sizeof(all), "%s --rounds 2 --ms 5 --timeout 60", args);
    if (run_raw(all, &output) != 0)
        XT_FAIL("%s: %s", args, xt_why(output));
    XT_CHECK_INT(value_of(output, "rounds"), 2);
    XT_CHECK(value_of(output, "cpu_s_per_gib") > 0);
    XT_CHECK(strstr(output, "\"gb_per_s\": {\"median\": ") ||
             strstr(output, "\"latency_us\": {\"median\": "));
}

XT_TEST_DEADLINE(the_blaster_moves_streams_in_one_or_both_directions, 120)
{
    check_run("blast --bytes 65536");
    check_run("blast --bytes 65536 --poll --streams 3 --family unix");
    check_run("blast --bytes 3000 --both --streams 2 --threads 2 --call 1000");
    check_run("blast --bytes 100000 --streams 2 --window 3 --buffer 262144");
}

XT_TEST_DEADLINE(the_ping_pong_asks_or_sleeps, 120)
{
    check_run("pingpong --bytes 8 --poll");
    check_run("pingpong --bytes 8 --family unix");
    check_run("pingpong --bytes 5000 --streams 2");
}

XT_TEST_DEADLINE(messages_are_split_over_connections_and_threads, 120)
{
    check_run("split --bytes 1000000 --streams 4 --threads 4");
    check_run("split --bytes 300000 --streams 4 --threads 1 --poll");
    check_run("split --bytes 100 --streams 16 --threads 2 --window 5");
}

/* `xccl net perf` compares every byte of a first pass. */
static void check_bare(const char *kind, const char *how)
{
    const char *const argv[] = {XCCL,      "net", "perf", BARE,     "-b",      "1000", "-e",
                                "1000000", "-f",  "1000", "--both", "--flows", "1,3",  "--rounds",
                                "2",       "-n",  "40",   how,      NULL};
    const char *output = NULL;

    xt_setenv("BARE_NET", kind);
    if (xt_run_program(argv, &output) != 0)
        XT_FAIL("%s: %s", kind, xt_why(output));
    XT_CHECK_HAS(output, "1000000");
}

static void need_two_cores(void)
{
    cpu_set_t may;

    if (sched_getaffinity(0, sizeof(may), &may) == 0 && CPU_COUNT(&may) < 2)
        XT_SKIP("--pin needs two cores, here is one");
}

XT_TEST_DEADLINE(bare_unix_sockets_are_a_plugin_that_moves_messages_intact, 120)
{
    need_two_cores();
    check_bare("unix", "--pin");
}

XT_TEST_DEADLINE(bare_tcp_over_ipv4_is_a_plugin_that_moves_messages_intact, 120)
{
    check_bare("tcp4", "--wait");
}

XT_TEST_DEADLINE(bare_tcp_over_ipv6_is_a_plugin_that_moves_messages_intact, 120)
{
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0)
        XT_SKIP("there is no ::1 here: %s", strerror(errno));
    close(fd);
    need_two_cores();
    check_bare("tcp6", "--pin");
}

XT_TEST_DEADLINE(a_kind_of_bare_sockets_that_is_none_says_which_are, 120)
{
    static const char *const argv[] = {XCCL, "net", "perf", BARE, "-n", "1", NULL};
    const char *output = NULL;

    xt_setenv("BARE_NET", "udp");
    XT_CHECK(xt_run_program(argv, &output) != 0);
    XT_CHECK_HAS(output, "set BARE_NET to unix, tcp4 or tcp6");
}

XT_TEST_DEADLINE(wrong_arguments_and_failures_end_with_a_reason, 120)
{
    const char *output = NULL;

    XT_CHECK_INT(run_raw("", &output), 2);
    XT_CHECK_HAS(output, "usage: raw_sockets");
    XT_CHECK_INT(run_raw("blast --streams 65", &output), 1);
    XT_CHECK_HAS(output, "from 1 to 64");
    XT_CHECK_INT(run_raw("pingpong --both", &output), 1);
    XT_CHECK_HAS(output, "--both is for blast");
    XT_CHECK_INT(run_raw("blast --congestion nothing", &output), 1);
    XT_CHECK_HAS(output, "congestion control nothing: ");
    XT_CHECK_INT(run_raw("blast --hosts /nowhere/a,/nowhere/b", &output), 1);
    XT_CHECK_HAS(output, "cannot enter the network namespace /nowhere/");
}
