/* SPDX-License-Identifier: BSD-3-Clause */
/* Both ends take turns in one thread, so neither may wait for the other. All connections of a
 * process send from and receive into the same memory, one after the other. */
#include "path_ends.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "xt.h"

#define MESSAGES      3
#define MESSAGE_BYTES ((size_t)256 << 10) /* spread over all streams */

static char out[MESSAGES][MESSAGE_BYTES], in[MESSAGES][MESSAGE_BYTES];

long path_rss_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    long pages = 0;

    XT_CHECK(file != NULL);
    XT_CHECK_INT(fscanf(file, "%*d %ld", &pages), 1);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

void path_ends_open(struct path_ends *ends, const char *item, const char *device)
{
    static const struct xccl_net_open_args args = {
        .nranks = 2, .comm_name = "ends", .traffic_class = -1};

    XT_OK(xccl_net_open_item(item, &args, &ends->net));
    for (ends->dev = 0; ends->dev < ends->net->device_count; ends->dev++) {
        xcclNetProperties_v1 props = {.size = sizeof(props)};

        XT_OK(ends->net->calls.properties(ends->net->ctx, ends->dev, &props));
        if (!device || strcmp(props.name, device) == 0)
            return;
    }
    XT_FAIL("the plugin has no device %s", device ? device : "at all");
}

void path_ends_connect(struct path_ends *ends)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    const xcclNetPlugin_v1_t *calls = &ends->net->calls;
    xcclNetListenComm_t listener = NULL;
    xcclNetConnect_t state = NULL;
    xcclNetHandle_t handle;

    ends->send = NULL;
    ends->recv = NULL;
    XT_OK(calls->listen(ends->net->ctx, ends->dev, &handle, &listener));
    while (!ends->send || !ends->recv) {
        if (!ends->send)
            XT_OK(calls->connect(ends->net->ctx, ends->dev, &handle, &state, &ends->send));
        if (!ends->recv)
            XT_OK(calls->accept(listener, &ends->recv));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_OK(calls->closeListen(listener));
    XT_OK(calls->regMr(ends->send, out, sizeof(out), XCCL_NET_PTR_HOST, &ends->send_mem));
    XT_OK(calls->regMr(ends->recv, in, sizeof(in), XCCL_NET_PTR_HOST, &ends->recv_mem));
}

void path_ends_wait_fds(struct path_ends *ends)
{
    int fd;

    XT_OK(ends->net->calls.waitFd(ends->send, &fd));
    XT_OK(ends->net->calls.waitFd(ends->recv, &fd));
}

void path_ends_transfer(struct path_ends *ends, uint64_t number)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    const xcclNetPlugin_v1_t *calls = &ends->net->calls;
    void *requests[2 * MESSAGES] = {NULL};
    int left = 2 * MESSAGES;

    for (int i = 0; i < MESSAGES; i++) {
        void *to = in[i];
        size_t bytes = MESSAGE_BYTES;
        uint32_t tag = 1;

        memcpy(out[i], &number, sizeof(number));
        XT_OK(calls->irecv(ends->recv, 1, &to, &bytes, &tag, &ends->recv_mem, &requests[2 * i]));
        XT_OK(calls->isend(ends->send, out[i], i ? MESSAGE_BYTES : 8, 1, ends->send_mem,
                           &requests[2 * i + 1]));
    }
    while (left > 0) {
        XT_CHECK(!xccl_limit_passed(&limit));
        for (int i = 0; i < 2 * MESSAGES; i++) {
            int done = 0;

            if (!requests[i])
                continue;
            XT_OK(calls->test(requests[i], &done, NULL));
            left -= done;
            requests[i] = done ? NULL : requests[i];
        }
    }
    for (int i = 0; i < MESSAGES; i++)
        XT_CHECK(memcmp(in[i], &number, sizeof(number)) == 0);
}

void path_ends_close(struct path_ends *ends, int sender_first)
{
    const xcclNetPlugin_v1_t *calls = &ends->net->calls;

    XT_OK(calls->deregMr(ends->send, ends->send_mem));
    XT_OK(calls->deregMr(ends->recv, ends->recv_mem));
    if (sender_first)
        XT_OK(calls->closeSend(ends->send));
    XT_OK(calls->closeRecv(ends->recv));
    if (!sender_first)
        XT_OK(calls->closeSend(ends->send));
}
