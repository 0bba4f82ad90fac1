/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers are known by address. One that got its huge pages is looked at again all the same, for
 * the program may have given it back and taken another at the same address; but at most once a
 * second, unless calls use more of it than before, for each look troubles all processors a moment.
 * Thread: see the header. */
#include "comm/comm_huge.h"

#include "base/param.h"

#define LOOK_NS (1000 * XCCL_NS_PER_MS)

void xccl_comm_huge_init(struct xccl_comm_huge *huge)
{
    huge->on = xccl_param_int(XCCL_P_HUGE_PAGES) && xccl_huge_pages_wanted(XCCL_HUGE_PAGES_FOLDER);
}

void xccl_comm_huge_begin(struct xccl_comm_huge *huge)
{
    huge->call++;
    huge->due = 0;
}

static struct xccl_huge_buffer *place_of(struct xccl_comm_huge *huge, uintptr_t at)
{
    struct xccl_huge_buffer *oldest = huge->buffers;

    for (int i = 0; i < XCCL_HUGE_BUFFERS; i++) {
        if (huge->buffers[i].at == at)
            return &huge->buffers[i];
        if (huge->buffers[i].call < oldest->call)
            oldest = &huge->buffers[i];
    }
    *oldest = (struct xccl_huge_buffer){.at = at, .wait = XCCL_HUGE_CALLS};
    return oldest;
}

static int is_due(const struct xccl_huge_buffer *buffer)
{
    return buffer->calls >= buffer->wait &&
           (buffer->bytes > buffer->looked_bytes || xccl_clock_ns() - buffer->looked_ns >= LOOK_NS);
}

void xccl_comm_huge_note(struct xccl_comm_huge *huge, const void *at, size_t bytes)
{
    struct xccl_huge_buffer *buffer;

    if (!huge->on)
        return;
    buffer = place_of(huge, (uintptr_t)at);
    if (buffer->call != huge->call) {
        buffer->call = huge->call;
        buffer->calls++;
        buffer->bytes = 0; /* what was larger may be gone */
    }
    if (buffer->bytes < bytes)
        buffer->bytes = bytes;
    huge->due |= is_due(buffer);
}

static void gather(struct xccl_huge_buffer *buffer, uint64_t until_ns)
{
    buffer->missed |= !xccl_huge_pages_gather((void *)buffer->at, buffer->bytes, &buffer->done,
                                              until_ns);
    if (buffer->done < buffer->bytes)
        return; /* due again with its next call */
    if (!buffer->missed)
        buffer->wait = XCCL_HUGE_CALLS;
    else if (buffer->wait < XCCL_HUGE_CALLS_MAX)
        buffer->wait *= 2;
    if (buffer->looked_bytes < buffer->bytes)
        buffer->looked_bytes = buffer->bytes;
    buffer->looked_ns = xccl_clock_ns();
    buffer->done = 0;
    buffer->missed = 0;
    buffer->calls = 0;
}

void xccl_comm_huge_gather(struct xccl_comm_huge *huge, uint64_t until_ns)
{
    huge->due = 0;
    for (int i = 0; i < XCCL_HUGE_BUFFERS; i++) {
        struct xccl_huge_buffer *buffer = &huge->buffers[i];

        if (!buffer->at || buffer->call != huge->call || !is_due(buffer))
            continue;
        gather(buffer, until_ns);
        if (xccl_clock_ns() >= until_ns)
            return;
    }
}
