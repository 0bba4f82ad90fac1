/* SPDX-License-Identifier: BSD-3-Clause */
/* An instance and its devices: what libfabric's chosen provider has, one device a network card.
 * Providers over IP offer each address of each interface; of those the ones are taken that
 * XCCL_SOCKET_IFNAME and XCCL_SOCKET_FAMILY choose, in that order, so that no interface is there
 * twice and loopback only when nothing else is.
 *
 * Nothing is asked first that not every provider has: tagged messages over reliable datagrams. For
 * the write path the provider that was chosen is asked a second time, for remote writes too, and
 * keeps its first answer where it has none. What it wants in return (registered buffers, an op's
 * context) comes back in its info and is honoured.
 * Thread: any, one call at a time for init and finalize. */
#include <net/if.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/param.h"
#include "base/sysfs.h"
#include "ofi_int.h"

#define RXM_SETTING   "FI_OFI_RXM_BUFFER_SIZE"
#define NET_SETTING   "FI_NET_MAX_SAVED"
#define FINALIZE_MS   1000 /* for messages of closed comms */
#define LOOKS         40
#define LOOK_PAUSE_NS 50000000
#define NAMES_MAX     64
#define MESSAGE_MAX   ((size_t)1 << 30)
#define RXD_BYTES                                                                                  \
    ((size_t)1 << 16) /* with larger ones udp;ofi_rxd loses its way in retransmissions */
static_assert(RXD_BYTES <= OFI_STRIPE_BYTES, "nothing is cut there, see ofi_device_is_rxd()");

/* By what the provider knows of the card, else by what the system knows of the interface. */
static void place_init(struct ofi_device *device, const struct xccl_netif *netif)
{
    const struct fid_nic *nic = device->info->nic;
    char path[128];

    if (nic && nic->bus_attr && nic->bus_attr->bus_type == FI_BUS_PCI) {
        const struct fi_pci_attr *pci = &nic->bus_attr->attr.pci;

        snprintf(path, sizeof(path), "/sys/bus/pci/devices/%04x:%02x:%02x.%x", pci->domain_id,
                 pci->bus_id, pci->device_id, pci->function_id);
        xccl_sysfs_card(path, device->pci_path, sizeof(device->pci_path));
    } else if (netif) {
        snprintf(path, sizeof(path), "/sys/class/net/%.15s/device", netif->name);
        xccl_sysfs_card(path, device->pci_path, sizeof(device->pci_path));
    }
    if (nic && nic->link_attr && nic->link_attr->speed)
        device->speed_mbps = (uint32_t)(nic->link_attr->speed / 1000000);
    else if (netif)
        device->speed_mbps = xccl_sysfs_speed(netif->name);
}

/* netif: the device's own, or NULL; then control connections go by way of near. */
static xcclResult_t device_add(struct ofi_ctx *ctx, const struct fi_info *info,
                               const struct xccl_netif *netif, const struct xccl_netif *near)
{
    struct ofi_device *device = &ctx->devices[ctx->device_count];

    if (ctx->device_count == OFI_DEVICES_MAX)
        return xcclSuccess;
    device->info = ctx->library.dupinfo(info);
    if (!device->info)
        return xccl_fail_quietly(xcclSystemError, 0, NULL, "no memory for a device of libfabric");
    snprintf(device->name, sizeof(device->name), "%s",
             netif ? netif->name : info->domain_attr->name);
    device->control = near->addr;
    device->local_mr = (info->domain_attr->mr_mode & FI_MR_LOCAL) != 0 ||
                       xccl_param_int(XCCL_P_OFI_REGISTER);
    device->member_count = 1;
    device->members[0] = device;
    pthread_mutex_init(&device->lock, NULL);
    place_init(device, netif);
    ctx->device_count++;
    return xcclSuccess;
}

static int is_chosen(const struct fi_info *info, const char *provider)
{
    return strcmp(info->fabric_attr->prov_name, provider) == 0;
}

static int is_ip(const struct fi_info *info)
{
    return info->src_addr &&
           (info->addr_format == FI_SOCKADDR_IN || info->addr_format == FI_SOCKADDR_IN6 ||
            info->addr_format == FI_SOCKADDR);
}

