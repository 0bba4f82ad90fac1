/* SPDX-License-Identifier: BSD-3-Clause */
/* Members in lists by source, sources in a small hash table. Arriving and leaving take constant
 * time; asking who goes first looks at each source once, at most as many as there are members.
 * The hash needs no secret: the worst that chosen addresses do is one chain of all sources.
 *
 * Thread: one at a time. */
#include "bootstrap/crowd.h"

#include <string.h>

#include "base/alloc.h"

struct place {
    uint64_t high, low;
};

struct xccl_crowd_origin {
    struct place place;
    int count;
    struct xccl_crowd_member *newest, *oldest;
    struct xccl_crowd_origin *next_in_bucket;
    struct xccl_crowd_origin *next, *prev;
};

/* The first byte of high says the kind, so that no two kinds are equal. */
static struct place place_of(const struct xccl_addr *from)
{
    const struct in6_addr *in6 = &from->sa.in6.sin6_addr;
    struct place place = {0, 0};

    if (from->bytes && from->sa.any.sa_family == AF_INET) {
        memcpy(&place.low, &from->sa.in4.sin_addr, 4);
        place.high = 4;
    } else if (from->bytes && from->sa.any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(in6)) {
        memcpy(&place.low, in6->s6_addr + 12, 4);
        place.high = 4;
    } else if (from->bytes && from->sa.any.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(in6)) {
        /* All neighbours share its /64. */
        memcpy(&place.low, in6->s6_addr + 8, 8);
        place.high = 1 | (uint64_t)from->sa.in6.sin6_scope_id << 8;
    } else if (from->bytes && from->sa.any.sa_family == AF_INET6) {
        memcpy(&place.low, in6->s6_addr, 8);
        place.high = 6;
    }
    return place;
}

static size_t bucket_of(struct place place)
{
    uint64_t mixed = (place.low ^ place.high << 32 ^ place.high >> 32) * 0x9e3779b97f4a7c15u;

    return (size_t)(mixed >> 58) % XCCL_CROWD_BUCKETS;
}

/* NULL: no memory. */
static struct xccl_crowd_origin *origin_get(struct xccl_crowd *crowd, struct place place)
{
    struct xccl_crowd_origin **bucket = &crowd->buckets[bucket_of(place)];
    struct xccl_crowd_origin *origin;

    for (origin = *bucket; origin; origin = origin->next_in_bucket) {
        if (origin->place.high == place.high && origin->place.low == place.low)
            return origin;
    }
    origin = xccl_calloc(1, sizeof(*origin));
    if (!origin)
        return NULL;
    origin->place = place;
    origin->next_in_bucket = *bucket;
    *bucket = origin;
    origin->next = crowd->origins;
    if (crowd->origins)
        crowd->origins->prev = origin;
    crowd->origins = origin;
    crowd->origin_count++;
    return origin;
}

static void origin_free(struct xccl_crowd *crowd, struct xccl_crowd_origin *origin)
{
    struct xccl_crowd_origin **at = &crowd->buckets[bucket_of(origin->place)];

    while (*at != origin)
        at = &(*at)->next_in_bucket;
    *at = origin->next_in_bucket;
    if (origin->prev)
        origin->prev->next = origin->next;
    else
        crowd->origins = origin->next;
    if (origin->next)
        origin->next->prev = origin->prev;
    crowd->origin_count--;
    xccl_free(origin);
}

xcclResult_t xccl_crowd_add(struct xccl_crowd *crowd, struct xccl_crowd_member *member,
                            const struct xccl_addr *from)
{
    struct xccl_crowd_origin *origin = origin_get(crowd, place_of(from));

    if (!origin)
        return xcclSystemError;
    member->origin = origin;
    member->number = crowd->arrivals++;
    member->newer = NULL;
    member->older = origin->newest;
    if (origin->newest)
        origin->newest->newer = member;
    else
        origin->oldest = member;
    origin->newest = member;
    origin->count++;
    crowd->count++;
    return xcclSuccess;
}

void xccl_crowd_remove(struct xccl_crowd *crowd, struct xccl_crowd_member *member)
{
    struct xccl_crowd_origin *origin = member->origin;

    if (!origin)
        return;
    if (member->newer)
        member->newer->older = member->older;
    else
        origin->newest = member->older;
    if (member->older)
        member->older->newer = member->newer;
    else
        origin->oldest = member->newer;
    member->origin = NULL;
    member->newer = member->older = NULL;
    crowd->count--;
    if (--origin->count == 0)
        origin_free(crowd, origin);
}

struct xccl_crowd_member *xccl_crowd_first_to_go(const struct xccl_crowd *crowd)
{
    const struct xccl_crowd_origin *most = crowd->origins;

    for (const struct xccl_crowd_origin *at = most; at; at = at->next) {
        if (at->count > most->count ||
            (at->count == most->count && at->oldest->number < most->oldest->number))
            most = at;
    }
    return most ? most->oldest : NULL;
}

struct xccl_crowd_member *xccl_crowd_oldest_beside(const struct xccl_crowd_member *member)
{
    return member->origin->oldest;
}

int xccl_crowd_count_beside(const struct xccl_crowd_member *member)
{
    return member->origin->count;
}
