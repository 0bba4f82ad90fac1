/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the queues (comm_async.c) and the thread that works them off (async_thread.c).
 * Thread: as each says. */
#ifndef XCCL_STREAM_ASYNC_INT_H
#define XCCL_STREAM_ASYNC_INT_H

#include "comm/comm_where.h"
#include "stream/async_job.h"
#include "stream/comm_async.h"

/* Whom an operation belongs to. */
struct xccl_async_link {
    struct xccl_async_op *op;
    struct xccl_host_stream *stream;
    struct xccl_async_link *next, *prev; /* of the stream; guarded by the lock */
};

struct xccl_async_op {
    struct xcclComm *comm;
    struct xccl_async_op *next; /* of its batch, then of its communicator */
    uint64_t batch; /* number of what was given together */
    struct xccl_task task;
    struct xccl_p2p_item *items; /* NULL: task is meant */
    uint32_t item_count, link_count;
    struct xccl_async_gate *gate; /* not NULL: nothing is to be done */
    struct xccl_async_link *links;
    /* Room for one of each, so that most need no more memory: */
    struct xccl_p2p_item own_item;
    struct xccl_async_link own_link;
};

/* What a communicator has when it was ever given asynchronous work. */
struct xccl_comm_async {
    struct xcclComm *comm;
    _Atomic uint32_t outstanding; /* operations in its queue */
    struct xccl_bell bell; /* rung when that becomes 0 */
    struct xccl_host_stream own; /* of a non-blocking one: calls without a stream */
    /* Guarded by the lock: */
    struct xccl_async_op *first, *last;
    struct xccl_async_op *spare; /* used up ones, for the next */
    uint32_t spare_count;
    struct xccl_comm_async *next; /* with something in its queue */
    int started; /* 1: the first one is at work */
    /* The progress thread's, of the operation at work: */
    struct xccl_comm_async *next_running;
    uint32_t idle_rounds; /* polls since something moved */
    uint64_t idle_since_ns; /* 0: not known yet */
    uint64_t verdict_ns; /* it has failed; until then somebody may know better. 0: has not */
};

/* --- the queues (comm_async.c); the progress thread --- */

/* The next operation that may begin now; its communicator's `started` is set. NULL: none.
 * *held_out: 1 when one waits only for somebody who is inside its communicator. */
struct xccl_async_op *xccl_async_take(int *held_out);
/* It has ended with rc and the thread's error text. The communicator may be gone afterwards. */
void xccl_async_ended(struct xccl_async_op *op, xcclResult_t rc);

/* The next job; NULL: none. */
struct xccl_async_job *xccl_async_take_job(void);

/* --- the thread (async_thread.c) --- */

#endif