/* The port does not count. */
static int is_at(const struct fi_info *info, const struct xccl_netif *netif)
{
    struct xccl_addr addr = {.bytes = 0}, own = netif->addr;

    if (!is_ip(info) || info->src_addrlen > sizeof(addr.sa))
        return 0;
    memcpy(&addr.sa, info->src_addr, info->src_addrlen);
    addr.bytes = (socklen_t)info->src_addrlen;
    return xccl_addr_same_host(&addr, &own);
}

static int have_name(const struct ofi_ctx *ctx, const char *name)
{
    for (int i = 0; i < ctx->device_count; i++) {
        if (strcmp(ctx->devices[i].name, name) == 0)
            return 1;
    }
    return 0;
}

static xcclResult_t add_by_interface(struct ofi_ctx *ctx, const struct fi_info *infos,
                                     const char *provider, const struct xccl_netif *netif)
{
    for (const struct fi_info *info = infos; info; info = info->next) {
        if (is_chosen(info, provider) && is_at(info, netif))
            return device_add(ctx, info, netif, netif);
    }
    return xcclSuccess;
}

static xcclResult_t devices_fill(struct ofi_ctx *ctx, const struct fi_info *infos,
                                 const char *provider)
{
    struct xccl_netif ifs[OFI_DEVICES_MAX];
    const struct xccl_addr *met = ctx->met.bytes ? &ctx->met : NULL;
    int count = 0;
    xcclResult_t rc = xccl_netif_choose_near(met, ifs, OFI_DEVICES_MAX, &count);

    for (int i = 0; i < count && rc == xcclSuccess; i++)
        rc = add_by_interface(ctx, infos, provider, &ifs[i]);
    for (const struct fi_info *info = infos; info && rc == xcclSuccess; info = info->next) {
        if (is_chosen(info, provider) && !is_ip(info) && !have_name(ctx, info->domain_attr->name))
            rc = device_add(ctx, info, NULL, &ifs[0]);
    }
    return rc;
}

/* XCCL_OFI_PROVIDER, or libfabric's own variable, which names one or says with ^ which not. */
static const char *asked_provider(void)
{
    const char *asked = xccl_param_string(XCCL_P_OFI_PROVIDER);

    if (!*asked)
        asked = getenv("FI_PROVIDER");
    return asked && *asked && *asked != '^' && !strchr(asked, ',') ? asked : NULL;
}

/* Its receive buffers are packets, of which one message takes many. With fewer than it likes, it
 * stops for good once messages come before their receives. */
static int is_rxd(const char *asked)
{
    return strcasecmp(asked, "udp") == 0 || strcasestr(asked, "rxd");
}

struct fi_info *ofi_device_hints(const struct ofi_ctx *ctx, const char *asked)
{
    struct fi_info *hints = ctx->library.dupinfo(NULL);

    if (!hints)
        return NULL;
    hints->caps = FI_TAGGED;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY |
                                  FI_MR_ENDPOINT;
    /* A comm has no more in flight; the default would cost megabytes each. */
    hints->tx_attr->size = OFI_WINDOW;
    if (!asked || !is_rxd(asked))
        hints->rx_attr->size = OFI_WINDOW;
    if (asked)
        hints->fabric_attr->prov_name = strdup(asked);
    return hints;
}

xcclResult_t ofi_device_ask(const struct ofi_ctx *ctx, uint32_t version, struct fi_info *hints,
                            struct fi_info **infos)
{
    int err;

    *infos = NULL;
    if (!hints)
        return xccl_fail_quietly(xcclSystemError, 0, NULL, "no memory to ask libfabric");
    err = ctx->library.getinfo(version, NULL, NULL, 0, hints, infos);
    ctx->library.freeinfo(hints);
    if (!err)
        return xcclSuccess;
    *infos = NULL;
    if (err == -FI_ENODATA || err == -FI_ENOSYS)
        return xcclSuccess;
    return xccl_fail_quietly(xcclSystemError, 0, NULL,
                             "cannot query libfabric for its providers: %s",
                             ctx->library.strerror(-err));
}

static void say(const struct ofi_ctx *ctx, xcclNetLogLevel_t level, const char *line)
{
    char full[OFI_TEXT_BYTES + 64];
    uint32_t version = ctx->library.version();

    if (!ctx->log)
        return;
    snprintf(full, sizeof(full), "libfabric %u.%u: %s", FI_MAJOR(version), FI_MINOR(version), line);
    ctx->log(level, full);
}

