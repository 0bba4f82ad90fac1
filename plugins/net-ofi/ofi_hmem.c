/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of CUDA devices: which cards take it, and what the provider is told of a buffer.
 *
 * The provider is chosen without it, and asked for it afterwards (FI_HMEM), together with reads,
 * by which it is flushed (ofi_flush.c); a card keeps its former answer where it has none. Nobody is
 * asked where there is no CUDA driver or XCCL_CUDA_GDR is off. A card takes device memory once an
 * endpoint, made for a try, has said that it reaches such memory by itself: one that would copy it
 * by calls of CUDA may wait for a kernel that waits for us.
 *
 * Of the driver one function is used, cuPointerGetAttribute; it is neither linked nor initialized,
 * for whoever has device memory has done that. The device's number goes to the provider, and the
 * number of the allocation tells memory from other memory that was at the same address before.
 * A buffer is registered from its first byte to its last one: what lies beside it, on the same
 * page, may be another allocation.
 *
 * Thread: any, beside sends of the comm; widen: of init. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/utsname.h>

#include "base/cuda_driver.h"
#include "base/param.h"
#include "base/trust.h"
#include "ofi_int.h"

#define GDR_OFF        1 /* word of XCCL_CUDA_GDR */
#define API_DMABUF     FI_VERSION(1, 20)
#define KERNEL_DMABUF  (5 * 1000 + 12) /* RDMA cards take a DMA-BUF since Linux 5.12 */
#define NAME_OF_LOOKUP "cuPointerGetAttribute"

/* What came to libfabric after 1.17, for which our headers are, as fi_mr(3) and fi_endpoint(3) of
 * 1.20 have it. FI_MR_DMABUF: the attributes' first pointer is to this instead of an iovec, and the
 * registration begins at base + offset. */
#define MR_DMABUF          (1ull << 40)
#define API_CUDA_PERMITTED FI_VERSION(1, 18)
#define CUDA_API_PERMITTED (FI_OPT_XPU_TRIGGER + 1) /* a bool */

struct dmabuf {
    int fd;
    uint64_t offset;
    size_t len;
    void *base_addr;
};
static_assert(sizeof(struct dmabuf) == 32 && offsetof(struct dmabuf, base_addr) == 24,
              "struct fi_mr_dmabuf is 32 bytes");

/* Later libraries have appended to it (hmem_data, page_size, base_mr, sub_mr_cnt): 0 means nothing
 * there. */
struct mr_attr {
    struct fi_mr_attr attr;
    uint64_t later[8];
};

enum dmabuf_setting { DMABUF_AUTO, DMABUF_OFF, DMABUF_ON }; /* XCCL_OFI_DMABUF */

/* --- which cards take it --- */

/* 0: there is none. Never unloaded: a driver has threads. */
static int driver_open(struct ofi_cuda *cuda)
{
    const char *path = xccl_param_string(XCCL_P_CUDA_LIBRARY);
    char why[OFI_TEXT_BYTES - 32] = "";
    void *library = NULL, *symbol;

    if (xccl_trust_library(path, xccl_param_string(XCCL_P_PLUGIN_OWNERS), why, sizeof(why)))
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    symbol = library ? dlsym(library, NAME_OF_LOOKUP) : NULL;
    if (!symbol) {
        const char *text = why[0] ? why : dlerror();

        snprintf(cuda->why, sizeof(cuda->why), "there is no CUDA driver: %s", text ? text : path);
    }
    memcpy(&cuda->pointer_attribute, &symbol, sizeof(symbol));
    if (library)
        dlclose(library);
    return symbol != NULL;
}

static int kernel_version(void)
{
    struct utsname name;
    char *end;
    long major;

    if (uname(&name) != 0)
        return 0;
    major = strtol(name.release, &end, 10);
    return (int)(major * 1000 + (*end == '.' ? strtol(end + 1, NULL, 10) : 0));
}

static uint32_t api_version(const struct ofi_ctx *ctx)
{
    uint32_t version = ctx->library.version();

    return FI_VERSION_GE(version, API_DMABUF) ? API_DMABUF : OFI_API_VERSION;
}

/* Nobody can be asked: libfabric has no such capability, and EFA's provider (2.x) takes a try that
 * fails for a reason to register nothing that way any more. So those that are known to do it do. */
int ofi_hmem_takes_dmabuf(uint32_t version, const char *provider, int kernel, int told)
{
    if (told == DMABUF_OFF || !FI_VERSION_GE(version, API_DMABUF))
        return 0;
    return told == DMABUF_ON ||
           ((strncmp(provider, "efa", 3) == 0 || strcmp(provider, "cxi") == 0) &&
            kernel >= KERNEL_DMABUF);
}

