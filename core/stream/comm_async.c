/* SPDX-License-Identifier: BSD-3-Clause */
/* The queues of asynchronous work, and streams. An operation's memory comes from its communicator,
 * which keeps used ones for the next. One lock guards all of it; it is the innermost one: nothing
 * but bells is touched under it. Who has waited for a counter to become 0 takes the lock once more
 * before anything goes, so that the one who counted has left.
 *
 * Thread: the user's, and the progress thread where the header says so. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fork.h"
#include "base/os.h"
#include "call/comm_call.h"
#include "comm/comm_progress.h"
#include "stream/async_int.h"

#define SPARES_MAX 256u /* used operations that a communicator keeps */
#define WAIT_SPINS 200u /* pauses of a waiter before it yields */
#define WAIT_YIELDS                                                                                \
    20u /* and then times that it yields before it sleeps: the progress thread may want this core  \
         */

static struct xccl_comm_async *queued; /* communicators with something in their queue */
static struct xccl_host_stream *streams; /* of the program */
static struct xccl_host_stream *inherited; /* of the process that forked this one */
static uint64_t batches; /* given so far */
static struct xccl_async_job *jobs; /* new ones, the last first */

/* --- fork --- */

/* The thread is not here, and the work is the parent's. */
static void leave_streams(void)
{
    struct xccl_host_stream **end = &inherited;

    while (*end)
        end = &(*end)->next;
    *end = streams;
    streams = NULL;
    queued = NULL;
    jobs = NULL;
}

static struct xccl_lock lock = XCCL_LOCK(leave_streams);

/* --- waiting --- */

/* Until *outstanding is 0 or the limit has passed: 1 or 0. What is waited for has deadlines of its
 * own. */
static int wait_for_none(const _Atomic uint32_t *outstanding, struct xccl_bell *bell,
                         const struct xccl_limit *limit)
{
    for (unsigned rounds = 0;; rounds++) {
        uint32_t heard = xccl_bell_listen(bell);

        /* Acquire: what the operations did. Pairs with count_down(). */
        if (!atomic_load_explicit(outstanding, memory_order_acquire))
            break;
        if (xccl_limit_passed(limit))
            return 0;
        if (rounds < WAIT_SPINS)
            xccl_os_pause();
        else if (rounds < WAIT_SPINS + WAIT_YIELDS)
            sched_yield();
        else
            xccl_bell_wait(bell, heard, limit);
    }
    xccl_lock_take(&lock); /* who counted down has left the bell */
    xccl_lock_give(&lock);
    return 1;
}

static const struct xccl_limit no_limit = {.deadline_ns = XCCL_NEVER_NS};

/* The lock is held. */
static void count_down(_Atomic uint32_t *outstanding, struct xccl_bell *bell)
{
    /* Release: what the operation did. Pairs with wait_for_none() and queries. */
    if (atomic_fetch_sub_explicit(outstanding, 1, memory_order_release) == 1)
        xccl_bell_ring(bell);
}

/* --- streams --- */

static void init_stream(struct xccl_host_stream *stream)
{
    atomic_init(&stream->outstanding, 0);
    atomic_init(&stream->rc, xcclSuccess);
    stream->text[0] = '\0';
    memset(&stream->bell, 0, sizeof stream->bell);
    stream->first = stream->last = NULL;
    stream->next = NULL;
}

xcclResult_t xccl_host_stream_create(struct xccl_host_stream **stream_out)
{
    struct xccl_host_stream *stream = xccl_calloc(1, sizeof *stream);
    xcclResult_t rc;

    if (!stream)
        return xcclSystemError;
    rc = xccl_async_thread_get();
    if (rc) {
        xccl_free(stream);
        return rc;
    }
    init_stream(stream);
    xccl_lock_take(&lock);
    stream->next = streams;
    atomic_thread_fence(memory_order_release); /* leave_streams() finds the rest of the list */
    streams = stream;
    xccl_lock_give(&lock);
    *stream_out = stream;
    return xcclSuccess;
}

static int is_in(const struct xccl_host_stream *list, const struct xccl_host_stream *stream)
{
    while (list && list != stream)
        list = list->next;
    return list != NULL;
}

enum xccl_stream_kind xccl_host_stream_kind(const struct xccl_host_stream *stream)
{
    enum xccl_stream_kind kind = XCCL_STREAM_UNKNOWN;

