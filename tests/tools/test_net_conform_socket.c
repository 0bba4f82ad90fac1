/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket plugin passes the conformance suite however it is set: a pairwise cover of its
 * devices (IPv4, IPv6, Unix), helper threads (0, 1, 4), streams (1, 2, 4, 8), the hook fault
 * around it and the suite's forms, and the ways of sending and waiting that settings choose.
 * test_net_conform.c has all forms with the usual settings. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "xt.h"

#define XCCL XT_BUILD_DIR "/bin/xccl"

#define ALL_FORMS "single,threads,processes,namespaces"

enum device { IPV4, IPV6, UNIX };

struct setting {
    enum device device;
    int threads, streams, fault;
    const char *forms;
};

/* Each pair of values of two columns is in some row, but for Unix sockets between hosts. */
static const struct setting cover[] = {
    {IPV4, 0, 1, 0, "single"},     {IPV6, 1, 1, 1, "threads"},    {UNIX, 4, 1, 0, "processes"},
    {IPV4, 0, 1, 1, "namespaces"}, {IPV6, 4, 2, 1, "single"},     {IPV4, 0, 2, 0, "threads"},
    {IPV4, 0, 2, 1, "processes"},  {UNIX, 1, 2, 0, "processes"},  {IPV4, 1, 2, 0, "namespaces"},
    {UNIX, 0, 4, 1, "single"},     {IPV4, 4, 4, 0, "threads"},    {IPV4, 1, 4, 1, "processes"},
    {IPV6, 0, 4, 0, "namespaces"}, {IPV4, 1, 8, 0, "single"},     {UNIX, 0, 8, 1, "threads"},
    {IPV6, 0, 8, 0, "processes"},  {IPV4, 4, 8, 1, "namespaces"},
};

/* Sanitized builds take those in which they see both ends at once, with each setting. */
static const char *forms_of(const struct setting *setting)
{
#if defined(XCCL_SANITIZED)
    (void)setting;
    return "single,threads";
#else
    return setting->forms;
#endif
}

static void set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    xt_setenv(name, text);
}

/* One interface, so that `unix` is device 1. Returns whether anything ran: some machines have no
 * namespaces. */
static bool passes(const struct setting *setting)
{
    const char *device = setting->device == UNIX ? "1" : "0";
    const char *item = setting->fault ? "fault:socket" : "socket";
    const char *argv[] = {XCCL,   "net", "check",  "--quick",         "--within=0", "--device",
                          device, item,  "--form", forms_of(setting), NULL};
    const char *output = NULL;
    int status;

    xt_setenv("XCCL_SOCKET_FAMILY", setting->device == IPV6 ? "ipv6" : "ipv4");
    set_number("XCCL_SOCKET_THREADS", setting->threads);
    set_number("XCCL_SOCKET_STREAMS", setting->streams);
    status = xt_run_program(argv, &output);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        XT_FAIL("device %s, %d threads, %d streams, %s, %s: status %d: %s", device,
                setting->threads, setting->streams, item, forms_of(setting), status,
                xt_why(output));
    XT_CHECK_HAS(output, " passed, 0 failed");
    return !strstr(output, "\n0 passed");
}

XT_TEST_DEADLINE(every_pair_of_device_threads_streams_and_hook_passes, 300)
{
    for (size_t i = 0; i < sizeof(cover) / sizeof(cover[0]); i++) {
        if (!passes(&cover[i]))
            XT_CHECK_TEXT(cover[i].forms, "namespaces");
    }
}

XT_TEST_DEADLINE(sending_from_the_users_pages_passes, 60)
{
    xt_setenv("XCCL_SOCKET_ZEROCOPY", "on");
    XT_CHECK(passes(&(struct setting){IPV4, 0, 4, 0, ALL_FORMS}));
    XT_CHECK(passes(&(struct setting){IPV4, 1, 2, 0, ALL_FORMS}));
}

XT_TEST_DEADLINE(helpers_that_wait_by_io_uring_pass, 60)
{
    xt_setenv("XCCL_SOCKET_WAIT", "uring");
    XT_CHECK(passes(&(struct setting){IPV4, 4, 4, 0, ALL_FORMS}));
    XT_CHECK(passes(&(struct setting){UNIX, 1, 1, 0, ALL_FORMS}));
}

XT_TEST_DEADLINE(lines_with_records_pass, 200)
{
    xt_setenv("XCCL_NET_ENCRYPT", "mac");
    XT_CHECK(passes(&(struct setting){IPV4, 0, 1, 0, ALL_FORMS}));
    XT_CHECK(passes(&(struct setting){IPV6, 1, 4, 1, "threads,processes"}));
    xt_setenv("XCCL_NET_ENCRYPT", "1");
    XT_CHECK(passes(&(struct setting){IPV4, 0, 2, 0, ALL_FORMS}));
    XT_CHECK(passes(&(struct setting){UNIX, 1, 1, 0, "processes"}));
}
