/* SPDX-License-Identifier: BSD-3-Clause */
/* How a call gets its plan: what has none yet gets its links, step by step within the wait of the
 * call, and then its plan. Thread: the crank's holder. */
#include "call/comm_plan.h"

#include "base/alloc.h"
#include "base/log.h"
#include "comm/comm_record.h"
#include "comm/device_ops.h"
#include "connect/comm_bind.h"
#include "watch/comm_verdict.h"

/* The verdict of a call that waits too long names ranks; what waits out of band shall not be first.
 */
#define TALK_SPARE_NS (5 * XCCL_NS_PER_S)
#define NEVER_SPARE   (XCCL_NEVER_NS - TALK_SPARE_NS)

/* Memory that the plan's runs need besides the user's. */
static xcclResult_t make_scratch(struct xcclComm *comm, const struct xccl_plan *plan)
{
    size_t bytes = plan->scratch_bytes + plan->room_bytes;
    void *scratch;

    if (bytes <= comm->scratch_bytes)
        return xcclSuccess;
    scratch = xccl_calloc_aligned(64, bytes);
    if (!scratch)
        return xcclSystemError;
    xccl_free(comm->args.scratch);
    comm->args.scratch = scratch;
    comm->scratch_bytes = bytes;
    return xcclSuccess;
}

xcclResult_t xccl_comm_start_run(struct xcclComm *comm, const struct xccl_plan *plan)
{
    xcclResult_t rc = xcclSuccess;

    if (__builtin_expect(plan->scratch_bytes + plan->room_bytes > comm->scratch_bytes, 0))
        rc = make_scratch(comm, plan);
    if (__builtin_expect(rc == xcclSuccess, 1))
        xccl_run_start(&comm->run, plan, &comm->args);
    return rc;
}

struct xccl_limit xccl_comm_talk_limit(const struct xcclComm *comm)
{
    struct xccl_limit limit = {.deadline_ns = XCCL_NEVER_NS};

    if (comm->timeout_ns < NEVER_SPARE)
        limit.deadline_ns = xccl_clock_ns() + comm->timeout_ns + TALK_SPARE_NS;
    return limit;
}

xcclResult_t xccl_comm_plan_links(struct xcclComm *comm, const struct xccl_call *call,
                                  struct xccl_found *found_out, int *left_out)
{
    xcclResult_t rc = xccl_plan_try(&comm->planner, call, found_out);

    *left_out = rc == xcclInvalidUsage;
    return *left_out ? xcclSuccess : rc;
}

/* Moves the binding of the call on; then there is a plan. */
static xcclResult_t prepare_step(struct xcclComm *comm, int *moved_out)
{
    struct xccl_limit limit = xccl_comm_talk_limit(comm);
    enum xccl_bind_state state = XCCL_BIND_DONE;
    struct xccl_found found;
    int ended = 1, left_out = 0;
    xcclResult_t rc = xcclSuccess;

    *moved_out = comm->ops->turn(comm);
    if (comm->bind_talks)
        rc = xccl_bootstrap_test(comm->boot, &ended);
    if (rc || !ended)
        return rc;
    comm->bind_talks = 0;
    rc = comm->connects ? xccl_comm_plan_links(comm, &comm->call, &found, &left_out)
                        : xccl_plan_get(&comm->planner, &comm->call, &found);
    if (left_out) {
        comm->run.finished = 1;
        return xcclSuccess;
    }
    if (!rc && !found.plan)
        rc = xccl_comm_bind(comm, found.binding, comm->signature + comm->seq, &limit, &state);
    if (rc)
        return rc;
    *moved_out |= state != XCCL_BIND_POLL;
    comm->bind_talks = state == XCCL_BIND_TALK;
    if (!found.plan)
        return xcclSuccess;
    comm->run.finished = comm->connects != XCCL_CONNECTS_NONE;
    if (comm->connects)
        return xcclSuccess;
    rc = xccl_comm_start_run(comm, found.plan);
    xccl_comm_record_plan(comm);
    return rc;
}

static int prepare_run(struct xccl_run *run)
{
    struct xcclComm *comm = run->owner;
    int moved = 0;

    run->rc = prepare_step(comm, &moved);
    return moved;
}

static int knows_nothing(struct xccl_run *run)
{
    (void)run;
    return 0;
}

const struct xccl_run_kind xccl_call_kind = {
    .name = "call",
    .step = prepare_run,
    .check = xccl_comm_check_call,
    .blame = knows_nothing,
    .check_left = xccl_comm_check_left,
};

const struct xccl_run_kind xccl_talk_kind = {
    .name = "talk",
    .step = prepare_run,
    .check = xccl_comm_check_talk,
    .blame = knows_nothing,
    .check_left = xccl_comm_check_left_talk,
};