int ofi_hmem_restrict(const struct ofi_ctx *ctx, struct fid_ep *ep)
{
    int p2p = FI_HMEM_P2P_REQUIRED, err;
    _Bool permitted = 0;
    int cuda_err = -FI_ENOPROTOOPT;

    err = fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &p2p, sizeof(p2p));
    if (FI_VERSION_GE(ctx->library.version(), API_CUDA_PERMITTED))
        cuda_err = fi_setopt(&ep->fid, FI_OPT_ENDPOINT, CUDA_API_PERMITTED, &permitted,
                             sizeof(permitted));
    /* An option that is not known (-FI_ENOPROTOOPT) promises nothing; one that is refused, the
     * contrary. */
    if (err && err != -FI_ENOPROTOOPT)
        return err;
    return cuda_err == -FI_ENOPROTOOPT ? err : cuda_err;
}

/* An endpoint as comms have it. */
static xcclResult_t try_endpoint(struct ofi_ctx *ctx, struct ofi_device *device)
{
    struct ofi_endpoint end = {.ep = NULL};
    xcclResult_t rc = xcclSystemError;

    if (ofi_device_open(ctx, (int)(device - ctx->devices)))
        rc = ofi_endpoint_open(ctx, device, device, &end);
    ofi_endpoint_close(&end);
    if (device->domain)
        fi_close(&device->domain->fid);
    if (device->fabric)
        fi_close(&device->fabric->fid);
    device->domain = NULL;
    device->fabric = NULL;
    return rc;
}

/* Takes the info. 0: the card does not reach device memory, and is as it was. */
static int device_change(struct ofi_ctx *ctx, struct ofi_device *device, struct fi_info *wide)
{
    struct fi_info *info = device->info;
    uint64_t piece_bytes = device->piece_bytes;
    int local_mr = device->local_mr;

    device->info = wide;
    device->local_mr = 1;
    device->takes_cuda = 1;
    device->takes_dmabuf = ofi_hmem_takes_dmabuf(ctx->library.version(),
                                                 wide->fabric_attr->prov_name, kernel_version(),
                                                 (int)xccl_param_int(XCCL_P_OFI_DMABUF));
    if (piece_bytes)
        device->piece_bytes = ofi_device_send_bytes(device);
    if (try_endpoint(ctx, device) == xcclSuccess) {
        ctx->library.freeinfo(info);
        return 1;
    }
    ctx->library.freeinfo(wide);
    device->info = info;
    device->local_mr = local_mr;
    device->takes_cuda = device->takes_dmabuf = 0;
    device->piece_bytes = piece_bytes;
    return 0;
}

static xcclResult_t device_widen(struct ofi_ctx *ctx, struct ofi_device *device,
                                 const struct fi_info *infos)
{
    struct fi_info *wide;

    while (infos && (!ofi_device_is_same(infos, device->info) ||
                     (device->piece_bytes && infos->domain_attr->cq_data_size < sizeof(uint32_t))))
        infos = infos->next;
    if (!infos)
        return xcclSuccess;
    wide = ctx->library.dupinfo(infos);
    if (!wide)
        return xccl_fail_quietly(xcclSystemError, 0, NULL, "no memory for a device");
    if (!device_change(ctx, device, wide))
        snprintf(ctx->cuda.why, sizeof(ctx->cuda.why), "%s", xccl_error_text());
    return xcclSuccess;
}

xcclResult_t ofi_hmem_widen(struct ofi_ctx *ctx)
{
    struct fi_info *infos = NULL, *hints;
    const char *provider;
    xcclResult_t rc;

    if (!ctx->device_count)
        return xcclSuccess;
    if (xccl_param_int(XCCL_P_CUDA_GDR) == GDR_OFF)
        snprintf(ctx->cuda.why, sizeof(ctx->cuda.why), "XCCL_CUDA_GDR is off");
    if (ctx->cuda.why[0] || !driver_open(&ctx->cuda))
        return xcclSuccess;
    provider = ctx->devices[0].info->fabric_attr->prov_name;
    snprintf(ctx->cuda.why, sizeof(ctx->cuda.why),
             "libfabric's %s does not offer FI_HMEM with reads", provider);
    hints = ofi_device_hints(ctx, provider);
    if (hints) {
        hints->caps |= FI_HMEM | FI_RMA | FI_SEND | FI_RECV | FI_READ | FI_REMOTE_READ;
        if (ctx->devices[0].piece_bytes)
            hints->caps |= FI_WRITE | FI_REMOTE_WRITE;
        hints->domain_attr->mr_mode |= FI_MR_HMEM;
    }
    rc = ofi_device_ask(ctx, api_version(ctx), hints, &infos);
    for (int i = 0; i < ctx->device_count && rc == xcclSuccess; i++)
        rc = device_widen(ctx, &ctx->devices[i], infos);
    if (infos)
        ctx->library.freeinfo(infos);
    return rc;
}

/* --- registrations --- */

/* 0: the driver says so. */
static int driver_asked(const struct ofi_cuda *cuda, void *value_out, int which, uintptr_t at)
{
    return !cuda->pointer_attribute ? -1 : cuda->pointer_attribute(value_out, which, at);
}

