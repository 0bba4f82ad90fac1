/* SPDX-License-Identifier: BSD-3-Clause */
/* Registration, with a cache a port: memory that lies in registered pages is not registered
 * again, be it of the host or of a device, whose addresses differ. Regions are found by halving, in
 * the order of their begins; reach says how far the regions up to one extend, so that a longer one
 * before it is found and the search ends early. A region without users is given back at once, for
 * nobody tells when its pages get other contents; therefore what a comm has registered ends with
 * the comm at the latest.
 *
 * Memory of a device comes with a DMA-BUF, or without one where the driver's peer memory module is
 * loaded. A receiver's is read to flush it (ib_flush.c).
 *
 * Thread: any; one lock a port, held while the kernel pins pages. */
#include "ib_int.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/param.h"

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

/* What is to be registered: whole pages. */
struct span {
    uintptr_t begin, end;
    int is_device;
    int fd; /* of a DMA-BUF; -1: there is none */
    uint64_t offset; /* in it, of begin */
};

xcclResult_t ib_cache_init(struct ib_cache *cache)
{
    int err = pthread_mutex_init(&cache->lock, NULL);

    return err ? xccl_fail_quietly(xcclSystemError, err, NULL,
                                   "cannot create a lock for registrations")
               : xcclSuccess;
}

static void region_destroy(const struct ib_ctx *ctx, struct ib_region *region)
{
    if (region->mr)
        ctx->verbs->dereg_mr(region->mr);
    xccl_free(region);
}

void ib_cache_fini(const struct ib_ctx *ctx, struct ib_cache *cache)
{
    for (int i = 0; i < cache->count; i++)
        region_destroy(ctx, cache->places[i].region);
    xccl_free(cache->places);
    pthread_mutex_destroy(&cache->lock);
}

