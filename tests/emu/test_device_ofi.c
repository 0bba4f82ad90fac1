/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory through net-ofi: libfabric behind fixtures/fabric_strict.c, which says that it
 * takes such memory and shows what has come there only once it was flushed. The layer is found by
 * LD_LIBRARY_PATH, which ctest sets. */
#include <unistd.h>

#include "base/clock.h"
#include "device_scene.h"
#include "path_ends.h"

#define OFI_PLUGIN  XT_BUILD_DIR "/lib/xccl/libxccl-net-ofi.so"
#define BYTES       400000 /* slots of more than a message that is not written */
#define WHOLE_BYTES ((size_t)401408) /* whole pages */
#define LAYER       XT_BUILD_DIR "/lib/fixtures/fabric-strict"

static void need_layer(const char *hmem)
{
    const char *path = getenv("LD_LIBRARY_PATH");
    char seed[24];

    if (!path || !strstr(path, LAYER) || !getenv("XT_CUDA_LIBRARY"))
        XT_SKIP("of the stand-in, behind LD_LIBRARY_PATH=" LAYER " alone");
    snprintf(seed, sizeof(seed), "%llu", (unsigned long long)xt_seed());
    xt_setenv("FX_FABRIC_SEED", seed);
    xt_setenv("FX_FABRIC_HMEM", hmem);
    xt_setenv("FI_PROVIDER", "tcp,ofi_rxm");
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    xt_setenv("XCCL_OFI_PROVIDER", "tcp;ofi_rxm");
    xt_setenv("XCCL_PLUGIN_PROBE_S", "0");
}

static void run_ofi(const char *hmem, const char *gdr, struct expected want)
{
    struct scene scene = {.want = want, .bytes = BYTES};

    need_layer(hmem);
    run_over(OFI_PLUGIN, gdr, &scene);
}

static const struct expected flushed = {XCCL_RECORD_WAY_NET_DEVICE, NULL, "1",
                                        "by address, flushed"};

XT_TEST_DEADLINE(sums_go_through_device_memory_that_is_flushed, 60)
{
    run_ofi("hides", "on", flushed);
}

XT_TEST_DEADLINE(sums_are_written_into_device_memory, 60)
{
    xt_setenv("XCCL_OFI_PATH", "write");
    run_ofi("1", "on", flushed);
}

XT_TEST_DEADLINE(registrations_may_be_of_an_endpoint, 60)
{
    xt_setenv("FX_FABRIC_ENDPOINT", "1");
    run_ofi("hides", "on", flushed);
}

/* Such a device shows what a card has written. */
XT_TEST_DEADLINE(devices_that_keep_order_need_no_flush, 60)
{
    xt_setenv("XCCL_EMU_WRITES_ORDERING", "100");
    run_ofi("1,breaks", "on",
            (struct expected){XCCL_RECORD_WAY_NET_DEVICE, NULL, "1", "by address"});
}

XT_TEST_DEADLINE(a_provider_without_device_memory_goes_by_the_host, 60)
{
    run_ofi(NULL, "on",
            (struct expected){XCCL_RECORD_WAY_NET_PINNED, NULL, NULL,
                              "the plugin does not accept device memory"});
}

XT_TEST_DEADLINE(a_registration_that_is_refused_is_named, 60)
{
    run_ofi("refuse", "on",
            (struct expected){XCCL_RECORD_WAY_NET_PINNED, "1", NULL,
                              "registration refused: cannot register "});
}

XT_TEST_DEADLINE(a_setting_keeps_device_memory_from_the_card, 60)
{
    run_ofi("1", "off",
            (struct expected){XCCL_RECORD_WAY_NET_PINNED, "1", NULL, "XCCL_CUDA_GDR is off"});
}

/* --- the plugin alone --- */

/* Device memory at one end of a connection. */
struct buffer {
    xccl_cu_ptr at;
    xcclNetMem_t mem;
};

/* Both ends, in turn, for neither may wait for the other. */
static void finish(const xcclNetPlugin_v1_t *calls, xcclNetRequest_t requests[2])
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    int done[2] = {0};

    while (!done[0] || !done[1]) {
        for (int i = 0; i < 2; i++) {
            if (!done[i])
                XT_OK(calls->test(requests[i], &done[i], NULL));
        }
        XT_CHECK(!xccl_limit_passed(&limit));
    }
}

static void pass(struct path_ends *ends, const struct buffer *from, const struct buffer *to,
                 size_t bytes)
{
    const xcclNetPlugin_v1_t *calls = &ends->net->calls;
    xcclNetRequest_t requests[2] = {NULL};
    void *data = (void *)(uintptr_t)to->at;
    uint32_t tag = 1;

    XT_OK(calls->irecv(ends->recv, 1, &data, &bytes, &tag, &to->mem, &requests[0]));
    XT_OK(
        calls->isend(ends->send, (void *)(uintptr_t)from->at, bytes, tag, from->mem, &requests[1]));
    XT_CHECK(requests[0] && requests[1]);
    finish(calls, requests);
}

static xcclResult_t flush(struct path_ends *ends, const struct buffer *to, size_t bytes)
{
    const xcclNetPlugin_v1_t *calls = &ends->net->calls;
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclNetRequest_t request = NULL;
    void *data = (void *)(uintptr_t)to->at;
    xcclResult_t rc = calls->iflush(ends->recv, 1, &data, &bytes, &to->mem, &request);

    for (int done = 0; rc == xcclSuccess && !done;) {
        XT_CHECK(request != NULL && !xccl_limit_passed(&limit));
        rc = calls->test(request, &done, NULL);
    }
    return rc;
}

