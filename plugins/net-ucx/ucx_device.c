/* SPDX-License-Identifier: BSD-3-Clause */
/* An instance and its devices. By default there is one, with all networks that UCX has here: UCX
 * itself stripes over them. XCCL_UCX_DEVICES makes one of each, or of those named. Where UCX has no
 * network there is one for peers on this host. A device without a card (lo, veth) has no PCI path.
 *
 * Thread: any, one call at a time for init and finalize. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/os.h"
#include "base/param.h"
#include "base/sysfs.h"
#include "ucx_int.h"

#define NETIFS_MAX 16

/* "eth0", or an InfiniBand device and its port, "mlx5_0:1". */
static void read_sysfs(const char *name, struct ucx_device *device)
{
    char folder[128], path[160];
    const char *colon = strchr(name, ':');
    uint32_t rate;

    if (!colon) {
        snprintf(folder, sizeof(folder), "/sys/class/net/%.31s", name);
        device->speed_mbps = xccl_sysfs_speed(name);
    } else {
        snprintf(folder, sizeof(folder), "/sys/class/infiniband/%.*s", (int)(colon - name), name);
        snprintf(path, sizeof(path), "%.100s/ports/%.8s/rate", folder, colon + 1);
        rate = xccl_sysfs_number(path); /* "100 Gb/sec (4X EDR)" */
        device->speed_mbps = rate < INT32_MAX / 1000 ? rate * 1000 : 0;
    }
    snprintf(path, sizeof(path), "%s/device", folder);
    xccl_sysfs_card(path, device->pci_path, sizeof(device->pci_path));
}

/* Side sockets go by the device's own interface where it is one that may be used. */
static xcclResult_t choose_netif(const struct xccl_addr *met, const char *name,
                                 struct xccl_netif *netif_out)
{
    struct xccl_netif ifs[NETIFS_MAX];
    int count = 0;
    xcclResult_t rc = xccl_netif_choose_near(met->bytes ? met : NULL, ifs, NETIFS_MAX, &count);

    if (rc != xcclSuccess)
        return rc;
    *netif_out = ifs[0];
    for (int i = 0; i < count; i++) {
        if (strcmp(ifs[i].name, name) == 0)
            *netif_out = ifs[i];
    }
    return xcclSuccess;
}

/* only: the device's networks are its own; NULL: all that UCX has. */
static xcclResult_t device_add(struct ucx_ctx *ctx, const struct ucx_survey *survey,
                               const char *name, const char *only)
{
    struct ucx_device *device = &ctx->devices[ctx->device_count];
    xcclResult_t rc = choose_netif(&ctx->met, name, &device->netif);

    if (rc != xcclSuccess)
        return rc;
    snprintf(device->name, sizeof(device->name), "%s", name);
    if (survey->device_count > 0) {
        read_sysfs(name, device);
        rc = ucx_home_open(&device->net, UCX_NET, survey->tls[UCX_NET], only);
    }
    ctx->device_count += rc == xcclSuccess;
    return rc;
}

static xcclResult_t devices_each(struct ucx_ctx *ctx, const struct ucx_survey *survey)
{
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < survey->device_count && rc == xcclSuccess; i++) {
        if (i == 0 || strcmp(survey->devices[i], "lo") != 0)
            rc = device_add(ctx, survey, survey->devices[i], survey->devices[i]);
    }
    return rc;
}

static xcclResult_t devices_named(struct ucx_ctx *ctx, const struct ucx_survey *survey,
                                  const char *names)
{
    char list[256], *rest = NULL;
    xcclResult_t rc = xcclSuccess;

    snprintf(list, sizeof(list), "%s", names);
    for (char *name = strtok_r(list, ",", &rest); name && rc == xcclSuccess;
         name = strtok_r(NULL, ",", &rest)) {
        int known = 0;

        for (int i = 0; i < survey->device_count; i++)
            known |= strcmp(survey->devices[i], name) == 0;
        for (int i = 0; i < ctx->device_count; i++)
            known &= strcmp(ctx->devices[i].name, name) != 0;
        if (!known)
            return xccl_fail_quietly(xcclInvalidUsage, 0, "`ucx_info -d` lists the devices",
                                     "XCCL_UCX_DEVICES: UCX has no network device %s on this host, "
                                     "or it is listed twice",
                                     name);
        rc = device_add(ctx, survey, name, name);
    }
    return rc;
}

static xcclResult_t devices_make(struct ucx_ctx *ctx, const struct ucx_survey *survey)
{
    const char *names = xccl_param_string(XCCL_P_UCX_DEVICES);

    if (survey->device_count == 0 && !survey->tls[UCX_SHM][0])
        return xcclSuccess;
    if (survey->device_count == 0)
        return device_add(ctx, survey, "memory", NULL);
    if (strcmp(names, "each") == 0)
        return devices_each(ctx, survey);
    if (names[0])
        return devices_named(ctx, survey, names);
    return device_add(ctx, survey, survey->devices[0], NULL);
}

/* UCX's settings that somebody has made: "; UCX_TLS=tcp". */
static void settings_text(char *text_out, size_t bytes)
{
    size_t used = 0;

    text_out[0] = '\0';
    for (char **at = environ; at && *at && used < bytes; at++) {
        if (strncmp(*at, "UCX_", 4) == 0)
            used += (size_t)snprintf(text_out + used, bytes - used, "; %s", *at);
    }
}

