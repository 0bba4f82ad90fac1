/* SPDX-License-Identifier: BSD-3-Clause */
/* A receiver of the plugin ofi sleeps, over libfabric's TCP, which moves only when it is asked:
 * its descriptor is silent as long as nothing comes, is readable once a message has, and is
 * silent again. Large messages, of which only the beginning comes unasked, as well. */
#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "path_ends.h"
#include "xt.h"

#define LIBRARY  XT_BUILD_DIR "/lib/xccl/libxccl-net-ofi.so"
#define ROUNDS   20
#define IN_VAIN  100 /* tests, after which nobody is kept awake */
#define QUIET_MS 5
#define WAKE_MS  10000

static char out[1 << 20], in[1 << 20];
static xcclNetMem_t out_mem, in_mem;

static int is_awake(int fd, int ms)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    return poll(&wait, 1, ms) == 1;
}

static int asked(const struct path_ends *ends, void *request)
{
    int done = 0;

    XT_OK(ends->net->calls.test(request, &done, NULL));
    return done;
}

static void *post(const struct path_ends *ends, int is_send, size_t bytes)
{
    struct xccl_limit limit = xccl_limit_ms(WAKE_MS, NULL);
    void *request = NULL, *to = in;
    uint32_t tag = 1;

    while (!request) {
        XT_CHECK(!xccl_limit_passed(&limit));
        if (is_send)
            XT_OK(ends->net->calls.isend(ends->send, out, bytes, tag, out_mem, &request));
        else
            XT_OK(ends->net->calls.irecv(ends->recv, 1, &to, &bytes, &tag, &in_mem, &request));
    }
    return request;
}

/* The receiver asks only when its descriptor says so; the sender asks all the time. */
static void wake(const struct path_ends *ends, int fd, size_t bytes, int round)
{
    struct xccl_limit limit = xccl_limit_ms(WAKE_MS, NULL);
    void *receive = post(ends, 0, bytes), *send;
    int in_vain = 0, quiet = 0, sent = 0, received = 0;

    while (!quiet) {
        XT_CHECK(in_vain++ < IN_VAIN);
        XT_CHECK_INT(asked(ends, receive), 0);
        quiet = !is_awake(fd, 0);
    }
    XT_CHECK_INT(is_awake(fd, QUIET_MS), 0);
    memset(out, round + 1, bytes);
    send = post(ends, 1, bytes);
    while (!received || !sent) {
        XT_CHECK(!xccl_limit_passed(&limit));
        if (!sent)
            sent = asked(ends, send);
        if (!received && is_awake(fd, sent ? WAKE_MS : 0))
            received = asked(ends, receive);
    }
    XT_CHECK(memcmp(in, out, bytes) == 0);
}

static void sleeps_over_tcp(const char *path)
{
    static const size_t sizes[] = {8, 4096, 65536, sizeof(out)};
    void *library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    struct path_ends ends;
    int fd = -1;

    if (access(LIBRARY, R_OK) != 0 || !library)
        XT_SKIP("the plugin was not built, or libfabric1 is not installed");
    xt_setenv("XCCL_PLUGIN_PROBE_S", "0");
    xt_setenv("XCCL_OFI_PROVIDER", "tcp;ofi_rxm");
    xt_setenv("XCCL_OFI_PATH", path);
    xt_setenv("FI_PROVIDER", "tcp,ofi_rxm");
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    xt_setenv("XCCL_OFI_WAIT", "1");
    xt_set_error_source(xccl_error_text);
    path_ends_open(&ends, LIBRARY, NULL);
    path_ends_connect(&ends);
    XT_OK(ends.net->calls.regMr(ends.send, out, sizeof(out), XCCL_NET_PTR_HOST, &out_mem));
    XT_OK(ends.net->calls.regMr(ends.recv, in, sizeof(in), XCCL_NET_PTR_HOST, &in_mem));
    XT_OK(ends.net->calls.waitFd(ends.recv, &fd));
    XT_CHECK(fd >= 0);
    for (int i = 0; i < ROUNDS; i++)
        wake(&ends, fd, sizes[i % 4], i);
    XT_OK(ends.net->calls.deregMr(ends.send, out_mem));
    XT_OK(ends.net->calls.deregMr(ends.recv, in_mem));
    path_ends_close(&ends, 1);
    xccl_net_close(ends.net);
}

XT_TEST_DEADLINE(a_receiver_sleeps_until_messages_come, 60)
{
    sleeps_over_tcp("message");
}

XT_TEST_DEADLINE(a_receiver_sleeps_until_it_is_written_to, 60)
{
    sleeps_over_tcp("write");
}