static void buffer_make(struct path_ends *ends, void *comm, int as_dmabuf, struct buffer *buffer)
{
    const xcclNetPlugin_v1_t *calls = &ends->net->calls;
    void *data;
    int fd;

    CU(cuda->mem_alloc(&buffer->at, BYTES));
    data = (void *)(uintptr_t)buffer->at;
    if (!as_dmabuf) {
        XT_OK(calls->regMr(comm, data, BYTES, XCCL_NET_PTR_CUDA, &buffer->mem));
        return;
    }
    CU(cuda->mem_range_handle(&fd, buffer->at, WHOLE_BYTES, XCCL_CU_RANGE_DMABUF, 0));
    XT_OK(calls->regMrDmaBuf(comm, data, BYTES, XCCL_NET_PTR_CUDA, 0, fd, &buffer->mem));
    close(fd);
}

static void buffer_free(struct path_ends *ends, void *comm, struct buffer *buffer)
{
    XT_OK(ends->net->calls.deregMr(comm, buffer->mem));
    CU(cuda->mem_free(buffer->at));
}

static void connect_ends(struct path_ends *ends, const char *hmem, uint32_t kinds)
{
    xcclNetProperties_v1 props = {.size = sizeof(props)};

    need_layer(hmem);
    device_settings(NULL);
    device_open();
    path_ends_open(ends, OFI_PLUGIN, NULL);
    XT_OK(ends->net->calls.properties(ends->net->ctx, ends->dev, &props));
    XT_CHECK_INT(props.ptrSupport, kinds);
    path_ends_connect(ends);
}

/* What has come is rubbish before the flush: that is the layer's doing. */
static void messages_are_seen_once_flushed(int as_dmabuf)
{
    static uint8_t sent[BYTES];
    struct buffer from, to;
    struct path_ends ends;
    uint32_t kinds = XCCL_NET_PTR_HOST | XCCL_NET_PTR_CUDA;

    connect_ends(&ends, "hides", kinds | (as_dmabuf ? XCCL_NET_PTR_DMABUF : 0));
    buffer_make(&ends, ends.send, as_dmabuf, &from);
    buffer_make(&ends, ends.recv, as_dmabuf, &to);
    for (int round = 0; round < 40; round++) {
        size_t bytes = round % 2 ? BYTES : 8;
        const void *got = (void *)(uintptr_t)to.at;

        memset(sent, round + 1, bytes);
        memcpy((void *)(uintptr_t)from.at, sent, bytes);
        pass(&ends, &from, &to, bytes);
        XT_CHECK(memcmp(got, sent, bytes) != 0);
        XT_OK(flush(&ends, &to, bytes));
        XT_CHECK(memcmp(got, sent, bytes) == 0);
        path_ends_transfer(&ends, (uint64_t)round);
    }
    buffer_free(&ends, ends.send, &from);
    buffer_free(&ends, ends.recv, &to);
    path_ends_close(&ends, 1);
    xccl_net_close(ends.net);
}

XT_TEST_DEADLINE(messages_by_address_are_seen_once_flushed, 60)
{
    messages_are_seen_once_flushed(0);
}

XT_TEST_DEADLINE(messages_by_dma_buf_are_seen_once_flushed, 60)
{
    xt_setenv("FX_FABRIC_VERSION", "1.20");
    xt_setenv("XCCL_OFI_DMABUF", "on");
    messages_are_seen_once_flushed(1);
}

XT_TEST_DEADLINE(a_read_that_breaks_ends_the_comm_alone, 60)
{
    struct buffer from, to;
    struct path_ends ends;

    connect_ends(&ends, "breaks", XCCL_NET_PTR_HOST | XCCL_NET_PTR_CUDA);
    buffer_make(&ends, ends.send, 0, &from);
    buffer_make(&ends, ends.recv, 0, &to);
    pass(&ends, &from, &to, BYTES);
    XT_CHECK_RC(flush(&ends, &to, BYTES), xcclSystemError);
    XT_CHECK_HAS(ends.net->calls.lastError(ends.net->ctx), " cannot flush device memory");
    buffer_free(&ends, ends.send, &from);
    buffer_free(&ends, ends.recv, &to);
    path_ends_close(&ends, 0);
    path_ends_connect(&ends);
    path_ends_transfer(&ends, 7);
    path_ends_close(&ends, 1);
    xccl_net_close(ends.net);
}

/* With a read under way. */
XT_TEST_DEADLINE(a_comm_closes_in_the_middle_of_a_flush, 60)
{
    struct path_ends ends;

    connect_ends(&ends, "1", XCCL_NET_PTR_HOST | XCCL_NET_PTR_CUDA);
    for (int round = 0; round < 20; round++) {
        xcclNetRequest_t request = NULL;
        struct buffer from, to;
        size_t bytes = BYTES;
        void *data;

        buffer_make(&ends, ends.send, 0, &from);
        buffer_make(&ends, ends.recv, 0, &to);
        pass(&ends, &from, &to, BYTES);
        data = (void *)(uintptr_t)to.at;
        XT_OK(ends.net->calls.iflush(ends.recv, 1, &data, &bytes, &to.mem, &request));
        XT_CHECK(request != NULL);
        buffer_free(&ends, ends.send, &from);
        XT_OK(ends.net->calls.deregMr(ends.recv, to.mem));
        path_ends_close(&ends, round % 2);
        CU(cuda->mem_free(to.at));
        if (round < 19)
            path_ends_connect(&ends);
    }
    xccl_net_close(ends.net);
}
