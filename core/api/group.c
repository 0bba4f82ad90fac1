/* SPDX-License-Identifier: BSD-3-Clause */
/* The group of a thread, and its execution at the end. An operation that is refused when it is
 * noted keeps the whole group from starting, and ranks that would have joined in it are declined;
 * one that fails while it runs fails its communicator, and the others are finished. Joins succeed
 * all or none. Thread: the user's. */
#include "api/group.h"

#include <string.h>

#include "api/api_int.h"
#include "api/range.h"
#include "base/alloc.h"
#include "base/fork.h"
#include "call/call_group.h"
#include "call/comm_call.h"
#include "call/comm_p2p.h"
#include "comm/comm_list.h"
#include "comm/device_ops.h"
#include "join/join.h"
#include "stream/group_async.h"

#define DEPTH_MAX   1000
#define ENTRIES_MAX (1u << 20)
#define FEW         XCCL_CALL_FEW

struct group {
    int depth;
    xcclResult_t rc; /* why it will not be executed */
    struct xccl_entry *entries; /* calls and leaves, in their order: few, or more memory */
    uint32_t count, room, leaves;
    struct xccl_join_args *joins; /* come first, whenever they were noted */
    uint32_t join_count, join_room;
    struct xccl_entry few[FEW];
    char text[XCCL_ERROR_TEXT_BYTES]; /* of rc */
};

static _Thread_local struct group group;

/* Drops the group that the only thread of a child of fork() may have been in: its calls are for
 * the parent's communicators. */
static void leave_group(void)
{
    group = (struct group){0};
}

static struct xccl_lock forks = XCCL_LOCK(leave_group); /* never taken */

void xccl_group_watch_forks(void)
{
    xccl_lock_list(&forks);
}

/* Once in a call: code that may be loaded at any time finds a thread's memory by a function. */
static __attribute__((noinline)) struct group *own_group(void)
{
    return &group;
}

xcclResult_t xccl_group_reject(xcclResult_t rc)
{
    if (group.depth > 0 && !group.rc) {
        group.rc = rc;
        strncpy(group.text, xccl_error_text(), sizeof group.text - 1);
    }
    return rc;
}

xcclResult_t xccl_group_lack(struct xcclComm *comm, xcclResult_t rc)
{
    if (comm && rc == xcclSystemError && !xccl_comm_error(comm))
        rc = xccl_comm_fail_own(comm, rc, XCCL_TROUBLE_CANNOT_CALL);
    return xccl_group_reject(rc);
}

/* xcclInProgress: in the background. */
static xcclResult_t join_all(const struct xccl_join_args *joins, uint32_t count)
{
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 1; i < count && !rc; i++)
        if (joins[i].is_nonblocking != joins[0].is_nonblocking)
            rc = xccl_fail(xcclInvalidUsage, 0, "use a group for each kind",
                           "a group creates both blocking and non-blocking communicators");
    if (rc) {
        xccl_comm_decline(joins, count, rc);
        return rc;
    }
    if (!joins[0].is_nonblocking)
        return xccl_comm_create(joins, count);
    rc = xccl_comm_create_later(joins, count);
    return rc ? rc : xcclInProgress;
}

static xcclResult_t shares_thread(const struct xcclComm *comm)
{
    return xccl_fail(xcclInvalidUsage, 0,
                     "call for all of them between xcclGroupStart and "
                     "xcclGroupEnd",
                     "this thread has another rank of the communicator of rank %d: use a group",
                     comm->rank);
}

static xcclResult_t submit_one(const struct xccl_entry *entry)
{
    xcclResult_t rc = xccl_group_submit(entry, 1);

    return rc == xcclSystemError ? xccl_group_lack(entry->task.comm, rc) : rc;
}

