/* SPDX-License-Identifier: BSD-3-Clause */
/* How a connection comes up; this is the sender's side. Nothing here waits: connect is asked again
 * and again.
 *
 *   receiver                                     sender
 *   listen: a port, a random token
 *      handle {address, token, transports} --->  (travels over XCCL's encrypted connections)
 *                                                a link (ucx_link.c)
 *                                     <------->  connect: both prove the token (kit_guest.h)
 *                                     <--------  hello {mode, whose link, address}
 *   accept: a link, an endpoint
 *      hello {the same of ours}      --------->  an endpoint, a flush: both workers turn until it
 *                                                is through, so the way has carried something
 *                                     <--------  ready
 *   the comm is up                               the comm is up
 *
 * All bytes of the side connection are sealed. The sender chooses: shared memory where both ends
 * are on one host and have it, else networks. Thread: one at a time a connect. */
#include <string.h>

#include "base/alloc.h"
#include "base/tcp.h"
#include "base/wire.h"
#include "ucx_int.h"

static xcclResult_t choose_mode(const struct ucx_connect *state, enum ucx_mode *mode_out)
{
    uint32_t both = state->handle.modes & ucx_device_modes(state->ctx, state->device);
    char text[XCCL_ADDR_TEXT_BYTES];

    if (state->handle.host != state->ctx->host)
        both &= ~(1u << UCX_SHM);
    *mode_out = both & 1u << UCX_SHM ? UCX_SHM : UCX_NET;
    if (both)
        return xcclSuccess;
    xccl_addr_format(&state->handle.where.addrs[0], text);
    return xccl_fail_quietly(
        xcclRemoteError, 0, "compare UCX_TLS, XCCL_UCX_TLS and `ucx_info -d` on both",
        "UCX on %s has no transport in common with %s", state->device->name, text);
}

static xcclResult_t connect_begin(struct ucx_ctx *ctx, int dev, const xcclNetHandle_t *bytes,
                                  struct ucx_connect **state_out)
{
    struct ucx_device *device = ucx_device_get(ctx, dev);
    struct ucx_connect *state;
    enum ucx_mode mode;
    xcclResult_t rc;

    if (!device)
        return xcclInvalidArgument;
    state = xccl_calloc(1, sizeof(*state));
    if (!state)
        return xcclSystemError;
    state->ctx = ctx;
    state->device = device;
    state->fd = -1;
    rc = ucx_handle_decode(bytes, &state->handle);
    if (rc == xcclSuccess)
        rc = choose_mode(state, &mode);
    if (rc == xcclSuccess) {
        xccl_addr_take_zone(&state->handle.where.addrs[0], &device->netif.addr);
        rc = xccl_tcp_connect_start(&state->handle.where.addrs[0], &state->fd);
    }
    if (rc == xcclSuccess)
        rc = ucx_comm_create(ctx, device, mode, 1, &state->comm);
    if (rc == xcclSuccess)
        rc = ucx_link_take(state->comm, state->handle.instance, NULL);
    if (rc == xcclSuccess) {
        ucx_link_claim_wait(state->comm->link);
        rc = ucx_link_hello(state->comm, state->out, &state->out_bytes);
        ucx_link_give(state->comm->link);
    }
    if (rc == xcclSuccess) {
        *state_out = state;
        return xcclSuccess;
    }
    ucx_close_connect(ctx, state);
    return rc;
}

static xcclResult_t do_greet(struct ucx_connect *state, int *done_out)
{
    const struct kit_intro intro = {.dialect = &ucx_dialect,
                                    .token = state->handle.where.token,
                                    .hello = state->out,
                                    .hello_bytes = state->out_bytes};
    xcclResult_t rc = kit_greet(&state->greeting, state->fd, &state->handle.where.addrs[0], &intro,
                                done_out);

    if (*done_out)
        ucx_comm_prove(state->comm, &state->greeting.proof);
    return rc;
}

static xcclResult_t wrong_answer(const struct ucx_connect *state, const char *what)
{
    char text[XCCL_ADDR_TEXT_BYTES];

    xccl_addr_format(&state->handle.where.addrs[0], text);
    return xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                             "the answer of %s is not from the ucx plugin: %s", text, what);
}

static xcclResult_t refused(const struct ucx_connect *state)
{
    char text[XCCL_ADDR_TEXT_BYTES];

    xccl_addr_format(&state->handle.where.addrs[0], text);
    return xccl_fail_quietly(
        xcclRemoteError, 0,
        "both ends need a common transport: compare UCX_TLS, UCX_NET_DEVICES and `ucx_info -d` on "
        "both",
        "%s closed a connection over UCX on %s: it has ended, or cannot reach this host over %s",
        text, state->device->name, state->comm->mode == UCX_SHM ? "shared memory" : "networks");
}

/* Receives the answer up to `want` bytes. *done_out 1: they are here. */
static xcclResult_t answer_hear(struct ucx_connect *state, size_t want, int *done_out)
{
    xcclResult_t rc = kit_hear(state->fd, state->in, want, &state->greeting.heard);

    *done_out = rc == xcclSuccess && state->greeting.heard >= want;
    return rc == xcclRemoteError ? refused(state) : rc;
}

