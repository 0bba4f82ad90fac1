/* SPDX-License-Identifier: BSD-3-Clause */
/* Open addressing in tables that double until a generation is full. A tag chooses its place by its
 * low bits, so chosen tags could make chains; tags that are parts of a keyed hash cannot be chosen.
 *
 * Thread: one at a time. */
#include "base/tags.h"

#include "base/alloc.h"

#define ROOM_MIN 64u

/* The tag's place, or the free one where it belongs. */
static uint64_t *place_of(const struct xccl_tags_table *table, uint64_t tag)
{
    uint32_t at = (uint32_t)tag & (table->room - 1);

    while (table->places[at] && table->places[at] != tag)
        at = (at + 1) & (table->room - 1);
    return &table->places[at];
}

static int has(const struct xccl_tags_table *table, uint64_t tag)
{
    return table->room && *place_of(table, tag) == tag;
}

/* Room for one more. -1: no memory. */
static int grow(struct xccl_tags_table *table)
{
    struct xccl_tags_table larger = {.room = table->room ? 2 * table->room : ROOM_MIN};

    larger.places = xccl_calloc(larger.room, sizeof(*larger.places));
    if (!larger.places)
        return -1;
    for (uint32_t i = 0; i < table->room; i++) {
        if (table->places[i])
            *place_of(&larger, table->places[i]) = table->places[i];
    }
    larger.count = table->count;
    xccl_free(table->places);
    *table = larger;
    return 0;
}

enum xccl_tags_answer xccl_tags_add(struct xccl_tags *tags, uint64_t tag)
{
    const struct xccl_tags_table none = {0};

    tag += !tag;
    if (has(&tags->young, tag) || has(&tags->old, tag))
        return XCCL_TAGS_SEEN;
    if (tags->young.count == XCCL_TAGS_GENERATION) {
        tags->forgot |= tags->old.count != 0;
        xccl_free(tags->old.places);
        tags->old = tags->young;
        tags->young = none;
    }
    if (2 * tags->young.count >= tags->young.room && grow(&tags->young) != 0)
        return XCCL_TAGS_NO_MEMORY;
    *place_of(&tags->young, tag) = tag;
    tags->young.count++;
    return XCCL_TAGS_NEW;
}

void xccl_tags_fini(struct xccl_tags *tags)
{
    const struct xccl_tags none = {0};

    xccl_free(tags->young.places);
    xccl_free(tags->old.places);
    *tags = none;
}
