/* SPDX-License-Identifier: BSD-3-Clause */
/* Phases of joining: a phase is a step that is called until it is done, and never blocks. Each part
 * of a communicator has phases of its own; the table that orders them stays with joining. The
 * two calls here let the ranks exchange what a phase needs.
 * Thread: the joining one. */
#ifndef XCCL_COMM_PHASE_H
#define XCCL_COMM_PHASE_H

#include "comm/comm.h"

/* Result of a step. A step blocks only for the answer of a service thread on this host. */
enum xccl_init_state {
    XCCL_INIT_DONE, /* the next phase comes, once the out-of-band operation begun has ended */
    XCCL_INIT_WAIT, /* the bell will ring */
    XCCL_INIT_POLL, /* nothing rings: call again in a while */
    XCCL_INIT_MORE, /* call again soon; the thread's other ranks first */
};

/* A rank on its way in. What a phase leaves for the next one is here; what stays is in comm. */
struct xccl_init {
    struct xcclComm *comm;
    struct xccl_job job;
    struct xccl_limit limit;
    struct xccl_bell *bell; /* of all that join with it; good until they have */
    size_t phase; /* of the table; its end: joined */
    uint64_t begin_ns, phase_ns;
    uint8_t *parts; /* of the all-gather at work, part_bytes a rank */
    size_t part_bytes;
    struct xccl_addr unix_addr;
    int *locals, nlocal; /* ranks that may share memory with this one, itself included */
    int fetched, got_all;
    int alone; /* 1: all ranks of the communicator are in this process, which all of them know */
    uint32_t premade; /* bindings that have been made before the first call */
    /* Fields of a split (comm_split.c): */
    struct xcclComm *parent; /* NULL: it joins by ids */
    const struct xccl_init *before; /* another split of parent, whose turn is first; NULL: none */
    int color, key;
    int holds_crank; /* the parent's, for all of its splits at work */
    struct xccl_async_gate *gate; /* its turn among the parent's operations; NULL: none is needed */
    int begun, found; /* begun: the others know of it; found: the ranks of the color are known */
    int is_none; /* no color: there is nothing to join */
};

typedef xcclResult_t xccl_init_step_fn(struct xccl_init *init, enum xccl_init_state *state_out);

/* Room for an all-gather, zeroed; returns the own part, NULL without memory. */
uint8_t *xccl_init_parts(struct xccl_init *init, size_t part_bytes);
/* Begins it, and the next phase finds all parts in init->parts. */
xcclResult_t xccl_init_gather(struct xccl_init *init);

#endif
