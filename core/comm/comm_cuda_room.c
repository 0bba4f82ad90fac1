/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUDirect RDMA: slots of network links in memory of the device, where the network's card reads
 * and writes them, and no copy through host memory is left. Each rank decides for its own end, by
 * what its plugin takes and where card and device are; headers and flags stay in pinned memory,
 * where the thread that moves the link sees them. What has come is flushed before its flag is set,
 * unless the device orders a card's writes by itself.
 *
 * Thread: the caller's, with the communicator. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "base/sysfs.h"
#include "comm/comm_cuda_int.h"
#include "proxy/net_link.h"

/* Words of XCCL_CUDA_GDR. */
#define GDR_OFF 1
#define GDR_ON  2

#define ALIGN 65536u /* of a room: pages of the device */

struct xccl_cuda_room {
    xccl_cu_ptr base;
    int is_kept; /* the plugin could not end its requests */
    struct xccl_cuda_room *next;
};

static int attribute(const struct xccl_comm_cuda *cuda, int which)
{
    int value = 0;

    return cuda->driver->device_attribute(&value, which, cuda->device->device) ? 0 : value;
}

/* As far as "/sys/devices/pci0000:3a". 0: it is not there. */
static size_t root_length(const char *path)
{
    const char *pci = strstr(path, "/pci"), *end = pci ? strchr(pci + 1, '/') : NULL;

    return end ? (size_t)(end - path) : 0;
}

/* What goes from one PCI root to another one goes through the processors, and slowly. */
static int is_near(const struct xccl_comm_cuda *cuda, const char *card)
{
    char id[32] = "", link[80], device[256];
    size_t length = card ? root_length(card) : 0;

    if (!length || cuda->driver->device_pci(id, (int)sizeof id, cuda->device->device))
        return 0;
    for (char *at = id; *at; at++)
        *at = *at >= 'A' && *at <= 'F' ? (char)(*at - 'A' + 'a') : *at;
    snprintf(link, sizeof link, "/sys/bus/pci/devices/%.31s", id);
    xccl_sysfs_card(link, device, sizeof device);
    return root_length(device) == length && memcmp(device, card, length) == 0;
}

static int has_dmabuf(const struct xccl_comm_cuda *cuda)
{
    return cuda->driver->mem_range_handle && attribute(cuda, XCCL_CU_ATTR_DMABUF);
}

/* Why slots of links over this device lie in host memory; NULL: they need not. */
static const char *obstacle(const struct xccl_comm_cuda *cuda, const xcclNetProperties_v1 *props)
{
    int told = (int)xccl_param_int(XCCL_P_CUDA_GDR);

    if (told == GDR_OFF)
        return "XCCL_CUDA_GDR is off";
    if (!(props->ptrSupport & (XCCL_NET_PTR_CUDA | XCCL_NET_PTR_DMABUF)))
        return "the network does not take device memory";
    if (!(props->ptrSupport & XCCL_NET_PTR_CUDA) && !has_dmabuf(cuda))
        return "the network takes it as a DMA-BUF only, and the CUDA driver gives none";
    if (told != GDR_ON && !is_near(cuda, props->pciPath))
        return "card and device are not on one PCI root; XCCL_CUDA_GDR=on does it all the same";
    return NULL;
}

static xcclResult_t ask(const struct xcclComm *comm, int peer, xcclNetProperties_v1 *props_out)
{
    const struct xccl_net *net = xccl_comm_net(comm, peer);

    *props_out = (xcclNetProperties_v1){.size = sizeof *props_out};
    return net->calls.properties(net->ctx, xccl_comm_net_device(comm, peer), props_out);
}

int xccl_comm_cuda_may_have_room(const struct xcclComm *comm, int peer)
{
    xcclNetProperties_v1 props;

    return !ask(comm, peer, &props) && !obstacle(comm->cuda, &props);
}

/* Once a network device. */
static void tell(struct xcclComm *comm, int dev, const xcclNetProperties_v1 *props, const char *why,
                 int flushes)
{
    uint64_t bit = dev < 64 ? 1ull << dev : 0;

    if (!bit || comm->cuda->rooms_told & bit)
        return;
    comm->cuda->rooms_told |= bit;
    if (why)
        xccl_log(XCCL_LOG_INFO,
                 "CUDA device %d, network device %s: slots of links in pinned host memory: %s",
                 comm->device, props->name, why);
    else
        xccl_log(XCCL_LOG_INFO,
                 "CUDA device %d, network device %s: slots of links in device memory, by %s%s",
                 comm->device, props->name,
                 props->ptrSupport & XCCL_NET_PTR_CUDA ? "address" : "DMA-BUF",
                 flushes ? ", flushed" : "");
}

static xcclResult_t make(struct xccl_comm_cuda *cuda, struct xccl_net_link *net, int by_address,
                         struct xccl_net_room *room)
{
    struct xccl_cuda_room *made = xccl_calloc(1, sizeof *made);
    xccl_cu_ptr at;
    xcclResult_t rc;

    if (!made)
        return xcclSystemError;
    room->bytes = xccl_net_link_room_bytes(net);
    rc = xccl_comm_cuda_alloc(cuda, room->bytes + ALIGN, &made->base);
    if (rc) {
        xccl_free(made);
        return rc;
    }
    made->next = cuda->rooms;
    cuda->rooms = made;
    at = (made->base + ALIGN - 1) & ~(xccl_cu_ptr)(ALIGN - 1);
    room->at = (void *)(uintptr_t)at;
    room->keeps = &made->is_kept;
    room->fd = -1;
    if (by_address)
        return xcclSuccess;
    rc = xccl_cuda_enter(cuda->device);
    if (rc)
        return rc;
    rc = xccl_cuda_result(
        cuda->driver->mem_range_handle(&room->fd, at, room->bytes, XCCL_CU_RANGE_DMABUF, 0),
        "a DMA-BUF of device memory; XCCL_CUDA_GDR=off does without");
    xccl_cuda_leave(cuda->device);
    return rc;
}

xcclResult_t xccl_comm_cuda_give_room(struct xcclComm *comm, struct xccl_net_link *net, int peer,
                                      int receives)
{
    struct xccl_net_room room = {.fd = -1};
    xcclNetProperties_v1 props;
    const char *why;
    xcclResult_t rc;

    /* The link's making has asked the same, so it cannot fail for a reason of its own. */
    if (ask(comm, peer, &props))
        return xcclSuccess;
    why = obstacle(comm->cuda, &props);
    room.flushes = !why && receives &&
                   (props.forceFlush ||
                    attribute(comm->cuda, XCCL_CU_ATTR_WRITES_ORDERING) < XCCL_CU_WRITES_ORDERED);
    tell(comm, xccl_comm_net_device(comm, peer), &props, why, room.flushes);
    if (why)
        return xcclSuccess;
    rc = make(comm->cuda, net, (props.ptrSupport & XCCL_NET_PTR_CUDA) != 0, &room);
    if (!rc)
        xccl_net_link_set_room(net, &room);
    return rc;
}

void xccl_comm_cuda_drop_rooms(struct xccl_comm_cuda *cuda)
{
    while (cuda->rooms) {
        struct xccl_cuda_room *room = cuda->rooms;

        cuda->rooms = room->next;
        if (!room->is_kept)
            xccl_cuda_free(cuda->device, room->base);
        xccl_free(room);
    }
}
