/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of links that the ranks of a host reach. It is offered in pieces, one for each sort that
 * some rank is to have (cuda_edges.c):
 *
 *   BY_HANDLE  device memory that other processes get as a descriptor (exec/cuda/handle_memory.h),
 *              over a proven Unix connection (transport/shm_given.c), or by a fabric handle, which
 *              goes with the offer
 *   BY_DEVICE  device memory: of one process by its address, else by legacy IPC
 *   BY_HOST    pinned memory in the rank's shared segment
 *
 * What a driver refuses, or another rank cannot open, is found out when ranks join
 * (cuda_agree.c). Once all have joined, nobody would try out whether IPC works: a piece that
 * is refused then is pinned, and says why.
 *
 * Thread: the joining one, then the crank's holder. */
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/param.h"
#include "connect/comm_links.h"
#include "cuda/cuda_int.h"

#define PAGE     4096u
#define FETCH_MS 5000

/* --- pinned host memory --- */

/* Pinned ranges of shared segments: one entry for all ranks of the process. */
struct pinned {
    struct xccl_cuda_device *device; /* whose context has it: held, for others may need it longer */
    char *at;
    size_t bytes;
    int refs;
    struct pinned *next;
};

static pthread_mutex_t pinned_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pinned *pinned_list;

/* What a communicator has pinned, to be given back. */
struct xccl_cuda_pin {
    char *at;
    struct xccl_cuda_pin *next;
};

static xcclResult_t pin_once(struct xccl_cuda_comm *cuda, char *at, size_t bytes)
{
    struct pinned *pinned = pinned_list;
    xcclResult_t rc;

    while (pinned && pinned->at != at)
        pinned = pinned->next;
    if (pinned) {
        pinned->refs++;
        return xcclSuccess;
    }
    pinned = xccl_calloc(1, sizeof *pinned);
    if (!pinned)
        return xcclSystemError;
    rc = xccl_cuda_device_get(cuda->device->ordinal, &pinned->device);
    if (!rc)
        rc = xccl_cuda_enter(cuda->device);
    if (!rc) {
        rc = xccl_cuda_result(
            cuda->driver->host_register(at, bytes, XCCL_CU_HOST_PORTABLE | XCCL_CU_HOST_MAPPED),
            "pinning shared memory");
        xccl_cuda_leave(cuda->device);
    }
    if (rc) {
        xccl_cuda_device_put(pinned->device);
        xccl_free(pinned);
        return rc;
    }
    *pinned = (struct pinned){pinned->device, at, bytes, 1, pinned_list};
    pinned_list = pinned;
    return xcclSuccess;
}

static void unpin(const char *at)
{
    pthread_mutex_lock(&pinned_lock);
    for (struct pinned **link = &pinned_list; *link; link = &(*link)->next) {
        struct pinned *pinned = *link;

        if (pinned->at != at)
            continue;
        if (--pinned->refs == 0) {
            *link = pinned->next;
            if (!xccl_cuda_enter(pinned->device)) {
                (void)pinned->device->driver->host_unregister(pinned->at);
                xccl_cuda_leave(pinned->device);
            }
            xccl_cuda_device_put(pinned->device);
            xccl_free(pinned);
        }
        break;
    }
    pthread_mutex_unlock(&pinned_lock);
}

xcclResult_t xccl_cuda_pin(struct xccl_cuda_comm *cuda, void *at, size_t bytes, xccl_cu_ptr *at_out)
{
    struct xccl_cuda_pin *pin = xccl_calloc(1, sizeof *pin);
    xcclResult_t rc;

    if (!pin)
        return xcclSystemError;
    pthread_mutex_lock(&pinned_lock);
    rc = pin_once(cuda, at, bytes);
    pthread_mutex_unlock(&pinned_lock);
    if (rc) {
        xccl_free(pin);
        return rc;
    }
    pin->at = at;
    pin->next = cuda->pins;
    cuda->pins = pin;
    rc = xccl_cuda_enter(cuda->device);
    if (rc)
        return rc;
    rc = xccl_cuda_result(cuda->driver->host_device_ptr(at_out, at, 0),
                          "querying the device address of pinned memory");
    xccl_cuda_leave(cuda->device);
    return rc;
}