static int list_names(const struct fi_info *infos, const char *names_out[NAMES_MAX])
{
    int count = 0;

    for (const struct fi_info *info = infos; info && count < NAMES_MAX; info = info->next)
        names_out[count++] = info->fabric_attr->prov_name;
    return count;
}

/* A provider that was asked for and cannot be had is an error. Where none was asked for, this host
 * just has no device. */
static xcclResult_t choose(struct ofi_ctx *ctx, const struct fi_info *infos, int try_idx)
{
    const char *asked = asked_provider(), *names[NAMES_MAX];
    uint32_t version = ctx->library.version();
    struct ofi_choice choice;

    ofi_choose(names, list_names(infos, names), asked, &choice);
    ctx->has_provider = choice.provider != NULL;
    if (asked && !choice.provider)
        return xccl_fail_quietly(
            xcclInvalidUsage, 0,
            "set XCCL_OFI_PROVIDER to a provider that fi_info -l lists, and check FI_PROVIDER",
            "libfabric %u.%u: %s", FI_MAJOR(version), FI_MINOR(version), choice.line);
    if (try_idx == 0)
        say(ctx, choice.provider ? xcclNetLogInfo : xcclNetLogWarn, choice.line);
    if (try_idx == 0 && choice.provider && strstr(choice.provider, "ofi_rxm") &&
        !getenv(RXM_SETTING))
        say(ctx, xcclNetLogInfo,
            "each connection takes 80 MiB at each end; " RXM_SETTING "=2048 makes it 13 MiB, with "
            "FI_OFI_RXM_MSG_RX_SIZE=64 5 MiB");
    return choice.provider ? devices_fill(ctx, infos, choice.provider) : xcclSuccess;
}

static xcclResult_t look(struct ofi_ctx *ctx, int try_idx)
{
    struct fi_info *infos;
    xcclResult_t rc = ofi_device_ask(ctx, OFI_API_VERSION, ofi_device_hints(ctx, asked_provider()),
                                     &infos);

    if (rc == xcclSuccess)
        rc = choose(ctx, infos, try_idx);
    if (infos)
        ctx->library.freeinfo(infos);
    return rc;
}

/* 1: an interface that we would take is up, and the kernel does not call it running yet. */
static int is_coming_up(void)
{
    struct xccl_netif ifs[OFI_DEVICES_MAX];
    int count = 0, coming = 0, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return 0;
    if (xccl_netif_choose(ifs, OFI_DEVICES_MAX, &count) != xcclSuccess)
        count = 0;
    for (int i = 0; i < count && !coming; i++) {
        struct ifreq request;

        memset(&request, 0, sizeof(request));
        snprintf(request.ifr_name, sizeof(request.ifr_name), "%.15s", ifs[i].name);
        coming = ioctl(fd, SIOCGIFFLAGS, &request) == 0 && request.ifr_flags & IFF_UP &&
                 !(request.ifr_flags & IFF_RUNNING);
    }
    close(fd);
    return coming;
}

/* libfabric takes running interfaces alone, and the kernel says so up to a second after the link
 * has come up, as in a namespace that is being made. */
static xcclResult_t look_again(struct ofi_ctx *ctx)
{
    struct timespec pause = {.tv_nsec = LOOK_PAUSE_NS};
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < LOOKS; i++) {
        int coming = is_coming_up();

        rc = look(ctx, i);
        if (rc != xcclSuccess || !ctx->has_provider || ctx->device_count || !coming)
            break;
        nanosleep(&pause, NULL);
    }
    return rc;
}

/* --- the write path --- */

int ofi_device_is_same(const struct fi_info *a, const struct fi_info *b)
{
    if (!is_chosen(a, b->fabric_attr->prov_name) ||
        strcmp(a->domain_attr->name, b->domain_attr->name) != 0)
        return 0;
    /* An interface has several addresses. */
    return a->src_addrlen == b->src_addrlen &&
           (!a->src_addr || !b->src_addr || memcmp(a->src_addr, b->src_addr, a->src_addrlen) == 0);
}

/* Writes need the message's number beside them. Buffers are registered from then on: a receive is
 * only written to by its key. */
