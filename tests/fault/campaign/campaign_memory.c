/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers of a player and the end of its calls. On the host both are plain. On a device there is a
 * copy of each buffer here, every call is given a stream, and an error is the communicator's. */
#include <stdlib.h>
#include <time.h>

#include "base/cuda_driver.h"
#include "campaign.h"
#include "xt.h"

#define BYTES ((CAMPAIGN_ROOM + CAMPAIGN_ROOM_SPARE) * sizeof(uint32_t))

static const struct xccl_cuda_driver *cuda;

static void check(xccl_cu_result rc, const char *what)
{
    XT_OK(xccl_cuda_result(rc, what));
}
#define CU(call) check((call), #call)

static void device_open(struct player *player)
{
    xccl_cu_device device;
    xccl_cu_stream stream;
    xccl_cu_ptr in, out;
    xccl_cu_ctx ctx;

    cuda = xccl_cuda_driver();
    if (!cuda)
        XT_FAIL("no device: %s", xccl_cuda_why_not());
    CU(cuda->device_get(&device, 0));
    CU(cuda->ctx_retain(&ctx, device));
    CU(cuda->ctx_set(ctx));
    CU(cuda->stream_create(&stream, XCCL_CU_STREAM_NON_BLOCKING));
    CU(cuda->mem_alloc(&in, BYTES));
    CU(cuda->mem_alloc(&out, BYTES));
    player->stream = (xcclStream_t)stream;
    player->there_in = (void *)(uintptr_t)in;
    player->there_out = (void *)(uintptr_t)out;
}

void player_open(struct player *player)
{
    player->in = calloc(1, BYTES);
    player->out = calloc(1, BYTES);
    XT_CHECK(player->in && player->out);
    if (player->on_device)
        device_open(player);
    else
        XT_OK(xcclStreamCreate(&player->stream));
}

void player_close(struct player *player)
{
    if (player->on_device) {
        CU(cuda->mem_free((xccl_cu_ptr)(uintptr_t)player->there_in));
        CU(cuda->mem_free((xccl_cu_ptr)(uintptr_t)player->there_out));
        CU(cuda->stream_destroy((xccl_cu_stream)player->stream));
    } else {
        (void)xcclStreamDestroy(player->stream);
    }
    free(player->in);
    free(player->out);
}

void *player_in(const struct player *player, size_t at)
{
    return (player->on_device ? (uint32_t *)player->there_in : player->in) + at;
}

void *player_out(const struct player *player, size_t at)
{
    return (player->on_device ? (uint32_t *)player->there_out : player->out) + at;
}

xcclStream_t player_lane(const struct player *player)
{
    return player->on_device ? player->stream : NULL;
}

void player_push(struct player *player)
{
    xccl_cu_stream stream = (xccl_cu_stream)player->stream;

    if (!player->on_device || !player->filled)
        return;
    CU(cuda->copy_to_device((xccl_cu_ptr)(uintptr_t)player->there_in, player->in,
                            player->filled * sizeof(uint32_t), stream));
    CU(cuda->stream_sync(stream));
}

static xcclResult_t device_await(struct player *player, xcclComm_t comm, xcclResult_t rc)
{
    xccl_cu_stream stream = (xccl_cu_stream)player->stream;

    CU(cuda->stream_sync(stream));
    if (!rc)
        XT_OK(xcclCommGetAsyncError(comm, &rc));
    if (rc)
        return rc;
    CU(cuda->copy_to_host(player->out, (xccl_cu_ptr)(uintptr_t)player->there_out, BYTES, stream));
    CU(cuda->stream_sync(stream));
    return xcclSuccess;
}

xcclResult_t player_await(struct player *player, xcclComm_t comm, xcclResult_t rc)
{
    if (player->on_device)
        return device_await(player, comm, rc);
    while (rc == xcclInProgress) { /* bounded by the library's deadlines, and by the director's */
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        XT_OK(xcclCommGetAsyncError(comm, &rc));
    }
    return rc;
}