void xccl_cuda_drop_pins(struct xccl_cuda_comm *cuda)
{
    while (cuda->pins) {
        struct xccl_cuda_pin *pin = cuda->pins;

        cuda->pins = pin->next;
        unpin(pin->at);
        xccl_free(pin);
    }
}

/* --- offers --- */

/* Whom the memory is for besides its own rank: devices of this process. */
static int list_devices(const struct xcclComm *comm, int *ordinals_out, int room)
{
    int count = 0;

    for (int i = 0; i < comm->nranks; i++) {
        int ordinal = (int)comm->peers[i].ordinal, known = ordinal == comm->device;

        if (!xccl_comm_is_local(comm, i) || !xccl_cuda_same_process(comm, i))
            continue;
        for (int k = 0; k < count; k++)
            known |= ordinals_out[k] == ordinal;
        if (!known && count < room)
            ordinals_out[count++] = ordinal;
    }
    return count;
}

static struct xccl_cuda_why refusal(const struct xcclComm *comm, enum xccl_cuda_why_code code,
                                    xccl_cu_result result)
{
    return (struct xccl_cuda_why){code, (uint32_t)comm->rank, (uint32_t)result};
}

/* Where the block has a fabric handle, it goes with the offer whether or not it is asked for: a
 * descriptor may be refused later. */
static void offer_fabric(struct xcclComm *comm, const struct xccl_cuda_block *block,
                         struct xccl_cuda_piece *piece)
{
    struct xccl_cuda_comm *cuda = comm->cuda;
    xccl_cu_result result;

    if (!block->has_fabric && block->no_fabric)
        cuda->no_fabric = refusal(comm, XCCL_CUDA_WHY_FABRIC_CREATE, block->no_fabric);
    if (!block->has_fabric)
        return;
    result = xccl_cuda_block_export_fabric(cuda->device, block, &piece->fabric);
    if (result)
        cuda->no_fabric = refusal(comm, XCCL_CUDA_WHY_FABRIC_EXPORT, result);
}

/* To be given so many times. */
static void offer_descriptor(struct xcclComm *comm, uint32_t times, struct xccl_cuda_held *held,
                             struct xccl_cuda_why *refused)
{
    int fd = -1;
    xccl_cu_result result = xccl_cuda_block_export(comm->cuda->device, &held->block, &fd);

    if (result || xccl_shm_give(comm->shm, fd, times, &held->number))
        *refused = refusal(comm, XCCL_CUDA_WHY_EXPORT, result);
}

static xcclResult_t offer_handle(struct xcclComm *comm, const struct xccl_cuda_want *want,
                                 struct xccl_cuda_piece *piece, struct xccl_cuda_held *held,
                                 struct xccl_cuda_why *refused)
{
    struct xccl_cuda_comm *cuda = comm->cuda;
    int reaches[XCCL_CUDA_DEVICES_MAX];
    int count = list_devices(comm, reaches, XCCL_CUDA_DEVICES_MAX);
    xccl_cu_result result = xccl_cuda_block_create(cuda->device, piece->bytes, reaches, count, 1,
                                                   !cuda->no_fabric.code, &held->block);

    if (result) {
        *refused = refusal(comm, XCCL_CUDA_WHY_CREATE, result);
        return xcclSuccess;
    }
    offer_fabric(comm, &held->block, piece);
    if (want->fabrics && cuda->no_fabric.code)
        *refused = cuda->no_fabric;
    else if (want->times)
        offer_descriptor(comm, want->times, held, refused);
    if (refused->code) {
        xccl_cuda_block_free(cuda->device, &held->block);
        return xcclSuccess;
    }
    held->memory = piece->memory = XCCL_CUDA_MEMORY_HANDLE;
    held->at = piece->base = held->block.at;
    piece->bytes = held->block.bytes;
    piece->number = held->number;
    cuda->device_bytes += held->block.bytes;
    return xccl_cuda_clear(cuda->device, held->at, held->block.bytes);
}

static void take_back(struct xcclComm *comm, struct xccl_cuda_held *held)
{
    struct xccl_cuda_comm *cuda = comm->cuda;

    if (held->number)
        xccl_shm_take_back(comm->shm, held->number);
    if (held->memory == XCCL_CUDA_MEMORY_HANDLE) {
        cuda->device_bytes -= held->block.bytes;
        xccl_cuda_block_free(cuda->device, &held->block);
    }
    if (held->memory == XCCL_CUDA_MEMORY_DEVICE)
        xccl_cuda_pool_free(cuda, held->at, held->bytes);
    *held = (struct xccl_cuda_held){0}; /* host memory is the segment's */
}

