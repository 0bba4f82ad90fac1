/* SPDX-License-Identifier: BSD-3-Clause */
/* The process's table of segments: lists by the hash of the name.
 *
 * Order of memory: what an owner writes before xccl_segment_add() happens before every get of it,
 * by the table's lock; what users do with it happens before it is unmapped, since each put takes
 * the lock and the last one unmaps.
 *
 * fork(): names are random, so a child's communicators meet none of the parent's entries; the child
 * begins with an empty table. Segments are not mapped in a child: it must not use the communicators
 * that they belong to, and whatever it stores where they were reaches no other rank. Lock order:
 * alone, nothing is locked inside. Thread: any. */
#include "transport/segments.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/hash.h"

#define LISTS 1024u /* a power of two */

/* What lies beside a segment. */
struct side {
    uint64_t key;
    void *memory;
    struct side *next;
};

struct xccl_segment {
    struct xccl_addr name;
    char *base; /* NULL: it is being fetched */
    size_t bytes;
    uint32_t references; /* guarded by the lock */
    struct side *sides; /* guarded by the lock */
    struct xccl_segment *next;
};

static pthread_cond_t fetched; /* of any segment, or it has failed */
static struct xccl_segment *lists[LISTS];

/* Threads that waited are not here, so the condition is made anew. */
static void make_condition(void)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* that of xccl_clock_ns() */
    pthread_cond_init(&fetched, &attr);
    pthread_condattr_destroy(&attr);
}

static void forget_segments(void)
{
    memset(lists, 0, sizeof lists);
    make_condition();
}

static struct xccl_lock lock = XCCL_LOCK(forget_segments);

static void prepare_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_condition);
}

static struct xccl_segment **list_of(const struct xccl_addr *name)
{
    return &lists[xccl_hash_bytes(XCCL_HASH_START, &name->sa, name->bytes) & (LISTS - 1)];
}

/* The lock is held, here and below. */
static struct xccl_segment *find(const struct xccl_addr *name)
{
    struct xccl_segment *at = *list_of(name);

    while (at &&
           (at->name.bytes != name->bytes || memcmp(&at->name.sa, &name->sa, name->bytes) != 0))
        at = at->next;
    return at;
}

static struct xccl_segment *enter(const struct xccl_addr *name, char *base, size_t bytes)
{
    struct xccl_segment *segment = xccl_calloc(1, sizeof *segment), **list = list_of(name);

    if (!segment)
        return NULL;
    segment->name = *name;
    segment->base = base;
    segment->bytes = bytes;
    segment->references = 1;
    segment->next = *list;
    *list = segment;
    return segment;
}

static void drop(struct xccl_segment *segment)
{
    struct xccl_segment **at = list_of(&segment->name);

    while (*at && *at != segment)
        at = &(*at)->next;
    if (*at) { /* not so in a child of fork() */
        *at = segment->next;
    }
}

static void unmap(void *base, size_t bytes)
{
    struct xccl_map map = {.base = base, .bytes = bytes, .fd = -1};

    if (base)
        xccl_map_close(&map);
}

/* Keeps a segment out of children of fork(). If the kernel refuses, a child has it mapped, and must
 * not touch it either. */
static void keep_from_children(const struct xccl_map *map)
{
    (void)madvise(map->base, map->bytes, MADV_DONTFORK);
}

xcclResult_t xccl_segment_add(const struct xccl_addr *name, struct xccl_map *map,
                              struct xccl_segment **segment_out)
{
    struct xccl_segment *segment = NULL;
    int taken;

    prepare_once();
    keep_from_children(map);
    xccl_lock_take(&lock);
    taken = find(name) != NULL;
    if (!taken)
        segment = enter(name, map->base, map->bytes);
    xccl_lock_give(&lock);
    if (!segment)
        unmap(map->base, map->bytes);
    map->base = NULL;
    if (taken)
        return xccl_fail(xcclInternalError, 0, "report this as a bug",
                         "two shared memory segments have the same name");
    *segment_out = segment;
    return segment ? xcclSuccess : xcclSystemError;
}