    xccl_lock_take(&lock);
    if (is_in(streams, stream))
        kind = XCCL_STREAM_OWN;
    else if (is_in(inherited, stream))
        kind = XCCL_STREAM_FORKED;
    xccl_lock_give(&lock);
    return kind;
}

void xccl_host_stream_destroy(struct xccl_host_stream *stream)
{
    (void)wait_for_none(&stream->outstanding, &stream->bell, &no_limit);
    xccl_lock_take(&lock);
    for (struct xccl_host_stream **at = &streams; *at; at = &(*at)->next) {
        if (*at != stream)
            continue;
        *at = stream->next;
        break;
    }
    xccl_lock_give(&lock);
    xccl_free(stream);
    xccl_async_thread_put();
}

/* The first error of its work; its text becomes the thread's. */
static xcclResult_t error_of(const struct xccl_host_stream *stream)
{
    /* Acquire: the text. Pairs with fail_stream(). */
    uint32_t rc = atomic_load_explicit(&stream->rc, memory_order_acquire);

    if (rc)
        xccl_error_set_text(stream->text);
    return (xcclResult_t)rc;
}

xcclResult_t xccl_host_stream_wait(struct xccl_host_stream *stream)
{
    (void)wait_for_none(&stream->outstanding, &stream->bell, &no_limit);
    return error_of(stream);
}

xcclResult_t xccl_host_stream_query(struct xccl_host_stream *stream)
{
    /* Acquire: what the operations did, and their error. Pairs with count_down(). */
    uint32_t outstanding = atomic_load_explicit(&stream->outstanding, memory_order_acquire);
    xcclResult_t rc = error_of(stream);

    if (rc || !outstanding)
        return rc;
    /* Who asks again and again would keep the progress thread from the core that it needs. */
    sched_yield();
    return xcclInProgress;
}

/* The lock is held, so there is one writer. */
static void fail_stream(struct xccl_host_stream *stream, xcclResult_t rc)
{
    if (atomic_load_explicit(&stream->rc, memory_order_relaxed))
        return;
    snprintf(stream->text, sizeof stream->text, "%s", xccl_error_text());
    /* Release: the text before. Pairs with error_of(). */
    atomic_store_explicit(&stream->rc, (uint32_t)rc, memory_order_release);
}

static void link_in(struct xccl_async_link *link)
{
    struct xccl_host_stream *stream = link->stream;

    link->next = NULL;
    link->prev = stream->last;
    if (stream->last)
        stream->last->next = link;
    else
        stream->first = link;
    stream->last = link;
    atomic_fetch_add_explicit(&stream->outstanding, 1, memory_order_relaxed);
}

static void link_out(struct xccl_async_link *link)
{
    struct xccl_host_stream *stream = link->stream;

    if (link->prev)
        link->prev->next = link->next;
    else
        stream->first = link->next;
    if (link->next)
        link->next->prev = link->prev;
    else
        stream->last = link->prev;
    count_down(&stream->outstanding, &stream->bell);
}

/* --- operations --- */

/* What comm needs for asynchronous work; NULL: no memory. */
static struct xccl_comm_async *async_of(struct xcclComm *comm)
{
    /* Acquire: its contents. Pairs with the store below. */
    struct xccl_comm_async *async = atomic_load_explicit(&comm->async, memory_order_acquire);

    if (async)
        return async;
    async = xccl_calloc(1, sizeof *async);
    if (!async)
        return NULL;
    async->comm = comm;
    init_stream(&async->own);
    atomic_store_explicit(&comm->async, async, memory_order_release);
    return async;
}

static struct xccl_async_op *get_op(struct xcclComm *comm)
{
    struct xccl_comm_async *async = async_of(comm);
    struct xccl_async_op *op;

    if (!async)
        return NULL;
    xccl_lock_take(&lock);
    op = async->spare;
    if (op) {
        async->spare = op->next;
        async->spare_count--;
    }
    xccl_lock_give(&lock);
    if (!op)
        op = xccl_calloc(1, sizeof *op);
    if (!op)
        return NULL;
    op->comm = comm;
    op->next = NULL;
    op->items = NULL;
    op->item_count = 0;
    op->gate = NULL;
    op->links = &op->own_link;
    op->link_count = 0;
    op->task.call.sizes = NULL;
    op->task.call.op = xcclSum;
    return op;
}

/* Gives back what it holds. */
static void release_op(struct xccl_async_op *op)
{
    if (op->items != &op->own_item)
        xccl_free(op->items);
    if (op->links != &op->own_link)
        xccl_free(op->links);
    if (!op->items)
        xccl_planner_release_op(&op->comm->planner, op->task.call.op);
    xccl_call_sizes_put(op->task.call.sizes);
}

