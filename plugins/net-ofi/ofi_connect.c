/* SPDX-License-Identifier: BSD-3-Clause */
/* How a connection comes up; this is the sender's side. Nothing here waits: connect is asked again
 * and again.
 *
 *   receiver                                   sender
 *   listen: a TCP port, a random token
 *      handle {address, token} ------------>   (travels over XCCL's encrypted connections)
 *                             <------------>   control connection: both prove the token
 *                             <-------------   hello {endpoints, path}
 *   accept: the hello is right: endpoints,
 *      a receive for message 0 on each
 *      reply {pairs of them, path} -------->   the address vectors take theirs
 *                             <-------------   where rails may fail: a control connection for each
 *                             <=============   message 0, on each
 *                             <-------------   it is on its way: the comm is up; where rails may
 *   it has come: the comm is up                  fail: AGREED
 *
 * All bytes of control connections are sealed (kit_guest.h). Message 0 makes the provider connect,
 * and proves the way, before the first isend.
 *
 * Where rails may fail, one that does not come up is left out: who notices says so (FAILS), the
 * sender closes what it has, and comes once more with the endpoints of its other cards; the
 * receiver does without its card of that rail, too. Once the sender is up the rail drops out as any
 * other. Where the first address of the handle does not answer the sender comes by the next one.
 *
 * Thread: one at a time a connect. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/tcp.h"
#include "ofi_int.h"

/* The token and the keys of its proofs do not stay in memory. */
static void state_free(struct ofi_connect *state)
{
    explicit_bzero(state, sizeof(*state));
    xccl_free(state);
}

static void say_hello(struct ofi_connect *state)
{
    const struct ofi_comm *comm = state->comm;
    struct ofi_hello hello = {.piece_bytes = comm->device->piece_bytes,
                              .count = comm->rail_count,
                              .tells = ofi_comm_tells(comm)};

    for (uint32_t i = 0; i < comm->rail_count; i++)
        memcpy(hello.names[i], comm->rails[i].end.name, OFI_ADDRESS_BYTES);
    ofi_hello_encode(&hello, state->hello);
}

static xcclResult_t greet(struct ofi_connect *state, int fd, const struct xccl_addr *addr,
                          int *done_out)
{
    const struct kit_intro intro = {.dialect = &ofi_dialect,
                                    .token = state->handle.token,
                                    .hello = state->hello,
                                    .hello_bytes = OFI_HELLO_BYTES};

    return kit_greet(&state->greeting, fd, addr, &intro, done_out);
}

static xcclResult_t try_once(struct ofi_connect *state)
{
    const struct xccl_addr *addr = &state->handle.addrs[state->way];
    int fd = -1;
    xcclResult_t rc;

    state->comm = NULL;
    state->introduced = state->probed = state->proved = 0;
    state->side = 0;
    state->greeting = (struct kit_greeting){.said = 0};
    state->patience = (struct ofi_patience){.waited_ns = 0};
    rc = xccl_tcp_connect_start(addr, &fd);
    if (rc != xcclSuccess)
        return rc;
    state->comm = ofi_comm_create(state->ctx, state->device, 1, fd, addr, state->without);
    state->is_final = !state->comm;
    if (state->is_final)
        return xcclSystemError;
    say_hello(state);
    return xcclSuccess;
}

static xcclResult_t begin(struct ofi_ctx *ctx, int dev, const xcclNetHandle_t *bytes,
                          struct ofi_connect **state_out)
{
    struct ofi_device *device;
    struct ofi_connect *state;
    struct kit_handle handle;
    xcclResult_t rc = ofi_device_get(ctx, dev) ? kit_handle_decode(&ofi_dialect, bytes, &handle)
                                               : xcclInvalidArgument;

    if (rc != xcclSuccess)
        return rc;
    device = ofi_device_open(ctx, dev);
    if (!device)
        return xcclSystemError;
    ofi_comm_sweep(ctx, 0);
    for (uint32_t i = 0; i < handle.addr_count; i++) {
        const struct ofi_device *card = i < device->member_count ? device->members[i] : device;

        xccl_addr_take_zone(&handle.addrs[i], &card->control);
    }
    state = xccl_calloc(1, sizeof(*state));
    if (!state)
        return xcclSystemError;
    state->ctx = ctx;
    state->device = device;
    state->handle = handle;
    *state_out = state;
    return xcclSuccess;
}

