/* SPDX-License-Identifier: BSD-3-Clause */
/* An instance and its devices: the active ports of all cards that XCCL_IB_HCA chooses, with what
 * verbs and sysfs say about them, in the order of their PCI paths and names. A card without a PCI
 * device (soft-RoCE) has no path. A port that becomes active later is not seen by this instance.
 *
 * Several ports become one device by mergeDevices: a connection of it has queue pairs on all.
 *
 * Limits: 32 ports; 8 devices of 2 to 4 ports. Thread: any, one call at a time for init, finalize
 * and mergeDevices, which comes before the first connection. */
#include "ib_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/param.h"
#include "base/sysfs.h"

/* Virtual cards have no PCI device: soft-RoCE lies below virtual/. */
static void pci_path_read(struct ib_device *device)
{
    char path[160];

    snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/device", device->card);
    xccl_sysfs_card(path, device->pci_path, sizeof(device->pci_path));
}

static void netdev_read(struct ib_device *device)
{
    char path[160];

    snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/ports/%d/gid_attrs/ndevs/0",
             device->card, device->port);
    xccl_sysfs_line(path, device->netdev, sizeof(device->netdev));
}

static void device_fill(struct ib_device *device, const char *card, int port,
                        const struct ibv_device_attr *attr)
{
    snprintf(device->card, sizeof(device->card), "%.63s", card);
    snprintf(device->name, sizeof(device->name), "%.63s:%d", card, port);
    device->port = port;
    /* In the order of bytes of the network; it is only ever compared. */
    device->guid = attr->sys_image_guid ? attr->sys_image_guid : attr->node_guid;
    device->speed_mbps = ib_speed_mbps(device->attr.active_width, device->attr.active_speed);
    device->max_qp = attr->max_qp;
    pci_path_read(device);
    netdev_read(device);
}

/* With one of these the kernel finds device memory by its address. Words of XCCL_IB_PEER_MEMORY:
 * auto, off, on. */
static int has_peer_memory(void)
{
    int told = (int)xccl_param_int(XCCL_P_IB_PEER_MEMORY);
    static const char *const modules[] = {"/sys/module/nvidia_peermem/version",
                                          "/sys/kernel/mm/memory_peers/nv_mem/version",
                                          "/sys/kernel/mm/memory_peers/nv_mem_nc/version"};

    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]) && !told; i++) {
        if (access(modules[i], F_OK) == 0)
            return 1;
    }
    return told == 2;
}

/* Asks for what cannot be, a descriptor that is none: who knows no DMA-BUF says that instead. */
static int has_dmabuf(const struct ib_ctx *ctx, const struct ib_device *device)
{
    struct ibv_mr *mr;

    if (!ctx->verbs->reg_dmabuf_mr)
        return 0;
    errno = 0;
    mr = ctx->verbs->reg_dmabuf_mr(device->pd, 0, 0, 0, -1, 0);
    if (!mr)
        return errno != EOPNOTSUPP && errno != EPROTONOSUPPORT && errno != ENOSYS;
    ctx->verbs->dereg_mr(mr);
    return 1;
}

static int link_is_usable(const struct ibv_port_attr *attr)
{
    return attr->state == IBV_PORT_ACTIVE && (attr->link_layer == IBV_LINK_LAYER_INFINIBAND ||
                                              attr->link_layer == IBV_LINK_LAYER_ETHERNET ||
                                              attr->link_layer == IBV_LINK_LAYER_UNSPECIFIED);
}

/* Takes the chosen ports of an open card. *owned_out 1: a device has the context now. */
static xcclResult_t ports_take(struct ib_ctx *ctx, struct ibv_context *context, const char *card,
                               int *owned_out)
{
    const char *rule = xccl_param_string(XCCL_P_IB_HCA);
    struct ibv_device_attr attr = {.node_guid = 0};

    *owned_out = 0;
    if (ctx->verbs->query_device(context, &attr))
        return xcclSuccess;
    for (int port = 1; port <= attr.phys_port_cnt && ctx->device_count < IB_DEVICES_MAX; port++) {
        struct ib_device *device = &ctx->devices[ctx->device_count];
        xcclResult_t rc;

        memset(&device->attr, 0, sizeof(device->attr));
        if (!ib_hca_chosen(rule, card, port) ||
            ctx->verbs->query_port(context, (uint8_t)port, &device->attr) ||
            !link_is_usable(&device->attr))
            continue;
        rc = ib_cache_init(&device->cache);
        if (rc != xcclSuccess)
            return rc;
        device->context = context;
        device->owns_context = !*owned_out;
        *owned_out = 1;
        device_fill(device, card, port, &attr);
        ctx->device_count++;
        device->pd = ctx->verbs->alloc_pd(context);
        if (!device->pd)
            return xccl_fail_quietly(xcclSystemError, errno, "check the limits of the driver",
                                     "cannot create a protection domain on %s", device->name);
        device->memory_kinds = XCCL_NET_PTR_HOST | (has_peer_memory() ? XCCL_NET_PTR_CUDA : 0) |
                               (has_dmabuf(ctx, device) ? XCCL_NET_PTR_DMABUF : 0);
    }
    return xcclSuccess;
}

