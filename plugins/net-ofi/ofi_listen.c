/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver's side of coming up: a TCP port, and those who come there. Nothing here waits:
 * accept is asked again and again. A connection that has not proved itself (kit_guest.h) costs no
 * endpoint, does not reach the caller and does not delay the right sender. Thread: one at a time a
 * listener. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/os.h"
#include "base/tcp.h"
#include "ofi_int.h"

/* One for the device; where a rail may fail, one for each card that has an address of its own. */
static xcclResult_t open_ports(struct ofi_listen *listener)
{
    const struct ofi_device *device = listener->device;
    uint32_t count = ofi_failover_can(device) ? device->member_count : 1;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < count && rc == xcclSuccess; i++) {
        const struct xccl_addr *addr = i ? &device->members[i]->control : &device->control;
        int is_other = 1;

        for (uint32_t k = 0; k < i && is_other; k++)
            is_other = !xccl_addr_equal(addr, &device->members[k]->control);
        if (is_other)
            rc = kit_listener_port(&listener->door, i, addr);
    }
    return rc;
}

xcclResult_t ofi_listen(xcclNetContext_t ctx_, int dev, xcclNetHandle_t *handle_out,
                        xcclNetListenComm_t *listen_out)
{
    struct ofi_ctx *ctx = ctx_;
    struct ofi_device *device = ofi_device_get(ctx, dev);
    struct ofi_listen *listener;
    xcclResult_t rc;

    if (!device)
        return xcclInvalidArgument;
    device = ofi_device_open(ctx, dev);
    if (!device)
        return xcclSystemError;
    ofi_comm_sweep(ctx, 0);
    listener = xccl_calloc(1, sizeof(*listener));
    if (!listener)
        return xcclSystemError;
    listener->ctx = ctx;
    listener->device = device;
    rc = kit_listener_open(&listener->door, &ofi_dialect, ctx->log, device->name);
    if (rc == xcclSuccess)
        rc = open_ports(listener);
    if (rc != xcclSuccess) {
        ofi_close_listen(listener);
        return rc;
    }
    kit_handle_encode(&ofi_dialect, &listener->door.handle, handle_out);
    *listen_out = listener;
    return xcclSuccess;
}

xcclResult_t ofi_close_listen(xcclNetListenComm_t listen_)
{
    struct ofi_listen *listener = listen_;

    kit_listener_close(&listener->door);
    ofi_comm_destroy(listener->comm);
    xccl_free(listener);
    return xcclSuccess;
}

/* The control connections that are to come yet. */
static xcclResult_t choose_ways(struct ofi_listen *listener, struct ofi_comm *comm,
                                struct ofi_reply *reply)
{
    listener->awaited = 0;
    for (uint32_t i = 0; i < comm->rail_count && comm->failover.on; i++) {
        uint32_t member = comm->rails[i].member;

        if (member == listener->first) {
            reply->ways[i] = OFI_WAY_FIRST;
            comm->links[0].rail = i;
        } else if (listener->door.fds[member] >= 0) {
            reply->ways[i] = OFI_WAY_OWN;
            xccl_addr_encode(&listener->door.ports[member], reply->addrs[i]);
            listener->awaited |= 1u << i;
        }
    }
    return xccl_os_random(&listener->visit, sizeof(listener->visit));
}

/* Pairs the rails, and writes the reply. */
static xcclResult_t answer(struct ofi_listen *listener, struct ofi_comm *comm,
                           struct ofi_hello *hello)
{
    uint8_t own[OFI_RAILS_MAX][OFI_ADDRESS_BYTES], peers[OFI_RAILS_MAX][OFI_ADDRESS_BYTES];
    struct ofi_reply reply = {.piece_bytes = 0};
    uint32_t ends[OFI_RAILS_MAX] = {0};
    xcclResult_t rc;

