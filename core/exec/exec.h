/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs plans. A plan says everything about a call that is known before the call: schedule, links,
 * protocol, geometry. A run is a plan with buffers and a cursor for each lane; progress moves what
 * can move and never blocks; wait does so until one of several runs is done: it spins, then yields,
 * then sleeps.
 *
 * Thread: the holder of the communicator's crank. */
#ifndef XCCL_EXEC_EXEC_H
#define XCCL_EXEC_EXEC_H

#include <stdbool.h>

#include "exec/binding.h"
#include "exec/host/kernels.h"

#define XCCL_PART_ALIGN 64u

/* Where the chunks of a buffer lie, and how long they are: all alike, the last ones cut off by the
 * buffer's end, or as tables say. */
struct xccl_layout {
    size_t stride, total; /* bytes; total: where the last one ends */
    const size_t *offsets, *sizes; /* by chunk; NULL: alike */
};

static inline size_t xccl_layout_offset(const struct xccl_layout *layout, uint32_t chunk)
{
    return layout->offsets ? layout->offsets[chunk] : chunk * layout->stride;
}

static inline size_t xccl_layout_size(const struct xccl_layout *layout, uint32_t chunk)
{
    size_t first = chunk * layout->stride;

    if (layout->sizes)
        return layout->sizes[chunk];
    if (first >= layout->total)
        return 0;
    return layout->total - first < layout->stride ? layout->total - first : layout->stride;
}

/* Of a chunk of this size: each of its parts, in whole cache lines, the last ones shorter or empty.
 */
static inline size_t xccl_part_bytes(size_t chunk_bytes, uint32_t nparts)
{
    return nparts <= 1 ? chunk_bytes
                       : ((chunk_bytes + nparts - 1) / nparts + XCCL_PART_ALIGN - 1) &
                             ~(size_t)(XCCL_PART_ALIGN - 1);
}

/* One slice of one chunk, ready to go: what a step means at one place of its loops. */
struct xccl_move {
    struct xccl_link *const *recv, *const *send; /* the fans */
    size_t src, dst; /* from the beginning of their buffers */
    uint32_t bytes; /* of the value; of an exchange: of what comes */
    uint32_t send_bytes; /* of an exchange: of what goes */
    uint16_t nrecv, nsend; /* 0 where there is nothing to move */
    uint16_t left; /* chunks of the occurrence that come behind it */
    uint8_t op, flags;
    uint8_t src_buffer, dst_buffer; /* enum xccl_step_buffer */
    uint8_t direct; /* XCCL_DIRECT_* */
};

/* Payload that a call of this rank moves over links, by [0] its own host and [1] others. What is
 * multicast is sent once. */
struct xccl_plan_traffic {
    uint64_t sent[2], received[2];
};

/* How a run begins that is the last one but for its buffers. */
enum xccl_again {
    XCCL_AGAIN_WHOLE, /* as the first time */
    XCCL_AGAIN_LANE, /* its only lane, which has a list, goes through it again */
    XCCL_AGAIN_ALONE /* the same, and there are no links: it never waits */
};

/* Fixed once made. The first lines are what a call touches. */
struct xccl_plan {
    uint64_t key[2]; /* what it is the plan of (plan.h) */
    const struct xccl_binding *binding;
    struct xccl_operator reduction;
    uint32_t slice_bytes; /* what one message carries at most */
    uint32_t tiles; /* 0: there is nothing to do */
    /* 1: ranks know no sizes but their own, so what is exchanged of a chunk ends with a message
     * that is not full, an empty one after none or only full ones. */
    uint32_t ends_short;
    uint32_t elem_bytes;
    uint64_t signature; /* of the call, without its sequence number */
    /* Of a short plan all that its lanes do, lane after lane, moves without effect left out; NULL:
     * decoded on the way. */
    struct xccl_move *moves;
    const struct xccl_move *moves_end; /* of the list, where a run begins again by it */
    enum xccl_again again;
    bool by_address; /* see struct xccl_run */
    uint32_t *lane_moves; /* by lane: its first; one more entry ends the last */
    uint32_t *net_messages; /* for each of binding->net_conns; NULL: it has none */
    struct xccl_plan_traffic traffic;
    size_t chunk_bytes; /* of the largest chunk; of all of them where the schedule says EQUAL */
    struct xccl_layout layouts[2]; /* XCCL_BUFFER_IN and OUT */
    size_t scratch_bytes; /* memory that a run needs besides */
    size_t room_bytes; /* and a slice of it for values on their way */
};

/* A place in the loops of a lane. */
struct xccl_place {
    uint32_t lane, occurrence, chunk, tile;
    const struct xccl_step *step;
};

struct xccl_run_lane {
    const struct xccl_move *move; /* the next one: in the plan's list, or now; NULL: done */
    const struct xccl_move *end; /* of the list; NULL: decoded */
    struct xccl_place place; /* without a list */
    uint32_t waited; /* 1: the waits of this step are over */
    /* Sends run ahead (go_ahead() in interp.c): of so many moves from this one on all has been sent
     * that sends what is there; 0: of none. */
    uint32_t ahead;
    uint32_t ahead_ends; /* 1: the move behind those has to wait until it is this one */
    struct xccl_place next_place; /* of next, without a list */
    /* Memory that moves before next have yet to store, in OUT and in SCRATCH. */
    struct {
        uintptr_t first, end;
    } stores[2];
    struct xccl_move now, next;
};

struct xccl_run;

