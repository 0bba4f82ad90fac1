/* SPDX-License-Identifier: BSD-3-Clause */
/* Registration. A provider that does not need it (no FI_MR_LOCAL) is told of nothing. Else whole
 * pages are registered, once: a list sorted by address is searched for one that holds the range,
 * and each is given back with the last registration of the contract inside; kept longer it might
 * name pages that the program has unmapped since. A provider that binds registrations to endpoints
 * (FI_MR_ENDPOINT) gets one for each comm. With the write path a sender's memory may be read by its
 * writes, a receiver's be written to by the peer, and what is ours neither. Keys are numbered by us
 * where the provider does not choose them, unique in the domain, random where a peer may use them
 * and they are long enough.
 *
 * Memory of devices (ofi_hmem.c) is found again as the same allocation only, never as memory of the
 * host or of one that was freed.
 *
 * Thread: any, also beside sends of the comm; the device's lock. */
#include <unistd.h>

#include "base/alloc.h"
#include "base/os.h"
#include "ofi_int.h"

/* What a registration is where none is needed: an address that is not NULL and never followed. */
static char registered;

static int is_same_memory(const struct ofi_region *a, const struct ofi_region *b)
{
    return !a->is_alone && !b->is_alone && a->buffer == b->buffer;
}

/* One that holds the range, for the same endpoint, with at least that access. */
static struct ofi_region *find(const struct ofi_device *device, const struct ofi_region *wanted)
{
    for (struct ofi_region *at = device->regions; at && at->first <= wanted->first; at = at->next) {
        if (at->end >= wanted->end && at->ep == wanted->ep && is_same_memory(at, wanted) &&
            (at->access & wanted->access) == wanted->access)
            return at;
    }
    return NULL;
}

static void insert(struct ofi_device *device, struct ofi_region *region)
{
    struct ofi_region **at = &device->regions;

    while (*at && (*at)->first < region->first)
        at = &(*at)->next;
    region->next = *at;
    *at = region;
    device->region_count++;
}

static void remove_from(struct ofi_device *device, const struct ofi_region *region)
{
    for (struct ofi_region **at = &device->regions; *at; at = &(*at)->next) {
        if (*at == region) {
            *at = region->next;
            device->region_count--;
            return;
        }
    }
}

static int is_used(const struct ofi_device *device, uint64_t key)
{
    for (const struct ofi_region *at = device->regions; at; at = at->next) {
        if (at->key == key)
            return 1;
    }
    return 0;
}

/* The next one that is free, of those that have so few bytes. */
static xcclResult_t count_key(struct ofi_device *device, size_t key_bytes, uint64_t *key_out)
{
    int few = key_bytes && key_bytes < sizeof(uint64_t);
    uint64_t most = few ? ((uint64_t)1 << 8 * key_bytes) - 1 : UINT64_MAX - 1;
    uint64_t key = device->last_key;

    for (uint32_t tries = 0; tries <= device->region_count; tries++) {
        key = key < most ? key + 1 : 1;
        if (is_used(device, key))
            continue;
        device->last_key = *key_out = key;
        return xcclSuccess;
    }
    return xccl_fail_quietly(xcclSystemError, 0, "register fewer, larger ranges",
                             "all %u keys of registrations on %s are in use", device->region_count,
                             device->name);
}

/* 0: the provider chooses. Who has the key of memory that may be written to or read can do so, if
 * the provider lets him connect: so it is random where it is long enough to be a secret. */
static xcclResult_t choose_key(struct ofi_device *device, uint64_t access, uint64_t *key_out)
{
    const struct fi_domain_attr *domain = device->info->domain_attr;

    *key_out = 0;
    if (domain->mr_mode & FI_MR_PROV_KEY)
        return xcclSuccess;
    if (access & (FI_REMOTE_WRITE | FI_REMOTE_READ) && domain->mr_key_size >= sizeof(*key_out))
        return xccl_os_random(key_out, sizeof(*key_out));
    return count_key(device, domain->mr_key_size, key_out);
}

