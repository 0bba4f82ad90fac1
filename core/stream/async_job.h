/* SPDX-License-Identifier: BSD-3-Clause */
/* The progress thread as other parts use it: they keep it alive, ring it, and give it jobs, which
 * are work of theirs that is no operation of a queue.
 * Thread: any, where nothing else is said. */
#ifndef XCCL_STREAM_ASYNC_JOB_H
#define XCCL_STREAM_ASYNC_JOB_H

#include "base/bell.h"
#include "xccl.h"

/* Started by the first get, ended by the last put, which must find the queues empty. */
xcclResult_t xccl_async_thread_get(void);
void xccl_async_thread_put(void);
/* There is news: work, an error, an abort. */
void xccl_async_thread_ring(void);
struct xccl_bell *xccl_async_thread_bell(void);

enum xccl_async_state {
    XCCL_ASYNC_DONE,
    XCCL_ASYNC_WAIT, /* until the next ring, or until it is due */
    XCCL_ASYNC_MORE, /* it is to go on at once */
};

/* A job, such as ranks that join; part of what it belongs to. */
struct xccl_async_job {
    /* Called after each ring, and when due. It may free itself when it says XCCL_ASYNC_DONE. */
    enum xccl_async_state (*step)(struct xccl_async_job *job);
    uint64_t due_ns; /* when it is to be called without a ring; set by step */
    struct xccl_async_job *next;
};
/* Anybody gives, the progress thread takes one after the other. */
void xccl_async_give_job(struct xccl_async_job *job);

#endif
