/* SPDX-License-Identifier: BSD-3-Clause */
/* Moves messages of streams; streams.h says what they are. A stream fills slots as long as there
 * are free ones and empties them as long as they hold messages, up to LOOK_BYTES in one look.
 * Thread: the holder of the crank. */
#include "exec/streams.h"

#include "base/copy.h"
#include "exec/host/slots.h"
#include "transport/arena.h"

/* The low half of a flag word over shared memory: the message's place in the order, by more bits
 * than are needed for the messages that links hold, and a last byte, in lines the size, which they
 * tell nowhere else, in slots whether the message ends here. */
#define FLAG_LOW(number, last) ((number) << 8 | (uint32_t)(last))
#define FLAG_LAST(low)         ((low)&0xffu)
static_assert(XCCL_LINES_MAX_BYTES <= 0xff, "a message in lines tells its size in a byte");

/* In one look, and what it ends with. A peer that waits fills each slot as it becomes free, so
 * that a receiving stream would go on to its end, and the other direction have no turn until then.
 */
#define LOOK_BYTES (64u << 10)

/* Of a message that the kernel reads where it lies, the most that one slot stands for: no slot has
 * to hold it, and each call of the kernel costs 3 to 7 us besides the copy (2 cores, AMD EPYC). No
 * more than that, so that a call that is ended waits for part of a millisecond. */
#define ADDRESS_BYTES (4u << 20)

static size_t bytes_left(const struct xccl_stream *stream)
{
    return stream->messages[stream->next].bytes - stream->offset;
}

/* What the flag words say of the next bytes of the message. */
static uint32_t flag_low(const struct xccl_stream *stream, size_t bytes)
{
    if (stream->net)
        return XCCL_STREAM_FLAG;
    return FLAG_LOW(stream->number,
                    stream->kind == XCCL_PROTO_LINES ? bytes : bytes == bytes_left(stream));
}

/* Turns to the message at work. */
static void turn(struct xccl_stream *stream)
{
    stream->kind = xccl_stream_kind(stream, bytes_left(stream));
    stream->link = stream->links[stream->kind];
    stream->reach = stream->kind == XCCL_PROTO_SLICES ? stream->slices_reach : NULL;
}

/* Tells the link where slices go, until it knows the one that it asks for. */
static void tell_ahead(void *owner, struct xccl_net_link *net)
{
    struct xccl_stream *stream = owner;

    while (!xccl_net_link_knows(net) && stream->ahead_next < stream->count) {
        const struct xccl_message *message = &stream->messages[stream->ahead_next];
        size_t left = message->bytes - stream->ahead_offset;
        size_t bytes = left < stream->link->slot_bytes ? left : stream->link->slot_bytes;

        if (!xccl_net_link_expect(net, message->at + stream->ahead_offset, (uint32_t)bytes))
            return;
        stream->ahead_offset += bytes;
        if (stream->ahead_offset < message->bytes)
            continue;
        stream->ahead_next++;
        stream->ahead_offset = 0;
    }
}

void xccl_stream_begin(struct xccl_stream *stream)
{
    struct xccl_net_op op = {.flag_low = XCCL_STREAM_FLAG, .plain = 1};

    stream->next = 0;
    stream->offset = 0;
    stream->ahead_next = 0;
    stream->ahead_offset = 0;
    if (stream->count)
        turn(stream);
    if (!stream->net)
        return;
    if (stream->reach && !stream->sends) {
        op.ahead = tell_ahead;
        op.ahead_owner = stream;
    }
    for (uint32_t i = 0; i < stream->count; i++) {
        size_t slot = stream->link->slot_bytes, bytes = stream->messages[i].bytes;

        op.messages += bytes ? (uint32_t)((bytes + slot - 1) / slot) : 1;
    }
    xccl_net_link_begin(stream->net, &op);
}

int xccl_stream_done(const struct xccl_stream *stream)
{
    if (stream->next < stream->count || (stream->net && !xccl_net_link_idle(stream->net)))
        return 0;
    return !stream->sends || !stream->slices_reach ||
           is_read(stream->links[XCCL_PROTO_SLICES], stream->slices_reach);
}

static size_t slice_now(const struct xccl_stream *stream)
{
    size_t left = bytes_left(stream);

    return left < stream->link->slot_bytes ? left : stream->link->slot_bytes;
}

static size_t most_by_address(const struct xccl_stream *stream)
{
    size_t left = bytes_left(stream), slot = stream->link->slot_bytes;
    size_t most = slot < ADDRESS_BYTES ? ADDRESS_BYTES : slot;

    return left < most ? left : most;
}

/* Past what was moved, and to the next message. */
static void go_on(struct xccl_stream *stream, size_t bytes)
{
    stream->offset += bytes;
    stream->moved_bytes += bytes;
    if (bytes_left(stream))
        return;
    stream->offset = 0;
    stream->number++;
    if (++stream->next < stream->count)
        turn(stream);
}

/* How much goes with the next slot, and where it lies in the arena. */
static size_t slice_to_send(const struct xccl_run *run, const struct xccl_stream *stream,
                            const char *from, uint64_t *place_out)
{
    const struct xccl_reach *reach = stream->reach;
    size_t bytes = slice_now(stream);

    *place_out = 0;
    if (!reach || bytes < reach->min_bytes)
        return bytes;
    *place_out = xccl_arena_place(from, bytes);
    return goes_by_address(run, reach, *place_out, bytes) ? most_by_address(stream) : bytes;
}

