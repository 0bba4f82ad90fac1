/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket plugin passes the conformance suite however it is set: a pairwise cover of its
 * devices (IPv4, IPv6, Unix), helper threads (0, 1, 4), streams (1, 2, 4, 8) and the hook fault
 * around it, and the ways of sending and waiting that settings choose. */
#include <stdio.h>
#include <sys/wait.h>

#include "xt.h"

#define XCCL XT_BUILD_DIR "/bin/xccl"

/* Sanitized builds take the form in which they see both ends at once. */
#if defined(XCCL_SANITIZED)
#define FORM "threads"
#else
#define FORM ""
#endif

enum device { IPV4, IPV6, UNIX };

struct setting {
    enum device device;
    int threads, streams, fault;
};

/* Each pair of values of two columns is in some row. */
static const struct setting cover[] = {
    {IPV4, 0, 1, 0}, {IPV4, 1, 2, 1}, {IPV4, 4, 4, 0}, {IPV4, 0, 8, 1}, {IPV6, 0, 2, 0},
    {IPV6, 1, 1, 1}, {IPV6, 4, 8, 0}, {IPV6, 0, 4, 1}, {UNIX, 0, 4, 0}, {UNIX, 1, 8, 1},
    {UNIX, 4, 1, 1}, {UNIX, 4, 2, 0}, {UNIX, 1, 4, 0},
};

static void set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    xt_setenv(name, text);
}

/* One interface, so that `unix` is device 1. */
static void passes(const struct setting *setting)
{
    const char *device = setting->device == UNIX ? "1" : "0";
    const char *item = setting->fault ? "fault:socket" : "socket";
    const char *argv[] = {XCCL,       "net",  "check", "--quick",
                          "--device", device, item,    *FORM ? "--form" : NULL,
                          FORM,       NULL};
    const char *output = NULL;
    int status;

    xt_setenv("XCCL_SOCKET_FAMILY", setting->device == IPV6 ? "ipv6" : "ipv4");
    set_number("XCCL_SOCKET_THREADS", setting->threads);
    set_number("XCCL_SOCKET_STREAMS", setting->streams);
    status = xt_run_program(argv, &output);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        XT_FAIL("device %s, %d threads, %d streams, %s: status %d: %s", device, setting->threads,
                setting->streams, item, status, xt_why(output));
    XT_CHECK_HAS(output, " passed, 0 failed");
}

XT_TEST_DEADLINE(every_pair_of_device_threads_streams_and_hook_passes, 300)
{
    for (size_t i = 0; i < sizeof(cover) / sizeof(cover[0]); i++)
        passes(&cover[i]);
}

XT_TEST_DEADLINE(sending_from_the_users_pages_passes, 60)
{
    xt_setenv("XCCL_SOCKET_ZEROCOPY", "on");
    passes(&(struct setting){IPV4, 0, 4, 0});
    passes(&(struct setting){IPV4, 1, 2, 0});
}

XT_TEST_DEADLINE(helpers_that_wait_by_io_uring_pass, 60)
{
    xt_setenv("XCCL_SOCKET_WAIT", "uring");
    passes(&(struct setting){IPV4, 4, 4, 0});
    passes(&(struct setting){UNIX, 1, 1, 0});
}
