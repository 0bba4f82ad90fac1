/* SPDX-License-Identifier: BSD-3-Clause */
/* An instance and its devices: the interfaces that XCCL_SOCKET_IFNAME and XCCL_SOCKET_FAMILY
 * choose, with what sysfs says about them, and at the end that of Unix sockets for peers on this
 * host. An interface without a card (lo, veth) has no PCI path; a virtual one without a speed has
 * speed 0. Thread: any, one call at a time for init and finalize. */
#include "sock_int.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/os.h"
#include "base/param.h"
#include "base/sysfs.h"
#include "sock_helper_int.h"

#define FINALIZE_MS 1000 /* for bytes of closed comms */

/* More than none where one core, or one path, would not fill the device. */
int sock_streams_for(uint32_t speed_mbps)
{
    int64_t streams = xccl_param_int(XCCL_P_SOCKET_STREAMS);

    if (streams == 0)
        streams = speed_mbps >= 100000 ? 8 : speed_mbps >= 25000 ? 4 : 1;
    return streams == 1 ? 0 : (int)streams;
}

static void device_init(struct sock_device *device, const struct xccl_netif *netif)
{
    device->netif = *netif;
    device->rail_count = 1;
    snprintf(device->name, sizeof(device->name), "%.15s", netif->name);
    if (netif->addr.sa.any.sa_family != AF_UNIX) {
        char link[64];

        snprintf(link, sizeof(link), "/sys/class/net/%.15s/device", netif->name);
        xccl_sysfs_card(link, device->pci_path, sizeof(device->pci_path));
        device->speed_mbps = xccl_sysfs_speed(netif->name);
    }
    device->stream_count = sock_streams_for(device->speed_mbps);
}

/* Helper threads of a device: only where one core would not fill it, and cores are to spare. */
static int threads_for(uint32_t speed_mbps)
{
    int64_t threads = xccl_param_int(XCCL_P_SOCKET_THREADS);
    int cores = xccl_os_cores();

    if (threads >= 0)
        return (int)threads;
    if (speed_mbps >= 100000 && cores >= 16)
        return 4;
    return speed_mbps >= 25000 && cores >= 8;
}

/* The threads start with the first comms. */
static xcclResult_t pools_create(struct sock_ctx *ctx)
{
    int number = 0;

    for (int i = 0; i < ctx->device_count; i++) {
        int threads = threads_for(ctx->devices[i].speed_mbps);
        xcclResult_t rc;

        if (threads == 0)
            continue;
        rc = sock_pool_create(ctx->log, number, threads, &ctx->devices[i].pool);
        if (rc != xcclSuccess)
            return rc;
        number += threads;
    }
    return xcclSuccess;
}

static void pools_destroy(struct sock_ctx *ctx)
{
    /* A merged device has the threads of its first rail. */
    for (int i = 0; i < ctx->device_count; i++) {
        if (ctx->devices[i].rail_count == 1)
            sock_pool_destroy(ctx->devices[i].pool);
    }
}

/* Logs in one line how lines are protected. */
static void tell_encryption(const struct sock_ctx *ctx)
{
    enum kit_cipher_kind best = sock_cipher_choose(ctx->encrypt, sock_ciphers(ctx->encrypt));
    char line[160];

    if (!ctx->encrypt || !ctx->log)
        return;
    snprintf(line, sizeof(line), "lines are %s: %s",
             ctx->encrypt == XCCL_NET_ENCRYPT_FULL ? "encrypted and authenticated"
                                                   : "authenticated, not encrypted",
             kit_cipher_name(best));
    ctx->log(xcclNetLogInfo, line);
}

