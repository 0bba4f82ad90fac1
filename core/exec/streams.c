/* SPDX-License-Identifier: BSD-3-Clause */
/* Moves slices of streams; streams.h says what they are. A stream fills slots as long as there are
 * free ones and empties them as long as they hold messages, so that one look at a stream moves all
 * that can move. Thread: the holder of the crank. */
#include "exec/streams.h"

#include "exec/host/slots.h"
#include "transport/arena.h"

static size_t slice_now(const struct xccl_stream *stream)
{
    size_t left = stream->messages[stream->next].bytes - stream->offset;

    return left < stream->link->slot_bytes ? left : stream->link->slot_bytes;
}

/* Past messages that are over, and those without bytes. */
static void go_on(struct xccl_stream *stream, size_t bytes)
{
    stream->offset += bytes;
    while (stream->next < stream->count && stream->offset == stream->messages[stream->next].bytes) {
        stream->next++;
        stream->offset = 0;
    }
}

void xccl_stream_begin(const struct xccl_stream *stream)
{
    struct xccl_net_op op = {.flag_low = XCCL_STREAM_FLAG, .plain = 1};
    size_t slot = stream->link->slot_bytes;

    for (uint32_t i = 0; i < stream->count; i++)
        op.messages += (uint32_t)((stream->messages[i].bytes + slot - 1) / slot);
    if (stream->net)
        xccl_net_link_begin(stream->net, &op);
}

int xccl_stream_done(const struct xccl_stream *stream)
{
    if (stream->next < stream->count || (stream->net && !xccl_net_link_idle(stream->net)))
        return 0;
    return !stream->sends || !stream->reach || is_read(stream->link, stream->reach);
}

static int send_slice(struct xccl_run *run, struct xccl_stream *stream)
{
    struct xccl_link *link = stream->link;
    size_t bytes = slice_now(stream);

    const char *from = stream->messages[stream->next].at + stream->offset;
    struct xccl_reach *reach = stream->reach;

    if (!send_ready(link))
        return 0;
    if (!reach || bytes < reach->min_bytes ||
        !send_in_place(run, link, reach, xccl_arena_place(from, bytes), from, bytes)) {
        xccl_fill(slot_to_fill(link, reach), from, bytes);
        send_done(run, link, bytes);
    }
    go_on(stream, bytes);
    return 1;
}

static int recv_slice(struct xccl_run *run, struct xccl_stream *stream)
{
    struct xccl_link *link = stream->link;
    size_t bytes = slice_now(stream);

    if (!recv_ready(run, link, XCCL_PROTO_SLICES, bytes) || !begin_reading(link, stream->reach))
        return 0;
    memcpy(stream->messages[stream->next].at + stream->offset,
           message_at(link, stream->reach, bytes), bytes);
    end_reading(link, stream->reach);
    recv_done(link);
    go_on(stream, bytes);
    return 1;
}

static int progress_net(struct xccl_run *run, struct xccl_stream *stream)
{
    int moved = 0;

    run->rc = xccl_net_link_progress(stream->net, &moved);
    if (run->rc) {
        run->bad_peer = stream->peer;
        run->bad_net = stream->net;
    }
    return moved;
}

int xccl_stream_progress(struct xccl_run *run, struct xccl_stream *stream)
{
    int moved = 0;

    go_on(stream, 0);
    while (stream->next < stream->count &&
           (stream->sends ? send_slice(run, stream) : recv_slice(run, stream)))
        moved = 1;
    if (stream->net && !run->rc)
        moved |= progress_net(run, stream);
    return moved;
}
