/* SPDX-License-Identifier: BSD-3-Clause */
/* Cuts a stream of bytes into whole lines. The last line may lack its line end; a line of more than
 * 64 KiB comes out in pieces, each with a line end of its own. No byte is lost.
 *
 * Thread: one at a time. */
#ifndef XCCL_TOOLS_LINES_H
#define XCCL_TOOLS_LINES_H

#include <stddef.h>

#define XCCL_LINES_MAX_LINE (64u << 10)

/* Gets a line that ends with a line end. The bytes are good during the call only. */
typedef void xccl_lines_emit_fn(void *user, const char *line, size_t bytes);

/* Zero it before use. */
struct xccl_lines {
    char *partial; /* what came since the last line end */
    size_t used, room;
};

/* Takes bytes in and emits what they complete. When there is no memory to keep a partial line in,
 * that line is cut where it is. */
void xccl_lines_feed(struct xccl_lines *lines, const char *data, size_t bytes,
                     xccl_lines_emit_fn *emit, void *user);
/* The end of the stream: emits the partial line, if any, and frees the memory. */
void xccl_lines_finish(struct xccl_lines *lines, xccl_lines_emit_fn *emit, void *user);

#endif
