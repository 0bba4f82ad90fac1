/* SPDX-License-Identifier: BSD-3-Clause */
/* One call: number, board, plan, run, wait, end. What the wait's slow branch looks at, and who is
 * to blame when a call fails, is comm_verdict.c.
 *
 * Path of a repeated call: argument checks (api), crank, error word, last plan, run, board. No
 * lock, no allocation, no clock, and no system call but for large ones.
 * Thread: the caller, who holds the crank. */
#include "call/comm_call.h"

#include "base/log.h"
#include "call/comm_plan.h"
#include "comm/comm_progress.h"
#include "comm/comm_record.h"
#include "comm/device_ops.h"
#include "connect/comm_links.h"
#include "watch/comm_verdict.h"
#include "watch/control.h"

#define INLINE static inline __attribute__((always_inline)) /* once more in xccl_comm_execute() */

static xcclResult_t busy(struct xcclComm *comm)
{
    if (xccl_comm_error(comm)) /* an aborted communicator is busy for ever */
        return xccl_comm_error(comm);
    return xccl_fail(xcclInvalidUsage, 0,
                     "use one thread at a time, or a separate communicator for each thread",
                     "rank %d: another thread is using this communicator", comm->rank);
}

xcclResult_t xccl_comm_enter(struct xcclComm *comm)
{
    xcclResult_t rc;

    if (!xccl_comm_claim(comm))
        return busy(comm);
    if (comm->needs_fence) /* as in xccl_comm_abort() */
        atomic_thread_fence(memory_order_seq_cst);
    rc = xccl_comm_error(comm);
    if (!rc)
        return xcclSuccess;
    xccl_comm_set_told(comm);
    xccl_comm_release(comm);
    return rc;
}

void xccl_comm_leave(struct xcclComm *comm)
{
    xccl_comm_release(comm);
}

/* A call that is only to be connected takes place also where settings leave no way to do it. */
static xcclResult_t find_links(struct xcclComm *comm, const struct xccl_call *call,
                               struct xccl_found *found_out)
{
    int left_out;
    xcclResult_t rc = xccl_comm_plan_links(comm, call, found_out, &left_out);

    if (rc || !left_out || comm->left_out & 1u << call->coll)
        return rc;
    comm->left_out |= 1u << call->coll; /* the other sizes say the same */
    xccl_log(XCCL_LOG_INFO, "no connections are created for %s: %s", xccl_coll_name(call->coll),
             xccl_error_text());
    return rc;
}

/* What there is for a call. */
static xcclResult_t find_plan(struct xcclComm *comm, const struct xccl_task *task,
                              struct xccl_found *found_out)
{
    xcclResult_t rc;

    if (task->connects)
        rc = find_links(comm, &task->call, found_out);
    else
        rc = xccl_plan_get(&comm->planner, &task->call, found_out);
    if (rc == xcclSystemError) /* only this rank fails: the others must know */
        rc = xccl_comm_fail_own(comm, rc, XCCL_TROUBLE_CANNOT_PLAN);
    return rc;
}

/* The links of the call are made in its wait, beside those of other communicators of a group. */
static void start_later(struct xcclComm *comm, const struct xccl_task *task)
{
    struct xccl_run *run = &comm->run;

    comm->connects = task->connects;
    comm->ahead = task->ahead;
    xccl_run_clear(run);
    run->flag_low = xccl_flag_low(comm->signature ^ comm->args.mark, comm->seq);
}

/* The call is the last one but for its buffers. Plans stay while none is made; those with an
 * operator of the program are made up again for each call. */
static inline int is_same(const struct xcclComm *comm, const struct xccl_task *task)
{
    const struct xccl_call *call = &task->call, *last = &comm->call;

    return call->count == last->count && call->coll == last->coll && call->type == last->type &&
           call->op == last->op && call->root == last->root && !call->sizes &&
           call->op < xcclNumOps && !task->connects && comm->run.plan &&
           comm->told_plans == comm->planner.plans_made;
}

static inline void set_args(struct xcclComm *comm, const struct xccl_task *task)
{
    comm->args.in = task->send;
    comm->args.out = task->recv;
    comm->args.seq = ++comm->seq;
}

/* A call of its own kind where it is only connected. */
#define CONNECTS_MARK 0x636f6e6e65637473ull

/* Compares the call with those of others: where ranks differ, the one that begins last finds it at
 * once. Where it is not known whether the others have begun, and for ranks of other hosts, the
 * service threads look before long. */
