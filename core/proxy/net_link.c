/* SPDX-License-Identifier: BSD-3-Clause */
/* A link over a network plugin: slots in private memory, and the op that moves them between the
 * executor and the plugin. A link is SEND or RECV for life and carries one operation at a time.
 *
 * Coming up (xccl_net_link_connect_step):
 *
 *   CONNECT --connect or accept gives a comm--> REGISTER --slots registered--> UP
 *      '----------------any error----------------------------------'----> FAILED (destroy only)
 *
 * Each message of an operation goes through these states. They are not stored: the three cursors of
 * the op (posted, done, total) and the flag word of the slot say where a message is.
 *
 *   SEND  WAIT   message >= posted, flag not there          send_post() looks for the flag
 *         POST   flag there, plugin busy or not asked       send_post() posts it: posted + 1
 *         TEST   done <= message < posted                   send_reap() tests the oldest: done + 1,
 *         CREDIT                                            and the head goes on: slot free again
 *
 *   RECV  POST   message >= posted, slot free, not busy     recv_post() posts it: posted + 1
 *                (not before CHECK into a buffer)
 *         TEST   done <= message < posted                   recv_reap() tests the oldest,
 *         CHECK  only message 0 of an operation             recv_check() compares the preamble,
 *         HAND   evidence, then flag: the executor's now    recv_hand_over(): done + 1
 *
 * A message that is longer than the buffer it was to be received in is the plugin's error; it is
 * handed over with a size that nobody expects, and the executor finds it as it does in a slot.
 *
 * What must hold: posted - done <= nslots. Steps are posted and finished in order. A slot is posted
 * for receiving only when the reader's head has passed its last use. An operation without messages
 * ("bare") sends 16 bytes from a line of its own, and receives into the next free slot without
 * using it up: there a message of another operation fits too and can be told from a match.
 *
 * Memory of a link, one block, registered once:
 *   page 0: nslots headers of 64 bytes .. bare preamble .. the head .. 64 bytes of room, then slot
 * 0's payload on page 1; each payload has 64 bytes of room before it, whose last 16 take the
 * preamble.
 *
 * Thread: the holder of the communicator's crank, but for connect (init). Nothing here allocates or
 * logs once the link is up. */
#include "proxy/net_link.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/wire.h"

#define PAGE_BYTES     4096u
#define ROOM_BYTES     64u /* before each payload */
#define BARE_OFFSET    (XCCL_NET_SLOTS * XCCL_LINE_BYTES)
#define HEAD_OFFSET    2048u
#define SLOT_BYTES_MAX (1u << 30)

static_assert(BARE_OFFSET + XCCL_LINE_BYTES <= HEAD_OFFSET &&
                  HEAD_OFFSET + XCCL_HEAD_STRIDE + ROOM_BYTES <= PAGE_BYTES,
              "page 0 holds all of it");
static_assert(XCCL_NET_PREAMBLE_BYTES <= ROOM_BYTES, "the preamble lies in the room");
static_assert(XCCL_NET_SLOTS <= XCCL_NET_MAX_REQUESTS, "every plugin offers that many requests");

enum link_state { LINK_CONNECT, LINK_REGISTER, LINK_UP, LINK_FAILED };

struct xccl_net_link {
    struct xccl_link view;
    struct xccl_net *net;
    int sends; /* 1: send end */
    enum link_state state;

    /* The op. Messages are counted from 0 in each operation, slots and steps go on for ever. */
    struct xccl_net_op op;
    uint32_t total; /* messages on the wire: at least the bare preamble */
    uint32_t posted, done; /* of this operation */
    uint32_t post_step; /* step of the next post; of the executor's numbering, wraps */
    uint32_t post_slot, done_slot;
    xcclNetRequest_t requests[XCCL_NET_SLOTS];
    /* Buffers: by slot, what the executor sends from there, or where a message is received. */
    struct xccl_reach reach;
    struct xccl_offer offers[XCCL_NET_SLOTS];
    int any_memory; /* 1: of the device */
    int is_lent; /* 1: this operation has given the plugin a buffer */
    int too_long; /* 1: a message did not fit into its buffer; the executor has it */
    /* Receive end: what has been told of the messages before `told`, by message. */
    struct target {
        char *at; /* NULL: into the slot */
        uint32_t bytes;
    } targets[XCCL_NET_SLOTS];
    uint32_t told;