/* Waits while another thread fetches. NULL: it is not here. late_out 1: the limit has passed. */
static struct xccl_segment *find_ready(const struct xccl_addr *name, const struct xccl_limit *limit,
                                       int *late_out)
{
    const struct timespec until = {.tv_sec = (time_t)(limit->deadline_ns / XCCL_NS_PER_S),
                                   .tv_nsec = (long)(limit->deadline_ns % XCCL_NS_PER_S)};
    struct xccl_segment *segment;

    *late_out = 0;
    while ((segment = find(name)) && !segment->base && !*late_out)
        *late_out = pthread_cond_timedwait(&fetched, &lock.mutex, &until) == ETIMEDOUT;
    *late_out = segment && !segment->base;
    return segment;
}

struct xccl_segment *xccl_segment_find(const struct xccl_addr *name)
{
    struct xccl_segment *segment;

    prepare_once();
    xccl_lock_take(&lock);
    segment = find(name);
    if (segment && !segment->base)
        segment = NULL;
    if (segment)
        segment->references++;
    xccl_lock_give(&lock);
    return segment;
}

/* The claim of the first who asked has ended: whoever waits goes on. */
static xcclResult_t end_fetch(struct xccl_segment *segment, xcclResult_t rc,
                              const struct xccl_map *map, struct xccl_segment **segment_out)
{
    if (!rc)
        keep_from_children(map);
    xccl_lock_take(&lock);
    if (rc) {
        drop(segment);
    } else {
        segment->base = map->base;
        segment->bytes = map->bytes;
    }
    pthread_cond_broadcast(&fetched);
    xccl_lock_give(&lock);
    if (rc)
        xccl_free(segment);
    else
        *segment_out = segment;
    return rc;
}

xcclResult_t xccl_segment_get(const struct xccl_addr *name, const struct xccl_limit *limit,
                              xccl_segment_fetch_fn *fetch, void *owner,
                              struct xccl_segment **segment_out)
{
    struct xccl_map map = {.fd = -1};
    struct xccl_segment *segment;
    int late, is_new;

    prepare_once();
    xccl_lock_take(&lock);
    segment = find_ready(name, limit, &late);
    is_new = !segment;
    if (is_new)
        segment = enter(name, NULL, 0);
    else if (!late)
        segment->references++;
    xccl_lock_give(&lock);
    if (late)
        return xccl_fail(xcclTimeout, 0, "check the load of this host",
                         "another thread did not open a rank's shared memory in time");
    if (is_new && segment)
        return end_fetch(segment, fetch(owner, &map), &map, segment_out);
    *segment_out = segment;
    return segment ? xcclSuccess : xcclSystemError;
}

static struct side *add_side(struct xccl_segment *segment, uint64_t key, size_t bytes)
{
    struct side *side = xccl_calloc(1, sizeof *side);

    if (!side)
        return NULL;
    side->memory = xccl_calloc_aligned(64, bytes);
    if (!side->memory) {
        xccl_free(side);
        return NULL;
    }
    side->key = key;
    side->next = segment->sides;
    segment->sides = side;
    return side;
}

void *xccl_segment_side(struct xccl_segment *segment, uint64_t key, size_t bytes)
{
    struct side *side;

    xccl_lock_take(&lock);
    side = segment->sides;
    while (side && side->key != key)
        side = side->next;
    if (!side)
        side = add_side(segment, key, bytes);
    xccl_lock_give(&lock);
    return side ? side->memory : NULL;
}

static void free_sides(struct side *side)
{
    while (side) {
        struct side *next = side->next;

        xccl_free(side->memory);
        xccl_free(side);
        side = next;
    }
}

void xccl_segment_put(struct xccl_segment *segment)
{
    int is_last;

    if (!segment)
        return;
    xccl_lock_take(&lock);
    is_last = --segment->references == 0;
    if (is_last)
        drop(segment);
    xccl_lock_give(&lock);
    if (!is_last)
        return;
    unmap(segment->base, segment->bytes);
    free_sides(segment->sides);
    xccl_free(segment);
}

char *xccl_segment_base(const struct xccl_segment *segment)
{
    return segment->base;
}

size_t xccl_segment_bytes(const struct xccl_segment *segment)
{
    return segment->bytes;
}
