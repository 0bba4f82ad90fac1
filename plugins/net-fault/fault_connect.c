/* SPDX-License-Identifier: BSD-3-Clause */
/* The instance, and how a connection comes up under faults: connect and accept answer "ask again"
 * a few times before the wrapped plugin hears of it, and a connect may be refused. Thread: as the
 * contract says. */
#include "fault_int.h"

#include <stdio.h>

#include "base/param.h"

#define AGAIN_MOST 8

static const struct hook_shape fault_shape = {
    .name = "fault",
    .ctx_bytes = sizeof(struct fault_ctx),
    .listen_bytes = sizeof(struct fault_listen),
    .connect_bytes = sizeof(struct fault_connect),
    .comm_bytes = sizeof(struct fault_comm),
    .request_bytes = sizeof(struct fault_request),
};

xcclResult_t fault_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out)
{
    char text[384], line[512];
    struct fault_setting setting;
    struct fault_ctx *ctx;
    struct hook_ctx *base;
    xcclResult_t rc = fault_setting_parse(xccl_param_string(XCCL_P_NET_FAULT), &setting);

    if (rc != xcclSuccess)
        return rc;
    rc = hook_init(&fault_shape, init, &base);
    if (rc != xcclSuccess)
        return rc;
    /* Equal on all ranks, so that one setting repeats the whole run, and new in each run. */
    if (!setting.seed_given)
        setting.seed = init->commId % 1000000007;
    ctx = (struct fault_ctx *)base;
    ctx->setting = setting;
    fault_setting_format(&setting, text, sizeof(text));
    snprintf(line, sizeof(line), "fault around %s: repeat with XCCL_NET_FAULT=%s",
             base->plugin->name, text);
    if (init->log)
        init->log(xcclNetLogInfo, line);
    *ctx_out = ctx;
    return xcclSuccess;
}

static void comm_start(const struct fault_ctx *ctx, struct fault_comm *comm)
{
    xcclNetProperties_v1 props = {.size = sizeof(props)};

    comm->stream = fault_stream_open(ctx, comm->base.is_send ? FAULT_SEND_COMM : FAULT_RECV_COMM,
                                     comm->base.number);
    comm->reg_seed = fault_bits(comm->stream.seed, 0);
    /* Without properties nothing is held back, so nothing needs the size. */
    if (ctx->base.plugin->properties(ctx->base.inner, comm->base.dev, &props) == xcclSuccess)
        comm->max_bytes = props.maxBytes;
}

static void connect_draw(const struct fault_ctx *ctx, struct fault_connect *state)
{
    struct fault_stream stream = fault_stream_open(ctx, FAULT_CONNECT, state->base.number);
    const struct fault_rates *rates = &ctx->setting.rates;
    uint64_t seed = fault_draw(&stream);

    state->drawn = 1;
    state->draw = stream.draws;
    state->again = fault_amount(seed, 0, rates->slow_connect, AGAIN_MOST);
    state->fails = fault_chance(fault_bits(seed, 1), rates->error);
}

xcclResult_t fault_connect(xcclNetContext_t ctx_, int dev, const xcclNetHandle_t *handle,
                           xcclNetConnect_t *state_out, xcclNetSendComm_t *comm_out)
{
    const struct fault_ctx *ctx = ctx_;
    struct fault_connect *state;
    xcclResult_t rc = hook_connect_begin(ctx_, dev, state_out);

    if (rc != xcclSuccess)
        return rc;
    state = *state_out;
    if (!state->drawn)
        connect_draw(ctx, state);
    if (state->again > 0) {
        state->again--;
        *comm_out = NULL;
        return xcclSuccess;
    }
    if (state->fails) {
        rc = xccl_fail_quietly(xcclSystemError, 0, NULL,
                               "fault injected: connect %u is refused (seed %llu, draw %llu)",
                               state->base.number, (unsigned long long)ctx->setting.seed,
                               (unsigned long long)state->draw);
        *state_out = NULL;
        /* Nothing was asked of the wrapped plugin, so this cannot fail and spoil the text. */
        hook_close_connect(ctx_, state);
        return rc;
    }
    rc = hook_connect(ctx_, dev, handle, state_out, comm_out);
    if (rc == xcclSuccess && *comm_out)
        comm_start(ctx, *comm_out);
    return rc;
}

xcclResult_t fault_accept(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm_out)
{
    struct fault_listen *listener = listen;
    const struct fault_ctx *ctx = (const struct fault_ctx *)listener->base.ctx;
    xcclResult_t rc;

    if (!listener->drawn) {
        struct fault_stream stream = fault_stream_open(ctx, FAULT_LISTEN, listener->base.number);

        listener->drawn = 1;
        listener->again = fault_amount(fault_draw(&stream), 0, ctx->setting.rates.slow_connect,
                                       AGAIN_MOST);
    }
    if (listener->again > 0) {
        listener->again--;
        *comm_out = NULL;
        return xcclSuccess;
    }
    rc = hook_accept(listen, comm_out);
    if (rc == xcclSuccess && *comm_out)
        comm_start(ctx, *comm_out);
    return rc;
}
