/* SPDX-License-Identifier: BSD-3-Clause */
/* CUDA communicators: which device, what all ranks of it share, and the end. Ranks say which device
 * they have; each finds out by itself how many share it, among whom the device's blocks are
 * divided: all blocks of an operation have to be at work at the same time.
 *
 * Thread: see the header. */
#include "cuda/cuda_device.h"

#include <assert.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "cuda/cuda_int.h"

#define TOGETHER     4u /* communicators of a device that do not wait for each other's end */
#define CHANNELS_MAX 16u /* by default: beyond it a device's memory has no more to give */
#define DRAIN_MS     1000
#define DRAIN_NAP_NS 100000
#define READ_MS      5000
#define HOMES_BYTES  (XCCL_CUDA_HOMES * sizeof(struct xccl_dev_home))

static_assert(XCCL_CUDA_OFFER_BYTES <= XCCL_DEVICE_OFFER_MAX, "an offer fits into what ranks send");

/* --- which device --- */

/* The device of the thread's current context; XCCL_DEVICE_HOST: the program does not use CUDA, or
 * this thread has not begun to. Loads nothing. */
static int current_device(void)
{
    const struct xccl_cuda_driver *driver = xccl_cuda_driver_is_loaded() ? xccl_cuda_driver()
                                                                         : NULL;
    xccl_cu_ctx ctx = NULL;
    xccl_cu_device device;

    if (!driver || driver->ctx_get(&ctx) || !ctx || driver->ctx_device(&device))
        return XCCL_DEVICE_HOST;
    return device; /* the driver's numbers are ordinals */
}

xcclResult_t xccl_cuda_default_device(int *device_out)
{
    int device = XCCL_DEVICE_HOST;

    if (xccl_param_int(XCCL_P_DEVICE) != XCCL_DEVICE_SETTING_HOST)
        device = current_device();
    if (device == XCCL_DEVICE_HOST && xccl_param_int(XCCL_P_DEVICE) == XCCL_DEVICE_SETTING_CUDA)
        device = 0;
    *device_out = device;
    return xcclSuccess;
}

xcclResult_t xccl_cuda_count_devices(int *count_out)
{
    const struct xccl_cuda_driver *driver = xccl_cuda_driver();

    if (!driver)
        return xccl_fail(xcclInvalidUsage, 0,
                         "install the driver, or use host communicators (XCCL_DEVICE=host)",
                         "no CUDA device can be used: %s", xccl_cuda_why_not());
    *count_out = driver->devices;
    return xcclSuccess;
}

static uint64_t bytes_of(const struct xcclComm *comm)
{
    return comm->cuda ? comm->cuda->device_bytes : 0;
}

/* --- joining --- */

static xcclResult_t open_device(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    struct xccl_cuda_comm *cuda;
    int count = 0;
    xcclResult_t rc;

    *state_out = XCCL_INIT_DONE;
    rc = xccl_cuda_count_devices(&count);
    if (rc)
        return rc;
    if (comm->device >= count)
        return xccl_fail(xcclInvalidArgument, 0, "pass a device number from 0",
                         "rank %d cannot use CUDA device %d: the number of devices is %d",
                         comm->rank, comm->device, count);
    cuda = xccl_calloc(1, sizeof *cuda);
    if (!cuda)
        return xcclSystemError;
    pthread_mutex_init(&cuda->lock, NULL);
    cuda->comm = comm;
    comm->cuda = cuda;
    rc = xccl_cuda_device_get(comm->device, &cuda->device);
    if (!rc)
        cuda->driver = cuda->device->driver;
    return rc;
}

static void describe(const struct xcclComm *comm, struct xccl_peer *self)
{
    self->ordinal = (uint32_t)comm->device;
    memcpy(self->uuid, comm->cuda->device->uuid.bytes, sizeof self->uuid);
}

static int is_same_device(const struct xccl_peer *a, const struct xccl_peer *b)
{
    return a->host_hash == b->host_hash && memcmp(a->uuid, b->uuid, sizeof a->uuid) == 0;
}

/* A communicator whose ranks have a device each takes a part of it, so that several of them can be
 * at work in whichever order each device began with them: where one has all of a device, and
 * another one all of the next, both wait for ever. One whose ranks share a device divides all of
 * it, for a test has no other communicator beside it. */
