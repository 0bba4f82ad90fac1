/* SPDX-License-Identifier: BSD-3-Clause */
/* The instance under trace: each call is a line, but for progress, which is called all the time and
 * gets a line where its answer changes. Thread: as the contract says. */
#include "trace_int.h"

#include <stdio.h>

#include "base/error.h"
#include "base/param.h"

static const struct hook_shape trace_shape = {
    .name = "trace",
    .ctx_bytes = sizeof(struct trace_ctx),
    .listen_bytes = sizeof(struct trace_listen),
    .connect_bytes = sizeof(struct trace_connect),
    .comm_bytes = sizeof(struct trace_comm),
    .request_bytes = sizeof(struct trace_request),
};

xcclResult_t trace_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out)
{
    struct trace_span span = trace_begin("init");
    struct trace_sink sink = {.fd = -1};
    struct trace_ctx *ctx;
    struct hook_ctx *base;
    xcclResult_t rc = trace_sink_open(xccl_param_string(XCCL_P_NET_TRACE), init->rank, &sink);

    if (rc != xcclSuccess)
        return rc;
    rc = hook_init(&trace_shape, init, &base);
    if (rc != xcclSuccess) {
        if (hook_is_given(init)) /* else there is no plugin that was called */
            trace_end_now(&sink, &span, rc, "rank %d of %d", init->rank, init->nranks);
        trace_sink_close(&sink);
        return rc;
    }
    ctx = (struct trace_ctx *)base;
    ctx->sink.fd = sink.fd;
    ctx->sink.is_file = sink.is_file;
    ctx->sink.epoch_ns = sink.epoch_ns;
    trace_buffer_start(&ctx->buffer, &ctx->sink);
    *ctx_out = ctx;
    return trace_end_now(&ctx->sink, &span, rc, "%s rank %d of %d, communicator %016llx",
                         base->plugin->name, init->rank, init->nranks,
                         (unsigned long long)init->commId);
}

xcclResult_t trace_finalize(xcclNetContext_t ctx_)
{
    struct trace_span span = trace_begin("finalize");
    struct trace_ctx *ctx = ctx_;
    struct trace_sink sink = {
        .fd = ctx->sink.fd, .is_file = ctx->sink.is_file, .epoch_ns = ctx->sink.epoch_ns};
    uint64_t calls = ctx->progress_calls, lost;
    xcclResult_t rc;

    trace_buffer_flush(&ctx->buffer);
    lost = atomic_load_explicit(&ctx->sink.lost, memory_order_relaxed);
    rc = hook_finalize(ctx);
    trace_end_now(&sink, &span, rc, "progress calls %llu, lines lost %llu",
                  (unsigned long long)calls, (unsigned long long)lost);
    trace_sink_close(&sink);
    return rc;
}

xcclResult_t trace_devices(xcclNetContext_t ctx_, int *count)
{
    struct trace_span span = trace_begin("devices");
    struct trace_ctx *ctx = ctx_;
    xcclResult_t rc = hook_devices(ctx, count);

    return trace_end_now(&ctx->sink, &span, rc, "count %d", rc == xcclSuccess ? *count : -1);
}

xcclResult_t trace_properties(xcclNetContext_t ctx_, int dev, xcclNetProperties_v1 *props)
{
    struct trace_span span = trace_begin("properties");
    struct trace_ctx *ctx = ctx_;
    xcclResult_t rc = hook_properties(ctx, dev, props);
    int named = rc == xcclSuccess &&
                props->size >= offsetof(xcclNetProperties_v1, name) + sizeof(props->name) &&
                props->name;

    return trace_end_now(&ctx->sink, &span, rc, "device %d %.64s", dev, named ? props->name : "");
}

xcclResult_t trace_stats(xcclNetContext_t ctx_, int dev, xcclNetStats_v1 *stats)
{
    struct trace_span span = trace_begin("stats");
    struct trace_ctx *ctx = ctx_;
    xcclResult_t rc = hook_stats(ctx, dev, stats);

    return trace_end_now(&ctx->sink, &span, rc, "device %d", dev);
}

xcclResult_t trace_merge_devices(xcclNetContext_t ctx_, const int *devs, int count, int *dev)
{
    struct trace_span span = trace_begin("mergeDevices");
    struct trace_ctx *ctx = ctx_;
    xcclResult_t rc = hook_merge_devices(ctx, devs, count, dev);

    return trace_end_now(&ctx->sink, &span, rc, "count %d device %d", count,
                         rc == xcclSuccess ? *dev : -1);
}

xcclResult_t trace_progress(xcclNetContext_t ctx_, int *pending)
{
    struct trace_span span = trace_begin("progress");
    struct trace_ctx *ctx = ctx_;
    xcclResult_t rc = hook_progress(ctx, pending);

    ctx->progress_calls++;
    if (rc == xcclSuccess && *pending == ctx->pending) {
        trace_buffer_age(&ctx->buffer, span.start_ns);
        return rc;
    }
    if (rc == xcclSuccess)
        ctx->pending = *pending;
    trace_end(&ctx->buffer, &span, rc, "pending %d calls %llu", ctx->pending,
              (unsigned long long)(ctx->progress_calls - ctx->progress_told));
    ctx->progress_told = ctx->progress_calls;
    return rc;
}

const char *trace_last_error(xcclNetContext_t ctx_)
{
    struct trace_span span = trace_begin("lastError");
    struct trace_ctx *ctx = ctx_;
    const char *text = hook_last_error(ctx_);

    if (ctx)
        trace_end_now(&ctx->sink, &span, xcclSuccess, "'%.300s'", text);
    return text;
}