xcclResult_t sock_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out)
{
    struct xccl_netif ifs[SOCK_DEVICES_MAX];
    struct sock_ctx *ctx;
    int count = 0;
    struct xccl_addr met = {.bytes = 0};
    int knows = xccl_net_met(init, &met);
    xcclResult_t rc = xccl_netif_choose_near(knows ? &met : NULL, ifs, SOCK_DEVICES_MAX - 1,
                                             &count);

    if (rc != xcclSuccess)
        return rc;
    /* A caller without ranks, such as NCCL, takes each device for a way to every host. */
    if (init->nranks > 0 && xccl_param_int(XCCL_P_SOCKET_UNIX))
        sock_address_unix(&ifs[count++]);
    ctx = xccl_calloc_aligned(64, sizeof(*ctx));
    if (!ctx)
        return xcclSystemError;
    ctx->log = init->log;
    ctx->met = met;
    ctx->alternatives = init->nranks > 0;
    pthread_mutex_init(&ctx->ways_lock, NULL);
    ctx->traffic_class = init->trafficClass;
    ctx->failover = (int)xccl_param_int(XCCL_P_SOCKET_FAILOVER);
    ctx->encrypt = xccl_net_encrypt(init);
    ctx->zerocopy = (int)xccl_param_int(XCCL_P_SOCKET_ZEROCOPY);
    ctx->silence_ms = (uint32_t)xccl_param_int(XCCL_P_SOCKET_SILENCE_S) * 1000;
    snprintf(ctx->congestion, sizeof(ctx->congestion), "%s",
             xccl_param_string(XCCL_P_SOCKET_CONGESTION));
    ctx->device_count = count;
    for (int i = 0; i < count; i++)
        device_init(&ctx->devices[i], &ifs[i]);
    rc = pools_create(ctx);
    if (rc != xcclSuccess) {
        pools_destroy(ctx);
        pthread_mutex_destroy(&ctx->ways_lock);
        xccl_free(ctx);
        return rc;
    }
    tell_encryption(ctx);
    *ctx_out = ctx;
    return xcclSuccess;
}

xcclResult_t sock_finalize(xcclNetContext_t ctx)
{
    pools_destroy(ctx);
    sock_linger_sweep(ctx, FINALIZE_MS);
    pthread_mutex_destroy(&((struct sock_ctx *)ctx)->ways_lock);
    xccl_free(ctx);
    return xcclSuccess;
}

xcclResult_t sock_devices(xcclNetContext_t ctx, int *count_out)
{
    *count_out = ((struct sock_ctx *)ctx)->device_count;
    return xcclSuccess;
}

struct sock_device *sock_device_get(struct sock_ctx *ctx, int dev)
{
    return xccl_net_has_device(dev, ctx->device_count) ? &ctx->devices[dev] : NULL;
}

static int is_met(const struct sock_ctx *ctx, const struct sock_device *device)
{
    return ctx->met.bytes && device->rail_count == 1 &&
           xccl_addr_equal(&device->netif.addr, &ctx->met);
}

xcclResult_t sock_properties(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props)
{
    struct sock_device *device = sock_device_get(ctx, dev);
    xcclNetProperties_v1 all = {.size = sizeof(all)};

    if (!device)
        return xcclInvalidArgument;
    all.name = device->name;
    all.pciPath = device->pci_path[0] ? device->pci_path : NULL;
    all.speedMbps = device->speed_mbps;
    all.port = 1;
    all.ptrSupport = XCCL_NET_PTR_HOST;
    all.maxRecvs = SOCK_PARTS;
    all.maxBytes = SOCK_MESSAGE_MAX;
    all.regIsGlobal = 1;
    /* The kernel delivers what a send has handed to it. */
    all.needsProgress = 0;
    all.anyMemory = 1; /* the kernel copies */
    all.flags = XCCL_NET_DEVICE_ENCRYPTS | (is_met(ctx, device) ? XCCL_NET_DEVICE_MET : 0);
    all.sameHost = device->netif.addr.sa.any.sa_family == AF_UNIX;
    for (int i = 0; i < device->rail_count && device->rail_count > 1; i++)
        all.members[all.memberCount++] = device->rails[i];
    xccl_net_tell_properties(&all, props);
    return xcclSuccess;
}

xcclResult_t sock_stats(xcclNetContext_t ctx, int dev, xcclNetStats_v1 *stats)
{
    struct sock_device *device = sock_device_get(ctx, dev);

    if (!device)
        return xcclInvalidArgument;
    xccl_net_tell_stats(&device->tally, stats);
    return xcclSuccess;
}