static void look_at_others(struct xcclComm *comm)
{
    if (!comm->ops->tells_board && xccl_comm_look_early(comm)) {
        xccl_run_clear(&comm->run);
        comm->run.rc = xccl_comm_error(comm);
    }
}

/* Its plan is at hand, and nothing of it has to be told again. */
static inline void begin_same(struct xcclComm *comm, const struct xccl_task *task)
{
    set_args(comm, task);
    xccl_run_start_again(&comm->run, &comm->args);
    xccl_board_write_again(comm->board, comm->seq, comm->run.flag_low);
}

static __attribute__((noinline)) xcclResult_t begin_other(struct xcclComm *comm,
                                                          const struct xccl_task *task)
{
    struct xccl_found found = {0};
    struct xccl_board_call call;
    xcclResult_t rc = find_plan(comm, task, &found);

    if (rc)
        return rc;
    set_args(comm, task);
    comm->args.mark = xccl_mark_after(comm->args.mark, comm->signature);
    comm->signature = task->connects ? found.signature ^ CONNECTS_MARK : found.signature;
    comm->call = task->call;
    /* Sizes are let go of at the end; a plan for them is no other call's. */
    comm->told_plans = task->call.sizes ? 0 : comm->planner.plans_made;
    call = xccl_comm_own_call(comm);
    call.coll |= task->connects == XCCL_CONNECTS_ALL ? XCCL_BOARD_CONNECTS : 0;
    comm->ends_early = xccl_comm_may_end_early(comm, &call);
    comm->run.kind = comm->ops->tells_board ? &xccl_talk_kind : &xccl_call_kind;
    comm->run.owner = comm;
    if (found.plan && !task->connects)
        rc = xccl_comm_start_run(comm, found.plan);
    else
        start_later(comm, task);
    if (comm->ops->tells_board)
        atomic_store_explicit(&comm->board->talks, (uint32_t)comm->seq, memory_order_relaxed);
    else
        xccl_board_write(comm->board, &call, comm->run.flag_low);
    if (rc) { /* the others know of the call by now */
        xccl_run_clear(&comm->run);
        comm->run.rc = rc;
    } else if (comm->ends_early) {
        look_at_others(comm);
    }
    xccl_comm_record_call(comm);
    return xcclSuccess;
}

INLINE xcclResult_t begin(struct xcclComm *comm, const struct xccl_task *task)
{
    xcclResult_t rc;

    if (__builtin_expect(!xccl_comm_claim(comm), 0))
        return busy(comm);
    if (__builtin_expect(comm->needs_fence, 0)) /* as in xccl_comm_abort() */
        atomic_thread_fence(memory_order_seq_cst);
    rc = xccl_comm_error(comm);
    if (__builtin_expect(!rc && is_same(comm, task), 1))
        begin_same(comm, task);
    else if (!rc)
        rc = begin_other(comm, task);
    if (__builtin_expect(rc != xcclSuccess, 0)) {
        xccl_comm_set_told(comm);
        xccl_comm_release(comm);
        return rc;
    }
    xccl_comm_record_begin(comm);
    return xcclSuccess;
}

/* What is rare in a call is not inlined, here and below: then the rest needs few registers. */
static __attribute__((noinline, cold)) xcclResult_t fail(struct xcclComm *comm, xcclResult_t rc)
{
    rc = xccl_comm_blame(comm, rc);
    xccl_comm_set_told(comm);
    xccl_comm_links_revoke(comm);
    xccl_comm_links_let_go(comm->links);
    return rc;
}

INLINE xcclResult_t end(struct xcclComm *comm, xcclResult_t rc)
{
    if (__builtin_expect(rc != xcclSuccess, 0))
        rc = fail(comm, rc);
    xccl_comm_record_end(comm, rc);
    comm->call.sizes = NULL; /* the caller's, who may free them now */
    atomic_store_explicit(&comm->board->outside, 1, memory_order_relaxed);
    xccl_comm_release(comm);
    return rc;
}

xcclResult_t xccl_comm_begin(struct xcclComm *comm, const struct xccl_task *task)
{
    return begin(comm, task);
}

xcclResult_t xccl_comm_end(struct xcclComm *comm, xcclResult_t rc)
{
    return end(comm, rc);
}

xcclResult_t xccl_comm_execute(struct xcclComm *comm, const struct xccl_task *task)
{
    struct xccl_run *run = &comm->run;
    xcclResult_t rc = begin(comm, task);

    if (rc)
        return rc;
    xccl_exec_wait_one(run, &comm->policy);
    return end(comm, run->rc);
}