static xcclResult_t cards_open(struct ib_ctx *ctx, struct ibv_device **list, int count)
{
    for (int i = 0; i < count; i++) {
        const char *card = ctx->verbs->get_device_name(list[i]);
        struct ibv_context *context = ctx->verbs->open_device(list[i]);
        xcclResult_t rc;
        int owned;

        /* A card that this process may not open is not there for it. */
        if (!context)
            continue;
        owned = 0;
        rc = ib_events_open(context);
        if (rc == xcclSuccess)
            rc = ports_take(ctx, context, card, &owned);
        if (!owned)
            ctx->verbs->close_device(context);
        if (rc != xcclSuccess)
            return rc;
    }
    return xcclSuccess;
}

static int device_compare(const void *a_, const void *b_)
{
    const struct ib_device *a = a_, *b = b_;
    int order = strcmp(a->pci_path, b->pci_path);

    return order ? order : strcmp(a->name, b->name);
}

xcclResult_t ib_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out)
{
    const struct ib_verbs *verbs = NULL;
    struct ibv_device **list;
    struct ib_ctx *ctx;
    int count = 0;
    xcclResult_t rc = xccl_net_encrypts_not(init, "ib");

    if (rc == xcclSuccess)
        rc = ib_verbs_open(&verbs);
    if (rc != xcclSuccess)
        return rc;
    ctx = xccl_calloc_aligned(64, sizeof(*ctx));
    if (!ctx)
        return xcclSystemError;
    rc = ib_service_init(&ctx->service);
    if (rc != xcclSuccess) {
        xccl_free(ctx);
        return rc;
    }
    ctx->verbs = verbs;
    ctx->log = init->log;
    ctx->traffic_class = init->trafficClass;
    (void)xccl_net_met(init, &ctx->met);
    /* NULL where the kernel has no RDMA at all: there are no devices then. */
    list = verbs->get_device_list(&count);
    if (list) {
        rc = cards_open(ctx, list, count);
        verbs->free_device_list(list);
    }
    if (rc != xcclSuccess) {
        ib_finalize(ctx);
        return rc;
    }
    qsort(ctx->devices, (size_t)ctx->device_count, sizeof(ctx->devices[0]), device_compare);
    for (int i = 0; i < ctx->device_count; i++) {
        ctx->devices[i].ports[0] = &ctx->devices[i];
        ctx->devices[i].port_count = 1;
    }
    rc = ib_subnets_look(ctx);
    if (rc != xcclSuccess) {
        ib_finalize(ctx);
        return rc;
    }
    *ctx_out = ctx;
    return xcclSuccess;
}

xcclResult_t ib_finalize(xcclNetContext_t ctx_)
{
    struct ib_ctx *ctx = ctx_;

    ib_service_fini(&ctx->service);
    for (int i = 0; i < ctx->device_count; i++) {
        if (ctx->devices[i].port_count > 1)
            continue;
        ib_cache_fini(ctx, &ctx->devices[i].cache);
        if (ctx->devices[i].pd)
            ctx->verbs->dealloc_pd(ctx->devices[i].pd);
    }
    for (int i = 0; i < ctx->device_count; i++) {
        if (ctx->devices[i].owns_context)
            ctx->verbs->close_device(ctx->devices[i].context);
    }
    xccl_free(ctx);
    return xcclSuccess;
}

xcclResult_t ib_devices(xcclNetContext_t ctx, int *count_out)
{
    *count_out = ((struct ib_ctx *)ctx)->device_count;
    return xcclSuccess;
}

struct ib_device *ib_device_get(struct ib_ctx *ctx, int dev)
{
    return xccl_net_has_device(dev, ctx->device_count) ? &ctx->devices[dev] : NULL;
}