static void divide(struct xccl_cuda_comm *cuda)
{
    const struct xcclComm *comm = cuda->comm;
    uint32_t blocks = (uint32_t)cuda->device->multiprocessors, want;

    for (int i = 0; i < comm->nranks; i++)
        cuda->sharers += (uint32_t)is_same_device(&comm->peers[i], &comm->peers[comm->rank]);
    blocks /= cuda->sharers > 1 ? cuda->sharers : TOGETHER;
    cuda->blocks = blocks ? blocks : 1;
    want = (uint32_t)xccl_param_int(XCCL_P_CUDA_CHANNELS);
    if (!want)
        want = cuda->blocks / 2 < CHANNELS_MAX ? cuda->blocks / 2 : CHANNELS_MAX;
    cuda->channels = want < cuda->blocks ? want : cuda->blocks;
    cuda->channels += !cuda->channels;
}

/* What the device and the host tell each other by. */
static xcclResult_t make_status(struct xccl_cuda_comm *cuda)
{
    struct xccl_dev_comm dev = {.rank = (uint32_t)cuda->comm->rank,
                                .limit_ns = xccl_cuda_limit_ns(cuda->comm)};
    void *status = NULL;
    xcclResult_t rc = xccl_cuda_host_alloc(cuda->device, sizeof *cuda->status, &status,
                                           &cuda->status_at);

    if (rc)
        return rc;
    cuda->status = status;
    memset(cuda->status, 0, sizeof *cuda->status);
    dev.status = cuda->status_at;
    if (xccl_comm_any_remote(cuda->comm)) {
        rc = xccl_cuda_pool_alloc(cuda, HOMES_BYTES, &cuda->homes_at);
        if (rc)
            return rc;
    }
    dev.homes = cuda->homes_at;
    rc = xccl_cuda_pool_alloc(cuda, sizeof dev, &cuda->comm_at);
    return rc ? rc : xccl_cuda_upload(cuda->device, cuda->comm_at, &dev, sizeof dev);
}

/* All ranks are known, and so is shared memory. Ends with a round in which they tell where messages
 * of pairs go. */
static xcclResult_t meet(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    struct xccl_cuda_offer offer = {0};
    xcclResult_t rc;

    *state_out = XCCL_INIT_DONE;
    divide(comm->cuda);
    rc = xccl_cuda_edges_init(comm);
    if (!rc)
        rc = make_status(comm->cuda);
    if (!rc)
        rc = xccl_cuda_order_init(comm->cuda);
    if (!rc)
        rc = xccl_cuda_p2p_offer(comm, &offer);
    if (rc)
        return rc;
    xccl_log(XCCL_LOG_INFO,
             "CUDA device %d (%s): %u ranks of this communicator use it, with %u blocks each",
             comm->device, comm->cuda->device->name, comm->cuda->sharers, comm->cuda->blocks);
    return xccl_cuda_agree_offer(init, &offer);
}

static xcclResult_t ready(struct xcclComm *comm)
{
    xccl_cuda_tell_ways(comm);
    atomic_fetch_or_explicit(&comm->detour, XCCL_DETOUR_DEVICE, memory_order_relaxed);
    return xccl_cuda_watch_start(comm);
}

/* --- leaving --- */

/* Kernels that still run use all of it. 0: they do not end. */
static int drain(struct xccl_cuda_comm *cuda)
{
    struct xccl_limit limit = xccl_limit_ms(DRAIN_MS, NULL);
    int failed = xccl_comm_error(cuda->comm) != xcclSuccess;

    if (!cuda->worker.has_launched || xccl_cuda_enter(cuda->device))
        return 1;
    while (cuda->driver->event_query(cuda->worker.event) == XCCL_CU_NOT_READY) {
        if (!failed)
            failed = xccl_comm_error(cuda->comm) != xcclSuccess;
        if (failed) {
            if (xccl_limit_passed(&limit))
                break;
        } else {
            limit = xccl_limit_ms(DRAIN_MS, NULL);
        }
        nanosleep(&(struct timespec){.tv_nsec = DRAIN_NAP_NS}, NULL);
    }
    failed = cuda->driver->event_query(cuda->worker.event) == XCCL_CU_NOT_READY;
    xccl_cuda_leave(cuda->device);
    return !failed;
}

