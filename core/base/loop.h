/* SPDX-License-Identifier: BSD-3-Clause */
/* A small event loop over epoll: descriptors and timers with callbacks. A loop is driven by one
 * thread at a time (a user thread during init, the service thread afterwards); add, change and
 * remove may come from any thread. The loop's lock is held during callbacks and is recursive, so a
 * callback may call everything here but run_once, and once xccl_loop_remove has returned in another
 * thread the callback is not running and never will (an owner whose callback may remove its own
 * source holds the loop's lock around its own remove, to be as sure). So: never hold a lock that a
 * callback takes while calling into the loop. */
#ifndef XCCL_BASE_LOOP_H
#define XCCL_BASE_LOOP_H

#include <stdint.h>

#include "base/clock.h"
#include "xccl_types.h"

struct xccl_loop;

/* Embedded in its owner's object; zero it before the first add. */
struct xccl_source {
    int fd; /* -1: a timer only */
    uint32_t events; /* EPOLLIN, EPOLLOUT */
    uint64_t timer_ns; /* when on_timer is due on xccl_clock_ns(); XCCL_NEVER_NS: not */
    void (*on_events)(struct xccl_source *source, uint32_t events);
    void (*on_timer)(struct xccl_source *source, uint64_t now_ns);
    void *owner;
    /* the loop's own */
    struct xccl_loop *loop;
    uint32_t heap_idx; /* place among the timers, from 1; 0: none is set */
};

xcclResult_t xccl_loop_create(struct xccl_loop **loop_out);
void xccl_loop_destroy(struct xccl_loop *loop); /* sources must be gone; NULL is fine */

xcclResult_t xccl_loop_add(struct xccl_loop *loop, struct xccl_source *source);
xcclResult_t xccl_loop_set_events(struct xccl_source *source, uint32_t events);
void xccl_loop_set_timer(struct xccl_source *source, uint64_t timer_ns);
void xccl_loop_remove(struct xccl_source *source); /* one that is in no loop is fine */

/* Waits at most timeout_ms (-1: for ever), runs what is due, returns. */
xcclResult_t xccl_loop_run_once(struct xccl_loop *loop, int timeout_ms);
/* Makes run_once return soon; any thread. */
void xccl_loop_wake(struct xccl_loop *loop);
/* Holds the loop's lock, for an owner that shares state with callbacks. */
void xccl_loop_lock(struct xccl_loop *loop);
void xccl_loop_unlock(struct xccl_loop *loop);

/* The process's service thread and its loop: asleep when nothing happens. Started by the first get,
 * joined by the last put. Not to be put from inside a callback: use xccl_service_put_later there.
 */
xcclResult_t xccl_service_get(struct xccl_loop **loop_out);
void xccl_service_put(void);
/* From a callback: the reference is dropped by the service thread itself, which ends without being
 * joined when it was the last. */
void xccl_service_put_later(void);

#endif