static void tell(const struct ucx_ctx *ctx, const struct ucx_survey *survey)
{
    unsigned major = 0, minor = 0, release = 0;
    char line[2048], settings[512];

    if (!ctx->log)
        return;
    settings_text(settings, sizeof(settings));
    ucx.get_version(&major, &minor, &release);
    snprintf(line, sizeof(line),
             "UCX %u.%u.%u, networks: %s, shared memory: %s, first device: %s%s", major, minor,
             release, survey->tls[UCX_NET][0] ? survey->tls[UCX_NET] : "none",
             survey->tls[UCX_SHM][0] ? survey->tls[UCX_SHM] : "none",
             ctx->device_count ? ctx->devices[0].name : "none", settings);
    ctx->log(xcclNetLogInfo, line);
}

static void ctx_free(struct ucx_ctx *ctx)
{
    for (int i = 0; i < UCX_DEVICES_MAX; i++)
        ucx_home_close(&ctx->devices[i].net);
    ucx_home_close(&ctx->shm);
    pthread_mutex_destroy(&ctx->links_lock);
    pthread_mutex_destroy(&ctx->lock);
    xccl_free(ctx);
}

static xcclResult_t ctx_open(struct ucx_ctx *ctx)
{
    struct ucx_survey survey;
    xcclResult_t rc = ucx_survey_make(&survey);

    if (rc == xcclSuccess && survey.tls[UCX_SHM][0])
        rc = ucx_home_open(&ctx->shm, UCX_SHM, survey.tls[UCX_SHM], NULL);
    if (rc == xcclSuccess)
        rc = devices_make(ctx, &survey);
    if (rc == xcclSuccess)
        tell(ctx, &survey);
    return rc;
}

xcclResult_t ucx_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out)
{
    struct ucx_ctx *ctx;
    xcclResult_t rc = xccl_net_encrypts_not(init, "ucx");

    if (rc == xcclSuccess)
        rc = ucx_library_open();
    if (rc != xcclSuccess)
        return rc;
    ctx = xccl_calloc_aligned(64, sizeof(*ctx));
    if (!ctx)
        return xcclSystemError;
    pthread_mutex_init(&ctx->lock, NULL);
    pthread_mutex_init(&ctx->links_lock, NULL);
    ctx->log = init->log;
    (void)xccl_net_met(init, &ctx->met);
    ctx->host = xccl_os_host_hash();
    /* NCCL's contracts before v11 have one instance for all communicators. */
    ctx->may_share = init->commId != 0 && xccl_param_int(XCCL_P_UCX_PAIR);
    ucx_library_enter(ctx->log);
    rc = xccl_os_random(&ctx->instance, sizeof(ctx->instance));
    if (rc == xcclSuccess)
        rc = ctx_open(ctx);
    if (rc != xcclSuccess)
        ctx_free(ctx);
    ucx_library_leave();
    if (rc == xcclSuccess)
        *ctx_out = ctx;
    return rc;
}

xcclResult_t ucx_finalize(xcclNetContext_t ctx)
{
    ucx_library_enter(NULL);
    ucx_closed_sweep(ctx, UCX_LINGER_NS);
    ctx_free(ctx);
    ucx_library_leave();
    return xcclSuccess;
}

xcclResult_t ucx_devices(xcclNetContext_t ctx, int *count_out)
{
    *count_out = ((struct ucx_ctx *)ctx)->device_count;
    return xcclSuccess;
}

struct ucx_device *ucx_device_get(struct ucx_ctx *ctx, int dev)
{
    return xccl_net_has_device(dev, ctx->device_count) ? &ctx->devices[dev] : NULL;
}

uint32_t ucx_device_modes(const struct ucx_ctx *ctx, const struct ucx_device *device)
{
    return (device->net.context ? 1u << UCX_NET : 0) | (ctx->shm.context ? 1u << UCX_SHM : 0);
}

xcclResult_t ucx_properties(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props)
{
    struct ucx_device *device = ucx_device_get(ctx, dev);
    const struct xccl_addr *met = &((struct ucx_ctx *)ctx)->met;
    xcclNetProperties_v1 all = {.size = sizeof(all)};

    if (!device)
        return xcclInvalidArgument;
    all.name = device->name;
    all.pciPath = device->pci_path[0] ? device->pci_path : NULL;
    all.speedMbps = device->speed_mbps;
    all.port = 1;
    all.ptrSupport = XCCL_NET_PTR_HOST;
    all.maxRecvs = UCX_PARTS;
    all.maxBytes = UCX_MESSAGE_MAX;
    all.regIsGlobal = 1; /* a comm of another context leaves the registration to UCX */
    all.needsProgress = device->net.context != NULL; /* a copy of it may wait in UCX */
    all.anyMemory = 1;
    all.sameHost = !device->net.context;
    if (!all.sameHost && strcmp(device->name, device->netif.name) == 0) {
        all.flags = XCCL_NET_DEVICE_UNPROVEN;
        if (met->bytes && xccl_addr_equal(met, &device->netif.addr))
            all.flags |= XCCL_NET_DEVICE_MET;
    }
    xccl_net_tell_properties(&all, props);
    return xcclSuccess;
}

xcclResult_t ucx_stats(xcclNetContext_t ctx, int dev, xcclNetStats_v1 *stats)
{
    struct ucx_device *device = ucx_device_get(ctx, dev);

    if (!device)
        return xcclInvalidArgument;
    xccl_net_tell_stats(&device->tally, stats);
    return xcclSuccess;
}