static int register_region(struct ofi_device *device, struct ofi_region *region)
{
    size_t bytes = region->end - region->first;
    int err;

    if (region->iface == FI_HMEM_SYSTEM && !region->dmabuf)
        err = fi_mr_reg(device->domain, (void *)region->first, bytes, region->access, 0,
                        region->key, 0, &region->mr, NULL);
    else
        err = ofi_hmem_mr_reg(device->domain, region, region->key, &region->mr);
    region->dmabuf = NULL;
    if (err || !region->ep)
        return err;
    err = fi_mr_bind(region->mr, &region->ep->fid, 0);
    if (!err)
        err = fi_mr_enable(region->mr);
    if (err)
        fi_close(&region->mr->fid);
    return err;
}

/* What the provider says of memory that it does not take. */
static xcclResult_t refused(const struct ofi_ctx *ctx, const struct ofi_device *device,
                            const struct ofi_region *wanted, int err)
{
    size_t bytes = wanted->end - wanted->first;
    const char *why = ctx->library.strerror(-err);

    if (wanted->dmabuf)
        return xccl_fail_quietly(
            xcclSystemError, 0, "unset XCCL_OFI_DMABUF, or set XCCL_CUDA_GDR=off",
            "cannot register %zu bytes of DMA-BUF %d on %s (%s): %s", bytes, wanted->dmabuf->fd,
            device->name, device->info->fabric_attr->prov_name, why);
    if (wanted->iface == FI_HMEM_CUDA)
        return xccl_fail_quietly(xcclSystemError, 0,
                                 "load nvidia_peermem, use a libfabric that is built with CUDA, or "
                                 "set XCCL_CUDA_GDR=off",
                                 "cannot register %zu bytes of CUDA device %d on %s (%s): %s",
                                 bytes, wanted->cuda_device, device->name,
                                 device->info->fabric_attr->prov_name, why);
    return xccl_fail_quietly(xcclSystemError, 0, "raise ulimit -l",
                             "cannot register %zu bytes on %s: %s", bytes, device->name, why);
}

/* wanted: its range, endpoint and access. */
static xcclResult_t region_create(struct ofi_ctx *ctx, struct ofi_device *device,
                                  const struct ofi_region *wanted, struct ofi_region **region_out)
{
    struct ofi_region *region = xccl_calloc(1, sizeof(*region));
    xcclResult_t rc;
    int err;

    if (!region)
        return xcclSystemError;
    *region = *wanted;
    rc = choose_key(device, region->access, &region->key);
    if (rc != xcclSuccess) {
        xccl_free(region);
        return rc;
    }
    err = register_region(device, region);
    if (err) {
        xccl_free(region);
        return refused(ctx, device, wanted, err);
    }
    insert(device, region);
    *region_out = region;
    return xcclSuccess;
}

static xcclResult_t region_get(struct ofi_ctx *ctx, struct ofi_device *device,
                               const struct ofi_region *wanted, struct ofi_region **region_out)
{
    struct ofi_region *region;
    xcclResult_t rc = xcclSuccess;

    pthread_mutex_lock(&device->lock);
    region = find(device, wanted);
    if (!region)
        rc = region_create(ctx, device, wanted, &region);
    if (rc == xcclSuccess && region) {
        region->count++;
        *region_out = region;
    }
    pthread_mutex_unlock(&device->lock);
    return rc;
}

static int region_put(struct ofi_device *device, struct ofi_region *region)
{
    int err = 0;

    if (!region)
        return 0;
    pthread_mutex_lock(&device->lock);
    if (--region->count == 0) {
        remove_from(device, region);
        err = fi_close(&region->mr->fid);
        xccl_free(region);
    }
    pthread_mutex_unlock(&device->lock);
    return err;
}

/* Of the comm's cards, but for those that have dropped out: it serves no other comm. */
static xcclResult_t mem_fill(struct ofi_comm *comm, struct ofi_region *wanted, struct ofi_mem *mem)
{
    int bound = (comm->device->info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < comm->rail_count && rc == xcclSuccess; i++) {
        struct ofi_rail *rail = &comm->rails[i];

        if (ofi_failover_closed(comm) >> i & 1)
            continue;
        wanted->ep = bound ? rail->end.ep : NULL;
        rc = region_get(comm->ctx, rail->device, wanted, &mem->regions[rail->member]);
    }
    return rc;
}

/* Gives libfabric's first error. */
static int mem_destroy(const struct ofi_device *device, struct ofi_mem *mem)
{
    int err = 0;

    for (uint32_t i = 0; i < device->member_count; i++) {
        int one = region_put(device->members[i], mem->regions[i]);

        err = err ? err : one;
    }
    xccl_free(mem);
    return err;
}