/* Starts a control connection for each rail that is to have its own. */
static xcclResult_t open_sides(struct ofi_connect *state, const struct ofi_reply *reply)
{
    struct ofi_comm *comm = state->comm;
    xcclResult_t rc = xcclSuccess;

    state->visit = reply->visit;
    for (uint32_t i = 0; i < comm->rail_count && rc == xcclSuccess; i++) {
        struct xccl_addr *way = &state->ways[comm->link_count];
        int fd = -1;

        if (reply->ways[i] == OFI_WAY_FIRST)
            comm->links[0].rail = i;
        if (reply->ways[i] != OFI_WAY_OWN)
            continue;
        rc = xccl_addr_decode(reply->addrs[i], way);
        if (rc != xcclSuccess)
            return rc;
        xccl_addr_take_zone(way, &comm->rails[i].device->control);
        rc = xccl_tcp_connect_start(way, &fd);
        if (rc == xcclSuccess) {
            ofi_control_add(comm, fd, i);
            comm->links[comm->link_count - 1].unproved = 1;
        } else {
            comm->failed_rail = i + 1;
        }
    }
    return rc;
}

static void swap_sides(struct ofi_connect *state, uint32_t a, uint32_t b)
{
    struct ofi_link link = state->comm->links[a];
    struct xccl_addr way = state->ways[a];

    state->comm->links[a] = state->comm->links[b];
    state->comm->links[b] = link;
    state->ways[a] = state->ways[b];
    state->ways[b] = way;
}

/* The first one that is connected, or has failed, is the next. */
static xcclResult_t choose_side(struct ofi_connect *state)
{
    struct ofi_comm *comm = state->comm;

    for (uint32_t i = state->side; i < comm->link_count; i++) {
        xcclResult_t rc = xccl_tcp_connect_test(comm->links[i].side.fd, &state->ways[i],
                                                &state->greeting.is_reached);

        if (rc == xcclSuccess && !state->greeting.is_reached)
            continue;
        ofi_control_tune(comm);
        swap_sides(state, state->side, i);
        return rc;
    }
    return xcclSuccess;
}

/* Takes the keys of a control connection that has proved itself. Error: frames went over the others
 * before, and it has missed them. */
static xcclResult_t side_up(const struct ofi_comm *comm, struct ofi_link *link,
                            const struct kit_proof *proof)
{
    link->side.proof = *proof;
    link->unproved = 0;
    return link->missed
               ? xccl_fail_quietly(xcclRemoteError, 0, NULL,
                                   "a rail to %s failed while it was connected", comm->peer_text)
               : xcclSuccess;
}

/* Proves each further control connection, one after the other. */
static xcclResult_t introduce_sides(struct ofi_connect *state)
{
    struct ofi_comm *comm = state->comm;
    xcclResult_t rc = xcclSuccess;

    while (state->side < comm->link_count && rc == xcclSuccess) {
        struct ofi_link *link = &comm->links[state->side];
        struct ofi_hello hello = {.piece_bytes = state->visit};
        int done = 0;

        if (!state->greeting.is_reached)
            rc = choose_side(state);
        if (rc != xcclSuccess || !state->greeting.is_reached)
            return rc;
        hello.tells = link->rail;
        if (state->greeting.stage < KIT_HELLO) /* once it is sealed it stays */
            ofi_hello_encode(&hello, state->hello);
        rc = greet(state, link->side.fd, &state->ways[state->side], &done);
        if (rc != xcclSuccess || !done)
            return rc;
        rc = side_up(comm, link, &state->greeting.proof);
        if (rc != xcclSuccess)
            return rc;
        state->side++;
        state->greeting = (struct kit_greeting){.said = 0};
    }
    return rc;
}