/* The first region that begins behind begin; count if none does. */
static int place_behind(const struct ib_cache *cache, uintptr_t begin)
{
    int low = 0, high = cache->count;

    while (low < high) {
        int middle = (low + high) / 2;

        if (cache->places[middle].region->begin <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct ib_region *region_find(const struct ib_cache *cache, uintptr_t begin, uintptr_t end)
{
    int i = place_behind(cache, begin) - 1;

    for (; i >= 0 && cache->places[i].reach >= end; i--) {
        if (cache->places[i].region->end >= end)
            return cache->places[i].region;
    }
    return NULL;
}

static void reach_renew(struct ib_cache *cache, int from)
{
    for (int i = from; i < cache->count; i++) {
        uintptr_t before = i ? cache->places[i - 1].reach : 0, end = cache->places[i].region->end;

        cache->places[i].reach = before > end ? before : end;
    }
}

static int room_make(struct ib_cache *cache)
{
    int room = cache->room ? 2 * cache->room : 64;
    struct ib_place *places;

    if (cache->count < cache->room)
        return 1;
    places = xccl_realloc(cache->places, (size_t)room * sizeof(*places));
    if (!places)
        return 0;
    cache->places = places;
    cache->room = room;
    return 1;
}

static void region_insert(struct ib_cache *cache, struct ib_region *region)
{
    int at = place_behind(cache, region->begin);

    memmove(cache->places + at + 1, cache->places + at,
            (size_t)(cache->count - at) * sizeof(cache->places[0]));
    cache->places[at].region = region;
    cache->count++;
    reach_renew(cache, at);
}

static void region_remove(struct ib_cache *cache, const struct ib_region *region)
{
    int at = place_behind(cache, region->begin) - 1;

    while (cache->places[at].region != region)
        at--;
    memmove(cache->places + at, cache->places + at + 1,
            (size_t)(cache->count - at - 1) * sizeof(cache->places[0]));
    cache->count--;
    reach_renew(cache, at);
}

static xcclResult_t tell_not_pinned(const struct ib_device *device, const void *data, size_t bytes)
{
    return xccl_fail_quietly(xcclSystemError, errno,
                             errno == ENOMEM ? "raise ulimit -l" : "see the kernel's log",
                             "cannot register %zu bytes at %p on %s", bytes, data, device->name);
}

/* Of the plugin's own, strictly in order. */
static xcclResult_t pin(const struct ib_ctx *ctx, const struct ib_device *device, void *data,
                        size_t bytes, struct ibv_mr **mr_out)
{
    *mr_out = ctx->verbs->reg_mr(device->pd, data, bytes, ACCESS);
    return *mr_out ? xcclSuccess : tell_not_pinned(device, data, bytes);
}

/* The user's. Nobody looks at it before its completion, which no write passes, so writes may pass
 * each other; kernels that cannot let them ignore the flag, and libraries that do not know it have
 * no ibv_reg_mr_iova2. */
static struct ibv_mr *pin_span(const struct ib_ctx *ctx, const struct ib_device *device,
                               const struct span *span)
{
    size_t bytes = span->end - span->begin;
    int access = ACCESS | (span->is_device ? IBV_ACCESS_REMOTE_READ : 0);

    if (ctx->verbs->reg_mr_iova2 && xccl_param_int(XCCL_P_IB_RELAXED_ORDERING))
        access |= IBV_ACCESS_RELAXED_ORDERING;
    if (span->fd >= 0)
        return ctx->verbs->reg_dmabuf_mr(device->pd, span->offset, bytes, span->begin, span->fd,
                                         access);
    if (access & IBV_ACCESS_RELAXED_ORDERING)
        return ctx->verbs->reg_mr_iova2(device->pd, (void *)span->begin, bytes, span->begin,
                                        (unsigned)access);
    return ctx->verbs->reg_mr(device->pd, (void *)span->begin, bytes, access);
}

void ib_unpin(const struct ib_comm *comm, struct ibv_mr *mrs[IB_PORTS_MAX])
{
    for (int i = 0; i < IB_PORTS_MAX; i++) {
        if (mrs[i])
            comm->ctx->verbs->dereg_mr(mrs[i]);
        mrs[i] = NULL;
    }
}

xcclResult_t ib_pin(const struct ib_comm *comm, void *data, size_t bytes,
                    struct ibv_mr *mrs_out[IB_PORTS_MAX])
{
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < comm->device->port_count && rc == xcclSuccess; i++)
        rc = pin(comm->ctx, comm->device->ports[i], data, bytes, &mrs_out[i]);
    if (rc != xcclSuccess)
        ib_unpin(comm, mrs_out);
    return rc;
}

static xcclResult_t region_make(struct ib_ctx *ctx, struct ib_device *device,
                                const struct span *span, struct ib_region **region_out)
{
    struct ib_region *region = xccl_calloc(1, sizeof(*region));
    xcclResult_t rc = xcclSystemError;

    if (region && room_make(&device->cache)) {
        region->mr = pin_span(ctx, device, span);
        rc = region->mr ? xcclSuccess
                        : tell_not_pinned(device, (void *)span->begin, span->end - span->begin);
    }
    if (rc != xcclSuccess) {
        xccl_free(region);
        return rc;
    }
    region->begin = span->begin;
    region->end = span->end;
    region_insert(&device->cache, region);
    *region_out = region;
    return xcclSuccess;
}

/* A region around these pages for one more user; NULL: of no bytes. */
static xcclResult_t region_get(struct ib_ctx *ctx, struct ib_device *device,
                               const struct span *span, struct ib_region **region_out)
{
    struct ib_cache *cache = &device->cache;
    struct ib_region *region;
    xcclResult_t rc = xcclSuccess;

    if (span->begin == span->end)
        return xcclSuccess;
    pthread_mutex_lock(&cache->lock);
    region = region_find(cache, span->begin, span->end);
    if (!region)
        rc = region_make(ctx, device, span, &region);
    if (rc == xcclSuccess)
        region->refs++;
    pthread_mutex_unlock(&cache->lock);
    if (rc == xcclSuccess)
        *region_out = region;
    return rc;
}

/* A region without users is given back at once. */
static void region_put(const struct ib_ctx *ctx, struct ib_device *device, struct ib_region *region)
{
    if (!region)
        return;
    pthread_mutex_lock(&device->cache.lock);
    if (--region->refs == 0) {
        region_remove(&device->cache, region);
        region_destroy(ctx, region);
    }
    pthread_mutex_unlock(&device->cache.lock);
}

static void memory_destroy(const struct ib_comm *comm, struct ib_memory *memory)
{
    for (uint32_t i = 0; i < comm->device->port_count; i++)
        region_put(comm->ctx, comm->device->ports[i], memory->regions[i]);
    xccl_free(memory);
}

static pthread_mutex_t *list_lock(const struct ib_comm *comm)
{
    return &comm->device->ports[0]->cache.lock;
}

static void memory_insert(struct ib_comm *comm, struct ib_memory *memory)
{
    pthread_mutex_lock(list_lock(comm));
    memory->next = comm->memories;
    memory->link = &comm->memories;
    if (memory->next)
        memory->next->link = &memory->next;
    comm->memories = memory;
    pthread_mutex_unlock(list_lock(comm));
}

static void memory_remove(struct ib_comm *comm, struct ib_memory *memory)
{
    pthread_mutex_lock(list_lock(comm));
    *memory->link = memory->next;
    if (memory->next)
        memory->next->link = memory->link;
    pthread_mutex_unlock(list_lock(comm));
    memory_destroy(comm, memory);
}

/* Whole pages around data. 0: it does not lie in the address space. */
static int pages_of(const void *data, size_t bytes, uintptr_t *begin_out, uintptr_t *end_out)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)data, end;

    if (!data || __builtin_add_overflow(begin, bytes, &end) || end > UINTPTR_MAX - page)
        return 0;
    *begin_out = begin - begin % page;
    *end_out = end + (page - end % page) % page;
    return 1;
}

