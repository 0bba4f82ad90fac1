/* SPDX-License-Identifier: BSD-3-Clause */
/* Cuts a stream of bytes into lines. Whole lines go from the caller's bytes straight to the
 * receiver; only what has no line end yet is kept, with room for that line end.
 *
 * Thread: one at a time. */
#include "lines.h"

#include <string.h>

#include "base/alloc.h"

/* Emits what is kept, with a line end behind it. */
static void cut_here(struct xccl_lines *lines, xccl_lines_emit_fn *emit, void *user)
{
    if (lines->used == 0)
        return;
    lines->partial[lines->used] = '\n';
    emit(user, lines->partial, lines->used + 1);
    lines->used = 0;
}

/* Room for bytes more and a line end; 0 when there is no memory. */
static int make_room(struct xccl_lines *lines, size_t bytes)
{
    size_t room = lines->room ? lines->room : 512;
    char *partial = NULL;

    while (room < lines->used + bytes + 1)
        room *= 2;
    if (room == lines->room)
        return 1;
    partial = xccl_realloc(lines->partial, room);
    if (!partial)
        return 0;
    lines->partial = partial;
    lines->room = room;
    return 1;
}

/* For want of memory: emits bytes in short pieces, each with a line end. */
static void cut_short(const char *data, size_t bytes, xccl_lines_emit_fn *emit, void *user)
{
    char piece[256];

    while (bytes) {
        size_t part = bytes < sizeof(piece) - 1 ? bytes : sizeof(piece) - 1;

        memcpy(piece, data, part);
        piece[part] = '\n';
        emit(user, piece, part + 1);
        data += part;
        bytes -= part;
    }
}

/* Keeps bytes that have no line end, at most XCCL_LINES_MAX_LINE of them in all. */
static void keep(struct xccl_lines *lines, const char *data, size_t bytes, xccl_lines_emit_fn *emit,
                 void *user)
{
    while (bytes) {
        size_t part = XCCL_LINES_MAX_LINE - lines->used;

        if (part > bytes)
            part = bytes;
        if (!make_room(lines, part)) {
            cut_here(lines, emit, user);
            cut_short(data, bytes, emit, user);
            return;
        }
        memcpy(lines->partial + lines->used, data, part);
        lines->used += part;
        data += part;
        bytes -= part;
        if (lines->used == XCCL_LINES_MAX_LINE)
            cut_here(lines, emit, user);
    }
}

void xccl_lines_feed(struct xccl_lines *lines, const char *data, size_t bytes,
                     xccl_lines_emit_fn *emit, void *user)
{
    while (bytes) {
        const char *end = memchr(data, '\n', bytes);
        size_t part = end ? (size_t)(end - data) : bytes;

        if (end && lines->used == 0 && part < XCCL_LINES_MAX_LINE) {
            emit(user, data, part + 1);
        } else {
            keep(lines, data, part, emit, user);
            if (end)
                cut_here(lines, emit, user);
        }
        part += end ? 1 : 0;
        data += part;
        bytes -= part;
    }
}

void xccl_lines_finish(struct xccl_lines *lines, xccl_lines_emit_fn *emit, void *user)
{
    cut_here(lines, emit, user);
    xccl_free(lines->partial);
    memset(lines, 0, sizeof(*lines));
}