/* Opens the reply, and makes the comm as it says. */
static xcclResult_t agree(struct ofi_connect *state)
{
    struct ofi_comm *comm = state->comm;
    struct ofi_reply reply;
    xcclResult_t rc;

    state->is_final = 1;
    if (!kit_proof_open(&comm->links[0].side.proof, state->reply, OFI_REPLY_BYTES) ||
        !ofi_reply_decode(state->reply, comm->rail_count, &reply))
        return xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                                 "the answer of %s is not from the ofi plugin", comm->peer_text);
    state->introduced = 1;
    state->side = 1;
    state->greeting = (struct kit_greeting){.said = 0};
    rc = ofi_comm_pair(comm, reply.count, reply.ends, reply.names);
    if (rc == xcclSuccess)
        rc = ofi_comm_equip(comm, reply.piece_bytes, reply.tells);
    ofi_comm_key(comm);
    if (rc == xcclSuccess && !comm->writes && comm->bytes_max < ofi_device_bytes(comm->device))
        return xccl_fail_quietly(xcclRemoteError, 0, "set the same XCCL_OFI_PATH on all ranks",
                                 "%s does not accept writes in the form that %s of this host sends",
                                 comm->peer_text, comm->device->name);
    state->is_final = 0;
    return rc == xcclSuccess ? open_sides(state, &reply) : rc;
}

/* Sends the hello, receives the reply. */
static xcclResult_t introduce(struct ofi_connect *state)
{
    struct ofi_comm *comm = state->comm;
    struct kit_greeting *greeting = &state->greeting;
    int was_reached = greeting->is_reached, was_done = greeting->stage == KIT_DONE, done = 0;
    xcclResult_t rc = greet(state, comm->links[0].side.fd, &state->handle.addrs[state->way], &done);

    if (!was_reached && greeting->is_reached)
        ofi_control_tune(comm); /* from now on its silence counts */
    if (rc != xcclSuccess || !done)
        return rc;
    if (!was_done)
        comm->links[0].side.proof = greeting->proof;
    rc = kit_hear(comm->links[0].side.fd, state->reply, sizeof(state->reply), &greeting->heard);
    if (rc != xcclSuccess || greeting->heard < sizeof(state->reply))
        return rc;
    return agree(state);
}

/* Reads frames that the receiver may have sent meanwhile. */
static xcclResult_t look_once_more(struct ofi_comm *comm)
{
    if (!comm->failover.on)
        return xcclSuccess;
    ofi_control_look(comm);
    if (comm->rc != xcclSuccess)
        return ofi_comm_error(comm);
    return comm->peer_left ? xccl_fail_quietly(xcclRemoteError, 0, "see its first error",
                                               "%s has closed the connection", comm->peer_text)
                           : xcclSuccess;
}

static xcclResult_t move(struct ofi_connect *state, int *done_out)
{
    struct ofi_comm *comm = state->comm;
    xcclResult_t rc = xcclSuccess;

    if (!state->introduced)
        rc = introduce(state);
    if (rc == xcclSuccess && state->introduced)
        rc = introduce_sides(state);
    if (rc == xcclSuccess && state->introduced && !state->probed)
        rc = ofi_request_first(comm, &state->probed);
    if (rc != xcclSuccess)
        return rc;
    /* Before errors that come of the peer's closing: which rail it does without. */
    if (state->introduced && comm->failover.on)
        ofi_control_look(comm);
    if (state->introduced)
        ofi_request_poll(comm);
    if (comm->rc != xcclSuccess)
        return ofi_comm_error(comm);
    if (comm->moved != 1 || state->side < comm->link_count)
        return xcclSuccess;
    rc = look_once_more(comm);
    *done_out = rc == xcclSuccess;
    return rc;
}

/* --- once more --- */

/* Rails whose message 0 or control connection has not come through. */
static uint32_t missing_rails(const struct ofi_connect *state)
{
    const struct ofi_comm *comm = state->comm;
    uint32_t missing = ((1u << comm->rail_count) - 1) & ~comm->proved;

    for (uint32_t i = state->side; i < comm->link_count; i++)
        missing |= 1u << comm->links[i].rail;
    return missing;
}

/* Success while it is not late, or nothing can be done about it. */
static xcclResult_t check_time(struct ofi_connect *state)
{
    const struct ofi_comm *comm = state->comm;

    if (!state->proved && comm->proved) {
        state->proved = 1;
        state->patience.waited_ns = 0;
    }
    if (!ofi_patience_ends(&state->patience))
        return xcclSuccess;
    if (!state->introduced && !state->greeting.is_reached &&
        state->way + 1 < state->handle.addr_count)
        return xccl_fail_quietly(xcclTimeout, 0, NULL, "%s does not answer", comm->peer_text);
    if (!state->introduced || !comm->failover.on || !state->proved)
        return xcclSuccess;
    return xccl_fail_quietly(xcclTimeout, 0, NULL, "no data arrived within %u ms",
                             (unsigned)(OFI_LATE_NS / XCCL_NS_PER_MS));
}

