/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests of CUDA communicators share: the driver, a rank's buffers and stream on a device, data
 * that can be told, and joining as a process or as several ranks of one. The driver is the stand-in
 * that XT_CUDA_LIBRARY names, else that of the machine. Header only. */
#ifndef TESTS_EMU_DEVICE_RANKS_H
#define TESTS_EMU_DEVICE_RANKS_H

#include <stdlib.h>

#include "base/cuda_driver.h"
#include "collective/world.h"

#define RANKS_MAX      8
#define DEVICE_SOCKETS XT_BUILD_DIR "/lib/xccl/libxccl-net-socket.so"

/* One rank's things on its device. */
struct on_device {
    xcclComm_t comm;
    xccl_cu_stream stream;
    xccl_cu_ptr in, out;
    size_t bytes; /* of each */
    int32_t *host; /* as large */
};

static const struct xccl_cuda_driver *cuda;

static inline void cu_check(xccl_cu_result rc, const char *what)
{
    XT_OK(xccl_cuda_result(rc, what));
}
#define CU(call) cu_check((call), #call)

/* The settings of this test's communicators. text: "p2p", "pinned" without access between devices,
 * "net" over sockets, or "fault" over sockets behind the hook that injects faults. */
static inline void device_settings(const char *text)
{
    const char *library = getenv("XT_CUDA_LIBRARY");

    if (library)
        xt_setenv("XCCL_CUDA_LIBRARY", library);
    xt_setenv("XCCL_DEVICE", "cuda");
    if (text && !strcmp(text, "pinned"))
        xt_setenv("XCCL_CUDA_P2P", "0");
    if (text && (!strcmp(text, "net") || !strcmp(text, "fault"))) {
        xt_setenv("XCCL_SHM_DISABLE", "1");
        xt_setenv("XCCL_NET_PLUGIN", *text == 'f' ? "fault:" DEVICE_SOCKETS : DEVICE_SOCKETS);
    }
}

/* What a machine's device does not do, or not so that it can be looked at. */
static inline void need_stand_in(const char *why)
{
    if (!getenv("XT_CUDA_LIBRARY"))
        XT_SKIP("%s", why);
}

/* Opens the driver and makes device 0 the thread's. Skips the test where there is none. */
static inline void device_open(void)
{
    xccl_cu_ctx ctx;
    xccl_cu_device device;

    xt_allow_leaks("a CUDA driver keeps threads and descriptors");
    cuda = xccl_cuda_driver();
    if (!cuda)
        XT_SKIP("%s", xccl_cuda_why_not());
    CU(cuda->device_get(&device, 0));
    CU(cuda->ctx_retain(&ctx, device));
    CU(cuda->ctx_set(ctx));
}

static inline void device_make(struct on_device *on, size_t bytes)
{
    on->bytes = bytes;
    CU(cuda->stream_create(&on->stream, XCCL_CU_STREAM_NON_BLOCKING));
    CU(cuda->mem_alloc(&on->in, bytes));
    CU(cuda->mem_alloc(&on->out, bytes));
    on->host = malloc(bytes);
    XT_CHECK(on->host != NULL);
}

static inline void device_free(struct on_device *on)
{
    CU(cuda->mem_free(on->in));
    CU(cuda->mem_free(on->out));
    CU(cuda->stream_destroy(on->stream));
    free(on->host);
}

static inline void device_put(struct on_device *on, size_t count, int rank, int round)
{
    for (size_t i = 0; i < count; i++)
        on->host[i] = world_value(rank, i, round);
    CU(cuda->copy_to_device(on->in, on->host, count * 4, on->stream));
    CU(cuda->set_bytes(on->out, 0x5a, on->bytes, on->stream));
    CU(cuda->stream_sync(on->stream));
}

/* What is in out, when the stream is done. */
static inline const int32_t *device_get(struct on_device *on, size_t count)
{
    CU(cuda->stream_sync(on->stream));
    CU(cuda->copy_to_host(on->host, on->out, count * 4, on->stream));
    CU(cuda->stream_sync(on->stream));
    return on->host;
}

/* want: of element i. */
#define CHECK_EACH(on, count, want)                                                                \
    do {                                                                                           \
        const int32_t *got = device_get(on, count);                                                \
        for (size_t i = 0; i < (count); i++)                                                       \
            if (got[i] != (want))                                                                  \
                XT_FAIL("element %zu of %zu is %d, not %d", i, (size_t)(count), (int)got[i],       \
                        (int)(want));                                                              \
    } while (0)

static inline void *at(xccl_cu_ptr base, size_t elements)
{
    return (void *)(uintptr_t)(base + 4 * elements);
}

static inline int32_t sum_of(int nranks, size_t i, int round)
{
    int32_t sum = 0;

    for (int r = 0; r < nranks; r++)
        sum += world_value(r, i, round);
    return sum;
}

#endif
