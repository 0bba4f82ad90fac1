/* SPDX-License-Identifier: BSD-3-Clause */
/* The process's table of segments: lists by the hash of the name.
 *
 * Order of memory: what an owner writes before xccl_segment_add() happens before every get of it,
 * by the table's lock; what users do with it happens before it is unmapped, since each put takes
 * the lock and the last one unmaps.
 *
 * fork(): names are random, so a child's communicators meet none of the parent's entries; the child
 * begins with an empty table, and what it has inherited stays mapped with the communicators that it
 * must not use. Lock order: alone, nothing is locked inside. Thread: any. */
#include "transport/segments.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t fetched; /* of any segment, or it has failed */
static struct xccl_segment *lists[LISTS];

static void fork_prepare(void)
{
    pthread_mutex_lock(&lock);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&lock);
}

/* Threads that waited are not here, so the condition is made anew. */
static void make_condition(void)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* that of xccl_clock_ns() */
    pthread_cond_init(&fetched, &attr);
    pthread_condattr_destroy(&attr);
}

static void fork_child(void)
{
    memset(lists, 0, sizeof lists);
    make_condition();
    pthread_mutex_unlock(&lock);
}

static void prepare(void)
{
    make_condition();
    (void)pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static void prepare_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, prepare);
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

xcclResult_t xccl_segment_add(const struct xccl_addr *name, struct xccl_map *map,
                              struct xccl_segment **segment_out)
{
    struct xccl_segment *segment = NULL;
    int taken;

    prepare_once();
    pthread_mutex_lock(&lock);
    taken = find(name) != NULL;
    if (!taken)
        segment = enter(name, map->base, map->bytes);
    pthread_mutex_unlock(&lock);
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
        *late_out = pthread_cond_timedwait(&fetched, &lock, &until) == ETIMEDOUT;
    *late_out = segment && !segment->base;
    return segment;
}

struct xccl_segment *xccl_segment_find(const struct xccl_addr *name)
{
    struct xccl_segment *segment;

    prepare_once();
    pthread_mutex_lock(&lock);
    segment = find(name);
    if (segment && !segment->base)
        segment = NULL;
    if (segment)
        segment->references++;
    pthread_mutex_unlock(&lock);
    return segment;
}

/* The claim of the first who asked has ended: whoever waits goes on. */
static xcclResult_t end_fetch(struct xccl_segment *segment, xcclResult_t rc,
                              const struct xccl_map *map, struct xccl_segment **segment_out)
{
    pthread_mutex_lock(&lock);
    if (rc) {
        drop(segment);
    } else {
        segment->base = map->base;
        segment->bytes = map->bytes;
    }
    pthread_cond_broadcast(&fetched);
    pthread_mutex_unlock(&lock);
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
    pthread_mutex_lock(&lock);
    segment = find_ready(name, limit, &late);
    is_new = !segment;
    if (is_new)
        segment = enter(name, NULL, 0);
    else if (!late)
        segment->references++;
    pthread_mutex_unlock(&lock);
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

    pthread_mutex_lock(&lock);
    side = segment->sides;
    while (side && side->key != key)
        side = side->next;
    if (!side)
        side = add_side(segment, key, bytes);
    pthread_mutex_unlock(&lock);
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
    pthread_mutex_lock(&lock);
    is_last = --segment->references == 0;
    if (is_last)
        drop(segment);
    pthread_mutex_unlock(&lock);
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
