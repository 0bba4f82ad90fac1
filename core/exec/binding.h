/* SPDX-License-Identifier: BSD-3-Clause */
/* A schedule bound to links, for one protocol: what plans of any size share. The owner gives it
 * links; after that it is constant but for the room that its runs work in, one at a time.
 *
 * Thread: the holder of the communicator's crank. */
#ifndef XCCL_EXEC_BINDING_H
#define XCCL_EXEC_BINDING_H

#include "proxy/net_link.h"
#include "schedule/schedule.h"
#include "transport/link.h"
#include "transport/reach.h"

struct xccl_ahead;
struct xccl_run_lane;

struct xccl_binding {
    struct xccl_schedule *schedule;
    enum xccl_proto proto;
    /* The owner's to fill in: */
    int ready; /* 1: all that follows is there */
    uint32_t slot_bytes; /* of a slice, the same on all ranks */
    struct xccl_link **links; /* by connection number */
    struct xccl_net_link **nets; /* by connection number; NULL where the link is shared memory */
    uint16_t *net_conns; /* the connections that have one */
    uint16_t net_count;
    struct xccl_reach **reaches; /* by connection number; NULL: everything goes through slots */
    uint16_t *offer_conns; /* the send ends that have one */
    uint16_t offer_count;
    uint16_t
        ahead_count; /* receive ends over networks that have one, and a lane that looks ahead */

    uint8_t *direct; /* by step: XCCL_DIRECT_* */
    uint16_t *ahead_lane; /* by connection: the lane that looks ahead for it, or XCCL_NO_LANE */
    uint16_t *signal_of; /* by step: the place among the signals, XCCL_NO_SIGNAL: gives none */
    uint16_t *wait_for; /* by entry of the wait table: the signal */
    uint32_t nsignals;
    uint32_t fan_max; /* what a step combines at most, its own source and destination included */
    int keeps_values; /* 1: some values need room before they go on */
    /* Of the run at work: */
    struct xccl_run_lane *lanes;
    struct xccl_ahead *aheads; /* by lane (ahead.h) */
    uint32_t *signals;
    const void **parts; /* fan_max of them */
};

/* What may stay in, or go straight to, the buffers of a call: in a call whose buffers lie apart,
 * and in one in place. The bits of the second are those of the first, one up. */
#define XCCL_DIRECT_SEND          1
#define XCCL_DIRECT_SEND_IN_PLACE 2
#define XCCL_DIRECT_RECV          4
#define XCCL_DIRECT_RECV_IN_PLACE 8
/* In place, and what is sent is not written either when only its receiver can have it already. */
#define XCCL_DIRECT_SEND_KEPT 16

#define XCCL_NO_SIGNAL     UINT16_MAX
#define XCCL_NO_LANE       UINT16_MAX
#define XCCL_LINES_FAN_MAX 64 /* what a step of a binding to lines receives at most */

/* For a checked schedule. Takes the schedule over, also on failure. xcclInternalError: it does not
 * fit the protocol, or waits for what never happens. */
xcclResult_t xccl_binding_create(struct xccl_schedule *schedule, enum xccl_proto proto,
                                 struct xccl_binding **binding_out);
void xccl_binding_destroy(struct xccl_binding *binding); /* frees the schedule; NULL is fine */
/* By step of a checked schedule, XCCL_DIRECT_* (direct.c). xcclSystemError: no memory. */
xcclResult_t xccl_direct_mark(const struct xccl_schedule *schedule, uint8_t *direct_out);
size_t xccl_binding_bytes(const struct xccl_binding *binding); /* its memory, the links' not */

#endif
