/* SPDX-License-Identifier: BSD-3-Clause */
/* A link over a network plugin, coming up and going away; what it moves then is in net_link_op.c.
 *
 * Coming up (xccl_net_link_connect_step):
 *
 *   CONNECT --connect or accept gives a comm--> REGISTER --slots registered--> UP
 *      '----------------any error----------------------------------'----> FAILED (destroy only)
 *
 * Memory of a link, one block, registered once:
 *   page 0: nslots headers of 64 bytes .. bare preamble .. the head .. 64 bytes of room, then slot
 * 0's payload on page 1; each payload has 64 bytes of room before it, whose last ones take the
 * preamble and, over plugins of NCCL's contract, the length. Payloads in a device's memory are
 * registered besides, at the same distances.
 *
 * Thread: the holder of the communicator's crank, but for connect (init). Nothing here allocates or
 * logs once the link is up. */
#include "proxy/net_link_int.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"

/* What the plugin knows of its comm's error. */
static void ask_detail(struct xccl_net_link *link, xcclNetError_v1 *error_out)
{
    *error_out = (xcclNetError_v1){.size = sizeof(*error_out)};
    link->cause = xcclNetCauseUnknown;
    if (!link->comm || link->net->calls.errorDetail(link->comm, error_out) != xcclSuccess)
        return;
    if (error_out->cause > xcclNetCauseNone && error_out->cause <= xcclNetCauseLocal)
        link->cause = (xcclNetCause_t)error_out->cause;
}

xcclResult_t xccl_net_link_failed(struct xccl_net_link *link, xcclResult_t rc, const char *what)
{
    /* First, for the detail may be an error of its own. */
    const char *text = link->net->calls.lastError(link->net->ctx);
    char kept[XCCL_ERROR_TEXT_BYTES], peer[128] = "";
    xcclNetError_v1 error;

    link->state = LINK_FAILED;
    snprintf(kept, sizeof(kept), "%s", text ? text : "");
    ask_detail(link, &error);
    if (!kept[0] && error.text)
        snprintf(kept, sizeof(kept), "%s", error.text);
    if (error.peer && error.peer[0] && !strstr(kept, error.peer))
        snprintf(peer, sizeof(peer), " (peer %s)", error.peer);
    if (!kept[0])
        snprintf(kept, sizeof(kept), "it does not say why");
    return xccl_fail_quietly(rc, 0, NULL, "network plugin %s cannot %s%s: %s",
                             link->net->calls.name, what, peer, kept);
}

/* ---- coming up and going away ---- */

static xcclResult_t check_device(struct xccl_net *net, int dev, uint32_t slot_bytes,
                                 int *any_memory_out, uint32_t *flush_max_out)
{
    xcclNetProperties_v1 props = {.size = sizeof(props)};
    xcclResult_t rc = net->calls.properties(net->ctx, dev, &props);

    if (rc != xcclSuccess)
        return xccl_fail(rc, 0, NULL, "network plugin %s: device %d: %s", net->calls.name, dev,
                         net->calls.lastError(net->ctx));
    if (slot_bytes == 0 || slot_bytes > SLOT_BYTES_MAX)
        return xccl_fail(xcclInvalidArgument, 0, "give 1 byte to 1 GiB",
                         "slots of %u bytes are not possible on a network link", slot_bytes);
    if (props.maxBytes < (size_t)slot_bytes + XCCL_NET_PREAMBLE_BYTES + XCCL_NET_COUNT_BYTES)
        return xccl_fail(
            xcclInvalidUsage, 0, "use another plugin or a smaller XCCL_BUFFER_BYTES",
            "device %s of network plugin %s sends at most %zu bytes at once, but a slot needs %u",
            props.name, net->calls.name, props.maxBytes,
            slot_bytes + XCCL_NET_PREAMBLE_BYTES + XCCL_NET_COUNT_BYTES);
    if (!(props.ptrSupport & XCCL_NET_PTR_HOST))
        return xccl_fail(xcclInvalidUsage, 0, "use another plugin",
                         "device %s of network plugin %s does not accept host memory", props.name,
                         net->calls.name);
    *any_memory_out = props.anyMemory != 0;
    *flush_max_out = props.maxRecvs < 1 ? 1 : (uint32_t)props.maxRecvs;
    return xcclSuccess;
}

static void view_init(struct xccl_net_link *link, uint32_t slot_bytes, uint32_t stride)
{
    link->view = (struct xccl_link){
        .header = link->memory,
        .payload = link->memory + PAGE_BYTES,
        .header_stride = XCCL_LINE_BYTES,
        .payload_stride = stride,
        .nslots = XCCL_NET_SLOTS,
        .lag = 1,
        .limit = link->sends ? XCCL_NET_SLOTS : 0,
        .heads = link->head,
        .nheads = 1,
        .own_head = UINT16_MAX,
        .peer = (uint16_t)link->peer,
        .slot_bytes = slot_bytes,
    };
}

