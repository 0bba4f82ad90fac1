/* SPDX-License-Identifier: BSD-3-Clause */
/* Who waits at a door, grouped by where they come from, and whose turn it is to leave: the oldest
 * of the source that holds the most places, so that one loud source cannot push out the others.
 *
 * A source is an IPv4 address, the /64 of an IPv6 address (a whole link-local address with its
 * scope), or all of a host's Unix sockets. Ports do not count.
 *
 * Pure but for memory: one small block a source. Thread: one at a time. */
#ifndef XCCL_BOOTSTRAP_CROWD_H
#define XCCL_BOOTSTRAP_CROWD_H

#include "base/netaddr.h"

#define XCCL_CROWD_BUCKETS 64

struct xccl_crowd_origin;

/* Embedded in its owner's object; zero it before the first add. */
struct xccl_crowd_member {
    struct xccl_crowd_origin *origin; /* NULL: in no crowd */
    struct xccl_crowd_member *newer, *older; /* of the same origin */
    uint64_t number; /* in the order of arrival */
};

/* All zeroes is an empty one. */
struct xccl_crowd {
    int count, origin_count;
    uint64_t arrivals;
    struct xccl_crowd_origin *origins; /* all of them */
    struct xccl_crowd_origin *buckets[XCCL_CROWD_BUCKETS];
};

xcclResult_t xccl_crowd_add(struct xccl_crowd *crowd, struct xccl_crowd_member *member,
                            const struct xccl_addr *from);
void xccl_crowd_remove(struct xccl_crowd *crowd, struct xccl_crowd_member *member);
/* The oldest of the source with the most members, of equals the older one; NULL: nobody is here. */
struct xccl_crowd_member *xccl_crowd_first_to_go(const struct xccl_crowd *crowd);
/* The oldest of the member's own source, and how many that source has. */
struct xccl_crowd_member *xccl_crowd_oldest_beside(const struct xccl_crowd_member *member);
int xccl_crowd_count_beside(const struct xccl_crowd_member *member);

#endif