/* 1: no rank of the host is still making links that this one has. */
static int are_linked(const struct xcclComm *comm)
{
    uint32_t own = atomic_load_explicit(&comm->board->linked, memory_order_relaxed);

    for (int i = 0; comm->shm && i < xccl_shm_nlocal(comm->shm); i++) {
        const struct xccl_board *board = xccl_shm_board(comm->shm, i);
        /* Acquire: pairs with xccl_cuda_resume(). */
        uint32_t linked = atomic_load_explicit(&board->linked, memory_order_acquire);

        if ((int32_t)(linked - own) < 0 &&
            atomic_load_explicit(&board->outside, memory_order_relaxed) != 2)
            return 0;
    }
    return 1;
}

/* Other ranks of the host open memory of this one, which needs nothing of them and may be first. */
static void await_openers(struct xcclComm *comm)
{
    struct xccl_limit limit = xccl_limit_ms(READ_MS, NULL);

    while (!are_linked(comm) && !xccl_comm_error(comm) && !xccl_limit_passed(&limit))
        nanosleep(&(struct timespec){.tv_nsec = DRAIN_NAP_NS}, NULL);
}

/* 1: kernels of other ranks reach memory that goes when this rank frees it: in its process, and by
 * legacy IPC. Who has opened a handle holds the memory. */
static int is_reached(const struct xcclComm *comm)
{
    const struct xccl_cuda_edges *edges = &comm->cuda->edges;

    for (uint32_t i = 0; i < edges->count; i++) {
        int peer = xccl_shm_rank_of(comm->shm, (int)i);

        if (peer != comm->rank &&
            (edges->own[i].kind == XCCL_CUDA_MEMORY_DEVICE || xccl_cuda_same_process(comm, peer)))
            return 1;
    }
    return 0;
}

/* Kernels of other ranks of the host give slots back until they end, in memory of this rank. Until
 * all that it sent has been read; after an error until they have had time to see it. */
static void await_readers(struct xcclComm *comm)
{
    struct xccl_cuda_comm *cuda = comm->cuda;
    struct xccl_limit limit = xccl_limit_ms(READ_MS, NULL);

    if (!cuda->worker.has_launched)
        return;
    while (!xccl_comm_error(comm) && !xccl_limit_passed(&limit) &&
           !(xccl_cuda_links_read(comm) && xccl_cuda_p2p_is_read(comm)))
        nanosleep(&(struct timespec){.tv_nsec = DRAIN_NAP_NS}, NULL);
    while (comm->shm && xccl_comm_error(comm) && !xccl_limit_passed(&limit) && is_reached(comm)) {
        /* Relaxed: a time, and nothing with it. */
        uint64_t failed_ns = atomic_load_explicit(&cuda->failed_ns, memory_order_relaxed);

        if (failed_ns && xccl_clock_ns() > failed_ns + DRAIN_MS * XCCL_NS_PER_MS)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 10 * DRAIN_NAP_NS}, NULL);
    }
}

/* Calls that have been launched may still be found not to belong together. Kernels that wait end
 * by the deadline. */
static void settle(struct xcclComm *comm)
{
    struct xccl_cuda_comm *cuda = comm->cuda;
    struct xccl_limit limit = {.deadline_ns = XCCL_NEVER_NS};

    if (!cuda || !cuda->watch)
        return;
    while (!xccl_comm_error(comm) && !xccl_cuda_is_done(cuda))
        nanosleep(&(struct timespec){.tv_nsec = DRAIN_NAP_NS}, NULL);
    limit = xccl_limit_ms(DRAIN_MS, NULL);
    while (!xccl_comm_error(comm) && !xccl_cuda_is_told(cuda) && !xccl_limit_passed(&limit))
        nanosleep(&(struct timespec){.tv_nsec = DRAIN_NAP_NS}, NULL);
}

/* The device is gone: calls take the host's way, which returns the communicator's error. */
static struct xccl_cuda_comm *detach(struct xcclComm *comm)
{
    struct xccl_cuda_comm *cuda = comm->cuda;

    atomic_fetch_and_explicit(&comm->detour, ~(uint32_t)XCCL_DETOUR_DEVICE, memory_order_relaxed);
    comm->cuda = NULL;
    return cuda;
}