static xcclResult_t link_create(struct xccl_net *net, int dev, int peer, uint32_t slot_bytes,
                                int sends, struct xccl_net_link **link_out)
{
    struct xccl_net_link *link;
    uint32_t stride, flush_max = 1;
    int any_memory = 0;
    xcclResult_t rc = check_device(net, dev, slot_bytes, &any_memory, &flush_max);

    if (rc != xcclSuccess)
        return rc;
    stride = (slot_bytes + ROOM_BYTES + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    link = xccl_calloc_aligned(XCCL_HEAD_STRIDE, sizeof(*link));
    if (!link)
        return xcclSystemError;
    link->memory_bytes = PAGE_BYTES + (size_t)stride * XCCL_NET_SLOTS;
    link->memory = xccl_calloc_aligned(PAGE_BYTES, link->memory_bytes);
    if (!link->memory) {
        xccl_free(link);
        return xcclSystemError;
    }
    link->net = net;
    link->dev = dev;
    link->peer = peer;
    link->sends = sends;
    link->any_memory = any_memory;
    link->flush_max = flush_max < XCCL_NET_SLOTS ? flush_max : XCCL_NET_SLOTS;
    link->room.fd = -1;
    link->reach = (struct xccl_reach){
        .offers = link->offers, .min_bytes = XCCL_NET_DIRECT_MIN, .is_net = 1};
    link->head = (void *)(link->memory + HEAD_OFFSET);
    view_init(link, slot_bytes, stride);
    *link_out = link;
    return xcclSuccess;
}

xcclResult_t xccl_net_link_listen(struct xccl_net *net, int dev, int peer, uint32_t slot_bytes,
                                  xcclNetHandle_t *handle_out, struct xccl_net_link **link_out)
{
    struct xccl_net_link *link;
    xcclNetHandle_t handle;
    xcclResult_t rc = link_create(net, dev, peer, slot_bytes, 0, &link);

    if (rc != xcclSuccess)
        return rc;
    memset(&handle, 0, sizeof(handle));
    net_enter(link, XCCL_NET_LISTEN);
    rc = net->calls.listen(net->ctx, dev, &handle, &link->listener);
    net_leave(link);
    if (rc != xcclSuccess) {
        rc = xccl_net_link_failed(link, rc, "listen");
        link->listener = NULL;
        xccl_net_link_destroy(link);
        return rc;
    }
    *handle_out = handle;
    *link_out = link;
    return xcclSuccess;
}

xcclResult_t xccl_net_link_create_send(struct xccl_net *net, int dev, int peer, uint32_t slot_bytes,
                                       const xcclNetHandle_t *handle,
                                       struct xccl_net_link **link_out)
{
    xcclResult_t rc = link_create(net, dev, peer, slot_bytes, 1, link_out);

    if (rc == xcclSuccess)
        (*link_out)->handle = *handle;
    return rc;
}

size_t xccl_net_link_room_bytes(const struct xccl_net_link *link)
{
    return (size_t)link->view.payload_stride * XCCL_NET_SLOTS;
}

void xccl_net_link_set_room(struct xccl_net_link *link, const struct xccl_net_room *room)
{
    link->room = *room;
}

void *xccl_net_link_room(const struct xccl_net_link *link)
{
    return link->room_mem ? link->room.at : NULL;
}

void xccl_net_link_set_room_why(struct xccl_net_link *link, const char *why)
{
    snprintf(link->room_why, sizeof(link->room_why), "%s", why);
}

const char *xccl_net_link_room_why(const struct xccl_net_link *link)
{
    return link->room_why;
}

void xccl_net_link_set_apart(struct xccl_net_link *link, int apart)
{
    link->apart = apart;
}

static xcclResult_t step_connect(struct xccl_net_link *link)
{
    const xcclNetPlugin_v1_t *calls = &link->net->calls;
    xcclResult_t rc;

    net_enter(link, link->sends ? XCCL_NET_CONNECT : XCCL_NET_ACCEPT);
    if (link->sends)
        rc = calls->connect(link->net->ctx, link->dev, &link->handle, &link->connecting,
                            &link->comm);
    else
        rc = calls->accept(link->listener, &link->comm);
    net_leave(link);
    if (rc != xcclSuccess) {
        link->comm = NULL;
        return xccl_net_link_failed(link, rc, link->sends ? "connect" : "accept a connection");
    }
    if (link->comm)
        link->state = LINK_REGISTER;
    return xcclSuccess;
}

static void drop_fd(struct xccl_net_link *link)
{
    if (link->room.fd >= 0)
        close(link->room.fd);
    link->room.fd = -1;
}

/* What the plugin does not take stays with slots in host memory: slower, and as right. */
static void register_room(struct xccl_net_link *link)
{
    const xcclNetPlugin_v1_t *calls = &link->net->calls;
    struct xccl_net_room *room = &link->room;
    const char *why;
    xcclResult_t rc;

    net_enter(link, XCCL_NET_REG_MR);
    if (room->fd >= 0)
        rc = calls->regMrDmaBuf(link->comm, room->at, room->bytes, XCCL_NET_PTR_CUDA, 0, room->fd,
                                &link->room_mem);
    else
        rc = calls->regMr(link->comm, room->at, room->bytes, XCCL_NET_PTR_CUDA, &link->room_mem);
    net_leave(link);
    drop_fd(link);
    if (rc == xcclSuccess)
        return;
    link->room_mem = NULL;
    why = calls->lastError(link->net->ctx);
    snprintf(link->room_why, sizeof(link->room_why), "registration refused: %s",
             why && *why ? why : "the plugin does not say why");
}

static xcclResult_t step_register(struct xccl_net_link *link)
{
    const xcclNetPlugin_v1_t *calls = &link->net->calls;
    xcclResult_t rc;

    if (link->listener) {
        net_enter(link, XCCL_NET_CLOSE);
        rc = calls->closeListen(link->listener);
        net_leave(link);
        link->listener = NULL;
        if (rc != xcclSuccess)
            return xccl_net_link_failed(link, rc, "close a listening comm");
    }
    net_enter(link, XCCL_NET_REG_MR);
    rc = calls->regMr(link->comm, link->memory, link->memory_bytes, XCCL_NET_PTR_HOST, &link->mem);
    net_leave(link);
    if (rc != xcclSuccess) {
        link->mem = NULL;
        return xccl_net_link_failed(link, rc, "register the slots of a link");
    }
    if (link->room.at)
        register_room(link);
    link->state = LINK_UP;
    return xcclSuccess;
}

xcclResult_t xccl_net_link_not_up(const struct xccl_net_link *link)
{
    if (link->state == LINK_FAILED)
        return xccl_fail_quietly(xcclRemoteError, 0, "see the first error of this communicator",
                                 "a network link has failed before");
    return xccl_fail_quietly(xcclInternalError, 0, NULL,
                             "a network link is used before it is connected");
}

xcclResult_t xccl_net_link_connect_step(struct xccl_net_link *link, int *done_out)
{
    xcclResult_t rc = xcclSuccess;

    if (link->state == LINK_FAILED)
        return xccl_net_link_not_up(link);
    if (link->state == LINK_CONNECT)
        rc = step_connect(link);
    if (rc == xcclSuccess && link->state == LINK_REGISTER)
        rc = step_register(link);
    if (rc == xcclSuccess)
        *done_out = link->state == LINK_UP;
    return rc;
}

/* Requests may be in flight: they end with the comm, and the memory goes after it. */
static void close_comm(struct xccl_net_link *link)
{
    const xcclNetPlugin_v1_t *calls = &link->net->calls;
    xcclResult_t rc = xcclSuccess;

    if (link->room_mem)
        calls->deregMr(link->comm, link->room_mem);
    if (link->mem)
        calls->deregMr(link->comm, link->mem);
    link->room_mem = NULL;
    if (link->comm)
        rc = link->sends ? calls->closeSend(link->comm) : calls->closeRecv(link->comm);
    link->mem = NULL;
    link->comm = NULL;
    /* Kept for good when a plugin of NCCL's cannot end its requests: they may still write there. */
    if (rc != xcclInProgress)
        return;
    link->memory = NULL;
    if (link->room.keeps)
        *link->room.keeps = 1;
}

void xccl_net_link_destroy(struct xccl_net_link *link)
{
    const xcclNetPlugin_v1_t *calls;

    if (!link)
        return;
    calls = &link->net->calls;
    net_enter(link, XCCL_NET_CLOSE);
    /* Errors of closing have nobody left to act on them. */
    if (link->connecting)
        calls->closeConnect(link->net->ctx, link->connecting);
    if (link->listener)
        calls->closeListen(link->listener);
    close_comm(link);
    net_leave(link);
    drop_fd(link);
    xccl_free(link->memory);
    xccl_free(link);
}

void xccl_net_link_let_go(struct xccl_net_link *link)
{
    if (!link->is_lent || link->done == link->posted)
        return;
    net_enter(link, XCCL_NET_CLOSE);
    close_comm(link);
    net_leave(link);
    link->state = LINK_FAILED;
}

struct xccl_reach *xccl_net_link_reach(struct xccl_net_link *link)
{
    return link->any_memory ? &link->reach : NULL;
}

struct xccl_link *xccl_net_link_view(struct xccl_net_link *link)
{
    return &link->view;
}

int xccl_net_link_peer(const struct xccl_net_link *link)
{
    return link->peer;
}

int xccl_net_link_sends(const struct xccl_net_link *link)
{
    return link->sends;
}

char *xccl_net_link_memory(const struct xccl_net_link *link, size_t *bytes_out)
{
    *bytes_out = link->memory_bytes;
    return link->memory;
}

xcclNetCause_t xccl_net_link_cause(const struct xccl_net_link *link)
{
    return link->cause;
}

int xccl_net_link_other_call(const struct xccl_net_link *link, uint64_t *seq_out,
                             uint64_t *signature_out)
{
    if (!link->is_other)
        return 0;
    *seq_out = link->other_seq;
    *signature_out = link->other_signature;
    return 1;
}