/* Those that a try has failed by. */
static uint32_t bad_rails(const struct ofi_connect *state, xcclResult_t rc)
{
    const struct ofi_comm *comm = state->comm;

    if (comm->failed_rail)
        return 1u << (comm->failed_rail - 1);
    if (comm->rc != xcclSuccess)
        return 0;
    if (rc == xcclTimeout)
        return missing_rails(state);
    return state->side < comm->link_count ? 1u << comm->links[state->side].rail : 0;
}

/* With the thread's error text for the reason. 0: there is no other one. */
static int try_other_address(struct ofi_connect *state)
{
    char from[XCCL_ADDR_TEXT_BYTES], to[XCCL_ADDR_TEXT_BYTES], line[OFI_TEXT_BYTES];

    if (state->way + 1 >= state->handle.addr_count)
        return 0;
    xccl_addr_format(&state->handle.addrs[state->way++], from);
    xccl_addr_format(&state->handle.addrs[state->way], to);
    snprintf(line, sizeof(line), "%s of a peer is not reached, now by %s: %.300s", from, to,
             xccl_error_text());
    if (state->ctx->log)
        state->ctx->log(xcclNetLogWarn, line);
    return 1;
}

/* 1: another try may do better. What the sender does without the receiver shall do without as well,
 * for where all cards reach each other the dead one may be either's. */
static int may_try_again(struct ofi_connect *state, xcclResult_t rc)
{
    struct ofi_comm *comm = state->comm;
    uint32_t bad;

    if (state->is_final)
        return 0;
    if (!state->introduced && !state->greeting.is_reached)
        return try_other_address(state);
    if (!ofi_failover_can(state->device))
        return 0;
    bad = state->introduced ? bad_rails(state, rc) : 0;
    if (!bad) /* it may be without a card of its own the next time */
        return ++state->refusals < OFI_RAILS_MAX;
    if (!comm->failover.on || !(((1u << comm->rail_count) - 1) & ~bad))
        return 0;
    for (uint32_t i = 0; i < comm->rail_count; i++) {
        if (!(bad >> i & 1))
            continue;
        state->without |= 1u << comm->rails[i].member;
        ofi_control_fails(comm, i);
        ofi_comm_leave_out(comm, comm->rails[i].device);
    }
    return 1;
}

static xcclResult_t advance(struct ofi_connect *state, int *done_out)
{
    xcclResult_t rc = state->comm ? move(state, done_out) : try_once(state);

    if (rc == xcclSuccess && !*done_out)
        rc = check_time(state);
    while (rc != xcclSuccess && may_try_again(state, rc)) {
        if (state->comm)
            ofi_control_close(state->comm); /* first, as the receiver does in ofi_listen.c */
        ofi_comm_destroy(state->comm);
        rc = try_once(state);
    }
    return rc;
}

xcclResult_t ofi_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                         xcclNetConnect_t *state_, xcclNetSendComm_t *comm_out)
{
    struct ofi_connect *state = *state_;
    xcclResult_t rc = xcclSuccess;
    int done = 0;

    if (!state) {
        rc = begin(ctx, dev, handle, &state);
        if (rc != xcclSuccess)
            return rc;
        *state_ = state;
    }
    rc = advance(state, &done);
    if (rc == xcclSuccess && !done) {
        *comm_out = NULL;
        return xcclSuccess;
    }
    *state_ = NULL;
    if (rc != xcclSuccess) {
        ofi_close_connect(ctx, state);
        return rc;
    }
    ofi_control_agree(state->comm);
    ofi_comm_up(state->comm);
    *comm_out = state->comm;
    state_free(state);
    return xcclSuccess;
}

xcclResult_t ofi_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state_)
{
    struct ofi_connect *state = state_;

    (void)ctx;
    ofi_comm_destroy(state->comm);
    state_free(state);
    return xcclSuccess;
}