    for (uint32_t i = 0; i < comm->rail_count; i++)
        memcpy(own[i], comm->rails[i].end.name, OFI_ADDRESS_BYTES);
    reply.count = ofi_rail_pair(comm->rail_count, own, hello->count, hello->names, ends,
                                reply.ends);
    for (uint32_t i = 0; i < reply.count; i++) {
        memcpy(reply.names[i], own[ends[i]], OFI_ADDRESS_BYTES);
        memcpy(peers[i], hello->names[reply.ends[i]], OFI_ADDRESS_BYTES);
    }
    rc = ofi_comm_pair(comm, reply.count, ends, peers);
    if (rc == xcclSuccess)
        rc = ofi_comm_equip(comm, hello->piece_bytes, hello->tells);
    ofi_comm_key(comm);
    if (rc == xcclSuccess)
        rc = choose_ways(listener, comm, &reply);
    reply.visit = listener->visit;
    reply.tells = ofi_comm_tells(comm);
    reply.piece_bytes = comm->writes ? hello->piece_bytes : 0;
    ofi_reply_encode(&reply, listener->reply);
    kit_proof_seal(&comm->links[0].side.proof, listener->reply, OFI_REPLY_BYTES);
    return rc;
}

/* Each port is bound to the address of its card. */
static uint32_t port_of(const struct ofi_listen *listener, int fd)
{
    struct xccl_addr own = {.bytes = sizeof(own.sa)};

    if (getsockname(fd, &own.sa.any, &own.bytes) != 0)
        return 0;
    for (uint32_t i = 0; i < OFI_RAILS_MAX; i++) {
        if (listener->door.fds[i] >= 0 && xccl_addr_equal(&listener->door.ports[i], &own))
            return i;
    }
    return 0;
}

static const struct kit_proof *proof_of(struct ofi_listen *listener,
                                        const struct kit_stranger *stranger)
{
    return kit_guest_proof(&listener->door.guests, &listener->door.step, stranger);
}

/* Makes a comm for the sender, which has proved itself. */
static xcclResult_t welcome(struct ofi_listen *listener, struct kit_stranger *stranger,
                            struct ofi_hello *hello)
{
    struct ofi_comm *comm = ofi_comm_create(listener->ctx, listener->device, 0, stranger->fd,
                                            &stranger->peer, listener->without);
    xcclResult_t rc;

    if (comm)
        listener->first = port_of(listener, stranger->fd);
    if (comm)
        comm->links[0].side.proof = *proof_of(listener, stranger);
    stranger->fd = -1;
    if (!comm)
        return xcclSystemError;
    rc = answer(listener, comm, hello);
    if (rc != xcclSuccess) {
        ofi_comm_destroy(comm);
        return rc;
    }
    ofi_control_tune(comm);
    listener->comm = comm;
    listener->patience = (struct ofi_patience){.waited_ns = 0};
    listener->posted = 0;
    listener->sent = 0;
    return xcclSuccess;
}

/* Takes one more control connection of the sender whose comm comes up. Another sender's first
 * connection stays at the door. */
static void join(struct ofi_listen *listener, struct kit_stranger *stranger,
                 const struct ofi_hello *hello)
{
    if (hello->count)
        return;
    if (!listener->comm || hello->piece_bytes != listener->visit ||
        !(listener->awaited >> hello->tells & 1)) {
        kit_doorstep_drop(&listener->door.step, stranger, "nobody awaits it");
        return;
    }
    listener->awaited &= ~(1u << hello->tells);
    ofi_control_add(listener->comm, stranger->fd, hello->tells);
    listener->comm->links[listener->comm->link_count - 1].side.proof = *proof_of(listener,
                                                                                 stranger);
    ofi_control_tune(listener->comm);
    stranger->fd = -1;
}

/* Looks for the sender's other control connections. */
static xcclResult_t look_sides(struct ofi_listen *listener)
{
    uint64_t now_ns = xccl_clock_ns();
    xcclResult_t rc = kit_listener_fill(&listener->door, now_ns);
    struct kit_stranger *stranger;
    struct ofi_hello hello;
    int at = 0;

    while (listener->awaited &&
           (stranger = kit_listener_next(&listener->door, &at, now_ns, &hello)))
        join(listener, stranger, &hello);
    return rc;
}

static xcclResult_t look(struct ofi_listen *listener)
{
    uint64_t now_ns = xccl_clock_ns();
    xcclResult_t rc = kit_listener_fill(&listener->door, now_ns);
    struct kit_stranger *stranger;
    struct ofi_hello hello;
    int at = 0;

    while (rc == xcclSuccess && !listener->comm &&
           (stranger = kit_listener_next(&listener->door, &at, now_ns, &hello))) {
        if (hello.count)
            rc = welcome(listener, stranger, &hello);
        else
            join(listener, stranger, &hello);
    }
    return rc;
}