/* The lock is held. 0: the communicator has enough of them. */
static int keep_op(struct xccl_async_op *op)
{
    struct xccl_comm_async *async = atomic_load_explicit(&op->comm->async, memory_order_relaxed);

    if (async->spare_count == SPARES_MAX)
        return 0;
    op->next = async->spare;
    async->spare = op;
    async->spare_count++;
    return 1;
}

void xccl_async_batch_init(struct xccl_async_batch *batch)
{
    batch->first = batch->last = NULL;
    batch->waits = 0;
    init_stream(&batch->here);
}

/* The stream that an operation of comm is really given to. */
static struct xccl_host_stream *stream_for(struct xccl_async_batch *batch, struct xcclComm *comm,
                                           struct xccl_host_stream *stream)
{
    if (stream)
        return stream;
    if (comm->is_nonblocking)
        return &atomic_load_explicit(&comm->async, memory_order_relaxed)->own;
    batch->waits = 1;
    return &batch->here;
}

static void add_link(struct xccl_async_op *op, struct xccl_host_stream *stream)
{
    for (uint32_t i = 0; i < op->link_count; i++)
        if (op->links[i].stream == stream)
            return;
    op->links[op->link_count++] = (struct xccl_async_link){.op = op, .stream = stream};
}

static void add_op(struct xccl_async_batch *batch, struct xccl_async_op *op)
{
    if (batch->last)
        batch->last->next = op;
    else
        batch->first = op;
    batch->last = op;
}

xcclResult_t xccl_async_add_call(struct xccl_async_batch *batch, const struct xccl_task *task,
                                 struct xccl_host_stream *stream)
{
    struct xccl_async_op *op = get_op(task->comm);

    if (!op)
        return xcclSystemError;
    op->task = *task;
    xccl_call_sizes_get(task->call.sizes);
    xccl_planner_hold_op(&task->comm->planner, task->call.op);
    add_link(op, stream_for(batch, task->comm, stream));
    add_op(batch, op);
    return xcclSuccess;
}

xcclResult_t xccl_async_add_p2p(struct xccl_async_batch *batch, struct xcclComm *comm,
                                const struct xccl_p2p_item *items,
                                struct xccl_host_stream *const *given, uint32_t count)
{
    xcclResult_t rc = xccl_comm_check_p2p(comm, items, count);
    struct xccl_async_op *op;

    if (rc)
        return rc;
    op = get_op(comm);
    if (!op)
        return xcclSystemError;
    op->items = &op->own_item;
    op->item_count = count;
    if (count > 1) {
        op->items = xccl_calloc(count, sizeof *op->items);
        op->links = xccl_calloc(count, sizeof *op->links);
        if (!op->items || !op->links) {
            release_op(op);
            xccl_free(op);
            return xcclSystemError;
        }
    }
    memcpy(op->items, items, count * sizeof *items);
    for (uint32_t i = 0; i < count; i++)
        add_link(op, stream_for(batch, comm, given[i]));
    add_op(batch, op);
    return xcclSuccess;
}

void xccl_async_drop(struct xccl_async_batch *batch)
{
    while (batch->first) {
        struct xccl_async_op *op = batch->first;

        batch->first = op->next;
        release_op(op);
        xccl_free(op);
    }
}

/* The lock is held. */
static void enqueue(struct xccl_async_op *op)
{
    struct xccl_comm_async *async = atomic_load_explicit(&op->comm->async, memory_order_relaxed);

    op->batch = batches;
    op->next = NULL;
    if (async->first) {
        async->last->next = op;
    } else {
        async->first = op;
        async->next = queued;
        queued = async;
    }
    async->last = op;
    atomic_fetch_add_explicit(&async->outstanding, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < op->link_count; i++)
        link_in(&op->links[i]);
}

/* All at once, but for those whose communicator has failed: these are left in the batch, and rc is
 * the first one's error. An error that is raised after the look is found by xccl_comm_drain_failed.
 */
