/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs plans. A plan says everything about a call that is known before the call: schedule, links,
 * protocol, geometry. A run is a plan with buffers and a cursor for each lane; progress moves what
 * can move and never blocks; wait does so until one of several runs is done: it spins, then yields,
 * then sleeps.
 *
 * Thread: the holder of the communicator's crank. */
#ifndef XCCL_EXEC_EXEC_H
#define XCCL_EXEC_EXEC_H

#include "exec/host/kernels.h"
#include "proxy/net_link.h"
#include "schedule/schedule.h"
#include "transport/link.h"

#define XCCL_MAX_LANES 2

/* How many connections a step receives from and sends to. */
struct xccl_fan {
    uint16_t nrecv, nsend;
};

/* A schedule bound to the links that its connections name, for one protocol. */
struct xccl_binding {
    struct xccl_schedule *schedule;
    enum xccl_proto proto;
    uint32_t slot_bytes; /* the least of its links */
    struct xccl_link **links; /* by connection number */
    struct xccl_fan *fans; /* by step number */
    struct xccl_net_link **nets; /* by connection number; NULL where the link is shared memory */
    uint16_t *net_conns; /* the connections that have one */
    uint16_t net_count;
};

/* For a checked schedule, with room for its links: the owner fills links, nets and net_conns. Takes
 * the schedule over, also on failure. xcclInternalError: it has steps that the interpreter does not
 * know yet. */
xcclResult_t xccl_binding_create(struct xccl_schedule *schedule, enum xccl_proto proto,
                                 struct xccl_binding **binding_out);
void xccl_binding_destroy(struct xccl_binding *binding); /* frees the schedule; NULL is fine */

/* Fixed once made. The first lines are what a call touches. */
struct xccl_plan {
    uint64_t key[2]; /* what it is the plan of (plan.h) */
    const struct xccl_binding *binding;
    xccl_reduce_fn *reduce;
    size_t total_bytes;
    size_t chunk_bytes; /* distance of chunks; the last may be shorter or empty */
    uint32_t slice_bytes; /* what one message carries at most */
    uint32_t tiles;
    uint32_t elem_bytes;
    uint32_t reserved;
    uint64_t signature; /* of the call, without its sequence number */
    uint32_t *net_messages; /* for each of binding->net_conns */
};

struct xccl_run_lane {
    const struct xccl_step *step, *first, *end;
    uint32_t occurrence; /* within the step */
    uint32_t src, dst; /* chunk numbers now */
    uint32_t tile;
    uint32_t done;
};

struct xccl_run {
    const struct xccl_plan *plan;
    const char *in;
    char *out;
    uint32_t flag_low; /* signature and sequence number of this call, folded */
    uint32_t nlanes, lanes_left;
    /* Why it cannot go on: */
    xcclResult_t rc;
    int bad_peer; /* the rank it concerns, -1 for none */
    const struct xccl_link *bad_link; /* a message of another call arrived here */
    const struct xccl_net_link *bad_net; /* this one failed */
    /* Asked in the slow branch of a wait: an error ends the wait. waited_ns: since it began. */
    xcclResult_t (*check)(struct xccl_run *run, uint64_t waited_ns);
    void *owner;
    struct xccl_run_lane lanes[XCCL_MAX_LANES];
};

/* Spin and yield limits; spins is chosen from ranks per host and usable cores. */
struct xccl_wait_policy {
    uint32_t spins; /* polls with a pause before the first yield */
    uint64_t yield_ns; /* how long to yield before sleeping between polls */
};
struct xccl_wait_policy xccl_wait_policy_for(int ranks_on_host, int cores);

/* The low half of a flag word for call seq of a plan. */
static inline uint32_t xccl_flag_low(uint64_t signature, uint64_t seq)
{
    uint64_t mixed = signature ^ seq * 0x9e3779b97f4a7c15ull;

    return (uint32_t)(mixed ^ mixed >> 32);
}

void xccl_run_start(struct xccl_run *run, const struct xccl_plan *plan, const void *in, void *out,
                    uint64_t seq);
/* 1 when it moved. run->rc tells of an error, xccl_run_done() of the end. */
int xccl_run_progress(struct xccl_run *run);
int xccl_run_done(const struct xccl_run *run);

/* Until one of them is done or has failed (its rc tells): *which_out is its index. */
void xccl_exec_wait(struct xccl_run *const *runs, unsigned count,
                    const struct xccl_wait_policy *policy, unsigned *which_out);

/* Messages that a plan sends or receives on connection conn (exec.c; for plans and tests). */
uint32_t xccl_plan_messages(const struct xccl_plan *plan, uint32_t conn);

/* Bytes of slice `tile` of a chunk; 0 when there is none. */
static inline size_t xccl_slice_bytes(const struct xccl_plan *plan, uint32_t chunk, uint32_t tile)
{
    size_t first = (size_t)chunk * plan->chunk_bytes + (size_t)tile * plan->slice_bytes;
    size_t chunk_end = ((size_t)chunk + 1) * plan->chunk_bytes;
    size_t end = first + plan->slice_bytes;

    if (end > chunk_end)
        end = chunk_end;
    if (end > plan->total_bytes)
        end = plan->total_bytes;
    return end > first ? end - first : 0;
}

#endif