void xccl_cuda_take_back(struct xcclComm *comm, struct xccl_cuda_held held[XCCL_CUDA_PIECES])
{
    for (int i = 0; i < XCCL_CUDA_PIECES; i++)
        take_back(comm, &held[i]);
}

static xcclResult_t offer_device(struct xcclComm *comm, uint32_t times,
                                 struct xccl_cuda_piece *piece, struct xccl_cuda_held *held,
                                 struct xccl_cuda_why *refused)
{
    struct xccl_cuda_comm *cuda = comm->cuda;
    xccl_cu_result result;
    xcclResult_t rc = xccl_cuda_pool_alloc(cuda, piece->bytes, &held->at);

    if (rc)
        return rc;
    held->memory = piece->memory = XCCL_CUDA_MEMORY_DEVICE;
    held->bytes = piece->bytes;
    piece->base = held->at;
    rc = xccl_cuda_clear(cuda->device, held->at, held->bytes);
    if (rc || !times)
        return rc;
    rc = xccl_cuda_enter(cuda->device);
    if (rc)
        return rc;
    result = cuda->driver->ipc_get(&piece->ipc, held->at);
    xccl_cuda_leave(cuda->device);
    if (!result)
        return xcclSuccess;
    *refused = refusal(comm, XCCL_CUDA_WHY_IPC_GET, result);
    take_back(comm, held);
    return xcclSuccess;
}

static xcclResult_t offer_host(struct xcclComm *comm, struct xccl_cuda_piece *piece,
                               struct xccl_cuda_held *held)
{
    struct xccl_cuda_comm *cuda = comm->cuda;
    size_t room, at = cuda->extra_used;
    char *extra = xccl_shm_extra(comm->shm, xccl_shm_index_of(comm->shm, comm->rank), &room);

    if (piece->bytes > room - at)
        return xccl_fail(xcclSystemError, 0, "raise XCCL_BUFFER_BYTES",
                         "rank %d: links between devices without peer access need %zu bytes of "
                         "shared memory, but only %zu of %zu are free",
                         comm->rank, (size_t)piece->bytes, room - at, room);
    cuda->extra_used += piece->bytes;
    held->memory = piece->memory = XCCL_CUDA_MEMORY_HOST;
    piece->base = at;
    memset(extra + at, 0, piece->bytes);
    return xccl_cuda_pin(cuda, extra + at, piece->bytes, &held->at);
}

xcclResult_t xccl_cuda_offer_piece(struct xcclComm *comm, enum xccl_cuda_which which,
                                   const struct xccl_cuda_want *want, struct xccl_cuda_piece *piece,
                                   struct xccl_cuda_held *held, struct xccl_cuda_why *refused)
{
    struct xccl_cuda_why *fallen = &comm->cuda->fallen[which], why = {0};
    xcclResult_t rc = xcclSuccess;