xcclResult_t ofi_mem_create(struct ofi_comm *comm, struct ofi_region *wanted, xcclNetMem_t *mem_out)
{
    struct ofi_mem *mem;
    xcclResult_t rc;

    if (!comm->device->local_mr || wanted->first == wanted->end) {
        *mem_out = &registered;
        return xcclSuccess;
    }
    mem = xccl_calloc(1, sizeof(*mem));
    if (!mem)
        return xcclSystemError;
    wanted->access |= FI_SEND | FI_RECV;
    mem->is_cuda = wanted->iface == FI_HMEM_CUDA;
    if (mem->is_cuda && comm->flusher)
        comm->flusher->has_device_memory = 1;
    rc = mem_fill(comm, wanted, mem);
    if (rc == xcclSuccess)
        *mem_out = mem;
    else
        (void)mem_destroy(comm->device, mem);
    return rc;
}

xcclResult_t ofi_mem_register(struct ofi_comm *comm, void *data, size_t bytes, uint64_t access,
                              xcclNetMem_t *mem_out)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)data, end;
    struct ofi_region wanted = {.access = access, .iface = FI_HMEM_SYSTEM};

    if ((!data && bytes) || __builtin_add_overflow(first, bytes, &end) || end > UINTPTR_MAX - page)
        return xccl_fail_quietly(xcclInvalidArgument, 0, NULL, "cannot register %zu bytes at %p",
                                 bytes, data);
    if (bytes) {
        wanted.first = first - first % page;
        wanted.end = end + (page - end % page) % page;
    }
    return ofi_mem_create(comm, &wanted, mem_out);
}

uint64_t ofi_mem_access(const struct ofi_comm *comm)
{
    if (!comm->device->piece_bytes)
        return 0;
    return comm->is_send ? FI_WRITE : FI_REMOTE_WRITE;
}

xcclResult_t ofi_reg_mr(void *comm_, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem_out)
{
    struct ofi_comm *comm = comm_;
    struct ofi_region wanted = {.access = ofi_mem_access(comm), .iface = FI_HMEM_CUDA};

    if (type == XCCL_NET_PTR_CUDA)
        return ofi_hmem_register(comm, data, bytes, &wanted, mem_out);
    if (type != XCCL_NET_PTR_HOST)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "copy to host memory first",
                                 "%s does not accept memory of type %#x", comm->device->name, type);
    return ofi_mem_register(comm, data, bytes, wanted.access, mem_out);
}

xcclResult_t ofi_dereg_mr(void *comm_, xcclNetMem_t mem)
{
    struct ofi_comm *comm = comm_;
    int err;

    if (!mem || mem == &registered)
        return xcclSuccess;
    err = mem_destroy(comm->device, mem);
    if (!err)
        return xcclSuccess;
    return xccl_fail_quietly(xcclSystemError, 0, NULL, "cannot release a registration on %s: %s",
                             comm->device->name, comm->ctx->library.strerror(-err));
}

void *ofi_mem_desc(const struct ofi_rail *rail, xcclNetMem_t mem)
{
    if (!rail->device->local_mr || !mem || mem == &registered)
        return NULL;
    return fi_mr_desc(((struct ofi_mem *)mem)->regions[rail->member]->mr);
}

int ofi_mem_is_cuda(xcclNetMem_t mem)
{
    return mem && mem != &registered && ((const struct ofi_mem *)mem)->is_cuda;
}

int ofi_mem_target(const struct ofi_rail *rail, xcclNetMem_t mem, const void *data, uint64_t access,
                   struct ofi_target *target_out)
{
    const struct ofi_region *region;

    if (!mem || mem == &registered)
        return 0;
    region = ((const struct ofi_mem *)mem)->regions[rail->member];
    if (!region || !(region->access & access))
        return 0;
    target_out->addr = (uintptr_t)data;
    if (!(rail->device->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR))
        target_out->addr -= region->first;
    target_out->key = fi_mr_key(region->mr);
    return 1;
}

int ofi_mem_remote(const struct ofi_rail *rail, xcclNetMem_t mem, const void *data,
                   struct ofi_target *target_out)
{
    return ofi_mem_target(rail, mem, data, FI_REMOTE_WRITE, target_out);
}
