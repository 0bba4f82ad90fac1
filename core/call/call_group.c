/* SPDX-License-Identifier: BSD-3-Clause */
/* Begins the first operation of each communicator, waits for whichever ends, and begins that one's
 * next. Nothing is begun twice, and what could not begin is told to the other ranks.
 * Thread: the user's. */
#include "call/call_group.h"

#include "base/alloc.h"
#include "call/comm_call.h"
#include "call/comm_p2p.h"
#include "comm/device_ops.h"

static void keep_first(xcclResult_t *rc, xcclResult_t other, const char *text)
{
    if (*rc || !other)
        return;
    *rc = other;
    xccl_error_set_text(text);
}

void xccl_call_not_begun(struct xcclComm *comm, xcclResult_t begun, xcclResult_t *rc)
{
    if (!begun)
        return;
    if (!xccl_comm_error(comm))
        begun = xccl_comm_fail_own(comm, begun, XCCL_TROUBLE_CANNOT_CONTINUE);
    keep_first(rc, begun, xccl_error_text());
}

/* Begins the next operation of comm at or after entry `from`. 0: there is none, or it cannot begin.
 * Then the communicator has failed, and the other ranks are told: they may have begun it. */
static int begin_next(struct xccl_call_work *work, uint32_t at, struct xcclComm *comm,
                      uint32_t from, xcclResult_t *rc)
{
    for (uint32_t i = from; i < work->entry_count; i++) {
        const struct xccl_entry *entry = &work->entries[i];
        xcclResult_t begun;

        if (entry->kind != XCCL_ENTRY_CALL || entry->task.comm != comm)
            continue;
        begun = xccl_comm_begin(comm, &entry->task);
        xccl_call_not_begun(comm, begun, rc);
        if (begun)
            return 0;
        work->runs[at] = &comm->run;
        work->comms[at] = comm;
        work->next[at] = i + 1;
        return 1;
    }
    return 0;
}

/* Begins all sends and receives of comm. -1: there are none; 0: they cannot begin. */
static int begin_p2p(struct xccl_call_work *work, uint32_t at, struct xcclComm *comm,
                     xcclResult_t *rc)
{
    uint32_t count = 0;
    xcclResult_t begun;

    for (uint32_t i = 0; i < work->entry_count; i++)
        if (work->entries[i].kind == XCCL_ENTRY_P2P && work->entries[i].task.comm == comm)
            work->items[count++] = work->entries[i].p2p;
    if (!count)
        return -1;
    begun = xccl_comm_begin_p2p(comm, work->items, count);
    xccl_call_not_begun(comm, begun, rc);
    if (begun)
        return 0;
    work->runs[at] = &comm->run;
    work->comms[at] = comm;
    work->next[at] = 0; /* then its calls */
    return 1;
}

static int already_seen(const struct xccl_call_work *work, const struct xcclComm *comm)
{
    for (uint32_t i = 0; i < work->seen_count; i++)
        if (work->seen[i] == comm)
            return 1;
    return 0;
}

static void begin_all(struct xccl_call_work *work, int all, xcclResult_t *rc)
{
    for (uint32_t i = 0; i < work->entry_count; i++) {
        struct xcclComm *comm = work->entries[i].task.comm;
        int begun;

        if (work->entries[i].kind > XCCL_ENTRY_P2P || (!all && comm->ops->queues) ||
            already_seen(work, comm))
            continue;
        work->seen[work->seen_count++] = comm;
        begun = begin_p2p(work, work->count, comm, rc);
        if (begun < 0)
            begun = begin_next(work, work->count, comm, i, rc);
        work->count += (uint32_t)begun;
    }
}

static void run_all(struct xccl_call_work *work, xcclResult_t *rc)
{
    while (work->count) {
        const struct xccl_wait_policy *policy = &work->comms[0]->policy;
        struct xcclComm *comm;
        xcclResult_t ended;
        unsigned at;

        xccl_exec_wait(work->runs, work->count, policy, &at);
        comm = work->comms[at];
        ended = xccl_comm_end(comm, comm->run.rc);
        if (ended)
            keep_first(rc, ended, xccl_error_text());
        if (!ended && begin_next(work, at, comm, work->next[at], rc))
            continue;
        comm->ops->resume(comm); /* its operations do not wait for the rest of the group */
        work->count--;
        work->runs[at] = work->runs[work->count];
        work->comms[at] = work->comms[work->count];
        work->next[at] = work->next[work->count];
    }
}

void xccl_call_work_run(struct xccl_call_work *work, int all, xcclResult_t *rc)
{
    if (!work->seen)
        return;
    begin_all(work, all, rc);
    run_all(work, rc);
}

xcclResult_t xccl_call_work_init(struct xccl_call_work *work, const struct xccl_entry *entries,
                                 uint32_t count, uint32_t operations)
{
    work->entries = entries;
    work->entry_count = count;
    work->count = work->seen_count = 0;
    work->runs = work->few_runs;
    work->comms = work->few_comms;
    work->next = work->few_next;
    work->seen = operations ? work->few_seen : NULL;
    work->items = work->few_items;
    if (operations <= XCCL_CALL_FEW)
        return xcclSuccess;
    work->runs = xccl_calloc(operations, sizeof(void *));
    work->comms = xccl_calloc(operations, sizeof(void *));
    work->next = xccl_calloc(operations, sizeof *work->next);
    work->seen = xccl_calloc(operations, sizeof(void *));
    work->items = xccl_calloc(operations, sizeof *work->items);
    return work->runs && work->comms && work->next && work->seen && work->items ? xcclSuccess
                                                                                : xcclSystemError;
}

void xccl_call_work_fini(struct xccl_call_work *work)
{
    if (work->runs == work->few_runs)
        return;
    xccl_free(work->runs);
    xccl_free(work->comms);
    xccl_free(work->next);
    xccl_free(work->seen);
    xccl_free(work->items);
}

xcclResult_t xccl_call_group(const struct xccl_entry *entries, uint32_t count)
{
    struct xccl_call_work work;
    xcclResult_t rc = xccl_call_work_init(&work, entries, count, count);

    if (!rc)
        xccl_call_work_run(&work, 1, &rc);
    xccl_call_work_fini(&work);
    return rc;
}

xcclResult_t xccl_call_messages(struct xcclComm *comm, const struct xccl_entry *entries,
                                uint32_t count)
{
    struct xccl_run *run = &comm->run;
    struct xccl_p2p_item items[XCCL_CALL_FEW];
    xcclResult_t rc = xcclSuccess, begun;

    for (uint32_t i = 0; i < count; i++)
        items[i] = entries[i].p2p;
    begun = xccl_comm_begin_p2p(comm, items, count);
    xccl_call_not_begun(comm, begun, &rc);
    if (begun)
        return rc;
    xccl_exec_wait_one(run, &comm->policy);
    return xccl_comm_end(comm, run->rc);
}