static xcclResult_t execute(const struct xccl_entry *entry)
{
    struct xcclComm *comm = entry->task.comm;
    uint32_t detour;

    if (entry->kind == XCCL_ENTRY_INIT)
        return join_all(entry->join, 1);
    if (entry->kind == XCCL_ENTRY_DESTROY)
        return xccl_comm_destroy(comm);
    /* Relaxed: set by this thread, or by a call that must come before this one. */
    detour = atomic_load_explicit(&comm->detour, memory_order_relaxed);
    if (__builtin_expect(entry->stream || detour, 0)) {
        if (detour & XCCL_DETOUR_DEVICE)
            return comm->ops->submit(entry, 1);
        if (detour & XCCL_DETOUR_GROUP && !entry->stream && !comm->is_nonblocking &&
            xccl_comm_shares_thread(comm))
            return shares_thread(comm);
        if (xccl_group_is_async(entry, 1))
            return submit_one(entry);
    }
    if (entry->kind == XCCL_ENTRY_P2P)
        return xccl_comm_execute_p2p(comm, &entry->p2p, 1);
    return xccl_comm_execute(comm, &entry->task);
}

/* 1 when an earlier entry of the group destroys comm. */
static int leaves_in_group(const struct group *own, const struct xcclComm *comm)
{
    for (uint32_t i = 0; own->leaves && i < own->count; i++)
        if (own->entries[i].kind == XCCL_ENTRY_DESTROY && own->entries[i].task.comm == comm)
            return 1;
    return 0;
}

/* Room for one more of the things that an array of the group holds. */
static xcclResult_t reserve(void **array, uint32_t count, uint32_t *room, size_t bytes)
{
    uint32_t more = *room ? *room * 2 : 16;
    void *grown;

    if (count < *room)
        return xcclSuccess;
    if (count >= ENTRIES_MAX)
        return xccl_fail(xcclInvalidUsage, 0, "end the group earlier",
                         "a group of %u calls is too large", count);
    grown = xccl_realloc(*array, more * bytes);
    if (!grown)
        return xcclSystemError;
    *array = grown;
    *room = more;
    return xcclSuccess;
}

/* With a copy of the ids, which are the user's. */
static xcclResult_t add_join(const struct xccl_join_args *join)
{
    size_t bytes = (size_t)join->id_count * sizeof *join->ids;
    void *joins = group.joins, *ids;
    xcclResult_t rc = reserve(&joins, group.join_count, &group.join_room, sizeof *group.joins);

    group.joins = joins;
    if (rc)
        return rc;
    ids = xccl_calloc(1, bytes);
    if (!ids)
        return xcclSystemError;
    memcpy(ids, join->ids, bytes);
    group.joins[group.join_count] = *join;
    group.joins[group.join_count++].ids = ids;
    return xcclSuccess;
}

/* Room for one more entry, without memory for the first few. */
static xcclResult_t reserve_entry(struct group *own)
{
    int has_few = !own->room || own->entries == own->few;
    void *entries = has_few ? NULL : own->entries;
    xcclResult_t rc;

    if (!own->room) {
        own->entries = own->few;
        own->room = FEW;
    }
    if (own->count < own->room)
        return xcclSuccess;
    rc = reserve(&entries, own->count, &own->room, sizeof *own->entries);
    if (rc)
        return rc;
    if (has_few && entries) /* it is there, which clang's analyzer does not see */
        memcpy(entries, own->few, sizeof own->few);
    own->entries = entries;
    return xcclSuccess;
}

/* What is not the message's keeps its last value; nobody looks at it but at sizes. */
static xcclResult_t add_message(struct group *own, struct xcclComm *comm,
                                const struct xccl_p2p_item *item, struct xccl_host_stream *stream)
{
    xcclResult_t rc = reserve_entry(own);
    struct xccl_entry *entry = own->entries;

    if (rc || !entry) /* it is there, which clang's analyzer does not see */
        return rc;
    entry += own->count++;
    entry->kind = XCCL_ENTRY_P2P;
    entry->task.comm = comm;
    entry->task.call.sizes = NULL;
    entry->p2p = *item;
    entry->stream = stream;
    return xcclSuccess;
}