static xcclResult_t reg_span(struct ib_comm *comm, const struct span *span, xcclNetMem_t *mem_out)
{
    struct ib_memory *memory = xccl_calloc(1, sizeof(*memory));
    xcclResult_t rc = xcclSuccess;

    if (!memory)
        return xcclSystemError;
    memory->is_device = span->is_device;
    if (span->is_device && !comm->is_send)
        rc = ib_flush_open((struct ib_receiver *)comm);
    for (uint32_t i = 0; i < comm->device->port_count && rc == xcclSuccess; i++) {
        rc = region_get(comm->ctx, comm->device->ports[i], span, &memory->regions[i]);
        memory->lkeys[i] = memory->regions[i] ? memory->regions[i]->mr->lkey : 0;
        memory->rkeys[i] = memory->regions[i] ? memory->regions[i]->mr->rkey : 0;
    }
    if (rc != xcclSuccess) {
        memory_destroy(comm, memory);
        return rc;
    }
    memory_insert(comm, memory);
    *mem_out = memory;
    return xcclSuccess;
}

xcclResult_t ib_reg_mr(void *comm_, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem_out)
{
    struct ib_comm *comm = comm_;
    struct span span = {.is_device = type != XCCL_NET_PTR_HOST, .fd = -1};

    if (type != XCCL_NET_PTR_HOST &&
        (type != XCCL_NET_PTR_CUDA || !(comm->device->memory_kinds & XCCL_NET_PTR_CUDA)))
        return xccl_fail_quietly(xcclInvalidArgument, 0,
                                 "load nvidia_peermem, or pass a DMA-BUF, or copy to host memory",
                                 "%s does not accept memory of type %#x", comm->device->name, type);
    if (bytes && !pages_of(data, bytes, &span.begin, &span.end))
        return xccl_fail_quietly(xcclInvalidArgument, 0, NULL, "cannot register %zu bytes at %p",
                                 bytes, data);
    return reg_span(comm, &span, mem_out);
}

/* A DMA-BUF is of whole pages, and data lies in its page as offset does in one of them. */
xcclResult_t ib_reg_mr_dmabuf(void *comm_, void *data, size_t bytes, uint32_t type, uint64_t offset,
                              int fd, xcclNetMem_t *mem_out)
{
    struct ib_comm *comm = comm_;
    struct span span = {.is_device = type != XCCL_NET_PTR_HOST, .fd = fd};
    uint64_t before;

    if (!(comm->device->memory_kinds & XCCL_NET_PTR_DMABUF))
        return xccl_fail_quietly(xcclInvalidUsage, 0,
                                 "update the kernel and rdma-core, or copy to host memory",
                                 "%s does not accept a DMA-BUF", comm->device->name);
    if (fd < 0 || (bytes && !pages_of(data, bytes, &span.begin, &span.end)))
        return xccl_fail_quietly(xcclInvalidArgument, 0, NULL,
                                 "cannot register %zu bytes at %p of descriptor %d", bytes, data,
                                 fd);
    before = bytes ? (uintptr_t)data - span.begin : 0;
    if (offset < before || (offset - before) % (uint64_t)sysconf(_SC_PAGESIZE) != 0)
        return xccl_fail_quietly(xcclInvalidArgument, 0, NULL,
                                 "offset %llu of a DMA-BUF does not fit address %p",
                                 (unsigned long long)offset, data);
    span.offset = offset - before;
    return reg_span(comm, &span, mem_out);
}

xcclResult_t ib_dereg_mr(void *comm, xcclNetMem_t mem)
{
    memory_remove(comm, mem);
    return xcclSuccess;
}

void ib_dereg_all(struct ib_comm *comm)
{
    while (comm->memories)
        memory_remove(comm, comm->memories);
}
