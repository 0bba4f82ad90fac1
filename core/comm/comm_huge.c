/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers are known by address, those that fall on one place of the table by turns: who comes last
 * has it. One that got its huge pages is looked at again all the same, for the program may have
 * given it back and taken another at the same address; where nothing is to be done a look takes
 * some microseconds. Thread: see the header. */
#include "comm/comm_huge.h"

#include "base/os.h"
#include "base/param.h"

void xccl_comm_huge_init(struct xccl_comm_huge *huge)
{
    huge->on = xccl_param_int(XCCL_P_HUGE_PAGES) && xccl_os_wants_huge_pages();
}

/* By the page: buffers of one program often lie whole MiBs apart. */
static struct xccl_huge_buffer *place_of(struct xccl_comm_huge *huge, uintptr_t at)
{
    return &huge->buffers[((uint64_t)at >> 12) * 0x9e3779b97f4a7c15ull >> 58];
}

void xccl_comm_huge_note(struct xccl_comm_huge *huge, const void *at, size_t bytes)
{
    struct xccl_huge_buffer *buffer = place_of(huge, (uintptr_t)at);

    if (!huge->on)
        return;
    if (buffer->at != (uintptr_t)at)
        *buffer = (struct xccl_huge_buffer){.at = (uintptr_t)at, .wait = XCCL_HUGE_CALLS};
    if (buffer->bytes < bytes)
        buffer->bytes = bytes;
    huge->due |= ++buffer->calls >= buffer->wait;
}

/* 1: it has them, and had never. */
static int make(struct xccl_huge_buffer *buffer)
{
    int had = (int)buffer->has;

    buffer->calls = 0;
    if (xccl_os_into_huge_pages((void *)buffer->at, buffer->bytes)) {
        buffer->wait = XCCL_HUGE_CALLS;
        buffer->has = 1;
    } else if (buffer->wait < XCCL_HUGE_CALLS_MAX) {
        buffer->wait *= 2;
    }
    buffer->bytes = 0;
    return buffer->has && !had;
}

int xccl_comm_huge_make(struct xccl_comm_huge *huge)
{
    int first = 0;

    huge->due = 0;
    for (int i = 0; i < XCCL_HUGE_BUFFERS; i++) {
        struct xccl_huge_buffer *buffer = &huge->buffers[i];

        if (buffer->at && buffer->calls >= buffer->wait)
            first |= make(buffer);
    }
    return first;
}