static int send_slice(struct xccl_run *run, struct xccl_stream *stream)
{
    struct xccl_link *link = stream->link;
    const char *from = stream->messages[stream->next].at + stream->offset;
    struct xccl_reach *reach = stream->reach;
    uint64_t place;
    size_t bytes;

    if (!send_ready(link))
        return 0;
    bytes = slice_to_send(run, stream, from, &place);
    run->flag_low = flag_low(stream, bytes);
    if (!reach || bytes < reach->min_bytes ||
        !send_in_place(run, link, reach, place, from, bytes)) {
        if (bytes)
            xccl_copy_to_slot(slot_to_fill(link, reach), from, bytes);
        else
            (void)slot_to_fill(link, reach);
        send_done(run, link, bytes);
    }
    go_on(stream, bytes);
    return 1;
}

/* 1: a slot has come, and stands for so much. As long as a message may be read where it lies there
 * are two answers, and its sender chooses. */
static int slice_that_came(struct xccl_run *run, const struct xccl_stream *stream,
                           size_t *bytes_out)
{
    struct xccl_link *link = stream->link;
    size_t bytes = slice_now(stream), most = most_by_address(stream);

    *bytes_out = most;
    if (stream->reach && stream->reach->pid && most > bytes) {
        if (!has_come(link))
            return 0;
        run->flag_low = flag_low(stream, most);
        if (is_this(run, link, most))
            return 1;
    }
    *bytes_out = bytes;
    run->flag_low = flag_low(stream, bytes);
    return recv_ready(run, link, XCCL_PROTO_SLICES, bytes);
}

static int recv_slice(struct xccl_run *run, struct xccl_stream *stream)
{
    struct xccl_link *link = stream->link;
    char *to = stream->messages[stream->next].at + stream->offset;
    const char *from;
    size_t bytes;

    if (!slice_that_came(run, stream, &bytes) || !begin_reading(link, stream->reach))
        return 0;
    from = message_at(run, link, stream->reach, bytes, to);
    if (bytes > link->slot_bytes && from == slot_payload(link)) {
        from = NULL; /* a slot does not hold it */
        wrong_size(run, link);
    }
    if (bytes && from && from != to) /* else it was received there */
        xccl_copy(to, from, bytes);
    end_reading(link, stream->reach);
    if (!from)
        return 0;
    recv_done(link);
    go_on(stream, bytes);
    return 1;
}

static int send_in_lines(struct xccl_run *run, struct xccl_stream *stream)
{
    const struct xccl_message *message = &stream->messages[stream->next];

    if (!send_ready(stream->link))
        return 0;
    run->flag_low = flag_low(stream, message->bytes);
    send_lines(run, stream->link, message->at, message->bytes);
    go_on(stream, message->bytes);
    return 1;
}

static int recv_in_lines(struct xccl_run *run, struct xccl_stream *stream)
{
    const struct xccl_message *message = &stream->messages[stream->next];

    run->flag_low = flag_low(stream, message->bytes);
    if (!recv_ready(run, stream->link, XCCL_PROTO_LINES, message->bytes))
        return 0;
    gather_lines(stream->link, message->at, message->bytes);
    recv_done(stream->link);
    go_on(stream, message->bytes);
    return 1;
}

/* Small slots have their headers where slices have them, so they are slices of one message. */
static int move(struct xccl_run *run, struct xccl_stream *stream)
{
    if (stream->kind == XCCL_PROTO_LINES)
        return stream->sends ? send_in_lines(run, stream) : recv_in_lines(run, stream);
    return stream->sends ? send_slice(run, stream) : recv_slice(run, stream);
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
    uint64_t began = stream->moved_bytes;
    int moved = 0;

    while (stream->next < stream->count && stream->moved_bytes - began < LOOK_BYTES &&
           move(run, stream))
        moved = 1;
    if (stream->net && !run->rc)
        moved |= progress_net(run, stream);
    return moved;
}

int xccl_stream_came(const struct xccl_stream *stream, enum xccl_proto kind,
                     const struct xccl_link *link, struct xccl_came *came_out)
{
    const char *at = slot_header(link);
    const struct xccl_slot_header *header = (const void *)at;
    const _Atomic uint64_t *flag = &header->flag;
    uint64_t seen;
    uint32_t last;

    if (stream->net) {
        came_out->bytes = stream->offset + header->bytes;
        came_out->is_all = header->bytes < link->slot_bytes;
        return header->bytes <= link->slot_bytes;
    }
    if (kind == XCCL_PROTO_LINES)
        flag = (const void *)(at + XCCL_LINE_DATA);
    /* Acquire: the size was stored before the flag. Pairs with send_done(). */
    seen = atomic_load_explicit(flag, memory_order_acquire);
    last = FLAG_LAST((uint32_t)seen);
    if (seen != ((uint64_t)(link->step + 1) << 32 | FLAG_LOW(stream->number, last)))
        return 0;
    came_out->bytes = stream->offset + (kind == XCCL_PROTO_LINES ? last : header->bytes);
    came_out->is_all = kind == XCCL_PROTO_LINES || last;
    return 1;
}
