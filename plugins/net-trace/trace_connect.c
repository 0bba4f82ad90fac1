/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections under trace. connect and accept are asked again and again: they get one line, when
 * they have a result, with how often and how long they were asked. Thread: one at a time an object.
 */
#include "trace_int.h"

static struct trace_sink *sink_of(void *ctx)
{
    return &((struct trace_ctx *)ctx)->sink;
}

xcclResult_t trace_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle,
                          xcclNetListenComm_t *comm)
{
    struct trace_span span = trace_begin("listen");
    xcclResult_t rc = hook_listen(ctx, dev, handle, comm);
    const struct hook_listen *listener = rc == xcclSuccess ? *comm : NULL;

    return trace_end_now(sink_of(ctx), &span, rc, "device %d listen %u", dev,
                         listener ? listener->number : 0);
}

xcclResult_t trace_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                           xcclNetConnect_t *state_out, xcclNetSendComm_t *comm_out)
{
    struct trace_span span = trace_begin("connect");
    struct trace_connect *state;
    uint64_t asked, since_ns;
    uint32_t number;
    xcclResult_t rc = hook_connect_begin(ctx, dev, state_out);

    if (rc != xcclSuccess)
        return trace_end_now(sink_of(ctx), &span, rc, "device %d", dev);
    state = *state_out;
    if (state->again++ == 0)
        state->since_ns = span.start_ns;
    asked = state->again;
    since_ns = state->since_ns;
    number = state->base.number;
    rc = hook_connect(ctx, dev, handle, state_out, comm_out);
    if (rc == xcclSuccess && !*comm_out)
        return rc;
    if (rc == xcclSuccess) {
        struct trace_comm *comm = *comm_out;

        trace_buffer_start(&comm->buffer, sink_of(ctx));
    }
    return trace_end_now(sink_of(ctx), &span, rc, "device %d send %u, asked %llu times in %llu ns",
                         dev, number, (unsigned long long)asked,
                         (unsigned long long)(xccl_clock_ns() - since_ns));
}

xcclResult_t trace_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state_)
{
    struct trace_span span = trace_begin("closeConnect");
    const struct trace_connect *state = state_;
    uint64_t asked = state->again;
    uint32_t number = state->base.number;
    xcclResult_t rc = hook_close_connect(ctx, state_);

    return trace_end_now(sink_of(ctx), &span, rc, "send %u, asked %llu times", number,
                         (unsigned long long)asked);
}

xcclResult_t trace_accept(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm_out)
{
    struct trace_span span = trace_begin("accept");
    struct trace_listen *listener = listen;
    struct trace_sink *sink = sink_of(listener->base.ctx);
    xcclResult_t rc = hook_accept(listen, comm_out);
    uint64_t asked, since_ns;

    if (listener->again++ == 0)
        listener->since_ns = span.start_ns;
    if (rc == xcclSuccess && !*comm_out)
        return rc;
    if (rc == xcclSuccess) {
        struct trace_comm *comm = *comm_out;

        trace_buffer_start(&comm->buffer, sink);
    }
    asked = listener->again;
    since_ns = listener->since_ns;
    listener->again = 0;
    return trace_end_now(sink, &span, rc, "listen %u recv %u, asked %llu times in %llu ns",
                         listener->base.number, listener->base.number, (unsigned long long)asked,
                         (unsigned long long)(xccl_clock_ns() - since_ns));
}

/* What happened on a comm is written before it is closed. */
static xcclResult_t comm_close(struct trace_comm *comm, const char *entry,
                               xcclResult_t (*close_comm)(void *comm))
{
    struct trace_span span = trace_begin(entry);
    struct trace_sink *sink = comm->buffer.sink;
    const char *side = comm->base.is_send ? "send" : "recv";
    uint32_t number = comm->base.number, in_flight = HOOK_REQUESTS - comm->base.free_count;
    uint64_t busy = comm->busy, waits = comm->wait_fd_calls;
    xcclResult_t rc;

    trace_buffer_flush(&comm->buffer);
    rc = close_comm(comm);
    return trace_end_now(sink, &span, rc, "%s %u in flight %u, busy %llu, waitFd calls %llu", side,
                         number, in_flight, (unsigned long long)busy, (unsigned long long)waits);
}

xcclResult_t trace_close_send(xcclNetSendComm_t comm)
{
    return comm_close(comm, "closeSend", hook_close_send);
}

xcclResult_t trace_close_recv(xcclNetRecvComm_t comm)
{
    return comm_close(comm, "closeRecv", hook_close_recv);
}

xcclResult_t trace_close_listen(xcclNetListenComm_t listen)
{
    struct trace_span span = trace_begin("closeListen");
    const struct trace_listen *listener = listen;
    struct trace_sink *sink = sink_of(listener->base.ctx);
    uint64_t asked = listener->again;
    uint32_t number = listener->base.number;
    xcclResult_t rc = hook_close_listen(listen);

    return trace_end_now(sink, &span, rc, "listen %u, asked %llu times since the last", number,
                         (unsigned long long)asked);
}
