/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator made from another one: the ranks of a color meet through the parent's bootstrap,
 * without a root, and then come up by the same phases as ranks that join by ids. The parent is in
 * use, as by a call, until the ranks of the color are known; a child that fails later leaves it
 * unharmed. What a child needs it makes for itself; of the parent it shares the thread that looks
 * after CUDA communicators.
 *
 * Thread: the one that splits; it has the parent's crank while holds_crank says so. */
#include <stdio.h>
#include <string.h>

#include "call/comm_call.h"
#include "comm/comm_list.h"
#include "comm/comm_progress.h"
#include "comm/comm_record.h"
#include "comm/device_ops.h"
#include "join/join_int.h"
#include "stream/comm_async.h"
#include "watch/comm_verdict.h"
#include "watch/standstill.h"

/* For the parent's control plane to name a culprit: ranks that wait for each other in a circle say
 * so after 0.5 s, if they get time. */
#define VERDICT_NS (1500 * XCCL_NS_PER_MS)

xcclResult_t xccl_split_init(struct xccl_init *init, const struct xccl_join_args *join,
                             struct xccl_init *const *earlier, uint32_t count)
{
    init->parent = join->parent;
    init->color = join->color;
    init->key = join->key;
    for (uint32_t i = 0; i < count; i++)
        if (earlier[i]->parent == join->parent)
            init->before = earlier[i];
    if (xccl_comm_error(join->parent) || !join->is_nonblocking || init->before)
        return xccl_comm_error(join->parent);
    /* What is given after it waits until all is over, also the end of the parent. */
    return xccl_async_gate_create(join->parent, &init->gate);
}

/* Out of band the parent is of no use any more; its control plane may know who is to blame. */
static xcclResult_t fail_parent(struct xccl_init *init, xcclResult_t rc)
{
    char text[XCCL_ERROR_TEXT_BYTES];
    xcclResult_t known;

    snprintf(text, sizeof text, "%s", xccl_error_text());
    known = xccl_comm_await_error(init->parent, VERDICT_NS);
    if (!known)
        xccl_error_set_text(text);
    return known ? known : rc;
}

/* When its turn has come. */
static xcclResult_t begin(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *parent = init->parent;
    int ended;
    xcclResult_t rc;

    if (init->before && !init->before->found)
        return xcclSuccess;
    if (init->gate && !xccl_async_gate_is_open(init->gate))
        return xcclSuccess;
    if (!init->gate && !init->before && xccl_comm_is_async(parent)) { /* that comes first */
        *state_out = XCCL_INIT_POLL;
        return xcclSuccess;
    }
    rc = xccl_comm_enter(parent);
    if (rc)
        return rc;
    init->holds_crank = 1;
    /* Release: after the last call's word. Pairs with check_boards() in comm_verdict.c. */
    atomic_store_explicit(&parent->board->splits,
                          atomic_load_explicit(&parent->board->splits, memory_order_relaxed) + 1,
                          memory_order_release);
    parent->ops->hold(parent);
    xccl_standstill_split(parent);
    parent->ops->release(parent);
    xccl_bootstrap_set_bell(parent->boot, init->bell);
    rc = xccl_bootstrap_split_start(parent->boot, init->color, init->key, &init->limit, init->bell);
    init->begun = !rc;
    xccl_record_note(parent->record, XCCL_RECORD_SPLIT, (uint32_t)init->color);
    if (rc && xccl_bootstrap_test(parent->boot, &ended)) /* not this rank's own trouble */
        return fail_parent(init, rc);
    return rc;
}

/* The ranks of the color are known: what is left is theirs. */
static void adopt(struct xccl_init *init)
{
    struct xcclComm *comm = init->comm;

    xccl_bootstrap_take_child(init->parent->boot, &comm->boot);
    init->found = 1;
    if (comm->boot) /* while the parent is there for certain */
        comm->ops->share(comm, init->parent);
    xccl_split_fini(init);
    init->is_none = !comm->boot;
    if (init->is_none)
        return;
    comm->rank = xccl_bootstrap_rank(comm->boot);
    comm->nranks = xccl_bootstrap_nranks(comm->boot);
    xccl_comm_set_id(comm, xccl_bootstrap_comm_id(comm->boot));
    memcpy(init->job.comm_id, comm->id, sizeof init->job.comm_id);
    xccl_comm_record_describe(comm);
}

xcclResult_t xccl_split_step(struct xccl_init *init, enum xccl_init_state *state_out)
{
    int ended = 0;
    xcclResult_t rc;

    *state_out = XCCL_INIT_WAIT;
    if (!init->begun)
        return begin(init, state_out);
    xccl_comm_progress_turn(init->parent); /* a peer may wait for what its plugin still holds */
    rc = xccl_comm_error(init->parent);
    if (rc)
        return rc;
    rc = xccl_bootstrap_test(init->parent->boot, &ended);
    if (rc)
        return fail_parent(init, rc);
    if (!ended)
        return xcclSuccess;
    adopt(init);
    *state_out = XCCL_INIT_DONE;
    return xcclSuccess;
}

void xccl_split_fini(struct xccl_init *init)
{
    struct xccl_bootstrap *child = NULL;

    if (!init || !init->holds_crank)
        return;
    init->holds_crank = 0;
    xccl_bootstrap_set_bell(init->parent->boot, NULL);
    if (!init->found)
        xccl_bootstrap_take_child(init->parent->boot, &child);
    if (child) { /* it would ring the bell of a thread that has gone */
        xccl_bootstrap_set_bell(child, NULL);
        xccl_bootstrap_close(child);
    }
    xccl_comm_release(init->parent);
}

void xccl_split_refuse(struct xcclComm *parent, int begun, xcclResult_t rc)
{
    char text[XCCL_ERROR_TEXT_BYTES];

    if (atomic_load_explicit(&parent->error, memory_order_relaxed))
        xccl_comm_set_told(parent);
    if (!begun && (rc == xcclInvalidArgument || rc == xcclInvalidUsage))
        return;
    snprintf(text, sizeof text, "%s", xccl_error_text());
    if (!xccl_comm_error(parent)) {
        xccl_error_set_text(text);
        (void)xccl_comm_fail_own(parent, rc, XCCL_TROUBLE_CANNOT_SPLIT);
    }
    xccl_error_set_text(text);
}