static xcclResult_t add_entry(struct group *own, const struct xccl_entry *entry)
{
    xcclResult_t rc = reserve_entry(own);

    if (rc)
        return rc;
    xccl_call_sizes_get(entry->task.call.sizes);
    own->entries[own->count++] = *entry;
    own->leaves += entry->kind == XCCL_ENTRY_DESTROY;
    return xcclSuccess;
}

static xcclResult_t fail_left(const struct xcclComm *comm)
{
    return xccl_group_reject(
        xccl_fail(xcclInvalidUsage, 0, "destroy it once, as the last call",
                  "rank %d: a call uses a communicator that this group destroys", comm->rank));
}

xcclResult_t xccl_group_add_call(const struct xccl_task *task, struct xccl_host_stream *stream)
{
    struct xcclComm *comm = task->comm;

    /* Relaxed: see execute(). */
    if (__builtin_expect(!group.depth && !stream &&
                             !atomic_load_explicit(&comm->detour, memory_order_relaxed),
                         1))
        return xccl_comm_execute(comm, task);
    return xccl_group_add(
        &(struct xccl_entry){.kind = XCCL_ENTRY_CALL, .task = *task, .stream = stream});
}

xcclResult_t xccl_group_add_p2p(struct xcclComm *comm, const struct xccl_p2p_item *item,
                                struct xccl_host_stream *stream)
{
    struct group *own = own_group();
    xcclResult_t rc;

    if (!own->depth)
        return execute(&(struct xccl_entry){
            .kind = XCCL_ENTRY_P2P, .task.comm = comm, .p2p = *item, .stream = stream});
    if (__builtin_expect(own->leaves && leaves_in_group(own, comm), 0))
        return fail_left(comm);
    rc = add_message(own, comm, item, stream);
    return rc ? xccl_group_lack(comm, rc) : xcclSuccess;
}

xcclResult_t xccl_group_add(const struct xccl_entry *entry)
{
    struct group *own = own_group();
    xcclResult_t rc;

    if (__builtin_expect(!own->depth, 1))
        return execute(entry);
    if (entry->task.comm && leaves_in_group(own, entry->task.comm))
        return fail_left(entry->task.comm);
    rc = entry->kind == XCCL_ENTRY_INIT ? add_join(entry->join) : add_entry(own, entry);
    if (rc && entry->kind == XCCL_ENTRY_INIT)
        xccl_comm_decline(entry->join, 1, rc);
    if (rc && entry->kind <= XCCL_ENTRY_P2P)
        return xccl_group_lack(entry->task.comm, rc);
    return rc ? xccl_group_reject(rc) : xcclSuccess;
}

int xccl_group_has_stream(const struct xccl_host_stream *stream)
{
    for (uint32_t i = 0; group.depth > 0 && i < group.count; i++)
        if (group.entries[i].stream == stream)
            return 1;
    return 0;
}

void xccl_group_forget(const struct xcclComm *comm)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; group.depth > 0 && i < group.count; i++)
        if (group.entries[i].task.comm != comm)
            group.entries[kept++] = group.entries[i];
        else
            xccl_call_sizes_put(group.entries[i].task.call.sizes);
    if (group.depth > 0 && kept < group.count) {
        group.count = kept;
        (void)xccl_group_reject(
            xccl_fail(xcclInvalidUsage, 0, "abort outside of groups",
                      "a communicator of rank %d was aborted inside a group that has calls on it",
                      comm->rank));
    }
}

xcclResult_t xcclGroupStart(void)
{
    if (group.depth == DEPTH_MAX)
        return xccl_fail(xcclInvalidUsage, 0, "end groups that were started",
                         "%d groups are nested, which is too many", DEPTH_MAX);
    group.depth++; /* all else is as the end of the last one left it */
    return xcclSuccess;
}

/* --- operations --- */

