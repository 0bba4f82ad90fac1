/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous work: operations that are queued and run by the process's progress thread. An
 * operation stands in two kinds of queue: that of its communicator, which runs one at a time, and
 * those of the streams it was given to. It begins when it is the first of its communicator, and
 * when all that is before it in its streams was given together with it (a group).
 *
 * What is given is put into all of its queues at once, so that queues cannot wait for each other in
 * circles. Those of a communicator that has failed end at once. Operations end by themselves, with
 * an error at the latest after XCCL_TIMEOUT_S.
 *
 * The crank of a communicator with queued work is the progress thread's from the begin of an
 * operation to its end, as it is a caller's otherwise; a call without a stream goes through the
 * queue too while there is anything in it, and else pays one look at a flag.
 *
 * Thread: any, where nothing else is said; one lock guards all queues, and is held for a few
 * pointers only. */
#ifndef XCCL_STREAM_COMM_ASYNC_H
#define XCCL_STREAM_COMM_ASYNC_H

#include "base/bell.h"
#include "call/comm_p2p.h"

struct xccl_async_op;
struct xccl_async_link;

/* An order of operations, and what became of them. The queue's lock guards the list. */
struct xccl_host_stream {
    _Atomic uint32_t outstanding; /* operations that have not ended */
    _Atomic uint32_t rc; /* the first error of one; its text is there before */
    char text[XCCL_ERROR_TEXT_BYTES];
    struct xccl_bell bell; /* rung when nothing is outstanding any more */
    struct xccl_async_link *first, *last;
    struct xccl_host_stream *next; /* of the process; not of those on a caller's stack */
};

/* --- streams of the program --- */

xcclResult_t xccl_host_stream_create(struct xccl_host_stream **stream_out);
/* Looks for it without looking at it: it may be anything. */
enum xccl_stream_kind { XCCL_STREAM_UNKNOWN, XCCL_STREAM_OWN, XCCL_STREAM_FORKED };
enum xccl_stream_kind xccl_host_stream_kind(const struct xccl_host_stream *stream);
/* Waits for what is outstanding. */
void xccl_host_stream_destroy(struct xccl_host_stream *stream);
/* Until nothing is outstanding: the first error of its work, which becomes the thread's text. */
xcclResult_t xccl_host_stream_wait(struct xccl_host_stream *stream);
/* The first error of the stream's work, without waiting; xcclInProgress when something is
 * outstanding and nothing has failed. */
xcclResult_t xccl_host_stream_query(struct xccl_host_stream *stream);

/* --- operations --- */

/* What is given together. On the caller's stack. */
struct xccl_async_batch {
    struct xccl_async_op *first, *last;
    struct xccl_host_stream here; /* of what came without a stream: the caller waits for it */
    int waits; /* 1: there is such */
};

void xccl_async_batch_init(struct xccl_async_batch *batch);
/* Adds an operation; its sizes and operator are held until it ends. stream NULL: the caller waits,
 * or for a non-blocking communicator nobody does. An error leaves the batch as it was. */
xcclResult_t xccl_async_add_call(struct xccl_async_batch *batch, const struct xccl_task *task,
                                 struct xccl_host_stream *stream);
/* Adds sends and receives, which go together; streams: of each item. */
xcclResult_t xccl_async_add_p2p(struct xccl_async_batch *batch, struct xcclComm *comm,
                                const struct xccl_p2p_item *items,
                                struct xccl_host_stream *const *streams, uint32_t count);
/* Gives all of it to the queues, and waits for what has no stream. Operations of communicators that
 * have failed are dropped. The first error. */
xcclResult_t xccl_async_submit(struct xccl_async_batch *batch);
/* Instead of submit: nothing has happened. */
void xccl_async_drop(struct xccl_async_batch *batch);

/* --- gates --- */

/* A turn in a communicator's queue that is used for something else, a split: it is there when the
 * gate is open, and lasts until the gate is closed. create: the user's thread. close: any, also
 * before it is open. */
struct xccl_async_gate;
xcclResult_t xccl_async_gate_create(struct xcclComm *comm, struct xccl_async_gate **gate_out);
int xccl_async_gate_is_open(struct xccl_async_gate *gate);
void xccl_async_gate_close(struct xccl_async_gate *gate); /* NULL is fine; it is gone */

/* --- communicators --- */

/* 1 when calls without a stream have to queue up: something is outstanding. The caller's thread. */
int xccl_comm_is_async(const struct xcclComm *comm);
/* A use of what only callers have to do with, such as operators and buffers: asynchronous work may
 * go on beside it. enter as xccl_comm_enter. */
xcclResult_t xccl_comm_enter_aside(struct xcclComm *comm);
void xccl_comm_leave_aside(struct xcclComm *comm);
/* xcclInProgress while calls that a non-blocking communicator was given without a stream go on. */
xcclResult_t xccl_comm_progress_state(const struct xcclComm *comm);
/* Waits until nothing is outstanding. */
void xccl_comm_drain(struct xcclComm *comm);
/* The communicator has failed: waits until its work has been dropped. 0: not within the limit. */
int xccl_comm_drain_failed(struct xcclComm *comm, const struct xccl_limit *limit);
/* With the communicator. Nothing is outstanding. */
void xccl_comm_async_free(struct xcclComm *comm);

#endif