static void stop(struct xcclComm *comm)
{
    struct xccl_cuda_comm *cuda = comm->cuda;

    if (!cuda || !cuda->watch)
        return;
    if (!drain(cuda)) {
        xccl_log(XCCL_LOG_WARN,
                 "rank %d: a kernel still runs %d ms after its communicator was destroyed; its "
                 "memory is not freed",
                 comm->rank, DRAIN_MS);
        xccl_cuda_watch_stop(comm);
        (void)detach(comm);
        return;
    }
    await_openers(comm);
    await_readers(comm);
    xccl_cuda_watch_stop(comm);
}

static void unpin(struct xcclComm *comm)
{
    if (comm->cuda)
        xccl_cuda_drop_pins(comm->cuda);
}

static void unlink_all(struct xcclComm *comm)
{
    if (!comm->cuda || !comm->cuda->device)
        return;
    xccl_cuda_p2p_free(comm->cuda);
    xccl_cuda_drop_links(comm->cuda);
}

static void free_images(struct xccl_cuda_comm *cuda)
{
    for (uint32_t i = 0; i < cuda->image_count; i++) {
        if (!cuda->images[i])
            continue;
        xccl_cuda_pool_free(cuda, cuda->images[i]->at, cuda->images[i]->bytes);
        xccl_free(cuda->images[i]->net_messages);
        xccl_free(cuda->images[i]);
    }
    xccl_free(cuda->images);
}

static void close_device(struct xcclComm *comm)
{
    struct xccl_cuda_comm *cuda = detach(comm);

    if (!cuda)
        return;
    if (cuda->device) {
        free_images(cuda);
        xccl_cuda_drop_rooms(cuda);
        xccl_cuda_pool_free(cuda, cuda->scratch, cuda->scratch_bytes);
        xccl_cuda_pool_free(cuda, cuda->homes_at, HOMES_BYTES);
        xccl_cuda_pool_free(cuda, cuda->comm_at, sizeof(struct xccl_dev_comm));
        xccl_cuda_worker_leave(cuda->device, &cuda->worker);
        xccl_cuda_pool_drop(cuda);
        xccl_cuda_host_free_later(cuda->device, cuda->status, cuda->status_at,
                                  sizeof *cuda->status);
        xccl_cuda_order_fini(cuda);
        xccl_cuda_device_put(cuda->device);
    }
    xccl_cuda_thread_put(cuda); /* of a child that has not joined */
    xccl_cuda_drop_ways(cuda);
    xccl_cuda_edges_fini(&cuda->edges);
    xccl_free(cuda->agree_offers);
    pthread_mutex_destroy(&cuda->lock);
    xccl_free(cuda);
}

static void registered(void *at, size_t bytes)
{
    (void)at;
    (void)bytes;
}

static xcclResult_t plan(struct xcclComm *comm)
{
    comm->planner.is_device = 1;
    return xcclSuccess;
}

static void hold(struct xcclComm *comm)
{
    if (comm->cuda) /* else the device is gone */
        pthread_mutex_lock(&comm->cuda->lock);
}

static void release(struct xcclComm *comm)
{
    if (comm->cuda)
        pthread_mutex_unlock(&comm->cuda->lock);
}

const struct xccl_device_ops xccl_device_cuda = {
    .name = "a CUDA device",
    .kind = 1,
    .gives_memory = 1,
    .queues = 1,
    .reads_scalars = 1,
    .tells_board = 1,
    .extra_rooms = 4,
    .offer_bytes = XCCL_CUDA_OFFER_BYTES,
    .open = open_device,
    .meet = meet,
    .try_links = xccl_init_cuda_links,
    .describe = describe,
    .card = xccl_cuda_card,
    .share = xccl_cuda_share,
    .ready = ready,
    .stop = stop,
    .unlink = unlink_all,
    .close = close_device,
    .plan = plan,
    .unpin = unpin,
    .offer = xccl_cuda_offer,
    .take_offers = xccl_cuda_take_offers,
    .give_room = xccl_cuda_give_room,
    .bound = xccl_cuda_bound,
    .submit = xccl_cuda_submit,
    .resume = xccl_cuda_resume,
    .registered = registered,
    .next_number = xccl_cuda_next_number,
    .stand = xccl_cuda_stand,
    .settle = settle,
    .hold = hold,
    .release = release,
    .hides_error = xccl_cuda_hides_error,
    .turn = xccl_cuda_turn,
    .bytes = bytes_of,
};
