/* SPDX-License-Identifier: BSD-3-Clause */
/* Who calls the plugin's progress, and when:
 *
 *   a waiting call       the caller, in its slow branch: another rank may wait for what is held
 *                        here while this rank waits for that one over other links
 *   the end of a call    the caller, once; what is pending then arms the timer
 *   between calls        the service thread by its timer, which lends itself the crank; while
 *                        something is pending the timer is armed again
 *   an orderly leave     the caller, until nothing is pending or LEAVE_MS have passed
 *
 * A timer that finds a caller inside stays unarmed: that caller arms it at its end.
 *
 * A plugin's error is kept for XCCL_VERDICT_NS before it fails the communicator: when a rank dies,
 * the control plane knows its name and speaks within that time.
 *
 * Two words keep threads apart. `inside` is the callers' (and the aborter's): it tells a second
 * caller from a lender, and it stays set after an abort, when all else here is gone. The crank is
 * the holder's. Order: inside, then crank, then the loop's lock; the timer runs inside the loop's
 * lock and so only tries the crank. Thread: see the header. */
#include "comm/comm_progress.h"

#include <stdio.h>
#include <time.h>

#include "base/alloc.h"
#include "base/log.h"

#define TURN_NS      XCCL_NS_PER_MS
#define LEAVE_MS     1000
#define LEAVE_NAP_NS 50000

struct xccl_comm_progress {
    struct xccl_source source;
    struct xcclComm *comm;
    _Atomic uint32_t pending; /* 1: the plugin holds something, or its error is not raised yet */
    /* The crank's holder: */
    xcclResult_t rc; /* a plugin's first error */
    const struct xccl_net *failed; /* that plugin */
    uint64_t raise_ns; /* when it fails the communicator */
    char text[XCCL_ERROR_TEXT_BYTES];
};

static int has_failed(struct xcclComm *comm)
{
    /* Relaxed: only whether, not why. */
    return atomic_load_explicit(&comm->error, memory_order_relaxed) != xcclSuccess;
}

/* What the last turn found. Relaxed: who reads an older value is not the last one to look. */
static int is_pending(struct xccl_comm_progress *progress)
{
    return (int)atomic_load_explicit(&progress->pending, memory_order_relaxed);
}

static void keep_error(struct xccl_comm_progress *progress, const struct xccl_net *net,
                       xcclResult_t rc)
{
    const char *text = net->calls.lastError(net->ctx);

    progress->rc = rc;
    progress->raise_ns = xccl_clock_ns() + XCCL_VERDICT_NS;
    progress->failed = net;
    snprintf(progress->text, sizeof progress->text, "%s",
             text && *text ? text : "it does not say why");
}

/* Calls each plugin once. A failed communicator delivers nothing any more. The crank's holder. */
static void ask_plugins(struct xccl_comm_progress *progress)
{
    struct xcclComm *comm = progress->comm;
    int any = 0;

    for (int i = 0; i < comm->net_count && !progress->rc && !has_failed(comm); i++) {
        struct xccl_net *net = comm->nets[i];
        int pending = 0;
        xcclResult_t rc;

        xccl_net_enter(net->watch, net->position, XCCL_NET_PROGRESS);
        rc = net->calls.progress(net->ctx, &pending);
        xccl_net_leave(net->watch);
        if (rc)
            keep_error(progress, net, rc);
        any |= pending;
    }
    if (progress->rc)
        any = !has_failed(comm);
    atomic_store_explicit(&progress->pending, any != 0, memory_order_relaxed);
}

/* The crank's holder. */
static void raise_when_due(struct xccl_comm_progress *progress)
{
    struct xcclComm *comm = progress->comm;
    struct xccl_verdict verdict;

    if (!progress->rc || has_failed(comm) || xccl_clock_ns() < progress->raise_ns)
        return;
    verdict = xccl_comm_verdict(comm, XCCL_TROUBLE_PLUGIN_UNDELIVERED, comm->rank);
    verdict.rc = progress->rc;
    verdict.mine = (struct xccl_act){.kind = XCCL_ACT_CALL, .call.seq = comm->seq};
    snprintf(verdict.plugin, sizeof verdict.plugin, "%s", progress->failed->calls.name);
    xccl_verdict_set_why(&verdict, progress->text);
    (void)xccl_comm_raise(comm, &verdict);
}

/* For xccl_crank_lend(): 1 asks for another turn within the budget. */
static int lend_turn(void *owner)
{
    struct xccl_comm_progress *progress = owner;

    ask_plugins(progress);
    raise_when_due(progress);
    return is_pending(progress) && !progress->rc;
}