static xcclResult_t device_widen(struct ofi_ctx *ctx, struct ofi_device *device,
                                 const struct fi_info *infos)
{
    for (const struct fi_info *info = infos; info; info = info->next) {
        struct fi_info *wide;

        if (!ofi_device_is_same(info, device->info) ||
            info->domain_attr->cq_data_size < sizeof(uint32_t))
            continue;
        wide = ctx->library.dupinfo(info);
        if (!wide)
            return xccl_fail_quietly(xcclSystemError, 0, NULL, "no memory for a device");
        ctx->library.freeinfo(device->info);
        device->info = wide;
        device->local_mr = 1;
        device->piece_bytes = ofi_device_send_bytes(device);
        return xcclSuccess;
    }
    return xcclSuccess;
}

enum path { AUTO, MESSAGE, WRITE }; /* XCCL_OFI_PATH */

static int wants_writes(const struct ofi_ctx *ctx)
{
    enum path path = (enum path)xccl_param_int(XCCL_P_OFI_PATH);
    char name[OFI_NAME_BYTES];

    if (!ctx->device_count || path != AUTO)
        return ctx->device_count && path == WRITE;
    ofi_platform_name(name);
    return ofi_platform_writes(name) &&
           strncmp(ctx->devices[0].info->fabric_attr->prov_name, "efa", 3) == 0;
}

/* net stops reading a connection once so many messages have come before their receives, and with
 * it the writes behind them, for which a receiver may wait before it posts the next receive. */
static int stops_early(const char *provider)
{
    const char *kept = getenv(NET_SETTING);

    return strcmp(provider, "net") == 0 && (!kept || strtol(kept, NULL, 10) < OFI_WINDOW);
}

static xcclResult_t widen(struct ofi_ctx *ctx)
{
    const char *provider;
    struct fi_info *infos, *hints;
    xcclResult_t rc;

    if (!wants_writes(ctx))
        return xcclSuccess;
    provider = ctx->devices[0].info->fabric_attr->prov_name;
    if (stops_early(provider))
        return xccl_fail_quietly(xcclInvalidUsage, 0,
                                 "set " NET_SETTING "=64, or unset XCCL_OFI_PATH",
                                 "XCCL_OFI_PATH is write, but libfabric's net keeps too few "
                                 "messages that arrive before their receives");
    hints = ofi_device_hints(ctx, provider);
    if (hints)
        hints->caps |= FI_RMA | FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE;
    rc = ofi_device_ask(ctx, OFI_API_VERSION, hints, &infos);
    for (int i = 0; i < ctx->device_count && rc == xcclSuccess; i++) {
        rc = device_widen(ctx, &ctx->devices[i], infos);
        if (rc == xcclSuccess && !ctx->devices[i].piece_bytes &&
            xccl_param_int(XCCL_P_OFI_PATH) == WRITE)
            rc = xccl_fail_quietly(xcclInvalidUsage, 0, "unset XCCL_OFI_PATH",
                                   "XCCL_OFI_PATH is write, but %s of libfabric's %s does not "
                                   "support writes with a number attached",
                                   ctx->devices[i].name,
                                   ctx->devices[i].info->fabric_attr->prov_name);
    }
    if (infos)
        ctx->library.freeinfo(infos);
    return rc;
}

/* What the provider gives, as much as messages use of it. */
static void describe(const struct ofi_ctx *ctx)
{
    const struct ofi_device *device = &ctx->devices[0];
    const struct fi_domain_attr *domain;
    char line[OFI_TEXT_BYTES];

    if (!ctx->device_count)
        return;
    snprintf(line, sizeof(line), "device memory: %.400s",
             device->takes_dmabuf ? "by address and as DMA-BUF"
             : device->takes_cuda ? "by address"
                                  : ctx->cuda.why);
    say(ctx, xcclNetLogInfo, line);
    domain = device->info->domain_attr;
    snprintf(line, sizeof(line),
             "%s and %d more: %s memory, %s progress, at most %zu bytes a message and %zu beside "
             "it, queues of %zu sends and %zu receives, large ones are %s",
             device->name, ctx->device_count - 1, device->local_mr ? "registered" : "any",
             domain->data_progress == FI_PROGRESS_MANUAL ? "manual" : "its own",
             ofi_device_bytes(device), domain->cq_data_size, device->info->tx_attr->size,
             device->info->rx_attr->size, device->piece_bytes ? "written" : "sent");
    say(ctx, xcclNetLogInfo, line);
}