/* Memory was short, so that nothing has begun: nobody shall wait for this rank. */
static void fail_all(xcclResult_t rc)
{
    xcclResult_t first = rc;

    for (uint32_t i = 0; i < group.count; i++)
        if (group.entries[i].kind <= XCCL_ENTRY_P2P)
            xccl_call_not_begun(group.entries[i].task.comm, rc, &first);
}

/* Nothing of the group has begun, for rc and the thread's error text. Wrong arguments are the
 * caller's to mend, who may call again: the others go on waiting, but for joins. */
static void give_up(xcclResult_t rc)
{
    xccl_comm_decline(group.joins, group.join_count, rc);
    if (rc == xcclSystemError)
        fail_all(rc);
}

/* Devices with queues of their own get their operations before the host's are waited for: those of
 * all communicators with one kind of device together. */
static xcclResult_t submit_queued(const struct group *own)
{
    xcclResult_t rc = xcclSuccess;
    uint32_t kinds = 0; /* that have theirs */

    for (uint32_t i = 0; i < own->count && !rc; i++) {
        const struct xccl_device_ops *ops;

        if (own->entries[i].kind > XCCL_ENTRY_P2P)
            continue;
        ops = own->entries[i].task.comm->ops;
        if (!ops->queues || kinds & 1u << ops->kind)
            continue;
        kinds |= 1u << ops->kind;
        rc = ops->submit(own->entries, own->count);
    }
    return rc;
}

static xcclResult_t execute_entries(const struct group *own, struct xccl_call_work *work)
{
    xcclResult_t rc = submit_queued(own), async;

    if (xccl_group_is_async(own->entries, own->count)) {
        async = xccl_group_submit(own->entries, own->count);
        if (async == xcclSystemError)
            fail_all(async);
        rc = rc ? rc : async;
    } else {
        xccl_call_work_run(work, 0, &rc);
    }
    for (uint32_t i = 0; i < own->count; i++) {
        xcclResult_t left = xcclSuccess;

        if (own->entries[i].kind == XCCL_ENTRY_DESTROY)
            left = xccl_comm_destroy(own->entries[i].task.comm);
        rc = rc ? rc : left;
    }
    return rc;
}

static xcclResult_t execute_any(struct group *own)
{
    struct xccl_call_work work;
    xcclResult_t joined = xcclSuccess;
    xcclResult_t rc = xccl_call_work_init(&work, own->entries, own->count,
                                          own->count - own->leaves);

    if (rc)
        give_up(rc);
    else if (own->join_count)
        joined = join_all(own->joins, own->join_count);
    if (!rc && (!joined || joined == xcclInProgress))
        rc = execute_entries(own, &work);
    xccl_call_work_fini(&work);
    return rc ? rc : joined;
}

/* A few messages of one communicator and nothing else, to be done at once: whose; else NULL. */
static struct xcclComm *only_messages(const struct group *own)
{
    struct xcclComm *comm = own->count ? own->entries[0].task.comm : NULL;

    if (own->join_count || own->count > FEW)
        return NULL;
    for (uint32_t i = 0; i < own->count; i++)
        if (own->entries[i].kind != XCCL_ENTRY_P2P || own->entries[i].task.comm != comm ||
            own->entries[i].stream || comm->ops->queues)
            return NULL;
    return comm && !comm->is_nonblocking && !xccl_comm_is_async(comm) ? comm : NULL;
}

static xcclResult_t execute_group(struct group *own)
{
    struct xcclComm *comm = only_messages(own);

    return comm ? xccl_call_messages(comm, own->entries, own->count) : execute_any(own);
}

/* Ids hold secrets. */
static void drop_entries(struct group *own)
{
    for (uint32_t i = 0; i < own->join_count; i++) {
        void *ids = (void *)(uintptr_t)own->joins[i].ids; /* add_join() made it */

        explicit_bzero(ids, (size_t)own->joins[i].id_count * sizeof *own->joins[i].ids);
        xccl_free(ids);
    }
    for (uint32_t i = 0; i < own->count; i++)
        xccl_call_sizes_put(own->entries[i].task.call.sizes);
    xccl_free(own->joins);
    if (own->entries != own->few)
        xccl_free(own->entries);
    own->joins = NULL;
    own->join_count = own->join_room = 0;
    own->entries = NULL;
    own->count = own->room = own->leaves = 0;
    own->rc = xcclSuccess;
}

