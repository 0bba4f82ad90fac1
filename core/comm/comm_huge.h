/* SPDX-License-Identifier: BSD-3-Clause */
/* Huge pages for private buffers that large calls use again and again. A copy finds them with less
 * work than small pages, and these, where they lie scattered in the machine's memory, are slower
 * still. Making them costs as much as a few calls, so a buffer that comes and goes is left alone;
 * so is all memory where the administrator or the program wants no huge pages, or XCCL_HUGE_PAGES
 * is 0. What a buffer holds and where it lies stay, and no memory is taken but its own.
 * Thread: the holder of the crank. */
#ifndef XCCL_COMM_COMM_HUGE_H
#define XCCL_COMM_COMM_HUGE_H

#include <stddef.h>
#include <stdint.h>

#define XCCL_HUGE_LEAST   ((size_t)2 << 20) /* bytes; a whole huge page may be inside */
#define XCCL_HUGE_BUFFERS 64
#define XCCL_HUGE_CALLS                                                                            \
    16u /* with a buffer, before it gets them, and until it is looked at again */
#define XCCL_HUGE_CALLS_MAX 4096u /* where it did not get all, twice as many each time */

struct xccl_huge_buffer {
    uintptr_t at; /* 0: none */
    size_t bytes; /* the most that a call has used since it was looked at */
    uint32_t calls, wait; /* since it was looked at, and until it will be */
    uint32_t has; /* 1: it got them once */
};

struct xccl_comm_huge {
    int on, due; /* 1: some buffer has been used often enough */
    struct xccl_huge_buffer buffers[XCCL_HUGE_BUFFERS];
};

/* on: 1 where they are wanted; nothing else. */
void xccl_comm_huge_init(struct xccl_comm_huge *huge);
/* A call uses this buffer, of XCCL_HUGE_LEAST or more. */
void xccl_comm_huge_note(struct xccl_comm_huge *huge, const void *at, size_t bytes);
/* After a call that has ended well, with due: some tenths of a second at most for each buffer. 1:
 * one has got them for the first time, so that what was measured before says little. */
int xccl_comm_huge_make(struct xccl_comm_huge *huge);

#endif
