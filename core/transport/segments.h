/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared memory segments that are mapped in this process, each of them once: a table by the
 * name under which a segment is handed out, 16 random bytes as text, which nobody can guess. So a
 * rank that knows a name and finds it here shares the process with its owner, or with another rank
 * that has fetched it; no process has to prove who it is. A segment stays mapped until its last
 * user in this process has put it, owner or not.
 *
 * Thread: any; the table has a lock, which is held for a look-up alone, and never in a call. */
#ifndef XCCL_TRANSPORT_SEGMENTS_H
#define XCCL_TRANSPORT_SEGMENTS_H

#include "base/clock.h"
#include "base/netaddr.h"
#include "base/os.h"

struct xccl_segment;

/* Enters a map that its owner has filled in, and takes it over, also on failure; its descriptor
 * stays the caller's. What the owner has written before is seen by all who get it. */
xcclResult_t xccl_segment_add(const struct xccl_addr *name, struct xccl_map *map,
                              struct xccl_segment **segment_out);

/* Fetches the segment of that name from another process, without the table's lock. */
typedef xcclResult_t xccl_segment_fetch_fn(void *owner, struct xccl_map *map_out);

/* A reference to the segment of that name; NULL: it is not here. */
struct xccl_segment *xccl_segment_find(const struct xccl_addr *name);
/* One that is not here is fetched by the first who asks; others wait for that, and try themselves
 * when it has failed. */
xcclResult_t xccl_segment_get(const struct xccl_addr *name, const struct xccl_limit *limit,
                              xccl_segment_fetch_fn *fetch, void *owner,
                              struct xccl_segment **segment_out);
/* Gives a reference back; the last one unmaps. NULL is fine. */
void xccl_segment_put(struct xccl_segment *segment);

/* Zeroed memory beside the segment, the same for all who ask for this key in this process; kept as
 * long as the segment. NULL: no memory. The first who asks says how large it is. */
void *xccl_segment_side(struct xccl_segment *segment, uint64_t key, size_t bytes);

char *xccl_segment_base(const struct xccl_segment *segment);
size_t xccl_segment_bytes(const struct xccl_segment *segment);

#endif