    void *comm;
    xcclNetMem_t mem;
    char *memory;
    size_t memory_bytes;
    int dev, peer;
    xcclNetCause_t cause; /* of the plugin's first error */
    xcclNetHandle_t handle; /* send end */
    xcclNetConnect_t connecting; /* send end */
    xcclNetListenComm_t listener; /* receive end, until accepted */
    _Atomic uint32_t *head; /* in memory */
};

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

/* Makes the plugin's text of a failed call the thread's error text, with the peer's address. Quiet:
 * the caller adds the rank. */
static xcclResult_t plugin_failed(struct xccl_net_link *link, xcclResult_t rc, const char *what)
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

/* Around each call into the plugin, for the one who looks for calls that do not come back. */
static void enter(struct xccl_net_link *link, enum xccl_net_entry entry)
{
    xccl_net_enter(link->net->watch, link->net->position, entry);
}

static void leave(struct xccl_net_link *link)
{
    xccl_net_leave(link->net->watch);
}

/* ---- coming up and going away ---- */

static xcclResult_t check_device(struct xccl_net *net, int dev, uint32_t slot_bytes,
                                 int *any_memory_out)
{
    xcclNetProperties_v1 props = {.size = sizeof(props)};
    xcclResult_t rc = net->calls.properties(net->ctx, dev, &props);

    if (rc != xcclSuccess)
        return xccl_fail(rc, 0, NULL, "network plugin %s: device %d: %s", net->calls.name, dev,
                         net->calls.lastError(net->ctx));
    if (slot_bytes == 0 || slot_bytes > SLOT_BYTES_MAX)
        return xccl_fail(xcclInvalidArgument, 0, "give 1 byte to 1 GiB",
                         "slots of %u bytes on a network link", slot_bytes);
    if (props.maxBytes < (size_t)slot_bytes + XCCL_NET_PREAMBLE_BYTES)
        return xccl_fail(xcclInvalidUsage, 0, "use another plugin or a smaller XCCL_BUFFER_BYTES",
                         "device %s of network plugin %s sends at most %zu bytes at once, a slot "
                         "needs %u",
                         props.name, net->calls.name, props.maxBytes,
                         slot_bytes + XCCL_NET_PREAMBLE_BYTES);
    if (!(props.ptrSupport & XCCL_NET_PTR_HOST))
        return xccl_fail(xcclInvalidUsage, 0, "use another plugin",
                         "device %s of network plugin %s does not take host memory", props.name,
                         net->calls.name);
    *any_memory_out = props.anyMemory != 0;
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
    uint32_t stride;
    int any_memory = 0;
    xcclResult_t rc = check_device(net, dev, slot_bytes, &any_memory);

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
    enter(link, XCCL_NET_LISTEN);
    rc = net->calls.listen(net->ctx, dev, &handle, &link->listener);
    leave(link);
    if (rc != xcclSuccess) {
        rc = plugin_failed(link, rc, "listen");
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

static xcclResult_t step_connect(struct xccl_net_link *link)
{
    const xcclNetPlugin_v1_t *calls = &link->net->calls;
    xcclResult_t rc;

    enter(link, link->sends ? XCCL_NET_CONNECT : XCCL_NET_ACCEPT);
    if (link->sends)
        rc = calls->connect(link->net->ctx, link->dev, &link->handle, &link->connecting,
                            &link->comm);
    else
        rc = calls->accept(link->listener, &link->comm);
    leave(link);
    if (rc != xcclSuccess) {
        link->comm = NULL;
        return plugin_failed(link, rc, link->sends ? "connect" : "accept a connection");
    }
    if (link->comm)
        link->state = LINK_REGISTER;
    return xcclSuccess;
}

static xcclResult_t step_register(struct xccl_net_link *link)
{
    const xcclNetPlugin_v1_t *calls = &link->net->calls;
    xcclResult_t rc;

    if (link->listener) {
        enter(link, XCCL_NET_CLOSE);
        rc = calls->closeListen(link->listener);
        leave(link);
        link->listener = NULL;
        if (rc != xcclSuccess)
            return plugin_failed(link, rc, "close a listening comm");
    }
    enter(link, XCCL_NET_REG_MR);
    rc = calls->regMr(link->comm, link->memory, link->memory_bytes, XCCL_NET_PTR_HOST, &link->mem);
    leave(link);
    if (rc != xcclSuccess) {
        link->mem = NULL;
        return plugin_failed(link, rc, "register the slots of a link");
    }
    link->state = LINK_UP;
    return xcclSuccess;
}

static xcclResult_t not_up(const struct xccl_net_link *link)
{
    if (link->state == LINK_FAILED)
        return xccl_fail_quietly(xcclRemoteError, 0, "see the first error of this communicator",
                                 "a network link has failed before");
    return xccl_fail_quietly(xcclInternalError, 0, NULL, "a network link is used before it is up");
}

xcclResult_t xccl_net_link_connect_step(struct xccl_net_link *link, int *done_out)
{
    xcclResult_t rc = xcclSuccess;

    if (link->state == LINK_FAILED)
        return not_up(link);
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

    if (link->mem)
        calls->deregMr(link->comm, link->mem);
    if (link->comm)
        rc = link->sends ? calls->closeSend(link->comm) : calls->closeRecv(link->comm);
    link->mem = NULL;
    link->comm = NULL;
    /* Kept for good when a plugin of NCCL's cannot end its requests: they may still write there. */
    if (rc == xcclInProgress)
        link->memory = NULL;
}

void xccl_net_link_destroy(struct xccl_net_link *link)
{
    const xcclNetPlugin_v1_t *calls;

    if (!link)
        return;
    calls = &link->net->calls;
    enter(link, XCCL_NET_CLOSE);
    /* Errors of closing have nobody left to act on them. */
    if (link->connecting)
        calls->closeConnect(link->net->ctx, link->connecting);
    if (link->listener)
        calls->closeListen(link->listener);
    close_comm(link);
    leave(link);
    xccl_free(link->memory);
    xccl_free(link);
}

void xccl_net_link_let_go(struct xccl_net_link *link)
{
    if (!link->is_lent || link->done == link->posted)
        return;
    enter(link, XCCL_NET_CLOSE);
    close_comm(link);
    leave(link);
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

char *xccl_net_link_memory(const struct xccl_net_link *link, size_t *bytes_out)
{
    *bytes_out = link->memory_bytes;
    return link->memory;
}

xcclNetCause_t xccl_net_link_cause(const struct xccl_net_link *link)
{
    return link->cause;
}

/* ---- the op: what both ends share ---- */

static struct xccl_slot_header *header_at(struct xccl_net_link *link, uint32_t slot_idx)
{
    return (struct xccl_slot_header *)(void *)(link->memory + slot_idx * XCCL_LINE_BYTES);
}

static char *payload_at(struct xccl_net_link *link, uint32_t slot_idx)
{
    return link->memory + PAGE_BYTES + (size_t)slot_idx * link->view.payload_stride;
}

static uint32_t slot_after(uint32_t slot_idx)
{
    return slot_idx + 1 == XCCL_NET_SLOTS ? 0 : slot_idx + 1;
}

static uint64_t flag_of(const struct xccl_net_link *link, uint32_t step)
{
    return (uint64_t)(step + 1u) << 32 | link->op.flag_low;
}

static void preamble_encode(const struct xccl_net_op *op, char *bytes_out)
{
    struct xccl_wire wire = xccl_wire_over(bytes_out, XCCL_NET_PREAMBLE_BYTES);

    xccl_wire_put_u64(&wire, op->seq);
    xccl_wire_put_u64(&wire, op->signature);
}

void xccl_net_link_begin(struct xccl_net_link *link, const struct xccl_net_op *op)
{
    assert(xccl_net_link_idle(link));
    link->op = *op;
    link->total = op->messages || op->plain ? op->messages : 1;
    link->posted = 0;
    link->done = 0;
    link->told = 0;
    link->is_lent = 0;
}

int xccl_net_link_idle(const struct xccl_net_link *link)
{
    return link->done == link->total;
}

/* The post succeeded: bare messages use no slot up. */
static void posted_one(struct xccl_net_link *link, xcclNetRequest_t request)
{
    link->requests[link->post_slot] = request;
    link->posted++;
    if (link->op.messages == 0)
        return;
    link->post_step++;
    link->post_slot = slot_after(link->post_slot);
}

static void finished_one(struct xccl_net_link *link)
{
    link->done++;
    if (link->op.messages)
        link->done_slot = slot_after(link->done_slot);
}

/* The first message of an operation, but for plain ones, begins with the preamble. */
static int has_preamble(const struct xccl_net_link *link, uint32_t message)
{
    return message == 0 && !link->op.plain;
}

/* ---- the op: send end ---- */

/* A message that begins with the preamble is sent from its slot. */
static void take_home(struct xccl_net_link *link, char *payload, uint32_t bytes)
{
    struct xccl_offer *offer = &link->offers[link->post_slot];

    if (offer->at && bytes)
        xccl_copy(payload, offer->at, bytes);
    offer->at = NULL; /* once: the plugin may be busy */
}

/* What to send next. 0: the executor has not filled the slot yet. */
static int send_take(struct xccl_net_link *link, const char **data_out, size_t *bytes_out)
{
    struct xccl_slot_header *header = header_at(link, link->post_slot);
    char *payload = payload_at(link, link->post_slot);

    if (link->op.messages == 0) {
        preamble_encode(&link->op, link->memory + BARE_OFFSET);
        *data_out = link->memory + BARE_OFFSET;
        *bytes_out = XCCL_NET_PREAMBLE_BYTES;
        return 1;
    }
    /* Acquire: payload and bytes were written before. Pairs with the executor's release store. */
    if (atomic_load_explicit(&header->flag, memory_order_acquire) != flag_of(link, link->post_step))
        return 0;
    /* This process wrote it; a length that does not fit is a bug of the executor. */
    assert(header->bytes <= link->view.slot_bytes);
    *data_out = payload;
    *bytes_out = header->bytes;
    if (has_preamble(link, link->posted)) {
        take_home(link, payload, header->bytes);
        preamble_encode(&link->op, payload - XCCL_NET_PREAMBLE_BYTES);
        *data_out = payload - XCCL_NET_PREAMBLE_BYTES;
        *bytes_out += XCCL_NET_PREAMBLE_BYTES;
    } else if (link->offers[link->post_slot].at && header->bytes) {
        *data_out = link->offers[link->post_slot].at;
        link->is_lent = 1;
    }
    return 1;
}

/* WAIT and POST: as many as are filled, until the plugin is busy. */
static xcclResult_t send_post(struct xccl_net_link *link, int *moved_out)
{
    const char *data;
    size_t bytes;

    while (link->posted < link->total && link->posted - link->done < XCCL_NET_SLOTS &&
           send_take(link, &data, &bytes)) {
        xcclNetRequest_t request = NULL;
        xcclResult_t rc;

        enter(link, XCCL_NET_ISEND);
        rc = link->net->calls.isend(link->comm, data, bytes, 0, link->mem, &request);
        leave(link);
        if (rc != xcclSuccess)
            return plugin_failed(link, rc, "send");
        if (!request)
            return xcclSuccess;
        posted_one(link, request);
        *moved_out = 1;
    }
    return xcclSuccess;
}

/* TEST and CREDIT: the oldest first, until one is not done. */
static xcclResult_t send_reap(struct xccl_net_link *link, int *moved_out)
{
    while (link->done < link->posted) {
        int done = 0;
        xcclResult_t rc;

        enter(link, XCCL_NET_TEST);
        rc = link->net->calls.test(link->requests[link->done_slot], &done, NULL);
        leave(link);
        if (rc != xcclSuccess)
            return plugin_failed(link, rc, "finish a send");
        if (!done)
            return xcclSuccess;
        if (link->op.messages) {
            uint32_t head = atomic_load_explicit(link->head, memory_order_relaxed);

            /* Release: the plugin has read the slot. Pairs with the executor's look at heads. */
            atomic_store_explicit(link->head, head + 1, memory_order_release);
        }
        finished_one(link);
        *moved_out = 1;
    }
    return xcclSuccess;
}

/* ---- the op: receive end ---- */

static uint32_t recv_slots_free(const struct xccl_net_link *link)
{
    /* Acquire: the executor has read the slot. Pairs with its release store of the head. */
    uint32_t head = atomic_load_explicit(link->head, memory_order_acquire);

    return XCCL_NET_SLOTS - (link->post_step - head);
}

int xccl_net_link_knows(const struct xccl_net_link *link)
{
    return (int32_t)(link->told - link->posted) > 0;
}

/* Those that were posted before they were told of are in slots. */
int xccl_net_link_expect(struct xccl_net_link *link, void *at, uint32_t bytes)
{
    if ((int32_t)(link->told - link->posted) >= XCCL_NET_SLOTS)
        return 0;
    link->targets[link->told++ % XCCL_NET_SLOTS] = (struct target){
        bytes < link->reach.min_bytes ? NULL : at, bytes};
    return 1;
}

/* Where the next message goes. 0: not before the preamble has been checked. */
static int recv_place(struct xccl_net_link *link, void **data_out, size_t *bytes_out)
{
    size_t room = has_preamble(link, link->posted) ? XCCL_NET_PREAMBLE_BYTES : 0;
    const struct target *target = &link->targets[link->posted % XCCL_NET_SLOTS];
    struct xccl_offer *offer = &link->offers[link->post_slot];

    *data_out = payload_at(link, link->post_slot) - room;
    *bytes_out = link->view.slot_bytes + room;
    offer->at = NULL;
    if (!link->op.ahead || !link->op.messages)
        return 1;
    if (!xccl_net_link_knows(link))
        link->op.ahead(link->op.ahead_owner, link);
    if (room || !xccl_net_link_knows(link) || !target->at)
        return 1;
    if (!link->op.plain && !link->done)
        return 0;
    *data_out = target->at;
    *bytes_out = target->bytes;
    offer->at = target->at;
    link->is_lent = 1;
    return 1;
}

/* Is it the error of a message that is longer than its buffer? No slot is too small. */
static int is_too_long(const struct xccl_net_link *link, xcclResult_t rc)
{
    return rc == xcclInvalidUsage && link->is_lent && link->done < link->posted;
}

/* POST: all free slots, as far as messages are left. */
static xcclResult_t recv_post(struct xccl_net_link *link, int *moved_out)
{
    void *data;
    size_t bytes;

    while (link->posted < link->total && recv_slots_free(link) > 0 &&
           recv_place(link, &data, &bytes)) {
        uint32_t tag = 0;
        xcclNetRequest_t request = NULL;
        xcclResult_t rc;

        enter(link, XCCL_NET_IRECV);
        rc = link->net->calls.irecv(link->comm, 1, &data, &bytes, &tag, &link->mem, &request);
        leave(link);
        if (is_too_long(link, rc))
            return xcclSuccess; /* of an earlier one, which is tested next */
        if (rc != xcclSuccess)
            return plugin_failed(link, rc, "receive");
        if (!request)
            return xcclSuccess;
        posted_one(link, request);
        *moved_out = 1;
    }
    return xcclSuccess;
}

/* CHECK: the first message of an operation says which operation the sender is in. */
static xcclResult_t recv_check(struct xccl_net_link *link, size_t bytes)
{
    char *preamble = payload_at(link, link->done_slot) - XCCL_NET_PREAMBLE_BYTES;
    struct xccl_wire wire = xccl_wire_over(preamble, XCCL_NET_PREAMBLE_BYTES);
    uint64_t seq = xccl_wire_get_u64(&wire), signature = xccl_wire_get_u64(&wire);

    if (bytes < XCCL_NET_PREAMBLE_BYTES) {
        link->state = LINK_FAILED;
        return xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                                 "the first message of an operation has %zu bytes, not even the "
                                 "%d of its preamble",
                                 bytes, XCCL_NET_PREAMBLE_BYTES);
    }
    if (seq == link->op.seq && signature == link->op.signature)
        return xcclSuccess;
    link->state = LINK_FAILED;
    return xccl_fail_quietly(xcclInvalidUsage, 0,
                             "call the same operations in the same order on all ranks",
                             "the peer called another operation (its sequence %llu, ours %llu), "
                             "signatures %016llx and %016llx",
                             (unsigned long long)seq, (unsigned long long)link->op.seq,
                             (unsigned long long)signature, (unsigned long long)link->op.signature);
}

/* HAND: evidence first, then the flag. */
static void recv_hand_over(struct xccl_net_link *link, size_t bytes)
{
    struct xccl_slot_header *header = header_at(link, link->done_slot);
    /* The oldest posted step; posts and hand-overs are in order. */
    uint32_t step = link->post_step - (link->posted - link->done);

    header->bytes = (uint32_t)bytes;
    /* Release: payload and bytes come first. Pairs with the executor's acquire load of the flag. */
    atomic_store_explicit(&header->flag, flag_of(link, step), memory_order_release);
}

/* TEST: the oldest first, until one is not done. */
static xcclResult_t recv_reap(struct xccl_net_link *link, int *moved_out)
{
    while (link->done < link->posted) {
        size_t bytes = 0;
        int done = 0;
        xcclResult_t rc;

        enter(link, XCCL_NET_TEST);
        rc = link->net->calls.test(link->requests[link->done_slot], &done, &bytes);
        leave(link);
        if (is_too_long(link, rc)) {
            link->too_long = 1;
            *moved_out = 1;
            recv_hand_over(link, UINT32_MAX);
            return xcclSuccess;
        }
        if (rc != xcclSuccess)
            return plugin_failed(link, rc, "finish a receive");
        if (!done)
            return xcclSuccess;
        *moved_out = 1;
        if (has_preamble(link, link->done)) {
            rc = recv_check(link, bytes);
            if (rc != xcclSuccess)
                return rc;
            bytes -= XCCL_NET_PREAMBLE_BYTES;
        }
        /* A bare operation whose peer sent data has an equal signature and so cannot get here with
         * payload; nothing waits for it in any case. */
        if (link->op.messages)
            recv_hand_over(link, bytes);
        finished_one(link);
    }
    return xcclSuccess;
}

typedef xcclResult_t op_step_fn(struct xccl_net_link *link, int *moved_out);

xcclResult_t xccl_net_link_progress(struct xccl_net_link *link, int *moved_out)
{
    /* Post first: what the plugin moves at once is then reaped in the same turn. */
    static op_step_fn *const steps[2][2] = {{recv_post, recv_reap}, {send_post, send_reap}};
    xcclResult_t rc;

    if (link->done == link->total || link->too_long)
        return xcclSuccess;
    if (link->state != LINK_UP)
        return not_up(link);
    rc = steps[link->sends][0](link, moved_out);
    if (rc == xcclSuccess)
        rc = steps[link->sends][1](link, moved_out);
    return rc;
}
