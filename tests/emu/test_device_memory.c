/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a device that cannot be freed without a wait for kernels, which may wait for whoever
 * frees: it is put off, goes to who wants as much, and is given up when there is no other. The
 * program holds the library's stages itself. Threads: several ranks of one process. */
#include "device_ranks.h"

#include <pthread.h>

#include "exec/cuda/device.h"

#define BYTES  4096u
#define COUNT  3000
#define ROUNDS 12
#define FEW    80 /* messages, whose list needs device memory, */
#define MANY   400 /* and one that needs more */
#define FAILS  "it makes an allocation fail"

/* Whether the driver knows of memory there. */
static int is_there(xccl_cu_ptr at)
{
    unsigned type = 0;

    return cuda->pointer_attribute(&type, XCCL_CU_POINTER_MEMORY_TYPE, at) == 0;
}

static struct xccl_cuda_device *open_one(void)
{
    struct xccl_cuda_device *device;

    device_settings(NULL);
    device_open();
    XT_OK(xccl_cuda_device_get(0, &device));
    return device;
}

static xccl_cu_ptr take(struct xccl_cuda_device *device, size_t bytes)
{
    xccl_cu_ptr at;

    XT_OK(xccl_cuda_alloc(device, bytes, &at));
    return at;
}

XT_TEST(memory_is_freed_at_once_when_nothing_is_at_work)
{
    struct xccl_cuda_device *device = open_one();
    struct xccl_cuda_worker worker = {0};
    xccl_cu_ptr at = take(device, BYTES);

    xccl_cuda_free_later(device, 0, BYTES);
    xccl_cuda_free_later(device, at, BYTES);
    XT_CHECK(!is_there(at));
    CU(cuda->event_create(&worker.event, XCCL_CU_EVENT_DISABLE_TIMING));
    CU(cuda->event_record(worker.event, device->stream));
    CU(cuda->stream_sync(device->stream));
    worker.has_launched = 1;
    xccl_cuda_worker_join(device, &worker);
    at = take(device, BYTES);
    xccl_cuda_free_later(device, at, BYTES);
    XT_CHECK(!is_there(at));
    xccl_cuda_worker_leave(device, &worker);
    xccl_cuda_worker_leave(device, &worker); /* one that never came is fine */
    CU(cuda->event_destroy(worker.event));
    xccl_cuda_device_put(device);
}

XT_TEST(memory_waits_for_launches_and_goes_to_who_wants_as_much)
{
    struct xccl_cuda_device *device = open_one();
    xccl_cu_ptr at = take(device, BYTES), pinned_at, other_at;
    void *pinned, *other;

    XT_OK(xccl_cuda_host_alloc(device, BYTES, &pinned, &pinned_at));
    xccl_cuda_launch_begin(device);
    xccl_cuda_free_later(device, at, BYTES);
    xccl_cuda_host_free_later(device, pinned, pinned_at, BYTES);
    XT_CHECK(is_there(at) && is_there(pinned_at));
    XT_CHECK(!xccl_cuda_free_left(device));
    other_at = take(device, 2 * BYTES);
    XT_CHECK(other_at != at);
    xccl_cuda_free(device, other_at);
    XT_CHECK(take(device, BYTES) == at); /* and not the pinned one */
    XT_OK(xccl_cuda_host_alloc(device, BYTES, &other, &other_at));
    XT_CHECK(other == pinned && other_at == pinned_at);
    xccl_cuda_free_later(device, at, BYTES);
    xccl_cuda_host_free_later(device, pinned, pinned_at, BYTES);
    xccl_cuda_launch_end(device);
    XT_CHECK(xccl_cuda_free_left(device));
    XT_CHECK(!is_there(at) && !is_there(pinned_at));
    xccl_cuda_device_put(device);
}

XT_TEST(memory_waits_for_who_was_captured)
{
    struct xccl_cuda_device *device = open_one();
    struct xccl_cuda_worker others[3] = {{0}}, captured = {.is_captured = 1};
    xccl_cu_ptr at = take(device, BYTES);

    xccl_cuda_worker_join(device, &others[0]);
    xccl_cuda_worker_join(device, &captured);
    xccl_cuda_worker_join(device, &others[1]);
    xccl_cuda_free_later(device, at, BYTES);
    XT_CHECK(is_there(at));
    xccl_cuda_worker_leave(device, &captured);
    XT_CHECK(xccl_cuda_free_left(device));
    XT_CHECK(!is_there(at));
    xccl_cuda_worker_leave(device, &others[0]);
    xccl_cuda_worker_leave(device, &others[1]);
    xccl_cuda_device_put(device);
}

XT_TEST(memory_that_waits_is_given_up_for_other_memory)
{
    struct xccl_cuda_device *device;
    xccl_cu_ptr at, other;

    need_stand_in(FAILS);
    device = open_one();
    at = take(device, BYTES);
    xccl_cuda_launch_begin(device);
    xccl_cuda_free_later(device, at, BYTES);
    xt_setenv("XCCL_EMU_FAIL", "cuMemAlloc_v2:1");
    XT_CHECK_RC(xccl_cuda_alloc(device, 2 * BYTES, &other), xcclUnhandledCudaError);
    XT_CHECK_HAS(xcclGetLastError(NULL), "CUDA_ERROR_OUT_OF_MEMORY");
    xccl_cuda_launch_end(device);
    xt_setenv("XCCL_EMU_FAIL", "cuMemAlloc_v2:2"); /* the first was counted */
    XT_OK(xccl_cuda_alloc(device, 2 * BYTES, &other));
    XT_CHECK(!xccl_cuda_free_left(device)); /* it is gone */
    xccl_cuda_free(device, other);
    xccl_cuda_device_put(device);
}