    *held = (struct xccl_cuda_held){0};
    piece->bytes = (want->bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    if (which == XCCL_CUDA_BY_HANDLE && !fallen->code)
        rc = offer_handle(comm, want, piece, held, &why);
    if (which == XCCL_CUDA_BY_DEVICE && !fallen->code)
        rc = offer_device(comm, want->times, piece, held, &why);
    if (why.code && refused) {
        *refused = why;
        *piece = (struct xccl_cuda_piece){0};
        return rc;
    }
    if (why.code)
        *fallen = why;
    piece->why = *fallen;
    return rc || held->memory != XCCL_CUDA_MEMORY_NONE ? rc : offer_host(comm, piece, held);
}

/* --- what others offer --- */

/* Memory of another process, opened. */
struct xccl_cuda_opened {
    int peer;
    enum xccl_cuda_memory kind; /* HANDLE, FABRIC, or DEVICE by IPC */
    uint32_t round; /* of agreeing, in which it was last mapped */
    uint32_t number; /* one of these three says what it is, by kind */
    struct xccl_cu_fabric fabric;
    struct xccl_cu_ipc ipc;
    struct xccl_cuda_block block;
    xccl_cu_ptr at;
    struct xccl_cuda_opened *next;
};

static int is_it(const struct xccl_cuda_opened *opened, const struct xccl_cuda_piece *piece)
{
    switch (opened->kind) {
    case XCCL_CUDA_MEMORY_HANDLE:
        return opened->number == piece->number;
    case XCCL_CUDA_MEMORY_FABRIC:
        return memcmp(&opened->fabric, &piece->fabric, sizeof opened->fabric) == 0;
    default:
        return memcmp(&opened->ipc, &piece->ipc, sizeof opened->ipc) == 0;
    }
}

static struct xccl_cuda_opened *find_opened(const struct xccl_cuda_comm *cuda, int peer,
                                            enum xccl_cuda_memory kind,
                                            const struct xccl_cuda_piece *piece)
{
    struct xccl_cuda_opened *at = cuda->opened;

    while (at && (at->peer != peer || at->kind != kind || !is_it(at, piece)))
        at = at->next;
    return at;
}

/* The three ways of opening are quiet; refused: what is put into the record. */
static xcclResult_t open_handle(struct xcclComm *comm, const struct xccl_cuda_piece *piece,
                                struct xccl_cuda_opened *opened, struct xccl_cuda_why *refused)
{
    struct xccl_limit limit = xccl_limit_ms(FETCH_MS, NULL);
    xccl_cu_result result;
    int fd = -1;
    xcclResult_t rc = xccl_shm_fetch_given(comm->shm, &comm->peers[opened->peer].unix_addr,
                                           piece->number, &limit, &fd);

    *refused = refusal(comm, XCCL_CUDA_WHY_IMPORT, 0);
    if (rc)
        return rc;
    result = xccl_cuda_block_import(comm->cuda->device, fd, piece->bytes, &opened->block);
    close(fd);
    opened->number = piece->number;
    opened->at = opened->block.at;
    refused->result = (uint32_t)result;
    return xccl_cuda_result_quietly(result, "importing a handle");
}

static xcclResult_t open_fabric(struct xcclComm *comm, const struct xccl_cuda_piece *piece,
                                struct xccl_cuda_opened *opened, struct xccl_cuda_why *refused)
{
    xccl_cu_result result = xccl_cuda_block_import_fabric(comm->cuda->device, &piece->fabric,
                                                          piece->bytes, &opened->block);

    opened->fabric = piece->fabric;
    opened->at = opened->block.at;
    *refused = refusal(comm, XCCL_CUDA_WHY_FABRIC_IMPORT, result);
    return xccl_cuda_result_quietly(result, "importing a fabric handle");
}

static xcclResult_t open_ipc(struct xcclComm *comm, const struct xccl_cuda_piece *piece,
                             struct xccl_cuda_opened *opened, struct xccl_cuda_why *refused)
{
    struct xccl_cuda_comm *cuda = comm->cuda;
    xccl_cu_result result;
    xcclResult_t rc = xccl_cuda_enter(cuda->device);

