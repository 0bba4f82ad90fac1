/* SPDX-License-Identifier: BSD-3-Clause */
/* Looking ahead: where the next messages of a lane go, told to network links before the messages
 * come, so that these are received there. A second cursor runs over the places of the lane; a link
 * asks for its next message, and the cursor goes on until that one has been told, telling other
 * links of theirs on the way, or until one of these has been told enough.
 *
 * Only a connection that one lane receives on is looked at, and only lanes with steps that may
 * receive in buffers (direct.c). All others receive in slots.
 *
 * Thread: the holder of the communicator's crank. */
#ifndef XCCL_EXEC_AHEAD_H
#define XCCL_EXEC_AHEAD_H

#include "exec/exec.h"

struct xccl_ahead {
    const struct xccl_run *run; /* NULL: it has not begun */
    uint32_t lane, next; /* next: of the connections that the move receives on */
    int over; /* 1: all has been told */
    struct xccl_place place;
    struct xccl_move move; /* at that place */
};

/* Fills in binding->ahead_lane, once its steps are marked. */
void xccl_ahead_prepare(struct xccl_binding *binding);
/* 1: a link over a network that is looked ahead for. The binding has its links. */
int xccl_ahead_is_for(const struct xccl_binding *binding, uint16_t conn);
/* Before a run; then for each network connection, which adds to its operation. */
void xccl_ahead_start(const struct xccl_run *run);
void xccl_ahead_for(const struct xccl_run *run, uint16_t conn, struct xccl_net_op *op);

#endif
