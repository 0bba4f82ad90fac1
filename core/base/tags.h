/* SPDX-License-Identifier: BSD-3-Clause */
/* Remembers 64-bit tags that came before, in bounded memory. Two generations: when the younger one
 * is full, the older one is forgotten, and the owner can see that: from then on a tag that looks
 * new may be an old one. At least the last XCCL_TAGS_GENERATION tags are always known.
 *
 * Tags must be spread evenly (parts of a keyed hash). Pure but for memory. Thread: one at a time.
 */
#ifndef XCCL_BASE_TAGS_H
#define XCCL_BASE_TAGS_H

#include <stdint.h>

#define XCCL_TAGS_GENERATION 16384 /* 256 KiB; two of them at most */

struct xccl_tags_table {
    uint64_t *places; /* 0: free */
    uint32_t room, count; /* room: a power of two; half of it is used at most */
};

/* A set of tags; all zeroes is an empty one. */
struct xccl_tags {
    struct xccl_tags_table young, old;
    int forgot; /* a generation is gone */
};

enum xccl_tags_answer { XCCL_TAGS_NEW, XCCL_TAGS_SEEN, XCCL_TAGS_NO_MEMORY };

/* Notes a tag, unless it is known. Without memory for a larger table it is not noted. */
enum xccl_tags_answer xccl_tags_add(struct xccl_tags *tags, uint64_t tag);
void xccl_tags_fini(struct xccl_tags *tags);

#endif