/* The service thread. */
static void on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct xccl_comm_progress *progress = source->owner;

    xccl_log_set_rank(progress->comm->rank);
    if (xccl_crank_lend(&progress->comm->crank, XCCL_CRANK_LEND_NS) && is_pending(progress))
        xccl_loop_set_timer(source, now_ns + TURN_NS);
    xccl_log_set_rank(-1);
}

/* Does a device that links use need it? */
static int is_needed(const struct xcclComm *comm)
{
    for (int i = 0; i < comm->net_count; i++) {
        for (int kind = 0; kind < XCCL_NET_KINDS; kind++) {
            const struct xccl_net_device *device = &comm->nets[i]->use[kind];

            if (device->number != XCCL_NET_NO_DEVICE && device->needs_progress)
                return 1;
        }
    }
    return 0;
}

xcclResult_t xccl_init_progress(struct xcclComm *comm)
{
    struct xccl_comm_progress *progress;

    if (!is_needed(comm)) {
        xccl_crank_init(&comm->crank, 0, NULL, NULL);
        return xcclSuccess;
    }
    progress = xccl_calloc(1, sizeof *progress);
    if (!progress)
        return xcclSystemError;
    progress->comm = comm;
    progress->source.fd = -1;
    progress->source.timer_ns = XCCL_NEVER_NS;
    progress->source.on_timer = on_timer;
    progress->source.owner = progress;
    comm->progress = progress;
    xccl_crank_init(&comm->crank, 1, lend_turn, progress);
    xccl_log(XCCL_LOG_DEBUG, "network plugin %s needs progress: the service thread helps",
             comm->nets[0]->calls.name);
    return xccl_loop_add(comm->loop, &progress->source);
}

void xccl_comm_progress_destroy(struct xcclComm *comm)
{
    if (!comm->progress)
        return;
    xccl_loop_remove(&comm->progress->source);
    xccl_free(comm->progress);
    comm->progress = NULL;
}

void xccl_comm_progress_leave(struct xcclComm *comm)
{
    struct xccl_comm_progress *progress = comm->progress;
    struct xccl_limit limit = xccl_limit_ms(LEAVE_MS, NULL);

    if (!progress)
        return;
    /* Afterwards the timer does not run and never will: this thread is alone. */
    xccl_loop_remove(&progress->source);
    ask_plugins(progress);
    while (is_pending(progress) && !progress->rc && !xccl_limit_passed(&limit)) {
        nanosleep(&(struct timespec){.tv_nsec = LEAVE_NAP_NS}, NULL);
        ask_plugins(progress);
    }
    if (is_pending(progress))
        xccl_log(XCCL_LOG_WARN,
                 "rank %d leaves although network plugin %s has not delivered all data: %s; ranks "
                 "that still wait for this data will name this rank",
                 comm->rank, comm->nets[0]->calls.name,
                 progress->rc ? progress->text : "1 s has passed");
}

void xccl_comm_progress_turn(struct xcclComm *comm)
{
    if (!comm->progress)
        return;
    ask_plugins(comm->progress);
    raise_when_due(comm->progress);
}

/* The lender is the service thread, inside its loop's lock: it can tell nobody, and the other ranks
 * will miss its heartbeats. */
static void tell_lender_stuck(struct xcclComm *comm)
{
    struct xccl_verdict verdict = xccl_comm_verdict(comm, XCCL_TROUBLE_LENDER_STUCK, comm->rank);
    struct xccl_notice notice;

    snprintf(verdict.plugin, sizeof verdict.plugin, "%s", comm->nets[0]->calls.name);
    if (xccl_comm_keep_verdict(comm, &verdict, &notice))
        xccl_comm_log_notice(&notice);
}

__attribute__((noinline)) int xccl_comm_progress_claim(struct xcclComm *comm)
{
    /* Acquire: pairs with the store in xccl_comm_progress_release(). */
    if (atomic_exchange_explicit(&comm->inside, 1, memory_order_acquire))
        return 0;
    if (xccl_crank_take(&comm->crank)) /* only a lender can have it */
        return 1;
    tell_lender_stuck(comm);
    atomic_store_explicit(&comm->inside, 0, memory_order_release);
    return 0;
}

__attribute__((noinline)) void xccl_comm_progress_release(struct xcclComm *comm)
{
    struct xccl_comm_progress *progress = comm->progress;
    int pending;

    ask_plugins(progress);
    pending = is_pending(progress);
    xccl_crank_put(&comm->crank);
    /* After the put: a timer that finds the crank taken would not be armed again. */
    if (pending)
        xccl_loop_set_timer(&progress->source, xccl_clock_ns() + TURN_NS);
    /* Release, and the last touch: the next caller sees all of it, and an aborter may free it.
     * Pairs with xccl_comm_progress_claim(). */
    atomic_store_explicit(&comm->inside, 0, memory_order_release);
}