/* The sender is up, and may have lost what it has given to a rail, or to that rail's control
 * connection: nobody else would notice. */
static void look_after(struct ofi_listen *listener)
{
    struct ofi_comm *comm = listener->comm;
    uint32_t missing = (((1u << comm->rail_count) - 1) & ~comm->proved) | listener->awaited;

    missing &= ~comm->failover.failed;
    if (!comm->is_agreed || !comm->proved || !missing || !ofi_patience_ends(&listener->patience))
        return;
    for (uint32_t i = 0; i < comm->rail_count; i++) {
        if (missing >> i & 1)
            ofi_failover_fail(comm, i, FI_ETIMEDOUT, "waiting for",
                              "no data arrived over this rail");
    }
}

/* Receives for message 0, the reply out, message 0 in by each rail. A sender that gives up leaves
 * the door open for another try. */
static xcclResult_t move(struct ofi_listen *listener, int *done_out)
{
    struct ofi_comm *comm = listener->comm;
    xcclResult_t rc = xcclSuccess;

    if (!listener->posted)
        rc = ofi_request_first(comm, &listener->posted);
    if (rc == xcclSuccess && listener->posted)
        rc = kit_say(comm->links[0].side.fd, listener->reply, sizeof(listener->reply),
                     &listener->sent);
    if (rc == xcclSuccess && listener->sent == sizeof(listener->reply) && listener->awaited)
        rc = look_sides(listener);
    if (rc == xcclSuccess) {
        ofi_request_poll(comm);
        look_after(listener);
        rc = comm->rc;
    }
    /* A control connection of a failed rail that comes later is dropped: it has missed frames. */
    listener->awaited &= ~comm->failover.failed;
    comm->is_joined = listener->sent == sizeof(listener->reply) && !listener->awaited;
    *done_out = rc == xcclSuccess && comm->is_joined && comm->moved == 1 &&
                (comm->is_agreed || !comm->failover.on);
    return rc;
}

static void say_why(const struct ofi_comm *comm, uint32_t rail)
{
    const struct ofi_failover *over = &comm->failover;
    const char *detail = over->detail[rail];

    if (!over->err[rail])
        (void)ofi_comm_error(comm);
    else
        (void)xccl_fail_quietly(xcclRemoteError, 0, NULL, "%s%s%s",
                                comm->ctx->library.strerror(over->err[rail]), *detail ? ", " : "",
                                detail);
    ofi_comm_leave_out(comm, comm->rails[rail].device);
}

/* The one in hand has failed. Cards of this end by which that was, or whose rails the sender has
 * given up, are left out of what its next try meets. */
static void give_up(struct ofi_listen *listener)
{
    struct ofi_comm *comm = listener->comm;
    const struct ofi_device *device = listener->device;
    uint32_t own = comm->failed_rail && comm->failover.on ? 1u << (comm->failed_rail - 1) : 0;
    uint32_t bad = comm->failover.failed & comm->failover.heard;

    /* What the sender does not go on with makes errors of the others as well, once it closes them.
     */
    if (!bad)
        bad = ofi_failover_bad(comm) | own;
    if (bad == (1u << comm->rail_count) - 1)
        bad = own;
    for (uint32_t i = 0; i < comm->rail_count; i++) {
        uint32_t without = listener->without | 1u << comm->rails[i].member;

        if (!(bad >> i & 1) || without == (1u << device->member_count) - 1)
            continue;
        listener->without = without;
        say_why(comm, i);
    }
    ofi_control_close(comm); /* first: errors that come of the closing say less */
    ofi_comm_destroy(comm);
    listener->comm = NULL;
}

xcclResult_t ofi_accept(xcclNetListenComm_t listen_, xcclNetRecvComm_t *comm_out)
{
    struct ofi_listen *listener = listen_;
    xcclResult_t rc = xcclSuccess;
    int done = 0;

    if (!listener->comm)
        rc = look(listener);
    if (rc != xcclSuccess)
        return rc;
    if (listener->comm && move(listener, &done) != xcclSuccess)
        give_up(listener);
    if (!done) {
        *comm_out = NULL;
        return xcclSuccess;
    }
    ofi_comm_up(listener->comm);
    *comm_out = listener->comm;
    listener->comm = NULL;
    return xcclSuccess;
}