static void check_platform(const struct ofi_ctx *ctx)
{
    char name[OFI_NAME_BYTES], line[OFI_TEXT_BYTES];
    const char *provider = NULL;
    uint32_t slowest_mbps = UINT32_MAX;

    for (int i = 0; i < ctx->device_count; i++) {
        provider = ctx->devices[i].info->fabric_attr->prov_name;
        if (ctx->devices[i].speed_mbps < slowest_mbps)
            slowest_mbps = ctx->devices[i].speed_mbps;
    }
    ofi_platform_name(name);
    ofi_platform_check(name, provider, ctx->device_count, slowest_mbps, line);
    if (line[0])
        say(ctx, xcclNetLogWarn, line);
}

static void ctx_free(struct ofi_ctx *ctx)
{
    for (int i = 0; i < ctx->device_count; i++) {
        struct ofi_device *device = &ctx->devices[i];

        if (device->member_count > 1) /* what it has is its members' */
            continue;
        if (device->domain)
            fi_close(&device->domain->fid);
        if (device->fabric)
            fi_close(&device->fabric->fid);
        ctx->library.freeinfo(device->info);
        pthread_mutex_destroy(&device->lock);
    }
    pthread_mutex_destroy(&ctx->lock);
    xccl_free(ctx);
}

xcclResult_t ofi_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out)
{
    struct ofi_ctx *ctx;
    struct ofi_manners manners;
    xcclResult_t rc = xccl_net_encrypts_not(init, "ofi");

    if (rc != xcclSuccess)
        return rc;
    ctx = xccl_calloc(1, sizeof(*ctx));
    if (!ctx)
        return xcclSystemError;
    ctx->log = init->log;
    (void)xccl_net_met(init, &ctx->met);
    pthread_mutex_init(&ctx->lock, NULL);
    ofi_manners_begin(&manners);
    rc = ofi_library_open(&ctx->library);
    if (rc == xcclSuccess) {
        say(ctx, xcclNetLogInfo, ctx->library.path);
        rc = look_again(ctx);
    }
    if (rc == xcclSuccess)
        rc = widen(ctx);
    if (rc == xcclSuccess)
        rc = ofi_hmem_widen(ctx);
    if (rc == xcclSuccess) {
        describe(ctx);
        check_platform(ctx);
    }
    ofi_manners_end(&manners);
    if (rc != xcclSuccess) {
        ctx_free(ctx);
        return rc;
    }
    *ctx_out = ctx;
    return xcclSuccess;
}

xcclResult_t ofi_finalize(xcclNetContext_t ctx)
{
    ofi_comm_sweep(ctx, FINALIZE_MS);
    ctx_free(ctx);
    return xcclSuccess;
}

xcclResult_t ofi_devices(xcclNetContext_t ctx, int *count_out)
{
    *count_out = ((struct ofi_ctx *)ctx)->device_count;
    return xcclSuccess;
}

struct ofi_device *ofi_device_get(struct ofi_ctx *ctx, int dev)
{
    return xccl_net_has_device(dev, ctx->device_count) ? &ctx->devices[dev] : NULL;
}

static int open_domain(struct ofi_ctx *ctx, struct ofi_device *device)
{
    struct ofi_manners manners;
    int err = 0;

    ofi_manners_begin(&manners);
    if (!device->fabric)
        err = ctx->library.fabric(device->info->fabric_attr, &device->fabric, NULL);
    if (!err && !device->domain)
        err = fi_domain(device->fabric, device->info, &device->domain, NULL);
    ofi_manners_end(&manners);
    return err;
}

struct ofi_device *ofi_device_open(struct ofi_ctx *ctx, int dev)
{
    struct ofi_device *device = ofi_device_get(ctx, dev);

    for (uint32_t i = 0; device && i < device->member_count; i++) {
        struct ofi_device *member = device->members[i];
        int err;

        pthread_mutex_lock(&member->lock);
        err = open_domain(ctx, member);
        pthread_mutex_unlock(&member->lock);
        if (!err)
            continue;
        xccl_fail_quietly(xcclSystemError, 0, "check ulimit -n and ulimit -l",
                          "cannot open %s of libfabric's %s: %s", member->name,
                          member->info->fabric_attr->prov_name, ctx->library.strerror(-err));
        return NULL;
    }
    return device;
}