static xcclResult_t end_group(void)
{
    struct group *own = own_group();
    xcclResult_t rc = own->rc;

    if (!own->depth)
        return xccl_fail(xcclInvalidUsage, 0, "call xcclGroupStart first",
                         "xcclGroupEnd: no group is open in this thread");
    if (--own->depth)
        return xcclSuccess;
    if (rc) {
        xccl_error_set_text(own->text);
        give_up(rc);
        xccl_error_set_text(own->text);
    } else if (own->count || own->join_count) {
        rc = execute_group(own);
    }
    drop_entries(own);
    return rc;
}

xcclResult_t xcclGroupEnd(void)
{
    int has_range = xccl_range_is_used();
    xcclResult_t rc;

    if (!has_range)
        return end_group();
    xccl_range_push("xcclGroupEnd");
    rc = end_group();
    xccl_range_pop();
    return rc;
}

/* --- estimates --- */

static xcclResult_t estimate(const struct xccl_entry *entry, double *ns)
{
    struct xcclComm *comm = entry->task.comm;
    double more = 0;
    xcclResult_t rc;

    xccl_comm_drain(comm); /* what streams have been given moves it from another thread */
    rc = xccl_comm_enter(comm);
    if (rc)
        return rc;
    if (entry->kind == XCCL_ENTRY_P2P)
        more = xccl_plan_message_ns(&comm->planner, entry->p2p.bytes);
    else
        rc = xccl_plan_told(xccl_plan_estimate_ns(&comm->planner, &entry->task.call, &more));
    xccl_comm_leave(comm);
    *ns += more;
    return rc;
}

static xcclResult_t estimate_group(float *us_out)
{
    xcclResult_t rc = xcclSuccess;
    double ns = 0;

    if (group.join_count || group.leaves) {
        rc = xccl_fail(xcclInvalidUsage, 0, "put those calls into a different group",
                       "xcclGroupSimulateEnd: this group creates or destroys communicators");
        xccl_comm_decline(group.joins, group.join_count, rc);
        return rc;
    }
    for (uint32_t i = 0; i < group.count && !rc; i++)
        rc = estimate(&group.entries[i], &ns);
    *us_out = (float)(ns / 1000);
    return rc;
}

xcclResult_t xcclGroupSimulateEnd(xcclSimInfo_t *simInfo)
{
    xcclResult_t rc = group.rc;

    if (!simInfo || simInfo->magic != XCCL_CONFIG_MAGIC || simInfo->size < sizeof *simInfo)
        return xccl_fail(xcclInvalidArgument, 0, "begin with XCCL_SIM_INFO_INITIALIZER",
                         "xcclGroupSimulateEnd: simInfo is %s",
                         simInfo ? "not initialized" : "NULL");
    if (!group.depth)
        return xccl_fail(xcclInvalidUsage, 0, "call xcclGroupStart first",
                         "xcclGroupSimulateEnd: no group is open in this thread");
    simInfo->estimatedTime = 0;
    if (--group.depth)
        return xcclSuccess;
    if (rc) {
        xccl_error_set_text(group.text);
        xccl_comm_decline(group.joins, group.join_count, rc);
    } else {
        rc = estimate_group(&simInfo->estimatedTime);
    }
    drop_entries(&group);
    return rc;
}

XCCL_TWIN(xcclResult_t, xcclGroupSimulateEnd, (xcclSimInfo_t * simInfo));
XCCL_TWIN(xcclResult_t, xcclGroupStart, (void));
XCCL_TWIN(xcclResult_t, xcclGroupEnd, (void));