/* Kind of a run: how it moves without a plan, and who checks it while it waits. */
struct xccl_run_kind {
    const char *name;
    int is_messages; /* 1: sends and receives, which have no number in the sequence of calls */
    /* While there is no plan: moves what there is instead, and sets finished, or starts the run
     * with a plan. 1 when something moved. */
    int (*step)(struct xccl_run *run);
    /* Asked in the slow branch of a wait: an error ends the wait. waited_ns: since it began. */
    xcclResult_t (*check)(struct xccl_run *run, uint64_t waited_ns);
    /* The run has failed: raises its owner's error. 0: this kind knows nothing better. */
    int (*blame)(struct xccl_run *run);
    /* An error when a rank that is still needed has left. again: 1 when it will be asked again. */
    xcclResult_t (*check_left)(struct xccl_run *run, int again);
};

struct xccl_run {
    const struct xccl_plan *plan; /* NULL while the kind's step is at work */
    char *buffers[4]; /* by enum xccl_step_buffer */
    char *room;
    uint64_t places[2]; /* of IN and OUT in the arena, 0: not there */
    uint32_t flag_low; /* signature and sequence number of this call, folded */
    uint8_t direct; /* the XCCL_DIRECT_* that count for this call */
    uint8_t offers; /* 1: messages have stayed in its buffers */
    bool
        by_address; /* what is large stays in private memory, too, for ranks of this host to read */
    uint32_t nlanes, lanes_left;
    struct xccl_run_lane *lanes;
    uint32_t *signals; /* by signal of the binding: tiles in which it was given */
    /* Why it cannot go on: */
    xcclResult_t rc;
    int bad_peer; /* the rank it concerns, -1 for none */
    const struct xccl_link *bad_link; /* a message of another call arrived here */
    int other_size; /* 1: it is of this call, but not as large as this rank expects */
    const struct xccl_net_link *bad_net; /* this one failed */
    int finished; /* set by the kind's step: there is nothing left to move */
    const struct xccl_run_kind *kind; /* NULL: a run that nobody looks after, with a plan */
    void *owner;
};

/* What a call brings to its plan. */
struct xccl_run_args {
    const void *in;
    void *out;
    void *scratch; /* as much as the plan says, and room behind it */
    uint64_t seq;
    uint64_t mark; /* of all calls before, so that ranks which once differed differ for good */
};

/* Spin, yield and sleep limits, chosen from ranks per host and usable cores. */
struct xccl_wait_policy {
    uint32_t spins; /* polls with a pause before the first yield */
    uint64_t yield_ns; /* how long to yield before sleeping between polls */
    uint64_t sleep_ns, sleep_max_ns; /* how long each time, at first and in long waits */
};
struct xccl_wait_policy xccl_wait_policy_for(int ranks_on_host, int cores);

/* The low half of a flag word for call seq of a plan. */
static inline uint32_t xccl_flag_low(uint64_t signature, uint64_t seq)
{
    uint64_t mixed = signature ^ seq * 0x9e3779b97f4a7c15ull;

    return (uint32_t)(mixed ^ mixed >> 32);
}

/* The mark of the calls up to one with this signature, from the mark before it. */
static inline uint64_t xccl_mark_after(uint64_t mark, uint64_t signature)
{
    uint64_t mixed = (mark ^ signature) * 0xd6e8feb86659fd93ull;

    return mixed ^ mixed >> 32;
}

/* Forgets an earlier run, but for step, check and owner. */
void xccl_run_clear(struct xccl_run *run);
/* All links of the plan's binding are there. Clears the run first. */
void xccl_run_start(struct xccl_run *run, const struct xccl_plan *plan,
                    const struct xccl_run_args *args);
/* Starts the plan of the last run once more, and moves the mark on. That run succeeded; scratch
 * memory stays the same. */
void xccl_run_start_again(struct xccl_run *run, struct xccl_run_args *args);
/* 1 when it moved. run->rc tells of an error, xccl_run_done() of the end. */
int xccl_run_progress(struct xccl_run *run);
int xccl_run_done(struct xccl_run *run);

/* Of a run without links (XCCL_AGAIN_ALONE): all of it. */
int xccl_interp_alone(struct xccl_run *run);

/* The half for runs that may have to wait; use the function below. */
void xccl_exec_wait_links(struct xccl_run *run, const struct xccl_wait_policy *policy);

/* Until it is done or has failed: its rc tells. */
static inline void xccl_exec_wait_one(struct xccl_run *run, const struct xccl_wait_policy *policy)
{
    if (run->plan && run->plan->again == XCCL_AGAIN_ALONE)
        (void)xccl_interp_alone(run);
    else
        xccl_exec_wait_links(run, policy);
}

/* Until one of them is done or has failed (its rc tells): *which_out is its index. */
void xccl_exec_wait(struct xccl_run *const *runs, unsigned count,
                    const struct xccl_wait_policy *policy, unsigned *which_out);

/* --- moves (moves.c) --- */

/* What the step means at a place. */
void xccl_move_make(const struct xccl_plan *plan, const struct xccl_place *place,
                    struct xccl_move *move_out);
/* On to the next place of the lane; 0: there is none. */
int xccl_place_next(const struct xccl_plan *plan, struct xccl_place *place);
/* The first place of a lane. */
struct xccl_place xccl_place_first(const struct xccl_plan *plan, uint32_t lane);
/* Fills in the list of moves, where the plan is short enough for one. */
xcclResult_t xccl_plan_resolve(struct xccl_plan *plan);
/* What a call moves: adds to messages[] by connection (NULL: none are wanted), and sums up the
 * bytes. nodes: by rank, equal for ranks of one host; NULL: all are on one. */
void xccl_plan_count(const struct xccl_plan *plan, const int *nodes, uint32_t *messages,
                     struct xccl_plan_traffic *traffic_out);

#endif