static xcclResult_t enqueue_all(struct xccl_async_batch *batch)
{
    struct xccl_async_op **at = &batch->first;
    xcclResult_t rc = xcclSuccess;

    xccl_lock_take(&lock);
    batches++;
    while (*at) {
        struct xccl_async_op *op = *at;
        xcclResult_t failed = rc ? (xcclResult_t)atomic_load_explicit(&op->comm->error,
                                                                      memory_order_relaxed)
                                 : xccl_comm_error(op->comm);

        if (failed) {
            rc = rc ? rc : failed;
            at = &op->next;
            continue;
        }
        *at = op->next;
        /* Relaxed: for this thread, whose next call has to look. */
        atomic_fetch_or_explicit(&op->comm->detour, XCCL_DETOUR_ASYNC, memory_order_relaxed);
        enqueue(op);
    }
    xccl_lock_give(&lock);
    return rc;
}

xcclResult_t xccl_async_submit(struct xccl_async_batch *batch)
{
    int waits = batch->waits;
    xcclResult_t rc = waits ? xccl_async_thread_get() : xcclSuccess;

    if (!rc) {
        rc = enqueue_all(batch);
        xccl_async_thread_ring();
    } else {
        waits = 0;
    }
    xccl_async_drop(batch);
    if (waits) {
        xcclResult_t ended = xccl_host_stream_wait(&batch->here);

        rc = rc ? rc : ended;
        xccl_async_thread_put();
    }
    return rc;
}

/* --- gates --- */

struct xccl_async_gate {
    struct xccl_async_op *op;
    int is_open; /* guarded by the lock */
};

xcclResult_t xccl_async_gate_create(struct xcclComm *comm, struct xccl_async_gate **gate_out)
{
    struct xccl_async_gate *gate = xccl_calloc(1, sizeof *gate);
    struct xccl_async_op *op = gate ? get_op(comm) : NULL;
    struct xccl_async_batch batch;
    xcclResult_t rc;

    if (!op) {
        xccl_free(gate);
        return xcclSystemError;
    }
    gate->op = op;
    op->gate = gate;
    add_link(op, &atomic_load_explicit(&comm->async, memory_order_relaxed)->own);
    xccl_async_batch_init(&batch);
    add_op(&batch, op);
    rc = xccl_async_submit(&batch);
    if (rc)
        xccl_free(gate);
    else
        *gate_out = gate;
    return rc;
}

/* The lock is held. */
static void open_gate(struct xccl_async_gate *gate)
{
    gate->is_open = 1;
    xccl_async_thread_ring(); /* for the join that waits for it */
}

int xccl_async_gate_is_open(struct xccl_async_gate *gate)
{
    int is_open;

    xccl_lock_take(&lock);
    is_open = gate->is_open;
    xccl_lock_give(&lock);
    return is_open;
}

void xccl_async_gate_close(struct xccl_async_gate *gate)
{
    if (!gate)
        return;
    xccl_async_ended(gate->op, xcclSuccess);
    xccl_async_thread_ring();
    xccl_free(gate);
}

/* --- the progress thread --- */

void xccl_async_give_job(struct xccl_async_job *given)
{
    xccl_lock_take(&lock);
    given->next = jobs;
    jobs = given;
    xccl_lock_give(&lock);
    xccl_async_thread_ring();
}

struct xccl_async_job *xccl_async_take_job(void)
{
    struct xccl_async_job *taken;

    xccl_lock_take(&lock);
    taken = jobs;
    if (taken)
        jobs = taken->next;
    xccl_lock_give(&lock);
    return taken;
}

/* All that is before it in its streams was given together with it. The lock is held. */
static int is_first(const struct xccl_async_op *op)
{
    for (uint32_t i = 0; i < op->link_count; i++)
        if (op->links[i].stream->first->op->batch != op->batch)
            return 0;
    return 1;
}

/* Its operations end at once, whatever they stand behind, and whoever is inside: an aborter is for
 * ever. Relaxed: begin looks properly. */
static int has_failed(const struct xcclComm *comm)
{
    return atomic_load_explicit(&comm->error, memory_order_relaxed) != xcclSuccess;
}

/* Somebody is inside for a moment, such as one who registers a buffer, or a split. */
static int is_held(const struct xcclComm *comm)
{
    return atomic_load_explicit(&comm->crank.held, memory_order_relaxed) ||
           atomic_load_explicit(&comm->inside, memory_order_relaxed);
}

struct xccl_async_op *xccl_async_take(int *held_out)
{
    struct xccl_async_op *op = NULL;