static xcclResult_t do_head(struct ucx_connect *state, int *done_out)
{
    xcclResult_t rc = answer_hear(state, KIT_SEALED(UCX_HEAD_BYTES), done_out);

    if (rc != xcclSuccess || !*done_out)
        return rc;
    if (!kit_proof_open(&state->comm->side.proof, state->in, UCX_HEAD_BYTES) ||
        !kit_hello_read(&ucx_dialect, state->in, &state->answer) ||
        state->answer.mode != state->comm->mode)
        return wrong_answer(state, "a wrong hello");
    return xcclSuccess;
}

static xcclResult_t do_answer(struct ucx_connect *state, int *done_out)
{
    size_t bytes = state->answer.address_bytes;
    uint8_t *address = state->in + KIT_SEALED(UCX_HEAD_BYTES);
    xcclResult_t rc = answer_hear(state, KIT_SEALED(UCX_HEAD_BYTES) + KIT_SEALED(bytes), done_out);

    if (rc != xcclSuccess || !*done_out)
        return rc;
    *done_out = 0;
    if (!kit_proof_open(&state->comm->side.proof, address, bytes))
        return wrong_answer(state, "a damaged worker address");
    ucx_comm_side(state->comm, state->fd, &state->handle.where.addrs[0]);
    state->fd = -1;
    rc = ucx_link_join(state->comm, &state->answer, address);
    state->comm->sent = 1; /* a flush that covers no send */
    *done_out = rc == xcclSuccess;
    return rc;
}

static xcclResult_t do_flush(struct ucx_connect *state, int *done_out)
{
    struct ucx_comm *comm = state->comm;
    int through;

    through = ucx_comm_flush(comm);
    ucx_comm_look(comm, ucx_comm_poll(comm) > 0);
    if (comm->rc != xcclSuccess)
        return ucx_comm_error(comm);
    if (!through)
        return xcclSuccess;
    struct xccl_wire wire = xccl_wire_over(state->out, UCX_READY_BYTES);

    comm->sent = comm->flushed = 0;
    state->greeting.said = 0;
    xccl_wire_put_u32(&wire, UCX_HELLO_MAGIC);
    kit_proof_seal(&comm->side.proof, state->out, UCX_READY_BYTES);
    *done_out = 1;
    return xcclSuccess;
}

static xcclResult_t do_ready(struct ucx_connect *state, int *done_out)
{
    const size_t bytes = KIT_SEALED(UCX_READY_BYTES);
    xcclResult_t rc = kit_say(state->comm->side.fd, state->out, bytes, &state->greeting.said);

    *done_out = state->greeting.said == bytes;
    return rc;
}

typedef xcclResult_t (*phase_fn)(struct ucx_connect *state, int *done_out);

static const phase_fn phases[] = {[UCX_GREET] = do_greet,
                                  [UCX_HEAD] = do_head,
                                  [UCX_ANSWER] = do_answer,
                                  [UCX_FLUSH] = do_flush,
                                  [UCX_READY] = do_ready};

/* With the claim. *done_out 1: the comm is up. */
static xcclResult_t connect_move(struct ucx_connect *state, int *done_out)
{
    for (;;) {
        int done = 0;
        xcclResult_t rc = phases[state->phase](state, &done);

        if (rc != xcclSuccess || !done)
            return rc;
        if (state->phase == UCX_READY)
            break;
        state->phase++;
    }
    *done_out = 1;
    return xcclSuccess;
}

xcclResult_t ucx_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                         xcclNetConnect_t *state_, xcclNetSendComm_t *comm_out)
{
    struct ucx_connect *state = *state_;
    xcclResult_t rc = xcclSuccess;
    int done = 0;

    ucx_library_enter(((struct ucx_ctx *)ctx)->log);
    if (!state)
        ucx_closed_sweep(ctx, 0);
    if (!state)
        rc = connect_begin(ctx, dev, handle, &state);
    if (rc == xcclSuccess) {
        ucx_link_claim_wait(state->comm->link);
        rc = connect_move(state, &done);
        ucx_link_give(state->comm->link);
    }
    ucx_library_leave();
    if (rc == xcclSuccess && !done) {
        *state_ = state;
        *comm_out = NULL;
        return xcclSuccess;
    }
    *state_ = NULL;
    if (rc == xcclSuccess) {
        ucx_comm_up(state->comm);
        *comm_out = state->comm;
        state->comm = NULL;
    }
    if (state)
        ucx_close_connect(ctx, state);
    return rc;
}

xcclResult_t ucx_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state_)
{
    struct ucx_connect *state = state_;

    (void)ctx;
    xccl_tcp_close(&state->fd);
    if (state->comm)
        ucx_close_comm(state->comm);
    explicit_bzero(state, sizeof(*state)); /* token and keys */
    xccl_free(state);
    return xcclSuccess;
}