    if (rc)
        return rc;
    result = cuda->driver->ipc_open(&opened->at, piece->ipc, XCCL_CU_IPC_LAZY_PEER_ACCESS);
    xccl_cuda_leave(cuda->device);
    opened->ipc = piece->ipc;
    *refused = refusal(comm, XCCL_CUDA_WHY_IPC_OPEN, result);
    return xccl_cuda_result_quietly(result, "opening an IPC handle");
}

static xcclResult_t open_other(struct xcclComm *comm, int peer, const struct xccl_cuda_piece *piece,
                               xccl_cu_ptr *at_out, struct xccl_cuda_why *refused)
{
    struct xccl_cuda_comm *cuda = comm->cuda;
    enum xccl_cuda_memory kind =
        (enum xccl_cuda_memory)cuda->edges.theirs[xccl_shm_index_of(comm->shm, peer)].kind;
    struct xccl_cuda_opened *opened = find_opened(cuda, peer, kind, piece);
    struct xccl_cuda_why why = {0};
    xcclResult_t rc;

    if (opened) {
        opened->round = cuda->agree_rounds;
        *at_out = opened->at;
        return xcclSuccess;
    }
    opened = xccl_calloc(1, sizeof *opened);
    if (!opened)
        return xcclSystemError;
    opened->peer = peer;
    opened->kind = kind;
    opened->round = cuda->agree_rounds;
    if (kind == XCCL_CUDA_MEMORY_HANDLE)
        rc = open_handle(comm, piece, opened, &why);
    else if (kind == XCCL_CUDA_MEMORY_FABRIC)
        rc = open_fabric(comm, piece, opened, &why);
    else
        rc = open_ipc(comm, piece, opened, &why);
    if (!rc) {
        opened->next = cuda->opened;
        cuda->opened = opened;
        *at_out = opened->at;
        return xcclSuccess;
    }
    xccl_free(opened);
    if (!refused || !why.code)
        return xccl_fail(rc, 0, "set XCCL_CUDA_P2P=0 to work without it",
                         "rank %d cannot open device memory of rank %d: %.300s", comm->rank, peer,
                         xccl_error_text());
    *refused = why;
    return xcclSuccess;
}

void xccl_cuda_close_opened(struct xccl_cuda_comm *cuda, int all)
{
    struct xccl_cuda_opened **at = &cuda->opened;

    while (*at) {
        struct xccl_cuda_opened *opened = *at;

        if (!all && opened->round == cuda->agree_rounds) {
            at = &opened->next;
            continue;
        }
        *at = opened->next;
        xccl_cuda_block_free(cuda->device, &opened->block);
        if (opened->kind == XCCL_CUDA_MEMORY_DEVICE && !xccl_cuda_enter(cuda->device)) {
            (void)cuda->driver->ipc_close(opened->at);
            xccl_cuda_leave(cuda->device);
        }
        xccl_free(opened);
    }
}

/* Another device of this process. */
static xcclResult_t enable_peer(struct xccl_cuda_comm *cuda, int ordinal)
{
    struct xccl_cuda_device *peer;
    xccl_cu_result result;
    xcclResult_t rc;

    if (ordinal == cuda->device->ordinal)
        return xcclSuccess;
    rc = xccl_cuda_device_get(ordinal, &peer);
    if (rc)
        return rc;
    rc = xccl_cuda_enter(cuda->device);
    if (!rc) {
        result = cuda->driver->ctx_enable_peer(peer->ctx, 0);
        rc = result == XCCL_CU_PEER_ENABLED
                 ? xcclSuccess
                 : xccl_cuda_result(result, "enabling peer access between devices");
        xccl_cuda_leave(cuda->device);
    }
    xccl_cuda_device_put(peer); /* its own rank holds it */
    return rc;
}

static xcclResult_t map_host(struct xcclComm *comm, int peer, const struct xccl_cuda_piece *piece,
                             xccl_cu_ptr *base_out)
{
    size_t room;
    char *extra = xccl_shm_extra(comm->shm, xccl_shm_index_of(comm->shm, peer), &room);

    if (piece->base > room || piece->bytes > room - piece->base || piece->base % PAGE)
        return xccl_fail(xcclRemoteError, 0, NULL,
                         "rank %d offers memory outside of its shared memory segment", peer);
    return xccl_cuda_pin(comm->cuda, extra + piece->base, piece->bytes, base_out);
}

xcclResult_t xccl_cuda_map(struct xcclComm *comm, int peer, const struct xccl_cuda_piece *piece,
                           xccl_cu_ptr *base_out, struct xccl_cuda_why *refused)
{
    int is_same_process = xccl_cuda_same_process(comm, peer);

    switch (piece->memory) {
    case XCCL_CUDA_MEMORY_HOST:
        return map_host(comm, peer, piece, base_out);
    case XCCL_CUDA_MEMORY_HANDLE:
    case XCCL_CUDA_MEMORY_DEVICE:
        if (!is_same_process)
            return open_other(comm, peer, piece, base_out, refused);
        *base_out = piece->base;
        /* A handle's memory was opened to this device when it was made. */
        return piece->memory == XCCL_CUDA_MEMORY_HANDLE
                   ? xcclSuccess
                   : enable_peer(comm->cuda, (int)comm->peers[peer].ordinal);
    default:
        return xccl_fail(xcclInternalError, 0, "report this as a bug",
                         "rank %d offers no memory to rank %d", peer, comm->rank);
    }
}
