/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers are known by address. One that got its huge pages is looked at again all the same, for
 * the program may have given it back and taken another at the same address; but at most once a
 * second, less often where there are many, unless calls use more of it: a look troubles all
 * processors a moment.
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

/* Calls use their buffers in turn, so the next one is mostly the one behind the last. */
static struct xccl_huge_buffer *place_of(struct xccl_comm_huge *huge, uintptr_t at)
{
    struct xccl_huge_buffer *buffer, *oldest = huge->buffers;

    for (int i = 0; i < huge->count; i++) {
        if (huge->next >= huge->count)
            huge->next = 0;
        buffer = &huge->buffers[huge->next++];
        if (buffer->at == at)
            return buffer;
        if (buffer->call < oldest->call)
            oldest = buffer;
    }
    if (huge->count < XCCL_HUGE_BUFFERS)
        oldest = &huge->buffers[huge->count++];
    *oldest = (struct xccl_huge_buffer){.at = at, .wait = XCCL_HUGE_CALLS};
    return oldest;
}

/* Where it is too early the clock is only asked again after as many calls. The more buffers there
 * are, the more rarely each has its turn, since many may lie in one huge page. */
static int is_due(const struct xccl_comm_huge *huge, struct xccl_huge_buffer *buffer)
{
    uint64_t rest_ns = LOOK_NS * (1 + (uint64_t)huge->count / XCCL_HUGE_AGAIN);

    if (buffer->calls < buffer->wait || buffer->used < XCCL_HUGE_USED)
        return 0;
    if (buffer->bytes > buffer->looked_bytes || buffer->done > 0)
        return 1;
    if (buffer->calls < buffer->ask)
        return 0;
    buffer->ask = buffer->calls + buffer->wait;
    return xccl_clock_ns() - buffer->looked_ns >= rest_ns;
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
        buffer->due = 0;
    }
    if (buffer->bytes < bytes) {
        buffer->used += bytes - buffer->bytes;
        buffer->bytes = bytes;
    }
    buffer->due = buffer->due || is_due(huge, buffer);
    huge->due |= buffer->due;
}

static void gather(struct xccl_huge_buffer *buffer, uint64_t until_ns)
{
    size_t edge = (size_t)(XCCL_HUGE_USED / 2 / (buffer->used / buffer->bytes));

    if (edge < XCCL_HUGE_LEAST / 2)
        edge = XCCL_HUGE_LEAST / 2;
    buffer->missed |= !xccl_huge_pages_gather((void *)buffer->at, buffer->bytes, edge,
                                              &buffer->done, until_ns);
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
    buffer->due = 0;
    buffer->calls = 0;
    buffer->ask = 0;
}

__attribute__((noinline)) void xccl_comm_huge_gather(struct xccl_comm_huge *huge, uint64_t until_ns)
{
    huge->due = 0;
    for (int i = 0; i < huge->count; i++) {
        struct xccl_huge_buffer *buffer = &huge->buffers[i];

        if (buffer->call != huge->call || !buffer->due)
            continue;
        gather(buffer, until_ns);
        if (xccl_clock_ns() >= until_ns)
            return;
    }
}
