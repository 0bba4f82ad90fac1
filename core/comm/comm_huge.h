/* SPDX-License-Identifier: BSD-3-Clause */
/* Huge pages for private buffers that large calls use again and again. A copy finds them with less
 * work than small pages, and these, where they lie scattered in the machine's memory, are slower
 * still. Making them costs as much as a few calls, so a buffer that comes and goes is left alone,
 * and where a page has only a part of it, that part was used so much more often before; so is all
 * memory where the administrator or the program wants no huge pages, or XCCL_HUGE_PAGES is 0, and
 * what is not this process's alone or not all there (base/huge_pages.h). Thread: the holder of the
 * crank. */
#ifndef XCCL_COMM_COMM_HUGE_H
#define XCCL_COMM_COMM_HUGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/huge_pages.h"

#define XCCL_HUGE_LEAST     (64u << 10) /* bytes of a buffer */
#define XCCL_HUGE_BUFFERS   64 /* are followed; a new one takes the place of the oldest in use */
#define XCCL_HUGE_CALLS     16u /* with a buffer, before it is looked at, and looked at again */
#define XCCL_HUGE_USED      (32u << 20) /* bytes that it was used for, before it is looked at */
#define XCCL_HUGE_CALLS_MAX 4096u /* where it did not get all, twice as many each time */
#define XCCL_HUGE_AGAIN     8u /* buffers in a second that were looked at before, at most */
#define XCCL_HUGE_NS        (50 * XCCL_NS_PER_MS) /* that a call spends on it */

struct xccl_huge_buffer {
    uintptr_t at;
    uint64_t call; /* the last one that used it */
    size_t bytes; /* the most that this one used */
    uint64_t looked_ns; /* 0: never */
    size_t looked_bytes; /* the most of it that was */
    size_t done; /* of a look that is not at its end */
    int missed; /* 1: that some bytes had to stay as they are */
    int due; /* 1: in this call */
    uint32_t calls, wait; /* since it was looked at, and until it may be */
    uint32_t ask; /* the clock, when there were so many */
    uint64_t used; /* bytes, in all calls that there were with this address */
};

struct xccl_comm_huge {
    int on; /* 1: they are wanted */
    int due; /* 1: some buffer of this call is to be looked at */
    uint64_t call; /* the number of this one */
    int count, next; /* buffers that there are; where the next one is looked for first */
    struct xccl_huge_buffer buffers[XCCL_HUGE_BUFFERS];
};

void xccl_comm_huge_init(struct xccl_comm_huge *huge);
/* A large call begins, and uses the buffers that are noted until the next one; one that is noted
 * twice counts once. */
void xccl_comm_huge_begin(struct xccl_comm_huge *huge);
/* bytes: not 0. */
void xccl_comm_huge_note(struct xccl_comm_huge *huge, const void *at, size_t bytes);
/* When it has ended well, if due. At least a part of a buffer; what is left when the time is up has
 * its turn with the buffer's next calls. */
void xccl_comm_huge_gather(struct xccl_comm_huge *huge, uint64_t until_ns);

#endif
