/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUDirect RDMA: slots of network links in memory of the device, where the network's card reads
 * and writes them, and no copy through host memory is left. Each rank decides for its own end, by
 * what its plugin takes and where card and device are; headers and flags stay in pinned memory,
 * where the thread that moves the link sees them. What has come is flushed before its flag is set,
 * unless the device orders a card's writes by itself.
 *
 * Thread: the caller's, with the communicator. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/param.h"
#include "base/sysfs.h"
#include "cuda/cuda_int.h"
#include "proxy/net_link.h"

/* Words of XCCL_CUDA_GDR. */
#define GDR_OFF 1
#define GDR_ON  2

#define ALIGN 65536u /* of a room: pages of the device */

struct xccl_cuda_room {
    xccl_cu_ptr base;
    size_t bytes;
    int is_kept; /* the plugin could not end its requests */
    struct xccl_cuda_room *next;
};

static int attribute(const struct xccl_cuda_comm *cuda, int which)
{
    int value = 0;

    return cuda->driver->device_attribute(&value, which, cuda->device->device) ? 0 : value;
}

void xccl_cuda_card(const struct xcclComm *comm, char *path_out, size_t bytes)
{
    const struct xccl_cuda_comm *cuda = comm->cuda;
    char id[32] = "", link[80];

    path_out[0] = 0;
    if (cuda->driver->device_pci(id, (int)sizeof id, cuda->device->device))
        return;
    for (char *at = id; *at; at++)
        *at = *at >= 'A' && *at <= 'F' ? (char)(*at - 'A' + 'a') : *at;
    snprintf(link, sizeof link, "/sys/bus/pci/devices/%.31s", id);
    xccl_sysfs_card(link, path_out, bytes);
}

/* What goes from one PCI root to another one goes through the processors, and slowly. */
static int is_near(const struct xcclComm *comm, const char *card)
{
    char device[256];

    if (!card)
        return 0;
    xccl_cuda_card(comm, device, sizeof device);
    return xccl_sysfs_same_root(device, card);
}

static int has_dmabuf(const struct xccl_cuda_comm *cuda)
{
    return cuda->driver->mem_range_handle && attribute(cuda, XCCL_CU_ATTR_DMABUF);
}

/* Why slots of links over this device lie in host memory; NULL: they need not. */
static const char *obstacle(const struct xcclComm *comm, const xcclNetProperties_v1 *props)
{
    const struct xccl_cuda_comm *cuda = comm->cuda;
    int told = (int)xccl_param_int(XCCL_P_CUDA_GDR);

    if (told == GDR_OFF)
        return "XCCL_CUDA_GDR is off";
    if (!(props->ptrSupport & (XCCL_NET_PTR_CUDA | XCCL_NET_PTR_DMABUF)))
        return "the plugin does not accept device memory";
    if (!(props->ptrSupport & XCCL_NET_PTR_CUDA) && !has_dmabuf(cuda))
        return "the plugin accepts device memory only as a DMA-BUF, but the CUDA driver exports "
               "none";
    if (told != GDR_ON && !is_near(comm, props->pciPath))
        return "card and device are on different PCI roots; set XCCL_CUDA_GDR=on to use it anyway";
    return NULL;
}

static xcclResult_t ask(const struct xcclComm *comm, int peer, xcclNetProperties_v1 *props_out)
{
    const struct xccl_net *net = xccl_comm_net(comm, peer);

    *props_out = (xcclNetProperties_v1){.size = sizeof *props_out};
    return net->calls.properties(net->ctx, xccl_comm_net_device(comm, peer), props_out);
}

int xccl_cuda_may_have_room(const struct xcclComm *comm, int peer)
{
    xcclNetProperties_v1 props;

    return !ask(comm, peer, &props) && !obstacle(comm, &props);
}

/* Quietly: there is another way. */
static xcclResult_t get_fd(const struct xccl_cuda_comm *cuda, struct xccl_net_room *room)
{
    xcclResult_t rc = xccl_cuda_enter(cuda->device);

    if (rc)
        return rc;
    rc = xccl_cuda_result_quietly(cuda->driver->mem_range_handle(&room->fd, (uintptr_t)room->at,
                                                                 room->bytes, XCCL_CU_RANGE_DMABUF,
                                                                 0),
                                  "exporting a DMA-BUF");
    xccl_cuda_leave(cuda->device);
    return rc;
}

static xcclResult_t make(struct xccl_cuda_comm *cuda, struct xccl_net_link *net, int by_address,
                         struct xccl_net_room *room)
{
    struct xccl_cuda_room *made = xccl_calloc(1, sizeof *made);
    size_t bytes = xccl_net_link_room_bytes(net);
    xcclResult_t rc;

    if (!made)
        return xcclSystemError;
    made->bytes = bytes + ALIGN;
    rc = xccl_cuda_pool_try(cuda, made->bytes, &made->base);
    *room = (struct xccl_net_room){
        .at = (void *)(uintptr_t)((made->base + ALIGN - 1) & ~(xccl_cu_ptr)(ALIGN - 1)),
        .bytes = bytes,
        .flushes = room->flushes,
        .keeps = &made->is_kept,
        .fd = -1};
    if (!rc && !by_address)
        rc = get_fd(cuda, room);
    if (rc) {
        xccl_cuda_pool_free(cuda, made->base, made->bytes);
        xccl_free(made);
        return rc;
    }
    made->next = cuda->rooms;
    cuda->rooms = made;
    return xcclSuccess;
}

void xccl_cuda_give_room(struct xcclComm *comm, struct xccl_net_link *net, int peer, int receives)
{
    struct xccl_net_room room = {.fd = -1};
    char text[XCCL_NET_ROOM_WHY_BYTES];
    xcclNetProperties_v1 props;
    const char *why;

    /* The link's making has asked the same, so it cannot fail for a reason of its own. */
    if (ask(comm, peer, &props))
        return;
    why = obstacle(comm, &props);
    room.flushes = !why && receives &&
                   (props.forceFlush ||
                    attribute(comm->cuda, XCCL_CU_ATTR_WRITES_ORDERING) < XCCL_CU_WRITES_ORDERED);
    if (why) {
        xccl_net_link_set_room_why(net, why);
        return;
    }
    /* What cannot be had is not needed, as what the plugin does not register. */
    if (make(comm->cuda, net, (props.ptrSupport & XCCL_NET_PTR_CUDA) != 0, &room)) {
        snprintf(text, sizeof text, "no device memory: %.100s", xccl_error_text());
    } else {
        xccl_net_link_set_room(net, &room);
        snprintf(text, sizeof text, "by %s%s",
                 props.ptrSupport & XCCL_NET_PTR_CUDA ? "address" : "DMA-BUF",
                 room.flushes ? ", flushed" : "");
    }
    xccl_net_link_set_room_why(net, text);
}

void xccl_cuda_drop_rooms(struct xccl_cuda_comm *cuda)
{
    while (cuda->rooms) {
        struct xccl_cuda_room *room = cuda->rooms;

        cuda->rooms = room->next;
        if (!room->is_kept)
            xccl_cuda_pool_free(cuda, room->base, room->bytes);
        xccl_free(room);
    }
}