    *held_out = 0;
    xccl_lock_take(&lock);
    for (struct xccl_comm_async *async = queued; async && !op; async = async->next) {
        int failed = has_failed(async->comm);

        if (async->started || (!failed && !is_first(async->first)))
            continue;
        if (!failed && is_held(async->comm)) {
            *held_out = 1;
            continue;
        }
        async->started = 1;
        if (async->first->gate)
            open_gate(async->first->gate);
        else
            op = async->first;
    }
    xccl_lock_give(&lock);
    return op;
}

/* The lock is held. */
static void unqueue(struct xccl_comm_async *async, struct xccl_async_op *op)
{
    struct xccl_async_op *before = NULL;

    for (struct xccl_async_op *next = async->first; next != op; next = next->next)
        before = next; /* only a gate may be closed before its turn */
    if (before)
        before->next = op->next;
    else
        async->first = op->next;
    if (async->last == op)
        async->last = before;
    if (!before)
        async->started = 0;
    if (async->first)
        return;
    for (struct xccl_comm_async **at = &queued; *at; at = &(*at)->next) {
        if (*at != async)
            continue;
        *at = async->next;
        break;
    }
}

void xccl_async_ended(struct xccl_async_op *op, xcclResult_t rc)
{
    struct xccl_comm_async *async = atomic_load_explicit(&op->comm->async, memory_order_relaxed);
    struct xccl_async_link *links = op->links;
    int kept;

    if (op->items != &op->own_item)
        xccl_free(op->items);
    if (!op->items)
        xccl_planner_release_op(&op->comm->planner, op->task.call.op);
    xccl_call_sizes_put(op->task.call.sizes);
    xccl_lock_take(&lock);
    unqueue(async, op);
    for (uint32_t i = 0; i < op->link_count; i++) {
        if (rc)
            fail_stream(links[i].stream, rc);
        link_out(&links[i]);
    }
    if (links != &op->own_link)
        xccl_free(links);
    kept = keep_op(op);
    count_down(&async->outstanding, &async->bell);
    xccl_lock_give(&lock);
    if (!kept)
        xccl_free(op);
}

/* --- communicators --- */

int xccl_comm_is_async(const struct xcclComm *comm)
{
    const struct xccl_comm_async *async = atomic_load_explicit(&comm->async, memory_order_relaxed);

    /* Acquire: the operations' ends come before what the caller does. Pairs with count_down(). */
    return async && atomic_load_explicit(&async->outstanding, memory_order_acquire);
}

xcclResult_t xccl_comm_progress_state(const struct xcclComm *comm)
{
    const struct xccl_comm_async *async = atomic_load_explicit(&comm->async, memory_order_acquire);

    /* Acquire: what the operations did. Pairs with count_down(). */
    if (!comm->is_nonblocking || !async ||
        !atomic_load_explicit(&async->own.outstanding, memory_order_acquire))
        return xcclSuccess;
    return xcclInProgress;
}

/* Relaxed: set by this thread, or by a call that must come before this one. */
static int was_async(const struct xcclComm *comm)
{
    return atomic_load_explicit(&comm->detour, memory_order_relaxed) & XCCL_DETOUR_ASYNC;
}

xcclResult_t xccl_comm_enter_aside(struct xcclComm *comm)
{
    return was_async(comm) ? xccl_comm_error(comm) : xccl_comm_enter(comm);
}

void xccl_comm_leave_aside(struct xcclComm *comm)
{
    if (!was_async(comm))
        xccl_comm_leave(comm);
}

void xccl_comm_drain(struct xcclComm *comm)
{
    struct xccl_comm_async *async = atomic_load_explicit(&comm->async, memory_order_acquire);

    if (async)
        (void)wait_for_none(&async->outstanding, &async->bell, &no_limit);
}

int xccl_comm_drain_failed(struct xcclComm *comm, const struct xccl_limit *limit)
{
    struct xccl_comm_async *async;

    /* Who enqueues looks at the error under the lock: it sees it, or is seen here. */
    xccl_lock_take(&lock);
    async = atomic_load_explicit(&comm->async, memory_order_acquire);
    xccl_lock_give(&lock);
    if (!async)
        return 1;
    xccl_async_thread_ring();
    return wait_for_none(&async->outstanding, &async->bell, limit);
}

void xccl_comm_async_free(struct xcclComm *comm)
{
    struct xccl_comm_async *async = atomic_load_explicit(&comm->async, memory_order_acquire);

    while (async && async->spare) {
        struct xccl_async_op *op = async->spare;

        async->spare = op->next;
        xccl_free(op);
    }
    xccl_free(async);
    atomic_store_explicit(&comm->async, NULL, memory_order_relaxed);
}