/* What the driver knows of the memory. 0: it is no device's. */
static int look_up(const struct ofi_cuda *cuda, uintptr_t at, struct ofi_region *region)
{
    unsigned type = 0;
    unsigned long long buffer = 0;
    int device = 0;

    if (driver_asked(cuda, &type, XCCL_CU_POINTER_MEMORY_TYPE, at) ||
        type != XCCL_CU_MEMORY_DEVICE || driver_asked(cuda, &device, XCCL_CU_POINTER_DEVICE, at))
        return 0;
    region->cuda_device = device;
    /* Memory whose allocation is not known is nobody's but its own. */
    if (driver_asked(cuda, &buffer, XCCL_CU_POINTER_BUFFER_ID, at))
        buffer = 0;
    region->buffer = buffer;
    region->is_alone = buffer == 0;
    return 1;
}

xcclResult_t ofi_hmem_register(struct ofi_comm *comm, void *data, size_t bytes,
                               struct ofi_region *wanted, xcclNetMem_t *mem_out)
{
    const struct ofi_device *device = comm->device;

    if (!device->takes_cuda)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "copy to host memory first",
                                 "%s does not accept device memory: %s", device->name,
                                 comm->ctx->cuda.why);
    wanted->first = (uintptr_t)data;
    if (__builtin_add_overflow(wanted->first, bytes, &wanted->end) || (bytes && !data))
        return xccl_fail_quietly(xcclInvalidArgument, 0, NULL, "cannot register %zu bytes at %p",
                                 bytes, data);
    if (bytes && wanted->iface == FI_HMEM_CUDA && !look_up(&comm->ctx->cuda, wanted->first, wanted))
        return xccl_fail_quietly(xcclInvalidArgument, 0, "pass memory of cuMemAlloc or cudaMalloc",
                                 "%p is not memory of a CUDA device, according to its driver",
                                 data);
    if (!comm->is_send)
        wanted->access |= FI_REMOTE_READ; /* to flush it */
    return ofi_mem_create(comm, wanted, mem_out);
}

xcclResult_t ofi_reg_mr_dmabuf(void *comm_, void *data, size_t bytes, uint32_t type,
                               uint64_t offset, int fd, xcclNetMem_t *mem_out)
{
    struct ofi_comm *comm = comm_;
    struct ofi_dmabuf dmabuf = {.fd = fd, .offset = offset};
    struct ofi_region wanted = {.access = ofi_mem_access(comm), .dmabuf = &dmabuf, .is_alone = 1};
    uint32_t version = comm->ctx->library.version();

    if (!comm->device->takes_dmabuf && !FI_VERSION_GE(version, API_DMABUF))
        return xccl_fail_quietly(xcclInvalidUsage, 0, "install libfabric 1.20 or later",
                                 "libfabric %u.%u does not support DMA-BUFs", FI_MAJOR(version),
                                 FI_MINOR(version));
    if (!comm->device->takes_dmabuf)
        return xccl_fail_quietly(xcclInvalidUsage, 0,
                                 "set XCCL_OFI_DMABUF=on if its provider supports it",
                                 "%s does not accept a DMA-BUF", comm->device->name);
    if (fd < 0 || (type != XCCL_NET_PTR_CUDA && type != XCCL_NET_PTR_HOST) ||
        offset > (uintptr_t)data)
        return xccl_fail_quietly(
            xcclInvalidArgument, 0, NULL,
            "cannot register %zu bytes at %p, offset %llu of descriptor %d, type %#x", bytes, data,
            (unsigned long long)offset, fd, type);
    wanted.iface = type == XCCL_NET_PTR_CUDA ? FI_HMEM_CUDA : FI_HMEM_SYSTEM;
    return ofi_hmem_register(comm, data, bytes, &wanted, mem_out);
}

int ofi_hmem_mr_reg(struct fid_domain *domain, const struct ofi_region *region, uint64_t key,
                    struct fid_mr **mr_out)
{
    size_t bytes = region->end - region->first;
    struct iovec iov = {.iov_base = (void *)region->first, .iov_len = bytes};
    struct mr_attr full = {.attr = {.mr_iov = &iov,
                                    .iov_count = 1,
                                    .access = region->access,
                                    .requested_key = key,
                                    .iface = region->iface}};
    struct dmabuf dmabuf;
    const void *first = &dmabuf;

    if (region->iface == FI_HMEM_CUDA)
        full.attr.device.cuda = region->cuda_device;
    if (!region->dmabuf)
        return fi_mr_regattr(domain, &full.attr, 0, mr_out);
    dmabuf = (struct dmabuf){.fd = region->dmabuf->fd,
                             .offset = region->dmabuf->offset,
                             .len = bytes,
                             .base_addr = (void *)(region->first - region->dmabuf->offset)};
    memcpy(&full.attr.mr_iov, &first, sizeof(first));
    return fi_mr_regattr(domain, &full.attr, MR_DMABUF, mr_out);
}