/* --- communicators --- */

struct pair {
    xcclUniqueId ids[2]; /* of a communicator each */
    _Atomic int arrived;
    xccl_cu_ctx ctx;
};

struct thread_rank {
    struct pair *pair;
    int rank;
};

static void meet(struct pair *pair, int *met)
{
    *met += 2;
    atomic_fetch_add_explicit(&pair->arrived, 1, memory_order_acq_rel);
    while (atomic_load_explicit(&pair->arrived, memory_order_acquire) < *met)
        sched_yield(); /* bounded by the test's deadline */
}

static void sum(struct on_device *on, xcclComm_t comm)
{
    XT_OK(
        xcclAllReduce(at(on->in, 0), at(on->out, 0), COUNT, xcclInt32, xcclSum, comm, on->stream));
}

/* In each round both ranks end a second communicator, rank 0 while its kernel of the first one
 * waits for rank 1, which calls only afterwards. */
static void *ends(void *arg)
{
    struct thread_rank *me = arg;
    struct pair *pair = me->pair;
    struct on_device on;
    int met = 0;

    CU(cuda->ctx_set(pair->ctx));
    device_make(&on, COUNT * 4);
    if (me->rank == 0)
        XT_OK(xcclGetUniqueId(&pair->ids[0]));
    meet(pair, &met);
    XT_OK(xcclCommInitRank(&on.comm, 2, pair->ids[0], me->rank));
    sum(&on, on.comm);
    for (int round = 0; round < ROUNDS; round++) {
        xcclComm_t second;

        CU(cuda->stream_sync(on.stream));
        if (me->rank == 0)
            XT_OK(xcclGetUniqueId(&pair->ids[1]));
        meet(pair, &met);
        XT_OK(xcclCommInitRank(&second, 2, pair->ids[1], me->rank));
        device_put(&on, COUNT, me->rank, round);
        sum(&on, second);
        CHECK_EACH(&on, COUNT, sum_of(2, i, round));
        device_put(&on, COUNT, me->rank, round + 1);
        if (me->rank == 0)
            sum(&on, on.comm);
        meet(pair, &met);
        XT_OK(xcclCommDestroy(second));
        meet(pair, &met);
        if (me->rank == 1)
            sum(&on, on.comm);
        CHECK_EACH(&on, COUNT, sum_of(2, i, round + 1));
    }
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
    return NULL;
}

static void exchange(struct on_device *on, int rank, size_t count)
{
    XT_OK(xcclGroupStart());
    for (size_t i = 0; i < count; i++) {
        XT_OK(xcclSend(at(on->in, i), 1, xcclInt32, !rank, on->comm, on->stream));
        XT_OK(xcclRecv(at(on->out, i), 1, xcclInt32, !rank, on->comm, on->stream));
    }
    XT_OK(xcclGroupEnd());
    CHECK_EACH(on, count, world_value(!rank, i, 0));
}

/* The driver has no memory for the longer list, until the shorter one's is given back. */
static void *exchanges(void *arg)
{
    struct thread_rank *me = arg;
    struct on_device on;
    int met = 0;

    CU(cuda->ctx_set(me->pair->ctx));
    device_make(&on, MANY * 4);
    if (me->rank == 0)
        XT_OK(xcclGetUniqueId(&me->pair->ids[0]));
    meet(me->pair, &met);
    XT_OK(xcclCommInitRank(&on.comm, 2, me->pair->ids[0], me->rank));
    device_put(&on, MANY, me->rank, 0);
    exchange(&on, me->rank, FEW);
    meet(me->pair, &met);
    if (me->rank == 0)
        xt_setenv("XCCL_EMU_FAIL", "cuMemAlloc_v2:1");
    meet(me->pair, &met);
    exchange(&on, me->rank, MANY);
    meet(me->pair, &met);
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
    return NULL;
}

static void run_pair(void *(*fn)(void *))
{
    struct pair pair = {0};
    struct thread_rank ranks[2] = {{&pair, 0}, {&pair, 1}};
    pthread_t threads[2];

    device_settings(NULL);
    device_open();
    xt_set_error_source(world_error);
    CU(cuda->ctx_get(&pair.ctx));
    for (int i = 0; i < 2; i++)
        XT_CHECK(pthread_create(&threads[i], NULL, fn, &ranks[i]) == 0);
    for (int i = 0; i < 2; i++)
        XT_CHECK(pthread_join(threads[i], NULL) == 0);
}

XT_TEST_DEADLINE(communicators_end_beside_kernels_of_others, 60)
{
    run_pair(ends);
}

XT_TEST_DEADLINE(spare_memory_is_given_up_before_a_call_fails, 60)
{
    need_stand_in(FAILS);
    run_pair(exchanges);
}