/* ofi_rxd (1.17) gives a receive that finds its message whole, posted while a later message that
 * has its receive, or a write, is still coming in, the rest of that one as well:
 * rxd_progress_unexp_msg (prov/rxd/src/rxd_msg.c) sets the peer's current receive and does not put
 * it back. Data are lost so, and the list of free receives becomes a ring, in which fi_cq_read
 * turns for ever. So none is sent behind one that is still to be written; what an endpoint has been
 * given, rxd keeps in order. */
int ofi_device_is_rxd(const struct ofi_device *device)
{
    return is_rxd(device->info->fabric_attr->prov_name);
}

size_t ofi_device_send_bytes(const struct ofi_device *device)
{
    const struct fi_info *info = device->info;
    size_t most = ofi_device_is_rxd(device) ? RXD_BYTES : MESSAGE_MAX;

    return info->ep_attr->max_msg_size < most ? info->ep_attr->max_msg_size : most;
}

/* In a group the caller's tag travels beside the message's number, and a message may have to be
 * moved to another part, which nobody can do with device memory. */
int ofi_device_parts(const struct ofi_device *device)
{
    if (device->takes_cuda)
        return 1;
    return device->info->ep_attr->mem_tag_format >> (OFI_TAG_BITS - 1) ? OFI_PARTS : 1;
}

/* RXD_BYTES are what such a provider bears at a time, however it is cut. */
size_t ofi_device_bytes(const struct ofi_device *device)
{
    size_t one = ofi_device_send_bytes(device);

    if (!device->piece_bytes || ofi_device_is_rxd(device))
        return one;
    return one < MESSAGE_MAX / OFI_PIECES_MAX ? one * OFI_PIECES_MAX : MESSAGE_MAX;
}

/* A device of an IP provider stays with its interface. */
static uint64_t flags_of(const struct ofi_ctx *ctx, const struct ofi_device *device)
{
    if (!is_ip(device->info))
        return 0;
    return XCCL_NET_DEVICE_UNPROVEN |
           (ctx->met.bytes && xccl_addr_equal(&ctx->met, &device->control) ? XCCL_NET_DEVICE_MET
                                                                           : 0);
}

xcclResult_t ofi_properties(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props)
{
    struct ofi_device *device = ofi_device_get(ctx, dev);
    xcclNetProperties_v1 all = {.size = sizeof(all)};

    if (!device)
        return xcclInvalidArgument;
    all.name = device->name;
    all.pciPath = device->pci_path[0] ? device->pci_path : NULL;
    all.speedMbps = device->speed_mbps;
    all.port = 1;
    all.ptrSupport = XCCL_NET_PTR_HOST | (device->takes_cuda ? XCCL_NET_PTR_CUDA : 0) |
                     (device->takes_dmabuf ? XCCL_NET_PTR_DMABUF : 0);
    all.maxRecvs = ofi_device_parts(device);
    all.maxBytes = ofi_device_bytes(device);
    /* A registration is of its comm's cards, and, where messages are written, for what its end
     * does: it serves others only where there is none. */
    all.regIsGlobal = !device->local_mr;
    all.needsProgress = device->info->domain_attr->data_progress == FI_PROGRESS_MANUAL;
    all.provider = device->info->fabric_attr->prov_name;
    all.anyMemory = !device->local_mr;
    /* FI_REMOTE_COMM would say so, but a provider may leave out what was not asked for. */
    all.sameHost = ofi_name_matches("sm2", all.provider);
    all.flags = flags_of(ctx, device);
    all.memberCount = device->member_count > 1 ? (int32_t)device->member_count : 0;
    for (int i = 0; i < all.memberCount; i++)
        all.members[i] = (int32_t)(device->members[i] - ((struct ofi_ctx *)ctx)->devices);
    xccl_net_tell_properties(&all, props);
    return xcclSuccess;
}

xcclResult_t ofi_stats(xcclNetContext_t ctx, int dev, xcclNetStats_v1 *stats)
{
    struct ofi_device *device = ofi_device_get(ctx, dev);

    if (!device)
        return xcclInvalidArgument;
    xccl_net_tell_stats(&device->tally, stats);
    return xcclSuccess;
}