xcclResult_t ib_properties(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props)
{
    struct ib_device *device = ib_device_get(ctx, dev);
    xcclNetProperties_v1 all = {.size = sizeof(all)};

    if (!device)
        return xcclInvalidArgument;
    all.name = device->name;
    all.pciPath = device->pci_path[0] ? device->pci_path : NULL;
    all.guid = device->guid;
    all.speedMbps = device->speed_mbps;
    all.port = device->port;
    all.ptrSupport = device->memory_kinds;
    all.maxComms = device->max_qp / (int)xccl_param_int(XCCL_P_IB_QPS_PER_CONNECTION);
    for (uint32_t i = 0; i < device->port_count && device->port_count > 1; i++)
        all.members[all.memberCount++] = (int32_t)(device->ports[i] -
                                                   ((struct ib_ctx *)ctx)->devices);
    all.maxRecvs = IB_PARTS;
    all.maxBytes = IB_MESSAGE_MAX;
    all.flags = device->port_count == 1 && device->is_alone ? XCCL_NET_DEVICE_UNPROVEN : 0;
    /* A send is done when the peer's card has acknowledged it. */
    all.needsProgress = 0;
    xccl_net_tell_properties(&all, props);
    return xcclSuccess;
}

static xcclResult_t merge_check(const struct ib_ctx *ctx, const int *devs, int count)
{
    if (!xccl_net_may_merge(devs, count, IB_PORTS_MAX, ctx->device_count))
        return xcclInvalidArgument;
    for (int i = 0; i < count; i++) {
        if (ctx->devices[devs[i]].port_count > 1)
            return xccl_fail_quietly(xcclInvalidUsage, 0, "merge devices of one port each",
                                     "device %s cannot be merged", ctx->devices[devs[i]].name);
    }
    return xcclSuccess;
}

/* The device that was made of these before; -1: none. */
static int merge_find(const struct ib_ctx *ctx, const int *devs, int count)
{
    for (int dev = 0; dev < ctx->device_count; dev++) {
        const struct ib_device *device = &ctx->devices[dev];
        int same = (int)device->port_count == count;

        for (int i = 0; i < count && same; i++)
            same = device->ports[i] == &ctx->devices[devs[i]];
        if (same)
            return dev;
    }
    return -1;
}

xcclResult_t ib_merge(xcclNetContext_t ctx_, const int *devs, int count, int *dev_out)
{
    struct ib_ctx *ctx = ctx_;
    struct ib_device *merged = &ctx->devices[ctx->device_count];
    xcclResult_t rc = merge_check(ctx, devs, count);
    char name[sizeof(merged->name)];
    size_t used = 0;

    if (rc != xcclSuccess)
        return rc;
    if (merge_find(ctx, devs, count) >= 0) {
        *dev_out = merge_find(ctx, devs, count);
        return xcclSuccess;
    }
    if (ctx->device_count == IB_DEVICES_MAX + IB_MERGED_MAX)
        return xccl_fail_quietly(xcclInvalidUsage, 0, NULL,
                                 "there are already %d devices, the largest number possible",
                                 ctx->device_count);
    memcpy(merged->pci_path, ctx->devices[devs[0]].pci_path, sizeof(merged->pci_path));
    merged->guid = ctx->devices[devs[0]].guid;
    merged->port = ctx->devices[devs[0]].port;
    merged->max_qp = ctx->devices[devs[0]].max_qp;
    merged->memory_kinds = ctx->devices[devs[0]].memory_kinds;
    for (int i = 0; i < count; i++) {
        struct ib_device *port = &ctx->devices[devs[i]];

        merged->ports[merged->port_count++] = port;
        merged->speed_mbps += port->speed_mbps;
        merged->memory_kinds &= port->memory_kinds;
        if (port->max_qp < merged->max_qp)
            merged->max_qp = port->max_qp;
        used += (size_t)snprintf(name + used, sizeof(name) - used, "%s%.75s", i ? "+" : "",
                                 port->name);
    }
    memcpy(merged->name, name, sizeof(name));
    *dev_out = ctx->device_count++;
    return xcclSuccess;
}

xcclResult_t ib_stats(xcclNetContext_t ctx, int dev, xcclNetStats_v1 *stats)
{
    struct ib_device *device = ib_device_get(ctx, dev);

    if (!device)
        return xcclInvalidArgument;
    xccl_net_tell_stats(&device->tally, stats);
    return xcclSuccess;
}
